"""Figures are what the states say: merged, measured as documented, and nothing else."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from murk import Task
from murk._internal.numbers import finite
from murk.errors import MurkError
from murk.inference.estimate import RANDOM_SCALING, Estimate
from murk.monitoring.figures import Place, figures
from murk.monitoring.history import FEWEST_POINTS, MOST_POINTS, MOST_SPANS, History, Pace
from murk.monitoring.metrics.catalogue import STALENESS_BOUNDS
from murk.privacy import PureDP
from murk.protocols.device import device_for
from murk.protocols.gradients import kernels as at
from murk.protocols.gradients.estimate import PLUG_IN
from murk.stream import GradientRelease
from murk.stream.wire.state import Counters, StateMessage, decode_state, pack
from tests.monitoring.runs import PEOPLE, TEXT, TRUTH, finished, opened
from tests.protocols import MOMENTS

SMALL = """
name: small
features: [{{name: age, low: 21, high: 35}}]
target: {{name: y, kind: {kind}}}
privacy: {{guarantee: {guarantee}}}
"""


def small(
    guarantee: str = "{gdp: {mu: 1.0}}", kind: str = 'binary, positive: "1", negative: "0"', more: str = ""
) -> Task:
    protocol = "" if "protocol:" in more else "protocol: gradients\n"
    return Task.parse(SMALL.format(guarantee=guarantee, kind=kind) + more + protocol)


def state(task: Task, **counters: object) -> StateMessage:
    return StateMessage(
        task=task.hash, identity="x", partition=0, offset=0, last_id=None, counters=Counters(**counters),
        learner=device_for(task).engine().state_dict(),
    )  # fmt: skip


def release(version: int, payload: list[int], task: Task) -> GradientRelease:
    return GradientRelease(
        id="0" * 32, task=task.hash, level="default", payload=payload, partition=0, version=version, simulated=False,
        expires=1, time=0,
    )  # fmt: skip


def hostile_states() -> dict[str, tuple[Task, StateMessage]]:
    """States that are well made, and hold numbers that no learner produces."""
    gradients, moments = small(), Task.parse(MOMENTS.text())
    honest, sums = state(gradients), state(moments)
    # All of it plausible but one.
    total = np.array([1.2, 0.39, -1.48, 0.6, -0.38, 1.7e308, 0.2, -1.33])
    huge = {"total": pack(total), "sums": pack(np.array([0.87, 0.82, 0.85, 0.76, 0.012, 0.011])), "n_releases": 64}
    return {
        "a negative sum": (gradients, replaced(honest, sums=pack(np.array([1.0, 1.0, -1.0, 1.0])))),
        "a sum that overflows": (moments, replaced(sums, **huge)),
        "a count of many digits": (moments, replaced(sums, n_releases=10**400)),
    }


def replaced(message: StateMessage, **learner: object) -> StateMessage:
    return message.model_copy(update={"learner": {**message.learner, **learner}})


@pytest.mark.parametrize("kind", ["a negative sum", "a sum that overflows", "a count of many digits"])
def test_states_of_no_learner_are_refused(kind: str) -> None:
    task, message = hostile_states()[kind]
    with pytest.raises(MurkError, match="state"):
        figures(task, device_for(task), [message], [Place(0, 0)])


def test_keys_of_a_hostile_state_give_no_orders_to_a_terminal() -> None:
    content = json.loads(state(small()).encode())
    data = json.dumps({**content, **dict.fromkeys(("\x1b[2J", "\u202e", *map(str, range(9000))), 1)}).encode()
    with pytest.raises(MurkError, match=r"is damaged \(invalid: 0, 1, ") as caught:
        decode_state(data, "here")
    assert len(str(caught.value)) < 300
    with pytest.raises(MurkError, match=r"\\x1b\[2J") as caught:
        decode_state(json.dumps({**content, "\x1b[2J": 1}).encode(), "here")
    assert str(caught.value).isprintable()


def test_partitions_are_merged_as_a_run_merges_them():
    folder, learned = finished()
    log, task = opened(folder)
    device = device_for(task)
    with log:
        messages = [decode_state(log.checkpoint(partition).state or b"", "here") for partition in range(2)]
        places = [Place(log.checkpoint(partition).offset, log.end(partition) + 5, "host:1") for partition in range(2)]
    found = figures(task, device, messages, places, TRUTH)
    assert found.names == learned.names
    assert found.values == tuple(learned.values)
    assert found.half_widths == tuple(learned.half_widths(0.95))
    assert (found.releases, found.duplicates, found.dead) == (PEOPLE, 1, {"malformed": 1})
    assert sum(level.learned for level in found.levels) == sum(found.staleness) == PEOPLE
    assert found.mean_staleness == found.staleness_sum / PEOPLE
    assert sum(partition.version for partition in found.partitions) == PEOPLE
    assert [partition.lag for partition in found.partitions] == [5, 5]
    assert found.lag == 10
    assert found.partitions[0].owner == "host:1"
    truth = np.array([TRUTH[name] for name in found.names])
    assert found.parameter_error == pytest.approx(float(np.linalg.norm(learned.values - truth)))


def test_the_gap_is_between_newest_iterate_and_average():
    folder, _ = finished()
    log, task = opened(folder)
    device = device_for(task)
    engine = device.engine()
    with log:
        message = decode_state(log.checkpoint(1).state or b"", "here")
    engine.load_state_dict(message.learner)
    found = figures(task, device, [None, message], [Place(0, 0), Place(1, 1)])
    assert found.partitions[0].iterate_gap == 0.0
    assert found.partitions[1].iterate_gap == pytest.approx(float(np.linalg.norm(engine.iterate - engine.average)))


@pytest.mark.parametrize("weighting", ["uniform", "inverse-variance"])
@pytest.mark.parametrize("step", ["noise-aware", "{eta: 0.3, alpha: 0.6}"])
def test_the_step_is_the_one_that_the_fold_takes_next(weighting, step):
    task = small(more=f"learner: {{step: {step}, weighting: {weighting}}}\n")
    device = device_for(task)
    engine, unit = device.engine(), device.mechanisms["default"].unit
    for version in range(40):
        expected = engine.step_size()
        before = engine.iterate
        # Small enough that nothing is projected back.
        payload = [1 + version % 3, -1]
        engine.learn_releases([release(version, payload, task)])
        assert before - engine.iterate == pytest.approx(expected * unit * np.array(payload), rel=1e-9)
    assert engine.memory.whole[at.COUNT] == 40


@pytest.mark.parametrize(
    ("guarantee", "epsilon", "mu"),
    [
        ("{pure: {epsilon: 2.0}}", 2.0, None),
        ("{approx: {epsilon: 1.5, delta: 1.0e-6}}, mechanism: gaussian", 1.5, None),
        ("{gdp: {mu: 0.5}}", None, 0.5),
        ("{zcdp: {rho: 0.5}}", None, 1.0),
    ],
)
def test_a_level_says_what_its_guarantee_states(guarantee, epsilon, mu):
    task = small(guarantee)
    [level] = figures(task, device_for(task), [None], [Place(0, 0)]).levels
    assert (level.epsilon, level.mu) == (epsilon, mu)
    assert level.guarantee == task.privacy.guarantee.to_dict()
    assert level.right_at_most == task.privacy.guarantee.max_attack_accuracy
    assert level.words == task.privacy.guarantee.describe()


def test_a_level_says_what_its_mechanism_really_gives():
    """A pure mechanism for an (epsilon, delta) needs no delta."""
    task = small("{approx: {epsilon: 1.5, delta: 1.0e-6}}")
    [level] = figures(task, device_for(task), [None], [Place(0, 0)]).levels
    assert (level.epsilon, level.guarantee) == (1.5, {"pure": {"epsilon": 1.5}})
    assert level.words == PureDP(1.5).describe()


def test_ages_beyond_all_buckets_are_counted():
    task = small()
    ages = [1] * 30
    found = figures(task, device_for(task), [state(task, staleness=ages, staleness_sum=77)], [Place(0, 0)])
    assert len(found.staleness) == len(STALENESS_BOUNDS) + 1
    assert found.staleness == (1,) * 21 + (9,)
    assert found.mean_staleness == 77 / 30
    # Bucket b holds what takes b bits to write.
    assert all(bound.bit_length() == bits for bits, bound in enumerate(STALENESS_BOUNDS))


def test_nothing_learned_is_told_as_nothing_known():
    task = small()
    found = figures(task, device_for(task), [None], [Place(0, 3)])
    assert found.releases == 0
    assert found.mean_staleness is None
    assert found.parameter_error is None
    assert math.isinf(found.estimated_error)
    assert found.lag == 3
    assert finite({"a": [math.inf, math.nan, 1.0], "b": (2, None)}) == {"a": [None, None, 1.0], "b": [2, None]}


def test_a_state_of_another_task_is_refused():
    other = Task.parse(TEXT)
    with pytest.raises(MurkError, match="a state of schema 1 and dimension 3 does not fit schema 1 and dimension 2"):
        figures(small(), device_for(small()), [state(other)], [Place(0, 0)])


def made(method: str, spread: np.ndarray) -> Estimate:
    names = tuple(map(str, range(len(spread))))
    return Estimate(names, np.zeros(len(spread)), method, spread, "", 1, 1)


def test_the_estimated_error_is_the_root_of_summed_squares_of_standard_errors():
    assert made(PLUG_IN, np.array([3.0, 4.0])).standard_error == 5.0
    assert made("delta method", np.array([3.0, 4.0])).standard_error == 5.0


@pytest.mark.parametrize(("times", "right"), [(1.0, True), (6.0**-0.5, False), (6.747 / 1.96 / 6.0**0.5, False)])
def test_random_scaling_is_brought_to_the_scale_of_standard_errors(times, right):
    """Of 2,000 means of 400 independent numbers the mean squared error is 1/400.

    6 times the integral of a squared bridge has mean 1 and variance 0.8; the mean of 2,000 lies within 0.1 of 1
    except with probability 6e-7. The factors 1 (as if V were a variance) and (6.747/1.96)^2 (as if the interval
    were a normal one's) must be told apart from 6.
    """
    runs, n = 2000, 400
    means = np.cumsum(np.random.default_rng(5).standard_normal((n, runs)), axis=0) / np.arange(1, n + 1)[:, None]
    v = np.sum((np.arange(1, n + 1)[:, None] * (means - means[-1])) ** 2, axis=0) / n**2
    told = times**2 * made(RANDOM_SCALING, np.sqrt(v / n)).standard_error ** 2
    assert (abs(told / (runs / n) - 1.0) < 0.1) == right


def grown(history: History, counts: list[int]) -> list[int]:
    task = small()
    device = device_for(task)
    empty = figures(task, device, [None], [Place(0, 0)])
    for count in counts:
        history.add(replace(empty, releases=count), float(count), 1.0)
    return [point.releases for point in history.points]


def test_the_history_stays_even_over_the_logarithm():
    kept = grown(History(3), list(range(0, 300_000, 50)))
    assert len(kept) == MOST_POINTS
    assert (kept[0], kept[-1]) == (0, 299_950)
    assert kept == sorted(set(kept))
    gaps = np.diff(np.log1p(kept))
    # Beyond the coarse beginning (points 50 apart) no gap is more than a few times the typical one.
    later = gaps[np.array(kept[:-1]) > 20_000]
    assert later.max() < 4 * np.median(later)


def test_the_history_is_bounded_in_numbers_too():
    assert History(1).most == MOST_POINTS
    assert History(10_000).most == FEWEST_POINTS
    assert len(grown(History(10_000), list(range(100)))) == FEWEST_POINTS


def test_a_stop_is_a_drop_of_the_pace_and_no_slope():
    pace = Pace()
    for second in range(7200):
        pace.add(float(second), releases=700 * min(second, 3600), lag=5 if second == 100 else 0)
    found = pace.columns()
    assert MOST_SPANS / 2 <= len(found["time"]) <= MOST_SPANS + 1
    rates = np.array(found["rate"][1:])
    partial = (rates > 0.0) & (rates < 699.9)
    assert np.count_nonzero(partial) <= 1
    assert max(found["lag"]) == 5
    longest = np.diff(found["time"]).max()
    stopped = np.array(found["time"][1:]) > 3600.0 + longest
    assert np.all(rates[stopped] == 0.0)
    # Another log begins another pace.
    pace.add(8000.0, releases=0, lag=0)
    assert pace.columns() == {"time": [8000.0], "rate": [None], "lag": [0]}


def test_a_pace_of_any_length_is_bounded():
    pace = Pace()
    for look in range(30_000):
        pace.add(11.0 * look, releases=look, lag=look % 7)
    found = pace.columns()
    assert len(found["time"]) <= MOST_SPANS + 1
    assert found["rate"][1:] == pytest.approx([1 / 11.0] * (len(found["rate"]) - 1))


def test_the_history_keeps_where_releases_stopped_and_begins_anew_with_another_log():
    history = History(3)
    assert grown(history, [1, 2, 2, 2]) == [1, 2, 2]
    assert grown(history, [3, 1]) == [1]
