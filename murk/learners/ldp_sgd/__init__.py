"""River estimators that learn by locally private stochastic gradient descent."""

from murk.learners.ldp_sgd.classifier import LDPSGDClassifier
from murk.learners.ldp_sgd.regressor import LDPSGDRegressor

__all__ = ["LDPSGDClassifier", "LDPSGDRegressor"]
