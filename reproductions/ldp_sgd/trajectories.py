"""Figures 5 and 6: linear and logistic regression over decay rates, budgets and dimensions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from murk.learners import LDPSGDRegressor, ScoreClassifier
from murk.privacy import GaussianDP
from murk.protocols.gradients.objectives import Huber
from reproductions.experiment import STANDARD_ERRORS, Check, Measured, Outcome, Panel, Row, Series, Setting
from reproductions.ldp_sgd.simulate import (
    ALPHAS,
    KNOWN,
    LEVELS,
    REPLICATIONS,
    Floats,
    Kind,
    Maker,
    N,
    Path,
    as_known,
    distances,
    follow,
    fraction,
    lines,
    nearer,
    people,
    points,
    published,
    replicate,
    truth,
)

WHICH: Final = ("iterate", "average")
HALF: Final = 1 / 2
_SAMPLE = 8192


class LossGap:
    """``F(theta) - F(theta*)`` of the weighted loss over a fixed sample of people.

    The sample's slope at the truth, zero in the distribution, is subtracted, so the error is of second order.
    """

    def __init__(self, kind: Kind, d: int) -> None:
        rng = np.random.default_rng(20)
        X, y = people(kind, d, _SAMPLE, rng)
        self._kind, self._target = kind, truth(kind, d)
        self._rows, self._y = np.column_stack([X, np.ones(_SAMPLE)]), y
        self._weights = np.minimum(1.0, 2.0 / np.sum(self._rows**2, axis=1)) / _SAMPLE
        step = 1e-4 * np.eye(len(self._target))
        up, down = self._loss(self._target + step), self._loss(self._target - step)
        self._slope = (up - down) / 2e-4
        self._least = float(self._loss(self._target[None])[0])

    def _loss(self, theta: Floats) -> Floats:
        fits = self._rows @ theta[:, : self._rows.shape[1]].T
        if self._kind == "logistic":
            each = np.logaddexp(0.0, fits) - self._y[:, None] * fits
            return np.asarray(self._weights @ each)
        huber, sigma = Huber(1.345), theta[:, -1]
        u = np.abs(self._y[:, None] - fits) / sigma
        c = huber.c
        rho = np.where(u <= c, u * u / 2.0, c * u - c * c / 2.0)
        return np.asarray(self._weights @ (sigma * rho + huber.kappa * sigma / 2.0))

    def __call__(self, theta: Floats) -> Floats:
        """Return the gaps of rows of parameters ``(k, parameters)``."""
        gap = self._loss(theta) - self._least - (theta - self._target) @ self._slope
        return np.asarray(np.maximum(gap, 0.0))

    def along(self, paths: Sequence[Path]) -> Floats:
        """Return the gaps of paths, ``(runs, 2, points)``."""
        return np.array([self(path.values.reshape(-1, len(self._target))).reshape(2, -1) for path in paths])


def fig5(setting: Setting) -> Outcome:
    """Run linear regression with a Huber loss and an estimated scale."""
    return _grid(setting, "linear")


def fig6(setting: Setting) -> Outcome:
    """Run logistic regression, which is not strongly convex."""
    return _grid(setting, "logistic")


def _grid(setting: Setting, kind: Kind) -> Outcome:
    n = setting.of(tiny=10_000, reduced=N, full=N)
    dimensions = setting.of(tiny=(5,), reduced=(5, 10, 20), full=(5, 10, 20))
    at = points(n)
    found: dict[tuple[int, str, float], list[Path]] = {}
    edges = (0.0, 0.5, 0.7, 1.0)
    for place, d in enumerate(dimensions):
        times = setting.of(tiny=2, reduced=10 if d == 5 else 2, full=REPLICATIONS)
        makers: dict[str, Maker] = {
            f"{level}|{alpha}": lambda seed, d=d, alpha=alpha, budget=budget: published(  # type: ignore[misc]
                kind, d, budget, seed, alpha=alpha
            )
            for alpha in ALPHAS
            for level, budget in LEVELS.items()
        }
        share = edges[place], edges[place + 1]
        for name, paths in replicate(setting, kind, d, makers, at, times, share=share).items():
            level, _, alpha = name.partition("|")
            found[d, level, float(alpha)] = paths
    gap = LossGap(kind, 5)
    apart = {key: distances(paths, truth(kind, key[0])) for key, paths in found.items()}
    gaps = {key: gap.along(paths) for key, paths in found.items() if key[0] == 5}
    defaults = _defaults(setting, kind, dimensions, n)
    return Outcome(
        rows=_rows(setting, kind, apart, gaps, defaults),
        panels=_panels(at, apart, gaps),
        checks=_checks(setting, kind, apart, gaps),
        verdict=verdict_of(kind, apart, gaps),
    )


def _defaults(setting: Setting, kind: Kind, dimensions: Sequence[int], n: int) -> dict[tuple[int, str], Measured]:
    """Return squared distances of Murk's default: at all budgets for d = 5, at mu = 2 for other d."""
    measured = {}
    for d in dimensions:
        times = setting.of(tiny=2, reduced=4 if d == 5 else 2, full=20)
        for level in [one for one in LEVELS if one != "no noise"] if d == 5 else ["mu = 2"]:
            ends = [_default(kind, d, LEVELS[level], n, setting.rng(d, r), r) for r in range(times)]
            measured[d, level] = Measured.mean(ends)
    return measured


def _default(kind: Kind, d: int, budget: GaussianDP, n: int, rng: np.random.Generator, seed: int) -> float:
    X, y = people(kind, d, n, rng)
    names = list(range(d))
    if kind == "linear":
        path = follow(LDPSGDRegressor(guarantee=budget, features=names, seed=seed), X, y, [n])
        return float(path.distances(truth(kind, d))[1, -1])
    model = ScoreClassifier(guarantee=budget, features=names, seed=seed)
    model.learn_many(X, y)
    return float(np.sum((model.estimate().values - truth(kind, d)) ** 2))


def _rows(
    setting: Setting, kind: Kind, apart: dict[tuple[int, str, float], Floats],
    gaps: dict[tuple[int, str, float], Floats], defaults: dict[tuple[int, str], Measured],
) -> list[Row]:  # fmt: skip
    learner = "LDPSGDRegressor(guarantee=...), its average" if kind == "linear" else "ScoreClassifier(guarantee=...)"
    note = f"Murk's default is {learner}, on people of the same kind. No noise: mu = 900."
    rows = []

    def row(what: str, values: Floats, default: Measured | None = None) -> None:
        rows.append(Row(what=what, tag=setting.tag(), as_published=Measured.mean(values), default=default, note=note))

    for (d, level, alpha), each in apart.items():
        if alpha == HALF or level == "mu = 2":
            for place, which in enumerate(WHICH):
                default = defaults.get((d, level)) if place and alpha == HALF else None
                row(f"d = {d}, alpha = {fraction(alpha)}, {level}: {which}", each[:, place, -1], default)
    for (d, level, alpha), each in gaps.items():
        if alpha == HALF and level in ("mu = 2", "no noise"):
            for place, which in enumerate(WHICH):
                row(f"d = {d}, alpha = 1/2, {level}: loss gap of the {which}", each[:, place, -1])
                row(f"d = {d}, alpha = 1/2, {level}: squared loss gap of the {which}", each[:, place, -1] ** 2)
    return rows


def _panels(
    at: list[int], apart: dict[tuple[int, str, float], Floats], gaps: dict[tuple[int, str, float], Floats]
) -> list[Panel]:
    made = []
    kinds = [("mean squared distance", apart, d) for d in dict.fromkeys(d for d, _, _ in apart)]
    for what, each, d in [*kinds, ("mean loss gap", gaps, 5), ("mean squared loss gap", gaps, 5)]:
        for alpha in ALPHAS:
            series: list[Series] = []
            for place, level in enumerate(LEVELS):
                found = each[d, level, alpha]
                series += lines(level, at, found**2 if "squared loss" in what else found, place)
            made.append(Panel(
                title=f"d = {d}, alpha = {fraction(alpha)}", x="people", y=what, series=series, log_x=True, log_y=True
            ))  # fmt: skip
    return made


Ends = Mapping[tuple[int, str, float], Floats]
"""Values of iterates and averages by dimension, budget and decay rate, ``(runs, 2, points)``."""


def judged(kind: Kind, apart: Ends, gaps: Ends) -> tuple[Ends, str]:
    """Return the measure of the paper's figure: distances if linear, loss gaps if logistic."""
    return (apart, "squared distance") if kind == "linear" else (gaps, "loss gap")


def _checks(setting: Setting, kind: Kind, apart: Ends, gaps: Ends) -> list[Check]:
    each, what = judged(kind, apart, gaps)

    def end(level: str, alpha: float, place: int) -> Floats:
        return np.asarray(np.maximum(each[5, level, alpha][:, place, -1], 1e-15))

    checks = [
        nearer(f"{what}, d = 5, alpha = 1/2: the iterate at {one} is below that at {two}", end(one, HALF, 0),
               end(two, HALF, 0))
        for two, one in (("mu = 0.5", "mu = 2"), ("mu = 2", "no noise"))
    ]  # fmt: skip
    checks.append(
        nearer(
            f"{what}, d = 5, mu = 2, iterate: alpha = 1 does not converge, alpha = 1/2 is below",
            end("mu = 2", HALF, 0),
            end("mu = 2", 1.0, 0),
            times=setting.of(tiny=2, reduced=10, full=10),
        )
    )
    if setting.size == "tiny":
        return checks
    checks += [
        nearer(
            f"{what}, d = 5, {level}, alpha = 1/3: the average is below the iterate",
            end(level, 1 / 3, 1),
            end(level, 1 / 3, 0),
        )
        for level in ("mu = 2", "mu = 3")
    ]
    claim = f"{what}, d = 5, mu = 2, alpha = 2/3: the iterate is below the average, which contains the start"
    checks.append(nearer(claim, end("mu = 2", 2 / 3, 0), end("mu = 2", 2 / 3, 1)))
    for known, level in KNOWN:
        if known == kind and level != "mu = 1":
            checks += as_known(setting, kind, level)
    return checks


def verdict_of(kind: Kind, apart: Ends, gaps: Ends) -> str:
    """Return the verdict on whether averaging helps up to alpha = 1/2 (linear) or 2/3 (logistic)."""
    each, what = judged(kind, apart, gaps)
    claimed = (1 / 3, HALF) if kind == "linear" else (1 / 3, HALF, 2 / 3)
    ahead: list[str] = []
    behind: list[str] = []
    for level, alpha in [(level, alpha) for alpha in claimed for level in LEVELS]:
        iterate, average = np.maximum(each[5, level, alpha][:, :, -1].T, 1e-15)
        gain = Measured.mean(np.log(iterate / average))
        if abs(gain.value) > STANDARD_ERRORS * gain.error:
            (ahead if gain.value > 0 else behind).append(f"{level}, alpha = {fraction(alpha)}")
    whole = len(claimed) * len(LEVELS)
    seen = "Seen" if len(ahead) == whole else "Seen in part" if ahead else "Not seen"

    def best(which: Ends, place: int) -> str:
        found = [
            (level, fraction(min(ALPHAS, key=lambda alpha: float(which[5, level, alpha][:, place, -1].mean()))))
            for level in LEVELS
        ]
        return ", ".join(f"{rate} at {level}" for level, rate in found)

    ends = [apart[5, "mu = 2", HALF][:, place, -1].mean() for place in (0, 1)]
    beside = "" if kind == "linear" else f" (Squared distances there: {ends[0]:.2g} and {ends[1]:.2g}.)"
    both = each[5, "mu = 2", HALF][:, :, -1].mean(axis=0)
    return (
        f"{seen} that averages are ahead of iterates up to alpha = {fraction(claimed[-1])}: for d = 5, by 4 standard "
        f"errors of the logarithm of the {what}, they are ahead at {'; '.join(ahead) or 'none'}, and behind at "
        f"{'; '.join(behind) or 'none'}. At alpha = 1/2, mu = 2 the {what} is {both[0]:.2g} of the iterate and "
        f"{both[1]:.2g} of the average.{beside} The decay rate with the smallest {what} of the iterate is "
        f"{best(each, 0)}; of the average {best(each, 1)}."
    )
