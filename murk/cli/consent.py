"""What a command says before anything of people becomes public, and whether it asks."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from murk.errors import UserError

if TYPE_CHECKING:
    from murk.stream.task.disclosure import Disclosure

yes = click.option(
    "--yes", is_flag=True, help="Agree to what becomes public (the task's public sample) without being asked."
)

_CHOICES = (
    "nothing was published and nothing was begun. Choices: public: {file: ...} with features that everybody may know, "
    "public: {set_aside: N} with fewer people, or no public sample"
)


def asking(url: str, source: str | None = None, *, simulated: bool, agreed: bool) -> Callable[[Disclosure], None]:
    """Return what says what becomes public on a log and of whom, and asks whether it may.

    Simulations say it and do not ask, since their releases protect nobody either. With real noise somebody must
    agree: at the terminal, or beforehand (``agreed``). Where there is no terminal nothing is published without that.

    Parameters
    ----------
    url
        The log that it would be written to.
    source
        The file that people are set aside from.
    simulated, agreed
        Whether noise is simulated; whether ``--yes`` was given.
    """

    def agree(disclosure: Disclosure) -> None:
        text = disclosure.announce(url, source)
        if simulated or agreed:
            click.echo(text, err=True)
            return
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise UserError(f"{text} There is no terminal to ask at; say --yes to agree. Until then {_CHOICES}")
        click.echo(text, err=True)
        if not click.confirm("Publish them?", err=True):
            raise UserError(_CHOICES)

    return agree
