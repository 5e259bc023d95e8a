"""A file's people on a log: carried on with the same file and ledger only, and nobody published who left."""

import json
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from murk import Task
from murk.errors import UserError
from murk.populations import FileSource, file_work
from murk.populations import people as population_module
from murk.populations.ledger_places import begun_with
from murk.populations.local_run import LocalRun
from murk.populations.people import Agree, Population, PopulationConfig, open_accounts
from murk.privacy.noise import SimulatedNoise
from murk.producers import Ledger, Policy
from murk.stream import open_log
from murk.stream.log.interface import UnreachableError
from murk.stream.log.sqlite import SqliteLog
from murk.task.task import Disclosure
from tests.producers.world import TEXT, Wrapped, make_task, write_people

AGREED = Policy(public_sample=True)
SET_ASIDE = "public: {set_aside: 8}"
MANY_ASIDE = "public: {set_aside: 24}"
"""So many that secure noise does not draw women of one kind alone: with 8 it did once in a hundred times."""


@contextmanager
def population(
    folder: Path,
    *more: str,
    ledger: str = "ledger.db",
    person: str | None = None,
    policy: Policy | None = None,
    agree: Agree | None = None,
    seed: int | None = 7,
    source: str = "people.csv",
) -> Iterator[Population]:
    crowd = PopulationConfig(folder / source, person=person, seed=seed, policy=policy or AGREED, agree=agree)
    with open_log(f"sqlite:///{folder}/log.db") as log, open_accounts(log, folder / ledger) as accounts:
        task = make_task(*more, simulated=False)
        people = Population(task, crowd, log, accounts)
        try:
            yield people
        finally:
            people.close()


def work(folder: Path, *more: str, seed: int | None = 7) -> None:
    crowd = PopulationConfig(folder / "people.csv", seed=seed, policy=AGREED)
    task = make_task(*more, simulated=False)
    with LocalRun(task, crowd, f"sqlite:///{folder}/log.db", folder / "ledger.db") as run:
        assert len(list(run.steps())) > 1


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_people(tmp_path / "people.csv", 40)
    write_people(tmp_path / "others.csv", 41)
    return tmp_path


def test_a_name_that_is_refused_stops_the_file_before_anything_is_sent(folder: Path) -> None:
    text = (folder / "people.csv").read_text()
    (folder / "people.csv").write_text(text.replace("person-19", "person-19\u200b"))
    with (
        pytest.raises(UserError, match=r"row 39, column 'who'.*invisible or non-text character"),
        population(folder, person="who"),
    ):
        pass
    with open_log(f"sqlite:///{folder}/log.db") as log, Ledger(folder / "ledger.db") as ledger:
        assert log.document() is None
        assert ledger.totals().releases == 0


@pytest.mark.parametrize("more", [(), (MANY_ASIDE,)])
@pytest.mark.parametrize("seed", [7, None])
def test_without_its_note_a_log_takes_no_other_ledger_or_file(
    folder: Path, more: tuple[str, ...], seed: int | None
) -> None:
    work(folder, *more, seed=seed)
    (folder / "log.db.run.json").unlink()
    for change in ({"source": "others.csv"}, {"ledger": "other.db"}):
        if "ledger" in change:
            # No ledger is made where the work has begun; one that is there already does not help either.
            with pytest.raises(UserError, match="there is no ledger"), population(folder, *more, seed=seed, **change):
                pass
            assert not (folder / "other.db").exists()
            Ledger(folder / "other.db").close()
        with (
            pytest.raises(
                UserError, match=r"another file than .*, or another ledger than .*same --source and --ledger"
            ),
            population(folder, *more, seed=seed, **change),
        ):
            pass
    with population(folder, *more, seed=seed) as people:
        assert people.releases == 40 - len(people.excluded)
        assert [step.releases for step in people.steps()] == [40 - 24 * len(more)]


def test_with_its_note_another_file_is_named(folder: Path) -> None:
    work(folder)
    with (
        pytest.raises(UserError, match="another file: give the same --source"),
        population(folder, source="others.csv"),
    ):
        pass


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seed": 8}, "--seed 7, not --seed 8: give the same --seed"),
        ({"person": "who"}, "no --person, not --person who: give the same --person"),
    ],
)
def test_a_log_is_carried_on_with_what_it_was_begun_with(folder: Path, change: dict[str, Any], words: str) -> None:
    work(folder)
    with pytest.raises(UserError, match=f"was started with {words}"), population(folder, **change):
        pass


def test_its_note_says_nothing_of_the_people(folder: Path) -> None:
    work(folder)
    note = folder / "log.db.run.json"
    assert set(json.loads(note.read_text())) == {"person", "time", "level", "seed", "ledger", "order", "log"}
    assert FileSource(folder / "people.csv", make_task()).digest not in note.read_text()
    assert stat.S_IMODE(note.stat().st_mode) == 0o600


@pytest.mark.parametrize("person", [None, "who"])
def test_rows_of_a_second_file_are_nobody_new(folder: Path, person: str | None) -> None:
    """One row was corrected: the others' accounts would begin again."""
    with population(folder) as people:
        list(people.steps())
        task, ledger = people.task, people.ledger
        with pytest.raises(UserError, match="in two files, and people could release twice"):
            people.producer.begin(FileSource(folder / "others.csv", task, person_column=person))
        assert ledger.run(task.hash, FileSource(folder / "others.csv", task).digest) is None


def test_names_of_a_second_file_have_accounts(folder: Path) -> None:
    with population(folder, person="who") as people:
        list(people.steps())
        second = FileSource(folder / "others.csv", people.task, person_column="who")
        assert people.producer.begin(second).next_row == 0
        [block] = second.blocks()
        # Of the 41 rows of 21 names only the last name has not released before.
        assert people.producer.release_block(block).released == 1


def test_a_second_gateway_looks_at_all_its_file_before_it_releases(folder: Path) -> None:
    """On a cluster's log another gateway has begun; a value in the middle must not decide when this one stops."""
    task = make_task(simulated=False)
    broken = (folder / "others.csv").read_text().replace("34,yes,JFK", "34,yes,S3CR3T", 1)
    (folder / "others.csv").write_text(broken)
    assert broken.count("S3CR3T") == 1
    with open_log(f"sqlite:///{folder}/log.db") as file:
        # As on a cluster, where several machines let their own people release.
        log: Any = Wrapped(file, url="kafka://localhost:9092/third-child")
        for ledger, source in (("ledger.db", "people.csv"), ("second.db", "others.csv")):
            with open_accounts(log, folder / ledger) as accounts:
                crowd = PopulationConfig(folder / source, seed=7)
                if source == "people.csv":
                    people = Population(task, crowd, log, accounts)
                    next(people.steps())
                    people.close()
                    continue
                with pytest.raises(UserError, match=r"others.csv, row \d+, column 'origin'") as found:
                    Population(task, crowd, log, accounts)
                assert "S3CR3T" not in str(found.value)
                assert accounts.totals().releases == 0


def test_a_second_gateway_is_asked_what_the_first_was(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether its people are in the public sample, and whether its labels can teach anything; then it is noted."""
    checked: list[str] = []
    check = file_work.check_apart

    def noted(source: FileSource, path: Path) -> None:
        checked.append(source.path.name)
        check(source, path)

    monkeypatch.setattr(file_work, "check_apart", noted)
    write_people(folder / "third.csv", 50)
    rows = (folder / "others.csv").read_text().splitlines()
    alike = [rows[0], *(row for row in rows[1:] if row.split(",")[3] == "no")]
    (folder / "alike.csv").write_text("\n".join(alike) + "\n")
    of_others = product((21, 27, 34), ("no", "yes"), ("EWR", "JFK", "LGA"))
    (folder / "public.csv").write_text("age,same_sex,origin\n" + "".join(f"{a},{b},{c}\n" for a, b, c in of_others))
    task = make_task(f"public: {{file: {folder}/public.csv}}", simulated=False)
    with open_log(f"sqlite:///{folder}/log.db") as file:
        log: Any = Wrapped(file, url="kafka://localhost:9092/third-child")
        for source, refused in (("people", False), ("others", False), ("alike", True), ("third", False)):
            if source == "third":
                (folder / "public.csv").rename(folder / "moved.csv")
            with open_accounts(log, folder / f"{source}.db") as accounts:
                crowd = PopulationConfig(folder / f"{source}.csv", seed=7, policy=AGREED)
                if refused:
                    with pytest.raises(UserError, match="so nothing could be learned"):
                        Population(task, crowd, log, accounts)
                    assert begun_with(log, folder / f"{source}.db") is None
                    continue
                carried = task if source != "third" else Task.from_document(file.document() or b"").without_public()
                Population(carried, crowd, log, accounts).close()
                assert begun_with(log, folder / f"{source}.db") == accounts.identity
    assert checked == ["people.csv", "others.csv", "alike.csv"]


def test_two_at_work_on_one_log(folder: Path) -> None:
    with (
        population(folder) as first,
        pytest.raises(UserError, match="another `murk run` or `murk produce` is working on"),
        population(folder),
    ):
        pass
    del first
    with population(folder):
        pass


def test_whoever_has_withdrawn_is_not_published(folder: Path) -> None:
    """Of 40 rows 30 have withdrawn, from everything or from the task: the sample is among the other 10."""
    digest = FileSource(folder / "people.csv", make_task()).digest
    with Ledger(folder / "ledger.db") as ledger:
        # The task as an earlier process left it that died before the log had it.
        ledger.bind("another-log", "ab" * 32, name="third-child")
        ledger.bind("another-log", "cd" * 32, name="another task")
        for row in range(30):
            ledger.withdraw(row, source=digest, task_hash="ab" * 32 if row % 2 else None)
        for row in range(30, 40):
            ledger.withdraw(row, source=digest, task_hash="cd" * 32)
    with population(folder, SET_ASIDE) as people:
        assert len(people.excluded) == 8
        assert min(people.excluded) >= 30


def test_not_enough_are_left_to_be_set_aside(folder: Path) -> None:
    digest = FileSource(folder / "people.csv", make_task()).digest
    with Ledger(folder / "ledger.db") as ledger:
        for row in range(32):
            ledger.withdraw(row, source=digest)
    with (
        pytest.raises(UserError, match="has 40 rows, 32 of them of people who have withdrawn"),
        population(folder, SET_ASIDE),
    ):
        pass


def test_a_sample_without_those_who_left_is_drawn_alike(folder: Path) -> None:
    source = FileSource(folder / "people.csv", make_task())
    rows = source.select(8, SimulatedNoise(3))
    left = [row for row in range(40) if row not in rows]
    assert source.select(8, SimulatedNoise(3), excluded=left[:20]) == rows
    assert source.select(8, SimulatedNoise(3), excluded=[*rows, 99]) != rows
    with pytest.raises(UserError, match=r"8 rows cannot be set aside: .* has 7"):
        source.select(8, SimulatedNoise(3), excluded=range(33))


def test_another_sample_gives_nobody_another_cap(folder: Path) -> None:
    """A task with another public sample has another hash; to its people it is the same task."""
    with population(folder, MANY_ASIDE, seed=None) as people:
        list(people.steps())
        released = people.ledger.totals().releases
    for left in folder.glob("log.db*"):
        left.unlink()
    with (
        open_log(f"sqlite:///{folder}/log.db") as log,
        Ledger(folder / "ledger.db") as accounts,
    ):
        crowd = PopulationConfig(folder / "people.csv", policy=AGREED)
        with pytest.raises(UserError, match="have released to a task named 'third-child' already"):
            Population(make_task(MANY_ASIDE, simulated=False), crowd, log, accounts)
        assert accounts.totals().releases == released == 16


def test_an_account_says_who_was_published(folder: Path) -> None:
    with population(folder, SET_ASIDE) as people:
        list(people.steps())
        for row in range(40):
            account = people.ledger.account(row, source=people.source.digest)
            words = "\n".join(account.describe())
            [task] = account.tasks
            assert task.published == (row in people.excluded)
            assert task.published == (not task.levels)
            said = "this person's features (without the target) are published with the task 'third-child'" in words
            assert said == task.published
            assert "Nothing was ever released" not in words


def test_a_policy_must_allow_a_public_sample(folder: Path) -> None:
    strict = Policy()
    assert not strict.public_sample
    with (
        pytest.raises(UserError, match=r"policy does not allow .* `public.file`"),
        population(folder, SET_ASIDE, policy=strict),
    ):
        pass
    with open_log(f"sqlite:///{folder}/log.db") as log:
        assert log.document() is None
    with population(folder, policy=strict) as people:
        assert people.excluded == frozenset()


def test_a_policy_must_allow_a_public_file_where_nobody_is_asked(folder: Path) -> None:
    """No default publishes anybody's features: not those of a file, either."""
    rows = [f"{22 + at % 7},{('no', 'yes')[at % 2]},{('EWR', 'JFK', 'LGA')[at % 3]}" for at in range(80)]
    (folder / "public.csv").write_text("\n".join(["age,same_sex,origin", *rows]) + "\n")
    task = f"public: {{file: {folder}/public.csv}}"
    with (
        pytest.raises(
            UserError, match=r"policy does not allow the features of 80 people to become public .*'third-child'"
        ),
        population(folder, task, policy=Policy(), seed=None),
    ):
        pass
    with pytest.raises(UserError, match="policy does not allow"):
        LocalRun(
            make_task(task, simulated=False),
            PopulationConfig(folder / "people.csv"),
            f"sqlite:///{folder}/log.db",
            folder / "ledger.db",
        )
    with open_log(f"sqlite:///{folder}/log.db") as log:
        assert log.document() is None
    # Whoever is asked answers; and the policy is an agreement in itself.
    asked: list[Disclosure] = []
    with population(folder, task, policy=Policy(), agree=asked.append, seed=None) as people:
        assert people.task.covariates is not None
    assert len(asked) == 1
    # What a log carries is public already.
    with population(folder, task, policy=Policy(), seed=None):
        pass


def test_what_becomes_public_is_agreed_to_before_anything_is_written(folder: Path) -> None:
    asked: list[Disclosure] = []

    def decline(disclosure: Disclosure) -> None:
        asked.append(disclosure)
        raise UserError("no")

    with pytest.raises(UserError, match=r"^no$"), population(folder, SET_ASIDE, agree=decline):
        pass
    features = ("age", "same_sex", "origin")
    assert asked == [Disclosure(features, "third_child", 8, None)]
    with open_log(f"sqlite:///{folder}/log.db") as log, Ledger(folder / "ledger.db") as ledger:
        assert log.document() is None
        assert ledger.totals().people == 0
    with population(folder, SET_ASIDE, agree=asked.append) as people:
        assert Disclosure.of(people.task) == asked[0]
    # What is public already is not asked about again; where nothing becomes public nobody is asked.
    with population(folder, SET_ASIDE, agree=decline) as people:
        assert len(people.excluded) == 8
    assert len(asked) == 2


def test_a_level_may_be_called_column(folder: Path) -> None:
    """Only with a colon after it does a column say who has which."""
    text = TEXT.replace("strict:", "column:")
    source = PopulationConfig(folder / "people.csv", level="column").open(make_task(text=text))
    assert (source.level, source.level_column) == ("column", None)
    with pytest.raises(UserError, match="nowhere"):
        PopulationConfig(folder / "people.csv", level="column:nowhere").open(make_task(text=text))


def test_what_the_last_block_could_not_send_is_sent_when_it_is_carried_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though all records are done, and no block follows that would send it."""

    append = SqliteLog.append

    def away(self: SqliteLog, batch: Sequence[tuple[int, bytes]]) -> None:
        if sum(map(self.end, range(self.partitions))) + len(batch) == 40:
            raise UnreachableError("away")
        append(self, batch)

    with population(folder) as people:
        with monkeypatch.context() as patch:
            patch.setattr(SqliteLog, "append", away)
            with pytest.raises(UnreachableError):
                list(people.steps())
        assert people.ledger.pending() > 0
    with population(folder) as people:
        assert len(list(people.steps())) == 1
        assert (people.next_position, people.releases, people.ledger.pending()) == (40, 40, 0)
        assert sum(people.log.end(partition) for partition in range(people.log.partitions)) == 40


def test_a_block_that_could_not_be_sent_counts_where_the_same_process_goes_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stands in the ledger: its rows are not read again, and its releases are among the sums."""
    append = SqliteLog.append

    def away(self: SqliteLog, batch: Sequence[tuple[int, bytes]]) -> None:
        if self.end(0) + len(batch) > 20:
            raise UnreachableError("away")
        append(self, batch)

    with population(folder) as people:
        with monkeypatch.context() as patch:
            patch.setattr(SqliteLog, "append", away)
            with pytest.raises(UnreachableError):
                list(people.steps())
        before, booked = people.next_position, people.ledger.totals().releases
        assert before <= 20 < booked
        steps = list(people.steps())
        assert (steps[0].rows, steps[0].releases, steps[0].refused) == (booked, booked, 0)
        assert (steps[-1].rows, steps[-1].releases, steps[-1].refused, people.log.end(0)) == (40, 40, 0, 40)


@pytest.mark.parametrize(("person", "people", "released"), [(None, 40, 32), ("who", 20, 20)])
def test_figures_of_a_file(folder: Path, person: str | None, people: int, released: int) -> None:
    with population(folder, *([] if person else [SET_ASIDE]), person=person) as found:
        *_, last = found.steps()
        assert (last.rows, last.releases, last.refused) == (people, released, 0)
        assert found.figures() == {
            "people": people, "records": 40, "undeclared_labels": None,
            "set_aside": 40 - 32 if person is None else 0, "refusals": 0,
        }  # fmt: skip
        assert found.words() == "0 refused"


def test_how_many_records_a_block_has(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as a model allows, at most 16,384; on several partitions a twentieth of what was released, or 256."""
    allowed = [10**6]
    device = SimpleNamespace(block=lambda releases: allowed[0], shares_models=False)
    for partitions, sizes in (
        (1, {0: 16_384, 10**7: 16_384}), (2, {0: 256, 5139: 256, 5140: 257, 10**5: 5000, 10**7: 16_384})
    ):  # fmt: skip
        (folder / str(partitions)).mkdir()
        write_people(folder / str(partitions) / "people.csv", 40)
        more = f"log: {{partitions: {partitions}}}"
        with population(folder / str(partitions), more) as people, monkeypatch.context() as at:
            at.setattr(population_module, "interactive_of", lambda of: device)
            for releases, size in sizes.items():
                people._counters = {"released": releases}
                assert people._size() == size
                people.crowd = replace(people.crowd, block=100)
                assert people._size() == 100
                people.crowd = replace(people.crowd, block=10**6)
                assert people._size() == size
            allowed[0] = 7
            assert people._size() == 7
            allowed[0] = 10**6
            at.setattr(population_module, "interactive_of", lambda of: None)
            assert people._size() == population_module.BLOCK


@pytest.mark.parametrize("simulated", [True, False])
def test_accounts_are_not_opened_for_releases_of_the_other_kind(tmp_path: Path, simulated: bool) -> None:
    with open_log(f"sqlite:///{tmp_path}/log.db") as log:
        log.register_task(make_task(simulated=simulated).document())
        words = ("simulated", "give its --seed") if simulated else ("real", "leave --seed out")
        with pytest.raises(UserError, match=f"carries {words[0]} releases, .*: {words[1]}, or use another log"):
            open_accounts(log, tmp_path / "ledger.db", simulated=not simulated)
        assert not (tmp_path / "ledger.db").exists()


def test_nothing_is_begun_on_what_cannot_lead_to_anything(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The people as their own public file, and a state that no log would take."""

    def unwritten() -> bool:
        with open_log(f"sqlite:///{folder}/log.db") as log:
            return log.document() is None

    public = f"public: {{file: {folder}/people.csv}}"
    with pytest.raises(UserError, match=r"people\.csv holds people of"), population(folder, public):
        pass
    assert unwritten()

    def too_large(device: object) -> None:
        raise UserError("a state of 9 GiB")

    monkeypatch.setattr("murk.protocols.gradients.device.GradientDevice.check_state", too_large)
    with pytest.raises(UserError, match="a state of 9 GiB"), population(folder):
        pass
    assert unwritten()


def test_what_devices_refuse_is_not_announced(folder: Path) -> None:
    """A log carries its task for life."""
    refusing = Policy(mechanisms=frozenset({"laplace"}))
    with pytest.raises(UserError, match="policy"), population(folder, policy=refusing):
        pass
    with open_log(f"sqlite:///{folder}/log.db") as log:
        assert log.document() is None


def test_another_task_is_not_begun_on_a_log_that_carries_one(folder: Path) -> None:
    with population(folder):
        pass
    words = r"differs in: expiry\. The task of a log cannot be changed"
    with pytest.raises(UserError, match=words), population(folder, "expiry: 3d"):
        pass


def test_a_log_is_carried_on_with_other_settings_of_its_own(folder: Path) -> None:
    for more, days in (((), 8), (("log: {retention: 40d}",), 40)):
        with population(folder, *more) as people:
            assert people.task.log.retention == days * 86_400
        with open_log(f"sqlite:///{folder}/log.db") as log:
            assert Task.from_document(log.document() or b"").log.retention == days * 86_400


def test_those_set_aside_are_of_one_file_also_on_a_cluster(folder: Path) -> None:
    task = make_task(SET_ASIDE, simulated=False)
    with open_log(f"sqlite:///{folder}/log.db") as file:
        log: Any = Wrapped(file, url="kafka://localhost:9092/third-child")
        for source, words in (("people", ""), ("others", "another file than .*others.csv, or another ledger")):
            with open_accounts(log, folder / f"{source}.db") as accounts:
                crowd = PopulationConfig(folder / f"{source}.csv", seed=7, policy=AGREED)
                if not words:
                    Population(task, crowd, log, accounts).close()
                    continue
                with pytest.raises(UserError, match=words):
                    Population(task, crowd, log, accounts)


def test_a_log_is_made_ready_before_accounts_are_tied_to_it(folder: Path) -> None:
    done: list[str] = []
    with open_log(f"sqlite:///{folder}/log.db") as log, Ledger(folder / "ledger.db") as ledger:

        def prepare(document: bytes) -> None:
            assert log.document() is None
            with pytest.raises(UserError, match="knows no task of the name 'third-child'"):
                ledger.tasks_named("third-child")
            done.append(Task.from_document(document).name)

        wrapped: Any = Wrapped(log, prepare=prepare)
        Population(make_task(simulated=False), PopulationConfig(folder / "people.csv", seed=7), wrapped, ledger).close()
    assert done == ["third-child"]
