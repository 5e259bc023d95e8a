"""An experiment in a browser: three buttons, made-up people who see them, and every look at what is learned."""

import json
import random
from importlib.resources import files
from pathlib import Path
from typing import Any

from murk.results.report import report_log
from murk.stream.log.interface import Log
from murk.task import Task

TASK = Path(str(files(__name__))) / "checkout.yaml"
PAGE = Path(str(files(__name__))) / "page"

CONTROL_SHARE = 0.3
TRUTH = {"green": 0.0, "blue": 4.0}
"""The crowd's lifts in points: the green button is as good as the grey one, the blue one better."""


def crowd(size: int) -> list[dict[str, object]]:
    """Return the records of made-up people, the same in every process, so that a stopped demonstration continues.

    >>> crowd(2)
    [{'button': 'blue', 'bought': 'yes'}, {'button': 'grey', 'bought': 'no'}]
    """
    draw, task = random.Random(1), Task.load(TASK)
    records: list[dict[str, object]] = []
    for person in range(size):
        arm = task.arm_of(f"person {person}")
        bought = draw.random() < CONTROL_SHARE + TRUTH.get(arm, 0.0) / 100.0
        records.append({"button": arm, "bought": "yes" if bought else "no"})
    return records


class Looks:
    """All looks at an experiment since the demonstration started: lifts, with intervals for every look and for one."""

    def __init__(self, task: Task, log: Log) -> None:
        self._task, self._log = task, log
        self._looks: list[dict[str, Any]] = []

    def look(self) -> None:
        """Add a look, if more people have answered."""
        report = report_log(self._task, self._log, live=True, history=False)
        experiment, people = report.get("experiment"), report["releases"]
        if experiment is not None and (not self._looks or people > self._looks[-1]["people"]):
            lifts = {
                lift["arm"]: [lift["value"], *lift["interval"], *lift["fixed_interval"]]
                for lift in experiment["lifts"]
                if abs(lift["interval"][0]) < 1e6
            }
            self._looks.append({"people": people, "lifts": lifts})

    def body(self) -> bytes:
        """Return the looks, and the truth, as JSON."""
        return json.dumps({"control": "grey", "truth": TRUTH, "looks": self._looks}).encode()
