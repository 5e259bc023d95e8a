r"""The linear probability model of each of several classes, where no rows are public.

Log odds of K classes need a curvature of (K - 1) p by (K - 1) p numbers, which nobody releases. The least-squares line
through a class's indicator needs none: at an origin of constants alone the classes' probabilities q are the same for
everybody, and a person's score at it, ``B'(e_y - q) (x) c z / m`` with ``m = max_k |e_k - q|``, holds the score of each
class's indicator, since ``B B'(e_y - q) = e_y - q``:

.. math:: m\, (B\, E\, u)_k = E\, (y_k - q_k)\, c z = \pi\, E\, c z x'\, (b_k - q_k e).

So all epochs are asked there, each class is a binary target of `line`, with noise of variance ``1 - 1/K`` times as
large, and released scatters tell ``E c z z'`` for all of them. The lines of all classes have the same weights c, so
that without noise the slopes of each feature add up to zero.

What is reported is ``2 b_k``, with 1 less of the constant: the line through labels of -1 and +1, as `moments` has it.
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
"""Shares of the people who are asked for a scatter and for a curvature until their moments are known."""

_LOGISTIC = Response(True)
# Of matrices so many are curvatures, which tell the share of targets that are there.
_CURVATURES = 0.25
# Standard errors by which targets are missing before anything is said of it, and what they are all there within.
_SURELY, _SAME = 2.0, 0.01


class ClassLines:
    """The least-squares lines through the indicators of all classes; values and covariance are of K p coefficients.

    Parameters
    ----------
    found
        The epochs' mean answers, oldest first, at origins of constants alone.
    classes
        K.

    Attributes
    ----------
    indicators
        Of each class, the epochs' answers as those of a binary target.
    lines
        Each class's line; none before released answers tell any.
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
        """Share of the people whose target is surely missing."""
        if not self.lines:
            return 0.0
        share, error = self.lines[0].share
        return max(1.0 - share - _SURELY * error - _SAME, 0.0)

    def of_fewer(self, found: Sequence[Summary]) -> ClassLines:
        """The solution of fewer answers, in the way in which all were solved."""
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
        """Contrasts of log odds that predictions are by, ((K - 1) p,).

        They are one step of Newton's method from the constants: slopes over the class's share, each class's drawn to
        zero as far as noise rules. So they are of moderate effects; nothing is said of their error.
        """
        rates, theta = self.rates, np.zeros((len(self._basis), self.features))
        for label, line in enumerate(self.lines):
            signal, noise = line.signal, line.noise
            theta[label] = signal / max(signal + noise, 1e-300) * line.values / rates[label]
        # The constant is what leaves each class its share at the mean of the features.
        means = self.moments.moment[-1, :-1]
        theta[:, -1] = np.log(rates) - theta[:, :-1] @ means
        return np.asarray((self._basis.T @ theta).ravel())

    # What is known of the lines

    @cached_property
    def covariance(self) -> Array:
        """Covariance of the values, (K p, K p); before there are any lines a wide prior's."""
        classes, p = len(self._basis), self.features
        if not self.lines:
            return np.eye(classes * p) * PRIOR_VARIANCE
        found = np.zeros((classes, p, classes, p))
        for k, line in enumerate(self.lines):
            found[k, :, k, :] = line.covariance
            for j in range(k):
                found[j, :, k, :] = self.lines[j].covariance_with(line, self._noises(j, k))
                found[k, :, j, :] = found[j, :, k, :].T
        return np.asarray(4.0 * found.reshape(classes * p, classes * p))

    def _noises(self, one: int, other: int) -> list[tuple[float, float]]:
        """Of each epoch what two classes' mean scores have in common, as `ProbabilityLine.covariance_with` has it."""
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
        """Half widths of the intervals, (K p,); infinite where one was not learned."""
        if not self.lines:
            return np.full(len(self.values), math.inf)
        return np.concatenate([2.0 * line.half_widths(quantile) for line in self.lines])

    # What comes next

    def next_model(self, reach: float, noise: tuple[float, float]) -> Model:
        """The model of the next epoch: at the classes' shares, in coordinates that people are spread evenly in.

        Parameters
        ----------
        reach
            R.
        noise
            Variances of a number of a score and of a matrix, in units of their bounds.
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
    """The classes' probabilities that scores are centred at where a model's origin is of constants alone, (K,)."""
    constants = model.origin.reshape(basis.shape[1], -1)[:, -1]
    return np.asarray(class_probabilities(model.exponent * constants[None, :], basis)[0])


def _largest(at: Array) -> float:
    """m, the largest ``|e_k - q|``."""
    return math.sqrt(1.0 - 2.0 * float(at.min()) + float(at @ at))


def indicator(each: Summary, label: int, basis: Array) -> Summary:
    """An epoch's mean answers about a class as those of a binary target, whose origin is of the constant alone."""
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
        # Asked of classes it is half of the scatter of those whose target is there.
        curvature = curvature.times(2.0 * float(_LOGISTIC.weights(origin[-1:], 1.0)[0]))
    return Summary(model, score, each.scatter, curvature)
