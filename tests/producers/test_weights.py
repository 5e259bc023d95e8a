"""People who count as their rows, up to a public most."""

import datetime
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import murk
from benchmarks.people import learned
from murk import Task
from murk.errors import UserError
from murk.inference.confidence_sequences import looks_of
from murk.inference.contrasts import contrasts
from murk.privacy.mechanisms.base import means_of
from murk.privacy.noise import SimulatedNoise
from murk.producers.producer import ReleaseCall, randomize_rows, weighed
from murk.protocols.device import SingleQueryDevice, person_device_for
from tests.producers.world import NOW, TEXT, World, make_task

MEAN = "features: []\ntarget: {name: y, kind: real, low: 0, high: 1}"
SHARE = 'features: []\ntarget: {name: y, kind: binary, positive: "1"}'
LINE = "features: [{name: a, low: -1, high: 1}]\ntarget: {name: y, kind: real, low: 0, high: 1}\nprotocol: moments"


def task_of(text: str, *, weight: str = "{rows: 10}", guarantee: str = "{gdp: {mu: 20}}", more: str = "") -> Task:
    return Task.parse(f"name: visits\n{text}\nweight: {weight}\nprivacy: {{guarantee: {guarantee}{more}}}\n")


def records(kind: str) -> tuple[list[dict[str, Any]], float, float]:
    """Half of 1,000 people have one row, half eleven with larger targets; the means of people and of rows, up to 10."""
    rng, rows = np.random.default_rng(5), []
    for person in range(1_000):
        often = person % 2
        for _ in range(11 if often else 1):
            y = 0.7 if often else 0.3
            value = str(int(rng.random() < y)) if kind == "binary" else y
            rows.append({"person": f"p{person}", "a": float(rng.uniform(-1, 1)), "y": value})
    return rows, 0.5, (0.3 + 10 * 0.7) / 11


@pytest.mark.parametrize(
    ("text", "guarantee"),
    [
        (MEAN, "{gdp: {mu: 1.6}}"),  # Gaussian noise on means; windows of a drawn row at larger budgets
        (MEAN, "{pure: {epsilon: 8}}"),
        (SHARE, "{gdp: {mu: 20}}"),
        (SHARE, "{pure: {epsilon: 8}}"),
        (LINE, "{gdp: {mu: 20}}"),
        (MEAN.replace("high: 1", "high: 1, quantiles: [0.5]"), "{pure: {epsilon: 8}}"),
    ],
)
def test_estimates_are_of_rows(text: str, guarantee: str) -> None:
    """An estimate is 5 of its standard errors from the truth once in 10^6; people's is as far from that of rows."""
    rows, of_people, of_rows = records("binary" if "binary" in text else "real")
    if "quantiles" in text:
        of_people, of_rows = 0.5, 0.7
    missed = {}
    for weight, truth in (("{rows: 10}", of_rows), ("people", of_people)):
        task = task_of(text, weight=weight, guarantee=guarantee)
        estimate = murk.run(task, rows, person="person", seed=2).estimate
        errors = (
            np.full(1, 0.03) if "quantiles" in text else np.maximum(estimate.standard_errors, 1e-3)
        )  # quantiles: steps of 1/64 of the range, in coded units
        missed[weight] = (estimate.values[-1] - (2.0 * truth - 1.0)) / errors[-1]
        if weight == "people" and "quantiles" not in text:
            assert abs((estimate.values[-1] - (2.0 * of_rows - 1.0)) / errors[-1]) > 5.0
    assert abs(missed["{rows: 10}"]) < 5.0


SCORES = "features: [{name: a, low: -1, high: 1, typical: [-1, 1]}]\ntarget: {name: y, kind: "
TARGETS = {
    "binary": 'binary, positive: "1", rate: 0.5}',
    "real": "real, low: 0, high: 1, typical: [0, 1]}",
    "classes": "classes, classes: [a, b, c]}",
}


def score_records(kind: str) -> tuple[list[dict[str, Any]], dict[str, NDArray[np.float64]]]:
    """Half of 2,000 people have one row, half eleven, where effect and feature are larger; the raw fits by weight.

    The feature has two values, so that the fit is the same with any weights of features.
    """
    rng, rows = np.random.default_rng(5), []
    for person in range(2_000):
        often = person % 2
        for _ in range(11 if often else 1):
            a = 1.0 if rng.random() < (0.7 if often else 0.4) else -1.0
            y = int(rng.random() < (0.55 + 0.3 * a if often else 0.5 - 0.4 * a))
            weight = {"people": 1.0 / 11 if often else 1.0, "{rows: 10}": 10.0 / 11 if often else 1.0}
            rows.append({"person": f"p{person}", "a": a, "label": y, "weight": weight})
    a, y = (np.array([row[name] for row in rows]) for name in ("a", "label"))
    fits = {}
    for name in ("people", "{rows: 10}"):
        weights = np.array([row["weight"][name] for row in rows])
        rates = np.array([np.average(y[a == side], weights=weights[a == side]) for side in (-1.0, 1.0)])
        ends = np.log(rates / (1.0 - rates)) if kind == "binary" else 2.0 * rates - 1.0
        fits[name] = np.array([ends[1] - ends[0], ends[1] + ends[0]]) / 2.0
    for row in rows:
        row["y"] = {"binary": str(row["label"]), "real": row["label"], "classes": "ac"[row["label"]]}[kind]
    return rows, fits


@pytest.mark.parametrize("kind", TARGETS)
def test_scores_are_of_rows(kind: str) -> None:
    """Estimates are 5 of their standard errors from the raw fit once in 10^6; people's slope is as far from rows'."""
    rows, fits = score_records(kind)
    for weight in fits:
        task = task_of(f"{SCORES}{TARGETS[kind]}", weight=weight, guarantee="{gdp: {mu: 20}}")
        estimate = murk.run(task, rows, person="person", seed=2).estimate
        values, errors = estimate.values[-2:], estimate.standard_errors[-2:]
        assert np.abs((values - fits[weight]) / errors).max() < 5.0
        if weight == "people":
            assert abs(values[0] - fits["{rows: 10}"][0]) > 5.0 * errors[0]
        else:
            assert values[0] > 0.0 > fits["people"][0]


ARM = "features: [{name: arm, categories: [a, b]}]\ntarget: {name: y, kind: "
KNOWN = "features: [{name: arm, categories: [a, b], known: true}]\ntarget: {name: y, kind: "
MIXED = KNOWN.replace("true}]", "true}, {name: b, low: -1, high: 1}]")
OTHERS = {
    "outer": f"{SCORES}{TARGETS['real']}\nprotocol: examples\nexamples: {{release: outer}}",
    "directions": f"{SCORES}{TARGETS['real']}\nprotocol: examples\nexamples: {{release: directions}}",
    "cells": f"{ARM}{TARGETS['binary']}\nprotocol: examples\nexamples: {{release: cells, loss: log}}",
    "known": KNOWN + TARGETS["binary"],
    "known mean": KNOWN + TARGETS["real"],
    "mixed": MIXED + TARGETS["real"],
}


def coded(rows: list[dict[str, Any]]) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
    """Return features with the constant, labels and numbers of rows of `score_records`."""
    x, y = np.array([[row["a"], 1.0] for row in rows]), np.array([float(row["label"]) for row in rows])
    return x, y, np.array([1, 11] * 1_000)


@pytest.mark.parametrize("kind", OTHERS)
def test_examples_and_known_columns_are_of_rows(kind: str) -> None:
    """Estimates are 5 of their standard errors from the raw fit once in 10^6; people's slope has the other sign."""
    binary = "kind: binary" in OTHERS[kind]
    rows, fits = score_records("binary" if binary else "real")
    x, y, counts = coded(rows)
    if kind == "mixed":
        x = np.insert(x, 1, np.random.default_rng(6).choice([-1.0, 1.0], len(x)), axis=1)
    for weight in fits:
        task = task_of(OTHERS[kind], weight=weight, guarantee="{gdp: {mu: 20}}").with_simulated(True)
        records = weighed(x, y if binary else 2.0 * y - 1.0, counts, task.most_rows)
        [(device, engine, _)] = learned(task, *records, seed=2)
        estimate = device.estimate([engine])
        values, errors = estimate.values[[0, -1]], estimate.standard_errors[[0, -1]]
        assert np.abs((values - fits[weight]) / errors).max() < 5.0
        assert (values[0] > 0.0) == (weight != "people")


def test_gradients_are_of_rows() -> None:
    """People's mean gradients are zero at the raw fit of rows, but for 5 standard errors, and not at that of people."""
    rows, fits = score_records("binary")
    task = task_of(f"{SCORES}{TARGETS['binary']}\nprotocol: gradients", guarantee="{gdp: {mu: 1000}}")
    device: Any = person_device_for(task)
    x, y, counts = weighed(*coded(rows), 10)
    assert device.settings.transform is not None
    away = {}
    for weight, fit in fits.items():
        gradients = means_of(device.vectors(x, y, np.linalg.solve(device.settings.transform.T, fit)), counts)
        errors = gradients.std(axis=0) / np.sqrt(len(gradients))
        away[weight] = np.abs(gradients.mean(axis=0) / errors).max()
    assert away["{rows: 10}"] < 5.0 < away["people"]


def test_contrasts_are_of_rows() -> None:
    """Each of two intervals misses its raw fit once in 100, and does not hold that of the other weight."""
    rows, fits = score_records("real")
    for row in rows:
        row["arm"] = "b" if row["a"] > 0.0 else "a"
    text = f"features: [{{name: arm, categories: [a, b]}}]\ntarget: {{name: y, kind: {TARGETS['real']}"
    text += "\ncontrasts: [{feature: arm, category: b, against: a}]"
    for weight, other in (("people", "{rows: 10}"), ("{rows: 10}", "people")):
        task = task_of(text, weight=weight)
        estimate = murk.run(task, rows, person="person", seed=3).estimate
        [contrast] = contrasts(task, estimate, looks_of(task, estimate, estimate.n_releases), 0.99)
        low, high = contrast.interval
        assert low < fits[weight][0] < high
        assert not low < fits[other][0] < high


def test_answers_to_queries_have_the_weight_of_rows() -> None:
    """Three rows of ten are three tenths of each answer; noise at mu = 1,000 is below 0.003 of an answer.

    Without weights a row without a target counts in a scatter, by which the learner sees how many there are.
    """
    answers: dict[str, dict[str, float]] = {}
    for weight in ("people", "{rows: 10}"):
        task = task_of(f"{SCORES}{TARGETS['binary']}", weight=weight, guarantee="{gdp: {mu: 1000}}")
        device: Any = person_device_for(task)
        model = replace(device.settings, survey=None).first_model(device.mechanisms)
        answers[weight] = {}
        for query in ("score", "scatter", "curvature"):
            x, y, counts = np.array([[0.5, 1.0]] * 3), np.array([1.0, 1.0, 1.0]), np.array([3])
            x, y, counts = weighed(x, y, counts, 10)
            single = SingleQueryDevice(device, query)
            payloads = randomize_rows(
                single, x, y, [0], {0: model.flat}, ["default"], SimulatedNoise(1), np.array([0]), counts
            )
            alone = randomize_rows(
                single, x[:1], y[:1], [0], {0: model.flat}, ["default"], SimulatedNoise(2), np.array([0])
            )
            whole, one = (single.mechanisms["default"].decode(each)[0] for each in (payloads, alone))
            answers[weight][query] = float(whole @ one / (one @ one))
    for query, ratio in answers["{rows: 10}"].items():
        assert ratio == pytest.approx(0.3, abs=0.02), query
    assert answers["people"]["scatter"] == pytest.approx(1.0, abs=0.02)


def test_rows_beyond_the_most_count_together() -> None:
    """Of 30 rows none is left out, and they count as 10."""
    x, y, counts = weighed(np.arange(33.0)[:, None], np.arange(33.0), np.array([1, 30, 2]), 10)
    assert counts.tolist() == [10, 30, 10]
    assert [np.isnan(part).sum() for part in np.split(y, [10, 40])] == [9, 0, 8]
    assert y[10:40].tolist() == list(range(1, 31))
    # Rows that stand for none have the person's own features, in turn.
    assert [x[:10, 0].tolist(), x[40:, 0].tolist()] == [[0.0] * 10, [31.0, 32.0] * 5]


def test_no_two_people_are_further_apart_than_two_rows() -> None:
    task = task_of(LINE)
    device: Any = person_device_for(task)
    rng, layout = np.random.default_rng(4), device.layout
    means = []
    for count in (1, 3, 10, 40, 1, 2):
        x = np.column_stack([rng.choice([-1.0, 1.0], count), np.ones(count)])
        x, y, _ = weighed(x, rng.choice([-1.0, 1.0], count), np.array([count]), 10)
        means.append(layout.vectors(x, y).mean(axis=0))
    means.append(layout.vectors(np.ones((1, 2)), np.ones(1))[0])
    apart = [float(np.linalg.norm(one - other)) for one in means for other in means]
    assert max(apart) <= layout.sensitivity * (1 + 1e-9)


def test_devices_count_records(tmp_path: Path) -> None:
    """The number that tells whether there is a target has noise of at most 0.02 here, exceeded at 12 sd."""
    text = LINE.replace("[{name: a, low: -1, high: 1}]", "[{name: a, low: -1, high: 1}]")
    task = task_of(text, weight="{rows: 4}", guarantee="{gdp: {mu: 400}}", more=", window: week").with_simulated(True)
    with World(tmp_path, task) as world:
        device: Any = person_device_for(task)
        record, week = {"a": 0.5, "y": 0.9}, 7 * 86_400
        world.producer.release(record, person="one")
        for person, count in (("three", 3), ("nine", 9)):
            for _ in range(count):
                assert world.producer.hold(record, person=person).outcome == "held"
        world.now = NOW + 2 * week
        assert [each.outcome for each in world.producer.release_held()] == ["released", "released"]
        payloads = [json.loads(message.value)["payload"] for message in world.messages()]
        means = device.mechanisms["default"].decode(np.array(payloads))
        shares = sorted(device.layout.share(mean) for mean in means)
        assert np.abs(np.array(shares) - [1 / 4, 3 / 4, 1.0]).max() < 0.02


@pytest.mark.parametrize(
    ("more", "weight", "why"),
    [
        (
            "protocol: scores\npublic: {set_aside: 500}",
            "{rows: 10}",
            "all people the same weight; remove one, or say proto",
        ),
        ("protocol: scores\npredictions: {coverage: 0.9}", "{rows: 10}", "all people the same weight; remove one"),
        ("protocol: gradients\npublic: {set_aside: 500}", "{rows: 10}", "all people the same weight; remove one"),
        ("protocol: gradients\nlearner: {intervals: random-scaling}", "{rows: 10}", "remove it, or the weight"),
        ("protocol: examples\npublic: {set_aside: 500}", "{rows: 10}", "all people the same weight; remove one"),
        ("protocol: examples\nexamples: {release: separate}", "{rows: 10}", "say release: outer"),
        ("protocol: examples\nexamples: {loss: probit, release: joint}", "{rows: 10}", "say release: outer or cells"),
        ("protocol: moments\nmoments: {release: joint}", "{rows: 10}", "say release: observed"),
        ("protocol: moments", "rows", r"weight: \{rows: 10\}"),
        ("protocol: moments", "{rows: 1}", "2"),
        ("protocol: moments", "{rows: 101}", "100"),
    ],
)
def test_weights_that_no_task_has(more: str, weight: str, why: str) -> None:
    with pytest.raises(UserError, match=why):
        make_task(more, f"weight: {weight}")


def test_experiments_have_no_weights() -> None:
    with pytest.raises(UserError, match="arms give all people the same weight"):
        task_of(f"{KNOWN}{TARGETS['binary']}\nexperiment: {{arm: arm, control: a}}")


def test_people_are_the_default() -> None:
    text = TEXT.partition("  levels:")[0]
    assert make_task("weight: people", text=text).hash == make_task(text=text).hash
    assert task_of(MEAN).hash != task_of(MEAN, weight="people").hash != task_of(MEAN, weight="{rows: 11}").hash


def test_windows_count_their_rows(tmp_path: Path) -> None:
    """What a result says of rows names the most that count."""
    monday = datetime.date(2024, 1, 1)
    rows = [
        {"person": f"p{person}", "on": monday + datetime.timedelta(days=7 * week + day), "y": day / 4}
        for person in range(30)
        for week in range(2)
        for day in range(1 + person % 3)
    ]
    result = murk.run(task_of(MEAN, more=", window: week"), rows, person="person", time="on", seed=1)
    assert "and each person has the weight of their rows, at most 10" in result.report["counted_rows"]
    assert "up to 10 rows of a person count, and at least" in str(result)


def test_a_group_counts_rows_as_releases_do(tmp_path: Path) -> None:
    """Each of 40 real people has one row of four: a share of 1/4, 0.05 off once in 10^6 (noise of 400 for 40)."""
    task = task_of(LINE, weight="{rows: 4}", guarantee="{gdp: {mu: 400}}")
    with World(tmp_path, task) as world:
        device: Any = person_device_for(task)
        calls = [ReleaseCall({"a": 0.5, "y": 0.9}, person=f"p{number}") for number in range(40)]
        assert {each.outcome for each in world.producer.release_group(calls)} == {"released"}  # type: ignore[union-attr]
        payloads = np.array([json.loads(message.value)["payload"] for message in world.messages()])
        share = device.layout.share(device.mechanisms["default"].decode(payloads).mean(axis=0))
        assert abs(share - 1 / 4) < 0.05
