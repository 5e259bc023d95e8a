r"""Confidence sequences: intervals that hold at every look at a growing stream, and when displays use them.

Let ``s_n`` be an estimate's standard error, and ``v`` its information relative to that at a public size N
(`tightest_at`). The estimate lies within

.. math:: \pm z(v)\, s_n, \qquad \frac1K \sum_k \frac{1}{\sqrt{1 + r_k}}
    \exp\Bigl(\frac{z^2}{2} \frac{r_k}{1 + r_k}\Bigr) = \frac1\alpha, \qquad r_k = \frac{c\,v}{S_k},

of the truth at all n together with probability at least ``1 - alpha``. The left side, at ``z = |estimate - truth| /
s_n``, is a mean of normal mixtures of likelihood ratios: a nonnegative martingale that begins at 1 and exceeds ``1 /
alpha`` with probability at most alpha, ever (Ville). A mixture is tightest at ``v = S_k``, with ``c = -2 log alpha +
log(1 - 2 log alpha)``; five of them keep the width within 1.78 times that of the fixed interval from N / 30 to 30 N
(1.67 times at N).

N must not depend on the stream. The claim is asymptotic: the estimate times v must be nearly a random walk with normal
steps in v. v is the number of releases over N, whatever their noise, as the boundary is flat (docs/intervals.md).

Sources: Robbins, "Statistical methods related to the law of the iterated logarithm", 1970 (normal mixture);
Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas, "Time-uniform central limit theory and asymptotic confidence
sequences", Annals of Statistics 52(6), 2024, Theorem 2.2 and appendix B.2 (choice of c).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import NormalDist
from typing import Any, Final, Literal

import numpy as np

from murk._internal.arrays import Floats
from murk.inference.estimate import RANDOM_SCALING, Estimate
from murk.inference.levels import level_of, quantile_of
from murk.task.learning import ASKED
from murk.task.task import Task
from murk.task.windows import ONCE, Repeats

# The probability that a normal random walk passes 7 standard errors anywhere within twelve orders of magnitude of its
# length is below 1e-8, so that no look needs a wider interval.
LARGEST: Final = 7.0
SCALES: Final = 10.0 ** np.array([-1.5, -0.75, 0.0, 0.75, 1.5])
_ROUNDS: Final = 60


def tuning(alpha: float) -> float:
    """Return c, with which a mixture's boundary for error ``alpha`` is tightest at ``v = S_k``."""
    return -2.0 * math.log(alpha) + math.log1p(-2.0 * math.log(alpha))


def evidence(z: float | Floats, information: float | Floats, alpha: float = 0.05) -> Floats:
    """Return the log e-value of an estimate ``z`` standard errors from a hypothesis, at ``information`` v.

    ``alpha`` is the error that the mixtures are tuned for; the e-value E is valid for any alpha. Under the hypothesis E
    has a mean of at most 1 at any time, also one that was chosen by looking at the stream, and ``min(1, 1 / E)`` is a
    p-value.

    >>> np.exp(evidence(np.array([0.0, 1.96, 4.0]), 1.0)).round(2).tolist()
    [0.42, 1.31, 206.73]
    """
    ratio = tuning(alpha) * np.asarray(information, dtype=np.float64)[..., None] / SCALES
    square = np.square(np.asarray(z, dtype=np.float64))[..., None]
    logs = 0.5 * (square * ratio / (1.0 + ratio) - np.log1p(ratio))
    return np.asarray(np.logaddexp.reduce(logs, axis=-1) - math.log(len(SCALES)))


def critical_values(information: Floats, level: float = 0.95) -> Floats:
    """Return half-widths, in standard errors, of intervals that hold at every look; at most `LARGEST`.

    >>> (critical_values(np.array([0.01, 1 / 30, 0.1, 1.0, 10.0, 30.0, 100.0])) / 1.96).round(2).tolist()
    [1.93, 1.77, 1.71, 1.67, 1.67, 1.69, 1.74]
    """
    alpha = 1.0 - level
    information = np.asarray(information, dtype=np.float64)
    low, high = np.zeros_like(information), np.full_like(information, LARGEST)
    for _ in range(_ROUNDS):
        middle = (low + high) / 2.0
        inside = evidence(middle, information, alpha) < -math.log(alpha)
        low, high = np.where(inside, middle, low), np.where(inside, high, middle)
    return high


@lru_cache(maxsize=256)
def nominal_level(information: float, level: float) -> float:
    """Return the level of the fixed interval that is as wide as the confidence sequence of ``level``.

    >>> round(nominal_level(1.0, 0.95), 5)
    0.99897
    """
    return 2.0 * NormalDist().cdf(float(critical_values(np.array(information), level))) - 1.0


def wider_level(level: float, repeats: Repeats) -> float:
    """Return the level whose normal quantile is that of ``level``, times the square root of ``repeats.effect``.

    >>> round(wider_level(0.95, Repeats(4, 1.6)), 4), wider_level(0.95, ONCE)
    (0.9868, 0.95)
    """
    if repeats.effect == 1.0:
        return level
    return level_of(quantile_of(level) * math.sqrt(repeats.effect))


Validity = Literal["always-valid", "fixed-n"]

LATE: Final = 0.01  # share of releases beyond a task's stated size up to which the task counts as ended

_NO_COVARIANCE = "random scaling estimates no covariance"
_NORMAL = NormalDist().inv_cdf(0.975)


@dataclass(frozen=True)
class Looks:
    """The looks at a stream for which its intervals hold.

    >>> watched = Looks("always-valid", 100_000, 20_000)
    >>> watched.words(0.95), round(watched.nominal(0.95), 4)
    ('95% at every look', 0.9991)
    >>> Looks("fixed-n", 100_000, 20_000).words(0.95)
    '95% at this look only'
    """

    validity: Validity  # "always-valid": at all looks together; "fixed-n": at one that was planned beforehand
    tightest_at: int  # number of releases at which a sequence is tightest
    count: int  # number of releases (of records, if organisations release) that the estimate uses
    why: str = ""  # why intervals hold at one look only, in words
    repeats: Repeats = ONCE  # how often one person may have answered

    @property
    def information(self) -> float:
        """Information v: the number of releases divided by ``tightest_at``."""
        return max(self.count, 1) / self.tightest_at

    def nominal(self, level: float) -> float:
        """Return the level at which a fixed interval is as wide as the interval for these looks at ``level``."""
        return wider_level(
            level if self.validity == "fixed-n" else nominal_level(self.information, level), self.repeats
        )

    def fixed(self, level: float) -> float:
        """Return the nominal level of an interval for one planned look, whatever `validity` is."""
        return wider_level(level, self.repeats)

    def words(self, level: float) -> str:
        """Return the level and the looks, in words."""
        return f"{100.0 * level:g}% at {'every look' if self.validity == 'always-valid' else 'this look only'}"

    def meaning(self, level: float) -> str:
        """Return what the level means, in a sentence or two."""
        words = self.words(level)
        if self.validity == "always-valid":
            return (
                f"{words}: with a probability of {100.0 * level:g}% an interval holds the truth at all looks together, "
                "so that anybody may watch and stop at any time; narrowest, compared with a fixed one, near "
                f"{self.tightest_at:,} releases"
            )
        return (
            f"{words}{f' ({self.why})' if self.why else ''}: an interval that is looked at again and again misses the "
            "truth sooner or later"
        )

    def to_dict(self, level: float) -> dict[str, Any]:
        """Return plain data, including the words."""
        return {
            "validity": self.validity,
            "words": self.words(level),
            "meaning": self.meaning(level),
            "tightest_at": self.tightest_at if self.validity == "always-valid" else None,
            "repeats": self.repeats.most,
        }


def fixed_only(task: Task) -> str:
    """Return why no interval of a task can hold at every look; empty if intervals can be confidence sequences."""
    if task.forget is not None:
        return "old releases are forgotten, so that the estimated coefficients may change"
    return _NO_COVARIANCE if task.learner.intervals == ASKED else ""


def why_no_sequence(task: Task, estimate: Estimate) -> str:
    """Return why no interval of an estimate holds at every look; empty if its intervals can be confidence sequences."""
    return fixed_only(task) or (_NO_COVARIANCE if estimate.method == RANDOM_SCALING else "")


def looks_of(
    task: Task,
    estimate: Estimate,
    count: int,
    *,
    live: bool = False,
    asked: Validity | None = None,
    repeats: Repeats | None = None,
) -> Looks:
    """Return the looks for which a display's intervals hold.

    ``count`` is the number of releases (of records, if organisations release) that the estimate uses. ``repeats`` is
    how often one person has answered, by default what the task's caps allow. An estimate without confidence sequences
    has fixed intervals. Else ``asked`` decides if given, then the task's `intervals`. Else a ``live`` display of an
    open stream shows confidence sequences. A display of a finished file, or of a task that has reached its stated size
    (`people`), shows fixed intervals; a live experiment keeps its sequences, by which it may have been stopped before.
    """

    repeats = repeats or task.repeats
    if estimate.method == RANDOM_SCALING:
        # Random scaling is tabulated at a few levels only, and estimates the variance from the path itself.
        repeats = replace(repeats, effect=1.0)
    validity: Validity = "always-valid" if live else "fixed-n"
    why = why_no_sequence(task, estimate)
    if why:
        validity = "fixed-n"
    elif asked is not None:
        validity, why = asked, "as asked"
    elif task.intervals is not None and task.intervals.validity is not None:
        validity, why = task.intervals.validity, "as the task states"
    elif (
        task.people is not None
        and task.people <= count <= (1.0 + LATE) * task.people
        and not (live and task.experiment is not None)
    ):
        validity, why = "fixed-n", f"the task has ended at its {task.people:,} people"
    return Looks(validity, task.tightest_at, count, why if validity == "fixed-n" else "", repeats)


def used_count(task: Task, estimate: Estimate, engines: Sequence[Any]) -> int:
    """Return the number of releases that an estimate of these engines uses; of records, if organisations release."""
    if task.of_organisations:
        return sum(int(engine.figures()["records"]) for engine in engines)
    return estimate.releases_used


def sequence_half_widths(half_widths: Floats, counts: Floats, tightest_at: int) -> Floats:
    """Return half-widths of 95% sequences, (points, p), from those of fixed 95% intervals; exact for normal ones."""
    return np.asarray(half_widths * (critical_values(np.maximum(counts, 1.0) / tightest_at) / _NORMAL)[:, None])
