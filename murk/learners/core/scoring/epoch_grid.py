"""The grid of epochs: their starts and ends, counted in releases of a chain."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

FIRST: Final = 3000  # releases of the first epoch; each later one has as many as all before it, up to the longest
REMEMBERED: Final = 8  # epochs that a learner keeps: while they double, older ones have under 1% of the releases
FEWEST_KEPT: Final = FIRST * REMEMBERED  # least releases to keep: no epoch is shorter than the first
NEVER: Final = 2**62  # end of an endless epoch


def epoch_start(version: int, longest: int = NEVER) -> int:
    """Return the version at which the current epoch of a chain began.

    Epochs double up to ``longest``; then all are that long.

    Examples
    --------
    >>> [epoch_start(version) for version in (0, 2_999, 3_000, 5_999, 6_000, 100_000)]
    [0, 0, 3000, 3000, 6000, 96000]
    >>> [epoch_start(version, 5_000) for version in (2_999, 3_000, 6_000, 10_999, 11_000, 100_000)]
    [0, 3000, 6000, 6000, 11000, 96000]
    """
    if version < FIRST:
        return 0
    doubled = _doubled(longest)
    if version >= doubled:
        return doubled + (version - doubled) // longest * longest
    return FIRST << ((version // FIRST).bit_length() - 1)


def epoch_end(version: int, longest: int = NEVER) -> int:
    """Return the version at which the current epoch ends."""
    if version < FIRST:
        return FIRST
    start = epoch_start(version, longest)
    return start + min(start, longest)


def epoch_number(version: int, longest: int = NEVER) -> int:
    """Return the number of epochs that ended before the current one."""
    doubled = _doubled(longest)
    if version >= doubled:
        return (doubled // FIRST).bit_length() + (version - doubled) // longest
    return (version // FIRST).bit_length()


@lru_cache(maxsize=64)
def remembered(start: int, longest: int = NEVER) -> tuple[int, ...]:
    """Return the starts of the remembered epochs, oldest first, the newest of which begins at ``start``.

    Examples
    --------
    >>> remembered(6_000), remembered(768_000)[:2], remembered(998_000, 25_000)[::7]
    ((0, 3000, 6000), (6000, 12000), (823000, 998000))
    """
    starts = [start]
    while starts[-1] > 0 and len(starts) < REMEMBERED:
        starts.append(epoch_start(starts[-1] - 1, longest))
    return tuple(reversed(starts))


def _doubled(longest: int) -> int:
    """Return the start of the first epoch that no longer doubles."""
    return FIRST << (longest // FIRST).bit_length()


def shown_next(count: int, longest: int = NEVER) -> int:
    """Return the next count at which predictions are updated, four times an epoch.

    Examples
    --------
    >>> counts = [0]
    >>> while counts[-1] < 6_000:
    ...     counts.append(shown_next(counts[-1]))
    >>> counts[:9], counts[-7:]
    ([0, 1, 2, 3, 4, 5, 6, 7, 8], [2048, 2560, 3000, 3750, 4500, 5250, 6000])
    """
    start = epoch_start(count, longest) or 1 << max(count.bit_length() - 1, 0)
    step = max(min(start, longest) // 4, 1)
    return min(count - (count - start) % step + step, epoch_end(count, longest)) if count else 1
