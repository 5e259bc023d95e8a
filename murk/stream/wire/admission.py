"""Decide which releases are admitted: the interface of a protocol's rules, and what holds for all protocols.

Each protocol's folder has a module ``admission`` with its `AdmissionRules`. Workers, gateways and shufflers apply the
same rules, so that none of them refuses what another would learn.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar

from murk._internal.lazy import map_levels
from murk.stream.wire.codec import RejectedError, WireRules
from murk.task.fields import SLACK

if TYPE_CHECKING:
    from murk.privacy.mechanisms import Costed
    from murk.stream.wire.columns import Columns
    from murk.stream.wire.releases import Release
    from murk.task.task import Task

_UNKNOWN_MODEL = "future", "version"  # reasons to refuse a release whose model is unknown


class AdmissionRules(ABC):
    """What a task's releases must satisfy beyond `WireRules`; by default, a payload that an honest device may send.

    ``mechanisms`` has the mechanism of each level, ``lengths`` the allowed lengths of a payload.
    """

    kind: ClassVar[str]  # kind of the releases

    def __init__(self, mechanisms: Mapping[str, Costed], lengths: tuple[int, ...]) -> None:
        self.mechanisms, self.lengths = mechanisms, lengths

    def check(self, release: Any, count: int) -> None:
        """Raise `RejectedError` if a partition that has learned ``count`` releases cannot learn this one."""
        self.check_payload(release)

    def accepts(self, releases: Columns, count: int) -> bool:
        """Return True only if `check` is certain to pass all these releases, learned in turn after ``count`` others."""
        return self.payloads_fit(releases)

    @abstractmethod
    def check_payload(self, release: Any) -> None:
        """Raise `RejectedError` for a payload that no honest device sends, whatever the release's version."""

    def payloads_fit(self, releases: Columns) -> bool:
        """Return True only if `check_payload` is certain to pass all these releases; by default, this is unknown."""
        return False


def wire_rules(task: Task, admission: AdmissionRules) -> WireRules:
    """Return what a message must satisfy to be a release of a task."""
    return WireRules(
        task.hash,
        task.simulated,
        admission.lengths,
        map_levels(attrgetter("magnitude"), admission.mechanisms),
        task.log.partitions,
        kind=admission.kind,
        lifetime=lifetime_of(task.expiry),
        is_shuffled=task.shuffle is not None,
        ahead=None if task.track is None else SLACK,
    )


def lifetime_of(expiry: int) -> int:
    """Return the seconds from the arrival of a release to its expiry if the device's clock is ``SLACK`` ahead.

    ``expiry`` is the task's. Only shuffled tasks refuse releases that expire later.
    """
    return expiry + SLACK


def check_times(release: Release, appended: int, rules: WireRules) -> None:
    """Raise RejectedError if the log appended a release after its expiry (at a time in seconds since 1970).

    A release of a shuffled task must expire before its id is forgotten, since it could be repeated afterwards. If a
    release's time is the start of its window, that window must have begun.
    """
    if appended > release.expires:
        raise RejectedError("expired", f"appended {appended - release.expires} s after its expiry")
    if rules.is_shuffled and release.expires > appended + rules.lifetime:
        later = release.expires - appended
        raise RejectedError("future", f"it expires {later} s after its arrival, at most {rules.lifetime} s are allowed")
    if rules.ahead is not None and release.time > appended + rules.ahead:
        raise RejectedError("future", f"its window begins {release.time - appended} s after its arrival")


def check_renewed(
    check: Callable[[Any, int], None], release: Release, count: int, renew: Callable[[], bool] | None
) -> None:
    """Call ``check(release, count)``, and again with new models if it refuses the release for an unknown model.

    ``renew`` reads new models from the log, and returns whether it has read any.
    """
    try:
        check(release, count)
    except RejectedError as rejected:
        if rejected.reason not in _UNKNOWN_MODEL or renew is None or not renew():
            raise
        check(release, count)
