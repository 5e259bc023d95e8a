"""Gradients at the newest iterate, for LDP-SGD (`protocol: gradients`)."""

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from murk.privacy.mechanisms import BEST, KINDS
from murk.task.learning import LearnerBlock
from murk.task.protocols.base import ALL_GUARANTEES, Scale, SupportedMechanisms, TaskProtocol


class GradientsProtocol(TaskProtocol):
    """People release the gradient of their loss at the newest iterate; the objective is a key of the task."""

    name = "gradients"
    rank = 3
    without_models = None
    releases = "gradient"
    offer = SupportedMechanisms((*KINDS, BEST), ALL_GUARANTEES)
    targets = ("binary", "classes", "real")
    learner_keys = tuple(LearnerBlock.model_fields)
    reads_staleness = True
    classic = ("gradient",)
    left_open: ClassVar[Mapping[str, tuple[str, ...]]] = {"step": (), "huber_c": ()}
    why_not_shuffled = "are computed at a model that changes after a few of them"
    why_no_forgetting = "takes one path through all releases, in ever smaller steps"

    def why_not_grown(self, block: Any) -> str:
        """Return the reason: a new partition would begin at the initial iterate."""
        return "a new partition's iterate would begin anew, and its average would count like the others'"

    def published(self, target: str, guarantee: str) -> dict[tuple[str, ...], Any]:
        """Return the settings of LDP-SGD: Mallows weights, given steps and no projection."""
        settings: dict[str, dict[tuple[str, ...], Any]] = {
            "binary": {("objective",): "logistic"},
            "classes": {("objective",): "softmax", ("learner", "coordinates"): "classes"},
            "real": {("objective",): "huber", ("learner", "huber_c"): 1.345, ("learner", "scale_multiplier"): 1.0},
        }
        return {
            ("privacy", "mechanism"): "laplace" if guarantee == "pure" else "gaussian",
            ("learner", "weights"): "mallows",
            ("learner", "step"): {"eta": 0.2, "alpha": 0.5},
            ("learner", "weighting"): "uniform",
            ("learner", "radius"): "unbounded",
            ("public",): None,
        } | settings.get(target, {})

    def scale(self, block: Any, target: str) -> Scale:
        """Return log odds for two labels, slopes for a real target."""
        return {"binary": "log odds", "real": "slope"}.get(target, "own")  # type: ignore[return-value]

    def model(self, block: Any, target: str) -> str:
        """Return the model of the objective."""
        return {"binary": "logistic", "classes": "softmax"}.get(target, "least squares")


PROTOCOL: Final = GradientsProtocol()
