"""What a release costs, as the ledger keeps it."""

import pytest

from murk.errors import MurkError, UserError
from murk.privacy import ApproxDP, GaussianDP, PrivacyLoss, calibrate
from murk.producers.ledger.costs import LARGEST, Cap, Charge, Cost


class Costed:
    """A mechanism that costs what is said here."""

    kind = "said"
    guarantees = (GaussianDP(0.5),)

    def __init__(self, **costs: tuple[int, int]) -> None:
        self.costs = costs

    def cost(self, currency: str) -> PrivacyLoss:
        if currency not in self.costs:
            raise UserError("no valid bound")
        return PrivacyLoss(currency, *self.costs[currency])


def price(number: int, task: int, **costs: int | None) -> Cost:
    known = {"rho": None, "epsilon": None, "approx": None, "delta": None, "gdp": None, **costs}
    return Cost(number, task, f"level {number}", "gaussian", '[{"gdp": {"mu": 1.0}}]', **known)


def test_what_is_written_stays_the_same() -> None:
    """A ledger of before is searched for these very columns: otherwise the same level would be another price."""
    guarantee = ApproxDP(1.0, 1e-6)
    mechanism = calibrate("laplace", guarantee, dimension=3, radius=1.0)
    charge = Charge.of("default", guarantee, mechanism)
    described = '[{"approx": {"delta": 1e-06, "epsilon": 1.0}}, {"pure": {"epsilon": 1.0}}]'
    assert charge.row() == (
        "default", "laplace", described, 500_000_000_000, 10**12, 10**12, 0, 1_517_911_190_742
    )  # fmt: skip
    kept = Cost(7, 1, *charge.row())
    assert kept.row == charge.row()
    assert kept.guarantees == (guarantee, *mechanism.guarantees)
    assert kept.guarantee == guarantee
    assert [kept.cost(one) for one in ("gdp", "rho", "epsilon", "approx")] == [
        (1_517_911_190_742, 0), (500_000_000_000, 0), (10**12, 0), (10**12, 0)
    ]  # fmt: skip


def test_a_currency_without_a_figure_is_left_out() -> None:
    charge = Charge.of("default", GaussianDP(0.5), Costed(rho=(5, 0), approx=(7, 3)))
    assert charge.row()[3:] == (5, None, 7, 3, None)
    kept = Cost(1, 1, *charge.row())
    assert [kept.cost(one) for one in ("gdp", "rho", "epsilon", "approx")] == [None, (5, 0), None, (7, 3)]
    with pytest.raises(MurkError, match="'said' has no cost in any currency"):
        Charge.of("default", GaussianDP(0.5), Costed())
    # Half of an amount is none.
    assert price(1, 1, approx=7).cost("approx") is None
    assert price(1, 1, delta=3).cost("approx") is None


@pytest.mark.parametrize("costs", [(LARGEST + 1, 0), (0, LARGEST + 1)])
def test_no_figure_is_larger_than_a_ledger_counts(costs: tuple[int, int]) -> None:
    with pytest.raises(UserError, match="at the level 'open' costs more than a ledger can count"):
        Charge.of("open", GaussianDP(0.5), Costed(approx=costs, rho=(1, 0)))
    assert Charge.of("open", GaussianDP(0.5), Costed(approx=(LARGEST, LARGEST))).row()[5:7] == (LARGEST, LARGEST)


def test_what_was_spent_of_a_promise() -> None:
    """In one task of its own releases alone, at whatever level; over all tasks of all; and of no figure, of nothing."""
    prices = {
        1: price(1, 1, rho=5, approx=2, delta=3), 2: price(2, 1, rho=7, approx=20, delta=30), 3: price(3, 2, rho=100)
    }  # fmt: skip
    history = {1: 2, 2: 1, 3: 4}
    assert Cap(1, "", "rho", 9, 0).spent(history, prices) == (17, 0)
    assert Cap(1, "level 1", "rho", 9, 0).spent(history, prices) == (17, 0)
    assert Cap(0, "", "rho", 9, 0).spent(history, prices) == (417, 0)
    assert Cap(1, "", "approx", 9, 9).spent(history, prices) == (24, 36)
    assert Cap(0, "", "approx", 9, 9).spent(history, prices) is None
    assert Cap(0, "", "approx", 9, 9).spent({}, prices) == (0, 0)
    assert Cap(1, "", "approx", 9, 8).amount == PrivacyLoss("approx", 9, 8)
