"""Dead letters read back from a topic on which anybody may have written."""

from types import SimpleNamespace
from typing import Any

from murk.stream.log.interface import DeadLetter
from murk.stream.log.kafka.consumers import letters, record

LETTER = DeadLetter(0, 5, "schema", "id: missing", b"{}")


class Partition:
    def __init__(self, *found: dict[str, Any]) -> None:
        self._found = [SimpleNamespace(offset=offset, **one) for offset, one in enumerate(found)]

    def begin(self) -> int:
        return 0

    def end(self) -> int:
        return len(self._found)

    def read(self, offset: int, limit: int) -> list[Any]:
        return self._found[offset : offset + limit]


def test_what_strangers_have_written_among_them() -> None:
    strange = [
        {"value": None, "key": b"0:1", "headers": [("reason", None), ("detail", None)]},
        {"value": b"x", "key": b"0:2", "headers": []},
        {"value": b"x", "key": None, "headers": [("reason", b"schema")]},
        {"value": b"x", "key": b"0:" + b"9" * 5000, "headers": []},
    ]
    found = list(letters(Partition(*strange, record(LETTER)), 0))
    assert found == [DeadLetter(0, 1, "", "", b""), DeadLetter(0, 2, "", "", b"x"), LETTER]
