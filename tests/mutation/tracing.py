"""Which functions of the package are called, in this process and in the commands that a test starts.

Compiled functions are called without Python, and so are not seen; nor is what other programs do, or what was killed.
"""

import contextlib
import json
import os
import resource
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

PLACE = "MURK_CALLS"
"""The environment's name of the file to which a command adds what it calls."""
_ROOT = Path(__file__).resolve().parents[2]
_HOME = f"{_ROOT / 'murk'}/"


@contextlib.contextmanager
def traced(found: dict[str, Any]) -> Iterator[None]:
    """Write down the calls in a block, and how many seconds of the processor it takes."""
    seen: set[CodeType] = set()

    def trace(frame: FrameType, event: str, argument: object) -> None:
        seen.add(frame.f_code)

    start = time.process_time()
    threading.settrace(trace)
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(None)
        threading.settrace(None)
        found["seconds"] = time.process_time() - start
        found["calls"] = {
            f"{code.co_filename[len(_HOME) - 5 :]}:{code.co_qualname.replace('.<locals>', '')}"
            for code in seen
            if code.co_filename.startswith(_HOME)
        }


@contextlib.contextmanager
def told() -> Iterator[None]:
    """In a command that a test has started: add what it calls to the test's, where that is recorded."""
    if PLACE not in os.environ:
        yield
        return
    found: dict[str, Any] = {}
    try:
        with traced(found):
            yield
    finally:
        # It may have been forbidden to write much.
        resource.setrlimit(resource.RLIMIT_FSIZE, resource.getrlimit(resource.RLIMIT_FSIZE)[1:] * 2)
        place = os.open(os.environ[PLACE], os.O_WRONLY | os.O_APPEND)
        os.write(place, (json.dumps(found, default=sorted) + "\n").encode())
        os.close(place)


def taken(place: Path) -> list[dict[str, Any]]:
    """What commands have added since this was last asked."""
    lines = place.read_text().splitlines()
    place.write_text("")
    return [json.loads(line) for line in lines]
