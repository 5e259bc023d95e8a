"""The task's coding as a River transformer. (Devices use the task's coding directly and need no River.)"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from river import base
from river.utils import dataframe

from murk.learners.core.frames import frame_of
from murk.producers.receipts import Counts
from murk.stream.task.task import Task


class Encoder(base.MiniBatchTransformer):
    r"""Codes raw features to [-1, 1] by a task's public bounds and categories.

    A number in [low, high] becomes :math:`2 (v - low) / (high - low) - 1`, clamped to [-1, 1]. Two categories
    become -1 and +1; of more, each but the first becomes a -1/+1 feature named ``origin=JFK``. Missing and
    undeclared values become 0. The bounds are the task's, not the data's: a scaler that learned them from raw
    records would let those out, and would rescale released noise as it goes.

    The constant is left out: learners add their own.

    Parameters
    ----------
    task
        The task.

    Attributes
    ----------
    counts
        How many values were clamped, and how many missing: for the device's own eyes. They begin again in
        a copy, and are not pickled.

    Examples
    --------
    >>> from murk.stream import Task
    >>> task = Task.parse('''
    ... name: delays
    ... features:
    ...   - {name: distance, low: 0, high: 3000}
    ...   - {name: origin, categories: [EWR, JFK, LGA]}
    ... target: {name: late, kind: binary, positive: "yes"}
    ... privacy: {guarantee: {gdp: {mu: 1.0}}}
    ... ''')
    >>> encoder = Encoder(task)
    >>> encoder.transform_one({"distance": 4000, "origin": "JFK"})
    {'distance': 1.0, 'origin=JFK': 1.0, 'origin=LGA': -1.0}
    >>> encoder.counts.clamped
    1
    >>> encoder.features
    ['distance', 'origin=JFK', 'origin=LGA']
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        self.counts = Counts()

    @property
    def features(self) -> list[str]:
        """Names of the coded features, for the ``features=`` of a learner."""
        return list(self.task.coding.names[:-1])

    def __getstate__(self) -> dict[str, Any]:
        # The counts are functions of raw values: they stay on the device when a model is saved or sent.
        return {**self.__dict__, "counts": Counts()}

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
        """Code one record's features.

        Parameters
        ----------
        x
            Raw values by column; what is not there counts as missing.

        Returns
        -------
        dict
            Coded name -> value in [-1, 1].
        """
        coding = self.task.coding
        coded = coding.encode_record(x, target=False)
        self.counts.add(None, coded.clamped, coded.missing)
        return dict(zip(coding.names[:-1], coded.x.tolist(), strict=False))

    def transform_many(self, X: Any) -> Any:
        """Code many records' features; the same values as one by one.

        Parameters
        ----------
        X
            A data frame (pandas, Polars, Arrow); a column that is not there counts as missing.

        Returns
        -------
        data frame
            Of the same library, with the same index: float64, a column for each coded name.
        """
        coding = self.task.coding
        frame = frame_of(X)
        places = {name: place for place, name in enumerate(frame.columns)}
        columns: dict[str, Any] = {
            name: frame[:, places[name]].to_native() if name in places else [None] * len(frame)
            for name in coding.columns
        }
        coded = coding.encode(columns, target=False)
        self.counts.add_many([None] * len(frame), int(coded.clamped.sum()), int(coded.missing.sum()))
        return dataframe.to_native_frame(coded.x[:, :-1], like=frame, columns=list(coding.names[:-1]))

    def target_one(self, y: Any) -> float:
        """Code a target: 0 or 1, the class's place in its list, [low, high] to [-1, 1]; NaN if undeclared."""
        coding = self.task.coding
        return coding.encode_record({coding.target: y}).y
