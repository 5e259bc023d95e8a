"""``murk init``: a first task file."""

from __future__ import annotations

import re
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from murk._files import write_whole
from murk.cli.options import as_json, guarantee
from murk.cli.output import print_json
from murk.errors import UserError

if TYPE_CHECKING:
    from murk.cli.draft.columns import Column
    from murk.privacy import Guarantee

_REMEDY = (
    "say it in --columns, as in --columns 'age:21..35, sex:f|m, born:1950-01-01..2005-12-31'; or give a file of other "
    "people's records that is public with --public; or, of a simulation, the people's own with --source and "
    "--simulation"
)


@click.command("init")
@click.argument("name", metavar="[NAME]", required=False)
@click.option("--columns", multiple=True, metavar="LIST",
              help="What is public of each column: age:21..35, sex:f|m, born:1950-01-01..2005-12-31.")  # fmt: skip
@click.option("--target", metavar="COLUMN",
              help="What to learn, also as in worked:no|yes (yes is positive).  [default: the last one]")  # fmt: skip
@click.option("--public", metavar="FILE", help="A file of public records, to read columns, bounds and categories off.")
@click.option("--source", metavar="FILE", help="The people's own file, likewise; with --simulation only.")
@click.option("--simulation", is_flag=True, help="The task is for simulated noise: its people's file may be looked at.")
@click.option("--guarantee", "promise", type=guarantee, default="gdp:1", show_default=True, metavar="GUARANTEE",
              help="What a release promises: gdp:MU, zcdp:RHO, pure:E or approx:E,DELTA.")  # fmt: skip
@click.option("--rate", type=click.FloatRange(0.0, 1.0, min_open=True, max_open=True), metavar="SHARE",
              help="Share of positive targets, where that is publicly known: target.rate of the task.")  # fmt: skip
@click.option("--people", type=click.IntRange(1, 10**12), metavar="N",
              help="How many will release: the protocol with the smallest half widths by forecast is written into the "
                   "task.")  # fmt: skip
@click.option("--out", metavar="FILE", help="Where it is written.  [default: NAME.yaml]")
@as_json
def command(
    name: str | None, columns: tuple[str, ...], target: str | None, public: str | None, source: str | None,
    simulation: bool, promise: Guarantee, rate: float | None, people: int | None, out: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Write a first task file, NAME.yaml, with comments that say where each line comes from.

    Bounds and categories are public: they are given, asked for at the terminal, or read off a file that is public.
    Where the people's own file is looked at, which only a simulation may, each line that it fed says so. Without NAME
    the task is named as the file that is looked at.
    """
    from murk.cli.draft.columns import given
    from murk.cli.draft.text import draft

    if source is not None and not simulation:
        raise UserError(
            "bounds and categories that are read off people's own records disclose what is in them. Say what is public "
            "with --columns; or, where the task is for simulated noise only, say --simulation, too"
        )
    known = _looked_at(public, source)
    # Without --columns, all that the files have.
    chosen = [column for text in columns for column in given(text)] or list(known.values())
    if not chosen:
        raise UserError(f"there are no columns: {_REMEDY}")
    wanted = chosen[-1] if target is None else _target(target, chosen)
    if not _says(wanted) and known and wanted.name not in known:
        raise UserError(
            f"--target: the column {wanted.name!r} is not in {public or source}, which has "
            f"{', '.join(map(repr, known))}"
        )
    found = [_settled(column, known) for column in chosen if column.name != wanted.name]
    called = _task_name(name or source or public or "my-task")
    path = Path(out or f"{called}.yaml")
    if path.exists():
        raise _there_already(path)
    target_column = _settled(wanted, known)
    text = draft(called, found, target_column, promise.to_dict(), rate)
    protocol, why = "", ""
    if people is not None:
        protocol, why = _by_forecast(text, people, quiet=as_json)
        text = draft(called, found, target_column, promise.to_dict(), rate, protocol or None, why)
    try:
        write_whole(path, text, new=True)
    except FileExistsError:
        raise _there_already(path) from None
    left_out = [column.name for column in found if column.without]
    if as_json:
        named = next((column.name for column in found if column.names_people), None)
        print_json({
            "file": str(path), "features": len(found) - len(left_out), "left_out": left_out, "person": named,
            "protocol": protocol or None, "forecast": why or None,
        })  # fmt: skip
        return
    more = f", {len(left_out)} left out" if left_out else ""
    click.echo(f"{path}: {wanted.name} learned from {len(found) - len(left_out)} columns{more}")
    if why:
        click.echo(why)
    named = next((column.name for column in found if column.names_people), None)
    person = "" if named is None else f" --person {shlex.quote(named)}"
    if named is not None:
        click.echo(
            f"{named} names people who have several rows, it seems: --person makes the promise theirs, not a row's"
        )
    else:
        click.echo("If one person may have several rows, name people by a column: --person COLUMN")
    click.echo(f"Look at it, then try it: murk run {path} --source {source or 'FILE'}{person} --seed 1")


def _there_already(path: Path) -> UserError:
    return UserError(f"{path} is there already: name another file with --out, or remove it")


def _by_forecast(text: str, people: int, *, quiet: bool) -> tuple[str, str]:
    """The protocol that a forecast chooses, and its reason; an empty name where nothing can be learned."""
    from murk.cli.output import progress
    from murk.learners.core.design import Effects
    from murk.planning.plan import plan, size, why_not
    from murk.planning.words import features_words, rate_words
    from murk.stream import Task

    task = Task.parse(text)
    with progress("forecast", size(task, [people], [1.0], None), quiet=quiet) as tick:
        found = plan(task, people=[people], budgets=[1.0], tick=tick)
    protocol, why = found.chosen[people]
    assumed = ", ".join(filter(None, [rate_words(task, Effects()), features_words(task)]))
    if not protocol:
        why = f"{people:,} people: {why} ({task.protocol}: {why_not(found.cells[0])})"
    return protocol, f"By forecast: {why.rstrip('.')}. Assumed: {assumed}. More: murk plan"


def _target(text: str, chosen: list[Column]) -> Column:
    """The column that --target names; what it says of it, else what --columns says, comes first."""
    from murk.cli.draft.columns import given

    columns = given(text)
    if len(columns) != 1:
        raise UserError(f"--target {text!r} names {len(columns)} columns: name one, in double quotes if it has a comma")
    [column] = columns
    return column if _says(column) else next((one for one in chosen if one.name == column.name), column)


def _task_name(name: str) -> str:
    stem = re.sub(r"(\.(yaml|csv|jsonl|ndjson|parquet|gz))+$", "", Path(name).name.lower())
    found = re.sub(r"[^a-z0-9]+", "-", stem).strip("-")
    if not found:
        raise UserError(f"{name!r} has no letter or digit: a task's name is small letters, digits and -")
    return found[:64]


def _looked_at(public: str | None, source: str | None) -> dict[str, Column]:
    from murk.cli.draft.columns import looked_at
    from murk.producers import open_records

    known: dict[str, Column] = {}
    if source is not None:
        origin = f"SIMULATION: read off people's own records in {Path(source).name!r}"
        # Where most values lie is not needed to simulate, as bounds are: it is of public files alone.
        known |= {column.name: replace(column, typical=None) for column in looked_at(open_records(source), origin)}
    if public is not None:
        origin = f"read off {Path(public).name!r}, which is public"
        known |= {column.name: column for column in looked_at(open_records(public), origin)}
    return known


def _at_terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def _says(column: Column) -> bool:
    return bool(column.bounds or column.categories or column.without)


def _settled(column: Column, known: dict[str, Column]) -> Column:
    """A column with what is public of it: as given, as a file shows, or as somebody says when asked."""
    from murk.cli.draft.columns import GRAMMAR, dashed, described

    if _says(column):
        return column
    if column.name in known:
        return known[column.name]
    if meant := dashed(column.name):
        raise UserError(f"{column.name!r}: a range is written with two dots: {meant}")
    if not _at_terminal():
        raise UserError(f"nothing is said of the column {column.name!r}, and there is no terminal to ask at: {_REMEDY}")
    while True:
        text = click.prompt(f"{column.name}: {GRAMMAR} (public knowledge; - to leave it out)", err=True)
        if text.strip() == "-":
            return replace(column, without="nothing was said of it", origin="asked")
        try:
            return described(column.name, text, "asked")
        except UserError as error:
            click.echo(str(error), err=True)
