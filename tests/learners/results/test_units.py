"""One unit for each quantity, cut to what is possible, wherever it is read."""

import math
import warnings
from collections import deque

import numpy as np
import pytest

from murk import Task
from murk.cli.report import brief
from murk.errors import DataWarning, UserError
from murk.inference.confidence_sequences import Looks
from murk.inference.contrasts import contrasts
from murk.inference.estimate import Estimate
from murk.inference.units import effect_units, units
from murk.learners import Encoder
from murk.results.report import describe_target, report_estimate
from murk.results.result import Result
from murk.results.text import as_text, describe_learned

BINARY = """
name: trial
features: [{name: dose, low: 0, high: 10}, {name: arm, categories: [a, b, c]}]
target: {name: well, kind: binary, positive: "yes", negative: "no"}
contrasts: [{feature: arm, category: c, against: b}]
privacy: {guarantee: {gdp: {mu: 1.0}}}
"""
LINE = Task.parse(BINARY + "protocol: examples")
MEAN = Task.parse(BINARY.replace('kind: binary, positive: "yes", negative: "no"', "kind: real, low: 20, high: 60"))


def estimated(task, values, errors):
    """An estimate with normal intervals, without a covariance."""
    return Estimate(task.coding.names, np.array(values), "plug-in", np.array(errors), "", 1, 1000)


def reported(task, estimate):
    found = report_estimate(estimate, task.coefficient_scale, units(task), 0.95, effects=effect_units(task))
    found |= {"task": task.name, "releases": 1000, "odds_ratios": False, "of": describe_target(task)}
    found |= {"chances": task.coefficient_scale == "probability", "diagnosis": None, "simulated": True}
    looks = Looks("fixed-n", 100_000, 1000)
    return found | {"contrasts": [each.to_dict() for each in contrasts(task, estimate, looks)]}


def test_the_table_the_frame_the_attributes_and_json_have_one_number():
    report = reported(LINE, estimated(LINE, [0.1, 0.2, -0.1, 0.3], [0.01] * 4))
    result = Result(report)
    for name, value, scale in (("arm=b", 20.0, "percentage points"), ("intercept", 65.0, "percent")):
        assert report["per_unit"][name]["value"] == pytest.approx(value)
        assert (result[name].effect, result[name].scale) == (pytest.approx(value), scale)
        frame = result.to_frame().set_index(["name", "scale"])
        assert frame.loc[(name, scale), "estimate"] == pytest.approx(value)
        assert f"{value:.3f}" in as_text(describe_learned(report))
    # The average effect of a line is its slope, and a contrast is a difference of slopes.
    assert report["average_effects"]["arm=b"]["value"] == pytest.approx(20.0)
    [contrast] = report["contrasts"]
    assert (contrast["scale"], contrast["value"]) == ("percentage points", pytest.approx(-30.0))
    assert contrast["average_effect"] == contrast["value"]
    assert "probability of well = yes" in as_text(describe_learned(report))


@pytest.mark.parametrize(("task", "most", "level"), [(LINE, 100.0, (0.0, 100.0)), (MEAN, 40.0, (20.0, 60.0))])
def test_effects_are_cut_to_what_is_possible(task, most, level):
    report = reported(task, estimated(task, [0.5, 0.2, -3.0, 0.3], [10.0, 0.9, 10.0, 10.0]))
    # Without the cut these reach beyond: coded intervals do.
    assert report["confidence_intervals"]["arm=c"][1] > 10.0
    assert report["average_effects"]["arm=c"]["interval"] == [-most, most]
    assert report["per_unit"]["arm=c"]["value"] == -most
    assert tuple(report["per_unit"]["intercept"]["interval"]) == level
    [contrast] = report["contrasts"]
    assert contrast["interval"] == (-most, most)
    # The slope of a number that fills little of its bounds may exceed the whole range in one unit.
    steep = reported(task, estimated(task, [40.0, 0.2, 0.1, 0.3], [1.0] * 4))["per_unit"]["dose"]
    assert steep["interval"][0] > most
    # What is unknown is not made known.
    unknown = reported(task, estimated(task, [0.5, 0.2, 0.1, 0.3], [math.inf] * 4))
    assert unknown["per_unit"]["arm=c"]["interval"] == [-math.inf, math.inf]


def test_progress_is_in_the_units_of_the_forecast():
    shown = brief(LINE, estimated(LINE, [0.1, 0.2, -0.1, 0.3], [0.01, 0.9, 0.01, 0.01]), [None])
    assert shown.startswith("dose 1.000 ± ")
    assert " points  arm=b too wide" in shown
    assert "points" not in brief(MEAN, estimated(MEAN, [0.1, 0.2, -0.1, 0.3], [0.01] * 4), [None])


def test_a_count_is_answered_with_the_link():
    with pytest.raises(UserError, match=r"'count' is not a kind of target.*moments: \{link: exp\}"):
        Task.parse(BINARY.replace("kind: binary", "kind: count"))


def test_an_encoder_names_a_column_whose_values_all_lie_beyond_its_bounds():
    encoder = Encoder(LINE)
    records = [{"dose": 7_654_321, "arm": "a"}] * 120
    with pytest.warns(DataWarning, match="all 100 values of 'dose' in the first 100 records lie beyond") as caught:
        deque(map(encoder.transform_one, records), maxlen=0)
    assert "7654321" not in str(caught[0].message).replace(",", "")
    assert encoder.counts.clamped == 120
    # One value within the bounds is enough.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for other in (Encoder(LINE), encoder.clone()):
            for row in range(120):
                other.transform_one({"dose": 5 if row == 50 else 7_654_321, "arm": "a"})


LABELLED = """
name: trial
features:
  - {name: dose, low: 0, high: 10, label: Daily dose}
  - {name: arm, categories: [a, b, c], label: Treatment, labels: {a: Placebo, c: "Drug C"}}
target: {name: well, kind: binary, positive: "yes", negative: "no", label: Recovered, labels: {"yes": Fully}}
contrasts: [{feature: arm, category: c, against: a}]
privacy: {guarantee: {gdp: {mu: 1.0}}}
protocol: examples
"""


def test_reports_and_pictures_have_the_tasks_own_words():
    task = Task.parse(LABELLED)
    # Coefficients keep their names, by which programs ask for them.
    assert task.coding.names == LINE.coding.names
    report = reported(task, estimated(task, [0.1, 0.2, -0.1, 0.3], [0.01] * 4))
    text = as_text(describe_learned(report))
    for words in ("Daily dose: one unit more", "Treatment: b against Placebo", "Treatment: Drug C against Placebo",
                  "probability of Recovered = Fully"):  # fmt: skip
        assert words in text
    assert "arm: b" not in text
    [contrast] = report["contrasts"]
    assert contrast["name"] == "Treatment: Drug C against Placebo"
    result = Result(report)
    labels = [label.get_text() for label in result.plot().axes[0].get_yticklabels()]
    assert "Treatment: b against Placebo" in labels
