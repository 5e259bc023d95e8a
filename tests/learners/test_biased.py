"""Intervals around estimates whose mean may be off."""

import numpy as np
import pytest
from scipy.stats import norm

from murk.inference.linear_probability import around_biased


@pytest.mark.parametrize("level", [0.8, 0.95, 0.99])
def test_the_worst_bias_is_covered_as_often_as_is_said_and_a_smaller_one_more_often(level):
    error, bias = np.full(6, 0.5), np.array([0.0, 0.01, 0.2, 0.5, 1.0, 20.0])
    half = around_biased(error, bias, level)

    def held(off):
        return norm.cdf((half - off) / error) - norm.cdf((-half - off) / error)

    assert np.allclose(held(bias), level)
    assert np.all(held(bias / 2) >= level - 1e-9)
    assert np.all(held(bias + 0.1) < level)
    # Never wider than with both added up.
    assert np.all(half <= bias + norm.ppf(0.5 + level / 2) * error + 1e-12)


def test_what_is_not_known_has_no_end_and_what_has_no_error_its_bias():
    half = around_biased(np.array([np.inf, 1.0, 0.0]), np.array([0.0, np.inf, 0.3]))
    assert half.tolist() == [np.inf, np.inf, 0.3]
