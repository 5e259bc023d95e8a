"""What the estimators that learn step by step share: each record is randomized in place, and moves an iterate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from murk._scratch import wiped
from murk.errors import UserError
from murk.learners.base import StreamEstimator
from murk.learners.options import InverseScalingStep
from murk.privacy import Guarantee


class SGDEstimator(StreamEstimator):
    """A River estimator around an engine with an iterate and its average."""

    def _start(self, names: tuple[Any, ...], engine: Any) -> Any:
        engine.use(self._default)
        return self._fix(names, engine)

    @wiped
    def _learn_rows(self, X: Any, y: NDArray[np.float64], budget: Guarantee | Sequence[Guarantee] | None) -> None:
        engine = self._engine
        if engine is None:
            engine = self._begun(self._columns(X))
        rows = self._rows_of(X, y)
        own = self._of_rows(budget, len(rows))
        engine.learn_records(rows, y, own if isinstance(own, list) else [own])
        if self._first_records is not None:
            self._survey_rows(X, y)

    @property
    def iterate(self) -> NDArray[np.float64]:
        """The newest iterate theta_t in working coordinates (whitened where a second moment was given)."""
        found: NDArray[np.float64] = self._require().iterate
        return found

    @property
    def average(self) -> NDArray[np.float64]:
        """The average bar_t of the iterates, in working coordinates."""
        found: NDArray[np.float64] = self._require().average
        return found


def step_setting(step: Any) -> Any:
    """``"noise-aware"``, or an inverse scaling step from Murk's own or River's description of it."""
    if step == "noise-aware" or isinstance(step, InverseScalingStep):
        return step
    try:
        return InverseScalingStep(float(step.learning_rate), float(step.power))
    except AttributeError:
        raise UserError(
            f"step={step!r} is neither 'noise-aware' nor an InverseScaling(learning_rate, power) of River"
        ) from None
