"""Intervals of scores are withheld where nothing backs them, and the words say why; elsewhere they hold."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.score_people import exact, learned, surveyed
from murk._internal.links import logistic
from murk.privacy import GaussianDP
from murk.protocols.scores.solve import curve
from murk.protocols.scores.solve.moments import Frame, Moments, may_be_none
from murk.protocols.scores.survey.conclusion import conclude
from murk.protocols.scores.survey.coordinates import THRESHOLDS, UNTOLD
from murk.protocols.scores.survey.rounds import Survey, SurveyRound
from murk.protocols.scores.survey.shapes import Reply

N = 30_000
THETA = np.array([0.5, 0.3, 3.0, -0.3])


def features(rng, n=N):
    """An even number, a category, a narrow number and the constant."""
    narrow = np.clip(0.1 + 0.1 * rng.normal(size=n), -1, 1)
    return np.c_[rng.uniform(-1, 1, n), np.where(rng.random(n) < 0.4, 1.0, -1.0), narrow, np.ones(n)]


def outcomes(rng, X, theta=THETA):
    return (rng.random(len(X)) < logistic(X @ theta)).astype(float)


def located(values, rng, variance=1.0):
    """The coordinates of one number whose people, drawn from ``values``, answer a survey."""
    survey = Survey.of((True,), variance)
    step, replies, survey_rounds = survey.opening(), [], 0
    while isinstance(step, SurveyRound):
        thresholds = step.centre[0] + np.array(THRESHOLDS[step.thresholds]) * step.scale[0]
        size = (survey.first if survey_rounds == 0 else survey.later) // len(thresholds)
        for threshold in thresholds.tolist():
            answers = np.where(rng.choice(values, size) > threshold, 1.0, -1.0)
            mean = float(np.mean(answers + np.sqrt(variance) * rng.normal(size=size)))
            replies.append(Reply(threshold, mean, variance / size, 1.0 / size))
        survey_rounds += 1
        step = conclude(survey, [replies], survey_rounds)
    return step


@pytest.mark.parametrize(("spread", "told"), [(0.0, False), (0.1, True)])
def test_a_survey_tells_a_constant_from_a_narrow_feature(spread, told):
    rng = np.random.default_rng(1)
    for centre in (-0.07, 0.3):
        values = np.clip(centre + spread * rng.normal(size=9_999), -1, 1)
        assert (located(values, rng).log_spread_error[0] < UNTOLD) == told


@pytest.mark.parametrize("column", [1, 2])
def test_a_feature_that_never_varies_is_named_and_spoils_no_other(column):
    rng = np.random.default_rng(2)
    X = features(rng)
    y = outcomes(rng, X)
    coordinates = surveyed(X, rng)
    whole = learned(X, y, GaussianDP(2.0), rng, coordinates=coordinates)
    assert np.isfinite(whole.half_widths()).all()
    X[:, column] = -1.0 if column == 1 else 0.3
    y = outcomes(rng, X)
    coordinates = surveyed(X, rng)
    if column == 2:
        spread, logs = coordinates.spread.copy(), coordinates.log_spread_error.copy()
        spread[2], logs[2] = 0.01, UNTOLD
        coordinates = replace(coordinates, spread=spread, log_spread_error=logs)
    found = learned(X, y, GaussianDP(2.0), rng, coordinates=coordinates)
    halves, others = found.half_widths(), [j for j in range(3) if j != column]
    assert np.isinf(halves[[column, 3]]).all()
    # Half widths without a pull on the constant feature are ten times as wide and more.
    assert (halves[others] < 2.0 * whole.half_widths()[others]).all()
    # Four standard errors: 6 in 100,000 false alarms a coefficient.
    assert (np.abs(found.values - THETA)[others] < 4.0 / 1.96 * halves[others]).all()
    words = found.needs()[f"x{column}"].words
    assert ("values that differ" in words) == (column == 2)
    assert ("`typical` values, tighter bounds or public rows" in words) == (column == 2)
    # A category has neither typical values nor bounds.
    assert ("more people of its rarer category" in words) == (column == 1)


def test_a_spread_under_two_standard_errors_is_unseen():
    """Of the variance v of a spread the standard error is 2 spread times the spread's: v below it is unseen."""
    X = features(np.random.default_rng(3))
    frame, empty = Frame.of(exact(X)), np.zeros((4, 4))

    def unseen(variance, error):
        estimated, errors = np.eye(4), np.full((4, 4), 0.01)
        estimated[2, 2], errors[2, 2] = variance, error
        return Moments(empty, empty, 1.0, True, empty, frame, 0.0, errors, estimated).unseen.tolist()

    assert unseen(0.5, 0.45) == [False, False, False]
    assert unseen(0.5, 0.55) == [False, False, True]
    assert unseen(0.15, 0.01) == [False, False, True]


@pytest.mark.parametrize("binary", [True, False])
def test_nothing_is_learned_where_all_targets_are_missing(binary):
    rng = np.random.default_rng(4)
    X = features(rng)
    found = learned(X, np.full(N, np.nan), GaussianDP(2.0), rng, binary=binary, coordinates=surveyed(X, rng))
    assert np.isinf(found.half_widths()).all()
    assert found.effects() is None or np.isinf(found.effects()[1]).all()
    assert found.missing() > 0.5
    assert "nearly all of the targets are missing" in found.note
    assert not any(need.seen for need in found.needs().values())


def test_missing_targets_are_claimed_only_where_some_are():
    rng = np.random.default_rng(5)
    X = features(rng)
    X[:, 0] = np.clip(0.1 * rng.standard_t(3, size=N), -1, 1)
    X[:, 2] = 2 * rng.beta(0.3, 1.5, size=N) - 1
    y = outcomes(rng, X, np.array([2.0, 0.3, 0.5, -0.3]))
    coordinates = surveyed(X, rng)
    assert learned(X, y, GaussianDP(2.0), rng, coordinates=coordinates).missing() == 0.0
    y[rng.random(N) < 0.6] = np.nan
    half = learned(X, y, GaussianDP(2.0), rng, coordinates=coordinates)
    assert 0.1 < half.missing() < 0.6
    assert np.isfinite(half.half_widths()).any()


def test_when_there_may_be_no_targets():
    assert may_be_none(0.1, 0.05)
    assert not may_be_none(0.2, 0.05)
    # The posterior where nothing is known: all targets present, or any share of them.
    assert not may_be_none(0.75, 0.33)


@pytest.mark.parametrize("missing", [0.0, 0.5])
def test_a_category_has_the_variance_of_its_mean_and_missing_share(missing):
    rng = np.random.default_rng(6)
    X = features(rng)
    X[:, 1] = np.where(rng.random(N) < 0.1, 1.0, -1.0)
    X[rng.random(N) < missing, 1] = 0.0
    moments = learned(X, outcomes(rng, X), GaussianDP(2.0), rng, coordinates=surveyed(X, rng)).solution.moments
    centre = moments.frame.coins[1]
    # Four standard errors: 6 in 100,000 false alarms. A category of 40% has another mean, one without missing values
    # another second moment.
    mean, square = moments.estimated[1, -1] + centre, moments.estimated[1, 1]
    error, room = 4.0 * moments.errors[1, -1], 4.0 * moments.errors[1, 1]
    truth = -0.8 * (1.0 - missing)
    assert abs(mean - truth) < error < 0.6
    around = [1.0 - share - 2.0 * centre * truth + centre**2 for share in (missing, 0.5 - missing)]
    assert abs(square - around[0]) < room < abs(square - around[1])


def test_the_prior_adapts_to_the_strength_of_effects():
    """Slopes of no effect are pulled to zero harder than strong ones; under a fixed prior both are pulled alike."""
    rng = np.random.default_rng(7)
    X, precisions = features(rng), {}
    for strength in (0.0, 1.0):
        y = outcomes(rng, X, strength * np.array([3.0, 1.0, 12.0, 0.0]))
        found = learned(X, y, GaussianDP(1.0), rng, coordinates=surveyed(X, rng)).solution
        precisions[strength] = np.trace(found._pull - found._fixed) / np.trace(found._spread)
    assert precisions[0.0] > 2.0 * precisions[1.0]


def test_log_odds_of_a_rare_outcome_give_way_to_average_effects():
    rng = np.random.default_rng(8)
    X, found = features(rng), {}
    for constant in (-4.3, -0.3):
        y = outcomes(rng, X, np.append(THETA[:3], constant))
        found[constant] = y.mean(), learned(X, y, GaussianDP(2.0), rng, coordinates=surveyed(X, rng))
    (rare, few), (_, many) = found[-4.3], found[-0.3]
    assert rare < 0.03
    assert np.isinf(few.half_widths()).all()
    assert "too rare for log odds" in few.note
    slopes, halves = few.effects()
    truth = np.linalg.lstsq(X, outcomes(np.random.default_rng(8), X, np.append(THETA[:3], -4.3)), rcond=None)[0]
    assert np.isfinite(halves[:2]).all()
    # Four standard errors: 6 in 100,000 false alarms a slope.
    assert (np.abs(slopes - truth)[:2] < 4.0 / 1.96 * halves[:2]).all()
    assert np.isfinite(many.half_widths()).any()
    assert "too rare" not in many.note


# Coefficients of a skewed amount and of an even number, and constants for rates of 4.5, 10 and 25%.
SKEWED = np.array([2.0, 0.5])
CONSTANTS = {0.045: -2.3, 0.1: -1.3, 0.25: 0.0}


def skewed(seed, rate, people, mu):
    """The estimate of an outcome of this rate by a skewed feature, and the truth."""
    rng, theta = np.random.default_rng([11, seed]), np.append(SKEWED, CONSTANTS[rate])
    amount = np.clip(np.exp(rng.normal(size=people)) / 4 - 1, -1, 1)
    X = np.c_[amount, rng.uniform(-1, 1, people), np.ones(people)]
    y = outcomes(rng, X, theta)
    assert abs(y.mean() - rate) < 0.1 * rate
    found = learned(X, y, GaussianDP(mu), rng, coordinates=surveyed(X, rng))
    return found, theta, np.linalg.lstsq(X, logistic(X @ theta), rcond=None)[0]


@pytest.mark.parametrize("rate", [0.045, 0.1])
@pytest.mark.parametrize("seed", range(3))
def test_a_rare_outcome_has_average_effects_and_no_log_odds(seed, rate):
    found, _, slopes = skewed(seed, rate, 60_000, 3.0)
    assert np.isinf(found.half_widths()).all()
    assert "too rare for log odds" in found.note
    assert "too rare for log odds" in found.effects_note
    values, halves = found.effects()
    # Four standard errors: 6 in 100,000 false alarms a slope.
    assert (np.abs(values - slopes)[:2] < 4.0 / 1.96 * halves[:2]).all()


@pytest.mark.parametrize("seed", range(3))
def test_log_odds_of_a_frequent_outcome_are_learned(seed):
    found, theta, _ = skewed(seed, 0.25, 60_000, 3.0)
    assert np.isfinite(found.half_widths()).all()
    assert "too rare" not in found.note
    assert (np.abs(found.values - theta) < 4.0 / 1.96 * found.half_widths()).all()


def test_log_odds_below_15_percent_would_be_printed_far_from_the_truth(monkeypatch):
    """The wrong twin: a limit of 6%, at which log odds are printed that more people leave a third too large."""
    assert np.isinf(skewed(0, 0.1, 300_000, 3.0)[0].half_widths()).all()
    monkeypatch.setattr(curve, "_RARE", 0.06)
    printed = [skewed(seed, 0.1, 300_000, 3.0)[0] for seed in range(3)]
    assert all(np.isfinite(found.half_widths()[0]) for found in printed)
    assert np.mean([found.values[0] for found in printed]) > 4.0 / 3.0 * SKEWED[0]


def slopes_after_a_flooded_survey(streams):
    """Errors in half widths of a narrow feature's slope whose survey forgers answered, its half widths, and others."""
    narrow, halves, others = [], [], []
    for seed in range(streams):
        rng = np.random.default_rng(200 + seed)
        X = features(rng)
        honest = surveyed(X, rng)
        centre, spread, logs = honest.centre.copy(), honest.spread.copy(), honest.log_spread_error.copy()
        # As where a quarter of the answers about it are those of one value at the upper bound.
        centre[2], spread[2], logs[2] = 0.3, 0.36, 0.15
        flooded = replace(honest, centre=centre, spread=spread, log_spread_error=logs)
        found = learned(X, outcomes(rng, X), GaussianDP(2.0), rng, coordinates=flooded)
        errors = np.abs(found.values - THETA) / found.half_widths()
        narrow.append(errors[2])
        halves.append(found.half_widths()[2])
        others.append(errors[:2])
    return np.array(narrow), np.array(halves), np.array(others)


def test_released_matrices_correct_a_survey_that_forgers_flooded(monkeypatch):
    """At 95% coverage, 3 or more of 12 intervals miss with probability 2%."""
    narrow, halves, others = slopes_after_a_flooded_survey(12)
    assert (narrow <= 1.0).sum() >= 10
    assert (others <= 1.0).mean() > 0.85
    assert (halves < THETA[2]).sum() >= 9
    # Without the correction the feature stays hidden.
    monkeypatch.setattr("murk.protocols.scores.solve.moments._corrected", lambda *given: None)
    _, halves, _ = slopes_after_a_flooded_survey(12)
    assert (halves < THETA[2]).sum() < 9
