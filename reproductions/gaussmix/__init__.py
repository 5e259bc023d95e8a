"""Experiments of the GaussMix paper."""

from __future__ import annotations

from reproductions.experiment import Experiment, Paper
from reproductions.gaussmix.files import FIG2, FIG4, files_of

PAPER = Paper(
    number="004",
    protocol="GaussMix",
    citation=(
        "Lev, Srinivasan, Shenfeld, Ligett, Sekhari, Wilson: "
        "The Gaussian Mixing Mechanism: Rényi Differential Privacy via Gaussian Sketches"
    ),
    experiments=(
        Experiment(
            id="004/fig1",
            title="Epsilon of a sketch by two analyses",
            module="reproductions.gaussmix.thresholds",
            function="fig1",
        ),
        Experiment(
            id="004/constants",
            title="Thresholds of the algorithms",
            module="reproductions.gaussmix.thresholds",
            function="constants",
        ),
        Experiment(
            id="004/fig2",
            title="Linear regression from sketches against its rivals",
            module="reproductions.gaussmix.regression",
            function="fig2",
            files=files_of(FIG2),
        ),
        Experiment(
            id="004/fig3",
            title="Logistic regression from sketches against objective perturbation",
            module="reproductions.gaussmix.logistic",
            function="fig3",
        ),
        Experiment(
            id="004/fig4",
            title="Linear regression from sketches on more data sets",
            module="reproductions.gaussmix.regression",
            function="fig4",
            files=files_of(FIG4),
        ),
        Experiment(
            id="004/fig5",
            title="Logistic regression from sketches on more images",
            module="reproductions.gaussmix.logistic",
            function="fig5",
        ),
        Experiment(
            id="004/thm3",
            title="Bounds of theorem 3 and corollary 2 beside measured errors",
            module="reproductions.gaussmix.bounds",
            function="theorems",
        ),
        Experiment(
            id="004/hessian",
            title="Iterative Hessian mixing at the same budget",
            module="reproductions.gaussmix.hessian",
            function="hessian",
        ),
    ),
)
