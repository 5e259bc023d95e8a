"""The files of figures 2 and 4, and the records that the paper's public code makes of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from murk.errors import UserError
from reproductions.data_file import DataFile, as_numbers, read_columns

_ERROR_CODE = "MURK-CLI-002"

Floats = NDArray[np.float64]
_LEAST: Final = 20
Columns = dict[str, Floats]


@dataclass(frozen=True, kw_only=True)
class Source:
    """A data set of a figure.

    Parameters
    ----------
    out
        Columns that are not features.
    coded
        Columns of categories, each of which becomes a feature.
    clock
        Column of date and time, replaced by hour, weekday, month and year.
    prepare
        Changes features and drops rows, given the columns and the target's name.
    own
        Whether file and features are those of the paper's public code; otherwise rows are tagged as a stand-in.
    """

    name: str
    file: DataFile
    target: str
    out: Sequence[str] = ()
    coded: Sequence[str] = ()
    clock: str = ""
    prepare: Callable[[Columns, str], Columns] | None = None
    own: bool = True
    note: str = ""


@dataclass(frozen=True)
class Table:
    """Features (n, p), targets (n,) and the number of rows of the file."""

    x: Floats
    y: Floats
    rows: int


def read(source: Source, path: Path) -> Table:
    """Read the records of a file.

    Raises
    ------
    UserError
        If it cannot be read, has a cell that is not a number, or too few rows.
    """
    words = dict(read_columns(path, source.file))
    if source.clock:
        words |= _calendar(words.pop(source.clock))
    used = {name: cells for name, cells in words.items() if name not in source.out}
    missing = source.file.missing
    columns = as_numbers(used, empty=bool(missing), missing=missing, first=source.file.first_row)
    rows = len(columns[source.target])
    if source.prepare is not None:
        columns = source.prepare(columns, source.target)
    for name in source.coded:
        values = columns.pop(name)
        columns |= {f"{name} {value:g}": (values == value).astype(np.float64) for value in np.unique(values)}
    y = columns.pop(source.target)
    x = np.column_stack(list(columns.values()))
    if len(x) < _LEAST:
        raise UserError(f"{path.name} has {len(x)} records: give at least {_LEAST}")
    return Table(x, y, rows)


def _calendar(words: Sequence[str]) -> dict[str, list[str]]:
    """Return hour, weekday from Monday, month, and years since the first."""
    try:
        times = [datetime.fromisoformat(word) for word in words]
    except ValueError:
        raise UserError("a date and time does not have the form 2011-01-31 23:00:00", code="MURK-DATA-001") from None
    first = min((time.year for time in times), default=0)
    made = {
        "hour": [time.hour for time in times],
        "day": [time.weekday() for time in times],
        "month": [time.month for time in times],
        "year": [time.year - first for time in times],
    }
    return {name: list(map(str, values)) for name, values in made.items()}


def _unique(columns: Columns, target: str) -> Columns:
    """Keep each record once, in the order of the file."""
    _, first = np.unique(np.column_stack(list(columns.values())), axis=0, return_index=True)
    first.sort()
    return {name: values[first] for name, values in columns.items()}


SHARE: Final = 0.1
"""The public code drops communities with a smaller share of black people."""


def _standardized(columns: Columns, target: str) -> Columns:
    """Fill missing numbers with the mean, drop columns of many, and standardize, as the public code does."""
    known = {name: values for name, values in columns.items() if np.isfinite(values).mean() > 0.5}
    filled = {name: np.where(np.isfinite(values), values, np.nanmean(values)) for name, values in known.items()}
    kept = filled.pop("racepctblack") >= SHARE
    y = filled.pop(target)[kept]
    spread = {name: values.std(ddof=1) for name, values in filled.items()}
    found = {name: (v[kept] - v.mean()) / spread[name] for name, v in filled.items() if spread[name] > 0.0}
    return {**found, target: y}


_HOUSES: Final = (
    "crim", "zn", "indus", "chas", "nox", "rm", "age", "dis", "rad", "tax", "ptratio", "b", "lstat", "medv",
)  # fmt: skip
_WINE: Final = (
    "fixed acidity", "volatile acidity", "citric acid", "residual sugar", "chlorides", "free sulfur dioxide",
    "total sulfur dioxide", "density", "pH", "sulphates", "alcohol", "quality",
)  # fmt: skip
_DAY: Final = (
    "season", "yr", "mnth", "holiday", "weekday", "workingday", "weathersit", "temp", "atemp", "hum", "windspeed",
    "cnt",
)  # fmt: skip
_RENTED: Final = (
    "datetime", "season", "holiday", "workingday", "weather", "temp", "atemp", "humidity", "windspeed", "count",
)  # fmt: skip
_PLACE: Final = ("state", "county", "community", "communityname", "fold")
_SHARES: Final = tuple(str(place) for place in range(6, 128))
_CHANNELS: Final = tuple(f"x_{place:03}" for place in range(1, 101))
_PARTS: Final = tuple(f"component {place}" for place in range(1, 23))
_MEAT: Final = ("water", "fat", "protein")
_BIKE: Final = "bike sharing"
_SPECTRA: Final = "Features are the 100 channels; the public code has 24 more."

CRIME: Final = Source(
    name="Communities & Crime",
    file=DataFile(
        name="communities.data (UCI: communities and crime)",
        columns=(*_PLACE, *("racepctblack" if name == "8" else name for name in _SHARES), "ViolentCrimesPerPop"),
        header=False,
        missing="?",
        rows=(1994,),
    ),
    target="ViolentCrimesPerPop",
    out=_PLACE,
    prepare=_standardized,
    note=(
        "As in the public code: communities with a black share (racepctblack) of at least 0.1, without that column and "
        "those that are mostly missing; the others standardized, before records are set apart for the test."
    ),
)
_STATLIB: Final = DataFile(
    name="tecator (StatLib)",
    columns=(*_CHANNELS, *_PARTS, *_MEAT),
    header=False,
    spaced=True,
    lines=25,
    rows=(240,),
)
TECATOR: Final = (
    Source(
        name="Tecator",
        file=_STATLIB,
        target="fat",
        note=(
            "As in the public code, which uses the table of OpenML: all other 124 columns are features, including "
            "water, protein and principal components."
        ),
    ),
    Source(
        name="Tecator (spectra alone)",
        file=_STATLIB,
        target="fat",
        out=(*_PARTS, "water", "protein"),
        own=False,
        note=_SPECTRA,
    ),
    Source(
        name="Tecator (spectra alone)",
        file=DataFile(name="meats.csv (R: modeldata)", columns=(*_CHANNELS, *_MEAT), rows=(215,)),
        target="fat",
        out=("water", "protein"),
        own=False,
        note=_SPECTRA,
    ),
)
BOSTON: Final = (
    Source(
        name="Boston housing",
        file=DataFile(name="Boston housing with a header", columns=_HOUSES, rows=(506,)),
        target="medv",
        own=False,
        note="A copy, with a header, of the public code's file.",
    ),
    Source(
        name="Boston housing",
        file=DataFile(name="housing.data (UCI)", columns=_HOUSES, header=False, spaced=True, rows=(506,)),
        target="medv",
    ),
)
WINE: Final = Source(
    name="wine quality",
    file=DataFile(name="winequality-red.csv (UCI)", columns=_WINE, rows=(1599,)),
    target="quality",
    prepare=_unique,
    note="As in the public code: each wine once.",
)
BIKE: Final = (
    Source(
        name=_BIKE,
        file=DataFile(name="hour.csv (UCI: bike sharing)", columns=(*_DAY, "hr"), rows=(17379,)),
        target="cnt",
        coded=("season", "weathersit"),
        own=False,
        note="The file that the paper cites, with the features of its public code in the units of this file; the code "
        "uses train.csv, some of its hours.",
    ),
    Source(
        name=_BIKE,
        file=DataFile(name="day.csv (UCI)", columns=_DAY, rows=(731,)),
        target="cnt",
        coded=("season", "weathersit"),
        own=False,
        note="Days in place of the public code's hours.",
    ),
    Source(
        name=_BIKE,
        file=DataFile(name="train.csv (Kaggle: bike sharing demand)", columns=_RENTED, rows=(10886,)),
        target="count",
        coded=("season", "weather"),
        clock="datetime",
        note="As in the public code.",
    ),
)
FIG2: Final = (CRIME, *TECATOR)
FIG4: Final = (*BOSTON, WINE, *BIKE)


def files_of(sources: Sequence[Source]) -> tuple[DataFile, ...]:
    """Return the distinct files of data sets."""
    return tuple(dict.fromkeys(source.file for source in sources))
