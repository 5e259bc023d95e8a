"""How the estimators release directions: what they do in place of summing second moments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from murk.errors import UserError
from murk.learners.core.covariates import PublicSample
from murk.learners.core.curves import Curve
from murk.learners.core.scoring.engine import merged
from murk.learners.core.scoring.estimate import ScoreEstimate
from murk.learners.core.scoring.local import LocalScores
from murk.learners.core.scoring.mechanism import ScoreMechanisms, score_mechanisms
from murk.learners.core.scoring.model import with_constant
from murk.learners.core.scoring.settings import Settings
from murk.learners.estimates.estimate import PublicCovariates
from murk.learners.moments import protocol as moments
from murk.learners.moments.directions import own_curve
from murk.learners.moments.fit import Response
from murk.privacy import Guarantee
from murk.privacy.noise import NoiseSource

Floats = NDArray[np.float64]

OF_MOMENTS: Final[Mapping[str, Any]] = {
    **moments.OF_MOMENTS,
    "calibration": "analytic",
    "radius": None,
    "beyond": "scale",
    "target_weight": None,
    "repair": True,
    "intercept": True,
    "inputs": "records",
}
"""Arguments that say how second moments are bounded, released or used, with their defaults: directions have none."""

TOLD: Final = (*moments.TOLD, "exp")
"""Curves whose coefficients released directions identify: those of tasks, and one that tasks do not have."""


def release_by_rule(arguments: Mapping[str, Any], curve: str) -> str:
    """What is released where nobody said: directions, if covariates are public and nothing asks for moments.

    Else moments of the records that have a target; how many these are is not told without the constant.
    """
    unasked = all(arguments[name] == default for name, default in OF_MOMENTS.items())
    if arguments["public"] is not None and curve in TOLD and unasked:
        return "directions"
    return "observed" if arguments["intercept"] else "joint"


def check_directions(arguments: Mapping[str, Any], curve: str) -> None:
    """Refuse what directions do not tell, or do not read.

    Raises
    ------
    UserError
        Naming the argument and what to do.
    """
    remedy = "use release='observed'"
    if arguments["public"] is None:
        raise UserError(
            f"release='directions' solves for coefficients over public covariates: give public=, or {remedy}"
        )
    if curve not in TOLD:
        raise UserError(f"directions identify {', '.join(TOLD)} models, not {curve!r}: {remedy}")
    for name, default in OF_MOMENTS.items():
        if arguments[name] != default:
            raise UserError(f"{name}={arguments[name]!r} has no effect on directions: leave it out, or {remedy}")


class Directions:
    """Directions of records, released, learned and solved for.

    Parameters
    ----------
    names
        Coded features, the constant last.
    sample
        Public covariates of the features.
    response
        What a coded target of -1 and +1 means.
    curve
        The mean function.
    binary
        Whether targets are labels.
    mechanism
        The kind of mechanism, or None.
    """

    def __init__(
        self, names: tuple[str, ...], sample: PublicSample, curve: Curve, response: Response, binary: bool,
        mechanism: str | None,
    ) -> None:  # fmt: skip
        points, counts = np.unique(sample.rows, axis=0, return_counts=True)
        covariates = PublicCovariates(with_constant(points), counts.astype(np.int64))
        own = own_curve(curve, 0.0, 1.0) if binary else own_curve(curve, response.middle, response.half)
        self.settings = Settings(names, binary, covariates, once=True, curve=own)
        self.curve, self.response, self.kind = curve, response, mechanism

    def mechanisms_for(self, guarantee: Guarantee) -> ScoreMechanisms:
        """The mechanisms of a guarantee."""
        return score_mechanisms(self.kind, guarantee, self.settings.features, matrices=self.settings.matrices)

    def engine(self, guarantees: Mapping[str, Guarantee], noise: NoiseSource) -> LocalScores:
        """A learner at these levels."""
        return LocalScores(self.settings, guarantees, self.mechanisms_for, noise)

    def learn(
        self, engine: LocalScores, rows: Floats, y: Floats, budget: Guarantee | Sequence[Guarantee] | None
    ) -> None:
        """Randomize the records of rows (n, k) without the constant, each once, and learn from the results.

        Raises
        ------
        UserError
            If there are not as many budgets as rows.
        """
        each = isinstance(budget, Sequence)
        budgets: Sequence[Guarantee | None] = budget if isinstance(budget, Sequence) else [budget]
        if each and len(budgets) != len(rows):
            raise UserError(f"X has {len(rows)} rows, budget has {len(budgets)}")
        levels = ["default" if one is None else engine.level(one) for one in budgets]
        targets = (1.0 + y) / 2.0 if self.settings.binary else y
        engine.learn_records(rows, targets, levels)

    def in_units(self, found: ScoreEstimate) -> ScoreEstimate:
        """An estimate of a real target's line in its own units."""
        if self.curve.name != "identity":
            return found
        half, values = self.response.half, self.response.half * found.values
        values[-1] += self.response.middle
        return replace(found, values=values, spread=half * found.spread, unit=half)

    def merged(self, engines: Sequence[LocalScores]) -> ScoreEstimate:
        """The estimate of several learners together."""
        return self.in_units(merged(engines))

    def responses(self, engine: LocalScores, rows: Floats) -> Floats:
        """Mean responses of rows without the constant: probabilities, or targets in their own units."""
        linear = with_constant(rows) @ engine.shown()
        if self.curve.name == "identity":
            return np.asarray(self.response.middle + self.response.half * linear)
        return self.curve.mean(linear)
