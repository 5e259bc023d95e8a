"""The solver: noise-free limits, what taking the noise off does, several organisations, repairs, coverage."""

import numpy as np
import pytest
from statsmodels.regression.linear_model import OLS

from murk.errors import UserError
from murk.protocols.summaries.solve import FEWEST, solve
from murk.protocols.summaries.sums import SketchSums, gram, sketch_precision
from reproductions.gaussmix.baselines import check_rows, least_squares

THETA = np.array([0.4, -0.3, 0.2])


def records(rng, n, sigma=0.3):
    x = np.column_stack([rng.uniform(-1, 1, (n, 2)), np.ones(n)])
    return np.column_stack([x, x @ THETA + sigma * rng.normal(size=n)])


def fit(z):
    return OLS(z[:, -1], z[:, :-1]).fit().params


def added(second, noise, rows, rng, sums, records, weight=1.0):
    """Add a sketch of records with that second moment: its rows are N(0, Z'Z + v I)."""
    d = len(second)
    root = np.linalg.cholesky(second + noise * np.eye(d))
    sketch = rng.normal(size=(rows, d)) @ root.T
    sums.add(sketch.T @ sketch / rows, rows=rows, records=records, noise=noise, weight=weight)
    return sketch


def test_without_noise_or_mixing_it_is_least_squares():
    z = records(np.random.default_rng(1), 500)
    sums = SketchSums(4)
    sums.add(z.T @ z, rows=10**9, records=500, noise=0.0, weight=1.0)
    assert solve(sums).values == pytest.approx(fit(z), rel=1e-9)
    assert solve(sums, debiased=False).values == pytest.approx(fit(z), rel=1e-9)
    assert least_squares(z) == pytest.approx(fit(z), rel=1e-9)
    # With as many rows as anybody could want, the interval is that of the records' sampling alone.
    errors = np.sqrt(np.diag(solve(sums).covariance))
    assert errors == pytest.approx(OLS(z[:, -1], z[:, :-1]).fit().bse, rel=0.02)


def test_the_gram_kernel_is_the_products_and_repeats_bit_for_bit():
    rng = np.random.default_rng(2)
    integers = rng.integers(-(2**40), 2**40, size=(300, 5))
    one, two = np.zeros((5, 5)), np.zeros((5, 5))
    gram(integers, 2.0**-20, one)
    gram(integers, 2.0**-20, two)
    assert np.array_equal(one, two)
    assert np.array_equal(one, one.T)
    floats = integers * 2.0**-20
    assert one == pytest.approx(floats.T @ floats, rel=1e-12)


def test_the_noise_is_taken_off_without_bias_and_not_otherwise():
    """Mean of M'M/k - v I over 400 sketches against Z'Z; twins: nothing taken off, and the deviation for v.

    Entry (i, j) of M'M/k has variance (S_ii S_jj + S_ij^2)/k, so each mean lies within 5 of its standard errors but
    with probability 6e-7, 1e-5 for the 16 together.
    """
    rng = np.random.default_rng(3)
    z = records(rng, 200)
    second, noise, rows, draws = z.T @ z, 150.0, 50, 400
    total = SketchSums(4)
    for _ in range(draws):
        added(second, noise, rows, rng, total, 200)
    whole = second + noise * np.eye(4)
    errors = np.sqrt((np.outer(np.diag(whole), np.diag(whole)) + whole**2) / (rows * draws))
    mean = total.moment / draws
    assert np.all(np.abs(mean - total.noise / draws * np.eye(4) - second) < 5 * errors)
    for wrong in (0.0, np.sqrt(noise)):
        assert np.any(np.abs(mean - wrong * np.eye(4) - second) > 5 * errors)


def test_more_rows_help_the_debiased_estimate_and_shrink_the_published_one():
    rng = np.random.default_rng(4)
    z = records(rng, 4000)
    second, truth = z.T @ z, fit(z)
    # Noise as calibrated: its variance grows with the root of k.
    errors = {}
    for rows in (100, 6400):
        for _ in range(30):
            sums = SketchSums(4)
            added(second, 25.0 * np.sqrt(rows), rows, rng, sums, 4000)
            for debiased in (True, False):
                gap = solve(sums, debiased=debiased).values - truth
                errors.setdefault((rows, debiased), []).append(gap @ gap)
    mean = {case: np.mean(found) for case, found in errors.items()}
    assert mean[6400, True] < 0.5 * mean[100, True]
    assert mean[6400, True] < 0.1 * mean[6400, False]
    assert mean[6400, False] > 2 * mean[100, False]


def test_organisations_merge_by_sum_in_any_order():
    rng = np.random.default_rng(5)
    parts, all_together = [], SketchSums(4)
    for n in (300, 2000, 700):
        z = records(rng, n)
        sketch = rng.normal(size=(64, n)) @ z
        for sums in (part := SketchSums(4), all_together):
            sums.add(sketch.T @ sketch / 64, rows=64, records=n, noise=0.0, weight=sketch_precision(
                rows=64, records=n, noise=0.0, unit=0.1))  # fmt: skip
        parts.append(part)
    one, other = parts[0].merged(*parts[1:]), parts[2].merged(parts[1], parts[0])
    assert one.moment == pytest.approx(all_together.moment, rel=1e-12)
    assert solve(one).values == pytest.approx(solve(other).values, rel=1e-9)
    assert (one.releases, one.records, one.rows) == (3, 3000, 192)


def test_with_uniform_weights_it_is_the_regression_of_all_records():
    rng = np.random.default_rng(6)
    blocks = [records(rng, n) * [1, 1, 1, s] for n, s in ((500, 1.0), (1500, 3.0))]
    sums = SketchSums(4)
    for z in blocks:
        sums.add(z.T @ z, rows=10**6, records=len(z), noise=0.0, weight=1.0)
    assert solve(sums).values == pytest.approx(fit(np.vstack(blocks)), rel=1e-9)


def test_weights_by_precision_beat_uniform_ones_where_sizes_differ():
    rng = np.random.default_rng(7)
    errors = {True: [], False: []}
    seconds = [(n, (z := records(rng, n)).T @ z) for n in (1000, 30_000)]
    for _ in range(60):
        for weighted in errors:
            sums = SketchSums(4)
            for n, second in seconds:
                weight = sketch_precision(rows=64, records=n, noise=1.0, unit=0.1) if weighted else 1.0
                added(second, 1.0, 64, rng, sums, n, weight)
            errors[weighted].append(np.sum((solve(sums).values - THETA) ** 2))
    assert np.mean(errors[True]) < 0.8 * np.mean(errors[False])


def test_no_sketch_weighs_more_than_its_rows():
    for records_, noise in ((1, 0.0), (10**6, 1e5), (2**32, 1.0), (1, 1e9)):
        assert records_ * sketch_precision(rows=64, records=records_, noise=noise, unit=0.1) <= 64
    assert sketch_precision(rows=64, records=0, noise=1.0, unit=0.1) == 0.0


def test_what_the_noise_hides_is_shrunk_and_has_no_interval():
    rng = np.random.default_rng(8)
    worst = 0.0
    for _ in range(100):
        z = records(rng, 30)
        sums = SketchSums(4)
        added(z.T @ z, 500.0, 40, rng, sums, 30)
        found = solve(sums)
        assert found.held
        assert np.all(np.isinf(np.diag(found.covariance)))
        worst = max(worst, np.linalg.norm(found.values))
        assert np.all(np.isfinite(found.values))
    # Off-diagonal entries are of 500 / sqrt(40) = 79, the floor 2 * 500 * (2 sqrt(3/40) + 3/40) = 620: with a
    # factor 5 (p = 1e-6) for the largest. Without the floor the inverse of a random eigenvalue has no bound.
    assert worst < 5 * np.sqrt(3) * 79 / 620


def test_a_feature_that_never_varies_gets_the_shortest_fit():
    z = records(np.random.default_rng(9), 300)
    z = np.column_stack([z[:, :2], z[:, 2], 2 * z[:, 2], z[:, 3]])
    sums = SketchSums(5)
    sums.add(z.T @ z, rows=10**6, records=300, noise=0.0, weight=1.0)
    found = solve(sums)
    assert found.held == 1
    assert found.values == pytest.approx(np.linalg.lstsq(z[:, :-1], z[:, -1], rcond=None)[0], abs=1e-6)


def test_nothing_learned_is_all_zero_without_interval():
    found = solve(SketchSums(4))
    assert found.values.tolist() == [0.0, 0.0, 0.0]
    assert np.all(np.isinf(np.diag(found.covariance)))


@pytest.mark.parametrize("rows", [1, 3])
def test_fewer_rows_than_features_are_refused(rows):
    with pytest.raises(UserError, match=f"{rows} rows does not determine 3"):
        check_rows(rows, 3)
    with pytest.raises(UserError, match="rows"):
        least_squares(np.ones((rows, 4)))


@pytest.mark.parametrize(("n", "rows", "noise"), [(3000, 256, 0.0), (3000, 1024, 300.0), (1500, 4096, 900.0)])
def test_intervals_hold_the_population_as_often_as_they_say(n, rows, noise):
    """300 runs, three coefficients: 95% +- 5 standard errors of sqrt(.95 .05 / 300) = 0.0126, which allows for full
    dependence between the three; false alarm below 1e-6. The twin halves the standard errors: 67%."""
    rng = np.random.default_rng(10)
    hits, half = [], []
    for _ in range(300):
        z = records(rng, n)
        sums = SketchSums(4)
        added(z.T @ z, noise, rows, rng, sums, n)
        found = solve(sums)
        gap = np.abs(found.values - THETA) / np.sqrt(np.diag(found.covariance))
        hits.append(gap < 1.96)
        half.append(gap < 0.98)
    assert abs(np.mean(hits) - 0.95) < 5 * 0.0126
    assert np.mean(half) < 0.95 - 5 * 0.0126


@pytest.mark.parametrize("rows", [4, 3 + FEWEST - 1])
def test_so_few_rows_say_nothing_of_the_error(rows):
    rng = np.random.default_rng(8)
    z = records(rng, 5_000)
    sums = SketchSums(columns=4)
    added(z.T @ z, 0.0, rows, rng, sums, len(z))
    assert np.all(np.isinf(solve(sums).covariance))
    more = SketchSums(columns=4)
    added(z.T @ z, 0.0, 3 + FEWEST, rng, more, len(z))
    assert np.all(np.isfinite(solve(more).covariance))
