"""What leaves a person's device: release records, with every field checked."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

SCHEMA_VERSION = 1
LEVEL_PATTERN = r"^[A-Za-z0-9_-]{1,32}$"

# The bounds keep every integer within the 64 bits of the kernels and of other languages' parsers.
Identifier = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
TaskHash = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
LevelName = Annotated[str, Field(pattern=LEVEL_PATTERN)]
Count = Annotated[int, Field(ge=0, lt=2**62)]
Coordinate = Annotated[int, Field(gt=-(2**62), lt=2**62)]
Seconds = Annotated[int, Field(ge=0, lt=2**53)]
Schema = Annotated[int, Field(alias="schema", ge=SCHEMA_VERSION, le=SCHEMA_VERSION)]


_WIRE = ConfigDict(
    strict=True,
    extra="forbid",
    frozen=True,
    populate_by_name=True,
    allow_inf_nan=False,
    json_schema_serialization_defaults_required=True,
)


class GradientRelease(BaseModel):
    """One privatized gradient: all that a person's device sends in the interactive protocol.

    Parameters
    ----------
    id
        128 random bits as 32 hex digits, unlinkable to a person or a record.
    task
        The task's hash, 64 hex digits.
    level
        The name of the level of the task's public menu: which mechanism was used.
    chain, version
        The chain (partition) whose iterate the gradient was taken at, and that iterate's version: how
        many releases the chain had learned.
    payload
        The integers that the mechanism released, one for each dimension.
    time, expires
        Seconds since 1970, truncated to the task's granularity.
    simulated
        Whether the noise was simulated (seeded) rather than secure.

    Raises
    ------
    pydantic.ValidationError
        If a field is missing, unknown, of another type or out of range.

    Examples
    --------
    >>> release = GradientRelease(
    ...     id="0" * 32,
    ...     task="f" * 64,
    ...     level="default",
    ...     chain=0,
    ...     version=7,
    ...     payload=[12, -7],
    ...     time=1_700_006_400,
    ...     expires=1_700_611_200,
    ... )
    >>> release.version, release.payload
    (7, [12, -7])
    """

    model_config = _WIRE

    schema_: Schema = SCHEMA_VERSION
    kind: Literal["gradient"] = "gradient"
    id: Identifier
    task: TaskHash
    level: LevelName
    chain: Count
    version: Count
    payload: list[Coordinate]
    time: Seconds
    expires: Seconds
    simulated: bool = False


class IterateMessage(BaseModel):
    """One published iterate of a chain: what a device reads before it takes its gradient.

    Parameters
    ----------
    task
        The task's hash, 64 hex digits.
    chain, version
        The chain, and how many releases it had learned when this was its iterate.
    iterate
        The iterate's coordinates, finite; JSON carries float64 exactly.

    Raises
    ------
    pydantic.ValidationError
        If a field is missing, unknown, of another type, not finite or out of range.
    """

    model_config = _WIRE

    schema_: Schema = SCHEMA_VERSION
    kind: Literal["iterate"] = "iterate"
    task: TaskHash
    chain: Count
    version: Count
    iterate: list[float]


def truncate_time(time: float, granularity: int) -> int:
    """Truncate a time to a multiple of the granularity, in seconds since 1970.

    A release tells the day, say, and not the second at which its person was at her device.

    Examples
    --------
    >>> truncate_time(1_700_049_599.9, 86_400)
    1700006400
    """
    seconds = int(time)
    return seconds - seconds % granularity
