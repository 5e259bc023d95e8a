"""The shuffle block of a task: the size of crowds, and what everybody but the shuffler may learn."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any, Final, Self

from pydantic import Field

from murk.errors import UserError
from murk.privacy.guarantees import ApproxDP, Guarantee, PureDP, guarantee_from_dict
from murk.task.errors import task_error
from murk.task.fields import Block, Duration, Integer, Number

DELTA: Final = 1e-6  # delta of a central guarantee whose task names none
_DIGITS: Final = 1000  # epsilons are rounded to thousandths, against the claim, so that a hash depends on no last digit
COLLUDING: Final = "If everybody colludes, the shuffler included"


@dataclass(frozen=True, slots=True)
class CentralGuarantee:
    """Bound on what others may learn from a release, if the shuffler keeps the order of arrival to itself."""

    guarantee: ApproxDP
    crowd: int
    honest: int  # number of honest people in each crowd that the guarantee assumes

    @property
    def condition(self) -> str:
        """The condition of the guarantee, as the first clause of a sentence."""
        honest = f"at least {self.honest:,} of the {self.crowd:,} releases of each crowd are of honest people"
        return (
            f"If the shuffler keeps the order of arrival to itself, and {honest} (a crowd is of one level, version and "
            "combination of known columns)"
        )

    def describe(self) -> str:
        """Describe the guarantee with its condition."""
        return f"{self.condition}: {self.guarantee.describe()}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {"guarantee": self.guarantee.to_dict(), "crowd": self.crowd, "honest": self.honest}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the guarantee that `to_dict` returned as data."""
        guarantee = guarantee_from_dict(data["guarantee"])
        assert isinstance(guarantee, ApproxDP)
        return cls(guarantee, int(data["crowd"]), int(data["honest"]))


class PromiseBlock(Block):
    """Central guarantee of a person at the default level."""

    epsilon: Annotated[Number, Field(ge=0.001, le=1e6)] | None = Field(
        default=None,
        description="central epsilon, rounded down to thousandths; `null`: computed from `privacy.guarantee`. If both "
        "are given, the crowd must reach it",
    )
    delta: Annotated[Number, Field(gt=0, lt=1)] = Field(default=DELTA, description="central delta, at every level")


class ShuffleBlock(Block):
    """Crowds of a shuffled task."""

    crowd: Annotated[Integer, Field(ge=2, le=10**9)] = Field(
        description="the number of releases of one level, version and combination of known columns that the shuffler "
        "waits for before it forwards them together"
    )
    honest: Annotated[Number, Field(gt=0, le=1)] = Field(
        default=0.9,
        description="assumed share of honest people in each crowd (one level, version of the model and combination of "
        "known columns): forged releases hide nobody",
    )
    promise: PromiseBlock = Field(default=PromiseBlock(), description="the central guarantee")
    patience: Duration = Field(
        default=7 * 86_400, description="how long a release waits for its crowd before the shuffler drops it"
    )

    @property
    def honest_people(self) -> int:
        """Number of honest people in a crowd that the central guarantee assumes."""
        return _honest(self.honest, self.crowd)

    def central(self, local: Guarantee) -> ApproxDP:
        """Return what everybody but the shuffler may learn from a release under the local guarantee, a `PureDP`.

        Epsilon is rounded up to thousandths, and is at least one thousandth.

        >>> ShuffleBlock(crowd=20_000, honest=1.0).central(PureDP(4.0))
        ApproxDP(epsilon=0.282, delta=1e-06)
        """
        # Imported here, as devices need it for shuffled tasks only.
        from murk.privacy.amplification import shuffled_epsilon

        assert isinstance(local, PureDP)
        epsilon = shuffled_epsilon(local.epsilon, self.honest_people, self.promise.delta)
        # A large crowd may reach an epsilon of 0; a task states at least one thousandth.
        reached = max(math.ceil(epsilon * _DIGITS), 1) / _DIGITS
        return ApproxDP(reached, self.promise.delta) if reached < local.epsilon else ApproxDP(local.epsilon, 0.0)

    def promised(self, local: Guarantee) -> CentralGuarantee:
        """Return the central guarantee of a level, with its assumptions."""
        return CentralGuarantee(self.central(local), self.crowd, self.honest_people)

    def check_level(self, guarantee: Guarantee, *at: str) -> None:
        """Raise `PydanticCustomError` if a level's guarantee gains nothing from its crowd."""
        if not isinstance(guarantee, PureDP):
            raise task_error(f"{_why_not_pure(guarantee, self.promise.delta)}. {self._instead()}", *at)
        if self.central(guarantee).delta == 0:
            crowd = f"a crowd of {self.crowd:,} with {self.honest_people:,} honest people"
            local = f"the local epsilon {guarantee.epsilon:g} at delta {self.promise.delta:g}"
            raise task_error(f"{crowd} gains nothing over {local}; give a larger crowd or less epsilon", *at)

    def check_promise(self, guarantee: Guarantee, *at: str) -> None:
        """Raise `PydanticCustomError` if the default level's crowds do not reach the stated central guarantee."""
        reached, promised = self.central(guarantee), self.promise.epsilon
        if promised is not None and reached.epsilon > promised:
            assert isinstance(guarantee, PureDP)
            crowds = f"a local epsilon of {guarantee.epsilon:g} in crowds with {self.honest_people:,} honest people"
            why = f"{crowds} gives ({reached.epsilon:g}, {self.promise.delta:g}). {self._instead()}"
            raise task_error(f"{promised:g} is not reached: {why}", *at, "promise", "epsilon")

    def _instead(self) -> str:
        if self.promise.epsilon is None:
            return "Write privacy: {guarantee: {pure: {epsilon: 4.0}}}"
        most = _local(self.crowd, self.honest, self.promise.epsilon, self.promise.delta)
        promise = f"a promise of ({self.promise.epsilon:g}, {self.promise.delta:g})"
        local = f"{{pure: {{epsilon: {most:g}}}}}"
        return f"The largest local guarantee for {promise} is {local}; leave privacy.guarantee out to have it"


def _why_not_pure(guarantee: Guarantee, delta: float) -> str:
    if isinstance(guarantee, ApproxDP):
        has_none = f"({guarantee.epsilon:g}, {guarantee.delta:g}) has none:"
    else:
        [(name, figure)] = guarantee.to_dict()[guarantee.kind].items()
        everybody = guarantee.to("approx", delta=delta)
        assert isinstance(everybody, ApproxDP)
        figures = f"({everybody.epsilon:.2f}, {delta:g})"
        has_none = f"Gaussian noise has none: {guarantee.kind} {name}={figure:g} is {figures} for everybody, and"
    return f"a shuffled task needs a pure epsilon, and {has_none} Murk claims no smaller epsilon for its crowds"


def _honest(share: float, crowd: int) -> int:
    # Compute exactly: 0.29 of 100 is 29, not 28.999...
    return max(1, math.floor(Fraction(repr(share)) * crowd))


def _local(crowd: int, honest: float, epsilon: float, delta: float) -> float:
    """Return the largest local epsilon for a central guarantee; both epsilons are rounded down to thousandths."""
    from murk.privacy.amplification import largest_local_epsilon

    # Compare exactly, as the central epsilon that follows from the result is rounded up to thousandths.
    thousandths = math.floor(Fraction(repr(epsilon)) * _DIGITS) / _DIGITS
    most = largest_local_epsilon(_honest(honest, crowd), thousandths, delta)
    return math.floor(most * _DIGITS) / _DIGITS


def with_promises(data: dict[str, Any]) -> dict[str, Any]:
    """Return a task's content with the local or central guarantee filled in from the other one, if that is valid."""
    block, privacy = data.get("shuffle"), data.get("privacy")
    if not isinstance(block, Mapping):
        return data
    try:
        shuffle = ShuffleBlock.model_validate(dict(block))
    except ValueError:
        return data  # the validation of the whole task names the mistake
    stated = privacy.get("guarantee") if isinstance(privacy, Mapping) else None
    promise = shuffle.promise
    if stated is None:
        if promise.epsilon is None or not (privacy is None or isinstance(privacy, Mapping)):
            return data
        local = _local(shuffle.crowd, shuffle.honest, promise.epsilon, promise.delta)
        return {**data, "privacy": {**(privacy or {}), "guarantee": {"pure": {"epsilon": local}}}}
    if promise.epsilon is None:
        pure = stated.get("pure") if isinstance(stated, Mapping) else None
        epsilon = pure.get("epsilon") if isinstance(pure, Mapping) else None
        try:
            reached = shuffle.central(PureDP(float(epsilon)))  # type: ignore[arg-type]
        except (UserError, TypeError, ValueError, OverflowError):
            return data
        if reached.delta:
            return {**data, "shuffle": {**block, "promise": {"epsilon": reached.epsilon, "delta": promise.delta}}}
    return data
