"""Partitions of scores whose people answer at the same models: their sums add up to one partition's, to the bit."""

import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from murk.errors import MurkError
from murk.privacy.noise import SimulatedNoise
from murk.protocols.device import HostileModelError
from murk.protocols.scores import admission
from murk.protocols.scores import engine as engines_of
from murk.protocols.scores import settings as layout
from murk.protocols.scores.engine import SharedScoreEngine, joined
from murk.protocols.scores.model import Model
from murk.protocols.scores.next_model import next_model
from murk.protocols.scores.sums import summaries
from murk.stream.wire.codec import RejectedError
from murk.stream.wire.releases import ScoreRelease
from murk.stream.wire.state import pack
from tests.learners.scores.people import device_of, features, outcomes, public

P = 2
PEOPLE = 13_000
THETA = np.array([0.7, -0.4, 0.3])
COMMON: dict[str, Any] = {
    "task": "0" * 64, "level": "default", "time": 0, "expires": 2**40, "simulated": True,
}  # fmt: skip


@pytest.fixture(scope="module")
def world() -> tuple[Any, Any]:
    rng = np.random.default_rng(5)
    X = features(rng, PEOPLE, P)
    return X, outcomes(rng, X, THETA)


def release(number: int, version: int, query: Any, payload: list[int], partition: int = 0) -> ScoreRelease:
    return ScoreRelease(
        id=f"{number:032x}", partition=partition, version=version, query=query, payload=payload, **COMMON
    )


def answers(device: Any, X: Any, y: Any, start: int, stop: int, version: int, model: Model) -> list[ScoreRelease]:
    """What people release at a model: of their number alone, whatever their partition."""
    indices = np.arange(start, stop, dtype=np.int64)
    noise = SimulatedNoise(3)
    asked = np.array(device.draw_query(noise, indices, model.flat))
    found = {}
    for query in device.queries:
        own = indices[asked == query]
        if len(own):
            vectors = device.vectors(X[own], y[own], model.flat, query)
            payloads = device.mechanism("default", query).randomize(vectors, noise, own)
            found |= {
                int(each): release(each, version, query, row) for each, row in zip(own, payloads.tolist(), strict=True)
            }
    return [found[each] for each in sorted(found)]


def told(engines: list[Any]) -> None:
    """The first partition looks at what all have learned, and the others are told."""
    first, *others = engines
    first.begin_round(others)
    for other in others:
        other.admission.hear(first.state_dict())


def learned(device: Any, world: Any, partitions: int) -> list[Any]:
    """Partitions of everybody, who go to one of them by their number."""
    X, y = world
    engines = [device.engine() for _ in range(partitions)]
    done = 0
    while done < PEOPLE:
        stop = min(PEOPLE, device.settings.round_end(done))
        version, _ = engines[0].published()
        made = answers(device, X, y, done, stop, version, engines[0].model)
        for partition, engine in enumerate(engines):
            part = made[partition::partitions]
            assert engine.admits(part)
            engine.learn_releases(part)
        told(engines)
        done = stop
    return engines


@pytest.mark.parametrize("more", [{}, {"forget": 24_000}, {"covariates": True}], ids=str)
def test_any_number_of_partitions_learns_what_one_does(world: Any, more: dict[str, Any]) -> None:
    if more.get("covariates"):
        more = {"covariates": public(world[0][:800])}
    shared = device_of(P, 2.0, shared=True, **more)
    one = learned(shared, world, 1)
    expected = shared.estimate(one)
    for partitions in (2, 7):
        engines = learned(shared, world, partitions)
        found = shared.estimate(engines)
        assert found.values.tolist() == expected.values.tolist()
        assert found.half_widths().tolist() == expected.half_widths().tolist()
        assert found.n_releases == expected.n_releases == PEOPLE
        assert shared.drift(engines) == shared.drift(one)
        # Each partition's own model of what it has learned is another: a bare sum of estimates would be.
        assert shared.estimate(engines[:1]).values.tolist() != expected.values.tolist()


def test_is_what_one_partition_with_models_of_its_own_learns(world: Any) -> None:
    X, y = world
    device = device_of(P, 2.0)
    engine, done = device.engine(), 0
    while done < PEOPLE:
        stop = min(PEOPLE, device.settings.round_end(done))
        engine.learn_releases(answers(device, X, y, done, stop, done, engine.model))
        done = stop
    expected = device.estimate([engine])
    shared = device_of(P, 2.0, shared=True)
    found = shared.estimate(learned(shared, world, 3))
    assert found.values.tolist() == expected.values.tolist()
    assert found.half_widths().tolist() == expected.half_widths().tolist()


def test_a_model_is_made_when_all_partitions_together_have_come_to_it(world: Any) -> None:
    device = device_of(P, 2.0, shared=True)
    first, other = device.engine(), device.engine()
    X, y = world
    made = answers(device, X, y, 0, PEOPLE, 0, first.model)
    first.learn_releases(made[:1_000])
    other.learn_releases(made[1_000:2_999])
    assert not first.begin_round([other])
    assert first.admission.next_model_at == 3_000
    other.learn_releases(made[2_999:3_000])
    assert first.begin_round([other])
    assert (first.published()[0], first.admission.next_model_at, first.n_releases) == (3_000, 6_000, 1_000)
    assert not first.begin_round([other])
    # Where many answer before the next look, rounds that nobody would read are left out, and nothing is forgotten.
    other.learn_releases(made[3_000:])
    assert first.begin_round([other])
    assert (first.published()[0], [round_.start for round_ in first.now.rounds]) == (12_000, [0, 3_000, 12_000])
    assert joined([first.now, other.now]).count == PEOPLE


REMEMBERED_HERE = 4
"""Models: fewer than there are otherwise, since each takes twice as many releases as the one before."""


def test_where_nobody_reads_models_none_is_made_of_nothing(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (layout, engines_of, admission):
        monkeypatch.setattr(module, "REMEMBERED", REMEMBERED_HERE)
    device = device_of(P, 2.0, shared=True)
    first, other = device.engine(), device.engine()
    made = answers(device, *world, 0, 3_000, 0, first.model)
    state = first.state_dict()
    for count in (3_000 << power for power in range(REMEMBERED_HERE + 3)):
        other.learn_releases(made[: count - other.n_releases])
        while other.n_releases < count:
            other.learn_releases(made[: count - other.n_releases])
        first.begin_round([other])
    # The round that all have answered in is forgotten with the last model that is remembered after it.
    assert len(first.now.rounds) == REMEMBERED_HERE
    assert first.now.rounds[0].start > 0 == state["rounds"][0]["start"]


def test_releases_of_models_that_are_not_known_are_refused_with_a_reason(world: Any) -> None:
    device = device_of(P, 2.0, shared=True)
    engines = learned(device, world, 2)
    first, other = engines
    payload = [0] * device.dimension
    for version, reason in (
        (0, None), (3_000, None), (12_000, None), (24_000, "future"), (2**61, "future"), (1, "version"),
        (11_999, "version"), (12_001, "future"),
    ):  # fmt: skip
        for engine in (first, other):
            one = release(1, version, "score", payload)
            assert engine.admits([one]) is (reason is None)
            if reason is None:
                engine.admit(one)
                continue
            with pytest.raises(RejectedError) as refused:
                engine.admit(one)
            assert refused.value.reason == reason
    fresh = device.engine()
    with pytest.raises(MurkError, match="model of version 3000 is not known"):
        fresh.learn_releases([release(1, 3_000, "score", payload)])


def test_a_release_of_a_forgotten_epoch_is_stale(world: Any) -> None:
    device = device_of(P, 2.0, shared=True, forget=24_000)
    first, other = device.engine(), device.engine()
    X, y = world
    for _ in range(10):
        start, version = first.n_releases + other.n_releases, first.published()[0]
        made = answers(device, X, y, start % 9_000, start % 9_000 + 3_000, version, first.model)
        first.learn_releases(made[::2])
        other.learn_releases(made[1::2])
        told([first, other])
    assert [round_.start for round_ in first.now.rounds] == [3_000 * number for number in range(3, 11)]
    with pytest.raises(RejectedError) as refused:
        other.admit(release(1, 6_000, "score", [0] * device.dimension))
    assert refused.value.reason == "stale"
    # The newest round has no answers yet.
    assert device.estimate([first, other]).releases_used == 21_000


def test_of_state_and_published_model_either_may_be_seen_first(world: Any) -> None:
    device = device_of(P, 2.0, shared=True)
    first, other = device.engine(), device.engine()
    before = device.engine()
    made = answers(device, *world, 0, 3_000, 0, first.model)
    first.learn_releases(made)
    before.load_state_dict(first.state_dict())
    assert first.begin_round([other])
    version, flat = first.published()
    other.admission.hear(before.state_dict())
    other.admission.hear_newest(version, flat)
    assert other.model.flat.tolist() == flat
    other.learn_releases(answers(device, *world, 3_000, 3_010, version, other.model))
    late = device.engine()
    late.admission.hear(first.state_dict())
    late.learn_releases(answers(device, *world, 3_000, 3_010, version, late.model))
    assert late.state_dict() == other.state_dict()


@pytest.mark.parametrize(
    ("version", "change", "message"),
    [
        (3_001, lambda flat: flat, "version 3001, at which no model"),
        (3_000, lambda flat: [*flat[:-1], float("nan")], "not finite"),
        (3_000, lambda flat: flat[:-1], "numbers"),
        (3_000, lambda flat: [1e9, *flat[1:]], "origin holds numbers beyond"),
    ],
)
def test_a_model_that_nobody_publishes_is_not_taken_notice_of(version: int, change: Any, message: str) -> None:
    device = device_of(P, 2.0, shared=True)
    other = device.engine()
    with pytest.raises(HostileModelError, match=message):
        other.admission.hear_newest(version, change(device.initial.tolist()))
    assert not other.admits([release(1, version, "score", [0] * device.dimension)])


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [(-3, 7.0, "list of survey thresholds is unknown"), (0, 1e9, "origin holds numbers beyond")],
)
def test_a_damaged_model_of_the_first_partitions_state_is_refused(place: int, value: float, message: str) -> None:
    """Otherwise a later release would fail at it, though nothing is wrong with the release."""
    device = device_of(P, 2.0, shared=True)
    state, flat, other = device.engine().state_dict(), device.initial.copy(), device.engine()
    other.admission.hear(state)
    flat[place] = value
    state["rounds"][0]["model"] = pack(flat)
    for take in (other.admission.hear, device.engine().load_state_dict):
        with pytest.raises(MurkError, match=f"the state is damaged: .*{message}"):
            take(state)
    assert other.model.flat.tolist() == device.initial.tolist()


def test_what_was_admitted_is_learned_though_newer_models_were_heard_of(world: Any) -> None:
    """A worker looks for models between two releases that are learned together."""
    device = device_of(P, 2.0, shared=True, forget=24_000)
    first, other = device.engine(), device.engine()
    X, y = world
    late: list[Any] = []
    for turn in range(10):
        version = first.published()[0]
        first.learn_releases(answers(device, X, y, 0, 3_000, version, first.model))
        first.begin_round([other])
        if turn == 0:
            other.admission.hear(first.state_dict())
            late = answers(device, X, y, 0, 10, 3_000, first.model)
            assert other.admits(late)
    other.admission.hear(first.state_dict())
    assert not other.admits(late)
    other.learn_releases(late)
    assert other.n_releases == 10
    assert device.estimate([first, other]).n_releases == 30_010


def test_centred_scores_are_asked_for_after_others_whatever_epochs_are_left_out(world: Any) -> None:
    """In every other round at least, as one partition that leaves none out does; else nothing tells of wrong rows."""
    device = device_of(P, 2.0, covariates=public(world[0][:2_000]), shared=True)
    settings, mechanisms = device.settings, device.mechanisms
    found = summaries(learned(device, world, 1)[0].now.rounds[:1], mechanisms, P + 1)
    other = next_model(settings, found, 3_000, mechanisms)
    assert other.exponent < 1.0
    assert next_model(settings, found, 12_000, mechanisms).exponent < 1.0
    assert next_model(settings, [*found, replace(found[0], model=other)], 12_000, mechanisms).exponent == 1.0


def test_of_a_model_the_first_partitions_word_is_taken(world: Any) -> None:
    """Somebody who could write models has told another partition of a wrong one."""
    device = device_of(P, 2.0, shared=True)
    first, other = learned(device, world, 2)
    expected = device.estimate([first, other])
    state = other.state_dict()
    state["rounds"][1]["model"] = state["rounds"][0]["model"]
    misled = device.engine()
    misled.load_state_dict(state)
    assert device.estimate([first, misled]).values.tolist() == expected.values.tolist()
    assert device.estimate([misled, first]).values.tolist() != expected.values.tolist()


@settings(max_examples=25, deadline=None)
@given(cuts=st.lists(st.integers(0, 400), max_size=6), load=st.booleans(), order=st.randoms(use_true_random=False))
def test_states_are_of_the_releases_and_not_of_how_they_came(
    world: Any, cuts: list[int], load: bool, order: Any
) -> None:
    device = device_of(P, 2.0, shared=True)
    X, y = world
    first = device.engine()
    first.learn_releases(answers(device, X, y, 0, 3_000, 0, first.model))
    made = answers(device, X, y, 3_000, 3_200, 0, first.model)
    assert first.begin_round([])
    made += answers(device, X, y, 3_200, 3_400, 3_000, first.model)
    order.shuffle(made)
    expected = device.engine()
    expected.admission.hear(first.state_dict())
    expected.learn_releases(made)
    engine = device.engine()
    engine.admission.hear(first.state_dict())
    edges = [0, *sorted(cuts), 400]
    for start, stop in pairwise(edges):
        part = made[start:stop]
        assert not part or engine.admits(part)
        engine.learn_releases(part)
        if load:
            state = json.loads(json.dumps(engine.state_dict()))
            engine = device.engine()
            engine.load_state_dict(state)
            engine.admission.hear(first.state_dict())
    assert engine.state_dict() == expected.state_dict()


def test_states_of_the_other_kind_are_refused(world: Any) -> None:
    own, shared = device_of(P, 2.0).engine(), device_of(P, 2.0, shared=True).engine()
    assert isinstance(shared, SharedScoreEngine)
    for state, engine in ((own.state_dict(), shared), (shared.state_dict(), own)):
        with pytest.raises(MurkError, match="other settings"):
            engine.load_state_dict(state)
    state = learned(device_of(P, 2.0, shared=True), world, 1)[0].state_dict()
    for starts in ([0, 3_001], [3_000, 0], [0, 0], [0, -3_000]):
        wrong = json.loads(json.dumps(state))
        wrong["rounds"] = [{**wrong["rounds"][0], "start": start} for start in starts]
        with pytest.raises(MurkError):
            shared.load_state_dict(wrong)
    # One that no look has found due is left out.
    state["rounds"] = [one for one in state["rounds"] if one["start"] != 3_000]
    shared.load_state_dict(state)
    assert [round_.start for round_ in shared.now.rounds] == [0, 6_000, 12_000]
