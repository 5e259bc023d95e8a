"""Which chains are assigned to which of the processes that learn a log."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable


class Membership(ABC):
    """Which chains this process is to learn, of all that the processes learning a log share among them."""

    shared: bool = False
    """Whether others may come and chains move; else losing one is an error."""

    @abstractmethod
    def chains(self) -> frozenset[int]:
        """Return the chains that are assigned to this process now; to be asked often, since asking says it is alive.

        Two processes may for a moment both be assigned the same chain: `Log.acquire` decides between them.

        Raises
        ------
        UnreachableError
            When the others cannot be heard of at the moment.
        """

    @abstractmethod
    def close(self, *, for_good: bool = True) -> None:
        """Leave, so that others take over at once.

        ``for_good=False`` is for a process that ends by a fault: anyone who looks after it starts it again, and it
        comes back to its chains. Others take them over only if that takes too long.
        """


class AllChains(Membership):
    """Every chain is assigned to this process; on a log that nobody shares."""

    def __init__(self, chains: Iterable[int]) -> None:
        self._chains = frozenset(chains)

    def chains(self) -> frozenset[int]:
        """All of them."""
        return self._chains

    def close(self, *, for_good: bool = True) -> None:
        """Nobody is waiting."""
