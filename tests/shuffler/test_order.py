"""Within a crowd every place is as likely for every release, whenever it came."""

import numpy as np
from scipy.stats import chi2

from tests.shuffler.crowds import CROWD, drain, logs, make_task, message, numbers, shuffler

ROUNDS = 60
PARTS = 5


def statistic(positions: np.ndarray) -> float:
    """Pearson's statistic of parts of the arrival against parts of the position, of permutations (rounds, crowd)."""
    arrival = np.arange(CROWD) * PARTS // CROWD
    table = np.zeros((PARTS, PARTS))
    for row in positions:
        np.add.at(table, (arrival, row * PARTS // CROWD), 1)
    expected = table.sum() / PARTS**2
    # For uniform permutations the statistic times (n - 1) / n has PARTS - 1 squared degrees of freedom: margins are
    # fixed in each round.
    return float(((table - expected) ** 2).sum() / expected * (CROWD - 1) / CROWD)


def threshold() -> float:
    """A correct shuffler is above it with probability 1e-6."""
    return float(chi2.isf(1e-6, (PARTS - 1) ** 2))


def test_positions_do_not_depend_on_arrival(tmp_path):
    """Chi-square over 60 crowds; false alarm 1e-6."""
    task, rows = make_task(), []
    with logs(tmp_path, task) as (input_log, log), shuffler(tmp_path, input_log, log, task) as one:
        for first in range(0, ROUNDS * CROWD, CROWD):
            input_log.append([(0, message(task, first + i)) for i in range(CROWD)])
            assert drain(one) == CROWD
        crowds = np.array(numbers(log)).reshape(ROUNDS, CROWD)
    assert [sorted(row) for row in crowds.tolist()] == np.arange(ROUNDS * CROWD).reshape(ROUNDS, CROWD).tolist()
    # The position of each release of a crowd, in the order of arrival.
    rows = np.argsort(crowds, axis=1)
    assert statistic(rows) < threshold()
    # Twins, which the same test finds: the order of arrival in a third of a crowd, and a crowd whose halves come one
    # after the other, as if it had been shuffled in two batches.
    rng = np.random.default_rng(1)
    kept = rows.copy()
    kept[:, : CROWD // 3] = np.arange(CROWD // 3)
    assert statistic(kept) > threshold()
    half = CROWD // 2
    halves = np.array([[*rng.permutation(half), *half + rng.permutation(half)] for _ in range(ROUNDS)])
    assert statistic(halves) > threshold()


def test_the_twins_threshold_is_right(tmp_path):
    """Uniform permutations of NumPy's exceed the 1% point about as often: 400 draws, false alarm 1e-6."""
    rng, high = np.random.default_rng(2), float(chi2.isf(0.01, (PARTS - 1) ** 2))
    draws = [statistic(np.array([rng.permutation(CROWD) for _ in range(10)])) > high for _ in range(400)]
    # Binomial(400, 0.01) is above 17 with probability 1.4e-6, below 0 never.
    assert sum(draws) <= 17
