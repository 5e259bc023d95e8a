"""Each figure and table is made at a size that takes seconds, and shows what its page says."""

import json
from importlib import import_module

import pytest

from reproductions import store
from reproductions.catalogue import PAPERS, experiments
from reproductions.experiment import Setting

# By the function that makes another figure, of a model that figures besides are made of, too.
ALIKE = {
    "003/fig3": ("_two_values", "logistic", "003/fig5"),
    "003/fig4": ("_two_values", "poisson", "003/fig5"),
}


class Fewer(Setting):
    """The smallest size, with five repetitions where it has nine."""

    def of(self, *, tiny, reduced, full):
        found = super().of(tiny=tiny, reduced=reduced, full=full)
        return 5 if found == 9 else found


@pytest.mark.parametrize("name", sorted(experiments().keys() - ALIKE))
def test_it_is_made_and_its_checks_hold(name, tmp_path):
    one, setting = experiments()[name], Fewer(size="tiny")
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


@pytest.mark.parametrize("name", ALIKE)
def test_it_is_made_as_another_one_is_of_its_own_model(name, monkeypatch):
    one, (function, model, other) = experiments()[name], ALIKE[name]
    assert experiments()[other].module == one.module
    given = []
    monkeypatch.setattr(import_module(one.module), function, lambda *what: given.append(what))
    setting = Setting(size="tiny")
    for each in (one, experiments()[other]):
        each.run(setting)
    assert given[0] == (setting, model)
    assert given[1][1] != model


def test_identifiers_are_their_papers():
    for paper in PAPERS:
        assert [one.id for one in paper.experiments if not one.id.startswith(f"{paper.number}/")] == []
