r"""Several classes: coefficients from rounds' answers over public rows, or lines through indicators without any.

For K classes there are K - 1 contrasts of coefficients, Theta (K - 1, p); B is their orthonormal basis, (K, K - 1), and
the class probabilities at x are ``q = softmax(B Theta x)``. A person's score at the origin A is

    r(y) (x) c(z) z,    r(y) = B'(e_y - q_g) / max_k |e_k - q_g|,    q_g = softmax(g B A x),

no longer than 1, since ``|B'(e_y - q)| = |e_y - q|``. With g = 1 its mean given x is zero at the truth for any
distribution of x. A round's mean score estimates ``pi G(Theta)``, ``G = mean sum_k q_k r(k) (x) c z`` over the rows,
where pi is the share of people with a target; all rounds' equations are solved together, weighted by their noise. Other
people are asked for ``1/2 c z z'``, zero if the target is missing: these matrices determine pi, and tell whether people
are like the rows. Intervals allow for differences that this check may miss, as if the rows were a sample of ``1 /
kappa`` people; kappa is the largest value up to 1/4 that the matrices do not contradict by a standard deviation.

Without public rows, log odds would need a curvature of (K - 1) p by (K - 1) p numbers, which nobody releases. The
least-squares line through a class's indicator does not: at an origin of constants alone everybody has the same class
probabilities q, and a score, ``B'(e_y - q) (x) c z / m`` with ``m = max_k |e_k - q|``, contains that of each class's
indicator, since ``B B'(e_y - q) = e_y - q``:

.. math:: m\, (B\, E\, u)_k = E\, (y_k - q_k)\, c z = \pi\, E\, c z x'\, (b_k - q_k e).

Each class is a binary target of `line`, with ``1 - 1/K`` times the noise variance, and released scatters estimate ``E c
z z'`` for all of them. All lines have the same weights c, so that without noise each feature's slopes add up to zero.
The reported values are ``2 b_k``, minus 1 for the constant: the line through labels of -1 and +1, as in `moments`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from murk._internal.arrays import Floats
from murk._internal.links import class_probabilities
from murk.inference.estimate import surely_missing
from murk.inference.misfit import UNLIKE, excess
from murk.protocols.linear_algebra import contrasts
from murk.protocols.rows import Rows
from murk.protocols.scores.model import FIRST_SHARES, Model, Response, directions, inverse, mean_matrix
from murk.protocols.scores.solve.curve import LOGIT_SQUARE, ORIGIN_VARIANCE, PRIOR_VARIANCE, descend, even_coordinates
from murk.protocols.scores.solve.line import RAREST, ProbabilityLine, matrix_share, tells_line
from murk.protocols.scores.solve.moments import Moments, pooled
from murk.protocols.scores.sums import Answer, Summaries, Summary
from murk.protocols.scores.survey.coordinates import Coordinates

_FITS, _STEPS = 3, 10
# Largest kappa, and the standard deviations below its expectation to which kappa may bring the misfit.
_MOST, _DOUBTED = 0.25, 1.0


@dataclass(frozen=True)
class ClassScores:
    """The scores of rows for each class, at a round's model."""

    rows: Rows  # the m covariates
    basis: Floats  # B, (K, K - 1)
    directions: Floats  # ``c(z) z`` of each row, (m, p)
    answers: Floats  # r of each row and class, (m, K, K - 1)

    @classmethod
    def of(cls, model: Model, rows: Rows, basis: Floats) -> ClassScores:
        """Return the scores at one round's model."""
        at = probabilities(rows.points, model.origin * model.exponent, basis)
        largest = np.sqrt(1.0 - 2.0 * at.min(axis=1) + np.sum(at**2, axis=1))
        answers = (basis[None, :, :] - (at @ basis)[:, None, :]) / largest[:, None, None]
        return cls(rows, basis, directions(rows.points, model), answers)

    def summands(self, at: Floats) -> Floats:
        """Return each row's term of the expected score G, (m, (K - 1) p), at class probabilities ``at`` (m, K)."""
        mean = np.einsum("ik,ika->ia", at, self.answers)
        return np.asarray((mean[:, :, None] * self.directions[:, None, :]).reshape(len(mean), -1))

    def score(self, at: Floats) -> Floats:
        """Return the expected score G, ((K - 1) p,), at class probabilities ``at``."""
        return np.asarray(self.rows.shares @ self.summands(at))

    def slope(self, at: Floats) -> Floats:
        """Return the derivative of the expected score by Theta, ((K - 1) p, (K - 1) p)."""
        weighted = at[:, :, None] * self.answers
        steep = np.einsum("ika,kb->iab", weighted, self.basis)
        steep -= weighted.sum(axis=1)[:, :, None] * (at @ self.basis)[:, None, :]
        return self._blocks(steep, self.rows.points)

    def spread(self, at: Floats, *, whole: bool = False) -> Floats:
        """Return the mean of ``s s'`` over scores ``s = r (x) c z``; with ``whole``, each r is scaled to length 1."""
        answers = self.answers
        if whole:
            answers = answers / np.linalg.norm(answers, axis=2, keepdims=True)
        return self._blocks(np.einsum("ik,ika,ikb->iab", at, answers, answers), self.directions)

    def _blocks(self, weights: Floats, others: Floats) -> Floats:
        """Return the mean over rows of the Kronecker product ``weights (x) c(z) z o'``, with o a row of ``others``."""
        c, p = weights.shape[1], self.directions.shape[1]
        out = np.empty((c, p, c, p))
        for a in range(c):
            for b in range(c):
                share = (self.rows.shares * weights[:, a, b])[:, None]
                out[a, :, b, :] = (share * self.directions).T @ others
        return out.reshape(c * p, c * p)


def probabilities(points: Floats, theta: Floats, basis: Floats) -> Floats:
    """Return class probabilities, (m, K), at rows (m, p) and contrasts theta ((K - 1) p,)."""
    return class_probabilities(points @ theta.reshape(basis.shape[1], -1).T, basis)


class ClassSolution:
    """The solution of all rounds' equations over public rows, with values for the K classes' own K p coefficients."""

    public = True

    def __init__(self, found: Summaries, classes: int, rows: Rows) -> None:
        self.newest, self.rows = found[-1].model, rows
        self.features = p = len(self.newest.transform)
        self._basis = contrasts(classes)
        self.ratio, self.ratio_variance, self.alike, self.doubt, self.targets = _compare_matrices(found, rows)
        asked = [(each.score, each.model) for each in found if each.score is not None]
        if not self.alike:
            # Only a centred score has mean zero at the truth for any distribution of the covariates.
            asked = [(answer, model) for answer, model in asked if model.exponent == 1.0]
        self._equations = [(answer, ClassScores.of(model, rows, self._basis)) for answer, model in asked]
        pull = rows.second_moment * p / LOGIT_SQUARE + np.eye(p) / ORIGIN_VARIANCE
        wide = np.asarray(np.kron(np.eye(classes - 1), pull), dtype=np.float64)
        self.origin = self._solve(np.array(self.newest.origin), wide)
        self._prior = np.eye(len(self.origin)) / PRIOR_VARIANCE
        self._theta = self._solve(self.origin.copy(), self._prior)
        self._reported = np.kron(self._basis, np.eye(p))
        self.values = self._reported @ self._theta

    @property
    def missing(self) -> float:
        """Lower bound on the share of people whose target is missing; 0 unless significant."""
        return surely_missing(1.0 - self.ratio, math.sqrt(self.ratio_variance))

    def refit(self, found: Summaries) -> ClassSolution:
        """Return the solution for other answers."""
        return ClassSolution(found, len(self._basis), self.rows)

    # The equations

    def _noise(self, one: ClassScores, answer: Answer, at: Floats) -> Floats:
        own = answer.noise * np.eye(len(self.newest.origin)) + answer.share * self.ratio * one.spread(at)
        return np.asarray(own + answer.whole * one.spread(at, whole=True)) if answer.whole else own

    def _terms(self, theta: Floats, pull: Floats, inverses: Sequence[Floats]) -> tuple[Floats, Floats, float]:
        information, gradient, value = pull.copy(), -pull @ theta, float(theta @ pull @ theta)
        at = probabilities(self.rows.points, theta, self._basis)
        for (answer, scores), precision in zip(self._equations, inverses, strict=True):
            left, slope = answer.mean - self.ratio * scores.score(at), self.ratio * scores.slope(at)
            information += slope.T @ precision @ slope
            gradient += slope.T @ precision @ left
            value += float(left @ precision @ left)
        return information, gradient, value

    def _solve(self, theta: Floats, pull: Floats) -> Floats:
        """Solve nonlinear least squares, recomputing the weights at each of a few solutions."""
        for _ in range(_FITS if self._equations else 0):
            at = probabilities(self.rows.points, theta, self._basis)
            inverses = [inverse(self._noise(one, answer, at)) for answer, one in self._equations]
            theta = descend(theta, partial(self._terms, pull=pull, inverses=inverses), _STEPS)
        return theta

    # Precision of the solution

    @cached_property
    def covariance(self) -> Floats:
        """Covariance of the coefficients; it allows for people unlike the public rows and for missing targets."""
        at = probabilities(self.rows.points, self._theta, self._basis)
        information, middle = self._prior.copy(), self._prior.copy()
        pulled, by_ratio = np.zeros((len(at), len(self._theta))), np.zeros(len(self._theta))
        for answer, scores in self._equations:
            noise, slope = self._noise(scores, answer, at), self.ratio * scores.slope(at)
            weigh = np.linalg.solve(noise, slope)
            information += slope.T @ weigh
            middle += slope.T @ weigh
            by_ratio += weigh.T @ scores.score(at)
            pulled += self.ratio * (scores.summands(at) - scores.score(at)) @ weigh
        middle += self.ratio_variance * np.outer(by_ratio, by_ratio)
        middle += (pulled * (self.rows.shares * self.doubt)[:, None]).T @ pulled
        back = self._reported @ inverse(information)
        return np.asarray(back @ middle @ back.T)

    def half_widths(self, quantile: float) -> Floats:
        """Return half-widths, (K p,); infinite where a value was not learned, and if people are unlike the rows."""
        variances = np.diag(self.covariance)
        prior = PRIOR_VARIANCE * np.sum(self._reported**2, axis=1)
        unknown = variances > prior / 4.0 if self.alike else np.ones(len(variances), dtype=bool)
        return np.asarray(np.where(unknown, math.inf, quantile * np.sqrt(variances)))

    def next_model(self, clipping_norm: float, exponent: float, shares: tuple[float, float]) -> Model:
        """Return the next model: its origin is the solution; it makes the mean curvature over contrasts isotropic."""
        p, newest = self.features, self.newest
        at = probabilities(self.rows.points, self.origin, self._basis)
        scores = ClassScores.of(
            Model(self.origin, newest.transform, clipping_norm, 1.0, 0.0, 0.0), self.rows, self._basis
        )
        c = self._basis.shape[1]
        # Mean over contrasts of dG/dTheta, in the coordinates of z.
        curvature = scores.slope(at).reshape(c, p, c, p).trace(axis1=0, axis2=2) @ newest.transform.T / c
        values, vectors = np.linalg.eigh((curvature + curvature.T) / 2.0)
        values = np.maximum(values, 1e-6 * float(np.mean(values)))
        transform = (vectors / np.sqrt(values)) @ vectors.T @ newest.transform
        Z = self.rows.points @ transform.T
        transform = transform * math.sqrt(p / float(self.rows.shares @ np.einsum("ij,ij->i", Z, Z)))
        return Model(self.origin, transform, clipping_norm, exponent, *shares).rounded()


def _mean_scatter(model: Model, rows: Rows) -> Floats:
    return mean_matrix(model, rows, Response(False), flat=True)


def _compare_matrices(found: Summaries, rows: Rows) -> tuple[float, float, bool, float, tuple[float, float]]:
    """Return the share of targets present, its variance, whether people are like the rows, kappa, and `targets`.

    The share is 1, without variance, unless it is below 1 beyond chance.
    """
    asked = [(each.model, each.curvature, partial(_mean_scatter, each.model, rows)) for each in found]
    together = pooled(asked, found[-1].model.transform)
    if together is None:
        return 1.0, 0.0, True, _MOST, (1.0, math.inf)
    measured, expected, variances = together.measured, together.expected, together.variances
    size = len(measured) * (len(measured) + 1) / 2
    variance = 1.0 / float(np.sum(expected**2 / variances))
    ratio = variance * float(np.sum(measured * expected / variances))
    present = ratio, math.sqrt(variance)
    missing = ratio < 1.0 - 3.0 * math.sqrt(variance)
    ratio = max(ratio, 0.02) if missing else 1.0
    left = (measured - ratio * expected) ** 2
    alike = excess(float(np.sum(left / variances)), size) <= UNLIKE
    # Variance of one row's matrix, which kappa multiplies.
    newest = found[-1].model
    Z = rows.points @ newest.transform.T
    reached = directions(rows.points, newest, newest.matrix_clipping_norm)
    square = (reached**2 * rows.shares[:, None]).T @ Z**2 / 4.0
    spread = ratio**2 * np.maximum(square - _mean_scatter(newest, rows) ** 2, 0.0) * (2.0 - np.eye(len(measured)))
    kappa = 1.0 / rows.people
    while kappa < _MOST and excess(float(np.sum(left / (variances + kappa * spread))), size) > -_DOUBTED:
        kappa *= 2.0
    return ratio, variance if missing else 0.0, alike, min(kappa, _MOST), present


_LOGISTIC = Response(True)
_CURVATURES = 0.25  # share of curvatures, which determine the share of targets present, among matrices asked for
_SAME = 0.01  # part of the estimated share of missing targets that differences between people may explain


class ClassLines:
    """The least-squares lines through the indicators of K classes, K p values; no lines before answers determine them.

    ``found`` are the rounds' mean answers, oldest first, and ``indicators`` for each class the mean answers about its
    indicator as a binary target.
    """

    public = False
    alike = True
    doubt = 0.0

    def __init__(
        self, found: Summaries, classes: int, coordinates: Coordinates | None = None, *, weighed: bool = False
    ) -> None:
        self.newest, self.coordinates, self._weighed = found[-1].model, coordinates, weighed
        self.features = len(self.newest.transform)
        self._found, self._basis = list(found), contrasts(classes)
        self.indicators = [[indicator(each, label, self._basis) for each in found] for label in range(classes)]
        self.moments = Moments.of(self.indicators[0], replace(_LOGISTIC, weighed=weighed), coordinates)
        self.rows = self.moments.frame.rows(self.moments.moment)
        self.lines: list[ProbabilityLine] = []
        if tells_line(self.indicators[0]):
            first = ProbabilityLine(self.indicators[0], self.moments)
            self.lines = [first, *(first.with_scores(each) for each in self.indicators[1:])]
        values = np.zeros((classes, self.features))
        values[:, -1] = 2.0 / classes
        for label, line in enumerate(self.lines):
            values[label] = 2.0 * line.values
        values[:, -1] -= 1.0
        self.values: Floats = values.ravel()

    @property
    def missing(self) -> float:
        """Lower bound on the share of people whose target is missing; 0 unless significant."""
        if not self.lines:
            return 0.0
        share, error = self.lines[0].share
        return surely_missing(1.0 - share - _SAME, error)

    @property
    def targets(self) -> tuple[float, float]:
        """The share of people with a target, and its standard error."""
        return self.lines[0].share if self.lines else (1.0, math.inf)

    def refit(self, found: Summaries) -> ClassLines:
        """Return the solution for other answers."""
        return ClassLines(found, len(self._basis), self.coordinates, weighed=self._weighed)

    @property
    def rates(self) -> Floats:
        """Share of each class, at least 1%, (K,)."""
        classes = len(self._basis)
        if not self.lines:
            return np.full(classes, 1.0 / classes)
        shares = np.array([max(line.rate, RAREST) for line in self.lines])
        return np.asarray(shares / shares.sum())

    @cached_property
    def origin(self) -> Floats:
        """Contrasts of log odds for predictions, ((K - 1) p,): a shrunk step of Newton's method from the constants."""
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

    @cached_property
    def covariance(self) -> Floats:
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
        """Return the covariance of two classes' mean scores by round, as `ProbabilityLine.covariance_with` takes it."""
        rates, covariances = (self.lines[one].rate, self.lines[other].rate), []
        for each in self._found:
            if each.score is None:
                continue
            at = centre(each.model, self._basis)
            scale = _largest(at) ** 2 * float(self._basis[one] @ self._basis[other])
            spread = at[one] * at[other] - rates[0] * at[other] - at[one] * rates[1]
            covariances.append((scale * each.score.noise, scale * each.score.whole + each.score.share * spread))
        return covariances

    def half_widths(self, quantile: float) -> Floats:
        """Return half-widths of the intervals, (K p,); infinite where a value was not learned."""
        if not self.lines:
            return np.full(len(self.values), math.inf)
        return np.concatenate([2.0 * line.half_widths(quantile) for line in self.lines])

    def next_model(self, clipping_norm: float, noise: tuple[float, float]) -> Model:
        """Return the next round's model: at the classes' shares, in coordinates where people spread evenly.

        ``noise`` holds the noise variances of one entry of a score and of a matrix, in units of their bounds.
        """
        base, origin = even_coordinates(self.moments, clipping_norm), np.zeros((self._basis.shape[1], self.features))
        shares = FIRST_SHARES
        if self.moments.settled and self.lines:
            origin[:, -1] = self._basis.T @ np.log(self.rates)
            largest = _largest(self.rates) * math.sqrt(self._basis.shape[1])
            most = Model(origin.ravel(), base, clipping_norm, 1.0, 0.0, 0.0).matrix_clipping_norm
            share = matrix_share(sum(line.signal for line in self.lines), largest, most, noise)
            shares = (1.0 - _CURVATURES) * share, _CURVATURES * share
        return Model(origin.ravel(), base, clipping_norm, 1.0, *shares).rounded()


def centre(model: Model, basis: Floats) -> Floats:
    """Return the class probabilities at which scores are centred, (K,), for an origin of constants alone."""
    constants = model.origin.reshape(basis.shape[1], -1)[:, -1]
    return np.asarray(class_probabilities(model.exponent * constants[None, :], basis)[0])


def _largest(at: Floats) -> float:
    """Return the largest ``|e_k - q|`` over classes k, for class probabilities q."""
    return math.sqrt(1.0 - 2.0 * float(at.min()) + float(at @ at))


def indicator(each: Summary, label: int, basis: Floats) -> Summary:
    """Return a round's mean answers for one class's indicator, a binary target; the origin has constants alone."""
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
