"""Intervals: the arithmetic, and how often they hold the truth."""

import math

import numpy as np
import pytest

from murk.errors import UserError
from murk.learners.estimates.estimate import PublicCovariates, scaling_quantile
from murk.learners.gradients.engine import SGDEngine
from murk.learners.gradients.inference import hessian
from murk.learners.gradients.losses import Balanced, FullSoftmax, Huber, Logistic, Softmax
from murk.learners.gradients.settings import Settings
from murk.privacy import GaussianDP
from murk.privacy.mechanisms import calibrate

NAMES = ("a", "b", "intercept")
TRUTH = np.array([0.4, -0.3, 0.2])


def covariates(n=4000, seed=1):
    rng = np.random.default_rng(seed)
    x = np.column_stack([rng.choice([-1.0, 1.0], size=(n, 2)), np.ones(n)])
    points, counts = np.unique(x, axis=0, return_counts=True)
    return PublicCovariates(points, counts)


def engine(seed, public, mu=1.0, radius=1.0, intervals=None, objective=None):
    settings = Settings(
        objective=objective or Logistic(),
        names=NAMES,
        radius=radius,
        second_moment=None if public is None else public.second_moment,
        intervals=intervals,
    )
    mechanism = calibrate(None, GaussianDP(mu), dimension=3, radius=settings.bound)
    built = SGDEngine(settings, {"default": mechanism}, seed=seed, covariates=public)
    built.use(mechanism)
    return built


def people(n, seed):
    rng = np.random.default_rng(seed)
    x = np.column_stack([rng.choice([-1.0, 1.0], size=(n, 2)), np.ones(n)])
    return x, (rng.random(n) < 1 / (1 + np.exp(-x @ TRUTH))).astype(float)


def coverage(replications, narrow=1.0, objective=None, intervals="complete", missing=0.0):
    """Shares of plug-in 95% intervals, and of those narrowed by a factor, that hold the truth: of all coefficients."""
    held = []
    for seed in range(replications):
        built = engine(seed, covariates(seed=seed + 500), objective=objective, intervals=intervals)
        x, y = people(30_000, seed + 1000)
        y[np.random.default_rng(seed).random(len(y)) < missing] = np.nan
        built.learn_records(x, y)
        found = built.estimate()
        assert found.method == "plug-in"
        off, half = np.abs(found.values - TRUTH), found.half_widths(0.95)
        held.append((np.mean(off <= half), np.mean(off <= narrow * half)))
    return np.mean(held, axis=0)


@pytest.mark.parametrize("objective", [Logistic(), Balanced()])
def test_a_hessian_far_out_is_zero_and_does_not_overflow(objective):
    settings = Settings(objective=objective, names=NAMES, radius=2000.0)
    far = np.array([0.0, 0.0, 1000.0])
    for theta in (far, -far):
        assert np.abs(hessian(settings, covariates(n=50), theta)).max() < 1e-300


def test_plug_in_intervals_hold_the_truth_as_often_as_they_say():
    """80 replications of 3 coefficients: were the three one, the share's standard error would be 0.0244.
    Bounds 3.2 of these below 0.95: then a false alarm in 7 of 10,000 runs, fewer as they are not; the seed is fixed.
    """
    share, twin = coverage(80, narrow=2 / 3)
    assert share >= 0.95 - 4.5 * math.sqrt(0.95 * 0.05 / 80) / math.sqrt(2)
    # Twin: intervals a third narrower hold it 81% of the time, and must be told from 95%.
    assert twin < 0.95 - 4.5 * math.sqrt(0.95 * 0.05 / 80) / math.sqrt(2)


def test_plug_in_intervals_of_the_balanced_loss_hold_the_truth_too():
    """40 replications of 3 coefficients. Were the three one, fewer than 75% of 95% ones would hold it once in 10^5."""
    share, twin = coverage(40, narrow=1 / 4, objective=Balanced())
    assert share >= 0.75
    # They are as wide as of the logistic loss, up to twice what the noise makes them; the twin's are a quarter of that.
    assert twin < 0.75


@pytest.mark.parametrize("objective", [Logistic(), Balanced()])
def test_plug_in_intervals_hold_the_truth_where_half_of_the_targets_are_missing(objective):
    """60 replications of 3 coefficients, the worst share that is allowed for.

    Were the three one, fewer than 80% of 95% ones would hold it less than once in 10^4; the twins' are as if all
    targets were there, which hold it in 70% (logistic), and by half of the width (balanced, whose are twice its noise).
    """
    assert coverage(60, objective=objective, intervals=None, missing=0.5)[0] >= 0.8
    narrow = 0.5 if isinstance(objective, Balanced) else 1.0
    assert coverage(60, narrow, objective=objective, missing=0.5)[1] < 0.8


def test_hessian_is_the_derivative_of_the_mean_gradient():
    from murk.learners.gradients import kernels as k
    from murk.learners.gradients.engine import Memory

    public = covariates()
    rng = np.random.default_rng(3)
    moment = public.second_moment + 0.3 * np.eye(3)
    for objective in (Logistic(), Balanced(), Softmax(3), FullSoftmax(3)):
        for weights in ("norm", "mallows"):
            for second in (None, moment):
                settings = Settings(objective=objective, names=NAMES, weights=weights, second_moment=second)
                memory, d = Memory(settings), settings.dimension
                theta = rng.normal(size=d) * 0.5
                share = public.counts / public.counts.sum()

                # Of outcomes that come as at theta: of the balanced loss the slope hangs on that.
                z = public.points if settings.transform is None else public.points @ settings.transform
                chance = 1 / (1 + np.exp(-z @ theta[: z.shape[1]]))

                def mean_gradient(at, memory=memory, d=d, share=share, chance=chance):
                    out = np.zeros((2, len(share), d))
                    for y in (0, 1):
                        k.gradients(memory.real, memory.whole, at, public.points, np.full(len(share), float(y)), out[y])
                    return share * (1 - chance) @ out[0] + share * chance @ out[1]

                numeric = np.array(
                    [(mean_gradient(theta + e) - mean_gradient(theta - e)) / 2e-6 for e in 1e-6 * np.eye(d)]
                )
                assert np.allclose(hessian(settings, public, theta), numeric, atol=1e-7)


def test_before_anything_is_learned_nothing_is_claimed():
    for public in (None, covariates()):
        found = engine(1, public).estimate()
        assert np.all(np.isinf(found.half_widths(0.95)))


def test_random_scaling_is_made_an_interval_of_where_it_is_asked_for_by_name():
    """It holds the truth far less often than it says: nobody gets it who says nothing."""
    found = {}
    for asked in (None, "random-scaling"):
        built = engine(1, None, intervals=asked)
        built.learn_records(*people(2000, 1))
        found[asked] = built.estimate()
    assert np.array_equal(found[None].values, found["random-scaling"].values)
    assert np.all(np.isinf(found[None].half_widths(0.95)))
    assert np.all(np.isfinite(found["random-scaling"].half_widths(0.95)))
    assert "intervals: random-scaling gives these" in found[None].note
    with pytest.raises(UserError, match="is not one of"):
        engine(1, None, intervals="random scaling")


def test_intervals_say_what_they_are():
    built = engine(1, None, intervals="random-scaling")
    built.learn_records(*people(2000, 1))
    intervals = built.estimate().intervals(0.9)
    assert intervals.method == "random scaling"
    assert "cover" in intervals.note
    assert set(intervals) == set(NAMES)
    with pytest.raises(UserError, match=r"0\.80"):
        built.estimate().intervals(0.99)
    with_public = engine(1, covariates())
    with_public.learn_records(*people(2000, 1))
    assert with_public.estimate().intervals(0.99).method == "plug-in"
    with pytest.raises(UserError, match="between 0 and 1"):
        with_public.estimate().intervals(1.5)


def test_quantiles_shrink_with_chains():
    values = [scaling_quantile(0.95, chains) for chains in (1, 2, 3, 4, 5, 8, 100)]
    assert values == sorted(values, reverse=True)
    assert scaling_quantile(0.95, 5) == scaling_quantile(0.95, 4)


def test_random_scaling_law_is_the_tabled_one():
    """The tabled 95% quantile for one chain, by 20,000 simulated Brownian bridges.

    The share beyond 6.747 has standard error 0.00154; 5 of them: a false alarm in 6 of 10 million.
    """
    rng = np.random.default_rng(4)
    steps, draws = 500, 20_000
    beyond = twin = 0
    for _ in range(draws // 2000):
        walk = np.cumsum(rng.normal(size=(2000, steps)), axis=1) / math.sqrt(steps)
        bridge = walk - walk[:, -1:] * np.arange(1, steps + 1) / steps
        ratio = np.abs(walk[:, -1]) / np.sqrt(np.mean(bridge**2, axis=1))
        beyond += int(np.sum(ratio > scaling_quantile(0.95)))
        twin += int(np.sum(ratio > scaling_quantile(0.90)))
    # 0.002 is allowed for the 500-step path in place of a continuous one.
    assert abs(beyond / draws - 0.05) < 5 * 0.00154 + 0.002
    assert abs(twin / draws - 0.05) > 5 * 0.00154 + 0.002


def test_huber_reports_the_scale():
    settings = Settings(objective=Huber(0.5, None, 4.0), names=NAMES, radius=2.0)
    mechanism = calibrate(None, GaussianDP(8.0), dimension=4, radius=settings.bound)
    built = SGDEngine(settings, {"default": mechanism}, seed=3)
    built.use(mechanism)
    rng = np.random.default_rng(2)
    x = np.column_stack([rng.normal(size=(60_000, 2)), np.ones(60_000)])
    built.learn_records(x, x @ TRUTH + 0.5 * rng.normal(size=60_000))
    found = dict(zip(built.estimate().names, built.estimate().values, strict=True))
    assert found["scale"] == pytest.approx(0.5, abs=0.05)
    assert found["a"] == pytest.approx(0.4, abs=0.05)
