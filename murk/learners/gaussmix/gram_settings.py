"""What a learner of released Gram matrices is told beforehand: public settings, checked once, frozen."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, fields

from murk.errors import UserError
from murk.learners.gaussmix.settings import Kind, Weighting, check_public
from murk.stream.codec import longest_release
from murk.stream.log import MAX_MESSAGE


@dataclass(frozen=True)
class GramSettings:
    """Everything public that decides what is made of released Gram matrices.

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
    """

    names: tuple[str, ...]
    feature_bound: float
    target_bound: float = 1.0
    largest: float = math.inf
    kind: Kind = "real"
    reach: float | None = None
    weighting: Weighting = "inverse-variance"
    window: int | None = None

    def __post_init__(self) -> None:
        check_public(self.weighting, self.window, self.reach)

    @property
    def features(self) -> int:
        """Number p of coded features, the constant among them."""
        return len(self.names)

    @property
    def columns(self) -> int:
        """d = p + 1: the target comes last."""
        return self.features + 1

    @property
    def dimension(self) -> int:
        """Integers in a release: the upper triangle of a matrix of ``columns``."""
        return self.columns * (self.columns + 1) // 2

    @property
    def slope(self) -> float:
        """The slope with which the target moves over its whole range as a feature does: a scale for what is hidden."""
        return self.target_bound * math.sqrt(self.features) / self.feature_bound

    @property
    def digest(self) -> str:
        """Fingerprint of all settings: states go on, and sums merge, only between equal ones."""
        parts = ["gram", *(repr(getattr(self, each.name)) for each in fields(self))]
        return hashlib.sha256("|".join(parts).encode()).hexdigest()[:16]

    def check_message(self) -> None:
        """Refuse Gram matrices that no log would take.

        Raises
        ------
        UserError
            Naming the largest number of columns that fits.
        """
        if fits_message(self.columns):
            return
        most = self.columns
        while not fits_message(most):
            most -= 1
        raise UserError(
            f"the Gram matrix of {self.columns} columns (features, constant and target) takes "
            f"{longest_release('gram', self.dimension):,} bytes, and a message of a log {MAX_MESSAGE:,} at most: give "
            f"the task at most {most - 2} coded features"
        )


def fits_message(columns: int) -> bool:
    """Whether a message of a log holds the Gram matrix of so many columns.

    Examples
    --------
    >>> fits_message(400), fits_message(500)
    (True, False)
    """
    return longest_release("gram", columns * (columns + 1) // 2) <= MAX_MESSAGE
