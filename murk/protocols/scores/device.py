"""The score device of a task, shared by devices and learners. Does not import River, since devices import it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from murk._internal.arrays import Floats, Integers
from murk._internal.jit import worth_compiling
from murk.errors import UserError
from murk.privacy.guarantees import Guarantee
from murk.privacy.mechanisms import calibrate
from murk.privacy.mechanisms.base import Randomizer, direction_spread
from murk.privacy.mechanisms.outer_product import matrix_size
from murk.privacy.noise import NoiseSource, Purpose
from murk.protocols.scores.mechanisms import LevelMechanisms, ScoreMechanisms, score_mechanisms
from murk.protocols.scores.model import QUERIES, CoverageQuery, Model, Query, above, drawn_queries, query_at, vectors
from murk.protocols.scores.settings import FIRST, REMEMBERED, WINDOW_ROUNDS, Settings
from murk.protocols.scores.survey.coordinates import STATED_ERROR, THRESHOLDS, UNTOLD, Coordinates
from murk.protocols.scores.survey.rounds import Survey
from murk.protocols.windows import windows_of
from murk.stream.wire.codec import MAX_MESSAGE, MAX_STATE, history_bytes, longest_release
from murk.task.features import ClassTarget, RealTarget, stated_location
from murk.task.privacy import DEFAULT_LEVEL
from murk.task.task import Task

if TYPE_CHECKING:
    from murk.inference.drift import Drift
    from murk.protocols.mean_functions import CodedCurve
    from murk.protocols.scores.engine import ScoreEngine
    from murk.protocols.scores.estimate import ScoreEstimate
    from murk.protocols.scores.fast_records import AnswerKernel
    from murk.task.task import Task

_ERROR_CODE = "MURK-LEARN-001"

# Bytes of a float in a model message, of a float of a state in base64, and of a sum of a state with its comma.
_MODEL_NUMBER, _STATE_NUMBER, _STATE_SUM = 26, 11, 24
_SURVEY_SUM = 12  # bytes of a count or a sum of answers to a survey's query, which are smaller than other sums
_MANY_NUMBERS = 5_000  # longest gradient for which a learner's state has room for the default number of iterates


@dataclass(frozen=True)
class ScoreDevice:
    """The queries of a task of scores, their bounds and mechanisms."""

    settings: Settings  # the public settings
    mechanisms: LevelMechanisms  # level name to the two mechanisms of that level
    kind: ClassVar[str] = "score"
    averages: ClassVar[bool] = True
    _last: list[tuple[Floats, Model] | None] = field(
        default_factory=lambda: [None], init=False, repr=False, compare=False
    )

    @property
    def interactive(self) -> bool:
        """Whether devices need the newest model; otherwise all answer at the model of version 0."""
        return not self.settings.once

    @property
    def dimension(self) -> int:
        """Length of a score."""
        return self.settings.dimension

    @property
    def lengths(self) -> tuple[int, ...]:
        """Lengths of the payloads of all queries."""
        return self.settings.lengths

    @property
    def model_size(self) -> int:
        """Length of a published model."""
        return self.settings.model_size

    @property
    def shares_models(self) -> bool:
        """Whether people of all partitions answer at the first partition's models."""
        return self.settings.shared

    @cached_property
    def initial(self) -> Floats:
        """The model of version 0."""
        flat = self.settings.first_model(self.mechanisms).flat
        flat.setflags(write=False)
        return flat

    @property
    def queries(self) -> tuple[Query, ...]:
        """The queries asked; of a survey's queries, which are all alike, only the first one."""
        names = QUERIES if self.settings.matrices else ("score",)
        if self.settings.once and self.settings.matrices and not (self.settings.labels and not self.settings.rows):
            # Public covariates show the scatter, so that nobody is asked for it.
            names = "score", "curvature"
        covered = ("covered",) if self.settings.wanted is not None else ()
        return (*names, *covered, *([above(0)] if self.settings.survey is not None else []))

    def is_published(self, version: int) -> bool:
        """Return whether a round begins at a version."""
        return version == self.settings.round_start(version)

    def next_published(self, version: int) -> int:
        """Return the version at which the current round ends."""
        return self.settings.round_end(version)

    def block(self, releases: int) -> int:
        """Return the largest number of releases to make at the newest model of a single partition."""
        return self.settings.round_end(releases) - releases

    def check_model(self, theta: Floats) -> None:
        """Raise HostileModelError for a model that no honest learner publishes, before any record is read."""
        self.settings.checked(theta)

    def check_state(self) -> None:
        """Raise UserError, naming a protocol that fits, if messages or a learner's state are too large for a log."""
        check_size(self.settings, len(self.mechanisms))

    # What a device does

    def averages_answers(self, query: Query) -> bool:
        """Return whether a person with several records releases a mean: of vectors or matrices, not of yes or no."""
        return query in QUERIES

    def draw_query(self, noise: NoiseSource, indices: Integers, model: Floats) -> list[Query]:
        """Draw each person's query by the model's shares, independently of any record."""
        words = noise.words(indices, 1, Purpose.QUERY)[:, 0]
        published = self._model(model)
        if len(words) > 1 or published.survey:
            return [query_at(index) for index in drawn_queries(words, published).tolist()]
        word, (scatter, matrix, covered) = int(words[0]), published.thresholds
        if word < matrix:
            return ["scatter" if word < scatter else "curvature"]
        return ["covered" if word < covered else "score"]

    def vectors(self, X: Floats, y: Floats, theta: Floats | None = None, query: Query = "score") -> Floats:
        """Return the mechanism's inputs for coded records, (m, p); see `murk.protocols.scores.model.vectors`."""
        model = self._model(self.initial if theta is None else theta)
        # An overflow caused by a hostile model gives zeros for any record.
        return vectors(X, y, model, self.settings.response, query, self.settings.coverage)

    def _model(self, flat: Floats) -> Model:
        """Return the model with the numbers ``flat``, kept for the next call if these are read-only."""
        if self.settings.once:
            flat = self.initial
        (last,) = self._last
        if last is not None and last[0] is flat:
            return last[1]
        model = Model.of(flat, self.settings.features, sets=self.settings.wanted is not None)
        if not flat.flags.writeable and flat.flags.owndata:
            self._last[0] = flat, model
        return model

    def record_kernel(self, level: str, theta: Floats, seed: int | None) -> AnswerKernel | None:
        """Return a compiled path from single records to answers; None if impossible or not yet worth compiling."""
        # Loaded on demand: most devices release a record or two.
        from murk.protocols.scores.fast_records import AnswerKernel, learn_record, record_kernel

        pair, model = self.mechanisms[level], self._model(theta)
        if self.settings.weighed or not record_kernel(pair, model) or (pair.matrix is None and model.thresholds[1]):
            return None
        return (
            AnswerKernel(model, pair, self.settings, seed)
            if worth_compiling(learn_record, self.settings.dimension)
            else None
        )

    def mechanism(self, level: str, query: Query) -> Randomizer:
        """Return the mechanism that randomizes answers to a query, at a privacy level."""
        return self.mechanisms[level].mechanism(query)

    # What a learner does

    def engine(self) -> ScoreEngine:
        """Return a learner for this task's releases, at version 0."""
        # Imported here, as devices do not need it.
        from murk.protocols.scores.engine import ScoreEngine, SharedScoreEngine

        kind = SharedScoreEngine if self.settings.shared else ScoreEngine
        return kind(self.settings, self.mechanisms)

    def estimate(self, engines: Sequence[ScoreEngine]) -> ScoreEstimate:
        """Return the joint estimate of all partitions' learners."""
        from murk.protocols.scores.engine import merged

        return merged(engines)

    def windows(self, engines: Sequence[ScoreEngine], reach: int = 0) -> dict[int, ScoreEstimate]:
        """Return the joint estimate of each kept window, with ``reach`` neighbours to either side, by number."""
        from murk.protocols.scores.engine import estimates_by_window

        return estimates_by_window(self.settings, [(engine.now, engine.mechanisms) for engine in engines], reach)

    def drift(self, engines: Sequence[ScoreEngine]) -> Drift:
        """Return whether the coefficients have changed between rounds."""
        from murk.protocols.scores.engine import drift_of

        return drift_of(self.settings, [(engine.now, engine.mechanisms) for engine in engines])


def check_size(settings: Settings, levels: int) -> None:
    """Raise UserError, naming a protocol that fits, for too many features for messages or a learner's state."""
    p, lengths = settings.features, settings.lengths
    size = settings.model_size
    release = longest_release(ScoreDevice.kind, max(lengths))
    model = 0 if settings.once else 512 + _MODEL_NUMBER * size
    sums = levels * (settings.dimension + 2 * sum(lengths[1:]))
    history = history_bytes(len(settings.reported))
    # A survey's rounds are among the remembered ones, so that fewer rounds have sums of scores and matrices.
    survey_rounds = 0 if settings.survey is None else len(settings.survey.starts) - 1
    others = max(1 if settings.once else REMEMBERED, survey_rounds) - survey_rounds
    surveyed = _SURVEY_SUM * 2 * levels * (p + 1) * max(map(len, THRESHOLDS))
    sums *= _STATE_SUM
    tracked = 0 if settings.windows is None else settings.windows.kept * WINDOW_ROUNDS
    rounds = _STATE_NUMBER * size * (survey_rounds + others) + survey_rounds * max(surveyed, sums) + others * sums
    rounds += tracked * (_STATE_NUMBER * size + sums)
    state = rounds + history + 4096
    if max(release, model) > MAX_MESSAGE or state > MAX_STATE:
        instead = "" if settings.dimension <= _MANY_NUMBERS else " with max_staleness: {releases: 20}"
        if instead and not settings.labels:
            instead += ", or examples"
        # Sums are kept for each level, as their noise and lattices differ.
        at_levels, fewer = (f" at each of {levels} levels", ", a narrower grid of levels") if levels > 17 else ("", "")
        fewer += ", fewer `track.windows`" if tracked else ""
        raise UserError(
            f"{p:,} coded features (the constant is one, and so is each category but the first) have "
            f"{matrix_size(p):,} second moments{at_levels}: a learner's state would take up to {state / 2**20:.1f} MB, "
            f"and a log accepts {MAX_STATE / 2**20:g} MB. Give the task fewer features{fewer}, or protocol: "
            f"gradients{instead}"
        )


def survey_of(kind: str | None, guarantee: Guarantee, dimension: int, numbers: Sequence[bool], **more: Any) -> Survey:
    """Return a survey with the kind of mechanism that scores of this dimension have; see `Survey.of`."""
    score = calibrate(kind, guarantee, dimension=dimension, radius=1.0)
    bit = calibrate(score.kind, guarantee, dimension=1, radius=1.0)
    return Survey.of(numbers, direction_spread(bit)[0], **more)


def level_mechanisms(task: Task, settings: Settings) -> LevelMechanisms:
    """Return a task's mechanisms by level; raise UserError if one cannot provide its level's guarantee."""

    def mechanisms(guarantee: Guarantee) -> ScoreMechanisms:
        kind, sizes = task.privacy.kind_for(guarantee), (settings.features, settings.contrasts)
        return score_mechanisms(kind, guarantee, *sizes, matrices=settings.matrices, bits=settings.bits)

    return task.privacy.by_level(mechanisms)


def device_for(task: Task) -> ScoreDevice:
    """Return a resolved task's device; raise UserError if guarantee, mechanism, size or covariates do not fit."""
    block, coding = task.block, task.coding
    assert block is not None
    labels = tuple(task.target.classes) if isinstance(task.target, ClassTarget) else ()
    shared = block.models == "shared"
    # `forget` is a number of releases for each partition, but shared rounds count the releases of all partitions.
    forget = task.forget if task.forget is None or not shared else task.forget * task.log.partitions
    first = FIRST if task.shuffle is None else max(FIRST, task.shuffle.crowd)
    asked = task.predictions
    wanted = None if asked is None else CoverageQuery(asked.coverage, asked.share)
    covariates = None
    if task.covariates is not None:
        from murk.protocols.rows import public_rows

        covariates = public_rows(task)
    facts = coding.names, task.target.kind == "binary", covariates, block.exponent, labels
    if block.interactive:
        line, survey = block.effects == "linear", _survey(task, len(labels))
        settings = Settings(
            *facts,
            forget=forget,
            shared=shared,
            line=line,
            first=first,
            wanted=wanted,
            survey=survey,
            windows=windows_of(task),
            repeats=1 if wanted is None else task.repeats.most,
            weighed=task.most_rows > 1,
        )
    else:
        weighed = task.most_rows > 1
        settings = Settings(*facts, once=True, curve=_curve_of(task), coordinates=_stated(task), weighed=weighed)
        if labels and not settings.matrices:
            raise UserError(
                f"scores of several classes with interactive: false need few features, and the task {task.name!r} has "
                f"{coding.size} coded ones, whose second moments are too noisy: give the task fewer features, or "
                "protocol: gradients"
            )
    # Checked before mechanisms are calibrated, which may be impossible at this size.
    check_size(settings, len(task.privacy.levels))
    return ScoreDevice(settings, level_mechanisms(task, settings))


def _curve_of(task: Task) -> CodedCurve | None:
    """Return the mean function of a task without rounds; None for the logistic one and the line."""
    if isinstance(task.target, ClassTarget):
        return None
    # Imported here, as devices that read models do not need it.
    from murk.protocols.mean_functions import coded_curve, curve_for, response_range_of

    curve = curve_for(task.block, task.target.kind == "binary")
    return coded_curve(curve, response_range_of(task.target, curve))


def _stated(task: Task) -> Coordinates | None:
    """Return the coordinates that a task without public covariates states; None if it states none."""
    coding = task.coding
    found = None if task.covariates is not None else coding.stated_coordinates
    if found is None:
        return None
    centres, spreads = map(np.array, found)
    # Nothing is known of a number without a stated range; the spread of a category is a convention, without error.
    doubts = [
        (STATED_ERROR, STATED_ERROR) if at else (1.0, UNTOLD if number else 0.0)
        for at, number in zip(coding.stated, coding.numbers, strict=True)
    ]
    centre_error, log_spread_error = np.array(doubts).T
    return Coordinates(centres, spreads, centre_error * spreads, log_spread_error)


def _survey(task: Task, classes: int) -> Survey | None:
    """Return a task's survey; None with public covariates, which show features' spreads, or without features."""
    if task.covariates is not None or not task.features:
        return None
    privacy, coding = task.privacy, task.coding
    guarantee = privacy.levels[DEFAULT_LEVEL]
    separate = task.log.partitions if task.block.models == "per-partition" else 1
    # The target is surveyed only if its unit may change: partitions in different units could not be joined, and
    # prediction sets need the public unit.
    own = task.target if isinstance(task.target, RealTarget) and separate == 1 and task.predictions is None else None
    numbers = (*coding.numbers, *([] if own is None else [True]))
    stated = coding.stated
    if own is not None:
        stated.append(None if own.typical is None else stated_location(own))
    return survey_of(
        privacy.kind_for(guarantee),
        guarantee,
        max(classes - 1, 1) * coding.size,
        numbers,
        stated=stated,
        target=own is not None,
        crowd=1 if task.shuffle is None else task.shuffle.crowd,
        people=None if task.people is None else task.people // separate,
    )
