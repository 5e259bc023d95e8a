r"""Shares of classes among people of whom no features are released.

Everybody answers at even chances. A missing target counts as a further class, so that with K classes the score of class
k is ``B'(e_k - q) / m``, ``q = 1 / (K + 1)``, ``m = |e_k - q|``, B the contrasts of K + 1 classes. The mean score u is
linear in the shares s of all people:

.. math:: s = q + m\, B\, E\, u, \qquad s_k / \pi, \quad \pi = \sum_{k \le K} s_k

is the share of class k among people with a target. Its standard error is by the delta method, from the noise, which is
known exactly, and the sampling of people.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Final

import numpy as np

from murk._arrays import Floats
from murk.learners.core.coordinates import contrasts
from murk.learners.core.scoring.model import Response, Rows
from murk.learners.core.scoring.sums import Answer, Summaries

_KNOWN: Final = 0.25  # largest relative standard error of the share of targets present that leaves intervals bounded
_SURELY: Final = 2.0  # standard errors from which missing targets are reported
_LEAST: Final = 1e-6  # least share of targets present, or of a class in log odds


class Shares:
    """The shares of K classes, from the epochs' mean answers.

    ``values`` are twice the shares, minus 1, as of lines through labels of -1 and +1: of each class, (K,), or of the
    positive one of a ``binary`` target, (1,).
    """

    public = False
    alike = True
    doubt = 0.0

    def __init__(self, found: Summaries, response: Response) -> None:
        self.response = response
        self._answers = [each.score for each in found if each.score is not None]
        self._basis = contrasts(response.classes)
        self.features = response.classes - 1
        self.rows = Rows(np.ones((1, 1)), np.ones(1))
        even = 1.0 / response.classes
        # From a mean score to shares.
        self._back = math.sqrt(1.0 - even) * self._basis
        weights = np.array([1.0 / (each.noise + each.share + each.whole) for each in self._answers])
        self._weights = weights / weights.sum()
        means = (w * each.mean for w, each in zip(self._weights, self._answers, strict=True))
        self.mean = sum(means, np.zeros(self.features))
        self.all = even + self._back @ self.mean
        # Not cut to 1, so that the shares add up to 1 and their errors are as stated.
        self.present = max(1.0 - float(self.all[-1]), _LEAST)
        self._of_present = self.all[:-1] / self.present
        self._reported = np.eye(self.features)[1:] if response.binary else np.eye(self.features)
        self.values = 2.0 * self._reported @ self._of_present - 1.0

    def refit(self, found: Summaries) -> Shares:
        """Return the shares by other answers."""
        return Shares(found, self.response)

    def _noise(self, answer: Answer) -> Floats:
        at = np.clip(self.all, 0.0, 1.0)
        at /= at.sum()
        own = answer.noise * np.eye(self.features)
        basis = self._basis.T / math.sqrt(1.0 - 1.0 / len(at))
        own += answer.share * basis @ (np.diag(at) - np.outer(at, at)) @ basis.T
        # Released directions vary around their mean in all, which is no shorter than people's own spread.
        return np.asarray(own + answer.whole * basis @ np.diag(at) @ basis.T)

    @cached_property
    def _error(self) -> Floats:
        """Covariance of the shares of all people, (K + 1, K + 1)."""
        noises = (w**2 * self._noise(each) for w, each in zip(self._weights, self._answers, strict=True))
        noise = sum(noises, np.zeros((self.features, self.features)))
        return np.asarray(self._back @ noise @ self._back.T)

    @property
    def targets(self) -> tuple[float, float]:
        """The share of people with a target, and its standard error."""
        return self.present, math.sqrt(float(self._error[-1, -1]))

    @property
    def missing(self) -> float:
        """Share of people whose target is missing; 0 unless significant."""
        absent = float(self.all[-1])
        return absent if absent > _SURELY * self.targets[1] else 0.0

    @cached_property
    def covariance(self) -> Floats:
        """Covariance of the values."""
        ratio = np.eye(self.features) - np.outer(self._of_present, np.ones(self.features))
        slopes = 2.0 * self._reported @ ratio / self.present
        return np.asarray(slopes @ self._error[:-1, :-1] @ slopes.T)

    def half_widths(self, quantile: float) -> Floats:
        """Return half-widths of the intervals; infinite while noise hides how many targets are present."""
        if self.targets[1] > _KNOWN * self.present:
            return np.full(len(self.values), math.inf)
        return np.asarray(quantile * np.sqrt(np.diag(self.covariance)))

    @cached_property
    def misfits(self) -> Floats:
        """Squared distance of each epoch's mean score from that of all, in units of its variance, (k,)."""
        left = [(each.mean - self.mean, self._noise(each)) for each in self._answers]
        return np.array([one @ np.linalg.solve(noise, one) for one, noise in left])

    @property
    def origin(self) -> Floats:
        """Contrasts of log odds for predictions, (K - 1,), or the log odds of a binary target, (1,)."""
        odds = np.log(np.maximum(self._of_present, _LEAST))
        return odds[1:] - odds[:1] if self.response.binary else contrasts(self.features).T @ odds
