"""Second moments of the covariates from released matrices, and corrections of the curvature over rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from murk._internal.arrays import Floats
from murk.inference.estimate import Extent
from murk.protocols.rows import Rows
from murk.protocols.scores.model import Model, Response, inverse, mean_matrix, normal_rows, power
from murk.protocols.scores.sums import Answer, Summaries, Summary
from murk.protocols.scores.survey.coordinates import UNTOLD, Coordinates

# Second moment in surveyed coordinates beyond which the survey is contradicted: the spread is three times as large.
_CONTRADICTED = 9.0
UNLIKELY = 4.75  # standard deviations with one false alarm in a million
_SIGNIFICANT = 2.0  # standard errors from which a mean square's excess over its noise counts
_EVEN = 0.5  # features count as isotropic where their moments' numbers differ by less than this part of the mean
_ROUNDS = 2  # approximations of the moments, each with rows that have the category shares of the one before
# Prior standard deviations: of the ratio of released matrices to those of normal rows, of a surveyed feature's second
# moment and mean in addition to the survey's errors, and of the constant's excess if there was no survey.
_SHAPE, _SPREAD, _MEAN, _CONSTANT = 0.1, 0.25, 0.1, 3.0
_SURELY = 2.0  # standard errors, of the survey's and of the matrices', beyond which a surveyed spread is too large
_TRUSTED = 0.25  # least standard error of a surveyed centre in units of the spread, and of the spread's logarithm
_CORRECTIONS = 3  # corrections of overstated spreads, as the matrices of people unlike the survey differ in length
_CORRECTED = 1.0  # prior standard deviation of the moments of a feature whose spread is from released matrices


@dataclass(frozen=True)
class Frame:
    """Coordinates x' = T x of known centre and spread, and what is known of their second moments."""

    transform: Floats  # T, (p, p)
    moment: Floats  # expected second moment of x', (p, p)
    doubts: Floats  # standard deviations of the moment's entries, (p, p); NaN if only released matrices determine them
    told: NDArray[np.bool_]  # whether each feature's spread is known to exceed zero, (p - 1,)
    # Published centres of columns that have the values -1 and 1 alone, (p - 1,), NaN of others; None without a survey
    coins: Floats | None

    @classmethod
    def of(cls, coordinates: Coordinates, corrected: NDArray[np.bool_] | None = None) -> Frame:
        """Return the frame of a survey's coordinates.

        In x', all features but categories have variance 1, up to the survey's errors; a category's variance follows
        from its centre. Centre and spread of ``corrected`` features, (p - 1,), are from released matrices, not from the
        survey.
        """
        centre, coded = coordinates.centre, coordinates.log_spread_error == 0.0
        # A survey has few answers, of which a few forgers may give many.
        error = np.where(
            coded, coordinates.centre_error, np.maximum(coordinates.centre_error, _TRUSTED * coordinates.spread)
        )
        of_log = np.where(coded, 0.0, np.maximum(coordinates.log_spread_error, _TRUSTED))
        p = len(centre) + 1
        # Around a centre m, a mean m + d gives the second moment 1 - m^2 - 2 m d. Expected means stay within what a
        # column of -1 and 1 can have.
        most = np.maximum(1.0 - error / 2.0, 0.5)
        mean = np.where(coded, np.clip(centre, -most, most) - centre, 0.0)
        variance = np.where(coded, np.maximum(1.0 - centre**2 - 2.0 * centre * mean, _RAREST), 1.0)
        wrong = np.where(coded, 2.0 * np.abs(centre) * error + error**2, 2.0 * of_log)
        moment, doubts = np.diag(np.append(variance, 1.0)), np.full((p, p), np.nan)
        moment[:-1, -1] = moment[-1, :-1] = mean
        np.fill_diagonal(doubts, np.append(np.hypot(wrong, _SPREAD * variance), 0.0))
        doubts[:-1, -1] = doubts[-1, :-1] = np.hypot(error / coordinates.spread, _MEAN * np.sqrt(variance))
        at = np.flatnonzero(np.zeros(0) if corrected is None else corrected)
        doubts[at, at] = doubts[at, -1] = doubts[-1, at] = _CORRECTED
        return cls(
            coordinates.transform,
            moment,
            doubts,
            coordinates.log_spread_error < UNTOLD,
            np.where(coded, centre, np.nan),
        )

    @classmethod
    def isotropic(cls, base: Floats) -> Frame:
        """Return a frame without a survey: isotropic features, except as far as released matrices show otherwise."""
        doubts = np.full(base.shape, np.nan)
        doubts[-1, -1] = _CONSTANT
        # The last coordinate is that of the constant.
        return cls(
            facing(base[:, -1])[::-1] @ base, np.eye(len(base)), doubts, np.ones(len(base) - 1, dtype=bool), None
        )

    @property
    def surveyed(self) -> bool:
        """Whether x' has known centres and spreads."""
        return self.coins is not None

    def with_coins_of(self, moment: Floats) -> Floats:
        """Return the expected moment of x', (p, p), with the entries of ``moment`` for columns of -1 and 1."""
        out = self.moment.copy()
        if self.coins is not None:
            coins = np.flatnonzero(np.isfinite(self.coins))
            out[coins, coins], out[coins, -1], out[-1, coins] = (
                moment[coins, coins],
                moment[coins, -1],
                moment[-1, coins],
            )
        return out

    def rows(self, moment: Floats, along: Floats | None = None) -> Rows:
        """Return rows with the second moment ``moment`` of x, (p, p), normal except in columns of -1 and 1."""
        return normal_rows(moment, along, None if self.coins is None else np.isfinite(self.coins))

    @cached_property
    def metric(self) -> Floats:
        """Matrix Q, (p, p): ``theta'Q theta`` is the squared length of x' coefficients, for theta in coded units."""
        if not self.surveyed:
            return np.eye(len(self.moment))
        back = inverse(self.transform)
        return np.asarray(back @ back.T)

    @cached_property
    def scales(self) -> Floats:
        """Changes of the coefficients in coded units by a change of length 1 of those of x', (p,)."""
        return np.sqrt(np.diag(inverse(self.metric)))


@dataclass(frozen=True)
class Moments:
    """The covariates' second moments, from released matrices and from a survey, if there was one."""

    moment: Floats  # second moment of x, scaled so that the constant's is 1
    shape: Floats  # second moment of ``B x``, of mean eigenvalue 1
    scale: float  # factor of ``B x`` for a typical length of sqrt p
    settled: bool  # whether ``B x`` is spread evenly enough over all directions
    base: Floats  # B, the newest round's unstretched coordinates, (p, p)
    frame: Frame
    kept: float = 0.0  # share kept of the matrices' differences from the expected moments, and of their noise
    # Standard deviations of the remaining errors of the moments of x', (p, p)
    errors: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    estimated: Floats = field(default_factory=lambda: np.zeros((0, 0)))  # moments of x', perhaps not definite, (p, p)
    # Whether released matrices show a much larger spread of each feature than the survey, whose people may have been
    # alike, (p - 1,)
    understated: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=bool))

    @classmethod
    def of(cls, found: Summaries, response: Response, coordinates: Coordinates | None = None) -> Moments:
        """Return the moments by all rounds' released scatters, shrunk towards the expected ones, more if noisier."""
        newest = found[-1].model
        base = unstretched(newest)
        if coordinates is None:
            frame, understated = Frame.isotropic(base), np.zeros(len(base) - 1, dtype=bool)
            moments = _known(frame, found, response, 1)
        else:
            frame = Frame.of(coordinates)
            moments = _known(frame, found, response, _ROUNDS)
            understated = _contradicted(frame, moments.estimated, moments.errors)
            wrong = np.zeros(len(coordinates.centre), dtype=bool)
            for _ in range(_CORRECTIONS):
                corrected = _corrected(coordinates, moments)
                if corrected is None:
                    break
                coordinates, wrong = corrected[0], wrong | corrected[1]
                frame = Frame.of(coordinates, wrong)
                moments = _known(frame, found, response, _ROUNDS)
        moment, estimated, kept, errors, ratio = moments
        p, back = len(base), inverse(frame.transform)
        into = base @ back
        shape = into @ moment @ into.T
        shape *= p / float(np.trace(shape))
        rough = math.sqrt(float(np.sum((shape - np.eye(p)) ** 2)) / (p * (p + 1) / 2))
        moment = _of_constant(back @ moment @ back.T)
        plain = Model(np.zeros(len(newest.origin)), base, newest.clipping_norm, 1.0, 0.0, 0.0)
        # If people are weighted by their rows, the ratio is mostly that of their rows to the largest number that
        # counts.
        ratio = 1.0 if response.weighed else ratio
        length = 2.0 * ratio * float(np.trace(mean_matrix(plain, frame.rows(moment), response, flat=True)))
        settled = len(found) > 1 and rough < _EVEN
        return cls(moment, shape, math.sqrt(p) / length, settled, base, frame, kept, errors, estimated, understated)

    def doubts(self, onto: Floats, expected: Floats) -> Floats:
        """Return the error variances of a matrix ``expected``, (p, p), that is predicted in coordinates ``onto``."""
        if not self.frame.surveyed:
            return np.zeros_like(expected)
        into = onto @ inverse(self.frame.transform)
        factor = float(np.trace(expected)) / float(np.trace(onto @ self.moment @ onto.T))
        return np.asarray(factor**2 * into**2 @ self.errors**2 @ (into**2).T)

    @cached_property
    def unseen(self) -> NDArray[np.bool_]:
        """Whether each feature's spread, or a category's share, is under two standard errors from zero, (p - 1,)."""
        at = self.estimated
        means = at[:-1, -1]
        variance = np.diag(at)[:-1] - means**2
        if self.frame.coins is None:
            return np.zeros(len(variance), dtype=bool)
        errors, coins = np.diag(self.errors)[:-1], np.isfinite(self.frame.coins)
        # The standard error of a spread is that of the variance over twice the spread; a share is linear in it.
        error = np.where(coins, 2.0 * errors, np.hypot(errors, 2.0 * means * self.errors[:-1, -1]))
        least = np.where(coins, 1.0 - _WHOLE**2, 0.0) + error
        hidden = variance < np.maximum(least, 2.0 * _SMALLEST * np.diag(self.frame.moment)[:-1])
        return np.asarray(hidden | ~self.frame.told)

    @cached_property
    def withheld(self) -> NDArray[np.bool_]:
        """Whether the coefficient of each feature has no interval, (p - 1,), as no answers support one.

        If released matrices contradict the coordinates at which people answered, the answers tell little about any
        feature, unless a correction agrees with the matrices and shows the feature's spread.
        """
        still = _contradicted(self.frame, self.estimated, self.errors).any()
        return np.asarray(self.unseen | still | (self.unseen[: len(self.understated)] & self.understated).any())

    @cached_property
    def hidden(self) -> Floats:
        """Matrix H, (p, p): ``theta'H theta`` is the variance of the unseen features' part of x'theta, as expected."""
        weights = np.append(self.unseen * np.diag(self.frame.moment)[:-1], 0.0)
        return np.asarray((self.frame.transform.T * weights) @ self.frame.transform)


class _Known(NamedTuple):
    """Moments of x' by a frame and released matrices; see `Moments`."""

    moment: Floats  # positive definite
    estimated: Floats  # the estimate itself, perhaps not definite
    kept: float
    errors: Floats
    ratio: float  # of released matrices to those of normal rows


def _known(frame: Frame, found: Summaries, response: Response, approximations: int) -> _Known:
    """Return the moments of x' by a frame and all released matrices."""
    back, newest = inverse(frame.transform), found[-1].model
    moments = _Known(frame.moment, frame.moment, 0.0, np.nan_to_num(frame.doubts), 1.0)
    for _ in range(approximations):
        at = frame.with_coins_of(moments.estimated)
        rows = frame.rows(_of_constant(back @ at @ back.T), np.array(newest.origin))
        together = _scatters(found, response, rows, frame.transform)
        if together is None:
            break
        moments = _posterior(frame, together, at, weighed=response.weighed)
    return moments


def _contradicted(frame: Frame, estimated: Floats, errors: Floats) -> NDArray[np.bool_]:
    """Return whether released matrices show that each feature's surveyed spread is far too small, (p - 1,)."""
    if frame.coins is None:
        return np.zeros(len(estimated) - 1, dtype=bool)
    square, error = np.diag(estimated)[:-1], np.diag(errors)[:-1]
    return np.asarray(~np.isfinite(frame.coins) & (square > _CONTRADICTED) & (square - 1.0 > UNLIKELY * error))


def _corrected(coordinates: Coordinates, known: _Known) -> tuple[Coordinates, NDArray[np.bool_]] | None:
    """Return coordinates with the centres and spreads that released matrices show, and which features have new ones.

    Few forgers can move a centre and overstate a spread while people answer the survey. That would hide the feature:
    its coefficient of x' would be too large for the prior. Also, the first people may be alike in a feature in which
    later people differ. Returns None if the matrices do not contradict the survey of any number.
    """
    mean, mean_error = known.estimated[:-1, -1], known.errors[:-1, -1]
    variance = np.diag(known.estimated)[:-1] - mean**2
    error = np.hypot(np.diag(known.errors)[:-1], 2.0 * mean * mean_error)
    numbers = coordinates.log_spread_error > 0.0
    least = np.exp(-2.0 * _SURELY * np.maximum(coordinates.log_spread_error, _TRUSTED))
    narrower = numbers & (variance + _SURELY * error < least)
    wider = numbers & (variance > _CONTRADICTED) & (variance - 1.0 > UNLIKELY * error)
    wrong = narrower | wider | numbers & (np.abs(mean) > _SURELY * mean_error + _TRUSTED)
    if not wrong.any():
        return None
    # While noise hides a spread, it is at most as large as the noise.
    spread = np.where(narrower | wider, np.sqrt(np.maximum(variance, error)), 1.0) * coordinates.spread
    centre = coordinates.centre + np.where(wrong, mean * coordinates.spread, 0.0)
    return replace(coordinates, centre=centre, spread=spread), wrong


def _of_constant(moment: Floats) -> Floats:
    """Return a second moment scaled so that the constant's is 1."""
    return np.asarray(moment / moment[-1, -1])


def _posterior(frame: Frame, together: Pooled, at: Floats, *, weighed: bool) -> _Known:
    """Return the posterior moments of x', given the pooled matrices ``together``.

    Near the moments ``at`` released matrices are linear in the moments, with a factor by their traces. If people are
    weighted by their numbers of rows (``weighed``), this factor has no prior.
    """
    free = np.isnan(frame.doubts)
    # While released matrices are mostly noise, even their trace may not be positive.
    least = math.sqrt(float(np.mean(together.variances)) / len(at)) / (float(np.trace(together.expected)) / len(at))
    factors = np.sqrt(np.diag(together.expected) / np.diag(at))
    factor = np.outer(factors, factors) if frame.surveyed else np.sum(together.expected * at) / np.sum(at * at)
    determined = np.where(free, 0.0, frame.doubts) * factor
    doubtful = together.variances + determined**2
    precisions, sure = together.expected / doubtful, _SHAPE**-2 if frame.surveyed and not weighed else 0.0
    ratio = float(np.sum(precisions * together.measured)) + sure
    ratio = max(ratio / (float(np.sum(precisions * together.expected)) + sure), least)
    variances = together.variances / (ratio * factor) ** 2
    raw = at + (together.measured - ratio * together.expected) / (ratio * factor)
    rest = raw - frame.moment
    square = float(np.mean(rest[free] ** 2 / variances[free])) if free.any() else 0.0
    size = float(np.sum(np.triu(free)))
    excess = _significant_excess(square, size)
    spread = np.where(free, excess * variances, np.nan_to_num(frame.doubts) ** 2)
    shares = spread / (spread + variances)
    posterior, errors = frame.moment + shares * rest, np.sqrt(shares * variances)
    if frame.coins is not None:
        _set_coins(frame, raw, variances, posterior, errors)
    root = power(frame.moment, 0.5)
    out = power(frame.moment, -0.5)
    values, vectors = np.linalg.eigh(out @ posterior @ out)
    values = np.maximum(values, max(0.5 * math.sqrt(float(np.mean(variances))), _SMALLEST if frame.surveyed else 1e-3))
    moment = root @ (vectors * values) @ vectors.T @ root
    return _Known(moment, posterior, float(np.mean(shares)), errors, ratio)


def _set_coins(frame: Frame, raw: Floats, variances: Floats, posterior: Floats, errors: Floats) -> None:
    """Set the moments and errors of columns of -1 and 1, and 0 where missing, from their means and missing shares.

    At the centre c, a mean c + d and the missing share w make the second moment ``1 - w - c^2 - 2 c d`` around c.
    """
    # Loading it is slow, and most processes do not need it.
    from scipy.special import ndtr

    assert frame.coins is not None
    most = np.minimum(1.0 - _MISSING_SHARES, _WHOLE)
    for j in np.flatnonzero(np.isfinite(frame.coins)).tolist():
        centre, doubt, before = float(frame.coins[j]), float(frame.doubts[j, -1]), float(frame.moment[j, -1])
        slope, at = -2.0 * centre, raw[j, -1]
        # By missing share: the moment at d = 0, the error of both, and the normal posterior of d.
        start = np.maximum(1.0 - _MISSING_SHARES - centre**2, 0.0)
        slack = _COIN * np.maximum(start, _RAREST)
        rest, square, mean = raw[j, j] - start, variances[j, j] + slack**2, variances[j, -1] / 2.0
        precision = doubt**-2 + slope**2 / square + 1.0 / mean
        shift = (slope * rest / square + at / mean + before / doubt**2) / precision
        misfit = (rest - slope * shift) ** 2 / square + (at - shift) ** 2 / mean + ((before - shift) / doubt) ** 2
        # A mean lies within plus and minus the share that is present.
        possible = ndtr((most - np.abs(centre + shift)) * np.sqrt(precision)) + 1e-12
        weights = _MISSING_PRIOR * possible * np.exp((misfit.min() - misfit) / 2.0) / np.sqrt(square * precision)
        weights /= weights.sum()
        shift = np.clip(shift, -most - centre, most - centre)
        moments = start + slope * shift
        posterior[j, j], posterior[j, -1] = weights @ moments, weights @ shift
        posterior[-1, j] = posterior[j, -1]
        within = np.array([slope**2 / precision + slack**2 / 4.0, 1.0 / precision])
        between = np.array([moments - posterior[j, j], shift - posterior[j, -1]]) ** 2
        errors[j, j], errors[j, -1] = np.sqrt((within + between) @ weights)
        errors[-1, j] = errors[j, -1]


def _significant_excess(square: float, size: float) -> float:
    """Return the excess over 1 of the mean of ``size`` squares of standard normal numbers; 0 if it may be chance."""
    return square - 1.0 if square > 1.0 + _SIGNIFICANT * math.sqrt(2.0 / max(size, 1.0)) else 0.0


def _scatters(found: Summaries, response: Response, rows: Rows, onto: Floats) -> Pooled | None:
    """Return released scatters (and curvatures at origin zero) pooled in the coordinates ``onto``."""
    answers: list[tuple[Model, Answer | None, Callable[[], Floats]]] = []
    for each in found:
        predicted = partial(mean_matrix, each.model, rows, response, flat=True)
        answers.append((each.model, each.scatter, predicted))
        if not np.any(each.model.origin):
            answers.append((each.model, each.curvature, predicted))
    return pooled(answers, onto)


def extent_of(found: Summaries, response: Response) -> Extent | None:
    """Return the features' second moments from released scatters, without shrinkage."""
    newest = found[-1].model
    base = unstretched(newest)
    back = inverse(base)
    moment = back @ back.T
    rows = normal_rows(moment / moment[-1, -1], np.array(newest.origin))
    onto = facing(back.T @ newest.origin) @ base
    together = _scatters(found, response, rows, onto)
    if together is None:
        return None
    back = inverse(onto)
    return Extent(back @ together.measured @ back.T, back.T, together.variances)


def stretched(base: Floats, origin: Floats) -> Floats:
    """Return whitening coordinates ``base`` stretched along the coefficients b, at the same typical length.

    Along them a score's curvature is lower by a factor of about ``1 + |b|^2``.
    """
    p = len(base)
    if not np.any(origin[:-1]):
        # With one probability for everybody, curvature is lower by the same factor in all directions.
        return base
    along = inverse(base).T @ origin
    square = float(along @ along)
    out = base + (math.sqrt(1.0 + square) - 1.0) / square * np.outer(along, along @ base)
    return np.asarray(math.sqrt(p / (p + square)) * out)


def unstretched(model: Model) -> Floats:
    """Return the ``base`` from which `stretched` made a model's transform."""
    p = len(model.transform)
    if not np.any(model.origin[:-1]):
        return model.transform
    along = model.back.T @ model.origin
    square = float(along @ along)
    half = p * (1.0 - square) / 2.0
    before = math.sqrt(half**2 + square * p) - half
    root = math.sqrt(1.0 + before)
    out = model.transform + (1.0 / root - 1.0) / square * np.outer(along, along @ model.transform)
    return np.asarray(math.sqrt((p + before) / p) * out)


def gain(into: Floats) -> float:
    """Return the mean factor by which a linear map multiplies a matrix's noise variance."""
    return float(np.sum(into * into)) / len(into)


@dataclass(frozen=True)
class Pooled:
    """The precision-weighted mean of released matrices, and of their predictions."""

    measured: Floats  # (p, p)
    expected: Floats  # (p, p)
    variances: Floats  # variances of the measured entries, (p, p); off the diagonal, of sqrt 2 times the entries


def pooled(
    answers: Sequence[tuple[Model, Answer | None, Callable[[], Floats]]], onto: Floats, doubts: Sequence[Floats] = ()
) -> Pooled | None:
    """Return released matrices in the coordinates ``onto``, (p, p), weighted by precision; None if there are none.

    ``answers`` are models, released matrices and their predictions; ``doubts`` are each matrix's possible errors as an
    estimate at ``onto``, (p, p). Rounds in other coordinates may determine the first coordinate of ``onto`` poorly.
    """
    p = len(onto)
    measured, expected, weights = np.zeros((p, p)), np.zeros((p, p)), np.zeros((p, p))
    for index, (model, answer, predicted) in enumerate(answers):
        if answer is None:
            continue
        into = onto @ model.back
        grown = np.sum(into * into, axis=1)
        variance = own_variance(answer, p) * np.outer(grown, grown)
        if doubts:
            variance = variance + (into @ doubts[index] @ into.T) ** 2
        share = 1.0 / variance
        measured += share * (into @ answer.mean @ into.T)
        expected += share * (into @ predicted() @ into.T)
        weights += share
    return Pooled(measured / weights, expected / weights, 1.0 / weights) if weights.any() else None


def facing(along: Floats) -> Floats:
    """Return an orthogonal matrix, (p, p), whose first row lies along a direction."""
    p, length = len(along), float(np.linalg.norm(along))
    mirror = along / length - np.eye(p)[0] if length > 0.0 else np.zeros(p)
    square = float(mirror @ mirror)
    return np.eye(p) - 2.0 / square * np.outer(mirror, mirror) if square > 1e-12 else np.eye(p)


def own_variance(answer: Answer, features: int) -> float:
    """Return a bound on the variance of an entry of a mean matrix: the noise plus people's largest spread."""
    return answer.noise + (answer.share + answer.whole) / (features * (features + 1) / 2)


# Prior relative errors of the rows' curvature where all targets are present, as features are not normal: of the ratio
# and, relative to the mean eigenvalue, of each number; and of the curvature along the coefficients.
UNEVEN, _ALONG, _SURVEYED_ALONG = 0.1, 1.0, 0.3
CAREFUL = 1.0  # standard errors added to an estimated error, as noise may hide a larger one
# Difference of a number from that of normal rows, relative to the mean eigenvalue, that may stay hidden if the rows'
# moments are computed from the same released curvatures.
_HIDDEN = 0.16
_LEAST = 0.02  # least share of people with a target
_SURE, _FEW = 3.0, 0.5  # standard errors of a share of targets, and the share, below which there may be none
_COIN = 0.1  # possible error of a variance that follows from a mean and a missing share, relative to it
# Missing shares of a column of -1 and 1, and their prior: most columns have none, and small ones are likelier.
_MISSING_SHARES = np.linspace(0.0, 0.96, 25)
_MISSING_PRIOR = np.where(
    _MISSING_SHARES == 0.0, 0.7, 0.3 * (1.0 - _MISSING_SHARES) / np.sum(1.0 - _MISSING_SHARES[1:])
)
_WHOLE = 0.98  # largest mean of a column of -1 and 1
_SMALLEST = 0.1  # least second moment of a surveyed direction, relative to the expected one
_RAREST = 0.1  # least expected variance of a category


@dataclass(frozen=True)
class Curvature:
    """The difference between released curvatures and those over the rows, in the newest round's coordinates."""

    ratio: float  # ratio of released curvature to that over the rows: below 1 if targets are missing
    along: Floats  # the direction of the coefficients, of length 1, (p,)
    root: Floats  # C, lower triangular, (2, 2): ``C C'`` is the covariance of the ratio and of the curvature along them
    correction: Floats  # D, (p, p)
    turn: Floats  # rotation Q, whose first row is ``along``, (p, p)
    errors: Floats  # variances of the remaining errors of the numbers of Q D Q', (p, p)

    @classmethod
    def of(cls, found: Summaries, rows: Rows, response: Response, moments: Moments) -> Curvature:
        """Return the correction of the rows' curvature by all rounds' released curvatures.

        ``moments`` are those of the rows.
        """
        newest = found[-1].model
        p = len(newest.origin)
        along = newest.back.T @ newest.origin
        turn, known = facing(along), bool(np.any(along))
        along_doubt = _SURVEYED_ALONG if moments.frame.surveyed else _ALONG
        # Cached, as each prediction is used several times.
        predicted = [cache(partial(mean_matrix, each.model, rows, response)) for each in found]
        released = [(each.model, each.curvature, prediction) for each, prediction in zip(found, predicted, strict=True)]
        everywhere = pooled(released, turn @ newest.transform)
        if everywhere is None:
            # No correction, with a relative error of about a third.
            loose = 0.3 * float(np.trace(mean_matrix(newest, rows, response))) / p
            errors = np.full((p, p), loose**2)
            return cls(1.0, np.eye(p)[0], np.diag([math.sqrt(0.1), 0.0]), np.zeros((p, p)), np.eye(p), errors)
        # Two errors affect many numbers: the ratio, which is the same at all models, and the excess along the
        # coefficients. Both are fitted; every other number is shrunk towards zero.
        _, alike, spreads = _fit_pair(everywhere, known, along_doubt)
        ratio, variance = drawn(float(alike[0]), float(spreads[0, 0]))
        implied = [_from_scatter(each, ratio, response) for each in found]
        more = [(each.model, one, prediction) for each, one, prediction in zip(found, implied, predicted, strict=True)]
        changes = [_moved(each.model, newest, rows, response) for each in found]
        here = pooled([*released, *more], turn @ newest.transform, [*changes, *changes]) or everywhere
        basis, fitted, errors = _fit_pair(here, known, along_doubt)
        measured, variances, first = here.measured, here.variances, basis[-1].reshape(p, p)
        # The excess is corrected for the better known ratio, by their covariance.
        if known:
            tied = errors[1, 0] / errors[0, 0]
            fitted[1] += tied * (ratio - fitted[0])
            errors = errors + (variance - errors[0, 0]) * np.outer([1.0, tied], [1.0, tied])
        fitted[0] = ratio
        root = np.linalg.cholesky(errors) if known else np.diag([math.sqrt(variance), 0.0])
        rest = measured - (fitted @ basis).reshape(p, p)
        mean = max(ratio, _LEAST) * float(np.trace(here.expected)) / p
        doubts = moments.doubts(turn @ newest.transform, here.expected)
        shrunk = shrunk_towards(rest, variances, mean, doubts, len(fitted))
        if response.binary:
            errors_left = shrunk.kept**2 * variances + (1.0 - shrunk.kept) ** 2 * shrunk.careful
        else:
            # Curvatures of a real target are scatters, and the moments are computed from them, too.
            errors_left = remaining_error(shrunk.kept, moments.kept, variances, shrunk.careful, mean)
        correction = shrunk.kept * rest
        if known:
            correction = correction + fitted[1] * first
        correction = turn.T @ correction @ turn
        ratio = min(max(ratio, _LEAST), 5.0)
        return cls(ratio, turn[0], np.asarray(root, dtype=np.float64), correction, turn, errors_left)


@dataclass(frozen=True)
class Shrunk:
    """How far a matrix's differences from its prediction are kept."""

    kept: Floats  # share kept of each difference, (p, p)
    careful: Floats  # variances of the differences, no smaller than noise may hide, (p, p)


def shrunk_towards(rest: Floats, noise: Floats, mean: float, doubts: Floats, fitted: int = 0) -> Shrunk:
    """Return the shares kept of the differences ``rest``, (p, p), with the variances ``noise`` of their noise.

    ``mean`` is the prediction's mean eigenvalue, ``doubts`` are variances of its numbers, (p, p), and ``fitted`` is the
    number of differences fitted already.
    """
    size, level = len(rest) * (len(rest) + 1) / 2, float(np.mean(noise))
    surplus = float(np.sum(rest**2 / (noise + doubts))) / max(size - fitted, 1.0) - 1.0
    excess = level * max(surplus, 0.0)
    spread = max(excess, (UNEVEN * mean) ** 2) + doubts
    careful = np.maximum(spread, excess + CAREFUL * level * math.sqrt(2.0 / size) + doubts)
    return Shrunk(spread / (spread + noise), careful)


def carried_errors(errors: Floats, numbers: Floats, onto: Floats) -> Floats:
    """Return the covariance of ``C E n`` for n = ``numbers``, (..., p), and C = ``onto``, (..., p, p).

    E is a symmetric matrix of independent errors of the variances ``errors`` on the diagonal, and half of them off it.
    """
    inner = errors * numbers[..., :, None] * numbers[..., None, :]
    diagonal = np.einsum("...ii->...i", inner)
    diagonal += (numbers**2) @ errors
    return np.asarray(onto @ inner @ onto.swapaxes(-1, -2) / 2.0)


def remaining_error(kept: Floats, absorbed: float, noise: Floats, spread: Floats, mean: float) -> Floats:
    """Return the error variances of a shrunk matrix's numbers, whose shrinkage target is from the same answers.

    ``kept`` are the shares kept of its differences from the rows', ``absorbed`` is the share of the answers' noise that
    the rows contain, ``noise`` and ``spread`` are variances of noise and difference, ``mean`` is the matrix's mean
    eigenvalue.
    """
    missing = 1.0 - kept
    hidden = np.maximum(spread, (_HIDDEN * mean) ** 2)
    return (1.0 - missing * (1.0 - absorbed)) ** 2 * noise + missing**2 * hidden


def _fit_pair(found: Pooled, known: bool, doubt: float) -> tuple[Floats, Floats, Floats]:
    """Fit the ratio to the prediction and, if ``known``, the excess along the first direction, of relative ``doubt``.

    Returns both matrices as vectors, (1 or 2, p p), the fitted values, and their covariance.
    """
    first = np.zeros_like(found.expected)
    first[0, 0] = 1.0
    basis = np.array([found.expected.ravel(), first.ravel()])[: 1 + known]
    weighed = basis / found.variances.ravel()
    gram = weighed @ basis.T
    # With two features both matrices may be the same.
    gram += 1e-9 * np.diag(np.diag(gram))
    if known:
        gram[1, 1] += 1.0 / (doubt * found.expected[0, 0]) ** 2
    errors = inverse(gram)
    return basis, errors @ (weighed @ found.measured.ravel()), errors


def _from_scatter(each: Summary, ratio: float, response: Response) -> Answer | None:
    """Convert a scatter to a curvature if everybody has the same probability; else return None."""
    if each.scatter is None or not response.binary or np.any(each.model.origin[:-1]):
        return None
    # If people are weighted by their rows, rows without a target are in neither matrix.
    factor = 2.0 * (1.0 if response.weighed else ratio)
    factor *= float(response.weights(each.model.origin[-1:], each.model.exponent)[0])
    return each.scatter.times(factor)


def _moved(model: Model, newest: Model, rows: Rows, response: Response) -> Floats:
    """Return how much errors of predicted curvatures may differ between a model and the newest model, (p, p).

    At an origin of constants alone only the share of targets may be wrong. At the newest origin the error may be as
    large as the predicted change from there. Other origins lie near the newest: 0.
    """
    if np.any(model.origin[:-1]):
        return np.zeros_like(model.transform)
    there = mean_matrix(replace(model, origin=newest.origin), rows, response)
    return there - mean_matrix(model, rows, response)


def may_be_none(share: float, error: float) -> bool:
    """Return whether it is plausible that nobody has a target, from the posterior share of people with one."""
    return share < min(_SURE * error, _FEW)


def drawn(ratio: float, variance: float, uneven: float = UNEVEN) -> tuple[float, float]:
    """Return the posterior mean and variance of the ratio of true to predicted curvature, from an estimate.

    The prior: if all targets are present, the ratio is 1 within ``uneven``; otherwise it is their unknown share.
    """
    whole = uneven**2
    both = whole + variance
    means, variances = [(ratio * whole + variance) / both], [whole * variance / both]
    weights = [math.exp(-((ratio - 1.0) ** 2) / both / 2.0) / math.sqrt(2.0 * math.pi * both)]
    error = math.sqrt(variance)
    low, high = -ratio / error, (1.0 - ratio) / error
    part = (math.erfc(-high / math.sqrt(2.0)) - math.erfc(-low / math.sqrt(2.0))) / 2.0
    if part > 1e-12:
        at_low, at_high = (math.exp(-value * value / 2.0) / math.sqrt(2.0 * math.pi) for value in (low, high))
        shift = (at_low - at_high) / part
        means.append(ratio + error * shift)
        variances.append(variance * max(1.0 + (low * at_low - high * at_high) / part - shift**2, 1e-3))
        weights.append(part)
    total = sum(weights)
    if not total > 1e-300:  # neither case explains the estimate
        return min(max(ratio, 0.0), 2.0), max(variance, whole)
    mean = sum(w * m for w, m in zip(weights, means, strict=True)) / total
    spread = sum(w * (v + (m - mean) ** 2) for w, v, m in zip(weights, variances, means, strict=True)) / total
    return mean, spread
