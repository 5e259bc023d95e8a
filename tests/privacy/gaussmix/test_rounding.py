"""The random rounding: exact mean and variance, whatever the value, and no trace of it after the noise."""

import math
from decimal import Decimal, localcontext
from itertools import pairwise

import numpy as np
from scipy.stats import chisquare

from murk.privacy.central.accumulators import ROUNDING_WIDTH as WIDTH
from murk.privacy.central.accumulators import randomly_rounded


def words(size, seed):
    return np.random.default_rng(seed).integers(0, 2**64, size=size, dtype=np.uint64)


def test_law_about_any_centre():
    """Chi-square against exp(-(x - value)^2 / 2 w^2), 200,000 draws each; false alarm 10^-6. Twins: off by 0.1."""
    n = 200_000
    support = np.arange(-60, 61)
    for value in (0.0, 0.25, 0.5, 0.99, -3.7):
        found = randomly_rounded(np.full(n, value), words(n, 5))
        counts = np.bincount(found + 60, minlength=121)

        def p_value(centre):
            law = np.exp(-((support - centre) ** 2) / (2 * WIDTH**2))
            expected = n * law / law.sum()
            kept = expected > 10
            observed, fitted = counts[kept], expected[kept]  # noqa: B023
            return chisquare(observed, fitted * observed.sum() / fitted.sum()).pvalue

        assert p_value(value) > 1e-6
        assert p_value(value + 0.1) < 1e-6


def test_mean_does_not_depend_on_the_fraction():
    """By every word of a fine grid (quadrature, so no probability in it): the mean is the value to 1e-3 steps."""
    grid = (np.arange(50_000, dtype=np.uint64) * np.uint64(2**64 // 50_000)) + np.uint64(2**46)
    for fraction in np.linspace(0, 0.99, 12):
        drawn = randomly_rounded(np.full(grid.shape, fraction), grid)
        assert abs(drawn.mean() - fraction) < 1e-3
        assert abs(drawn.var() - WIDTH**2) < 2e-2


def test_extremes():
    ends = np.array([0, 2**64 - 1], dtype=np.uint64)
    # A 53-bit uniform ends 8.2 widths out.
    assert randomly_rounded(np.zeros(2), ends).tolist() == [-36, 33]
    values = np.array([2.0**50, -(2.0**50), 1e15 + 0.5])
    found = randomly_rounded(values, np.full(3, 2**63, dtype=np.uint64))
    assert np.abs(found - values).max() <= 1


def test_with_noise_nothing_of_the_rounding_is_left():
    """The distribution of (rounded + discrete Gaussian of width s) is that of one about the value, here by exact sums.

    Small s shows it best: s = 12 for the 2^20 of a release. Nearest rounding instead, the twin, is off by 1e-2.
    """
    s, fraction = 12.0, 0.3
    x = np.arange(-200, 201)

    def law(centre, variance):
        density = np.exp(-((x - centre) ** 2) / (2 * variance))
        return density / density.sum()

    noise = law(0.0, s**2)
    rounded = law(fraction, WIDTH**2)
    both = np.convolve(rounded, noise, "same")
    target = law(fraction, s**2 + WIDTH**2)
    centre = np.abs(x) < 120
    assert np.abs(both[centre] / target[centre] - 1).max() < 1e-9
    nearest = law(0.0, s**2)
    exact = law(fraction, s**2)
    assert np.abs(nearest[centre] / exact[centre] - 1).max() > 1e-2
    assert math.isclose(both.sum(), 1.0, rel_tol=1e-12)


def implemented(value):
    """The distribution of what is computed, exactly: for each integer, how many of the 2^64 words give it."""
    cells = np.arange(-37, 39) + math.floor(value)
    low, high = np.zeros(len(cells), dtype=object), np.full(len(cells), 2**64 - 1, dtype=object)
    while np.any(high - low > 1):
        middle = (low + high) // 2
        reached = randomly_rounded(np.full(len(cells), value), middle.astype(np.uint64)) >= cells
        high, low = np.where(reached, middle, high), np.where(reached, low, middle)
    least = np.where(randomly_rounded(np.full(len(cells), value), low.astype(np.uint64)) >= cells, low, high)
    return cells, [Decimal(int(b - a)) / 2**64 for a, b in pairwise([*least, 2**64])]


def test_floats_leave_the_law_within_what_is_said_of_it():
    """2^-48 in total variation, against 50 digits. The twin, a width larger by 10^-14 of itself, is further off."""
    with localcontext(prec=50):
        for value in (0.0, 0.25, 0.5, 0.999999, -3.7, 2.0**40 + 0.3):
            cells, found = implemented(value)

            def distance(width):
                centre = Decimal(value)  # noqa: B023
                wide = range(int(cells[0]) - 60, int(cells[-1]) + 60)  # noqa: B023
                law = {a: (-((a - centre) ** 2) / (2 * width**2)).exp() for a in wide}
                total = sum(law.values())
                computed = dict(zip(cells.tolist(), found, strict=True))  # noqa: B023
                return sum(abs(law[a] / total - computed.get(a, Decimal(0))) for a in wide) / 2

            width = Decimal(WIDTH)
            assert distance(width) < Decimal(2) ** -48
            assert distance(width * (1 + Decimal("1e-14"))) > Decimal(2) ** -48
