"""The files of an archive: a folder, or the prefix of a bucket (``s3://``, ``gs://``), with one folder a partition.

``partition=P/BEGIN-END.parquet`` holds the messages of the offsets from BEGIN to before END, in columns that Spark's
source of Kafka topics also has: partition, offset, timestamp and value; and in the column copy, whether a message
repeats an unexpired release. A file ends at a multiple of `ROWS`, or where its messages reach `BYTES`, so it depends on
the log alone. The last file of a partition may be shorter, and is replaced
by longer ones. Until the shorter file is deleted, the longest of the files with the same first offset counts.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from murk._internal.arrays import Integers
from murk._internal.atomic_files import write_whole
from murk._internal.extras import missing_extra
from murk.errors import MurkError, UserError
from murk.stream.wire.packed import Fetched, Packed

_ERROR_CODE = "MURK-ARCHIVE-001"
OTHER: Final = "MURK-ARCHIVE-002"  # code of the error for an archive of another log or task

FORMAT: Final = 1
ROWS: Final = 2**18  # largest number of offsets in a file
BYTES: Final = 2**27  # number of bytes of messages at which a file ends earlier
TASK, MODELS = "_task.json", "_models.json"
_WHOLE_ROWS: Final = 2**16  # rows of a Parquet row group, which a reader holds in memory
_NAME = re.compile(r"(\d{19})-(\d{19})\.parquet")


class Extent(NamedTuple):
    """The offsets of a file: those from ``begin`` to before ``end``."""

    begin: int
    end: int

    def name(self, partition: int) -> str:
        """Return the file's name in the archive."""
        return f"partition={partition}/{self.begin:019}-{self.end:019}.parquet"


@dataclass(frozen=True, slots=True)
class Archived:
    """Messages of a file; ``copies`` are the offsets of those that repeat an unexpired release, in order."""

    messages: Fetched
    copies: Integers


class Folder(ABC):
    """A path of files that are written whole or not at all."""

    url: str

    @abstractmethod
    def names(self, folder: str) -> list[str]:
        """Return the names of the files of a folder, without the folder."""

    @abstractmethod
    def read(self, name: str) -> bytes | None:
        """Return a file's content; None if there is no such file."""

    @abstractmethod
    def write(self, name: str, data: bytes) -> None:
        """Write a file atomically and durably, or replace it."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Delete a file, if it exists."""

    @abstractmethod
    def size(self, name: str) -> int:
        """Return the number of bytes of a file."""

    def sweep(self, folder: str) -> None:  # noqa: B027 - optional
        """Delete the partly written files that a killed process has left in a folder."""


class LocalFolder(Folder):
    """A directory of a file system; other users of the machine cannot read what it holds."""

    def __init__(self, path: str) -> None:
        self.url, self._path = path, Path(path)

    def names(self, folder: str) -> list[str]:
        path = self._path / folder
        return [each.name for each in path.iterdir()] if path.is_dir() else []

    def read(self, name: str) -> bytes | None:
        try:
            return (self._path / name).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, name: str, data: bytes) -> None:
        path = self._path / name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(path, data, own=True, mode=0o600)

    def delete(self, name: str) -> None:
        (self._path / name).unlink(missing_ok=True)

    def size(self, name: str) -> int:
        return (self._path / name).stat().st_size

    def sweep(self, folder: str) -> None:
        for draft in (self._path / folder).glob(".murk-*.new"):
            draft.unlink(missing_ok=True)


class Bucket(Folder):
    """A prefix of a bucket, or any file system of ``pyarrow.fs``, where a file appears when its upload ends."""

    def __init__(self, url: str, system: Any, root: str) -> None:
        self.url, self._system, self._root = url, system, root.rstrip("/")

    def names(self, folder: str) -> list[str]:
        from pyarrow.fs import FileSelector

        selector = FileSelector(f"{self._root}/{folder}", allow_not_found=True)
        return [each.base_name for each in self._system.get_file_info(selector) if each.is_file]

    def read(self, name: str) -> bytes | None:
        try:
            with self._system.open_input_stream(f"{self._root}/{name}") as file:
                data: bytes = file.read()
        except FileNotFoundError:
            return None
        return data

    def write(self, name: str, data: bytes) -> None:
        # A bucket has no folders, and ignores this call.
        self._system.create_dir(f"{self._root}/{name}".rpartition("/")[0], recursive=True)
        with self._system.open_output_stream(f"{self._root}/{name}") as file:
            file.write(data)

    def delete(self, name: str) -> None:
        if self._system.get_file_info(f"{self._root}/{name}").is_file:
            self._system.delete_file(f"{self._root}/{name}")

    def size(self, name: str) -> int:
        return int(self._system.get_file_info(f"{self._root}/{name}").size)


def folder_of(path: str) -> Folder:
    """Return the folder at a path or a URL (``s3://BUCKET/PREFIX``, ``gs://BUCKET/PREFIX``).

    Credentials are those of ``pyarrow.fs``, from the environment. Raises UserError for another scheme, and without
    pyarrow.
    """
    check_pyarrow()
    scheme, separator, _ = path.partition("://")
    if not separator:
        return LocalFolder(path)
    if scheme not in ("s3", "gs"):
        raise UserError(f"unknown kind of archive {scheme!r}: write a path, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX")
    from pyarrow.fs import FileSystem

    try:
        system, root = FileSystem.from_uri(path)
    except (OSError, ValueError) as error:
        # The error's text quotes the URL, which may hold a password.
        why = type(error).__name__
        raise UserError(f"the archive's URL {shown_url(path)} is invalid or cannot be reached ({why})") from None
    return Bucket(shown_url(path), system, root)


def shown_url(path: str) -> str:
    """Return a path or URL as pages and logs may show it: without a user, a password and settings."""
    scheme, separator, rest = path.partition("://")
    if not separator:
        return path
    return f"{scheme}://{rest.rpartition('@')[2].partition('?')[0]}"


def check_pyarrow() -> None:
    """Raise `UserError` if pyarrow is missing."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ModuleNotFoundError as error:
        raise missing_extra("an archive needs the package pyarrow", "frames") from error


@dataclass(frozen=True, slots=True)
class Manifest:
    """The file ``_task.json``: which log and task an archive holds, and where its files end."""

    identity: str
    task: str
    document: str
    rows: int
    size: int  # number of bytes of messages at which a file ends earlier
    partitions: int  # the log's number of partitions when the archive was begun

    def encode(self) -> bytes:
        """Return the file's content."""
        content: dict[str, object] = {
            "format": FORMAT,
            "identity": self.identity,
            "task": self.task,
            "document": self.document,
        }
        content |= {"rows": self.rows, "bytes": self.size, "partitions": self.partitions}
        return _checked(content, indent=1)

    @classmethod
    def read(cls, folder: Folder) -> Manifest | None:
        """Return an archive's manifest; None if there is no archive. Raises MurkError if it is damaged."""
        data = folder.read(TASK)
        if data is None:
            return None
        try:
            if json.loads(data)["format"] != FORMAT:
                raise MurkError(f"{folder.url} was written by another version of Murk: use that version", code=OTHER)
            content = _whole(data)
            identity, task, document = (str(content[name]) for name in ("identity", "task", "document"))
            rows, size, partitions = (int(content[name]) for name in ("rows", "bytes", "partitions"))
            return cls(identity, task, document, rows, size, partitions)
        except (ValueError, KeyError, TypeError) as error:
            raise damaged(folder, TASK, f"{type(error).__name__}") from error


def damaged(folder: Folder, name: str, reason: str) -> MurkError:
    """Return the error for a damaged file of an archive."""
    return MurkError(
        f"{name} of the archive {folder.url} is damaged ({reason}): restore it from a copy, or, while the log still "
        "has these messages, delete it and run `murk archive` again",
        code=_ERROR_CODE,
    )


def extents(folder: Folder, partition: int) -> list[Extent]:
    """Return the offsets of a partition's files in order; raise `MurkError` if they leave a gap or overlap."""
    longest: dict[int, int] = {}
    for name in folder.names(f"partition={partition}"):
        if (matched := _NAME.fullmatch(name)) is not None:
            begin, end = int(matched[1]), int(matched[2])
            longest[begin] = max(end, longest.get(begin, end))
    ordered = [Extent(begin, longest[begin]) for begin in sorted(longest)]
    for before, after in pairwise(ordered):
        if before.end != after.begin:
            what = "lacks" if before.end < after.begin else "has twice"
            first, last = sorted((before.end, after.begin))
            raise MurkError(
                f"the archive {folder.url} {what} the offsets {first} to {last - 1} of partition {partition}: restore "
                "its files from a copy",
                code=_ERROR_CODE,
            )
    return ordered


def shorter(folder: Folder, partition: int, extent: Extent) -> list[str]:
    """Return the names of files that a longer one has replaced."""
    begin = f"{extent.begin:019}-"
    names = [name for name in folder.names(f"partition={partition}") if name.startswith(begin)]
    return [
        f"partition={partition}/{name}" for name in names if f"partition={partition}/{name}" != extent.name(partition)
    ]


def encode(partition: int, parts: Sequence[Archived], manifest: Manifest) -> bytes:
    """Return the content of a file: the same bytes for the same messages."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    copies: Integers = np.concatenate([np.zeros(0, np.int64), *(part.copies for part in parts)])
    pages = [Fetched.empty(), *(part.messages for part in parts)]
    offsets = np.concatenate([page.offsets for page in pages]).astype(np.int64)
    times = np.concatenate([page.times for page in pages]).astype(np.int64)
    values = b"".join(page.messages.data for page in pages)
    sizes = np.concatenate([page.messages.sizes for page in pages]).astype(np.int64)
    places = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    table = pa.table(
        {
            "partition": pa.array(np.full(len(offsets), partition, np.int32)),
            "offset": pa.array(offsets),
            "timestamp": pa.array(times * 1000).cast(pa.timestamp("ms", tz="UTC")),
            "value": pa.Array.from_buffers(
                pa.binary(), len(offsets), [None, pa.py_buffer(places.tobytes()), pa.py_buffer(values)]
            ),
            "copy": pa.array(np.isin(offsets, copies, assume_unique=True)),
        },
        metadata={
            "murk.identity": manifest.identity,
            "murk.task": manifest.task,
            "murk.check": _check(offsets, times, sizes, values, copies),
        },
    )
    sink = pa.BufferOutputStream()
    dictionaries = ["partition", "timestamp"]
    pq.write_table(
        table,
        sink,
        compression="zstd",
        row_group_size=_WHOLE_ROWS,
        use_dictionary=dictionaries,
        write_statistics=[*dictionaries, "offset"],
    )
    data: bytes = sink.getvalue().to_pybytes()
    return data


def decode(folder: Folder, partition: int, extent: Extent, manifest: Manifest) -> Archived:
    """Return the messages of a file; raise `MurkError` if it is missing, damaged or another log's.

    If a longer file has replaced it, its messages are read from that one.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    name = extent.name(partition)
    data = folder.read(name)
    if data is None:
        for longer in extents(folder, partition):
            if longer.begin == extent.begin and longer.end > extent.end:
                whole = decode(folder, partition, longer, manifest)
                count = int(np.searchsorted(whole.messages.offsets, extent.end))
                return Archived(whole.messages.rows(0, count), whole.copies[whole.copies < extent.end])
        raise damaged(folder, name, "it is missing")
    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        stored = file.schema_arrow.metadata or {}
        if (stored.get(b"murk.identity"), stored.get(b"murk.task")) != (
            manifest.identity.encode(),
            manifest.task.encode(),
        ):
            raise MurkError(f"{name} of the archive {folder.url} is of another log: remove it", code=OTHER)
        table = file.read(use_threads=False)
        offsets = table["offset"].to_numpy().astype(np.int64)
        times = table["timestamp"].cast(pa.int64()).to_numpy() // 1000
        partitions = table["partition"].to_numpy()
        copies = offsets[table["copy"].to_numpy().astype(np.bool_)]
        packed = _packed(table["value"])
    except (pa.ArrowException, KeyError, OSError, ValueError) as error:
        raise damaged(folder, name, type(error).__name__) from error
    if stored.get(b"murk.check", b"").decode("latin-1") != _check(offsets, times, packed.sizes, packed.data, copies):
        raise damaged(folder, name, "its messages do not fit their checksum")
    inside = len(offsets) == 0 or (extent.begin <= offsets[0] and offsets[-1] < extent.end)
    if not inside or np.any(np.diff(offsets) <= 0) or np.any(partitions != partition):
        raise damaged(folder, name, "its offsets are not those of its name")
    return Archived(Fetched(offsets, times, packed), copies)


def _packed(column: Any) -> Packed:
    """Return a column's messages as one piece."""
    data, sizes = [], []
    for chunk in column.chunks:
        places = np.frombuffer(chunk.buffers()[1], np.int32)[chunk.offset : chunk.offset + len(chunk) + 1]
        if len(chunk):
            data.append(bytes(memoryview(chunk.buffers()[2] or b"")[places[0] : places[-1]]))
            sizes.append(np.diff(places).astype(np.int64))
    ends: Integers = np.cumsum(np.concatenate(sizes)) if sizes else np.zeros(0, np.int64)
    return Packed(b"".join(data), ends)


def add_models(folder: Folder, shared: Mapping[str, Any]) -> None:
    """Add published models, by version, to an archive's file of models; its other content is replaced."""
    stored = read_models(folder) or {}
    models = {**shared["models"], **stored.get("models", {})}
    data = _checked({**shared, "models": models}, sort_keys=True)
    if data != folder.read(MODELS):
        folder.write(MODELS, data)


def read_models(folder: Folder) -> dict[str, Any] | None:
    """Return the models that `add_models` wrote; None if it wrote none."""
    data = folder.read(MODELS)
    if data is None:
        return None
    try:
        content = _whole(data)
        if not isinstance(content["models"], dict):
            raise TypeError
    except (ValueError, KeyError, TypeError) as error:
        raise damaged(folder, MODELS, type(error).__name__) from error
    return content


def _check(*parts: Integers | bytes) -> str:
    """Return the checksum of a file's content."""
    digest = blake2b(digest_size=16)
    for part in parts:
        digest.update(part if isinstance(part, bytes) else part.tobytes())
    return digest.hexdigest()


def _checked(content: Mapping[str, Any], **options: Any) -> bytes:
    """Return a JSON file with its checksum."""
    return json.dumps({**content, "check": _check_of(content)}, **options).encode()


def _whole(data: bytes) -> dict[str, Any]:
    """Return the content of a JSON file; raise `ValueError` if it does not fit its checksum."""
    content = json.loads(data)
    if not isinstance(content, dict) or content.pop("check", None) != _check_of(content):
        raise ValueError
    return content


def _check_of(content: Mapping[str, Any]) -> str:
    return _check(json.dumps(content, sort_keys=True).encode())
