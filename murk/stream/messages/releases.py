"""What leaves a person's device: release records, with every field checked."""

import base64
import binascii
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, FailFast, Field

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

SCHEMA_VERSION = 1
LEVEL_PATTERN = r"^[A-Za-z0-9_-]{1,32}$"

# Integers keep within the 64 bits of kernels and other parsers; of a list only the first mistake is described.
Identifier = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
TaskHash = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
LevelName = Annotated[str, Field(pattern=LEVEL_PATTERN)]
Count = Annotated[int, Field(ge=0, lt=2**62)]
Coordinate = Annotated[int, Field(gt=-(2**62), lt=2**62)]
Seconds = Annotated[int, Field(ge=0, lt=2**53)]


def _whole_integers(text: str) -> str:
    try:
        length = len(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError):
        raise ValueError("not base64") from None
    if length % 8:
        raise ValueError("not whole 64-bit integers")
    return text


Base64 = Annotated[str, Field(pattern=r"^[A-Za-z0-9+/]*={0,2}$"), AfterValidator(_whole_integers)]
Schema = Annotated[int, Field(alias="schema", ge=SCHEMA_VERSION, le=SCHEMA_VERSION)]


_WIRE = ConfigDict(
    # Built when first used, as all models are: a process needs few, and to build all takes a tenth of a small run.
    defer_build=True,
    strict=True,
    extra="forbid",
    frozen=True,
    populate_by_name=True,
    allow_inf_nan=False,
    json_schema_serialization_defaults_required=True,
)


class Release(BaseModel):
    """What every release carries; each protocol has a kind of its own.

    Parameters
    ----------
    id
        128 random bits as 32 hex digits, which say nothing of a person or a record.
    task
        The task's hash, 64 hex digits.
    level
        The name of the level, one of the task's: which mechanism was used.
    chain
        The chain (partition) that learns from it, drawn independently of person and record.
    payload
        The integers that the mechanism released.
    time, expires
        Seconds since 1970, truncated to the task's granularity.
    simulated
        Whether the noise was simulated (seeded) rather than secure.
    """

    model_config = _WIRE

    schema_: Schema = SCHEMA_VERSION
    kind: str
    id: Identifier
    task: TaskHash
    level: LevelName
    chain: Count
    payload: Annotated[list[Coordinate], FailFast()]
    time: Seconds
    expires: Seconds
    simulated: bool = False

    @property
    def integers(self) -> "Sequence[int] | npt.NDArray[np.int64]":
        """The payload's integers."""
        return self.payload


class GradientRelease(Release):
    """One privatized gradient: all that a person's device sends where the protocol is gradients.

    Like every release it also carries ``id``, ``task``, ``level``, ``chain``, ``time``, ``expires`` and ``simulated``.

    Parameters
    ----------
    chain, version
        The chain (partition) whose iterate the gradient was taken at, and that iterate's version: how
        many releases the chain had learned.
    payload
        The integers that the mechanism released, one for each dimension.

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

    kind: Literal["gradient"] = "gradient"
    version: Count


class ScoreRelease(Release):
    """One person's privatized answer to one question of an epoch, which was drawn without looking at the record.

    Like every release it also carries ``id``, ``task``, ``level``, ``chain``, ``time``, ``expires`` and ``simulated``.

    Parameters
    ----------
    version
        Where the epoch begins whose model it answers: releases learned by the chain, or by all that share models.
    question
        What was asked. ``score``: the bounded score, one number for each coded feature and the constant, of K classes
        K - 1 times as many. ``scatter`` and ``curvature``: the upper triangle of a symmetric matrix of them, row after
        row.
    payload
        The integers that the mechanism released.

    Raises
    ------
    pydantic.ValidationError
        If a field is missing, unknown, of another type or out of range.

    Examples
    --------
    >>> release = ScoreRelease(
    ...     id="0" * 32,
    ...     task="f" * 64,
    ...     level="default",
    ...     chain=0,
    ...     version=3000,
    ...     question="score",
    ...     payload=[12, -7],
    ...     time=1_700_006_400,
    ...     expires=1_700_611_200,
    ... )
    >>> release.version, release.question
    (3000, 'score')
    """

    kind: Literal["score"] = "score"
    version: Count
    question: Literal["score", "scatter", "curvature"]


class ExampleRelease(Release):
    """One privatized example: its direction, its features and target, or their product, randomized once (IWP-SGD).

    Like every release it also carries ``id``, ``task``, ``level``, ``chain``, ``time``, ``expires`` and ``simulated``.

    Parameters
    ----------
    payload
        The integers that the task's mechanism released: the features over the record's length (of a label times
        it), 1 and the target over that length, and whether the target is missing (``release: directions``); the
        features times the label with the constant last (a joint release of a binary target), the features and the
        scaled target (of a real one); or the features and then the target, each randomized by itself (``release:
        separate``).

    Raises
    ------
    pydantic.ValidationError
        If a field is missing, unknown, of another type or out of range.
    """

    kind: Literal["example"] = "example"


class MomentRelease(Release):
    """One person's privatized moments x x' and x y, randomized once (public-data GLM).

    Like every release it also carries ``id``, ``task``, ``level``, ``chain``, ``time``, ``expires`` and ``simulated``.

    Parameters
    ----------
    payload
        The integers that the mechanism released: the upper triangle of x x' (without the constant's own entry, which
        is known) and then x y.

    Raises
    ------
    pydantic.ValidationError
        If a field is missing, unknown, of another type or out of range.
    """

    kind: Literal["moment"] = "moment"


class PackedRelease(Release):
    """A release whose payload is in base64: an organisation's, of many integers."""

    payload: Base64  # type: ignore[assignment]

    @staticmethod
    def packed(integers: "npt.ArrayLike") -> str:
        """Write integers as a payload."""
        import numpy as np

        return base64.b64encode(np.asarray(integers, dtype="<i8").tobytes()).decode("ascii")

    @cached_property
    def integers(self) -> "npt.NDArray[np.int64]":
        """The payload's integers, one row after another."""
        import numpy as np

        return np.frombuffer(base64.b64decode(self.payload), dtype="<i8").astype(np.int64)


class SketchRelease(PackedRelease):
    """One window of an organisation's records, mixed and randomized (GaussMix).

    Like every release it also carries ``id``, ``task``, ``level``, ``chain``, ``time``, ``expires`` and ``simulated``.

    Parameters
    ----------
    rows
        Number k of rows of the sketch.
    records
        Number n of records in the window. It is public: neighbours differ in what a record says.
    spread
        Standard deviation of the added noise over the records' bound C: a function of public settings and,
        where the task's method releases it, of the noisy least eigenvalue.
    payload
        The k rows' integers, one row after another, in base64 of little-endian 64-bit integers.

    Raises
    ------
    pydantic.ValidationError
        If a field is missing, unknown, of another type or out of range.

    Examples
    --------
    >>> release = SketchRelease(
    ...     id="0" * 32,
    ...     task="f" * 64,
    ...     level="default",
    ...     chain=0,
    ...     rows=1,
    ...     records=1000,
    ...     spread=9.2,
    ...     payload=SketchRelease.packed([12, -7]),
    ...     time=1_700_006_400,
    ...     expires=1_700_611_200,
    ... )
    >>> release.integers.tolist()
    [12, -7]
    """

    kind: Literal["sketch"] = "sketch"
    rows: Annotated[int, Field(ge=1, lt=2**31)]
    records: Count
    spread: Annotated[float, Field(ge=0)]


class GramRelease(PackedRelease):
    """The second moments of one window of an organisation's records, randomized (GaussMix with ``method: moments``).

    Like every release it also carries ``id``, ``task``, ``level``, ``chain``, ``time``, ``expires`` and ``simulated``.

    Parameters
    ----------
    records
        Number n of records in the window. It is public: neighbours differ in what a record says.
    payload
        The integers of the upper triangle of the matrix of features, constant and target, row after row, in base64 of
        little-endian 64-bit integers.

    Raises
    ------
    pydantic.ValidationError
        If a field is missing, unknown, of another type or out of range.

    Examples
    --------
    >>> release = GramRelease(
    ...     id="0" * 32,
    ...     task="f" * 64,
    ...     level="default",
    ...     chain=0,
    ...     records=1000,
    ...     payload=GramRelease.packed([12, -7, 5]),
    ...     time=1_700_006_400,
    ...     expires=1_700_611_200,
    ... )
    >>> release.integers.tolist()
    [12, -7, 5]
    """

    kind: Literal["gram"] = "gram"
    records: Count


class NewtonRelease(PackedRelease):
    """One window of an organisation's records as a Newton step (GaussMix with ``method: newton``), randomized.

    The second moments of its first records, and those of all others as they look from a model that the first ones'
    release tells: their scores, and the information. Like every release it also carries ``id``, ``task``, ``level``,
    ``chain``, ``time``, ``expires`` and ``simulated``.

    Parameters
    ----------
    records
        Number n of records in the window, the first ones included. It is public: neighbours differ in what a record
        says.
    model
        The model's coefficients, features and then the constant, finite: made of the first part's integers alone.
    payload
        The integers of both upper triangles, the first part's and then the other's, each row after row, in base64 of
        little-endian 64-bit integers.

    Raises
    ------
    pydantic.ValidationError
        If a field is missing, unknown, of another type or out of range.

    Examples
    --------
    >>> release = NewtonRelease(
    ...     id="0" * 32,
    ...     task="f" * 64,
    ...     level="default",
    ...     chain=0,
    ...     records=1000,
    ...     model=[0.25],
    ...     payload=NewtonRelease.packed([12, -7, 5, 3, 0, 4]),
    ...     time=1_700_006_400,
    ...     expires=1_700_611_200,
    ... )
    >>> release.integers.tolist()
    [12, -7, 5, 3, 0, 4]
    """

    kind: Literal["newton"] = "newton"
    records: Count
    model: Annotated[list[float], FailFast()]


KINDS: Final[dict[str, type[Release]]] = {
    kind.model_fields["kind"].default: kind
    for kind in (
        GradientRelease,
        ScoreRelease,
        ExampleRelease,
        MomentRelease,
        SketchRelease,
        GramRelease,
        NewtonRelease,
    )
}
"""What the releases of each protocol are."""


class IterateMessage(BaseModel):
    """One published model of a chain: what a device reads before it takes its gradient or its score.

    Parameters
    ----------
    task
        The task's hash, 64 hex digits.
    chain, version
        The chain (the first of those that share models), and how many releases it (they) had learned by then.
    iterate
        The model's numbers, finite; JSON carries float64 exactly. Of gradients they are the iterate's coordinates.

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
    iterate: Annotated[list[float], FailFast()]


def truncate_time(time: float, granularity: int) -> int:
    """Truncate a time to a multiple of the granularity, in seconds since 1970.

    A release tells the day, say, and not the second at which its person was at their device.

    Examples
    --------
    >>> truncate_time(1_700_049_599.9, 86_400)
    1700006400
    """
    seconds = int(time)
    return seconds - seconds % granularity
