"""One of several private values, drawn at random without looking at them, randomized by its own mechanism."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from murk._internal.arrays import Floats, Integers
from murk._internal.wiping import track, wiped
from murk.errors import UserError
from murk.privacy.guarantees import Guarantee
from murk.privacy.mechanisms.base import Wrapped, checked_indices
from murk.privacy.mechanisms.costs import Currency, PrivacyLoss
from murk.privacy.mechanisms.lattice import PayloadBound

if TYPE_CHECKING:
    from murk.privacy.noise import NoiseSource

_ERROR_CODE = "MURK-PRIVACY-001"

_HALF_WORD = np.uint64(32)


@dataclass(frozen=True)
class DrawnMechanism(Wrapped):
    """Release the number of a part, drawn evenly and independently of the record, and that part's release alone.

    Whatever the draw, the rest of the record has no effect on the release, so that the guarantee is the weakest part's.
    The first integer of a release is the number of the part. Releases of shorter parts end in zeros.

    Parameters
    ----------
    parts
        Mechanisms of a cell and private values, `KnownMechanism`.
    width
        Number of private values of each part.

    Examples
    --------
    >>> from murk.privacy import KnownMechanism, PureDP, SubsetSelection
    >>> part = KnownMechanism(SubsetSelection.calibrate(PureDP(1.0), categories=2), cells=6)
    >>> drawn = DrawnMechanism((part, part))
    >>> drawn.dimension, drawn.guarantee
    (4, PureDP(epsilon=1.0))
    """

    parts: tuple[Any, ...]
    width: int = 1

    @property
    def noise(self) -> Any:  # type: ignore[override]
        """The first part."""
        return self.parts[0]

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of all parts, of which a policy must allow each."""
        return tuple(dict.fromkeys(part.kind for part in self.parts))

    @property
    def dimension(self) -> int:
        """Number of integers in a release."""
        return 1 + max(int(part.dimension) for part in self.parts)

    @property
    def magnitude(self) -> int:
        """Bound on each integer of an honest payload."""
        return max(len(self.parts) - 1, *(int(part.magnitude) for part in self.parts))

    @property
    def payload_bound(self) -> PayloadBound:
        """No bound for all parts alike: `holds` checks each part's."""
        return PayloadBound(())

    @property
    def guarantee(self) -> Guarantee:
        """Guarantee of one release."""
        return self.guarantees[0]

    @property
    def guarantees(self) -> tuple[Guarantee, ...]:
        """The weakest part's guarantee of each kind that all parts have."""
        by_kind = [{type(each): each for each in part.guarantees} for part in self.parts]
        shared = [kind for kind in by_kind[0] if all(kind in each for each in by_kind)]
        return tuple(max((each[kind] for each in by_kind), key=astuple) for kind in shared)

    def cost(self, currency: Currency) -> PrivacyLoss:
        """Return the cost of one release, rounded up: the most expensive part's."""
        costs = [part.cost(currency) for part in self.parts]
        return PrivacyLoss(currency, max(each.units for each in costs), max(each.delta_units for each in costs))

    def holds(self, payload: Integers) -> bool:
        """Return whether every payload (m, d) has a number of a part and one of its releases, filled up with zeros."""
        rows = np.asarray(payload)
        numbers = rows[:, 0]
        if not bool(((numbers >= 0) & (numbers < len(self.parts))).all()):
            return False
        for number, part in enumerate(self.parts):
            released = rows[numbers == number, 1:]
            size = part.dimension
            if len(released) and not (part.holds(released[:, :size]) and not released[:, size:].any()):
                return False
        return True

    @wiped
    def randomize(self, vectors: npt.ArrayLike, noise: NoiseSource, records: npt.ArrayLike) -> Integers:
        """Randomize m cells, each followed by the values of every part (m, 1 + k), into payloads (m, d)."""
        from murk.privacy.noise import Purpose

        rows, size = np.asarray(vectors, dtype=np.float64), self.width * len(self.parts)
        if rows.ndim != 2 or rows.shape[1] != 1 + size:
            raise UserError(
                f"a cell and {size} private values need an array of shape (m, {1 + size}), got {rows.shape}"
            )
        indices = checked_indices(records, len(rows))
        words = noise.words(indices, 1, Purpose.QUERY)[:, 0] >> _HALF_WORD
        numbers = ((words * np.uint64(len(self.parts))) >> _HALF_WORD).astype(np.int64)
        released = np.zeros((len(rows), self.dimension), dtype=np.int64)
        released[:, 0] = numbers
        for number, part in enumerate(self.parts):
            drawn = np.flatnonzero(numbers == number)
            if len(drawn):
                inputs = track(track(rows[drawn])[:, self.columns(number)])
                released[drawn, 1 : 1 + part.dimension] = part.randomize(inputs, noise, indices[drawn])
        return released

    def columns(self, number: int) -> list[int]:
        """Return the positions of the cell and of a part's values in the mechanism's input."""
        start = 1 + number * self.width
        return [0, *range(start, start + self.width)]

    def decode(self, payload: npt.ArrayLike) -> Floats:
        """Raise `UserError`: releases of different parts have no common unit."""
        raise UserError("releases of several metrics are decoded by each metric's part")

    def to_dict(self) -> dict[str, Any]:
        """Return the public and derived parameters as plain data."""
        return {"kind": "drawn", "parts": [part.to_dict() for part in self.parts], "width": self.width}
