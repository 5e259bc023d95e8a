"""How the embedded log lays messages into rows, and takes them out."""

import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from murk.stream.log.base import Message
from murk.stream.log.sqlite.batches import BATCH_BYTES, pack, unpack

HALF = b"x" * (BATCH_BYTES // 2)


@given(st.lists(st.one_of(st.binary(max_size=9), st.just(HALF)), max_size=40))
@example([HALF[4:], HALF[4:]])
@example([HALF[4:], HALF[3:]])
@example([b""] * (BATCH_BYTES // 4 + 1))
@example([HALF * 3, b"", HALF * 3])
def test_what_is_packed_is_unpacked(values: list[bytes]) -> None:
    packed, rows, at = [*pack(values)], [], 0
    for number, sizes, value in packed:
        assert (sizes is None) == (number == 1)
        cost = len(value) + 4 * number
        assert number == 1 or cost <= BATCH_BYTES
        # The next message would not have fitted.
        assert at + number == len(values) or cost + 4 + len(values[at + number]) > BATCH_BYTES
        rows.append((7 + at, 11, sizes, value))
        at += number
    assert unpack(rows) == [Message(offset, 11, value) for offset, value in enumerate(values, 7)]


@pytest.mark.parametrize(
    "sizes",
    [b"", b"\1\0\0", struct.pack("<I", 2), struct.pack("<2I", 3, 1), struct.pack("<2I", 1, 1), bytes(BATCH_BYTES + 4)],
)
def test_sizes_that_are_not_those_of_the_messages_are_refused(sizes: bytes) -> None:
    with pytest.raises(ValueError, match="a row's sizes"):
        unpack([(0, 0, sizes, b"abc" if len(sizes) < 99 else b"")])
    assert unpack([(0, 0, struct.pack("<2I", 1, 2), b"abc")]) == [Message(0, 0, b"a"), Message(1, 0, b"bc")]


@pytest.mark.parametrize(("sizes", "end"), [(None, 6), (struct.pack("<3I", 1, 1, 1), 8)])
def test_a_row_begins_where_the_one_before_it_ends_or_later(sizes: bytes | None, end: int) -> None:
    first, later = (5, 0, sizes, b"abc"), (end, 0, None, b"d")
    assert unpack([first, later])[-1] == (end, 0, b"d")
    with pytest.raises(ValueError, match="begins amid another"):
        unpack([first, (end - 1, 0, None, b"d")])
