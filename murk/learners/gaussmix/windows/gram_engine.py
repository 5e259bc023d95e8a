"""The engine of released Gram matrices: what it admits, and what it learns. River-free."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from murk.errors import UserError
from murk.learners.estimates.estimate import Estimate
from murk.learners.gaussmix.solving.estimates import estimate_grams
from murk.learners.gaussmix.windows.engine import WindowEngine
from murk.learners.gaussmix.windows.gram_settings import GramSettings
from murk.learners.gaussmix.windows.gram_sums import GramSums, precision
from murk.privacy.gaussmix import GramMechanism
from murk.stream.messages.codec import RejectedError
from murk.stream.messages.releases import GramRelease

if TYPE_CHECKING:
    from murk.privacy.gaussmix import Gram

# Noise beyond 12 standard deviations: below 4e-33 for each entry, and e^-72 for the least eigenvalue.
_FAR = 12.0


class GramEngine(WindowEngine[GramSettings, GramMechanism, GramSums]):
    """Running sums over Gram matrices, O(d^2), and the regression that they tell. Threads take turns.

    Parameters
    ----------
    settings
        What is public.
    mechanisms
        Level name to mechanism; all of the settings' columns and bounds.

    Raises
    ------
    UserError
        If a mechanism does not fit the settings.
    """

    kind: ClassVar[str] = "gram"
    released: ClassVar[str] = "Gram matrix"

    def __init__(self, settings: GramSettings, mechanisms: Mapping[str, GramMechanism]) -> None:
        for level, mechanism in mechanisms.items():
            wanted = (settings.columns, settings.feature_bound, settings.target_bound)
            if (mechanism.columns, mechanism.feature_bound, mechanism.target_bound) != wanted:
                raise UserError(f"level {level!r} makes Gram matrices of other columns or bounds than the learner's")
        super().__init__(settings, mechanisms)

    def _nothing(self, settings: GramSettings) -> GramSums:
        return GramSums(settings.columns)

    @property
    def dimension(self) -> int:
        """Integers in a release."""
        return self.settings.dimension

    def admit(self, release: GramRelease, ahead: int = 0) -> None:
        """Refuse a Gram matrix that no honest organisation sends.

        Whatever the records are, no entry exceeds n times the product of its columns' bounds, the trace of X'X is at
        most n C_X^2, and the matrix has no negative eigenvalue; beyond that is noise, of which 12 standard deviations
        are allowed for (of the least eigenvalue, beside the noise's own radius).

        Raises
        ------
        RejectedError
            With reason ``"level"``, ``"dimension"`` or ``"magnitude"``.
        """
        mechanism, integers = self._mechanism(release.level), release.integers
        self._check_payload(integers, release.records, mechanism.largest_window)
        if np.max(np.abs(integers)) > mechanism.magnitude:
            raise RejectedError("magnitude", f"an integer beyond {mechanism.magnitude}")
        check_gram(mechanism.decode(integers), release.records, mechanism, self.settings.largest)

    def learn_releases(self, releases: Sequence[GramRelease]) -> None:
        """Learn from admitted Gram matrices in turn."""
        for release in releases:
            self.learn_gram(release.integers, records=release.records, level=release.level)

    def learn_window(self, gram: Gram) -> None:
        """Learn from what an accumulator released, at the default level."""
        self.learn_gram(gram.integers, records=gram.records)

    def learn_gram(self, integers: NDArray[np.int64], *, records: int, level: str = "default") -> None:
        """Learn from the integers of one Gram matrix and its n records.

        Raises
        ------
        MurkError
            If it was not admitted: it has another size.
        """
        settings, mechanism = self.settings, self.mechanisms[level]
        self._check_admitted(integers)
        noise, weight = mechanism.scale**2, 1.0
        if settings.weighting == "inverse-variance":
            weight = precision(records=records, noise=noise, square=settings.feature_bound**2)
        self._add(moment=mechanism.decode(integers), records=records, noise=noise, weight=weight)

    def estimate(self) -> Estimate:
        """Coefficients in coded units, with what their intervals need."""
        return estimate_grams(self.settings, self.target_weight, [self.sums], self.mechanisms)

    @property
    def target_weight(self) -> float:
        """The target's weight in a release: public bounds alone decide it, so all levels have the same."""
        return next(iter(self.mechanisms.values())).target_weight


def check_gram(moment: NDArray[np.float64], records: int, mechanism: GramMechanism, largest: float) -> None:
    """Refuse a matrix (d, d) that no so many records make, with the mechanism's noise.

    Parameters
    ----------
    largest
        Largest square of a single feature.

    Raises
    ------
    RejectedError
        With reason ``"magnitude"``.
    """
    d = mechanism.columns
    p = d - 1
    # In coordinates in which the noise is isotropic.
    weights = np.ones(d)
    weights[-1] = mechanism.target_weight
    even, noise = moment * np.outer(weights, weights), mechanism.scale
    bounds = np.full(d, math.sqrt(min(largest, mechanism.feature_bound**2)))
    bounds[-1] = mechanism.target_bound * mechanism.target_weight
    # The grid and the lattice round by less than a thousandth of what stands beside them.
    if np.any(np.abs(even) > 1.001 * (records * np.outer(bounds, bounds) + _FAR * noise)):
        raise RejectedError("magnitude", "an entry larger than its records and noise can make it")
    trace, room = float(np.trace(even[:p, :p])), records * mechanism.feature_bound**2
    if trace > 1.001 * (room + _FAR * math.sqrt(p) * noise):
        raise RejectedError("magnitude", "rows longer than their records and noise can make them")
    if float(np.linalg.eigvalsh(even)[0]) < -1.001 * noise * (2.0 * math.sqrt(d) + _FAR):
        raise RejectedError("magnitude", "a direction of less than nothing, beyond its noise")
