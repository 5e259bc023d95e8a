"""The web device's own randomness follows the exact distributions, and a wrong scale would be noticed.

The platform's randomness has no seed: each test fails by chance with a probability below 1e-9.
"""

import json
import math

import numpy as np
import pytest
from scipy import stats

from tests.devices import web

WIDTH = 2**20
DRAWS = 2_000_000
ALARM = 1e-9
LAWS = {"gaussian": stats.norm, "laplace": stats.laplace}


def drawn(kind, edges, draws=DRAWS):
    return web.run("noise.mjs", kind, draws, json.dumps(edges))


@pytest.mark.parametrize("kind", LAWS)
def test_noise_follows_its_distribution(kind):
    law = LAWS[kind]
    shares = np.arange(1, 64) / 64
    result = drawn(kind, (law.ppf(shares) * WIDTH).tolist())
    counts, total = np.array(result["counts"]), result["total"]
    # Bins of equal probability: rounding to integers moves an edge by 2^-20 widths.
    assert stats.chisquare(counts).pvalue > ALARM
    # The mean square has the standard error sqrt((kurtosis - 1) / n) times the variance, kurtosis 3 and 6.
    variance, kurtosis = (1.0, 3.0) if kind == "gaussian" else (2.0, 6.0)
    error = variance * math.sqrt((kurtosis - 1.0) / total)
    assert abs(result["square"] - variance) < 6.2 * error
    assert abs(result["odd"] - 0.5) < 6.2 * 0.5 / math.sqrt(total)
    # Twin: noise 2% too narrow or too wide is rejected by both.
    for scale in (0.98, 1.02):
        expected = np.diff(np.concatenate([[0.0], law.cdf(law.ppf(shares) * scale), [1.0]])) * total
        assert stats.chisquare(counts, expected).pvalue < ALARM
        assert abs(result["square"] - variance * scale**2) > 6.2 * error


def test_partitions_are_uniform():
    result = drawn("partition", [0.5, 1.5, 2.5, 3.5, 4.5, 5.5], 500_000)
    counts = np.array(result["counts"])
    assert stats.chisquare(counts).pvalue > ALARM
    # Twin: the low three bits without rejection, modulo seven, would favour the first partition.
    biased = np.array([2, 1, 1, 1, 1, 1, 1]) / 8 * counts.sum()
    assert stats.chisquare(counts, biased).pvalue < ALARM
