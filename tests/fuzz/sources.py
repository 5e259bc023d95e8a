"""Files of records: whatever is in them, what is said about them quotes nothing of it."""

import gzip
import json
import shutil
import tempfile
from pathlib import Path
from random import Random

from murk import Task
from murk.errors import MurkError
from murk.populations.file_source import FileSource
from tests.cli.harness import FIGURE, WORD
from tests.fuzz.mutate import alter, spoil, strange
from tests.fuzz.targets import FindingError, Target
from tests.fuzz.tasks import FULL
from tests.protocols import GRADIENTS, SKETCH

BOMBS = (b"1", b"1,", b'"1\n",', b'"', b"x\n,", b"[", b'{"a":', b"\n", b" ", b"\0", b"\xff")
ENDINGS = (".csv", ".csv.gz", ".jsonl", ".jsonl.gz")
# Pieces of the raw values that the files hold: one of them in a message is a leak, however much was cut off.
SECRETS = tuple(word[i : i + 5] for word in (WORD, FIGURE) for i in range(len(word) - 4))


def _tasks() -> list[tuple[Task, dict[str, object]]]:
    return [
        (Task.parse(GRADIENTS.text()), {}),
        (Task.parse(GRADIENTS.text()), {"person_column": "who"}),
        (Task.parse(SKETCH.text()), {"organisation_column": "who"}),
        (Task.parse(FULL), {"level": "lot"}),
        (Task.parse(FULL), {"level_column": "who"}),
    ]


def sources() -> Target:
    """Any bytes as a file of records; the first byte says of which kind and for which task."""
    tasks = _tasks()
    folder = Path(tempfile.mkdtemp())
    columns = [[*task.coding.columns, task.coding.target, "who"] for task, _ in tasks]
    cells = ["yes", "no", "28", "21.5", "", "JFK", "LGA", "default", "strict", WORD, FIGURE]

    def records(rng: Random, names: list[str]) -> list[dict[str, object]]:
        honest = {"age": "28", "same_sex": "yes", "third_child": "no", "origin": "JFK", "delay": "3.5", "who": "strict"}
        rows = [{name: honest[name] for name in names} for _ in range(rng.choice((1, 2, 3, 10)))]
        for _ in range(rng.choice((0, 1, 1, 2))):
            rng.choice(rows)[rng.choice(names)] = rng.choice(cells)
        return rows

    def make(rng: Random) -> bytes:
        which = rng.randrange(len(tasks))
        ending = rng.randrange(len(ENDINGS))
        rows = records(rng, columns[which])
        way = rng.random()
        if ENDINGS[ending].startswith(".csv"):
            table = [[*columns[which]], *([str(row[name]) for name in columns[which]] for row in rows)]
            if way < 0.4:
                line = rng.choice(table)
                line[rng.randrange(len(line))] = f"{WORD[: rng.randrange(9)]}{strange(rng)}"
            data = rng.choice(("\n", "\r\n", "\r")).join(",".join(line) for line in table).encode("utf-8", "replace")
        else:
            lines = [alter(rng, row) if way < 0.4 else row for row in rows]
            data = "\n".join(json.dumps(line, ensure_ascii=rng.random() < 0.9) for line in lines).encode(
                "utf-8", "surrogatepass"
            )
        if way > 0.4 and rng.random() < 0.8:
            data = spoil(rng, data)
        if rng.random() < 0.01:
            # A line, a row or a cell without an end.
            data += rng.choice(BOMBS) * rng.choice((10_000, 700_000)) + rng.choice((b"", b"\n", b'"\n')) + data
        if ENDINGS[ending].endswith(".gz"):
            data = gzip.compress(data, 1) if rng.random() < 0.9 else data
            if rng.random() < 0.3:
                data = spoil(rng, data)
        return bytes([which * len(ENDINGS) + ending]) + data

    def take(data: bytes) -> str:
        (task, options), ending = tasks[data[0] // len(ENDINGS)], ENDINGS[data[0] % len(ENDINGS)]
        path = folder / f"records{ending}"
        path.write_bytes(data[1:])
        try:
            # Of real people first, whose records stop nothing.
            for strict in (False, True):
                source = FileSource(path, task, strict=strict, **options)
                # A block of three rows takes as long as one of thousands.
                size = 3 if source.size < 10_000 else 5_000
                rows = sum(len(block) for block in source.blocks(size=size))
                if rows != source.size:
                    raise FindingError(f"{rows} rows were read, of {source.size}")
                source.covariates([0])
        except MurkError as error:
            if leaked := [piece for piece in SECRETS if piece in str(error)]:
                raise FindingError(f"a message that quotes {leaked}: {error}") from None
            raise
        return "accepted"

    def check() -> None:
        shutil.rmtree(folder)
        folder.mkdir()

    return Target(make, take, check)
