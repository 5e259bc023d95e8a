"""A result that one can hold: numbers, words, tables, pictures, and what it says where nothing was learned."""

import builtins
import copy
import dataclasses
import itertools
import json
import math
import pickle
import re

import numpy as np
import pytest

from murk import Task
from murk.errors import UserError
from murk.results.html import axis_limit
from murk.results.result import Result

NAN, INF = math.nan, math.inf
TASK = Task.parse("""
name: weeks
features: [{name: age, low: 0, high: 1}]
target: {name: worked, kind: binary, positive: "yes", negative: "no"}
privacy: {guarantee: {gdp: {mu: 1.0}}}
""")


def report(**more):
    """A report of three coefficients, as a log's or a learner's is: one learned, one not, and the constant."""
    return {
        "task": "weeks",
        "odds_ratios": True,
        "chances": False,
        "releases": 12_345,
        "coefficients": {"age": 0.5, "<b>rare</b>": 0.01, "intercept": -1.0},
        "confidence_intervals": {"age": [0.25, 0.75], "<b>rare</b>": [-INF, INF], "intercept": [-1.5, -0.5]},
        "standard_errors": {"age": 0.125, "<b>rare</b>": INF, "intercept": 0.25},
        "interval": {"method": "scores", "level": 0.95, "note": "as far as anybody knows"},
        "per_unit": {
            "age": {
                "unit": "age: one unit more",
                "scale": "log odds",
                "value": 0.1,
                "interval": [0.05, 0.15],
                "odds_ratio": math.exp(0.1),
                "odds_ratio_interval": [math.exp(0.05), math.exp(0.15)],
                "std_error": 0.025,
                "factor": 0.2,
                "shift": 0.0,
            }
        },
        "average_effects": {
            "age": {"unit": "age: one unit more", "scale": "percentage points", "value": 2.0, "interval": [1.0, 3.0]}
        },
        "too_wide": [],
        "not_learned": ["<b>rare</b>"],
        "needed": {"<b>rare</b>": {"words": "about 400,000 people in all"}},
        "levels": {"default": {"guarantee": {"gdp": {"mu": 1.0}}, "words": "telling apart is hard"}},
        "cap_words": "One release a person, at their level.",
        "public_sample": None,
        "diagnosis": {"words": "Why: too few of them."},
        "simulated": False,
        **more,
    }


HISTORY = {
    "releases": [100, 1000, 10_000],
    "values": {"age": [0.1, 0.4, 0.5], "<b>rare</b>": [0.0, 0.0, 0.0], "intercept": [-1.0, -1.0, -1.0]},
    "half_widths": {"age": [INF, 0.6, 0.3], "<b>rare</b>": [INF] * 3, "intercept": [INF, 1.0, 0.6]},
}


@pytest.fixture
def result():
    return Result(report(), HISTORY)


def test_a_coefficient_has_every_unit_that_there_is(result):
    age = result["age"]
    assert (age.value, age.interval) == (0.5, (0.25, 0.75))
    assert (age.unit, age.effect, age.effect_interval) == ("age: one unit more", 0.1, (0.05, 0.15))
    assert age.odds_ratio == pytest.approx(math.exp(0.1))
    assert age.odds_ratio_interval == pytest.approx((math.exp(0.05), math.exp(0.15)))
    assert (age.average_effect, age.average_effect_interval) == (2.0, (1.0, 3.0))
    assert (age.scale, age.average_scale) == ("log odds", "percentage points")
    assert (age.std_error, age.effect_std_error) == (0.125, 0.025)


def test_a_guess_near_zero_is_no_answer(result):
    rare = result["<b>rare</b>"]
    assert not rare.learned
    assert (rare.value, rare.interval, rare.effect, rare.odds_ratio) == (None, None, None, None)
    assert str(rare) == "<b>rare</b>: not learned; it would take about 400,000 people in all"
    assert result.not_learned == ("<b>rare</b>",)
    for shown in (str(result), result._repr_html_(), str(list(result))):
        assert "0.01 " not in shown
    frame = result.to_frame()
    assert frame[frame.name == "<b>rare</b>"].estimate.isna().all()


def test_nobody_writes_into_a_result(result):
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.report = {}
    with pytest.raises(TypeError):
        result.report["coefficients"]["age"] = 2.0
    with pytest.raises(TypeError):
        result.coefficients["age"] = None


def test_what_it_was_made_of_may_change(result):
    source = report()
    held = Result(source)
    source["coefficients"]["age"] = 99.0
    assert held["age"].value == 0.5


@pytest.mark.parametrize("again", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_copies_say_the_same(result, again):
    result = dataclasses.replace(result, task=TASK)
    twin = again(result)
    assert twin.task == result.task
    assert str(twin) == str(result)
    assert twin.to_json() == result.to_json()
    assert twin.history == result.history


def test_json_is_the_report(result):
    found = json.loads(result.to_json())
    assert found["coefficients"] == {"age": 0.5, "<b>rare</b>": 0.01, "intercept": -1.0}
    assert found["confidence_intervals"]["<b>rare</b>"] == [None, None]
    assert "history" not in found


def test_print_has_numbers_promise_method_and_caveats():
    text = str(Result(report(simulated=True)))
    for words in (
        "weeks: 12,345 releases learned", "age: one unit more", "1.105", "not learned", "95% interval",
        "Intervals by scores: as far as anybody knows.", "It would take about 400,000 people in all.",
        "Average marginal effect", "Promised for each release at level default: telling apart is hard",
        "One release a person", "Why: too few of them.", "SIMULATED",
    ):  # fmt: skip
        assert words in text
    assert "SIMULATED" not in str(Result(report()))


def test_what_it_would_take_is_said_to_be_where_the_interval_first_ends():
    need = {"words": "about 400,000 people in all", "people": 400_000}
    words = " ".join(str(Result(report(needed={"<b>rare</b>": need}))).split())
    assert "It would take about 400,000 people in all, at which its interval becomes bounded" in words


def test_an_unknown_name_is_answered_with_the_known_ones(result):
    with pytest.raises(UserError, match="no coefficient 'agee'; there are age, <b>rare</b>, intercept"):
        result["agee"]


def test_html_is_well_formed_and_escapes_names(result):
    html = result._repr_html_()
    assert "<b>rare</b>" not in html
    assert "&lt;b&gt;rare&lt;/b&gt;" in html
    assert "<script" not in html
    assert "http" not in html
    opened = re.findall(r"<(\w+)[^>]*?(?<!/)>", re.sub(r"<style>.*?</style>", "", html, flags=re.DOTALL))
    closed = re.findall(r"</(\w+)>", html)
    assert sorted(opened) == sorted(name for name in closed if name != "style")


def test_drawn_intervals_are_not_hidden_by_the_widest():
    wide = report(
        coefficients={"a": 0.1, "b": 0.2, "c": 0.0},
        confidence_intervals={"a": [-0.1, 0.3], "b": [0.0, 0.4], "c": [-90.0, 90.0]},
        standard_errors={"a": 0.1, "b": 0.1, "c": 40.0}, not_learned=[], needed={}, per_unit={}, average_effects=None,
    )  # fmt: skip
    limit = axis_limit(list(Result(wide)))
    assert 0.4 <= limit < 5.0
    # All estimates are on it, however large.
    wide["coefficients"]["c"] = 50.0
    wide["confidence_intervals"]["c"] = [-90.0, 190.0]
    assert axis_limit(list(Result(wide))) >= 50.0


def test_a_frame_has_a_row_for_each_coefficient_and_scale(result):
    frame = result.to_frame()
    assert list(frame) == ["name", "estimate", "std_error", "low", "high", "unit", "scale", "says"]
    age = frame[frame.name == "age"].set_index("scale")
    assert list(age.index) == ["coded", "log odds", "odds ratio", "percentage points"]
    assert age.loc["odds ratio", "low"] == pytest.approx(math.exp(0.05))
    assert age.loc["log odds", "std_error"] == 0.025
    # What the table prints, an attribute and the frame are one number.
    assert age.loc["percentage points", "estimate"] == result["age"].average_effect == 2.0
    assert "2.000  1.000 .. 3.000" in str(result)
    coded = frame[frame.scale == "coded"]
    assert coded.says.tolist() == ["", "not learned", ""]
    assert frame.dtypes["estimate"] == np.float64


def without(monkeypatch, package):
    importing = builtins.__import__

    def refuse(name, *more, **kwargs):
        if name.split(".")[0] == package:
            raise ImportError(name)
        return importing(name, *more, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)


def test_without_pandas_a_frame_is_refused_with_the_cure(result, monkeypatch):
    without(monkeypatch, "pandas")
    with pytest.raises(UserError, match=r"to_frame\(\) needs pandas: pip install pandas"):
        result.to_frame()


@pytest.mark.parametrize("kind", ["forest", "curve"])
def test_without_matplotlib_a_picture_is_refused_with_the_cure(result, monkeypatch, kind):
    without(monkeypatch, "matplotlib")
    with pytest.raises(UserError, match=r'needs matplotlib: pip install .*\[demo\]"'):
        result.plot(kind)


def test_a_forest_has_a_row_for_each_coefficient_but_the_intercept(result):
    picture = result.plot()
    [axes] = picture.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["age", "<b>rare</b>"]
    words = [text.get_text() for text in axes.texts]
    assert any("1.649" in each and "1.284 .. 2.117" in each for each in words)
    assert "not learned" in words
    assert axes.get_xscale() == "log"
    assert picture._repr_png_().startswith(b"\x89PNG")


def test_of_several_classes_no_intercept_is_drawn():
    names = ["b:dose", "b:intercept", "c:dose", "c:intercept"]
    of_classes = report(
        coefficients=dict.fromkeys(names, 0.5), confidence_intervals={name: [0.25, 0.75] for name in names},
        standard_errors=dict.fromkeys(names, 0.1), per_unit={}, average_effects=None, not_learned=[], needed={},
        odds_ratios=False,
    )  # fmt: skip
    [axes] = Result(of_classes).plot().axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["b:dose", "c:dose"]


def test_a_forest_is_per_unit_where_all_units_are_known(result):
    [axes] = result.plot(names=["age"]).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["age: one unit more"]
    assert any("1.105" in text.get_text() for text in axes.texts)
    low, high = axes.get_xlim()
    assert low < 1.0 < math.exp(0.15) < high


def test_a_curve_ends_at_the_result(result):
    [axes] = result.plot("curve", names=["age"]).axes
    [line] = [one for one in axes.lines if len(one.get_xdata()) > 2]
    assert list(line.get_xdata()) == [100, 1000, 10_000, 12_345]
    # In odds ratios per unit: the last is what the table has.
    assert line.get_ydata()[-1] == pytest.approx(result["age"].odds_ratio)
    assert line.get_ydata()[1] == pytest.approx(math.exp(0.4 * 0.2))
    # What had no interval was a guess.
    assert math.isnan(line.get_ydata()[0])


def test_a_curve_gives_no_number_for_what_was_not_learned(result):
    [axes] = result.plot("curve", names=["<b>rare</b>"]).axes
    assert [text.get_text() for text in axes.texts] == ["not learned"]
    assert not any(np.isfinite(line.get_ydata()).any() for line in axes.lines if len(line.get_xdata()) > 2)


def test_a_curve_of_a_method_without_intervals_is_drawn():
    found = report(confidence_intervals={name: [-INF, INF] for name in HISTORY["values"]}, not_learned=[])
    history = {**HISTORY, "half_widths": {name: [INF] * 3 for name in HISTORY["values"]}}
    [axes] = Result(found, history).plot("curve", names=["age"]).axes
    assert [text.get_text() for text in axes.texts] == ["1.105"]
    assert any(np.isfinite(line.get_ydata()).all() for line in axes.lines if len(line.get_xdata()) > 2)


def test_a_small_effect_is_not_labelled_as_none():
    small = {
        "unit": "age: one unit more", "scale": "target units", "value": 0.0015, "interval": [0.001, 0.002],
        "std_error": 0.0002, "factor": 0.003, "shift": 0.0,
    }  # fmt: skip
    [axes] = Result(report(odds_ratios=False, per_unit={"age": small}), HISTORY).plot("curve", names=["age"]).axes
    assert [text.get_text() for text in axes.texts] == ["0.0015"]


def effects():
    """Of a real target: a day and two categories, one of which is too wide."""
    coded = {"day": [0.15, 0.02], "member": [0.2, 0.1], "islands": [0.8, 5.0]}
    factors = {"day": 1.37, "member": 1000.0, "islands": 1000.0}
    ends = {name: [value - half, value + half] for name, (value, half) in coded.items()}
    return report(
        odds_ratios=False, coefficients={name: value for name, (value, _) in coded.items()}, confidence_intervals=ends,
        standard_errors={name: half / 2 for name, (_, half) in coded.items()}, not_learned=[], needed={},
        average_effects=None, too_wide=["islands"],
        per_unit={
            name: {
                "unit": f"{name}: more", "scale": "target units", "value": coded[name][0] * factor,
                "interval": [end * factor for end in ends[name]], "std_error": 1.0, "factor": factor, "shift": 0.0,
            }
            for name, factor in factors.items()
        },
        diagnosis={"words": "Too wide to say anything: islands.", "useless": {"islands": "too wide"}},
    )  # fmt: skip


def test_too_wide_is_said_of_a_coefficient():
    result = Result(effects())
    frame = result.to_frame()
    coded = frame[frame.scale == "coded"]
    assert coded.name.tolist() == ["day", "member", "islands"]
    assert coded.says.tolist() == ["", "", "too wide"]
    assert str(result["islands"]).endswith("islands: more; too wide to say anything")
    assert [each.useful for each in Result(report())] == [True, False, True]
    assert Result(report())["<b>rare</b>"].says == "not learned"


def test_a_forest_is_not_stretched_by_what_says_nothing():
    picture = Result(effects()).plot()
    [axes] = picture.axes
    low, high = axes.get_xlim()
    # Units differ: drawn per half of each feature's range, and written per unit.
    assert low < 0.0 < 0.3 < high < 0.4
    assert "per half of each feature's range" in axes.get_xlabel()
    words = [text.get_text() for text in axes.texts]
    assert any(each.startswith("200.000  (100.000 .. 300.000)") for each in words)
    assert any(each.endswith("too wide") for each in words)
    arrows = [line.get_marker() for line in axes.lines if line.get_marker() in "<>"]
    assert sorted(arrows) == ["<", ">"]
    # Its estimate lies beyond.
    assert len([line for line in axes.lines if line.get_marker() == "o"]) == 2


@pytest.mark.parametrize("by", [1.0, 1e4])
def test_tick_labels_of_a_forest_do_not_overlap(by):
    found = effects()
    for each in found["per_unit"].values():
        each["factor"], each["interval"] = 1000.0, [by * end for end in each["interval"]]
        each["value"] *= by
    picture = Result({**found, "diagnosis": None}).plot()
    picture._repr_png_()
    boxes = [label.get_window_extent() for label in picture.axes[0].get_xticklabels() if label.get_text()]
    assert len(boxes) > 2
    assert all(left.x1 < right.x0 for left, right in itertools.pairwise(boxes))


def test_bad_pictures_are_refused(result):
    with pytest.raises(UserError, match='is not one of "forest", "curve"'):
        result.plot("pie")
    with pytest.raises(UserError, match="no history to draw"):
        Result(report()).plot("curve")
    with pytest.raises(UserError, match="no coefficient 'x'"):
        result.plot(names=["x"])
