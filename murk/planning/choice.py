r"""A rule for the best protocol of a task, by the error that each protocol's noise causes.

The rule compares the error of an average effect: the change of a positive target's probability, or of a real target
relative to its range, per standard deviation of a feature, in points (hundredths). For p coded features, n people,
noise of variance s^2 in each coordinate of a release of length 1, and coefficients of ordinary size, it is about

.. math::
    50\, c \sqrt{p\,(s^2 + 1/p) / n} \quad\text{(scores, gradients, directions)}, \qquad
    50\, c \sqrt{4\,(s_{xy}^2 + s_{xx}^2) / n} \quad\text{(second moments)}

The second holds for examples without public rows, with ``s_xy^2 = (s^4 + s^2) L^4``, L^2 a record's squared length, and
for outer products, with ``s_xy^2 = s_xx^2 = s^2 (1 + L^2)^2 / 2`` and c proportional to p. In a logistic model without
a known distribution of the d features, moments and examples have a further error of about ``2 / sqrt(d)`` points. The
factors c were measured with `python -m benchmarks.protocols` and hold within a factor of about 2. This suffices to
compare protocols, but not to plan a study; for a plan the rule also accepts forecast half-widths.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from murk.errors import UserError
from murk.protocols.device import device_for, part
from murk.task.features import RealTarget
from murk.task.protocols.registry import PROTOCOLS
from murk.task.task import Task

_ERROR_CODE = "MURK-LEARN-001"

EQUAL: Final = 1.25  # errors up to this factor larger count as equal
_NOTHING: Final = 0.1  # errors up to this number of points count as equal: a smaller one does not justify more trust


@dataclass(frozen=True)
class Recommendation:
    """The protocol to choose, and why."""

    protocol: str  # the protocol's name in a task file
    reason: str  # the reason in words
    # by suitable protocol, the best first: expected error of an average effect per standard deviation of a feature, in
    # points
    expected: Mapping[str, float]
    refused: Mapping[str, str] = field(default_factory=dict)  # reason by unsuitable protocol
    measure: Literal["error", "half width"] = "error"  # the expected quantity: an ``error``, or a ``half width``
    settings: Mapping[str, object] = field(default_factory=dict)  # keys of the protocol's block without their defaults

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "protocol": self.protocol,
            **({"settings": dict(self.settings)} if self.settings else {}),
            "reason": self.reason,
            f"expected_{self.measure.replace(' ', '_')}_points": dict(self.expected),
            "refused": dict(self.refused),
        }


def recommend(
    task: Task,
    people: int,
    *,
    online: bool = True,
    organisation: bool = False,
    half_widths: Mapping[str, float] | None = None,
) -> Recommendation:
    """Return the best protocol for a task, by the expected error or by forecast half-widths.

    The task's own protocol is ignored. ``online`` tells whether devices can read a model before they release, and
    ``organisation`` whether one already holds the records and is trusted with them. ``half_widths`` maps protocols to
    forecast half-widths in points, infinite without intervals. Raises UserError if no protocol suits the task.
    """
    if people < 1:
        raise UserError(f"people={people!r}: give how many will release, at least 1")
    expected: dict[str, float] = {}
    refused: dict[str, str] = {}
    changed: dict[str, Mapping[str, object]] = {}
    for name, protocol in PROTOCOLS.items():
        impractical = protocol.why_impractical(task.coding.size - 1, task.public is not None)
        settings = {} if online or protocol.without_models is None else dict(protocol.without_models)
        if protocol.without_models is None and not online:
            refused[name] = "devices would have to read a model before they release"
        elif protocol.of_organisations and not organisation:
            refused[name] = "no organisation is trusted with the records"
        elif impractical:
            refused[name] = impractical
        else:
            if half_widths is not None:
                if math.isfinite(half_widths.get(name, math.inf)):
                    expected[name] = half_widths[name]
                else:
                    refused[name] = "no interval"
                continue
            try:
                expected[name] = expected_error(task, name, people, **settings)
                others = protocol.alternatives(task.with_protocol(name).block, task.target.kind)
                changed[name] = settings
                for further in others if protocol.of_organisations else ():
                    other = expected_error(task, name, people, **further)
                    if other * EQUAL < expected[name]:
                        expected[name], changed[name] = other, further
            except UserError as error:
                refused[name] = str(error)
    if not expected:
        raise UserError("no protocol suits the task: " + "; ".join(f"{name}: {why}" for name, why in refused.items()))
    least = min(expected.values())
    enough = EQUAL * least if half_widths is not None else max(EQUAL * least, _NOTHING)
    # Without features no protocol needs public rows.
    enough = enough if task.features else least
    best = min((name for name, error in expected.items() if error <= enough), key=lambda name: PROTOCOLS[name].rank)
    ranked = {best: expected[best]} | dict(sorted(expected.items(), key=lambda pair: pair[1]))
    measure: Literal["error", "half width"] = "error" if half_widths is None else "half width"
    chosen = changed.get(best, {})
    reason = _reason(task, best, ranked, people, measure, chosen)
    return Recommendation(best, reason, ranked, refused, measure, chosen)


def expected_error(task: Task, protocol: str, people: int, **settings: object) -> float:
    """Return the expected error of an average effect per standard deviation of a feature, in points, by one protocol.

    ``settings`` are keys of the protocol's block that differ from their defaults. Raises UserError if the protocol
    cannot learn this task, or provide its guarantee.
    """
    of_protocol = task.with_protocol(protocol, **settings)
    device = device_for(of_protocol)
    device.check_state()
    error = math.sqrt(part(protocol, "forecast").effect_variance(device, of_protocol, people))
    # Missing targets shrink the estimate, but not its noise.
    return 50.0 * error / (1.0 - (task.target.missing_share or 0.0))


def _reason(
    task: Task, best: str, ranked: Mapping[str, float], people: int, measure: str, settings: Mapping[str, object]
) -> str:
    each = f" (hundredths of the range of {task.target.name})" if isinstance(task.target, RealTarget) else ""
    each += " per standard deviation of a feature" if task.features else ""
    measured = f"an expected {measure.replace(' ', '-')} of {ranked[best]:.2g} points{each}"
    words = [f"{best}: {measured}, with {people:,} people"]
    if ranked[best] > min(ranked.values()):
        words.append("within a quarter of the least, and it needs fewer public rows or less trust")
    others = [f"{name} {value:.2g} points" for name, value in ranked.items() if name != best]
    if others:
        words.append("others: " + ", ".join(others))
    if best == "scores" and settings:
        words.append("with scores: {interactive: false}, as people answer without reading a model")
    if "method" in settings:
        words.append(
            f"with summaries: {{method: {settings['method']}}}, which takes a model from the first records and a "
            "Newton step from all others: second moments alone do not determine a logistic model"
        )
    elif best == "summaries" and task.features and task.target.kind == "binary":
        words.append(
            "the intervals of a binary target's effects are wide, as they hold for any distribution of the features"
        )
    if best != "summaries" and "gradients" in ranked and task.target.kind == "real":
        words.append(
            "gradients of Huber's loss, the default of a real target, fit most targets and not outliers: where most "
            "targets lie close to a line, their error was several times smaller"
            + (", without an interval unless public covariates are given" if task.public is None else "")
        )
    if best == "moments" and task.features and task.public is None:
        words.append("without public covariates people release their second moments, whose noise grows with p^2")
    return "; ".join(words)
