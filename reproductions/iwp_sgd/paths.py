"""The learners whose iterates the figures compare."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from murk.learners import IWPSGDClassifier, IWPSGDRegressor
from murk.privacy import ApproxDP
from reproductions.experiment import Setting
from reproductions.iwp_sgd.plain import Array

REAL, NOISY, IWP, PRODUCT, DEFAULT = (
    "SGD, real data",
    "SGD, noisy data",
    "IWP-SGD",
    "IWP-SGD, product",
    "Murk's default",
)

DELTA = 1e-5
DEFAULT_NOTE = (
    "Murk's default: outer products with mechanism='gaussian', because the default's PrivUnit, which has less noise, "
    "takes long to simulate; quadratic or squared loss, no ridge, no intercept"
)


def seed_of(setting: Setting, draw: int) -> int:
    """Return the seed of a draw's noise."""
    return int(setting.rng(200, draw).integers(2**63))


def checkpoints(batches: int, most: int = 24) -> list[int]:
    """Return the numbers of batches at which iterates are recorded, from 0 to all."""
    return sorted({round(batches * share) for share in np.linspace(0.0, 1.0, most + 1)})


def published(*, regression: bool = False, **more: Any) -> dict[str, Any]:
    """Return the paper's learner, and its uncorrected baseline on the same releases."""
    settings: dict[str, Any] = {"calibration": "classic", "intercept": False, **more}
    learner = IWPSGDRegressor if regression else IWPSGDClassifier
    return {
        NOISY: learner.as_published(corrected=False, **settings),
        IWP: learner.as_published(**settings),
    }


def product(**more: Any) -> IWPSGDClassifier:
    """Return the learner of the released product of label and features, with analytic calibration."""
    return IWPSGDClassifier.as_published(release="joint", intercept=False, **more)


def path(model: IWPSGDClassifier | IWPSGDRegressor, x: Array, y: Any, batch: int, at: Sequence[int]) -> Array:
    """Return the iterates after each number of batches in ``at``, one a row, without the intercept."""
    iterates, done = [], 0
    for number in at:
        model.learn_many(x[done : number * batch], y[done : number * batch])
        done = number * batch
        iterates.append(model.iterate[:-1] if done else np.zeros(x.shape[1]))
    return np.array(iterates)


def default(x: Array, y: Any, epsilon: float, seed: int, regression: bool = False) -> Array:
    """Return the estimate of Murk's default for released examples at the same (epsilon, delta)."""
    learner = IWPSGDRegressor if regression else IWPSGDClassifier
    model = learner(
        guarantee=ApproxDP(epsilon, DELTA),
        mechanism="gaussian",
        intercept=False,
        features=list(range(x.shape[1])),
        seed=seed,
    )
    model.learn_many(x, y)
    return model.estimate().values[:-1]
