"""The mechanisms of a level of scores: for scores (any bounded vector), for matrices ``v v'`` and for one number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from murk.privacy.guarantees import Guarantee
from murk.privacy.mechanisms import GaussianMechanism, calibrate
from murk.privacy.mechanisms.base import Randomizer
from murk.privacy.mechanisms.costs import Costed, Currency, PrivacyLoss
from murk.privacy.mechanisms.outer_product import OuterGaussian, OuterMechanism, matrix_size


@dataclass(frozen=True)
class ScoreMechanisms:
    """The mechanisms of a privacy level for all queries. Every release is charged the same, the largest cost."""

    score: Randomizer  # for scores, (p,)
    matrix: Randomizer | None  # for scatters and curvatures, given v, (p,); None if nobody is asked for any
    bit: Randomizer | None = None  # for one number in [-1, 1]; None without prediction sets and surveys

    def mechanism(self, query: str) -> Randomizer:
        """Return the mechanism that randomizes answers to a query."""
        if query == "covered" or query.startswith("above"):
            return self.bit or self.score
        return self.score if query == "score" or self.matrix is None else self.matrix

    @property
    def _all(self) -> dict[str, Randomizer]:
        by_name = {"score": self.score, "matrix": self.matrix, "bit": self.bit}
        return {name: one for name, one in by_name.items() if one is not None}

    @property
    def _dearer(self) -> Costed:
        dearest: Randomizer = self.score
        for mechanism in self._all.values():
            if not mechanism.cost("gdp") <= dearest.cost("gdp"):
                dearest = mechanism
        return dearest

    @property
    def kind(self) -> str:
        """Kind of all mechanisms."""
        return self.score.kind

    @property
    def guarantee(self) -> Guarantee:
        """Guarantee of one release, whichever query it answers."""
        return self._dearer.guarantee

    @property
    def guarantees(self) -> tuple[Guarantee, ...]:
        """All known guarantees of one release."""
        return self._dearer.guarantees

    @property
    def magnitude(self) -> int:
        """Largest entry of an honest payload."""
        return max(each.magnitude for each in self._all.values())

    def cost(self, currency: Currency) -> PrivacyLoss:
        """Return the cost of one release, rounded up."""
        return self._dearer.cost(currency)

    def to_dict(self) -> dict[str, Any]:
        """Return the public parameters of all mechanisms."""
        return {name: one.to_dict() for name, one in self._all.items()}  # type: ignore[attr-defined]


LevelMechanisms = Mapping[str, ScoreMechanisms]  # mechanisms by privacy level


def score_mechanisms(
    kind: str | None,
    guarantee: Guarantee,
    features: int,
    contrasts: int = 1,
    *,
    matrices: bool = True,
    bits: bool = False,
) -> ScoreMechanisms:
    """Return a level's mechanisms; raise UserError if the kind is unknown or cannot provide the guarantee."""
    score = calibrate(kind, guarantee, dimension=contrasts * features, radius=1.0)
    # All mechanisms are of the same kind, so that they have the same cost in every currency and the same guarantee.
    bit = calibrate(score.kind, guarantee, dimension=1, radius=1.0) if bits else None
    if not matrices:
        return ScoreMechanisms(score, None, bit)
    if isinstance(score, GaussianMechanism):
        return ScoreMechanisms(score, OuterGaussian.calibrate(guarantee, features=features), bit)
    inner = calibrate(score.kind, guarantee, dimension=matrix_size(features), radius=1.0)
    return ScoreMechanisms(score, OuterMechanism(features, inner), bit)
