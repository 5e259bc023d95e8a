"""Learners of released data.

Estimators are imported on first use, so that a device, which needs a task's problem but not River, starts fast.
"""

from typing import TYPE_CHECKING

from murk._lazy import lazy_exports

if TYPE_CHECKING:
    from murk.learners.examples.classifier import IWPSGDClassifier
    from murk.learners.examples.regressor import IWPSGDRegressor
    from murk.learners.gradients.classifier import LDPSGDClassifier
    from murk.learners.gradients.regressor import LDPSGDRegressor
    from murk.learners.moments.classifier import PublicDataGLM, PublicGLMClassifier
    from murk.learners.moments.regressor import PublicDataRegression, PublicGLMRegressor
    from murk.learners.scores.classifier import ScoreClassifier
    from murk.learners.scores.regressor import ScoreRegressor
    from murk.learners.sketches.classifier import GaussMixClassifier
    from murk.learners.sketches.regressor import GaussMixRegressor

__all__ = [
    "GaussMixClassifier",
    "GaussMixRegressor",
    "IWPSGDClassifier",
    "IWPSGDRegressor",
    "LDPSGDClassifier",
    "LDPSGDRegressor",
    "PublicDataGLM",
    "PublicDataRegression",
    "PublicGLMClassifier",
    "PublicGLMRegressor",
    "ScoreClassifier",
    "ScoreRegressor",
]

_HOMES = {
    "GaussMixClassifier": ".sketches.classifier",
    "GaussMixRegressor": ".sketches.regressor",
    "IWPSGDClassifier": ".examples.classifier",
    "IWPSGDRegressor": ".examples.regressor",
    "LDPSGDClassifier": ".gradients.classifier",
    "LDPSGDRegressor": ".gradients.regressor",
    "PublicDataGLM": ".moments.classifier",
    "PublicDataRegression": ".moments.regressor",
    "PublicGLMClassifier": ".moments.classifier",
    "PublicGLMRegressor": ".moments.regressor",
    "ScoreClassifier": ".scores.classifier",
    "ScoreRegressor": ".scores.regressor",
}
__getattr__, __dir__ = lazy_exports(__name__, _HOMES)
