"""Engine of moments: learns from records or releases, fits a model, saves its state. Does not import River."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from murk._internal.arrays import Floats, Integers
from murk._internal.jit import worth_compiling
from murk._internal.lazy import bounding, map_levels
from murk._internal.locks import ForkSafeLock, locked
from murk._internal.wiping import track, wiped
from murk.errors import MurkError, UserError
from murk.inference.estimate import Estimate
from murk.privacy.mechanisms.composite import CompositeMechanism
from murk.privacy.mechanisms.lattice import FORGED
from murk.privacy.noise import NoiseSource, SecureNoise, SimulatedNoise
from murk.protocols.averages import NeverPublished
from murk.protocols.engine import RecordEngine
from murk.protocols.moments import kernels as k
from murk.protocols.moments.estimate import Fit, fit
from murk.protocols.moments.mechanisms import Level, MomentMechanism
from murk.protocols.moments.model import MomentModel
from murk.protocols.moments.statistics import Statistics
from murk.protocols.moments.sums import MomentSums, influence_of
from murk.protocols.one_record import Held, KernelMemory, trials_for
from murk.protocols.options import levels_of
from murk.stream.wire.codec import RejectedError
from murk.stream.wire.columns import columns_of
from murk.stream.wire.state import count_of, pack, reading, unpack

if TYPE_CHECKING:
    from murk.privacy.mechanisms.base import Randomizer
    from murk.stream.wire.releases import MomentRelease

_ERROR_CODE = "MURK-LEARN-001"


BLOCK = 1024  # Number of records randomized at once, so that their moments stay in the processor's cache


class MomentMemory(KernelMemory):
    """Running sums, to which the one-record kernel adds releases of ``mechanism``; they begin as ``learned``.

    The kernel holds the interpreter's lock and the sums are read in one step, so nobody sees half of a release.
    """

    def __init__(self, learned: MomentSums, mechanism: MomentMechanism, layout: Statistics, seed: int | None) -> None:
        self._known = learned
        p, d = layout.size, layout.dimension
        wholes, reals, _ = k.sizes(d, p)
        self._allocate(wholes, reals)
        whole, real, level = self.whole, self.real, Level.of(mechanism, layout)
        whole[k.FEATURES], whole[k.NUMBERS], whole[k.CONSTANT], whole[k.ZERO] = p, d, layout.constant, layout.zero
        if seed is not None:
            whole[k.SIMULATED], whole.view(np.uint64)[k.SEED] = 1, seed
        real[k.GAIN : k.SPACING] = layout.gain, layout.clipping_norm, layout.root, layout.weight, layout.presence
        real[k.SPACING], real[k.COUNT] = mechanism.unit, learned.count
        real[k.FIRST_WEIGHT : k.FIRST_VARIANCE], real[k.FIRST_VARIANCE : k.TARGET] = level.weights, level.variances
        self._bind()
        real[k.REAL_HEADER : k.REAL_HEADER + k.SUMS] = learned.sums
        real[k.REAL_HEADER + k.SUMS :][:d] = learned.total
        self.x[-1] = 1.0

    def _bind(self) -> None:
        p, d, constant = (int(self.whole[index]) for index in (k.FEATURES, k.NUMBERS, k.CONSTANT))
        _, _, x = k.sizes(d, p)
        self._open(x, p + 1 - constant)
        self.noise = self.whole[k.WHOLE_HEADER : k.WHOLE_HEADER + d]
        self.words = self.whole[k.WHOLE_HEADER + 2 * d :].view(np.uint64)
        self._sums = self.real[k.COUNT : x]

    def _forget(self, real: Floats, whole: Integers) -> None:
        super()._forget(real, whole)
        real[k.TARGET] = 0.0
        whole[k.WHOLE_HEADER :] = 0

    @property
    def count(self) -> int:
        """Number of releases learned."""
        return int(self._sums[0])

    @property
    def learned(self) -> MomentSums:
        """Copy of the sums, cached until the next release."""
        cached = self._known
        if self.count != cached.count:
            # During numpy's own copy, a kernel of another thread may run.
            copied = np.frombuffer(self._sums.tobytes()).copy()
            self._known = cached = MomentSums(copied[1 + k.SUMS :], copied[1 : 1 + k.SUMS], int(copied[0]))
        return cached


class MomentEngine(NeverPublished, RecordEngine):
    """Running sums of released moments on one partition, and the model fitted to them; secure noise by default."""

    kind = "moment"
    _kernels = k

    def __init__(
        self,
        layout: Statistics,
        model: MomentModel,
        mechanisms: Mapping[str, Randomizer],
        *,
        noise: NoiseSource | None = None,
    ) -> None:
        for level, mechanism in bounding(mechanisms).items():
            if mechanism.dimension != layout.dimension:
                raise UserError(
                    f"level {level!r} randomizes {mechanism.dimension} numbers, but a release has {layout.dimension}"
                )
        self._turns = ForkSafeLock()
        self.layout, self.model = layout, model
        self.dimension = layout.dimension
        """Number of integers in a release."""
        self.mechanisms = mechanisms
        self._noise: NoiseSource = SecureNoise() if noise is None else noise
        self._seed = noise.seed if type(noise) is SimulatedNoise else None
        self._direct = self._seed is not None or type(self._noise) is SecureNoise
        self._trials = 0 if self._seed is not None else trials_for(layout.dimension)
        self._learned = MomentSums(np.zeros(layout.dimension), np.zeros(k.SUMS), 0)
        self._bounds = map_levels(_bounds_of, mechanisms)
        self._payload_bounds = map_levels(attrgetter("payload_bound"), mechanisms)
        self._others: dict[int, tuple[Randomizer, _Table]] = {}
        self._fit: tuple[MomentSums, Fit] | None = None

    @property
    def _learned(self) -> MomentSums:
        # Only replaced, never written to: readers and interrupts see the old sums or the new.
        learned: MomentSums = self.memory.learned
        return learned

    @_learned.setter
    def _learned(self, learned: MomentSums) -> None:
        self._hold(Held(learned), None)

    @property
    def n_releases(self) -> int:
        """Number of releases learned."""
        return self._learned.count

    @property
    def sums(self) -> MomentSums:
        """Copy of the running sums."""
        now = self._learned
        return MomentSums(now.total.copy(), now.sums.copy(), now.count)

    def fitted(self) -> Fit:
        """Return the model fitted to all releases so far, computed once until the next release."""
        now, cached = self._learned, self._fit
        if cached is None or cached[0] is not now:
            self._fit = cached = now, fit(self.model, now, self.layout)
        return cached[1]

    @property
    def coefficients(self) -> int:
        """Number of coefficients."""
        return self.model.size(self.layout)

    def estimate(self) -> Estimate:
        """Return the coefficients with standard errors."""
        return self.with_influence(self.fitted().estimate, self._learned)

    def with_influence(self, estimate: Estimate, sums: MomentSums) -> Estimate:
        """Return the estimate, which was computed from ``sums``, with the influence of a forged release."""
        model = self.model
        by_rows = model.solver == "score" and model.public is not None and estimate.alike is not False
        return replace(estimate, influence=influence_of(sums, self.layout, self.mechanisms, by_rows=by_rows))

    # Records, each randomized once

    def use(self, mechanism: Randomizer) -> None:
        """Randomize the next records by ``mechanism``, in place if the kernel of one record supports it."""
        memory: Any = Held(self._learned)
        plain = self._direct and self.layout.coordinates is None
        if plain and type(mechanism) is MomentMechanism and worth_compiling(k.learn_record, self.dimension):
            memory = MomentMemory(memory.learned, mechanism, self.layout, self._seed)
        self._hold(memory, mechanism)

    def _learn_block(self, X: Floats, y: Floats) -> None:
        X[:, :-1] *= self.layout.gain
        mechanism = self.current or self.mechanisms["default"]
        self._learn_records(X if self.layout.constant else X[:, :-1], y, [mechanism])

    @locked
    def learn_records(self, X: Floats, y: Floats, mechanisms: Sequence[Randomizer]) -> None:
        """Randomize coded records (m, p), with the constant, by one mechanism each or for all; learn the releases."""
        self._learn_records(X, y, mechanisms)

    @wiped
    def _learn_records(self, X: Floats, y: Floats, mechanisms: Sequence[Randomizer]) -> None:
        for start in range(0, len(X), BLOCK):
            block = slice(start, start + BLOCK)
            of_block = mechanisms if len(mechanisms) == 1 else mechanisms[block]
            vectors = self.layout.vectors(X[block], y[block])
            records = np.arange(self.n_releases, self.n_releases + len(vectors), dtype=np.int64)
            distinct, levels = levels_of(of_block)
            if len(distinct) == 1:
                levels = np.zeros(len(vectors), dtype=np.int64)
                payloads = of_block[0].randomize(vectors, self._noise, records)
            else:
                payloads = np.empty(vectors.shape, dtype=np.int64)
                for index, mechanism in enumerate(distinct):
                    mine = levels == index
                    payloads[mine] = mechanism.randomize(track(vectors[mine]), self._noise, records[mine])
            self._learn_batch(payloads, levels, self._table_of(distinct))

    def _table_of(self, mechanisms: list[Randomizer]) -> _Table:
        tables = []
        for mechanism in mechanisms:
            cached = self._others.get(id(mechanism))
            # A new mechanism may have the id of a deleted one.
            if cached is None or cached[0] is not mechanism:
                cached = mechanism, _table_of(Level.of(mechanism, self.layout))
                # Every record may have a mechanism of its own, so the cache is bounded.
                if len(self._others) < 256:
                    self._others[id(mechanism)] = cached
            tables.append(cached[1])
        if len(tables) == 1:
            return tables[0]
        balls, units, weights, variances = map(np.concatenate, zip(*tables, strict=True))
        return balls, units, weights, variances

    # Releases made elsewhere

    def admit(self, release: MomentRelease, ahead: int = 0) -> None:
        """Raise RejectedError for a coordinate, or a length, that honest noise does not reach."""
        bounds = self._bounds[release.level]
        if bounds is not None and np.any(np.abs(np.array(release.payload, dtype=np.int64)) > bounds):
            raise RejectedError("magnitude", "a coordinate beyond the bound of its part of the mechanism")
        if not self._payload_bounds[release.level].holds(release.payload):
            raise RejectedError("magnitude", FORGED)

    def admits(self, releases: Sequence[MomentRelease]) -> bool:
        """Return whether `admit` accepts all these releases."""
        for level, rows in columns_of(releases).split("level").items():
            bounds = self._bounds[level]
            if bounds is not None and (np.abs(rows) > bounds).any():
                return False
            if not self._payload_bounds[level].holds_all(rows):
                return False
        return True

    @locked
    def learn_releases(self, releases: Sequence[MomentRelease]) -> None:
        """Learn from admitted releases in turn."""
        if not releases:
            return
        columns = columns_of(releases)
        levels, index = columns.levels()
        table = self._table_of([self.mechanisms[level] for level in levels])
        self._learn_batch(columns.rows(self.dimension), index, table)

    @locked
    def learn_payloads(self, payloads: Integers, level: str) -> None:
        """Learn from the released integers (m, d) of one level."""
        table = self._table_of([self.mechanisms[level]])
        self._learn_batch(payloads, np.zeros(len(payloads), dtype=np.int64), table)

    def _learn_batch(self, payloads: Integers, levels: Integers, table: _Table) -> None:
        now = self.sums
        k.fold(now.total, now.sums, self.layout.cross, np.ascontiguousarray(payloads), levels, table)
        self._learned = MomentSums(now.total, now.sums, now.count + len(payloads))

    joins = True

    def join(self, later: MomentEngine) -> None:
        """Add the sums of another learner of the same model."""
        self._learned = MomentSums.merged([self.sums, later.sums])

    def adopt(self, whole: MomentEngine) -> None:
        """Continue from the sums of another model's learner of the same releases."""
        self._learned = whole.sums

    def __getstate__(self) -> dict[str, Any]:
        # Copies compute the fit again, as ids of mechanisms change between processes.
        memory = {"memory": Held(self._learned), "current": None, "_in_place": False}
        return {**self.__dict__, **memory, "_fit": None, "_others": {}}

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state as plain data; once loaded, learning continues bit for bit."""
        now = self._learned
        sums = {"total": pack(now.total), "sums": pack(now.sums)}
        return {"schema": 1, "moments": self.layout.digest, "n_releases": now.count, **sums}

    @locked
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load a state from :meth:`state_dict`, or raise MurkError if it is malformed, or for different moments."""
        with reading():
            if state["schema"] != 1:
                raise MurkError(f"a state of schema {state['schema']!r} does not fit a learner of schema 1")
            if state["moments"] != self.layout.digest:
                raise MurkError(
                    "the state is for different moments: make the learner with the same features and bounds"
                )
            count = count_of(state["n_releases"], "n_releases")
            total, sums = unpack(state["total"], self.dimension), unpack(state["sums"], k.SUMS)
        self._learned = MomentSums(total, sums, count)


_Table = tuple[NDArray[np.bool_], Floats, Floats, Floats]  # one row for each level


def _table_of(level: Level) -> _Table:
    """Return a level's settings as arrays of one row, which the kernel reads."""
    return np.array([level.ball]), np.array([level.units]), np.array([level.weights]), np.array([level.variances])


def _bounds_of(mechanism: Randomizer) -> Integers | None:
    """Return the bound on each coordinate of a payload; None where one bound holds for all."""
    if isinstance(mechanism, CompositeMechanism):
        return np.asarray(mechanism.magnitudes, dtype=np.int64)
    return None


def merged(engines: Sequence[MomentEngine]) -> Estimate:
    """Return the joint estimate from all partitions' releases. Raises UserError if their moments differ."""
    first = engines[0]
    if len(engines) == 1:
        return first.estimate()
    if any(engine.layout != first.layout for engine in engines):
        raise UserError("only learners with the same features and bounds can be merged")
    sums = MomentSums.merged([engine.sums for engine in engines])
    return first.with_influence(fit(first.model, sums, first.layout, partitions=len(engines)).estimate, sums)
