"""What is known of a task's learning: pure functions of its chains' committed states and of public settings."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from murk.learners.estimates.curve import CurvePoint, merged_curve
from murk.learners.estimates.drift import Drift, drift_of
from murk.learners.estimates.estimate import Estimate
from murk.learners.problem import Problem, plausible
from murk.learners.results.diagnosis import diagnose_task
from murk.monitoring.metrics.catalogue import STALENESS_BOUNDS
from murk.privacy import ApproxDP, GaussianDP, Guarantee, PureDP, ZeroConcentratedDP
from murk.privacy.mechanisms import Costed
from murk.privacy.mechanisms.privacy_loss import really_given
from murk.privacy.sketches import GaussMixMechanism, GramMechanism, NewtonMechanism
from murk.privacy.sketches.explain import described
from murk.stream.messages.state import Counters, StateMessage
from murk.stream.messages.trail import LEVEL, Trail
from murk.stream.task.registry import PROTOCOLS
from murk.stream.task.task import Task

Floats = NDArray[np.float64]

# What it would take to learn what was not is forecast again when the releases have grown so many times.
_ANEW = 1.25
# Whether the model has changed is judged again when so large a share of what the estimate is of is new.
_JUDGED_ANEW = 0.02


class Needed(NamedTuple):
    """What it would take to learn coefficients that were not, by name, and why, as told at so many releases."""

    releases: int
    of: Mapping[str, Mapping[str, Any]]
    why: str = ""


class Place(NamedTuple):
    """Where a chain is stored in the log: the offset that is committed, the end, and who owns the chain if known."""

    offset: int
    end: int
    owner: str | None = None


@dataclass(frozen=True, slots=True)
class LevelFigures:
    """One privacy level of the task, and how many releases were learned at it.

    ``epsilon`` and ``mu`` are what the guarantee states: a pure or approximate one an epsilon, a Gaussian one a
    mu, a zero-concentrated one ``mu = sqrt(2 rho)``; None otherwise. Nothing is converted.
    """

    name: str
    words: str
    guarantee: Mapping[str, Any]
    epsilon: float | None
    mu: float | None
    right_at_most: float
    learned: int


@dataclass(frozen=True, slots=True)
class ChainFigures:
    """One chain.

    Parameters
    ----------
    chain, version
        Its number, and how many releases it has learned.
    offset, lag, owner
        The offset that it has committed, how many more there are on the log, who owns it if that is known.
    iterate_gap
        Euclidean distance between its newest iterate and its average, in coded units.
    step_size
        Factor by which the gradient of its next release at the default level is multiplied.
    unbiased_loss, unbiased_loss_error
        Mean loss of its releases, estimated without bias, and its standard error.
    refused_updates
        Releases whose update was not finite or not plausible, and was left out.
    records
        Records in its releases, where a release is of many.

    What a protocol's learner does not know is None.
    """

    chain: int
    version: int
    offset: int
    lag: int
    owner: str | None
    iterate_gap: float | None = None
    step_size: float | None = None
    unbiased_loss: float | None = None
    unbiased_loss_error: float | None = None
    refused_updates: float | None = None
    records: float | None = None


@dataclass(frozen=True, slots=True)
class Figures:
    """All that is known of a task's learning at one moment.

    Parameters
    ----------
    releases, duplicates, dead
        What became of the messages read: learned, read before, dead letters by reason.
    staleness, staleness_sum
        Learned releases by age, one bucket for each of `STALENESS_BOUNDS` and one for what is beyond; and the
        sum of ages. None where nothing grows stale: releases are of no model, or of an epoch's.
    levels, chains
        The privacy levels; the chains.
    names, values, half_widths
        Coefficients in coded units, all chains merged; infinite half widths where nothing is known yet.
    method, note
        How the intervals are made, and what is known of them.
    estimated_error
        Root of the summed squared standard errors of the coefficients; infinite where nothing is known yet.
    parameter_error
        Euclidean distance from the reference; None without one.
    alike
        Whether public covariates pass the check that they are like the people's; None where none is made.
    needed
        What it would take to learn the coefficients that scores did not learn.
    releases_used
        Releases that the estimate is of: the newest, where older ones were forgotten.
    drift
        Whether the coefficients have changed beyond noise; None where the estimates come without standard errors.
    curve
        How the estimate has moved, as the chains' states have it.
    unbiased_loss, unbiased_loss_error
        Mean loss over all chains' releases, estimated from the releases without bias, and its standard error; None
        where the protocol has none, or nothing is known yet.
    """

    releases: int
    duplicates: int
    dead: Mapping[str, int]
    staleness: tuple[int, ...] | None
    staleness_sum: int
    levels: tuple[LevelFigures, ...]
    chains: tuple[ChainFigures, ...]
    names: tuple[str, ...]
    values: tuple[float, ...]
    half_widths: tuple[float, ...]
    method: str
    note: str
    estimated_error: float
    parameter_error: float | None
    curve: tuple[CurvePoint, ...] = ()
    unbiased_loss: float | None = None
    unbiased_loss_error: float | None = None
    alike: bool | None = None
    needed: Needed = field(default_factory=lambda: Needed(0, {}))
    releases_used: int = 0
    drift: Drift | None = None

    @property
    def lag(self) -> int:
        """Offsets on the log that were not committed yet, over all chains."""
        return sum(chain.lag for chain in self.chains)

    @property
    def mean_staleness(self) -> float | None:
        """Mean age of the learned gradients; None where none has been counted."""
        counted = sum(self.staleness or ())
        return self.staleness_sum / counted if counted else None

    @property
    def refused_updates(self) -> float | None:
        """Updates that were left out, over all chains; None where the learner refuses none."""
        return _sum(chain.refused_updates for chain in self.chains)

    @property
    def records(self) -> float | None:
        """Records in the learned releases, over all chains; None where each release is of one."""
        return _sum(chain.records for chain in self.chains)

    def placed(self, places: Sequence[Place]) -> Figures:
        """The same states on a log that has gone on since."""
        chains = tuple(
            replace(chain, offset=place.offset, lag=max(0, place.end - place.offset), owner=place.owner)
            for chain, place in zip(self.chains, places, strict=True)
        )
        return replace(self, chains=chains)


def figures(
    task: Task,
    problem: Problem,
    messages: Sequence[StateMessage | None],
    places: Sequence[Place],
    reference: Mapping[str, float] | None = None,
    before: Figures | None = None,
) -> Figures:
    """Work out everything that is shown, from one state message (or None) and one place for each chain.

    Of ``before``, the figures of earlier states, what takes long is kept as long as it is nearly the same.

    Raises
    ------
    MurkError
        When a learner's state is not one of this problem.

    Examples
    --------
    >>> from murk.learners.problem import problem_for
    >>> task = Task.parse('''
    ... name: third-child
    ... features: [{name: age, low: 21, high: 35}]
    ... target: {name: third_child, kind: binary, positive: yes, negative: no}
    ... privacy: {guarantee: {gdp: {mu: 1.0}}}
    ... ''')
    >>> nothing = figures(task, problem_for(task), [None], [Place(0, 0)])
    >>> nothing.releases, nothing.names, nothing.levels[0].mu
    (0, ('age', 'intercept'), 1.0)
    """
    engines = []
    for message in messages:
        engine = problem.engine()
        if message is not None:
            engine.load_state_dict(message.learner)
        engines.append(engine)
    counters = [Counters() if message is None else message.counters for message in messages]
    with plausible():
        found = problem.estimate(engines)
        chains = tuple(
            ChainFigures(chain, engine.n_releases, 0, 0, None, **engine.figures())
            for chain, engine in enumerate(engines)
        )
        trails = [Trail() if message is None else message.trail for message in messages]
        curve = merged_curve(trails, len(found.names), found.method)
        halves = tuple(map(float, found.half_widths(LEVEL)))
        needed = _needed(task, found, halves, None if before is None else before.needed)
        drift = _drift(problem, engines, found, curve, None if before is None else before.drift)
    loss, loss_error = _unbiased_loss(chains)
    dead: Counter[str] = Counter()
    learned: Counter[str] = Counter()
    for one in counters:
        dead.update(one.dead)
        learned.update(one.levels)
    return Figures(
        releases=sum(one.learned for one in counters),
        duplicates=sum(one.duplicates for one in counters),
        dead=dict(sorted(dead.items())),
        staleness=_ages(counters) if PROTOCOLS[task.protocol].reads_staleness else None,
        staleness_sum=sum(one.staleness_sum for one in counters),
        levels=tuple(
            _level(name, promise, problem.mechanisms[name], learned[name])
            for name, promise in task.privacy.levels.items()
        ),
        chains=chains,
        names=found.names,
        values=tuple(map(float, found.values)),
        half_widths=halves,
        method=found.method,
        note=found.note,
        estimated_error=found.standard_error,
        parameter_error=None if reference is None else distance(found.names, found.values, reference),
        curve=curve,
        unbiased_loss=loss,
        unbiased_loss_error=loss_error,
        alike=found.alike,
        needed=needed,
        releases_used=found.releases_used,
        drift=drift,
    ).placed(places)


def _needed(task: Task, found: Estimate, halves: Sequence[float], before: Needed | None) -> Needed:
    """What it would take to learn what was not: as forecast before, where it is of the same and not much was added."""
    if not found.forecasts or not found.n_releases:
        return Needed(0, {})
    unknown = {name for name, half in zip(found.names, halves, strict=True) if not math.isfinite(half)}
    if before is not None and unknown == before.of.keys() and found.n_releases < _ANEW * before.releases:
        return before
    needs = {name: need.to_dict() for name, need in (found.needs(LEVEL) if unknown else {}).items()}
    report = {
        "confidence_intervals": found.intervals(LEVEL),
        "interval": {"level": LEVEL},
        "not_learned": list(needs),
        "needed": needs,
        "releases": found.n_releases,
        "levels": {name: {"guarantee": each.to_dict()} for name, each in task.privacy.levels.items()},
    }
    why = diagnose_task(task, report, found)
    return Needed(found.n_releases, needs, why["words"] if why else "")


def _drift(
    problem: Problem, engines: Sequence[Any], found: Estimate, curve: Sequence[CurvePoint], before: Drift | None
) -> Drift | None:
    """Whether the coefficients have changed: as judged before, where not much was added."""
    added = 0 if before is None else found.n_releases - before.releases
    if before is not None and before.compared and 0 <= added < _JUDGED_ANEW * found.releases_used:
        return before
    return drift_of(problem, engines, found, curve)


def _ages(counters: Sequence[Counters]) -> tuple[int, ...]:
    ages = [0] * (len(STALENESS_BOUNDS) + 1)
    for one in counters:
        for bits, count in enumerate(one.staleness):
            ages[min(bits, len(STALENESS_BOUNDS))] += count
    return tuple(ages)


def _level(name: str, guarantee: Guarantee, mechanism: Costed, learned: int) -> LevelFigures:
    epsilon = mu = None
    guarantee = really_given(guarantee, mechanism.guarantees)
    if isinstance(guarantee, PureDP | ApproxDP):
        epsilon = guarantee.epsilon
    elif isinstance(guarantee, GaussianDP):
        mu = guarantee.mu
    elif isinstance(guarantee, ZeroConcentratedDP):
        mu = math.sqrt(2.0 * guarantee.rho)
    words, pair = guarantee.describe(), guarantee
    if isinstance(mechanism, GaussMixMechanism | GramMechanism | NewtonMechanism):
        # Stated for a record and a blank one: how well two records are distinguished is another figure.
        words, pair = described(mechanism)
    return LevelFigures(name, words, guarantee.to_dict(), epsilon, mu, pair.max_attack_accuracy, learned)


def _unbiased_loss(chains: Sequence[ChainFigures]) -> tuple[float | None, float | None]:
    """Mean over all chains' releases, and its standard error: of chains that know theirs, and by their releases."""
    parts = [(chain, chain.unbiased_loss) for chain in chains if chain.version and chain.unbiased_loss is not None]
    total = sum(chain.version for chain, _ in parts)
    if not total:
        return None, None
    loss = sum(chain.version * loss for chain, loss in parts) / total
    # Of a single release the spread is unknown, not zero.
    errors = [chain.unbiased_loss_error or math.inf for chain, _ in parts]
    error = math.hypot(*(chain.version * one for (chain, _), one in zip(parts, errors, strict=True))) / total
    return loss, error if math.isfinite(error) else None


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def distance(names: Sequence[str], values: Sequence[float] | Floats, reference: Mapping[str, float]) -> float:
    """Euclidean distance of coefficients from the reference."""
    truth = np.array([reference[name] for name in names])
    return float(np.linalg.norm(np.asarray(values) - truth))
