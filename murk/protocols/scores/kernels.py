"""Compiled loops that compute mechanisms' inputs. No BLAS, so that a record's answer does not depend on its batch."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from murk._internal.jit import deferred, deferred_to, jit_helper

Array = NDArray[Any]

LARGEST_LOGIT = 50.0  # logits are clipped to it: probabilities hardly change beyond, and nothing overflows
_LARGEST_EXPONENT = 700.0  # its exponential does not overflow
SCORE, SCATTER = 0, 1  # indices of the queries in `murk.protocols.scores.model.QUESTIONS`


def _length(
    logit: float, length: float, target: float, clipping_norm: float, exponent: float, binary: bool, query: int
) -> float:
    """Return the length of a record's vector, from its logit and its transformed features' length."""
    logit = min(max(logit, -LARGEST_LOGIT), LARGEST_LOGIT)
    high, low = 1.0, -1.0
    if binary:
        high, low = min(1.0, math.exp(-exponent * logit)), -min(1.0, math.exp(exponent * logit))
    if query == SCORE:
        scale = min(max(target, -1.0), 1.0)
        if binary:
            scale = high if target > 0.5 else low
        return scale * (min(1.0, clipping_norm / length) if length > 0.0 else 0.0)
    weight = 0.5
    if query != SCATTER and binary:
        probability = 1.0 / (1.0 + math.exp(-logit))
        weight = probability * (1.0 - probability) * (high - low)
    return math.sqrt(2.0 * weight * min(length, clipping_norm) / clipping_norm)


_compiled_length = jit_helper(_length)


def _vectors_early(
    X: Array,
    y: Array,
    origin: Array,
    transform: Array,
    clipping_norm: float,
    exponent: float,
    binary: bool,
    query: int,
    out: Array,
) -> None:
    # The compiled loop on Python's own numbers, which are faster than an array's.
    shift, rows = origin.tolist(), transform.tolist()
    for i, (x, target) in enumerate(zip(X.tolist(), y.tolist(), strict=True)):
        v, logit, largest, square = [], 0.0, 0.0, 0.0
        for value, weight, row in zip(x, shift, rows, strict=True):
            logit += value * weight
            z = 0.0
            for factor, one in zip(row, x, strict=True):
                z += factor * one
            v.append(z)
            largest = max(largest, abs(z))
        if largest > 0.0:
            v = [z / largest for z in v]
            for z in v:
                square += z * z
        norm = math.sqrt(square)
        scale = _length(logit, largest * norm, target, clipping_norm, exponent, binary, query)
        factor = scale / norm if norm > 0.0 else 0.0
        v = [z * factor for z in v]
        finite = (query == SCATTER or target == target) and all(z - z == 0.0 for z in v)
        out[i] = v if finite else 0.0


@deferred_to(_vectors_early)
def vectors(
    X: Array,
    y: Array,
    origin: Array,
    transform: Array,
    clipping_norm: float,
    exponent: float,
    binary: bool,
    query: int,
    out: Array,
) -> None:
    """Write scores of coded records, or the v of their matrices ``v v'``, into ``out`` (m, p): no longer than 1.

    Missing targets (NaN) give zeros, except in a scatter; so do non-finite values.
    """
    p = X.shape[1]
    for i in range(X.shape[0]):
        logit, largest, square = 0.0, 0.0, 0.0
        for j in range(p):
            logit += X[i, j] * origin[j]
            z = 0.0
            for k in range(p):
                z += transform[j, k] * X[i, k]
            out[i, j] = z
            largest = max(largest, abs(z))
        # Scaled before squaring, so that neither huge nor tiny values make a direction longer than 1.
        if largest > 0.0:
            for j in range(p):
                out[i, j] /= largest
                square += out[i, j] * out[i, j]
        norm = math.sqrt(square)
        scale = _compiled_length(logit, largest * norm, y[i], clipping_norm, exponent, binary, query)
        finite = query == SCATTER or y[i] == y[i]
        for j in range(p):
            out[i, j] *= scale / norm if norm > 0.0 else 0.0
            finite &= out[i, j] - out[i, j] == 0.0
        if not finite:
            for j in range(p):
                out[i, j] = 0.0


@deferred
def class_scores(
    X: Array, y: Array, origin: Array, transform: Array, clipping_norm: float, exponent: float, basis: Array, out: Array
) -> None:
    """Write scores of K classes (see `classes`) into ``out`` (m, (K - 1) p): no longer than 1, 0 without a target."""
    p, classes, c = X.shape[1], basis.shape[0], basis.shape[1]
    unit, answer, odds = np.zeros((1, p)), np.zeros(c), np.zeros(classes)
    for i in range(X.shape[0]):
        # For a real target of 1 the score is the direction c z.
        vectors(X[i : i + 1], np.ones(1), origin[:p], transform, clipping_norm, 0.0, False, SCORE, unit)
        top, total, square, least = -math.inf, 0.0, 0.0, 1.0
        for k in range(classes):
            odds[k] = 0.0
            for a in range(c):
                for j in range(p):
                    odds[k] += basis[k, a] * exponent * origin[a * p + j] * X[i, j]
            top = max(top, odds[k])
        for k in range(classes):
            odds[k] = math.exp(odds[k] - top)
            total += odds[k]
        for k in range(classes):
            odds[k] /= total
            square += odds[k] * odds[k]
            least = min(least, odds[k])
        largest = math.sqrt(1.0 - 2.0 * least + square)
        there = y[i] >= 0.0 and y[i] < classes
        label = int(y[i]) if there else classes - 1
        finite = there
        for a in range(c):
            answer[a] = 0.0
            for k in range(classes):
                answer[a] -= basis[k, a] * odds[k]
            if there:
                answer[a] += basis[label, a]
            for j in range(p):
                out[i, a * p + j] = answer[a] / largest * unit[0, j]
                finite &= out[i, a * p + j] - out[i, a * p + j] == 0.0
        if not finite:
            for j in range(c * p):
                out[i, j] = 0.0
    unit[:] = 0.0
    answer[:] = 0.0
    odds[:] = 0.0


@deferred
def covered(
    X: Array, y: Array, origin: Array, threshold: float, basis: Array, classes: int, missing: float, out: Array
) -> None:
    """Write whether targets are in their prediction sets (1 or -1; ``missing`` without a target) into ``out`` (m, 1).

    ``classes`` is 0 for a real target; ``basis`` turns contrasts into the classes' log odds.
    """
    p, c = X.shape[1], basis.shape[1]
    odds = np.zeros(c)
    for i in range(X.shape[0]):
        for a in range(c):
            odds[a] = 0.0
            for j in range(p):
                odds[a] += origin[a * p + j] * X[i, j]
        holds, there = False, y[i] == y[i]
        if classes == 0:
            centre = min(max(odds[0], -1.0), 1.0)
            holds = abs(min(max(y[i], -1.0), 1.0) - centre) <= threshold
        else:
            there = there and y[i] >= 0.0 and y[i] < classes
            label = int(y[i]) if there else 0
            # 1 over the label's probability.
            inverse = 0.0
            for k in range(classes):
                further = 0.0
                for a in range(c):
                    further += (basis[k, a] - basis[label, a]) * odds[a]
                inverse += math.exp(min(further, _LARGEST_EXPONENT))
            holds = inverse * (1.0 - threshold) <= 1.0
        out[i, 0] = missing if not there else 1.0 if holds else -1.0
    odds[:] = 0.0
