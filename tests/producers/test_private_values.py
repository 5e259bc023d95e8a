"""What of a release beside its payload is the same for any private values: that it is sent, its fields, its length."""

import itertools
import json

import pytest

from murk import Task
from murk.privacy.noise import SimulatedNoise
from murk.producers import Ledger, Producer
from murk.stream import open_log

TASK = """
name: checkout
features:
  - {name: arm, categories: [control, treatment], known: true}
  - {name: platform, categories: [web, ios, other], known: true}PRIVATE
target: TARGET
experiment: {arm: arm, control: control, assigned: {by: server, shares: [0.5, 0.5]}METRICS}
privacy: {guarantee: {GUARANTEE}}
"""
BINARY = '{name: bought, kind: binary, positive: "yes", negative: "no"}'
REAL = "{name: bought, kind: real, low: 0, high: 90}"
PRIVATE = "\n  - {name: age, low: 18, high: 90}\n  - {name: job, categories: [a, b, c]}"
METRICS = """, metrics: [
  {name: amount, kind: real, low: 0, high: 40, missing_share: 0},
  {name: returned, kind: binary, positive: "yes", negative: "no"}]"""
GAUSSIAN, PURE = "gdp: {mu: 1.0}", "pure: {epsilon: 1.0}"
ANSWERS = {"bought": ["yes", "no", None, "undeclared"]}
AMOUNTS = {"bought": [0, 90, 45.5, None, 1e300, "undeclared"]}
OTHERS = {"age": [18, 90, None, "undeclared"], "job": ["a", "c", None]}
MEASURED = {"amount": [0, 40, None], "returned": ["yes", "no", None]}
CASES = {
    "binary, gdp": (BINARY, GAUSSIAN, "", "", ANSWERS),
    "binary, pure": (BINARY, PURE, "", "", ANSWERS),
    "real, gdp": (REAL, GAUSSIAN, "", "", AMOUNTS),
    "real, pure": (REAL, PURE, "", "", AMOUNTS),
    "mixed, gdp": (BINARY, GAUSSIAN, PRIVATE, "", ANSWERS | OTHERS),
    "mixed, pure": (REAL, PURE, PRIVATE, "", AMOUNTS | OTHERS),
    "metrics, gdp": (BINARY, GAUSSIAN, "", METRICS, ANSWERS | MEASURED),
    "metrics, pure": (BINARY, PURE, "", METRICS, ANSWERS | MEASURED),
}


def made(case: str) -> tuple[Task, list[dict[str, object]]]:
    """Return a task, and records that differ in private values only."""
    target, guarantee, private, metrics, values = CASES[case]
    keys = {"TARGET": target, "GUARANTEE": guarantee, "PRIVATE": private, "METRICS": metrics}
    text = TASK
    for key, value in keys.items():
        text = text.replace(key, value)
    alone = [{name: value} for name, column in values.items() for value in column]
    extremes = itertools.product(*(column[:2] for column in values.values()))
    private_values = [*alone, *(dict(zip(values, row, strict=True)) for row in extremes)]
    return Task.parse(text), [{"arm": "treatment", "platform": "ios"} | row for row in private_values]


def beside_the_payload(release: bytes | str) -> tuple[dict[str, object], int, int]:
    """Return a release without its payload, the payload's number of integers, and the bytes around them."""
    fields = json.loads(release)
    payload = fields.pop("payload")
    digits = json.dumps(payload, separators=(",", ":"))
    assert digits in (release if isinstance(release, str) else release.decode())
    return fields, len(payload), len(release) - len(digits)


@pytest.mark.parametrize("case", CASES)
def test_only_the_payload_depends_on_private_values(tmp_path, case):
    task, records = made(case)
    task = task.with_simulated(True)
    releases = []
    with open_log(f"sqlite:///{tmp_path}/log.db") as log:
        log.register_task(task.document())
        for number, record in enumerate([*records, records[0] | {"platform": "web"}]):
            with Ledger(tmp_path / f"{number}.db") as ledger:
                # The same draws for each of them.
                receipt = Producer(task, log, ledger, noise=SimulatedNoise(3)).release(record, person="a person")
                assert (receipt.outcome, receipt.delivery) == ("released", "sent")
        releases = [message.value for message in log.read(0, 0, 1_000)]
    assert len(releases) == len(records) + 1
    *alike, known = releases
    first = beside_the_payload(alike[0])
    assert all(beside_the_payload(each) == first for each in alike)
    # Which metric is drawn, and the combination of known columns.
    clear = 1 + (task.experiment is not None and bool(task.experiment.metrics))
    (cell,) = {tuple(json.loads(each)["payload"][:clear]) for each in alike}
    # The payload depends on private values, and on known columns.
    assert len(set(alike)) > 1
    assert tuple(json.loads(known)["payload"][:clear]) != cell
