"""What several learners share: probabilities of scores, least squares, and how large a misfit is by chance."""

import numpy as np
import pytest
from scipy.special import expit, softmax
from scipy.stats import chi2

from murk._internal.links import class_probabilities, logistic
from murk.inference.misfit import UNLIKE, excess
from murk.protocols.linear_algebra import contrasts
from murk.protocols.scores.solve.curve import descend


def test_probabilities_are_those_of_scipy_and_do_not_overflow():
    scores = np.concatenate([np.linspace(-40.0, 40.0, 201), [-1e6, 1e6]])
    assert logistic(scores) == pytest.approx(expit(scores), rel=1e-14, abs=1e-300)
    of_classes = np.random.default_rng(1).normal(size=(50, 3)) * [1.0, 30.0, 1000.0]
    basis = contrasts(4)
    expected = softmax(of_classes @ basis.T, axis=1)
    assert class_probabilities(of_classes, basis) == pytest.approx(expected, rel=1e-12, abs=1e-300)


@pytest.mark.parametrize("free", [3, 20, 600])
def test_a_misfit_is_unlike_by_chance_once_in_10_000_times(free):
    """By the exact distribution: Wilson and Hilferty's is within a tenth of a standard deviation there."""
    assert excess(chi2.isf(1e-4, free), free) == pytest.approx(UNLIKE, abs=0.1)
    assert excess(chi2.isf(1e-3, free), free) < UNLIKE - 0.5


def test_least_squares_are_found_also_from_where_newton_overshoots():
    """Of (arctan x)^2, from where Newton's step leads ever further away; and in no steps nothing is done."""

    def terms(x):
        slope = 1.0 / (1.0 + x**2)
        return np.diag(slope**2), -slope * np.arctan(x), float(np.arctan(x) @ np.arctan(x))

    start = np.array([3.0, -2.0])
    assert np.abs(start - np.arctan(start) * (1.0 + start**2)).min() > np.abs(start).max() / 2.0
    assert np.abs(descend(start, terms, 50)).max() < 1e-6
    assert descend(start, terms, 0).tolist() == start.tolist()
