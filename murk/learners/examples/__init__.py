"""IWP-SGD: learning from examples that people release once. Estimators, which need River, are imported on access."""

from typing import TYPE_CHECKING

from murk._lazy import lazy_exports

if TYPE_CHECKING:
    from murk.learners.examples.estimators import IWPSGDClassifier, IWPSGDRegressor
    from murk.learners.examples.evaluation import Evaluated, Example, UnbiasedLoss

__all__ = ["Evaluated", "Example", "IWPSGDClassifier", "IWPSGDRegressor", "UnbiasedLoss"]

_HOMES = {
    "Evaluated": ".evaluation",
    "Example": ".evaluation",
    "IWPSGDClassifier": ".estimators",
    "IWPSGDRegressor": ".estimators",
    "UnbiasedLoss": ".evaluation",
}
__getattr__, __dir__ = lazy_exports(__name__, _HOMES)
