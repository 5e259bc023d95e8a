"""What is advised is what forecasts of the changed task say, and nothing else."""

import numpy as np
import pytest

import murk.planning.advice as module
from murk import Task
from murk.inference.estimate import Extent
from murk.planning.advice import advise
from murk.planning.forecast import Forecast

TEXT = """
name: weeks
features: [{{name: age, low: 0, high: 1000}}, {{name: fit, categories: ["no", "yes"]}}]
target: {{name: worked, kind: binary, positive: "yes", negative: "no"}}
protocol: {protocol}
privacy: {{guarantee: {{{guarantee}}}}}
"""
SKETCH = TEXT.format(protocol="summaries", guarantee="gdp: {mu: 1.0}")


def narrow():
    """Where people lie: of age within a twentieth of its bounds."""
    moment = np.diag([0.7**2 + 0.02**2, 1.0, 1.0])
    moment[0, 2] = moment[2, 0] = -0.7
    return Extent(moment, np.eye(3), np.zeros((3, 3)))


def test_an_organisation_with_second_moments_is_advised_what_helps_it():
    """More records of a biased fit do not help, and are not advised; a Newton step does, and is."""
    task = Task.parse(SKETCH.replace("age, low: 0, high: 1000", "age, low: 20, high: 60"))
    found = [one.change for one in advise(task, 400_000)]
    assert found[0] == "summaries: {method: newton}"
    assert not any(change.startswith(("4 times", "a budget")) for change in found)


@pytest.mark.parametrize("better", [True, False])
def test_tighter_bounds_are_advised_where_their_forecast_is_better_and_not_else(monkeypatch, better):
    """The people are those that releases tell, coded anew; what the forecast says decides."""
    seen = []

    def forecast(task, population, people, **_):
        age = task.features[0]
        seen.append((age.low, age.high, population))
        points = 8.0 if age.high == 1000 or not better else 2.0
        return Forecast(people, {"age": points}, {"age": points}, {"age": points})

    monkeypatch.setattr(module, "forecast", forecast)
    task = Task.parse(TEXT.format(protocol="scores", guarantee="gdp: {mu: 1.0}"))
    found = advise(task, 50_000, narrow(), sizes=False)
    assert [one.change.split(" of ")[0] for one in found] == ["tighter public bounds"] * better
    (_, _, wide), (low, high, tight) = seen[0], next(each for each in seen if each[1] < 1000)
    # -0.7 of -1 to 1 is 150 of 0 to 1000.
    assert 100 < low < 150 < high < 200
    natural = [500 + 500 * wide.points[:, 0], (low + high) / 2 + (high - low) / 2 * tight.points[:, 0]]
    assert np.allclose(*natural)
    assert np.allclose(wide.points @ wide.theta, tight.points @ tight.theta)


@pytest.mark.parametrize(
    ("target", "unit", "factor"),
    [
        ('kind: binary, positive: "yes", negative: "no"', "points", 1.0),
        # A point is a hundredth of the range.
        ("kind: real, low: 0, high: 52", "units of worked", 0.52),
    ],
)
def test_advice_is_in_the_targets_units_and_names_the_widest(monkeypatch, target, unit, factor):
    """Over its bounds an effect of age of 0.5 a unit is 500 wide, and that of a category of 90 only 90."""

    def forecast(task, population, people, **_):
        scale = 0.5 if people == 200_000 else 1.0
        effects = {"age": scale * 0.5, "fit": scale * 90.0}
        return Forecast(people, effects, effects, {"age": scale * 6.0, "fit": scale * 8.0})

    monkeypatch.setattr(module, "forecast", forecast)
    text = TEXT.format(protocol="scores", guarantee="gdp: {mu: 1.0}")
    task = Task.parse(text.replace('kind: binary, positive: "yes", negative: "no"', target))
    [found] = advise(task, 50_000)
    assert (found.change, found.unit) == ("4 times the people", unit)
    assert (found.before, found.after) == pytest.approx((7.0 * factor, 3.5 * factor))
    assert (found.widest, found.widest_before, found.widest_after) == ("age: one unit more", 0.5, 0.25)
    assert (
        f"falls from {7.0 * factor:.2g} to {3.5 * factor:.2g} {unit}; the least precise over its range, age:"
        in found.words
    )


def test_devices_that_read_no_model_are_not_advised_to(monkeypatch):
    asked = []
    monkeypatch.setattr(module, "forecast", lambda task, *_, **__: asked.append(task.protocol) or Forecast(1, {}))
    advise(Task.parse(TEXT.format(protocol="moments", guarantee="gdp: {mu: 1.0}")), 1_000, sizes=False)
    assert set(asked) == {"moments", "examples"}
    asked.clear()
    advise(Task.parse(TEXT.format(protocol="scores", guarantee="gdp: {mu: 1.0}")), 1_000, sizes=False)
    assert set(asked) == {"scores", "gradients", "examples", "moments"}
