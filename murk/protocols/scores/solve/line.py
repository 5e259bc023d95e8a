r"""The linear probability model from scores centred at one probability for everybody.

Where a model's origin is the constant alone, every score is centred at the same probability q: with ``m = max(q, 1 -
q)`` it is ``(y - q) c z / m``. Then, for any distribution of the features,

.. math:: m\, E\, u = \pi\, E\, c z x'\, (b - q e), \qquad b = (E\, c z x')^{-1} E\, c z y,

where b is the least-squares line through the labels, weighted by c, e is the constant, and pi is the share of people
with a label. Released scatters estimate ``A = E c z z'`` for any outcome. So the slopes b are as precise for rare
outcomes as for others, while the curvature of log odds shrinks with the outcome's rate. The interval of a slope holds
the values v with ``(b_j - v)^2 <= z^2 V_j(v)``, as in `curve`.

Source: Horrace and Oaxaca, "Results on the bias and inconsistency of ordinary least squares for the linear probability
model", Economics Letters 90(3), 2006; Fieller, "Some problems in interval estimation", 1954.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from murk._internal.arrays import Floats
from murk.protocols.rows import Rows
from murk.protocols.scores.model import Model, Response, directions, inverse, mean_matrix, probability
from murk.protocols.scores.solve.curve import Solution, even_coordinates, far_from, first_rejected, lengthened
from murk.protocols.scores.solve.moments import (
    Moments,
    carried_errors,
    drawn,
    may_be_none,
    pooled,
    remaining_error,
    shrunk_towards,
)
from murk.protocols.scores.sums import Answer, Summaries, Summary

_Centred = tuple[Summary, Floats, Floats]
_MatrixAnswer = tuple[Model, Answer | None, Callable[[], Floats], Floats]

_Effects = tuple[Floats, Floats]  # effects of errors of A, (..., p, p, p), and of the share of labels, (..., p)

_DOUBTED = 0.5  # relative error of the change of A between two rounds' coordinates, as predicted over normal rows
_LEAST, _FLAT = 0.02, 0.02  # least share of labels present, and least eigenvalue of A relative to the mean one
_SAME = 0.01  # difference allowed between curvatures and scatters of the same people where all labels are present
_WIDEST = 1.0  # a half-width of 1 or more says nothing about a probability: not learned
_LABELS = 0.25  # largest variance of a label
_FITS = 3
# Standard deviations by which the curvature must exceed its noise for models at the fitted coefficients, and the power
# of the rate: the rarer an outcome, the better the line compared with log odds.
_CLEAR, _SURVEYED_CLEAR, _RARER = 2.2, 0.6, 2.0
# Bounds of the probability that scores are centred at, and of the share of people asked for a matrix.
RAREST, _FEWEST, _MOST = 0.01, 0.1, 0.4


@dataclass(frozen=True)
class _Equation:
    """One round's mean score times m, in the newest coordinates: ``mean = pi change A (b - q e)``."""

    mean: Floats  # (p,)
    middle: float  # q
    change: Floats  # maps ``A h`` of the newest coordinates to this round's, (p, p)
    shift: Floats  # difference of A between the coordinates over normal rows, (p, p), in this round's on the left
    noise: Floats  # covariance of the mean, (p, p)
    square: Floats  # mean of ``c^2 z z'``, (p, p)


class ProbabilityLine:
    """The least-squares line through labels, from rounds' mean answers (the oldest first) and the features' moments.

    ``values`` are b, in coded units, (p,); ``rate`` is the share of positive labels, and ``model`` a model at origin
    zero whose ``c(z)`` weights people.
    """

    def __init__(self, found: Summaries, moments: Moments) -> None:
        newest = next(each for each in reversed(found) if _is_centred(each)).model
        self.model = _at_zero(newest)
        self._transform = newest.transform
        self._back, self._moments = newest.back, moments
        rows = moments.frame.rows(moments.moment)
        self._predicted = 2.0 * mean_matrix(_at_zero(newest), rows, _LINE)
        centred = [(each, *self._predicted_moments(each.model, rows)) for each in found]
        scatters = self._answers(centred, "scatter")
        self._share, self._share_variance = self._share_there(self._answers(centred, "curvature"), scatters)
        curvatures = self._answers(centred, "curvature", 1.0 / self._share)
        self._matrix, self._error = self._second_moments(scatters + curvatures, moments)
        self._constant = self._back.T[:, -1]
        # A slope that noise hides is no larger than the standard deviation of labels.
        self._hidden = self._transform @ moments.hidden @ self._transform.T / _LABELS
        self._rows, self._means = rows, moments.moment[-1]
        self._fit(found)

    def _fit(self, found: Summaries) -> None:
        self.rate = _centre(next(each for each in reversed(found) if _is_centred(each)).model)
        self._equations = [self._equation(each, self._rows) for each in found if _is_centred(each)]
        self._solve()
        self.rate = float(np.clip(self._means @ self.values, 0.0, 1.0))

    @classmethod
    def of(cls, found: Summaries, response: Response, moments: Moments | None = None) -> ProbabilityLine | None:
        """Return the line of rounds, or None where they do not determine it."""
        if not response.binary or not tells_line(found):
            return None
        return cls(found, moments or Moments.of(found, response))

    def with_scores(self, found: Summaries) -> ProbabilityLine:
        """Return the line of another label of the same people, from scores at the same models."""
        other = copy(self)
        for cached in ("covariance", "misfits"):
            other.__dict__.pop(cached, None)
        other._fit(found)  # noqa: SLF001
        return other

    # Moments of the features

    def _predicted_moments(self, model: Model, rows: Rows) -> tuple[Floats, Floats]:
        """Return ``E c z z'`` over normal rows at a model, and its difference from that of the newest coordinates."""
        plain = _at_zero(model)
        own = 2.0 * mean_matrix(plain, rows, _LINE)
        out = plain.transform @ self._back
        return own, own - out @ self._predicted @ out.T

    def _answers(self, centred: Sequence[_Centred], query: str, factor: float = 1.0) -> list[_MatrixAnswer]:
        """Return matrices of one query as estimates of ``E c z z'``, with predictions and possible errors."""
        matrices: list[_MatrixAnswer] = []
        for each, expected, change in centred:
            answer: Answer | None = getattr(each, query)
            model = each.model
            if answer is None or (query == "curvature" and np.any(model.origin[:-1])):
                continue
            weight = 0.5 if query == "scatter" else _LOGISTIC.weights(model.origin[-1:], model.exponent)[0]
            answer = answer.times(1.0 / float(weight) * factor)
            matrices.append((_at_zero(model), answer, partial(np.asarray, expected), _DOUBTED * change))
        return matrices

    def _pool(self, asked: Sequence[_MatrixAnswer]) -> tuple[Floats, Floats]:
        together = pooled([each[:3] for each in asked], self._transform, [each[3] for each in asked])
        assert together is not None
        return together.measured - together.expected + self._predicted, together.variances

    def _share_there(self, curvatures: Sequence[_MatrixAnswer], asked: Sequence[_MatrixAnswer]) -> tuple[float, float]:
        """Return mean and variance of the share of labels present, from curvatures, which are 0 without a label."""
        if not curvatures:
            return drawn(1.0, 1.0, _SAME)
        own, errors = self._pool(curvatures)
        scatters, others = self._pool(asked)
        # From the traces, where both matrices are largest.
        trace = max(float(np.trace(scatters)), _FLAT * float(np.trace(self._predicted)))
        ratio = float(np.trace(own)) / trace
        variance = (float(np.trace(errors)) + ratio**2 * float(np.trace(others))) / trace**2
        mean, spread = drawn(ratio, variance, _SAME)
        return max(mean, _LEAST), spread

    def _second_moments(self, asked: Sequence[_MatrixAnswer], moments: Moments) -> tuple[Floats, Floats]:
        """Return A in the newest coordinates, (p, p), and the variances of its numbers' errors, (p, p).

        A is shrunk towards that of normal features with these moments, which contain a share of the same noise.
        """
        measured, variances = self._pool(asked)
        p, size = len(measured), len(measured) * (len(measured) + 1) / 2
        ratio = max(float(np.sum(measured * self._predicted) / np.sum(self._predicted**2)), _FLAT)
        rest = measured - ratio * self._predicted
        mean = ratio * float(np.trace(self._predicted)) / p
        shrunk = shrunk_towards(rest, variances, mean, moments.doubts(self._transform, ratio * self._predicted))
        matrix = ratio * self._predicted + shrunk.kept * rest
        values, vectors = np.linalg.eigh((matrix + matrix.T) / 2.0)
        least = _FLAT * max(float(np.trace(matrix)), 1e-12) / p
        matrix = (vectors * np.maximum(values, least)) @ vectors.T
        noise = float(np.mean(variances))
        return matrix, remaining_error(shrunk.kept, moments.kept, variances, shrunk.careful, mean) + noise / size

    # The equations

    def _equation(self, each: Summary, rows: Rows) -> _Equation:
        assert each.score is not None
        q, score = _centre(each.model), each.score
        largest, plain = max(q, 1.0 - q), _at_zero(each.model)
        change = plain.transform @ self._back
        D = directions(rows.points, plain)
        own = (D * rows.shares[:, None]).T @ (rows.points @ plain.transform.T)
        square = (D * rows.shares[:, None]).T @ D
        spread = self.rate * (1.0 - q) ** 2 + (1.0 - self.rate) * q**2
        p = len(change)
        noise = largest**2 * (score.noise * np.eye(p) + score.whole * square) + score.share * spread * square
        # A h of these coordinates is `(change A change' + shift) change^-T h`.
        shift = (own - change @ self._predicted @ change.T) @ inverse(change).T
        return _Equation(largest * score.mean, q, change, shift, noise, square)

    def _solve(self) -> None:
        p = len(self._matrix)
        self._whitened = self.rate * self._constant
        for _ in range(_FITS):
            information, right = self._hidden.copy(), np.zeros(p)
            self._designs = []
            for equation in self._equations:
                design = self._share * (equation.change @ self._matrix + equation.shift)
                own, shared = self._noise(equation, design, self._whitened)
                weighed = np.linalg.solve(own + shared, design)
                information += design.T @ weighed
                right += weighed.T @ (equation.mean + equation.middle * design @ self._constant)
                self._designs.append((design, weighed))
            self._inverse = inverse(information + 1e-9 * np.trace(information) / p * np.eye(p))
            self._whitened = self._inverse @ right
        self.values = self._transform.T @ self._whitened

    def _noise(self, one: _Equation, design: Floats, whitened: Floats) -> tuple[Floats, Floats]:
        """Return an equation's own and shared covariances, (..., p, p), if ``whitened`` (..., p) were the truth."""
        h = whitened - one.middle * self._constant
        identity = np.eye(h.shape[-1])
        doubt = _DOUBTED * self._share * h @ one.shift.T
        own = one.noise + lengthened(doubt, 1.0, identity) / 2.0
        scaled = h @ design.T / self._share
        outer = scaled[..., :, None] * scaled[..., None, :]
        spread = carried_errors(self._error, h, one.change)
        return own, self._share**2 * spread + self._share_variance * outer

    def _covariance(self, values: Floats) -> Floats:
        """Return covariances of the line, (..., p, p), if each of ``values``, (..., p), were the truth."""
        whitened = values @ self._back
        middle = np.zeros((*values.shape, values.shape[-1])) + self._hidden
        for equation, (design, weighed) in zip(self._equations, self._designs, strict=True):
            middle += weighed.T @ self._noise(equation, design, whitened)[0] @ weighed
        pull = self._error_effects(whitened)
        return self._joint(middle, pull, self, pull)

    def _error_effects(self, whitened: Floats) -> _Effects:
        p = whitened.shape[-1]
        ratio, turned = np.zeros(whitened.shape), np.zeros((*whitened.shape, p, p))
        for equation, (design, weighed) in zip(self._equations, self._designs, strict=True):
            h = whitened - equation.middle * self._constant
            # A symmetric error E of A changes this equation by pi change E h.
            turned += (self._share * weighed.T @ equation.change)[:, :, None] * h[..., None, None, :]
            ratio += h @ (weighed.T @ design).T / self._share
        return turned, ratio

    def _joint(self, middle: Floats, pull: _Effects, line: ProbabilityLine, other: _Effects) -> Floats:
        """Return the covariance with another line of the same people; ``middle`` is the equations' covariance."""
        flat = pull[0].reshape(*middle.shape[:-1], -1)
        both = (other[0] + other[0].swapaxes(-1, -2)).reshape(flat.shape)
        middle = middle + (flat * self._error.ravel() / 2.0) @ both.swapaxes(-1, -2)
        middle = middle + self._share_variance * pull[1][..., :, None] * other[1][..., None, :]
        covariance = self._inverse @ middle @ line._inverse
        return np.asarray(self._transform.T @ covariance @ self._transform)

    def covariance_with(self, line: ProbabilityLine, noises: Sequence[tuple[float, float]]) -> Floats:
        """Return the covariance with another line from `with_scores`, (p, p).

        For each round, ``noises`` has the covariance of both mean scores times m, as two factors: that of the identity,
        and that of the mean of ``c^2 z z'``.
        """
        p = len(self._matrix)
        middle = np.zeros((p, p))
        for equation, (_, mine), (_, others), (even, square) in zip(
            self._equations, self._designs, line._designs, noises, strict=True
        ):
            middle += mine.T @ (even * np.eye(p) + square * equation.square) @ others
        return self._joint(middle, self._error_effects(self._whitened), line, line._error_effects(line._whitened))

    @cached_property
    def misfits(self) -> Floats:
        """Squared residual of each round's mean score, in units of its variance, (k,)."""
        squares = []
        for equation, (design, _) in zip(self._equations, self._designs, strict=True):
            own, shared = self._noise(equation, design, self._whitened)
            residual = equation.mean - design @ (self._whitened - equation.middle * self._constant)
            squares.append(float(residual @ inverse(own + shared) @ residual))
        return np.array(squares)

    @property
    def share(self) -> tuple[float, float]:
        """Share of the people with a label, and its standard error."""
        return self._share, math.sqrt(self._share_variance)

    @property
    def signal(self) -> float:
        """Square of the slopes' length in whitened coordinates, minus the noise."""
        h = self._whitened - self.rate * self._constant
        return max(float(h @ h) - self.noise, 0.0)

    @property
    def noise(self) -> float:
        """Expected square of the slopes' noise in whitened coordinates."""
        return float(np.trace(self._back.T @ self.covariance @ self._back))

    @cached_property
    def covariance(self) -> Floats:
        """Covariance of the line, (p, p)."""
        return self._covariance(self.values)

    def half_widths(self, quantile: float) -> Floats:
        """Return half-widths of the slopes' intervals, (p,); infinite where a slope was not learned."""
        if may_be_none(*self.share):
            return np.full(len(self.values), math.inf)
        test = far_from(self.values, self._covariance, quantile)
        scales = self._moments.frame.scales
        halves = first_rejected(self.values, self.covariance, quantile, test, scales)
        withheld = self._moments.withheld
        bounded = (halves < _WIDEST * scales) & ~np.append(withheld, withheld.any())
        return np.where(bounded, halves, math.inf)


def next_model(solution: Solution, found: Summaries, fitted: Model, people: int, noise: tuple[float, float]) -> Model:
    """Return the fitted model; if noise would hide its curvature, return a model that determines the line.

    ``people`` will answer at it. ``noise`` holds the noise variances of an entry of a score and of a matrix, in units
    of their bounds.
    """
    if not np.any(fitted.origin[:-1]):
        return fitted
    p, asked = len(fitted.origin), max(fitted.curvature * people, 1.0)
    level = float(np.trace(mean_matrix(fitted, solution.rows, _LOGISTIC))) / p
    rate = float(solution.rows.shares @ probability(solution.rows.points @ solution.values))
    line = ProbabilityLine.of(found, _LOGISTIC, solution.moments)
    rate, signal = (rate, 0.0) if line is None else (line.rate, line.signal)
    clear = (_SURVEYED_CLEAR if solution.moments.frame.surveyed else _CLEAR) / (
        2.0 * max(min(rate, 1.0 - rate), RAREST)
    ) ** _RARER
    if level > clear * fitted.matrix_clipping_norm / 2.0 * math.sqrt(noise[1] / asked):
        return fitted
    rate = min(max(rate, RAREST), 1.0 - RAREST)
    largest = max(rate, 1.0 - rate)
    share = matrix_share(signal, largest, fitted.matrix_clipping_norm, noise)
    origin = np.append(np.zeros(p - 1), math.log(rate / (1.0 - rate)))
    base = even_coordinates(solution.moments, fitted.clipping_norm)
    return Model(origin, base, fitted.clipping_norm, fitted.exponent, 0.75 * share, 0.25 * share).rounded()


def matrix_share(signal: float, largest: float, clipping_norm: float, noise: tuple[float, float]) -> float:
    """Return the best share of people to ask for a matrix, if all scores are centred at one probability.

    It minimizes the sum of the variances from scores and from matrices, whose errors are multiplied by the slopes.
    ``signal`` is the slopes' squared length in whitened coordinates, ``largest`` the root of their total variance at
    unit variance of a score's entries, ``clipping_norm`` is M, and ``noise`` is as in `next_model`.
    """
    part = math.sqrt(noise[1] * signal / 2.0 / noise[0]) * clipping_norm / largest
    return min(max(part / (1.0 + part), _FEWEST), _MOST)


def tells_line(found: Summaries) -> bool:
    """Return whether rounds determine the line: some scores are centred at one probability, and there are scatters."""
    return any(map(_is_centred, found)) and any(each.scatter for each in found)


_LINE, _LOGISTIC = Response(False), Response(True)


def _is_centred(each: Summary) -> bool:
    """Return whether a round's scores were centred at one probability for everybody."""
    return each.score is not None and not np.any(each.model.origin[:-1])


def _centre(model: Model) -> float:
    return float(probability(model.origin[-1:])[0])


def _at_zero(model: Model) -> Model:
    return replace(model, origin=np.zeros_like(model.origin))
