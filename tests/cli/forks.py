"""Processes of the `murk` command that start at once: forked from one that has everything imported and compiled.

``python -m tests.cli.forks`` runs a command for every line of JSON on its standard input, ``[folder,
arguments, answer]``, and answers with ``[status, out, err]``. With an answer the command runs at a terminal, at which
that is typed; what it printed there is all in ``out``.
"""

import io
import json
import os
import pty
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NoReturn

from murk.cli import cli, main
from tests.cli.harness import TASK, world

UNFORESEEN = 70


def warm(task: str = TASK) -> None:
    """Let a small run of a task, and the views of it, import and compile here what all children need."""
    with tempfile.TemporaryDirectory() as place, redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        folder = world(Path(place), rows=20, task=task)
        log, ledger = f"sqlite:///{folder}/log.db", f"{folder}/ledger.db"
        run = ["run", "--source", f"{folder}/people.csv", "--log", log, "--ledger", ledger, "--seed", "1", "--json"]
        for command in ([*run, f"{folder}/task.yaml"], ["status", "--log", log], ["ledger", ledger]):
            cli(command, standalone_mode=False)


def forked(
    arguments: Sequence[str], folder: Path, out: int, err: int, prepare: Callable[[], None] | None = None
) -> int:
    """Run the command in a folder, with these descriptors for its output; negative where a signal ended it."""
    child = os.fork()
    if child == 0:
        for place, descriptor in enumerate((os.open(os.devnull, os.O_RDONLY), out, err)):
            os.dup2(descriptor, place)
        _command(arguments, folder, prepare)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def at_terminal(arguments: Sequence[str], folder: Path, answer: str) -> tuple[int, str]:
    """Run the command at a terminal of its own, with an answer typed beforehand; its status and what it printed."""
    child, terminal = pty.fork()
    if child == 0:
        # These were opened on what the parent has, and keep what they know of it.
        sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115
        _command(arguments, folder)
    os.write(terminal, answer.encode())
    printed = b""
    try:
        while more := os.read(terminal, 65_536):
            printed += more
    except OSError:
        # That the other end of a terminal is closed is an error of the system's, not the end of a file.
        pass
    finally:
        os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), printed.decode()


def _command(arguments: Sequence[str], folder: Path, prepare: Callable[[], None] | None = None) -> NoReturn:
    """In a child: be the command, to its end."""
    status = UNFORESEEN
    try:
        os.chdir(folder)
        sys.argv = ["murk", *arguments]
        if prepare is not None:
            prepare()
        main()
        status = 0
    except SystemExit as end:
        status = int(end.code or 0)
    finally:
        sys.setprofile(None)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def serve() -> None:
    warm()
    for line in sys.stdin:
        folder, arguments, answer = json.loads(line)
        if answer is not None:
            print(json.dumps([*at_terminal(arguments, Path(folder), answer), ""]), flush=True)  # noqa: T201
            continue
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            status = forked(arguments, Path(folder), out.fileno(), err.fileno())
            texts = []
            for file in (out, err):
                file.seek(0)
                texts.append(file.read().decode())
        print(json.dumps([status, *texts]), flush=True)  # noqa: T201 - the answer


if __name__ == "__main__":
    serve()
