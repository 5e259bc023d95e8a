"""Forgetting: an estimate of the newest releases alone, exactly, and what that does to intervals and to a change."""

import json
from itertools import pairwise

import numpy as np
import pytest

from murk.errors import MurkError, UserError
from murk.learners import ScoreClassifier, ScoreRegressor
from murk.privacy import GaussianDP
from murk.protocols.rows import Rows
from murk.protocols.scores.engine import drift_of, merged
from murk.protocols.scores.settings import FEWEST_KEPT, FIRST, REMEMBERED, remembered, round_end, round_start
from murk.stream.wire.codec import RejectedError
from tests.learners.scores.people import device_of, features, learn_sums, outcomes
from tests.learners.scores.test_engine import release

P, THETA = 2, np.array([0.8, -0.6, -0.2])
FORGET = 48_000


def stream(n, seed, change=0.0):
    """Records whose first coefficient changes half-way."""
    rng = np.random.default_rng(seed)
    X = features(rng, n, P)
    y = outcomes(rng, X, THETA)
    after = np.arange(n) >= n // 2
    y[after] = outcomes(rng, X[after], THETA - np.array([change, 0.0, 0.0]))
    return X, y


@pytest.mark.parametrize("longest", [FIRST, 5_000, 6_000, 100_000])
def test_epochs_double_until_they_are_as_long_as_they_may_be(longest):
    starts = [0]
    while starts[-1] < 40 * longest:
        starts.append(round_end(starts[-1], longest))
    lengths = np.diff(starts)
    assert lengths.max() == longest
    assert all(b in (a, 2 * a, longest) for a, b in pairwise(lengths[1:]))
    for start, end in pairwise(starts):
        assert round_start(start, longest) == round_start(end - 1, longest) == start
    assert list(remembered(starts[-1], longest)) == starts[-REMEMBERED:]
    assert sum(lengths[-REMEMBERED:]) == REMEMBERED * longest


def test_no_more_releases_are_kept_than_it_says():
    """Of 7 to 8 eighths of them, exactly those of the remembered rounds: the sums of the others are gone."""
    device = device_of(P, 2.0, forget=FORGET)
    n = 120_000
    X, y = stream(n, 1)
    engine = learn_sums(device, X, y, 1)
    kept = [tally.count for round_ in engine.now.rounds for tally in round_.tallies.values()]
    estimate = engine.estimate()
    assert estimate.releases_used == sum(kept)
    assert FORGET * 7 // 8 <= sum(kept) <= FORGET
    assert estimate.n_releases == n
    assert sum(kept) == n - engine.now.rounds[0].start
    assert learn_sums(device_of(P, 2.0), X[:9_000], y[:9_000], 1).estimate().releases_used == 9_000


def test_intervals_are_those_of_so_many():
    """Half widths of the newest 21,000 to 24,000 of 96,000 are those of as many learned at all, and twice those of all.

    A ratio's own spread is some 20%, alike for all three, so that a mean of eight off by 30% is one case in 10,000.
    """
    halves = {"kept": [], "few": [], "all": []}
    for seed in range(8):
        X, y = stream(96_000, seed)
        for name, forget, n in (("kept", FEWEST_KEPT, 96_000), ("few", None, 22_500), ("all", None, 96_000)):
            estimate = learn_sums(device_of(P, 4.0, forget=forget), X[:n], y[:n], seed).estimate()
            halves[name].append(estimate.half_widths())
    kept, few, whole = (np.array(halves[name]) for name in ("kept", "few", "all"))
    assert 0.7 < np.mean(kept / few) < 1.3
    assert 1.5 < np.mean(kept / whole) < 2.9


def test_a_change_is_forgotten_and_without_forgetting_it_is_not():
    X, y = stream(120_000, 3, change=0.6)
    now = THETA - np.array([0.6, 0.0, 0.0])
    forgetful, other = (learn_sums(device_of(P, 2.0, forget=each), X, y, 3).estimate() for each in (FORGET, None))
    # Five standard errors: one false alarm in 10^6.
    off = np.abs(forgetful.values - now) / forgetful.spread
    assert np.all(off < 5.0)
    assert abs(other.values[0] - now[0]) > 5.0 * other.spread[0]


def test_the_state_is_a_function_of_the_releases_alone():
    """Split otherwise, and stopped and gone on: bit for bit the same, also where rounds are forgotten."""
    device = device_of(P, 2.0, forget=FEWEST_KEPT)
    rng = np.random.default_rng(4)
    payloads = rng.integers(-(2**20), 2**20, size=(30_000, P + 1))
    states = []
    for size in (4096, 777):
        engine, done = device.engine(), 0
        while done < len(payloads):
            left = device.settings.round_end(done) - done
            part = payloads[done : done + min(size, left)]
            engine.learn_payloads({("default", "score"): part})
            done += len(part)
            if size == 777:
                state = json.loads(json.dumps(engine.state_dict()))
                engine = device.engine()
                engine.load_state_dict(state)
        states.append(json.dumps(engine.state_dict()))
    assert states[0] == states[1]
    assert [round_.start for round_ in engine.now.rounds] == list(range(9_000, 30_001, FIRST))


def test_an_answer_to_a_forgotten_model_is_refused_as_stale():
    device = device_of(P, 2.0, forget=FEWEST_KEPT)
    engine, payloads = device.engine(), np.ones((FIRST, P + 1), dtype=np.int64)
    for _ in range(9):
        engine.learn_payloads({("default", "score"): payloads})
    engine.admit(release(device, 1, 6_000, payload=[1] * (P + 1)))
    with pytest.raises(RejectedError, match="forgotten") as refused:
        engine.admit(release(device, 1, 3_000, payload=[1] * (P + 1)))
    assert refused.value.reason == "stale"
    # Where nothing is forgotten, the partition of so many has no round at 9,000.
    with pytest.raises(RejectedError, match="no round begins"):
        device_of(P, 2.0).engine().admit(release(device, 1, 9_000), ahead=27_000)


def test_partitions_forget_by_themselves_and_merge():
    device = device_of(P, 2.0, forget=FORGET)
    partitions = [learn_sums(device, *stream(n, n), n) for n in (50_000, 60_000)]
    estimate = merged(partitions)
    assert estimate.n_releases == 110_000
    assert estimate.releases_used == sum(partition.estimate().releases_used for partition in partitions)
    assert np.all(estimate.half_widths() < partitions[0].estimate().half_widths())
    assert not device.drift(partitions).alarm


@pytest.mark.parametrize("change", [0.0, 0.8])
def test_drift_of_a_stream(change):
    """Noticed with forgetting and without it (a still stream is called changed with a probability of 1% at most)."""
    X, y = stream(80_000, 5, change)
    for forget in (FORGET, None):
        # Of what is forgotten nothing can be said: looked at while the change is within what is kept.
        n = 55_000 if forget else 80_000
        device = device_of(P, 4.0, forget=forget)
        engine = learn_sums(device, X[:n], y[:n], 6)
        drift = device.drift([engine])
        assert drift.alarm is (change > 0.0)
        if drift.alarm:
            assert next(iter(drift.changes)) == "x0"
            assert drift.changes["x0"] < -0.15


@pytest.mark.parametrize("public", [False, True])
def test_other_features_are_no_change_of_the_model(public):
    """People with other features and the same coefficients; without public rows, and with rows like the first half."""
    rng, n = np.random.default_rng(7), 90_000
    X = features(rng, n, P)
    X[n // 2 :, 1] = np.clip(X[n // 2 :, 1] + 0.5, -1, 1)
    rows = Rows.counted(features(np.random.default_rng(8), 2_000, P), np.ones(2_000, dtype=np.int64))
    device = device_of(P, 2.0, covariates=rows if public else None)
    engine = learn_sums(device, X, outcomes(rng, X, THETA), 7)
    assert not device.drift([engine]).alarm


def test_of_one_epoch_nothing_can_be_told():
    device = device_of(P, 2.0)
    drift = drift_of(device.settings, [(device.engine().now, device.mechanisms)])
    assert (drift.compared, drift.alarm, drift.releases) == (0, False, 0)


def test_estimators_forget_too():
    X, y = stream(40_000, 8)
    model = ScoreClassifier(guarantee=GaussianDP(2.0), features=["a", "b"], forget=FEWEST_KEPT, seed=1)
    model.learn_many(X[:, :P], y > 0.5)
    again = ScoreClassifier(guarantee=GaussianDP(2.0), features=["a", "b"], forget=FEWEST_KEPT, seed=1)
    for start in range(0, 40_000, 17_001):
        again.learn_many(X[start : start + 17_001, :P], y[start : start + 17_001] > 0.5)
    assert model.state_dict() == again.state_dict()
    assert model.estimate().releases_used <= FEWEST_KEPT
    assert not model.drift().alarm
    assert model.predict_many(X[:2, :P]).shape == (2,)
    other = ScoreClassifier(guarantee=GaussianDP(2.0), features=["a", "b"], seed=1)
    with pytest.raises(MurkError, match="other settings"):
        other.load_state_dict(model.state_dict())


@pytest.mark.parametrize("wrong", [23_999, 1e6, "all"])
def test_fewer_than_eight_epochs_are_refused(wrong):
    with pytest.raises(UserError, match="at least 24,000"):
        ScoreClassifier(guarantee=GaussianDP(1.0), features=["a"], forget=wrong)


def test_a_change_is_in_the_targets_own_units():
    """It falls by 20 for half of the people, who count for half or, at a model far from theirs, somewhat less."""
    model = ScoreRegressor(guarantee=GaussianDP(8.0), target_bounds=(0, 100), features=["a"], seed=2)
    surveyed = model._require().settings.survey.end
    rng, n = np.random.default_rng(9), 96_000 + surveyed
    X = rng.uniform(-1, 1, size=(n, 1))
    y = np.where(np.arange(n) < 48_000 + surveyed, 30.0, 10.0) * X[:, 0] + 50
    model.learn_many(X, y)
    assert model.drift().changes["a"] == pytest.approx(-8.0, abs=4.0)
