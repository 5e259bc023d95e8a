"""Sums over the people of a simulated population or a gateway, for at least 20 people.

The ledger updates the sums only when the accounts of at least 20 people have changed, so that the difference of two
sums is over at least 20 people, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from murk.monitoring.metrics.catalogue import METRICS, Metric
from murk.monitoring.metrics.exporter import Exporter, Histogram, Sample, bucketed

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

SMALLEST_GROUP = 20
"""Smallest number of people in a sum."""


@dataclass(frozen=True, slots=True)
class PeopleSums:
    """Sums over the people of a task."""

    people: int  # number of accounts
    # refused releases; releases that wait for the log
    refused: int
    pending: int
    spent: Sequence[tuple[float, int]]  # pairs (share of the cap, number of people)


class PeopleMetrics(Exporter):
    """Export sums over at least 20 people; by default to a new registry, the attribute ``registry``.

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

    side = "people"

    def __init__(self, task: str, *, registry: CollectorRegistry | None = None) -> None:
        self._sums: PeopleSums | None = None
        super().__init__(task, registry)

    def update(self, sums: PeopleSums) -> bool:
        """Export these sums from now on and return True, if they cover enough people."""
        if sums.people < SMALLEST_GROUP:
            return False
        self._sums = sums
        return True

    def _values(self) -> Callable[[Metric], Iterable[Sample | Histogram]]:
        sums = self._sums
        return lambda metric: () if sums is None else [_VALUES[metric.name](sums)]


def _spent(sums: PeopleSums) -> Histogram:
    metric = next(metric for metric in METRICS if metric.name == "murk_ledger_spent_ratio")
    return bucketed(metric, sums.spent)


_VALUES: Mapping[str, Callable[[PeopleSums], Sample | Histogram]] = {
    "murk_ledger_spent_ratio": _spent,
    "murk_ledger_refusals_total": lambda sums: Sample((), sums.refused),
    "murk_outbox_pending": lambda sums: Sample((), sums.pending),
}
