"""The rows of a file's people: grouped in bounded memory, in a random order, and one answer a person."""

import tracemalloc
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import murk
from murk import Task
from murk.errors import MurkError, UserError
from murk.populations import FileSource, file_source, grouping
from murk.populations.file_work import PopulationConfig, check_records
from murk.populations.grouping import MOST_ROWS, Grouping, Slice
from murk.populations.order import key_of_seed
from tests.producers.world import TEXT, make_task

KEY = key_of_seed(3)
ORDERS = ("sorted", "mixed")


def refuse(first: int, second: int) -> Exception:
    return UserError(f"rows {first} and {second}")


def names_of(people: int, order: str, seed: int = 1) -> list[str]:
    """Names of people with 1 to 9 rows each."""
    rng = np.random.default_rng(seed)
    names = [f"p{person}" for person in range(people) for _ in range(1 + person % 9)]
    return names if order == "sorted" else [names[at] for at in rng.permutation(len(names))]


def group(names: Sequence[str], levels: Sequence[int] | None = None, size: int = 100, **options: Any) -> Grouping:
    def read() -> Iterator[Slice]:
        for start in range(0, len(names), size):
            part = slice(start, start + size)
            yield Slice(start, names[part], None if levels is None else np.array(levels[part]))

    return Grouping(read, len(names), KEY, disagree=refuse, **options)


def listed(people: Grouping) -> list[list[int]]:
    """Everyone's rows, by position."""
    rows: list[list[int]] = []
    while (part := people.part(len(rows))) is not None:
        assert part.first <= len(rows) < part.stop
        ends = part.starts.tolist()
        rows += [part.rows[a:b].tolist() for a, b in pairwise(ends)][len(rows) - part.first :]
    return rows


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("most", [None, 40, 700])
def test_everybody_is_there_once_with_all_their_rows(
    order: str, most: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = names_of(400, order)
    expected = defaultdict(list)
    for row, name in enumerate(names):
        expected[name].append(row)
    whole = listed(group(names))
    if most is not None:
        monkeypatch.setattr(grouping, "INDEX_ROWS", most)
    people = group(names)
    assert people.tally()[:3] == (400, len(names), 9)
    rows = listed(people)
    # The order is the same however the index is cut.
    assert rows == whole
    assert {names[own[0]]: own for own in rows} == expected
    # Work is taken up at any position.
    assert people.part(400) is None
    part = group(names).part(250)
    assert part is not None
    assert part.rows[part.starts[250 - part.first]] == whole[250][0]


def test_the_order_is_not_the_files() -> None:
    """Two lists of 400 in independent random orders have a rank correlation beyond 5 / sqrt(399) once in 10^6."""
    names = names_of(400, "sorted")
    first = [own[0] for own in listed(group(names))]
    assert abs(np.corrcoef(np.argsort(first), np.arange(400))[0, 1]) < 0.25
    # It is by the names alone: sorting a file changes nothing.
    mixed = names_of(400, "mixed")
    assert [mixed[own[0]] for own in listed(group(mixed))] == [names[row] for row in first]
    by_row = [own[0] for own in listed(group(mixed, by_row=True))]
    assert by_row == sorted(by_row)


def test_of_very_many_rows_some_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["few"] * 3 + ["many"] * (3 * MOST_ROWS)
    rows = {names[own[0]]: own for own in listed(group(names))}
    assert (rows["few"], len(rows["many"])) == ([0, 1, 2], MOST_ROWS)
    assert rows["many"] == sorted(set(rows["many"]))
    assert group(names).tally()[:3] == (2, len(names), 3 * MOST_ROWS)
    # A mean of third of the rows at random: within 5 standard errors of all rows' (5e-7); the first third is not.
    spread = 3 * MOST_ROWS / np.sqrt(12 * MOST_ROWS)
    assert abs(np.mean(rows["many"]) - 3 - 1.5 * MOST_ROWS) < 5 * spread
    assert abs(np.mean(range(3, 3 + MOST_ROWS)) - 3 - 1.5 * MOST_ROWS) > 5 * spread


def test_the_index_has_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grouping, "INDEX_ROWS", 2048)
    names = [f"p{row % 2_500}" for row in range(20_000)]

    def peak(**options: Any) -> int:
        people = group(names, size=1024, **options)
        tracemalloc.start()
        try:
            people.tally()
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    # Beside the words and names of one slice, 32 bytes a row of the index; all rows together take more.
    beside = 1024 * 200
    assert peak() < beside + 32 * 2048 * 1.25 < beside + 20 * len(names) < peak(by_row=True) + beside


def test_a_persons_rows_agree_on_the_level() -> None:
    names = ["a", "b", "a", "b", "c", "a"]
    part = group(names, [1, 0, -1, 0, -1, 1]).part(0)
    assert part is not None
    assert part.levels is not None
    first = part.rows[part.starts[:-1]].tolist()
    assert {names[row]: level for row, level in zip(first, part.levels.tolist(), strict=True)} == {
        "a": 1,
        "b": 0,
        "c": -1,
    }
    with pytest.raises(UserError, match="rows 1 and 3"):
        group(names, [1, 0, -1, 2, -1, 1]).part(0)


HEADER = "age,same_sex,origin,third_child,who,level"


def write(path: Path, *rows: str) -> Path:
    path.write_text("\n".join([HEADER, *rows]) + "\n")
    return path


def table(people: int = 60) -> list[str]:
    """Rows of people with 1 to 9 rows, mixed; the age tells the person, the origin the row."""
    return [
        f"{21 + int(name[1:]) % 15},yes,{('EWR', 'JFK', 'LGA')[at % 3]},{('no', 'yes')[at % 2]},{name},"
        for at, name in enumerate(names_of(people, "mixed"))
    ]


@pytest.mark.parametrize("rows", [20, 10_000])
def test_blocks_of_people_have_all_their_records(tmp_path: Path, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = table()
    source = FileSource(write(tmp_path / "people.csv", *lines), make_task(), person_column="who")
    coded = next(source.blocks())
    monkeypatch.setattr(file_source, "BLOCK_ROWS", rows)
    people = source.grouping(KEY)
    blocks = list(source.people_in_order(people, 0, 25))
    names: list[str] = []
    for block in blocks:
        assert block.people is not None
        assert block.counts is not None
        assert block.positions.tolist() == list(range(len(names), len(names) + len(block)))
        assert block.next_position == len(names) + len(block)
        assert len(block) <= 25
        assert len(block.y) == block.counts.sum() <= max(rows, 9)
        start = 0
        for name, row, count in zip(block.people, block.rows.tolist(), block.counts.tolist(), strict=True):
            own = [at for at, line in enumerate(lines) if line.split(",")[4] == name]
            assert (row, count) == (own[0], len(own))
            assert np.array_equal(block.x[start : start + count], coded.x[own])
            start += count
        names += block.people
    assert sorted(names) == sorted({line.split(",")[4] for line in lines})
    # It goes on after any block, also where the memory is filled anew for each.
    monkeypatch.setattr(file_source, "FEWEST_ROWS", 30)
    monkeypatch.setattr(file_source, "WINDOW_BYTES", 1)
    monkeypatch.setattr(file_source, "ROW_BYTES", 0)
    later = list(source.people_in_order(source.grouping(KEY), blocks[1].next_position, 25))
    assert [name for block in later for name in block.people or ()] == names[blocks[1].next_position :]


def test_two_names_with_one_hash_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = FileSource(write(tmp_path / "people.csv", *table()), make_task(), person_column="who")
    monkeypatch.setattr(Grouping, "_words", lambda self, names: np.array([int(name[1:]) // 2 for name in names], "<u8"))
    with pytest.raises(MurkError, match="same hash: give the rows of the file in another order"):
        list(source.people_in_order(source.grouping(KEY)))


def test_two_spellings_are_one_person_and_who_is_not_named_is_alone(tmp_path: Path) -> None:
    rows = [
        "25,yes,EWR,no,Zoe\u0301,",
        "26,yes,EWR,no,,",
        "27,yes,EWR,no,Zo\u00e9,",
        "28,yes,EWR,no, ,",
        "29,yes,EWR,no,7.0,",
        "30,yes,EWR,no,007,",
    ]
    source = FileSource(write(tmp_path / "people.csv", *rows), make_task(simulated=False), person_column="who")
    [block] = source.people_in_order(source.grouping(KEY))
    assert sorted(zip(block.rows.tolist(), block.counts.tolist(), strict=True)) == [(0, 2), (1, 1), (3, 1), (4, 2)]
    with pytest.raises(UserError, match=r"row 2, column 'who'.*names nobody"):
        FileSource(source.records, make_task(), person_column="who").grouping(KEY).tally()


def test_rows_of_a_person_at_two_levels_are_refused_before_anything_is_sent(tmp_path: Path) -> None:
    rows = ["25,yes,EWR,no,a,strict", "26,yes,JFK,no,b,open", "27,yes,EWR,no,a,open", "28,yes,EWR,no,b,open"]
    path = write(tmp_path / "people.csv", *rows)
    for simulated in (True, False):
        with pytest.raises(UserError, match=r"row 3, column 'level': another level than in row 1, of the same person"):
            murk.run(
                make_task(simulated=simulated), path, person="who", level="column:level", seed=1 if simulated else None,
                log=f"sqlite:///{tmp_path}/log-{simulated}.db", ledger=tmp_path / "ledger.db",
            )  # fmt: skip
        with murk.stream.open_log(f"sqlite:///{tmp_path}/log-{simulated}.db") as log:
            assert log.document() is None


def test_a_check_counts_people_and_rows(tmp_path: Path) -> None:
    path = write(tmp_path / "people.csv", *table())
    config = PopulationConfig(murk.populations.open_records(path), "who", "default", 1)
    assert check_records(make_task(), config)[:3] == (60, len(table()), 9)


PROTOCOLS = {
    "scores": ("", TEXT),
    "gradients": ("protocol: gradients", TEXT),
    "examples": ("protocol: examples", TEXT),
    "moments": ("protocol: moments", TEXT),
}


@pytest.mark.parametrize("name", PROTOCOLS)
def test_equal_rows_are_one_row(name: str, tmp_path: Path) -> None:
    """Whoever has one record several times answers as with the one record."""
    more, text = PROTOCOLS[name]
    task = Task.parse(f"{text}\n{more}")
    rng = np.random.default_rng(5)
    draws = {
        "age": range(21, 36),
        "same_sex": ("yes", "no"),
        "origin": ("EWR", "JFK", "LGA"),
        "third_child": ("yes", "no"),
    }
    once = [
        {column: str(rng.choice(values)) for column, values in draws.items()} | {"who": f"p{at}"} for at in range(100)
    ]
    copies = [once[at] for at in rng.integers(0, 100, 300)]
    alone, grouped = (murk.run(task, rows, person="who", seed=4) for rows in (once, [*once, *copies]))
    assert grouped.n_releases == alone.n_releases == 100
    assert grouped.report["state_digest"] == alone.report["state_digest"]
    assert "100 people with 400 rows: one answer" in grouped.report["counted_rows"]
    # It matters which rows are whose.
    others = [copy | {"who": f"p{at % 100}"} for at, copy in enumerate(copies)]
    assert murk.run(task, [*once, *others], person="who", seed=4).report["state_digest"] != alone.report["state_digest"]


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_intervals_are_of_people_and_not_of_rows() -> None:
    """100 people answer the same in each of 30 rows; of 8 intervals of 95%, 5 or fewer hold once in 180 sets."""
    task = Task.parse("""
name: visits
features: []
target: {name: y, kind: binary, positive: "1", negative: "0"}
privacy: {guarantee: {gdp: {mu: 1.0}}, per_person: {gdp: {mu: 8.0}}}
""")
    held = {"person": 0, None: 0}
    for seed in range(8):
        answers = np.random.default_rng(seed).random(100) < 0.5
        records = [{"person": f"p{person}", "y": str(int(answers[person]))} for person in range(100) for _ in range(30)]
        for person in held:
            result = murk.run(task, records, seed=seed, person=person)
            assert result.n_releases == (3_000 if person is None else 100)
            low, high = result[next(iter(result.coefficients))].interval
            held[person] += low <= 0 <= high
    assert held["person"] >= 6 > held[None]
