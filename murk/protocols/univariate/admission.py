"""Which released targets are admitted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from murk._internal.arrays import Integers
from murk.privacy.mechanisms.lattice import FORGED
from murk.stream.wire.admission import AdmissionRules
from murk.stream.wire.codec import RejectedError

if TYPE_CHECKING:
    from murk.protocols.univariate.settings import TargetMechanism
    from murk.stream.wire.columns import Columns
    from murk.stream.wire.releases import TargetRelease


class TargetRules(AdmissionRules):
    """Admit payloads that the level's mechanism releases."""

    kind = "target"
    mechanisms: Mapping[str, TargetMechanism]

    def __init__(self, mechanisms: Mapping[str, TargetMechanism]) -> None:
        super().__init__(mechanisms, (mechanisms["default"].dimension,))

    def check_payload(self, release: TargetRelease) -> None:
        """Raise RejectedError for a payload that the level's mechanism does not release."""
        if not self._holds(release.level, np.array([release.payload], dtype=np.int64)):
            raise RejectedError("magnitude", FORGED)

    def payloads_fit(self, releases: Columns) -> bool:
        """Return whether `check_payload` passes all these releases."""
        return all(self._holds(level, rows) for level, rows in releases.split("level").items())

    def _holds(self, level: str, rows: Integers) -> bool:
        mechanism = self.mechanisms[level]
        return rows.shape[1] == mechanism.dimension and mechanism.holds(rows)
