"""Versions at which a chain publishes its iterate, and how old a gradient may be.

The published versions follow from the version (the number of releases learned) alone, so that a replay of the log
publishes the same ones. All is integer arithmetic, since it runs in compiled kernels.

Notes
-----
With ``floor = releases // 64`` the spacing at version v is the largest power of two not above ``max(1, v // 200,
min(floor, v // 100))``: never wider than 1% of the count, and between 0.25% and 0.5% of it once the floor is passed.
The spacing only changes at versions that both the old and the new spacing divide, so the gap after a published version
v is exactly the spacing at v.
"""

from typing import Protocol

from murk._jit import within


class StalenessLimit(Protocol):
    """Part of a task's ``max_staleness`` that determines published versions."""

    @property
    def releases(self) -> int:
        """Number of releases that is never too old."""

    @property
    def share_ppm(self) -> int:
        """Share of the count that is never too old, in millionths."""

    @property
    def floor(self) -> int:
        """Floor of the grid, for `spacing`."""


@within
def spacing(version: int, floor: int) -> int:
    """Return the distance from a published version to the next one.

    >>> [spacing(version, 1) for version in (0, 399, 400, 1_000_000)]
    [1, 1, 2, 4096]
    """
    widest = max(1, version // 200, min(floor, version // 100))
    power = 1
    while 2 * power <= widest:
        power *= 2
    return power


@within
def is_published(version: int, floor: int) -> bool:
    """Return whether the iterate of a version is published."""
    return version % spacing(version, floor) == 0


@within
def newest_published(version: int, floor: int) -> int:
    """Return the largest published version that is not above the given one."""
    return version - version % spacing(version, floor)


@within
def staleness_limit(count: int, releases: int, share_ppm: int) -> int:
    """Return how many releases old a gradient may be: ``max(releases, count * share_ppm // 10^6)``.

    >>> staleness_limit(1_000, 100, 20_000), staleness_limit(1_000_000, 100, 20_000)
    (100, 20000)
    """
    # Split, so that the product fits 64 bits.
    share = count // 1_000_000 * share_ppm + count % 1_000_000 * share_ppm // 1_000_000
    return max(releases, share)


def ring_size(max_staleness: StalenessLimit) -> int:
    """Return the largest number of published versions in ``[n - limit(n), n]``, for any count n.

    A learner that remembers this many iterates knows the one of every gradient that it admits.

    Notes
    -----
    While the limit is the constant ``releases``, the fullest window is the first, ``[0, releases]``, since gaps never
    shrink. After that the window is ``[(1 - s) n, n]``, where gaps are wider than ``(1 - s) n / 400``, hence at most
    ``400 s / (1 - s) + 1`` versions.

    Examples
    --------
    >>> from murk.stream.task.learner import MaxStaleness
    >>> ring_size(MaxStaleness())
    101
    """
    early, version = 0, 0
    while version <= max_staleness.releases:
        early += 1
        version += spacing(version, max_staleness.floor)
    share = max_staleness.share_ppm
    late = -(-400 * share // (1_000_000 - share)) + 1
    return max(early, late)
