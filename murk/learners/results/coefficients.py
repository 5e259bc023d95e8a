"""One coefficient of a report, in every unit that it has."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from murk.learners.estimates.units import odds_ratio
from murk.learners.results.numbers import NOT_LEARNED, TOO_WIDE, number, span

Interval = tuple[float, float]


@dataclass(frozen=True)
class Coefficient:
    """One coefficient of a result, in every unit that it has.

    Parameters
    ----------
    name
        Its name, ``"intercept"`` for the constant.
    learned, useful
        Whether it was learned at this privacy, and with an interval narrow enough to answer a question. If not learned,
        only average effects are stated, as the rest is a guess near 0.
    value, interval
        In coded units: per half of the feature's public range. Ends are infinite if the method gives none.
    unit, effect, effect_interval
        Natural unit of the feature in words, if known, and the effect per unit: in the target's units, or as log odds.
    odds_ratio, odds_ratio_interval
        ``e^effect``, if coefficients are log odds.
    average_effect, average_effect_interval
        Average effect of a natural unit on the probability of a positive target, or on a real one. It may be known
        although the coefficient was not learned.
    needed
        What it would take to learn the coefficient, in words, if forecast.
    """

    name: str
    learned: bool
    value: float | None = None
    interval: Interval | None = None
    unit: str | None = None
    effect: float | None = None
    effect_interval: Interval | None = None
    odds_ratio: float | None = None
    odds_ratio_interval: Interval | None = None
    average_effect: float | None = None
    average_effect_interval: Interval | None = None
    needed: str = ""
    useful: bool = True

    @property
    def says(self) -> str:
        """``"not learned"``, ``"too wide"``, or empty for a useful interval."""
        return "" if self.useful else TOO_WIDE if self.learned else NOT_LEARNED

    def __str__(self) -> str:
        if self.value is None or self.interval is None:
            words = f"{self.name}: {NOT_LEARNED}" + (f"; it would take {self.needed}" if self.needed else "")
            if self.average_effect is None or self.average_effect_interval is None:
                return words
            points = f"{number(100.0 * self.average_effect)} ({span(*self.average_effect_interval, 100.0)})"
            return f"{words}; average effect {points} points, {self.unit}"
        words = f"{self.name}: {number(self.value)} ({span(*self.interval)}) coded"
        if self.odds_ratio is not None and self.odds_ratio_interval is not None:
            words += f"; odds ratio {number(self.odds_ratio)} ({span(*self.odds_ratio_interval)}), {self.unit}"
        elif self.effect is not None and self.effect_interval is not None:
            words += f"; {number(self.effect)} ({span(*self.effect_interval)}), {self.unit}"
        return words if self.useful else f"{words}; too wide to say anything"


def coefficient(report: Mapping[str, Any], name: str) -> Coefficient:
    """Build one coefficient from a report."""
    unit = report["per_unit"].get(name)
    label = None if unit is None else unit["unit"]
    effects: dict[str, Any] = {}
    average = (report["average_effects"] or {}).get(name)
    if average is not None and math.isfinite(sum(average["interval"])):
        effects = {"average_effect": average["value"], "average_effect_interval": tuple(average["interval"])}
    if name in report["not_learned"]:
        needed = report["needed"].get(name, {}).get("words", "")
        return Coefficient(name, False, unit=label, needed=needed, useful=False, **effects)
    more: dict[str, Any] = effects | {"useful": name not in ((report["diagnosis"] or {}).get("useless") or {})}
    if unit is not None:
        more |= {"unit": label, "effect": unit["value"], "effect_interval": tuple(unit["interval"])}
        if report["odds_ratios"]:
            more["odds_ratio"] = odds_ratio(unit["value"])
            more["odds_ratio_interval"] = tuple(map(odds_ratio, unit["interval"]))
    low, high = report["confidence_intervals"][name]
    return Coefficient(name, True, report["coefficients"][name], (low, high), **more)
