"""Steps that old gradients can be trusted with, and how much iterates count that they made: compiled.

A gradient that is taken at an iterate and learned a releases later feeds back after a delay of a. Where steps eta, the
curvature h and delays have a product ``h eta a`` beyond about 1, the iterate overshoots. So steps are at most
``SAFE / (h a)``, a being the mean age of late and h the curvature that the learner has met; fresh gradients, whose ages
are 0, move it as they would without any of this, bit for bit.

h is the slope of released gradients in the iterates that they were taken at, ``sum q <d, g> / sum q |d|^2`` with
d and g centred and q the inverse of their variance. It is unbiased, since the noise of a release does not depend on the
iterate; a direction that overshoots dominates the sums, so that its own curvature is what is met; and before much is
known it is ``C0 / R``, the most that a gradient within C0 can bend by on average across a ball of radius R.

All of it is a function of the log alone: a release's age is the distance of two versions. The sums fade, so that h is
of about the newest quarter of the count, and ages of about the newest tenth.

Source: steps in inverse proportion to delays are those of Mishchenko, Bach, Even and Woodworth, "Asynchronous SGD
beats minibatch SGD under arbitrary delays", 2022; the curvature met on the way is Murk's own.
"""

from __future__ import annotations

import math

from murk._jit import jit
from murk.learners.ldp_sgd.layout import *

SAFE = 0.25
"""The product of curvature, step and mean age that is not exceeded.

1/e is the largest at which nothing overshoots. A block that is taken at one iterate has a
mean age of half its size, so that its steps add up to 1/2.
"""

# Ages beyond this part of the count say that next to nothing was learned between: they count for more, and iterates
# that they make count for less.
_PART = 10.0
# How fast ages and curvature fade: of the newest tenth, and quarter, of the count.
_AGES, _SLOPES = 10.0, 4.0
# The curvature met is noise where little moved: it is not taken to be below this part of the ball's.
_FLATTEST = 0.1


@jit
def age_factor(whole: Array, real: Array) -> float:
    """What the next step is multiplied by: ``SAFE / (h a)`` over the mean step of late, or 1 if that is more."""
    count = float(whole[COUNT])
    if whole[DELAYS] == 0 or real[MEAN_AGE] <= 0.0 or count == 0.0:
        return 1.0
    least = real[BOUND] / real[RADIUS]
    curvature = (real[SLOPE] + 1.0 / least) / (real[SLOPE_SQUARES] + 1.0 / (least * least))
    most = SAFE / (max(curvature, _FLATTEST * least) * real[MEAN_AGE])
    step = STEP_SHARE * real[RADIUS] * (real[SUM_WEIGHT] / count) / math.sqrt(2.0 * real[SUM_SPREAD])
    return float(min(1.0, most / step))


@jit
def note_age(
    whole: Array, real: Array, at: Array, mean_at: Array, release: Array, mean_gradient: Array, precision: float
) -> float:
    """Note a release's age, with its gradient and where it was taken; return how much the iterate it makes counts."""
    count, age = float(whole[COUNT]), float(whole[AGE])
    counts = 1.0
    if age > 0.0 or real[MEAN_AGE] > 0.0:
        far = max(1.0, _PART * age / count)
        if age > 1.0:
            counts = 1.0 / (far * far)
        real[MEAN_AGE] += (age * far - real[MEAN_AGE]) * min(1.0, _AGES / count)
        squares, slope = 0.0, 0.0
        for j in range(whole[DIMENSION]):
            moved = at[j] - mean_at[j]
            squares += moved * moved
            slope += moved * (release[j] - mean_gradient[j])
        keep = 1.0 - _SLOPES / count if count > _SLOPES else 1.0
        weight = precision * whole[DIMENSION]
        real[SLOPE_SQUARES] = keep * real[SLOPE_SQUARES] + weight * squares
        real[SLOPE] = keep * real[SLOPE] + weight * slope
    real[COUNTED] += counts
    return float(counts / real[COUNTED])
