"""Learners of released data.

The estimators are River estimators; their modules are imported when first asked for, so that a device,
which needs a task's problem but not River, starts fast.
"""

from typing import TYPE_CHECKING

from murk._lazy import lazy_exports

if TYPE_CHECKING:
    from murk.learners.gaussmix.classifier import GaussMixClassifier
    from murk.learners.gaussmix.regressor import GaussMixRegressor
    from murk.learners.iwp_sgd.classifier import IWPSGDClassifier
    from murk.learners.iwp_sgd.regressor import IWPSGDRegressor
    from murk.learners.ldp_sgd.classifier import LDPSGDClassifier
    from murk.learners.ldp_sgd.regressor import LDPSGDRegressor
    from murk.learners.public_glm.classifier import PublicDataGLM, PublicGLMClassifier
    from murk.learners.public_glm.regressor import PublicDataRegression, PublicGLMRegressor
    from murk.learners.scores.classifier import ScoreClassifier
    from murk.learners.scores.regressor import ScoreRegressor

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
    "GaussMixClassifier": ".gaussmix.classifier",
    "GaussMixRegressor": ".gaussmix.regressor",
    "IWPSGDClassifier": ".iwp_sgd.classifier",
    "IWPSGDRegressor": ".iwp_sgd.regressor",
    "LDPSGDClassifier": ".ldp_sgd.classifier",
    "LDPSGDRegressor": ".ldp_sgd.regressor",
    "PublicDataGLM": ".public_glm.classifier",
    "PublicDataRegression": ".public_glm.regressor",
    "PublicGLMClassifier": ".public_glm.classifier",
    "PublicGLMRegressor": ".public_glm.regressor",
    "ScoreClassifier": ".scores.classifier",
    "ScoreRegressor": ".scores.regressor",
}
__getattr__, __dir__ = lazy_exports(__name__, _HOMES)
