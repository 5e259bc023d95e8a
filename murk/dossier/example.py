"""Example of a release as bytes: a made-up record processed by the code and noise of a device."""

import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from murk._internal.lazy import of_each_kind
from murk.privacy import cap_of
from murk.producers import Ledger, OrganisationProducer, Policy, Producer
from murk.protocols.device import device_for
from murk.stream import open_log
from murk.task import Task
from murk.task.features import BinaryTarget, ClassTarget, DateFeature, NumberFeature
from murk.task.windows import each_of

_PEOPLE, _SPACE = 200, 3


@dataclass(frozen=True)
class Example:
    """A made-up record and two releases of it as bytes; an organisation releases a window of ``records`` records."""

    record: Mapping[str, Any]
    messages: tuple[bytes, ...]
    made_up_public: bool  # whether the task's public sample was made up, too
    records: int = 1
    numbers: int = 0  # largest number of integers in a payload, over all questions; 0 if there are no questions

    @property
    def longest(self) -> int:
        """About the size of the longest message, in bytes; 0 if none is longer than the first."""
        # Of scores, the first people answer a survey with one number, others with vectors and matrices.
        payload = self.fields["payload"]
        more = self.numbers - len(payload)
        digits = max(len(str(number)) for number in payload) if more > 0 else 0
        return len(self.messages[0]) + more * (digits + 1) if more > 0 else 0

    @property
    def fields(self) -> dict[str, Any]:
        """Content of the first message."""
        content: dict[str, Any] = json.loads(self.messages[0])
        return content


def made_up(task: Task) -> dict[str, Any]:
    """Return a record that nobody has: the middle of every range and the last item of every list."""
    record: dict[str, Any] = {}
    for feature in task.features:
        if isinstance(feature, NumberFeature):
            record[feature.name] = _middle(feature.low, feature.high)
        elif isinstance(feature, DateFeature):
            first, days = _days(feature)
            record[feature.name] = (first + timedelta(days=days // 2)).isoformat()
        else:
            record[feature.name] = feature.categories[-1]
    for target in (*task.metrics, task.target):
        if isinstance(target, BinaryTarget):
            record[target.name] = target.positive
        else:
            record[target.name] = (
                target.classes[-1] if isinstance(target, ClassTarget) else _middle(target.low, target.high)
            )
    return record


def example_of(task: Task) -> Example:
    """Release a made-up record twice, as devices do, into a log that is deleted."""
    task = task.with_simulated(False)
    invented = task.public is not None and task.covariates is None
    task = with_sample(task)
    record = made_up(task)
    with tempfile.TemporaryDirectory(prefix="murk-dossier-") as folder:
        log = open_log(f"sqlite:///{folder}/log.db")
        with log, Ledger(Path(folder) / "ledger.db") as ledger:
            log.register_task(task.document())
            records = 1
            if task.of_organisations:
                records = _release_window(task, log, ledger, record)
            else:
                producer = Producer(task, log, ledger, policy=Policy(public_sample=True))
                for person in ("one", "another"):
                    producer.release(record, person=person)
            read = (log.read(partition, log.begin(partition), 2) for partition in range(log.partitions))
            messages = sorted((message.offset, message.value) for partition in read for message in partition)
    numbers = max(getattr(device_for(task), "lengths", ()), default=0)
    return Example(record, tuple(value for _, value in messages), invented, records, numbers)


def _release_window(task: Task, log: Any, ledger: Ledger, record: Mapping[str, Any]) -> int:
    producer = OrganisationProducer(task, log, ledger, policy=Policy(public_sample=True))
    fewest = max(producer.fewest, 1)
    records = min(max(fewest, _PEOPLE), producer.room)
    for _ in range(records):
        receipts = producer.add(record)
    if receipts.outcome == "added":
        producer.release()
    return records


def with_sample(task: Task) -> Task:
    """Return the task with a made-up public sample, drawn uniformly from its box, if it needs one and has none."""
    if task.public is None or task.covariates is not None:
        return task
    draw, coding = np.random.default_rng(0), task.coding
    columns: dict[str, list[Any]] = {}
    for feature in task.features:
        if isinstance(feature, NumberFeature):
            columns[feature.name] = draw.uniform(feature.low, feature.high, _PEOPLE).tolist()
        elif isinstance(feature, DateFeature):
            first, days = _days(feature)
            drawn = draw.integers(0, days, _PEOPLE, endpoint=True).tolist()
            columns[feature.name] = [(first + timedelta(days=day)).isoformat() for day in drawn]
        else:
            columns[feature.name] = draw.choice(np.array(feature.categories), _PEOPLE).tolist()
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    points, counts = np.unique(np.array([coding.encode_record(row).x for row in rows]), axis=0, return_counts=True)
    return task.with_public(points, counts.astype(np.int64))


def _days(feature: DateFeature) -> tuple[date, int]:
    """Return the first day of a date's range and its length; a year if only weekdays or months count."""
    if feature.low is None or feature.high is None:
        return date(2024, 1, 1), 365
    return feature.low, (feature.high - feature.low).days


def _middle(low: float, high: float) -> float | int:
    middle = (low + high) / 2
    return int(middle) if float(int(middle)) == middle or high - low > _SPACE else middle


def caps_of(task: Task) -> str:
    """Describe the default cap of a person's spending on a task."""
    privacy = task.privacy
    words = (
        "one release at the level that they chose" if privacy.per_person is None else str(cap_of(privacy.per_person))
    )
    if not privacy.renews:
        return words
    end = "without a limit over all of them" if privacy.lifetime is None else f"and {cap_of(privacy.lifetime)} in all"
    again = (
        "; while a record does not change, its last answer is repeated, at no cost" if privacy.repeats_answers else ""
    )
    return f"{words} {each_of(privacy.window)}, {end}{again}"


def levels_of(task: Task) -> Mapping[str, Any]:
    """Return levels' mechanisms as devices use them; of a grid, only the default, lowest, highest, and one per kind."""
    return of_each_kind(device_for(with_sample(task)).mechanisms, lambda each: each.kind)
