"""Parts that the engines of several protocols share. Does not import River."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from murk._internal.arrays import Floats


class NeverPublished:
    """An engine whose releases need no model, so that it publishes none."""

    publish_every = 2**31  # more releases than any stream has

    def published(self) -> None:
        """Return None: no iterate is published."""

    def figures(self) -> Mapping[str, float]:
        """Return an empty mapping: there are no figures beyond the estimate."""
        return {}


def weighted_mean(weights: Sequence[float], vectors: Sequence[Any]) -> Floats:
    """Return the weighted mean of vectors, or the plain mean if the weights are all 0."""
    total = np.array(weights)
    shares = total / total.sum() if total.sum() > 0 else np.full(len(total), 1.0 / len(total))
    return np.asarray(sum(share * vector for share, vector in zip(shares, vectors, strict=True)))


def path_variance(average: Floats, a: Floats, b: Floats, c: float, count: float) -> Floats:
    """Return the diagonal of random scaling's ``V = t^-2 sum s^2 (bar_s - bar_t)^2`` after t = ``count`` steps.

    ``a``, ``b`` and ``c`` are the sums of ``s^2 bar_s^2``, ``s^2 bar_s`` and ``s^2``.
    """
    if count == 0:
        return np.full(len(average), np.inf)
    return np.asarray(np.maximum(a - 2.0 * average * b + c * average * average, 0.0) / count**2)
