"""A task from a few settings: what they come to, and what goes wrong."""

import pytest

from murk.errors import UserError
from murk.planning.settings import task_of
from murk.privacy import ApproxDP, GaussianDP, PureDP, ZeroConcentratedDP


@pytest.mark.parametrize(
    ("budget", "guarantee"),
    [
        ("mu=1", GaussianDP(1.0)),
        ("rho=0.5", ZeroConcentratedDP(0.5)),
        ("epsilon=2", PureDP(2.0)),
        ("epsilon=2, delta=0", PureDP(2.0)),
        ("delta=1e-6 epsilon=2", ApproxDP(2.0, 1e-6)),
    ],
)
def test_budgets(budget, guarantee):
    assert task_of(f"features=2, target=binary, {budget}").privacy.guarantee == guarantee


def test_features_target_public_rows_and_protocol():
    found = task_of("features = 3 target=real, mu=1 public=1000, protocol=examples")
    assert [(one.name, one.low, one.high) for one in found.features] == [(f"x{j}", -1, 1) for j in (1, 2, 3)]
    assert (found.target.kind, found.protocol, found.public.set_aside) == ("real", "examples", 1000)
    classes = task_of("features=1,target=classes,classes=3,mu=1,public=none")
    assert (len(classes.target.classes), classes.public, classes.protocol) == (3, None, "scores")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "features= is required"),
        ("features=2, mu=1", "target= is required"),
        ("features=2, target=real", "no budget: give"),
        ("featurs=2", "did you mean 'features'"),
        ("features", "'features' is not KEY=VALUE"),
        ("features=2, features=3", "given twice"),
        ("features=-1, target=real, mu=1", "not a whole number from 0"),
        ("features=2.5, target=real, mu=1", "not a whole number from 0"),
        ("features=2, target=bin, mu=1", "did you mean 'binary'"),
        ("features=2, target=classes, mu=1", "Give classes="),
        ("features=2, target=real, classes=3, mu=1", "leave classes= out"),
        ("features=2, target=real, mu=1, epsilon=1", "mu= and epsilon=: give the budget"),
        ("features=2, target=real, delta=1e-6", "delta=: give the budget"),
        ("features=2, target=real, mu=-1", "mu=-1 is not a number above 0"),
        ("features=2, target=real, mu=nan", "not a number above 0"),
        ("features=2, target=real, mu=1, public=1", "public=1 is not a whole number from 2"),
        ("features=2, target=real, mu=1, protocol=score", "did you mean 'scores'"),
        ("features=2, target=real, epsilon=1, delta=2", "delta"),
    ],
)
def test_mistakes_are_said_in_a_line(text, said):
    with pytest.raises(UserError) as found:
        task_of(text)
    assert said in str(found.value)
    assert "\n" not in str(found.value)
