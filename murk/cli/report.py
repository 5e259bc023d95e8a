"""What a run came to: one dictionary for machines, tables and sentences for people."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from murk.cli.output import number, paragraph, table

if TYPE_CHECKING:
    from murk.learners.inference import Estimate
    from murk.stream import Task
    from murk.stream.log import Log


def tally(log: Log, chains: int) -> dict[str, Any]:
    """What became of all messages that the chains of a log have read, by their committed states."""
    from murk.stream.checkpoint import decode_state

    learned = duplicates = 0
    dead: Counter[str] = Counter()
    for chain in range(chains):
        state = log.checkpoint(chain).state
        if state is None:
            continue
        counters = decode_state(state, f"chain {chain} of {log.url}").counters
        learned += counters.learned
        duplicates += counters.duplicates
        dead.update(counters.dead)
    return {"releases": learned, "duplicates": duplicates, "dead_letters": dict(dead)}


def describe_levels(task: Task) -> dict[str, dict[str, Any]]:
    """Each level of the menu: its guarantee as data and in plain words.

    ``right_at_most`` is how often an adversary who knows all else tells any two records apart: (1 + delta(0)) / 2.
    """
    return {
        level: {
            "guarantee": guarantee.to_dict(),
            "right_at_most": (1.0 + guarantee.to("approx", epsilon=0.0).to_dict()["approx"]["delta"]) / 2.0,
            "words": guarantee.describe(),
        }
        for level, guarantee in task.privacy.levels.items()
    }


def per_unit(task: Task, estimate: Estimate, level: float) -> dict[str, dict[str, Any]]:
    """Coefficients and intervals per unit of each feature, with what a unit is, in words."""
    coding = task.coding
    if task.objective == "softmax":
        return {}
    factors = dict(zip(coding.names, coding.unit_factors.tolist(), strict=True))
    labels = dict(zip(coding.names, coding.unit_labels, strict=True))
    halves = estimate.half_widths(level)
    found = {}
    for name, value, half in zip(estimate.names, estimate.values, halves, strict=True):
        if name not in factors:
            continue
        effect, width = float(value) * factors[name], float(half) * factors[name]
        found[name] = {"unit": labels[name], "value": effect, "interval": [effect - width, effect + width]}
    return found


def result(task: Task, estimate: Estimate, log: Log, *, level: float = 0.95, **more: Any) -> dict[str, Any]:
    """The one object that ``--json`` prints."""
    intervals = estimate.intervals(level)
    return {
        "task": task.name,
        **more,
        **tally(log, task.log.partitions),
        "coefficients": dict(zip(estimate.names, map(float, estimate.values), strict=True)),
        "confidence_intervals": {name: list(interval) for name, interval in intervals.items()},
        "interval": {"method": intervals.method, "level": intervals.level, "note": intervals.note},
        "per_unit": per_unit(task, estimate, level),
        "guarantee": task.privacy.guarantee.to_dict(),
        "levels": describe_levels(task),
        "simulated": task.simulated,
        "task_hash": task.hash,
    }


def print_result(found: Mapping[str, Any]) -> None:
    """Print a result for people."""
    click.echo()
    odds = found.get("objective") == "logistic"
    rows = []
    for name, value in found["coefficients"].items():
        low, high = found["confidence_intervals"][name]
        row = [name, number(value), f"{number(low)} .. {number(high)}"]
        unit = found["per_unit"].get(name)
        if unit is not None:
            effect, (least, most) = unit["value"], unit["interval"]
            if odds:
                effect, least, most = math.exp(effect), math.exp(least), _exp(most)
            row += [unit["unit"], number(effect), f"{number(least)} .. {number(most)}"]
        else:
            row += ["", "", ""]
        rows.append(row)
    percent = f"{100 * found['interval']['level']:.0f}%"
    effect = "odds ratio" if odds else "effect"
    table(
        f"{found['task']}: {found['releases']:,} releases learned",
        ["coefficient", "coded", f"{percent} interval", "per", effect, f"{percent} interval"],
        rows,
    )
    paragraph(f"Intervals by {found['interval']['method']}: {found['interval']['note']}.")
    click.echo()
    for level, promise in found["levels"].items():
        paragraph(f"Promised at level {level}: {promise['words']}", "  ")
    if found["simulated"]:
        click.echo("SIMULATED: the noise was drawn from a seed, so nobody's privacy was protected.")
    dead = sum(found["dead_letters"].values())
    reasons = "".join(f", {count:,} {reason}" for reason, count in found["dead_letters"].items())
    refused = f"{found['refusals']:,} refused for want of budget, " if "refusals" in found else ""
    click.echo(f"{refused}{found['duplicates']:,} duplicates, {dead:,} dead letters{reasons}")


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf


def brief(estimate: Estimate, level: float = 0.95, most: int = 2) -> str:
    """The first coefficients with their half widths, for a progress line."""
    halves = estimate.half_widths(level)
    parts = [
        f"{name} {number(float(value))} ± {number(float(half))}"
        for name, value, half in list(zip(estimate.names, estimate.values, halves, strict=True))[:most]
    ]
    return "  ".join(parts)
