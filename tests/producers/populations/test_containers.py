"""The same values have the same codes, or the same refusal by row and column, whatever container holds them."""

import csv
import datetime
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from murk import Task
from murk.errors import UserError
from murk.learners import Encoder
from murk.populations import FileSource

BERLIN = ZoneInfo("Europe/Berlin")
DATE = "kind: date, low: 2024-05-01, high: 2024-06-30, as: [number, weekday, month]"
BIG = 2**53


def midnight(month: int, zone: ZoneInfo | None = None) -> datetime.datetime:
    """A time whose day is another one by Greenwich."""
    return datetime.datetime(2024, month, 1, 0, 30, tzinfo=zone)


@dataclass(frozen=True)
class Kind:
    """A column: what a task says of it, its values, its types, and containers that cannot hold these values."""

    feature: str
    values: Sequence[Any]
    arrow: Any
    pandas: Any = object
    nullable: Any = None
    polars: Any = None
    not_in: frozenset[str] = frozenset()


NULLS: list[Any] = [None] * 40
FEW = [None, 1.5, *NULLS[:6], 99.0]
KINDS = {
    "boolean": Kind("categories: [no, yes]", [True, False, None, True], pa.bool_(), object, "boolean"),
    "boolean, by words": Kind("categories: ['1', 'true', 'false']", [True, False, None], pa.bool_(), object, "boolean"),
    "boolean, by digits": Kind("categories: ['0', '1']", [True, False, None], pa.bool_(), object, "boolean"),
    "integer": Kind("low: 0, high: 100", [0, 7, None, 101], pa.int16(), "float64", "Int16"),
    "integer, all there": Kind("low: 0, high: 100", [0, 7, 101], pa.uint8(), "uint8", "UInt8"),
    "integer, as category": Kind("categories: ['7', '0', '01']", [0, 7, None, 1], pa.int64(), "float64", "Int64"),
    "big integer": Kind(
        f"categories: ['{BIG}', '{BIG + 1}', '{2**62 + 1}']", [BIG + 1, BIG, 2**62 + 1, None], pa.int64(), object,
        "Int64",
    ),
    "big integer, a number": Kind(f"low: 0, high: {BIG + 2}.0", [BIG + 1, -(2**60), None], pa.int64(), object, "Int64"),
    "float": Kind("low: -1, high: 1", [0.1, -0.0, 1e-300, 1e300, None], pa.float64(), "float64", "Float64"),
    "float, as category": Kind("categories: ['0.1', '2', '-0']", [0.1, 2.0, 0.0, None], pa.float64(), float, "Float64"),
    "decimal": Kind("low: 0, high: 1", [Decimal("0.10"), Decimal("1.25"), None], pa.decimal128(6, 2)),
    "decimal, as category": Kind(
        "categories: ['0.1', '2', '3.50']", [*map(Decimal, ["0.10", "2.00", "3.50"]), None], pa.decimal256(6, 2)
    ),
    "text": Kind("categories: [a, b c, é, 'no']", ["a", " b c ", "é", "no", None], pa.large_string(), "str", "string"),
    "numbers as text": Kind("low: 0, high: 30", ["24", " 7.5", "1e1", "+3", None], pa.string(), "str", "string"),
    "dictionary": Kind(
        "categories: [a, b, c]", ["a", "b", None, "c"], pa.dictionary(pa.int8(), pa.string()), "category", "category",
        pl.Categorical,
    ),
    "date": Kind(DATE, [datetime.date(2024, 5, 31), datetime.date(1999, 1, 1), None], pa.date32()),
    # Pandas has no dates but times, which are not written as days are.
    "date, as category": Kind(
        "categories: ['2024-05-31', '2024-06-01', none]", [datetime.date(2024, 5, 31), datetime.date(2024, 6, 1), None],
        pa.date64(),
    ),
    "time": Kind(DATE, [midnight(5), midnight(6), None], pa.timestamp("us"), "datetime64[us]", "datetime64[ns]"),
    "time, nanoseconds": Kind(DATE, [midnight(5), None], pa.timestamp("ns"), "datetime64[ns]", None, pl.Datetime("ns")),
    "time of a zone": Kind(
        DATE, [midnight(5, BERLIN), midnight(6, BERLIN), None], pa.timestamp("ms", "Europe/Berlin"),
        "datetime64[us, Europe/Berlin]", None, pl.Datetime("us", "Europe/Berlin"),
    ),
    "mostly null": Kind("low: 0, high: 100", [*NULLS, *FEW], pa.float32(), "float32", "Float32"),
    "null": Kind("low: 0, high: 100", NULLS, pa.null()),
    # Refused, each with its row and its column.
    "undeclared": Kind("categories: [a, b]", ["a", "c"], pa.string(), "str", "string"),
    "undeclared big integer": Kind(f"categories: ['7', '{BIG}']", [BIG, BIG + 1], pa.int64(), "int64", "Int64"),
    "number of Python's": Kind("categories: ['24', b]", ["24", "2_4"], pa.string(), "str", "string"),
    "digits of another script": Kind("low: 0, high: 100", ["24", "\uff12\uff14"], pa.string(), "str", "string"),
    "infinity as text": Kind("low: 0, high: 100", ["24", "Infinity"], pa.string(), "str", "string"),
    "NaN as text": Kind("low: 0, high: 100", ["24", "nan"], pa.string(), "str", "string"),
    "text as number": Kind("low: 0, high: 100", ["24", "x"], pa.string(), "str", "string"),
    "boolean as number": Kind("low: 0, high: 1", [True, False], pa.bool_(), bool, "boolean"),
    "no date": Kind(DATE, ["2024-05-31", "31/05/2024"], pa.string(), "str", "string"),
    # Text is read as a number where a number is meant; a date never is one. JSON and CSV have dates as text.
    "date as number": Kind(
        "low: 0, high: 100", [datetime.date(2024, 5, 31)], pa.date32(), not_in=frozenset({"csv", "jsonl"})
    ),
    "infinity": Kind("low: 0, high: 100", [1.0, float("inf")], pa.float64(), "float64", "Float64"),
    # Mappings and pandas have NaN where nothing is; Python's JSON has a word for it.
    "NaN": Kind("low: 0, high: 1", [1.0, float("nan")], pa.float64(), not_in=frozenset({"mappings", "pandas"})),
}  # fmt: skip
REFUSED = {name for place, name in enumerate(KINDS) if place >= list(KINDS).index("undeclared")}


def written(value: Any) -> Any:
    """As CSV has it."""
    return "" if value is None else value.isoformat() if isinstance(value, datetime.date) else str(value)


def in_json(value: Any) -> Any:
    if isinstance(value, Decimal):
        return float(value)
    return value.isoformat() if isinstance(value, datetime.date) else value


def csv_file(path: Path, records: list[dict[str, Any]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(records[0])
        rows.writerows([map(written, record.values()) for record in records])
    return path


def json_file(path: Path, records: list[dict[str, Any]]) -> Path:
    lines = [json.dumps({name: in_json(value) for name, value in record.items()}) for record in records]
    path.write_text("\n".join(lines) + "\n")
    return path


def table(kind: Kind, records: list[dict[str, Any]], chunk: int = 1000) -> pa.Table:
    column = [record["c"] for record in records]
    parts = [pa.array(column[i : i + chunk], kind.arrow) for i in range(0, len(column), chunk)]
    return pa.table({"c": pa.chunked_array(parts, kind.arrow), "y": pa.array([record["y"] for record in records])})


def parquet(folder: Path, kind: Kind, records: list[dict[str, Any]]) -> Path:
    pq.write_table(table(kind, records), folder / "people.parquet", row_group_size=3)
    return folder / "people.parquet"


def pandas(kind: Kind, records: list[dict[str, Any]], dtype: Any) -> pd.DataFrame:
    index = pd.Index(range(len(records), 0, -1))
    column = pd.Series([record["c"] for record in records], dtype=dtype, index=index)
    return pd.DataFrame({"c": column, "y": pd.Series([record["y"] for record in records], index=index)})


def polars(kind: Kind, records: list[dict[str, Any]]) -> pl.DataFrame:
    column = [record["c"] for record in records]
    series = pl.Series("c", column, dtype=kind.polars) if kind.polars else pl.Series("c", column)
    return pl.DataFrame({"c": series, "y": [record["y"] for record in records]})


Maker = Callable[[Path, Kind, list[dict[str, Any]]], Any]
CONTAINERS: dict[str, Maker] = {
    "mappings": lambda folder, kind, records: records,
    "csv": lambda folder, kind, records: csv_file(folder / "people.csv", records),
    "jsonl": lambda folder, kind, records: json_file(folder / "people.jsonl", records),
    "parquet": parquet,
    "pandas": lambda folder, kind, records: pandas(kind, records, kind.pandas),
    "pandas, nullable": lambda folder, kind, records: pandas(kind, records, kind.nullable or kind.pandas),
    "pandas, arrow": lambda folder, kind, records: table(kind, records).to_pandas(types_mapper=pd.ArrowDtype),
    "polars": lambda folder, kind, records: polars(kind, records),
    "arrow chunks": lambda folder, kind, records: table(kind, records, 1),
}


def outcome(source: Any, task: Task) -> tuple[Any, ...]:
    """The bytes of all codes; or what is refused, from the row on."""
    try:
        blocks = list(FileSource(source, task).blocks(size=5))
    except UserError as error:
        return (str(error).partition(", row ")[2],)
    x, y, cells = (np.concatenate([getattr(block, name) for block in blocks]) for name in ("x", "y", "cells"))
    return x.tobytes(), y.tobytes(), cells.tolist()


@pytest.mark.parametrize("name", KINDS)
def test_the_same_values_are_coded_or_refused_alike(name: str, tmp_path: Path) -> None:
    kind = KINDS[name]
    task = Task.parse(
        f"{{name: t, privacy: {{guarantee: {{gdp: {{mu: 1.0}}}}}}, features: [{{name: c, {kind.feature}}}], "
        'target: {name: y, kind: binary, positive: "yes", negative: "no"}}'
    ).with_simulated(True)
    records = [{"c": value, "y": "yes" if row % 3 else "no"} for row, value in enumerate(kind.values)]
    records += random.Random(1).choices(records, k=7)
    skipped = {*kind.not_in, *({"pandas, nullable", "pandas, arrow"} if "pandas" in kind.not_in else ())}
    found = {
        container: outcome(make(tmp_path, kind, records), task)
        for container, make in CONTAINERS.items()
        if container not in skipped
    }
    first = next(iter(found.values()))
    assert {container: each == first for container, each in found.items()} == dict.fromkeys(found, True)
    row = 1 if name in ("boolean as number", "date as number") else 2
    assert first[0].startswith(f"{row}, column 'c': ") if name in REFUSED else len(first) == 3
    if name in REFUSED or {"jsonl", "mappings"} & skipped:
        return
    # A learner's records are coded as a file's are.
    encoder = Encoder(task)
    alone = [list(encoder.transform_one({"c": record["c"]}).values()) for record in records]
    assert np.column_stack([alone, np.ones(len(records))]).tobytes() == first[0]
    for make in ("pandas", "pandas, nullable", "pandas, arrow", "polars", "arrow chunks"):
        frame = CONTAINERS[make](tmp_path, kind, records)
        many = encoder.transform_many(frame)
        assert type(many) is type(frame)
        assert np.array(many.to_pandas() if hasattr(many, "to_pandas") else many).tolist() == alone
