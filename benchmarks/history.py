"""Models of many past releases, from a log and from its archive: ``python -m benchmarks.history``.

CPU microseconds and bytes a release. *Bare* reads the same bytes, and sums them: what nobody can save.

``--bits`` compares what is learned, for each protocol and loss: from the log, and from the archive by 1, 2 and 7
processes.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np

import murk
from benchmarks.on_kafka import Clock
from murk import Task
from murk.protocols.device import device_for
from murk.results.archives import processes
from murk.stream import open_log
from murk.stream.archive.archiver import Archiver
from murk.stream.archive.files import LocalFolder
from murk.stream.archive.reader import ArchiveLog
from murk.task import Model

CHOICES = {"age": "abcde", "arm": "abc", "region": "abcd", "smoker": "ab"}
TASK = "".join([
    "name: history\nfeatures:\n",
    *(f"  - {{name: {name}, categories: [{', '.join(values)}]}}\n" for name, values in CHOICES.items()),
    "target: {name: ill, kind: binary, positive: a, negative: b}\n",
    "privacy: {guarantee: {gdp: {mu: 1.0}}}\nlog: {partitions: 2}\n",
])  # fmt: skip
PROTOCOLS = {
    "cells": "protocol: examples\nexamples: {release: cells}",
    "moments": "protocol: moments",
    "outer": "protocol: examples\nexamples: {release: outer}",
    "directions": "protocol: examples\nexamples: {release: directions}",
    "scores": "protocol: scores",
    "gradients": "protocol: gradients",
}
OWN = {"scores", "gradients"}
"""Protocols of which an archive serves the task's own model; on a log its learner's states do."""
_PAGE = 65_536
REAL = TASK.replace("{name: ill, kind: binary, positive: a, negative: b}", "{name: days, kind: real, low: 0, high: 9}")
BINARY = "kind: binary, positive: a, negative: b"
MIXED = REAL.replace("gdp: {mu: 1.0}", "approx: {epsilon: 2.0, delta: 1.0e-6}")
TARGET = (
    "name: history\nfeatures: []\ntarget: {{{}}}\nprivacy: {{guarantee: {{gdp: {{mu: 1.0}}}}}}\n"
    "log: {{partitions: 2}}\n"
)
TARGETS = {
    "shares": "name: age, kind: classes, classes: [a, b, c, d, e]",
    "share": f"name: ill, {BINARY}",
    "mean": "name: days, kind: real, low: 0, high: 9",
    "quantiles": "name: days, kind: real, low: 0, high: 9, quantiles: [0.5, 0.9]",
}
CLASSES = TASK.replace(BINARY, "kind: classes, classes: [a, b]")
BITS = {
    **{name: (TASK + block, name in OWN) for name, block in PROTOCOLS.items()},
    **{
        f"{release}, {loss}": (f"{TASK}protocol: examples\nexamples: {{release: {release}, loss: {loss}}}", False)
        for release, losses in {
            "joint": ("quadratic", "log", "probit", "exponential"), "separate": ("quadratic", "log"), "cells": ("log",),
        }.items()
        for loss in losses
    },
    "scores, shared models, squares": (f"{REAL}protocol: scores", True),
    "scores, no models": (f"{CLASSES}protocol: scores\nscores: {{interactive: false}}", True),
    "moments, squares": (f"{REAL}protocol: moments", False),
    "outer, squares": (f"{REAL}protocol: examples", False),
    "gradients, squares": (f"{REAL}protocol: gradients", True),
    **{
        f"summaries, {method}": (f"{text}protocol: summaries\nsummaries: {{method: {method}, window: 1000}}", is_own)
        for method, text, is_own in (
            ("moments", REAL, False), ("newton", TASK, True), ("mixing", MIXED, False), ("linear-mixing", MIXED, False),
        )
    },
    **{f"univariate, {name}": (TARGET.format(target), True) for name, target in TARGETS.items()},
}  # fmt: skip
"""Tasks by name, and whether the archive serves their own model alone."""


def people(count):
    """People whose target depends on all features."""
    random = np.random.default_rng(1)
    columns = {name: random.integers(0, len(values), count) for name, values in CHOICES.items()}
    ill = random.random(count) < 0.1 + 0.05 * sum(columns.values())
    texts = {name: np.array([*CHOICES[name]])[column].tolist() for name, column in columns.items()}
    texts["ill"] = np.where(ill, "a", "b").tolist()
    texts["days"] = (3.0 * ill + random.random(count)).tolist()
    return [dict(zip(texts, row, strict=True)) for row in zip(*texts.values(), strict=True)]


def bare(log):
    """CPU seconds of reading all messages, and a sum of their bytes."""
    clock, total = Clock(), 0
    for partition in range(log.partitions):
        offset = log.begin(partition)
        while len(fetched := log.fetch(partition, offset, _PAGE)):
            total += int(np.frombuffer(fetched.messages.data, np.uint8).sum())
            offset = int(fetched.offsets[-1]) + 1
    assert total
    return clock.stop().cpu


def archived(url, path, **more):
    """CPU seconds of archiving a log."""
    clock = Clock()
    with open_log(url) as log:
        task = log.registered_task()
        archiver = Archiver(log, task, LocalFolder(str(path)), device_for(task).engine(), **more)
        while not archiver.has_archived(log.ends()):
            archiver.step()
        archiver.flush()
    return clock.stop().cpu


def fitted(model, **source):
    """CPU seconds of a fit, and its result."""
    clock = Clock()
    result = murk.fit(model, **source)
    return clock.stop().cpu, result


def measured(protocol, records, folder):
    """A line of the table."""
    count, url, path = len(records), f"sqlite:///{folder}/log.db", folder / "archive"
    task = Task.parse(TASK + PROTOCOLS[protocol])
    murk.run(task, records, seed=1, log=url, ledger=f"{folder}/ledger.db")
    copying = archived(url, path)
    model = Model.parse("{name: again}" if protocol in OWN else "{name: again, features: [arm, smoker]}")
    with open_log(url) as log, ArchiveLog(LocalFolder(str(path))) as archive:
        least = bare(log), bare(archive)
    of_archive = min(fitted(model, archive=path)[0] for _ in range(2))
    of_log = None
    if protocol not in OWN:
        of_log, result = fitted(model, log=url, replay=True)
        assert result.n_releases == count, result
    sizes = [(folder / "log.db").stat().st_size, sum(file.stat().st_size for file in path.rglob("*.parquet"))]
    us = [
        None if seconds is None else 1e6 * seconds / count
        for seconds in (least[0], of_log, copying, least[1], of_archive)
    ]
    return us, [size / count for size in sizes]


def bits(text, own, records, folder, maps):
    """What a log's and an archive's fits differ by, relative to the value; whether all maps agree."""
    url, path = f"sqlite:///{folder}/log.db", folder / "archive"
    murk.run(Task.parse(text), records, seed=1, log=url, ledger=f"{folder}/ledger.db")
    archived(url, path, rows=len(records) // 20)
    model = Model.parse("{name: again}" if own else "{name: again, features: [arm, smoker]}")
    expected = murk.fit(model, url, replay=not own)
    results = [murk.fit(model, archive=path, map=each) for each in maps]
    numbers = [
        np.array([[each.value, *(each.interval or (None, None))] for each in result.coefficients.values()], float)
        for result in (expected, results[0])
    ]
    # Unknown ones are unknown in both.
    assert (np.isfinite(numbers[0]) == np.isfinite(numbers[1])).all()
    numbers = [each[np.isfinite(numbers[0])] for each in numbers]
    apart = float(np.max(np.abs(numbers[0] - numbers[1]) / np.maximum(np.abs(numbers[0]), 1e-9), initial=0.0))
    return apart, len({result.report["state_digest"] for result in results}) == 1


def main(argv):
    parser = argparse.ArgumentParser()
    parser.add_argument("protocols", nargs="*", help=f"of {', '.join(PROTOCOLS)}; with --bits, begins of names")
    parser.add_argument("--releases", type=int, default=200_000)
    parser.add_argument("--bits", action="store_true", help="compare what is learned")
    options = parser.parse_args(argv)
    records = people(options.releases)
    if options.bits:
        print("| task | archive against log, relative | 1, 2 and 7 processes |\n|---|---|---|")
        with processes(2) as two, processes(7) as seven:
            for name, (text, own) in BITS.items():
                if not name.startswith(tuple(options.protocols) or ""):
                    continue
                with tempfile.TemporaryDirectory() as folder:
                    apart, same = bits(text, own, records, Path(folder), (map, two, seven))
                words = "the same bits" if apart == 0.0 else f"{apart:.0e}"
                print(f"| {name} | {words} | {'the same bits' if same else 'DIFFERENT'} |", flush=True)
        return
    print(f"{options.releases:,} releases on two partitions: CPU us, and bytes, of each\n")
    print("| | bare log | `murk fit --log` | ratio | archiver | bare archive | `--archive` | ratio | log | archive |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for protocol in options.protocols or PROTOCOLS:
        with tempfile.TemporaryDirectory() as folder:
            (log, of_log, copying, archive, of_archive), sizes = measured(protocol, records, Path(folder))
        fit = "-" if of_log is None else f"{of_log:.2f}"
        ratio = "-" if of_log is None else f"{of_log / log:.1f}"
        print(
            f"| {protocol} | {log:.2f} | {fit} | {ratio} | {copying:.2f} | {archive:.2f} | {of_archive:.2f} "
            f"| {of_archive / archive:.1f} | {sizes[0]:.0f} | {sizes[1]:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
