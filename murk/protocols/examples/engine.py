"""One partition's learner of released examples: memory, levels, noise, admission and state."""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from murk._internal.arrays import Floats, Integers
from murk._internal.jit import worth_compiling
from murk._internal.lazy import bounding, map_levels
from murk._internal.locks import locked
from murk._internal.wiping import copied, empty, track, wiped
from murk.errors import MurkError
from murk.inference.estimate import Estimate
from murk.privacy.mechanisms.composite import CompositeMechanism
from murk.privacy.mechanisms.outer_product import OuterGaussian
from murk.privacy.noise import NoiseSource, Purpose
from murk.protocols.averages import NeverPublished
from murk.protocols.engine import IterateEngine
from murk.protocols.examples import kernels as f
from murk.protocols.examples import layout as k
from murk.protocols.examples import outer
from murk.protocols.examples.device_kernels import to_units, to_vectors
from murk.protocols.examples.estimate import estimate
from murk.protocols.examples.laplace import learn_laplace
from murk.protocols.examples.layout import sizes
from murk.protocols.examples.newton import to_estimate
from murk.protocols.examples.outer import learn_outer
from murk.protocols.examples.settings import ExampleMechanism, ExampleSettings, fill, level_rows
from murk.protocols.one_record import NO_WORDS, KernelMemory, trials_for
from murk.protocols.options import levels_of
from murk.protocols.rows import Rows
from murk.stream.wire.codec import RejectedError
from murk.stream.wire.columns import columns_of
from murk.stream.wire.releases import ExampleRelease
from murk.stream.wire.state import check_header, count_of, pack, reading, unpack

_ERROR_CODE = "MURK-LEARN-001"

_BLOCK = 4096
_OUTER_BLOCK = 512  # records whose outer products stay in the processor's cache
_ALL = np.zeros(0, dtype=np.int64)  # level indices that mean: all rows are at the current level
_NO_LEVELS = np.zeros((0, k.LEVEL_REALS)), np.zeros((0, k.LEVEL_WHOLES), dtype=np.int64)
_ROWS = ("iterate", "average", "scaling_a", "scaling_b", "gathered", "reference", "aimed")
_UNKNOWN = -1e300  # a sum of weights that stays below 0, so that there is no mean loss
_ORDERED = [k.SUM_WEIGHT, k.SUM_SPREAD, k.SUM_SQUARES, k.BATCH_WEIGHT, k.LAST_STEP]
_COUNTS = ("n_releases", "updates", "in_batch", "refused", "next_refresh", "identified")


class Memory(KernelMemory):
    """State, settings and work space of one learner, with views into its two arrays (see `layout`).

    ``rows`` are the state vectors, (9, p); ``triangles`` the Newton step's sums; ``moments`` exact sums of outer
    products; ``noise`` and ``words`` one record's noise and random words.
    """

    def __init__(self, settings: ExampleSettings) -> None:
        numbers = settings.dimension
        self._allocate(*sizes(settings.features, numbers, settings.newton_sums))
        fill(self.real, self.whole, settings)
        self._bind()
        self.x[-1] = 1.0

    def _bind(self) -> None:
        whole, real = self.whole, self.real
        p, numbers = int(whole[k.FEATURES]), int(whole[k.NUMBERS])
        rows, tail = k.REAL_HEADER + k.ROWS * p, len(real) - p - numbers
        self._open(tail, p)
        self.rows = real[k.REAL_HEADER : rows].reshape(k.ROWS, p)
        moments = rows + p * (p + 1) if whole[k.POLISH] != k.NO_STEP else rows
        self.triangles, self.moments = real[rows:moments].reshape(2, -1), real[moments:tail]
        self.noise = whole[k.WHOLE_HEADER : k.WHOLE_HEADER + (p - 1 if whole[k.FORM] == k.LABEL else numbers)]
        self.words = whole[k.WHOLE_HEADER + 2 * numbers :].view(np.uint64)

    def _forget(self, real: Floats, whole: Integers) -> None:
        super()._forget(real, whole)
        real[k.TARGET] = 0.0
        whole[k.WHOLE_HEADER :] = 0
        whole[k.COIN] = 0


def _bounds_of(mechanism: ExampleMechanism) -> list[int] | None:
    """Return the bound on each coordinate of a payload; None where one bound holds for all."""
    return mechanism.magnitudes.tolist() if isinstance(mechanism, CompositeMechanism) else None


class IWPEngine(NeverPublished, IterateEngine):
    """IWP-SGD on one partition, with ``settings`` from `settle`; noise is secure without ``seed`` and ``noise``."""

    kind = "example"
    covariates: Rows | None = None
    _kernels = f
    _layout = k
    _vector = "an example"
    memory: Memory
    settings: ExampleSettings

    def __init__(
        self,
        settings: ExampleSettings,
        mechanisms: Mapping[str, ExampleMechanism],
        *,
        seed: int | None = None,
        noise: NoiseSource | None = None,
    ) -> None:
        super().__init__(settings, mechanisms, Memory(settings), seed, noise)
        self._trials = 0 if self._seeded else trials_for(len(self.memory.noise))
        self._level_table = (
            np.zeros((len(mechanisms), k.LEVEL_REALS)),
            np.zeros((len(mechanisms), k.LEVEL_WHOLES), dtype=np.int64),
        )
        self._labelled = settings.form == k.LABEL
        self._row_names = (*_ROWS, "first", "second") if settings.weighted else _ROWS
        if settings.exact:
            # The right-hand side follows from the sums.
            self._row_names = (*_ROWS[:-1], "first")
        self._bounds = map_levels(_bounds_of, mechanisms)
        self.current: ExampleMechanism | None = None
        # Refuses a level that is too noisy for the loss before any release.
        self._prepare_levels([*bounding(mechanisms)])

    def _prepare(self, row: int, mechanism: ExampleMechanism) -> None:
        for table, values in zip(self._level_table, level_rows(self.settings, [mechanism]), strict=True):
            table[row] = values[0]

    @property
    def real(self) -> Floats:
        """The memory's float64 array."""
        return self.memory.real

    @property
    def whole(self) -> Integers:
        """The memory's int64 array."""
        return self.memory.whole

    @property
    def rows(self) -> Floats:
        """The memory's state vectors."""
        return self.memory.rows

    @property
    def triangles(self) -> Floats:
        """The memory's sums of the Newton step."""
        return self.memory.triangles

    def snapshot(self) -> IWPEngine:
        """Return a copy with arrays of its own."""
        return copy.copy(self)

    @property
    def reference(self) -> Floats:
        """Coefficients for predictions and loss estimates: the last polished estimate, or the average."""
        return self._row(k.REFERENCE if self.settings.newton else k.AVERAGE)

    @property
    def refused_updates(self) -> int:
        """Number of releases ignored as implausible or because a step was not finite."""
        return int(self.whole[k.REFUSED])

    @property
    def unbiased_loss(self) -> tuple[float, float]:
        """Mean and standard error of the unbiased losses, each at `reference` before its release was learned.

        NaN before the first release, and without correction.
        """
        return self._mean_loss() if self.settings.corrected else (math.nan, math.nan)

    @locked
    def _mean_loss(self) -> tuple[float, float]:
        real = self.real
        total = real[k.LOSS_WEIGHT]
        if not total > 0.0:
            return math.nan, math.nan
        mean = real[k.LOSS_SUM] / total
        left = real[k.LOSS_SQUARES] - 2.0 * mean * real[k.LOSS_CROSS] + mean * mean * real[k.LOSS_WEIGHT_SQUARES]
        return float(mean), math.sqrt(max(float(left), 0.0)) / float(total)

    def figures(self) -> dict[str, float]:
        """Return figures of progress, which depend on releases and public settings alone."""
        still = self.snapshot()
        loss, error = still.unbiased_loss
        figures = {
            "iterate_gap": float(np.linalg.norm(still.rows[k.ITERATE] - still.rows[k.AVERAGE])),
            "step_size": float(still.real[k.LAST_STEP]),
            "refused_updates": float(still.refused_updates),
        }
        if math.isfinite(loss):
            figures |= {"unbiased_loss": loss, "unbiased_loss_error": error}
        return figures

    @property
    def coefficients(self) -> int:
        """Number of coefficients."""
        return len(self.settings.names)

    def estimate(self) -> Estimate:
        """Return the coefficients in coded units, with standard errors."""
        return estimate([self.snapshot()])

    # Records, each randomized once

    def use(self, mechanism: ExampleMechanism) -> None:
        """Randomize the next records by ``mechanism``, or raise UserError if its noise is too large for the loss."""
        if mechanism is not self.current:
            f.set_level(self.real, self.whole, *level_rows(self.settings, [mechanism]), 0)
            self.current = mechanism

    def _learn_slowly(self, y: float, missing: int) -> None:
        if missing == NO_WORDS:
            self.whole[k.COIN] = np.frombuffer(os.urandom(8), dtype=np.int64)[0]
        super()._learn_slowly(y, missing)

    def _levels_for(
        self, mechanisms: Sequence[ExampleMechanism] | None
    ) -> tuple[Sequence[Any], Integers, tuple[Floats, Integers]]:
        """Return the mechanisms of rows, each row's index among them, and their parameters for kernels.

        A single mechanism, by default the current one, is used from now on; its indices and parameters are empty.
        """
        if mechanisms is None or len(mechanisms) == 1:
            if mechanisms is not None:
                self.use(mechanisms[0])
            return [self.current], _ALL, _NO_LEVELS
        distinct, levels = levels_of(mechanisms)
        tables = level_rows(self.settings, distinct)
        self.current = None
        return distinct, levels, tables

    def _rows(self, X: Floats) -> Floats:
        """Return a copy of coded rows, in the stated coordinates if there are any."""
        coordinates = self.settings.coordinates
        return copied(X) if coordinates is None else coordinates.rows(X)

    @wiped
    def _learn_records(self, X: Floats, y: Floats, mechanisms: Sequence[ExampleMechanism] | None) -> None:
        X, y = self._rows(X), copied(y)
        if len(X) == 0:
            return
        _, levels, (reals, wholes) = self._levels_for(mechanisms)
        if self._seeded:
            nothing = np.zeros((1, 0), dtype=np.int64)
            words = np.zeros(0, dtype=np.uint64)
            f.learn_records(self.real, self.whole, X, y, levels, reals, wholes, nothing, words)
            return
        for start in range(0, len(X), _BLOCK):
            block = slice(start, min(start + _BLOCK, len(X)))
            records = np.arange(self.n_releases, self.n_releases + block.stop - start, dtype=np.int64)
            noise = self._noise.gaussian(records, len(self.memory.noise))
            words = empty(len(records), np.uint64)
            words.fill(0)
            if self._labelled:
                words[:] = self._noise.words(records, 1, Purpose.COIN)[:, 0]
            f.learn_records(self.real, self.whole, X[block], y[block], levels[block], reals, wholes, noise, words)

    # Releases made elsewhere

    def admit(self, release: ExampleRelease, ahead: int = 0) -> None:
        """Raise RejectedError for a number beyond the bound on its coordinate, or a label other than -1 and 1."""
        bounds = self._bounds[release.level]
        if bounds is not None:
            for value, bound in zip(release.payload, bounds, strict=True):
                if abs(value) > bound:
                    raise RejectedError("magnitude", f"a number beyond {bound}, the bound on its coordinate")
        if self._labelled and release.payload[-1] not in (-1, 1):
            raise RejectedError("magnitude", f"a label of {release.payload[-1]}, neither -1 nor 1")

    def admits(self, releases: Sequence[ExampleRelease]) -> bool:
        """Return whether `admit` accepts all these releases."""
        for level, rows in columns_of(releases).split("level").items():
            bounds = self._bounds[level]
            if bounds is not None and (np.abs(rows) > bounds).any():
                return False
            if self._labelled and (np.abs(rows[:, -1]) != 1).any():
                return False
        return True

    @locked
    def learn_releases(self, releases: Sequence[ExampleRelease]) -> None:
        """Learn from admitted releases in turn."""
        if not releases:
            return
        columns = columns_of(releases)
        payloads, levels = columns.rows(self.dimension), self._level_indices(columns)
        self.current = None
        f.learn_releases(self.real, self.whole, payloads, levels, *self._level_table)

    @locked
    def learn_decoded(self, vectors: Floats, targets: Floats, mechanism: ExampleMechanism | None = None) -> None:
        """Learn from decoded releases (m, p) of a mechanism, by default the one in use; targets are 0 for products."""
        if mechanism is not None:
            self.use(mechanism)
        rows, numbers = (np.ascontiguousarray(values, dtype=np.float64) for values in (vectors, targets))
        f.learn_decoded(self.real, self.whole, rows, numbers)

    @locked
    def state_dict(self) -> dict[str, Any]:
        """Return the whole state as plain data; once loaded, learning continues bit for bit."""
        whole = self.whole
        return {
            "schema": 1,
            "settings": self.settings.digest,
            "dimension": self.settings.features,
            **{name: int(whole[index]) for name, index in zip(_COUNTS, _PLACES, strict=True)},
            "sums": pack(self.real[k.FIRST_SUM : k.LAST_SUM + 1]),
            "rows": {name: pack(self.rows[_ROW_PLACES[name]]) for name in self._row_names},
            **{name: pack(sums) for name, sums in self._sums.items()},
        }

    @property
    def _sums(self) -> dict[str, Floats]:
        """Sums of the Newton step that a state has, as views."""
        return {"moments": self.memory.moments} if self.settings.exact else {"triangles": self.triangles.ravel()}

    @locked
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load a state from :meth:`state_dict`. Raises MurkError if the state is malformed or for other settings."""
        p = self.settings.features
        with reading():
            check_header(state, self.settings.digest, "dimension", p)
            rows = np.array([unpack(state["rows"][name], p) for name in self._row_names])
            sums = unpack(state["sums"], k.LAST_SUM - k.FIRST_SUM + 1)
            newton = [unpack(state[name], held.size) for name, held in self._sums.items()]
            counts = [count_of(state[name], name) for name in _COUNTS]
        if counts[2] >= self.settings.batch:
            raise MurkError("the state's counts do not fit a learner with these settings")
        self.rows[[_ROW_PLACES[name] for name in self._row_names]] = rows
        for held, loaded in zip(self._sums.values(), newton, strict=True):
            held[:] = loaded
        self.real[k.FIRST_SUM : k.LAST_SUM + 1] = sums
        for index, count in zip(_PLACES, counts, strict=True):
            self.whole[index] = count


_PLACES = (k.COUNT, k.UPDATES, k.IN_BATCH, k.REFUSED, k.NEXT_REFRESH, k.IDENTIFIED)
_ROW_PLACES = {name: place for place, name in enumerate((*_ROWS, "first", "second"))}


class OuterEngine(IWPEngine):
    """An `IWPEngine` of outer products."""

    _kernels = outer
    _learn_numbers = staticmethod(learn_outer)

    def use(self, mechanism: ExampleMechanism) -> None:
        """Randomize the next records by ``mechanism``, or raise UserError if its noise is too large for the loss."""
        super().use(mechanism)
        self._record_kernel = self._fits_kernel()

    def _fits_kernel(self) -> bool:
        own_noise = self._seeded or self._direct
        return own_noise and type(self.current) is OuterGaussian and worth_compiling(outer.learn_record, self.dimension)

    def _learn_block(self, X: Floats, y: Floats) -> None:
        super()._learn_block(X, y)
        self._record_kernel = self._fits_kernel()

    # Exact sums, which depend neither on the order of releases nor on a reference point

    @property
    def joins(self) -> bool:
        """Whether learners of parts of a partition can be joined."""
        return self.settings.exact

    @locked
    def begin_part(self) -> None:
        """Leave out the iterate and the figures of the loss, which depend on the order of releases."""
        self._leave_out()

    def _leave_out(self) -> None:
        self.rows[: k.REFERENCE] = 0.0
        self.real[_ORDERED] = 0.0
        self.whole[[k.UPDATES, k.IN_BATCH]] = 0
        self.real[k.LOSS_WEIGHT] = _UNKNOWN

    @locked
    def join(self, later: OuterEngine) -> None:
        """Add the exact sums of another learner of the same model."""
        self._leave_out()
        self._add(later, later.memory.moments)

    def summarized(self, others: Sequence[OuterEngine]) -> OuterEngine:
        """Return a learner of what this one and others have learned, with the sums of the Newton step."""
        whole = copy.copy(self)
        for other in others:
            whole.join(other)
        whole.summarize()
        return whole

    @locked
    def adopt(self, whole: OuterEngine) -> None:
        """Continue from a state of the task's own learner, whose sums contain those of this model's columns."""
        self._leave_out()
        selection = next(iter(self.mechanisms.values())).numbers
        places, signs = selection.places, selection.signs
        size = whole.dimension
        first, second = whole.memory.moments[:size], symmetric_of(whole.memory.moments[size:], size)
        products = (second[np.ix_(places, places)] * np.outer(signs, signs))[np.triu_indices(len(places))]
        self._add(whole, np.concatenate([first[places] * signs, products]))

    def _add(self, other: OuterEngine, moments: Floats) -> None:
        self.memory.moments += moments
        for place in (k.POLISH_WEIGHT, k.POLISH_SQUARES):
            self.real[place] += other.real[place]
        self.rows[k.FIRST, :2] += other.rows[k.FIRST, :2]
        for place in (k.COUNT, k.REFUSED):
            self.whole[place] += other.whole[place]
        self.whole[k.NEXT_REFRESH] = max(self.whole[k.NEXT_REFRESH], self.whole[k.COUNT] + 1)
        self._refer(float(self.real[k.RADIUS]))

    def _refer(self, radius: float) -> None:
        """Write the matrix and the right-hand side from exact sums, and move the reference point to the estimate."""
        outer.summarize(self.whole, self.real)
        to_estimate(self.whole, self.real, self.rows[k.AVERAGE], self.rows[k.REFERENCE], radius)

    def summarize(self, point: Floats | None = None) -> None:
        """Write the sums of the Newton step from exact ones, with residuals at ``point``, by default the estimate."""
        if point is None:
            # Estimates may lie outside the ball, and residuals at their projections would be too small.
            self._refer(math.inf)
            point = self.rows[k.REFERENCE]
        else:
            outer.summarize(self.whole, self.real)
        size = self.dimension
        residuals = outer.residual_map(point, float(self.real[k.DIRECTED_RIDGE]))
        meat = residuals @ symmetric_of(self.memory.moments[size:], size) @ residuals.T
        self.triangles[1] = meat[np.tril_indices(len(point))]

    @wiped
    def _learn_records(self, X: Floats, y: Floats, mechanisms: Sequence[ExampleMechanism] | None) -> None:
        rows, targets = self._rows(X), copied(y)
        used, levels, tables = self._levels_for(mechanisms)
        for start in range(0, len(rows), _OUTER_BLOCK):
            block = slice(start, start + _OUTER_BLOCK)
            numbers = self._randomized(rows[block], targets[block], levels[block], used)
            self._learn_numbers(self.real, self.whole, numbers, levels[block], *tables)

    @wiped
    def _randomized(self, rows: Floats, targets: Floats, levels: Integers, used: Sequence[Any]) -> Floats:
        """Return decoded releases of records, randomized by one mechanism or by each row's own."""
        p, m = self.settings.features, len(rows)
        whole = empty((m, p))
        indices = np.arange(self.n_releases, self.n_releases + m, dtype=np.int64)
        whole.fill(1.0)
        whole[:, : rows.shape[1]] = rows
        vectors = self._vectors(whole, targets)
        if len(used) == 1:
            return np.asarray(used[0].decode(used[0].randomize(vectors, self._noise, indices)))
        numbers = np.empty((m, self.dimension))
        for index, mechanism in enumerate(used):
            at_level = levels == index
            numbers[at_level] = mechanism.decode(
                mechanism.randomize(track(vectors[at_level]), self._noise, indices[at_level])
            )
        return numbers

    def _vectors(self, rows: Floats, targets: Floats) -> Floats:
        """Return the vectors that the mechanism randomizes."""
        vectors = empty((len(rows), self.settings.features + 1))
        scale = float(self.real[k.TARGET_SCALE])
        to_units(self.settings.form, int(self.settings.boxed), scale, rows, targets, vectors)
        return vectors

    @locked
    def learn_releases(self, releases: Sequence[ExampleRelease]) -> None:
        """Learn from admitted releases in turn."""
        if not releases:
            return
        columns = columns_of(releases)
        # A mechanism for part of an outer product decodes whole payloads.
        payloads = columns.rows(getattr(next(iter(self.mechanisms.values())), "received", self.dimension))
        levels = self._level_indices(columns)
        self.current = None
        numbers = np.empty((len(columns), self.dimension))
        for level in columns.levels()[0]:
            at_level = levels == self._levels[level]
            numbers[at_level] = self.mechanisms[level].decode(payloads[at_level])
        self._learn_numbers(self.real, self.whole, numbers, levels, *self._level_table)

    @locked
    def learn_decoded(self, vectors: Floats, targets: Floats, mechanism: ExampleMechanism | None = None) -> None:
        """Learn from the numbers of decoded releases of a mechanism, by default the one in use; targets are ignored."""
        if mechanism is not None:
            self.use(mechanism)
        self._learn_numbers(self.real, self.whole, self._numbers_of(vectors, targets), _ALL, *_NO_LEVELS)

    def _numbers_of(self, vectors: Floats, targets: Floats) -> Floats:
        """Return decoded releases as the rows of numbers that the kernel learns from."""
        return np.ascontiguousarray(vectors, dtype=np.float64)


class LaplaceEngine(OuterEngine):
    """An `IWPEngine` of vectors with Laplace noise, ``y x`` or ``(x, a y)``, from the numbers that they decode to."""

    _learn_numbers = staticmethod(learn_laplace)

    def _vectors(self, rows: Floats, targets: Floats) -> Floats:
        vectors = empty((len(rows), self.settings.features))
        settings = self.settings
        to_vectors(settings.form, int(settings.boxed), settings.scale, rows, targets, vectors)
        return vectors

    def _numbers_of(self, vectors: Floats, targets: Floats) -> Floats:
        numbers = np.array(vectors, dtype=np.float64)
        if self.settings.form == k.REAL:
            numbers[:, -1] = self.settings.scale * np.asarray(targets)
        return numbers


def symmetric_of(triangle: Floats, size: int) -> Floats:
    """Return the symmetric matrix of an upper triangle's entries, row by row."""
    matrix = np.zeros((size, size))
    matrix[np.triu_indices(size)] = triangle
    return matrix + np.triu(matrix, 1).T


def engine_of(settings: ExampleSettings, mechanisms: Mapping[str, Any], **more: Any) -> Any:
    """Return the engine that fits the settings."""
    if settings.cells:
        from murk.protocols.examples.cells_engine import CellEngine

        return CellEngine(settings, mechanisms, **more)
    chosen = OuterEngine if settings.outer else LaplaceEngine if settings.laplace else IWPEngine
    return chosen(settings, mechanisms, **more)
