"""Fits against exact ones, without privacy; repairs; and how sure they are."""

import gzip
import math
from dataclasses import replace
from importlib import resources

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom
from statsmodels.discrete.discrete_model import Logit
from statsmodels.genmod import families
from statsmodels.genmod.generalized_linear_model import GLM

from murk.inference.linear_probability import LineEstimate
from murk.privacy import ApproxDP, GaussianDP
from murk.protocols.mean_functions import LINKS, LOSSES, ResponseRange
from murk.protocols.moments import estimate
from murk.protocols.moments.estimate import DELTA, LEAST_SQUARES
from murk.protocols.moments.mechanisms import Level, calibrated
from murk.protocols.moments.model import MomentModel
from murk.protocols.moments.statistics import Statistics, balanced
from murk.protocols.moments.sums import MomentSums, Private, design_of, private_share
from murk.protocols.population import released_sum
from murk.protocols.rows import Rows

BINARY, OWN = ResponseRange(0.0, 1.0), ResponseRange(-1.0, 1.0)


def fit(sums, layout, *model, **more):
    return estimate.fit(MomentModel(*model, **more), sums, layout)


def exact(layout, X, y, noise=0.0, rng=None):
    """The sums of so many people, as if their releases had noise of that variance on average zero, or drawn."""
    n, mean = len(X), np.zeros(layout.dimension)
    for start in range(0, n, 20_000):
        mean += layout.vectors(X[start : start + 20_000], y[start : start + 20_000]).sum(axis=0) / n
    if rng is not None:
        mean = mean + rng.normal(size=layout.dimension) * math.sqrt(noise / n)
    # Noise has no direction, which is what stands in the fourth place where targets are told.
    return MomentSums(n * mean, np.array([n, n, n * noise, n * noise * (not layout.observed), n, n], dtype=float), n)


def layout_of(X, **more):
    p = X.shape[1]
    return Statistics(tuple(f"x{i}" for i in range(p)), math.sqrt(p), **{"weight": balanced(math.sqrt(p)), **more})


def people(X):
    counts = pd.DataFrame(X).value_counts()
    return Rows.counted(counts.index.to_frame().to_numpy(), counts.to_numpy())


@pytest.fixture(scope="module")
def mothers():
    with gzip.open(str(resources.files("murk.demo") / "data" / "mothers-1980.csv.gz"), "rt") as handle:
        head, *lines = handle.read().split()
    place = {name: i for i, name in enumerate(head.split(","))}
    table = np.array([line.split(",") for line in lines])
    yes = {name: np.where(table[:, place[name]] == "yes", 1.0, -1.0) for name in ("same_sex", "afam", "hispanic")}
    age = (table[:, place["age"]].astype(float) - 28) / 7
    weeks = table[:, place["weeks_worked"]].astype(float) / 26 - 1
    X = np.column_stack([yes["same_sex"], age, yes["afam"], yes["hispanic"], weeks, np.ones(len(table))])
    return X, (table[:, place["third_child"]] == "yes").astype(float)


def test_the_mothers_logistic_model(mothers):
    """Against statsmodels' maximum likelihood, and figures found by an independent program.

    Without noise the method differs from maximum likelihood only by Stein's identity not being exact for these
    features: less than 0.02 in any coefficient, where the smallest is 0.147.
    """
    X, y = mothers
    layout, public = layout_of(X), people(X)
    found = fit(exact(layout, X, 2 * y - 1), layout, LOSSES["logistic"], BINARY, public, "both")
    np.testing.assert_allclose(found.values, [0.148, 0.548, 0.295, 0.360, -0.354, -0.223], atol=5.1e-4)
    likely = Logit(y, X).fit(disp=0)
    np.testing.assert_allclose(found.values, likely.params, atol=0.02)
    assert found.estimate.method == DELTA
    # The same people, their covariates public: standard errors like maximum likelihood's (the bound on the residual
    # variance and the sample of covariates make them a little larger).
    assert np.all(found.estimate.spread > 0.9 * likely.bse)
    assert np.all(found.estimate.spread < 1.15 * likely.bse)
    # Taking the scores as normal moves no coefficient by more than a hundredth.
    normal = fit(exact(layout, X, 2 * y - 1), layout, LOSSES["logistic"], BINARY, None, "both")
    np.testing.assert_allclose(normal.values, found.values, atol=0.01)


@pytest.mark.parametrize("name", ["logistic", "poisson"])
def test_the_models_own_equations_give_maximum_likelihood(mothers, name):
    """With the same people public the two sides are those of maximum likelihood: equal up to rounding."""
    X, y = mothers
    layout = layout_of(X)
    family = {"logistic": families.Binomial(), "poisson": families.Poisson()}[name]
    likely = GLM(y, X, family=family).fit(tol=1e-12)
    sums = exact(layout, X, 2 * y - 1)
    found = fit(sums, layout, LOSSES[name], BINARY, people(X), "both", solver="score")
    np.testing.assert_allclose(found.values, likely.params, atol=1e-6)
    assert found.missing is None
    # The twin: the paper's two equations are near, and not that near.
    near = fit(sums, layout, LOSSES[name], BINARY, people(X), "both").values
    assert 1e-3 < np.max(np.abs(near - likely.params)) < 0.05


def test_the_models_own_equations_need_no_normal_features():
    """A strong effect of a rare trait: the paper's method converges to 1.8 for a truth of 1, this one to the truth."""
    rng = np.random.default_rng(21)

    def draw(n):
        return np.column_stack([np.where(rng.random(n) < 0.2, 1.0, -1.0), 0.4 * rng.normal(size=n), np.ones(n)])

    X, truth = draw(100_000), np.array([1.0, 1.0, -0.5])
    y = np.where(rng.random(len(X)) < 1 / (1 + np.exp(-X @ truth)), 1.0, -1.0)
    layout, public = layout_of(X), people(draw(20_000))
    sums = exact(layout, X, y, noise=4.0, rng=rng)
    ours = fit(sums, layout, LOSSES["logistic"], BINARY, public, "both", solver="score")
    # 3 coefficients, a false alarm once in 10^6 runs.
    assert np.all(np.abs(ours.values - truth) < 5.1 * ours.estimate.spread)
    paper = fit(sums, layout, LOSSES["logistic"], BINARY, public, "both")
    assert np.any(np.abs(paper.values - truth) > 5.1 * paper.estimate.spread)


def test_moments_that_no_coefficients_have_keep_the_direction():
    X = np.column_stack([np.linspace(-1, 1, 1000), np.ones(1000)])
    layout = layout_of(X)
    # Labels that are a function of the features, then shifted by noise beyond what any probabilities have.
    sums = exact(layout, X, np.sign(X[:, 0]), noise=30.0, rng=np.random.default_rng(1))
    found = fit(sums, layout, LOSSES["logistic"], BINARY, people(X), "both", solver="score")
    assert found.missing is not None
    assert list(found.missing.direction) == ["x0"]
    assert "no coefficients of logistic" in found.estimate.note
    assert np.all(np.isinf(found.estimate.spread))
    assert np.all(np.isfinite(found.values))


def test_the_papers_version_has_no_root_on_them(mothers):
    X, y = mothers
    for columns, most in ((slice(0, 5), 0.676), (slice(0, 6), 0.595)):
        Z = X[:, columns]
        layout = layout_of(Z, constant=False)
        found = fit(exact(layout, Z, y), layout, LOSSES["logistic"], OWN, people(Z), "both")
        assert found.missing is not None
        assert f"at most {most}" in str(found.missing)
        np.testing.assert_allclose(list(found.missing.direction.values()), np.linalg.lstsq(Z, y)[0], atol=1e-9)
        assert found.estimate.method == LEAST_SQUARES
        assert np.all(np.isinf(found.estimate.spread))
        assert "no factor c" in found.estimate.note


def normal_data(n=200_000, seed=5):
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.normal(size=(n, 2)) @ np.array([[0.3, 0.1], [0.0, 0.25]]), np.ones(n)])
    return rng, X, np.array([0.9, -0.6, -0.3])


FAMILIES = {
    "logistic": (lambda z: 1 / (1 + np.exp(-z)), families.Binomial()),
    "poisson": (lambda z: np.minimum(np.exp(z - 1), 1), families.Poisson()),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_normal_features_give_the_exact_fit_up_to_sampling(name):
    """Both estimates are consistent, so that their difference is sampling error: at most a few standard errors."""
    chance, family = FAMILIES[name]
    rng, X, truth = normal_data()
    y = (rng.random(len(X)) < chance(X @ truth)).astype(float)
    layout = layout_of(X)
    found = fit(exact(layout, X, 2 * y - 1), layout, LOSSES[name], BINARY, people(X), "both")
    likely = GLM(y, X, family=family).fit()
    # 6 coefficients in all, a false alarm once in 10^6 runs: 5.1 standard errors of the difference, which is at most
    # the sum of the two.
    assert np.all(np.abs(found.values - likely.params) < 5.1 * (found.estimate.spread + likely.bse))
    # The twin: without the factor they are far away.
    assert np.any(np.abs(found.direction - likely.params) > 5.1 * (found.estimate.spread + likely.bse))


@pytest.mark.parametrize("name", sorted(LINKS))
def test_links_give_the_truth_back(name):
    rng, X, truth = normal_data(40_000)
    curve = LINKS[name]
    fits = curve.mean(X @ truth)
    y = fits + rng.uniform(-0.2, 0.2, len(X))
    low, high = float(y.min()), float(y.max())
    response = ResponseRange(low, high)
    layout = layout_of(X)
    found = fit(exact(layout, X, (y - response.middle) / response.half), layout, curve, response, people(X), "both")
    # 18 coefficients, once in 10^6 runs.
    assert np.all(np.abs(found.values - truth) < 5.5 * found.estimate.spread)
    assert np.all(found.estimate.spread < 0.2)


def test_identity_is_ordinary_least_squares():
    rng, X, truth = normal_data(5000)
    y = np.clip(X @ truth / 4 + 0.1 * rng.normal(size=len(X)), -1, 1)
    layout = layout_of(X)
    # Some are beyond the bound and scaled down; least squares of what was released.
    held = np.column_stack([layout.vectors(X, y)[:, [2, 4]] / layout.root, np.ones(len(X))])
    found = fit(exact(layout, X, y), layout, LINKS["identity"], OWN, None, "private")
    np.testing.assert_allclose(found.values, np.linalg.lstsq(held, y)[0], atol=1e-9)


def test_an_indefinite_matrix_is_mended_and_says_so():
    _, X, truth = normal_data(2000)
    layout = layout_of(X)
    sums = exact(layout, X, np.sign(X @ truth), noise=400.0, rng=np.random.default_rng(3))
    private = Private.of(sums, layout)
    assert np.linalg.eigvalsh(private.matrix)[0] < 0
    design = design_of(private, None, "private")
    assert design.doubtful
    edge = 2 * math.sqrt(3 * np.mean(private.matrix_noise))
    assert np.linalg.eigvalsh(design.matrix)[0] == pytest.approx(edge)
    found = fit(sums, layout, LINKS["identity"], OWN, None, "private")
    assert np.all(np.isfinite(found.values))
    assert np.all(np.isinf(found.estimate.spread))
    assert "repair pulls coefficients towards 0" in found.estimate.note
    # Public covariates take the noise's place: nothing needs fixing.
    both = design_of(private, people(normal_data(5000, seed=9)[1]), "both")
    assert not both.doubtful
    assert both.share < 0.05


def test_without_repair_the_matrix_is_inverted_as_it_is_and_no_interval_is_given():
    _, X, truth = normal_data(2000)
    layout = layout_of(X)
    sums = exact(layout, X, np.sign(X @ truth), noise=400.0, rng=np.random.default_rng(3))
    private = Private.of(sums, layout)
    found = fit(sums, layout, LINKS["identity"], OWN, None, "private", repair=False)
    np.testing.assert_allclose(found.values, np.linalg.solve(private.matrix, private.cross))
    assert not np.allclose(found.values, fit(sums, layout, LINKS["identity"], OWN, None, "private").values)
    assert np.all(np.isinf(found.estimate.spread))
    assert "which are not repaired" in found.estimate.note
    # Where noise does not outweigh them there is nothing to fix, and intervals are as ever.
    quiet = exact(layout, X, np.sign(X @ truth))
    both = [fit(quiet, layout, LINKS["identity"], OWN, None, "private", repair=repair) for repair in (True, False)]
    assert np.array_equal(both[0].values, both[1].values)
    assert np.array_equal(both[0].estimate.spread, both[1].estimate.spread)


def test_a_feature_that_never_varies_divides_by_nothing():
    X = np.column_stack([np.zeros(100), np.linspace(-1, 1, 100), np.ones(100)])
    layout = layout_of(X)
    found = fit(exact(layout, X, X[:, 1]), layout, LINKS["identity"], OWN, None, "private")
    assert np.all(np.isfinite(found.values))
    assert np.all(np.isinf(found.estimate.spread))


def test_shares_of_private_and_public_moments():
    _, X, truth = normal_data(2000)
    layout, public = layout_of(X), people(normal_data(500, seed=8)[1])
    quiet = Private.of(exact(layout, X, np.sign(X @ truth)), layout)
    loud = Private.of(exact(layout, X, np.sign(X @ truth), noise=100.0), layout)
    # Without noise inverse variance and numbers of people agree (the paper's Remark 11).
    assert private_share(quiet, public, "both") == pytest.approx(private_share(quiet, public, "pooled"))
    assert private_share(quiet, public, "pooled") == 0.8
    # All of the public rows count, also those that are not kept.
    assert private_share(quiet, replace(public, total=2000.0), "pooled") == 0.5
    assert private_share(loud, public, "pooled") == 0.8
    assert private_share(loud, public, "both") < 0.05
    assert private_share(loud, public, "private") == private_share(loud, None, "both") == 1.0


@pytest.mark.parametrize("solver", ["stein", "score"])
def test_standard_errors_are_those_of_repeated_noise(solver):
    """The delta method against 200 redrawn releases of the same people."""
    _, X, truth = normal_data(40_000)
    rng = np.random.default_rng(11)
    y = (rng.random(len(X)) < 1 / (1 + np.exp(-X @ truth))).astype(float)
    layout, public = layout_of(X), people(normal_data(3000, seed=12)[1])
    clean = exact(layout, X, 2 * y - 1)
    noise, values = 9.0, []
    for _ in range(200):
        off = rng.normal(size=layout.dimension) * math.sqrt(noise / clean.count)
        sums = MomentSums(
            clean.total + clean.count * off, np.array([1, 1, noise, noise, 1, 1.0]) * clean.count, clean.count
        )
        found = fit(sums, layout, LOSSES["logistic"], BINARY, public, "both", solver=solver)
        assert found.missing is None
        values.append(found.values)
    drawn = np.std(values, axis=0)
    # What noise adds to the standard errors of the same fit without any: their squares' difference.
    silent = fit(clean, layout, LOSSES["logistic"], BINARY, public, "pooled", solver=solver).estimate.spread
    ratio = drawn / np.sqrt(found.estimate.spread**2 - silent**2)
    # A standard deviation from 200 draws is off by 1/sqrt(400) = 5%; 3 coefficients, once in 10^6 runs: 5.1 of
    # these. (Linearising costs little: the noise moves a coefficient by a fifth of itself.)
    assert np.all(np.abs(ratio - 1) < 5.1 / math.sqrt(400))
    # The twin: half the noise would be seen.
    assert np.all(np.abs(math.sqrt(2) * ratio - 1) > 5.1 / math.sqrt(400))


def test_nothing_learned_is_nothing_known():
    layout = Statistics(("a", "1"), 2.0)
    found = fit(
        MomentSums(np.zeros(layout.dimension), np.zeros(6), 0), layout, LOSSES["logistic"], BINARY, None, "both"
    )
    assert found.direction.tolist() == [0.0, 0.5]
    assert np.all(np.isinf(found.estimate.spread))


@pytest.mark.parametrize("curve", ["identity", "logistic"])
def test_missing_targets_leave_the_fit_of_the_others(curve):
    """Without noise, of moments that are told to be of the records with a target; jointly they shrink the fit."""
    rng = np.random.default_rng(5)
    X = np.column_stack([np.clip(rng.normal(size=(60_000, 2)) / 2, -1, 1), np.ones(60_000)])
    y = np.clip(X @ [0.4, -0.3, 0.2] + rng.uniform(-0.3, 0.3, 60_000), -1, 1)
    if curve == "logistic":
        y = np.sign(y)
    # More of them are missing where the first feature is positive.
    there = rng.random(60_000) > 0.2 + 0.6 * (X[:, 0] > 0)
    known = (LINKS | LOSSES)[curve], (OWN if curve == "identity" else BINARY), None, "private"
    layout = layout_of(X)
    whole = fit(exact(layout, X[there], y[there]), layout, *known)
    seen = replace(layout, observed=True)
    found = fit(exact(seen, X, np.where(there, y, np.nan)), seen, *known)
    np.testing.assert_allclose(found.values, whole.values, atol=1e-9)
    shrunk = fit(exact(layout, X, np.where(there, y, np.nan)), layout, *known)
    assert np.all(np.abs(shrunk.values[:2]) < 0.9 * np.abs(whole.values[:2]))
    # As many people as have a target: no fewer, and no more.
    np.testing.assert_allclose(found.estimate.spread, whole.estimate.spread, rtol=1e-6)


def test_intervals_contain_the_noise_of_the_share_of_targets():
    """The spread is that of fits to sums whose noise is drawn anew.

    Of 400 draws a variance is within 5 sqrt(2 / 400) = 35% but once in 10^6 runs; there are three of them.
    """
    rng, n, noise = np.random.default_rng(6), 40_000, 40.0
    X = np.column_stack([rng.choice([-1.0, 1.0], size=(n, 2)), np.ones(n)])
    y = np.where(rng.random(n) < 0.9, 1.0, -1.0)
    y[rng.random(n) < 0.5] = np.nan
    # At a target's scale as large as this there is little other noise in the constant.
    layout = layout_of(X, weight=20.0, observed=True)
    exactly, values = exact(layout, X, y), []
    known = np.array([n, n, n * noise, 0.0, n, n], dtype=float)
    for _ in range(400):
        drawn = MomentSums(exactly.total + math.sqrt(noise * n) * rng.normal(size=layout.dimension), known, n)
        found = fit(drawn, layout, LINKS["identity"], OWN, None, "private")
        values.append(found.values)
    variance = np.var(values, axis=0)
    private, people = Private.of(drawn, layout), 1.0 / (0.5 * n)
    assert private.share_noise == pytest.approx(noise / n / (2 * layout.presence * 0.5) ** 2, rel=0.2)
    # People are not drawn anew here: what is told has their part, too, E (1 - beta'x)^2 at most.
    told = found.estimate.spread**2
    assert np.all(variance < 1.35 * told)
    assert np.all(told < 1.35 * variance + people)
    # The twin: without the share's noise the constant's would be told too small.
    assert variance[-1] > 1.35 * (told[-1] - private.share_noise * found.values[-1] ** 2)


def test_where_noise_hides_how_many_targets_are_missing_there_is_no_interval():
    rng = np.random.default_rng(7)
    X = np.column_stack([rng.choice([-1.0, 1.0], size=(1_000, 1)), np.ones(1_000)])
    layout = replace(layout_of(X), observed=True)
    for missing, hidden in ((0.0, False), (1.0, True)):
        y = np.where(rng.random(1_000) < missing, np.nan, X[:, 0])
        sums = exact(layout, X, y, noise=10.0, rng=np.random.default_rng(8))
        found = fit(sums, layout, LINKS["identity"], OWN, None, "private").estimate
        assert np.all(np.isfinite(found.values))
        assert np.all(np.isinf(found.spread)) == hidden
        assert ("hides how many targets are missing" in found.note) == hidden


def _told(rng, X, y, rows, noise=40.0):
    """What is fitted to noisy sums of people whose targets are told, beside public rows."""
    layout = replace(layout_of(X), observed=True)
    return fit(exact(layout, X, y, noise, rng), layout, LINKS["identity"], OWN, people(rows), "both").estimate


def test_public_rows_like_the_people_are_used_and_others_are_not():
    """At one false alarm in 10,000 checks, of 200 two or more are seen in 2 of 10,000 runs of this test."""
    rng = np.random.default_rng(9)

    def drawn(count, share):
        return np.column_stack([np.where(rng.random((count, 2)) < share, 1.0, -1.0), np.ones(count)])

    found = []
    for share in (0.5, 0.7):
        alarms = 0
        for _ in range(200):
            X = drawn(4_000, 0.5)
            estimate = _told(rng, X, 0.3 * X[:, 0], drawn(1_000, share))
            alarms += estimate.alike is False
            assert ("they are unlike" in estimate.note) == (estimate.alike is False)
        found.append(alarms)
    assert found[0] <= 1
    assert found[1] >= 190
    # Targets are missing: what is fitted is of other people than the rows are, and the rows tell nothing of them.
    X = drawn(4_000, 0.5)
    y = np.where(rng.random(4_000) < 0.5, np.nan, 0.3 * X[:, 0])
    estimate = _told(rng, X, y, drawn(1_000, 0.5), noise=4.0)
    assert estimate.alike is True
    assert "targets are missing" in estimate.note


def test_levels_whose_shares_of_targets_differ_do_not_bias_the_fit():
    """People choose their level; both means of a release have one weight, so that the same people are in both."""
    rng = np.random.default_rng(10)
    X = np.column_stack([rng.choice([-1.0, 1.0], size=(20_000, 2)), np.ones(20_000)])
    y = X @ [0.3, 0.0, 0.5]
    first = rng.random(20_000) < 0.3
    y[~first & (rng.random(20_000) < 0.6)] = np.nan
    layout = replace(layout_of(X), observed=True)
    parts = []
    for mu, mine in ((4.0, first), (1.0, ~first)):
        level = Level.of(calibrated(GaussianDP(mu), layout), layout)
        weights, count = np.repeat(level.weights, [layout.cross, layout.size]), float(mine.sum())
        squares = [w * w * v * count for w, v in zip(level.weights, level.variances, strict=True)]
        sums = np.array([w * count for w in level.weights] + squares + [w * w * count for w in level.weights])
        parts.append(MomentSums(weights * layout.vectors(X[mine], y[mine]).sum(axis=0), sums, int(count)))
    found = fit(MomentSums.merged(parts), layout, LINKS["identity"], OWN, None, "private")
    np.testing.assert_allclose(found.values, [0.3, 0.0, 0.5], atol=1e-9)


@pytest.mark.parametrize("missing", [0.0, 0.4])
def test_intervals_hold_under_a_mechanism_of_directions(missing):
    """PrivUnit varies most along a vector's own direction; sums of many releases have exactly this covariance.

    Of 80 draws as few as `least` hold what 95% of them hold once in 10^6 runs; 4 coefficients are looked at, twice.
    """
    rng, n, draws = np.random.default_rng(11), 300_000, 80
    X = np.column_stack([np.clip(0.4 * rng.normal(size=(4_000, 3)), -1, 1), np.ones(4_000)])
    y = np.where(rng.random(4_000) < 0.5 + 0.3 * X[:, 0], 1.0, -1.0)
    y[rng.random(4_000) < missing] = np.nan
    layout = replace(layout_of(X), observed=True)
    mechanism = calibrated(ApproxDP(10.0, 1e-6), layout)
    level = Level.of(mechanism, layout)
    truth = fit(exact(layout, X, y), layout, LOSSES["logistic"], BINARY, None, "private").values
    V, counts = layout.vectors(X, y), np.full(4_000, n / 4_000)
    known = np.repeat([n * level.weights[0], 0.0, n * level.weights[0] ** 2], 2)
    known[2:4] = [n * level.weights[0] ** 2 * each for each in level.variances]
    held, narrow, least = np.zeros(4), np.zeros(4), binom.ppf(1e-6 / 8, draws, 0.95)
    for _ in range(draws):
        total = level.weights[0] * released_sum(mechanism, V, counts, rng)
        found = fit(MomentSums(total, known, n), layout, LOSSES["logistic"], BINARY, None, "private").estimate
        off = np.abs(found.values - truth) / found.spread
        held += off < 1.96
        narrow += off < 0.7
    assert np.all(held >= least)
    # The twin: a little over a third of the width, which holds it in 52%.
    assert np.all(narrow < least)


def test_the_models_own_equations_have_no_interval_where_targets_are_missing():
    rng = np.random.default_rng(12)
    X = np.column_stack([rng.choice([-1.0, 1.0], size=(40_000, 2), p=[0.8, 0.2]), np.ones(40_000)])
    y = np.where(rng.random(40_000) < 1 / (1 + np.exp(-X @ [1.0, 0.5, -0.5])), 1.0, -1.0)
    layout = replace(layout_of(X), observed=True)
    rows, other = people(X[:5_000]), people(X[:5_000] * [-1.0, 1.0, 1.0])

    def fitted(public, y):
        sums = exact(layout, X, y, noise=1.0, rng=np.random.default_rng(1))
        return fit(sums, layout, LOSSES["logistic"], BINARY, public, "both", solver="score").estimate

    hidden = np.where(rng.random(40_000) < 0.3, np.nan, y)
    whole, part, wrong = fitted(rows, y), fitted(rows, hidden), fitted(other, hidden)
    assert np.all(np.isfinite(whole.spread))
    # Still that solver's where rows are like the people: missing at random, it is the same fit.
    assert np.all(np.abs(part.values - whole.values) < 0.1)
    assert np.all(np.isinf(part.spread))
    assert "targets are missing" in part.note
    assert np.all(np.isinf(wrong.spread))
    assert "solver 'score'" in wrong.note
    assert (whole.alike, part.alike, wrong.alike) == (True, True, False)


def test_log_odds_without_public_covariates_hold_for_every_distribution_of_the_features():
    """A coin of one in five and a number: normal scores are off by a fifth, and no number of people mends it."""
    rng, n = np.random.default_rng(13), 400_000
    X = np.column_stack([np.where(rng.random(n) < 0.2, 1.0, -1.0), np.clip(rng.normal(size=n), -1, 1), np.ones(n)])
    theta = np.array([1.0, 0.7, -0.3])
    chance = 1 / (1 + np.exp(-X @ theta))
    y = np.where(rng.random(n) < chance, 1.0, -1.0)
    layout = replace(layout_of(X), observed=True)
    sums = exact(layout, X, y, noise=1.0, rng=rng)
    found = fit(sums, layout, LOSSES["logistic"], BINARY, None, "private").estimate
    assert isinstance(found, LineEstimate)
    off = np.abs(found.values - theta)
    # Noise and sampling alone, which is what a joint release's interval has, do not hold the first.
    assert off[0] > 5 * found.spread[0]
    assert np.all(off <= found.half_widths())
    effects, halves = found.effects()
    truth = theta * np.mean(chance * (1 - chance))
    assert np.all(np.abs(effects - truth)[:2] <= halves[:2])
    # Half the line is nearly the average effect.
    assert np.all(np.abs(effects - truth)[:2] < 0.05)
    other = found.scaled(np.array([2.0, 2.0, 1.0]))
    np.testing.assert_allclose(other.half_widths(), found.half_widths() * [2.0, 2.0, 1.0])
    np.testing.assert_allclose(other.effects()[1], halves * [2.0, 2.0, 1.0])
