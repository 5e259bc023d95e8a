"""A child process that never outlives its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

# Runs in the child, before the program takes its place. Asking the system to kill the child with its parent
# comes too late when the parent is dead already, so the parent is looked at afterwards.
_TIE = """
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != int(sys.argv[1]):
        sys.exit("the parent is gone")
os.execvp(sys.argv[2], sys.argv[2:])
"""


def spawn(
    command: Sequence[str], output: Path, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a program that dies with this process, however this process dies (on Linux).

    It has a session of its own: Ctrl-C in the terminal reaches this process alone, which then stops it in order.

    Parameters
    ----------
    command
        The program and its arguments.
    output
        File to which all that it prints is appended.
    environment
        Its environment; by default this process's.
    """
    started: list[subprocess.Popen[bytes]] = []
    failed: list[OSError] = []
    ready = threading.Event()
    tied = [sys.executable, "-I", "-S", "-c", _TIE, str(os.getpid()), *command]

    def keep() -> None:
        try:
            with output.open("ab") as file:
                child = subprocess.Popen(
                    tied,
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=file,
                    env=environment,
                    start_new_session=True,
                )
            started.append(child)
        except OSError as error:
            failed.append(error)
            return
        finally:
            ready.set()
        child.wait()

    # For Linux the parent is the thread that started the child, so that thread has to live as long as the child.
    threading.Thread(target=keep, name=f"keeper of {Path(command[0]).name}", daemon=True).start()
    ready.wait()
    if failed:
        raise failed[0]
    return started[0]


def end(child: subprocess.Popen[bytes], limit: float) -> None:
    """Ask a child to end, a stopped one as well; kill it when it has not after ``limit`` seconds."""
    child.send_signal(signal.SIGTERM)
    child.send_signal(signal.SIGCONT)
    try:
        child.wait(limit)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
