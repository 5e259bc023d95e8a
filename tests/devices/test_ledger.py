"""The web device's ledger: caps, outbox, wiped storage, and processes that are killed."""

import subprocess

from murk.protocols.device import person_device_for
from murk.task.task import Task
from tests.devices import web

KILLS = 16


def test_scenarios_on_both_stores():
    command = [web.node_with_sqlite(), "--no-warnings", "--test", "--test-reporter=spec", "test/ledger.test.mjs"]
    result = subprocess.run(command, cwd=web.built(), capture_output=True, text=True)
    assert result.returncode == 0, result.stdout[-4000:]
    assert "skipped 0" in result.stdout


def test_nothing_is_spent_twice_or_lost_by_kills():
    result = web.run("kills.mjs", KILLS, program=web.node_with_sqlite())
    assert result["errors"] == []
    assert result["kills"] >= KILLS
    assert result["acknowledged"] > 0
    assert (result["double"], result["lost"]) == (0, 0)


def test_each_window_has_one_answer_through_kills():
    """Devices that hold records are killed, two at a time, while days pass."""
    result = web.run("kills.mjs", KILLS, "hold", program=web.node_with_sqlite())
    assert (result["errors"], result["refused"]) == ([], [])
    assert result["kills"] >= KILLS
    assert result["acknowledged"] > 0
    assert (result["double"], result["lost"]) == (0, 0)


def test_an_answer_is_kept_or_repeated_with_its_debit_through_kills():
    """Devices that repeat answers are killed, two at a time, while days pass and their record changes now and then."""
    result = web.run("kills.mjs", KILLS, "repeat", program=web.node_with_sqlite())
    assert (result["errors"], result["refused"]) == ([], [])
    assert result["kills"] >= KILLS
    assert result["repeated"] > 0
    assert (result["double"], result["lost"]) == (0, 0)


def test_costs_as_in_the_ledger_of_python():
    """The figure that the scenarios expect."""
    task = Task.parse("""
    name: third-child
    features: [{name: age, low: 21, high: 35}, {name: same_sex, categories: ["no", "yes"]}]
    target: {name: third_child, kind: binary, positive: "yes", negative: "no"}
    privacy: {guarantee: {gdp: {mu: 1.0}}}
    """)
    assert person_device_for(task).mechanisms["default"].cost("gdp").units == 999996185315
