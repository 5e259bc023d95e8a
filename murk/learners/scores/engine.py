"""The learner of scores on one chain: exact sums by epoch, and the next epoch's model when one ends. River-free."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from murk._turns import Turns, in_turn
from murk.errors import MurkError
from murk.learners.scores.estimate import ScoreEstimate, estimate_of
from murk.learners.scores.layout import FIRST, REMEMBERED, epoch_end, epoch_start, matrix_size
from murk.learners.scores.mechanism import Menu
from murk.learners.scores.model import Model, Question
from murk.learners.scores.settings import Settings
from murk.learners.scores.solve import Solution
from murk.learners.scores.sums import Epoch, summaries
from murk.learners.state import count_of
from murk.privacy.mechanisms.reach import FORGED
from murk.stream.codec import Rejected

if TYPE_CHECKING:
    from murk.stream.releases import ScoreRelease

# Releases learned at once at the most: the sum of so many payloads is within 64 bits.
_BLOCK = 4096


class ScoreEngine:
    """Sums of released scores and matrices on one chain, and what they say together. Threads take turns.

    Parameters
    ----------
    settings
        What is public (see :class:`Settings`).
    menus
        Level name to mechanisms.
    """

    kind = "score"

    def __init__(self, settings: Settings, menus: Mapping[str, Menu]) -> None:
        self.settings = settings
        self.mechanisms = dict(menus)
        self._turns = Turns()
        self._count = 0
        self._epochs = [Epoch(0, settings.first_model)]
        self._reach = {
            (level, matrix): (menu.matrix if matrix else menu.score).reach
            for level, menu in menus.items()
            for matrix in (False, True)
        }

    # What is known

    @property
    def n_releases(self) -> int:
        """How many releases were learned."""
        return self._count

    @property
    def dimension(self) -> int:
        """Numbers in a score."""
        return self.settings.features

    @property
    def lengths(self) -> tuple[int, ...]:
        """Numbers in a release: of a score, and of a matrix."""
        return (self.settings.features, matrix_size(self.settings.features))

    @property
    def coefficients(self) -> int:
        """Coefficients of the estimate."""
        return self.settings.features

    @property
    def model(self) -> Model:
        """The newest epoch's model."""
        return self._epochs[-1].model

    @property
    def epochs(self) -> tuple[Epoch, ...]:
        """The epochs that are remembered, oldest first."""
        return tuple(self._epochs)

    @in_turn
    def estimate(self) -> ScoreEstimate:
        """Coefficients in coded units, with what their intervals need."""
        return merged(self.settings, self.mechanisms, [self._epochs], 1, self._count)

    def figures(self) -> dict[str, float]:
        """Nothing beyond the estimate."""
        return {}

    # Releases

    def admit(self, release: ScoreRelease, ahead: int = 0) -> None:
        """Refuse a release of an epoch that is not there yet, never was, or is forgotten, and a forged one.

        ``ahead`` counts releases admitted before it that are not learned yet.

        Raises
        ------
        Rejected
            With reason ``"version"``, ``"future"``, ``"stale"``, ``"dimension"`` or ``"magnitude"``.
        """
        count, version = self._count + ahead, release.version
        if version > count:
            raise Rejected("future", f"version {version} of a chain that stands at {count}")
        if version != epoch_start(version):
            raise Rejected("version", f"no epoch begins at version {version}")
        if version < self._oldest(count):
            raise Rejected("stale", f"the epoch of version {version} is forgotten at {count}")
        matrix = release.question != "score"
        if len(release.payload) != self.lengths[matrix]:
            raise Rejected("dimension", f"{len(release.payload)} numbers for a {release.question}")
        if not self._reach[release.level, matrix].holds(release.payload):
            raise Rejected("magnitude", FORGED)

    @staticmethod
    def _oldest(count: int) -> int:
        """Where the oldest epoch begins that a chain with so many releases remembers."""
        return epoch_start(epoch_start(count) >> (REMEMBERED - 1))

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
            stop = min(len(releases), done + min(_BLOCK, epoch_end(self._count) - self._count))
            self._add(releases[done:stop])
            done = stop

    def _add(self, releases: Sequence[ScoreRelease]) -> None:
        known = {epoch.start: epoch for epoch in self._epochs}
        groups: dict[tuple[int, str, Question], list[list[int]]] = {}
        for release in releases:
            if release.version not in known:
                raise MurkError(f"the epoch of version {release.version} is not remembered")
            groups.setdefault((release.version, release.level, release.question), []).append(release.payload)
        for (version, level, question), payloads in groups.items():
            known[version].add(level, question, self.mechanisms[level], np.array(payloads, dtype=np.int64))
        self._advance(len(releases))

    @in_turn
    def learn_payloads(self, answers: Mapping[tuple[str, Question], NDArray[np.int64]]) -> None:
        """Learn payloads (m, d) of levels and questions, all made at the newest model.

        Raises
        ------
        MurkError
            If they are more than are left of its epoch.
        """
        learned = sum(map(len, answers.values()))
        if learned > epoch_end(self._count) - self._count:
            raise MurkError(f"{learned} answers, and {epoch_end(self._count) - self._count} are left of the epoch")
        for (level, question), payloads in answers.items():
            for start in range(0, len(payloads), _BLOCK):
                self._epochs[-1].add(level, question, self.mechanisms[level], payloads[start : start + _BLOCK])
        self._advance(learned)

    def _advance(self, learned: int) -> None:
        self._count += learned
        if self._count == epoch_end(self._epochs[-1].start):
            found = summaries(self._epochs, self.mechanisms, self.settings.features)
            model = self.settings.next_model(found, self._count, self.mechanisms)
            self._epochs = [*self._epochs, Epoch(self._count, model)][-REMEMBERED:]

    # What devices and logs need

    def published(self) -> tuple[int, list[float]]:
        """The newest epoch's first version, and its model."""
        newest = self._epochs[-1]
        return newest.start, newest.model.flat.tolist()

    @property
    def stride(self) -> int:
        """Most releases to learn before a new model is to be published."""
        return min(256, epoch_end(self._count) - self._count)

    @in_turn
    def state_dict(self) -> dict[str, Any]:
        """The whole state as plain JSON data."""
        return {
            "schema": 1,
            "settings": self.settings.digest,
            "n_releases": self._count,
            "epochs": [epoch.to_state() for epoch in self._epochs],
        }

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
        count = count_of(state.get("n_releases"), "n_releases")
        found = state.get("epochs")
        if not isinstance(found, list) or not found:
            raise MurkError("the state holds no epochs")
        epochs = [Epoch.of_state(each, self.settings.features, self.mechanisms) for each in found]
        starts = [epoch.start for epoch in epochs]
        if starts != _starts(count):
            raise MurkError(f"the state's epochs begin at {starts}, which is not where a chain of {count} has them")
        self._epochs, self._count = epochs, count


def _starts(count: int) -> list[int]:
    """Where the remembered epochs of a chain with so many releases begin."""
    starts, start = [0], FIRST
    while start <= count:
        starts.append(start)
        start *= 2
    return starts[-REMEMBERED:]


def merged(
    settings: Settings, menus: Mapping[str, Menu], chains: Sequence[Sequence[Epoch]], number: int, releases: int
) -> ScoreEstimate:
    """The estimate of several chains' epochs: their equations are solved together."""
    found = [each for epochs in chains for each in summaries(epochs, menus, settings.features)]
    solution = Solution(found, settings.response, settings.rows) if found else None
    return estimate_of(settings.names, solution, number, releases)
