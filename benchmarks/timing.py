"""Interleaved timing: the figures are ratios, taken pair by pair on a machine whose speed drifts."""

import statistics
import time
from collections.abc import Callable


def cpu_seconds(function: Callable[[], None]) -> float:
    start = time.process_time()
    function()
    return time.process_time() - start


def compare(ours: Callable[[], None], peer: Callable[[], None], rounds: int = 7) -> tuple[float, float, float]:
    """Median seconds of both, and the median of peer / ours (how many times faster ours is)."""
    ours(), peer()
    pairs = [(cpu_seconds(ours), cpu_seconds(peer)) for _ in range(rounds)]
    return (
        statistics.median(a for a, _ in pairs),
        statistics.median(b for _, b in pairs),
        statistics.median(b / a for a, b in pairs),
    )
