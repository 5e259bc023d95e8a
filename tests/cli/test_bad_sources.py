"""Files of people with mistakes: file, row and column are named and no value is; fixed, the same command runs."""

import gzip
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.harness import ANY_PROTOCOL, FIGURE, ROWS, TASK, WORD, murk, people, query, refused, run, world

ROWS_HERE = 60
GOOD = "\n".join(ROWS[: ROWS_HERE + 1]) + "\n"
LAST = f"row {ROWS_HERE + 1}"


def line(**cells: str) -> str:
    """One more woman, with some cells of our own."""
    header = ROWS[0].split(",")
    values = dict(zip(header, ROWS[ROWS_HERE + 1].split(","), strict=True))
    assert cells.keys() <= values.keys()
    return ",".join({**values, **cells}.values()) + "\n"


CSV: dict[str, tuple[str | bytes, list[str]]] = {
    "text for a number": (GOOD + line(age=WORD), [LAST, "'age'", "not a finite number"]),
    "no number": (GOOD + line(age="NaN"), [LAST, "'age'", "not a finite number"]),
    "an infinite number": (GOOD + line(age="-inf"), [LAST, "'age'", "not a finite number"]),
    "a label that is not declared": (GOOD + line(third_child=WORD), [LAST, "'third_child'", "declared"]),
    "a category that is not": (GOOD + line(same_sex=FIGURE), [LAST, "'same_sex'", "declared"]),
    "too few cells": (GOOD + f"{WORD},{FIGURE}\n", [LAST, "2 cells", "the header has 9", "fix the row"]),
    "a quote that never ends": (GOOD + f'"{WORD}' + line(), [LAST, "not a CSV row", "double quotes"]),
    "not UTF-8": ((GOOD + line(same_sex="\xe9" + WORD)).encode("latin-1"), [LAST, "'same_sex'", "UTF-8"]),
    "UTF-16": ((GOOD + line(same_sex=WORD)).encode("utf-16"), ["people.csv", "UTF-8"]),
    "no such column": (GOOD.replace(",age,", ",years,", 1), ["no column 'age'"]),
    "a column twice": (GOOD.replace(",afam,", ",age,", 1), ["2 columns named 'age'"]),
    "no header": (line(same_sex=WORD, age=FIGURE) * 30, ["no column 'same_sex'", "must be a header"]),
    "no rows": (ROWS[0] + "\n", ["has no rows"]),
    "nothing": ("", ["has no rows"]),
}


@pytest.mark.parametrize("mistake", CSV)
def test_csv(folder: Path, mistake: str) -> None:
    content, words = CSV[mistake]
    world(folder)
    (folder / "people.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
    refused(run(folder), "people.csv", *words)
    # The mistake stands in the last row, and nobody before it has released anything.
    assert query(folder / "third-child.ledger.db", "SELECT * FROM spending") == []
    assert not (folder / "third-child.db.run.json").exists()
    if mistake in ("text for a number", "no rows"):
        (folder / "people.csv").write_text(GOOD)
        assert run(folder).json["releases"] == ROWS_HERE


def jsonl(**cells: object) -> str:
    record = {"same_sex": "yes", "age": 30, "third_child": "no", **cells}
    return (json.dumps(record) + "\n") * 40


OTHERS: dict[str, tuple[str, bytes, list[str]]] = {
    "a truncated gzip": ("people.csv.gz", gzip.compress(GOOD.encode())[:-20], ["truncated", "compress it again"]),
    "a damaged gzip": ("people.csv.gz", gzip.compress(GOOD.encode())[:-8] + bytes(8), ["not a valid gzip file"]),
    "no gzip": ("people.csv.gz", f"{WORD},{FIGURE}\n".encode(), ["has no column", "must be a header"]),
    "no JSON": ("people.jsonl", jsonl().encode() + f'{{"age": {WORD}'.encode(), ["row 41", "not a JSON object"]),
    "a list of JSON": ("people.jsonl", f'["{WORD}"]\n'.encode(), ["row 1", "not a JSON object"]),
    "JSON of another shape": ("people.jsonl", (jsonl() + jsonl(age=[WORD])).encode(), ["row 41", "'age'"]),
    "JSON without a key": ("people.jsonl", jsonl().replace("age", "years").encode(), ["no key 'age'"]),
    "another format": ("people.xlsx", f"PK34{WORD}".encode(), [".csv, .jsonl", "Convert it"]),
    "damaged Parquet": ("people.parquet", f"PAR1{WORD}".encode(), ["not a Parquet file", "write it again"]),
}


@pytest.mark.parametrize("mistake", OTHERS)
def test_other_files(folder: Path, mistake: str) -> None:
    name, content, words = OTHERS[mistake]
    world(folder)
    (folder / name).write_bytes(content)
    refused(run(folder, "--source", name), name, *words)


def test_no_file(folder: Path) -> None:
    world(folder)
    refused(run(folder, "--source", "nobody.csv"), "nobody.csv", "No such file", "check the path")
    (folder / "folder.csv").mkdir()
    refused(run(folder, "--source", "folder.csv"), "folder.csv", "Is a directory")


@pytest.mark.parametrize("mistake", [name for name, (_, words) in CSV.items() if LAST in words])
def test_with_real_noise_no_record_stops_a_file(folder: Path, mistake: str) -> None:
    """Everybody who watches the log would see that somebody has such a value; `--check` says it and sends nothing."""
    content, words = CSV[mistake]
    world(folder)
    (folder / "people.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
    real = ["run", "task.yaml", "--source", "people.csv", "--json"]
    refused(murk(*real, "--check", folder=folder), "people.csv", *words)
    assert sorted(path.name for path in folder.iterdir()) == ["people.csv", "task.yaml"]
    done = murk(*real, folder=folder)
    # A quote that never ends takes only its own line.
    assert done.json["releases"] == ROWS_HERE + 1
    assert "people.csv: " in done.err
    assert "coded as missing" in done.err


def test_missing_values_by_the_tasks_rule(folder: Path) -> None:
    """An empty cell is coded by `missing: midpoint`, and stops a simulation under `missing: error`."""
    world(folder, task=TASK + "missing: error\n")
    people(folder / "people.csv", ROWS_HERE, (40, "age", ""))
    refused(run(folder), "row 40", "'age'", "is missing", "missing: midpoint")
    real = ["run", "task.yaml", "--source", "people.csv", "--json", "--log", "sqlite:///real.db", "--ledger", "r.db"]
    done = murk(*real, folder=folder)
    assert done.json["releases"] == ROWS_HERE
    assert "missing values: 1 of 'age'" in done.err
    (folder / "task.yaml").write_text(TASK)
    assert run(folder).json["releases"] == ROWS_HERE


@pytest.mark.parametrize("command", ["run", "produce"])
@pytest.mark.parametrize("seed", [("--check",), ("--seed", 1)], ids=["real", "simulated"])
def test_a_misspelt_positive_value(folder: Path, command: str, seed: tuple[object, ...]) -> None:
    """Nothing could be learned; which values there are is said of a simulation alone."""
    task = ANY_PROTOCOL.replace('positive: "yes", negative: "no"', "positive: Yes")
    world(folder, rows=60, task=task + "protocol: moments\n")
    labels = Counter(row.split(",")[-1] for row in ROWS[1:61])
    done = murk(command, "task.yaml", "--source", "people.csv", "--json", *seed, folder=folder)
    refused(done, "'third_child' has the positive value 'Yes' in no row", "Spell positive as the file does")
    for value, count in labels.items():
        assert (f"'{value}' in {count}" in done.err) == ("--seed" in seed)
    if "--seed" in seed:
        assert query(folder / "third-child.ledger.db", "SELECT * FROM runs") == []
    else:
        assert not (folder / "people.ledger.db").exists()
    (folder / "task.yaml").write_text(task.replace("Yes", '"yes"') + "protocol: moments\n")
    assert murk(command, "task.yaml", "--source", "people.csv", "--json", *seed, folder=folder).json["records"] == 60


@pytest.mark.parametrize("protocol", ["gradients", "summaries"])
def test_a_target_with_one_class_only(folder: Path, protocol: str) -> None:
    guarantee = "{approx: {epsilon: 1.0, delta: 1.0e-6}}"
    world(folder, task=ANY_PROTOCOL.replace("{gdp: {mu: 1.0}}", guarantee) + f"protocol: {protocol}\n")
    alike = [row for row in ROWS[1:200] if row.endswith(",yes")][:30]
    (folder / "people.csv").write_text("\n".join([ROWS[0], *alike]) + "\n")
    refused(run(folder), "'third_child' has the positive value 'yes' in all rows with a value", "'yes' in 30")


def test_undeclared_labels_are_counted_in_a_simulation(folder: Path) -> None:
    task = ANY_PROTOCOL.replace(', negative: "no"', "") + "protocol: moments\n"
    world(folder, rows=60, task=task)
    people(folder / "people.csv", 60, (7, "third_child", "Yes"))
    others = sum(row.split(",")[-1] == "no" or at == 7 for at, row in enumerate(ROWS[1:61], 1))
    assert run(folder).json["undeclared_labels"] == {"rows": others, "values": 2}
    plain = murk("run", "task.yaml", "--source", "people.csv", "--seed", 1, folder=folder)
    assert f"{others} records with a target that the task does not declare (2 different values)" in plain.out
    real = ["--log", "sqlite:///real.db", "--ledger", "real.ledger.db", "--json"]
    done = murk("run", "task.yaml", "--source", "people.csv", *real, folder=folder)
    assert done.json["undeclared_labels"] is None


def grown(path: Path) -> None:
    path.write_text(GOOD + line(age=WORD))


def gone(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("change", [grown, gone])
def test_a_file_that_changes_between_two_runs(folder: Path, change: Callable[[Path], None]) -> None:
    """The work of a file is carried on with that file alone: what was released stays, nothing is released again."""
    world(folder)
    (folder / "people.csv").write_text(GOOD)
    command = ["produce", "task.yaml", "--source", "people.csv", "--seed", 1, "--patience", 0]
    assert murk(*command, folder=folder).status == 1
    change(folder / "people.csv")
    refused(run(folder), "started with another file" if change is grown else "No such file")
    (folder / "people.csv").write_text(GOOD)
    found = run(folder).json
    assert (found["releases"], found["duplicates"]) == (ROWS_HERE, 0)


def test_public_covariates(folder: Path) -> None:
    world(folder, task=TASK + "public: {file: public.csv}\n")
    (folder / "people.csv").write_text(GOOD)
    for content, words in (
        (line() * 40 + line(age=WORD), ["no column 'same_sex'"]),
        (GOOD + line(age=WORD), [LAST, "'age'", "not a finite number", "leave the row out"]),
        (GOOD + line(same_sex=""), [LAST, "'same_sex'", "is missing"]),
        (ROWS[0] + "\n", ["at least 2"]),
    ):
        (folder / "public.csv").write_text(content)
        refused(run(folder), "public.csv", *words)
    # The people themselves, and these without what is not declared.
    features = "".join(f"{cells[0]},{cells[3]}\n" for cells in (row.split(",") for row in GOOD.splitlines()))
    for content in (GOOD, features):
        (folder / "public.csv").write_text(content)
        refused(run(folder), "public.csv holds people of people.csv", "public: {set_aside: N}", "other people's")
        assert not (folder / "third-child.db.run.json").exists()
    people(folder / "public.csv", range(1000, 1000 + ROWS_HERE))
    found = run(folder).json
    assert (found["releases"], found["set_aside"], found["interval"]["method"]) == (ROWS_HERE, 0, "plug-in")
    # Resolved when the log was begun: it is not read again.
    (folder / "public.csv").unlink()
    assert run(folder).json["state_digest"] == found["state_digest"]
