"""One chain's learner of released examples: levels, noise, admission and state."""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from murk._scratch import copied, empty, wiped
from murk._turns import in_turn
from murk.errors import MurkError
from murk.learners.core.in_place import NO_WORDS, IterateEngine, trials_for
from murk.learners.core.options import levels_of
from murk.learners.estimates.estimate import Estimate, PublicCovariates
from murk.learners.examples import kernels as f
from murk.learners.examples import layout as k
from murk.learners.examples import record
from murk.learners.examples.inference import estimate
from murk.learners.examples.record import Memory
from murk.learners.examples.settings import ExampleMechanism, ExampleSettings, level_rows
from murk.privacy.noise import NoiseSource, Purpose
from murk.stream.messages.codec import RejectedError
from murk.stream.messages.releases import ExampleRelease
from murk.stream.messages.state import check_header, count_of, pack, reading, unpack
from murk.stream.messages.wire import block_of

_BLOCK = 4096
_ROWS = ("iterate", "average", "scaling_a", "scaling_b", "gathered", "reference", "aimed")
_COUNTS = ("n_releases", "updates", "in_batch", "refused", "next_refresh", "identified")


class IWPEngine(IterateEngine):
    """IWP-SGD on one chain: the average of ``theta <- Project(theta - step (gradient estimate + lambda theta))``.

    ``settings`` are from `settle`, ``mechanisms`` by level. ``seed`` simulates noise; ``noise`` is secure by default.
    """

    kind = "example"
    covariates: PublicCovariates | None = None
    _kernels = record
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
        self._level_table = level_rows(settings, list(self.mechanisms.values()))
        self._labelled = settings.form == k.LABEL
        self._row_names = (*_ROWS, "first", "second") if settings.weighted else _ROWS
        self._bounds = {
            level: mechanism.magnitudes.tolist() if hasattr(mechanism, "magnitudes") else None
            for level, mechanism in self.mechanisms.items()
        }
        self.current: ExampleMechanism | None = None

    @property
    def real(self) -> NDArray[np.float64]:
        """The memory's float64 array."""
        return self.memory.real

    @property
    def whole(self) -> NDArray[np.int64]:
        """The memory's int64 array."""
        return self.memory.whole

    @property
    def rows(self) -> NDArray[np.float64]:
        """The memory's state vectors."""
        return self.memory.rows

    @property
    def triangles(self) -> NDArray[np.float64]:
        """The memory's sums of the polish."""
        return self.memory.triangles

    def snapshot(self) -> IWPEngine:
        """Return a copy with arrays of its own."""
        return copy.copy(self)

    @property
    def reference(self) -> NDArray[np.float64]:
        """Coefficients for predictions and loss estimates: the last polished estimate, or the average."""
        return self._row(k.REFERENCE if self.settings.polish else k.AVERAGE)

    @property
    def refused_updates(self) -> int:
        """Number of releases ignored as implausible or because a step was not finite."""
        return int(self.whole[k.REFUSED])

    @property
    def unbiased_loss(self) -> tuple[float, float]:
        """Mean and standard error of the unbiased losses, each taken at `reference` before its release was learned.

        Both are NaN before the first release, and without correction.
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
        """Randomize the next records by ``mechanism``; raise UserError if its noise is too large for the loss."""
        if mechanism is not self.current:
            f.set_level(self.real, self.whole, *level_rows(self.settings, [mechanism]), 0)
            self.current = mechanism

    def _learn_slowly(self, y: float, missing: int) -> None:
        if missing == NO_WORDS:
            self.whole[k.COIN] = np.frombuffer(os.urandom(8), dtype=np.int64)[0]
        super()._learn_slowly(y, missing)

    @wiped
    def _learn_records(
        self, X: NDArray[np.float64], y: NDArray[np.float64], mechanisms: Sequence[ExampleMechanism] | None
    ) -> None:
        X, y = copied(X), copied(y)
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
            noise = self._noise.gaussian(records, len(self.memory.noise))
            words = empty(len(records), np.uint64)
            words.fill(0)
            if self._labelled:
                words[:] = self._noise.words(records, 1, Purpose.COIN)[:, 0]
            f.learn_records(self.real, self.whole, X[block], y[block], levels[block], reals, wholes, noise, words)

    # Releases made elsewhere

    def admit(self, release: ExampleRelease, ahead: int = 0) -> None:
        """Refuse a release with a number beyond the bound on its coordinate.

        Raises RejectedError with reason ``"magnitude"``.
        """
        bounds = self._bounds[release.level]
        if bounds is not None:
            for value, bound in zip(release.payload, bounds, strict=True):
                if abs(value) > bound:
                    raise RejectedError("magnitude", f"a number beyond {bound}, the bound on its coordinate")
        if self._labelled and release.payload[-1] not in (-1, 1):
            raise RejectedError("magnitude", f"a label of {release.payload[-1]}, neither -1 nor 1")

    def admits(self, releases: Sequence[ExampleRelease]) -> bool:
        """Return whether `admit` accepts all these releases."""
        for level, rows in block_of(releases).split("level").items():
            bounds = self._bounds[level]
            if bounds is not None and (np.abs(rows) > bounds).any():
                return False
            if self._labelled and (np.abs(rows[:, -1]) != 1).any():
                return False
        return True

    @in_turn
    def learn_releases(self, releases: Sequence[ExampleRelease]) -> None:
        """Learn from admitted releases in turn."""
        if not releases:
            return
        block = block_of(releases)
        payloads = block.rows(self.dimension)
        levels = self._level_indices(block.levels)
        self.current = None
        f.learn_releases(self.real, self.whole, payloads, levels, *self._level_table)

    @in_turn
    def learn_decoded(
        self, vectors: NDArray[np.float64], targets: NDArray[np.float64], mechanism: ExampleMechanism | None = None
    ) -> None:
        """Learn from decoded releases (m, p) of a mechanism, by default the one in use; targets are 0 for products."""
        if mechanism is not None:
            self.use(mechanism)
        rows, numbers = (np.ascontiguousarray(values, dtype=np.float64) for values in (vectors, targets))
        f.learn_decoded(self.real, self.whole, rows, numbers)

    publish_every = 2**31  # Devices release examples, not gradients, and read no iterate

    def published(self) -> None:
        """Do nothing: no iterate is published."""

    # State

    @in_turn
    def state_dict(self) -> dict[str, Any]:
        """Return the whole state as plain data; once loaded, learning continues bit for bit."""
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
        """Load a state from :meth:`state_dict`.

        Raises MurkError if the state is malformed or for other settings.
        """
        p = self.settings.features
        with reading():
            check_header(state, self.settings.digest, "dimension", p)
            rows = np.array([unpack(state["rows"][name], p) for name in self._row_names])
            sums = unpack(state["sums"], k.LAST_SUM - k.FIRST_SUM + 1)
            triangles = unpack(state["triangles"], self.triangles.size).reshape(2, -1)
            counts = [count_of(state[name], name) for name in _COUNTS]
        if counts[2] >= self.settings.batch:
            raise MurkError("the state's counts do not fit a learner with these settings")
        self.rows[: len(rows)] = rows
        self.triangles[:] = triangles
        self.real[k.FIRST_SUM : k.LAST_SUM + 1] = sums
        for place, count in zip(_PLACES, counts, strict=True):
            self.whole[place] = count


_PLACES = (k.COUNT, k.UPDATES, k.IN_BATCH, k.REFUSED, k.NEXT_REFRESH, k.IDENTIFIED)
