"""Processes of the `murk` command that start at once: a fork server's, with the interface of `subprocess.Popen`."""

import array
import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
MOST = 65_536
SHARED = "TESTS_COMMANDS"
"""The environment's name of the socket of a process that all processes of a test run share: tests/forking.py."""


class Process:
    """A command that was started, as `subprocess.Popen` has it, with pipes for what it prints.

    With ``points`` (the first, and one in how many) it is tests/cli/points.py on that command. With ``output`` it adds
    what it prints to that file.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        folder: Path,
        file_limit: int | None = None,
        unprivileged: bool = False,
        points: tuple[int, int] | None = None,
        environment: Mapping[str, str] | None = None,
        output: Path | None = None,
    ) -> None:
        pipes = [os.pipe() if output is None else _file(output) for _ in range(2)]
        order = {
            "arguments": list(arguments), "folder": str(folder), "environment": dict(environment or os.environ),
            "file_limit": file_limit, "unprivileged": unprivileged,
            "points": points,
        }  # fmt: skip
        self.pid: int = ask(order, [write for _, write in pipes])
        self.stdout, self.stderr = (os.fdopen(read) for read, _ in pipes)
        for _, write in pipes:
            os.close(write)
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = ask({"ended": self.pid})
        return self.returncode

    def wait(self, timeout: float = 600.0) -> int:
        if self.poll() is None:
            sleep_until_ended(self.pid, timeout)
        if (status := self.poll()) is None:
            raise subprocess.TimeoutExpired(f"murk, process {self.pid}", timeout)
        return status

    def communicate(self, timeout: float = 600.0) -> tuple[str, str]:
        texts = ["", ""]

        def read(place: int) -> None:
            with (self.stdout, self.stderr)[place] as stream:
                texts[place] = stream.read()

        readers = [threading.Thread(target=read, args=(place,), daemon=True) for place in range(2)]
        for reader in readers:
            reader.start()
        self.wait(timeout)
        for reader in readers:
            reader.join(timeout)
        return texts[0], texts[1]

    def send_signal(self, number: int) -> None:
        # Not to a process that is gone: its number may be another's.
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def __enter__(self) -> "Process":
        return self

    def __exit__(self, *error: object) -> None:
        self.__del__()
        self.wait()

    def __del__(self) -> None:
        # Of one that was killed, and whose output nobody wanted.
        self.stdout.close()
        self.stderr.close()


def _file(path: Path) -> tuple[int, int]:
    """Where it is read and where something is added."""
    write = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    return os.open(path, os.O_RDONLY), write


def all_stopped(pid: int) -> bool:
    """Whether all threads of a process have stopped: a signal to stop reaches one after the other."""
    states = []
    for place in Path(f"/proc/{pid}/task").iterdir():
        # Threads end meanwhile.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            states.append((place / "stat").read_text().rpartition(")")[2].split()[0])
    return set(states) == {"T"}


def sleep_until_ended(pid: int, timeout: float) -> None:
    """Wait, at most so many seconds, for the end of a process that is another's child and that it has not asked for."""
    handle = os.pidfd_open(pid)
    try:
        select.select([handle], [], [], timeout)
    finally:
        os.close(handle)


@cache
def server() -> tuple[subprocess.Popen[bytes] | None, socket.socket]:
    """The process from which commands are forked, where it is this one's child; it ends when its socket is closed."""
    if SHARED in os.environ:
        channel = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        channel.connect(os.environ[SHARED])
        return None, channel
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with there:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.cli.forks", str(there.fileno())], cwd=ROOT, pass_fds=[there.fileno()]
        )
    return process, here


def close() -> None:
    """Let the server end, if there is one."""
    if server.cache_info().currsize:
        process, channel = server()
        channel.close()
        if process is not None:
            process.wait()
        server.cache_clear()


_TURN = threading.Lock()


def ask(order: dict[str, Any], descriptors: Sequence[int] = ()) -> Any:
    """Send an order with descriptors, and receive the answer."""
    with _TURN:
        _, channel = server()
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
        channel.sendmsg([json.dumps(order).encode()], rights)
        with contextlib.suppress(ConnectionResetError):
            if answer := channel.recv(MOST):
                return json.loads(answer)
        raise AssertionError("the process from which commands are forked has ended")
