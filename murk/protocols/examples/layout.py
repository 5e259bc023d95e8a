"""Layout of a learner's two arrays, ``real`` and ``whole``: passing more to kernels costs more than an update."""

from __future__ import annotations

from typing import Any

from murk._internal.jit import jit_helper
from murk.protocols.one_record import words_for

Array = Any  # kernels take numpy arrays of fixed element types; their annotations would only repeat "array"

# Forms of release: y x; x and a label in randomized response; x and a real target; a direction, of a label or a real
# target (see `directions`); an outer product, of a label or a real target (see `outer`).
PRODUCT, LABEL, REAL, DIRECTED_LABEL, DIRECTED_REAL, OUTER_LABEL, OUTER_REAL = 0, 1, 2, 3, 4, 5, 6
NOISE_AWARE, INVERSE_SCALING = 0, 1
NO_AVERAGE, POLYAK, POLYNOMIAL_DECAY = 0, 1, 2
UNIFORM, INVERSE_VARIANCE = 0, 1
# Sums of the Newton step: none, those of residuals at a reference point, or exact first and second moments of releases.
NO_STEP, AT_REFERENCE, EXACT = 0, 1, 2

# Indices into ``whole``. NUMBERS: numbers in a release. FREE: learned coefficients. UNCORRECTED: 1 if releases are
# treated as the records themselves. STEPS to THRESHOLD belong to the current level.
(
    LOSS,
    TERMS,
    FORM,
    FEATURES,
    BATCH,
    STEP,
    AVERAGING,
    WEIGHTING,
    BOXED,
    SIMULATED,
    SEED,
    COUNT,
    UPDATES,
    IN_BATCH,
    REFUSED,
    POLISH,
    NEXT_REFRESH,
    IDENTIFIED,
    COIN,
    NUMBERS,
    FREE,
    UNCORRECTED,
    STEPS,
    TARGET_STEPS,
    THRESHOLD,
    WHOLE_HEADER,
) = range(26)

# Indices into ``real``. UNIT to TARGET_LIMIT belong to the current level.
(
    WIDTH,
    RADIUS,
    BOUND,
    RIDGE,
    ETA,
    ALPHA,
    DECAY,
    TARGET_SCALE,
    UNIT,
    TARGET_UNIT,
    SPACING,
    TARGET_SPACING,
    VARIANCE,
    CONSTANT_VARIANCE,
    TARGET_VARIANCE,
    KEEP,
    SPREAD,
    LIMIT,
    TARGET_LIMIT,
    SUM_WEIGHT,
    SUM_SPREAD,
    SUM_SQUARES,
    BATCH_WEIGHT,
    LOSS_WEIGHT,
    LOSS_SUM,
    LOSS_WEIGHT_SQUARES,
    LOSS_CROSS,
    LOSS_SQUARES,
    LAST_STEP,
    POLISH_WEIGHT,
    POLISH_SQUARES,
    MEAT_SQUARES,
    BEND_SQUARES,
    DIRECTED_RIDGE,
    TARGET,
    REAL_HEADER,
) = range(36)

FIRST_REFRESH = 16  # releases at the first Newton step
LEVEL_REALS = TARGET_LIMIT - UNIT + 1
LEVEL_WHOLES = THRESHOLD - STEPS + 1
FIRST_SUM, LAST_SUM = SUM_WEIGHT, BEND_SQUARES

# State vectors in ``real``, in this order.
ITERATE, AVERAGE, SCALING_A, SCALING_B, GATHERED, REFERENCE, AIMED, FIRST, SECOND, ROWS = range(10)


@jit_helper
def moments_of(numbers: int) -> int:
    """Return the number of first and second moments of a release."""
    return numbers + numbers * (numbers + 1) // 2


@jit_helper
def sizes(features: int, numbers: int, newton: int) -> tuple[int, int]:
    """Return the lengths of ``whole`` and ``real``.

    ``whole``: header, noise, payload, random words with one for a coin. ``real``: header, state vectors, triangles,
    exact sums, x, the released vector.
    """
    whole = WHOLE_HEADER + 2 * numbers + words_for(numbers) + 1
    triangles = features * (features + 1) if newton != NO_STEP else 0
    exact = moments_of(numbers) if newton == EXACT else 0
    return whole, REAL_HEADER + (ROWS + 1) * features + triangles + exact + numbers


@jit_helper
def triangle(p: int) -> int:
    """Return the number of entries in a triangle of a (p, p) matrix."""
    return p * (p + 1) // 2
