"""``murk reproduce``: where the reproductions of the papers are."""

from __future__ import annotations

import click

from murk.errors import UserError


@click.command("reproduce", context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(arguments: tuple[str, ...]) -> None:
    """Say how to reproduce the papers' tables and figures.

    They are in Murk's repository, not in the package.
    """
    asked = " ".join(["python -m reproductions", *arguments])
    raise UserError(f"the papers' tables and figures are reproduced from a checkout of Murk's repository: {asked}")
