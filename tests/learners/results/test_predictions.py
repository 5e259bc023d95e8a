"""What a result predicts, and what a report says of intervals that are absent or disagree."""

import math

import numpy as np
import pytest

from murk.errors import UserError
from murk.learners.results.numbers import span
from murk.learners.results.result import predict
from murk.learners.results.text import describe_disagreement
from murk.stream import Task

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
