"""The privacy block of a task: the default guarantee, the levels and a person's cap."""

import re
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self, TypeVar

from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    PlainSerializer,
    PlainValidator,
    Tag,
    field_validator,
    model_validator,
)

from murk._internal.lazy import LazyLevels, bounding, map_levels
from murk.errors import UserError
from murk.privacy.guarantees import Guarantee, guarantee_from_dict
from murk.privacy.mechanisms import BEST, KINDS, Costed, Mechanism, PrivacyLoss, calibrate, cap_of, cost_in, plain_kind
from murk.task.errors import nearest, shown, task_error
from murk.task.fields import LEVEL_PATTERN, Block, Number
from murk.task.protocols.base import TaskProtocol
from murk.task.protocols.registry import PROTOCOLS
from murk.task.windows import NONE, ONCE, SUPPOSED, Repeats, count_within, effect_of, task_window

M = TypeVar("M")
DEFAULT_LEVEL: Final = "default"
MOST_LEVELS: Final = 16
MOST_POINTS: Final = 512  # largest number of levels of a grid
LARGEST_POINT: Final = 1e3  # largest budget of a grid: larger products may be ties, which languages round differently
LEAST_POINT: Final = 1e-9  # least budget of a grid: a subnormal number would not grow when it is multiplied and rounded
RATIO: Final = 1.0199  # ratio of neighbouring budgets, at most 1.02 after they are rounded to six digits
_MECHANISMS: Final = (BEST, *KINDS)
_NAMED: Final = ", ".join(f"`{kind}`" for kind in KINDS[:-1]) + f" and `{KINDS[-1]}`"
PARAMETERS: Final = {"pure": ("epsilon",), "approx": ("epsilon", "delta"), "gdp": ("mu",), "zcdp": ("rho",)}
_OF_CAPS: Final = {**PARAMETERS, "tcdp": ("rho", "omega", "delta")}
if TYPE_CHECKING:
    _Mechanism = str
else:
    _Mechanism = Literal[_MECHANISMS]

_ERROR_CODE = "MURK-TASK-001"
EXAMPLE: Final = "{gdp: {mu: 1.0}}"


def _guarantee(value: Any, kinds: Mapping[str, Sequence[str]] = PARAMETERS) -> Guarantee:
    if isinstance(value, Guarantee):
        return value
    if not isinstance(value, dict) or len(value) != 1:
        raise task_error(f"{shown(value)} is not a guarantee; write one of {', '.join(kinds)}, as in {EXAMPLE}")
    [(kind, parameters)] = value.items()
    if kind in _OF_CAPS and kind not in kinds:
        raise task_error(
            f"only privacy.per_person and privacy.lifetime can be in {kind}; write one of {', '.join(kinds)}", kind
        )
    if kind not in kinds:
        raise task_error(f"unknown key; {nearest(kind, kinds)}", kind)
    known = kinds[kind]
    if not isinstance(parameters, dict):
        example = ", ".join(f"{name}: ..." for name in known)
        raise task_error(f"{shown(parameters)} is not a mapping; write {{{kind}: {{{example}}}}}", kind)
    for name, number in parameters.items():
        if name not in known:
            raise task_error(f"unknown key; {nearest(name, known)}", kind, name)
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise task_error(f"{shown(number)} is not a number", kind, name)
    for name in known:
        if name not in parameters and (kind, name) != ("tcdp", "delta"):
            raise task_error("missing, and required", kind, name)
    try:
        return guarantee_from_dict({kind: {name: float(number) + 0.0 for name, number in parameters.items()}})
    except (UserError, OverflowError) as error:
        raise task_error(str(error), kind) from None


_JSON: Final = dict[str, dict[str, float]]
_PLAIN: Final = PlainSerializer(lambda guarantee: guarantee.to_dict(), return_type=_JSON)
AGuarantee = Annotated[Guarantee, PlainValidator(_guarantee, json_schema_input_type=_JSON), _PLAIN]
ACap = Annotated[Guarantee, PlainValidator(partial(_guarantee, kinds=_OF_CAPS), json_schema_input_type=_JSON), _PLAIN]


def _mechanism(value: Any) -> Any:
    if isinstance(value, str) and value not in _MECHANISMS:
        raise task_error(f"{shown(value)} is not a mechanism; {nearest(value, _MECHANISMS)}")
    return value


def filled_in(privacy: Any, protocol: object, released: str | None = None) -> Any:
    """Return the privacy block of a task file with ``mechanism`` filled in where null means `best`, for the document.

    In a document, null means the kind that the papers use. ``released`` is the release that the protocol's block names.
    """
    if not isinstance(privacy, dict) or privacy.get("mechanism") is not None or not isinstance(protocol, str):
        return privacy
    levels = privacy.get("levels")
    guarantees = [privacy.get("guarantee"), *(levels.values() if isinstance(levels, dict) else ())]
    kinds = {kind for guarantee in guarantees for kind in _kinds(guarantee)}
    # Pure mechanisms cost more under a cap in gdp, zcdp or tcdp.
    caps = _kinds(privacy.get("per_person")) | _kinds(privacy.get("lifetime"))
    costly = "approx" in kinds and caps & {"gdp", "zcdp", "tcdp"}
    if costly or not kinds & {"pure", "approx"} or protocol not in PROTOCOLS:
        return privacy
    is_offered = BEST in PROTOCOLS[protocol].offer_of(released).mechanisms
    return {**privacy, "mechanism": BEST} if is_offered else privacy


def _kinds(guarantee: Any) -> set[str]:
    return {kind for kind in guarantee if isinstance(kind, str)} if isinstance(guarantee, dict) else set()


def _own_cost(guarantee: Guarantee, currency: str) -> PrivacyLoss:
    cost = cap_of(guarantee)
    if cost.currency != currency:
        raise UserError(
            f"a release costs {cost}, but the cap is in {currency}; state the cap in the same kind as the guarantee"
        )
    return cost


def _refusal(whole: Guarantee, level: str, cost_of: Callable[[str], PrivacyLoss]) -> str:
    """Return why a cap allows no release at a level; empty if it does."""
    try:
        cap = cap_of(whole)
        cost = cost_of(cap.currency)
    except UserError as error:
        return f"cannot cap level {level!r}: {error}"
    if cost <= cap:
        return ""
    return f"a cap of {cap} allows no release at level {level!r}, which costs {cost}; raise it, or drop the level"


def cap_refusal(mechanisms: Mapping[str, Costed], whole: Guarantee) -> str:
    """Return why a cap allows no release at one of the levels; empty if it allows one at each."""
    reasons = (_refusal(whole, level, partial(cost_in, made)) for level, made in bounding(mechanisms).items())
    return next(filter(None, reasons), "")


class LevelGrid(Block):
    """A geometric grid of budgets: each point is a level, and its number is the level's name.

    The points are ``low``, each 1.0199 times the one before, rounded to six significant digits, and ``high``: rounding
    a budget down to the grid costs less than 2% of it.

    >>> grid = LevelGrid.model_validate({"from": 0.25, "to": 4})
    >>> len(grid.points), grid.points[:3], grid.points[-1]
    (142, (0.25, 0.254975, 0.260049), 4.0)
    """

    low: Annotated[Number, Field(gt=0)] = Field(
        alias="from",
        description="the budget of level `0`; that of each next level is 1.0199 times as large, rounded to six "
        "significant digits",
    )
    high: Annotated[Number, Field(gt=0)] = Field(alias="to", description="the budget of the last level")

    @model_validator(mode="after")
    def _check_points(self) -> Self:
        if not self.low < self.high:
            raise task_error(f"{self.high:g} is not above from: {self.low:g}; raise it", "to")
        if self.low < LEAST_POINT:
            raise task_error(f"{self.low:g} is below {LEAST_POINT:g}, too little to learn from; raise it", "from")
        if self.high > LARGEST_POINT:
            raise task_error(f"{self.high:g} is above {LARGEST_POINT:g}, which protects nobody; lower it", "to")
        if not self.high < self.low * RATIO ** (MOST_POINTS - 2):
            why = f"is too far above from: {self.low:g}: a grid has at most {MOST_POINTS} levels; lower it"
            raise task_error(f"{self.high:g} {why}", "to")
        return self

    @cached_property
    def points(self) -> tuple[float, ...]:
        """The budgets, ascending."""
        points, following = [], self.low
        # One product, correctly rounded: the same numbers in every language.
        while following < self.high:
            points.append(following)
            following = float(f"{following * RATIO:.6g}")
        return (*points, self.high)


def _form(levels: Any) -> str:
    """Return the form of a task's levels: named levels, or a grid."""
    given = levels if isinstance(levels, dict) else {}
    numbers = any(key in given and not isinstance(given[key], dict | Guarantee) for key in ("from", "to"))
    return "<grid>" if numbers or isinstance(levels, LevelGrid) else "<named>"


class PrivacyBlock(Block):
    """The guarantee of each release, and a person's cap for the task."""

    guarantee: AGuarantee = Field(
        description="the guarantee of a release at the default level: `{pure: {epsilon: }}`, `{approx: {epsilon: , "
        "delta: }}`, `{gdp: {mu: }}` or `{zcdp: {rho: }}`"
    )
    further_levels: Annotated[
        Annotated[dict[str, AGuarantee], Tag("<named>")] | Annotated[LevelGrid, Tag("<grid>")], Discriminator(_form)
    ] = Field(
        default={},
        alias="levels",
        description="further levels by name, at most 16; `default` is `guarantee`. Or `{from: 0.25, to: 4}`: a grid of "
        "budgets in the guarantee's parameter, in steps below 2%, for people with budgets of their own",
    )
    per_person: ACap | None = Field(
        default=None,
        description="a person's cap for this task; `null`: one release at their level. A release costs mu^2 under "
        "gdp (a pure one mu = 2 Phi^-1(e^epsilon / (1 + e^epsilon))), rho under zcdp (mu^2/2; a pure "
        "one epsilon^2/2). `{tcdp: {rho: , omega: , delta: 0}}` is for mixtures: a release costs the rho and delta "
        "of its Renyi divergence for orders up to omega",
    )
    window: Annotated[str, BeforeValidator(task_window)] = Field(
        default=NONE,
        description="`day`, `week` (from Monday), `month` or a number of days such as `90d`, in UTC: `per_person` is a "
        "person's cap within each window; `none`: for the whole task",
    )
    lifetime: ACap | None = Field(
        default=None, description="with `window`: a person's cap over all windows of this task; `null`: none"
    )
    repeat: Literal["anew", "same"] = Field(
        default="anew",
        description="with `window`: `same` repeats a person's last answer, at no cost, while their coded record is "
        "unchanged, and once `lifetime` is spent; it discloses which answers are one person's and when the record "
        "changed. `anew`: noise is drawn for each answer. Only `moments`, `examples`, and targets without features or "
        "with `known` ones can repeat answers",
    )
    mechanism: Annotated[_Mechanism, BeforeValidator(_mechanism)] | None = Field(
        default=None,
        description=f"`best` is the one of smallest variance that gives the guarantee, of {_NAMED}; `null`: gaussian "
        "for gdp and zcdp, and for approx where `per_person` is in gdp, zcdp or tcdp; else `best`",
    )

    calibration: Literal["analytic", "classic"] = Field(
        default="analytic",
        description="Gaussian noise for approx: `analytic` is the least noise with the guarantee, `classic` that of "
        "the papers' formula, where valid",
    )

    @field_validator("further_levels", mode="before")
    @classmethod
    def _check_levels(cls, levels: Any) -> Any:
        if not isinstance(levels, dict) or _form(levels) == "<grid>":
            return levels
        if len(levels) > MOST_LEVELS:
            raise task_error(f"has {len(levels)} levels: at most {MOST_LEVELS}")
        for name in levels:
            if name == DEFAULT_LEVEL:
                raise task_error("reserved for privacy.guarantee; give the level another name", name)
            if not re.fullmatch(LEVEL_PATTERN, name):
                raise task_error("a level's name has at most 32 letters, digits, - and _; rename it", name)
        return levels

    @cached_property
    def levels(self) -> Mapping[str, Guarantee]:
        """All levels by name: the default level as ``default``, and a grid's levels by number, made on first use."""
        further = self.further_levels
        if not isinstance(further, LevelGrid):
            return {DEFAULT_LEVEL: self.guarantee, **further}
        numbers = tuple(map(str, range(len(further.points))))
        return LazyLevels((DEFAULT_LEVEL, *numbers), (DEFAULT_LEVEL, numbers[0], numbers[-1]), self._at)

    def _at(self, level: str) -> Guarantee:
        if level == DEFAULT_LEVEL:
            return self.guarantee
        assert isinstance(self.further_levels, LevelGrid)
        ((kind, figures),) = self.guarantee.to_dict().items()
        return guarantee_from_dict({kind: {**figures, self.parameter: self.further_levels.points[int(level)]}})

    def by_level(self, make: Callable[[Guarantee], M]) -> Mapping[str, M]:
        """Return the result of ``make`` for each level's guarantee; for a grid, it is computed on first use."""
        made = map_levels(make, self.levels)
        bounding(made)  # make these now, so that an impossible mechanism is refused at once
        return made

    @property
    def grid(self) -> LevelGrid | None:
        """The grid of levels, if the task has one."""
        return self.further_levels if isinstance(self.further_levels, LevelGrid) else None

    @property
    def parameter(self) -> str:
        """The guarantee's parameter, in which a grid's budgets are: ``epsilon``, ``mu`` or ``rho``."""
        return PARAMETERS[next(iter(self.guarantee.to_dict()))][0]

    def level_of(self, budget: float) -> str:
        """Return the grid's level with the largest budget that does not exceed a person's ``budget``.

        Raises UserError if the task has no grid, or the budget is below it or not a number.

        >>> privacy = PrivacyBlock.model_validate({"guarantee": {"gdp": {"mu": 1}}, "levels": {"from": 0.25, "to": 4}})
        >>> level = privacy.level_of(1.5)
        >>> level, privacy.levels[level]
        ('90', GaussianDP(mu=1.47275))
        """
        if self.grid is None:
            raise UserError("the task has no grid of budgets: write privacy: {levels: {from: 0.25, to: 4}}")
        if not budget >= self.grid.low:
            raise UserError(
                f"the budget is below the grid's lowest ({self.parameter} = {self.grid.low:g}), or not a number; "
                "give at least that, or release nothing"
            )
        return str(bisect_right(self.grid.points, budget) - 1)

    @property
    def choices(self) -> str:
        """The levels' names in words."""
        if self.grid is None:
            return ", ".join(self.levels)
        return f"{DEFAULT_LEVEL}, or 0 to {len(self.grid.points) - 1} for {self.range_words}"

    @property
    def range_words(self) -> str:
        """The grid's range in words, empty without one, such as ``mu = 0.25 to 4 (142 levels)``."""
        grid = self.grid
        return "" if grid is None else f"{self.parameter} = {grid.low:g} to {grid.high:g} ({len(grid.points)} levels)"

    def times(self, factor: float) -> dict[str, Any]:
        """Return the block as plain data without a cap, all budgets multiplied by ``factor`` (rho: by its square)."""
        privacy = self.model_dump(mode="json", by_alias=True) | {"per_person": None, "lifetime": None}
        levels = privacy["levels"]
        if self.grid is not None:
            by = factor**2 if self.parameter == "rho" else factor
            privacy["levels"] = {end: by * budget for end, budget in levels.items()}
            levels = {}
        for guarantee in (privacy["guarantee"], *levels.values()):
            (figures,) = guarantee.values()
            for name in figures:
                figures[name] *= {"delta": 1.0, "rho": factor**2}.get(name, factor)
        return privacy

    def key_of(self, level: str) -> tuple[str, ...]:
        """Return the key of a level in the block, for errors."""
        if level == DEFAULT_LEVEL:
            return ("guarantee",)
        return ("levels", level if self.grid is None else "from" if level == "0" else "to")

    def kind_for(self, guarantee: Guarantee) -> str:
        """Return the kind of mechanism for a level's guarantee; if the task names none, the one that the papers use."""
        if self.mechanism is None or (self.mechanism == BEST and self.calibration == "classic"):
            return plain_kind(guarantee)
        return self.mechanism

    def check_feasible(self, protocol: TaskProtocol, dimension: int, released: str) -> None:
        """Check that every level has a mechanism, and that a person's cap allows it.

        ``dimension`` is the approximate number of numbers in a release; ``released`` its kind. Raises
        `PydanticCustomError`, naming the level, its problem and the remedy.
        """
        offer = protocol.offer_of(released)
        if self.calibration == "classic":
            self._check_classic(protocol.classic, released)
        if self.window != NONE and protocol.of_organisations:
            raise task_error("here organisations release windows of records (summaries.window); remove it", "window")
        if self.lifetime is not None and self.window == NONE:
            raise task_error("caps all windows, and there are none; write privacy.window, or per_person", "lifetime")
        if self.repeats_answers:
            self._check_repeat(protocol)
        if self.grid is not None and protocol.of_organisations:
            raise task_error("a grid is for budgets of people, and here organisations release; name levels", "levels")
        # Noise decreases and cost grows with the budget: the ends of a grid bound all its levels.
        for level, guarantee in bounding(self.levels).items():
            at = self.key_of(level)
            if guarantee.kind not in offer.guarantees:
                why = f"cannot give {guarantee.kind}: {offer.why_no_other}; it can give {', '.join(offer.guarantees)}"
                raise task_error(f"protocol: {protocol.name} {why}", *at)
            if offer.mechanisms:
                made = self._calibrate(offer.mechanisms, guarantee, dimension, at)
                self._check_cap(level, partial(cost_in, made))
            elif self.mechanism is not None:
                raise task_error(f"has no effect with protocol: {protocol.name}; remove it", "mechanism")
            elif protocol.of_organisations and (self.per_person is None or self.per_person.kind != "tcdp"):
                # A sketch costs its guarantee, in the guarantee's own currency. Other costs, those in tcdp and of
                # protocols with a mechanism of their own, are checked where the device is made.
                self._check_cap(level, partial(_own_cost, guarantee))

    def _check_repeat(self, protocol: TaskProtocol) -> None:
        if self.window == NONE:
            raise task_error("same has no effect without windows; write privacy.window, or remove it", "repeat")
        if not protocol.repeats_answers:
            words = f"of {protocol.name} people are asked anew in each round: an earlier answer is to another question"
            raise task_error(f"{words}; remove it, or say protocol: moments or examples", "repeat")
        if self.per_person is not None:
            words = "a person has one answer a window, which is repeated; remove it, or per_person"
            raise task_error(words, "repeat")

    def _check_classic(self, able: Sequence[str], released: str) -> None:
        others = [level for level, guarantee in self.levels.items() if guarantee.kind != "approx"]
        if released not in able:
            why = f"this protocol's releases of kind {released}"
        elif others:
            why = f"the guarantee of the level {others[0]}, which is not approx"
        elif self.mechanism not in (None, BEST, "gaussian"):
            why = f"mechanism: {self.mechanism}"
        else:
            return
        raise task_error(f"classic has no effect on {why}; remove it", "calibration")

    def _calibrate(self, kinds: Sequence[str], guarantee: Guarantee, dimension: int, at: Sequence[str]) -> Mechanism:
        if self.mechanism is not None and self.mechanism not in kinds:
            raise task_error(f"{self.mechanism!r} is not of this protocol; use {', '.join(kinds)}", "mechanism")
        kind = self.kind_for(guarantee)
        if kind not in (*kinds, BEST) and len(kinds) > 1:
            raise task_error(
                f"{guarantee!r} needs another mechanism than {kinds[0]}, the default of this release; say mechanism: "
                f"{' or '.join(kinds[1:])}",
                *at,
            )
        try:
            return calibrate(kind, guarantee, dimension=dimension, radius=1.0)
        except UserError as error:
            if self.mechanism in (None, BEST):
                raise task_error(str(error), *at) from None
            reason = str(error)
        able = []
        for kind in kinds:
            with suppress(UserError):
                calibrate(kind, guarantee, dimension=dimension, radius=1.0)
                able.append(kind)
        if not able:
            raise task_error(reason, *at)
        why = f"cannot give privacy.{'.'.join(at)}: {reason} (those that can: {', '.join(able)})"
        raise task_error(f"{self.mechanism!r} {why}", "mechanism")

    def _check_cap(self, level: str, cost_of: Callable[[str], PrivacyLoss]) -> None:
        for key, cap in (("per_person", self.per_person), ("lifetime", self.lifetime)):
            if cap is not None and (why := _refusal(cap, level, cost_of)):
                raise task_error(why, key)

    @property
    def renews(self) -> bool:
        """Whether a person's budget renews with every window."""
        return self.window != NONE

    @property
    def repeats_answers(self) -> bool:
        """Whether a person whose record has not changed repeats their last answer."""
        return self.repeat == "same"

    @property
    def repeats(self) -> Repeats:
        """How often one person may answer under the caps."""
        guarantees, within = list(self.levels.values()), 1
        if self.renews and self.per_person is not None:
            within = max(count_within(self.per_person, each) for each in guarantees)
        if self.repeats_answers:
            # Caps bound new answers only.
            return Repeats(SUPPOSED, effect_of(SUPPOSED, guarantees, same=True), True, within, same=True)
        if self.whole is not None:
            most = max(count_within(self.whole, each) for each in guarantees)
            return Repeats(most, effect_of(most, guarantees), within=min(within, most)) if most > 1 else ONCE
        return Repeats(SUPPOSED, effect_of(SUPPOSED, guarantees), True, within) if self.renews else ONCE

    @property
    def whole(self) -> Guarantee | None:
        """A person's stated cap over all releases to this task; None if they may make one, or one in every window."""
        return self.lifetime if self.renews else self.per_person
