"""Running an audit: each case's releases, its bounds, and whether they refute what is claimed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from murk.audit.bounds import lower_bound
from murk.audit.catalogue import Case
from murk.audit.trials import Trial
from murk.errors import UserError
from murk.privacy.explain import verdict
from murk.privacy.noise import NoiseSource, SecureNoise

__all__ = ["Finding", "audit"]


@dataclass(frozen=True)
class Finding:
    """What an audit found of one claim.

    Parameters
    ----------
    name
        What was audited.
    measure
        ``"mu"`` or ``"epsilon"``, at which delta.
    claimed
        What is claimed.
    bound
        The lower bound that the releases gave.
    pair
        What the distribution of the two inputs' releases has exactly, where it is known: what more draws would tend to.
    draws
        Releases of each input.
    failure
        Probability with which the bound may exceed the truth.
    neighbours
        The two inputs.
    """

    name: str
    measure: str
    claimed: float
    bound: float
    pair: float | None
    draws: int
    failure: float
    neighbours: Mapping[str, Any] = field(repr=False)

    @property
    def holds(self) -> bool:
        """Whether the claim stands: the bound does not exceed it."""
        return self.bound <= self.claimed

    @property
    def verdict(self) -> str:
        """Return ``"holds"``, ``"REFUTED"``, or ``"no power"`` where no claim could have been refuted."""
        return verdict(self.bound, self.holds)

    @property
    def ratio(self) -> float:
        """The bound over the claim."""
        return self.bound / self.claimed if self.claimed else float(self.bound > 0)

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "name": self.name,
            "measure": self.measure,
            "claimed": self.claimed,
            "lower_bound": self.bound,
            "ratio": self.ratio,
            "pair": self.pair,
            "draws": self.draws,
            "holds": self.holds,
            "neighbours": dict(self.neighbours),
        }


def audit(
    cases: Sequence[Case], draws: int, *, noise: NoiseSource | None = None, confidence: float = 0.999,
    tick: Callable[[int, str], None] = lambda done, text: None,
) -> Iterator[Finding]:  # fmt: skip
    """Audit cases, one after the other.

    Parameters
    ----------
    cases
        What to audit.
    draws
        Releases of each of a case's two inputs (of sketches fewer, see `trials`).
    noise
        Where devices take their noise from; None: `SecureNoise`, as devices do.
    confidence
        Probability with which no bound of all of them exceeds the truth, at least.
    tick
        Called with how many draws of ``2 * draws * len(cases)`` are done.

    Yields
    ------
    Finding
        One for each claim of each case.

    Raises
    ------
    UserError
        For a confidence that is no probability.
    """
    if not 0.0 < confidence < 1.0:
        raise UserError(f"confidence={confidence!r} is not between 0 and 1; 0.999 lets one audit in 1,000 mislead")
    source = SecureNoise() if noise is None else noise
    for number, case in enumerate(cases):
        start = 2 * draws * number
        tick(start, case.name)
        trial = case.prepare()
        failure = (1.0 - confidence) / (len(cases) * len(trial.yardsticks))
        yield from _audit_claims(
            case.name, trial, trial.draws(draws), source, failure, _share(tick, start, draws, trial, case)
        )
    tick(2 * draws * len(cases), "")


def _share(tick: Callable[[int, str], None], start: int, draws: int, trial: Trial, case: Case) -> Callable[[int], None]:
    """A tick for one case, whose draws are fewer than were asked for, perhaps."""
    return lambda done: tick(start + round(done * draws / trial.draws(draws)), case.name)


def _audit_claims(
    name: str, trial: Trial, count: int, noise: NoiseSource, failure: float, tick: Callable[[int], None]
) -> Iterator[Finding]:
    samples = []
    for which in (0, 1):
        blocks = []
        for block in trial.statistics(which, count, noise):
            blocks.append(block)
            tick(which * count + sum(map(len, blocks)))
        samples.append(np.concatenate(blocks))
    for yardstick in trial.yardsticks:
        bound = lower_bound(samples[0], samples[1], yardstick, failure)
        yield Finding(
            name, yardstick.name, yardstick.claimed, bound, trial.exact(yardstick), count, failure, trial.neighbours
        )
