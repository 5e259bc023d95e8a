"""Figures 1 to 5: squared relative error on simulated people, by epsilon and by dimension."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from reproductions.experiment import Check, Measured, Outcome, Panel, Row, Series, Setting
from reproductions.public_glm.designs import Design, Model, Population, corrected, default, drawn, noiseless, published
from reproductions.public_glm.released import coefficients

EPSILONS: Final = (10.0, 5.0, 3.0, 2.0)
DIMENSIONS: Final = (5, 10, 12, 15)
NAMES: Final[dict[Model, str]] = {"logistic": "logistic", "poisson": "Poisson", "cubic": "cubic"}
METHODS: Final = {"published": "as published", "corrected": "joint release", "default": "Murk's default"}
_NOTE: Final = (
    "Medians over replications, since the estimates have no mean. Corrected: one joint release, exact calibration, "
    "valid bounds. Default: scores without rounds, with an intercept; second moments for the cubic link."
)


@dataclass
class Errors:
    """Squared relative errors and distances of directions, by method, curve and number of people."""

    found: dict[tuple[str, float, int], list[float]] = field(default_factory=dict)
    turned: dict[tuple[str, float, int], list[float]] = field(default_factory=dict)

    def add(self, method: str, curve: float, n: int, error: float, turned: float) -> None:
        """Add one replication."""
        self.found.setdefault((method, curve, n), []).append(error)
        self.turned.setdefault((method, curve, n), []).append(turned)

    def at(self, method: str, curve: float, n: int) -> Measured:
        """Return the median error."""
        return Measured.median(self.found[method, curve, n])

    def logs(self, method: str, curve: float, n: int) -> NDArray[np.float64]:
        """Return logarithms of the errors, whose means no single replication dominates."""
        return np.log(self.found[method, curve, n])

    def line(self, method: str, curve: float, counts: Sequence[int]) -> list[float]:
        """Return median errors by n."""
        return [self.at(method, curve, n).value for n in counts]


def fig1(setting: Setting) -> Outcome:
    """Run normal designs by epsilon."""
    outcomes = [
        _by_privacy(setting, "logistic", "diagonal", 0, 2), _by_privacy(setting, "poisson", "rotated", 1, 2),
    ]  # fmt: skip
    return Outcome.joined(outcomes)


def fig2(setting: Setting) -> Outcome:
    """Run normal designs by dimension."""
    outcomes = [
        _by_dimension(setting, "logistic", "diagonal", 0, 2), _by_dimension(setting, "poisson", "rotated", 1, 2),
    ]  # fmt: skip
    return Outcome.joined(outcomes)


def fig3(setting: Setting) -> Outcome:
    """Run a logistic model on features of two values."""
    return _two_values(setting, "logistic")


def fig4(setting: Setting) -> Outcome:
    """Run Poisson regression on features of two values."""
    return _two_values(setting, "poisson")


def fig5(setting: Setting) -> Outcome:
    """Run cubic regression on features of two values."""
    return _two_values(setting, "cubic")


def _two_values(setting: Setting, model: Model) -> Outcome:
    parts = [_by_privacy(setting, model, "bernoulli", 0, 2), _by_dimension(setting, model, "bernoulli", 1, 2)]
    return Outcome.joined(parts)


def _by_privacy(setting: Setting, model: Model, design: Design, part: int, parts: int) -> Outcome:
    """Vary epsilon at p = 10 and n up to 290,000."""
    name = NAMES[model]
    counts = setting.of(
        tiny=(5_000, 30_000), reduced=(10_000, 90_000, 290_000), full=tuple(range(10_000, 300_000, 20_000))
    )
    epsilons = setting.of(tiny=(10.0, 2.0), reduced=EPSILONS, full=EPSILONS)
    errors, most = Errors(), max(counts)
    tick = _ticker(setting, part, parts, model)
    _replicate(setting, Population(model, design, 10), epsilons, lambda epsilon: epsilon, counts, errors, tick)
    what = f"{name}, p = 10, n = {most:,}"
    rows = [_row(setting, f"{what}, epsilon = {epsilon:g}", errors, epsilon, most) for epsilon in epsilons]
    rows.append(_turned(setting, what, errors, epsilons[0], most))
    checks = _common(setting, f"{name}, epsilon = 10", errors, epsilons[0], counts, design)
    least, largest = (errors.logs("corrected", epsilon, most) for epsilon in (epsilons[0], epsilons[-1]))
    checks.append(
        _behind(f"{name}: the joint release's error at epsilon = {epsilons[-1]:g} is larger than at 10",
                least, largest, by=1.5)
    )  # fmt: skip
    if design != "bernoulli" and setting.size != "tiny":
        expected = {"logistic": 0.001, "poisson": 0.0002}[model]
        quiet = Measured.median(errors.logs("no noise", 0.0, most))
        checks.append(
            Check.near(f"{name}: without noise, logarithm of the error", quiet, np.log(expected), within=np.log(2.0))
        )
    return Outcome(
        rows=rows, checks=checks, verdict=_verdict(name, errors, epsilons, counts, "epsilon"),
        panels=_panels(f"{name}, p = 10", errors, epsilons, counts, "epsilon"),
    )  # fmt: skip


def _by_dimension(setting: Setting, model: Model, design: Design, part: int, parts: int) -> Outcome:
    """Vary p at epsilon = 10 and n up to 480,000."""
    name = NAMES[model]
    counts = setting.of(tiny=(10_000, 30_000), reduced=(100_000, 480_000), full=tuple(range(100_000, 500_000, 20_000)))
    dimensions = setting.of(tiny=(5, 15), reduced=DIMENSIONS, full=DIMENSIONS)
    errors, most = Errors(), max(counts)
    tick = _ticker(setting, part, parts, model)
    for place, p in enumerate(dimensions):
        population = Population(model, design, p)
        _replicate(
            setting, population, (10.0,), lambda epsilon, p=p: float(p), counts, errors,  # type: ignore[misc]
            lambda share, place=place: tick((place + share) / len(dimensions)),  # type: ignore[misc]
        )  # fmt: skip
    rows = [_row(setting, f"{name}, epsilon = 10, n = {most:,}, p = {p}", errors, p, most) for p in dimensions]
    checks = _common(setting, f"{name}, p = {dimensions[-1]}", errors, dimensions[-1], counts, design)
    if design == "bernoulli" or setting.size != "reduced":
        # Errors of normal designs vary too much for a few replications to decide.
        few, many = (Measured.mean(errors.logs("corrected", p, most)) for p in (dimensions[0], dimensions[-1]))
        claim = f"{name}: the joint release's error grows with p (means of logarithms)"
        checks.append(Check.less(claim, Measured(few.value + np.log(1.5), few.error), many))
    return Outcome(
        rows=rows, checks=checks,
        verdict=_verdict(f"{name}, p = {dimensions[-1]}", errors, dimensions[::-1], counts, "p"),
        panels=_panels(f"{name}, epsilon = 10", errors, dimensions, counts, "p"),
    )  # fmt: skip


def _ticker(setting: Setting, part: int, parts: int, text: str) -> Callable[[float], None]:
    return lambda share: setting.tick((part + share) / parts, text)


def _replicate(
    setting: Setting, population: Population, epsilons: Sequence[float], curve_of: Callable[[float], float],
    counts: Sequence[int], errors: Errors, tick: Callable[[float], None],
) -> None:  # fmt: skip
    """Add replications to ``errors``; the default learner has fewer, only at the largest n."""
    times = setting.of(tiny=9, reduced=20, full=100)
    own = setting.of(tiny=2, reduced=12, full=20)
    kept = setting.of(tiny=2_000, reduced=5_000, full=20_000)
    for r in range(times):
        tick(r / times)
        key = (len(population.model), len(population.design), population.p, r)
        for people in drawn(population, counts, setting.rng(*key), kept=kept):
            n = people.printed.people
            delta = n**-1.1

            def add(method: str, curve: float, found: object, scale: float = 1.0, n: int = n) -> None:
                values = scale * coefficients(found)  # type: ignore[arg-type]
                errors.add(method, curve, n, population.error(values), population.turned(values))

            quiet = noiseless(population, people, epsilons[0], delta)
            add("no noise", 0.0 if len(epsilons) > 1 else curve_of(epsilons[0]), quiet)
            for epsilon in epsilons:
                # Curves share the draw of a replication's noise and differ by epsilon and n alone.
                curve, of = curve_of(epsilon), (population, people, epsilon, delta)
                add("published", curve, published(*of, setting.rng(*key, 1)))
                add("corrected", curve, corrected(*of, setting.rng(*key, 2)))
                if r < own and n == max(counts):
                    add("default", curve, default(*of, setting.rng(*key, 3)), population.coding)


def _row(setting: Setting, what: str, errors: Errors, curve: float, n: int) -> Row:
    return Row(
        what=what, tag=setting.tag(), as_published=errors.at("published", curve, n),
        corrected=errors.at("corrected", curve, n), default=errors.at("default", curve, n), note=_NOTE,
    )  # fmt: skip


def _turned(setting: Setting, what: str, errors: Errors, curve: float, n: int) -> Row:
    found = [Measured.median(errors.turned[method, curve, n]) for method in METHODS]
    return Row(
        what=f"{what}, epsilon = {curve:g}: distance of directions (1.41: unrelated)", tag=setting.tag(),
        as_published=found[0], corrected=found[1], default=found[2],
    )  # fmt: skip


def _common(
    setting: Setting, what: str, errors: Errors, curve: float, counts: Sequence[int], design: Design
) -> list[Check]:
    most = max(counts)
    as_published, joint, own = (errors.logs(method, curve, most) for method in METHODS)
    quiet = errors.logs("no noise", curve if ("no noise", curve, most) in errors.found else 0.0, most)
    turned = Measured.mean(errors.turned["published", curve, most])
    checks = [
        _behind(f"{what}: as published, the error is far above that without noise, which the paper's figure approaches",
                quiet, as_published, by=setting.of(tiny=3.0, reduced=30.0, full=30.0)),
        Check.less(
            f"{what}: as published, directions are on average more than 45 degrees off (a distance of 0.77)",
            Measured(2.0 * np.sin(np.pi / 8.0)), turned,
        ),
        _behind(f"{what}: the joint release's error falls with n", joint, errors.logs("corrected", curve, min(counts))),
    ]  # fmt: skip
    # In small runs, or with variances near 0, the joint release is useless too.
    if setting.size != "tiny" and design == "bernoulli":
        checks.append(_behind(f"{what}: the joint release is nearer than as published", joint, as_published))
    if setting.size != "tiny" or design != "bernoulli":
        checks.append(_behind(f"{what}: the default is nearer than as published", own, as_published[: len(own)]))
    return checks


def _behind(claim: str, small: NDArray[np.float64], large: NDArray[np.float64], by: float = 1.0) -> Check:
    """Check that errors are below others by a factor, replication by replication."""
    times = "" if by == 1.0 else f", {by:g} times"
    return Check.less_paired(f"{claim} (logarithms{times})", small + np.log(by), large)


def _verdict(what: str, errors: Errors, curves: Sequence[float], counts: Sequence[int], name: str) -> str:
    """Return the verdict on the first curve, and the curves on which the joint release is behind."""
    most = max(counts)
    as_published, joint, own = (errors.at(method, curves[0], most) for method in METHODS)
    seen = "does not appear" if as_published.value > 0.5 else "appears"
    return (
        f"{what}, epsilon = 10, n = {most:,}: with the printed noise the printed curve {seen} (median squared relative "
        f"error {as_published}; zero coefficients have 1); the joint release has {joint}, Murk's default {own}."
        f"{behind({c: (errors.at('corrected', c, most), errors.at('published', c, most)) for c in curves}, name)}"
    )


def behind(medians: Mapping[float, tuple[Measured, Measured]], name: str) -> str:
    """Return a sentence on where the joint release has the larger median error, or an empty text."""
    worse = [curve for curve, (joint, published) in medians.items() if joint.value > published.value]
    if not worse:
        return ""
    both = all(min(one.value for one in medians[curve]) > 1.0 for curve in worse)
    said = "; there both are worse than zero coefficients" if both else ""
    return f" The joint release has the larger median error at {name} = {', '.join(f'{c:g}' for c in worse)}{said}."


def _panels(title: str, errors: Errors, curves: Sequence[float], counts: Sequence[int], name: str) -> list[Panel]:
    most, x = max(counts), [float(n) for n in counts]
    label = "squared relative error, median"
    quiet = sorted({curve for method, curve, _ in errors.found if method == "no noise"})
    panels = []
    for method in ("published", "corrected"):
        series = [
            Series(name=f"{name} = {curve:g}", x=x, y=errors.line(method, curve, counts)) for curve in curves
        ]  # fmt: skip
        series += [
            Series(name="no noise" if len(quiet) == 1 else f"no noise, p = {curve:g}", x=x,
                   y=errors.line("no noise", curve, counts), style="dashed")
            for curve in quiet[:1]
        ]  # fmt: skip
        panels.append(
            Panel(title=f"{title}: {METHODS[method]}", x="n", y=label, series=series, log_y=True, line_at=1.0)
        )
    series = [
        Series(name=text, x=list(curves), y=[errors.at(method, curve, most).value for curve in curves])
        for method, text in METHODS.items()
    ]
    panels.append(Panel(title=f"{title}: n = {most:,}", x=name, y=label, series=series, log_y=True, line_at=1.0))
    return panels
