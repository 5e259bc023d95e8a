"""SGD and the optimum on true records, in plain NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
_LARGEST = 500.0


@dataclass(frozen=True)
class Margin:
    """A loss of the margin ``z = theta'x y`` and its first two derivatives."""

    name: str
    value: Callable[[Array], Array]
    slope: Callable[[Array], Array]
    bend: Callable[[Array], Array]

    def risk(self, theta: Array, u: Array) -> Array:
        """Return the mean loss over vectors ``y x`` (n, p), for one ``theta`` (p,) or each row (m, p)."""
        return np.asarray(self.value(u @ theta.T).mean(axis=0))


def _exp(z: Array) -> Array:
    return np.exp(np.minimum(z, _LARGEST))


def _logistic(z: Array) -> Array:
    return 1.0 / (1.0 + _exp(-z))


EXPONENTIAL: Final = Margin("exponential", lambda z: _exp(-z), lambda z: -_exp(-z), lambda z: _exp(-z))
LOG: Final = Margin(
    "log", lambda z: np.logaddexp(0.0, -z), lambda z: -_logistic(-z), lambda z: _logistic(z) * _logistic(-z)
)
QUADRATIC: Final = Margin("quadratic", lambda z: 0.5 * (z - 1.0) ** 2, lambda z: z - 1.0, np.ones_like)


def minimiser(loss: Margin, u: Array, ridge: float) -> Array:
    """Return the minimiser of mean loss plus ``ridge/2 |theta|^2``, by Newton's method."""
    theta = np.zeros(u.shape[1])
    for _ in range(50):
        z = u @ theta
        hessian = (u * loss.bend(z)[:, None]).T @ u / len(u) + ridge * np.eye(len(theta))
        move = np.linalg.solve(hessian, loss.slope(z) @ u / len(u) + ridge * theta)
        theta = theta - move
        if np.max(np.abs(move)) < 1e-10:
            break
    return theta


def sgd(
    slope: Callable[[Array, int], Array], u: Array, gamma: float, ridge: float, batch: int, at: Sequence[int]
) -> Array:
    """Return the iterates of SGD with constant steps after each number of batches in ``at``, one a row.

    ``slope`` maps the scores of a batch and the index of its first row to the rows' factors in the gradient.
    """
    theta, path, due = np.zeros(u.shape[1]), [], set(at)
    for number in range(max(at)):
        if number in due:
            path.append(theta)
        start = number * batch
        rows = u[start : start + batch]
        theta = theta - gamma * (slope(rows @ theta, start) @ rows / batch + ridge * theta)
    return np.array([*path, theta])
