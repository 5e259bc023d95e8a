r"""How far one organisation's forged window moves an estimate.

An organisation states how many records its window has, and the longest that is admitted counts for as many: nothing
tells them from records that are there. So a forged Gram matrix is as large as that many records and honest noise make
one, in spectral norm at most ``n (C_X^2 + a^2 C_Y^2) + (2 sqrt d + 12) s``, where the target has the weight a.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from murk.learners.estimates.forgers import Influence
from murk.learners.gaussmix.windows.gram_sums import precision

if TYPE_CHECKING:
    from murk.learners.gaussmix.windows.gram_settings import GramSettings
    from murk.learners.gaussmix.windows.gram_sums import GramSums
    from murk.privacy.gaussmix import GramMechanism

# Of the least and largest eigenvalue of honest noise, beside its own radius, in standard deviations.
_FAR = 12.0


def influence_of(settings: GramSettings, mechanisms: Mapping[str, GramMechanism], sums: GramSums) -> Influence | None:
    """What one forged window could have done; None before there is any."""
    if not sums.people > 0.0:
        return None
    p = sums.columns - 1
    least = float(np.linalg.eigvalsh(sums.moment[:p, :p])[0])
    if not (least > 0.0 and sums.noise > 0.0):
        return Influence(math.inf, math.inf)
    size = 0.0
    for mechanism in mechanisms.values():
        records = min(mechanism.largest_window, settings.window or mechanism.largest_window)
        square = mechanism.feature_bound**2 + (mechanism.target_weight * mechanism.target_bound) ** 2
        weight = 1.0
        if settings.weighting == "inverse-variance":
            weight = precision(records=records, noise=mechanism.scale**2, square=settings.feature_bound**2)
        radius = mechanism.scale * (2.0 * math.sqrt(sums.columns) + _FAR)
        size = max(size, weight * (records * square + radius))
    return Influence(math.sqrt(2.0) * size / math.sqrt(sums.noise), size / least)
