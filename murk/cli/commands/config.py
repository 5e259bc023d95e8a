"""``murk config``: every setting and where its value comes from."""

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import click
from click.core import ParameterSource

from murk.cli.configuration import KAFKA, Configuration, settable
from murk.cli.options import as_json
from murk.cli.output import print_json, table

_ERROR_CODE = "MURK-CLI-002"

ORDER = ("flag", "environment", "properties", "file", "default")
"""Origins of a value in order of precedence; ``properties`` is the file named by MURK_KAFKA_CONFIG."""
_PASSWORD = re.compile(r"://.*@", re.DOTALL)
"""Beginning of a URL up to the last @, since a password may contain any character."""


class Setting(NamedTuple):
    """A setting of a command with its value, the kind of its origin and the origin itself."""

    command: str
    key: str
    value: Any
    origin: str
    place: str | None


@click.command("config", context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True})
@click.option("--all", "everything", is_flag=True, help="Also show settings at their defaults.")
@as_json
@click.argument("command_line", nargs=-1, type=click.UNPROCESSED, metavar="[COMMAND [FLAGS]...]")
@click.pass_context
def command(context: click.Context, everything: bool, as_json: bool, command_line: tuple[str, ...]) -> None:
    """Show the settings of all commands, or of COMMAND with these FLAGS, and where each value comes from.

    Precedence: a flag, the variable MURK_COMMAND_SETTING, the variable MURK_SETTING (for log, ledger, lifetime, wait,
    verbose, log-json and metrics-host), [COMMAND] in the file, the file's top level, the default. Passwords are masked.
    """
    from murk.cli import _Lazy
    from murk.errors import UserError

    group = context.find_root()
    assert isinstance(group.command, _Lazy)
    commands = group.command.list_commands(group)
    name, flags = (command_line[0], list(command_line[1:])) if command_line else (None, [])
    if name is not None and name not in commands:
        raise UserError(f"there is no command {name!r}; the commands are {', '.join(commands)}")
    settings: list[Setting] = []
    file = Configuration()
    for each in commands if name is None else [name]:
        target = group.command.get_command(group, each)
        assert target is not None
        file = group.command.configure(group, each, target)
        settings += _command_settings(each, target, group, file, flags)
    if name is None:
        settings += _kafka_settings()
    _show(settings, file, as_json=as_json, everything=everything or name is not None)
    if name is None:
        from murk.stream.log.kafka.connection.settings import Settings

        # Report invalid Kafka settings, as other commands do.
        Settings.read()


def _show(settings: list[Setting], file: Configuration, *, as_json: bool, everything: bool) -> None:
    path, displayed = file.path and str(file.path), [_masked(each) for each in settings]
    if as_json:
        print_json({"file": path, "order": ORDER, "settings": [each._asdict() for each in displayed]})
        return
    displayed = [each for each in displayed if everything or each.origin != "default"]
    click.echo(f"File: {path or 'none'}")
    if not displayed:
        click.echo("Nothing is set; --all lists all settings.")
        return
    rows = [[f"{each.command}.{each.key}", _text(each.value), each.place or each.origin] for each in displayed]
    table("", ["setting", "value", "from"], rows)


def _command_settings(
    name: str, command: click.Command, group: click.Context, file: Configuration, flags: list[str]
) -> Iterator[Setting]:
    context = command.make_context(name, list(flags), parent=group, resilient_parsing=True)
    for key, option in settable(command).items():
        assert option.name is not None
        match context.get_parameter_source(option.name):
            case ParameterSource.COMMANDLINE:
                yield Setting(name, key, context.params[option.name], "flag", f"--{key}")
            case ParameterSource.ENVIRONMENT:
                variable = next(each for each in option.envvar or () if os.environ.get(each))
                yield Setting(name, key, os.environ[variable], "environment", variable)
            case ParameterSource.DEFAULT_MAP:
                table = file.table_of(name, key)
                yield Setting(name, key, file.value(name, key), "file", f"{file.path}{f' [{table}]' if table else ''}")
            case _:
                yield Setting(name, key, context.params[option.name], "default", None)


def _kafka_settings() -> Iterator[Setting]:
    from murk.stream.log.kafka.connection.settings import KEYS, PREFIX, SECRETS, VARIABLE, Settings, sources

    configured: Mapping[str, tuple[str, str]] = sources()
    defaults = Settings()
    for key, name in KEYS.items():
        value, place = configured.get(name, (getattr(defaults, name), None))
        if place is None:
            origin = "default"
        elif place.startswith(PREFIX):
            origin = "environment"
        else:
            origin = "properties" if place == os.environ.get(VARIABLE) else "file"
        yield Setting(KAFKA, key, "****" if name in SECRETS and value is not None else value, origin, place)


def _masked(setting: Setting) -> Setting:
    """Return a setting as plain data without passwords."""
    value = setting.value
    if isinstance(value, str):
        value = _PASSWORD.sub("://****@", value)
    elif isinstance(value, list | tuple):
        value = [_PASSWORD.sub("://****@", each) if isinstance(each, str) else each for each in value]
    elif value is not None and not isinstance(value, bool | int | float | list):
        value = str(value)
    return setting._replace(value=value)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None or value == [] else str(value)
