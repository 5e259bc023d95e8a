"""IWP-SGD: learning from examples that people release once.

Estimators, which need River, are imported on first access: devices import only :mod:`murk.learners.examples.problem`.
"""

from typing import TYPE_CHECKING

from murk._lazy import lazy_exports

if TYPE_CHECKING:
    from murk.learners.examples.classifier import IWPSGDClassifier
    from murk.learners.examples.evaluation import Evaluated, Example, UnbiasedLoss
    from murk.learners.examples.regressor import IWPSGDRegressor

__all__ = ["Evaluated", "Example", "IWPSGDClassifier", "IWPSGDRegressor", "UnbiasedLoss"]

_HOMES = {
    "Evaluated": ".evaluation",
    "Example": ".evaluation",
    "IWPSGDClassifier": ".classifier",
    "IWPSGDRegressor": ".regressor",
    "UnbiasedLoss": ".evaluation",
}
__getattr__, __dir__ = lazy_exports(__name__, _HOMES)
