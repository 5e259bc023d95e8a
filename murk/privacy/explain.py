"""Guarantees in plain words: success rates of the strongest adversary, rounded up."""

import math
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

from murk.privacy.conversions import gdp_epsilon, zcdp_delta, zcdp_epsilon

CENTRAL = ("gaussmix", "gram", "newton")
"""Kinds of mechanism that release a summary of a window of records."""
_FALSE_ALARMS = 0.05
_FOUR_DIGITS, _FORGIVEN = Context(prec=4, rounding=ROUND_CEILING), 1 - Decimal("1e-9")
_FOUR_DOWN = Context(prec=4, rounding=ROUND_FLOOR)
_NORMAL_95 = 1.6448536269514722
_DELTA = 1e-5  # delta at which an epsilon is stated for guarantees of other kinds


def number(value: float) -> str:
    """Format a parameter of a guarantee with four digits, rounded up (with a tolerance of 1e-9 for floating point)."""
    # Use decimals, because floats have no powers of ten small enough for the smallest figures.
    return f"{float(_FOUR_DIGITS.create_decimal(Decimal(value) * _FORGIVEN)):.4g}"


def order(omega: float) -> str:
    """Format the omega of a truncated guarantee with four digits, rounded down, which never states too many orders."""
    return f"{float(_FOUR_DOWN.create_decimal(repr(omega))):.4g}"


def percent(probability: float) -> str:
    """Format a probability in percent, rounded up: one decimal, or as many as keep it below 100%."""
    for digits in (1, 2, 4, 6):
        scale = 10.0 ** (digits + 2)
        rounded = math.ceil(probability * scale - 1e-9) / 10**digits
        if rounded < 100:
            return f"{rounded:.{digits}f}%"
    return "100%"


def verdict(bound: float, holds: bool) -> str:
    """Return an audit's verdict on a claim: ``bound`` is the measured lower bound on the loss."""
    if not holds:
        return "REFUTED"
    return "not refuted" if bound > 0.0 else "no power"


def _phi(x: float) -> float:
    return math.erfc(-x / math.sqrt(2)) / 2


def _adversary(success: float, found: float) -> str:
    return (
        "Even an adversary who knows everything except the record, and has unlimited computing power, tells any two "
        f"possible records apart correctly at most {percent(success)} of the time (guessing: 50.0%), and finds at most "
        f"{percent(found)} of the records looked for while raising false alarms on 5.0% of the others."
        f"{' This is next to no protection.' if success > 0.99 else ''}"
    )


def _odds(epsilon: float) -> float:
    return math.exp(epsilon) if epsilon < 300 else math.inf


def _factor(epsilon: float) -> str:
    exact = f"e^{epsilon:.10g}"
    return f"{exact} = {number(_odds(epsilon))}" if epsilon < 12 else exact


def max_attack_accuracy(kind: str, **parameters: float) -> float:
    """Return the largest probability of telling two records apart: (1 + total variation) / 2."""
    if kind == "gdp":
        return _phi(parameters["mu"] / 2)
    if kind == "tcdp":
        points = ((k / 8, delta) for k, delta in enumerate(_truncated_curve(**parameters)))
        return min(max_attack_accuracy("approx", epsilon=epsilon, delta=min(delta, 1.0)) for epsilon, delta in points)
    if kind == "zcdp":
        rho = parameters["rho"]
        # Bound total variation by the Kullback-Leibler divergence: by Pinsker, or by Bretagnolle-Huber if that is
        # large.
        return (1 + min(math.sqrt(rho / 2), math.sqrt(-math.expm1(-rho)))) / 2
    epsilon, delta = parameters["epsilon"], parameters.get("delta", 0.0)
    return (1 + delta + (1 - delta) * math.tanh(epsilon / 2)) / 2


def _describe_pure(epsilon: float) -> str:
    if epsilon == 0:
        return "Pure differential privacy, epsilon = 0: nothing about the record is disclosed."
    detected = min(1.0, _odds(epsilon) * _FALSE_ALARMS, 1 - math.exp(-epsilon) * (1 - _FALSE_ALARMS))
    return (
        f"Pure differential privacy, epsilon = {epsilon:.10g}: whatever odds anyone gave one possible record "
        f"against another, what is released multiplies them by at most {_factor(epsilon)}. "
        + _adversary(max_attack_accuracy("pure", epsilon=epsilon), detected)
    )


def _describe_approx(epsilon: float, delta: float) -> str:
    if delta == 0:
        return _describe_pure(epsilon)
    success = max_attack_accuracy("approx", epsilon=epsilon, delta=delta)
    least = math.exp(-epsilon) * max(1 - delta - _FALSE_ALARMS, 0.0)
    detected = min(1.0, delta + _odds(epsilon) * _FALSE_ALARMS, 1 - least)
    return (
        f"Approximate differential privacy, epsilon = {epsilon:.10g}, delta = {delta:.10g}: had the record "
        f"been any other, whatever is seen would have had at most {_factor(epsilon)} times the probability plus "
        f"{delta:.10g}. " + _adversary(success, detected)
    )


def _describe_gdp(mu: float) -> str:
    if mu == 0:
        return "Gaussian differential privacy, mu = 0: nothing about the record is disclosed."
    return (
        f"Gaussian differential privacy, mu = {mu:.10g}: telling any two possible records apart is at least "
        f"as hard as telling from one draw whether a bell curve of width 1 is centred at 0 or at {mu:.10g}. "
        + _adversary(max_attack_accuracy("gdp", mu=mu), _phi(mu - _NORMAL_95))
        + f" It is also (epsilon, delta) = ({number(gdp_epsilon(mu, _DELTA))}, {_DELTA:g})-differential "
        f"privacy, and zero-concentrated with rho = {number(mu**2 / 2)}."
    )


def _describe_zcdp(rho: float) -> str:
    if rho == 0:
        return "Zero-concentrated differential privacy, rho = 0: nothing about the record is disclosed."
    success = max_attack_accuracy("zcdp", rho=rho)
    curve = (zcdp_delta(rho, k / 8) + math.exp(k / 8) * _FALSE_ALARMS for k in range(25))
    return (
        f"Zero-concentrated differential privacy, rho = {rho:.10g}: what is released tells any two possible "
        f"records apart by at most rho times alpha in Renyi divergence of every order alpha. "
        + _adversary(success, min(1.0, _FALSE_ALARMS + 2 * success - 1, *curve))
        + f" It is also (epsilon, delta) = ({number(zcdp_epsilon(rho, _DELTA))}, {_DELTA:g})-differential "
        f"privacy. If the noise is Gaussian it is mu-GDP with mu = {number(math.sqrt(2 * rho))}, which says more."
    )


def _describe_tcdp(rho: float, omega: float, delta: float) -> str:
    curve = _truncated_curve(rho, omega, delta)
    detected = min(1.0, *(each + math.exp(k / 8) * _FALSE_ALARMS for k, each in enumerate(curve)))
    return (
        f"Truncated concentrated differential privacy, rho = {rho:.10g}, omega = {omega:.10g}, delta = {delta:.10g}: "
        "but for an event of probability delta, what is released tells any two possible records apart by at most rho "
        "times alpha in Renyi divergence of every order alpha up to omega. "
        + _adversary(max_attack_accuracy("tcdp", rho=rho, omega=omega, delta=delta), detected)
        + f" It is also (epsilon, delta) = ({number(zcdp_epsilon(rho, _DELTA, omega))}, {number(delta + _DELTA)})-"
        "differential privacy."
    )


_DESCRIPTIONS: dict[str, Callable[..., str]] = {
    "pure": _describe_pure,
    "approx": _describe_approx,
    "gdp": _describe_gdp,
    "zcdp": _describe_zcdp,
    "tcdp": _describe_tcdp,
}


def describe(kind: str, **parameters: float) -> str:
    """Describe a guarantee in plain words."""
    return _DESCRIPTIONS[kind](**parameters)


def _truncated_curve(rho: float, omega: float, delta: float) -> list[float]:
    """Return delta at epsilon = 0, 1/8, ..., 3."""
    return [delta + zcdp_delta(rho, k / 8, omega) for k in range(25)]
