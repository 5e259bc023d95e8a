"""The share of targets beyond three spreads from the surveyed centre is estimated by the survey, and reported."""

from math import erf, sqrt

import numpy as np
import pytest

import murk
from murk import Task
from murk.protocols.scores.survey.shapes import Reply, share_beyond

TASK = """
name: amounts
features: [{name: x, low: -1, high: 1}]
target: {name: y, kind: real, low: 0, high: 1000}
privacy: {guarantee: {gdp: {mu: 4.0}}}
"""


def replies(centre, spread):
    """Mean answers without noise to "is y above t?", of a normal distribution."""
    return [Reply(t / 20, erf((centre - t / 20) / spread / sqrt(2.0)), 1e-4, 1e-4) for t in range(-19, 20)]


@pytest.mark.parametrize(("low", "high", "share"), [(-0.2, 0.2, 0.0455), (-0.1, 0.1, 0.3173), (-1.0, 0.1, 0.1587)])
def test_the_share_beyond_two_ends(low, high, share):
    found, most = share_beyond(replies(0.0, 0.1), low, high)
    assert abs(found - share) < 0.08
    assert share <= most
    # The twin: answers of numbers that are spread four times as wide.
    found, most = share_beyond(replies(0.0, 0.4), low, high)
    assert abs(found - share) > 0.08


def test_the_most_holds_for_every_shape():
    """A tenth of the numbers lie far above a narrow rest, which no normal variable tells."""
    heavy = [Reply(t / 20, 0.9 * erf((-0.5 - t / 20) / 0.1 / sqrt(2.0)) + 0.1, 1e-4, 1e-4) for t in range(-19, 10)]
    found, most = share_beyond(heavy, -1.0, 0.2)
    assert 0.1 <= most < 0.13
    # The twin: the share of normal shapes.
    assert found < 0.1


def test_nothing_is_beyond_the_bounds_of_the_target():
    assert share_beyond(replies(0.0, 0.1), -1.0, 1.0) == (0.0, 0.0)


def test_a_report_says_the_share_of_targets_that_are_cut():
    rng = np.random.default_rng(1)
    x = rng.uniform(-1, 1, 6_000)
    y = np.clip(300 + 20 * x + 25 * rng.standard_t(3, 6_000), 0, 1000)
    rows = [{"x": float(a), "y": float(b)} for a, b in zip(x, y, strict=True)]
    report = murk.run(Task.parse(TASK), rows, seed=1).report
    low, high = report["cut"]
    true = float(np.mean((y < low) | (y > high)))
    # Two standard errors of a share that a survey of few people hardly tells from zero.
    assert report["cut_share"]["share"] <= true + 0.1
    assert true <= report["cut_share"]["most"] < 0.6
    assert f"at most {report['cut_share']['most']:.1%}" in report["interval"]["note"]
