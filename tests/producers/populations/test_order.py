"""Whose a gateway's releases are: their order tells it to who knows the file's, or the ledger's receipts."""

import json
from pathlib import Path

import pytest

from murk.producers import Ledger
from murk.producers.populations.local_run import LocalRun
from murk.producers.populations.people import PopulationConfig
from murk.stream import open_log
from tests.producers.world import make_task

LEVELS = ["strict", "open", "open", "default", "strict", "default", "open", "strict", "default", "default"]


@pytest.mark.parametrize("person", [None, "who"])
def test_order_tells_whose_a_release_is(tmp_path: Path, person: str | None) -> None:
    """The dossier and the threat model say so: should a gateway ever shuffle, they are to say something else."""
    rows = [f"p{at},28,yes,JFK,{'yes' if at % 2 else 'no'},{level}" for at, level in enumerate(LEVELS)]
    source, url = tmp_path / "people.csv", f"sqlite:///{tmp_path}/log.db"
    source.write_text("\n".join(["who,age,same_sex,origin,third_child,chosen", *rows]) + "\n")
    crowd = PopulationConfig(source, person, "column:chosen", seed=7)
    with LocalRun(make_task(), crowd, url, tmp_path / "ledger.db") as run:
        for _ in run.steps():
            pass
        digest = run.population.source.digest
    with open_log(url) as log:
        sent = [json.loads(one.value)["level"] for one in log.read(0, 0, 100)]
    assert sent == LEVELS
    with Ledger(tmp_path / "ledger.db") as ledger:
        keys = [(at, digest) for at in range(10)] if person is None else [(f"p{at}", None) for at in range(10)]
        receipts = [ledger.account(key, source=home).tasks[0].levels[0].receipts for key, home in keys]
    assert receipts == [(number,) for number in range(1, 11)]
