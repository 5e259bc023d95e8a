"""Randomized response: exact distribution word by word, distribution by draws, unbiased weights."""

import dataclasses
import json
import math
from fractions import Fraction

import numpy as np
import pytest

from murk.errors import UserError
from murk.privacy import GaussianDP, PureDP, RandomizedResponse, SecureNoise, SimulatedNoise, ZeroConcentratedDP
from tests.privacy.mechanisms.scripted import Scripted

N = 200_000
CLASSES = [2, 3, 7]


def response(classes, epsilon=1.0):
    return RandomizedResponse.calibrate(PureDP(epsilon), classes=classes)


@pytest.mark.parametrize("classes", CLASSES)
@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 1.0, 10.0])
def test_probabilities(classes, epsilon):
    mechanism = response(classes, epsilon)
    exact = math.exp(epsilon) / (math.exp(epsilon) + classes - 1)
    assert mechanism.keep == pytest.approx(exact, rel=1e-12)
    assert mechanism.keep <= exact * (1 + 1e-15)
    assert mechanism.guarantee.epsilon <= epsilon
    assert mechanism.guarantee.epsilon == pytest.approx(epsilon, rel=1e-9)
    assert mechanism.threshold + (classes - 1) * mechanism.other == 2**64


@pytest.mark.parametrize("classes", CLASSES)
def test_every_boundary_between_words(classes):
    # The distribution is a partition of the 2^64 words into runs: both ends of every run, for every true category.
    mechanism = response(classes)
    t, a = mechanism.threshold, mechanism.other
    for truth in range(classes):
        others = [category for category in range(classes) if category != truth]
        runs = [(0, t - 1, truth)] + [(t + i * a, t + (i + 1) * a - 1, c) for i, c in enumerate(others)]
        assert runs[-1][1] == 2**64 - 1
        for first, last, category in runs:
            for word in (first, last):
                assert mechanism.randomize([truth], Scripted(words=[word]), [0]).tolist() == [category]


def statistic(counts, probabilities):
    expected = np.asarray(probabilities) * counts.sum()
    return ((counts - expected) ** 2 / expected).sum()


@pytest.mark.parametrize("classes", CLASSES)
def test_distribution(classes):
    # Chi-square with k - 1 <= 6 degrees of freedom exceeds 45 with probability 5e-8 at most.
    mechanism, truth = response(classes), classes // 2
    released = mechanism.randomize(np.full(N, truth), SimulatedNoise(5), np.arange(N))
    counts = np.bincount(released, minlength=classes)

    def law(epsilon):
        keep = math.exp(epsilon) / (math.exp(epsilon) + classes - 1)
        return [keep if category == truth else (1 - keep) / (classes - 1) for category in range(classes)]

    assert statistic(counts, law(1.0)) < 45
    assert statistic(counts, law(1.1)) > 45
    assert statistic(counts, law(0.9)) > 45


@pytest.mark.parametrize("classes", CLASSES)
def test_weights_are_unbiased(classes):
    mechanism = response(classes)
    truths = np.arange(N) % classes
    released = mechanism.randomize(truths, SimulatedNoise(6), np.arange(N))
    estimates = mechanism.unbiased(released)
    assert estimates.shape == (N, classes)
    assert estimates.sum(axis=1) == pytest.approx(np.ones(N))
    for truth in range(classes):
        mine = estimates[truths == truth]
        error = abs(mine.mean(axis=0) - (np.arange(classes) == truth)) / (mine.std(axis=0) / math.sqrt(len(mine)))
        # 5.5 standard errors: 4e-8 for each of at most 49.
        assert (error < 5.5).all()
        # The twin: the indicators as released, not corrected, are far off.
        raw = (released[truths == truth][:, None] == np.arange(classes)).mean(axis=0)
        assert abs(raw[truth] - 1) > 0.2


def test_exact_expectation_of_the_weights():
    for classes in CLASSES:
        mechanism = response(classes)
        own, other = mechanism.weights
        p, q = Fraction(mechanism.threshold, 2**64), Fraction(mechanism.other, 2**64)
        true = p * Fraction(own) + (classes - 1) * q * Fraction(other)
        false = q * Fraction(own) + (p + (classes - 2) * q) * Fraction(other)
        assert float(true) == pytest.approx(1.0)
        assert float(false) == pytest.approx(0.0, abs=1e-12)
    assert response(2).weights[0] == pytest.approx(1 / (1 - math.exp(-1)))


def test_other_budgets_and_currencies():
    assert RandomizedResponse.calibrate(ZeroConcentratedDP(0.5), classes=2) == response(2)
    assert RandomizedResponse.calibrate(GaussianDP(1.0), classes=2).guarantee.epsilon == pytest.approx(
        0.80697, abs=1e-5
    )
    assert response(2).cost("epsilon").units == 10**12
    assert response(2).cost("rho").units == 5 * 10**11


@pytest.mark.parametrize("classes", [2, 5])
def test_a_huge_epsilon_gives_what_words_can_express(classes):
    mechanism = response(classes, 1e6)
    assert mechanism.other == 1
    assert mechanism.guarantee.epsilon == pytest.approx(44.36, abs=0.01)


def test_data_and_repr():
    mechanism = response(3)
    assert eval(repr(mechanism)) == mechanism
    assert json.loads(json.dumps(mechanism.to_dict())) == mechanism.to_dict()
    with pytest.raises(dataclasses.FrozenInstanceError):
        mechanism.classes = 2


@pytest.mark.parametrize("arguments", [(1, 2**63), (2**31, 2**63), (2, 2**63), (2, 2**64), (3, 2**63 + 1), (2, 0.5)])
def test_impossible_parameters(arguments):
    with pytest.raises(UserError):
        RandomizedResponse(*arguments)


def test_what_cannot_be_calibrated():
    with pytest.raises(UserError, match="classes"):
        response(1)
    with pytest.raises(UserError, match="larger budget"):
        RandomizedResponse.calibrate(PureDP(0.0), classes=2)


def test_errors_never_name_the_value():
    with pytest.raises(UserError, match=r"outside 0\.\.2") as caught:
        response(3).randomize([0, 77], SecureNoise(), [0, 1])
    assert "77" not in str(caught.value)
    for bad in ([0.0, 1.0], [[0], [1]]):
        with pytest.raises(UserError, match="integers of shape"):
            response(3).randomize(bad, SecureNoise(), [0, 1])
    with pytest.raises(UserError, match="indices"):
        response(3).randomize([0, 1], SecureNoise(), [0])
    assert response(3).randomize(np.zeros(0, dtype=int), SecureNoise(), []).shape == (0,)
