"""Logistic models by Newton steps: what is learned, its intervals, sums and states, and where a step tells nothing."""

import json
import math

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import binom

from murk.errors import MurkError, UserError
from murk.learners import GaussMixClassifier, GaussMixRegressor
from murk.privacy import ApproxDP, GaussianDP, NewtonMechanism, SimulatedNoise
from murk.protocols.summaries.device import NewtonDevice, device_for
from murk.protocols.summaries.engine import NewtonEngine
from murk.protocols.summaries.newton_fit import MOST, NewtonEstimate
from murk.stream.wire.codec import RejectedError
from murk.task.task import Task

TASK = """
name: children
features: [{{name: age, low: 20, high: 40}}, {{name: same, categories: ["no", "yes"]}}]
target: {{name: third, kind: binary, positive: "yes", negative: "no"}}
protocol: summaries
privacy:
  guarantee: {{gdp: {{mu: {mu}}}}}
  levels: {{strict: {{gdp: {{mu: 0.25}}}}}}
summaries: {{method: newton{block}}}
"""
TRUTH = np.array([0.8, -0.5, 0.3])


def device(block=", first: 2000", mu=4.0):
    return device_for(Task.parse(TASK.format(block=block, mu=mu)))


def rows(seed=1, n=20_000, rare=0.5):
    rng = np.random.default_rng(seed)
    x = np.column_stack([rng.uniform(-1, 1, n), np.where(rng.random(n) < rare, 1.0, -1.0), np.ones(n)])
    return x, (rng.random(n) < expit(x @ TRUTH)).astype(float)


def release(of, seed=1, n=20_000, level="default", rare=0.5, missing=0.0, **changes):
    made = of.accumulator(level, SimulatedNoise(seed), 0)
    x, y = rows(seed, n, rare)
    y[np.random.default_rng(seed + 9).random(n) < missing] = math.nan
    made.add_block(of.records(x, y))
    fields = {"id": f"{seed:032x}", "task": "f" * 64, "level": level, "partition": 0, "time": 0, "expires": 9}
    return of.release(made.release(), **fields, simulated=True).model_copy(update=changes)


def learned(of, *releases):
    engine = of.engine()
    for one in releases:
        engine.admit(one)
    engine.learn_releases(releases)
    return engine


def test_a_device_follows_from_its_task():
    found = device()
    assert isinstance(found, NewtonDevice)
    assert (found.kind, found.dimension, found.rows, found.fewest) == ("newton", 20, None, 4)
    assert (found.settings.first, found.mechanisms["strict"].first) == (2000, 2000)
    assert device("").settings.first == 7500
    assert device(", window: 1000").settings.first == 500
    assert device(", window: 1").settings.first == 1
    hashes = {Task.parse(TASK.format(block=block, mu=1)).hash for block in ("", ", first: 7500", ", first: 7501")}
    assert len(hashes) == 3
    other = NewtonMechanism.calibrate(GaussianDP(1.0), columns=4, feature_bound=9.0, first=2000)
    with pytest.raises(UserError, match="columns or bounds"):
        NewtonEngine(found.settings, {"default": other})
    found.check_state()


def test_it_finds_the_model_within_its_errors_and_its_effects():
    found = learned(device(), release(device())).estimate()
    assert isinstance(found, NewtonEstimate)
    gap = np.abs(found.values - TRUTH)
    # Of three coefficients: 1 in 2,000 at 4 standard errors each, and what a second order may add.
    assert np.all(gap < 4 * found.spread + found.beyond)
    assert np.all(found.spread < 0.05)
    effects, halves = found.effects()
    slope = float(np.mean(expit(rows(2)[0] @ TRUTH) * (1 - expit(rows(2)[0] @ TRUTH))))
    assert np.all(np.abs(effects - slope * TRUTH)[:2] < halves[:2])
    assert np.all(halves[:2] < 0.05)


def covered(of, repeats, shrink, **more):
    """How many intervals hold the truth, and how many that are narrower by a factor."""
    hits = []
    for seed in range(repeats):
        found = learned(of, release(of, seed, n=6000, **more)).estimate()
        off, half = np.abs(found.values - TRUTH), found.half_widths()
        hits.append((np.sum(off < half), np.sum(off < shrink * half)))
    return np.sum(hits, axis=0)


@pytest.mark.parametrize("more", [{}, {"rare": 0.05}, {"missing": 0.4}], ids=["even", "rare", "missing"])
def test_intervals_hold_the_truth(more):
    """Coefficients of a run counted as independent, so few are had with probability 1e-4; of a third, always."""
    of, repeats = device(", first: 1500"), 20
    least = binom.ppf(1e-4, 3 * repeats, 0.95)
    whole, narrow = covered(of, repeats, 1 / 3, **more)
    assert whole >= least
    assert narrow < least


def test_where_scores_are_not_normal_it_is_nearer_than_second_moments_are():
    """A rare feature decides: the curve on normal scores is biased, however many records there are."""
    x, theta = rows(3, 200_000, rare=0.02)[0], np.array([0.5, 2.0, 1.0])
    y, found = np.random.default_rng(4).random(len(x)) < expit(x @ theta), {}
    for method, more in (("moments", {}), ("newton", {"first": 5000})):
        model = GaussMixClassifier(guarantee=GaussianDP(4.0), features=["a", "b"], method=method, seed=1, **more)
        model.learn_many(x[:, :2], y)
        model.release()
        one = model.merged([])
        found[method] = np.linalg.norm(one.values - theta)
        assert np.all(np.abs(one.values - theta) < one.half_widths())
    assert found["newton"] < found["moments"] / 2


def test_windows_of_several_models_add_up_in_any_order():
    of = device()
    together = [release(of, seed, n=4000 + 1000 * seed, level=("default", "strict")[seed % 2]) for seed in range(4)]
    assert len({tuple(each.model) for each in together}) == 4
    whole = learned(of, *together)
    parts = [learned(of, *together[:1]), learned(of, *together[1:])]
    merged, one, backwards = of.estimate(parts), whole.estimate(), learned(of, *together[::-1]).estimate()
    for other in (merged, backwards):
        assert np.allclose(other.values, one.values, rtol=1e-9)
        assert np.allclose(other.half_widths(), one.half_widths(), rtol=1e-9)
    assert (merged.n_releases, merged.partitions, whole.figures()["records"]) == (4, 2, 22_000.0)
    # As near as one window of them all, or nearly so.
    assert np.all(np.abs(one.values - TRUTH) < one.half_widths())
    single = learned(of, release(of, 9, n=22_000)).estimate()
    assert np.all(one.half_widths() < 3 * single.half_widths())


def test_a_state_goes_on_bit_for_bit():
    of = device()
    first, second = release(of, 1), release(of, 2, level="strict")
    engine, other = learned(of, first), of.engine()
    other.load_state_dict(json.loads(json.dumps(engine.state_dict())))
    assert other.state_dict() == engine.state_dict()
    for each in (engine, other):
        each.learn_releases([second])
    assert other.state_dict() == engine.state_dict()
    assert np.array_equal(other.estimate().values, engine.estimate().values)
    empty = of.engine()
    again = of.engine()
    again.load_state_dict(empty.state_dict())
    assert again.estimate().n_releases == 0
    with pytest.raises(MurkError, match="other settings"):
        device(", first: 1999").engine().load_state_dict(engine.state_dict())
    for key in ("step", "step_noise", "low", "high", "moment"):
        for bad in ("AAAA", None, engine.state_dict()["sums"]):
            with pytest.raises(MurkError):
                of.engine().load_state_dict({**engine.state_dict(), key: bad})


def test_a_window_without_a_second_part_tells_what_second_moments_tell():
    of = device(", first: 20000")
    found = learned(of, release(of)).estimate()
    assert "no window had more" in found.note
    assert np.all(np.abs(found.values - TRUTH) < found.half_widths())
    assert of.engine().estimate().n_releases == 0


def test_where_noise_hides_the_features_nothing_is_stated():
    of = device(", first: 100", mu=0.05)
    found = learned(of, release(of, n=400)).estimate()
    assert np.all(np.isinf(found.half_widths()))
    assert "hides" in found.note
    assert found.not_learned() == ["age", "same", "intercept"]
    assert np.all(np.isfinite(found.values))


@pytest.mark.parametrize("n", [0, 1, 1999, 2000, 2001, 9000])
def test_what_is_honest_is_admitted_and_learned(n):
    of = device()
    for level in ("default", "strict"):
        found = learned(of, release(of, seed=n, n=n, level=level)).estimate()
        assert np.all(np.isfinite(found.values))


def test_what_no_organisation_sends_is_refused():
    of = device()
    good = release(of)
    engine = of.engine()
    for changes, reason in (
        ({"model": [0.0, 0.0]}, "dimension"),
        ({"model": [0.0, 0.0, 2 * MOST]}, "magnitude"),
        ({"level": "none"}, "level"),
        # Its second part would be of fewer records than it says.
        ({"records": 2000}, "magnitude"),
    ):
        with pytest.raises(RejectedError) as error:
            engine.admit(good.model_copy(update=changes))
        assert error.value.reason == reason
    with pytest.raises(MurkError, match="coefficients"):
        engine.learn_window(good.model_copy(update={"model": [0.0, 0.0]}))


def test_the_estimator_takes_windows_in_two_parts():
    x, y = rows(5, 30_000)
    both = {"guarantee": ApproxDP(2.0, 1e-6), "features": ["age", "same"], "seed": 1}
    model = GaussMixClassifier(**both, method="newton", window=15_000, windows=2)
    model.learn_many(x[:, :2], y == 1.0)
    assert model.pending == 0
    assert (model.mechanism.kind, model.mechanism.first) == ("newton", 7_500)
    found = model.merged([])
    assert found.n_releases == 2
    assert np.all(np.abs(found.values - TRUTH) < found.half_widths())
    again = GaussMixClassifier(**both, method="newton", window=15_000, windows=2)
    again.learn_one({"age": 0.0, "same": 1.0}, True)
    again.load_state_dict(model.state_dict())
    assert again.state_dict() == model.state_dict()
    assert again.coefficients() == model.coefficients()


def test_without_a_constant_there_are_intervals_of_log_odds():
    rng = np.random.default_rng(6)
    x, theta = rng.uniform(-1, 1, (30_000, 2)), np.array([1.0, -0.6])
    model = GaussMixClassifier(
        guarantee=GaussianDP(4.0), features=["a", "b"], method="newton", first=4000, intercept=False, seed=2
    )
    model.learn_many(x, rng.random(len(x)) < expit(x @ theta))
    model.release()
    found = model.merged([])
    assert np.all(np.abs(found.values - theta) < found.half_widths())
    assert np.all(found.half_widths() < 0.2)
    assert found.effects() is None


def test_what_does_not_go_with_a_step_is_refused():
    budget = ApproxDP(1.0, 1e-6)
    for more, words in (
        ({"rows": 64}, "mixes no records"),
        ({"range": 3.0}, "does not use"),
        ({"method": "moments", "first": 10}, "give method="),
        ({"method": "newtons"}, "is not one of"),
    ):
        with pytest.raises(UserError, match=words):
            GaussMixClassifier(**{"guarantee": budget, "method": "newton", **more})
    with pytest.raises(UserError, match="the target is real"):
        GaussMixRegressor(guarantee=budget, method="newton", target_bound=1.0)
