"""The window for duplicates against its definition, and rebuilt at every point against never interrupted."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from murk.stream.wire.duplicates import DuplicateWindow

IDS = [f"{number:032x}" for number in range(4)]

# (distance to the offset before, id or None for a message that is not valid): few ids, so that they repeat.
STREAMS = st.lists(
    st.tuples(st.sampled_from([1, 1, 1, 2, 5, 40]), st.sampled_from([*IDS, None])), min_size=1, max_size=60
)


def placed(stream: list[tuple[int, str | None]], start: int) -> list[tuple[int, str | None]]:
    offset, found = start - 1, []
    for distance, identifier in stream:
        offset += distance
        found.append((offset, identifier))
    return found


def run(window: DuplicateWindow, messages: list[tuple[int, str | None]]) -> list[bool]:
    return [window.seen(offset, identifier) for offset, identifier in messages if identifier is not None]


def by_definition(messages: list[tuple[int, str | None]], size: int) -> list[bool]:
    return [
        any(other == identifier and offset - size <= o < offset for o, other in messages)
        for offset, identifier in messages
        if identifier is not None
    ]


@given(STREAMS, st.integers(1, 12), st.integers(0, 30))
def test_the_window_is_its_definition(stream: list[tuple[int, str | None]], size: int, start: int) -> None:
    messages = placed(stream, start)
    assert run(DuplicateWindow(size), messages) == by_definition(messages, size)


@given(STREAMS, st.integers(1, 12))
def test_a_window_rebuilt_at_any_point_goes_on_as_the_old_one(stream: list[tuple[int, str | None]], size: int) -> None:
    messages = placed(stream, 0)
    whole = DuplicateWindow(size)
    run(whole, messages)
    end = messages[-1][0] + 1
    for cut in range(end + 1):
        rebuilt = DuplicateWindow(size)
        run(rebuilt, [m for m in messages if cut - size <= m[0] < cut])
        before = DuplicateWindow(size)
        run(before, [m for m in messages if m[0] < cut])
        assert rebuilt.newest(cut) == before.newest(cut)
        assert (
            run(rebuilt, [m for m in messages if m[0] >= cut])
            == by_definition(messages, size)[
                sum(1 for offset, identifier in messages if offset < cut and identifier is not None) :
            ]
        )
        assert rebuilt.newest(end) == whole.newest(end)


def test_a_window_that_is_too_small_would_be_noticed() -> None:
    """The twin that must fail: the same comparison with a window one short."""
    messages = placed([(1, IDS[0]), (1, IDS[1]), (1, IDS[0])], 0)
    assert run(DuplicateWindow(1), messages) != by_definition(messages, 2)


def test_memory_is_bounded_by_twice_the_size() -> None:
    window, rng, largest = DuplicateWindow(100), random.Random(1), 0
    for offset in range(5_000):
        window.seen(offset, f"{rng.getrandbits(128):032x}")
        largest = max(largest, len(window))
    assert 100 <= largest <= 200


def test_ids_that_collide_as_integers_cost_no_more() -> None:
    """Multiples of 2^61 - 1 are one and the same to the hash of an int, and so one slow partition of lookups."""
    window = DuplicateWindow(20_000)
    colliding = [f"{k * (2**61 - 1):032x}" for k in range(20_000)]
    assert len({hash(int(identifier, 16)) for identifier in colliding}) == 1
    assert len({hash(key) for key in map(bytes.fromhex, colliding)}) > 19_900
    assert not any(window.seen(offset, identifier) for offset, identifier in enumerate(colliding))
    assert window.seen(20_000, colliding[0])


def test_a_window_must_reach_back() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        DuplicateWindow(0)


@given(STREAMS, st.integers(1, 12), st.lists(st.integers(1, 6), min_size=1, max_size=4))
def test_blocks_of_new_ids_are_added_as_one_by_one(
    stream: list[tuple[int, str | None]], size: int, cuts: list[int]
) -> None:
    messages = [(offset, identifier) for offset, identifier in placed(stream, 0) if identifier is not None]
    alone, blocks = DuplicateWindow(size), DuplicateWindow(size)
    at = 0
    for cut in cuts * len(messages):
        block = messages[at : at + cut]
        at += cut
        if not block:
            break
        found = run(alone, block)
        if add_new(blocks, [offset for offset, _ in block], [identifier for _, identifier in block]):
            assert not any(found)
        else:
            assert run(blocks, block) == found
        assert (blocks._newer, blocks._older, blocks._last) == (alone._newer, alone._older, alone._last)


def test_a_block_of_new_ids_is_added_at_once() -> None:
    window = DuplicateWindow(100)
    assert add_new(window, [0, 1, 2], IDS[:3])
    assert not add_new(window, [3, 4], IDS[2:])
    assert not add_new(window, [3, 4], [IDS[3], IDS[3]])
    assert len(window) == 3
    assert add_new(window, [3], IDS[3:])
    # Across the end of a dictionary's turn each is looked at by itself.
    assert not add_new(window, [99, 100], ["a" * 32, "b" * 32])


def add_new(window: DuplicateWindow, offsets: list[int], ids: list[str]) -> bool:
    words = np.frombuffer(bytes.fromhex("".join(ids)), ">u8").astype(np.uint64).reshape(-1, 2)
    return window.add_new(np.array(offsets), words, np.zeros(len(ids), np.int64))
