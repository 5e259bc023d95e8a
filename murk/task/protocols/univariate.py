"""Releases of a target alone, for shares and means (`protocol: univariate`)."""

from typing import Any, Final

from murk.task.errors import task_error
from murk.task.protocols.base import ALL_GUARANTEES, Scale, SupportedMechanisms, TaskProtocol


class UnivariateProtocol(TaskProtocol):
    """Protocol in which people release their target alone, by the mechanism of least variance for its kind."""

    name = "univariate"
    rank = 0
    releases = "target"
    offer = SupportedMechanisms((), ALL_GUARANTEES)
    targets = ("binary", "classes", "real")
    target_alone = True
    tracks = True

    def check_features(self) -> None:
        """Raise PydanticCustomError, as features would have no effect."""
        raise task_error("univariate learns from the target alone: say features: [], or leave protocol out", "protocol")

    def check_without_features(self, block: Any, target: str) -> None:
        """Accept any target."""

    def scale(self, block: Any, target: str) -> Scale:
        """Return "slope" for a mean, else "probability"."""
        return "slope" if target == "real" else "probability"

    def model(self, block: Any, target: str) -> str:
        """Return "mean" for a real target, else "shares"."""
        return "mean" if target == "real" else "shares"


PROTOCOL: Final = UnivariateProtocol()
