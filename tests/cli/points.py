"""Kills a run just before and just after each of its writes: ``python -m tests.cli.points FIRST STEP run TASK ...``.

For every point (one in STEP of them, from FIRST on) a run is killed there and then carried on to its end;
each end goes to standard output, one JSON object a line, the one that was never killed first.
"""

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.cli.forks import forked, warm
from tests.cli.harness import traces

# Calls into C through which a run leaves its traces on the disk, or begins or ends doing so.
WRITES = {"execute", "executemany", "connect", "fsync", "replace", "link", "unlink", "write", "flock", "open", "close"}


def killer(point: int) -> Callable[[Any, str, Any], None]:
    """A profiler that ends the process, as SIGKILL does, at the n-th beginning or end of a write."""
    left = point

    def look(frame: Any, event: str, argument: Any) -> None:
        nonlocal left
        if (event == "c_call" or event == "c_return") and argument.__name__ in WRITES:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return look


def end(arguments: Sequence[str], point: int) -> tuple[bool, dict[str, Any]]:
    """Kill a run at a point, if it gets so far, carry it on, and say what is left."""
    folder = Path(f"point-{point}")
    folder.mkdir()
    # Each has its own people: their accounts lie beside them.
    place = arguments.index("--source") + 1
    people = Path(shutil.copy(arguments[place], folder)).resolve()
    arguments = [*arguments[:place], str(people), *arguments[place + 1 :]]
    with (folder / "out").open("w+") as out:
        look = killer(point)
        killed = forked(arguments, folder, out.fileno(), 2, lambda: sys.setprofile(look)) == -signal.SIGKILL
        out.seek(0)
        out.truncate()
        status = forked(arguments, folder, out.fileno(), 2)
        out.seek(0)
        found = json.load(out) if status == 0 else {}
    left = traces(folder) if status == 0 else {}
    shutil.rmtree(folder)
    found.pop("seconds", None)
    return killed, {"point": point, "status": status, "found": found, "traces": left}


def enumerate_points(first: int, step: int, arguments: Sequence[str]) -> None:
    warm(Path(arguments[1]).read_text())
    print(json.dumps(end(arguments, 0)[1], default=lambda value: value.hex()), flush=True)  # noqa: T201
    point, killed = first, True
    while killed:
        killed, left = end(arguments, point)
        print(json.dumps(left, default=lambda value: value.hex()), flush=True)  # noqa: T201
        point += step


if __name__ == "__main__":
    enumerate_points(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
