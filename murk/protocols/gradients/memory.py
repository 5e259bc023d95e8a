"""State, settings and work space of LDP-SGD as kernels read them, of a learner or for one record on a device."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from murk._internal.arrays import Floats, Integers
from murk.privacy.mechanisms import Mechanism
from murk.protocols.gradients import kernels as k
from murk.protocols.gradients.kernels import newest_published, ring_size, spacing
from murk.protocols.gradients.objectives import Huber, Softmax
from murk.protocols.gradients.settings import Settings
from murk.protocols.one_record import KernelMemory
from murk.protocols.options import InverseScalingStep

_WEIGHTS = {"norm": k.NORM, "mallows": k.MALLOWS, "clip": k.CLIP}
_AVERAGING = {None: k.NO_AVERAGE, "polyak": k.POLYAK, "polynomial-decay": k.POLYNOMIAL_DECAY}
_WEIGHTING = {"uniform": k.UNIFORM, "inverse-variance": k.INVERSE_VARIANCE}
_DECAY = 3.0  # exponent of polynomial-decay averaging (Shamir and Zhang 2013)


def level_rows(mechanisms: Sequence[Mechanism]) -> tuple[Floats, Integers]:
    """Return mechanisms for kernels: rows (radius, spacing, unit, variance) and (kind, steps, threshold, draws)."""
    reals = np.array([(m.radius, m.spacing, m.unit, m.variance) for m in mechanisms])
    wholes = np.array([(m.code, m.steps, m.threshold, m.draws) for m in mechanisms], dtype=np.uint64)
    return reals, wholes.view(np.int64)


class Memory(KernelMemory):
    """State, settings and work space of one learner, in two arrays that a kernel takes as such or by address.

    ``rows`` (6, d) are the iterate, the average, two sums of random scaling and two running means; ``ring`` the
    published iterates of ``ring_versions``; ``noise`` and ``words`` one record's noise and random words.
    """

    def __init__(self, settings: Settings) -> None:
        p, d = settings.features, settings.dimension
        objective = settings.objective
        basis = objective.basis if isinstance(objective, Softmax) else np.zeros((1, 0))
        classes, outputs = basis.shape
        size = ring_size(settings.staleness)
        wide = 0 if settings.transform is None else p
        tail = k.ROWS * d + 2 * p + d + classes * outputs + wide * wide + size * d
        self._allocate(k.WHOLE_HEADER + size + 2 * d + k.words_of(k.trials_of(d)), k.REAL_HEADER + tail)

        whole = self.whole
        whole[k.OBJECTIVE], whole[k.WEIGHTS] = objective.code, _WEIGHTS[settings.weights]
        whole[k.AVERAGING], whole[k.WEIGHTING] = _AVERAGING[settings.averaging], _WEIGHTING[settings.weighting]
        whole[k.FEATURES], whole[k.DIMENSION], whole[k.CLASSES], whole[k.RING] = p, d, classes, size
        whole[k.OUTPUTS], whole[k.FLOOR] = outputs, settings.staleness.floor
        whole[k.WHITEN], whole[k.DELAYS] = settings.transform is not None, settings.delays is not None
        whole[k.SCALING] = settings.random_scaling

        real = self.real
        real[k.OWN_SPREAD] = objective.spread * settings.bound * settings.bound
        real[k.BOUND], real[k.CLIP_AT], real[k.RADIUS] = settings.bound, settings.clip or 0.0, settings.radius
        real[k.DECAY], real[k.MULTIPLIER] = _DECAY, settings.multiplier
        real[k.SCALE_FLOOR] = settings.scale_floor / settings.multiplier
        real[k.SCALE_CEILING] = settings.scale_ceiling / settings.multiplier
        if isinstance(objective, Huber):
            real[k.HUBER_C], real[k.CENTRE] = objective.c, objective.centre
            real[k.KNOWN_SCALE] = objective.scale or 0.0
        if isinstance(settings.step, InverseScalingStep):
            whole[k.STEP] = k.INVERSE_SCALING
            real[k.ETA], real[k.ALPHA] = settings.step.eta, settings.step.alpha

        self._bind()
        self.x[-1] = 1.0
        self._basis[:] = basis
        if settings.transform is not None:
            self._transform[:] = settings.transform
        if settings.start is not None:
            self.rows[k.ITERATE, : d - settings.scaled] = settings.working_start
        if settings.scaled:
            self.rows[k.ITERATE, -1] = settings.scale_start / settings.multiplier
        self.rows[k.AVERAGE] = self.rows[k.ITERATE]
        self.rows[k.MEAN_AT] = self.rows[k.ITERATE]
        k.remember(whole, real)

    def set_level(self, mechanism: Mechanism) -> None:
        """Randomize the next records by ``mechanism``."""
        reals, wholes = level_rows([mechanism])
        self.real[k.MECHANISM_RADIUS : k.VARIANCE + 1] = reals[0]
        self.whole[k.KIND : k.DRAWS + 1] = wholes[0]

    def _forget(self, real: Floats, whole: Integers) -> None:
        p, d = int(whole[k.FEATURES]), int(whole[k.DIMENSION])
        x = k.places(whole)[1]
        real[x : x + 2 * p + d] = 0.0
        # The constant of x is not written again for each record.
        real[x + p - 1] = 1.0
        whole[-2 * d - k.words_of(k.trials_of(d)) :] = 0

    def remember(self, count: int, versions: Sequence[int], iterates: Floats) -> None:
        """Set the number of releases learned, and the iterates at which arriving gradients may have been taken."""
        floor = int(self.whole[k.FLOOR])
        newest = newest_published(count, floor)
        self.whole[k.COUNT], self.whole[k.NEXT_PUBLISHED] = count, newest + spacing(newest, floor)
        self.ring_versions[: len(versions)] = versions
        self.ring[: len(versions)] = iterates
        self.whole[k.RING_LENGTH] = len(versions)
        self.whole[k.RING_HEAD] = len(versions) % len(self.ring_versions)

    def _bind(self) -> None:
        real, whole = self.real, self.whole
        indices = (k.FEATURES, k.DIMENSION, k.CLASSES, k.OUTPUTS, k.RING)
        p, d, classes, outputs, size = (int(whole[i]) for i in indices)
        wide = p if whole[k.WHITEN] else 0
        state, x, _, _, basis, ring = k.places(whole)
        transform = basis + classes * outputs
        self.rows = real[state:x].reshape(k.ROWS, d)
        self._open(x, p)
        self._basis = real[basis:transform].reshape(classes, outputs)
        self._transform = real[transform:ring].reshape(wide, wide)
        self.ring = real[ring : ring + size * d].reshape(size, d)
        self.ring_versions = whole[k.WHOLE_HEADER : k.WHOLE_HEADER + size]
        self.noise = whole[k.WHOLE_HEADER + size : k.WHOLE_HEADER + size + d]
        self.words = whole[k.WHOLE_HEADER + size + 2 * d :].view(np.uint64)
