"""`protocol: examples` and `protocol: moments`: the same command, told in the terms of their own models."""

from pathlib import Path

import pytest

from murk import Task
from murk.inference.units import on_logit_scale
from murk.results.text import describe_intervals
from tests.cli.harness import murk, people

TASK = """\
name: any
features:
  - {name: same_sex, categories: ["no", "yes"]}
  - {name: age, low: 21, high: 35}
privacy: {guarantee: {approx: {epsilon: 2.0, delta: 1.0e-6}}}
"""
BINARY = "target: {name: third_child, kind: binary, positive: 'yes', negative: 'no'}\n"
REAL = "target: {name: weeks_worked, kind: real, low: 0, high: 52}\n"


@pytest.mark.parametrize(
    ("more", "odds"),
    [
        ("", True),
        ("protocol: examples", False),
        ("protocol: examples\nexamples: {loss: log}", True),
        ("protocol: examples\nexamples: {loss: quadratic}", False),
        ("protocol: examples\nexamples: {loss: exponential}", False),
        ("protocol: moments", True),
        ("protocol: moments\nmoments: {loss: poisson}", False),
        ("protocol: moments\nmoments: {loss: boosting}", False),
        ("protocol: summaries", True),
        ("protocol: scores", True),
    ],
)
def test_which_coefficients_are_log_odds(more: str, odds: bool) -> None:
    assert on_logit_scale(Task.parse(TASK + BINARY + more)) is odds
    if "loss" not in more:
        assert not on_logit_scale(Task.parse(TASK + REAL + more))


@pytest.mark.parametrize("target", [BINARY, REAL], ids=["binary", "real"])
@pytest.mark.parametrize("protocol", ["scores", "examples", "moments"])
def test_from_file_to_estimate(folder: Path, protocol: str, target: str) -> None:
    # So many that a block of them is not all of them.
    rows = 3500
    people(folder / "people.csv", rows)
    (folder / "task.yaml").write_text(f"{TASK}{target}protocol: {protocol}\n")
    command = ["run", "task.yaml", "--source", "people.csv", "--seed", 1]
    found = murk(*command, "--json", folder=folder).json
    # Nobody's features are public where the task does not say so.
    assert (found["protocol"], found["set_aside"], found["public_sample"]) == (protocol, 0, None)
    assert found["releases"] == rows
    assert (found["duplicates"], found["dead_letters"]) == (0, {})
    assert found["coefficients"].keys() == {"same_sex", "age", "intercept"}
    assert found["per_unit"].keys() == found["coefficients"].keys()
    done = murk(*command, folder=folder)
    assert done.status == 0
    assert "nominal" not in done.out
    assert f"{rows:,} releases learned" in done.out
    assert ("Intervals by " in done.out) != ("No intervals: " in done.out)
    plain = murk("status", "--log", "sqlite:///any.db", "--intervals", "fixed-n", folder=folder)
    assert plain.status == 0
    said = (done.out + plain.out).replace("without public covariates", "")
    for name, need in found.get("needed", {}).items():
        assert name in found["not_learned"]
        assert " ".join(need["words"].split()) in " ".join(done.out.split())
        said = " ".join(said.split()).replace(need["words"], "")
    if found["diagnosis"]:
        said = " ".join(said.split()).replace(found["diagnosis"]["words"], "")
    helps = "tighter bounds or public rows help"
    for rest in (" where a feature fills little of its bounds", ", or outer products (examples: {release: outer})"):
        said = " ".join(said.split()).replace(helps + rest, "")
    assert "public" not in said
    assert ("odds ratio" in plain.out) == found["odds_ratios"] == (protocol != "examples" and target == BINARY)


def test_words_about_intervals() -> None:
    interval = {"method": "delta method", "level": 0.95, "note": "exact."}
    some = {"a": (0.0, 1.0), "b": (float("-inf"), float("inf"))}
    none = {"a": (float("-inf"), float("inf"))}
    assert (
        describe_intervals({"interval": interval, "confidence_intervals": some, "odds_ratios": False})
        == "Intervals by delta method: exact."
    )
    told = {**interval, "note": "none: too few releases"}
    assert (
        describe_intervals({"interval": told, "confidence_intervals": none, "odds_ratios": False})
        == "No intervals: too few releases."
    )
