"""Means of a person's rows, as one answer: of moments, and of a number in Gaussian noise."""

import itertools

import numpy as np
import pytest

import murk
from murk import Task
from murk.errors import UserError
from murk.privacy import GaussianDP
from murk.privacy.mechanisms.simplex import SimplexGaussian
from murk.privacy.noise import SimulatedNoise
from murk.protocols.device import device_for
from murk.protocols.moments.mechanisms import MomentMechanism

MOMENTS = """
name: visits
features: [{name: a, low: -1, high: 1}, {name: b, low: -1, high: 1}]
target: {name: y, kind: real, low: -1, high: 1}
protocol: moments
privacy: {guarantee: {gdp: {mu: 1.0}}}
"""
MEAN = """
name: visits
features: []
target: {name: y, kind: real, low: 0, high: 10}
privacy: {guarantee: {gdp: {mu: 1.0}}}
"""


class NoNoise(SimulatedNoise):
    def gaussian(self, records, dimension):
        return np.zeros((len(records), dimension), np.int64)


QUIET = NoNoise(1)


def moment_mechanism() -> MomentMechanism:
    device = device_for(Task.parse(MOMENTS))
    mechanism = device.mechanisms["default"]
    assert isinstance(mechanism, MomentMechanism)
    assert device.averages
    return mechanism


def records(rng, count):
    return np.c_[rng.uniform(-1, 1, (count, 2)), np.ones(count)], rng.choice([-1.0, 0.3, 1.0, np.nan], count)


def test_means_of_moments_are_as_close_as_single_ones():
    """Extreme and drawn records of any missing target: no two means are farther apart than the noise is for."""
    rng, mechanism, device = np.random.default_rng(1), moment_mechanism(), device_for(Task.parse(MOMENTS))
    corners = np.array([[a, b, 1.0] for a, b in itertools.product((-1.0, 1.0), repeat=2) for _ in range(3)])
    drawn, targets = records(rng, 40)
    X, y = np.vstack([corners, drawn]), np.concatenate([np.tile([-1.0, 1.0, np.nan], 4), targets])
    vectors = device.vectors(X, y)
    counts = np.array([1] * 12 + [2] * 8 + [3] * 8)
    means = mechanism.randomize_means(vectors, counts, QUIET, np.arange(len(counts)))
    farthest = max(np.linalg.norm((one - other).astype(float)) for one, other in itertools.combinations(means, 2))
    assert farthest <= 2 * mechanism.noise.steps
    # Corners reach nearly as far, so that the bound is no coincidence.
    assert farthest > 0.9 * 2 * mechanism.noise.steps
    # The mean of what each would release, but for rounding.
    singles = mechanism.randomize(vectors, QUIET, np.arange(len(vectors)))
    expected = np.add.reduceat(singles, np.cumsum(counts) - counts) / counts[:, None]
    assert np.abs(means - expected).max() <= 1.0
    assert np.array_equal(means[:12], singles[:12])
    # A vector that no record has counts as one that a record can have.
    forged = mechanism.randomize_means(np.full((2, vectors.shape[1]), 1e300), np.array([2]), QUIET, [0])
    assert np.linalg.norm((forged[0] - means[0]).astype(float)) <= 2 * mechanism.noise.steps
    for wrong in ([2, 2], [len(vectors), 0], [[1]]):
        with pytest.raises(UserError, match="moments"):
            mechanism.randomize_means(vectors, np.array(wrong), QUIET, np.arange(len(wrong)))


@pytest.mark.parametrize("missing", [2, 3])
def test_means_of_positions_stay_in_the_simplex(missing):
    mechanism = SimplexGaussian.calibrate(GaussianDP(1.0), vertices=missing)
    rng = np.random.default_rng(2)
    counts = rng.integers(1, 9, 200)
    places = rng.uniform(0, 1, (counts.sum(), 1))
    places[rng.random(len(places)) < 0.2] = missing - 1.0
    means = mechanism.randomize_means(places, counts, QUIET, np.arange(len(counts)))
    assert (means >= 0).all()
    assert (means.sum(axis=1) == mechanism.height).all()
    points = mechanism.points(places)
    expected = np.add.reduceat(points, np.cumsum(counts) - counts) / counts[:, None]
    assert np.abs(means - expected).max() < 1.0
    with pytest.raises(UserError, match="positions"):
        mechanism.randomize_means(places, counts[1:], QUIET, np.arange(len(counts) - 1))


@pytest.mark.parametrize(("text", "averages"), [(MEAN, True), (MEAN.replace("mu: 1.0", "mu: 3.0"), False),
    (MEAN.replace("gdp: {mu: 1.0}", "pure: {epsilon: 1.0}"), False),
    (MOMENTS.replace("gdp: {mu: 1.0}", "pure: {epsilon: 1.0}"), False),
    (MOMENTS.replace("protocol: moments", "protocol: moments\nmoments: {release: separate}"), False)])  # fmt: skip
def test_who_releases_means(text, averages):
    assert device_for(Task.parse(text)).averages is averages


def test_a_persons_mean_is_one_answer():
    """20 rows a person, at mu = 1: the mean of a drawn row has sqrt(5 / 4.05) times the error of the mean of rows.

    The standard error is the estimate's own; its ratio is known to 2% (2,000 people each).
    """
    rng = np.random.default_rng(3)
    rows = [{"p": f"p{i}", "y": float(rng.choice([0.0, 10.0]))} for i in range(2_000) for _ in range(20)]
    task = Task.parse(MEAN.replace("}\nprivacy", ", missing_share: 0}\nprivacy"))
    result = murk.run(task, rows, person="p", seed=4)
    single = murk.run(task, [{"y": row["y"]} for row in rows[::20]], seed=4)
    errors = [next(iter(each.report["standard_errors"].values())) for each in (single, result)]
    assert errors[0] / errors[1] == pytest.approx((5.0 / 4.05) ** 0.5, rel=0.06)
    low, high = next(iter(result)).interval
    assert low < 0.0 < high
