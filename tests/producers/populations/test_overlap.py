"""The people as their own public sample are recognised however their rows come; other people's are not refused.

Honest samples are refused with a probability below one in a million each; all draws here are fixed.
"""

import csv
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from murk import Task
from murk.errors import UserError
from murk.populations import FileSource
from murk.populations.public_sample import (
    RUNS,
    check_apart,
    check_carried,
    consecutive,
    distinct,
    hashed,
    in_order,
    public_covariates,
    rare,
)
from murk.task.learning import Covariates
from tests.cli.harness import HEADER, ROWS

MOTHERS = """\
name: third-child
features:
  - {name: same_sex, categories: ["no", "yes"]}
  - {name: age, low: 21, high: 35}
target: {name: third_child, kind: binary, positive: "yes", negative: "no"}
privacy: {guarantee: {gdp: {mu: 1.0}}}
public: {file: public.csv}
"""
RICH = MOTHERS.replace("low: 21", "low: 0").replace("high: 35", "high: 1")
Rows = list[dict[str, Any]]


def mothers(first: int, count: int) -> Rows:
    return [dict(zip(HEADER, row.split(","), strict=True)) for row in ROWS[1 + first : 1 + first + count]]


def rich(seed: int, count: int) -> Rows:
    """People whose age nobody shares."""
    rng = np.random.default_rng(seed)
    return [
        {"same_sex": ("no", "yes")[int(rng.integers(2))], "age": repr(float(rng.random())), "third_child": "no"}
        for _ in range(count)
    ]


def write(path: Path, rows: Rows) -> Path:
    if ".jsonl" in path.name:
        text = "".join(json.dumps(row) + "\n" for row in rows)
        path.write_bytes(gzip.compress(text.encode()) if path.name.endswith(".gz") else text.encode())
        return path
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def features(rows: Rows) -> Rows:
    return [{"age": row["age"], "same_sex": row["same_sex"]} for row in rows]


def shuffled(rows: Rows) -> Rows:
    return [rows[place] for place in np.random.default_rng(5).permutation(len(rows))]


def by_value(rows: Rows) -> Rows:
    return sorted(rows, key=lambda row: (row["age"], row["same_sex"]))


def numbered(rows: Rows) -> Rows:
    """As tables are often saved: with a number of the row, and with names that are no people's."""
    return [{"": place, "id": f"w{place // 2}", **row} for place, row in enumerate(rows)]


def check(folder: Path, source: Rows, public: Rows, text: str = MOTHERS, name: str = "public.csv") -> None:
    people = write(folder / "people.csv", source)
    check_apart(FileSource(people, Task.parse(text)), write(folder / name, public))


COPIES: dict[str, Callable[[Rows], Rows]] = {
    "as they are": list,
    "features alone": features,
    "in another order": shuffled,
    "features alone, in another order": lambda rows: shuffled(features(rows)),
    "a piece": lambda rows: features(rows[100:200]),
    "every other row": lambda rows: features(rows[::2]),
    "but for the last row": lambda rows: features(rows[:-1]),
}


@pytest.mark.parametrize("copy", COPIES)
@pytest.mark.parametrize("text", [MOTHERS, RICH])
def test_copies_are_recognised(tmp_path: Path, copy: str, text: str) -> None:
    people = mothers(0, 400) if text == MOTHERS else rich(1, 400)
    with pytest.raises(
        UserError, match=r"public.csv holds people of .*people.csv: .*public: \{set_aside: N\}"
    ) as found:
        check(tmp_path, people, COPIES[copy](people), text)
    assert not any(row["age"] in str(found.value) for row in people if len(row["age"]) > 2)


def test_copies_in_other_formats_are_recognised(tmp_path: Path) -> None:
    people = mothers(0, 200)
    for row in (other := features(people)):
        row["age"] = float(row["age"])
    for name in ("public.jsonl", "public.jsonl.gz"):
        with pytest.raises(UserError, match="holds people of"):
            check(tmp_path, people, shuffled(other), name=name)


@pytest.mark.parametrize("count", [20, 60, 200])
def test_a_part_in_another_order_is_recognised_where_rows_are_rare(tmp_path: Path, count: int) -> None:
    people = rich(1, 400)
    with pytest.raises(UserError, match="too rare to be shared by chance"):
        check(tmp_path, people, shuffled(people)[:count], RICH)
    with pytest.raises(UserError, match="too rare to be shared by chance"):
        check(tmp_path, people, shuffled([*rich(2, 300), *people[:count]]), RICH)


@pytest.mark.parametrize("count", [1, 4, 15])
def test_a_few_people_are_recognised_where_hardly_two_are_alike(tmp_path: Path, count: int) -> None:
    people = rich(1, 400)
    public = shuffled([*rich(2, 400 - count), *people[:count]])
    with pytest.raises(UserError, match="hardly two of whom are alike; if they are other people's, leave them out"):
        check(tmp_path, people, public, RICH)
    # One is in the people's file twice: what is as rare as that may be chance.
    again = [*people, people[-1]]
    if count == 1:
        check(tmp_path, again, public, RICH)
    else:
        with pytest.raises(UserError, match="hardly two of whom are alike"):
            check(tmp_path, again, public, RICH)


def test_how_often_a_sample_is_refused_for_one_row_that_it_shares() -> None:
    """Of 600 samples at most 0.25 are, whose mean is beyond 0.25 + 5 sqrt(0.25 0.75 / 600) = 0.34 once in 3 million.

    At the density where that is so: with 0.7 rows to be expected in both. The check would be one of nothing if it
    refused fewer than 0.17 there.
    """
    rng = np.random.default_rng(6)
    for expected, least, most in ((0.7, 0.17, 0.34), (0.01, 0.0, 0.05), (30.0, 0.0, 0.02)):
        values = int(500 * 500 / expected)
        found = [distinct(*rng.integers(0, values, (2, 500)).astype(np.uint64)) for _ in range(600)]
        assert least <= np.mean(found) <= most
    # Fewer people than it takes to know how alike they are; and people of whom many are alike.
    assert not distinct(np.arange(99, dtype=np.uint64), np.arange(99, dtype=np.uint64))
    assert distinct(np.arange(100, dtype=np.uint64), np.arange(99, 120, dtype=np.uint64))
    assert not distinct(np.arange(100, dtype=np.uint64) // 2, np.arange(49, 120, dtype=np.uint64))
    # Of two files of one size a row that recurs within one lets one expect another across: refused are more than four.
    for shared in (4, 5):
        theirs = np.r_[np.arange(100 - shared, 100), np.arange(200, 299 - shared), 200].astype(np.uint64)
        assert distinct(np.arange(100, dtype=np.uint64), theirs) == (shared > 4)


def test_a_few_columns_more_make_rows_rare(tmp_path: Path) -> None:
    """Two features do not tell a random part of the people from others; with the other columns they do."""
    for count, size in ((2000, 300), (20_000, 2000)):
        people = mothers(0, count)
        part = shuffled(people)[:size]
        check(tmp_path, people, features(part))
        with pytest.raises(UserError, match="too rare to be shared by chance"):
            check(tmp_path, people, part)


def test_further_columns_tell_of_rows_whose_features_were_brought_to_their_bounds(tmp_path: Path) -> None:
    """What is compared of a feature is its code, which is the same for all values beyond a bound."""
    people = mothers(0, 2000)
    part = [{**row, "age": "25"} for row in shuffled(people) if int(row["age"]) < 25][:300]
    assert len(part) > 100
    with pytest.raises(UserError, match="too rare to be shared by chance"):
        check(tmp_path, people, part, MOTHERS.replace("low: 21", "low: 25"))


HONEST: dict[str, Callable[[Rows], Rows]] = {
    "all columns": list,
    "features alone": features,
    "sorted": by_value,
    "numbered": numbered,
}


@pytest.mark.parametrize("count", [2, 50, 400, 3000])
@pytest.mark.parametrize("form", HONEST)
def test_other_people_are_not_refused(tmp_path: Path, count: int, form: str) -> None:
    shape = HONEST[form]
    people = mothers(0, 1500)
    # Columns in both; sorted alike, and numbered alike.
    own = numbered if shape is numbered else by_value
    check(tmp_path, own(people), shape(mothers(100_000, count)))
    check(tmp_path, own(rich(1, 300)), shape(rich(2, count)), RICH)


def test_people_of_another_population_are_not_refused() -> None:
    """The public sample is of a few towns, the people are of all: dense in itself, it shares rare rows by chance."""
    rng = np.random.default_rng(3)
    mine = rng.integers(0, 200_000, 20_000).astype(np.uint64)
    for towns, count in ((500, 400), (5000, 400), (40_000, 4000)):
        assert not rare(mine, rng.integers(0, towns, count).astype(np.uint64))
    # Most people live in a few towns; the public sample is from these alone.
    mine = np.concatenate([mine, rng.integers(200_000, 200_500, 50_000).astype(np.uint64)])
    assert not rare(mine, rng.integers(200_000, 200_500, 5000).astype(np.uint64))


def test_too_few_rows_of_its_own_give_a_part_away() -> None:
    """Of rows that occur once in both files together a 21st part would be the public file's, and it has none."""
    mine = np.r_[np.arange(1000), np.repeat(np.arange(1000, 1300), 2)].astype(np.uint64)
    part = np.r_[np.arange(45), np.arange(1000, 1035)].astype(np.uint64)
    assert rare(mine, part)
    # Others have some; and of a denser population those that they have stand in both.
    assert not rare(mine, np.r_[np.arange(45), np.arange(1000, 1035), np.arange(5000, 5050)].astype(np.uint64))


def test_people_with_several_rows_are_recognised(tmp_path: Path) -> None:
    people = rich(1, 120)
    rows = [{**row, "who": f"w{place}"} for place, row in enumerate(people) for _ in range(3)]
    source = FileSource(write(tmp_path / "people.csv", rows), Task.parse(RICH), person_column="who")
    with pytest.raises(UserError, match="holds people of"):
        check_apart(source, write(tmp_path / "public.csv", shuffled(features(people))[:60]))


def test_a_sample_that_is_on_the_log_already_is_compared_by_its_values(tmp_path: Path) -> None:
    for text, make in ((MOTHERS, lambda seed: mothers(400 * seed, 400)), (RICH, lambda seed: rich(seed, 400))):
        task = Task.parse(text)
        source = FileSource(write(tmp_path / "people.csv", make(1)), task)
        for seed, refused in ((1, True), (2, False)):
            public = Covariates(*public_covariates(write(tmp_path / "public.csv", shuffled(make(seed))), task))
            if not refused:
                check_carried(source, public)
                continue
            with pytest.raises(UserError, match="the public sample of the task 'third-child' holds people of"):
                check_carried(source, public)


def test_rows_are_alike_where_their_numbers_are() -> None:
    """Whatever the sign of a zero; and numbers that differ far behind the decimal point do differ."""
    numbers = [0.0, 1e-300, 1e-20, 2e-20, -1e-20, 0.5, 1.0]
    rows = np.array([(x, y) for x in numbers for y in numbers])
    assert len(np.unique(hashed(rows))) == len(rows)
    assert np.array_equal(hashed(np.where(rows == 0.0, -0.0, rows)), hashed(rows))


def test_a_repeated_pattern_is_no_copy() -> None:
    """Both files of a design that repeats itself hold every piece of it again and again."""
    pattern = np.tile(np.arange(7, dtype=np.uint64), 60)
    assert not consecutive(pattern, pattern[: 7 * 40])
    assert consecutive(np.random.default_rng(1).permutation(pattern), np.random.default_rng(1).permutation(pattern))


def test_the_shortest_piece_that_is_a_copy() -> None:
    """Its first and last runs may be cut, and say nothing."""
    mine = np.repeat(np.arange(100, dtype=np.uint64), 3)
    assert consecutive(mine, mine[29 : 29 + 1 + 3 * RUNS + 2])
    assert not consecutive(mine, mine[29 : 29 + 1 + 3 * (RUNS - 1) + 2])


def test_how_often_honest_samples_look_like_a_part_in_order() -> None:
    """At the largest size that chance can explain; of 300 draws none is refused (one in a million each)."""
    rng = np.random.default_rng(4)
    for _ in range(300):
        mine, theirs = rng.integers(0, 4, 400).astype(np.uint64), rng.integers(0, 4, int(rng.integers(5, 120)))
        assert not in_order(mine, theirs.astype(np.uint64))
