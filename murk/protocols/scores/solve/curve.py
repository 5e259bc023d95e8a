"""Coefficients from rounds' mean answers without public rows: moments, curvature, weighted equations, solution.

In round k, at origin a_k and transform W_k, the mean score u_k estimates ``pi G_k(theta) + D_k h_k``, with ``h_k =
W_k^-T (theta - a_k)``. G_k is computed over normal rows with the released second moments (`Expected`), pi is the share
of people with a target, and D corrects the curvature of those rows by the released one: the empirical Bayes estimate
whose prior variance is the excess of D's mean square over its noise. Its remaining error, of variance e^2 for each
number, counts as noise of u_k:

    S_k(theta) = (s_k^2 + e^2 |h|^2 / 2) I + e^2 h h' / 2 + spread / n_k + (b b' + |b|^2 I / p),

where b is a part of the difference between G_k and its tangent at a_k. All rounds share pi and D along the
coefficients, which matter most: these two are solved for together with theta, with the released curvatures as prior.

The estimate minimizes ``sum_k |u_k - ...|^2`` in S_k^-1, plus a weak prior; its variance contains the error of D once.
The interval of a coefficient holds the values c with ``(theta_j - c)^2 <= z^2 V_j(c)``, V_j(c) being the variance *if c
were the truth*: like Fieller's interval it is unbounded where a direction's curvature cannot be told from zero. The
constants were chosen on generated tasks; docs/scores.md states the coverage.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from murk._internal.arrays import Floats, Integers
from murk.errors import MurkError
from murk.protocols.rows import Rows
from murk.protocols.scores.model import Expected, Model, Response, inverse, power
from murk.protocols.scores.solve.moments import UNEVEN, Curvature, Moments, carried_errors, may_be_none, stretched
from murk.protocols.scores.sums import Summaries
from murk.protocols.scores.survey.coordinates import Coordinates

_ERROR_CODE = "MURK-LEARN-001"

Rejected = Callable[[Integers, Floats], NDArray[np.bool_]]

# Coefficients in coded units are within a few of zero; so is the logit at a published origin.
PRIOR_VARIANCE, ORIGIN_VARIANCE, LOGIT_SQUARE = 25.0, 9.0, 25.0
# The logit's usual variance over people, and its weight as a prior, in features.
LOGIT_USUAL, _LIKE = 6.0, 2.0
_FITS, _STEPS = 3, 12
_FREE = (
    0.5  # part of the clipping norm up to which directions are stretched freely (categories are 2 apart in coded units)
)
_BEYOND = 0.5  # power of a larger stretch
_STRETCHED = 4.0  # largest stretch in units of the clipping norm: a smaller one would hide nearly collinear features
_UNBOUNDED = 8.0  # intervals nearly as wide as the prior's count as unbounded
_AT_ONCE = 2**20  # largest number of floats in memory while several coefficients' intervals are computed
_LEAST = 0.02  # least share of targets present
_RARE = 0.15  # least rate of an outcome whose log odds are learned from centred scores alone
_CLOSE = 1e-6  # largest step at which a solution counts as found
_CURVE_ERROR = 0.3  # relative error of the normal rows' curve between a round's origin and the solution


class _Equations:
    """Rounds' mean scores and their expectations, side by side, (k, ...)."""

    def __init__(self, asked: Summaries, rows: Rows, response: Response, curvature: Curvature, back: Floats) -> None:
        answers = [each.score for each in asked if each.score is not None]
        factor, changes = 1.0 if response.binary else 2.0, [each.model.transform @ back for each in asked]
        self.expected = [Expected.of(each.model, rows, response) for each in asked]
        self.mean = np.array([answer.mean for answer in answers])  # mean scores, (k, p)
        # noise, share, whole: fields of the answers, (k, 1, 1)
        self.noise, self.share, self.whole = (
            np.array([getattr(answer, name) for answer in answers])[:, None, None]
            for name in ("noise", "share", "whole")
        )
        self.square = np.array([each.square for each in self.expected])  # mean of ``c^2 z z'`` over the rows, (k, p, p)
        # low (k, p) and rise (k, p, m): G_k is ``low + rise @ level`` for the rows' probabilities (or means) ``level``
        columns = [(each.directions.T * rows.shares, *each.level) for each in self.expected]
        self.low = np.array([part @ low for part, low, _ in columns])
        self.rise = np.array([part * rise for part, _, rise in columns])
        self.correction = np.array([factor * change @ curvature.correction @ change.T for change in changes])
        self.carried = np.array([math.sqrt(factor) * change @ curvature.turn.T for change in changes])
        self.along = self.carried[:, :, 0]
        self.change = np.array([each.model.back.T for each in asked])
        self.origin = np.array([each.model.origin for each in asked])
        logits = [rows.points @ each.model.origin for each in asked]
        # start, tangent: the expected scores and their slopes at the origins
        self.start = np.array([one.score(logit) for one, logit in zip(self.expected, logits, strict=True)])
        self.tangent = np.array([one.slope(logit) for one, logit in zip(self.expected, logits, strict=True)])

    def scores(self, level: Floats) -> Floats:
        """Return each round's expected mean score, (..., k, p), if rows have these probabilities or means, (..., m)."""
        return np.asarray(self.low + np.moveaxis(self.rise @ level.T, (0, 1), (-2, -1)))

    def displacements(self, theta: Floats) -> tuple[Floats, Floats]:
        """Return solutions (..., p) minus each round's origin, in coded units and its coordinates, (..., k, p)."""
        way = theta[..., None, :] - self.origin
        return way, (self.change @ way[..., None])[..., 0]


class Solution:
    """The solution of rounds' equations, without public rows; ``unlike``: of the equations of centred scores alone."""

    public = False
    doubt = 0.0  # normal rows claim nothing about people but their second moments
    missing = 0.0  # without public rows, missing targets are part of the curvature's ratio

    def __init__(
        self, found: Summaries, response: Response, coordinates: Coordinates | None = None, *, unlike: bool = False
    ) -> None:
        self.response, self.coordinates = response, coordinates
        self.newest = found[-1].model
        self.features = p = len(self.newest.origin)
        self.unlike, self.alike = unlike, not unlike
        self.moments = Moments.of(found, response, coordinates)
        self.rows = self.moments.frame.rows(self.moments.moment, np.array(self.newest.origin))
        self.curvature = Curvature.of(found, self.rows, response, self.moments)
        # If people are unlike the public rows: only a centred score has mean zero at the truth for any distribution.
        self._asked = [each for each in found if each.score is not None and (not unlike or each.model.exponent == 1.0)]
        self._metric = self.moments.frame.metric
        mean = self.rows.shares @ self.rows.points
        self._spread = self.rows.second_moment - np.outer(mean, mean)
        # Coefficients of features whose spread noise hides are hardly determined: a prior of usual size keeps their
        # errors from other coefficients.
        self._hidden = self.moments.hidden * p / LOGIT_USUAL
        self._fixed = np.outer(mean, mean) / LOGIT_SQUARE + self._metric / ORIGIN_VARIANCE + self._hidden
        self._pull = self._pull_of(LOGIT_SQUARE)
        self._solution = np.concatenate([self.newest.origin, np.zeros(2)])
        if self._asked:
            self._solution = self._solve(self._solution)
        self.values = self.origin = self._solution[:p]

    @property
    def targets(self) -> tuple[float, float]:
        """The share of people with a target, and its standard error, which allows for features that are not normal."""
        return self.curvature.ratio, math.hypot(float(self.curvature.root[0, 0]), UNEVEN / 2.0)

    def refit(self, found: Summaries) -> Solution:
        """Return the solution for other answers, solved in the same way."""
        return Solution(found, self.response, self.coordinates, unlike=self.unlike)

    # The equations

    @cached_property
    def _stacked(self) -> _Equations:
        return _Equations(self._asked, self.rows, self.response, self.curvature, self.newest.back)

    def _spreads_at(self, theta: Floats) -> Floats:
        """Return the variance of people's scores at theta, (k, p, p)."""
        logit = self.rows.points @ theta
        return self.curvature.ratio * np.array([each.spread(logit) for each in self._stacked.expected])

    def _noise(self, theta: Floats, scores: Floats, spreads: Floats) -> tuple[Floats, Floats]:
        """Return two summands of S_k(theta) (see the module), (k, p, p): noise of single rounds, and shared errors."""
        stacked, identity = self._stacked, np.eye(self.features)
        way, h = stacked.displacements(theta)
        numbers = (h[..., None, :] @ stacked.carried)[..., 0, :]
        shared = carried_errors(self.curvature.errors, numbers, stacked.carried)
        # The difference between G_k and its tangent at the origin.
        curved = scores - stacked.start - (stacked.tangent @ way[..., None])[..., 0]
        bent = lengthened(self.curvature.ratio * _CURVE_ERROR * curved, 1.0 / self.features, identity)
        return stacked.noise * identity + stacked.share * spreads + stacked.whole * stacked.square + bent, shared

    def _expected(self, solution: Floats) -> tuple[Floats, Floats]:
        """Return the expected mean scores, (k, p), and their slopes, (k, p, p + 2)."""
        stacked, theta, unknown = self._stacked, solution[: self.features], solution[self.features :]
        logit = self.rows.points @ theta
        level, steep = self.response.level_and_steep(logit)
        risen = stacked.rise @ np.column_stack([level, steep[:, None] * self.rows.points])
        score, h = stacked.low + risen[:, :, 0], stacked.displacements(theta)[1]
        along = np.sum(stacked.along * h, axis=1, keepdims=True) * stacked.along
        ratio, more = np.array([self.curvature.ratio, 0.0]) + self.curvature.root @ unknown
        ratio = max(ratio, _LEAST)
        correction = stacked.correction + more * stacked.along[:, :, None] * stacked.along[:, None, :]
        slope = ratio * risen[:, :, 1:] + correction @ stacked.change
        expected = ratio * score + (correction @ h[:, :, None])[:, :, 0]
        return expected, np.concatenate([slope, np.stack([score, along], axis=2) @ self.curvature.root], axis=2)

    def _terms(self, solution: Floats, pull: Floats, inverses: Floats) -> tuple[Floats, Floats, float]:
        """Return curvature, gradient and value of the sum to minimize, for given S_k^-1."""
        expected, slopes = self._expected(solution)
        left, pulled = self._stacked.mean - expected, pull @ solution
        weighed = slopes.transpose(0, 2, 1) @ inverses
        information = pull + np.sum(weighed @ slopes, axis=0)
        gradient = np.sum(weighed @ left[:, :, None], axis=0)[:, 0] - pulled
        return information, gradient, float(solution @ pulled + np.einsum("ki,kij,kj->", left, inverses, left))

    def _pull_of(self, square: float) -> Floats:
        """Return the precision of a prior in which the logit's variance over people is about ``square``, (p, p)."""
        return self._fixed + self._spread * self.features / square

    def _effects(self, theta: Floats, information: Floats) -> float:
        """Return the logit's variance over people by the data and by its own prior (expectation-maximization)."""
        p = self.features
        error = inverse(information)[:p, :p]
        square = float(theta @ self._spread @ theta) + float(np.sum(self._spread * error))
        return min(p * (square + _LIKE * LOGIT_USUAL / p) / (p - 1 + _LIKE), LOGIT_SQUARE)

    def _solve(self, solution: Floats) -> Floats:
        """Solve nonlinear least squares, recomputing weights S_k^-1 and prior at each of a few solutions."""
        for _ in range(_FITS):
            theta = solution[: self.features]
            scores = self._stacked.scores(self.response.level(self.rows.points @ theta))
            own, shared = self._noise(theta, scores, self._spreads_at(theta))
            terms = partial(self._terms, pull=_with_unknowns(self._pull), inverses=inverse(own + shared))
            solution = descend(solution, terms, _STEPS)
            self._pull = self._pull_of(self._effects(solution[: self.features], terms(solution)[0]))
        if not np.all(np.isfinite(solution)):
            raise MurkError("the rounds' equations have no finite solution")
        return solution

    # Precision of the solution

    @cached_property
    def _slopes(self) -> Floats:
        return self._expected(self._solution)[1][:, :, : self.features]

    @cached_property
    def _spreads(self) -> Floats:
        return self._spreads_at(self.values)

    def _covariance(self, theta: Floats) -> Floats:
        """Return covariances ``H^-1 M H^-1``, (..., p, p), if each ``theta``, (..., p), were the truth."""
        p, curvature, stacked = self.features, self.curvature, self._stacked
        prior, h = _with_unknowns(self._metric / PRIOR_VARIANCE + self._hidden), stacked.displacements(theta)[1]
        scores = stacked.scores(self.response.level(theta @ self.rows.points.T))
        own, shared = self._noise(theta, scores, self._spreads)
        along = np.sum(stacked.along * h, axis=-1, keepdims=True) * stacked.along
        unknown = np.stack([scores, along], axis=-1) @ curvature.root
        slopes = np.concatenate([np.broadcast_to(self._slopes, (*unknown.shape[:-1], p)), unknown], axis=-1)
        weighed = np.linalg.solve(own + shared, slopes)
        across = weighed.swapaxes(-1, -2)
        information = prior + np.sum(slopes.swapaxes(-1, -2) @ weighed, axis=-3)
        middle = prior + np.sum(across @ own @ weighed, axis=-3)
        numbers = (h[..., None, :] @ stacked.carried)[..., 0, :]
        by_number = np.einsum("...kia,...kb->...iab", across @ stacked.carried, numbers)
        # The errors form a symmetric matrix, with half of the variance off the diagonal.
        flat = by_number.reshape(*by_number.shape[:-2], -1)
        both = flat + by_number.swapaxes(-1, -2).reshape(flat.shape)
        middle += (flat * curvature.errors.ravel() / 2.0) @ both.swapaxes(-1, -2)
        back = inverse(information)
        return np.asarray((back @ middle @ back)[..., :p, :p])

    @cached_property
    def misfits(self) -> Floats:
        """Squared residual of each round's mean score, in units of its variance, (k,)."""
        if not self._asked:
            return np.zeros(0)
        scores = self._stacked.scores(self.response.level(self.rows.points @ self.values))
        own, shared = self._noise(self.values, scores, self._spreads)
        left = self._stacked.mean - self._expected(self._solution)[0]
        return np.asarray(np.einsum("ki,kij,kj->k", left, inverse(own + shared), left))

    @cached_property
    def covariance(self) -> Floats:
        """Covariance of the solution, (p, p)."""
        if not self._asked:
            return inverse(self._metric) * PRIOR_VARIANCE
        return self._variances(self.values)

    def _variances(self, theta: Floats) -> Floats:
        """Return `_covariance` with the error by which the prior pulls the solution, (..., p, p)."""
        return np.asarray(self._covariance(theta) + np.outer(self._pulled, self._pulled))

    @cached_property
    def _pulled(self) -> Floats:
        return np.asarray(self._covariance(self.values) @ self._pull @ self.values)

    def half_widths(self, quantile: float) -> Floats:
        """Return the half-widths of all intervals, (p,); infinite where a coefficient was not learned.

        A feature of unknown spread has no bounded interval, and then the constant has none either. No coefficient has
        one while it is possible that nobody has a target, or while all scores are centred at the rate of a rare
        outcome, whose log odds would depend on the shape of the features.
        """
        if self.rare or self.targetless:
            return np.full(self.features, math.inf)
        test = far_from(self.values, self._variances, quantile)
        halves = first_rejected(self.values, self.covariance, quantile, test, self.moments.frame.scales)
        withheld = self.moments.withheld
        halves[np.append(withheld, withheld.any())] = math.inf
        return halves

    @property
    def targetless(self) -> bool:
        """Whether it may be that nobody has a target."""
        return may_be_none(self.curvature.ratio, float(self.curvature.root[0, 0]))

    @cached_property
    def rare(self) -> bool:
        """Whether the outcome is too rare for log odds by scores that are all centred at one probability."""
        if not self.response.binary or any(np.any(each.model.origin[:-1]) for each in self._asked):
            return False
        # The rates by the solution, and by the newest round's published origin: both are noisy.
        constant = np.append(np.zeros(self.features - 1), self.newest.origin[-1])
        logits = self.rows.points @ np.column_stack([self.values, constant])
        rates = self.rows.shares @ self.response.level(logits)
        return bool(np.min(np.minimum(rates, 1.0 - rates)) < _RARE)

    def next_model(self, clipping_norm: float, exponent: float, shares: tuple[float, float]) -> Model:
        """Return the next round's model: its origin is the solution, and its transform makes curvature isotropic."""
        base = even_coordinates(self.moments, clipping_norm)
        if not self.moments.settled:
            return Model(np.zeros(self.features), base, clipping_norm, exponent, 0.0, 0.5).rounded()
        origin = self.values if self.response.binary else np.zeros(self.features)
        return Model(origin, stretched(base, origin), clipping_norm, exponent, *shares).rounded()


def even_coordinates(moments: Moments, clipping_norm: float) -> Floats:
    """Return a transform in whose coordinates people of these moments spread evenly over all directions, (p, p)."""
    even, frame = moments.scale * power(moments.shape, -0.5, 1e-3) @ moments.base, moments.frame
    return _limit_stretch(even, clipping_norm, frame.transform if frame.surveyed else np.eye(len(even)))


def _with_unknowns(pull: Floats) -> Floats:
    """Return a prior's precision, extended by the precision of the curvature's two unknowns."""
    p = len(pull)
    both = np.eye(p + 2)
    both[:p, :p] = pull
    return both


def lengthened(vectors: Floats, share: float, identity: Floats) -> Floats:
    """Return ``v v' + share |v|^2 I`` of vectors (..., p)."""
    squares = np.sum(vectors * vectors, axis=-1)[..., None, None]
    return np.asarray(share * squares * identity + vectors[..., :, None] * vectors[..., None, :])


def _limit_stretch(transform: Floats, clipping_norm: float, frame: Floats) -> Floats:
    """Return a transform that stretches no direction of x' = ``frame`` x more than necessary.

    Along a rare category few people are far from the mean. Stretched, they exceed the reach and count for less, so the
    direction seems weak and would be stretched again in every round. So a stretch s beyond ``h = R/2`` becomes ``sqrt(h
    s)``, which settles at ``h / sqrt(v)`` for a direction with v times the apparent variance of other directions.
    """
    left, stretches, right = np.linalg.svd(transform @ inverse(frame))
    free = _FREE * clipping_norm
    held = np.minimum(free * np.maximum(stretches / free, 1.0) ** _BEYOND, _STRETCHED * clipping_norm)
    return np.asarray((left * np.minimum(stretches, held)) @ right @ frame)


def far_from(values: Floats, covariance: Callable[[Floats], Floats], quantile: float) -> Rejected:
    """Return a test for `first_rejected` with the covariances that hold if the tested values (c, p) are true."""

    def rejected(indices: Integers, points: Floats) -> NDArray[np.bool_]:
        each = np.arange(len(indices))
        variances = np.maximum(covariance(points)[each, indices, indices], 0.0)
        return np.asarray(np.abs(points[each, indices] - values[indices]) > quantile * np.sqrt(variances))

    return rejected


def first_rejected(
    values: Floats, covariance: Floats, quantile: float, rejected: Rejected, scales: Floats | None = None
) -> Floats:
    """Return the distances from the solution at which values of each coefficient are first rejected, (p,).

    ``rejected(indices, points)`` tests points (c, p), each with another value of coefficient ``indices[i]`` and the
    others at their most likely, (c,). ``scales`` are the prior's standard deviations over that of one coefficient of
    x', (p,).
    """
    variances, scales = np.diag(covariance), np.ones(len(values)) if scales is None else scales
    # Normal half-widths; infinite if over a quarter of the information on a coefficient is the prior's.
    halves = np.where(variances > PRIOR_VARIANCE / 4.0 * scales**2, math.inf, quantile * np.sqrt(variances))

    def reached(indices: Integers) -> Floats:
        both, signs = np.tile(indices, 2), np.repeat([-1.0, 1.0], len(indices))
        paths = signs[:, None] * (covariance[:, both] / covariance[both, both]).T

        def far(selected: Integers, off: Floats) -> NDArray[np.bool_]:
            return rejected(both[selected], values + off[:, None] * paths[selected])

        return np.asarray(_first_distances(far, halves[both], _UNBOUNDED * scales[both]).reshape(2, -1).max(axis=0))

    learned = np.flatnonzero(np.isfinite(halves))
    # Each coefficient needs a table of p^3 numbers.
    for indices in np.array_split(learned, math.ceil(len(learned) * len(values) ** 3 / _AT_ONCE) or 1):
        halves[indices] = reached(indices)
    return halves


def _first_distances(rejected: Rejected, start: Floats, most: Floats) -> Floats:
    """Return the first rejected distance along each path, (c,); infinite beyond ``most``, (c,)."""
    low, high, left = np.zeros_like(start), start.copy(), np.arange(len(start))
    while len(left):
        left = left[~rejected(left, high[left])]
        low[left], high[left] = high[left], 1.3 * high[left]
        left = left[high[left] <= most[left]]
    endless = (high > most) & (high > start)
    left = np.flatnonzero(~endless)
    for _ in range(7 if len(left) else 0):
        middle = (low[left] + high[left]) / 2.0
        beyond = rejected(left, middle)
        low[left], high[left] = np.where(beyond, low[left], middle), np.where(beyond, middle, high[left])
    return np.where(endless, math.inf, high)


def descend(at: Floats, terms: Callable[[Floats], tuple[Floats, Floats, float]], steps: int) -> Floats:
    """Minimize a sum of squares from a starting point (p,), in at most ``steps`` steps.

    For a point, ``terms`` returns half the curvature (p, p), minus half the gradient (p,), and the sum to minimize.
    Source: Marquardt, "An algorithm for least-squares estimation of nonlinear parameters", J. SIAM 11(2), 1963.
    """
    damping = 1e-3
    information, gradient, value = terms(at)
    for _ in range(steps):
        step = np.linalg.solve(information + damping * np.diag(np.diag(information)), gradient)
        tried = terms(at + step)
        if tried[2] <= value:
            at = at + step
            information, gradient, value = tried
            damping /= 4.0
        else:
            damping *= 6.0
        # Also after a rejected step: this close to the minimum rounding decides.
        if float(np.max(np.abs(step))) < _CLOSE:
            break
    return at
