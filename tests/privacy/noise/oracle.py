"""What the noise tests share: exact distributions, a chi-square, and feeds of fixed words.

A threshold of `FALSE_ALARM` makes one correct sampler in a million fail one test; seeds are fixed, so a
test that passes once passes always. Every such test has a twin with a wrong scale that must fail.
"""

import math

import numpy as np
import numpy.typing as npt
from scipy.stats import chi2

from murk._internal.arrays import Integers, Words
from murk.privacy.noise.distributions import Kind, NoiseDistribution
from murk.privacy.noise.kernels import draw
from murk.privacy.noise.sources import Draw, Feed, fill

from . import reference_sampler

FALSE_ALARM = 1e-6


def compiled(distribution: NoiseDistribution, words: Words, spare: Words, out: Integers) -> tuple[int, int, int, int]:
    """The compiled sampler."""
    status, *used = draw(distribution.shape, distribution.table, distribution.guide, words, spare, out)
    return int(status), *map(int, used)


ENGINES: dict[str, Draw] = {"compiled": compiled, "numpy": reference_sampler.draw}


def weight(kind: Kind, scale: float, x: float) -> float:
    """The exact unnormalised probability of x."""
    return math.exp(-(x**2) / (2 * scale**2)) if kind == "gaussian" else math.exp(-abs(x) / scale)


def chi_square(kind: Kind, scale: float, sample: Integers) -> float:
    """P-value of a sample against the exact distribution on the integers.

    Twice the smaller of two: of every integer by itself (tails of expectation below 10 pooled), and of some
    forty groups of |x|, which see a slightly wrong scale better.
    """
    reach = int(scale * (12 if kind == "gaussian" else 60)) + 2
    weights = [weight(kind, scale, x) for x in range(-reach, reach + 1)]
    expected = np.array(weights) * (len(sample) / math.fsum(weights))
    observed = np.bincount(np.clip(sample, -reach, reach) + reach, minlength=2 * reach + 1)
    inner = np.flatnonzero(expected >= 10)
    first, last = inner[0], inner[-1]
    each = _p_value(_pool(observed, first, last), _pool(expected, first, last))
    folded_expected, folded_observed = _fold(expected), _fold(observed)
    edges = np.searchsorted(np.cumsum(folded_expected), np.arange(40) * len(sample) / 40)
    edges = np.unique(edges)
    grouped = _p_value(np.add.reduceat(folded_observed, edges), np.add.reduceat(folded_expected, edges))
    return min(1.0, 2 * min(each, grouped))


def _fold(counts: npt.NDArray[np.generic]) -> npt.NDArray[np.float64]:
    """Counts of |x| from counts of x."""
    centre = len(counts) // 2
    folded = counts[centre:].astype(np.float64)
    folded[1:] += counts[:centre][::-1]
    return folded


def _pool(counts: npt.NDArray[np.generic], first: int, last: int) -> npt.NDArray[np.float64]:
    inner = counts[first : last + 1].astype(np.float64)
    inner[0] += counts[:first].sum()
    inner[-1] += counts[last + 1 :].sum()
    return inner


def _p_value(observed: npt.NDArray[np.float64], expected: npt.NDArray[np.float64]) -> float:
    return float(chi2.sf(((observed - expected) ** 2 / expected).sum(), len(expected) - 1))


def uniform_p_value(counts: npt.NDArray[np.int64]) -> float:
    """P-value of counts against equal expectations."""
    return _p_value(counts.astype(np.float64), np.full(len(counts), counts.mean()))


def random_feed(seed: int) -> Feed:
    """Words of a seeded generator that has nothing to do with Philox."""
    generator = np.random.Generator(np.random.SFC64(seed))

    def words(count: int) -> Words:
        fresh = generator.integers(0, 2**64, size=count, dtype=np.uint64)
        fresh.setflags(write=False)
        return fresh

    return lambda trials, spares: (words(2 * trials), words(spares))


def sample(
    distribution: NoiseDistribution, count: int, seed: int, draw: Draw = compiled, feed: Feed | None = None
) -> Integers:
    """``count`` draws from seeded words."""
    out = np.empty(count, dtype=np.int64)
    fill(distribution, out, feed or random_feed(seed), draw, block=1 << 16)
    return out


def outcome(
    distribution: NoiseDistribution, a: int, b: int, spare: list[int], draw: Draw
) -> tuple[int, int | None, int]:
    """One trial: (status, value or None if rejected, spare words used)."""
    words, extra = np.array([a, b], dtype=np.uint64), np.array(spare, dtype=np.uint64)
    words.setflags(write=False)
    extra.setflags(write=False)
    out = np.empty(1, dtype=np.int64)
    status, produced, _, used = draw(distribution, words, extra, out)
    return status, int(out[0]) if produced else None, used
