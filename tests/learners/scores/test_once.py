"""Scores without rounds: what a task becomes, what devices release, what is learned of them and what is noticed."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import murk
from murk import Task
from murk.errors import MurkError, UserError
from murk.privacy.noise import SimulatedNoise
from murk.producers.producer import randomize_records
from murk.protocols.device import device_for
from murk.stream.wire.codec import RejectedError
from murk.stream.wire.releases import ScoreRelease
from tests.learners.scores.people import features, learn, learn_sums, outcomes

TASK = """
name: t
features: [{name: a, low: 0, high: 10}, {name: b, categories: [x, y, z]}]
target: {name: y, kind: binary, positive: "1"}
protocol: scores
scores: {interactive: false}
public: {set_aside: 500}
privacy: {guarantee: {gdp: {mu: 2.0}}}
"""
REAL = TASK.replace('kind: binary, positive: "1"', "kind: real, low: 0, high: 52")
THETA = np.array([0.6, -0.5, 0.4, -0.3])
# A false alarm in 10,000 for each of what follows.
ALARM = 1e-4


def many(numbers):
    names = ", ".join(f"{{name: x{number}, low: 0, high: 1}}" for number in range(numbers))
    return TASK.replace("[{name: a, low: 0, high: 10}, {name: b, categories: [x, y, z]}]", f"[{names}]")


def device_of(text=TASK, rows=None, m=4000):
    task = Task.parse(text)
    rows = features(np.random.default_rng(1), m, task.coding.size - 1) if rows is None else rows
    points, counts = np.unique(rows, axis=0, return_counts=True)
    return device_for(task.with_public(points, counts))


def distance(estimate, truth):
    """The squared distance to the truth in standard errors, by the estimate's own covariance."""
    off = estimate.values - truth
    return float(off @ np.linalg.solve(estimate.covariance, off))


def far(degrees):
    return float(stats.chi2.isf(ALARM, degrees))


def test_a_task_becomes_a_device():
    task = Task.parse(TASK)
    assert (task.scores.interactive, task.scores.loss, task.release_kind) == (False, "logistic", "score")
    device = device_of()
    assert (device.kind, device.interactive, device.dimension) == ("score", False, 4)
    assert (device.lengths, device.queries) == ((4, 10), ("score", "curvature"))
    device.check_state()
    engine = device.engine()
    assert (engine.published(), engine.figures(), engine.n_releases) == (None, {}, 0)
    assert engine.publish_every > 10**9


def test_of_a_hundred_features_a_release_has_a_hundred_numbers():
    device = device_of(many(100), m=500)
    assert (device.lengths, device.queries) == ((101,), ("score",))
    device.check_state()
    X = features(np.random.default_rng(2), 5, 100)
    asked = device.draw_query(SimulatedNoise(1), np.arange(5), np.empty(0))
    assert asked == ["score"] * 5
    assert np.linalg.norm(device.vectors(X, np.ones(5)), axis=1).max() <= 1.0 + 1e-12
    with pytest.raises(RejectedError, match="asks nobody"):
        device.engine().admit(release(query="curvature", payload=[0] * 5151))
    # Before anything is public, as an audit takes it.
    assert np.any(device_for(Task.parse(many(100))).vectors(X, np.ones(5)))
    with pytest.raises(UserError, match="fewer features"):
        device_for(Task.parse(many(1200))).check_state()


def test_what_a_log_says_of_models_is_not_read():
    device, noise, at = device_of(), SimulatedNoise(3), np.arange(200)
    X = features(np.random.default_rng(3), 200, 3)
    y = outcomes(np.random.default_rng(4), X, THETA)
    hostile = np.full(device.model_size, 1e9)
    found = [
        randomize_records(device, X, y, [0] * 200, {0: model}, ["default"] * 200, noise, at)
        for model in (np.empty(0), hostile)
    ]
    assert found[0] == found[1]
    assert set(found[0][1]) == {"score", "curvature"}


def test_a_missing_target_answers_and_says_nothing():
    device = device_of()
    X, nothing = features(np.random.default_rng(3), 4, 3), np.full(4, np.nan)
    for query in device.queries:
        assert not np.any(device.vectors(X, nothing, None, query))


def release(**more):
    honest = {"id": "0" * 32, "task": "f" * 64, "level": "default", "partition": 0, "time": 0, "expires": 1}
    return ScoreRelease(**{**honest, "version": 0, "query": "score", "payload": [0] * 4, **more})


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"version": 3000}, "version"),
        ({"version": 10**9}, "future"),
        ({"payload": [0] * 10}, "dimension"),
        ({"payload": [2**40] * 4}, "magnitude"),
    ],
)
def test_what_cannot_be_learned_is_refused_with_its_reason(more, reason):
    device = device_of()
    engine = learn_sums(device, features(np.random.default_rng(1), 4000, 3), np.ones(4000), 1)
    engine.admit(release())
    with pytest.raises(RejectedError) as found:
        engine.admit(release(**more))
    assert found.value.reason == reason


def test_the_truth_is_within_the_estimates_own_error_and_another_is_not():
    device, rng = device_of(), np.random.default_rng(5)
    X = features(rng, 60_000, 3)
    found = learn(device, X, outcomes(rng, X, THETA), 5).estimate()
    assert distance(found, THETA) < far(4)
    assert distance(found, THETA * [-1, 1, 1, 1]) > far(4)
    assert np.all(np.isfinite(found.half_widths()))
    assert (found.alike, "pass the check" in found.note) == (True, True)


def test_a_real_target_is_fitted_by_a_line():
    device, rng = device_of(REAL), np.random.default_rng(6)
    X, theta = features(rng, 60_000, 3), THETA / 3
    found = learn_sums(device, X, X @ theta + rng.uniform(-0.3, 0.3, len(X)), 6).estimate()
    assert distance(found, theta) < far(4)
    assert distance(found, theta * [-1, 1, 1, 1]) > far(4)


def test_missing_targets_do_not_bias():
    device, rng = device_of(), np.random.default_rng(7)
    X = features(rng, 400_000, 3)
    y = outcomes(rng, X, THETA)
    y[rng.random(len(y)) < 0.4] = np.nan
    found = learn_sums(device, X, y, 7).estimate()
    assert distance(found, THETA) < far(4)
    # What shrunk by the share of them would be told apart.
    assert distance(found, 0.6 * THETA) > far(4)
    assert "targets are missing" in found.note


def test_public_rows_unlike_the_people_are_noticed():
    rng = np.random.default_rng(8)
    rows = features(rng, 4000, 3)
    rows[:, 1:3] = rng.permutation(rows[:, 1:3] * [0.3, -1.0])
    X = features(rng, 400_000, 3)
    y = outcomes(rng, X, THETA)
    found = learn_sums(device_of(rows=rows), X, y, 8).estimate()
    assert (found.alike, "are not used" in found.note) == (False, True)
    held = np.abs(found.values - THETA) <= found.half_widths()
    assert held.all()
    assert learn_sums(device_of(), X, y, 8).estimate().alike


def test_of_many_features_it_is_said_that_nothing_is_checked():
    device, rng = device_of(many(34), m=3000), np.random.default_rng(9)
    X = features(rng, 100_000, 34)
    theta = rng.normal(size=35) / 6
    found = learn_sums(device, X, outcomes(rng, X, theta), 9).estimate()
    assert (found.alike, "nobody was asked" in found.note) == (None, True)
    assert distance(found, theta) < far(35)
    assert distance(found, -theta) > far(35)
    assert np.all(np.isfinite(found.half_widths()))


def test_partitions_add_and_a_state_goes_on_where_it_stood():
    device, rng = device_of(), np.random.default_rng(10)
    X = features(rng, 9_000, 3)
    y = outcomes(rng, X, THETA)
    whole = learn(device, X, y, 1)
    again = device.engine()
    again.load_state_dict(json.loads(json.dumps(whole.state_dict())))
    assert again.state_dict() == whole.state_dict()
    assert np.array_equal(again.estimate().values, whole.estimate().values)
    parts = [learn(device, X[:4000], y[:4000], 2), learn(device, X[4000:], y[4000:], 3)]
    together = device.engine()
    for part in parts:
        for (level, query), tally in part.now.rounds[0].tallies.items():
            together.learn_sums({(level, query): tally})
    found = device.estimate(parts)
    assert (found.n_releases, found.partitions) == (9_000, 2)
    # Of partitions mean answers are averaged by their noise, not by numbers of people: nearly the same.
    assert found.values == pytest.approx(together.estimate().values, abs=0.02)
    scores = device_for(Task.parse(TASK.replace("scores: {interactive: false}\n", ""))).engine()
    with pytest.raises(MurkError, match="other settings"):
        scores.load_state_dict(whole.state_dict())


@pytest.mark.parametrize(
    ("model", "text"), [("loss: poisson", TASK), ("loss: boosting", TASK), ("link: sigmoid", REAL)]
)
def test_any_mean_function_is_solved_for_from_the_same_releases(model, text):
    """Devices release the same, and a learner of one model goes on with what another learned."""
    one, other = (
        device_of(text.replace("false}", f"false, {each}}}"))
        for each in (model, "loss: logistic" if text is TASK else "link: identity")
    )
    rng = np.random.default_rng(3)
    X = features(rng, 5_000, 3)
    y = outcomes(rng, X, THETA) if text is TASK else 0.5 * X[:, 0] + rng.uniform(-0.3, 0.3, len(X))
    assert np.array_equal(one.vectors(X, y), other.vectors(X, y))
    known, mine = learn_sums(other, X, y, 1), one.engine()
    mine.load_state_dict(known.state_dict())
    assert mine.n_releases == 5_000
    found, before = mine.estimate(), known.estimate()
    assert np.all(np.isfinite(found.values))
    assert np.max(np.abs(found.values - before.values)) > 0.01


def test_without_public_covariates_it_is_refused_with_the_choices():
    with pytest.raises(UserError, match=r"scores.interactive: false needs public covariates") as found:
        Task.parse(TASK.replace("public: {set_aside: 500}\n", ""))
    for choice in ("public: {file: F}", "public: {set_aside: N}", "leave interactive out"):
        assert choice in str(found.value)


@pytest.mark.parametrize(
    ("text", "keys", "more", "message"),
    [
        (TASK, ", exponent: 0.5", "", "scores.exponent: 0.5 has no effect with interactive: false"),
        (TASK, ", models: shared", "", "scores.models: 'shared' has no effect with interactive: false"),
        (TASK, ", effects: linear", "", "scores.effects: 'linear' has no effect with interactive: false"),
        (TASK, ", link: exp", "", "scores.link: has no effect on a binary target"),
        (REAL, ", loss: poisson", "", "scores.loss: has no effect on a real target"),
        (REAL, ", link: cubic", "", "scores.link"),
        (TASK, "", "forget: 24000\n", "forget: 24,000 has no effect with scores: {interactive: false}"),
        (TASK, "", "predictions: {}\n", "predictions: has no effect with scores: {interactive: false}"),
    ],
)
def test_what_answers_without_rounds_do_not_use_is_refused(text, keys, more, message):
    with pytest.raises(UserError, match=re.escape(message)):
        Task.parse(text.replace("false}", f"false{keys}}}") + more)


@pytest.mark.parametrize(("text", "key"), [(TASK, "loss: logistic"), (REAL, "link: identity")])
def test_rounds_have_no_other_loss_or_link(text, key):
    with pytest.raises(UserError, match="has no effect on scores in rounds; say interactive: false"):
        Task.parse(text.replace("interactive: false", key))


def test_partitions_and_classes_have_their_own_defaults():
    several = Task.parse(TASK + "log: {partitions: 4}\n").scores
    assert (several.models, several.effects) == ("per-partition", "logistic")
    classes = "kind: classes, classes: [u, v, w]"
    public = Task.parse(TASK.replace('kind: binary, positive: "1"', classes))
    alone = Task.parse(public_less(TASK.replace('kind: binary, positive: "1"', classes)))
    assert [each.scores.effects for each in (public, alone)] == ["logistic", "linear"]
    assert [device_for(each).interactive for each in (public, alone)] == [False, False]


def public_less(text):
    return text.replace("public: {set_aside: 500}\n", "")


CLASSES = """
name: classes
features: [{name: a, low: -1, high: 1}, {name: b, low: -1, high: 1}]
target: {name: y, kind: classes, classes: [u, v, w]}
scores: {interactive: false}
privacy: {guarantee: {gdp: {mu: 40.0}}}
"""


@pytest.mark.filterwarnings("ignore")
def test_classes_are_learned_from_one_release_each(tmp_path):
    rng = np.random.default_rng(2)
    X = rng.uniform(-1.0, 1.0, (4_000, 2)).round(3)
    logits = np.column_stack([1.5 * X[:, 0], 1.5 * X[:, 1], np.zeros(4_000)])
    labels = np.array(["u", "v", "w"])[np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)]
    pd.DataFrame(X, columns=["a", "b"]).assign(y=labels).to_csv(tmp_path / "people.csv", index=False)
    result = murk.run(Task.parse(CLASSES), tmp_path / "people.csv", seed=1)
    whole = np.column_stack([X, np.ones(4_000)])
    lines = {label: 2.0 * np.linalg.lstsq(whole, (labels == label).astype(float), rcond=None)[0][:2] for label in "uvw"}
    found = {label: [result.coefficients[f"{label}:{name}"] for name in "ab"] for label in "uvw"}

    def fits(expected: dict[str, np.ndarray]) -> bool:
        # Half-widths hold at every look, and are over 2 standard errors: 6 false alarms have probability below 4e-4.
        return all(
            abs(each.value - slope) < 2.0 * (each.interval[1] - each.value)
            for label in "uvw"
            for each, slope in zip(found[label], expected[label], strict=True)
        )

    assert fits(lines)
    assert not fits({"u": lines["v"], "v": lines["u"], "w": lines["w"]})
    assert result.predict([{"a": 1.0, "b": -1.0}])[0].argmax() == 0


def test_classes_of_many_features_are_refused():
    many = ", ".join(f"{{name: x{place}, low: 0, high: 1}}" for place in range(40))
    text = CLASSES.replace("{name: a, low: -1, high: 1}, {name: b, low: -1, high: 1}", many)
    with pytest.raises(UserError, match="has 41 coded ones"):
        device_for(Task.parse(text))
