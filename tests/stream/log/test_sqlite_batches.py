"""How the embedded log lays messages into rows, and takes them out."""

import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from murk.stream.log.interface import Message
from murk.stream.log.sqlite import BATCH_BYTES, BATCH_MESSAGES, pack, unpack

HALF = b"x" * (BATCH_BYTES // 2)


@given(st.lists(st.one_of(st.binary(max_size=9), st.just(HALF)), max_size=40))
@example([HALF[4:], HALF[4:]])
@example([HALF[4:], HALF[3:]])
@example([b""] * (2 * BATCH_MESSAGES + 1))
@example([HALF * 3, b"", HALF * 3])
def test_what_is_packed_is_unpacked(values: list[bytes]) -> None:
    rows, at = [], 0
    for number, value in pack(values):
        assert number == 1 or (number <= BATCH_MESSAGES and len(value) <= BATCH_BYTES)
        # The next message would not have fitted.
        last = at + number == len(values)
        cost = 4 * (number == 1) + len(value)
        assert last or number == BATCH_MESSAGES or cost + 4 + len(values[at + number]) > BATCH_BYTES
        rows.append((7 + at, 11, number, value))
        at += number
    assert unpack(rows) == [Message(offset, 11, value) for offset, value in enumerate(values, 7)]


@pytest.mark.parametrize(
    ("number", "sizes", "held"),
    [
        (0, (), b""), (-1, (), b"abc"), (2, (3,), b""), (2, (1, 2), b"ab"), (2, (1, 1), b"abc"),
        (BATCH_MESSAGES + 1, (0,) * (BATCH_MESSAGES + 1), b""), (2**62, (), b"abc"),
    ],
)  # fmt: skip
def test_a_row_that_does_not_hold_what_it_says_is_refused(number: int, sizes: tuple[int, ...], held: bytes) -> None:
    with pytest.raises(ValueError, match="a batch"):
        unpack([(0, 0, number, struct.pack(f"<{len(sizes)}I", *sizes) + held)])
    assert unpack([(0, 0, 2, struct.pack("<2I", 1, 2) + b"abc")]) == [Message(0, 0, b"a"), Message(1, 0, b"bc")]


@pytest.mark.parametrize(("number", "end"), [(1, 6), (3, 8)])
def test_a_row_begins_where_the_one_before_it_ends_or_later(number: int, end: int) -> None:
    first = (5, 0, number, b"abc" if number == 1 else struct.pack("<3I", 1, 1, 1) + b"abc")
    assert unpack([first, (end, 0, 1, b"d")])[-1] == (end, 0, b"d")
    with pytest.raises(ValueError, match="begins within another"):
        unpack([first, (end - 1, 0, 1, b"d")])
