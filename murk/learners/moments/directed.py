"""Released directions in the estimators, in place of second moments."""

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

# Arguments for moments alone, with their defaults.
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

TOLD: Final = (*moments.TOLD, "exp")  # Curves whose coefficients directions identify; tasks have no link exp


def release_by_rule(arguments: Mapping[str, Any], curve: str) -> str:
    """Return the default release: directions with public covariates and no argument for moments alone.

    Otherwise ``observed``, or ``joint`` without the constant, as presence is released in place of the constant's entry.
    """
    unasked = all(arguments[name] == default for name, default in OF_MOMENTS.items())
    if arguments["public"] is not None and curve in TOLD and unasked:
        return "directions"
    return "observed" if arguments["intercept"] else "joint"


def check_directions(arguments: Mapping[str, Any], curve: str) -> None:
    """Refuse curves and arguments that directions do not support.

    Raises UserError, naming the argument and what to do.
    """
    remedy = "use release='observed'"
    if arguments["public"] is None:
        raise UserError(
            f"release='directions' needs public covariates to solve for coefficients: give public=, or {remedy}"
        )
    if curve not in TOLD:
        raise UserError(f"directions identify {', '.join(TOLD)} models, not {curve!r}: {remedy}")
    for name, default in OF_MOMENTS.items():
        if arguments[name] != default:
            raise UserError(f"{name}={arguments[name]!r} has no effect on directions: leave it out, or {remedy}")


class Directions:
    """Directions of records: their release, learning from them, and the solution.

    ``names`` are the coded features, the constant last; ``sample`` has their public covariates; ``mechanism`` is a
    kind of mechanism, or None.
    """

    def __init__(
        self, names: tuple[str, ...], sample: PublicSample, curve: Curve, response: Response, binary: bool,
        mechanism: str | None,
    ) -> None:  # fmt: skip
        covariates = PublicCovariates.of_rows(sample.rows)
        own = own_curve(curve, 0.0, 1.0) if binary else own_curve(curve, response.middle, response.half)
        self.settings = Settings(names, binary, covariates, once=True, curve=own)
        self.curve, self.response, self.kind = curve, response, mechanism

    def mechanisms_for(self, guarantee: Guarantee) -> ScoreMechanisms:
        """Return the mechanisms of a guarantee."""
        return score_mechanisms(self.kind, guarantee, self.settings.features, matrices=self.settings.matrices)

    def engine(self, guarantees: Mapping[str, Guarantee], noise: NoiseSource) -> LocalScores:
        """Return a learner at these levels."""
        return LocalScores(self.settings, guarantees, self.mechanisms_for, noise)

    def learn(
        self, engine: LocalScores, rows: Floats, y: Floats, budget: Guarantee | Sequence[Guarantee] | None
    ) -> None:
        """Randomize each record once, from rows (n, k) without the constant, and learn from the releases."""
        targets = (1.0 + y) / 2.0 if self.settings.binary else y
        engine.learn_records(rows, targets, engine.row_levels(budget, len(rows)))

    def in_units(self, coded: ScoreEstimate) -> ScoreEstimate:
        """Return an estimate of a real target's line in its own units."""
        if self.curve.name != "identity":
            return coded
        half, values = self.response.half, self.response.half * coded.values
        values[-1] += self.response.middle
        return replace(coded, values=values, spread=half * coded.spread, unit=half)

    def merged(self, engines: Sequence[LocalScores]) -> ScoreEstimate:
        """Return the joint estimate of several learners."""
        return self.in_units(merged(engines))

    def responses(self, engine: LocalScores, rows: Floats) -> Floats:
        """Return mean responses of rows without the constant: probabilities, or targets in their own units."""
        linear = with_constant(rows) @ engine.shown()
        if self.curve.name == "identity":
            return np.asarray(self.response.middle + self.response.half * linear)
        return self.curve.mean(linear)
