"""What a learner may be handed, and what of a record may be left in it: nothing."""

import copy
import json
import pickle
import struct

import numpy as np
import pandas as pd
import pytest

from murk.errors import MurkError, UserError
from murk.learners import LDPSGDClassifier, LDPSGDRegressor
from murk.privacy import GaussianDP, PureDP
from murk.privacy.noise import SecureNoise
from murk.stream.wire.codec import RejectedError
from murk.stream.wire.releases import GradientRelease
from tests.learners.catalogue import FEATURED, made, target_of

SECRETS = [0.314159265, -0.718281828]


def holds(data: bytes, value: float) -> bool:
    return struct.pack("<d", value) in data


@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize("budget", [GaussianDP(1.0), PureDP(1.0)])
@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("second", [None, np.diag([2.0, 1.0, 1.0])], ids=["plain", "whitened"])
def test_a_pickled_learner_holds_nothing_of_the_last_record(seed, budget, many, second):
    """Neither their features, nor the noise and payload from which the gradient could be taken back."""
    model = LDPSGDRegressor(guarantee=budget, seed=seed, features=["a", "b"], second_moment=second)
    if many:
        model.learn_many(pd.DataFrame([SECRETS], columns=["a", "b"]), [0.577215664])
    else:
        model.learn_one(dict(zip("ab", SECRETS, strict=True)), 0.577215664)
    data = pickle.dumps(model)
    assert not any(holds(data, value) for value in [*SECRETS, 0.577215664, SECRETS[0] / 2**0.5])
    memory = copy.deepcopy(model)._engine.memory
    assert np.all(memory.features == 0.0)
    assert not memory.noise.any()
    assert not model._engine._coins.any()
    d = model._engine.dimension
    assert not memory.whole[-2 * d - len(memory.words) :].any(), "the noise, the payload or a word is still there"


def test_the_search_would_find_a_record():
    model = LDPSGDRegressor(guarantee=GaussianDP(1.0), features=["a", "b"])
    model._engine.memory.features[:] = SECRETS
    assert all(holds(model._engine.memory.real.tobytes(), value) for value in SECRETS)
    # A copy is wiped, however it came to be there.
    assert not any(holds(pickle.dumps(model), value) for value in SECRETS)


def test_a_refused_budget_leaves_the_record_outside():
    model = LDPSGDRegressor(guarantee=GaussianDP(1.0), mechanism="gaussian", features=["a", "b"])
    with pytest.raises(UserError):
        model.learn_one(dict(zip("ab", SECRETS, strict=True)), 1.0, guarantee=PureDP(1.0))
    assert not any(holds(pickle.dumps(model), value) for value in SECRETS)


@pytest.mark.parametrize(
    ("frame", "y"),
    [
        (pd.DataFrame({"a": [1.0], "name": ["Alice Smith"]}), [1.0]),
        (pd.DataFrame({"a": ["Alice Smith"]}), [1.0]),
        (pd.DataFrame({"a": [1.0]}), ["salary 123456"]),
        (np.array([["Alice Smith"]], dtype=object), [1.0]),
    ],
)
def test_no_value_stops_learn_many_or_is_quoted(frame, y):
    name = 0 if isinstance(frame, np.ndarray) else "a"
    many = LDPSGDRegressor(guarantee=GaussianDP(1.0), features=[name], seed=1)
    one = many.clone()
    many.learn_many(frame, y)
    value = frame[0, 0] if name == 0 else frame["a"][0]
    one.learn_one({name: value}, y[0])
    assert many.state_dict() == one.state_dict()
    many.predict_many(frame)


@pytest.mark.parametrize("odd", [None, float("nan"), float("inf"), -float("inf"), "text", 10**400, [1]])
def test_odd_features_count_as_zero_everywhere(odd):
    whole = LDPSGDRegressor(guarantee=GaussianDP(1.0), features=["a", "b"], seed=1)
    missing = whole.clone()
    whole.learn_one({"a": odd, "b": 1.0}, 1.0)
    missing.learn_one({"b": 1.0}, 1.0)
    assert whole.state_dict() == missing.state_dict()
    assert whole.predict_one({"a": odd, "b": 1.0}) == missing.predict_one({"a": 0.0, "b": 1.0})


def test_missing_features_do_not_ruin_the_scale():
    rng = np.random.default_rng(3)
    model = LDPSGDRegressor(guarantee=GaussianDP(8.0), features=["a"], seed=1, radius=2.0)
    x = np.where(rng.random(60_000) < 0.5, np.nan, 0.0)[:, None]
    model.learn_many(x, 0.5 * rng.normal(size=len(x)))
    # Learned as 0.07 where a missing value counted as a record without gradient for the scale.
    assert model.coefficients()["scale"] == pytest.approx(0.5, abs=0.1)


def release(**changes):
    base = {
        "id": "0" * 32, "task": "f" * 64, "level": "default", "partition": 0, "version": 0, "payload": [1, 2, 3],
        "time": 0, "expires": 0, "simulated": False,
    }  # fmt: skip
    return GradientRelease(**{**base, **changes})


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"payload": [1] * 12}, "dimension"),
        ({"payload": [1]}, "dimension"),
        ({"payload": [2**61, 0, 0]}, "magnitude"),
        ({"payload": [0, -(2**61), 0]}, "magnitude"),
        ({"simulated": True}, "simulated"),
        ({"level": "unheard-of"}, "level"),
        ({"version": 5}, "future"),
    ],
)
def test_a_release_that_does_not_fit_changes_nothing(changes, reason):
    model = LDPSGDClassifier(guarantee=GaussianDP(1.0), features=["a", "b"])
    model.learn_release(release())
    before = model.state_dict()
    with pytest.raises(RejectedError) as error:
        model.learn_release(release(**changes))
    assert error.value.reason == reason
    assert model.state_dict() == before


def test_the_engine_does_not_write_beyond_its_arrays():
    model = LDPSGDClassifier(guarantee=GaussianDP(1.0), features=["a", "b"])
    with pytest.raises(MurkError, match="3 integers"):
        model._engine.learn_releases([release(payload=[1] * 100_000)])


def test_state_keeps_the_features_kind_and_refuses_other_settings():
    x = np.random.default_rng(1).normal(size=(300, 2))
    model = LDPSGDClassifier(guarantee=GaussianDP(1.0), seed=1)
    model.learn_many(x, x[:, 0] > 0)
    state = json.loads(json.dumps(model.state_dict()))
    twin = model.clone()
    twin.load_state_dict(state)
    assert np.array_equal(twin.predict_proba_many(x), model.predict_proba_many(x))
    for other in (model.clone({"radius": 2.0}), model.clone({"features": ["a", "b"]})):
        with pytest.raises(MurkError):
            other.load_state_dict(state)
        assert other.n_releases == 0
    for malformed in ({}, {"features": [0, 1]}, {"features": None, "fold": {}}, {"features": [0, 1], "fold": {}}):
        with pytest.raises(MurkError):
            model.clone().load_state_dict(malformed)


def test_seed_and_noise_exclude_each_other():
    with pytest.raises(UserError, match="one of them"):
        LDPSGDClassifier(guarantee=GaussianDP(1.0), features=["a"], seed=1, noise=SecureNoise())


def test_too_few_releases_and_other_averages_give_no_interval():
    x = np.random.default_rng(1).normal(size=(2000, 2))
    for averaging, n in (("polyak", 500), ("polynomial-decay", 2000), (None, 2000)):
        model = LDPSGDClassifier(guarantee=GaussianDP(1.0), seed=1, averaging=averaging)
        model.learn_many(x[:n], x[:n, 0] > 0)
        intervals = model.confidence_intervals()
        assert all(low == -np.inf and high == np.inf for low, high in intervals.values())
        assert intervals.note.startswith("none")


def test_an_empty_batch_learns_nothing():
    model = LDPSGDClassifier(guarantee=GaussianDP(1.0), features=["a"], seed=1)
    model.learn_many(np.zeros((0, 1)), [])
    assert model.n_releases == 0


@pytest.mark.parametrize("name", FEATURED)
def test_names_of_features_are_declared_where_noise_is_real(name):
    """After an encoder the first record's keys are one person's values, and coefficients would show them."""
    with pytest.raises(UserError, match=r"features= is required with real noise.*features=\['age', 'dose'\]"):
        made(name, features=None)
    simulated = made(name, features=None, seed=1)
    with pytest.raises(UserError, match="features="):
        simulated.clone({"seed": None})
    declared = made(name)
    declared.learn_one({"diagnosis_HIV": 1, "a": 0.5}, target_of(name))
    # No number in Base64 has an underscore.
    assert "_HIV" not in repr(declared._names)
    if name.startswith("GaussMix"):
        declared.release()
    assert "_HIV" not in json.dumps(declared.state_dict())
