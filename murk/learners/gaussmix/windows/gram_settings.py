"""What a learner of released Gram matrices is given beforehand: public settings, checked once, frozen."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from murk.errors import UserError
from murk.learners.gaussmix.windows.settings import WindowSettings
from murk.stream.log.base import MAX_MESSAGE
from murk.stream.messages.codec import longest_release


@dataclass(frozen=True)
class GramSettings(WindowSettings):
    """Everything public that decides what is made of released Gram matrices."""

    digested: ClassVar[tuple[str, ...]] = (
        "names", "feature_bound", "target_bound", "largest", "kind", "reach", "weighting", "window",
    )  # fmt: skip
    prefix: ClassVar[tuple[str, ...]] = ("gram",)
    release_kind: ClassVar[str] = "gram"
    matrices: ClassVar[int] = 1
    """Matrices of a release."""

    @property
    def dimension(self) -> int:
        """Integers in a release: the upper triangles of its matrices of ``columns``."""
        return self.matrices * self.columns * (self.columns + 1) // 2

    @property
    def slope(self) -> float:
        """The slope with which the target moves over its whole range as a feature does: a scale for what is hidden."""
        return self.target_bound * math.sqrt(self.features) / self.feature_bound

    def check_message(self) -> None:
        """Refuse Gram matrices that no log would take.

        Raises
        ------
        UserError
            Naming the largest number of columns that fits.
        """
        if fits_message(self.columns, self.matrices):
            return
        most = self.columns
        while not fits_message(most, self.matrices):
            most -= 1
        what = "the Gram matrix of" if self.matrices == 1 else f"{self.matrices} Gram matrices of"
        raise UserError(
            f"{self.features:,} coded features: a release of {what} {self.columns:,} columns (they and the target) "
            f"takes {longest_release(self.release_kind, self.dimension):,} bytes, and a message of a log "
            f"{MAX_MESSAGE:,} at most: at most {most - 1:,} coded features would do (the constant is one of them, and "
            "each category but the first). Give the task fewer, or, where people release for themselves, protocol: "
            "examples"
        )


def fits_message(columns: int, matrices: int = 1) -> bool:
    """Whether a message of a log holds the Gram matrices of so many columns, and models of as many coefficients.

    Examples
    --------
    >>> fits_message(400), fits_message(500)
    (True, False)
    """
    kind = "gram" if matrices == 1 else "newton"
    return longest_release(kind, matrices * columns * (columns + 1) // 2) <= MAX_MESSAGE
