"""``python -m tests.soak [--kills N] [--minutes M] [--seed S] [--protocol P] [--log file|kafka] [--json]``.

Lives of logs, one after another: all protocols in turn, on a file and on Kafka. In each, devices, learners, the
monitor and the broker are killed (SIGKILL) at random moments, again and again; at its end accounts, log and states are
compared with each other and with those of a run that nobody disturbed. The seed fixes who is killed and how long is
waited; what a process is doing at that moment is for the machine to say.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import asdict, fields
from pathlib import Path

from deploy.broker import Broker
from tests.in_memory import use_memory
from tests.protocols import BY_NAME
from tests.services.faults.nursery import Nursery
from tests.soak.life import Life, Result
from tests.soak.people import CASES

KILLS = 25
"""Most kills of one life."""


def arguments():
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--kills", type=int, default=int(os.environ.get("MURK_SOAK_KILLS", "1000")), help="in all")
    parser.add_argument("--minutes", type=float, default=float(os.environ.get("MURK_SOAK", "inf")),
                        help="begin no life after so many")  # fmt: skip
    parser.add_argument("--seed", type=int, default=int(os.environ.get("MURK_SOAK_SEED", "1")))
    parser.add_argument("--protocol", action="append", choices=list(BY_NAME), help="by default all of them")
    parser.add_argument("--log", action="append", choices=list(CASES), help="by default both")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def say(*words):
    print(*words, flush=True)  # noqa: T201 - what it is for


def campaign(kills, minutes, seed, cells, tell):
    """Give (protocol, kind of log, result) of one life after another, of all (case, kind of log) in turn."""
    began = time.monotonic()
    logs, protocols = {log for _, log in cells}, {case.protocol for case, _ in cells}
    left = {cell: kills // len(cells) + (place < kills % len(cells)) for place, cell in enumerate(cells)}
    number = 0
    with ExitStack() as stack:
        base = Path(tempfile.mkdtemp(prefix="murk-soak-"))
        # What a failed life has left is kept.
        broker = stack.enter_context(Broker(base / "kafka")) if "kafka" in logs else None
        if broker is not None:
            # Nobody needs its data, so nobody waits for an orderly end.
            stack.callback(broker.kill)
        nursery = stack.enter_context(Nursery(base / "children", protocols, MURK_KAFKA_SESSION_TIMEOUT_MS="1500"))
        failed = False
        while any(left.values()) and time.monotonic() - began < 60 * minutes:
            case, log = cell = max(left, key=left.get)
            life = Life(case, broker if log == "kafka" else None, base, nursery, f"{seed} {number}", tell)
            result = life.run(min(KILLS, left[cell]))
            left[cell] -= result.kills.total()
            number += 1
            failed = failed or bool(result.violations)
            yield str(case.protocol), log, result
    if not failed:
        shutil.rmtree(base, ignore_errors=True)


def total(results):
    """The sum of several lives."""
    found = Result()
    for result in results:
        for each in fields(Result):
            setattr(found, each.name, getattr(found, each.name) + getattr(result, each.name))
    return found


def cell(lives, protocol, log):
    """The sum of the lives of one protocol on one kind of log."""
    return total(result for *of, result in lives if of == [protocol, log])


def main():
    options = arguments()
    use_memory()
    began = time.monotonic()

    def tell(what):
        if not options.json:
            say(f"{time.monotonic() - began:7.1f} s  {what}")

    cells = [
        (case, log)
        for log in options.log or CASES
        for case in CASES[log]
        if not options.protocol or str(case.protocol) in options.protocol
    ]
    lives = []
    for protocol, log, result in campaign(options.kills, options.minutes, options.seed, cells, tell):
        lives.append((protocol, log, result))
        done = sum(each.kills.total() for *_, each in lives)
        tell(
            f"{done} of {options.kills} kills; life {len(lives)}, {protocol} on {log}: {result.kills.total()} kills, "
            f"{result.learned:,} of {result.released:,} releases learned, {result.duplicates:,} duplicates, "
            f"{result.identical} of {result.partitions} partitions bit-identical, {result.seconds:.0f} s"
        )
    seconds = time.monotonic() - began
    everything = total(result for *_, result in lives)
    if options.json:
        by_cell = {f"{protocol}, {log}": asdict(cell(lives, protocol, log)) for protocol, log, _ in lives}
        say(json.dumps({"seed": options.seed, "seconds": seconds, "lives": len(lives), **asdict(everything),
                        "cells": by_cell}, indent=2))  # fmt: skip
    else:
        table(lives, everything, seconds)
    return int(bool(everything.violations))


COLUMNS = {
    "kills": lambda result: result.kills.total(),
    **{kind: (lambda result, kind=kind: result.kills[kind]) for kind in ("device", "learner", "monitor", "broker")},
    "releases": lambda result: result.released,
    "refused": lambda result: result.refused,
    "lost": lambda result: result.lost,
    "doubled": lambda result: result.doubled,
    "resent": lambda result: result.duplicates,
    "dead": lambda result: result.dead,
    "hostile": lambda result: result.hostile,
    "partitions": lambda result: result.partitions,
    "identical": lambda result: result.identical,
}


def table(lives, everything, seconds):
    say()
    say(" ".join([f"{'protocol':10} {'log':6} {'lives':>6}", *(f"{name:>9}" for name in COLUMNS)]))
    rows = Counter((protocol, log) for protocol, log, _ in lives)
    for protocol, log in rows:
        row(protocol, log, rows[protocol, log], cell(lives, protocol, log))
    row("all", "", len(lives), everything)
    say(
        f"\n{everything.kills.total():,} kills ({everything.at_work:,} of them after something had been written since "
        f"the one before) and {everything.freezes} freezes in {seconds / 60:.1f} minutes: "
        f"{len(everything.violations)} violations"
    )


def row(protocol, log, lives, result):
    say(" ".join([f"{protocol:10} {log:6} {lives:6}", *(f"{value(result):9,}" for value in COLUMNS.values())]))


if __name__ == "__main__":
    sys.exit(main())
