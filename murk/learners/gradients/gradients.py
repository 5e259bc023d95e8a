"""Compiled gradients of the objectives, for devices and for the update."""

from __future__ import annotations

import math

import numpy as np

from murk._jit import jit
from murk.learners.gradients.layout import *
from murk.learners.gradients.losses import BALANCED, HUBER_SCALE, LOGISTIC, SOFTMAX


@jit
def whiten(whole: Array, real: Array, x: Array, z: Array) -> None:
    """Write working features ``z = W x``, or x without whitening."""
    p = x.shape[0]
    if whole[WHITEN] == 0:
        for j in range(p):
            z[j] = x[j]
        return
    at = places(whole)[4] + whole[CLASSES] * whole[OUTPUTS]
    for i in range(p):
        total = 0.0
        for j in range(p):
            total += real[at + j] * x[j]
        z[i] = total
        at += p


@jit
def softmax_gradient(whole: Array, real: Array, theta: Array, z: Array, y: float, weight: float, out: Array) -> None:
    """Write ``(p - e_y) (x) z weight``, in contrast coordinates or with one row for each class."""
    p, classes, outputs = whole[FEATURES], whole[CLASSES], whole[OUTPUTS]
    basis = places(whole)[4]
    scores = np.zeros(classes)
    for r in range(outputs):
        score = 0.0
        for j in range(p):
            score += theta[r * p + j] * z[j]
        for k in range(classes):
            scores[k] += real[basis + k * outputs + r] * score
    top = scores[0]
    for k in range(1, classes):
        top = max(top, scores[k])
    total = 0.0
    for k in range(classes):
        scores[k] = math.exp(scores[k] - top)
        total += scores[k]
    for r in range(outputs):
        residual = 0.0
        for k in range(classes):
            miss = scores[k] / total - (1.0 if float(k) == y else 0.0)
            residual += real[basis + k * outputs + r] * miss
        for j in range(p):
            out[r * p + j] = residual * z[j] * weight
    scores[:] = 0.0


@jit
def other_gradient(
    whole: Array, real: Array, theta: Array, z: Array, y: float, fit: float, weight: float, out: Array
) -> None:
    """Write the gradient of an objective other than a residual of the logit, or for a missing target."""
    p, d = whole[FEATURES], whole[DIMENSION]
    scaled = whole[OBJECTIVE] == HUBER_SCALE
    if y != y or fit != fit:  # a missing target, or a gradient that is not finite, gives zero
        for j in range(d):
            out[j] = 0.0
        if scaled:
            out[p] = -real[MULTIPLIER] * real[CENTRE]
        return
    if whole[OBJECTIVE] == SOFTMAX:
        softmax_gradient(whole, real, theta, z, y, weight, out)
        return
    c = real[HUBER_C]
    sigma = theta[p] * real[MULTIPLIER] if scaled else real[KNOWN_SCALE]
    u = (y - fit) / sigma
    slope = -min(max(u, -c), c) * weight
    for j in range(p):
        out[j] = slope * z[j]
    if scaled:
        fall = -0.5 * min(u * u, c * c)
        half_kappa = real[CENTRE] + 0.25 * c * c
        out[p] = real[MULTIPLIER] * ((fall + half_kappa) * weight - real[CENTRE])


@jit
def shorten(real: Array, out: Array) -> None:
    """Clip a gradient at its bound, where clipping replaces weights."""
    norm = 0.0
    for j in range(out.shape[0]):
        norm += out[j] * out[j]
    norm = math.sqrt(norm)
    if norm > real[CLIP_AT]:
        for j in range(out.shape[0]):
            out[j] *= real[CLIP_AT] / norm


@jit
def weigh(whole: Array, square: float) -> float:
    """Return the weight of a record whose working features have this squared norm."""
    if whole[WEIGHTS] == NORM:
        return 1.0 / max(1.0, math.sqrt(square))
    if whole[WEIGHTS] == MALLOWS:
        return min(1.0, 2.0 / square)
    return 1.0


@jit
def by_logit(whole: Array) -> bool:
    """Return whether the gradient is a residual of the logit times x."""
    return bool(whole[OBJECTIVE] == LOGISTIC or whole[OBJECTIVE] == BALANCED)


@jit
def miss(whole: Array, fit: float, y: float) -> float:
    """Return probability minus outcome; for the balanced loss, divided by the larger of p and 1 - p."""
    if whole[OBJECTIVE] == BALANCED:
        return -math.exp(min(-fit, 0.0)) if y > 0.5 else math.exp(min(fit, 0.0))
    # The exponential of a logit beyond 700 is infinite.
    return 1.0 / (1.0 + math.exp(-min(max(fit, -700.0), 700.0))) - y


@jit
def gradient(whole: Array, real: Array, theta: Array, z: Array, y: float, out: Array) -> None:
    """Write the weighted gradient at ``theta``, less its public centre.

    A missing target (NaN), or a gradient that is not finite, gives zero.
    """
    p = whole[FEATURES]
    square, fit = 0.0, 0.0
    for j in range(p):
        square += z[j] * z[j]
        fit += theta[j] * z[j]
    weight = weigh(whole, square)
    if by_logit(whole) and y == y:
        slope = miss(whole, fit, y) * weight
        for j in range(p):
            out[j] = slope * z[j]
    else:
        other_gradient(whole, real, theta, z, y, fit, weight, out)
    if whole[WEIGHTS] == CLIP:
        shorten(real, out)
