"""How far one forged release of moments moves an estimate."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from murk.learners.estimates.forgers import Influence, longest
from murk.learners.moments import kernels
from murk.learners.moments.mechanism import Level
from murk.learners.moments.sums import MomentSums, Private
from murk.privacy.mechanisms import CompositeMechanism

if TYPE_CHECKING:
    from murk.learners.moments.statistics import Statistics
    from murk.privacy.mechanisms.base import Randomizer


def influence_of(
    sums: MomentSums, layout: Statistics, mechanisms: Mapping[str, Randomizer], *, by_rows: bool = False
) -> Influence | None:
    """What one forged release of moments could have done; None before there is any.

    Parameters
    ----------
    sums, layout
        What was released.
    mechanisms
        Level name to mechanism.
    by_rows
        Whether second moments are those of public rows alone, which nobody can forge.
    """
    if not sums.count:
        return None
    noise = sums.sums[kernels.NOISE : kernels.NOISE + 2].copy()
    if layout.observed:
        noise[1] = noise[0]
    if not np.all(noise > 0.0):
        return Influence(math.inf)
    roots, moved, turned = np.sqrt(noise).tolist(), 0.0, 0.0
    for mechanism in mechanisms.values():
        level = Level.of(mechanism, layout)
        lengths = _lengths(mechanism)
        shifts = [w * length / root for w, length, root in zip(level.weights, lengths, roots, strict=True)]
        # Parts of one release are as long as all of it is; those released by themselves are as long each.
        together = sum(shifts) if isinstance(mechanism, CompositeMechanism) else max(shifts)
        moved, turned = max(moved, together), max(turned, level.weights[0] * lengths[0])
    # Off-diagonal entries stand twice in a matrix.
    turned *= math.sqrt(2.0) / layout.root
    private = Private.of(sums, layout)
    share = layout.share(sums.total / np.repeat(sums.sums[kernels.WEIGHTS : kernels.WEIGHTS + 2], _sizes(layout)))
    least = float(np.linalg.eigvalsh(private.matrix)[0]) * float(sums.sums[kernels.WEIGHTS]) * max(share, 1e-6)
    bend = 0.0 if by_rows else turned / least if least > 0.0 else math.inf
    return Influence(moved, bend)


def _sizes(layout: Statistics) -> list[int]:
    return [layout.cross, layout.size]


def _lengths(mechanism: Randomizer) -> tuple[float, float]:
    """The longest that is admitted of the numbers of ``x x'`` and of ``x y``."""
    if not isinstance(mechanism, CompositeMechanism):
        return (longest(mechanism),) * 2
    first, second = (longest(part) for part in mechanism.parts)
    return first, second
