"""Positions in a learner's two arrays, ``real`` and ``whole``.

Kernels take two arrays, as passing a dozen arrays would cost more than a step of the update.
"""

from __future__ import annotations

from typing import Any

from murk._jit import within

# Kernels take numpy arrays of fixed element types; their annotations would only repeat "array".
Array = Any

# How a feature vector is weighted, a step sized, iterates averaged, people weighted.
NORM, MALLOWS, CLIP = 0, 1, 2
NOISE_AWARE, INVERSE_SCALING = 0, 1
NO_AVERAGE, POLYAK, POLYNOMIAL_DECAY = 0, 1, 2
UNIFORM, INVERSE_VARIANCE = 0, 1

# Places in ``whole``.
(
    OBJECTIVE, WEIGHTS, STEP, AVERAGING, WEIGHTING, FEATURES, DIMENSION, CLASSES, RING, WHITEN, SCALING,
    OUTPUTS, FLOOR, SIMULATED, SEED, KIND, STEPS, THRESHOLD, DRAWS, COUNT, NEXT_PUBLISHED, RING_HEAD, RING_LENGTH,
    DELAYS, AGE, WHOLE_HEADER,
) = range(26)  # fmt: skip

# Places in ``real``.
(
    HUBER_C, CENTRE, MULTIPLIER, KNOWN_SCALE, OWN_SPREAD, CLIP_AT, RADIUS, SCALE_FLOOR, SCALE_CEILING, ETA,
    ALPHA, DECAY, MECHANISM_RADIUS, SPACING, UNIT, VARIANCE,  # the last four are of the current level
    SUM_PRECISION, SUM_WEIGHT, SUM_SPREAD, SUM_SQUARES, BOUND,
    MEAN_AGE, SLOPE, SLOPE_SQUARES, COUNTED, REAL_HEADER,
) = range(26)  # fmt: skip

# Noise-aware steps are this share of radius w_i / sqrt(2 sum w_j^2 v_j), the best in the worst case: radii are
# generous, and curved objectives are biased if iterates wander far (benchmarks/accuracy.py).
STEP_SHARE = 0.5

# Number of additional words of one record, for rare trials, and index of the first word of the trials.
SPARE_WORDS = 4
WORDS_HEADER = 3 + SPARE_WORDS

# State vectors, one after another.
ITERATE, AVERAGE, SCALING_A, SCALING_B, MEAN_AT, MEAN_GRADIENT, ROWS = range(7)


@within
def places(whole: Array) -> tuple[int, int, int, int, int, int]:
    """Return the indices at which state vectors, x, z, gradient, public matrices and ring begin in ``real``.

    ``real`` is: header, state vectors, x, z, gradient, basis of classes (K x outputs), transform (p x p), ring.
    """
    p, d = whole[FEATURES], whole[DIMENSION]
    x = REAL_HEADER + ROWS * d
    basis = x + 2 * p + d
    transform = basis + whole[CLASSES] * whole[OUTPUTS]
    ring = transform + whole[WHITEN] * p * p
    return REAL_HEADER, x, x + p, x + 2 * p, basis, ring


@within
def trials_of(size: int) -> int:
    """Return a number of trials that mostly suffices for ``size`` numbers of noise; if not, the draw continues."""
    return size + size // 25 + 2


@within
def words_of(trials: int) -> int:
    """Return the number of random words for one release: three for coins, spare ones, and two for each trial."""
    return WORDS_HEADER + 2 * trials
