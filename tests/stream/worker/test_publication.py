"""The publication grid and the staleness limit."""

import numpy as np
import pytest

from murk.protocols.gradients.kernels import is_published, newest_published, ring_size, spacing
from murk.task.learning import MaxStaleness
from murk.task.task import Task
from tests.stream.tasks import LOGISTIC

FLOORS = (0, 1, 2, 3, 15, 100, 1_562, 15_625)
LARGE = [int(version) for version in np.geomspace(20_000, 4e18, 400)]
SETTINGS = [
    MaxStaleness(),
    MaxStaleness(releases=1),
    MaxStaleness(releases=64),
    MaxStaleness(releases=1_000),
    MaxStaleness(releases=20_000),
    MaxStaleness(share=0.5),
    MaxStaleness(releases=1, share=0.333333),
    MaxStaleness(releases=5_000, share=0.1),
]


@pytest.mark.parametrize("floor", FLOORS)
def test_the_grid_is_never_wider_than_one_percent_of_the_count(floor: int) -> None:
    previous = 0
    for version in [*range(20_000), *LARGE]:
        width = spacing(version, floor)
        assert 1 <= width <= max(1, version // 100)
        assert width & (width - 1) == 0
        assert width >= previous
        previous = width


@pytest.mark.parametrize("floor", FLOORS)
def test_spacing_is_the_documented_formula(floor: int) -> None:
    for version in [*range(0, 20_000, 7), *LARGE]:
        widest = max(1, version // 200, min(floor, version // 100))
        assert spacing(version, floor) == 1 << (widest.bit_length() - 1)


@pytest.mark.parametrize("floor", FLOORS)
def test_the_newest_published_version_is_the_newest(floor: int) -> None:
    newest = 0
    for version in range(20_000):
        if is_published(version, floor):
            # The gap from the previous one is the spacing there, also where the spacing changes.
            assert version == 0 or version - newest == spacing(newest, floor)
            newest = version
        assert newest_published(version, floor) == newest
    for version in LARGE:
        newest = newest_published(version, floor)
        assert is_published(newest, floor)
        assert version - newest < spacing(version, floor) <= max(1, version // 100)


def test_defaults_publish_at_most_half_a_percent_apart() -> None:
    task = Task.parse(LOGISTIC)
    assert task.max_staleness.floor == 1
    widths = {0: 1, 200: 1, 399: 1, 400: 2, 800: 4, 254_654: 1_024}
    assert {version: spacing(version, task.max_staleness.floor) for version in widths} == widths


@pytest.mark.parametrize("limits", SETTINGS, ids=repr)
def test_limit_is_the_larger_of_number_and_share(limits: MaxStaleness) -> None:
    for count in [*range(0, 20_000, 13), *(version // 10 for version in LARGE)]:
        wanted = max(limits.releases, count * limits.share_ppm // 10**6)
        assert limits.limit(count) == wanted


@pytest.mark.parametrize("limits", SETTINGS, ids=repr)
def test_published_versions_within_the_limit_fit_the_ring(limits: MaxStaleness) -> None:
    ring = ring_size(limits)
    published = np.array([version for version in range(60_000) if is_published(version, limits.floor)])
    counts = np.arange(60_000)
    oldest = np.array([count - limits.limit(count) for count in counts.tolist()])
    within = np.searchsorted(published, counts, "right") - np.searchsorted(published, oldest, "left")
    assert within.max() <= ring
    # Not a bound of no use: at most twice what is needed, here where shares decide.
    assert ring <= 2 * within.max()


def test_ring_sizes() -> None:
    assert ring_size(MaxStaleness()) == 101
    assert ring_size(MaxStaleness(releases=1_000_000)) < 3_000


@pytest.mark.parametrize("limits", SETTINGS, ids=repr)
def test_who_is_up_to_date_is_never_stale(limits: MaxStaleness) -> None:
    # A block of 1% of the count, taken at the newest published iterate before it.
    for count in [*range(20_000), *(version // 10 for version in LARGE)]:
        last = count + max(1, count // 100) - 1
        assert last - newest_published(count, limits.floor) <= limits.limit(last)


def test_compiled_and_plain_agree() -> None:
    for version in (0, 199, 200, 399, 400, 10**6, 2**62):
        for floor in FLOORS:
            assert spacing(version, floor) == spacing.py_func(version, floor)  # type: ignore[attr-defined]
