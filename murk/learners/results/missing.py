r"""Effect of missing values on coefficients, for reports.

A missing value is coded by a public rule, and the fit is that of the coded values. If a share m of people lack a value
and are coded as f, the others having mean a and variance s^2, a coefficient is about

.. math:: \frac{s^2}{s^2 + m (f - a)^2}

of the coefficient among complete records (values missing at random, features unrelated). The share is known if the task
states it, or has an indicator whose mean is released; a and s^2 follow from the released moments of the coded values.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from murk.stream.task.data.coding import indicator_of
from murk.stream.task.data.features import INDICATOR, CategoryFeature, DateFeature, Feature, NumberFeature

if TYPE_CHECKING:
    from murk.learners.estimates.estimate import Estimate
    from murk.stream.task.task import Task

MATTERS: Final = 0.95  # ratio to the coefficient of complete records up to which reports say that missing values matter
_SIGMAS: Final = 2.0


def kept_share(missing: float, distance: float, variance: float) -> float:
    """Return a coefficient's ratio to the coefficient of complete records.

    ``missing`` is the share of missing values, ``distance`` the distance of their code from the mean of the other
    values, and ``variance`` the variance of the other values.
    """
    return variance / (variance + missing * distance**2) if variance > 0.0 else 0.0


def coded_as(feature: Feature) -> str:
    """Return the code of a missing value of a feature, in words.

    Examples
    --------
    >>> coded_as(NumberFeature(name="visits", low=0, high=8))
    '4, the middle of its bounds'
    """
    if feature.missing == INDICATOR:
        return f"the middle, with {indicator_of(feature)} beside it"
    if feature.missing is not None:
        return f"{feature.missing:g}" if isinstance(feature.missing, float) else str(feature.missing)
    if isinstance(feature, NumberFeature):
        return f"{(feature.low + feature.high) / 2.0:g}, the middle of its bounds"
    return "the middle between its categories" if isinstance(feature, CategoryFeature) else "the middle of its bounds"


def describe_missing(task: Task, estimate: Estimate) -> list[dict[str, Any]]:
    """Return what is known about each feature's missing values, for a report."""
    return list(_known(task, estimate))


def _known(task: Task, estimate: Estimate) -> Iterator[dict[str, Any]]:
    if all(feature.missing is None and feature.missing_share is None for feature in task.features):
        return
    extent = estimate.extent()
    if extent is not None and (not extent.known or len(extent.moment) != task.coding.size):
        extent = None
    names = task.coding.names
    for feature in task.features:
        share, source = feature.missing_share, "the task"
        if feature.missing == INDICATOR and extent is not None:
            index = names.index(indicator_of(feature))
            released = min(max((1.0 + float(extent.mean[index])) / 2.0, 0.0), 1.0)
            share, source = released, "releases"
        if share is None:
            continue
        known: dict[str, Any] = {
            "feature": feature.name, "share": share, "source": source, "coded_as": coded_as(feature), "kept": None,
        }  # fmt: skip
        # A date or several categories have more than one number.
        if feature.name in names and not isinstance(feature, DateFeature) and extent is not None:
            known["kept"] = _kept(task, feature, names.index(feature.name), share, extent)
        yield known | {"words": _words(known, feature)}


def _kept(task: Task, feature: Feature, index: int, share: float, extent: Any) -> float | None:
    if feature.missing == INDICATOR:
        return 1.0
    variance, error = extent.variance(index)
    if variance < _SIGMAS * error or share >= 1.0:
        return None
    mean = float(extent.mean[index])
    fill = float(task.coding.encode_record({}, target=False).x[index])
    there = (mean - share * fill) / (1.0 - share)
    own = (variance - share * (1.0 - share) * (fill - there) ** 2) / (1.0 - share)
    return kept_share(share, fill - there, max(own, 0.0))


def _words(known: dict[str, Any], feature: Feature) -> str:
    source = "as the task states" if known["source"] == "the task" else "as releases show"
    words = (
        f"Intervals are of the model for coded values: {100.0 * known['share']:.2g}% of the values of "
        f"{known['feature']} are missing, {source}, and count as {known['coded_as']}."
    )
    if known["kept"] is None or known["kept"] >= MATTERS:
        return words
    return (
        f"{words} That matters: its coefficient is about {known['kept']:.2f} of what it is among complete records. A "
        "fill value near the mean of people (`missing:` of the feature) or `missing: indicator` avoids it."
    )
