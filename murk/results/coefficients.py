"""One coefficient of a report, in every unit that it has."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from murk._internal.numbers import NOT_LEARNED, TOO_WIDE, number, span

Interval = tuple[float, float]


@dataclass(frozen=True)
class Coefficient:
    """One coefficient of a result, in every unit that it has.

    Parameters
    ----------
    name
        Its name, ``"intercept"`` for the constant.
    learned, useful
        Whether it was learned at this privacy, and whether its interval is narrow enough to answer a question. For a
        coefficient that was not learned, only average effects are stated, as its other estimates are guesses near 0.
    value, std_error, interval
        In coded units: per half of the feature's public range. Ends are infinite if the method gives no interval.
    unit, scale, effect, effect_std_error, effect_interval
        Natural unit of the feature in words, if known, and the effect per unit on its ``scale``: ``"log odds"``,
        ``"percentage points"`` (a level is in ``"percent"``), ``"target units"`` or ``"model units"``.
    odds_ratio, odds_ratio_interval
        ``e^effect``, if coefficients are log odds.
    average_scale, average_effect, average_effect_interval
        Average effect of a natural unit, in ``"percentage points"`` of a probability, or in ``"target units"``. It may
        be known although the coefficient was not learned.
    needed
        What it would take to learn the coefficient, in words, if forecast.
    """

    name: str
    learned: bool
    value: float | None = None
    std_error: float | None = None
    interval: Interval | None = None
    unit: str | None = None
    scale: str | None = None
    effect: float | None = None
    effect_std_error: float | None = None
    effect_interval: Interval | None = None
    odds_ratio: float | None = None
    odds_ratio_interval: Interval | None = None
    average_scale: str | None = None
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
            average = f"{number(self.average_effect)} ({span(*self.average_effect_interval)})"
            return f"{words}; average effect {average} {self.average_scale}, {self.unit}"
        if self.odds_ratio is not None and self.odds_ratio_interval is not None:
            words = f"odds ratio {number(self.odds_ratio)} ({span(*self.odds_ratio_interval)}), {self.unit}"
        elif self.effect is not None and self.effect_interval is not None:
            words = f"{number(self.effect)} ({span(*self.effect_interval)}) {self.scale}, {self.unit}"
        else:
            words = f"{number(self.value)} ({span(*self.interval)}) coded"
        return f"{self.name}: {words}" + ("" if self.useful else "; too wide to say anything")

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield a row of a tidy frame for each scale that the coefficient is known on."""
        nothing = (None, None)
        states = [("coded", self.value, self.std_error, self.interval)]
        if self.scale is not None:
            states.append((self.scale, self.effect, self.effect_std_error, self.effect_interval))
        if self.odds_ratio is not None:
            states.append(("odds ratio", self.odds_ratio, None, self.odds_ratio_interval))
        if self.average_scale is not None and self.average_scale != self.scale:
            states.append((self.average_scale, self.average_effect, None, self.average_effect_interval))
        for scale, estimate, error, interval in states:
            low, high = interval or nothing
            row: dict[str, Any] = {"name": self.name, "estimate": estimate, "std_error": error}
            unit = "half of its range" if scale == "coded" else self.unit
            yield row | {"low": low, "high": high, "unit": unit, "scale": scale, "says": self.says}


def coefficient(report: Mapping[str, Any], name: str) -> Coefficient:
    """Build one coefficient from a report."""
    unit = report["per_unit"].get(name)
    average = (report["average_effects"] or {}).get(name)
    more: dict[str, Any] = {}
    if unit is not None:
        more |= {"unit": unit["unit"], "scale": unit["scale"]}
    if average is not None and math.isfinite(sum(average["interval"])):
        more |= {"average_scale": average["scale"], "average_effect": average["value"]}
        more["average_effect_interval"] = tuple(average["interval"])
    if name in report["not_learned"]:
        needed = report["needed"].get(name, {}).get("words", "")
        return Coefficient(name, False, needed=needed, useful=False, **more)
    if unit is not None:
        more |= {"effect": unit["value"], "effect_interval": tuple(unit["interval"])}
        more["effect_std_error"] = unit["std_error"]
        if "odds_ratio" in unit:
            more |= {"odds_ratio": unit["odds_ratio"], "odds_ratio_interval": tuple(unit["odds_ratio_interval"])}
    low, high = report["confidence_intervals"][name]
    return Coefficient(
        name,
        True,
        report["coefficients"][name],
        report["standard_errors"][name],
        (low, high),
        useful=name not in report["too_wide"],
        **more,
    )
