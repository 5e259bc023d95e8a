import numpy as np
import pytest

from murk.errors import MurkError, UserError
from murk.privacy.noise import Purpose, SecureNoise, SimulatedNoise, below, coins, identifiers

from .oracle import FALSE_ALARM, uniform_p_value

ALL = 2**64 - 1


@pytest.mark.parametrize("threshold", [0, 1, 2**53 + 1, 2**63 - 1, 2**63, 2**63 + 1, ALL - 1, ALL, 2**64])
def test_a_coin_is_an_exact_comparison(threshold: int) -> None:
    # Neighbours of the threshold, which a float would confuse.
    near = [w for w in (0, 1, threshold - 2, threshold - 1, threshold, threshold + 1, ALL) if 0 <= w <= ALL]
    words = np.array([near, near], dtype=np.uint64)
    assert coins(words, threshold).tolist() == [[w < threshold for w in near]] * 2


@pytest.mark.parametrize("threshold", [-1, 2**64 + 1])
def test_impossible_thresholds_are_refused(threshold: int) -> None:
    with pytest.raises(UserError, match="from 0 to 2\\^64"):
        coins(np.zeros(1, dtype=np.uint64), threshold)


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 13])
def test_below_is_exactly_uniform(n: int) -> None:
    """All pairs of four-bit candidates: every value as often as every other, and failures only by both."""
    candidates = np.array([(a, b) for a in range(16) for b in range(16)], dtype=np.uint64)
    bits = (n - 1).bit_length()
    failing = [(a % (1 << bits) >= n) and (b % (1 << bits) >= n) for a, b in candidates.tolist()]
    counts = np.bincount(below(candidates[~np.array(failing)], n), minlength=n)
    assert counts.shape == (n,)
    assert len(set(counts.tolist())) == 1
    if any(failing):
        with pytest.raises(MurkError, match=f"below {n}; give more words"):
            below(candidates, n)


def test_below_of_large_bounds() -> None:
    # 63 bits are read: the first candidate is out of range in the first row only.
    words = np.array([[ALL, 2**63 + 5], [2**62, 3]], dtype=np.uint64)
    assert below(words, 2**62 + 1).tolist() == [5, 2**62]
    assert below(np.array([[2**63 - 1]], dtype=np.uint64), 2**63).tolist() == [2**63 - 1]
    assert below(words[:0], 3).tolist() == []


@pytest.mark.parametrize("n", [0, -1, 2**63 + 1])
def test_impossible_bounds_are_refused(n: int) -> None:
    with pytest.raises(UserError, match="from 1 to 2\\^63"):
        below(np.zeros((1, 1), dtype=np.uint64), n)


def test_below_in_use() -> None:
    """Seeded; the twin is the usual modulo, whose bias shows at a bound of 3/4 of the range."""
    words = SimulatedNoise(2).words(np.arange(200_000), 64, Purpose.PARTITION)
    assert uniform_p_value(np.bincount(below(words, 3), minlength=3)) > FALSE_ALARM
    modulo = (words[:, 0] & np.uint64(3)).astype(np.int64) % 3
    assert uniform_p_value(np.bincount(modulo, minlength=3)) < FALSE_ALARM


@pytest.mark.parametrize("noise", [SecureNoise(), SimulatedNoise(4)], ids=repr)
def test_identifiers(noise) -> None:
    names = identifiers(noise, range(1000))
    assert len(set(names)) == 1000
    assert {len(name) for name in names} == {32}
    digits = np.array([int(digit, 16) for name in names for digit in name])
    # False alarms once in a million runs for the unseeded source.
    assert uniform_p_value(np.bincount(digits, minlength=16)) > FALSE_ALARM
    assert (identifiers(noise, [0]) == identifiers(noise, [0])) == noise.simulated
    assert identifiers(noise, []) == []
