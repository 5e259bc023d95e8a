"""Interrupts at any instruction of some files, as Ctrl-C comes."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def interrupted(work: Callable[[], object], stop: int, places: str | tuple[str, ...]) -> int:
    """Interrupt work at an instruction of the files under ``places``, counted from 1; 0 is never.

    Returns
    -------
    int
        How many instructions ran.
    """
    seen = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal seen
        if not frame.f_code.co_filename.startswith(places):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            seen += 1
            if seen == stop:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
    return seen
