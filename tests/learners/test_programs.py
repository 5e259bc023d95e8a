"""Linear programs of few rows: against SciPy's solver, and shown to be right without it."""

import math

import numpy as np
import pytest
from scipy.optimize import linprog

from murk.learners.estimates import programs
from murk.learners.estimates.programs import largest


def by_scipy(cost, rows, low, high):
    """The answer of a solver that others wrote; None where no shares are allowed."""
    found = linprog(
        -cost, A_ub=np.vstack([rows, -rows]), b_ub=np.concatenate([high, -low]), bounds=(0.0, None), method="highs"
    )
    assert found.status in (0, 2)
    return -found.fun if found.status == 0 else None


@pytest.fixture
def alone(monkeypatch):
    """Nobody else is asked."""

    def asked(*_):
        raise AssertionError("not sure")

    monkeypatch.setattr(programs, "_by_scipy", asked)


def moments(rng, places=257):
    """A distribution on a line whose mean and variance are known; at times there is but one."""
    points = np.linspace(-rng.uniform(0.1, 10.0), rng.uniform(0.1, 10.0), places)
    away = points - rng.choice([rng.uniform(*points[[1, -2]]), *points[[1, places // 2]]])
    least, most = (points[1] - points[0]) ** 2 / 4, -away[0] * away[-1]
    variance = rng.choice([max(least, rng.uniform(0.0, 1.0) ** 3 * most), most])
    known = np.array([1.0, 0.0, variance])
    curve = np.tanh(points / 2)
    cost = [curve * away, (1 - curve**2) / 2, np.abs(curve - 0.3 * away), -np.abs(curve)][rng.integers(4)]
    return cost, np.vstack([np.ones(places), away, away**2]), known, known


def ranges(rng):
    """Sums over a plane that are known from both sides; at times they contradict each other."""
    u, v = (each.ravel() for each in np.meshgrid(np.linspace(-rng.uniform(1, 4), 3, 17), np.linspace(-1, 1, 33)))
    w = 1.0 / (2.0 + np.exp(u) + np.exp(-u))
    rows = np.vstack([np.ones_like(u), 1.0 + 0.2 * np.tanh(u) * v, w * u * u, w * u * v, w * v * v, w, w * u, w * v])
    known = rows @ rng.dirichlet(np.full(len(u), 0.01))
    doubt = np.abs(known) * rng.uniform(0.0, 0.3) + 1e-4
    if rng.random() < 0.3:
        # v is 1 at most, so that the sum of w v^2 is that of w at most.
        known[4] = known[5] + 2.0 * (doubt[4] + doubt[5])
    cost = [w * v**2, w * np.abs(v), w, -w][rng.integers(4)]
    return cost, rows, known - doubt, known + doubt


@pytest.mark.parametrize(("drawn", "forgotten"), [(moments, 2), (ranges, 5)])
def test_another_solver_finds_the_same(drawn, forgotten, alone):
    rng, feasible, more = np.random.default_rng(1), [], 0
    for _ in range(80):
        cost, rows, low, high = problem = drawn(rng)
        found, other = largest(*problem), by_scipy(*problem)
        assert (found is None) == (other is None)
        feasible.append(found is not None)
        if found is not None:
            close = 1e-6 * np.abs(cost).max()
            assert found == pytest.approx(other, rel=1e-6, abs=close)
            fewer = (np.delete(each, forgotten, axis=0) for each in (rows, low, high))
            more += largest(cost, *fewer) > other + 10.0 * close
    assert sum(feasible) > 40
    assert all(feasible) == (drawn is moments)
    # The twin: where a row is forgotten, there is mostly more to be had.
    assert more > 20


def test_bounds_of_one_side_redundant_rows_and_no_cost(alone):
    rows = np.array([[1.0, 1.0, 1.0], [2.0, 2.0, 2.0], [0.0, 1.0, 2.0]])
    open_ = np.full(3, -math.inf)
    assert largest(np.array([1.0, 2.0, 3.0]), rows, open_, np.array([1.0, 3.0, 1.0])) == pytest.approx(2.0)
    known = np.array([1.0, 2.0, 1.0])
    assert largest(np.array([1.0, 2.0, 4.0]), rows, known, known) == pytest.approx(2.5)
    assert largest(np.zeros(3), rows, open_, known) == 0.0
    assert largest(np.array([-1.0, -2.0, -4.0]), rows, open_, known) == 0.0
    assert largest(np.ones(3), rows, open_, np.array([-1.0, 1.0, 1.0])) is None


def test_what_has_no_largest_sum_is_infinite():
    rows = np.array([[1.0, -1.0]])
    assert largest(np.array([1.0, 0.0]), rows, np.array([-math.inf]), np.array([1.0])) == math.inf


def test_an_answer_that_is_not_shown_to_be_right_is_another_solvers(monkeypatch):
    """Cut short, or with errors of rounding that are as large as answers."""
    problem = moments(np.random.default_rng(5))
    usual, asked = largest(*problem), []
    by = programs._by_scipy
    monkeypatch.setattr(programs, "_by_scipy", lambda *given: asked.append(given) or by(*given))
    assert largest(*problem) == usual
    assert not asked
    monkeypatch.setattr(programs, "_STEPS", 1)
    assert largest(*problem) == pytest.approx(usual, rel=1e-6)
    monkeypatch.undo()
    monkeypatch.setattr(programs, "_by_scipy", lambda *given: asked.append(given) or by(*given))
    monkeypatch.setattr(programs, "_ZERO", 1e-2)
    assert largest(*problem) == pytest.approx(usual, rel=1e-6)
    assert len(asked) == 2
