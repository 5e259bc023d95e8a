"""``murk config``: every setting, and where its value comes from."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import click
from click.core import ParameterSource

from murk.cli.configuration import KAFKA, Configuration, settable
from murk.cli.options import as_json
from murk.cli.output import print_json, table

ORDER = ("flag", "environment", "properties", "file", "default")
"""Where a value may come from, the strongest first; ``properties`` is the file that MURK_KAFKA_CONFIG names."""

_PASSWORD = re.compile(r"://.*@", re.DOTALL)
"""Up to the last @: a password may have any character in it."""


class Setting(NamedTuple):
    """A setting, with what it is here: the command, its name, its value, the kind of place and the place itself."""

    command: str
    key: str
    value: Any
    origin: str
    place: str | None


@click.command("config", context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True})
@click.option("--all", "everything", is_flag=True, help="Settings that nothing says anything of, too.")
@as_json
@click.argument("command_line", nargs=-1, type=click.UNPROCESSED, metavar="[COMMAND [FLAGS]...]")
@click.pass_context
def command(context: click.Context, everything: bool, as_json: bool, command_line: tuple[str, ...]) -> None:
    """Show every setting, of all commands or of COMMAND with these FLAGS, and where its value comes from.

    The order is: a flag, the variable MURK_COMMAND_SETTING, the variable MURK_SETTING (for log, ledger, lifetime, wait,
    verbose, log-json and metrics-host), [COMMAND] in the file, the file's first lines, the default. Passwords are
    masked. Nothing is opened or begun.
    """
    from murk.cli import _Lazy
    from murk.errors import UserError

    group = context.find_root()
    assert isinstance(group.command, _Lazy)
    known = group.command.list_commands(group)
    name, flags = (command_line[0], list(command_line[1:])) if command_line else (None, [])
    if name is not None and name not in known:
        raise UserError(f"there is no command {name!r}: {', '.join(known)}")
    found: list[Setting] = []
    read = Configuration()
    for one in known if name is None else [name]:
        target = group.command.get_command(group, one)
        assert target is not None
        read = group.command.configure(group, one, target)
        found += _of_command(one, target, group, read, flags)
    if name is None:
        found += _of_kafka()
    _show(found, read, as_json=as_json, everything=everything or name is not None)
    if name is None:
        from murk.stream.log.kafka.connection.settings import Settings

        # What commands refuse about a cluster this one refuses, too, when it has shown it.
        Settings.read()


def _show(found: list[Setting], read: Configuration, *, as_json: bool, everything: bool) -> None:
    if as_json:
        print_json({
            "file": None if read.path is None else str(read.path),
            "order": ORDER,
            "settings": [_shown(one)._asdict() for one in found],
        })  # fmt: skip
        return
    said = [_shown(one) for one in found if everything or one.origin != "default"]
    click.echo(f"File: {'none' if read.path is None else read.path}")
    if not said:
        click.echo("Nothing is set; --all lists what there is.")
        return
    rows = [[f"{one.command}.{one.key}", _text(one.value), one.place or one.origin] for one in said]
    table("", ["setting", "value", "from"], rows)


def _of_command(
    name: str, command: click.Command, group: click.Context, read: Configuration, flags: list[str]
) -> Iterator[Setting]:
    context = command.make_context(name, list(flags), parent=group, resilient_parsing=True)
    for key, option in settable(command).items():
        assert option.name is not None
        match context.get_parameter_source(option.name):
            case ParameterSource.COMMANDLINE:
                yield Setting(name, key, context.params[option.name], "flag", f"--{key}")
            case ParameterSource.ENVIRONMENT:
                variable = next(one for one in option.envvar or () if os.environ.get(one))
                yield Setting(name, key, os.environ[variable], "environment", variable)
            case ParameterSource.DEFAULT_MAP:
                place = read.place(name, key)
                yield Setting(name, key, read.value(name, key), "file", f"{read.path}{f' [{place}]' if place else ''}")
            case _:
                yield Setting(name, key, context.params[option.name], "default", None)


def _of_kafka() -> Iterator[Setting]:
    from murk.stream.log.kafka.connection.settings import KEYS, PREFIX, SECRETS, VARIABLE, Settings, sources

    said: Mapping[str, tuple[str, str]] = sources()
    defaults = Settings()
    for key, name in KEYS.items():
        value, place = said.get(name, (getattr(defaults, name), None))
        secret = name in SECRETS and value is not None
        origin = "default"
        if place is not None:
            origin = "environment" if place.startswith(PREFIX) else "file"
            origin = "properties" if place == os.environ.get(VARIABLE) else origin
        yield Setting(KAFKA, key, "****" if secret else value, origin, place)


def _shown(one: Setting) -> Setting:
    """The setting without a password that its value may hold, and as plain data."""
    value = one.value
    if isinstance(value, str):
        value = _PASSWORD.sub("://****@", value)
    elif isinstance(value, tuple):
        value = list(value)
    elif value is not None and not isinstance(value, bool | int | float | list):
        value = str(value)
    return one._replace(value=value)


def _text(value: Any) -> str:
    if value is None or value == []:
        return "-"
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
