"""``python -m tests.fuzz [--inputs N] [--seed S] [--target T] [--processes P] [--first F] [--json]``.

One input of a finding again: ``--target T --first F --inputs 1 --processes 0``, with the same seed.
"""

import argparse
import json
import os
import sys
import time
from dataclasses import asdict

from tests.fuzz.campaign import Report, campaign, scratch
from tests.fuzz.targets import SHARES

EVERY = 10.0
"""Seconds between two lines that say how far it is."""


def say(*words):
    print(*words, flush=True)  # noqa: T201 - what it is for


def arguments():
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--inputs", type=lambda text: int(float(text)), default=os.environ.get("MURK_FUZZ", "1e7"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", action="append", choices=list(SHARES), help="by default all of them")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="0: in this one")
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def main():
    with scratch():
        return run(arguments())


def run(options):
    names = options.target or list(SHARES)
    reports = {name: Report() for name in names}
    began = shown = time.monotonic()
    for name, report in campaign(options.seed, options.inputs, names, options.processes, options.first):
        reports[name].add(report)
        for finding in report.findings:
            say(f"FINDING {finding.target} {finding.first}: {finding.error}\n{finding.excerpt}\n{finding.trace}")
        if not options.json and time.monotonic() - shown > EVERY:
            shown = time.monotonic()
            done = sum(each.inputs for each in reports.values())
            found = sum(len(each.findings) for each in reports.values())
            say(f"{shown - began:7.0f} s  {done:,} of {options.inputs:,} inputs, {found} findings")
    seconds = time.monotonic() - began
    if options.json:
        found = {name: {**asdict(report), "inputs": report.inputs} for name, report in reports.items()}
        say(json.dumps({"seed": options.seed, "seconds": seconds, "targets": found}, indent=2))
    else:
        table(reports, seconds)
    return int(any(report.findings for report in reports.values()))


def table(reports, seconds):
    say(
        f"{'target':10} {'inputs':>12} {'accepted':>11} {'refused':>11} {'findings':>9} {'slowest':>9} {'mean':>9}"
        "  of them"
    )
    for name, report in reports.items():
        accepted = sum(report.outcomes[kind] for kind in ("accepted", "200"))
        reasons = ", ".join(f"{kind} {count:,}" for kind, count in report.outcomes.most_common() if kind != "accepted")
        say(
            f"{name:10} {report.inputs:12,} {accepted:11,} {report.inputs - accepted:11,} {len(report.findings):9} "
            f"{1e3 * report.slowest:6.0f} ms {1e6 * report.seconds / max(1, report.inputs):6.0f} us  {reasons}"
        )
    inputs = sum(report.inputs for report in reports.values())
    findings = sum(len(report.findings) for report in reports.values())
    memory = max(report.memory for report in reports.values()) / 1024
    say(f"{inputs:,} hostile inputs in {seconds:,.0f} s: {findings} findings; at most {memory:,.0f} MiB in a process")


if __name__ == "__main__":
    sys.exit(main())
