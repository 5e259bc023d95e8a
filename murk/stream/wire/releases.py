"""Release records: what leaves a person's device, with every field validated."""

import base64
import binascii
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, FailFast, Field

from murk.task.fields import LEVEL_PATTERN

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

SCHEMA_VERSION = 1

# Integers fit the 64 bits of kernels and other parsers; for a list, only the first mistake is reported.
Identifier = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
TaskHash = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
LevelName = Annotated[str, Field(pattern=LEVEL_PATTERN)]
Count = Annotated[int, Field(ge=0, lt=2**62)]
Coordinate = Annotated[int, Field(gt=-(2**62), lt=2**62)]
MOST_ITEMS: Final = 2**31  # limit of the numbers of a survey's queries
Item = Annotated[int, Field(ge=0, lt=MOST_ITEMS)]
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


# Building a model is slow, and a process needs only a few.
_WIRE = ConfigDict(
    defer_build=True,
    strict=True,
    extra="forbid",
    frozen=True,
    populate_by_name=True,
    allow_inf_nan=False,
    json_schema_serialization_defaults_required=True,
)


class Release(BaseModel):
    """Base class for releases; each protocol has its own kind.

    - ``id``: 128 random bits as 32 hex digits, independent of person and record.
    - ``task``: Hash of the task, 64 hex digits.
    - ``payload``: Integers that the mechanism released.
    - ``level``: Name of one of the task's levels: the mechanism that was used.
    - ``partition``: Partition that learns from the release, drawn independently of person and record.
    - ``time``, ``expires``: Seconds since 1970, truncated to the task's granularity. If the task has a track, ``time``
      is the first second of the answer's window.
    - ``simulated``: Whether the noise was simulated (seeded) rather than secure.

    Raises
    ------
    pydantic.ValidationError
        If a field is missing, unknown, of the wrong type or out of range.
    """

    model_config = _WIRE

    schema_: Schema = SCHEMA_VERSION
    kind: str
    id: Identifier
    task: TaskHash
    level: LevelName
    partition: Count
    payload: Annotated[list[Coordinate], FailFast()]
    time: Seconds
    expires: Seconds
    simulated: bool = False

    @property
    def integers(self) -> "Sequence[int] | npt.NDArray[np.int64]":
        """The payload as integers."""
        return self.payload


class GradientRelease(Release):
    """One privatized gradient.

    - ``partition``, ``version``: Partition at whose iterate the gradient was computed, and the number of releases
      that the partition had learned by then.
    - ``payload``: Integers that the mechanism released, one for each dimension.

    Examples
    --------
    >>> common = {"id": "0" * 32, "task": "f" * 64, "level": "default", "partition": 0, "time": 0, "expires": 86_400}
    >>> GradientRelease(**common, version=7, payload=[12, -7]).payload
    [12, -7]
    """

    kind: Literal["gradient"] = "gradient"
    version: Count


class ScoreRelease(Release):
    """One person's privatized answer to one query of a round, drawn independently of the record.

    - ``version``: Number of releases, of the partition or of all partitions that share models, at which the round of
      the answered model began.
    - ``query``: The query that the payload answers. ``score``: the bounded score, one number for each coded feature and
      the constant, K - 1 times as many for K classes. ``scatter`` and ``curvature``: the upper triangle of a symmetric
      matrix over features and constant, row by row. ``covered``: whether the target is in the model's prediction set,
      one number. ``above``: whether a feature is above a threshold, one number.
    - ``item``: With ``above``, the number of feature and threshold in the model's list; else 0.
    """

    kind: Literal["score"] = "score"
    version: Count
    query: Literal["score", "scatter", "curvature", "covered", "above"]
    item: Item = 0


def query_fields(query: str) -> dict[str, str | int]:
    """Return the fields of a release that name its query: those of a survey are numbered.

    >>> query_fields("score"), query_fields("above-7")
    ({'query': 'score', 'item': 0}, {'query': 'above', 'item': 7})
    """
    name, _, item = query.partition("-")
    return {"query": name, "item": int(item or 0)}


class ExampleRelease(Release):
    """One privatized example: its direction, its features and target, or their product, randomized once (IWP-SGD).

    - ``payload``: Integers that the mechanism released. ``release: directions``: the features over the record's length
      (times the label), 1 and the target over that length, and whether the target is missing. ``release: joint``: the
      features times the label with the constant last (binary target), or the features and the scaled target (real
      target). ``release: separate``: the features and the target, each randomized by itself.
    """

    kind: Literal["example"] = "example"


class MomentRelease(Release):
    """One person's privatized moments x x' and x y, randomized once (public-data GLM).

    - ``payload``: Integers that the mechanism released: the upper triangle of x x' without the constant's own entry,
      then x y.
    """

    kind: Literal["moment"] = "moment"


class TargetRelease(Release):
    """One person's privatized target, randomized once (tasks without features, or with known ones).

    - ``payload``: Integers that the mechanism released. Subset selection: for each class, and then for a missing
      target, 1 if it is in the subset, else 0. Window selection: the number of the window. Gaussian noise: a point of
      the simplex, one integer for each class (of a real target, for each bound), and then one for a missing target. If
      every person has a target, there is no integer for a missing one. With known columns the first integer is the
      number of their combination of values, which is not randomized; the target's integers follow. With private
      features as well, integers of products of these features and the target take their place (docs/known.md).
    """

    kind: Literal["target"] = "target"


class PackedRelease(Release):
    """A release of an organisation: its payload is base64 of little-endian 64-bit integers."""

    payload: Base64  # type: ignore[assignment]

    @staticmethod
    def packed(integers: "npt.ArrayLike") -> str:
        """Encode integers as a payload."""
        import numpy as np

        return base64.b64encode(np.asarray(integers, dtype="<i8").tobytes()).decode("ascii")

    @cached_property
    def integers(self) -> "npt.NDArray[np.int64]":
        """The payload as integers, row by row."""
        import numpy as np

        return np.frombuffer(base64.b64decode(self.payload), dtype="<i8").astype(np.int64)


class SketchRelease(PackedRelease):
    """One window of an organisation's records, mixed and randomized (GaussMix).

    - ``rows``: Number of rows of the sketch.
    - ``records``: Number of records in the window. It is public: neighbouring data sets differ in the content of a
      record.
    - ``spread``: Standard deviation of the added noise over the records' bound C: a function of public settings and,
      where the task's method releases it, of the noisy least eigenvalue.
    - ``payload``: The integers of all rows, row by row, in base64 of little-endian 64-bit integers.
    """

    kind: Literal["sketch"] = "sketch"
    rows: Annotated[int, Field(ge=1, lt=2**31)]
    records: Count
    spread: Annotated[float, Field(ge=0)]


class GramRelease(PackedRelease):
    """The privatized second moments of one window of an organisation's records (GaussMix with ``method: moments``).

    - ``records``: Number of records in the window. It is public: neighbouring data sets differ in the content of a
      record.
    - ``payload``: Integers of the upper triangle of the matrix of features, constant and target, row by row, in base64
      of little-endian 64-bit integers.
    """

    kind: Literal["gram"] = "gram"
    records: Count


class NewtonRelease(PackedRelease):
    """One window of an organisation's records as a privatized Newton step (GaussMix with ``method: newton``).

    The first records are released as second moments, from which a model follows. The other records are released as
    their scores and information at that model.

    - ``records``: Number of records in the window, the first ones included. It is public: neighbouring data sets differ
      in the content of a record.
    - ``model``: The model's coefficients, features and then the constant, finite: a function of the first part's
      integers alone.
    - ``payload``: Integers of both upper triangles, the first part's and then the other's, each row by row, in base64
      of little-endian 64-bit integers.
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
        TargetRelease,
        SketchRelease,
        GramRelease,
        NewtonRelease,
    )
}
"""Release models by kind."""


class ModelMessage(BaseModel):
    """One published model of a partition, which a device reads before it computes its gradient or score.

    - ``task``: Hash of the task, 64 hex digits.
    - ``partition``, ``version``: The partition (the first of those that share models), and the number of releases that
      it (they) had learned.
    - ``parameters``: The model's numbers, finite; JSON preserves float64 exactly. For gradients they are the iterate's
      coordinates.
    """

    model_config = _WIRE

    schema_: Schema = SCHEMA_VERSION
    kind: Literal["model"] = "model"
    task: TaskHash
    partition: Count
    version: Count
    parameters: Annotated[list[float], FailFast()]
