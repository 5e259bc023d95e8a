"""One chain's learner of released examples, with everything around its kernel: levels, noise, admission, state."""

from __future__ import annotations

import copy
import math
import os
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from murk._turns import Turns, in_turn, occupied
from murk.errors import MurkError, UserError
from murk.learners.estimates.estimate import Estimate, PublicCovariates
from murk.learners.iwp_sgd import kernels as f
from murk.learners.iwp_sgd import layout as k
from murk.learners.iwp_sgd.estimation.inference import estimate
from murk.learners.iwp_sgd.estimation.polish import triangle
from murk.learners.iwp_sgd.settings import ExampleMechanism, ExampleSettings, fill, level_rows
from murk.learners.levels import levels_of
from murk.learners.state import count_of, pack, unpack
from murk.learners.values import number
from murk.privacy.noise import NoiseSource, Purpose, SecureNoise, SimulatedNoise
from murk.privacy.noise.distributions import GAUSSIAN_NOISE
from murk.privacy.noise.sources import fill_from
from murk.stream.messages.codec import RejectedError
from murk.stream.messages.releases import ExampleRelease

_BLOCK = 4096
_ROWS = ("iterate", "average", "scaling_a", "scaling_b", "gathered", "reference", "aimed")
_COUNTS = ("n_releases", "updates", "in_batch", "refused", "next_refresh", "identified")


class IWPEngine:
    """IWP-SGD on one chain: ``theta <- Project(theta - step (gradient estimate + lambda theta))``, and its average.

    Threads take turns.

    Parameters
    ----------
    settings
        What is public, settled (see :func:`murk.learners.iwp_sgd.settings.settle`).
    mechanisms
        Level name to mechanism.
    seed
        Simulate the noise of :meth:`learn_record` from this seed; ``None`` is secure noise.
    noise
        A source of noise other than the default secure one.
    """

    kind = "example"
    covariates: PublicCovariates | None = None

    def __init__(
        self,
        settings: ExampleSettings,
        mechanisms: Mapping[str, ExampleMechanism],
        *,
        seed: int | None = None,
        noise: NoiseSource | None = None,
    ) -> None:
        for level, mechanism in mechanisms.items():
            if mechanism.dimension != settings.dimension:
                raise UserError(
                    f"level {level!r} randomizes {mechanism.dimension} numbers, an example has {settings.dimension}"
                )
        if seed is not None and noise is not None:
            raise UserError("seed= asks for simulated noise and noise= for another source: give one of them")
        self.settings = settings
        self.mechanisms = dict(mechanisms)
        self._turns = Turns()
        p, numbers = settings.features, settings.dimension
        self._size = triangle(p) if settings.polish else 0
        self.real: NDArray[np.float64] = np.zeros(k.REAL_HEADER + (k.ROWS + 1) * p + numbers + 2 * self._size)
        self.whole: NDArray[np.int64] = np.zeros(k.WHOLE_HEADER + 2 * numbers, dtype=np.int64)
        fill(self.real, self.whole, settings)
        self._noise: NoiseSource = noise if noise is not None else SecureNoise()
        if seed is not None:
            self._noise = SimulatedNoise(seed)
            self.whole[k.SIMULATED] = 1
            self.whole[k.SEED] = np.array(seed, dtype=np.uint64).view(np.int64)
        self._seeded = seed is not None
        self._bind()
        self.x[-1] = 1.0
        self._drawn = p - 1 if settings.form == k.LABEL else numbers
        # Secure noise for one record: words for a little more trials than it has numbers, spare words, a coin.
        self._direct = type(self._noise) is SecureNoise
        self._trials = self._drawn + self._drawn // 25 + 2
        self._word_bytes = 8 * (2 * self._trials + 8 + 1)
        self._levels = {level: place for place, level in enumerate(self.mechanisms)}
        self._level_table = level_rows(settings, list(self.mechanisms.values()))
        self._labelled = settings.form == k.LABEL
        self._row_names = (*_ROWS, "first", "second") if settings.weighted else _ROWS
        self._bounds = {
            level: mechanism.magnitudes.tolist() if hasattr(mechanism, "magnitudes") else None
            for level, mechanism in self.mechanisms.items()
        }
        self.current: ExampleMechanism | None = None

    def _bind(self) -> None:
        p, at, tail = self.settings.features, k.REAL_HEADER, self.settings.features + self.settings.dimension
        self.rows = self.real[at : at + k.ROWS * p].reshape(k.ROWS, p)
        self.triangles = self.real[at + k.ROWS * p :][: 2 * self._size].reshape(2, self._size)
        self.x = self.real[-tail : p - tail]
        self.features = self.x[:-1]
        self._put: Callable[..., None] = struct.Struct(f"{p - 1}d").pack_into
        self._at = self.real.nbytes - tail * self.real.itemsize

    @in_turn
    def __getstate__(self) -> dict[str, Any]:
        # Views are created again; and what is copied later, array by array, another thread could be writing to.
        state = {name: value for name, value in self.__dict__.items() if name not in _BOUND}
        state["real"], state["whole"] = self.real.copy(), self.whole.copy()
        # Whatever is going on or went wrong, a copy has nothing of a record.
        _forget(state["real"], state["whole"], self.settings.features)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._bind()

    # What is known

    @property
    def n_releases(self) -> int:
        """How many releases were learned, refused updates among them."""
        return int(self.whole[k.COUNT])

    @property
    def dimension(self) -> int:
        """Numbers in a release."""
        return self.settings.dimension

    @property
    def iterate(self) -> NDArray[np.float64]:
        """The newest iterate, a copy."""
        return self._row(k.ITERATE)

    @property
    def average(self) -> NDArray[np.float64]:
        """The average, a copy."""
        return self._row(k.AVERAGE)

    @in_turn
    def _row(self, place: int) -> NDArray[np.float64]:
        return np.array(self.rows[place])

    def snapshot(self) -> IWPEngine:
        """A copy whose arrays stay as they are now."""
        return copy.copy(self)

    @property
    def reference(self) -> NDArray[np.float64]:
        """What predictions use, and where losses are estimated: the polished estimate of late, or the average."""
        return self._row(k.REFERENCE if self.settings.polish else k.AVERAGE)

    @property
    def refused_updates(self) -> int:
        """How many releases moved nothing, because no honest one is like them or a step was not finite."""
        return int(self.whole[k.REFUSED])

    @property
    def unbiased_loss(self) -> tuple[float, float]:
        """Mean of the unbiased loss estimates, and its error: each at `reference` before its release was learned.

        NaN before anything was learned, and where nothing is corrected.
        """
        return self._mean_loss() if self.settings.corrected else (math.nan, math.nan)

    @in_turn
    def _mean_loss(self) -> tuple[float, float]:
        real = self.real
        total = real[k.LOSS_WEIGHT]
        if not total > 0.0:
            return math.nan, math.nan
        mean = real[k.LOSS_SUM] / total
        left = real[k.LOSS_SQUARES] - 2.0 * mean * real[k.LOSS_CROSS] + mean * mean * real[k.LOSS_WEIGHT_SQUARES]
        return float(mean), math.sqrt(max(float(left), 0.0)) / float(total)

    def figures(self) -> dict[str, float]:
        """Figures for the monitor: functions of releases and public settings alone."""
        still = self.snapshot()
        loss, error = still.unbiased_loss
        found = {
            "iterate_gap": float(np.linalg.norm(still.rows[k.ITERATE] - still.rows[k.AVERAGE])),
            "step_size": float(still.real[k.LAST_STEP]),
            "refused_updates": float(still.refused_updates),
        }
        if math.isfinite(loss):
            found |= {"unbiased_loss": loss, "unbiased_loss_error": error}
        return found

    @property
    def coefficients(self) -> int:
        """Coefficients of the estimate."""
        return len(self.settings.names)

    def estimate(self) -> Estimate:
        """Coefficients in coded units, with what their intervals need."""
        return estimate([self.snapshot()])

    # Records: randomized here, once

    def use(self, mechanism: ExampleMechanism) -> None:
        """Randomize the next records by ``mechanism``; refused where its noise is beyond the loss's valid region."""
        if mechanism is not self.current:
            f.set_level(self.real, self.whole, *level_rows(self.settings, [mechanism]), 0)
            self.current = mechanism

    def learn_record(self, values: Sequence[Any], y: float, mechanism: ExampleMechanism | None = None) -> None:
        """Randomize one record once, and learn from the release.

        Parameters
        ----------
        values
            Coded features without the constant, ``(p - 1,)``; what is no number counts as 0.
        y
            The coded target; NaN where it is missing.
        mechanism
            What randomizes it; by default the one in use.
        """
        if not (self._seeded or self._direct):
            row = np.array([[number(value) for value in values]])
            self.learn_records(row, np.array([y]), None if mechanism is None else [mechanism])
            return
        turns = self._turns
        # As `in_turn` has it: another call would take as long as several numbers of a release.
        with turns:
            if turns.busy:
                raise occupied()
            try:
                turns.busy = True
                if mechanism is not None and mechanism is not self.current:
                    self.use(mechanism)
                try:
                    self._put(self.real, self._at, *values)
                except struct.error:
                    self._put(self.real, self._at, *map(number, values))
                if self._seeded:
                    f.learn_record(self.real, self.whole, y)
                else:
                    self._learn_directly(y)
            except BaseException:
                _forget(self.real, self.whole, self.settings.features)
                raise
            finally:
                turns.busy = False

    def _learn_directly(self, y: float) -> None:
        words = np.frombuffer(os.urandom(self._word_bytes), dtype=np.uint64)
        if not f.learn_record_secure(self.real, self.whole, y, self._trials, words):
            noise = self.whole[k.WHOLE_HEADER : k.WHOLE_HEADER + self._drawn]
            fill_from(words, self._trials, 1, GAUSSIAN_NOISE, noise)
            self.whole[k.COIN] = words[-1:].view(np.int64)[0]
            f.learn_record(self.real, self.whole, y)

    @in_turn
    def learn_records(
        self,
        X: NDArray[np.float64],
        y: NDArray[np.float64],
        mechanisms: Sequence[ExampleMechanism] | None = None,
    ) -> None:
        """Learn from the rows of ``X`` in turn, as :meth:`learn_record` would.

        ``X`` is coded, ``(m, p)``, or ``(m, p - 1)`` without the constant. ``mechanisms`` gives each row's own,
        or one for all; otherwise they are randomized by the one in use.
        """
        try:
            self._learn_records(X, y, mechanisms)
        except BaseException:
            _forget(self.real, self.whole, self.settings.features)
            raise

    def _learn_records(
        self, X: NDArray[np.float64], y: NDArray[np.float64], mechanisms: Sequence[ExampleMechanism] | None
    ) -> None:
        X = np.ascontiguousarray(X, dtype=np.float64)
        y = np.ascontiguousarray(y, dtype=np.float64)
        if len(X) == 0:
            return
        levels = np.zeros(0, dtype=np.int64)
        reals, wholes = np.zeros((0, k.LEVEL_REALS)), np.zeros((0, k.LEVEL_WHOLES), dtype=np.int64)
        if mechanisms is not None and len(mechanisms) == 1:
            self.use(mechanisms[0])
        elif mechanisms is not None:
            distinct, levels = levels_of(mechanisms)
            reals, wholes = level_rows(self.settings, distinct)
            self.current = None
        if self._seeded:
            nothing = np.zeros((1, 0), dtype=np.int64)
            words = np.zeros(0, dtype=np.uint64)
            f.learn_records(self.real, self.whole, X, y, levels, reals, wholes, nothing, words)
            return
        for start in range(0, len(X), _BLOCK):
            block = slice(start, min(start + _BLOCK, len(X)))
            records = np.arange(self.n_releases, self.n_releases + block.stop - start, dtype=np.int64)
            noise = self._noise.gaussian(records, self._drawn)
            words = np.zeros(len(records), dtype=np.uint64)
            if self._labelled:
                words[:] = self._noise.words(records, 1, Purpose.COIN)[:, 0]
            f.learn_records(self.real, self.whole, X[block], y[block], levels[block], reals, wholes, noise, words)

    # Releases: randomized elsewhere
    def admit(self, release: ExampleRelease, ahead: int = 0) -> None:
        """Refuse a release with a number that its own coordinate's mechanism does not reach.

        Raises
        ------
        RejectedError
            With reason ``"magnitude"``.
        """
        bounds = self._bounds[release.level]
        if bounds is not None:
            for value, bound in zip(release.payload, bounds, strict=True):
                if abs(value) > bound:
                    raise RejectedError("magnitude", f"a number beyond {bound}, which its coordinate does not reach")
        if self._labelled and release.payload[-1] not in (-1, 1):
            raise RejectedError("magnitude", f"a label of {release.payload[-1]}, neither -1 nor 1")

    @in_turn
    def learn_releases(self, releases: Sequence[ExampleRelease]) -> None:
        """Learn from admitted releases in turn."""
        if not releases:
            return
        if {len(release.payload) for release in releases} != {self.dimension}:
            raise MurkError(f"a release does not hold the {self.dimension} numbers of an example")
        payloads = np.array([release.payload for release in releases], dtype=np.int64)
        levels = np.array([self._levels[release.level] for release in releases], dtype=np.int64)
        self.current = None
        f.learn_releases(self.real, self.whole, payloads, levels, *self._level_table)

    @in_turn
    def learn_decoded(
        self, vectors: NDArray[np.float64], targets: NDArray[np.float64], mechanism: ExampleMechanism | None = None
    ) -> None:
        """Learn from decoded releases (m, p) of a mechanism, by default the one in use; targets are 0 for products."""
        if mechanism is not None:
            self.use(mechanism)
        rows, beside = (np.ascontiguousarray(values, dtype=np.float64) for values in (vectors, targets))
        f.learn_decoded(self.real, self.whole, rows, beside)

    publish_every = 2**31
    """No device waits for an iterate, so none need be published while releases are learned."""

    def published(self) -> None:
        """No iterate is published: devices release examples, not gradients."""

    # State

    @in_turn
    def state_dict(self) -> dict[str, Any]:
        """The whole state as plain data: loaded elsewhere, it goes on bit for bit."""
        whole = self.whole
        return {
            "schema": 1,
            "settings": self.settings.digest,
            "dimension": self.settings.features,
            **{name: int(whole[place]) for name, place in zip(_COUNTS, _PLACES, strict=True)},
            "sums": pack(self.real[k.FIRST_SUM : k.LAST_SUM + 1]),
            "rows": {name: pack(self.rows[i]) for i, name in enumerate(self._row_names)},
            "triangles": pack(self.triangles.ravel()),
        }

    @in_turn
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a state that :meth:`state_dict` gave.

        Raises
        ------
        MurkError
            If the state is malformed or of other settings.
        """
        p = self.settings.features
        try:
            if state["schema"] != 1 or state["dimension"] != p:
                raise MurkError(
                    f"a state of schema {state['schema']!r} and dimension {state['dimension']!r} "
                    f"does not fit a learner of schema 1 and dimension {p}"
                )
            if state["settings"] != self.settings.digest:
                raise MurkError("the state is of a learner with other settings: make one with the same")
            rows = np.array([unpack(state["rows"][name], p) for name in self._row_names])
            sums = unpack(state["sums"], k.LAST_SUM - k.FIRST_SUM + 1)
            triangles = unpack(state["triangles"], 2 * self._size).reshape(2, self._size)
            counts = [count_of(state[name], name) for name in _COUNTS]
        except (KeyError, TypeError, ValueError) as error:
            raise MurkError(f"the state is malformed: {type(error).__name__} at {error}") from error
        if counts[2] >= self.settings.batch:
            raise MurkError("the state's counts are not those of a learner with these settings")
        self.rows[: len(rows)] = rows
        self.triangles[:] = triangles
        self.real[k.FIRST_SUM : k.LAST_SUM + 1] = sums
        for place, count in zip(_PLACES, counts, strict=True):
            self.whole[place] = count


def _forget(real: NDArray[np.float64], whole: NDArray[np.int64], p: int) -> None:
    """Wipe what is of one record: its features and target, what is released of it, its noise and coin."""
    tail = p + int(whole[k.NUMBERS])
    real[-tail : p - tail - 1] = 0.0
    real[p - tail :] = 0.0
    real[k.TARGET] = 0.0
    whole[k.WHOLE_HEADER :] = 0
    whole[k.COIN] = 0


_BOUND = ("rows", "triangles", "x", "features", "_put", "_at")
_PLACES = (k.COUNT, k.UPDATES, k.IN_BATCH, k.REFUSED, k.NEXT_REFRESH, k.IDENTIFIED)
