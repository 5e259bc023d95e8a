"""Settings of commands below their flags: variables of the environment, and a file.

One order: a flag, the command's variable (``MURK_LEARN_LOG``), the variable for all commands (``MURK_LOG``), the
command's table in the file (``[learn]``), the file's first lines, the default.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import click

from murk._environment import is_of_service
from murk._printable import unseen_character
from murk.errors import UserError

FILE = "murk.toml"
PREFIX = "MURK_"
VARIABLE = "MURK_CONFIG"
MOST_BYTES = 100_000
"""Longest file of settings."""
KAFKA = "kafka"
"""The table of how to reach a cluster."""

SHARED = ("log", "ledger", "lifetime", "wait", "verbose", "log-json", "metrics-host")
"""Settings that mean the same in every command that has them, and may be set for all."""

ASKED = ("seed", "simulated", "yes", "make-public", "withdraw", "new", "migrate")
"""What decides over people's privacy at once is asked for at each command, and set nowhere else."""

ASKED_OF = {"ledger": ("task", "person", "source")}
"""So is whom one command is about: a forgotten setting would narrow a withdrawal, and `murk config` would show it."""

ALONE = ("demo",)
"""Commands that only their own settings reach: the demonstration is not to learn into a log of work."""

# Of the image, of the local broker and of tests, benchmarks and campaigns.
_OTHERS = {
    "CONFIG",
    "KERNELS",
    "REQUIRE_SERVICES",
    "POINT_STEP",
    "MUTATED",
    "KILLS",
    "LEARNER_KILLS",
    "FREEZE",
    "CALLS",
}
_OTHER_BEGINNINGS = ("KAFKA_", "SOAK", "FUZZ", "MUTANTS")

Options = Mapping[str, Mapping[str, click.Option]]
"""The options of commands that may be set, by command and by name."""


@dataclass(frozen=True)
class Configuration:
    """What a file says.

    Parameters
    ----------
    path
        The file; None where there is none.
    shared
        Settings of all commands.
    tables
        Settings by command.
    kafka
        How to reach a cluster, as in a properties file.
    """

    path: Path | None = None
    shared: Mapping[str, Any] = field(default_factory=dict)
    tables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    kafka: Mapping[str, str] = field(default_factory=dict)

    def place(self, command: str, key: str) -> str | None:
        """Return where the file sets an option of a command: the table, or "" for its first lines."""
        if key in self.tables.get(command, {}):
            return command
        return "" if key in self.shared and key in SHARED and command not in ALONE else None

    def value(self, command: str, key: str) -> Any:
        """Return what the file says of an option of a command; None where it says nothing."""
        place = self.place(command, key)
        return None if place is None else (self.tables[place] if place else self.shared)[key]


def settable(command: click.Command) -> dict[str, click.Option]:
    """Return a command's options by their names, without those that are asked for each time."""
    found = {}
    for option in command.params:
        if isinstance(option, click.Option):
            name = next((one for one in option.opts if one.startswith("--")), "--help").removeprefix("--")
            if name != "help" and not _is_asked(command.name or "", name):
                found[name] = option
    return found


def _is_asked(command: str, key: str) -> bool:
    return key in (*ASKED, *ASKED_OF.get(command, ()))


def variables(command: str, key: str) -> list[str]:
    """Return the variables that set an option of a command, the stronger one first.

    Examples
    --------
    >>> variables("learn", "log"), variables("dead-letters", "limit")
    (['MURK_LEARN_LOG', 'MURK_LOG'], ['MURK_DEAD_LETTERS_LIMIT'])
    """
    own = [f"{PREFIX}{command}_{key}"]
    shared = [f"{PREFIX}{key}"] if key in SHARED and command not in ALONE else []
    return [name.upper().replace("-", "_") for name in (*own, *shared)]


def find(path: str | None, environment: Mapping[str, str]) -> Path | None:
    """Return the file to read: the one that is named, or ``murk.toml`` where the command is run.

    Raises
    ------
    UserError
        When the one that was found and not named is another user's (settings say where releases go), or cannot be
        looked at.
    """
    named = path or environment.get(VARIABLE)
    if named:
        return Path(named)
    here = Path(FILE)
    try:
        owner = here.stat().st_uid
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        # Commands would go elsewhere than it says.
        raise UserError(
            f"{FILE} in this folder cannot be read ({error.strerror}): make it readable, or move it away"
        ) from None
    if owner not in (0, os.getuid()):
        raise UserError(f"{here.absolute()} belongs to another user, and was not read: name it with --config to use it")
    return here


def read(path: Path | None, options: Options) -> Configuration:
    """Read and check a file.

    Raises
    ------
    UserError
        Naming the key that is unknown, with the nearest known one, or the value that is not one.
    """
    if path is None:
        return Configuration()
    import tomllib

    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise UserError(f"{path}: more than {MOST_BYTES:,} bytes: is it a file of settings?")
        text = data.decode()
        if unseen := unseen_character(text):
            raise UserError(f"{path}, line {unseen[0]}: {unseen[1]}")
        content = tomllib.loads(text)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    except RecursionError:
        raise UserError(f"{path}: not TOML: nested too deeply") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        # TOML's own words name the line and quote nothing of it.
        reason = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
        raise UserError(f"{path}: not TOML: {reason}") from None
    places = [*SHARED, *options, KAFKA]
    tables = {key: value for key, value in content.items() if key in options or key == KAFKA}
    shared = {key: value for key, value in content.items() if key not in tables}
    for key in shared:
        if key not in SHARED:
            homes = [name for name, known in options.items() if key in known]
            if homes:
                tables_of = " or ".join(f"[{name}]" for name in homes)
                raise UserError(f"{path}: {key}: it belongs in {tables_of}, below that line", code="MURK-CONF-002")
            raise _unknown(f"{path}: {key}", key, places, asked=key if _is_asked("", key) else "")
    for name, table in tables.items():
        if not isinstance(table, Mapping):
            raise UserError(f"{path}: {name}: a table of settings is wanted, [{name}]", code="MURK-CONF-003")
    found = Configuration(path, shared, {name: tables[name] for name in tables if name != KAFKA}, _kafka(path, tables))
    for name, table in found.tables.items():
        for key in table:
            if key not in options[name]:
                raise _unknown(f"{path}: [{name}] {key}", key, options[name], asked=key if _is_asked(name, key) else "")
    for command, known in options.items():
        for key, option in known.items():
            place = found.place(command, key)
            if place is not None:
                where = f"{path}: [{place}] {key}" if place else f"{path}: {key}"
                check(option, found.value(command, key), where)
    return found


def check_variables(environment: Mapping[str, str], options: Options) -> None:
    """Make sure that every variable ``MURK_...`` sets something, and to what it can be.

    Raises
    ------
    UserError
        Naming the variable, never its value.
    """
    known = {name: option for command, key, option in _all(options) for name in variables(command, key)}
    for name, value in environment.items():
        rest = name.removeprefix(PREFIX)
        if rest == name or rest in _OTHERS or rest.startswith(_OTHER_BEGINNINGS):
            continue
        if is_of_service(name, environment):
            continue
        if name not in known:
            names = {one: one.upper().replace("-", "_") for one in ASKED}
            asked = next((one for one, key in names.items() if rest == key or rest.endswith(f"_{key}")), "")
            asked = next((one for of, own in ASKED_OF.items() for one in own if rest == f"{of}_{one}".upper()), asked)
            raise _unknown(name, name, known, asked=asked)
        if value:
            option = known[name]
            check(option, value.split() if option.multiple else value, name, quiet=True)


def check(option: click.Option, value: Any, where: str, *, quiet: bool = False) -> None:
    """Make sure that an option can have a value; ``quiet`` messages say nothing of it (a secret, put there by mistake).

    Raises
    ------
    UserError
        When it cannot.
    """
    values = value if option.multiple and isinstance(value, list) else [value]
    text = isinstance(value, str)
    fits = all(isinstance(one, str | int | float) for one in values) and (
        not option.multiple or isinstance(value, list)
    )
    if option.is_flag and not text:
        fits = isinstance(value, bool)
    elif not option.is_flag:
        fits = fits and not any(isinstance(one, bool) for one in values)
    if fits and option.name == "log_url" and text:
        problem = _no_url(value, quiet)
        if problem:
            raise UserError(f"{where}: {problem}", code="MURK-CONF-003")
    problem = "" if fits else f"{type(value).__name__} is no kind of value for it"
    if fits:
        try:
            option.type_cast_value(click.Context(click.Command(where)), value)
        except (click.BadParameter, UserError) as error:
            problem = error.message if isinstance(error, click.BadParameter) else str(error)
        if problem and quiet:
            problem = f"what is set is not valid: {_kind(option)} is wanted"
    if problem:
        raise UserError(f"{where}: {problem}", code="MURK-CONF-003")


def _kind(option: click.Option) -> str:
    """What kind of value an option has, in a few words."""
    choices = getattr(option.type, "choices", None)
    if choices:
        return f"one of {', '.join(map(str, choices))}"
    name = (
        (option.metavar or option.type.name) if isinstance(option.type, click.types.FuncParamType) else option.type.name
    )
    limits = [
        f"{word} {limit}" for word, limit in (("from", _limit(option, "min")), ("to", _limit(option, "max"))) if limit
    ]
    return " ".join([name, *limits])


def _limit(option: click.Option, end: str) -> str:
    found = getattr(option.type, end, None)
    return "" if found is None else str(found)


def _no_url(value: str, quiet: bool = False) -> str:
    """Say what is wrong with a log's URL, as far as its beginning shows that."""
    from murk.stream.log.open import OPENERS

    scheme, separator, _ = value.partition("://")
    if separator and scheme == "kafka" and "@" in value:
        return "what is set has credentials in it (an @): they belong in [kafka], or in MURK_KAFKA_..."
    if separator and scheme in OPENERS:
        return ""
    # What has an @ may hold a password.
    shown = "what is set" if quiet or "@" in value else repr(value)
    return f"{shown} is no log's URL: write sqlite:///PATH for a log in a file, or kafka://HOST:PORT[/NAME]"


def set_defaults(context: click.Context, name: str, command: click.Command, found: Configuration) -> None:
    """Let the environment and the file say what a command's flags do not."""
    values = {}
    for key, option in settable(command).items():
        option.envvar = [
            one for one in variables(name, key) if one in os.environ and not is_of_service(one, os.environ)
        ]
        value = found.value(name, key)
        if value is not None and option.name is not None:
            values[option.name] = value
    context.default_map = {**(context.default_map or {}), name: values}


def _all(options: Options) -> Iterator[tuple[str, str, click.Option]]:
    for command, known in options.items():
        for key, option in known.items():
            yield command, key, option


def _kafka(path: Path, tables: Mapping[str, Any]) -> dict[str, str]:
    from murk.stream.log.kafka.connection.settings import KEYS

    found = dict(_flat(tables.get(KAFKA, {})))
    for key, value in found.items():
        if key not in KEYS:
            raise _unknown(f"{path}: [{KAFKA}] {key}", key, KEYS)
        if not isinstance(value, str | int) or isinstance(value, bool):
            raise UserError(f"{path}: [{KAFKA}] {key}: text or a number is wanted", code="MURK-CONF-003")
    return {key: str(value) for key, value in found.items()}


def _flat(table: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Return ``security.protocol`` as TOML reads it without quotes: a table in a table."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{key}.")
        else:
            yield before + key, value


def _unknown(what: str, key: str, known: Mapping[str, Any] | list[str], asked: str = "") -> UserError:
    if asked:
        return UserError(
            f"{what}: say --{asked} at the command each time; it is not set elsewhere", code="MURK-CONF-004"
        )
    near = get_close_matches(key, list(known), 1, 0.5)
    there = (
        f"did you mean {near[0]}?"
        if near
        else f"there are {', '.join(known)}"
        if len(known) < 30
        else "`murk config --all` lists all"
    )
    return UserError(f"{what}: there is no such setting; {there}", code="MURK-CONF-002")
