"""How often one person may answer a task, and how much that adds to the variance of what is estimated.

Releases carry no name. If a person answers up to m times, the noise of their answers is independent, and of the
variance of a sum the people's part is at most m times that of answers of different people. Where an answer's noise has
the variance v of a bound of 1, which the people's variance cannot exceed, a sum has at most

    (v + m) / (v + 1)

times the variance of one of different people.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from murk.errors import UserError
from murk.privacy import cap_of

if TYPE_CHECKING:
    from murk.privacy import Guarantee
    from murk.task.privacy import PrivacyBlock

_ERROR_CODE = "MURK-TASK-001"

SUPPOSED: Final = 10  # answers of one person that intervals allow for where windows have no end
_MOST: Final = 10**6
_TESTS: Final = "P-values and tests of change need answers of different people, and are left out"


@dataclass(frozen=True)
class Repeats:
    """Answers of one person that intervals allow for.

    >>> Repeats(4, 1.6).words.partition(". ")[0]
    'One person may answer up to 4 times: intervals allow for it (1.26 times as wide)'
    """

    most: int  # m
    effect: float  # factor of the variance of sums
    supposed: bool = False  # whether nothing bounds m, and `SUPPOSED` is taken for it
    within: int = 1  # most answers of one person within a window

    @property
    def words(self) -> str:
        """What intervals allow for, in a sentence; empty if each person answers once."""
        if self.most == 1:
            return ""
        if self.effect == 1.0:
            return f"One person may answer up to {self.most:,} times, which these intervals do not allow for. {_TESTS}"
        wider = f"({math.sqrt(self.effect):.3g} times as wide)"
        if self.supposed:
            allowed = f"intervals allow for {self.most} answers of each {wider}. privacy.lifetime would bound them"
            return f"One person may answer in every window: {allowed}. {_TESTS}"
        return f"One person may answer up to {self.most:,} times: intervals allow for it {wider}. {_TESTS}"


ONCE: Final = Repeats(1, 1.0)


def noise_of(guarantee: Guarantee) -> float:
    """Return the least noise variance v of an answer within a bound of 1; 0 where it is not known.

    ``4 / mu^2`` of Gaussian noise, and ``c^2 - 1`` of randomized response, with ``c = (e^epsilon + 1) / (e^epsilon -
    1)``, or ``c = 1 / (2 Phi(mu / 2) - 1)`` under mu-GDP, where it has less noise than Gaussian noise from mu = 2.4 on.

    >>> from murk.privacy import GaussianDP, PureDP
    >>> noise_of(GaussianDP(1.0)), round(noise_of(GaussianDP(3.0)), 3), round(noise_of(PureDP(2.0)), 2)
    (4.0, 0.332, 0.72)
    """
    [(kind, figures)] = guarantee.to_dict().items()
    if kind == "pure":
        return float(math.tanh(figures["epsilon"] / 2.0) ** -2 - 1.0)
    if kind not in ("gdp", "zcdp"):
        return 0.0
    mu = figures["mu"] if kind == "gdp" else math.sqrt(2.0 * figures["rho"])
    return float(min(4.0 / mu**2, math.erf(mu / math.sqrt(8.0)) ** -2 - 1.0))


def effect_of(most: int, guarantees: list[Guarantee]) -> float:
    """Return the factor of the variance of sums if one person answers up to ``most`` times.

    >>> from murk.privacy import GaussianDP
    >>> effect_of(4, [GaussianDP(1.0)])
    1.6
    """
    return max((noise + most) / (noise + 1.0) for noise in map(noise_of, guarantees))


def repeats_of(privacy: PrivacyBlock) -> Repeats:
    """Return how often one person may answer under a task's caps."""
    guarantees, within = list(privacy.levels.values()), 1
    if privacy.renews and privacy.per_person is not None:
        within = max(_count(privacy.per_person, each) for each in guarantees)
    if privacy.whole is not None:
        most = max(_count(privacy.whole, each) for each in guarantees)
        return Repeats(most, effect_of(most, guarantees), within=min(within, most)) if most > 1 else ONCE
    return Repeats(SUPPOSED, effect_of(SUPPOSED, guarantees), True, within) if privacy.renews else ONCE


def _count(whole: Guarantee, each: Guarantee) -> int:
    """Return how many releases of a guarantee a cap allows; `SUPPOSED` where they have no currency in common."""
    cap = cap_of(whole)
    try:
        cost = cap_of(each if each.kind == whole.kind else each.to(whole.kind))
    except UserError:
        return SUPPOSED
    counts = [cap.units // max(cost.units, 1)]
    if cost.delta_units:
        counts.append(cap.delta_units // cost.delta_units)
    return int(min(max(min(counts), 1), _MOST))
