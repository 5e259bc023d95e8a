"""Who owns a chain of the embedded log, and what they commit."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from murk._sqlite import Database
from murk.stream.log.base import Checkpoint, DeadLetter, FencedError, Ownership
from murk.stream.messages.estimates import KEY


def checkpoints(database: Database, where: str, *values: int) -> list[Checkpoint]:
    """States and offsets as they were last committed."""
    kinds = ((bytes, type(None)), int)
    rows = database.query(f'SELECT state, "offset" FROM states WHERE {where}', values, kinds)
    return [Checkpoint(*row) for row in rows]


class Epoch(Ownership):
    """Ownership of a chain of the embedded log: the number that its row of states held when it was taken."""

    def __init__(self, url: str, database: Database, chain: int, epoch: int, clock: Callable[[], float]) -> None:
        self.chain = chain
        self._url = url
        self._database = database
        self._epoch = epoch
        self._clock = clock

    def load(self) -> Checkpoint:
        """Read the state and the offset that were last committed."""
        found = checkpoints(self._database, "chain = ? AND epoch = ?", self.chain, self._epoch)
        if not found:
            raise self._fenced()
        return found[0]

    def commit(
        self,
        state: bytes,
        offset: int,
        dead: Sequence[DeadLetter] = (),
        model: bytes | None = None,
        estimate: bytes | None = None,
    ) -> None:
        """Write state, offset and what goes with them in one transaction, as the chain's owner."""
        with self._database.write() as connection:
            written = connection.execute(
                'UPDATE states SET state = ?, "offset" = ? WHERE chain = ? AND epoch = ?',
                (state, offset, self.chain, self._epoch),
            ).rowcount
            if written != 1:
                raise self._fenced()
            if dead:
                now = int(self._clock())
                connection.executemany(
                    "INSERT OR REPLACE INTO dead_letters VALUES (?, ?, ?, ?, ?, ?)",
                    [(d.partition, d.offset, now, d.reason, d.detail, d.value) for d in dead],
                )
            if model is not None:
                connection.execute("INSERT OR REPLACE INTO models VALUES (?, ?)", (self.chain, model))
            if estimate is not None:
                # Not in `_create`: logs of before get it as well, and earlier versions take no notice of it.
                connection.execute("CREATE TABLE IF NOT EXISTS estimates (key TEXT PRIMARY KEY, message BLOB NOT NULL)")
                connection.execute("INSERT OR REPLACE INTO estimates VALUES (?, ?)", (KEY.decode(), estimate))

    def close(self) -> None:
        """Keep the row: the epoch stays with the last owner until another takes the chain over."""

    def _fenced(self) -> FencedError:
        return FencedError(
            f"another worker has taken over chain {self.chain} of {self._url}; this one stops, and nothing "
            "of what it had not yet committed was applied. Run one worker for each chain"
        )
