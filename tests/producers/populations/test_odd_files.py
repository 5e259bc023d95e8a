"""Files are known by their bytes; limits of libraries, and columns that nobody asked for, are nobody's mistake."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from murk import Task
from murk.errors import UserError
from murk.populations import FileSource
from murk.populations.public_sample import _plain
from murk.populations.records import tables as arrow
from murk.populations.records.files import open_table

TASK = Task.parse(
    "{name: t, privacy: {guarantee: {gdp: {mu: 1.0}}}, target: {name: y, kind: binary, positive: 'yes'}, "
    "features: [{name: age, low: 0, high: 100}, {name: d, kind: date, low: 2024-05-01, high: 2024-06-30}]}"
).with_simulated(True)
TEXT = "age,d,y,note\n0,2024-05-01,yes,n\n100,2024-06-30,no,{}\n"
FAR = 2_932_902
ROWS = [[-1.0, -1.0, 1.0], [1.0, 1.0, 1.0]]


def rows(source: Any) -> list[list[float]]:
    return [row for block in FileSource(source, TASK).blocks() for row in block.x.tolist()]


def refused(source: Any) -> str:
    with pytest.raises(UserError) as caught:
        rows(source)
    assert caught.value.code == "MURK-DATA-001"
    return str(caught.value)


@pytest.mark.parametrize("name", ["a.csv", "a.CSV", "a.csv.gz", "a.CSV.GZ", "a.Csv.Gz"])
@pytest.mark.parametrize("zipped", [False, True])
def test_compression_is_read_off_the_bytes(tmp_path: Path, name: str, zipped: bool) -> None:
    text = TEXT.format("n").encode()
    (tmp_path / name).write_bytes(gzip.compress(text) if zipped else text)
    assert rows(tmp_path / name) == ROWS
    lines = [{"age": 0, "d": "2024-05-01", "y": "yes"}, {"age": 100, "d": "2024-06-30", "y": "no"}]
    data = "\n".join(map(json.dumps, lines)).encode()
    path = tmp_path / name.lower().replace("csv", "jsonl")
    path.write_bytes(gzip.compress(data) if zipped else data)
    assert rows(path) == ROWS


@pytest.mark.parametrize(
    ("head", "words"),
    [
        (b"PK\x03\x04\x14\0", "a ZIP archive"), (b"BZh91AY&SY", "compressed by bzip2"), (b"\xfd7zXZ\0", "by xz"),
        (b"\x28\xb5\x2f\xfd\0", "compressed by Zstandard"), (b"PAR1\x15\x04", "a name that ends in .parquet"),
        (b"ARROW1\0\0", "an Arrow file"), (b"SQLite format 3\0", "a database"), (b"\xff\xfea\0", "but UTF-16"),
        (b"\0age", "begins with control characters"),
    ],
)  # fmt: skip
def test_what_a_file_is_instead_of_text(tmp_path: Path, head: bytes, words: str) -> None:
    (tmp_path / "a.csv").write_bytes(head + b"\n" * 20)
    assert words in refused(tmp_path / "a.csv")


@pytest.mark.parametrize("header", ["PAR1", "PARENTS", "BZh", "PK", "ORC", "Obj"])
def test_a_header_that_begins_like_another_kind_of_file(tmp_path: Path, header: str) -> None:
    (tmp_path / "a.csv").write_text(f"{header},{TEXT}".replace("\n0", "\nx,0").replace("\n100", "\nx,100").format("n"))
    assert rows(tmp_path / "a.csv") == ROWS


def test_a_wide_cell_that_nobody_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "wide.csv"
    path.write_text(TEXT.format("x" * 140_000))
    assert rows(path) == ROWS
    # What is beyond Murk's own limit is said to be so.
    path.write_text(TEXT.format("x" * 1_100_000))
    assert "row 2: not a CSV row (more than 1,048,576 characters, or a quoted cell that never ends)" in refused(path)


def test_a_long_integer_that_nobody_asked_for(tmp_path: Path) -> None:
    """Python converts none of more than 4,300 digits: the line is a JSON object all the same."""
    digits = "7" * 5000
    lines = [
        f'{{"age": 0, "d": "2024-05-01", "y": "yes", "id": {digits}}}',
        '{"age": 100, "d": "2024-06-30", "y": "no"}',
    ]
    path = tmp_path / "people.jsonl"
    path.write_text("\n".join(lines))
    assert rows(path) == ROWS
    path.write_text("\n".join([lines[1], lines[0].replace('"age": 0', f'"age": {digits}')]))
    assert "row 2, column 'age': the value is not a finite number" in refused(path)


def test_days_that_python_cannot_hold_are_clamped(tmp_path: Path) -> None:
    days = pa.array([FAR, 19_844, -800_000], pa.date32())
    table = pa.table({"age": [0, 0, 0], "d": days, "y": ["yes", "no", "yes"]})
    pq.write_table(table, tmp_path / "far.parquet")
    text = "age,d,y\n0,10000-01-06,yes\n0,2024-05-01,no\n0,-0221-09-04,yes\n"
    (tmp_path / "far.csv").write_text(text)
    for source in (tmp_path / "far.parquet", table, pl.DataFrame(table), tmp_path / "far.csv"):
        assert [row[1] for row in rows(source)] == [1.0, -1.0, -1.0]


@pytest.mark.parametrize("unit", ["us", "ns"])
def test_an_unknown_zone_is_named_with_its_column(tmp_path: Path, unit: str) -> None:
    table = pa.table({"age": [0], "d": pa.array([0], pa.timestamp(unit, "Mars/Olympus")), "y": ["yes"]})
    pq.write_table(table, tmp_path / "p.parquet")
    for source in (tmp_path / "p.parquet", table):
        words = refused(source)
        assert "column 'd': this machine does not know the time zone 'Mars/Olympus'" in words


def test_names_within_a_struct_are_not_repeated(tmp_path: Path) -> None:
    for value in ({"hiv_positive": True}, [{"hiv_positive": True}]):
        table = pa.table({"age": [value], "d": ["2024-05-01"], "y": ["yes"]})
        pq.write_table(table, tmp_path / "p.parquet")
        for source in (tmp_path / "p.parquet", table):
            words = refused(source)
            assert "column 'age': its type is a " in words
            assert "hiv" not in words


def test_what_pyarrow_cannot_do_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pq.write_table(pa.table({"age": [0]}), tmp_path / "p.parquet")

    def refuse(*_: Any, **__: Any) -> None:
        raise pa.ArrowNotImplementedError("secret")

    monkeypatch.setattr(pq, "ParquetFile", refuse)
    with pytest.raises(UserError, match="needs features that pyarrow lacks here") as caught:
        arrow.ParquetTable(tmp_path / "p.parquet", [])
    assert "secret" not in str(caught.value)


def test_hashes_of_values_however_they_are_written() -> None:
    assert len({_plain(value) for value in ("30", 30, 30.0, " 30 ", np.int64(30))}) == 1
    assert _plain(2**53) != _plain(2**53 + 1) == _plain(str(2**53 + 1))
    assert _plain("2_4") != _plain(24)


def test_a_gzipped_parquet_file_is_to_be_unpacked(tmp_path: Path) -> None:
    (tmp_path / "p.parquet").write_bytes(gzip.compress(b"PAR1"))
    with pytest.raises(UserError, match="Unpack it"):
        open_table(tmp_path / "p.parquet", [])


STORED = b"\x1f\x8b\x08" + bytes(8) + b"\xff\xff\0\0"
"""Begins a gzip stream whose first block holds 65,535 bytes as they are."""


@pytest.mark.parametrize("more", [b"", b"x" * 100, b"x" * 200_000])
@pytest.mark.parametrize(
    "first",
    [
        b"\xff\xfe", b"\xfe\xffa", b"\x1f\x8b", b"\x1f\x8b\x08\x00", STORED, gzip.compress(b"{}", mtime=0),
        b"PK\x03\x04", b"PAR1\0", b"\0\0", b"{",
    ],
)  # fmt: skip
def test_a_first_record_decides_nothing_about_the_others(tmp_path: Path, first: bytes, more: bytes) -> None:
    """Without a header a file begins with a person's record; whether anything is sent must not depend on it."""
    line = b'{"age": 100, "d": "2024-06-30", "y": "no"}'
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\n".join([first + more, line, line]))
    real = TASK.with_simulated(False)
    people = [row for block in FileSource(path, real, strict=False).blocks() for row in block.x.tolist()]
    assert people[1:] == [ROWS[1]] * 2
    assert len(people) == 3
    # A file of another kind is none of these, and still refused.
    path.write_bytes(b"\n".join([line, line]).decode().encode("utf-16"))
    with pytest.raises(UserError, match="UTF-16"):
        FileSource(path, real, strict=False)


def test_a_first_record_decides_nothing_about_indented_or_long_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    for line in (b' {"age": 100} ', b'{"note": "' + b"x" * 3_000_000 + b'"}'):
        path.write_bytes(b"\0" * 40 + b"\n" + line + b"\n")
        assert (
            len(
                [
                    row
                    for block in FileSource(path, TASK.with_simulated(False), strict=False).blocks()
                    for row in block.x
                ]
            )
            == 2
        )


def test_a_truncated_gzip_file_under_another_name_is_known(tmp_path: Path) -> None:
    for name in ("a.csv", "a.jsonl"):
        (tmp_path / name).write_bytes(gzip.compress(bytes(range(256)) * 40)[:200])
        assert "is not a valid gzip file, or is truncated" in refused(tmp_path / name)
