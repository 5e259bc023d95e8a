"""``murk init``: the task that it writes is accepted and run, and each line says where it comes from."""

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from murk import Task
from murk.cli import cli, relations
from murk.cli.commands import init
from murk.cli.draft import Column, draft, looked_at, proposed_person, rounded, word
from murk.errors import UserError
from murk.populations import open_records
from murk.task.yaml import read_yaml
from tests.cli.harness import murk


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def people(rows: int = 60) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    return pd.DataFrame(
        {
            "row": range(1, rows + 1),
            "income": rng.uniform(312, 198_000, rows).round(2),
            "share [%]: a, b": rng.uniform(0, 1, rows),
            "plan": rng.choice(["no", "basic", "plus: all"], rows, p=[0.2, 0.5, 0.3]),
            "asked": pd.Timestamp("2024-02-29") + pd.to_timedelta(rng.integers(0, 90, rows), unit="D"),
            "member": rng.random(rows) < 0.5,
            "code": [f"c{i}" for i in range(rows)],
            "empty": None,
            "same": 7,
            "worked": ["yes", "no"] * (rows // 2),
        }
    )


def run(*words: str, text: str | None = None) -> Result:
    return CliRunner().invoke(cli, ["init", *words], input=text)


def refused(*words: str) -> str:
    result = run(*words)
    assert isinstance(result.exception, UserError)
    return str(result.exception)


GIVEN = "age:21..35, 'x' y:f|m|other, \"a, b: c\":0..1, born:1950-01-01..2005-12-31"


def test_columns_that_are_given() -> None:
    result = run("My first", "--columns", GIVEN, "--target", "worked:no|yes", "--guarantee", "zcdp:0.5")
    assert "my-first.yaml: worked learned from 4 columns" in result.output
    task = Task.load("my-first.yaml")
    assert task.coding.columns == ("age", "'x' y", "a, b: c", "born")
    assert task.coding.names[1:3] == ("'x' y=m", "'x' y=other")
    assert (task.target.positive, task.target.negative) == ("yes", "no")  # type: ignore[union-attr]
    assert task.privacy.guarantee.to_dict() == {"zcdp": {"rho": 0.5}}
    lines = Path("my-first.yaml").read_text().splitlines()
    assert all(line.endswith("  # given") for line in lines if "name: " in line and not line.startswith("name"))
    assert not any("SIMULATION" in line for line in lines)
    assert "exists already" in refused("My first", "--columns", GIVEN, "--target", "worked:no|yes")


@pytest.mark.parametrize(
    ("target", "kind"), [("hours:0..60", "real"), ("worked:no|yes", "binary"), ("mode:car|bus|foot", "classes")]
)
def test_targets(target: str, kind: str) -> None:
    assert json.loads(run("t", "--columns", GIVEN, "--target", target, "--json").output)["features"] == 4
    assert Task.load("t.yaml").target.kind == kind


def test_a_simulations_own_file_is_said_in_each_line_that_it_fed() -> None:
    people().to_parquet("people.parquet")
    where = ["--source", "people.parquet", "--simulation"]
    result = run(*where, "--columns", "age:21..35, income, plan", "--target", "worked")

    assert "murk run people.yaml --source people.parquet --seed 1" in result.output
    lines = Path("people.yaml").read_text().splitlines()
    marks = {line.split("name: ")[1].split(",")[0]: "SIMULATION" in line for line in lines if "{name: " in line}
    assert marks == {"age": False, "income": True, "plan": True, "worked": True}
    assert any(line.startswith("# SIMULATION. Lines marked so") for line in lines)


def test_what_is_written_runs() -> None:
    people().to_csv("people.csv", index=False)
    assert json.loads(run("--source", "people.csv", "--simulation", "--json").output) == {
        "file": "people.yaml",
        "features": 5,
        "left_out": ["row", "code", "empty", "same"],
        "person": None,
        "protocol": None,
        "forecast": None,
        "cautions": [],
    }
    task = Task.load("people.yaml")
    assert list(task.coding.columns) == ["income", "share [%]: a, b", "plan", "asked", "member"]
    result = CliRunner().invoke(cli, ["run", "people.yaml", "--source", "people.csv", "--seed", "1", "--json"])
    found = json.loads(result.stdout)
    assert (found["releases"], found["refusals"]) == (60, 0)


def test_a_public_file() -> None:
    people().drop(columns="worked").to_csv("public.csv", index=False)
    run("p", "--public", "public.csv", "--columns", "income, plan", "--target", "worked:no|yes")
    text = Path("p.yaml").read_text()
    assert "SIMULATION" not in text
    assert text.count("# read off 'public.csv', which is public") == 2
    assert '{name: plan, categories: [basic, "plus: all", "no"]}' in text
    assert "{name: income, low: 0, high: 200000}" in text
    assert "the column 'worked'" in refused("q", "--public", "public.csv", "--target", "worked")


@pytest.mark.parametrize("end", ["\x85", "\u2028", "\u2029", "\u202e", "\x0b", "\u3164", "\u2800"], ids=ascii)
def test_a_header_writes_no_line_of_the_task(end: str) -> None:
    """Of a column that is left out: YAML ends a comment where no editor shows an end."""
    frame = people().rename(columns={"code": f"code{end}public: {{set_aside: 100}} #"})
    frame.to_csv("public.csv", index=False)
    assert run("--public", "public.csv", "--target", "worked", "--out", "first.yaml").exit_code == 0
    text = Path("first.yaml").read_text()
    assert Task.load("first.yaml").public is None
    assert all(line.isprintable() for line in text.split("\n"))
    [line] = [line for line in text.split("\n") if "public: {set_aside" in line]
    assert line.startswith('  # left out: "code\\')


def test_a_rate_and_gaps_of_a_public_file_are_written_into_the_task() -> None:
    """What a missing number counts as is the mean of the others, with the share that is missing."""
    frame = people().drop(columns="worked")
    frame["visits"] = [None, 0, 0, 1, 2, 1] * 10
    frame.to_csv("public.csv", index=False)
    words = ["--public", "public.csv", "--columns", "visits, plan"]
    run("p", *words, "--target", "worked:no|yes", "--rate", "0.06")
    task = Task.load("p.yaml")
    visits = task.features[0]
    assert (visits.missing, visits.missing_share) == (0.8, 0.17)  # type: ignore[union-attr]
    assert task.target.rate == 0.06  # type: ignore[union-attr]
    # Of categories, and of what has no gaps, nothing is written.
    assert task.features[1].missing is None
    assert "does not have two values; remove --rate" in refused("q", *words, "--target", "hours:0..9", "--rate", "0.1")


def test_where_most_values_of_a_public_file_lie_is_written_where_that_is_narrow() -> None:
    rng = np.random.default_rng(2)
    pd.DataFrame(
        {"visits": np.r_[np.minimum(rng.geometric(0.4, 880) - 1, 40), np.full(20, 40)], "age": rng.uniform(20, 90, 900)}
    ).to_csv("public.csv", index=False)
    run("p", "--public", "public.csv", "--columns", "visits:0..40, age", "--target", "worked:no|yes")
    run("q", "--public", "public.csv", "--target", "worked:no|yes")
    run("r", "--source", "public.csv", "--simulation", "--target", "worked:no|yes")
    # What is said of a column by the user stands alone.
    assert [feature.typical for feature in Task.load("p.yaml").features] == [None, None]  # type: ignore[union-attr]
    visits, age = (feature.typical for feature in Task.load("q.yaml").features)  # type: ignore[union-attr]
    assert visits is not None
    assert visits[0] == 0
    assert 4 <= visits[1] <= 7
    assert age is None
    assert Task.load("r.yaml").features == Task.load("q.yaml").features


@pytest.mark.parametrize(
    ("values", "typical"),
    [
        (np.r_[np.full(6, 1950), np.linspace(2021, 2023, 194)], (2020.9, 2023)),
        (np.r_[950, 950, 1100, 1100, np.linspace(1012, 1014, 198)], (1012, 1014)),
        (np.linspace(20, 90, 200), None),
        (np.r_[0, np.full(198, 3), 9], None),
    ],
    ids=["years", "pressures", "wide", "one value"],
)
def test_typical_values_are_rounded_by_their_own_span(values: Any, typical: tuple[float, float] | None) -> None:
    pd.DataFrame({"x": values, "z": np.arange(len(values)) % 7}).to_csv("public.csv", index=False)
    run("p", "--public", "public.csv", "--target", "worked:no|yes")
    found = Task.load("p.yaml").features[0].typical  # type: ignore[union-attr]
    if typical is None:
        assert found is None
    else:
        assert found is not None
        assert abs(found[0] - typical[0]) <= 0.2
        assert abs(found[1] - typical[1]) <= 0.2
        assert found[0] < found[1]


def test_typical_values_of_a_long_sorted_file_are_of_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("murk.cli.draft._SAMPLED", 400)
    values = np.sort(np.random.default_rng(1).beta(2, 30, 4000))
    pd.DataFrame({"x": np.r_[values, np.ones(80)]}).to_csv("public.csv", index=False)
    run("p", "--public", "public.csv", "--target", "worked:no|yes")
    low, high = Task.load("p.yaml").features[0].typical  # type: ignore[union-attr,misc]
    # The quantiles of a sample of 400 are within .05 of those asked for but once in some 10,000 times.
    assert np.mean(values < low) < 0.1
    assert 0.9 < np.mean(values < high) < 1.0


@pytest.mark.parametrize(("people", "chosen"), [("60000", "scores"), ("30", None)], ids=["enough", "too few"])
def test_the_protocol_of_the_smallest_half_widths_is_written_into_the_task(people: str, chosen: str | None) -> None:
    columns = "age:20..90, emergency:no|yes"
    words = ["--columns", columns, "--target", "readmitted:no|yes", "--rate", "0.06", "--guarantee", "gdp:4"]
    found = json.loads(run("p", *words, "--people", people, "--json").stdout)
    assert found["protocol"] == chosen
    text = Path("p.yaml").read_text()
    assert ("protocol:" in text) == (chosen is not None)
    comment = " ".join(line[2:] for line in text.split("\n") if line.startswith("# "))
    assert found["forecast"] in comment
    assert Task.load("p.yaml").protocol == "scores"


def test_a_guess_names_a_remedy_that_the_command_takes(folder):
    """--rate is of binary targets: for a real one the task states what is typical."""
    columns = "age:18..88,amount:0..100"
    first = murk("init", "a", "--columns", columns, "--people", 1_000, folder=folder)
    assert "{typical: ...})" in first.out
    assert "--rate" not in first.out
    second = murk("init", "b", "--columns", "age:18..88,again:no|yes", "--people", 1_000, folder=folder)
    assert "{rate: ...} or --rate)" in second.out


def test_another_protocol_than_the_default_is_written_where_its_forecast_is_clearly_smaller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        init, "_by_forecast", lambda text, people, quiet: ("examples", "examples: 1\u2028protocol: summaries")
    )
    assert run("p", "--columns", "age:20..90", "--target", "worked:no|yes", "--people", "9").exit_code == 0
    assert Task.load("p.yaml").protocol == "examples"


def test_asks_at_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(init, "_at_terminal", lambda: True)
    result = run("t", "--columns", "age, sex, shoe", "--target", "worked", text="old\n21..35\nf|m\n-\nno|yes\n")
    assert result.exit_code == 0, result.output
    assert "'old' does not describe the column 'age'" in result.output
    assert Task.load("t.yaml").coding.columns == ("age", "sex")
    text = Path("t.yaml").read_text()
    assert text.count("# asked") == 4
    assert "left out: shoe, no description given" in text


@pytest.mark.parametrize("words", [["--columns", "y:no|yes"], ["--target", "y:no|yes"]])
def test_only_a_target(words: list[str]) -> None:
    result = run("t", *words)
    assert result.exit_code == 0, result.output
    assert "y alone: its mean, or shares" in result.output
    assert Task.load("t.yaml").features == ()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--source", "people.csv"], "disclose their content. Give public ones with --columns"),
        (["--columns", "age"], "the column 'age' has no description, and there is no terminal to ask at"),
        (["--columns", "age:1..x"], "'1..x' does not describe the column 'age': write LOW..HIGH"),
        (["--columns", "age:1..2", "--target", "a, b"], "names 2 columns"),
        (["--columns", "age:1..2", "--target", "d:2024-01-01..2024-02-01"], "holds dates, which cannot be learned"),
        (["--columns", "age:2..1, y:no|yes"], "low 2 is not below high 1 in the column 'age': write LOW..HIGH"),
        (["--columns", "age:1..1, y:no|yes"], "low 1 is not below high 1"),
        (["--columns", "born:2005-12-31..1950-01-01, y:no|yes"], "low 2005-12-31 is not below high 1950-01-01"),
        (["--columns", "age:nan..3, y:no|yes"], "'nan..3' does not describe the column 'age': write LOW..HIGH"),
        (["--columns", "age:0..inf, y:no|yes"], "'0..inf' does not describe the column 'age': write LOW..HIGH"),
        (["--columns", "1..2"], "'1..2' names no column"),
        ([], "there are no columns"),
        (["???", "--columns", GIVEN, "--target", "y:a|b"], "has no letter or digit"),
        (["--public", "nothing.csv"], "nothing.csv cannot be read"),
    ],
)
def test_refusals(words: list[str], message: str) -> None:
    assert message in refused(*words)
    assert not list(Path().glob("*.yaml"))


@pytest.mark.parametrize(
    "name", ["no", "a: b", "#x", "x #y", "- x", "*x", "1", "01", "null", '"', "'", "a\\b", "ä", "a, b"]
)
def test_names_come_back_as_they_were(name: str) -> None:
    for text in (f"name: {word(name)}", f"- {{name: {word(name)}, low: 1}}"):
        content: Any = read_yaml(text if text[0] == "n" else f"features:\n  {text}", "t")[0]
        assert (content if text[0] == "n" else content["features"][0])["name"] == name


@pytest.mark.parametrize(
    ("low", "high"),
    [(-1e308, 1e308), (0.0, 5e-324), (1e9, 1e9 + 1e-6), (1e9, 1e9 + 0.24312345678), (-1.7e308, -1.6e308)],
)
def test_extreme_bounds_stay_outside_of_what_was_seen_and_are_a_task_s(low: float, high: float) -> None:
    ends = rounded(low, high)
    assert -math.inf < ends[0] <= low < high <= ends[1] < math.inf
    column, target = Column("x", bounds=ends), Column("y", categories=("no", "yes"))
    if math.isfinite(high - low):
        [feature] = Task.parse(draft("t", [column], target, {"gdp": {"mu": 1.0}})).features
        assert (feature.low, feature.high) == ends  # type: ignore[union-attr]
    else:
        with pytest.raises(UserError, match="overflows; give bounds of a plausible size"):
            draft("t", [column], target, {"gdp": {"mu": 1.0}})


@pytest.mark.parametrize(
    "cells",
    [
        ["1", "1.0", "1.00"], ["1", "1.0"], ["2024-05-31T08:00", "2024-05-31T09:00", "2024-05-31"],
        ["2024-05-31T08:00", "2024-05-31T09:00"], ["true", "True"],
    ],
)  # fmt: skip
def test_one_value_written_differently_is_one_value(cells: list[str]) -> None:
    Path("same.csv").write_text("a,b\n" + "".join(f"{cell},{place}\n" for place, cell in enumerate(cells * 10)))
    [found, _] = looked_at(open_records("same.csv"), "here")
    assert found.without == "the same value in every row"


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-3.2, 17.9), (1e-7, 3e-7), (1e12, 1.0001e12), (-5.0, -4.0)])
def test_bounds_are_rounded_outwards(low: float, high: float) -> None:
    ends = rounded(low, high)
    assert ends[0] <= low < high <= ends[1]
    assert ends[1] - ends[0] <= 1.2 * (high - low)


def test_what_a_column_holds() -> None:
    frame = people().assign(flag=["1", "0"] * 30, answer=["Y", "n"] * 30, mixed=["1", "x", "2"] * 20)
    found = {column.name: column for column in looked_at(open_records(frame), "here")}
    assert (found["flag"].categories, found["answer"].categories) == (("0", "1"), ("n", "Y"))
    assert found["mixed"].categories == ("1", "2", "x")
    assert found["member"].categories == ("no", "yes")
    assert [str(day) for day in found["asked"].bounds or ()] == [
        str(frame["asked"].min().date()),
        str(frame["asked"].max().date()),
    ]
    assert {name: column.without for name, column in found.items() if column.without} == {
        "row": "row numbers",
        "code": "text with more than 20 different values",
        "empty": "empty in every row",
        "same": "the same value in every row",
    }


def test_an_identifier_is_no_number() -> None:
    """Of a person with many rows, of a thing, by place; and numbers of rows that have gaps."""
    rng, rows = np.random.default_rng(3), 4_000
    frame = pd.DataFrame(
        {
            "number": np.sort(rng.choice(4_500, rows, replace=False)),
            "movieId": rng.integers(0, 50_000, rows),
            "userId": np.arange(rows) // 160,
            "store_id": rng.integers(1, 7, rows),
            "route.id": rng.integers(1, 31, rows),
            "covid": rng.integers(1, 31, rows),
            "income": rng.choice(90_000, rows, replace=False),
            "y": ["yes", "no"] * (rows // 2),
        }
    )
    found = {column.name: column for column in looked_at(open_records(frame), "here")}
    assert {name: column.without for name, column in found.items() if column.without} == {
        "number": "row numbers",
        "movieId": f"an identifier: {frame['movieId'].nunique():,} values in 4,000 rows",
        "userId": "seems to name people: 25 values in 4,000 rows",
        "route.id": "an identifier, by its name",
    }
    assert proposed_person(list(found.values())) == "userId"
    assert sorted(found["store_id"].categories) == ["1", "2", "3", "4", "5", "6"]
    assert found["covid"].bounds
    assert found["income"].bounds


def test_a_column_that_names_people_is_proposed_and_a_count_of_their_visits_is_left_out() -> None:
    rng = np.random.default_rng(2)
    patients = [f"p{number}" for number in rng.integers(0, 90, 400)]
    seen: dict[str, int] = {}
    visits = []
    for name in patients:
        seen[name] = seen.get(name, 0) + 1
        visits.append(seen[name])
    frame = pd.DataFrame(
        {
            "case": [f"c{37 * int(name[1:])}" for name in patients], "patient_id": [int(name[1:]) for name in patients],
            "visit": visits, "age": rng.integers(20, 80, 400), "worked": rng.choice(["no", "yes"], 400),
        }
    )  # fmt: skip
    frame.to_csv("visits.csv", index=False)
    found = {column.name: column for column in looked_at(open_records("visits.csv"), "here")}
    assert found["patient_id"].names_people
    assert found["case"].names_people
    assert "counts the rows" in found["visit"].without
    assert found["age"].bounds is not None
    done = run("v", "--source", "visits.csv", "--simulation")
    assert "--person patient_id" in done.output
    shutil.move("v.yaml", "w.yaml")
    plan = json.loads(run("v", "--source", "visits.csv", "--simulation", "--json").output)
    assert (plan["features"], plan["person"]) == (1, "patient_id")


def test_numbers_and_texts_that_do_not_name_people_stay() -> None:
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(
        {"income": rng.integers(0, 10**6, 300), "wave": np.arange(300) % 7, "identity": rng.uniform(0, 1, 300)}
    )
    found = {column.name: column for column in looked_at(open_records(frame), "here")}
    assert not any(column.names_people or column.without for column in found.values())


def test_a_full_disk_leaves_no_file_in_the_way(folder: Path) -> None:
    words = ["init", "t", "--columns", "age:21..35, worked:no|yes"]
    full = murk(*words, folder=folder, file_limit=100)
    assert full.status == 1
    assert "t.yaml: File too large" in full.err
    assert list(folder.iterdir()) == []
    assert murk(*words, folder=folder).status == 0
    assert Task.load(folder / "t.yaml").coding.columns == ("age",)


def test_a_range_with_a_dash_is_answered_with_dots() -> None:
    message = refused("x", "--columns", "age:21-35, sex:f|m", "--target", "sex")
    assert message == "'age:21-35': write a range as LOW..HIGH: age:21..35"


def test_a_target_that_the_file_lacks_is_named_with_those_it_has() -> None:
    people().to_csv("people.csv", index=False)
    message = refused("x", "--source", "people.csv", "--simulation", "--target", "wroked")
    assert "--target: the column 'wroked' is not in people.csv, which has 'row', 'income'" in message


def test_columns_that_only_python_reads_as_numbers_and_days_that_it_cannot_hold() -> None:
    rows = 30
    days = pa.array([19_844 + row for row in range(rows - 1)] + [2_932_902], pa.date32())
    few = pa.array([19_844 + row % 2 for row in range(rows)], pa.date32())
    code = [f"{row % 3}_{row % 2}" for row in range(rows)]
    table = pa.table({"d": days, "few": few, "code": code, "y": ["yes", "no"] * (rows // 2)})
    pq.write_table(table, "far.parquet")
    assert run("t", "--source", "far.parquet", "--simulation").exit_code == 0
    text = Path("t.yaml").read_text()
    assert "{name: d, kind: date, low: 2024-05-01, high: 2024-05-29}" in text
    # Two days are days, however each container writes them.
    assert "{name: few, kind: date, low: 2024-05-01, high: 2024-05-02}" in text
    assert '{name: code, categories: ["0_0", "0_1", "1_0", "1_1", "2_0", "2_1"]}' in text
    result = CliRunner().invoke(cli, ["run", "t.yaml", "--source", "far.parquet", "--seed", "1", "--json"])
    assert json.loads(result.stdout)["releases"] == rows
    for bound in ("2_4..3_0", "nan..3", "\uff11..\uff12"):
        assert "does not describe the column 'age'" in refused("--columns", f"age:{bound}, y:no|yes")
    assert "dates must be in the years 1 to 9999" in refused("--columns", "d:2024-01-01..12000-01-01, y:no|yes")


def test_bounds_are_those_of_nearly_all_values_and_the_share_beyond_is_said() -> None:
    rng = np.random.default_rng(4)
    income = np.r_[rng.uniform(0, 90, 1_996), 4e6, 5e6, -7e6, 1e7]
    pd.DataFrame({"income": income, "y": ["no", "yes"] * 1_000}).to_csv("public.csv", index=False)
    run("p", "--public", "public.csv", "--target", "y")
    text = Path("p.yaml").read_text()
    [feature] = Task.load("p.yaml").features
    assert (feature.low, feature.high) == (0.0, 90.0)  # type: ignore[union-attr]
    assert "0.2% of the values lie beyond, and are clamped" in text
    for extreme in ("1e+07", "10000000", "4000000"):
        assert extreme not in text
    assert Task.load("p.yaml").target.rate == 0.5  # type: ignore[union-attr]


def test_a_column_with_gaps_names_nobody() -> None:
    names = [f"p{number % 40}" for number in range(200)]
    frame = pd.DataFrame({"patient_id": names, "age": np.arange(200) % 37, "y": ["no", "yes"] * 100})
    frame.to_csv("whole.csv", index=False)
    frame.assign(patient_id=[None, *names[1:]]).to_csv("gaps.csv", index=False)
    assert "--person patient_id" in run("whole", "--source", "whole.csv", "--simulation").output
    done = run("gaps", "--source", "gaps.csv", "--simulation")
    assert "--person patient_id" not in done.output
    assert "and 1 row without one" in Path("gaps.yaml").read_text()


def test_related_columns_are_named() -> None:
    rng = np.random.default_rng(5)
    a, b, c = rng.integers(0, 30, 300), rng.integers(0, 30, 300), rng.integers(0, 30, 300)
    frame = pd.DataFrame(
        {
            "a": a, "b": b, "rest": 100 - a - b, "c": c, "twice": 2.0 * c + 1.0, "other": rng.uniform(0, 1, 300),
            "visits": np.where(c > 20, c, 0), "sick": np.where(c > 20, "yes", "no"),
        }
    )  # fmt: skip
    frame.to_csv("people.csv", index=False)
    found = json.loads(run("t", "--source", "people.csv", "--simulation", "--json").output)["cautions"]
    assert found == [
        "a + b + rest is the same in every row: leave one of them out",
        "twice follows from c (a weighted sum): leave one of them out",
        *(
            f"{name} gives sick away (100% of it): leave it out if it is known only together with sick"
            for name in ("c", "twice", "visits")
        ),
    ]
    assert "# caution: visits gives sick away" in Path("t.yaml").read_text()
    # Columns that are unrelated are not named.
    frame = frame.assign(rest=rng.permutation(frame.rest), twice=rng.permutation(frame.twice), c=rng.permutation(c))
    frame.drop(columns="visits").to_csv("people.csv", index=False)
    assert json.loads(run("u", "--source", "people.csv", "--simulation", "--json").output)["cautions"] == []


def cautions_of(**columns: Any) -> list[str]:
    pd.DataFrame(columns).to_csv("related.csv", index=False)
    done = run(
        "r", "--source", "related.csv", "--simulation", "--json", "--out", f"r{len(list(Path().iterdir()))}.yaml"
    )
    found: list[str] = json.loads(done.output)["cautions"]
    return found


def test_columns_that_categories_determine_are_named() -> None:
    """Sorted by city, as files are; the columns are compared over all of it."""
    rng, rows = np.random.default_rng(8), 3_000
    city = np.sort(rng.integers(0, 8, rows))
    region, name = city // 3, np.array([f"c{code}" for code in city])
    plain: dict[str, Any] = {
        "age": rng.integers(20, 60, rows), "note": rng.choice(["x", "y", "z"], rows),
        "paid": rng.choice(["no", "yes"], rows),
    }  # fmt: skip
    regions = np.array(["north", "south", "west"])[region]
    assert cautions_of(city=name, **plain) == []
    assert cautions_of(city=name, region=regions, **plain) == ["city determines region: leave one of them out"]
    # Whatever the order, and of a number, too.
    found = cautions_of(region=regions, rent=region * 100 + 7, **plain)
    assert found == ["region determines rent: leave one of them out"]
    few = np.where(rng.random(rows) < 0.003, "north", regions)
    [almost] = cautions_of(city=name, region=few, **plain)
    assert almost.startswith("city determines region (99.")
    # One in twenty is neither a determined column nor one that gives the target away.
    assert cautions_of(city=name, region=np.where(rng.random(rows) < 0.05, "north", regions), **plain) == []
    # The target, by a category; and exactly one of several answers is a yes.
    away = cautions_of(city=name, **{**plain, "paid": np.where(city > 4, "yes", "no")})
    assert away == ["city gives paid away (100% of it): leave it out if it is known only together with paid"]
    one = {f"is_{label}": np.where(regions == label, "yes", "no") for label in ("north", "south", "west")}
    assert cautions_of(**one, **plain) == ["is_west follows from is_north and is_south: leave one of them out"]
    as_numbers = {key: np.where(values == "yes", 1, 0) for key, values in one.items()}
    assert cautions_of(**as_numbers, **plain) == [
        "is_north + is_south + is_west is the same in every row: leave one of them out"
    ]


def test_relations_of_many_columns_are_sought_with_bounded_work(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []
    revealed = relations._revealed

    def counted(column: Any, target: Any, *more: float) -> float:
        compared.append(len(column.codes))
        return revealed(column, target, *more)

    monkeypatch.setattr(relations, "_revealed", counted)
    monkeypatch.setattr(relations, "_MOST_PAIRS", 500)
    rng = np.random.default_rng(2)
    cells = {f"c{index}": rng.choice(["a", "b", "c"], 4_000).tolist() for index in range(40)}
    assert list(relations.cautions(cells, "c0")) == []
    assert len(compared) == 500 + 39
    # All rows of each column are compared with the target alone.
    assert sum(size > relations._FIRST for size in compared) == 39
