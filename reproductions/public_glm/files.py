"""The files of figure 6, and the yes-or-no query that the paper asks of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from murk.errors import UserError
from reproductions.data_file import DataFile, read_numbers

Floats = NDArray[np.float64]
_EXPLAINED: Final = 1e-6
"""Share of a feature's standard deviation below which others explain it."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """A data set of the figure.

    Parameters
    ----------
    yes
        Returns which values of the target mean yes.
    counts
        The paper's numbers of people.
    rows
        Number of rows to read, if the paper does not use all.
    features
        Number of features to keep, if the paper removes correlated ones.
    """

    name: str
    file: DataFile
    target: str
    yes: Callable[[Floats], NDArray[np.bool_]]
    counts: Sequence[int]
    rows: int | None = None
    features: int | None = None
    note: str = ""


def read(source: Source, path: Path) -> tuple[Floats, Floats]:
    """Return features (n, p) and answers 0 or 1.

    Raises
    ------
    UserError
        If the file cannot be read or has only one answer.
    """
    columns = read_numbers(path, source.file, most=source.rows)
    y = source.yes(columns.pop(source.target)).astype(np.float64)
    if not 0.0 < y.mean() < 1.0:
        raise UserError(f"{path.name} has only one answer in column {source.target}", code="MURK-DATA-001")
    x = np.column_stack(list(columns.values()))
    return x[:, unexplained(x, source.features)], y


def unexplained(x: Floats, most: int | None = None) -> list[int]:
    """Return at most ``most`` features that do not explain each other, chosen one by one by what is unexplained.

    Examples
    --------
    >>> a = np.array([0.0, 1.0, 0.0, 1.0])
    >>> b = np.array([0.0, 0.0, 1.0, 1.0])
    >>> unexplained(np.column_stack([a, 2.0 * a + 0.1 * b, b, 1.0 - b, np.ones(4)]))
    [0, 2]
    """
    from scipy.linalg import qr

    varying = np.flatnonzero(np.ptp(x, axis=0) > 0.0)
    values, vectors = np.linalg.eigh(np.atleast_2d(np.corrcoef(x[:, varying], rowvar=False)))
    root = np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T
    triangle, order = qr(root, mode="r", pivoting=True)
    rank = int(np.sum(np.abs(np.diag(triangle)) > _EXPLAINED))
    return sorted(varying[order[:rank][:most]].tolist())


_LAND: Final = (
    "Elevation", "Aspect", "Slope", "Horizontal_Distance_To_Hydrology", "Vertical_Distance_To_Hydrology",
    "Horizontal_Distance_To_Roadways", "Hillshade_9am", "Hillshade_Noon", "Hillshade_3pm",
    "Horizontal_Distance_To_Fire_Points", *(f"Wilderness_Area{place}" for place in range(1, 5)),
    *(f"Soil_Type{place}" for place in range(1, 41)), "Cover_Type",
)  # fmt: skip
_PARTICLES: Final = ("signal", *(f"feature {place}" for place in range(1, 19)))


def _covertype(name: str, header: bool) -> Source:
    return Source(
        name="Covertype",
        file=DataFile(name=name, columns=_LAND, header=header, rows=(581_012,)),
        target="Cover_Type",
        yes=lambda kind: kind == 2.0,
        counts=range(10_000, 400_000, 10_000),
        features=44,
        note=(
            "The paper does not say which 10 of 54 correlated features it removes; here they are those that the 44 "
            "others explain best. The query is whether the type is 2."
        ),
    )


SOURCES: Final = (
    _covertype("covtype.data (UCI)", False),
    _covertype("covtype.csv (Kaggle)", True),
    Source(
        name="SUSY",
        file=DataFile(name="SUSY.csv (UCI)", columns=_PARTICLES, header=False, rows=(500_000,)),
        target="signal",
        yes=lambda kind: kind == 1.0,
        counts=range(10_000, 350_000, 20_000),
        rows=500_000,
        note="The paper does not say how it samples 500,000 rows; here they are the first ones.",
    ),
)
FILES: Final = tuple(source.file for source in SOURCES)
