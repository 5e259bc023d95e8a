"""Options of several learners (steps, averaging, weighting, noise); indices of levels. Does not import River."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar

import numpy as np

from murk._internal.arrays import Integers
from murk.errors import UserError
from murk.privacy import Guarantee
from murk.privacy.noise import NoiseSource, SecureNoise, SimulatedNoise

_ERROR_CODE = "MURK-LEARN-001"

Averaging = Literal["polyak", "polynomial-decay"] | None
Weighting = Literal["inverse-variance", "uniform"]


@dataclass(frozen=True, slots=True)
class InverseScalingStep:
    """Step sizes ``eta i^-alpha``, as in the paper; the same as River's ``InverseScaling(lr=eta, power=alpha)``."""

    eta: float = 0.2
    alpha: float = 0.5

    def __post_init__(self) -> None:
        if not (math.isfinite(self.eta) and self.eta > 0):
            raise UserError(f"the step's eta must be positive and finite, got {self.eta!r}")
        if not 0 <= self.alpha <= 1:
            raise UserError(f"the step's alpha must lie in [0, 1], got {self.alpha!r}")


def chosen_noise(seed: int | None, noise: NoiseSource | None) -> NoiseSource:
    """Return noise simulated from a seed, the given source, or else a secure one; raise UserError if both are given."""
    if seed is None:
        return SecureNoise() if noise is None else noise
    if noise is not None:
        raise UserError("seed= asks for simulated noise and noise= for another source: give one of them")
    return SimulatedNoise(seed)


M = TypeVar("M")


def levels_of(mechanisms: Sequence[M]) -> tuple[list[M], Integers]:
    """Return the distinct mechanisms in order of appearance, and each mechanism's index among the distinct ones."""
    # By identity, as comparing the mechanisms of a million rows by value is slow.
    distinct = {id(mechanism): mechanism for mechanism in mechanisms}
    indices = {key: index for index, key in enumerate(distinct)}
    levels = np.array([indices[id(mechanism)] for mechanism in mechanisms], dtype=np.int64)
    return list(distinct.values()), levels


def check_choices(owner: Any, **choices: Sequence[object]) -> None:
    """Raise UserError for the first attribute of ``owner`` that is not one of its choices."""
    for name, allowed in choices.items():
        value = getattr(owner, name)
        if value not in allowed:
            raise UserError(f"{name}={value!r} is not one of {', '.join(map(repr, allowed))}")


MOST_GUARANTEES: Final = 64
"""Largest number of different guarantees that people choose themselves, as a learner keeps sums for each."""


def check_guarantees(guarantee: Guarantee, known: int) -> None:
    """Raise UserError for a person's new guarantee beyond the ``known`` ones if there are too many."""
    if known >= MOST_GUARANTEES:
        raise UserError(
            f"guarantee={guarantee!r}: people have chosen {MOST_GUARANTEES} different ones, and sums are kept for "
            "each. Let them choose from a few levels, as in levels={'strict': ..., 'open': ...}"
        )
