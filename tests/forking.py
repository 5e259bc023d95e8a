"""Processes from which others of a test run are forked, with what these would otherwise import and compile each.

``python -m tests.forking DESCRIPTOR KIND ARGUMENTS`` has a listening socket, by its descriptor, and forks a process for
each one that connects; it ends with its standard input, and these with it. Of kind ``commands`` they are those of
tests/cli/forks.py; of kind ``tests`` they run tests for xdist, and ARGUMENTS are pytest's, after its folder; of kind
``kernels`` they run the cells of notebooks, and ARGUMENTS are modules that these import.
"""

import atexit
import contextlib
import ctypes
import os
import select
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path

from tests.cli.processes import MOST, SHARED

ROOT = Path(__file__).parents[1]
WORKER = ROOT / "tests" / "worker.py"


@contextlib.contextmanager
def shared(folder: Path, tests: Sequence[str]) -> Iterator[str]:
    """Let all processes of a run of tests share two; the Python of theirs, which asks to be forked from one."""
    with contextlib.ExitStack() as stack:
        # Nobody else may connect.
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="murk-")))
        os.environ[SHARED] = stack.enter_context(begun(place / "commands"))
        stack.callback(os.environ.pop, SHARED)
        path = stack.enter_context(begun(place / "tests", str(folder), *tests))
        yield shlex.join([sys.executable, "-I", "-S", str(WORKER), path])


@contextlib.contextmanager
def begun(path: Path, *arguments: str) -> Iterator[str]:
    """Start one that listens at a path, whose name is its kind."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(path))
        listener.listen(64)
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.forking", str(listener.fileno()), path.name, *arguments], cwd=ROOT,
            pass_fds=[listener.fileno()], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
        )  # fmt: skip
    # It ends when its standard input is closed.
    with process:
        yield str(path)


def forked(listener: socket.socket, prepare: Callable[[], None]) -> socket.socket | None:
    """In a process forked for it, who has connected; None where this one is to end.

    What they need is prepared for the first of them.
    """
    # What ends leaves nothing; and Ctrl-C is for those who are forked.
    for number in (signal.SIGCHLD, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    prepared = False
    while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
        channel, _ = listener.accept()
        if not prepared:
            prepare()
            prepared = True
        if os.fork() == 0:
            ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            return channel
        channel.close()
    return None


def collect(folder: str, *arguments: str) -> None:
    """Import the tests as pytest does, which writes their assertions anew."""
    import numba
    import pytest

    os.chdir(folder)
    pytest.main(["--collect-only", "-qq", "-p", "no:cacheprovider", *arguments])
    # With its first kernel numba reads all that it knows of types.
    numba.njit("int64(int64)")(lambda number: number)


def run_program(channel: socket.socket) -> None:
    """Be what tests/worker.py was started as, with the descriptors and the program that it was given."""
    program, descriptors, *_ = socket.recv_fds(channel, MOST, 3)
    for place, descriptor in enumerate(descriptors):
        os.dup2(descriptor, place)
        os.close(descriptor)
    # These were opened on what the parent has, and keep what they know of it.
    sys.stdin, sys.stdout, sys.stderr = (os.fdopen(place, "rww"[place], 1, closefd=False) for place in range(3))
    # What the parent registered is its own; and what is left of this process in the end need not be taken apart.
    atexit._clear()
    atexit.register(os._exit, 0)
    exec(program.decode(), {"__name__": "__main__"})


def main(descriptor: str, kind: str, *arguments: str) -> None:
    def prepare() -> None:
        if kind == "tests":
            collect(*arguments)
        elif kind == "kernels":
            for name in arguments:
                import_module(name)
        else:
            import_module("tests.cli.forks").ready()

    with socket.socket(fileno=int(descriptor)) as listener:
        channel = forked(listener, prepare)
    if channel is not None:
        with channel:
            (import_module("tests.cli.forks").serve if kind == "commands" else run_program)(channel)


if __name__ == "__main__":
    main(*sys.argv[1:])
