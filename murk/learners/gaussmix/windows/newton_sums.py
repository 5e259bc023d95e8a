"""The running sums of a learner of Newton steps: O(d^2) numbers, merged by addition."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from murk.learners.gaussmix.windows.gram_sums import GramSums
from murk.learners.gaussmix.windows.sums import Matrix, WindowSums

Vector = NDArray[np.float64]


@dataclass
class NewtonSums(WindowSums):
    """What is kept of the windows learned so far: of their first parts what `GramSums` keeps, and of their steps.

    With ``B`` the noisy matrix of a window's step, ``(L, b; b', r)``, s the model it was taken at, n the records in it,
    v the variance of the noise on a diagonal entry of its L and w its weight:

    Attributes
    ----------
    noise
        ``sum w^2 v`` of the first parts.
    step
        ``sum w S B S'``, ``(d + 1, d + 1)``, S the identity over a last row ``(s', 0)``: L, b and r, and ``L s``,
        ``s'b`` and ``s'L s``, from which steps of different models are one regression.
    step_noise
        ``sum w^2 v (s, 1) (s, 1)'``, ``(d, d)``.
    low, high
        The least and the largest coefficients of the models, ``(p,)``.
    stepped, step_sampled
        ``sum w n``, ``sum w^2 n``.
    """

    noise: float = 0.0
    stepped: float = 0.0
    step_sampled: float = 0.0
    step: Matrix = field(init=False)
    step_noise: Matrix = field(init=False)
    low: Vector = field(init=False)
    high: Vector = field(init=False)

    scalars: ClassVar[tuple[str, ...]] = ("people", "noise", "sampled", "stepped", "step_sampled")

    def __post_init__(self) -> None:
        super().__post_init__()
        d = self.columns
        self.step, self.step_noise = np.zeros((d + 1, d + 1)), np.zeros((d, d))
        self.low, self.high = np.zeros(d - 1), np.zeros(d - 1)

    def arrays(self) -> dict[str, Matrix]:
        """The sums that are arrays, and the ends of the models."""
        more = {"step": self.step, "step_noise": self.step_noise, "low": self.low, "high": self.high}
        return super().arrays() | more

    def merged(self, *others: Self) -> Self:
        """The sums of all the windows of these and ``others``, and the ends of all their models."""
        total, known = super().merged(*others), [each for each in (self, *others) if each.stepped]
        for name, least in (("low", np.min), ("high", np.max)):
            ends = [getattr(each, name) for each in known]
            getattr(total, name)[...] = least(ends, axis=0) if ends else 0.0
        return total

    def add(
        self, first: Matrix, step: Matrix, *, model: Vector, records: tuple[int, int], noise: tuple[float, float],
        weights: tuple[float, float],
    ) -> None:  # fmt: skip
        """Add one window: its ``A`` and ``B``, s, and of both parts n, v and w."""
        self._counted(first, records[0], weights[0])
        self.noise += weights[0] ** 2 * noise[0]
        n, v, w = records[1], noise[1], weights[1]
        self.records += n
        if not n:
            return
        d = self.columns
        put, at = np.vstack([np.eye(d), np.append(model, 0.0)]), np.append(model, 1.0)
        self.low[...] = np.minimum(self.low, model) if self.stepped else model
        self.high[...] = np.maximum(self.high, model) if self.stepped else model
        self.step += w * (put @ step @ put.T)
        self.step_noise += w * w * v * np.outer(at, at)
        self.stepped += w * n
        self.step_sampled += w * w * n

    @property
    def first(self) -> GramSums:
        """The sums of the first parts alone."""
        found = GramSums(self.columns)
        found.moment, found.people, found.sampled, found.noise = self.moment, self.people, self.sampled, self.noise
        found.releases, found.records = self.releases, self.records
        return found
