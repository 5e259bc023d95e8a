"""Tasks that are not the demonstration's: other targets, guarantees, mechanisms, files and people."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.cli.harness import HEADER, ROWS, murk, refused

FEATURES = """\
features:
  - {name: same_sex, categories: ["no", "yes"]}
  - {name: age, low: 21, high: 35}
"""
WEEKS = f"""\
name: weeks
{FEATURES}
target: {{name: weeks_worked, kind: real, low: 0, high: 52}}
protocol: gradients
"""
WORK = f"""\
name: work
{FEATURES}
target: {{name: work, kind: classes, classes: [none, part, full]}}
"""
LEVELS = "{guarantee: {gdp: {mu: 1.0}}, levels: {strict: {gdp: {mu: 0.5}}}}"
RECORDS = 260


def records(count: int = RECORDS) -> list[dict[str, Any]]:
    found = []
    for at, line in enumerate(ROWS[1 : count + 1]):
        record: dict[str, Any] = dict(zip(HEADER, line.split(","), strict=True))
        weeks = int(record["weeks_worked"])
        record["age"] = int(record["age"])
        record["work"] = "none" if weeks == 0 else "part" if weeks < 40 else "full"
        # People have two to four records each, and choose their level once.
        record["who"] = f"w{at * at % 211}"
        record["choice"] = ["default", "strict"][at * at % 211 % 2]
        found.append(record)
    return found


def learn(folder: Path, task: str, privacy: str, *options: object, source: str = "people.jsonl") -> dict[str, Any]:
    (folder / "task.yaml").write_text(f"{task}privacy: {privacy}\n")
    if not (folder / source).exists():
        (folder / source).write_text("".join(json.dumps(record) + "\n" for record in records()))
    where = ["--log", "sqlite:///log.db", "--ledger", "ledger.db"]
    done = murk("run", "task.yaml", "--source", source, "--seed", 5, "--json", *where, *options, folder=folder)
    found = done.json
    assert (found["duplicates"], found["dead_letters"]) == (0, {})
    # What people read must print for every kind of task, too.
    assert murk("status", "--log", "sqlite:///log.db", folder=folder).status == 0
    return found


@pytest.mark.parametrize(
    ("privacy", "mechanism"),
    [
        ("{guarantee: {gdp: {mu: 1.0}}}", "gaussian"),
        ("{guarantee: {approx: {epsilon: 2.0, delta: 1.0e-6}}, mechanism: gaussian}", "gaussian"),
        ("{guarantee: {approx: {epsilon: 2.0, delta: 1.0e-6}}}", "privunit"),
        ("{guarantee: {pure: {epsilon: 2.0}}, mechanism: l2-ball}", "l2-ball"),
        ("{guarantee: {pure: {epsilon: 2.0}}, mechanism: laplace}", "laplace"),
    ],
)
def test_weeks_worked(folder: Path, privacy: str, mechanism: str) -> None:
    found = learn(folder, WEEKS, privacy)
    assert (found["releases"], found["refusals"], found["objective"]) == (RECORDS, 0, "huber")
    assert found["coefficients"].keys() == {"same_sex", "age", "intercept", "scale"}
    own = murk("ledger", "ledger.db", "--person", 1, "--source", "people.jsonl", "--json", folder=folder).json
    assert own["tasks"][0]["levels"][0]["mechanism"] == found["levels"]["default"]["mechanism"] == mechanism
    # An (epsilon, delta) that a pure mechanism gives is printed without its delta.
    promised = {"pure": {"epsilon": 2.0}} if mechanism == "privunit" else found["guarantee"]
    assert own["tasks"][0]["levels"][0]["guarantee"] == found["guarantee"] == promised


def test_three_classes_at_chosen_levels(folder: Path) -> None:
    found = learn(folder, f"{WORK}protocol: gradients\n", LEVELS, "--level", "column:choice")
    chosen = Counter(record["choice"] for record in records())
    assert (found["releases"], found["objective"], found["by_level"]) == (RECORDS, "softmax", dict(chosen))
    assert len(found["coefficients"]) == 9
    for feature in ("same_sex", "age", "intercept"):
        # One centred vector for each class.
        assert abs(sum(found["coefficients"][f"{one}:{feature}"] for one in ("none", "part", "full"))) < 1e-9


@pytest.mark.parametrize("cap", ["", ", per_person: {gdp: {mu: 5}}"])
def test_people_with_several_records(folder: Path, cap: str) -> None:
    """All records of a person are one answer, also where the cap has room for several."""
    found = learn(folder, WEEKS, f"{{guarantee: {{gdp: {{mu: 1.0}}}}{cap}}}", "--person", "who")
    owned = Counter(record["who"] for record in records())
    assert max(owned.values()) > 2
    assert (found["people"], found["records"]) == (len(owned), RECORDS)
    # How many rows one person has is for the file's holder alone (`--check`).
    assert "most" not in found["counted_rows"]
    assert "most_records" not in found
    assert (found["releases"], found["refusals"]) == (len(owned), 0)
    assert f"{len(owned):,} people with {RECORDS:,} rows: one answer" in found["counted_rows"]
    who = max(owned, key=lambda name: owned[name])
    [level] = murk("ledger", "ledger.db", "--person", who, "--json", folder=folder).json["tasks"][0]["levels"]
    assert (level["released"], level["refused"]) == (1, 0)


def test_a_level_by_lot_is_a_persons_own(folder: Path) -> None:
    """Drawn once for each person, and not for each of their records."""
    levels = LEVELS.replace("levels:", "per_person: {gdp: {mu: 9.0}}, levels:")
    found = learn(folder, WEEKS, levels, "--person", "who", "--level", "lot")
    assert found["releases"] == len({record["who"] for record in records()})
    assert found["by_level"].keys() == {"default", "strict"}


def test_public_covariates_from_a_file(folder: Path) -> None:
    public = "public: {file: public.jsonl}\n"
    # Features alone, of other people: nobody's target is there to be read.
    rows = [{name: record[name] for name in ("same_sex", "age")} for record in records(RECORDS + 300)[RECORDS:]]
    (folder / "public.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    # With them several classes are learned by scores, too.
    found = learn(folder, WORK + public, LEVELS)
    assert (found["releases"], found["set_aside"], found["interval"]["method"]) == (RECORDS, 0, "scores")


def test_public_covariates_give_gradients_intervals(folder: Path) -> None:
    rows = [{name: record[name] for name in ("same_sex", "age")} for record in records(RECORDS + 300)[RECORDS:]]
    (folder / "public.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = learn(folder, f"{WORK}protocol: gradients\npublic: {{file: public.jsonl}}\n", LEVELS)
    assert (found["set_aside"], found["interval"]["method"]) == (0, "plug-in")


def test_nobody_is_set_aside_who_has_other_records(folder: Path) -> None:
    (folder / "task.yaml").write_text(f"{WEEKS}privacy: {LEVELS}\npublic: {{set_aside: 20}}\n")
    (folder / "people.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records()))
    command = ["run", "task.yaml", "--source", "people.jsonl", "--make-public", 20, "--json"]
    refused(murk(*command, "--person", "who", folder=folder), "set aside only where every row is a person of its own")
    # Nothing was begun: people may be named otherwise, with the same files.
    assert murk(*command, folder=folder).json["releases"] == RECORDS - 20


def test_levels_that_the_task_does_not_have(folder: Path) -> None:
    rows = records(50)
    rows[30]["choice"] = "S3CR3T-77"
    (folder / "people.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "task.yaml").write_text(f"{WEEKS}privacy: {LEVELS}\n")
    command = ["run", "task.yaml", "--source", "people.jsonl", "--json", "--level"]
    for strict in ("--check", "--seed=1"):
        refused(murk(*command, "column:choice", strict, folder=folder), "row 31", "'choice'", "default, strict")
        refused(murk(*command, "column:nothing", strict, folder=folder), "no key 'nothing'")
    refused(murk(*command, "column:nothing", folder=folder), "no key 'nothing'")
    done = murk(*command, "column:choice", folder=folder)
    assert done.json["releases"] == 50
    assert "have no level of the task or a budget below its grid: 1" in done.err
