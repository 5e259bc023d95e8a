"""Raw values are read alike wherever they come from, and no record's coding depends on another record."""

import datetime
import math
from decimal import Decimal
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from murk import Task
from murk.errors import UserError
from murk.task.coding import Cell, day_number, exact_number, read_number
from murk.task.containers import column_array, python_values

FAR = 2_932_902  # days from 1970-01-01 to 10000-01-06


@pytest.mark.parametrize(
    ("value", "number"),
    [
        ("24", 24.0), (" 24 ", 24.0), ("+24", 24.0), ("-.5", -0.5), ("5.", 5.0), ("1e3", 1000.0), ("1E-2", 0.01),
        ("\xa024", 24.0), ("True", 1.0), (False, 0.0), (Decimal("2.50"), 2.5), (Fraction(1, 2), 0.5),
        (np.float32(0.5), 0.5), (np.int8(3), 3.0), (np.array(3.0), 3.0), ("1e999", math.inf),
        *((text, None) for text in ("2_4", "1_000.5", "\uff12\uff14", "\u0662\u0664", "inf", "-Infinity", "0x18")),
        *((text, None) for text in ("1,5", "2 4", "nano", "1e", ".", "--1", "1_")),
        *((odd, None) for odd in (b"24", [24], np.array([24.0]), {}, np.timedelta64(5, "D"), datetime.timedelta(1))),
        *((day, None) for day in (np.datetime64("2024-01-01", "ns"), pd.Timestamp("2024-01-01"), datetime.date.min)),
        *((absent, math.nan) for absent in (None, "", " ", "nan", "NaN", math.nan, np.float32("nan"), pd.NA, pd.NaT)),
    ],
)  # fmt: skip
def test_numbers(value: Any, number: float | None) -> None:
    """Digits are decimal and ASCII: what Python alone takes for a number is none."""
    found = read_number(value)
    assert found == number or (found != found and number != number)
    assert found is None or type(found) is float


def test_integers_that_floats_do_not_hold_are_compared_exactly() -> None:
    big = 2**53
    assert exact_number(str(big)) == exact_number(big) == exact_number(float(big)) == exact_number(Decimal(big))
    for other in (str(big + 1), big + 1, Decimal(big + 1), np.int64(big + 1), f"{big + 1}.0"):
        assert exact_number(other) == big + 1 != exact_number(big)
    assert exact_number(Decimal("0.10")) == exact_number("0.1") == exact_number(0.1)
    assert exact_number("1" + "0" * 5000) is None


HEAD = "name: t\nprivacy: {guarantee: {gdp: {mu: 1.0}}}\ntarget: {name: y, kind: binary, positive: 'yes'}\nfeatures:\n"
CODING = Task.parse(
    HEAD
    + """
  - {name: number, low: -2, high: 2}
  - {name: category, categories: ["0", "1", "true", "24", "a", "2024-05-31", "9007199254740992"]}
  - {name: date, kind: date, as: [weekday, month]}
"""
).coding


class Text(str):
    """A text of another type."""


EVENING = datetime.datetime(2024, 5, 31, 23, 30, tzinfo=datetime.UTC)
ZONES = [EVENING.astimezone(ZoneInfo(name)) for name in ("UTC", "Asia/Tokyo", "America/New_York")]
EQUAL: list[Any] = [
    True, 1, 1.0, "1", "1.0", "true", Text("1"), np.True_, np.int64(1), np.float32(1), Decimal(1), Fraction(1),
    False, 0, 0.0, -0.0, "0", "-0", np.float64(-0.0), Decimal("-0"),
    24, "24", "2_4", "\uff12\uff14", 24.0, Decimal("24.00"), Text("a"), "a", "A", b"a", np.str_("a"),
    2**53, 2**53 + 1, float(2**53), str(2**53 + 1), Decimal(2**53 + 1),
    *ZONES, *(zoned.isoformat() for zoned in ZONES), *map(pd.Timestamp, ZONES), EVENING.replace(tzinfo=None),
    datetime.date(2024, 5, 31), np.datetime64("2024-05-31"), "2024-05-31", datetime.datetime(2024, 5, 31),
    None, math.nan, pd.NaT, np.datetime64("NaT", "D"), [1], np.timedelta64(1, "D"),
]  # fmt: skip


def coded(values: list[Any]) -> tuple[list[bytes], list[list[int]]]:
    block = CODING.encode(dict.fromkeys((*CODING.columns, "y"), values))
    rows = [x.tobytes() + y.tobytes() for x, y in zip(block.x, block.y, strict=True)]
    return rows, block.cells.tolist()


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(EQUAL), min_size=1, max_size=12))
def test_a_record_is_coded_alike_alone_and_after_any_others(values: list[Any]) -> None:
    """Values that are equal may be coded differently; a memo by equality would give one the other's code."""
    rows, cells = coded(values)
    for value, row, cell in zip(values, rows, cells, strict=True):
        assert coded([value]) == ([row], [cell])
        one = CODING.encode_record(dict.fromkeys((*CODING.columns, "y"), value))
        assert one.x.tobytes() + np.float64(one.y).tobytes() == row


def test_equal_times_are_of_different_days() -> None:
    """The fault itself, whatever hypothesis draws: Friday in London and New York is Saturday in Tokyo."""
    column = {"number": [None] * 3, "category": [None] * 3, "date": ZONES}
    names = CODING.encode(column, target=False).x[:, list(CODING.names).index("date=Saturday")]
    assert names.tolist() == [-1.0, 1.0, -1.0]


def test_a_boolean_is_true_before_it_is_one() -> None:
    """In every container: CSV has it as text, and there it is no 1."""
    one, true = (list(CODING.names).index(f"category={name}") for name in ("1", "true"))
    for values in ([True], ["true"], ["TRUE"], np.array([True]), [True, 1], pd.Series([True], dtype="boolean")):
        x = CODING.encode({"number": values, "category": values, "date": values}, target=False).x[0]
        assert (x[0], x[one], x[true]) == (0.5, -1.0, 1.0)


@pytest.mark.parametrize(
    "value",
    [
        np.datetime64(FAR, "D"), np.datetime64(FAR * 86_400, "s"), pd.Timestamp(np.datetime64(FAR * 86_400, "s")),
        "10000-01-06", "+10000-01-06", "10000-01-06T12:00:00Z", pa.array([FAR], pa.date32()),
        pa.array([FAR * 86_400_000], pa.timestamp("ms", "Europe/Berlin")),
        pl.Series([FAR], dtype=pl.Int32).cast(pl.Date), pl.Series([FAR * 86_400_000]).cast(pl.Datetime("ms", "UTC")),
    ],
    ids=str,
)  # fmt: skip
def test_days_beyond_the_year_9999_are_later_days(value: Any) -> None:
    [value] = python_values(value) if hasattr(value, "__len__") and not isinstance(value, str) else [value]
    assert day_number(value) == (datetime.date(2000, 1, 6).toordinal() + 20 * 146_097, Cell.FINE)


@pytest.mark.parametrize(
    ("value", "ordinal"),
    [
        ("0001-01-01", 1), ("0000-12-31", 0), ("-0001-12-31", -366), (np.datetime64("-0001-12-31"), -366),
        (np.datetime64("0000-12-31"), 0), (pl.Series([-719_163], dtype=pl.Int32).cast(pl.Date), 0),
    ],
    ids=str,
)  # fmt: skip
def test_days_before_the_year_1_are_earlier_days(value: Any, ordinal: int) -> None:
    [value] = python_values(value) if isinstance(value, pl.Series) else [value]
    assert day_number(value) == (ordinal, Cell.FINE)


def test_far_days_are_clamped_and_have_a_weekday_and_a_month() -> None:
    """The calendar repeats every 400 years."""
    task = HEAD + "  - {name: d, kind: date, low: 2024-01-01, high: 2024-12-31, as: [number, weekday, month]}"
    coding = Task.parse(task).coding
    far, near = (coding.encode({"d": [value]}, target=False) for value in (np.datetime64(FAR, "D"), "2000-01-06"))
    assert (far.x[0, 0], near.x[0, 0]) == (1.0, -1.0)
    assert far.x[0, 1:].tolist() == near.x[0, 1:].tolist()
    assert far.cells[0, 0] == near.cells[0, 0] == Cell.CLAMPED


@pytest.mark.parametrize("text", ["2024-05-31 23:60", "2024-05-31T", "2024-05-31 noon"])
def test_times_are_read_alike_by_all_versions_of_python(text: str) -> None:
    assert day_number(text) == (0, Cell.NOT_A_DATE)


def test_nanoseconds_before_1970_are_of_the_day_they_are_in() -> None:
    last = pa.chunked_array([pa.array([-1, None], pa.timestamp("ns"))])
    assert python_values(last) == [datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999), None]


@pytest.mark.parametrize(
    "column", [pa.array([0], pa.timestamp("us", "Mars/Olympus")), pa.array([0], pa.timestamp("ns", "Mars/Olympus"))]
)
def test_a_zone_that_is_unknown_is_named(column: Any) -> None:
    with pytest.raises(UserError, match="column 'date': this machine does not know the time zone 'Mars/Olympus'"):
        CODING.encode({"number": [1], "category": [1], "date": column}, target=False)


COLUMNS: dict[str, Any] = {
    "list": [1, 0, 1],
    "column": np.array([[1], [0], [1]]),
    "rows": [[1], [0], [1]],
    "pandas": pd.Series([1, 0, 1], index=[9, 9, 0]),
    "pandas frame": pd.DataFrame({"y": [1, 0, 1]}),
    "pandas index": pd.Index([1, 0, 1]),
    "pandas array": pd.array([1, 0, 1], dtype="Int64"),
    "pandas arrow": pd.Series([1, 0, 1], dtype="int64[pyarrow]"),
    "polars": pl.Series([1, 0, 1]),
    "polars frame": pl.DataFrame({"y": [1, 0, 1]}),
    "arrow": pa.array([1, 0, 1]),
    "arrow chunks": pa.chunked_array([[1], [0, 1]]),
    "arrow table": pa.table({"y": [1, 0, 1]}),
    "generator": "generator",
}


@pytest.mark.parametrize("name", COLUMNS)
def test_one_column_of_any_container(name: str) -> None:
    column = (value for value in [1, 0, 1]) if name == "generator" else COLUMNS[name]
    array = column_array(column)
    assert type(array) is np.ndarray
    assert (array.ndim, array.tolist()) == (1, [1, 0, 1])


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (np.zeros((3, 2)), r"\(3, 2\)"), (np.zeros((1, 3)), r"\(1, 3\)"), (np.zeros(()), r"\(\)"),
        ([[1, 2], [3, 4]], r"\(2, 2\)"), (pd.DataFrame({"a": [1], "b": [1]}), r"\(1, 2\)"), ("yes", "str"),
        (pl.DataFrame({"a": [1], "b": [1]}), r"\(1, 2\)"), (pa.table({"a": [1], "b": [1]}), r"\(1, 2\)"), (5, "int"),
    ],
)  # fmt: skip
def test_more_than_one_column_is_refused_with_its_shape(column: Any, words: str) -> None:
    with pytest.raises(UserError, match=f"y (has the shape|is of the type) {words}"):
        column_array(column, "y")


UNSUITABLE: dict[str, tuple[Any, str]] = {
    "numpy bytes": (np.array([b"yes"]), "bytes"),
    "numpy complex": (np.array([[1j]]), "complex numbers"),
    "numpy durations": (np.array([1], "m8[s]"), "a duration"),
    "pandas durations": (pd.Series([pd.Timedelta(1)]), "a duration"),
    "pandas arrow": (pd.Series([b"yes"], dtype=pd.ArrowDtype(pa.binary())), "bytes"),
    "polars bytes": (pl.Series([b"yes"]), "bytes"),
    "polars struct": (pl.DataFrame({"y": [{"a": 1}]}), "a struct"),
    "polars list": (pl.Series([[1]]), "a list"),
    "arrow bytes": (pa.chunked_array([[b"yes"]]), "bytes"),
    "arrow dictionary": (pa.array([b"yes"]).dictionary_encode(), "bytes"),
    "arrow time": (pa.table({"y": pa.array([1], pa.time32("s"))}), "a time of day"),
}


@pytest.mark.parametrize("name", UNSUITABLE)
def test_a_type_that_holds_no_values_is_refused(name: str) -> None:
    """Each of its values would count as missing, where noise is real without a word."""
    column, words = UNSUITABLE[name]
    with pytest.raises(UserError, match=f"y: its type is {words}, and a record's values are numbers, text"):
        column_array(column, "y")


def test_masked_numbers_are_missing() -> None:
    assert column_array(np.ma.array([1, 2], mask=[False, True])).tolist() == [1, None]
    assert np.isnan(column_array(np.ma.array([1.0, 2.0], mask=[False, True]))[1])


def test_coefficients_of_several_classes_have_different_names() -> None:
    text = HEAD.replace("kind: binary, positive: 'yes'", "kind: classes, classes: [a, 'a:b', c]")
    with pytest.raises(
        UserError, match=r"target.classes\[1\]: its coefficient 'a:b:x' would have the name of one of the"
    ):
        Task.parse(text + "  - {name: x, low: 0, high: 1}\n  - {name: 'b:x', low: 0, high: 1}")
    Task.parse(text + "  - {name: x, low: 0, high: 1}\n  - {name: 'c:x', low: 0, high: 1}")


def test_canonically_equal_texts_are_the_same_category_and_column() -> None:
    composed, taken_apart = "Zo\u00eb", "Zoe\u0308"
    text = """
    name: t
    features: [{name: %s, categories: [%s, Max]}, {name: b, low: 0, high: 1}]
    target: {name: y, kind: binary, positive: %s, negative: Max}
    privacy: {guarantee: {gdp: {mu: 1.0}}}
    """
    for declared, written in ((composed, taken_apart), (taken_apart, composed)):
        coding = Task.parse(text % (declared, declared, declared)).coding
        coded = coding.encode_record({written: written, "b": 1, "y": written})
        assert (coded.x.tolist(), coded.y, coded.missing) == ([-1.0, 1.0, 1.0], 1.0, 0)
    with pytest.raises(UserError, match="given twice"):
        Task.parse((text % ("a", f"{composed}, {taken_apart}", "Max")).replace("negative: Max", "negative: no"))


def test_labels_are_part_of_the_task_and_of_its_own_values() -> None:
    text = """
    name: t
    features: [{name: a, low: 0, high: 1, label: Age, description: In years.}, {name: s, categories: [f, m]%s}]
    target: {name: y, kind: binary, positive: "yes", negative: "no"}
    privacy: {guarantee: {gdp: {mu: 1.0}}}
    """
    plain, worded = Task.parse(text % ""), Task.parse(text % ", labels: {f: female}")
    # Who rewords what people are asked makes another task.
    assert plain.hash != worded.hash
    assert Task.from_document(worded.document()).features[1].labels == {"f": "female"}
    with pytest.raises(UserError, match="is not one of the values"):
        Task.parse(text % ", labels: {w: woman}")
