"""PrivUnit by rank: its exact distribution by enumeration, its calibration by quadrature, its release by simulation.

Seeds are fixed. Where draws are compared with a mean, the tolerance is 5.5 standard errors on both sides: had seeds
been drawn afresh, an assertion about one number would be wrong with probability 4e-8, and this file with 1e-5.
"""

import itertools
import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from murk.errors import UserError
from murk.privacy import ApproxDP, GaussianMechanism, L2BallMechanism, PrivUnitMechanism, PureDP, SimulatedNoise
from murk.privacy.mechanisms.lattice import NATS, gaussian_square
from murk.privacy.mechanisms.privunit import closest_share, fitted, gain, limit, moments, shared_threshold
from tests.privacy.mechanisms.scripted import Scripted

WORDS = 2**64
SIGMAS = 5.5


def close(values, expected):
    """Whether the mean of independent values is ``expected`` within the tolerance."""
    error = values.std(axis=0) / math.sqrt(len(values))
    return bool((abs(values.mean(axis=0) - expected) <= SIGMAS * error + 1e-12).all())


def made(dimension, draws, closest, epsilon, radius=1.0):
    return PrivUnitMechanism(
        dimension, radius, draws, closest, shared_threshold(round(epsilon * 10**12), draws, closest)
    )


# The exact distribution


def words_of(mechanism):
    """The first and the last word of each candidate: the closest in turn, then the others."""
    near, far = mechanism.odds
    others = 2 * mechanism.draws - mechanism.closest
    edges = [i * near for i in range(mechanism.closest)] + [mechanism.threshold + i * far for i in range(others)]
    return list(itertools.pairwise([*edges, WORDS]))


anything = hnp.arrays(np.float64, 3, elements=st.floats(width=64))


@pytest.mark.parametrize(("draws", "closest"), [(5, 2), (1, 1)])
@settings(max_examples=40, deadline=None)
@given(
    vector=anything,
    noise=hnp.arrays(np.int64, (5, 3), elements=st.integers(-3, 3)),
    rounding=st.integers(0, WORDS - 1),
    spare=st.integers(0, WORDS - 1),
)
def test_every_candidate_has_its_share_of_the_words_whatever_the_vector(draws, closest, vector, noise, rounding, spare):
    """The whole of the privacy claim, on integers: each of the closest has a words, each of the others b."""
    noise = noise[:draws]
    mechanism = made(3, draws, closest, 2.0)
    near, far = mechanism.odds
    assert mechanism.closest * near + (2 * mechanism.draws - mechanism.closest) * far == WORDS
    released = []
    for first, beyond in words_of(mechanism):
        ends = [
            mechanism.randomize(vector[None, :], Scripted(noise.ravel(), [rounding, word, spare]), [0])[0].tolist()
            for word in (first, (first + beyond) // 2, beyond - 1)
        ]
        assert ends[0] == ends[1] == ends[2]
        released.append(tuple(ends[0]))
    drawn = [tuple(row) if any(row) else (1, 0, 0) for row in noise.tolist()]
    candidates = drawn + [tuple(-x for x in row) for row in drawn]
    assert sorted(released) == sorted(candidates)
    # Those with the larger share point the vector's way, if it has one, more than any other.
    if np.isfinite(vector).all() and 1e-100 < abs(vector).max() < 1e100:
        towards = vector / np.linalg.norm(vector)
        scores = [np.dot(x, towards) / np.linalg.norm(x) for x in released]
        sign = 1 if sum(scores[:closest]) >= 0 else -1
        near, others = ([sign * score for score in part] for part in (scores[:closest], scores[closest:]))
        assert min(near) >= max(others) - 1e-9


# A coarse lattice with any distribution on it: here these points, as often as the numbers say.
POINTS = {
    (0, 0): 5, (1, 0): 4, (-1, 0): 4, (0, 1): 4, (0, -1): 4, (1, 1): 3, (-1, 1): 3, (1, -1): 3, (-1, -1): 3, (2, 1): 1
}  # fmt: skip


def exact_law(mechanism, vector):
    """How often, of all points and words, each payload of a vector of full length is released: exact integers."""
    found = dict.fromkeys([*POINTS, (-2, -1)], 0)
    candidates = words_of(mechanism)
    for drawn in itertools.product(POINTS, repeat=mechanism.draws):
        weight = math.prod(POINTS[point] for point in drawn)
        noise = np.array(drawn, dtype=np.int64).ravel()
        for first, beyond in candidates:
            payload = mechanism.randomize(vector, Scripted(noise, [0, first, 0]), [0])[0]
            found[tuple(payload.tolist())] += weight * (beyond - first)
    assert sum(found.values()) == sum(POINTS.values()) ** mechanism.draws * WORDS
    return found


@pytest.mark.parametrize(("draws", "closest"), [(1, 1), (3, 2)])
def test_the_exact_law_of_a_coarse_lattice_keeps_to_epsilon(draws, closest):
    """No payload is more than e^epsilon times as likely under one vector as under another: integers, no tolerance."""
    angles = np.linspace(0.1, 2 * math.pi + 0.1, 6 if draws == 1 else 4, endpoint=False)
    vectors = [np.array([[math.cos(angle), math.sin(angle)]]) for angle in angles]
    mechanism, twin = made(2, draws, closest, 1.0), made(2, draws, closest, 1.6)
    near, far = mechanism.odds

    def holds(laws):
        # P(x | v) / P(x | v') <= a / b <= e, and e^1 is within 1e-15 of a / b.
        return all(one[x] * far <= other[x] * near for one, other in itertools.permutations(laws, 2) for x in one)

    assert near / far <= math.e < 1.000001 * near / far
    assert holds([exact_law(mechanism, vector) for vector in vectors])
    # The twin was made for another epsilon.
    assert not holds([exact_law(twin, vector) for vector in vectors])


@pytest.mark.parametrize("units", [1, 10**6, 10**11, 10**12, 5 * 10**12, 30 * 10**12, 10**18])
@pytest.mark.parametrize(("draws", "closest"), [(1, 1), (9, 8), (54, 8), (1000, 1)])
def test_the_odds_are_certified(units, draws, closest):
    threshold = shared_threshold(units, draws, closest)
    others = 2 * draws - closest
    if units == 1 and draws > 1:
        # 2^64 words cannot be shared out so evenly; and calibration takes one draw there.
        assert fitted(10, 1e-12) == (1, 1)
        return
    mechanism = PrivUnitMechanism(5, 1.0, draws, closest, threshold)
    near, far = mechanism.odds
    with mpmath.workdps(100):
        exact = mpmath.mpf(units) / 10**12
        assert mpmath.mpf(near) / far <= mpmath.exp(exact)
        # The next larger odds would be too large, unless they cannot be expressed.
        less = far - closest
        assert less <= 0 or mpmath.mpf((WORDS - others * less) // closest) / less > mpmath.exp(exact)
        claimed = mpmath.mpf(repr(mechanism.guarantee.epsilon))
        assert mpmath.log(mpmath.mpf(near) / far) <= claimed
        assert claimed <= exact * (1 + mpmath.mpf(10) ** -15)
    assert mechanism.cost("epsilon").units <= units
    assert mechanism.cost("approx").delta_units == 0


def test_one_draw_is_the_l2_ball():
    ball = L2BallMechanism.calibrate(PureDP(2.0), dimension=4, radius=1.5)
    one = made(4, 1, 1, 2.0, radius=1.5)
    assert one.threshold == ball.threshold
    assert (one.unit, one.variance) == pytest.approx((ball.unit, ball.variance), rel=1e-12)
    assert one.second_moment == pytest.approx(ball.second_moment, rel=1e-12)
    vectors, noise, records = np.random.default_rng(1).normal(size=(500, 4)), SimulatedNoise(2), np.arange(500)
    assert (one.randomize(vectors, noise, records) == ball.randomize(vectors, noise, records)).all()


# Calibration


def precise_moments(dimension, draws, closest):
    """Mean and mean square of the closest scores, by quadrature over the angle with 30 digits."""
    d = mpmath.mpf(dimension)
    constant = 2 * mpmath.gamma(d / 2) / (mpmath.sqrt(mpmath.pi) * mpmath.gamma((d - 1) / 2))

    def density(angle):
        above = mpmath.betainc((d - 1) / 2, mpmath.mpf(1) / 2, 0, mpmath.cos(angle) ** 2, regularized=True)
        chance = mpmath.fsum(
            mpmath.binomial(draws - 1, i) * above**i * (1 - above) ** (draws - 1 - i) for i in range(closest)
        )
        return constant * mpmath.cos(angle) ** (dimension - 2) * chance * draws / closest

    end = min(mpmath.pi / 2, 14 / mpmath.sqrt(d))
    panels = mpmath.linspace(0, end, 7)
    return tuple(mpmath.quad(lambda t, p=p: mpmath.sin(t) ** p * density(t), panels) for p in (1, 2))


@pytest.mark.parametrize(("dimension", "draws", "closest"), [(2, 5, 2), (3, 1, 1), (11, 20, 4), (400, 40, 1)])
def test_scores_of_the_closest_against_quadrature_in_high_precision(dimension, draws, closest):
    with mpmath.workdps(30):
        exact = precise_moments(dimension, draws, closest)
        for found, value in zip(moments(dimension, draws, closest), exact, strict=True):
            assert abs(found / value - 1) < 1e-11
    # The twin: one draw more or less is another distribution.
    for other in ({draws + 1, draws - 1} - {0}) if draws > 1 else {2}:
        assert abs(moments(dimension, other, closest)[0] / float(exact[0]) - 1) > 1e-4


@pytest.mark.parametrize("dimension", [2, 3, 11, 65, 1000])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0, 8.0])
def test_the_limit_is_that_of_privunit(dimension, epsilon):
    """Its q and m, as published, at the cap that makes m largest."""
    with mpmath.workdps(30):
        d, odds = mpmath.mpf(dimension), mpmath.exp(epsilon)

        def q_and_m(gamma):
            q = mpmath.betainc((d - 1) / 2, mpmath.mpf(1) / 2, 0, 1 - gamma**2, regularized=True) / 2
            share = mpmath.gamma(d / 2) / (mpmath.sqrt(mpmath.pi) * mpmath.gamma((d - 1) / 2))
            c = (1 - gamma**2) ** ((d - 1) / 2) / (d - 1) * share
            return q, c * (odds - 1) / (1 - q + odds * q)

        low, high = mpmath.mpf(0), mpmath.mpf(1)
        while high - low > 1e-9:
            one, other = low + (high - low) * 0.382, low + (high - low) * 0.618
            low, high = (low, other) if q_and_m(one)[1] > q_and_m(other)[1] else (one, high)
        q, m = q_and_m(low)
    gamma, found_q, found_m = limit(dimension, epsilon)
    assert found_m == pytest.approx(float(m), rel=1e-3)
    assert found_m <= float(m) * (1 + 1e-12)
    assert found_q == pytest.approx(float(q), rel=0.1)
    # q and m of the very cap that it gives.
    with mpmath.workdps(30):
        assert (found_q, found_m) == pytest.approx([float(value) for value in q_and_m(mpmath.mpf(gamma))], rel=1e-9)


@pytest.mark.parametrize(
    ("epsilon", "gaussian", "ball", "privunit"), [(1, 71.4, 7.03, 6.10), (4, 5.70, 1.62, 0.464), (8, 1.71, 1.50, 0.179)]
)
def test_variances_in_eleven_dimensions(epsilon, gaussian, ball, privunit):
    """A coordinate's, of unit vectors at (epsilon, 1e-6)."""
    guarantee = ApproxDP(float(epsilon), 1e-6)
    made_for = {"dimension": 11, "radius": 1.0}
    assert GaussianMechanism.calibrate(guarantee, **made_for).variance == pytest.approx(gaussian, rel=5e-3)
    assert L2BallMechanism.calibrate(guarantee, **made_for).variance == pytest.approx(ball, rel=5e-3)
    assert 1 / (11 * limit(11, epsilon)[2] ** 2) == pytest.approx(privunit, rel=5e-3)
    assert 0.999 < PrivUnitMechanism.calibrate(guarantee, **made_for).variance / privunit < 1.035


@pytest.mark.parametrize("dimension", [1, 2, 3, 7, 30, 300, 3000, 150_000])
@pytest.mark.parametrize("epsilon", [1e-6, 0.3, 1.0, 3.0, 6.0, 12.0, 44.0, 1000.0])
def test_calibration_reaches_the_limit_where_the_work_allows_it(dimension, epsilon):
    mechanism = PrivUnitMechanism.calibrate(PureDP(epsilon), dimension=dimension, radius=1.0)
    ball = L2BallMechanism.calibrate(PureDP(epsilon), dimension=dimension, radius=1.0)
    best = 1 / (dimension * limit(dimension, epsilon)[2] ** 2)
    assert mechanism.draws * dimension <= max(2**17, dimension)
    assert 0.999999 * best <= mechanism.variance <= ball.variance * (1 + 1e-9)
    # Twice as many draws would not have been allowed.
    assert mechanism.variance <= 1.0301 * best or 2 * mechanism.draws * dimension > 2**17
    assert mechanism.guarantee.epsilon <= epsilon


def test_what_is_calibrated_is_what_it_was():
    # Learners and devices must agree on these integers, whatever their versions.
    def integers(dimension, epsilon):
        mechanism = PrivUnitMechanism.calibrate(PureDP(epsilon), dimension=dimension, radius=1.0)
        return mechanism.draws, mechanism.closest, mechanism.threshold

    assert integers(1, 1.0) == (1, 1, 13_485_650_502_877_570_762)
    assert integers(11, 0.1)[:2] == (1, 1)
    assert [integers(11, epsilon)[:2] for epsilon in (1.0, 4.0, 8.0)] == [(23, 16), (54, 8), (429, 4)]
    assert integers(11, 4.0)[2] == 15_010_221_594_215_430_016


def test_scores_among_the_closest():
    """Over all scores, k of n are: to the accuracy of an interpolation, which only audits use."""
    scores = np.sqrt(np.random.default_rng(3).beta(0.5, 5.0, 200_000))  # of 11 dimensions
    assert closest_share(11, 54, 8, scores).mean() == pytest.approx(8 / 54, rel=0.02)
    assert (closest_share(11, 54, 8, np.array([0.0, 1.0])) == [0.0, 1.0]).all()
    assert closest_share(1, 4, 2, np.ones(3)).tolist() == [0.5, 0.5, 0.5]


# Releases


@pytest.mark.parametrize(
    ("dimension", "epsilon", "vector"),
    [
        (1, 1.0, [-0.7]),
        (2, 2.0, [0.6, 0.8]),
        (3, 3.0, [0.0, 0.0, 0.0]),
        (3, 3.0, [0.0, 1e-13, 0.0]),
        (11, 1.0, [0.5, -0.5, 0.0, 0.0, 0.1, 0.0, 0.0, 0.0, 0.0, 0.0, 0.2]),
        (6, 5.0, [3.0, 4.0, 0.0, 0.0, 0.0, 0.0]),
    ],
)
def test_releases_are_unbiased_with_the_moments_they_say(dimension, epsilon, vector):
    mechanism = PrivUnitMechanism.calibrate(PureDP(epsilon), dimension=dimension, radius=1.0)
    count, v = 20_000, np.array(vector)
    payload = mechanism.randomize(np.tile(v, (count, 1)), SimulatedNoise(31), np.arange(count))
    released = mechanism.decode(payload)
    norm = np.linalg.norm(v)
    mean = v / max(norm, 1.0)
    assert close(released, mean)
    np.testing.assert_allclose(np.linalg.norm(released, axis=1), mechanism.unit, rtol=1e-12)
    across, along = mechanism.second_moment
    assert (dimension - 1) * across + along == pytest.approx(mechanism.unit**2, rel=1e-12)
    towards = v / norm if norm else np.eye(1, dimension)[0]
    assert close((released @ towards) ** 2, along)
    if norm >= 0.1:
        # The twins: another norm is biased, another epsilon has another spread along the vector.
        assert not close(released * 1.3, mean)
    if dimension > 1:
        other = PrivUnitMechanism.calibrate(PureDP(epsilon + 1.5), dimension=dimension, radius=1.0)
        assert not close((released @ towards) ** 2 / mechanism.unit**2, other.second_moment[1] / other.unit**2)


def test_directions_are_uniform_around_the_vector():
    """In three dimensions the angle around the vector is uniform (Kolmogorov-Smirnov, false alarm 1e-7)."""
    mechanism, count = made(3, 8, 2, 3.0), 20_000
    payload = mechanism.randomize(np.tile([0.0, 0.0, 1.0], (count, 1)), SimulatedNoise(32), np.arange(count))
    angle = np.sort(np.arctan2(payload[:, 0], payload[:, 1]) / (2 * math.pi) + 0.5)
    allowed = math.sqrt(math.log(2e7) / (2 * count))
    assert abs(angle - np.arange(count) / count).max() < allowed
    assert abs(angle**1.1 - np.arange(count) / count).max() > allowed


def test_the_odds_of_being_close():
    """The closest of many more draws are counted: p of them where there were k of 2n; the twin's p is seen."""
    mechanism, count = made(5, 4, 2, 2.0), 40_000
    towards = np.array([0.6, 0.0, 0.8, 0.0, 0.0])
    payload = mechanism.randomize(np.tile(towards, (count, 1)), SimulatedNoise(33), np.arange(count))
    side = (payload @ towards > 0).astype(float)
    share = mechanism.threshold / WORDS
    # Of the others, 2 point the other way for being the negative of a close one, and half of the rest.
    expected = share + (1 - share) * 2 / 6
    assert close(side, expected)
    for epsilon in (1.8, 2.2):
        other = made(5, 4, 2, epsilon).threshold / WORDS
        assert not close(side, other + (1 - other) * 2 / 6)


def test_many_draws_come_in_blocks_and_records_stay_their_own():
    mechanism = made(50, 5000, 16, 6.0)
    vectors = np.random.default_rng(4).normal(size=(9, 50))
    together = mechanism.randomize(vectors, SimulatedNoise(5), np.arange(9))
    for i in (0, 4, 8):
        assert (mechanism.randomize(vectors[i : i + 1], SimulatedNoise(5), [i])[0] == together[i]).all()


def test_how_long_an_honest_payload_is():
    """The release is one of the draws, at most 2 n a / 2^64 times as often: e^-32 of draws, less that."""
    mechanism = made(11, 54, 8, 4.0)
    [(start, stop, square)] = mechanism.payload_bound.parts
    nats = math.ceil(math.log(2 * 54 * mechanism.odds[0] / WORDS))
    assert (start, stop, square) == (0, 11, gaussian_square(11, 0, NATS + nats))
    assert nats == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"draws": 0}, "draws=0"),
        ({"draws": 2**19}, "2\\^20"),
        ({"closest": 0}, "closest=0"),
        ({"closest": 5}, "closest=5"),
        ({"closest": 1.0}, "not an integer"),
        ({"threshold": 2**64 - 7}, "cannot be shared equally"),
        ({"threshold": 2**63}, "with a smaller share"),
        ({"threshold": 2**64}, "with a smaller share"),
        ({"threshold": 0}, "with a smaller share"),
        ({"radius": 0.0}, "radius"),
        ({"dimension": 0}, "dimension"),
    ],
)
def test_impossible_parameters(changes, message):
    # Four candidates of eight: even odds are not a choice.
    gain_of = {"dimension": 3, "radius": 1.0, "draws": 4, "closest": 4, "threshold": 2**64 - 2**62}
    assert PrivUnitMechanism(**gain_of).guarantee.epsilon == pytest.approx(math.log(3))
    with pytest.raises(UserError, match=message):
        PrivUnitMechanism(**{**gain_of, **changes})


def test_budgets_that_cannot_be_given():
    with pytest.raises(UserError, match="at least 1e-12"):
        PrivUnitMechanism.calibrate(PureDP(1e-13), dimension=3, radius=1.0)
    with pytest.raises(UserError, match="one calibration"):
        PrivUnitMechanism.calibrate(ApproxDP(1.0, 1e-6), dimension=3, radius=1.0, method="classic")


def test_the_mean_over_candidates_is_nothing():
    """m as a sum over ranks: p of the closest's mean, less what the others, whose sum is the opposite, take back."""
    mean = moments(7, 20, 4)[0]
    assert gain(7, 20, 4, 0.9) == pytest.approx(0.9 * mean - 0.1 * 4 * mean / 36)
    assert gain(7, 20, 4, 4 / 40) == pytest.approx(0.0, abs=1e-15)


@pytest.mark.parametrize("dimension", [3, 20])
def test_a_decoded_release_has_one_length_and_the_variance_is_its_share(dimension):
    mechanism = PrivUnitMechanism.calibrate(PureDP(2.0), dimension=dimension, radius=0.7)
    released = mechanism.randomize(np.full((50, dimension), 0.1), SimulatedNoise(1), np.arange(50))
    squares = (mechanism.decode(released) ** 2).sum(axis=1)
    np.testing.assert_allclose(squares, mechanism.unit**2, rtol=1e-9)
    assert mechanism.variance == pytest.approx(squares.mean() / dimension, rel=1e-9)
