"""Which released examples are admitted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from murk._internal.lazy import map_levels
from murk.privacy.mechanisms.composite import CompositeMechanism
from murk.protocols.examples import layout as k
from murk.protocols.examples.settings import ExampleMechanism, ExampleSettings
from murk.stream.wire.admission import AdmissionRules
from murk.stream.wire.codec import RejectedError
from murk.stream.wire.releases import ExampleRelease

if TYPE_CHECKING:
    from murk.stream.wire.columns import Columns


def _bounds_of(mechanism: ExampleMechanism) -> list[int] | None:
    """Return the bound on each coordinate of a payload; None where one bound holds for all."""
    return mechanism.magnitudes.tolist() if isinstance(mechanism, CompositeMechanism) else None


class ExampleRules(AdmissionRules):
    """Admit examples within the bound on each coordinate, with a label of -1 or 1 if labels are flipped."""

    kind = "example"

    def __init__(self, settings: ExampleSettings, mechanisms: Mapping[str, ExampleMechanism]) -> None:
        super().__init__(mechanisms, (settings.dimension,))
        self._bounds = map_levels(_bounds_of, mechanisms)
        self._labelled = settings.form == k.LABEL

    def check_payload(self, release: ExampleRelease) -> None:
        """Raise RejectedError for a number beyond the bound on its coordinate, or a label other than -1 and 1."""
        bounds = self._bounds[release.level]
        if bounds is not None:
            for value, bound in zip(release.payload, bounds, strict=True):
                if abs(value) > bound:
                    raise RejectedError("magnitude", f"a number beyond {bound}, the bound on its coordinate")
        if self._labelled and release.payload[-1] not in (-1, 1):
            raise RejectedError("magnitude", f"a label of {release.payload[-1]}, neither -1 nor 1")

    def payloads_fit(self, releases: Columns) -> bool:
        """Return whether `check_payload` passes all these releases."""
        for level, rows in releases.split("level").items():
            bounds = self._bounds[level]
            if bounds is not None and (np.abs(rows) > bounds).any():
                return False
            if self._labelled and (np.abs(rows[:, -1]) != 1).any():
                return False
        return True


class CellRules(AdmissionRules):
    """Admit the numbers of a task's ``cells`` cells."""

    kind = "example"

    def __init__(self, mechanisms: Mapping[str, Any], cells: int) -> None:
        super().__init__(mechanisms, (1,))
        self._cells = cells

    def check_payload(self, release: ExampleRelease) -> None:
        """Raise RejectedError for a number that is not a cell's."""
        if not 0 <= release.payload[0] < self._cells:
            raise RejectedError("magnitude", f"{release.payload[0]} is not a cell from 0 to {self._cells - 1}")

    def payloads_fit(self, releases: Columns) -> bool:
        """Return whether `check_payload` passes all these releases."""
        by_level = releases.split("level")
        return all(rows.min() >= 0 and rows.max() < self._cells for rows in by_level.values())
