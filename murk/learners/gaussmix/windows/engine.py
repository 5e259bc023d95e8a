"""What the engines of sketches and of Gram matrices share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from murk._turns import Turns, in_turn
from murk.errors import MurkError
from murk.learners.estimates.estimate import Estimate
from murk.learners.gaussmix.windows.settings import WindowSettings
from murk.learners.gaussmix.windows.sums import WindowSums
from murk.learners.state import pack, unpack
from murk.privacy.gaussmix import LARGEST_WINDOW
from murk.stream.messages.codec import RejectedError

S = TypeVar("S", bound=WindowSettings)
M = TypeVar("M")
T = TypeVar("T", bound=WindowSums)

# What a state calls the counts of sums.
_NAMES = {"releases": "n_releases"}


class WindowEngine(ABC, Generic[S, M, T]):
    """Running sums over released windows, O(d^2), and the regression that they tell. Threads take turns.

    Parameters
    ----------
    settings
        What is public.
    mechanisms
        Level name to mechanism.
    """

    kind: ClassVar[str]
    released: ClassVar[str]
    """What a release is called in errors."""

    def __init__(self, settings: S, mechanisms: Mapping[str, M]) -> None:
        self._turns = Turns()
        # Never written to, only replaced: anyone who reads it reads one moment, and an interrupt finds the old or the
        # new.
        self.sums = self._nothing(settings)
        self.settings = settings
        self.mechanisms = dict(mechanisms)

    @abstractmethod
    def _nothing(self, settings: S) -> T:
        """Sums over no window."""

    @property
    @abstractmethod
    def dimension(self) -> int:
        """Integers in a release."""

    @abstractmethod
    def estimate(self) -> Estimate:
        """Coefficients in coded units, with what their intervals need."""

    @property
    def n_releases(self) -> int:
        """Windows learned."""
        return self.sums.releases

    @property
    def coefficients(self) -> int:
        """Coefficients of the estimate."""
        return len(self.settings.names)

    @property
    def publish_every(self) -> int:
        """Nobody waits for an iterate."""
        return 2**31

    def published(self) -> None:
        """No iterate is published: windows are released without one."""

    def figures(self) -> dict[str, float]:
        """Records in all the windows learned."""
        return {"records": float(self.sums.records)}

    def _mechanism(self, level: str) -> M:
        """The mechanism of a level.

        Raises
        ------
        RejectedError
            If there is none.
        """
        mechanism = self.mechanisms.get(level)
        if mechanism is None:
            raise RejectedError("level", "a level that is not the task's")
        return mechanism

    def _check_payload(self, integers: NDArray[np.int64], records: int, largest: int = LARGEST_WINDOW) -> None:
        """Refuse a payload of another size, or of more records than a window has.

        Raises
        ------
        RejectedError
            With reason ``"dimension"`` or ``"magnitude"``.
        """
        if integers.size != self.dimension:
            raise RejectedError("dimension", f"{integers.size} integers, a {self.released} has {self.dimension}")
        window = self.settings.window
        most = min(largest, LARGEST_WINDOW if window is None else window)
        if records > most:
            raise RejectedError("magnitude", f"{records} records, a window holds {most}")

    def _check_admitted(self, integers: NDArray[np.int64]) -> None:
        if np.size(integers) != self.dimension:
            raise MurkError(f"a {self.released} holds {np.size(integers)} integers, not {self.dimension}")

    @in_turn
    def _add(self, /, **window: Any) -> None:
        """Add a window to the sums, by the arguments of their ``add``."""
        sums: Any = self.sums.merged()
        sums.add(**window)
        self.sums = sums

    def state_dict(self) -> dict[str, Any]:
        """The whole state as plain data, of what was released alone: loaded elsewhere, it goes on bit for bit."""
        sums = self.sums
        return {
            "schema": 1,
            "settings": self.settings.digest,
            "columns": sums.columns,
            **{_NAMES.get(name, name): getattr(sums, name) for name in sums.counts},
            **{name: pack(array.ravel()) for name, array in sums.arrays().items()},
            "sums": pack(np.array([getattr(sums, name) for name in sums.scalars])),
        }

    @in_turn
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a state that :meth:`state_dict` gave.

        Raises
        ------
        MurkError
            If the state is malformed or of other settings.
        """
        d, found = self.settings.columns, self._nothing(self.settings)
        try:
            if state["schema"] != 1 or state["columns"] != d:
                raise MurkError(
                    f"a state of schema {state['schema']!r} and {state['columns']!r} columns does not fit a learner "
                    f"of schema 1 and {d}"
                )
            if state["settings"] != self.settings.digest:
                raise MurkError("the state is of a learner with other settings: make one with the same")
            counts = [state[_NAMES.get(name, name)] for name in found.counts]
            if any(isinstance(count, bool) or not isinstance(count, int) or count < 0 for count in counts):
                raise MurkError("the state's counts are no whole numbers")
            for name, array in found.arrays().items():
                array[...] = unpack(state[name], array.size).reshape(array.shape)
            scalars = unpack(state["sums"], len(found.scalars))
        except (KeyError, TypeError, ValueError) as error:
            raise MurkError(f"the state is malformed: {type(error).__name__} at {error}") from error
        if np.any(scalars < 0.0):
            raise MurkError("the state holds a sum that is negative")
        for name, value in zip(found.scalars, scalars.tolist(), strict=True):
            setattr(found, name, value)
        for name, count in zip(found.counts, counts, strict=True):
            setattr(found, name, count)
        self.sums = found
