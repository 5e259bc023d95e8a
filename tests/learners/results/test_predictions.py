"""What a result predicts, with intervals, and what a report says of intervals that are absent or disagree."""

import math
import pickle
from types import SimpleNamespace

import numpy as np
import pytest

import murk
from murk import Task
from murk._internal.numbers import span
from murk.errors import UserError
from murk.inference.estimate import RANDOM_SCALING, Estimate
from murk.results.predictions import _describe_set, describe_prediction, predict, predicted_intervals
from murk.results.result import Result
from murk.results.text import describe_disagreement

TEXT = """
name: t
features: [{{name: age, low: 20, high: 40}}, {{name: sex, categories: [f, m]}}]
target: {{name: y, {target}}}
{more}
privacy: {{guarantee: {{gdp: {{mu: 1.0}}}}}}
"""
RECORDS = [{"age": 35, "sex": "m"}, {"age": "", "sex": "f"}]
CODED = np.array([[0.5, 1.0, 1.0], [0.0, -1.0, 1.0]])
THETA = {"age": 0.4, "sex": 0.2, "intercept": -0.1}
LINE = CODED @ np.array(list(THETA.values()))


def task(target, more=""):
    return Task.parse(TEXT.format(target=target, more=more))


def test_predictions_are_in_the_targets_own_terms():
    binary = task("kind: binary, positive: 'yes'")
    wanted = 1 / (1 + np.exp(-LINE))
    assert predict(binary, THETA, RECORDS) == pytest.approx(wanted)
    # A mapping of columns, and one record.
    columns = {name: [row[name] for row in RECORDS] for name in ("age", "sex")}
    assert predict(binary, THETA, columns) == pytest.approx(wanted)
    assert predict(binary, THETA, RECORDS[0]) == pytest.approx(wanted[:1])
    line = task("kind: binary, positive: 'yes'", "protocol: examples\nexamples: {loss: quadratic}")
    assert predict(line, THETA, RECORDS) == pytest.approx((1 + LINE) / 2)
    real = task("kind: real, low: 0, high: 52")
    assert predict(real, THETA, RECORDS) == pytest.approx(26 + 26 * LINE)
    assert predict(real, {**THETA, "intercept": 5.0}, RECORDS).tolist() == [52.0, 52.0]


def test_predictions_of_classes_are_a_share_each():
    classes = task("kind: classes, classes: [a, b, c]", "protocol: gradients")
    theta = {f"{label}:{name}": k * value for k, label in enumerate("abc") for name, value in THETA.items()}
    odds = np.exp(np.outer(LINE, [0, 1, 2]))
    assert predict(classes, theta, RECORDS) == pytest.approx(odds / odds.sum(axis=1, keepdims=True))
    own = task("kind: real, low: 0, high: 1", "protocol: moments\nmoments: {link: cubic}")
    with pytest.raises(UserError, match="predict no probability"):
        predict(own, THETA, RECORDS)


BINARY, REAL = "kind: binary, positive: 'yes'", "kind: real, low: 0, high: 52"
CLASSES = "kind: classes, classes: [a, b, c]"
KINDS = {
    "log odds": (BINARY, ""),
    "line": (BINARY, "protocol: examples\nexamples: {loss: quadratic}"),
    "mean": (REAL, ""),
    "classes": (CLASSES, "protocol: gradients"),
    "lines of classes": (CLASSES, ""),
}


def estimated(kind, theta, covariance):
    names = THETA if "classes" not in kind else [f"{label}:{name}" for label in "abc" for name in THETA]
    spread = np.sqrt(np.diag(covariance))
    return Estimate(tuple(names), theta, "normal", spread, "", 1, 1_000, covariance)


@pytest.mark.parametrize("kind", KINDS)
def test_intervals_of_predictions_cover(kind):
    """Predictions of 1,500 normal estimates; each false alarm has probability 1e-6 (4.9 standard errors, 0.0276).

    The delta method's own error is far below that at this covariance. The twin with half the standard errors covers
    67%.
    """
    rng, own = np.random.default_rng(5), task(*KINDS[kind])
    size = 9 if "classes" in kind else 3
    truth, root = rng.normal(0, 0.3, size), rng.normal(0, 0.02, (size, size))
    covariance = root @ root.T
    names = estimated(kind, truth, covariance).names
    wanted = predict(own, dict(zip(names, truth, strict=True)), RECORDS)
    for factor, covers in ((1.0, 0.95), (0.25, 0.673)):
        held = []
        for theta in rng.multivariate_normal(truth, covariance, 1_500):
            found = predicted_intervals(own, estimated(kind, theta, factor * covariance), RECORDS)
            held.append((found[..., 0] <= wanted) & (wanted <= found[..., 1]))
        shares = np.mean(held, axis=0)
        assert shares.shape == wanted.shape
        assert np.all(np.abs(shares - covers) < 4.9 * math.sqrt(covers * (1 - covers) / 1_500) + 0.005)


def test_an_interval_of_a_prediction_is_the_whole_range_where_nothing_was_learned():
    values, covariance = np.array(list(THETA.values())), np.diag([0.01, 0.01, 0.01])
    unknown = Estimate(tuple(THETA), values, "x", np.array([np.inf, 0.1, 0.1]), "", 1, 1_000, covariance)
    # The second person's age is missing, so coded 0: its coefficient does not matter.
    whole, known = predicted_intervals(task(REAL), unknown, RECORDS).tolist()
    assert whole == [0.0, 52.0]
    assert known == pytest.approx([26 + 26 * (LINE[1] + sign * 1.96 * math.sqrt(0.02)) for sign in (-1, 1)], abs=1e-3)
    assert predicted_intervals(task(BINARY), unknown, RECORDS)[0] == pytest.approx([0.0, 1.0], abs=1e-300)
    apart = Estimate(tuple(THETA), values, "x", np.full(3, 0.1), "", 1, 1_000)
    low, high = predicted_intervals(task(REAL), apart, RECORDS[0])[0]
    # Without a covariance, by Bonferroni: 2.394 standard errors of each of three coefficients.
    assert high - low == pytest.approx(2 * 26 * 2.394 * 0.1 * 2.5, rel=1e-3)
    with pytest.raises(UserError, match="estimates no covariance"):
        predicted_intervals(
            task(REAL), Estimate(tuple(THETA), values, RANDOM_SCALING, np.ones(3), "", 1, 5_000), RECORDS
        )


def test_a_result_predicts_with_intervals_and_so_does_its_copy():
    """Scores of 8,000 people at mu = 8; the noise is of a fixed seed."""
    rng = np.random.default_rng(1)
    people = [{"age": age, "sex": "fm"[age % 2], "y": "yes" if rng.random() < (age - 15) / 30 else "no"}
              for age in rng.integers(20, 41, 8_000).tolist()]  # fmt: skip
    result = murk.run(Task.parse(TEXT.format(target=BINARY, more="").replace("1.0", "8.0")), people, seed=1)
    found = result.predict_intervals(RECORDS)
    assert np.all((found[:, 0] < result.predict(RECORDS)) & (result.predict(RECORDS) < found[:, 1]))
    assert found[0, 0] < 20 / 30 < found[0, 1]
    assert found[0, 1] - found[0, 0] < 0.5
    assert pickle.loads(pickle.dumps(result)).predict_intervals(RECORDS).tolist() == found.tolist()
    with pytest.raises(UserError, match="no task or no estimate"):
        Result(result.report).predict_intervals(RECORDS)


def test_a_prediction_for_a_typing_error_is_refused():
    found = estimated("mean", np.array(list(THETA.values())), np.eye(3))
    shown = describe_prediction(task(REAL), found, {"age": "35", "sex": "m"}, 0.95)
    assert shown["of"]["mean"]["value"] == pytest.approx(26 + 26 * LINE[0])
    assert describe_prediction(task(REAL), found, {"age": "", "sex": "f"}, 0.95)["of"]["mean"]["value"] == (
        pytest.approx(26 + 26 * LINE[1])
    )
    for record, words in (
        ({"age": "35"}, "'sex' is not given"),
        ({"age": "35", "sex": "m", "y": "3"}, "'y' is not a feature"),
        ({"age": "35", "sex": "w"}, "does not declare"),
        ({"age": "53", "sex": "m"}, "beyond its bounds"),
    ):
        with pytest.raises(UserError, match=words):
            describe_prediction(task(REAL), found, record, 0.95)


def test_an_absent_interval_is_called_so():
    assert span(-math.inf, math.inf) == "no interval"
    assert span(0.5, math.inf) == "0.500 .. -"


def test_odds_and_points_that_disagree_are_explained():
    def told(odds, points):
        found = {
            "average_effects": {"age": {"interval": points}},
            "per_unit": {"age": {"interval": odds}},
            "not_learned": [],
        }
        return list(describe_disagreement(found))

    assert told([0.1, 0.2], [0.01, 0.02]) == told([-0.1, 0.2], [-0.01, 0.02]) == []
    assert "Odds ratio and points of age disagree" in told([0.1, 0.2], [-0.01, 0.02])[0]
    assert "Points of age are not learned although the odds ratio is" in told([0.1, 0.2], [-math.inf, math.inf])[0]


@pytest.mark.parametrize(
    ("target", "members", "words"),
    [
        ('{name: y, kind: binary, positive: "yes", negative: "no"}', [True, True], "is no or yes, by"),
        ('{name: y, kind: binary, positive: "yes"}', [True, False], "is not yes, by"),
        ("{name: y, kind: classes, classes: [a, b, c]}", [True, False, True], "is a or c, by"),
        ("{name: y, kind: classes, classes: [a, b, c]}", [False] * 3, "is none of the labels, as none is likely"),
    ],
)
def test_a_set_names_its_labels(target, members, words):
    task = Task.parse(
        f"name: t\nfeatures: [{{name: a, low: 0, high: 1}}]\ntarget: {target}\n"
        "privacy: {guarantee: {gdp: {mu: 1.0}}}\n"
    )
    found = _describe_set(task, SimpleNamespace(coverage=0.9), members)
    assert words in found["set_words"]
    assert len(found["set"]) == sum(members)
