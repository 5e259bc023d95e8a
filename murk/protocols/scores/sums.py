"""Exact sums of released integers by round, level and query, and the mean answers that follow from them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from murk._internal.arrays import Floats, Integers
from murk.errors import MurkError
from murk.inference.poisoning import longest
from murk.privacy.mechanisms.base import direction_spread, is_directional
from murk.privacy.mechanisms.lattice import NATS
from murk.privacy.mechanisms.outer_product import matrix_size
from murk.protocols.linear_algebra import symmetric
from murk.protocols.scores.mechanisms import LevelMechanisms, ScoreMechanisms
from murk.protocols.scores.model import ABOVE, ALL_QUERIES, QUERIES, Model, Query, above, item_of, model_size
from murk.protocols.scores.survey.shapes import Reply
from murk.stream.wire.state import count_of, pack, unpack, whole_sums

_ERROR_CODE = "MURK-LEARN-001"

Key = tuple[str, Query]
_LIKELY = 2.5  # standard deviations of noise beyond which answers to a survey are clipped


@dataclass(frozen=True)
class Tally:
    """Releases of one level that answer one query."""

    count: int  # number of releases
    total: list[int]  # sums of their integers, as Python integers, which neither round nor overflow


@dataclass(frozen=True)
class Round:
    """One round of a partition: its model, and the sums of releases made at it; immutable."""

    start: int  # version at which it began
    model: Model  # the model that its people read
    tallies: Mapping[Key, Tally] = field(default_factory=dict)  # tallies by level and query

    def plus(self, level: str, query: Query, pair: ScoreMechanisms, payloads: Integers) -> Round:
        """Return the round with payloads (m, d) of one level and query added, few enough for 64-bit sums."""
        mechanism: Any = pair.mechanism(query)
        if is_directional(mechanism):
            # Directions are rounded to integers.
            payloads = np.asarray(np.rint(mechanism.decode(payloads) / step_of(mechanism)), dtype=np.int64)
        elif item_of(query) is not None:
            # A forged answer counts for no more than a likely honest one.
            farthest = round((1.0 + _LIKELY * math.sqrt(mechanism.variance)) / mechanism.unit)
            payloads = np.clip(payloads, -farthest, farthest)
        sums = (payloads[0] if len(payloads) == 1 else payloads.sum(axis=0)).tolist()
        return self.joined(level, query, Tally(len(payloads), sums))

    def joined(self, level: str, query: Query, tally: Tally) -> Round:
        """Return the round with a tally added."""
        known = self.tallies.get((level, query))
        if known is not None:
            total = [old + new for old, new in zip(known.total, tally.total, strict=True)]
            tally = Tally(known.count + tally.count, total)
        return Round(self.start, self.model, {**self.tallies, (level, query): tally})

    def to_state(self) -> dict[str, Any]:
        """Return plain data."""
        tallies: list[dict[str, Any]] = []
        surveyed: dict[str, tuple[list[int], list[int]]] = {}
        for (level, query), tally in sorted(self.tallies.items()):
            item = item_of(query)
            if item is None:
                tallies.append({"level": level, "query": query, "count": tally.count, "total": list(tally.total)})
                continue
            empty = [0] * self.model.items
            counts, totals = surveyed.setdefault(level, (empty, empty.copy()))
            counts[item], totals[item] = tally.count, tally.total[0]
        tallies += [
            {"level": level, "query": ABOVE, "count": counts, "total": totals}
            for level, (counts, totals) in surveyed.items()
        ]
        return {"start": self.start, "model": pack(self.model.flat), "tallies": tallies}

    @classmethod
    def of_state(
        cls, state: Mapping[str, Any], features: int, contrasts: int, levels: Iterable[str], *, sets: bool = False
    ) -> Round:
        """Read what `to_state` wrote; raise MurkError if the state is malformed."""
        try:
            start, packed, tallies = state["start"], state["model"], state["tallies"]
            model = Model.of(unpack(packed, model_size(features, contrasts, sets=sets)), features, sets=sets)
            sums: dict[Key, Tally] = {}
            asked = (ABOVE,) if model.survey else ALL_QUERIES if sets else QUERIES
            sizes = {"score": contrasts * features, "covered": 1, ABOVE: model.items}
            for tally in tallies:
                level, query = tally["level"], tally["query"]
                size = sizes.get(query, matrix_size(features))
                total = whole_sums(tally["total"], size if level in levels and query in asked else None)
                if query != ABOVE:
                    sums[level, query] = Tally(count_of(tally["count"], "count"), total)
                    continue
                if len(tally["count"]) != size:
                    raise MurkError("the state holds sums of another task")
                for item, (count, value) in enumerate(zip(tally["count"], total, strict=True)):
                    if count_of(count, "count"):
                        sums[level, above(item)] = Tally(count, [value])
            return cls(count_of(start, "round"), model, sums)
        except (KeyError, TypeError) as error:
            raise MurkError(f"the state holds no rounds ({type(error).__name__})") from error


def step_of(mechanism: Any) -> float:
    """Return the unit of the integers that are added up."""
    return float(mechanism.unit * 2.0**-30 if is_directional(mechanism) else mechanism.unit)


def share_of(model: Model, query: Query) -> float:
    """Return the share of people whom a model asks a query; 1 for scores, with which everybody may answer."""
    if model.survey:
        return 1.0 / model.items
    return 1.0 if query == "score" else model.shares[query]


def most_answers(releases: int, share: float) -> float:
    """Return a bound on answers to a query of this share that fails with probability e^-NATS at most (Bernstein)."""
    if share <= 0.0:
        return 0.0
    varies = releases * share * max(1.0 - share, 0.0)
    return releases * share + math.sqrt(2.0 * NATS * varies) + NATS / 3.0


def counted_answers(round_: Round, level: str, query: Query, tally: Tally) -> float:
    """Return the weight of a level's answers to a query: their number, at most the number that its share allows."""
    releases = sum(each.count for (own, _), each in round_.tallies.items() if own == level)
    return min(float(tally.count), most_answers(releases, share_of(round_.model, query)))


@dataclass(frozen=True)
class Answer:
    """The mean answer to one query in a round."""

    mean: Floats  # (p,), or (p, p) in units of the matrix itself
    noise: float  # variance of each number's noise
    share: float  # factor of one person's own spread: 1 over the number of people, if all have one level
    whole: float  # the same for mechanisms that release a direction, whatever the length of their input
    farthest: float = 0.0  # most by which one forged answer moves the mean; of answers about prediction sets only

    def times(self, factor: float) -> Answer:
        """Return the answer multiplied by ``factor``, with its variances by the square."""
        square = factor**2
        return Answer(factor * self.mean, square * self.noise, square * self.share, square * self.whole)


@dataclass(frozen=True)
class Summary:
    """A round's model and its mean answers."""

    model: Model
    score: Answer | None
    scatter: Answer | None
    curvature: Answer | None
    covered: Answer | None = None


Summaries = Sequence[Summary]


def summaries(rounds: Sequence[Round], mechanisms: LevelMechanisms, features: int) -> list[Summary]:
    """Return the mean answers of rounds, combining levels by inverse variance."""
    means = []
    for round_ in rounds:
        answers = {query: _answer(round_, query, mechanisms, features) for query in QUERIES}
        if any(answer is not None for answer in answers.values()):
            covered = None if round_.model.sets is None else _answer(round_, "covered", mechanisms, features)
            means.append(Summary(round_.model, answers["score"], answers["scatter"], answers["curvature"], covered))
    return means


def replies_of(rounds: Iterable[Round], mechanisms: LevelMechanisms, features: int) -> list[list[Reply]]:
    """Return the mean answers to a survey's queries by column, a target last, with thresholds in coded units."""
    replies: list[list[Reply]] = [[] for _ in range(features)]
    for round_ in rounds:
        for item in range(round_.model.items if round_.model.survey else 0):
            answer = _answer(round_, above(item), mechanisms, features)
            if answer is None:
                continue
            column, threshold = round_.model.item(item)
            coded = round_.model.coded(column, threshold)
            replies[column].append(Reply(coded, float(answer.mean[0]), answer.noise, answer.share))
    return replies


def _answer(round_: Round, query: Query, mechanisms: LevelMechanisms, features: int) -> Answer | None:
    weight, noise, share, whole, farthest = 0.0, 0.0, 0.0, 0.0, 0.0
    size = next(iter(mechanisms.values())).mechanism(query).dimension
    total = np.zeros(size)
    for level in mechanisms:
        tally = round_.tallies.get((level, query))
        if tally is None or tally.count == 0:
            continue
        mechanism = mechanisms[level].mechanism(query)
        variance, along = direction_spread(mechanism)
        precision = 1.0 / (variance + 1.0 / size)
        count = counted_answers(round_, level, query, tally)
        # Exactly 1 unless a query has more answers than its share allows.
        counts = count / tally.count
        total = total + counts * precision * step_of(mechanism) * np.array([float(value) for value in tally.total])
        weight += precision * count
        noise += precision**2 * count * variance
        if query == "covered":
            farthest = max(farthest, precision * longest(mechanism))
        if along is None:
            share += precision**2 * count
        else:
            whole += precision**2 * count * along
    if weight == 0.0:
        return None
    mean: Floats = total / weight
    if query in ("score", "covered") or item_of(query) is not None:
        return Answer(mean, noise / weight**2, share / weight**2, whole / weight**2, farthest / weight)
    # A matrix is released in units of M/2.
    unit = round_.model.matrix_clipping_norm / 2.0
    scale = (unit / weight) ** 2
    return Answer(unit * symmetric(mean, features), scale * noise, scale * share, scale * whole)
