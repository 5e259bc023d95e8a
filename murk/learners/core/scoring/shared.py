"""A chain of scores whose people answer at models that all chains share. River-free.

The first chain's learner makes a model when all chains together have come to an epoch's start: of what all have
learned, added up as if there was one chain. It is written with that chain's state, in one piece, before anybody can
read it: so it is made once, whatever crashes when. The other learners are told of it, and keep it with the sums of
their own people's answers: what each has learned follows from its own releases and from the models that they name.
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
from murk.learners.core.scoring.epoch_grid import NEVER, REMEMBERED
from murk.learners.core.scoring.mechanism import ScoreMechanisms
from murk.learners.core.scoring.model import Model, Question, check_model, model_size
from murk.learners.core.scoring.settings import Settings
from murk.learners.core.scoring.sums import Epoch, Tally, summaries
from murk.learners.problem import HostileModelError, plausible
from murk.stream.messages.codec import RejectedError


class SharedScoreEngine(ScoreEngine):
    """A chain of scores at models that all chains share; see the module.

    Parameters
    ----------
    settings
        What is public (see :class:`Settings`), with ``shared``.
    mechanisms
        Level name to mechanisms.
    """

    def __init__(self, settings: Settings, mechanisms: Mapping[str, ScoreMechanisms]) -> None:
        super().__init__(settings, mechanisms)
        self._models = _models(self._now)

    @property
    def model(self) -> Model:
        """The newest model that it knows."""
        models = self._models
        return models[max(models)]

    @property
    def model_size(self) -> int:
        """Numbers in a model."""
        return model_size(self.settings.features, self.settings.contrasts)

    @property
    def next_model_at(self) -> int:
        """Releases of all chains at which the next model is due."""
        return self.settings.epoch_end(max(self._models))

    @property
    def publish_every(self) -> int:
        """Never between commits: a model that is not committed may not be made a second time."""
        return NEVER

    def another(self) -> Self:
        """A learner of the same task that has learned nothing."""
        return type(self)(self.settings, self.mechanisms)

    # Models

    @in_turn
    def begin_epoch(self, others: Sequence[ScoreEngine]) -> Self | None:
        """Make the next model, where it is due: of what this chain, the first, and all the others have learned.

        Returns
        -------
        SharedScoreEngine or None
            A learner of what it was made of; None where it was not due.

        Raises
        ------
        MurkError
            If no model comes of that, since somebody has written what no learner commits.
        """
        whole = joined([self._now, *(other.now for other in others)])
        start = self.settings.epoch_start(whole.count)
        found = summaries(whole.epochs, self.mechanisms, self.settings.features)
        # Where nobody has read a model for as long as epochs are remembered there is nothing to make one of.
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
        """Take notice of the first chain's models, as it has committed them."""
        self._models = {**self._models, **_models(first.now)}

    @in_turn
    def hear_newest(self, version: int, flat: Sequence[float]) -> None:
        """Take notice of the newest model as it was published: a reader may see it a moment before the state it is in.

        Raises
        ------
        HostileModelError
            If it is none that honest learners publish.
        """
        if version > max(self._models):
            self._models = {**self._models, version: self._checked(version, flat)}

    @in_turn
    def take_up(self, version: int, flat: Sequence[float]) -> None:
        """Go on with a model that was published, and that the first chain's state does not have: an older copy of it.

        It may have been answered at, and a second one of its version would be another.

        Raises
        ------
        HostileModelError
            If it is none that honest learners publish.
        """
        if version > max(self._models):
            now = self._now
            epochs = (*now.epochs, Epoch(version, self._checked(version, flat)))
            self._now = self._advanced(now, now.count, epochs)
            self._models = _models(self._now)

    def _checked(self, version: int, flat: Sequence[float]) -> Model:
        if version != self.settings.epoch_start(version):
            raise HostileModelError(f"the model's version {version} is none at which models are published: refused")
        return check_model(np.array(flat), self.settings.features, self.settings.contrasts)

    # Releases

    def _check_version(self, version: int, count: int) -> None:
        known = self._remembered()
        if version in known:
            return
        if version > known[-1]:
            raise RejectedError("future", f"version {version} where the newest model is {known[-1]}")
        if version > known[0] or version != self.settings.epoch_start(version):
            raise RejectedError("version", f"there was no model of version {version}")
        raise RejectedError("stale", f"the epoch of version {version} is forgotten")

    def _knows(self, versions: Set[int], releases: int) -> bool:
        return versions <= set(self._remembered())

    def _remembered(self) -> list[int]:
        """Versions of the newest models, oldest first."""
        return sorted(self._models)[-REMEMBERED:]

    @in_turn
    def learn_sums(self, sums: Mapping[tuple[str, Question], Tally]) -> None:
        """Learn what answers made at the newest model that is known add up to, of levels and questions."""
        now, start = self._now, max(self._models)
        known = {epoch.start: epoch for epoch in now.epochs}
        newest = known.get(start) or self._unseen(start)
        for (level, question), tally in sums.items():
            newest = newest.joined(level, question, tally)
        learned = sum(tally.count for tally in sums.values())
        self._now = self._advanced(now, now.count + learned, tuple({**known, start: newest}.values()))

    @in_turn
    def learn_payloads(self, answers: Mapping[tuple[str, Question], NDArray[np.int64]]) -> None:
        """Learn payloads (m, d) of levels and questions, all made at the newest model that is known."""
        newest = max(self._models)
        self._add({(newest, level, question): payloads for (level, question), payloads in answers.items()})

    def _until_next_model(self) -> int:
        return NEVER

    def _unseen(self, version: int) -> Epoch:
        if version not in self._models:
            raise MurkError(f"the model of version {version} is not known")
        return Epoch(version, self._models[version])

    def _advanced(self, before: Chain, count: int, epochs: tuple[Epoch, ...]) -> Chain:
        # Twice as many: what was admitted before the newest ones were heard of is learned after that.
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
    """The models that a chain remembers, by version."""
    return {epoch.start: epoch.model for epoch in chain.epochs}
