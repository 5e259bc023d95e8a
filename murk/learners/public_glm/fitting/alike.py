"""Whether public covariates are like the people whose second moments are released, as far as these tell."""

from __future__ import annotations

import numpy as np

from murk.learners.estimates.misfit import MOST_NUMBERS, UNLIKE, misfit
from murk.learners.public_glm.moments import Private
from murk.learners.public_glm.public import Covariates
from murk.learners.scores.layout import flattened, matrix_size

UNLIKE_ROWS = "public covariates are not used: they are unlike the people with a target"
OTHERS = "public covariates are not used: they are of everybody, and targets are missing"


def usable(private: Private, public: Covariates) -> tuple[bool | None, str | None]:
    """Whether public covariates are like the people with a target (None: not known), and why they may not be used.

    Where targets are missing, what is fitted is of those that are there: rows may be somewhat unlike these without
    being found out, and intervals would not know.
    """
    like = alike(private, public)
    if like is False:
        return like, UNLIKE_ROWS
    return like, OTHERS if private.missing > 0.0 else None


def alike(private: Private, public: Covariates) -> bool | None:
    """Whether two second-moment matrices differ by no more than chance makes them; None for too many numbers.

    The released one has known noise, in every number and in the share of targets that all are divided by, and both are
    of so many people and rows. One false alarm in 10,000, if both are drawn from the same people.
    """
    p = len(private.matrix)
    if matrix_size(p) > MOST_NUMBERS:
        return None
    own = flattened(private.matrix)
    noise = np.diag(flattened(np.sqrt(private.matrix_noise)) ** 2)
    scaled = own.copy()
    # The constant's own entry is 1 whatever the share.
    scaled[-1] = 0.0
    noise += private.share_noise * np.outer(scaled, scaled)
    rows = public.people if public.total is None else public.total
    drawn = (1.0 / private.people[0] + 1.0 / rows) * public.scatter
    return misfit(own - flattened(public.second_moment), noise + drawn) <= UNLIKE
