"""The task's coding as a River transformer. Devices use the task's coding directly and need no River."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from river import base, compose
from river.utils import dataframe

from murk.learners._warnings import AlwaysClamped
from murk.task.coding import Counts
from murk.task.features import CategoryFeature
from murk.task.task import Task
from murk.task.values import frame_of

if TYPE_CHECKING:
    from murk.results.result import Result


class Encoder(base.MiniBatchTransformer):
    """Code raw features to [-1, 1] by a task's public bounds and categories.

    A number in [low, high] becomes :math:`2 (v - low) / (high - low) - 1`, clamped to [-1, 1]. Two categories become -1
    and +1; of three or more, each but the first becomes a -1/+1 feature named like ``origin=JFK``. Missing and
    undeclared values become 0. The constant is left out, since learners add their own. Bounds are public, since a
    scaler that learns them from raw records would disclose them. ``counts`` are numbers of clamped and of missing
    values, for the device only: they are neither copied nor pickled. A warning names a column whose first 100 values
    all lie beyond its bounds.

    >>> from murk import Task
    >>> task = Task.parse('''
    ... name: delays
    ... features: [{name: distance, low: 0, high: 3000}, {name: origin, categories: [EWR, JFK, LGA]}]
    ... target: {name: late, kind: binary, positive: "yes"}
    ... privacy: {guarantee: {gdp: {mu: 1.0}}}
    ... ''')
    >>> encoder = Encoder(task)
    >>> encoder.transform_one({"distance": 4000, "origin": "JFK"}), encoder.counts.clamped
    ({'distance': 1.0, 'origin=JFK': 1.0, 'origin=LGA': -1.0}, 1)

    Parameters
    ----------
    task
        The task.
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        self.counts = Counts()
        self._always = _bounded(task)

    @property
    def features(self) -> list[str]:
        """Names of the coded features, for a learner's ``features=``."""
        return list(self.task.coding.names[:-1])

    def __or__(self, other: Any) -> compose.Pipeline:
        """Return a pipeline of this encoder and a step, with the `summary` of a learner."""
        return super().__or__(other) if isinstance(other, compose.Pipeline) else CodedPipeline(self, other)

    def __getstate__(self) -> dict[str, Any]:
        # Counts depend on raw values, so they stay on the device when a model is saved or sent.
        return {**self.__dict__, "counts": Counts(), "_always": _bounded(self.task)}

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        yield {
            "task": Task.parse(
                """
                name: unit-test
                features: [{name: a, low: 0, high: 1}, {name: b, categories: [no, yes]}]
                target: {name: y, kind: binary, positive: "yes"}
                privacy: {guarantee: {gdp: {mu: 1.0}}}
                """
            )
        }

    def transform_one(self, x: Mapping[str, Any]) -> dict[str, float]:
        """Code one record's features; absent columns count as missing."""
        coding = self.task.coding
        coded = coding.encode_record(x, target=False)
        self.counts.add(1, coded.clamped, coded.missing)
        if not self._always.done:
            block = coding.encode({name: [x.get(name)] for name in coding.columns}, target=False)
            self._always.look(block.cells, coding.columns)
        return dict(zip(coding.names[:-1], coded.x.tolist(), strict=False))

    def transform_many(self, X: Any) -> Any:
        """Code a pandas, Polars or Arrow frame to a float64 frame of the same kind; absent columns count as missing."""
        coding = self.task.coding
        names, frame = coding.columns, frame_of(X)
        indices = {name: index for index, name in enumerate(frame.columns)}
        columns: dict[str, Any] = {
            name: frame[:, indices[name]].to_native() if name in indices else [None] * len(frame) for name in names
        }
        coded = coding.encode(columns, target=False)
        if not self._always.done:
            self._always.look(coded.cells, names)
        self.counts.add(len(frame), int(coded.clamped.sum()), int(coded.missing.sum()))
        return dataframe.to_native_frame(coded.x[:, :-1], like=frame, columns=list(coding.names[:-1]))

    def target_one(self, y: Any) -> float:
        """Code a target: binary as 0 or 1, a class as its index, [low, high] as [-1, 1]; an undeclared one as NaN."""
        coding = self.task.coding
        return coding.encode_record({coding.target: y}).y


class CodedPipeline(compose.Pipeline):
    """A pipeline that begins with an `Encoder`, so that its learner's result can be shown in natural units."""

    def summary(self, *, level: float = 0.95, forecast: bool = True) -> Result:
        """Return the `summary` of the last step, a learner, in the units of the encoder's task."""
        encoder: Encoder = self[0]
        result: Result = self[-1].summary(encoder, level=level, forecast=forecast)
        return result


def _bounded(task: Task) -> AlwaysClamped:
    """Return the finder of always clamped columns: numbers and dates have bounds, categories do not."""
    return AlwaysClamped([feature.name for feature in task.features if not isinstance(feature, CategoryFeature)])
