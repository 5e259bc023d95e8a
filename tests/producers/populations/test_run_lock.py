"""The notes that tie a ledger to its log, and a run to its seed: where they lie, what differs, who else is at work."""

import errno
import gc
import json
import os
import stat
from dataclasses import dataclass, replace

import pytest

from murk.errors import MurkError, UserError
from murk.populations import ledger_places as run_lock
from murk.populations.ledger_places import (
    RunConfig,
    begun_with,
    beside,
    compare,
    differs,
    hold,
    in_file,
    note,
    noted,
    write_durably,
)
from murk.stream import open_log
from tests.producers.world import make_task

FACTS = RunConfig(person="name", level="open", seed=7, ledger="a" * 32, order="random")


@dataclass
class Elsewhere:
    """A log on a cluster, as far as notes ask."""

    task: bytes | None = b"{}"
    known: str | None = "0123456789abcdef" * 2
    url: str = "kafka://broker:9092/third-child"

    @property
    def identity(self):
        if self.known is None:
            raise UserError("no streams yet")
        return self.known

    def document(self):
        return self.task


@pytest.fixture(params=["file", "cluster"])
def begun(request, tmp_path):
    """A log with its task, and the ledger."""
    ledger = tmp_path / "ledger.db"
    if request.param == "cluster":
        yield Elsewhere(), ledger
        return
    with open_log(f"sqlite:///{tmp_path}/log.db") as log:
        log.register_task(make_task().document())
        yield log, ledger


def test_what_is_noted_comes_back(begun):
    log, ledger = begun
    assert noted(log, ledger) is None
    assert begun_with(log, ledger) is None
    for facts in (FACTS, replace(FACTS, person=None, seed=None)):
        note(log, facts, ledger)
        assert noted(log, ledger) == facts
        assert begun_with(log, ledger) == "a" * 32


def test_where_it_lies(tmp_path):
    """Beside a log in a file; beside the ledger, under the cluster's log's own name, where the log is no file."""
    ledger = tmp_path / "ledger.db"
    with open_log(f"sqlite:///{tmp_path}/log.db") as log:
        assert in_file(log) == tmp_path / "log.db"
        assert beside(log, ".run.json", ledger) == tmp_path / "log.db.run.json"
        note(log, FACTS, ledger)
        identity = log.identity
    assert json.loads((tmp_path / "log.db.run.json").read_text()) == {
        "person": "name", "level": "open", "seed": 7, "ledger": "a" * 32, "order": "random", "time": None,
        "log": identity,
    }  # fmt: skip
    away = Elsewhere()
    assert in_file(away) is None
    assert beside(away, ".run.json", ledger) == tmp_path / "ledger.db.0123456789abc.run.json"


def test_the_note_of_a_deleted_log_is_not_that_of_a_new_one(tmp_path):
    ledger, path = tmp_path / "ledger.db", tmp_path / "log.db"
    for expected in (FACTS, None):
        with open_log(f"sqlite:///{path}") as log:
            log.register_task(make_task().document())
            if expected is not None:
                note(log, FACTS, ledger)
            assert noted(log, ledger) == expected
        path.unlink()


def test_a_log_without_a_task_or_streams_was_begun_with_nothing(tmp_path):
    ledger = tmp_path / "ledger.db"
    away = Elsewhere()
    note(away, FACTS, ledger)
    away.task = None
    assert noted(away, ledger) is None
    unmade = Elsewhere(known=None)
    before = sorted(tmp_path.iterdir())
    note(unmade, FACTS, ledger)
    assert beside(unmade, ".run.json", ledger) is None
    assert noted(unmade, ledger) is None
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("text", ["", "{", "[]", "7", '{"person": null}', '{"person": null, "surprise": 1}'])
def test_a_damaged_note_is_an_error(tmp_path, text):
    away, ledger = Elsewhere(), tmp_path / "ledger.db"
    beside(away, ".run.json", ledger).write_text(text)
    with pytest.raises(MurkError, match=r"run\.json is damaged: restore it from a copy"):
        noted(away, ledger)


def test_the_same_carries_on_and_so_does_what_is_not_known(begun):
    log, ledger = begun
    compare(log, FACTS, ledger)
    note(log, FACTS, ledger)
    compare(log, FACTS, ledger)


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"ledger": "b" * 32}, "started with another ledger: give the same --ledger"),
        ({"person": None}, "started with --person name, not no --person: give the same --person"),
        ({"level": "strict"}, "started with --level open, not --level strict: give the same --level"),
        ({"seed": 8}, "started with --seed 7, not --seed 8: give the same --seed"),
        ({"seed": None}, "started with --seed 7, not no --seed: give the same --seed"),
        # The first that differs is named.
        ({"level": "strict", "seed": 8}, "started with --level open, not --level strict"),
    ],
)
def test_what_differs_is_named(begun, changes, found):
    log, ledger = begun
    note(log, FACTS, ledger)
    with pytest.raises(UserError, match=found):
        compare(log, replace(FACTS, **changes), ledger)


def test_how_to_begin_anew():
    """A simulation may take another ledger; of real releases the ledger must stay, or it would forget spending."""
    away = Elsewhere()
    assert str(differs(away, "x", "--seed", seed=0)).endswith("to begin again, give another --log and --ledger")
    assert str(differs(away, "x", "--seed", seed=None)).endswith("give another --log and the same ledger")


def test_one_at_a_time(begun):
    log, ledger = begun

    class Owner:
        pass

    first, second = Owner(), Owner()
    before = os.umask(0o022)
    close = hold(log, first, ledger, "task")
    os.umask(before)
    # It is its owner's; there is nothing in it, and nothing to run.
    [lock] = ledger.parent.glob("*.lock")
    assert (stat.S_IMODE(lock.stat().st_mode), lock.stat().st_size) == (0o600, 0)
    with pytest.raises(UserError, match="another `murk run` or `murk produce` is working on"):
        hold(log, second, ledger, "task")
    close()
    hold(log, second, ledger, "task")
    with pytest.raises(UserError, match="wait for it to end"):
        hold(log, first, ledger, "task")
    # A process that ends, or forgets, lets the next one in.
    del second
    gc.collect()
    hold(log, first, ledger, "task")()


def test_a_refusal_leaves_no_file_open(begun):
    log, ledger = begun
    owner = Elsewhere
    close = hold(log, owner, ledger, "task")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(UserError):
            hold(log, owner, ledger, "task")
    assert len(os.listdir("/proc/self/fd")) == before
    close()
    assert len(os.listdir("/proc/self/fd")) == before - 1


def test_who_is_kept_out(tmp_path):
    """Of a log in a file, everybody; of a cluster's, those with the same ledger and a task of the same name."""
    owner = Elsewhere
    with open_log(f"sqlite:///{tmp_path}/log.db") as log:
        closes = [hold(log, owner, tmp_path / "one.db", "task")]
        with pytest.raises(UserError):
            hold(log, owner, tmp_path / "other.db", "other")
    apart = [("one.db", "task"), ("one.db", "other"), ("two.db", "task")]
    closes += [hold(Elsewhere(), owner, tmp_path / ledger, task) for ledger, task in apart]
    with pytest.raises(UserError):
        hold(Elsewhere(known="f" * 32), owner, tmp_path / "one.db", "task")
    assert {path.name for path in tmp_path.glob("*.lock")} == {
        "log.db.lock", "one.db.task.lock", "one.db.other.lock", "two.db.task.lock",
    }  # fmt: skip
    for close in closes:
        close()


def test_a_note_is_whole_or_not_there_and_for_its_owner_alone(tmp_path, monkeypatch):
    """What is written is on the disk before it has its name, and its name before the work goes on."""
    path = tmp_path / "note.json"
    left = tmp_path / "note.json.0.new"
    left.write_text("another one's, or left behind by a crash")
    done = []

    def fsync(handle):
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            done.append(("folder", path.exists()))
            return
        [draft] = set(tmp_path.glob(".murk-*.new"))
        assert stat.S_IMODE(draft.stat().st_mode) == 0o600
        done.append((draft.read_text(), path.exists()))

    monkeypatch.setattr(run_lock.os, "fsync", fsync)
    before = len(os.listdir("/proc/self/fd"))
    write_durably(path, "text\n")
    assert done == [("text\n", False), ("folder", True)]
    assert path.read_text() == "text\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert {place.name for place in tmp_path.iterdir()} == {path.name, left.name}
    assert len(os.listdir("/proc/self/fd")) == before
    write_durably(path, "newer\n")
    assert path.read_text() == "newer\n"

    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(run_lock.os, "fsync", full)
    with pytest.raises(MurkError, match=r"cannot be written \(No space left on device\)"):
        write_durably(path, "lost\n")
    assert path.read_text() == "newer\n"
    assert {place.name for place in tmp_path.iterdir()} == {path.name, left.name}
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_place_that_cannot_be_written_to_is_named(tmp_path):
    with pytest.raises(MurkError, match=r"nowhere/note\.json cannot be written \(No such file or directory\)"):
        write_durably(tmp_path / "nowhere" / "note.json", "text")
