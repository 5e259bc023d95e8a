"""How often one person may answer, and what intervals, tests and reports make of it."""

import math
from dataclasses import replace

import numpy as np
import pytest

import murk
from murk import Task
from murk.inference.average_effects import combined_half_widths
from murk.inference.confidence_sequences import Looks, looks_of, wider_level
from murk.inference.contrasts import contrasts
from murk.inference.estimate import RANDOM_SCALING, Estimate
from murk.inference.levels import SUREST, divided_error, level_of, quantile_of
from murk.planning.forecast import forecast
from murk.planning.outlook import outlook
from murk.privacy import GaussianDP, PureDP
from murk.protocols.device import device_for
from murk.protocols.drift import drift_of
from murk.protocols.population import Effects, designs
from murk.protocols.scores.model import Model
from murk.protocols.scores.next_model import root_of
from murk.protocols.scores.sums import Answer, Summary
from murk.task.windows import ONCE, SUPPOSED, Repeats, effect_of, repeats_of_counts

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


@pytest.mark.parametrize("times", [2.0, 4.56, 30.0])
def test_intervals_are_as_many_times_as_wide_as_their_words_say(times):
    """Also beyond the levels that a float tells from certainty, about 8 standard errors, and at every look."""
    repeats = Repeats(400, times**2)
    for validity in ("fixed-n", "always-valid"):
        halves = [
            float(estimated().half_widths(Looks(validity, 10_000, 10_000, repeats=each).nominal(0.95))[0])
            for each in (repeats, ONCE)
        ]
        assert halves[0] == pytest.approx(times * halves[1])


def test_wide_levels_are_told_apart_and_divided():
    """Caches and comparisons go by levels, whose floats are the same far out."""
    wide, wider = level_of(12.3), level_of(20.6)
    assert float(wide) == float(wider) == SUREST
    assert wide != wider
    assert len({wide, wider, level_of(12.3)}) == 2
    assert divided_error(wide, 1) is wide
    assert 12.3 < quantile_of(divided_error(wide, 8)) < 12.6
    # One coefficient by itself, and as a sum.
    alone = estimated().half_widths(wide)[0]
    assert combined_half_widths(replace(estimated(), covariance=None), np.eye(2), wide)[0] == pytest.approx(alone)


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


@pytest.mark.parametrize("counts", [{1: 300, 10: 100}, {10: 200}, {1: 900, 5: 100}])
def test_the_factor_of_counts_allows_for_people_who_answer_most(counts):
    """Of answers within a bound of 1 all people's variance is in those who answer most, the worst case.

    4,000 sums of noise and people; their variance, within 4 standard errors (2.2% each), is the factor at most. The
    mean number of answers alone, and answers of different people, are too small for unequal counts.
    """
    rng, runs, guarantee = np.random.default_rng(5), 4_000, GaussianDP(2.0)
    answers, most = sum(number * people for number, people in counts.items()), max(counts)
    noise = math.sqrt(1.0 * answers) * rng.normal(size=runs)
    people = 2.0 * rng.binomial(counts[most], 0.5, runs) - counts[most]
    stated = answers + most * counts[most]  # of different people
    factor = float(np.var(noise + most * people)) / stated
    repeats = repeats_of_counts(counts, [guarantee])
    assert factor <= repeats.effect * (1.0 + 4.0 * math.sqrt(2.0 / runs))
    assert repeats.effect <= effect_of(most, [guarantee])
    assert factor > 1.0 + 4.0 * math.sqrt(2.0 / runs)
    mean = sum(number**2 * people for number, people in counts.items()) / answers
    if len(counts) > 1:
        assert (1.0 + mean) / 2.0 < repeats.effect < effect_of(most, [guarantee])


def test_nobody_moves_a_printed_factor_by_more_than_a_step():
    """Any other number of answers of one person leads to the same factor, or to the next step."""
    for counts in ({1: 40, 2: 40}, {1: 2_000, 10: 500}, {1: 30, 12: 1}, {3: 500}):
        effects = set()
        for number in counts:
            for other in range(1, max(counts) + 1):
                changed = dict(counts)
                changed[number] -= 1
                changed[other] = changed.get(other, 0) + 1
                effects.add(repeats_of_counts({k: v for k, v in changed.items() if v}, [GaussianDP(1.0)]).effect)
        effects = {round(each, 9) for each in effects if each > 1.0}
        limits = {round(effect_of(most, [GaussianDP(1.0)]), 9) for most in range(1, 13)}
        stepped = effects - limits
        assert not stepped or max(stepped) - min(stepped) <= 0.05 + 1e-9
    assert repeats_of_counts({1: 500}, [GaussianDP(1.0)]) == ONCE


def test_forecasts_allow_for_people_who_answer_again():
    once, again = (
        task("{guarantee: {gdp: {mu: 1.0}}}"),
        task("{guarantee: {gdp: {mu: 1.0}}, per_person: {gdp: {mu: 2.0}}}"),
    )
    halves = [forecast(each, designs(each, Effects())[0], 10**6, draws=1, more=False).halves for each in (once, again)]
    ratio = halves[1]["arm"] / halves[0]["arm"]
    assert ratio == pytest.approx(math.sqrt(effect_of(4, [GaussianDP(1.0)])), rel=1e-3)
    # In a window everybody answers once; over all of them, as often as the cap allows.
    weekly = task("{guarantee: {gdp: {mu: 1.0}}, window: week, lifetime: {gdp: {mu: 2.0}}}")
    assert forecast(weekly, designs(weekly, Effects())[0], 10**6, draws=1, more=False).halves == halves[0]
    assert (weekly.repeats_within.most, weekly.repeats.most) == (1, 4)
    assert "answers at mu = 1" in outlook(weekly, 10**6)
    assert "people at mu = 1" in outlook(once, 10**6)


def test_prediction_sets_allow_for_people_who_answer_again():
    """Of a reply's variance the people's part is that of as many times fewer people."""
    text = TEXT.replace("protocol: examples", "protocol: scores") + "predictions: {}\n"
    errors = []
    for cap in ("", ", per_person: {gdp: {mu: 2.0}}"):
        device = device_for(Task.parse(f"{text}privacy: {{guarantee: {{gdp: {{mu: 1.0}}}}{cap}}}\n"))
        model = device.settings.completed(Model(np.zeros(2), np.eye(2), 1.0, 1.0, 0.0, 0.0), np.zeros(2))
        answer = Answer(np.array([0.8]), 0.01, 1.0 / 500.0, 0.0)
        root = root_of(device.settings, None, [Summary(model, None, None, None, answer)], model, np.zeros(2))
        errors.append(root.replies[0].error(0.9) ** 2 - 0.01 / 4.0)
    assert errors == pytest.approx([0.09 / 500.0, 4.0 * 0.09 / 500.0])
