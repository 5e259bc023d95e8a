"""Settings of the sketches that organisations release, for GaussMix (`protocol: summaries`)."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Field

from murk.task.errors import task_error
from murk.task.fields import Block, Integer, Text
from murk.task.learning import Positive
from murk.task.protocols.base import Scale, SupportedMechanisms, TaskProtocol

GRAM: Final = "gram"  # kind of the releases of second moments
NEWTON: Final = "newton"  # kind of the releases of second moments and a Newton step
MIXING: Final = "linear-mixing"  # the paper's method
_OF_MIXING: Final = ("rows", "analysis", "debiased")
_KINDS: Final = {"moments": GRAM, "newton": NEWTON}
_OF_MOMENTS: Final = SupportedMechanisms(
    ("gaussian",), ("approx", "gdp", "zcdp"), "second moments have Gaussian noise, which gives no pure guarantee"
)


class SummariesBlock(Block):
    """Settings of the sketches that organisations release, for GaussMix (`protocol: summaries`)."""

    rows: Annotated[Integer, Field(ge=2, le=100_000)] | None = Field(
        default=None,
        description="rows of a mixture (k; not with `moments`); `null`: 4096, or what fits a message, at most `window`",
    )
    window: Annotated[Integer, Field(ge=1, le=2**40)] | None = Field(
        default=None, description="records per sketch; `null`: all records of a source"
    )
    organisation: Text | None = Field(
        default=None, description="the column that names a record's organisation; `null`: one organisation"
    )
    person: Text | None = Field(
        default=None,
        description="the column that names a record's person; the guarantee covers a person's records of a window "
        "together (`moments` and `newton`); `null`: each record is another person's",
    )
    rows_per_person: Annotated[Integer, Field(ge=1, le=10_000)] | None = Field(
        default=None,
        description="maximum records of a person in a window; the noise is proportional to it. Further records "
        "become zeros: random ones of a file, else the later ones. `null`: 1 with `person`",
    )
    method: Literal["moments", "newton", "linear-mixing", "mixing"] = Field(
        default="linear-mixing",
        description="`moments` releases a window's second moments with Gaussian noise; `newton`, for a binary "
        "target, those of its first records and of all others at the resulting model; `mixing` k random "
        "mixtures; `linear-mixing`, as published, also the least eigenvalue, to add less noise. If "
        "omitted: `linear-mixing` with `rows` or `analysis`, else `moments`",
    )
    first: Annotated[Integer, Field(ge=1, le=2**32)] | None = Field(
        default=None,
        description="records of a window's first part (`newton`); `null`: 2,500 per coefficient, at most 10,000 and "
        "half of `window`",
    )
    analysis: Literal["tight", "joint", "published"] = Field(
        default="tight",
        description="proof of the mixtures' guarantee, which sets their noise: `tight` is exact for mixing and "
        "integrates over the eigenvalue's noise, `joint` adds Renyi divergences, "
        "`published` two pairs of (epsilon, delta)",
    )
    debiased: Annotated[bool, Field(strict=True)] = Field(
        default=True,
        description="whether the noise of mixtures is subtracted; `false` as published, which shrinks coefficients",
    )
    neighbours: Literal["zero-out", "replace-one"] = Field(
        default="zero-out",
        description="what the guarantee hides: whether a record exists (`zero-out`, as published), or which one it "
        "is, as in the other protocols (`replace-one`)",
    )
    range: Positive | None = Field(
        default=None,
        description="range [-Q, Q] in which the quadratic surrogate of the logistic loss is fitted; `null`: by "
        "normal scores of the sketch's moments",
    )
    feature_bound: Positive | None = Field(
        default=None, description="public bound on the features' length; `null`: the largest length in their box"
    )
    target_bound: Positive | None = Field(default=None, description="public bound on the target's size; `null`: 1")

    @property
    def most_rows(self) -> int:
        """Largest number of a person's records in a window, which the guarantee covers together."""
        return self.rows_per_person or 1


class SummariesProtocol(TaskProtocol):
    """Organisations release sketches of windows of their records."""

    name = "summaries"
    rank = 5
    block = SummariesBlock
    releases = "sketch"
    # This is for mixtures, which have a mechanism of their own.
    offer = SupportedMechanisms((), ("approx",), "random mixtures of records have only an (epsilon, delta) guarantee")
    learner_keys = ("radius", "weighting")
    left_open: ClassVar[Mapping[str, tuple[str, ...]]] = {"method": ("mixing",), "range": ()}
    of_organisations = True
    why_not_shuffled = "come from a few organisations"

    def release_kind(self, block: Any) -> str:
        """Return the kind: second moments, a Newton step, or a mixture."""
        return self.releases if block is None else _KINDS.get(block.method, self.releases)

    def offer_of(self, released: str | None) -> SupportedMechanisms:
        """Return the guarantees that second moments, or mixtures, can have."""
        return _OF_MOMENTS if released in _KINDS.values() else self.offer

    def fill_in(self, block: Mapping[str, Any], target: str, task: Mapping[str, Any]) -> dict[str, Any]:
        """Return the block with a method: `moments` by default, or linear mixing if a key is for mixtures."""
        if block.get("method") is not None:
            return dict(block)
        mixes = any(block.get(key) is not None for key in _OF_MIXING)
        return {**block, "method": MIXING if mixes else "moments"}

    def why_not_weighed(self, block: Any, *, public: bool, predictions: bool) -> str:
        """Return why people cannot be weighted by their rows: each record counts, whoever owns it."""
        return ", in which each record counts; remove it"

    def published(self, target: str, guarantee: str) -> dict[tuple[str, ...], Any]:
        """Return the settings of LinearMixing, and the range of the quadratic surrogate for two labels."""
        own: dict[str, Any] = {"method": MIXING, "analysis": "published", "neighbours": "zero-out"}
        own |= {"debiased": False} if target == "real" else {"debiased": False, "range": 3.0}
        settings: dict[tuple[str, ...], Any] = {("summaries", key): value for key, value in own.items()}
        return settings | {("learner", "weighting"): "uniform"}

    def check(self, block: Any, target: str) -> None:
        """Check the block's keys against its method and the target."""
        for key in _OF_MIXING if block.method in _KINDS else ():
            if getattr(block, key) != SummariesBlock.model_fields[key].default:
                raise _idle(block, key, "linear-mixing")
        if block.rows_per_person is not None and block.person is None:
            raise task_error(
                "needs summaries.person, the column that names people; add it", "summaries", "rows_per_person"
            )
        if block.person is not None and block.method not in _KINDS:
            words = (
                f"mixtures ({block.method}) protect a record, not a person with several records; say method: moments"
            )
            raise task_error(words, "summaries", "person")
        if block.person is not None and block.person == block.organisation:
            raise task_error("is also the column of organisations; name the column of people", "summaries", "person")
        if block.method == "newton":
            self._check_newton(block, target)
        elif block.first is not None:
            raise _idle(block, "first", "newton")
        if target == "real" and block.range is not None:
            raise task_error("has no effect on a real target; remove it", "summaries", "range")
        if target == "binary" and block.target_bound not in (None, 1.0):
            raise task_error("labels are -1 and +1, and their bound is 1; remove it", "summaries", "target_bound")
        if block.feature_bound is not None and block.feature_bound <= 1.0:
            words = f"{block.feature_bound:g} must exceed 1, the constant that every record has; raise it"
            raise task_error(words, "summaries", "feature_bound")

    def check_without_features(self, block: Any, target: str) -> None:
        """Check that second moments are released, from which a mean or a share follows."""
        if target == "classes":
            super().check_without_features(block, target)
        for key, value in (("method", "moments"), ("range", None), ("feature_bound", None)):
            if getattr(block, key) != value:
                raise task_error("has no effect without features; remove it", "summaries", key)

    def _check_newton(self, block: Any, target: str) -> None:
        if target != "binary":
            words = "newton is for the logistic loss, which needs a binary target; say method: moments"
            raise task_error(words, "summaries", "method")
        if block.range is not None:
            raise task_error("has no effect with method: newton; remove it", "summaries", "range")
        if block.first is not None and block.window is not None and block.first >= block.window:
            words = f"{block.first} records leave none for the step in a window of {block.window}; lower it"
            raise task_error(words, "summaries", "first")

    def alternatives(self, block: Any, target: str) -> Sequence[dict[str, Any]]:
        """Return the settings of a Newton step in place of second moments, for a binary target."""
        applies = block is not None and block.method == "moments" and block.range is None and target == "binary"
        return ({"method": "newton"},) if applies else ()

    def scale(self, block: Any, target: str) -> Scale:
        """Return "slope" for a real target; for two labels "log odds", or "own" with the quadratic's range."""
        if target == "real":
            return "slope"
        return "log odds" if block.range is None else "own"

    def model(self, block: Any, target: str) -> str:
        """Return "least squares", "quadratic surrogate of the logistic loss", or "logistic loss"."""
        if block is not None and block.method == "newton":
            return "logistic loss"
        return "least squares" if target == "real" else "quadratic surrogate of the logistic loss"


def _idle(block: Any, key: str, method: str) -> Exception:
    """Return the error for a key that the block's method does not read."""
    return task_error(
        f"has no effect with method: {block.method}; remove it, or say method: {method}", "summaries", key
    )


PROTOCOL: Final = SummariesProtocol()
