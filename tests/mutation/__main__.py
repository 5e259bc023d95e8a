"""``make mutants``: a seeded sample of small mistakes, and which of them no test notices.

Settings, from the environment: ``MURK_MUTANTS``, how many (100); ``MURK_MUTANTS_SEED`` (0); ``MURK_MUTANTS_IN``, files
and folders (`WHERE`); ``MURK_MUTANTS_MAP``, a file with the calls of each test, recorded where it does not exist.
"""

import json
import os
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.in_memory import use_memory
from tests.mutation import selection
from tests.mutation.equivalent import EQUIVALENT
from tests.mutation.mistakes import is_valid, mistakes
from tests.mutation.workbench import Workbench, preload

ROOT = Path(__file__).resolve().parents[2]
WHERE = "murk/privacy,murk/producers,murk/stream"
# Its tests need a broker; and what only puts into words what others have counted or refused.
WITHOUT = (
    "murk/stream/log/kafka/", "murk/task/errors.py", "murk/task/task.py",
    "murk/producers/ledger/statements.py",
)  # fmt: skip
FIRST, ALL, OTHERS = 4.0, 12.0, 30.0
"""Seconds of tests: those nearest that call the function, for what survives them all of their files, and in the end all
others that call it."""
LEAST = 0.95
OPEN = ("survived", "no tests", "stuck")


def main() -> None:
    """Make the mistakes, one at a time, and say which survive."""
    number, seed = (
        int(os.environ.get(name, default)) for name, default in (("MURK_MUTANTS", 100), ("MURK_MUTANTS_SEED", 0))
    )
    places = os.environ.get("MURK_MUTANTS_IN", WHERE).split(",")
    sources = {path: (ROOT / path).read_bytes() for place in places for path in files(place)}
    found = [mistake for path in sorted(sources) for mistake in mistakes(path, sources[path])]
    print(f"{len(found)} mistakes are possible in {len(sources)} files", flush=True)
    random.Random(seed).shuffle(found)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.nice(int(os.environ.get("MURK_MUTANTS_NICE", "5")))
    verdicts, survivors = Counter(), []
    use_memory()
    with tempfile.TemporaryDirectory(prefix="murk-mutants-") as place:
        known = Path(os.environ.get("MURK_MUTANTS_MAP", f"{place}/calls.json"))
        if not known.exists():
            print(
                "recording which test calls which function: as long as the tests take, and half as long again",
                flush=True,
            )
            selection.record(ROOT, known)
        tests = selection.Selection(ROOT, json.loads(known.read_text()))
        bench = Workbench(ROOT, Path(place) / "copy")
        preload()
        for mistake in found:
            if sum(verdicts.values()) == number:
                break
            source = sources[mistake.path]
            if not is_valid(mistake, source):
                continue
            reason = EQUIVALENT.get((mistake.path, mistake.diff(source)))
            verdict = "equivalent" if reason else check(bench, tests, mistake)
            if verdict == "broken":
                raise SystemExit(f"the tests cannot be run:\n{(bench.place / 'output.log').read_text()}")
            verdicts[verdict] += 1
            print(f"{verdict:10} {mistake.path}:{mistake.line} {mistake.function}", flush=True)
            if verdict in OPEN or reason:
                print(mistake.diff(source) + (f"\n  equivalent: {reason}" if reason else ""), flush=True)
            if verdict in OPEN:
                survivors.append((mistake, source))
    report(verdicts, survivors)


def check(bench, tests, mistake):
    """What becomes of the tests that may notice a mistake."""
    chosen = tests.of(mistake, FIRST)
    if not chosen:
        return "no tests"
    more = tests.of_their_files(chosen, ALL)
    others = tests.others(mistake, [*chosen, *more], OTHERS)
    for stage in (chosen, more if len(more) > len(chosen) else [], others):
        if not stage:
            continue
        seconds = sum(tests.seconds[test] for test in stage)
        verdict = bench.notices(mistake, stage, seconds)
        if verdict == "broken" and bench.notices(None, stage, seconds) == "survived":
            # With the mistake not even what the tests import can be loaded.
            return "noticed"
        if verdict != "survived":
            return verdict
    return "survived"


def files(place):
    """The source files of a place, from the root of the checkout."""
    path = ROOT / place
    if not path.exists():
        raise SystemExit(f"MURK_MUTANTS_IN: there is no {place}; give files and folders such as {WHERE}")
    if path.is_file():
        return [place]
    names = (each.relative_to(ROOT).as_posix() for each in path.rglob("*.py"))
    return sorted(name for name in names if not name.startswith(WITHOUT))


def report(verdicts, survivors):
    """Print what came out; exit with 1 where too much survived."""
    tried = sum(verdicts.values()) - verdicts["equivalent"]
    noticed = verdicts["noticed"] + verdicts["timeout"]
    print(f"\n{noticed} of {tried} noticed, {verdicts['equivalent']} more change nothing that can be seen")
    for mistake, source in survivors:
        print(f"\n{mistake.path}:{mistake.line}\n{mistake.diff(source)}")
    sys.exit(0 if noticed >= LEAST * tried else 1)


if __name__ == "__main__":
    main()
