"""The demonstration in a browser: a question for visitors, its page, and made-up people who answer with them."""

import random
from importlib.resources import files
from pathlib import Path

from murk.inference.units import POINTS, units
from murk.task import Task

TASK = Path(str(files(__name__))) / "rested.yaml"
PAGE = Path(str(files(__name__))) / "page"

TRUTH = {"sleep": 0.08, "coffee": -0.15, "intercept": 0.55}
"""The crowd's change of the chance to feel rested per hour of sleep and by coffee, and its chance in the middle."""


def crowd(size: int) -> list[dict[str, object]]:
    """Return the records of made-up people, the same in every process, so that a stopped demonstration continues.

    >>> crowd(2)
    [{'sleep': 4.8, 'coffee': 'no', 'rested': 'no'}, {'sleep': 4.4, 'coffee': 'yes', 'rested': 'no'}]
    """
    draw = random.Random(1)
    records: list[dict[str, object]] = []
    for _ in range(size):
        sleep, coffee, chance = 4.0 + draw.randrange(61) / 10.0, draw.random() < 0.5, draw.random()
        rested = TRUTH["intercept"] + TRUTH["sleep"] * (sleep - 7.0) + TRUTH["coffee"] * (coffee - 0.5)
        records.append(
            {"sleep": sleep, "coffee": "yes" if coffee else "no", "rested": "yes" if chance < rested else "no"}
        )
    return records


def coded_truth(task: Task) -> dict[str, float]:
    """Return `TRUTH` in coded units."""
    return {name: (POINTS * TRUTH[name] - unit.shift) / unit.factor for name, unit in units(task).items()}
