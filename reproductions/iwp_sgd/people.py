"""People of the American Community Survey's file, or the demonstration's mothers as a stand-in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from murk.demo import DATA
from murk.errors import UserError
from reproductions.data_file import read_columns
from reproductions.experiment import Setting, Tag
from reproductions.iwp_sgd import SURVEY
from reproductions.iwp_sgd.plain import Array

_ERROR_CODE = "MURK-CLI-002"

STAND_IN: Final = (
    "stand-in: the demonstration's 254,654 mothers; the training set has the paper's size and is drawn with "
    "replacement from four fifths, the last fifth is the test set"
)
OWN_FILE: Final = "the file given; features are coded by the bounds of the survey's codebook"
_INCOME, _COVERAGE = 668_859, 883_984
_TRAINING = 0.8


@dataclass(frozen=True)
class People:
    """Training and test people: four features and a target in [-1, 1]; labels are -1 or 1."""

    name: str
    x: Array
    y: Array
    test_x: Array
    test_y: Array

    @property
    def u(self) -> Array:
        """Return ``y x`` of the training people."""
        return self.x * self.y[:, None]

    @property
    def test_u(self) -> Array:
        """Return ``y x`` of the test people."""
        return self.test_x * self.test_y[:, None]


def tag(setting: Setting) -> Tag:
    """Return the tag of the rows."""
    return "stand-in" if setting.data is None else setting.tag()


def note(setting: Setting) -> str:
    """Return the description of the people."""
    return STAND_IN if setting.data is None else OWN_FILE


def two_tasks(setting: Setting) -> tuple[People, People]:
    """Return the tasks for ACSPublicCoverage and ACSIncome."""
    rng = setting.rng(100)
    if setting.data is not None:
        columns = setting.numbers(SURVEY, empty=True)
        return _coverage(columns, rng), _income(columns, rng, label=True)
    mothers = _mothers(setting)
    coverage = np.column_stack([mothers[name] for name in ("age", "same_sex", "afam", "weeks")])
    return (
        _of_mothers(setting, "third child", coverage, mothers["third_child"], _COVERAGE, rng),
        _of_mothers(setting, "any work", _working(mothers), _sign(mothers["weeks"] > -1.0), _INCOME, rng),
    )


def regression(setting: Setting) -> People:
    """Return the task for ACSIncome with the income as target."""
    rng = setting.rng(101)
    if setting.data is not None:
        return _income(setting.numbers(SURVEY, empty=True), rng, label=False)
    mothers = _mothers(setting)
    return _of_mothers(setting, "weeks worked", _working(mothers), mothers["weeks"], _INCOME, rng)


def _mothers(setting: Setting) -> dict[str, Array]:
    names = ("age", "same_sex", "afam", "weeks_worked", "third_child")
    words = read_columns(DATA, names, most=setting.of(tiny=40_000, reduced=None, full=None))
    coded = {name: _sign(np.array(words[name]) == "yes") for name in ("same_sex", "afam", "third_child")}
    coded["age"] = _coded(np.array(words["age"], dtype=float), 21, 35)
    coded["weeks"] = _coded(np.array(words["weeks_worked"], dtype=float), 0, 52)
    return coded


def _working(mothers: Mapping[str, Array]) -> Array:
    return np.column_stack([mothers[name] for name in ("age", "third_child", "afam", "same_sex")])


def _of_mothers(setting: Setting, name: str, x: Array, y: Array, people: int, rng: np.random.Generator) -> People:
    order = rng.permutation(len(x))
    first, last = np.split(order, [int(_TRAINING * len(x))])
    size = int(_TRAINING * people)
    drawn = rng.choice(first, setting.of(tiny=40_000, reduced=size, full=size))
    return People(name, x[drawn], y[drawn], x[last], y[last])


def _income(columns: Mapping[str, Array], rng: np.random.Generator, *, label: bool) -> People:
    """Select working adults with an income; the target is whether it exceeds 50,000 dollars, or the income itself."""
    c = columns
    kept = (c["AGEP"] > 16) & (c["PINCP"] > 100) & (c["WKHP"] > 0) & np.isfinite(c["SCHL"])
    x = np.column_stack(
        [_coded(c["AGEP"], 0, 99), _coded(c["SEX"], 1, 2), _coded(c["SCHL"], 1, 24), _coded(c["WKHP"], 1, 99)]
    )
    y = _sign(c["PINCP"] > 50_000) if label else _coded(c["PINCP"], 0, 200_000)
    return _split("ACSIncome", x[kept], y[kept], rng)


def _coverage(columns: Mapping[str, Array], rng: np.random.Generator) -> People:
    """Select people below 65 with an income of at most 30,000 dollars; the target is public coverage."""
    c = columns
    kept = (c["AGEP"] < 65) & (c["PINCP"] <= 30_000) & np.isfinite(c["SCHL"])
    x = np.column_stack(
        [_coded(c["AGEP"], 0, 99), _coded(c["SEX"], 1, 2), _coded(c["SCHL"], 1, 24), _coded(c["PINCP"], 0, 30_000)]
    )
    return _split("ACSPublicCoverage", x[kept], _sign(c["PUBCOV"] == 1)[kept], rng)


def _split(name: str, x: Array, y: Array, rng: np.random.Generator) -> People:
    if len(x) < 1_000:
        raise UserError(f"the file has {len(x)} people for {name}: give at least 1,000")
    order = rng.permutation(len(x))
    first, last = np.split(order, [int(_TRAINING * len(x))])
    return People(name, x[first], y[first], x[last], y[last])


def _coded(values: Array, low: float, high: float) -> Array:
    return np.clip(2.0 * (values - low) / (high - low) - 1.0, -1.0, 1.0)


def _sign(values: np.ndarray) -> Array:
    return np.where(values, 1.0, -1.0)
