"""An organisation's windows: paid for and frozen at once, lost with the process, and nothing else gets out."""

import copy
import json
import math
import os
import pickle
import re
import signal
import sqlite3
import struct
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from murk import Task
from murk.errors import MurkError, UserError
from murk.privacy import ApproxDP
from murk.privacy.central import SketchAccumulator
from murk.privacy.noise import SecureNoise, SimulatedNoise
from murk.producers import Ledger, OrganisationProducer, Policy, Producer
from murk.producers import producer as delivery
from murk.producers.ledger.schema import FORMAT
from murk.producers.ledger.spending import Spending
from murk.producers.organisation import index_of, remedy
from murk.stream import open_log
from murk.stream.wire.releases import SketchRelease
from tests.producers.ledger.accounts import by_name
from tests.producers.sketches.organisations import RECORD, TEXT, WINDOW, SketchWorld, coded, make_task
from tests.producers.test_crashes import Killer, after, before, in_child, patched
from tests.producers.test_producer import elsewhere
from tests.producers.world import SECRET, Untouchable, Wrapped
from tests.producers.world import make_task as people_task


@pytest.fixture
def world(tmp_path: Path) -> Iterator[SketchWorld]:
    with SketchWorld(tmp_path, make_task()) as world:
        yield world


def fill(producer: OrganisationProducer, windows: int = 1, count: int = WINDOW) -> list[Any]:
    return [receipt for window in range(windows) for receipt in producer.add_block(*coded(count, window * count))]


class TestWindow:
    def test_ends_when_it_is_full(self, world: SketchWorld) -> None:
        receipts = [world.producer.add(RECORD) for _ in range(WINDOW)]
        assert [receipt.outcome for receipt in receipts] == ["added"] * (WINDOW - 1) + ["released"]
        assert [receipt.records for receipt in receipts] == list(range(1, WINDOW + 1))
        assert (receipts[-1].delivery, receipts[-1].level, receipts[-1].partition) == ("sent", "default", 0)
        assert world.producer.records is None
        [release] = world.releases()
        assert (release.records, release.rows, release.level, release.simulated) == (WINDOW, 8, "default", True)
        assert (release.time, release.expires) == (1_700_006_400, 1_700_006_400 + 7 * 86_400)
        assert world.released() == 1

    def test_is_the_sketch_of_its_records(self, world: SketchWorld) -> None:
        x, y = coded(WINDOW)
        world.producer.add_block(x, y)
        index = index_of("clinic", "window 1", None)
        accumulator = SketchAccumulator(world.device.mechanisms["default"], SimulatedNoise(7), index)
        accumulator.add_block(world.device.records(x, y))
        expected = accumulator.release()
        [release] = world.releases()
        assert release.integers.tolist() == expected.integers.ravel().tolist()
        assert release.spread == expected.spread

    def test_simulated_noise_is_another_one_for_every_window_and_the_same_next_time(self) -> None:
        # Written down: a run with a seed gives the same sketches in every version.
        assert index_of("clinic", "window 1", None) == 3798489045442798067
        assert index_of("clinic", 100, "f" * 64) == 2867747487456939139

    def test_records_one_by_one_and_in_blocks_are_the_same(self, tmp_path: Path) -> None:
        found = []
        records = [{"age": 20 + number, "same_sex": "no", "weeks": 2 * number} for number in range(20)]
        for name in ("one", "many"):
            (tmp_path / name).mkdir()
            with SketchWorld(tmp_path / name, make_task()) as world:
                if name == "one":
                    for record in records:
                        world.producer.add(record)
                else:
                    columns = {key: [record[key] for record in records] for key in records[0]}
                    block = world.task.coding.encode(columns)
                    receipts = world.producer.add_block(block.x, block.y)
                    assert [receipt.outcome for receipt in receipts] == ["released", "released"]
                found.append([message.value for message in world.messages()])
        assert found[0] == found[1]
        assert len(found[0]) == 2

    def test_may_end_before(self, world: SketchWorld) -> None:
        assert (world.producer.room, world.producer.records) == (WINDOW, None)
        fill(world.producer, count=4)
        assert (world.producer.room, world.producer.records) == (WINDOW - 4, 4)
        assert world.producer.release().outcome == "released"
        assert [release.records for release in world.releases()] == [4]

    def test_without_a_size_ends_when_it_is_told(self, tmp_path: Path) -> None:
        with SketchWorld(tmp_path, make_task("rows: 8")) as world:
            assert [receipt.outcome for receipt in fill(world.producer, 5)] == ["added"] * 5
            assert world.messages() == []
            world.producer.release()
            assert [release.records for release in world.releases()] == [5 * WINDOW]

    def test_that_is_not_open_has_no_end(self, world: SketchWorld) -> None:
        for end in (world.producer.release, world.producer.leave_out):
            with pytest.raises(UserError, match="no window is open: add records first"):
                end()

    def test_left_out_costs_nothing(self, world: SketchWorld) -> None:
        fill(world.producer, count=4)
        assert world.producer.leave_out().outcome == "left out"
        assert (world.released(), world.messages(), world.producer.records) == (0, [], None)
        sums = world.ledger.windows(world.task.hash).sums("clinic")
        assert (sums.left_out, sums.records_left_out, sums.lost, sums.open) == (1, 4, 0, 0)
        fill(world.producer)
        assert world.released() == 1

    def test_ids_and_payloads_are_never_repeated(self, tmp_path: Path) -> None:
        for simulated in (False, True):
            folder = tmp_path / str(simulated)
            folder.mkdir()
            with SketchWorld(folder, make_task(simulated=simulated)) as world:
                for organisation in ("a", "b"):
                    # The same records again and again.
                    producer = world.produce(organisation=organisation)
                    for _ in range(3):
                        producer.add_block(*coded(WINDOW))
                releases = world.releases()
            assert len(releases) == len({release.id for release in releases}) == 6
            assert len({release.payload for release in releases}) == 6

    def test_a_simulation_can_be_repeated(self, tmp_path: Path) -> None:
        runs = []
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            with SketchWorld(tmp_path / name, make_task(f"rows: 8, window: {WINDOW}", "log: {partitions: 3}")) as world:
                for organisation in ("a", "b"):
                    fill(world.produce(organisation=organisation), 3)
                runs.append([[message.value for message in world.messages(partition)] for partition in range(3)])
        assert runs[0] == runs[1]
        assert sum(map(len, runs[0])) == 6
        assert sum(bool(partition) for partition in runs[0]) > 1

    def test_another_level(self, world: SketchWorld) -> None:
        fill(world.produce(level="strict"))
        assert [release.level for release in world.releases()] == ["strict"]
        with pytest.raises(UserError, match="no level 'strct': choose one of default, strict"):
            world.produce(level="strct")


class TestBudget:
    def test_is_the_organisations(self, world: SketchWorld) -> None:
        other = world.produce(organisation="hospital")
        fill(world.producer, 3)
        refused = world.producer.add(Untouchable())
        assert (refused.outcome, refused.delivery, refused.records) == ("refused", "none", 1)
        assert [receipt.outcome for receipt in fill(other)] == ["released"]
        assert (world.released(), world.released("hospital"), len(world.releases())) == (3, 1, 4)

    def test_a_refusal_names_the_cap_and_the_remedy(self, tmp_path: Path) -> None:
        with SketchWorld(tmp_path, make_task(windows=1)) as world:
            fill(world.producer)
            reason = world.producer.add(Untouchable()).reason
        assert "the cap for this task has epsilon = 0," in reason
        assert "privacy.per_person: {tcdp: {rho: " in reason
        assert "summaries.window" in reason
        # The proposed cap counts what is spent.
        assert "11 windows (1 spent)" in reason
        proposed = re.search(r"rho: ([0-9.e-]+)", reason)
        assert proposed is not None
        own = re.search(r"rho: ([0-9.e-]+)", remedy(make_task(windows=1), "default"))
        assert own is not None
        assert float(proposed[1]) != float(own[1])

    def test_windows_together_cost_less_than_their_sum_at_the_delta_of_one(self, world: SketchWorld) -> None:
        """What they cost under a cap still adds."""
        fill(world.producer, 3)
        account, one = world.ledger.account("clinic"), world.task.privacy.guarantee
        spent = account.guarantee
        assert isinstance(spent, ApproxDP)
        assert spent.delta == one.delta
        assert one.epsilon < spent.epsilon < 2.2 * one.epsilon
        assert f"epsilon = {spent.epsilon:.10g}" in " ".join(account.describe())
        [cap] = account.tasks[0].caps
        assert cap.spent is not None
        assert cap.spent.units == 3 * one.epsilon * 10**12

    def test_a_refused_window_passes_by(self, world: SketchWorld) -> None:
        fill(world.producer, 3)
        receipts = [world.producer.add(Untouchable()) for _ in range(WINDOW)]
        assert {receipt.outcome for receipt in receipts} == {"refused"}
        # Asked for once, and not with every record.
        sums = world.ledger.windows(world.task.hash).sums("clinic")
        assert (sums.released, sums.refused, sums.records) == (3, 1, 3 * WINDOW)
        [level] = world.ledger.account("clinic").tasks[0].levels
        assert (level.released, level.refused) == (3, 1)
        # The next one asks again.
        world.producer.open()
        assert world.ledger.account("clinic").tasks[0].levels[0].refused == 2
        assert world.producer.release().outcome == "refused"

    def test_a_cap_may_be_reached_while_a_window_is_open(self, world: SketchWorld) -> None:
        fill(world.producer, 2)
        world.producer.add(RECORD)
        # Another process of the same organisation, which should not be.
        second = world.produce()
        assert second.lost == 1
        fill(second)
        receipt = world.producer.release()
        assert (receipt.outcome, receipt.delivery) == ("refused", "none")
        assert "the cap for this task" in receipt.reason
        assert (world.released(), len(world.messages())) == (3, 3)

    def test_over_all_tasks(self, tmp_path: Path) -> None:
        with SketchWorld(tmp_path, make_task(), policy=Policy(lifetime=ApproxDP(2.0, 1e-5))) as world:
            fill(world.producer, 2)
            receipt = world.producer.add(Untouchable())
            assert (receipt.outcome, receipt.reason.count("per_person")) == ("refused", 0)
            assert "the cap over all tasks has epsilon = 0," in receipt.reason

    def test_of_whoever_has_withdrawn(self, world: SketchWorld) -> None:
        fill(world.producer)
        world.ledger.withdraw("clinic")
        receipt = world.producer.add(Untouchable())
        assert (receipt.outcome, receipt.reason) == ("refused", "the person has withdrawn")

    def test_a_policy_may_forbid_sketches(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match="'gaussmix' is not among gaussian"):
            SketchWorld(tmp_path, make_task(), policy=Policy(mechanisms=("gaussian",)))


class TestLost:
    def test_is_told_and_costs_nothing(self, world: SketchWorld) -> None:
        assert world.producer.lost == 0
        fill(world.producer)
        fill(world.producer, count=4)
        # As after a crash: nobody has ended the window.
        again = world.produce()
        assert again.lost == 1
        assert world.produce().lost == 0
        sums = world.ledger.windows(world.task.hash).sums("clinic")
        assert (sums.released, sums.lost, sums.open) == (1, 1, 0)
        assert world.released() == 1
        fill(again, 2)
        assert world.released() == 3
        words = "\n".join(world.ledger.account("clinic").describe())
        assert "a window was lost 1 times, when a process died (nothing was debited for that)" in words
        assert "3 windows were released as sketches, with 30 records in all" in words

    def test_of_one_organisation_is_not_anothers(self, world: SketchWorld) -> None:
        fill(world.producer, count=4)
        assert world.produce(organisation="hospital").lost == 0

    def test_a_window_that_went_on_was_not_lost(self, world: SketchWorld) -> None:
        fill(world.producer, count=4)
        assert world.produce().lost == 1
        assert world.producer.release().outcome == "released"
        sums = world.ledger.windows(world.task.hash).sums("clinic")
        assert (sums.released, sums.lost) == (1, 0)

    def test_the_note_says_nothing_of_values(self, world: SketchWorld) -> None:
        world.producer.add({"age": SECRET, "same_sex": "yes", "weeks": 51.375})
        rows = world.ledger._file.query("SELECT key, person, opened, state, lost, records, next_row FROM windows")
        names = world.ledger.names.reading()
        clinic = names.person("clinic")
        assert rows == [(names.record("window 1", clinic), clinic, 1_700_006_400, "open", 0, 0, 0)]


ODD_VALUES: list[Any] = [
    *(None, "", math.nan, math.inf, -math.inf, 1e308, -1e308, 10**400, "nan", "??", True, [], {}, b"x"),
    *(object(), np.float32("nan"), complex(1, 2), "1e999", SECRET),
]


class TestValues:
    def test_never_decide_whether_something_is_sent(self, tmp_path: Path) -> None:
        with SketchWorld(tmp_path, make_task("rows: 8", windows=1)) as world:
            for value in ODD_VALUES:
                for column in RECORD:
                    assert world.producer.add({**RECORD, column: value}).outcome == "added"
                assert world.producer.add(dict.fromkeys(RECORD, value)).outcome == "added"
            assert world.producer.add({}).outcome == "added"
            count = len(ODD_VALUES) * (len(RECORD) + 1) + 1
            assert world.producer.release().records == count
            [release] = world.releases()
            assert release.records == count

    def test_coded_blocks_may_hold_anything(self, world: SketchWorld) -> None:
        x, y = coded(WINDOW)
        x[0], x[1], x[2, 0], y[3], y[4] = math.nan, math.inf, -1e308, math.nan, 1e300
        [receipt] = world.producer.add_block(x, y)
        assert receipt.outcome == "released"
        [release] = world.releases()
        assert math.isfinite(release.spread)

    @pytest.mark.parametrize("method", ["linear-mixing", "mixing"])
    def test_change_nothing_but_the_sketch(self, tmp_path: Path, method: str) -> None:
        """All that is public and all that the ledger keeps is the same for tame rows, and for rows that are clipped."""
        found = []
        for name, factor in (("tame", 0.1), ("wild", 1e6)):
            (tmp_path / name).mkdir()
            with SketchWorld(tmp_path / name, make_task(f"rows: 8, window: {WINDOW}, method: {method}")) as world:
                x, y = coded(2 * WINDOW + 3)
                receipts = world.producer.add_block(factor * x, factor * y)
                texts = [repr(receipts), repr(world.producer), *world.ledger.account("clinic").describe()]
                releases = [release.model_dump(exclude={"payload", "spread"}) for release in world.releases()]
                tables = {
                    table: sorted(
                        by_name(
                            world.ledger,
                            world.ledger._file.query(f"SELECT {columns} FROM {table}"),
                            "clinic",
                            keys=[f"window {number}" for number in range(1, 9)],
                        ),
                        key=str,
                    )
                    for table, columns in {
                        "debits": "*", "spending": "*", "windows": "*", "tariffs": "*", "promises": "*",
                        "outbox": "number, partition, since, expires, tariff",
                    }.items()
                }  # fmt: skip
            found.append((texts, releases, tables))
        assert found[0] == found[1]

    def test_are_counted_by_nobody(self, world: SketchWorld) -> None:
        world.producer.add({"age": 99, "same_sex": None, "weeks": 400})
        words = repr(world.producer.release()) + repr(vars(world.producer)) + repr(world.producer)
        assert not hasattr(world.producer, "counts")
        for never in ("clipped", "clamped", "missing", "unusable"):
            assert never not in words


class TestMemory:
    @pytest.mark.parametrize("end", ["release", "leave_out", "withdrawn"])
    def test_nothing_of_a_window_that_has_ended_stands_there(self, world: SketchWorld, end: str) -> None:
        fill(world.producer, count=4)
        window = world.producer._window
        assert window is not None
        assert window.accumulator is not None
        held = [window.accumulator._mixtures, window.accumulator._moments, window.accumulator._key]
        assert all(array.any() for array in held)
        if end == "withdrawn":
            world.ledger.withdraw("clinic")
        receipt = world.producer.leave_out() if end == "leave_out" else world.producer.release()
        outcome = {"release": "released", "leave_out": "left out", "withdrawn": "refused"}[end]
        assert (receipt.outcome, receipt.records, world.producer.records) == (outcome, 4, None)
        assert not any(array.any() for array in held)
        # Records of no file stand in no row.
        assert world.producer.next_row == 0


class TestFiles:
    def test_a_window_that_was_released_is_not_looked_at_again(self, world: SketchWorld) -> None:
        x, y = coded(WINDOW)
        for outcome in ("released", "known"):
            producer = world.produce(source="f" * 64)
            receipt = producer.open(row=0)
            assert receipt.outcome == ("added" if outcome == "released" else "known")
            assert (producer._window is None or producer._window.accumulator is None) == (outcome == "known")
            [receipt] = producer.add_block(x, y, rows=range(WINDOW))
            assert (receipt.outcome, receipt.records, producer.next_row) == (outcome, WINDOW, WINDOW)
        assert receipt.reason == "this window was released before"
        assert (world.released(), len(world.messages())) == (1, 1)


class TestDisk:
    def test_nothing_raw_stands_there(self, tmp_path: Path) -> None:
        # Ages whose text and coded float64 are found nowhere by chance.
        ages = [23.4567891, 37.1234567]
        with SketchWorld(tmp_path, make_task("rows: 8")) as world:
            for age in ages * 40:
                world.producer.add({"age": age, "same_sex": "yes", "weeks": 17.7654321})
            window = world.producer._window
            assert window is not None
            assert window.accumulator is not None
            sums = [*window.accumulator._mixtures.ravel(), *window.accumulator._moments[0]]
            key = window.accumulator._key.tobytes()
            coded_ages = [world.task.coding.encode_record({"age": age}).x[0] for age in ages]
            marks = [str(age).encode() for age in (*ages, 17.7654321)]
            marks += [struct.pack("<d", number) for number in (*ages, *coded_ages, *sums) if number]
            self.look(tmp_path, [*marks, key])
            world.producer.release()
            self.look(tmp_path, [*marks, key])
            world.ledger._file.query("PRAGMA wal_checkpoint(TRUNCATE)")
            self.look(tmp_path, [*marks, key])

    @staticmethod
    def look(folder: Path, marks: list[bytes]) -> None:
        files = [path for path in folder.iterdir() if path.is_file()]
        assert {"log.db", "ledger.db"} <= {path.name for path in files}
        for path in files:
            data = path.read_bytes()
            assert not any(mark in data for mark in marks), path.name

    def test_a_window_is_neither_copied_nor_stored(self, world: SketchWorld) -> None:
        world.producer.add(RECORD)
        for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(MurkError, match="cannot be copied or pickled"):
                attempt(world.producer)


def test_memory_does_not_grow_with_the_records(tmp_path: Path) -> None:
    with SketchWorld(tmp_path, make_task("rows: 8")) as world:
        x, y = coded(1000)
        peaks = []
        world.producer.add_block(x, y)
        tracemalloc.start()
        for blocks in (10, 200):
            tracemalloc.reset_peak()
            for _ in range(blocks):
                world.producer.add_block(x, y)
            peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert world.producer.records == 211_000
        # 190,000 records more would be 6 MB; what one block takes is the same every time.
        assert peaks[1] - peaks[0] < 20_000
        assert world.producer.release().records == 211_000


class TestDelivery:
    def test_a_log_that_takes_nothing_queues(self, world: SketchWorld) -> None:
        def full(batch: object) -> None:
            raise MurkError("the disk is full")

        producer = world.produce(Wrapped(world.log, append=full))  # type: ignore[arg-type]
        receipts = fill(producer, 2)
        assert [(receipt.outcome, receipt.delivery) for receipt in receipts] == [("released", "queued")] * 2
        assert "disk is full" in receipts[0].reason
        frozen = [queued.message for queued in world.ledger.queued(world.task.hash)]
        assert (len(frozen), world.released(), world.messages()) == (2, 2, [])
        report = world.produce().flush()
        assert (report.sent, report.already, report.expired) == (2, 0, 0)
        # The very bytes, and not another sketch.
        assert [message.value for message in world.messages()] == frozen

    def test_an_answer_that_was_lost_sends_nothing_twice(self, world: SketchWorld) -> None:
        def append(batch: Any) -> None:
            world.log.append(batch)
            raise TimeoutError("no answer")

        fill(world.produce(Wrapped(world.log, append=append)))  # type: ignore[arg-type]
        report = world.produce().flush()
        assert (report.sent, report.already, len(world.messages())) == (0, 1, 1)

    def test_a_ledger_that_cannot_be_written_is_tried_again_with_the_same_bytes(self, world: SketchWorld) -> None:
        fill(world.producer, count=4)
        connection = world.ledger._file._connection
        connection.execute("PRAGMA query_only = ON")
        with pytest.raises(MurkError, match="read-only"):
            world.producer.release()
        connection.execute("PRAGMA query_only = OFF")
        assert (world.messages(), world.released()) == ([], 0)
        # It fails when everything is written but the end.
        made: list[bytes] = []
        sketch = world.producer._sketch

        def kept(*arguments: Any) -> bytes:
            made.append(sketch(*arguments))
            return made[-1]

        world.producer._sketch = kept  # type: ignore[method-assign]
        connection.execute("CREATE TEMP TRIGGER full BEFORE INSERT ON spending BEGIN SELECT RAISE(ABORT, 'full'); END")
        with pytest.raises(MurkError):
            world.producer.release()
        assert (world.messages(), world.ledger.totals().releases, len(made)) == ([], 0, 1)
        connection.execute("DROP TRIGGER full")
        assert world.producer.release().outcome == "released"
        assert [message.value for message in world.messages()] == made

    def test_a_log_that_was_never_heard_of_opens_nothing(self, world: SketchWorld) -> None:
        def down(partition: int) -> bytes:
            raise MurkError("the log is gone")

        producer = world.produce(Wrapped(world.log, cached_model=down))  # type: ignore[arg-type]
        with pytest.raises(MurkError, match="gone"):
            producer.add(Untouchable())
        assert world.ledger.windows(world.task.hash).count("clinic") == 0

    def test_noise_that_fails_loses_the_window(self, world: SketchWorld) -> None:
        class Broken(SimulatedNoise):
            def gaussian(self, records: Any, size: int) -> Any:
                raise MurkError("no randomness")

        producer = world.produce(noise=Broken(1))
        with pytest.raises(MurkError, match="no randomness"):
            fill(producer)
        assert (producer.records, world.released(), world.messages()) == (None, 0, [])
        assert world.produce().lost == 1

    def test_expired_sketches_are_let_go_of(self, world: SketchWorld) -> None:
        def down(batch: object) -> None:
            raise ConnectionError("no route")

        fill(world.produce(Wrapped(world.log, append=down)))  # type: ignore[arg-type]
        world.now += 8 * 86_400
        assert world.produce().flush().expired == 1
        assert (world.released(), world.messages()) == (1, [])

    def test_a_forked_process_cannot_use_a_window(self, world: SketchWorld) -> None:
        fill(world.producer, count=4)
        assert world.producer._window is not None
        accumulator = world.producer._window.accumulator
        child = os.fork()
        if child == 0:
            try:
                accumulator.release()  # type: ignore[union-attr]
            except UserError:
                os._exit(0)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

    @pytest.mark.parametrize(("room", "most"), [(0.5, 1), (2.5, 2), (9, 5)])
    def test_what_is_read_at_once_is_bounded_in_bytes(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: float, most: int
    ) -> None:
        def down(batch: object) -> None:
            raise ConnectionError("no route")

        with SketchWorld(tmp_path, make_task(windows=9)) as world:
            fill(world.produce(Wrapped(world.log, append=down)), 5)  # type: ignore[arg-type]
            frozen = [queued.message for queued in world.ledger.queued(world.task.hash)]
            monkeypatch.setattr(delivery, "OUTBOX_BYTES", int(room * len(frozen[0])))
            sizes = []

            def append(batch: Any) -> None:
                sizes.append(len(batch))
                world.log.append(batch)

            assert world.produce(Wrapped(world.log, append=append)).flush().sent == 5  # type: ignore[arg-type]
            assert [message.value for message in world.messages()] == frozen
        assert (max(sizes), sum(sizes)) == (most, 5)


@contextmanager
def failing(ledger: Ledger, when: str) -> Iterator[None]:
    """A ledger that cannot be written, or only up to the last statements: then the sketch is made already."""
    connection = ledger._file._connection
    if when == "before anything is written":
        connection.execute("PRAGMA query_only = ON")
        yield
        connection.execute("PRAGMA query_only = OFF")
    else:
        connection.execute("CREATE TEMP TRIGGER full BEFORE INSERT ON spending BEGIN SELECT RAISE(ABORT, 'full'); END")
        yield
        connection.execute("DROP TRIGGER full")


@pytest.mark.parametrize("when", ["before anything is written", "once the sketch is made"])
class TestFullWindow:
    """One that could not be released takes nothing more, and is released before anything else is taken."""

    @pytest.fixture
    def calm(self, tmp_path: Path) -> list[bytes]:
        """What stands on a log after two windows and a half where nothing fails."""
        (tmp_path / "calm").mkdir()
        with SketchWorld(tmp_path / "calm", make_task()) as world:
            world.producer.add_block(*coded(2 * WINDOW + 5))
            return [message.value for message in world.messages()]

    def test_of_blocks(self, world: SketchWorld, calm: list[bytes], when: str) -> None:
        producer = world.producer
        x, y = coded(2 * WINDOW + 5)
        producer.add_block(x[:4], y[:4])
        with failing(world.ledger, when):
            for _ in range(3):
                with pytest.raises(MurkError):
                    producer.add_block(x[producer.taken :], y[producer.taken :])
                assert (producer.taken, producer.records, producer.room, producer.overdue) == (WINDOW, WINDOW, 0, True)
        receipts = producer.add_block(x[producer.taken :], y[producer.taken :])
        assert [receipt.outcome for receipt in receipts] == ["released", "released", "added"]
        assert (producer.taken, producer.records, producer.overdue) == (2 * WINDOW + 5, 5, False)
        assert [release.records for release in world.releases()] == [WINDOW, WINDOW]
        assert [message.value for message in world.messages()] == calm

    def test_of_single_records(self, world: SketchWorld, when: str) -> None:
        producer = world.producer
        for _ in range(WINDOW - 1):
            producer.add(RECORD)
        with failing(world.ledger, when):
            with pytest.raises(MurkError):
                producer.add(RECORD)
            for take in (lambda: producer.add(Untouchable()), producer.open):
                with pytest.raises(MurkError):
                    take()
            assert (producer.taken, producer.room) == (WINDOW, 0)
        receipt = producer.add(RECORD)
        assert (receipt.outcome, receipt.records, producer.taken) == ("added", 1, WINDOW + 1)
        assert ([release.records for release in world.releases()], world.released()) == ([WINDOW], 1)

    def test_of_rows_of_a_file(self, world: SketchWorld, when: str) -> None:
        x, y = coded(2 * WINDOW + 5)
        rows = list(range(100, 100 + len(x)))
        producer = world.produce(source="f" * 64)
        producer.add_block(x[:4], y[:4], rows=rows[:4])
        with failing(world.ledger, when):
            for _ in range(3):
                # Given again, rows are passed over that are in already.
                with pytest.raises(MurkError):
                    producer.add_block(x, y, rows=rows)
                assert (producer.taken, producer.next_row) == (WINDOW, 100 + WINDOW)
        assert [one.outcome for one in producer.add_block(x, y, rows=rows)] == ["released", "released", "added"]
        assert producer.add_block(x, y, rows=rows) == []
        assert (producer.taken, producer.records) == (len(x), 5)
        accumulator = SketchAccumulator(
            world.device.mechanisms["default"], SimulatedNoise(7), index_of("clinic", 100, "f" * 64)
        )
        accumulator.add_block(world.device.records(x[:WINDOW], y[:WINDOW]))
        assert world.releases()[0].integers.tolist() == accumulator.release().integers.ravel().tolist()


def test_a_refused_window_that_is_full_ends_before_anything_passes_by(world: SketchWorld) -> None:
    fill(world.producer, 3)
    fill(world.producer, count=WINDOW - 1)
    with failing(world.ledger, "before anything is written"):
        for _ in range(2):
            with pytest.raises(MurkError, match="read-only"):
                world.producer.add(Untouchable())
    assert world.producer.add(Untouchable()).records == 1
    sums = world.ledger.windows(world.task.hash).sums("clinic")
    assert (sums.released, sums.refused) == (3, 2)


def test_a_window_whose_mixing_is_interrupted_is_lost(world: SketchWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody knows which of its rows were mixed: none are added again, and the next window begins."""

    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    fill(world.producer, count=4)
    with monkeypatch.context() as patch:
        patch.setattr(SketchAccumulator, "_accumulate", interrupted)
        with pytest.raises(KeyboardInterrupt):
            fill(world.producer, count=3)
    assert (world.producer.records, world.producer.taken, world.messages()) == (None, 7, [])
    fill(world.producer)
    assert [release.records for release in world.releases()] == [WINDOW]


class TestSetup:
    def test_tasks_of_people_are_for_people(self, tmp_path: Path) -> None:
        task = people_task()
        with SketchWorld(tmp_path, make_task()) as world:
            (tmp_path / "other").mkdir()
            with open_log(f"sqlite:///{tmp_path}/other/log.db") as log:
                log.register_task(task.document())
                with pytest.raises(UserError, match=r"protocol: gradients.*use Producer"):
                    OrganisationProducer(task, log, world.ledger, noise=SimulatedNoise(1))
            with pytest.raises(UserError, match="Use OrganisationProducer"):
                Producer(world.task, world.log, world.ledger, noise=SimulatedNoise(1))

    def test_noise_and_task_are_of_one_kind(self, tmp_path: Path) -> None:
        with (
            SketchWorld(tmp_path, make_task(simulated=False)) as world,
            pytest.raises(UserError, match="protects nobody"),
        ):
            world.produce(noise=SimulatedNoise(1))
        (tmp_path / "simulated").mkdir()
        with (
            SketchWorld(tmp_path / "simulated", make_task()) as world,
            pytest.raises(UserError, match="simulation"),
        ):
            world.produce(noise=SecureNoise())

    @pytest.mark.parametrize("name", ["", "a\0b", "\ud800"])
    def test_names_that_a_ledger_cannot_keep(self, world: SketchWorld, name: str) -> None:
        with pytest.raises(UserError, match="a person's name"):
            world.produce(organisation=name)

    def test_rows_belong_to_a_file(self, world: SketchWorld) -> None:
        x, y = coded(2)
        with pytest.raises(UserError, match="rows are required for records of a file"):
            world.producer.add_block(x, y, rows=[0, 1])
        with pytest.raises(UserError, match="rows are required for records of a file"):
            world.produce(source="f" * 64).add_block(x, y)


def test_ledgers_of_people_have_no_windows(tmp_path: Path) -> None:
    with SketchWorld(tmp_path, make_task()) as world:
        names = "SELECT name FROM sqlite_master WHERE type = 'table'"
        assert "windows" not in {name for (name,) in world.ledger._file.query(names)}
        assert world.ledger.windows(world.task.hash).sums("clinic").released == 0
        fill(world.producer)
        world.ledger.delete_confirmed()
    with sqlite3.connect(tmp_path / "ledger.db") as connection:
        assert connection.execute("SELECT value FROM meta WHERE key = 'format'").fetchall() == [(FORMAT,)]


def test_the_release_holds_no_name(world: SketchWorld) -> None:
    fill(world.producer)
    data = world.messages()[0].value
    assert set(json.loads(data)) == {"schema" if name == "schema_" else name for name in SketchRelease.model_fields}
    assert b"clinic" not in data
    assert "clinic" not in repr(world.producer)


KILLS: dict[str, tuple[Any, str, Any]] = {
    "within the transaction, before anything is written": (Spending, "write", before),
    "within the transaction, after everything is written": (Spending, "write", after),
    "with records in memory": (OrganisationProducer, "add_block", after),
    "when the sketch is made": (SketchAccumulator, "release", after),
    "between debit and send": ("log", "append", before),
    "between send and confirmation": ("log", "append", after),
    "before what was sent is released": (Ledger, "confirm", after),
}


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("point", KILLS)
@pytest.mark.parametrize("simulated", [True, False])
def test_killed_while_records_stream_in(tmp_path: Path, point: str, simulated: bool) -> None:
    """A window is released with its debit, or lost without; and what was frozen is sent as it was, once."""
    task = make_task(windows=20, simulated=simulated)
    owner, name, wrap = KILLS[point]

    def stream(world: SketchWorld, producer: OrganisationProducer) -> None:
        producer.flush()
        for part in range(9):
            # Three blocks fill two windows and a half.
            producer.add_block(*coded(8, 8 * part))
        producer.flush()

    def child() -> None:
        with SketchWorld(tmp_path, task) as world:
            kill = Killer(3)
            if owner == "log":
                log = Wrapped(world.log, **{name: wrap(getattr(world.log, name), kill)})
                stream(world, world.produce(log))  # type: ignore[arg-type]
            else:
                with patched(owner, name, wrap(getattr(owner, name), kill)):
                    stream(world, world.produce())

    assert in_child(child) == -signal.SIGKILL
    with SketchWorld(tmp_path, task) as world:
        # Found by the producer that the world was made with.
        lost, before_it = world.producer.lost, world.released()
        assert lost in (0, 1)
        frozen = {queued.message for queued in world.ledger.queued(task.hash)}
        known = world.ledger.windows(task.hash).count("clinic")
        assert known == before_it + lost
        stream(world, world.produce())
        sums = world.ledger.windows(task.hash).sums("clinic")
        assert (sums.released, sums.lost, sums.open) == (before_it + 7, lost, 1)
        assert world.released() == sums.released
        values = [message.value for message in world.messages()]
        assert len(values) == len(set(values)) == sums.released
        assert frozen <= set(values)
        assert len({release.id for release in world.releases()}) == sums.released
        assert world.ledger.pending() == 0


def test_another_thread_is_refused_while_a_window_is_open(world: SketchWorld) -> None:
    """With an open window nothing else would have asked the ledger, and its counts would be those of two threads."""
    world.producer.add(RECORD)
    x, y = coded(2)
    acts: list[Callable[[], object]] = [
        lambda: world.producer.add(Untouchable()), lambda: world.producer.add_block(x, y), world.producer.open,
        world.producer.release, world.producer.leave_out,
    ]  # fmt: skip
    for act in acts:
        error = elsewhere(act)
        assert isinstance(error, MurkError)
        assert "another process or thread" in str(error)
    assert (world.producer.taken, world.producer.records) == (1, 1)


def test_rows_do_not_stay_in_the_window_after_they_were_mixed(world: SketchWorld) -> None:
    world.producer.add(RECORD)
    window = world.producer._window
    assert window is not None
    assert window.accumulator is not None
    assert not window.accumulator._inside.any()


def test_a_window_is_no_larger_than_its_mechanism_takes(tmp_path: Path) -> None:
    """Of many columns, and of large budgets, a window holds fewer records than of any mechanism."""
    task = make_task("method: moments", windows=1)
    with SketchWorld(tmp_path, task) as world:
        assert world.producer.room == world.device.mechanisms["default"].largest_window == 2**32
    (tmp_path / "large").mkdir()
    text = TEXT.replace("{approx: {epsilon: 1.0, delta: 1.0e-6}}", "{gdp: {mu: 1000.0}}").replace("  levels", "# ")
    with SketchWorld(tmp_path / "large", Task.parse(text).with_simulated(True)) as world:
        largest = world.device.mechanisms["default"].largest_window
        assert world.producer.room == largest < 2**32
