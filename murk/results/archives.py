"""Fit models to an archive: parts of partitions are learned by any number of processes and joined in order.

A part is one file, or a whole partition where what is learned depends on the order of releases. The
archive says which messages are copies, so that a release counts once, whichever process learns a part. The parts depend
on the archive alone, and so do the results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from multiprocessing import get_context
from typing import Any, Final

import numpy as np

from murk._internal.arrays import Integers, Words
from murk.errors import UserError
from murk.protocols.device import device_for
from murk.protocols.further_models import FurtherModelEngine
from murk.results.models import ModelDevice, model_device_for, report_model
from murk.stream.archive.archiver import Archiver
from murk.stream.archive.files import Extent, folder_of
from murk.stream.archive.reader import ArchiveLog
from murk.stream.log.interface import Checkpoint, truncate_time
from murk.stream.log.open import open_log
from murk.stream.wire.admission import wire_rules
from murk.stream.wire.state import Counters, History, HistoryRecorder, StateMessage, decode_state, first_point
from murk.stream.worker.worker import LEARN, StepCounters, Validator
from murk.task.models import Model

_ERROR_CODE = "MURK-ARCHIVE-001"

_PAGE: Final = 4096  # messages that are read at once

Map = Callable[[Callable[["Part"], bytes], Sequence["Part"]], Iterable[bytes]]


@dataclass(frozen=True)
class Part:
    """Arguments of one call of `learn_part`: a model and the messages of a partition that it learns."""

    archive: str
    model: Model
    partition: int
    extent: Extent
    is_file: bool  # whether the part is one file; otherwise it is the whole partition
    identity: str  # identity of the archived log
    end: int  # offset at which the partition's archive ended when the parts were made
    partitions: int  # number of the log's partitions at that time


def learn_part(part: Part) -> bytes:
    """Return, as a message, the state that a learner has after a part; any process with the archive may call this."""
    log, device = _opened(part.archive, part.model, part.identity, part.end, part.partitions)
    task, learner = log.task, _engine(log, device)
    if part.is_file:
        learner.begin_part()
    where = f"partition {part.partition} of {log.url}"
    # Only whole partitions have a history: files are learned in any order.
    history = HistoryRecorder(History(), learner.coefficients, first_point(learner.kind), where)
    validator = Validator(part.partition, wire_rules(task, learner.admission), learner)
    offset, end = part.extent
    window = _Copies()
    tally = StepCounters(Counters())
    while offset < end:
        page = log.fetch(part.partition, offset, min(_PAGE, end - offset))
        page = page.rows(0, int(np.searchsorted(page.offsets, end)))
        begin = 0
        if len(page):
            window.copies = log.copies(part.partition, int(page.offsets[0]))
        while begin < len(page):
            count = learner.n_releases
            point = None if part.is_file else history.next(count)
            most = LEARN if point is None else min(LEARN, point - count)
            validated = validator.validate(page.rows(begin, begin + most), window, tally)
            begin += validated.read
            if len(validated.admitted):
                learner.learn_releases(validated.admitted)
                tally.learned(validated.admitted, count)
                if not part.is_file:
                    history.add_if_due(learner, truncate_time(validated.appended, task.granularity))
        offset = int(page.offsets[-1]) + 1 if len(page) else end
    return StateMessage(
        task=task.hash,
        identity=log.identity,
        partition=part.partition,
        offset=end,
        last_id=window.newest,
        counters=tally.counters(),
        history=history.history,
        learner=learner.state_dict(),
    ).encode()


class _Copies:
    """What an archive says of messages' copies, in the place of a window for duplicates."""

    def __init__(self) -> None:
        self.copies: Integers = np.zeros(0, np.int64)  # offsets of copies, in order
        self.newest: str | None = None  # id of the last valid message

    def seen(self, offset: int, identifier: str, expires: int) -> bool:
        self.newest = identifier
        first, last = np.searchsorted(self.copies, [offset, offset + 1])
        return bool(first < last)

    def add_new(self, offsets: Integers, ids: Words, expires: Integers) -> bool:
        first, last = np.searchsorted(self.copies, [offsets[0], offsets[-1] + 1])
        if first < last:
            return False
        self.newest = "".join(f"{word:016x}" for word in ids[-1].tolist())
        return True


@lru_cache(maxsize=4)
def _opened(archive: str, model: Model, *version: object) -> tuple[ArchiveLog, ModelDevice]:  # noqa: ARG001
    """Return an archive and a model's device, kept for the next part.

    ``version`` is in the cache's key: an archive that has grown is opened again.
    """
    log = ArchiveLog(folder_of(archive), model.name)
    return log, model_device_for(model, log.task)


def _engine(log: ArchiveLog, device: ModelDevice) -> FurtherModelEngine:
    """Return a learner of archived releases."""
    if not device.used.is_own:
        return device.engine()
    whole: Any = device.whole.engine()
    shared = log.shared_models()
    if hasattr(whole, "of_archive"):
        if shared is None:
            raise UserError(
                f"{log.url} lacks the models at which people have answered, which `murk learn` publishes: run `murk "
                "archive` while `murk learn` runs, from the task's first release on"
            )
        whole = whole.of_archive(shared)
    return FurtherModelEngine(whole, whole, device.used.take, device.model.hash)


def archive(log: str, to: str) -> int:
    """Copy a log to an archive up to the log's end, like ``murk archive``; return the number of messages read.

    A repeated call copies only new messages. Raises UserError without a log or pyarrow, or if the folder has another
    log's archive; MurkError if retention has removed messages that the archive lacks.

    Parameters
    ----------
    log
        URL of the log, ``sqlite:///FILE`` or ``kafka://HOST:PORT[/NAME]``.
    to
        Path or URL (``s3://BUCKET/PREFIX``, ``gs://BUCKET/PREFIX``) of the archive.

    Examples
    --------
    >>> import tempfile
    >>> import murk
    >>> task = murk.Task.parse('''
    ... name: wages
    ... features: [{name: age, low: 20, high: 60}]
    ... target: {name: wage, kind: real, low: 0, high: 100}
    ... protocol: moments
    ... privacy: {guarantee: {gdp: {mu: 1.0}}}
    ... ''')
    >>> people = [{"age": 20 + i % 41, "wage": 40 + i % 21} for i in range(300)]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     log = f"sqlite:///{folder}/log.db"
    ...     _ = murk.run(task, people, seed=1, log=log, ledger=f"{folder}/ledger.db")
    ...     murk.archive(log, to=f"{folder}/archive")
    300
    """
    with open_log(log) as opened:
        task = opened.registered_task()
        archiver = Archiver(opened, task, folder_of(to), device_for(task).engine())
        ends = opened.ends()
        while not archiver.has_archived(ends):
            archiver.step()
        archiver.flush()
        return archiver.archived


def fit_archive(
    models: Sequence[Model],
    archive: str,
    *,
    level: float,
    map: Map = map,
    **more: Any,
) -> Iterator[tuple[ModelDevice, dict[str, Any]]]:
    """Fit models to an archive with any `map`; yield each model's device and report, see `report_model`."""
    for model in models:
        log = ArchiveLog(folder_of(archive), model.name)
        device = model_device_for(model, log.task)
        parts = parts_of(log, device, archive)
        log.model_name = None if device.used.is_own else model.name
        learned = zip(parts, map(learn_part, parts), strict=True)
        for partition, group in groupby(learned, key=lambda each: each[0].partition):
            log.keep(partition, _joined(log, device, group))
        yield device, report_model(device, log, [each.name for each in models], level=level, **more)


def parts_of(log: ArchiveLog, device: ModelDevice, archive: str) -> list[Part]:
    """Return the parts of an archive that a model may learn in separate processes."""
    by_file = _engine(log, device).joins
    parts = []
    for partition in range(log.task.log.partitions):
        extents: Sequence[Extent] = log.extents(partition)
        if extents and not by_file:
            extents = [Extent(extents[0].begin, extents[-1].end)]
        parts += [
            Part(archive, device.model, partition, extent, by_file, log.identity, log.end(partition), log.partitions)
            for extent in extents
        ]
    return parts


def _joined(log: ArchiveLog, device: ModelDevice, learned: Iterable[tuple[Part, bytes]]) -> Checkpoint:
    """Return the state of a partition from its parts and their states, in order."""
    learner, counters, message = None, StepCounters(Counters()), None
    for part, state in learned:
        message = decode_state(state, f"a part of {log.url}")
        if (message.partition, message.offset) != (part.partition, part.extent.end):
            raise UserError("`map` must return the results in the order of the parts, as the builtin function does")
        joined = _engine(log, device)
        joined.load_state_dict(message.learner)
        counters.add(message.counters)
        if learner is None:
            learner = joined
        else:
            learner.join(joined)
    assert learner is not None
    assert message is not None
    state_dict = learner.own.state_dict() if device.used.is_own else learner.state_dict()
    whole = message.model_copy(update={"counters": counters.counters(), "learner": state_dict})
    return Checkpoint(whole.encode(), whole.offset)


@contextmanager
def processes(number: int) -> Iterator[Map]:
    """Yield a function like the builtin `map` that uses this many processes."""
    if number == 1:
        yield map
        return
    # Not by fork: children must not share compiled code and open files.
    with ProcessPoolExecutor(number, mp_context=get_context("spawn")) as pool:
        yield pool.map
