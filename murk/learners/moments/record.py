"""One record's moments in place: computed, randomized and added to the sums by one kernel, which takes one address."""

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

# Places in ``whole``.
FEATURES, NUMBERS, CONSTANT, ZERO, SIMULATED, SEED, WHOLE_HEADER = range(7)
# Places in ``real``; what is learned, from COUNT to the sums and totals behind the header, is read at once.
(
    GAIN, REACH, ROOT, WEIGHT, PRESENCE, SPACING, FIRST_WEIGHT, SECOND_WEIGHT, FIRST_VARIANCE, SECOND_VARIANCE, TARGET,
    COUNT, REAL_HEADER,
) = range(13)  # fmt: skip


@within
def sizes(numbers: int, features: int) -> tuple[int, int, int]:
    """Numbers of ``whole`` and of ``real``, and where in this x begins.

    ``whole`` is: header, noise, payload, words. ``real`` is: header, sums, totals, x, moments. Where there is no
    constant among the features, there is a place for one in x all the same.
    """
    x = REAL_HEADER + SUMS + numbers
    return WHOLE_HEADER + 2 * numbers + words_for(numbers), x + features + 1 + numbers, x


@patient
def learn_record(address: int, y: float, trials: int) -> int:
    """Learn from the one record whose features stand in the memory at an address, and wipe what is of it.

    Secure noise is drawn here, of words for so many trials that come into that memory; for 0 of them it stands there
    already. Returns `LEARNED`, or what is missing: `TOO_FEW` words, which stand there for the draw to go on from, or
    `NO_WORDS` at all.
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
    """Sums of moments as the kernel of one record adds to them, of one mechanism.

    The kernel keeps the interpreter's lock, and what is learned is read in one go: nobody finds half of a release.

    Parameters
    ----------
    learned
        What was learned before.
    mechanism, layout
        How records are randomized, and what their moments are.
    seed
        What noise is simulated from, if it is.
    """

    def __init__(
        self, learned: MomentSums, mechanism: MomentMechanism, layout: Statistics, seed: int | None
    ) -> None:  # fmt: skip
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
        self._found = self.real[COUNT:x]

    def _forget(self, real: NDArray[np.float64], whole: NDArray[np.int64]) -> None:
        x = self.way[2]
        real[x:] = 0.0
        real[x + len(self.x) - 1] = 1.0
        real[TARGET] = 0.0
        whole[WHOLE_HEADER:] = 0

    @property
    def count(self) -> int:
        """How many releases were learned."""
        return int(self._found[0])

    @property
    def learned(self) -> MomentSums:
        """What was learned, a copy; made once for as many releases."""
        known = self._known
        if self.count != known.count:
            # Not by numpy's own copy, during which a kernel of another thread may run.
            found = np.frombuffer(self._found.tobytes()).copy()
            self._known = known = MomentSums(found[1 + SUMS :], found[1 : 1 + SUMS], int(found[0]))
        return known


def in_place(mechanism: Any) -> bool:
    """Whether the kernel of one record randomizes as this mechanism does."""
    return type(mechanism) is MomentMechanism
