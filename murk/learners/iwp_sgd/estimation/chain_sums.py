"""What estimates take of a chain of released examples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from murk.learners.estimates.estimate import PublicCovariates

if TYPE_CHECKING:
    from murk.learners.iwp_sgd.settings import ExampleMechanism, ExampleSettings


class ChainSums(Protocol):
    """What a chain has summed of its releases, in the places that `murk.learners.iwp_sgd.layout` names."""

    settings: ExampleSettings
    covariates: PublicCovariates | None

    @property
    def real(self) -> NDArray[np.float64]:
        """All of its float64 numbers."""

    @property
    def whole(self) -> NDArray[np.int64]:
        """All of its int64 numbers."""

    @property
    def rows(self) -> NDArray[np.float64]:
        """State vectors."""

    @property
    def triangles(self) -> NDArray[np.float64]:
        """The two sums of the polish."""

    @property
    def mechanisms(self) -> Mapping[str, ExampleMechanism]:
        """Level name to mechanism."""

    @property
    def n_releases(self) -> int:
        """Number of releases learned."""
