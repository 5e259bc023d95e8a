"""``murk reproduce``: explain how to reproduce the papers."""

import shlex

import click

from murk.errors import UserError


@click.command("reproduce", context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(arguments: tuple[str, ...]) -> None:
    """Explain how to reproduce the papers' tables and figures, which requires Murk's repository."""
    line = shlex.join(["python", "-m", "reproductions", *arguments])
    raise UserError(f"the papers' tables and figures are reproduced from a checkout of Murk's repository: {line}")
