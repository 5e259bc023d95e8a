r"""Which protocol is best for a task: a rule, from what each one's noise comes to.

What is compared is the error of an average effect: by how much a standard deviation of a feature changes the
probability of a positive target, or a real target in terms of its range, in points (hundredths). With n people, p coded
features (the constant among them) and s^2 the variance of a number of a release of length 1 it is, for coefficients of
ordinary size, about

.. math::
    50\, c \sqrt{p\,(s^2 + 1/p) / n} \quad\text{(scores, gradients, directions)}, \qquad
    50\, c \sqrt{4\,(s_{xy}^2 + s_{xx}^2) / n} \quad\text{(second moments)}

and, of examples without public rows, as the second with ``s_xy^2 = (s^4 + s^2) L^4``, L^2 a record's squared length; of
their outer products always, with ``s_xy^2 = s_xx^2 = s^2 (1 + L^2)^2 / 2`` and c proportional to p.
Where the distribution of the features is not known, moments and examples miss something of a logistic model that no
number of people lowers, about ``2 / sqrt(d)`` points for d features. The factors c were measured (`python -m
benchmarks.protocols`), of a binary target, and hold within a factor of 2 or so: enough to tell protocols apart, not to
plan a study by: `murk.planning` forecasts half widths, by which the rule can choose instead. What is no error
at all, but decides, is asked for: whether devices can read a model before they release, and whether an organisation
that has the records is trusted with them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from murk.errors import UserError
from murk.learners.core.problem import Problem, problem_for
from murk.learners.core.scoring.problem import ScoreProblem
from murk.learners.examples.problem import ExampleProblem
from murk.learners.gradients.problem import GradientProblem
from murk.learners.moments.mechanism import Level
from murk.learners.moments.problem import MomentProblem
from murk.privacy.sketches import GramMechanism, NewtonMechanism
from murk.stream.task.privacy import DEFAULT_LEVEL
from murk.stream.task.registry import MOST_OF_SCORES, PROTOCOLS
from murk.stream.task.task import Task

_ORDER: Final = ("scores", "moments", "gradients", "examples", "sketch")
"""Of protocols that do about equally well the first is taken: it asks least of the public rows, or for least trust."""

EQUAL: Final = 1.25
"""What is larger by less does about equally well."""
_NOTHING: Final = 0.1
"""Points of error below which it is all one: nobody need be trusted for less."""
# c, with public rows and without: of gradients and examples (their directions) those of a binary target.
_FACTORS: Final[Mapping[str, tuple[float, float]]] = {
    "scores": (1.7, 2.7),
    "moments": (1.7, 1.4),
    "gradients": (2.2, 3.6),
    "examples": (4.5, 2.6),
}
# Of outer products c grows with the number of coefficients: the more there are, the more directions noise hides.
_OUTER: Final = 0.45
# Of a coded feature's variance, and of the target's share that a model explains, on the way from moments to effects.
_VARIANCE, _EXPLAINED = 0.25, 0.2
# Points that are missed of a logistic model where the distribution of the features is not known, times the root of d.
_MISSED = 2.0
ONLINE: Final = ("scores", "gradients")


@dataclass(frozen=True)
class Recommendation:
    """What to choose, and why.

    Parameters
    ----------
    protocol
        As a task file says it.
    reason
        In words.
    expected
        Protocol to the expected error of an average effect of a standard deviation of a feature, in points: of each
        that would do, the best first.
    refused
        Protocol to the reason for which it would not.
    measure
        What is expected: an ``error``, or a ``half width``.
    method
        Of a sketch, ``sketch.method`` where another than the default is expected to do clearly better.
    """

    protocol: str
    reason: str
    expected: Mapping[str, float]
    refused: Mapping[str, str] = field(default_factory=dict)
    measure: Literal["error", "half width"] = "error"
    method: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "protocol": self.protocol,
            **({} if self.method is None else {"method": self.method}),
            "reason": self.reason,
            f"expected_{self.measure.replace(' ', '_')}_points": dict(self.expected),
            "refused": dict(self.refused),
        }


def recommend(
    task: Task, people: int, *, online: bool = True, organisation: bool = False,
    half_widths: Mapping[str, float] | None = None,
) -> Recommendation:  # fmt: skip
    """The protocol with which a task would be learned best.

    Parameters
    ----------
    task
        Features, target, guarantee of the default level, and whether there are public covariates; the protocol that it
        names, and that one's own settings, are not looked at.
    people
        How many will release.
    online
        Whether devices can read a model before they release.
    organisation
        Whether an organisation holds the records already, and is trusted with them.
    half_widths
        Protocol to the half width that was forecast of its intervals, in points, by which it is then chosen (infinite
        where it has none); by default it is by the expected error.

    Raises
    ------
    UserError
        If no protocol can give what the task asks for.

    Examples
    --------
    >>> task = Task.parse('''
    ... name: third-child
    ... features: [{name: age, low: 21, high: 35}]
    ... target: {name: third_child, kind: binary, positive: yes, negative: no}
    ... privacy: {guarantee: {gdp: {mu: 1.0}}}
    ... ''')
    >>> recommend(task, 100_000).protocol, recommend(task, 100_000, online=False).protocol
    ('scores', 'examples')
    """
    if people < 1:
        raise UserError(f"people={people!r}: give how many will release, at least 1")
    expected: dict[str, float] = {}
    refused: dict[str, str] = {}
    better: str | None = None
    for name in PROTOCOLS:
        if name in ONLINE and not online:
            refused[name] = "devices would have to read a model before they release"
        elif name == "sketch" and not organisation:
            refused[name] = "no organisation is trusted with the records"
        elif name == "scores" and task.public is None and task.coding.size >= MOST_OF_SCORES:
            refused[name] = f"{task.coding.size} coded features are too many for matrices of their second moments"
        else:
            if half_widths is not None:
                if math.isfinite(half_widths.get(name, math.inf)):
                    expected[name] = half_widths[name]
                else:
                    refused[name] = "no interval"
                continue
            try:
                expected[name] = expected_error(task, name, people)
                if name == "sketch" and task.target.kind == "binary":
                    step = expected_error(task, name, people, method="newton")
                    if step * EQUAL < expected[name]:
                        expected[name], better = step, "newton"
            except UserError as error:
                refused[name] = str(error)
    if not expected:
        raise UserError("no protocol can give this: " + "; ".join(f"{name}: {why}" for name, why in refused.items()))
    least = min(expected.values())
    enough = EQUAL * least if half_widths is not None else max(EQUAL * least, _NOTHING)
    best = next(name for name in _ORDER if expected.get(name, math.inf) <= enough)
    ranked = {best: expected[best]} | dict(sorted(expected.items(), key=lambda pair: pair[1]))
    measure: Literal["error", "half width"] = "error" if half_widths is None else "half width"
    method = better if best == "sketch" else None
    return Recommendation(best, _reason(task, best, ranked, people, measure, method), ranked, refused, measure, method)


def expected_error(task: Task, protocol: str, people: int, **settings: str) -> float:
    """The expected error of an average effect of a standard deviation of a feature, in points, by one protocol.

    Parameters
    ----------
    task
        Features, target, guarantee of the default level, and whether there are public covariates.
    protocol
        Its name.
    people
        How many will release.
    settings
        Keys of the protocol's block that are not to have their defaults.

    Raises
    ------
    UserError
        If the protocol cannot learn this task, or give its guarantee.
    """
    own = task.with_protocol(protocol, **settings)
    problem = problem_for(own)
    problem.check_state()
    return 50.0 * math.sqrt(_variance(problem, own, people))


def _variance(problem: Problem, task: Task, n: int) -> float:
    """Of the effect of a standard deviation of a feature, with the target coded to -1 and +1."""
    p, public = task.coding.size, task.public is not None
    made: Any = problem.mechanisms[DEFAULT_LEVEL]
    factor = _FACTORS.get(task.protocol, (1.0, 1.0))[not public]
    missed = (_MISSED / 50.0) ** 2 / max(p - 1, 1) if task.target.kind == "binary" else 0.0
    if isinstance(made, GramMechanism):
        # Any two records, as local guarantees have it.
        scale = made.scale * (1.0 if made.neighbours == "replace-one" else math.sqrt(2.0))
        cross, squares = scale**2 / 2.0 / made.target_weight**2, scale**2 / 2.0
        return _of_moments(cross, squares, n * n) + 1.0 / n + missed
    if isinstance(made, NewtonMechanism):
        # The same of the step, whose Hessian is a quarter of X'X, and without the model's bias.
        part: GramMechanism = made.step
        scale = part.scale * (1.0 if made.neighbours == "replace-one" else math.sqrt(2.0))
        left = max(n - int(made.first), 1)
        return _of_moments(2.0 * scale**2 / part.target_weight**2, 8.0 * scale**2, left * left) + 1.0 / left
    if isinstance(problem, MomentProblem):
        squares, cross = Level.of(made, problem.layout).variances
        # Where targets are told, both numbers have the first's noise.
        cross = squares if problem.layout.observed else cross
        return factor**2 * _of_moments(cross / problem.layout.weight**2, squares / 2.0, n) + missed
    if isinstance(problem, ScoreProblem):
        noise = made.score.variance
    elif isinstance(problem, GradientProblem):
        noise = made.variance / problem.settings.bound**2
    elif isinstance(problem, ExampleProblem):
        noise = made.variance
        if problem.settings.outer:
            # Of numbers off the diagonal, half of the noise; records are divided by 1 + their squared length.
            own = noise / 2.0 * (2.0 + _VARIANCE * (p - 1)) ** 2
            return (_OUTER * p) ** 2 * _of_moments(own, own, n) + missed
        if not public:
            length = 1.0 + _VARIANCE * (p - 1)
            return factor**2 * _of_moments((noise**2 + noise) * length**2, noise**2 * length**2, n) + missed
    else:
        raise UserError(f"protocol: {task.protocol} with these settings is not among those compared")
    return float(factor**2 * p * (noise + 1.0 / p) / n)


def _of_moments(cross: float, squares: float, n: float) -> float:
    """By the variances of the noise on an ``x y`` and on an ``x x'``, of n of them."""
    return (cross + squares * _EXPLAINED / _VARIANCE) / (n * _VARIANCE)


def _reason(task: Task, best: str, ranked: Mapping[str, float], people: int, measure: str, method: str | None) -> str:
    """In words."""
    each = "per standard deviation of a feature"
    words = [f"{best}: an expected {measure} of {_points(ranked[best])} {each}, with {people:,} people"]
    if ranked[best] > min(ranked.values()):
        words.append("within a quarter of the least, and it asks for fewer public rows or less trust")
    others = [f"{name} {_points(value)}" for name, value in ranked.items() if name != best]
    if others:
        words.append("others: " + ", ".join(others))
    if method is not None:
        words.append(
            f"with sketch: {{method: {method}}}, whose first records tell where all others are looked at from; second "
            "moments alone leave what they do not tell of a logistic model"
        )
    elif best == "sketch" and task.target.kind == "binary":
        words.append(
            "the intervals of a binary target's effects are wide, as they hold for any distribution of the features"
        )
    if best != "sketch" and "gradients" in ranked and task.target.kind == "real":
        words.append(
            "gradients of Huber's loss, the default of a real target, follow the bulk of it: where it lies close to a "
            "line their error was several times smaller, without an interval"
        )
    if best == "moments" and task.public is None:
        words.append("without public covariates people release their second moments, whose noise grows with p^2")
    return "; ".join(words)


def _points(value: float) -> str:
    return f"{value:.2g} points"
