"""Immutable result of a poll, read by HTTP threads."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from murk._internal.numbers import finite
from murk.inference.units import coded_unit, units
from murk.monitoring.figures import Figures
from murk.monitoring.history import Point
from murk.monitoring.metrics.catalogue import STALENESS_BOUNDS
from murk.stream.wire.state import LEVEL
from murk.task.protocols.registry import PROTOCOLS
from murk.task.task import Disclosure, Task

VERSION = 1
_LISTS = ("values", "half_widths", "sequence_half_widths", "lifts")  # fields with several numbers for each point


@dataclass(frozen=True)
class Snapshot:
    """State of the monitor at one moment."""

    # the task as the log carries it, and the log's URL without credentials
    task: Task
    url: str
    # start of the monitor and time of the snapshot, in seconds since 1970
    started: float
    now: float
    figures: Figures  # the last figures that could be read
    read: bool  # whether the log has been read; before, the figures are those of an empty log
    problem: str | None  # why the log cannot be read, in one line; None while it can
    rate: float  # recent releases per second
    grown: float  # time at which the number of learned releases last grew
    reference: Mapping[str, float] | None  # true coefficients, if known
    history: tuple[Point, ...]  # points of the curves from the first release on
    pace: Mapping[str, Sequence[float | None]]  # speed and lag since the monitor started: `Pace.columns`
    known_within: Mapping[str, float] = field(default_factory=dict)  # half-widths at which coefficients count as known

    @property
    def healthy(self) -> bool:
        """Whether the log can be read."""
        return self.problem is None

    @cached_property
    def body(self) -> bytes:
        """`status` as JSON."""
        return json.dumps(self.status(), allow_nan=False, separators=(",", ":")).encode()

    def status(self) -> dict[str, Any]:
        """Return everything as plain JSON data, with None for numbers that are not finite."""
        current, task, disclosure = self.figures, self.task, Disclosure.of(self.task)
        # A loss whose value is null is not known yet; null instead of a loss: the protocol never estimates one.
        loss = {"value": current.unbiased_loss, "error": current.unbiased_loss_error}
        counts = list(current.staleness or ())
        ages = {"bounds": list(STALENESS_BOUNDS), "counts": counts, "mean": current.mean_staleness}
        content = {
            "version": VERSION,
            "now": self.now,
            "started": self.started,
            "healthy": self.healthy,
            "problem": self.problem,
            "task": {
                "name": task.name,
                "protocol": task.protocol,
                "objective": task.objective,
                "model": task.fitted_model,
                "hash": task.hash,
                "simulated": task.simulated,
                "log": self.url,
                "levels": [asdict(level) for level in current.levels],
                "public_sample": None if disclosure is None else disclosure.to_dict(),
            },
            "releases": current.releases,
            "duplicates": current.duplicates,
            "dead_letters": dict(current.dead),
            "rate": self.rate,
            "lag": current.lag,
            "records": current.records,
            "staleness": None if current.staleness is None else ages,
            "refused_updates": current.refused_updates,
            "unbiased_loss": loss if PROTOCOLS[task.protocol].estimates_loss else None,
            "partitions": [asdict(partition) for partition in current.partitions],
            "estimate": {
                "names": list(current.names),
                "values": list(current.values),
                "half_widths": list(current.shown_half_widths),
                "fixed_half_widths": list(current.half_widths),
                "level": LEVEL,
                "looks": current.looks.to_dict(LEVEL),
                "contrasts": [contrast.to_dict() for contrast in current.shown_contrasts],
                "method": current.method,
                "note": current.note,
                "needed": dict(current.needed.of),
                "releases_used": current.releases_used,
                "drift": None if current.drift is None else current.drift.to_dict(),
                "diagnosis": current.needed.why,
                "track": None if current.track is None else current.track.to_dict(units(task)),
                "prediction_sets": None if current.sets is None else current.sets.to_dict(coded_unit(task)),
                "estimated_error": current.estimated_error,
                "parameter_error": current.parameter_error,
                "units": {name: asdict(unit) for name, unit in units(task).items()},
            },
            "experiment": None if current.experiment is None else current.experiment.to_dict(),
            "reference": None if self.reference is None else dict(self.reference),
            "history": self._history(),
            "pace": dict(self.pace),
        }
        plain: dict[str, Any] = finite(content)
        return plain

    def _history(self) -> dict[str, Any]:
        points, names = self.history, self.figures.names
        plain = [name for name in Point._fields if name not in _LISTS]
        columns: dict[str, Any] = {name: [getattr(point, name) for point in points] for name in plain}
        widths = "half_widths" if self.figures.looks.validity == "fixed-n" else "sequence_half_widths"
        for key, of in (("values", "values"), ("half_widths", widths)):
            rows = [getattr(point, of) for point in points]
            columns[key] = {name: [row[index] for row in rows] for index, name in enumerate(names)}
        arms = {} if self.figures.experiment is None else self.figures.experiment.curves()
        # Points from the learners' states have no lifts.
        lifts = {arm: [(point.lifts or {}).get(arm, (None, None, None)) for point in points] for arm in arms}
        columns["lifts"] = {
            arm: {key: [row[index] for row in rows] for index, key in enumerate(("values", "lows", "highs"))}
            for arm, rows in lifts.items()
        }
        return columns
