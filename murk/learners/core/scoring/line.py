r"""The linear probability model from scores that were centred at one probability for everybody.

Where a model's origin is the constant alone, every person's score is centred at the same probability q and weighs them
by ``c(z)`` alone: with ``m = max(q, 1 - q)`` it is ``(y - q) c z / m``. Then, whatever the features' distribution,

.. math:: m\, E\, u = \pi\, E\, c z x'\, (b - q e), \qquad b = (E\, c z x')^{-1} E\, c z y,

with b the least-squares line through the labels, weighted by c, e the constant and pi the share of people whose label
is there. Released scatters tell ``A = E c z z'`` whatever the outcome is; so the slopes b, average effects on the
probability, are learned as exactly for rare outcomes as for others, while the curvature of the log odds is in
proportion to the outcome's rate. As q is near the rate, errors of A count for the effects alone.

The interval of a slope holds the values at which ``(b_j - v)^2 <= z^2 V_j(v)``, V_j(v) the variance if v were the
truth, as in `solve`.

Source: Horrace and Oaxaca, "Results on the bias and inconsistency of ordinary least squares for the linear probability
model", Economics Letters 90(3), 2006, for the model; Fieller, "Some problems in interval estimation", 1954.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from murk.learners.core.scoring.curvature import CAREFUL, UNEVEN, drawn
from murk.learners.core.scoring.model import Model, Response, directions, probability
from murk.learners.core.scoring.moments import Moments, pooled
from murk.learners.core.scoring.rows import Rows, inverse, mean_matrix
from murk.learners.core.scoring.solve import Solution, far_from, first_rejected, lengthened
from murk.learners.core.scoring.sums import Answer, Summary

Array = NDArray[np.float64]
_Told = tuple[Summary, Array, Array]
_Asked = tuple[Model, Answer | None, Callable[[], Array], Array]

# Of what normal rows say of the way from one epoch's coordinates to another's, so much may be wrong.
_DOUBTED = 0.5
# The least share of labels that are there, and the least eigenvalue of A in terms of the mean one.
_LEAST, _FLAT = 0.02, 0.02
# By how much curvatures and scatters of the same people may differ where all labels are there.
_SAME = 0.01
# Half widths that are no smaller than what a probability can change by say nothing: not learned.
_WIDEST = 1.0
_FITS = 3
# Standard deviations of the noise by which the curvature has to stand out for models to be at the fitted coefficients,
# where outcomes are balanced: the rarer they are, the better is the line beside log odds.
_CLEAR, _RARER = 2.2, 2.0
# Bounds of the probability that scores are centred at, and of the share of people who are asked for a matrix.
RAREST, _FEWEST, _MOST = 0.01, 0.1, 0.4


@dataclass(frozen=True)
class _Equation:
    """One epoch's mean score times m, in the newest coordinates: ``mean = pi into A (b - q e)`` there.

    Parameters
    ----------
    mean
        (p,).
    middle
        q.
    into
        What turns ``A h`` of the newest coordinates into this epoch's, (p, p).
    shift
        What normal rows add to A of the way between the coordinates, (p, p), in this epoch's on the left.
    noise
        Covariance of the mean, (p, p).
    square
        Mean of ``c^2 z z'``, (p, p).
    """

    mean: Array
    middle: float
    into: Array
    shift: Array
    noise: Array
    square: Array


class ProbabilityLine:
    """The least-squares line through labels, by the epochs that tell it.

    Parameters
    ----------
    found
        The epochs' mean answers, oldest first.
    moments
        The people's second moments by released matrices.

    Attributes
    ----------
    model
        In whose coordinates people count by ``c(z)``, (at origin zero).
    values
        b, in coded units, (p,).
    rate
        Share of positive labels.
    """

    def __init__(self, found: Sequence[Summary], moments: Moments) -> None:
        newest = next(each for each in reversed(found) if _told(each)).model
        self.model = _plain(newest)
        self._transform = newest.transform
        self._back = newest.back
        rows = Rows.normal(moments.moment)
        self._predicted = 2.0 * mean_matrix(_plain(newest), rows, _LINE)
        told = [(each, *self._way(each.model, rows)) for each in found]
        scatters = self._answers(told, "scatter")
        self._share, self._share_variance = self._share_there(self._answers(told, "curvature"), scatters)
        self._matrix, self._error = self._second_moments(scatters + self._answers(told, "curvature", 1.0 / self._share))
        self._constant = self._back.T[:, -1]
        self._rows, self._means = rows, moments.moment[-1]
        self._fit(found)

    def _fit(self, found: Sequence[Summary]) -> None:
        """Solve the equations of epochs' scores."""
        self.rate = _middle(next(each for each in reversed(found) if _told(each)).model)
        self._equations = [self._equation(each, self._rows) for each in found if _told(each)]
        self._solve()
        self.rate = float(np.clip(self._means @ self.values, 0.0, 1.0))

    @classmethod
    def of(cls, found: Sequence[Summary], response: Response, moments: Moments | None = None) -> ProbabilityLine | None:
        """That of epochs, and of their moments where these are known already; None where they do not tell it."""
        if not response.binary or not tells_line(found):
            return None
        return cls(found, moments or Moments.of(found, response))

    def with_scores(self, found: Sequence[Summary]) -> ProbabilityLine:
        """Return the line of another label of the same people, who answered about it at the same models."""
        other = copy(self)
        # Computed of this line, if it was asked for.
        other.__dict__.pop("covariance", None)
        other.__dict__.pop("misfits", None)
        other._fit(found)
        return other

    # What is known of the features

    def _way(self, model: Model, rows: Rows) -> tuple[Array, Array]:
        """What normal rows predict of ``E c z z'`` at a model, and what they add to that of the newest coordinates."""
        plain = _plain(model)
        own = 2.0 * mean_matrix(plain, rows, _LINE)
        out = plain.transform @ self._back
        return own, own - out @ self._predicted @ out.T

    def _answers(self, told: Sequence[_Told], question: str, factor: float = 1.0) -> list[_Asked]:
        """Matrices of one question, as estimates of ``E c z z'`` at each model, what is predicted, and its doubts."""
        asked: list[_Asked] = []
        for each, own, moved in told:
            answer: Answer | None = getattr(each, question)
            scale = 2.0
            if question == "curvature":
                if np.any(each.model.origin[:-1]):
                    continue
                scale = 1.0 / float(_LOGISTIC.weights(each.model.origin[-1:], each.model.exponent)[0])
            if answer is None:
                continue
            answer = answer.times(scale * factor)
            asked.append((_plain(each.model), answer, partial(np.asarray, own), _DOUBTED * moved))
        return asked

    def _pool(self, asked: Sequence[_Asked]) -> tuple[Array, Array]:
        """Their mean in the newest coordinates, corrected for the ways there, and its numbers' variances."""
        together = pooled([each[:3] for each in asked], self._transform, [each[3] for each in asked])
        assert together is not None
        return together.measured - together.expected + self._predicted, together.variances

    def _share_there(self, curvatures: Sequence[_Asked], asked: Sequence[_Asked]) -> tuple[float, float]:
        """Mean and variance of the share of labels that are there: curvatures are 0 where one is missing."""
        if not curvatures:
            return drawn(1.0, 1.0, _SAME)
        own, errors = self._pool(curvatures)
        scatters, others = self._pool(asked)
        # By the trace, where there is most of both.
        trace = max(float(np.trace(scatters)), _FLAT * float(np.trace(self._predicted)))
        ratio = float(np.trace(own)) / trace
        variance = (float(np.trace(errors)) + ratio**2 * float(np.trace(others))) / trace**2
        mean, spread = drawn(ratio, variance, _SAME)
        return max(mean, _LEAST), spread

    def _second_moments(self, asked: Sequence[_Asked]) -> tuple[Array, float]:
        """A in the newest coordinates, (p, p), and the variance of a number's error.

        It is drawn towards what even features would give, from which the people's differ by `UNEVEN` or by as much as
        released matrices say, and as far as noise rules.
        """
        measured, variances = self._pool(asked)
        p, size = len(measured), len(measured) * (len(measured) + 1) / 2
        ratio = max(float(np.sum(measured * self._predicted) / np.sum(self._predicted**2)), _FLAT)
        rest = measured - ratio * self._predicted
        noise = float(np.mean(variances))
        excess = noise * max(0.0, float(np.sum(rest**2 / variances)) / size - 1.0)
        spread = max(excess, (UNEVEN * float(np.trace(self._predicted)) / p) ** 2)
        kept = spread / (spread + noise)
        careful = max(spread, excess + CAREFUL * noise * math.sqrt(2.0 / size))
        matrix = ratio * self._predicted + kept * rest
        values, vectors = np.linalg.eigh((matrix + matrix.T) / 2.0)
        least = _FLAT * max(float(np.trace(matrix)), 1e-12) / p
        matrix = (vectors * np.maximum(values, least)) @ vectors.T
        return matrix, kept**2 * noise + (1.0 - kept) ** 2 * careful + noise / size

    # The equations

    def _equation(self, each: Summary, rows: Rows) -> _Equation:
        assert each.score is not None
        q, score = _middle(each.model), each.score
        largest, plain = max(q, 1.0 - q), _plain(each.model)
        into = plain.transform @ self._back
        D = directions(rows.points, plain)
        own = (D * rows.shares[:, None]).T @ (rows.points @ plain.transform.T)
        square = (D * rows.shares[:, None]).T @ D
        spread = self.rate * (1.0 - q) ** 2 + (1.0 - self.rate) * q**2
        p = len(into)
        noise = largest**2 * (score.noise * np.eye(p) + score.whole * square) + score.share * spread * square
        # A h of these coordinates is `(into A into' + shift) into^-T h`.
        shift = (own - into @ self._predicted @ into.T) @ inverse(into).T
        return _Equation(largest * score.mean, q, into, shift, noise, square)

    def _solve(self) -> None:
        p = len(self._matrix)
        self._whitened = self.rate * self._constant
        for _ in range(_FITS):
            information, right = np.zeros((p, p)), np.zeros(p)
            self._designs = []
            for one in self._equations:
                design = self._share * (one.into @ self._matrix + one.shift)
                own, shared = self._noise(one, design, self._whitened)
                weighed = np.linalg.solve(own + shared, design)
                information += design.T @ weighed
                right += weighed.T @ (one.mean + one.middle * design @ self._constant)
                self._designs.append((design, weighed))
            self._inverse = inverse(information + 1e-9 * np.trace(information) / p * np.eye(p))
            self._whitened = self._inverse @ right
        self.values = self._transform.T @ self._whitened

    def _noise(self, one: _Equation, design: Array, whitened: Array) -> tuple[Array, Array]:
        """Covariances of an equation's noise, (..., p, p), if these (..., p) were the truth.

        Its own, and that of errors all share.
        """
        h = whitened - one.middle * self._constant
        identity = np.eye(h.shape[-1])
        doubt = _DOUBTED * self._share * h @ one.shift.T
        own = one.noise + lengthened(doubt, 1.0, identity) / 2.0
        spread = one.into @ lengthened(h, 1.0, identity) @ one.into.T
        scaled = h @ design.T / self._share
        outer = scaled[..., :, None] * scaled[..., None, :]
        return own, self._share**2 * self._error / 2.0 * spread + self._share_variance * outer

    def _covariance(self, values: Array) -> Array:
        """Covariances of the line, (..., p, p), if each of these, (..., p), were the truth."""
        whitened = values @ self._back
        middle = np.zeros((*values.shape, values.shape[-1]))
        for one, (design, weighed) in zip(self._equations, self._designs, strict=True):
            middle += weighed.T @ self._noise(one, design, whitened)[0] @ weighed
        pull = self._pull(whitened)
        return self._joint(middle, pull, self, pull)

    def _pull(self, whitened: Array) -> tuple[Array, Array]:
        """What errors of A, (..., p, p, p), and of the share of labels, (..., p), do to the sum of the equations."""
        p = whitened.shape[-1]
        ratio, turned = np.zeros(whitened.shape), np.zeros((*whitened.shape, p, p))
        for one, (design, weighed) in zip(self._equations, self._designs, strict=True):
            h = whitened - one.middle * self._constant
            # What a symmetric error E of A does to this equation: pi into E h.
            turned += (self._share * weighed.T @ one.into)[:, :, None] * h[..., None, None, :]
            ratio += h @ (weighed.T @ design).T / self._share
        return turned, ratio

    def _joint(
        self, middle: Array, pull: tuple[Array, Array], line: ProbabilityLine, other: tuple[Array, Array]
    ) -> Array:
        """Covariance with a line of the same people, from that of the equations' own noise."""
        flat = pull[0].reshape(*middle.shape[:-1], -1)
        both = (other[0] + other[0].swapaxes(-1, -2)).reshape(flat.shape)
        middle = middle + self._error / 2.0 * (flat @ both.swapaxes(-1, -2))
        middle = middle + self._share_variance * pull[1][..., :, None] * other[1][..., None, :]
        found = self._inverse @ middle @ line._inverse
        return np.asarray(self._transform.T @ found @ self._transform)

    def covariance_with(self, line: ProbabilityLine, noises: Sequence[tuple[float, float]]) -> Array:
        """Return the covariance with the line of another label of the same people, (p, p).

        Parameters
        ----------
        line
            The other line, from `with_scores`.
        noises
            Of each epoch: the covariance of the same number of both mean scores times m, and what the mean of
            ``c^2 z z'`` adds, as a factor of it.
        """
        p = len(self._matrix)
        middle = np.zeros((p, p))
        for one, (_, mine), (_, others), (even, square) in zip(
            self._equations, self._designs, line._designs, noises, strict=True
        ):
            middle += mine.T @ (even * np.eye(p) + square * one.square) @ others
        return self._joint(middle, self._pull(self._whitened), line, line._pull(line._whitened))

    @cached_property
    def misfits(self) -> Array:
        """Squared residual of each epoch's mean score at the line, in units of its variance, (k,)."""
        found = []
        for one, (design, _) in zip(self._equations, self._designs, strict=True):
            own, shared = self._noise(one, design, self._whitened)
            left = one.mean - design @ (self._whitened - one.middle * self._constant)
            found.append(float(left @ inverse(own + shared) @ left))
        return np.array(found)

    @property
    def share(self) -> tuple[float, float]:
        """Share of the people whose label is there, and its standard error."""
        return self._share, math.sqrt(self._share_variance)

    @property
    def signal(self) -> float:
        """Square of the slopes' length in even coordinates, as far as it is no noise."""
        h = self._whitened - self.rate * self._constant
        return max(float(h @ h) - self.noise, 0.0)

    @property
    def noise(self) -> float:
        """What noise adds to that square."""
        return float(np.trace(self._back.T @ self.covariance @ self._back))

    @cached_property
    def covariance(self) -> Array:
        """Covariance of the line, (p, p)."""
        return self._covariance(self.values)

    def half_widths(self, quantile: float) -> Array:
        """Half widths of the slopes' intervals, (p,); infinite where one was not learned."""
        test = far_from(self.values, self._covariance, quantile)
        found = first_rejected(self.values, self.covariance, quantile, test)
        return np.where(found < _WIDEST, found, math.inf)


def next_model(
    solution: Solution, found: Sequence[Summary], fitted: Model, people: int, noise: tuple[float, float]
) -> Model:
    """The next model: the fitted one, or one that tells the line where noise would hide the curvature of the other.

    Parameters
    ----------
    solution, found
        The solution so far, and the mean answers that it is of.
    fitted
        The model at the solution.
    people
        Who will answer it.
    noise
        Variances of a number of a score and of a matrix, in units of their bounds.
    """
    if not np.any(fitted.origin[:-1]):
        return fitted
    p, asked = len(fitted.origin), max(fitted.curvature * people, 1.0)
    level = float(np.trace(mean_matrix(fitted, solution.rows, _LOGISTIC))) / p
    rate = float(solution.rows.shares @ probability(solution.rows.points @ solution.values))
    line = ProbabilityLine.of(found, _LOGISTIC, solution.moments)
    rate, signal = (rate, 0.0) if line is None else (line.rate, line.signal)
    clear = _CLEAR / (2.0 * max(min(rate, 1.0 - rate), RAREST)) ** _RARER
    if level > clear * fitted.matrix_reach / 2.0 * math.sqrt(noise[1] / asked):
        return fitted
    rate = min(max(rate, RAREST), 1.0 - RAREST)
    largest = max(rate, 1.0 - rate)
    share = matrix_share(signal, largest, fitted.matrix_reach, noise)
    origin = np.append(np.zeros(p - 1), math.log(rate / (1.0 - rate)))
    base = solution.even_coordinates(fitted.reach)
    return Model(origin, base, fitted.reach, fitted.exponent, 0.75 * share, 0.25 * share).rounded()


def matrix_share(signal: float, largest: float, reach: float, noise: tuple[float, float]) -> float:
    """Return the share of the people who are asked for a matrix where all scores are centred at one probability.

    The errors of matrices count for the effects, those of scores for themselves: as many are asked as makes the sum of
    both variances the least.

    Parameters
    ----------
    signal
        Square of the slopes' length in even coordinates.
    largest
        Root of the variance of all slopes that one of a score's number makes.
    reach
        M, the reach of matrices.
    noise
        Variances of a number of a score and of a matrix, in units of their bounds.
    """
    part = math.sqrt(noise[1] * signal / 2.0 / noise[0]) * reach / largest
    return min(max(part / (1.0 + part), _FEWEST), _MOST)


def tells_line(found: Sequence[Summary]) -> bool:
    """Whether epochs have scores that were centred at one probability, and scatters."""
    return any(map(_told, found)) and any(each.scatter for each in found)


_LINE, _LOGISTIC = Response(False), Response(True)


def _told(each: Summary) -> bool:
    """Whether an epoch's scores were centred at one probability for everybody."""
    return each.score is not None and not np.any(each.model.origin[:-1])


def _middle(model: Model) -> float:
    return float(probability(model.origin[-1:])[0])


def _plain(model: Model) -> Model:
    """The model at origin zero: coordinates and reach alone."""
    return replace(model, origin=np.zeros_like(model.origin))
