"""Learning from released second moments: what is learned, what has an interval, states, and what is refused."""

import copy
import json
import math

import numpy as np
import pytest
from scipy.special import expit

from murk.errors import MurkError, UserError
from murk.inference.linear_probability import allowance
from murk.learners import GaussMixClassifier, GaussMixRegressor
from murk.privacy import ApproxDP, GaussianDP, SimulatedNoise
from murk.privacy.central import GramAccumulator, GramMechanism
from murk.protocols.summaries.device import GramDevice, SketchDevice, device_for
from murk.protocols.summaries.engine import GramEngine
from murk.protocols.summaries.settings import GramSettings, fits_message
from murk.protocols.summaries.solve import solve_gram
from murk.protocols.summaries.sums import GramSums
from murk.stream.wire.codec import RejectedError
from murk.stream.wire.releases import GramRelease
from murk.task.task import Task

TASK = """
name: weeks
features: [{{name: age, low: 20, high: 40}}, {{name: same, categories: ["no", "yes"]}}]
target: {{name: weeks, kind: {kind}}}
protocol: summaries
privacy:
  guarantee: {{gdp: {{mu: 1.0}}}}
  levels: {{strict: {{gdp: {{mu: 0.25}}}}}}
summaries: {{{block}}}
"""
TRUTH = np.array([0.4, -0.2, 0.1])


def device(block="", kind="real, low: 0, high: 52"):
    return device_for(Task.parse(TASK.format(block=block, kind=kind)))


def rows(seed=1, n=4000):
    rng = np.random.default_rng(seed)
    x = np.column_stack([rng.uniform(-1, 1, n), rng.choice([-1.0, 1.0], n), np.ones(n)])
    return x, np.clip(x @ TRUTH + 0.2 * rng.normal(size=n), -1, 1)


def release(of, seed=1, n=4000, level="default", **changes):
    """Honest moments of `rows`, with fields changed on request."""
    made = GramAccumulator(of.mechanisms[level], SimulatedNoise(seed), 0)
    made.add_block(of.records(*rows(seed, n)))
    fields = {"id": f"{seed:032x}", "task": "f" * 64, "level": level, "partition": 0, "time": 0, "expires": 9}
    return of.release(made.release(), **fields, simulated=True).model_copy(update=changes)


def learned(of, *releases):
    engine = of.engine()
    for one in releases:
        engine.admit(one)
    engine.learn_releases(releases)
    return engine


# A window's matrix drawn by its distribution, without the rows


def noise_of(columns, scale, weight, rng):
    """Symmetric noise of `GramMechanism`: normal, of half the variance off the diagonal, the target's scaled back."""
    draws = np.triu(rng.normal(size=(columns, columns)))
    draws[np.triu_indices(columns, 1)] /= math.sqrt(2.0)
    whole = draws + np.triu(draws, 1).T
    weights = np.ones(columns)
    weights[-1] = weight
    return scale * whole / np.outer(weights, weights)


def sums_of(x, y, mechanism, rng):
    z = np.column_stack([x, y])
    found = GramSums(z.shape[1])
    noisy = z.T @ z + noise_of(z.shape[1], mechanism.scale, mechanism.target_weight, rng)
    found.add(noisy, records=len(z), noise=mechanism.scale**2, weight=1.0)
    return found


def test_a_device_follows_from_its_task():
    found = device()
    assert isinstance(found, GramDevice)
    assert (found.kind, found.interactive, found.dimension, found.rows, found.fewest) == ("gram", False, 10, None, 4)
    assert found.settings.names == ("age", "same", "intercept")
    assert found.mechanisms["strict"].scale == pytest.approx(4 * found.mechanisms["default"].scale, rel=1e-3)
    assert device("neighbours: replace-one").mechanisms["default"].scale > found.mechanisms["default"].scale
    bounds = device("feature_bound: 1.5, target_bound: 0.5").mechanisms["default"]
    assert (bounds.feature_bound, bounds.target_bound) == (1.5, 0.5)
    task = Task.parse(
        TASK.format(block="rows: 30", kind="real, low: 0, high: 52")
        .replace("gdp: {mu: 1.0}", "approx: {epsilon: 1.0, delta: 1.0e-5}")
        .replace("gdp: {mu: 0.25}", "approx: {epsilon: 0.5, delta: 1.0e-5}")
    )
    assert isinstance(device_for(task), SketchDevice)


def test_a_matrix_that_no_message_holds_is_refused_with_what_would_fit():
    names = tuple(map(str, range(500)))
    with pytest.raises(UserError, match=r"at most 4\d\d coded features"):
        GramSettings(names, 22.0).check_message()
    GramSettings(names[:400], 20.0).check_message()
    assert fits_message(402)
    device().check_state()


def test_it_finds_the_regression_within_its_errors():
    found = learned(device(), release(device())).estimate()
    assert found.method == "released moments"
    gap = np.abs(found.values - TRUTH)
    # Of three coefficients: 1 in 2,000 at 4 standard errors each.
    assert np.all(gap < 4 * found.spread)
    assert np.all(found.spread < 0.02)


def test_many_windows_of_several_organisations_add_up():
    of = device()
    together = [release(of, seed) for seed in range(4)]
    whole = learned(of, *together)
    parts = [learned(of, *together[:1]), learned(of, *together[1:])]
    merged = of.estimate(parts)
    assert np.allclose(merged.values, whole.estimate().values, rtol=1e-10)
    assert np.allclose(merged.spread, whole.estimate().spread, rtol=1e-10)
    backwards = learned(of, *together[::-1]).estimate()
    assert np.allclose(backwards.values, merged.values, rtol=1e-10)
    assert merged.n_releases == 4
    # Four windows of four thousand: half the error of one, but for what windows vary.
    one = learned(of, together[0]).estimate()
    assert np.allclose(merged.spread / one.spread, 0.5, atol=0.05)


def test_noisier_windows_weigh_less():
    of = device()
    engine = learned(of, release(of, 1, 50), release(of, 2, 50, "strict"))
    scale = of.mechanisms["default"].scale
    assert engine.sums.people < 100
    assert engine.sums.noise < scale**2 + (4 * scale) ** 2
    assert learned(of, release(of, 1, 0)).estimate().note == "no interval: nothing was learned yet"


DESIGNS = {
    "even": lambda rng, n: rng.uniform(-1, 1, (n, 4)),
    "condition 100": lambda rng, n: np.clip(rng.normal(size=(n, 4)) * [0.4, 0.2, 0.1, 0.04] @ ROTATED, -1, 1),
    "rare": lambda rng, n: np.where(rng.random((n, 4)) < [0.5, 0.1, 0.03, 0.01], 1.0, -1.0),
    "skew": lambda rng, n: np.minimum(rng.exponential(0.2, (n, 4)), 2.0) - 1.0,
}
ROTATED = np.linalg.qr(np.random.default_rng(3).normal(size=(4, 4)))[0]


@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("n", [1000, 20_000])
def test_intervals_hold_the_truth_as_often_as_they_say_or_there_are_none(design, n):
    """50 windows: 4.5 standard errors of 0.95, 1 in 10^5, with coefficients as one; half as wide ones do not."""
    mechanism = GramMechanism.calibrate(GaussianDP(0.5), columns=6, feature_bound=math.sqrt(5), target_bound=1.0)
    theta = np.array([0.3, -0.2, 0.1, 0.25, 0.1])
    hits, narrow, told = [], [], 0
    for seed in range(50):
        rng = np.random.default_rng(seed)
        x = np.column_stack([DESIGNS[design](rng, n), np.ones(n)])
        y = x @ theta + 0.2 * rng.normal(size=n)
        found = solve_gram(sums_of(x, y, mechanism, rng), target_weight=mechanism.target_weight, slope=1.0)
        gap = np.abs(found.values - theta) / np.sqrt(np.diag(found.covariance))
        told += int((~found.hidden).sum())
        hits.append(np.mean(gap[~found.hidden] < 1.96) if not found.hidden.all() else np.nan)
        narrow.append(np.mean(gap[~found.hidden] < 0.98) if not found.hidden.all() else np.nan)
    assert told > 25 or n == 1000
    if told > 25:
        assert np.nanmean(hits) > 0.95 - 4.5 * math.sqrt(0.95 * 0.05 / 50)
        assert (design, n) != ("even", 20_000) or np.nanmean(narrow) < 0.95 - 4.5 * math.sqrt(0.95 * 0.05 / 50)


def test_what_the_noise_hides_has_no_interval_and_the_rest_has():
    """Two features that are nearly one: their difference is hidden, and another feature is not."""
    mechanism = GramMechanism.calibrate(GaussianDP(0.2), columns=5, feature_bound=2.0, target_bound=1.0)
    rng = np.random.default_rng(1)
    first = rng.uniform(-1, 1, 50_000)
    x = np.column_stack([first, np.clip(first + 0.01 * rng.normal(size=50_000), -1, 1), rng.uniform(-1, 1, 50_000)])
    x = np.column_stack([x, np.ones(len(x))])
    y = x @ [0.5, -0.4, 0.3, 0.1] + 0.2 * rng.normal(size=len(x))
    found = solve_gram(sums_of(x, y, mechanism, rng), target_weight=mechanism.target_weight, slope=1.0)
    assert found.hidden.tolist() == [True, True, False, False]
    assert found.directions == 1
    assert abs(found.values[2] - 0.3) < 4 * math.sqrt(found.covariance[2, 2])
    # Their sum is as well known as any.
    assert abs(found.values[:2].sum() - 0.1) < 0.05


def test_missing_targets_do_not_bias():
    """A third of the targets is missing, more often where the first feature is large; 1 in 10,000 at 5 errors each."""
    of = device()
    x, y = rows(5, 30_000)
    y[np.random.default_rng(1).random(len(y)) < np.where(x[:, 0] > 0, 0.5, 0.2)] = np.nan
    made = GramAccumulator(of.mechanisms["default"], SimulatedNoise(1), 0)
    made.add_block(of.records(x, y))
    engine = of.engine()
    engine.learn_window(made.release())
    found = engine.estimate()
    assert np.all(np.abs(found.values - TRUTH) < 5 * found.spread)
    assert engine.sums.records == 30_000


def test_intervals_are_of_those_who_have_a_target():
    """Half of the targets are missing; 400 windows: 4.5 standard errors of 0.95, 1 in 10^5, with coefficients as one.

    By the scatter of all records, the rows of zeros among them, they would hold it in 83%.
    """
    mechanism = GramMechanism.calibrate(GaussianDP(4.0), columns=4, feature_bound=math.sqrt(3), target_bound=1.0)
    theta, hits = np.array([0.3, -0.2, 0.1]), []
    for seed in range(400):
        rng = np.random.default_rng(seed)
        x = np.column_stack([rng.uniform(-1, 1, (4000, 2)), np.ones(4000)])
        y = x @ theta + 0.2 * rng.normal(size=4000)
        there = rng.random(4000) < 0.5
        found = solve_gram(
            sums_of(x * there[:, None], y * there, mechanism, rng), target_weight=mechanism.target_weight, slope=1.0
        )
        hits.append(np.mean(np.abs(found.values - theta) < 1.96 * np.sqrt(np.diag(found.covariance))))
    assert abs(np.mean(hits) - 0.95) < 4.5 * math.sqrt(0.95 * 0.05 / 400)


def test_log_odds_hold_for_every_law_of_the_features():
    """Strong effects of a rare and a skewed feature: normal scores miss, and what they may miss is allowed for."""
    rng = np.random.default_rng(2)
    n, theta = 200_000, np.array([1.2, 0.8, 0.3])
    x = np.column_stack([np.where(rng.random(n) < 0.03, 1.0, -1.0), np.minimum(rng.exponential(0.2, n), 2) - 1])
    x = np.column_stack([x, np.ones(n)])
    y = np.where(rng.random(n) < expit(x @ theta), 1.0, -1.0)
    model = GaussMixClassifier(guarantee=GaussianDP(1.0), classes=(-1.0, 1.0), features=[0, 1], seed=1)
    model.learn_many(x[:, :2], y)
    model.release()
    found = model.estimate()
    gap = np.abs(found.values - theta)
    assert np.any(gap > 4 * found.spread)
    assert np.all(gap < found.half_widths())
    effects, halves = found.effects()
    slope = np.mean(expit(x @ theta) * expit(-x @ theta))
    assert np.all(np.abs(effects - theta * slope)[:2] < halves[:2])
    # The line misses by more than its own error, too: the allowance is what makes the interval true.
    assert np.any(np.abs(effects - theta * slope)[:2] > 2 * found.error[:2])


def test_the_allowance_falls_with_the_effects():
    moment = np.diag([1 / 3, 1.0])
    found, effects = [], []
    for size in (0.1, 0.5, 1.0):
        values = np.array([size, 0.0])
        nodes = np.linspace(-1, 1, 20_001)
        fit = np.array([np.mean(nodes * np.tanh(size * nodes / 2)) * 3, 0.0])
        made = allowance(fit, values, moment, np.diag([3.0, 1.0]), 1.0)
        found.append(made.coefficients[0])
        effects.append(made.effects[0])
        # Of this very distribution: what the line misses of the average marginal effect is allowed for.
        slope = np.mean((1.0 - np.tanh(size * nodes / 2) ** 2) / 4.0)
        assert abs(fit[0] / 2 - size * slope) < made.effects[0]
    assert 0 < found[0] < 0.003 < found[1] < found[2] < 0.5
    assert 0 < effects[0] < 1e-4 < effects[1] < effects[2] < 0.03


CASES = {
    "a level": ({"level": "other"}, "level"),
    "fewer numbers": ({"payload": GramRelease.packed([0] * 9)}, "dimension"),
    "too many records": ({"records": 2**40}, "magnitude"),
    "far out": ({"payload": GramRelease.packed([2**61] * 10)}, "magnitude"),
    "more than its records": ({"records": 100}, "magnitude"),
    "less than nothing": ({"payload": GramRelease.packed([-(2**40), *[0] * 9])}, "magnitude"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_hostile_release_is_refused_and_changes_nothing(case):
    changes, reason = CASES[case]
    of = device()
    engine = learned(of, release(of))
    before = engine.state_dict()
    with pytest.raises(RejectedError) as caught:
        engine.admit(release(of).model_copy(update=changes))
    assert caught.value.reason == reason
    assert engine.state_dict() == before


def test_a_direction_of_less_than_nothing_is_refused():
    """Every entry is possible by itself, and the matrix is not: more correlated than anything can be."""
    of = device()
    mechanism = of.mechanisms["default"]
    matrix = np.full((4, 4), 1000.0)
    matrix[0, 1] = matrix[1, 0] = -1000.0
    upper = np.triu_indices(4)
    integers = np.rint(matrix[upper] / mechanism.units[upper]).astype(np.int64)
    with pytest.raises(RejectedError, match="more negative than the noise allows"):
        of.engine().admit(release(of).model_copy(update={"payload": GramRelease.packed(integers), "records": 1000}))


def test_honest_windows_are_never_refused():
    of, extreme = device(), np.array([[1.0, 1.0, 1.0], [-1.0, -1.0, 1.0]])
    for seed in range(50):
        for n in (1, 30):
            made = GramAccumulator(of.mechanisms["default"], SimulatedNoise(seed), n)
            made.add_block(of.records(np.tile(extreme, (n, 1)), np.tile([1.0, -1.0], n)))
            fields = {"id": "0" * 32, "task": "f" * 64, "level": "default", "partition": 0, "time": 0, "expires": 9}
            of.engine().admit(of.release(made.release(), **fields))


def test_the_state_goes_on_to_the_bit():
    of = device()
    releases = [release(of, seed, 300 + seed) for seed in range(5)]
    whole = learned(of, *releases)
    first = learned(of, *releases[:2])
    second = of.engine()
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    second.learn_releases(releases[2:])
    assert second.state_dict() == whole.state_dict()
    assert second.estimate().values.tobytes() == whole.estimate().values.tobytes()


@pytest.mark.parametrize(
    "damage",
    [
        {"schema": 2}, {"columns": 5}, {"settings": "0" * 16}, {"records": -1}, {"n_releases": True}, {"moment": "x"},
        {"sums": None}, {"moment": "AAAA"},
    ],
    ids=str,
)  # fmt: skip
def test_a_damaged_state_is_an_error_and_changes_nothing(damage):
    of = device()
    engine = learned(of, release(of))
    before = copy.deepcopy(engine.state_dict())
    with pytest.raises(MurkError):
        engine.load_state_dict({**before, **damage})
    missing = {key: value for key, value in before.items() if key not in damage}
    with pytest.raises(MurkError):
        engine.load_state_dict(missing)
    assert engine.state_dict() == before


def test_levels_of_another_shape_are_refused():
    of = device()
    other = GramMechanism.calibrate(GaussianDP(1.0), columns=4, feature_bound=9.0, target_bound=1.0)
    with pytest.raises(UserError, match="other columns or bounds"):
        GramEngine(of.settings, {"default": other})


# The estimators


def test_estimators_release_moments_unless_something_is_said_of_mixtures():
    both = {"guarantee": ApproxDP(1.0, 1e-6), "features": ["a"], "seed": 1}
    assert isinstance(GaussMixRegressor(**both).mechanism, GramMechanism)
    for said in ({"rows": 30}, {"analysis": "joint"}, {"debiased": False}, {"method": "linear-mixing"}):
        assert GaussMixRegressor(**both, **said).mechanism.kind == "gaussmix"
    for said in ({"rows": 30}, {"debiased": False}):
        with pytest.raises(UserError, match=f"{next(iter(said))}= is for mixtures"):
            GaussMixRegressor(**both, **said, method="moments")
    with pytest.raises(UserError, match="method='other'"):
        GaussMixClassifier(**both, method="other")


@pytest.mark.parametrize("budget", [ApproxDP(1.0, 1e-6), GaussianDP(0.25)])
def test_an_estimator_learns_what_its_release_tells(budget):
    x, y = rows(1, 20_000)
    one, many = (GaussMixRegressor(guarantee=budget, features=[0, 1], window=20_000, seed=3) for _ in range(2))
    for row, target in zip(x[:3000, :2].tolist(), y[:3000].tolist(), strict=True):
        one.learn_one(dict(enumerate(row)), target)
    one.learn_many(x[3000:, :2], y[3000:])
    many.learn_many(x[:, :2], y)
    assert one.state_dict() == many.state_dict()
    assert one.mechanism.guarantee == budget
    found = one.estimate()
    assert np.all(np.abs(found.values - TRUTH) < 4 * found.spread)
    assert abs(one.predict_one({0: 0.5, 1: 1.0}) - (0.2 - 0.2 + 0.1)) < 0.1
    again = copy.deepcopy(one)
    assert again.state_dict() == one.state_dict()
    assert np.allclose(one.merged([many]).values, found.values)
