"""What a plan would choose: by forecasts, in agreement with the rule that goes by errors; and what an error takes."""

import math
import re

import pytest

from murk import Task
from murk.errors import UserError
from murk.inference.confidence_sequences import nominal_level
from murk.planning.choice import recommend
from murk.planning.forecast import Forecast, people_for
from murk.planning.plan import Cell, choose, plan, remarks
from murk.protocols.population import Effects
from tests.learners.planning.people import population, task


def cells(**points):
    found = []
    for name, value in points.items():
        effects = {"a": value / 100.0}
        found.append(Cell(name, 10_000, 1.0, "x", Forecast(10_000, effects, effects, {"a": value})))
    return found


def test_about_equal_half_widths_go_to_what_asks_for_least():
    of = task()
    assert choose(of, cells(scores=1.2, examples=1.0, summaries=0.1))[0] == "scores"
    assert choose(of, cells(scores=1.3, examples=1.0, summaries=0.1))[0] == "examples"
    name, why = choose(of, cells(scores=math.inf, gradients=2.0))
    assert name == "gradients"
    assert "half-width of 2 points" in why
    name, why = choose(of, cells(scores=math.inf))
    assert (name, "too few people to learn anything" in why) == ("", True)
    own = task(1.0, protocol="summaries")
    assert choose(own, cells(scores=1.0, summaries=0.1))[0] == "summaries"


ROUNDED = """
name: t
features: [{name: a, low: -1, high: 1}]
target: {name: y, kind: binary, positive: p, negative: n}
protocol: examples
examples: {release: cells, grid: 3}
privacy: {guarantee: {gdp: {mu: 1.0}}}
"""


def test_cells_that_round_numbers_are_not_ranked_without_saying_so():
    said = "without the bias of examples, whose devices round a to 3 values"
    assert said in choose(Task.parse(ROUNDED), cells(scores=3.0, examples=1.0))[1]
    assert "bias" not in choose(Task.parse(ROUNDED), cells(scores=3.0))[1]
    named = Task.parse(ROUNDED.replace("low: -1, high: 1", "categories: [u, v, w]"))
    assert "bias" not in choose(named, cells(scores=3.0, examples=1.0))[1]


def test_protocols_are_compared_with_their_own_default_mechanisms():
    text = ROUNDED.replace("gdp: {mu: 1.0}", "pure: {epsilon: 4.0}").replace(
        "examples: {release: cells, grid: 3}", "examples: {release: joint, loss: log}"
    )
    of = Task.parse(text.replace("4.0}}", "4.0}}, mechanism: laplace"))
    assert of.with_protocol("scores").privacy.mechanism == "best"
    assert of.with_protocol("examples", release="joint", loss="log").privacy.mechanism == "laplace"
    # Examples released jointly have no mechanism of their own that gives a pure guarantee.
    scores = Task.parse(text.replace("examples", "scores", 1).replace("examples: {release: joint, loss: log}\n", ""))
    assert scores.privacy.mechanism == "best"
    found = plan(of, people=[1_000_000], budgets=[1.0], protocols=["scores"], draws=1)
    alone = plan(scores, people=[1_000_000], budgets=[1.0], protocols=["scores"], draws=1)
    assert found.cell("scores", 1_000_000, 1.0, "typical").points == pytest.approx(
        alone.cell("scores", 1_000_000, 1.0, "typical").points, rel=1e-9
    )
    [note] = [one for one in remarks(found) if "default mechanism" in one]
    assert note.startswith("scores: ")
    assert "remove mechanism: laplace" in note
    assert not any("default mechanism" in one for one in remarks(alone))


def test_an_organisation_is_told_of_a_newton_step_where_it_would_do_clearly_better():
    def why(people, **more):
        found = plan(
            task(1.0, protocol="summaries", **more), people=[people], budgets=[1.0], protocols=["summaries"], draws=2
        )
        return found.chosen[people]

    name, words = why(200_000)
    assert name == "summaries"
    said = re.search(r"with summaries: \{method: newton\} ([\d.]+) points", words)
    assert float(said[1]) < float(re.search(r"half-width of ([\d.]+) points", words)[1]) / 1.25
    # Its first records are all there are; and of a line second moments tell everything.
    assert "newton" not in why(5_000)[1]
    assert "newton" not in why(200_000, kind="real")[1]


def test_where_no_protocol_has_an_interval_it_is_said_why_and_not_put_down_to_privacy():
    names = "features: [{name: a, low: -1, high: 1}, {name: b, low: -1, high: 1}]"
    classes = Task.parse(
        f"name: t\n{names}\ntarget: {{name: y, kind: classes, classes: [r, g, b]}}\nprotocol: gradients\n"
        "privacy: {guarantee: {gdp: {mu: 4.0}}}"
    )
    found = plan(classes, people=[20_000], budgets=[1.0], protocols=["examples"], draws=1)
    assert found.chosen[20_000] == ("", "no interval by any of these protocols, however many people release")
    assert any("protocol: scores has intervals of average effects" in one for one in remarks(found))
    # Without public rows scores have the average effects of each class.
    assert plan(classes, people=[20_000], budgets=[1.0], protocols=["scores"], draws=1).chosen[20_000][0] == "scores"
    few = plan(task(0.05), people=[3_000], budgets=[1.0], protocols=["scores"], draws=1)
    assert few.chosen[3_000] == ("", "too few people to learn anything at this privacy level")
    assert "scores: noise hides every direction in most runs." in remarks(few)


def test_coefficients_without_average_effects_are_not_called_too_few_people():
    # Coefficients of this loss are no log odds.
    of = Task.parse(
        "name: t\nfeatures: [{name: a, low: -1, high: 1}]\ntarget: {name: y, kind: binary, positive: p, negative: n}\n"
        "protocol: moments\nmoments: {loss: boosting}\nprivacy: {guarantee: {gdp: {mu: 8.0}}}"
    )
    found = plan(of, people=[300_000], budgets=[1.0], protocols=["moments"], within={None: 0.5}, draws=1)
    assert any(one.without_effects for one in found.cells)
    assert found.needs == {}
    assert not any("too few" in one for one in remarks(found))


def test_what_has_no_interval_however_many_release_is_not_put_down_to_too_few_people():
    def said(of):
        found = plan(of, people=[3_000], budgets=[1.0], protocols=[of.protocol], draws=1)
        assert not any(math.isfinite(one.points) for one in found.cells)
        return [one for one in remarks(found) if "people are too few" in one]

    # Of gradients alone no interval is forecast; of so small a budget, one of more people is.
    assert not said(task(1.0, protocol="gradients"))
    assert len(said(task(0.05))) == 1


def regret(chosen, points):
    return points[chosen] / min(points.values())


@pytest.mark.parametrize(("kind", "public", "n"), [("binary", 1_000, 100_000), ("real", 0, 100_000)])
def test_the_rule_of_errors_agrees_with_forecasts(kind, public, n):
    of = task(1.0, kind=kind, public=public, protocol="examples")
    found = plan(of, people=[n], budgets=[1.0], protocols=["scores", "moments"], draws=1)
    points = {one.protocol: one.points for one in found.cells if one.design != "hard"}
    # Where the two differ it is between half-widths that are about equal; not any protocol would do.
    assert regret(recommend(of, n).protocol, points) < 1.6
    assert regret(found.chosen[n][0], points) <= 1.25
    assert max(points.values()) > 1.2 * min(points.values())


def test_people_for_an_error_are_as_many_as_give_it():
    of, people = task(2.0, protocol="examples"), population()
    wanted = 2.0  # percentage points
    needed = people_for(of, people, {"b": wanted})
    assert needed is not None
    from murk.planning.forecast import forecast

    assert forecast(of, people, needed).effects["b"] == pytest.approx(wanted, rel=0.1)
    assert forecast(of, people, needed // 2).effects["b"] > 1.2 * wanted
    # An interval for every look takes about (1.7)^2 times the people.
    watched = people_for(of, people, {"b": wanted}, watched=True)
    assert 2.2 * needed < watched < 4.0 * needed
    level = nominal_level(watched / of.tightest_at, 0.95)
    assert forecast(of, people, watched, level=level).effects["b"] == pytest.approx(wanted, rel=0.15)
    assert people_for(of, people, {None: 1e-7}) is None
    with pytest.raises(UserError, match="'c'"):
        people_for(of, people, {"c": 1.0})


def test_classes_have_coefficients_and_no_average_effects():
    of = type(task()).parse(
        "name: t\nfeatures: [{name: a, low: -1, high: 1}]\ntarget: {name: y, kind: classes, classes: [u, v, w]}\n"
        "public: {set_aside: 500}\nprivacy: {guarantee: {gdp: {mu: 4.0}}}"
    )
    found = plan(
        of, people=[6_000], budgets=[1.0], protocols=["moments", "summaries"], effects=Effects(each=1.5), draws=1
    )
    (own,) = (one for one in found.cells if one.protocol == "scores" and one.design == "typical")
    assert own.forecast is not None
    assert set(own.forecast.halves) == {f"{label}:{name}" for label in "uvw" for name in ("a", "intercept")}
    assert own.forecast.learned
    assert found.chosen[6_000][0] == "scores"
    assert {one.protocol for one in found.cells if one.refused} == {"moments", "summaries"}


def test_draws_with_and_without_an_interval_are_compared():
    """Moments without public rows, at a budget at which only some draws have one."""
    of = task(1.0, protocol="moments")
    found = plan(of, people=[10_000], budgets=[1.0, 2.0, 4.0], protocols=["moments"], draws=5)
    assert not any(one.without_effects for one in found.cells)


def test_other_protocols_of_a_task_that_states_its_missing_targets():
    task = Task.parse(
        "name: t\nfeatures: [{name: a, low: 0, high: 1}]\nprotocol: gradients\n"
        'target: {name: y, kind: binary, positive: "yes", missing_share: 0}\nprivacy: {guarantee: {gdp: {mu: 1.0}}}\n'
    )
    assert task.with_protocol("gradients").target.missing_share == 0
    assert task.with_protocol("scores").target.missing_share == 0
