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
    rows, offset, found = [*pack(values)], 7, list[Message]()
    for number, sizes, value in rows:
        taken = unpack(offset, 11, sizes, value)
        assert len(taken) == number
        assert (sizes is None) == (number == 1)
        assert number == 1 or len(value) + len(sizes or b"") <= BATCH_BYTES
        offset, found = offset + number, found + taken
    assert found == [Message(offset, 11, value) for offset, value in enumerate(values, 7)]
    # No two neighbours would have fitted into one row.
    costs = [len(value) + 4 * number for number, _, value in rows]
    assert all(cost + 4 + len(unpack(0, 0, *after[1:])[0].value) > BATCH_BYTES
               for cost, after in zip(costs, rows[1:], strict=False))  # fmt: skip


@pytest.mark.parametrize(
    "sizes",
    [b"", b"\1\0\0", struct.pack("<I", 2), struct.pack("<2I", 3, 1), struct.pack("<2I", 1, 1), bytes(BATCH_BYTES + 4)],
)
def test_sizes_that_are_not_those_of_the_messages_are_refused(sizes: bytes) -> None:
    with pytest.raises(ValueError, match="a row's sizes"):
        unpack(0, 0, sizes, b"abc" if len(sizes) < 99 else b"")
    assert unpack(0, 0, struct.pack("<2I", 1, 2), b"abc") == [Message(0, 0, b"a"), Message(1, 0, b"bc")]
