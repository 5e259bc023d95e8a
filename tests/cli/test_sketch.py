"""`protocol: summaries` on the command line: an organisation's windows, from the file to what people read."""

import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.cli.harness import ACCOUNTS, FIGURE, HEADER, ROWS, finish, murk, people, query, refused, start

TASK = """\
name: weeks
features:
  - {name: same_sex, categories: ["no", "yes"]}
  - {name: age, low: 21, high: 35}
target: {name: weeks_worked, kind: real, low: 0, high: 52}
protocol: summaries
privacy:
  guarantee: {approx: {epsilon: 1.0, delta: 1.0e-6}}
  per_person: {approx: {epsilon: 5.0, delta: 5.0e-6}}
summaries: {rows: 40, window: 500}
"""
BINARY = TASK.replace("weeks_worked, kind: real, low: 0, high: 52", "third_child, kind: binary, positive: 'yes'")
LOG, LEDGER = "sqlite:///weeks.db", "weeks.ledger.db"
NEVER = ("clipped", "clamped", "unusable")


def world(folder: Path, rows: int = 1300, task: str = TASK) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "task.yaml").write_text(task)
    people(folder / "people.csv", rows)
    return folder


def run(folder: Path, *more: object) -> dict[str, Any]:
    found = murk("run", "task.yaml", "--source", "people.csv", "--seed", 1, "--json", *more, folder=folder).json
    assert not any(word in key for word in NEVER for key in found)
    return found


def test_from_file_to_estimate(folder: Path) -> None:
    world(folder)
    found = run(folder)
    assert (found["protocol"], found["objective"], found["odds_ratios"]) == ("summaries", None, False)
    assert (found["organisations"], found["records"], found["set_aside"]) == (1, 1300, 0)
    assert (found["windows"], found["releases"], found["records_released"]) == (3, 3, 1300)
    assert (found["records_learned"], found["sketch_rows"], found["simulated"]) == (1300, 40, True)
    assert (found["windows_lost"], found["windows_left_out"], found["refusals"], found["refusal"]) == (0, 0, 0, None)
    assert (found["duplicates"], found["dead_letters"]) == (0, {})
    assert found["coefficients"].keys() == {"same_sex", "age", "intercept"}
    assert "people" not in found
    # The guarantee is about a record and a blank one; what is told of any two records is larger.
    level = found["levels"]["default"]
    assert level["guarantee"] == {"approx": {"epsilon": 1.0, "delta": 1e-6}}
    assert level["replace_one"]["approx"]["epsilon"] > 1.0
    assert "had the record been blank" in level["words"]
    status = murk("status", "--log", LOG, "--json", folder=folder).json
    for key in ("releases", "coefficients", "state_digest", "levels", "records_learned"):
        assert status[key] == found[key]
    # The same again, to the bit.
    again = run(folder)
    assert {**again, "seconds": 0} == {**found, "seconds": 0}


def test_what_people_read(folder: Path) -> None:
    world(folder)
    done = murk("run", "task.yaml", "--source", "people.csv", folder=folder)
    assert done.status == 0
    assert "3 releases learned, of 1,300 records" in done.out
    assert "3 windows of 1 organisation: 1,300 records in sketches of 40 rows." in done.out
    assert "effect" in done.out
    assert "nominal" not in done.out
    assert "weeks: 1,300 of 1,300" in done.err
    plain = murk("ledger", ACCOUNTS, "--person", "organisation", folder=folder)
    assert "3 windows were released as sketches, with 1,300 records in all." in plain.out
    assert "any other" not in plain.out
    own = murk("ledger", ACCOUNTS, "--person", "organisation", "--json", folder=folder).json
    [task] = own["tasks"]
    assert (task["windows"]["released"], task["windows"]["records"], task["windows"]["lost"]) == (3, 1300, 0)
    [level] = task["levels"]
    assert (level["mechanism"], level["released"], level["sent"]) == ("gaussmix", 3, 3)
    for text in (done.out, done.err, plain.out, murk("status", "--log", LOG, folder=folder).out):
        assert not any(word in text for word in NEVER)
        assert "for a person" not in text
    assert "at most for an organisation's account" in done.out
    assert "1 organisation, 3 releases" in murk("ledger", ACCOUNTS, folder=folder).out


MOMENTS = TASK.replace("rows: 40, ", "")


def test_second_moments_from_file_to_estimate(folder: Path) -> None:
    world(folder, task=MOMENTS)
    found = run(folder)
    # 300 at the end are more than a record has numbers.
    assert (found["windows"], found["records_released"], found["records_learned"]) == (3, 1300, 1300)
    assert (found["sketch_rows"], found["interval"]["method"], found["dead_letters"]) == (None, "released moments", {})
    # How well any two records are told apart is by the noise's own mu, which says more than an epsilon at a delta.
    assert 0.3 < found["levels"]["default"]["replace_one"]["gdp"]["mu"] < 0.4
    plain = murk("run", "task.yaml", "--source", "people.csv", "--seed", 1, folder=folder)
    assert "1,300 records in second moments." in plain.out
    own = murk("ledger", LEDGER, "--person", "organisation", "--json", folder=folder).json
    [level] = own["tasks"][0]["levels"]
    assert (level["mechanism"], level["released"]) == ("gram", 3)
    words = murk("ledger", LEDGER, "--person", "organisation", folder=folder).out
    assert "had the record been blank" in words


def test_second_moments_under_gdp(folder: Path) -> None:
    """Windows add up by mu^2, and what noise hides is said to be not learned."""
    privacy = "  guarantee: {gdp: {mu: 0.5}}\n  per_person: {gdp: {mu: 1.0}}\n"
    task = MOMENTS[: MOMENTS.index("  guarantee")] + privacy + "summaries: {window: 200}\n"
    world(folder, task=task)
    found = run(folder)
    assert (found["windows"], found["refusals"]) == (4, 3)
    assert found["guarantee"] == {"gdp": {"mu": 0.5}}
    assert "mu = 0.5" in found["levels"]["default"]["words"]
    assert "privacy.per_person: {gdp: {mu: " in found["refusal"]
    world(folder / "noisy", 60, task.replace("mu: 0.5", "mu: 0.01").replace("window: 200", "window: 60"))
    noisy = murk("run", "task.yaml", "--source", "people.csv", "--seed", 1, folder=folder / "noisy")
    assert "not learned" in noisy.out
    assert "Not learned at this privacy: " in noisy.out


def test_a_binary_target_has_odds_ratios(folder: Path) -> None:
    world(folder, task=BINARY)
    assert run(folder)["odds_ratios"] is True
    assert "odds ratio" in murk("status", "--log", LOG, folder=folder).out


def test_organisations_of_a_column(folder: Path) -> None:
    task = TASK.replace("window: 500", "window: 200, organisation: clinic")
    world(folder, task=task)
    names = [f"c{at * at % 5}" for at in range(1300)]
    lines = [f"{ROWS[0]},clinic", *(f"{row},{name}" for row, name in zip(ROWS[1:], names, strict=False))]
    (folder / "people.csv").write_text("\n".join(lines) + "\n")
    found = run(folder)
    sizes = Counter(names)
    assert found["organisations"] == len(sizes) == 3
    kept = {name: size - (size % 200 if size % 200 < 40 else 0) for name, size in sizes.items()}
    assert found["records_released"] == sum(kept.values())
    own = murk("ledger", LEDGER, "--person", "c0", "--json", folder=folder).json
    assert own["tasks"][0]["windows"]["records"] == kept["c0"]
    totals = murk("ledger", LEDGER, "--json", folder=folder).json
    assert (totals["people"], totals["releases"]) == (3, found["windows"])


def test_windows_beyond_the_cap(folder: Path) -> None:
    world(folder, task=TASK.replace("  per_person: {approx: {epsilon: 5.0, delta: 5.0e-6}}\n", ""))
    found = run(folder)
    assert (found["windows"], found["refusals"], found["records_released"]) == (1, 2, 500)
    assert "per_person: {tcdp: {rho: " in found["refusal"]
    plain = murk("run", "task.yaml", "--source", "people.csv", "--seed", 1, folder=folder)
    assert "2 windows refused: " in plain.out
    assert "One window an organisation, at its level." in plain.out


def test_produce_and_learn(folder: Path) -> None:
    world(folder)
    # Nobody waits for a model.
    options = ["--seed", 1, "--patience", 0]
    found = murk("produce", "task.yaml", "--source", "people.csv", *options, "--json", folder=folder).json
    assert (found["windows"], found["releases"], found["records_released"]) == (3, 3, 1300)
    plain = murk("produce", "task.yaml", "--source", "people.csv", *options, folder=folder)
    assert "weeks: 0 releases now, 3 before, 0 refused" in plain.out
    assert "3 windows of 1 organisation" in plain.out
    learned = murk("learn", "--log", LOG, "--idle", 0.2, "--json", folder=folder).json
    assert (learned["releases"], learned["records_learned"]) == (3, 1300)
    world(folder / "other")
    assert run(folder / "other")["state_digest"] == learned["state_digest"]


def test_killed_in_the_middle_of_a_window(folder: Path) -> None:
    """What was open is gone with its process, and so it is said; everything else is as if nothing had happened."""
    task = TASK.replace("rows: 40, window: 500", "rows: 40")
    world(folder / "whole", 8_000, task)
    expected = run(folder / "whole")
    world(folder, 8_000, task)
    process = start("run", "task.yaml", "--source", "people.csv", "--seed", 1, "--json", "--block", 1, folder=folder)
    ledger = folder / LEDGER
    while not (ledger.exists() and query(ledger, "SELECT 1 FROM sqlite_master WHERE name = 'windows'")):
        time.sleep(0.002)
        assert process.poll() is None
    process.kill()
    process.communicate()
    assert query(ledger, "SELECT * FROM debits") == []
    done = finish(start("run", "task.yaml", "--source", "people.csv", "--seed", 1, folder=folder))
    assert "a window was lost when an earlier process ended: " in done.err
    assert "nothing was debited" in done.err
    assert "1 window lost when a process died" in done.out
    found = run(folder)
    assert (found["windows"], found["windows_lost"], expected["windows_lost"]) == (1, 1, 0)
    assert found["state_digest"] == expected["state_digest"]
    assert len(query(ledger, "SELECT * FROM debits")) == 1


@pytest.mark.parametrize(
    ("task", "options", "words"),
    [
        (TASK, ["--person", "age"], ["--person age", "organisations release, not people", "summaries.organisation"]),
        (TASK, ["--level", "lot"], ["--level lot", "Choose one of default"]),
        (TASK, ["--level", "column:age"], ["--level column:age", "Choose one of default"]),
        (
            TASK.replace("rows: 40, window: 500", "rows: 4000, method: mixing"),
            [],
            ["has 1,300 records to release", "summaries.rows"],
        ),
        (TASK.replace("rows: 40", "rows: 3"), [], ["rows=3", "at least 4"]),
        (TASK.replace("rows: 40", "rows: 90000, method: mixing"), [], ["a message of a log", "set rows to"]),
        (TASK.replace("window: 500", "organisation: who"), [], ["no column 'who'"]),
        (
            TASK.replace("approx: {epsilon: 1.0, delta: 1.0e-6}", "gdp: {mu: 1.0}", 1),
            [],
            ["protocol: summaries cannot give gdp", "it can give approx"],
        ),
    ],
)
def test_mistakes_are_refused_before_anything_begins(
    folder: Path, task: str, options: list[object], words: list[str]
) -> None:
    world(folder, task=task)
    command = ["run", "task.yaml", "--source", "people.csv", "--seed", 1, "--json", *options]
    refused(murk(*command, folder=folder), *words)
    (folder / "task.yaml").write_text(TASK)
    # Nothing was begun, so that the fixed command works in the same place.
    assert run(folder)["windows"] == 3


def test_a_bad_value_names_its_place_and_nothing_else(folder: Path) -> None:
    world(folder)
    people(folder / "people.csv", 1300, (1299, HEADER[HEADER.index("weeks_worked")], f"x{FIGURE}"))
    done = murk("run", "task.yaml", "--source", "people.csv", "--seed", 1, "--json", folder=folder)
    refused(done, "row 1299", "'weeks_worked'")
