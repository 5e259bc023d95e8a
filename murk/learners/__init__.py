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

_FOLDERS = {
    "GaussMix": "sketches",
    "IWPSGD": "examples",
    "LDPSGD": "gradients",
    "PublicGLM": "moments",
    "Score": "scores",
}
_KINDS = "Classifier", "Regressor"
_HOMES = {f"{name}{kind}": f".{folder}.{kind.lower()}" for name, folder in _FOLDERS.items() for kind in _KINDS}
_HOMES |= {"PublicDataGLM": ".moments.classifier", "PublicDataRegression": ".moments.regressor"}
__getattr__, __dir__ = lazy_exports(__name__, _HOMES)
