"""Processes of the `murk` command that start at once: forked from one that has everything imported and compiled.

``python -m tests.cli.forks DESCRIPTOR`` takes orders in JSON from a socket, with descriptors for what a command prints,
and answers with its process number; later with its status, once it has ended. See tests/cli/processes.py, and for
functions of other kinds tests/services/faults/nursery.py.
"""

import ctypes
import faulthandler
import gc
import io
import json
import os
import pty
import signal
import socket
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from murk import Task
from murk.cli import cli, main
from murk.errors import MurkError
from murk.planning.advice import advise
from murk.protocols.device import device_for
from tests.cli.harness import TASK, largest_file, unprivileged, world
from tests.cli.processes import MOST
from tests.kernels import impatient
from tests.mutation.tracing import told
from tests.protocols import BY_NAME, GRADIENTS

UNFORESEEN = 70
MODULES = ("murk.stream.log.kafka.log", "murk.stream.worker.pool", "murk.cli.commands.learn", "tests.stream.processes")
"""What many children need besides the command itself."""


def ready() -> None:
    """Let everything be imported and compiled here that the children of any process of a test run need."""
    for name in BY_NAME:
        warmed(name)
    for module in MODULES:
        import_module(module)
    gc.collect()
    gc.freeze()


@cache
def warmed(name: str) -> None:
    """A task of the table of protocols starts at once from now on."""
    warm(BY_NAME[name].text())


def warm(task: str = TASK, noise: bool = False) -> None:
    """Let a small run of a task, and the views of it, import and compile here what all children need.

    With real ``noise``, too, where most children are to draw it: its kernels are others than those of a seed.
    """
    impatient()
    with tempfile.TemporaryDirectory() as place, redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        folder = world(Path(place), rows=20, task=task)
        run = ["run", f"{folder}/task.yaml", "--source", f"{folder}/people.csv", "--json"]
        for chance in (["--seed", "1"], *([["--make-public", "100"]] if noise else [])):
            log, ledger = f"sqlite:///{folder}/log{chance[0]}.db", f"{folder}/ledger{chance[0]}.db"
            cli([*run, *chance, "--log", log, "--ledger", ledger], standalone_mode=False)
            for command in (["status", "--log", log], ["ledger", ledger]):
                cli(command, standalone_mode=False)
    gc.collect()
    gc.freeze()


def prepare(folder: Path, arguments: Sequence[str]) -> None:
    """Import and calibrate here, once, what every command on a folder's task does first, and on a Kafka log.

    It was most of what a small run of a sketch took, and so was what its report advises. What is wrong with a task,
    commands say themselves.
    """
    if any("kafka://" in one for one in arguments):
        import_module("murk.stream.log.kafka.log")
        import_module("murk.stream.worker.pool")
    with suppress(OSError, ValueError):
        _prepare((folder / "task.yaml").read_text(), "run" in arguments)


@cache
def _prepare(text: str, reports: bool) -> None:
    # A warning that was given here would not be given again in a child.
    with suppress(MurkError), warnings.catch_warnings(action="ignore"):
        task = Task.parse(text)
        device_for(task)
        if task.protocol in ("moments", "summaries"):
            import_module("scipy.optimize")
        if reports and task.of_organisations:
            advise(task, 1_000)


def started(
    arguments: Sequence[str], folder: Path, out: int, err: int, prepare: Callable[[], None] | None = None
) -> int:
    """The number of a process that runs the command in a folder, with these descriptors for its output."""
    child = os.fork()
    if child == 0:
        for place, descriptor in enumerate((os.open(os.devnull, os.O_RDONLY), out, err)):
            os.dup2(descriptor, place)
        _run(arguments, folder, prepare)
    return child


def forked(
    arguments: Sequence[str], folder: Path, out: int, err: int, prepare: Callable[[], None] | None = None
) -> int:
    """Run the command to its end; negative where a signal ended it."""
    child = started(arguments, folder, out, err, prepare)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def at_terminal(arguments: Sequence[str], folder: Path, answer: str) -> tuple[int, str]:
    """Run the command at a terminal of its own, with an answer typed beforehand; its status and what it printed."""
    child, terminal = pty.fork()
    if child == 0:
        # These were opened on what the parent has, and keep what they know of it.
        sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115
        _run(arguments, folder)
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


def _command() -> None:
    with told():
        main()


def _run(
    arguments: Sequence[str],
    folder: Path,
    prepare: Callable[[], None] | None = None,
    program: Callable[[], None] = _command,
) -> NoReturn:
    """In a child: be the command, or another program, to its end."""
    status = UNFORESEEN
    try:
        os.chdir(folder)
        sys.argv = ["murk", *arguments]
        if prepare is not None:
            prepare()
        program()
        status = 0
    except SystemExit as end:
        status = int(end.code or 0)
    except Exception:  # noqa: BLE001 - the end of the process, which its parent looks at
        traceback.print_exc()
    finally:
        sys.setprofile(None)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _begin(order: dict[str, Any], out: int, err: int, channel: socket.socket) -> None:
    """In a child: end with the parent, print to these descriptors, and have the environment that is ordered."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
    for place, descriptor in enumerate((os.open(os.devnull, os.O_RDONLY), out, err)):
        os.dup2(descriptor, place)
        os.close(descriptor)
    # These were opened on what the parent has, and keep what they know of it.
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", buffering=1)  # noqa: SIM115
    channel.close()
    os.environ.clear()
    os.environ.update(order["environment"])


def begun(order: dict[str, Any], out: int, err: int, channel: socket.socket) -> int:
    """The number of a process that runs a command, and ends with this one."""
    child = os.fork()
    if child == 0:
        _begin(order, out, err, channel)
        if order["unprivileged"]:
            unprivileged()
        limit, program = order["file_limit"], _command
        if order["points"] is not None:
            # It imports what is here.
            points = import_module("tests.cli.points")
            program = partial(points.enumerate_points, *order["points"], order["arguments"])
        _run(order["arguments"], Path(order["folder"]), None if limit is None else largest_file(limit), program)
    return child


def started_with(order: dict[str, Any], channel: socket.socket) -> int:
    """The number of a process that calls a function, and ends with this one; it prints to files."""
    child = os.fork()
    if child == 0:
        _begin(order, *(os.open(path, os.O_WRONLY) for path in order["prints"]), channel)
        # What hangs says where: kill -USR1.
        faulthandler.register(signal.SIGUSR1)
        module, _, name = order["function"].partition(":")
        _run(order["arguments"], Path(order["folder"]), program=lambda: getattr(import_module(module), name)())
    return child


def serve(channel: socket.socket) -> None:
    warmed(str(GRADIENTS))
    ended: dict[int, int] = {}
    while True:
        text, descriptors, *_ = socket.recv_fds(channel, MOST, 2)
        if not text:
            return
        order, answer = json.loads(text), None
        if "ended" in order:
            pid = order["ended"]
            found, status = (0, 0) if pid in ended else os.waitpid(pid, os.WNOHANG)
            if found:
                ended[pid] = os.waitstatus_to_exitcode(status)
            answer = ended.get(pid)
        elif "protocol" in order:
            warmed(order["protocol"])
        elif "module" in order:
            import_module(order["module"])
        else:
            prepare(Path(order["folder"]), order["arguments"])
            if "answer" in order:
                answer = at_terminal(order["arguments"], Path(order["folder"]), order["answer"])
            elif "function" in order:
                answer = started_with(order, channel)
            else:
                answer = begun(order, *descriptors, channel)
        for descriptor in descriptors:
            os.close(descriptor)
        channel.send(json.dumps(answer).encode())


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as channel:
        serve(channel)
