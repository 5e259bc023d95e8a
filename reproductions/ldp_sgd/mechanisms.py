"""Figures 2 and 4: people's own budgets, and Laplace against Gaussian noise."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from murk.learners import LDPSGDRegressor
from murk.privacy import GaussianDP, Guarantee, PureDP
from murk.privacy.conversions import gdp_delta, pure_to_gdp
from murk.privacy.mechanisms import calibrate
from murk.protocols.gradients.objectives import Huber
from reproductions.experiment import STANDARD_ERRORS, Check, Measured, Outcome, Panel, Row, Series, Setting
from reproductions.ldp_sgd.simulate import (
    REPLICATIONS,
    WITHIN,
    Floats,
    Maker,
    N,
    as_known,
    at_least,
    distances,
    lines,
    nearer,
    points,
    published,
    replicate,
    truth,
)

WHICH: Final = ("iterate", "average")
DEFAULT: Final = "Murk's default is LDPSGDRegressor(guarantee=...) on the same people: its average."
X_AXIS, Y_AXIS = "people", "mean squared distance"


def _made(budget: Guarantee, **more: object) -> Maker:
    return lambda seed: published("linear", 5, budget, seed, **more)


def fig2(setting: Setting) -> Outcome:
    """Run linear regression at mu = 1, at mu = 2, and with each person's own mu between them."""
    d, n = 5, setting.of(tiny=20_000, reduced=N, full=N)
    times, fewer = setting.of(tiny=3, reduced=64, full=REPLICATIONS), setting.of(tiny=2, reduced=8, full=REPLICATIONS)
    at, target = points(n), truth("linear", 5)
    # Budgets are public and each is calibrated, so the uniform distribution has 16 levels.
    levels = [GaussianDP(1.0 + (i + 0.5) / 16) for i in range(16)]

    def draw(rng: np.random.Generator, people: int) -> list[Guarantee]:
        return [levels[i] for i in rng.integers(16, size=people).tolist()]

    mixed = "mu uniform on [1, 2]"
    budgets = {"mu = 1": GaussianDP(1.0), mixed: GaussianDP(1.5), "mu = 2": GaussianDP(2.0)}
    makers: dict[str, Maker] = {name: _made(budget) for name, budget in budgets.items()}
    defaults: dict[str, Maker] = {
        f"default, {name}": lambda seed, budget=budget: LDPSGDRegressor(  # type: ignore[misc]
            guarantee=budget, features=list(range(d)), seed=seed
        )
        for name, budget in budgets.items()
    }
    own = [mixed, f"default, {mixed}"]
    paths = replicate(setting, "linear", d, makers, at, times, draw=draw, drawn=own, share=(0.0, 0.8))
    paths |= replicate(setting, "linear", d, defaults, at, fewer, draw=draw, drawn=own, share=(0.8, 1.0))
    found = {name: distances(each, target) for name, each in paths.items()}
    ends = {name: [Measured.mean(each[:, row, -1]) for row in (0, 1)] for name, each in found.items()}
    rows = [
        Row(
            what=f"{name}: {which}", tag="unreachable", as_published=ends[name][row],
            default=ends[f"default, {name}"][1] if row else None,
            note=f"{DEFAULT} It weights people by their public noise level. The paper does not say d; here it is 5. "
            f"The uniform distribution has 16 levels; {times} runs (paper: {REPLICATIONS}).",
        )
        for name in budgets
        for row, which in enumerate(WHICH)
    ]  # fmt: skip
    last = {name: each[:, :, -1] for name, each in found.items()}
    between = [
        nearer(f"{which} with {mixed} {word}", last[one][:, row], last[two][:, row])
        for row, which in enumerate(WHICH)
        for word, one, two in (
            ("is above mu = 2", "mu = 2", mixed),
            ("is below mu = 1", mixed, "mu = 1"),
        )
    ]
    two = found["mu = 2"]
    checks = [*between]
    if setting.size != "tiny":
        checks.append(nearer("at mu = 2 the average is nearer", last["mu = 2"][:, 1], last["mu = 2"][:, 0]))
        checks.append(halved(last[mixed][:, 0], last["mu = 1"][:, 0]))
    looks = (0, len(at) // 2, len(at) - 1)
    boxes = [
        Series(name=f"{which}, n = {at[place]:,}", y=np.log10(two[:, row, place]).tolist(), style="box")
        for place in looks
        for row, which in enumerate(("SGD", "ASGD"))
    ]
    left = [line for place, name in enumerate(budgets) for line in lines(name, at, found[name], place)]
    default_mean = found[f"default, {mixed}"].mean(axis=0)[1].tolist()
    left.append(Series(name=f"Murk's default, {mixed}", x=at, y=default_mean, colour=3))
    ours, theirs = ends[f"default, {mixed}"][1], ends[mixed][1]
    return Outcome(
        rows=rows,
        panels=[
            Panel(title="Budgets", x=X_AXIS, y=Y_AXIS, series=left, log_x=True, log_y=True),
            Panel(title=f"mu = 2, {times} runs", x="", y="log10 of the squared distance", series=boxes),
        ],
        checks=checks,
        verdict=(
            f"{'Seen' if all(check.holds for check in between) else 'Not seen'}: mixed budgets lie between the two. "
            f"The average's squared distances have {_times(ends['mu = 2'][1].value / ends['mu = 2'][0].value)} the "
            f"mean of the iterate's, and {_times(two[:, 1, -1].std() / two[:, 0, -1].std())} their standard deviation. "
            f"With Murk's weights and steps the error at mixed budgets is {ours}, {weighed(ours, theirs)} as published."
        ),
    )  # fmt: skip


def weighed(ours: Measured, theirs: Measured) -> str:
    """Return how an error compares with another, by 4 standard errors."""
    gap, error = theirs.value - ours.value, math.hypot(ours.error, theirs.error)
    if abs(gap) <= STANDARD_ERRORS * error:
        return f"not distinguishable from {theirs}"
    return f"{'below' if gap > 0.0 else 'above'} {theirs}"


def halved(mixed: Floats, one: Floats) -> Check:
    """Check that mixed budgets halve the error at mu = 1: their mean noise variance is 4 C0^2 E mu^-2 = 2 C0^2."""
    claim = "E mu^-2 = 1/2: the iterate with mixed budgets has half the error of mu = 1, by logarithms within log 1.5"
    return Check.near(claim, Measured.mean(np.log(mixed / one)), -math.log(2.0), within=WITHIN)


def _times(ratio: float) -> str:
    return f"{ratio:.2g} times"


def fig4(setting: Setting) -> Outcome:
    """Compare Laplace noise at epsilon = 1, 2, 3 with Gaussian noise at mu = 1, in five and ten dimensions."""
    n = setting.of(tiny=20_000, reduced=N, full=N)
    times = setting.of(tiny=2, reduced=16, full=REPLICATIONS)
    dimensions = setting.of(tiny=(5,), reduced=(5, 10), full=(5, 10))
    at = points(n)
    rows, panels, checks = [], [], []
    ends: dict[tuple[int, str], list[Measured]] = {}
    for place, d in enumerate(dimensions):
        share = place / len(dimensions), (place + 1) / len(dimensions)
        found = _mechanisms(setting, d, at, times, share)
        for name, each in found.items():
            ends[d, name] = [Measured.mean(each[:, row, -1]) for row in (0, 1)]
        for name in _BUDGETS:
            for row, which in enumerate(WHICH):
                rows.append(Row(
                    what=f"d = {d}, {name}: {which}", tag=setting.tag(), as_published=ends[d, name][row],
                    default=ends[d, f"default, {name}"][1] if row and f"default, {name}" in found else None,
                    note=DEFAULT,
                ))  # fmt: skip
        for row, which in enumerate(WHICH):
            rows.append(Row(
                what=f"d = {d}, l2 ball in place of Laplace noise, epsilon = 3: {which}", tag=setting.tag(),
                published="not in the paper", default=ends[d, "l2 ball, epsilon = 3"][row],
                note="The l2 ball has the same pure guarantee; run with the paper's steps and weights.",
            ))  # fmt: skip
        for row, which in enumerate(("SGD", "ASGD")):
            shown = [*_BUDGETS, "l2 ball, epsilon = 3", "default, Laplace, epsilon = 3"]
            series = [
                Series(
                    name=name.replace("default, Laplace", "Murk's default"), x=at,
                    y=found[name].mean(axis=0)[1 if "default" in name else row].tolist(),
                    style="line" if name in _BUDGETS else "dashed",
                )
                for name in shown
            ]  # fmt: skip
            panels.append(Panel(title=f"{which}, d = {d}", x=X_AXIS, y=Y_AXIS, series=series, log_x=True, log_y=True))
        last = {name: each[:, :, -1] for name, each in found.items()}
        checks += [
            nearer(f"d = {d}: {which} at epsilon = 3, the l2 ball is nearer than Laplace noise",
                   last["l2 ball, epsilon = 3"][:, row], last["Laplace, epsilon = 3"][:, row])
            for row, which in enumerate(WHICH)
        ]  # fmt: skip
        checks.append(nearer(f"d = {d}: the iterate with Laplace noise at epsilon = 3 is nearer than at 1",
                             last["Laplace, epsilon = 3"][:, 0], last["Laplace, epsilon = 1"][:, 0]))  # fmt: skip
        if d == 10:
            pair = last["GDP, mu = 1"][:, 0], last["Laplace, epsilon = 3"][:, 0]
            over = "d = 10: Laplace at epsilon = 3 over GDP at mu = 1 (iterate)"
            checks += [
                nearer(over, *pair, times=setting.of(tiny=1.0, reduced=1.0, full=2.0)),
                at_least(over, *pair, 2.0),
            ]
        checks.append(_noise_ratio(d))
    rows += _privacy_rows()
    verdict = "This size shows directions only."
    if setting.size != "tiny":
        ratios = {d: ends[d, "Laplace, epsilon = 3"][0].value / ends[d, "GDP, mu = 1"][0].value for d in dimensions}
        checks += as_known(setting, "linear", "mu = 1")
        ball = ends[10, "l2 ball, epsilon = 3"][0].value / ends[10, "GDP, mu = 1"][0].value
        average = ends[10, "Laplace, epsilon = 3"][1].value / ends[10, "GDP, mu = 1"][1].value
        verdict = (
            f"{'Seen' if ratios[10] > ratios[5] else 'Not seen'}: Laplace noise at epsilon = 3 has {_times(ratios[5])} "
            f"the error of Gaussian noise at mu = 1 for d = 5, and {_times(ratios[10])} for d = 10 (iterates; "
            f"averages, which still contain the start: {_times(average)}). {_what_grows(ball)}"
        )  # fmt: skip
    return Outcome(rows=rows, panels=panels, checks=checks, verdict=verdict)


def _what_grows(ball: float) -> str:
    ratio = f"for d = 10 the l2 ball at the same epsilon has {_times(ball)} the error of the Gaussian"
    if ball < 1.0:
        return f"The growing error belongs to independent Laplace noise, not to pure privacy: {ratio}."
    return f"Laplace noise is not the only cause: {ratio}."


_BUDGETS: Final[dict[str, Guarantee]] = {
    "Laplace, epsilon = 1": PureDP(1.0),
    "Laplace, epsilon = 2": PureDP(2.0),
    "Laplace, epsilon = 3": PureDP(3.0),
    "GDP, mu = 1": GaussianDP(1.0),
}


def _mechanisms(setting: Setting, d: int, at: list[int], times: int, share: tuple[float, float]) -> dict[str, Floats]:
    makers: dict[str, Maker] = {
        name: lambda seed, budget=budget: published("linear", d, budget, seed)  # type: ignore[misc]
        for name, budget in _BUDGETS.items()
    }
    makers["l2 ball, epsilon = 3"] = lambda seed: published("linear", d, PureDP(3.0), seed, mechanism="l2-ball")
    paths = replicate(setting, "linear", d, makers, at, times, share=share)
    # PrivUnit uses rejection sampling and takes ten times as long as other noise.
    defaults: dict[str, Maker] = {
        f"default, {name}": lambda seed, budget=_BUDGETS[name]: LDPSGDRegressor(  # type: ignore[misc]
            guarantee=budget, features=list(range(d)), seed=seed
        )
        for name in ("Laplace, epsilon = 3", "GDP, mu = 1")
    }
    fewer = setting.of(tiny=2, reduced=4, full=20)
    paths |= replicate(setting, "linear", d, defaults, at, fewer, share=(share[1], share[1]))
    return {name: distances(each, truth("linear", d)) for name, each in paths.items()}


def _noise_ratio(d: int) -> Check:
    """Check the ratio of the mechanisms' variances against 2 (d + 2) / eps^2 * mu^2."""
    shape = {"dimension": d + 2, "radius": Huber(1.345).bound(math.sqrt(2.0))}
    laplace = calibrate("laplace", PureDP(3.0), **shape)  # type: ignore[arg-type]
    gaussian = calibrate("gaussian", GaussianDP(1.0), **shape)  # type: ignore[arg-type]
    found, expected = Measured(laplace.variance / gaussian.variance), 2.0 * (d + 2) / 9.0
    return Check.near(f"d = {d}: noise of Laplace at 3 over GDP at 1 is 2 (d + 2) / 9", found, expected, relative=0.01)


def _privacy_rows() -> list[Row]:
    rows = [
        Row(what=f"delta of mu = 1 at epsilon = {epsilon:g}", tag="exact", published=delta,
            as_published=Measured(gdp_delta(1.0, epsilon)))
        for epsilon, delta in ((1.0, 0.1269), (2.0, 0.0209), (3.0, 0.0015))
    ]  # fmt: skip
    rows += [
        Row(what="mu that corresponds to epsilon = 3, over all thresholds", tag="exact",
            published="\"comparable privacy safeguards\" to 1-GDP",
            corrected=Measured(pure_to_gdp(3.0))),
        Row(what="mu of the printed noise N(0, 4/mu), at mu = 0.5", tag="exact",
            published="formula only",
            as_published=Measured(2.0 / math.sqrt(4.0 / 0.5)), corrected=Measured(0.5),
            note="The text prints N(0, 4/mu); everything here uses N(0, 4/mu^2), which gives mu."),
        Row(what="power of d in the mean square of Laplace noise", tag="exact", published="d^3 (log d)^2",
            corrected=Measured(2.0), note="d coordinates of variance 8 d C0^2 / epsilon^2 each."),
        Row(what="largest norm of the Huber gradient, where C0 is half the sensitivity", tag="exact",
            published="formula only",
            as_published=Measured(math.hypot(1.345 * math.sqrt(2.0), (1.345**2 - Huber(1.345).kappa) / 2.0)),
            corrected=Measured(Huber(1.345).bound(math.sqrt(2.0))),
            note="The largest norm exceeds C0 = sqrt(8 c^2 + c^4/4) / 2 unless a constant is taken off the scale's "
            "gradient (corrected)."),
    ]  # fmt: skip
    return rows
