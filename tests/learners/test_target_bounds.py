"""Regressors ask for the target's public bounds where noise is real: what lies beyond them is projected."""

import pytest

from murk.errors import UserError
from murk.learners import GaussMixRegressor, IWPSGDRegressor, PublicGLMRegressor, ScoreRegressor
from murk.privacy import GaussianDP

SHARED = {"budget": GaussianDP(1.0), "features": ["a", "b"]}


@pytest.mark.parametrize(
    ("regressor", "name", "bounds"),
    [
        (ScoreRegressor, "target_bounds", (0.0, 50.0)),
        (PublicGLMRegressor, "target_bounds", (0.0, 50.0)),
        (IWPSGDRegressor, "target_bound", 50.0),
        (GaussMixRegressor, "target_bound", 50.0),
    ],
)
def test_real_noise_needs_public_bounds_of_the_target(regressor, name, bounds):
    with pytest.raises(UserError, match=f"{name}= is required where noise is real"):
        regressor(**SHARED)
    made = regressor(**SHARED, **{name: bounds})
    assert getattr(made, name) == bounds
    # A simulation has the usual ones, and a clone is as the original was.
    assert getattr(regressor(**SHARED, seed=1).clone(), name) is None


@pytest.mark.parametrize("regressor", [PublicGLMRegressor, IWPSGDRegressor])
def test_who_reads_no_record_needs_none(regressor):
    regressor(**SHARED, inputs="released")
