r"""The linear probability model of each of several classes, without public rows.

Log odds of K classes need a curvature of (K - 1) p by (K - 1) p numbers, which nobody releases. The least-squares line
through a class's indicator does not: at an origin of constants alone everybody has the same class probabilities q, and
a score, ``B'(e_y - q) (x) c z / m`` with ``m = max_k |e_k - q|``, contains the score of each class's indicator, since
``B B'(e_y - q) = e_y - q``:

.. math:: m\, (B\, E\, u)_k = E\, (y_k - q_k)\, c z = \pi\, E\, c z x'\, (b_k - q_k e).

So the models of all epochs have such origins. Each class is a binary target of `line`, with ``1 - 1/K`` times the noise
variance, and released scatters estimate ``E c z z'`` for all of them. All lines have the same weights c, so that
without noise each feature's slopes add up to zero.

The reported values are ``2 b_k``, less 1 for the constant: the line through labels of -1 and +1, as in `moments`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from murk.learners.core.coordinates import contrasts
from murk.learners.core.scoring.line import RAREST, ProbabilityLine, matrix_share, tells_line
from murk.learners.core.scoring.model import Model, Response
from murk.learners.core.scoring.moments import Moments
from murk.learners.core.scoring.rows import Rows
from murk.learners.core.scoring.solve import PRIOR_VARIANCE, even_coordinates
from murk.learners.core.scoring.sums import Answer, Summary
from murk.learners.estimates.links import class_probabilities

Array = NDArray[np.float64]

FIRST_SHARES = (0.375, 0.125)
"""Shares of people asked for a scatter and for a curvature until the moments are known."""

_LOGISTIC = Response(True)
# Share of curvatures among the matrices asked for; curvatures determine the share of targets present.
_CURVATURES = 0.25
# Standard errors, and the further share, that are subtracted from the estimated share of missing targets.
_SURELY, _SAME = 2.0, 0.01


class ClassLines:
    """The least-squares lines through the indicators of K classes, K p values; no lines before answers determine them.

    ``found`` are the epochs' mean answers, oldest first, at origins of constants alone. ``indicators`` are the
    answers about each class, converted to those about a binary target.
    """

    public = False
    alike = True
    doubt = 0.0

    def __init__(self, found: Sequence[Summary], classes: int) -> None:
        self.newest = found[-1].model
        self.features = len(self.newest.transform)
        self._found, self._basis = list(found), contrasts(classes)
        self.indicators = [[indicator(each, label, self._basis) for each in found] for label in range(classes)]
        self.moments = Moments.of(self.indicators[0], _LOGISTIC)
        self.rows = Rows.normal(self.moments.moment)
        self.lines: list[ProbabilityLine] = []
        if tells_line(self.indicators[0]):
            first = ProbabilityLine(self.indicators[0], self.moments)
            self.lines = [first, *(first.with_scores(each) for each in self.indicators[1:])]
        values = np.zeros((classes, self.features))
        values[:, -1] = 2.0 / classes
        for label, line in enumerate(self.lines):
            values[label] = 2.0 * line.values
        values[:, -1] -= 1.0
        self.values: Array = values.ravel()

    @property
    def missing(self) -> float:
        """Lower bound on the share of people whose target is missing; 0 unless significant."""
        if not self.lines:
            return 0.0
        share, error = self.lines[0].share
        return max(1.0 - share - _SURELY * error - _SAME, 0.0)

    def refit(self, found: Sequence[Summary]) -> ClassLines:
        """Return the solution for other answers."""
        return ClassLines(found, len(self._basis))

    @property
    def rates(self) -> Array:
        """Share of each class, at least 1%, (K,)."""
        classes = len(self._basis)
        if not self.lines:
            return np.full(classes, 1.0 / classes)
        shares = np.array([max(line.rate, RAREST) for line in self.lines])
        return np.asarray(shares / shares.sum())

    @cached_property
    def origin(self) -> Array:
        """Contrasts of log odds for predictions, ((K - 1) p,).

        They are one step of Newton's method from the constants: slopes divided by the class's share. By their noise,
        slopes are shrunk towards zero and shares towards each other.
        """
        theta, means = np.zeros((len(self._basis), self.features)), self.moments.moment[-1]
        rates, even = self.rates, 1.0 / len(self._basis)
        if self.lines:
            spread = float(np.square(rates - even).sum())
            doubt = sum(float(means @ line.covariance @ means) for line in self.lines)
            rates = even + max(1.0 - doubt / max(spread, 1e-300), 0.0) * (rates - even)
        for label, line in enumerate(self.lines):
            signal, noise = line.signal, line.noise
            theta[label] = signal / max(signal + noise, 1e-300) * line.values / rates[label]
        # The constant gives each class its share at the mean of the features.
        theta[:, -1] = np.log(rates) - theta[:, :-1] @ means[:-1]
        return np.asarray((self._basis.T @ theta).ravel())

    # Precision of the lines

    @cached_property
    def covariance(self) -> Array:
        """Covariance of the values, (K p, K p); that of a wide prior before answers determine the lines."""
        classes, p = len(self._basis), self.features
        if not self.lines:
            return np.eye(classes * p) * PRIOR_VARIANCE
        blocks = np.zeros((classes, p, classes, p))
        for k, line in enumerate(self.lines):
            blocks[k, :, k, :] = line.covariance
            for j in range(k):
                blocks[j, :, k, :] = self.lines[j].covariance_with(line, self._noises(j, k))
                blocks[k, :, j, :] = blocks[j, :, k, :].T
        return np.asarray(4.0 * blocks.reshape(classes * p, classes * p))

    def _noises(self, one: int, other: int) -> list[tuple[float, float]]:
        """Return the covariance of two classes' mean scores by epoch, as `ProbabilityLine.covariance_with` takes it."""
        rates, found = (self.lines[one].rate, self.lines[other].rate), []
        for each in self._found:
            if each.score is None:
                continue
            at = centre(each.model, self._basis)
            scale = _largest(at) ** 2 * float(self._basis[one] @ self._basis[other])
            spread = at[one] * at[other] - rates[0] * at[other] - at[one] * rates[1]
            found.append((scale * each.score.noise, scale * each.score.whole + each.score.share * spread))
        return found

    def half_widths(self, quantile: float) -> Array:
        """Return half-widths of the intervals, (K p,); infinite where a value was not learned."""
        if not self.lines:
            return np.full(len(self.values), math.inf)
        return np.concatenate([2.0 * line.half_widths(quantile) for line in self.lines])

    # The next epoch

    def next_model(self, reach: float, noise: tuple[float, float]) -> Model:
        """Return the next epoch's model: at the classes' shares, in coordinates where people spread evenly.

        ``noise`` holds the variances of the noise in one number of a score and of a matrix, in units of their bounds.
        """
        base, origin = even_coordinates(self.moments, reach), np.zeros((self._basis.shape[1], self.features))
        if not self.moments.settled or not self.lines:
            return Model(origin.ravel(), base, reach, 1.0, *FIRST_SHARES).rounded()
        rates = self.rates
        origin[:, -1] = self._basis.T @ np.log(rates)
        model = Model(origin.ravel(), base, reach, 1.0, 0.0, 0.0)
        largest = _largest(rates) * math.sqrt(self._basis.shape[1])
        share = matrix_share(sum(line.signal for line in self.lines), largest, model.matrix_reach, noise)
        shares = (1.0 - _CURVATURES) * share, _CURVATURES * share
        return Model(origin.ravel(), base, reach, 1.0, *shares).rounded()


def centre(model: Model, basis: Array) -> Array:
    """Return the class probabilities that scores are centred at, (K,), for an origin of constants alone."""
    constants = model.origin.reshape(basis.shape[1], -1)[:, -1]
    return np.asarray(class_probabilities(model.exponent * constants[None, :], basis)[0])


def _largest(at: Array) -> float:
    """Return the largest ``|e_k - q|`` over classes k, for class probabilities q."""
    return math.sqrt(1.0 - 2.0 * float(at.min()) + float(at @ at))


def indicator(each: Summary, label: int, basis: Array) -> Summary:
    """Return an epoch's mean answers about a class as those of a binary target with an origin of the constant alone."""
    at = centre(each.model, basis)
    q = min(max(float(at[label]), 1e-9), 1.0 - 1e-9)
    origin = np.append(np.zeros(len(each.model.transform) - 1), math.log(q / (1.0 - q)))
    model = replace(each.model, origin=origin, exponent=1.0)
    score, curvature = each.score, each.curvature
    if score is not None:
        factor, even = _largest(at) / max(q, 1.0 - q), float(basis[label] @ basis[label])
        mean = factor * basis[label] @ score.mean.reshape(basis.shape[1], -1)
        score = Answer(mean, factor**2 * even * score.noise, score.share, factor**2 * even * score.whole)
    if curvature is not None:
        # For classes a curvature is a scatter that is zero if the target is missing.
        curvature = curvature.times(2.0 * float(_LOGISTIC.weights(origin[-1:], 1.0)[0]))
    return Summary(model, score, each.scatter, curvature)
