"""Which model intervals are of, where values are missing, and when that matters."""

from dataclasses import dataclass

import numpy as np
import pytest

from murk import Task
from murk.inference.estimate import Estimate, Extent
from murk.results.diagnosis import describe_missing, kept_share

TEXT = """
name: visits
features: [{{name: visits, low: 0, high: 8{said}}}]
target: {{name: y, kind: binary, positive: "yes"}}
privacy: {{guarantee: {{gdp: {{mu: 1.0}}}}}}
"""


@dataclass(frozen=True)
class Known(Estimate):
    where: Extent | None = None

    def extent(self):
        return self.where


def described(said, X):
    """Of released moments of coded rows, without noise."""
    task = Task.parse(TEXT.format(said=said))
    p = task.coding.size
    moment = np.column_stack([X, np.ones(len(X))])
    where = Extent(moment.T @ moment / len(X), np.eye(p), np.zeros((p, p)))
    estimate = Known(task.coding.names, np.zeros(p), "some", np.ones(p), "", 1, 100, where=where)
    return describe_missing(task, estimate)


def counts(fill):
    """3% missing of a count; as coded where they count as ``fill``."""
    visits = np.array([0.0, 0, 1, 2] * 97 + [fill] * 12)
    return (visits[:, None] - 4) / 4


def test_a_share_of_the_task_and_released_moments_tell_when_missing_values_matter():
    [found] = described(", missing_share: 0.03", counts(4.0))
    there = np.array([0, 0, 1, 2])
    wanted = kept_share(0.03, 4 - there.mean(), there.var())
    assert found["kept"] == pytest.approx(wanted, rel=1e-6)
    # Values may be missing mostly where the target is, which releases do not show.
    matters = "This matters if the same share is missing among people with a target"
    assert f"count as 4, the middle of its bounds. {matters}" in found["words"]
    [filled] = described(", missing: 0.75, missing_share: 0.03", counts(0.75))
    assert filled["kept"] == pytest.approx(1.0)
    assert "This matters" not in filled["words"]
    assert "are missing, as the task states, and count as 0.75." in filled["words"]


def test_what_a_slope_loses_is_what_least_squares_lose():
    """Values missing at random: the formula is that of the fit to the coded values."""
    rng = np.random.default_rng(1)
    visits = rng.geometric(0.6, 200_000) - 1.0
    y = 0.5 * visits + rng.normal(size=len(visits))
    coded = np.where(rng.random(len(visits)) < 0.03, 4.0, visits)
    slope = np.cov(coded, y)[0, 1] / coded.var()
    wanted = kept_share(0.03, 4 - visits.mean(), visits.var())
    # A standard error of 0.004: a false alarm in a million seeds; the twin without the distance is far off.
    assert slope / 0.5 == pytest.approx(wanted, abs=0.02)
    assert abs(slope / 0.5 - kept_share(0.03, 0.0, visits.var())) > 0.1


def test_an_indicator_tells_the_share_itself():
    gone = np.where(np.arange(400) < 20, 1.0, -1.0)
    [found] = described(", missing: indicator", np.column_stack([np.where(gone > 0, 0.0, -0.8), gone]))
    assert (found["share"], found["source"], found["kept"]) == (pytest.approx(0.05), "releases", 1.0)
    assert described("", counts(4.0)) == []
