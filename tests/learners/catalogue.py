"""Every public learner, small and ready, for tests of what holds for all of them."""

from functools import cache

import numpy as np

import murk.learners
from murk.privacy import GaussianDP, PureDP

FEATURES = ("a", "b")
SECRETS = (0.314159265, -0.718281828)
RECORD = dict(zip(FEATURES, SECRETS, strict=True))


def made(name, **more):
    """A learner with the first of its own test settings, and declared features."""
    kind = getattr(murk.learners, name)
    settings = {**next(iter(kind._unit_test_params())), "features": FEATURES, "seed": None, **more}
    return kind(**settings)


def target_of(name):
    """A target that the learner declares."""
    return True if "Regress" not in name and name != "PublicGLMRegressor" else 0.577215664


NAMES = tuple(murk.learners.__all__)
BY_RECORD = tuple(name for name in NAMES if not name.startswith("GaussMix"))
"""Those that randomize each record by itself."""
PURE = {"mechanism": "l2-ball", "budget": PureDP(1.0)}
STRICT = GaussianDP(0.25)


@cache
def compiled():
    """Make sure that every kernel is compiled: threads make it take minutes, and interrupts break numba's own state."""
    for name in NAMES:
        for seed in (None, 1):
            model, y = made(name, seed=seed, **({"window": 2} if name.startswith("GaussMix") else {})), target_of(name)
            model.learn_one(RECORD, y)
            model.learn_many(np.zeros((3, 2)), [y] * 3)
            model.learn_one(RECORD, y)
