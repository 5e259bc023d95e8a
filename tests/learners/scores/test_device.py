"""Scores as a task has them."""

import numpy as np
import pytest

from murk import Task
from murk.errors import UserError
from murk.privacy.noise import SimulatedNoise
from murk.protocols.device import person_device_for

TEXT = """
name: churn
features: [{name: age, low: 20, high: 80}, {name: plan, categories: [basic, plus, pro]}]
target: {name: left, kind: binary, positive: "yes"}
protocol: scores
privacy: {guarantee: {gdp: {mu: 1.0}}, levels: {open: {gdp: {mu: 2.0}}}}
"""


def test_a_task_has_its_scores():
    device = person_device_for(Task.parse(TEXT))
    assert device.settings.names == ("age", "plan=plus", "plan=pro", "intercept")
    assert (device.dimension, device.lengths) == (4, (4, 10, 1))
    assert set(device.mechanisms) == {"default", "open"}
    survey = device.settings.survey
    # Three columns of 20 (1 + v) people each, v being 4 and the lattice's; later rounds ask about the age alone.
    assert (survey.numbers, survey.later) == ((True, False, False), 101)
    assert 300 < survey.first < 310
    assert device.block(0) == device.next_published(0) == survey.first
    versions = (0, 1, survey.first, survey.first + 101, survey.end, 3000)
    assert [device.is_published(version) for version in versions] == [True, False, True, True, True, False]
    later = [survey.end + more for more in (3000, 6000, 9000)]
    assert [device.is_published(version) for version in later] == [True, True, False]
    device.check_state()
    device.check_model(device.initial)


def test_questions_are_drawn_by_the_models_shares_and_repeat():
    device = person_device_for(Task.parse(TEXT))
    flat = device.initial.copy()
    flat[-5:] = 0.1, 0.3, 0.0, 0.0, 1.0
    n = 20_000
    asked = device.draw_query(SimulatedNoise(1), np.arange(n), flat)
    for query, share in (("score", 0.6), ("scatter", 0.1), ("curvature", 0.3)):
        # Beyond 5 standard deviations of a binomial once in 10^6 times.
        assert abs(asked.count(query) - n * share) < 5 * (n * share * (1 - share)) ** 0.5
    assert asked[5000:5010] == device.draw_query(SimulatedNoise(1), np.arange(5000, 5010), flat)
    flat[-5:-3] = 0.0, 1.0
    assert set(device.draw_query(SimulatedNoise(1), np.arange(500), flat)) == {"curvature"}


def test_more_features_than_a_message_takes_are_refused_with_what_would_do():
    wide = TEXT.replace("plan, categories: [basic, plus, pro]", f"plan, categories: {list(range(300))}")
    with pytest.raises(UserError, match=r"second moments.*protocol: gradients"):
        person_device_for(Task.parse(wide)).check_state()


def test_so_many_features_that_no_mechanism_has_them_are_refused_for_being_many():
    """What is wrong is their number, not the budget, of which a mechanism of 50 million numbers would speak."""
    wide = TEXT.replace("plan, categories: [basic, plus, pro]", f"plan, categories: {list(range(9_000))}")
    with pytest.raises(UserError, match=r"second moments.*protocol: gradients"):
        person_device_for(Task.parse(wide.replace("mu: 1.0", "mu: 4.0")))
