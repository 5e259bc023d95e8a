"""A process that learns or releases records, and then searches its own memory for numbers that it should not have.

The numbers come as complements and are compared with complements, so that the search does not find itself.
"""

from __future__ import annotations

import json
import mmap
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

_CHUNK, _PAGE = 1 << 20, os.sysconf("SC_PAGE_SIZE")
_MARK = 0x5AA5_1234_9876_C3D2
"""A number that is kept on purpose: a search that does not find it sees nothing."""


def complements(values: Iterable[Any], kind: str) -> list[int]:
    """Complements of the 64 bits of numbers: of float64 (``"f8"``) or of int64 (``"i8"``)."""
    found = np.unique(np.asarray(list(values), dtype=kind).view(np.uint64))
    return [int(each) for each in np.bitwise_not(found)]


class Image:
    """A process in which scenarios of `tests.memory_scenarios` run, one after another, and that is then searched."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.memory_image"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, scenario: str, **arguments: Any) -> Any:
        """Run a scenario, and return what is public of it; what it keeps is kept until the next one."""
        return self._ask({"run": scenario, "with": arguments})

    def found(self, needles: Sequence[int]) -> int:
        """How many of these numbers, given as complements, stand anywhere in the process's memory."""
        answer = self._ask({"search": list(needles)})
        assert answer["mark"], "the search finds nothing at all"
        return int(answer["found"])

    def close(self) -> None:
        """End the process."""
        self._process.communicate()

    def _ask(self, what: Mapping[str, Any]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the process has died"
        return json.loads(line)


def _regions() -> list[tuple[int, int]]:
    with open("/proc/self/maps") as maps:
        lines = [line.split(None, 5) for line in maps]
    return [
        (int(start, 16), int(end, 16))
        for start, end in (line[0].split("-") for line in lines if line[1].startswith("rw") and "[v" not in line[-1])
    ]


def _search(needles: np.ndarray[Any, Any]) -> tuple[int, bool]:
    plain, turned = (np.frombuffer(mmap.mmap(-1, _CHUNK), dtype=np.uint64) for _ in range(2))
    apart = [array.ctypes.data for array in (plain, turned)]
    mark = np.uint64(~_MARK & (2**64 - 1))
    needles = np.append(needles, mark)
    # Most words are ruled out by their lowest bits.
    likely = np.zeros(1 << 16, dtype=bool)
    likely[(needles & np.uint64(0xFFFF)).astype(np.int64)] = True
    seen: set[int] = set()
    with open("/proc/self/mem", "rb", buffering=0) as memory, open("/proc/self/pagemap", "rb", buffering=0) as pages:
        for start, end in _regions():
            if any(start <= each < end and end - start <= 4 * _CHUNK for each in apart):
                continue
            for at in range(start, end, _CHUNK):
                pages.seek(8 * (at // _PAGE))
                # What was never touched holds nothing.
                if not any(pages.read(8 * (_CHUNK // _PAGE))):
                    continue
                try:
                    size = os.preadv(memory.fileno(), [memoryview(plain).cast("B")[: min(_CHUNK, end - at)]], at)
                except OSError:
                    continue
                count = size // 8
                np.bitwise_not(plain[:count], out=turned[:count])
                hits = turned[:count][likely[plain[:count].view(np.uint16)[::4] ^ np.uint16(0xFFFF)]]
                seen.update(int(each) for each in hits[np.isin(hits, needles)])
    marked = int(mark) in seen
    return len(seen) - marked, marked


def _main() -> None:
    from tests import memory_scenarios

    mark = np.array([_MARK ^ (2**64 - 1)], dtype=np.uint64)
    np.bitwise_not(mark, out=mark)
    kept = None
    for line in iter(sys.stdin.readline, ""):
        asked = json.loads(line)
        if "run" in asked:
            kept = None
            told, kept = getattr(memory_scenarios, asked["run"])(**asked["with"])
        else:
            found, marked = _search(np.array(sorted(asked["search"]), dtype=np.uint64))
            told = {"found": found, "mark": marked}
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()
    del kept


if __name__ == "__main__":
    _main()
