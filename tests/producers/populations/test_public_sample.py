"""The public sample from a file: how small it may be, and what it must hold."""

import numpy as np
import pytest

from murk.errors import UserError
from murk.populations.public_sample import public_covariates
from tests.producers.world import TEXT, make_task

HEAD = "age,same_sex,origin\n"


def sample(folder, *rows):
    path = folder / "public.csv"
    path.write_text(HEAD + "".join(f"{row}\n" for row in rows))
    return path


def test_distinct_rows_and_how_often_each_occurs(tmp_path):
    """Without the target's column; coded as a device codes."""
    rows = ["28,yes,JFK", "21,no,EWR", "28,yes,JFK"]
    points, counts = public_covariates(sample(tmp_path, *rows), make_task())
    coding = make_task().coding
    assert points.shape == (2, coding.size)
    assert counts.tolist() == [1, 2]
    assert counts.dtype == np.int64
    assert coding.names[0] == "age"
    assert points[:, 0].tolist() == [-1.0, 0.0]


def test_two_rows_are_enough_and_one_is_not(tmp_path):
    points, counts = public_covariates(sample(tmp_path, "28,yes,JFK", "28,yes,JFK"), make_task())
    assert (len(points), counts.tolist()) == (1, [2])
    with pytest.raises(UserError, match="has 1 rows: a sample of public covariates needs at least 2"):
        public_covariates(sample(tmp_path, "28,yes,JFK"), make_task())
    with pytest.raises(UserError, match="has 0 rows"):
        public_covariates(sample(tmp_path), make_task())


@pytest.mark.parametrize("value", ["", "maybe"])
def test_what_is_missing_or_undeclared_is_named_by_its_place(tmp_path, value):
    """By row and column; what the task declares is complete."""
    with pytest.raises(UserError, match=r"public\.csv, row 2, column 'same_sex': the value .* complete and declared"):
        public_covariates(sample(tmp_path, "28,yes,JFK", f"28,{value},JFK", "28,no,EWR"), make_task())


def test_rows_are_like_people_where_the_task_states_what_is_missing(tmp_path):
    """As many values are left out as are stated, the same ones each time; those that are missing count among them."""
    text = TEXT.replace("low: 21, high: 35", "low: 21, high: 35, missing: indicator, missing_share: 0.1")
    assert text != TEXT
    task = make_task(text=text)
    path = sample(tmp_path, *["28,yes,JFK", "21,no,EWR"] * 98, *[",no,LGA"] * 4)
    points, counts = public_covariates(path, task)
    gone = points[:, task.coding.names.index("age=missing")] == 1.0
    assert counts[gone].sum() == 20
    assert counts.sum() == 200
    # The middle, whatever stood there.
    assert set(points[gone, 0]) == {0.0}
    again = public_covariates(path, task)
    assert np.array_equal(points, again[0])
    assert np.array_equal(counts, again[1])
    # Of the other features nothing is stated, and rows are to be complete.
    with pytest.raises(UserError, match="column 'same_sex'"):
        public_covariates(sample(tmp_path, "28,yes,JFK", "28,,JFK"), task)
