"""Probabilities from scores, by numpy without overflow, and nodes for means over normal scores."""

from __future__ import annotations

from functools import cache

import numpy as np

from murk._internal.arrays import Floats


def logistic(scores: Floats) -> Floats:
    """Return ``1 / (1 + e^-s)``."""
    # np.clip is slow for few scores.
    return np.asarray(1.0 / (1.0 + np.exp(-np.minimum(np.maximum(scores, -700.0), 700.0))))


def class_probabilities(scores: Floats, basis: Floats) -> Floats:
    """Return probabilities of K classes, (m, K), from scores (m, c) of contrasts or classes and their basis (K, c)."""
    classes = scores @ basis.T
    odds = np.exp(classes - classes.max(axis=1, keepdims=True))
    return np.asarray(odds / odds.sum(axis=1, keepdims=True))


@cache
def normal_nodes(count: int) -> tuple[Floats, Floats]:
    """Return Gauss-Hermite nodes and weights, adding up to 1, for the mean of a function of a standard normal."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(count)
    return nodes, weights / weights.sum()
