"""The model that is fitted to released moments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from murk.protocols.mean_functions import LOSSES, Curve, ResponseRange
from murk.protocols.moments.statistics import Statistics
from murk.protocols.rows import Rows

if TYPE_CHECKING:
    from murk.protocols.moments.sums import MomentSums, Private


@dataclass(frozen=True)
class MomentModel:
    """The model to fit to the moments."""

    curve: Curve  # mean function of the loss or the link
    response: ResponseRange  # meaning of coded targets
    public: Rows | None  # None: ``x'w`` is taken as normal
    covariance: str = "both"  # "both", "private" or "pooled": see `sums.private_share`
    solver: str = "stein"  # "stein": the paper's two equations; "score": maximum likelihood; see `solve`
    repair: bool = True  # whether to repair second moments that noise outweighs: see `sums.design_of`

    def size(self, layout: Statistics) -> int:
        """Return the number of coefficients."""
        return layout.size

    def own_layout(self, layout: Statistics) -> Statistics:
        """Return the layout of those released numbers that the model uses."""
        return layout

    def private(self, sums: MomentSums, layout: Statistics) -> Private:
        """Return the means, and their noise, of the numbers that the model uses."""
        # Imported here, as devices do not need it.
        from murk.protocols.moments.sums import Private

        return Private.of(sums, layout, self.curve.name in LOSSES)
