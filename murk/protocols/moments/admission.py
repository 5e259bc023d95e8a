"""Which released moments are admitted."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np

from murk._internal.arrays import Integers
from murk._internal.lazy import map_levels
from murk.privacy.mechanisms.composite import CompositeMechanism
from murk.privacy.mechanisms.lattice import FORGED
from murk.stream.wire.admission import AdmissionRules
from murk.stream.wire.codec import RejectedError

if TYPE_CHECKING:
    from murk.privacy.mechanisms.base import Randomizer
    from murk.stream.wire.columns import Columns
    from murk.stream.wire.releases import MomentRelease


def _bounds_of(mechanism: Randomizer) -> Integers | None:
    """Return the bound on each coordinate of a payload; None where one bound holds for all."""
    if isinstance(mechanism, CompositeMechanism):
        return np.asarray(mechanism.magnitudes, dtype=np.int64)
    return None


class MomentRules(AdmissionRules):
    """Admit moments whose coordinates and length honest noise reaches."""

    kind = "moment"

    def __init__(self, mechanisms: Mapping[str, Randomizer], dimension: int) -> None:
        super().__init__(mechanisms, (dimension,))
        self._bounds = map_levels(_bounds_of, mechanisms)
        self._payload_bounds = map_levels(attrgetter("payload_bound"), mechanisms)

    def check_payload(self, release: MomentRelease) -> None:
        """Raise RejectedError for a coordinate, or a length, that honest noise does not reach."""
        bounds = self._bounds[release.level]
        if bounds is not None and np.any(np.abs(np.array(release.payload, dtype=np.int64)) > bounds):
            raise RejectedError("magnitude", "a coordinate beyond the bound of its part of the mechanism")
        if not self._payload_bounds[release.level].holds(release.payload):
            raise RejectedError("magnitude", FORGED)

    def payloads_fit(self, releases: Columns) -> bool:
        """Return whether `check_payload` passes all these releases."""
        for level, rows in releases.split("level").items():
            bounds = self._bounds[level]
            if bounds is not None and (np.abs(rows) > bounds).any():
                return False
            if not self._payload_bounds[level].holds_all(rows):
                return False
        return True
