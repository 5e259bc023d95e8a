"""The stream and the normals: test vectors, another implementation, and the distribution."""

import math

import mpmath
import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from scipy.stats import chisquare, kstest, norm

from murk.privacy.central import kernels as module
from murk.privacy.central.kernels import Room, normals
from murk.privacy.noise.chacha import blocks, single_block

KEY = np.arange(100, 108, dtype=np.uint32)
# Each p-value below this counts as a rejection, each score beyond 5.5 (two-sided 4e-8) as well.
FALSE_ALARM = 1e-6


def block(key, counters):
    """A block as eight words, by OpenSSL."""
    nonce = np.array([*counters, 0], dtype="<u4").tobytes()
    stream = Cipher(algorithms.ChaCha20(key.astype("<u4").tobytes(), nonce), mode=None).encryptor()
    return np.frombuffer(stream.update(bytes(64)), dtype="<u8")


def test_rfc_8439_block():
    """RFC 8439, section 2.3.2: key 00 01 .. 1f, counter 1, nonce 00000009 0000004a 00000000."""
    key = np.frombuffer(bytes(range(32)), dtype="<u4").astype(np.uint32)
    counters = np.array([[1], [0x09000000], [0x4A000000]], dtype=np.uint32)
    expected = bytes.fromhex(
        "10f1e7e4 d13b5915 500fdd1f a32071c4 c7d1f4c7 33c06803 0422aa9a c3d46c4e"
        "d2826446 079faa09 14c2d705 d98b02a2 b5129cd1 de164eb9 cbd083e8 a2503c4e"
    )
    out = np.zeros((8, 1), dtype=np.uint64)
    blocks(key, counters, 1, out)
    assert out.astype("<u8").tobytes() == block(key, counters[:, 0]).tobytes() == expected


def test_blocks_are_openssl_s_and_keep_to_their_columns():
    rng = np.random.default_rng(1)
    counters = rng.integers(0, 2**32, size=(3, 70), dtype=np.uint32)
    found, single = np.zeros((8, 70), dtype=np.uint64), np.zeros((8, 1), dtype=np.uint64)
    blocks(KEY, counters, 65, found)
    for column in range(65):
        assert (found[:, column] == block(KEY, counters[:, column])).all()
    assert not found[:, 65:].any()
    single_block(KEY, counters[:, 7:8].copy(), single)
    assert (single[:, 0] == found[:, 7]).all()


def drawn(rows, k, key=KEY, first=0):
    """Normals of rows ``first`` .. ``first + rows - 1``."""
    room, out = Room.for_entries(k), np.empty((rows, k))
    for start in range(0, rows, room.rows):
        part = out[start : start + room.rows]
        room.fill(key, first + start, len(part))
        normals(key, first + start, 0, room.words, room.counter, room.spare, part)
    return out


def scores(values, scale=1.0):
    """Standard scores of moments and tails against N(0, scale^2)."""
    u, n = values / scale, values.size
    result = {
        p: (np.mean(u**p) - mean) / math.sqrt(variance / n)
        for p, mean, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96))
    }
    for bound in (1, 2, 3, 3.6541528853610088, 4.5):
        beyond = 2 * norm.sf(bound)
        result[f"> {bound}"] = (np.mean(np.abs(u) > bound) - beyond) / math.sqrt(beyond * (1 - beyond) / n)
    return result


@pytest.fixture(scope="module")
def sample():
    return drawn(20_000, 100)


def test_moments_and_tails(sample):
    """2 x 10^6 draws; a scale that is 0.8% wrong either way moves the second moment by 16 scores."""
    found = scores(sample.ravel())
    assert max(map(abs, found.values())) < 5.5, found
    for wrong in (1.008, 1 / 1.008):
        assert max(map(abs, scores(sample.ravel(), wrong).values())) > 5.5


def test_distribution(sample):
    """Kolmogorov-Smirnov, and a chi-square on 1,000 equally likely bins; the twins are a shift and a dent."""
    values = sample.ravel()
    assert kstest(values[:1_000_000], "norm").pvalue > FALSE_ALARM

    def p_value(values):
        return chisquare(np.bincount((norm.cdf(values) * 1000).astype(int), minlength=1000)).pvalue

    assert p_value(values) > FALSE_ALARM
    assert p_value(values + 0.02) < FALSE_ALARM
    assert p_value(np.where(np.abs(values) < 0.01, 0.9 * values, values)) < FALSE_ALARM


def test_undecided_words_follow_their_law(sample):
    """The 1.2% of the draws that take further words: their distribution is the normal one less that of the decided
    draws.

    Decided draws are uniform on the inner part of their layer. The twin takes every undecided word as it is, as if
    wedges were never rejected.
    """
    k = sample.shape[1]
    index = np.arange(13 * 20_000, dtype=np.uint32)
    words = np.zeros((8, len(index)), dtype=np.uint64)
    blocks(KEY, np.array([index % 13, index // 13, 0 * index]), len(index), words)
    # Entry j of a row is word j // 13 of its block j % 13.
    words = words.reshape(8, 20_000, 13).transpose(1, 0, 2).reshape(20_000, 104)[:, :k]
    layer, magnitude = (words & np.uint64(255)).astype(int), (words >> np.uint64(9)) & np.uint64(2**52 - 1)
    inside, width, _ = module._tables()
    undecided = magnitude >= inside[layer]
    straight = magnitude.astype(float) * width[layer]
    assert (np.abs(sample[:20_000])[~undecided] == straight[~undecided]).all()

    share, edge = inside / 2.0**52, width * 2.0**52
    mass = 1 - share.mean()
    # Standard deviation of the share of undecided words: sqrt(mass / n).
    assert abs(undecided.mean() - mass) < 5.5 * math.sqrt(mass / undecided.size)

    def law(x):
        decided = np.minimum(np.asarray(x)[:, None] / edge, share).mean(axis=1)
        return (2 * norm.cdf(x) - 1 - decided) / mass

    assert kstest(np.abs(sample[:20_000])[undecided], law).pvalue > FALSE_ALARM
    assert kstest(straight[undecided & (layer > 0)], law).pvalue < FALSE_ALARM


def test_the_layers_have_one_area():
    """Each of the 256 boxes, and the lowest with its tail, to the last digits of a float."""
    mpmath.mp.dps = 30
    inside, width, density = module._tables()
    edge = width * 2.0**52
    tail = mpmath.sqrt(mpmath.pi / 2) * mpmath.erfc(module._R / mpmath.sqrt(2))
    area = module._R * mpmath.exp(-(mpmath.mpf(module._R) ** 2) / 2) + tail
    assert abs(edge[0] * density[255] / area - 1) < 1e-13
    for i in range(1, 256):
        assert abs(edge[i] * (density[i - 1] - density[i]) / area - 1) < 1e-12
        assert inside[i] <= edge[i - 1] / edge[i] * 2**52 if i > 1 else inside[i] == 0
    assert density[0] == 1.0


def test_entries_are_independent(sample):
    """Correlations between neighbouring entries and rows, of values and of squares: standard deviation n^-1/2."""
    centred = sample**2 - 1
    for one, other in ((sample[:, :-1], sample[:, 1:]), (sample[:-1], sample[1:])):
        assert abs(np.mean(one * other)) * math.sqrt(one.size) < 5.5
    for one, other in ((centred[:, :-1], centred[:, 1:]), (centred[:-1], centred[1:])):
        assert abs(np.mean(one * other)) / 2 * math.sqrt(one.size) < 5.5
    # The twin: rows that are used twice.
    assert abs(np.mean(sample[:-1] * sample[:-1])) * math.sqrt(sample.size) > 5.5


@pytest.mark.parametrize("k", [1, 7, 8, 9, 100, 129])
def test_an_entry_is_a_function_of_its_row(k):
    whole = drawn(50, k)
    assert (drawn(20, k, first=17) == whole[17:37]).all()
    assert (drawn(1, k, first=49) == whole[49:]).all()
    assert len(np.unique(whole)) == whole.size
    other = KEY.copy()
    other[7] ^= 1
    assert not (drawn(50, k, key=other) == whole).any()


def settled(j, row, word):
    """What an undecided word begins, by taking every further word from a stream, each once; and how many it took."""
    inside, width, density = (table.tolist() for table in module._tables())
    edge, taken = width[255] * 2.0**52, 0

    def stream():
        for number in range(1, 1000):
            # The last words of a block are left, so that a trial never needs two blocks.
            yield block(KEY, (j, row, number)).tolist()

    blocks_, left = stream(), []

    def fresh(trial=False):
        nonlocal left, taken
        if trial and len(left) < 3:
            left = next(blocks_)
        taken += 1
        return left.pop(0)

    def uniform(trial):
        return (fresh(trial) >> 11) * 2.0**-53

    while True:
        layer, magnitude = word & 255, (word >> 9) & (2**52 - 1)
        x, sign = magnitude * width[layer], -1.0 if (word >> 8) & 1 else 1.0
        if magnitude < inside[layer]:
            return sign * x, taken
        u = uniform(trial=True)
        if layer:
            if density[layer] + u * (density[layer - 1] - density[layer]) < math.exp(-0.5 * x * x):
                return sign * x, taken
            word = fresh()
        else:
            v = uniform(trial=False)
            beyond = -math.log1p(-u) / edge
            if -2.0 * math.log1p(-v) > beyond * beyond:
                return sign * (edge + beyond), taken


def test_no_word_serves_twice():
    """Undecided words of all layers and of the tail, against a reference; one of them at least takes a third one."""
    rng = np.random.default_rng(3)
    words = rng.integers(0, 2**64, size=600, dtype=np.uint64) | np.uint64((2**52 - 1) << 9)
    words[:200] &= ~np.uint64(255)  # the lowest layer, whose end is the tail
    counter, spare = np.zeros((3, 1), dtype=np.uint32), np.zeros((8, 1), dtype=np.uint64)
    most = 0
    for place, word in enumerate(words):
        expected, taken = settled(place % 7, place, int(word))
        assert module._finish_normal(KEY, place, place % 7, word, counter, spare) == pytest.approx(expected, rel=1e-14)
        most = max(most, taken)
    assert most > 3
