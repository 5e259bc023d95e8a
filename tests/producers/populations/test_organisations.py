"""The organisations of a file: windows by rows, each released once, whatever dies in between."""

import csv
import random
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from murk import Task
from murk.errors import MurkError, UserError
from murk.populations import organisations
from murk.populations.file_work import PopulationConfig
from murk.populations.order import key_of_seed
from murk.populations.organisations import OrganisationPopulation
from murk.populations.people import Population, open_accounts, population_of
from murk.privacy.central import SketchAccumulator
from murk.producers import Ledger, OrganisationProducer, Policy
from murk.producers.ledger.spending import Spending
from murk.stream import open_log
from murk.stream.log.interface import UnreachableError
from murk.stream.wire.releases import SketchRelease
from tests.producers.ledger.accounts import by_name
from tests.producers.sketches.organisations import make_task, write_records
from tests.producers.test_crashes import Killer, Watch, after, before, in_child, patched
from tests.producers.world import SECRET, Wrapped, write_people
from tests.producers.world import make_task as people_task

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")

ROWS = 230
WHOLE, SPLIT = "rows: 8, window: 50", "rows: 8, window: 50, organisation: clinic"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_records(tmp_path / "records.csv", ROWS)
    return tmp_path


@contextmanager
def population(
    folder: Path, task: Task, wrap: Callable[[Any], Any] = lambda log: log, **options: Any
) -> Iterator[OrganisationPopulation]:
    crowd = PopulationConfig(folder / "records.csv", seed=7, **options)
    task = task.with_simulated(False)
    with open_log(f"sqlite:///{folder}/log.db") as log, open_accounts(log, folder / "ledger.db") as accounts:
        for database in (log._database, accounts._file):  # type: ignore[attr-defined]
            database._connection.execute("PRAGMA synchronous = OFF")
        people = population_of(task, crowd, wrap(log), accounts)
        assert isinstance(people, OrganisationPopulation)
        try:
            yield people
        finally:
            people.close()


def work(folder: Path, task: Task, **options: Any) -> dict[str, Any]:
    with population(folder, task, **options) as people:
        for _ in people.steps():
            pass
        return people.figures()


PLACES = ("north", "south", "organisation")


def clinics() -> dict[str, list[int]]:
    """The rows of each of the two clinics."""
    found: dict[str, list[int]] = {"north": [], "south": []}
    for row in range(ROWS):
        found[("north", "south")[row * row % 7 < 3]].append(row)
    return found


def left(folder: Path, task: Task) -> tuple[Any, ...]:
    """All that a run leaves behind, but how often windows were lost."""
    with open_log(f"sqlite:///{folder}/log.db") as log, Ledger(folder / "ledger.db") as ledger:
        ledger.delete_confirmed()
        messages = [
            [one.value for one in log.read(partition, 0, 1000)] if log.end(partition) else []
            for partition in range(log.partitions)
        ]
        tables = [
            sorted(by_name(ledger, ledger._file.query(f"SELECT {columns} FROM {table}"), *PLACES))
            for table, columns in {
                "debits": "*",
                "spending": "*",
                "outbox": "number",
                "windows": "task, source, key, person, opened, state, records, next_row",
            }.items()
        ]
        return messages, tables


class TestWindows:
    def test_of_the_whole_file(self, folder: Path) -> None:
        task = make_task(WHOLE, windows=9)
        found = work(folder, task)
        # 230 = 4 x 50 + 30, and a sketch has 8 rows.
        assert found["organisations"] == 1
        assert (found["windows"], found["records_released"], found["windows_left_out"]) == (5, 230, 0)
        assert (found["refusals"], found["refusal"], found["windows_lost"], found["sketch_rows"]) == (0, None, 0, 8)
        with Ledger(folder / "ledger.db") as ledger:
            keys = ledger._file.query("SELECT key, person, next_row FROM windows ORDER BY key")
            name = ledger.names.reading().person("organisation")
        assert keys == [(start, name, min(ROWS, start + 50)) for start in range(0, ROWS, 50)]

    def test_are_those_of_a_producer(self, folder: Path, tmp_path: Path) -> None:
        task = make_task(SPLIT, windows=9)
        with population(folder, task) as people:
            list(people.steps())
            own = people.task
            sent = {(one.records, one.payload) for one in self.releases(people)}
            assert people.crowd.seed is not None
            blocks = people.source.blocks_in_order(key_of_seed(people.crowd.seed), 0, ROWS)
            block = next(blocks)
            assert block.people is not None
            (tmp_path / "other").mkdir()
            with open_log(f"sqlite:///{tmp_path}/other/log.db") as log, Ledger(tmp_path / "other" / "l.db") as ledger:
                log.register_task(own.document())
                for name in clinics():
                    rows = [index for index, own_name in enumerate(block.people) if own_name == name]
                    producer = OrganisationProducer(
                        own, log, ledger, organisation=name, noise=people.crowd.noise, device=people.device,
                        source=people.source.digest,
                    )  # fmt: skip
                    producer.add_block(block.x[rows], block.y[rows], rows=block.positions[rows].tolist())
                    assert producer.records == len(rows) % 50
                    if producer.records:
                        producer.release()
                assert {(one.records, one.payload) for one in self.releases(people, log)} == sent

    @staticmethod
    def releases(people: OrganisationPopulation, log: Any = None) -> list[Any]:
        log = log or people.log
        return [SketchRelease.model_validate_json(one.value) for one in log.read(0, 0, 1000)]

    def test_are_told_of_as_they_end(self, folder: Path) -> None:
        """Of 230 records in windows of 50, of which three may be released; the others are refused when they begin."""
        with population(folder, make_task(WHOLE, windows=3), block=60) as people:
            told = [(step.rows, step.releases, step.refused, people.words()) for step in people.steps()]
            assert told == [
                (0, 0, 0, "0 windows released, 0 refused, 0 records in open ones"),
                (60, 1, 0, "1 windows released, 0 refused, 10 records in open ones"),
                (120, 2, 0, "2 windows released, 0 refused, 20 records in open ones"),
                (180, 3, 1, "3 windows released, 1 refused, 30 records in open ones"),
                (230, 3, 2, "3 windows released, 2 refused, 30 records in open ones"),
                (230, 3, 2, "3 windows released, 2 refused, 0 records in open ones"),
            ]
            assert people.notice == ""
        # Rows of windows that have ended are not read again.
        with population(folder, make_task(WHOLE, windows=3), block=60) as people:
            assert [(step.rows, step.releases, step.refused) for step in people.steps()] == [(230, 3, 2)] * 2
        assert organisations.MOST == 1000

    @pytest.mark.parametrize(("lost", "words"), [(1, "a window was lost"), (2, "2 windows were lost")])
    def test_that_were_lost_are_told_of(self, folder: Path, lost: int, words: str) -> None:
        task = make_task("rows: 8, organisation: clinic" if lost == 2 else "rows: 8")
        with population(folder, task, block=100) as people:
            steps = people.steps()
            next(steps), next(steps)
        with population(folder, task) as people:
            assert (people.lost, people.notice.startswith(words)) == (lost, True)

    def test_of_two_organisations(self, folder: Path) -> None:
        found = work(folder, make_task(SPLIT, windows=9))
        sizes = [len(rows) for rows in clinics().values()]
        assert (found["organisations"], found["records"]) == (2, ROWS)
        assert found["records_released"] == sum(sizes) == ROWS
        assert found["windows"] == sum(-(-size // 50) for size in sizes)
        with Ledger(folder / "ledger.db") as ledger:
            for name, rows in clinics().items():
                [task] = ledger.account(name).tasks
                assert task.levels[0].released == -(-len(rows) // 50)
                assert task.windows is not None
                assert task.windows.records == len(rows)

    def test_do_not_depend_on_blocks(self, tmp_path: Path) -> None:
        found = []
        for block in (None, 1, 7, 60):
            folder = tmp_path / str(block)
            folder.mkdir()
            write_records(folder / "records.csv", ROWS)
            task = make_task(SPLIT, "log: {partitions: 2}", windows=9)
            work(folder, task, block=block)
            found.append(left(folder, task))
        assert found[0] == found[1] == found[2] == found[3]

    def test_that_are_too_small_at_the_end_are_left_out(self, folder: Path) -> None:
        found = work(folder, make_task("rows: 31, window: 50, method: mixing", windows=9))
        assert (found["windows"], found["windows_left_out"]) == (4, 1)
        assert (found["records_released"], found["records_left_out"]) == (200, 30)
        # Anyone who looks again finds nothing more to do.
        assert work(folder, make_task("rows: 31, window: 50, method: mixing", windows=9)) == found

    def test_without_a_size_are_all_of_it(self, folder: Path) -> None:
        found = work(folder, make_task("rows: 8", windows=1))
        assert (found["windows"], found["records_released"]) == (1, ROWS)

    def test_leave_out_whoever_is_set_aside(self, folder: Path) -> None:
        for sketch in (WHOLE, SPLIT):
            inner = folder / sketch[-6:]
            inner.mkdir()
            write_records(inner / "records.csv", ROWS)
            task = make_task(sketch, "public: {set_aside: 20}", windows=9)
            found = work(inner, task, policy=Policy(public_sample=True))
            assert (found["set_aside"], found["records_released"]) == (20, ROWS - 20)

    def test_beyond_the_cap_are_refused_once(self, folder: Path) -> None:
        task = make_task(WHOLE, windows=2)
        found = work(folder, task)
        assert (found["windows"], found["refusals"], found["records_released"]) == (2, 3, 100)
        assert "the cap for this task has epsilon = 0," in found["refusal"]
        assert "per_person" in found["refusal"]
        again = work(folder, task)
        refusal = again.pop("refusal")
        assert "an earlier process refused them" in refusal
        assert "12 windows (2 spent), for example, set privacy.per_person" in refusal
        del found["refusal"]
        assert again == found
        with Ledger(folder / "ledger.db") as ledger:
            [level] = ledger.account("organisation").tasks[0].levels
            assert (level.released, level.refused) == (2, 3)


class TestBeginning:
    def test_needs_as_many_records_as_rows(self, folder: Path) -> None:
        for sketch, words in (
            (
                "rows: 300, method: mixing",
                "has 230 records to release, and a sketch has 300 rows.*Set summaries.rows to 230 or fewer",
            ),
            ("rows: 200, method: mixing, organisation: clinic", "records of its largest organisation"),
        ):
            with pytest.raises(UserError, match=words):
                work(folder, make_task(sketch))
        # Nothing was begun.
        assert work(folder, make_task("rows: 230, method: mixing"))["windows"] == 1

    def test_whoever_is_set_aside_is_no_record_of_the_whole_file(self, folder: Path) -> None:
        """Which organisations they are of is not known before they are drawn."""
        largest = max(map(len, clinics().values()))
        for sketch, words in (
            ("rows: 300, method: mixing", f"has {ROWS - 20} records to release"),
            ("rows: 300, method: mixing, organisation: clinic", f"has {largest} records of its largest organisation"),
        ):
            with pytest.raises(UserError, match=words):
                work(folder, make_task(sketch, "public: {set_aside: 20}"), policy=Policy(public_sample=True))

    def test_takes_a_message_that_a_log_takes(self, folder: Path) -> None:
        with pytest.raises(UserError, match="set rows to 23"):
            work(folder, make_task("rows: 50000, method: mixing"))

    def test_of_too_many_organisations(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(organisations, "MOST", 21)
        assert work(folder, make_task("rows: 8, organisation: age"))["organisations"] == 21
        monkeypatch.setattr(organisations, "MOST", 10)
        with pytest.raises(UserError, match=r"has 21 organisations in the column 'age'.*at most 10"):
            work(folder, make_task("rows: 8, organisation: age"))

    def test_names_nobody(self, folder: Path) -> None:
        with pytest.raises(
            UserError, match=r"--person age: .* organisations release, not people.*summaries.organisation"
        ):
            work(folder, make_task(WHOLE), person="age")
        for level in ("lot", "column:clinic", "nothing"):
            with pytest.raises(UserError, match=f"--level {level}: .*Choose one of default, strict"):
                work(folder, make_task(WHOLE), level=level)
        assert work(folder, make_task(WHOLE, windows=9), level="strict")["windows"] == 5

    def test_of_a_column_that_is_not_there(self, folder: Path) -> None:
        with pytest.raises(UserError, match="has no column 'nobody'"):
            work(folder, make_task("rows: 8, organisation: nobody"))

    def test_a_bad_value_in_the_last_row_begins_nothing(self, folder: Path) -> None:
        for column, words in (("weeks", "row 230, column 'weeks'"), ("clinic", "row 230, column 'clinic': this names")):
            with (folder / "records.csv").open() as file:
                rows = list(csv.DictReader(file))
            rows[-1][column] = SECRET if column == "weeks" else ""
            inner = folder / column
            inner.mkdir()
            with (inner / "records.csv").open("w") as file:
                writer = csv.DictWriter(file, list(rows[0]))
                writer.writeheader()
                writer.writerows(rows)
            with pytest.raises(UserError, match=words) as refused:
                work(inner, make_task(SPLIT))
            assert SECRET not in str(refused.value)
            with open_log(f"sqlite:///{inner}/log.db") as log:
                assert log.document() is None

    def test_a_policy_may_forbid_sketches(self, folder: Path) -> None:
        with pytest.raises(UserError, match="'gaussmix' is not among"):
            work(folder, make_task(WHOLE), policy=Policy(mechanisms=("gaussian",)))

    def test_tasks_of_people_have_people(self, tmp_path: Path) -> None:
        write_people(tmp_path / "records.csv", 10)
        with (
            open_log(f"sqlite:///{tmp_path}/log.db") as log,
            open_accounts(log, tmp_path / "ledger.db") as accounts,
        ):
            task = people_task(simulated=False)
            people = population_of(task, PopulationConfig(tmp_path / "records.csv", seed=1), log, accounts)
            assert isinstance(people, Population)
            people.close()


def test_a_log_that_is_away_loses_and_repeats_nothing(tmp_path: Path) -> None:
    """Whatever is asked of the log fails twice of three times; a new iterator carries on with open windows."""
    task = make_task(SPLIT, windows=9)
    for name in ("calm", "stormy"):
        (tmp_path / name).mkdir()
        write_records(tmp_path / name / "records.csv", ROWS)
    work(tmp_path / "calm", task, block=20)
    calls = [0]

    def shaky(method: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            calls[0] += 1
            if calls[0] % 3:
                raise UnreachableError("away")
            return method(*arguments)

        return run

    def wrap(log: Any) -> Any:
        return Wrapped(log, cached_model=shaky(log.cached_model), append=shaky(log.append))

    with population(tmp_path / "stormy", task, wrap, block=20) as people:
        failures = 0
        while True:
            try:
                list(people.steps())
                break
            except UnreachableError:
                failures += 1
        assert failures > 3
        assert people.figures()["windows_lost"] == 0
    calm, stormy = (left(tmp_path / name, task) for name in ("calm", "stormy"))
    assert stormy == calm


@pytest.mark.parametrize("block", [7, 100, None])
@pytest.mark.parametrize("wrap", ["before anything is written", "after everything is written"])
def test_a_ledger_that_cannot_be_written_adds_no_row_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int | None, wrap: str
) -> None:
    """Transactions fail twice of three times, with rows of several clinics in memory; a new iterator carries on."""
    task = make_task("rows: 8, window: 20, organisation: clinic", windows=9)
    for name in ("calm", "stormy"):
        (tmp_path / name).mkdir()
        write_records(tmp_path / name / "records.csv", ROWS)
    calm = work(tmp_path / "calm", task, block=block)
    mixed = [0]
    accumulate, write = SketchAccumulator._accumulate, Spending.write
    calls = [0]

    def counted(self: SketchAccumulator, rows: Any) -> None:
        mixed[0] += len(rows)
        accumulate(self, rows)

    def shaky(self: Spending) -> None:
        calls[0] += 1
        if calls[0] % 3 and wrap.startswith("before"):
            raise MurkError("the disk is full")
        write(self)
        if calls[0] % 3:
            raise MurkError("the disk is full")

    with population(tmp_path / "stormy", task, block=block) as people:
        monkeypatch.setattr(SketchAccumulator, "_accumulate", counted)
        monkeypatch.setattr(Spending, "write", shaky)
        failures = 0
        while True:
            try:
                list(people.steps())
                break
            except MurkError:
                failures += 1
        found = people.figures()
    assert failures > 20
    assert found == calm
    # Each row was mixed once, also those of the last windows, which are too small.
    assert mixed[0] == found["records_released"] + found["records_left_out"] == ROWS
    assert left(tmp_path / "stormy", task) == left(tmp_path / "calm", task)


POINTS: dict[str, tuple[Any, str, Any]] = {
    "within the transaction, before anything is written": (Spending, "write", before),
    "within the transaction, after everything is written": (Spending, "write", after),
    "before a window opens": (OrganisationProducer, "open", before),
    "with rows in memory": (OrganisationProducer, "add_block", after),
    "before a window is released": (OrganisationProducer, "release", before),
    "after a window is released": (OrganisationProducer, "release", after),
    "before what was sent is released": (Ledger, "confirm", after),
}


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, ...]:
    folder = tmp_path_factory.mktemp("reference")
    write_records(folder / "records.csv", ROWS)
    task = make_task(SPLIT, windows=2)
    work(folder, task, block=20)
    return left(folder, task)


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("calls", [1, 6])
def test_killed_and_started_again(folder: Path, uninterrupted: tuple[Any, ...], point: str, calls: int) -> None:
    task = make_task(SPLIT, windows=2)
    owner, name, wrap = POINTS[point]

    def child(calls: int) -> None:
        with patched(owner, name, wrap(getattr(owner, name), Killer(calls))):
            work(folder, task, block=20)

    assert in_child(lambda: child(calls)) in (-signal.SIGKILL, 0)
    # Once more, right after it was started again.
    assert in_child(lambda: child(1)) in (-signal.SIGKILL, 0)
    with population(folder, task, block=20) as people:
        assert ("lost when an earlier process ended" in people.notice) == (people.lost > 0)
        list(people.steps())
        found = people.figures()
    assert left(folder, task) == uninterrupted
    assert found["refusals"] == sum(state == "refused" for *_, state, _, _ in uninterrupted[1][3])
    if point == "with rows in memory":
        # Of two clinics at most two windows are open at once, in each of two lives.
        assert 1 <= found["windows_lost"] <= 4


def test_killed_at_random_moments(folder: Path, uninterrupted: tuple[Any, ...]) -> None:
    """Ten kills before or after any call at all, each a part of the way further."""
    task = make_task(SPLIT, windows=2)

    def watched(watch: Watch) -> None:
        sys.setprofile(watch)
        try:
            work(folder, task, block=20)
        finally:
            sys.setprofile(None)

    whole = Watch()
    (folder / "whole").mkdir()
    write_records(folder / "whole" / "records.csv", ROWS)
    sys.setprofile(whole)
    try:
        work(folder / "whole", task, block=20)
    finally:
        sys.setprofile(None)
    moments = random.Random(11)
    struck = 0
    for _ in range(10):
        moment = moments.randrange(1, whole.count // 4)
        status = in_child(lambda moment=moment: watched(Watch(moment)))  # type: ignore[misc]
        assert status in (-signal.SIGKILL, 0)
        struck += status != 0
    assert struck >= 5
    work(folder, task, block=20)
    assert left(folder, task) == uninterrupted


def test_without_simulation_each_window_is_released_once(folder: Path) -> None:
    """With real noise no two sketches are alike: a second one of a window would be seen."""
    task = make_task(SPLIT, windows=2)

    def real(kill: Killer | None = None) -> None:
        crowd = PopulationConfig(folder / "records.csv", block=20)
        with open_log(f"sqlite:///{folder}/log.db") as log, open_accounts(log, folder / "ledger.db") as accounts:
            people = population_of(task.with_simulated(False), crowd, log, accounts)
            if kill is None:
                list(people.steps())
            else:
                with patched(Spending, "write", after(Spending.write, kill)):
                    list(people.steps())
            people.close()

    assert in_child(lambda: real(Killer(4))) == -signal.SIGKILL
    assert in_child(lambda: real(Killer(3))) == -signal.SIGKILL
    real()
    [messages], (debits, spending, outbox, windows) = left(folder, task)
    released = [window for window in windows if window[5] == "released"]
    assert len(messages) == len(set(messages)) == len(debits) == len(released) == 4
    assert (sum(row[3] for row in spending), outbox) == (4, [])
