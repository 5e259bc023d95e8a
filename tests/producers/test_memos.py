"""Tasks whose people repeat their last answer while their coded record is unchanged."""

import datetime
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import murk
from murk import Task
from murk.errors import MurkError, UserError
from murk.producers.ledger.memos import Memo, covered, fingerprints, uncovered
from murk.producers.ledger.names import NameKey
from murk.producers.producer import ReleaseCall, marks_of
from murk.protocols.device import device_for
from murk.results.report import describe_cap
from murk.task.windows import SUPPOSED
from tests.producers.world import NOW, World, make_task

WEEK = 7 * 86_400
PRIVACY = "privacy: {guarantee: {gdp: {mu: 1}}, window: week, repeat: same%s}\n"
LIFE = ", lifetime: {gdp: {mu: 1.5}}"
TASKS = {
    "share": 'features: []\ntarget: {name: y, kind: binary, positive: "1"}',
    "mean": "features: []\ntarget: {name: y, kind: real, low: 0, high: 1}",
    "known": 'features: [{name: arm, categories: [a, b], known: true}]\ntarget: {name: y, kind: binary, positive: "1"}',
    "moments": "features: [{name: x, low: 0, high: 1}]\ntarget: {name: y, kind: real, low: 0, high: 1}\n"
    "protocol: moments",
    "examples": "features: [{name: x, low: 0, high: 1}]\n"
    'target: {name: y, kind: binary, positive: "1"}\nprotocol: examples',
}


def task_of(kind: str = "share", more: str = LIFE, *, simulated: bool = True) -> Task:
    return Task.parse(f"name: visits\n{TASKS[kind]}\n{PRIVACY % more}").with_simulated(simulated)


def sent(world: World) -> list[dict[str, Any]]:
    return [json.loads(message.value) for message in world.messages()]


def answer(world: World, y: Any, person: str = "ann", **more: Any) -> str:
    """Release in a new window, and return the outcome."""
    outcome = world.producer.release({"y": y, "x": 0.25, "arm": "b"}, person=person, **more).outcome
    world.now += WEEK
    return outcome


@pytest.mark.parametrize("kind", TASKS)
def test_an_unchanged_record_repeats_its_answer(kind: str, tmp_path: Path) -> None:
    with World(tmp_path, task_of(kind)) as world:
        assert [answer(world, y) for y in ("1", "1", "0", "0", "1")] == ["released"] * 5
        releases = sent(world)
        payloads = [each["payload"] for each in releases]
        assert payloads[0] == payloads[1]
        # Randomized response may draw one answer twice, where few are possible.
        assert kind in ("share", "known") or payloads[1] != payloads[2]
        # mu^2 = 2.25 allows two new answers; then the last one is repeated, whatever the record is.
        assert payloads[2] == payloads[3] == payloads[4]
        assert len({each["id"] for each in releases}) == 5
        [account] = world.ledger.account("ann").tasks
        assert {level.mechanism == "repeated": level.released for level in account.levels} == {False: 2, True: 3}
        assert account.accountant.releases == 2
        assert "mu = 1.414" in account.guarantee.describe()  # type: ignore[union-attr]
        assert account.renewed is not None
        assert account.renewed.windows == 5


def test_whether_somebody_sends_does_not_depend_on_their_record(tmp_path: Path) -> None:
    outcomes = []
    for name, values in (("same", "000000"), ("changing", "010101"), ("back", "001100")):
        (tmp_path / name).mkdir()
        with World(tmp_path / name, task_of()) as world:
            outcomes.append([answer(world, value) for value in values])
    assert outcomes == [["released"] * 6] * 3


def test_one_answer_a_window(tmp_path: Path) -> None:
    with World(tmp_path, task_of()) as world:
        answer(world, "1")
        assert answer(world, "1") == "released"
        world.now -= WEEK
        assert [answer(world, "1"), answer(world, "1", at=datetime.datetime(2023, 11, 1))] == ["refused", "refused"]
        assert len(sent(world)) == 2


@pytest.mark.parametrize("kind", ["share", "known"])
def test_the_draw_of_a_row_is_no_change(kind: str, tmp_path: Path) -> None:
    """One record is one of two rows that count: the other one, without a target, is drawn half of the times."""
    weighed = Task.parse(f"name: visits\n{TASKS[kind]}\nweight: {{rows: 2}}\n{PRIVACY % ''}").with_simulated(True)
    with World(tmp_path, weighed) as world:
        assert [answer(world, "1") for _ in range(12)] == ["released"] * 12
        assert len({json.dumps(each["payload"]) for each in sent(world)}) == 1
        [account] = world.ledger.account("ann").tasks
        assert account.accountant.releases == 1
        # The twin: another record.
        answer(world, "0")
        [account] = world.ledger.account("ann").tasks
        assert account.accountant.releases == 2


def test_each_person_and_level_has_an_answer_of_its_own(tmp_path: Path) -> None:
    text = PRIVACY.replace("repeat", "levels: {open: {gdp: {mu: 2}}}, repeat") % ""
    with World(tmp_path, Task.parse(f"name: visits\n{TASKS['mean']}\n{text}").with_simulated(True)) as world:
        for person, level in (("ann", "default"), ("ben", "default"), ("ann", "open"), ("ann", "open")):
            world.producer.release({"y": 0.5}, person=person, level=level)
            world.now += WEEK
        first, second, third, fourth = sent(world)
        assert third["payload"] == fourth["payload"]
        assert (third["level"], fourth["level"]) == ("open", "open")
        assert len({tuple(each["payload"]) for each in (first, second, third)}) == 3


def test_the_level_of_a_repeated_answer_is_its_own(tmp_path: Path) -> None:
    """Whoever has spent their budget repeats an answer at the level at which it was made."""
    text = PRIVACY.replace("repeat", "levels: {open: {gdp: {mu: 2}}}, repeat") % ", lifetime: {gdp: {mu: 2}}"
    with World(tmp_path, Task.parse(f"name: visits\n{TASKS['mean']}\n{text}").with_simulated(True)) as world:
        assert answer(world, 0.5, level="open") == answer(world, 0.5, level="default") == "released"
        first, second = sent(world)
        assert (first["payload"], first["level"]) == (second["payload"], second["level"])


def test_held_records_repeat_answers(tmp_path: Path) -> None:
    with World(tmp_path, task_of("moments")) as world:
        for y in (0.5, 0.5, 0.25):
            world.producer.hold({"x": 0.5, "y": y}, person="ann")
            world.now += 2 * WEEK
            [receipt] = world.producer.release_held()
            assert receipt.outcome == "released"
        payloads = [each["payload"] for each in sent(world)]
        assert payloads[0] == payloads[1] != payloads[2]


def test_nothing_is_kept_without_its_debit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with World(tmp_path, task_of("moments")) as world:
        with monkeypatch.context() as broken:
            broken.setattr(world.producer, "_write", lambda **_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                world.producer.release({"x": 0.5, "y": 0.5}, person="ann")
        assert world.ledger._file.query("SELECT count(*) FROM memos") == [(0,)]
        assert world.ledger.totals().releases == 0
        assert answer(world, 0.5) == "released"
        assert world.ledger._file.query("SELECT count(*) FROM memos") == [(1,)]


def test_a_withdrawal_deletes_the_answer(tmp_path: Path) -> None:
    with World(tmp_path, task_of()) as world:
        for person in ("ann", "ben"):
            answer(world, "1", person)
        world.ledger.withdraw("ann", task_hash=world.task.hash)
        assert world.ledger._file.query("SELECT count(*) FROM memos") == [(1,)]
        assert answer(world, "1") == "refused"
        world.ledger.withdraw("ben")
        assert world.ledger._file.query("SELECT count(*) FROM memos") == [(0,)]


def test_a_memo_is_read_with_its_key_alone() -> None:
    memo, key = Memo("default", b"f" * 16, [3, -(2**40), 0]), NameKey(b"k" * 32)
    first, second = covered(memo, key), covered(memo, key)
    assert uncovered("default", first, key) == uncovered("default", second, key) == memo
    # Each has a pad of its own, so the file does not show which are alike.
    assert first != second
    assert memo.fingerprint not in first
    with pytest.raises(UserError, match="another key"):
        uncovered("default", first, NameKey(b"l" * 32))
    vectors = np.array([[0.1 + 0.2, -0.0], [0.3, 0.0], [0.3, 1e-6]])
    marks = fingerprints(vectors, key)
    assert marks[0] == marks[1] != marks[2]
    assert fingerprints(vectors, NameKey(b"l" * 32))[0] != marks[0]


def weeks_of(people: int, weeks: int, changing: int = 0) -> list[dict[str, Any]]:
    """Each person has two rows a week, in any order, with one mean; the first ones change each week."""
    monday = datetime.date(2023, 9, 4)
    rows = []
    for week in range(weeks):
        for person in range(people):
            y = 0.2 + 0.6 * (person % 7) / 7.0 + (0.01 * week if person < changing else 0.0)
            for day in (week % 2, 2 - week % 2):
                on = monday + datetime.timedelta(days=7 * week + day)
                rows.append({"who": f"p{person}", "on": on, "x": person % 3 / 3, "y": y + 0.01 * (day - 1)})
    return rows


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("kind", ["mean", "moments"])
def test_a_file_repeats_answers(kind: str, tmp_path: Path) -> None:
    """Rows of a week are one mean, in whatever order; an interrupted file ends as if it had not been."""

    class StopError(Exception):
        pass

    def run(folder: Path, stop: int | None = None) -> murk.Result:
        def progress(done: int, size: int) -> None:
            if stop is not None and done >= stop:
                raise StopError

        folder.mkdir(exist_ok=True)
        places = {"log": f"sqlite:///{folder}/log.db", "ledger": folder / "ledger.db"}
        options = {"person": "who", "time": "on", "seed": 3, "block": 7}
        task = task_of(kind, "")
        return murk.run(task, weeks_of(30, 4, changing=5), progress=progress, **places, **options)  # type: ignore[arg-type]

    for stop in (20, 61):
        with pytest.raises(StopError):
            run(tmp_path / "killed", stop)
    whole, killed = run(tmp_path / "whole"), run(tmp_path / "killed")
    assert whole.n_releases == killed.n_releases == 120
    assert whole.report["state_digest"] == killed.report["state_digest"]
    with murk.producers.Ledger(tmp_path / "whole" / "ledger.db") as ledger:
        kinds = ledger._file.query(
            "SELECT mechanism = 'repeated', sum(released) FROM spending JOIN tariffs ON number = tariff GROUP BY 1"
        )
    # New are those of the first week, and of the five who change in each of the others.
    assert dict(kinds) == {0: 30 + 3 * 5, 1: 3 * 25}


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_repeated_noise_does_not_average_out() -> None:
    """Four weeks of the same answers are as uncertain as one; new answers are not."""
    halves = {}
    for repeat, weeks in (("same", 1), ("same", 4), ("anew", 4)):
        task = Task.parse(f"name: visits\n{TASKS['mean']}\n{PRIVACY.replace('same%s', repeat)}")
        result = murk.run(task, weeks_of(200, weeks), person="who", time="on", seed=1)
        low, high = next(iter(result.coefficients.values())).interval
        halves[repeat, weeks] = (high - low) / 2.0
        assert result.n_releases == 200 * weeks
    assert halves["same", 4] == pytest.approx(halves["same", 1], rel=0.1)
    assert halves["anew", 4] < 0.8 * halves["same", 1]


def test_what_a_log_allows_for() -> None:
    repeats = task_of().repeats
    assert (repeats.most, repeats.effect, repeats.supposed) == (SUPPOSED, SUPPOSED, True)
    assert "Repeated answers have no noise of their own" in repeats.words
    words = describe_cap(task_of())
    assert "no noise hides that" in words
    assert "the last answer is repeated, whatever the record is" in words


def test_statements_say_what_repeating_shows(tmp_path: Path) -> None:
    with World(tmp_path, task_of()) as world:
        for y in ("1", "1", "1"):
            answer(world, y)
        lines = world.ledger.account("ann").describe()
    [line] = [line for line in lines if "repeated" in line]
    assert "2 repeated" in line
    assert "shows which answers are one person's" in line


@pytest.mark.parametrize(
    ("more", "privacy", "why"),
    [
        ("protocol: scores", "window: week, repeat: same", "in each round"),
        ("protocol: gradients", "window: week, repeat: same", "say protocol: moments or examples"),
        ("protocol: moments", "repeat: same", "write privacy.window"),
        ("protocol: moments", "window: week, repeat: same, per_person: {gdp: {mu: 2}}", "one answer a window"),
        ("protocol: moments", "window: week, repeat: again", "anew"),
    ],
)
def test_tasks_that_repeat_nothing(more: str, privacy: str, why: str) -> None:
    with pytest.raises(UserError, match=why):
        Task.parse(f"name: visits\n{TASKS['moments'].partition('protocol')[0]}{more}\n"
                   f"privacy: {{guarantee: {{gdp: {{mu: 1}}}}, {privacy}}}\n")  # fmt: skip


def test_anew_is_the_default() -> None:
    plain = make_task("protocol: moments", simulated=False)
    assert plain.privacy.repeat == "anew"
    assert b"repeat" not in plain.document()
    assert (
        task_of().hash != Task.parse(f"name: visits\n{TASKS['share']}\n{(PRIVACY % LIFE).replace('same', 'anew')}").hash
    )


def test_a_block_holds_a_person_once(tmp_path: Path) -> None:
    with World(tmp_path, task_of()) as world:
        from murk.producers.ledger.names import ReleaseRequests

        week = int(NOW) // WEEK
        requests = ReleaseRequests([None, None], ["ann"] * 2, ["default"] * 2, windows=[week, week + 1])
        with pytest.raises(MurkError, match="each person once"), world.ledger.spending(world.task.hash, requests):
            pass


def test_a_group_repeats_and_counts_as_releases_do(tmp_path: Path) -> None:
    with World(tmp_path, task_of("mean", "")) as world:
        calls = [ReleaseCall({"y": 0.5}, person=person) for person in ("ann", "ben", "ann")]
        for _ in range(2):
            receipts = world.producer.release_group(calls)
            assert [each.outcome for each in receipts] == ["released", "released", "refused"]  # type: ignore[union-attr]
            world.now += WEEK
        payloads = [tuple(each["payload"]) for each in sent(world)]
        assert sorted(payloads[:2]) == sorted(payloads[2:])
        assert len(set(payloads)) == 2


def test_an_answer_of_a_level_that_another_process_booked_is_repeated(tmp_path: Path) -> None:
    """A process books the levels that it is asked for, and the last answer may be of another one."""
    more = PRIVACY.replace("repeat", "levels: {from: 0.5, to: 2}, repeat") % LIFE
    task, outcomes = Task.parse(f"name: visits\n{TASKS['share']}\n{more}").with_simulated(False), {}
    levels = [task.privacy.level_of(mu) for mu in (0.7, 0.7, 0.7, 0.7, 0.7, 0.6, 0.6)]
    # The log's own clock bounds the devices'.
    first = datetime.datetime.now(datetime.UTC) - datetime.timedelta(weeks=len(levels) + 1)
    for name, values in (("same", "1111111"), ("changing", "0101011")):
        (tmp_path / name).mkdir()
        outcomes[name] = []
        for week, (value, level) in enumerate(zip(values, levels, strict=True)):
            with World(tmp_path / name, task) as world:
                at = first + datetime.timedelta(weeks=week)
                outcomes[name].append(answer(world, value, level=level, at=at))
    assert outcomes == dict.fromkeys(outcomes, ["released"] * len(levels))


def test_one_records_error_stops_no_other_that_repeats(tmp_path: Path) -> None:
    class Hostile(dict[str, Any]):
        def get(self, *_: Any) -> Any:
            raise RuntimeError("mine")

        __getitem__ = get

    with World(tmp_path, task_of(simulated=False)) as world:
        calls = [ReleaseCall({"y": "1"}, "ann"), ReleaseCall(Hostile(y="1"), "eve"), ReleaseCall({"y": "0"}, "bob")]
        ann, eve, bob = world.producer.release_group(calls)
        assert [each.outcome for each in (ann, bob)] == ["released", "released"]  # type: ignore[union-attr]
        assert isinstance(eve, RuntimeError)
        assert eve.__traceback__ is None


def test_order_and_number_of_rows_are_no_change() -> None:
    """One of a person's rows is drawn: rows in another order, or each twice as often, give the same answers."""
    device, key = device_for(task_of("share")), NameKey(b"k" * 32)

    def mark(targets: list[float], most: int = 1) -> bytes:
        y, counts = np.array(targets), np.array([len(targets)])
        return marks_of(device, np.ones((len(y), 1)), y, counts, key, most)[0]

    rows = [1.0, 0.0, math.nan, 1.0]
    assert mark(rows) == mark(rows[::-1]) == mark(rows * 3)
    assert mark([1.0]) == mark([1.0, 1.0])
    # The twins: another share of each, and rows that count.
    assert len({mark(rows), mark([1.0, 0.0, math.nan]), mark([1.0, 0.0, 0.0, math.nan]), mark([1.0])}) == 4
    assert mark([1.0], 3) != mark([1.0, 1.0], 3)
    assert mark([1.0] * 3, 3) == mark([1.0] * 4, 3)
