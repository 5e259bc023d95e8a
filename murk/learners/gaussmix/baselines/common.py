"""What the baselines have in common: public bounds, clipped records, and draws that never repeat."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from itertools import count
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from murk.errors import UserError
from murk.privacy import ApproxDP
from murk.privacy.mechanisms.base import WIDTH
from murk.privacy.noise import NoiseSource, SecureNoise

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Baseline(ABC):
    """A private regression of an organisation's records.

    Parameters
    ----------
    budget
        (epsilon, delta) of the whole fit, under zero-out neighbours: a record against the zero record.
    feature_bound, target_bound
        Public C_X and C_Y: longer records are scaled down to them.
    noise
        Where the draws come from. Their distribution is that of the lattice (exact); what is done with them afterwards
        is float arithmetic, so the statement is about real-valued noise, as the papers' are.
    """

    budget: ApproxDP
    feature_bound: float
    target_bound: float = 1.0
    noise: NoiseSource = field(default_factory=SecureNoise)

    statement: ClassVar[str] = ""

    def __post_init__(self) -> None:
        if not isinstance(self.budget, ApproxDP) or not (0 < self.budget.epsilon < math.inf and self.budget.delta > 0):
            raise UserError(f"budget={self.budget!r}: a baseline needs ApproxDP with epsilon and delta above 0")
        for name in ("feature_bound", "target_bound"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise UserError(f"{name}={value!r} is not a public bound; give a positive finite number")

    @property
    def epsilon(self) -> float:
        """Epsilon of the budget."""
        return float(self.budget.epsilon)

    @property
    def delta(self) -> float:
        """Delta of the budget."""
        return float(self.budget.delta)

    @property
    def square(self) -> float:
        """``C^2 = C_X^2 + C_Y^2``."""
        return self.feature_bound**2 + self.target_bound**2

    def fit(self, X: ArrayLike, y: ArrayLike) -> Vector:
        """Coefficients ``(p,)`` of the target ``y`` ``(n,)`` on the features ``X`` ``(n, p)``.

        A constant is one of the features, if there is to be one.

        Raises
        ------
        UserError
            If the shapes do not fit, or a number is not finite.
        """
        features, targets = self.bounded(X, y)
        return self.release(features, targets, Draws(self.noise))

    @abstractmethod
    def release(self, X: Matrix, y: Vector, draws: Draws) -> Vector:
        """The mechanism on bounded records."""

    def bounded(self, X: ArrayLike, y: ArrayLike) -> tuple[Matrix, Vector]:
        """The records within the public bounds: long rows scaled down, far targets moved in."""
        features, targets = np.array(X, dtype=np.float64), np.array(y, dtype=np.float64)
        if features.ndim != 2 or targets.shape != features.shape[:1]:
            raise UserError(f"X must be (n, p) and y (n,), got {features.shape} and {targets.shape}")
        if not (np.all(np.isfinite(features)) and np.all(np.isfinite(targets))):
            raise UserError("a feature or a target is not a finite number; code missing values by a public rule first")
        lengths = np.sqrt(np.einsum("ij,ij->i", features, features))
        features *= (self.feature_bound / np.maximum(lengths, self.feature_bound))[:, None]
        return features, np.clip(targets, -self.target_bound, self.target_bound)


class Draws:
    """Standard normal and Laplace numbers, each block under a record index of its own."""

    def __init__(self, noise: NoiseSource) -> None:
        self._noise = noise
        self._record = count()

    def normal(self, *shape: int) -> Matrix:
        """Independent N(0, 1)."""
        size = math.prod(shape)
        integers = self._noise.gaussian(np.array([next(self._record)]), size)
        return np.asarray(integers, dtype=np.float64).reshape(shape) / WIDTH

    def laplace(self) -> float:
        """One Laplace number of scale 1."""
        return float(self._noise.laplace(np.array([next(self._record)]), 1)[0, 0]) / WIDTH

    def symmetric(self, size: int) -> Matrix:
        """A symmetric matrix whose upper triangle is independent N(0, 1)."""
        upper = np.triu(self.normal(size, size))
        return upper + np.triu(upper, 1).T

    def rows(self, second_moment: Matrix, rows: int) -> Matrix:
        """A sketch of records with that second moment: ``S Z`` has rows N(0, Z'Z), whatever Z is beside."""
        eigenvalues, vectors = np.linalg.eigh(second_moment)
        root = vectors * np.sqrt(np.maximum(eigenvalues, 0.0))
        return np.asarray(self.normal(rows, len(second_moment)) @ root.T, dtype=np.float64)
