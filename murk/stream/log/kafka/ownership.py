"""Ownership of a chain: a transactional producer, and one transaction for each commit."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from kafka.errors import KafkaError

from murk.errors import MurkError
from murk.stream.log.base import Checkpoint, DeadLetter, FencedError, Ownership, UnreachableError, taken_over
from murk.stream.log.kafka.connection.clients import PATIENCE_MS, Clients
from murk.stream.log.kafka.connection.errors import translate, translate_errors
from murk.stream.log.kafka.consumers import record
from murk.stream.log.kafka.topics import Names
from murk.stream.messages.estimates import KEY

OFFSET = "offset"
OWNER = "owner"


class KafkaOwnership(Ownership):
    """The newest producer with a chain's transactional id.

    Creating it fences the previous producer and aborts its open transaction. After a commit whose outcome is unknown,
    the chain must be acquired again, which reads what was really committed.

    Parameters
    ----------
    load
        Reads the committed state and offset.
    check
        Raises if the topics are not those with which the log was opened.
    start_model
        Sends a model without waiting and returns a future.
    """

    def __init__(
        self,
        clients: Clients,
        names: Names,
        chain: int,
        load: Callable[[int], Checkpoint],
        check: Callable[[], None],
        start_model: Callable[[int, bytes], Any],
    ) -> None:
        self.chain = chain
        self._url = clients.url
        self._names = names
        self._load = load
        self._check = check
        self._start_model = start_model
        self._sent_model: Any = None
        self._lost: MurkError | None = None
        self._producer = clients.owner(names.owner(chain))
        try:
            with translate_errors(self._url, f"taking over chain {chain}"):
                self._producer.init_transactions()
        except BaseException:
            self.close()
            raise

    def load(self) -> Checkpoint:
        """Read the committed state."""
        self._check_owned()
        return self._load(self.chain)

    def commit(
        self,
        state: bytes,
        offset: int,
        dead: Sequence[DeadLetter] = (),
        model: bytes | None = None,
        estimate: bytes | None = None,
    ) -> None:
        """Write everything in one transaction."""
        self._check_owned()
        self._check()
        self._await_model()
        key, names = str(self.chain).encode(), self._names
        owner = f"{socket.gethostname()}:{os.getpid()}".encode()
        try:
            self._producer.begin_transaction()
            # The task's own learner lists dead letters; a model only counts them.
            for letter in dead if names.model is None else ():
                self._producer.send(names.dead, partition=self.chain, **record(letter))
            if model is not None:
                self._producer.send(names.models, model, key=key, partition=self.chain)
            if estimate is not None:
                self._producer.send(names.estimates, estimate, key=KEY, partition=0)
            headers = [(OFFSET, str(offset).encode()), (OWNER, owner)]
            self._producer.send(names.states, state, key=key, partition=self.chain, headers=headers)
            self._producer.commit_transaction()
        except KafkaError as error:
            raise self._record_loss(error) from error
        except BaseException:
            # The outcome of an interrupted commit is unknown.
            self._lost = MurkError(
                f"a commit to chain {self.chain} of {self._url} was interrupted: acquire the chain again"
            )
            raise

    def publish_uncommitted(self, model: bytes) -> None:
        """Send a model without waiting, outside any transaction."""
        # If it cannot be sent, the commit that follows reports why.
        with suppress(UnreachableError):
            self._sent_model = self._start_model(self.chain, model)

    def close(self) -> None:
        """Close the producer; the next owner or the time-out aborts an open transaction."""
        self._lost = self._lost or MurkError(f"chain {self.chain} of {self._url} was given up")
        self._producer.leave()

    def _await_model(self) -> None:
        """Wait until the published model is on the log: if it arrived after the commit's model, it would replace it."""
        sent, self._sent_model = self._sent_model, None
        if sent is not None:
            with suppress(KafkaError):
                sent.get(timeout=PATIENCE_MS / 1000)

    def _check_owned(self) -> None:
        if self._lost is not None:
            raise self._lost

    def _record_loss(self, error: KafkaError) -> MurkError:
        lost = translate(error, self._url, f"committing chain {self.chain}")
        if isinstance(lost, FencedError):
            lost = taken_over(self.chain, self._url)
        self._lost = lost
        return lost
