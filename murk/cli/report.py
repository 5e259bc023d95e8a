"""Print results and notices of logs and populations for people."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from murk._internal.numbers import NOT_LEARNED, TOO_WIDE, many, number
from murk.cli.output import paragraph, print_json, table
from murk.inference.confidence_sequences import looks_of, used_count
from murk.inference.estimate import Estimate
from murk.inference.units import effect_units
from murk.planning.outlook import outlook
from murk.results.report import SEVERAL_RECORDS, SEVERAL_ROWS, coded_effects, cost_of_forgetting
from murk.results.text import SIMULATED, Block, Table, describe_learned, describe_privacy
from murk.stream.wire.state import LEVEL
from murk.task import Task
from murk.task.coding import is_constant
from murk.task.shuffling import COLLUDING

if TYPE_CHECKING:
    from murk.populations.file_work import FilePopulation, PopulationConfig
    from murk.task.windows import Repeats


def print_result(found: Mapping[str, Any], *, as_json: bool) -> None:
    """Print the report of a run or a log, as JSON or for people."""
    if as_json:
        print_json(found)
        return
    click.echo()
    _show(describe_learned(found))
    print_windows(found)
    print_labels(found)
    _show(describe_privacy(found))
    print_accounts(found)
    if found["simulated"]:
        click.echo(SIMULATED)
    dead = sum(found["dead_letters"].values())
    reasons = "".join(f", {count:,} {reason}" for reason, count in found["dead_letters"].items())
    refused = f"{found['refusals']:,} refused (budget spent), " if "refusals" in found else ""
    click.echo(f"{refused}{found['duplicates']:,} duplicates, {dead:,} dead letters{reasons}")


def _show(blocks: Iterable[Block]) -> None:
    for block in blocks:
        if isinstance(block, Table):
            table(block.title, list(block.columns), [list(row) for row in block.rows])
        else:
            paragraph(block.text, block.hang)


def print_windows(found: Mapping[str, Any]) -> None:
    """Print the numbers of organisations' windows by outcome, if there are any."""
    if "windows" not in found:
        return
    rows = found["sketch_rows"]
    parts = [
        f"{many(found['windows'], 'window')} of {many(found['organisations'], 'organisation')}: "
        f"{many(found['records_released'], 'record')} in "
        + ("second moments." if rows is None else f"sketches of {rows:,} rows.")
    ]
    if found["windows_left_out"]:
        few = "fewer than a record has numbers" if rows is None else "fewer than a sketch has rows"
        parts.append(f"{many(found['records_left_out'], 'record')} at the end left out as too few for a window: {few}.")
    if found["windows_lost"]:
        parts.append(
            f"{many(found['windows_lost'], 'window')} lost when a process died: nothing was debited for them, and "
            "their rows were read again."
        )
    paragraph(" ".join(parts))
    if found["refusals"]:
        paragraph(f"{many(found['refusals'], 'window')} refused: {found['refusal']}.")


def print_labels(found: Mapping[str, Any]) -> None:
    """Print how many labels of a simulation the task does not declare, if there are any."""
    labels = found.get("undeclared_labels")
    if labels and labels["rows"]:
        which = "one value" if labels["values"] == 1 else f"{labels['values']:,} different values"
        paragraph(
            f"{many(labels['rows'], 'record')} with a target that the task does not declare ({which}), counted as not "
            "positive. If the task states target.negative, other values are refused."
        )


def say_notice(task: Task, population: FilePopulation, quiet: bool, *, rate: float | None = None) -> None:
    """Print warnings; unless ``quiet``, also notices about earlier runs, forgetting and the forecast."""

    def say(*notices: str | None) -> None:
        for notice in filter(None, notices):
            click.echo(f"{task.name}: {notice}", err=True)

    of_rows = population.source.people == "row"
    say(*(f"caution: {warning}" for warning in (*population.warnings, *population.findings)))
    if population.crowd.policy.lifetime is not None and of_rows and not (task.of_organisations or task.simulated):
        say(
            "caution: people are rows of the file: nobody is recognised in a sorted or corrected copy, so this ledger "
            "refuses such a copy, and no withdrawal applies to it. Name people by a column (--person)"
        )
    if quiet:
        return
    if task.of_organisations:
        say(f"caution: {SEVERAL_RECORDS}" if task.block.person is None else None)
    else:
        say(f"caution: {SEVERAL_ROWS}" if of_rows else None)
    say(population.notice)
    for level, both in promises(task).items():
        say(*(f"level {level}: {each}" for each in both))
    say(cost_of_forgetting(task))
    # A resumed run has results to show.
    if population.next_position == 0:
        say(
            outlook(
                task, population.size - len(population.excluded), population.crowd.level, rate, population.repeats()
            )
        )


def promises(task: Task) -> dict[str, list[str]]:
    """Return both guarantees of each level of a shuffled task, in words; none if it is not shuffled."""
    if (shuffle := task.shuffle) is None:
        return {}
    levels = task.privacy.levels.items()
    return {level: [f"{COLLUDING}: {local.describe()}", shuffle.promised(local).describe()] for level, local in levels}


def print_accounts(found: Mapping[str, Any]) -> None:
    """Print what people have spent on all tasks together, and the path of the ledger."""
    if "ledger" in found:
        paragraph(f"Accounts: {found['ledger']}. {' '.join(f'{each}.' for each in found['together_words'])}")


def print_check(task: Task, crowd: PopulationConfig, as_json: bool) -> None:
    """Check a population's file against the task without opening a log; raise `UserError` for the first mistake."""
    from murk.populations.file_work import check_records
    from murk.populations.local_run import describe_tally

    tally = check_records(task, crowd)
    if as_json:
        counts = {} if crowd.person is None else {"people": tally.people, "most_records": tally.most}
        print_json({"task": task.name, "source": str(crowd.source), "records": tally.rows, **counts, "checked": True})
    else:
        count = many(tally.rows, "row") if crowd.person is None else describe_tally(tally, task.privacy.window)
        fits = f"{count}, all as the task {task.name!r} declares them"
        click.echo(f"{crowd.source}: {fits}. Nothing was sent")


def brief(task: Task, estimate: Estimate, engines: Sequence[Any], repeats: Repeats | None = None) -> str:
    """Return a progress line with two average effects, their half-widths, and the looks at which these hold.

    ``repeats`` tells how often one person answers, by default as often as caps allow. Effects are in the units of the
    forecast before the run. Without average effects, the line has coefficients in coded units.
    """
    looks = looks_of(task, estimate, used_count(task, estimate, engines), live=True, repeats=repeats)
    level, units = looks.nominal(LEVEL), effect_units(task)
    pair = coded_effects(task.coefficient_scale, estimate, level)
    if pair is None or not units:
        pair, units, after = (estimate.values, estimate.half_widths(level)), {}, " (coded)"
    else:
        after = "" if task.target.kind == "real" else " points" if task.features else "%"
    parts = []
    for name, value, half in zip(estimate.names, pair[0].tolist(), pair[1].tolist(), strict=True):
        if (units and name not in units) or (task.features and is_constant(name)):
            continue
        unit = units.get(name)
        factor, shift, label = (1.0, 0.0, name) if unit is None else (unit.factor, unit.shift, unit.label)
        label_shown = name if task.features else label
        words = f"{number(value * factor + shift)} ± {number(half * factor)}{after}"
        if unit is not None and half * factor > unit.high - max(unit.low, 0.0):
            # The interval contains everything that is possible.
            words = TOO_WIDE if math.isfinite(half) else NOT_LEARNED
        parts.append(f"{label_shown} {words}")
    return "  ".join([*parts[:2], "at every look"] if looks.validity == "always-valid" else parts[:2])
