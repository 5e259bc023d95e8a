"""What stays in a process's memory of a record that it has learned or released: nothing of what Murk computed of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from murk.privacy.noise import SimulatedNoise
from tests.memory_image import Image, complements
from tests.memory_scenarios import learner

FEATURES = [f"f{place}" for place in range(5)]
SEED = 20_240_607


class NoNoise:
    """A source of zeros: what a mechanism releases with it is what it adds noise to."""

    simulated = True

    def gaussian(self, records: Any, size: int) -> Any:
        """Zeros."""
        return np.zeros((len(records), size), dtype=np.int64)

    laplace = gaussian

    def words(self, records: Any, size: int, purpose: Any) -> Any:
        """Zeros."""
        return np.zeros((len(records), size), dtype=np.uint64)


def telling(values: Any, own: Any = ()) -> list[Any]:
    """Numbers that say something: none that any process has, and none of those that the caller keeps."""
    flat = np.asarray(values).ravel()
    large = 1e-9 if flat.dtype.kind == "f" else 1000
    kept = np.asarray(own).ravel()
    common = np.abs(np.mod(flat * 4, 1)) == 0 if flat.dtype.kind == "f" else np.zeros(flat.shape, dtype=bool)
    return list(flat[(np.abs(flat) > large) & ~common & ~np.isin(flat, kept)])


def records(count: int, target: str, seed: int = 5) -> list[Any]:
    """Records without round numbers."""
    source = np.random.default_rng(seed)
    rows = source.uniform(-0.43, 0.43, (count, len(FEATURES)))
    ys = source.uniform(-0.9, 0.9, count).tolist() if target == "real" else (source.uniform(size=count) < 0.5).tolist()
    return [(dict(zip(FEATURES, row.tolist(), strict=True)), y) for row, y in zip(rows, ys, strict=True)]


def secrets_of(model: Any, x: Any, y: Any, seed: int | None) -> list[int]:
    """Numbers that learning one record computes of it: its vector and noise, as needles."""
    from murk.learners.iwp_sgd.problem import ExampleProblem
    from murk.learners.ldp_sgd import kernels as gradients
    from murk.learners.scores.problem import ScoreProblem

    engine = model._engine
    if engine is None:
        engine = model._begun(tuple(sorted(x)))
    X, own = np.array([[*x.values(), 1.0]]), [*x.values(), y]
    index = np.array([engine.n_releases])
    found: list[int] = []
    noise_sizes = []
    if engine.kind == "gradient":
        out, target, memory = np.zeros((1, engine.dimension)), np.array([float(y)]), engine.memory
        gradients.gradients(memory.real, memory.whole, np.array(engine.iterate), X, target, out)
        given = [(engine.mechanisms["default"], out)]
    elif engine.kind == "example":
        given = [(engine.current, ExampleProblem(engine.settings, {}).vectors(X, np.array([float(y)])))]
    elif engine.kind == "moment":
        coded = X.copy()
        coded[:, :-1] *= engine.layout.gain
        target = 2.0 * y - 1.0 if isinstance(y, bool) else y
        given = [(engine.mechanisms["default"], engine.layout.vectors(coded, np.array([target])))]
    else:
        pair = engine.mechanisms["default"]
        problem = ScoreProblem(engine.settings, {"default": pair})
        model_now = engine._now.epochs[-1].model.flat
        given = [
            (pair.mechanism(question), problem.vectors(X, np.array([float(y)]), model_now, question))
            for question in problem.questions
        ]
    for mechanism, vectors in given:
        found += complements(telling(vectors, own), "f8")
        if mechanism.kind in ("gaussian", "laplace", "composite"):
            found += complements(telling(mechanism.randomize(vectors, NoNoise(), index)), "i8")
        noise_sizes.append(mechanism.dimension)
    if seed is not None:
        found += complements(telling(SimulatedNoise(seed).gaussian(index, max(noise_sizes))), "i8")
    return found


KINDS: list[tuple[str, dict[str, Any], str]] = [
    ("LDPSGDClassifier", {"budget": "gdp"}, "label"),
    ("LDPSGDClassifier", {"budget": "pure", "mechanism": "privunit"}, "label"),
    ("LDPSGDClassifier", {"budget": "pure", "mechanism": "l2-ball"}, "label"),
    ("LDPSGDRegressor", {"budget": "pure", "mechanism": "laplace"}, "real"),
    ("IWPSGDClassifier", {"budget": "gdp"}, "label"),
    ("IWPSGDClassifier", {"budget": "gdp", "release": "joint"}, "label"),
    ("IWPSGDClassifier", {"budget": "gdp", "release": "outer"}, "label"),
    ("IWPSGDRegressor", {"budget": "gdp"}, "real"),
    ("PublicGLMRegressor", {"budget": "gdp"}, "real"),
    ("PublicGLMRegressor", {"budget": "approx", "release": "separate"}, "real"),
    ("PublicGLMRegressor", {"budget": "pure"}, "real"),
    ("ScoreClassifier", {"budget": "gdp"}, "label"),
    ("ScoreRegressor", {"budget": "gdp"}, "real"),
    ("ScoreClassifier", {"budget": "pure"}, "label"),
]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("seed", [None, SEED])
@pytest.mark.parametrize(("count", "many"), [(1, 0), (3, 0), (4, 3)])
@pytest.mark.parametrize(("kind", "settings", "target"), KINDS)
def test_nothing_computed_of_a_record_stays_in_memory(kind, settings, target, seed, count, many, compiled):
    rows = records(count, target)
    arguments = {"kind": kind, "settings": {**settings, "features": FEATURES, "seed": seed}}
    image = Image("learned", {**arguments, "records": rows, "many": many, "compiled": compiled})
    model = learner(kind, arguments["settings"])
    if seed is None and count > 1:
        rows = rows[:1]
    needles: list[int] = []
    for x, y in rows:
        needles += secrets_of(model, x, y, seed)
        model.learn_one(x, y)
    assert image.told == count
    assert len(needles) > 4
    assert image.found(needles) == 0
