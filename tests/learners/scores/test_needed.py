"""What is said that it would take to learn a coefficient: followed, it is learned."""

import numpy as np
import pytest

from murk.privacy import GaussianDP, PureDP, ZeroConcentratedDP
from murk.protocols.scores.estimate import Need
from murk.protocols.scores.model import mean_matrix
from tests.learners.scores.people import device_of, features, learn, learn_sums, outcomes, public

P, N, MU = 3, 4_000, 0.5
THETA = np.array([0.7, -1.0, 0.6, -0.3])


def people(n):
    rng = np.random.default_rng(7)
    X = features(rng, n, P)
    return X, outcomes(rng, X, THETA)


def learned(n, mu, rows=None):
    X, y = people(n)
    device = device_of(P, mu, covariates=None if rows is None else public(people(n + rows)[0][n:]))
    return learn_sums(device, X, y, 1).estimate()


def unknown(estimate, level=0.95):
    return {name for name, half in zip(estimate.names, estimate.half_widths(level), strict=True) if np.isinf(half)}


@pytest.fixture(scope="module")
def stopped():
    return learned(N, MU)


def test_followed_it_is_learned(stopped):
    needs = stopped.needs()
    assert needs.keys() == unknown(stopped) != set()
    people = max(need.people for need in needs.values())
    assert N < people < 100 * N
    # Of a forecast that means nothing the first would not do, or a part of it would. (One forecast in five falls short
    # by more than a factor of two.)
    assert unknown(learned(4 * people, MU)) == set()
    assert unknown(learned(people // 12, MU)) != set()
    budget = max((need.budgets["default"] for need in needs.values()), key=lambda each: each.mu)
    assert MU < budget.mu <= 10.0
    assert unknown(learned(N, 1.5 * budget.mu)) == set()
    rows = max(need.public_rows for need in needs.values())
    assert unknown(learned(N, MU, 2 * rows)) == set()


def test_what_is_learned_needs_nothing():
    found = learned(60_000, 2.0)
    assert unknown(found) == set()
    assert found.needs() == {}


def test_a_higher_level_takes_no_fewer_people(stopped):
    some, more = stopped.needs(0.9), stopped.needs(0.999)
    assert some.keys() <= more.keys()
    assert all(more[name].people >= need.people for name, need in some.items())


def test_where_nothing_stands_out_nothing_is_said():
    for estimate in (device_of(P, MU).engine().estimate(), learned(1_000, 0.02)):
        needs = estimate.needs()
        assert needs.keys() == set(estimate.names)
        for need in needs.values():
            assert need == Need(seen=False)
            assert need.to_dict() == {
                "people": None, "budgets": None, "public_rows": None, "at_least": False, "stated": None,
                "words": need.words,
            }  # fmt: skip
            assert "than can be forecast" in need.words


def test_with_public_rows_no_more_are_asked_for():
    found = learned(3_000, 0.1, 500)
    needs = found.needs()
    assert needs
    assert all(need.public_rows is None for need in needs.values())
    assert any(need.people for need in needs.values())


def test_with_public_rows_forecast_curvatures_are_those_of_the_rows():
    outlook = learned(3_000, 0.5, 500).outlook
    model = outlook.settings.first_model(outlook.mechanisms)
    assert model.matrix_clipping_norm < model.clipping_norm / 1_000
    [answers] = outlook._epoch(model, 1_000_000)
    expected = mean_matrix(model, outlook.solution.rows, outlook.settings.response)
    assert answers.curvature.mean == pytest.approx(min(outlook.solution.targets[0], 1.0) * expected, abs=1e-3)
    assert np.trace(expected) > 0.1


@pytest.mark.parametrize(("guarantee", "name"), [(PureDP(0.7), "epsilon"), (ZeroConcentratedDP(0.05), "rho")])
def test_budgets_are_of_the_kind_that_was_asked_for(guarantee, name):
    found = learn(device_of(P, None, guarantee=guarantee), *people(N), 1).estimate()
    budgets = [need.budgets["default"] for need in found.needs().values() if need.budgets]
    assert budgets
    for budget in budgets:
        assert type(budget) is type(guarantee) or name == "rho"
        (parameters,) = budget.to_dict().values()
        assert next(iter(parameters.values())) > 0


def test_classes_and_real_targets():
    rng = np.random.default_rng(3)
    X = features(rng, 3_000, P)
    rows = public(features(rng, 500, P))
    classes = learn(
        device_of(P, 0.1, covariates=rows, labels=("a", "b", "c")), X, rng.integers(0, 3, 3_000).astype(float), 3
    )
    needs = classes.estimate().needs()
    assert needs.keys() == unknown(classes.estimate()) != set()
    assert all(need.seen and (need.people or need.words.startswith("more")) for need in needs.values())
    real = learn(device_of(P, 0.4, binary=False), X, rng.uniform(-1, 1, 3_000), 3).estimate()
    assert real.needs().keys() == unknown(real) != set()


def test_words():
    both = Need(1_200, {"default": GaussianDP(2.0), "strict": GaussianDP(1.0)})
    assert (
        both.words
        == "about 1,200 people in all, or mu of about 2 (default) and mu of about 1 (strict) with as many people as now"
    )
    assert Need().words == "more than 500 times the people"
    assert (
        Need(1_200, public_rows=1_000, least=True).words
        == "at least 1,200 people in all, or at least 1,000 public rows like the people"
    )


def test_a_direction_that_is_not_told_from_noise_may_take_more():
    """Two features that nearly always agree: how one goes with the outcome where the other does not is not told."""
    rng = np.random.default_rng(5)
    X = features(rng, 4_000, P)
    X[:, 1] = np.where(rng.random(len(X)) < 0.01, -X[:, 0], X[:, 0])
    X[:, 2] = np.where(rng.random(len(X)) < 0.5, 1.0, -1.0)
    needs = learn_sums(device_of(P, 0.3), X, outcomes(rng, X, THETA), 5).estimate().needs()
    assert needs.keys() >= {"x0", "x1", "x2"}
    assert all(need.least for need in needs.values())
    assert all("at least" in need.words and "about" not in need.words for need in needs.values())
