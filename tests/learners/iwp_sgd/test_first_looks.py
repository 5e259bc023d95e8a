"""Sequences from the tenth release on: rare outcomes that nobody has released yet, and the edge of a loss's ball.

Streams are simulated with fixed seeds. An honest sequence excludes the truth in at most 5% of streams for each of two
coefficients, so in at most 10% for either; more than `MOST` of `STREAMS` do so with a probability below 1e-3. Each twin
has the variance, or the intervals, that streams refute.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom

from murk import Task
from murk.inference.confidence_sequences import Looks
from murk.inference.contrasts import contrasts, errors_from_zero
from murk.inference.estimate import BallEstimate, Estimate, larger
from murk.privacy import PureDP
from murk.protocols.device import device_for
from murk.protocols.examples import cells_engine as cell_engine
from murk.protocols.examples import estimate as inference
from murk.protocols.examples.cells import CellMechanism, CellTable
from murk.protocols.examples.cells_engine import FIRST, SECOND, THIRD, CellLoss, CellSums
from murk.protocols.examples.engine import engine_of

STREAMS = 40
MOST = int(binom.isf(1e-3, STREAMS, 0.1))
LOOKS = (10, 15, 22, 33, 50, 75, 113, 170)
PURE, NORMAL = "{pure: {epsilon: 6.0}}", "{gdp: {mu: 8.0}}"


def trial(release, loss, guarantee):
    return Task.parse(
        f"""
name: trial
features: [{{name: arm, categories: [a, b]}}]
target: {{name: y, kind: binary, positive: yes, negative: no}}
contrasts: [{{feature: arm, category: b, against: a}}]
protocol: examples
examples: {{release: {release}, loss: {loss}}}
privacy: {{guarantee: {guarantee}}}
intervals: {{tightest_at: 5000}}
"""
    ).with_simulated(True)


def watched(release, loss, guarantee, rare, rate, truth, looks=LOOKS):
    """Return in how many streams a coefficient's sequence, the effect's, and an e-value of 20 are wrong at any look."""
    task = trial(release, loss, guarantee)
    device, wrong = device_for(task), np.zeros(3, dtype=int)
    for stream in range(STREAMS):
        rng = np.random.default_rng([20_261_128, stream])
        engine = engine_of(device.settings, device.mechanisms, seed=stream)
        off, done = np.zeros(3, dtype=bool), 0
        for releases in looks:
            drawn = releases - done
            X = np.column_stack([np.where(rng.random(drawn) < rare, 1.0, -1.0), np.ones(drawn)])
            engine.learn_records(X, (rng.random(drawn) < rate) * 1.0, [device.mechanisms["default"]])
            estimate, done = device.estimate([engine]), releases
            look = Looks("always-valid", task.tightest_at, releases)
            contrast = contrasts(task, estimate, look)[0]
            low, high = contrast.average_effect_interval or (-math.inf, math.inf)
            excluded = np.abs(estimate.values - (0.0, truth)) > estimate.half_widths(look.nominal(0.95))
            off |= (excluded.any(), not low <= 0.0 <= high, contrast.e_value >= 20.0)
        wrong += off
    return wrong


CASES = {
    "cells": ("cells", "quadratic", PURE, 0.1, 0.02, -0.96),
    "joint log": ("joint", "log", NORMAL, 0.5, 0.02, math.log(0.02 / 0.98)),
    "joint exponential": ("joint", "exponential", NORMAL, 0.5, 0.02, math.log(0.02 / 0.98) / 2.0),
    "separate": ("separate", "quadratic", NORMAL, 0.5, 0.02, -0.96),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_sequences_hold_from_the_first_look(case):
    assert (watched(*case) <= MOST).all()


def own_variance(first, second):
    return first


def test_a_rare_cell_without_releases_has_no_variance_of_its_own(monkeypatch):
    monkeypatch.setattr(cell_engine, "larger", own_variance)
    assert watched(*CASES["cells"])[0] > MOST


# A rare group, at a loss with average effects of its own. (Its coefficients are pulled to zero, not so the effect.)
EFFECTS = ("cells", "log, regularization: 0.02", "{pure: {epsilon: 8.0}}", 0.03, 0.4, math.log(0.4 / 0.6))


def test_sequences_of_average_effects_hold_from_the_first_look():
    assert watched(*EFFECTS)[1] <= MOST


def test_an_average_effect_of_a_rare_group_has_too_small_a_variance_of_its_own(monkeypatch):
    monkeypatch.setattr(cell_engine, "larger", own_variance)
    assert watched(*EFFECTS)[1] > MOST


def without_curvature_error(estimate, level):
    return plain(replace(estimate, curvature_error=None), level)


plain = Estimate.half_widths


def test_intervals_that_ignore_the_ball_exclude_a_truth_beyond_it(monkeypatch):
    # Nor may noise of the curvature widen them: each alone is enough here.
    monkeypatch.setattr(BallEstimate, "half_widths", without_curvature_error)
    assert watched(*CASES["joint log"])[0] > MOST


def test_residuals_of_few_releases_vary_too_little(monkeypatch):
    monkeypatch.setattr(inference, "larger", own_variance)
    monkeypatch.setattr(Estimate, "half_widths", without_curvature_error)
    assert watched(*CASES["joint exponential"])[0] > MOST


def test_an_interval_that_reaches_the_edge_has_no_bound():
    estimate = BallEstimate(("a",), np.zeros(1), "sandwich", np.ones(1), "", 1, 100, room=2.5)
    assert estimate.half_widths(0.95) == pytest.approx(1.96, abs=1e-3)
    assert np.isinf(estimate.half_widths(0.99))


def test_the_larger_covariance():
    rng = np.random.default_rng(1)
    for size in (1, 2, 5):
        A, B, turn = rng.normal(size=(3, size, size))
        first, second = A @ A.T, B @ B.T
        both = larger(first, second)
        for each in (first, second):
            assert np.linalg.eigvalsh(both - each).min() > -1e-9
        assert np.linalg.eigvalsh(first + second - both).min() > -1e-9
        assert larger(turn @ first @ turn.T, turn @ second @ turn.T) == pytest.approx(turn @ both @ turn.T, abs=1e-8)
    assert larger(np.zeros((2, 2)), np.zeros((2, 2))).tolist() == [[0.0, 0.0], [0.0, 0.0]]


def expected_by_level(mechanisms, counts, shares):
    """The three rows of sums, expected of ``counts`` releases of each mechanism."""
    rows = np.zeros((3, len(shares)))
    for mechanism, count in zip(mechanisms, counts, strict=True):
        a, q = mechanism.gain, mechanism.other
        chance = q + shares / a
        for row, value in ((FIRST, 1.0 / a), (SECOND, a**-2), (THIRD, q * a**-2)):
            rows[row] += count * value * chance
    return rows


def mixed(counts=(300, 500)):
    """Sums of two levels, their mechanisms, and the table of cells."""
    settings = device_for(trial("cells", "quadratic", PURE)).settings
    mechanisms = [CellMechanism.calibrate(PureDP(epsilon), settings.cells) for epsilon in (1.0, 4.0)]
    engine, rng = engine_of(settings, {"default": mechanisms[0]}, seed=1), np.random.default_rng(2)
    for mechanism, count in zip(mechanisms, counts, strict=True):
        chance = mechanism.other + np.array([0.6, 0.2, 0.1, 0.0, 0.1]) / mechanism.gain
        engine.add(mechanism, rng.multinomial(count, chance))
    return engine.sums, mechanisms, CellLoss(CellTable.of(settings.cells), settings)


def test_expected_sums_of_levels():
    sums, mechanisms, _ = mixed()
    shares = np.array([0.5, 0.2, 0.15, 0.05, 0.1])
    expected = sums.expected(shares)
    assert expected.cells == pytest.approx(expected_by_level(mechanisms, (300, 500), shares), rel=1e-9)
    assert expected.shares == pytest.approx(shares)


def test_shares_are_compatible_with_releases_up_to_three_standard_errors():
    sums, _, _ = mixed()
    at = sums.shares
    for shares in (np.zeros(5), np.full(5, 0.9), at):
        used = sums.compatible(shares)
        for cell, (share, moved) in enumerate(zip(shares, used, strict=True)):
            error = math.sqrt(CellSums.covariance(sums.expected(used), np.eye(5)[:, [cell]])[0, 0])
            assert abs(moved - at[cell]) <= 3.0 * error * (1 + 1e-6)
            assert moved in (share, 0.0) or abs(moved - at[cell]) == pytest.approx(3.0 * error, rel=1e-6)


def test_pooled_shares_have_no_effect_and_the_shares_of_features():
    sums, (_, mechanism), loss = mixed((0, 0))
    engine = engine_of(loss.settings, {"default": mechanism}, seed=1)
    engine.add(CellMechanism.calibrate(PureDP(20.0), mechanism.cells), np.array([40, 2, 8, 0, 0]))
    # 42 of 50 releases have the first category, 48 and 2 the targets, of each of which two more count.
    expected = np.outer([0.84, 0.16], [50 / 54, 4 / 54]).ravel()
    assert loss.pooled(engine.sums).shares == pytest.approx([*expected, 0.0], abs=1e-6)
    # With many releases the pooled shares are those released: a strong effect does not widen intervals for good.
    sums, _, loss = mixed()
    many = CellSums(sums.cells * 1e6, sums.totals * 1e6)
    assert loss.pooled(many).shares == pytest.approx(many.shares, abs=2e-4)


def test_a_difference_of_next_to_nothing_has_no_evidence():
    assert errors_from_zero(lambda level: (1e-300, 1.0 + level), [0.95, 0.99]) == 0.0


def test_intervals_with_a_noisy_curvature_are_fieller_s():
    """A ratio of two normal numbers: at least 94% are held, as intervals reach the farther of Fieller's ends.

    20,000 ratios, 4 standard errors of the share: 6 in 100,000 false alarms. The twin takes the curvature as known.
    """
    rng, many, z = np.random.default_rng(7), 20_000, 1.959964
    slopes, curvatures = 0.5 + 0.05 * rng.normal(size=many), 1.0 + 0.25 * rng.normal(size=many)
    kept = {}
    for noisy in (True, False):
        error = np.hypot(0.05, 0.25 * slopes / curvatures * noisy) / curvatures
        estimate = Estimate(
            ("a",) * many, slopes / curvatures, "sandwich", error, "", 1, 100,
             curvature_error=0.25 / curvatures if noisy else None,
        )  # fmt: skip
        halves = estimate.half_widths(0.95)
        if noisy:
            assert np.isinf(halves[z * 0.25 / curvatures >= 1.0]).all()
        kept[noisy] = float(np.mean(np.abs(estimate.values - 0.5) <= halves))
    error = 4.0 * math.sqrt(0.06 * 0.94 / many)
    assert kept[True] > 0.94 - error > kept[False]
