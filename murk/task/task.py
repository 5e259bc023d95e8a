"""The task: the public specification that devices, learners and monitors share, and what becomes public with it."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field, PrivateAttr, ValidationError, create_model, model_validator
from pydantic_core import PydanticCustomError

from murk._internal.numbers import listed, many
from murk.errors import UserError
from murk.privacy.mechanisms import BEST
from murk.task.coding import INTERCEPT, Coding, class_clash
from murk.task.errors import Path as KeyPath
from murk.task.errors import mistake, nearest, shown, task_error, user_error
from murk.task.experiment import ExperimentBlock, assigned_place
from murk.task.features import CategoryFeature, ClassTarget, Feature, RealTarget, Target, Words, without_defaults
from murk.task.fields import LONGEST, SLACK, UNITS, Block, Duration, Integer, Text, format_duration
from murk.task.learning import (
    ADDED,
    ADDED_TO_TASK,
    ASKED,
    TIGHTEST_AT,
    ContrastBlock,
    IntervalsBlock,
    LearnerBlock,
    LogBlock,
    MaxStaleness,
    PredictionsBlock,
    PublicBlock,
    PublicCovariates,
    TrackBlock,
    Weight,
    WeightBlock,
    covariates,
)
from murk.task.privacy import PrivacyBlock, filled_in
from murk.task.protocols import registry
from murk.task.protocols.base import Scale, TaskProtocol
from murk.task.protocols.registry import BLOCKS, OBJECTIVE_KEYS, OBJECTIVES, PROTOCOLS, ProtocolName
from murk.task.shuffling import ShuffleBlock, with_promises
from murk.task.windows import ONCE, Repeats, effect_of
from murk.task.yaml import read_file, read_yaml

_ASCII: Final = range(0x21, 0x7F)


def _web_address(text: str) -> str:
    # Consent cards show the address as a link, so it must be that of a web page.
    if not (text.startswith("https://") and urlsplit(text).hostname and all(ord(each) in _ASCII for each in text)):
        raise task_error(f"{shown(text)} is not the address of a page; write it as in https://example.org/privacy")
    return text


class ArchiveBlock(Block):
    """How long an archive keeps releases that the log has deleted, and who may read and write it."""

    kept: Duration = Field(description="longest time for which a release is kept in it, as in `1825d`")
    readers: Words = Field(description="who may read it")
    writers: Words = Field(description="who may write to it, and so decides what is learned from it")

    @property
    def words(self) -> str:
        """What people are told about the archive.

        >>> ArchiveBlock.model_validate({"kept": "90d", "readers": "us", "writers": "a service"}).words.partition(". ")[
        ...     0
        ... ]
        'A copy of what was sent is kept in an archive for at most 90 days'
        """
        days, rest = divmod(self.kept, UNITS["d"])
        kept = format_duration(self.kept) if rest else many(days, "day")
        return (
            f"A copy of what was sent is kept in an archive for at most {kept}. Who may read it: {self.readers}. "
            f"Who may write to it: {self.writers}."
        )


class AboutBlock(Block):
    """Who asks, and what for: texts that consent cards and the dossier show, and that are part of the task's hash."""

    purpose: Words | None = Field(
        default=None, description="what the result is for, and on which legal basis people are asked"
    )
    controller: Words | None = Field(default=None, description="who is responsible for the processing")
    contact: Words | None = Field(
        default=None, description="where people can ask, complain or use their rights, such as an e-mail address"
    )
    notice: Annotated[Text, AfterValidator(_web_address)] | None = Field(
        default=None, description="address of the privacy notice, which begins with `https://`"
    )
    archive: ArchiveBlock | None = Field(
        default=None, description="an [archive](archives.md) of the releases; `null`: there is none"
    )


def canonical_json(content: object) -> bytes:
    """Return data as canonical JSON: sorted keys, no spaces, floats by repr, UTF-8.

    >>> canonical_json({"b": 0.1, "a": [1, None]})
    b'{"a":[1,null],"b":0.1}'
    """
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8")


def differences(first: bytes, second: bytes) -> list[str]:
    """Return the keys in which two tasks' documents differ, as a task file writes them.

    >>> differences(b'{"a": {"b": 1}, "c": 2}', b'{"a": {"b": 3}, "c": 2}')
    ['a.b']
    """
    return _differences(json.loads(first), json.loads(second), "")


def _differences(left: object, right: object, path: str) -> list[str]:
    keys: list[str] = []
    if isinstance(left, dict) and isinstance(right, dict):
        for key in sorted({*left, *right}):
            keys += _differences(left.get(key), right.get(key), f"{path}.{key}" if path else key)
    elif isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        for index, pair in enumerate(zip(left, right, strict=True)):
            keys += _differences(*pair, f"{path}[{index}]")
    elif left != right:
        keys.append(path)
    return keys


SCHEMA_VERSION: Final = 1
# Keys of the resolved document that no task file sets.
RESOLVED: Final = {
    "schema": "written by Murk alone; remove it",
    "simulated": "chosen when a task is run (by a seed), not in its file; remove it",
    "covariates": "resolved by Murk; write public: {file: ...} or public: {set_aside: ...}",
}


def check_name(name: str, what: str = "task") -> str:
    """Return a name of a task, or of ``what``, or raise `PydanticCustomError`."""
    if len(name) > 64 or not name or set(name) - set("abcdefghijklmnopqrstuvwxyz0123456789-"):
        raise task_error(f"{shown(name)} is not a {what}'s name; use 1 to 64 lowercase letters, digits and -")
    return name


if TYPE_CHECKING:
    _ProtocolBlocks = Block
else:
    _fields = {
        name: (block | None, Field(default=None, description=f"settings of `protocol: {name}`"))
        for name, block in BLOCKS.items()
    }
    _ProtocolBlocks = create_model("_ProtocolBlocks", __base__=Block, **_fields)

_ERROR_CODE = "MURK-TASK-001"


class Task(_ProtocolBlocks):
    """A public specification: features with public bounds, target, objective, guarantee and settings.

    Create one with `Task.load`, `Task.parse` or `Task.from_document`. Tasks are equal if their resolved documents are.

    >>> task = Task.parse('''
    ... name: third-child
    ... features: [{name: age, low: 21, high: 35}, {name: same_sex, categories: [no, yes]}]
    ... target: {name: third_child, kind: binary, positive: yes, negative: no}
    ... privacy: {guarantee: {gdp: {mu: 1.0}}}
    ... ''')
    >>> task.protocol, task.coding.names
    ('scores', ('age', 'same_sex', 'intercept'))
    """

    name: Annotated[Text, AfterValidator(check_name)] = Field(description="its name: lowercase letters, digits and -")
    about: AboutBlock | None = Field(
        default=None, description="what people are told before they consent: purpose, controller, contact and notice"
    )
    features: Annotated[tuple[Feature, ...], Field(max_length=10_000)] = Field(
        description="the columns to learn from, in order; `[]` for the mean of the target, or the share of each class"
    )
    target: Target = Field(description="the column to learn")
    missing: Literal["midpoint", "error"] = Field(
        default="midpoint",
        description="`midpoint` codes missing values (empty cells) as 0; with `error` simulations and `--check` "
        "stop at them. With real noise, both code them as 0",
    )
    protocol: ProtocolName = Field(
        default="scores",
        description="what is released: `scores` at a round's model, `gradients` at the newest one, `examples` or "
        "`moments` once, or an organisation's `summaries`. If omitted: `gradients` from 64 coded features on, "
        "and with `objective`, `learner` or `max_staleness`; `univariate` without features, or with `known` ones, "
        "where people release their target once; else `scores`",
    )
    as_published: Annotated[bool, Field(strict=True)] = Field(
        default=False,
        description="`true`: the settings of the protocol's paper (LDP-SGD, IWP-SGD, public-data GLM, GaussMix), "
        "except that `gradients` and `examples` have the least Gaussian noise with the guarantee (see `calibration`)",
    )
    objective: Literal["balanced", "logistic", "softmax", "huber", "squared", "median"] | None = Field(
        default=None,
        description="for `gradients`: `balanced` (log odds from fewer people) or `logistic` (as published) for a "
        "binary target; `softmax` for classes; `huber`, `squared` (the mean) or `median` for a real "
        "target",
    )
    privacy: PrivacyBlock = Field(description="the privacy guarantee")
    learner: LearnerBlock = Field(default=LearnerBlock(), description="settings of the learner")
    max_staleness: MaxStaleness = Field(
        default=MaxStaleness(),
        description="the maximum age of a gradient, in releases of its partition (`gradients` only)",
    )
    forget: Annotated[Integer, Field(ge=24_000, le=10**12)] | None = Field(
        default=None,
        description="the number of newest releases of each partition to learn from (`scores` only); older ones are "
        "forgotten in steps of an eighth of this number; `null`: nothing is forgotten",
    )
    predictions: PredictionsBlock | None = Field(
        default=None,
        description="prediction sets that contain a stated share of people's targets (`scores` only); `null`: none",
    )
    track: TrackBlock | None = Field(
        default=None,
        description="estimates of each window of `privacy.window`, and a smoothed path, with bands that hold over all "
        "windows at once (`scores`, and shares and means without features); `null`: none",
    )
    weight: Weight = Field(
        default="people",
        description="`people`: all people have equal weight, however many rows they have; `{rows: 10}`: a person's "
        "weight is their number of rows (in a window), at most 10",
    )
    people: Annotated[Integer, Field(ge=1, le=10**12)] | None = Field(
        default=None,
        description="the number of releases (records with `summaries`) at which the task ends, if it is planned; live "
        "displays then show fixed intervals, unless it is an experiment. Nothing is refused beyond it",
    )
    intervals: IntervalsBlock | None = Field(default=None, description="the looks at which intervals hold")
    contrasts: Annotated[tuple[ContrastBlock, ...], Field(max_length=100)] = Field(
        default=(), description="comparisons of two categories, each with a p-value and an e-value for every look"
    )
    experiment: ExperimentBlock | None = Field(
        default=None, description="arms of an experiment among `known` columns (`univariate` only); `null`: none"
    )
    granularity: Duration = Field(default=86_400, description="timestamps are truncated to multiples of this duration")
    expiry: Duration = Field(default=7 * 86_400, description="how long a device keeps trying to send a release")
    duplicates: Annotated[Integer, Field(ge=1, le=10**9)] = Field(
        default=65_536,
        description="the number of previous releases of a partition among which a repeated id is recognised; a "
        "repeated release is recognised until it expires",
    )
    public: PublicBlock | None = Field(
        default=None, description="public covariates, for whitening and intervals; `null`: nobody's features are public"
    )
    shuffle: ShuffleBlock | None = Field(
        default=None,
        description="crowds in which a shuffler hides who released what (not with `gradients` or `summaries`); `null`: "
        "releases are not shuffled",
    )
    log: LogBlock = Field(default=LogBlock(), description="the log's settings; not part of the task's hash")
    simulated: Annotated[bool, Field(strict=True)] = Field(default=False, description="whether noise is simulated")
    covariates: PublicCovariates | None = Field(default=None, description="the resolved public covariates")

    hidden = frozenset(RESOLVED)
    _path: Path | None = PrivateAttr(default=None)
    # The file's name and the lines of its keys, for errors.
    _source: str = PrivateAttr(default="")
    _lines: Mapping[KeyPath, int] = PrivateAttr(default_factory=dict)

    @classmethod
    def keys(cls) -> list[str]:
        """Return the keys of a task file; the protocols' blocks come last."""
        keys = super().keys()
        return [key for key in keys if key not in BLOCKS] + list(BLOCKS)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a task file; see `parse`. Raises `UserError` if it cannot be read, too."""
        task = cls.parse(read_file(path, "task"), source=str(path))
        task._path = Path(path)  # noqa: SLF001
        return task

    @classmethod
    def parse(cls, text: str, source: str = "task") -> Self:
        """Read the text of a task file ``source``; raise `UserError` with line, key and remedy of each mistake."""
        content, lines = read_yaml(text, source)
        for key, remedy in RESOLVED.items():
            if key in content:
                raise UserError(f"{source}, line {lines[(key,)]}: {key}: {remedy}")
        if content.get("protocol") is None:
            content["protocol"] = registry.protocol_by_rule(content)
        try:
            content = registry.with_published(content)
        except PydanticCustomError as error:
            wrong = ValidationError.from_exception_data(source, [{"type": error, "input": None}])
            raise user_error(wrong, source, lines) from None
        content = with_promises(registry.with_rules_of_scores(registry.with_delays(content)))
        if "privacy" in content:
            content["privacy"] = filled_in(content["privacy"], content["protocol"], registry.release_named(content))
        return cls._resolve(content, source, lines)

    @classmethod
    def from_document(cls, document: bytes, source: str = "the log's task") -> Self:
        """Read a resolved document (see `document`); raise `UserError` if it is damaged or of another schema."""
        try:
            content = json.loads(document)
        except (ValueError, RecursionError):
            raise UserError(f"{source}: not a task's document (not JSON); it is damaged") from None
        if not isinstance(content, dict) or content.pop("schema", None) != SCHEMA_VERSION:
            raise UserError(f"{source}: not of schema {SCHEMA_VERSION}; it was written by another version of Murk")
        return cls._resolve(content, source, {})

    @classmethod
    def _resolve(cls, content: dict[str, Any], source: str, lines: dict[KeyPath, int]) -> Self:
        try:
            task = cls.model_validate(content)
        except ValidationError as error:
            raise user_error(error, source, lines) from None
        task._source, task._lines = source, lines  # noqa: SLF001
        return task

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, data: Any) -> Any:
        return with_promises(registry.resolved(data)) if isinstance(data, dict) else data

    @model_validator(mode="after")
    def _check(self) -> Self:
        self._check_names()
        if self.as_published:
            words = (
                "is expanded only when a task file is parsed; give the settings that it stands for, or use Task.parse"
            )
            raise task_error(words, "as_published")
        self._check_protocol()
        self._check_intervals()
        self._check_contrasts()
        if self.experiment is not None:
            self._check_experiment(self.experiment)
        self._check_objective()
        self._check_times()
        self._check_covariates()
        self._check_privacy()
        if self.shuffle is not None:
            self._check_shuffle(self.shuffle)
        return self

    def _check_names(self) -> None:
        taken = {INTERCEPT: "the constant's name"}  # use of each coded name
        columns: dict[str, int] = {}
        for index, feature in enumerate(self.features):
            at = ("features", index, "name")
            if feature.name in columns:
                first = columns[feature.name] + 1
                raise task_error(f"{shown(feature.name)} is feature {first} too; remove or rename one", *at)
            columns[feature.name] = index
            for coded in self.coding.names_of(index):
                named = f"its coded name {shown(coded)}"
                if coded in taken:
                    raise task_error(f"{named} is {taken[coded]} already; rename it", *at)
                if coded.endswith(f":{INTERCEPT}"):
                    raise task_error(f"{named} ends like that of a class's constant; rename it", *at)
                taken[coded] = f"a coded name of feature {index + 1}"
        target = self.target
        if isinstance(target, ClassTarget) and (clash := class_clash(target.classes, taken)) is not None:
            label, other, name = clash
            words = f"its coefficient {shown(f'{label}:{name}')} would have the name of one of the class {shown(other)}"
            place = target.classes.index(label)
            raise task_error(f"{words}; rename the class or the feature", "target", "classes", place)
        if target.name in columns:
            words = f"{shown(target.name)} is a feature too, and cannot predict itself: remove one"
            raise task_error(words, "target", "name")
        taken = {target.name: "the target"} | dict.fromkeys(columns, "a feature")
        for index, metric in enumerate(self.metrics):
            if metric.name in taken:
                words = f"{shown(metric.name)} is {taken[metric.name]} too; remove or rename one"
                raise task_error(words, "experiment", "metrics", index, "name")
            taken[metric.name] = "a metric"

    def _check_protocol(self) -> None:
        name, protocol, target = self.protocol, PROTOCOLS[self.protocol], self.target
        quantiles = target.quantiles if isinstance(target, RealTarget) else None
        if not self.features:
            if self.public is not None:
                words = "a task without features has no covariates that could be public; remove it"
                raise task_error(words, "public")
            protocol.check_without_features(self.block, target.kind)
            if quantiles is not None and name != "univariate":
                raise task_error(
                    f"{name} cannot learn quantiles; say protocol: univariate, or leave it out", "protocol"
                )
        else:
            protocol.check_features(self.features, target.kind, self.people)
            if quantiles is not None:
                words = "has no effect in a task with features; remove it, or say features: []"
                raise task_error(words, "target", "quantiles")
        idle = f"has no effect with protocol: {name}"
        for other in BLOCKS:
            if other != name and getattr(self, other) is not None:
                raise task_error(f"{idle}; remove it, or say protocol: {other}", other)
        if protocol.block is not None or not self.features:
            if self.objective is not None:
                learns = "whose own block says what is learned" if self.features else "which learns shares or a mean"
                words = f"{self.objective!r} {idle}, {learns}; remove it"
                raise task_error(words, "objective")
            if target.kind not in protocol.targets:
                able = "use scores, gradients or examples"
                raise task_error(f"{name} learns binary or real targets, not {target.kind!r}; {able}", "protocol")
            protocol.check(self.block, target.kind)
            if self.learner.radius == "unbounded":
                raise task_error(f"unbounded {idle}; remove it", "learner", "radius")
            unread = tuple(key for key in LearnerBlock.model_fields if key not in protocol.learner_keys)
            if key := self.learner.beyond_defaults(unread):
                raise task_error(f"{idle}; remove it", "learner", key)
            if self.max_staleness != MaxStaleness():
                words = f"{idle}, whose releases are {protocol.why_no_staleness}; remove it"
                raise task_error(words, "max_staleness")
        if self.forget is not None:
            protocol.check_forget(self.block, self.forget)
        if self.track is not None:
            self._check_track(self.track, protocol, has_quantiles=quantiles is not None)
        if self.predictions is not None:
            protocol.check_predictions(self.block, len(self.features), self.log.partitions)
        if self.most_rows > 1:
            self._check_weight(protocol)

    def _check_weight(self, protocol: TaskProtocol) -> None:
        has = {"public": self.public is not None, "predictions": self.predictions is not None}
        why = protocol.why_not_weighed(self.block, **has)
        if self.experiment is not None:
            why = why or " and experiment, whose arms give all people the same weight; remove one"
        if why:
            raise task_error(f"rows have no effect with protocol: {self.protocol}{why}", "weight")
        if self.learner.intervals == ASKED:
            words = f"{ASKED} holds too rarely where people have fewer rows than count; remove it, or the weight"
            raise task_error(words, "learner.intervals")

    def _check_track(self, track: TrackBlock, protocol: TaskProtocol, *, has_quantiles: bool) -> None:
        if not protocol.tracks:
            words = f"has no effect with protocol: {self.protocol}, whose learner keeps no sums by window"
            raise task_error(f"{words}; remove it, or say protocol: scores", "track")
        if protocol.without_models and not protocol.reads_models(self.block):
            raise task_error("has no effect with interactive: false; remove it, or interactive", "track")
        if self.known_columns:
            raise task_error("tasks with known columns have no track; remove it, or known", "track")
        if has_quantiles:
            raise task_error("tasks of quantiles have no track; remove it, or target.quantiles", "track")
        if track.window != self.privacy.window or not self.privacy.renews:
            words = f"{shown(track.window)} is not privacy.window, {shown(self.privacy.window)}"
            raise task_error(f"{words}; give the same one, in which a person answers once", "track", "window")

    def _check_intervals(self) -> None:
        if self.intervals is None or self.intervals.validity != "always-valid":
            return
        at = ("intervals", "validity")
        if self.forget is not None:
            words = f"forget: {self.forget}`, as the estimand may move; say validity: fixed-n, or remove forget"
            raise task_error(f"`validity: always-valid` cannot be combined with `{words}", *at)
        if self.learner.intervals == "random-scaling":
            words = "which `intervals: random-scaling` does not have; say validity: fixed-n, or give public covariates"
            raise task_error(f"`validity: always-valid` needs a covariance, {words}", *at)

    def _check_contrasts(self) -> None:
        features = {feature.name: feature for feature in self.features if isinstance(feature, CategoryFeature)}
        for index, contrast in enumerate(self.contrasts):
            at = ("contrasts", index)
            if contrast.feature not in features:
                remedy = nearest(contrast.feature, features) if features else "this task has none"
                words = f"{shown(contrast.feature)} is not a feature with categories; {remedy}"
                raise task_error(words, *at, "feature")
            categories = features[contrast.feature].categories
            for key, value in (("category", contrast.category), ("against", contrast.against)):
                if value not in categories:
                    words = f"{shown(value)} is not a category of {contrast.feature}; {nearest(value, categories)}"
                    raise task_error(words, *at, key)
            if contrast.category == contrast.against:
                raise task_error(f"{shown(contrast.against)} is compared with itself; name another one", *at, "against")
            if contrast in self.contrasts[:index]:
                raise task_error(f"contrast {self.contrasts.index(contrast) + 1} is the same; remove one", *at)

    def _check_experiment(self, experiment: ExperimentBlock) -> None:
        known_names, at = self.known_columns, "experiment"
        if experiment.arm not in known_names:
            remedy = (
                nearest(experiment.arm, known_names) if known_names else "make it one with categories and known: true"
            )
            raise task_error(f"{shown(experiment.arm)} is not a feature with known: true; {remedy}", at, "arm")
        for place, name in enumerate(experiment.segments):
            others = [each for each in known_names if each != experiment.arm]
            if name not in others:
                remedy = nearest(name, others) if others else "remove it, or add a known feature"
                raise task_error(
                    f"{shown(name)} is not a feature with known: true besides the arm; {remedy}", at, "segments", place
                )
        arms = self.arms
        if experiment.control not in arms:
            words = f"{shown(experiment.control)} is not a category of {experiment.arm}; "
            raise task_error(words + nearest(experiment.control, arms), at, "control")
        if experiment.assigned is not None and len(experiment.assigned.shares) != len(arms):
            words = f"{len(experiment.assigned.shares)} shares of {len(arms)} arms; give one of every arm"
            raise task_error(words, at, "assigned", "shares")
        if isinstance(self.target, ClassTarget):
            words = "compares a binary or real target, not several classes; make the class of interest a binary target"
            raise task_error(words, at)
        experiment.check_metrics(self.target)
        if experiment.metrics and self.privacy.repeats_answers:
            words = (
                "with privacy.repeat: same, whether an answer is repeated would depend on metrics that are not drawn"
            )
            raise task_error(f"{words}; remove the metrics, or say repeat: anew", at, "metrics")
        if experiment.ratios and self.privacy.further_levels:
            words = "the two means of a ratio would weigh levels differently; remove the ratios, or the further levels"
            raise task_error(words, at, "ratios")
        if experiment.ratios and self.shuffle is not None:
            words = "a shuffler withholds whole combinations of known columns, and ratios are not adjusted for them"
            raise task_error(f"{words}; remove the ratios, or shuffle", at, "ratios")
        if experiment.segments and self.shuffle is not None:
            words = "a shuffler withholds whole combinations of known columns, so that arms differ in what is left"
            raise task_error(f"{words}; remove the segments, or shuffle", at, "segments")

    @property
    def metrics(self) -> tuple[Target, ...]:
        """Metrics of the task's experiment beside its target; none without one."""
        return () if self.experiment is None else self.experiment.metrics

    @property
    def arms(self) -> tuple[str, ...]:
        """Arms of the task's experiment; empty without an experiment."""
        arm = None if self.experiment is None else self.experiment.arm
        of_arm = (each for each in self.features if each.name == arm and isinstance(each, CategoryFeature))
        return next((each.categories for each in of_arm), ())

    def arm_of(self, identifier: str) -> str:
        """Return the arm of the person with this random identifier, which they keep on their device.

        Raises `UserError` unless devices assign the arms of the task's experiment.
        """
        assigned = None if self.experiment is None else self.experiment.assigned
        if assigned is None or assigned.salt is None:
            raise UserError(f"devices do not assign arms of the task {self.name!r}: say experiment.assigned.by: device")
        return self.arms[assigned_place(assigned.salt, identifier, assigned.shares)]

    def _check_objective(self) -> None:
        objective, target, learner = self.objective, self.target, self.learner
        able = OBJECTIVES[target.kind]
        if objective is not None and objective not in able:
            choices = " or ".join(map(repr, able))
            words = f"does not fit a target of kind {target.kind!r}; use {choices}, or leave it out"
            raise task_error(f"{objective!r} {words}", "objective")
        for only, keys in OBJECTIVE_KEYS.items():
            if objective != only and (key := learner.beyond_defaults(keys)):
                raise task_error(f"has no effect with objective {objective!r}; remove it", "learner", key)
        if learner.intervals == "complete" and target.missing_share:
            stated = f"the target's missing_share is {target.missing_share:g}"
            words = f"complete states that no target is missing, but {stated}; remove one"
            raise task_error(words, "learner", "intervals")

    def _check_times(self) -> None:
        # Devices send again until the expiry, truncated to the granularity.
        expiry, granularity = format_duration(self.expiry), format_duration(self.granularity)
        if self.expiry < self.granularity:
            why = "so that releases would expire immediately; raise it or lower granularity"
            raise task_error(f"{expiry} is below granularity {granularity}, {why}", "expiry")
        least, slack = self.expiry + SLACK, format_duration(SLACK)
        if least > LONGEST:
            why = f"the longest retention {format_duration(LONGEST)} less {slack}"
            raise task_error(f"{expiry} is above {format_duration(LONGEST - SLACK)}, {why}; lower it", "expiry")
        if "retention" not in self.log.model_fields_set:
            self.__dict__["log"] = self.log.model_copy(update={"retention": least})
        if self.log.retention < least:
            kept = format_duration(self.log.retention)
            words = (
                f"{kept} is below expiry {expiry} and {slack}, by which a device's clock may be ahead, so that a "
                "release sent again after the log has removed it would count twice; raise it to "
                f"{format_duration(least)} or lower expiry. If a log carries the task with this retention, use another "
                "log"
            )
            raise task_error(words, "log", "retention")

    def _check_covariates(self) -> None:
        protocol = PROTOCOLS[self.protocol]
        check = protocol.check_without_public if self.public is None else protocol.check_with_public
        check(self.block, self.target.kind)
        if self.covariates is None:
            return
        if self.public is None:
            raise task_error("covariates without public: {file: ...} or public: {set_aside: ...}; add it", "covariates")
        size = self.covariates.points.shape[1]
        if size != self.coding.size:
            raise task_error(f"points of {size} coordinates; the task codes {self.coding.size}", "covariates")

    def _check_privacy(self) -> None:
        classes = len(self.target.classes) if isinstance(self.target, ClassTarget) else 1
        protocol = PROTOCOLS[self.protocol]
        # An approximate dimension: which guarantees are possible hardly depends on it.
        try:
            self.privacy.check_feasible(protocol, self.coding.size * classes, protocol.offered(self.block))
        except PydanticCustomError as error:
            context = error.context or {}
            raise task_error(str(context["message"]), "privacy", *context["at"]) from None

    def _check_shuffle(self, shuffle: ShuffleBlock) -> None:
        if self.known_columns and self.people is not None:
            columns = (each for each in self.features if isinstance(each, CategoryFeature) and each.known)
            cells = math.prod(len(each.categories) for each in columns)
            if self.people < shuffle.crowd * cells:
                words = (
                    f"{self.people:,} people in {cells:,} combinations of known columns are {self.people / cells:,.0f} "
                    f"each, and a crowd of one combination has {shuffle.crowd:,}: give a smaller crowd, fewer known "
                    "columns or coarser categories"
                )
                raise task_error(words, "shuffle", "crowd")
        PROTOCOLS[self.protocol].check_shuffled(self.block, shuffle.crowd, self.log.partitions, self.forget)
        if self.privacy.per_person is not None:
            words = "the central guarantee holds for people who are in one crowd, once"
            raise task_error(f"{words}; remove the cap, which allows more", "privacy", "per_person")
        if self.privacy.renews:
            words = "the central guarantee holds for people who are in one crowd, once"
            raise task_error(f"{words}; remove the window, because people answer in every window", "privacy", "window")
        if self.privacy.grid is not None:
            words = f"crowds are of one level, and few people share one of a grid's {len(self.privacy.levels)}"
            raise task_error(f"{words}; name a few levels, or remove shuffle", "privacy", "levels")
        for level, guarantee in self.privacy.levels.items():
            shuffle.check_level(guarantee, "privacy", *self.privacy.key_of(level))
        shuffle.check_promise(self.privacy.guarantee, "shuffle")

    @cached_property
    def repeats(self) -> Repeats:
        """How often one person may answer, by the task's caps."""
        return ONCE if self.of_organisations else self.privacy.repeats

    @cached_property
    def repeats_within(self) -> Repeats:
        """How often one person may answer within a window; without windows, in all."""
        if not self.privacy.renews:
            return self.repeats
        within = self.repeats.within
        return Repeats(within, effect_of(within, list(self.privacy.levels.values())))

    @cached_property
    def coding(self) -> Coding:
        """Coding of records as features and targets."""
        return Coding(self.features, self.target, self.metrics)

    @property
    def most_rows(self) -> int:
        """Largest number of a person's rows that count; 1 if all people have equal weight, whatever their rows."""
        return self.weight.rows if isinstance(self.weight, WeightBlock) else 1

    @property
    def known_columns(self) -> tuple[str, ...]:
        """Names of the features that are sent as they are."""
        return tuple(each.name for each in self.features if isinstance(each, CategoryFeature) and each.known)

    @property
    def archive_words(self) -> str:
        """Return what people are told about an archive of their releases; empty if the task declares none."""
        return "" if self.about is None or self.about.archive is None else self.about.archive.words

    @property
    def known_words(self) -> str:
        """Return which records the guarantee compares, as a sentence; empty if no column is known."""
        return known_words(listed(self.known_columns))

    @property
    def release_kind(self) -> str:
        """Kind of release, such as ``"gradient"``."""
        return PROTOCOLS[self.protocol].release_kind(self.block)

    @property
    def of_organisations(self) -> bool:
        """Whether organisations release, not people."""
        return PROTOCOLS[self.protocol].of_organisations

    @property
    def coefficient_scale(self) -> Scale:
        """Scale of the coefficients, such as ``"log odds"``."""
        scale = PROTOCOLS[self.protocol].scale(self.block, self.target.kind)
        # Shares, and lines in private features beside known columns, are on the scale of probabilities.
        by_line = not self.features or 0 < len(self.known_columns) < len(self.features)
        return "probability" if by_line and scale != "slope" else scale

    @property
    def fitted_model(self) -> str:
        """Name of the fitted model."""
        if not self.features:
            asks_quantiles = isinstance(self.target, RealTarget) and self.target.quantiles is not None
            return "quantiles" if asks_quantiles else "mean" if self.target.kind == "real" else "shares"
        if self.coefficient_scale == "probability" and self.known_columns:
            return "squared"
        # The balanced loss fits the same model.
        objective = None if self.objective == "balanced" else self.objective
        return objective or PROTOCOLS[self.protocol].model(self.block, self.target.kind)

    @property
    def block(self) -> Any:
        """Settings of the task's protocol, or None."""
        return getattr(self, self.protocol) if self.protocol in BLOCKS else None

    @property
    def tightest_at(self) -> int:
        """Number of releases (an organisation's records) at which confidence sequences are tightest."""
        stated = None if self.intervals is None else self.intervals.tightest_at
        return stated or self.people or TIGHTEST_AT

    def error_at(self, message: str, *path: str | int) -> UserError:
        """Return an error about a key of the task, with the line of its file, if it was read from one."""
        return UserError(mistake(message, path, self._source, self._lines), code="MURK-TASK-001")

    @property
    def path(self) -> Path | None:
        """File from which the task was loaded, or None."""
        return self._path

    @property
    def public_path(self) -> Path | None:
        """File of public covariates, relative to the task file, or None."""
        if self.public is None or self.public.file is None:
            return None
        return self._path.parent / self.public.file if self._path else Path(self.public.file)

    @cached_property
    def hash(self) -> str:
        """Hex SHA-256 of the resolved task without ``log``, whose settings may change; every release carries it."""
        content = {key: value for key, value in self._content.items() if key != "log"}
        return hashlib.sha256(canonical_json(content)).hexdigest()

    def document(self) -> bytes:
        """Return the resolved task as canonical JSON: sorted keys, no spaces, floats by repr, UTF-8."""
        return canonical_json(self._content)

    @cached_property
    def _content(self) -> dict[str, Any]:
        content = self.model_dump(mode="json", by_alias=True, warnings="error")
        content["features"] = list(map(without_defaults, self.features, content["features"]))
        content["target"] = without_defaults(self.target, content["target"])
        # Blocks of other protocols are left out, and so are the keys of `ADDED` and `ADDED_TO_TASK` at their defaults.
        for block, key in ADDED:
            if content[block] is not None and content[block][key] == ADDED[block, key]:
                del content[block][key]
        for key in ADDED_TO_TASK:
            if content[key] == ADDED_TO_TASK[key]:
                del content[key]
        return {"schema": SCHEMA_VERSION} | {
            key: value for key, value in content.items() if key not in BLOCKS or value is not None
        }

    def with_public(self, points: NDArray[np.float64], counts: NDArray[np.int64], file: str | None = None) -> Self:
        """Return the task with its public covariates resolved; ``file`` replaces the declared source.

        ``points`` and ``counts`` are as in ``Covariates``. Raises `UserError` if they do not fit the task's coding, or
        the task declares no public covariates.
        """
        try:
            declared = {} if file is None else {"public": {"file": file}}
            return self._with(covariates=covariates(points, counts), **declared)
        except PydanticCustomError as error:
            raise UserError(f"public covariates: {error.message()}") from None

    def without_public(self) -> Self:
        """Return the task without resolved public covariates, as its file declares it."""
        return self._with(covariates=None)

    def with_simulated(self, simulated: bool) -> Self:
        """Return the task for simulated or real releases."""
        return self._with(simulated=bool(simulated))

    def with_protocol(self, protocol: str, **settings: object) -> Self:
        """Return the task with another protocol and its defaults, except for ``settings``, or raise `UserError`.

        The task's stated mechanism is kept only if the other protocol's default mechanism cannot give the guarantee.
        """
        content = self.model_dump(mode="json", by_alias=True, warnings="error")
        for key in ("objective", "learner", "max_staleness", "forget", "predictions", "track", *BLOCKS):
            content.pop(key, None)
        content |= {"protocol": protocol} | ({protocol: settings} if settings else {})
        content = registry.with_rules_of_scores(content)
        privacy, released = content["privacy"] | {"calibration": "analytic"}, registry.release_named(content)
        offer = PROTOCOLS[protocol].offer_of(released) if protocol in PROTOCOLS else None
        is_offered = offer is not None and privacy["mechanism"] in offer.mechanisms
        by_default = {**content, "privacy": filled_in(privacy | {"mechanism": None}, protocol, released)}
        if is_offered and (protocol == self.protocol or privacy["mechanism"] == BEST):
            return self._resolve({**content, "privacy": privacy}, self.name, {})
        try:
            return self._resolve(by_default, self.name, {})
        except UserError:
            if not is_offered:
                raise
            return self._resolve({**content, "privacy": privacy}, self.name, {})

    def with_model(
        self, name: str, features: Sequence[Feature], target: Target, block: Mapping[str, Any], learner: LearnerBlock
    ) -> Self:
        """Return the task without public covariates and with another fitted model, or raise `UserError`."""
        names = {feature.name for feature in features}
        parts: dict[str, Any] = {
            "features": [feature.model_dump(mode="json", by_alias=True) for feature in features],
            "target": target.model_dump(mode="json", by_alias=True),
            "learner": learner.model_dump(mode="json", by_alias=True),
            "contrasts": [each.model_dump(mode="json") for each in self.contrasts if each.feature in names],
        }
        if self.protocol in BLOCKS:
            parts[self.protocol] = dict(block)
        if self.experiment is not None:
            own = self.experiment.model_dump(mode="json", by_alias=True)
            segments = [name for name in self.experiment.segments if name in names]
            own |= {"segments": segments, "metrics": [], "ratios": []}
            if self.experiment.guardrail is not None and self.experiment.guardrail.metric not in (None, target.name):
                own["guardrail"] = None
            parts["experiment"] = own if self.experiment.arm in names else None
        # The task's releases do not change, and so its guarantees do not either.
        return self._with(name=name, public=None, covariates=None, shuffle=None, **parts)

    def with_budget(self, factor: float) -> Self:
        """Return the task with all levels' budgets multiplied by ``factor`` (rho: by its square), without a cap."""
        privacy = self.privacy.times(factor)
        if self.shuffle is None:
            return self._with(privacy=privacy)
        shuffle = self.shuffle.model_dump(mode="json") | {"promise": {"delta": self.shuffle.promise.delta}}
        return self._with(privacy=privacy, shuffle=shuffle)

    def _with(self, **changes: Any) -> Self:
        content = self.model_dump(mode="json", by_alias=True, warnings="error")
        task = self._resolve({**content, **changes}, self.name, {})
        task._path, task._source, task._lines = self._path, self._source, self._lines  # noqa: SLF001
        return task

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Task) and self._content == other._content

    def __hash__(self) -> int:
        return hash(self.hash)

    def __repr__(self) -> str:
        return f"Task({self.name!r}, hash={self.hash[:12]!r})"

    __str__ = __repr__


def known_words(columns: str) -> str:
    """Return, as a sentence, which records the guarantee of a task with known columns compares; empty without any.

    >>> known_words("arm")
    'This compares two records that agree in arm: it is sent as it is, under no guarantee.'
    """
    if not columns:
        return ""
    verb = "they are sent as they are" if " and " in columns else "it is sent as it is"
    return f"This compares two records that agree in {columns}: {verb}, under no guarantee."


def check_task_change(url: str, standing: bytes | None, offered: bytes) -> Task | None:
    """Return the new task if a log must store it, None if nothing changes; raise `UserError` for a forbidden change."""
    if standing == offered:
        return None
    task = Task.from_document(offered)
    if standing is None:
        return task
    carried = Task.from_document(standing)
    if task == carried:
        return None
    # Before the hash, on which the number has an effect: scores of several partitions share models.
    if carried.name == task.name and (why_not := _why_not_grown(carried, task.log.partitions)):
        raise UserError(
            f"{url} has {carried.log.partitions} partitions and the task {task.name!r} now asks for "
            f"{task.log.partitions}: {why_not}. Set log.partitions back to {carried.log.partitions}, or use another "
            "log",
            code="MURK-TASK-003",
        )
    if carried.hash != task.hash:
        # Never values: a document may hold people's covariates.
        keys = ", ".join(key for key in differences(standing, offered) if not key.startswith("log."))
        raise UserError(
            f"{url} already carries the task {carried.name!r}, from which the given task {task.name!r} differs in: "
            f"{keys}. The task of a log cannot be changed: use another log, or undo the changes",
            code="MURK-TASK-003",
        )
    return task


def _why_not_grown(task: Task, partitions: int) -> str:
    """Return why a log of a task cannot have this number of partitions; empty if it can."""
    if partitions == task.log.partitions:
        return ""
    if partitions < task.log.partitions:
        return "what the learners of the last ones have learned would be lost"
    if task.shuffle is not None:
        return "its shuffler has a number of its own in its store"
    if task.forget is not None:
        return "the number decides which releases are forgotten"
    return PROTOCOLS[task.protocol].why_not_grown(task.block)


_MOST_NAMED: Final = 8


@dataclass(frozen=True)
class Disclosure:
    """The features of some people, without the target, that everybody can read in a task's document."""

    features: tuple[str, ...]
    target: str
    people: int
    file: str | None  # file of public records; None if people were set aside from the task's source
    # Shown only to the person who is asked to agree, since it may depend on people's records.
    caution: str = field(default="", repr=False, compare=False)

    @classmethod
    def of(cls, task: Task) -> Disclosure | None:
        """Return what a resolved task makes public, or None."""
        if task.public is None or task.covariates is None:
            return None
        return cls(task.coding.columns, task.target.name, int(task.covariates.counts.sum()), task.public.file)

    def what(self) -> str:
        """Return the first words of a sentence: the features and the number of people.

        >>> Disclosure(("age", "same_sex"), "third_child", 1000, None).what()
        'The features age, same_sex (without the target third_child) of 1,000 people'
        """
        more = len(self.features) - _MOST_NAMED
        names = ", ".join(self.features[:_MOST_NAMED]) + (f" and {more:,} more" if more > 0 else "")
        noun = "feature" if len(self.features) == 1 else "features"
        return f"The {noun} {names} (without the target {self.target}) of {self.people:,} people"

    def describe(self) -> str:
        """Describe what is public."""
        if self.file is None:
            whose = "These people were set aside at random, and release nothing else."
        else:
            whose = f"They are from the file of public records {self.file}."
        return f"{self.what()} are public with this task, as they are and under no guarantee. {whose}"

    def announce(self, url: str, source: str | None = None) -> str:
        """Describe what is about to become public, and on which log; people are set aside from ``source``."""
        if self.file is None:
            whose = f"They are drawn at random from {source}, and these people release nothing else."
        else:
            whose = f"They are all people in {self.file}: nobody among them may release to this task."
        return (
            f"{self.what()} become public: they are written to {url} as they are, without noise and under no "
            f"guarantee, for everybody who reads it, and cannot be taken back. {whose}"
            + (f" CAUTION: {self.caution}." if self.caution else "")
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the disclosure as plain data, with its description."""
        data = {**asdict(self), "features": list(self.features), "words": self.describe()}
        del data["caution"]
        return data
