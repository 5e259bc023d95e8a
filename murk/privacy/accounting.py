"""Composition of the guarantees of several releases."""

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from murk.errors import UserError
from murk.privacy import conversions
from murk.privacy.guarantees import ApproxDP, GaussianDP, Guarantee, Kind, PureDP, TruncatedCDP, ZeroConcentratedDP
from murk.privacy.rounding import decimal, float_down, float_up, precise, rational

_ERROR_CODE = "MURK-PRIVACY-001"

_JOINT: tuple[Kind, ...] = ("pure", "gdp", "zcdp")  # kinds without a free delta, strongest first
_DELTA = 1e-5  # delta at which an epsilon is stated if no release has a delta of its own
_CLEARLY = 1 - 1e-9  # ratio of two accuracies; a difference beyond it is not due to rounding


@dataclass(frozen=True, slots=True)
class _Entry:
    """``count`` releases with equal guarantees (None for a kind not implied); ``truncated`` by increasing omega."""

    count: int
    pure: Fraction | None
    gdp: Fraction | None
    zcdp: Fraction | None
    approx: tuple[Fraction, Fraction] | None
    truncated: tuple[TruncatedCDP, ...]


@dataclass(frozen=True, slots=True)
class _Route:
    """A way to bound all releases: add (epsilon, delta) of some, and use a joint (epsilon, delta) curve of the others.

    Without omega, the others are ``entries``, which all have a rho. With omega, ``rho`` is the sum of the others' rho
    for orders up to omega.
    """

    epsilon: Fraction
    delta: Fraction
    entries: list[_Entry]
    rho: float
    omega: float | None

    def epsilon_at(self, delta: float) -> Fraction:
        left = float_down(rational(delta) - self.delta)
        if self.omega is None:
            return self.epsilon + _epsilon(self.entries, left)
        if left == 0:
            raise UserError("no delta is left: the releases' own deltas use all of it; give a larger delta")
        return self.epsilon + rational(conversions.zcdp_epsilon(self.rho, left, self.omega))

    def delta_at(self, epsilon: float) -> Fraction:
        left = rational(epsilon) - self.epsilon
        if self.omega is None:
            return self.delta + _delta(self.entries, left)
        return self.delta + rational(conversions.zcdp_delta(self.rho, float_down(left), self.omega))


class Accountant:
    """Composes the releases of one person, in any order, and computes their joint guarantee.

    Pure epsilon adds, rho adds, mu adds in quadrature, (epsilon, delta) adds. Different kinds are composed in the best
    kind that all imply: pure is GDP with mu = 2 Phi^-1(e^epsilon / (1 + e^epsilon)) and zCDP with rho = epsilon^2 / 2;
    GDP is zCDP with rho = mu^2 / 2. (epsilon, delta) is added to the epsilon of all others at the remaining delta. A
    Gaussian sketch has a `TruncatedCDP`: its rho and delta add to those of the other releases, for the orders that all
    releases bound. The smaller of the possible results counts. Sums are exact, and the answer is rounded up.

    A mechanism may be chosen in view of earlier releases if its guarantee is fixed in advance. If guarantees themselves
    depend on earlier releases, keep to a cap in mu^2 (Smith, Thakurta, "Fully adaptive composition for Gaussian
    differential privacy", 2022), rho, epsilon, (epsilon, delta), or truncated rho and delta at one omega.

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
        """Add ``count`` releases with a guarantee, or of a mechanism with ``guarantees``; return the accountant.

        Raises `UserError` if ``release`` is neither, or the count is not a positive integer.
        """
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise UserError(f"count={count!r} is not a positive integer")
        self._entries.append(_entry(_claims(release), count))
        return self

    def spent(self, kind: Kind, *, delta: float | None = None, epsilon: float | None = None) -> Guarantee:
        """Return the guarantee of all releases together, of kind ``"pure"``, ``"approx"``, ``"gdp"`` or ``"zcdp"``.

        For ``"approx"``, give either delta or epsilon; the other is computed. Raises `UserError` if a release implies
        no guarantee of that kind.
        """
        # Check the arguments as for a single guarantee.
        PureDP(0.0).to(kind, delta=delta, epsilon=epsilon)
        if delta is not None:
            return self._at_delta(delta)
        if epsilon is not None:
            return self._at_epsilon(epsilon)
        for entry in self._entries:
            if getattr(entry, kind) is None:
                raise UserError(f"these releases have no joint {kind} guarantee: {_reason(kind, entry)}")
        kinds: dict[str, Callable[[float], Guarantee]]
        kinds = {"pure": PureDP, "gdp": GaussianDP, "zcdp": ZeroConcentratedDP}
        return kinds[kind](_sum(kind, self._entries))

    def describe(self, delta: float | None = None) -> str:
        """Describe the joint guarantee of `strongest` in plain words.

        ``delta`` is used if only (epsilon, delta) is possible; it is increased if the releases' own deltas exceed half
        of it. Raises `UserError` if the releases have no joint guarantee.
        """
        if not self._entries:
            return "Nothing was released, so nothing is disclosed."
        joint = self.strongest() if delta is None else self.strongest(delta)
        if joint is None:
            own_delta = min(route.delta for route in self._routes())
            joint = self.spent("approx", delta=max(delta or _DELTA, float_up(2 * own_delta)))
        words = f"{self.releases} release{'s' if self.releases > 1 else ''} together: {joint.describe()}"
        best = min(self.guarantees, key=lambda claim: claim.max_attack_accuracy)
        if joint.kind in _JOINT and best.max_attack_accuracy < joint.max_attack_accuracy * _CLEARLY:
            words += f" Attacks are bounded more tightly by their joint mu. {best.describe()}"
        return words

    def strongest(self, *deltas: float) -> Guarantee | None:
        """Return the joint guarantee in the strongest kind that all releases imply, or None.

        If only (epsilon, delta) is possible, the epsilon is the least one at the first of ``deltas`` that suffices. By
        default these are the largest delta of one release, the sum of all deltas, and twice that sum. Half of the last
        is left for releases without a delta.
        """
        for kind in _JOINT:
            with suppress(UserError):
                return self.spent(kind)
        for delta in deltas or self._deltas():
            with suppress(UserError):
                return self.spent("approx", delta=delta)
        return None

    @property
    def guarantees(self) -> tuple[Guarantee, ...]:
        """Joint guarantees of the kinds without a free delta, strongest first; if there is none, `strongest`."""
        implied: list[Guarantee] = []
        for kind in _JOINT:
            with suppress(UserError):
                implied.append(self.spent(kind))
        if not implied and (joint := self.strongest()) is not None:
            implied.append(joint)
        return tuple(implied)

    def _deltas(self) -> tuple[float, ...]:
        stated = [(entry.count, entry.approx[1]) for entry in self._entries if entry.approx is not None]
        total = sum((count * delta for count, delta in stated), Fraction(0))
        largest = max((delta for _, delta in stated), default=rational(_DELTA))
        return float_up(largest), float_up(total), float_up(2 * total)

    def _routes(self) -> list[_Route]:
        """Return all routes to an (epsilon, delta); raise `UserError` if the deltas of every route add up to 1."""
        omegas = sorted({claim.omega for entry in self._entries for claim in entry.truncated})
        routes = [route for omega in (None, *omegas) if (route := self._route(omega)) and route.delta < 1]
        if not routes:
            raise UserError("these releases have no joint guarantee: their deltas add up to 1 or more")
        return routes

    def _route(self, omega: float | None) -> _Route | None:
        epsilon = delta = rho = Fraction(0)
        for entry in self._entries:
            # The truncated guarantee with the least omega that suffices.
            claim = next((each for each in entry.truncated if omega is not None and each.omega >= omega), None)
            if entry.zcdp is not None:
                rho += entry.count * entry.zcdp
            elif claim is not None:
                rho += entry.count * rational(claim.rho)
                delta += entry.count * rational(claim.delta)
            elif entry.approx is not None:
                epsilon += entry.count * entry.approx[0]
                delta += entry.count * entry.approx[1]
            else:
                return None
        others = [entry for entry in self._entries if entry.zcdp is not None]
        return _Route(epsilon, delta, others, float_up(rho), omega)

    def _at_delta(self, delta: float) -> ApproxDP:
        routes = self._routes()
        least = min(route.delta for route in routes)
        if rational(delta) < least:
            raise UserError(
                f"delta={delta:g} is below the sum of the releases' own deltas; give {float_up(least):g} or more"
            )
        epsilons: list[Fraction] = []
        for route in routes:
            if route.delta <= rational(delta):
                try:
                    epsilons.append(route.epsilon_at(delta))
                except UserError as error:
                    reason = error
        if not epsilons:
            raise reason
        return ApproxDP(float_up(min(epsilons)), delta)

    def _at_epsilon(self, epsilon: float) -> ApproxDP:
        routes = self._routes()
        least = min(route.epsilon for route in routes)
        if rational(epsilon) < least:
            raise UserError(
                f"epsilon={epsilon:g} is below the sum of the (epsilon, delta) releases' own epsilons; "
                f"give {float_up(least):g} or more"
            )
        total = float_up(min(route.delta_at(epsilon) for route in routes if route.epsilon <= rational(epsilon)))
        if total >= 1:
            raise UserError(f"at epsilon={epsilon:g} these releases have no guarantee (delta is 1); increase epsilon")
        return ApproxDP(epsilon, total)


def _claims(release: Any) -> tuple[Guarantee, ...]:
    if isinstance(release, Guarantee):
        return (release,)
    claims = getattr(release, "guarantees", None)
    if isinstance(claims, tuple) and claims and all(isinstance(claim, Guarantee) for claim in claims):
        return claims
    raise UserError(
        f"cannot account for {type(release).__name__}: it is neither a guarantee nor a mechanism with "
        "`guarantees`; compose a PureDP, ApproxDP, GaussianDP or ZeroConcentratedDP that holds for it"
    )


def _entry(claims: tuple[Guarantee, ...], count: int) -> _Entry:
    """Return ``count`` releases with the smallest parameter of every kind of guarantee that the claims imply."""
    figures: dict[str, list[Fraction]] = {"pure": [], "gdp": [], "zcdp": []}
    approx: tuple[Fraction, Fraction] | None = None
    for claim in claims:
        if isinstance(claim, ApproxDP) and claim.delta > 0:
            approx = (rational(claim.epsilon), rational(claim.delta))
        elif isinstance(claim, PureDP | ApproxDP):
            figures["pure"].append(rational(claim.epsilon))
            figures["gdp"].append(rational(conversions.pure_to_gdp(claim.epsilon)))
            figures["zcdp"].append(rational(claim.epsilon) ** 2 / 2)
        elif isinstance(claim, GaussianDP):
            figures["gdp"].append(rational(claim.mu))
            figures["zcdp"].append(rational(claim.mu) ** 2 / 2)
        elif isinstance(claim, ZeroConcentratedDP):
            figures["zcdp"].append(rational(claim.rho))
    truncated = sorted((claim for claim in claims if isinstance(claim, TruncatedCDP)), key=lambda claim: claim.omega)
    best = {kind: min(values) if values else None for kind, values in figures.items()}
    if best["zcdp"] is None and approx is None and not truncated:
        raise UserError(f"cannot account for {claims!r}: a kind of guarantee that Murk does not know")
    return _Entry(count, best["pure"], best["gdp"], best["zcdp"], approx, tuple(truncated))


def _reason(kind: str, entry: _Entry) -> str:
    if entry.zcdp is None:
        return 'one of them has only an (epsilon, delta) guarantee; use spent("approx", delta=...)'
    if kind == "pure":
        return "one of them has Gaussian noise, whose rare outcomes no epsilon bounds; use gdp, zcdp or approx"
    return "one of them has only a rho, from which no mu follows; use zcdp or approx"


def _sum(kind: str, entries: list[_Entry]) -> float:
    power = 2 if kind == "gdp" else 1
    total = sum((entry.count * getattr(entry, kind) ** power for entry in entries), Fraction(0))
    figure = _root_up(total) if kind == "gdp" else float_up(total)
    if figure == math.inf:
        raise UserError("these releases guarantee nothing: the sum of their losses is too large for a float")
    return figure


def _root_up(square: Fraction) -> float:
    """Return the smallest float whose square is at least ``square``."""
    with precise():
        root = float_down(decimal(square).sqrt())
    while rational(root) ** 2 < square:
        root = math.nextafter(root, math.inf)
    while root > 0 and rational(math.nextafter(root, 0.0)) ** 2 >= square:
        root = math.nextafter(root, 0.0)
    return root


def _pure_and_other(entries: list[_Entry]) -> tuple[list[_Entry], float]:
    """Return the entries that are not pure, and the summed epsilon of the pure ones."""
    pure = [entry for entry in entries if entry.pure is not None]
    return [entry for entry in entries if entry.pure is None], _sum("pure", pure)


def _epsilon(entries: list[_Entry], delta: float) -> Fraction:
    """Return the least epsilon at ``delta`` over all valid routes."""
    other, epsilon = _pure_and_other(entries)
    if not other:
        routes = [rational(conversions.pure_epsilon(epsilon, delta))]
    elif delta == 0:
        raise UserError("no delta is left for the releases with Gaussian noise; give a larger delta")
    else:
        # Add the epsilon of the pure releases to the epsilon of the other releases' curve.
        routes = [rational(epsilon) + rational(curve(total, delta)) for total, curve in _curves(other, "epsilon")]
    if delta > 0:
        routes += [rational(curve(total, delta)) for total, curve in _curves(entries, "epsilon")]
    return min(routes)


def _delta(entries: list[_Entry], epsilon: Fraction) -> Fraction:
    """Return the least delta at ``epsilon`` over all valid routes."""
    other, spent = _pure_and_other(entries)
    at, left = float_down(epsilon), epsilon - rational(spent)
    routes = [rational(curve(total, at)) for total, curve in _curves(entries, "delta")]
    if not other:
        routes.append(rational(conversions.pure_delta(spent, at)))
    elif left >= 0:
        routes += [rational(curve(total, float_down(left))) for total, curve in _curves(other, "delta")]
    return min(routes)


def _curves(entries: list[_Entry], answer: Literal["epsilon", "delta"]) -> list[tuple[float, Callable[..., float]]]:
    """Return (total, curve) pairs: mu with its exact curve, if all entries are GDP, and rho with the Renyi curve.

    The exact curve is smaller if all are Gaussian. Pure releases convert differently to mu and rho, so try both.
    """
    routes: list[tuple[float, Callable[..., float]]] = []
    if all(entry.gdp is not None for entry in entries):
        exact = conversions.gdp_epsilon if answer == "epsilon" else conversions.gdp_delta
        routes.append((_sum("gdp", entries), exact))
    renyi = conversions.zcdp_epsilon if answer == "epsilon" else conversions.zcdp_delta
    return [*routes, (_sum("zcdp", entries), renyi)]
