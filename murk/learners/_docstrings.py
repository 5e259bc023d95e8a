"""Texts that several estimators' docstrings share. Does not import River."""

from __future__ import annotations

import inspect
import re
from typing import TypeVar

_ERROR_CODE = "MURK-LEARN-001"

C = TypeVar("C", bound=type)

SHARED = """
Parameters
----------
guarantee
    Guarantee of each release: ``PureDP``, ``ApproxDP``, ``GaussianDP`` or ``ZeroConcentratedDP``.
levels
    Further guarantees by name, for releases made elsewhere.
mechanism
    ``"gaussian"``, ``"laplace"``, ``"l2-ball"`` or ``"privunit"``; by default the one of least variance: Gaussian for
    GDP and zCDP guarantees, mostly PrivUnit for pure and (epsilon, delta) guarantees.
calibration
    ``"analytic"``, or ``"classic"`` for the papers' (epsilon, delta) formula.
features
    Feature names in a fixed order; required unless noise is simulated, then by default the sorted names of the first
    record.
target_bounds
    Public bounds (low, high) of the target, to which it is clipped before it is coded to [-1, 1]; the noise is that of
    the whole range. Required unless noise is simulated or releases are learned, then (-1, 1) by default.
step
    ``"noise-aware"``, or River's ``optim.schedulers.InverseScaling``.
averaging
    ``"polyak"``, ``"polynomial-decay"`` or ``None``.
weighting
    How people are weighted by their public noise level: ``"inverse-variance"`` or ``"uniform"``.
seed, noise
    Simulate the noise from a seed (no privacy), or take it from another source.
"""

_SECTION = re.compile(r"Parameters\n-+\n(.*?)(?=\n\n\w[^\n]*\n-+\n|\s*\Z)", re.DOTALL)


def documented(cls: C) -> C:
    """Complete the ``Parameters`` section of an estimator's docstring, in the constructor's order.

    The class's own entries precede those of its base classes, and these `SHARED` ones.

    Examples
    --------
    >>> @documented
    ... class Learner:
    ...     '''Learn.
    ...
    ...     Parameters
    ...     ----------
    ...     radius
    ...         Bound on coefficients.
    ...     '''
    ...
    ...     def __init__(self, levels, radius): ...
    >>> print(Learner.__doc__)
    Learn.
    <BLANKLINE>
    Parameters
    ----------
    levels
        Further guarantees by name, for releases made elsewhere.
    radius
        Bound on coefficients.
    """
    bases = [base for base in reversed(cls.__mro__) if base is cls or base.__module__.startswith("murk.")]
    entries: dict[str, str] = {}
    for text in (SHARED, *(inspect.cleandoc(base.__dict__.get("__doc__") or "") for base in bases)):
        section = _SECTION.search(text)
        for entry in re.split(r"\n(?=\S)", section[1]) if section else ():
            entries |= dict.fromkeys(entry.partition("\n")[0].split(", "), entry)
    # An entry for several parameters is placed at the first of them.
    described = dict.fromkeys(entries[name] for name in inspect.signature(cls).parameters if name in entries)
    text = "Parameters\n----------\n" + "\n".join(described)
    cls.__doc__ = _SECTION.sub(lambda _: text, inspect.cleandoc(cls.__doc__ or ""), count=1)
    return cls
