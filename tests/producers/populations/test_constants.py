"""Columns that say nothing are said, where records may be looked at and nowhere else."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from murk import Task
from murk.errors import UserError
from murk.populations import open_records
from murk.populations.local_run import LocalRun
from murk.populations.people import PopulationConfig
from murk.producers.producer import Policy
from murk.stream import open_log

TEXT = """
name: constants
features:
  - {name: age, low: 20, high: 40}
  - {name: origin, categories: [EWR, JFK, LGA]}
target: {name: worked, kind: real, low: 0, high: 52}
privacy: {guarantee: {gdp: {mu: 1.0}}}
"""
PEOPLE = pd.DataFrame(
    {"age": [20 + i % 20 for i in range(40)], "origin": ["EWR", "JFK"] * 20, "worked": [i % 50 for i in range(40)]}
)


def warnings(folder: Path, frame: pd.DataFrame, seed: int | None = 1, text: str = TEXT) -> Sequence[str]:
    crowd = PopulationConfig(open_records(frame), seed=seed, policy=Policy(public_sample=True))
    where = f"sqlite:///{folder}/log.db", folder / "ledger.db"
    with LocalRun(Task.parse(text), crowd, *where) as run:
        return run.population.warnings


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, None),
        ({"age": 25}, "column 'age' of the DataFrame has the same value in every row"),
        (
            {"age": 99},
            "column 'age' of the DataFrame has the same value in every row, or only values beyond the same bound",
        ),
        ({"age": [25, None] * 20}, "column 'age' of the DataFrame has the same value"),
        ({"age": None}, "column 'age' of the DataFrame is empty in every row"),
        ({"origin": "LGA"}, "column 'origin' of the DataFrame has the same value"),
        ({"origin": ""}, "column 'origin' of the DataFrame is empty"),
        ({"worked": 7}, "column 'worked' of the DataFrame has the same value"),
    ],
)
def test_of_a_simulation(tmp_path: Path, change: dict[str, Any], words: str | None) -> None:
    found = warnings(tmp_path, PEOPLE.assign(**change))
    assert len(found) == (words is not None)
    assert all((words or "") in one and "because this is a simulation" in one for one in found)


COUNTS = TEXT.replace("{name: age, low: 20, high: 40}", "{name: visits, low: 0, high: 8}")


def test_missing_values_that_matter_are_said_with_what_they_do(tmp_path: Path) -> None:
    """3% of a count far from the middle of its bounds; at the count's mean they do nothing."""
    visits = [None if i % 33 == 0 else (0, 0, 1, 2)[i % 4] for i in range(396)]
    frame = pd.DataFrame({"visits": visits, "origin": ["EWR", "JFK"] * 198, "worked": [i % 50 for i in range(396)]})
    [found] = warnings(tmp_path, frame, text=COUNTS)
    assert "3% of the column 'visits' are missing and count as 4, the middle of its bounds" in found
    there = np.array([each for each in visits if each is not None])
    kept = there.var() / (there.var() + (4 - there.mean()) ** 2 * 12 / 396)
    assert f"about {kept:.2f} of what it is" in found
    assert f"set missing: {there.mean():.2g} (the mean of the others)" in found
    filled = COUNTS.replace("high: 8", "high: 8, missing: 0.75")
    for each, text in enumerate((filled, COUNTS.replace("high: 8", "high: 8, missing: indicator"))):
        (tmp_path / str(each)).mkdir()
        assert warnings(tmp_path / str(each), frame, text=text) == ()


def test_nothing_is_said_of_real_people(tmp_path: Path) -> None:
    assert warnings(tmp_path, PEOPLE.assign(age=25, origin=None), seed=None) == ()


def public_task(folder: Path, *more: str, **change: Any) -> str:
    rows = PEOPLE.assign(origin=["EWR", "JFK", "LGA", "JFK"] * 10).drop(columns="worked").iloc[::3]
    rows.assign(**change).to_csv(folder / "public.csv")
    return "\n".join([TEXT, f"public: {{file: {folder}/public.csv}}", *more])


def test_of_public_rows_it_is_always_said(tmp_path: Path) -> None:
    assert warnings(tmp_path, PEOPLE.sample(frac=1, random_state=2), None, public_task(tmp_path)) == ()
    text = public_task(tmp_path, "protocol: moments", "moments: {release: joint}", age=30)
    folder = tmp_path / "other"
    folder.mkdir()
    found = warnings(folder, PEOPLE.sample(frac=1, random_state=2), None, text)
    assert [one.split(",")[0] for one in found if "public rows" in one] == [
        "'age' has the same value in all public rows"
    ]


def test_public_rows_that_nothing_can_be_learned_with_are_refused_before_a_log_begins(tmp_path: Path) -> None:
    """Whitening by them is singular, which used to be found when the log had its task for good."""
    with pytest.raises(UserError, match=r"^'origin=JFK' has the same value in all public rows.*; '.*singular"):
        warnings(tmp_path, PEOPLE, None, public_task(tmp_path, origin="EWR"))
    assert open_log(f"sqlite:///{tmp_path}/log.db").document() is None
