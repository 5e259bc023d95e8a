"""Whether a display's intervals hold at every look, or at one look only, and the words that say so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from murk.learners.estimates.estimate import ASKED, RANDOM_SCALING, Estimate
from murk.learners.estimates.sequence import critical_values, nominal_level

if TYPE_CHECKING:
    from murk.stream.task.task import Task

Valid = Literal["always", "fixed"]

LATE: Final = 0.01  # share of late releases up to which a task with a stated size counts as ended

_NO_COVARIANCE = "random scaling knows no covariance"
_NORMAL = NormalDist().inv_cdf(0.975)


@dataclass(frozen=True)
class Looks:
    """The looks at a stream for which its intervals hold.

    Examples
    --------
    >>> watched = Looks("always", 100_000, 20_000)
    >>> watched.words(0.95), round(watched.nominal(0.95), 4)
    ('95% at every look', 0.9991)
    >>> Looks("fixed", 100_000, 20_000).words(0.95)
    '95% at this look only'
    """

    valid: Valid  # "always": at all looks together; "fixed": at one look that was planned before the stream began
    tightest_at: int  # number of releases at which a sequence is tightest
    count: int  # number of releases (an organisation's records) that the estimate uses
    why: str = ""  # why intervals are fixed, in words

    @property
    def information(self) -> float:
        """Information over that at ``tightest_at``."""
        return max(self.count, 1) / self.tightest_at

    def nominal(self, level: float) -> float:
        """Return the level of the fixed interval that equals the interval of these looks at ``level``."""
        return level if self.valid == "fixed" else nominal_level(self.information, level)

    def words(self, level: float) -> str:
        """Return the level and the looks, in words."""
        return f"{100.0 * level:g}% at {'every look' if self.valid == 'always' else 'this look only'}"

    def meaning(self, level: float) -> str:
        """Return what the level means, in a sentence or two."""
        words = self.words(level)
        if self.valid == "always":
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
            "valid": self.valid,
            "words": self.words(level),
            "meaning": self.meaning(level),
            "tightest_at": self.tightest_at if self.valid == "always" else None,
        }


def fixed_only(task: Task) -> str:
    """Return why no interval of a task can hold at every look; empty if intervals can be confidence sequences."""
    if task.forget is not None:
        return "old releases are forgotten, so that what is estimated may move"
    return _NO_COVARIANCE if task.learner.intervals == ASKED else ""


def why_no_sequence(task: Task, estimate: Estimate) -> str:
    """Return why no interval of an estimate holds at every look; empty if its intervals can be confidence sequences."""
    return fixed_only(task) or (_NO_COVARIANCE if estimate.method == RANDOM_SCALING else "")


def looks_of(task: Task, estimate: Estimate, count: int, *, live: bool = False, asked: Valid | None = None) -> Looks:
    """Return the looks for which a display's intervals hold.

    ``count`` is the number of releases (an organisation's records) that the estimate uses. A ``live`` display of an
    open stream shows confidence sequences, as does every display of a task with `intervals: {valid: always}`; one of a
    task that has ended at its stated size (`people`), or of a file's end, shows fixed intervals. ``asked`` overrides
    this.
    """

    def fixed(why: str) -> Looks:
        return Looks("fixed", task.tightest_at, count, why)

    why, stated = why_no_sequence(task, estimate), None if task.intervals is None else task.intervals.valid
    if why:
        return fixed(why)
    if asked is not None:
        return Looks(asked, task.tightest_at, count, "as asked" if asked == "fixed" else "")
    if stated == "always":
        return Looks("always", task.tightest_at, count)
    if stated == "fixed":
        return fixed("as the task states")
    if task.people is not None and task.people <= count <= (1.0 + LATE) * task.people:
        return fixed(f"the task has ended at its {task.people:,} people")
    return Looks("always", task.tightest_at, count) if live else fixed("")


def used_count(task: Task, estimate: Estimate, engines: Sequence[Any]) -> int:
    """Return the number of releases that an estimate of these engines uses, or of an organisation's records."""
    if task.of_organisations:
        return sum(int(engine.figures()["records"]) for engine in engines)
    return estimate.releases_used


def sequence_half_widths(
    half_widths: NDArray[np.float64], counts: NDArray[np.float64], tightest_at: int
) -> NDArray[np.float64]:
    """Return half-widths of 95% sequences, (points, p), from those of fixed 95% intervals at numbers of releases.

    For the past of a curve, of which only fixed intervals are known; exact if they are normal.

    Examples
    --------
    >>> sequence_half_widths(np.ones((2, 1)), np.array([1_000.0, 100_000.0]), 100_000).round(2).tolist()
    [[1.93], [1.67]]
    """
    return np.asarray(half_widths * (critical_values(np.maximum(counts, 1.0) / tightest_at) / _NORMAL)[:, None])
