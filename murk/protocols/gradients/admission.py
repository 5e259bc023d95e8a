"""Which gradients are admitted: those of published iterates that are not too old."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np

from murk._internal.lazy import map_levels
from murk.privacy.mechanisms import Mechanism
from murk.privacy.mechanisms.lattice import FORGED
from murk.protocols.gradients.kernels import is_published
from murk.protocols.gradients.settings import Settings
from murk.stream.wire.admission import AdmissionRules
from murk.stream.wire.codec import RejectedError
from murk.stream.wire.releases import GradientRelease

if TYPE_CHECKING:
    from murk.stream.wire.columns import Columns


class GradientRules(AdmissionRules):
    """Admit gradients within their mechanism's bound, at a published iterate within the task's ``max_staleness``."""

    kind = "gradient"

    def __init__(self, settings: Settings, mechanisms: Mapping[str, Mechanism]) -> None:
        super().__init__(mechanisms, (settings.dimension,))
        self._payload_bounds = map_levels(attrgetter("payload_bound"), mechanisms)
        # Plain attributes, as every release reads them.
        self._never_too_old, self._share_ppm = settings.staleness.releases, settings.staleness.share_ppm
        self._floor = settings.staleness.floor
        self._known_version = 0

    def check(self, release: GradientRelease, count: int) -> None:
        """Raise RejectedError for a forged release, or one of an unpublished, too old or future version."""
        version = release.version
        if version > count:
            raise RejectedError("future", f"version {version}, but the partition has {count} releases")
        # In Python's integers: calling compiled code for each release would take as long as learning it.
        age = count - version
        if age > self._never_too_old and 1_000_000 * age > self._share_ppm * count:
            raise RejectedError("stale", f"version {version} is too old for a partition of {count} releases")
        if version != self._known_version:
            if not is_published(version, self._floor):
                raise RejectedError("version", f"version {version} was never published")
            self._known_version = version
        self.check_payload(release)

    def accepts(self, releases: Columns, count: int) -> bool:
        """Return True only if `check` is certain to pass all these releases, learned in turn after ``count`` others."""
        versions = releases.column("version")
        if (versions > count + np.arange(len(releases))).any():
            return False
        # The oldest version is checked as if it came last: age grows with the count, as does age divided by the count.
        last = count + len(releases) - 1
        age = last - int(versions.min())
        if age > self._never_too_old and 1_000_000 * age > self._share_ppm * last:
            return False
        for version in releases.distinct("version") - {self._known_version}:
            if not is_published(version, self._floor):
                return False
            self._known_version = version
        return self.payloads_fit(releases)

    def check_payload(self, release: GradientRelease) -> None:
        """Raise RejectedError for a payload beyond its mechanism's bound."""
        if not self._payload_bounds[release.level].holds(release.payload):
            raise RejectedError("magnitude", FORGED)

    def payloads_fit(self, releases: Columns) -> bool:
        """Return whether `check_payload` passes all these releases."""
        rows_by_level = releases.split("level")
        return all(self._payload_bounds[level].holds_all(rows) for level, rows in rows_by_level.items())
