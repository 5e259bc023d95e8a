"""Engines and examples for the tests."""

import numpy as np

from murk.privacy import GaussianDP
from murk.protocols.examples import layout as k
from murk.protocols.examples.engine import engine_of
from murk.protocols.examples.settings import ExampleSettings, settle
from murk.stream.wire.releases import ExampleRelease

NAMES = ("a", "b", "intercept")


def settings(target="binary", **more):
    more = {"loss": "squared" if target == "real" else "probit", **more}
    return ExampleSettings(target=target, names=more.pop("names", NAMES), square=more.pop("square", 3.0), **more)


def engine(target="binary", guarantee=None, levels=None, seed=None, noise=None, **more):
    chosen = settings(target, **more)
    mechanisms = {"default": chosen.mechanism(GaussianDP(4.0) if guarantee is None else guarantee)}
    mechanisms |= {level: chosen.mechanism(each) for level, each in (levels or {}).items()}
    made = engine_of(settle(chosen, mechanisms), mechanisms, seed=seed, noise=noise)
    made.use(mechanisms["default"])
    return made


def at(made, theta):
    """Put a parameter where gradients and losses are taken."""
    for row in (k.ITERATE, k.AVERAGE, k.REFERENCE):
        made.rows[row] = theta
    return made


def release(payload, level="default", simulated=False, number=0):
    return ExampleRelease(
        id=f"{number:032x}", task="f" * 64, level=level, partition=0, payload=[int(q) for q in payload],
        time=0, expires=10,
        simulated=simulated,
    )  # fmt: skip


def records(n, seed=0, target="binary"):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (n, 2))
    fit = 0.5 * x[:, 0] - 0.3 * x[:, 1] + 0.1
    y = fit + rng.uniform(-0.1, 0.1, n) if target == "real" else (fit + rng.normal(size=n) > 0).astype(float)
    return x, y
