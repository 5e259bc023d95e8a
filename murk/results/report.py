"""The report: the dictionary that ``--json`` prints, and that tables, sentences and pictures are made from."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from murk._internal.arrays import Floats
from murk._internal.lazy import bounding
from murk._internal.numbers import number
from murk.inference.average_effects import marginal_effects
from murk.inference.confidence_sequences import Looks, Validity, looks_of
from murk.inference.contrasts import contrasts
from murk.inference.drift import CurvePoint, Drift, columns, merged_curve
from murk.inference.estimate import Estimate
from murk.inference.experiments import experiment
from murk.inference.known_columns import KnownEstimate
from murk.inference.track import Track
from murk.inference.units import (
    Unit,
    Units,
    coded_unit,
    effect_units,
    fits_probabilities,
    odds_ratio,
    on_logit_scale,
    units,
)
from murk.privacy import Accountant, Guarantee
from murk.privacy.central.explain import against_a_blank_record, described
from murk.privacy.guarantees import CENTRAL, figures
from murk.privacy.mechanisms.costs import really_given
from murk.protocols.device import Device, device_for, loaded_state_arithmetic
from murk.protocols.drift import drift_of
from murk.protocols.univariate.columns import ENOUGH, identifying_words
from murk.protocols.windows import track_of
from murk.results.cells import describe_cells
from murk.results.diagnosis import Advise, describe_forgers, describe_missing, diagnose_task, too_wide
from murk.results.predictions import describe_prediction
from murk.stream.log.interface import Log
from murk.stream.wire.state import LEVEL, decode_state
from murk.stream.worker.recovery import check_shuffled
from murk.task.coding import is_constant
from murk.task.features import BinaryTarget, ClassTarget, RealTarget, words_of, words_of_value
from murk.task.privacy import DEFAULT_LEVEL, PrivacyBlock
from murk.task.protocols.base import Scale
from murk.task.task import Disclosure, Task
from murk.task.windows import Repeats, each_of, many_of


def committed(
    task: Task, log: Log, device: Device | None = None, repeats: Repeats | None = None, level: float = LEVEL
) -> tuple[Estimate, dict[str, Any], tuple[CurvePoint, ...], Drift | None, Track | None]:
    """Return the joint estimate of all partitions of a log, counts of messages, the estimate's curve, drift and track.

    ``device`` is by default the task's. Drift is None if it cannot be tested; the track, whose bands hold at ``level``,
    is None if the task asks for none. States with the same ``state_digest`` are identical to the bit. ``repeats`` is by
    default what the task's caps allow.
    """
    check_shuffled(log, task)
    device = device or device_for(task)
    engines = [device.engine() for _ in range(task.log.partitions)]
    messages, lag = [], 0
    for partition, engine in enumerate(engines):
        status = log.status(partition)
        lag += status.lag
        if status.checkpoint.state is not None:
            message = decode_state(status.checkpoint.state, f"partition {partition} of {log.url}")
            engine.load_state_dict(message.learner)
            messages.append(message)
    counters = [message.counters for message in messages]
    dead: Counter[str] = Counter()
    for each in counters:
        dead.update(each.dead)
    more = {}
    if log.model_name is not None:
        more["before"] = sum(message.offset - message.counters.read for message in messages)
        more["from_states"] = any(message.adopted for message in messages)
    if task.of_organisations:
        more["records_learned"] = sum(state.learner["records"] for state in messages)
    states = json.dumps([engine.state_dict() for engine in engines], sort_keys=True)
    with loaded_state_arithmetic():
        estimate = device.estimate(engines)
        points = merged_curve([message.history for message in messages], len(estimate.names), estimate.method)
        drift = drift_of(device, engines, estimate, points, task.repeats.most if repeats is None else repeats.most)
        track = track_of(task, device, engines, level, repeats)
    counts = {
        "releases": sum(each.learned for each in counters),
        "duplicates": sum(each.duplicates for each in counters),
        "dead_letters": dict(dead),
        "lag": lag,
        "state_digest": hashlib.sha256(states.encode()).hexdigest(),
        **more,
    }
    return estimate, counts, points, drift, track


def describe_target(task: Task) -> str:
    """Return the quantity that a task's coefficients explain, in words, such as "log odds of worked = yes"; else empty.

    Names of coefficients contain the class, so the words do not.
    """
    target = task.target
    if not task.features:
        return ""
    if isinstance(target, ClassTarget):
        return f"probability of each class of {words_of(target)}" if fits_probabilities(task) else ""
    event = words_of(target)
    if isinstance(target, BinaryTarget):
        event += f" = {words_of_value(target, target.positive)}"
    scale = next(iter(units(task).values())).scale
    words = {"log odds": "log odds", "percentage points": "probability", "target units": "mean"}
    return f"{words[scale]} of {event}" if scale in words else f"{event}, by {task.fitted_model}"


def describe_levels(task: Task) -> dict[str, dict[str, Any]]:
    """Describe each level's guarantee, as data and in words; for a grid, only the default, lowest and highest."""
    mechanisms = device_for(task).mechanisms
    bounds = bounding(mechanisms)
    levels = {level: describe_level(task.privacy.levels[level], mechanism) for level, mechanism in bounds.items()}
    if task.known_columns:
        for entry in levels.values():
            entry["words"] += f" {task.known_words}"
    if task.shuffle is not None:
        for level, entry in levels.items():
            central = task.shuffle.promised(task.privacy.levels[level])
            entry["central"] = {**central.to_dict(), "words": central.describe()}
    return levels


def describe_grid(task: Task) -> dict[str, Any]:
    """Return the range of a task's grid of levels, as data and in words."""
    grid = task.privacy.grid
    assert grid is not None
    last = len(grid.points) - 1
    return {
        "parameter": task.privacy.parameter,
        "from": grid.low,
        "to": grid.high,
        "levels": len(grid.points),
        "words": f"A person with a budget of their own releases at the largest one within it on a grid of "
        f"{task.privacy.range_words}: level 0 is the smallest budget, level {last} the largest.",
    }


SEVERAL_ROWS: Final = (
    "Each row counts as a person: if one person may have several rows, the promise is for each row, and their rows "
    "together disclose more. Name people by a column (--person)."
)

SEVERAL_RECORDS: Final = (
    "The sketch protects each record, not a person: if one person may have several records, name the column of people "
    "in the task (summaries.person, with summaries.rows_per_person), so that the promise is for the person."
)


def describe_level(guarantee: Guarantee, mechanism: Any) -> dict[str, Any]:
    """Describe the guarantee of a mechanism's release, as data and in words.

    ``right_at_most`` is the largest probability that an adversary who knows all else guesses which of two records was
    released, (1 + delta(0)) / 2. A sketch's guarantee compares a record with a blank one, its ``replace_one`` any two
    records.
    """
    if mechanism.kind in CENTRAL:
        words, replaced = described(mechanism)
        return {
            "guarantee": mechanism.stated.to_dict(),
            "replace_one": replaced.to_dict(),
            "right_at_most": replaced.max_attack_accuracy,
            "words": words,
        }
    given = really_given(guarantee, mechanism.guarantees)
    return {
        "guarantee": given.to_dict(),
        "mechanism": mechanism.kind,
        "right_at_most": given.max_attack_accuracy,
        "words": given.describe(),
    }


def describe_cap(task: Task, *, people_are_rows: bool = False) -> str:
    """Describe the guarantee of all releases of one person, or of one row of a file without a column of people."""
    words = _describe_cap(task, people_are_rows=people_are_rows)
    return f"{words} {task.known_words}" if task.known_columns else words


def _describe_cap(task: Task, *, people_are_rows: bool) -> str:
    cap = task.privacy.per_person
    if task.of_organisations:
        if cap is None:
            return "One window an organisation, at its level."
        return f"All windows of one organisation together: {against_a_blank_record(cap)}"
    if task.privacy.renews:
        words = _describe_windows(task.privacy)
        return f"{words} {SEVERAL_ROWS}" if people_are_rows else words
    if people_are_rows:
        bound = "One release a row" if cap is None else f"All releases of one row together: {cap.describe()}"
        return f"{bound.removesuffix('.')}. {SEVERAL_ROWS}"
    if cap is None:
        return "One release a person, at their level."
    return f"All releases of one person together: {cap.describe()}"


_REPEATS: Final = (
    "Caps count new answers: while a coded record is unchanged, its person repeats their last answer, which tells "
    "nothing further about it. But repeated answers show which ones are one person's, and a new answer shows that the "
    "record has changed, and when: no noise hides that. If values change in every window, all answers are new, and the "
    "joint guarantee of new answers holds. Once a cap on all windows is spent, the last answer is repeated, whatever "
    "the record is."
)
SEVERAL_WINDOWS: Final = 10  # number of windows for which the joint guarantee is stated as an example


def _describe_windows(privacy: PrivacyBlock) -> str:
    """Describe the guarantee of all releases of one person within a window, and over several."""
    cap, whole = privacy.per_person, privacy.lifetime
    each = "One release a person and window, at their level" if cap is None else "All releases of one person and window"
    end = "" if whole is None else f" Over all windows: {whole.describe()}"
    # Without a cap, further levels have guarantees of their own, which are described as such.
    promise = "." if cap is None and privacy.further_levels else f": {(cap or privacy.guarantee).describe()}"
    again = f" {_REPEATS}" if privacy.repeats_answers else ""
    return f"{describe_renewal(privacy)}. {each}{promise}{end}{again}"


def describe_renewal(privacy: PrivacyBlock) -> str:
    """Return the figures of a budget that renews, as in "At most mu = 1 a week, and mu = 3.163 over 10 weeks".

    Without a cap each level has a budget of its own; for a grid of levels the largest is stated.
    """
    if privacy.per_person is not None:
        budgets = {"": privacy.per_person}
    elif privacy.grid is not None:
        budgets = {"at the largest level ": privacy.levels[str(len(privacy.grid.points) - 1)]}
    else:
        several = bool(privacy.further_levels)
        budgets = {f"at level {name} " if several else "": each for name, each in privacy.levels.items()}
    parts = []
    for level, budget in budgets.items():
        part = f"{level}at most {figures(budget)} {each_of(privacy.window)}"
        together = Accountant().compose(budget, SEVERAL_WINDOWS).strongest()
        if together is not None:
            part += f", and {figures(together)} over {many_of(privacy.window, SEVERAL_WINDOWS)}"
        parts.append(part)
    words = "; ".join(parts)
    words = words[0].upper() + words[1:]
    if privacy.lifetime is None:
        return f"{words}; no cap over all windows (privacy.lifetime)"
    return f"{words}; {figures(privacy.lifetime)} over all windows"


def per_unit(units: Units, estimate: Estimate, level: float) -> dict[str, dict[str, Any]]:
    """Return coefficients and intervals per unit of each feature, with the ``factor`` and ``shift`` that convert.

    Effects are cut to the possible range. Entries of log odds also have odds ratios.
    """
    columns = estimate.values, *estimate.ends(level), estimate.standard_errors
    return {
        name: {
            **_in_unit(unit, float(value), (float(low), float(high)), shift=unit.shift),
            "std_error": float(error) * abs(unit.factor),
            "factor": unit.factor,
            "shift": unit.shift,
        }
        for name, value, low, high, error in zip(estimate.names, *columns, strict=True)
        if (unit := units.get(name)) is not None
    }


_BOUND: Final = 0.5  # bounds on the share of cut targets are reported if they are below this share


def cut(task: Task, estimate: Estimate) -> tuple[float, float] | None:
    """Return the ends to which a real target's values are cut, in its units; None if only its bounds apply."""
    ends, target = getattr(estimate, "cut", None), task.target
    if ends is None or not isinstance(target, RealTarget):
        return None
    middle, half = (target.high + target.low) / 2.0, (target.high - target.low) / 2.0
    low, high = (middle + half * each for each in ends)
    return max(low, target.low), min(high, target.high)


def cut_share(estimate: Estimate) -> dict[str, float] | None:
    """Return the share of targets beyond the ends, and an upper bound on that share, as fractions; None if unknown."""
    found: tuple[float, float] | None = getattr(estimate, "share_cut", None)
    if found is None:
        return None
    share, most = found
    return {"share": min(share, most), "most": most}


def _cut_words(task: Task, ends: tuple[float, float], share: Mapping[str, float] | None) -> str:
    assert isinstance(task.target, RealTarget)
    low, high = ends
    sides = [f"below {number(low)}"] * (low > task.target.low) + [f"above {number(high)}"] * (high < task.target.high)
    words = f"targets {' and '.join(sides)}, three spreads from the surveyed centre, count as that"
    if share is None:
        return words
    about, most = f"{share['share']:.1%}", share["most"]
    words += f": about {about} of them if they are spread like a normal variable"
    # If thresholds are far inside the ends, the bound is not informative.
    return f"{words}, and at most {most:.1%} (two standard errors included)" if most < _BOUND else words


def _in_unit(unit: Unit, value: float, ends: tuple[float, float], *, shift: float = 0.0) -> dict[str, Any]:
    effect, low, high = (unit.possible(each * unit.factor + shift) for each in (value, *ends))
    if low == high and ends[0] < ends[1]:
        # The interval is outside the possible range, so it is replaced by that whole range.
        low, high = unit.possible(-math.inf), unit.possible(math.inf)
    described: dict[str, Any] = {"unit": unit.label, "scale": unit.scale, "value": effect, "interval": [low, high]}
    if unit.scale == "log odds":
        described |= {"odds_ratio": odds_ratio(effect), "odds_ratio_interval": [odds_ratio(low), odds_ratio(high)]}
    return described


def coded_effects(scale: Scale, estimate: Estimate, level: float) -> tuple[Floats, Floats] | None:
    """Return average marginal effects of coded features on the target or its probability, and half-widths.

    None if they are undetermined.
    """
    pair = estimate.effects(level)
    if pair is None and scale == "log odds":
        return marginal_effects(estimate, level)
    if pair is None and scale in ("probability", "slope"):
        return estimate.values, estimate.half_widths(level)
    return pair


def average_effects(scale: Scale, units: Units, estimate: Estimate, level: float) -> dict[str, dict[str, Any]] | None:
    """Return average marginal effects per unit, cut to the possible range; None if they are undetermined."""
    pair = coded_effects(scale, estimate, level)
    if pair is None:
        return None
    return {
        name: _in_unit(unit, float(value), (float(value - half), float(value + half)))
        for name, value, half in zip(estimate.names, *pair, strict=True)
        if (unit := units.get(name)) is not None and not is_constant(name)
    }


def describe_forgetting(forget: int | None, estimate: Estimate) -> dict[str, Any] | None:
    """Describe how many releases an estimate uses, and how much wider intervals are for it; None without forgetting."""
    if forget is None:
        return None
    used, learned = estimate.releases_used, estimate.n_releases
    wider = math.sqrt(learned / used) if used else 1.0
    words = f"Of the newest {used:,} of {learned:,} releases (forget: {forget})"
    if wider >= 1.05:
        words += f": intervals are about {wider:.1f} times as wide as those of all would be"
    return {"releases": forget, "used": used, "wider": wider, "words": f"{words}."}


def cost_of_forgetting(task: Task) -> str | None:
    """Return the cost of forgetting in a sentence, for the start of a task; None if it forgets nothing."""
    if task.forget is None:
        return None
    partitions = task.log.partitions
    each = "" if partitions == 1 else f" in each of {partitions:,} partitions"
    kept = f"{task.forget * 7 // 8:,} to {task.forget:,}"
    return (
        f"forget: {task.forget}: the estimate is of the newest {kept} releases{each}, so its intervals stop "
        "shrinking; intervals half as wide take four times as many releases (docs/drift.md)"
    )


def report_estimate(
    estimate: Estimate,
    scale: Scale,
    units: Units,
    level: float,
    *,
    effects: Units | None = None,
    forecast: bool = True,
    looks: Looks | None = None,
    half_range: float | None = 1.0,
) -> dict[str, Any]:
    """Return a report's part on coefficients, in natural ``units`` where known; ``effects`` are average effects' units.

    ``forecast=False`` skips a slow forecast; ``looks`` are those for which intervals hold at ``level``, by default one.
    ``half_range`` is half the target's range in the coefficients' units, None if unknown.
    """
    nominal = level if looks is None else looks.nominal(level)
    intervals = estimate.intervals(nominal)
    with loaded_state_arithmetic():
        needs = {name: need.to_dict() for name, need in estimate.needs(nominal).items()} if forecast else {}
    looks_described = {} if looks is None else {"looks": looks.to_dict(level)}
    change = estimate.stream_change() if looks is None or looks.repeats.most == 1 else None
    at_one = level if looks is None else looks.fixed(level)
    fixed = {} if nominal == at_one else {"fixed_intervals": _listed(estimate.intervals(at_one))}
    report = {
        "coefficients": dict(zip(estimate.names, map(float, estimate.values), strict=True)),
        "standard_errors": dict(zip(estimate.names, map(float, estimate.standard_errors), strict=True)),
        "confidence_intervals": _listed(intervals),
        **fixed,
        "interval": {
            "method": intervals.method,
            "level": level,
            "nominal_level": nominal,
            "note": intervals.note,
            **looks_described,
        },
        "per_unit": per_unit(units, estimate, nominal),
        "average_effects": average_effects(scale, units if effects is None else effects, estimate, nominal),
        "effects_note": estimate.effects_note,
        "not_learned": list(needs) or estimate.not_learned(nominal),
        "needed": needs,
        "stream": None if change is None else change.to_dict(),
        "forged": describe_forgers(estimate, level),
    }
    return {**report, "too_wide": list(too_wide(report, scale, half_range))}


def _listed(intervals: Mapping[str, tuple[float, float]]) -> dict[str, list[float]]:
    return {name: list(interval) for name, interval in intervals.items()}


def report_log(
    task: Task,
    log: Log,
    *,
    level: float = 0.95,
    history: bool = False,
    people_are_rows: bool = False,
    advise: Advise | None = None,
    live: bool = False,
    looks: Validity | None = None,
    device: Device | None = None,
    shown: Task | None = None,
    at: Mapping[str, str] | None = None,
    kept: bool = False,
    repeats: Repeats | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Return the report of a log, the object that ``--json`` prints.

    ``history`` adds the estimate's path. ``people_are_rows`` tells that no column of a file names people. ``advise``
    forecasts what would help useless coefficients. Intervals of a ``live`` stream hold at every look, unless ``looks``
    states otherwise. ``device`` is by default the task's; ``shown`` is the task that the device fits, if another.
    ``at`` adds the prediction for a raw record, and ``kept`` the estimate itself (``estimate``), which is not JSON.
    ``repeats`` tells how often one person has answered, if this is known more exactly than from the task's caps.
    """
    shown = shown or task
    estimate, counts, points, drift, track = committed(task, log, device, repeats, level)
    scale = shown.coefficient_scale
    disclosure = Disclosure.of(task)
    levels = describe_levels(task)
    used = counts.get("records_learned", estimate.releases_used)
    looks_held = looks_of(task, estimate, used, live=live, asked=looks, repeats=repeats)
    found = report_estimate(estimate, scale, units(shown), level, effects=effect_units(shown), looks=looks_held)
    ends, share = cut(shown, estimate), cut_share(estimate)
    if ends is not None:
        found["interval"]["note"] += f"; {_cut_words(shown, ends, share)}"
    report = {
        "task": shown.name,
        "protocol": task.protocol,
        "objective": shown.objective,
        "odds_ratios": on_logit_scale(shown),
        "chances": fits_probabilities(shown),
        "of": describe_target(shown),
        **more,
        **counts,
        **found,
        "cut": None if ends is None else list(ends),
        "cut_share": None if ends is None else share,
        "drift": None if drift is None else drift.to_dict(),
        **({} if track is None else {"track": track.to_dict(units(shown))}),
        "repeats": looks_held.repeats.words,
        "forget": describe_forgetting(task.forget, estimate),
        **({"history": columns(points, estimate.names)} if history else {}),
        "guarantee": levels[DEFAULT_LEVEL]["guarantee"],
        "levels": levels,
        **({"grid": describe_grid(task)} if task.privacy.grid is not None else {}),
        "cap": None if task.privacy.per_person is None else task.privacy.per_person.to_dict(),
        "cap_words": describe_cap(task, people_are_rows=people_are_rows),
        "public_sample": None if disclosure is None else disclosure.to_dict(),
        "simulated": task.simulated,
        "task_hash": task.hash,
    }
    report["contrasts"] = [each.to_dict() for each in contrasts(shown, estimate, looks_held, level)] if used else []
    if estimate.sets is not None:
        report["prediction_sets"] = estimate.sets.to_dict(coded_unit(shown))
    if (cells := describe_cells(shown, estimate, looks_held.nominal(level))) is not None:
        report["cells"] = cells
        # A person who answered several times may count that often in a combination.
        of_cells = estimate.people_by_cell.values() if isinstance(estimate, KnownEstimate) else ()
        sizes = [math.ceil(people / looks_held.repeats.most) for people in of_cells]
        # With few people, most combinations are small.
        report["identifying"] = identifying_words(sizes, shown.known_columns) if sum(sizes) >= ENOUGH else ""
    if (found_experiment := experiment(shown, estimate, looks_held, level)) is not None:
        report["experiment"] = found_experiment.to_dict()
    report["missing_values"] = describe_missing(shown, estimate)
    if at is not None:
        report["prediction"] = describe_prediction(shown, estimate, at, looks_held.nominal(level))
    if kept:
        report["estimate"] = estimate
    report["diagnosis"] = diagnose_task(shown, report, estimate, advise)
    return report
