"""The baselines: their noise, where the listings err, and their limits without noise."""

import dataclasses
import math

import numpy as np
import pytest
from statsmodels.discrete.discrete_model import Logit
from statsmodels.regression.linear_model import OLS

from murk.errors import UserError
from murk.privacy import ApproxDP, SimulatedNoise
from murk.privacy.central import mixing_epsilon
from murk.privacy.conversions import gdp_delta
from reproductions.gaussmix.baselines import AdaSSP, Baseline, Draws, ObjectivePerturbation, Sheffet, minimise

BUDGET = ApproxDP(1.0, 1e-5)
HUGE = ApproxDP(1e6, 1e-5)


def data(n=20_000, seed=1):
    rng = np.random.default_rng(seed)
    x = np.column_stack([rng.uniform(-1, 1, (n, 2)), np.ones(n)]) / math.sqrt(3.0)
    return x, np.clip(x @ [0.6, -0.4, 0.3] + 0.1 * rng.normal(size=n), -1, 1)


ALL = [
    AdaSSP(BUDGET, 1.0, noise=SimulatedNoise(1)),
    AdaSSP(BUDGET, 1.0, noise=SimulatedNoise(1), calibration="analytic"),
    Sheffet(BUDGET, 1.0, noise=SimulatedNoise(1)),
    Sheffet(BUDGET, 1.0, noise=SimulatedNoise(1), analysis="renyi"),
    ObjectivePerturbation(BUDGET, 1.0, noise=SimulatedNoise(1)),
]


@pytest.mark.parametrize("baseline", ALL, ids=lambda b: f"{type(b).__name__}-{b!r:.0}")
def test_each_is_a_pure_function_with_a_statement(baseline):
    x, y = data()
    if isinstance(baseline, ObjectivePerturbation):
        y = np.where(y > 0, 1.0, -1.0)
    first = baseline.fit(x, y)
    assert first.shape == (3,)
    assert np.array_equal(first, baseline.fit(x, y))
    assert "zero-out" in baseline.statement
    secure = Baseline.__dataclass_fields__["noise"].default_factory()
    other = dataclasses.replace(baseline, noise=secure)
    assert not np.array_equal(other.fit(x, y), other.fit(x, y))


@pytest.mark.parametrize("calibration", ["published", "analytic"])
def test_adassp_is_least_squares_without_noise(calibration):
    x, y = data()
    found = AdaSSP(HUGE, 1.0, noise=SimulatedNoise(1), calibration=calibration).fit(x, y)
    assert found == pytest.approx(OLS(y, x).fit().params, abs=1e-3)


@pytest.mark.parametrize("analysis", ["published", "renyi"])
def test_sheffet_is_a_sketched_fit_without_noise(analysis):
    x, y = data()
    found = Sheffet(HUGE, 1.0, noise=SimulatedNoise(1), sketch_rows=20_000, analysis=analysis).fit(x, y)
    fit = OLS(y, x).fit()
    # A sketch of k = n rows doubles the variance of the fit, and little noise is left: 5 of its errors.
    assert np.all(np.abs(found - fit.params) < 5 * fit.bse)


def test_objective_perturbation_is_maximum_likelihood_without_noise():
    x, y = data()
    labels = np.where(y > 0.1, 1.0, -1.0)
    found = ObjectivePerturbation(HUGE, 1.0, noise=SimulatedNoise(1)).fit(x, labels)
    assert found == pytest.approx(Logit((labels + 1) / 2, x).fit(disp=0).params, abs=0.02)


def test_objective_perturbation_minimises():
    rng = np.random.default_rng(2)
    signed, linear = rng.normal(size=(200, 3)), rng.normal(size=3)
    theta = minimise(signed, linear, 0.7)
    gradient = linear + 0.7 * theta - signed.T @ (1 / (1 + np.exp(signed @ theta)))
    assert np.abs(gradient).max() < 1e-6
    # The printed sign has no minimum: along any direction the objective falls without end.
    assert np.sum(-np.logaddexp(0, -signed @ (-1e3 * theta))) < np.sum(-np.logaddexp(0, -signed @ (-1e2 * theta)))


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0, 10.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-9])
@pytest.mark.parametrize("calibration", ["published", "analytic"])
def test_the_three_releases_of_adassp_keep_their_guarantee(epsilon, delta, calibration):
    b = AdaSSP(ApproxDP(epsilon, delta), 1.0, calibration=calibration).unit_noise
    assert gdp_delta(math.sqrt(3.0) / b, epsilon) <= delta
    if calibration == "analytic":
        assert gdp_delta(math.sqrt(3.0) / b * 1.01, epsilon) > delta


def test_adassp_takes_the_shift_off_the_eigenvalue():
    """Erratum: added instead, an eigenvalue of 0 would be overstated by t and the ridge left away."""
    baseline = AdaSSP(BUDGET, 2.0)
    assert baseline.eigenvalue(1000.0, 0.0) == pytest.approx(1000.0 - 3 * math.log(6e5) * 4.0)
    assert baseline.eigenvalue(10.0, 0.0) == 0.0
    assert baseline.eigenvalue(1000.0, 1.0) > baseline.eigenvalue(1000.0, 0.0)
    # With L = log(6/delta) the published one is overstated with probability P(z > sqrt L) < e^(-L/2).
    assert baseline.shift / baseline.unit_noise >= math.sqrt(math.log(6 / baseline.delta))


def test_sheffet_adds_noise_of_variance_gamma():
    """Erratum: gamma is a variance; as a standard deviation it would add far more."""
    baseline = Sheffet(BUDGET, 1.0, sketch_rows=100)
    assert baseline.gamma == pytest.approx(317.3 * 2, rel=1e-3)
    assert baseline.variance(0.0, 0.0) == baseline.gamma
    assert baseline.variance(1e9, 0.0) == 0.0
    just = baseline.gamma + 4 * 2 * math.log(1e5)
    assert (baseline.variance(just * 1.001, 0.0), baseline.variance(just * 0.999, 0.0)) == (0.0, baseline.gamma)
    zero = np.zeros((50, 3))
    rows = Draws(SimulatedNoise(3)).rows(baseline.gamma * np.eye(4), 4000)
    # 16,000 squares: relative standard error sqrt(2/16000) = 0.011; 5 of them. The twin gamma^2 is 635 times as much.
    assert np.mean(rows**2) == pytest.approx(baseline.gamma, rel=0.056)
    assert np.all(np.isfinite(baseline.fit(zero, np.zeros(50))))


def test_the_listings_to_the_letter_add_far_more():
    printed = Sheffet(BUDGET, 1.0, sketch_rows=100, printed=True)
    assert printed.gamma == Sheffet(BUDGET, 1.0, sketch_rows=100).gamma
    assert (printed.variance(0.0, 0.0), printed.variance(1e9, 0.0)) == (printed.gamma**2, 0.0)
    # Algorithm 5 takes the sketch at delta.
    new = Sheffet(BUDGET, 1.0, sketch_rows=100, analysis="renyi", printed=True)
    assert mixing_epsilon(new.gamma / new.square, 100, 1e-5) <= 0.5
    assert new.gamma < Sheffet(BUDGET, 1.0, sketch_rows=100, analysis="renyi").gamma


def test_the_new_analysis_needs_less_noise_and_holds():
    new = Sheffet(BUDGET, 1.0, sketch_rows=100, analysis="renyi")
    assert new.gamma < 0.4 * Sheffet(BUDGET, 1.0, sketch_rows=100).gamma
    assert mixing_epsilon(new.gamma / new.square, 100, 1e-5 / 2) <= 0.5
    assert mixing_epsilon(new.gamma / new.square * 0.99, 100, 1e-5 / 2) > 0.5


def test_draws_never_share_a_record():
    draws = Draws(SimulatedNoise(1))
    assert not np.array_equal(draws.normal(3), draws.normal(3))
    symmetric = draws.symmetric(4)
    assert np.array_equal(symmetric, symmetric.T)


def test_long_rows_are_scaled_and_far_targets_moved_in():
    x, y = ALL[0].bounded([[3.0, 4.0], [0.1, 0.1]], [5.0, -0.5])
    assert np.allclose(x, [[0.6, 0.8], [0.1, 0.1]])
    assert y.tolist() == [1.0, -0.5]


def test_mistakes_are_named():
    with pytest.raises(UserError, match="ApproxDP"):
        AdaSSP(1.0, 1.0)
    with pytest.raises(UserError, match="feature_bound"):
        AdaSSP(BUDGET, 0.0)
    with pytest.raises(UserError, match="failure"):
        AdaSSP(BUDGET, 1.0, failure=0.0)
    with pytest.raises(UserError, match="calibration"):
        AdaSSP(BUDGET, 1.0, calibration="exact")
    with pytest.raises(UserError, match="analysis"):
        Sheffet(BUDGET, 1.0, analysis="best")
    with pytest.raises(UserError, match="5 rows"):
        Sheffet(BUDGET, 1.0, sketch_rows=5).fit(np.zeros((9, 5)), np.zeros(9))
    with pytest.raises(UserError, match="must be"):
        ALL[0].fit(np.zeros((3, 2)), np.zeros(4))
    with pytest.raises(UserError, match="finite"):
        ALL[0].fit([[math.nan]], [0.0])
    with pytest.raises(UserError, match="labels"):
        ALL[-1].fit(np.zeros((3, 2)), [0.0, 1.0, 1.0])
