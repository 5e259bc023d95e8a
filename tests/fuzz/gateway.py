"""A gateway with real noise: what it sends, and when, is the same for any two files that differ in one record.

Each input is a task, a file, and another line for one of its records. Both files are given to the command, with the
same random words and in the same random order; what is seen of it on the network is compared, and only the noise's sum
with that record may differ.
"""

import contextlib
import csv
import gzip
import hashlib
import io
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import murk.cli.commands.produce
import murk.cli.commands.run
from murk.errors import MurkError, UserError
from murk.populations.order import key_of_seed
from murk.producers import Ledger
from murk.stream.log.sqlite import SqliteLog
from tests.fuzz.targets import FindingError, Target

FEATURES = """\
name: fuzz
features:
  - {name: age, low: 20, high: 40}
  - {name: origin, categories: [EWR, JFK, LGA]}
  - {name: born, kind: date, low: 1950-01-01, high: 2005-12-31}
"""
TARGETS = (
    'target: {name: y, kind: binary, positive: "yes", negative: "no"}\n',
    'target: {name: y, kind: binary, positive: "yes"}\n',
    "target: {name: y, kind: real, low: 0, high: 10}\n",
)
CLASSES = "target: {name: y, kind: classes, classes: [red, green, blue]}\n"
PERSON = "privacy: {guarantee: {gdp: {mu: 1.0}}, levels: {strict: {gdp: {mu: 0.5}}}}\n"
WINDOWS = (
    "privacy: {guarantee: {approx: {epsilon: 1.0, delta: 1.0e-6}}, "
    "per_person: {approx: {epsilon: 1.0e+5, delta: 0.5}}}\n"
)
SKETCHES = (
    "protocol: summaries\nsummaries: {rows: 8, window: 10",
    "protocol: summaries\nsummaries: {method: moments, window: 10",
    "protocol: summaries\nsummaries: {method: newton, first: 8, window: 10",
)
OF_PEOPLE = (
    "protocol: scores\n",
    "protocol: gradients\n",
    "protocol: examples\n",
    "protocol: moments\nmoments: {release: joint}\npublic: {set_aside: 6}\n",
)
ALONE = ("protocol: examples", "protocol: moments")
"""Protocols whose releases are of one record each, and of no model."""

COLUMNS = ("age", "origin", "born", "y", "who", "level")
HONEST = {
    "age": ["20", "28", "40", "31.5"],
    "origin": ["EWR", "JFK", "LGA"],
    "born": ["1950-01-01", "1984-02-29", "2005-12-31"],
    "y": ["yes", "no", "0", "9.5", "red", "green"],
    "level": ["default", "strict"],
}
ODD = [
    "", " ", "NaN", "nan", "inf", "-1e999", "1e-400", "forty", "2_8", "0x1f", "\u0662\u0668", "1,5", "true", "None",
    "9" * 400, "-", "1950-13-01", "9999-12-31", "10000-01-01", "2024-05-31T00:00:00Z", "EWR ", "ewr", "a\x85b",
    "\u202e", 'a"b', "two\nlines", "\x00", "=1+1", "maybe", "10.0", "1e308", "-0", "\udcff",
]  # fmt: skip
BROKEN = [
    "{}", "3", "28,JFK", "28,JFK,1984-02-29,yes,w0,default,more", '"28', '28,"JFK', '28,"JFK"x,1984-02-29,yes',
    "[1, 2]", '{"age": ', ",,,,,,,,,,", '"' * 7, "{" * 300, '{"age": 1} {"age": 2}', "\udcff\udcfe", "x" * 140_000,
    "PK\x03\x04", "\udcff\udcfe" + "x" * 100, "\x1f\udc8b\x08", "\x00\x00", "PAR1\x00",
]  # fmt: skip
OBJECTS: list[Any] = [[1], {"a": 1}, True, False, None, 28, 31.5, 10**400, -(10**18), float("nan"), float("inf"), "28"]


@dataclass
class Seen:
    """What is seen of a gateway: how it ended, and what it did with the log, in its order."""

    end: str = ""
    events: list[tuple[Any, ...]] = field(default_factory=list)
    payloads: list[Any] = field(default_factory=list)
    aside: list[Any] = field(default_factory=list)


class Words:
    """The operating system's random words, as if they were the same again."""

    def __init__(self, seed: int) -> None:
        self.seed, self.calls = seed, 0

    def __call__(self, count: int) -> bytes:
        self.calls += 1
        return hashlib.shake_128(f"{self.seed} {self.calls}".encode()).digest(count)


@contextlib.contextmanager
def watched(seen: Seen, seed: int) -> Iterator[None]:
    """Record what a gateway does with a log, with random words from a seed."""
    append, register, prepare = SqliteLog.append, SqliteLog.register_task, SqliteLog.prepare

    def appending(log: SqliteLog, messages: Any) -> None:
        found = []
        for partition, message in messages:
            content = json.loads(message)
            payload = content.pop("payload", None)
            content.pop("task")
            # A function of the payload's first part: what the second was taken at.
            content.pop("model", None)
            seen.payloads.append(payload)
            found.append((partition, json.dumps(content, sort_keys=True), len(payload)))
        seen.events.append(("append", found))
        append(log, messages)

    def registering(log: SqliteLog, document: bytes) -> None:
        content = json.loads(document)
        seen.aside.append(content.pop("covariates", None))
        seen.events.append(("task", json.dumps(content, sort_keys=True)))
        register(log, document)

    def preparing(log: SqliteLog, document: bytes) -> None:
        seen.events.append(("prepare",))
        prepare(log, document)

    def sleeping(seconds: float) -> None:
        seen.events.append(("sleep", seconds))

    with (
        patch.object(SqliteLog, "append", appending),
        patch.object(SqliteLog, "register_task", registering),
        patch.object(SqliteLog, "prepare", preparing),
        # A hash of the file's digest under the ledger's secret: whatever the file, every order is equally likely.
        patch.object(Ledger, "order_key", lambda ledger, task, source: key_of_seed(seed)),
        patch.object(os, "urandom", Words(seed)),
        patch.object(time, "sleep", sleeping),
    ):
        yield


def gateways() -> Target:
    """Tasks and files, and another line for one record of each."""
    root = Path(tempfile.mkdtemp())

    def make(rng: Random) -> bytes:
        return json.dumps(_scenario(rng)).encode()

    def take(data: bytes) -> str:
        found = json.loads(data)
        for again in (False, True):
            seen = [_sent(root / which, found, line) for which, line in (("one", None), ("other", found["other"]))]
            difference = _difference(*seen, found)
            if not difference:
                return "accepted" if seen[0].payloads else f"refused ({seen[0].end})"
            # What is compiled or imported for the first time takes random words, too: only then.
            if again:
                break
        raise FindingError(difference)

    # Kernels compile here, and not within the time of an input.
    scenarios = [_scenario(Random(number)) for number in range(60)]
    of_each = {one["task"].partition("protocol: ")[2][:30]: one for one in scenarios}
    for found in of_each.values():
        _sent(root / "one", found, None)
    return Target(make, take)


def _scenario(rng: Random) -> dict[str, Any]:
    sketch = rng.random() < 0.3
    by_column = sketch and rng.random() < 0.5
    if sketch:
        protocol = rng.choice(SKETCHES) + (", organisation: who}\n" if by_column else "}\n")
        target = TARGETS[2] if "rows" in protocol else TARGETS[0]
    else:
        protocol, target = rng.choice(OF_PEOPLE), rng.choice(TARGETS)
        if protocol == OF_PEOPLE[1] and rng.random() < 0.3:
            target = CLASSES
        if protocol == OF_PEOPLE[3] and "kind: real" not in target:
            target = TARGETS[0]
    task = FEATURES + target + protocol + (WINDOWS if sketch else PERSON)
    task += rng.choice(("", "missing: midpoint\n", "missing: error\n"))
    people = not sketch and "set_aside" not in protocol and rng.random() < 0.5
    level = [] if sketch else rng.choice(([], ["--level", "lot"], ["--level", "column:level"]))
    rows = rng.choice((24, 30)) if sketch else rng.choice((8, 13, 24))
    ending = rng.choice((".csv", ".csv", ".csv.gz", ".jsonl"))
    records = [_record(rng, place, 3 if by_column else rows) for place in range(rows)]
    for _ in range(rng.choice((0, 0, 1, 3))):
        _spoil(rng, rng.choice(records), ending)
    lines = [_line(record, ending) for record in records]
    # A file without a header begins with a record.
    at = rng.choice((0, rng.randrange(rows)))
    # Of a row that cannot be read nobody knows the organisation, nor the level that somebody chose.
    if not by_column and "column:level" not in level and rng.random() < 0.4:
        other = rng.choice(BROKEN)
    elif rng.random() < 0.2:
        other = _line({**_record(rng, at, rows), "who": records[at]["who"], "level": records[at]["level"]}, ending)
    else:
        record = dict(records[at])
        _spoil(rng, record, ending)
        other = _line(record, ending)
    nameless = people and rng.random() < 0.2
    if nameless:
        # Whom a row names, and at which level it is, is no value of the record; that nobody can tell them is.
        lines[rng.randrange(rows)] = _line({**records[at], "who": ""}, ending)
    return {
        "task": task, "ending": ending, "lines": lines, "at": at, "other": other, "seed": rng.getrandbits(32),
        "nameless": nameless,
        "options": [*(["--person", "who"] if people else []), *level, "--block", str(rng.choice((5, 64)))],
    }  # fmt: skip


def _record(rng: Random, place: int, names: int) -> dict[str, Any]:
    return {**{name: rng.choice(values) for name, values in HONEST.items()}, "who": f"w{place % names}"}


def _spoil(rng: Random, record: dict[str, Any], ending: str) -> None:
    """Put something else into a record's values."""
    for name in rng.sample(COLUMNS[:4], rng.choice((1, 1, 2, 4))):
        record[name] = rng.choice(OBJECTS) if ending == ".jsonl" and rng.random() < 0.5 else rng.choice(ODD)
        if ending == ".jsonl" and rng.random() < 0.1:
            del record[name]


def _line(record: dict[str, Any], ending: str) -> str:
    if ending == ".jsonl":
        return json.dumps(record)
    written = io.StringIO()
    csv.writer(written, lineterminator="\n").writerow([record[name] for name in COLUMNS])
    return written.getvalue().removesuffix("\n")


def _sent(folder: Path, found: dict[str, Any], other: str | None) -> Seen:
    """Let a gateway work through a file, in a folder of its own, and see what it does."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    lines = list(found["lines"])
    if other is not None:
        lines[found["at"]] = other
    header = [] if found["ending"] == ".jsonl" else [",".join(COLUMNS)]
    data = ("\n".join([*header, *lines]) + "\n").encode("utf-8", "surrogateescape")
    source = folder / f"people{found['ending']}"
    source.write_bytes(gzip.compress(data) if source.suffix == ".gz" else data)
    (folder / "task.yaml").write_text(found["task"])
    alone = found["task"].partition("protocol: ")[2].startswith(("examples", "moments", "summaries"))
    command = (murk.cli.commands.produce if alone else murk.cli.commands.run).command
    arguments = [
        str(folder / "task.yaml"), "--source", str(source), "--log", f"sqlite:///{folder}/log.db", "--json",
        "--ledger", str(folder / "ledger.db"), *found["options"], "--make-public", "6",
    ]  # fmt: skip
    seen = Seen()
    with (
        watched(seen, found["seed"]),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        try:
            command.main(arguments, standalone_mode=False)
            seen.end = "done"
        except MurkError as error:
            seen.end = "user" if isinstance(error, UserError) else "fault"
            seen.events.append(("error", error.code))
    return seen


def _difference(one: Seen, other: Seen, found: dict[str, Any]) -> str:
    """What tells the two files apart, in words; empty where nothing does."""
    if one.end != other.end:
        return f"one file ends with {one.end!r}, the other with {other.end!r}"
    if one.events != other.events:
        at = next((at for at, (a, b) in enumerate(zip(one.events, other.events, strict=False)) if a != b), -1)
        return f"what is seen differs: {len(one.events)} and {len(other.events)} events, from {at} on"
    if one.aside == other.aside and any(f"{protocol}\n" in found["task"] for protocol in ALONE):
        differing = sum(a != b for a, b in zip(one.payloads, other.payloads, strict=True))
        # A nameless row is called by the file's digest, and so takes another place among people: every place is equally
        # likely, and those in between move by one.
        if differing > 1 and not found["nameless"]:
            return f"{differing} releases differ, and one record does"
    return ""
