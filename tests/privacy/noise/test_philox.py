import numpy as np
import pytest

from murk.privacy.noise import kernels
from murk.privacy.noise.kernels import Purpose, block, philox

from .reference_sampler import stream

# Random123's known answers, kat_vectors, "philox4x32 10": counter, key, output.
KNOWN = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def words(text: str) -> list[np.uint64]:
    return [np.uint64(int(word, 16)) for word in text.split()]


@pytest.mark.parametrize("function", [philox, philox.py_func], ids=["compiled", "python"])
@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN)
def test_known_answers(function, counter: str, key: str, answer: str) -> None:
    assert list(function(*words(counter), *words(key))) == words(answer)


def test_known_answers_of_arrays() -> None:
    counters = np.array([words(counter) for counter, _, _ in KNOWN], dtype=np.uint64)
    keys = np.array([words(key) for _, key, _ in KNOWN], dtype=np.uint64)
    found = philox.py_func(*counters.T, *keys.T)
    assert np.array(found).T.tolist() == [[int(w) for w in words(answer)] for _, _, answer in KNOWN]


def test_a_word_is_placed_by_its_counter() -> None:
    # The layout is a promise: a resumed run must find the same words.
    seed, record, purpose, index = 0x299F31D0A4093822, 0x0370734413198A2E, 0x85A308D3, 0x243F6A88
    even, odd = block(*(np.uint64(value) for value in (seed, record, purpose, index)))
    assert (int(even), int(odd)) == (0x94FDCCEBD16CFE09, 0x24126EA15001E420)


@pytest.mark.parametrize(("start", "size"), [(0, 0), (0, 1), (0, 8), (1, 4), (3, 1), (2, 5)])
@pytest.mark.parametrize("seed", [0, 1, 2**64 - 1])
def test_numpy_and_compiled_streams_agree(seed: int, start: int, size: int) -> None:
    records = np.array([0, 7, 2**33 + 5], dtype=np.int64)
    for record in records.tolist():
        row = stream(seed, record, Purpose.SPARE, start, size)
        assert (row.dtype, row.shape) == (np.uint64, (size,))
        out = np.empty(size, dtype=np.uint64)
        kernels.fill_words(np.uint64(seed), np.uint64(record), np.uint64(1), start, out)
        np.testing.assert_array_equal(out, row)


def test_every_part_of_the_counter_and_the_key_matters() -> None:
    base = [0, 0, 0, 0]
    seen = {tuple(int(w) for w in block(*map(np.uint64, base)))}
    for position in range(4):
        for bit in range(64 if position < 2 else 32):
            changed = [np.uint64(1 << bit if i == position else 0) for i in range(4)]
            seen.add(tuple(int(w) for w in block(*changed)))
    assert len(seen) == 1 + 64 + 64 + 32 + 32
