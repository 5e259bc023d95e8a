"""A task that forgets, on the command line: what it costs is said where it begins, and in its result."""

import pytest

from murk.inference.drift import Drift
from murk.results.text import describe_age
from tests.cli.harness import ANY_PROTOCOL, LOG, murk, run, world

TASK = ANY_PROTOCOL + "forget: 24000\n"


def test_a_run_says_what_forgetting_costs(tmp_path):
    folder = world(tmp_path, rows=300, task=TASK)
    done = murk("run", "task.yaml", "--source", "people.csv", "--seed", 1, folder=folder)
    assert "forget: 24000: the estimate is of the newest 21,000 to 24,000 releases, so its intervals stop" in done.err
    assert "Of the newest 300 of 300 releases (forget: 24000)." in " ".join(done.out.split())
    found = murk("status", "--log", LOG, "--json", folder=folder).json
    assert found["forget"] == {
        "releases": 24_000, "used": 300, "wider": 1.0, "words": "Of the newest 300 of 300 releases (forget: 24000).",
    }  # fmt: skip
    assert (found["drift"]["alarm"], found["drift"]["compared"]) == (False, 0)


def test_a_run_that_forgets_nothing_says_nothing_of_it(tmp_path):
    folder = world(tmp_path, rows=30, task=ANY_PROTOCOL + "protocol: gradients\n")
    found = run(folder).json
    assert found["forget"] is None
    # Nothing is known of the errors of such an estimate.
    assert found["drift"] is None


@pytest.mark.parametrize("drift", [Drift(1e-9, 6, 1000, 400, 1000, {"age": -0.3}), Drift(1.0, 6, 1000, 400, 1000)])
def test_what_is_said_of_a_change(drift):
    assert list(describe_age({"drift": drift.to_dict(), "forget": None})) == [drift.words]
    assert list(describe_age({"drift": Drift().to_dict(), "forget": None})) == []
    assert list(describe_age({"drift": None})) == []
