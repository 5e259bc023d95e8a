"""Experiments of the paper on IWP-SGD."""

from __future__ import annotations

from reproductions.data_file import DataFile
from reproductions.experiment import Experiment, Paper

_HERE = "reproductions.iwp_sgd"
SURVEY = DataFile(
    name="person records of the American Community Survey 2018, the five largest states in one file",
    columns=("AGEP", "SEX", "SCHL", "WKHP", "PINCP", "PUBCOV"),
)
"""The survey file, with the columns of the paper's tasks."""

PAPER = Paper(
    number="000",
    protocol="IWP-SGD",
    citation=(
        "Dufraiche, Mangold, Perrot, Tommasi: "
        "Learning with Locally Private Examples by Inverse Weierstrass Private Stochastic Gradient Descent"
    ),
    experiments=(
        Experiment(
            id="000/fig1",
            title="Test loss of the exponential loss on generated data, and what its ridge hides",
            module=f"{_HERE}.generated",
            function="fig1",
        ),
        Experiment(
            id="000/fig2",
            title="Test loss of the exponential loss, of models and of the averaged model",
            module=f"{_HERE}.convergence",
            function="fig2",
            files=(SURVEY,),
        ),
        Experiment(
            id="000/fig3",
            title="How far the truncated log loss is from unbiased",
            module=f"{_HERE}.truncation",
            function="fig3",
        ),
        Experiment(
            id="000/fig4",
            title="Accuracy with the exponential loss",
            module=f"{_HERE}.convergence",
            function="fig4",
            files=(SURVEY,),
        ),
        Experiment(
            id="000/fig5",
            title="Test loss of the log loss on generated data",
            module=f"{_HERE}.generated",
            function="fig5",
        ),
        Experiment(
            id="000/fig6",
            title="Test loss of the log loss, of models and of the averaged model",
            module=f"{_HERE}.convergence",
            function="fig6",
            files=(SURVEY,),
        ),
        Experiment(
            id="000/fig7",
            title="Accuracy with the log loss",
            module=f"{_HERE}.convergence",
            function="fig7",
            files=(SURVEY,),
        ),
        Experiment(
            id="000/fig8",
            title="Regression: test loss, of models and of the averaged model",
            module=f"{_HERE}.convergence",
            function="fig8",
            files=(SURVEY,),
        ),
        Experiment(
            id="000/thm4.2",
            title="Bias of the noisy risk at its limits",
            module=f"{_HERE}.theorems",
            function="thm42",
        ),
        Experiment(
            id="000/thm5.3",
            title="Variance of gradients and its bounds",
            module=f"{_HERE}.theorems",
            function="thm53",
        ),
        Experiment(
            id="000/thm5.5",
            title="Error by n, and step sizes",
            module=f"{_HERE}.theorems",
            function="thm55",
        ),
    ),
)
