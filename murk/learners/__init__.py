"""Learners of released data. Estimators are imported on first use, so that a device starts without River."""

from typing import TYPE_CHECKING

from murk._lazy import lazy_exports

if TYPE_CHECKING:
    from murk.learners.examples.estimators import IWPSGDClassifier, IWPSGDRegressor
    from murk.learners.gradients.estimators import LDPSGDClassifier, LDPSGDRegressor
    from murk.learners.moments.estimators import (
        PublicGLMClassifier,
        PublicGLMRegressor,
    )
    from murk.learners.scores.estimators import ScoreClassifier, ScoreRegressor
    from murk.learners.sketches.estimators import GaussMixClassifier, GaussMixRegressor
    from murk.learners.univariate.estimators import MeanRegressor, ShareClassifier

__all__ = [
    "GaussMixClassifier",
    "GaussMixRegressor",
    "IWPSGDClassifier",
    "IWPSGDRegressor",
    "LDPSGDClassifier",
    "LDPSGDRegressor",
    "MeanRegressor",
    "PublicGLMClassifier",
    "PublicGLMRegressor",
    "ScoreClassifier",
    "ScoreRegressor",
    "ShareClassifier",
]

_HOMES = {
    "GaussMixClassifier": ".sketches.estimators",
    "GaussMixRegressor": ".sketches.estimators",
    "IWPSGDClassifier": ".examples.estimators",
    "IWPSGDRegressor": ".examples.estimators",
    "LDPSGDClassifier": ".gradients.estimators",
    "LDPSGDRegressor": ".gradients.estimators",
    "MeanRegressor": ".univariate.estimators",
    "PublicGLMClassifier": ".moments.estimators",
    "PublicGLMRegressor": ".moments.estimators",
    "ScoreClassifier": ".scores.estimators",
    "ScoreRegressor": ".scores.estimators",
    "ShareClassifier": ".univariate.estimators",
}
__getattr__, __dir__ = lazy_exports(__name__, _HOMES)
