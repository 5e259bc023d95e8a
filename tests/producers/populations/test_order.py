"""The order in which the people of a file release: random, the same after every interruption, and known to nobody."""

import json
import os
from dataclasses import replace
from itertools import pairwise, permutations
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from murk.errors import MurkError, UserError
from murk.populations import file_source, order
from murk.populations.file_source import FileSource
from murk.populations.local_run import LocalRun
from murk.populations.order import key_of_seed, rows_in_order
from murk.populations.people import PopulationConfig, population_of
from murk.producers import Ledger
from murk.stream import open_log
from murk.stream.log.interface import Log
from tests.producers.world import World, Wrapped, make_task

LEVELS = ["strict", "open", "open", "default", "strict", "default", "open", "strict", "default", "default"]
MANY = LEVELS * 9
"""Levels in the order of the file. That a fair order of 90 with 27 to 36 of each is this one has a probability of
27! 27! 36! / 90! < 1e-40."""


def crowd_of(folder: Path, levels: list[str], person: str | None = None, seed: int | None = None) -> PopulationConfig:
    rows = [f"p{at},28,yes,JFK,{'yes' if at % 2 else 'no'},{level}" for at, level in enumerate(levels)]
    source = folder / "people.csv"
    source.write_text("\n".join(["who,age,same_sex,origin,third_child,chosen", *rows]) + "\n")
    return PopulationConfig(source, person, "column:chosen", seed=seed)


def sent(url: str) -> list[str]:
    """The levels of the releases in the order of the log."""
    with open_log(url) as log:
        return [json.loads(one.value)["level"] for one in log.read(0, 0, 1000)]


@pytest.mark.parametrize("protocol", ["gradients", "moments"])
@pytest.mark.parametrize("person", [None, "who"])
def test_order_tells_nobody_whose_a_release_is(tmp_path: Path, person: str | None, protocol: str) -> None:
    """Not even of gradients, whose first blocks are of one person."""
    task, orders = make_task(f"protocol: {protocol}"), []
    crowd = crowd_of(tmp_path, MANY, person)
    for name in ("one", "two"):
        url = f"sqlite:///{tmp_path}/{name}.db"
        with LocalRun(task, crowd, url, tmp_path / f"{name}.ledger.db") as run:
            for _ in run.steps():
                pass
        orders.append(sent(url))
    for levels in orders:
        assert sorted(levels) == sorted(MANY)
        assert levels != MANY
    # Each ledger has an order of its own.
    assert orders[0] != orders[1]


def test_an_order_lasts_as_long_as_its_ledger_and_is_stored_nowhere(tmp_path: Path) -> None:
    crowd, url = crowd_of(tmp_path, MANY), f"sqlite:///{tmp_path}/log.db"
    with LocalRun(make_task("protocol: moments"), crowd, url, tmp_path / "ledger.db") as run:
        task, digest = run.task.hash, run.population.source.digest
        key = run.ledger.order_key(task, digest)
        other = run.ledger.order_key(task[::-1], digest)
    with Ledger(tmp_path / "ledger.db") as ledger:
        assert ledger.order_key(task, digest) == key != other
    files = [path.read_bytes() for path in tmp_path.iterdir() if path.is_file()]
    assert not any(key in content or key.hex().encode() in content for content in files)


def test_a_simulations_order_follows_from_its_seed_alone(tmp_path: Path) -> None:
    """Whatever its blocks are; `order="file"` keeps the order of the file."""
    found = []
    for name, block, seed, chosen in (
        ("a", 90, 7, "random"),
        ("b", 7, 7, "random"),
        ("c", 90, 8, "random"),
        ("d", 90, 7, "file"),
    ):
        crowd, url = crowd_of(tmp_path, MANY, seed=seed), f"sqlite:///{tmp_path}/{name}.db"
        crowd = replace(crowd, block=block, order=chosen)
        with LocalRun(make_task("protocol: moments"), crowd, url, tmp_path / f"{name}.ledger.db") as run:
            for _ in run.steps():
                pass
        found.append(sent(url))
    assert found[0] == found[1] != MANY
    assert found[2] not in (found[0], MANY)
    assert found[3] == MANY


def test_real_noise_never_follows_the_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--order file.*would show which row.*give a --seed"):
        replace(crowd_of(tmp_path, LEVELS), order="file")
    with pytest.raises(UserError, match="order 'sorted': choose one of 'random', 'file'"):
        replace(crowd_of(tmp_path, LEVELS), order="sorted")  # type: ignore[arg-type]


def test_a_run_goes_on_in_the_order_in_which_it_began(tmp_path: Path) -> None:
    crowd, url = replace(crowd_of(tmp_path, MANY, seed=7), block=20), f"sqlite:///{tmp_path}/log.db"
    with LocalRun(make_task("protocol: moments"), crowd, url, tmp_path / "ledger.db") as run:
        steps = run.steps()
        next(steps), next(steps)
    with pytest.raises(UserError, match="started with --order random, not --order file"):
        LocalRun(make_task("protocol: moments"), replace(crowd, order="file"), url, tmp_path / "ledger.db")


@pytest.mark.parametrize("stored", [True, False], ids=["stored, not heard", "not stored"])
def test_what_waits_is_sent_once_in_the_order_that_was_drawn(tmp_path: Path, stored: bool) -> None:
    crowd, url = crowd_of(tmp_path, MANY), f"sqlite:///{tmp_path}/log.db"
    tried: list[list[tuple[int, bytes]]] = []

    def append(log: Log, batch: list[tuple[int, bytes]]) -> None:
        tried.append(batch)
        if stored:
            log.append(batch)
        raise MurkError("the connection was lost")

    task = make_task("protocol: moments", simulated=False)
    with open_log(url) as log, Ledger(tmp_path / "ledger.db") as ledger:
        people = population_of(task, replace(crowd, block=45), log, ledger)
        people.producer = people.producer.__class__(  # type: ignore[attr-defined]
            people.task,
            Wrapped(log, append=lambda batch: append(log, batch)),  # type: ignore[arg-type]
            ledger,
        )
        with pytest.raises(MurkError, match="connection was lost"):
            list(people.steps())
        assert (ledger.pending(), len(tried)) == (45, 1)
        people.close()
    # Another process carries on: the same bytes, in the order in which they were sent or would have been.
    with open_log(url) as log, Ledger(tmp_path / "ledger.db") as ledger:
        people = population_of(task, replace(crowd, block=45), log, ledger)
        list(people.steps())
        people.close()
        values = [one.value for one in log.read(0, 0, 1000)]
        assert ledger.totals().releases == len(values) == len(set(values)) == 90
    assert values[:45] == [value for _, value in tried[0]]
    levels = [json.loads(value)["level"] for value in values]
    assert sorted(levels) == sorted(MANY)
    assert levels != MANY


def chi_square(orders: list[tuple[int, ...]]) -> float:
    """Of six orders of three against even odds."""
    expected = len(orders) / 6
    return sum((orders.count(one) - expected) ** 2 / expected for one in permutations(range(3)))


def test_every_order_is_as_likely(tmp_path: Path) -> None:
    """Chi-square of five degrees of freedom is above 41 with a probability below 1e-7; a wrong shuffle is far above."""
    draws = 6000
    with World(tmp_path, make_task(simulated=False)) as world:
        drawn = [tuple(world.producer._order(np.arange(3))) for _ in range(draws)]
    assert chi_square(drawn) < 41
    # Each place exchanged with any other: the classical mistake, whose orders have odds of 4 and 5 of 27.
    source, wrong = np.random.default_rng(1), []
    for _ in range(draws):
        order = [0, 1, 2]
        for at, other in enumerate(source.integers(0, 3, 3).tolist()):
            order[at], order[other] = order[other], order[at]
        wrong.append(tuple(order))
    assert chi_square(wrong) > 41


# Orders


def test_every_order_of_rows_is_as_likely():
    """The same bound as above; the wrong twin's keys give four of the six orders."""
    keys = [key_of_seed(seed) for seed in range(6000)]
    drawn = [tuple(rows_in_order(key, 3, 0, 3).tolist()) for key in keys]
    assert chi_square(drawn) < 41
    turned = [tuple(np.roll([0, 1, 2], order[0]).tolist()) for order in drawn]
    assert chi_square(turned) > 41


@pytest.mark.parametrize("size", [1, 2, 100, 2**16, 2**16 + 1, 150_000])
def test_parts_of_an_order_are_parts_of_one_permutation(size):
    key = key_of_seed(5)
    whole = rows_in_order(key, size, 0, size)
    assert np.array_equal(np.sort(whole), np.arange(size))
    cuts = [0, *sorted({1, size // 3, size // 2, size - 1} - {0, size}), size]
    parts = [rows_in_order(key, size, start, stop) for start, stop in pairwise(cuts)]
    assert np.array_equal(np.concatenate(parts), whole)
    assert len(rows_in_order(key, size, size, size)) == 0


def test_rows_with_equal_bits_are_all_there(monkeypatch):
    monkeypatch.setattr(order, "_words", lambda key, first, size: (np.arange(first, size) % 3).astype(np.uint64))
    parts = [rows_in_order(b"", 20, start, min(start + 3, 20)) for start in range(0, 20, 3)]
    assert np.concatenate(parts).tolist() == sorted(range(20), key=lambda row: (row % 3, row))


# Files

ROWS = [
    (f"p{row % 70}", 21 + row % 15, "yes" if row % 3 else "no", "JFK", "yes" if row % 4 else "no") for row in range(300)
]
COLUMNS = ("who", "age", "same_sex", "origin", "third_child")


def sources(folder: Path) -> dict[str, object]:
    """The same records in every form."""
    frame = pd.DataFrame(ROWS, columns=COLUMNS)
    frame.to_csv(folder / "a.csv", index=False)
    frame.to_csv(folder / "a.csv.gz", index=False)
    frame.to_json(folder / "a.jsonl", orient="records", lines=True)
    frame.to_json(folder / "a.jsonl.gz", orient="records", lines=True)
    table = pa.Table.from_pandas(frame, preserve_index=False)
    pq.write_table(table, folder / "a.parquet", row_group_size=64)
    files = {path.name: path for path in folder.iterdir()}
    return {
        **files,
        "pandas": frame,
        "polars": pl.from_pandas(frame),
        "arrow": table,
        "records": (dict(zip(COLUMNS, row, strict=True)) for row in ROWS),
    }


@pytest.mark.parametrize("rows_in_memory", [300, 64])
def test_a_source_in_any_form_gives_its_rows_in_the_same_order(tmp_path, monkeypatch, rows_in_memory):
    """However many are in memory at a time: none twice, none left out but those that are excluded."""
    monkeypatch.setattr(file_source, "FEWEST_ROWS", rows_in_memory)
    monkeypatch.setattr(file_source, "WINDOW_BYTES", 1)
    monkeypatch.setattr(file_source, "ROW_BYTES", 0)
    key, excluded = key_of_seed(3), {5, 17, 250}
    wanted = [row for row in rows_in_order(key, 300, 0, 300).tolist() if row not in excluded]
    given = sources(tmp_path)
    for name, records in given.items():
        source = FileSource(records, make_task(), person_column="who")
        [plain] = list(source.blocks(size=300))
        for start in (0, 100):
            found, sizes = [], []
            for block in source.blocks_in_order(key, start, 40, excluded=excluded):
                rows = block.rows.tolist()
                found += rows
                sizes.append(len(block))
                assert [plain.people[row] for row in rows] == block.people
                assert np.array_equal(block.x, plain.x[rows])
                assert np.array_equal(block.y, plain.y[rows])
                assert np.array_equal(block.cells, plain.cells[rows])
                places = block.positions.tolist()
                assert places == sorted(places)
                assert block.next_position == places[-1] + 1
            left = [row for row in wanted if row in set(rows_in_order(key, 300, start, 300).tolist())]
            assert found == left, name
            # Where the file is read again changes no block.
            assert set(sizes[:-1]) == {40}


def test_counts_of_a_block_are_those_of_its_rows(tmp_path):
    records = [
        {"age": age, "same_sex": "yes", "origin": "JFK", "third_child": target}
        for age, target in ((90, "yes"), (25, None), (None, None), (30, "no"))
    ]
    source = FileSource(records, make_task(simulated=False))
    blocks = list(source.blocks_in_order(key_of_seed(1), 0, 4))
    [plain] = list(source.blocks())
    assert [(block.clamped, block.missing) for block in blocks] == [(plain.clamped, plain.missing)] == [(1, 3)]


def test_what_is_wrong_with_a_row_is_said_of_its_row_in_the_file(tmp_path):
    records = [
        {"age": 25 if row != 41 else "old", "same_sex": "yes", "origin": "JFK", "third_child": "yes"}
        for row in range(60)
    ]
    source = FileSource(records, make_task(simulated=True))
    with pytest.raises(UserError, match="row 42, column 'age'"):
        list(source.blocks_in_order(key_of_seed(1)))


@pytest.mark.parametrize("form", ["a.csv", "a.csv.gz", "a.jsonl", "a.parquet"])
def test_a_file_that_changes_between_two_reads_is_refused(tmp_path, monkeypatch, form):
    monkeypatch.setattr(file_source, "FEWEST_ROWS", 64)
    monkeypatch.setattr(file_source, "WINDOW_BYTES", 1)
    monkeypatch.setattr(file_source, "ROW_BYTES", 0)
    sources(tmp_path)
    path = tmp_path / form
    source = FileSource(path, make_task())
    blocks = source.blocks_in_order(key_of_seed(3), 0, 40)
    next(blocks)
    os.utime(path, ns=(1, 1))
    with pytest.raises(UserError, match="changed while it was read: start again, and leave it unchanged"):
        list(blocks)


def test_a_source_that_ends_at_once_is_refused():
    for records in ([], iter(()), (row for row in ())):
        with pytest.raises(UserError, match="has no rows: give a source with at least one record"):
            FileSource(records, make_task())


def test_the_records_that_wait_are_wiped_and_blocks_are_not(monkeypatch):
    source = FileSource([dict(zip(COLUMNS, row, strict=True)) for row in ROWS], make_task())
    windows = []
    fill = source._fill
    monkeypatch.setattr(source, "_fill", lambda window: (windows.append(window), fill(window)))
    blocks = source.blocks_in_order(key_of_seed(3), 0, 100)
    first = next(blocks)
    [window] = windows
    assert np.any(window._x)
    blocks.close()
    assert not np.any(window._x)
    assert not np.any(window._y)
    # Sketches keep views of a block until their window ends.
    assert np.any(first.x)
