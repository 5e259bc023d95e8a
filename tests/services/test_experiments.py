"""An experiment on real servers: known columns through Kafka, and devices' own arms through the gateway's HTTP."""

import csv
import json
import random
import secrets
import tempfile
import time
import uuid
from pathlib import Path

from deploy.broker import Broker
from murk import Task
from murk.producers import Ledger, Producer
from murk.protocols.device import device_for
from murk.stream import Worker, open_log
from tests.cli.harness import finish, murk
from tests.gateway.devices import Client, announced
from tests.gateway.test_command import begun

TASK = """
name: NAME
features:
  - {name: arm, categories: [control, treatment], known: true}
  - {name: platform, categories: [web, ios], known: true}PRIVATE
target: {name: bought, kind: binary, positive: "yes", negative: "no", missing_share: 0}
experiment:
  arm: arm
  control: control
  assigned: {by: server, shares: [0.5, 0.5]}
privacy: {guarantee: {gdp: {mu: 4.0}}}
log: {partitions: 2}
"""
AGE = "\n  - {name: age, low: 20, high: 60}"
ROWS = 3_000


def people(path: Path) -> None:
    draws = random.Random(3)
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["arm", "platform", "age", "bought"])
        for _ in range(ROWS):
            arm, age = draws.choice(["control", "treatment"]), draws.uniform(20, 60)
            chance = 0.1 + 0.3 * (arm == "treatment") + 0.005 * (age - 20)
            rows.writerow([arm, draws.choice(["web", "ios"]), age, "yes" if draws.random() < chance else "no"])


def test_an_experiment_is_watched_on_a_broker(broker: Broker, tmp_path: Path) -> None:
    (tmp_path / "task.yaml").write_text(TASK.replace("NAME", "checkout").replace("PRIVATE", AGE))
    people(tmp_path / "people.csv")
    run = ["run", "task.yaml", "--source", "people.csv", "--seed", 3, "--json"]
    expected = murk(*run, "--log", "sqlite:///file.db", "--ledger", "file.ledger.db", folder=tmp_path).json
    url = f"{broker.url}/x{uuid.uuid4().hex[:12]}"
    murk("topics", "task.yaml", "--log", url, "--simulated", folder=tmp_path)
    found = murk(*run, "--log", url, "--ledger", "kafka.ledger.db", folder=tmp_path).json
    for key in ("coefficients", "confidence_intervals", "average_effects", "cells", "experiment"):
        assert found[key] == expected[key]
    assert sum(found["experiment"]["people"].values()) == ROWS
    low, high = found["experiment"]["lifts"][0]["interval"]
    assert low < 30.0 < high

    watched = murk("experiment", "task.yaml", "--log", url, "--json", "--picture", "lift.png", folder=tmp_path)
    assert watched.json["releases"] == ROWS
    [lift], [planned] = watched.json["experiment"]["lifts"], found["experiment"]["lifts"]
    assert lift["value"] == planned["value"]
    # At every look, not at one.
    assert lift["interval"][0] < planned["interval"][0] < planned["interval"][1] < lift["interval"][1]
    assert lift["verdict"] == planned["verdict"] == "higher"
    assert watched.json["experiment"]["stop"] == "effect"
    assert (tmp_path / "lift.png").read_bytes().startswith(b"\x89PNG")


def test_devices_assign_their_arms_and_post_to_the_gateway(broker: Broker, tmp_path: Path) -> None:
    name = f"x-{secrets.token_hex(4)}"
    text = TASK.replace("NAME", name).replace("PRIVATE", "")
    task = Task.parse(text.replace("by: server", "by: device, salt: checkout-7"))
    (tmp_path / "task.yaml").write_text(text.replace("by: server", "by: device, salt: checkout-7"))
    with open_log(broker.url, name=name) as log:
        log.register_task(task.document())
    url, arms = f"{broker.url}/{name}", []
    with (
        tempfile.TemporaryDirectory() as folder,
        open_log(announced(Path(folder), task)) as own,
        Ledger(Path(folder) / "ledger.db") as ledger,
    ):
        producer = Producer(task, own, ledger)
        for _ in range(40):
            identifier = secrets.token_hex(16)
            arms.append(task.arm_of(identifier))
            record = {"arm": arms[-1], "platform": "ios", "bought": "no"}
            assert producer.release(record, person=identifier).delivery == "sent"
        sent = [each.value for partition in range(2) for each in own.read(partition, 0, 100)]
    process, address = begun(url, tmp_path)
    forged = []
    for cell in (9, -1):
        forged.append(json.loads(sent[0]))
        forged[-1] |= {"id": secrets.token_hex(16)}
        forged[-1]["payload"][0] = cell
    with Client(address) as client, open_log(url, create=False) as log:
        assert client.get(f"/v1/tasks/{name}").body == task.document()
        assert client.post(*sent, name=name).json == {"accepted": 40, "refused": []}
        refused = client.post(*[json.dumps(each, separators=(",", ":")).encode() for each in forged], name=name)
        assert refused.json["accepted"] == 0
        workers = [Worker(log, task, device_for(task).engine(), partition, look=0.0) for partition in range(2)]
        deadline = time.monotonic() + 120
        while sum(worker.counters.learned for worker in workers) < 40 and time.monotonic() < deadline:
            for worker in workers:
                worker.step()
        for worker in workers:
            worker.close()
    process.terminate()
    assert finish(process).status == 0
    found = murk("experiment", "task.yaml", "--log", url, "--json", folder=tmp_path).json["experiment"]
    assert found["people"] == {arm: arms.count(arm) for arm in ("control", "treatment")}
    assert found["words"][0].startswith("treatment: too few people with a target")
    assert found["sample_ratio"] < 10.0
