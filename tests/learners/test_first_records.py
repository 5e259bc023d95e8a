"""Nonsense is said once, without a value, where noise is simulated; and nothing is said where it is real."""

import copy
import math
import pickle
import random
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from river import preprocessing

import murk
from murk import Task
from murk.errors import DataWarning, UserError
from murk.learners import Encoder, IWPSGDRegressor, LDPSGDClassifier, LDPSGDRegressor, ScoreRegressor
from murk.learners.base import FIRST
from murk.privacy import GaussianDP
from tests.learners.catalogue import FEATURED, NAMES, made, target_of

SECRET = 48_271.25


def records(n=2 * FIRST, scale=1.0, seed=1):
    rng = random.Random(seed)
    return [{"a": scale * rng.uniform(-1, 1), "b": scale * rng.uniform(-1, 1)} for _ in range(n)]


def targets(name, n=2 * FIRST):
    rng = random.Random(2)
    return [rng.random() < 0.5 if target_of(name) is True else rng.uniform(-1, 1) for _ in range(n)]


def said(model, xs, ys, many=False):
    """The warnings that learning gives, as text."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if many:
            model.learn_many(pd.DataFrame(xs), list(ys))
        else:
            for x, y in zip(xs, ys, strict=True):
                model.learn_one(x, y)
    found = [one for one in caught if issubclass(one.category, DataWarning)]
    package = Path(murk.__file__).parent
    assert not any(package in Path(one.filename).parents for one in found)  # the line that learns is warned of
    return [str(one.message) for one in found]


def nonsense(name, kind):
    xs, ys = records(), targets(name)
    if kind == "text":
        xs = [{**x, "a": "forty-two"} for x in xs]
    elif kind == "large":
        xs = records(scale=50_000.0)
        xs[3]["a"] = SECRET
    elif kind == "narrow":
        xs = records(scale=0.05)
    elif kind == "undeclared":
        ys = ["maybe"] * len(ys)
    return xs, ys


WORDS = {
    "text": "text or not numbers",
    "large": "ten times as large",
    "narrow": "less than a tenth",
    "undeclared": "not among the declared|targets that are no numbers",
}


# Features that nobody learns from may be anything.
NONSENSE = [(name, kind) for name in NAMES for kind in WORDS if name in FEATURED or kind == "undeclared"]


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize(("name", "kind"), NONSENSE)
def test_nonsense_is_said_once_and_without_a_value(name, kind, many):
    xs, ys = nonsense(name, kind)
    more = {"window": 2 * FIRST} if name.startswith("GaussMix") else {}
    found = said(made(name, seed=1, **more), xs, ys, many)
    assert len(found) == 1
    assert any(words in found[0] for words in WORDS[kind].split("|"))
    assert not any(secret in found[0] for secret in (str(SECRET), "forty-two", "maybe", "'a'"))
    # Real noise: a warning would be a function of records.
    assert said(made(name, **more), xs, ys, many) == []


@pytest.mark.parametrize("name", NAMES)
def test_good_records_are_not_commented(name):
    xs = [{**x, "b": None} if place % 7 == 0 else x for place, x in enumerate(records())]
    more = {"window": 2 * FIRST} if name.startswith("GaussMix") else {}
    ys = [math.nan if place % 9 == 0 and target_of(name) is not True else y for place, y in enumerate(targets(name))]
    assert said(made(name, seed=1, **more), xs, ys) == []


@pytest.mark.parametrize("scaler", [preprocessing.StandardScaler, preprocessing.MinMaxScaler])
def test_a_scaler_that_learns_from_records_is_noticed(scaler):
    rng = random.Random(3)
    xs = [{"a": rng.gauss(70, 9), "b": rng.gauss(-4, 1)} for _ in range(2 * FIRST)]
    ys = targets("LDPSGDClassifier")
    model = scaler() | LDPSGDClassifier(guarantee=GaussianDP(1.0), seed=1)
    assert [one for one in said(model, xs, ys) if "as if a scaler in the pipeline" in one]
    task = Task.parse("""
    name: scaled
    features: [{name: a, low: 40, high: 100}, {name: b, low: -8, high: 0}]
    target: {name: y, kind: binary, positive: "yes"}
    privacy: {guarantee: {gdp: {mu: 1.0}}}
    """)
    encoder = Encoder(task)
    learner = LDPSGDClassifier(guarantee=GaussianDP(1.0), features=encoder.features, seed=1)
    assert said(encoder | learner, xs, ys) == []


def test_a_bound_of_the_target_that_is_far_too_wide_is_noticed():
    model = IWPSGDRegressor(guarantee=GaussianDP(1.0), target_bound=100.0, seed=1)
    [found] = said(model, records(), targets("IWPSGDRegressor"))
    assert "targets fill less than a tenth" in found


@pytest.mark.parametrize("many", [False, True])
def test_targets_far_beyond_their_bounds_are_noticed(many):
    xs = records()
    ys = [300.0 + 50.0 * x["a"] for x in xs]
    [found] = said(ScoreRegressor(guarantee=GaussianDP(1.0), features=["a", "b"], seed=1), xs, ys, many)
    assert f"{len(xs) if many else FIRST} of the first" in found
    assert "targets are beyond -1 and 1" in found
    assert "3" not in found
    held = {"target_bounds": (200.0, 400.0), "features": ["a", "b"]}
    assert said(ScoreRegressor(guarantee=GaussianDP(1.0), seed=1, **held), xs, ys, many) == []
    # Real noise: a warning would be a function of records.
    assert (
        said(ScoreRegressor(guarantee=GaussianDP(1.0), features=["a", "b"], target_bounds=(-1, 1)), xs, ys, many) == []
    )


@pytest.mark.parametrize("many", [False, True])
def test_targets_beyond_their_bounds_count_as_the_nearest(many):
    xs = records()
    learned = []
    for ys in ([1e9 if x["a"] > 0 else -math.inf for x in xs], [1.0 if x["a"] > 0 else math.nan for x in xs]):
        model = ScoreRegressor(guarantee=GaussianDP(1.0), features=["a", "b"], seed=1)
        said(model, xs, ys, many)
        learned.append(model.state_dict())
    assert learned[0] == learned[1]


def test_code_without_a_module_name_is_warned_too():
    model = IWPSGDRegressor(guarantee=GaussianDP(1.0), seed=1)
    with pytest.warns(DataWarning, match="targets are beyond -1 and 1"):
        exec("for x in xs: model.learn_one(x, 30.0)", {"model": model, "xs": records()})
    assert model.n_releases == len(records())


def test_missing_targets_are_fine():
    xs = records()
    [found] = said(ScoreRegressor(guarantee=GaussianDP(1.0), features=["a", "b"], seed=1), xs, [None] * len(xs))
    assert "if they are missing, this is fine" in found


def test_only_the_first_records_are_looked_at_and_none_of_them_stays():
    xs, ys = nonsense("LDPSGDClassifier", "large")
    model = made("LDPSGDClassifier", seed=1)
    assert said(model, records(FIRST), ys[:FIRST]) == []
    assert said(model, xs, ys) == []
    young = made("LDPSGDClassifier", seed=1)
    young.learn_one(xs[3], True)
    for twin in (copy.deepcopy(young), pickle.loads(pickle.dumps(young))):
        assert twin._first_records is None
    assert np.float64(SECRET).tobytes() not in pickle.dumps(young)


@pytest.mark.parametrize("box", [{"a": (0, 1)}, {"a": (0, 1), "b": (0, 1)}, (1.0,), 3.0, ("a", "b"), (3.0, 1.0)])
def test_a_box_says_what_it_wants(box):
    for learner in (LDPSGDClassifier, LDPSGDRegressor):
        with pytest.raises(UserError, match=r"box=.*smallest and largest \|\|x\|\|\^2.*box=\(1.0, 3.0\)"):
            learner(guarantee=GaussianDP(1.0), seed=1, box=box)
    assert LDPSGDClassifier(guarantee=GaussianDP(1.0), seed=1, box=(1.0, 3.0)).box == (1.0, 3.0)
