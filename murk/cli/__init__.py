"""The command line; a command's module is imported when the command is called."""

import io
import os
import sys
from enum import IntEnum
from importlib import import_module
from logging import ERROR
from typing import Any, NoReturn

import click

from murk import __version__
from murk.cli import configuration
from murk.cli.interrupts import stoppable
from murk.cli.logs import say
from murk.cli.streams import open_closed_streams, printable_output
from murk.errors import MurkError, UserError, unexpected

# Command name -> its one-line help, so that listing imports nothing.
_COMMANDS = {
    "init": "Write a first task file, with comments.",
    "demo": "Learn from 254,654 real people whose records never leave their devices in the clear.",
    "plan": "Forecast half-widths for given numbers of people, before anybody releases.",
    "run": "Learn a task from a file of people: devices, log and learner in one process.",
    "topics": "Create and check a task's topics on a Kafka cluster.",
    "produce": "Privatize the records of a file's people and send them to a log.",
    "shuffle": "Forward releases in shuffled crowds from an input log to a log.",
    "learn": "Learn from the releases on a log, until stopped.",
    "gateway": "Let devices read a task and send releases over HTTP, until stopped.",
    "archive": "Copy a log's messages to files, from which models are fitted after its retention.",
    "fit": "Fit further models to a log's releases, without spending further budget.",
    "status": "Show a log's contents and what was learned from it.",
    "monitor": "Serve metrics and a live page until interrupted.",
    "experiment": "Plan an experiment, read it at any time, or count its false alarms on your own records.",
    "ledger": "Show a person's guarantees, spending and releases, or withdraw them.",
    "audit": "Measure how much releases disclose and compare it with the guarantee.",
    "config": "Show every setting and where its value comes from.",
    "dossier": "Write a privacy dossier of a task and its deployment.",
    "dead-letters": "List messages that could not be learned, with the reasons.",
}


class _Lazy(click.Group):
    def main(self, *arguments: Any, **options: Any) -> Any:
        with printable_output():
            return super().main(*arguments, **options)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        command = import_module(f"murk.cli.commands.{cmd_name.replace('-', '_')}").command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        if name is not None and command is not None and not ctx.resilient_parsing:
            self.configure(ctx, name, command)
        return name, command, rest

    def configure(self, ctx: click.Context, name: str, command: click.Command) -> configuration.Configuration:
        """Set the command's defaults from environment and file, and return the file's content."""
        path = configuration.find(ctx.params.get("config_path"), os.environ)
        settings = configuration.Configuration()
        # Without settings there is no need to import every command.
        if path is not None or any(variable.startswith(configuration.PREFIX) for variable in os.environ):
            options = self.settable(ctx)
            configuration.check_variables(os.environ, options)
            settings = configuration.read(path, options)
            if settings.kafka:
                from murk.stream.log.kafka.connection.settings import set_below

                set_below(settings.kafka, f"{path}")
        configuration.set_defaults(ctx, name, command, settings)
        return settings

    def settable(self, ctx: click.Context) -> dict[str, dict[str, click.Option]]:
        """Return, by command, the options that the environment or a file may set."""
        commands = {name: self.get_command(ctx, name) for name in _COMMANDS}
        return {name: configuration.settable(command) for name, command in commands.items() if command is not None}

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="murk")
@click.option(
    "--config",
    "config_path",
    type=click.Path(),
    metavar="FILE",
    help="Configuration file; flags and MURK_... variables take precedence.  [default: MURK_CONFIG, else murk.toml]",
)
def cli(config_path: str | None) -> None:
    """Murk: online learning on streams of locally private data."""


_USAGE, _FILE, _FAULT = "MURK-CLI-001", "MURK-FILE-001", "MURK-FAULT-001"


class Status(IntEnum):
    """Exit statuses of every command."""

    DONE = 0
    FAULT = 1
    MISTAKE = 2
    STOPPED = 130


def _end(message: str, status: Status, code: str | None = None) -> NoReturn:
    say(message, ERROR, code=code)
    sys.exit(status)


def main(command: click.Command = cli, name: str = "murk") -> None:
    """Run a command line and exit with a `Status`; hide texts of unexpected exceptions, which may quote a record."""
    open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Do not fail on characters that the terminal cannot encode.
            stream.reconfigure(errors="backslashreplace")
    with printable_output():
        _run(command, name)


def _run(command: click.Command, name: str) -> None:
    try:
        with stoppable():
            command(standalone_mode=False, prog_name=name)
    except (click.exceptions.Abort, KeyboardInterrupt):
        _end("murk: stopped; the same command resumes", Status.STOPPED)
    except click.ClickException as error:
        error.message = f"{error.message} [{_USAGE}]"  # type: ignore[misc]
        error.show()
        sys.exit(Status.MISTAKE)
    except MurkError as error:
        _end(f"murk: {error}", Status.MISTAKE if isinstance(error, UserError) else Status.FAULT, error.code)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(Status.FAULT)
    except OSError as error:
        file = error.filename or "a file"
        words = f"murk: {file}: {error.strerror}: check the path, its permissions and free space on its disk"
        _end(words, Status.FAULT, _FILE)
    except Exception as error:  # noqa: BLE001 - report what broke, not the data
        _end(f"murk: {unexpected(error)}", Status.FAULT, _FAULT)
