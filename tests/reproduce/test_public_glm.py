"""Sums of releases that are drawn at once are what a learner has of people's own releases."""

import numpy as np
import pytest

from murk.learners import PublicGLMClassifier, ScoreClassifier
from murk.privacy import ApproxDP, PrivUnitMechanism, PureDP, SimulatedNoise
from murk.protocols.moments.sums import Private
from reproductions.experiment import Measured
from reproductions.public_glm.designs import Population, drawn, published
from reproductions.public_glm.released import Moments, coefficients, release_moments, release_scores, summed
from reproductions.public_glm.synthetic import behind

RNG = np.random.default_rng(4)
X = RNG.normal(size=(4000, 3)) * 0.4
Y = (RNG.random(4000) < 1 / (1 + np.exp(-X @ np.ones(3)))).astype(float)


@pytest.mark.parametrize("release", ["joint", "separate"])
def test_summed_moments_have_the_mean_and_the_noise_of_released_ones(release):
    more = {
        "guarantee": ApproxDP(8.0, 1e-5),
        "features": [0, 1, 2],
        "release": release,
        "mechanism": "gaussian",
        "radius": 3,
    }
    one, other = PublicGLMClassifier(**more, seed=1), PublicGLMClassifier(**more)
    one.learn_many(X, Y > 0.5)
    release_moments(other, Moments.of(X, Y), np.random.default_rng(2))
    layout, exact = one._engine.layout, PublicGLMClassifier(**more)
    release_moments(exact, Moments.of(X, Y), None)
    truth = Private.of(exact._engine.sums, layout)
    for learner in (one, other):
        found = Private.of(learner._engine.sums, layout)
        spread = np.sqrt(np.append(found.matrix_noise[np.triu_indices(4)][:9], np.full(4, found.cross_noise)))
        off = np.append((found.matrix - truth.matrix)[np.triu_indices(4)][:9], found.cross - truth.cross) / spread
        # The mean square of 13 standard normals: beyond 3.5 once in 10^5 runs, below 0.15 as well.
        assert 0.15 < np.mean(off**2) < 3.5
    ours, theirs = (Private.of(each._engine.sums, layout) for each in (other, one))
    np.testing.assert_allclose(ours.matrix_noise, theirs.matrix_noise, rtol=1e-9)
    assert ours.cross_noise == pytest.approx(theirs.cross_noise)


def test_summed_directions_spread_as_a_mechanisms_releases_do():
    rows = np.array([[0.6, 0.8, 0.0], [0.5, 0.0, 0.1], [-0.2, 0.9, 0.3]]).repeat(20, axis=0)
    times, rng = 500, np.random.default_rng(3)
    mechanism = PrivUnitMechanism.calibrate(PureDP(3.0), dimension=3, radius=1.0)

    def spread(sums):
        return np.cov(np.array(sums).T)

    released = [
        mechanism.decode(mechanism.randomize(rows, SimulatedNoise(5), np.arange(i * 60, i * 60 + 60))).sum(axis=0)
        for i in range(times)
    ]
    drawn_at_once = [summed(mechanism, iter([rows]), rng)[1] for _ in range(times)]
    other = PrivUnitMechanism.calibrate(PureDP(2.0), dimension=3, radius=1.0)
    twin = [summed(other, iter([rows]), rng)[1] for _ in range(times)]
    # Of the ratio of two variances from 500 draws each the logarithm has standard deviation 0.09: beyond 0.45 once in
    # 10^6, for each of 3 axes.
    values, axes = np.linalg.eigh(spread(released))
    ratio = np.log(np.diag(axes.T @ spread(drawn_at_once) @ axes) / values)
    assert np.all(np.abs(ratio) < 0.45)
    assert np.any(np.abs(np.log(np.diag(axes.T @ spread(twin) @ axes) / values)) > 0.45)
    # Means within 5 standard errors, of 3 numbers each.
    off = (np.mean(drawn_at_once, axis=0) - rows.sum(axis=0)) / np.sqrt(np.diag(spread(released)) / times)
    assert np.all(np.abs(off) < 5)


def test_scores_drawn_at_once_are_learned_as_released_ones():
    more = {"guarantee": ApproxDP(4.0, 1e-5), "features": [0, 1, 2], "public": X[:1000]}
    more |= {"interactive": False}
    one, other = ScoreClassifier(**more, seed=1), ScoreClassifier(**more)
    one.learn_many(X, Y > 0.5)
    release_scores(other, X, Y, np.random.default_rng(2))
    a, b = one.estimate(), other.estimate()
    assert one.n_releases == other.n_releases == 4000
    assert np.all(np.abs(np.log(a.spread / b.spread)) < np.log(2))
    # 4 differences of independent noise, once in 10^5 runs.
    assert np.all(np.abs(a.values - b.values) < 4.7 * np.hypot(a.spread, b.spread))


def test_published_noise_is_the_papers():
    """The constants 32 r^4 log(2.5/delta) / eps^2 and 32 r^2 log(2.5/delta) / eps^2, where r = 1 is given."""
    population = Population("logistic", "bernoulli", 4)
    (people,) = drawn(population, [500], np.random.default_rng(1), kept=200)
    learner = published(population, people, 10.0, 1e-6, np.random.default_rng(2))
    variances, gain = learner._engine.mechanisms["default"].variances, learner._gain
    assert variances[0] / gain**4 == pytest.approx(0.32 * np.log(2.5e6), rel=1e-3)
    assert variances[-1] / gain**2 == pytest.approx(0.32 * np.log(2.5e6), rel=1e-3)
    assert np.all(np.isfinite(coefficients(learner)))


def test_a_verdict_says_where_the_joint_release_has_the_larger_error():
    low, one, high = Measured(0.1), Measured(1.7), Measured(14.0)
    assert behind({10.0: (low, one), 5.0: (one, high)}, "epsilon") == ""
    assert behind({10.0: (low, one), 5.0: (high, one), 3.0: (high, one)}, "epsilon") == (
        " The joint release has the larger median error at epsilon = 5, 3; there both are worse than zero coefficients."
    )
    assert behind({5.0: (one, low)}, "p") == " The joint release has the larger median error at p = 5."
