"""Randomized response: release the true category, or another one in its place."""

from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
import numpy.typing as npt

from murk._internal.arrays import Floats, Integers
from murk._internal.wiping import copied, track, wiped
from murk.errors import UserError
from murk.privacy.guarantees import GaussianDP, Guarantee, ZeroConcentratedDP
from murk.privacy.mechanisms.base import checked_integer, plain
from murk.privacy.mechanisms.costs import (
    UNITS,
    Currency,
    OddsMechanism,
    PrivacyLoss,
    budget_of,
    epsilon_units,
)
from murk.privacy.rounding import decimal, largest_integer, normal_upper, precise

if TYPE_CHECKING:
    from murk.privacy.noise import NoiseSource

_ERROR_CODE = "MURK-PRIVACY-001"

_WORDS = 2**64
_CLASSES_BELOW = 2**31


@dataclass(frozen=True, slots=True)
class RandomizedResponse(OddsMechanism):
    r"""Keep a category with probability e^epsilon / (e^epsilon + k - 1), else draw one of the other k - 1.

    One random 64-bit word decides. Each other category is selected by the same integer number a of the word's 2^64
    values, and the true one by the rest, ``threshold = 2^64 - (k - 1) a``, so the distribution is exact:

    .. math:: \frac{P(\text{keep})}{P(\text{a given other})} = \frac{2^{64} - (k - 1) a}{a} \le e^\epsilon

    Reference: Warner 1965; Kairouz, Oh, Viswanath 2016 (k categories).

    Parameters
    ----------
    classes, threshold
        Number k of categories, at least 2 and below 2^31; number of values of the word that keep the category.

    Examples
    --------
    >>> from murk.privacy import PureDP, RandomizedResponse
    >>> response = RandomizedResponse.calibrate(PureDP(1.0), classes=2)
    >>> round(response.keep, 4)
    0.7311
    >>> [round(weight, 4) for weight in response.weights]  # w = 1/(1 - e^-epsilon) and 1 - w
    [1.582, -0.582]
    """

    classes: int
    threshold: int
    kind: ClassVar[str] = "randomized-response"

    def __post_init__(self) -> None:
        for name in ("classes", "threshold"):
            object.__setattr__(self, name, checked_integer("RandomizedResponse", name, getattr(self, name)))
        if not 2 <= self.classes < _CLASSES_BELOW:
            raise UserError(f"RandomizedResponse: classes={self.classes} is not between 2 and 2^31")
        rest = _WORDS - self.threshold
        if rest % (self.classes - 1) or not 0 < self.other < self.threshold:
            raise UserError(
                f"RandomizedResponse: threshold={self.threshold} is not 2^64 - {self.classes - 1} a with an "
                "integer a > 0 below it; use RandomizedResponse.calibrate"
            )

    @property
    def other(self) -> int:
        """Number a of the 2^64 values of a random word that select each other category."""
        return (_WORDS - self.threshold) // (self.classes - 1)

    @property
    def keep(self) -> float:
        """Probability of keeping the category."""
        return float(Fraction(self.threshold, _WORDS))

    @property
    def odds(self) -> tuple[int, int]:
        """Numbers of values of a random word that keep the category, and that select a given other one."""
        return self.threshold, self.other

    @property
    def _mu(self) -> Decimal | None:
        """Upper bound on the mu of one release, which for more than two categories is below that of its epsilon.

        The trade-off curve of two categories is linear between (q, 1 - p) and (1 - p, q), with p and q the
        probabilities of keeping a category and of a given other one; so mu = Phi^-1(1 - q) + Phi^-1(p).
        """
        if self.classes == 2:
            return None
        other = Fraction(self.other, _WORDS)
        with precise():
            return normal_upper(other) + normal_upper((self.classes - 1) * other)

    @property
    def weights(self) -> tuple[float, float]:
        """Weights (w, v) such that w g(z) + v sum_{j != z} g(j) is an unbiased estimate of g of the true category.

        With p the probability of keeping and q that of a given other: w = (1 - q)/(p - q), v = -q/(p - q); for two
        categories w = 1/(1 - e^-epsilon) and v = 1 - w.
        """
        gap = self.threshold - self.other
        return float(Fraction(_WORDS - self.other, gap)), float(Fraction(-self.other, gap))

    @wiped
    def randomize(self, values: npt.ArrayLike, noise: "NoiseSource", records: npt.ArrayLike) -> Integers:
        """Randomize categories (m,), integers in [0, k), into released categories, int64 of shape (m,).

        ``records`` (m,) are the records' indices, for simulated noise. Raises `UserError` if the shapes do not fit or a
        category is outside [0, k), which the message does not quote.
        """
        from murk.privacy.noise import Purpose

        truth = np.asarray(values)
        indices = np.asarray(records, dtype=np.int64)
        if truth.ndim != 1 or truth.dtype.kind not in "iub" or indices.shape != truth.shape:
            raise UserError(
                f"randomized response takes integers of shape (m,) and as many record indices, got "
                f"{truth.dtype} of shape {truth.shape} and indices of shape {indices.shape}"
            )
        truth = copied(truth, np.int64)
        if truth.size and (truth.min() < 0 or truth.max() >= self.classes):
            raise UserError(f"a category is outside 0..{self.classes - 1}; code categories by a public rule first")
        # Every value that shows whether the category was kept is wiped.
        words = track(noise.words(indices, 1, Purpose.COIN))[:, 0]
        kept = track(words < np.uint64(self.threshold))
        # Index among the other categories; if the category is kept, the index has wrapped around and is not used.
        chosen = track(words - np.uint64(self.threshold))
        chosen //= np.uint64(self.other)
        released: Integers = chosen.astype(np.int64)
        released += track(released >= truth)
        np.copyto(released, truth, where=kept)
        return released

    def unbiased(self, released: npt.ArrayLike) -> Floats:
        """Return unbiased estimates (m, k) of the true categories' indicators from released categories (m,)."""
        own, others = self.weights
        indicators = np.arange(self.classes)[None, :] == np.asarray(released)[:, None]
        return np.where(indicators, own, others).astype(np.float64)

    def to_dict(self) -> dict[str, Any]:
        """Return the public and derived parameters as plain data."""
        return plain(self, "classes", "threshold", "keep", "guarantee")

    @classmethod
    def calibrate(cls, guarantee: Guarantee, *, classes: int) -> "RandomizedResponse":
        """Return the randomized response of k = ``classes`` categories with the largest odds that have ``guarantee``.

        For two categories, `ZeroConcentratedDP` becomes epsilon = sqrt(2 rho), `GaussianDP` log(Phi(mu/2) /
        Phi(-mu/2)), at most mu. For more categories, the odds are the largest whose release is mu-GDP (rho counts as
        mu^2 / 2). 64-bit words express an epsilon of at most 44.36 for two categories. Raises `UserError` for a budget
        below 1e-12, or one so small that 64-bit words cannot express it.
        """
        size = checked_integer("RandomizedResponse", "classes", classes)
        if not 2 <= size < _CLASSES_BELOW:
            raise UserError(f"RandomizedResponse: classes={classes} is not between 2 and 2^31")
        units = epsilon_units(guarantee)
        with precise():
            odds = decimal(Fraction(units, UNITS)).exp() if units < 100 * UNITS else Decimal("1e40")
            exact = _WORDS / (odds + size - 1) + Decimal("1e-30")
            other = int(exact.to_integral_value(rounding=ROUND_CEILING))
        if size > 2 and isinstance(guarantee, GaussianDP | ZeroConcentratedDP):
            unit = 1 + other // 2**24
            other -= unit * largest_integer(partial(_fits, size, other, unit, budget_of(guarantee)), other // unit)
        threshold = _WORDS - (size - 1) * other
        if threshold <= other:
            raise UserError(f"RandomizedResponse: {guarantee!r} is too small for {size} classes; give a larger budget")
        return cls(size, threshold)


def _fits(classes: int, other: int, unit: int, cap: PrivacyLoss, fewer: int) -> bool:
    """Return whether a cap allows a release if ``other - fewer unit`` word values select each other category."""
    threshold = _WORDS - (classes - 1) * (other - fewer * unit)
    return RandomizedResponse(classes, threshold).cost(cast(Currency, cap.currency)) <= cap
