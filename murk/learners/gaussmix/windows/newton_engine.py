"""The engine of released Newton steps: what it admits, and what it learns. River-free."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from murk.errors import MurkError, UserError
from murk.learners.estimates.estimate import Estimate
from murk.learners.gaussmix.solving.newton import MOST, estimate_newton
from murk.learners.gaussmix.windows.engine import WindowEngine
from murk.learners.gaussmix.windows.gram_engine import check_gram
from murk.learners.gaussmix.windows.gram_sums import precision
from murk.learners.gaussmix.windows.newton_settings import NewtonSettings
from murk.learners.gaussmix.windows.newton_sums import NewtonSums
from murk.privacy.gaussmix import GramMechanism, NewtonMechanism
from murk.stream.messages.codec import RejectedError
from murk.stream.messages.releases import NewtonRelease

if TYPE_CHECKING:
    from murk.privacy.gaussmix import Newton


class NewtonEngine(WindowEngine[NewtonSettings, NewtonMechanism, NewtonSums]):
    """Running sums over Newton steps, O(d^2), and the logistic model that they tell. Threads take turns.

    Parameters
    ----------
    settings
        What is public.
    mechanisms
        Level name to mechanism; all of the settings' columns, bounds and first part.

    Raises
    ------
    UserError
        If a mechanism does not fit the settings.
    """

    kind: ClassVar[str] = "newton"
    released: ClassVar[str] = "Newton step"

    def __init__(self, settings: NewtonSettings, mechanisms: Mapping[str, NewtonMechanism]) -> None:
        for level, mechanism in mechanisms.items():
            wanted = (settings.columns, settings.feature_bound, settings.target_bound, settings.first)
            if (mechanism.columns, mechanism.feature_bound, mechanism.target_bound, mechanism.first) != wanted:
                raise UserError(f"level {level!r} makes Newton steps of other columns or bounds than the learner's")
        super().__init__(settings, mechanisms)

    def _nothing(self, settings: NewtonSettings) -> NewtonSums:
        return NewtonSums(settings.columns)

    @property
    def dimension(self) -> int:
        """Integers in a release."""
        return self.settings.dimension

    def admit(self, release: NewtonRelease, ahead: int = 0) -> None:
        """Refuse a Newton step that no honest organisation sends.

        Each matrix is checked as those of `GramEngine` are; no coefficient of an honest model is beyond `MOST`.

        Raises
        ------
        RejectedError
            With reason ``"level"``, ``"dimension"`` or ``"magnitude"``.
        """
        mechanism, integers = self._mechanism(release.level), release.integers
        self._check_payload(integers, release.records, mechanism.largest_window)
        if len(release.model) != self.settings.features:
            raise RejectedError(
                "dimension", f"a model of {len(release.model)} coefficients, it has {self.settings.features}"
            )
        if max(map(abs, release.model)) > MOST:
            raise RejectedError("magnitude", f"a coefficient of the model beyond {MOST:g}")
        if np.max(np.abs(integers)) > mechanism.magnitude:
            raise RejectedError("magnitude", f"an integer beyond {mechanism.magnitude}")
        first, step = mechanism.decode(integers)
        own, others = mechanism.parts(release.records)
        check_gram(first, own, mechanism.start, self.settings.largest)
        # Where w is 1/4 at most.
        check_gram(step, others, mechanism.step, self.settings.largest / 4.0)

    def learn_releases(self, releases: Sequence[NewtonRelease]) -> None:
        """Learn from admitted Newton steps in turn."""
        for release in releases:
            model = np.array(release.model)
            self.learn_newton(release.integers, model=model, records=release.records, level=release.level)

    def learn_window(self, newton: Newton) -> None:
        """Learn from what an accumulator released, at the default level."""
        self.learn_newton(newton.integers, model=newton.model, records=newton.records)

    def learn_newton(
        self, integers: NDArray[np.int64], *, model: NDArray[np.float64], records: int, level: str = "default"
    ) -> None:
        """Learn from the integers of one window, the model of its step and its n records.

        Raises
        ------
        MurkError
            If it was not admitted: it has another size.
        """
        mechanism = self.mechanisms[level]
        self._check_admitted(integers)
        if model.shape != (self.settings.features,):
            raise MurkError(f"a model has {self.settings.features} coefficients, got shape {model.shape}")
        first, step = mechanism.decode(integers)
        self.learn_matrices(first, step, model=model, records=records, mechanism=mechanism)

    def learn_matrices(
        self, first: NDArray[np.float64], step: NDArray[np.float64], *, model: NDArray[np.float64], records: int,
        mechanism: NewtonMechanism, windows: int = 1,
    ) -> None:  # fmt: skip
        """Learn from a window's two matrices in the units of its rows; or the sums of those of windows of one model."""
        own, others = mechanism.parts(records)
        self._add(
            first=first, step=step, model=model, records=(windows * own, windows * others),
            noise=(windows * mechanism.start.scale**2, windows * mechanism.step.scale**2),
            weights=(self._weight(own, mechanism.start), self._weight(others, mechanism.step)),
        )  # fmt: skip

    def _weight(self, records: int, part: GramMechanism) -> float:
        if self.settings.weighting == "uniform":
            return 1.0
        return precision(records=records, noise=part.scale**2, square=part.feature_bound**2)

    def estimate(self) -> Estimate:
        """Coefficients in coded units, with what their intervals need."""
        return estimate_newton(self.settings, self.target_weights, [self.sums])

    @property
    def target_weights(self) -> tuple[float, float]:
        """The targets' weights in the two matrices: public bounds alone decide them, so all levels have the same."""
        mechanism = next(iter(self.mechanisms.values()))
        return mechanism.start.target_weight, mechanism.step.target_weight
