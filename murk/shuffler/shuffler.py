"""The shuffler: takes in releases, and forwards each crowd exactly once, in a random order."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping, Set
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import compress
from typing import Any, Self

import numpy as np

from murk._internal.arrays import Integers, Words
from murk.errors import MurkError, UserError
from murk.shuffler.admission import Admission, Models
from murk.shuffler.store import ALL, CROWDS, DROPPED, DUPLICATES, RELEASED, Place, SealedCrowd, Store
from murk.stream.log.interface import (
    FIRST_PARTITION,
    Checkpoint,
    CrowdMark,
    FencedError,
    Log,
    Ownership,
    check_carries,
    check_claim,
    truncate_time,
    warn_of_readers,
)
from murk.stream.wire.admission import wire_rules
from murk.stream.wire.codec import RejectedError, decode_model, encode
from murk.stream.wire.columns import Columns, Layout
from murk.stream.wire.duplicates import period_of
from murk.stream.wire.packed import Fetched, Packed
from murk.stream.wire.releases import KINDS
from murk.stream.wire.state import Counters, StateMessage, decode_state
from murk.stream.worker.worker import DeadLetterLog, StepCounters, Validator, messages_of
from murk.task.shuffling import ShuffleBlock
from murk.task.task import Task

_ERROR_CODE = "MURK-SHUFFLE-001"

_BATCH = 65_536  # largest number of messages that a step takes in from a partition
_PART = 256  # number of messages that are judged one by one if not all of them are plainly admitted
_STEP_BYTES = 2**26  # largest size of the messages that a step takes in from a partition
_OWN = "shuffler"  # key under which the input log's states hold the store's id
LATE = 3_600
"""Largest number of seconds after the next model for which answers at a version are taken in."""

_log = logging.getLogger(__package__)


@dataclass(frozen=True, slots=True)
class Totals:
    """Numbers of releases by outcome since a shuffler's store was created."""

    read: int  # messages of the input log
    duplicates: int
    refused: dict[str, int]  # messages that a learner would refuse, by reason
    released: int
    crowds: int
    waiting: int  # releases whose crowds are not complete
    dropped: int  # releases whose crowds were not complete in time


@dataclass(frozen=True, slots=True)
class Step:
    """Result of one step."""

    read: int
    released: int
    dropped: int
    relayed: bool  # whether a new model was relayed to devices

    @property
    def idle(self) -> bool:
        """Whether nothing was done."""
        return not (self.read or self.released or self.dropped or self.relayed)


class Shuffler:
    """Forward the releases of an input log in crowds to the log of releases.

    A step takes in what has arrived, forwards complete crowds, drops crowds that waited too long, and then commits the
    input log's offsets and deletes what was taken in. It also relays the learner's models to the input log, one for
    each version, so that everybody in a crowd answers at the same one. A version closes `LATE` seconds after the next
    model, or with the first crowd at the next model. Releases that still wait are then dropped, since a forger could
    complete the crowd of a few late people. A release counts once until it expires, on whatever partition it is sent
    again. The store alone decides what was taken in and sealed, and the log's mark alone decides which crowds the log
    has: so after a crash at any moment every release is forwarded once, in a whole crowd.

    Devices write to ``input_log``, which only the shuffler reads; learners read ``log``. The ``device`` of the task
    checks releases and models. The ``store`` holds waiting releases; the shuffler closes it. ``replace`` gives up what
    waited in another store and in the input log, and begins at the end of the input log; ``clock`` gives seconds since
    1970. Raises UserError if a log carries another task, the log has releases that were not shuffled, or another store
    belongs to them.
    """

    def __init__(
        self,
        input_log: Log,
        log: Log,
        task: Task,
        device: Any,
        store: Store,
        *,
        replace: bool = False,
        batch: int = _BATCH,
        clock: Callable[[], float] = time.time,
    ) -> None:
        with ExitStack() as stack:
            stack.callback(store.close)
            if task.shuffle is None:
                raise UserError(f"the task {task.name!r} is not shuffled: add shuffle: {{crowd: 20000}} to its file")
            if input_log.identity == log.identity:
                raise UserError(
                    f"{log.url} is both the input log and the log of releases: devices need an input log of their own"
                )
            for each in (input_log, log):
                check_carries(each, task)
            if input_log.crowd_mark() is not None:
                raise UserError(
                    f"{input_log.url} is the log of another shuffler: an input log takes only devices' releases"
                )
            warn_of_readers(input_log)
            store.bind({"task": task.hash, "input log": input_log.identity, "log of releases": log.identity})
            self._input_log, self._to, self._task, self._store, self._clock = input_log, log, task, store, clock
            self._settings: ShuffleBlock = task.shuffle
            # Everything is checked before anything is claimed: a refused shuffler takes nothing from another one.
            mark = log.crowd_mark()
            check_claim(log.url, mark, store.id, replace, any(log.ends()))
            self._check_copy(mark)
            for partition in range(input_log.partitions):
                self._start(partition, input_log.checkpoint(partition), replace)
            self._mark = log.claim(store.id, replace=replace)
            self._check_copy(self._mark)
            self._description = f"{input_log.url} to {log.url}"
            self._unreported = DeadLetterLog(_log, self._description)
            versioned = "version" in KINDS[task.release_kind].model_fields
            self._device: Models | None = device if versioned else None
            self._cell_place: int | None = getattr(device, "cell_place", None)
            if self._device is not None and not store.models():
                self._remember_relayed()
            self._models = store.models() if versioned else None
            self._admission = Admission(device.admission(), self._open_versions(), store.forgotten)
            rules = wire_rules(task, self._admission.rules)
            self._lifetime, self._period = rules.lifetime, period_of(task.expiry, task.granularity)
            self._batch = max(1, min(batch, _STEP_BYTES // rules.max_bytes))
            self._judges = [Validator(partition, rules, self._admission) for partition in range(input_log.partitions)]
            self._layout = Layout(rules)
            self._owned: list[Ownership] = []
            self._committed: dict[int, tuple[int, Counters]] = {}
            is_new = store.offset(FIRST_PARTITION) is None
            self._take_over(replace, stack)
            if replace and is_new:
                # The lost store knew which releases had come; this one can tell duplicates only of releases made from
                # now on.
                store.forget(0, unseen=truncate_time(self._clock() + rules.lifetime, task.granularity))
                self._admission.forgotten = store.forgotten
            self._window = store.window()
            if self._models:
                self._publish(self._models[max(self._models)].message)
            self._stopped: str | None = None
            if replace:
                # From now on the store is the input log's, and a restart needs no --replace.
                self._commit()
            self._forward_sealed()
            self._closing = stack.pop_all()
        _log.info("%s: begun after %d crowds", self._description, self._mark.crowds)

    @property
    def totals(self) -> Totals:
        """Counts of releases by what was done with them since the store was created."""
        counts = self._store.counts()
        by_name: dict[str, int] = {}
        for (_, name), count in counts.items():
            by_name[name] = by_name.get(name, 0) + count
        return Totals(
            read=by_name.get("read", 0),
            duplicates=by_name.get(DUPLICATES, 0),
            refused={name[5:]: count for name, count in sorted(by_name.items()) if name.startswith("dead:")},
            released=by_name.get(RELEASED, 0),
            crowds=by_name.get(CROWDS, 0),
            waiting=sum(each.count for each in self._store.open_crowds()),
            dropped=by_name.get(DROPPED, 0),
        )

    def step(self) -> Step:
        """Take in what has arrived, up to a batch of each partition, and forward or drop crowds; see the class.

        Raises ``FencedError`` if another shuffler has taken over; `MurkError` if a log or the store failed: then a new
        shuffler with the same store continues.
        """
        if self._stopped is not None:
            raise MurkError(f"this shuffler {self._stopped}: start a new one with the same store")
        # After an error or interrupt, only a new shuffler knows what was done.
        self._stopped = "did not get to the end of a step"
        relayed = self._relay()
        self._close_versions()
        self._horizon = int(self._clock())
        read = sum(self._take_in(partition) for partition in range(self._input_log.partitions))
        released, dropped = self._forward_complete(), self._drop_late()
        if read:
            self._forget(self._horizon)
        self._commit()
        self._stopped = None
        return Step(read, released, dropped, relayed)

    def close(self) -> None:
        """Release the input log and close the store; a new shuffler can continue."""
        if self._stopped is None:
            self._unreported.report()
        self._stopped = "was closed"
        self._closing.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # Beginning

    def _check_copy(self, mark: CrowdMark | None) -> None:
        """Raise `MurkError` if the store's crowds are not the log's, or the logs belong to another store."""
        store = self._store
        crowds, sealed = store.counts()[ALL, CROWDS], store.sealed(self._settings.crowd)
        if mark is None or mark.shuffler != store.id:
            if store.offset(FIRST_PARTITION) is not None:
                raise UserError(
                    f"the store {store.path} was used before, but the logs now belong to another store: give that one "
                    "or, with --replace, a new path"
                )
        elif mark.crowds != crowds and (sealed is None or mark.crowds != sealed.number):
            raise MurkError(
                f"the store {store.path} is an older copy: it knows {crowds} crowds of {self._to.url}, which has "
                f"{mark.crowds}. Restore the newest one; if it is lost, give another --store with --replace"
            )

    def _take_over(self, replace: bool, stack: ExitStack) -> None:
        """Acquire the input log's partitions, and begin at the offset of the store or else of the input log."""
        starts = []
        for partition in range(self._input_log.partitions):
            self._owned.append(owned := self._input_log.acquire(partition))
            stack.callback(owned.close)
            starts.append(self._start(partition, owned.load(), replace))
        self._store.start_at(starts)

    def _start(self, partition: int, checkpoint: Checkpoint, replace: bool) -> int:
        """Return a new store's first offset; raise `MurkError` if the input log has another store or lost releases."""
        state, committed = checkpoint
        offset = self._store.offset(partition)
        where = f"partition {partition} of {self._input_log.url}"
        owner = None if state is None else decode_state(state, where).learner.get(_OWN)
        if state is not None and owner is None:
            raise UserError(f"{where} was learned from: an input log is read by its shuffler only; give another --from")
        if owner not in (None, self._store.id) and not replace:
            raise UserError(
                f"{where} was taken in with another store: give its --store; if that is lost, --replace gives up what "
                "waited there"
            )
        if offset is not None and offset < committed and owner == self._store.id:
            raise MurkError(
                f"the store {self._store.path} is an older copy: it has taken in {where} up to offset {offset}, and "
                f"{committed} was committed. Restore the newest one; if it is lost, give another --store with "
                "--replace"
            )
        begin = self._input_log.begin(partition)
        if offset is not None and offset < begin:
            raise MurkError(
                f"{where} begins at offset {begin}, and the store ends at {offset}: retention has removed "
                "releases that were not taken in. Give another --store with --replace, which begins at the end",
                code="MURK-LOG-007",
            )
        return self._input_log.end(partition) if replace and offset is None else max(begin, committed)

    # A step

    def _relay(self) -> bool:
        """Publish the learner's newest model on the input log if it is not there; return whether it was published."""
        if self._models is None:
            return False
        message = self._to.model(FIRST_PARTITION)
        if message is None or any(message == each.message for each in self._models.values()):
            return False
        try:
            version, initial = self._judge(message)
        except (RejectedError, UserError) as error:
            raise MurkError(
                f"the model on {self._to.url} is not one of this task ({error}): somebody else has written there. "
                "Restart its learner, which publishes its own again"
            ) from None
        if version in self._models or (version == 0 and not initial):
            raise MurkError(
                f"{self._to.url} has another model of version {version} than the one at which people have answered: "
                "its learner was started over. Restore its state, or begin with new logs"
            )
        if version <= max(self._models, default=0):
            # A learner that continues an older state makes the same models again. Version 0 is that of people without a
            # model, who form one crowd: no message may give them a model.
            return False
        self._store.add_model(version, message, int(self._clock()))
        self._models = self._store.models()
        self._admission.versions = self._open_versions()
        self._publish(message)
        return True

    def _open_versions(self) -> Set[int] | None:
        """Return the versions at which answers are taken in; None if releases have no version."""
        if self._models is None:
            return None
        return {each for each in (0, *self._models) if each >= self._store.closed}

    def _close_versions(self) -> None:
        """Close the versions before a model that was relayed `LATE` seconds ago, or at which a crowd was released."""
        if self._models is None:
            return
        since = self._clock() - min(LATE, self._settings.patience)
        old = [version for version, model in self._models.items() if model.since <= since]
        first, closed = max([0, *old]), self._store.closed
        if first > closed or any(version < closed for version in self._models):
            self._store.close_below(max(first, closed))
            self._models = self._store.models()
        self._admission.versions = self._open_versions()

    def _remember_relayed(self) -> None:
        """Add the input log's model to a new store, since people may have answered at it."""
        message = self._input_log.model(FIRST_PARTITION)
        if message is None:
            return
        # Nobody has answered at a model that devices refuse.
        with suppress(RejectedError, UserError):
            version, _ = self._judge(message)
            if version:
                self._store.add_model(version, message, int(self._clock()))

    def _judge(self, message: bytes) -> tuple[int, bool]:
        """Return a model's version, and whether it is the initial one; raise an error if devices would refuse it."""
        device = self._device
        assert device is not None
        model = decode_model(message, task_hash=self._task.hash, dimension=device.model_size, partition=FIRST_PARTITION)
        if not device.is_published(model.version):
            raise UserError(f"no model is published at version {model.version}")
        parameters = np.array(model.parameters)
        with np.errstate(over="ignore"):
            device.check_model(parameters)
        return model.version, np.array_equal(parameters, device.initial)

    def _publish(self, message: bytes) -> None:
        if self._input_log.model(FIRST_PARTITION) != message:
            self._input_log.publish(FIRST_PARTITION, message)

    def _take_in(self, partition: int) -> int:
        """Judge a batch of a partition and add what is admitted to its crowds; return the number of messages."""
        offset = self._store.offset(partition)
        assert offset is not None
        messages = self._input_log.fetch(partition, offset, self._batch)
        if not len(messages):
            return 0
        self._horizon = min(self._horizon, int(messages.times.min()))
        tally = StepCounters(Counters())
        releases = self._admitted(partition, messages, tally)
        counters = tally.counters()
        counts = {"read": len(messages), DUPLICATES: counters.duplicates}
        counts |= {f"dead:{reason}": count for reason, count in counters.dead.items()}
        self._store.take(
            partition,
            int(messages.offsets[-1]) + 1,
            self._window.given,
            self._period,
            releases,
            self._crowds(releases),
            self._random_ids(releases),
            counts,
            truncate_time(self._clock(), self._task.granularity),
            self._settings.crowd,
        )
        self._window.stored_all()
        return len(messages)

    def _crowds(self, releases: Columns) -> Mapping[Place, Integers | slice]:
        """Return the indices of releases by crowd: of a level, and of a version or a cell of known columns.

        Cells are sent as they are, so that a release hides only among those of its cell.
        """
        if self._cell_place is None or not len(releases):
            return releases.groups("level", "version")
        cells = releases.rows(int(releases.numbers["payload"][0]))[:, self._cell_place]
        return replace(releases, numbers={**releases.numbers, "cell": cells}).groups("level", "cell")

    def _admitted(self, partition: int, messages: Fetched, tally: StepCounters) -> Columns:
        """Return the releases that a learner would learn, and count the others."""
        plain = self._plain(partition, messages, tally)
        if plain is not None:
            return plain
        # A few are judged one by one, so that a hostile message slows down only its neighbours.
        admitted: list[bytes] = []
        for at in range(0, len(messages), _PART):
            part = messages.rows(at, at + _PART)
            plain = self._plain(partition, part, tally)
            if plain is not None:
                admitted += plain.packed.values()
                continue
            judge = self._judges[partition].validate_each
            validated = [judge([each], self._window, tally) for each in messages_of(part)]
            self._unreported.add(letter.reason for each in validated for letter in each.dead)
            admitted += [encode(release) for each in validated for release in each.admitted]
        releases = self._layout.read(Packed.of(admitted))
        assert releases is not None
        return releases

    def _plain(self, partition: int, messages: Fetched, tally: StepCounters) -> Columns | None:
        """Return messages that are all certain to be admitted, without duplicates; None, and no effect, otherwise."""
        releases = self._layout.read(messages.messages)
        if releases is None:
            return None
        expires = releases.column("expires")
        if (
            (releases.column("partition") != partition).any()
            or messages.times.max() > expires.min()
            or expires.max() > messages.times.min() + self._lifetime
            or not self._admission.admits(releases)
        ):
            return None
        # This check comes last, since it changes the window.
        repeated = self._window.add(releases.ids, expires)
        if not repeated.any():
            return releases
        for _ in range(int(repeated.sum())):
            tally.duplicate()
        releases = self._layout.read(Packed.of([*compress(messages.messages.values(), ~repeated)]))
        assert releases is not None
        return releases

    def _random_ids(self, releases: Columns) -> Words:
        """Return a new random id (m, 2) for each release, which decides its place in its crowd.

        In a simulation they are computed from the releases' ids, so that it can be repeated.
        """
        if not self._task.simulated:
            return np.frombuffer(os.urandom(16 * len(releases)), np.uint64).reshape(-1, 2)
        drawn = [
            blake2b(f"{high:016x}{low:016x} {expires}".encode(), digest_size=16).digest()
            for (high, low), expires in zip(releases.ids.tolist(), releases.column("expires").tolist(), strict=True)
        ]
        return np.frombuffer(b"".join(drawn), np.uint64).reshape(-1, 2)

    def _forward_complete(self) -> int:
        """Forward all crowds that are complete; return the number of releases."""
        released = 0
        for crowd in self._store.open_crowds():
            if crowd.count >= self._settings.crowd:
                self._store.seal(crowd.crowd, self._mark.crowds + 1)
                released += self._forward_sealed()
        return released

    def _forward_sealed(self) -> int:
        """Append the sealed crowd to the log, if the log does not have it, and delete it; return its size."""
        sealed = self._store.sealed(self._settings.crowd)
        if sealed is None:
            return 0
        if sealed.number > self._mark.crowds:
            self._append(sealed)
        self._store.delete(sealed)
        _log.info("%s: crowd %d of %d releases", self._description, sealed.number, sealed.count)
        return sealed.count

    def _append(self, sealed: SealedCrowd) -> None:
        now, task = self._clock(), self._task
        # Use the time of this attempt, as a sealed crowd may wait for the log until it would have expired.
        moment, end = (truncate_time(at, task.granularity) for at in (now, now + task.expiry))
        mark = CrowdMark(self._store.id, sealed.number)
        self._to.append_crowd(self._store.messages(sealed, self._layout, moment, end), mark)
        self._mark = mark

    def _forget(self, horizon: int) -> None:
        """Forget the ids of releases that expired before the oldest message of the last step, and before now."""
        self._store.forget(horizon)
        self._admission.forgotten = self._store.forgotten

    def _drop_late(self) -> int:
        """Drop the crowds of closed versions, and incomplete crowds that waited longer than ``patience``.

        This reveals arrival times only to the task's granularity.
        """
        # Arrivals are truncated as well: nothing is dropped early, and all of a granule at once.
        before = truncate_time(self._clock() - self._settings.patience, self._task.granularity)
        dropped = 0
        for crowd in self._store.open_crowds():
            if crowd.since < before or (self._models is not None and crowd.version < self._store.closed):
                self._store.drop(crowd)
                dropped += crowd.count
                # Log neither level nor count, which may be one person's.
                words = "%s: releases waited too long for a crowd of %d and were dropped"
                _log.warning(words, self._description, self._settings.crowd)
        return dropped

    def _commit(self) -> None:
        """Commit offsets and counts of the input log, and delete what was taken in."""
        counts = self._store.counts()
        for partition, owned in enumerate(self._owned):
            offset = self._store.offset(partition)
            assert offset is not None
            dead = {
                name[5:]: count for (index, name), count in counts.items() if index == partition and name[:5] == "dead:"
            }
            # Number of releases of all partitions: populations wait for the models that follow from it.
            learned = counts[ALL, RELEASED] if partition == FIRST_PARTITION else 0
            counters = Counters(learned=learned, duplicates=counts[partition, DUPLICATES], dead=dead)
            if self._committed.get(partition) == (offset, counters):
                continue
            state = StateMessage(
                task=self._task.hash,
                identity=self._input_log.identity,
                partition=partition,
                offset=offset,
                last_id=None,
                counters=counters,
                learner={_OWN: self._store.id},
            )
            try:
                owned.commit(state.encode(), offset)
            except FencedError:
                self._stopped = "was replaced by another one"
                raise
            self._committed[partition] = offset, counters
            self._input_log.discard(partition, offset)
