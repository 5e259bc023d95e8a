"""Interfaces shared by devices and learners: releases, mechanisms and estimates of a task. Does not import River.

A new protocol needs a line in `ROOMS`. Its package's modules are imported when first used: ``device`` defines
``device_for``, and the protocol has modules ``forecast`` and ``models`` if it has forecasts and further models.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import numpy as np

from murk._internal.arrays import Floats, Integers
from murk._internal.lazy import LazyLevels, bounding
from murk.errors import MurkError, UserError
from murk.privacy.mechanisms import Costed, Randomizer
from murk.task.privacy import DEFAULT_LEVEL
from murk.task.task import Task

if TYPE_CHECKING:
    from murk.inference.estimate import Estimate
    from murk.privacy.noise import NoiseSource
    from murk.protocols.engine import Engine
    from murk.stream.wire.admission import AdmissionRules

ROOMS: Final[Mapping[str, str]] = {
    "gradients": "murk.protocols.gradients",
    "scores": "murk.protocols.scores",
    "examples": "murk.protocols.examples",
    "moments": "murk.protocols.moments",
    "summaries": "murk.protocols.summaries",
    "univariate": "murk.protocols.univariate",
}
"""Package of each protocol, by its name in task files."""


def has_part(protocol: str, module: str) -> bool:
    """Return whether a protocol's package has a module."""
    return find_spec(f"{ROOMS[protocol]}.{module}") is not None


def part(protocol: str, module: str) -> Any:
    """Import a module of a protocol's package; raise `UserError` if the protocol has no forecast."""
    if module == "forecast" and not has_part(protocol, module):
        raise UserError(f"protocol: {protocol} has no forecast: a simulated run (--seed) shows what it learns")
    return import_module(f"{ROOMS[protocol]}.{module}")


_ERROR_CODE = "MURK-LEARN-001"


class HostileModelError(UserError):
    """Raised for a model that no honest learner publishes, before anything is computed from a record."""

    kind = "MURK-LEARN-002"


class Device(Protocol):
    """A task's releases, their mechanisms, and the estimation of coefficients from the releases."""

    @property
    def kind(self) -> str:
        """Kind of the releases, a key of `murk.stream.wire.releases.KINDS`."""

    @property
    def interactive(self) -> bool:
        """Whether devices need the newest iterate."""

    @property
    def mechanisms(self) -> Mapping[str, Costed]:
        """Mechanism of each level, by the level's name."""

    @property
    def dimension(self) -> int:
        """Number of integers in a release; if there are several queries, in an answer to the first one."""

    def check_state(self) -> None:
        """Raise UserError, with the size, if releases or states are too large for a log."""

    def admission(self) -> AdmissionRules:
        """Return the rules by which this task's releases are admitted, before any was learned."""

    def engine(self) -> Engine:
        """Return a learner for this task's releases, at version 0."""

    def estimate(self, engines: Sequence[Any]) -> Estimate:
        """Return the joint estimate of several partitions."""


class Releasing(Protocol):
    """The part of a `Device` that a person's machine runs: the vector of a record, and its randomizing mechanism."""

    @property
    def interactive(self) -> bool:
        """Whether devices need the newest model."""

    @property
    def dimension(self) -> int:
        """Number of integers in a release."""

    @property
    def mechanisms(self) -> Mapping[str, Randomizer]:
        """Mechanism of each level, by the level's name."""

    @property
    def averages(self) -> bool:
        """Whether a person with several records releases the mean of their vectors; else that of one record at random.

        A mean needs a learner that uses releases linearly and a mechanism that accepts every vector within its bounds.
        """

    def vectors(self, X: Floats, y: Floats, theta: Floats | None = None) -> Floats:
        """Return the vectors of coded records that a mechanism randomizes, ``(m, dimension)``.

        ``X`` has coded features with the constant last, ``(m, p)``, ``y`` coded targets, ``(m,)``, NaN if missing:
        people without a target release, too. ``theta`` is the iterate, for interactive protocols.
        """


class PersonDevice(Releasing, Device, Protocol):
    """A `Device` for tasks to which each person releases a vector of their record, randomized on their own device."""


class InteractiveDevice(PersonDevice, Protocol):
    """A device whose releases depend on the newest model, which learners publish and devices read."""

    @property
    def model_size(self) -> int:
        """Length of a model."""

    @property
    def initial(self) -> Floats:
        """The model of version 0."""

    @property
    def shares_models(self) -> bool:
        """Whether all partitions use the first partition's models; otherwise each partition makes its own."""

    def is_published(self, version: int) -> bool:
        """Return whether models of this version are published."""

    def next_published(self, version: int) -> int:
        """Return the first version after this one whose model is published."""

    def block(self, releases: int) -> int:
        """Return how many more releases to make, after ``releases`` of them, before reading a newer model."""

    def check_model(self, theta: Floats) -> None:
        """Raise HostileModelError for a model that no honest learner publishes, before any record is read."""


class QueryingDevice(InteractiveDevice, Protocol):
    """A device that asks each person one of several queries, drawn without looking at the record."""

    @property
    def queries(self) -> tuple[str, ...]:
        """All queries."""

    def averages_answers(self, query: str) -> bool:
        """Return whether a person with several records answers a query by a mean; see `Releasing.averages`."""

    def draw_query(self, noise: NoiseSource, indices: Integers, model: Floats) -> Sequence[str]:
        """Draw each record's query with the model's probabilities, by random words of ``noise`` (`Purpose.QUERY`)."""

    def mechanism(self, level: str, query: str) -> Randomizer:
        """Return the mechanism for answers to a query at a level."""

    def vectors(self, X: Floats, y: Floats, theta: Floats | None = None, query: str | None = None) -> Floats:
        """Return the vectors of coded records that the mechanism of a query, by default the first, randomizes."""


class SingleQueryDevice:
    """The part of a `QueryingDevice` for people who are all asked the same query, ``name``."""

    def __init__(self, device: QueryingDevice, name: str) -> None:
        self.device, self.name, self.kind, self.interactive = device, name, device.kind, device.interactive
        mechanisms = device.mechanisms
        self.mechanisms = LazyLevels(
            tuple(mechanisms), tuple(bounding(mechanisms)), lambda level: device.mechanism(level, name)
        )
        self.dimension = self.mechanisms[DEFAULT_LEVEL].dimension
        self.averages = device.averages_answers(name)

    def vectors(self, X: Floats, y: Floats, theta: Floats | None = None) -> Floats:
        """Return the vectors of coded records for the query."""
        return self.device.vectors(X, y, theta, self.name)


def interactive_of(device: Device) -> InteractiveDevice | None:
    """Return the device if its releases depend on a model, else None."""
    return cast("InteractiveDevice", device) if device.interactive else None


def querying_of(device: Device | Releasing) -> QueryingDevice | None:
    """Return the device if it asks each person one of several queries, else None."""
    return cast("QueryingDevice", device) if hasattr(device, "draw_query") else None


@contextmanager
def loaded_state_arithmetic() -> Iterator[None]:
    """Context for arithmetic with the numbers of loaded states: raises MurkError if it fails."""
    try:
        with np.errstate(all="ignore"):
            yield
    except MurkError:
        raise
    except (ArithmeticError, ValueError) as error:
        raise MurkError(
            f"the states hold numbers that no learner produces ({type(error).__name__}): restore the log from a copy"
        ) from error


def device_for(task: Task) -> Device:
    """Return the device of a resolved task; raise UserError if a level's guarantee does not fit its mechanism."""
    device: Device = part(task.protocol, "device").device_for(task)
    return device


def person_device_for(task: Task) -> PersonDevice:
    """Return the device of a resolved task to which people release; raise UserError for organisations' tasks."""
    if task.of_organisations:
        raise UserError(
            f"people cannot release records to the task {task.name!r}: organisations release sketches to it "
            "(protocol: summaries). Use OrganisationProducer"
        )
    device: PersonDevice = device_for(task)  # type: ignore[assignment]
    return device
