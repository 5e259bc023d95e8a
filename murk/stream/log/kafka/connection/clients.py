"""Kafka clients of a log, with the same servers, credentials and timeouts; none waits without limit."""

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

from murk.stream.log.kafka.connection.errors import contacts_of, translate_errors
from murk.stream.log.kafka.connection.members import Member
from murk.stream.log.kafka.connection.network import Address, Network, explain
from murk.stream.log.kafka.connection.records import unpack_at_once
from murk.stream.log.kafka.connection.settings import Settings
from murk.stream.wire.codec import MAX_MESSAGE, MAX_STATE

PATIENCE_MS = 10_000  # milliseconds that one request may take before the log counts as unreachable
# Milliseconds that a device waits for a broker to confirm a release; then the release waits in the outbox.
SENDING_MS = 6_000
# Milliseconds after which the broker aborts a dead owner's open transaction, so that readers of its partition go on.
TRANSACTION_MS = 10_000
CROWD_MS = 300_000  # the same for a shuffler's transaction, which may hold a million releases
METADATA_MS = 3_000  # maximum age in milliseconds of the metadata by which a learner assigns partitions
FETCH_BYTES = 4 * 2**20  # most bytes that one fetch returns, which bounds a reader's memory
CLOSING = 10.0  # seconds that one client may take to close
_LEAVE = 2.0
_SEND_LOOK_MS = 200
_LOOK_MS = 2_000  # milliseconds between two checks of a waiting reader whether it is denied access to its topic
_PLAIN = {"allow_auto_create_topics": False, "metrics_enabled": False}
_log = logging.getLogger(__name__)
_library = logging.getLogger("kafka")
# Without a handler, Python prints the library's warnings on standard error.
_library.addHandler(logging.NullHandler())
if _library.level == logging.NOTSET:
    # At INFO the library logs user names, and at DEBUG all that is sent, including passwords.
    _library.setLevel(logging.WARNING)


def close_in_time(client: Any, url: str) -> None:
    """Close a client, or abandon it after `CLOSING` seconds."""
    errors: list[Exception] = []

    def close() -> None:
        try:
            client.close()
        except Exception as error:  # noqa: BLE001 - raised below
            errors.append(error)

    thread = threading.Thread(target=close, name="murk-closing", daemon=True)
    thread.start()
    thread.join(CLOSING)
    if thread.is_alive():
        _log.warning("%s: a client (%s) did not close in time and was abandoned", url, type(client).__name__)
    if errors:
        raise errors[0]


class InterruptibleProducer(KafkaProducer):  # type: ignore[misc]
    """A producer that can be closed at any time; the library's `close` waits for dead brokers and leaves a thread."""

    def leave(self, patience: float = 0.0) -> None:
        """Close. Open transactions and records that are not sent within ``patience`` seconds are dropped."""
        with suppress(KafkaTimeoutError):
            self.flush(patience)
        self._sender.force_close()
        self._sender.join(_LEAVE)
        with suppress(KafkaTimeoutError):
            self.close(timeout=0)


class TransactionalProducer(InterruptibleProducer):
    """A transactional producer whose commit has a time-out; the library waits without limit, as for a dead broker."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        # If a broker refuses a batch for its sequence number or epoch, the library would bump its epoch (KIP-360), upon
        # which the broker aborts the transaction, and report the empty remainder as committed; a fenced producer would
        # even take the id back from its successor. Here that is an error.
        self._transaction_manager._supports_epoch_bump = lambda: False

    def commit_transaction(self) -> None:
        """Commit; `KafkaTimeoutError` (outcome unknown) after ``max_block_ms``, `KafkaError` if the broker refuses."""
        transactions = self._transaction_manager
        deadline = monotonic() + self.config["max_block_ms"] / 1000
        self._raise_refusal()
        result = transactions.begin_commit()
        self._sender.wakeup()
        while not result.wait(timeout_ms=_SEND_LOOK_MS):
            # A refused record ends the transaction, but the library does not wake those who wait for the commit.
            self._raise_refusal()
            if monotonic() > deadline:
                raise KafkaTimeoutError("no answer to a commit")

    def _raise_refusal(self) -> None:
        error = self._transaction_manager.last_error
        if error is not None:
            raise error


class _Reader(KafkaConsumer):  # type: ignore[misc]
    """A consumer that unpacks each batch as a whole, and raises for a topic to which it is denied access."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        unpack_at_once(self)

    def beginning_offsets(self, partitions: Sequence[TopicPartition], timeout_ms: int = PATIENCE_MS) -> Any:
        return self._ask(super().beginning_offsets, partitions, timeout_ms)

    def end_offsets(self, partitions: Sequence[TopicPartition], timeout_ms: int = PATIENCE_MS) -> Any:
        return self._ask(super().end_offsets, partitions, timeout_ms)

    def _ask(self, request: Callable[..., Any], partitions: Sequence[TopicPartition], timeout_ms: int) -> Any:
        deadline = monotonic() + timeout_ms / 1000
        while True:
            left = 1000 * (deadline - monotonic())
            try:
                return request(partitions, timeout_ms=max(1, min(left, _LOOK_MS)))
            except KafkaTimeoutError:
                refused = {topic_partition.topic for topic_partition in partitions} & self._cluster.unauthorized_topics
                if refused:
                    raise TopicAuthorizationFailedError(refused) from None
                if left <= _LOOK_MS:
                    raise


@dataclass(frozen=True)
class Clients:
    """Factory of clients, each for one thread; ``url`` names the log in messages."""

    address: Address
    settings: Settings
    url: str

    def admin(self) -> Any:
        """Return a client for topics and their settings."""
        return self._make(KafkaAdminClient, request_timeout_ms=PATIENCE_MS)

    def reader(self, *, committed: bool) -> Any:
        """Return a consumer without a group.

        With ``committed`` it waits for open transactions and skips aborted ones. Releases are not read in this way: any
        device could hold up the stream with a transaction that it never ends.
        """
        return self._make(
            _Reader,
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="none",
            isolation_level="read_committed" if committed else "read_uncommitted",
            **_PLAIN,
            # Other requests on this connection wait for a pending fetch.
            fetch_max_wait_ms=100,
            fetch_max_bytes=FETCH_BYTES,
            max_partition_fetch_bytes=FETCH_BYTES,
            request_timeout_ms=PATIENCE_MS + 5_000,
        )

    def member(self, group: str, name: str | None, patience_ms: int) -> Any:
        """Return a consumer that joins a group, to learn which partitions are assigned to this process.

        ``name`` is the group instance id, None for a dynamic member. After ``patience_ms`` without a poll the member
        leaves the group.
        """
        return self._make(
            Member,
            group_id=group,
            group_instance_id=name,
            patience_ms=patience_ms,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            **_PLAIN,
            session_timeout_ms=self.settings.session_timeout_ms,
            # Others notice a new member only at their next heartbeat.
            heartbeat_interval_ms=min(3_000, self.settings.session_timeout_ms // 10),
            # While a broker starts, the leader of the group may see no partitions yet: refresh soon.
            metadata_max_age_ms=METADATA_MS,
        )

    def sender(self) -> Any:
        """Return a producer for devices, acknowledged by all replicas."""
        return self._make(
            InterruptibleProducer,
            acks="all",
            # An idempotent producer's id would be on every record, and tell which releases come from one device.
            enable_idempotence=False,
            max_in_flight_requests_per_connection=1,  # preserves the order on retries
            batch_size=256 * 1024,
            request_timeout_ms=SENDING_MS,
            delivery_timeout_ms=SENDING_MS,
            max_block_ms=SENDING_MS,
            retry_backoff_ms=50,
            **_PLAIN,
        )

    def owner(self, transactional_id: str, doing: str, transaction_ms: int = TRANSACTION_MS) -> Any:
        """Return a transactional producer that has fenced the previous one with this id and aborted its transaction."""
        producer = self._make(
            TransactionalProducer,
            transactional_id=transactional_id,
            transaction_timeout_ms=transaction_ms,
            acks="all",
            request_timeout_ms=PATIENCE_MS,
            delivery_timeout_ms=PATIENCE_MS + 5_000,
            max_block_ms=PATIENCE_MS + TRANSACTION_MS,
            max_request_size=MAX_STATE + 2 * MAX_MESSAGE,
            # The marker of one transaction is still being written when the next one begins: retry soon.
            retry_backoff_ms=5,
            batch_size=256 * 1024,
            **_PLAIN,
        )
        try:
            with translate_errors(self.url, doing):
                producer.init_transactions()
        except BaseException:
            producer.leave()
            raise
        return producer

    def _make(self, kind: Any, **arguments: Any) -> Any:
        made: list[Network] = []
        contacts = contacts_of(self.address.servers)

        def network(**settings: Any) -> Network:
            made.append(Network(contacts, **settings))
            return made[-1]

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
                # A client whose constructor failed still has connections and a thread.
                for client in made:
                    client.close()
                if isinstance(error, KafkaTimeoutError) and (why := explain(self.address, self.settings, self.url)):
                    raise why from error
                raise
