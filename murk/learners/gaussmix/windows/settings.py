"""What learners of sketches and of Gram matrices are given beforehand: public settings, checked once, frozen."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from murk.errors import UserError
from murk.learners.gaussmix.solving.surrogate import Surrogate, quadratic

Weighting = Literal["inverse-variance", "uniform"]
Kind = Literal["real", "binary"]


@dataclass(frozen=True)
class WindowSettings:
    """Everything public that decides what is made of released windows.

    Parameters
    ----------
    names
        Coded features in their fixed order, the constant last.
    feature_bound, target_bound
        C_X and C_Y.
    largest
        Largest square of a single feature (and the constant); infinite where only their length is bounded.
    kind
        ``"real"``, or ``"binary"`` with labels -1 and +1 (0: missing).
    reach
        Q of the quadratic surrogate; None for normal scores (`surrogate`).
    weighting
        Of windows: ``"inverse-variance"`` by public figures, or ``"uniform"`` (each person alike).
    window
        Most records of a window, where the task says so.
    constant
        Whether the last of the names is the constant; False: there is none.
    surrogate
        Which quadratic on [-Q, Q].

    Raises
    ------
    UserError
        Naming the value.
    """

    names: tuple[str, ...]
    feature_bound: float
    target_bound: float = 1.0
    largest: float = math.inf
    kind: Kind = "real"
    reach: float | None = None
    weighting: Weighting = "inverse-variance"
    window: int | None = None
    constant: bool = True
    surrogate: Surrogate = "minimax"

    digested: ClassVar[tuple[str, ...]]
    """Names of the settings in the order in which `digest` has them, which must never change."""
    prefix: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        if self.weighting not in ("inverse-variance", "uniform"):
            raise UserError(f'weighting={self.weighting!r}; known are "inverse-variance" and "uniform"')
        if self.window is not None and self.window < 1:
            raise UserError(f"window={self.window!r}: a sketch has at least one record")
        if self.reach is not None:
            quadratic(self.reach, self.surrogate)

    @property
    def features(self) -> int:
        """Number p of coded features, the constant among them."""
        return len(self.names)

    @property
    def columns(self) -> int:
        """d = p + 1: the target comes last."""
        return self.features + 1

    @property
    def digest(self) -> str:
        """Fingerprint of all settings: states go on, and sums merge, only between equal ones."""
        parts = [*self.prefix, *(repr(getattr(self, name)) for name in self.digested)]
        parts += [] if self.constant else ["no constant"]
        parts += [] if self.surrogate == "minimax" else [self.surrogate]
        return hashlib.sha256("|".join(parts).encode()).hexdigest()[:16]
