"""Each figure and table is made at a size that takes seconds, and shows what its page says."""

import json

import pytest

from reproductions import store
from reproductions.catalogue import PAPERS, experiments
from reproductions.experiment import Setting


@pytest.mark.parametrize("name", sorted(experiments()))
def test_it_is_made_and_its_checks_hold(name, tmp_path):
    one, setting = experiments()[name], Setting(size="tiny")
    outcome = one.run(setting)
    assert outcome.rows
    assert outcome.checks
    # So few draws decide little: numbers are on the side of each claim.
    against = [check for check in outcome.checks if not (check.holds or check.undecided)]
    assert [f"{check.claim}: {check.found}" for check in against] == []
    store.prepare(tmp_path, one, store.origin_of(setting))
    store.write(tmp_path, one, store.origin_of(setting), outcome, 0.0)
    found = store.read(tmp_path, one, store.origin_of(setting))
    assert store.rows_of(found) == list(outcome.rows)
    assert json.dumps(found, allow_nan=False)


def test_identifiers_are_their_papers():
    for paper in PAPERS:
        assert [one.id for one in paper.experiments if not one.id.startswith(f"{paper.number}/")] == []
