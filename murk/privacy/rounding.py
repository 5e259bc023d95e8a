"""Arithmetic for privacy claims: exact rationals, and decimals with proved error bounds.

Exponentials and the normal distribution are computed with 60 decimal digits and then moved against the claim by a
margin well above the rounding error.
"""

import decimal as decimals
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from fractions import Fraction
from statistics import NormalDist

from murk.errors import UserError

_ERROR_CODE = "MURK-PRIVACY-001"

_DIGITS = 60
_TINY = Fraction(1, 10**323)
_LARGEST = sys.float_info.max
_HUGE = Fraction(repr(_LARGEST))
# For smaller mu, differences are computed from the slope, which avoids cancellation.
_LINEAR = Decimal("1e-20")
_NEGLIGIBLE, _CLOSE = Decimal("1e-62"), Decimal("1e-54")
_TWO_PI = Decimal("6.28318530717958647692528676655900576839433879875021164194988918461563281")


@contextmanager
def precise() -> Iterator[None]:
    """Use decimal arithmetic with 60 digits and unlimited exponents within the block."""
    traps = [decimals.DivisionByZero, decimals.InvalidOperation, decimals.Overflow]
    exponents = decimals.MIN_EMIN, decimals.MAX_EMAX
    with decimals.localcontext(decimals.Context(_DIGITS, decimals.ROUND_HALF_EVEN, *exponents, traps=traps)):
        yield


def require(name: str, value: float, *, positive: bool = False, below: float = math.inf) -> None:
    """Raise `UserError` if a parameter is outside [0, below), or outside (0, below) if it must be positive."""
    if not (value > 0 if positive else value >= 0) or not value < below:
        lower, upper = "above" if positive else "at least", "finite" if below == math.inf else f"below {below:g}"
        raise UserError(f"{name}={value!r} is out of range: it must be {lower} 0 and {upper}")


def rational(value: float) -> Fraction:
    """Return the rational number that a float's shortest decimal means: 0.1 is 1/10."""
    return Fraction(repr(float(value)))


def decimal(value: Fraction) -> Decimal:
    """Return a rational as a decimal, correctly rounded in the current precision."""
    return Decimal(value.numerator) / Decimal(value.denominator)


def float_up(value: Fraction | Decimal) -> float:
    """Return the smallest float whose `rational` is at least ``value``; infinite if there is none."""
    # Decimals out of the range of floats could need billions of digits as fractions.
    if -_TINY < value < _TINY:
        return math.ulp(0.0) if value > 0 else 0.0
    if not -_HUGE <= value <= _HUGE:
        return math.inf if value > 0 else -_LARGEST
    exact = Fraction(value)
    result = float(exact)
    while rational(result) < exact:
        result = math.nextafter(result, math.inf)
    return result


def float_down(value: Fraction | Decimal) -> float:
    """Return the largest float whose `rational` is at most ``value``."""
    # Unary minus would round a decimal to the current precision.
    return -float_up(value.copy_negate() if isinstance(value, Decimal) else -value) + 0.0


def largest_integer(holds: Callable[[int], bool], below: int) -> int:
    """Return the largest integer in [0, below) for which ``holds``, true up to some point and then false; 0 if none."""
    low, high = 0, below
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def smallest_float(holds: Callable[[Fraction], bool], low: float, high: float) -> float:
    """Return the smallest float in (low, high] for which ``holds``, false up to some point and then true."""
    while low < (middle := low + (high - low) / 2) < high:
        low, high = (low, middle) if holds(rational(middle)) else (middle, high)
    return high


def _mills(x: Decimal) -> Decimal:
    """Return Mills' ratio of the normal distribution, (1 - Phi(x)) / phi(x), to a relative error below 1e-50."""
    if x < -4:
        return _TWO_PI.sqrt() * (x * x / 2).exp() - _mills(-x)
    if x < 5:
        # Phi(x) - 1/2 = phi(x) sum_k x^(2k+1) / (2k+1)!!. The ratio is 0.19 or more here and the terms that cancel are
        # 340,000 at most, so 52 of the 60 digits are left.
        term = total = x
        square, odd = x * x, 1
        while abs(term) > _NEGLIGIBLE:
            odd += 2
            term = term * square / odd
            total += term
        return _TWO_PI.sqrt() * (x * x / 2).exp() / 2 - total
    # Laplace's continued fraction 1 / (x + 1 / (x + 2 / (x + ...))): successive convergents lie on either side of the
    # value. Each is a ratio of sums of positive terms, so few of the 60 digits are lost.
    above, before, below, under = Decimal(1), Decimal(0), x, Decimal(1)
    k = 0
    while True:
        for _ in range(8):
            k += 1
            above, before = x * above + k * before, above
            below, under = x * below + k * under, below
        value = above / below
        if abs(value - before / under) < value * _CLOSE:
            return value


def gdp_delta_bound(mu: Fraction | Decimal, epsilon: Fraction) -> Decimal:
    """Return an upper bound, tight to 40 digits, of the delta of a mu-GDP release at epsilon >= 0.

    delta(epsilon) = Phi(-z) - e^epsilon Phi(-z - mu) = phi(z) (M(z) - M(z + mu)), z = epsilon / mu - mu / 2,
    with Mills' ratio M (because e^epsilon phi(z + mu) = phi(z)).
    """
    with precise():
        m = mu if isinstance(mu, Decimal) else decimal(mu)
        z = decimal(epsilon) / m - m / 2
        # z carries a relative error of 1e-59, which the exponential multiplies by z^2.
        error = (1 + z * z) * Decimal("1e-48")
        density = (-z * z / 2).exp() / _TWO_PI.sqrt()
        if m < _LINEAR:
            # M is convex with the slope z M(z) - 1, so this is an upper bound, above by a share of 2 m at most.
            return density * m * (1 - z * _mills(z) + 4 * error)
        if z < -1000:
            # Phi(-z) is 1 to 200,000 digits, and M(z) may be out of the range of decimals.
            return Decimal(1)
        near, far = _mills(z), _mills(z + m)
        return density * (near - far) + density * (near + far) * error


def log_odds_bounds(mu: Fraction) -> tuple[Decimal, Decimal]:
    """Return lower and upper bounds, tight to 40 digits, of log(Phi(mu/2) / Phi(-mu/2)) for mu > 0."""
    with precise():
        m = decimal(mu) / 2
        if m < _LINEAR:
            # Convex, with the slope 4 phi(0) at 0 and less than 4 phi(0) (1 + m^2) at m.
            value = 4 * m / _TWO_PI.sqrt()
            margin = value * Decimal("1e-38")
        else:
            # Use the tail's logarithm, since the tail itself may be out of the range of decimals.
            log_tail = _mills(m).ln() - m * m / 2 - _TWO_PI.ln() / 2
            value = (1 - log_tail.exp()).ln() - log_tail
            margin = (1 + m * m) * Decimal("1e-48")
        return value - margin, value + margin


def pure_mu_bound(epsilon: Fraction | Decimal) -> Decimal:
    """Return a bound on epsilon-DP's mu, 2 Phi^-1(e^epsilon / (1 + e^epsilon)), to 30 digits for epsilon >= 1e-18."""
    with precise():
        wanted = epsilon if isinstance(epsilon, Decimal) else decimal(epsilon)
        if wanted <= 0:
            return Decimal(0)
        # Newton's method from above: the log odds are convex in mu, so that no step passes the root.
        mu = min(wanted * Decimal("1.2534"), (8 * wanted).sqrt()) * Decimal("1.2")
        for _ in range(200):
            step = (log_odds_bounds(Fraction(mu))[1] - wanted) / _log_odds_slope(mu)
            mu -= step
            if abs(step) <= mu * Decimal("1e-34"):
                break
        mu *= 1 + Decimal("1e-35")
        # Verify the result: the odds at this mu must be at least those of epsilon.
        more = Decimal("1e-35")
        while log_odds_bounds(Fraction(mu))[0] < wanted:
            mu *= 1 + more
            more *= 2
        return mu


def normal_upper(tail: Fraction) -> Decimal:
    """Return an upper bound, tight to 30 digits, on the z that a normal variable exceeds with probability ``tail``."""
    with precise():
        wanted, error = decimal(tail), Decimal("1e-45")
        z = Decimal(-NormalDist().inv_cdf(float(tail)))

        def probability() -> Decimal:
            return _mills(z) * (-z * z / 2).exp() / _TWO_PI.sqrt()

        for _ in range(4):
            z += (probability() - wanted) * _TWO_PI.sqrt() * (z * z / 2).exp()
        # Verify the result: no more than ``tail`` may lie above it.
        more = Decimal("1e-35")
        while probability() * (1 + error) > wanted:
            z += more
            more *= 2
        return z


def _log_odds_slope(mu: Decimal) -> Decimal:
    """Return the derivative of log(Phi(mu/2) / Phi(-mu/2)): phi(mu/2) / (2 Phi(mu/2) Phi(-mu/2))."""
    m = mu / 2
    ratio = _mills(m)
    tail = ratio * (-m * m / 2).exp() / _TWO_PI.sqrt()
    return 1 / (2 * ratio * (1 - tail))
