"""Base of both LDP-SGD estimators."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from murk.errors import UserError
from murk.learners.core.estimator import SGDEstimator, step_setting
from murk.learners.core.options import Averaging, Weighting
from murk.learners.core.values import target
from murk.learners.estimates.estimate import Estimate, PublicCovariates
from murk.learners.gradients.engine import SGDEngine
from murk.learners.gradients.inference import estimate
from murk.learners.gradients.losses import Balanced, Huber, Logistic, Softmax
from murk.learners.gradients.settings import Settings, Weights
from murk.privacy import Guarantee
from murk.privacy.mechanisms import Mechanism, calibrate


class LDPSGD(SGDEstimator):
    """Base class of both LDP-SGD estimators: features, levels, learning, state, inference."""

    mechanism: str | None
    calibration: str
    weights: Weights
    clip: float | None
    second_moment: ArrayLike | None
    public: Any
    box: tuple[float, float] | None
    step: Any
    averaging: Averaging
    weighting: Weighting
    intervals: Literal["random-scaling", "complete"] | None
    radius: float | None
    start: ArrayLike | None

    @abstractmethod
    def _objective(self) -> Logistic | Balanced | Softmax | Huber:
        """Return the objective."""

    def _extra_settings(self) -> dict[str, float]:
        return {}

    def _class_labels(self) -> tuple[object, ...]:
        return ()

    @abstractmethod
    def _default_radius(self, coefficients: int) -> float:
        """Return the default radius for a number of coefficients."""

    def _prepare(self) -> None:
        self._squares()
        super()._prepare()

    def _squares(self) -> tuple[float, float]:
        box: Any = self.box
        if box is None:
            return 0.0, math.inf
        valid = isinstance(box, tuple | list) and len(box) == 2 and all(isinstance(end, int | float) for end in box)
        if not valid or not 0.0 <= box[0] <= box[1]:
            raise UserError(
                f"box={box!r}: give the smallest and largest ||x||^2 that coded features can have, with 1 for the "
                "constant, as in box=(1.0, 3.0). Bounds of single features go into a task: Encoder(task) codes by them"
            )
        return float(box[0]), float(box[1])

    def _begin(self, names: tuple[Any, ...]) -> SGDEngine:
        coded = self._coded_names(names)
        covariates = None if self.public is None else self._covariates(names)
        moment = self.second_moment
        if moment is None and covariates is not None:
            moment = covariates.second_moment
        small, large = self._squares()
        settings = Settings(
            objective=self._objective(),
            names=coded,
            weights=self.weights,
            clip=self.clip,
            step=step_setting(self.step),
            averaging=self.averaging,
            weighting=self.weighting,
            intervals=self.intervals,
            radius=self._default_radius(len(coded)) if self.radius is None else self.radius,
            second_moment=None if moment is None else np.asarray(moment, dtype=np.float64),
            smallest_square=small,
            largest_square=large,
            start=None if self.start is None else np.array(self.start, dtype=np.float64),
            **self._extra_settings(),  # type: ignore[arg-type]
        )
        self._settings = settings
        engine = SGDEngine(
            settings,
            self._level_mechanisms(),
            seed=self.seed,
            noise=self.noise,
            covariates=covariates,
            classes=self._class_labels(),
        )
        self._start(names, engine)
        return engine

    def _mechanism_for(self, guarantee: Guarantee) -> Mechanism:
        size, radius = self._settings.dimension, self._settings.bound
        return calibrate(self.mechanism, guarantee, dimension=size, radius=radius, method=self.calibration)

    def _covariates(self, names: tuple[Any, ...]) -> PublicCovariates:
        if isinstance(self.public, np.ndarray):
            rows = np.asarray(self.public, dtype=np.float64)
        elif isinstance(self.public, Sequence):
            rows = np.array([[target(row.get(name)) for name in names] for row in self.public], dtype=np.float64)
        else:
            rows = self._matrix(self.public, names)
        if rows.ndim != 2 or rows.shape[1] != len(names) or not np.all(np.isfinite(rows)) or not len(rows):
            raise UserError(
                f"public covariates need rows of {len(names)} finite numbers ({', '.join(map(str, names))}), "
                f"got shape {rows.shape}"
            )
        return PublicCovariates.of_rows(rows)

    def merged(self, others: Sequence[Self]) -> Estimate:
        """Return the joint estimate of this learner and ``others`` of the same settings, each of one chain.

        Averages are weighted by each chain's sum of weights; intervals are those for this number of chains.
        """
        engines = self._engines(others)
        memories = [engine.snapshot() for engine in engines]
        first = engines[0]
        return estimate(first.settings, memories, first.covariates, first.classes, first.mechanisms)

    def _working(self) -> NDArray[np.float64]:
        engine = self._require()
        rows = engine.average[: engine.dimension - engine.settings.scaled]
        table: NDArray[np.float64] = rows.reshape(-1, engine.settings.features)
        transform = engine.settings.transform
        return table if transform is None else table @ transform

    def _linear(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return scores of rows of features without the constant."""
        scores: NDArray[np.float64] = np.column_stack([rows, np.ones(len(rows))]) @ self._working().T
        return scores
