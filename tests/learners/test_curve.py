"""Curves of several partitions: each point is what the partitions' own estimates say together."""

import base64
import math
from statistics import NormalDist

import numpy as np
import pytest

from murk.errors import MurkError
from murk.inference.drift import columns, merged_curve
from murk.inference.estimate import RANDOM_SCALING, scaling_quantile
from murk.protocols.gradients.estimate import PLUG_IN
from murk.stream.wire.state import History

Z = NormalDist().inv_cdf(0.975)


def history(*points: tuple[int, int, list[float], list[float]]) -> History:
    """Of (count, time, values, half widths)."""
    rows = [[*values, *halves, math.hypot(*halves) / Z] for _, _, values, halves in points]
    numbers = base64.b64encode(np.array(rows, dtype="<f4").tobytes()).decode()
    return History(counts=[point[0] for point in points], times=[point[1] for point in points], numbers=numbers)


def test_one_partition_is_its_own_curve() -> None:
    only = history((16, 5, [0.5, -1.0], [math.inf, 0.25]), (32, 7, [0.25, -2.0], [0.5, 0.125]))
    found = merged_curve([only, History()], 2, PLUG_IN)
    assert [(point.releases, point.time, point.values, point.half_widths) for point in found] == [
        (16, 5, (0.5, -1.0), (math.inf, 0.25)), (32, 7, (0.25, -2.0), (0.5, 0.125)),
    ]  # fmt: skip
    assert found[1].estimated_error == np.float32(math.hypot(0.5, 0.125) / Z)
    plain = columns(found, ["a", "b"])
    assert plain["values"] == {"a": [0.5, 0.25], "b": [-1.0, -2.0]}
    assert plain["half_widths"]["b"] == [0.25, 0.125]
    assert (plain["releases"], plain["time"]) == ([16, 32], [5, 7])


def test_independent_estimates_are_weighed_by_their_variances() -> None:
    partitions = [history((16, 5, [1.0, 4.0], [1.0, 1.0])), history((16, 9, [2.0, 8.0], [0.5, math.inf]))]
    [point] = merged_curve(partitions, 2, PLUG_IN)
    assert (point.releases, point.time) == (32, 9)
    # Precisions 1 and 4; of the second coefficient one partition knows nothing.
    assert point.values == pytest.approx(((1.0 + 4 * 2.0) / 5.0, 4.0))
    assert point.half_widths == pytest.approx((math.sqrt(1 / 5.0), 1.0))
    assert point.estimated_error == pytest.approx(math.hypot(math.sqrt(1 / 5.0), 1.0) / Z)


def test_where_no_partition_knows_its_variance_numbers_of_releases_weigh() -> None:
    partitions = [history((16, 5, [1.0], [math.inf])), history((48, 5, [5.0], [math.inf]))]
    first, second = merged_curve(partitions, 1, PLUG_IN)
    assert (first.releases, first.values) == (16, (1.0,))
    assert second.values == pytest.approx(((16 * 1.0 + 48 * 5.0) / 64,))
    assert math.isinf(second.half_widths[0])
    assert math.isinf(second.estimated_error)


def test_random_scaling_merges_as_the_estimate_does() -> None:
    """Averages by releases, V as the partitions' mean, and the quantile of as many partitions (`ldp_sgd.inference`)."""
    v, counts, values = np.array([2.0, 6.0]), np.array([1000, 3000]), np.array([1.0, 3.0])
    halves = scaling_quantile(0.95) * np.sqrt(v / counts)
    partitions = [
        history((int(count), 1, [float(value)], [float(half)]))
        for count, value, half in zip(counts, values, halves, strict=True)
    ]
    point = merged_curve(partitions, 1, RANDOM_SCALING)[-1]
    assert point.releases == 4000
    assert point.values == pytest.approx((2.5,))
    spread = math.sqrt(v.mean() / 4000)
    assert point.half_widths == pytest.approx((scaling_quantile(0.95, 2) * spread,), rel=1e-6)
    assert point.estimated_error == pytest.approx(math.sqrt(6) * spread, rel=1e-6)
    # While one partition does not know its own, nothing is known of all.
    blind = merged_curve([partitions[0], history((3000, 1, [3.0], [math.inf]))], 1, RANDOM_SCALING)[-1]
    assert math.isinf(blind.half_widths[0])


def test_partitions_are_merged_at_equal_counts_and_one_that_stands_still_stays() -> None:
    fast = history(*((count, count, [1.0], [1.0]) for count in (16, 18, 20, 22)))
    slow = history(*((count, 10 * count, [3.0], [1.0]) for count in (16, 18)))
    found = merged_curve([fast, slow, History()], 1, PLUG_IN)
    assert [point.releases for point in found] == [32, 36, 38, 40]
    assert [point.time for point in found] == [160, 180, 180, 180]
    assert all(point.values == (2.0,) for point in found)


def test_a_trail_of_other_coefficients_is_refused() -> None:
    with pytest.raises(MurkError, match=r"partition 1 is damaged \(invalid: history"):
        merged_curve([History(), history((16, 5, [1.0], [1.0]))], 2, PLUG_IN)
