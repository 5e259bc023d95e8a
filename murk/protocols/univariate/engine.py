"""Engine of a target alone: exact sums by level. Does not import River."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from murk._internal.arrays import Floats, Integers
from murk._internal.lazy import map_levels
from murk._internal.locks import ForkSafeLock, locked
from murk._internal.wiping import wiped
from murk.errors import MurkError, UserError
from murk.inference.estimate import Estimate
from murk.inference.known_columns import KnownEstimate
from murk.privacy.guarantees import Guarantee, guarantee_from_dict
from murk.privacy.mechanisms.lattice import FORGED
from murk.privacy.noise import NoiseSource, SecureNoise
from murk.protocols.averages import NeverPublished
from murk.protocols.options import check_guarantees
from murk.protocols.univariate import mixed
from murk.protocols.univariate.cells import fit_of
from murk.protocols.univariate.estimate import Totals, estimate_of
from murk.protocols.univariate.quantiles import quantiles_of
from murk.protocols.univariate.settings import Settings, TargetMechanism
from murk.protocols.univariate.statistics import Drawn, Statistics, statistics_of
from murk.protocols.windows import neighbours, read_windows
from murk.stream.wire.codec import RejectedError
from murk.stream.wire.columns import columns_of
from murk.stream.wire.releases import TargetRelease
from murk.stream.wire.state import count_of, reading, whole_sums

_ERROR_CODE = "MURK-LEARN-001"

Sums = dict[str, tuple[int, list[int]]]  # level to the number of releases and the sums

BLOCK: Final = 65_536  # largest number of releases added at once, whose sums fit into 64 bits


class TargetEngine(NeverPublished):
    """Sums of the released targets of one partition."""

    kind = "target"

    def __init__(
        self,
        settings: Settings,
        mechanisms: Mapping[str, TargetMechanism],
        *,
        noise: NoiseSource | None = None,
        make: Callable[[Guarantee], TargetMechanism] | None = None,
    ) -> None:
        self.settings, self.mechanisms = settings, mechanisms
        self.dimension = mechanisms["default"].dimension  # number of integers in a release
        self.statistics: Mapping[str, Statistics] = map_levels(lambda each: statistics_of(settings, each), mechanisms)
        self._noise: NoiseSource = SecureNoise() if noise is None else noise
        self._make, self._own = make, dict[str, Guarantee]()
        self._turns = ForkSafeLock()
        # Replaced as a whole, so that readers see a consistent state.
        self.totals: Sums = {}
        self.windows: dict[int, Sums] = {}

    @property
    def n_releases(self) -> int:
        """Number of releases learned."""
        return sum(count for count, _ in self.totals.values())

    @property
    def coefficients(self) -> int:
        """Number of reported shares, means, quantiles or coefficients."""
        return len(self.settings.names)

    def estimate(self) -> Estimate:
        """Return the shares, the mean or the quantiles in coded units, with intervals."""
        return merged([self])

    def fit(self, totals: Sums, statistics: Mapping[str, Statistics], partitions: int) -> Estimate:
        """Return the estimate from the sums of all partitions."""
        return estimated(self.settings, totals, statistics, partitions)

    # Records, randomized here

    def level(self, guarantee: Guarantee) -> str:
        """Return the level of a person's own guarantee, added if it is new; raise UserError if there are too many."""
        name = repr(guarantee)
        if name not in self.mechanisms:
            check_guarantees(guarantee, len(self._own))
            assert self._make is not None
            mechanism = self._make(guarantee)
            self._own[name] = guarantee
            self.mechanisms = {**self.mechanisms, name: mechanism}
            self.statistics = {**self.statistics, name: statistics_of(self.settings, mechanism)}
        return name

    @locked
    def learn_record(self, values: Sequence[Any], y: float, level: str) -> None:
        """Randomize a coded target once at a level, and learn from the release."""
        self._learn(np.array([[*values, 1.0]], dtype=np.float64), np.array([y], dtype=np.float64), level)

    @locked
    def learn_records(self, X: Floats, y: Floats, levels: Sequence[str]) -> None:
        """Randomize coded targets (m,), at one level for all or one for each, and learn from the releases."""
        if len(levels) != 1 and len(set(levels)) > 1:
            # In order, as simulated noise depends on the number of releases.
            for row, value, level in zip(X, y, levels, strict=True):
                self._learn(row[None], np.array([value]), level)
            return
        for start in range(0, len(y), BLOCK):
            self._learn(X[start : start + BLOCK], y[start : start + BLOCK], levels[0])

    @wiped
    def _learn(self, X: Floats, y: Floats, level: str) -> None:
        records = np.arange(self.n_releases, self.n_releases + len(y), dtype=np.int64)
        payloads = self.mechanisms[level].randomize(self.settings.vectors(X, y), self._noise, records)
        self._add(payloads, level)

    # Releases made elsewhere

    def admit(self, release: TargetRelease, ahead: int = 0) -> None:
        """Raise RejectedError for a payload that the level's mechanism does not release."""
        if not self._holds(release.level, np.array([release.payload], dtype=np.int64)):
            raise RejectedError("magnitude", FORGED)

    def admits(self, releases: Sequence[TargetRelease]) -> bool:
        """Return whether `admit` accepts all these releases."""
        return all(self._holds(level, rows) for level, rows in columns_of(releases).split("level").items())

    def _holds(self, level: str, rows: Integers) -> bool:
        mechanism = self.mechanisms[level]
        return rows.shape[1] == mechanism.dimension and mechanism.holds(rows)

    @locked
    def learn_releases(self, releases: Sequence[TargetRelease]) -> None:
        """Learn admitted releases."""
        if releases:
            columns, kept = columns_of(releases), self.settings.windows
            windows = self.windows
            if kept is not None:
                for (time, level), rows in columns.split("time", "level").items():
                    number = kept.number(time)
                    windows = {**windows, number: self._added(windows.get(number, {}), rows, level)}
                windows = kept.newest(windows)
            totals = self.totals
            for level, rows in columns.split("level").items():
                totals = self._added(totals, rows, level)
            self.totals, self.windows = totals, windows

    @locked
    def add(self, payloads: Integers, level: str) -> None:
        """Learn payloads (m, d) that the mechanism of a level released."""
        for start in range(0, len(payloads), BLOCK):
            self._add(payloads[start : start + BLOCK], level)

    def _add(self, payloads: Integers, level: str) -> None:
        self.totals = self._added(self.totals, payloads, level)

    joins = True

    @locked
    def join(self, later: TargetEngine) -> None:
        """Add the sums of another learner of the same target."""
        windows = dict(self.windows)
        for number, sums in later.windows.items():
            windows[number] = _together(windows.get(number, {}), sums)
        kept = self.settings.windows
        self.totals = _together(self.totals, later.totals)
        self.windows = windows if kept is None else kept.newest(windows)

    def _added(self, totals: Sums, payloads: Integers, level: str) -> Sums:
        for start in range(0, len(payloads), BLOCK):
            part = payloads[start : start + BLOCK]
            sums = self.statistics[level].add(part).tolist()
            count, total = totals.get(level, (0, [0] * len(sums)))
            added = count + len(part), [old + new for old, new in zip(total, sums, strict=True)]
            totals = {**totals, level: added}
        return totals

    # State

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state as plain data."""
        levels = _state_of(self.totals)
        windows = [[number, _state_of(sums)] for number, sums in self.windows.items()]
        windows_state = {"windows": windows} if windows else {}
        own = {name: guarantee.to_dict() for name, guarantee in sorted(self._own.items())}
        return {"schema": 1, "settings": self.settings.digest, "levels": levels, "own": own, **windows_state}

    @locked
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load a state from `state_dict`; raise MurkError if it is malformed, or of other settings."""
        with reading():
            if state["schema"] != 1:
                raise MurkError(f"a state of schema {state['schema']!r} does not fit a learner of schema 1")
            if state["settings"] != self.settings.digest:
                raise MurkError("the state is for different settings: make the learner with the same settings")
            for name, data in state["own"].items():
                if self._make is None or self.level(guarantee_from_dict(data)) != name:
                    raise MurkError("the state holds levels of another task")
            totals = self._read(state["levels"])
            dated = read_windows(state.get("windows"), self.settings.windows)
            windows = {number: self._read(levels) for number, levels in dated.items()}
        self.totals, self.windows = totals, windows

    def _read(self, levels: Mapping[str, Any]) -> Sums:
        totals = {}
        for level, entry in levels.items():
            sums = whole_sums(entry["sums"], self.statistics[level].size if level in self.mechanisms else None)
            totals[level] = count_of(entry["count"], "count"), sums
        return totals


def _together(first: Sums, second: Sums) -> Sums:
    """Return the sums of both, by level."""
    both = dict(first)
    for level, (count, sums) in second.items():
        counted, before = both.get(level, (0, [0] * len(sums)))
        both[level] = counted + count, [old + new for old, new in zip(before, sums, strict=True)]
    return both


def _state_of(totals: Sums) -> dict[str, Any]:
    return {level: {"count": count, "sums": sums} for level, (count, sums) in sorted(totals.items())}


def merged(engines: Sequence[TargetEngine]) -> Estimate:
    """Return the joint estimate of several partitions; raise UserError if their settings differ."""
    first = engines[0]
    if any(engine.settings != first.settings for engine in engines):
        raise UserError("only learners with the same settings can be merged")
    return _joint([(engine, engine.totals) for engine in engines])


def estimates_by_window(engines: Sequence[TargetEngine], reach: int) -> dict[int, Estimate]:
    """Return the joint estimate of each window with ``reach`` neighbours to either side, by number."""
    pools = neighbours([number for engine in engines for number in engine.windows], reach)
    return {
        number: _joint(
            [(engine, engine.windows[each]) for each in pool for engine in engines if each in engine.windows]
        )
        for number, pool in pools.items()
    }


def _joint(sums: Sequence[tuple[TargetEngine, Sums]]) -> Estimate:
    statistics: dict[str, Statistics] = {}
    totals: Sums = {}
    for engine, each in sums:
        totals = _together(totals, each)
        statistics |= {level: engine.statistics[level] for level in each}
    return sums[0][0].fit(totals, statistics, len({id(engine) for engine, _ in sums}))


def parts_of(
    settings: Settings, totals: Totals, statistics: Mapping[str, Statistics]
) -> list[tuple[Settings, Totals, dict[str, Statistics]]]:
    """Return settings, sums and statistics of the target, and of each metric among which releases are drawn."""
    parts: list[tuple[Settings, dict[str, tuple[int, list[int]]], dict[str, Statistics]]] = [
        (each, {}, {}) for each in (replace(settings, metrics=()), *settings.metrics)
    ]
    for level, (_, sums) in totals.items():
        drawn = statistics[level]
        assert isinstance(drawn, Drawn)
        for (_, part_totals, by_level), part, pair in zip(parts, drawn.parts, drawn.split(sums), strict=True):
            part_totals[level], by_level[level] = pair, part
    return [(each, part_totals, by_level) for each, part_totals, by_level in parts]


def estimated(settings: Settings, totals: Totals, statistics: Mapping[str, Statistics], partitions: int) -> Estimate:
    """Return shares, a mean, quantiles or coefficients from the sums of all partitions."""
    if settings.metrics:
        target, *metrics = (estimated(*part, partitions) for part in parts_of(settings, totals, statistics))
        assert isinstance(target, KnownEstimate)
        return replace(target, n_releases=sum(count for count, _ in totals.values()), metrics=tuple(metrics))
    if settings.known.columns:
        learn = mixed.fit_of if settings.private else fit_of
        return learn(settings, totals, statistics, partitions)
    function = quantiles_of if settings.quantiles else estimate_of
    return function(settings, totals, statistics, partitions)
