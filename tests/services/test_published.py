"""Published algorithms on a real broker: the estimates of a log in a file."""

import uuid

import pytest

from tests.cli.harness import ANY_PROTOCOL, murk, world
from tests.services.fixtures import *  # noqa: F403

APPROX = "guarantee: {approx: {epsilon: 4.0, delta: 1.0e-5}}"
TASKS = {
    "gradients": "learner: {averaging: null}\n",
    "examples": "learner: {step: {eta: 0.01}}\n",
    "moments": "public: {set_aside: 50}\n",
    "summaries": "summaries: {rows: 16}\n",
}


@pytest.mark.parametrize("protocol", TASKS)
def test_the_broker_gives_the_bits_of_a_file(broker, tmp_path, protocol):
    text = ANY_PROTOCOL.replace("guarantee: {gdp: {mu: 1.0}}", APPROX) + f"protocol: {protocol}\nas_published: true\n"
    folder, name = world(tmp_path, rows=300, task=text + TASKS[protocol]), f"p{uuid.uuid4().hex[:12]}"
    run = ["run", "task.yaml", "--source", "people.csv", "--seed", 1, "--json"]
    places = {"file": "sqlite:///file.db", "broker": f"{broker.url}/{name}"}
    found = {}
    for place, url in places.items():
        ledger = ["--ledger", f"{place}.ledger.db"]
        found[place] = murk(*run, "--log", url, *ledger, folder=folder).json
    assert found["broker"]["coefficients"] == found["file"]["coefficients"]
    assert any(found["file"]["coefficients"].values())
    assert found["file"]["dead_letters"] == {}
