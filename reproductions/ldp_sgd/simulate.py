"""The paper's simulated people (section 5), and trajectories of learners on them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from murk._internal.links import logistic
from murk.learners import LDPSGDClassifier, LDPSGDRegressor
from murk.privacy import GaussianDP, Guarantee
from reproductions.experiment import Check, Measured, Series, Setting

Floats = NDArray[np.float64]
Kind = Literal["linear", "logistic"]

N: Final = 300_000
"""Number of people in the paper."""
REPLICATIONS: Final = 200
ALPHAS: Final = (1 / 3, 1 / 2, 2 / 3, 1.0)
NOISELESS: Final = GaussianDP(900.0)
"""Murk learns only from releases, so "no noise" has a 900th of the noise at mu = 1."""
LEVELS: Final[dict[str, GaussianDP]] = {
    "mu = 0.5": GaussianDP(0.5),
    "mu = 1": GaussianDP(1.0),
    "mu = 2": GaussianDP(2.0),
    "mu = 3": GaussianDP(3.0),
    "no noise": NOISELESS,
}
STYLES: Final[tuple[tuple[str, Literal["line", "dashed"]], ...]] = (("SGD", "line"), ("ASGD", "dashed"))
SIGMA: Final = 2.0
"""Residual scale of the linear model."""


def fraction(alpha: float) -> str:
    """Return a decay rate as the paper writes it.

    Examples
    --------
    >>> fraction(1 / 3), fraction(1.0)
    ('1/3', '1')
    """
    return {1 / 3: "1/3", 1 / 2: "1/2", 2 / 3: "2/3", 1.0: "1"}.get(alpha, f"{alpha:g}")


def people(kind: Kind, d: int, n: int, rng: np.random.Generator) -> tuple[Floats, NDArray[Any]]:
    """Draw standard normal features (n, d) and targets (n,); coefficients and intercept are 1."""
    X = rng.normal(size=(n, d))
    fit = X.sum(axis=1) + 1.0
    if kind == "linear":
        return X, fit + SIGMA * rng.normal(size=n)
    return X, rng.random(n) < logistic(fit)


def truth(kind: Kind, d: int) -> Floats:
    """Return the true coefficients, intercept, and scale of a linear model."""
    return np.append(np.ones(d + 1), [SIGMA] if kind == "linear" else [])


def published(kind: Kind, d: int, budget: Guarantee, seed: int, **more: Any) -> LDPSGDClassifier | LDPSGDRegressor:
    """Return the paper's learner: Mallows weights, steps ``eta i^-alpha`` with eta = 0.2, started at zero."""
    learner = LDPSGDRegressor if kind == "linear" else LDPSGDClassifier
    return learner.as_published(guarantee=budget, features=list(range(d)), seed=seed, **more)


def points(last: int, first: int = 1000, count: int = 16) -> list[int]:
    """Return the numbers of people at which a trajectory is recorded, evenly on a log axis."""
    return sorted({int(n) for n in np.geomspace(min(first, last), last, count).round()})


Model = LDPSGDClassifier | LDPSGDRegressor
Maker = Callable[[int], Model]


@dataclass(frozen=True)
class Path:
    """Iterates and averages of one run, ``(2, points, parameters)``."""

    values: Floats

    def distances(self, target: Floats) -> Floats:
        """Return squared distances of iterates and averages to the truth, ``(2, points)``."""
        return np.asarray(np.sum((self.values - target) ** 2, axis=2))


def follow(
    model: Model, X: Floats, y: NDArray[Any], at: Sequence[int], budgets: Sequence[Guarantee] | None = None
) -> Path:
    """Learn from people in turn and record iterate and average after each number of people in ``at``."""
    recorded, start = [], 0
    for stop in at:
        part = slice(start, stop)
        model.learn_many(X[part], y[part], guarantee=None if budgets is None else budgets[part])
        start = stop
        both = np.array([model.iterate, model.average])
        if isinstance(model, LDPSGDRegressor):
            # The scale is learned in larger units.
            both[:, -1] *= model.scale_multiplier
        recorded.append(both)
    return Path(np.array(recorded).transpose(1, 0, 2))


def replicate(
    setting: Setting, kind: Kind, d: int, makers: Mapping[str, Maker], at: Sequence[int], times: int, *,
    share: tuple[float, float] = (0.0, 1.0), draw: Callable[[np.random.Generator, int], list[Guarantee]] | None = None,
    drawn: Sequence[str] = (),
) -> dict[str, list[Path]]:  # fmt: skip
    """Run each learner on the same people, and return the paths by name.

    Parameters
    ----------
    share
        Start and end of these runs in the progress of the experiment.
    draw, drawn
        Draws people's own budgets, for the learners named in ``drawn``.
    """
    paths: dict[str, list[Path]] = {name: [] for name in makers}
    for r in range(times):
        rng = setting.rng(d, r)
        X, y = people(kind, d, at[-1], rng)
        budgets = None if draw is None else draw(rng, at[-1])
        for place, (name, make) in enumerate(makers.items()):
            done = (r + place / len(makers)) / times
            setting.tick(share[0] + (share[1] - share[0]) * done, f"d = {d}, run {r + 1} of {times}")
            paths[name].append(follow(make(1000 * setting.seed + r), X, y, at, budgets if name in drawn else None))
    return paths


def distances(paths: Sequence[Path], target: Floats) -> Floats:
    """Return squared distances ``(runs, 2, points)``."""
    return np.array([path.distances(target) for path in paths])


def lines(name: str, at: Sequence[int], found: Floats, colour: int | None = None) -> list[Series]:
    """Return means over runs: the iterate as a line, the average dashed in the same colour."""
    mean = found.mean(axis=0)
    return [
        Series(name=f"{name}, {which}", x=list(at), y=mean[row].tolist(), style=style, colour=colour)
        for row, (which, style) in enumerate(STYLES)
    ]


KNOWN: Final[dict[tuple[Kind, str], tuple[Measured, Measured]]] = {
    ("linear", "mu = 1"): (Measured(-2.0119, 0.0308), Measured(-3.4848, 0.0349)),
    ("linear", "mu = 2"): (Measured(-3.3948, 0.0314), Measured(-5.0694, 0.0297)),
    ("linear", "no noise"): (Measured(-7.1985, 0.0298), Measured(-8.8173, 0.0269)),
    ("logistic", "mu = 2"): (Measured(-2.9569, 0.0318), Measured(-3.3254, 0.0401)),
}
"""Mean logarithms of squared distances of iterate and average at d = 5, alpha = 1/2, n = 300,000, from 400 runs of an
independent simulation in NumPy (``python -m tests.reproduce.plain_ldp_sgd``). A few runs with large errors dominate the
means of the distances themselves."""
RUNS: Final = 64
"""Runs compared with `KNOWN`: a standard error of about 0.09, where `WITHIN` is 0.41."""
WITHIN: Final = math.log(1.5)


def as_known(setting: Setting, kind: Kind, level: str) -> list[Check]:
    """Check iterate and average at a level against the independent simulation, by means of logarithms."""
    maker: Maker = lambda seed: published(kind, 5, LEVELS[level], seed)  # noqa: E731
    times = max(RUNS, setting.of(tiny=0, reduced=0, full=REPLICATIONS))
    found = distances(replicate(setting, kind, 5, {level: maker}, [N], times)[level], truth(kind, 5))[:, :, -1]
    return [near_known(kind, level, place, found[:, place]) for place in (0, 1)]


def near_known(kind: Kind, level: str, place: int, found: Floats) -> Check:
    """Check squared distances ``(runs,)`` of the iterate (0) or the average (1) against `KNOWN`."""
    which = ("iterate", "average")[place]
    claim = f"d = 5, alpha = 1/2, {level}, {which}: mean logarithm of an independent simulation, within log 1.5"
    return Check.near(claim, Measured.mean(np.log(found)), KNOWN[kind, level][place], within=WITHIN)


def at_least(claim: str, small: Floats, large: Floats, times: float) -> Check:
    """Check that ``large`` is at least ``times`` as large as ``small``, by means of logarithms, ignoring errors."""
    ratio = Measured.mean(np.log(large / small))
    found = f"{math.exp(ratio.value):.3g} times (its logarithm {ratio})"
    return Check(f"{claim}: the measured ratio is at least {times:g}", bool(ratio.value >= math.log(times)), found)


def nearer(claim: str, small: Floats, large: Floats, times: float = 1.0) -> Check:
    """Check that ``times * small`` is below ``large``, two positive arrays ``(runs,)``, by means of logarithms."""
    runs = min(len(small), len(large))
    by = "" if times == 1.0 else f" by a factor of {times:g}"
    return Check.less_paired(f"{claim}{by} (logarithms)", np.log(times * small[:runs]), np.log(large[:runs]))
