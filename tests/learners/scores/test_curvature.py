"""What released matrices say of features that nobody made public: moments, coordinates and curvature."""

from dataclasses import replace

import numpy as np
import pytest

from murk.protocols.linear_algebra import whitening
from murk.protocols.rows import Rows
from murk.protocols.scores.model import Model, Response, mean_matrix, normal_rows
from murk.protocols.scores.solve import moments
from murk.protocols.scores.solve.curve import Solution
from murk.protocols.scores.solve.moments import Curvature, Moments, facing, pooled, stretched, unstretched
from murk.protocols.scores.sums import Answer, Summary
from tests.learners.scores.people import device_of, learn_sums, outcomes

P = 21
BINARY, REAL = Response(True), Response(False)
EVEN = Moments.of([Summary(Model(np.zeros(4), np.eye(4), 2.6, 1.0, 0.0, 0.0), None, None, None)], BINARY)


def model_at(transform, origin):
    return Model(origin, transform, 1.3 * np.sqrt(len(transform)), 1.0, 0.05, 0.1)


def answer(mean, noise):
    return Answer(mean, noise, 0.0, 0.0)


def test_normal_rows_are_even_around_the_coefficients():
    """Weighted by what depends on the logit, their second moments across it are the same in all directions."""
    origin = np.r_[np.ones(P - 1), 0.0]
    rows = normal_rows(np.eye(P), origin)
    weights = rows.shares * BINARY.weights(rows.points @ origin, 1.0)
    across = facing(origin)[1:-1] @ (rows.points.T * weights) @ rows.points @ facing(origin)[1:-1].T
    values = np.linalg.eigvalsh(across)
    assert values[-1] < 1.01 * values[0]
    # The twin: around another direction they are no better than draws, of which some are larger by half.
    other = np.r_[0.0, 1.0, -np.ones(P - 3), 0.0]
    weights = rows.shares * BINARY.weights(rows.points @ other, 1.0)
    values = np.linalg.eigvalsh(facing(other)[1:-1] @ (rows.points.T * weights) @ rows.points @ facing(other)[1:-1].T)
    assert values[-1] > 1.05 * values[0]


@pytest.mark.parametrize("length", [0.0, 1e-6, 0.3, 4.5])
def test_stretched_coordinates_say_what_they_were_stretched_from(length):
    rng = np.random.default_rng(1)
    base = np.eye(5) + 0.3 * rng.normal(size=(5, 5))
    origin = length * rng.normal(size=5)
    found = unstretched(model_at(stretched(base, origin), origin))
    assert found == pytest.approx(base)


def test_stretched_features_are_as_long_as_before_and_reach_farther_along_the_coefficients():
    rng = np.random.default_rng(2)
    Z, origin = rng.normal(size=(20_000, 4)), np.array([2.0, 0.0, 0.0, 0.0])
    longer = Z @ stretched(np.eye(4), origin).T
    # 20,000 rows: a mean square is known within 1%; false alarms below 1e-6.
    assert np.mean(np.sum(longer**2, axis=1)) == pytest.approx(np.mean(np.sum(Z**2, axis=1)), rel=0.05)
    assert np.mean(longer[:, 0] ** 2) == pytest.approx(5.0 * np.mean(longer[:, 1] ** 2), rel=0.1)


def test_an_epoch_that_hardly_knows_a_direction_adds_no_noise_there():
    """Its noise grows with the change of coordinates, in that direction alone."""
    shy = model_at(np.diag([0.1, 1.0, 1.0]), np.zeros(3))
    clear = model_at(np.eye(3), np.zeros(3))
    together = pooled(
        [
            (shy, answer(np.diag([0.01, 1.0, 1.0]) + 0.05, 1e-4), lambda: np.eye(3)),
            (clear, answer(np.eye(3), 1e-4), lambda: np.eye(3)),
        ],
        np.eye(3),
    )
    # 0.06 at an amplified 100 would be 6, and weighs 1/100^2 here; elsewhere both count alike.
    assert together.measured[0, 0] == pytest.approx(1.0, abs=1e-3)
    assert together.measured[1, 2] == pytest.approx(0.025)
    assert together.variances[0, 0] == pytest.approx(1e-4, rel=1e-3)
    assert together.variances[1, 2] == pytest.approx(0.5e-4)
    assert pooled([(shy, None, lambda: np.eye(3))], np.eye(3)) is None


@pytest.mark.parametrize(
    ("estimate", "error", "low", "high"),
    [
        (1.0, 0.2, 0.9, 1.01),  # all there
        (0.8, 0.2, 0.85, 0.99),  # may be chance: mostly there
        (0.6, 0.05, 0.58, 0.62),  # 40% of the targets are missing
        (0.1, 0.5, 0.5, 1.0),  # nearly nothing known
        (1.5, 0.01, 1.4, 1.5),  # features that are far from normal
        (-5.0, 0.1, 0.0, 1.0),  # nothing explains it: still a number
    ],
)
def test_how_much_curvature_there_is(estimate, error, low, high):
    mean, variance = moments.drawn(estimate, error**2)
    assert low <= mean <= high
    assert 0 < variance <= max(error**2, 0.09)


def test_curvature_along_the_coefficients_is_found_and_its_error_is_known():
    """Of matrices whose noise is known: the two numbers that are fitted are as far off as C says they may be."""
    p, origin = 4, np.array([1.5, 0.0, 0.0, 0.0])
    rows, model = normal_rows(np.eye(p), origin), model_at(np.eye(p), origin)
    truth = mean_matrix(model, rows, BINARY)
    more, off, noise = 0.02, [], 1e-5
    for seed in range(200):
        rng = np.random.default_rng(seed)
        flat = rng.normal(size=(p, p)) * np.sqrt(noise)
        seen = truth + more * np.outer([1, 0, 0, 0], [1, 0, 0, 0]) + (flat + flat.T) / 2.0
        found = Curvature.of([Summary(model, None, None, answer(seen, noise))], rows, BINARY, EVEN)
        spread = found.root @ found.root.T
        off.append([(found.ratio - 1.0) / spread[0, 0] ** 0.5, (found.correction[0, 0] - more) / spread[1, 1] ** 0.5])
    # Mean squares of 200 standard normal numbers: 0.68 to 1.4 but for 1 in 1,000; priors make them smaller.
    squares = np.mean(np.square(off), axis=0)
    assert np.all(squares < 1.4)
    assert squares[1] > 0.4


def of_a_real_target(noise, runs=150):
    """Mean square of a number's error over runs, of people whose features are unlike normal ones, and the claim.

    The rows' moments come from the same matrices, as they do for real targets.
    """
    rng = np.random.default_rng(5)
    X = np.c_[np.minimum(rng.geometric(0.45, (20_000, 3)) - 1, 8) / 4 - 1, np.ones(20_000)]
    model = model_at(whitening(X.T @ X / len(X)), np.zeros(4))
    truth = mean_matrix(model, Rows(X, np.full(len(X), 1 / len(X))), REAL)
    squares, claims = [], []
    for seed in range(runs):
        flat = np.random.default_rng([seed, 6]).normal(size=(2, 4, 4)) * np.sqrt(2.0 * noise)
        seen = truth + (flat + flat.transpose(0, 2, 1)) / 2.0
        found = [Summary(model, None, None, answer(each, 2.0 * noise)) for each in seen]
        solution = Solution(found, REAL)
        predicted = mean_matrix(model, solution.rows, REAL) * solution.curvature.ratio
        squares.append((predicted + solution.curvature.correction - truth)[np.triu_indices(4, 1)] ** 2)
        claims.append(np.mean(solution.curvature.errors) / 2.0)
    return np.mean(squares), np.mean(claims)


def test_noise_that_the_rows_moments_contain_is_part_of_the_error(monkeypatch):
    """Of 150 runs with 6 numbers each a mean square is known to 12% if those of a run move together, to 5% if not."""
    square, claim = of_a_real_target(0.02**2)
    assert 0.3 < square / claim < 1.0
    # The twin: as if the moments contained no noise, and matrices hid nothing. It is beyond by more than 3 times 12%.
    real = Curvature.of
    monkeypatch.setattr(moments, "_HIDDEN", 0.0)
    monkeypatch.setattr(Curvature, "of", lambda *given: real(*given[:3], replace(given[3], kept=0.0)))
    square, claim = of_a_real_target(0.02**2)
    assert square / claim > 1.36


def test_what_is_released_at_zero_does_not_hide_what_is_wrong_elsewhere(monkeypatch):
    """Of a round at zero, where rows are right whatever the distribution, and one where they are not."""
    p, noise, more = 4, 1e-6, 0.05
    origin = np.array([1.5, 0.0, 0.0, 0.0])
    rows, first, second = normal_rows(np.eye(p), origin), model_at(np.eye(p), np.zeros(p)), model_at(np.eye(p), origin)
    wrong = more * np.outer([1, 0, 0, 0], [1, 0, 0, 0])
    found = [
        Summary(first, None, None, answer(mean_matrix(first, rows, BINARY), noise)),
        Summary(second, None, None, answer(mean_matrix(second, rows, BINARY) + wrong, noise)),
    ]
    assert Curvature.of(found, rows, BINARY, EVEN).correction[0, 0] == pytest.approx(more, rel=0.05)
    # Rounds elsewhere count alike; and so does one at zero as long as nobody was asked anywhere else.
    assert np.all(moments._moved(second, first, rows, BINARY) == 0.0)
    assert np.all(moments._moved(first, first, rows, BINARY) == 0.0)
    # The twin: counted as one that knows, the first round hides half of it.
    monkeypatch.setattr(moments, "_moved", lambda *_: np.zeros((p, p)))
    assert Curvature.of(found, rows, BINARY, EVEN).correction[0, 0] == pytest.approx(more / 2.0, rel=0.05)


def test_noise_of_many_features_does_not_count_because_the_constant_stands_out(monkeypatch):
    """Of thirty even features, of a ninth of the constant's second moment, by matrices that are mostly noise."""
    p, noise = 31, 0.033**2
    truth = np.diag(np.r_[np.full(p - 1, 1.0 / 9.0), 1.0])
    model = model_at(np.eye(p), np.zeros(p))
    seen = mean_matrix(model, normal_rows(truth), BINARY, flat=True)
    flat = np.random.default_rng(12).normal(size=(p, p)) * np.sqrt(noise)
    found = [Summary(model, None, answer(seen + (flat + flat.T) / 2.0, noise), None)]
    values = np.linalg.eigvalsh(Moments.of(found, BINARY).moment * 9.0)
    # The constant is the last. Noise alone has eigenvalues 4 times as large as those of the features.
    assert values[0] > 0.5
    assert values[-2] < 2.0
    # The twin: without a number of its own it counts as noise, and features seem to be as large as it is; or, of other
    # noise, it makes all of the matrix count, and they seem uneven by 4 and 9.
    monkeypatch.setattr("murk.protocols.scores.solve.moments._CONSTANT", 1e-9)
    values = np.linalg.eigvalsh(Moments.of(found, BINARY).moment * 9.0)
    assert values[-2] > 4.0


def test_twenty_features_are_learned_without_public_rows(monkeypatch):
    """At mu = 1, from 300,000 people: six such runs were off by 0.7 to 3.5, and by 9 on average before."""
    rng, n = np.random.default_rng(11), 300_000
    X = np.c_[rng.normal(size=(n, P - 1)), np.ones(n)]
    theta = np.ones(P)
    engine = learn_sums(device_of(P - 1, 1.0), X, outcomes(rng, X, theta), 11)
    assert np.sum((engine.estimate().values - theta) ** 2) < 5.0
    # Nothing says that normal features are uneven; nor, in most runs, does noise say so to their coordinates. (That of
    # the constant follows one number.)
    assert np.linalg.cond(unstretched(engine.model)[:-1, :-1]) < 1.01
    # The twin: whatever matrices say is taken for true.
    monkeypatch.setattr("murk.protocols.scores.solve.moments._significant_excess", lambda *_: 9.0)
    bent = learn_sums(device_of(P - 1, 1.0), X[:24_000], outcomes(rng, X[:24_000], theta), 11)
    assert np.linalg.cond(unstretched(bent.model)[:-1, :-1]) > 1.01
