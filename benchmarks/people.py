"""One answer of people with several rows, against two other ways: ``python -m benchmarks.people``.

People have 1, 10 or 100 rows each, or a skewed number whose mean is 10, in which those come most often whose luck is
best. Rows of a person have a feature, and luck, in common. Shares and coefficients are of people. The first table has
how often 95% intervals hold, how often 95% sequences ever miss in 16 looks, and false drift alarms. With ``--files``
it is of `murk.run` on a table whose rows are in people's order, or mixed, and sequences are looked at once, at its end.

``--against`` is the other table: root mean square errors of the mean of a person's rows as one answer, and of one row
drawn (of shares both are a drawn row) and one release of each of up to 10 rows at an equal part of the budget, as
ratios to the first, with two standard errors, on the same records. With ``--first N`` all have a first round of N
releases per answer of a person, so that they have the same share of people in it. ``--exact`` has such ratios of
shares, by the variance of their estimates.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtr

import murk
from benchmarks.score_people import covariates_of
from benchmarks.track import Answer
from murk import Task
from murk.inference.confidence_sequences import Validity, looks_of
from murk.inference.contrasts import contrasts
from murk.privacy.noise import SimulatedNoise
from murk.producers.producer import randomize_records
from murk.protocols.device import device_for

MOST = 10  # releases of a person whose budget is divided
LOOKS = 16

KINDS = {
    "share": 'features: []\ntarget: {name: y, kind: binary, positive: "1", missing_share: 0}',
    "mean": "features: []\ntarget: {name: y, kind: real, low: 0, high: 1, missing_share: 0}",
    "scores": "features: [{name: a, low: -1, high: 1, typical: [-0.95, 0.95]}]\n"
    'target: {name: y, kind: binary, positive: "1", rate: 0.5}',
    "contrasts": "features: [{name: arm, categories: [a, b]}]\ntarget: {name: y, kind: real, low: 0, high: 1, "
    "typical: [0, 1]}\ncontrasts: [{feature: arm, category: b, against: a}]",
    "gradients": "features: [{name: a, low: -1, high: 1, typical: [-0.95, 0.95]}]\n"
    'target: {name: y, kind: binary, positive: "1", missing_share: 0}\nprotocol: gradients\n'
    "public: {set_aside: 1000}",
}
_SLOPE = 1.0

Floats = NDArray[np.float64]


def text_of(kind: str, mu: float) -> str:
    """Return the task file of a kind, one answer a person."""
    return f"name: people\n{KINDS[kind]}\nprivacy: {{guarantee: {{gdp: {{mu: {mu!r}}}}}}}\n"


def task_of(kind: str, mu: float) -> Task:
    """Return the simulated task of a kind, with public covariates of other people where it needs them."""
    task = Task.parse(text_of(kind, mu)).with_simulated(True)
    if task.public is None:
        return task
    known = covariates_of(np.column_stack([np.random.default_rng(0).uniform(-1, 1, 1_000), np.ones(1_000)]))
    return task.with_public(known.points, known.counts)


def truth_of(kind: str) -> float:
    """Return the true coefficient, or contrast."""
    return _SLOPE if kind in ("scores", "gradients") else 0.0


def rows_of(kind: str, people: int, rows: str, rng: np.random.Generator) -> tuple[Floats, Floats, NDArray[np.int64]]:
    """Return features (m, 2), targets (m,) and numbers of rows (people,), one person after the other."""
    luck = rng.normal(size=people)
    if rows == "skewed":
        counts = np.minimum(np.floor(4.0 * np.exp(luck + 0.4 * rng.normal(size=people))) + 1.0, 400.0).astype(np.int64)
    else:
        counts = np.full(people, int(rows))
    owner, total = np.repeat(np.arange(people), counts), int(counts.sum())
    own = rng.uniform(-1, 1, people)
    a = np.where(rng.random(total) < 0.5, own[owner], rng.uniform(-1, 1, total))
    if kind == "contrasts":
        a = np.sign(own)[owner]
    # Uniform for each row, and of a person much alike.
    mixed = math.sqrt(0.7) * luck[owner] + math.sqrt(0.3) * rng.normal(size=total)
    uniform = np.asarray(ndtr(mixed))
    if kind in ("mean", "contrasts"):
        y = 2.0 * uniform - 1.0
    else:
        slope = _SLOPE if kind in ("scores", "gradients") else 0.0
        y = (uniform < 1.0 / (1.0 + np.exp(-slope * a))).astype(np.float64)
    return np.column_stack([a, np.ones(total)]), y, counts


def learned(
    task: Task, x: Floats, y: Floats, counts: NDArray[np.int64], seed: int, looks: int = 1, first: int | None = None
) -> Iterator[tuple[Any, Any, int]]:
    """Yield device, learner and releases at about so many looks, the last one at the end; people come at random.

    ``first`` is the number of releases of the first round of scores, if it is another one.
    """
    rng, device = np.random.default_rng(seed + 10**6), device_for(task)
    if first is not None:
        device = replace(device, settings=replace(device.settings, first=first))  # type: ignore[union-attr,type-var]
    engine: Any = device.engine()
    noise, done, starts = SimulatedNoise(seed), 0, np.cumsum(counts) - counts
    order = rng.permutation(len(counts))
    ahead = [round(len(order) * 2.0 ** (-step / 2)) for step in range(looks)][::-1]
    while done < len(order):
        size = device.block(done) if device.interactive else len(order)  # type: ignore[attr-defined]
        size = min(size, ahead[0] - done)
        now = order[done : done + size]
        version, flat = engine.published() if device.interactive else (0, None)
        own = np.concatenate([np.arange(starts[each], starts[each] + counts[each]) for each in now])
        levels, partitions, indices = ["default"] * len(now), [0] * len(now), np.arange(done, done + len(now))
        model = {0: None if flat is None else np.array(flat)}
        features = x[own] if task.features else x[own, 1:]
        several: Any = counts[now] if counts.max() > 1 else None
        payloads, asked = randomize_records(
            device, features, y[own], partitions, model, levels, noise, indices, several  # type: ignore[arg-type]
        )  # fmt: skip
        split = [(query or "").partition("-") for query in asked or [""] * len(now)]
        answers = zip(split, payloads, strict=True)
        engine.learn_releases(
            [Answer(0, version, "default", name, int(item or 0), payload) for (name, _, item), payload in answers]
        )
        done += len(now)
        if done == ahead[0]:
            ahead.pop(0)
            yield device, engine, done


def holds(task: Task, kind: str, device: Any, engine: Any, truth: float, looks: Validity) -> tuple[float, bool | None]:
    """Return the error, and whether an interval for these looks holds; None if it has no end."""
    estimate = device.estimate([engine])
    asked = looks_of(task, estimate, estimate.n_releases, asked=looks)
    value, half = float(estimate.values[0]), float(estimate.half_widths(asked.nominal(0.95))[0])
    if kind == "contrasts":
        [contrast] = contrasts(task, estimate, asked, 0.95)
        return value - truth, contrast.interval[0] <= 0.0 <= contrast.interval[1]
    return value - truth, abs(value - truth) <= half if math.isfinite(half) else None


def one_of(x: Floats, y: Floats, counts: NDArray[np.int64], most: int, seed: int) -> tuple[Floats, Floats]:
    """Return up to ``most`` drawn rows of each person, as people of their own."""
    rng = np.random.default_rng(seed + 2 * 10**6)
    owner = np.repeat(np.arange(len(counts)), counts)
    shuffled = np.lexsort((rng.random(len(owner)), owner))
    place = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
    kept = shuffled[place < most]
    return x[kept], y[kept]


def of_file(
    kind: str, mu: float, x: Floats, y: Floats, counts: NDArray[np.int64], seed: int, mixed: bool
) -> tuple[bool | None, bool | None, bool]:
    """Return whether interval and sequence hold, and whether drift is alarmed, of a table of the records."""
    owner = np.repeat(np.arange(len(counts)), counts)
    rows = np.random.default_rng(seed).permutation(len(owner)) if mixed else np.arange(len(owner))
    real = kind in ("mean", "contrasts")
    targets = (y[rows] + 1.0) / 2.0 if real else y[rows].astype(int).astype(str)
    features = {"arm": np.where(x[rows, 0] > 0, "b", "a")} if kind == "contrasts" else {"a": x[rows, 0]}
    table = pd.DataFrame({"person": owner[rows], **features, "y": targets})
    task, truth = Task.parse(text_of(kind, mu)), truth_of(kind)
    result = murk.run(task, table, person="person", seed=seed)
    estimate = result.estimate
    held: list[bool | None] = []
    for looks in ("fixed-n", "always-valid"):
        asked = looks_of(task, estimate, estimate.n_releases, asked=looks)
        low, high = (float(ends[0]) for ends in estimate.ends(asked.nominal(0.95)))
        if kind == "contrasts":
            [contrast] = contrasts(task, estimate, asked, 0.95)
            low, high = contrast.interval
        held.append(low <= truth <= high if math.isfinite(high - low) else None)
    return held[0], held[1], "contradict" in str(result) or bool((result.report["drift"] or {}).get("alarm"))


def percent(flags: Sequence[bool | None]) -> str:
    """Return a share of flags in percent, without those that are None."""
    known = [flag for flag in flags if flag is not None]
    return f"{100.0 * np.mean(known):.1f}%" if known else "-"


def ratio(errors: Floats, others: Floats) -> str:
    """Return the ratio of two roots of mean square errors of the same runs, with two standard errors (delta method)."""
    first, second = errors**2, others**2
    both = second.mean() / first.mean()
    influence = (second - both * first) / first.mean()
    spread = influence.std(ddof=1) / math.sqrt(len(errors))
    return f"{math.sqrt(both):.3f} ± {spread / math.sqrt(both):.3f}"


def share_variance(share: float, mu: float) -> float:
    """Return the variance of the most likely share from one answer about one row, in Gaussian noise."""
    z = np.linspace(-10.0, 10.0 + mu, 20_001)
    absent, present = (np.exp(-((z - at) ** 2) / 2.0) / math.sqrt(2.0 * math.pi) for at in (0.0, mu))
    information = (present - absent) ** 2 / (share * present + (1.0 - share) * absent)
    return 1.0 / float(information.sum() * (z[1] - z[0]))


def exact_ratios(share: float, mu: float, alike: float) -> tuple[float, float]:
    """Return the errors of `MOST` answers that divide the budget, and of one about the mean, relative to one drawn row.

    Each person has `MOST` rows, whose labels have the correlation ``alike``. Answers about means are sums, as another
    estimate would be biased by them.
    """
    spread, drawn = share * (1.0 - share), share_variance(share, mu)
    divided = share_variance(share, mu / math.sqrt(MOST)) / MOST + (1.0 - 1.0 / MOST) * alike * spread
    mean = 1.0 / mu**2 + spread * (alike + (1.0 - alike) / MOST)
    return math.sqrt(divided / drawn), math.sqrt(mean / drawn)


def main(argv: list[str] | None = None) -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", nargs="+", default=[*KINDS], choices=[*KINDS])
    parser.add_argument("--rows", nargs="+", default=["1", "10", "100", "skewed"])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--people", type=int, default=2_000)
    parser.add_argument("--mu", type=float, default=1.5)
    parser.add_argument("--files", action="store_true")
    parser.add_argument("--against", action="store_true")
    parser.add_argument("--exact", action="store_true")
    parser.add_argument("--first", type=int)
    options = parser.parse_args(argv)
    if options.exact:
        print("| share | mu | correlation of rows | divided | about the mean |\n|---|---|---|---|---|")
        for share, mu, alike in itertools.product((0.5, 0.2, 0.05), (1.0, 1.5, 3.0), (0.49, 1.0)):
            divided, mean = exact_ratios(share, mu, alike)
            print(f"| {share} | {mu:g} | {alike:g} | {divided:.2f} | {mean:.2f} |")
        return
    if options.against:
        print("| task | rows each | error | one row drawn | up to 10 releases |\n|---|---|---|---|---|")
    else:
        print("| task | rows each | intervals hold | sequences miss | drift alarms |\n|---|---|---|---|---|")
    for kind in options.kinds:
        for rows in options.rows:
            for mixed in (False, True) if options.files else (None,):
                seeds = range(options.runs)
                drawn = (rows_of(kind, options.people, rows, np.random.default_rng(seed)) for seed in seeds)
                if options.against:
                    cells = _against(kind, options.mu, drawn, options.first)
                elif mixed is None:
                    cells = _valid(kind, options.mu, drawn)
                else:
                    runs = [of_file(kind, options.mu, *records, seed, mixed) for seed, records in enumerate(drawn)]
                    held, ever, alarms = zip(*runs, strict=True)
                    cells = [percent(held), percent([None if each is None else not each for each in ever])]
                    cells.append(percent(alarms))
                order = "" if mixed is None else ", mixed" if mixed else ", in order"
                print(f"| {kind} | {rows}{order} | {' | '.join(cells)} |", flush=True)


Records = tuple[Floats, Floats, NDArray[np.int64]]


def _valid(kind: str, mu: float, drawn: Iterable[Records]) -> list[str]:
    """Return shares of runs in which intervals hold, sequences miss, and drift is alarmed."""
    task, held, missed, alarms = task_of(kind, mu), [], [], []
    for seed, (x, y, counts) in enumerate(drawn):
        ever = False
        for device, engine, _ in learned(task, x, y, counts, seed, LOOKS):
            ever |= holds(task, kind, device, engine, truth_of(kind), "always-valid")[1] is False
        held.append(holds(task, kind, device, engine, truth_of(kind), "fixed-n")[1])
        missed.append(ever)
        if hasattr(device, "drift"):
            alarms.append(device.drift([engine]).alarm)
    return [percent(held), percent(missed), percent(alarms)]


def _against(kind: str, mu: float, drawn: Iterable[Records], first: int | None) -> list[str]:
    """Return the error of one answer, and the ratios of those of other ways."""
    once, divided, errors = task_of(kind, mu), task_of(kind, mu / math.sqrt(MOST)), []
    for seed, (x, y, counts) in enumerate(drawn):
        ways = [(once, x, y, counts, first)]
        for task, most in ((once, 1), (divided, MOST)):
            kept_x, kept_y = one_of(x, y, counts, most, seed)
            alone = np.ones(len(kept_y), dtype=np.int64)
            ways.append((task, kept_x, kept_y, alone, first and round(first * len(alone) / len(counts))))
        ends = ([*learned(*records, seed, first=length)][-1] for *records, length in ways)
        errors.append([float(device.estimate([engine]).values[0]) - truth_of(kind) for device, engine, _ in ends])
    one, single, several = np.array(errors).T
    return [f"{math.sqrt(np.mean(one**2)):.4f}", ratio(one, single), ratio(one, several)]


if __name__ == "__main__":
    main()
