"""A campaign: inputs by number, in this process or several, with a time limit for each."""

import ctypes
import resource
import signal
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from random import Random

from tests.fuzz.targets import SHARES, Target, outcome, target

INPUT_SECONDS = 20.0
"""An input that takes more of this process's time hangs. On a busy machine it may last far longer; one that waits for
ever uses no time, and its process is missed after `LOST_SECONDS`."""

LOST_SECONDS = 1200.0
CHUNK = 2000
MEMORY_BYTES = 8 * 2**30
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
# The same mistake again and again need not be told more often.
MOST_FINDINGS = 20

open_target = cache(target)


class HangError(Exception):
    """An input took too long."""


@dataclass(frozen=True)
class Finding:
    """Something that must not happen; ``first`` is the number of the input that makes it happen."""

    target: str
    first: int
    error: str
    trace: str
    excerpt: str


@dataclass
class Report:
    """What became of a target's inputs."""

    outcomes: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    slowest: float = 0.0
    memory: int = 0
    findings: list[Finding] = field(default_factory=list)

    def add(self, other: "Report") -> None:
        self.outcomes += other.outcomes
        self.seconds += other.seconds
        self.slowest = max(self.slowest, other.slowest)
        self.memory = max(self.memory, other.memory)
        self.findings += other.findings

    @property
    def inputs(self) -> int:
        return self.outcomes.total()


def numbered(seed: int, name: str, number: int, rng: Random) -> Random:
    """The generator for one input, whatever came before it."""
    rng.seed(((seed << 8) + list(SHARES).index(name) << 64) + number)
    return rng


def chunk(seed: int, name: str, first: int, count: int) -> Report:
    """Make and take so many inputs."""
    report, rng = Report(), Random()
    opened = open_target(name)
    began = time.perf_counter()
    with _limited():
        for number in range(first, first + count):
            data = opened.make(numbered(seed, name, number, rng))
            start = time.perf_counter()
            kind = _taken(opened, data, name, number, report)
            report.slowest = max(report.slowest, time.perf_counter() - start)
            report.outcomes[kind] += 1
        _guarded(lambda: opened.check(), name, first, b"", report)
    report.seconds = time.perf_counter() - began
    report.memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return report


def _taken(opened: Target, data: bytes, name: str, number: int, report: Report) -> str:
    return _guarded(lambda: outcome(opened.take, data), name, number, data, report) or "finding"


def _guarded(act, name: str, number: int, data: bytes, report: Report):
    signal.setitimer(signal.ITIMER_PROF, INPUT_SECONDS)
    try:
        return act()
    # Whatever it is, and a panic in another language is no Exception.
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt | SystemExit) and not data:
            raise
        if len(report.findings) < MOST_FINDINGS:
            trace = "".join(traceback.format_exception(error, limit=-4))
            words = f"{type(error).__name__}: {error}"
            report.findings.append(Finding(name, number, words[:500], trace[-3000:], repr(data[:600])))
        return None
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)


@contextmanager
def _limited() -> Iterator[None]:
    def hang(number, frame):
        raise HangError(f"more than {INPUT_SECONDS} s")

    before = signal.signal(signal.SIGPROF, hang)
    with warnings.catch_warnings():
        # Overflow on the way to a refusal is said by the refusal.
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            signal.signal(signal.SIGPROF, before)


def shares(inputs: int, names: list[str]) -> dict[str, int]:
    """How many inputs each target gets, at least one each."""
    total = sum(SHARES[name] for name in names)
    return {name: max(1, round(inputs * SHARES[name] / total)) for name in names}


def campaign(seed: int, inputs: int, names: list[str], processes: int, first: int = 0) -> Iterator[tuple[str, Report]]:
    """Run through all targets' inputs, a chunk at a time, several processes at once; give each chunk's report.

    A process that dies, or does not come back, is a finding like any other.
    """
    jobs = _jobs(seed, shares(inputs, names), first)
    if processes == 0:
        for job in jobs:
            yield job[1], chunk(*job)
        return
    pool = ProcessPoolExecutor(processes, get_context("spawn"), _confine, (tempfile.gettempdir(),))
    pending: dict[Future[Report], tuple[int, str, int, int]] = {}
    try:
        while True:
            while len(pending) < 2 * processes and (job := next(jobs, None)):
                pending[pool.submit(chunk, *job)] = job
            if not pending:
                return
            done, _ = wait(pending, timeout=LOST_SECONDS, return_when=FIRST_COMPLETED)
            if not done:
                yield _lost(next(iter(pending.values())), "does not come back")
                return
            for future in done:
                job = pending.pop(future)
                try:
                    yield job[1], future.result()
                except BrokenProcessPool:
                    yield _lost(job, "its process died")
                    return
    finally:
        for process in list((pool._processes or {}).values()) if pending else []:
            process.kill()
        pool.shutdown(wait=False, cancel_futures=True)


def _jobs(seed: int, counts: dict[str, int], first: int) -> Iterator[tuple[int, str, int, int]]:
    # In turn, so that a campaign that is stopped has seen something of everything.
    places = dict.fromkeys(counts, 0)
    while any(places[name] < counts[name] for name in counts):
        name = min(counts, key=lambda name: places[name] / counts[name])
        # Few where one takes milliseconds, so that a chunk comes back in time.
        count = min(max(1, round(CHUNK * min(1.0, 5.0 * SHARES[name]))), counts[name] - places[name])
        yield seed, name, first + places[name], count
        places[name] += count


def _lost(job: tuple[int, str, int, int], how: str) -> tuple[str, Report]:
    _, name, first, count = job
    return name, Report(findings=[Finding(name, first, f"{how}: one of {count} inputs from {first} on", "", "")])


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder in which all that targets write lies, here and in a campaign's processes; it is gone afterwards."""
    before = tempfile.tempdir
    with tempfile.TemporaryDirectory(prefix="murk-fuzz-", dir=MEMORY) as folder:
        tempfile.tempdir = folder
        try:
            yield Path(folder)
        finally:
            tempfile.tempdir = before


def _confine(folder: str) -> None:
    """In a process of a campaign: memory that grows without end ends in an error, not in the machine's."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    tempfile.tempdir = folder
