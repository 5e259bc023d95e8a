"""Closing a client of the library, whose own waits may have no end.

Producers, with two waits of the library's own cut short.

Clients of a cluster, all made alike: same servers, same credentials, same patience.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaTimeoutError, TopicAuthorizationFailedError

from murk.stream.log.base import MAX_MESSAGE, MAX_STATE
from murk.stream.log.kafka.connection.errors import contacts_of, translate_errors
from murk.stream.log.kafka.connection.members import Member
from murk.stream.log.kafka.connection.network import Address, Network, explain
from murk.stream.log.kafka.connection.records import unpack_at_once
from murk.stream.log.kafka.connection.settings import Settings

CLOSING = 10.0
"""Seconds that one client may take to close: nothing that matters depends on it."""

_log = logging.getLogger(__name__)


def close_in_time(client: Any, url: str) -> None:
    """Close a client, or abandon it after `CLOSING` seconds."""
    met: list[Exception] = []

    def close() -> None:
        try:
            client.close()
        except Exception as error:  # noqa: BLE001 - raised below, where it is waited for
            met.append(error)

    thread = threading.Thread(target=close, name="murk-closing", daemon=True)
    thread.start()
    thread.join(CLOSING)
    if thread.is_alive():
        _log.warning("%s: a client (%s) did not close in time and was abandoned", url, type(client).__name__)
    if met:
        raise met[0]


_LEAVE = 2.0
_SEND_LOOK_MS = 200


class InterruptibleProducer(KafkaProducer):  # type: ignore[misc]
    """A producer that can be left.

    The library's close waits for all records to be sent, and where they cannot be, because a topic is gone or a
    broker does not answer, it raises with its thread still running.
    """

    def leave(self, patience: float = 0.0) -> None:
        """Close, in any case; what is not sent within so many seconds is given up, and open transactions with it."""
        with suppress(KafkaTimeoutError):
            self.flush(patience)
        self._sender.force_close()
        self._sender.join(_LEAVE)
        with suppress(KafkaTimeoutError):
            self.close(timeout=0)


class TransactionalProducer(InterruptibleProducer):
    """A transactional producer that does not wait for ever for a commit.

    The library's has no limit: where a topic is gone, or a broker died at the wrong moment, the answer never
    comes.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        # Where a broker refuses a batch for its sequence number or its epoch, the library would take a new epoch
        # (KIP-360), in which the broker aborts the transaction, and then take the empty one that is left for
        # committed; one that was fenced would even take the id back from its successor. Here that is an error.
        self._transaction_manager._supports_epoch_bump = lambda: False

    def commit_transaction(self) -> None:
        """Commit.

        Raises
        ------
        KafkaTimeoutError
            When no answer came within ``max_block_ms``; what became of the transaction is not known.
        KafkaError
            When the broker refused something of it.
        """
        transactions = self._transaction_manager
        deadline = monotonic() + self.config["max_block_ms"] / 1000
        self._refused()
        result = transactions.begin_commit()
        self._sender.wakeup()
        while not result.wait(timeout_ms=_SEND_LOOK_MS):
            # A record that was refused ends the transaction, and nobody tells those who wait for the commit.
            self._refused()
            if monotonic() > deadline:
                raise KafkaTimeoutError("no answer to a commit")

    def _refused(self) -> None:
        """Raise the error itself for which the library refuses everything after it."""
        error = self._transaction_manager.last_error
        if error is not None:
            raise error


# Without it, anyone who has not set logging up would see every hiccup of a connection on standard error. What
# matters reaches the caller as an error.
_library = logging.getLogger("kafka")
_library.addHandler(logging.NullHandler())
if _library.level == logging.NOTSET:
    # At INFO it names users, and at DEBUG it repeats all that is sent, passwords among it.
    _library.setLevel(logging.WARNING)

PATIENCE_MS = 10_000
"""How long one request may take, in milliseconds, before the log counts as unreachable."""

SENDING_MS = 6_000
"""How long a device waits for a broker to confirm a release before the release waits in the outbox instead."""

TRANSACTION_MS = 10_000
"""After so long the broker aborts a dead owner's open transaction, so that readers of its chain go on."""

_LOOK_MS = 2_000
"""How often a reader that is still waiting looks whether it waits for a topic that it may not see."""

METADATA_MS = 3_000
"""How old a learner's knowledge of the partitions may be by which it shares them out."""

FETCH_BYTES = 4 * 2**20
"""Most bytes that one fetch brings: bounds the memory of a reader, whatever is on the log."""


class _Reader(KafkaConsumer):  # type: ignore[misc]
    """A consumer that unpacks batches at once, and says which topic it may not see.

    The library's own asks for such a topic's end again until time runs out.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        unpack_at_once(self)

    def beginning_offsets(self, partitions: Sequence[TopicPartition], timeout_ms: int = PATIENCE_MS) -> Any:
        return self._ask(super().beginning_offsets, partitions, timeout_ms)

    def end_offsets(self, partitions: Sequence[TopicPartition], timeout_ms: int = PATIENCE_MS) -> Any:
        return self._ask(super().end_offsets, partitions, timeout_ms)

    def _ask(self, how: Callable[..., Any], partitions: Sequence[TopicPartition], timeout_ms: int) -> Any:
        deadline = monotonic() + timeout_ms / 1000
        while True:
            left = 1000 * (deadline - monotonic())
            try:
                return how(partitions, timeout_ms=max(1, min(left, _LOOK_MS)))
            except KafkaTimeoutError:
                refused = {place.topic for place in partitions} & self._cluster.unauthorized_topics
                if refused:
                    raise TopicAuthorizationFailedError(refused) from None
                if left <= _LOOK_MS:
                    raise


@dataclass(frozen=True)
class Clients:
    """Makes clients; each belongs to one thread.

    Parameters
    ----------
    address
        The servers.
    settings
        Encryption and credentials.
    url
        The log's URL, for messages.
    """

    address: Address
    settings: Settings
    url: str

    def admin(self) -> Any:
        """Client for topics and their settings."""
        return self._make(KafkaAdminClient, request_timeout_ms=PATIENCE_MS)

    def reader(self, *, committed: bool) -> Any:
        """Consumer without a group.

        Parameters
        ----------
        committed
            Wait for open transactions and pass over aborted ones. Not for releases: there, any device could
            hold up the stream with a transaction of its own that it never ends.
        """
        return self._make(
            _Reader,
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="none",
            isolation_level="read_committed" if committed else "read_uncommitted",
            allow_auto_create_topics=False,
            metrics_enabled=False,
            # What is asked of a place behind the one that a fetch waits at has to wait for that fetch.
            fetch_max_wait_ms=100,
            fetch_max_bytes=FETCH_BYTES,
            max_partition_fetch_bytes=FETCH_BYTES,
            request_timeout_ms=PATIENCE_MS + 5_000,
        )

    def member(self, group: str, name: str | None, patience_ms: int) -> Any:
        """Consumer that is in a group, to learn which partitions fall to this process.

        Parameters
        ----------
        group
            The group.
        name
            Under which this process comes back to what it had, where it has been away for less than the session's
            time-out; None for one that comes as somebody new each time.
        patience_ms
            Who has not been asked for so long falls out of the group.
        """
        return self._make(
            Member,
            group_id=group,
            group_instance_id=name,
            patience_ms=patience_ms,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            allow_auto_create_topics=False,
            metrics_enabled=False,
            session_timeout_ms=self.settings.session_timeout_ms,
            # Also how late others hear of a newcomer.
            heartbeat_interval_ms=min(3_000, self.settings.session_timeout_ms // 10),
            # The member that shares the chains out may see none while a broker starts: it looks again soon.
            metadata_max_age_ms=METADATA_MS,
        )

    def sender(self) -> Any:
        """Producer for devices: acknowledged by all replicas, without an identity.

        An idempotent producer's id would stand on every record and tell which releases come from one device.
        One request at a time keeps the order when one has to be repeated.
        """
        return self._make(
            InterruptibleProducer,
            acks="all",
            enable_idempotence=False,
            max_in_flight_requests_per_connection=1,
            batch_size=256 * 1024,
            request_timeout_ms=SENDING_MS,
            delivery_timeout_ms=SENDING_MS,
            max_block_ms=SENDING_MS,
            retry_backoff_ms=50,
            allow_auto_create_topics=False,
            metrics_enabled=False,
        )

    def owner(self, transactional_id: str) -> Any:
        """Transactional producer; making it supersedes the previous one of that id."""
        return self._make(
            TransactionalProducer,
            transactional_id=transactional_id,
            transaction_timeout_ms=TRANSACTION_MS,
            acks="all",
            request_timeout_ms=PATIENCE_MS,
            delivery_timeout_ms=PATIENCE_MS + 5_000,
            max_block_ms=PATIENCE_MS + TRANSACTION_MS,
            max_request_size=MAX_STATE + 2 * MAX_MESSAGE,
            # The marker of one transaction is still being written when the next one begins: ask again soon.
            retry_backoff_ms=5,
            batch_size=256 * 1024,
            allow_auto_create_topics=False,
            metrics_enabled=False,
        )

    def _make(self, kind: Any, **arguments: Any) -> Any:
        made: list[Network] = []

        def network(**settings: Any) -> Network:
            made.append(Network(contacts, **settings))
            return made[-1]

        contacts = contacts_of(self.address.servers)

        with translate_errors(self.url, "connecting"):
            try:
                return kind(
                    bootstrap_servers=list(self.address.servers),
                    client_id="murk",
                    bootstrap_timeout_ms=PATIENCE_MS,
                    reconnect_backoff_max_ms=1_000,
                    kafka_client=network,
                    **self.settings.client(),
                    **arguments,
                )
            except BaseException as error:
                # What was half made has connections and a thread, and nobody else knows of it.
                for one in made:
                    one.close()
                if isinstance(error, KafkaTimeoutError) and (why := explain(self.address, self.settings, self.url)):
                    raise why from error
                raise
