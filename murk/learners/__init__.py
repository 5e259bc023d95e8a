"""Learners of released data. Estimators are imported on first use, so that a device starts without River."""

from typing import TYPE_CHECKING

from murk._internal.lazy import lazy_exports

if TYPE_CHECKING:
    from murk.learners.encoder import Encoder
    from murk.learners.evaluation import Evaluated, UnbiasedLoss
    from murk.learners.gaussmix import GaussMixClassifier, GaussMixRegressor
    from murk.learners.iwp_sgd import IWPSGDClassifier, IWPSGDRegressor
    from murk.learners.ldp_sgd import LDPSGDClassifier, LDPSGDRegressor
    from murk.learners.once_per_person import OncePerPerson
    from murk.learners.public_glm import PublicGLMClassifier, PublicGLMRegressor
    from murk.learners.scores import ScoreClassifier, ScoreRegressor
    from murk.learners.univariate import MeanRegressor, ShareClassifier

__all__ = [
    "Encoder",
    "Evaluated",
    "GaussMixClassifier",
    "GaussMixRegressor",
    "IWPSGDClassifier",
    "IWPSGDRegressor",
    "LDPSGDClassifier",
    "LDPSGDRegressor",
    "MeanRegressor",
    "OncePerPerson",
    "PublicGLMClassifier",
    "PublicGLMRegressor",
    "ScoreClassifier",
    "ScoreRegressor",
    "ShareClassifier",
    "UnbiasedLoss",
]

_HOMES = {
    "Encoder": ".encoder",
    "Evaluated": ".evaluation",
    "GaussMixClassifier": ".gaussmix",
    "GaussMixRegressor": ".gaussmix",
    "IWPSGDClassifier": ".iwp_sgd",
    "IWPSGDRegressor": ".iwp_sgd",
    "LDPSGDClassifier": ".ldp_sgd",
    "LDPSGDRegressor": ".ldp_sgd",
    "MeanRegressor": ".univariate",
    "OncePerPerson": ".once_per_person",
    "PublicGLMClassifier": ".public_glm",
    "PublicGLMRegressor": ".public_glm",
    "ScoreClassifier": ".scores",
    "ScoreRegressor": ".scores",
    "ShareClassifier": ".univariate",
    "UnbiasedLoss": ".evaluation",
}
__getattr__, __dir__ = lazy_exports(__name__, _HOMES)
