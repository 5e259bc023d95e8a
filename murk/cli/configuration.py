"""Settings of commands from the environment and from a file.

Precedence: a flag, the command's variable (``MURK_LEARN_LOG``), the shared variable (``MURK_LOG``), the command's table
in the file (``[learn]``), the file's top level, the default.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import click

from murk._internal.environment import is_of_service
from murk._internal.printable import unseen_character
from murk.errors import UserError

_ERROR_CODE = "MURK-CONF-001"

FILE = "murk.toml"
PREFIX = "MURK_"
VARIABLE = "MURK_CONFIG"
MOST_BYTES = 100_000  # size limit of a configuration file
KAFKA = "kafka"  # table of Kafka client settings


SHARED = ("log", "ledger", "lifetime", "wait", "verbose", "log-json", "metrics-host")
"""Settings that may be set for all commands at once."""
ASKED = ("seed", "simulated", "yes", "make-public", "withdraw", "new")
"""Options that affect people's privacy immediately, allowed only as flags."""
ASKED_OF = {"ledger": ("task", "person", "source"), "shuffle": ("replace",)}
"""Further options allowed only as flags: as forgotten settings they would narrow a withdrawal, reveal a name or give up
waiting releases."""
ALONE = ("demo",)  # commands without shared settings: the demonstration must not write into a production log

# Variables that set no option: of the image, the local broker, tests and benchmarks.
_OTHER = ("CONFIG", "KERNELS", "REQUIRE_SERVICES", "POINT_STEP", "MUTATED", "KILLS", "LEARNER_KILLS", "FREEZE", "CALLS")
_OTHER_PREFIXES = ("KAFKA_", "SOAK", "FUZZ", "MUTANTS")

Options = Mapping[str, Mapping[str, click.Option]]  # options that may be set, by command and name


@dataclass(frozen=True)
class Configuration:
    """Content of a configuration file: settings for all commands, by command, and of the Kafka client."""

    path: Path | None = None
    shared: Mapping[str, Any] = field(default_factory=dict)
    tables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    kafka: Mapping[str, str] = field(default_factory=dict)

    def table_of(self, command: str, key: str) -> str | None:
        """Return the table that sets an option of a command: "" for the top level, None if no table does."""
        if key in self.tables.get(command, {}):
            return command
        return "" if key in self.shared and key in SHARED and command not in ALONE else None

    def value(self, command: str, key: str) -> Any:
        """Return the value that the file sets for an option of a command, or None."""
        table = self.table_of(command, key)
        return None if table is None else (self.tables[table] if table else self.shared)[key]


def settable(command: click.Command) -> dict[str, click.Option]:
    """Return a command's options by name, without those allowed only as flags."""
    options = {}
    for option in command.params:
        if isinstance(option, click.Option):
            name = next((opt for opt in option.opts if opt.startswith("--")), "--help").removeprefix("--")
            if name != "help" and not _flag(command.name or "", name):
                options[name] = option
    return options


def _flag(command: str, key: str) -> str:
    """Return the option if it is allowed only as a flag, else an empty text."""
    return key if key in (*ASKED, *ASKED_OF.get(command, ())) else ""


def variables(command: str, key: str) -> list[str]:
    """Return the variables that set an option of a command, in order of precedence.

    >>> variables("learn", "log"), variables("dead-letters", "limit")
    (['MURK_LEARN_LOG', 'MURK_LOG'], ['MURK_DEAD_LETTERS_LIMIT'])
    """
    shared = key in SHARED and command not in ALONE
    names = (f"{PREFIX}{command}_{key}", *([f"{PREFIX}{key}"] if shared else []))
    return [name.upper().replace("-", "_") for name in names]


def find(path: str | None, environment: Mapping[str, str]) -> Path | None:
    """Return the file to read: the named one, or ``murk.toml`` in the working directory.

    Raises UserError if an unnamed file belongs to another user, who could redirect releases, or cannot be read.
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
        # Ignoring it could send releases elsewhere.
        raise UserError(
            f"{FILE} in this folder cannot be read ({error.strerror}): make it readable, or move it away"
        ) from None
    if owner not in (0, os.getuid()):
        raise UserError(f"{here.absolute()} belongs to another user, and was not read: name it with --config to use it")
    return here


def read(path: Path | None, options: Options) -> Configuration:
    """Read and check a file; raise `UserError` for an unknown key or an invalid value."""
    if path is None:
        return Configuration()
    import tomllib

    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise UserError(f"{path}: more than {MOST_BYTES:,} bytes: not a configuration file")
        text = data.decode()
        if unseen := unseen_character(text):
            raise UserError(f"{path}, line {unseen[0]}: {unseen[1]}")
        content = tomllib.loads(text)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    except RecursionError:
        raise UserError(f"{path}: not TOML: nested too deeply") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        # TOML's message names the line and does not quote it.
        reason = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
        raise UserError(f"{path}: not TOML: {reason}") from None
    tables = {key: value for key, value in content.items() if key in options or key == KAFKA}
    shared = {key: value for key, value in content.items() if key not in tables}
    for key in shared:
        if key not in SHARED:
            homes = [f"[{name}]" for name, known in options.items() if key in known]
            if homes:
                raise UserError(f"{path}: {key}: set it in {' or '.join(homes)}", code="MURK-CONF-002")
            raise _unknown(f"{path}: {key}", key, [*SHARED, *options, KAFKA], _flag("", key))
    for name, table in tables.items():
        if not isinstance(table, Mapping):
            raise UserError(f"{path}: {name}: must be a table of settings, [{name}]", code="MURK-CONF-003")
    commands = {key: table for key, table in tables.items() if key != KAFKA}
    settings = Configuration(path, shared, commands, _kafka(path, tables))
    for name, table in settings.tables.items():
        for key in table:
            if key not in options[name]:
                raise _unknown(f"{path}: [{name}] {key}", key, options[name], _flag(name, key))
    for command, of_command in options.items():
        for key, option in of_command.items():
            table = settings.table_of(command, key)
            if table is not None:
                where = f"{path}: [{table}] {key}" if table else f"{path}: {key}"
                check(option, settings.value(command, key), where)
    return settings


def check_variables(environment: Mapping[str, str], options: Options) -> None:
    """Raise `UserError` for a ``MURK_...`` variable that is no setting or has an invalid value, which is not quoted."""
    known = {
        name: option for of, keys in options.items() for key, option in keys.items() for name in variables(of, key)
    }
    for name, value in environment.items():
        rest = name.removeprefix(PREFIX)
        if rest == name or rest in _OTHER or rest.startswith(_OTHER_PREFIXES) or is_of_service(name, environment):
            continue
        if name not in known:
            of_one = {f"{of}_{key}".upper(): key for of, keys in ASKED_OF.items() for key in keys}
            asked = (key for key in ASKED if f"_{rest}".endswith(f"_{key.upper().replace('-', '_')}"))
            raise _unknown(name, name, known, of_one.get(rest) or next(asked, ""))
        if value:
            option = known[name]
            check(option, list(option.type.split_envvar_value(value)) if option.multiple else value, name, quiet=True)


def check(option: click.Option, value: Any, where: str, *, quiet: bool = False) -> None:
    """Raise `UserError` for a value that an option cannot have; with ``quiet``, do not quote it: it may be a secret."""
    value = _listed(option, value)
    values = value if option.multiple and isinstance(value, list) else [value]
    fits = all(isinstance(item, str | int | float) for item in values)
    fits = fits and (isinstance(value, list) or not option.multiple)
    if option.is_flag and not isinstance(value, str):
        fits = isinstance(value, bool)
    elif not option.is_flag:
        fits = fits and not any(isinstance(item, bool) for item in values)
    if not fits:
        problem = f"{type(value).__name__} is not a valid type of value"
    elif option.name in ("log_urls", "log_url"):
        problem = next(filter(None, (_url_problem(str(item), quiet) for item in values)), "")
    else:
        problem = _cast_problem(option, value, where)
        if problem and quiet:
            problem = f"the value is invalid: {_kind(option)} is required"
    if problem:
        raise UserError(f"{where}: {problem}", code="MURK-CONF-003")


def _listed(option: click.Option, value: Any) -> Any:
    """Return a text as a list if an option may be repeated: a file may set a single one without brackets."""
    return [value] if option.multiple and isinstance(value, str) else value


def _cast_problem(option: click.Option, value: Any, where: str) -> str:
    """Return the reason why an option cannot have a value; empty if it can."""
    try:
        option.type_cast_value(click.Context(click.Command(where)), value)
    except click.BadParameter as error:
        return error.message
    except UserError as error:
        return str(error)
    return ""


def _kind(option: click.Option) -> str:
    choices = option.type.choices if isinstance(option.type, click.Choice) else None
    if choices:
        return f"one of {', '.join(map(str, choices))}"
    is_function = isinstance(option.type, click.types.FuncParamType)
    name = (option.metavar or option.type.name) if is_function else option.type.name
    limits = ((word, getattr(option.type, end, None)) for word, end in (("from", "min"), ("to", "max")))
    return " ".join([name, *(f"{word} {limit}" for word, limit in limits if limit is not None)])


def _url_problem(value: str, quiet: bool = False) -> str:
    """Describe what is wrong with the beginning of a log's URL; empty if nothing is."""
    from murk.stream.log.open import OPENERS

    scheme, separator, _ = value.partition("://")
    if separator and scheme == "kafka" and "@" in value:
        return "the value contains credentials (an @): set them in [kafka] or in MURK_KAFKA_..."
    if separator and scheme in OPENERS:
        return ""
    # A value with an @ may contain a password.
    quoted = "the value" if quiet or "@" in value else repr(value)
    return f"{quoted} is not a log URL: write sqlite:///PATH for a log in a file, or kafka://HOST:PORT[/NAME]"


def set_defaults(context: click.Context, name: str, command: click.Command, settings: Configuration) -> None:
    """Set the defaults of a command's options from the environment and the file."""
    values = {}
    for key, option in settable(command).items():
        named = (each for each in variables(name, key) if each in os.environ)
        option.envvar = [each for each in named if not is_of_service(each, os.environ)]
        value = settings.value(name, key)
        if value is not None and option.name is not None:
            values[option.name] = _listed(option, value)
    context.default_map = {**(context.default_map or {}), name: values}


def _kafka(path: Path, tables: Mapping[str, Any]) -> dict[str, str]:
    from murk.stream.log.kafka.connection.settings import KEYS

    settings = dict(_flat(tables.get(KAFKA, {})))
    for key, value in settings.items():
        if key not in KEYS:
            raise _unknown(f"{path}: [{KAFKA}] {key}", key, KEYS)
        if not isinstance(value, str | int) or isinstance(value, bool):
            raise UserError(f"{path}: [{KAFKA}] {key}: must be text or a number", code="MURK-CONF-003")
    return {key: str(value) for key, value in settings.items()}


def _flat(table: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Flatten dotted keys, such as ``security.protocol``, which TOML reads as nested tables."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{key}.")
        else:
            yield before + key, value


def _unknown(what: str, key: str, known: Mapping[str, Any] | list[str], flag: str = "") -> UserError:
    if flag:
        return UserError(f"{what}: pass --{flag} to each command; it cannot be set elsewhere", code="MURK-CONF-004")
    if not known:
        hint = "this command has no settings; remove the table"
    elif near := get_close_matches(key, list(known), 1, 0.5):
        hint = f"did you mean {near[0]}?"
    else:
        hint = f"there are {', '.join(known)}" if len(known) < 30 else "`murk config --all` lists all"
    return UserError(f"{what}: there is no such setting; {hint}", code="MURK-CONF-002")
