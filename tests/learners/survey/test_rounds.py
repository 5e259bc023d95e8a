"""The survey's rounds and its posterior, from made-up answers with the noise of real ones."""

import math
from dataclasses import replace

import numpy as np
import pytest

from murk import Task
from murk.protocols.device import person_device_for
from murk.protocols.scores.survey.conclusion import conclude
from murk.protocols.scores.survey.coordinates import THRESHOLDS, Coordinates
from murk.protocols.scores.survey.rounds import Survey
from murk.protocols.scores.survey.shapes import Reply, location_of

NOISE = 4.0  # variance of one answer's noise at mu = 1


def answers(values, asked, column, each, rng, noise=NOISE):
    """Mean answers of ``each`` people a threshold of a round about a column."""
    centre, scale = float(asked.centre[column]), float(asked.scale[column])
    if scale == 0.0:
        return []
    replies = []
    for c in THRESHOLDS[asked.thresholds]:
        threshold = centre + c * scale
        x = rng.choice(values, each)
        mean = float(np.nan_to_num(np.sign(x - threshold)).mean()) + math.sqrt(noise / each) * rng.normal()
        replies.append(Reply(threshold, mean, NOISE / each, 1.0 / each))
    return replies


def surveyed(columns, *, stated=(), people=100, seed=0, noise=NOISE):
    """Return the coordinates that a survey of columns of numbers publishes, and the rounds it takes."""
    rng = np.random.default_rng(seed)
    survey = Survey.of([True] * len(columns), NOISE, stated=stated)
    asked, survey_rounds = survey.opening(), 0
    replies = [[] for _ in columns]
    while not isinstance(asked, Coordinates):
        survey_rounds += 1
        among = max(int(np.count_nonzero(asked.scale)), 1)
        each = people * len(columns) // (among * len(THRESHOLDS[asked.thresholds])) + 1
        for column, values in enumerate(columns):
            replies[column] += answers(values, asked, column, each, rng, noise)
        asked = conclude(survey, replies, survey_rounds)
    return asked, survey_rounds


def column(centre, spread, seed=9):
    return np.clip(np.random.default_rng(seed).normal(centre, spread, 20_000), -1.0, 1.0)


@pytest.mark.parametrize("spread", [0.02, 0.1, 0.4])
def test_the_posterior_covers_the_truth(spread):
    """Beyond four standard errors, six times: with probability 4e-4 for normal errors."""
    for seed in range(3):
        found, survey_rounds = surveyed([column(0.3, spread)], seed=seed)
        assert survey_rounds <= 6
        assert abs(found.centre[0] - 0.3) < 4.0 * found.centre_error[0]
        # What is published is a quarter of a standard error below the likely spread.
        off = math.log(found.spread[0] / spread)
        assert abs(off) < 4.25 * found.log_spread_error[0]


def test_understated_noise_is_no_posterior():
    """The wrong twin: with 100 times the stated noise the centre is far from what is published."""
    far = []
    for seed in range(6):
        found, _ = surveyed([column(0.3, 0.02)], seed=seed, noise=100 * NOISE)
        far.append(abs(found.centre[0] - 0.3) / found.centre_error[0])
    assert max(far) > 4.0


def test_a_survey_ends_when_answers_suffice_and_after_six_rounds_at_the_latest():
    assert surveyed([column(0.0, 0.4)], people=5_000)[1] == 3
    assert surveyed([column(0.0, 0.4)], people=12)[1] == 6


def test_a_survey_takes_at_most_a_tenth_of_the_people():
    free, capped = Survey.of([True] * 4, NOISE), Survey.of([True] * 4, NOISE, people=10_000)
    assert free.end > 1_000 >= capped.end - len(capped.starts)
    assert Survey.of([True] * 4, NOISE, people=10**6) == free
    # A shuffled round has a whole crowd.
    assert Survey.of([True] * 4, NOISE, people=10_000, crowd=500).first == 500


def test_only_numbers_are_asked_about_again():
    survey = Survey.of([True, False], NOISE)
    replies = [[Reply(0.0, 0.0, 1.0, 1.0)], [Reply(0.0, 0.5, 0.1, 0.1)]]
    asked = conclude(survey, replies, 1)
    assert (asked.scale > 0.0).tolist() == [True, False]
    assert Survey.of([False, False], NOISE).end == Survey.of([False, False], NOISE).first


@pytest.mark.parametrize("values", [np.full(100, np.nan), np.zeros(100), np.ones(100)])
def test_columns_that_say_nothing_end_in_finite_coordinates(values):
    """Everybody's value missing, always the same, or always at a bound."""
    found, _ = surveyed([values, column(0.0, 0.3)])
    for each in (found.centre, found.spread, found.centre_error, found.log_spread_error, found.transform):
        assert np.isfinite(each).all()
    assert (found.spread > 0.0).all()
    assert 0.1 < found.spread[1] < 0.6


def test_a_survey_without_answers_has_coordinates_too():
    survey = Survey.of([True, False], NOISE)
    found = conclude(survey, [[], []], 6)
    assert np.isfinite(found.transform).all()
    # Nothing is known: half the centre's range, and a factor of spread.
    assert found.centre_error[0] > 0.4
    assert found.log_spread_error[0] > 1.0


# Statements


def test_a_true_statement_saves_rounds():
    told, survey_rounds = surveyed([column(0.3, 0.05)], stated=[(0.3, 0.05)])
    assert survey_rounds < surveyed([column(0.3, 0.05)])[1]
    assert 0.025 < told.spread[0] < 0.08
    assert abs(told.centre[0] - 0.3) < 0.05


@pytest.mark.parametrize("stated", [(0.25, 0.05), (0.4, 0.1), (0.3, 0.3)])
def test_errors_allow_for_a_statement_that_is_nearly_right(stated):
    """Half a spread off, or a spread off by a factor: beyond four errors, once in 36, with probability 3e-3."""
    for seed in range(6):
        found, _ = surveyed([column(0.3, 0.1)], stated=[stated], seed=seed)
        assert abs(found.centre[0] - 0.3) < 4.0 * found.centre_error[0]
        assert abs(math.log(found.spread[0] / 0.1)) < 4.25 * found.log_spread_error[0]


@pytest.mark.parametrize("stated", [(-0.8, 0.02), (0.0, 1.0), (0.9, 0.01)])
def test_a_false_statement_is_outweighed_by_answers(stated):
    found, survey_rounds = surveyed([column(0.3, 0.1)], stated=[stated], people=300)
    assert survey_rounds > 1
    assert abs(found.centre[0] - 0.3) < 0.1
    assert 0.04 < found.spread[0] < 0.2


def test_a_statement_is_a_prior_and_not_a_result():
    """With few answers a statement counts; the error that is published for it is no smaller than its own."""
    reply = [Reply(0.0, 0.1, 0.5, 0.1)]
    told, untold = location_of(reply, (0.0, 0.1)), location_of(reply)
    assert told.log_spread_error < untold.log_spread_error
    assert told.log_spread_error > 0.3
    assert location_of([replace(reply[0], mean=0.1)], None) == untold


TASK = """
name: prices
features:
  - {name: price, low: 0, high: 200, typical: [80, 120]}
  - {name: plan, categories: [a, b, c]}
  - name: joined
    kind: date
    low: 2024-01-01
    high: 2024-12-31
    as: [weekday, number]
    typical: [2024-06-01, 2024-08-01]
  - {name: age, low: 0, high: 100}
target: {name: spent, kind: real, low: 0, high: 1000, typical: [100, 300]}
protocol: scores
log: {partitions: 1}
privacy: {guarantee: {gdp: {mu: 1.0}}}
"""


def test_a_tasks_typical_values_are_the_surveys_statements():
    device = person_device_for(Task.parse(TASK))
    stated = dict(zip([*device.settings.names[:-1], "target"], device.settings.survey.stated, strict=True))
    assert {name for name, each in stated.items() if each is not None} == {"price", "joined", "target"}
    # Nine of ten values of a normal distribution lie within 1.645 standard deviations.
    assert stated["price"] == pytest.approx((0.0, 0.2 / 1.645), rel=1e-3)
    assert stated["target"] == pytest.approx((-0.6, 0.2 / 1.645), rel=1e-3)
    untold = person_device_for(Task.parse(TASK.replace(", typical: [80, 120]", "")))
    assert untold.settings.survey.stated[0] is None
    # Devices ask the same: a statement changes what the learner concludes.
    assert np.array_equal(untold.initial, device.initial)
    assert untold.settings.survey.starts == device.settings.survey.starts
