"""Coordinates from the ranges that a task states of its features (`typical`). Devices import this module."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from murk._internal.arrays import Floats
from murk._internal.wiping import empty
from murk.task.coding import Coding


@dataclass(frozen=True)
class StatedCoordinates:
    """Coordinates ``z_j = (x_j - m_j) / s_j`` of coded features with publicly stated centres m and spreads s.

    >>> import numpy as np
    >>> half = StatedCoordinates((0.5,), (0.25,))
    >>> half.rows(np.array([[0.75, 1.0]])).tolist(), half.matrix.tolist()
    ([[1.0, 1.0]], [[4.0, 0.0], [-2.0, 1.0]])
    """

    centres: tuple[float, ...]  # m, without the constant's
    spreads: tuple[float, ...]  # s, positive
    target: tuple[float, float] = (0.0, 1.0)  # centre and spread of a target that is one of the features

    @classmethod
    def of(cls, coding: Coding) -> StatedCoordinates | None:
        """Return the coordinates that a task states; None if it states none."""
        stated = coding.stated_coordinates
        return None if stated is None else cls(*stated)

    @property
    def largest_square(self) -> float:
        """Bound on the squared norm of a record's coordinates, the constant's 1 included, with room for rounding."""
        ends = [(1.0 + abs(centre)) / spread for centre, spread in zip(self.centres, self.spreads, strict=True)]
        return 1.0 + 2.0 * sum(end * end for end in ends)

    @property
    def ordinary_square(self) -> float:
        """Bound on the squared norm of most people's coordinates, without the constant's 1.

        It is the mean plus three standard deviations of the squared norm for independent normal features, but at most
        the largest squared norm of a record.
        """
        size = len(self.centres)
        return min(size + 3.0 * math.sqrt(2.0 * size), (1.0 + 1e-9) * (self.largest_square - 1.0) / 2.0)

    def rows(self, X: Floats) -> Floats:
        """Return a copy of coded rows ``X``, with or without the constant, in these coordinates."""
        rows = empty(X.shape)
        np.copyto(rows, X)
        features = rows[:, : len(self.centres)]
        features -= self.centres
        features /= self.spreads
        return rows

    @property
    def matrix(self) -> Floats:
        """The matrix from coefficients of z and of the constant to those of the coded features, (p, p)."""
        spreads = np.array(self.spreads)
        matrix = np.diag(np.append(1.0 / spreads, 1.0))
        matrix[-1, :-1] = -np.array(self.centres) / spreads
        return self.target[1] * matrix

    def coded(self, coefficients: Floats) -> Floats:
        """Return the coefficients (p,) of the coded features, from those of z."""
        return np.asarray(self.matrix @ coefficients + self.target[0] * np.eye(len(coefficients))[-1])

    def part(self, places: Sequence[int], aim: int) -> StatedCoordinates:
        """Return the coordinates of a model's features and target; places below zero are the task's own target."""
        centres, spreads = (*self.centres, 0.0), (*self.spreads, 1.0)
        at = [place if place >= 0 else len(self.centres) for place in (*places[:-1], aim)]
        *features, target = [(centres[index], spreads[index]) for index in at]
        chosen = zip(*features, strict=True) if features else ((), ())
        return replace(self, **dict(zip(("centres", "spreads"), map(tuple, chosen), strict=True)), target=target)
