"""Accounts whose budgets renew, under kills, clock jumps and restored copies: ``python -m benchmarks.accounts``.

A process asks a ledger for two releases of half of the accounts in each of many weeks, at levels drawn at random, and
appends what it grants to a file, the log. It is killed with SIGKILL at random moments and begins its week again. In
some blocks its clock is weeks ahead or behind. Now and then an older copy of the ledger is put back, which must be
refused, and then the newest. In the end the privacy loss of the distinct releases on the log is summed for each account
and week, and for each account, by this module's own arithmetic, and compared with the task's caps.
"""

import argparse
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from murk.errors import UserError
from murk.producers import Ledger, Policy
from murk.producers.ledger.names import ReleaseRequests
from murk.producers.ledger.schema import LOST
from murk.protocols.device import person_device_for
from murk.task.task import Task
from murk.task.windows import utc_day, window_of

TASK = Task.parse("""
name: accounts
features: []
target: {name: slept_well, kind: binary, positive: "yes", negative: "no"}
privacy:
  guarantee: {gdp: {mu: 1.0}}
  levels: {half: {gdp: {mu: 0.5}}, low: {gdp: {mu: 0.3}}}
  per_person: {gdp: {mu: 1.12}}
  window: week
  lifetime: {gdp: {mu: 3.0}}
""")
SPENT = {"default": 1.0, "half": 0.25, "low": 0.09}  # mu^2 of each level
WITHIN, LIFETIME = 1.12**2, 3.0**2
LEVELS = list(SPENT)
FIRST = window_of("week", utc_day("2024-01-01") or 0)
RELEASE = np.dtype([("id", "<u8"), ("account", "<u4"), ("window", "<u4"), ("level", "u1")])
BLOCK, ASKS, JUMPS = 4_000, 2, 0.05
REFUSED, LEDGER, LOG_FILE = 77, "ledger.db", "log.bin"


def work(folder: Path, accounts: int, week: int, weeks: int) -> None:
    """Ask for releases of accounts in each week from one on; print each week that ends."""
    # What a killed process began to append is no release.
    log = os.open(folder / LOG_FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.ftruncate(log, os.fstat(log).st_size // RELEASE.itemsize * RELEASE.itemsize)
    rng = np.random.default_rng()
    with Ledger(folder / LEDGER) as ledger:
        admission = Policy().admit(TASK, person_device_for(TASK).mechanisms)
        ledger.bind("a" * 32, TASK.hash, name=TASK.name, window="week")
        charges = list(admission.charges.values())
        ledger.book(TASK.hash, charges, caps=admission.caps, renewing=admission.renewing)
        while waiting := ledger.queued(TASK.hash):
            os.write(log, b"".join(queued.message for queued in waiting))
            ledger.confirm([queued.number for queued in waiting])
            ledger.delete_confirmed()
        print("begun", flush=True)
        for number in range(week, weeks):
            order = rng.permutation(accounts)[: accounts // 2]
            for start in range(0, len(order), BLOCK):
                who = np.repeat(order[start : start + BLOCK], ASKS)
                jump = int(rng.integers(-3, 4)) if rng.random() < JUMPS else 0
                _ask(ledger, log, who, FIRST + number + jump, rng)
            print(number, flush=True)


def _ask(ledger: Ledger, log: int, who: np.ndarray, window: int, rng: np.random.Generator) -> None:
    levels = rng.integers(len(LEVELS), size=len(who))
    releases = np.zeros(len(who), dtype=RELEASE)
    releases["id"], releases["account"] = rng.integers(2**64, size=len(who), dtype=np.uint64), who
    releases["window"], releases["level"] = window, levels
    people, names = [f"account-{each}" for each in who.tolist()], [LEVELS[level] for level in levels.tolist()]
    requests = ReleaseRequests([None] * len(who), people, names, windows=[window] * len(who))
    with ledger.spending(TASK.hash, requests) as spending:
        granted = spending.granted
        messages = [releases[index].tobytes() for index in granted]
        spending.freeze(messages, [0] * len(granted), [0] * len(granted), expires=2**40)
    os.write(log, b"".join(messages))
    ledger.confirm(spending.numbers)


def check(log: Path, accounts: int, within: float = WITHIN, lifetime: float = LIFETIME) -> dict[str, float]:
    """Sum the privacy loss of the distinct releases on a log; count accounts and weeks above their caps."""
    releases = np.fromfile(log, dtype=RELEASE)
    _, first = np.unique(releases["id"], return_index=True)
    distinct = releases[first]
    loss = np.array([SPENT[level] for level in LEVELS])[distinct["level"]]
    weeks, place = np.unique(distinct["account"].astype(np.uint64) << 32 | distinct["window"], return_inverse=True)
    each = np.bincount(place, weights=loss, minlength=len(weeks))
    whole = np.bincount(distinct["account"], weights=loss, minlength=accounts)
    return {
        "releases": len(distinct), "sent twice": len(releases) - len(distinct), "account-weeks": len(weeks),
        "above in a week": int((each > within + 1e-9).sum()), "above for life": int((whole > lifetime + 1e-9).sum()),
        "largest in a week": float(each.max()), "largest for life": float(whole.max()),
    }  # fmt: skip


class Soak:
    """The processes of one benchmark, and what became of them."""

    def __init__(self, folder: Path, accounts: int, weeks: int, kills: int, copies: int, seed: int) -> None:
        self.folder, self.accounts, self.weeks = folder, accounts, weeks
        self.dice = random.Random(seed)
        self.week = self.killed = self.forgetful = self.refused = 0
        self._kill_in = sorted(self.dice.choices(range(weeks), k=kills))
        self._copy_in = sorted(self.dice.choices(range(1, weeks), k=copies))

    def run(self) -> None:
        """Run the weeks, with kills and copies."""
        while self.week < self.weeks:
            if self._copy_in and self.week >= self._copy_in[0]:
                self._copy_in.pop(0)
                self._restore_older_copy()
            kill = bool(self._kill_in) and self.week >= self._kill_in[0]
            stop = self._kill_in[0] + 1 if kill else min([*self._kill_in[:1], *self._copy_in[:1], self.weeks])
            self._work(max(stop, self.week + 1), kill)

    def _start(self, weeks: int) -> subprocess.Popen[str]:
        values = (self.folder, self.accounts, self.week, weeks)
        command = [sys.executable, "-m", "benchmarks.accounts", "--worker", *map(str, values)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def _work(self, weeks: int, kill: bool) -> None:
        with self._start(min(weeks, self.weeks)) as worker:
            assert worker.stdout is not None
            # Of a killed worker's week nothing is reported: it begins again.
            for line in worker.stdout:
                if line != "begun\n":
                    self.week = int(line) + 1
                elif kill:
                    time.sleep(self.dice.random() * min(1.0, 2e-5 * self.accounts * ASKS))
                    worker.send_signal(signal.SIGKILL)
        if kill:
            self._kill_in.pop(0)
            self.killed += worker.returncode == -signal.SIGKILL
        elif worker.returncode:
            raise SystemExit(f"a worker failed in week {self.week}")

    def _restore_older_copy(self) -> None:
        ledger, older, newest = self.folder / LEDGER, self.folder / "older.db", self.folder / "newest.db"
        shutil.copy(ledger, older)
        log, before = self.folder / LOG_FILE, (self.folder / LOG_FILE).stat().st_size
        # After a jump ahead a week may have no release, which a copy would forget.
        while self.week < self.weeks and log.stat().st_size == before:
            self._work(self.week + 1, kill=False)
        self.forgetful += log.stat().st_size > before
        shutil.copy(ledger, newest)
        shutil.copy(older, ledger)
        with self._start(self.week) as refusing:
            refusing.communicate()
        self.refused += refusing.returncode == REFUSED
        shutil.copy(newest, ledger)


def soak(accounts: int, weeks: int, kills: int, copies: int, seed: int) -> dict[str, float]:
    """Run the benchmark in a folder of its own, and return its figures."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run = Soak(folder, accounts, weeks, kills, copies, seed)
        run.run()
        figures = check(folder / LOG_FILE, accounts)
        # A check of caps that are too small must find something.
        twin = check(folder / LOG_FILE, accounts, 0.95 * WITHIN, 0.95 * LIFETIME)
        return {
            **figures, "caps of 95% exceeded": twin["above in a week"] + twin["above for life"],
            "kills": run.killed, "older copies put back": run.forgetful, "older copies refused": run.refused,
            "ledger in MB": (folder / LEDGER).stat().st_size / 1e6,
            "memory of a worker in MB": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e3,
            "seconds": time.perf_counter() - began,
        }  # fmt: skip


def main(argv: Sequence[str]) -> None:
    """Print the figures; exit with 1 if an account is above its cap, or an older copy was accepted."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accounts", description=__doc__.split("\n")[0])
    parser.add_argument("--accounts", type=int, default=100_000, help="number of accounts (default 100000)")
    parser.add_argument("--weeks", type=int, default=50, help="number of windows (default 50)")
    parser.add_argument("--kills", type=int, default=20, help="processes that are killed (default 20)")
    parser.add_argument("--copies", type=int, default=5, help="older copies that are put back (default 5)")
    parser.add_argument("--seed", type=int, default=1, help="seed of kills and copies (default 1)")
    parser.add_argument("--worker", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.worker:
        folder, *numbers = options.worker
        try:
            work(Path(folder), *map(int, numbers))
        except UserError as error:
            sys.exit(REFUSED if error.code == LOST else str(error))
        return
    figures = soak(options.accounts, options.weeks, options.kills, options.copies, options.seed)
    for name, figure in figures.items():
        print(f"{name:26s} {figure:14,.6g}", flush=True)
    above = figures["above in a week"] + figures["above for life"]
    sys.exit(bool(above or figures["older copies refused"] < figures["older copies put back"]))


if __name__ == "__main__":
    main(sys.argv[1:])
