"""Several mechanisms in one release: the distribution, what it promises and what it costs."""

import copy
import json
import math
import pickle
from fractions import Fraction

import numpy as np
import pytest

from murk.errors import UserError
from murk.privacy import (
    Accountant,
    ApproxDP,
    CompositeMechanism,
    GaussianDP,
    GaussianMechanism,
    LaplaceMechanism,
    PureDP,
    RandomizedResponse,
    SecureNoise,
    SimulatedNoise,
    ZeroConcentratedDP,
    cap_of,
    guarantee_from_dict,
)
from murk.privacy.conversions import gdp_epsilon, pure_to_gdp
from murk.privacy.mechanisms import WIDTH, divided
from murk.privacy.noise import Purpose

FEATURES = GaussianMechanism.calibrate(ApproxDP(1.0, 1e-6), dimension=3, radius=1.5)
LABEL = RandomizedResponse.calibrate(PureDP(0.5), classes=2)
OTHER = GaussianMechanism.calibrate(ApproxDP(2.0, 1e-6), dimension=2, radius=0.5)
MIXED = CompositeMechanism((FEATURES, LABEL, OTHER))
GAUSSIANS = CompositeMechanism((FEATURES, OTHER))


class Fixed:
    """A source of given integers and words, that remembers what it was asked for."""

    simulated = True

    def __init__(self, gaussian, word=0):
        self.integers, self.word, self.asked = gaussian, word, []

    def gaussian(self, records, size):
        self.asked.append(("gaussian", size))
        return np.tile(np.asarray(self.integers, dtype=np.int64)[:size], (len(records), 1))

    def words(self, records, size, purpose):
        self.asked.append((purpose, size))
        return np.full((len(records), size), self.word, dtype=np.uint64)


def test_it_is_frozen_plain_data():
    assert eval(repr(MIXED)) == MIXED == pickle.loads(pickle.dumps(MIXED)) == copy.deepcopy(MIXED)
    assert hash(MIXED) == hash(copy.copy(MIXED))
    data = MIXED.to_dict()
    assert json.loads(json.dumps(data)) == data
    assert guarantee_from_dict(data["guarantee"]) == MIXED.guarantee
    assert CompositeMechanism([FEATURES, LABEL]) == CompositeMechanism((FEATURES, LABEL))


def test_shape_and_scales_are_the_parts():
    assert MIXED.dimension == 6
    assert MIXED.widths == (3, 1, 2)
    assert MIXED.variances.tolist() == [FEATURES.variance] * 3 + [0.0] + [OTHER.variance] * 2
    assert MIXED.magnitudes.tolist() == [FEATURES.magnitude] * 3 + [1] + [OTHER.magnitude] * 2
    assert MIXED.magnitude == max(FEATURES.magnitude, OTHER.magnitude)
    payload = MIXED.randomize(np.full((50, 6), 0.3), SecureNoise(), np.arange(50))
    assert payload.dtype == np.int64
    assert (abs(payload) <= MIXED.magnitudes).all()
    assert set(payload[:, 3].tolist()) == {-1, 1}
    assert (MIXED.decode(payload)[:, 3] == payload[:, 3]).all()
    assert MIXED.randomize(np.zeros((0, 6)), SecureNoise(), []).shape == (0, 6)


def test_each_part_is_its_own_mechanism_on_its_own_noise():
    """One draw for all Gaussian parts; each is then exactly what its mechanism makes of its share."""
    rng = np.random.default_rng(1)
    rows, noise, records = rng.normal(size=(40, 6)), SimulatedNoise(5), np.arange(40)
    together = MIXED.randomize(rows, noise, records)
    integers = noise.gaussian(records, 5)
    for part, columns, own in ((FEATURES, slice(0, 3), slice(0, 3)), (OTHER, slice(4, 6), slice(3, 5))):
        quiet = part.randomize(rows[:, columns], Fixed([0] * 5), records)
        assert (together[:, columns] == quiet + integers[:, own]).all()
        assert (part.decode(together[:, columns]) == MIXED.decode(together)[:, columns]).all()
    words = noise.words(records, 1, Purpose.COIN)[:, 0]
    truth = np.where(rows[:, 3] > 0, 1, -1)
    assert (together[:, 3] == np.where(words < np.uint64(LABEL.threshold), truth, -truth)).all()


def test_parts_do_not_share_noise():
    twins = CompositeMechanism((OTHER, OTHER))
    source = Fixed([1, 2, 3, 4])
    assert twins.randomize(np.zeros((1, 4)), source, [0])[0].tolist() == [1, 2, 3, 4]
    assert source.asked == [("gaussian", 4)]
    # The twin that fails: each mechanism drawing for itself repeats a simulated record's noise.
    own = OTHER.randomize(np.zeros((1, 2)), SimulatedNoise(1), [0])
    assert (own == OTHER.randomize(np.zeros((1, 2)), SimulatedNoise(1), [0])).all()


@pytest.mark.parametrize(
    ("label", "word", "released"),
    [
        (1.0, LABEL.threshold - 1, 1),
        (1.0, LABEL.threshold, -1),
        (-1.0, LABEL.threshold - 1, -1),
        (-1.0, LABEL.threshold, 1),
        (0.0, 2**63 - 1, 1),
        (0.0, 2**63, -1),
        (math.nan, 2**63 - 1, 1),
        (math.nan, 2**63, -1),
        (math.inf, 0, 1),
    ],
)
def test_the_labels_law_is_one_exact_threshold(label, word, released):
    mechanism = CompositeMechanism((LABEL,))
    assert mechanism.randomize([[label]], Fixed([], word), [0])[0, 0] == released


def test_a_missing_label_stays_within_the_odds():
    """Fair odds against those of either label: never beyond e^epsilon, in exact words out of 2^64."""
    odds = Fraction(LABEL.threshold, LABEL.other)
    for outcome in (LABEL.threshold, LABEL.other):
        ratio = Fraction(outcome, 2**63)
        assert max(ratio, 1 / ratio) <= odds


def test_the_divergence_of_two_vectors_is_the_sum_of_the_parts():
    """Rho of two discrete Gaussians at integer distance D is D^2 / 2 S^2: reached, and not exceeded."""
    far = np.array([[1e9, 0, 0, 1e9, 0]])
    quiet = Fixed([0] * 5)
    gap = GAUSSIANS.randomize(far, quiet, [0]) - GAUSSIANS.randomize(-far, quiet, [0])
    rho = Fraction(int((gap.astype(object) ** 2).sum()), 2 * WIDTH**2)
    assert rho <= Fraction(GAUSSIANS.guarantees[1].rho)
    assert rho == Fraction(2 * (FEATURES.steps**2 + OTHER.steps**2), WIDTH**2)


def test_guarantees_compose():
    assert MIXED.guarantee == ApproxDP(3.5, 2e-6)
    assert GAUSSIANS.guarantee == GaussianDP(Accountant().compose(FEATURES).compose(OTHER).spent("gdp").mu)
    assert GAUSSIANS.guarantee.mu == pytest.approx(math.hypot(FEATURES.guarantee.mu, OTHER.guarantee.mu), rel=1e-12)
    assert GAUSSIANS.guarantees[2] == ApproxDP(3.0, 2e-6)
    # What the parts promise together is far below what addition says.
    assert gdp_epsilon(GAUSSIANS.guarantee.mu, 2e-6) < 2.3
    unstated = CompositeMechanism((GaussianMechanism.calibrate(GaussianDP(1.0), dimension=1, radius=1.0), LABEL))
    mu = math.sqrt(1 + pure_to_gdp(LABEL.guarantee.epsilon) ** 2)
    assert unstated.guarantee.mu == pytest.approx(mu, rel=1e-5)  # steps are whole: 1 in 2^19
    assert Accountant().compose(MIXED, 2).spent("zcdp").rho == pytest.approx(2 * MIXED.guarantees[2].rho)


def test_costs_are_sums_of_the_parts():
    assert MIXED.cost("approx") == FEATURES.cost("approx") + LABEL.cost("approx") + OTHER.cost("approx")
    assert MIXED.cost("approx") <= cap_of(ApproxDP(3.5, 2e-6))
    assert MIXED.cost("rho") == FEATURES.cost("rho") + LABEL.cost("rho") + OTHER.cost("rho")
    with pytest.raises(UserError, match="no cost in epsilon"):
        MIXED.cost("epsilon")
    assert CompositeMechanism((LABEL, LABEL)).cost("epsilon").units == 2 * LABEL.cost("epsilon").units
    with pytest.raises(UserError, match="approx:"):
        CompositeMechanism((GaussianMechanism(1, 1.0, 5), LABEL)).cost("approx")


def test_what_is_stated_is_checked():
    tight = ApproxDP(2.3, 2e-6)
    stated = CompositeMechanism((FEATURES, OTHER), tight)
    assert stated.cost("approx") == cap_of(tight)
    assert tight in stated.guarantees
    assert CompositeMechanism((FEATURES, LABEL), ApproxDP(1.5, 1e-6)).guarantee == ApproxDP(1.5, 1e-6)
    with pytest.raises(UserError, match="does not follow"):
        CompositeMechanism((FEATURES, OTHER), ApproxDP(2.0, 1e-6))
    with pytest.raises(UserError, match="must be an ApproxDP"):
        CompositeMechanism((FEATURES,), PureDP(1.0))


def test_parts_that_do_not_fit():
    with pytest.raises(UserError, match="LaplaceMechanism"):
        CompositeMechanism((LaplaceMechanism.calibrate(PureDP(1.0), dimension=2, radius=1.0),))
    with pytest.raises(UserError, match="2 categories"):
        CompositeMechanism((RandomizedResponse.calibrate(PureDP(1.0), classes=3),))
    with pytest.raises(UserError, match="at least one"):
        CompositeMechanism(())
    with pytest.raises(UserError, match=r"\(m, 6\)"):
        MIXED.randomize(np.zeros((1, 5)), SecureNoise(), [0])
    with pytest.raises(UserError, match="record indices"):
        MIXED.randomize(np.zeros((2, 6)), SecureNoise(), [0])
    with pytest.raises(UserError, match="integers"):
        MIXED.decode(np.zeros((1, 6)))
    with pytest.raises(UserError, match=r"\(m, 6\)"):
        MIXED.decode(np.zeros((1, 5), dtype=np.int64))


WHOLES = [
    ApproxDP(2.0, 1e-6),
    ApproxDP(0.3, 1e-5),
    GaussianDP(1.0),
    GaussianDP(0.7),
    GaussianDP(6.0),
    ZeroConcentratedDP(0.5),
]


@pytest.mark.parametrize("share", [0.5, 0.1, 0.7, 1 / 3])
@pytest.mark.parametrize("label", [True, False])
@pytest.mark.parametrize("whole", WHOLES, ids=repr)
def test_parts_of_a_divided_guarantee_fit_under_its_cap(whole, share, label):
    first, second = divided(whole, share, label=label)
    parts = (
        GaussianMechanism.calibrate(first, dimension=3, radius=1.0),
        RandomizedResponse.calibrate(second, classes=2)
        if label
        else GaussianMechanism.calibrate(second, dimension=1, radius=2.0),
    )
    mechanism = CompositeMechanism(parts)
    cap = cap_of(whole)
    assert mechanism.cost(cap.currency) <= cap
    # Nearly all of it is used.
    assert mechanism.cost(cap.currency).units >= 0.9999 * cap.units or (label and whole == GaussianDP(6.0))
    if isinstance(whole, GaussianDP):
        assert Accountant().compose(mechanism).spent("gdp").mu <= whole.mu


def test_what_cannot_be_divided():
    with pytest.raises(UserError, match="approx"):
        divided(PureDP(1.0), 0.5, label=True)
    with pytest.raises(UserError, match="delta > 0"):
        divided(ApproxDP(1.0, 0.0), 0.5, label=True)
    for share in (0.0, 1.0, math.nan, -1.0):
        with pytest.raises(UserError, match="split"):
            divided(GaussianDP(1.0), share, label=True)


def test_two_parts_have_all_that_may_be_spent_between_them():
    for first, second in (
        divided(ApproxDP(2.0, 1e-6), 0.25, label=False),
        divided(ApproxDP(2.0, 3e-15), 0.25, label=False),
    ):
        assert (first.epsilon, second.epsilon) == (0.5, 1.5)
        assert first.delta == second.delta
    halves = divided(ApproxDP(2.0, 1e-6), 0.25, label=False)
    assert sum(part.delta for part in halves) == pytest.approx(1e-6, abs=1.1e-15)
    features, label = divided(ApproxDP(2.0, 1e-6), 0.25, label=True)
    assert (features.epsilon, features.delta, label.epsilon) == (0.5, 1e-6, 1.5)
