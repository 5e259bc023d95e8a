"""The coding of records: exact at the bounds, the same one by one and in blocks, never refusing a value."""

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from murk.errors import UserError
from murk.task.coding import Cell, Coding
from murk.task.task import Task
from tests.stream.tasks import HUBER, LOGISTIC, SOFTMAX

CODING = Task.parse(LOGISTIC).coding
CLASSES = Task.parse(SOFTMAX).coding
REAL = Task.parse(HUBER).coding
RECORD = {"age": 28, "same_sex": "yes", "origin": "LGA", "third_child": "no"}


def coding_of(categories: str, target: str = "kind: binary, positive: yes, negative: no") -> Coding:
    text = LOGISTIC.replace("[no, yes]", categories)
    text = text.replace("kind: binary, positive: yes, negative: no", target)
    return Task.parse(text).coding


def test_layout() -> None:
    assert CODING.columns == ("age", "same_sex", "origin")
    assert CODING.target == "third_child"
    assert CODING.names == ("age", "same_sex", "origin=JFK", "origin=LGA", "intercept")
    assert CODING.size == 5
    assert CODING.low.tolist() == [-1, -1, -1, -1, 1]
    assert CODING.high.tolist() == [1, 1, 1, 1, 1]


def test_values_are_coded() -> None:
    coded = CODING.encode_record(RECORD)
    assert coded.x.tolist() == [0.0, 1.0, -1.0, 1.0, 1.0]
    assert (coded.y, coded.clamped, coded.missing) == (0.0, 0, 0)
    assert CODING.encode_record(RECORD | {"origin": "EWR"}).x.tolist() == [0.0, 1.0, -1.0, -1.0, 1.0]
    assert CODING.encode_record(RECORD | {"third_child": "yes"}).y == 1.0
    assert CLASSES.encode_record(RECORD | {"third_child": "more"}).y == 2.0
    assert REAL.encode_record(RECORD | {"third_child": 39}).y == 0.5


def test_values_outside_are_clamped_and_counted() -> None:
    for age, coded_age in ((20, -1.0), (36, 1.0), (-1e308, -1.0), (10**300, 1.0)):
        coded = CODING.encode_record(RECORD | {"age": age})
        assert (coded.x[0], coded.clamped, coded.missing) == (coded_age, 1, 0)
    coded = REAL.encode_record(RECORD | {"third_child": 53})
    assert (coded.y, coded.clamped) == (1.0, 1)


@pytest.mark.parametrize("age", [None, "", "  ", math.nan, np.nan, "nan", pd.NA, pd.NaT])
def test_missing_numbers_are_zero(age: Any) -> None:
    coded = CODING.encode_record(RECORD | {"age": age})
    assert coded.x.tolist() == [0.0, 1.0, -1.0, 1.0, 1.0]
    assert coded.missing == 1
    block = CODING.encode({name: [value] for name, value in (RECORD | {"age": age}).items()})
    assert block.cells[0, 0] == Cell.MISSING


@pytest.mark.parametrize("age", ["old", math.inf, -math.inf, "inf", 10**400, [28], {}, object(), 1j, "1e999"])
def test_what_is_no_number_is_zero(age: Any) -> None:
    coded = CODING.encode_record(RECORD | {"age": age})
    assert (coded.x[0], coded.missing, coded.clamped) == (0.0, 1, 0)
    block = CODING.encode({name: [value] for name, value in (RECORD | {"age": age}).items()})
    assert (block.x[0, 0], block.cells[0, 0]) == (0.0, Cell.NOT_A_NUMBER)


@pytest.mark.parametrize("value", [None, "", math.nan, "maybe", 2, [1], {}, object(), True, "nan", b"yes", pd.NA])
def test_undeclared_and_missing_categories_are_zero_in_all_their_features(value: Any) -> None:
    coded = CODING.encode_record(RECORD | {"origin": value})
    assert coded.x.tolist() == [0.0, 1.0, 0.0, 0.0, 1.0]
    assert coded.missing == 1
    coded = CLASSES.encode_record(RECORD | {"third_child": value})
    assert math.isnan(coded.y)
    assert coded.missing == 1


@pytest.mark.parametrize("value", [np.timedelta64(1, "D"), [1], {}])
def test_what_cannot_be_hashed_is_no_category(value: Any) -> None:
    """Numpy's duration without a unit raises a ValueError where others raise a TypeError."""
    record = RECORD | {"origin": value, "third_child": value}
    coded = CODING.encode_record(record)
    assert coded.x.tolist() == [0.0, 1.0, 0.0, 0.0, 1.0]
    assert (math.isnan(coded.y), coded.missing) == (True, 2)
    block = CODING.encode({name: [RECORD[name], record[name]] for name in record})
    assert block.x[1].tolist() == coded.x.tolist()
    assert block.cells[:, 2].tolist() == [Cell.FINE, Cell.UNDECLARED]


def test_keys_that_are_not_there_are_missing() -> None:
    coded = CODING.encode_record({})
    assert coded.x.tolist() == [0.0, 0.0, 0.0, 0.0, 1.0]
    assert math.isnan(coded.y)
    assert (coded.clamped, coded.missing) == (0, 4)
    assert CODING.encode_record({}, target=False).missing == 3


@pytest.mark.parametrize(
    ("categories", "value", "coded"),
    [
        ("[no, yes]", " yes ", 1.0),
        ("[no, yes]", True, 1.0),
        ("[no, yes]", np.False_, -1.0),
        ("[no, yes]", "True", 1.0),
        ("[false, true]", "FALSE", -1.0),
        ("[false, true]", True, 1.0),
        ("[false, true]", "yes", 0.0),
        ("[off, on]", True, 1.0),
        ("['0', '1']", 1, 1.0),
        ("['0', '1']", "1.0", 1.0),
        ("['0', '1']", 0.0, -1.0),
        ("['0', '1']", np.int64(1), 1.0),
        ("['0', '1']", True, 1.0),
        ("['1', '1.0']", "1.0", 1.0),
        ("['1', '1.0']", 1, -1.0),
        ("['01', '2']", "1", -1.0),
        ("[a, b]", True, 0.0),
        ("[a, b]", "A", 0.0),
    ],
)
def test_what_matches_a_category(categories: str, value: Any, coded: float) -> None:
    coding = coding_of(categories)
    assert coding.encode_record({"same_sex": value}).x[1] == coded
    assert coding.encode({"age": [None], "same_sex": [value], "origin": [None]}, target=False).x[0, 1] == coded


def test_binary_target_without_a_negative_takes_every_other_value_for_it() -> None:
    coding = coding_of("[no, yes]", "kind: binary, positive: yes")
    values = ["yes", "no", "maybe", None, "", True]
    encoded = [coding.encode_record({"third_child": value}).y for value in values]
    assert encoded[:3] == [1.0, 0.0, 0.0]
    assert np.isnan(encoded[3:5]).all()
    assert encoded[5] == 1.0
    strict = [CODING.encode_record({"third_child": value}).y for value in values]
    assert np.isnan(strict[2])


@settings(deadline=None)
@given(
    st.floats(allow_nan=False, allow_infinity=False, width=32),
    st.floats(min_value=1e-30, max_value=1e30),
    st.lists(st.floats(0, 1), max_size=10),
)
def test_the_bounds_are_exactly_one_and_the_coding_never_leaves_them(
    low: float, width: float, parts: list[float]
) -> None:
    high = low + width
    if high == low:
        return
    coding = Task.parse(LOGISTIC.replace("low: 21, high: 35", f"low: {low!r}, high: {high!r}")).coding
    values = sorted(min(low + part * (high - low), high) for part in parts)
    values = [low, *values, high]
    other = [None] * len(values)
    x = coding.encode({"age": values, "same_sex": other, "origin": other}, target=False).x[:, 0]
    assert (x[0], x[-1]) == (-1.0, 1.0)
    assert (np.diff(x) >= 0).all()


RAW = st.one_of(
    st.none(),
    st.integers(),
    st.floats(),
    st.booleans(),
    st.text(max_size=6),
    st.decimals(allow_nan=False, places=2, min_value=-99, max_value=99),
    st.sampled_from(["yes", "no", "EWR", "JFK", "LGA", "21", " 35 ", "nan", "1e999", "", "none", "more"]),
    st.sampled_from([21, 35, 52, np.float32(30), np.int8(22), np.str_("yes"), Fraction(57, 2), pd.NA, pd.NaT]),
    st.lists(st.integers(), max_size=2),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(RAW, RAW, RAW, RAW), max_size=8), st.sampled_from([CODING, CLASSES, REAL]))
def test_blocks_and_single_records_agree_bit_for_bit(rows: list[tuple[Any, ...]], coding: Coding) -> None:
    names = (*coding.columns, coding.target)
    block = coding.encode({name: [row[index] for row in rows] for index, name in enumerate(names)})
    assert block.x.shape == (len(rows), coding.size)
    for index, row in enumerate(rows):
        one = coding.encode_record(dict(zip(names, row, strict=True)))
        assert one.x.tobytes() == block.x[index].tobytes()
        np.testing.assert_array_equal(one.y, block.y[index])
        assert (one.clamped, one.missing) == (block.clamped[index], block.missing[index])
        assert np.all((one.x >= coding.low) | (one.x == 0))
        assert np.all(one.x <= coding.high)
        assert coding.smallest_square <= one.x @ one.x <= coding.largest_square


def test_the_squares_are_attained() -> None:
    assert CODING.smallest_square == CODING.encode_record({}).x @ CODING.encode_record({}).x
    x = CODING.encode_record(RECORD | {"age": 21}).x
    assert CODING.largest_square == x @ x


@pytest.mark.parametrize("make", [list, tuple, np.array, pd.Series, lambda values: pd.Series(values).array])
def test_columns_of_any_kind(make: Any) -> None:
    columns = {
        "age": make([21, 28, 35]),
        "same_sex": make(["no", "yes", "no"]),
        "origin": make(["EWR", "JFK", "LGA"]),
        "third_child": make(["yes", "no", "yes"]),
    }
    block = CODING.encode(columns)
    assert block.x[:, 0].tolist() == [-1.0, 0.0, 1.0]
    assert block.x[:, 1].tolist() == [-1.0, 1.0, -1.0]
    assert block.x[:, 2:4].tolist() == [[-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0]]
    assert block.y.tolist() == [1.0, 0.0, 1.0]
    assert not block.missing.any()


@pytest.mark.parametrize("dtype", [np.int8, np.uint64, np.float32, np.float64, bool])
def test_numeric_columns(dtype: Any) -> None:
    coding = Task.parse(LOGISTIC.replace("low: 21, high: 35", "low: 0, high: 1")).coding
    column = np.array([0, 1], dtype=dtype)
    block = coding.encode({"age": column, "same_sex": ["no"] * 2, "origin": ["EWR"] * 2}, target=False)
    assert block.x[:, 0].tolist() == [-1.0, 1.0]
    assert column.tolist() == [0, 1]


def test_columns_are_not_written_to() -> None:
    ages = np.array([0.0, np.nan, np.inf, 99.0])
    CODING.encode({"age": ages, "same_sex": ["no"] * 4, "origin": ["EWR"] * 4}, target=False)
    np.testing.assert_array_equal(ages, [0.0, np.nan, np.inf, 99.0])


def test_a_block_says_what_is_wrong_where_but_not_the_value() -> None:
    columns = {
        "age": [21, 99, 22, "secret"],
        "same_sex": ["no", "no", "no", "secret"],
        "origin": ["EWR"] * 4,
        "third_child": ["yes", "no", "secret", ""],
    }
    block = CODING.encode(columns)
    assert block.columns == ("age", "same_sex", "origin", "third_child")
    assert block.cells[2, 3] == Cell.UNDECLARED
    assert block.clamped.tolist() == [0, 1, 0, 0]
    assert block.missing.tolist() == [0, 0, 1, 3]
    fine = CODING.encode({name: values[:2] for name, values in columns.items()})
    assert np.all(fine.cells < Cell.MISSING)
    assert [cell.describe() for cell in Cell] == [
        "is fine",
        "is outside its bounds",
        "is missing",
        "is none of the declared categories",
        "is not a finite number",
        "is not a date as in 2024-05-31",
    ]


def test_columns_must_be_there_and_of_one_length() -> None:
    columns = {"age": [21], "same_sex": ["no"], "origin": ["EWR"]}
    assert np.isnan(CODING.encode(columns, target=False).y).all()
    with pytest.raises(UserError, match="column 'third_child' is missing; there are: age, same_sex"):
        CODING.encode(columns)
    with pytest.raises(UserError, match=r"columns of different lengths \(1, 2\)"):
        CODING.encode(columns | {"third_child": ["no", "yes"]})


def test_empty_block() -> None:
    block = CODING.encode({"age": [], "same_sex": [], "origin": [], "third_child": []})
    assert block.x.shape == (0, 5)
    assert block.cells.shape == (0, 4)


@pytest.mark.parametrize("coding", [CODING, REAL])
def test_coefficients_per_unit_are_differences_of_predictions(coding: Coding) -> None:
    beta = np.array([0.7, -0.2, 0.4, 1.1, 0.3])
    per_unit = dict(zip(coding.names, (coding.unit_factors * beta).tolist(), strict=True))

    def predict(**changes: Any) -> float:
        x = coding.encode_record({"age": 25, "same_sex": "no", "origin": "EWR"} | changes).x
        # In the target's own units: 52 weeks are 2, and of a binary target one is one.
        return float(x @ beta) * (26.0 if coding is REAL else 1.0)

    base = predict()
    assert predict(age=26) - base == pytest.approx(per_unit["age"])
    assert predict(same_sex="yes") - base == pytest.approx(per_unit["same_sex"])
    assert predict(origin="JFK") - base == pytest.approx(per_unit["origin=JFK"])
    assert predict(origin="LGA") - base == pytest.approx(per_unit["origin=LGA"])
    assert coding.unit_labels == (
        "age: one unit more",
        "same_sex: yes against no",
        "origin: JFK against EWR",
        "origin: LGA against EWR",
        "at the middle of every feature",
    )


def test_decimals_and_fractions_are_numbers() -> None:
    for age in (Decimal("24.5"), Fraction(49, 2)):
        assert CODING.encode_record({"age": age}).x[0] == -0.5


FILLED = """
name: visits
features:
  - {name: age, low: 20, high: 40, missing: indicator}
  - {name: visits, low: 0, high: 8, missing: 1}
  - {name: ward, categories: [a, b, c], missing: b}
  - {name: born, kind: date, low: 2000-01-01, high: 2000-12-31, as: [number, month], missing: 2000-02-01}
  - {name: sex, categories: [f, m], missing: indicator}
  - {name: plain, low: 0, high: 1}
target: {name: y, kind: binary, positive: yes}
privacy: {guarantee: {gdp: {mu: 1.0}}}
"""


def test_missing_values_are_coded_as_the_task_says_one_by_one_and_in_blocks() -> None:
    """A fill value is coded as that value is; an indicator tells the missing from the middle."""
    coding = Task.parse(FILLED).coding
    names = dict(zip(coding.names, range(coding.size), strict=True))
    assert {"age=missing", "sex=missing"} < set(names)
    assert len(coding.unit_labels) == len(coding.unit_factors) == coding.size
    known = {"age": 30, "visits": 1, "ward": "b", "born": "2000-02-01", "sex": "m", "plain": 0.5, "y": "yes"}
    odd = {"age": "?", "visits": None, "ward": "zzz", "born": "", "sex": float("nan"), "plain": "", "y": "no"}
    whole, empty = coding.encode_record(known), coding.encode_record(odd)
    indicated = [names["age=missing"], names["sex=missing"]]
    assert whole.x[indicated].tolist() == [-1.0, -1.0]
    assert empty.x[indicated].tolist() == [1.0, 1.0]
    assert (empty.x[names["sex"]], whole.x[names["sex"]]) == (0.0, 1.0)
    same = [place for place in range(coding.size) if place not in (*indicated, names["sex"])]
    assert empty.x[same].tolist() == whole.x[same].tolist()
    assert empty.missing == 6
    block = coding.encode({name: [known[name], odd[name], known[name]] for name in known})
    assert block.x.tolist() == [whole.x.tolist(), empty.x.tolist(), whole.x.tolist()]
    assert block.missing.tolist() == [0, 6, 0]


def test_a_fill_value_keeps_a_mean_where_the_middle_moves_it() -> None:
    """3% missing of a count with mean .75 of 0 to 8: the middle is far from people, their mean is not."""
    text = FILLED.replace("missing: 1}", "missing: 0.75}")
    values: list[float | None] = [0.0, 0.0, 1.0, 2.0] * 97 + [None] * 12
    coded = {}
    for words in (text, text.replace(", missing: 0.75", "")):
        coding = Task.parse(words).coding
        block = coding.encode(
            {name: values if name == "visits" else [None] * len(values) for name in coding.columns}, target=False
        )
        coded[words == text] = block.x[:, coding.names.index("visits")].mean() * 4 + 4
    assert coded[True] == pytest.approx(0.75)
    assert coded[False] == pytest.approx(0.97 * 0.75 + 0.03 * 4)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("missing: 1}", "missing: 9}", r"features\[1\].missing: 9.0 is outside the bounds 0.0 to 8.0"),
        ("missing: 1}", "missing: indicatr}", r"features\[1\].missing: 'indicatr' is text; write a number"),
        ("missing: b", "missing: d", r"features\[2\].missing: 'd' is not one of the categories"),
        ("missing: 2000-02-01", "missing: 2001-02-01", r"features\[3\].missing: 2001-02-01 is outside the bounds"),
        ("name: plain", "name: age=missing", "its coded name 'age=missing' is a coded name of feature 1"),
        ("missing: 1}", "missing_share: 3}", r"features\[1\].missing_share: 3 is too large"),
    ],
)
def test_fill_values_that_cannot_be_are_refused(old: str, new: str, message: str) -> None:
    assert old in FILLED
    with pytest.raises(UserError, match=message):
        Task.parse(FILLED.replace(old, new, 1))
