"""A task with `as_published: true` and River's `as_published` learn the same, to the bit, from the same people."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import murk
from murk import Task
from murk.learners import (
    GaussMixClassifier,
    GaussMixRegressor,
    IWPSGDClassifier,
    IWPSGDRegressor,
    LDPSGDClassifier,
    LDPSGDRegressor,
    PublicGLMClassifier,
    PublicGLMRegressor,
)
from murk.privacy import ApproxDP, GaussianDP, PureDP
from murk.protocols.device import device_for
from murk.stream import open_log

FEATURES = ["a", "b"]
ROWS = 240
SEED = 5
APPROX, GDP, PURE = ApproxDP(4.0, 1e-5), GaussianDP(1.0), PureDP(2.0)
BOX = (1.0, 3.0)  # squared lengths of a, b and the constant
RANDOM = np.random.default_rng(3)
X = RANDOM.uniform(-1.0, 1.0, (ROWS, 2)).round(3)
LINE = (X @ [1.0, -0.5] + 0.2 + 0.3 * RANDOM.normal(size=ROWS)).round(3)
PUBLIC = RANDOM.uniform(-1.0, 1.0, (120, 2)).round(3)
TARGETS: dict[str, tuple[str, Any]] = {
    "binary": ("{name: y, kind: binary, positive: 'yes', negative: 'no'}", np.where(LINE > 0, "yes", "no")),
    "classes": (
        "{name: y, kind: classes, classes: [u, v, w]}",
        np.where(LINE > 0.4, "u", np.where(LINE > 0, "v", "w")),
    ),
    "real": ("{name: y, kind: real, low: -2, high: 2}", np.clip(LINE, -2.0, 2.0)),
}
LABELS = {"classes": ("no", "yes")}
BOUNDS = {"target_bounds": (-2.0, 2.0)}


@dataclass(frozen=True)
class Case:
    """A task of a protocol and target, River's learner, and the unit in which the task's coefficients are coded."""

    protocol: str
    target: str
    budget: Any
    learner: Callable[..., Any]
    more: str = ""
    arguments: Any = None
    unit: float = 1.0

    def task(self, switch: str = "as_published: true") -> Task:
        declared, _ = TARGETS[self.target]
        return Task.parse(
            f"name: published\nfeatures: [{{name: a, low: -1, high: 1}}, {{name: b, low: -1, high: 1}}]\n"
            f"target: {declared}\nprotocol: {self.protocol}\n{switch}\n"
            f"privacy: {{guarantee: {self.budget.to_dict()}}}\n".replace("'", "")
            + self.more
        )

    def river(self) -> Any:
        public = {"public": PUBLIC} if "public" in self.more else {}
        return self.learner(guarantee=self.budget, features=FEATURES, seed=SEED, **public, **(self.arguments or {}))

    def __str__(self) -> str:
        return f"{self.protocol}-{self.target}{'-' * bool(self.more)}{self.more.partition('moments')[2]}"


GLM = "public: {file: public.csv}\n"
MIXED = "summaries: {rows: 32}"
CASES = [
    Case("gradients", "binary", GDP, LDPSGDClassifier.as_published, "", {**LABELS, "box": BOX}),
    Case("gradients", "binary", GDP, LDPSGDClassifier.as_published, "learner: {averaging: null}",
         {**LABELS, "box": BOX, "averaging": None}),
    Case("gradients", "classes", GDP, LDPSGDClassifier.as_published, "", {"classes": ("u", "v", "w"), "box": BOX}),
    Case("gradients", "real", PURE, LDPSGDRegressor.as_published, "", {**BOUNDS, "box": BOX}, 2.0),
    Case("examples", "binary", APPROX, IWPSGDClassifier.as_published, "", LABELS),
    Case("examples", "real", APPROX, IWPSGDRegressor.as_published, "", BOUNDS, 2.0),
    Case("moments", "binary", APPROX, PublicGLMClassifier.as_published, GLM, LABELS),
    Case("moments", "binary", APPROX, PublicGLMClassifier.as_published, GLM + "moments: {loss: poisson, radius: 0.9}",
         {**LABELS, "loss": "poisson", "radius": 0.9}),
    Case("moments", "real", APPROX, PublicGLMRegressor.as_published, GLM + "moments: {link: cubic}",
         {**BOUNDS, "link": "cubic", "lipschitz": 1.0, "error": 1.0}),
    Case("moments", "real", APPROX, PublicGLMRegressor.as_published, GLM + "moments: {link: identity}",
         {**BOUNDS, "link": "identity", "lipschitz": 1.0, "error": 1.0}, 2.0),
    Case("summaries", "binary", APPROX, GaussMixClassifier.as_published, MIXED, {**LABELS, "rows": 32}),
    Case("summaries", "real", APPROX, GaussMixRegressor.as_published, MIXED, {**BOUNDS, "rows": 32}, 2.0),
]  # fmt: skip


def learned(case: Case, folder: Path, rows: int = ROWS, **more: Any) -> Any:
    """The result of a run of the task on a log in a file."""
    _, y = TARGETS[case.target]
    pd.DataFrame(PUBLIC, columns=FEATURES).to_csv(folder / "public.csv", index=False)
    pd.DataFrame(X, columns=FEATURES).assign(y=y).head(rows).to_csv(folder / "people.csv", index=False)
    task = copy.copy(case.task(**more))
    task._path = folder / "task.yaml"
    place = {"log": f"sqlite:///{folder / 'log.db'}", "ledger": folder / "ledger.db"}
    return murk.run(task, folder / "people.csv", seed=SEED, publish=True, order="file", **place)


def coefficients(case: Case, model: Any) -> dict[str, float]:
    """Coefficients of River's learner in the task's unit; of moments without a root, those of the direction."""
    found = model.estimate() if case.protocol == "moments" else None
    own = model.coefficients() if found is None else dict(zip(found.names, found.values.tolist(), strict=True))
    return {name: value / case.unit for name, value in own.items()}


# Windows of organisations draw noise by their organisation and source: River learns those of the log, below.
ON_DEVICES = [case for case in CASES if case.protocol != "summaries"]
ON_LOGS = [case for case in CASES if case.protocol in ("gradients", "summaries")]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", ON_DEVICES, ids=str)
def test_a_task_as_published_and_river_agree(case: Case, tmp_path: Path) -> None:
    # Gradients on the pipe are as old as their iterate, which people read every hundredth release.
    rows = 100 if case.protocol == "gradients" else ROWS
    result = learned(case, tmp_path, rows)
    model = case.river()
    _, y = TARGETS[case.target]
    for x, target in zip(X[:rows], y[:rows], strict=True):
        model.learn_one(dict(zip(FEATURES, x, strict=True)), target)
    found = {name: each.value for name, each in result.coefficients.items()}
    expected = coefficients(case, model)
    assert found.keys() == expected.keys()
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-12)
    # Without noise of this seed, all of these coefficients would be others.
    assert all(found.values())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", ON_LOGS, ids=str)
def test_river_learns_the_logs_releases_to_the_same_bits(case: Case, tmp_path: Path) -> None:
    result = learned(case, tmp_path)
    wrong = {"alpha": 0.6} if case.protocol == "gradients" else {"debiased": True}
    model, twin = case.river(), case.learner(
        guarantee=case.budget, features=FEATURES, seed=SEED, **{**case.arguments, **wrong}
    )  # fmt: skip
    with open_log(f"sqlite:///{tmp_path / 'log.db'}", create=False) as log:
        releases = list(log.releases())
    assert len(releases) == (1 if case.protocol == "summaries" else ROWS)
    for each in releases:
        model.learn_release(each)
        twin.learn_release(each)
    found = {name: each.value for name, each in result.coefficients.items()}
    exact = case.unit == 1.0
    assert found == (coefficients(case, model) if exact else pytest.approx(coefficients(case, model), rel=1e-14))
    assert found != pytest.approx(coefficients(case, twin), rel=1e-3)


def test_a_switch_changes_the_estimate(tmp_path: Path) -> None:
    case = Case("examples", "binary", APPROX, IWPSGDClassifier.as_published)
    folders = [tmp_path / name for name in ("published", "default")]
    for folder in folders:
        folder.mkdir()
    published, default = (
        learned(case, folder, switch=switch) for folder, switch in zip(folders, ("as_published: true", ""), strict=True)
    )
    assert published.coefficients["a"].value != pytest.approx(default.coefficients["a"].value, rel=0.1)


@pytest.mark.parametrize("case", [case for case in CASES if case.protocol in ("gradients", "examples")], ids=str)
def test_settings_and_noise_are_the_same(case: Case) -> None:
    device: Any = device_for(case.task())
    model = case.river()
    model.learn_one({"a": 0.5, "b": -0.5}, TARGETS[case.target][1][0])
    engine = model._require()
    assert device.mechanisms["default"] == engine.mechanisms["default"]
    for name in ("step", "averaging", "weighting", "radius", "regularization", "batch", "weights", "newton", "loss"):
        assert getattr(device.settings, name, None) == getattr(engine.settings, name, None)
