"""The fold of released Gram matrices as an object: admit, learn, tell and take its state. River-free."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from murk._turns import Turns, in_turn
from murk.errors import MurkError, UserError
from murk.learners.gaussmix.estimates import estimate_grams
from murk.learners.gaussmix.gram_settings import GramSettings
from murk.learners.gaussmix.gram_sums import SCALARS, GramSums, precision
from murk.learners.inference import Estimate
from murk.learners.state import pack, unpack
from murk.privacy.gaussmix import LARGEST_WINDOW, GramMechanism
from murk.stream.codec import Rejected
from murk.stream.releases import GramRelease

if TYPE_CHECKING:
    from murk.privacy.gaussmix import Gram

# Noise beyond 12 standard deviations: below 4e-33 for each entry, and e^-72 for the least eigenvalue.
_FAR = 12.0
_COUNTS = ("records", "n_releases")


class GramEngine:
    """Running sums over Gram matrices, O(d^2), and the regression that they tell. Threads take turns.

    Parameters
    ----------
    settings
        What is public.
    mechanisms
        The menu: level name to mechanism; all of the settings' columns and bounds.

    Raises
    ------
    UserError
        If a mechanism does not fit the settings.
    """

    kind = "gram"

    def __init__(self, settings: GramSettings, mechanisms: Mapping[str, GramMechanism]) -> None:
        for level, mechanism in mechanisms.items():
            wanted = (settings.columns, settings.feature_bound, settings.target_bound)
            if (mechanism.columns, mechanism.feature_bound, mechanism.target_bound) != wanted:
                raise UserError(f"level {level!r} makes Gram matrices of other columns or bounds than the learner's")
        self._turns = Turns()
        # Never written to, only replaced: whoever reads it reads one moment, and an interrupt finds the old or the new.
        self.sums = GramSums(settings.columns)
        self.settings = settings
        self.mechanisms = dict(mechanisms)

    @property
    def n_releases(self) -> int:
        """Windows learned."""
        return self.sums.releases

    @property
    def dimension(self) -> int:
        """Integers in a release."""
        return self.settings.dimension

    @property
    def stride(self) -> int:
        """Nobody waits for an iterate."""
        return 2**31

    def published(self) -> None:
        """No iterate is published: records are summed up without one."""

    def admit(self, release: GramRelease, ahead: int = 0) -> None:
        """Refuse a Gram matrix that no honest organisation sends.

        Whatever the records are, no entry exceeds n times the product of its columns' bounds, the trace of X'X is at
        most n C_X^2, and the matrix has no negative eigenvalue; beyond that is noise, of which 12 standard deviations
        are allowed for (of the least eigenvalue, beside the noise's own radius).

        Raises
        ------
        Rejected
            With reason ``"level"``, ``"dimension"`` or ``"magnitude"``.
        """
        settings = self.settings
        mechanism = self.mechanisms.get(release.level)
        if mechanism is None:
            raise Rejected("level", "a level that is not on the menu")
        integers = release.integers
        if integers.size != self.dimension:
            raise Rejected("dimension", f"{integers.size} integers, a Gram matrix has {self.dimension}")
        most = min(mechanism.largest_window, LARGEST_WINDOW if settings.window is None else settings.window)
        if release.records > most:
            raise Rejected("magnitude", f"{release.records} records, a window holds {most}")
        if np.max(np.abs(integers)) > mechanism.magnitude:
            raise Rejected("magnitude", f"an integer beyond {mechanism.magnitude}")
        self._check_size(mechanism.decode(integers), release.records, mechanism)

    def _check_size(self, moment: NDArray[np.float64], records: int, mechanism: GramMechanism) -> None:
        d, p = self.settings.columns, self.settings.features
        # In coordinates in which the noise is isotropic.
        weights = np.ones(d)
        weights[-1] = mechanism.target_weight
        even, noise = moment * np.outer(weights, weights), mechanism.scale
        bounds = np.full(d, math.sqrt(min(self.settings.largest, self.settings.feature_bound**2)))
        bounds[-1] = self.settings.target_bound * mechanism.target_weight
        # The grid and the lattice round by less than a thousandth of what stands beside them.
        if np.any(np.abs(even) > 1.001 * (records * np.outer(bounds, bounds) + _FAR * noise)):
            raise Rejected("magnitude", "an entry larger than its records and noise can make it")
        trace, room = float(np.trace(even[:p, :p])), records * self.settings.feature_bound**2
        if trace > 1.001 * (room + _FAR * math.sqrt(p) * noise):
            raise Rejected("magnitude", "rows longer than their records and noise can make them")
        if float(np.linalg.eigvalsh(even)[0]) < -1.001 * noise * (2.0 * math.sqrt(d) + _FAR):
            raise Rejected("magnitude", "a direction of less than nothing, beyond its noise")

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
        if np.size(integers) != self.dimension:
            raise MurkError(f"a Gram matrix holds {np.size(integers)} integers, not {self.dimension}")
        noise, weight = mechanism.scale**2, 1.0
        if settings.weighting == "inverse-variance":
            weight = precision(records=records, noise=noise, square=settings.feature_bound**2)
        self._add(mechanism.decode(integers), records, noise, weight)

    @in_turn
    def _add(self, moment: NDArray[np.float64], records: int, noise: float, weight: float) -> None:
        sums = self.sums.merged()
        sums.add(moment, records=records, noise=noise, weight=weight)
        self.sums = sums

    @property
    def coefficients(self) -> int:
        """Coefficients of the estimate."""
        return len(self.settings.names)

    def estimate(self) -> Estimate:
        """Coefficients in coded units, with what their intervals need."""
        return estimate_grams(self.settings, self.target_weight, [self.sums])

    @property
    def target_weight(self) -> float:
        """The target's weight in a release: public bounds alone decide it, so all levels have the same."""
        return next(iter(self.mechanisms.values())).target_weight

    def figures(self) -> dict[str, float]:
        """Records in all the windows learned."""
        return {"records": float(self.sums.records)}

    def state_dict(self) -> dict[str, Any]:
        """The whole state as plain data, of released matrices alone: loaded elsewhere, it goes on bit for bit."""
        sums = self.sums
        return {
            "schema": 1,
            "settings": self.settings.digest,
            "columns": sums.columns,
            "n_releases": sums.releases,
            "records": sums.records,
            "moment": pack(sums.moment.ravel()),
            "sums": pack(np.array([getattr(sums, name) for name in SCALARS])),
        }

    @in_turn
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a state that :meth:`state_dict` gave.

        Raises
        ------
        MurkError
            If the state is malformed or of other settings.
        """
        d = self.settings.columns
        try:
            if state["schema"] != 1 or state["columns"] != d:
                raise MurkError(
                    f"a state of schema {state['schema']!r} and {state['columns']!r} columns does not fit a learner "
                    f"of schema 1 and {d}"
                )
            if state["settings"] != self.settings.digest:
                raise MurkError("the state is of a learner with other settings: make one with the same")
            counts = [state[name] for name in _COUNTS]
            if any(isinstance(count, bool) or not isinstance(count, int) or count < 0 for count in counts):
                raise MurkError("the state's counts are no whole numbers")
            moment = unpack(state["moment"], d * d).reshape(d, d)
            scalars = unpack(state["sums"], len(SCALARS))
        except (KeyError, TypeError, ValueError) as error:
            raise MurkError(f"the state is malformed: {type(error).__name__} at {error}") from error
        if np.any(scalars < 0.0):
            raise MurkError("the state holds a sum that is negative")
        found = GramSums(d)
        found.moment = moment
        for name, value in zip(SCALARS, scalars, strict=True):
            setattr(found, name, float(value))
        found.records, found.releases = counts
        self.sums = found
