"""What a learner's state means: its features and classes in their order, and its target's bounds."""

import json
import pickle
from typing import Any

import pytest

from murk.errors import MurkError, UserError
from murk.learners import LDPSGDClassifier, ScoreClassifier, ScoreRegressor
from murk.privacy import GaussianDP
from murk.producers import Policy

BUDGET = GaussianDP(mu=4.0)


def learned(cls: type[Any], label: Any, **settings: Any) -> Any:
    learner = cls(guarantee=BUDGET, features=["x"], seed=1, **settings)
    learner.learn_one({"x": 0.5}, label)
    return learner


@pytest.mark.parametrize("cls", [ScoreClassifier, LDPSGDClassifier])
def test_a_state_of_other_classes_is_refused(cls: type[Any]) -> None:
    one, other = learned(cls, "yes", classes=("no", "yes")), learned(cls, "yes", classes=("yes", "no"))
    state = json.loads(json.dumps(one.state_dict()))
    for wrong in (
        state,
        {**state, "classes": ["no"]},
        {key: value for key, value in state.items() if key != "classes"},
    ):
        with pytest.raises(MurkError, match="the state has the classes"):
            other.load_state_dict(wrong)
    with pytest.raises(UserError, match="only learners with the same"):
        one.merged([other])
    for same in (learned(cls, "no", classes=["no", "yes"]), pickle.loads(pickle.dumps(one))):
        same.load_state_dict(state)
        assert same.predict_proba_one({"x": 0.2}) == one.predict_proba_one({"x": 0.2})
        one.merged([same])


def test_bounds_of_a_target_are_compared_as_well() -> None:
    one, other = (learned(ScoreRegressor, 5.0, target_bounds=(0, high)) for high in (100, 10))
    with pytest.raises(MurkError, match="target bounds"):
        other.load_state_dict(one.state_dict())


@pytest.mark.parametrize(
    "features", ["dose", b"dose", {"dose", "age"}, frozenset(["dose"]), {"dose": 1}, iter(["dose"])]
)
def test_features_without_an_order_of_their_own_are_refused(features: Any) -> None:
    with pytest.raises(UserError, match="features must be a list of names"):
        ScoreClassifier(guarantee=BUDGET, features=features)


@pytest.mark.parametrize("classes", ["ab", {"a", "b"}])
def test_classes_without_an_order_of_their_own_are_refused(classes: Any) -> None:
    for cls in (ScoreClassifier, LDPSGDClassifier):
        with pytest.raises(UserError, match="classes must be a list of labels"):
            cls(guarantee=BUDGET, features=["x"], classes=classes)


def test_mechanisms_of_a_policy_are_a_list() -> None:
    with pytest.raises(UserError, match="mechanisms must be a list"):
        Policy(mechanisms="gaussian")  # type: ignore[arg-type]
