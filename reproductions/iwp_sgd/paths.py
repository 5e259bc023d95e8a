"""The learners whose paths the figures compare, each from the library by its public settings."""

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
    "Murk's default: outer products, here with mechanism='gaussian' (the default's PrivUnit has less noise and takes "
    "long to simulate); the quadratic or squared loss, no ridge, no constant"
)


def seed_of(setting: Setting, draw: int) -> int:
    """Of a draw's noise."""
    return int(setting.rng(200, draw).integers(2**63))


def checkpoints(batches: int, most: int = 24) -> list[int]:
    """Numbers of batches at which paths are looked at: 0, and up to all."""
    return sorted({round(batches * share) for share in np.linspace(0.0, 1.0, most + 1)})


def published(*, regression: bool = False, **more: Any) -> dict[str, Any]:
    """Arguments of the paper's release, and of its baseline on the very same releases."""
    settings: dict[str, Any] = {"calibration": "classic", "intercept": False, **more}
    learner = IWPSGDRegressor if regression else IWPSGDClassifier
    return {
        NOISY: learner.as_published(corrected=False, **settings),
        IWP: learner.as_published(**settings),
    }


def product(**more: Any) -> IWPSGDClassifier:
    """The same steps on the released product of label and features, with analytic calibration."""
    return IWPSGDClassifier.as_published(release="joint", intercept=False, **more)


def path(model: IWPSGDClassifier | IWPSGDRegressor, x: Array, y: Any, batch: int, at: Sequence[int]) -> Array:
    """Its iterates after numbers ``at`` of batches, a row each, without the constant."""
    found, done = [], 0
    for number in at:
        model.learn_many(x[done : number * batch], y[done : number * batch])
        done = number * batch
        found.append(model.iterate[:-1] if done else np.zeros(x.shape[1]))
    return np.array(found)


def default(x: Array, y: Any, epsilon: float, seed: int, regression: bool = False) -> Array:
    """What Murk's default for released examples learns of these people at the same (epsilon, delta)."""
    learner = IWPSGDRegressor if regression else IWPSGDClassifier
    model = learner(
        budget=ApproxDP(epsilon, DELTA),
        mechanism="gaussian",
        intercept=False,
        features=list(range(x.shape[1])),
        seed=seed,
    )
    model.learn_many(x, y)
    return model.estimate().values[:-1]
