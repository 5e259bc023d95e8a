"""What a learner of Newton steps is given beforehand: public settings, checked once, frozen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from murk.learners.gaussmix.windows.gram_settings import GramSettings


@dataclass(frozen=True)
class NewtonSettings(GramSettings):
    """Everything public that decides what is made of Newton steps.

    Parameters
    ----------
    first
        Records of a window's first part.
    """

    first: int = 1

    digested: ClassVar[tuple[str, ...]] = (*GramSettings.digested, "first")
    prefix: ClassVar[tuple[str, ...]] = ("newton",)
    release_kind: ClassVar[str] = "newton"
    matrices: ClassVar[int] = 2
