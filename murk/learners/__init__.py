"""Learners of released data. Estimators are imported on first use, so that a device starts without River."""

from typing import TYPE_CHECKING

from murk._internal.lazy import lazy_exports

if TYPE_CHECKING:
    from murk.learners.encoder import Encoder as Encoder
    from murk.learners.evaluation import Evaluated as Evaluated
    from murk.learners.evaluation import UnbiasedLoss as UnbiasedLoss
    from murk.learners.gaussmix import GaussMixClassifier as GaussMixClassifier
    from murk.learners.gaussmix import GaussMixRegressor as GaussMixRegressor
    from murk.learners.iwp_sgd import IWPSGDClassifier as IWPSGDClassifier
    from murk.learners.iwp_sgd import IWPSGDRegressor as IWPSGDRegressor
    from murk.learners.ldp_sgd import LDPSGDClassifier as LDPSGDClassifier
    from murk.learners.ldp_sgd import LDPSGDRegressor as LDPSGDRegressor
    from murk.learners.once_per_person import OncePerPerson as OncePerPerson
    from murk.learners.public_glm import PublicGLMClassifier as PublicGLMClassifier
    from murk.learners.public_glm import PublicGLMRegressor as PublicGLMRegressor
    from murk.learners.scores import ScoreClassifier as ScoreClassifier
    from murk.learners.scores import ScoreRegressor as ScoreRegressor
    from murk.learners.univariate import MeanRegressor as MeanRegressor
    from murk.learners.univariate import ShareClassifier as ShareClassifier

__all__, __getattr__, __dir__ = lazy_exports(__name__)
