"""Which numbers a person's record becomes, and by how much two records' numbers can differ.

For a record with ``||x|| <= r`` and a target scaled to ``|y| <= b`` it is the vector of second moments

    (x_i^2, sqrt 2 x_i x_j for i < j, x_i y)

whose squared distance between two records is ``||x||^4 + ||z||^4 - 2 <x,z>^2 + ...``: off-diagonal entries stand
twice in a matrix, and sqrt 2 makes the vector's distance the matrices'. Over all records the largest distance is

    sqrt 2 (r^2 + b^2 / 2)   if b^2 <= 2 r^2,   else   2 r b

(maximise ``2 r^4 (1 - t^2) + 2 b^2 r^2 (1 + t)`` over the cosine t of the angle between two features).

So that a missing target counts as none, one more number says whether there is one (``observed``): it is r where there
is, and -r where there is none, all others being 0 then. Such a record is at most

    sqrt(r^4 - 1 + b^2 r^2 + 4 r^2)

from one that has a target, which with b = sqrt 2 r is never more than what two of these differ by: at the scale that
is the default the number costs nothing.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from murk._scratch import copied, empty
from murk.errors import UserError
from murk.learners.moments import kernels

Floats = NDArray[np.float64]


def sensitivity(r: float, b: float) -> float:
    """The largest distance between two records' moments, ``||x|| <= r``, ``|y| <= b``, off-diagonals times sqrt 2.

    Examples
    --------
    >>> round(sensitivity(1.0, 1.0), 4)
    2.1213
    >>> sensitivity(1.0, 2.0)
    4.0
    """
    return math.sqrt(2.0) * (r * r + b * b / 2.0) if b * b <= 2.0 * r * r else 2.0 * r * b


def balanced(r: float) -> float:
    """The scale b of the target at which ``x y`` gets as little noise as if it were released alone: ``sqrt 2 r``.

    There the sensitivity is ``2 r b``, so that ``x y`` carries the noise of sensitivity ``2 r`` in the target's own
    units, the least possible; ``x x'`` comes with it for nothing, at most twice as noisy as it could be.
    """
    return math.sqrt(2.0) * r


@dataclass(frozen=True)
class Statistics:
    """The layout of a release's numbers.

    Parameters
    ----------
    names
        Coded features in their fixed order, the constant last if there is one.
    radius
        ``r``: bound of ``||x||_2``, the constant included.
    weight
        ``b``: what a coded target in [-1, 1] is multiplied by.
    constant
        Whether the last feature is the constant 1. The entry 1*1 is then public, and neither released nor noised.
    root
        What off-diagonal entries are multiplied by: sqrt 2, or 1 as published.
    zero
        Whether a record beyond the bound is replaced by zero moments; otherwise it is scaled down to the bound.
    units
        What 1 of a coded feature, and 1 and 0 of a coded target, stand for: moments in other units do not add up.
    observed
        Whether a record without a target is told from others, and has no moments. In place of the entry 1*1 stands
        then whether there is a target; so it takes the constant.
    """

    names: tuple[str, ...]
    radius: float
    weight: float = 1.0
    constant: bool = True
    root: float = math.sqrt(2.0)
    zero: bool = False
    units: tuple[float, ...] = ()
    # Not in what is printed: the fingerprint of all others is made of it.
    observed: bool = field(default=False, repr=False)

    def __post_init__(self) -> None:
        least = 1.0 if self.constant else 0.0
        if not (math.isfinite(self.radius) and self.radius > least):
            raise UserError(f"the bound of ||x|| is finite and above {least:g}, got {self.radius!r}")
        if not (math.isfinite(self.weight) and self.weight > 0):
            raise UserError(f"the target's scale must be positive and finite, got {self.weight!r}")
        if self.observed and not self.constant:
            raise UserError("without the constant nothing tells how many targets there are: use release='joint'")

    @property
    def size(self) -> int:
        """Number p of coded features, the constant among them."""
        return len(self.names)

    @property
    def cross(self) -> int:
        """Where ``x y`` begins: the number of entries of ``x x'``, or of these and whether there is a target."""
        return self.size * (self.size + 1) // 2 - (self.constant and not self.observed)

    @property
    def dimension(self) -> int:
        """Numbers in a release."""
        return self.cross + self.size

    @property
    def reach(self) -> float:
        """Bound of the norm of the features without the constant."""
        return math.sqrt(self.radius**2 - self.constant)

    @property
    def gain(self) -> float:
        """What features in their own units are multiplied by."""
        return self.units[0] if self.units else 1.0

    @property
    def sensitivity(self) -> float:
        """The largest distance between two records' vectors."""
        both = sensitivity(self.radius, self.weight)
        return max(both, math.sqrt(self._square + 4.0 * self.presence**2)) if self.observed else both

    @property
    def presence(self) -> float:
        """The number that says that there is a target, and in the negative that there is none; 0 without one."""
        return self.radius if self.observed else 0.0

    @property
    def _square(self) -> float:
        """The largest square of the norm of ``x x'`` and ``x y``."""
        return self.radius**4 - self.constant + (self.weight * self.radius) ** 2

    @property
    def norm(self) -> float:
        """Bound of one vector's norm."""
        return math.sqrt(self._square + self.presence**2)

    @property
    def digest(self) -> str:
        """Fingerprint: states go on, and chains merge, only between equal ones. Any loss may be fitted to them."""
        text = repr(self) + " observed" * self.observed
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def labels(self) -> tuple[str, ...]:
        """A name for each number of a release: ``"a*b"``, ``"observed"``, and ``"a*target"``."""
        pairs = [f"{a}*{b}" for i, a in enumerate(self.names) for b in self.names[i:]]
        if self.observed:
            pairs[-1] = "observed"
        return (*pairs[: self.cross], *(f"{name}*target" for name in self.names))

    def vectors(self, X: Floats, y: Floats) -> Floats:
        """Moments of coded records.

        Parameters
        ----------
        X
            Shape (m, p); what is not finite counts as 0, what is beyond the bound is projected to it.
        y
            Shape (m,), in [-1, 1]; NaN (missing) counts as 0, so that nobody is left out, or, if ``observed``, as none.

        Returns
        -------
        Shape (m, dimension).

        Examples
        --------
        >>> Statistics(("a", "1"), radius=2.0).vectors(np.array([[0.5, 1.0]]), np.array([1.0])).round(3).tolist()
        [[0.25, 0.707, 0.5, 1.0]]
        """
        out = empty((len(X), self.dimension))
        kernels.moments_of(
            copied(X), copied(y), self.reach,
            self.constant, self.zero, self.root, self.weight, self.presence, out,
        )  # fmt: skip
        return out

    def matrices(self, vector: Floats) -> tuple[Floats, Floats]:
        """``(E x x', E x y)`` of shapes (p, p) and (p,), from the mean of released vectors.

        If ``observed``, these are means over all records, of zeros where there is no target: the constant's own entry
        is the :meth:`share` of targets.
        """
        p = self.size
        pairs = p * (p + 1) // 2 - self.constant
        upper = np.append(vector[:pairs], [self.share(vector)] * self.constant)
        matrix = np.zeros((p, p))
        matrix[np.triu_indices(p)] = upper
        matrix /= np.where(np.eye(p, dtype=bool), 1.0, self.root)
        matrix = matrix + matrix.T - np.diag(np.diag(matrix))
        return matrix, vector[self.cross :] / self.weight

    def share(self, vector: Floats) -> float:
        """The share of records with a target, from the mean of released vectors; 1 where nothing tells."""
        return (1.0 + float(vector[self.cross - 1]) / self.presence) / 2.0 if self.observed else 1.0

    def share_variance(self, variance: float) -> float:
        """Variance of the share, where that of the released numbers is ``variance``."""
        return variance / (2.0 * self.presence) ** 2 if self.observed else 0.0

    def entry_variances(self, variance: float) -> Floats:
        """Variances of the entries of ``E x x'``, (p, p), where those of the released numbers are ``variance``."""
        p = self.size
        table = np.full((p, p), variance / self.root**2)
        np.fill_diagonal(table, variance)
        if self.constant:
            table[-1, -1] = 0.0
        return table
