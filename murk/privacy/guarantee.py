"""What the guarantees have in common: their interface, and the checks of what they are made from."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import fields
from typing import ClassVar, Literal, NoReturn

from murk.errors import UserError

__all__ = ["KINDS", "Guarantee", "Kind", "check_kind", "nearest", "refuse"]

Kind = Literal["pure", "approx", "gdp", "zcdp"]

KINDS: dict[str, str] = {
    "pure": "PureDP",
    "approx": "ApproxDP",
    "gdp": "GaussianDP",
    "zcdp": "ZeroConcentratedDP",
}

# Beyond these a guarantee is none, and its integer units would overflow a ledger's 64 bits.
_LARGEST = {"epsilon": 1e6, "mu": 1e3, "rho": 1e6}


class Guarantee(ABC):
    """A promise about releases; frozen, comparable, hashable, and a function of public numbers only."""

    __slots__ = ()
    kind: ClassVar[Kind]

    @abstractmethod
    def describe(self) -> str:
        """What is promised, in plain words."""

    @abstractmethod
    def to(self, kind: Kind, *, delta: float | None = None, epsilon: float | None = None) -> "Guarantee":
        """The smallest guarantee of another kind that this one implies.

        Parameters
        ----------
        kind
            ``"pure"``, ``"approx"``, ``"gdp"`` or ``"zcdp"``.
        delta, epsilon
            For ``"approx"``: exactly one of them; the other is computed.

        Raises
        ------
        UserError
            If this guarantee implies none of that kind; the message says why.
        """

    @property
    def max_attack_accuracy(self) -> float:
        """How often an adversary who knows all else tells any two records apart at best; guessing is 1/2."""
        from murk.privacy.explain import max_attack_accuracy

        return max_attack_accuracy(self.kind, **self.to_dict()[self.kind])

    def to_dict(self) -> dict[str, dict[str, float]]:
        """Plain data, as in a task file: ``{"gdp": {"mu": 1.0}}``."""
        return {self.kind: {field.name: getattr(self, field.name) for field in fields(self)}}  # type: ignore[arg-type]

    def implies(self, other: "Guarantee") -> bool:
        """Whether anyone who was promised this was also promised ``other``."""
        try:
            if other.kind == "approx":
                mine = self.to("approx", epsilon=getattr(other, "epsilon"))  # noqa: B009
            else:
                mine = self.to(other.kind)
        except UserError:
            return False
        return all(
            getattr(mine, field.name) <= getattr(other, field.name)
            for field in fields(other)  # type: ignore[arg-type]
        )

    def _check_parameters(self) -> None:
        """Check the parameters and store them as floats."""
        for field in fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            object.__setattr__(self, field.name, _checked(type(self).__name__, field.name, value))


def _checked(owner: str, name: str, value: object) -> float:
    if isinstance(value, str):
        raise UserError(
            f"{owner}: {name} must be a number, got the text {value!r}"
            + (f"; YAML reads it as a number if written {_as_yaml(value)}" if _is_number(value) else "")
        )
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if isinstance(value, bool) or math.isnan(number):
        raise UserError(f"{owner}: {name} must be a number, got {value!r}")
    if name == "delta":
        if not 0 <= number < 1:
            raise UserError(f"{owner}: delta={value!r} is not in [0, 1); it is a probability such as 1e-6")
    elif number < 0:
        raise UserError(f"{owner}: {name}={value!r} is negative; a guarantee needs {name} > 0")
    elif number > _LARGEST[name]:
        raise UserError(
            f"{owner}: {name}={value!r} promises nothing; the largest that is accepted is {_LARGEST[name]:g}"
        )
    return number


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _one_of(delta: float | None, epsilon: float | None) -> None:
    if (delta is None) == (epsilon is None):
        raise UserError('an (epsilon, delta) guarantee needs one of them: to("approx", delta=1e-6), say')


def _as_yaml(text: str) -> str:
    """A number as YAML 1.1 knows one: with a point before any exponent."""
    digits, exponent, power = repr(float(text)).partition("e")
    return (digits if "." in digits else digits + ".0") + exponent + power


def check_kind(kind: str, delta: float | None, epsilon: float | None) -> None:
    """Check what a conversion was asked for."""
    if kind not in KINDS:
        raise UserError(f"unknown kind of guarantee {kind!r}{nearest(kind, KINDS)}; one of {', '.join(KINDS)}")
    if kind == "approx":
        _one_of(delta, epsilon)
    elif delta is not None or epsilon is not None:
        raise UserError(f'delta and epsilon are for to("approx") only, not for to("{kind}")')


def refuse(owner: Guarantee, kind: str, reason: str) -> NoReturn:
    """Say that, and why, a guarantee implies none of another kind."""
    raise UserError(f"{owner!r} implies no {KINDS[kind]} guarantee: {reason}")


def nearest(name: object, known: Iterable[str]) -> str:
    """A hint at the known name that is most like an unknown one; empty if none is."""
    import difflib

    close = difflib.get_close_matches(str(name), list(known), n=1, cutoff=0.4)
    return f" (did you mean {close[0]!r}?)" if close else ""
