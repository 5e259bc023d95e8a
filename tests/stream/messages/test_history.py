"""The history of a partition's estimate: its points follow from the log alone, and are few whatever the count."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from murk.errors import MurkError
from murk.stream.log.open import open_log
from murk.stream.log.sqlite import SqliteLog
from murk.stream.wire.codec import HISTORY_BYTES, MOST_POINTS, WireRules, decode, history_bytes, most_points
from murk.stream.wire.packed import Fetched
from murk.stream.wire.state import History, HistoryRecorder, decode_state, first_point
from murk.stream.worker.worker import Worker
from tests.stream.harness import DIMENSION, drain, learn, learner_for, make_task, message, put, state_of

MANY = 300


class Flat:
    """An estimate that says at which count it was made."""

    def __init__(self, count: int, coefficients: int) -> None:
        self.values = np.full(coefficients, float(count))
        self.standard_error = 0.5

    def half_widths(self, level: float = 0.95) -> np.ndarray:
        assert level == 0.95
        return np.full(len(self.values), np.inf)


def walked(until: int, coefficients: int = 2, first: int = 16) -> History:
    """The history of a partition that has come so far, one release after another."""
    recorder = HistoryRecorder(History(), coefficients, first, "here")
    count = 0
    while (count := recorder.next(count) or until + 1) <= until:
        recorder.add(count, count // 100, Flat(count, coefficients))
    return recorder.history


def test_points_are_spread_over_the_logarithm() -> None:
    counts = walked(10**6).counts
    assert counts[:10] == [16, 20, 24, 28, 32, 40, 48, 56, 64, 80]
    steps = np.diff(np.log2(counts))
    assert steps.max() < 0.33
    assert steps.min() > 0.19
    assert walked(20, first=1).counts == [*range(1, 9), 10, 12, 14, 16, 20]
    assert [first_point(kind) for kind in ("gradient", "sketch", "gram", "newton")] == [16, 1, 1, 1]


@pytest.mark.parametrize("coefficients", [1, 200, 1000])
def test_there_are_never_too_many_and_they_follow_from_the_count_alone(coefficients: int) -> None:
    most = most_points(coefficients)
    assert 16 <= most <= MOST_POINTS
    reached = 2**55
    whole = walked(reached, coefficients)
    assert most // 2 <= len(whole.counts) <= most
    assert len(json.dumps(whole.model_dump())) <= history_bytes(coefficients) < HISTORY_BYTES + 8000
    for until in (50, 1000, 2**20 + 1):
        assert len(walked(until, coefficients).counts) <= most
    table = whole.table(coefficients, "here")
    assert table.shape == (len(whole.counts), 2 * coefficients + 1)
    assert np.all(table[:, :coefficients] == np.float32(whole.counts)[:, None])
    assert np.all(np.isinf(table[:, coefficients:-1]))
    # Where it began late, as one of an older version does, it has the same points from there on.
    late = HistoryRecorder(History(), coefficients, 16, "here")
    count = late.next(1000) or 0
    assert count in walked(2000, coefficients).counts


@pytest.mark.parametrize("coefficients", [1, 4, 7])
def test_room_for_a_trail_is_what_the_longest_takes(coefficients: int) -> None:
    """Counts of 18 digits and times of 10, of which the first is as long as all others; and hardly more."""
    most = most_points(coefficients)
    numbers = "A" * (most * 4 * -(-4 * (2 * coefficients + 1) // 3))
    longest = History(counts=[10**18 - 1] * most, times=[10**10 - 1] * most, numbers=numbers)
    length = len(json.dumps(longest.model_dump(), separators=(",", ":")))
    assert length <= history_bytes(coefficients) <= length + 64


def test_a_point_beyond_all_room_is_not_kept() -> None:
    assert most_points(5000) == 0
    recorder = HistoryRecorder(History(), 5000, 16, "here")
    assert recorder.next(0) is None


@pytest.mark.parametrize("coefficients", [1, 200, 1000])
@pytest.mark.parametrize("grows", [False, True])
def test_of_points_at_any_count_few_are_kept_and_always_the_newest(coefficients: int, grows: bool) -> None:
    """As of models, which come at counts of their own; where old releases are forgotten, evenly for good."""
    recorder = HistoryRecorder(History(), coefficients, 256, "here")
    count = 3_100
    for model in range(1_000):
        recorder.add(count, model, Flat(count, coefficients))
        history = recorder.history
        assert history.counts[-1] == count
        assert len(history.counts) <= most_points(coefficients)
        count += max(3_000, count // 9) if grows and model < 300 else 3_000
    table = history.table(coefficients, "here")
    assert np.all(table[:, 0] == np.float32(history.counts))
    # Half of what there is room for, were it full; the grid begins long before the first of these.
    assert len(history.counts) >= 10
    # One who begins with it goes on as the one who made it.
    again = HistoryRecorder(history, coefficients, 256, "here")
    for one in (recorder, again):
        one.add(count, 1_000, Flat(count, coefficients))
    assert again.history == recorder.history


def test_times_never_go_back() -> None:
    recorder = HistoryRecorder(History(), 1, 16, "here")
    for count, time in ((16, 500), (20, 400), (24, 600)):
        recorder.add(count, time, Flat(count, 1))
    assert recorder.history.times == [500, 500, 600]


@pytest.mark.parametrize(
    "change",
    [
        {"counts": [16, 16, 24]}, {"counts": [20, 16, 24]}, {"counts": [16, 20]}, {"times": [1, 2]},
        {"numbers": "AAAA"}, {"numbers": "*"},
    ],
    ids=str,
)  # fmt: skip
def test_a_damaged_trail_is_refused(change: dict) -> None:
    whole = walked(24)
    assert len(whole.counts) == 3
    HistoryRecorder(whole, 2, 16, "here")
    with pytest.raises(MurkError, match=r"the state of here is damaged \(invalid: history"):
        HistoryRecorder(whole.model_copy(update=change), 2, 16, "here")
    with pytest.raises(MurkError, match="damaged"):
        HistoryRecorder(whole, 3, 16, "here")


@pytest.fixture
def log(tmp_path: Path):
    with open_log(f"sqlite:///{tmp_path}/log.db") as opened:
        opened.register_task(make_task(more="granularity: 100s").document())
        yield opened


TASK = make_task(more="granularity: 100s")


def test_a_partition_notes_where_it_stood_and_when(log: SqliteLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the log's own times, truncated, whatever the clock says; duplicates and dead letters are no releases."""
    fetch = SqliteLog.fetch

    def timed(self: SqliteLog, partition: int, offset: int, limit: int) -> Fetched:
        fetched = fetch(self, partition, offset, limit)
        return replace(fetched, times=1_000_050 + 3 * fetched.offsets)

    monkeypatch.setattr(SqliteLog, "fetch", timed)
    releases = [message(TASK, i) for i in range(MANY)]
    put(log, [b"malformed", *releases[:10], releases[3], *releases[10:]])
    history = learn(log, TASK).history
    assert history.counts == walked(MANY).counts
    # Before the release that made the count n stood 2 others and n - 1 releases.
    assert history.times == [(1_000_050 + 3 * (count + 1)) // 100 * 100 for count in history.counts]
    table = history.table(DIMENSION, "here")
    single = learner_for(TASK)
    rules = WireRules(TASK.hash, TASK.simulated, (DIMENSION,), {"default": single.mechanisms["default"].magnitude})
    for count, row in zip(history.counts, table, strict=True):
        single.learn_releases([decode(value, rules) for value in releases[single.n_releases : count]])
        found = single.estimate()
        assert row.tobytes() == np.float32([*found.values, *found.half_widths(), found.standard_error]).tobytes()


@pytest.mark.parametrize("batch", [1, 7, 64])
def test_it_does_not_depend_on_batches_and_restarts(log: SqliteLog, tmp_path: Path, batch: int) -> None:
    put(log, [message(TASK, i) for i in range(MANY)])
    whole = learn(log, TASK)
    with open_log(f"sqlite:///{tmp_path}/other.db") as other:
        other.register_task(TASK.document())
        put(other, [message(TASK, i) for i in range(MANY)])
        for _ in range(3):
            with Worker(other, TASK, learner_for(TASK), batch=batch) as worker:
                worker.step()
                worker.step()
        with Worker(other, TASK, learner_for(TASK), batch=batch) as worker:
            drain(worker)
        again = state_of(other)
    assert again.history.model_copy(update={"times": []}) == whole.history.model_copy(update={"times": []})
    assert again.learner == whole.learner


def test_a_damaged_history_is_refused(log: SqliteLog) -> None:
    put(log, [message(TASK, 0)])
    content = json.loads(learn(log, TASK).encode())
    with pytest.raises(MurkError, match="invalid: history"):
        decode_state(json.dumps({**content, "history": {"counts": [-1]}}).encode(), "here")


def test_what_cannot_be_told_is_a_gap_and_stops_nothing(log: SqliteLog, monkeypatch: pytest.MonkeyPatch) -> None:
    put(log, [message(TASK, i) for i in range(100)])
    learner = learner_for(TASK)
    estimate = type(learner).estimate

    def failing(self: object) -> object:
        if learner.n_releases == 32:
            raise np.linalg.LinAlgError("did not converge")
        return estimate(learner)

    monkeypatch.setattr(type(learner), "estimate", failing)
    with Worker(log, TASK, learner) as worker:
        drain(worker)
    assert state_of(log).history.counts == [count for count in walked(100).counts if count != 32]


def leave_room(monkeypatch: pytest.MonkeyPatch, room: int) -> None:
    """Let a state be no longer than so many bytes."""
    for module in ("worker.worker", "wire.state"):
        monkeypatch.setattr(f"murk.stream.{module}.MAX_STATE", room)


def test_a_state_that_leaves_no_room_goes_without(log: SqliteLog, monkeypatch: pytest.MonkeyPatch) -> None:
    put(log, [message(TASK, i) for i in range(100)])
    leave_room(monkeypatch, 900)
    found = learn(log, TASK)
    assert (found.counters.learned, found.history) == (100, History())


@pytest.mark.parametrize(("more", "kept"), [(2_000, False), (6_000, True)])
def test_room_is_needed_for_the_longest_trail_and_for_all_the_rest(
    log: SqliteLog, monkeypatch: pytest.MonkeyPatch, more: int, kept: bool
) -> None:
    put(log, [message(TASK, i) for i in range(40)])
    size = len(json.dumps(learn(log, TASK).learner))
    put(log, [message(TASK, i) for i in range(40, 100)])
    leave_room(monkeypatch, size + history_bytes(DIMENSION) + more)
    assert bool(learn(log, TASK).history.counts) == kept


@pytest.mark.parametrize("room", [900, 2500])
def test_without_room_it_does_not_depend_on_restarts_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    """A few points would fit where many do not, and anyone who begins late has but a few."""
    leave_room(monkeypatch, room)
    found = set()
    for stops in ([100], [60, 40], [90, 10]):
        with open_log(f"sqlite:///{tmp_path}/{stops[0]}.db") as one:
            one.register_task(TASK.document())
            put(one, [message(TASK, i) for i in range(100)])
            for stop in stops:
                with Worker(one, TASK, learner_for(TASK)) as worker:
                    worker.step(stop)
            found.add(tuple(state_of(one).history.counts))
    assert len(found) == 1
