"""Diagnosis of an estimate: useless coefficients and what would help most, missing values, forged releases.

A coefficient is useless if it was not learned, or if its interval holds zero and, over its feature's public range,
reaches further than a quarter of the target's possible change to both sides (of a probability, 25 points). A level (the
intercept, a mean or a share) is useless if its interval spans more than half of the target's possible range.

Reasons are: *people*, too few at this budget (always given); *bounds*, a feature's values fill little of its public
range; *rare*, few people have a category; *direction*, features hardly vary independently; *missing*, a share of the
targets is missing; and *stream*, answers of different times disagree, which more people would not mend.

Shares are reported if they are beyond two standard errors of their noise, and directions with a false-alarm probability
of 1%. A reason alone suggests no remedy: advice is given only where a forecast shows its effect, by the estimator on
more people's answers (`Estimate.needs`) or with a change of the task (`murk.planning.advice`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from murk._internal.arrays import Floats
from murk._internal.links import logistic
from murk._internal.numbers import NOT_LEARNED, TOO_WIDE, finite, listed, many, number
from murk.inference.estimate import Estimate, Extent, missing_words
from murk.inference.poisoning import counted
from murk.inference.stream_change import REMEDY
from murk.protocols.device import loaded_state_arithmetic
from murk.task.coding import INTERCEPT, indicator_of, is_constant
from murk.task.features import INDICATOR, CategoryFeature, DateFeature, Feature, NumberFeature, words_of, words_of_value
from murk.task.protocols.base import Scale
from murk.task.task import Task

QUARTER: Final = 0.25  # an interval is useless if its ends are beyond this share of the target's range on both sides

_SIGMAS: Final = 2.0
# Thresholds below which these are reported: the share of the public range that values fill, the share of people with a
# category, and an eigenvalue of the correlation matrix.
_FILLED, _RARE, _APART = 0.5, 0.1, 0.1
_SURELY: Final = 2.33  # standard deviations with one false alarm in a hundred
_MISSING, _MOST_MISSING = 0.15, 0.5  # shares of missing targets from which they are reported, and nothing is forecast


@dataclass(frozen=True)
class Reason:
    """One reason why coefficients are useless."""

    reason: str  # "people", "bounds", "rare", "direction", "missing" or "stream"
    names: tuple[str, ...]  # names of the coefficients
    words: str  # explanation
    cure: str = ""  # what it would take to learn them, if forecast

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {**asdict(self), "names": list(self.names)}


@dataclass(frozen=True)
class Advice:
    """A change of a task that reduces forecast half-widths; a half-width is infinite if an effect is not learned."""

    change: str  # what to do, in words
    unit: str  # unit of half-widths, such as "points" of a probability
    before: float  # median half-width of average effects per standard deviation of a feature
    after: float  # the same with the change
    widest: str  # unit of the feature whose effect over its range has the widest interval after the change, in words
    widest_before: float  # half-width of this average effect
    widest_after: float  # the same with the change

    @property
    def words(self) -> str:
        """The change with its forecast.

        >>> Advice("4 times the people", "points", 16.0, 8.0, "at: B against A", 90.0, 45.0).words
        '4 times the people (forecast: the median half-width per standard deviation of a feature falls from 16 to 8 \
points; the least precise over its range, at: B against A, from 90 to 45 points)'
        """
        if math.isfinite(self.before):
            median = f"falls from {self.before:.2g} to {self.after:.2g} {self.unit}"
        else:
            median = f"will be {self.after:.2g} {self.unit}, while now most effects are not learned"
        widest = "is not learned even then"
        if math.isfinite(self.widest_after):
            was = f"from {self.widest_before:.2g} to" if math.isfinite(self.widest_before) else "will be"
            widest = f"{was} {self.widest_after:.2g} {self.unit}"
        return (
            f"{self.change} (forecast: the median half-width per standard deviation of a feature {median}; the least "
            f"precise over its range, {self.widest}, {widest})"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        half_widths = {key: getattr(self, key) for key in ("before", "after", "widest_before", "widest_after")}
        return {"change": self.change, "unit": self.unit, "widest": self.widest, **finite(half_widths),
                "words": self.words}  # fmt: skip


def diagnose(
    report: Mapping[str, Any],
    estimate: Estimate,
    scale: Scale,
    *,
    unit: float | None = 1.0,
    categories: Mapping[str, tuple[str, str]] | None = None,
    advise: Callable[[], Sequence[Advice]] = tuple,
    forecast: bool = True,
    rows: int = 1,
) -> dict[str, Any] | None:
    """Explain why coefficients of a report are useless, and what would help most; return None if none is.

    ``unit`` is half the target's range in the units of the coefficients, 1 if both are coded and None without bounds;
    ``categories`` describes, by coefficient, people with and without a category; ``advise`` forecasts what would help,
    the best first. ``forecast=False`` skips the slow forecast of what it takes to learn. ``rows`` is the largest number
    of rows of one person.
    """
    wide = {name: most for name, most in too_wide(report, scale, unit).items() if not is_constant(name)}
    useless = (*(name for name in report["not_learned"] if not is_constant(name)), *wide)
    if not useless:
        return None
    extent = estimate.extent()
    needs = {name: need for name, need in report["needed"].items() if name in useless}
    if wide and forecast:
        more = estimate.needs(report["interval"].get("nominal_level", report["interval"]["level"]), wide)
        needs |= {name: need.to_dict() for name, need in more.items()}
    reasons = [_people(report, useless, needs)]
    if extent is not None and extent.known and len(estimate.names) == len(extent.moment):
        indices = {name: index for index, name in enumerate(estimate.names[:-1])}
        reasons += _narrow(extent, {name: indices[name] for name in useless if name in indices}, categories or {})
        reasons += _together(extent, indices, useless)
    share = estimate.missing()
    if share >= _MISSING:
        reasons.append(Reason("missing", useless, missing_words(share, rows)))
    answers_once = report["interval"].get("looks", {}).get("repeats", 1) == 1
    stream = estimate.stream_change() if answers_once else None
    mixed = stream is not None and stream.widened > 1.0
    if mixed:
        reasons.insert(0, Reason("stream", useless, "answers of different times disagree", REMEDY))
    # Forecasts assume people who do not change, and most of whom have a target.
    advice = () if mixed or share >= _MOST_MISSING else advise()
    helps = advice[0].words if advice else reasons[0].cure
    head = f"Too wide to say anything: {', '.join(wide)}. " if wide else ""
    why = "; ".join(reason.words for reason in reasons)
    # What it would take to learn each coefficient is reported separately.
    omitted = not helps or (not advice and not wide and bool(report["needed"]))
    return {
        "useless": {name: TOO_WIDE if name in wide else NOT_LEARNED for name in useless},
        "reasons": [reason.to_dict() for reason in reasons],
        "advice": [each.to_dict() for each in advice],
        "helps_most": helps,
        "words": f"{head}Why: {why}." + ("" if omitted else f" What would help most: {helps}."),
    }


def too_wide(report: Mapping[str, Any], scale: Scale, unit: float | None) -> dict[str, float]:
    """Return the coefficients that were learned but are useless, with the largest useful half-width.

    For a level (an intercept, a mean or a share) that half-width is infinite, as usefulness depends on both ends.
    """
    # Largest useful half-width in coded units, which are half of the feature's range.
    most = {"log odds": 2.0, "slope": 1.0, "probability": 1.0, "own": 2.0}[scale] * QUARTER
    if scale == "slope":
        most = math.inf if unit is None else most * unit
    intervals = report["confidence_intervals"]
    names = tuple(intervals)
    # An estimated residual scale of a robust loss comes after the constant.
    judged = names[: names.index(INTERCEPT) + 1] if INTERCEPT in names else names
    wide = {}
    for name in judged:
        low, high = intervals[name]
        if name in report["not_learned"] or not math.isfinite(high - low):
            continue
        if is_constant(name):
            # A coded label or target lies between -1 and 1, a range of which one half is 1 wide.
            ends = logistic(np.array([low, high])) if scale == "log odds" else np.array([low, high]) / (4.0 * most)
            if ends[1] - ends[0] > (2.0 * QUARTER if scale == "log odds" else 1.0):
                wide[name] = math.inf
        elif low < 0.0 < high and most < (high - low) / 2.0:
            wide[name] = most
    return wide


def _people(report: Mapping[str, Any], useless: Sequence[str], needs: Mapping[str, Mapping[str, Any]]) -> Reason:
    """Return the reason "people": too few at these budgets, with the number needed, if known."""
    forget = report.get("forget")
    count = report.get("records_learned", forget["used"] if forget else report["releases"])
    guarantees = [each["guarantee"] for each in report["levels"].values()]
    parameters = ", ".join(f"{key} = {value:g}" for key, value in next(iter(guarantees[0].values())).items())
    budget = f"at {parameters}" if len(guarantees) == 1 else "at these levels"
    who = many(count, "record") if "records_learned" in report else many(count, "person", "people")
    words = f"{who} {budget} {'is' if count == 1 else 'are'} too few"
    if not needs:
        return Reason("people", tuple(useless), words)
    # Report the median need, as a rare category takes far more than other coefficients; unknown needs come last.
    ordered = sorted(needs, key=lambda name: needs[name]["people"] or math.inf)
    name = ordered[(len(ordered) - 1) // 2]
    cure = ""
    if any(needs[name][key] for key in ("people", "budgets", "public_rows")):
        cure = needs[name]["words"] + (f", for {name}" if len(useless) > 1 else "")
    return Reason("people", tuple(useless), words, cure)


def _narrow(extent: Extent, indices: Mapping[str, int], categories: Mapping[str, tuple[str, str]]) -> list[Reason]:
    """Return reasons for features that fill little of their public range, and for rare categories."""
    reasons, filled, rare = [], {}, {}
    for name, index in indices.items():
        variance, error = extent.variance(index)
        deviation = math.sqrt(max(variance + _SIGMAS * error, 0.0))
        if name not in categories:
            filled[name] = math.sqrt(3.0) * deviation
            continue
        # Share of the rarer of two coded values, -1 and +1.
        share = (1.0 - math.sqrt(max(1.0 - deviation**2, 0.0))) / 2.0
        if share < _RARE:
            # State no share, as the moments may weight people by the length of their features.
            rare[name] = categories[name][int(extent.mean[index] > 0.0)]
    if rare:
        reasons.append(Reason("rare", tuple(rare), f"few people have {listed([*rare.values()], 'or')}"))
    narrow = {name: share for name, share in filled.items() if share < _FILLED}
    if narrow:
        percents = {name: max(math.ceil(100.0 * share - 1e-6), 1) for name, share in narrow.items()}
        each = listed([f"{percent}% of {name}" for name, percent in percents.items()])
        reasons.append(Reason("bounds", tuple(narrow), f"most people fill at most {each}, within the public bounds"))
    return reasons


def _together(extent: Extent, indices: Mapping[str, int], useless: Collection[str]) -> list[Reason]:
    """Return the reason "direction" if some combination of features hardly varies, beyond the noise of the moments.

    The smallest eigenvalue of a noisy correlation matrix is biased downwards, since noise also selects its eigenvector.
    For two directions whose variances differ by g, an error e of their covariance lowers the smaller variance by
    ``sqrt(g^2 / 4 + e^2) - g / 2``.
    """
    hidden = [
        (name, index, math.sqrt(variance))
        for name, index in indices.items()
        for variance, error in [extent.variance(index)]
        if variance > 2.0 * _SIGMAS * error and variance > 0.0
    ]
    if len(hidden) < 2:
        return []
    columns = np.zeros((len(indices), len(hidden)))
    for column, (_, index, deviation) in enumerate(hidden):
        columns[index, column] = 1.0 / deviation
    # Compute covariances by polarization, from the released moments whose noise is known.
    size = len(hidden)
    correlation = np.eye(size)
    for i in range(size):
        for j in range(i):
            both, _ = extent.along(columns[:, i] + columns[:, j])
            correlation[i, j] = correlation[j, i] = both / 2.0 - 1.0
    values, vectors = np.linalg.eigh(correlation)
    weights = vectors[:, 0]
    value, error = extent.along(columns @ weights)
    most = value + _SURELY * error
    for variance, vector in zip(values[1:].tolist(), vectors.T[1:], strict=True):
        gap = max(variance - _APART, 0.0)
        most += math.hypot(gap / 2.0, extent.covariance_error(columns @ weights, columns @ vector)) - gap / 2.0
    parts = [(hidden[i][0], float(weights[i])) for i in np.argsort(-np.abs(weights)) if abs(weights[i]) > 0.3]
    if most > _APART or len(parts) < 2 or not any(name in useless for name, _ in parts):
        return []
    first, *rest = parts
    combination = first[0] + "".join(f" {'+' if each * first[1] > 0 else '-'} {name}" for name, each in rest)
    names = tuple(name for name, _ in parts)
    words = f"{listed(names)} hardly vary apart: the effect of {combination} is hard to learn"
    return [Reason("direction", names, words)]


# A function that forecasts what would help a task: of the number of people, their extent, and whether to try more.
Advise = Callable[["Task", int, "Extent | None", bool], Sequence[Advice]]


def diagnose_task(
    task: Task, report: Mapping[str, Any], estimate: Estimate, advise: Advise | None = None
) -> dict[str, Any] | None:
    """Diagnose a report of a task like `diagnose`; ``advise`` forecasts what would help."""

    def advice() -> Sequence[Advice]:
        if advise is None:
            return ()
        # Some estimates forecast the effect of more people or a larger budget themselves.
        return advise(task, report.get("records_learned", report["releases"]), estimate.extent(), not report["needed"])

    with loaded_state_arithmetic():
        scale, rows = task.coefficient_scale, task.most_rows
        return diagnose(report, estimate, scale, categories=categories(task), advise=advice, rows=rows)


def categories(task: Task) -> dict[str, tuple[str, str]]:
    """Return the coefficients of a task's categories, with words for people with and without each."""
    coding = task.coding
    named = {}
    for index, feature in enumerate(task.features):
        if isinstance(feature, CategoryFeature):
            first, *others = (words_of_value(feature, category) for category in feature.categories)
            of = words_of(feature)
            for name, category in zip(coding.names_of(index), others, strict=False):
                # An indicator of missing values, which may come last, is not a category.
                rest = f"{of}: {first}" if len(others) == 1 else f"another {of} than {category}"
                named[name] = f"{of}: {category}", rest
    return named


MATTERS: Final = 0.95  # missing values matter if they shrink a coefficient to less than this share of complete records'


def kept_share(missing: float, distance: float, variance: float) -> float:
    """Return the factor by which missing values shrink a coefficient, ``s^2 / (s^2 + m (f - a)^2)``.

    Values are missing at random with share m (``missing``) and coded as f; the others have mean a, at a ``distance``
    ``f - a``, and variance s^2. Features are assumed to be uncorrelated.
    """
    return variance / (variance + missing * distance**2) if variance > 0.0 else 0.0


def coded_as(feature: Feature) -> str:
    """Return the code of a missing value of a feature, in words.

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
    """Describe each feature's missing values, for a report."""
    if all(feature.missing is None and feature.missing_share is None for feature in task.features):
        return []
    described, extent = [], estimate.extent()
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
        described_feature: dict[str, Any] = {"feature": feature.name, "share": share, "source": source}
        described_feature |= {"coded_as": coded_as(feature), "kept": None}
        # A date, or a feature of several categories, has more than one coded feature.
        if feature.name in names and not isinstance(feature, DateFeature) and extent is not None:
            described_feature["kept"] = _kept_ratio(task, feature, names.index(feature.name), share, extent)
        described.append(described_feature | {"words": _missing_words(described_feature)})
    return described


def _kept_ratio(task: Task, feature: Feature, index: int, share: float, extent: Any) -> float | None:
    if feature.missing == INDICATOR:
        return 1.0
    variance, error = extent.variance(index)
    if variance < _SIGMAS * error or share >= 1.0:
        return None
    mean = float(extent.mean[index])
    fill = float(task.coding.encode_record({}, target=False).x[index])
    there = (mean - share * fill) / (1.0 - share)
    variance_present = (variance - share * (1.0 - share) * (fill - there) ** 2) / (1.0 - share)
    return kept_share(share, fill - there, max(variance_present, 0.0))


def _missing_words(known: dict[str, Any]) -> str:
    source, about = ("as the task states", "") if known["source"] == "the task" else ("as releases show", "about ")
    words = (
        f"Intervals are of the model for coded values: {about}{100.0 * known['share']:.2g}% of the values of "
        f"{known['feature']} are missing, {source}, and count as {known['coded_as']}."
    )
    if known["kept"] is None or known["kept"] >= MATTERS:
        return words
    return (
        f"{words} This matters if the same share is missing among people with a target: the coefficient is then about "
        f"{known['kept']:.2f} times that of complete records. A fill value near the mean of people (`missing:` of the "
        "feature) or `missing: indicator` avoids it."
    )


def describe_forgers(estimate: Estimate, level: float) -> dict[str, Any]:
    """Return how far one forged release, and 0.1% and 1% of all, could have moved each coefficient.

    If noise hides all coefficients, half-widths are those of average effects, or ``moved`` is empty. ``moved`` has the
    changes in coded units and in half-widths at ``level``, infinite if unbounded. ``coverage`` is by how much forged
    releases could lower the coverage of prediction sets; ``signs`` are indications of forged releases.
    """
    halves, releases = estimate.half_widths(level), estimate.releases_used
    quantity = "a coefficient"
    if not np.isfinite(halves).any() and (effects := estimate.effects(level)) is not None:
        quantity, halves = "an average effect", effects[1]
    finite = np.isfinite(halves) & (halves > 0.0)
    moved, farthest = [], []
    for forged in counted(releases) if finite.any() or not estimate.noise_hides else ():
        far = estimate.moved(forged, level, halves)
        widths = np.divide(far, halves, out=np.full(len(far), math.inf), where=finite)
        coded, by_widths = (dict(zip(estimate.names, map(float, each), strict=True)) for each in (far, widths))
        moved.append({"releases": forged, "coded": coded, "half_widths": by_widths})
        farthest.append((forged, _farthest(far, widths, finite)))
    signs = estimate.doubts()
    described = {"moved": moved, "signs": signs, "words": _forged_words(farthest, releases, signs, quantity)}
    sets = estimate.sets
    if sets is not None and sets.known and not sets.whole:
        lowered = [(forged, min(forged * sets.reach, 1.0)) for forged in counted(releases)]
        parts = [f"{_forged(forged, releases)} by {number(100.0 * most, 2)} points" for forged, most in lowered]
        told = f"How far the coverage of prediction sets could have been lowered at most: {'; '.join(parts)}."
        described["coverage"] = [{"releases": forged, "lowered": most} for forged, most in lowered]
        described["words"] = f"{described['words']} {told}".strip()
    return described


def _forged(forged: int, releases: int) -> str:
    share = "" if forged == 1 else f" ({100.0 * forged / releases:.2g}%)"
    return f"{many(forged, 'forged release')}{share}"


def _farthest(far: Floats, widths: Floats, known: NDArray[np.bool_]) -> str | None:
    """Return the largest change of a coefficient, in half-widths where these are ``known``; None if unbounded."""
    if known.any():
        most = float(np.max(widths[known]))
        return f"{number(most, 2)} half-widths" if math.isfinite(most) else None
    most = float(np.max(far))
    return f"{number(most, 2)} in coded units" if math.isfinite(most) else None


def _forged_words(farthest: list[tuple[int, str | None]], releases: int, signs: list[str], what: str) -> str:
    parts: list[str] = []
    for forged, most in farthest:
        if most is None:
            who = "more" if parts else "one forged release"
            parts.append(f"without a bound by {who}")
            break
        parts.append(f"{_forged(forged, releases)} by {most}")
    far = f"How far {what} could have been moved at most: {'; '.join(parts)} (docs/threat-model.md)."
    return " ".join([*[far] * bool(parts), *(f"Signs of forged releases: {each}." for each in signs)])
