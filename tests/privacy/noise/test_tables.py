from fractions import Fraction

import mpmath
import numpy as np
import pytest

from murk.errors import UserError
from murk.privacy.noise.tables import GAUSSIAN_LAW, LAPLACE_LAW, LATTICE_WIDTH, Law, exponential

SMALL = [
    Law(kind, coarse * step, coarse, width, levels)
    for kind in ("gaussian", "laplace")
    for coarse, step in ((1, 3), (3, 1), (16, 3))
    for width, levels in ((3, 2), (8, 1), (64, 2))
]


def entries(law: Law) -> list[int]:
    """The table's digits put together again."""
    result = []
    for column in law.table.T.tolist():
        value = 0
        for digit in column:
            value = value << law.width | digit
        result.append(value)
    return result


@pytest.mark.parametrize("law", [GAUSSIAN_LAW, LAPLACE_LAW, *SMALL], ids=str)
def test_every_entry_against_high_precision(law: Law) -> None:
    bits = law.width * law.levels
    found = entries(law)
    # Summed far beyond the table, in an independent library, with 200 bits to spare.
    with mpmath.workprec(bits + 200):
        m = mpmath.mpf(law.coarse)
        terms, k = [mpmath.mpf(1)], 0
        while terms[-1] > mpmath.mpf(2) ** -(bits + 150):
            k += 1
            terms.append(mpmath.exp(-k * k / (2 * m * m) if law.kind == "gaussian" else -k / m))
        total = mpmath.fsum(terms)
        partial = mpmath.mpf(0)
        for k, entry in enumerate(found):
            partial += terms[k]
            assert entry == int(mpmath.floor(partial / total * 2**bits)), k
    assert found[-1] == 2**bits - 1, "the tail is never cut"
    assert found[-2] < found[-1]


@pytest.mark.parametrize("law", [GAUSSIAN_LAW, LAPLACE_LAW], ids=str)
def test_the_laws_in_use(law: Law) -> None:
    assert law.scale == LATTICE_WIDTH == 2**20
    assert law.step_bits + 1 + law.denominator_bits <= 64
    # Powers of two: no word of the second kind is ever out of range.
    assert law.step & (law.step - 1) == 0
    assert law.denominator & (law.denominator - 1) == 0
    # Nothing that the kernels multiply comes near 2^63.
    largest = law.table.shape[1] * law.step + law.step
    assert law.step * 2 * largest < 2**62


@pytest.mark.parametrize("law", [GAUSSIAN_LAW, *SMALL], ids=str)
def test_the_guide_starts_at_the_first_possible_entry(law: Law) -> None:
    shift = int(law.shape[5])
    for lead, start in enumerate(law.guide.tolist()):
        word = lead << shift
        assert start == next(k for k, digit in enumerate(law.digits[0]) if digit >= word)


def test_a_deeper_law_begins_with_the_same_digits() -> None:
    law = Law("gaussian", 48, 16, width=8, levels=2)
    deeper = law.deeper()
    assert deeper.levels == 4
    np.testing.assert_array_equal(deeper.table[:2, : law.table.shape[1]], law.table)


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
        Law(*arguments).table  # type: ignore[arg-type]  # noqa: B018


def test_what_all_draws_share_cannot_be_changed() -> None:
    law = Law("gaussian", 12, 4, 6)
    assert not any(array.flags.writeable for array in (law.shape, law.table, law.guide))
