r"""Why a result is useless, and what would help most: from releases and the task alone.

A coefficient is useless that was not learned; and one whose interval holds zero and, from one end of its feature's
public range to the other, reaches further than a quarter of what the target can do to both sides (of a probability, 25
points). Of those it is said why:

*people*: so many at this budget are too few, which is always so.
*bounds*: a feature's people fill little of its public range.
*rare*: few people have a category.
*direction*: features hardly vary apart.
*missing*: a share of the targets is not there.

A share or a direction is only spoken of where it is beyond two standard errors of the noise on it. What would help is
never concluded from a reason. It is forecast, by the estimator on more people's answers (`Estimate.needs`) or of the
task with a change (`murk.planning.advice`), or nothing is advised.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from murk.learners.results.words import NOT_LEARNED, TOO_WIDE
from murk.stream.task.data.coding import INTERCEPT, is_constant
from murk.stream.task.data.features import CategoryFeature

if TYPE_CHECKING:
    from murk.learners.estimates.estimate import Estimate
    from murk.learners.estimates.extent import Extent
    from murk.stream.task.protocol import Scale
    from murk.stream.task.task import Task

QUARTER: Final = 0.25
"""Of what the target can do: an interval that reaches further to both sides, around zero, says nothing."""

_SIGMAS = 2.0
# A share of the public range, and of people with a category, below which it is said; an eigenvalue of the correlation.
_FILLED, _RARE, _APART = 0.5, 0.1, 0.2
_MISSING = 0.15


@dataclass(frozen=True)
class Reason:
    """One reason why coefficients are useless.

    Parameters
    ----------
    reason
        ``"people"``, ``"bounds"``, ``"rare"``, ``"direction"`` or ``"missing"``.
    names
        The coefficients that it is about.
    words
        In words.
    cure
        What it would take, by forecast; empty where there is none.
    """

    reason: str
    names: tuple[str, ...]
    words: str
    cure: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {**asdict(self), "names": list(self.names)}


@dataclass(frozen=True)
class Advice:
    """A change of a task that helps, by forecast.

    Parameters
    ----------
    change
        What to do, in words.
    before, after
        Median half width of a feature's average effect, in points per standard deviation; infinite where most
        coefficients are not learned.
    """

    change: str
    before: float
    after: float

    @property
    def words(self) -> str:
        """The change with its forecast.

        Examples
        --------
        >>> Advice("sketch: {method: newton}", 7.61, 2.04).words
        'sketch: {method: newton} (forecast: a half width of 2 points in place of 7.6)'
        """
        was = f"in place of {self.before:.2g}" if math.isfinite(self.before) else "where now most are not learned"
        return f"{self.change} (forecast: a half width of {self.after:.2g} points {was})"

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        before = self.before if math.isfinite(self.before) else None
        return {"change": self.change, "points_before": before, "points_after": self.after, "words": self.words}


def diagnose(
    found: Mapping[str, Any], estimate: Estimate, scale: Scale, *, unit: float | None = 1.0,
    categories: Mapping[str, tuple[str, str]] | None = None, advise: Callable[[], Sequence[Advice]] = tuple,
    forecast: bool = True,
) -> dict[str, Any] | None:  # fmt: skip
    """Say why coefficients of a report are useless, and what would help most; None where none is.

    Parameters
    ----------
    found
        The report so far.
    estimate
        What it is of.
    scale
        What its coefficients are of.
    unit
        Half the target's range in the units of the coefficients, 1 where both are coded; None where it has no bounds.
    categories
        Coefficients that are of categories, with what is said of those who have it, and of those who do not.
    advise
        Forecasts what would help, the best first; called where there is any need.
    forecast
        Whether to say what it would take, which takes several times as long as the estimate.
    """
    wide = too_wide(found, scale, unit)
    useless = (*(name for name in found["not_learned"] if not is_constant(name)), *wide)
    if not useless:
        return None
    extent = estimate.extent()
    needs = {name: need for name, need in found["needed"].items() if name in useless}
    if wide and forecast:
        more = estimate.needs(found["interval"]["level"], wide)
        needs |= {name: need.to_dict() for name, need in more.items()}
    reasons = [_people(found, useless, needs)]
    if extent is not None and extent.known and len(estimate.names) == len(extent.moment):
        places = {name: place for place, name in enumerate(estimate.names[:-1])}
        reasons += _narrow(extent, {name: places[name] for name in useless if name in places}, categories or {})
        reasons += _together(extent, places, useless)
    reasons += _missing(estimate, useless)
    return _told(found, useless, wide, reasons, advise())


def too_wide(found: Mapping[str, Any], scale: Scale, unit: float | None) -> dict[str, float]:
    """The coefficients that were learned and say nothing, with what their half widths may be."""
    # What half of an interval in coded units, of one half of the feature's range, may be.
    most = {"log odds": 2.0, "slope": 1.0, "probability": 1.0, "own": 2.0}[scale] * QUARTER
    if scale == "slope":
        most = math.inf if unit is None else most * unit
    intervals = found["confidence_intervals"]
    names = tuple(intervals)
    # What follows the constant is no feature's: the scale that a robust loss estimates.
    features = names[: names.index(INTERCEPT)] if INTERCEPT in names else names
    return {
        name: most
        for name, (low, high) in ((name, intervals[name]) for name in features)
        if not is_constant(name) and name not in found["not_learned"]
        if low < 0.0 < high and most < (high - low) / 2.0 < math.inf
    }


def _people(found: Mapping[str, Any], useless: Sequence[str], needs: Mapping[str, Mapping[str, Any]]) -> Reason:
    """Too few at these budgets; and what it would take, where that can be told."""
    forget = found.get("forget")
    count = found.get("records_learned", forget["used"] if forget else found["releases"])
    guarantees = [each["guarantee"] for each in found["levels"].values()]
    parameters = ", ".join(f"{key} = {value:g}" for key, value in next(iter(guarantees[0].values())).items())
    budget = f"at {parameters}" if len(guarantees) == 1 else "at these levels"
    words = f"{count:,} {'records' if 'records_learned' in found else 'people'} {budget} are too few"
    if not needs:
        return Reason("people", tuple(useless), words)
    # The one in the middle: a rare category takes far more than all others. What cannot be told takes the most.
    ordered = sorted(needs, key=lambda name: needs[name]["people"] or math.inf)
    name = ordered[(len(ordered) - 1) // 2]
    told = any(needs[name][key] for key in ("people", "budgets", "public_rows"))
    cure = ""
    if told:
        cure = needs[name]["words"] + (f", for {name}" if len(useless) > 1 else "")
    return Reason("people", tuple(useless), words, cure)


def _narrow(extent: Extent, places: Mapping[str, int], categories: Mapping[str, tuple[str, str]]) -> list[Reason]:
    """Features whose people fill little of their public range, and categories that few people have."""
    reasons, filled = [], {}
    for name, place in places.items():
        variance, error = extent.variance(place)
        deviation = math.sqrt(max(variance + _SIGMAS * error, 0.0))
        if name not in categories:
            filled[name] = math.sqrt(3.0) * deviation
            continue
        # Of two values that are 2 apart, the rarer one's share.
        share = (1.0 - math.sqrt(max(1.0 - deviation**2, 0.0))) / 2.0
        if share < _RARE:
            rare = categories[name][int(extent.mean[place] > 0.0)]
            words = f"few people, some {_percent(share)}, have {rare}"
            reasons.append(Reason("rare", (name,), words))
    narrow = {name: share for name, share in filled.items() if share < _FILLED}
    if narrow:
        each = ", ".join(f"{_percent(share)} of {name}" for name, share in narrow.items())
        reasons.append(Reason("bounds", tuple(narrow), f"most people fill at most {each}, within the public bounds"))
    return reasons


def _percent(share: float) -> str:
    return f"{max(math.ceil(100.0 * share - 1e-6), 1)}%"


def _together(extent: Extent, places: Mapping[str, int], useless: Collection[str]) -> list[Reason]:
    """The combination of features that varies least, where that is next to nothing."""
    known = [
        (name, place, math.sqrt(variance))
        for name, place in places.items()
        for variance, error in [extent.variance(place)]
        if variance > 2.0 * _SIGMAS * error and variance > 0.0
    ]
    if len(known) < 2:
        return []
    columns = np.zeros((len(places), len(known)))
    for column, (_, place, deviation) in enumerate(known):
        columns[place, column] = 1.0 / deviation
    # All variances by polarization: of sums and differences, each with the same noise that it is judged by.
    size = len(known)
    correlation = np.eye(size)
    for i in range(size):
        for j in range(i):
            both, _ = extent.along(columns[:, i] + columns[:, j])
            correlation[i, j] = correlation[j, i] = both / 2.0 - 1.0
    weights = np.linalg.eigh(correlation)[1][:, 0]
    value, error = extent.along(columns @ weights)
    least = value + _SIGMAS * error
    parts = [(known[i][0], float(weights[i])) for i in np.argsort(-np.abs(weights)) if abs(weights[i]) > 0.3]
    if least > _APART or len(parts) < 2 or not any(name in useless for name, _ in parts):
        return []
    first, *rest = parts
    combination = first[0] + "".join(f" {'+' if each * first[1] > 0 else '-'} {name}" for name, each in rest)
    names = tuple(name for name, _ in parts)
    words = f"{', '.join(names[:-1])} and {names[-1]} hardly vary apart: what {combination} does is not told"
    return [Reason("direction", names, words)]


def _missing(estimate: Estimate, useless: Sequence[str]) -> list[Reason]:
    share = estimate.missing()
    if share < _MISSING:
        return []
    return [Reason("missing", tuple(useless), f"at least {math.floor(100.0 * share)}% of the targets are missing")]


def _told(
    found: Mapping[str, Any], useless: Sequence[str], wide: Collection[str], reasons: Sequence[Reason],
    advice: Sequence[Advice],
) -> dict[str, Any]:  # fmt: skip
    people = reasons[0]
    helps = advice[0].words if advice else people.cure
    head = f"Too wide to say anything: {', '.join(wide)}. " if wide else ""
    why = "; ".join(reason.words for reason in reasons)
    # What it would take to learn the others is said of each of them beside.
    said = not helps or (not advice and not wide and bool(found["needed"]))
    return {
        "useless": {name: TOO_WIDE if name in wide else NOT_LEARNED for name in useless},
        "reasons": [reason.to_dict() for reason in reasons],
        "advice": [one.to_dict() for one in advice],
        "helps_most": helps,
        "words": f"{head}Why: {why}." + ("" if said else f" What would help most: {helps}."),
    }


Advise = Callable[["Task", int, "Extent | None", bool], Sequence[Advice]]
"""Forecasts what would help a task: with so many people, who lie there, and whether more of them are tried too."""


def diagnose_task(
    task: Task, found: Mapping[str, Any], estimate: Estimate, advise: Advise | None = None
) -> dict[str, Any] | None:
    """Say of a report of a task what `diagnose` says; ``advise`` forecasts what would help."""
    from murk.learners.problem import plausible

    def advice() -> Sequence[Advice]:
        if advise is None:
            return ()
        # What more people or a larger budget would do is told by some estimates themselves.
        return advise(task, found.get("records_learned", found["releases"]), estimate.extent(), not found["needed"])

    with plausible():
        return diagnose(found, estimate, task.coefficient_scale, categories=categories(task), advise=advice)


def categories(task: Task) -> dict[str, tuple[str, str]]:
    """The coefficients of a task that are of categories, with what those are who have it, and who do not."""
    coding = task.coding
    found = {}
    for index, feature in enumerate(task.features):
        if isinstance(feature, CategoryFeature):
            first, *others = feature.categories
            for name, category in zip(coding.names_of(index), others, strict=False):
                # An indicator of missing values, which may come last, is no category.
                rest = f"{feature.name}: {first}" if len(others) == 1 else f"another {feature.name} than {category}"
                found[name] = f"{feature.name}: {category}", rest
    return found
