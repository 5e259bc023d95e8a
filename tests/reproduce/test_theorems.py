"""The papers' theorems: false ones are shown false, and the right versions hold, also off the grid."""

import math
from dataclasses import replace

import numpy as np
import pytest

from murk.privacy import ApproxDP
from murk.protocols.examples import transforms
from murk.protocols.examples.losses import LOGIT_WIDTH
from murk.protocols.summaries.surrogate import quadratic
from reproductions.gaussmix import bounds as sketch_bounds
from reproductions.gaussmix import hessian
from reproductions.gaussmix.baselines import minimise
from reproductions.gaussmix.draws import Window
from reproductions.iwp_sgd import moments, theorems
from reproductions.iwp_sgd.moments import EXPONENTIAL, PROBIT, QUADRATIC, Place, Release
from reproductions.ldp_sgd import bounds as sgd_bounds
from reproductions.ldp_sgd.trajectories import LossGap

CODES = {"quadratic": transforms.QUADRATIC, "exponential": transforms.EXPONENTIAL, "probit": transforms.PROBIT}
LOSSES = [QUADRATIC, EXPONENTIAL, PROBIT]


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_inverse_transforms_are_those_of_the_learner(loss):
    z, v, h = np.linspace(-2.0, 2.0, 9), np.full(9, 0.7), 1e-5
    first, second, third = loss.at(z, v)
    known = [transforms.slopes(CODES[loss.name], 0, LOGIT_WIDTH, one, 0.7) for one in z]
    np.testing.assert_allclose(np.column_stack([first, second]), known, rtol=1e-12)
    np.testing.assert_allclose(third, (loss.at(z + h, v)[1] - loss.at(z - h, v)[1]) / (2 * h), atol=1e-8)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_the_variance_is_that_of_simulated_releases(loss):
    """Mean of 400,000 squared errors within 5 standard errors: false alarm 6e-7. The twin has public labels."""
    release, theta, x = Release(2.0, 1.0), np.array([0.3, -0.4, 0.1]), np.array([0.5, 1.0, -0.3])
    place = Place(3, float(np.linalg.norm(theta)), float(theta @ x), float(x @ x))
    rng = np.random.default_rng(1)
    noisy = x + math.sqrt(2.0) * rng.standard_normal((400_000, 3))
    label = np.where(rng.random(400_000) < 1 / (1 + math.exp(-1.0)), 1.0, -1.0)
    v = np.full(400_000, 2.0 * theta @ theta)
    estimate = np.zeros((400_000, 3))
    for weight, y in ((release.weight, label), (1.0 - release.weight, -label)):
        first, second, _ = loss.at(y * (noisy @ theta), v)
        estimate += weight * (noisy * (y * first)[:, None] - 2.0 * np.outer(second, theta))
    true = x * float(loss.at(np.array([x @ theta]), np.zeros(1))[0][0])
    found = np.square(estimate - true).sum(axis=1)
    error = 5.0 * found.std() / math.sqrt(len(found))
    assert abs(found.mean() - moments.variance(loss, place, release)) < error
    assert abs(found.mean() - moments.variance(loss, place, replace(release, epsilon_y=30.0))) > error
    # The estimate is unbiased, and the identity of the proof is right.
    assert np.all(np.abs(estimate.mean(axis=0) - true) < 5.0 * estimate.std(axis=0) / math.sqrt(len(found)))
    assert moments.decomposed(loss, place, release) == pytest.approx(moments.variance(loss, place, release), rel=1e-9)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
@pytest.mark.parametrize(("p", "epsilon"), theorems.SETTINGS)
def test_the_right_bound_holds_anywhere_and_the_printed_one_does_not(loss, p, epsilon):
    release = Release.published(p, epsilon)
    radius = (1.2 if loss is PROBIT else 2.0) / math.sqrt(release.noise)
    bounds = moments.constants(loss, p, radius, release)
    rng = np.random.default_rng(p)
    found = []
    for _ in range(60):
        t, square = radius * rng.random() ** 0.25, p * rng.random() ** 0.25
        place = Place(p, t, t * math.sqrt(square) * rng.uniform(-1, 1), square)
        one, finer = (moments.variance(loss, place, release, nodes=nodes) for nodes in (801, 1601))
        assert one == pytest.approx(finer, rel=1e-9)
        found.append(one)
    assert max(found) <= bounds.bound(release)
    # Moments grow with the variance, so that their mean is below the one at the end.
    ends = moments.moments(loss, Place(p, radius, 0.3, p), release.noise * np.array([0.25, 0.5, 1.0]))
    assert np.all(np.diff(ends) >= -1e-9)
    if loss is not PROBIT:
        edge = Place(p, radius, -radius * math.sqrt(p), p)
        assert bounds.bound(release, printed=True) < moments.variance(loss, edge, release) <= bounds.bound(release)


def test_the_quadratic_losss_constants_have_closed_forms():
    p, radius, release = 3, 0.4, Release(5.0, 1.0)
    found = moments.constants(QUADRATIC, p, radius, release)
    edge = radius * math.sqrt(p)
    printed = p * (edge + 1) ** 2 + 2 * (edge + 1) * edge + p * radius**2
    assert found.printed == pytest.approx(printed)
    assert found.moment == pytest.approx(printed + (p + 1) * 5.0 * radius**2)
    assert found.slope == pytest.approx(p * (edge + 1) ** 2)


def test_the_bias_of_the_risk_depends_on_which_label_is_kept():
    scores = np.random.default_rng(1).uniform(-0.2, 0.4, 200)
    for name in ("quadratic", "exponential"):
        closed, direct = theorems.risks(name, scores, 0.5, 0.7)
        assert closed == pytest.approx(direct, rel=1e-10)
        assert closed != pytest.approx(theorems.risks(name, scores, 0.5, 0.3)[1], rel=1e-2)


def test_a_rate_is_measured_and_another_is_not():
    """Slope of exponential errors at five n, 400 runs each, within 4 standard errors: false alarm 6e-5."""
    rng, counts = np.random.default_rng(3), [2**k for k in range(8, 13)]
    for power in (-1.0, -0.5):
        slope = theorems.rate(counts, [n**power * rng.exponential(size=400) for n in counts])
        assert abs(slope.value - power) < 4.0 * slope.error < 0.3
        assert abs(slope.value + 1.5 + power) > 4.0 * slope.error


@pytest.mark.parametrize("kind", ["linear", "logistic"])
def test_hessians_are_the_curvature_of_the_loss(kind):
    """Curvature of the loss of 8,192 people, whose terms are at most 1: within 5 standard errors of at most 0.0055."""
    hessian_of, gap, step = sgd_bounds.problem(kind).hessian, LossGap(kind, sgd_bounds.D), 0.05
    target = sgd_bounds.truth(kind, sgd_bounds.D)
    for place in range(len(target)):
        move = step * np.eye(len(target))[place]
        curvature = float(gap(np.array([target + move, target - move])).sum()) / step**2
        assert abs(curvature - hessian_of[place, place]) < 0.0275
    assert np.trace(hessian_of) > len(target) * 0.0275


def test_theorem_5_has_no_bound_at_one_half():
    one = sgd_bounds.problem("logistic")
    near, at, beyond = (sgd_bounds.bounds(one, alpha, 24.0, 300_000)[5] for alpha in (0.4999, 0.5, 0.5001))
    assert near > 50.0 * beyond
    assert math.isinf(at)


def test_the_stretch_is_a_quantile_of_noisy_losses():
    """Share of 2,000 sketches at most the quantile, within 5 standard errors of .95: false alarm 6e-7."""
    rng = np.random.default_rng(5)
    z = rng.normal(size=(300, 7)) / 4.0
    window, variance, rows = Window(z.T @ z, 300), 3.0, 20
    least = window.residual(variance)

    def noisy(theta):
        u = np.append(-theta, 1.0)
        return float(u @ (window.second + variance * np.eye(7)) @ u)

    losses = np.array([noisy(window.sketched(variance, rows, rng)) for _ in range(2000)])
    error = 5.0 * math.sqrt(0.95 * 0.05 / 2000)
    assert abs(np.mean(losses <= sketch_bounds.stretch(6, rows) * least) - 0.95) < error
    assert abs(np.mean(losses <= sketch_bounds.stretch(6, rows, 0.85) * least) - 0.95) > error


def test_the_logistic_bound_holds_where_scores_are_in_range():
    """At most a twentieth of 400 sketches is beyond the bound at .95, but a tenth beyond the surrogate's part of it."""
    rng, line, n, rows, variance = np.random.default_rng(7), quadratic(1.5), 4000, 400, 10.0
    x = rng.uniform(-1, 1, (n, 3)) / math.sqrt(3.0)
    y = np.where(rng.random(n) < 1 / (1 + np.exp(-x @ [0.4, -0.2, 0.2])), 1.0, -1.0)
    z, signed = np.column_stack([x, y]), x * y[:, None]
    window, best = Window(z.T @ z, n), minimise(signed, np.zeros(3), 1e-9)
    fit = window.ridge(0.0)

    def loss(theta):
        return float(np.logaddexp(0.0, -signed @ theta).mean())

    drawn = [line.scale * window.sketched(variance, rows, rng) for _ in range(400)]
    assert max(np.abs(signed @ theta).max() for theta in (best, *drawn)) <= 1.5
    excess = np.array([loss(theta) for theta in drawn]) - loss(best)
    times = sketch_bounds.stretch(3, rows)
    noise = -line.b2 / n * line.scale**2 * variance * (1.0 + float(fit @ fit))
    assert np.mean(excess > sketch_bounds.logistic_bound(line, loss(best), times, noise)) <= 0.05
    assert np.mean(excess > sketch_bounds.logistic_bound(line, loss(best), 1.0, 0.0)) > 0.1


def test_hessian_mixing_spends_its_budget():
    budget = ApproxDP(2.0, 1e-6)
    joint, split = hessian.joint_account(budget, 4), hessian.authors_split(budget, 4)
    assert 0.98 * budget.epsilon < hessian.account(budget, joint) <= budget.epsilon
    assert hessian.account(budget, replace(joint, g=0.9 * joint.g)) > budget.epsilon
    assert hessian.account(budget, split) <= budget.epsilon


def test_hessian_mixing_without_noise_is_least_squares():
    rng = np.random.default_rng(6)
    x = rng.normal(size=(500, 3)) / 4.0
    z = np.column_stack([x, x @ [0.5, -0.2, 0.1] + 0.05 * rng.normal(size=500)])
    exact = np.linalg.lstsq(x, z[:, -1], rcond=None)[0]
    free = hessian.Spent(rows=20_000, g=0.0, eta=0.0, tau=0.0, gradient=0.0)
    np.testing.assert_allclose(hessian.iterative(z, x.T @ x, 0.0, free, rng), exact, atol=1e-4)
    noisy = replace(free, gradient=30.0)
    assert np.linalg.norm(hessian.iterative(z, x.T @ x, 0.0, noisy, rng) - exact) > 0.05
