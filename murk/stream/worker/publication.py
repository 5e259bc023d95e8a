"""At which versions a chain publishes its iterate, and how old a gradient may be.

A chain's version is the number of releases it has learned. Which versions are published follows from the
version alone, so that anyone who replays the log publishes and remembers the same ones. All of it is integer
arithmetic: it runs inside compiled kernels and has no rounding.

Notes
-----
With ``floor = releases // 64`` the spacing at version v is the largest power of two not above
``max(1, v // 200, min(floor, v // 100))``: never wider than 1% of the count, and between 0.25% and 0.5% of
it once the floor is passed. The spacing only changes at versions that both the old and the new spacing
divide, so the gap after a published version v is exactly the spacing at v.
"""

from typing import TYPE_CHECKING, Protocol

from murk._jit import within

if TYPE_CHECKING:
    pass


class StalenessLimit(Protocol):
    """What the grid needs of a task's ``max_staleness``."""

    @property
    def releases(self) -> int:
        """The number of releases that is never too old."""

    @property
    def share_ppm(self) -> int:
        """The share of the count that is never too old, in millionths."""

    @property
    def floor(self) -> int:
        """The grid's floor, for `spacing`."""


@within
def spacing(version: int, floor: int) -> int:
    """Return the distance from a published version to the next one.

    The largest power of two not above ``max(1, version // 200, min(floor, version // 100))``.

    Examples
    --------
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
    """Tell whether the iterate of a version is published and remembered."""
    return version % spacing(version, floor) == 0


@within
def newest_published(version: int, floor: int) -> int:
    """Return the largest published version that is not above the given one."""
    return version - version % spacing(version, floor)


@within
def staleness_limit(count: int, releases: int, share_ppm: int) -> int:
    """Return how many releases old a gradient may be once a chain has learned ``count``.

    The larger of ``releases`` and the share of the count: ``max(releases, count * share_ppm // 10^6)``.

    Examples
    --------
    >>> staleness_limit(1_000, 100, 20_000), staleness_limit(1_000_000, 100, 20_000)
    (100, 20000)
    """
    # Split, so that the product stays within 64 bits for every count.
    share = count // 1_000_000 * share_ppm + count % 1_000_000 * share_ppm // 1_000_000
    return max(releases, share)


def ring_size(max_staleness: StalenessLimit) -> int:
    """Return how many published versions can be within the staleness limit at once, at the most.

    Whatever the count n, no more than this many published versions lie in ``[n - limit(n), n]``: a learner
    that remembers this many iterates knows every one that a gradient it admits can have been taken at.

    Notes
    -----
    While the limit is the constant ``releases``, the fullest window is the first, ``[0, releases]``, since
    gaps never shrink. After that the window is ``[(1 - s) n, n]``, where gaps are wider than
    ``(1 - s) n / 400``, hence at most ``400 s / (1 - s) + 1`` versions.

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
