from fractions import Fraction

import mpmath
import numpy as np
import pytest

from murk.errors import UserError
from murk.privacy.noise.distributions import (
    GAUSSIAN_NOISE,
    LAPLACE_NOISE,
    LATTICE_WIDTH,
    NoiseDistribution,
    exponential,
)

SMALL = [
    NoiseDistribution(kind, coarse * step, coarse, width, levels)
    for kind in ("gaussian", "laplace")
    for coarse, step in ((1, 3), (3, 1), (16, 3))
    for width, levels in ((3, 2), (8, 1), (64, 2))
]


def entries(distribution: NoiseDistribution) -> list[int]:
    """The table's digits put together again."""
    result = []
    for column in distribution.table.T.tolist():
        value = 0
        for digit in column:
            value = value << distribution.width | digit
        result.append(value)
    return result


@pytest.mark.parametrize("distribution", [GAUSSIAN_NOISE, LAPLACE_NOISE, *SMALL], ids=str)
def test_every_entry_against_high_precision(distribution: NoiseDistribution) -> None:
    bits = distribution.width * distribution.levels
    found = entries(distribution)
    # Summed far beyond the table, in an independent library, with 200 bits to spare.
    with mpmath.workprec(bits + 200):
        m = mpmath.mpf(distribution.coarse)
        terms, k = [mpmath.mpf(1)], 0
        while terms[-1] > mpmath.mpf(2) ** -(bits + 150):
            k += 1
            terms.append(mpmath.exp(-k * k / (2 * m * m) if distribution.kind == "gaussian" else -k / m))
        total = mpmath.fsum(terms)
        partial = mpmath.mpf(0)
        for k, entry in enumerate(found):
            partial += terms[k]
            assert entry == int(mpmath.floor(partial / total * 2**bits)), k
    assert found[-1] == 2**bits - 1, "the tail is never cut"
    assert found[-2] < found[-1]


@pytest.mark.parametrize("distribution", [GAUSSIAN_NOISE, LAPLACE_NOISE], ids=str)
def test_the_distributions_in_use(distribution: NoiseDistribution) -> None:
    assert distribution.scale == LATTICE_WIDTH == 2**20
    assert distribution.step_bits + 1 + distribution.denominator_bits <= 64
    # Powers of two: no word of the second kind is ever out of range.
    assert distribution.step & (distribution.step - 1) == 0
    assert distribution.denominator & (distribution.denominator - 1) == 0
    # Nothing that the kernels multiply comes near 2^63.
    largest = distribution.table.shape[1] * distribution.step + distribution.step
    assert distribution.step * 2 * largest < 2**62


@pytest.mark.parametrize("distribution", [GAUSSIAN_NOISE, *SMALL], ids=str)
def test_the_guide_starts_at_the_first_possible_entry(distribution: NoiseDistribution) -> None:
    shift = int(distribution.shape[5])
    for lead, start in enumerate(distribution.guide.tolist()):
        word = lead << shift
        assert start == next(k for k, digit in enumerate(distribution.digits[0]) if digit >= word)


def test_a_deeper_law_begins_with_the_same_digits() -> None:
    distribution = NoiseDistribution("gaussian", 48, 16, width=8, levels=2)
    deeper = distribution.deeper()
    assert deeper.levels == 4
    np.testing.assert_array_equal(deeper.table[:2, : distribution.table.shape[1]], distribution.table)


@pytest.mark.parametrize("exponent", [Fraction(1, 2048), Fraction(1, 16), Fraction(1, 2), Fraction(1)])
@pytest.mark.parametrize("precision", [8, 64, 300])
def test_exponential_encloses(exponent: Fraction, precision: int) -> None:
    low, high = exponential(exponent, precision)
    with mpmath.workprec(precision + 100):
        exact = mpmath.exp(-mpmath.mpf(exponent.numerator) / exponent.denominator) * 2**precision
        assert low <= exact <= high
    assert high - low <= 4 * precision


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("cauchy", 4, 2), "no such distribution"),
        (("gaussian", 10, 3), "must divide"),
        (("gaussian", 0, 1), "must divide"),
        (("gaussian", 4, 2, 65), "width must be in"),
        (("gaussian", 4, 2, 64, 0), "levels positive"),
        (("gaussian", 2**40, 32), "64 bits of the second word"),
        (("laplace", 2**31, 1), "overflows"),
    ],
)
def test_impossible_laws_are_refused(arguments: tuple[object, ...], message: str) -> None:
    with pytest.raises(UserError, match=message):
        NoiseDistribution(*arguments).table  # type: ignore[arg-type]  # noqa: B018


def test_what_all_draws_share_cannot_be_changed() -> None:
    distribution = NoiseDistribution("gaussian", 12, 4, 6)
    assert not any(array.flags.writeable for array in (distribution.shape, distribution.table, distribution.guide))
