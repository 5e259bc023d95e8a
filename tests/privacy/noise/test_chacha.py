"""Fresh words: ChaCha20 of a key that the operating system gives for them alone, and nothing beside or before them."""

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

from murk._internal.jit import is_compiled, jit, random_words
from murk.privacy.noise.chacha import expand, fresh_words

KEY = np.frombuffer(bytes(range(32)), dtype=np.uint64)


def stream(key: bytes, blocks: int) -> np.ndarray:
    """Words of the key's first blocks by OpenSSL, of eight at a time the first halves, then the second ones, ..."""
    encryptor = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
    halves = np.frombuffer(encryptor.update(bytes(64 * blocks)), dtype="<u4").reshape(-1, 8, 16)
    return np.ascontiguousarray(halves.transpose(0, 2, 1)).view("<u8").ravel()


@pytest.mark.parametrize("size", [4, 5, 30, 63, 64, 65, 128, 129, 1000])
def test_they_are_the_words_of_their_key_and_stand_where_they_belong(size):
    room = np.full(size + 8, 7, dtype=np.uint64)
    room[:4] = KEY
    expand(room.ctypes.data, size)
    wanted = stream(KEY.tobytes(), 8 * (size // 64 + 1))
    assert (room[:size] == wanted[:size]).all()
    assert (room[size:] == 7).all()
    # The twin: a key with one bit more.
    other = stream((KEY ^ np.uint64([1, 0, 0, 0])).tobytes(), 8)
    assert not (room[:4] == other[:4]).any()


def test_each_call_has_a_key_of_its_own_of_which_nothing_is_left():
    """A key of which a byte were always the same, or words that came again: by chance in fewer than 1e-11 of runs."""
    size, keys, seen = 36, [], np.empty((200, 36), dtype=np.uint64)
    for row in seen:
        assert random_key(row.ctypes.data)
        keys.append(row[:4].copy())
        expand(row.ctypes.data, size)
        assert not np.isin(keys[-1], row).any()
    given = np.array(keys).view(np.uint8)
    assert (given.max(axis=0) > given.min(axis=0)).all()
    for row in seen:
        assert fresh_words(row.ctypes.data, size)
    assert len(np.unique(np.concatenate([np.array(keys).ravel(), seen.ravel()]))) == 200 * (4 + size)


def test_nothing_is_left_of_words_that_were_not_wanted(monkeypatch):
    """The interpreted function, whose lines are the compiled one's: its room holds 64 words, of which 30 are wanted.

    And what they are made of, the key.
    """
    rooms, empty = [], np.empty

    def recorded(*given, **named):
        rooms.append(empty(*given, **named))
        return rooms[-1]

    room = np.full(38, 7, dtype=np.uint64)
    room[:4] = KEY
    with monkeypatch.context() as patch:
        patch.setattr(np, "empty", recorded)
        expand._function(room.ctypes.data, 30)
    assert (room[:30] == stream(KEY.tobytes(), 8)[:30]).all()
    (used,) = rooms
    assert len(used) == 128
    assert not used.any()


@jit
def random_key(address):
    return random_words(address, 4)


def test_without_randomness_it_says_so_and_writes_nothing(monkeypatch):
    """The interpreted function: the compiled one is told the same by the system call."""
    monkeypatch.setattr("murk.privacy.noise.chacha.random_words", lambda address, size: False)
    room = np.full(36, 7, dtype=np.uint64)
    assert not fresh_words._function(room.ctypes.data, 36)
    assert (room == 7).all()


@jit
def told():
    return is_compiled()


def test_interpreted_they_are_the_systems_own():
    """Of 36 words none is what was there, by chance in fewer than 1e-17 of runs; nothing behind them is written to."""
    assert told()
    assert not is_compiled()
    room = np.full(40, 7, dtype=np.uint64)
    assert fresh_words._function(room.ctypes.data, 36)
    assert not (room[:36] == 7).any()
    assert (room[36:] == 7).all()
