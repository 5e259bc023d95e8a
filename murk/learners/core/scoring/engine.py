"""The learner of scores on one chain: exact sums by epoch, and the next epoch's model when one ends. River-free."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from murk._turns import Turns, in_turn
from murk.errors import MurkError
from murk.learners.core.scoring.any_solution import solution_of
from murk.learners.core.scoring.epoch_grid import NEVER, REMEMBERED
from murk.learners.core.scoring.estimate import ScoreEstimate, estimate_of
from murk.learners.core.scoring.forgers import Forgery
from murk.learners.core.scoring.mechanism import ScoreMechanisms
from murk.learners.core.scoring.model import Model, Question
from murk.learners.core.scoring.needed import Outlook
from murk.learners.core.scoring.settings import Settings
from murk.learners.core.scoring.sums import Epoch, Tally, summaries
from murk.learners.core.state import count_of
from murk.learners.core.symmetric import matrix_size
from murk.privacy.mechanisms.payload_limits import FORGED, Reach
from murk.stream.messages.block import block_of
from murk.stream.messages.codec import RejectedError

if TYPE_CHECKING:
    from murk.stream.messages.releases import ScoreRelease

Answered = tuple[int, str, Question]
"""The version that an answer was given at, its level, and the question."""
_ANSWERED = "version", "level", "question"

BLOCK = 4096
"""Releases learned at once at the most: the sum of so many payloads is within 64 bits."""


@dataclass(frozen=True)
class Chain:
    """What a chain has learned. Never written to, only replaced, so that anyone who reads it reads one moment.

    Parameters
    ----------
    count
        How many releases.
    epochs
        Those that are remembered, oldest first.
    shown
        What predictions are by, where that is of an earlier moment.
    """

    count: int
    epochs: tuple[Epoch, ...]
    shown: Chain | None = None


Learned = tuple[Chain, Mapping[str, ScoreMechanisms]]
"""A chain, and its levels' mechanisms."""


class ScoreEngine:
    """Sums of released scores and matrices on one chain, and what they say together. Threads take turns.

    Parameters
    ----------
    settings
        What is public (see :class:`Settings`).
    mechanisms
        Level name to mechanisms.
    """

    kind = "score"

    def __init__(self, settings: Settings, mechanisms: Mapping[str, ScoreMechanisms]) -> None:
        self.settings = settings
        self.mechanisms = dict(mechanisms)
        self._turns = Turns()
        self._now = Chain(0, (Epoch(0, settings.first_model(mechanisms)),))
        self._reach = reaches(mechanisms)

    # What is known

    @property
    def n_releases(self) -> int:
        """How many releases were learned."""
        return self._now.count

    @property
    def dimension(self) -> int:
        """Numbers in a score."""
        return self.settings.dimension

    @property
    def lengths(self) -> tuple[int, ...]:
        """Numbers in a release: of a score, and of a matrix, where any is asked for."""
        return lengths_of(self.settings)

    @property
    def coefficients(self) -> int:
        """Coefficients of the estimate."""
        return len(self.settings.reported)

    @property
    def model(self) -> Model:
        """The newest epoch's model."""
        return self._now.epochs[-1].model

    @property
    def now(self) -> Chain:
        """What was learned so far."""
        return self._now

    @property
    def epochs(self) -> tuple[Epoch, ...]:
        """The epochs that are remembered, oldest first."""
        return self._now.epochs

    def estimate(self) -> ScoreEstimate:
        """Coefficients in coded units, with what their intervals need."""
        return merged([self])

    def figures(self) -> dict[str, float]:
        """Nothing beyond the estimate."""
        return {}

    # Releases

    def admit(self, release: ScoreRelease, ahead: int = 0) -> None:
        """Refuse a release of an epoch that is not there yet, never was, or is forgotten, and a forged one.

        ``ahead`` counts releases admitted before it that are not learned yet.

        Raises
        ------
        RejectedError
            With reason ``"version"``, ``"future"``, ``"stale"``, ``"dimension"`` or ``"magnitude"``.
        """
        self._check_version(release.version, self._now.count + ahead)
        matrix = release.question != "score"
        if matrix and not self.settings.matrices:
            raise RejectedError("dimension", "a matrix, which nobody is asked for")
        if len(release.payload) != self.lengths[matrix]:
            raise RejectedError("dimension", f"{len(release.payload)} numbers for a {release.question}")
        if not self._reach[release.level, matrix].holds(release.payload):
            raise RejectedError("magnitude", FORGED)

    def admits(self, releases: Sequence[ScoreRelease]) -> bool:
        """Whether `admit` plainly lets all of these be learned next, in this order."""
        if not self._knows({release.version for release in releases}, len(releases)):
            return False
        if {(release.question != "score", len(release.payload)) for release in releases} - {*enumerate(self.lengths)}:
            return False
        answers = block_of(releases).split(*_ANSWERED)
        return all(self._reach[level, asked != "score"].holds_all(rows) for (_, level, asked), rows in answers.items())

    def _check_version(self, version: int, count: int) -> None:
        """Refuse a release's version, of which a chain that stands at ``count`` knows no model."""
        if version > count:
            raise RejectedError("future", f"version {version} of a chain that stands at {count}")
        if version != self.settings.epoch_start(version):
            raise RejectedError("version", f"no epoch begins at version {version}")
        if version < self._oldest(count):
            raise RejectedError("stale", f"the epoch of version {version} is forgotten at {count}")

    def _knows(self, versions: Set[int], releases: int) -> bool:
        """Whether `_check_version` plainly lets so many releases of these versions pass."""
        count, start = self._now.count, self.settings.epoch_start
        # By the last of them the oldest epoch may be forgotten.
        oldest = self._oldest(count + releases - 1)
        return all(oldest <= version <= count and version == start(version) for version in versions)

    def _oldest(self, count: int) -> int:
        """Where the oldest epoch begins that a chain with so many releases remembers."""
        return self.settings.remembered(count)[0]

    @in_turn
    def learn_releases(self, releases: Sequence[ScoreRelease]) -> None:
        """Learn from admitted releases, up to an epoch's end at a time.

        Raises
        ------
        MurkError
            If a release's epoch is not remembered: it was not admitted.
        """
        done = 0
        while done < len(releases):
            stop = min(len(releases), done + self._until_next_model())
            part = releases if stop - done == len(releases) else releases[done:stop]
            self._add(block_of(part).split(*_ANSWERED))
            done = stop

    @in_turn
    def learn_payloads(self, answers: Mapping[tuple[str, Question], NDArray[np.int64]]) -> None:
        """Learn payloads (m, d) of levels and questions, all made at the newest model.

        Raises
        ------
        MurkError
            If they are more than are left of its epoch.
        """
        now = self._now
        learned = sum(map(len, answers.values()))
        left = self.settings.epoch_end(now.count) - now.count
        if learned > left:
            raise MurkError(f"{learned} answers, and {left} are left of the epoch")
        start = now.epochs[-1].start
        self._add({(start, level, question): payloads for (level, question), payloads in answers.items()})

    @in_turn
    def learn_sums(self, sums: Mapping[tuple[str, Question], Tally]) -> None:
        """Learn what answers made at the newest model add up to, of levels and questions.

        Raises
        ------
        MurkError
            If they are of more people than are left of its epoch.
        """
        now = self._now
        learned = sum(tally.count for tally in sums.values())
        left = self.settings.epoch_end(now.count) - now.count
        if learned > left:
            raise MurkError(f"{learned} answers, and {left} are left of the epoch")
        newest = now.epochs[-1]
        for (level, question), tally in sums.items():
            newest = newest.joined(level, question, tally)
        self._now = self._advanced(now, now.count + learned, (*now.epochs[:-1], newest))

    def _until_next_model(self) -> int:
        """Most releases to learn before something else is due."""
        count = self._now.count
        return min(BLOCK, self.settings.epoch_end(count) - count)

    def _add(self, answers: Mapping[Answered, NDArray[np.int64]]) -> None:
        """Add payloads, no more than are left of the epoch: all of them or, where an interrupt arrives, none."""
        now = self._now
        known, learned = {epoch.start: epoch for epoch in now.epochs}, 0
        for (version, level, question), payloads in answers.items():
            if version not in known:
                known[version] = self._unseen(version)
            for start in range(0, len(payloads), BLOCK):
                part = payloads[start : start + BLOCK]
                known[version] = known[version].plus(level, question, self.mechanisms[level], part)
            learned += len(payloads)
        self._now = self._advanced(now, now.count + learned, tuple(known.values()))

    def _unseen(self, version: int) -> Epoch:
        """The epoch of a version at which nobody has answered yet."""
        raise MurkError(f"the epoch of version {version} is not remembered")

    def _advanced(self, before: Chain, count: int, epochs: tuple[Epoch, ...]) -> Chain:
        """With the next epoch begun, where one has ended."""
        if count == self.settings.epoch_end(epochs[-1].start):
            found = summaries(epochs, self.mechanisms, self.settings.features)
            model = self.settings.next_model(found, count, self.mechanisms)
            epochs = (*epochs, Epoch(count, model))[-REMEMBERED:]
        return Chain(count, epochs)

    # What devices and logs need

    def published(self) -> tuple[int, list[float]] | None:
        """The newest epoch's first version, and its model; None where nobody reads any."""
        if self.settings.once:
            return None
        newest = self._now.epochs[-1]
        return newest.start, newest.model.flat.tolist()

    @property
    def publish_every(self) -> int:
        """Most releases to learn before a new model is to be published."""
        count = self._now.count
        return NEVER if self.settings.once else min(256, self.settings.epoch_end(count) - count)

    def state_dict(self) -> dict[str, Any]:
        """The whole state as plain JSON data."""
        return {"schema": 1, "settings": self.settings.digest, **chain_state(self._now)}

    @in_turn
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state.

        Raises
        ------
        MurkError
            If it is of other settings, or damaged.
        """
        if state.get("schema") != 1 or state.get("settings") != self.settings.digest:
            raise MurkError("the state is of a learner with other settings: use those that it was learned with")
        self._now = self._read(state)

    def _read(self, state: Mapping[str, Any]) -> Chain:
        """What `chain_state` wrote."""
        count = count_of(state.get("n_releases"), "n_releases")
        found = state.get("epochs")
        if not isinstance(found, list) or not found:
            raise MurkError("the state holds no epochs")
        p, contrasts = self.settings.features, self.settings.contrasts
        epochs = tuple(Epoch.of_state(each, p, contrasts, self.mechanisms) for each in found)
        starts = tuple(epoch.start for epoch in epochs)
        if not self._may_begin(starts, count):
            raise MurkError(
                f"the state's epochs begin at {list(starts)}, which is not where a chain of {count} has them"
            )
        return Chain(count, epochs)

    def _may_begin(self, starts: tuple[int, ...], count: int) -> bool:
        """Whether a chain of so many releases may remember epochs that begin there."""
        return starts == self.settings.remembered(count)


def chain_state(chain: Chain) -> dict[str, Any]:
    """A chain as plain JSON data."""
    return {"n_releases": chain.count, "epochs": [epoch.to_state() for epoch in chain.epochs]}


def lengths_of(settings: Settings) -> tuple[int, ...]:
    """Numbers in a release: of a score, and of a matrix, where any is asked for."""
    return (settings.dimension, matrix_size(settings.features))[: 1 + settings.matrices]


def reaches(mechanisms: Mapping[str, ScoreMechanisms]) -> dict[tuple[str, bool], Reach]:
    """How long honest payloads of a level are, of scores and of matrices."""
    return {
        (level, matrix): pair.mechanism("curvature" if matrix else "score").reach
        for level, pair in mechanisms.items()
        for matrix in (False, True)
    }


def merged(engines: Sequence[ScoreEngine]) -> ScoreEstimate:
    """The estimate of several chains: their epochs' equations are solved together."""
    return merged_of(engines[0].settings, [(engine.now, engine.mechanisms) for engine in engines])


def merged_of(settings: Settings, known: Sequence[Learned]) -> ScoreEstimate:
    """The estimate of chains."""
    chains = equations(settings, known)
    found = [each for chain, mechanisms in chains for each in summaries(chain.epochs, mechanisms, settings.features)]
    outlook, forgery = None, None
    if found:
        solution = solution_of(found, settings.response, settings.rows)
        mechanisms = {level: pair for _, levels in chains for level, pair in levels.items()}
        forgery = Forgery.of([epoch for chain, _ in chains for epoch in chain.epochs], mechanisms)
        outlook = Outlook(settings, solution, found, mechanisms, _levels(chain for chain, _ in chains))
    estimate = estimate_of(settings.reported, outlook, len(known), sum(chain.count for chain, _ in chains))
    if forgery is not None:
        estimate = replace(estimate, influence=forgery.influence, forgery=forgery)
    if settings.forget is None:
        return estimate
    return replace(estimate, kept=sum(_levels(chain for chain, _ in chains).values()))


def equations(settings: Settings, chains: Sequence[Learned]) -> Sequence[Learned]:
    """The chains whose sums are each an equation of its own: one, where all are of the same models."""
    if not settings.shared or not chains:
        return chains
    return [(joined([chain for chain, _ in chains]), chains[0][1])]


def joined(chains: Sequence[Chain]) -> Chain:
    """Chains whose people answered at the same models, as one chain: their sums are whole numbers, and add up.

    Which models there are, and what they are, is the first chain's to say; it is the one that makes them.
    """
    first, *others = chains
    found = {epoch.start: epoch for epoch in first.epochs}
    for epoch in (epoch for chain in others for epoch in chain.epochs if epoch.start in found):
        for (level, question), tally in epoch.tallies.items():
            found[epoch.start] = found[epoch.start].joined(level, question, tally)
    return Chain(sum(chain.count for chain in chains), tuple(found.values()))


def _levels(chains: Iterable[Chain]) -> dict[str, int]:
    """Releases of each level that there are, among those that are remembered."""
    counts: Counter[str] = Counter()
    for chain in chains:
        for epoch in chain.epochs:
            for (level, _), tally in epoch.tallies.items():
                counts[level] += tally.count
    return dict(sorted(counts.items()))
