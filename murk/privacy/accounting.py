"""What a person's releases promise together."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from murk.errors import UserError
from murk.privacy import conversions
from murk.privacy.guarantees import ApproxDP, GaussianDP, Guarantee, Kind, PureDP, ZeroConcentratedDP
from murk.privacy.rounding import decimal, float_down, float_up, precise, rational

__all__ = ["Accountant", "in_parallel"]


@dataclass(frozen=True, slots=True)
class _Entry:
    """``count`` releases with the same claims; None where a claim of that kind does not exist."""

    count: int
    pure: Fraction | None
    gdp: Fraction | None
    zcdp: Fraction | None
    approx: tuple[Fraction, Fraction] | None


class Accountant:
    r"""Composes the releases of one person, chosen in any order, and says what they promise together.

    Pure epsilon adds, rho adds, mu adds in quadrature, (epsilon, delta) adds. Mixtures go through the best
    valid common currency: pure is GDP with mu = 2 Phi^-1(e^epsilon / (1 + e^epsilon)) and zCDP with
    rho = epsilon^2 / 2; GDP is zCDP with rho = mu^2 / 2; (epsilon, delta) adds to whatever the others are at the
    rest of delta. Sums are exact, and the answer is rounded up.

    The mechanisms may be chosen one after the other in view of earlier releases, as long as their guarantees
    are fixed in advance. Where the guarantees themselves depend on earlier releases, keep to a cap: in mu^2 (Smith,
    Thakurta, "Fully adaptive composition for Gaussian differential privacy", 2022), rho, epsilon or (epsilon, delta).

    Examples
    --------
    >>> from murk.privacy import Accountant, GaussianDP, PureDP
    >>> account = Accountant().compose(GaussianDP(1.0), count=4)
    >>> account.spent("gdp")
    GaussianDP(mu=2.0)
    >>> account.compose(PureDP(0.5)).spent("zcdp")
    ZeroConcentratedDP(rho=2.125)
    """

    def __init__(self) -> None:
        self._entries: list[_Entry] = []

    def __repr__(self) -> str:
        return f"<Accountant of {self.releases} releases>"

    @property
    def releases(self) -> int:
        """Number of releases composed."""
        return sum(entry.count for entry in self._entries)

    def compose(self, release: Any, count: int = 1) -> "Accountant":
        """Add ``count`` releases.

        Parameters
        ----------
        release
            A guarantee, or a mechanism of ``murk.privacy`` (with its ``guarantees``).
        count
            How many times it was made.

        Returns
        -------
        The accountant itself.

        Raises
        ------
        UserError
            If it is neither, or the count is not a positive integer.
        """
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise UserError(f"count={count!r} is not a positive integer")
        self._entries.append(_entry(_claims(release), count))
        return self

    def spent(self, kind: Kind, *, delta: float | None = None, epsilon: float | None = None) -> Guarantee:
        """What all releases together promise, in terms of ``kind``.

        Parameters
        ----------
        kind
            ``"pure"``, ``"approx"``, ``"gdp"`` or ``"zcdp"``.
        delta, epsilon
            For ``"approx"``: exactly one of them; the other is computed.

        Raises
        ------
        UserError
            If a release promises nothing of that kind; the message names the reason and what can be asked.
        """
        # Checks the words asked with, by the same rules as for a single guarantee.
        PureDP(0.0).to(kind, delta=delta, epsilon=epsilon)
        if delta is not None:
            return self._at_delta(delta)
        if epsilon is not None:
            return self._at_epsilon(epsilon)
        for entry in self._entries:
            if getattr(entry, kind) is None:
                raise UserError(f"these releases promise no {kind} guarantee: {_reason(kind, entry)}")
        total = _sum(kind, self._entries)
        if kind == "gdp":
            return GaussianDP(total)
        return PureDP(total) if kind == "pure" else ZeroConcentratedDP(total)

    def describe(self, delta: float = 1e-5) -> str:
        """What was spent, in plain words, in the strongest terms that all releases allow.

        ``delta`` is used where only (epsilon, delta) is left to say it in; more is used if the releases' own
        deltas add up to more than half of it.
        """
        if not self._entries:
            return "Nothing was released, so nothing is disclosed."
        many = f"{self.releases} release{'s' if self.releases > 1 else ''} together: "
        kinds: tuple[Kind, ...] = ("pure", "gdp", "zcdp")
        for kind in kinds:
            if all(getattr(entry, kind) is not None for entry in self._entries):
                return many + self.spent(kind).describe()
        own = self._added()[1]
        return many + self.spent("approx", delta=max(delta, float_up(2 * own))).describe()

    def _added(self) -> tuple[Fraction, Fraction]:
        """(epsilon, delta) of the releases that are known by nothing else."""
        known = [(entry.count, entry.approx) for entry in self._entries if entry.zcdp is None]
        epsilon = sum((count * approx[0] for count, approx in known if approx), Fraction(0))
        delta = sum((count * approx[1] for count, approx in known if approx), Fraction(0))
        if delta >= 1:
            raise UserError("these releases promise nothing together: their deltas add up to 1 or more")
        return epsilon, delta

    def _with_zcdp(self) -> list[_Entry]:
        return [entry for entry in self._entries if entry.zcdp is not None]

    def _at_delta(self, delta: float) -> ApproxDP:
        epsilon, own = self._added()
        left = rational(delta) - own
        if left < 0:
            raise UserError(
                f"delta={delta:g} is below the sum of the releases' own, {float_up(own):g}; ask for that or more"
            )
        return ApproxDP(float_up(epsilon + _epsilon(self._with_zcdp(), float_down(left))), delta)

    def _at_epsilon(self, epsilon: float) -> ApproxDP:
        own, delta = self._added()
        left = rational(epsilon) - own
        if left < 0:
            raise UserError(
                f"epsilon={epsilon:g} is below the sum of the (epsilon, delta) releases' own, {float_up(own):g}; "
                "ask for that or more"
            )
        total = float_up(delta + _delta(self._with_zcdp(), left))
        if total >= 1:
            raise UserError(f"at epsilon={epsilon:g} these releases promise nothing (delta is 1); ask for a larger one")
        return ApproxDP(epsilon, total)


def _claims(release: Any) -> tuple[Guarantee, ...]:
    if isinstance(release, Guarantee):
        return (release,)
    claims = getattr(release, "guarantees", None)
    if isinstance(claims, tuple) and claims and all(isinstance(claim, Guarantee) for claim in claims):
        return claims
    raise UserError(
        f"cannot account for {type(release).__name__}: it is neither a guarantee nor a mechanism that states its "
        "claims; compose a PureDP, ApproxDP, GaussianDP or ZeroConcentratedDP that holds for it"
    )


def _entry(claims: tuple[Guarantee, ...], count: int) -> _Entry:
    """The best known figure of every kind."""
    found: dict[str, list[Fraction]] = {"pure": [], "gdp": [], "zcdp": []}
    approx: tuple[Fraction, Fraction] | None = None
    for claim in claims:
        if isinstance(claim, ApproxDP) and claim.delta > 0:
            approx = (rational(claim.epsilon), rational(claim.delta))
        if isinstance(claim, ApproxDP) and claim.delta == 0:
            claim = PureDP(claim.epsilon)
        if isinstance(claim, PureDP):
            found["pure"].append(rational(claim.epsilon))
            found["gdp"].append(rational(conversions.pure_to_gdp(claim.epsilon)))
            found["zcdp"].append(rational(claim.epsilon) ** 2 / 2)
        elif isinstance(claim, GaussianDP):
            found["gdp"].append(rational(claim.mu))
            found["zcdp"].append(rational(claim.mu) ** 2 / 2)
        elif isinstance(claim, ZeroConcentratedDP):
            found["zcdp"].append(rational(claim.rho))
    best = {kind: min(values) if values else None for kind, values in found.items()}
    if best["zcdp"] is None and approx is None:
        raise UserError(f"cannot account for {claims!r}: a kind of guarantee that Murk does not know")
    return _Entry(count, best["pure"], best["gdp"], best["zcdp"], approx)


def _reason(kind: str, entry: _Entry) -> str:
    if entry.zcdp is None:
        return 'one is known by (epsilon, delta) alone, which adds only as such; ask for spent("approx", delta=...)'
    if kind == "pure":
        return "one of them has Gaussian noise, whose rare outcomes no epsilon bounds; ask for gdp, zcdp or approx"
    return "one is known by its rho alone, which no mu follows from; ask for zcdp or approx"


def _sum(kind: str, entries: list[_Entry]) -> float:
    """The entries' total in one kind that they all have, rounded up."""
    total = Fraction(0)
    for entry in entries:
        value: Fraction = getattr(entry, kind)
        total += entry.count * (value * value if kind == "gdp" else value)
    return _root_up(total) if kind == "gdp" else float_up(total)


def _root_up(square: Fraction) -> float:
    """The smallest float whose meaning has at least this square."""
    with precise():
        root = float_down(decimal(square).sqrt())
    while rational(root) ** 2 < square:
        root = math.nextafter(root, math.inf)
    while root > 0 and rational(math.nextafter(root, 0.0)) ** 2 >= square:
        root = math.nextafter(root, 0.0)
    return root


def _epsilon(entries: list[_Entry], delta: float) -> Fraction:
    """The least epsilon at ``delta`` over all valid routes."""
    pure = [entry for entry in entries if entry.pure is not None]
    other = [entry for entry in entries if entry.pure is None]
    epsilon = _sum("pure", pure)
    if not other:
        routes = [rational(conversions.pure_epsilon(epsilon, delta))]
    elif delta == 0:
        raise UserError("no delta is left for the releases with Gaussian noise; ask for a larger one")
    else:
        # The pure ones by addition, the others by their curve.
        routes = [rational(epsilon) + rational(curve(total, delta)) for total, curve in _curves(other, "epsilon")]
    if delta > 0:
        routes += [rational(curve(total, delta)) for total, curve in _curves(entries, "epsilon")]
    return min(routes)


def _delta(entries: list[_Entry], epsilon: Fraction) -> Fraction:
    """The least delta at ``epsilon`` over all valid routes."""
    pure = [entry for entry in entries if entry.pure is not None]
    other = [entry for entry in entries if entry.pure is None]
    spent = _sum("pure", pure)
    at, left = float_down(epsilon), epsilon - rational(spent)
    routes = [rational(curve(total, at)) for total, curve in _curves(entries, "delta")]
    if not other:
        routes.append(rational(conversions.pure_delta(spent, at)))
    elif left >= 0:
        routes += [rational(curve(total, float_down(left))) for total, curve in _curves(other, "delta")]
    return min(routes)


def _curves(entries: list[_Entry], answer: Literal["epsilon", "delta"]) -> list[tuple[float, Callable[..., float]]]:
    """Totals with their (epsilon, delta) curve: exact where all are GDP, and by Renyi divergence.

    The exact one is the smaller wherever all is Gaussian; pure releases enter the two at different prices, so
    both are tried.
    """
    routes: list[tuple[float, Callable[..., float]]] = []
    if all(entry.gdp is not None for entry in entries):
        exact = conversions.gdp_epsilon if answer == "epsilon" else conversions.gdp_delta
        routes.append((_sum("gdp", entries), exact))
    renyi = conversions.zcdp_epsilon if answer == "epsilon" else conversions.zcdp_delta
    return [*routes, (_sum("zcdp", entries), renyi)]


def in_parallel(guarantees: Iterable[Guarantee]) -> Guarantee:
    """What a stream of different people's releases promises to each: the weakest of their guarantees.

    People are disjoint, so nothing adds up: (max epsilon, max delta), max mu, max rho.

    Raises
    ------
    UserError
        If there is none, or they are of different kinds.

    Examples
    --------
    >>> from murk.privacy import GaussianDP
    >>> from murk.privacy.accounting import in_parallel
    >>> in_parallel([GaussianDP(0.5), GaussianDP(2.0)])
    GaussianDP(mu=2.0)
    """
    people = list(guarantees)
    kinds = {person.kind for person in people}
    if len(kinds) != 1:
        raise UserError(
            f"guarantees of one kind are needed, got {', '.join(sorted(kinds)) or 'none'}; convert them with .to(...)"
        )
    first = people[0]
    if isinstance(first, ApproxDP):
        both = [person for person in people if isinstance(person, ApproxDP)]
        return ApproxDP(max(p.epsilon for p in both), max(p.delta for p in both))
    ((name, _),) = first.to_dict()[first.kind].items()
    return max(people, key=lambda person: float(getattr(person, name)))
