"""The LDP-SGD engine of estimators and workers, which learns from records or releases. Does not import River."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from murk._internal.arrays import Floats, Integers
from murk._internal.lazy import map_levels
from murk._internal.locks import locked
from murk._internal.wiping import copied, empty, track, wiped
from murk.errors import MurkError
from murk.inference.estimate import Estimate
from murk.privacy.mechanisms import Mechanism, lattice
from murk.privacy.mechanisms.lattice import FORGED, NOISE_OF
from murk.privacy.noise import NoiseSource, Purpose
from murk.privacy.noise.distributions import NOISE_DISTRIBUTIONS
from murk.privacy.noise.sources import draw_noise
from murk.protocols.engine import IterateEngine
from murk.protocols.gradients import estimate as inference
from murk.protocols.gradients import kernels as k
from murk.protocols.gradients.kernels import age_factor, is_published
from murk.protocols.gradients.memory import Memory, level_rows
from murk.protocols.gradients.settings import Settings
from murk.protocols.one_record import NO_WORDS, finish_draw, take_random
from murk.protocols.options import InverseScalingStep, levels_of
from murk.protocols.rows import Rows
from murk.stream.wire.codec import RejectedError
from murk.stream.wire.columns import columns_of, distinct
from murk.stream.wire.releases import GradientRelease
from murk.stream.wire.state import check_header, count_of, pack, reading, unpack

_ERROR_CODE = "MURK-LEARN-001"


def drawn(source: NoiseSource, records: Integers, kinds: Integers, size: int) -> tuple[Integers, NDArray[np.uint64]]:
    """Draw noise (``size`` integers each) and coins for records, by the kind of each record's mechanism."""
    noise, coins = empty((len(kinds), size), np.int64), empty((len(kinds), 3), np.uint64)
    coins.fill(0)
    direction, codes = np.isin(kinds, lattice.DIRECTIONS), np.unique(kinds).tolist()
    for name in {NOISE_OF[code] for code in codes}:
        chosen = np.isin(kinds, [code for code in codes if NOISE_OF[code] == name])
        noise[chosen] = draw_noise(source, name, records[chosen], size)
    if direction.any():
        coins[direction] = source.words(records[direction], 3, Purpose.COIN)
    return noise, coins


_BLOCK = 4096
_SUMS, _DELAYS = slice(k.SUM_PRECISION, k.SUM_SQUARES + 1), slice(k.MEAN_AGE, k.COUNTED + 1)
_ROWS = ("iterate", "average", "scaling_a", "scaling_b", "mean_at", "mean_gradient")


class SGDEngine(IterateEngine):
    """LDP-SGD on one partition: ``theta_i = Project(theta_{i-1} - eta_i g~_i)`` and its average; thread-safe.

    ``mechanisms`` maps each level, among them ``"default"``, to its mechanism. :meth:`learn_record` simulates noise
    from ``seed``, or takes it from the source ``noise``, by default a secure one. No record stays in memory between
    calls.
    """

    kind = "gradient"
    _kernels = _layout = k
    _vector = "the gradient"
    memory: Memory
    settings: Settings

    def __init__(
        self,
        settings: Settings,
        mechanisms: Mapping[str, Mechanism],
        *,
        seed: int | None = None,
        noise: NoiseSource | None = None,
        covariates: Rows | None = None,
        classes: Sequence[object] = (),
    ) -> None:
        super().__init__(settings, mechanisms, Memory(settings), seed, noise)
        self.covariates = covariates
        self.classes = tuple(classes)
        self._known_version = 0
        self._payload_bounds = map_levels(attrgetter("payload_bound"), mechanisms)
        # Plain attributes, as every release reads them.
        self._never_too_old, self._share_ppm = settings.staleness.releases, settings.staleness.share_ppm
        self._floor = settings.staleness.floor
        self._coins = np.zeros((1, 3), dtype=np.uint64)
        self._trials = 0 if self._seeded else k.trials_of(settings.dimension)
        self.current: Mechanism | None = None
        self._kinds = np.zeros(len(mechanisms), dtype=np.int64)
        self._units, self._variances = np.zeros(len(mechanisms)), np.zeros(len(mechanisms))

    def _prepare(self, row: int, mechanism: Mechanism) -> None:
        self._kinds[row], self._units[row], self._variances[row] = mechanism.code, mechanism.unit, mechanism.variance

    @property
    def features(self) -> Floats:
        """Buffer for the next record's features, without the constant."""
        return self.memory.features

    @locked
    def snapshot(self) -> Memory:
        """Return a copy of the state."""
        return copy.copy(self.memory)

    @property
    def coefficients(self) -> int:
        """Number of coefficients of the estimate."""
        return len(inference.coefficient_names(self.settings, self.classes))

    def estimate(self) -> Estimate:
        """Return coefficients in coded units with their intervals."""
        return inference.estimate(self.settings, [self.snapshot()], self.covariates, self.classes, self.mechanisms)

    def use(self, mechanism: Mechanism) -> None:
        """Select the mechanism for the next records that do not bring their own."""
        if mechanism is not self.current:
            self.memory.set_level(mechanism)
            self.current = mechanism
            self._record_kernel = self._seeded or (self._direct and mechanism.draws == 1)

    @wiped
    def _learn_slowly(self, y: float, missing: int) -> None:
        """Learn, with secure noise, the record for which the kernel had too few random words, or none."""
        memory, count = self.memory, k.words_of(self._trials)
        if missing == NO_WORDS:
            take_random(memory.words[:count])
        _, spare, pairs = np.split(memory.words[:count], [3, k.WORDS_HEADER])
        distribution = NOISE_DISTRIBUTIONS[NOISE_OF[int(memory.whole[k.KIND])]]
        finish_draw(track(np.concatenate([pairs, spare])), self._trials, memory.noise, distribution)
        k.learn_record(memory.address, y, 0)

    @wiped
    def _learn_records(self, X: Floats, y: Floats, mechanisms: Sequence[Mechanism] | None) -> None:
        memory = self.memory
        X, y = copied(X), copied(y)
        if len(X) == 0:
            return
        levels = np.zeros(0, dtype=np.int64)
        reals, wholes = np.zeros((0, 4)), np.zeros((0, 4), dtype=np.int64)
        if mechanisms is not None and len(mechanisms) == 1:
            self.use(mechanisms[0])
        elif mechanisms is not None:
            distinct, levels = levels_of(mechanisms)
            reals, wholes = level_rows(distinct)
            self.current, self._record_kernel = None, self._seeded
        if self._seeded:
            nothing = np.zeros((1, 0), dtype=np.int64)
            k.learn_records(memory.real, memory.whole, X, y, levels, reals, wholes, nothing, self._coins)
            return
        own = memory.whole[k.KIND : k.DRAWS + 1]
        size = max(1, _BLOCK // int(max(wholes[:, 3], default=own[3])))
        for start in range(0, X.shape[0], size):
            block = slice(start, min(start + size, X.shape[0]))
            rows = wholes[levels[block]] if len(levels) else np.tile(own, (block.stop - start, 1))
            records = np.arange(self.n_releases, self.n_releases + len(rows), dtype=np.int64)
            noise, coins = drawn(self._noise, records, rows[:, 0], int(rows[:, 3].max()) * self.dimension)
            k.learn_records(memory.real, memory.whole, X[block], y[block], levels[block], reals, wholes, noise, coins)

    def admit(self, release: GradientRelease, ahead: int = 0) -> None:
        """Raise RejectedError for a forged release, or one of an unpublished, too old or future version.

        ``ahead`` is the number of releases admitted before this one and not learned yet.
        """
        count = int(self.memory.whole[k.COUNT]) + ahead
        version = release.version
        if version > count:
            raise RejectedError("future", f"version {version}, but the partition has {count} releases")
        # In Python's integers: calling compiled code for each release would take as long as learning it.
        age = count - version
        if age > self._never_too_old and 1_000_000 * age > self._share_ppm * count:
            raise RejectedError("stale", f"version {version} is too old for a partition of {count} releases")
        if version != self._known_version:
            if not is_published(version, self._floor):
                raise RejectedError("version", f"version {version} was never published")
            self._known_version = version
        if not self._payload_bounds[release.level].holds(release.payload):
            raise RejectedError("magnitude", FORGED)

    def admits(self, releases: Sequence[GradientRelease]) -> bool:
        """Return True only if `admit` is certain to accept all these releases in this order."""
        columns, count = columns_of(releases), self.n_releases
        versions = columns.column("version")
        if (versions > count + np.arange(len(releases))).any():
            return False
        # The oldest version is checked as if it came last: age grows with the count, as does age divided by the count.
        last = count + len(releases) - 1
        age = last - int(versions.min())
        if age > self._never_too_old and 1_000_000 * age > self._share_ppm * last:
            return False
        for version in distinct(versions) - {self._known_version}:
            if not is_published(version, self._floor):
                return False
            self._known_version = version
        return all(self._payload_bounds[level].holds_all(rows) for level, rows in columns.split("level").items())

    @locked
    def learn_releases(self, releases: Sequence[GradientRelease]) -> None:
        """Learn from admitted releases in turn, or raise MurkError for a version that is not remembered."""
        if not releases:
            return
        memory = self.memory
        columns = columns_of(releases)
        payloads, levels = columns.rows(self.dimension), self._level_indices(columns)
        versions = np.ascontiguousarray(columns.column("version"))
        learned = k.learn_releases(
            memory.real, memory.whole, payloads, versions, levels, self._kinds, self._units, self._variances
        )
        if learned < len(releases):
            raise MurkError(f"the iterate of version {versions[learned]} is not remembered")

    @locked
    def figures(self) -> dict[str, float]:
        """Return the distance of the iterate from its average, and the next step size."""
        rows = self.memory.rows
        apart = inference.reported(self.settings, rows[k.ITERATE] - rows[k.AVERAGE])
        return {"iterate_gap": float(np.linalg.norm(apart)), "step_size": self.step_size()}

    def step_size(self) -> float:
        """Return the next step's factor at the default level; noise-aware ``radius w / sqrt(8 sum w_i^2 v_i)``."""
        settings, real = self.settings, self.memory.real
        spread = settings.objective.spread * settings.bound**2 + self.dimension * self.mechanisms["default"].variance
        weight = 1.0 / spread if settings.weighting == "inverse-variance" else 1.0
        step = settings.step
        if isinstance(step, InverseScalingStep):
            count = self.n_releases + 1.0
            return float(step.eta * count ** (1.0 - step.alpha) * weight / (real[k.SUM_WEIGHT] + weight))
        total = float(real[k.SUM_SPREAD]) + weight**2 * spread
        factor = float(age_factor(self.memory.whole, real))
        return factor * k.STEP_SHARE * settings.radius * weight / math.sqrt(2.0 * total)

    @property
    def publish_every(self) -> int:
        """Largest number of releases to learn before the newest iterate must be published: a hundredth of the count."""
        return max(1, self.n_releases // 100)

    @locked
    def published(self) -> tuple[int, list[float]] | None:
        """Return the newest published version and its iterate, at which devices take gradients."""
        memory = self.memory
        index = (int(memory.whole[k.RING_HEAD]) - 1) % memory.ring_versions.shape[0]
        return int(memory.ring_versions[index]), memory.ring[index].tolist()

    @locked
    def state_dict(self) -> dict[str, Any]:
        """Return the state as plain data; a learner that loads it continues bit for bit."""
        memory = self.memory
        head, length, size = int(memory.whole[k.RING_HEAD]), int(memory.whole[k.RING_LENGTH]), len(memory.ring_versions)
        # Iterates at which arriving gradients may have been taken, the newest last.
        published = [(head - length + i) % size for i in range(length)]
        header = {"schema": 1, "settings": self.settings.digest, "dimension": self.dimension}
        iterates = pack(memory.ring[published].ravel())
        return {
            **header,
            "n_releases": self.n_releases,
            "sums": pack(memory.real[_SUMS]),
            **({"delays": pack(memory.real[_DELAYS])} if self.settings.delays else {}),
            "rows": {name: pack(memory.rows[i]) for i, name in enumerate(_ROWS)},
            "published": {"versions": memory.ring_versions[published].tolist(), "iterates": iterates},
        }

    @locked
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load a state from :meth:`state_dict`, or raise MurkError if it is malformed or of a different dimension."""
        memory, d = self.memory, self.dimension
        with reading():
            check_header(state, self.settings.digest, "dimension", d)
            versions = [count_of(version, "published version") for version in state["published"]["versions"]]
            if len(versions) > memory.ring_versions.shape[0]:
                raise MurkError(f"the state remembers {len(versions)} versions, but at most {memory.ring.shape[0]} fit")
            rows = np.array([unpack(state["rows"][name], d) for name in _ROWS])
            sums = unpack(state["sums"], 4)
            delays = unpack(state["delays"], 4) if self.settings.delays else np.zeros(4)
            ring = unpack(state["published"]["iterates"], len(versions) * d).reshape(len(versions), d)
            count = count_of(state["n_releases"], "n_releases")
            if not (np.all(sums >= 0.0) and delays[0] >= 0.0 and np.all(delays[2:] >= 0.0)):
                raise MurkError("the state holds a negative sum")
        memory.rows[:] = rows
        memory.real[_SUMS] = sums
        memory.real[_DELAYS] = delays
        memory.remember(count, versions, ring)
