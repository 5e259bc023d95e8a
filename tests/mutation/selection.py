"""Which tests may notice a mistake: those that call the function that it is in, the quickest first."""

import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.mutation.mistakes import Mistake

NEAR = ("tests/producers", "tests/privacy", "tests/stream")
"""Tests that are asked first."""
SUITES = ("tests/cli", "tests/learners", *NEAR)
"""Tests whose calls are recorded, the longest first: those of what is changed and of what runs it, without servers."""
_IMPORT = re.compile(r"^\s*(?:from\s+(murk[\w.]*)\s+import\s+([^\n#]*)|import\s+(murk[\w.]*))", re.MULTILINE)


def record(root: Path, out: Path) -> None:
    """Run all tests once, a suite on each processor, and write which function each calls."""

    def one(suite: str) -> dict:
        part = out.with_name(f"{out.name}.{Path(suite).name}")
        command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "tests.mutation.calls", "--calls", str(part)]
        subprocess.run([*command, "-p", "no:cacheprovider", suite], cwd=root, check=False)
        return json.loads(part.read_text())

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        parts = list(pool.map(one, SUITES))
    out.write_text(json.dumps({test: found for part in parts for test, found in part.items()}))


def importers(root: Path, module: str) -> set[str]:
    """The package's modules that hold a compiled copy, or a constant, of a module: all that import it, however far."""
    graph = defaultdict(set)
    for path in (root / "murk").rglob("*.py"):
        name = _name(path.relative_to(root))
        for match in _IMPORT.finditer(path.read_text()):
            base = match[1] or match[3]
            graph[base].add(name)
            for part in re.findall(r"\w+", match[2] or ""):
                graph[f"{base}.{part}"].add(name)
    found, waiting = {module}, [module]
    while waiting:
        for name in graph[waiting.pop()] - found:
            found.add(name)
            waiting.append(name)
    return found


def _name(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def _nearest(tests: set[str]) -> set[str]:
    return {test for test in tests if test.startswith(NEAR)} or tests


class Selection:
    """What was recorded, the other way round.

    Parameters
    ----------
    root
        Of the checkout.
    recorded
        By test: its seconds, and what it calls.
    """

    def __init__(self, root: Path, recorded: dict) -> None:
        self.root = root
        self.seconds = {test: found["seconds"] for test, found in recorded.items()}
        self.by_function, self.by_file = defaultdict(set), defaultdict(set)
        self.without = set()
        for test, found in recorded.items():
            # The first test that imports a file runs it, and need not use it.
            calls = [call for call in found["calls"] if not call.endswith(":<module>")]
            if not calls:
                self.without.add(test)
            for call in calls:
                self.by_function[call].add(test)
                self.by_file[call.partition(":")[0]].add(test)

    def of(self, mistake: Mistake, most: float) -> list[str]:
        """Tests that may notice a mistake: at most so many seconds of those nearest to it, the quickest first.

        Of compiled code and of what is done on import no call is seen: then those of the files that import it.
        """
        found = _nearest(self._calling(mistake))
        if not found:
            near = importers(self.root, _name(Path(mistake.path)))
            # The nearest only: everything imports everything in the end.
            named = re.compile(rf"\b{re.escape(Path(mistake.path).stem)}\b")
            files = {test.partition("::")[0] for test in self.seconds}
            named_in = {file for file in files if named.search((self.root / file).read_text())}
            paths = {f"{name.replace('.', '/')}.py" for name in near}
            # And tests that call kernels only, of which nothing is seen.
            found = _nearest({test for path in paths for test in self.by_file.get(path, set())} | self.without)
            found = {test for test in found if test.partition("::")[0] in named_in} or found
        return self._cut(found, most)

    def of_their_files(self, tests: list[str], most: float) -> list[str]:
        """All tests of the files of some: where a shared fixture or a cache made a call only once."""
        files = {test.partition("::")[0] for test in tests}
        return self._cut({test for test in self.seconds if test.partition("::")[0] in files}, most)

    def others(self, mistake: Mistake, done: list[str], most: float) -> list[str]:
        """Tests of all suites that call the function and were not run yet."""
        return self._cut(self._calling(mistake) - set(done), most)

    def _calling(self, mistake: Mistake) -> set[str]:
        return self.by_function.get(f"{mistake.path}:{mistake.function}") or self.by_file.get(mistake.path, set())

    def _cut(self, tests: set[str], most: float) -> list[str]:
        chosen, total = [], 0.0
        for test in sorted(tests, key=lambda each: (self.seconds[each], each)):
            total += self.seconds[test]
            if chosen and total > most:
                break
            chosen.append(test)
        return chosen
