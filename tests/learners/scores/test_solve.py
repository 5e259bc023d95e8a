"""What sums say: the truth within its intervals, on data that nothing was tuned on, or "not learned"."""

import numpy as np
import pytest

from murk.errors import UserError
from murk.privacy import ApproxDP, PureDP
from murk.protocols.rows import Rows
from murk.protocols.scores.model import LARGEST_CLIPPING_NORM, Expected, Model, Response, normal_rows
from murk.protocols.scores.settings import FIRST
from murk.protocols.scores.solve.public import Equation
from murk.protocols.scores.sums import Answer
from tests.learners.scores.people import device_of, features, learn, learn_sums, outcomes, public

REPLICATIONS, P = 12, 3
# 12 x 4 intervals of 95%, treated as independent: fewer than 40 hold with probability 6e-4; of 67% ones, 99%.
FEWEST = 40


def replicate(**given):
    """How many of the intervals of some replications hold the truth, and how many of half the width."""
    return np.sum([held(seed, **given) for seed in range(REPLICATIONS)], axis=0)


def held(seed, *, mu=3.0, missing=0.0, sample=0, wrong=None):
    rng = np.random.default_rng(seed)
    n, theta = 20_000, np.array([0.7, -1.0, 0.6, -0.3])
    X = features(rng, n + sample, P)
    y = outcomes(rng, X[:n], theta)
    y[rng.random(n) < missing] = np.nan
    rows = X[n:] if wrong is None else wrong(X[n:])
    engine = learn_sums(device_of(P, mu, covariates=public(rows) if sample else None), X[:n], y, seed)
    estimate = engine.estimate()
    half = estimate.half_widths()
    assert np.all(np.isfinite(half))
    off = np.abs(estimate.values - theta)
    return np.sum(off <= half), np.sum(off <= half / 2.0)


@pytest.mark.parametrize(
    "given",
    [{}, {"missing": 0.4}, {"sample": 2000}, {"sample": 2000, "missing": 0.4}],
    ids=["no public rows", "and missing targets", "public rows", "and missing targets too"],
)
def test_intervals_hold_the_truth(given):
    whole, narrowed = replicate(**given)
    assert whole >= FEWEST
    # The twin: intervals of half the width, which would hold it in 67%.
    assert narrowed < FEWEST


def turned(rows):
    """The same spread of each feature, and other correlations."""
    return rows * np.array([-1.0, 1.0, 1.0, 1.0])


def stretched(rows):
    """Another spread of one feature."""
    return rows * np.array([1.0, 1.0, 0.6, 1.0])


@pytest.mark.parametrize("wrong", [turned, stretched])
def test_intervals_hold_the_truth_where_public_rows_are_wrong(wrong, monkeypatch):
    assert replicate(sample=2000, wrong=wrong)[0] >= FEWEST
    # The twin: rows that are taken to be right, whatever was released.
    monkeypatch.setattr("murk.protocols.scores.solve.public._MOST", 0.0)
    monkeypatch.setattr("murk.protocols.scores.solve.public.UNLIKE", 1e9)
    assert replicate(sample=2000, wrong=wrong)[0] < FEWEST


@pytest.mark.parametrize("guarantee", [PureDP(4.0), ApproxDP(4.0, 1e-6)])
def test_pure_budgets_release_directions_and_teach_as_well(guarantee):
    rng = np.random.default_rng(4)
    theta = np.array([0.7, -1.0, 0.6, -0.3])
    X = features(rng, 12_000, P)
    device = device_of(P, None, covariates=public(features(rng, 2000, P)), guarantee=guarantee)
    assert device.mechanisms["default"].kind == "privunit"
    assert device.mechanisms["default"].guarantee == PureDP(4.0)
    estimate = learn(device, X, outcomes(rng, X, theta), 4).estimate()
    # Four intervals of 99.99%: one misses the truth once in 2,500 times.
    assert np.all(np.abs(estimate.values - theta) <= estimate.half_widths(0.9999))
    assert np.linalg.norm(estimate.values - theta) < 0.5 < np.linalg.norm(theta)


def test_public_rows_unlike_the_people_are_found_out():
    rng = np.random.default_rng(1)
    X = features(rng, 26_000, P)
    y = outcomes(rng, X, np.array([0.7, -1.0, 0.6, -0.3]))
    alike = learn_sums(device_of(P, 3.0, covariates=public(X[24_000:])), X[:24_000], y[:24_000], 1)
    wrong = X[24_000:] * np.array([1.0, 0.3, 1.0, 1.0])
    unlike = learn_sums(device_of(P, 3.0, covariates=public(wrong)), X[:24_000], y[:24_000], 1)
    # By chance once in 10,000 times.
    assert alike.estimate().alike is True
    assert "pass the check" in alike.estimate().note
    assert unlike.estimate().alike is False
    assert learn_sums(device_of(P, 3.0), X[:3000], y[:3000], 1).estimate().alike is None
    assert "not like the people's" in unlike.estimate().note
    # From then on everybody is asked as if there were none.
    assert unlike.model.exponent == 1.0
    assert unlike.model.scatter > 0.0 == alike.model.scatter


def test_what_people_differ_by_is_a_covariance_whatever_share_of_targets_is_tried():
    """A fitted share may be beyond 1; a matrix that is none would make the misfit a negative number."""
    rng = np.random.default_rng(1)
    rows = Rows(np.c_[rng.choice([-1.0, 1.0], (50, 1)), np.ones(50)], np.full(50, 0.02))
    model = Model(np.zeros(2), np.eye(2), 10.0, 0.0, 0.0, 0.0)
    one = Equation(Answer(np.zeros(2), 0.0, 1e-3, 0.0), Expected.of(model, rows, Response(True)), np.eye(2))
    for share in (-0.5, 0.7, 1.0, 1.5):
        assert np.linalg.eigvalsh(one.noise(np.full(50, 3.0), share))[0] >= -1e-15


def test_every_other_epoch_is_centred():
    rng = np.random.default_rng(1)
    X = features(rng, 26_000, P)
    y = outcomes(rng, X, np.array([0.7, -1.0, 0.6, -0.3]))
    engine = learn_sums(device_of(P, 1.0, covariates=public(X[24_000:])), X[:24_000], y[:24_000], 1)
    assert [round_.model.exponent for round_ in engine.now.rounds] == [1.0, 0.0, 1.0, 0.0, 1.0]


def test_partitions_of_like_epochs_are_one_equation():
    rng = np.random.default_rng(3)
    theta = np.array([0.7, -1.0, 0.6, -0.3])
    X = features(rng, 8_000, P)
    y = outcomes(rng, X, theta)
    device = device_of(P, 3.0, covariates=public(features(rng, 2000, P)))
    partitions = [learn_sums(device, X[part::2], y[part::2], part) for part in (0, 1)]
    alone, together = partitions[0].estimate(), device.estimate(partitions)
    assert len(together.solution.moments.groups) == len(alone.solution.moments.groups)
    assert together.standard_error < alone.standard_error
    # Four intervals of 99.99%: one misses the truth once in 2,500 times.
    assert np.all(np.abs(together.values - theta) <= together.half_widths(0.9999))


def test_no_more_public_rows_are_used_than_can_be_held():
    rows = public(features(np.random.default_rng(1), 1000, P))
    fewer = rows.thinned(100)
    assert len(fewer.points) == 100
    assert fewer.shares.sum() == pytest.approx(1.0)
    assert 90.0 < fewer.people < 130.0 < rows.people
    assert rows.thinned(1000) is rows


def test_what_privacy_hides_is_not_learned():
    rng = np.random.default_rng(2)
    X = features(rng, 2000, P)
    estimate = learn(device_of(P, 0.1), X, outcomes(rng, X, np.array([0.7, -1.0, 0.6, -0.3])), 2).estimate()
    assert np.all(np.isinf(estimate.half_widths()))


def test_before_anything_is_learned():
    estimate = device_of(P, 1.0).engine().estimate()
    assert estimate.values.tolist() == [0.0] * 4
    assert np.all(np.isinf(estimate.half_widths()))
    assert estimate.note == "nothing was learned yet"
    with pytest.raises(UserError, match="between 0 and 1"):
        estimate.half_widths(1.5)


def test_a_real_target_gives_the_line():
    """The slope of a line, whatever the noise's distribution; by the device's own code, at two budgets."""
    rng = np.random.default_rng(5)
    theta = np.array([0.2, -0.3, 0.25, 0.1])
    X = features(rng, 24_000, P)
    y = X @ theta + rng.exponential(0.1, size=len(X)) - 0.1
    estimate = learn(device_of(P, 4.0, binary=False), X, y, 5).estimate()
    # Four intervals of 99.99%: one misses the truth once in 2,500 times.
    assert np.all(np.abs(estimate.values - theta) <= estimate.half_widths(0.9999))
    assert np.all(np.abs(estimate.values + theta) > estimate.half_widths(0.9999))


def test_epochs_double_and_their_models_settle():
    rng = np.random.default_rng(6)
    theta = np.array([0.7, -1.0, 0.6, -0.3])
    X = features(rng, 8 * FIRST, P)
    engine = learn(device_of(P, 8.0), X, outcomes(rng, X, theta), 6)
    assert [round_.start for round_ in engine.now.rounds] == [0, FIRST, 2 * FIRST, 4 * FIRST, 8 * FIRST]
    distances = [float(np.linalg.norm(round_.model.origin - theta)) for round_ in engine.now.rounds]
    assert distances[-1] < 0.3 < distances[0]


def test_normal_rows_have_the_moments_they_were_asked_for():
    moment = np.array([[0.5, 0.1, 0.2], [0.1, 0.3, -0.1], [0.2, -0.1, 1.0]])
    assert normal_rows(moment).second_moment == pytest.approx(moment)


def rare(people, seed=5, mu=4.0):
    """Half width of the coefficient of a category of one in fifty people."""
    rng = np.random.default_rng(seed)
    category = np.where(rng.random(people) < 0.02, 1.0, -1.0)
    X = np.column_stack([rng.uniform(-1, 1, people), category, np.ones(people)])
    engine = learn_sums(device_of(2, mu), X, outcomes(rng, X, np.array([0.7, 0.3, -0.3])), seed)
    return engine.estimate().half_widths()[1]


def test_what_few_people_have_is_learned_from_more_of_them(monkeypatch):
    """Coordinates stretch such a direction, and people who are stretched too far count for nothing."""
    few, many = rare(24_000), rare(400_000)
    assert 2.0 * many < few < np.inf
    # The twins: stretched as far as it would have to be to seem even, which it never does, it is known half as well;
    monkeypatch.setattr("murk.protocols.scores.solve.curve._BEYOND", 1.0)
    assert rare(400_000) > 1.4 * many
    # stretched again at every round, no better from sixteen times as many people.
    monkeypatch.setattr("murk.protocols.scores.solve.curve._STRETCHED", np.inf)
    assert rare(400_000) > few


def test_people_of_rare_categories_come_to_rest_at_the_reach(monkeypatch):
    """Beyond it they count for less, of which everybody else knows nothing: what is known of them is lost."""
    rng = np.random.default_rng(5)
    rare = [np.where(rng.random(200_000) < share, 1.0, -1.0) for share in (0.05, 0.07)]
    X = np.column_stack([rng.uniform(-1, 1, 200_000), *rare, np.ones(200_000)])
    y = outcomes(rng, X, np.array([0.5, 0.2, 0.3, -0.2]))

    def longest():
        # Next to no noise: where coordinates come to rest, not what noise makes of them.
        model = learn_sums(device_of(3, 100.0), X, y, 5).model
        lengths = np.linalg.norm(X @ model.transform.T, axis=1)
        return max(float(lengths[one > 0].mean()) for one in rare) / model.clipping_norm

    assert longest() < 1.5
    # The twin: not held, they are stretched again at every round.
    monkeypatch.setattr("murk.protocols.scores.solve.curve._FREE", 1.0)
    monkeypatch.setattr("murk.protocols.scores.solve.curve._BEYOND", 2.0 / 3.0)
    assert longest() > 2.0


def test_the_reach_follows_the_noise():
    """People beyond it count for less; matrices have noise of its size. With public rows nobody counts for less."""
    typical = 2.0
    found = [device_of(3, mu).settings.clipping_norm(False, device_of(3, mu).mechanisms) for mu in (0.1, 0.7, 1.0, 8.0)]
    assert found[0] == pytest.approx(1.3 * typical)
    assert found[0] < found[1] < found[2]
    assert found[3] == pytest.approx(2.0 * typical)
    rng = np.random.default_rng(8)
    with_rows = device_of(3, 1.0, covariates=public(features(rng, 200, 3)))
    assert Model.of(with_rows.initial, 4).clipping_norm == LARGEST_CLIPPING_NORM


def test_a_rare_category_is_learned_from_everybody_who_is_in_it_with_public_rows(monkeypatch):
    rng = np.random.default_rng(9)
    category = np.where(rng.random(42_000) < 0.02, 1.0, -1.0)
    X = np.column_stack([rng.uniform(-1, 1, 42_000), category, np.ones(42_000)])
    people, rows = X[:40_000], public(X[40_000:])
    y = outcomes(rng, people, np.array([0.7, 0.3, -0.3]))

    def half():
        return learn_sums(device_of(2, 4.0, covariates=rows), people, y, 9).estimate().half_widths()[1]

    now = half()
    # The twin: those in it are far from most, and count for less within a reach of few lengths.
    monkeypatch.setattr("murk.protocols.scores.settings.LARGEST_CLIPPING_NORM", 1.3 * 3**0.5)
    assert 1.2 * now < half()
