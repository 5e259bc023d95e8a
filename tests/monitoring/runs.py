"""A small run on two partitions and two levels, worked through once and watched by several tests."""

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

from murk import Task
from murk.inference.estimate import Estimate
from murk.monitoring import Monitor
from murk.populations.local_run import LocalRun
from murk.populations.people import PopulationConfig
from murk.stream import open_log
from murk.stream.log.interface import Log
from tests.cli.harness import people

PEOPLE = 1300  # enough for intervals
TEXT = """\
name: third-child
features:
  - {name: same_sex, categories: ["no", "yes"]}
  - {name: age, low: 21, high: 35}
target: {name: third_child, kind: binary, positive: "yes", negative: "no"}
privacy: {guarantee: {gdp: {mu: 1.0}}, levels: {strict: {pure: {epsilon: 2.0}}}}
log: {partitions: 2}
protocol: gradients
learner: {intervals: random-scaling}
"""
TRUTH = {"same_sex": 0.1, "age": 0.2, "intercept": -0.3}


@cache
def finished() -> tuple[Path, Estimate]:
    """The folder of a finished run, with task.yaml, log.db and people.csv, and what it learned."""
    folder = Path(tempfile.mkdtemp(prefix="murk-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / "task.yaml").write_text(TEXT)
    people(folder / "people.csv", PEOPLE)
    crowd = PopulationConfig(folder / "people.csv", level="lot", seed=1)
    with LocalRun(Task.parse(TEXT), crowd, url(folder), folder / "ledger.db") as run:
        for _ in run.steps():
            pass
        # What nobody learns from: a stranger's bytes, and a release that comes again.
        run.log.append([(0, b"not a release"), (1, run.log.read(1, 0, 1)[0].value)])
        for worker in run.workers:
            worker.step()
        return folder, run.estimate()


def url(folder: Path) -> str:
    return f"sqlite:///{folder}/log.db"


def copied(folder: Path) -> Path:
    """A copy of the finished run's log, to be spoilt."""
    source, _ = finished()
    for path in source.glob("log.db*"):
        shutil.copy(path, folder / path.name)
    return folder


def opened(folder: Path) -> tuple[Log, Task]:
    log = open_log(url(folder), create=False)
    document = log.document()
    assert document is not None
    return log, Task.from_document(document)


def watching(folder: Path, **more: object) -> tuple[Monitor, Log]:
    """A monitor of a folder's log that has polled once."""
    log, task = opened(folder)
    monitor = Monitor(log, task, **more)  # type: ignore[arg-type]
    assert monitor.poll()
    return monitor, log
