"""Mechanisms that release one of several outcomes; the true value favours some of them."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from fractions import Fraction
from functools import cache, cached_property, lru_cache
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

import numpy as np
import numpy.typing as npt

from murk._internal.arrays import Floats, Integers
from murk._internal.wiping import copied, track, wiped
from murk.errors import UserError
from murk.privacy.guarantees import GaussianDP, Guarantee, ZeroConcentratedDP
from murk.privacy.mechanisms.base import checked_integer, plain
from murk.privacy.mechanisms.costs import (
    UNITS,
    OddsMechanism,
    PrivacyLoss,
    budget_of,
    epsilon_units,
)
from murk.privacy.mechanisms.lattice import PayloadBound
from murk.privacy.rounding import decimal, largest_integer, normal_upper, precise

if TYPE_CHECKING:
    from murk.privacy.noise import NoiseSource

_ERROR_CODE = "MURK-PRIVACY-001"

_WORDS: Final = 2**64
_OUTCOMES_BELOW: Final = 2**15
_WORDS_AT_ONCE: Final = 2**20


class SelectionMechanism(OddsMechanism):
    r"""Base class of mechanisms that release one of M outcomes: the h that the true value favours have larger odds.

    A 64-bit word decides between favoured and other outcomes: ``other`` (M - h) of its values select the other
    outcomes, and all remaining values the h favoured ones. The outcomes of each kind are equally likely up to a
    relative error below 2 M^2 / 2^64, which the odds include:

    .. math:: \frac{2^{64} - (M - h)\, a}{h\, a} \left(1 + \frac{4 M^2}{2^{64}}\right) \le e^\epsilon
    """

    kind: ClassVar[str]
    other: int  # number a of values of a random word for each outcome that is not favoured
    draws: ClassVar[int] = 1
    unit: ClassVar[float] = 1.0
    payload_bound: ClassVar[PayloadBound] = PayloadBound(())

    @property
    @abstractmethod
    def outcomes(self) -> int:
        """Number M of outcomes, or of categories in a random subset."""

    @property
    @abstractmethod
    def favoured(self) -> int:
        """Number h of outcomes that the true value favours."""

    @property
    @abstractmethod
    def dimension(self) -> int:
        """Number of integers in a release."""

    @property
    def threshold(self) -> int:
        """Number of values of a random word that select a favoured outcome."""
        return _WORDS - (self.outcomes - self.favoured) * self.other

    @property
    def chance(self) -> float:
        """Probability that the outcome is a favoured one."""
        return float(Fraction(self.threshold, _WORDS))

    @property
    def _slack(self) -> int:
        """Bound on the relative error of an outcome's probability, in units of 2^-64."""
        return 4 * self.outcomes**2

    @property
    def odds(self) -> tuple[int, int]:
        """Numerator and denominator of the largest odds between two inputs."""
        return self.threshold * (_WORDS + self._slack), self.favoured * self.other * _WORDS

    @property
    @abstractmethod
    def _apart(self) -> tuple[Fraction, Fraction]:
        """Probabilities of the outcomes that only the first of two values favours, given the first, and the second."""

    @cached_property
    def _mu(self) -> Decimal | None:
        """Upper bound on the mu of one release; None if rounding to 64 bits allows none.

        The trade-off curve of two values is linear between (b, 1 - a) and (1 - a, b), with a and b the probabilities of
        the outcomes that only the first one favours, given the first and the second. So mu = Phi^-1(1 - b) + Phi^-1(a).
        """
        a, b = self._apart
        error = Fraction(4 * self._slack, _WORDS)
        if b <= error or 1 - a <= error:
            return None
        with precise():
            return normal_upper(b - error) + normal_upper(1 - a - error)

    def _check(self, *names: str) -> None:
        owner = type(self).__name__
        for name in (*names, "other"):
            object.__setattr__(self, name, checked_integer(owner, name, getattr(self, name)))
        if not 0 < self.favoured < self.outcomes < _OUTCOMES_BELOW:
            raise UserError(
                f"{owner}: {self.favoured} of {self.outcomes} outcomes are favoured; favour some and not all, of "
                "at most 32,767"
            )
        if not 0 < self.favoured * self.other < self.threshold:
            raise UserError(f"{owner}: other={self.other} leaves no larger odds; use {owner}.calibrate")

    def _calibrated(self, guarantee: Guarantee) -> Self:
        """Return the mechanism with these outcomes and the largest odds that ``guarantee`` allows."""
        return self._with(_calibrate(type(self), self._layout, guarantee))

    @property
    @abstractmethod
    def _layout(self) -> tuple[Any, ...]:
        """All parameters but ``other``."""

    def _with(self, other: int) -> Self:
        return type(self)(*self._layout, other)  # type: ignore[call-arg]


@lru_cache(maxsize=4096)
def _calibrate(kind: Any, layout: tuple[Any, ...], guarantee: Guarantee) -> int:
    outcomes, favoured = kind.sizes(*layout)
    units, cap = epsilon_units(guarantee), budget_of(guarantee)
    with precise():
        odds = decimal(Fraction(units, UNITS)).exp() if units < 100 * UNITS else Decimal("1e40")
        exact = _WORDS / (favoured * odds + outcomes - favoured)
        # The largest error of the odds is 4 M^2 / 2^64, and a is at most 2^64 / M.
        other: int = int(exact.to_integral_value(rounding=ROUND_CEILING)) + 4 * outcomes + 1
    if not favoured * other < _WORDS - (outcomes - favoured) * other:
        raise UserError(f"{guarantee!r} is too small for {outcomes} outcomes; give a larger budget")
    if not isinstance(guarantee, GaussianDP | ZeroConcentratedDP):
        return other
    # The release's mu may be below the mu of its epsilon, which leaves room for larger odds.
    unit = 1 + other // 2**24

    @cache
    def fits(fewer: int) -> bool:
        cost: PrivacyLoss = kind(*layout, other - fewer * unit).cost(cap.currency)
        return cost <= cap

    # The result with floats is within some units of the exact number.
    least = _words_at(kind(*layout, other), math.sqrt(cap.units / UNITS * (1 if cap.currency == "gdp" else 2)))
    low, most, step = max(min((other - least) // unit - 2, other // unit - 1), 0), other // unit, 4
    while low and not fits(low):
        low, step = max(low - step, 0), 2 * step
    while low + step < most and fits(low + step):
        low, step = low + step, 2 * step
    fewer = low + largest_integer(lambda more: fits(low + more), min(step, most - low))
    return int(other - unit * fewer)


def _words_at(start: SelectionMechanism, mu: float) -> int:
    """Return about the fewest words for each outcome that is not favoured for mu-GDP, at most those of ``start``."""
    normal, scale = NormalDist(), float(_WORDS)
    by_first, by_second = map(float, start._apart)  # noqa: SLF001
    whole, rest = start.chance, (start.outcomes - start.favoured) * start.other / scale

    def cost(share: float) -> float:
        a, b = by_first * (1.0 - rest * share) / whole, by_second * share
        return normal.inv_cdf(a) - normal.inv_cdf(b) if 0.0 < b < 1.0 and 0.0 < a < 1.0 else math.inf

    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2.0
        low, high = (low, middle) if cost(middle) <= mu else (middle, high)
    return int(high * start.other)


@dataclass(frozen=True)
class SubsetSelection(SelectionMechanism):
    """Release a random subset of d of k categories, which contains the true one with larger odds.

    With d = 1 it is randomized response of k categories. The release has a 1 for each category in the subset, and a 0
    for each other.

    Reference: Wang et al., "Mutual information optimally local private discrete distribution estimation", 2016; Ye,
    Barg, "Optimal schemes for discrete distribution estimation under locally differential privacy", 2018.

    Parameters
    ----------
    categories, size
        Numbers k of categories and d of those in a subset.
    other
        Number a of the 2^64 values of a random word: the subset lacks the true category with probability (k - d) a /
        2^64.

    Examples
    --------
    >>> from murk.privacy import PureDP
    >>> chosen = SubsetSelection.calibrate(PureDP(1.0), categories=17)
    >>> chosen.size, round(chosen.chance, 3)
    (5, 0.531)
    """

    categories: int
    size: int
    other: int
    magnitude: ClassVar[int] = 1
    kind: ClassVar[str] = "subset-selection"

    def __post_init__(self) -> None:
        self._check("categories", "size")

    @property
    def _layout(self) -> tuple[int, int]:
        return self.categories, self.size

    @staticmethod
    def sizes(categories: int, size: int) -> tuple[int, int]:
        """Return the numbers of outcomes and of favoured ones."""
        return categories, size

    @property
    def outcomes(self) -> int:
        """Number k of categories."""
        return self.categories

    @property
    def favoured(self) -> int:
        """Number d of categories in the subset."""
        return self.size

    @property
    def dimension(self) -> int:
        """Number of integers in a release, k."""
        return self.categories

    @property
    def _apart(self) -> tuple[Fraction, Fraction]:
        k, d, threshold = self.categories, self.size, self.threshold
        bottom = (k - 1) * _WORDS
        return Fraction(threshold * (k - d), bottom), Fraction((_WORDS - threshold) * d, bottom)

    @property
    def gain(self) -> float:
        """Probability that the subset contains the true category, minus the one that it contains a given other."""
        return (self.chance * self.categories - self.size) / (self.categories - 1)

    @property
    def base(self) -> float:
        """Probability that the subset contains a given category other than the true one."""
        return (self.size - self.chance) / (self.categories - 1)

    @property
    def variance(self) -> float:
        """Variance of a release's estimate of a category's indicator, averaged over equally frequent categories."""
        inside = self.size / self.categories
        return inside * (1.0 - inside) / (self.gain * self.gain)

    def covariance(self, shares: Floats) -> Floats:
        """Return the covariance of one release's estimate of the indicators, given the categories' shares (k,)."""
        k, d, chance = self.categories, self.size, self.chance
        inside = self.gain * shares + self.base
        # Two categories are both in the subset of one of them, or of a third.
        variance = chance * (d - 1) / (k - 1)
        neither = 0.0
        if k > 2:
            neither = chance * (d - 1) * (d - 2) / ((k - 1) * (k - 2)) + (1.0 - chance) * d * (d - 1) / (
                (k - 1) * (k - 2)
            )
        both = neither + (variance - neither) * (shares[:, None] + shares[None, :])
        np.fill_diagonal(both, inside)
        return np.asarray((both - np.outer(inside, inside)) / self.gain**2)

    def decode(self, payload: npt.ArrayLike) -> Floats:
        """Return unbiased estimates (m, k) of the true categories' indicators from payloads (m, k)."""
        return np.asarray((np.asarray(payload, dtype=np.float64) - self.base) / self.gain)

    def holds(self, payload: Integers) -> bool:
        """Return whether every payload (m, k) is a subset of d categories."""
        rows = np.asarray(payload)
        return bool(((rows == 0) | (rows == 1)).all() and (rows.sum(axis=1) == self.size).all())

    @cached_property
    def _limits(self) -> npt.NDArray[np.uint64]:
        """Largest word that takes the next category if j of n are still to take, (d + 1, k); see `randomize`."""
        limits = np.zeros((self.size + 1, self.categories), dtype=np.uint64)
        for j in range(1, self.size + 1):
            for n in range(1, self.categories):
                limits[j, n] = min(j * _WORDS // n, _WORDS) - 1 if j <= n else _WORDS - 1
        return limits

    @wiped
    def randomize(self, vectors: npt.ArrayLike, noise: NoiseSource, records: npt.ArrayLike) -> Integers:
        """Randomize m categories (m, 1) into subsets, int64 of shape (m, k); categories beyond k count as the last.

        The first random word of a record decides whether the subset contains the category. Each other category, in
        turn, is taken with probability j / n by a word of its own, where n categories are left and j still to take.
        """
        from murk.privacy.noise import Purpose

        rows, indices = _rows(vectors, records)
        released = np.empty((len(rows), self.categories), dtype=np.int64)
        block = max(1, _WORDS_AT_ONCE // (self.categories + 1))
        for start in range(0, len(rows), block):
            part = slice(start, start + block)
            words = track(noise.words(indices[part], self.categories + 1, Purpose.COIN))
            truth = track(np.clip(rows[part], 0, self.categories - 1).astype(np.int64))
            inside = track((words[:, 0] < np.uint64(self.threshold)).astype(np.int64))
            left = track(self.size - inside)
            for category in range(self.categories):
                true = track(truth == category)
                # Categories that are left: all from this one on, except the true one.
                n = track(self.categories - category - (truth >= category))
                taken = track((words[:, category + 1] <= self._limits[left, n]) & (left > 0))
                column = track(np.where(true, inside, taken))
                released[part, category] = column
                left -= track(np.where(true, 0, column))
        return released

    def to_dict(self) -> dict[str, Any]:
        """Return the public and derived parameters as plain data."""
        return {**plain(self, "categories", "size", "chance", "variance", "guarantee"), "other": str(self.other)}

    @classmethod
    def calibrate(cls, guarantee: Guarantee, *, categories: int) -> SubsetSelection:
        """Return the subset selection of k = ``categories`` with the least variance that has ``guarantee``.

        The subset has the smallest size of least variance. Raises `UserError` for a budget that
        64-bit words cannot express.
        """
        k = checked_integer("SubsetSelection", "categories", categories)
        if not 2 <= k < _OUTCOMES_BELOW:
            raise UserError(f"SubsetSelection: categories={k} is not between 2 and 32,767")
        return _best_subset(guarantee, k)


@lru_cache(maxsize=1024)
def _best_subset(guarantee: Guarantee, categories: int) -> SubsetSelection:
    def at(size: int) -> SubsetSelection:
        return SubsetSelection(categories, size, _calibrate(SubsetSelection, (categories, size), guarantee))

    # The variance falls with the size up to its minimum, and then rises: look at doubled sizes, then between them.
    low = high = 1
    while high < categories // 2:
        further = min(2 * high, categories // 2)
        falls = at(further).variance < at(high).variance
        low, high = high if falls else low, further
        if not falls:
            break
    while high - low > 2:
        left = low + (high - low) // 3
        right = high - (high - low) // 3
        if at(left).variance <= at(right).variance:
            high = right
        else:
            low = left
    return min((at(each) for each in range(low, high + 1)), key=lambda each: each.variance)


LEVELS: Final = 31
"""Number of levels to one of which a bounded number is rounded at random, with an unchanged mean."""

# From an epsilon on, the window's number of levels with the least variance; where targets may be missing, also the
# number of outcomes that only a missing target favours. Written by `python -m tools.windows`, which states the
# criterion.
_ALWAYS: Final = ((0.0, 30), (1.0, 27), (1.1, 24), (1.2, 22), (1.3, 16), (1.4, 15), (2.3, 14), (2.5, 13), (2.7, 12),
                  (2.9, 11), (3.0, 10), (3.5, 9), (3.8, 8), (4.1, 7), (4.6, 6), (5.1, 5), (5.7, 4), (6.5, 3),
                  (7.5, 2))  # fmt: skip
_MAYBE: Final = ((0.0, 30, 2), (0.3, 30, 4), (0.5, 30, 6), (1.1, 25, 10), (1.2, 20, 10), (1.3, 15, 6), (1.8, 15, 7),
                  (2.5, 14, 7), (2.8, 13, 7), (3.0, 11, 8), (3.1, 10, 7), (3.4, 9, 6), (3.8, 8, 6), (3.9, 8, 5),
                  (4.2, 7, 5), (4.5, 7, 4), (4.6, 6, 5), (5.0, 6, 4), (5.1, 5, 5), (5.3, 5, 4), (5.5, 5, 3),
                  (5.7, 4, 4), (6.1, 4, 3), (6.4, 3, 3), (7.1, 3, 2), (7.5, 2, 2))  # fmt: skip


@dataclass(frozen=True)
class WindowSelection(SelectionMechanism):
    r"""Release a window of consecutive levels of a bounded number; windows that contain its level have larger odds.

    The number is rounded to one of L = 31 levels at random, so that its mean is unchanged. There are L + s - 1 windows
    of s levels, which may reach beyond the ends; each level is in s windows. A missing number also favours s outcomes:
    ``apart`` that nothing else favours, and s - ``apart`` windows, evenly spread. A release is the number of one
    outcome. Each outcome j has a fixed number v_j (see `weights`), such that :math:`E v_j = y` for every level y and 0
    for a missing number: their mean is unbiased for any distribution.

    Reference: Li et al., "Estimating numerical distributions under local differential privacy", 2020 (square wave).

    Parameters
    ----------
    window, apart
        Number s of levels in a window; number of outcomes that only a missing number favours, or -1 if no number is
        missing.
    other
        Number of the 2^64 values of a random word for each outcome that the true value does not favour.

    Examples
    --------
    >>> from murk.privacy import PureDP
    >>> WindowSelection.calibrate(PureDP(4.0), missing=False).window
    8
    """

    window: int  # s
    apart: int  # outcomes that only a missing number favours; -1 if no number is missing
    other: int
    kind: ClassVar[str] = "window-selection"
    dimension: ClassVar[int] = 1

    def __post_init__(self) -> None:
        self._check("window", "apart")
        if not -1 <= self.apart <= self.window <= LEVELS:
            raise UserError(
                f"WindowSelection: apart={self.apart}, window={self.window} must satisfy -1 <= apart <= window <= "
                f"{LEVELS}"
            )

    @property
    def _layout(self) -> tuple[int, int]:
        return self.window, self.apart

    @staticmethod
    def sizes(window: int, apart: int) -> tuple[int, int]:
        """Return the numbers of outcomes and of favoured ones."""
        return LEVELS + window - 1 + max(apart, 0), window

    @property
    def outcomes(self) -> int:
        """Number of outcomes."""
        return self.sizes(self.window, self.apart)[0]

    @property
    def favoured(self) -> int:
        """Number s of windows that contain a level."""
        return self.window

    @property
    def magnitude(self) -> int:
        """Largest number of an outcome."""
        return self.outcomes - 1

    @property
    def missing(self) -> bool:
        """Whether numbers may be missing."""
        return self.apart >= 0

    @property
    def _apart(self) -> tuple[Fraction, Fraction]:
        # The worst case: two values that favour no common outcome.
        return Fraction(self.threshold, _WORDS), Fraction(self.favoured * self.other, _WORDS)

    @cached_property
    def favours(self) -> Integers:
        """The s outcomes that each level, and then a missing number, favours, (L, s) or (L + 1, s), ascending."""
        windows = LEVELS + self.window - 1
        rows = [np.arange(level, level + self.window) for level in range(LEVELS)]
        if self.missing:
            spread = self.window - self.apart
            # Integers alone, so that all languages agree.
            even = [(2 * index + 1) * windows // (2 * spread) for index in range(spread)]
            rows.append(np.array([*even, *range(windows, windows + self.apart)]))
        return np.array(rows, dtype=np.int64)

    @cached_property
    def _ranks(self) -> Integers:
        """The outcomes that each level does not favour, (L or L + 1, M - s), ascending."""
        every = np.arange(self.outcomes)
        return np.array([np.setdiff1d(every, row) for row in self.favours], dtype=np.int64)

    @cached_property
    def chances(self) -> Floats:
        """Probability of each outcome for each level, and then a missing number, (L or L + 1, M)."""
        less = float(Fraction(self.other, _WORDS))
        out = np.full((len(self.favours), self.outcomes), less)
        np.put_along_axis(out, self.favours, self.chance / self.window, axis=1)
        return out

    @cached_property
    def values(self) -> Floats:
        """The levels, in [-1, 1], (L,)."""
        return np.linspace(-1.0, 1.0, LEVELS)

    @cached_property
    def weights(self) -> Floats:
        """Two numbers for each outcome, (M, 2): their means are y and 0 for a number y, and 0 and 1 for a missing one.

        Of all such numbers they have the least mean square over outcomes, if people's numbers are spread evenly and 2%
        are missing.
        """
        shares = np.full(len(self.chances), 1.0 / LEVELS)
        wanted = np.zeros((len(self.chances), 2))
        wanted[:LEVELS, 0] = self.values
        if self.missing:
            shares[:-1] *= 0.98
            shares[-1], wanted[-1, 1] = 0.02, 1.0
        per = self.chances / (shares @ self.chances)
        return np.asarray(per.T @ np.linalg.lstsq(per @ self.chances.T, wanted, rcond=1e-12)[0])

    @property
    def variance(self) -> float:
        """Variance of a release's estimate of a number in [-1, 1], averaged over this range."""
        at = self.chances[:LEVELS] @ self.weights[:, 0] ** 2 - self.values**2
        return float((at.sum() - (at[0] + at[-1]) / 2.0) / (LEVELS - 1))

    def decode(self, payload: npt.ArrayLike) -> Floats:
        """Return unbiased estimates (m, 1) of the numbers, 0 for a missing one, from payloads (m, 1)."""
        return np.asarray(self.weights[np.asarray(payload)[:, 0], :1])

    def holds(self, payload: Integers) -> bool:
        """Return whether every payload (m, 1) is an outcome."""
        rows = np.asarray(payload)
        return bool((rows >= 0).all() and (rows < self.outcomes).all())

    @wiped
    def randomize(self, vectors: npt.ArrayLike, noise: NoiseSource, records: npt.ArrayLike) -> Integers:
        """Randomize m positions (m, 1), between 0 and 1, or 2 for a missing number, into outcomes, (m, 1)."""
        from murk.privacy.noise import Purpose

        rows, indices = _rows(vectors, records)
        words = track(noise.words(indices, 2, Purpose.COIN))
        index = track(np.clip(rows, 0.0, 1.0) * (LEVELS - 1))
        level = track(np.minimum(np.floor(index), LEVELS - 2).astype(np.int64))
        # 53 bits of a word make a uniform number.
        level += track((track(words[:, 0] >> np.uint64(11)).astype(np.float64) * 2.0**-53) < track(index - level))
        np.copyto(level, LEVELS if self.missing else LEVELS // 2, where=track(rows > 1.0))
        word, threshold, each = words[:, 1], self.threshold, self.threshold // self.favoured
        favoured = track(np.minimum(word // np.uint64(each), np.uint64(self.favoured - 1)).astype(np.int64))
        rest = track(word - np.uint64(threshold))
        # For a favoured outcome, this index has wrapped around and is not used.
        others = self.outcomes - self.favoured - 1
        others_at = track(np.minimum(rest // np.uint64(self.other), np.uint64(others)).astype(np.int64))
        chosen = np.where(
            track(word < np.uint64(threshold)),
            track(self.favours[level, favoured]),
            track(self._ranks[level, others_at]),
        )
        return np.asarray(chosen[:, None], dtype=np.int64)

    def to_dict(self) -> dict[str, Any]:
        """Return the public and derived parameters as plain data."""
        names = "window", "apart", "outcomes", "chance", "variance", "guarantee"
        return {**plain(self, *names), "other": str(self.other)}

    @classmethod
    def calibrate(cls, guarantee: Guarantee, *, missing: bool) -> WindowSelection:
        """Return the selection of least mean variance with ``guarantee``; ``missing`` allows missing numbers."""
        units = epsilon_units(guarantee)
        table = _MAYBE if missing else tuple((start, size, -1) for start, size in _ALWAYS)
        window, apart = next(row[1:] for row in reversed(table) if round(row[0] * UNITS) <= units)
        return cls(window, apart, _calibrate(cls, (window, apart), guarantee))


def _rows(vectors: npt.ArrayLike, records: npt.ArrayLike) -> tuple[Floats, Integers]:
    rows, indices = np.asarray(vectors, dtype=np.float64), np.asarray(records, dtype=np.int64)
    if rows.ndim != 2 or rows.shape[1] != 1 or indices.shape != (len(rows),):
        raise UserError(
            f"selection takes an array of shape (m, 1) and as many record indices, got {rows.shape} and {indices.shape}"
        )
    return copied(rows[:, 0]), indices
