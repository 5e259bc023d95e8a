"""How far forged releases could have moved an estimate, for reports."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from murk.learners.estimates.forgers import counted
from murk.learners.results.numbers import many, number

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from murk.learners.estimates.estimate import Estimate


def describe_forgers(estimate: Estimate, level: float) -> dict[str, Any]:
    """Return how far one forged release, and 0.1% and 1% of all, could have moved each coefficient.

    ``moved`` has the changes in coded units and in half-widths of the intervals at ``level``, infinite if unbounded;
    ``signs`` are indications of forged releases; ``words`` states both.
    """
    halves, releases = estimate.half_widths(level), estimate.releases_used
    known = np.isfinite(halves) & (halves > 0.0)
    moved, farthest = [], []
    for forged in counted(releases):
        far = estimate.moved(forged, level)
        widths = np.divide(far, halves, out=np.full(len(far), math.inf), where=known)
        coded, by_widths = (dict(zip(estimate.names, map(float, each), strict=True)) for each in (far, widths))
        moved.append({"releases": forged, "coded": coded, "half_widths": by_widths})
        farthest.append((forged, _farthest(far, widths, known)))
    signs = estimate.doubts()
    return {"moved": moved, "signs": signs, "words": _words(farthest, releases, signs)}


def _farthest(far: NDArray[np.float64], widths: NDArray[np.float64], known: NDArray[np.bool_]) -> str | None:
    """Return the largest change of a coefficient, in words; None if unbounded."""
    if known.any():
        most = float(np.max(widths[known]))
        return f"{number(most, 2)} of its half width" if math.isfinite(most) else None
    most = float(np.max(far))
    return f"{number(most, 2)} in coded units" if math.isfinite(most) else None


def _words(farthest: list[tuple[int, str | None]], releases: int, signs: list[str]) -> str:
    parts: list[str] = []
    for forged, most in farthest:
        if most is None:
            who = "more" if parts else "one forged release"
            parts.append(f"without a bound by {who}")
            break
        share = "" if forged == 1 else f" ({100.0 * forged / releases:.2g}%)"
        parts.append(f"{many(forged, 'forged release')}{share} by {most}")
    sentences = []
    if parts:
        sentences.append(
            f"How far a coefficient could have been moved at most: {'; '.join(parts)} (docs/threat-model.md)."
        )
    return " ".join([*sentences, *(f"Signs of forged releases: {each}." for each in signs)])
