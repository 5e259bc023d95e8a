"""Whether a model has changed: the e-process by itself, and of the path of estimates that are means."""

from dataclasses import replace

import numpy as np
import pytest

from murk.inference.drift import FALSE_ALARM, Comparison, CurvePoint, compare, concluded, drift_of_curve, log_ratio
from murk.inference.estimate import RANDOM_SCALING, Estimate
from murk.learners import PublicGLMRegressor
from murk.privacy import GaussianDP

GRID = np.unique((2.0 ** np.arange(4, 20, 0.25)).astype(int))


def path(rng, change=0.0, at=2**15, p=3, spread=1.0):
    """The means of growing numbers of normal observations at `GRID`, (counts, p), whose own mean moves."""
    steps = np.diff(GRID, prepend=0)
    sums = rng.normal(size=(len(GRID), p)) * np.sqrt(steps)[:, None] * spread
    sums[:, 0] += change * np.diff(np.maximum(GRID - at, 0), prepend=0)
    return np.cumsum(sums, axis=0) / GRID[:, None]


def judged(values, halves=None):
    """What is concluded of them, at the last."""
    spread = np.sqrt(1.0 / GRID) if halves is None else halves
    names = tuple(f"x{j}" for j in range(values.shape[1]))
    points = [
        CurvePoint(int(count), 0, tuple(row), (1.959964 * one,) * len(names), 0.0)
        for count, row, one in zip(GRID[:-1], values, spread, strict=False)
    ]
    last = np.full(len(names), spread[-1])
    return drift_of_curve(Estimate(names, values[-1], "delta method", last, "", 1, int(GRID[-1])), points)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.95])
def test_e_is_a_likelihood_ratio(share):
    """Its mean is 1 where nothing changes: drawn where it changes, and weighed back, with 400,000 draws.

    Drawn from the alternative, 1 / E has the mean 1 and a variance below 3, so that five standard errors are 0.014: a
    false alarm in 10^6. Of a spread that is 10% off the mean is farther from 1 than that.
    """
    rng, left = np.random.default_rng(1), np.array(1.0 - share)
    for spread, right in ((1.0, True), (1.1, False)):
        # In units of the standard error before: the estimate moves by the share of what is new, times its distance.
        z = rng.normal(size=400_000) * np.sqrt(share * (1.0 + 16.0 * share)) * spread
        inverse = np.exp(-log_ratio(z**2, left, share))
        assert bool(abs(inverse.mean() - 1.0) < 0.014) is right


def test_less_information_than_releases_counts_as_if_there_were_as_much():
    """An estimate that moves while its standard error does not fall is no sure sign of a change."""
    assert log_ratio(np.array(4.0), np.array(0.99), 0.5) == log_ratio(np.array(4.0 / 1.98), np.array(0.5), 0.5)


def test_a_still_mean_is_not_said_to_have_changed():
    """Of 200 streams, each looked at at every point of its life, at most 1% are expected to be called changed: 2.

    More than 9 have a probability below 10^-4 (binomial); a fixed 1% test at every look calls many more.
    """
    rng = np.random.default_rng(2)
    alarms, careless = 0, 0
    for _ in range(200):
        values = path(rng)
        alarms += judged(values).alarm
        z = (values[16:] - values[8]) / np.sqrt(1.0 / GRID[8] - 1.0 / GRID[16:])[:, None]
        careless += bool(np.any(np.abs(z) > 2.5758))
    assert alarms <= 9
    assert careless > 9


def test_too_narrow_intervals_raise_false_alarms():
    """The twin: standard errors that are half of what they should be."""
    rng = np.random.default_rng(3)
    assert sum(judged(path(rng), 0.5 * np.sqrt(1.0 / GRID)).alarm for _ in range(40)) > 12


def test_a_change_is_noticed_named_and_dated():
    rng = np.random.default_rng(4)
    found = judged(path(rng, change=0.1))
    assert found.alarm
    assert found.p_value < 1e-6
    assert list(found.changes) == ["x0"]
    # The mean of all has moved by a part of it.
    assert 0.03 < found.changes["x0"] < 0.12
    assert 2**14 <= found.since <= 2**16
    assert found.words.startswith(f"The coefficients have changed: releases {found.since + 1:,} to {GRID[-1]:,}")
    assert found.to_dict()["false_alarm"] == FALSE_ALARM


def test_what_was_not_known_before_is_not_compared():
    unknown = np.array([[np.inf, 0.0], [0.0, 1.0]])
    assert compare(np.ones(2), unknown, np.eye(2), 1, 10, 20, 0.5) is None
    nothing = judged(np.zeros((len(GRID), 2)), np.r_[np.full(len(GRID) - 1, np.inf), 1.0])
    assert (nothing.compared, nothing.alarm, nothing.p_value) == (0, False, 1.0)
    assert nothing.words == "It is too early to tell whether the coefficients change."


def test_later_parts_pay_for_the_earlier_ones():
    """The k-th of all counts for 1 / (k (k + 1)), which adds up to 1."""
    one = Comparison(np.log(1000.0), 1, 10, 20, (1.0,), (0.0,))
    tenth = Comparison(np.log(1000.0), 10, 10, 20, (1.0,), (0.0,))
    assert concluded(("a",), 20, [one]).p_value == pytest.approx(2 / 1000)
    assert concluded(("a",), 20, [tenth]).p_value == pytest.approx(110 / 1000)
    assert concluded(("a",), 20, [one], views=7).p_value == pytest.approx(14 / 1000)


def test_random_scaling_cannot_judge_the_path_that_it_is_made_of():
    found = Estimate(("a",), np.ones(1), RANDOM_SCALING, np.ones(1), "", 1, 10)
    assert drift_of_curve(found, []) is None
    assert drift_of_curve(replace(found, method="plug-in"), []) is not None
    assert drift_of_curve(replace(found, method="plug-in", spread=np.full(1, np.inf)), []) is None


@pytest.mark.parametrize("change", [0.0, 0.4])
def test_moments_of_a_stream(change):
    """The path of a learner of moments: one stream that changes half-way, and one that does not (false alarm 1%)."""
    rng, n = np.random.default_rng(5), 2**17
    X = rng.uniform(-1, 1, size=(n, 2))
    slope = np.where(np.arange(n) < n // 2, 0.5, 0.5 - change)
    y = np.clip(slope * X[:, 0] + 0.1 * X[:, 1] + 0.2 * rng.normal(size=n), -1, 1)
    model = PublicGLMRegressor(guarantee=GaussianDP(4.0), features=["a", "b"], target_bounds=(-1, 1), seed=6)
    points, done = [], 0
    for count in [2**k for k in range(9, 18)]:
        model.learn_many(X[done:count], y[done:count])
        done, found = count, model.estimate()
        points.append(CurvePoint(count, 0, tuple(found.values), tuple(found.half_widths()), found.standard_error))
    drift = drift_of_curve(model.estimate(), points)
    assert drift.compared
    assert drift.alarm is (change > 0.0)
    assert set(drift.changes) <= {"a"}
