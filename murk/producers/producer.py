"""The producer, which turns a record into bytes: admission, models, randomization, policy, and delivery to the log."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from hashlib import blake2b
from itertools import repeat
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, cast

import numpy as np

from murk._internal.arrays import Floats, Integers
from murk._internal.lazy import bounding
from murk._internal.numbers import listed
from murk._internal.wiping import empty, track, wiped
from murk.errors import MurkError, UserError
from murk.privacy import PrivacyLoss, cap_of, cost_in
from murk.privacy.guarantees import CENTRAL
from murk.privacy.mechanisms import KINDS as MECHANISMS
from murk.privacy.mechanisms.base import means_of, randomize_means
from murk.privacy.noise import Purpose, SecureNoise, SimulatedNoise, below, identifiers
from murk.producers.ledger.costs import Charge
from murk.producers.ledger.names import ReleaseRequests, person_name
from murk.producers.ledger.spending import DAY, Refusal
from murk.protocols.device import SingleQueryDevice, querying_of
from murk.stream.log.interface import FIRST_PARTITION, check_carries, check_input_log, truncate_time
from murk.stream.wire.codec import RejectedError, decode_model, writer
from murk.stream.wire.releases import KINDS, query_fields
from murk.task.coding import Counts
from murk.task.windows import NONE, end_of, spread_of, start_of, utc_day, window_of

if TYPE_CHECKING:
    from murk.privacy import Guarantee
    from murk.privacy.mechanisms import Costed
    from murk.privacy.noise import NoiseSource
    from murk.producers.blocks import Block, Source
    from murk.producers.ledger.held import Held, HeldRecords
    from murk.producers.ledger.identity import Run
    from murk.producers.ledger.ledger import Ledger
    from murk.producers.ledger.names import Id, NameKey
    from murk.producers.ledger.spending import Queued, Spending
    from murk.protocols.device import Device, InteractiveDevice, PersonDevice, Releasing
    from murk.protocols.scores.fast_records import AnswerKernel
    from murk.stream.log.interface import Log
    from murk.task.task import Task

_ERROR_CODE = "MURK-DATA-001"


@dataclass(frozen=True)
class Admission:
    """A policy's decision on a task: costs of allowed levels, why others are refused, and caps for `Ledger.book`."""

    charges: Mapping[str, Charge]
    refused: Mapping[str, str]
    caps: tuple[tuple[str, PrivacyLoss], ...]
    lifetime: PrivacyLoss | None
    renewing: tuple[tuple[str, PrivacyLoss], ...] = ()


# Kinds of mechanism that do not randomize vectors; a test compares them with the classes.
_FURTHER = ("composite", "randomized-response", "subset-selection", "window-selection", *CENTRAL)


@dataclass(frozen=True)
class Policy:
    """Limits on what a device releases, whatever a server asks for.

    A release must fit these caps and the task's own promise. The promise is ``privacy.per_person``, or one release at
    its level; with ``privacy.window`` it holds in each window, and ``privacy.lifetime`` over all windows.

    >>> from murk.privacy import GaussianDP
    >>> Policy(lifetime=GaussianDP(2.0)).lifetime
    GaussianDP(mu=2.0)

    Parameters
    ----------
    lifetime, per_task
        A person's cap over all tasks, and the largest cap that a task may promise them, over all of its windows; None
        for no limit.
    mechanisms
        Kinds of mechanism that may be used; all by default.
    public_sample
        Whether people may be set aside for a task's public sample: their features (without the target) are then
        published unprotected, and they release nothing.
    known_columns
        Whether columns that a task declares as known are released as they are.
    """

    lifetime: Guarantee | None = None
    per_task: Guarantee | None = None
    mechanisms: tuple[str, ...] = (*MECHANISMS, *_FURTHER)
    public_sample: bool = False
    known_columns: bool = True

    def __post_init__(self) -> None:
        if isinstance(cast(object, self.mechanisms), str):
            raise UserError(f"mechanisms must be a list of names, as in mechanisms=({self.mechanisms!r},), not text")

    def admit(self, task: Task, mechanisms: Mapping[str, Costed], levels: Collection[str] | None = None) -> Admission:
        """Decide which ``levels`` of a task may be used; by default all, but only the default and the ends of a grid.

        Raises UserError if none may, or if the task promises a cap above ``per_task``.
        """
        lifetime = None if self.lifetime is None else cap_of(self.lifetime)
        most = None if self.per_task is None else cap_of(self.per_task)
        privacy = task.privacy
        if task.known_columns and not self.known_columns:
            raise UserError(
                f"the task {task.name!r} asks for {listed(task.known_columns)} as they are, without noise, and this "
                "device's policy does not allow it: use a task without known columns, or Policy(known_columns=True)"
            )
        within = None if privacy.per_person is None else cap_of(privacy.per_person)
        whole = privacy.lifetime if privacy.renews else privacy.per_person
        asked = None if whole is None else cap_of(whole)
        if asked and most and asked.currency == most.currency and not asked <= most:
            raise UserError(
                f"the task {task.name!r} asks for up to {asked} of each person, and this device's policy "
                f"allows {most} per task: lower the task's cap or raise the policy's"
            )
        charges, refused = {}, {}
        for level in bounding(task.privacy.levels) if levels is None else levels:
            guarantee, mechanism = task.privacy.levels[level], mechanisms[level]
            central = None if task.shuffle is None else task.shuffle.promised(guarantee)
            charge = Charge.of(level, guarantee, mechanism, central)
            if reason := self._reason_refused(mechanism, {"over all tasks": lifetime, "for a task": most}):
                refused[level] = reason
            else:
                charges[level] = charge
        if not charges:
            why = "; ".join(f"level {level!r}: {reason}" for level, reason in refused.items())
            raise UserError(f"this device's policy allows no release to the task {task.name!r}: {why}")
        each = [("", within)] if within else [(charge.level, cap_of(charge.guarantee)) for charge in charges.values()]
        # Caps in different currencies both hold; in the same currency, the task's cap is the smaller one.
        caps = [("", asked)] if asked else [] if privacy.renews else each
        if most and not (asked and asked.currency == most.currency):
            caps.append(("", most))
        return Admission(charges, refused, tuple(caps), lifetime, tuple(each) if privacy.renews else ())

    def _reason_refused(self, mechanism: Costed, caps: Mapping[str, PrivacyLoss | None]) -> str:
        kinds: tuple[str, ...] = getattr(mechanism, "kinds", (mechanism.kind,))
        for kind in kinds:
            if kind not in self.mechanisms:
                return f"the mechanism {kind!r} is not among {', '.join(self.mechanisms)}"
        for scope, cap in caps.items():
            if cap is None:
                continue
            try:
                cost = cost_in(mechanism, cap.currency)
            except UserError as error:
                return f"the policy's cap {scope} ({cap}) cannot be applied to it: {error}"
            if not cost <= cap:
                return f"a release costs {cost}, and the policy allows {cap} {scope}"
        return ""


# One object for all records: callers recognise a model by identity.
_NONE = np.empty(0)
_NONE.setflags(write=False)


@dataclass(frozen=True)
class PublishedModel:
    """A model at which a gradient or score is computed.

    ``version`` is the number of releases from which the partition's model was learned; ``parameters`` has the shape
    (model_size,), or (0,) without a model; ``end`` is the partition's end offset at reading: later releases are stored
    at or after it.
    """

    version: int
    parameters: Floats
    end: int


class Models:
    """Reads the models on a log, and checks each before it is used."""

    def __init__(self, log: Log, task: Task, device: InteractiveDevice) -> None:
        self._log, self._task, self._device = log, task, device
        self._read: dict[int, tuple[bytes, int, Floats]] = {}

    def newest(self, partition: int) -> PublishedModel:
        """Return a partition's newest iterate on the log, or the task's initial one; see `cached_model` for errors."""
        return self._model(
            partition, self._log.model(self._source(partition)), self._log.end(partition), self._log.ends
        )

    def cached_model(self, partition: int) -> PublishedModel:
        """Return the last received iterate of a partition, even while the log cannot be reached.

        Raises UserError for a model that no honest learner publishes (damaged, of another task or size, infinite,
        outside the radius, of an impossible version); MurkError if the log cannot be read.
        """
        message, end = self._log.cached_model(partition)
        source = self._source(partition)
        if source != partition:
            message, _ = self._log.cached_model(source)

        def cached_ends() -> list[int]:
            return [self._log.cached_model(each)[1] for each in range(self._log.partitions)]

        return self._model(partition, message, end, cached_ends)

    def _source(self, partition: int) -> int:
        return FIRST_PARTITION if self._device.shares_models else partition

    def _model(
        self, partition: int, message: bytes | None, end: int, ends: Callable[[], Sequence[int]]
    ) -> PublishedModel:
        if message is None:
            return PublishedModel(0, self._device.initial, end)
        source = self._source(partition)
        cached = self._read.get(source)
        if cached is None or cached[0] != message:
            cached = message, *self._checked(message, source)
            # The version of a shared model counts the releases of all partitions, which never decrease.
            if self._device.shares_models and cached[1] > sum(ends()):
                # Cached ends may be older than the model.
                self._check_version(partition, cached[1], sum(self._log.ends()))
            self._read[source] = cached
        _, version, parameters = cached
        if not self._device.shares_models:
            self._check_version(partition, version, end)
        return PublishedModel(version, parameters, end)

    def _check_version(self, partition: int, version: int, releases: int) -> None:
        if version > releases:
            raise self._refused(partition, f"it has learned {version} releases, more than the log has")

    def _checked(self, message: bytes, partition: int) -> tuple[int, Floats]:
        try:
            model = decode_model(
                message, task_hash=self._task.hash, dimension=self._device.model_size, partition=partition
            )
        except RejectedError as rejected:
            raise self._refused(partition, str(rejected)) from None
        if not self._device.is_published(model.version):
            raise self._refused(partition, f"no model is published at its version {model.version}")
        parameters = np.array(model.parameters)
        # A hostile iterate may overflow before it is refused.
        with np.errstate(over="ignore"):
            self._device.check_model(parameters)
        # All releases at this model share one array.
        parameters.setflags(write=False)
        return model.version, parameters

    def _refused(self, partition: int, why: str) -> UserError:
        return UserError(
            f"the model of partition {partition} on {self._log.url} is not one that an honest learner publishes "
            f"({why}): nothing was released. Ask the operator of the log"
        )


class NoModels:
    """Replaces `Models` for releases that use no model."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def newest(self, partition: int) -> PublishedModel:
        """Return an empty model with the partition's current end."""
        return PublishedModel(0, _NONE, self._log.end(partition))

    def cached_model(self, partition: int) -> PublishedModel:
        """Return an empty model with the partition's last known end."""
        return PublishedModel(0, _NONE, self._log.cached_model(partition)[1])


CLOCK_TOLERANCE = 3_600.0  # seconds by which a device's clock may differ from the log's
LATEST_TIME = 253_402_300_800.0  # the year 10000

FEW = 64  # number of records randomized in Python before a compiled kernel is loaded, which takes about 10 ms
MOST_HELD = 16  # largest number of kernels in memory, one for each partition and level

Key = TypeVar("Key", int, str)


def draw_records(
    x: Floats, y: Floats, counts: Integers, noise: NoiseSource, indices: Integers
) -> tuple[Floats, Floats]:
    """Draw one of each person's records uniformly; records are grouped by person, ``counts`` are the group sizes."""
    drawn = np.cumsum(counts) - counts
    for count in np.unique(counts[counts > 1]).tolist():
        with_count = np.flatnonzero(counts == count)
        drawn[with_count] += below(noise.words(indices[with_count], CANDIDATES, Purpose.RECORD), count)
    return track(x[drawn]), track(y[drawn])


def marks_of(device: Any, x: Floats, y: Floats, counts: Integers | None, key: NameKey, most: int = 1) -> list[bytes]:
    """Return a keyed fingerprint of each person's records: equal ones give the same distribution of answers.

    If one of a person's records is drawn, the fingerprint is of the records' distribution: it depends neither on their
    order nor on the draw. If up to ``most`` rows count, the fingerprint depends on their number, too.
    """
    from murk.producers.ledger.memos import fingerprints

    vectors = device.vectors(x, y)
    if counts is None and most == 1:
        return fingerprints(vectors, key)
    counts = np.ones(len(vectors), dtype=np.int64) if counts is None else counts
    if device.averages:
        given = [track(mean) for mean in means_of(vectors, counts)]
    else:
        given = [_distribution(rows) for rows in np.split(vectors, np.cumsum(counts)[:-1])]
    if most > 1:
        given = [track(np.append(each, min(count, most))) for each, count in zip(given, counts.tolist(), strict=True)]
    return fingerprints(given, key)


def _distribution(rows: Floats) -> Floats:
    """Return the distinct ones of a person's vectors, sorted, each with how often it occurs relative to the others."""
    ordered = track(rows[np.lexsort(rows.T)])
    alike = (ordered[1:] == ordered[:-1]) | (np.isnan(ordered[1:]) & np.isnan(ordered[:-1]))
    begins = np.flatnonzero(np.append(True, ~alike.all(axis=1)))
    often = np.diff(np.append(begins, len(rows)))
    return track(np.column_stack([ordered[begins], often // np.gcd.reduce(often)]))


def weighed(x: Floats, y: Floats, counts: Integers, most: int) -> tuple[Floats, Floats, Integers]:
    """Return people's records, filled up to ``most`` for each person with records that lack a target.

    In the mean of a person's vectors, or in one that is drawn uniformly, the person then has a weight proportional to
    their number of rows. The added records repeat the features of the person's own records in turn.

    >>> x, y, counts = weighed(np.ones((3, 1)), np.array([1.0, 0.0, 1.0]), np.array([1, 2]), 2)
    >>> y.tolist(), counts.tolist()
    ([1.0, nan, 0.0, 1.0], [2, 2])
    """
    sizes = np.maximum(counts, most)
    place = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    rows = np.repeat(counts, sizes)
    records = np.repeat(np.cumsum(counts) - counts, sizes) + place % rows
    x, y = track(x[records]), track(y[records])
    y[place >= rows] = math.nan
    return x, y, sizes


def randomize_records(
    device: PersonDevice,
    x: Floats,
    y: Floats,
    partitions: Sequence[int],
    iterates: Mapping[int, Floats | None],
    levels: Sequence[str],
    noise: NoiseSource,
    indices: Integers,
    counts: Integers | None = None,
) -> tuple[list[list[int]], list[str] | None]:
    """Randomize records as `randomize_rows` does; return also each record's query, drawn before records are read."""
    asking = querying_of(device)
    if asking is None:
        return randomize_rows(device, x, y, partitions, iterates, levels, noise, indices, counts).tolist(), None
    asked = np.empty(len(partitions), dtype=object)
    for of_group, partition in _groups(partitions):
        model = iterates[partition]
        assert model is not None
        asked[of_group] = asking.draw_query(noise, indices[of_group], model)
    payloads: list[list[int]] = [[]] * len(partitions)
    for name in dict.fromkeys(asked.tolist()):
        of_group = np.flatnonzero(asked == name)
        single, rows = SingleQueryDevice(asking, name), of_group.tolist()
        partitions_of, levels_of = [partitions[row] for row in rows], [levels[row] for row in rows]
        records, counts_of = records_of(of_group, counts), None if counts is None else counts[of_group]
        x_of, y_of = _rows(x, records), _rows(y, records)
        answers = randomize_rows(
            single, x_of, y_of, partitions_of, iterates, levels_of, noise, indices[of_group], counts_of
        )
        for row, answer in zip(rows, answers.tolist(), strict=True):
            payloads[row] = answer
    return payloads, asked.tolist()


class RecordRandomizer:
    """Randomizes one record at a time, by a compiled kernel if the device has one (with equal results for a seed)."""

    def __init__(self, device: PersonDevice, noise: NoiseSource) -> None:
        self._device, self._asking, self._noise = device, querying_of(device), noise
        self._seed = noise.seed if isinstance(noise, SimulatedNoise) else None
        direct = type(noise) in (SecureNoise, SimulatedNoise)
        self._record_kernel = getattr(device, "record_kernel", None) if direct else None
        self._few = FEW
        self._held: dict[tuple[int, str], tuple[Floats, AnswerKernel]] = {}

    def prepare(self, partition: int, model: Floats, level: str, records: int = 1) -> None:
        """Load or compile the kernel for a partition's model; this may take seconds, so no account may be locked."""
        if self._record_kernel is None or self._kernel(partition, model, level) is not None:
            return
        if self._few > 0:
            self._few -= records
            return
        made: AnswerKernel | None = self._record_kernel(level, model, self._seed)
        if made is not None:
            # The first call compiles the kernel; it randomizes no record.
            made.give(np.array(made.x), math.nan, 0)
            if len(self._held) >= MOST_HELD:
                del self._held[next(iter(self._held))]
            self._held[partition, level] = model, made

    def answer(
        self, x: Floats, y: float, partition: int, model: Floats, level: str, index: Integers
    ) -> tuple[list[int], str | None]:
        """Return the payload and query of a coded record (p,) at its partition's model."""
        kernel = self._kernel(partition, model, level)
        answer = None if kernel is None else kernel.give(x, y, int(index[0]))
        if answer is not None:
            return answer
        device, asking, row, target = self._device, self._asking, x[None, :], np.array([y])
        if asking is None:
            (payload,) = (
                device.mechanisms[level].randomize(device.vectors(row, target, model), self._noise, index).tolist()
            )
            return payload, None
        (query,) = asking.draw_query(self._noise, index, model)
        vectors = asking.vectors(row, target, model, query)
        (payload,) = asking.mechanism(level, query).randomize(vectors, self._noise, index).tolist()
        return payload, query

    def answers(
        self,
        x: Floats,
        y: Floats,
        partitions: Sequence[int],
        models: Mapping[int, Floats | None],
        levels: Sequence[str],
        indices: Integers,
    ) -> tuple[Sequence[list[int]], list[str] | None]:
        """Return payloads and queries of coded records (m, p), by kernels if the device has them."""
        if self._record_kernel is None:
            return randomize_records(self._device, x, y, partitions, models, levels, self._noise, indices)
        payloads, queries = [], []
        for row, (partition, level) in enumerate(zip(partitions, levels, strict=True)):
            model = models[partition]
            assert model is not None
            payload, query = self.answer(x[row], float(y[row]), partition, model, level, indices[row : row + 1])
            payloads.append(payload)
            queries.append(query)
        return payloads, None if None in queries else cast("list[str]", queries)

    def _kernel(self, partition: int, model: Floats, level: str) -> AnswerKernel | None:
        held = self._held.get((partition, level))
        return held[1] if held is not None and held[0] is model else None


def randomize_rows(
    device: Releasing,
    x: Floats,
    y: Floats,
    partitions: Sequence[int],
    iterates: Mapping[int, Floats | None],
    levels: Sequence[str],
    noise: NoiseSource,
    indices: Integers,
    counts: Integers | None = None,
) -> Integers:
    """Randomize coded records into the payloads of a device with one query, int64 of shape (m, d).

    ``x`` are coded features, the constant last, shape (m, p), ``y`` targets, shape (m,). Each record's vector is
    computed at its partition's iterate (None if releases use none); ``indices`` select the draws of a simulation.

    With ``counts`` (n,), records are grouped by person, and ``counts`` are the group sizes. Each person then has one
    payload, (n, d): of the mean of their vectors, or of one record, drawn uniformly (`Releasing.averages`).
    """
    if counts is not None and not device.averages:
        x, y = draw_records(x, y, counts, noise, indices)
        counts = None
    payloads = np.empty((len(partitions), device.dimension), dtype=np.int64)
    vectors: Floats | None = None
    for of_group, partition in _groups(partitions):
        records = records_of(of_group, counts)
        found = device.vectors(_rows(x, records), _rows(y, records), iterates[partition])
        if vectors is None:
            vectors = found if len(found) == len(x) else empty((len(x), found.shape[1]))
        if found is not vectors:
            vectors[records] = found
    assert vectors is not None
    for of_group, level in _groups(levels):
        mechanism, given = device.mechanisms[level], _rows(vectors, records_of(of_group, counts))
        if counts is None:
            payloads[of_group] = mechanism.randomize(given, noise, indices[of_group])
        else:
            payloads[of_group] = randomize_means(mechanism, given, counts[of_group], noise, indices[of_group])
    return payloads


def records_of(people: slice | Integers, counts: Integers | None) -> slice | Integers:
    """Return the indices of people's records, which are grouped by person; ``counts`` is None for one record each."""
    if counts is None or isinstance(people, slice):
        return people
    sizes, stops = counts[people], np.cumsum(counts)
    ends = np.cumsum(sizes)
    # A record's index: its person's first index plus its number among the person's records.
    records: Integers = np.arange(sizes.sum()) + np.repeat(stops[people] - ends, sizes)
    return records


def _rows(values: Floats, own: slice | Integers) -> Floats:
    return values[own] if isinstance(own, slice) else track(values[own])


def _groups(keys: Sequence[Key]) -> Iterator[tuple[slice | Integers, Key]]:
    """Yield each key with its indices; if there is one key only, these are a slice, which copies nothing."""
    distinct = set(keys)
    if len(distinct) == 1:
        yield slice(None), distinct.pop()
        return
    rows: dict[Key, list[int]] = {key: [] for key in distinct}
    for row, key in enumerate(keys):
        rows[key].append(row)
    for key, indices in rows.items():
        yield np.array(indices, dtype=np.int64), key


@dataclass(frozen=True, slots=True)
class Receipt:
    """Result of releasing one record.

    ``outcome`` is "released", "held" (until its window ends), "refused" (a cap would be exceeded, or the person
    withdrew) or "known" (released before); ``delivery`` "sent", "queued" (in the outbox) or "none"; ``reason`` an
    explanation or empty. ``level``, ``partition`` and ``version`` (of the model) are None unless released; for a held
    record only the level is set.
    """

    outcome: Literal["released", "held", "refused", "known"]
    delivery: Literal["sent", "queued", "none"]
    reason: str = ""
    level: str | None = None
    partition: int | None = None
    version: int | None = None


@dataclass(frozen=True, slots=True)
class ReleaseCall:
    """A record whose release is requested: the arguments of `Producer.release`."""

    record: Mapping[str, Any] = field(repr=False)
    person: str = field(default="me", repr=False)
    key: str | None = field(default=None, repr=False)
    level: str = "default"
    at: datetime | None = field(default=None, repr=False)


def without_frames(error: Exception) -> Exception:
    """Return an error without its traceback's frames, whose variables hold records, also those of other people."""
    cause: BaseException | None = error
    while cause is not None:
        cause.__traceback__, cause = None, cause.__cause__ or cause.__context__
    return error


class _UnreadableError(Exception):
    """Records of a group that could not be read, with the error of each; nothing was debited."""

    def __init__(self, errors: dict[int, Exception]) -> None:
        self.errors = errors


@dataclass(frozen=True, slots=True)
class WindowReceipt:
    """Result for a window of an organisation's records, or for a record added to one.

    ``outcome`` is "added" (the window is open), "released", "refused" (a cap would be exceeded, or the organisation
    withdrew: no record is read), "known" (released before) or "left out" (too small). ``delivery`` is "sent", "queued"
    (in the outbox) or "none". ``records`` is the number of records in the window so far; ``reason`` explains a refusal,
    with a remedy. ``level`` and ``partition`` are None unless released.
    """

    outcome: Literal["added", "released", "refused", "known", "left out"]
    delivery: Literal["sent", "queued", "none"]
    records: int
    reason: str = ""
    level: str | None = None
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class BlockReport:
    """Result of releasing a block: the number of records by outcome, and the first row of the next block."""

    released: int
    refused: int
    known: int
    next_position: int
    refusals: tuple[Refusal, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class FlushReport:
    """Result of sending the outbox: numbers of releases appended now, already on the log, and deleted as expired."""

    sent: int
    already: int
    expired: int


OUTBOX_BATCH = 10_000  # largest number of releases read from the outbox at once
BROKER_BATCH = 100  # the same for a broker, so that the backlog of an unreachable one stays on disk, not in memory
OUTBOX_BYTES = 64 * 2**20  # approximate largest number of bytes read from the outbox at once
MARGIN = 60  # seconds before its expiry from which on a release is no longer sent, as sending takes time


class Delivery:
    """Sends releases, unchanged and in order, until shortly before they expire, and confirms those on the log.

    A release is sent again if it is unknown whether it arrived: until it expires, receivers count it once.
    """

    def __init__(self, log: Log, ledger: Ledger, task_hash: str, clock: Callable[[], float]) -> None:
        self._log, self._ledger, self._task, self._clock = log, ledger, task_hash, clock
        # An earlier process may have sent its releases without receiving the confirmation.
        self._backlog = ledger.pending(task_hash) > 0

    def send(self, spend: Spending) -> None:
        """Append a block's releases to the log; if that raises a MurkError, they wait in the outbox."""
        if not spend.granted:
            return
        # Until the log confirms these releases, they count as backlog.
        backlog, self._backlog = self._backlog, True
        self._log.append(spend.messages)
        self._ledger.confirm(spend.numbers)
        self._backlog = backlog

    def try_send(self, spend: Spending) -> str:
        """Send the backlog, then a release; return why the release still waits in the outbox, or an empty text."""
        try:
            if self._backlog:
                self.flush()
            else:
                self.send(spend)
        except (MurkError, OSError) as error:
            return f"the log could not be reached, and the release waits in the outbox: {error}"
        return ""

    def flush_backlog(self) -> None:
        """Send the backlog, if there may be one."""
        if self._backlog:
            self.flush()

    def flush(self) -> FlushReport:
        """Send the backlog (see `Producer.flush`), after searching the log for it, so that accounts are correct."""
        self._backlog = True
        sent = already = expired = after = 0
        size = OUTBOX_BATCH if self._log.readable_by_senders else BROKER_BATCH
        for first in self._ledger.queued(self._task, 0, 1):
            # A task's releases have about the same size.
            size = max(1, min(size, OUTBOX_BYTES // len(first.message)))
        while waiting := self._ledger.queued(self._task, after, size):
            stored = self._stored_on_log(waiting)
            unsent = [queued for queued in waiting if queued.message not in stored]
            numbers = {queued.number for queued in unsent}
            self._ledger.confirm([queued.number for queued in waiting if queued.number not in numbers])
            already += len(waiting) - len(unsent)
            # Read as late as possible: the machine may have slept since.
            last = self._clock() + MARGIN
            if any(queued.expires <= last for queued in unsent):
                expired += self._ledger.expire(self._task, last, through=waiting[-1].number)
            fresh = [queued for queued in unsent if queued.expires > last]
            self._log.append([(queued.partition, queued.message) for queued in fresh])
            self._ledger.confirm([queued.number for queued in fresh])
            sent += len(fresh)
            after = waiting[-1].number
        self._ledger.delete_confirmed()
        self._backlog = False
        return FlushReport(sent, already, expired)

    def _stored_on_log(self, waiting: Sequence[Queued]) -> set[bytes]:
        """Return the waiting releases that are on the log already, because a process ended before it confirmed them."""
        stored: set[bytes] = set()
        if not self._log.readable_by_senders:
            return stored
        for partition in {queued.partition for queued in waiting}:
            of_partition = [queued for queued in waiting if queued.partition == partition]
            wanted = {queued.message for queued in of_partition}
            begin = max(self._log.begin(partition), min(queued.since for queued in of_partition))
            messages = self._log.messages(partition, begin, self._log.end(partition))
            stored.update(wanted.intersection(message.value for message in messages))
        return stored


ANOTHER_TASK = (
    "makes another task: give it another log (--log), and keep its name, so that withdrawals hold. Records given to it "
    "are released again, at additional cost (--lifetime caps the sum)"
)
LARGER = f"a larger one (privacy.per_person) {ANOTHER_TASK}"
_RAISED = "to raise it, once its owner agrees, call Ledger.loosen(cap{task}), then give this cap as {setting}"

P = TypeVar("P", bound="Device")

# Number of random words for drawing an integer below n; all are rejected with a probability below 2^-64.
CANDIDATES = 64


class BaseProducer(ABC, Generic[P]):
    """Base class for everything that releases data to a task: it checks the task, books costs, and sends releases.

    Raises UserError if the log carries another task, the ledger is bound to another log, the noise is of the wrong
    kind, or the policy refuses the task.
    """

    def __init__(
        self,
        task: Task,
        log: Log,
        ledger: Ledger,
        *,
        noise: NoiseSource | None = None,
        policy: Policy | None = None,
        clock: Callable[[], float] = time.time,
        device: P | None = None,
    ) -> None:
        self.task, self._log, self._ledger, self._clock = task, log, ledger, clock
        self._noise = self._check_noise(noise)
        check_carries(log, task)
        check_input_log(log, task)
        self._device: P = self._find_problem(task) if device is None else device
        self._policy = policy or Policy()
        admission = self._policy.admit(task, self._device.mechanisms)
        ledger.bind(
            log.identity,
            task.hash,
            name=task.name,
            simulated=task.simulated,
            window=task.privacy.window,
            known=listed(task.known_columns),
            archive=task.archive_words,
        )
        self._book(admission)
        # Cache of the fields that all releases of one second share.
        self._moment: tuple[int | None, dict[str, Any]] = None, {}
        self._delivery = Delivery(log, ledger, task.hash, self._now)
        self._set_up()

    def _book(self, admission: Admission) -> None:
        """Record an admission in the ledger, then keep it: if the ledger fails, the next release tries again."""
        charges = list(admission.charges.values())
        caps = {"caps": admission.caps, "renewing": admission.renewing}
        repeats = self.task.privacy.repeats_answers
        self._ledger.book(self.task.hash, charges, **caps, lifetime=admission.lifetime, repeats=repeats)
        self._admission = admission

    def _explain(self, refusal: Refusal, larger: Callable[[], str] = lambda: LARGER) -> str:
        """Return why a release was refused and what allows further ones; ``larger`` says how to get a larger cap."""
        cap, needed = self.task.privacy.per_person, refusal.needed
        if refusal.scope in ("withdrawn", "late"):
            return refusal.reason
        if refusal.renews:
            return f"{refusal.reason}; it renews with the next window (privacy.window: {self.task.privacy.window})"
        if refusal.scope == "lifetime":
            return f"{refusal.reason}; {_RAISED.format(task='', setting='--lifetime or Policy(lifetime=...)')}"
        if refusal.scope == "task" and (cap is None or (needed and needed.currency != cap_of(cap).currency)):
            return f"{refusal.reason}; {_RAISED.format(task=', task_hash=...', setting='Policy(per_task=...)')}"
        return f"{refusal.reason}; {larger()}"

    def allowed_levels(self) -> list[str]:
        """Return the task's levels that the policy allows, including those of a grid that nobody has used here yet."""
        if self.task.privacy.grid is None:
            return list(self.levels)
        everything = self._policy.admit(self.task, self._device.mechanisms, list(self.task.privacy.levels))
        return list(everything.charges)

    def _set_up(self) -> None:
        """Prepare what a subclass needs, once the task is admitted and booked."""

    @property
    def levels(self) -> tuple[str, ...]:
        """Levels of the task that the policy allows."""
        return tuple(self._admission.charges)

    def flush(self) -> FlushReport:
        """Send the outbox in order, without stored or expired releases; raise MurkError if the log is unreachable."""
        return self._delivery.flush()

    def _now(self) -> float:
        """Return the time for a release, in seconds since 1970: the device's clock, bounded by the log's.

        A release with a wrong time may have expired before it is sent, and its budget would be lost. Raises UserError
        if the log's time does not help either.
        """
        now = self._clock()
        if not self._noise.simulated:
            earliest, latest = self._log.time_bounds()
            if not earliest - CLOCK_TOLERANCE <= now <= latest + CLOCK_TOLERANCE:
                now = earliest
        if not 0 <= now < LATEST_TIME:
            raise UserError(
                "this device's clock is before 1970 or not a time, and the log gives no time: nothing was released. "
                "Set the clock"
            )
        return now

    def _budget_windows(self, at: datetime | None) -> list[int] | None:
        """Return the number of the window of a time, by default now; None if the task's budget does not renew."""
        window = self.task.privacy.window
        if window == NONE:
            if at is not None:
                raise UserError(f"at={at}: the task {self.task.name!r} has no windows (privacy.window): leave it out")
            return None
        today = int(self._now()) // DAY
        day = today if at is None else utc_day(at)
        if day is None or day > today + 1:
            raise UserError(f"at={at}: {'not a time' if day is None else 'more than a day ahead of this clock'}")
        if day < 0 and self.task.track is not None:
            raise UserError(f"at={at}: before 1970, where the windows of a track begin")
        return [window_of(window, day)]

    @abstractmethod
    def _find_problem(self, task: Task) -> P:
        """Return the task's device; raise a UserError for a task to which this class does not release."""

    def _check_noise(self, noise: NoiseSource | None) -> NoiseSource:
        noise = noise or SecureNoise()
        if noise.simulated and not self.task.simulated:
            raise UserError(
                f"the task {self.task.name!r} is for real releases, and simulated noise protects nobody: "
                "leave the seed out, or announce the task as simulated on a log of its own"
            )
        if self.task.simulated and not noise.simulated:
            raise UserError(
                f"the task {self.task.name!r} is a simulation: give it SimulatedNoise(seed), or announce it "
                "as real on a log of its own"
            )
        return noise

    def _check_levels(self, levels: Iterable[str]) -> None:
        """Raise UserError for an unknown or refused level; book levels of a grid that nobody has used here before."""
        new = {*levels} - self._admission.charges.keys()
        if new and self.task.privacy.grid is not None:
            known = (*self._admission.charges, *self._admission.refused)
            asked = dict.fromkeys((*known, *sorted(new & self.task.privacy.levels.keys())))
            self._book(self._policy.admit(self.task, self._device.mechanisms, asked))
        for level in new - self._admission.charges.keys():
            if reason := self._admission.refused.get(level):
                raise UserError(f"this device's policy does not allow the level {level!r}: {reason}")
            choices = ", ".join(self.levels) if self.task.privacy.grid is None else self.task.privacy.choices
            raise UserError(f"the task {self.task.name!r} has no level {level!r}: choose one of {choices}")

    def _draw(self, indices: Integers, n: int, purpose: Purpose) -> Integers:
        if n == 1:
            return np.zeros(len(indices), dtype=np.int64)
        exact = n.bit_count() == 1
        return below(self._noise.words(indices, 1 if exact else CANDIDATES, purpose), n)

    def _partitions(self, indices: Integers) -> Integers:
        return self._draw(indices, self._log.partitions, Purpose.PARTITION)

    def _partition(self, index: Integers) -> int:
        return 0 if self._log.partitions == 1 else int(self._partitions(index)[0])

    def _fields(self, now: float) -> dict[str, Any]:
        task, second = self.task, int(now)
        if second != self._moment[0]:
            times = {"time": truncate_time(now, task.granularity), "expires": self._expiry(now)}
            self._moment = second, {"task": task.hash, **times, "simulated": task.simulated}
        return dict(self._moment[1])

    def _day(self, now: float) -> int:
        return truncate_time(now, max(DAY, self.task.granularity))

    def _expiry(self, now: float) -> int:
        return truncate_time(now + self.task.expiry, self.task.granularity)


SINGLES = 1 << 40  # first index of simulated draws for records that come from no file, beyond every row
_ALONE = np.zeros(1, dtype=np.int64)
_KNOWN = "this record was released before"


class Producer(BaseProducer["PersonDevice"]):
    """Release records to a task: code a record, pay, randomize once, store the bytes, and send them.

    Whether, when and where something is sent depends on public settings and the ledger only, never on a value. The
    model is checked before a record is read. Missing values are coded by the task's public rule; a record without a
    usable target is randomized as a zero gradient. ``counts`` are sums over the records read, for the device only. The
    producer works only in the thread that opened its ledger. Raises UserError if the log carries another task, the
    ledger is bound to another log, the noise is of the wrong kind, or the policy refuses the task.

    >>> import tempfile
    >>> from murk.producers import Ledger
    >>> from murk import Task
    >>> from murk.stream import open_log
    >>> task = Task.parse('''
    ... name: weeks
    ... features: [{name: age, low: 20, high: 40}]
    ... target: {name: worked, kind: binary, positive: "yes"}
    ... privacy: {guarantee: {gdp: {mu: 1.0}}}
    ... ''')
    >>> folder = tempfile.mkdtemp()
    >>> with open_log(f"sqlite:///{folder}/log.db") as log, Ledger(f"{folder}/ledger.db") as ledger:
    ...     log.register_task(task.document())
    ...     producer = Producer(task, log, ledger)
    ...     [producer.release({"age": 31, "worked": "yes"}).outcome for _ in range(2)]
    ['released', 'refused']

    Parameters
    ----------
    task, log
        The task, as the log carries it, and the log.
    ledger
        The accounts of the people whose records are released.
    noise
        Source of noise: `SecureNoise`, or for simulated tasks, and only for them, `SimulatedNoise`.
    policy
        What this device allows. By default the only cap is the one that the task promises; none holds over all tasks.
    clock, device
        Function of the time in seconds since 1970 (releases carry it truncated to the task's granularity); the task's
        device, if it was made before.
    """

    def _set_up(self) -> None:
        self.counts = Counts()
        self._models: Models | NoModels = NoModels(self._log)
        if self._device.interactive:
            self._models = Models(self._log, self.task, cast("InteractiveDevice", self._device))
        # Releases that use no model have no version.
        self._versioned = "version" in KINDS[self._device.kind].model_fields
        self._write = writer(self._device.kind)
        self._answering = RecordRandomizer(self._device, self._noise)
        self._most_rows, self._repeats = self.task.most_rows, self.task.privacy.repeats_answers

    @wiped
    def release(
        self,
        record: Mapping[str, Any],
        *,
        person: str = "me",
        key: str | None = None,
        level: str = "default",
        at: datetime | None = None,
    ) -> Receipt:
        """Release one record (raw values by column) if the account ``person`` has room; it is read only after payment.

        ``key`` identifies the record if it comes again, and must not depend on its values; None for a record that comes
        once. The person chose ``level`` without looking at the record; on a grid, ``task.privacy.level_of(budget)``. If
        the task's budget renews, the release belongs to the window of ``at`` (UTC without a zone; by default now); a
        window before the person's newest one is refused.

        The outcome is "released" even if the log cannot be reached: the release then waits in the outbox. Raises
        UserError for an unknown or refused level, a time more than a day ahead, or a hostile model; MurkError if the
        log cannot be read or the ledger cannot be written: nothing was debited or released.
        """
        self._ledger.check_thread()
        person = person_name(person)
        if level not in self._admission.charges:
            self._check_levels([level])
        # A simulation draws by the release's number.
        index = np.array([SINGLES + self._ledger.next_number]) if self._noise.simulated else _ALONE
        partition = self._partition(index)
        model = self._models.cached_model(partition)
        self._answering.prepare(partition, model.parameters, level)
        windows = self._budget_windows(at)
        requests = ReleaseRequests([key], [person], [level], windows=windows)
        with self._ledger.spending(self.task.hash, requests) as spend:
            if spend.granted:
                # Take the time before the record is read, so that no time on the wire depends on how long reading
                # takes.
                now, coded = self._now(), self.task.coding.encode_record(record)
                answers = self._answer(spend, coded.x, coded.y, 1, partition, model, level, index)
                self._freeze(spend, now, index, [partition], {partition: model}, *answers, windows)
        if spend.refusals:
            return Receipt("refused", "none", self._explain(spend.refusals[0]))
        if spend.known:
            # An unreachable log leaves the backlog in the outbox.
            with suppress(MurkError, OSError):
                self._delivery.flush_backlog()
            queued = self._ledger.is_queued(self.task.hash, spend.known[0])
            return Receipt("known", "queued" if queued else "none", _KNOWN)
        self.counts.add(1, coded.clamped, coded.missing)
        reason = self._delivery.try_send(spend)
        # A repeated answer has the level at which it was drawn.
        return Receipt("released", "queued" if reason else "sent", reason, spend.levels[0], partition, model.version)

    @wiped
    def release_group(self, requests: Sequence[ReleaseCall]) -> list[Receipt | Exception]:
        """Release records that came together as `release` does, in one ledger transaction and one append.

        They are sent in random order. If `release` would raise an error for a request, that error is the request's
        result, without its traceback, whose frames hold others' records; the other requests go on. Raises MurkError if
        the log cannot be read or the ledger cannot be written, and UserError for a hostile model: nothing was debited
        or released. A task that repeats answers, and a simulation, release one request after the other.
        """
        self._ledger.check_thread()
        results: dict[int, Receipt | Exception] = {}
        checked: dict[int, ReleaseCall] = {}
        windows: dict[int, int] = {}
        for index, request in enumerate(requests):
            if self._noise.simulated or self._repeats:
                # What a simulation draws, or a person repeats, depends on earlier releases.
                results[index] = self._released_alone(request)
                continue
            try:
                person = person_name(request.person)
                self._check_levels([request.level])
                ReleaseRequests([request.key], [person], [request.level]).checked()
                if window := self._budget_windows(request.at):
                    (windows[index],) = window
                checked[index] = replace(request, person=person)
            except Exception as error:  # noqa: BLE001 - it is this caller's, and no other's
                results[index] = without_frames(error)
        while checked:
            try:
                results.update(self._release_checked(checked, windows))
                break
            except _UnreadableError as error:
                results.update(error.errors)
                checked = {index: request for index, request in checked.items() if index not in error.errors}
        return [results[index] for index in range(len(requests))]

    def _released_alone(self, call: ReleaseCall) -> Receipt | Exception:
        try:
            return self.release(call.record, person=call.person, key=call.key, level=call.level, at=call.at)
        except Exception as error:  # noqa: BLE001 - it is this caller's, and no other's
            return without_frames(error)

    def _release_checked(
        self, requests: Mapping[int, ReleaseCall], budget_windows: Mapping[int, int]
    ) -> dict[int, Receipt]:
        places, asked = list(requests), list(requests.values())
        windows = [budget_windows[place] for place in places] if budget_windows else None
        partitions = self._partitions(np.arange(len(asked)))
        models = {partition: self._models.cached_model(partition) for partition in set(partitions.tolist())}
        keys, people, levels = zip(*((each.key, each.person, each.level) for each in asked), strict=True)
        for (partition, level), count in Counter(zip(partitions.tolist(), levels, strict=True)).items():
            self._answering.prepare(partition, models[partition].parameters, level, count)
        with self._ledger.spending(self.task.hash, ReleaseRequests(keys, people, levels, windows=windows)) as spend:
            granted = np.array(spend.granted, dtype=np.int64)
            if spend.granted:
                now = self._now()
                records = {places[index]: asked[index].record for index in spend.granted}
                x, y, clamped, missing = self._encoded(records)
                names = partitions[granted].tolist()
                if self._most_rows == 1:
                    iterates = {partition: model.parameters for partition, model in models.items()}
                    answers = self._answering.answers(x, y, names, iterates, spend.levels, granted)
                else:
                    answers = self._randomize(spend, x, y, None, names, models, granted)
                ended = None if windows is None else [windows[index] for index in spend.granted]
                self._freeze(spend, now, granted, names, models, *answers, ended)
        receipts = {places[at]: Receipt("refused", "none", self._explain(each)) for at, each in spend.refusals.items()}
        if spend.granted:
            self.counts.add(len(granted), clamped, missing)
            reason = self._delivery.try_send(spend)
            for index, level, partition in zip(spend.granted, spend.levels, names, strict=True):
                delivery: Literal["queued", "sent"] = "queued" if reason else "sent"
                version = models[partition].version
                receipts[places[index]] = Receipt("released", delivery, reason, level, partition, version)
        elif spend.known:
            with suppress(MurkError, OSError):
                self._delivery.flush_backlog()
        for index, number in spend.known.items():
            queued = True
            # Other people's releases are already being sent: after an error, callers would release them again.
            with suppress(MurkError, OSError):
                queued = self._ledger.is_queued(self.task.hash, number)
            receipts[places[index]] = Receipt("known", "queued" if queued else "none", _KNOWN)
        return receipts

    def _encoded(self, records: Mapping[int, Mapping[str, Any]]) -> tuple[Floats, Floats, int, int]:
        """Return coded features (m, p), targets (m,) and counts of clamped and missing values."""
        coded, errors = [], {}
        for index, record in records.items():
            try:
                coded.append(self.task.coding.encode_record(record))
            except Exception as error:  # noqa: BLE001 - a mapping of the caller's may raise any
                errors[index] = without_frames(error)
        if errors:
            raise _UnreadableError(errors)
        x, y = track(np.array([each.x for each in coded])), track(np.array([each.y for each in coded]))
        return x, y, sum(each.clamped for each in coded), sum(each.missing for each in coded)

    @wiped
    def hold(
        self, record: Mapping[str, Any], *, person: str = "me", level: str = "default", at: datetime | None = None
    ) -> Receipt:
        """Hold a record until the window of ``at`` ends; `release_held` then releases one of the window's records.

        The released record is drawn uniformly from all that the person had in the window, and is released at the level
        given last. It is kept coded and encrypted in the ledger, and deleted when it is released or refused, or the
        person withdraws. Its due time after the window's end is drawn uniformly over a quarter of a window,
        independently of records, so that devices do not answer all at once. The outcome is "held", or "refused" if no
        release of the window would be granted: then the record is not read. Raises UserError as `release` does, and if
        the task's budget does not renew.
        """
        [result] = self.hold_group([ReleaseCall(record, person, None, level, at)])
        if isinstance(result, Receipt):
            return result
        raise result

    def hold_group(self, calls: Sequence[ReleaseCall]) -> list[Receipt | Exception]:
        """Hold records that came together as `hold` does, in order, and in few ledger transactions.

        If `hold` would raise an error for a record, that error is the record's result, without its traceback.
        """
        self._ledger.check_thread()
        results: dict[int, Receipt | Exception] = {}
        group: dict[int, ReleaseCall] = {}
        terms: dict[str, tuple[int, str]] = {}  # window and level of each of the group's people
        for index, call in enumerate(calls):
            try:
                person = person_name(call.person)
                if call.level not in self._admission.charges:
                    self._check_levels([call.level])
                windows = self._budget_windows(call.at)
                if windows is None:
                    raise UserError(f"the task {self.task.name!r} has no windows (privacy.window): use release")
            except Exception as error:  # noqa: BLE001 - it is this caller's, and no other's
                results[index] = without_frames(error)
                continue
            # The ledger decides once for a person's records, which are all held or all refused.
            if terms.get(person, wanted := (windows[0], call.level)) != wanted:
                results.update(self._hold_checked(group, terms))
                group, terms = {}, {}
            group[index], terms[person] = replace(call, person=person), wanted
        results.update(self._hold_checked(group, terms))
        return [results[index] for index in range(len(calls))]

    @wiped
    def _hold_checked(
        self, calls: Mapping[int, ReleaseCall], terms: Mapping[str, tuple[int, str]]
    ) -> dict[int, Receipt | Exception]:
        """Hold records in one transaction; a person's records have one window and level."""
        if not calls:
            return {}
        windows, levels = zip(*terms.values(), strict=True)
        requests = ReleaseRequests([None] * len(terms), list(terms), levels, windows=windows)
        results: dict[int, Receipt | Exception] = {}
        try:
            with self._ledger.spending(self.task.hash, requests) as spend:
                refusals = {person: spend.refusals.get(place) for place, person in enumerate(terms)}
                stored = dict(zip(terms, spend.people, strict=True))
                spend.cancel()
                for index, call in calls.items():
                    if (refusal := refusals[call.person]) is not None:
                        results[index] = Receipt("refused", "none", self._explain(refusal))
                    else:
                        results[index] = self._put_held(spend.held, stored[call.person], call, terms[call.person][0])
        except Exception as error:  # noqa: BLE001 - an earlier group of the same call has been held
            return dict.fromkeys(calls, without_frames(error))
        # The write-ahead log has a copy of the row for each of the window's records. After an error here, callers would
        # hold the records again.
        with suppress(MurkError, OSError):
            self._ledger.tidy()
        return results

    def _put_held(self, records: HeldRecords, name: Id, call: ReleaseCall, window: int) -> Receipt | Exception:
        held = records.read(name, window)
        count = 1 if held is None else held.count + 1
        if held is None or self._draw_held(call.person, window, count, count) == 0:
            from murk.producers.ledger.held import Held

            try:
                coded = self.task.coding.encode_record(call.record)
            except Exception as error:  # noqa: BLE001 - it is this record's, and no other's
                return without_frames(error)
            self.counts.add(1, coded.clamped, coded.missing)
            held = Held(call.person, window, call.level, coded.x, coded.y, count)
        records.put(name, replace(held, level=call.level, count=count), self._due(call.person, window))
        return Receipt("held", "none", level=call.level)

    @wiped
    def release_held(self) -> list[Receipt]:
        """Release the held records that are due, those of the earliest windows first; call it from time to time.

        Each record is deleted in the transaction that books or refuses its release, so it is released at most once.
        However late this is called, each ended window gets its one answer, unless a later window was answered before.
        """
        return [self._release_held(each) for each in self._ledger.held(self.task.hash, self._now())]

    def next_held(self) -> datetime | None:
        """Return the time (UTC) from which `release_held` has a record to release; None if none is held."""
        due = self._ledger.next_due(self.task.hash)
        return None if due is None else datetime.fromtimestamp(due, UTC)

    def _release_held(self, held: Held) -> Receipt:
        index = np.array([SINGLES + self._ledger.next_number]) if self._noise.simulated else _ALONE
        partition = self._partition(index)
        model = self._models.cached_model(partition)
        try:
            self._check_levels([held.level])
        except UserError as error:
            return self._forget_held(held, str(error))
        self._answering.prepare(partition, model.parameters, held.level)
        requests = ReleaseRequests([None], [held.name], [held.level], windows=[held.window])
        with self._ledger.spending(self.task.hash, requests) as spend:
            if not spend.held.delete(spend.person, held.window):
                # Another process has released it.
                spend.cancel()
                return Receipt("known", "none")
            if spend.granted:
                now = self._now()
                answers = self._answer(spend, held.x, held.y, held.count, partition, model, held.level, index)
                self._freeze(spend, now, index, [partition], {partition: model}, *answers, [held.window])
        if spend.refusals:
            return Receipt("refused", "none", self._explain(spend.refusals[0]))
        reason = self._delivery.try_send(spend)
        return Receipt("released", "queued" if reason else "sent", reason, spend.levels[0], partition, model.version)

    def _answer(
        self,
        spend: Spending,
        x: Floats,
        y: float,
        rows: int,
        partition: int,
        model: PublishedModel,
        level: str,
        index: Integers,
    ) -> tuple[list[list[int]], list[str] | None]:
        """Randomize one coded record, drawn from a person's ``rows``; return payload and query, in lists of one."""
        most = self._most_rows
        if most == 1 and not self._repeats:
            payload, query = self._answering.answer(x, y, partition, model.parameters, level, index)
            return [payload], None if query is None else [query]
        counts = np.array([min(rows, most)])
        records = track(np.repeat(x[None, :], counts, axis=0)), track(np.full(counts, y)), counts
        return self._randomize(spend, *records, [partition], {partition: model}, index)

    def _randomize(
        self,
        spend: Spending,
        x: Floats,
        y: Floats,
        counts: Integers | None,
        partitions: Sequence[int],
        models: Mapping[int, PublishedModel],
        indices: Integers,
    ) -> tuple[list[list[int]], list[str] | None]:
        """Return payloads and queries of people's records, grouped by person (``counts`` None: one record each)."""
        marks = marks_of(self._device, x, y, counts, spend.key, self._most_rows) if self._repeats else []
        if self._most_rows > 1:
            several = np.ones(len(y), dtype=np.int64) if counts is None else counts
            x, y, counts = weighed(x, y, several, self._most_rows)
        iterates, levels = {partition: model.parameters for partition, model in models.items()}, spend.levels
        if self._repeats:
            return self._repeat_or_randomize(spend, x, y, counts, indices, marks), None
        return randomize_records(self._device, x, y, partitions, iterates, levels, self._noise, indices, counts)

    def _repeat_or_randomize(
        self, spend: Spending, x: Floats, y: Floats, counts: Integers | None, indices: Integers, marks: Sequence[bytes]
    ) -> list[list[int]]:
        """Return people's payloads: the last one if a person is to repeat it, else a new one, which is then stored."""
        from murk.producers.ledger.memos import Memo

        device, noise = self._device, self._noise
        if counts is not None and not device.averages:
            x, y = draw_records(x, y, counts, noise, indices)
            counts = None
        anew: list[int] = []
        payloads: list[list[int]] = [[]] * len(indices)
        for place, mark in enumerate(marks):
            memo = spend.memos.get(spend.granted[place])
            same = memo is not None and (memo.level, memo.fingerprint) == (spend.levels[place], mark)
            if memo is not None and (same or spend.granted[place] in spend.only_repeats):
                payloads[place] = memo.payload
                spend.repeat(place, memo)
            else:
                anew.append(place)
        if anew:
            people = np.array(anew)
            records, several = records_of(people, counts), None if counts is None else counts[people]
            levels, partitions = [spend.levels[place] for place in anew], [0] * len(anew)
            given = _rows(x, records), _rows(y, records), partitions, {0: None}, levels, noise, indices[people]
            for place, payload in zip(anew, randomize_rows(device, *given, several).tolist(), strict=True):
                payloads[place] = payload
                spend.keep_answer(place, Memo(spend.levels[place], marks[place], payload))
        return payloads

    def _forget_held(self, held: Held, reason: str) -> Receipt:
        """Delete a held record whose level the policy no longer allows, so that it does not block other records."""
        requests = ReleaseRequests([None], [held.name], [self.levels[0]], windows=[held.window])
        with self._ledger.spending(self.task.hash, requests) as spend:
            spend.held.delete(spend.person, held.window)
            spend.cancel()
        return Receipt("refused", "none", reason)

    def _draw_held(self, person: str, window: int, count: int, bound: int) -> int:
        """Draw an integer below a bound for a person's record of a window, or for the window (``count`` 0)."""
        index = _ALONE
        if self._noise.simulated:
            text = f"{person} {window} {count}".encode()
            index = np.array([int.from_bytes(blake2b(text, digest_size=7).digest(), "big")])
        return int(self._draw(index, bound, Purpose.RECORD)[0])

    def _due(self, person: str, window: int) -> int:
        """Draw when the answer of a person's window is due, in seconds since 1970."""
        name = self.task.privacy.window
        return end_of(name, window) + self._draw_held(person, window, 0, spread_of(name))

    def begin(self, source: Source, *, excluded: Sequence[int] = ()) -> Run:
        """Begin work on a file except for ``excluded`` rows, or return the progress made so far."""
        return self._ledger.begin_run(self.task.hash, source.digest, people=source.people, excluded=excluded)

    @wiped
    def release_block(self, block: Block) -> BlockReport:
        """Release a block of a file at the newest models: one ledger transaction, one append.

        If the block has ``counts``, all records of a person are one answer: of the mean of their vectors, or of one of
        them, drawn uniformly. A task with ``weight: {rows: ...}`` uses the counts.

        The backlog is sent first, so that the log keeps the order of blocks; within a block the order is random (a
        simulation keeps the file's). Raises MurkError if the ledger or the log cannot be written: releases that were
        debited wait in the outbox and are sent first next time.
        """
        self._ledger.check_thread()
        self._delivery.flush_backlog()
        rows, levels = block.rows, block.levels
        if levels is None:
            menu = list(self.task.privacy.levels)
            levels = [menu[index] for index in self._draw(rows, len(menu), Purpose.LEVEL).tolist()]
        keep_levels = block.levels is None and block.people is not None
        # A person who keeps their level may be at any level.
        self._check_levels(self.task.privacy.levels if keep_levels else levels)
        partitions = self._partitions(rows)
        models = {partition: self._models.newest(partition) for partition in set(partitions.tolist())}
        windows = self._budget_windows(None)
        if windows is not None:
            windows = windows * len(rows) if block.windows is None else block.windows.tolist()
        requests = ReleaseRequests(
            rows.tolist(), block.people, levels, source=block.source, keep_levels=keep_levels, windows=windows
        )
        with self._ledger.spending(self.task.hash, requests) as spend:
            granted = np.array(spend.granted, dtype=np.int64)
            if spend.granted:
                now = self._now()
                indices = rows[granted] if self._noise.simulated else granted
                names, records = partitions[granted].tolist(), records_of(granted, block.counts)
                owned = None if block.counts is None else block.counts[granted]
                x, y = track(block.x[records]), track(block.y[records])
                answers = self._randomize(spend, x, y, owned, names, models, indices)
                ended = None if windows is None else [windows[index] for index in spend.granted]
                self._freeze(spend, now, indices, names, models, *answers, ended)
            counts = {"released": len(spend.granted), "refused": len(spend.refusals), "known": len(spend.known)}
            report = BlockReport(**counts, next_position=block.next_position, refusals=tuple(spend.refusals.values()))
            late = sum(refusal.scope == "late" for refusal in spend.refusals.values())
            more = {"clamped": block.clamped, "missing": block.missing, "late": late}
            spend.progress(block.next_position, {**counts, **more})
        self.counts.add(len(block.y), block.clamped, block.missing)
        self._delivery.send(spend)
        return report

    def _find_problem(self, task: Task) -> PersonDevice:
        from murk.protocols.device import person_device_for

        return person_device_for(task)

    def _freeze(
        self,
        spend: Spending,
        now: float,
        indices: Integers,
        partitions: Sequence[int],
        models: Mapping[int, PublishedModel],
        payloads: Sequence[list[int]],
        queries: Sequence[str] | None,
        windows: Sequence[int] | None,
    ) -> None:
        write, shared = self._write, self._fields(now)
        versions: dict[int, dict[str, Any]] = {
            partition: {"version": model.version} if self._versioned else {} for partition, model in models.items()
        }
        asked: Iterable[dict[str, str | int]] = repeat({}) if queries is None else map(query_fields, queries)
        times: Iterable[dict[str, Any]] = repeat(shared)
        if windows is not None and self.task.track is not None:
            times = ({**shared, "time": start_of(self.task.track.window, window)} for window in windows)
        names = identifiers(self._noise, indices)
        releases = zip(names, spend.levels, partitions, payloads, asked, times, strict=False)
        messages = [
            write(id=name, level=level, partition=partition, payload=payload, **versions[partition], **query, **fields)
            for name, level, partition, payload, query, fields in releases
        ]
        ends = [models[partition].end for partition in partitions]
        spend.freeze(messages, partitions, ends, self._expiry(now), self._day(now), self._order(indices))

    def _order(self, indices: Integers) -> list[int]:
        """Draw the order in which a block is sent, since the file's order would show whose release each one is."""
        # A simulation protects nobody, and must not depend on how its file is cut into blocks.
        if self._noise.simulated or len(indices) < 2:
            return list(range(len(indices)))
        order: list[int] = np.argsort(self._noise.words(indices, 1, Purpose.SELECTION)[:, 0], kind="stable").tolist()
        return order
