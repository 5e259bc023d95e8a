"""Dates and units: coding, one by one and in blocks, units of coefficients, and what is refused."""

import datetime
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from murk import Task
from murk.audit.neighbours import Box
from murk.errors import UserError
from murk.populations import FileSource
from murk.task.coding import MONTHS, WEEKDAYS, Cell, day_number

HEAD = "name: visits\nfeatures:\n  - {name: asked, kind: date, "
TAIL = "}\ntarget: {name: came, kind: binary, positive: yes, negative: no}\nprivacy: {guarantee: {gdp: {mu: 1.0}}}\n"
NUMBER = "low: 2024-01-01, high: 2024-01-11"


def parse(keys: str) -> Task:
    return Task.parse(HEAD + keys + TAIL).with_simulated(True)


def coded(task: Task, *values: Any) -> tuple[list[list[float]], list[int]]:
    """Features and cells of dates, the same one by one and in a block."""
    block = task.coding.encode({"asked": list(values)}, target=False)
    for row, value in enumerate(values):
        one = task.coding.encode_record({"asked": value}, target=False)
        assert one.x.tolist() == block.x[row].tolist()
        assert (one.clamped, one.missing) == (block.clamped[row], block.missing[row])
    return block.x[:, :-1].tolist(), block.cells[:, 0].tolist()


SIXTH = (
    "2024-01-06", " 2024-01-06 ", "2024-01-06T23:59", "2024-01-06 23:59:59+02:00", datetime.date(2024, 1, 6),
    datetime.datetime(2024, 1, 6, 23), np.datetime64("2024-01-06"), np.datetime64("2024-01-06T23:59:59.123456789"),
    pd.Timestamp("2024-01-06 23:59"),
)  # fmt: skip


def test_a_number_of_days() -> None:
    task = parse(NUMBER)
    assert task.coding.names == ("asked", "intercept")
    x, cells = coded(task, *SIXTH)
    assert x == [[0.0]] * len(SIXTH)
    assert cells == [Cell.FINE] * len(SIXTH)
    x, cells = coded(task, "2024-01-01", "2024-01-11", "1999-12-31", "2024-01-12")
    assert x == [[-1.0], [1.0], [-1.0], [1.0]]
    assert cells == [Cell.FINE, Cell.FINE, Cell.CLAMPED, Cell.CLAMPED]


def test_what_is_no_date() -> None:
    absent = (None, "", " ", float("nan"), np.datetime64("NaT"), pd.NaT, pd.NA)
    x, cells = coded(parse(NUMBER), *absent)
    assert (x, cells) == ([[0.0]] * len(absent), [Cell.MISSING] * len(absent))
    wrong = ("06/01/2024", "2024-13-01", "2024-02-30", "20240106", "2024-W01-6", "2024-01-06x", 45_297, True, [1], 1.5)
    x, cells = coded(parse(NUMBER), *wrong)
    assert (x, cells) == ([[0.0]] * len(wrong), [Cell.NOT_A_DATE] * len(wrong))


def test_weekday_and_month() -> None:
    both = parse("as: [weekday, month]")
    names = [f"asked={name}" for name in (*WEEKDAYS[1:], *MONTHS[1:])]
    assert both.coding.names == (*names, "intercept")
    # 2000 years of days: the weekday and the month are those of the standard library.
    days = [datetime.date(1, 1, 1) + datetime.timedelta(days=n) for n in range(0, 730_000, 997)]
    x = np.array(coded(both, *days)[0])
    for day, row in zip(days, x, strict=True):
        expected = {f"asked={day:%A}", f"asked={day:%B}"} & set(names)
        assert {name for name, value in zip(names, row, strict=True) if value == 1.0} == expected
    assert coded(both, None)[0] == [[0.0] * 17]


def test_all_at_once() -> None:
    task = parse(f"{NUMBER}, as: [number, weekday], unit: week")
    assert task.coding.names[:3] == ("asked", "asked=Tuesday", "asked=Wednesday")
    x, cells = coded(task, "2024-01-02", "2024-01-16")
    assert x == [[-0.8, 1.0, *[-1.0] * 5], [1.0, 1.0, *[-1.0] * 5]]
    assert cells == [Cell.FINE, Cell.CLAMPED]
    # Ten days are 2 in coded units; a week is 7 of them.
    assert task.coding.unit_factors[0] == pytest.approx(2 * 7 / 10)
    assert task.coding.unit_labels[:2] == ("asked: one week later", "asked: Tuesday against Monday")


@pytest.mark.parametrize(
    "column",
    [
        pd.DataFrame({"asked": pd.to_datetime(["2024-01-01T00:00", None, "2024-01-11T10:00"])}),
        pl.DataFrame({"asked": [datetime.date(2024, 1, 1), None, datetime.date(2024, 1, 11)]}),
        pa.table({"asked": pa.array(["2024-01-01", None, "2024-01-11"]).cast(pa.date32())}),
        pa.table({"asked": pa.array([datetime.datetime(2024, 1, 1), None, datetime.datetime(2024, 1, 11)])}),
        [{"asked": "2024-01-01"}, {"asked": None}, {"asked": "2024-01-11"}],
    ],
    ids=["pandas", "polars", "arrow dates", "arrow times", "text"],
)
def test_from_sources(column: Any) -> None:
    source = column
    if isinstance(column, pd.DataFrame):
        source = column.assign(came=[True, False, True])
    elif isinstance(column, pl.DataFrame):
        source = column.with_columns(came=pl.Series([True, False, True]))
    elif isinstance(column, pa.Table):
        source = column.append_column("came", pa.array([True, False, True]))
    else:
        source = [{**record, "came": "yes"} for record in column]
    assert next(FileSource(source, parse(NUMBER)).blocks()).x[:, 0].tolist() == [-1.0, 0.0, 1.0]
    number = Task.parse(HEAD.replace("kind: date, ", "low: 0, high: 1") + TAIL)
    with pytest.raises(UserError, match=r"row 1, column 'asked': (a date, not a number|the value is not a finite)"):
        list(FileSource(source, number, strict=True).blocks())


def test_a_wrong_date_in_a_source_is_named_by_its_place() -> None:
    records = [{"asked": "2024-01-01", "came": "yes"}, {"asked": "secret", "came": "no"}]
    with pytest.raises(UserError, match=r"row 2, column 'asked': the value is not a date as in 2024-05-31"):
        list(FileSource(records, parse(NUMBER)).blocks())


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("low: 2024-01-01", r"line 3: features\[0\]\.high: missing, and required of a date that is coded as a number"),
        ("low: 2024-01-01, high: 2023-01-01", r"low 2024-01-01 is not before high 2023-01-01"),
        ("low: 2024-02-30, high: 2024-03-01", r"low: '2024-02-30' is not a date; write it as in 2024-05-31"),
        ("low: 0, high: 1", r"low: 0 is not a date"),
        ("as: weekday, low: 2024-01-01", r"low: has no effect where the date is not coded as a number"),
        ("as: [weekday, weekday]", r"'weekday' is given twice"),
        ("as: hour", r"'hour' is not one of 'number', 'weekday' or 'month'"),
        ("as: []", r"at least 1"),
        (f"{NUMBER}, unit: 7", r"7 is not one of 'day', 'week', 'month' or 'year'"),
        (f"{NUMBER}, units: day", r"units: unknown key; did you mean 'unit'"),
    ],
)
def test_refusals(keys: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        parse(keys)


def test_other_kinds_of_feature_are_refused() -> None:
    with pytest.raises(UserError, match=r"kind: 'number' is not a kind of feature; write kind: date for dates"):
        Task.parse(HEAD.replace("kind: date", "kind: number") + "low: 0, high: 1" + TAIL)


def test_a_task_with_dates_comes_back() -> None:
    task = parse(f"{NUMBER}, as: [number, month], unit: year")
    again = Task.from_document(task.document())
    assert (again, again.hash, again.coding.names) == (task, task.hash, task.coding.names)
    assert task.with_protocol("moments").features == task.features


def test_the_audit_knows_days_of_all_codes() -> None:
    box = Box.of(parse(f"{NUMBER}, as: [number, weekday, month]"))
    x = parse(f"{NUMBER}, as: [number, weekday, month]").coding.encode({"asked": box.choices[0]}, target=False).x
    assert x.min(axis=0)[:-1].tolist() == [-1.0] * 18
    assert x.max(axis=0).tolist() == [1.0] * 19


class TestUnit:
    TEXT = HEAD.replace("kind: date, ", "low: 0, high: 200000")

    def test_coefficients_are_per_unit(self) -> None:
        plain, per = (Task.parse(self.TEXT + more + TAIL) for more in ("", ", unit: 10000"))
        assert per.coding.unit_factors[0] == pytest.approx(0.1)
        assert plain.coding.unit_factors[0] == pytest.approx(1e-5)
        assert (plain.coding.unit_labels[0], per.coding.unit_labels[0]) == (
            "asked: one unit more",
            "asked: 10,000 more",
        )
        assert (
            plain.coding.encode_record({"asked": 5e4}).x.tolist() == per.coding.encode_record({"asked": 5e4}).x.tolist()
        )

    def test_enters_the_hash_where_it_is_given_alone(self) -> None:
        plain, null, per = (Task.parse(self.TEXT + more + TAIL) for more in ("", ", unit: null", ", unit: 10000"))
        assert plain.hash == null.hash != per.hash
        assert b"unit" not in plain.document()
        assert Task.from_document(per.document()).coding.unit_factors.tolist() == per.coding.unit_factors.tolist()

    @pytest.mark.parametrize("unit", ["0", "-1", "big"])
    def test_refusals(self, unit: str) -> None:
        with pytest.raises(UserError, match="unit"):
            Task.parse(self.TEXT + f", unit: {unit}" + TAIL)


@pytest.mark.parametrize(
    "value",
    [
        "2024-06-15T23:30:00Z",
        "2024-06-15t23:30:00z",
        "2024-06-15 23:30:00 UTC",
        "2024-06-15 23:30:00.123456 UTC",
        "2024-06-15 23:30:00.000 Europe/Berlin",
        "2024-06-15T23:59:60Z",
        "2024-06-15T24:00:00",
        "2024-06-15T23:30:00+02:00[Europe/Berlin]",
        "2024-06-15T23:30:00-03:00[America/Argentina/Buenos_Aires][u-ca=gregory]",
        "2024-06-15[u-ca=hebrew]",
        "2024-06-15 23:30:00 +0000 UTC",
        "2024-06-15 23:30:00.5 +0200 CEST",
        pd.Period("2024-06-15", "D"),
        pd.Period("2024-06-15 13:00", "h"),
        np.array("2024-06-15T13", dtype="datetime64[h]"),
    ],
    ids=str,
)
def test_days_in_forms_that_tools_write(value: object) -> None:
    assert day_number(value) == (datetime.date(2024, 6, 15).toordinal(), Cell.FINE)


@pytest.mark.parametrize(
    "value",
    [
        "2024-06-15T24:30:00",
        "2024-06-15T23:59:61Z",
        "2024-06-15 utc+2",
        "2024-06-15 23:30:00 CEST",
        "2024-06-15T10[a b]",
        pd.Period("2024-06", "M"),
    ],
    ids=str,
)
def test_what_names_no_single_day(value: object) -> None:
    assert day_number(value)[1] == Cell.NOT_A_DATE
