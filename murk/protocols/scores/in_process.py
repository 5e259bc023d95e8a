"""Learning scores from raw records in one process, which draws queries and randomizes. Does not import River."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from murk._internal.arrays import Floats, Integers
from murk._internal.jit import worth_compiling
from murk._internal.lazy import map_levels
from murk._internal.locks import locked
from murk._internal.wiping import copied, track, wiped
from murk.errors import MurkError, UserError
from murk.inference.prediction_sets import PredictionSets
from murk.privacy.guarantees import Guarantee, guarantee_from_dict
from murk.privacy.noise import NoiseSource, Purpose, SecureNoise, SimulatedNoise
from murk.protocols.engine import RecordEngine
from murk.protocols.one_record import TOO_FEW, Held, finish_draw, trials_for
from murk.protocols.options import check_guarantees
from murk.protocols.scores import fast_records as k
from murk.protocols.scores.engine import Answered, PartitionState, ScoreEngine, merged_of, partition_state, reaches
from murk.protocols.scores.estimate import ScoreEstimate
from murk.protocols.scores.fast_records import LearnKernel, record_kernel
from murk.protocols.scores.mechanisms import ScoreMechanisms
from murk.protocols.scores.model import Query, drawn_queries, query_at, vectors, with_constant
from murk.protocols.scores.settings import Settings
from murk.protocols.scores.sums import Round
from murk.task.values import number

_ERROR_CODE = "MURK-LEARN-001"

TURN: Final = 65_536  # records learned before other threads get a turn; the sum of their integers fits into 64 bits


class InProcessScores(RecordEngine, ScoreEngine):
    """A partition that draws each record's query, randomizes the answer and learns it, once.

    Sums are kept by level; a person's own guarantee becomes a level with the guarantee's repr as name. Predictions use
    the solution at the last count given by `shown_next`. ``make`` returns the mechanisms of a guarantee.
    """

    _kernels = k

    def __init__(
        self,
        settings: Settings,
        guarantees: Mapping[str, Guarantee],
        make: Callable[[Guarantee], ScoreMechanisms],
        noise: NoiseSource,
    ) -> None:
        self._make, self._noise = make, noise
        self._seed = noise.seed if type(noise) is SimulatedNoise else None
        self._direct = self._seed is not None or type(noise) is SecureNoise
        self._trials = 0 if self._seed is not None else trials_for(settings.dimension)
        self._declared = dict(guarantees)
        self._own: dict[str, Guarantee] = {}
        super().__init__(settings, {level: make(guarantee) for level, guarantee in guarantees.items()})
        # The learner's own guarantee is "default", even if another level has the same guarantee.
        self._names = {guarantee: level for level, guarantee in guarantees.items()} | {guarantees["default"]: "default"}
        self._solved: tuple[tuple[PartitionState, ScoreEstimate], ...] = ()

    # Levels

    def level(self, guarantee: Guarantee) -> str:
        """Return the level of a guarantee, added if new; raise UserError if it is infeasible, or there are too many."""
        try:
            return self._names[guarantee]
        except (KeyError, TypeError):
            return self._new_level(guarantee)

    @locked
    def _new_level(self, guarantee: Guarantee) -> str:
        return self._own_level(guarantee)

    def _own_level(self, guarantee: Guarantee) -> str:
        if not isinstance(guarantee, Guarantee):
            raise UserError(f"guarantee={guarantee!r} is not a guarantee; give one such as GaussianDP(mu=1.0)")
        name = repr(guarantee)
        if name in self._declared:
            raise UserError(f"levels={{...}} gives the name {name!r} to a different guarantee: rename that level")
        if name not in self._own:
            check_guarantees(guarantee, len(self._own))
            pair = self._make(guarantee)
            # Ordered by name, so that sums over levels do not depend on the order of people.
            declared = dict(sorted({**self._own, name: guarantee}.items()))
            known = {**self.mechanisms, name: pair}
            mechanisms = {level: known[level] for level in (*self._declared, *declared)}
            self._payload_bounds = map_levels(reaches, mechanisms)
            self.mechanisms, self._own = mechanisms, declared
        self._names[guarantee] = name
        return name

    # Records, each randomized once

    @property
    def n_releases(self) -> int:
        """Number of learned releases."""
        memory = self.memory
        return int(memory.learned.count + memory.count)

    @property
    def now(self) -> PartitionState:
        """The partition so far."""
        memory = self.memory
        partition: PartitionState = memory.joined(self._advanced) if memory.count else memory.learned
        return partition

    @now.setter
    def now(self, partition: PartitionState) -> None:
        self._hold(Held(partition), None)

    def use(self, level: str) -> None:
        """Select the privacy level for the next records, using the kernel of one record where possible."""
        now, pair = self.now, self.mechanisms[level]
        memory = Held(now)
        if (
            self._direct
            and record_kernel(pair, self.model)
            and worth_compiling(k.learn_record, self.settings.dimension)
        ):
            memory = LearnKernel(now, level, pair, self.settings, self._until_next_model(), self._seed)
        self._hold(memory, level)

    def _learn_slowly(self, y: float, missing: int) -> None:
        memory = self.memory
        if missing == TOO_FEW:
            words, trials, noise = memory.asked()
            finish_draw(words, trials, noise)
            k.learn_record(memory.address, y, 0)
            return
        values = [number(value) for value in memory.features.tolist()]
        memory.wipe()
        self._learn_row(values, y)

    def _learn_block(self, X: Floats, y: Floats) -> None:
        self._learn_records(X, y, (self.current or "default",))

    def learn_records(self, X: Floats, y: Floats, levels: Sequence[str]) -> None:
        """Randomize the answers of coded records (m, p), the constant last or left out, and learn from them in order.

        ``y`` (m,) is NaN where missing; ``levels`` has each record's level, or one for all.
        """
        for start in range(0, len(X), TURN):
            part = slice(start, start + TURN)
            self._learn_in_turn(X[part], y[part], levels if len(levels) == 1 else levels[part])

    @locked
    def _learn_in_turn(self, X: Floats, y: Floats, levels: Sequence[str]) -> None:
        self._learn_records(X, y, levels)

    @wiped
    def _learn_records(self, X: Floats, y: Floats, levels: Sequence[str]) -> None:
        alike = len(levels) == 1 and self._seed is not None
        warm = alike and worth_compiling(k.learn_rows, len(X) * self.settings.dimension)
        done = 0
        while done < len(X):
            together = warm and record_kernel(self.mechanisms[levels[0]], self.model)
            left = self._left() if together else self._until_next_model()
            part = slice(done, min(len(X), done + left))
            if together:
                self._learn_rows(X[part], y[part], levels[0])
            else:
                coded = X[part] if X.shape[1] == self.settings.features else with_constant(X[part])
                self._add(self._answers(coded, y[part], levels if len(levels) == 1 else levels[part]))
            done = part.stop

    def _learn_rows(self, X: Floats, y: Floats, level: str) -> None:
        """Learn from rows of one level, at most until the round's end, in one kernel call."""
        now = self.now
        # A separate memory: the kernel runs without the interpreter's lock, and nobody may read half of a row.
        memory = LearnKernel(now, level, self.mechanisms[level], self.settings, len(X), self._seed)
        try:
            k.learn_rows(memory.address, copied(X), copied(y))
        except BaseException:
            memory.wipe()
            raise
        self.now = memory.joined(self._advanced)

    def _answers(self, X: Floats, y: Floats, levels: Sequence[str]) -> dict[Answered, Integers]:
        count, round_ = self.now.count, self.now.rounds[-1]
        people = np.arange(count, count + len(X), dtype=np.int64)
        queries = drawn_queries(self._noise.words(people, 1, Purpose.QUERY)[:, 0], round_.model)
        answers: dict[Answered, Integers] = {}
        for indices, level, query in _groups(levels, queries):
            rows, targets = (values if isinstance(indices, slice) else track(values[indices]) for values in (X, y))
            given = vectors(rows, targets, round_.model, self.settings.response, query, self.settings.coverage)
            mechanism = self.mechanisms[level].mechanism(query)
            answers[round_.start, level, query] = mechanism.randomize(given, self._noise, people[indices])
        return answers

    # Predictions

    def _left(self) -> int:
        """Return the number of records until the round ends or predictions change."""
        count = self.now.count
        return min(self.settings.round_end(count), self.settings.shown_next(count)) - count

    def _advanced(self, before: PartitionState, count: int, rounds: tuple[Round, ...]) -> PartitionState:
        now = super()._advanced(before, count, rounds)
        if count == self.settings.shown_next(before.count):
            return now
        return replace(now, shown=before.shown or before)

    def estimate(self) -> ScoreEstimate:
        """Return the estimate in coded units, with intervals, cached until the next release."""
        return self._estimate(self.now)

    def shown(self) -> Floats:
        """Return coefficients for predictions, shrunk more than the estimate, (p,); for K classes ((K - 1) p,)."""
        now = self.now
        solution = self._estimate(now.shown or now).solution
        settings = self.settings
        unknown = np.zeros(max(len(settings.labels) - 1, 1) * settings.features)
        if solution is None:
            return unknown
        return solution.origin if now.coordinates is None else now.coordinates.in_target(solution.origin)

    def sets(self) -> PredictionSets | None:
        """Return the prediction sets, which change when predictions do; None if they are not asked for."""
        now = self.now
        return self._estimate(now.shown or now).sets

    def _estimate(self, partition: PartitionState) -> ScoreEstimate:
        solved = self._solved
        for known, estimate in solved:
            if known is partition:
                return estimate
        solved_estimate = merged_of(self.settings, [(partition, self.mechanisms)])
        now = self.now
        # At most two solutions are cached: the newest, and the one for predictions.
        kept = [each for each in solved if each[0] is now or each[0] is now.shown]
        self._solved = (*kept, (partition, solved_estimate))[-2:]
        return solved_estimate

    def __getstate__(self) -> dict[str, Any]:
        # A copy computes the solutions and creates the kernel's memory again.
        return {**self.__dict__, "_solved": (), "memory": Held(self.now), "current": None, "_in_place": False}

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state as plain data, from which learning continues bit for bit."""
        now = self.now
        levels = {
            level: {"guarantee": guarantee.to_dict(), "mechanism": self.mechanisms[level].kind}
            for level, guarantee in {**self._declared, **self._own}.items()
        }
        shown = None if now.shown is None else partition_state(now.shown)
        return {**super().state_dict(), "levels": levels, **partition_state(now), "shown": shown}

    def _read(self, state: Mapping[str, Any]) -> PartitionState:
        try:
            levels = {
                level: (guarantee_from_dict(one["guarantee"]), one["mechanism"])
                for level, one in state["levels"].items()
            }
            shown = state["shown"]
        except (KeyError, TypeError, AttributeError) as error:
            raise MurkError(f"the state is malformed: it needs levels and shown ({type(error).__name__})") from error
        for level, (guarantee, kind) in levels.items():
            declared = self._declared.get(level)
            if declared is None and level == repr(guarantee):
                self._own_level(guarantee)
                declared = guarantee
            if declared != guarantee or self.mechanisms[level].kind != kind:
                raise MurkError(
                    f"the state's level {level!r} has {guarantee!r} and the {kind} mechanism, but this learner's has "
                    "others: make the learner with the guarantee, levels and mechanism of the state"
                )
        now = super()._read(state)
        earlier = None if shown is None else super()._read(shown)
        if earlier is not None and earlier.count >= now.count:
            raise MurkError("the state's predictions use more releases than the state holds")
        return replace(now, shown=earlier)


def _groups(levels: Sequence[str], queries: Integers) -> Iterator[tuple[slice | Integers, str, Query]]:
    """Yield the records of each level and query."""
    if len(queries) == 1:
        yield slice(None), levels[0], query_at(int(queries[0]))
        return
    names = sorted(set(levels))
    level_indices = np.array([names.index(level) for level in levels], dtype=np.int64)
    for level_index, level in enumerate(names):
        for query in np.unique(queries).tolist():
            records = np.flatnonzero((queries == query) & (level_indices == level_index))
            if len(records):
                yield records, level, query_at(query)
