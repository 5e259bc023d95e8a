"""Where everything that a learner of released examples touches lies in its two arrays, ``real`` and ``whole``.

Handing a dozen arrays to a compiled function costs more than a step of the update: it gets two.
"""

from __future__ import annotations

from typing import Any

from murk._jit import within
from murk.learners.core.in_place import words_for

# Kernels take numpy arrays of fixed element types; their annotations would only repeat "array".
Array = Any

# What a release holds: the product y x; features beside a label in randomized response; features beside a real target;
# the direction of x, times a label and with 1/|x|, or beside a real target over |x| (see `directions`); the outer
# product of the direction of (x, y) with itself (see `outer`).
PRODUCT, LABEL, REAL, DIRECTED_LABEL, DIRECTED_REAL, OUTER_LABEL, OUTER_REAL = 0, 1, 2, 3, 4, 5, 6
NOISE_AWARE, INVERSE_SCALING = 0, 1
NO_AVERAGE, POLYAK, POLYNOMIAL_DECAY = 0, 1, 2
UNIFORM, INVERSE_VARIANCE = 0, 1

# Places in ``whole``; NUMBERS are those of a release, FREE those of theta that are learned, UNCORRECTED is 1 where
# releases are taken for the records themselves; those from STEPS to THRESHOLD are of the current level.
(
    LOSS, TERMS, FORM, FEATURES, BATCH, STEP, AVERAGING, WEIGHTING, BOXED, SIMULATED, SEED, COUNT, UPDATES, IN_BATCH,
    REFUSED, POLISH, NEXT_REFRESH, IDENTIFIED, COIN, NUMBERS, FREE, UNCORRECTED, STEPS, TARGET_STEPS, THRESHOLD,
    WHOLE_HEADER,
) = range(26)  # fmt: skip

# Places in ``real``; those from UNIT to TARGET_LIMIT are of the current level.
(
    WIDTH, RADIUS, BOUND, RIDGE, ETA, ALPHA, DECAY, TARGET_SCALE,
    UNIT, TARGET_UNIT, SPACING, TARGET_SPACING, VARIANCE, CONSTANT_VARIANCE, TARGET_VARIANCE, KEEP, SPREAD, LIMIT,
    TARGET_LIMIT,
    SUM_WEIGHT, SUM_SPREAD, SUM_SQUARES, BATCH_WEIGHT,
    LOSS_WEIGHT, LOSS_SUM, LOSS_WEIGHT_SQUARES, LOSS_CROSS, LOSS_SQUARES, LAST_STEP,
    POLISH_WEIGHT, POLISH_SQUARES, MEAT_SQUARES, BEND_SQUARES,
    DIRECTED_RIDGE, TARGET, REAL_HEADER,
) = range(36)  # fmt: skip

LEVEL_REALS = TARGET_LIMIT - UNIT + 1
LEVEL_WHOLES = THRESHOLD - STEPS + 1
FIRST_SUM, LAST_SUM = SUM_WEIGHT, BEND_SQUARES

# State vectors, one after another; then two triangles (where estimates are polished), x and the released vector.
ITERATE, AVERAGE, SCALING_A, SCALING_B, GATHERED, REFERENCE, AIMED, FIRST, SECOND, ROWS = range(10)


@within
def sizes(features: int, numbers: int, polish: int) -> tuple[int, int]:
    """Numbers of ``whole`` and of ``real``.

    ``whole`` is: header, noise, payload, words with one for a coin. ``real`` is: header, state vectors, triangles, x,
    the released vector.
    """
    whole = WHOLE_HEADER + 2 * numbers + words_for(numbers) + 1
    return whole, REAL_HEADER + (ROWS + 1) * features + polish * features * (features + 1) + numbers
