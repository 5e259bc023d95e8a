"""A task whose budget renews: devices, files and statements."""

import datetime
import shutil
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import murk
from murk import Task
from murk.errors import UserError
from murk.populations import FileSource, file_source
from murk.populations.order import key_of_seed
from murk.privacy import GaussianDP
from murk.privacy.noise import SimulatedNoise
from murk.producers import Ledger, Policy, Producer
from murk.results.report import describe_cap
from murk.task.windows import end_of, spread_of, window_of
from tests.producers.world import NOW, RECORD, TEXT, Untouchable, World, make_task

DAY = datetime.datetime.fromtimestamp(NOW, datetime.UTC)  # 2023-11-15, a Wednesday
WEEK = datetime.timedelta(days=7)


def weekly(more: str = "", *, window: str = "week", simulated: bool = True) -> Task:
    text = TEXT.partition("  levels:")[0].replace("privacy:\n", f"privacy:\n  window: {window}\n{more}")
    return make_task("protocol: examples", text=text, simulated=simulated)


LIFE = "  lifetime: {gdp: {mu: 1.5}}\n"


def test_a_device_releases_once_a_window(tmp_path: Path) -> None:
    with World(tmp_path, weekly(LIFE)) as world:

        def release(at: datetime.datetime | None = None) -> tuple[str, str]:
            receipt = world.producer.release(RECORD, person="ann", at=at)
            return receipt.outcome, receipt.reason

        assert release() == ("released", "")
        outcome, reason = release()
        assert outcome == "refused"
        assert "the cap of one release at the level 'default' in this window has" in reason
        assert "renews with the next window (privacy.window: week)" in reason
        # Sunday is of the same week, and the week before is over.
        assert release(DAY - datetime.timedelta(days=2))[0] == "refused"
        assert "in a later window" in release(DAY - WEEK)[1]
        world.now += 7 * 86_400
        assert release(DAY + datetime.timedelta(days=1))[0] == "refused"
        assert release()[0] == "released"
        world.now += 7 * 86_400
        # All windows together: mu^2 = 1 + 1 of 2.25.
        outcome, reason = release()
        assert (outcome, "privacy.per_person" in reason) == ("refused", False)
        assert "the cap for this task has mu = 0.5" in reason


def test_a_time_is_of_a_window_and_not_ahead(tmp_path: Path) -> None:
    with World(tmp_path, weekly(window="day")) as world:
        zone = datetime.timezone(datetime.timedelta(hours=-5))
        assert world.producer.release(RECORD, at=datetime.datetime(2023, 11, 13, 22, tzinfo=zone)).outcome == "released"
        # 22 o'clock there is three o'clock of the next day in UTC.
        assert world.producer.release(RECORD, at=datetime.datetime(2023, 11, 14, 23)).outcome == "refused"
        assert world.producer.release(RECORD, at=DAY + datetime.timedelta(days=1)).outcome == "released"
        for wrong, why in ((DAY + datetime.timedelta(days=2), "a day ahead of this clock"), ("soon", "not a time")):
            with pytest.raises(UserError, match=why):
                world.producer.release(RECORD, person="ben", at=wrong)  # type: ignore[arg-type]
        assert world.ledger.totals().releases == 2


def test_without_windows_no_time_is_taken(tmp_path: Path) -> None:
    why = r"has no windows \(privacy.window\): leave it out"
    with World(tmp_path, make_task("protocol: examples")) as world, pytest.raises(UserError, match=why):
        world.producer.release(RECORD, at=DAY)


def test_a_policy_caps_all_windows(tmp_path: Path) -> None:
    with World(tmp_path, weekly(), policy=Policy(per_task=GaussianDP(1.2))) as world:
        outcomes = []
        for _ in range(3):
            outcomes.append(world.producer.release(RECORD).outcome)
            world.now += 7 * 86_400
        assert outcomes == ["released", "refused", "refused"]
    with pytest.raises(UserError, match=r"asks for up to mu = 1\.5 of each person"):
        Policy(per_task=GaussianDP(1.2)).admit(weekly(LIFE), murk.protocols.device.device_for(weekly(LIFE)).mechanisms)


@pytest.mark.parametrize(
    ("window", "more", "why"),
    [
        ("weekly", "", "'weekly' is not a window; write none, day, week, month, or a number of days"),
        ("0d", "", "'0d' is not a window"),
        ("none", LIFE, "caps all windows, and there are none"),
        ("week", "  lifetime: {gdp: {mu: 0.1}}\n", "allows no release at level"),
    ],
)
def test_windows_that_no_task_has(window: str, more: str, why: str) -> None:
    with pytest.raises(UserError, match=why):
        weekly(more, window=window)


def test_organisations_and_crowds_have_no_windows() -> None:
    with pytest.raises(UserError, match=r"organisations release windows of records \(summaries.window\)"):
        Task.parse(TEXT.replace("privacy:\n", "privacy:\n  window: week\n") + "protocol: summaries\n")


def test_a_window_is_another_task_and_none_is_not() -> None:
    plain = make_task("protocol: examples", text=TEXT.partition("  levels:")[0])
    assert weekly(window="none").hash == plain.hash != weekly().hash
    assert weekly().hash != weekly(window="7d").hash


def test_the_promise_says_both() -> None:
    words = describe_cap(weekly())
    assert words.startswith("At most mu = 1 a week, and mu = 3.163 over 10 weeks; no cap over all windows")
    assert describe_cap(weekly(LIFE)).startswith(
        "At most mu = 1 a week, and mu = 3.163 over 10 weeks; mu = 1.5 over all"
    )


def test_the_promise_is_of_each_level_where_nothing_caps_them() -> None:
    words = describe_cap(weekly("  levels:\n    open: {gdp: {mu: 2.0}}\n"))
    assert words == (
        "At level default at most mu = 1 a week, and mu = 3.163 over 10 weeks; at level open at most mu = 2 a week, "
        "and mu = 6.325 over 10 weeks; no cap over all windows (privacy.lifetime). One release a person and window, at "
        "their level."
    )
    words = describe_cap(weekly("  levels: {from: 0.25, to: 4}\n"))
    assert words.startswith("At the largest level at most mu = 4 a week, and mu = 12.65 over 10 weeks;")


def rows(weeks: int = 4, people: int = 30) -> list[dict[str, Any]]:
    """Everybody has two rows in each week, but the last two people, who come in the last one only."""
    found = []
    for week in range(weeks):
        for person in range(people):
            if person < people - 2 or week == weeks - 1:
                for day in (0, 3):
                    date = DAY.date() + datetime.timedelta(days=7 * (week - weeks) + day - 2)
                    found.append({**RECORD, "age": 21 + person % 15, "who": f"p{person}", "on": date.isoformat()})
                    found[-1] |= {"same_sex": ("yes", "no")[person % 2], "origin": ("EWR", "JFK", "LGA")[day % 3]}
                    found[-1]["third_child"] = ("yes", "no")[(person + week) % 2]
    return found[::-1]


def test_a_file_is_grouped_by_person_and_window() -> None:
    source = FileSource(rows(), weekly(), person_column="who", time_column="on")
    people = source.grouping(key_of_seed(1))
    tally = people.tally()
    assert (tally.people, tally.size, tally.rows, tally.most) == (30, 4 * 28 + 2, 8 * 28 + 4, 2)
    assert tally.windows is not None
    assert (tally.windows[1] - tally.windows[0], tally.windows[2]) == (3, 4)
    seen = []
    for block in source.people_in_order(people, 0, 20):
        assert block.windows is not None
        assert block.people is not None
        seen += list(zip(block.windows.tolist(), block.people, strict=True))
    assert len(set(seen)) == len(seen) == tally.size
    windows = [window for window, _ in seen]
    assert windows == sorted(windows)
    by_row = list(source.people_in_order(source.grouping(key_of_seed(1), by_row=True), 0, 500))
    firsts = list(zip(by_row[0].windows.tolist(), by_row[0].rows.tolist(), strict=True))  # type: ignore[union-attr]
    assert firsts == sorted(firsts)


def test_parts_of_the_index_keep_the_order_of_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    def order(source: FileSource) -> list[int]:
        blocks = source.people_in_order(source.grouping(key_of_seed(1)), 0, 50)
        return [row for block in blocks for row in block.rows.tolist()]

    source = FileSource(rows(), weekly(), person_column="who", time_column="on")
    whole = order(source)
    monkeypatch.setattr(murk.populations.grouping, "INDEX_ROWS", 30)
    assert order(source) == whole


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_file_answers_once_a_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_source, "time", SimpleNamespace(time=lambda: NOW))
    places = {"ledger": tmp_path / "ledger.db", "person": "who", "time": "on", "seed": 3}
    result = murk.run(weekly(LIFE), rows(), log=f"sqlite:///{tmp_path}/log.db", **places)  # type: ignore[arg-type]
    # Everybody has two weeks of budget.
    assert (result.n_releases, result.report["refusals"]) == (2 * 28 + 2, 2 * 28)
    assert "30 people with 228 rows in 4 weeks (2023-10-16 to 2023-11-06), 114 answers" in result.report["counted_rows"]
    with Ledger(tmp_path / "ledger.db") as ledger:
        [task] = ledger.account("p3").tasks
        assert task.renewed is not None
        assert (task.renewed.windows, task.renewed.newest.isoformat()) == (2, "2023-10-23")


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_an_interrupted_file_ends_as_if_it_had_not_been(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_source, "time", SimpleNamespace(time=lambda: NOW))

    class StopError(Exception):
        pass

    def run(folder: Path, stop: int | None = None) -> murk.Result:
        def progress(done: int, size: int) -> None:
            assert 0 <= done <= size == 114
            if stop is not None and done >= stop:
                raise StopError

        places = {"log": f"sqlite:///{folder}/log.db", "ledger": folder / "ledger.db"}
        options = {"person": "who", "time": "on", "seed": 3, "block": 7}
        return murk.run(weekly(LIFE), rows(), progress=progress, **places, **options)  # type: ignore[arg-type]

    for name in ("whole", "killed"):
        (tmp_path / name).mkdir()
    for stop in (7, 20, 60):
        with pytest.raises(StopError):
            run(tmp_path / "killed", stop)
    whole, killed = run(tmp_path / "whole"), run(tmp_path / "killed")
    assert killed.report["state_digest"] == whole.report["state_digest"]
    assert killed.report["refusals"] == whole.report["refusals"] == 56
    with Ledger(tmp_path / "killed" / "ledger.db") as ledger:
        counts = ledger._file.query("SELECT windows, released FROM renewals JOIN spending USING (home, person)")
    assert sorted(counts) == [(1, 1)] * 2 + [(2, 2)] * 28


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_an_earlier_file_is_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_source, "time", SimpleNamespace(time=lambda: NOW))
    task = weekly()
    given = sorted(rows(), key=lambda row: row["on"])
    with World(tmp_path, task) as world:
        for part, (released, late) in ((given[112:], (58, 0)), (given[:112], (0, 56))):
            source = FileSource(part, task, person_column="who", time_column="on")
            world.producer.begin(source)
            reports = [
                world.producer.release_block(block)
                for block in source.people_in_order(source.grouping(key_of_seed(1)), 0, 40)
            ]
            assert sum(report.released for report in reports) == released
            assert sum(refusal.scope == "late" for report in reports for refusal in report.refusals) == late
            run = world.ledger.run(task.hash, source.digest)
            assert run is not None
            assert run.counters["late"] == late


@pytest.mark.parametrize("simulated", [True, False])
@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("31/10/2023", "is not a date or time, as in 2024-05-31"),
        (None, "is not a date or time"),
        (20231031, "is not a date or time"),
        ("2023-11-17T02:00", "is in the future"),
        (DAY + datetime.timedelta(days=400), "is in the future"),
    ],
)
def test_a_wrong_date_is_refused_with_its_row(
    tmp_path: Path, value: Any, why: str, simulated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_source, "time", SimpleNamespace(time=lambda: NOW))
    given = rows()
    given[16]["on"] = value
    with pytest.raises(UserError, match=rf"row 17, column 'on': the value {why}"):
        murk.run(
            weekly(simulated=simulated), given, person="who", time="on", seed=1 if simulated else None,
            log=f"sqlite:///{tmp_path}/log.db", ledger=tmp_path / "ledger.db",
        )  # fmt: skip
    with murk.stream.open_log(f"sqlite:///{tmp_path}/log.db") as log:
        assert log.document() is None


def test_times_need_windows_and_people() -> None:
    for task, more, why in (
        (weekly(), {"time": "on"}, "--time on: name the people by a column, too"),
        (make_task("protocol: examples"), {"time": "on", "person": "who"}, "--time on: the task .* has no windows"),
        (weekly(), {"time": "when", "person": "who"}, "no column 'when'"),
    ):
        with pytest.raises(UserError, match=why):
            murk.run(task, rows(), seed=1, **more)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_without_a_column_of_times_all_rows_are_of_now() -> None:
    result = murk.run(weekly(), rows(), seed=1, person="who")
    assert (result.n_releases, result.report["budget_windows"]) == (30, 1)


def dated(person: Any, *days_ago: int) -> list[dict[str, Any]]:
    """Rows of a person on days before the present one."""
    days = [DAY.date() - datetime.timedelta(days=days) for days in days_ago]
    answers = ("yes", "no")
    return [
        {**RECORD, "third_child": answers[place % 2], "who": person, "on": day.isoformat()}
        for place, day in enumerate(days)
    ]


class TestOddInput:
    """Odd names, dates, clocks and copies have a clear outcome, and nobody spends twice."""

    @pytest.mark.parametrize("name", ["", "  ", None, float("nan"), 7.5, "a\u200bb"])
    def test_a_person_without_a_name_stops_the_file(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: object
    ) -> None:
        monkeypatch.setattr(file_source, "time", SimpleNamespace(time=lambda: NOW))
        places = {"log": f"sqlite:///{tmp_path}/log.db", "ledger": tmp_path / "ledger.db"}
        with pytest.raises(
            UserError, match=r"row 3, column 'who': (this names nobody|a person's name has an invisible)"
        ):
            murk.run(weekly(), dated("ann", 1, 9) + dated(name, 1), person="who", time="on", seed=1, **places)  # type: ignore[arg-type]
        with murk.stream.open_log(f"sqlite:///{tmp_path}/log.db") as log:
            assert log.document() is None

    @pytest.mark.filterwarnings("ignore::UserWarning")
    def test_spellings_of_a_name_are_one_person(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(file_source, "time", SimpleNamespace(time=lambda: NOW))
        given = dated("7", 1, 9) + dated(" 7.0", 1, 9) + dated("007", 2) + dated("ann", 1)
        assert murk.run(weekly(), given, person="who", time="on", seed=1).n_releases == 3
        with World(tmp_path, weekly()) as world:
            assert [world.producer.hold(RECORD, person=name).outcome for name in ("7", " 7.0")] == ["held"] * 2
            [held] = world.ledger.held(world.task.hash, NOW + 14 * 86_400)
            assert (held.name, held.count) == ("7", 2)
            assert world.producer.release(RECORD, person="007").outcome == "released"
            assert world.producer.release(RECORD, person="7e0").outcome == "refused"

    @pytest.mark.parametrize("person", ["", " ", "\u200b", "a\u202eb"])
    def test_a_person_without_a_name_releases_nothing(self, person: str, tmp_path: Path) -> None:
        with World(tmp_path, weekly()) as world:
            for ask in (world.producer.release, world.producer.hold):
                with pytest.raises(UserError, match="name"):
                    ask(Untouchable(), person=person)
            assert world.ledger.totals().people == 0

    @pytest.mark.parametrize("weeks", [-3, 3])
    def test_a_clock_ahead_or_behind_is_of_the_window_of_the_log(self, weeks: int, tmp_path: Path) -> None:
        task, now = weekly(simulated=False), time.time()
        with World(tmp_path, task) as world:
            world.log._clock = lambda: now  # type: ignore[attr-defined]
            wrong = Producer(task, world.log, world.ledger, clock=lambda: now + weeks * 7 * 86_400)
            assert wrong.release(RECORD, person="ann").outcome == "released"
            assert world.ledger._file.query("SELECT newest FROM renewals") == [(window_of("week", int(now) // 86_400),)]
            # Nor does setting it right renew anything.
            right = Producer(task, world.log, world.ledger, clock=lambda: now)
            assert right.release(RECORD, person="ann").outcome == "refused"

    @pytest.mark.filterwarnings("ignore::UserWarning")
    def test_a_window_without_people_has_no_answer(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(file_source, "time", SimpleNamespace(time=lambda: NOW))
        given = [row for person in range(20) for row in dated(f"p{person}", 1, 29)]
        result = murk.run(weekly(), given, person="who", time="on", seed=1)
        assert (result.n_releases, result.report["budget_windows"]) == (40, 2)
        assert result.report["counted_rows"].startswith(
            "20 people with 40 rows in 2 weeks (2023-10-16 to 2023-11-13), 40 answers"
        )

    def test_a_record_that_was_held_by_a_clock_ahead_waits_for_its_window(self, tmp_path: Path) -> None:
        with World(tmp_path, weekly(LIFE)) as world:
            world.now += 400 * 86_400
            assert world.producer.hold(RECORD).outcome == "held"
            world.now -= 400 * 86_400
            assert world.producer.hold(RECORD).outcome == "held"
            world.now += 14 * 86_400
            assert [receipt.outcome for receipt in world.producer.release_held()] == ["released"]
            assert world.producer.release(RECORD).outcome == "released"
            world.now += 400 * 86_400
            # Nothing is left of `lifetime`.
            assert [receipt.outcome for receipt in world.producer.release_held()] == ["refused"]
            assert world.producer.next_held() is None

    def test_a_held_record_is_released_by_one_process_alone(self, tmp_path: Path) -> None:
        with World(tmp_path, weekly("  per_person: {gdp: {mu: 1.5}}\n")) as world:
            assert world.producer.hold(RECORD).outcome == "held"
            world.now += 14 * 86_400
            # Both have read it; this one comes second.
            [read] = world.ledger.held(world.task.hash, world.now)
            assert [receipt.outcome for receipt in world.producer.release_held()] == ["released"]
            assert world.producer._release_held(read).outcome == "known"
            assert world.log.end(0) == 1

    def test_a_level_that_is_allowed_no_more_stops_nobody_else(self, tmp_path: Path) -> None:
        task = weekly("  levels: {open: {gdp: {mu: 2.0}}}\n")
        with World(tmp_path, task) as world:
            assert world.producer.hold(RECORD, person="ann", level="open").outcome == "held"
            assert world.producer.hold(RECORD, person="ben").outcome == "held"
            world.now += 14 * 86_400
            strict = Policy(per_task=GaussianDP(1.5))
            clock = lambda: world.now  # noqa: E731
            device = Producer(task, world.log, world.ledger, policy=strict, noise=SimulatedNoise(3), clock=clock)
            assert sorted(receipt.outcome for receipt in device.release_held()) == ["refused", "released"]
            assert device.next_held() is None

    def test_people_are_in_another_order_in_each_window(self, tmp_path: Path) -> None:
        with World(tmp_path, weekly()) as world:
            for _ in range(2):
                for person in range(8):
                    assert world.producer.hold(RECORD, person=f"p{person}").outcome == "held"
                world.now += 7 * 86_400
            held = world.ledger.held(world.task.hash, world.now + 14 * 86_400)
            first, second = ([each.name for each in held[8 * week : 8 * week + 8]] for week in range(2))
            assert sorted(first) == sorted(second)
            # The same order by chance once in 40,000.
            assert first != second

    def test_another_window_is_another_task(self, tmp_path: Path) -> None:
        """It has its own log and budget; withdrawals hold, and what was held goes to the task that asked."""
        daily = weekly(LIFE, window="day")
        with World(tmp_path, weekly(LIFE)) as world:
            assert world.producer.hold(RECORD, person="ben").outcome == "held"
            with pytest.raises(UserError, match=r"differs in: privacy.window. The task of a log cannot be changed"):
                world.log.register_task(daily.document())
            (tmp_path / "other").mkdir()
            with murk.stream.open_log(f"sqlite:///{tmp_path}/other/log.db") as log:
                log.register_task(daily.document())
                other = Producer(daily, log, world.ledger, noise=SimulatedNoise(3), clock=lambda: world.now)
                outcomes = [other.release(RECORD, person="ann").outcome for _ in range(2)]
                assert outcomes == ["released", "refused"]
                world.now += 14 * 86_400
                assert other.release_held() == []
                assert [receipt.outcome for receipt in world.producer.release_held()] == ["released"]
                world.ledger.withdraw("ann", task_hash=daily.hash)
                assert world.producer.release(RECORD, person="ann").outcome == "refused"

    def test_a_copy_renews_nothing(self, tmp_path: Path) -> None:
        with World(tmp_path, weekly()) as world:
            assert world.producer.release(RECORD).outcome == "released"
        shutil.copy(tmp_path / "ledger.db", tmp_path / "copy.db")
        with World(tmp_path, weekly()) as world:
            world.now += 7 * 86_400
            assert world.producer.release(RECORD).outcome == "released"
        shutil.copy(tmp_path / "copy.db", tmp_path / "ledger.db")
        with pytest.raises(
            UserError, match=r"is an older copy, or has lost its -wal: ledger\.db\.last beside it knows 1"
        ):
            Ledger(tmp_path / "ledger.db")


class TestHeldRecords:
    """A device holds one record of its owner's window, and releases it afterwards."""

    def test_one_release_after_the_window_has_ended(self, tmp_path: Path) -> None:
        with World(tmp_path, weekly(LIFE)) as world:
            outcomes = [world.producer.hold(RECORD, person="ann").outcome for _ in range(5)]
            assert outcomes == ["held"] * 5
            assert world.producer.hold(RECORD, person="ben").outcome == "held"
            assert world.producer.release_held() == []
            assert world.ledger.totals().releases == 0
            world.now += 7 * 86_400
            assert world.producer.hold(RECORD, person="ann").outcome == "held"
            assert [receipt.outcome for receipt in world.producer.release_held()] == ["released"] * 2
            assert world.producer.release_held() == []
            # The window has had its answer.
            assert world.producer.hold(RECORD, person="ann", at=DAY).outcome == "refused"
            world.now += 14 * 86_400
            # It slept for two windows; lifetime allows two answers.
            assert world.producer.hold(RECORD, person="ann").outcome == "held"
            world.now += 7 * 86_400
            outcomes = [receipt.outcome for receipt in world.producer.release_held()]
            assert outcomes == ["released", "refused"]
            assert world.ledger._file.query("SELECT count(*) FROM held") == [(0,)]
            [task] = world.ledger.account("ann").tasks
            assert task.renewed is not None
            assert task.renewed.windows == 2

    def test_a_restart_loses_nothing_and_a_crash_releases_nothing_twice(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with World(tmp_path, weekly()) as world:
            world.producer.hold(RECORD, person="ann")
            world.producer.hold(RECORD, person="ben")
        with World(tmp_path, weekly()) as world:
            world.now += 7 * 86_400
            with monkeypatch.context() as at:
                at.setattr(world.producer, "_freeze", lambda *given: 1 / 0)
                with pytest.raises(ZeroDivisionError):
                    world.producer.release_held()
            assert world.ledger.totals().releases == 0
        with World(tmp_path, weekly()) as world:
            world.now += 7 * 86_400
            assert [receipt.outcome for receipt in world.producer.release_held()] == ["released"] * 2
            assert world.producer.release_held() == []
            assert len(world.messages()) == 2

    def test_the_record_is_drawn_uniformly(self, tmp_path: Path) -> None:
        """Of 400 people with 4 records each place has 100, within 5 standard errors but once in 4e5."""
        with World(tmp_path, weekly()) as world:
            for person in range(400):
                for age in (21, 25, 29, 33):
                    world.producer.hold({**RECORD, "age": age}, person=f"p{person}")
            held = world.ledger.held(world.task.hash, NOW + 14 * 86_400)
            counts = Counter(round(float(each.x[0]), 3) for each in held)
        assert (len(held), len(counts)) == (400, 4)
        error = 5 * (400 * 3 / 16) ** 0.5
        assert max(abs(count - 100) for count in counts.values()) < error
        # The newest record alone, or each kept with probability a half, is not uniform.
        assert abs(200 - 100) > error
        coded = world.task.coding.encode_record({**RECORD, "age": 25})
        assert any(np.array_equal(each.x, coded.x) and each.y == coded.y for each in held)

    def test_answers_are_spread_over_a_quarter_of_a_window(self, tmp_path: Path) -> None:
        """Of 400 devices each quarter of the time has 100, within 5 standard errors but once in 4e5."""
        with World(tmp_path, weekly(simulated=False)) as world:
            world.now = time.time()
            assert world.producer.next_held() is None
            for person in range(400):
                world.producer.hold(RECORD, person=f"p{person}")
            first = world.producer.next_held()
            assert first is not None
            # The time is that of the window, whatever further records are held.
            world.producer.hold(RECORD, person="p0")
            assert world.producer.next_held() == first
            due = [due for (due,) in world.ledger._file.query("SELECT due FROM held")]
            [window] = world.producer._budget_windows(None) or []
            end, spread = end_of("week", window), spread_of("week")
            assert end <= min(due) <= max(due) < end + spread == end + 42 * 3600
            counts = Counter(4 * (moment - end) // spread for moment in due)
            error = 5 * (400 * 3 / 16) ** 0.5
            assert max(abs(counts[quarter] - 100) for quarter in range(4)) < error
            # All in the first hour, say, would be seen.
            assert abs(400 - 100) > error
            assert first.timestamp() == min(due)
            world.now = min(due) - 1
            assert world.ledger.held(world.task.hash, world.now) == []

    def test_a_device_that_slept_answers_the_window_that_it_was_awake_in(self, tmp_path: Path) -> None:
        with World(tmp_path, weekly(simulated=True)) as world:
            assert world.producer.hold(RECORD, person="ann").outcome == "held"
            assert world.producer.hold(RECORD, person="ben").outcome == "held"
            world.now += 28 * 86_400
            # Ben's newer answer comes first: none of an earlier window follows.
            assert world.producer.release(RECORD, person="ben").outcome == "released"
            receipts = world.producer.release_held()
            assert sorted(receipt.outcome for receipt in receipts) == ["refused", "released"]
            [refused] = [receipt for receipt in receipts if receipt.outcome == "refused"]
            assert "in a later window" in refused.reason
            assert world.ledger._file.query("SELECT newest, windows FROM renewals ORDER BY newest") == [
                (window_of("week", int(NOW) // 86_400), 1),
                (window_of("week", int(NOW) // 86_400 + 28), 1),
            ]
            assert world.producer.hold(RECORD, person="ann").outcome == "held"

    def test_it_is_encrypted_and_deleted_with_its_person(self, tmp_path: Path) -> None:
        with World(tmp_path, weekly(simulated=False)) as world:
            for person in ("ann-of-the-hill", "ben"):
                world.producer.hold({**RECORD, "age": 27.123}, person=person)
            [(record,), (other,)] = world.ledger._file.query("SELECT record FROM held")
            # Equal records look different, and their length is that of any record and of most names.
            assert record != other
            assert len(record) == len(other) == 16 + 4 + 8 * (world.task.coding.size + 2) + 64
            stored = b"".join(path.read_bytes() for path in tmp_path.glob("ledger.db*") if path.suffix != ".key")
            assert b"ann-of-the-hill" not in stored
            assert world.task.coding.encode_record({**RECORD, "age": 27.123}).x[:1].tobytes() not in stored
            world.ledger.withdraw("ann-of-the-hill", task_hash=world.task.hash)
            assert world.ledger._file.query("SELECT count(*) FROM held") == [(1,)]
            assert world.producer.hold(RECORD, person="ann-of-the-hill").outcome == "refused"
            world.ledger.withdraw("ben")
            assert world.ledger._file.query("SELECT count(*) FROM held") == [(0,)]

    def test_the_files_do_not_show_how_many_there_were(self, tmp_path: Path) -> None:
        """After one record and after 300 the files differ in the ciphertext alone, and no log keeps older ones."""

        def files() -> dict[str, bytes]:
            return {path.name: path.read_bytes() for path in tmp_path.glob("ledger.db*") if path.suffix != ".db-shm"}

        with World(tmp_path, weekly(simulated=False)) as world:
            stored = []
            for count in (1, 299):
                for _ in range(count):
                    assert world.producer.hold(RECORD, person="ann").outcome == "held"
                stored.append(files())
                [(record,)] = world.ledger._file.query("SELECT record FROM held")
            before, after = stored
            assert before["ledger.db-wal"] == after["ledger.db-wal"] == b""
            assert [name for name in before if before[name] != after[name]] == ["ledger.db"]
            first, last = (np.frombuffer(each["ledger.db"], np.uint8) for each in stored)
            start = after["ledger.db"].index(record)
            assert set(np.flatnonzero(first != last)) <= set(range(start, start + len(record)))
            [held] = world.ledger.held(world.task.hash, 2**40)
            assert held.count == 300

    def test_what_is_refused_is_not_read(self, tmp_path: Path) -> None:
        with World(tmp_path, weekly()) as world:
            assert world.producer.release(RECORD).outcome == "released"
            assert world.producer.hold(Untouchable()).outcome == "refused"
        (tmp_path / "other").mkdir()
        with World(tmp_path / "other", make_task("protocol: examples")) as world:
            with pytest.raises(UserError, match=r"has no windows \(privacy.window\): use release"):
                world.producer.hold(RECORD)
            assert world.producer.release_held() == []
