"""Archives: exactly once whatever kills the archiver, the same bytes for the same log, refusals of damage."""

import itertools
import json
import re
from pathlib import Path

import numpy as np
import pytest
from pyarrow import parquet
from pyarrow.fs import LocalFileSystem

from murk import Task
from murk.errors import MurkError, UserError
from murk.protocols.device import device_for
from murk.stream.archive import files
from murk.stream.archive.archiver import Archiver
from murk.stream.archive.files import Bucket, Extent, LocalFolder, extents, folder_of, shown_url
from murk.stream.archive.reader import ArchiveLog
from murk.stream.log.sqlite import SqliteLog
from tests.stream.harness import restate

_TASK = """
name: visits
features: [{name: age, low: 0, high: 1}]
target: {name: ill, kind: binary, positive: "yes", negative: "no"}
protocol: moments
log: {partitions: 2}
privacy: {guarantee: {gdp: {mu: 3.0}}}
"""
TASK = Task.parse(_TASK)
DAY = 86_400
START = 20_000 * DAY


class Clock:
    def __init__(self):
        self.now = float(START + 1_234)

    def __call__(self):
        return self.now


def message(number, *, time=START, expires=START + 7 * DAY, padding=0):
    return json.dumps({"id": f"{number:032x}", "time": time, "expires": expires, "padding": "x" * padding}).encode()


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def log(tmp_path, clock):
    with SqliteLog(tmp_path / "log.db", clock=clock) as made:
        made.register_task(TASK.document())
        yield made


def fill(log, count, start=0):
    log.append([(number % 2, message(number)) for number in range(start, start + count)])


def finish(archiver, log):
    while not archiver.has_archived(log.ends()):
        archiver.step()
    archiver.flush()


def copied(log, place, **more):
    archiver = Archiver(log, TASK, LocalFolder(str(place)), device_for(TASK).engine(), **{"rows": 10, **more})
    finish(archiver, log)
    return archiver


def content(place):
    return {str(path.relative_to(place)): path.read_bytes() for path in Path(place).rglob("*") if path.is_file()}


def values(place, partition):
    with ArchiveLog(LocalFolder(str(place))) as log:
        return [(each.offset, each.value) for each in log.messages(partition, log.begin(partition), log.end(partition))]


def test_an_archive_has_every_message_once_and_in_order(tmp_path, log):
    fill(log, 57)
    archiver = copied(log, tmp_path / "archive")
    assert archiver.archived == 57
    for partition in (0, 1):
        expected = [(each.offset, each.value) for each in log.read(partition, 0, 100)]
        assert values(tmp_path / "archive", partition) == expected
    found = extents(LocalFolder(str(tmp_path / "archive")), 0)
    assert found == [Extent(0, 10), Extent(10, 20), Extent(20, 29)]
    assert {each.lag for each in archiver.measure().values()} == {0}
    assert (tmp_path / "archive" / files.TASK).stat().st_mode & 0o077 == 0


def test_threads_may_read_one_archive_at_once(tmp_path, log):
    """Between any two uses of the decoded files, other threads read all files."""
    fill(log, 80)
    copied(log, tmp_path / "archive")
    archive = ArchiveLog(LocalFolder(str(tmp_path / "archive")))
    others = [archive.fetch(partition, offset, 1) for partition in (0, 1) for offset in (0, 10, 20, 30)]

    class Shared(dict):
        busy = False

        def __setitem__(self, key, value):
            super().__setitem__(key, value)
            if not self.busy:
                self.busy = True
                for partition, offset in itertools.product((0, 1), (0, 10, 20, 30)):
                    archive.fetch(partition, offset, 1)
                self.busy = False

    archive._files = Shared()
    for (partition, offset), other in zip(itertools.product((0, 1), (0, 10, 20, 30)), others, strict=True):
        assert archive.fetch(partition, offset, 1).messages.data == other.messages.data
    assert len(archive._files) <= 2


class Killed(Exception):
    """A kill at one of the archiver's writes."""


class Fragile(LocalFolder):
    """A folder at whose operation number ``at``, before or after it is done, the process is killed."""

    def __init__(self, path, at, after):
        super().__init__(path)
        self._count, self._at, self._after = itertools.count(), at, after

    def _maybe(self, function, *arguments):
        number = next(self._count)
        if number == self._at and not self._after:
            raise Killed
        function(*arguments)
        if number == self._at:
            raise Killed

    def write(self, name, data):
        self._maybe(super().write, name, data)

    def delete(self, name):
        self._maybe(super().delete, name)


def test_a_kill_at_any_write_leaves_identical_files(tmp_path, clock):
    """Before and after every write and deletion, of an archive from the beginning and of one with begun files."""
    with SqliteLog(tmp_path / "log.db", clock=clock) as log:
        log.register_task(TASK.document())
        fill(log, 60)
        copied(log, tmp_path / "whole")
        expected = content(tmp_path / "whole")
        kills = 0
        for begun, at, after in itertools.product((False, True), range(12), (False, True)):
            place = tmp_path / f"{begun}-{at}-{after}"
            if begun:
                part = Archiver(log, TASK, LocalFolder(str(place)), device_for(TASK).engine(), rows=10)
                part._log = _Shorter(log, 25)
                finish(part, part._log)
            try:
                finish(Archiver(log, TASK, Fragile(str(place), at, after), device_for(TASK).engine(), rows=10), log)
            except Killed:
                kills += 1
            finish(Archiver(log, TASK, LocalFolder(str(place)), device_for(TASK).engine(), rows=10), log)
            assert content(place) == expected, (begun, at, after)
        # The manifest and three files of each partition; or the last file and the shorter one that it replaces.
        assert kills == 2 * (7 + 4)


class _Shorter:
    """A log as it was when partitions ended at an offset."""

    def __init__(self, log, end):
        self._log, self._end = log, end

    def __getattr__(self, name):
        return getattr(self._log, name)

    def ends(self):
        return [self._end] * 2

    def fetch(self, partition, offset, limit):
        return self._log.fetch(partition, offset, min(limit, self._end - offset))


def test_drafts_of_a_killed_archiver_are_deleted(tmp_path, log):
    fill(log, 25)
    copied(log, tmp_path / "archive")
    expected = content(tmp_path / "archive")
    for folder in ("", "partition=0"):
        (tmp_path / "archive" / folder / ".murk-0123456789abcdef.new").write_bytes(b"half of a file")
    copied(log, tmp_path / "archive")
    assert content(tmp_path / "archive") == expected


def test_a_begun_file_is_continued_after_retention_has_removed_its_messages(tmp_path, log, clock):
    fill(log, 25)
    copied(log, tmp_path / "archive")
    with log._database.write() as connection:
        connection.execute("DELETE FROM batches")
        connection.execute('UPDATE streams SET begin = "end"')
        restate(connection)
    fill(log, 30, 25)
    copied(log, tmp_path / "archive")
    assert [offset for offset, _ in values(tmp_path / "archive", 0)] == [*range(log.end(0))]


def test_removed_messages_are_refused(tmp_path, log):
    fill(log, 25)
    copied(log, tmp_path / "archive")
    fill(log, 25, 25)
    with log._database.write() as connection:
        connection.execute("DELETE FROM batches")
        connection.execute('UPDATE streams SET begin = "end"')
        restate(connection)
    with pytest.raises(MurkError, match=r"ends at offset 13 of partition 0, .* retention has removed") as raised:
        copied(log, tmp_path / "archive")
    assert raised.value.code == "MURK-LOG-007"


def test_removed_messages_of_an_added_partition_are_refused(tmp_path, log):
    """Also if the first archiver that knows of the partition was killed before it read any."""
    fill(log, 25)
    copied(log, tmp_path / "archive")
    grown = Task.parse(_TASK.replace("partitions: 2", "partitions: 3"))
    log.register_task(grown.document())
    log.append([(2, message(number)) for number in range(100, 110)])
    with log._database.write() as connection:
        connection.execute("DELETE FROM batches WHERE partition = 2")
        connection.execute('UPDATE streams SET begin = "end" WHERE partition = 2')
        restate(connection)
    fill(log, 2, 25)
    log.append([(2, message(110))])
    for _ in range(2):
        archiver = Archiver(log, grown, LocalFolder(str(tmp_path / "archive")), device_for(grown).engine())
        with pytest.raises(MurkError, match=r"ends at offset 0 of partition 2, .* retention has removed") as raised:
            finish(archiver, log)
        assert raised.value.code == "MURK-LOG-007"
    # A new archive begins where the log does.
    finish(Archiver(log, grown, LocalFolder(str(tmp_path / "other")), device_for(grown).engine()), log)
    assert [offset for offset, _ in values(tmp_path / "other", 2)] == [10]


def test_an_added_partition_is_archived_from_its_first_message(tmp_path, log):
    fill(log, 25)
    copied(log, tmp_path / "archive")
    grown = Task.parse(_TASK.replace("partitions: 2", "partitions: 3"))
    log.register_task(grown.document())
    log.append([(2, message(number)) for number in range(100, 110)])
    finish(Archiver(log, grown, LocalFolder(str(tmp_path / "archive")), device_for(grown).engine()), log)
    assert [offset for offset, _ in values(tmp_path / "archive", 2)] == [*range(10)]


def test_no_flipped_bit_alters_an_archive(tmp_path, log):
    """Of a file's messages, or of the manifest: it is damage, or changes nothing that is read."""
    fill(log, 25)
    copied(log, tmp_path / "archive")
    expected, refusals = values(tmp_path / "archive", 0), 0
    for name in (Extent(0, 10).name(0), "_task.json"):
        path = tmp_path / "archive" / name
        whole = path.read_bytes()
        for at in range(0, len(whole), 3):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
            try:
                assert values(tmp_path / "archive", 0) == expected
            except (MurkError, UserError) as error:
                assert re.search("is damaged|of another log|another version", str(error))  # noqa: PT017
                refusals += 1
        path.write_bytes(whole)
    assert refusals > 100


@pytest.mark.parametrize("damage", [b"", b"1", b'"text"', b"[]", b"{}"])
def test_a_damaged_file_of_models_is_said_to_be_one(tmp_path, damage):
    folder = LocalFolder(str(tmp_path))
    files.add_models(folder, {"models": {}})
    assert files.read_models(folder) == {"models": {}}
    folder.write(files.MODELS, damage)
    with pytest.raises(MurkError, match=f"{files.MODELS} of the archive .* is damaged"):
        files.read_models(folder)


def test_another_logs_archive_is_refused(tmp_path, log, clock):
    fill(log, 25)
    copied(log, tmp_path / "archive")
    with SqliteLog(tmp_path / "other.db", clock=clock) as other:
        other.register_task(TASK.document())
        with pytest.raises(UserError, match="archive of another log or task"):
            copied(other, tmp_path / "archive")
        fill(other, 25)
        copied(other, tmp_path / "second")
    name = Extent(0, 10).name(0)
    (tmp_path / "archive" / name).write_bytes((tmp_path / "second" / name).read_bytes())
    with pytest.raises(MurkError, match="is of another log"):
        values(tmp_path / "archive", 0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda path: path.unlink(), "lacks the offsets 10 to 19 of partition 0"),
        (lambda path: path.write_bytes(path.read_bytes()[:-9]), "is damaged"),
        (lambda path: path.rename(path.with_name(f"{8:019}-{20:019}.parquet")), "has twice the offsets 8 to 9"),
        (lambda path: path.write_bytes(path.with_name(f"{0:019}-{10:019}.parquet").read_bytes()), "not those of its"),
    ],
)
def test_an_archive_that_is_not_whole_is_refused(tmp_path, log, change, words):
    fill(log, 60)
    copied(log, tmp_path / "archive")
    change(tmp_path / "archive" / Extent(10, 20).name(0))
    with pytest.raises(MurkError, match=words):
        values(tmp_path / "archive", 0)
    with pytest.raises(UserError, match="only `murk archive` writes"):
        ArchiveLog(LocalFolder(str(tmp_path / "archive"))).append([(0, b"")])


def test_a_file_ends_where_its_messages_are_many_bytes(tmp_path, log):
    log.append([(0, message(number, padding=400)) for number in range(9)])
    copied(log, tmp_path / "archive", size=1_000)
    assert [each.end for each in extents(LocalFolder(str(tmp_path / "archive")), 0)] == [2, 4, 6, 8, 9]
    log.append([(0, message(number, padding=400)) for number in range(9, 12)])
    copied(log, tmp_path / "archive", size=1_000)
    assert [each.end for each in extents(LocalFolder(str(tmp_path / "archive")), 0)] == [2, 4, 6, 8, 10, 12]


def test_times_are_truncated_where_expiry_is_judged_alike(tmp_path, log, clock):
    log.append(
        [
            (0, message(1)),
            (0, message(2, expires=START + 600)),  # it came after its expiry, and on the same day
            (0, message(3, expires=START + 2_000)),
            (0, b"not a release"),
            (0, message(4).replace(b'"expires"', b'"\\u0065xpires"')),
        ]
    )
    copied(log, tmp_path / "archive")
    with ArchiveLog(LocalFolder(str(tmp_path / "archive"))) as archive:
        times = [each.time - START for each in archive.read(0, 0, 10)]
    # What no device sends keeps its time, as it may be read otherwise.
    assert times == [0, 1_234, 0, 1_234, 1_234]


def test_a_bucket_has_the_same_files(tmp_path, log):
    fill(log, 57)
    copied(log, tmp_path / "archive")
    bucket = Bucket("s3://bucket/prefix", LocalFileSystem(), str(tmp_path / "bucket"))
    finish(Archiver(log, TASK, bucket, device_for(TASK).engine(), rows=10), log)
    assert content(tmp_path / "bucket") == content(tmp_path / "archive")
    assert extents(bucket, 1) == extents(LocalFolder(str(tmp_path / "archive")), 1)
    with ArchiveLog(bucket) as archive:
        assert [each.offset for each in archive.read(0, 25, 10)] == [25, 26, 27, 28]


def test_other_engines_read_the_columns_of_kafkas_source(tmp_path, log):
    fill(log, 20)
    copied(log, tmp_path / "archive")
    table = parquet.read_table(tmp_path / "archive" / Extent(0, 10).name(0), partitioning=None)
    assert table.column_names == ["partition", "offset", "timestamp", "value", "copy"]
    assert table["value"].to_pylist() == [each.value for each in log.read(0, 0, 10)]
    assert np.array_equal(table["offset"].to_numpy(), np.arange(10))


def test_paths_of_other_schemes_are_refused():
    with pytest.raises(UserError, match="unknown kind of archive 'ftp'"):
        folder_of("ftp://host/path")


def test_pages_and_logs_show_no_credentials() -> None:
    assert shown_url("s3://KEY:SECRET@bucket/pre?secret_key=x") == "s3://bucket/pre"
    assert shown_url("s3://KEY:SEC/RET@bucket/pre") == "s3://bucket/pre"
    assert shown_url("gs://bucket/pre/fix") == "gs://bucket/pre/fix"
    assert shown_url("a@folder/pre?x") == "a@folder/pre?x"


def test_a_reader_goes_on_when_a_longer_file_replaces_the_one_it_has_listed(tmp_path, log):
    """As when a model is fitted while `murk archive --follow` is at work."""
    fill(log, 8)
    copied(log, tmp_path / "archive")
    with ArchiveLog(LocalFolder(str(tmp_path / "archive"))) as reading:
        assert [reading.end(partition) for partition in (0, 1)] == [4, 4]
        fill(log, 6, start=8)
        copied(log, tmp_path / "archive")
        assert not (tmp_path / "archive" / Extent(0, 4).name(0)).exists()
        assert [each.offset for each in reading.read(0, 0, 100)] == [0, 1, 2, 3]
        assert len(reading.copies(0, 3)) == 0
        # A file that nothing has replaced is still missed.
        (tmp_path / "archive" / Extent(0, 7).name(1)).unlink()
        with pytest.raises(MurkError, match="it is missing"):
            reading.read(1, 0, 100)
