"""Engines of scores on one partition: exact sums by round, and a new model at each round's end. Without River."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from operator import attrgetter
from typing import Any, Final, Self

import numpy as np

from murk._internal.arrays import Integers
from murk._internal.locks import ForkSafeLock, locked
from murk.errors import MurkError
from murk.inference.drift import SMALLEST_SHARE, Comparison, Drift, compare, concluded
from murk.inference.target_range import TargetRange
from murk.protocols.device import loaded_state_arithmetic
from murk.protocols.scores.admission import ScoreRules, SharedScoreRules, check_settings, rounds_of
from murk.protocols.scores.estimate import Forgery, Outlook, ScoreEstimate, estimate_of
from murk.protocols.scores.mechanisms import LevelMechanisms
from murk.protocols.scores.model import ABOVE, QUERIES, Model, Query, above
from murk.protocols.scores.next_model import following
from murk.protocols.scores.next_model import sets as sets_of
from murk.protocols.scores.settings import NEVER, REMEMBERED, WINDOW_ROUNDS, Settings
from murk.protocols.scores.solutions import solution as solution_from
from murk.protocols.scores.sums import Round, Summary, Tally, summaries
from murk.protocols.scores.survey.coordinates import Coordinates, pooled
from murk.protocols.windows import neighbours, read_windows
from murk.stream.wire.columns import columns_of
from murk.stream.wire.releases import ScoreRelease
from murk.stream.wire.state import count_of, pack, unpack
from murk.stream.worker.interface import AdmittingLearner

_ERROR_CODE = "MURK-LEARN-001"

Answered = tuple[int, str, Query]  # an answer's version, level and query
_ANSWERED = "version", "level", "query", "item"

BLOCK = 4096  # largest number of releases learned at once, so that the sum of their payloads fits into 64 bits


@dataclass(frozen=True)
class PartitionState:
    """The state of a partition; immutable, so that readers see a consistent one."""

    count: int  # number of releases
    rounds: tuple[Round, ...]  # the remembered rounds, oldest first
    coordinates: Coordinates | None = None  # centres and spreads by the survey; None before its end, or without one
    shown: PartitionState | None = None  # the earlier state that predictions use, if any
    windows: Mapping[int, tuple[Round, ...]] = field(default_factory=dict)  # by window, the rounds of its answers


Learned = tuple[PartitionState, LevelMechanisms]  # a partition and its levels' mechanisms


class ScoreEngine(AdmittingLearner):
    """Sums of released scores and matrices on one partition, and their estimate. Threads take turns."""

    kind = "score"

    def __init__(self, settings: Settings, mechanisms: LevelMechanisms) -> None:
        self.settings = settings
        self.dimension = settings.dimension  # length of a score
        self.mechanisms = mechanisms
        self._turns = ForkSafeLock()
        self.now = PartitionState(0, (Round(0, settings.first_model(mechanisms)),))
        self._rules = ScoreRules(settings, mechanisms, {})

    # What was learned

    @property
    def n_releases(self) -> int:
        """Number of learned releases."""
        return self.now.count

    @property
    def coefficients(self) -> int:
        """Number of reported coefficients."""
        return len(self.settings.reported)

    @property
    def model(self) -> Model:
        """The newest round's model."""
        return self.now.rounds[-1].model

    def estimate(self) -> ScoreEstimate:
        """Return the estimate in coded units, with intervals."""
        return merged([self])

    def figures(self) -> dict[str, float]:
        """Return an empty mapping: there are no figures beyond the estimate."""
        return {}

    # Releases

    @property
    def admission(self) -> ScoreRules:
        """The rules by which releases are admitted, with the models that people may have answered at."""
        self._rules.models = _models(self.now)
        return self._rules

    @locked
    def learn_releases(self, releases: Sequence[ScoreRelease]) -> None:
        """Learn from admitted releases; raise MurkError if a release's round is not remembered."""
        if not releases:
            return
        columns, done = columns_of(releases), 0
        while done < len(releases):
            stop = min(len(releases), done + self._until_next_model())
            part = columns.part(done, stop)
            answers = part.split(*_ANSWERED)
            dated = {} if self.settings.windows is None else part.split("time", *_ANSWERED)
            self._add(
                {(*key, above(item) if name == ABOVE else name): rows for (*key, name, item), rows in answers.items()},
                {(time, version, level, name): rows for (time, version, level, name, _), rows in dated.items()},
            )
            done = stop

    @locked
    def learn_payloads(self, answers: Mapping[tuple[str, Query], Integers]) -> None:
        """Learn payloads (m, d) made at the newest model, by level and query; raise MurkError if the round is full."""
        self._check_room(sum(map(len, answers.values())))
        start = self._newest
        self._add({(start, level, query): payloads for (level, query), payloads in answers.items()})

    @locked
    def learn_sums(self, sums: Mapping[tuple[str, Query], Tally]) -> None:
        """Learn sums of answers made at the newest model, by level and query; raise MurkError if the round is full."""
        now, start = self.now, self._newest
        learned = self._check_room(sum(tally.count for tally in sums.values()))
        rounds = {round_.start: round_ for round_ in now.rounds}
        newest = rounds.get(start) or self._unseen(start)
        for (level, query), tally in sums.items():
            newest = newest.joined(level, query, tally)
        self.now = self._advanced(now, now.count + learned, tuple({**rounds, start: newest}.values()))

    def _check_room(self, answers: int) -> int:
        left = self._left()
        if answers > left:
            raise MurkError(f"{answers} answers, but the round takes only {left} more")
        return answers

    @property
    def _newest(self) -> int:
        return self.now.rounds[-1].start

    def _left(self) -> int:
        count = self.now.count
        return self.settings.round_end(count) - count

    def _until_next_model(self) -> int:
        """Return the largest number of releases to learn before the next model or block."""
        return min(BLOCK, self._left())

    def _add(
        self, answers: Mapping[Answered, Integers], dated: Mapping[tuple[int, int, str, str], Integers] | None = None
    ) -> None:
        """Add payloads, at most until the round's end, and ``dated`` ones to windows: all or, on an interrupt, none."""
        now = self.now
        rounds, learned = {round_.start: round_ for round_ in now.rounds}, 0
        for (version, level, query), payloads in answers.items():
            if version not in rounds:
                rounds[version] = self._unseen(version)
            for start in range(0, len(payloads), BLOCK):
                part = payloads[start : start + BLOCK]
                rounds[version] = rounds[version].plus(level, query, self.mechanisms[level], part)
            learned += len(payloads)
        windows = self._dated(now.windows, rounds, dated or {})
        self.now = replace(self._advanced(now, now.count + learned, tuple(rounds.values())), windows=windows)

    def _dated(
        self,
        windows: Mapping[int, tuple[Round, ...]],
        rounds: Mapping[int, Round],
        dated: Mapping[tuple[int, int, str, str], Integers],
    ) -> Mapping[int, tuple[Round, ...]]:
        """Return the windows' rounds with the ``dated`` answers added, whose keys are time, version, level, query."""
        kept = self.settings.windows
        if kept is None or not dated:
            return windows
        changed = dict(windows)
        for (time, version, level, query), payloads in dated.items():
            if query not in QUERIES:
                continue
            number = kept.number(time)
            answered = {round_.start: round_ for round_ in changed.get(number, ())}
            begun = answered.get(version, Round(version, rounds[version].model))
            answered[version] = begun.plus(level, query, self.mechanisms[level], payloads)
            changed[number] = tuple(answered[start] for start in sorted(answered)[-WINDOW_ROUNDS:])
        return kept.newest(changed)

    def _unseen(self, version: int) -> Round:
        """Return an empty round for a version without answers so far; raise MurkError if its model is not known."""
        raise MurkError(f"the round of version {version} is not remembered")

    def _advanced(self, before: PartitionState, count: int, rounds: tuple[Round, ...]) -> PartitionState:
        """Return the partition, with a new round if the last one has ended."""
        coordinates = before.coordinates
        if count == self.settings.round_end(rounds[-1].start):
            model, coordinates = following(self.settings, rounds, count, coordinates, self.mechanisms)
            rounds = (*rounds, Round(count, model))[-REMEMBERED:]
        return replace(before, count=count, rounds=rounds, coordinates=coordinates, shown=None)

    # Parts of a partition

    @property
    def joins(self) -> bool:
        """Whether learners of parts of a partition can be joined: true if no models are made of its releases."""
        return self.settings.once

    @locked
    def join(self, later: ScoreEngine) -> None:
        """Add the sums of another learner, whose people answered at the same models."""
        now, then = self.now, later.now
        windows = {
            number: _joined((*now.windows.get(number, ()), *then.windows.get(number, ())))
            for number in {*now.windows, *then.windows}
        }
        kept = self.settings.windows
        newest = windows if kept is None else kept.newest(windows)
        rounds = _joined((*now.rounds, *then.rounds))
        self.now = replace(now, count=now.count + then.count, rounds=rounds, windows=newest, shown=None)

    # What devices and logs need

    def published(self) -> tuple[int, list[float]] | None:
        """Return the newest round's first version and its model, or None where nobody reads models."""
        if self.settings.once:
            return None
        newest = self.now.rounds[-1]
        return newest.start, newest.model.flat.tolist()

    @property
    def publish_every(self) -> int:
        """Largest number of releases to learn before a new model must be published."""
        if self.settings.once:
            return NEVER
        count, rounds = self.now.count, self.now.rounds
        # Rounds of a survey may be shorter, even the last one before the newest model.
        before = rounds[-1].start - rounds[-2].start if len(rounds) > 1 else NEVER
        return min(256, self.settings.round_end(count) - count, before)

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state as plain JSON data."""
        return {"schema": 1, "settings": self.settings.digest, **partition_state(self.now)}

    @locked
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state; raise MurkError if it belongs to other settings, or is damaged."""
        check_settings(state, self.settings)
        self.now = self._read(state)

    def _read(self, state: Mapping[str, Any]) -> PartitionState:
        """Read the partition that `partition_state` wrote."""
        count, states = count_of(state.get("n_releases"), "n_releases"), rounds_of(state)
        sizes, sets = (self.settings.features, self.settings.contrasts), self.settings.wanted is not None
        rounds = tuple(Round.of_state(of_round, *sizes, self.mechanisms, sets=sets) for of_round in states)
        starts = tuple(round_.start for round_ in rounds)
        if not self._may_begin(starts, count):
            raise MurkError(
                f"the state's rounds begin at {list(starts)}, unlike those of a partition of {count} releases"
            )
        windows = {
            number: self._read_window(each, sizes)
            for number, each in read_windows(state.get("windows"), self.settings.windows).items()
        }
        return PartitionState(count, rounds, self._read_coordinates(state.get("coordinates")), windows=windows)

    def _read_window(self, states: Any, sizes: tuple[int, int]) -> tuple[Round, ...]:
        if not isinstance(states, list) or not 0 < len(states) <= WINDOW_ROUNDS:
            raise MurkError("the state's windows hold no rounds, or too many")
        sets = self.settings.wanted is not None
        rounds = tuple(Round.of_state(each, *sizes, self.mechanisms, sets=sets) for each in states)
        starts = [round_.start for round_ in rounds]
        if starts != sorted(set(starts)):
            raise MurkError("the rounds of the state's windows are not in order")
        return rounds

    def _read_coordinates(self, state: Any) -> Coordinates | None:
        if state is None:
            return None
        try:
            centre, spread, *errors = (unpack(state[name], self.settings.features - 1) for name in _COORDINATES)
            middle, width = unpack(state["target"], 2).tolist()
            share, most = unpack(state["beyond"], 2).tolist()
        except (KeyError, TypeError) as error:
            raise MurkError(f"the state's coordinates are malformed ({type(error).__name__})") from error
        finite = np.isfinite([middle, width]).all() and np.isfinite([centre, spread, *errors]).all()
        if not (finite and (spread > 0.0).all() and width > 0.0 and 0.0 <= share <= 1.0 and 0.0 <= most <= 1.0):
            raise MurkError(
                "the state's coordinates are not finite, a spread is not positive, or a share not in [0, 1]"
            )
        return Coordinates(centre, spread, errors[0], errors[1], (middle, width), (share, most))

    def _may_begin(self, starts: tuple[int, ...], count: int) -> bool:
        """Return whether a partition of ``count`` releases may remember rounds with these starts."""
        return starts == self.settings.remembered(count)


def partition_state(partition: PartitionState) -> dict[str, Any]:
    """Return a partition as plain JSON data."""
    state: dict[str, Any] = {
        "n_releases": partition.count,
        "rounds": [round_.to_state() for round_ in partition.rounds],
    }
    if partition.windows:
        dated = partition.windows.items()
        state["windows"] = [[number, [round_.to_state() for round_ in rounds]] for number, rounds in dated]
    coordinates = partition.coordinates
    if coordinates is not None:
        numbers = {name: pack(getattr(coordinates, name)) for name in _COORDINATES}
        pairs = {name: pack(np.array(getattr(coordinates, name))) for name in ("target", "beyond")}
        state["coordinates"] = {**numbers, **pairs}
    return state


_COORDINATES: Final = "centre", "spread", "centre_error", "log_spread_error"


def merged(engines: Sequence[ScoreEngine]) -> ScoreEstimate:
    """Return the estimate of several partitions, solving all their rounds' equations together."""
    return merged_of(engines[0].settings, [(engine.now, engine.mechanisms) for engine in engines])


def merged_of(settings: Settings, known: Sequence[Learned]) -> ScoreEstimate:
    """Return the estimate of several partitions, given with their levels' mechanisms."""
    partitions = equations(settings, known)
    settings = settings.at(pooled([partition.coordinates for partition, _ in partitions]))
    answers = _answers(settings, partitions)
    solution, outlook, forgery = None, None, None
    if answers:
        solution = solution_from(settings, answers)
        mechanisms = partitions[0][1]
        if any(levels is not mechanisms for _, levels in partitions):
            mechanisms = {level: pair for _, levels in partitions for level, pair in levels.items()}
        forgery = Forgery.of([round_ for partition, _ in partitions for round_ in partition.rounds], mechanisms)
        outlook = Outlook(settings, solution, answers, mechanisms, _level_counts(partitions))
    count = sum(partition.count for partition, _ in partitions)
    # Partitions with models of their own have surveys of their own.
    surveying = count > 0 and all(partition.coordinates is None for partition, _ in partitions)
    survey = len(partitions) * settings.survey.end if settings.survey is not None and surveying else 0
    estimate = estimate_of(settings.reported, outlook, len(known), count, survey)
    kept = None if settings.forget is None else sum(_level_counts(partitions).values())
    influence = None if forgery is None else forgery.influence
    sets = None
    # Learners with models of their own have prediction sets of their own, which cannot be merged.
    if settings.wanted is not None and len(partitions) == 1:
        rounds = partitions[0][0].rounds
        tallies = [tally for round_ in rounds for (_, query), tally in round_.tallies.items() if query == "covered"]
        sets = sets_of(settings, solution, answers, rounds[-1].model, sum(tally.count for tally in tallies))
    middle, width = (0.0, 1.0) if settings.coordinates is None else settings.coordinates.target
    estimate = replace(estimate, influence=influence, forgery=forgery, kept=kept, sets=sets)
    if (coordinates := settings.coordinates) is not None and coordinates.target != (0.0, 1.0):
        estimate = replace(estimate, share_cut=coordinates.beyond)
    return replace(TargetRange(-math.inf, math.inf, middle, width).in_units(estimate), unit=width)


def estimates_by_window(settings: Settings, known: Sequence[Learned], reach: int) -> dict[int, ScoreEstimate]:
    """Return the estimate of each window with ``reach`` neighbours to either side, in the stream's coordinates."""
    plain = replace(settings, wanted=None)
    pools = neighbours([number for partition, _ in known for number in partition.windows], reach)
    # Partitions that share models count as one, even if the first partition has no answers at a model.
    groups = [known] if settings.shared else [[each] for each in known]
    estimates = {}
    for number, pool in pools.items():
        answered = [(_answered([partition for partition, _ in group], pool), group[0][1]) for group in groups]
        estimates[number] = merged_of(plain, answered)
    return estimates


def _answered(partitions: Sequence[PartitionState], pool: Sequence[int]) -> PartitionState:
    """Return a partition that has learned only the answers that ``partitions`` have in the windows ``pool``."""
    rounds = _joined(each for partition in partitions for number in pool for each in partition.windows.get(number, ()))
    answers = sum(tally.count for round_ in rounds for tally in round_.tallies.values())
    return PartitionState(answers, rounds, partitions[0].coordinates)


def _joined(rounds: Iterable[Round]) -> tuple[Round, ...]:
    """Add up the sums of rounds with the same start; return them in order."""
    joined: dict[int, Round] = {}
    for round_ in rounds:
        before = joined.get(round_.start, Round(round_.start, round_.model))
        for (level, query), tally in round_.tallies.items():
            before = before.joined(level, query, tally)
        joined[round_.start] = before
    return tuple(joined[start] for start in sorted(joined))


def equations(settings: Settings, partitions: Sequence[Learned]) -> Sequence[Learned]:
    """Return the partitions whose sums are separate equations: a single joined one where partitions share models."""
    if not settings.shared or not partitions:
        return partitions
    return [(joined([partition for partition, _ in partitions]), partitions[0][1])]


def joined(partitions: Sequence[PartitionState]) -> PartitionState:
    """Add up the sums of partitions that share models, in the rounds of the first partition, which makes the models."""
    starts = {round_.start for round_ in partitions[0].rounds}
    rounds = _joined(round_ for partition in partitions for round_ in partition.rounds if round_.start in starts)
    return PartitionState(sum(partition.count for partition in partitions), rounds, partitions[0].coordinates)


def _answers(settings: Settings, partitions: Sequence[Learned]) -> list[Summary]:
    return [
        each
        for partition, mechanisms in partitions
        for each in summaries(partition.rounds, mechanisms, settings.features)
    ]


def _level_counts(partitions: Sequence[Learned]) -> dict[str, int]:
    """Return the number of remembered releases by level."""
    counts: Counter[str] = Counter()
    for partition, _ in partitions:
        for round_ in partition.rounds:
            for (level, _), tally in round_.tallies.items():
                counts[level] += tally.count
    return dict(sorted(counts.items()))


class SharedScoreEngine(ScoreEngine):
    """A partition of scores whose people answer at models that all partitions share.

    When all partitions together reach a round's start, the first partition's learner makes a model from the sums of
    all. It writes the model and its own state together, before anybody can read the model, so that a crash never leads
    to two models of one version. The other partitions receive the model.
    """

    def __init__(self, settings: Settings, mechanisms: LevelMechanisms) -> None:
        super().__init__(settings, mechanisms)
        self._rules: SharedScoreRules = SharedScoreRules(settings, mechanisms, _models(self.now))

    @property
    def admission(self) -> SharedScoreRules:
        """The rules by which releases are admitted, with all known models."""
        return self._rules

    @property
    def model(self) -> Model:
        """The newest known model."""
        return self._rules.models[self._newest]

    @property
    def publish_every(self) -> int:
        """`NEVER`: models are published with commits alone, as an uncommitted one might be made a second time."""
        return NEVER

    def another(self) -> Self:
        """Return a learner of the same task that has learned nothing."""
        return type(self)(self.settings, self.mechanisms)

    # Models

    @locked
    def begin_round(self, others: Sequence[ScoreEngine]) -> Self | None:
        """Make the next model, if due, from what this (the first) partition and all others have learned.

        Returns a learner of the joined partitions, or None if no model was due; raises MurkError if sums give no model.
        """
        whole = joined([self.now, *(other.now for other in others)])
        start = self.settings.round_start(whole.count)
        # If nobody answered at the remembered models, there are no sums to make the next one from.
        if start <= self._newest or not any(round_.tallies for round_ in whole.rounds):
            return None
        with loaded_state_arithmetic():
            model, coordinates = following(self.settings, whole.rounds, start, whole.coordinates, self.mechanisms)
        now = replace(self.now, coordinates=coordinates)
        self.now = self._advanced(now, now.count, (*now.rounds, Round(start, model)))
        self._rules.models = _models(self.now)
        learner = self.another()
        learner.now = whole
        return learner

    @locked
    def take_up(self, version: int, flat: Sequence[float]) -> None:
        """Continue with a published model that the restored state lacks; raise HostileModelError if it is forged."""
        if version > self._newest:
            now = self.now
            rounds = (*now.rounds, Round(version, self._rules.checked(version, flat)))
            self.now = self._advanced(now, now.count, rounds)
            self._rules.models = _models(self.now)

    @property
    def _newest(self) -> int:
        return self._rules.newest

    def _left(self) -> int:
        return NEVER

    def _until_next_model(self) -> int:
        return NEVER

    def _unseen(self, version: int) -> Round:
        if version not in self._rules.models:
            raise MurkError(f"the model of version {version} is not known")
        return Round(version, self._rules.models[version])

    def _advanced(self, before: PartitionState, count: int, rounds: tuple[Round, ...]) -> PartitionState:
        # Twice as many models as rounds: releases admitted before the newest models arrived are learned after them.
        self._rules.models = dict(sorted(self._rules.models.items())[-2 * REMEMBERED :])
        return replace(before, count=count, rounds=tuple(sorted(rounds, key=attrgetter("start")))[-REMEMBERED:])

    def _read(self, state: Mapping[str, Any]) -> PartitionState:
        partition = super()._read(state)
        self._rules.models = _models(partition)
        return partition

    # Archives

    def shared_models(self) -> dict[str, Any]:
        """Return the remembered models and the survey's coordinates, as plain data."""
        coordinates = partition_state(self.now).get("coordinates")
        models = {str(version): pack(model.flat) for version, model in _models(self.now).items()}
        return {"models": models, "coordinates": coordinates}

    def of_archive(self, shared: Mapping[str, Any]) -> ArchivedScoreEngine:
        """Return a learner of releases that were made at archived models, from `shared_models`."""
        size, sets = self.settings.model_size, self.settings.wanted is not None
        models = {
            int(version): Model.of(unpack(flat, size), self.settings.features, sets=sets)
            for version, flat in shared["models"].items()
        }
        coordinates = self._read_coordinates(shared["coordinates"])
        return ArchivedScoreEngine(self.settings, self.mechanisms, models or self._rules.models, coordinates)

    def _may_begin(self, starts: tuple[int, ...], count: int) -> bool:
        return self._rules.may_begin(starts)


class ArchivedScoreRules(SharedScoreRules):
    """Admit answers at all archived models."""

    def remembered(self) -> list[int]:
        """Return all versions."""
        return sorted(self.models)


class ArchivedScoreEngine(SharedScoreEngine):
    """A learner of archived releases, all of whose models are known; only the newest are remembered in its state."""

    joins = True

    def __init__(
        self,
        settings: Settings,
        mechanisms: LevelMechanisms,
        models: Mapping[int, Model],
        coordinates: Coordinates | None,
    ) -> None:
        super().__init__(settings, mechanisms)
        self._rules = ArchivedScoreRules(settings, mechanisms, dict(sorted(models.items())))
        self.now = PartitionState(0, (), coordinates)

    def _advanced(self, before: PartitionState, count: int, rounds: tuple[Round, ...]) -> PartitionState:
        return replace(before, count=count, rounds=tuple(sorted(rounds, key=attrgetter("start"))))

    def state_dict(self) -> dict[str, Any]:
        """Return the state of a learner that has made all these models."""
        answered = {round_.start: round_ for round_ in self.now.rounds}
        newest = [(start, self._rules.models[start]) for start in sorted(self._rules.models)[-REMEMBERED:]]
        rounds = tuple(answered.get(start, Round(start, model)) for start, model in newest)
        state = partition_state(replace(self.now, rounds=rounds))
        return {"schema": 1, "settings": self.settings.digest, **state}

    def _read(self, state: Mapping[str, Any]) -> PartitionState:
        models = self._rules.models
        partition = super()._read(state)
        self._rules.models = models
        return partition


def _models(partition: PartitionState) -> dict[int, Model]:
    return {round_.start: round_.model for round_ in partition.rounds}


def drift_of(settings: Settings, partitions: Sequence[Learned]) -> Drift:
    """Return whether later rounds contradict earlier ones (see `murk.inference.drift`).

    The rounds before each boundary of rounds are solved in the same way as all rounds. If people are unlike the public
    rows, solutions use no rows and only centred scores, so that a change of the features alone is no drift (except for
    lines of several classes). As old rounds are forgotten, a boundary is tested with up to 7 sets of rounds, for which
    the test corrects.
    """
    partitions = equations(settings, partitions)
    settings = settings.at(pooled([partition.coordinates for partition, _ in partitions]))
    releases = sum(partition.count for partition, _ in partitions)
    starts = sorted({round_.start for partition, _ in partitions for round_ in partition.rounds})
    answers = _answers(settings, partitions)
    if len(starts) < 2 or settings.once or not answers:
        return Drift(releases=releases)
    whole = solution_from(settings, answers)
    answers_counted = sum(_level_counts(partitions).values())
    comparisons: list[Comparison] = []
    for last, start in pairwise(starts):
        early = [
            (
                replace(partition, rounds=tuple(round_ for round_ in partition.rounds if round_.start <= last)),
                mechanisms,
            )
            for partition, mechanisms in partitions
        ]
        before = sum(_level_counts(early).values())
        share, answered = 1.0 - before / answers_counted, _answers(settings, early)
        # A survey's answers have no equations to solve.
        if not answered or share < SMALLEST_SHARE:
            continue
        try:
            older = whole.refit(answered)
        except (MurkError, np.linalg.LinAlgError):
            # The few rounds before the boundary may have no solution.
            continue
        change, number, since = (
            whole.values - older.values,
            settings.round_number(start),
            releases - answers_counted + before,
        )
        comparison = compare(change, older.covariance, whole.covariance, number, since, releases, share)
        comparisons += [] if comparison is None else [comparison]
    drift = concluded(settings.reported, releases, comparisons, REMEMBERED - 1)
    width = 1.0 if settings.coordinates is None else settings.coordinates.target[1]
    return replace(drift, changes={name: width * change for name, change in drift.changes.items()})
