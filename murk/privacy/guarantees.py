"""Five kinds of local differential privacy: neighbours *replace* a record by any other one, and never leave it out.

In plain words a guarantee is the success rates of the strongest adversary, rounded up.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import ClassVar, Literal, NoReturn, overload

from murk.errors import UserError
from murk.privacy import conversions
from murk.privacy.conversions import gdp_epsilon, zcdp_delta, zcdp_epsilon
from murk.privacy.rounding import float_down, float_up, rational, require

_ERROR_CODE = "MURK-PRIVACY-001"

Kind = Literal["pure", "approx", "gdp", "zcdp", "tcdp"]

KINDS: dict[str, str] = {"pure": "PureDP", "approx": "ApproxDP", "gdp": "GaussianDP", "zcdp": "ZeroConcentratedDP"}
"""Kinds of guarantee that a release can be required to have; `TruncatedCDP` is only for Gaussian sketches and caps."""

# Larger values guarantee nothing, and their integer units would overflow a ledger's 64 bits.
_LARGEST = {"epsilon": 1e6, "mu": 1e3, "rho": 1e6, "omega": 1e12}


class Guarantee(ABC):
    """Base class of the guarantees: frozen, comparable, hashable, and a function of public numbers only."""

    __slots__ = ()
    kind: ClassVar[Kind]

    def describe(self) -> str:
        """Describe the guarantee in plain words."""
        return describe(self.kind, **self._figures)

    @overload
    def to(self, kind: Literal["pure"]) -> "PureDP": ...
    @overload
    def to(self, kind: Literal["gdp"]) -> "GaussianDP": ...
    @overload
    def to(self, kind: Literal["zcdp"]) -> "ZeroConcentratedDP": ...
    @overload
    def to(self, kind: Literal["approx"], *, delta: float) -> "ApproxDP": ...
    @overload
    def to(self, kind: Literal["approx"], *, epsilon: float) -> "ApproxDP": ...
    @overload
    def to(self, kind: Kind, *, delta: float | None = None, epsilon: float | None = None) -> "Guarantee": ...
    def to(self, kind: Kind, *, delta: float | None = None, epsilon: float | None = None) -> "Guarantee":
        """Return the smallest implied guarantee of a kind (``"pure"``, ``"approx"``, ``"gdp"``, ``"zcdp"``).

        ``"approx"`` needs either ``delta`` or ``epsilon``; the other is computed. Raises `UserError` if none is
        implied.
        """
        check_kind(kind, delta, epsilon)
        if kind != "approx":
            return self._converted(kind)
        if epsilon is None:
            assert delta is not None
            return ApproxDP(self._epsilon_at(delta), delta)
        delta = self._delta_at(epsilon)
        if delta >= 1:
            refuse(self, "approx", f"at epsilon={epsilon:g} its delta is too close to 1; give a larger epsilon")
        return ApproxDP(epsilon, delta)

    def _epsilon_at(self, delta: float) -> float:
        """Return the smallest epsilon at a delta."""
        [figure] = self._figures.values()
        return _CURVES[self.kind][0](figure, delta)

    def _delta_at(self, epsilon: float) -> float:
        """Return the smallest delta at an epsilon."""
        [figure] = self._figures.values()
        return _CURVES[self.kind][1](figure, epsilon)

    @abstractmethod
    def _converted(self, kind: Kind) -> "Guarantee":
        """Return the smallest guarantee of a kind other than ``"approx"``."""

    @property
    def max_attack_accuracy(self) -> float:
        """Largest probability of telling two records apart, for an adversary who knows all else (1/2 is guessing)."""
        return max_attack_accuracy(self.kind, **self._figures)

    @property
    def _figures(self) -> dict[str, float]:
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]

    def to_dict(self) -> dict[str, dict[str, float]]:
        """Return plain data, as in a task file: ``{"gdp": {"mu": 1.0}}``."""
        return {self.kind: self._figures}

    def as_yaml(self) -> str:
        """Return the guarantee as a line of a task file: ``{gdp: {mu: 1.0}}``."""
        figures = ", ".join(f"{name}: {_as_yaml(value)}" for name, value in self._figures.items())
        return f"{{{self.kind}: {{{figures}}}}}"

    def implies(self, other: "Guarantee") -> bool:
        """Return whether this guarantee implies ``other``."""
        try:
            if isinstance(other, TruncatedCDP):
                return self._implies_truncated(other)
            mine = self.to("approx", epsilon=other.epsilon) if isinstance(other, ApproxDP) else self.to(other.kind)
        except UserError:
            return False
        return all(getattr(mine, name) <= figure for name, figure in other._figures.items())  # noqa: SLF001

    def _implies_truncated(self, other: "TruncatedCDP") -> bool:
        return self.to("zcdp").rho <= other.rho

    def __post_init__(self) -> None:
        """Check the parameters and store them as floats."""
        for name, value in self._figures.items():
            object.__setattr__(self, name, _checked(type(self).__name__, name, value))


def _checked(owner: str, name: str, value: object) -> float:
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if isinstance(value, str):
        hint = f"; YAML reads it as a number if written {_as_yaml(number)}" if math.isfinite(number) else ""
        raise UserError(f"{owner}: {name} must be a number, got the text {value!r}{hint}")
    if isinstance(value, bool) or math.isnan(number):
        raise UserError(f"{owner}: {name} must be a number, got {value!r}")
    if name == "delta":
        if not 0 <= number < 1:
            raise UserError(f"{owner}: delta={value!r} is not in [0, 1); it is a probability such as 1e-6")
    elif name == "omega" and number <= 1:
        raise UserError(f"{owner}: omega={value!r} leaves no order of the Renyi divergence; it must be above 1")
    elif number < 0:
        raise UserError(f"{owner}: {name}={value!r} is negative; a guarantee needs {name} > 0")
    elif number > _LARGEST[name]:
        raise UserError(
            f"{owner}: {name}={value!r} guarantees nothing; the largest accepted value is {_LARGEST[name]:g}"
        )
    return number


def _as_yaml(number: float) -> str:
    """Return a number as YAML 1.1 reads it: with a point before any exponent."""
    digits, exponent, power = repr(number).partition("e")
    return (digits if "." in digits else digits + ".0") + exponent + power


def check_kind(kind: str, delta: float | None, epsilon: float | None) -> None:
    """Check the arguments of a conversion."""
    if kind not in KINDS:
        raise UserError(f"unknown kind of guarantee {kind!r}{nearest(kind, KINDS)}; use one of {', '.join(KINDS)}")
    if kind == "approx" and (delta is None) == (epsilon is None):
        raise UserError('an (epsilon, delta) guarantee needs one of epsilon and delta, as in to("approx", delta=1e-6)')
    if kind != "approx" and (delta is not None or epsilon is not None):
        raise UserError(f'delta and epsilon are for to("approx") only, not for to("{kind}")')


def refuse(owner: Guarantee, kind: str, reason: str) -> NoReturn:
    """Raise `UserError`, with the reason why a guarantee implies none of another kind."""
    raise UserError(f"{owner!r} implies no {KINDS[kind]} guarantee: {reason}")


def nearest(name: object, known: Iterable[str]) -> str:
    """Return a hint at the most similar known name; empty if none is similar."""
    import difflib

    close = difflib.get_close_matches(str(name), list(known), n=1, cutoff=0.4)
    return f" (did you mean {close[0]!r}?)" if close else ""


_CURVES: dict[str, tuple[Callable[[float, float], float], Callable[[float, float], float]]] = {
    "pure": (conversions.pure_epsilon, conversions.pure_delta),
    "gdp": (conversions.gdp_epsilon, conversions.gdp_delta),
    "zcdp": (conversions.zcdp_epsilon, conversions.zcdp_delta),
}


@dataclass(frozen=True, slots=True)
class PureDP(Guarantee):
    r"""Pure differential privacy: no odds change by more than a factor e^epsilon.

    .. math:: P(M(x) \in S) \le e^{\epsilon}\, P(M(x') \in S) \quad\text{for all } x, x', S

    Reference: Dwork, McSherry, Nissim, Smith 2006; Kasiviswanathan et al. 2011 (local).

    >>> PureDP(1.0).to("zcdp")
    ZeroConcentratedDP(rho=0.5)

    Parameters
    ----------
    epsilon
        At least 0 (nothing disclosed).
    """

    epsilon: float
    kind: ClassVar[Kind] = "pure"

    def _converted(self, kind: Kind) -> Guarantee:
        if kind == "gdp":
            return GaussianDP(conversions.pure_to_gdp(self.epsilon))
        if kind == "zcdp":
            return ZeroConcentratedDP(float_up(rational(self.epsilon) ** 2 / 2))
        return self


@dataclass(frozen=True, slots=True)
class ApproxDP(Guarantee):
    r"""Approximate differential privacy: as `PureDP`, up to a probability delta.

    .. math:: P(M(x) \in S) \le e^{\epsilon}\, P(M(x') \in S) + \delta \quad\text{for all } x, x', S

    Reference: Dwork, Kenthapadi, McSherry, Mironov, Naor 2006.

    >>> ApproxDP(1.0, 1e-6)
    ApproxDP(epsilon=1.0, delta=1e-06)

    Parameters
    ----------
    epsilon, delta
        Each at least 0; delta is below 1, and 0 makes the guarantee a `PureDP`.
    """

    epsilon: float
    delta: float
    kind: ClassVar[Kind] = "approx"

    def _epsilon_at(self, delta: float) -> float:
        require("delta", delta, below=1)
        if delta < self.delta:
            refuse(self, "approx", f"delta={delta:g} is below its own delta, {self.delta:g}")
        left = (rational(delta) - rational(self.delta)) / (1 - rational(self.delta))
        return conversions.pure_epsilon(self.epsilon, float_down(left))

    def _delta_at(self, epsilon: float) -> float:
        # delta + (1 - delta) (e^mine - e^epsilon) / (1 + e^mine), for the worst release with this guarantee.
        more = rational(conversions.pure_delta(self.epsilon, epsilon))
        return float_up(rational(self.delta) + (1 - rational(self.delta)) * more)

    def _converted(self, kind: Kind) -> Guarantee:
        if self.delta > 0:
            refuse(self, kind, "with probability delta anything may be disclosed, which that kind does not allow")
        return PureDP(self.epsilon).to(kind)


@dataclass(frozen=True, slots=True)
class GaussianDP(Guarantee):
    """Gaussian differential privacy: telling two records apart is no easier than N(0, 1) from N(mu, 1) by one draw.

    Reference: Dong, Roth, Su, "Gaussian differential privacy", JRSS B 84 (2022).

    >>> GaussianDP(1.0).to("zcdp")
    ZeroConcentratedDP(rho=0.5)

    Parameters
    ----------
    mu
        At least 0 (nothing disclosed).
    """

    mu: float
    kind: ClassVar[Kind] = "gdp"

    def _converted(self, kind: Kind) -> Guarantee:
        if kind == "zcdp":
            return ZeroConcentratedDP(float_up(rational(self.mu) ** 2 / 2))
        if kind == "pure" and self.mu > 0:
            refuse(self, kind, "rare outcomes of Gaussian noise disclose more than any fixed epsilon allows")
        return self if kind == "gdp" else PureDP(0.0)


@dataclass(frozen=True, slots=True)
class ZeroConcentratedDP(Guarantee):
    """Zero-concentrated differential privacy: the Renyi divergence of every order alpha is at most rho alpha.

    Reference: Bun, Steinke, "Concentrated differential privacy", TCC 2016.

    >>> round(ZeroConcentratedDP(0.5).to("approx", delta=1e-5).epsilon, 3)
    4.728

    Parameters
    ----------
    rho
        At least 0 (nothing disclosed).
    """

    rho: float
    kind: ClassVar[Kind] = "zcdp"

    def _converted(self, kind: Kind) -> Guarantee:
        if kind == "pure" and self.rho > 0:
            refuse(self, kind, "its divergences bound averages of the odds, not the odds themselves")
        if kind == "gdp" and self.rho > 0:
            remedy = f"if the mechanism is Gaussian, state GaussianDP({math.sqrt(2 * self.rho):.6g})"
            refuse(self, kind, f"some releases with this guarantee have none for any mu; {remedy}")
        return {"pure": PureDP(0.0), "gdp": GaussianDP(0.0), "zcdp": self}[kind]


@dataclass(frozen=True, slots=True)
class TruncatedCDP(Guarantee):
    r"""Truncated concentrated privacy: `ZeroConcentratedDP` for orders up to omega, except with probability delta.

    .. math:: \int_E P^{\alpha} Q^{1 - \alpha} \le e^{(\alpha - 1) \rho \alpha} \quad\text{for } 1 < \alpha < \omega

    P and Q are the distributions of the release for two records, and E is an event with P(E) at least 1 - delta.
    For several releases, rho and delta add, and the smallest omega counts. It cannot be required of a release: it is a
    further guarantee of Gaussian sketches, whose Renyi divergence is finite up to some order only. A cap can be stated
    as rho, omega and delta; it then counts any release that has a rho for orders up to omega.

    Reference: Bun, Dwork, Rothblum, Steinke, "Composable and versatile privacy via truncated CDP", STOC 2018; Bun,
    Steinke 2016, section 8 (delta).

    >>> round(TruncatedCDP(0.03, 8.0).to("approx", delta=1e-5).epsilon, 3)
    1.454

    Parameters
    ----------
    rho, omega, delta
        rho is at least 0, omega above 1, delta in [0, 1).
    """

    rho: float
    omega: float
    delta: float = 0.0
    kind: ClassVar[Kind] = "tcdp"

    def _epsilon_at(self, delta: float) -> float:
        require("delta", delta, below=1)
        if delta <= self.delta:
            refuse(self, "approx", f"delta={delta:g} leaves nothing beyond its own delta, {self.delta:g}")
        left = float_down(rational(delta) - rational(self.delta))
        return conversions.zcdp_epsilon(self.rho, left, self.omega)

    def _delta_at(self, epsilon: float) -> float:
        return float_up(rational(self.delta) + rational(conversions.zcdp_delta(self.rho, epsilon, self.omega)))

    def _implies_truncated(self, other: "TruncatedCDP") -> bool:
        return self.rho <= other.rho and self.omega >= other.omega and self.delta <= other.delta

    def _converted(self, kind: Kind) -> Guarantee:
        refuse(self, kind, f"it bounds Renyi divergences of orders up to {self.omega:g} only")


_CLASSES: dict[str, type[Guarantee]] = {
    cls.kind: cls for cls in (PureDP, ApproxDP, GaussianDP, ZeroConcentratedDP, TruncatedCDP)
}


def guarantee_from_dict(data: object) -> Guarantee:
    """Read a guarantee from plain data, as in a task file.

    One of ``{"pure": {"epsilon": e}}``, ``{"approx": {"epsilon": e, "delta": d}}``, ``{"gdp": {"mu": m}}``, ``{"zcdp":
    {"rho": r}}``, ``{"tcdp": {"rho": r, "omega": w, "delta": d}}`` (for caps and in ledgers; delta is 0 by default).
    Raises `UserError` for anything else, and for a zero budget, which allows no release.

    >>> guarantee_from_dict({"gdp": {"mu": 1.0}})
    GaussianDP(mu=1.0)
    """
    if not isinstance(data, Mapping) or len(data) != 1:
        raise UserError(
            f"a guarantee is one of {{pure: {{epsilon: 1.0}}}}, {{approx: {{epsilon: 1.0, delta: 1.0e-6}}}}, "
            f"{{gdp: {{mu: 1.0}}}}, {{zcdp: {{rho: 0.5}}}}; got {data!r}"
        )
    ((kind, parameters),) = data.items()
    if kind not in _CLASSES:
        raise UserError(f"unknown kind of guarantee {kind!r}{nearest(kind, KINDS)}; use one of {', '.join(KINDS)}")
    cls = _CLASSES[kind]
    names = {field.name: field for field in fields(cls)}  # type: ignore[arg-type]
    if not isinstance(parameters, Mapping):
        raise UserError(f"{kind} needs its parameters by name ({', '.join(names)}), got {parameters!r}")
    for name in parameters:
        if name not in names:
            raise UserError(f"{kind}: unknown key {name!r}{nearest(name, names)}; it takes {', '.join(names)}")
    missing = [name for name, field in names.items() if name not in parameters and field.default is MISSING]
    if missing:
        raise UserError(f"{kind}: {missing[0]} is missing; it takes {', '.join(names)}")
    guarantee = cls(**parameters)
    if all(getattr(guarantee, name) == 0 for name in names if name != "omega"):
        raise UserError(f"{kind}: {parameters!r} allows no release at all; give a number above 0")
    return guarantee


def guarantee_from_text(text: str) -> Guarantee:
    """Read a guarantee in the command line's format, or raise a `UserError`: kind, colon, parameters.

    >>> guarantee_from_text("gdp:2"), guarantee_from_text("approx:1,1e-6")
    (GaussianDP(mu=2.0), ApproxDP(epsilon=1.0, delta=1e-06))
    """
    kind, _, figures = text.partition(":")
    names = [field.name for field in fields(_CLASSES[kind])] if kind in _CLASSES else None  # type: ignore[arg-type]
    try:
        values = [float(figure) for figure in figures.split(",")]
    except ValueError:
        values = []
    if names is None or len(values) != len(names):
        raise UserError(
            f"{text!r} is not a guarantee: write gdp:2, zcdp:0.5, pure:1 or approx:1,1e-6 (caps: tcdp:0.3,8,0)"
        )
    return guarantee_from_dict({kind: dict(zip(names, values, strict=True))})


def figures(guarantee: Guarantee) -> str:
    """Format the parameters of a guarantee with four digits, rounded up."""
    return ", ".join(f"{name} = {number(value)}" for name, value in guarantee.to_dict()[guarantee.kind].items())


CENTRAL = ("gaussmix", "gram", "newton")
"""Kinds of mechanism that release a summary of a window of records."""
_FALSE_ALARMS = 0.05
_FOUR_DIGITS, _FORGIVEN = Context(prec=4, rounding=ROUND_CEILING), 1 - Decimal("1e-9")
_FOUR_DOWN = Context(prec=4, rounding=ROUND_FLOOR)
_NORMAL_95 = 1.6448536269514722
_DELTA = 1e-5  # delta at which an epsilon is stated for guarantees of other kinds


def number(value: float) -> str:
    """Format a parameter of a guarantee with four digits, rounded up (with a tolerance of 1e-9 for floating point)."""
    # Use decimals, because floats have no powers of ten small enough for the smallest figures.
    return f"{float(_FOUR_DIGITS.create_decimal(Decimal(value) * _FORGIVEN)):.4g}"


def order(omega: float) -> str:
    """Format the omega of a truncated guarantee with four digits, rounded down, which never states too many orders."""
    return f"{float(_FOUR_DOWN.create_decimal(repr(omega))):.4g}"


def percent(probability: float) -> str:
    """Format a probability in percent, rounded up: one decimal, or as many as keep it below 100%."""
    for digits in (1, 2, 4, 6):
        scale = 10.0 ** (digits + 2)
        rounded = math.ceil(probability * scale - 1e-9) / 10**digits
        if rounded < 100:
            return f"{rounded:.{digits}f}%"
    return "100%"


def verdict(bound: float, holds: bool) -> str:
    """Return an audit's verdict on a claim: ``bound`` is the measured lower bound on the loss."""
    if not holds:
        return "REFUTED"
    return "not refuted" if bound > 0.0 else "no power"


def _phi(x: float) -> float:
    return math.erfc(-x / math.sqrt(2)) / 2


def _adversary(success: float, found: float) -> str:
    return (
        "Even an adversary who knows everything except the record, and has unlimited computing power, tells any two "
        f"possible records apart correctly at most {percent(success)} of the time (guessing: 50.0%), and finds at most "
        f"{percent(found)} of the records looked for while raising false alarms on 5.0% of the others."
        f"{' This is next to no protection.' if success > 0.99 else ''}"
    )


def _odds(epsilon: float) -> float:
    return math.exp(epsilon) if epsilon < 300 else math.inf


def _factor(epsilon: float) -> str:
    exact = f"e^{epsilon:.10g}"
    return f"{exact} = {number(_odds(epsilon))}" if epsilon < 12 else exact


def max_attack_accuracy(kind: str, **parameters: float) -> float:
    """Return the largest probability of telling two records apart: (1 + total variation) / 2."""
    if kind == "gdp":
        return _phi(parameters["mu"] / 2)
    if kind == "tcdp":
        points = ((k / 8, delta) for k, delta in enumerate(_truncated_curve(**parameters)))
        return min(max_attack_accuracy("approx", epsilon=epsilon, delta=min(delta, 1.0)) for epsilon, delta in points)
    if kind == "zcdp":
        rho = parameters["rho"]
        # Bound total variation by the Kullback-Leibler divergence: by Pinsker, or by Bretagnolle-Huber if that is
        # large.
        return (1 + min(math.sqrt(rho / 2), math.sqrt(-math.expm1(-rho)))) / 2
    epsilon, delta = parameters["epsilon"], parameters.get("delta", 0.0)
    return (1 + delta + (1 - delta) * math.tanh(epsilon / 2)) / 2


def _describe_pure(epsilon: float) -> str:
    if epsilon == 0:
        return "Pure differential privacy, epsilon = 0: nothing about the record is disclosed."
    detected = min(1.0, _odds(epsilon) * _FALSE_ALARMS, 1 - math.exp(-epsilon) * (1 - _FALSE_ALARMS))
    return (
        f"Pure differential privacy, epsilon = {epsilon:.10g}: whatever odds anyone gave one possible record "
        f"against another, what is released multiplies them by at most {_factor(epsilon)}. "
        + _adversary(max_attack_accuracy("pure", epsilon=epsilon), detected)
    )


def _describe_approx(epsilon: float, delta: float) -> str:
    if delta == 0:
        return _describe_pure(epsilon)
    success = max_attack_accuracy("approx", epsilon=epsilon, delta=delta)
    least = math.exp(-epsilon) * max(1 - delta - _FALSE_ALARMS, 0.0)
    detected = min(1.0, delta + _odds(epsilon) * _FALSE_ALARMS, 1 - least)
    return (
        f"Approximate differential privacy, epsilon = {epsilon:.10g}, delta = {delta:.10g}: had the record "
        f"been any other, whatever is seen would have had at most {_factor(epsilon)} times the probability plus "
        f"{delta:.10g}. " + _adversary(success, detected)
    )


def _describe_gdp(mu: float) -> str:
    if mu == 0:
        return "Gaussian differential privacy, mu = 0: nothing about the record is disclosed."
    return (
        f"Gaussian differential privacy, mu = {mu:.10g}: telling any two possible records apart is at least "
        f"as hard as telling from one draw whether a bell curve of width 1 is centred at 0 or at {mu:.10g}. "
        + _adversary(max_attack_accuracy("gdp", mu=mu), _phi(mu - _NORMAL_95))
        + f" It is also (epsilon, delta) = ({number(gdp_epsilon(mu, _DELTA))}, {_DELTA:g})-differential "
        f"privacy, and zero-concentrated with rho = {number(mu**2 / 2)}."
    )


def _describe_zcdp(rho: float) -> str:
    if rho == 0:
        return "Zero-concentrated differential privacy, rho = 0: nothing about the record is disclosed."
    success = max_attack_accuracy("zcdp", rho=rho)
    curve = (zcdp_delta(rho, k / 8) + math.exp(k / 8) * _FALSE_ALARMS for k in range(25))
    return (
        f"Zero-concentrated differential privacy, rho = {rho:.10g}: what is released tells any two possible "
        f"records apart by at most rho times alpha in Renyi divergence of every order alpha. "
        + _adversary(success, min(1.0, _FALSE_ALARMS + 2 * success - 1, *curve))
        + f" It is also (epsilon, delta) = ({number(zcdp_epsilon(rho, _DELTA))}, {_DELTA:g})-differential "
        f"privacy. If the noise is Gaussian it is mu-GDP with mu = {number(math.sqrt(2 * rho))}, which says more."
    )


def _describe_tcdp(rho: float, omega: float, delta: float) -> str:
    curve = _truncated_curve(rho, omega, delta)
    detected = min(1.0, *(each + math.exp(k / 8) * _FALSE_ALARMS for k, each in enumerate(curve)))
    return (
        f"Truncated concentrated differential privacy, rho = {rho:.10g}, omega = {omega:.10g}, delta = {delta:.10g}: "
        "but for an event of probability delta, what is released tells any two possible records apart by at most rho "
        "times alpha in Renyi divergence of every order alpha up to omega. "
        + _adversary(max_attack_accuracy("tcdp", rho=rho, omega=omega, delta=delta), detected)
        + f" It is also (epsilon, delta) = ({number(zcdp_epsilon(rho, _DELTA, omega))}, {number(delta + _DELTA)})-"
        "differential privacy."
    )


_DESCRIPTIONS: dict[str, Callable[..., str]] = {
    "pure": _describe_pure,
    "approx": _describe_approx,
    "gdp": _describe_gdp,
    "zcdp": _describe_zcdp,
    "tcdp": _describe_tcdp,
}


def describe(kind: str, **parameters: float) -> str:
    """Describe a guarantee in plain words."""
    return _DESCRIPTIONS[kind](**parameters)


def _truncated_curve(rho: float, omega: float, delta: float) -> list[float]:
    """Return delta at epsilon = 0, 1/8, ..., 3."""
    return [delta + zcdp_delta(rho, k / 8, omega) for k in range(25)]
