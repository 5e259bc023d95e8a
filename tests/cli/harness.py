"""Runs the `murk` command in processes of its own, and makes the files it is given.

Every command that these tests run is checked for what no output may ever hold: a raw value of a record, a
traceback, or an admission that something unforeseen happened.
"""

import ctypes
import gzip
import json
import re
import resource
import sqlite3
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from murk.demo import DATA
from murk.stream import open_log
from tests.cli.processes import Process, ask

ROOT = Path(__file__).parents[2]
WORD, FIGURE = "S3CR3T-77", "987654.321"
"""Raw values that the files of these tests hold where something goes wrong: they must never come out."""

ROWS = gzip.decompress(DATA.read_bytes()).decode().splitlines()
HEADER = ROWS[0].split(",")

ANY_PROTOCOL = """\
name: third-child
features:
  - {name: same_sex, categories: ["no", "yes"]}
  - {name: age, low: 21, high: 35}
target: {name: third_child, kind: binary, positive: "yes", negative: "no"}
privacy: {guarantee: {gdp: {mu: 1.0}}}
"""
"""The task as far as it does not depend on a protocol."""
TASK = ANY_PROTOCOL + "protocol: gradients\n"
LOG, LEDGER = "sqlite:///third-child.db", "third-child.ledger.db"
ACCOUNTS = "people.ledger.db"
"""The ledger of simulations, and that of people.csv with real noise, where none is named."""

LOGGED = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ ")
"""How a line of the log begins."""


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The one object on standard output."""
        assert self.status == 0, self.err
        found = json.loads(self.out)
        assert isinstance(found, dict)
        return found


def start(*arguments: object, folder: Path, file_limit: int | None = None, unprivileged: bool = False) -> Process:
    """Start a command in a process that is forked.

    Its files may not grow beyond a limit; where it is unprivileged, it is refused what files' permissions refuse.
    """
    return Process([str(one) for one in arguments], folder, file_limit, unprivileged)


def finish(process: subprocess.Popen[str] | Process) -> Done:
    try:
        # A fresh clone compiles its kernels in the first of these processes.
        out, err = process.communicate(timeout=600)
    finally:
        process.kill()
    return clean(Done(process.returncode, out, err))


def clean(done: Done) -> Done:
    """Make sure that no output holds what none may hold."""
    for text in (done.out, done.err):
        for never in (WORD, FIGURE, FIGURE.partition(".")[0], "Traceback", "unexpected", "Warning"):
            assert never not in text, text
    return done


def murk(
    *arguments: object,
    folder: Path,
    answer: str | None = None,
    file_limit: int | None = None,
    unprivileged: bool = False,
) -> Done:
    """Run a command to its end, in a process that was forked.

    With an ``answer`` it runs at a terminal, at which that is typed, and what it printed there is all in ``out``.
    """
    if answer is not None:
        order = {"arguments": [str(one) for one in arguments], "folder": str(folder), "answer": answer}
        return clean(Done(*ask(order), ""))
    return finish(start(*arguments, folder=folder, file_limit=file_limit, unprivileged=unprivileged))


def run(folder: Path, *more: object, file_limit: int | None = None, unprivileged: bool = False) -> Done:
    """`murk run task.yaml --source people.csv --seed 1 --json`, with further options."""
    return murk(
        "run", "task.yaml", "--source", "people.csv", "--seed", 1, "--json", *more, folder=folder,
        file_limit=file_limit, unprivileged=unprivileged,
    )  # fmt: skip


def refused(done: Done, *words: str, status: int = 2) -> None:
    """A refusal: its status, nothing on standard output and, after what it logged, one line that holds some words."""
    assert (done.status, done.out) == (status, ""), done
    *logged, line, end = done.err.split("\n")
    assert end == "", done.err
    assert all(LOGGED.match(one) for one in logged), done.err
    assert line.startswith("murk: ")
    for word in words:
        assert word in line, line


def people(path: Path, rows: Iterable[int] | int, change: tuple[int, str, str] | None = None) -> Path:
    """Write some of the 254,654 women as CSV; ``change`` is (row from 1, column, text)."""
    chosen = range(rows) if isinstance(rows, int) else rows
    lines = [ROWS[row + 1] for row in chosen]
    if change is not None:
        row, column, text = change
        cells = lines[row - 1].split(",")
        cells[HEADER.index(column)] = text
        lines[row - 1] = ",".join(cells)
    path.write_text("\n".join([ROWS[0], *lines]) + "\n")
    return path


def world(folder: Path, rows: Iterable[int] | int = 300, task: str = TASK) -> Path:
    """A folder with task.yaml and people.csv."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "task.yaml").write_text(task)
    people(folder / "people.csv", rows)
    return folder


def totals(folder: Path, ledger: str = LEDGER) -> dict[str, Any]:
    return murk("ledger", ledger, "--json", folder=folder).json


def query(path: Path, sql: str) -> list[Any]:
    """Look into a database that nobody has open any more; a copy is read, so that nothing is recovered in it."""
    copy = sqlite3.connect(":memory:")
    source = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        source.backup(copy)
        return copy.execute(sql).fetchall()
    finally:
        source.close()
        copy.close()


def accounts(folder: Path) -> dict[str, Any]:
    """All that is in a ledger but days: debits, accounts, outbox, and how far files were worked through."""
    ledger = folder / LEDGER
    debits = query(ledger, "SELECT * FROM debits ORDER BY number")
    # What a ledger calls people is its own: compared is who is the same.
    called = {value: f"#{at}" for at, value in enumerate(dict.fromkeys(one for row in debits for one in row))}
    anybody = {value: name for value, name in called.items() if isinstance(value, bytes)}
    # Days of the first and last release are left out: of two runs that are compared, one may end after midnight.
    columns = "home, person, tariff, released, refused, dropped"
    spending = query(ledger, f"SELECT {columns} FROM spending ORDER BY home, person, tariff")
    return {
        "debits": [tuple(anybody.get(one, one) for one in row) for row in debits],
        "spending": sorted([tuple(anybody.get(one, one) for one in row) for row in spending], key=str),
        "outbox": query(ledger, "SELECT number FROM outbox"),
        "runs": query(ledger, "SELECT next_row, counters, excluded FROM runs"),
    }


def traces(folder: Path) -> dict[str, Any]:
    """All that a finished run of the task leaves: its ledger, the ids on the log in order, and histories."""
    log = folder / "third-child.db"
    with open_log(f"sqlite:///{log}", create=False) as opened:
        messages = [
            (number, message)
            for number in range(opened.partitions)
            for message in opened.read(number, 0, opened.end(number))
        ]
    states = [
        json.loads(state) for (state,) in query(log, "SELECT state FROM states ORDER BY partition") if state is not None
    ]
    return {
        **accounts(folder),
        # Their times are the log's, and each run's log is its own.
        "histories": [(state["history"]["counts"], state["history"]["numbers"]) for state in states],
        "messages": [(number, json.loads(message.value)["id"]) for number, message in messages],
    }


def unprivileged() -> None:
    """In a child: be refused what the permissions of files refuse, even as root."""
    library = ctypes.CDLL(None)
    version, sets = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    assert library.capget(version, sets) == 0
    for place in range(3):
        sets[place] &= ~(1 << 1 | 1 << 2)  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
    assert library.capset(version, sets) == 0


def largest_file(size: int) -> Callable[[], None]:
    """In a child: no file may grow beyond so many bytes, as on a disk that is full."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
