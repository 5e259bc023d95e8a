"""Estimates by window and their smoothed path: bands, state, and which window a release belongs to."""

import datetime
import json
import math
import re
from dataclasses import replace
from functools import partial
from statistics import NormalDist

import numpy as np
import pytest

import murk
from murk import Task
from murk.errors import MurkError, UserError
from murk.inference.estimate import Estimate
from murk.inference.track import simultaneous_level, track_of
from murk.populations.local_run import LocalRun
from murk.populations.people import PopulationConfig
from murk.privacy import GaussianDP
from murk.producers import Ledger, Producer
from murk.protocols import windows
from murk.protocols.device import device_for
from murk.stream.log.sqlite import SqliteLog
from murk.stream.worker.worker import Worker
from murk.task.windows import begin_of, effect_of, start_of, utc_day, window_of

SHARES = """
name: visits
features: []
target: {name: y, kind: binary, positive: "1", negative: "0", missing_share: 0}
privacy: {guarantee: {gdp: {mu: 2.0}}, window: week}
track: {window: week, smooth: 1}
"""
SCORES = """
name: visits
features: [{name: a, low: -1, high: 1, typical: [-0.95, 0.95]}]
target: {name: y, kind: real, low: -1, high: 1, typical: [-0.9, 0.9]}
privacy: {guarantee: {gdp: {mu: 4.0}}, window: week}
track: {window: week, smooth: 1}
"""
MONDAY = datetime.date(2024, 1, 1)


def weekly(people, weeks, value, seed=1):
    rng = np.random.default_rng(seed)
    return [
        {"p": f"p{person}", "d": MONDAY + datetime.timedelta(days=7 * week + person % 7), **value(rng, week)}
        for week in range(weeks)
        for person in range(people)
    ]


def share(rng, week):
    return {"y": str(int(rng.random() < 0.2 + 0.1 * week))}


def line(rng, week):
    a = rng.uniform(-1, 1)
    return {"a": a, "y": (0.1 + 0.2 * week) * a + rng.uniform(-0.2, 0.2)}


EFFECT = partial(effect_of, guarantees=[GaussianDP(1.0)])
K, PEOPLE = 10, 300


def simulated_track(rng, truths, most, effect=EFFECT):
    """Means of people who answer in up to ``most`` windows in a row, always with their own sign and the window's truth.

    The people's variance is as large as the bound allows, so the factor is met.
    """
    signs = rng.choice([-1.0, 1.0], size=(K // most, PEOPLE))
    sampled = np.repeat(signs.mean(axis=1), most)[:K]
    values = truths + sampled + 2.0 / math.sqrt(PEOPLE) * rng.normal(size=K)
    error = math.sqrt(5.0 / PEOPLE)

    def estimate(numbers):
        found = np.array([values[list(numbers)].mean()])
        spread = np.array([error / math.sqrt(len(numbers))])
        return Estimate(("mean",), found, "delta method", spread, "", 1, PEOPLE * len(numbers))

    alone = {number: estimate([number]) for number in range(K)}
    pooled = {number: estimate(near) for number, near in windows.neighbours(range(K), 2).items()}
    return track_of("week", 2, alone, pooled, most=most, effect=effect)


@pytest.mark.parametrize("moving", [False, True])
@pytest.mark.parametrize("most", [1, 5, 10])
def test_bands_hold_in_all_windows_at_once(most, moving):
    """1,000 tracks; 4 standard errors of the share held: 3 in 100,000 false alarms for each of two bands."""
    rng, runs = np.random.default_rng(46 + most), 1_000
    truths = np.linspace(-0.3, 0.3, K) * moving
    smooth = np.array([truths[near].mean() for near in windows.neighbours(range(K), 2).values()])
    held, path, changed, unwidened, separate = 0, 0, 0, 0, 0
    for _ in range(runs):
        track = simulated_track(rng, truths, most)
        for_path = np.abs(track.path.values[:, 0] - smooth) <= track.path.half_widths[:, 0]
        error = np.abs(track.alone.values[:, 0] - truths)
        held += bool((error <= track.alone.half_widths[:, 0]).all())
        path += bool(for_path.all())
        changed += bool(track.changed)
        plain = NormalDist().inv_cdf(0.975) / NormalDist().inv_cdf(0.5 + simultaneous_level(0.95, K) / 2.0)
        separate += bool((error <= plain * track.alone.half_widths[:, 0]).all())
        narrow = math.sqrt(EFFECT(min(most, 5)))
        inside = np.abs(track.path.values[:, 0] - smooth) <= track.path.half_widths[:, 0] / narrow
        unwidened += bool(inside.all())
    tolerance = 4.0 * math.sqrt(0.05 * 0.95 / runs)
    assert held >= runs * (0.95 - tolerance)
    assert path >= runs * (0.95 - tolerance)
    # Twins: intervals of single windows, and a path that takes all answers for different people.
    assert separate < runs * (0.95 - tolerance)
    if most == 5:
        assert unwidened < path
    assert (changed <= runs * 0.01 + 4.0 * math.sqrt(0.01 * runs)) or moving


def test_the_path_needs_the_factor_of_repeated_answers():
    """Ten answers of each person: five standard errors below 95% in 1,000 paths without the factor."""
    rng, runs, held = np.random.default_rng(3), 1_000, 0
    for _ in range(runs):
        track = simulated_track(rng, np.zeros(K), 10, effect=lambda answers: 1.0)
        held += bool((np.abs(track.path.values[:, 0]) <= track.path.half_widths[:, 0]).all())
    assert held < runs * (0.95 - 5.0 * math.sqrt(0.05 * 0.95 / runs))


def test_a_change_is_told_whoever_answers():
    rng = np.random.default_rng(4)
    track = simulated_track(rng, np.repeat([-1.0, 1.0], K // 2), 10)
    assert track.changed == ("mean",)
    assert "Not the same in all windows, with 1% of false alarms a look: mean." in track.words({})


def test_windows_that_noise_hides_have_no_number():
    known = Estimate(("a",), np.array([0.5]), "scores", np.array([0.1]), "", 1, 100)
    hidden = replace(known, spread=np.array([math.inf]))
    track = track_of("week", 0, {3: known, 5: hidden}, {3: known, 5: hidden})
    assert np.isnan(track.alone.values[1, 0])
    assert track.begins == (begin_of("week", 3).isoformat(), begin_of("week", 5).isoformat())
    assert track_of("week", 0, {}, {}) is None


@pytest.mark.parametrize(("text", "value", "people"), [(SHARES, share, 500), (SCORES, line, 3_000)])
def test_each_window_is_estimated_from_its_answers(text, value, people):
    """Truths within bands of all windows at once: 5% false alarms for these seeds at most, which are fixed."""
    task = Task.parse(text)
    result = murk.run(task, weekly(people, 4, value), person="p", time="d", seed=2)
    track = result.track
    assert track["begins"] == tuple((MONDAY + datetime.timedelta(days=7 * week)).isoformat() for week in range(4))
    assert sum(track["releases"]) <= result.n_releases == 4 * people
    name = "intercept" if value is share else "a"
    found = track["coefficients"][name]
    truths = [100 * (0.2 + 0.1 * week) if value is share else 0.1 + 0.2 * week for week in range(4)]
    for week, truth in enumerate(truths):
        half = found["windows"]["half_widths"][week]
        assert math.isfinite(half)
        assert abs(found["windows"]["values"][week] - truth) < half
        near = truths[max(week - 1, 0) : week + 2]
        assert abs(found["path"]["values"][week] - sum(near) / len(near)) < found["path"]["half_widths"][week]
    assert value is line or track["changed"] == (name,)
    text = str(result)
    assert "By window" in text
    assert "2024-01-22" in text
    assert "in all 4 weeks at once" in text
    assert json.loads(result.to_json())["track"]["smooth"] == 1
    assert len(result.plot("track").axes) == 1


def test_windows_sums_add_up_and_are_restored(tmp_path):
    task = Task.parse(SCORES).with_simulated(True)
    people = tmp_path / "people.csv"
    rows = weekly(3_000, 3, line)
    people.write_text("p,d,a,y\n" + "".join(f"{r['p']},{r['d']},{r['a']},{r['y']}\n" for r in rows))
    crowd = PopulationConfig(people, "p", seed=5, time="d", block=700)
    states = []
    for kill in (None, 3):
        log = f"sqlite:///{tmp_path}/{kill}.db"
        for steps in ([kill] if kill else []) + [None]:
            with LocalRun(task, crowd, log, tmp_path / f"{kill}.ledger") as run:
                for number, _ in enumerate(run.steps()):
                    if number == steps:
                        break
        states.append(run.engines[0].state_dict())
    # The same bits whether or not the run was interrupted.
    assert json.dumps(states[0]) == json.dumps(states[1])
    counts = [sum(sum(t["count"] for t in r["tallies"]) for r in rounds) for _, rounds in states[0]["windows"]]
    numbers = [number for number, _ in states[0]["windows"]]
    assert numbers == [window_of("week", utc_day(MONDAY)) + week for week in range(3)]
    assert counts[1:] == [3_000, 3_000]
    assert 0 < counts[0] <= 3_000
    engine = device_for(task).engine()
    engine.load_state_dict(json.loads(json.dumps(states[0])))
    assert json.dumps(engine.state_dict()) == json.dumps(states[0])
    for damaged in (
        [[1, []]],
        [[5, states[0]["windows"][0][1]], [4, []]],
        "windows",
        [[-1, states[0]["windows"][0][1]]],
    ):
        with pytest.raises(MurkError, match="window"):
            device_for(task).engine().load_state_dict({**states[0], "windows": damaged})
    with pytest.raises(MurkError):
        device_for(Task.parse(SCORES.replace("track:", "#"))).engine().load_state_dict(states[0])


@pytest.mark.parametrize("text", [SHARES, SCORES])
def test_partitions_are_joined(text):
    value = share if text is SHARES else line
    task = Task.parse(text + "log: {partitions: 3}\n")
    people = 500 if text is SHARES else 3_000
    track = murk.run(task, weekly(people, 3, value), person="p", time="d", seed=2).track
    assert track["releases"][1:] == (people, people)
    name = "intercept" if text is SHARES else "a"
    truth = 100 * 0.3 if text is SHARES else 0.3
    found = track["coefficients"][name]["windows"]
    assert abs(found["values"][1] - truth) < found["half_widths"][1] < math.inf


def test_the_state_keeps_the_newest_windows_only():
    kept = windows.Windows("day", 3)
    sums = {}
    for number in (5, 9, 4, 10, 7, 30):
        sums = kept.newest({**sums, number: number})
    assert sums == {30: 30}
    # Late answers count, but no more than 3 windows back.
    assert kept.newest({**sums, 28: 28, 27: 27}) == {28: 28, 30: 30}
    text = SHARES.replace("smooth: 1", "smooth: 0, windows: 2")
    track = murk.run(Task.parse(text), weekly(100, 5, share), person="p", time="d", seed=2).track
    assert track["begins"] == ("2024-01-22", "2024-01-29")


def test_devices_send_the_window_and_not_when_they_send(tmp_path):
    task = Task.parse(SHARES)
    now = datetime.datetime(2024, 3, 6, 12, tzinfo=datetime.UTC)
    clock = now.timestamp
    with SqliteLog(tmp_path / "log.db", clock=clock) as log, Ledger(tmp_path / "ledger.db") as ledger:
        log.register_task(task.document())
        device = Producer(task, log, ledger, clock=clock)
        for days in (21, 2, 1):
            device.hold({"y": "1"}, at=now - datetime.timedelta(days=days))
        assert [each.outcome for each in device.release_held()] == ["released"]
        device.release({"y": "0"})
        times = [json.loads(message.value)["time"] for message in log.messages(0, 0, log.end(0))]
        assert times == [start_of("week", window_of("week", utc_day(day))) for day in ("2024-02-14", "2024-03-06")]
        with pytest.raises(UserError, match="before 1970"):
            device.release({"y": "1"}, at=datetime.date(1969, 12, 31))


@pytest.mark.parametrize("batch", [1, 4, 100])
def test_windows_that_have_not_begun_are_dead_letters(tmp_path, batch):
    """The log's own time bounds the window that a device claims; a day ahead is allowed for clocks and zones."""
    task = Task.parse(SHARES.replace("week", "day"))
    begin = utc_day("2024-03-06") * 86_400
    with SqliteLog(tmp_path / "log.db", clock=lambda: begin + 100.0) as log, Ledger(tmp_path / "ledger.db") as ledger:
        log.register_task(task.document())
        device = Producer(task, log, ledger, clock=lambda: begin + 100.0)
        for person in range(4):
            device.release({"y": "1"}, person=f"p{person}")
        honest = [json.loads(message.value) for message in log.messages(0, 0, log.end(0))]
        claimed = [begin - 86_400, begin + 86_400, begin + 2 * 86_400]
        forged = [{**honest[0], "id": f"{place:032x}", "time": time} for place, time in enumerate(claimed)]
        log.append([(0, json.dumps(each, separators=(",", ":")).encode()) for each in forged])
        with Worker(log, task, engine := device_for(task).engine(), batch=batch) as worker:
            while worker.step().read:
                pass
        letters = [(letter.reason, letter.detail) for letter in log.dead_letters()]
        assert letters == [("future", "its window begins 172700 s after its arrival")]
        today = begin // 86_400
        counts = {number: sums["default"][0] for number, sums in engine.windows.items()}
        assert counts == {today - 1: 1, today: 4, today + 1: 1}


def test_a_file_of_times_before_1970_is_refused(tmp_path):
    rows = [{"p": "a", "d": "1969-12-31", "y": "1"}, {"p": "b", "d": "2024-01-01", "y": "0"}]
    with pytest.raises(UserError, match=r"row 1.*before 1970"):
        murk.run(Task.parse(SHARES), rows, person="p", time="d", seed=1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"track: {window: week": "track: {window: day"}, "'day' is not privacy.window, 'week'"),
        ({", window: week}\n": "}\n"}, "is not privacy.window, 'none'"),
        ({"[]": "[{name: a, low: 0, high: 1}]\nprotocol: examples"}, "keeps no sums by window"),
        (
            {'kind: binary, positive: "1", negative: "0"': "kind: real, low: 0, high: 1, quantiles: [0.5]"},
            "no track",
        ),
        ({"smooth: 1": "windows: 1000"}, "400"),
    ],
)
def test_tasks_whose_track_makes_no_sense_are_refused(change, message):
    text = SHARES
    for old, new in change.items():
        text = text.replace(old, new)
    with pytest.raises(UserError, match=re.escape(message)):
        Task.parse(text)
