"""Producers, with two waits of the library's own cut short."""

from __future__ import annotations

from contextlib import suppress
from time import monotonic
from typing import Any

from kafka import KafkaProducer
from kafka.errors import KafkaTimeoutError

_LEAVE = 2.0
_LOOK_MS = 200


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
        while not result.wait(timeout_ms=_LOOK_MS):
            # A record that was refused ends the transaction, and nobody tells those who wait for the commit.
            self._refused()
            if monotonic() > deadline:
                raise KafkaTimeoutError("no answer to a commit")

    def _refused(self) -> None:
        """Raise the error itself for which the library refuses everything after it."""
        error = self._transaction_manager.last_error
        if error is not None:
            raise error
