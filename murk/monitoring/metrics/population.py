"""Metrics of the people's side: sums over a simulated population or a gateway, never of a few.

What one device spends and sends stays on it. Sums are reported for at least 20 people; and they change only when the
accounts of at least 20 have changed since they last did, so that the difference of two of them is a sum over
at least 20 people, too. The ledger says when, for all who export its sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from murk.monitoring.metrics.catalogue import METRICS
from murk.monitoring.metrics.exporter import Histogram, Sample, bucketed, described, family, new_registry, register

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client import Metric as Family

SMALLEST_GROUP = 20
"""Fewest people that a figure may be about."""


@dataclass(frozen=True, slots=True)
class PeopleSums:
    """Sums over the people of one task.

    Parameters
    ----------
    people
        How many have an account.
    refused, pending
        Releases that were refused; releases that wait for the log.
    spent
        (share of the cap, number of people) pairs.
    """

    people: int
    refused: int
    pending: int
    spent: Sequence[tuple[float, int]]


class PeopleMetrics:
    """Export sums over many people; nothing while there are fewer than 20.

    Parameters
    ----------
    task
        The task's name, the only label.
    registry
        Where to export; by default a registry of its own, the attribute ``registry``.

    Examples
    --------
    >>> metrics = PeopleMetrics("third-child")
    >>> metrics.update(PeopleSums(people=19, refused=1, pending=0, spent=[(1.0, 19)]))
    False
    >>> metrics.update(PeopleSums(people=40, refused=2, pending=0, spent=[(1.0, 40)]))
    True
    >>> metrics.registry.get_sample_value("murk_ledger_refusals_total", {"task": "third-child"})
    2
    """

    def __init__(self, task: str, *, registry: CollectorRegistry | None = None) -> None:
        self.registry = new_registry() if registry is None else registry
        self._task = task
        self._told: PeopleSums | None = None
        register(self.registry, self)

    def update(self, sums: PeopleSums) -> bool:
        """Report these sums from now on, if they are of enough people; return whether they are."""
        if sums.people < SMALLEST_GROUP:
            return False
        self._told = sums
        return True

    def describe(self) -> Iterator[Family]:
        """The metrics without values, for the registry."""
        return described("people")

    def collect(self) -> Iterator[Family]:
        """The metrics, for the registry."""
        told = self._told
        for metric in METRICS:
            if metric.side == "people":
                yield family(metric, self._task, () if told is None else [_VALUES[metric.name](told)])


def _spent(sums: PeopleSums) -> Histogram:
    metric = next(metric for metric in METRICS if metric.name == "murk_ledger_spent_ratio")
    return bucketed(metric, sums.spent)


_VALUES: Mapping[str, Callable[[PeopleSums], Sample | Histogram]] = {
    "murk_ledger_spent_ratio": _spent,
    "murk_ledger_refusals_total": lambda sums: Sample((), sums.refused),
    "murk_outbox_pending": lambda sums: Sample((), sums.pending),
}
