"""Scores as River estimators: what a task's devices and learner do, in one process; one by one as in blocks."""

import copy
import json
import pickle
from functools import partial

import numpy as np
import pandas as pd
import pytest
from river import evaluate, metrics

import murk
from murk.errors import MurkError, UserError
from murk.learners import ScoreClassifier, ScoreRegressor
from murk.privacy import GaussianDP, PureDP
from murk.privacy.noise import SimulatedNoise
from murk.protocols import options
from murk.protocols.scores import in_process as local
from murk.protocols.scores.settings import FIRST
from murk.stream.wire.codec import RejectedError
from murk.stream.wire.releases import ScoreRelease
from tests.interrupts import interrupted
from tests.learners.scores.people import device_of, features, learn, outcomes, public

P, THETA = 3, np.array([0.7, -1.0, 0.6, -0.3])
NAMES = ["a", "b", "c"]


def people(n, seed=1, binary=True):
    rng = np.random.default_rng(seed)
    X = features(rng, n, P)
    y = outcomes(rng, X, THETA) > 0.5 if binary else np.clip(X @ THETA / 4 + rng.normal(size=n) / 8, -1, 1)
    return X[:, :P], y


def record(row):
    return dict(zip(NAMES, row.tolist(), strict=True))


def classifier(**more):
    return ScoreClassifier(**{"guarantee": GaussianDP(2.0), "features": NAMES, "seed": 5, **more})


def regressor(**more):
    return ScoreRegressor(**{"guarantee": GaussianDP(2.0), "features": NAMES, "seed": 5, **more})


def survey_of(model):
    return model._require().settings.survey


@pytest.mark.parametrize(("labels", "sample"), [(2, 0), (2, 500), (3, 500), (3, 0), (1, 0)])
def test_notes_tell_that_a_fit_is_weighted(labels, sample):
    """That of log odds, of lines of several classes, and of the line of a real target, here of one label."""
    X, y = people(FIRST + 500, binary=labels > 1)
    rows = X[:500] if sample else None
    model = classifier(classes=range(labels), public=rows) if labels > 1 else regressor()
    model.learn_many(X, np.arange(len(y)) % 3 if labels > 2 else y)
    assert "those of a weighted fit" in model.estimate().note


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("sample", [0, 500])
def test_it_learns_what_a_tasks_learner_does(binary, sample):
    """The same sums, models and estimate as devices and a learner of `protocol: scores` come to."""
    X, y = people(2 * FIRST + 500 + sample, binary=binary)
    rows, X, y = X[len(X) - sample :], X[: len(X) - sample], y[: len(y) - sample]
    covariates = public(np.c_[rows, np.ones(sample)]) if sample else None
    model = (classifier if binary else regressor)(public=rows if sample else None)
    facts = {"covariates": covariates, "line": not sample, "survey": survey_of(model)}
    settled = device_of(P, 2.0, binary=binary, **facts)
    engine = learn(settled, np.c_[X, np.ones(len(X))], y.astype(float), 5)
    model.learn_many(X, y)
    state = model.state_dict()["fold"]
    assert state["rounds"] == engine.state_dict()["rounds"]
    assert model.published() == engine.published()
    found, wanted = model.estimate(), engine.estimate()
    assert found.values.tolist() == wanted.values.tolist()
    assert found.half_widths(0.9).tolist() == wanted.half_widths(0.9).tolist()
    assert found.note == wanted.note
    assert model.confidence_intervals()["a"] == tuple(
        float(found.values[0] + s * found.half_widths()[0]) for s in (-1, 1)
    )


@pytest.mark.parametrize("made", [classifier, regressor])
@pytest.mark.parametrize("budget", [GaussianDP(2.0), PureDP(2.0)])
def test_many_is_one_by_one_bit_for_bit(made, budget):
    """Through a round's end and with budgets of people's own, however the rows are cut."""
    X, y = people(FIRST + 60, binary=made is classifier)
    X[5, 0], X[6, 1] = np.nan, np.inf
    budgets = [[budget, GaussianDP(1.0), PureDP(1.0)][i % 3 if i < 300 else 0] for i in range(len(X))]
    one = made(guarantee=budget)
    for row, target, own in zip(X, y, budgets, strict=True):
        one.learn_one(record(row), target, guarantee=own)
    state = json.dumps(one.state_dict())
    for cuts in ([], [1, 2, 299, 2047, FIRST - 1]):
        many = one.clone()
        for start, stop in zip([0, *cuts], [*cuts, len(X)], strict=True):
            many.learn_many(X[start:stop], y[start:stop], guarantee=budgets[start:stop])
        assert json.dumps(many.state_dict()) == state
    frame = one.clone()
    frame.learn_many(pd.DataFrame(X, columns=NAMES), pd.Series(y), guarantee=budgets)
    assert json.dumps(frame.state_dict()) == state


def test_predictions_are_a_function_of_the_stream_alone():
    """Neither of how often they were asked for, nor of a state's having been saved in between."""
    asked, silent = classifier(), classifier()
    before = survey_of(asked).end
    X, y = people(before + FIRST + 400)
    for place, (row, label) in enumerate(zip(X, y, strict=True)):
        if place % 97 == 0:
            asked.predict_one(record(row))
        asked.learn_one(record(row), label)
    silent.learn_many(X, y)
    restored = classifier()
    restored.load_state_dict(json.loads(json.dumps(silent.state_dict())))
    for other in (silent, restored, pickle.loads(pickle.dumps(silent)), copy.deepcopy(asked)):
        assert np.array_equal(other.predict_proba_many(X), asked.predict_proba_many(X))
    # They are by what was learned of the first 3,000 scores, and the estimate by all of it.
    until = classifier()
    until.learn_many(X[: before + FIRST], y[: before + FIRST])
    assert np.array_equal(until.predict_proba_many(X), asked.predict_proba_many(X))
    assert until.coefficients() != asked.coefficients() == restored.coefficients()
    probability = asked.predict_proba_one(record(X[0]))
    assert probability[True] == pytest.approx(asked.predict_proba_many(X[:1])[0, 1], rel=1e-12)
    asked.learn_many(X[:350], y[:350])
    assert not np.array_equal(until.predict_proba_many(X), asked.predict_proba_many(X))


def test_progressive_validation_solves_a_few_times(monkeypatch):
    model, solved = classifier(guarantee=GaussianDP(8.0)), []
    before = survey_of(model).end
    X, y = people(before + 1000)
    monkeypatch.setattr(local, "merged_of", lambda *given, known=local.merged_of: solved.append(1) or known(*given))
    metric = evaluate.progressive_val_score(zip(map(record, X), y.tolist(), strict=True), model, metrics.Accuracy())
    # Chance is 0.58 here, the truth's own accuracy 0.76.
    assert metric.get() > 0.65
    # Three rounds, and each of three others with a model of scores.
    counts = [*survey_of(model).starts]
    while counts[-1] < len(X):
        counts.append(model._require().settings.shown_next(counts[-1]))
    assert len(solved) == len(counts) - 1 < 45


def test_a_budget_of_ones_own_is_a_level(monkeypatch):
    monkeypatch.setattr(options, "MOST_GUARANTEES", 2)
    X, y = people(60)
    model = classifier(levels={"strict": GaussianDP(0.5)})
    budgets = [None, GaussianDP(2.0), GaussianDP(0.5), PureDP(1.0), GaussianDP(4.0)]
    for place, (row, label) in enumerate(zip(X, y, strict=True)):
        model.learn_one(record(row), label, guarantee=budgets[place % 5])
    state = json.loads(json.dumps(model.state_dict()))
    levels = {level: one["guarantee"] for level, one in state["fold"]["levels"].items()}
    assert levels == {
        "strict": {"gdp": {"mu": 0.5}}, "default": {"gdp": {"mu": 2.0}},
        "GaussianDP(mu=4.0)": {"gdp": {"mu": 4.0}}, "PureDP(epsilon=1.0)": {"pure": {"epsilon": 1.0}},
    }  # fmt: skip
    counts = dict.fromkeys(levels, 0)
    for one in state["fold"]["rounds"][0]["tallies"]:
        counts[one["level"]] += sum(one["count"])
    assert list(counts.values()) == [12, 24, 12, 12]
    # A third kind of their own is refused, and nothing is learned of it.
    for refused in (lambda: model.learn_one(record(X[0]), True, guarantee=GaussianDP(3.0)),
                    lambda: model.learn_many(X[:2], y[:2], guarantee=[GaussianDP(2.0), GaussianDP(3.0)])):  # fmt: skip
        with pytest.raises(UserError, match=r"GaussianDP\(mu=3.0\).*2 different ones.*levels="):
            refused()
    with pytest.raises(UserError, match="not a guarantee"):
        model.learn_one(record(X[0]), True, guarantee=1.0)
    assert model.n_releases == 60
    again = model.clone()
    again.load_state_dict(state)
    for one in (model, again):
        one.learn_many(X, y, guarantee=PureDP(1.0))
    assert again.state_dict() == model.state_dict()
    # Sums are of integers whose unit is their level's: other budgets would read them wrongly.
    for other in ({"guarantee": GaussianDP(1.0)}, {"levels": None}, {"mechanism": "l2-ball", "guarantee": PureDP(1.0)}):
        with pytest.raises(MurkError, match="make the learner with the guarantee, levels and mechanism of the state"):
            model.clone(other).load_state_dict(state)


@pytest.mark.parametrize("damage", [{"levels": 3}, {"levels": {"x": {}}}, {"shown": {"n_releases": 60, "rounds": []}}])
def test_a_damaged_state_is_refused(damage):
    X, y = people(60)
    model = classifier()
    model.learn_many(X, y)
    state = model.state_dict()
    state["fold"].update(damage)
    with pytest.raises(MurkError):
        model.clone().load_state_dict(state)


@pytest.mark.parametrize("seeded", [True, False])
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["deepcopy", "pickle"])
def test_copies_go_on_alike_only_where_seeded(copied, seeded):
    X, y = people(40)
    model = classifier(seed=5 if seeded else None)
    model.learn_many(X[:20], y[:20])
    twin = copied(model)
    assert twin.state_dict() == model.state_dict()
    for one in (model, twin):
        one.learn_many(X[20:], y[20:])
    assert (twin.state_dict() == model.state_dict()) is seeded


@pytest.mark.parametrize("odd", [None, float("nan"), float("inf"), "text", 10**400, [1]])
def test_odd_values_count_as_zero_and_odd_targets_as_none(odd):
    for made in (classifier, regressor):
        whole, missing = made(), made()
        for model, value in ((whole, odd), (missing, 0.0)):
            model.learn_one({"a": value, "b": 1.0}, 1.0)
            model.learn_one({"a": 1.0, "b": 1.0}, odd if model is whole else None)
            # A score, of which these are, is zero without a target.
            assert model.n_releases == 2
        assert whole.state_dict() == missing.state_dict()
        assert whole.predict_one({"a": odd, "b": 1.0}) == missing.predict_one({"a": 0.0, "b": 1.0})


def test_units_of_the_target_are_its_own():
    X, y = people(FIRST + 500, binary=False)
    coded, own = regressor(), regressor(target_bounds=(10, 50))
    coded.learn_many(X, y)
    own.learn_many(X, 30 + 20 * y)
    assert own.estimate().values[:-1] == pytest.approx(20 * coded.estimate().values[:-1])
    assert own.coefficients()["intercept"] == pytest.approx(30 + 20 * coded.coefficients()["intercept"])
    assert own.estimate().half_widths() == pytest.approx(20 * coded.estimate().half_widths())
    assert own.estimate().standard_error == pytest.approx(20 * coded.estimate().standard_error)
    assert own.predict_many(X[:9]) == pytest.approx(30 + 20 * coded.predict_many(X[:9]))
    assert regressor(target_bounds=(10, 50)).predict_one(record(X[0])) == 30


def test_public_covariates_come_as_they_may():
    X, y = people(FIRST + 400)
    rows = X[:300]
    frame = pd.DataFrame(rows[:, ::-1], columns=NAMES[::-1])
    generator = classifier(public=(record(row) for row in rows))
    made = [classifier(public=rows), classifier(public=frame), generator, generator.clone()]
    for model in made:
        model.learn_many(X, y)
    assert len({json.dumps(model.state_dict()) for model in made}) == 1
    without = classifier()
    without.learn_many(X, y)
    assert without.state_dict() != made[0].state_dict()
    with pytest.raises(MurkError, match="other settings"):
        without.clone().load_state_dict(made[0].state_dict())
    for bad, words in ((rows[:, :2], "columns"), (frame[["a", "b"]], "'c'"), (rows * [1, 1, 0], "singular")):
        with pytest.raises(UserError, match=words):
            classifier(public=bad)


def test_what_cannot_be_is_refused():
    with pytest.raises(UserError, match="give public="):
        classifier(exponent=0.5)
    with pytest.raises(UserError, match="not between 0 and 1"):
        classifier(exponent=2.0)
    with pytest.raises(UserError, match="one of them"):
        classifier(noise=SimulatedNoise(1))
    with pytest.raises(UserError, match="the lower one first"):
        regressor(target_bounds=(1, 0))
    with pytest.raises(UserError, match="2 rows, guarantee has 1"):
        classifier().learn_many(np.zeros((2, P)), [True, False], guarantee=[GaussianDP(1.0)])


def test_releases_made_elsewhere_are_learned():
    model = classifier(seed=None)
    device = device_of(P, 2.0, survey=survey_of(model))
    version, flat = model.published()
    assert version == 0
    device.check_model(np.array(flat))
    mechanism = device.mechanism("default", "above-3")
    payload = mechanism.randomize([[1.0]], SimulatedNoise(1), [0])[0].tolist()
    fields = {"id": "0" * 32, "task": "f" * 64, "level": "default", "partition": 0, "time": 0, "expires": 0}
    release = ScoreRelease(version=0, query="above", item=3, payload=payload, **fields)
    model.learn_release(release)
    assert model.n_releases == 1
    for changes, reason in (
        ({"payload": [1, 1]}, "dimension"),
        ({"query": "scatter"}, "query"),
        ({"query": "score", "item": 0}, "query"),
        ({"item": 48}, "query"),
        ({"version": FIRST}, "future"),
        ({"level": "open"}, "level"),
        ({"payload": [mechanism.magnitude + 1]}, "magnitude"),
        ({"simulated": True}, "simulated"),
    ):
        with pytest.raises(RejectedError) as refused:
            model.learn_release(release.model_copy(update=changes))
        assert refused.value.reason == reason
    assert model.n_releases == 1
    # A guarantee that a person has brought has limits, too.
    model.learn_one(record(np.zeros(P)), True, guarantee=GaussianDP(1.0))
    with pytest.raises(RejectedError) as refused:
        model.learn_release(release.model_copy(update={"level": "GaussianDP(mu=1.0)", "payload": [2**60]}))
    assert refused.value.reason == "magnitude"


def test_learners_merge_each_with_its_own_budgets():
    """As one learner whose people have a level each, but for who was at which model."""
    X, y = people(12_000)
    parts = [classifier(guarantee=budget, seed=seed) for seed, budget in enumerate([GaussianDP(4.0), GaussianDP(8.0)])]
    for part, model in enumerate(parts):
        model.learn_many(X[part::2], y[part::2])
    found = parts[0].merged(parts[1:])
    assert (found.n_releases, found.partitions) == (12_000, 2)
    assert found.standard_error < min(part.estimate().standard_error for part in parts)
    # Four intervals of 99.99%: one misses the truth once in 2,500 times. Of sums that are read by another's unit, which
    # is twice as large, the estimate would be far from it.
    assert np.all(np.abs(found.values - THETA) <= found.half_widths(0.9999))
    with pytest.raises(UserError, match="same features and settings"):
        parts[0].merged([classifier(public=X[:300])])


def test_what_privacy_hides_is_not_learned():
    X, y = people(500)
    model = classifier(guarantee=GaussianDP(0.1))
    assert model.n_releases == 0
    assert set(model.coefficients().values()) == {0.0}
    model.learn_many(X, y)
    assert set(model.confidence_intervals().values()) == {(-np.inf, np.inf)}


@pytest.mark.parametrize("learned", [FIRST - 1, 40])
def test_an_interrupt_anywhere_learns_all_of_a_record_or_nothing(learned):
    """Also where a round ends, and its next model is solved for. Of the record nothing is left."""
    secrets = [0.314159265, -0.718281828, 0.577215664]
    X, y = people(learned)
    first = classifier()
    first.learn_many(X, y)
    place, whole = murk.__file__.rsplit("/", 1)[0], copy.deepcopy(first)
    whole.learn_one(record(np.array(secrets)), True)
    states = [json.dumps(model.state_dict()) for model in (first, whole)]
    at, stops = 0, 0
    while True:
        model = copy.deepcopy(first)
        seen = interrupted(partial(model.learn_one, record(np.array(secrets)), True), at + 1, place)
        stops += seen > at
        assert json.dumps(model.state_dict()) in states
        data = pickle.dumps(model)
        assert not any(np.float64(secret).tobytes() in data for secret in secrets)
        if seen <= at:
            break
        # Every instruction would take minutes, those of solving above all.
        at += 1 + at % 23 if at < 3000 else at // 4
    assert stops > 20
    assert json.dumps(model.state_dict()) == states[1]
