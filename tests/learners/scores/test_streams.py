"""What is said of streams whose people come in some order, and of forged answers among those of people in any order."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from murk.inference.misfit import excess
from murk.learners import ScoreClassifier, ScoreRegressor
from murk.privacy import GaussianDP
from murk.protocols.scores import feature_change as changes
from murk.protocols.scores.feature_change import UNLIKELY, feature_change, impossible
from murk.results.diagnosis import describe_forgers
from tests.learners.test_forgers import forged_partition

PEOPLE = 40_000


def people():
    """Two features, an outcome that depends on them, and on a region that is no feature."""
    rng = np.random.default_rng(1)
    region = rng.integers(0, 4, PEOPLE)
    X = np.column_stack([np.where(rng.random(PEOPLE) < 0.5, 1.0, -1.0), rng.uniform(-1, 1, PEOPLE)])
    logit = 0.3 * X[:, 0] + X[:, 1] * (0.3 + 0.5 * region) - 1.5 + 0.8 * region
    return X, rng.random(PEOPLE) < 1 / (1 + np.exp(-logit)), region


ORDERS = {
    "random": lambda X, y, region: np.arange(PEOPLE),
    "outcome": lambda X, y, region: np.argsort(y, kind="stable"),
    "feature": lambda X, y, region: np.argsort(X[:, 1], kind="stable"),
    "category": lambda X, y, region: np.argsort(X[:, 0], kind="stable"),
    "region": lambda X, y, region: np.argsort(region, kind="stable"),
}


def estimate_of(order, mu, seed=2):
    X, y, region = people()
    at = ORDERS[order](X, y, region)
    model = ScoreClassifier(guarantee=GaussianDP(mu), features=["sex", "age"], seed=seed)
    model.learn_many(X[at], y[at])
    return model.estimate()


@pytest.mark.parametrize("mu", [1.0, 2.0])
@pytest.mark.parametrize("order", ORDERS)
def test_honest_people_in_any_order_are_no_sign_of_forgery(order, mu):
    """Each mean answer is one that people can give: a false alarm has a probability below 30 e^-20 a stream."""
    estimate = estimate_of(order, mu)
    assert estimate.doubts() == []
    words = describe_forgers(estimate, 0.95)["words"]
    assert "Signs of forged releases" not in words


@pytest.mark.parametrize(
    ("order", "mu", "feature"), [("feature", 2.0, "age"), ("category", 1.0, "sex"), ("category", 2.0, "sex")]
)
def test_changed_features_are_named_before_anything_else(order, mu, feature):
    change = estimate_of(order, mu).stream_change()
    assert change is not None
    assert change.features_changed
    assert change.features[:1] == (feature,)
    words = change.words
    assert words.startswith(f"People's features changed over the stream, above all {feature}")
    assert "forged" not in words
    for remedy in ("random order", "a feature that explains the change", "`forget`"):
        assert remedy in words


def test_nothing_is_stated_where_later_answers_contradict_the_survey():
    """The first people have nearly one age, so that its surveyed spread is that of few, and the later ones' changes."""
    for seed in (2, 4, 5, 8):
        assert np.isinf(estimate_of("feature", 2.0, seed).half_widths()).all()
    # The twin: the same people in a random order.
    assert np.isfinite(estimate_of("random", 2.0).half_widths()).all()


def test_a_change_that_features_do_not_show_is_said_to_be_one():
    change = estimate_of("outcome", 2.0).stream_change()
    assert change is not None
    assert change.widened > 1.2
    assert not change.features_changed
    words = change.words
    assert words.index("disagree by more than chance") < words.index("No change of people's features")
    assert words.index("changed in ways that the features do not show") < words.index("forged")


def test_people_in_a_random_order_are_told_nothing():
    """One false alarm in a million streams for features, and 2e-9 for answers."""
    for mu in (1.0, 2.0):
        assert estimate_of("random", mu).stream_change() is None


def test_real_targets_too():
    X, _, _ = people()
    y = np.clip(0.3 * X[:, 1] + np.random.default_rng(2).normal(0, 0.2, PEOPLE), -1, 1)
    for at, changed in ((np.arange(PEOPLE), False), (np.argsort(X[:, 1], kind="stable"), True)):
        model = ScoreRegressor(guarantee=GaussianDP(2.0), features=["sex", "age"], target_bounds=(-1, 1), seed=2)
        model.learn_many(X[at], y[at])
        change = model.estimate().stream_change()
        assert (change is not None and change.features_changed) == changed
        assert model.estimate().doubts() == []


@pytest.mark.parametrize("freedom", [6, 18, 60, 400])
def test_one_honest_stream_in_a_million_is_said_to_have_changed(freedom):
    """The cube root is nearly normal: within a factor of three of the probability that is stated."""
    low, high = 0.0, 50.0 * freedom
    for _ in range(100):
        middle = (low + high) / 2.0
        low, high = (middle, high) if excess(middle, freedom) < UNLIKELY else (low, middle)
    assert 1e-6 / 3 < stats.chi2.sf(low, freedom) < 3e-6


def test_noise_that_is_understated_would_be_taken_for_a_change(monkeypatch):
    """The wrong twin: with a 30th of the noise people in a random order seem to change."""
    estimate = estimate_of("random", 1.0)
    found, settings, rows = estimate.outlook.found, estimate.outlook.settings, estimate.solution.rows
    assert feature_change(found, settings.response, rows) is None
    monkeypatch.setattr(changes, "own_variance", lambda answer, p: answer.noise / 30.0)
    monkeypatch.setattr(changes, "_TOLERATED", 0.0)
    assert feature_change(found, settings.response, rows) is not None


def test_features_far_from_normal_do_not_seem_to_change():
    """Amounts and a rare category: only weights differ, by less than is tolerated, however little noise there is."""
    rng = np.random.default_rng(3)
    amount = np.minimum(rng.lognormal(0, 1, PEOPLE), 20) / 10 - 1
    X = np.column_stack([amount, np.where(rng.random(PEOPLE) < 0.03, 1.0, -1.0)])
    y = rng.random(PEOPLE) < 1 / (1 + np.exp(-(2 * X[:, 0] + 1)))
    model = ScoreClassifier(guarantee=GaussianDP(8.0), features=["amount", "rare"], seed=2)
    model.learn_many(X, y)
    change = model.estimate().stream_change()
    assert change is None or not change.features_changed


# Forgers


@pytest.fixture(scope="module")
def learned():
    X, y, _ = people()
    model = ScoreClassifier(guarantee=GaussianDP(2.0), features=["sex", "age"], seed=2)
    model.learn_many(X[:9_000], y[:9_000])
    return model


@pytest.mark.parametrize("query", ["score", "curvature", "scatter"])
def test_answers_that_no_people_give_are_reported_as_forged(learned, query):
    engine = learned._require()
    mechanism = engine.mechanisms["default"].mechanism(query)
    way = -np.ones(mechanism.dimension) / math.sqrt(mechanism.dimension)
    payload = way * float(mechanism.magnitude) * 0.999 / mechanism.unit
    place = max(at for at, each in enumerate(engine.now.rounds) if ("default", query) in each.tallies)
    answers = engine.now.rounds[place].tallies["default", query].count
    honest, _ = forged_partition(learned, place, query, 0, payload * 0)
    assert honest.doubts() == []
    found, _ = forged_partition(learned, place, query, answers // 2, payload)
    assert impossible(found.outlook.found) == (query,)
    [sign] = [words for words in found.doubts() if "no people's records give" in words]
    assert repr(query) in sign
    assert "Signs of forged releases: " in describe_forgers(found, 0.95)["words"]


def test_people_who_are_all_alike_are_no_forgers():
    """The furthest that honest people can go: one record, one outcome, a mean score of length 1."""
    X, y = np.ones((9_000, 2)), np.ones(9_000, dtype=bool)
    model = ScoreClassifier(guarantee=GaussianDP(4.0), classes=(False, True), features=["sex", "age"], seed=2)
    model.learn_many(X, y)
    estimate = model.estimate()
    assert max(float(np.linalg.norm(each.score.mean)) for each in estimate.outlook.found) > 0.9
    assert estimate.doubts() == []
    # The wrong twin: a bound a tenth lower takes them for forgers.
    lower = [replace(each, score=replace(each.score, mean=1.2 * each.score.mean)) for each in estimate.outlook.found]
    assert "score" in impossible(lower)
