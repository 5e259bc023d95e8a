"""Shuffled crowds: reference values, independent oracles (mpmath, brute force), twins that must fail, refusals.

Nothing here is estimated from samples: random randomizers are compared exactly, so that no correct bound ever fails.
"""

import functools
import itertools
import math

import mpmath
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from murk.errors import UserError
from murk.privacy import (
    Accountant,
    ApproxDP,
    GaussianDP,
    GaussianMechanism,
    LaplaceMechanism,
    PrivUnitMechanism,
    PureDP,
    RandomizedResponse,
    ZeroConcentratedDP,
    across_crowds,
    largest_local_epsilon,
    shuffled_delta,
    shuffled_epsilon,
    shuffled_guarantee,
    smallest_crowd,
)
from murk.privacy import amplification as shuffling
from murk.privacy.conversions import pure_delta, pure_epsilon


def meaning(value):
    """A float as its shortest decimal, in mpmath."""
    return mpmath.mpf(repr(float(value)))


def delta_by_definition(local, people, epsilon):
    """The hockey-stick divergence of (C, A + D) from (C, A + 1 - D), summed over all outcomes."""
    local, epsilon = meaning(local), meaning(epsilon)
    clone = 2 / (mpmath.exp(local) + 1)
    often, growth = mpmath.exp(local) / (mpmath.exp(local) + 1), mpmath.exp(epsilon)
    # Integers, in units of 2^-400.
    first, second = (int(mpmath.ldexp(x, 400)) for x in (often - (1 - often) * growth, often * growth - (1 - often)))
    total, row, others = mpmath.mpf(0), [1], people - 1
    for c in range(people):
        outcomes = zip([0, *row], [*row, 0], strict=True)
        divergence = sum(max(first * before - second * here, 0) for before, here in outcomes)
        total += math.comb(others, c) * clone**c * (1 - clone) ** (others - c) * mpmath.ldexp(divergence, -400 - c)
        row = [1, *map(sum, itertools.pairwise(row)), 1]
    return total


def delta_of_the_worst_sum(local, people, epsilon):
    """(1/n) E (l_1 + ... + l_n)+ with independent l: what the blanket's proof ends with."""
    local, epsilon = meaning(local), meaning(epsilon)
    high, growth = mpmath.exp(local), mpmath.exp(epsilon)
    p = 1 / (high + 1)
    total = mpmath.mpf(0)
    for one in range(people + 1):
        for other in range(people + 1 - one):
            gain = one * (high - growth) - other * (high * growth - 1)
            if gain > 0:
                ways = math.comb(people, one) * math.comb(people - one, other)
                total += gain * ways * p ** (one + other) * (1 - 2 * p) ** (people - one - other)
    return total / people


# delta at (people, local epsilon, epsilon), to eight digits.
EIGHT_DIGITS = {
    (10**3, 2.0, 0.3971): 9.9945044e-7,
    (10**3, 4.0, 1.8529): 1.0000406e-6,
    (10**4, 4.0, 0.4): 1.5483589e-6,
    (10**4, 4.0, 0.4108): 1.0005012e-6,
}
# epsilon at delta = 1e-6 and 1e-8, for local epsilons 1, 2, 4, 6, 8.
EPSILONS = {
    10**3: (0.1487, 0.1886, 0.3971, 0.4971, 1.8529, 2.8497, 6, 6, 8, 8),
    10**4: (0.0432, 0.0564, 0.1144, 0.1460, 0.4108, 0.5145, 1.4724, 2.0424, 8, 8),
    10**5: (0.0124, 0.0169, 0.0332, 0.0437, 0.1182, 0.1507, 0.3570, 0.4474, 1.1766, 1.5477),
    10**6: (0.0035, 0.0050, 0.0095, 0.0130, 0.0343, 0.0451, 0.1031, 0.1318, 0.3037, 0.3811),
    10**7: (0.0010, 0.0015, 0.0027, 0.0039, 0.0098, 0.0135, 0.0299, 0.0394, 0.0879, 0.1128),
}
# Local epsilon at (delta, epsilon), for 10^3, ..., 10^7 people.
LOCAL = {
    (1e-6, 0.5): (2.302, 4.336, 6.604, 8.903, 11.205),
    (1e-6, 1.0): (3.271, 5.470, 7.761, 10.063, 12.365),
    (1e-8, 0.5): (2.007, 3.951, 6.202, 8.499, 10.801),
    (1e-8, 1.0): (2.942, 5.100, 7.386, 9.687, 11.989),
}


@pytest.mark.parametrize(("case", "delta"), EIGHT_DIGITS.items())
def test_delta_to_eight_digits(case, delta):
    people, local, epsilon = case
    assert shuffled_delta(local, people, epsilon) == pytest.approx(delta, rel=1e-7)


@pytest.mark.parametrize("people", EPSILONS)
def test_table_of_epsilons(people):
    found = [
        round(shuffled_epsilon(local, people, delta), 4)
        for local in (1.0, 2.0, 4.0, 6.0, 8.0)
        for delta in (1e-6, 1e-8)
    ]
    # Rounded up from an upper bound, the fourth decimal may be one more.
    assert found == pytest.approx(EPSILONS[people], abs=1.01e-4)


@pytest.mark.parametrize(("target", "table"), LOCAL.items())
def test_table_of_local_epsilons(target, table):
    delta, epsilon = target
    found = [round(largest_local_epsilon(10**k, epsilon, delta), 3) for k in range(3, 8)]
    assert found == list(table)


def test_no_decomposition_by_clones_of_either_record_is_tighter():
    """The bound of Feldman, McMillan, Talwar 2021 has clones with probability e^-epsilon0."""

    def of_clones(local, people, epsilon):
        clone = math.exp(-local)
        mass = [math.comb(people - 1, c) * clone**c * (1 - clone) ** (people - 1 - c) for c in range(people)]
        return float(mass @ shuffling._delta_of_clones(local, epsilon, np.arange(people, dtype=float)))

    for local, people in ((1.0, 40), (2.0, 100), (4.0, 400)):
        for share in (0.1, 0.4, 0.8):
            assert shuffled_delta(local, people, share * local) <= of_clones(local, people, share * local)


def test_the_local_epsilon_of_a_crowd():
    assert round(largest_local_epsilon(18_000, 0.5, 1e-6), 3) == 4.907
    assert round(largest_local_epsilon(20_000, 0.5, 1e-6), 2) == 5.01


def violations(accountant, people, local, epsilons):
    """Return by which factors an accountant is below the exact delta, or more than 1% above it."""
    with mpmath.workdps(80):
        found = []
        for epsilon in epsilons:
            exact = delta_by_definition(local, people, epsilon)
            if exact > 1e-60:
                share = meaning(accountant(local, people, epsilon)) / exact
                found += [] if 1 <= share <= 1.01 else [float(share)]
        return found


@settings(max_examples=25)
@given(
    people=st.integers(1, 120),
    local=st.floats(-3.0, 1.0).map(lambda power: 10.0**power),
    share=st.one_of(st.just(0.0), st.floats(0.0, 1.0), st.floats(-6.0, 0.0).map(lambda power: 10.0**power)),
)
@example(people=250, local=1.0, share=0.5)
@example(people=250, local=0.1, share=0.01)
@example(people=2, local=1e-9, share=0.5)
def test_never_below_high_precision_and_within_a_hundredth(people, local, share):
    assert not violations(shuffled_delta, people, local, [min(share * local, local)])


@pytest.mark.parametrize(("local", "people"), [(0.5, 12), (2.0, 25), (4.0, 40)])
def test_the_blanket_is_the_worst_sum(local, people):
    with mpmath.workdps(50):
        for share in (0.0, 0.1, 0.3, 0.6, 0.9):
            exact = delta_of_the_worst_sum(local, people, share * local)
            found = meaning(shuffled_delta(local, people, share * local))
            assert exact <= found <= exact * (1 + mpmath.mpf(1e-9))


@settings(max_examples=25)
@given(st.integers(0, 60), st.floats(0.1, 8.0), st.floats(0.0, 0.99))
def test_a_clone_more_is_never_worse(clones, local, share):
    """Grouping counts on it."""
    found = shuffling._delta_of_clones(local, share * local, np.array([clones, clones + 1.0]))
    assert found[1] <= found[0] * (1 + 1e-9)
    assert found[0] <= pure_delta(local, share * local) * (1 + 1e-9)


@pytest.mark.parametrize(("people", "local", "delta"), [(30_000, 0.5, 1e-12), (10**6, 2.0, 1e-6), (10**7, 8.0, 1e-6)])
def test_grouping_costs_little(people, local, delta, monkeypatch):
    epsilon = shuffled_epsilon(local, people, delta)
    grouped = shuffling._delta.__wrapped__(local, people, epsilon)
    begins, _ = shuffling._groups(local, people)
    assert len(begins) < 2_000
    # Every number of clones within nine deviations by itself.
    monkeypatch.setattr(shuffling, "_groups", shuffling._groups.__wrapped__)
    monkeypatch.setattr(shuffling, "_FINE", 10**8)
    single = shuffling._delta.__wrapped__(local, people, epsilon)
    assert single <= grouped <= 1.002 * single


def histograms(rows):
    """Return the distribution of how often each answer is given, for people with these distributions."""
    found = {(0,) * len(rows[0]): 1.0}
    for row in rows:
        added = {}
        for counts, probability in found.items():
            for answer, share in enumerate(row):
                after = (*counts[:answer], counts[answer] + 1, *counts[answer + 1 :])
                added[after] = added.get(after, 0.0) + probability * share
        found = added
    return found


def exact_delta(first, second, others, epsilon):
    """Return the larger hockey-stick divergence of the shuffled answers if one person's record is replaced."""
    growth = math.exp(epsilon)
    p, q = histograms([first, *others]), histograms([second, *others])
    return max(sum(max(a[k] - growth * b[k], 0.0) for k in p) for a, b in ((p, q), (q, p)))


def random_crowds(count):
    """Yield randomizers with 2 to 4 answers for 2 to 4 records, each with its exact epsilon, and a crowd's records."""
    draw = np.random.default_rng(20_260_801)
    for _ in range(count):
        answers, records = draw.integers(2, 5, 2)
        size = draw.choice([0.3, 1.0, 2.5])
        # Both extremes, as the worst randomizers have, and what lies between.
        tilt = draw.choice([draw.choice([0.0, 1.0], (records, answers)), draw.random((records, answers))])
        shares = draw.dirichlet(np.ones(answers)) * np.exp(size * tilt)
        rows = shares / shares.sum(axis=1, keepdims=True)
        logs = np.log(rows)
        local = float((logs.max(axis=0) - logs.min(axis=0)).max()) * (1 + 1e-12)
        if local > 1e-3:
            yield rows.tolist(), local, draw.integers(0, records, draw.integers(2, 7)).tolist()


@functools.cache
def disclosed(count=100):
    """Return what the crowds disclose: local epsilon, people, epsilon and the exact delta of each."""
    found = []
    for rows, local, records in random_crowds(count):
        others = [rows[record] for record in records[1:]]
        for epsilon in (0.0, 0.3 * local, 0.7 * local):
            exact = max(exact_delta(first, second, others, epsilon) for first, second in itertools.pairwise(rows))
            found.append((local, len(records), epsilon, exact))
    return found


def broken(accountant):
    """Return how many of the crowds disclose more than an accountant says."""
    return sum(exact > accountant(local, people, epsilon) + 1e-12 for local, people, epsilon, exact in disclosed())


def test_no_small_crowd_discloses_more():
    assert broken(shuffled_delta) == 0


@pytest.mark.parametrize("local", [0.5, 1.0, 2.0, 4.0])
@pytest.mark.parametrize("people", [2, 5, 9])
def test_randomized_response_attains_the_blanket(local, people):
    """Where all others have the same record and epsilon is most of the local one: to nine digits."""
    keep = 1 / (1 + math.exp(-local))
    yes, no = (keep, 1 - keep), (1 - keep, keep)
    exact = exact_delta(yes, no, [yes] * (people - 1), 0.95 * local)
    assert exact == pytest.approx(shuffled_delta(local, people, 0.95 * local), rel=1e-9)
    # Never above it, for any mixture and epsilon.
    for share in (0.0, 0.25, 0.5, 0.75):
        for number in range(people):
            others = [yes] * number + [no] * (people - 1 - number)
            claimed = shuffled_delta(local, people, share * local)
            assert exact_delta(yes, no, others, share * local) <= claimed


def test_releases_that_depend_on_others_are_not_covered():
    """The last person appends the first one's release to their own: what the module excludes breaks the bound."""
    people, local, epsilon = 5, 1.0, 0.5
    truth = math.exp(local) / (math.exp(local) + 1)

    def crowd(record):
        outcomes = {}
        for bits in itertools.product((0, 1), repeat=people):
            chance = math.prod(truth if bit == (record if at == 0 else 0) else 1 - truth for at, bit in enumerate(bits))
            seen = (sum(bits[:-1]), bits[-1], bits[0])
            outcomes[seen] = outcomes.get(seen, 0.0) + chance
        return outcomes

    one, other = crowd(0), crowd(1)
    exact = sum(max(chance - math.exp(epsilon) * other[seen], 0.0) for seen, chance in one.items())
    assert exact == pytest.approx(pure_delta(local, epsilon), rel=1e-9)
    assert exact > 2 * shuffled_delta(local, people, epsilon)


def twice_as_many_clones(local, people, epsilon):
    clone = min(2 * shuffling._clone_odds(local)[0], 1 - 1e-9)
    begins = np.arange(people, dtype=float)
    mass = np.array([math.comb(people - 1, c) * clone**c * (1 - clone) ** (people - 1 - c) for c in range(people)])
    return float(mass @ shuffling._delta_of_clones(local, epsilon, begins))


def a_hundredth_less_local(local, people, epsilon):
    return shuffled_delta(0.99 * local, people, epsilon)


def a_hundredth_more_epsilon(local, people, epsilon):
    return shuffled_delta(local, people, epsilon * 1.01)


@pytest.mark.parametrize("twin", [twice_as_many_clones, a_hundredth_less_local, a_hundredth_more_epsilon])
def test_wrong_accountants_are_found_out(twin):
    assert violations(twin, 40, 1.0, [0.1, 0.5, 0.9])


def test_twice_as_many_clones_are_found_out_by_small_crowds():
    keep = 1 / (1 + math.exp(-1.0))
    yes, no = (keep, 1 - keep), (1 - keep, keep)
    assert exact_delta(yes, no, [yes] * 4, 0.9) > 1.5 * twice_as_many_clones(1.0, 5, 0.9)
    assert broken(twice_as_many_clones) > 0


def test_more_people_more_noise_and_more_delta_are_better():
    by_people = [shuffled_epsilon(3.0, people, 1e-6) for people in (1, 10, 100, 10**3, 10**4, 10**5, 10**6)]
    assert by_people == sorted(by_people, reverse=True)
    by_local = [shuffled_epsilon(local, 10**4, 1e-6) for local in (0.1, 0.5, 1.0, 2.0, 4.0, 8.0, 12.0)]
    assert by_local == sorted(by_local)
    by_delta = [shuffled_epsilon(3.0, 10**4, delta) for delta in (0.5, 1e-2, 1e-6, 1e-12, 1e-100, 0.0)]
    assert by_delta == sorted(by_delta)


@settings(max_examples=12)
@given(
    people=st.floats(1.0, 10.0).map(lambda power: round(10**power)),
    epsilon=st.floats(0.02, 3.0),
    delta=st.floats(-12.0, -2.0).map(lambda power: 10.0**power),
)
def test_inverses_agree_with_the_curve(people, epsilon, delta):
    local = largest_local_epsilon(people, epsilon, delta)
    assert local >= epsilon
    assert shuffled_delta(local, people, epsilon) <= delta
    assert shuffled_delta(local * (1 + 1e-8), people, epsilon) > delta
    reached = shuffled_epsilon(local, people, delta)
    assert reached == pytest.approx(epsilon, rel=1e-5)
    assert shuffled_delta(local, people, reached) <= delta
    least = smallest_crowd(local, epsilon, delta)
    assert shuffled_delta(local, least, epsilon) <= delta
    assert least <= people * 1.01 + 1
    if least > 1:
        assert shuffled_delta(local, least - max(1, least // 50), epsilon) > delta


def test_a_hundred_million_people():
    local = largest_local_epsilon(10**8, 0.5, 1e-6)
    assert 13.4 < local < 13.6
    assert shuffled_epsilon(local, 10**8, 1e-6) == pytest.approx(0.5, rel=1e-6)
    assert shuffled_epsilon(4.0, 10**12, 1e-6) < shuffled_epsilon(4.0, 10**8, 1e-6) / 50


def test_never_worse_than_without_a_shuffler():
    assert shuffled_guarantee(6.0, 1_000, delta=1e-6) == ApproxDP(6.0, 0.0)
    assert shuffled_guarantee(PureDP(8.0), 1, delta=1e-6) == ApproxDP(8.0, 0.0)
    assert shuffled_guarantee(1.0, 10**6, epsilon=1.5) == ApproxDP(1.0, 0.0)
    assert shuffled_guarantee(0.0, 10**6, delta=1e-6) == ApproxDP(0.0, 0.0)
    assert shuffled_guarantee(4.0, 10**5, delta=1e-6) == ApproxDP(shuffled_epsilon(4.0, 10**5, 1e-6), 1e-6)
    assert shuffled_guarantee(4.0, 10**5, epsilon=0.2) == ApproxDP(0.2, shuffled_delta(4.0, 10**5, 0.2))
    # A crowd in which there may be no clone at all.
    assert shuffled_epsilon(8.0, 100, 1e-6) <= pure_epsilon(8.0, 1e-6)
    assert shuffled_epsilon(4.0, 10**5, 0.0) == 4.0
    assert largest_local_epsilon(10**5, 0.5, 0.0) == 0.5
    assert smallest_crowd(0.5, 0.5, 0.0) == 1


MECHANISMS = [
    PrivUnitMechanism.calibrate(PureDP(4.0), dimension=3, radius=1.0),
    LaplaceMechanism.calibrate(PureDP(4.0), dimension=3, radius=1.0),
    RandomizedResponse.calibrate(PureDP(4.0), classes=3),
]


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda mechanism: mechanism.kind)
def test_mechanisms_enter_by_their_pure_epsilon(mechanism):
    claim = next(claim for claim in mechanism.guarantees if claim.kind == "pure")
    expected = shuffled_guarantee(claim, 10**5, delta=1e-6)
    assert shuffled_guarantee(mechanism, 10**5, delta=1e-6) == expected
    assert shuffled_delta(claim.epsilon, 10**5, expected.epsilon) <= 1e-6


@pytest.mark.parametrize(
    "local",
    [
        GaussianDP(1.0),
        ZeroConcentratedDP(0.5),
        ApproxDP(1.0, 1e-6),
        GaussianMechanism.calibrate(GaussianDP(1.0), dimension=3, radius=1.0),
    ],
    ids=lambda local: type(local).__name__,
)
def test_gaussian_noise_is_refused(local):
    for refused in (
        lambda: shuffled_guarantee(local, 10**5, delta=1e-6),
        lambda: shuffled_delta(local, 10**5, 1.0),
        lambda: smallest_crowd(local, 1.0, 1e-6),
    ):
        with pytest.raises(UserError, match=r"no pure epsilon.*a rare outcome of Gaussian noise.*`privunit`"):
            refused()


@pytest.mark.parametrize("local", ["4", None, True, [4.0], object()])
def test_what_is_no_randomizer_is_refused(local):
    with pytest.raises(UserError, match=r"local=.*PureDP|cannot shuffle"):
        shuffled_delta(local, 10**5, 1.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((-1.0, 10, 0.5), "epsilon=-1.0 is negative"),
        ((math.nan, 10, 0.5), "must be a number"),
        ((4.0, 0, 0.5), "people=0 is out of range"),
        ((4.0, 10**13, 0.5), "from 1 to 1e.12"),
        ((4.0, 1e5, 0.5), "people=100000.0 is not a whole number"),
        ((4.0, True, 0.5), "not a whole number"),
        ((4.0, 10, -0.5), "epsilon=-0.5 is out of range"),
        ((4.0, 10, math.nan), "epsilon=nan is out of range"),
    ],
)
def test_figures_out_of_range_are_named(arguments, message):
    with pytest.raises(UserError, match=message):
        shuffled_delta(*arguments)


def test_questions_that_make_no_sense():
    with pytest.raises(UserError, match="needs one of epsilon and delta"):
        shuffled_guarantee(4.0, 10)
    with pytest.raises(UserError, match="needs one of epsilon and delta"):
        shuffled_guarantee(4.0, 10, delta=1e-6, epsilon=1.0)
    with pytest.raises(UserError, match=r"delta=1\.0 is out of range"):
        shuffled_epsilon(4.0, 10, 1.0)
    with pytest.raises(UserError, match=r"delta is 1.*larger epsilon"):
        shuffled_guarantee(1e5, 10, epsilon=0.0)
    with pytest.raises(UserError, match=r"no crowd of up to 1e\+12 people.*smaller local epsilon"):
        smallest_crowd(50.0, 0.5, 1e-6)
    with pytest.raises(UserError, match=r"epsilon=10000000\.0 is out of range"):
        largest_local_epsilon(10, 1e7, 1e-6)


@settings(max_examples=80)
@given(
    local=st.one_of(st.sampled_from([5e-324, 1e-300, 1e-99, 1e-12, 59.9, 60.1, 700.0, 1e6]), st.floats(0.0, 1e6)),
    people=st.one_of(st.sampled_from([1, 2, 3, 10**12]), st.integers(1, 10**12)),
    share=st.one_of(st.sampled_from([0.0, 1e-300, 1 - 1e-16, 1.0]), st.floats(0.0, 1.0)),
    delta=st.sampled_from([5e-324, 1e-300, 1e-6, 0.5, 1 - 1e-16]),
)
def test_no_figure_ends_in_an_error_of_arithmetic(local, people, share, delta):
    found = shuffled_delta(local, people, share * local)
    assert 0.0 <= found <= pure_delta(local, share * local)
    assert 0.0 <= shuffled_epsilon(local, people, delta) <= local


def test_nothing_is_learned_from_nothing():
    assert shuffled_delta(0.0, 10, 0.0) == 0.0
    assert shuffled_epsilon(0.0, 10, 1e-6) == 0.0


def test_several_crowds_add_up():
    crowds = [shuffled_guarantee(4.0, people, delta=1e-7) for people in (20_000, 40_000, 80_000)]
    joint = across_crowds(crowds)
    assert joint == across_crowds(crowds, delta=joint.delta)
    assert joint.epsilon == pytest.approx(sum(crowd.epsilon for crowd in crowds))
    assert joint.delta == pytest.approx(3e-7)
    account = Accountant()
    for crowd in crowds:
        account.compose(crowd)
    assert account.spent("approx", delta=joint.delta) == joint
    assert across_crowds([PureDP(1.0), ApproxDP(0.5, 1e-6)]) == ApproxDP(1.5, 1e-6)
    assert across_crowds([PureDP(0.1)] * 3) == ApproxDP(0.3, 0.0)


def repeated_delta(epsilon, own, count, at):
    """delta of `count` releases of (epsilon, own) at an epsilon, by the dominating pair."""
    odds, growth = mpmath.exp(-epsilon), mpmath.exp(at)
    often = 1 / (1 + odds)
    revealed = 1 - (1 - own) ** count
    gain = sum(
        mpmath.binomial(count, k)
        * max(often ** (count - k) * (1 - often) ** k - growth * often**k * (1 - often) ** (count - k), 0)
        for k in range(count + 1)
    )
    return revealed + (1 - revealed) * gain


@settings(max_examples=25)
@given(st.floats(0.01, 1.0), st.integers(1, 200), st.floats(-12.0, -9.0), st.floats(-8.0, -4.0).map(lambda x: 10.0**x))
def test_many_equal_crowds_compose_as_well_as_can_be(epsilon, count, own, room):
    own = 10.0**own
    total = float(f"{count * own + room:.6e}") * (1 + 1e-5)
    joint = across_crowds([ApproxDP(epsilon, own)] * count, delta=total)
    assert joint.delta == total
    assert joint.epsilon <= float(count) * epsilon * (1 + 1e-12)
    with mpmath.workdps(60):
        exact, own = meaning(epsilon), meaning(own)
        assert repeated_delta(exact, own, count, meaning(joint.epsilon)) <= meaning(total)
        if joint.epsilon > 0:
            assert repeated_delta(exact, own, count, meaning(joint.epsilon * (1 - 1e-9))) > meaning(total)


def test_unequal_crowds_are_never_worse_than_their_sum():
    crowds = [ApproxDP(0.1, 1e-9)] * 80 + [ApproxDP(0.09, 2e-9)] * 20
    joint = across_crowds(crowds, delta=1e-6)
    assert joint.epsilon == across_crowds([ApproxDP(0.1, 2e-9)] * 100, delta=1e-6).epsilon < 6
    uneven = across_crowds([ApproxDP(0.01, 1e-9)] * 3 + [ApproxDP(2.0, 1e-9)], delta=1e-6)
    assert uneven.epsilon == pytest.approx(2.03)
    many = across_crowds([ApproxDP(1e-6, 0.0)] * 10_001, delta=1e-6)
    assert many.epsilon == pytest.approx(0.010001)


def test_crowds_that_promise_nothing():
    with pytest.raises(UserError, match="at least one guarantee is required"):
        across_crowds([])
    with pytest.raises(UserError, match=r"GaussianDP\(mu=1.0\) is not the guarantee of a shuffled crowd.*Accountant"):
        across_crowds([GaussianDP(1.0)])
    with pytest.raises(UserError, match="below the sum of the crowds' own deltas; give 2e-06"):
        across_crowds([ApproxDP(0.1, 1e-6)] * 2, delta=1e-6)
    with pytest.raises(UserError, match="deltas add up to 1"):
        across_crowds([ApproxDP(0.1, 0.5)] * 2)
