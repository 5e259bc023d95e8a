"""Print tables, prose, JSON and progress."""

import json
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from typing import Any

import click

from murk._internal.atomic_files import check_place
from murk._internal.extras import missing_extra
from murk._internal.numbers import as_json
from murk.cli.streams import terminal
from murk.errors import UserError, printable

_ERROR_CODE = "MURK-CLI-002"

_PLAIN_SECONDS = 5.0


def print_json(result: Mapping[str, Any]) -> None:
    """Print one JSON object; infinite and missing numbers become null."""
    click.echo(as_json(result))


address_as_json = click.option("--json", "as_json", is_flag=True, help="Print the address as one line of JSON.")


def print_address(task: str, server: Any, words: str, as_json: bool) -> None:
    """Print where a task's server listens, as one line of JSON or in words."""
    if as_json:
        click.echo(json.dumps({"task": task, "url": server.url, "host": server.host, "port": server.port}))
    else:
        click.echo(f"{task}: {words}")


def table(title: str, columns: list[str], rows: list[list[str]]) -> None:
    """Print a table, its first column left-aligned; markup and invisible characters of hostile cells are escaped."""
    from rich.console import Console
    from rich.table import Table

    if title:
        heading(title)
    drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for index, column in enumerate(columns):
        drawn.add_column(printable(column), justify="left" if index == 0 else "right", no_wrap=index > 0)
    for row in rows:
        drawn.add_row(*map(printable, row))
    width = None if sys.stdout.isatty() else 110
    Console(file=terminal(sys.stdout), highlight=False, markup=False, emoji=False, width=width).print(drawn)


def heading(text: str) -> None:
    """Print a heading."""
    click.secho(printable(text), terminal(sys.stdout), bold=True)


def paragraph(text: str, hang: str = "") -> None:
    """Print wrapped prose; lines after the first are indented by ``hang``."""
    width = 110 if not sys.stdout.isatty() else min(110, shutil.get_terminal_size().columns)
    click.echo(textwrap.fill(text, width, subsequent_indent=hang, break_long_words=False, break_on_hyphens=False))


Ticker = Callable[[int, str], None]
"""Callback that shows the number done and a short text."""


@contextmanager
def progress(label: str, total: int | None, *, quiet: bool = False) -> Iterator[Ticker]:
    """Show progress on standard error: a bar on a terminal, elsewhere a line every few seconds."""
    if quiet:
        yield lambda done, text: None
        return
    if not sys.stderr.isatty():
        yield _plain(label, total)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeRemainingColumn(compact=True),
        TextColumn("{task.fields[text]}", markup=False),
        console=Console(file=terminal(sys.stderr)),
        refresh_per_second=8,
    ) as bar:
        task = bar.add_task(printable(label), total=total, text="")
        yield lambda done, text: bar.update(task, completed=done, text=printable(text))


def _plain(label: str, total: int | None) -> Ticker:
    last, shown = monotonic(), ""

    def tick(done: int, text: str) -> None:
        nonlocal last, shown
        of = f" of {total:,}" if total else ""
        line = f"{label}: {done:,}{of}  {text}".rstrip()
        now = monotonic()
        if line == shown or (now - last < _PLAIN_SECONDS and done != total):
            return
        last, shown = now, line
        click.echo(line, err=True)

    return tick


_FORMATS = ("png", "svg", "pdf")


def check_picture(path: Path) -> None:
    """Raise `UserError` if the picture cannot be drawn or written, before anything is computed."""
    if path.suffix[1:].lower() not in _FORMATS:
        raise UserError(f"--picture {path}: give a file that ends in .{', .'.join(_FORMATS)}")
    if find_spec("matplotlib") is None:
        raise missing_extra("the picture needs matplotlib", "demo")
    check_place(path)
