"""Public bounds of the target: in one way everywhere, and everything in the target's units."""

import copy
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest

from murk.errors import DataWarning, MurkError, UserError
from murk.learners import GaussMixRegressor, IWPSGDRegressor, LDPSGDRegressor, PublicGLMRegressor, ScoreRegressor
from murk.privacy import ApproxDP, GaussianDP

SHARED = {"guarantee": GaussianDP(1.0), "features": ["a", "b"]}
BOUNDS = (10.0, 74.0)  # the middle and half of the range are exact
MIDDLE, HALF = 42.0, 32.0
N = 4_000

_RNG = np.random.default_rng(1)
X = _RNG.uniform(-1, 1, (N, 2))
CODES = np.clip(0.25 + 0.5 * X[:, 0] - 0.25 * X[:, 1] + 0.05 * _RNG.normal(size=N), -0.9, 0.9)
CODES[::17] = np.nan
TARGETS = MIDDLE + HALF * CODES

REGRESSORS = {
    "scores": ScoreRegressor,
    "scores with public rows": lambda **more: ScoreRegressor(public=X[:500], **more),
    "gradients": LDPSGDRegressor,
    "gradients, whitened": lambda **more: LDPSGDRegressor(public=X[:500], intervals="random-scaling", **more),
    "outer products": lambda **more: IWPSGDRegressor(release="outer", **more),
    "directions of examples": lambda **more: IWPSGDRegressor(release="directions", **more),
    "joint examples": lambda **more: IWPSGDRegressor(release="joint", **more),
    "separate examples": lambda **more: IWPSGDRegressor(release="separate", **more),
    "unpolished examples": lambda **more: IWPSGDRegressor(newton=False, intervals="random-scaling", **more),
    "moments": PublicGLMRegressor,
    "scores once": lambda **more: ScoreRegressor(public=X[:500], interactive=False, **more),
    "windows' moments": lambda **more: GaussMixRegressor(window=N // 2, windows=2, **more),
    "windows' mixtures": lambda **more: GaussMixRegressor(window=N // 2, windows=2, rows=256, **more),
}


def made(name, budget=1.0, **more):
    stated = ApproxDP(budget, 1e-6) if name == "windows' mixtures" else GaussianDP(budget)
    return REGRESSORS[name](guarantee=stated, features=["a", "b"], **more)


def learned(name, y, bounds, budget=4.0, **more):
    model = made(name, budget, target_bounds=bounds, seed=1, **more)
    model.learn_many(pd.DataFrame(X, columns=["a", "b"]), y)
    return model


@pytest.mark.parametrize("name", REGRESSORS)
def test_a_fit_in_natural_units_is_the_coded_one_in_these_units(name):
    """To rounding only, as the noise is the same; the twin is a fit with other bounds, which has more of it."""
    natural, coded = learned(name, TARGETS, BOUNDS), learned(name, CODES, (-1.0, 1.0))
    shift = np.array([0.0, 0.0, MIDDLE])
    near = {"rel": 1e-7, "abs": 1e-7 * HALF}

    def compared(first, second):
        assert first.names == second.names
        moved = np.append(shift, 0.0)[: len(first.names)]
        assert first.values == pytest.approx(HALF * second.values + moved, **near)
        for level in (0.8, 0.95):
            assert first.half_widths(level) == pytest.approx(HALF * second.half_widths(level), **near)
        if first.covariance is not None:
            assert first.covariance == pytest.approx(HALF**2 * second.covariance, rel=1e-3)
        assert first.moved(10) == pytest.approx(HALF * second.moved(10), **near)

    compared(natural.estimate(), coded.estimate())
    compared(natural.merged([natural]), coded.merged([coded]))
    for x in ({"a": 0.3, "b": -0.4}, {"a": 0.0}):
        assert natural.predict_one(x) == pytest.approx(MIDDLE + HALF * coded.predict_one(x), **near)
    if hasattr(natural, "unbiased_loss"):
        assert natural.unbiased_loss == pytest.approx(HALF**2 * coded.unbiased_loss, rel=1e-6)
        assert natural.unbiased_loss_error == pytest.approx(HALF**2 * coded.unbiased_loss_error, rel=1e-6)
    wide = learned(name, TARGETS, (MIDDLE - 4 * HALF, MIDDLE + 4 * HALF))
    assert wide.estimate().values != pytest.approx(natural.estimate().values, rel=1e-3)


@pytest.mark.parametrize("name", REGRESSORS)
def test_a_target_of_about_40_is_predicted_as_such(name):
    """Between 0 and 100: within 2 of 40 at mu = 16, where the noisiest of them is nearer; unlearned it is 50."""
    y = 40.0 + 10.0 * X[:, 0]
    model = learned(name, y, (0, 100), budget=16.0)
    assert model.predict_one({"a": 0.0, "b": 0.0}) == pytest.approx(40.0, abs=2.0)
    # Before the first release it is the middle.
    fresh = made(name, target_bounds=(0, 100), seed=1)
    assert fresh.predict_one({"a": 0.5}) == 50.0


def warned(model, ys, many):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        xs = pd.DataFrame(X[: len(ys)], columns=["a", "b"])
        if many:
            model.learn_many(xs, ys)
        else:
            for x, y in zip(xs.to_dict("records"), ys, strict=True):
                model.learn_one(x, y)
    return [str(one.message) for one in caught if issubclass(one.category, DataWarning)]


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("name", REGRESSORS)
def test_targets_beyond_the_bounds_are_clipped_and_counted_once(name, many):
    ys, clipped = TARGETS[:300].copy(), TARGETS[:300].copy()
    for place, value in ((3, 1e6), (20, -5.0), (150, 99.0), (170, 1e300)):
        ys[place], clipped[place] = value, np.clip(value, *BOUNDS)
    model = made(name, target_bounds=BOUNDS, seed=1)
    [found] = warned(model, ys, many)
    assert found.startswith("4 of the first 300 targets" if many else "2 of the first 100 targets")
    assert "beyond 10 and 74, and count as the nearest bound" in found
    twin = made(name, target_bounds=BOUNDS, seed=1)
    assert warned(twin, clipped, many) == []
    assert model.n_releases == twin.n_releases
    if not model.n_releases:  # fill the window
        for each in (model, twin):
            each.learn_many(pd.DataFrame(X[300 : N // 2], columns=["a", "b"]), TARGETS[300 : N // 2])
    assert model.n_releases
    assert model.state_dict() == twin.state_dict()
    # Real noise: a warning would be a function of records.
    assert warned(made(name, target_bounds=BOUNDS), ys, many) == []


def test_a_late_target_beyond_the_bounds_is_counted_and_copies_do_not_count():
    ys = np.where(np.isfinite(TARGETS[:1_000]), TARGETS[:1_000], MIDDLE)
    ys[900] = 1e6
    [found] = warned(ScoreRegressor(**SHARED, target_bounds=BOUNDS, seed=1), ys, many=False)
    assert found.startswith("1 of the first 1,000 targets")
    for copied in (copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))):
        model = ScoreRegressor(**SHARED, target_bounds=BOUNDS, seed=1)
        model.learn_one({"a": 0.0, "b": 0.0}, 1e6)
        assert copied(model)._beyond is None


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("name", REGRESSORS)
def test_a_simulation_without_bounds_is_not_silent(name, many):
    model = made(name, seed=1)
    [found] = warned(model, np.full(200, 40.0) + X[:200, 0], many)
    assert "target_bounds=(low, high)" in found
    assert warned(made(name, seed=1), np.resize([-0.9, 0.9], 200), many) == []


@pytest.mark.parametrize("regressor", [ScoreRegressor, PublicGLMRegressor, IWPSGDRegressor, GaussMixRegressor])
def test_real_noise_needs_public_bounds_of_the_target(regressor):
    with pytest.raises(UserError, match="target_bounds= is required with real noise"):
        regressor(**SHARED)
    made = regressor(**SHARED, target_bounds=(0.0, 50.0))
    assert made.target_bounds == (0.0, 50.0)
    # A simulation has the usual ones, and a clone is as the original was.
    assert regressor(**SHARED, seed=1).clone().target_bounds is None


def test_gradients_are_bounded_by_themselves():
    assert LDPSGDRegressor(**SHARED).predict_one({"a": 1.0}) == 0.0


def test_who_reads_no_record_needs_none():
    IWPSGDRegressor(**SHARED, inputs="released")


@pytest.mark.parametrize(
    "regressor", [ScoreRegressor, LDPSGDRegressor, PublicGLMRegressor, IWPSGDRegressor, GaussMixRegressor]
)
@pytest.mark.parametrize("bounds", [(1.0, 0.0), (0.0, 0.0), (0.0, float("inf")), (float("nan"), 1.0)])
def test_bounds_that_are_none_are_refused(regressor, bounds):
    with pytest.raises(UserError, match="give two finite numbers, the lower one first"):
        regressor(**SHARED, target_bounds=bounds)


@pytest.mark.parametrize("regressor", [IWPSGDRegressor, GaussMixRegressor])
def test_a_bound_is_short_for_a_symmetric_range(regressor):
    more = {"window": 500} if regressor is GaussMixRegressor else {}
    models = [
        regressor(**SHARED, **more, seed=1, **given) for given in ({"target_bound": 50.0}, {"target_bounds": (-50, 50)})
    ]
    for model in models:
        model.learn_many(X[:500], TARGETS[:500] - MIDDLE)
    # Moments are rounded to a grid, whose unit is not exactly the other's.
    assert models[0].coefficients() == pytest.approx(models[1].coefficients(), rel=1e-3)
    with pytest.raises(UserError, match="give target_bounds alone"):
        regressor(**SHARED, target_bound=50.0, target_bounds=(0.0, 50.0))


@pytest.mark.parametrize("regressor", [IWPSGDRegressor, PublicGLMRegressor])
def test_without_a_constant_the_middle_is_zero(regressor):
    """By 20 + 10 a, of which only 10 a can be learned: with bounds of 0 and 50 as with -50 and 50."""
    y = 20.0 + 10.0 * X[:, 0]
    found = []
    for bounds in ((0.0, 50.0), (-50.0, 50.0)):
        model = regressor(**SHARED | {"guarantee": GaussianDP(16.0)}, intercept=False, target_bounds=bounds, seed=1)
        model.learn_many(X, y)
        found.append(model.estimate().values)
    assert found[0] == pytest.approx(found[1])
    assert found[0][0] == pytest.approx(10.0, abs=2.0)


def test_known_scales_and_starts_are_in_the_targets_units():
    given = {"scale": 8.0, "start": [16.0, 0.0, 50.0]}
    natural = learned("gradients", TARGETS, BOUNDS, **given)
    coded = learned("gradients", CODES, (-1, 1), scale=0.25, start=[0.5, 0.0, 0.25])
    assert natural.estimate().values == pytest.approx(HALF * coded.estimate().values + [0.0, 0.0, MIDDLE])
    model = LDPSGDRegressor(**SHARED, target_bounds=BOUNDS, seed=1, **given)
    assert model.estimate().values == pytest.approx([16.0, 0.0, 50.0])


@pytest.mark.parametrize("name", ["scores", "gradients", "outer products", "moments", "windows' moments"])
def test_states_of_other_bounds_are_refused(name):
    model = learned(name, TARGETS, BOUNDS)
    state = model.state_dict()
    other = made(name, 4.0, target_bounds=(0.0, 64.0), seed=1)
    with pytest.raises(MurkError, match=r"other settings: target bounds .10.0, 74.0., not .0.0, 64.0."):
        other.load_state_dict(state)
    other.learn_many(X, TARGETS - 10.0)
    with pytest.raises(UserError, match=r"merge"):
        model.merged([other])
    plain = learned(name, CODES, (-1.0, 1.0)).state_dict()
    assert plain["target_bounds"] is None
    with pytest.raises(MurkError, match=r"other settings: target bounds None, not .0.0, 64.0."):
        made(name, 4.0, target_bounds=(0.0, 64.0), seed=1).load_state_dict(plain)
    with pytest.raises(MurkError, match=r"other settings: target bounds .10.0, 74.0., not None"):
        made(name, 4.0, target_bounds=(-1.0, 1.0), seed=1).load_state_dict(state)


"""Bounds of the target that the learners had when their states did not contain them."""


@pytest.mark.parametrize("name", ["scores", "gradients", "outer products", "windows' moments"])
def test_earlier_states_never_had_such_bounds(name):
    state = {key: value for key, value in learned(name, CODES, (-1, 1)).state_dict().items() if key != "target_bounds"}
    with pytest.raises(MurkError, match="other settings: target bounds"):
        made(name, 4.0, target_bounds=(0.0, 64.0), seed=1).load_state_dict(state)
