"""Where everything a learner touches lies in its two arrays, ``real`` and ``whole``.

Handing a dozen arrays to a compiled function costs more than a step of the update: it gets two.
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
    ALPHA, DECAY, MECHANISM_RADIUS, SPACING, UNIT, VARIANCE,  # the last four: of the current level
    SUM_PRECISION, SUM_WEIGHT, SUM_SPREAD, SUM_SQUARES, BOUND,
    MEAN_AGE, SLOPE, SLOPE_SQUARES, COUNTED, REAL_HEADER,
) = range(26)  # fmt: skip

# Noise-aware steps are this share of the worst case's best, radius w_i / sqrt(2 sum w_j^2 v_j). Radii are
# generous, and iterates that wander far make the curved objectives biased: measured in benchmarks/accuracy.py.
STEP_SHARE = 0.5

# Words of one record that a rare trial needs beyond its own, and where those of the trials begin.
SPARE_WORDS = 4
WORDS_HEADER = 3 + SPARE_WORDS

# State vectors, one after another.
ITERATE, AVERAGE, SCALING_A, SCALING_B, MEAN_AT, MEAN_GRADIENT, ROWS = range(7)


@within
def places(whole: Array) -> tuple[int, int, int, int, int, int]:
    """Where in ``real`` the state vectors, x, z, the gradient, the public matrices and the ring begin.

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
    """Trials that mostly suffice for so many numbers of noise; where they do not, the draw goes on."""
    return size + size // 25 + 2


@within
def words_of(trials: int) -> int:
    """Random words of one record's release: three for coins, spare ones, and two a trial."""
    return WORDS_HEADER + 2 * trials
