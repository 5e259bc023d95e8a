"""The command line. A command's module is imported when it is called, so that ``murk --help`` is quick."""

from __future__ import annotations

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

# Command name -> module with an attribute ``command``, and its one-line help (so that listing imports nothing).
_COMMANDS = {
    "init": ("murk.cli.commands.init", "Write a first task file, with comments."),
    "demo": (
        "murk.cli.commands.demo",
        "Learn from 254,654 real people, whose records never leave their devices in the clear.",
    ),
    "plan": (
        "murk.cli.commands.plan",
        "Forecast which half widths how many people give, before anybody releases.",
    ),
    "run": ("murk.cli.commands.run", "Learn a task from a file of people: devices, log and learner in one process."),
    "topics": ("murk.cli.commands.topics", "Create and check a task's topics on a Kafka cluster."),
    "produce": ("murk.cli.commands.produce", "Let a file's people privatize and send their records to a log."),
    "learn": ("murk.cli.commands.learn", "Learn from the releases on a log, until stopped."),
    "status": ("murk.cli.commands.status", "Show what a log holds and what was learned from it."),
    "monitor": ("murk.cli.commands.monitor", "Serve metrics and a live page of what is learned."),
    "ledger": ("murk.cli.commands.ledger", "Show what a person was promised, spent and sent; withdraw."),
    "audit": ("murk.cli.commands.audit", "Measure what releases disclose, against what is claimed."),
    "config": ("murk.cli.commands.config", "Show every setting, and where its value comes from."),
    "dossier": ("murk.cli.commands.dossier", "Write a page for a privacy officer's file, made from a task and a log."),
    "reproduce": (
        "murk.cli.commands.reproduce",
        "Say how to reproduce the papers' tables and figures.",
    ),
    "dead-letters": ("murk.cli.commands.dead_letters", "List the messages that were not learned from, and why."),
}


class _Lazy(click.Group):
    """A group whose commands are imported when they are called."""

    def main(self, *arguments: Any, **options: Any) -> Any:
        with printable_output():
            return super().main(*arguments, **options)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        found = import_module(_COMMANDS[cmd_name][0]).command
        assert isinstance(found, click.Command)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        if name is not None and command is not None and not ctx.resilient_parsing:
            self.configure(ctx, name, command)
        return name, command, rest

    def configure(self, ctx: click.Context, name: str, command: click.Command) -> configuration.Configuration:
        """Let environment and file say what the command's flags do not."""
        path = configuration.find(ctx.params.get("config_path"), os.environ)
        found = configuration.Configuration()
        # Otherwise there is nothing to look for, and no need to import every command.
        if path is not None or any(variable.startswith(configuration.PREFIX) for variable in os.environ):
            options = self.settable(ctx)
            configuration.check_variables(os.environ, options)
            found = configuration.read(path, options)
            if found.kafka:
                from murk.stream.log.kafka.connection.settings import set_below

                set_below(found.kafka, f"{path}")
        configuration.set_defaults(ctx, name, command, found)
        return found

    def settable(self, ctx: click.Context) -> dict[str, dict[str, click.Option]]:
        """Return the options of every command that may be set."""
        commands = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        return {name: configuration.settable(command) for name, command in commands.items() if command is not None}

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="murk")
@click.option(
    "--config", "config_path", type=click.Path(), metavar="FILE",
    help="Settings below flags and MURK_... variables.  [default: MURK_CONFIG, else murk.toml, if there]",
)  # fmt: skip
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
    """Run a command line: 0 done, 2 for a mistake of the user's, 1 for anything else.

    The text of an unforeseen exception is not printed: it may quote a raw record.
    """
    open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A name that a terminal has no letters for is no reason to lose a result.
            stream.reconfigure(errors="backslashreplace")
    with printable_output():
        _run(command, name)


def _run(command: click.Command, name: str) -> None:
    try:
        with stoppable():
            command(standalone_mode=False, prog_name=name)
    except (click.exceptions.Abort, KeyboardInterrupt):
        _end("murk: stopped; the same command carries on where it stood", Status.STOPPED)
    except click.ClickException as error:
        error.message = f"{error.message} [{_USAGE}]"  # type: ignore[misc]
        error.show()
        sys.exit(Status.MISTAKE)
    except MurkError as error:
        _end(f"murk: {error}", Status.MISTAKE if isinstance(error, UserError) else Status.FAULT, error.code)
    except BrokenPipeError:
        # The reader of our output has gone; there is nobody to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(Status.FAULT)
    except OSError as error:
        # Files that no library of ours explains; their names are the user's own words.
        words = f"murk: {error.filename or 'a file'}: {error.strerror}: check the path, its permissions and the room on its disk"
        _end(words, Status.FAULT, _FILE)
    except Exception as error:  # noqa: BLE001 - the edge of the program: say what broke, not on which data
        _end(f"murk: {unexpected(error)}", Status.FAULT, _FAULT)
