"""Announce what becomes public, and ask for consent."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from murk.errors import UserError

if TYPE_CHECKING:
    from murk.stream.task.task import Disclosure

F = TypeVar("F", bound=Callable[..., Any])

_MAKE_PUBLIC = click.option(
    "--make-public", type=click.IntRange(1), metavar="N",
    help="Agree without a prompt that the features of at most N people become public (the task's public sample).",
)  # fmt: skip
# Accepted for compatibility; never counts as consent.
_YES = click.option("--yes", is_flag=True, hidden=True, expose_value=False, help="Has no effect.")


def make_public(function: F) -> F:
    """Add options for consent to a command."""
    return _MAKE_PUBLIC(_YES(function))


_ALTERNATIVES = (
    "nothing was published or started. Alternatives: public: {file: ...} with features that everybody may know, "
    "public: {set_aside: N} with fewer people, or no public sample"
)


def asking(url: str, source: str | None = None, *, simulated: bool, agreed: int | None) -> Callable[[Disclosure], None]:
    """Return a function that announces a disclosure and asks for consent.

    A simulation announces without asking, since its releases protect nobody. With real noise, the operator must agree
    at the terminal, unless ``agreed`` (``--make-public``) is at least the number of people whose features become
    public. ``url`` is the log to which the sample is written, ``source`` the file from which people are set aside.
    """

    def agree(disclosure: Disclosure) -> None:
        text = disclosure.announce(url, source)
        number = disclosure.people
        if simulated or (agreed is not None and number <= agreed):
            click.echo(text, err=True)
            return
        if agreed is not None:
            raise UserError(
                f"{text} Consent was given for only {agreed:,} people: pass --make-public {number} to agree. So far "
                f"{_ALTERNATIVES}"
            )
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise UserError(
                f"{text} There is no terminal to ask at: pass --make-public {number} to agree. So far {_ALTERNATIVES}"
            )
        click.echo(text, err=True)
        if not click.confirm("Publish them?", err=True):
            raise UserError(_ALTERNATIVES)

    return agree
