"""How often the bands of `track` hold in all windows at once: ``python -m benchmarks.track``.

Each person answers in 1 to 10 of the windows, always with the same features and the same luck, so that their answers
are as alike as can be. Coefficients are equal in all windows, or move steadily. Of each kind of task the table has the
share of coefficients whose bands hold in all windows (the windows' own, and the smoothed path's), the share without the
factor of repeated answers, the share of tracks that name a change, the median half-widths, and the share of 95%
intervals of all windows together that hold.

With ``--same`` people whose target has not changed repeat their last answer (`repeat: same`), noise included.
"""

from __future__ import annotations

import argparse
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from murk import Task
from murk.inference.confidence_sequences import wider_level
from murk.inference.track import Path
from murk.privacy.noise import SimulatedNoise
from murk.producers.producer import randomize_records
from murk.protocols.device import device_for
from murk.protocols.windows import neighbours, track_of
from murk.task.windows import ONCE, start_of

WINDOWS, MOST, SMOOTH = 12, 10, 2
FIRST = 700  # number of the first window, since 1970

TASKS = {
    "share": 'features: []\ntarget: {name: y, kind: binary, positive: "1", missing_share: 0}',
    "mean": "features: []\ntarget: {name: y, kind: real, low: -1, high: 1, missing_share: 0}",
    "line": "features: [{name: a, low: -1, high: 1, typical: [-0.95, 0.95]}]\n"
    "target: {name: y, kind: real, low: -1, high: 1, typical: [-0.9, 0.9]}",
    "logistic": "features: [{name: a, low: -1, high: 1, typical: [-0.95, 0.95]}]\n"
    'target: {name: y, kind: binary, positive: "1", rate: 0.5}',
}

Floats = NDArray[np.float64]


class Answer(NamedTuple):
    """What a learner reads of a release."""

    time: int
    version: int
    level: str
    query: str | None
    item: int
    payload: list[int]


def task_of(kind: str, mu: float, *, same: bool = False) -> Task:
    """Return the task: one answer a week, in at most 10 weeks."""
    repeat = "same" if same else "anew"
    return Task.parse(
        f"name: track\n{TASKS[kind]}\nprivacy: {{guarantee: {{gdp: {{mu: {mu}}}}}, window: week, repeat: {repeat}, "
        f"lifetime: {{gdp: {{mu: {mu * MOST**0.5}}}}}}}\ntrack: {{window: week, smooth: {SMOOTH}}}\n"
    ).with_simulated(True)


def attendance(rng: np.random.Generator, people: int) -> NDArray[np.bool_]:
    """Return who answers in which window, (people, windows): each in 1 to 10 of them."""
    ranks = rng.random((people, WINDOWS)).argsort(axis=1)
    return np.asarray(ranks < rng.integers(1, MOST + 1, size=people)[:, None])


def outcomes(kind: str, slopes: Floats, x: Floats, luck: Floats) -> Floats:
    """Return targets of people with features x (m, 2), in one window."""
    line = x @ slopes
    if kind == "share":
        return (luck < (1.0 + line) / 2.0).astype(np.float64)
    if kind == "logistic":
        return (luck < 1.0 / (1.0 + np.exp(-line))).astype(np.float64)
    return np.asarray(line + (luck - 0.5) * 0.6)


def coefficients(kind: str, moving: bool) -> Floats:
    """Return the windows' coefficients, (windows, 2), features first."""
    slope = {"line": 0.3, "logistic": 1.0}.get(kind, 0.0)
    moved = np.linspace(-1.0, 1.0, WINDOWS)[:, None] * moving
    return np.asarray(np.array([slope, 0.1]) + moved * np.array([0.6 * slope, 0.2]))


def truth_of(kind: str, slopes: Floats, counts: Floats) -> Floats:
    """Return the coefficients of the answers of some windows together: of a logistic model, the fit to all of them."""
    if kind != "logistic":
        return np.asarray(counts @ slopes / counts.sum())
    grid = np.linspace(-1.0, 1.0, 401)
    x = np.column_stack([grid, np.ones(401)])
    chance = counts @ (1.0 / (1.0 + np.exp(-slopes @ x.T))) / counts.sum()
    theta = np.zeros(2)
    for _ in range(20):
        fitted = 1.0 / (1.0 + np.exp(-x @ theta))
        theta = theta + np.linalg.solve((x * (fitted * (1.0 - fitted))[:, None]).T @ x, x.T @ (chance - fitted))
    return theta


def learned(task: Task, kind: str, slopes: Floats, people: int, seed: int) -> tuple[Any, Any]:
    """Return device and learner after everybody has answered, window after window."""
    rng, device = np.random.default_rng(seed), device_for(task)
    engine: Any = device.engine()
    present = attendance(rng, people)
    x, luck = np.column_stack([rng.uniform(-1, 1, people), np.ones(people)]), rng.random(people)
    noise, learned = SimulatedNoise(seed), 0
    last: dict[int, tuple[float, list[int]]] = {}
    for window in range(WINDOWS):
        own = rng.permutation(np.flatnonzero(present[:, window]))
        time = start_of("week", FIRST + window)
        while len(own):
            size = len(own) if not device.interactive else min(len(own), device.block(learned))  # type: ignore[attr-defined]
            now, own = own[:size], own[size:]
            version, flat = (0, None) if not device.interactive else engine.published()
            model = None if flat is None else np.array(flat)
            y = outcomes(kind, slopes[window], x[now], luck[now])
            indices = np.arange(learned, learned + len(now))
            features = x[now] if task.features else x[now, 1:]
            levels, partitions = ["default"] * len(now), [0] * len(now)
            payloads, asked = randomize_records(
                device, features, y, partitions, {0: model}, levels, noise, indices  # type: ignore[arg-type]
            )  # fmt: skip
            if task.privacy.repeats_answers:
                for place, (person, value) in enumerate(zip(now.tolist(), y.tolist(), strict=True)):
                    if last.get(person, (np.nan, []))[0] == value:
                        payloads[place] = last[person][1]
                    last[person] = value, payloads[place]
            split = [(query or "").partition("-") for query in asked or [""] * len(now)]
            engine.learn_releases(
                [
                    Answer(time, version, "default", name, int(item or 0), payload)
                    for (name, _, item), payload in zip(split, payloads, strict=True)
                ]
            )
            learned += len(now)
    return device, engine


def holds(path: Path, truths: Floats) -> float:
    """Return the share of coefficients whose band holds the truths of all windows; those without a number hold any."""
    with np.errstate(invalid="ignore"):
        return float((~(np.abs(path.values - truths) > path.half_widths)).all(axis=0).mean())


def main(argv: list[str] | None = None) -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", nargs="+", default=[*TASKS], choices=[*TASKS])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--people", type=int, default=6_000, help="people, 5.5 answers each (default: %(default)s)")
    parser.add_argument("--mu", type=float, default=4.0)
    parser.add_argument("--same", action="store_true")
    options = parser.parse_args(argv)
    print("| task | coefficients | windows hold | path holds | without the factor | change named | ", end="")
    print("+-window | +-path | whole holds |\n|---|---|---|---|---|---|---|---|---|")
    for kind in options.kinds:
        task = task_of(kind, options.mu, same=options.same)
        for moving in (False, True):
            slopes = coefficients(kind, moving)
            shown = slopes if task.features else slopes[:, 1:]
            counts, whole = np.zeros(5), []
            halves: list[tuple[float, float]] = []
            for seed in range(options.runs):
                device, engine = learned(task, kind, slopes, options.people, seed)
                track = track_of(task, device, [engine], 0.95)
                plain = track_of(task, device, [engine], 0.95, ONCE)
                assert track is not None
                assert plain is not None
                known = [number - FIRST for number in track.numbers]
                pools = neighbours(known, SMOOTH)
                smooth = np.array([truth_of(kind, shown[near], _counts(track, known, near)) for near in pools.values()])
                counts += [
                    holds(track.alone, shown[known]), holds(track.path, smooth), holds(plain.path, smooth),
                    bool(track.changed), 1,
                ]  # fmt: skip
                estimate = device.estimate([engine])
                truth = truth_of(kind, shown[known], _counts(track, known, known))
                half = estimate.half_widths(wider_level(0.95, task.repeats))
                whole.append(float(np.mean(np.abs(estimate.values - truth) <= half)))
                halves.append((float(np.median(track.alone.half_widths)), float(np.median(track.path.half_widths))))
            cells = [f"{100.0 * count / counts[-1]:.1f}%" for count in counts[:-1]]
            cells += [f"{value:.3f}" for value in np.median(np.array(halves), axis=0)]
            cells.append(f"{100.0 * np.mean(whole):.1f}%")
            print(f"| {kind} | {'moving' if moving else 'equal'} | {' | '.join(cells)} |", flush=True)


def _counts(track: Any, known: list[int], near: list[int]) -> Floats:
    return np.array([track.releases[known.index(each)] for each in near], dtype=np.float64)


if __name__ == "__main__":
    main()
