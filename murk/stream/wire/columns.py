"""Read and write many releases at once, as columns, in compiled code.

A release in the compact form of `encode` is literal text with holes. `Layout.read` fills columns from the holes of many
messages, and `Layout.write` is its inverse. `decode` remains the authority: reading never accepts a message that it
refuses, and leaves every message in another form to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from murk._internal.arrays import Integers, Words
from murk._internal.jit import deferred, jit_helper
from murk._internal.lazy import LazyLevels
from murk.errors import MurkError
from murk.stream.wire.codec import LARGEST, WireRules
from murk.stream.wire.packed import Packed
from murk.stream.wire.releases import KINDS, MOST_ITEMS, SCHEMA_VERSION, PackedRelease

_ERROR_CODE = "MURK-LOG-001"

Bytes = NDArray[np.uint8]

_WORDS = "level", "query"
_FIELDS = (*_WORDS, "partition", "version", "item", "time", "expires")
Array = Any
_ID, _WHOLE, _PAYLOAD, _WORD = range(4)  # what a hole holds: an id, a count, integers, or one of some words
_MOST_DIGITS = 19  # number of digits with which an integer cannot overflow 64 bits
_LATEST = 2**53 - 1  # largest time


@dataclass(frozen=True)
class Columns:
    """Releases of one kind as columns, in order.

    >>> from collections import namedtuple
    >>> release = namedtuple("release", "level payload")
    >>> columns = Columns.of([release("open", [1, 2]), release("default", [3, 4]), release("open", [5, 6])])
    >>> columns.rows(2).tolist()
    [[1, 2], [3, 4], [5, 6]]
    >>> {level: rows.tolist() for level, rows in columns.split("level").items()}
    {'open': [[1, 2], [5, 6]], 'default': [[3, 4]]}
    """

    numbers: Mapping[str, Integers]  # by field; of the payload, how many integers it has; of words, their index
    words: Mapping[str, Sequence[str]]  # of a field
    integers: Integers  # of all payloads
    kind: str = ""
    # Only if messages were read as columns; empty if decoded releases were converted.
    ids: Words = field(default_factory=lambda: np.empty((0, 2), np.uint64))  # (m, 2), big-endian halves
    # Only for all messages that were read; empty for a part of them.
    texts: Integers = field(default_factory=lambda: np.empty((0, 2), np.int64))  # begin and end of payloads in `packed`
    packed: Packed = field(default_factory=lambda: Packed.of([]))

    @classmethod
    def of(cls, releases: Sequence[Any]) -> Columns:
        """Return decoded releases as columns."""
        numbers, words = {}, {}
        for name in _FIELDS:
            if hasattr(releases[0], name):
                column = [getattr(release, name) for release in releases]
                if name in _WORDS:
                    words[name] = [*dict.fromkeys(column)]
                    column = [*map({word: index for index, word in enumerate(words[name])}.__getitem__, column)]
                numbers[name] = np.array(column, np.int64)
        payloads = [release.payload for release in releases]
        numbers["payload"] = np.fromiter(map(len, payloads), np.int64, len(payloads))
        return cls(numbers, words, np.fromiter(chain.from_iterable(payloads), np.int64))

    def __len__(self) -> int:
        return len(self.numbers["payload"])

    def column(self, name: str) -> Integers:
        """Return the numbers of a field; zeros for a field that this kind of release lacks."""
        column: Integers = self.numbers[name] if name in self.numbers else np.zeros(len(self), np.int64)
        return column

    def levels(self) -> tuple[list[str], Integers]:
        """Return the distinct levels, and the index of each release's level in them."""
        column = self.numbers["level"]
        present = sorted(distinct(column))
        index: Integers = np.searchsorted(present, column)
        return [self.words["level"][number] for number in present], index

    def groups(self, *names: str) -> dict[Any, Integers | slice]:
        """Return the indices of releases by the value of a field, or by the values of several."""
        columns = [self.column(name) for name in names]
        varying = [column for column in columns if len(distinct(column)) > 1] if len(self) else []
        if not varying:
            return {self._key(names, columns, 0): slice(None)} if len(self) else {}
        keys = np.zeros(len(self), np.int64)
        for column in varying:
            # Numbered anew each time, so that products do not overflow.
            values, index = np.unique(column, return_inverse=True)
            keys = np.unique(keys * len(values) + index, return_inverse=True)[1]
        order = np.argsort(keys, kind="stable")
        parts = np.split(order, np.flatnonzero(np.diff(keys[order])) + 1)
        return {self._key(names, columns, int(part[0])): part for part in parts}

    def _key(self, names: Sequence[str], columns: Sequence[Integers], row: int) -> Any:
        values = [
            self.words[name][int(column[row])] if name in self.words else int(column[row])
            for name, column in zip(names, columns, strict=True)
        ]
        return values[0] if len(values) == 1 else tuple(values)

    def split(self, *names: str) -> dict[Any, Integers]:
        """Group the payloads, as rows, by the value of a field, or by the values of several."""
        return {key: self._rows(chosen) for key, chosen in self.groups(*names).items()}

    def rows(self, size: int) -> Integers:
        """Return all payloads as rows (m, size); raise `MurkError` if one has another length."""
        if (self.numbers["payload"] != size).any():
            raise MurkError(f"the payload of a release does not have the expected {size} integers")
        return self.integers.reshape(len(self), size)

    def _rows(self, chosen: Integers | slice) -> Integers:
        sizes, ends = self.numbers["payload"][chosen], self._ends[chosen]
        if sizes.min() != sizes.max():
            raise MurkError("the payloads of some releases have different lengths")
        if len(sizes) == len(self):
            return self.integers.reshape(len(self), -1)
        rows: Integers = self.integers[(ends - sizes)[:, None] + np.arange(sizes[0])]
        return rows

    def part(self, start: int, stop: int) -> Columns:
        """Return the releases from one index to before another."""
        begin, end = (int(self._ends[at - 1]) if at else 0 for at in (start, stop))
        numbers = {name: column[start:stop] for name, column in self.numbers.items()}
        return Columns(numbers, self.words, self.integers[begin:end], self.kind, self.ids[start:stop])

    def select(self, places: Integers, signs: Integers) -> Columns:
        """Return the releases with selected entries of their payloads, reordered and with given signs."""
        rows = np.ascontiguousarray(self._rows(slice(None))[:, places] * signs)
        sizes = np.full(len(self), len(places), np.int64)
        return replace(self, numbers={**self.numbers, "payload": sizes}, integers=rows.ravel())

    @cached_property
    def _ends(self) -> Integers:
        ends: Integers = np.cumsum(self.numbers["payload"])
        return ends


def columns_of(releases: Any) -> Columns:
    """Return releases, decoded or read, as columns."""
    return releases if isinstance(releases, Columns) else Columns.of(releases)


def distinct(column: Integers) -> set[int]:
    """Return the distinct numbers of a column, of which there is usually one."""
    low, high = int(column.min()), int(column.max())
    return {low} if low == high else set(np.unique(column).tolist())


class Layout:
    """The compact form of the releases that some rules allow."""

    def __init__(self, rules: WireRules) -> None:
        self.rules = rules
        # Others are few and long: reading them is not the bottleneck.
        self._is_compact = not issubclass(KINDS[rules.kind], PackedRelease)
        model = KINDS[rules.kind].model_fields
        self.words: dict[str, tuple[str, ...]] = {"level": tuple(rules.magnitudes)}
        if "query" in model:
            self.words["query"] = get_args(model["query"].annotation)
        constants = {
            "schema": f"{SCHEMA_VERSION}",
            "kind": f'"{rules.kind}"',
            "task": f'"{rules.task_hash}"',
            "simulated": "true" if rules.simulated else "false",
        }
        literals, holes, text = [], [], "{"
        for name, about in model.items():
            text += f'"{about.alias or name}":'
            if (about.alias or name) in constants:
                text += constants[about.alias or name]
            else:
                opening, closing = (
                    '""' if name == "id" or name in self.words else "[]" if name == "payload" else ("", "")
                )
                literals.append((text + opening).encode())
                holes.append(name)
                text = closing
            text += ","
        literals.append((text[:-1] + "}").encode())
        self.places = {name: index for index, name in enumerate(holes)}
        kinds = {"id": _ID, "payload": _PAYLOAD} | dict.fromkeys(self.words, _WORD)
        words = [[word.encode() for word in self.words.get(name, ())] for name in holes]
        limits = [{"time": _LATEST, "expires": _LATEST, "item": MOST_ITEMS - 1}.get(name, LARGEST) for name in holes]
        literal, word = (Packed.of([b"", *texts]) for texts in (literals, [*chain.from_iterable(words)]))
        # Arguments of kernels: literal texts, each hole's kind and limit, all words, and the first word of each hole.
        self._program = (
            np.frombuffer(literal.data, np.uint8),
            literal.ends,
            np.array([kinds.get(name, _WHOLE) for name in holes]),
            np.array(limits),
            np.frombuffer(word.data, np.uint8),
            word.ends,
            np.cumsum([0, *map(len, words)]),
        )
        self._longest = sum(map(len, literals)) + sum(
            max(map(len, these), default=_MOST_DIGITS + 13) for these in words
        )

    def read(self, packed: Packed) -> Columns | None:
        """Return messages as columns; None if any has another form or may be invalid."""
        columns = self.read_first(packed)
        return columns if len(columns) == len(packed) else None

    def read_first(self, packed: Packed) -> Columns:
        """Return the messages before the first one that has another form; none if any may be invalid."""
        data, count = np.frombuffer(packed.data, np.uint8), len(packed)
        if not self._is_compact or (count and packed.sizes.max() > self.rules.max_bytes):
            count = 0
        ids, numbers = np.empty((count, 2), np.uint64), np.empty((len(self.places), count), np.int64)
        texts, integers = np.empty((count, 2), np.int64), np.empty(len(data) // 2 + 1, np.int64)
        count, size = scan(data, packed.ends[:count], self._program, ids, numbers, texts, integers)
        by_name = {name: numbers[index, :count] for name, index in self.places.items()}
        columns = Columns(by_name, self.words, integers[:size], self.rules.kind, ids[:count], texts[:count], packed)
        return columns if self._is_plain(columns) else columns.part(0, 0)

    def _is_plain(self, columns: Columns) -> bool:
        """Return whether partitions, lengths and magnitudes are within the rules."""
        rules = self.rules
        if not len(columns):
            return True
        if columns.column("partition").max() >= rules.partitions:
            return False
        if not distinct(columns.column("payload")) <= set(rules.lengths):
            return False
        if isinstance(rules.magnitudes, LazyLevels) or len(set(rules.magnitudes.values())) > 1:
            bounds = np.empty(len(columns), np.int64)
            for level, chosen in columns.groups("level").items():
                bounds[chosen] = min(rules.magnitudes[level], LARGEST)
            return bool((np.abs(columns.integers) <= np.repeat(bounds, columns.column("payload"))).all())
        [bound] = set(rules.magnitudes.values())
        return bool(-bound <= columns.integers.min() and columns.integers.max() <= bound)

    def write(
        self, records: Bytes, count: int, level: str, version: int, time: int, expires: int, last: Words
    ) -> list[tuple[int, Packed]]:
        """Return messages by partition, made from stored ``records`` (format: `merge`) of one level, version and time.

        A partition follows from a release's id, so it reveals nothing further about the release. ``last`` is the id of
        the record before these, and is set to the id of their last one. Raises `ValueError` if the records are damaged:
        `read` accepts every message that is returned.
        """
        if level not in self.words["level"] or not 0 <= version <= LARGEST:
            raise ValueError("a crowd has no such level or version")
        starts, partitions = np.empty(count, np.int64), np.empty(count, np.int64)
        if not locate(records, self.rules.partitions, last, starts, partitions):
            raise ValueError("a stored record is incomplete or out of order")
        given = {"level": self.words["level"].index(level), "version": version, "time": time, "expires": expires}
        checks = np.array(self.rules.lengths), min(self.rules.magnitudes[level], LARGEST)
        messages = []
        for own_partition in sorted(distinct(partitions)):
            fixed = np.array([(given | {"partition": own_partition}).get(name, -1) for name in self.places], np.int64)
            of_partition = starts[partitions == own_partition]
            out, ends = (
                np.empty(len(records) + len(of_partition) * self._longest, np.uint8),
                np.empty(len(of_partition), np.int64),
            )
            if not compose(records, of_partition, self._program, fixed, *checks, out, ends):
                raise ValueError("a learner would refuse a release")
            messages.append((own_partition, Packed(out[: ends[-1]].tobytes(), ends)))
        return messages


HEAD = 25  # bytes of a record before its payload: the length of the payload's text, the id, the query and its item
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_DIGITS = np.full(256, 255, np.uint8)  # the value of each hexadecimal digit
_DIGITS[_HEX] = np.arange(16)
_ZERO, _MINUS, _COMMA, _QUOTE = b'0-,"'


@jit_helper
def _integer(data: Array, at: Array, end: Array, limit: Array, signed: Array) -> Any:
    """Return the integer at an offset, at most ``limit`` in size, and the offset after it, which is -1 without one."""
    negative = signed and at < end and data[at] == _MINUS
    if negative:
        at += 1
    begin, value = at, np.uint64(0)
    # A longer number overflows, and is refused below.
    while at < end:
        digit = np.uint64(data[np.uint64(at)]) - np.uint64(_ZERO)
        if digit > np.uint64(9):
            break
        value = value * np.uint64(10) + digit
        at += 1
    digits = at - begin
    # Leading zeros and a negative zero are not canonical.
    if digits == 0 or digits > _MOST_DIGITS or (data[begin] == _ZERO and (digits > 1 or negative)):
        return np.int64(0), np.int64(-1)
    if value > np.uint64(limit):
        return np.int64(0), np.int64(-1)
    return -np.int64(value) if negative else np.int64(value), at


@deferred
def scan(data: Array, ends: Array, program: Any, ids: Array, numbers: Array, texts: Array, integers: Array) -> Any:  # noqa: C901
    """Fill columns from messages until one has another form; return the numbers of messages and integers read."""
    literals, literal_ends, kinds, limits, words, word_ends, word_places = program
    holes, integers_read, complete = len(kinds), 0, 0
    for m in range(len(ends)):
        at, end = ends[m - 1] if m else 0, ends[m]
        for hole in range(holes + 1):
            first, last = literal_ends[hole], literal_ends[hole + 1]
            if end - at < last - first:
                return m, complete
            different = np.uint8(0)
            for i in range(last - first):
                different |= data[np.uint64(at + i)] ^ literals[np.uint64(first + i)]
            if different:
                return m, complete
            at += last - first
            if hole == holes:
                break
            kind = kinds[hole]
            if kind == _ID:
                if end - at < 32:
                    return m, complete
                for half in range(2):
                    word = np.uint64(0)
                    for _ in range(16):
                        digit = _DIGITS[data[at]]
                        if digit > 15:
                            return m, complete
                        word = (word << np.uint64(4)) | np.uint64(digit)
                        at += 1
                    ids[m, half] = word
                numbers[hole, m] = 0
            elif kind == _WORD:
                start = at
                while at < end and data[at] != _QUOTE:
                    at += 1
                number = -1
                for index in range(word_places[hole], word_places[hole + 1]):
                    first, last = word_ends[index], word_ends[index + 1]
                    if last - first == at - start:
                        equal = True
                        for i in range(last - first):
                            equal &= words[first + i] == data[start + i]
                        if equal:
                            number = index - word_places[hole]
                if number < 0:
                    return m, complete
                numbers[hole, m] = number
            else:
                start, before = at, integers_read
                while True:
                    value, at = _integer(data, at, end, limits[hole], kind == _PAYLOAD)
                    if at < 0:
                        return m, complete
                    if kind == _WHOLE:
                        numbers[hole, m] = value
                        break
                    integers[integers_read] = value
                    integers_read += 1
                    if at < end and data[at] == _COMMA:
                        at += 1
                    else:
                        numbers[hole, m] = integers_read - before
                        texts[m, 0], texts[m, 1] = start, at
                        break
        if at != end:
            return m, complete
        complete = integers_read
    return len(ends), complete


@deferred
def _head(records: Array, at: Array) -> Any:
    """Return the id and the length of the record at an offset."""
    size, high, low = np.int64(0), np.uint64(0), np.uint64(0)
    for i in range(4):
        size = (size << 8) | np.int64(records[at + i])
    for i in range(8):
        high = (high << np.uint64(8)) | np.uint64(records[at + 4 + i])
        low = (low << np.uint64(8)) | np.uint64(records[at + 12 + i])
    return high, low, HEAD + size


@deferred
def merge(
    known: Array, given: Any, order: Array, shift: Array, first: Array, out: Array, ends: Array, counts: Array
) -> bool:
    """Merge new records (``given``) into ``known`` ones by id; fill in each part's end and its number of records.

    A record has the length of its payload's text (4 bytes, big-endian), its id (16), its query (1), the query's
    item (4, big-endian) and the text. A part has the records whose ids have the same highest bits; ``first`` is the
    number of the first part. ``given`` has the data, texts, ids, queries and items of the new records, which ``order``
    sorts. Returns whether the known records were complete, sorted, and belonged to these parts.
    """
    data, texts, ids, queries, items = given
    at = new = written = 0
    before_high, before_low, part = np.uint64(0), np.uint64(0), 0
    while at < len(known) or new < len(order):
        is_known = at < len(known)
        if is_known:
            if len(known) - at < HEAD:
                return False
            high, low, size = _head(known, at)
            if len(known) - at < size:
                return False
        if new < len(order):
            row = order[new]
            if not is_known or ids[row, 0] < high or (ids[row, 0] == high and ids[row, 1] < low):
                is_known, high, low = False, ids[row, 0], ids[row, 1]
        if high < before_high or (high == before_high and low < before_low):
            return False
        before_high, before_low = high, low
        # Two shifts, as one by 64 bits is undefined.
        bucket = np.int64((high >> np.uint64(1)) >> np.uint64(shift)) - first
        if not part <= bucket < len(ends):
            return False
        while part < bucket:
            ends[part] = written
            part += 1
        if is_known:
            out[written : written + size] = known[at : at + size]
            at += size
        else:
            start, text = texts[row, 0], texts[row, 1] - texts[row, 0]
            for i in range(4):
                out[written + i] = (text >> (8 * (3 - i))) & 255
            for i in range(8):
                out[written + 4 + i] = (high >> np.uint64(8 * (7 - i))) & np.uint64(255)
                out[written + 12 + i] = (low >> np.uint64(8 * (7 - i))) & np.uint64(255)
            out[written + 20] = queries[row]
            for i in range(4):
                out[written + 21 + i] = (items[row] >> (8 * (3 - i))) & 255
            out[written + HEAD : written + HEAD + text] = data[start : start + text]
            size = HEAD + text
            new += 1
        written += size
        counts[bucket] += 1
    while part < len(ends):
        ends[part] = written
        part += 1
    return True


@deferred
def locate(records: Array, count: Array, last: Array, starts: Array, partitions: Array) -> bool:
    """Fill in records' starts and partitions, and the last id; return whether records are complete and sorted by id."""
    at = 0
    for m in range(len(starts)):
        if len(records) - at < HEAD:
            return False
        high, low, size = _head(records, at)
        if high < last[0] or (high == last[0] and low < last[1]):
            return False
        last[0], last[1] = high, low
        starts[m], partitions[m] = at, np.int64(low % np.uint64(count))
        at += size
    return at == len(records)


@deferred
def compose(  # noqa: C901
    records: Array, starts: Array, program: Any, fixed: Array, lengths: Array, bound: Array, out: Array, ends: Array
) -> bool:
    """Write the messages of the records at ``starts``; numbers that are not ``fixed`` are read from each record.

    Returns False if a number has no word in the program, or a payload has another length or an integer beyond the
    bound.
    """
    literals, literal_ends, kinds, _, words, word_ends, word_places = program
    written = 0
    digits = np.empty(20, np.uint8)
    for m in range(len(starts)):
        at = starts[m]
        _, _, size = _head(records, at)
        for hole in range(len(kinds) + 1):
            first, last = literal_ends[hole], literal_ends[hole + 1]
            for i in range(first, last):
                out[written] = literals[i]
                written += 1
            if hole == len(kinds):
                break
            kind = kinds[hole]
            if kind == _ID:
                for i in range(16):
                    byte = records[at + 4 + i]
                    out[written], out[written + 1] = _HEX[byte >> 4], _HEX[byte & 15]
                    written += 2
            elif kind == _PAYLOAD:
                index, stop, count = at + HEAD, at + size, 0
                while index <= stop:
                    _, end = _integer(records, index, stop, bound, True)
                    if end < 0 or (end < stop and records[end] != _COMMA):
                        return False
                    index = end + 1
                    count += 1
                is_counted = False
                for length in lengths:
                    is_counted |= count == length
                if not is_counted:
                    return False
                for i in range(at + HEAD, stop):
                    out[written] = records[i]
                    written += 1
            elif kind == _WORD:
                index = word_places[hole] + (fixed[hole] if fixed[hole] >= 0 else np.int64(records[at + 20]))
                if index >= word_places[hole + 1]:
                    return False
                for i in range(word_ends[index], word_ends[index + 1]):
                    out[written] = words[i]
                    written += 1
            else:
                value, count = fixed[hole], 0
                if value < 0:
                    # The only count that differs within a crowd is the item.
                    value = 0
                    for i in range(4):
                        value = (value << 8) | np.int64(records[at + 21 + i])
                while value > 0 or count == 0:
                    digits[count] = _ZERO + value % 10
                    value //= 10
                    count += 1
                for i in range(count):
                    out[written] = digits[count - 1 - i]
                    written += 1
        ends[m] = written
    return True
