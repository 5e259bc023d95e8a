"""People's own budgets on a real broker: a killed run learns the bits of one on a log in a file."""

import random
import uuid

from murk import Task
from murk.stream import open_log
from murk.stream.wire.state import decode_state
from tests.cli.harness import ANY_PROTOCOL, murk, world
from tests.services.faults.nursery import Nursery

TASK = ANY_PROTOCOL.replace("{gdp: {mu: 1.0}}}", "{gdp: {mu: 1.0}}, levels: {from: 0.25, to: 4}}")
ROWS = 900
RUN = ["run", "task.yaml", "--source", "people.csv", "--guarantee-column", "own", "--seed", 3, "--block", 20, "--json"]


def state_of(url):
    with open_log(url, create=False) as log:
        return decode_state(log.checkpoint(0).state, url)


def test_a_killed_run_weighs_everybodys_own_budget_as_one_in_a_file(broker, tmp_path):
    folder = world(tmp_path, rows=ROWS, task=TASK + "protocol: scores\n")
    draws, path = random.Random(5), folder / "people.csv"
    budgets = [draws.uniform(1, 2) for _ in range(ROWS)]
    header, *rows = path.read_text().splitlines()
    lines = [f"{row},{own:.6f}" for row, own in zip(rows, budgets, strict=True)]
    path.write_text("\n".join([f"{header},own", *lines]) + "\n")
    expected = murk(*RUN, "--log", "sqlite:///file.db", "--ledger", "file.ledger.db", folder=folder).json
    before = state_of(f"sqlite:///{folder}/file.db")

    url = f"{broker.url}/g{uuid.uuid4().hex[:12]}"
    murk("topics", "task.yaml", "--log", url, "--simulated", folder=folder)
    command = [*RUN, "--log", url, "--ledger", "kafka.ledger.db"]
    with Nursery(folder) as nursery, open_log(url, create=False) as log:
        child = nursery.call("tests.services.faults.devices:murk", "before", 20, *command)
        assert child.wait() == -9, child.err
        assert 0 < log.checkpoint(0).offset < ROWS
    found = murk(*command, folder=folder).json
    after = state_of(url)

    privacy = Task.load(folder / "task.yaml").privacy
    own = [privacy.level_of(float(f"{budget:.6f}")) for budget in budgets]
    assert after.counters.levels == before.counters.levels == {level: own.count(level) for level in {*own}}
    assert after.learner == before.learner
    assert after.counters == before.counters
    for each in (found, expected):
        assert each["grid"]["levels"] == 142
        assert (each["releases"], each["dead_letters"], each["refusals"]) == (ROWS, {}, 0)
    assert found["coefficients"] == expected["coefficients"]
    assert found["confidence_intervals"] == expected["confidence_intervals"]
