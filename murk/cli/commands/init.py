"""``murk init``: write a first task file."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from murk._internal.atomic_files import write_whole
from murk.cli.options import as_json, guarantee, rate
from murk.cli.output import print_json
from murk.errors import UserError

if TYPE_CHECKING:
    from murk.cli.draft import Column
    from murk.privacy import Guarantee

_ERROR_CODE = "MURK-CLI-002"

_REMEDY = (
    "describe it in --columns, as in --columns 'age:21..35, sex:f|m, born:1950-01-01..2005-12-31', or give a file of "
    "public records with --public, or, for a simulation, the people's own file with --source and --simulation"
)


@click.command("init")
@click.argument("name", metavar="[NAME]", required=False)
@click.option(
    "--columns",
    multiple=True,
    metavar="LIST",
    help="Public bounds or categories: age:21..35, sex:f|m, born:1950-01-01..2005-12-31.",
)
@click.option(
    "--target",
    metavar="COLUMN",
    help="Column to learn, also worked:no|yes (yes is positive); without --columns its mean, or shares.  "
    "[default: the last column]",
)
@click.option("--public", metavar="FILE", help="File of public records to take columns, bounds and categories from.")
@click.option("--source", metavar="FILE", help="The people's own file, instead of --public; only with --simulation.")
@click.option(
    "--simulation", is_flag=True, help="The task is for simulated noise, so the people's own file may be read."
)
@click.option(
    "--guarantee",
    "promise",
    type=guarantee,
    default="gdp:1",
    show_default=True,
    metavar="GUARANTEE",
    help="Guarantee of a release: gdp:MU, zcdp:RHO, pure:E or approx:E,DELTA.",
)
@rate(help="Publicly known share of positive targets: target.rate of the task.")
@click.option(
    "--people",
    type=click.IntRange(1, 10**12),
    metavar="N",
    help="Number of people: choose the protocol with the smallest forecast half-widths.",
)
@click.option("--out", metavar="FILE", help="File to write.  [default: NAME.yaml]")
@as_json
def command(
    name: str | None,
    columns: tuple[str, ...],
    target: str | None,
    public: str | None,
    source: str | None,
    simulation: bool,
    promise: Guarantee,
    rate: float | None,
    people: int | None,
    out: str | None,
    as_json: bool,
) -> None:
    """Write a first task file, NAME.yaml, with comments on the origin of each line.

    Bounds and categories are public: give them, enter them at the terminal, or take them from a public file. Only a
    simulation may read the people's own file; lines that depend on it say so. Without NAME, the file's name is used.
    """
    from murk.cli.draft import draft, given, proposed_person

    if source is not None and not simulation:
        raise UserError(
            "bounds and categories taken from people's own records disclose their content. Give public ones with "
            "--columns, or add --simulation if the task is for simulated noise only"
        )
    public_columns = _looked_at(public, source)
    chosen = [column for text in columns for column in given(text)] or list(public_columns.values())
    if not chosen and target is None:
        raise UserError(f"there are no columns: {_REMEDY}")
    wanted = chosen[-1] if target is None else _target(target, chosen)
    if not _is_described(wanted) and public_columns and wanted.name not in public_columns:
        there = ", ".join(map(repr, public_columns))
        raise UserError(f"--target: the column {wanted.name!r} is not in {public or source}, which has {there}")
    found = [_settled(column, public_columns) for column in chosen if column.name != wanted.name]
    called = _task_name(name or source or public or "my-task")
    path = Path(out or f"{called}.yaml")
    there_already = UserError(f"{path} exists already: name another file with --out, or remove it")
    if path.exists():
        raise there_already
    target_column = _settled(wanted, public_columns)
    warned = _cautions(source or public, [column.name for column in found if not column.without], wanted.name)
    write = partial(draft, called, found, target_column, promise.to_dict(), rate, cautions=warned)
    text = write()
    protocol, why = "", ""
    if people is not None:
        protocol, why = _by_forecast(text, people, quiet=as_json)
        text = write(protocol=protocol or None, why=why)
    try:
        write_whole(path, text, new=True)
    except FileExistsError:
        raise there_already from None
    left_out = [column.name for column in found if column.without]
    named = proposed_person(found)
    if as_json:
        print_json(
            {
                "file": str(path),
                "features": len(found) - len(left_out),
                "left_out": left_out,
                "person": named,
                "cautions": warned,
                "protocol": protocol or None,
                "forecast": why or None,
            }
        )
        return
    more = f", {len(left_out)} left out" if left_out else ""
    by = f"learned from {len(found) - len(left_out)} columns{more}" if found else "alone: its mean, or shares"
    click.echo(f"{path}: {wanted.name} {by}")
    for caution in warned:
        click.echo(f"Caution: {caution}")
    if why:
        click.echo(why)
    person = "" if named is None else f" --person {shlex.quote(named)}"
    if named is not None:
        click.echo(f"{named} seems to name people with several rows: --person protects people instead of rows")
    else:
        click.echo("If one person may have several rows, name people by a column: --person COLUMN")
    click.echo(f"Review the file, then try it: murk run {path} --source {source or 'FILE'}{person} --seed 1")


def _cautions(path: str | None, features: Sequence[str], target: str) -> list[str]:
    """Return cautions about relations between columns of a file, if one was read."""
    if path is None:
        return []
    from murk.cli.relations import cautions, sampled
    from murk.populations import open_records

    records = open_records(path)
    there = set(records.table([]).names)
    names = [name for name in (*features, target) if name in there]
    if target not in there or len(names) < 2:
        return []
    return list(cautions(sampled(records, names), target))


def _by_forecast(text: str, people: int, *, quiet: bool) -> tuple[str, str]:
    """Return the protocol chosen by a forecast and the reason; an empty protocol if nothing can be learned."""
    from murk.cli.output import progress
    from murk.planning.outlook import features_words, missing_words, rate_words
    from murk.planning.plan import plan, size, why_not
    from murk.protocols.population import Effects
    from murk.task import Task
    from murk.task.features import BinaryTarget

    task = Task.parse(text)
    with progress("forecast", size(task, [people], [1.0], None), quiet=quiet) as tick:
        forecast = plan(task, people=[people], budgets=[1.0], tick=tick)
    protocol, why = forecast.chosen[people]
    rate = rate_words(task, Effects(), option=isinstance(task.target, BinaryTarget))
    assumed = ", ".join(filter(None, [rate, features_words(task), missing_words(task)]))
    if not protocol:
        why = f"{people:,} people: {why} ({task.protocol}: {why_not(forecast.cells[0])})"
    return protocol, f"By forecast: {why.rstrip('.')}. Assumed: {assumed}. More: murk plan"


def _target(text: str, chosen: list[Column]) -> Column:
    """Return the column that --target names; its description there overrides that in --columns."""
    from murk.cli.draft import given

    columns = given(text)
    if len(columns) != 1:
        raise UserError(f"--target {text!r} names {len(columns)} columns: name one, in double quotes if it has a comma")
    [column] = columns
    return column if _is_described(column) else next((each for each in chosen if each.name == column.name), column)


def _task_name(name: str) -> str:
    stem = re.sub(r"(\.(yaml|csv|jsonl|ndjson|parquet|gz))+$", "", Path(name).name.lower())
    task_name = re.sub(r"[^a-z0-9]+", "-", stem).strip("-")
    if not task_name:
        raise UserError(f"{name!r} has no letter or digit: a task's name consists of lowercase letters, digits and -")
    return task_name[:64]


def _looked_at(public: str | None, source: str | None) -> dict[str, Column]:
    from murk.cli.draft import looked_at
    from murk.populations import open_records

    columns: dict[str, Column] = {}
    if source is not None:
        origin = f"SIMULATION: taken from people's own records in {Path(source).name!r}"
        columns |= {column.name: column for column in looked_at(open_records(source), origin)}
    if public is not None:
        origin = f"read off {Path(public).name!r}, which is public"
        columns |= {column.name: column for column in looked_at(open_records(public), origin)}
    return columns


def _at_terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def _is_described(column: Column) -> bool:
    return bool(column.bounds or column.categories or column.without)


def _settled(column: Column, known: dict[str, Column]) -> Column:
    """Complete a column with its public description, from the options, a file or the terminal."""
    from murk.cli.draft import GRAMMAR, dashed, described

    if _is_described(column):
        return column
    if column.name in known:
        return known[column.name]
    if meant := dashed(column.name):
        raise UserError(f"{column.name!r}: write a range as LOW..HIGH: {meant}")
    if not _at_terminal():
        raise UserError(f"the column {column.name!r} has no description, and there is no terminal to ask at: {_REMEDY}")
    while True:
        text = click.prompt(f"{column.name}: {GRAMMAR} (public knowledge; - to leave it out)", err=True)
        if text.strip() == "-":
            return replace(column, without="no description given", origin="asked")
        try:
            return described(column.name, text, "asked")
        except UserError as error:
            click.echo(str(error), err=True)
