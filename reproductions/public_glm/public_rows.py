"""Figure 7: error by the number of public rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from reproductions.experiment import Check, Measured, Outcome, Panel, Row, Series, Setting
from reproductions.public_glm.designs import Model, Population, corrected, default, drawn, noiseless, published
from reproductions.public_glm.released import coefficients

EPSILONS: Final = (10.0, 5.0, 3.0)
Found = dict[tuple[str, float, int], list[float]]
_NOTE: Final = "Medians over replications. Relative errors of the largest coefficient, not squared."


def fig7(setting: Setting) -> Outcome:
    """Compute relative errors by the number of public rows, logistic and cubic, p = 10, features of two values."""
    n = setting.of(tiny=30_000, reduced=200_000, full=200_000)
    counts = setting.of(
        tiny=(2_500, 20_000), reduced=(20_000, 80_000, 160_000), full=tuple(range(20_000, 180_000, 20_000))
    )
    rows, checks, panels, words = [], [], [], []
    models: tuple[Model, ...] = ("logistic", "cubic")
    for place, model in enumerate(models):
        found = _replicated(setting, model, n, counts, place / len(models))
        least, most = min(counts), max(counts)
        for m in (least, most):
            rows += [
                Row(
                    what=f"{model}, n = {n:,}, {m:,} public rows, epsilon = {epsilon:g}", tag=setting.tag(),
                    as_published=_at(found, "published", epsilon, m), corrected=_at(found, "corrected", epsilon, m),
                    default=_at(found, "default", epsilon, m), note=_NOTE,
                )
                for epsilon in EPSILONS
            ]  # fmt: skip
        printed = _at(found, "published", 10.0, most)
        few, many = (_at(found, "corrected", 10.0, m) for m in (least, most))
        checks += [
            Check.less(f"{model}: as published, coefficients of zero would be nearer", Measured(1.0), printed),
            Check.less_paired(
                f"{model}: the joint release is nearer (logarithms)",
                np.log(found["corrected", 10.0, most]), np.log(found["published", 10.0, most]),
            ),
            Check.near(
                f"{model}: {most // least} times the public rows hardly change the joint release's error",
                Measured(math.log(few.value / many.value)), 0.0, within=0.1,
            ),
        ]  # fmt: skip
        words.append(
            f"{model}, epsilon = 10: the joint release's error is {few} with {least:,} public rows and {many} with "
            f"{most:,}; as published it is {printed} with {most:,}."
        )
        panels += [_panel(f"{model}: {title}", found, method, counts) for method, title in (
            ("published", "as published"), ("corrected", "joint release"), ("default", "Murk's default"),
        )]  # fmt: skip
    return Outcome(rows=rows, panels=panels, checks=checks, verdict=" ".join(words))


def _replicated(setting: Setting, model: Model, n: int, counts: Sequence[int], before: float) -> Found:
    times, own = setting.of(tiny=9, reduced=15, full=100), setting.of(tiny=2, reduced=2, full=10)
    kept, delta = setting.of(tiny=2_000, reduced=5_000, full=20_000), 1.0 / n
    population, found = Population(model, "bernoulli", 10), Found()
    for r in range(times):
        setting.tick(before + 0.5 * r / times, model)
        key = (7, len(model), r)
        for m, people in zip(counts, drawn(population, [n], setting.rng(*key), counts, kept), strict=True):
            learners = [("no noise", 0.0, noiseless(population, people, 10.0, delta), 1.0)]
            for epsilon in EPSILONS:
                of = (population, people, epsilon, delta)
                learners += [
                    ("published", epsilon, published(*of, setting.rng(*key, 1)), 1.0),
                    ("corrected", epsilon, corrected(*of, setting.rng(*key, 2)), 1.0),
                ]
                if r < own:
                    learners.append(("default", epsilon, default(*of, setting.rng(*key, 3)), population.coding))
            for method, epsilon, learner, scale in learners:
                error = math.sqrt(population.error(scale * coefficients(learner)))
                found.setdefault((method, epsilon, m), []).append(error)
    return found


def _at(found: Found, method: str, epsilon: float, m: int) -> Measured:
    return Measured.median(found[method, epsilon, m])


def _panel(title: str, found: Found, method: str, counts: Sequence[int]) -> Panel:
    x = [float(m) for m in counts]
    series = [
        Series(name=f"epsilon = {epsilon:g}", x=x, y=[_at(found, method, epsilon, m).value for m in counts])
        for epsilon in EPSILONS
    ]
    quiet = [_at(found, "no noise", 0.0, m).value for m in counts]
    series.append(Series(name="no noise", x=x, y=quiet, style="dashed"))
    return Panel(title=title, x="public rows", y="relative error, median", series=series, log_y=True, line_at=1.0)
