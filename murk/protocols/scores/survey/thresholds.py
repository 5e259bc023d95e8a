"""The thresholds that a survey asks about. Devices load this module alone."""

from __future__ import annotations

from typing import Final

THRESHOLDS: Final[tuple[tuple[float, ...], ...]] = (
    (),
    tuple((2 * index - 15) / 16 for index in range(16)),
    (-1.4, -0.7, 0.0, 0.7, 1.4),
    (-2.0, -1.0, -0.3, 0.3, 1.0, 2.0),
)
"""The thresholds of each list that a model may name, in units of the published spread from the published centre."""
