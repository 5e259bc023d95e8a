"""Which scores are admitted: answers to queries of a remembered round's model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from murk._internal.lazy import map_levels
from murk.errors import MurkError
from murk.privacy.mechanisms.lattice import FORGED, PayloadBound
from murk.protocols.device import HostileModelError
from murk.protocols.scores.mechanisms import LevelMechanisms, ScoreMechanisms
from murk.protocols.scores.model import ABOVE, Model, check_model, model_size
from murk.protocols.scores.settings import REMEMBERED, Settings
from murk.stream.wire.admission import AdmissionRules
from murk.stream.wire.codec import RejectedError
from murk.stream.wire.releases import ScoreRelease

if TYPE_CHECKING:
    from murk.stream.wire.columns import Columns

_ERROR_CODE = "MURK-LEARN-001"

_PLACES: Final[Mapping[str, int]] = {"score": 0, "scatter": 1, "curvature": 1, "covered": 2, ABOVE: 2}


class ScoreRules(AdmissionRules):
    """Admit answers to a remembered round's queries, within their mechanism's bound.

    ``models`` are the known models by version, by default the first one; an unknown model's queries are not checked.
    """

    kind = "score"

    def __init__(
        self, settings: Settings, mechanisms: LevelMechanisms, models: Mapping[int, Model] | None = None
    ) -> None:
        super().__init__(mechanisms, settings.lengths)
        if models is None:
            # What is asked does not depend on the first prediction set, which only devices compute.
            models = {0: replace(settings, wanted=None).first_model(mechanisms)}
        self.models = models
        self._settings = settings
        self._payload_bounds = map_levels(_payload_bounds_of, mechanisms)

    def check(self, release: ScoreRelease, count: int) -> None:
        """Raise RejectedError for a forged release, or if its round is not remembered after ``count`` releases."""
        self._check_version(release.version, count)
        model = self.models.get(release.version)
        if model is not None and not _asks(model, release.query, release.item):
            raise RejectedError("query", f"the model of version {release.version} does not ask this query")
        self.check_payload(release)

    def accepts(self, releases: Columns, count: int) -> bool:
        """Return True only if `check` is certain to pass all these releases, learned in turn after ``count`` others."""
        if not self._remembers(releases.distinct("version"), count, len(releases)):
            return False
        models, asked = self.models, releases.groups("version", "query", "item")
        all_known = all(version not in models or _asks(models[version], name, item) for version, name, item in asked)
        return all_known and self.payloads_fit(releases)

    def check_payload(self, release: ScoreRelease) -> None:
        """Raise RejectedError ("dimension" or "magnitude") for a forged release, whatever its version."""
        index = _PLACES[release.query]
        if index >= len(self.lengths):
            expected = "a matrix" if index == 1 else "an answer of one number"
            raise RejectedError("dimension", f"{expected}, which this task asks nobody for")
        if len(release.payload) != self.lengths[index]:
            raise RejectedError("dimension", f"{len(release.payload)} numbers for a {release.query}")
        if not self._payload_bounds[release.level][index].holds(release.payload):
            raise RejectedError("magnitude", FORGED)

    def payloads_fit(self, releases: Columns) -> bool:
        """Return True only if `check_payload` is certain to pass all these releases."""
        try:
            answers = releases.split("level", "query")
        except MurkError:
            # `split` fails if answers to one query have different lengths.
            return False
        lengths = {*enumerate(self.lengths)}
        return all(
            (_PLACES[asked], rows.shape[1]) in lengths and self._payload_bounds[level][_PLACES[asked]].holds_all(rows)
            for (level, asked), rows in answers.items()
        )

    def _check_version(self, version: int, count: int) -> None:
        """Raise RejectedError if a partition of ``count`` releases does not remember a version's model."""
        if version > count:
            raise RejectedError("future", f"version {version}, but the partition has {count} releases")
        if version != self._settings.round_start(version):
            raise RejectedError("version", f"no round begins at version {version}")
        if version < self._settings.remembered(count)[0]:
            raise RejectedError("stale", f"the round of version {version} is forgotten after {count} releases")

    def _remembers(self, versions: Set[int], count: int, releases: int) -> bool:
        """Return True only if `_check_version` is certain to pass this many releases of these versions."""
        start = self._settings.round_start
        # The oldest round may be forgotten before the last of the releases.
        oldest = self._settings.remembered(count + releases - 1)[0]
        return all(oldest <= version <= count and version == start(version) for version in versions)


class SharedScoreRules(ScoreRules):
    """Admit answers at models that all partitions share, whose newest ones the first partition's worker has made."""

    @property
    def model_size(self) -> int:
        """Length of a model."""
        return self._settings.model_size

    @property
    def newest(self) -> int:
        """Version of the newest known model."""
        return max(self.models)

    @property
    def next_model_at(self) -> int:
        """Number of releases of all partitions at which the next model is due."""
        return self._settings.round_end(self.newest)

    def hear(self, state: Mapping[str, Any]) -> None:
        """Add the models of the first partition's committed learner state; raise MurkError if the state is damaged."""
        settings = self._settings
        check_settings(state, settings)
        sizes, sets = (settings.features, settings.contrasts), settings.wanted is not None
        rounds = [read_round(each, *sizes, sets=sets) for each in rounds_of(state)]
        if not self.may_begin(starts := tuple(start for start, _ in rounds)):
            raise MurkError(f"the state's rounds begin at {[*starts]}, unlike those of a partition with shared models")
        self.models = {**self.models, **dict(rounds)}

    def hear_newest(self, version: int, flat: Sequence[float]) -> None:
        """Add the newest published model, even before the state that has it; raise HostileModelError if forged."""
        if version > self.newest:
            self.models = {**self.models, version: self.checked(version, flat)}

    def checked(self, version: int, flat: Sequence[float]) -> Model:
        """Return a published model; raise HostileModelError if nobody publishes it at this version."""
        if version != self._settings.round_start(version):
            raise HostileModelError(f"the model has version {version}, at which no model is published: refused")
        return self._settings.checked(np.array(flat))

    def may_begin(self, starts: tuple[int, ...]) -> bool:
        """Return whether a partition may remember rounds with these starts."""
        grid = all(start == self._settings.round_start(start) for start in starts)
        return grid and starts == tuple(sorted(set(starts))) and len(starts) <= REMEMBERED

    def remembered(self) -> list[int]:
        """Return the versions at which answers are admitted."""
        return sorted(self.models)[-REMEMBERED:]

    def _check_version(self, version: int, count: int) -> None:
        remembered = self.remembered()
        if version in remembered:
            return
        if version > remembered[-1]:
            raise RejectedError("future", f"version {version}, but the newest model has version {remembered[-1]}")
        if version > remembered[0] or version != self._settings.round_start(version):
            raise RejectedError("version", f"there was no model of version {version}")
        raise RejectedError("stale", f"the round of version {version} is forgotten")

    def _remembers(self, versions: Set[int], count: int, releases: int) -> bool:
        return versions <= set(self.remembered())


def check_settings(state: Mapping[str, Any], settings: Settings) -> None:
    """Raise MurkError if a learner's state belongs to other settings."""
    if state.get("schema") != 1 or state.get("settings") != settings.digest:
        raise MurkError("the state is of a learner with other settings: use those that it was learned with")


def rounds_of(state: Mapping[str, Any]) -> list[Any]:
    """Return the states of a partition's rounds; raise MurkError if there are none."""
    states = state.get("rounds")
    if not isinstance(states, list) or not states:
        raise MurkError("the state holds no rounds")
    return states


def read_round(state: Mapping[str, Any], features: int, contrasts: int, *, sets: bool = False) -> tuple[int, Model]:
    """Read start and model of a round's state; raise MurkError if no honest learner writes them."""
    # Imported here, as only tasks with shared models need it.
    from murk.stream.wire.state import count_of, unpack

    try:
        start, packed = state["start"], state["model"]
    except (KeyError, TypeError) as error:
        raise MurkError(f"the state holds no rounds ({type(error).__name__})") from error
    flat = unpack(packed, model_size(features, contrasts, sets=sets))
    try:
        return count_of(start, "round"), check_model(flat, features, contrasts, sets=sets)
    except HostileModelError as error:
        raise MurkError(f"the state is damaged: {error}") from None


def _payload_bounds_of(pair: ScoreMechanisms) -> tuple[PayloadBound, ...]:
    """Return the largest norms of a level's honest payloads, in the order of `Settings.lengths`."""
    return tuple(pair.mechanism(query).payload_bound for query in ("score", "curvature", "covered"))


def _asks(model: Model, query: str, item: int) -> bool:
    """Return whether a model asks a query."""
    if model.survey:
        return query == ABOVE and item < model.items
    return query != ABOVE and item == 0
