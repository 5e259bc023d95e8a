"""Kills a run just before and just after each of its writes: ``python -m tests.cli.points FIRST STEP ARGUMENTS...``.

Processes are forked from one that has everything imported and compiled, so that hundreds of runs take seconds.
For every point (one in STEP of them, from FIRST on) a run is killed there and then carried on to its end;
each end goes to standard output, one JSON object a line, the one that was never killed first.
"""

import io
import json
import os
import shutil
import signal
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from murk.cli import cli, main
from tests.cli.harness import traces

# Calls into C through which a run leaves its traces on the disk, or begins or ends doing so.
WRITES = {"execute", "executemany", "connect", "fsync", "replace", "link", "unlink", "write", "flock", "open", "close"}


class Killer:
    """A profiler that ends the process, as SIGKILL does, at the n-th beginning or end of a write."""

    def __init__(self, point: int) -> None:
        self.left = point

    def __call__(self, frame: Any, event: str, argument: Any) -> None:
        if event in ("c_call", "c_return") and getattr(argument, "__name__", "") in WRITES:
            self.left -= 1
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


def forked(arguments: Sequence[str], out: Path, point: int = 0) -> int:
    """Run the command in a forked process; its exit status, negative where a signal ended it."""
    child = os.fork()
    if child == 0:
        status = 70
        try:
            os.dup2(os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
            sys.argv = ["murk", *arguments]
            if point:
                sys.setprofile(Killer(point))
            main()
            status = 0
        except SystemExit as end:
            status = int(end.code or 0)
        finally:
            sys.setprofile(None)
            sys.stdout.flush()
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def end(arguments: Sequence[str], point: int) -> tuple[bool, dict[str, Any]]:
    """Kill a run at a point, if it gets so far, carry it on, and say what is left."""
    folder, home = Path(f"point-{point}"), Path.cwd()
    folder.mkdir()
    os.chdir(folder)
    try:
        killed = point > 0 and forked(arguments, Path("killed.json"), point) == -signal.SIGKILL
        status = forked(arguments, Path("end.json"))
        found = json.loads(Path("end.json").read_text()) if status == 0 else {}
        left = traces(Path()) if status == 0 else {}
    finally:
        os.chdir(home)
    shutil.rmtree(folder)
    found.pop("seconds", None)
    return killed, {"point": point, "status": status, "found": found, "traces": left}


def enumerate_points(first: int, step: int, arguments: Sequence[str]) -> None:
    # Everything is imported and compiled here, for all children.
    warm, home = Path("warm"), Path.cwd()
    warm.mkdir()
    os.chdir(warm)
    with redirect_stdout(io.StringIO()):
        cli(list(arguments), standalone_mode=False)
    os.chdir(home)
    print(json.dumps(end(arguments, 0)[1], default=lambda value: value.hex()), flush=True)  # noqa: T201
    point, killed = first, True
    while killed:
        killed, left = end(arguments, point)
        print(json.dumps(left, default=lambda value: value.hex()), flush=True)  # noqa: T201
        point += step


if __name__ == "__main__":
    enumerate_points(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
