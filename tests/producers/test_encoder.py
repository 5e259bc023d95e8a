"""The encoder: the task's coding as a River transformer, and no learner of bounds."""

import copy
import pickle
import subprocess
import sys

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from river import base, compose, linear_model
from river.checks import check_estimator

from murk.errors import UserError
from murk.learners import Encoder
from tests.producers.world import RECORD, make_task

CODED = {"age": 0.0, "same_sex": 1.0, "origin=JFK": 1.0, "origin=LGA": -1.0}


def test_codes_by_public_bounds() -> None:
    encoder = Encoder(make_task())
    assert isinstance(encoder, base.Transformer)
    assert encoder.transform_one(RECORD) == CODED
    assert encoder.transform_one({}) == dict.fromkeys(CODED, 0.0)
    assert encoder.transform_one({"age": 99, "same_sex": "perhaps"})["age"] == 1.0
    assert (encoder.counts.records, encoder.counts.clamped, encoder.counts.missing) == (3, 1, 5)


def test_learns_nothing_from_data() -> None:
    encoder = Encoder(make_task())
    for age in (1, 1_000):
        encoder.learn_one({**RECORD, "age": age})
    assert encoder.transform_one(RECORD) == CODED


def test_many_are_as_one_by_one() -> None:
    records = [RECORD, {**RECORD, "age": 22.5, "origin": "EWR"}, {**RECORD, "age": None, "same_sex": "no"}]
    frame = pd.DataFrame(records, index=[5, 3, 9])
    coded = Encoder(make_task()).transform_many(frame)
    one = Encoder(make_task())
    assert coded.to_dict("records") == [one.transform_one(record) for record in records]
    assert list(coded.index) == [5, 3, 9]
    without = Encoder(make_task()).transform_many(frame.drop(columns="origin"))
    assert without["origin=JFK"].tolist() == [0.0] * 3


def test_codes_targets() -> None:
    encoder = Encoder(make_task())
    assert [encoder.target_one(y) for y in ("yes", "no")] == [1.0, 0.0]
    assert str(encoder.target_one("perhaps")) == "nan"


def test_is_a_river_estimator() -> None:
    check_estimator(Encoder(make_task()))


def test_works_in_a_pipeline_and_is_cloned_and_copied() -> None:
    model = compose.Pipeline(Encoder(make_task()), linear_model.LogisticRegression())
    model.learn_one(RECORD, True)
    assert 0.5 < model.predict_proba_one(RECORD)[True] < 1
    clone = model.clone()
    assert clone["Encoder"].task == make_task()
    assert clone["Encoder"].counts.records == 0
    for encoder in (copy.deepcopy(model["Encoder"]), pickle.loads(pickle.dumps(model["Encoder"]))):
        assert encoder.transform_one(RECORD) == CODED


def test_its_counts_stay_behind() -> None:
    """They are functions of raw values, which nobody gets who is sent or saved a model."""
    encoder = Encoder(make_task())
    for _ in range(25):
        encoder.transform_one({"age": 99})
    for other in (copy.copy(encoder), copy.deepcopy(encoder), pickle.loads(pickle.dumps(encoder))):
        assert (other.counts.records, other.counts.clamped, other.counts.missing) == (0, 0, 0)
    assert pickle.dumps(encoder) == pickle.dumps(Encoder(encoder.task))
    assert (encoder.counts.records, encoder.counts.clamped, encoder.counts.missing) == (25, 25, 50)


PROGRAM = """
import sys
from murk.populations import FileSource
from murk.producers import Ledger, Policy, Producer
assert "river" not in sys.modules, "a device needs no River"
assert not {"pandas", "scipy.stats", "scipy.special", "rich"} & set(sys.modules)
"""


def test_a_device_loads_no_river() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=100)


def test_public_names() -> None:
    import murk.producers

    for name in murk.producers.__all__:
        assert getattr(murk.producers, name).__name__ == name
        assert name in dir(murk.producers)
    with pytest.raises(AttributeError):
        _ = murk.producers.Nothing


def test_frames_of_every_library_keep_their_kind() -> None:
    rows = {"age": [28, 40], "same_sex": ["yes", "no"], "origin": ["JFK", None]}
    encoder = Encoder(make_task())
    alone = [encoder.transform_one(dict(zip(rows, row, strict=True))) for row in zip(*rows.values(), strict=True)]
    for make in (pd.DataFrame, pl.DataFrame, pa.table):
        many = encoder.transform_many(make(rows))
        assert type(many) is type(make(rows))
        assert (
            pd.DataFrame(many.to_dict("list") if make is pd.DataFrame else many.to_pandas()).to_dict("records") == alone
        )
        # A column that is not there is missing, and of no rows there are no codes.
        fewer = encoder.transform_many(make({"age": [28, 40]}))
        assert fewer.shape == (2, len(encoder.features))
        assert encoder.transform_many(make({name: [] for name in rows})).shape == (0, len(encoder.features))
    assert encoder.transform_many(pd.DataFrame(rows, index=[7, 3])).index.tolist() == [7, 3]
    with pytest.raises(UserError, match="X is of the type list: give a data frame"):
        encoder.transform_many([rows])  # type: ignore[arg-type]
