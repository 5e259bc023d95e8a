"""A run killed just before and just after each of its writes.

At every point (one in STEP of them, from FIRST on) the run is stopped and its files are copied: they are what SIGKILL
would leave there, since what a process has written is the system's, written or mapped. Each copy takes the place of the
run's folder and is carried on to its end; each end goes to standard output, one JSON object a line, the one that was
never killed first. Of points that leave the same files one is carried on.
"""

import hashlib
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.cli.forks import forked, started, warm
from tests.cli.harness import traces

# Calls into C through which a run leaves its traces on the disk, or begins or ends doing so.
WRITES = {"execute", "executemany", "connect", "fsync", "replace", "link", "unlink", "write", "flock", "open", "close"}


def stopper(first: int, step: int) -> Callable[[Any, str, Any], None]:
    """A profiler that stops the process at beginnings and ends of writes: at the ``first``, then at one in ``step``."""
    left = first

    def look(frame: Any, event: str, argument: Any) -> None:
        nonlocal left
        if (event in {"c_call", "c_return"}) and argument.__name__ in WRITES:
            left -= 1
            if left == 0:
                left = step
                os.kill(os.getpid(), signal.SIGSTOP)

    return look


def digest(folder: Path) -> str:
    """Of all that a next run finds in a folder."""
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        # Indices of SQLite's logs are made anew by whoever opens a database that nobody else has open.
        if path.is_file() and not path.name.endswith("-shm"):
            content = path.read_bytes()
            found.update(f"{path.relative_to(folder)} {len(content)}:".encode() + content)
    return found.hexdigest()


def output(folder: Path) -> Path:
    return folder.with_suffix(".out")


def stopped(arguments: Sequence[str], folder: Path, first: int, step: int) -> tuple[int, list[tuple[list[int], Path]]]:
    """Run to the end with stops on the way: its status, and copies of the folder, each with the points it is of."""
    look = stopper(first, step)
    copies: dict[str, tuple[list[int], Path]] = {}
    with output(folder).open("w") as out:
        child, point = started(arguments, folder, out.fileno(), 2, lambda: sys.setprofile(look)), first
        while os.WIFSTOPPED(status := os.waitpid(child, os.WUNTRACED)[1]):
            found = digest(folder)
            if found not in copies:
                copies[found] = [], Path(shutil.copytree(folder, f"{folder}-{point}"))
            copies[found][0].append(point)
            point += step
            os.kill(child, signal.SIGCONT)
    return os.waitstatus_to_exitcode(status), list(copies.values())


def end(folder: Path, status: int) -> dict[str, Any]:
    """What a run has left and said, which is then forgotten."""
    found = json.loads(output(folder).read_text()) if status == 0 else {}
    found.pop("seconds", None)
    left = traces(folder) if status == 0 else {}
    shutil.rmtree(folder)
    return {"status": status, "found": found, "traces": left}


def enumerate_points(first: int, step: int, arguments: Sequence[str]) -> None:
    """In a folder of its own, for ``run TASK ...``."""
    warm(Path(arguments[1]).read_text(), noise="--seed" not in arguments)
    folder = Path("run").absolute()
    folder.mkdir()
    # It has its own people: their accounts lie beside them.
    place = arguments.index("--source") + 1
    people = shutil.copy(arguments[place], folder)
    arguments = [*arguments[:place], str(people), *arguments[place + 1 :]]

    def tell(points: Sequence[int], status: int) -> None:
        found = {"points": points, **end(folder, status)}
        print(json.dumps(found, default=lambda value: value.hex()), flush=True)  # noqa: T201

    status, copies = stopped(arguments, folder, first, step)
    tell([], status)
    for points, copy in copies:
        copy.rename(folder)
        with output(folder).open("w") as out:
            status = forked(arguments, folder, out.fileno(), 2)
        tell(points, status)
