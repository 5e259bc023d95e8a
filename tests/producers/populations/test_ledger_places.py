"""One ledger for one population: found by its file, whatever it is asked; and what cannot be known."""

import errno
import fcntl
import hashlib
import json
import os
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from murk.errors import MurkError, UserError
from murk.populations import FileSource, ledger_places, open_records
from murk.populations.ledger_places import default_ledger, register
from murk.populations.local_run import LocalRun
from murk.populations.people import PopulationConfig
from murk.privacy import GaussianDP
from murk.producers import Ledger, Policy, Producer
from murk.stream import open_log
from tests.producers.world import TEXT, make_task, write_people


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with people in a file in another one."""
    (tmp_path / "data").mkdir()
    write_people(tmp_path / "data" / "people.csv", 8)
    monkeypatch.chdir(tmp_path)
    return tmp_path


SOURCE = Path("data/people.csv")


def work(
    name: str = "a",
    ledger: str | Path | None = None,
    source: Any = SOURCE,
    person: str | None = None,
    lifetime: GaussianDP | None = None,
    seed: int | None = None,
) -> tuple[Path, tuple[str, ...], int]:
    """Run a task over the file with real noise; the ledger, what was warned of, and how many released."""
    task = make_task(simulated=False, text=TEXT.replace("name: third-child\n", f"name: {name}\n"))
    place = Path(ledger) if ledger else default_ledger(source, name, simulated=seed is not None)
    with LocalRun(
        task,
        PopulationConfig(open_records(source), person, seed=seed, policy=Policy(lifetime=lifetime)),
        f"sqlite:///{name}.db",
        place,
    ) as run:
        for _ in run.steps():
            pass
        return place, run.population.warnings, run.population.releases


def test_two_tasks_of_one_file_have_one_ledger_whatever_the_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert work("a") == (Path("data/people.ledger.db"), (), 8)
    assert work("b") == (Path("data/people.ledger.db"), (), 8)
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir(folder / "elsewhere")
    link = Path("link.csv")
    link.symlink_to(folder / SOURCE)
    for source in (Path("../data/people.csv"), link):
        assert default_ledger(source, "c", simulated=False) == folder / "data" / "people.ledger.db"
    with Ledger(folder / "data/people.ledger.db") as ledger:
        assert ledger.totals().releases == 16
        assert ledger.totals().people == 8
        [together] = ledger.together()
        assert together.cap is None
        assert together.spent is not None
        assert together.spent.rounded() == "mu = 1.415"


def test_a_cap_over_all_tasks(folder: Path) -> None:
    assert work("a", lifetime=GaussianDP(1.2))[2] == 8
    # It holds for tasks that do not ask for it, too: 1 and 1 are 1.41.
    assert work("b")[2] == 0
    with Ledger("data/people.ledger.db") as ledger:
        [together] = ledger.together()
        assert (together.to_dict()["cap"], str(together.cap)) == ({"gdp": {"mu": 1.2}}, "mu = 1.2")
    with pytest.raises(UserError, match=r"promises each person a cap of mu = 1\.2 over all tasks"):
        work("c", lifetime=GaussianDP(1.3))


def test_a_ledger_of_an_earlier_version_goes_on_being_used(folder: Path) -> None:
    work("a", ledger="a.ledger.db")
    note = folder / "data" / "people.csv.ledgers.json"
    note.unlink()
    with sqlite3.connect("a.ledger.db") as connection:
        connection.execute("UPDATE tasks SET simulated = NULL")
    assert default_ledger(SOURCE, "a", simulated=False) == Path("a.ledger.db")
    # And another task finds it by the digest of the file that it holds.
    assert default_ledger(SOURCE, "b", simulated=False) == Path("a.ledger.db")
    write_people(folder / "data" / "others.csv", 9)
    assert default_ledger(Path("data/others.csv"), "b", simulated=False) == Path("data/others.ledger.db")


def test_a_ledger_that_was_named_is_found_again(folder: Path) -> None:
    (folder / "safe").mkdir()
    work("a", ledger="safe/accounts.db")
    assert default_ledger(SOURCE, "b", simulated=False) == Path("safe/accounts.db")
    for end in ("", ".key"):
        os.rename(f"safe/accounts.db{end}", f"safe/moved.db{end}")
    with pytest.raises(UserError, match="which is missing: put it back"):
        default_ledger(SOURCE, "b", simulated=False)
    # The same ledger at another place is the same ledger.
    assert work("b", ledger="safe/moved.db")[1] == ()
    assert default_ledger(SOURCE, "c", simulated=False) == Path("safe/moved.db")


def test_another_ledger_is_warned_of_and_then_nobody_guesses(folder: Path) -> None:
    work("a")
    place, [warning], released = work("b", ledger="mine.db")
    assert (place, released) == (Path("mine.db"), 8)
    assert "accounts in another ledger, too (data/people.ledger.db)" in warning
    assert "may spend it again" in warning
    with pytest.raises(UserError, match=r"accounts in several ledgers.*Choose one with"):
        default_ledger(SOURCE, "c", simulated=False)
    # What was begun by one of them carries on with it.
    assert default_ledger(SOURCE, "a", simulated=False) == Path("data/people.ledger.db")
    assert default_ledger(SOURCE, "b", simulated=False) == Path("mine.db")


def test_ledgers_near_by_are_known_without_a_note(folder: Path) -> None:
    work("a", ledger="a.ledger.db")
    (folder / "data" / "people.csv.ledgers.json").unlink()
    _, [warning], _ = work("b", ledger="data/b.ledger.db")
    assert "a.ledger.db" in warning


def test_simulations_have_ledgers_of_their_own(folder: Path) -> None:
    assert work("a", seed=1) == (Path("a.ledger.db"), (), 8)
    assert not (folder / "data" / "people.csv.ledgers.json").exists()
    # What was only simulated spent nothing: the real ledger is begun beside the file.
    assert default_ledger(SOURCE, "a", simulated=False) == Path("data/people.ledger.db")
    assert default_ledger(SOURCE, "b", simulated=False) == Path("data/people.ledger.db")


@pytest.mark.parametrize("known", [True, False])
def test_a_simulation_does_not_spend_what_lies_at_its_old_place(folder: Path, known: bool) -> None:
    assert work("a", ledger="a.ledger.db")[2] == 8
    if not known:
        # An earlier version did not note which of its tasks were simulated.
        with sqlite3.connect("a.ledger.db") as connection:
            connection.execute("UPDATE tasks SET simulated = NULL")
    os.rename("a.db", "real.db")
    for _ in range(2):
        assert work("a", seed=1) == (Path("a.simulated.ledger.db"), (), 8)
    with Ledger("a.ledger.db") as ledger:
        assert ledger.totals().releases == 8
    assert default_ledger(SOURCE, "b", simulated=False) == Path("a.ledger.db")


def test_ledgers_that_are_used_at_the_same_moment_are_all_noted(folder: Path) -> None:
    """Each command reads the note and writes it: the other's must not come between."""
    start = threading.Barrier(6)

    def use(number: int) -> None:
        with Ledger(f"{number}.ledger.db") as ledger:
            source = FileSource(SOURCE, make_task(), person_column="who")
            start.wait()
            register(source, ledger)

    threads = [threading.Thread(target=use, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = json.loads((folder / "data" / "people.csv.ledgers.json").read_text())["ledgers"]
    assert len(found) == 6
    assert {path.name for path in (folder / "data").iterdir()} == {"people.csv", "people.csv.ledgers.json"}


def test_the_folder_is_locked_no_longer_than_it_takes(folder: Path) -> None:
    with Ledger("a.ledger.db") as ledger:
        register(FileSource(SOURCE, make_task(), person_column="who"), ledger)
    place = os.open(folder / "data", os.O_RDONLY)
    fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(place)


def test_a_folder_without_locks_is_no_reason_to_stop(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(handle: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(ledger_places.fcntl, "flock", flock)
    with Ledger("a.ledger.db") as ledger:
        register(FileSource(SOURCE, make_task(), person_column="who"), ledger)
    assert (folder / "data" / "people.csv.ledgers.json").exists()


def test_a_file_that_changed_has_new_people_where_rows_are_people(folder: Path) -> None:
    work("a")
    write_people(folder / SOURCE, 9)
    place, [warning], released = work("b")
    assert (place, released) == (Path("data/people.ledger.db"), 9)
    assert "taken for new people" in warning
    # Rows and names cannot be compared; the same column's names are the same people in another file.
    [warning] = work("c", person="who")[1]
    assert "a person may have several" in warning
    write_people(folder / SOURCE, 10)
    [warning] = work("d", person="who")[1]
    assert "named by their rows" in warning


def test_no_room_beside_the_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *anything: False)
    with pytest.raises(UserError, match="which cannot be written: name a ledger with --ledger"):
        default_ledger(SOURCE, "a", simulated=False)


def test_what_cannot_be_read(folder: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        default_ledger("data/nobody.csv", "a", simulated=False)
    Path("data/people.csv.ledgers.json").write_text(json.dumps({"ledger": 1}))
    with pytest.raises(MurkError, match="cannot be read: it lists the ledgers"):
        default_ledger(SOURCE, "a", simulated=False)
    Path("data/people.csv.ledgers.json").unlink()
    # What lies where earlier versions had the ledger is opened, and so refused.
    Path("a.ledger.db").write_text("no ledger")
    with pytest.raises(UserError, match="not a ledger"):
        Ledger(default_ledger(SOURCE, "a", simulated=False))


def test_the_note_is_for_its_owner_alone(folder: Path) -> None:
    work("a")
    note = folder / "data" / "people.csv.ledgers.json"
    assert note.stat().st_mode & 0o077 == 0
    [one] = json.loads(note.read_text())["ledgers"]
    assert one["path"] == "people.ledger.db"


@pytest.mark.parametrize("left", ["", "-wal", ".0123456789abc.run.json"])
def test_a_ledger_at_the_old_place_that_is_lost_or_damaged_is_not_replaced(folder: Path, left: str) -> None:
    """A new one would let everybody spend again."""
    Path(f"a.ledger.db{left}").touch()
    assert default_ledger(SOURCE, "a", simulated=False) == Path("a.ledger.db")
    if left:
        assert default_ledger(SOURCE, "b", simulated=False) == Path("data/people.ledger.db")


@pytest.mark.parametrize("content", [b"", b"SQLite format 3\0 and no more"])
def test_a_damaged_ledger_nearby_may_be_theirs(folder: Path, content: bytes) -> None:
    Path("data/other.ledger.db").write_bytes(content)
    with pytest.raises(UserError, match=r"other\.ledger\.db cannot be read, and may hold the accounts"):
        default_ledger(SOURCE, "a", simulated=False)


def test_a_ledger_nearby_whose_key_is_lost_may_be_theirs(folder: Path) -> None:
    work("a", ledger="mine.ledger.db")
    Path("data/people.csv.ledgers.json").unlink()
    assert default_ledger(SOURCE, "b", simulated=False) == Path("mine.ledger.db")
    Path("mine.ledger.db.key").rename("elsewhere")
    with pytest.raises(UserError, match=r"mine\.ledger\.db cannot be read.* its key \(mine\.ledger\.db\.key\)"):
        default_ledger(SOURCE, "b", simulated=False)


def test_a_cap_over_all_tasks_is_not_undone_by_a_changed_file(folder: Path) -> None:
    assert work("a", lifetime=GaussianDP(1.2))[2] == 8
    with SOURCE.open("a") as file:
        file.write("\n")
    with pytest.raises(UserError, match="they could spend the cap over all tasks again"):
        work("b")
    assert not Path("b.db").exists() or open_log("sqlite:///b.db").document() is None


def frames() -> dict[str, pd.DataFrame]:
    """The people's records, as somebody has them again who wants to ask them twice."""
    whole = pd.read_csv(SOURCE)
    return {
        "another column": whole.assign(note=0),
        "sorted": whole.sort_values("who", ascending=False),
        "integers as floats": whole.assign(age=whole["age"].astype(float)),
    }


@pytest.mark.parametrize("first_capped", [True, False])
def test_a_cap_over_all_tasks_is_not_undone_by_records_in_memory(folder: Path, first_capped: bool) -> None:
    cap = GaussianDP(1.0)
    frame = pd.read_csv(SOURCE)
    assert work("a", "L.db", frame, lifetime=cap if first_capped else None)[2] == 8
    frames()["sorted"].to_json("data/people.jsonl", orient="records", lines=True)
    for source in (*frames().values(), SOURCE, Path("data/people.jsonl")):
        with pytest.raises(UserError, match="they could spend the cap over all tasks again"):
            work("b", "L.db", source, lifetime=cap)
    with pytest.raises(UserError, match="and not by names"):
        work("b", "L.db", frame, "who", lifetime=cap)
    assert open_log("sqlite:///b.db").document() is None
    # The very same records are the same people: whoever asks them, their cap holds.
    assert work("c", "L.db", frame, lifetime=cap)[2] == 0
    with Ledger("L.db") as ledger:
        assert ledger.totals().releases == 8
    # And others have a ledger of their own.
    assert work("b", "other.db", SOURCE, lifetime=cap)[2] == 8


def test_people_with_names_are_known_in_any_records_and_rows_are_not_taken_for_them(folder: Path) -> None:
    cap, kinds = GaussianDP(1.0), frames()
    # Each of four people has two rows.
    assert work("a", "L.db", kinds["sorted"], "who", lifetime=cap)[2] == 4
    for number, source in enumerate((SOURCE, *kinds.values())):
        assert work(f"b{number}", "L.db", source, "who")[2] == 0
    with pytest.raises(UserError, match="and not by names"):
        work("c", "L.db")


def test_whoever_works_through_records_by_hand_cannot_undo_a_cap_either(folder: Path) -> None:
    cap = Policy(lifetime=GaussianDP(1.0))
    task = make_task(simulated=False)
    work("a", "L.db", lifetime=GaussianDP(1.0))
    with open_log("sqlite:///by-hand.db") as log, Ledger("L.db") as ledger:
        log.register_task(task.document())
        source = FileSource(frames()["sorted"], task)
        with pytest.raises(UserError, match="the cap over all tasks"):
            Producer(task, log, ledger, policy=cap).begin(source)


def test_without_a_cap_changed_records_in_memory_are_warned_of(folder: Path) -> None:
    assert work("a", "L.db", frames()["sorted"])[1] == ()
    place, [warning], released = work("b", "L.db", frames()["another column"])
    assert (place, released) == (Path("L.db"), 8)
    assert "taken for new people" in warning
    # It is said once; and simulations are nobody's spending.
    assert work("b", "L.db", frames()["another column"])[1] == ()
    assert work("s", "S.db", frames()["sorted"], seed=1)[1] == ()
    assert work("t", "S.db", seed=1, lifetime=GaussianDP(1.0))[2] == 8


def test_the_note_beside_a_file_has_no_digest_of_it(folder: Path) -> None:
    """Earlier versions wrote one: it goes with the next run, whichever ledger that uses."""
    work("a")
    note = folder / "data" / "people.csv.ledgers.json"
    found = json.loads(note.read_text())
    assert [one.keys() for one in found["ledgers"]] == [{"path", "identity"}]
    found["ledgers"][0]["rows"] = hashlib.sha256(SOURCE.read_bytes()).hexdigest()
    note.write_text(json.dumps(found))
    work("b", ledger="mine.db")
    assert hashlib.sha256(SOURCE.read_bytes()).hexdigest() not in note.read_text()
    assert len(json.loads(note.read_text())["ledgers"]) == 2
