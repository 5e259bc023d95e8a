"""Progressive validation on released examples, with River's evaluation and an unbiased loss.

River's metrics see predictions only. So a linear model is wrapped to predict a score with its noise, and the metric
corrects for the bias of that noise:

>>> from river import evaluate, linear_model
>>> from murk.learners import IWPSGDClassifier
>>> from murk.learners import Evaluated, UnbiasedLoss
>>> from murk.privacy import GaussianDP
>>> reader = IWPSGDClassifier(guarantee=GaussianDP(2.0), features=["x"], release="separate", seed=1)
>>> released = [reader.decoded(release) for release in []]  # what people released
>>> evaluate.progressive_val_score(released, Evaluated(linear_model.LogisticRegression()), UnbiasedLoss("quadratic"))
UnbiasedLoss: 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from river import base, metrics

from murk._internal.arrays import Floats
from murk.errors import UserError
from murk.privacy.guarantees import nearest
from murk.protocols.examples.laplace import loss_estimate
from murk.protocols.examples.losses import CODES, DIRECTED_LOSSES, LOGIT_WIDTH, Noise
from murk.protocols.examples.outer import matrix_of
from murk.protocols.examples.transforms import value

_ERROR_CODE = "MURK-LEARN-001"

__all__ = ["Evaluated", "Example", "Score", "UnbiasedLoss"]


class Example(dict[Any, float]):
    """A released example's features by name, with the public facts about their noise."""

    noise: Noise = Noise(0.0)  # noise of the release's level
    product: bool = False  # whether features are multiplied by the label
    directed: bool = False  # whether features are a direction: losses are weighted by 1/|x|^2
    missing: float = 0.0  # for a direction, an unbiased estimate of whether the target is missing (1) or present (0)
    matrix: Floats | None = None  # the whole outer product, if any: losses are weighted by 1/(1 + |x|^2)


class Score(NamedTuple):
    """A linear model's score of a released example, and its noise."""

    value: float  # theta'u~; for an outer product, twice the loss
    variance: float  # theta'D theta
    noise: Noise  # noise of the example
    product: bool  # whether the example is multiplied by its label
    directed: bool = False  # whether it is a direction
    outer: bool = False  # whether it is an outer product
    squares: tuple[float, ...] = ()  # under Laplace noise, squares of the noise's scale times each coefficient


def coefficients(model: Any) -> tuple[Mapping[Any, float], float]:
    """Return a linear model's coefficients by feature, and its intercept, or raise UserError for other models."""
    reference = getattr(model, "linear_coefficients", None)
    if reference is not None:
        linear: tuple[Mapping[Any, float], float] = reference()
        return linear
    if hasattr(model, "weights") and hasattr(model, "intercept"):
        weights = dict(model.weights)
        return weights, float(model.intercept) + float(weights.pop("intercept", 0.0))
    raise UserError(
        f"{type(model).__name__} is not a linear model that can be evaluated: use one of River's or Murk's linear "
        "models, or one with `weights` and `intercept`"
    )


class Evaluated(base.Estimator):
    """A linear model that predicts the ``Score`` of a released example.

    Parameters
    ----------
    model
        A linear model of River, or an IWP-SGD learner with ``inputs="released"``.
    """

    def __init__(self, model: Any) -> None:
        self.model = model

    @property
    def _supervised(self) -> bool:
        return True

    def predict_one(self, x: Example) -> Score:
        """Return the score of a released example, with its noise."""
        weights, constant = coefficients(self.model)
        noise: Noise = x.noise
        if x.matrix is not None:
            theta = np.array([*(float(weights.get(name, 0.0)) for name in x if name != "intercept"), constant, -1.0])
            twice = float(theta @ matrix_of(x.matrix, len(theta) - 1) @ theta)
            return Score(twice, 0.0, noise, x.product, outer=True)
        score = constant * (x.get("intercept", 0.0) if x.product or x.directed else 1.0)
        variance = noise.constant_variance * constant * constant
        for name, number in x.items():
            if name != "intercept":
                weight = weights.get(name, 0.0)
                score += weight * number
                variance += noise.variance * weight * weight
        if not noise.laplace:
            return Score(score, variance, noise, x.product, x.directed)
        squares = [0.5 * noise.variance * weights.get(name, 0.0) ** 2 for name in x if name != "intercept"]
        squares.append(0.5 * noise.constant_variance * constant * constant)
        return Score(score, variance, noise, x.product, x.directed, squares=tuple(squares))

    def learn_one(self, x: Example, y: Any) -> None:
        """Train the wrapped model."""
        self.model.learn_one(x, y)


class UnbiasedLoss(metrics.base.Metric):
    """Mean loss on the true examples, estimated without bias from released ones.

    Losses are weighted as they are in learning from these releases.

    Parameters
    ----------
    loss
        ``"quadratic"``, ``"exponential"``, ``"log"``, ``"probit"`` for labels, or ``"squared"``.
    truncation
        K of the log loss.
    positive
        The positive label.

    References
    ----------
    Dufraiche et al., equation 6 (the IWP loss estimator).
    """

    _fmt = ".6f"

    def __init__(self, loss: str = "quadratic", truncation: int = 3, positive: Any = True) -> None:
        if loss not in CODES:
            raise UserError(f"loss={loss!r} is unknown{nearest(loss, CODES)}; use one of {', '.join(CODES)}")
        self.loss = loss
        self.truncation = truncation
        self.positive = positive
        self.count = 0
        self._total = self._squares = 0.0

    def _estimate(self, y_true: Any, y_pred: Score) -> float:
        z, v, noise, product, directed, outer, squares = y_pred
        if (directed or outer) and self.loss not in DIRECTED_LOSSES:
            raise UserError(
                f"the {self.loss} loss has no unbiased estimate from {'directions' if directed else 'outer products'}; "
                f"use the {' or '.join(DIRECTED_LOSSES)} loss, or release='joint'"
            )
        if outer:
            return 0.5 * z
        if directed or self.loss == "squared":
            return 0.5 * ((z - float(y_true)) ** 2 - v - noise.target_variance)

        def smooth(score: float) -> float:
            if squares:
                return float(loss_estimate(CODES[self.loss], LOGIT_WIDTH, score, np.array(squares)))
            return float(value(CODES[self.loss], self.truncation, LOGIT_WIDTH, score, v))

        if product:
            return smooth(z)
        z = z if y_true == self.positive else -z
        return noise.keep * smooth(z) + (1.0 - noise.keep) * smooth(-z)

    def update(self, y_true: Any, y_pred: Score) -> None:
        """Add an example's loss, unless its estimate is not finite."""
        self._add(y_true, y_pred, 1)

    def revert(self, y_true: Any, y_pred: Score) -> None:
        """Remove an example."""
        self._add(y_true, y_pred, -1)

    def _add(self, y_true: Any, y_pred: Score, sign: int) -> None:
        loss = self._estimate(y_true, y_pred)
        if math.isfinite(loss):
            self.count += sign
            self._total += sign * loss
            self._squares += sign * loss * loss

    def get(self) -> float:
        """Return the mean loss; 0 before the first example."""
        return self._total / self.count if self.count else 0.0

    @property
    def error(self) -> float:
        """Standard error of the mean; infinite below two examples."""
        if self.count < 2:
            return math.inf
        mean = self._total / self.count
        return math.sqrt(max(self._squares / self.count - mean * mean, 0.0) / (self.count - 1))

    @property
    def bigger_is_better(self) -> bool:
        """False, for a loss."""
        return False

    def works_with(self, model: base.Estimator) -> bool:
        """Return whether the model is :class:`Evaluated`."""
        return isinstance(model, Evaluated)
