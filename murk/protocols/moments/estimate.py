"""Estimation of coefficients and their standard errors from second moments.

Least squares gives ``beta = M^-1 b`` with slopes u. For a curved link `solve.solve` scales u by c and finds the
intercept a. Standard errors are by the delta method, from the noise in ``b`` and ``M`` (known exactly), the sampling of
people (residual variance at most ``1 - b'beta`` in coded units) and of public covariates (measured).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from murk._internal.arrays import Floats
from murk._internal.links import normal_nodes
from murk.inference.estimate import Estimate
from murk.inference.linear_probability import Allowance, LineEstimate, allowance
from murk.inference.misfit import MOST_NUMBERS, UNLIKE, misfit
from murk.inference.selection import selection_factors
from murk.privacy.mechanisms.outer_product import matrix_size
from murk.protocols.linear_algebra import flattened
from murk.protocols.mean_functions import LINKS, Curve, ResponseRange
from murk.protocols.moments.model import MomentModel
from murk.protocols.moments.solve import NoRootError, score_covariance, solve, solve_score
from murk.protocols.moments.statistics import Statistics
from murk.protocols.moments.sums import Design, MomentSums, Private, design_of, distances_from_noise
from murk.protocols.rows import Rows

E = TypeVar("E", bound=Estimate)

DELTA = "delta method"
# Method of an estimate without a root: the least-squares direction, scaled as if all ``x'w`` were near 0.
LEAST_SQUARES = "least squares"
NODES = 61  # Points of the normal distribution that replaces missing public covariates
_PRESENT = "needs hardly any target to be missing"
_LIKE = "needs public covariates that are like the people"
_SCORED = "{}, the model to be right, and public covariates that are like the private ones (docs/public-glm.md)"
_FEW = "the noise hides how many targets are missing"
_HELPS = (
    "tighter bounds or public rows help, or outer products (examples: {release: outer}), which leave out single "
    "features"
)
_FIXED = "noise outweighed some second moments, whose repair pulls coefficients towards 0"
_LEFT = "noise outweighs the second moments, which are not repaired"
_UNLIKE_ROWS = "public covariates are not used: they are unlike the people with a target"
_OTHERS = "public covariates are not used: targets are missing, and the rows are not of the people who have one"

_NEAR = "within {:.1f} spreads of the centres in all"

_COVERS = (
    "for the limit of the estimate, which for features that are far from normal differs slightly from the model's "
    "coefficients"
)
_ANY = "for the log odds of a model that is right, whatever the distribution of the features"


def _needs(layout: Statistics, public: Rows | None) -> str:
    """Describe what intervals assume about the people."""
    if not layout.observed:
        return f"; {_PRESENT} (docs/public-glm.md)"
    return "" if public is None else f"; {_LIKE} (docs/public-glm.md)"


@dataclass(frozen=True)
class Fit:
    """A fitted model."""

    direction: Floats  # least-squares slopes and intercept: the line fitted to the response is direction @ x
    missing: NoRootError | None  # why the curve's equations have no root; None if they have one
    values: Floats  # coefficients, the intercept last if there is one
    _judge: Callable[[], Estimate]

    @cached_property
    def estimate(self) -> Estimate:
        """Coefficients with their intervals, computed on first access."""
        return self._judge()


def normal_points(matrix: Floats, slopes: Floats, constant: bool = True) -> tuple[Floats, Floats]:
    """Return points ``mean + C u t / sqrt(u'Cu)``, t Gauss-Hermite nodes, and weights for ``x'u`` of normal x."""
    nodes, weights = normal_nodes(NODES)
    if constant:
        mean, centred = matrix[-1, :-1], matrix[:-1, :-1] - np.outer(matrix[-1, :-1], matrix[-1, :-1])
    else:
        mean, centred = np.zeros(len(matrix)), matrix
    along = centred @ slopes
    length = math.sqrt(max(float(slopes @ along), 0.0))
    points = mean + (np.outer(nodes, along / length) if length > 0 else np.zeros((NODES, len(mean))))
    return np.column_stack([points, np.ones(NODES)])[:, : len(matrix)], weights


def fit(model: MomentModel, sums: MomentSums, layout: Statistics, partitions: int = 1) -> Fit:
    """Fit a model to running sums."""
    own = model.own_layout(layout)
    if sums.count == 0:
        return unfitted(model, own, partitions)
    return fit_private(model, model.private(sums, layout), own, sums.count, partitions)


def unfitted(model: MomentModel, layout: Statistics, partitions: int) -> Fit:
    """Return the fit before the first release."""
    nothing, middle = np.zeros(layout.size), np.zeros(layout.size)
    middle[-1] = model.response.middle if layout.constant else 0.0
    none = Estimate(layout.names, nothing, DELTA, np.full(layout.size, np.inf), "no release yet", partitions, 0)
    return Fit(middle, None, nothing, lambda: none)


@dataclass(frozen=True)
class _Means:
    """Means of a number of releases, and the model to fit to them."""

    model: MomentModel
    private: Private
    layout: Statistics
    releases: int
    partitions: int
    alike: bool | None  # whether public rows resemble the people

    def estimate(self, kind: type[E], values: Floats, method: str, spread: Floats, note: str, **more: Any) -> E:
        """Return an estimate of the class ``kind`` with these values."""
        sizes = self.partitions, self.releases
        coordinates, left_out = self.layout.coordinates, self.private.missing
        if coordinates is not None:
            # Releases do not tell people beyond the bound from people without a target.
            note += f"; of people near the `typical` ranges: {_NEAR.format(coordinates.ordinary_square**0.5)}"
            note += f" ({left_out:.1%} or more are not, or count as without a target)" if left_out > 0.0 else ""
        facts = {"alike": self.alike, "absent": 0.0 if coordinates else left_out, **more}
        return kind(self.layout.names, values, method, spread, note, *sizes, **facts)

    @property
    def back(self) -> Floats:
        """The matrix (p, p) from coefficients of released coordinates to those of coded features."""
        coordinates = self.layout.coordinates
        return np.eye(self.layout.size) if coordinates is None else coordinates.matrix

    def without_root(self, error: NoRootError, slopes: Floats) -> NoRootError:
        """Return the error with the least-squares slopes by name."""
        return NoRootError(str(error), dict(zip(self.layout.names, map(float, slopes), strict=False)))


def fit_private(model: MomentModel, private: Private, layout: Statistics, releases: int, partitions: int) -> Fit:
    """Fit a model to the means of a number of releases."""
    curve, response, public = model.curve, model.response, model.public
    p = layout.size
    like, why = (None, None) if public is None or not layout.observed else _usable(private, public)
    # The model's own equations can be solved over public rows only: if the rows may be unlike people with a target,
    # there is no interval.
    scored = model.solver == "score" and public is not None and curve.name != "identity"
    public = public if why is None or (scored and like is not False) else None
    means = _Means(model, private, layout, releases, partitions, like)
    design = design_of(private, public, model.covariance, model.repair)
    beta = np.asarray(np.linalg.solve(design.matrix, private.cross), dtype=np.float64)
    direction = response.half * beta
    mean = None
    if layout.constant:
        direction[-1] += response.middle
        mean = response.middle + response.half * float(private.cross[-1])
    slopes = direction[:-1] if layout.constant else direction
    back = means.back
    if scored and public is not None:
        return _scored(means, public, direction)
    normal = public is None
    if public is not None:
        points, shares, people = public.points, public.shares, public.people
    else:
        points, shares = normal_points(design.matrix, slopes, layout.constant)
        people = np.inf
    features = points[:, : len(slopes)]
    missing = None
    if curve.name == "identity":
        a, c = float(direction[-1]) if layout.constant else 0.0, 1.0
    else:
        try:
            a, c = solve(curve, features @ slopes, shares, mean)
        except NoRootError as error:
            missing = means.without_root(error, back[: len(slopes), : len(slopes)] @ slopes)
            a, c = _short(curve, mean)
    values = back @ np.append(c * slopes, [a] * layout.constant)

    def judge() -> Estimate:
        spread, of_line = np.full(p, np.inf), normal and layout.observed and curve.name == "logistic"
        selected = None
        if not private.is_share_known:
            note = f"none: {_FEW}"
        elif missing is not None:
            note = f"none: {missing}"
        elif scored:
            note = "none: solver 'score' needs public covariates like the people's, so solver 'stein' was used"
        elif design.doubtful:
            stated = "" if layout.coordinates is not None else "`typical` ranges, "
            note = f"none: {_FIXED if model.repair else _LEFT}; {stated}{_HELPS}"
        else:
            at = _At(means, design, beta, response, curve, points, shares, people, a, c)
            spread, selected = _errors(at), _selected(at)
            if curve.name == "identity":
                note = "for the population's best linear fit" + _needs(layout, public)
            elif of_line:
                note = _ANY if why is None else f"{_ANY}; {why}"
                return _of_line(at, values, spread, note)
            else:
                note = _COVERS + _needs(layout, public)
                note += "; without public covariates, x'w is taken as normal" if normal else ""
        note = note if why is None else f"{note}; {why}"
        method = DELTA if missing is None else LEAST_SQUARES
        if of_line:
            # Effects are defined in the same way with and without an interval.
            line = {"fit": back @ beta, "error": spread, "beyond": Allowance(np.zeros(p), np.zeros(p))}
            return means.estimate(LineEstimate, values, method, spread, note, **line)
        return means.estimate(Estimate, values, method, spread, note, selected=selected)

    return Fit(back @ direction, missing, values, judge)


def _of_line(at: _At, values: Floats, spread: Floats, note: str) -> LineEstimate:
    """Return log odds with distribution-free intervals, and the average effects of the line."""
    line = replace(at, response=ResponseRange(-1.0, 1.0), curve=LINKS["identity"], a=float(at.beta[-1]), c=1.0)
    back, error = at.means.back, _errors(line)
    # Tasks code each feature to [-1, 1]; estimators, and stated coordinates, bound the norm only.
    layout, matrix = at.means.layout, at.design.matrix
    by_norm = bool(layout.units) or layout.coordinates is not None
    largest, inverse = layout.clipping_norm if by_norm else 1.0, np.asarray(np.linalg.inv(matrix))
    beyond = allowance(at.beta, at.values, matrix, inverse, largest, by_norm=by_norm)
    beyond = Allowance(np.abs(back) @ beyond.coefficients, np.abs(back) @ beyond.effects)
    fields = {"fit": back @ at.beta, "error": error, "beyond": beyond, "selected": _selected(at)}
    return at.means.estimate(LineEstimate, values, DELTA, spread, note, **fields)


def _scored(means: _Means, public: Rows, direction: Floats) -> Fit:
    """Fit by the model's own equations."""
    private, layout, curve, response = means.private, means.layout, means.model.curve, means.model.response
    half, middle = response.half, response.middle if layout.constant else 0.0
    cross = half * private.cross + middle * (public.shares @ public.points)
    mean = middle + half * float(private.cross[-1]) if layout.constant else None
    a, c = _short(curve, mean)
    near = np.append(c * direction[:-1], a) if layout.constant else c * direction
    missing = None
    try:
        values = solve_score(curve, public, cross, near)
    except NoRootError as error:
        missing = means.without_root(error, direction[: layout.size - layout.constant])
        values = near

    def judge() -> Estimate:
        spread = np.full(layout.size, np.inf)
        if not private.is_share_known:
            note = f"none: {_FEW}"
        elif missing is not None:
            note = f"none: {missing}"
        elif private.missing > 0.0:
            note = "none: targets are missing, and public covariates are not of the people who have one"
        else:
            # The covariance of x y is at most E x x' minus the square of the mean of x y, as |y| <= 1 in coded units.
            varies = (public.second_moment - np.outer(private.cross, private.cross)) / private.people[1]
            by_share = private.share_noise * np.outer(private.cross, private.cross)
            own = half**2 * (private.cross_noise * np.eye(layout.size) + varies + by_share)
            spread = np.sqrt(np.maximum(np.diag(score_covariance(curve, public, values, middle, own)), 0.0))
            note = _SCORED.format(_LIKE if layout.observed else _PRESENT)
        return means.estimate(Estimate, values, DELTA if missing is None else LEAST_SQUARES, spread, note)

    return Fit(direction, missing, values, judge)


def _short(curve: Curve, mean: float | None) -> tuple[float, float]:
    """Return the limits of intercept a and factor c as ``x'w`` goes to 0, where the curve is nearly a line."""
    inside = 0.0 if mean is None else mean
    if mean is not None and not curve.low < mean < curve.high:
        top = curve.high if np.isfinite(curve.high) else 1.0
        inside = min(max(mean, curve.low + 1e-3), top - 1e-3)
    a = float(curve.inverse(np.array(inside))) if mean is not None else 0.0
    return a, 1.0 / max(float(curve.slope(np.array(a))), 1e-3)


@dataclass(frozen=True)
class _At:
    """Values at which the delta method linearizes."""

    means: _Means
    design: Design
    beta: Floats
    response: ResponseRange
    curve: Curve
    points: Floats
    shares: Floats
    people: float
    a: float
    c: float

    @property
    def values(self) -> Floats:
        """Coefficients in released coordinates."""
        constant = self.means.layout.constant
        slopes = self.response.half * self.beta[: len(self.beta) - constant]
        return np.append(self.c * slopes, [self.a] * constant)


def _errors(at: _At) -> Floats:
    """Return standard errors of the coded features' coefficients."""
    back = at.means.back
    errors = np.sqrt(np.maximum(np.diag(back @ _covariance(at) @ back.T), 0.0))
    distances = _selected(at)
    return errors if distances is None else errors * selection_factors(distances)


def _selected(at: _At) -> Floats | None:
    """Return distances from the noise; None without noise, as public rows have none, as nothing was selected."""
    chosen = at.means.layout.observed and not np.isfinite(at.people)
    return distances_from_noise(at.means.private) if chosen else None


def _covariance(at: _At) -> Floats:
    """Return the covariance of ``(c u, a)``."""
    to_beta, to_mean, to_root, seen = _derivatives(at)
    private, beta, share, matrix = at.means.private, at.beta, at.design.share, at.design.matrix
    inverse = np.linalg.inv(matrix)
    through = to_beta @ inverse
    # Derivative of the estimate by b = E x y, whose last entry is the mean of y.
    by_cross = through.copy()
    if at.means.layout.constant:
        by_cross[:, -1] += to_mean
    covariance = private.cross_noise * by_cross @ by_cross.T
    # If the target is one of the task's features, its constant part was not released, and has no noise.
    released, cross = beta.copy(), private.cross.copy()
    released[-1] -= private.centre
    cross[-1] -= private.centre
    noise = private.matrix_noise * np.outer(released, released)
    np.fill_diagonal(noise, private.matrix_noise @ released**2)
    covariance += share**2 * through @ noise @ through.T
    if private.share_noise > 0.0:
        # Both moments are divided by the share of targets, except the constant's own entry.
        scaled = private.matrix @ released
        scaled[-1] -= released[-1]
        by_share = share * through @ scaled - by_cross @ cross
        covariance += private.share_noise * np.outer(by_share, by_share)

    # Error from the sampling of people: residuals, and the variation of x x'.
    shares, fitted = at.shares, at.points @ beta
    residual = max(private.target_square - float(beta @ matrix @ beta), 0.0)
    covariance += residual / private.people[1] * by_cross @ matrix @ by_cross.T
    own = fitted[:, None] * (at.points @ (by_cross - share * through).T)
    covariance += _spread(own, shares) / private.people[1]
    # Error from the sampling of public covariates, in the matrix and in the root.
    if np.isfinite(at.people):
        theirs = -(1.0 - share) * fitted[:, None] * (at.points @ through.T) + seen @ to_root.T
        covariance += _spread(theirs, shares) / at.people
    return covariance


def _spread(rows: Floats, shares: Floats) -> Floats:
    centred = rows - shares @ rows
    return np.asarray((centred * shares[:, None]).T @ centred)


def _derivatives(at: _At) -> tuple[Floats, Floats, Floats, Floats]:
    """Return derivatives of ``(c u, a)`` by beta, E y and two means over public rows, and these means' terms by row."""
    layout, half, shares = at.means.layout, at.response.half, at.shares
    p, k = layout.size, layout.size - layout.constant
    features = at.points[:, :k]
    slopes = half * at.beta[:k]
    scores = features @ slopes
    z = at.a + at.c * scores
    mean, slope, bend = at.curve.mean(z), at.curve.slope(z), at.curve.bend(z)
    to_beta, to_mean = np.zeros((p, p)), np.zeros(p)
    to_beta[:k, :k] = at.c * half * np.eye(k)
    if at.curve.name == "identity":
        if layout.constant:
            to_beta[k, k] = half
        return to_beta, to_mean, np.zeros((p, 2)), np.zeros((len(z), 2))
    # G1 = mean f(a + c s) - mean y, G2 = c mean f'(a + c s) - 1. The columns of the Jacobian are for a and c.
    jacobian = np.array(
        [
            [shares @ slope, shares @ (slope * scores)],
            [at.c * (shares @ bend), shares @ slope + at.c * (shares @ (bend * scores))],
        ]
    )
    if not layout.constant:
        jacobian[0], jacobian[1, 0] = (1.0, 0.0), 0.0
    by_slopes = np.array([(shares * at.c * slope) @ features, (shares * at.c**2 * bend) @ features])
    seen = np.column_stack([mean, at.c * slope])
    if not layout.constant:
        by_slopes[0], seen[:, 0] = 0.0, 0.0
    back = -np.linalg.inv(jacobian)
    # Coefficients move with c along u, the intercept with a.
    lift = np.zeros((p, 2))
    lift[:k, 1] = slopes
    if layout.constant:
        lift[k, 0] = 1.0
    to_root = lift @ back
    to_beta[:, :k] += half * to_root @ by_slopes
    if layout.constant:
        to_mean = -half * to_root[:, 0]
    return to_beta, to_mean, to_root, seen


def _usable(private: Private, public: Rows) -> tuple[bool | None, str | None]:
    """Return whether public rows resemble people with a target (None: unknown), and why they are not used, if not."""
    like = _alike(private, public)
    if like is False:
        return like, _UNLIKE_ROWS
    return like, _OTHERS if private.missing > 0.0 else None


def _alike(private: Private, public: Rows) -> bool | None:
    """Test whether two second-moment matrices differ by noise and sampling only: one false alarm in 10,000.

    Returns None if the matrices are too large for the test.
    """
    p = len(private.matrix)
    if matrix_size(p) > MOST_NUMBERS:
        return None
    own = flattened(private.matrix)
    noise = np.diag(flattened(np.sqrt(private.matrix_noise)) ** 2)
    scaled = own.copy()
    # The constant's own entry is 1 for any share of targets.
    scaled[-1] = 0.0
    noise += private.share_noise * np.outer(scaled, scaled)
    rows = public.people if public.total is None else public.total
    drawn = (1.0 / private.people[0] + 1.0 / rows) * public.scatter
    return misfit(own - flattened(public.second_moment), noise + drawn) <= UNLIKE
