"""Columns of any container are learned as their values are one by one; names of coefficients are distinct."""

import math
import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from murk.errors import DataWarning, UserError
from murk.learners import (
    GaussMixRegressor,
    IWPSGDClassifier,
    IWPSGDRegressor,
    LDPSGDClassifier,
    LDPSGDRegressor,
    PublicGLMClassifier,
    PublicGLMRegressor,
    ScoreClassifier,
    ScoreRegressor,
)
from murk.learners.base import code_of, codes_of
from murk.learners.public_sample import PublicSample
from murk.privacy import ApproxDP, GaussianDP
from murk.task.values import target, targets

MU = GaussianDP(mu=4.0)
PUBLIC = np.array([[1.0, 0.0], [-1.0, 0.5], [0.0, -1.0], [0.5, 0.5]])
BIG = 2**53
LABELS = {
    "text": (["yes", "no", None, "yes"], ("no", "yes")),
    "booleans": ([True, False, True, True], (False, True)),
    "booleans with gaps": ([True, False, None, True], (False, True)),
    "integers": ([1, 0, 2, 1], (0, 1)),
    "integers of booleans": ([1, 0, 2, 1], (False, True)),
    "integers with gaps": ([1, 0, None, 1], (0, 1)),
    "floats": ([1.0, 0.0, math.nan, 0.5], (0, 1)),
    "short labels": ([0.1, 0.5, 0.1], (0.1, 0.5)),
    "big integers": ([BIG, BIG + 1, BIG + 2], (float(BIG), BIG + 1)),
    "decimals": ([Decimal("1.00"), Decimal("0.5"), None], (1, 0.5)),
    "mixed": (["1", 1, None, 2.0], ("1", 1)),
}
CONTAINERS = {
    "list": list,
    "tuple": tuple,
    "array": lambda values: np.array(values, dtype=object),
    "column": lambda values: np.array(values, dtype=object)[:, None],
    "pandas": lambda values: pd.Series(values, index=range(len(values), 0, -1), dtype=object),
    "pandas, inferred": lambda values: pd.Series(values).convert_dtypes(),
    "pandas frame": lambda values: pd.DataFrame({"y": pd.Series(values, dtype=object)}),
    "pandas categories": lambda values: pd.Series(values, dtype="category"),
    "polars": pl.Series,
    "polars frame": lambda values: pl.DataFrame({"y": values}),
    "arrow": pa.array,
    "arrow chunks": lambda values: pa.chunked_array([values[:1], values[1:]], pa.array(values).type),
    "arrow table": lambda values: pa.table({"y": pa.array(values)}),
}


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("name", LABELS)
def test_labels_and_numbers_of_a_column_are_those_of_its_values(name, container):
    values, classes = LABELS[name]
    # Columns of one type cannot hold these, nor categories two that are equal.
    if name == "mixed" and not container.startswith(("list", "tuple", "array", "column", "pandas")):
        return
    if name == "decimals" and container == "pandas categories":
        return
    codes = {label: float(place) for place, label in enumerate(classes)}
    column = CONTAINERS[container](values)
    np.testing.assert_array_equal(codes_of(column, codes), [code_of(value, codes) for value in values])
    np.testing.assert_array_equal(targets(column), [target(value) for value in values])


def test_short_floats_are_not_rounded_to_a_label():
    assert np.isnan(codes_of(np.array([0.1], dtype=np.float32), {0.1: 1.0, 0.2: 0.0}))


LEARNERS = {
    "gradients": lambda: LDPSGDClassifier(guarantee=MU, features=["a", "b"], classes=("no", "yes"), seed=1),
    "gradients of numbers": lambda: LDPSGDRegressor(guarantee=MU, features=["a", "b"], seed=1),
    "scores": lambda: ScoreClassifier(guarantee=MU, features=["a", "b"], classes=("no", "yes"), seed=1),
    "scores of numbers": lambda: ScoreRegressor(guarantee=MU, features=["a", "b"], seed=1),
    "examples": lambda: IWPSGDClassifier(guarantee=MU, features=["a", "b"], classes=("no", "yes"), seed=1),
    "examples of numbers": lambda: IWPSGDRegressor(guarantee=MU, features=["a", "b"], seed=1),
    "moments": lambda: PublicGLMClassifier(
        guarantee=MU, public=PUBLIC, features=["a", "b"], classes=("no", "yes"), seed=1
    ),
    "moments of numbers": lambda: PublicGLMRegressor(guarantee=MU, public=PUBLIC, features=["a", "b"], seed=1),
    "summaries": lambda: GaussMixRegressor(guarantee=ApproxDP(1.0, 1e-5), features=["a", "b"], window=60, seed=1),
}


def records(count=60):
    random = np.random.default_rng(1)
    rows = [[Decimal(str(round(value, 2))) for value in row] for row in random.uniform(-1, 1, (count, 2))]
    return rows, [Decimal(str(round(value, 2))) for value in random.uniform(-1, 1, count)]


@pytest.mark.parametrize("name", LEARNERS)
def test_every_learner_takes_every_frame_as_its_records(name):
    """Decimals in frames and a column of shape (n, 1): to the bit what one record after another is."""
    rows, values = records()
    numbers = "numbers" in name or name == "summaries"
    y = values if numbers else ["yes" if value > 0 else "no" for value in values]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        one = LEARNERS[name]()
        for row, label in zip(rows, y, strict=True):
            one.learn_one(dict(zip("ab", row, strict=True)), label)
        expected = one.state_dict()
        columns = {"a": [row[0] for row in rows], "b": [row[1] for row in rows]}
        table = pa.table({"b": columns["b"], "a": columns["a"], "y": y})
        chunks = pa.concat_tables([table.slice(0, 7), table.slice(7)])
        for X, labels in (
            (chunks.select(["b", "a"]), chunks["y"]),
            (pl.DataFrame(columns), pl.DataFrame({"y": y})),
            (pd.DataFrame(columns), np.array(y, dtype=object)[:, None]),
        ):
            many = LEARNERS[name]()
            many.learn_many(X, labels)
            assert many.state_dict() == expected


@pytest.mark.parametrize("name", LEARNERS)
def test_a_target_of_another_shape_is_refused_with_it(name):
    model = LEARNERS[name]()
    with pytest.raises(UserError, match=r"y has the shape \(4, 2\): give one column"):
        model.learn_many(np.zeros((4, 2)), np.zeros((4, 2)))
    with pytest.raises(UserError, match="X has 4 rows, y has 3: give one target per row"):
        model.learn_many(np.zeros((4, 2)), np.zeros((3, 1)))
    for X in ([[0.0, 0.0]], [{"a": 0.0}]):
        with pytest.raises(UserError, match="X is of the type list: give a data frame"):
            model.learn_many(X, [0.0])


def trained(classes):
    model = LDPSGDClassifier(guarantee=GaussianDP(mu=100.0), features=["a"], classes=classes, seed=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        for i in range(80):
            model.learn_one({"a": i % 2 * 2.0 - 1.0}, classes[i % 2])
    return model


@pytest.mark.parametrize("label", [None, math.nan, np.float64("nan"), pd.NA])
@pytest.mark.parametrize("learner", [LDPSGDClassifier, ScoreClassifier])
def test_what_says_that_a_label_is_missing_is_no_class(learner, label):
    with pytest.raises(UserError, match="None and NaN mean that a label is missing"):
        learner(guarantee=GaussianDP(mu=1.0), features=["a"], classes=("yes", label), seed=1).learn_one(
            {"a": 1.0}, "yes"
        )


@pytest.mark.parametrize("classes", [("no", 1), (False, "x"), (1, 2.5), (("a", 1), ("b", 2)), (True, 2), (2**70, 0)])
def test_labels_of_mixed_types_come_back_as_they_are(classes):
    model = trained(classes)
    X = np.array([[-1.0], [1.0]])
    expected = [model.predict_one({"a": -1.0}), model.predict_one({"a": 1.0})]
    for found in (model.predict_many(X), model.predict_many(pd.DataFrame(X, columns=["a"]))):
        assert [(type(value), value) for value in found.tolist()] == [(type(value), value) for value in expected]


def test_labels_that_fit_into_no_column_are_refused_by_frames_of_one_type():
    model = ScoreClassifier(guarantee=MU, features=["a"], classes=("1", 1), seed=1)
    model.learn_one({"a": 0.5}, 1)
    for frame in (pl.DataFrame({"a": [1.0]}), pa.table({"a": [1.0]})):
        with pytest.raises(UserError, match="are not distinct as text"):
            model.predict_proba_many(frame)
    table = pa.table({"a": [1.0, -1.0]})
    with pytest.raises(UserError, match="do not fit into one column of a Table"):
        trained((0, "x")).predict_many(table)
    assert trained((0, 1)).predict_many(table).to_pylist() == [1, 0]


@pytest.mark.parametrize("features", [[1, "1"], ["a", "intercept"], ["b:intercept"], ["a", "a"]])
def test_features_whose_coefficients_have_one_name_are_refused(features):
    with pytest.raises(UserError, match="features must be names that are distinct as text"):
        LDPSGDRegressor(guarantee=MU, features=features, seed=1)


@pytest.mark.parametrize("classes", [("a", "a:b", "c"), (1, "1", 2)])
def test_classes_whose_coefficients_have_one_name_are_refused(classes):
    with pytest.raises(UserError, match="two coefficients would be named"):
        LDPSGDClassifier(guarantee=MU, features=["c", "b:c"], classes=classes, seed=1)


@pytest.mark.parametrize("many", [False, True])
def test_a_feature_that_no_record_has_is_named_in_a_simulation(many):
    def said(features, seed, rows):
        model = ScoreClassifier(guarantee=MU, features=features, seed=seed)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            if many:
                model.learn_many(pd.DataFrame(rows), [row["Dose"] > 0 for row in rows])
            else:
                for row in rows:
                    model.learn_one(row, row["Dose"] > 0)
        return [str(one.message) for one in caught if "none of the first" in str(one.message)]

    rows = [{"Dose": i % 3 - 1, "late": i % 2} for i in range(120)]
    [words] = said(["dose", "origin=JFK", "late"], 1, rows)
    assert "has the features 'dose' and 'origin=JFK', which count as 0. Spell features=" in words
    assert "Dose" not in words
    assert said(["Dose", "late"], 1, rows) == []
    assert said(["dose"], None, rows) == []


def test_a_public_file_is_known_by_its_bytes_and_may_have_wide_cells(tmp_path):
    import gzip

    text = "a,note,b\n1,x,2\n3," + "x" * 140_000 + ",4\n"
    for name, data in (("p.csv", text.encode()), ("q.csv", gzip.compress(text.encode())), ("r.GZ", text.encode())):
        (tmp_path / name).write_bytes(data)
        assert PublicSample.read(tmp_path / name, ["a", "b"]).rows.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    (tmp_path / "p.csv").write_text("a,b\n1,2\n3\n")
    with pytest.raises(UserError, match="row 2: 1 cells, and the header has 2: fix the row"):
        PublicSample.read(tmp_path / "p.csv")
    with pytest.raises(UserError, match="row 2, column 'a' is not a finite number"):
        PublicSample.read(pl.DataFrame({"a": ["1", "2_4"]}))
