"""Every public learner, small and ready, for tests of what holds for all of them."""

from functools import cache
from inspect import signature
from itertools import product

import numpy as np

import murk.learners
from murk.privacy import GaussianDP, PureDP
from tests.kernels import compiled_at_once

FEATURES = ("a", "b")
SECRETS = (0.314159265, -0.718281828)
RECORD = dict(zip(FEATURES, SECRETS, strict=True))


def made(name, setting=0, **more):
    """A learner with the first of its own test settings, or another of them, and declared features."""
    kind = getattr(murk.learners, name)
    declared = {"features": FEATURES} if "features" in signature(kind).parameters else {}
    settings = {**bounds_of(kind), **settings_of(name)[setting], **declared, "seed": None, **more}
    return kind(**settings)


def bounds_of(kind):
    """The usual bounds of the target, for learners that ask for them where noise is real."""
    return {"target_bounds": (-1.0, 1.0)} if "target_bounds" in signature(kind).parameters else {}


def settings_of(name):
    """A learner's own test settings."""
    return list(getattr(murk.learners, name)._unit_test_params())


def target_of(name):
    """A target that the learner declares."""
    return True if "Regress" not in name and name != "PublicGLMRegressor" else 0.577215664


NAMES = tuple(name for name in murk.learners.__all__ if hasattr(getattr(murk.learners, name), "learn_release"))
"""Estimators: an encoder and the evaluation of a learner are in the package, too."""
BY_RECORD = tuple(name for name in NAMES if not name.startswith("GaussMix"))
"""Those that randomize each record by itself."""
FEATURED = tuple(name for name in NAMES if "features" in signature(getattr(murk.learners, name)).parameters)
"""Those that learn from features, too, not from the target alone."""
PURE = {"mechanism": "l2-ball", "guarantee": PureDP(1.0)}
STRICT = GaussianDP(0.25)


@cache
def compiled():
    """Make sure that every kernel is compiled: threads make it take minutes, and interrupts break numba's own state."""
    with compiled_at_once():
        for name in NAMES:
            window = {"window": 2} if name.startswith("GaussMix") else {}
            for setting, seed in product(range(len(settings_of(name))), (None, 1)):
                model, y = made(name, setting, seed=seed, **window), target_of(name)
                model.learn_one(RECORD, y)
                # A learner of scores has its other kernels once it has a model.
                rows = 2_000 if name.startswith("Score") else 3
                model.learn_many(np.zeros((rows, 2)), [y] * rows)
                model.learn_one(RECORD, y)
