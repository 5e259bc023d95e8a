"""Files of a few bytes that are gigabytes when they are read: no reader keeps more than a row's bound of them."""

import csv
import gzip
import io
import json
import tracemalloc

import numpy as np
import pytest

from murk.errors import UserError
from murk.learners.public_sample import PublicSample
from murk.populations.records import files
from murk.populations.records.files import open_table
from murk.task import text_files as _lines
from murk.task.text_files import BoundedLines, LongRowError, csv_rows
from reproductions.data_file import DataFile, read_columns

ROW = 10_000


@pytest.fixture(autouse=True)
def short_rows(monkeypatch):
    """So that a bomb is small enough for a test."""
    monkeypatch.setattr(_lines, "MOST_ROW", ROW)
    before = csv.field_size_limit()
    yield
    csv.field_size_limit(before)


def bomb(path, head, unit, size=5_000_000, tail=""):
    """A gzip file whose text is a head, and then so many characters of a unit."""
    with gzip.open(path, "wt", compresslevel=6) as file:
        file.write(head)
        for _ in range(size // 1_000_000):
            file.write(unit * (1_000_000 // len(unit)))
        file.write(tail)
    return path


def csv_table(path):
    return list(open_table(path, ["a"]).rows(0))


def json_table(path):
    return list(open_table(path, ["a"]).rows(0))


def public(path):
    return PublicSample.read(path, None)


def data_file(path):
    return read_columns(path, DataFile(name="it", columns=("a",)))


def spaced(path):
    return read_columns(path, DataFile(name="it", columns=("a",), header=False, spaced=True))


@pytest.mark.parametrize(("name", "head", "unit", "read", "where"), [
    ("header.csv.gz", "", "a", csv_table, "first line"),
    ("row.csv.gz", "a,b\n1,2\n", "1", csv_table, "row 2"),
    ("cells.csv.gz", "a,b\n1,2\n", "1,", csv_table, "row 2"),
    ("quoted.csv.gz", 'a,b\n1,2\n1,"', "x\n", csv_table, "row 2"),
    ("quotes.csv.gz", "a,b\n1,2\n", '"x\n",', csv_table, "row 2"),
    ("row.jsonl.gz", '{"a": 1}\n{"a": 2}\n{"a": "', "x", json_table, "row 3"),
    ("nested.jsonl.gz", '{"a": 1}\n', "[", json_table, "row 2"),
    ("public.csv.gz", "a\n1\n", "1", public, "row 2"),
    ("header2.csv.gz", "", "a", public, "row 1"),
    ("paper.csv.gz", "a\n1\n", "1", data_file, "row"),
    ("paper2.csv.gz", "", "a", data_file, "row"),
    ("paper3.csv.gz", "1\n", "1 ", spaced, "row"),
])  # fmt: skip
def test_a_line_without_an_end_is_refused_in_bounded_memory(tmp_path, name, head, unit, read, where):
    """Of 5 MB, in a file of 5 kB, no more than a row is kept; the error says which row."""
    path = bomb(tmp_path / name, head, unit)
    tracemalloc.start()
    try:
        with pytest.raises(UserError, match=r"longer than|more than") as error:
            read(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2_000_000
    assert where in str(error.value)
    assert path.name in str(error.value)
    assert len(str(error.value)) < 400


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_of_wide_rows_only_what_is_wanted_is_kept(tmp_path, monkeypatch, form):
    """A wide unused cell is nobody's mistake; wide wanted ones are kept short, and apart."""
    monkeypatch.setattr(_lines, "MOST_ROW", 400_000)
    wide = "x" * 140_000
    path = tmp_path / f"table.{form}"
    rows = [("1", "n"), ("2", wide), (wide, "n"), (wide + "y", "n"), (None if form == "jsonl" else "", wide)]
    if form == "csv":
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([("a", "note"), *rows])
    else:
        path.write_text("".join(json.dumps({"note": note, "a": a}) + "\n" for a, note in rows))
    table = open_table(path, ["a"])
    read = list(table.rows(0))
    assert sum(len(cell) for row in read for cell in row) < 10_000
    [column] = table.columns(read, range(len(read)), ["a"]).values()
    assert (list(column[:2]), column[4]) == (["1", "2"], rows[4][0])
    assert column[2] != column[3]
    assert {value[:1000] for value in column[2:4]} == {"x" * 1000}


def test_keys_of_a_thousand_hostile_lines_are_not_kept(tmp_path):
    path = tmp_path / "keys.jsonl"
    path.write_text(
        "".join(json.dumps({f"{row}-{key}": 0 for key in range(500)} | {"a": 1}) + "\n" for row in range(50))
    )
    table = open_table(path, ["a"])
    assert len(table.names) <= 1001
    assert "a" in table.names


def test_a_row_is_bounded_and_not_a_file():
    text = io.StringIO("a,b\n" * ROW)
    assert sum(1 for _ in csv_rows(text)) == ROW
    lines = BoundedLines(io.StringIO("x" * ROW + "\n"))
    with pytest.raises(LongRowError):
        next(lines)


def test_a_parquet_column_that_unpacks_without_end_is_refused(tmp_path, monkeypatch):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    from murk.populations.records import tables as arrow

    path = tmp_path / "bomb.parquet"
    zeros = pyarrow.table({"a": np.zeros(2_000_000)})
    parquet.write_table(zeros, path, compression="zstd", use_dictionary=False)
    assert next(iter(open_table(path, ["a"]).rows(0))) == (0.0,)
    monkeypatch.setattr(arrow, "MOST_BATCH", 2**20)
    with pytest.raises(UserError, match=r"row group 1, column 1: .* unpack"):
        open_table(path, ["a"])
    parquet.write_table(pyarrow.table({"a": ["x" * 10_000] * 4000}), path)
    with pytest.raises(UserError, match="rows of the wanted columns take more"):
        next(iter(open_table(path, ["a"]).rows(0)))
    assert files.TABLES[".parquet"] is arrow.ParquetTable
