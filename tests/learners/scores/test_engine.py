"""The learner's sums are exact, and its state a function of the releases alone."""

import json

import numpy as np
import pytest

from murk.errors import MurkError
from murk.privacy.mechanisms.outer_product import matrix_size
from murk.protocols.scores.settings import FIRST, round_end
from murk.stream.wire.codec import RejectedError
from murk.stream.wire.releases import ScoreRelease
from tests.learners.scores.people import device_of, features, learn_sums, outcomes

P = 3


@pytest.fixture(scope="module")
def device():
    return device_of(P - 1, 2.0)


def release(device, place, version=0, query="score", payload=None):
    size = P if query == "score" else matrix_size(P)
    rng = np.random.default_rng(place)
    numbers = rng.integers(-(2**20), 2**20, size=size).tolist() if payload is None else payload
    return ScoreRelease(
        id=f"{place:032x}", task="f" * 64, level="default", partition=0, version=version, query=query,
        payload=numbers, time=0, expires=86_400,
    )  # fmt: skip


def stream(device, count):
    """Releases as devices would make them: of the round before for a while, and of all queries."""
    queries = ("score", "score", "curvature", "scatter")
    version = before = 0
    for place in range(count):
        if place == round_end(version):
            before, version = version, place
        late = version - before and place - version < 50 and place % 2
        yield release(device, place, before if late else version, queries[place % 4])


def test_how_releases_are_split_makes_no_difference(device):
    releases = list(stream(device, 2 * FIRST + 700))
    states = []
    for sizes in ([1], [256], [7, 4096, 31]):
        engine, done, turn = device.engine(), 0, 0
        while done < len(releases):
            part = releases[done : done + sizes[turn % len(sizes)]]
            for ahead, one in enumerate(part):
                engine.admit(one, ahead)
            engine.learn_releases(part)
            done, turn = done + len(part), turn + 1
        states.append(json.dumps(engine.state_dict()))
    assert len(set(states)) == 1
    assert engine.published()[0] == 2 * FIRST


def test_a_state_goes_on_where_it_stood(device):
    releases = list(stream(device, 2 * FIRST + 100))
    whole, first, second = device.engine(), device.engine(), device.engine()
    whole.learn_releases(releases)
    first.learn_releases(releases[:4000])
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    second.learn_releases(releases[4000:])
    assert second.state_dict() == whole.state_dict()
    assert second.published() == whole.published()
    assert second.estimate().values.tolist() == whole.estimate().values.tolist()


def test_sums_neither_round_nor_overflow(device):
    engine, large = device.engine(), 2**23
    engine.learn_releases([release(device, place, payload=[large, -large, 1]) for place in range(1000)])
    [tally] = engine.now.rounds[0].tallies.values()
    assert (tally.count, tally.total) == (1000, [1000 * large, -1000 * large, 1000])
    state = engine.state_dict()
    state["rounds"][0]["tallies"][0]["total"][0] = 2**100 + 1
    again = device.engine()
    again.load_state_dict(json.loads(json.dumps(state)))
    assert next(iter(again.now.rounds[0].tallies.values())).total[0] == 2**100 + 1


def test_order_within_an_epoch_makes_no_difference(device):
    releases = list(stream(device, FIRST))
    forward, backward = device.engine(), device.engine()
    forward.learn_releases(releases)
    backward.learn_releases(releases[::-1])
    assert forward.state_dict() == backward.state_dict()


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"version": FIRST}, "future"),
        ({"version": 1}, "future"),
        ({"query": "score", "payload": [1] * matrix_size(P)}, "dimension"),
        ({"query": "scatter", "payload": [1] * P}, "dimension"),
        ({"payload": [2**25] * P}, "magnitude"),
    ],
)
def test_what_cannot_be_learned_is_refused_with_its_reason(device, more, reason):
    with pytest.raises(RejectedError) as refused:
        device.engine().admit(release(device, 1, **more), 0)
    assert refused.value.reason == reason
    assert device.engine().admits([release(device, 1)])
    assert not device.engine().admits([release(device, 1), release(device, 1, **more)])


def test_epochs_that_never_were_and_forgotten_ones_are_refused():
    device = device_of(1, 2.0)
    engine = device.engine()
    numbers = np.zeros((FIRST, 2), dtype=np.int64)
    for _ in range(256):
        engine.learn_payloads({("default", "score"): numbers})
    assert engine.n_releases == 256 * FIRST
    assert [round_.start // FIRST for round_ in engine.now.rounds] == [2, 4, 8, 16, 32, 64, 128, 256]
    reasons = []
    for version in (2 * FIRST, FIRST, 3 * FIRST, 0):
        answer = ScoreRelease(
            id="0" * 32, task="f" * 64, level="default", partition=0, version=version, query="score", payload=[0, 0],
            time=0, expires=86_400,
        )  # fmt: skip
        try:
            engine.admit(answer, 0)
            assert engine.admits([answer])
            reasons.append("")
        except RejectedError as refused:
            assert not engine.admits([answer])
            reasons.append(refused.reason)
    assert reasons == ["", "stale", "version", "stale"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda state: state.update(schema=2),
        lambda state: state.update(settings="0" * 16),
        lambda state: state.update(n_releases=-1),
        lambda state: state.update(n_releases=FIRST),
        lambda state: state.update(rounds=[]),
        lambda state: state.update(rounds=[3]),
        lambda state: state["rounds"][0].update(model="AAAA"),
        lambda state: state["rounds"][0]["tallies"][0].update(level="other"),
        lambda state: state["rounds"][0]["tallies"][0].update(total=[1.5] * P),
        lambda state: state["rounds"][0]["tallies"][0].update(count=None),
    ],
)
def test_a_damaged_state_is_refused(device, damage):
    engine = device.engine()
    engine.learn_releases([release(device, 1)])
    state = engine.state_dict()
    damage(state)
    with pytest.raises(MurkError):
        device.engine().load_state_dict(state)


def test_partitions_are_solved_together():
    rng = np.random.default_rng(8)
    device, theta = device_of(2, 8.0), np.array([0.8, -0.5, 0.2])
    X = features(rng, 24_000, 2)
    y = outcomes(rng, X, theta)
    partitions = [learn_sums(device, X[part::2], y[part::2], part) for part in (0, 1)]
    together = device.estimate(partitions)
    assert together.n_releases == 24_000
    assert together.partitions == 2
    assert together.standard_error < min(partition.estimate().standard_error for partition in partitions)
