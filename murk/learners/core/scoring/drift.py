"""Whether the coefficients have changed: the epochs after each boundary compared with those before it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from murk.errors import MurkError
from murk.learners.core.scoring.any_solution import solution_of
from murk.learners.core.scoring.engine import Learned, equations
from murk.learners.core.scoring.settings import REMEMBERED, Settings
from murk.learners.core.scoring.sums import Summary, summaries
from murk.learners.estimates.drift import SMALLEST_SHARE, Comparison, Drift, compare, concluded


def drift_of(settings: Settings, chains: Sequence[Learned]) -> Drift:
    """Return whether later epochs contradict earlier ones (see `murk.learners.estimates.drift`).

    The epochs before each boundary are solved in the same way as all together: without public rows if people are unlike
    them, and then with centred scores alone, whose mean is zero at the truth for any distribution of the features. So a
    change of the features alone is no drift, except for the least-squares lines of several classes.

    As the oldest epochs are forgotten, each boundary is tested with up to 7 different sets of epochs. The test corrects
    for that.
    """
    chains = equations(settings, chains)
    releases = sum(chain.count for chain, _ in chains)
    starts = sorted({epoch.start for chain, _ in chains for epoch in chain.epochs})
    answers = _answers_until(starts[-1], settings, chains)
    if len(starts) < 2 or settings.once or not answers:
        return Drift(releases=releases)
    whole = solution_of(answers, settings.response, settings.rows)
    releases_known = _releases_until(starts[-1], chains)
    comparisons: list[Comparison] = []
    for last, start in pairwise(starts):
        before = _releases_until(last, chains)
        share = 1.0 - before / releases_known
        if not before or share < SMALLEST_SHARE:
            continue
        try:
            older = whole.refit(_answers_until(last, settings, chains))
        except (MurkError, np.linalg.LinAlgError):
            # So few epochs may have no solution.
            continue
        comparison = compare(
            whole.values - older.values, older.covariance, whole.covariance,
            settings.epoch_number(start), releases - releases_known + before, releases, share,
        )  # fmt: skip
        comparisons += [] if comparison is None else [comparison]
    return concluded(settings.reported, releases, comparisons, REMEMBERED - 1)


def _releases_until(last: int, chains: Sequence[Learned]) -> int:
    """Return the number of releases in the remembered epochs that begin by ``last``."""
    return sum(
        tally.count
        for chain, _ in chains
        for epoch in chain.epochs
        if epoch.start <= last
        for tally in epoch.tallies.values()
    )


def _answers_until(last: int, settings: Settings, chains: Sequence[Learned]) -> list[Summary]:
    """Return the mean answers of all chains' epochs that begin by ``last``."""
    return [
        summary
        for chain, menus in chains
        for summary in summaries([epoch for epoch in chain.epochs if epoch.start <= last], menus, settings.features)
    ]
