"""What a command says before anything of people becomes public, and whether it asks."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from murk.errors import UserError

if TYPE_CHECKING:
    from murk.stream.task.disclosure import Disclosure

F = TypeVar("F", bound=Callable[..., Any])

_MAKE_PUBLIC = click.option(
    "--make-public", type=click.IntRange(1), metavar="N",
    help="Agree, without being asked, that the features of at most N people become public (the task's public sample).",
)  # fmt: skip
# Scripts of before give it. It never agrees to anything that becomes public.
_YES = click.option("--yes", is_flag=True, hidden=True, expose_value=False, help="Has no effect.")


def make_public(function: F) -> F:
    """Options by which a command is told beforehand what may become public."""
    return _MAKE_PUBLIC(_YES(function))


_CHOICES = (
    "nothing was published and nothing was begun. Choices: public: {file: ...} with features that everybody may know, "
    "public: {set_aside: N} with fewer people, or no public sample"
)


def asking(url: str, source: str | None = None, *, simulated: bool, agreed: int | None) -> Callable[[Disclosure], None]:
    """Return what says what becomes public on a log and of whom, and asks whether it may.

    Simulations say it and do not ask, since their releases protect nobody either. With real noise somebody must
    agree: at the terminal, or beforehand to so many people (``agreed``): a task that asks for more than whoever started
    the command knew of publishes nothing. Where there is no terminal nothing is published without that.

    Parameters
    ----------
    url
        The log that it would be written to.
    source
        The file that people are set aside from.
    simulated
        Whether noise is simulated.
    agreed
        The number of people that ``--make-public`` agrees to; None where it was not given.
    """

    def agree(disclosure: Disclosure) -> None:
        text = disclosure.announce(url, source)
        number = disclosure.people
        if simulated or (agreed is not None and number <= agreed):
            click.echo(text, err=True)
            return
        if agreed is not None:
            raise UserError(
                f"{text} Agreed was to {agreed:,} people: say --make-public {number} to agree to that. Until then "
                f"{_CHOICES}"
            )
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise UserError(
                f"{text} There is no terminal to ask at; say --make-public {number} to agree. Until then {_CHOICES}"
            )
        click.echo(text, err=True)
        if not click.confirm("Publish them?", err=True):
            raise UserError(_CHOICES)

    return agree
