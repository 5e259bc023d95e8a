"""The examples of theorems 19, 20 and 26: normal expectations by quadrature."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from murk.protocols.mean_functions import LINKS, LOSSES, Curve
from murk.protocols.moments.solve import solve
from reproductions.experiment import Check, Measured, Outcome, Panel, Row, Series, Setting

Floats = NDArray[np.float64]

END: Final = 6.0
"""c-bar of the paper."""
PRINTED: Final = 1 / 20
"""Standard deviation of ``x'w_ols`` where ``x ~ N(0, I/p)`` and ``|w_ols| = sqrt p / 20``."""
TRUE: Final = 1 / 4
"""Standard deviation of ``x'w*``."""


@dataclass(frozen=True)
class Example:
    """A theorem, its mean function, and its bounds of the slope and of the slope's derivative."""

    theorem: int
    curve: Curve
    most: float
    steepest: float


EXAMPLES: Final = (
    Example(19, LOSSES["logistic"], 1.0, 1.0),
    Example(20, LOSSES["boosting"], 0.25, 3 / 16),
    Example(26, LINKS["sigmoid"], 1.0, 1.0),
)


def nodes(points: int) -> tuple[Floats, Floats]:
    """Return quadrature points and weights of the standard normal distribution."""
    found, weights = np.polynomial.hermite_e.hermegauss(points)
    return found, weights / weights.sum()


def left_side(curve: Curve, c: float, spread: float, points: int = 101) -> float:
    """Return ``f(c) = c E Phi''(c s)``, s normal with standard deviation ``spread``.

    Examples
    --------
    >>> round(left_side(LOSSES["logistic"], 6.0, 1 / 20), 3)
    1.468
    """
    z, weights = nodes(points)
    return c * float(weights @ curve.slope(c * spread * z))


def growth(curve: Curve, c: float, spread: float, points: int = 101) -> float:
    """Return the derivative of :func:`left_side` in c."""
    z, weights = nodes(points)
    at = c * spread * z
    return float(weights @ (curve.slope(at) + at * curve.bend(at)))


def least_squares(curve: Curve) -> float:
    """Return the standard deviation of ``x'w_ols`` for that of ``x'w*``, by Stein's identity."""
    z, weights = nodes(101)
    return TRUE * float(weights @ curve.slope(TRUE * z))


def examples(setting: Setting) -> Outcome:
    """Test theorems 19, 20 and 26, and the link of the experiments."""
    grid, rows, checks, panels = np.linspace(0.0, 8.0, 81), [], [], []
    points = setting.of(tiny=41, reduced=101, full=201)
    z, weights = nodes(points)
    far = np.linspace(-20.0, 20.0, 40_001)
    for one in EXAMPLES:
        name, own = f"Theorem {one.theorem} ({one.curve.name})", least_squares(one.curve)
        at = [left_side(one.curve, END, spread, points) for spread in (PRINTED, own)]
        least = [min(growth(one.curve, c, spread, points) for c in grid[grid <= END]) for spread in (PRINTED, own)]
        roots = [solve(one.curve, spread * z, weights, None)[1] for spread in (PRINTED, own)]
        slope = float(one.curve.slope(far).max())
        steepest = float(np.abs(one.curve.bend(far)).max())
        for what, published, found in (
            ("f(6)", "more than 1.22", at),
            ("least f' on [0, 6]", "more than 0.1", least),
            ("c with f(c) = 1", "less than 6", roots),
        ):
            rows.append(Row(
                what=f"{name}: {what}", tag="exact", published=published, as_published=Measured(found[0]),
                corrected=Measured(found[1]), note="Corrected uses the least-squares vector of w*.",
            ))  # fmt: skip
        rows += [
            Row(what=f"{name}: bound of Phi''", tag="exact", published=one.most, as_published=Measured(slope)),
            Row(what=f"{name}: Lipschitz constant of Phi''", tag="exact", published=one.steepest,
                as_published=Measured(steepest)),
            Row(what=f"{name}: |w_ols| / sqrt p", tag="exact", published=PRINTED, corrected=Measured(own)),
        ]  # fmt: skip
        checks += [
            Check(f"{name}: f(6) > 1.22", min(at) > 1.22, f"{at[0]:.4g}, {at[1]:.4g}"),
            Check(f"{name}: f' > 0.1 on [0, 6]", min(least) > 0.1, f"{least[0]:.4g}, {least[1]:.4g}"),
            Check(f"{name}: a root below 6", max(roots) < END, f"{roots[0]:.4g}, {roots[1]:.4g}"),
            Check(f"{name}: the bounds hold", slope <= one.most + 1e-12 and steepest <= one.steepest,
                  f"{slope:.4g} and {steepest:.4g}"),
            Check.near(f"{name}: w* is the root times the right w_ols", Measured(roots[1] * own), TRUE, relative=1e-6),
            Check.less(f"{name}: w* is not the root times the printed w_ols", Measured(roots[0] * PRINTED), TRUE,
                       times=1.2),
        ]  # fmt: skip
        if one.theorem != 26:
            panels.append(_panel(one, grid, own))
    logistic = EXAMPLES[0].curve
    checks += [
        Check.near("f(6), logistic", Measured(left_side(logistic, END, PRINTED)), 1.468, within=5e-4),
        Check.near("c, logistic", Measured(1 / (least_squares(logistic) / TRUE)), 4.06, within=5e-3),
    ]
    kept = all(check.holds for check in checks if "f(6) >" in check.claim or "f' >" in check.claim)
    rows.append(_falling(checks))
    own, root = least_squares(logistic), TRUE / least_squares(logistic)
    agrees = abs(own - PRINTED) < 0.01 * PRINTED
    return Outcome(
        rows=rows, panels=panels, checks=checks,
        verdict=f"The inequalities {'hold' if kept else 'do not hold'}. The printed length of w_ols is "
        f"{'right' if agrees else 'wrong'}: |w*| = sqrt p / 4 goes with |w_ols| = sqrt p / {1 / own:.3g} "
        f"(c = {root:.3g}), where sqrt p / 20 is printed. With the printed length c would have to be 5, and is "
        f"{solve(logistic, PRINTED * z, weights, None)[1]:.3g}.",
    )  # fmt: skip


def _falling(checks: list[Check]) -> Row:
    """Test the experiments' link log(1 + e^-x): it falls, so no c > 0 solves f(c) = 1."""
    softplus = LINKS["softplus"]
    z, weights = nodes(101)

    def falling(c: float) -> float:
        return -c * float(weights @ softplus.slope(-c * TRUE * z))

    most = Measured(max(falling(c) for c in np.linspace(0.01, 50.0, 500)))
    # By symmetry the root is c = -2 for every spread.
    root = Measured(-2.0)
    checks += [
        Check.less("log(1 + e^-x): the left side is below 1 for every c > 0", most, 0.0),
        Check.near("log(1 + e^-x): the root is negative", Measured(falling(root.value)), 1.0, within=1e-9),
    ]
    return Row(what="link log(1 + e^-x): c with f(c) = 1", tag="exact", published="formula only", corrected=root,
               note="Newton's method from a positive start does not find a negative c. Murk's link is softplus, "
               "log(1 + e^x): the same model with all signs turned.")  # fmt: skip


def _panel(one: Example, grid: Floats, own: float) -> Panel:
    series = [
        Series(name="as printed, |w_ols| = sqrt p / 20", x=grid.tolist(),
               y=[left_side(one.curve, c, PRINTED) for c in grid]),
        Series(name=f"that of w*, sqrt p / {1 / own:.3g}", x=grid.tolist(),
               y=[left_side(one.curve, c, own) for c in grid], style="dashed"),
    ]  # fmt: skip
    return Panel(title=f"{one.curve.name}", x="c", y="f(c) = c E Phi''(c x'w_ols)", series=series, line_at=1.0)
