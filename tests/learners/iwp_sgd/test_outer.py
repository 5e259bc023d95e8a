"""Released outer products: unbiased by any mechanism, with a pure guarantee too, and what public rows add."""

import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from murk.errors import MurkError, UserError
from murk.inference.misfit import UNLIKE, misfit
from murk.learners import IWPSGDClassifier, IWPSGDRegressor
from murk.privacy import ApproxDP, GaussianDP, PureDP, SimulatedNoise
from murk.privacy.mechanisms import outer_product
from murk.privacy.mechanisms.outer_product import OuterGaussian, matrix_size, noise_of, outer_mechanism
from murk.privacy.mechanisms.outer_product import outer as outer_products
from murk.privacy.mechanisms.outer_product import write_outer as outer_of
from murk.protocols.examples import engine as engines
from murk.protocols.examples import layout as k
from murk.protocols.examples.device_kernels import to_units
from murk.protocols.examples.estimate import _floored_solution, estimate
from murk.protocols.examples.outer import matrix_of
from murk.protocols.examples.public_fit import PUBLIC_ROWS, Released, RowMoments, hidden, size_of_error, unlike
from murk.protocols.examples.settings import MOST_EXACT
from murk.protocols.linear_algebra import flattened
from murk.protocols.rows import Rows
from tests.learners.iwp_sgd.worlds import engine, release, settings

TRUTH = np.array([0.3, -0.2, 0.2])
EXTREMES = st.sampled_from([0.0, -1.0, 1.0, 1e-300, 1e300, -1e154, math.nan, math.inf, -math.inf])
ANY = st.one_of(st.floats(), st.floats(-1.0, 1.0), EXTREMES)


def units(rows, y, form=k.OUTER_LABEL, boxed=1, bound=1.0):
    out = np.empty((len(rows), rows.shape[1] + 1))
    to_units(form, boxed, bound, np.ascontiguousarray(rows, dtype=float), np.asarray(y, dtype=float), out)
    return out


@limits(max_examples=100, deadline=None)
@given(x=st.lists(ANY, min_size=3, max_size=3), y=ANY, real=st.booleans(), boxed=st.booleans())
def test_whatever_a_record_holds_its_vector_is_no_longer_than_one(x, y, real, boxed):
    found = units(np.array([[*x, 1.0]]), [y], k.OUTER_REAL if real else k.OUTER_LABEL, int(boxed), 2.5)
    assert np.all(np.isfinite(found))
    length = float(np.linalg.norm(found))
    assert length == 0.0 if math.isnan(y) else length <= 1.0 + 1e-12
    if not (real or math.isnan(y)):
        assert length == pytest.approx(1.0)


def test_the_blocks_are_what_a_fit_weighted_by_the_length_takes():
    v = units(np.array([[0.5, -2.0, 1.0]]), [0.3], k.OUTER_REAL)[0]
    x = np.array([0.5, -1.0, 1.0])  # -2 is projected to the box
    assert np.outer(v, v) * (1.0 + x @ x) == pytest.approx(np.outer([*x, 0.3], [*x, 0.3]))


MECHANISMS = [
    ("gaussian", GaussianDP(2.0)), ("gaussian", ApproxDP(3.0, 1e-5)), ("laplace", PureDP(8.0)),
    ("l2-ball", PureDP(3.0)), ("privunit", PureDP(3.0)), ("privunit", ApproxDP(4.0, 1e-6)),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "guarantee"), MECHANISMS)
@pytest.mark.parametrize("target", ["binary", "real"])
def test_matrix_gradient_and_loss_are_unbiased_under_every_mechanism(kind, guarantee, target):
    """10,000 releases of one record: every number within 5 standard errors (probability 6e-7 each; 15 of them).

    The twin, with numbers off the diagonal not projected from sqrt 2 of themselves, is further off.
    """
    mechanism = outer_mechanism(kind, guarantee, 4)
    row, y = np.array([[0.5, -0.8, 1.0]]), 1.0 if target == "binary" else -0.6
    v = units(row, [y], k.OUTER_REAL if target == "real" else k.OUTER_LABEL)
    n, theta = 10_000, np.array([0.4, -0.3, 0.2, -1.0])
    numbers = mechanism.decode(mechanism.randomize(np.repeat(v, n, axis=0), SimulatedNoise(5), np.arange(n)))
    true = np.outer(v, v)
    rows, columns = np.triu_indices(4)

    def off(found, expected):
        return abs(found.mean() - expected) / (found.std() / math.sqrt(n))

    matrices = np.array([matrix_of(each, 3) for each in numbers])
    assert all(off(matrices[:, i, j], true[i, j]) < 5.0 for i, j in zip(rows, columns, strict=True))
    assert off(matrices @ theta @ theta, theta @ true @ theta) < 5.0
    assert max(off(numbers[:, at], true[i, j]) for at, (i, j) in enumerate(zip(rows, columns, strict=True))) > 5.0
    least, most = noise_of(mechanism)
    assert max(np.var(numbers, axis=0)) < 1.1 * most
    assert min(np.var(numbers, axis=0)) > 0.9 * least


def test_next_to_no_noise_gives_the_fit_weighted_by_one_over_one_plus_the_square():
    """Not the unweighted one, which of this curved mean is 10 standard errors away."""
    rng = np.random.default_rng(1)
    x = rng.uniform(-1, 1, (20_000, 2)) ** 3
    y = np.clip(x[:, 0] + x[:, 0] ** 2 - 0.5 * x[:, 1] ** 2, -1, 1)
    rows = np.column_stack([x, np.ones(len(x))])

    def fit(weight):
        return np.linalg.solve((rows * weight[:, None]).T @ rows, rows.T @ (weight * y))

    model = IWPSGDRegressor(guarantee=GaussianDP(1000.0), release="outer", features=["a", "b"], seed=1)
    model.learn_many(x, y)
    found = model.estimate()
    assert found.values == pytest.approx(fit(1.0 / (1.0 + (rows**2).sum(axis=1))), abs=2e-4)
    assert np.max(np.abs(found.values - fit(np.ones(len(x))))) > 0.01
    assert "weighted by 1/(1 + |x|^2)" in found.note
    theta = np.append(found.values, -1.0)
    own = np.mean((np.column_stack([rows, y]) @ theta) ** 2 / (1.0 + (rows**2).sum(axis=1)) / 2.0)
    assert model.unbiased_loss == pytest.approx(own, abs=3e-3)


def test_the_best_mechanism_is_compared_by_its_own_noise():
    """Of (epsilon, delta) a pure one up to where Gaussian noise, calibrated to sqrt 2, has less; of the others it."""
    assert isinstance(outer_mechanism(None, GaussianDP(1.0), 4), OuterGaussian)
    for guarantee in (PureDP(1.0), ApproxDP(1.0, 1e-6), ApproxDP(0.5, 0.0)):
        found = outer_mechanism(None, guarantee, 4)
        assert found.guarantee == PureDP(guarantee.epsilon)
        assert found.kind in ("l2-ball", "privunit")
    assert isinstance(outer_mechanism("best", ApproxDP(1e-3, 0.4), 4), OuterGaussian)
    assert isinstance(outer_mechanism("best", ApproxDP(0.0, 0.1), 4), OuterGaussian)
    with pytest.raises(UserError, match="cannot give PureDP"):
        outer_mechanism("gaussian", PureDP(1.0), 4)


def people(n, seed, missing=0.0, rare=0.3):
    """Labels whose probability is linear in x, of a feature of two values and one of nine; some of them missing."""
    rng = np.random.default_rng([seed, 9])
    x = np.column_stack([np.where(rng.random(n) < rare, 1.0, -1.0), rng.integers(-4, 5, n) / 4.0])
    y = (rng.random(n) < 0.5 + 0.5 * (x @ TRUTH[:2] + TRUTH[2])).astype(float)
    y[(rng.random(n) < missing) & (x[:, 1] > 0)] = math.nan
    return x, y


def held(guarantee, count):
    """Of 3 coefficients in 20 draws, with 40% of targets missing on one side, how many intervals hold the truth; and
    how many of two fifths of the width.
    """
    whole, half = 0, 0
    for seed in range(20):
        made = engine(seed=seed, guarantee=guarantee, release="outer", loss="quadratic")
        made.learn_records(*people(count, seed, missing=0.4))
        found = made.estimate()
        missed, widths = np.abs(found.values - TRUTH), found.half_widths(0.95)
        whole, half = whole + int(np.sum(missed <= widths)), half + int(np.sum(missed <= 0.4 * widths))
    return whole, half


@pytest.mark.parametrize(("guarantee", "count"), [(GaussianDP(2.0), 20_000), (PureDP(3.0), 6_000)])
def test_intervals_hold_under_gaussian_noise_and_under_a_pure_guarantee(guarantee, count):
    """At 95% fewer than 48 of 60 hold with probability below 1e-5; of two fifths of the width 57% do, and fail."""
    whole, half = held(guarantee, count)
    assert whole >= 48
    assert half < 48


def test_examples_have_a_pure_guarantee_and_say_so():
    model = IWPSGDClassifier(guarantee=PureDP(2.0), features=["a", "b"], seed=1)
    mechanism = model._engine.mechanisms["default"]
    assert mechanism.guarantee == PureDP(2.0)
    assert model._engine.settings.release == "outer"
    assert settings(release="outer", loss="quadratic").digest != settings(release="directions", loss="quadratic").digest
    fixed = IWPSGDClassifier(guarantee=PureDP(2.0), mechanism="l2-ball", features=["a", "b"], seed=1)
    assert fixed._engine.mechanisms["default"].kind == "l2-ball"


def test_people_of_several_levels_and_partitions_are_learned_together():
    """Gaussian and pure levels on one partition; two partitions' sums add to what one has learned."""
    more = {"levels": {"pure": PureDP(6.0)}, "guarantee": GaussianDP(3.0), "release": "outer", "loss": "quadratic"}
    whole, *parts = (engine(**more) for _ in range(3))
    x, y = people(3000, 1)
    v = units(np.column_stack([x, np.ones(len(x))]), y)
    releases = []
    for i in range(len(x)):
        level = "pure" if i % 3 == 0 else "default"
        payload = whole.mechanisms[level].randomize(v[i : i + 1], SimulatedNoise(i), [i])[0]
        releases.append(release(payload, level, number=i))
    whole.learn_releases(releases)
    parts[0].learn_releases(releases[::2])
    parts[1].learn_releases(releases[1::2])
    one, merged = estimate([whole]), estimate(parts)
    assert merged.values == pytest.approx(one.values, rel=1e-9)
    assert merged.spread == pytest.approx(one.spread, rel=1e-9)
    assert np.all(np.abs(one.values - TRUTH) < 5.0 * one.spread)
    own = engine(seed=1, **more)
    mechanisms = [own.mechanisms["pure" if i % 3 == 0 else "default"] for i in range(len(x))]
    own.learn_records(x, y, mechanisms)
    assert own.estimate().spread == pytest.approx(one.spread, rel=0.2)


def released_of(made, count, level="default", seed=1):
    """Releases of people with as many features as an engine has, at a level."""
    rng, p = np.random.default_rng(seed), made.settings.features
    x = np.column_stack([rng.uniform(-1, 1, (count, p - 1)), np.ones(count)])
    v = units(x, (rng.random(count) < 0.5 + 0.3 * x[:, 0]).astype(float))
    payloads = made.mechanisms[level].randomize(v, SimulatedNoise(seed), range(count))
    return [release(payload, level, number=i) for i, payload in enumerate(payloads)]


@pytest.mark.parametrize("radius", [None, 0.1])
def test_the_covariance_is_that_of_all_residuals_at_the_estimate(radius):
    """Not of residuals at the estimates of their time, by which learners with more coefficients judge, nor of those at
    the estimate's projection onto the ball.
    """
    more = {"guarantee": GaussianDP(6.0), "release": "outer", "loss": "quadratic", "regularization": 0.1}
    made = engine(**more, radius=radius)
    releases = released_of(made, 700)
    made.learn_releases(releases)
    found, mechanism = made.estimate(), made.mechanisms["default"]
    matrices = np.array([matrix_of(each, 3) for each in mechanism.decode([each.payload for each in releases])])
    # The penalty of a release is in proportion to the constant's own entry.
    matrices[:, :3, :3] += 0.1 * matrices[:, 2, 2][:, None, None] * np.eye(3)
    inverse = np.linalg.inv(matrices[:, :3, :3].mean(axis=0))
    theta = inverse @ matrices[:, :3, 3].mean(axis=0)
    assert np.linalg.norm(theta) > 0.1
    residuals = matrices[:, :3] @ np.append(theta, -1.0)
    spread = np.sqrt(np.diag(inverse @ residuals.T @ residuals @ inverse)) / len(releases)
    assert found.values == pytest.approx(theta, rel=1e-9)
    # Eigenvalues that stand out from noise by chance widen intervals a little.
    assert found.spread == pytest.approx(spread, rel=1e-3)
    assert np.all(found.spread >= spread * (1 - 1e-12))


@pytest.mark.parametrize("size", [MOST_EXACT, MOST_EXACT + 1])
def test_parts_of_a_partition_join_up_to_a_number_of_coefficients(size):
    names = (*(f"f{i}" for i in range(size - 1)), "intercept")
    more = {"names": names, "square": float(size), "guarantee": GaussianDP(50.0), "release": "outer"}
    whole, first, second = (engine(loss="quadratic", **more) for _ in range(3))
    assert whole.joins == (size <= MOST_EXACT)
    releases = released_of(whole, 300)
    whole.learn_releases(releases)
    first.learn_releases(releases[:170])
    second.learn_releases(releases[170:])
    one, parts = whole.estimate(), estimate([first, second])
    assert parts.values == pytest.approx(one.values, rel=1e-6, abs=1e-9)
    same = parts.half_widths() == pytest.approx(one.half_widths(), rel=1e-6)
    assert same == (size <= MOST_EXACT)
    assert np.isfinite(one.half_widths()).any()
    assert parts.partitions == 2
    if whole.joins:
        first.join(second)
        assert first.n_releases == 300
        assert first.estimate().values == pytest.approx(one.values, rel=1e-6, abs=1e-9)
        assert all(math.isnan(each) for each in first.unbiased_loss)
        loaded = engine(loss="quadratic", **more)
        loaded.load_state_dict(first.state_dict())
        assert loaded.estimate().spread.tolist() == first.estimate().spread.tolist()


# Public rows


def covariates(count, seed, rare=0.3, turned=0.0):
    x, _ = people(count, [seed, 77][0] + 1000, rare=rare)
    if turned:
        rng = np.random.default_rng(seed)
        same = rng.random(count) < turned
        x[same, 1] = np.abs(x[same, 1]) * x[same, 0]
    points, counts = np.unique(x, axis=0, return_counts=True)
    return Rows.counted(np.column_stack([points, np.ones(len(points))]), counts)


def with_rows(rows, seed, n=20_000, target="binary", mu=1.0, **more):
    made = engine(target, guarantee=GaussianDP(mu), seed=seed, release="outer",
                  **({"loss": "quadratic"} if target == "binary" else {}), **more)  # fmt: skip
    x, y = people(n, seed)
    if target == "real":
        y = np.clip(x @ TRUTH[:2] + TRUTH[2] + np.random.default_rng(seed).uniform(-0.3, 0.3, n), -1, 1)
    made.learn_records(x, y)
    before = made.estimate()
    made.covariates = rows
    return before, made.estimate()


@pytest.mark.parametrize("target", ["binary", "real"])
def test_public_rows_narrow_intervals_of_labels_and_of_real_targets(target):
    """At 95% fewer than 48 of 60 hold with probability below 1e-5; of two fifths of the width 57% do, and fail."""
    kept = half = narrower = 0
    for seed in range(20):
        before, after = with_rows(covariates(2000, seed), seed, target=target, mu=0.7)
        assert (after.method, after.alike) == (PUBLIC_ROWS, True)
        off = np.abs(after.values - TRUTH)
        kept += int(np.sum(off <= after.half_widths(0.95)))
        half += int(np.sum(off <= 0.4 * after.half_widths(0.95)))
        narrower += after.standard_error < before.standard_error
    assert kept >= 48
    assert half < 48
    assert narrower >= 15


def test_intervals_with_public_rows_allow_for_estimates_outside_the_ball():
    """They are those within a large ball. Residuals at projections onto a small one would have less noise."""
    (one, inside), (other, outside) = (
        with_rows(covariates(2000, 3), 3, target="real", mu=4.0, radius=radius) for radius in (20.0, 0.05)
    )
    assert np.linalg.norm(outside.values) > 4.0 * 0.05
    assert outside.method == PUBLIC_ROWS
    for near, far in ((one, other), (inside, outside)):
        assert far.values == pytest.approx(near.values, rel=1e-9)
        assert far.spread == pytest.approx(near.spread, rel=1e-9)


def test_unknown_parts_of_coefficients_may_be_as_long_as_what_is_seen():
    """A ball that does not contain what is seen bounds nothing of what noise hides."""
    vectors = np.linalg.qr(np.array([[1.0, 0.1], [0.1, -1.0]]))[0]
    solve = partial(_floored_solution, np.array([1e-3, 1.0]), vectors, 3.0 * vectors[:, 1], np.eye(2), 1, 0.1)
    spreads = [solve(radius)[1] for radius in (0.1, 3.0, 6.0)]
    assert np.isfinite(spreads[0]).any()
    assert spreads[0] == pytest.approx(spreads[1])
    assert np.all(spreads[2] >= spreads[1])
    assert np.any(spreads[2] > spreads[1])


def test_rows_unlike_the_people_are_not_used_and_the_target_stays():
    before, after = with_rows(covariates(2000, 1, rare=0.9), 1)
    assert after.alike is False
    assert after.note.endswith("unlike the people's")
    assert np.array_equal(before.values, after.values)
    without = with_rows(covariates(2000, 1), 1, intercept=False)[1]
    assert without.values[2] == without.spread[2] == 0.0


def test_intervals_hold_where_rows_that_pass_are_wrong():
    """Rows of which a quarter have the features tied together: some pass. Fewer than 48 of 60 hold with 1e-5.

    The twin, intervals of two fifths of the width, fails.
    """
    kept = narrow = passed = 0
    for seed in range(20):
        _, after = with_rows(covariates(5000, seed, turned=0.12), seed, mu=1.0)
        passed += bool(after.alike)
        off = np.abs(after.values - TRUTH) / after.half_widths(0.95)
        kept += int(np.sum(off <= 1.0))
        narrow += int(np.sum(off <= 0.4))
    assert passed >= 5
    assert kept >= 48
    assert narrow < 48


def tied(n, seed):
    """Two features that are nearly the same, and labels whose probability is linear in them."""
    rng = np.random.default_rng([seed, 5])
    first = rng.integers(-4, 5, n) / 5.0
    x = np.column_stack([first, first + rng.choice([-0.1, 0.1], n)])
    return x, (rng.random(n) < 0.5 + 0.5 * (x @ TRUTH[:2] + TRUTH[2])).astype(float)


def test_a_weak_direction_that_rows_tell_is_not_hidden():
    """Noise hides what tells the two features apart from the releases alone; rows know how small it is.

    The two miss together, so one counts: at 95% fewer than 31 of 40 hold with probability below 1e-4; of half the width
    67% do, and fail.
    """
    kept = narrow = 0
    for seed in range(40):
        made = engine(guarantee=GaussianDP(4.0), seed=seed, release="outer", loss="quadratic")
        made.learn_records(*tied(4000, seed))
        alone = made.estimate()
        assert not np.isfinite(alone.spread[:2]).any()
        points, counts = np.unique(tied(2000, seed + 1000)[0], axis=0, return_counts=True)
        made.covariates = Rows.counted(np.column_stack([points, np.ones(len(points))]), counts)
        found = made.estimate()
        assert np.isfinite(found.spread).all()
        off = abs(found.values[0] - TRUTH[0]) / found.half_widths(0.95)[0]
        kept += off <= 1.0
        narrow += off <= 0.5
    assert kept >= 31
    assert narrow < 31


def test_an_error_in_proportion_to_a_matrix_hides_nothing():
    """Of the same size everywhere it hides the eigenvalues below it; of a tenth of the matrix itself none."""
    matrix, p = np.diag([1e-4, 0.1, 0.5]), 3
    values, vectors = np.linalg.eigh(matrix)
    everywhere = 1e-4 * np.eye(matrix_size(p))
    own = flattened(matrix)
    assert size_of_error(everywhere, np.eye(p)) == pytest.approx(2.0 * 0.01 * math.sqrt((p + 1) / 2.0))
    few, floor = hidden(values, vectors, everywhere, 0.7)
    assert few == 1
    assert floor == pytest.approx(0.7 * 2.0 * 0.01)
    assert hidden(values, vectors, 0.01 * np.outer(own, own), 0.7) == (0, 0.0)
    assert hidden(values, vectors, 9.0 * np.outer(own, own), 0.7)[0] == 3
    # What is not positive is no second moment.
    assert hidden(np.array([-1e-9, 0.1, 0.5]), vectors, 1e-20 * np.eye(6), 0.7)[0] == 1


def test_the_check_of_rows_raises_as_many_false_alarms_as_it_says():
    """At 2.326 standard deviations 1 in 100: of 20,000 draws within 130 and 270 (5 sd of a binomial); at 3.72 few.

    The twin, of one and a half times the covariance, raises far more.
    """
    rng = np.random.default_rng(3)
    covariance = np.diag([4.0, 1.0, 0.5, 0.1, 0.0])
    draws = rng.normal(size=(20_000, 5)) * np.sqrt(np.diag(covariance))
    found = np.array([misfit(draw, covariance) for draw in draws])
    assert 130 <= np.sum(found > 2.326) <= 270
    assert np.sum(found > UNLIKE) <= 12
    wide = np.array([misfit(math.sqrt(1.5) * draw, covariance) for draw in draws[:4000]])
    assert np.mean(wide > 2.326) > 0.03


def test_honest_rows_are_like_the_people():
    """The statistic of 100 honest worlds is standard normal, within 5 standard errors of mean 0 and variance 1."""
    rng = np.random.default_rng(4)
    found = []
    for seed in range(100):
        rows = RowMoments.of(covariates(2000, seed), 3, 1.0)
        x, _ = people(20_000, 5000 + seed)
        whole = np.column_stack([x, np.ones(len(x))])
        weight = 1.0 / (1.0 + (whole**2).sum(axis=1))
        noise = rng.normal(size=(3, 3)) * 0.01
        noisy = (whole * weight[:, None]).T @ whole / len(x) + (noise + noise.T) / 2.0
        told = Released(noisy, np.zeros(3), np.eye(3), np.zeros((1, 3)), (0.01**2, 0.01**2), float(len(x)))
        found.append(unlike(told, rows))
    assert abs(np.mean(found)) < 5.0 / math.sqrt(100)
    assert abs(np.var(found) - 1.0) < 5.0 * math.sqrt(2.0 / 100)


def test_more_coefficients_than_can_be_compared_do_without_rows():
    names = (*(f"x{i}" for i in range(34)), "intercept")
    made = engine(names=names, square=35.0, guarantee=GaussianDP(4.0), release="outer", loss="quadratic", seed=1)
    rng = np.random.default_rng(1)
    made.learn_records(rng.uniform(-1, 1, (500, 34)), (rng.random(500) < 0.5).astype(float))
    made.covariates = Rows.counted(np.ones((1, 35)), np.array([10]))
    assert "35 coefficients have too many second moments to compare" in made.estimate().note


@pytest.mark.parametrize("budget", [GaussianDP(1.0), PureDP(1.0)])
@pytest.mark.parametrize("broken", [False, True])
def test_nothing_of_a_record_stays_behind(budget, broken, monkeypatch):
    """Also where the noise fails: what held features, v or its product is zero afterwards; callers keep their rows."""
    held = []

    def units(form, boxed, bound, whole, y, out):
        to_units(form, boxed, bound, whole, y, out)
        assert whole.any()
        assert out.any()
        held.extend((whole, out))

    def one_by_one(vectors, found):
        outer_of(vectors, found)
        held.append(found)

    def products(vectors, features):
        found = outer_products(vectors, features)
        assert found.any()
        held.append(found)
        return found

    monkeypatch.setattr(engines, "to_units", units)
    monkeypatch.setattr(outer_product, "outer", products)
    # Compiled, these keep the matrix of one record at a time, which nobody else sees.
    monkeypatch.setattr(outer_product, "write_noisy_outer", outer_product._noisy_outer_early)
    monkeypatch.setattr(outer_product, "_outer_early", one_by_one)
    rows = np.full((3, 2), 0.25)
    model = IWPSGDClassifier(guarantee=budget, release="outer", features=[0, 1], seed=1)
    if broken:
        model.learn_many(rows, [True, False, True])
        held.clear()

        def fails(*_):
            raise MurkError("no randomness")

        monkeypatch.setattr(type(model._engine._noise), "gaussian", fails)
        monkeypatch.setattr(type(model._engine._noise), "words", fails)
        with pytest.raises(MurkError, match="no randomness"):
            model.learn_many(rows, [True, False, True])
    else:
        model.learn_many(rows, [True, False, True])
        model.learn_one({0: 0.25, 1: -0.5}, True)
    # Gaussian noise is drawn before there are matrices.
    assert len(held) >= (2 if broken else 3)
    assert not any(array.any() for array in held)
    assert np.all(rows == 0.25)
