"""The same releases give the same states by a file, a broker, the gateway, and web devices."""

import random
import time

import pytest

from benchmarks import paths
from deploy.broker import Broker
from murk import Task
from tests.devices import web

TASK = """
name: checkout
features:
  - {name: arm, categories: [control, treatment], known: true}
  - {name: platform, categories: [web, ios, other], known: true}
target: TARGET
experiment: {arm: arm, control: control, assigned: {by: device, salt: checkout-7, shares: [0.5, 0.5]}METRICS}
privacy: {guarantee: GUARANTEE}
log: {partitions: 2}
"""
BINARY = '{name: bought, kind: binary, positive: "yes", negative: "no", missing_share: 0}'
REAL = "{name: bought, kind: real, low: 0, high: 90}"


METRICS = ", metrics: [{name: amount, kind: real, low: 0, high: 40, missing_share: 0}]"


def people(task: Task, count: int, answers: list[object]) -> list[dict[str, object]]:
    draws = random.Random(5)
    arms = [task.arm_of(f"{person:032x}") for person in range(count)]
    platforms = ["web", "ios", "other"]
    return [
        {
            "arm": arm,
            "platform": draws.choice(platforms),
            "bought": draws.choice(answers),
            "amount": draws.uniform(0, 40),
        }
        for arm in arms
    ]


@pytest.mark.parametrize(
    ("target", "answers", "guarantee", "metrics"),
    [
        (BINARY, ["yes", "no"], "{gdp: {mu: 1.0}}", ""),
        (BINARY, ["yes", "no"], "{gdp: {mu: 1.0}}", METRICS),
        (BINARY, ["yes", "no"], "{pure: {epsilon: 2.0}}", ""),
        (REAL, [0, 7, 31.5], "{pure: {epsilon: 1.0}}", METRICS),
    ],
    ids=["gdp", "metrics", "pure", "real metrics"],
)
def test_four_paths_give_one_state(
    broker: Broker, target: str, answers: list[object], guarantee: str, metrics: str
) -> None:
    web.built()
    task = Task.parse(TASK.replace("TARGET", target).replace("GUARANTEE", guarantee).replace("METRICS", metrics))
    rows, now = people(task, 300, answers), int(time.time())
    expected = paths.by_file(task, rows, 7)
    assert expected["releases"] == len(rows)
    reports = [
        paths.by_kafka(task, rows, 7, broker.url), paths.by_gateway(task, rows, 7), paths.by_web(task, rows, 7, now),
    ]  # fmt: skip
    for report in reports:
        assert report["dead_letters"] == {}
        assert report["state_digest"] == expected["state_digest"]
        assert report["experiment"]["people"] == expected["experiment"]["people"]
    # Another seed, or one record more, has another state.
    assert paths.by_web(task, rows, 8, now)["state_digest"] != expected["state_digest"]
    assert paths.by_file(task, rows[:-1], 7)["state_digest"] != expected["state_digest"]
