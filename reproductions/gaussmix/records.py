"""The paper's generated records, and stand-ins for its files."""

from __future__ import annotations

import gzip
import math
from dataclasses import dataclass
from functools import cache
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from murk.demo import DATA
from reproductions.gaussmix.draws import Matrix, Vector, Window

FEATURES = 512
TRAINED, TESTED = 8192, 2048
_NOISE = 0.1
_SPREAD = math.sqrt(12.0)
"""Factor of uniform entries in the paper's public code."""


@dataclass(frozen=True)
class Records:
    """Training and test records, scaled so that training records have ``|x| <= 1`` and ``|y| <= 1``."""

    window: Window
    test: Matrix
    """Mean second moment of the test records ``(x, y)``, ``(p + 1, p + 1)``."""
    unit: float
    """Factor from squared errors to the units of the figure."""
    rows: Matrix
    """Training records ``(x, y)``, ``(n, p + 1)``."""

    @classmethod
    def of(cls, x: Matrix, y: Vector, x_test: Matrix, y_test: Vector, *, scaled: bool = False) -> Records:
        """Scale records as the paper does; targets only if ``scaled`` or beyond 1."""
        longest = float(np.sqrt(np.einsum("ij,ij->i", x, x).max()))
        most = float(np.abs(y).max())
        if not scaled:
            most = max(most, 1.0)
        z = np.column_stack([x / longest, y / most])
        test = np.column_stack([x_test / longest, y_test / most])
        return cls(Window(z.T @ z, len(z)), test.T @ test / len(test), 1.0 if scaled else most * most, z)


def subspace(
    rng: np.random.Generator, uniform: bool = False, features: int = FEATURES, line: float | None = None
) -> Records:
    """Draw normal or uniform records on a random subspace of 4 dimensions, and targets linear in them.

    Uniform entries are on [-sqrt 12, sqrt 12]. ``line`` fixes the squared length of the coefficients in the subspace,
    which is ``4 / features`` on average.
    """
    basis = np.linalg.qr(rng.normal(size=(features, 4)))[0].T
    direction = rng.normal(size=features)
    direction /= np.linalg.norm(direction)
    if line is not None:
        part = basis.T @ (basis @ direction)
        direction = part * math.sqrt(line) / np.linalg.norm(part)
    shape = TRAINED + TESTED, 4
    inside = _SPREAD * rng.uniform(-1.0, 1.0, shape) if uniform else rng.normal(size=shape)
    return _lined(inside @ basis, direction, rng)


def uniform(rng: np.random.Generator, features: int = FEATURES) -> Records:
    """Draw records with independent entries, uniform on [-1, 1]."""
    line = rng.normal(size=features)
    return _lined(rng.uniform(-1.0, 1.0, (TRAINED + TESTED, features)), line / np.linalg.norm(line), rng)


def network(rng: np.random.Generator, features: int = FEATURES) -> Records:
    """Pass two normal numbers through a random network with layers of 100 and ``features`` units."""

    def layer(x: Matrix, width: int) -> Matrix:
        sums = x @ rng.normal(size=(x.shape[1], width)) + 1e-3 * rng.normal(size=width)
        found: Matrix = 0.5 * (1.0 + np.tanh(0.5 * sums))
        return found

    line = rng.normal(size=features)
    x = layer(layer(rng.normal(size=(TRAINED + TESTED, 2)), 100), features)
    return _lined(x, line / np.linalg.norm(line), rng)


def _lined(x: Matrix, line: Vector, rng: np.random.Generator) -> Records:
    y = x @ line + _NOISE * rng.uniform(-1.0, 1.0, len(x))
    return Records.of(x[:TRAINED], y[:TRAINED], x[TRAINED:], y[TRAINED:])


def mothers(rng: np.random.Generator, n: int) -> Records:
    """Draw mothers, four fifths for training: weeks worked on five features and their products."""
    x, y = _mothers()
    return _split(x, y, rng, n)


def spectra(rng: np.random.Generator, n: int, features: int = 100) -> Records:
    """Draw nearly collinear smooth curves, and the height of one of their bumps as the target."""
    at = np.linspace(0.0, 1.0, features)
    heights = rng.uniform(0.0, 1.0, (n, 5))
    bumps = np.exp(-(((at - np.linspace(0.1, 0.9, 5)[:, None]) / 0.2) ** 2))
    x = 2.0 + heights @ bumps + 0.01 * rng.normal(size=(n, features))
    return _split(x, heights[:, 2] + 0.05 * rng.normal(size=n), rng, n)


def table(x: Matrix, y: Vector, rng: np.random.Generator) -> Records:
    """Split a file's records, four fifths for training."""
    return _split(x, y, rng, len(x))


def _split(x: Matrix, y: Vector, rng: np.random.Generator, n: int) -> Records:
    chosen = rng.permutation(len(x))[:n]
    own, others = chosen[: 4 * n // 5], chosen[4 * n // 5 :]
    return Records.of(x[own], y[own], x[others], y[others], scaled=True)


@cache
def _mothers() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    head, _, text = gzip.decompress(DATA.read_bytes()).decode().replace('"', "").strip().partition("\n")
    names = head.strip().split(",")
    # Splitting all cells at once is much faster than row by row.
    cells = text.replace("\r", "").replace("\n", ",").split(",")
    of = {name: np.array(cells[place :: len(names)]) for place, name in enumerate(names)}
    binary = [np.where(of[name] == "yes", 1.0, -1.0) for name in ("same_sex", "afam", "hispanic", "other")]
    own = [(of["age"].astype(np.float64) - 28.0) / 7.0, *binary]
    x = np.column_stack([*own, *(a * b for a, b in combinations(own, 2))])
    return x / math.sqrt(x.shape[1]), of["weeks_worked"].astype(np.float64)
