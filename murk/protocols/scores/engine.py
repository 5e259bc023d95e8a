"""Engines of scores on one chain: exact sums by epoch, and a new model at each epoch's end. Does not import River."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import attrgetter
from typing import Any, Final, Self

import numpy as np

from murk._internal.arrays import Integers
from murk._internal.lazy import map_levels
from murk._internal.locks import ForkSafeLock, in_turn
from murk.errors import MurkError
from murk.inference.drift import SMALLEST_SHARE, Comparison, Drift, compare, concluded
from murk.inference.target_range import TargetRange
from murk.privacy.mechanisms.payload_limits import FORGED, Reach
from murk.protocols.device import HostileModelError, plausible
from murk.protocols.scores.estimate import Forgery, Outlook, ScoreEstimate, estimate_of
from murk.protocols.scores.mechanisms import LevelMechanisms, ScoreMechanisms
from murk.protocols.scores.model import ABOVE, Model, Question, above
from murk.protocols.scores.next_model import following
from murk.protocols.scores.next_model import sets as sets_of
from murk.protocols.scores.settings import NEVER, REMEMBERED, Settings
from murk.protocols.scores.solutions import solution as solution_from
from murk.protocols.scores.sums import Epoch, Summary, Tally, summaries
from murk.protocols.scores.survey.coordinates import Coordinates, pooled
from murk.stream.wire.blocks import block_of
from murk.stream.wire.codec import RejectedError
from murk.stream.wire.releases import ScoreRelease
from murk.stream.wire.state import count_of, pack, unpack

_ERROR_CODE = "MURK-LEARN-001"

Answered = tuple[int, str, Question]  # an answer's version, level and question
_ANSWERED = "version", "level", "question", "item"

BLOCK = 4096  # largest number of releases learned at once, so that the sum of their payloads fits into 64 bits


@dataclass(frozen=True)
class Chain:
    """The state of a chain; immutable, so that readers see a consistent one."""

    count: int  # number of releases
    epochs: tuple[Epoch, ...]  # the remembered epochs, oldest first
    coordinates: Coordinates | None = None  # what the survey found; None before its end, or without one
    shown: Chain | None = None  # the earlier state that predictions use, if any


Learned = tuple[Chain, LevelMechanisms]  # a chain and its levels' mechanisms


class ScoreEngine:
    """Sums of released scores and matrices on one chain, and their estimate. Threads take turns."""

    kind = "score"

    def __init__(self, settings: Settings, mechanisms: LevelMechanisms) -> None:
        self.settings = settings
        self.dimension = settings.dimension  # length of a score
        self.lengths = settings.lengths
        self.mechanisms = mechanisms
        self._turns = ForkSafeLock()
        self.now = Chain(0, (Epoch(0, settings.first_model(mechanisms)),))
        self._reach = map_levels(reaches, mechanisms)

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
        """The newest epoch's model."""
        return self.now.epochs[-1].model

    def estimate(self) -> ScoreEstimate:
        """Return the estimate in coded units, with intervals."""
        return merged([self])

    def figures(self) -> dict[str, float]:
        """Return no further figures."""
        return {}

    # Releases

    def admit(self, release: ScoreRelease, ahead: int = 0) -> None:
        """Raise RejectedError for a forged release, or one of an epoch that is not known ``ahead`` releases later."""
        self._check_version(release.version, self.now.count + ahead)
        model = self._models_known().get(release.version)
        if model is not None and not _asks(model, release.question, release.item):
            raise RejectedError("question", f"the model of version {release.version} does not ask this question")
        self.check_payload(release)

    def check_payload(self, release: ScoreRelease) -> None:
        """Raise RejectedError ("dimension" or "magnitude") for a forged release, whatever its version."""
        place = _PLACES[release.question]
        if place >= len(self.lengths):
            what = "a matrix" if place == 1 else "an answer of one number"
            raise RejectedError("dimension", f"{what}, but this task asks nobody for one")
        if len(release.payload) != self.lengths[place]:
            raise RejectedError("dimension", f"{len(release.payload)} numbers for a {release.question}")
        if not self._reach[release.level][place].holds(release.payload):
            raise RejectedError("magnitude", FORGED)

    def admits(self, releases: Sequence[ScoreRelease]) -> bool:
        """Return True only if `admit` is certain to admit all these releases in this order."""
        if not self._knows({release.version for release in releases}, len(releases)):
            return False
        models = self._models_known()
        asked = {(release.version, release.question, release.item) for release in releases}
        known = all(version not in models or _asks(models[version], name, item) for version, name, item in asked)
        return known and self.payloads_fit(releases)

    def _models_known(self) -> Mapping[int, Model]:
        """Return the known models by version."""
        return _models(self.now)

    def payloads_fit(self, releases: Sequence[ScoreRelease]) -> bool:
        """Return True only if `check_payload` is certain to pass all these releases."""
        try:
            answers = block_of(releases).split(*_ANSWERED)
        except MurkError:
            # Answers to one question have different lengths.
            return False
        lengths = {*enumerate(self.lengths)}
        return all(
            (_PLACES[asked], rows.shape[1]) in lengths and self._reach[level][_PLACES[asked]].holds_all(rows)
            for (_, level, asked, _), rows in answers.items()
        )

    def _check_version(self, version: int, count: int) -> None:
        """Refuse a release's version if a chain of ``count`` releases does not know its model."""
        if version > count:
            raise RejectedError("future", f"version {version}, but the chain has {count} releases")
        if version != self.settings.epoch_start(version):
            raise RejectedError("version", f"no epoch begins at version {version}")
        if version < self.settings.remembered(count)[0]:
            raise RejectedError("stale", f"the epoch of version {version} is forgotten after {count} releases")

    def _knows(self, versions: Set[int], releases: int) -> bool:
        """Return True only if `_check_version` is certain to pass this many releases of these versions."""
        count, start = self.now.count, self.settings.epoch_start
        # The oldest epoch may be forgotten before the last of the releases.
        oldest = self.settings.remembered(count + releases - 1)[0]
        return all(oldest <= version <= count and version == start(version) for version in versions)

    @in_turn
    def learn_releases(self, releases: Sequence[ScoreRelease]) -> None:
        """Learn from admitted releases; raise MurkError if a release's epoch is not remembered."""
        done = 0
        while done < len(releases):
            stop = min(len(releases), done + self._until_next_model())
            part = releases if stop - done == len(releases) else releases[done:stop]
            answers = block_of(part).split(*_ANSWERED)
            self._add(
                {(*key, above(item) if name == ABOVE else name): rows for (*key, name, item), rows in answers.items()}
            )
            done = stop

    @in_turn
    def learn_payloads(self, answers: Mapping[tuple[str, Question], Integers]) -> None:
        """Learn payloads (m, d) made at the newest model, by level and question; raise MurkError if too many."""
        self._check_room(sum(map(len, answers.values())))
        start = self._newest
        self._add({(start, level, question): payloads for (level, question), payloads in answers.items()})

    @in_turn
    def learn_sums(self, sums: Mapping[tuple[str, Question], Tally]) -> None:
        """Learn sums of answers made at the newest model, by level and question; raise MurkError if too many."""
        now, start = self.now, self._newest
        learned = self._check_room(sum(tally.count for tally in sums.values()))
        known = {epoch.start: epoch for epoch in now.epochs}
        newest = known.get(start) or self._unseen(start)
        for (level, question), tally in sums.items():
            newest = newest.joined(level, question, tally)
        self.now = self._advanced(now, now.count + learned, tuple({**known, start: newest}.values()))

    def _check_room(self, answers: int) -> int:
        left = self._left()
        if answers > left:
            raise MurkError(f"{answers} answers, but the epoch takes only {left} more")
        return answers

    @property
    def _newest(self) -> int:
        return self.now.epochs[-1].start

    def _left(self) -> int:
        count = self.now.count
        return self.settings.epoch_end(count) - count

    def _until_next_model(self) -> int:
        """Return the largest number of releases to learn before the next model or block."""
        return min(BLOCK, self._left())

    def _add(self, answers: Mapping[Answered, Integers]) -> None:
        """Add payloads of at most the rest of the epoch: all of them or, on an interrupt, none."""
        now = self.now
        known, learned = {epoch.start: epoch for epoch in now.epochs}, 0
        for (version, level, question), payloads in answers.items():
            if version not in known:
                known[version] = self._unseen(version)
            for start in range(0, len(payloads), BLOCK):
                part = payloads[start : start + BLOCK]
                known[version] = known[version].plus(level, question, self.mechanisms[level], part)
            learned += len(payloads)
        self.now = self._advanced(now, now.count + learned, tuple(known.values()))

    def _unseen(self, version: int) -> Epoch:
        """Return an epoch of this version without answers."""
        raise MurkError(f"the epoch of version {version} is not remembered")

    def _advanced(self, before: Chain, count: int, epochs: tuple[Epoch, ...]) -> Chain:
        """Return the chain, with a new epoch if the last one has ended."""
        coordinates = before.coordinates
        if count == self.settings.epoch_end(epochs[-1].start):
            model, coordinates = following(self.settings, epochs, count, coordinates, self.mechanisms)
            epochs = (*epochs, Epoch(count, model))[-REMEMBERED:]
        return Chain(count, epochs, coordinates)

    # What devices and logs need

    def published(self) -> tuple[int, list[float]] | None:
        """Return the newest epoch's first version and its model, or None where nobody reads models."""
        if self.settings.once:
            return None
        newest = self.now.epochs[-1]
        return newest.start, newest.model.flat.tolist()

    @property
    def publish_every(self) -> int:
        """Largest number of releases to learn before a new model must be published."""
        if self.settings.once:
            return NEVER
        count, epochs = self.now.count, self.now.epochs
        # A survey's rounds may be shorter, also the one before the newest model.
        before = epochs[-1].start - epochs[-2].start if len(epochs) > 1 else NEVER
        return min(256, self.settings.epoch_end(count) - count, before)

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state as plain JSON data."""
        return {"schema": 1, "settings": self.settings.digest, **chain_state(self.now)}

    @in_turn
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state; raise MurkError if it belongs to other settings, or is damaged."""
        if state.get("schema") != 1 or state.get("settings") != self.settings.digest:
            raise MurkError("the state is of a learner with other settings: use those that it was learned with")
        self.now = self._read(state)

    def _read(self, state: Mapping[str, Any]) -> Chain:
        """Read the chain that `chain_state` wrote."""
        count = count_of(state.get("n_releases"), "n_releases")
        states = state.get("epochs")
        if not isinstance(states, list) or not states:
            raise MurkError("the state holds no epochs")
        sizes, sets = (self.settings.features, self.settings.contrasts), self.settings.wanted is not None
        epochs = tuple(Epoch.of_state(of_epoch, *sizes, self.mechanisms, sets=sets) for of_epoch in states)
        starts = tuple(epoch.start for epoch in epochs)
        if not self._may_begin(starts, count):
            raise MurkError(f"the state's epochs begin at {list(starts)}, unlike those of a chain of {count} releases")
        return Chain(count, epochs, self._read_coordinates(state.get("coordinates")))

    def _read_coordinates(self, state: Any) -> Coordinates | None:
        if state is None:
            return None
        try:
            centre, spread, *errors = (unpack(state[name], self.settings.features - 1) for name in _COORDINATES)
            middle, width = unpack(state["target"], 2).tolist()
        except (KeyError, TypeError) as error:
            raise MurkError(f"the state's coordinates are malformed ({type(error).__name__})") from error
        finite = np.isfinite([middle, width]).all() and np.isfinite([centre, spread, *errors]).all()
        if not (finite and (spread > 0.0).all() and width > 0.0):
            raise MurkError("the state's coordinates are not finite, or a spread is not positive")
        return Coordinates(centre, spread, errors[0], errors[1], (middle, width))

    def _may_begin(self, starts: tuple[int, ...], count: int) -> bool:
        """Return whether a chain of ``count`` releases may remember epochs with these starts."""
        return starts == self.settings.remembered(count)


def chain_state(chain: Chain) -> dict[str, Any]:
    """Return a chain as plain JSON data."""
    state: dict[str, Any] = {"n_releases": chain.count, "epochs": [epoch.to_state() for epoch in chain.epochs]}
    found = chain.coordinates
    if found is not None:
        numbers = {name: pack(getattr(found, name)) for name in _COORDINATES}
        state["coordinates"] = {**numbers, "target": pack(np.array(found.target))}
    return state


_COORDINATES: Final = "centre", "spread", "centre_error", "log_spread_error"
_PLACES: Final[Mapping[str, int]] = {"score": 0, "scatter": 1, "curvature": 1, "inside": 2, ABOVE: 2}


def reaches(pair: ScoreMechanisms) -> tuple[Reach, ...]:
    """Return the largest norms of a level's honest payloads, in the order of `Settings.lengths`."""
    return tuple(pair.mechanism(question).reach for question in ("score", "curvature", "inside"))


def merged(engines: Sequence[ScoreEngine]) -> ScoreEstimate:
    """Return the estimate of several chains, solving all their epochs' equations together."""
    return merged_of(engines[0].settings, [(engine.now, engine.mechanisms) for engine in engines])


def merged_of(settings: Settings, known: Sequence[Learned]) -> ScoreEstimate:
    """Return the estimate of several chains, given with their levels' mechanisms."""
    chains = equations(settings, known)
    settings = settings.at(pooled([chain.coordinates for chain, _ in chains]))
    found = _answers(settings, chains)
    solution, outlook, forgery = None, None, None
    if found:
        solution = solution_from(settings, found)
        mechanisms = chains[0][1]
        if any(levels is not mechanisms for _, levels in chains):
            mechanisms = {level: pair for _, levels in chains for level, pair in levels.items()}
        forgery = Forgery.of([epoch for chain, _ in chains for epoch in chain.epochs], mechanisms)
        outlook = Outlook(settings, solution, found, mechanisms, _level_counts(chains))
    count = sum(chain.count for chain, _ in chains)
    # Chains with models of their own have surveys of their own.
    surveying = count > 0 and all(chain.coordinates is None for chain, _ in chains)
    survey = len(chains) * settings.survey.end if settings.survey is not None and surveying else 0
    estimate = estimate_of(settings.reported, outlook, len(known), count, survey)
    kept = None if settings.forget is None else sum(_level_counts(chains).values())
    influence = None if forgery is None else forgery.influence
    sets = None
    # Learners with models of their own have sets of their own.
    if settings.wanted is not None and len(chains) == 1:
        epochs = chains[0][0].epochs
        tallies = [tally for epoch in epochs for (_, question), tally in epoch.tallies.items() if question == "inside"]
        sets = sets_of(settings, solution, found, epochs[-1].model, sum(tally.count for tally in tallies))
    middle, width = (0.0, 1.0) if settings.coordinates is None else settings.coordinates.target
    estimate = replace(estimate, influence=influence, forgery=forgery, kept=kept, sets=sets)
    return replace(TargetRange(-math.inf, math.inf, middle, width).in_units(estimate), unit=width)


def equations(settings: Settings, chains: Sequence[Learned]) -> Sequence[Learned]:
    """Return the chains whose sums are separate equations: a single joined one where chains share models."""
    if not settings.shared or not chains:
        return chains
    return [(joined([chain for chain, _ in chains]), chains[0][1])]


def joined(chains: Sequence[Chain]) -> Chain:
    """Add up the sums of chains that share models, in the epochs of the first chain, which makes the models."""
    first, *others = chains
    known = {epoch.start: epoch for epoch in first.epochs}
    for epoch in (epoch for chain in others for epoch in chain.epochs if epoch.start in known):
        for (level, question), tally in epoch.tallies.items():
            known[epoch.start] = known[epoch.start].joined(level, question, tally)
    return Chain(sum(chain.count for chain in chains), tuple(known.values()), first.coordinates)


def _answers(settings: Settings, chains: Sequence[Learned]) -> list[Summary]:
    return [each for chain, mechanisms in chains for each in summaries(chain.epochs, mechanisms, settings.features)]


def _level_counts(chains: Sequence[Learned]) -> dict[str, int]:
    """Return the number of remembered releases by level."""
    counts: Counter[str] = Counter()
    for chain, _ in chains:
        for epoch in chain.epochs:
            for (level, _), tally in epoch.tallies.items():
                counts[level] += tally.count
    return dict(sorted(counts.items()))


class SharedScoreEngine(ScoreEngine):
    """A chain of scores whose people answer at models that all chains share.

    The first chain's learner makes a model from all chains' sums when they reach an epoch's start together, and writes
    it in one piece with its state before anybody can read it, so that a crash never makes two. The others receive it.
    """

    def __init__(self, settings: Settings, mechanisms: LevelMechanisms) -> None:
        super().__init__(settings, mechanisms)
        self._models = _models(self.now)

    @property
    def model(self) -> Model:
        """The newest known model."""
        models = self._models
        return models[max(models)]

    @property
    def model_size(self) -> int:
        """Length of a model."""
        return self.settings.model_size

    @property
    def next_model_at(self) -> int:
        """Number of releases of all chains at which the next model is due."""
        return self.settings.epoch_end(max(self._models))

    @property
    def publish_every(self) -> int:
        """`NEVER`: models are published with commits alone, as an uncommitted one might be made a second time."""
        return NEVER

    def another(self) -> Self:
        """Return a learner of the same task that has learned nothing."""
        return type(self)(self.settings, self.mechanisms)

    # Models

    @in_turn
    def begin_epoch(self, others: Sequence[ScoreEngine]) -> Self | None:
        """Make the next model, if due, from what this (the first) chain and all others have learned.

        Returns a learner of the joined chains, or None if no model was due; raises MurkError if sums give no model.
        """
        whole = joined([self.now, *(other.now for other in others)])
        start = self.settings.epoch_start(whole.count)
        # If nobody answered at the remembered models, there are no sums to make the next one from.
        if start <= max(self._models) or not any(epoch.tallies for epoch in whole.epochs):
            return None
        with plausible():
            model, coordinates = following(self.settings, whole.epochs, start, whole.coordinates, self.mechanisms)
        now = replace(self.now, coordinates=coordinates)
        self.now = self._advanced(now, now.count, (*now.epochs, Epoch(start, model)))
        self._models = _models(self.now)
        learner = self.another()
        learner.now = whole
        return learner

    @in_turn
    def hear(self, first: ScoreEngine) -> None:
        """Add the models that the first chain has committed."""
        self._models = {**self._models, **_models(first.now)}

    @in_turn
    def hear_newest(self, version: int, flat: Sequence[float]) -> None:
        """Add the newest published model, possibly before the state with it; raise HostileModelError if forged."""
        if version > max(self._models):
            self._models = {**self._models, version: self._checked(version, flat)}

    @in_turn
    def take_up(self, version: int, flat: Sequence[float]) -> None:
        """Continue with a published model that the first chain's restored state lacks, like `hear_newest`."""
        if version > max(self._models):
            now = self.now
            epochs = (*now.epochs, Epoch(version, self._checked(version, flat)))
            self.now = self._advanced(now, now.count, epochs)
            self._models = _models(self.now)

    def _checked(self, version: int, flat: Sequence[float]) -> Model:
        if version != self.settings.epoch_start(version):
            raise HostileModelError(f"the model has version {version}, at which no model is published: refused")
        return self.settings.checked(np.array(flat))

    # Releases

    def _check_version(self, version: int, count: int) -> None:
        known = self._remembered()
        if version in known:
            return
        if version > known[-1]:
            raise RejectedError("future", f"version {version}, but the newest model has version {known[-1]}")
        if version > known[0] or version != self.settings.epoch_start(version):
            raise RejectedError("version", f"there was no model of version {version}")
        raise RejectedError("stale", f"the epoch of version {version} is forgotten")

    def _knows(self, versions: Set[int], releases: int) -> bool:
        return versions <= set(self._remembered())

    def _models_known(self) -> Mapping[int, Model]:
        return self._models

    def _remembered(self) -> list[int]:
        return sorted(self._models)[-REMEMBERED:]

    @property
    def _newest(self) -> int:
        return max(self._models)

    def _left(self) -> int:
        return NEVER

    def _until_next_model(self) -> int:
        return NEVER

    def _unseen(self, version: int) -> Epoch:
        if version not in self._models:
            raise MurkError(f"the model of version {version} is not known")
        return Epoch(version, self._models[version])

    def _advanced(self, before: Chain, count: int, epochs: tuple[Epoch, ...]) -> Chain:
        # Twice as many: releases admitted before the newest models arrived are learned after them.
        self._models = dict(sorted(self._models.items())[-2 * REMEMBERED :])
        return Chain(count, tuple(sorted(epochs, key=attrgetter("start")))[-REMEMBERED:], before.coordinates)

    def _read(self, state: Mapping[str, Any]) -> Chain:
        chain = super()._read(state)
        self._models = _models(chain)
        return chain

    def _may_begin(self, starts: tuple[int, ...], count: int) -> bool:
        grid = all(start == self.settings.epoch_start(start) for start in starts)
        return grid and starts == tuple(sorted(set(starts))) and len(starts) <= REMEMBERED


def _asks(model: Model, question: str, item: int) -> bool:
    """Return whether a model asks a question."""
    if model.survey:
        return question == ABOVE and item < model.items
    return question != ABOVE and item == 0


def _models(chain: Chain) -> dict[int, Model]:
    return {epoch.start: epoch.model for epoch in chain.epochs}


def drift_of(settings: Settings, chains: Sequence[Learned]) -> Drift:
    """Return whether later epochs contradict earlier ones (see `murk.inference.drift`).

    The epochs before each boundary are solved as all epochs are: without public rows if people are unlike them, and
    then with centred scores alone, so that a change of the features alone is no drift, except for lines of several
    classes. As old epochs are forgotten, a boundary is tested with up to 7 sets of epochs, for which the test corrects.
    """
    chains = equations(settings, chains)
    settings = settings.at(pooled([chain.coordinates for chain, _ in chains]))
    releases = sum(chain.count for chain, _ in chains)
    starts = sorted({epoch.start for chain, _ in chains for epoch in chain.epochs})
    answers = _answers(settings, chains)
    if len(starts) < 2 or settings.once or not answers:
        return Drift(releases=releases)
    whole = solution_from(settings, answers)
    known = sum(_level_counts(chains).values())
    comparisons: list[Comparison] = []
    for last, start in pairwise(starts):
        early = [
            (replace(chain, epochs=tuple(epoch for epoch in chain.epochs if epoch.start <= last)), mechanisms)
            for chain, mechanisms in chains
        ]
        before = sum(_level_counts(early).values())
        share, answered = 1.0 - before / known, _answers(settings, early)
        # A survey has no answers to solve.
        if not answered or share < SMALLEST_SHARE:
            continue
        try:
            older = whole.refit(answered)
        except (MurkError, np.linalg.LinAlgError):
            # So few epochs may have no solution.
            continue
        change, number, since = whole.values - older.values, settings.epoch_number(start), releases - known + before
        comparison = compare(change, older.covariance, whole.covariance, number, since, releases, share)
        comparisons += [] if comparison is None else [comparison]
    drift = concluded(settings.reported, releases, comparisons, REMEMBERED - 1)
    width = 1.0 if settings.coordinates is None else settings.coordinates.target[1]
    return replace(drift, changes={name: width * change for name, change in drift.changes.items()})
