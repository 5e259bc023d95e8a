"""Confidence sequences hold at every look, as wide as they say; fixed intervals do not."""

import math

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import binom

from murk.inference.confidence_sequences import LARGEST, Looks, critical_values, evidence

STREAMS = 2_000
FIXED = 1.959964
# Looks at v from 1 / 1,000 to 100: log-spaced, with a dense stretch that sees every step of a walk near v = 1.
LOOKS = np.unique(np.concatenate([np.geomspace(1e-3, 100.0, 4_000), np.linspace(0.9, 1.1, 2_000)]))
# A share of 5% or less of 2,000 streams exceeds this with probability 1e-6 at most.
MOST = binom.isf(1e-6, STREAMS, 0.05) / STREAMS


def walks(rng: np.random.Generator, streams: int, information: np.ndarray) -> np.ndarray:
    """Return a random walk in information time, over its standard deviation: (streams, looks)."""
    steps = rng.standard_normal((streams, len(information))) * np.sqrt(np.diff(information, prepend=0.0))
    return np.abs(np.cumsum(steps, axis=1)) / np.sqrt(information)


def excluded(seed: int, information: np.ndarray, most: np.ndarray) -> float:
    """Return the share of streams whose walk ever exceeds ``most`` standard deviations."""
    rng, block = np.random.default_rng(seed), 250
    return sum((walks(rng, block, information) > most).any(axis=1).sum() for _ in range(STREAMS // block)) / STREAMS


def test_the_truth_is_hardly_ever_excluded():
    """A correct boundary fails with probability 1e-6 (`MOST`)."""
    assert excluded(1, LOOKS, critical_values(LOOKS)) <= MOST
    # The twin: the fixed interval, watched.
    assert excluded(1, LOOKS, np.full_like(LOOKS, FIXED)) > 0.7


@pytest.mark.parametrize("factor", [16.0, 1 / 16.0])
def test_a_change_of_the_noise_hardly_matters(factor):
    """Releases carry ``factor`` times the information from a tenth of N on; fails by chance with probability 1e-6."""
    counts = np.where(LOOKS < 0.1, LOOKS, 0.1 + (LOOKS - 0.1) / factor)
    assert excluded(2, LOOKS, critical_values(counts)) <= MOST


def test_it_is_as_wide_as_promised():
    ratios = critical_values(np.geomspace(1 / 30, 30, 101)) / FIXED
    assert ratios.max() <= 1.8
    assert critical_values(np.array([1.0]))[0] / FIXED <= 1.7
    # The twin: further away it is wider than that.
    assert critical_values(np.array([1 / 300]))[0] / FIXED > 1.8


def test_critical_values_solve_the_equation():
    """An independent root of the formula, as docs/mathematics.md prints it."""
    c = -2 * math.log(0.05) + math.log(1 - 2 * math.log(0.05))
    for v in (0.02, 0.3, 1.0, 7.0, 200.0):
        ratios = np.array([c * v / 10**k for k in (-1.5, -0.75, 0, 0.75, 1.5)])

        def above(z, r=ratios):
            return np.mean(np.exp(z * z / 2 * r / (1 + r)) / np.sqrt(1 + r)) - 20.0

        root = brentq(above, 0.0, 8.0)
        assert critical_values(np.array([v]))[0] == pytest.approx(root, abs=1e-9)
        assert math.exp(evidence(root, v)) == pytest.approx(20.0, rel=1e-9)


def test_e_values_have_a_mean_of_at_most_one():
    """Of 100,000 walks at one look: E has mean 1, and its sample mean exceeds 1.1 with probability far below 1e-6.

    At v = 1 / 100 E is below 400 for |z| < 4.5, and its standard deviation is near 1.
    """
    z = np.random.default_rng(3).standard_normal(100_000)
    values = np.exp(evidence(z, 0.01))
    assert abs(values.mean() - 1.0) < 5.0 * values.std() / math.sqrt(len(z))
    # The twin: under an effect of two standard errors it is larger.
    assert np.exp(evidence(z + 2.0, 0.01)).mean() > 1.5


def test_answers_with_noise_and_an_estimated_error():
    """A share from randomized response with an estimated standard error, at all looks from 100 to 20,000 answers.

    The claim is asymptotic: 5%, and a percent more for the start at 100. More than ``most`` of 1,000 streams would
    exclude the truth with probability 1e-6.
    """
    streams, people, share, keep = 1_000, 20_000, 0.3, 0.75
    rng = np.random.default_rng(4)
    at = np.arange(100, people + 1)
    most = critical_values(at / 2_000)
    wrong = fixed = 0
    for _ in range(streams):
        truth = rng.random(people) < share
        told = np.where(rng.random(people) < keep, truth, ~truth)
        told_share = np.cumsum(told)[99:] / at
        error = np.sqrt(told_share * (1 - told_share) / at) / (2 * keep - 1)
        z = np.abs((told_share - (1 - keep)) / (2 * keep - 1) - share) / error
        wrong, fixed = wrong + bool((z > most).any()), fixed + bool((z > FIXED).any())
    assert wrong <= binom.isf(1e-6, streams, 0.06)
    # The twin: the fixed interval.
    assert fixed > 0.4 * streams


def test_looks_say_what_they_are():
    watched, once = Looks("always-valid", 1_000, 1_000), Looks("fixed-n", 1_000, 1_000)
    assert once.nominal(0.9) == 0.9
    assert watched.nominal(0.95) > 0.998
    assert watched.words(0.9) == "90% at every look"
    assert once.words(0.9) == "90% at this look only"
    # Before anything is known, intervals are 7 standard errors to both sides.
    assert critical_values(np.array([1e-12]))[0] == pytest.approx(LARGEST)
