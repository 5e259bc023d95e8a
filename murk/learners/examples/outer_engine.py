"""Engine of released outer products, randomized by mechanisms of any kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from murk._jit import due
from murk._scratch import copied, empty, keep, wiped
from murk._turns import in_turn
from murk.learners.core.options import levels_of
from murk.learners.core.scoring.mechanism import OuterGaussian
from murk.learners.examples import layout as k
from murk.learners.examples import outer
from murk.learners.examples.engine import IWPEngine
from murk.learners.examples.outer import learn_outer, to_units
from murk.learners.examples.settings import ExampleMechanism, ExampleSettings, level_rows
from murk.stream.messages.releases import ExampleRelease
from murk.stream.messages.wire import block_of

# Number of records processed at once, so that their numbers stay in the processor's cache.
_BLOCK = 512
_ALL = np.zeros(0, dtype=np.int64)  # Stands for the current level of all rows
_NO_LEVELS = np.zeros((0, k.LEVEL_REALS)), np.zeros((0, k.LEVEL_WHOLES), dtype=np.int64)


class OuterEngine(IWPEngine):
    """An `IWPEngine` of outer products."""

    _kernels = outer

    def use(self, mechanism: ExampleMechanism) -> None:
        """Randomize the next records by ``mechanism``; raise UserError if its noise is too large for the loss."""
        super().use(mechanism)
        self._in_place = self._fits_kernel()

    def _fits_kernel(self) -> bool:
        own_noise = self._seeded or self._direct
        return own_noise and type(self.current) is OuterGaussian and due(outer.learn_record, self.dimension)

    def _learn_block(self, X: NDArray[np.float64], y: NDArray[np.float64]) -> None:
        super()._learn_block(X, y)
        self._in_place = self._fits_kernel()

    @wiped
    def _learn_records(
        self, X: NDArray[np.float64], y: NDArray[np.float64], mechanisms: Sequence[ExampleMechanism] | None
    ) -> None:
        rows, targets = copied(X), copied(y)
        levels, used, known = _ALL, [self.current], _NO_LEVELS
        if mechanisms is not None and len(mechanisms) == 1:
            self.use(mechanisms[0])
            used = [self.current]
        elif mechanisms is not None:
            distinct, levels = levels_of(mechanisms)
            used, known = list(distinct), level_rows(self.settings, distinct)
            self.current = None
        for start in range(0, len(rows), _BLOCK):
            block = slice(start, start + _BLOCK)
            numbers = self._randomized(rows[block], targets[block], levels[block], used)
            learn_outer(self.real, self.whole, numbers, levels[block], *known)

    @wiped
    def _randomized(
        self, rows: NDArray[np.float64], targets: NDArray[np.float64], levels: NDArray[np.int64], used: Sequence[Any]
    ) -> NDArray[np.float64]:
        """Return decoded releases of records, randomized by one mechanism or by each row's own."""
        p, m = self.settings.features, len(rows)
        whole, vectors = empty((m, p)), empty((m, p + 1))
        indices = np.arange(self.n_releases, self.n_releases + m, dtype=np.int64)
        whole.fill(1.0)
        whole[:, : rows.shape[1]] = rows
        scale = float(self.real[k.TARGET_SCALE])
        to_units(self.settings.form, int(self.settings.boxed), scale, whole, targets, vectors)
        if len(used) == 1:
            return np.asarray(used[0].decode(used[0].randomize(vectors, self._noise, indices)))
        numbers = np.empty((m, self.dimension))
        for place, mechanism in enumerate(used):
            own = levels == place
            numbers[own] = mechanism.decode(mechanism.randomize(keep(vectors[own]), self._noise, indices[own]))
        return numbers

    @in_turn
    def learn_releases(self, releases: Sequence[ExampleRelease]) -> None:
        """Learn from admitted releases in turn."""
        if not releases:
            return
        block = block_of(releases)
        # A part of an outer product decodes the whole of it.
        payloads = block.rows(getattr(next(iter(self.mechanisms.values())), "received", self.dimension))
        levels = self._level_indices(block.levels)
        self.current = None
        numbers = np.empty((len(block), self.dimension))
        for level, mechanism in self.mechanisms.items():
            own = levels == self._levels[level]
            if own.any():
                numbers[own] = mechanism.decode(payloads[own])
        learn_outer(self.real, self.whole, numbers, levels, *self._level_table)

    @in_turn
    def learn_decoded(
        self, vectors: NDArray[np.float64], targets: NDArray[np.float64], mechanism: ExampleMechanism | None = None
    ) -> None:
        """Learn from the numbers of decoded releases of a mechanism, by default the one in use; targets are ignored."""
        if mechanism is not None:
            self.use(mechanism)
        learn_outer(self.real, self.whole, np.ascontiguousarray(vectors, dtype=np.float64), _ALL, *_NO_LEVELS)


def engine_of(settings: ExampleSettings, mechanisms: Mapping[str, ExampleMechanism], **more: Any) -> IWPEngine:
    """Return the engine that fits the settings."""
    return (OuterEngine if settings.outer else IWPEngine)(settings, mechanisms, **more)
