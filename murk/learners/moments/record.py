"""Memory of a learner of moments, and the kernel that learns one record in the memory at an address."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from murk._jit import patient, within
from murk._memory import integers_at, numbers_at, rows_at, words_at
from murk.learners.core.in_place import LEARNED, NO_WORDS, SPARE, TOO_FEW, KernelMemory, draw_from, words_for
from murk.learners.moments.kernels import SUMS, add_release, moments_of, randomize_block
from murk.learners.moments.mechanism import Level, MomentMechanism
from murk.learners.moments.statistics import Statistics
from murk.learners.moments.sums import MomentSums
from murk.privacy.noise.chacha import fresh_words
from murk.privacy.noise.kernels import fast_gaussian, room_for

# Indices into ``whole``.
FEATURES, NUMBERS, CONSTANT, ZERO, SIMULATED, SEED, WHOLE_HEADER = range(7)
# Indices into ``real``. The part from COUNT to the sums and totals after the header is read at once.
(
    GAIN, REACH, ROOT, WEIGHT, PRESENCE, SPACING, FIRST_WEIGHT, SECOND_WEIGHT, FIRST_VARIANCE, SECOND_VARIANCE, TARGET,
    COUNT, REAL_HEADER,
) = range(13)  # fmt: skip


@within
def sizes(numbers: int, features: int) -> tuple[int, int, int]:
    """Return the lengths of ``whole`` and ``real``, and the index of x in ``real``.

    ``whole``: header, noise, payload, words. ``real``: header, sums, totals, x, moments. x has a place for a constant
    even if there is none.
    """
    x = REAL_HEADER + SUMS + numbers
    return WHOLE_HEADER + 2 * numbers + words_for(numbers), x + features + 1 + numbers, x


@patient
def learn_record(address: int, y: float, trials: int) -> int:
    """Learn from the record whose features are in the memory at ``address``, and wipe them.

    Secure noise is drawn from words for ``trials`` trials; with 0 trials it is already in the memory. Returns
    `LEARNED`; or `TOO_FEW` if the words did not suffice and the draw must continue from them; or `NO_WORDS`.
    """
    header = integers_at(address, WHOLE_HEADER)
    p, d = header[FEATURES], header[NUMBERS]
    size, reals, x = sizes(d, p)
    whole, real = integers_at(address, size), numbers_at(address + 8 * size, reals)
    noise, payload = whole[WHOLE_HEADER : WHOLE_HEADER + d], whole[WHOLE_HEADER + d : WHOLE_HEADER + 2 * d]
    words_place = WHOLE_HEADER + 2 * d
    words_start, words = address + 8 * words_place, words_at(address + 8 * words_place, size - words_place)
    if whole[SIMULATED] == 1:
        fast_gaussian(np.uint64(whole[SEED]), np.int64(real[COUNT]), words[: room_for(d)], noise)
    elif trials > 0:
        if not fresh_words(words_start, 2 * trials + SPARE):
            return NO_WORDS
        if draw_from(words_start, trials, noise) != LEARNED:
            return TOO_FEW

    constant = whole[CONSTANT] == 1
    slopes = p - 1 if constant else p
    for j in range(x, x + slopes):
        real[j] = real[j] * real[GAIN] if real[j] - real[j] == 0.0 else 0.0
    real[TARGET] = y
    start = address + 8 * size
    moments = rows_at(start + 8 * (x + p + 1), 1, d)
    moments_of(
        rows_at(start + 8 * x, 1, p), real[TARGET : TARGET + 1], real[REACH], constant, whole[ZERO] == 1,
        real[ROOT], real[WEIGHT], real[PRESENCE], moments,
    )  # fmt: skip
    randomize_block(
        moments, p, real[REACH], constant, real[ROOT], real[WEIGHT], real[PRESENCE], real[SPACING],
        noise.reshape((1, d)), payload.reshape((1, d)),
    )  # fmt: skip
    total = real[REAL_HEADER + SUMS : x]
    unit, cross = real[SPACING], d - p
    for j in range(d):
        total[j] += real[FIRST_WEIGHT if j < cross else SECOND_WEIGHT] * (unit * payload[j])
    add_release(real[REAL_HEADER : REAL_HEADER + SUMS], real[FIRST_WEIGHT:FIRST_VARIANCE], real[FIRST_VARIANCE:TARGET])
    real[COUNT] += 1.0

    for j in range(x, reals):
        real[j] = 0.0
    real[x + slopes] = 1.0
    real[TARGET] = 0.0
    for j in range(WHOLE_HEADER, words_place):
        whole[j] = 0
    for j in range(words.shape[0]):
        words[j] = np.uint64(0)
    return LEARNED


class MomentMemory(KernelMemory):
    """Sums of moments of one mechanism, to which the kernel of one record adds.

    The kernel holds the interpreter's lock and the sums are read in one step, so nobody sees half of a release.
    ``learned`` are earlier sums, ``seed`` is the seed of simulated noise or None.
    """

    def __init__(self, learned: MomentSums, mechanism: MomentMechanism, layout: Statistics, seed: int | None) -> None:
        self._known = learned
        p, d = layout.size, layout.dimension
        wholes, reals, _ = sizes(d, p)
        self._allocate(wholes, reals)
        whole, real, level = self.whole, self.real, Level.of(mechanism, layout)
        whole[FEATURES], whole[NUMBERS], whole[CONSTANT], whole[ZERO] = p, d, layout.constant, layout.zero
        if seed is not None:
            whole[SIMULATED], whole.view(np.uint64)[SEED] = 1, seed
        real[GAIN], real[REACH], real[ROOT], real[WEIGHT] = layout.gain, layout.reach, layout.root, layout.weight
        real[PRESENCE], real[SPACING], real[COUNT] = layout.presence, mechanism.spacing, learned.count
        real[FIRST_WEIGHT:FIRST_VARIANCE], real[FIRST_VARIANCE:TARGET] = level.weights, level.variances
        self._bind()
        real[REAL_HEADER : REAL_HEADER + SUMS] = learned.sums
        real[REAL_HEADER + SUMS :][:d] = learned.total
        self.x[-1] = 1.0

    def _bind(self) -> None:
        p, d, constant = (int(self.whole[place]) for place in (FEATURES, NUMBERS, CONSTANT))
        _, _, x = sizes(d, p)
        self._open(x, p + 1 - constant)
        self.noise = self.whole[WHOLE_HEADER : WHOLE_HEADER + d]
        self.words = self.whole[WHOLE_HEADER + 2 * d :].view(np.uint64)
        self._sums = self.real[COUNT:x]

    def _forget(self, real: NDArray[np.float64], whole: NDArray[np.int64]) -> None:
        x = self.way[2]
        real[x:] = 0.0
        real[x + len(self.x) - 1] = 1.0
        real[TARGET] = 0.0
        whole[WHOLE_HEADER:] = 0

    @property
    def count(self) -> int:
        """Number of releases learned."""
        return int(self._sums[0])

    @property
    def learned(self) -> MomentSums:
        """Copy of the sums, kept until the next release."""
        known = self._known
        if self.count != known.count:
            # During numpy's own copy, a kernel of another thread may run.
            now = np.frombuffer(self._sums.tobytes()).copy()
            self._known = known = MomentSums(now[1 + SUMS :], now[1 : 1 + SUMS], int(now[0]))
        return known


def in_place(mechanism: Any) -> bool:
    """Return whether the kernel of one record supports this mechanism."""
    return type(mechanism) is MomentMechanism
