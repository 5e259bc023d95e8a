"""Running an audit: releases of each case, lower bounds, and comparison with the claims."""

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from murk.audit.bounds import detectable, lower_bound
from murk.audit.catalogue import Case
from murk.errors import UserError
from murk.privacy.guarantees import verdict
from murk.privacy.noise import NoiseSource, SecureNoise

_ERROR_CODE = "MURK-AUDIT-001"


@dataclass(frozen=True)
class Finding:
    """Result of an audit for one claim."""

    name: str
    measure: str  # "mu", or "epsilon" with its delta
    claimed: float
    bound: float  # lower bound on the measure
    pair: float | None  # exact value for the two inputs, if known
    draws: int  # number of releases of each input
    failure: float  # largest probability that the bound exceeds the truth
    detectable: float  # the least loss that would have been found, with probability 95%
    neighbours: Mapping[str, Any] = field(repr=False)

    @property
    def holds(self) -> bool:
        """Whether the bound does not exceed the claim."""
        return self.bound <= self.claimed

    @property
    def verdict(self) -> str:
        """``"not refuted"``, ``"REFUTED"``, or ``"no power"`` if the bound is 0, which could refute no claim."""
        return verdict(self.bound, self.holds)

    @property
    def ratio(self) -> float:
        """The bound divided by the claim."""
        return self.bound / self.claimed if self.claimed else float(self.bound > 0)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        figures = {"lower_bound": self.bound, "ratio": self.ratio, "pair": self.pair, "failure": self.failure}
        figures["detectable"] = self.detectable if math.isfinite(self.detectable) else None
        claim = {"name": self.name, "measure": self.measure, "claimed": self.claimed}
        return {**claim, **figures, "draws": self.draws, "holds": self.holds, "neighbours": dict(self.neighbours)}


def checksum(result: Mapping[str, Any]) -> str:
    """Return the SHA-256 of an audit's result without its own checksum; it reveals a change, but is no signature."""
    content = {key: value for key, value in result.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def audit(
    cases: Sequence[Case],
    draws: int,
    *,
    noise: NoiseSource | None = None,
    confidence: float = 0.999,
    tick: Callable[[int, str], None] = lambda done, text: None,
) -> Iterator[Finding]:
    """Audit cases one after the other and yield a finding for each claim.

    ``draws`` is the number of releases of each of a case's two inputs (fewer for windows, see `trials`), ``noise`` the
    source of the devices' noise, by default secure, and ``confidence`` the probability with which no bound exceeds the
    truth. ``tick`` is called with the number of draws done, out of ``2 * draws * len(cases)``, and the case's name.
    Raises `UserError` if the confidence is not between 0 and 1.
    """
    if not 0.0 < confidence < 1.0:
        raise UserError(f"confidence={confidence!r} is not between 0 and 1; 0.999 lets one audit in 1,000 mislead")
    source = SecureNoise() if noise is None else noise
    for number, case in enumerate(cases):
        start = 2 * draws * number
        tick(start, case.name)
        trial = case.prepare()
        # A trial may make fewer draws than requested.
        count = trial.draws(draws)
        failure = (1.0 - confidence) / (len(cases) * len(trial.yardsticks))
        samples = []
        for which in (0, 1):
            blocks = []
            for block in trial.statistics(which, count, source):
                blocks.append(block)
                tick(start + round((which * count + sum(map(len, blocks))) * draws / count), case.name)
            samples.append(np.concatenate(blocks))
        for claim in trial.yardsticks:
            bound, pair = lower_bound(samples[0], samples[1], claim, failure), trial.exact(claim)
            least = detectable(claim, count, failure)
            yield Finding(case.name, claim.name, claim.claimed, bound, pair, count, failure, least, trial.neighbours)
    tick(2 * draws * len(cases), "")
