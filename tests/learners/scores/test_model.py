"""What a device computes is bounded whatever the model and the record say."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from murk.protocols.device import HostileModelError
from murk.protocols.rows import Rows
from murk.protocols.scores.model import (
    LARGEST_CLIPPING_NORM,
    Expected,
    Model,
    Response,
    check_model,
    mean_matrix,
    model_size,
    probability,
    vectors,
)
from tests.learners.scores.people import device_of

P = 4
numbers = st.floats(-1e8, 1e8)


@st.composite
def hostile(draw):
    """Any model that devices take."""
    share = draw(st.floats(0, 1))
    model = Model(
        draw(arrays(float, P, elements=st.floats(-1e4, 1e4))),
        draw(arrays(float, (P, P), elements=numbers)),
        draw(st.floats(1e-6, 1e4)),
        draw(st.floats(0, 1)),
        share,
        draw(st.floats(0, 1 - share)),
    )
    return check_model(model.flat, P)


@settings(max_examples=200, deadline=None)
@given(hostile(), arrays(float, (3, P), elements=st.floats(-1, 1)), st.sampled_from([0.0, 1.0, np.nan]))
def test_no_answer_is_longer_than_one(model, X, target):
    device, y = device_of(P - 1, 1.0), np.full(3, target)
    for query in device.queries:
        found = device.vectors(X, y, model.flat, query)
        assert np.all(np.isfinite(found))
        assert np.all(np.linalg.norm(found, axis=1) <= 1 + 1e-9)


@settings(max_examples=50, deadline=None)
@given(arrays(float, (3, P), elements=st.floats(-1, 1)), arrays(float, 3, elements=st.floats(-1, 1)))
def test_nor_of_a_real_target(X, y):
    device = device_of(P - 1, 1.0, binary=False)
    for query in device.queries:
        assert np.all(np.linalg.norm(device.vectors(X, y, device.initial, query), axis=1) <= 1 + 1e-9)


def test_a_missing_target_is_no_score_and_no_curvature_but_a_scatter():
    device, X = device_of(P - 1, 1.0), np.ones((1, P))
    missing = np.array([np.nan])
    assert not device.vectors(X, missing, None, "score").any()
    assert not device.vectors(X, missing, None, "curvature").any()
    assert device.vectors(X, missing, None, "scatter").any()


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (0, np.nan, "not finite"),
        (0, 1e5, "origin"),
        (P, 1e9, "transform"),
        (-7, 0.0, "clipping norm"),
        (-7, -1.0, "clipping norm"),
        (-6, 1.5, "exponent"),
        (-5, -0.1, "shares"),
        (-4, 1.5, "shares"),
        (-3, 4.0, "thresholds"),
        (-3, 0.5, "thresholds"),
        (-2, 1.1, "targets"),
        (-1, 0.0, "targets"),
        (-1, 2.0, "targets"),
    ],
)
def test_a_model_that_no_learner_publishes_is_refused(place, value, words):
    device = device_of(P - 1, 1.0)
    flat = device.initial.copy()
    device.check_model(flat)
    flat[place] = value
    with pytest.raises(HostileModelError, match=words):
        device.check_model(flat)
    with pytest.raises(HostileModelError, match="numbers"):
        device.check_model(flat[:-1])


def test_a_model_comes_back_as_it_was_published():
    model = Model(np.arange(P) / 7, np.eye(P) / 3, 2.5, 0.5, 0.1, 0.2).rounded()
    again = Model.of(np.array(model.flat.tolist()), P)
    assert len(model.flat) == model_size(P)
    assert again.flat.tolist() == model.flat.tolist() == model.rounded().flat.tolist()


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0])
def test_the_mean_score_and_its_slope_are_those_of_the_scores(exponent):
    """Against a sum over records with every outcome, weighted by its probability; the slope by differences."""
    rng = np.random.default_rng(3)
    rows = Rows(np.c_[rng.uniform(-1, 1, size=(50, P - 1)), np.ones(50)], np.full(50, 0.02))
    model = Model(rng.normal(size=P), np.eye(P) + 0.2 * rng.normal(size=(P, P)), 1.2, exponent, 0.0, 0.0)
    response, theta = Response(True), rng.normal(size=P)
    q = probability(rows.points @ theta)
    direct = (
        q[:, None] * vectors(rows.points, np.ones(50), model, response, "score")
        + (1 - q)[:, None] * vectors(rows.points, np.zeros(50), model, response, "score")
    ).mean(axis=0)
    expected = Expected.of(model, rows, response)
    assert expected.score(rows.points @ theta) == pytest.approx(direct)
    steps = 1e-6 * np.eye(P)
    rise = [
        (expected.score(rows.points @ (theta + s)) - expected.score(rows.points @ (theta - s))) / 2e-6 for s in steps
    ]
    assert expected.slope(rows.points @ theta) == pytest.approx(np.array(rise).T, abs=1e-7)
    if exponent == 1.0:
        # Centred: its mean is zero where the origin is the truth, whatever the distribution of the features.
        at = rows.points @ model.origin
        assert expected.score(at) == pytest.approx(np.zeros(P), abs=1e-12)
        # And its slope there is the curvature that people are asked for.
        into = np.linalg.inv(model.transform).T
        assert expected.slope(at) == pytest.approx(mean_matrix(model, rows, response) @ into)
    roots = vectors(rows.points, np.ones(50), model, response, "curvature")
    asked = model.matrix_clipping_norm / 2 * np.einsum("ij,ik->jk", roots, roots) / 50
    assert mean_matrix(model, rows, response) == pytest.approx(asked)


@pytest.mark.parametrize("clipping_norm", [1.0, LARGEST_CLIPPING_NORM])
def test_far_people_count_fully_in_scores_where_the_reach_lets_them_and_never_in_matrices(clipping_norm):
    """Both are what the learner expects of them; a longer vector than 1 would break the promise."""
    rng = np.random.default_rng(4)
    rows = Rows(np.c_[rng.uniform(-1, 1, size=(60, P - 1)), np.ones(60)], np.full(60, 1 / 60))
    model = Model(np.zeros(P), 5.0 * np.eye(P), clipping_norm, 1.0, 0.0, 0.0)
    far = np.linalg.norm(5.0 * rows.points, axis=1)
    assert far.max() > model.matrix_clipping_norm
    scores = vectors(rows.points, np.ones(60), model, Response(True), "score")
    assert np.linalg.norm(scores, axis=1) == pytest.approx(np.minimum(1.0, clipping_norm / far))
    roots = vectors(rows.points, np.ones(60), model, Response(True), "curvature")
    assert np.linalg.norm(roots, axis=1).max() <= 1.0 + 1e-12
    expected = Expected.of(model, rows, Response(True)).score(np.full(60, 50.0))
    assert expected == pytest.approx(scores.mean(axis=0))
    asked = model.matrix_clipping_norm / 2 * roots.T @ roots / 60
    assert mean_matrix(model, rows, Response(True)) == pytest.approx(asked)
    # The twin: without their own reach, matrices would be expected to be others.
    other = replace(model, clipping_norm=2 * model.matrix_clipping_norm if clipping_norm == 1.0 else 1.0)
    assert np.max(np.abs(mean_matrix(other, rows, Response(True)) - asked)) > 0.05
