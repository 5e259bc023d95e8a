"""Models of tasks of moments beside the common ones: counts, several classes, and no constant."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import murk
from murk import Task
from murk.errors import UserError
from murk.privacy.noise import SimulatedNoise
from murk.protocols.device import device_for

TEXT = """
name: moments
features: [{name: a, low: -1, high: 1}, {name: b, low: -1, high: 1}]
protocol: moments
privacy: {guarantee: {gdp: {mu: 40.0}}}
"""
COUNTS = "target: {name: y, kind: real, low: 0, high: 20}\nmoments: {link: exp}\n"
CLASSES = "target: {name: y, kind: classes, classes: [u, v, w]}\n"


def test_counts_have_log_means_in_their_own_unit() -> None:
    rng, truth = np.random.default_rng(1), np.array([0.8, -0.5, 0.7])
    X = np.column_stack([rng.uniform(-1.0, 1.0, (4_000, 2)), np.ones(4_000)])
    counts = rng.poisson(np.exp(X @ truth))
    task = Task.parse(TEXT + COUNTS).with_simulated(True)
    device: Any = device_for(task)
    engine = device.engine()
    vectors = device.vectors(X, np.clip(counts, 0, 20) / 10.0 - 1.0)
    engine.learn_payloads(
        device.mechanisms["default"].randomize(vectors, SimulatedNoise(1), np.arange(4_000)), "default"
    )
    found = device.estimate([engine])
    # Uniform features are not normal: 0.1 allows for the bias. 4 standard errors: a false alarm has probability 2e-4.
    room = 0.1 + 4.0 * found.spread
    assert np.all(np.abs(found.values - truth) < room)
    assert np.all(room < 0.6)
    # The mean of the coded target, instead of the count's, has another intercept.
    assert abs(found.values[-1] - (truth[-1] - np.log(20.0))) > room[-1]
    assert (task.coefficient_scale, task.fitted_model) == ("own", "exp link")


@pytest.mark.filterwarnings("ignore")
def test_classes_are_learned_from_one_release_each(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    X = rng.uniform(-1.0, 1.0, (4_000, 2)).round(3)
    logits = np.column_stack([1.5 * X[:, 0], 1.5 * X[:, 1], np.zeros(4_000)])
    labels = np.array(["u", "v", "w"])[np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)]
    pd.DataFrame(X, columns=["a", "b"]).assign(y=labels).to_csv(tmp_path / "people.csv", index=False)
    result = murk.run(Task.parse(TEXT + CLASSES), tmp_path / "people.csv", seed=1)
    whole = np.column_stack([X, np.ones(4_000)])
    lines = {label: 2.0 * np.linalg.lstsq(whole, (labels == label).astype(float), rcond=None)[0][:2] for label in "uvw"}
    found = {label: [result.coefficients[f"{label}:{name}"] for name in "ab"] for label in "uvw"}

    def fits(expected: dict[str, np.ndarray]) -> bool:
        # Half-widths hold at every look, and are over 2 standard errors: 6 false alarms have probability below 4e-4.
        return all(
            abs(each.value - slope) < 2.0 * (each.interval[1] - each.value)
            for label in "uvw"
            for each, slope in zip(found[label], expected[label], strict=True)
        )

    assert fits(lines)
    assert not fits({"u": lines["v"], "v": lines["u"], "w": lines["w"]})
    assert result.predict([{"a": 1.0, "b": -1.0}])[0].argmax() == 0


def test_without_an_intercept_a_targets_bounds_are_centred() -> None:
    block = "moments: {intercept: false, release: joint}\ntarget: {name: y, kind: real, low: %s, high: 2}\n"
    device: Any = device_for(Task.parse(TEXT + block % -2))
    assert device.layout.names == ("a", "b")
    with pytest.raises(UserError, match=r"bounds of -b and b, but 'y' is from -1 to 2"):
        device_for(Task.parse(TEXT + block % -1))


def test_classes_of_many_features_are_refused() -> None:
    many = ", ".join(f"{{name: x{place}, low: 0, high: 1}}" for place in range(40))
    text = TEXT.replace("{name: a, low: -1, high: 1}, {name: b, low: -1, high: 1}", many) + CLASSES
    with pytest.raises(UserError, match="has 41 coded ones"):
        device_for(Task.parse(text))
