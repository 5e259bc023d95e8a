"""The update of sketches: device from a task, hostile releases, exact states, merging; from raw rows to estimate."""

import dataclasses
import json
import math

import numpy as np
import pytest
from statsmodels.regression.linear_model import OLS

from murk import Task
from murk.errors import MurkError, UserError
from murk.privacy import SimulatedNoise
from murk.privacy.central import SketchAccumulator
from murk.protocols.summaries.device import device_for
from murk.protocols.summaries.engine import SketchEngine
from murk.protocols.summaries.settings import GramSettings, SketchSettings, check_message, default_rows, largest_rows
from murk.stream.wire.codec import MAX_MESSAGE, RejectedError, longest_release
from murk.stream.wire.releases import SketchRelease
from murk.stream.wire.state import pack

TASK = """
name: weeks
features:
  - {{name: age, low: 0, high: 10}}
  - {{name: same, categories: ["no", "yes"]}}
target: {{name: weeks, kind: {kind}}}
protocol: summaries
privacy:
  guarantee: {{approx: {{epsilon: 2.0, delta: 1.0e-5}}}}
  levels: {{strict: {{approx: {{epsilon: 0.5, delta: 1.0e-5}}}}}}
summaries: {{{block}}}
"""


def device(block="rows: 300", kind="real, low: 0, high: 52"):
    return device_for(Task.parse(TASK.format(block=block, kind=kind)))


def rows(seed=1, n=4000):
    rng = np.random.default_rng(seed)
    x = np.column_stack([rng.uniform(-1, 1, n), rng.choice([-1.0, 1.0], n), np.ones(n)])
    return x, np.clip(x @ [0.4, -0.2, 0.1] + 0.2 * rng.normal(size=n), -1, 1)


def release(of, seed=1, n=4000, level="default", **changes):
    """An honest sketch of `rows`, with fields changed on request."""
    accumulator = SketchAccumulator(of.mechanisms[level], SimulatedNoise(seed), 0)
    accumulator.add_block(of.records(*rows(seed, n)))
    sketch = accumulator.release()
    fields = {
        "id": f"{seed:032x}", "task": "f" * 64, "level": level, "partition": 0, "rows": sketch.rows, "records": n,
        "spread": sketch.spread, "payload": SketchRelease.packed(sketch.integers.ravel()), "time": 0, "expires": 9,
        "simulated": True,
    }  # fmt: skip
    return SketchRelease(**{**fields, **changes})


def test_a_device_follows_from_its_task():
    found = device()
    assert (found.kind, found.interactive, found.dimension) == ("sketch", False, 1200)
    assert found.settings.names == ("age", "same", "intercept")
    assert found.settings.feature_bound == pytest.approx(math.sqrt(3))
    assert sorted(found.mechanisms) == ["default", "strict"]
    assert found.mechanisms["strict"].g > found.mechanisms["default"].g
    binary = device(kind='binary, positive: "yes"')
    assert binary.settings.kind == "binary"
    assert binary.records(np.ones((3, 3)), np.array([0.0, 1.0, np.nan]))[:, -1].tolist() == [-1.0, 1.0, 0.0]


def test_a_missing_target_is_the_zero_row_and_counts():
    assert device().records(np.ones((2, 3)), np.array([0.5, np.nan])).tolist() == [[1, 1, 1, 0.5], [0, 0, 0, 0]]


def test_bounds_of_the_task_reach_the_mechanism():
    found = device("rows: 300, feature_bound: 1.5, target_bound: 0.5, method: mixing")
    mechanism = found.mechanisms["default"]
    assert (mechanism.feature_bound, mechanism.target_bound, mechanism.method) == (1.5, 0.5, "mixing")


def test_rows_follow_from_the_features_and_fit_a_message():
    assert device("method: mixing").settings.rows == default_rows(4) == 4096
    device("method: mixing").check_state()
    for columns in (3, 7, 40, 100):
        most = largest_rows(columns)
        check_message(most, columns)
        assert longest_release("sketch", most * columns) <= MAX_MESSAGE
        with pytest.raises(UserError, match=f"set rows to {most} or fewer"):
            check_message(most + 1, columns)
    with pytest.raises(UserError, match="set rows to"):
        device("rows: 90000").check_state()
    with pytest.raises(UserError, match="fewer features"):
        default_rows(300)


def test_fewer_rows_than_columns_are_refused():
    with pytest.raises(UserError, match="rows"):
        device("rows: 3")


def test_a_sketch_of_raw_rows_tells_their_regression():
    found = device("rows: 2000")
    engine = found.engine()
    sketch = release(found, n=20_000)
    engine.admit(sketch)
    engine.learn_releases([sketch])
    estimate = engine.estimate()
    x, y = rows(n=20_000)
    gap = np.abs(estimate.values - OLS(y, x).fit().params)
    # Beyond 5 standard errors with probability 2e-6 for the three; the errors are not so large as to hide anything.
    assert np.all(gap < 5 * estimate.spread)
    assert np.all(estimate.spread < 0.05)
    assert estimate.method == "sketch"
    assert "population" in estimate.note


def test_the_noise_of_real_sketches_is_taken_off_with_the_right_sign():
    """Mean of M'M/k - v I over 150 accumulated sketches against Z'Z; the twin adds v instead.

    Entry (i, j) of M'M/k has variance (S_ii S_jj + S_ij^2)/k with S = Z'Z + v I: 5 standard errors of the mean for
    each of 16 entries are exceeded with probability 1e-5.
    """
    found = device("rows: 300, method: mixing")
    mechanism, draws = found.mechanisms["default"], 150
    z = found.records(*rows(n=100))
    noise = mechanism.noise_variance(mechanism.largest_spread)
    engine = SketchEngine(dataclasses.replace(found.settings, weighting="uniform"), found.mechanisms)
    for seed in range(draws):
        accumulator = SketchAccumulator(mechanism, SimulatedNoise(seed), 0)
        accumulator.add_block(z)
        engine.learn_window(accumulator.release())
    second = z.T @ z
    whole = second + noise * np.eye(4)
    errors = np.sqrt((np.outer(np.diag(whole), np.diag(whole)) + whole**2) / (300 * draws))
    mean, off = engine.sums.moment / draws, engine.sums.noise / draws * np.eye(4)
    assert np.all(np.abs(mean - off - second) < 5 * errors)
    assert np.any(np.abs(mean + off - second) > 5 * errors)


def test_the_noise_has_variance_g_c_squared_of_features_and_target():
    """Erratum: the paper prints the deviation g C_X. Of blank records a sketch is noise alone.

    1200 squares at 2 releases: relative standard error sqrt(2 / 2400) = 0.029, so 5 of them are 0.144 (6e-7). The
    twins: without the root it is 30 times 0.69 too large, without the target's bound 0.69 times.
    """
    found = device("rows: 300, method: mixing, feature_bound: 1.5, target_bound: 1.0")
    mechanism = found.mechanisms["default"]
    squares = []
    for seed in (1, 2):
        accumulator = SketchAccumulator(mechanism, SimulatedNoise(seed), 0)
        accumulator.add_block(np.zeros((50, 4)))
        sketch = accumulator.release()
        squares.append(np.mean(mechanism.decode(sketch.integers, sketch.spread) ** 2))
    found_variance = np.mean(squares)
    assert found_variance == pytest.approx(mechanism.g * (1.5**2 + 1.0**2), rel=0.144)
    assert found_variance == pytest.approx(mechanism.noise_variance(mechanism.largest_spread), rel=0.144)
    assert found_variance != pytest.approx((mechanism.g * 1.5) ** 2, rel=0.144)
    assert found_variance != pytest.approx(mechanism.g * 1.5**2, rel=0.144)


HOSTILE = {
    "another level": ({"level": "open"}, "level"),
    "other rows": ({"rows": 301}, "dimension"),
    "too few integers": ({"payload": SketchRelease.packed(np.zeros(1199, dtype=np.int64))}, "dimension"),
    "an absurd spread": ({"spread": 1e9}, "magnitude"),
    "the largest spread there is": ({"spread": 1.7e308}, "magnitude"),
    "no spread": ({"spread": 0.0}, "magnitude"),
    "huge integers": ({"payload": SketchRelease.packed(np.full(1200, 2**61))}, "magnitude"),
    "the least integer": ({"payload": SketchRelease.packed(np.full(1200, -(2**63)))}, "magnitude"),
    "rows longer than records can be": ({"records": 3}, "magnitude"),
    "nothing, not even noise": ({"payload": SketchRelease.packed(np.zeros(1200, dtype=np.int64))}, "magnitude"),
    "more records than a window": ({"records": 2**40}, "magnitude"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_release_is_refused_and_changes_nothing(case):
    found = device()
    engine = found.engine()
    honest = release(found, level="strict")
    engine.admit(honest)
    engine.learn_releases([honest])
    before = engine.state_dict()
    changes, reason = HOSTILE[case]
    with pytest.raises(RejectedError) as caught:
        engine.admit(release(found, seed=2).model_copy(update=changes))
    assert caught.value.reason == reason
    assert engine.state_dict() == before


def test_a_window_of_the_task_bounds_the_records():
    found = device("rows: 300, window: 3999")
    with pytest.raises(RejectedError, match="a window has at most 3999"):
        found.engine().admit(release(found))


def test_without_an_eigenvalue_there_is_one_spread():
    found = device("rows: 300, method: mixing")
    found.engine().admit(release(found))
    with pytest.raises(RejectedError, match="not the mechanism's"):
        found.engine().admit(release(found, spread=1.0))


def test_honest_sketches_are_never_refused():
    """The bound allows for 4e-31; here the rows are at their bounds, the noise is all there is, or both."""
    found = device()
    mechanism = found.mechanisms["default"]
    corner = np.ones((500, 4))
    for block in (np.zeros((1, 4)), corner, 100 * corner, np.zeros((500, 4))):
        for seed in range(8):
            accumulator = SketchAccumulator(mechanism, SimulatedNoise(seed), 0)
            accumulator.add_block(block)
            sketch = accumulator.release()
            found.engine().admit(
                release(found, records=len(block), spread=sketch.spread,
                        payload=SketchRelease.packed(sketch.integers.ravel()))
            )  # fmt: skip


def test_no_admitted_release_outweighs_the_others_by_what_it_declares():
    found = device()
    honest, liar = found.engine(), found.engine()
    one = release(found, n=4000)
    honest.learn_releases([one])
    liar.learn_releases([one, release(found, seed=2, records=2**32)])
    assert liar.sums.people < honest.sums.people + 300


def test_the_state_goes_on_to_the_bit_whatever_the_calls():
    found = device()
    sketches = [release(found, seed, 500 * seed, "strict" if seed == 2 else "default") for seed in (1, 2, 3)]
    at_once, in_turn = found.engine(), found.engine()
    at_once.learn_releases(sketches)
    for each in sketches[:2]:
        in_turn.learn_releases([each])
    copy = found.engine()
    copy.load_state_dict(json.loads(json.dumps(in_turn.state_dict())))
    copy.learn_releases(sketches[2:])
    assert copy.state_dict() == at_once.state_dict()
    assert copy.n_releases == 3
    assert np.array_equal(copy.estimate().values, at_once.estimate().values)
    assert (copy.publish_every, copy.published(), copy.figures()) == (2**31, None, {"records": 3000.0})


@pytest.mark.parametrize(
    "damage",
    [
        {"schema": 2},
        {"columns": 9},
        {"settings": "0"},
        {"moment": "AAAA"},
        {"sums": None},
        {"sums": pack(-np.ones(6))},
        {"rows": -1},
        {"rows": True},
        {"records": 1.5},
        {"n_releases": "3"},
    ],
)
def test_a_damaged_state_is_an_error_and_changes_nothing(damage):
    found = device()
    engine = found.engine()
    engine.learn_releases([release(found)])
    before = engine.state_dict()
    with pytest.raises(MurkError, match="state"):
        engine.load_state_dict({**before, **damage})
    del (without := dict(before))["moment"]
    with pytest.raises(MurkError, match="malformed"):
        engine.load_state_dict(without)
    assert engine.state_dict() == before


def test_partitions_merge_by_sum():
    found = device()
    sketches = [release(found, seed, 3000) for seed in (1, 2, 3)]
    whole, parts = found.engine(), [found.engine() for _ in sketches]
    whole.learn_releases(sketches)
    for part, sketch in zip(parts, sketches, strict=True):
        part.learn_releases([sketch])
    merged = found.estimate(parts)
    assert merged.values == pytest.approx(whole.estimate().values, rel=1e-9)
    assert merged.spread == pytest.approx(whole.estimate().spread, rel=1e-9)
    assert (merged.partitions, merged.n_releases) == (3, 3)


def test_levels_of_another_shape_are_refused():
    settings = SketchSettings(("a", "intercept"), rows=300, feature_bound=1.0)
    with pytest.raises(UserError, match="'default'"):
        SketchEngine(settings, {"default": device().mechanisms["default"]})


def test_settings_are_checked_and_told_apart():
    settings = SketchSettings(("a", "intercept"), rows=300, feature_bound=1.0)
    assert settings.digest == SketchSettings(("a", "intercept"), rows=300, feature_bound=1.0).digest
    assert settings.digest != SketchSettings(("b", "intercept"), rows=300, feature_bound=1.0).digest
    # States of before go on.
    assert (settings.digest, GramSettings(settings.names, 1.5).digest) == ("5b181a201a491ece", "781a31cbe5106b84")
    for wrong in ({"weighting": "at random"}, {"window": 0}, {"reach": -1.0}):
        with pytest.raises(UserError):
            SketchSettings(("a", "intercept"), rows=300, feature_bound=1.0, **wrong)
