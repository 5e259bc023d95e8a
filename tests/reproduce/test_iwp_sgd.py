"""What the reproductions of IWP-SGD stand on: generated data, plain SGD, and the survey's own file."""

import csv
import math

import numpy as np
import pytest

from murk.errors import UserError
from reproductions.experiment import Setting
from reproductions.iwp_sgd import SURVEY
from reproductions.iwp_sgd.convergence import fig8
from reproductions.iwp_sgd.people import two_tasks
from reproductions.iwp_sgd.plain import EXPONENTIAL, LOG, QUADRATIC, minimiser, sgd
from reproductions.iwp_sgd.synthetic import classification


def best_risk(x, y):
    u = x * np.where(y, 1.0, -1.0)[:, None]
    return float(QUADRATIC.risk(minimiser(QUADRATIC, u, 0.1), u))


@pytest.mark.parametrize("features", [2, 3])
def test_generated_data_are_as_scikit_learn_draws_them(features):
    """Mean risk of the best fit over 120 draws each, within 4.5 standard errors: false alarm below 1e-5.

    The twin draws the four corners of two features in any order, so that a third of the draws are crosswise.
    """
    from sklearn.datasets import make_classification

    ours, theirs = [], []
    for seed in range(120):
        ours.append(best_risk(*classification(1_000, features, np.random.default_rng([5, seed]))))
        x, y = make_classification(
            n_samples=1_000, n_features=features, n_informative=features, n_redundant=0, random_state=seed
        )
        x = 2 * (x - x.min(axis=0)) / (x.max(axis=0) - x.min(axis=0)) - 1
        theirs.append(best_risk(x, y > 0))
    error = math.hypot(np.std(ours), np.std(theirs)) / math.sqrt(120)
    assert abs(np.mean(ours) - np.mean(theirs)) < 4.5 * error
    if features == 2:
        crosswise = np.where(np.arange(120) % 3 == 0, 0.5, ours)
        assert abs(np.mean(crosswise) - np.mean(theirs)) > 4.5 * error


@pytest.mark.parametrize("loss", [EXPONENTIAL, LOG, QUADRATIC])
def test_sgd_on_true_records_ends_at_the_minimiser(loss):
    rng = np.random.default_rng(2)
    u = rng.uniform(-1, 1, (20_000, 3)) + np.array([0.5, 0.0, -0.2])
    path = sgd(lambda z, start: loss.slope(z), u, 0.02, 1.0, 20, [0, 500, 1_000])
    assert np.all(path[0] == 0.0)
    best = minimiser(loss, u, 1.0)
    assert np.linalg.norm(path[2] - best) < 0.1 * np.linalg.norm(best)
    # The derivatives that both rest on are those of the loss.
    z, h = np.linspace(-2, 2, 9), 1e-5
    np.testing.assert_allclose(loss.slope(z), (loss.value(z + h) - loss.value(z - h)) / (2 * h), atol=1e-9)
    np.testing.assert_allclose(loss.bend(z), (loss.slope(z + h) - loss.slope(z - h)) / (2 * h), atol=1e-9)


def survey(path, n, more=()):
    rng = np.random.default_rng(3)
    columns = [
        rng.integers(0, 95, n), rng.integers(1, 3, n), rng.integers(1, 25, n), rng.integers(0, 90, n),
        rng.integers(-5_000, 150_000, n), rng.integers(1, 3, n),
    ]  # fmt: skip
    with path.open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow([*SURVEY.columns, "PWGTP"])
        lines.writerows([*row, 1] for row in zip(*columns, strict=True))
        lines.writerows(more)
    return columns


def test_the_surveys_own_file_takes_the_place_of_the_mothers(tmp_path):
    # A child has no schooling and no income: an empty cell is nobody's number.
    age, _, _, hours, income, covered = survey(tmp_path / "people.csv", 12_000, [[4, 1, "", "", "", 1, 1]] * 50)
    setting = Setting(size="tiny", data=tmp_path / "people.csv")
    coverage, earning = two_tasks(setting)
    young = (age < 65) & (income <= 30_000)
    assert len(coverage.x) + len(coverage.test_x) == young.sum()
    assert sum(coverage.y > 0) + sum(coverage.test_y > 0) == (young & (covered == 1)).sum()
    adult = (age > 16) & (income > 100) & (hours > 0)
    assert len(earning.x) + len(earning.test_x) == adult.sum()
    assert sum(earning.y > 0) + sum(earning.test_y > 0) == (adult & (income > 50_000)).sum()
    assert np.all(np.abs(earning.x) <= 1)
    assert {row.tag for row in fig8(setting).rows} == {"reduced"}


def test_a_file_of_other_things_is_refused(tmp_path):
    survey(tmp_path / "few.csv", 300)
    with pytest.raises(UserError, match="give at least 1,000"):
        two_tasks(Setting(data=tmp_path / "few.csv"))
    survey(tmp_path / "words.csv", 300, [["old", 1, 1, 1, 1, 1, 1]])
    with pytest.raises(UserError, match="row 302, column AGEP: not a number"):
        two_tasks(Setting(data=tmp_path / "words.csv"))
