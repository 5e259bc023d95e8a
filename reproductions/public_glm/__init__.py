"""Experiments of the paper on public-data GLM."""

from __future__ import annotations

from reproductions.experiment import Experiment, Paper
from reproductions.public_glm.files import FILES

PAPER = Paper(
    number="003",
    protocol="public-data GLM",
    citation=(
        "Wang, Zhang, Gaboardi, Xu: "
        "Estimating Smooth GLM in Non-interactive Local Differential Privacy Model with Public Unlabeled Data"
    ),
    experiments=(
        Experiment(
            id="003/fig1",
            title="Normal designs, by privacy",
            module="reproductions.public_glm.synthetic",
            function="fig1",
        ),
        Experiment(
            id="003/fig2",
            title="Normal designs, by dimension",
            module="reproductions.public_glm.synthetic",
            function="fig2",
        ),
        Experiment(
            id="003/fig3",
            title="Logistic model, features of two values",
            module="reproductions.public_glm.synthetic",
            function="fig3",
        ),
        Experiment(
            id="003/fig4",
            title="Poisson regression, features of two values",
            module="reproductions.public_glm.synthetic",
            function="fig4",
        ),
        Experiment(
            id="003/fig5",
            title="Cubic regression, features of two values",
            module="reproductions.public_glm.synthetic",
            function="fig5",
        ),
        Experiment(
            id="003/fig6",
            title="Accuracy on real people",
            module="reproductions.public_glm.real",
            function="fig6",
            files=FILES,
        ),
        Experiment(
            id="003/fig7",
            title="By the number of public rows",
            module="reproductions.public_glm.public_rows",
            function="fig7",
        ),
        Experiment(
            id="003/thm19-26",
            title="Examples of the assumptions",
            module="reproductions.public_glm.assumptions",
            function="examples",
        ),
    ),
)
