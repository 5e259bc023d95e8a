"""Clients of a cluster, all made alike: same servers, same credentials, same patience."""

from __future__ import annotations

import logging
import socket
import ssl
from dataclasses import dataclass
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.errors import KafkaTimeoutError

from murk.errors import UserError
from murk.stream.kafka.address import Address
from murk.stream.kafka.faults import reaching
from murk.stream.kafka.settings import Settings

# Without it, whoever has not set logging up would see every hiccup of a connection on standard error. What
# matters reaches the caller as an error.
logging.getLogger("kafka").addHandler(logging.NullHandler())

PATIENCE_MS = 10_000
"""How long one request may take, in milliseconds, before the log counts as unreachable."""

TRANSACTION_MS = 10_000
"""After so long the broker aborts a dead owner's open transaction, so that readers of its chain go on."""

FETCH_BYTES = 4 * 2**20
"""Most bytes that one fetch brings: bounds the memory of a reader, whatever is on the log."""


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
            KafkaConsumer,
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

    def member(self, group: str) -> Any:
        """Consumer that is in a group, to learn which partitions fall to this process."""
        return self._make(
            KafkaConsumer,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            allow_auto_create_topics=False,
            metrics_enabled=False,
            partition_assignment_strategy=[CooperativeStickyAssignor],
            session_timeout_ms=self.settings.session_timeout_ms,
            heartbeat_interval_ms=self.settings.session_timeout_ms // 10,
        )

    def sender(self) -> Any:
        """Producer for devices: acknowledged by all replicas, without an identity.

        An idempotent producer's id would stand on every record and tell which releases come from one device.
        One request at a time keeps the order when one has to be repeated.
        """
        return self._make(
            KafkaProducer,
            acks="all",
            enable_idempotence=False,
            max_in_flight_requests_per_connection=1,
            linger_ms=2,
            batch_size=256 * 1024,
            request_timeout_ms=PATIENCE_MS,
            delivery_timeout_ms=PATIENCE_MS + 5_000,
            max_block_ms=PATIENCE_MS,
            retry_backoff_ms=50,
            allow_auto_create_topics=False,
            metrics_enabled=False,
        )

    def owner(self, transactional_id: str) -> Any:
        """Transactional producer; making it supersedes the previous one of that id."""
        return self._make(
            KafkaProducer,
            transactional_id=transactional_id,
            transaction_timeout_ms=TRANSACTION_MS,
            acks="all",
            request_timeout_ms=PATIENCE_MS,
            delivery_timeout_ms=PATIENCE_MS + 5_000,
            max_block_ms=PATIENCE_MS + TRANSACTION_MS,
            # The marker of one transaction is still being written when the next one begins: ask again soon.
            retry_backoff_ms=5,
            batch_size=256 * 1024,
            allow_auto_create_topics=False,
            metrics_enabled=False,
        )

    def _make(self, kind: Any, **arguments: Any) -> Any:
        with reaching(self.url, "connecting"):
            try:
                return kind(
                    bootstrap_servers=list(self.address.servers),
                    client_id="murk",
                    bootstrap_timeout_ms=PATIENCE_MS,
                    reconnect_backoff_max_ms=1_000,
                    **self.settings.client(),
                    **arguments,
                )
            except KafkaTimeoutError:
                self._examine_certificate()
                raise

    def _examine_certificate(self) -> None:
        """Say so if it is the certificate that keeps us from the servers: the client only says that time ran out."""
        if not self.settings.security_protocol.endswith("SSL"):
            return
        host, _, port = self.address.servers[0].rpartition(":")
        host = host.strip("[]")
        context = ssl.create_default_context(cafile=self.settings.ssl_ca_file)
        try:
            with (
                socket.create_connection((host, int(port)), timeout=5) as connection,
                context.wrap_socket(connection, server_hostname=host),
            ):
                return
        except ssl.SSLCertVerificationError:
            # Translated where the connection was asked for.
            raise
        except ssl.SSLError as error:
            raise UserError(
                f"{self.url}: no encrypted connection comes about ({error.reason}): is this the port of the listener "
                "with TLS, and does it ask for a client's certificate (ssl.certificate.file)?"
            ) from error
        except OSError:
            return
