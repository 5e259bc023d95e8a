"""A chain of scores whose people answer at models that all chains share. River-free.

The first chain's learner makes a model when all chains together reach an epoch's start, from the sums of all. The model
is written in one piece with that chain's state before anybody can read it, so that a crash never makes two. The other
learners receive it and keep it with the sums of their own people's answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from operator import attrgetter
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from murk._turns import in_turn
from murk.errors import MurkError
from murk.learners.core.scoring.engine import Chain, ScoreEngine, joined
from murk.learners.core.scoring.mechanism import ScoreMechanisms
from murk.learners.core.scoring.model import Model, Question, check_model, model_size
from murk.learners.core.scoring.settings import NEVER, REMEMBERED, Settings
from murk.learners.core.scoring.sums import Epoch, Tally, summaries
from murk.learners.problem import HostileModelError, plausible
from murk.stream.messages.codec import RejectedError


class SharedScoreEngine(ScoreEngine):
    """A chain of scores at models that all chains share; see the module."""

    def __init__(self, settings: Settings, mechanisms: Mapping[str, ScoreMechanisms]) -> None:
        super().__init__(settings, mechanisms)
        self._models = _models(self._now)

    @property
    def model(self) -> Model:
        """The newest known model."""
        models = self._models
        return models[max(models)]

    @property
    def model_size(self) -> int:
        """Length of a model."""
        return model_size(self.settings.features, self.settings.contrasts)

    @property
    def next_model_at(self) -> int:
        """Releases of all chains at which the next model is due."""
        return self.settings.epoch_end(max(self._models))

    @property
    def publish_every(self) -> int:
        """Never between commits: an uncommitted model might be made a second time."""
        return NEVER

    def another(self) -> Self:
        """Return a learner of the same task that has learned nothing."""
        return type(self)(self.settings, self.mechanisms)

    # Models

    @in_turn
    def begin_epoch(self, others: Sequence[ScoreEngine]) -> Self | None:
        """Make the next model, if due, from what this (the first) chain and all others have learned.

        Returns a learner of the joined chains, or None if no model was due. Raises MurkError if the sums give no model,
        because no learner commits such sums.
        """
        whole = joined([self._now, *(other.now for other in others)])
        start = self.settings.epoch_start(whole.count)
        found = summaries(whole.epochs, self.mechanisms, self.settings.features)
        # If nobody answered at the remembered models, there are no sums to make the next one from.
        if start <= max(self._models) or not found:
            return None
        with plausible():
            model = self.settings.next_model(found, start, self.mechanisms)
        now = self._now
        self._now = self._advanced(now, now.count, (*now.epochs, Epoch(start, model)))
        self._models = _models(self._now)
        learner = self.another()
        learner._now = whole
        return learner

    @in_turn
    def hear(self, first: ScoreEngine) -> None:
        """Add the first chain's committed models."""
        self._models = {**self._models, **_models(first.now)}

    @in_turn
    def hear_newest(self, version: int, flat: Sequence[float]) -> None:
        """Add the newest published model, which readers may see before the state that contains it.

        Raises HostileModelError if no honest learner publishes it.
        """
        if version > max(self._models):
            self._models = {**self._models, version: self._checked(version, flat)}

    @in_turn
    def take_up(self, version: int, flat: Sequence[float]) -> None:
        """Continue with a published model that the first chain's restored state lacks.

        People may have answered at it, and a second model of its version would differ.

        Raises HostileModelError if no honest learner publishes it.
        """
        if version > max(self._models):
            now = self._now
            epochs = (*now.epochs, Epoch(version, self._checked(version, flat)))
            self._now = self._advanced(now, now.count, epochs)
            self._models = _models(self._now)

    def _checked(self, version: int, flat: Sequence[float]) -> Model:
        if version != self.settings.epoch_start(version):
            raise HostileModelError(f"the model has version {version}, at which no model is published: refused")
        return check_model(np.array(flat), self.settings.features, self.settings.contrasts)

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

    def _remembered(self) -> list[int]:
        """Return the versions of the newest models, oldest first."""
        return sorted(self._models)[-REMEMBERED:]

    @in_turn
    def learn_sums(self, sums: Mapping[tuple[str, Question], Tally]) -> None:
        """Learn sums of answers at the newest known model, by level and question."""
        now, start = self._now, max(self._models)
        known = {epoch.start: epoch for epoch in now.epochs}
        newest = known.get(start) or self._unseen(start)
        for (level, question), tally in sums.items():
            newest = newest.joined(level, question, tally)
        learned = sum(tally.count for tally in sums.values())
        self._now = self._advanced(now, now.count + learned, tuple({**known, start: newest}.values()))

    @in_turn
    def learn_payloads(self, answers: Mapping[tuple[str, Question], NDArray[np.int64]]) -> None:
        """Learn payloads (m, d) at the newest known model, by level and question."""
        newest = max(self._models)
        self._add({(newest, level, question): payloads for (level, question), payloads in answers.items()})

    def _until_next_model(self) -> int:
        return NEVER

    def _unseen(self, version: int) -> Epoch:
        if version not in self._models:
            raise MurkError(f"the model of version {version} is not known")
        return Epoch(version, self._models[version])

    def _advanced(self, before: Chain, count: int, epochs: tuple[Epoch, ...]) -> Chain:
        # Twice as many: releases admitted before the newest models arrived are learned after them.
        self._models = dict(sorted(self._models.items())[-2 * REMEMBERED :])
        return Chain(count, tuple(sorted(epochs, key=attrgetter("start")))[-REMEMBERED:])

    # State

    def _read(self, state: Mapping[str, Any]) -> Chain:
        chain = super()._read(state)
        self._models = _models(chain)
        return chain

    def _may_begin(self, starts: tuple[int, ...], count: int) -> bool:
        grid = all(start == self.settings.epoch_start(start) for start in starts)
        return grid and starts == tuple(sorted(set(starts))) and len(starts) <= REMEMBERED


def _models(chain: Chain) -> dict[int, Model]:
    """Return the models that a chain remembers, by version."""
    return {epoch.start: epoch.model for epoch in chain.epochs}
