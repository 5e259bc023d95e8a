"""Exhaustive enumeration: what a chi-square can miss (it missed u1 overlapping j by one bit)."""

import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from murk.privacy.noise.distributions import NoiseDistribution
from murk.privacy.noise.kernels import DEEPER, DONE, SPARE, WORDS
from murk.privacy.noise.sources import Draw

from .oracle import ENGINES, outcome

engines = pytest.mark.parametrize("draw", ENGINES.values(), ids=ENGINES)

# Scales with J = 1, a power of two, and not a power of two; denominators of both kinds.
SECOND_WORDS = [
    NoiseDistribution("gaussian", 4, 4, width=6),
    NoiseDistribution("gaussian", 6, 2, width=5),
    NoiseDistribution("gaussian", 8, 2, width=5),
    NoiseDistribution("laplace", 6, 2, width=5),
    NoiseDistribution("laplace", 16, 4, width=5),
]


def first_words(distribution: NoiseDistribution) -> dict[int, int]:
    """A first word that decides each k by itself."""
    found, previous = {}, -1
    for k, digit in enumerate(distribution.digits[0]):
        if digit > previous + 1:
            found[k] = previous + 1
        previous = digit
    return found


@engines
@pytest.mark.parametrize("distribution", SECOND_WORDS, ids=str)
def test_every_second_word(distribution: NoiseDistribution, draw: Draw) -> None:
    step, denominator = distribution.step, distribution.denominator
    size = 1 << (distribution.step_bits + 1 + distribution.denominator_bits)
    words = first_words(distribution)
    assert len(words) >= 3
    for k, a in words.items():
        accepted: Counter[int] = Counter()
        undecided = rejected = 0
        for b in range(size):
            status, value, used = outcome(distribution, a, b, [], draw)
            assert used == 0
            if value is not None:
                accepted[value] += 1
            elif status == SPARE:
                undecided += 1
            else:
                assert status == WORDS
                rejected += 1
        expected, open_trials = Counter[int](), 0
        for j, sign in itertools.product(range(step), (1, -1)):
            x = k * step + j
            numerator = x**2 - (k * step) ** 2 if distribution.kind == "gaussian" else j
            # Of the `denominator` values of u1, those below the numerator need more words.
            open_trials += min(numerator, denominator)
            if x or sign == 1:
                expected[sign * x] += max(0, denominator - numerator)
        assert accepted == +expected
        assert undecided == open_trials
        # Out of range, and the negative zero.
        assert rejected == size - 2 * step * denominator + (denominator if k == 0 else 0)


@engines
@pytest.mark.parametrize(
    "distribution",
    [
        NoiseDistribution("gaussian", 3, 3, width=3),
        NoiseDistribution("laplace", 2, 2, width=3),
        NoiseDistribution("gaussian", 5, 5, width=4, levels=1),
    ],
    ids=str,
)
def test_every_first_word(distribution: NoiseDistribution, draw: Draw) -> None:
    base, top = 1 << distribution.width, (1 << distribution.width * distribution.levels) - 1
    # J = 1: every trial of this second word is accepted with the positive sign, so the value is k.
    counts, deeper = Counter[int](), 0
    for letters in itertools.product(range(base), repeat=distribution.levels):
        a, later = letters[0], list(letters[1:])
        status, value, used = outcome(distribution, a, 0, later, draw)
        if status == DEEPER:
            deeper += 1
            continue
        assert status == DONE
        counts[value] += 1
        # No word is read that was not needed.
        assert used == len(later) or outcome(distribution, a, 0, later[:used], draw) == (DONE, value, used)
        if used:
            assert outcome(distribution, a, 0, later[: used - 1], draw) == (SPARE, None, 0)
    previous, expected = -1, Counter[int]()
    for k, column in enumerate(distribution.table.T.tolist()):
        entry = sum(digit * base ** (distribution.levels - 1 - level) for level, digit in enumerate(column))
        # Two entries may agree in all the digits there are.
        expected[k] = max(0, entry - previous - 1)
        previous = entry
    assert previous == top
    assert counts == +expected
    assert deeper == top + 1 - expected.total()


@engines
@pytest.mark.parametrize(
    ("kind", "scale", "k", "j", "bits", "depth", "tolerance"),
    [
        ("laplace", 2, 0, 1, 2, 6, 0.01),
        ("laplace", 4, 1, 3, 2, 6, 0.06),
        ("gaussian", 2, 0, 1, 3, 4, 0.002),
    ],
)
def test_acceptance_is_exactly_exponential(
    kind: str, scale: int, k: int, j: int, bits: int, depth: int, tolerance: float, draw: Draw
) -> None:
    """Every tape of spare words to a depth, weighed exactly: acceptance must enclose exp(-num/den).

    No bound that occurs so early needs more than the ``bits`` of a word that the tapes vary.
    """
    distribution = NoiseDistribution(kind, scale, 1)  # type: ignore[arg-type]
    numerator = j * (2 * k * distribution.step + j) if kind == "gaussian" else j
    a = distribution.digits[0][k] - 1

    def tree(b: int, tape: list[int]) -> tuple[Fraction, Fraction]:
        """Probability of acceptance, and of being still undecided, over all continuations of a tape."""
        status, value, _ = outcome(distribution, a, b, tape, draw)
        if status != SPARE:
            return Fraction(value is not None), Fraction(0)
        if len(tape) == depth:
            return Fraction(0), Fraction(1)
        branches = [tree(b, [*tape, letter]) for letter in range(1 << bits)]
        return sum(x for x, _ in branches) / Fraction(1 << bits), sum(y for _, y in branches) / Fraction(1 << bits)

    trees = [tree(j | u1 << (distribution.step_bits + 1), []) for u1 in range(distribution.denominator)]
    accepted = float(sum(x for x, _ in trees) / distribution.denominator)
    undecided = float(sum(y for _, y in trees) / distribution.denominator)
    assert accepted <= math.exp(-numerator / distribution.denominator) <= accepted + undecided
    assert undecided < tolerance


@engines
def test_an_exponent_above_one_takes_its_whole_parts_apart(draw: Draw) -> None:
    # S = 2, m = 1, k = 5, j = 1: num / den = 21 / 8, two factors exp(-1) and one of exp(-5/8).
    distribution = NoiseDistribution("gaussian", 2, 1)
    assert distribution.digits[0][5] - distribution.digits[0][4] > 2
    a = distribution.digits[0][5] - 1
    b_first = 1 | 7 << 2
    never, always = 2**64 - 1, 0
    # u1 = 7 >= 5 accepts the rest at once. Each factor exp(-1) then draws (u < 8: always below), u < 2 ...
    # and stops, odd, when the second of a pair is not 0: K = 2 stops even, so both must pass K = 2.
    assert outcome(distribution, a, b_first, [always, never], draw) == (WORDS, None, 2)
    one_factor = [always, always, always, 1]
    assert outcome(distribution, a, b_first, one_factor, draw) == (SPARE, None, 0)
    assert outcome(distribution, a, b_first, one_factor * 2, draw) == (DONE, 11, 8)


@engines
def test_nothing_is_consumed_until_a_trial_is_settled(draw: Draw) -> None:
    distribution = NoiseDistribution("laplace", 2, 1)
    a = distribution.digits[0][0] - 1
    words = np.array([a, 1], dtype=np.uint64)
    words.setflags(write=False)
    spare = np.array([0], dtype=np.uint64)
    spare.setflags(write=False)
    out = np.empty(1, dtype=np.int64)
    assert draw(distribution, words, spare, out) == (SPARE, 0, 0, 0)
