"""The model that a learner publishes for a round, the answers that devices compute at it, and their expectations.

With coded features x (the constant last), the published origin a and transform W, ``z = W x`` and ``t = x'a``:

- *score* ``r(y, t) c(z) z``, with ``c = min(1, R/|z|) / |z|`` and, for a binary target, ``r(1) = min(1, e^(-g t))``,
  ``r(0) = -min(1, e^(g t))``; for a real one ``r = (y - m) / w``, clipped to [-1, 1], with the published middle m and
  half width w; for classes see `classes`. A score's length is at most 1.
- *above-i*, at a model of a survey: 1 if ``z_j > c``, else -1. The i-th pair has a column j that the transform does not
  set to zero, and a threshold c of the model's list. If w is not 0, the constant's column stands for a real target:
  ``(y - m) / w`` takes the place of z_j, and the answer for a missing target is 0.
- *covered*, where prediction sets are asked for: 1 if the target is in the set of the published prediction at the
  published threshold, -1 if not, and 2 C - 1 for a missing target, C the nominal coverage.
- *scatter* ``1/2 z z' c(z)`` (0 for a missing target if people are weighted by their numbers of rows), and *curvature*
  ``w(t) z z' c(z)``, with ``w = p (1 - p) (r(1) - r(0))`` the slope of the score's mean in the logit, ``p`` the
  probability at t, and with ``M = min(R, 2 sqrt dim z)`` instead of R. At most M/2 in Frobenius norm; both are released
  as ``v v'``, ``v = sqrt(2 w c / M) z``, no longer than 1.

These bounds hold for any a, W, g and R: a hostile model costs accuracy, never privacy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from murk._internal.arrays import Floats, Integers, Words
from murk._internal.links import logistic
from murk._internal.wiping import copied, empty, track
from murk.protocols.device import HostileModelError
from murk.protocols.linear_algebra import contrasts
from murk.protocols.rows import Rows
from murk.protocols.scores import kernels
from murk.protocols.scores.kernels import LARGEST_LOGIT
from murk.protocols.scores.survey.coordinates import THRESHOLDS

if TYPE_CHECKING:
    from murk.protocols.mean_functions import CodedCurve

Query = str  # a name in ALL_QUERIES, or "above-i" for the i-th query of a survey
# Shares of people asked for a scatter and for a curvature, of several classes, until the moments are known.
FIRST_SHARES: Final = (0.375, 0.125)
QUERIES: Final[tuple[Query, ...]] = ("score", "scatter", "curvature")
ALL_QUERIES: Final[tuple[Query, ...]] = (*QUERIES, "covered")
ABOVE: Final = "above"  # begins the name of a survey's query

# Bounds far above honest models' coefficients in coded units and whitening factors.
_LARGEST_ORIGIN, _LARGEST_TRANSFORM = 1e4, 1e8
_NUMBERS = 7  # numbers of a published model besides its origin, its transform and its `SetQuery`
_LEAST_WIDTH = 1e-6  # least half width w of a model's targets
_LARGEST_THRESHOLD = 2.0  # the whole range of a coded target
LARGEST_CLIPPING_NORM: Final = 1e4  # the largest R, beyond all people's |z|: every ``c(z) z`` has length 1
_MATRIX_CLIPPING_NORM = 2.0  # largest M in units of the typical length sqrt p: a released matrix's noise grows with it


@dataclass(frozen=True)
class SetQuery:
    """The published prediction, and the threshold of its prediction sets.

    The set of a real target is the interval ``x'b +- t``; of classes, it has those with a probability of at least
    1 - t.
    """

    origin: Floats  # b, coefficients like a model's origin, (d,)
    threshold: float  # t: coded units of a real target, or a probability
    share: float  # share of people asked whether their target is inside


@dataclass(frozen=True)
class CoverageQuery:
    """The nominal coverage of prediction sets, and the share of people who are asked about them."""

    coverage: float
    share: float


@dataclass(frozen=True)
class Model:
    """One round's published model."""

    origin: Floats  # a, coefficients in coded units, (p,); for K classes their contrasts, ((K - 1) p,)
    transform: Floats  # W, (p, p)
    clipping_norm: float  # R: longer transformed features count for less in scores
    exponent: float  # g in [0, 1]: 1 is the balanced score, whose mean given x is 0 at the truth; 0 is the label's sign
    scatter: float  # share of people asked for a scatter
    curvature: float  # share of people asked for a curvature; all others release their score
    survey: int = 0  # index of the list of `THRESHOLDS` that all people are asked about; 0 for a model of scores
    middle: float = 0.0  # m, the middle of real targets
    width: float = 1.0  # w, their half width; 0 for a survey that does not ask about the target
    sets: SetQuery | None = None  # None in tasks without prediction sets

    def __getstate__(self) -> dict[str, Any]:
        # Cached properties are left out, as those of another version of the code may differ.
        return {name: value for name, value in self.__dict__.items() if name in Model.__dataclass_fields__}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update({name: value for name, value in state.items() if name in Model.__dataclass_fields__})

    @property
    def shares(self) -> dict[Query, float]:
        """Share of people asked each query."""
        if self.survey:
            return {above(item): 1.0 / self.items for item in range(self.items)}
        shares: dict[Query, float] = {"scatter": self.scatter, "curvature": self.curvature}
        if self.sets is not None:
            shares["covered"] = self.sets.share
        return {"score": 1.0 - self.scatter - self.curvature - shares.get("covered", 0.0), **shares}

    @property
    def flat(self) -> Floats:
        """The published vector: the origin, the transform by rows, seven numbers, and those of `SetQuery`, if any."""
        asked = [self.scatter, self.curvature, float(self.survey)]
        last = [self.clipping_norm, self.exponent, *asked, self.middle, self.width]
        numbers = np.concatenate([self.origin, self.transform.ravel(), last])
        if self.sets is None:
            return numbers
        return np.concatenate([numbers, self.sets.origin, [self.sets.threshold, self.sets.share]])

    @classmethod
    def of(cls, flat: Floats, features: int, *, sets: bool = False) -> Model:
        """Read the vector of `flat`, of a task with or without prediction sets."""
        set_query = None
        if sets:
            flat, rest = np.split(flat, [(len(flat) + features * features + _NUMBERS - 2) // 2])
            set_query = SetQuery(rest[:-2].copy(), float(rest[-2]), float(rest[-1]))
        origin, transform, last = np.split(flat, [-(features * features + _NUMBERS), -_NUMBERS])
        clipping_norm, exponent, scatter, curvature, survey, middle, width = map(float, last)
        square = transform.reshape(features, features).copy()
        return cls(
            origin.copy(), square, clipping_norm, exponent, scatter, curvature, int(survey), middle, width, set_query
        )

    @property
    def matrix_clipping_norm(self) -> float:
        """Length M: longer transformed features have less weight in matrices."""
        return min(self.clipping_norm, _MATRIX_CLIPPING_NORM * math.sqrt(len(self.transform)))

    @cached_property
    def surveyed(self) -> tuple[int, ...]:
        """Columns that a survey asks about; the last one stands for the target."""
        return tuple(np.flatnonzero([*np.diag(self.transform)[:-1], self.width]).tolist())

    @property
    def items(self) -> int:
        """Number of a survey's queries."""
        return len(self.surveyed) * len(THRESHOLDS[self.survey])

    def item(self, place: int) -> tuple[int, float]:
        """Return column and threshold of a survey's query."""
        column, threshold = divmod(place, len(THRESHOLDS[self.survey]))
        return self.surveyed[column], THRESHOLDS[self.survey][threshold]

    def coded(self, column: int, threshold: float) -> float:
        """Return a survey's threshold in coded units."""
        row = self.transform[column]
        if column == len(row) - 1:
            return self.middle + threshold * self.width
        return float((threshold - row[-1]) / row[column])

    @cached_property
    def back(self) -> Floats:
        """Inverse of the transform, (p, p)."""
        return np.asarray(np.linalg.inv(self.transform))

    @cached_property
    def thresholds(self) -> tuple[int, int, int]:
        """Limits below which a random 64-bit word asks for a scatter, for any matrix, and for anything but a score."""
        matrix = self.scatter + self.curvature
        shares = (self.scatter, matrix, matrix + (0.0 if self.sets is None else self.sets.share))
        first, second, third = (min(int(share * 2.0**64), 2**64 - 1) for share in shares)
        return first, second, third

    def rounded(self) -> Model:
        """Return the model to 9 significant digits, as the last ones differ between linear algebra libraries."""
        flat = np.array([float(f"{value:.9g}") for value in self.flat])
        return Model.of(flat, len(self.transform), sets=self.sets is not None)


def model_size(features: int, contrasts: int = 1, *, sets: bool = False) -> int:
    """Return the length of a published model."""
    origin = contrasts * features
    return origin + features * features + _NUMBERS + sets * (origin + 2)


def query_at(place: int) -> Query:
    """Return the query at an index: those of `ALL_QUERIES`, then a survey's."""
    return ALL_QUERIES[place] if place < len(ALL_QUERIES) else above(place - len(ALL_QUERIES))


def above(item: int) -> Query:
    """Return the name of a survey's query."""
    return f"{ABOVE}-{item}"


def item_of(query: Query) -> int | None:
    """Return the number of a survey's query; None for any other."""
    name, _, item = query.partition("-")
    return int(item) if name == ABOVE else None


def drawn_queries(words: Words, model: Model) -> Integers:
    """Return each person's query, as an index for `query_at`, from a random word each and the model's shares."""
    if model.survey:
        # The product of two 32-bit numbers fits 64 bits.
        items = (words >> np.uint64(32)) * np.uint64(model.items) >> np.uint64(32)
        return np.asarray(len(ALL_QUERIES) + items.astype(np.int64))
    scatter, matrix, covered = model.thresholds
    return np.where(words < scatter, 1, np.where(words < matrix, 2, np.where(words < covered, 3, 0)))


def check_model(flat: Floats, features: int, contrasts: int = 1, *, matrices: bool = True, sets: bool = False) -> Model:
    """Return a published vector as a model; raise HostileModelError for one that no honest learner publishes."""
    flat = np.asarray(flat, dtype=np.float64)
    size = model_size(features, contrasts, sets=sets)
    if flat.shape != (size,):
        raise HostileModelError(f"the model has {flat.size} numbers, the task's has {size}: refused")
    if not np.all(np.isfinite(flat)):
        raise HostileModelError("the model holds numbers that are not finite: refused")
    if flat[contrasts * features + features * features + _NUMBERS - 3] not in range(len(THRESHOLDS)):
        raise HostileModelError("the number of the model's list of survey thresholds is unknown: refused")
    model = Model.of(flat, features, sets=sets)
    if model.survey and not model.surveyed:
        raise HostileModelError("the model asks about no feature: refused")
    if abs(model.middle) > 1.0 or not (0.0 if model.survey else _LEAST_WIDTH) <= model.width <= 1.0:
        words = f"the model's targets {model.middle:g} +- {model.width:g} are not within [-1, 1]: refused"
        raise HostileModelError(words)
    limits = [("origin", model.origin, _LARGEST_ORIGIN), ("transform", model.transform, _LARGEST_TRANSFORM)]
    if model.sets is not None:
        limits.append(("prediction", model.sets.origin, _LARGEST_ORIGIN))
    for name, values, most in limits:
        if np.max(np.abs(values)) > most:
            raise HostileModelError(f"the model's {name} holds numbers beyond {most:g}: refused")
    if not 0 < model.clipping_norm <= LARGEST_CLIPPING_NORM:
        raise HostileModelError(
            f"the model's clipping norm {model.clipping_norm:g} is not between 0 and {LARGEST_CLIPPING_NORM:g}: refused"
        )
    if not 0 <= model.exponent <= 1:
        raise HostileModelError(f"the model's exponent {model.exponent:g} is not between 0 and 1: refused")
    if model.sets is not None and not 0 <= model.sets.threshold <= _LARGEST_THRESHOLD:
        raise HostileModelError(
            f"the model's threshold {model.sets.threshold:g} is not between 0 and {_LARGEST_THRESHOLD:g}: refused"
        )
    covered = 0.0 if model.sets is None else model.sets.share
    if not (min(model.scatter, model.curvature, covered) >= 0 and model.scatter + model.curvature + covered <= 1):
        raise HostileModelError("the model's shares of queries are negative or exceed 1: refused")
    if model.thresholds[1] and not matrices:
        raise HostileModelError("the model asks for matrices, which nobody releases in this task: refused")
    return model


def probability(logit: Floats) -> Floats:
    """Return ``1 / (1 + e^-t)``, with logits clipped as in kernels."""
    return logistic(np.minimum(np.maximum(logit, -LARGEST_LOGIT), LARGEST_LOGIT))


@dataclass(frozen=True)
class Response:
    """How a target enters a score: binary targets by r(y, t), real ones as they are, in [-1, 1]."""

    binary: bool  # whether the target is binary
    classes: int = 0  # K for a target of K classes, else 0
    # mean function other than the logistic one or the line; for answers at a model of zeros only
    curve: CodedCurve | None = None
    # Whether people are weighted by their numbers of rows: added rows have no target, and count in no matrix.
    weighed: bool = False

    def level(self, logit: Floats) -> Floats:
        """Return the probability, or the coded real target's mean, at ``x'theta``."""
        if self.curve is None:
            return probability(logit) if self.binary else logit
        return self.curve.mean(logit)

    def steep(self, logit: Floats) -> Floats:
        """Return the derivative of `level` with respect to the logit."""
        return self.level_and_steep(logit)[1]

    def level_and_steep(self, logit: Floats) -> tuple[Floats, Floats]:
        """Return `level` and `steep`."""
        level = self.level(logit)
        if self.curve is None:
            return level, level * (1.0 - level) if self.binary else np.ones_like(level)
        return level, self.curve.slope(logit)

    def answers(self, logit: Floats, exponent: float) -> tuple[Floats, Floats]:
        """Return r(1) and r(0) at a logit; for a real target the scores' factors at y = 1 and y = -1."""
        if not self.binary:
            return np.ones_like(logit), -np.ones_like(logit)
        bounded = exponent * np.clip(logit, -LARGEST_LOGIT, LARGEST_LOGIT)
        return np.minimum(1.0, np.exp(-bounded)), -np.minimum(1.0, np.exp(bounded))

    @cached_property
    def basis(self) -> Floats:
        """The matrix (K, c) from contrasts, or from the log odds of a binary target, to each class's log odds."""
        return contrasts(self.classes) if self.classes else np.array([[0.0], [1.0]])

    def weights(self, logit: Floats, exponent: float) -> Floats:
        """Return w(t), at most 1/2."""
        if not self.binary:
            return np.full_like(logit, 0.5)
        high, low = self.answers(logit, exponent)
        p = probability(logit)
        return np.asarray(p * (1.0 - p) * (high - low))


def directions(X: Floats, model: Model, clipping_norm: float | None = None) -> Floats:
    """Return ``c(z) z`` of coded rows, (m, p), no longer than 1, at ``clipping_norm``, by default the model's."""
    Z = X @ model.transform.T
    length = np.sqrt(np.einsum("ij,ij->i", Z, Z))
    with np.errstate(divide="ignore", invalid="ignore"):
        factor = np.where(length > 0, np.minimum(1.0, (clipping_norm or model.clipping_norm) / length) / length, 0.0)
    return np.asarray(Z * factor[:, None])


def vectors(X: Floats, y: Floats, model: Model, response: Response, query: Query, coverage: float = 0) -> Floats:
    """Return the mechanism's inputs for coded records, (m, p): scores, or the v of matrices ``v v'`` in units of M/2.

    Missing targets (NaN) give zeros except in a scatter, so that the ratio of curvatures to scatters is the share of
    targets present. If people are weighted by their numbers of rows, missing targets give zeros in scatters as well:
    then answers to all queries weight people alike. The query ``covered`` has the input 1 if the target is inside the
    set, else -1, (m, 1), and 2 ``coverage`` - 1 for a missing target, which leaves the threshold unbiased.
    """
    X, y = copied(X), copied(y)
    item = item_of(query)
    if item is not None:
        return _above(X, y, model, item)
    if not (response.binary or response.classes):
        y -= model.middle
        y /= model.width
    if query == "covered":
        sets, out = model.sets, empty((len(X), 1))
        assert sets is not None
        classes = len(response.basis) if response.binary or response.classes else 0
        kernels.covered(X, y, sets.origin, sets.threshold, response.basis, classes, 2.0 * coverage - 1.0, out)
        return out
    p = len(model.transform)
    if response.classes and query == "score":
        out, origin = empty((len(X), len(model.origin))), model.origin
        kernels.class_scores(X, y, origin, model.transform, model.clipping_norm, model.exponent, response.basis, out)
        return out
    if query == "scatter" and response.weighed:
        X[np.isnan(y)] = 0.0
    out = empty((len(X), p))
    clipping_norm, index = model.clipping_norm if query == "score" else model.matrix_clipping_norm, QUERIES.index(query)
    kernels.vectors(X, y, model.origin[:p], model.transform, clipping_norm, model.exponent, response.binary, index, out)
    return out


def _above(X: Floats, y: Floats, model: Model, item: int) -> Floats:
    column, threshold = model.item(item)
    row, out = model.transform[column], empty((len(X), 1))
    # With a hostile model numbers may overflow to infinity or NaN.
    with np.errstate(all="ignore"):
        if column == len(row) - 1:
            out[:, 0] = y
            out -= model.middle
            out /= model.width
        else:
            np.multiply(X[:, column : column + 1], row[column], out=out)
            out += row[-1]
    out[:] = track(np.where(out > threshold, 1.0, np.where(np.isnan(out), 0.0, -1.0)))
    return out


def with_constant(rows: Floats) -> Floats:
    """Return coded features with the constant; non-finite values count as 0."""
    coded = empty((len(rows), rows.shape[1] + 1))
    coded[:, -1] = 1.0
    coded[:, :-1] = track(np.where(np.isfinite(rows), rows, 0.0))
    return coded


_ROWS = 768  # approximate number of normal rows
_RAREST = 0.01  # least share of either value among rows
_GOLDEN = (5.0**0.5 - 1.0) / 2.0
_KEY = 0x6D75726B


def normal_rows(moment: Floats, along: Floats | None = None, coins: NDArray[np.bool_] | None = None) -> Rows:
    """Return fixed normal rows with a second moment (p, p) whose last entry, of the constant, is 1.

    The columns ``coins``, (p - 1,), have the values -1 and 1 alone: 1 where the normal value is largest. If their
    second moment is less than 1, some of their values are missing, and 0.

    The draws are always the same, so that results depend smoothly on the moment, and balanced around the direction
    of the coefficients ``along`` (p,), on which results depend most.
    """
    p = len(moment)
    mean = moment[:-1, -1]
    root = power(moment[:-1, :-1] - np.outer(mean, mean), 0.5)
    normals = _normals(p - 1)
    if along is not None and p > 1:
        normals = _turned(normals, root @ along[:-1])
    points = np.ones((len(normals), p))
    points[:, :-1] = mean + normals @ root
    for column in np.flatnonzero(coins) if coins is not None else ():
        there = min(max(float(moment[column, column]), abs(float(mean[column])), 2.0 * _RAREST), 1.0)
        ends = np.clip((there + np.array([-1.0, 1.0]) * mean[column]) / 2.0, _RAREST, 1.0 - _RAREST)
        low, high = (round(float(share) * len(points)) for share in ends)
        order, ranks = np.argsort(points[:, column]), np.arange(len(points))
        points[order, column] = np.where(ranks < low, -1.0, np.where(ranks < len(points) - high, 0.0, 1.0))
    return Rows(points, np.full(len(points), 1.0 / len(points)))


@lru_cache(maxsize=8)
def _normals(size: int) -> Floats:
    """Return fixed quasi-random standard normal rows (m, size), with mean 0 and the identity as second moment.

    The first coordinate takes evenly spaced quantiles, at each of which the others are plus and minus the vectors of a
    random orthogonal frame.
    """
    # Loading it is slow, and most processes do not need it.
    from scipy import special

    other = max(size - 1, 0)
    layers = max(_ROWS // max(2 * other, 1), 32)
    quantiles = special.ndtri((np.arange(layers) + 0.5) / layers)
    if not other:
        normals = quantiles[:, None][:, :size]
        return np.asarray(normals / np.sqrt(np.mean(normals**2, axis=0)))
    words = np.random.Philox(key=_KEY).random_raw(layers * other * other)
    uniform = (words >> np.uint64(11)).astype(np.float64) * 2.0**-53 + 2.0**-54
    frames = np.linalg.qr(special.ndtri(uniform).reshape(layers, other, other))[0]
    # Lengths are those of normal rows, in an order unrelated to the first number.
    rank = np.minimum(np.arange(layers), np.arange(layers)[::-1]) + 0.5
    lengths = np.sqrt(2.0 * special.gammaincinv(other / 2.0, rank * _GOLDEN % 1.0))
    frames = frames * lengths[:, None, None]
    ends = np.concatenate([frames, -frames], axis=1)
    first = np.broadcast_to(quantiles[:, None, None], (layers, 2 * other, 1))
    normals = np.concatenate([first, ends], axis=2).reshape(-1, size)
    return np.asarray(normals / np.sqrt(np.mean(normals**2, axis=0)))


def _turned(normals: Floats, along: Floats) -> Floats:
    """Return rows reflected so that their first axis lies along a direction."""
    length = float(np.linalg.norm(along))
    if not length > 0.0:
        return normals
    mirror = along / length - np.eye(len(along))[0]
    square = float(mirror @ mirror)
    if square < 1e-12:
        return normals
    return np.asarray(normals - np.outer(normals @ mirror, 2.0 / square * mirror))


def power(matrix: Floats, exponent: float, least: float = 1e-12) -> Floats:
    """Return a power of a symmetric matrix, its eigenvalues raised to at least ``least`` times the largest."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2.0)
    values = np.maximum(values, max(least * float(values[-1]), 1e-300)) if len(values) else values
    return np.asarray((vectors * values**exponent) @ vectors.T)


def inverse(matrix: Floats) -> Floats:
    """Return the inverse of a matrix, float64."""
    return np.asarray(np.linalg.inv(matrix), dtype=np.float64)


@dataclass(frozen=True)
class Expected:
    """The mean score of a round as a function of the coefficients theta.

    ``G(theta) = mean m(x, theta) c(z) z``, with ``m = q r(1) + (1 - q) r(0)`` for a binary target of probability q at
    ``x'theta``, and ``m = x'theta``, or its link's mean, for a real one.
    """

    rows: Rows  # the covariates
    directions: Floats  # ``c(z) z`` of each row, (m, p)
    high: Floats  # r(1) of each row, (m,)
    low: Floats  # r(0) of each row, (m,)
    response: Response  # how the target enters a score

    @classmethod
    def of(cls, model: Model, rows: Rows, response: Response) -> Expected:
        """Return the expectation at one round's model."""
        high, low = response.answers(rows.points @ model.origin, model.exponent)
        return cls(rows, directions(rows.points, model), high, low, response)

    def score(self, logit: Floats) -> Floats:
        """Return the expected mean score G at ``logit``, the logits of the rows."""
        return np.asarray(self.directions.T @ (self.rows.shares * self._mean(logit)))

    def slope(self, logit: Floats) -> Floats:
        """Return the derivative of the expected mean score by theta, (p, p)."""
        steep = self.response.steep(logit)
        if self.response.binary:
            steep = steep * (self.high - self.low)
        return np.asarray(self.directions.T @ ((self.rows.shares * steep)[:, None] * self.rows.points))

    def spread(self, logit: Floats) -> Floats:
        """Return the second moment of scores, ``r^2 c^2 z z'``, (p, p), which is an upper bound on their covariance."""
        if self.response.binary:
            q = np.clip(self.response.level(logit), 0.0, 1.0)
            square = q * self.high**2 + (1.0 - q) * self.low**2
        else:
            square = np.ones_like(logit)
        return np.asarray((self.directions * (self.rows.shares * square)[:, None]).T @ self.directions)

    @cached_property
    def square(self) -> Floats:
        """Mean of ``c^2 z z'``, (p, p)."""
        return np.asarray((self.directions * self.rows.shares[:, None]).T @ self.directions)

    @property
    def level(self) -> tuple[Floats, Floats]:
        """Mean answer m of each row at probability 0 (for a real target, at mean 0), and its increase up to 1."""
        if not self.response.binary:
            return np.zeros_like(self.high), np.ones_like(self.high)
        return self.low, self.high - self.low

    def _mean(self, logit: Floats) -> Floats:
        q = self.response.level(logit)
        if not self.response.binary:
            return q
        return np.asarray(q * self.high + (1.0 - q) * self.low)


def mean_matrix(model: Model, rows: Rows, response: Response, *, flat: bool = False) -> Floats:
    """Return the mean of ``w(t) z z' c(z)``, (p, p); with ``flat``, w is 1/2, as for scatters."""
    Z = rows.points @ model.transform.T
    reached = directions(rows.points, model, model.matrix_clipping_norm)
    weight = np.full(len(Z), 0.5) if flat else response.weights(rows.points @ model.origin, model.exponent)
    product = (reached * (rows.shares * weight)[:, None]).T @ Z
    return np.asarray((product + product.T) / 2.0)
