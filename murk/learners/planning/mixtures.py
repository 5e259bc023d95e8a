r"""What is learned of an organisation's so many records, from the sums of their windows' mixtures.

A row of a sketch is normal with second moment ``Z'Z + v I``, Z the window's records and v the noise's variance, so that
``M'M`` has Wishart's distribution with k degrees of freedom: it is drawn at once (Bartlett), whatever k and n are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from murk.learners.estimates.estimate import Estimate
from murk.learners.gaussmix.problem import SketchProblem
from murk.learners.gaussmix.windows.sketch_settings import SketchSettings
from murk.learners.gaussmix.windows.sketch_sums import SketchSums, precision
from murk.learners.planning.design import Records
from murk.learners.planning.sums import split, within_bounds
from murk.privacy.gaussmix import GaussMixMechanism

Array = NDArray[np.float64]

_DRAWN: Final = 200
"""Windows that are drawn one by one; of more, several that are alike share what is drawn of their noise."""


def estimate(
    problem: SketchProblem, records: Records, people: int, levels: Mapping[str, float], chains: int,
    rng: np.random.Generator,
) -> Estimate:  # fmt: skip
    """The estimate of one organisation's so many records, in windows as the task has them."""
    settings = problem.settings
    engine = problem.engine()
    if people < min(settings.rows, settings.window or settings.rows):
        words = f"none: a sketch has {settings.rows:,} rows, and fewer records are not released (sketch: rows)"
        return replace(engine.estimate(), note=words)
    z = within_bounds(problem.records(records.X, records.y), settings.feature_bound, settings.target_bound)
    windows = split(max(people // (settings.window or people), 1), levels)
    size = people // sum(windows.values())
    for name, count in windows.items():
        for alike in _shared(count):
            counts = records.drawn(alike * size, rng) / alike
            one = _window((z * counts[:, None]).T @ z, size, alike, settings, problem.mechanisms[name], rng)
            engine.sums = engine.sums.merged(one)
    return engine.estimate()


def _shared(count: int) -> list[int]:
    """How many windows stand behind each that is drawn."""
    drawn = min(count, _DRAWN)
    return [count // drawn + (place < count % drawn) for place in range(drawn)]


def _window(
    moment: Array, size: int, alike: int, settings: SketchSettings, mechanism: GaussMixMechanism,
    rng: np.random.Generator,
) -> SketchSums:  # fmt: skip
    """The sums of so many windows that are alike, of so many records each and with this second moment."""
    eigenvalue = 0.0
    if mechanism.releases_eigenvalue:
        smallest = float(np.linalg.eigvalsh(moment)[0]) / mechanism.bound**2
        eigenvalue = smallest + mechanism.eta * (rng.normal() - mechanism.tau)
    noise = mechanism.noise_variance(mechanism.spread(eigenvalue))
    d, rows = len(moment), settings.rows * alike
    # M'M = L B B' L', L L' its mean per row: B has normal numbers below the roots of chi squares.
    root = np.linalg.cholesky(moment + noise * np.eye(d))
    below = np.tril(rng.normal(size=(d, d)), -1)
    below[np.diag_indices(d)] = np.sqrt(rng.chisquare(rows - np.arange(d)))
    drawn = root @ below
    weight = 1.0
    if settings.weighting == "inverse-variance":
        weight = precision(rows=settings.rows, records=size, noise=noise, unit=settings.signal)
    sums = SketchSums(settings.columns)
    sums.add(drawn @ drawn.T / rows, rows=settings.rows, records=size, noise=noise, weight=weight)
    return _times(sums, alike)


def _times(sums: SketchSums, factor: int) -> SketchSums:
    sums.moment *= factor
    for name in (*sums.scalars, *sums.counts):
        setattr(sums, name, getattr(sums, name) * factor)
    return sums
