"""IWP-SGD: learning from examples that people released once.

The estimators are River estimators and are imported when first asked for: a device needs what it releases
(:mod:`murk.learners.iwp_sgd.problem`), and not River.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from murk.learners.iwp_sgd.classifier import IWPSGDClassifier
    from murk.learners.iwp_sgd.evaluation import Evaluated, Example, UnbiasedLoss
    from murk.learners.iwp_sgd.regressor import IWPSGDRegressor

__all__ = ["Evaluated", "Example", "IWPSGDClassifier", "IWPSGDRegressor", "UnbiasedLoss"]

_MODULES = {
    "Evaluated": "evaluation",
    "Example": "evaluation",
    "IWPSGDClassifier": "classifier",
    "IWPSGDRegressor": "regressor",
    "UnbiasedLoss": "evaluation",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULES])
