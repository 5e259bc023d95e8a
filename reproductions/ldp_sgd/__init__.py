"""Experiments of the paper on LDP-SGD and LDP-ASGD."""

from __future__ import annotations

from typing import Any

from reproductions.data_file import DataFile
from reproductions.experiment import Experiment, Paper

INSURANCE = DataFile(
    name="insurance_dataset.csv (Kaggle, sridharstreaks: insurance-data-for-machine-learning)",
    columns=(
        "age", "gender", "bmi", "children", "smoker", "region", "medical_history", "family_medical_history",
        "exercise_frequency", "occupation", "coverage_level", "charges",
    ),
)  # fmt: skip
COLUMNS = INSURANCE.columns


def _experiment(name: str, title: str, module: str, function: str | None = None, **more: Any) -> Experiment:
    return Experiment(id=f"002/{name}", title=title, module=f"{__name__}.{module}", function=function or name, **more)


PAPER = Paper(
    number="002",
    protocol="LDP-SGD and LDP-ASGD",
    citation="Shi, Xie, Jiang, Kong, He: Non-Asymptotic Analysis of Online Local Private Learning with SGD",
    experiments=(
        _experiment("fig1", "Clipped against weighted gradients", "clipping"),
        _experiment("fig2", "People's own budgets, and averaging", "mechanisms"),
        _experiment("table1", "Rates of convergence, and relative orders (figure 3)", "rates", also=("002/fig3",)),
        _experiment("thm3-6", "Bounds of theorems 3 to 6 beside measured errors", "bounds", "theorems"),
        _experiment("fig4", "Laplace against Gaussian noise", "mechanisms"),
        _experiment("fig5", "Linear regression over decay rates and budgets", "trajectories"),
        _experiment("fig6", "Logistic regression over decay rates and budgets", "trajectories"),
        *(
            _experiment(name, f"Health insurance: {what}", "insurance", files=(INSURANCE,))
            for name, what in (("fig7", "error"), ("fig8", "cross-entropy"), ("fig9", "accuracy"))
        ),
    ),
)
