"""Probabilities from scores, computed by numpy without overflow. Kernels have scalar versions of their own."""

from __future__ import annotations

import numpy as np

from murk._arrays import Floats


def logistic(scores: Floats) -> Floats:
    """Return ``1 / (1 + e^-s)``."""
    # np.clip is slow for few scores.
    return np.asarray(1.0 / (1.0 + np.exp(-np.minimum(np.maximum(scores, -700.0), 700.0))))


def class_probabilities(scores: Floats, basis: Floats) -> Floats:
    """Return probabilities of K classes, (m, K), from scores (m, c) of contrasts or classes and their basis (K, c)."""
    classes = scores @ basis.T
    odds = np.exp(classes - classes.max(axis=1, keepdims=True))
    return np.asarray(odds / odds.sum(axis=1, keepdims=True))
