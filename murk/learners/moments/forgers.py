"""Influence of one forged release of moments on an estimate."""

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
    """Return a bound on the influence of one forged release; None without releases.

    ``by_rows`` tells whether second moments come from public rows alone, which nobody can forge.
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
        # The parts of one release share its length; separate releases each have a length.
        together = sum(shifts) if isinstance(mechanism, CompositeMechanism) else max(shifts)
        moved, turned = max(moved, together), max(turned, level.weights[0] * lengths[0])
    # Off-diagonal entries occur twice in a matrix.
    turned *= math.sqrt(2.0) / layout.root
    private = Private.of(sums, layout)
    weights = sums.sums[kernels.WEIGHTS : kernels.WEIGHTS + 2]
    share = layout.share(sums.total / np.repeat(weights, [layout.cross, layout.size]))
    least = float(np.linalg.eigvalsh(private.matrix)[0]) * float(sums.sums[kernels.WEIGHTS]) * max(share, 1e-6)
    bend = 0.0 if by_rows else turned / least if least > 0.0 else math.inf
    return Influence(moved, bend)


def _lengths(mechanism: Randomizer) -> tuple[float, float]:
    """Return the largest admitted lengths of ``x x'`` and of ``x y``."""
    parts = mechanism.parts if isinstance(mechanism, CompositeMechanism) else (mechanism, mechanism)
    return longest(parts[0]), longest(parts[1])
