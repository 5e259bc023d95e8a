"""How often one person may answer, and what intervals, tests and reports make of it."""

import math
from dataclasses import replace

import numpy as np
import pytest

import murk
from murk import Task
from murk.inference.confidence_sequences import looks_of, wider_level
from murk.inference.contrasts import contrasts
from murk.inference.estimate import RANDOM_SCALING, Estimate
from murk.privacy import GaussianDP, PureDP
from murk.protocols.drift import drift_of
from murk.task.repeats import ONCE, SUPPOSED, Repeats, effect_of

TEXT = """
name: visits
features: [{name: arm, categories: [a, b]}]
target: {name: y, kind: binary, positive: "y", negative: "n"}
contrasts: [{feature: arm, category: b, against: a}]
protocol: examples
"""


def task(privacy):
    return Task.parse(f"{TEXT}privacy: {privacy}\n")


@pytest.mark.parametrize(
    ("privacy", "most", "supposed"),
    [
        ("{guarantee: {gdp: {mu: 1.0}}}", 1, False),
        ("{guarantee: {gdp: {mu: 1.0}}, per_person: {gdp: {mu: 1.0}}}", 1, False),
        ("{guarantee: {gdp: {mu: 1.0}}, per_person: {gdp: {mu: 8.0}}}", 64, False),
        ("{guarantee: {pure: {epsilon: 1.0}}, per_person: {pure: {epsilon: 3.5}}}", 3, False),
        ("{guarantee: {gdp: {mu: 1.0}}, window: week, lifetime: {gdp: {mu: 2.0}}}", 4, False),
        ("{guarantee: {gdp: {mu: 1.0}}, window: week}", SUPPOSED, True),
        # The cheapest level is released most often.
        ("{guarantee: {gdp: {mu: 1.0}}, levels: {low: {gdp: {mu: 0.5}}}, per_person: {gdp: {mu: 1.0}}}", 4, False),
    ],
)
def test_how_often_one_person_may_answer(privacy, most, supposed):
    repeats = task(privacy).repeats
    assert (repeats.most, repeats.supposed) == (most, supposed)
    assert (repeats.words == "") == (repeats.effect == 1.0) == (most == 1)


@pytest.mark.parametrize("guarantee", [GaussianDP(1.0), PureDP(2.0)])
def test_intervals_hold_where_people_answer_again(guarantee):
    """Means of answers within a bound of 1: 500 people of two kinds, each with the same four answers.

    2,000 means, 4 standard errors of the share held: 6 in 100,000 false alarms. The twin takes answers for people.
    """
    rng, people, most, means = np.random.default_rng(46), 500, 4, 2_000
    noise = {GaussianDP(1.0): 4.0, PureDP(2.0): math.tanh(1.0) ** -2 - 1.0}[guarantee]
    sampled = 2.0 * rng.binomial(people, 0.5, means) / people - 1.0
    found = sampled + math.sqrt(noise / (people * most)) * rng.normal(size=means)
    estimate = Estimate(("a",), np.zeros(1), "delta method", np.array([math.sqrt((noise + 1.0) / 2_000)]), "", 1, 2_000)
    held = {}
    for repeats in (Repeats(most, effect_of(most, [guarantee])), ONCE):
        half = estimate.half_widths(wider_level(0.95, repeats))[0]
        held[repeats] = float(np.mean(np.abs(found) <= half))
    right, wrong = held.values()
    error = 4.0 * math.sqrt(0.05 * 0.95 / means)
    assert right > 0.95 - error > wrong


def estimated(names=("arm", "intercept")):
    return Estimate(names, np.array([1.0, 0.0]), "sandwich", np.full(2, 0.1), "", 1, 10_000, covariance=np.eye(2) / 100)


def test_nothing_is_tested_where_one_person_may_answer_twice():
    once, often = task("{guarantee: {gdp: {mu: 1.0}}}"), task("{guarantee: {gdp: {mu: 1.0}}, window: day}")
    tests = {}
    for each in (once, often):
        looks = looks_of(each, estimated(), 10_000)
        [contrast] = contrasts(each, estimated(), looks)
        tests[each.name, looks.repeats.most] = contrast.p_value, contrast.e_value
        assert looks.to_dict(0.95)["repeats"] == each.repeats.most
        assert looks.fixed(0.95) == looks.nominal(0.95)
        assert (looks.nominal(0.95) > 0.95) == (each is often)
    assert tests["visits", 1][0] < 0.05
    assert tests["visits", SUPPOSED] == (None, None)
    looks = looks_of(often, replace(estimated(), method=RANDOM_SCALING), 10_000)
    assert looks.nominal(0.95) == 0.95
    assert "do not allow for" in looks.repeats.words
    assert drift_of(murk.task, [], estimated(), (), most=SUPPOSED) is None


def test_a_file_tells_how_often_each_person_answered():
    """One answer a person, whatever the cap; and with windows as many as there are."""
    records = [
        {"person": f"p{i % 50}", "arm": "ab"[i % 2], "y": "yn"[i % 3 > 0], "day": f"2026-01-0{1 + i // 50}"}
        for i in range(100)
    ]
    capped = task("{guarantee: {gdp: {mu: 4.0}}, per_person: {gdp: {mu: 32.0}}}")
    result = murk.run(capped, records, seed=1, person="person")
    assert result.report["repeats"] == ""
    daily = task("{guarantee: {gdp: {mu: 4.0}}, window: day}")
    result = murk.run(daily, records, seed=1, person="person", time="day")
    assert result.report["interval"]["looks"]["repeats"] == 2
    for text in (str(result), result._repr_html_()):
        assert "up to 2 times" in " ".join(text.split())
    assert any("up to 2 times" in caveat for caveat in result.caveats)
    assert result.report["drift"] is None
    # A cap over all windows allows one answer, whatever the number of windows.
    capped = task("{guarantee: {gdp: {mu: 4.0}}, window: day, lifetime: {gdp: {mu: 4.0}}}")
    result = murk.run(capped, records, seed=1, person="person", time="day")
    assert (result.n_releases, result.report["repeats"]) == (50, "")
