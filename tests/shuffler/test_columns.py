"""Columns hold what `decode` reads, and nothing that it refuses; crowds in parts have no order of arrival."""

import contextlib
import json
import random
import shutil
import sqlite3

import numpy as np
import pytest

from murk.errors import UserError
from murk.shuffler.store import Store
from murk.stream.wire.admission import wire_rules
from murk.stream.wire.codec import RejectedError, decode, encode
from murk.stream.wire.columns import Layout
from murk.stream.wire.duplicates import DuplicateWindow, Unexpired, key_of
from murk.stream.wire.packed import Packed
from tests.shuffler.crowds import CROWD, NOW, drain, logs, make_task, message, numbers, shuffler, spoilt
from tests.stream.harness import fields_of, learner_for


def layout_of(task):
    return Layout(wire_rules(task, learner_for(task).admission))


def read(layout, *values):
    return layout.read(Packed.of(values))


def honest(task, count=40):
    found = []
    for i in range(count):
        more = {"version": 3000 * (i % 3), "payload": [(-1) ** i * i * 37, i], "query": "score", "item": i}
        found.append(message(task, i, level=("default", "open")[i % 2], partition=i % 2, **more))
    return found


def test_columns_hold_what_decode_reads():
    task = make_task(partitions=2)
    layout, sent = layout_of(task), honest(task)
    columns = read(layout, *sent)
    for found, value in zip(fields_of(columns), sent, strict=True):
        release = decode(value, layout.rules)
        assert found == {name: getattr(release, name) for name in found}
    groups = columns.split("level", "version")
    assert sorted(groups) == [(level, version) for level in ("default", "open") for version in (0, 3000, 6000)]
    chosen = [each["payload"] for each in fields_of(columns) if (each["level"], each["version"]) == ("open", 3000)]
    assert groups["open", 3000].tolist() == chosen
    one_shot = make_task(protocol="examples")
    value = (
        b'{"schema":1,"kind":"example","id":"%b","task":"%b","level":"default","partition":0,"payload":[%b],"time":0,'
    )
    value += b'"expires":9,"simulated":false}'
    layout = layout_of(one_shot)
    payload = [1] * layout.rules.lengths[0]
    value %= b"0a" * 16, one_shot.hash.encode(), b",".join(b"%d" % each for each in payload)
    assert encode(decode(value, layout.rules)) == value
    assert fields_of(read(layout, value))[0]["payload"] == payload


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"[-37,1]", b"[-037,1]"), (b"[-37,1]", b"[-37,-0]"), (b"[-37,1]", b"[-37, 1]"),
        (b"[-37,1]", b"[]"), (b"[-37,1]", b"[-37,1,]"), (b"[-37,1]", b"[-37,1,2,3]"), (b"[-37,1]", b"[+37,1]"),
        (b"[-37,1]", b"[-37,%d]" % 2**62), (b"[-37,1]", b"[-37,%d]" % 2**64), (b"[-37,1]", b"[-37,%d1]" % 2**64),
        (b"[-37,1]", b"[-37,1e0]"), (b'"time":', b'"time":-'), (b'"expires":', b'"expires":9999999999'),
        (b'"open"', b'"op"'), (b'"open"', b'"open2"'), (b'"open"', b'""'), (b'"partition":1', b'"partition":2'),
        (b':"score","item"', b':"curve","item"'), (b'"item":1}', b'"item":1} '), (b'"item":1}', b'"item":1'),
        (b'"item":1}', b'"item":1,"x":1}'), (b'"item":1}', b'"item":%d}' % 2**31),
        (b'"item":1}', b'"item":-1}'),
        (b"false", b"true"), (b'"schema":1', b'"schema":2'),
    ],
)  # fmt: skip
def test_other_forms_and_invalid_messages_are_left_to_decode(old, new):
    task = make_task(partitions=2)
    layout, value = layout_of(task), honest(task)[1]
    assert value.count(old) == 1
    assert read(layout, value) is not None
    assert read(layout, value.replace(old, new)) is None
    # Nor is it accepted between others.
    assert read(layout, value, value.replace(old, new), value) is None


def test_no_mutant_is_read_that_decode_refuses():
    """A few bytes are replaced, removed, repeated or taken from another message."""
    task, rng, read_too = make_task(partitions=2), random.Random(4), 0
    layout, sent = layout_of(task), honest(task)
    for _ in range(6_000):
        value, other = bytearray(rng.choice(sent)), rng.choice(sent)
        at, length = rng.randrange(len(value)), rng.randrange(4)
        value[at : at + rng.randrange(3)] = rng.choice(
            [b"", rng.randbytes(1), b"%d" % rng.randrange(100), other[at : at + length], b"-", b","]
        )
        columns = read(layout, bytes(value))
        if columns is not None:
            read_too += 1
            release = decode(bytes(value), layout.rules)
            assert fields_of(columns) == [{name: getattr(release, name) for name in fields_of(columns)[0]}]
            assert encode(release) == value
    # Most mutants of digits are valid.
    assert 200 < read_too < 3_000


def test_the_reader_finds_its_own_mistakes(monkeypatch):
    """The twin: a reader that does not look at the rules reads what `decode` refuses."""
    task = make_task(partitions=2)
    layout = layout_of(task)
    monkeypatch.setattr(Layout, "_is_plain", lambda self, columns: True)
    value = honest(task)[1].replace(b'"partition":1', b'"partition":2')
    assert read(layout, value) is not None
    with pytest.raises(RejectedError, match="partition"):
        decode(value, layout.rules)


@pytest.mark.parametrize("blind", [False, True])
def test_the_store_remembers_what_has_not_expired(tmp_path, monkeypatch, blind):
    """In blocks and one by one, in many runs of many parts, with filters that are full, and reopened."""
    monkeypatch.setattr("murk.shuffler.store._SEEN_PART", 2)
    monkeypatch.setattr("murk.shuffler.store._SEEN_PARTS", 3)
    monkeypatch.setattr("murk.stream.wire.duplicates._SPARE", 1_000)
    # A filter that takes every id for a known one.
    monkeypatch.setattr("murk.stream.wire.duplicates._BITS", 1 if blind else 12)
    rng, task, known, repeated, longest = random.Random(4), make_task(), set(), 0, 0
    nothing = layout_of(task).read(Packed.of([]))
    store = Store(tmp_path / "store")
    window = store.window()
    for turn in range(60):
        now = 10 * turn
        for _ in range(rng.randrange(1, 4)):
            # A release has one expiry.
            sent = [
                (each, now - now % 40 + 40 * (1 + each % 3)) for each in rng.choices(range(400), k=rng.randrange(1, 80))
            ]
            expected = []
            for each in sent:
                expected.append(each in known)
                known.add(each)
            repeated += sum(expected)
            if rng.random() < 0.5:
                words = np.array([[0, each] for each, _ in sent], np.uint64)
                assert window.add(words, np.array([end for _, end in sent])).tolist() == expected
            else:
                assert [window.seen(0, f"{each:032x}", end) for each, end in sent] == expected
        store.take(0, turn + 1, window.given, 60, nothing, {}, np.empty((0, 2), np.uint64), {}, NOW, CROWD)
        window.stored_all()
        store.forget(now)
        known = {(each, end) for each, end in known if end > now}
        longest = max(longest, len(store._runs()))
        assert longest < 20
        if turn % 7 == 0:
            store.close()
            store = Store(tmp_path / "store")
            window = store.window()
    assert sum(count for *_, count in store._runs()) <= len(known) + 2 * 400
    store.close()
    assert repeated > 100


@pytest.mark.parametrize("key", ["sealed", "bits"])
def test_a_window_of_a_worker_remembers_what_has_not_expired(key):
    """Beyond its offsets, too, and a rebuilt one says the same; the twin without a memory does not."""
    rng, size = random.Random(key), 20
    made, known, answers, plain = [], {}, [], []
    window = DuplicateWindow(size, Unexpired(key_of(key), 60, 1_000))
    twin = DuplicateWindow(size)
    for offset in range(1_500):
        at = 10 * offset
        fresh = not known or rng.random() < 0.7
        name, end = (f"{offset:032x}", at - at % 60 + 600) if fresh else rng.choice([*known.items()])
        if end < at:
            known.pop(name)
            continue
        made.append((offset, name, end))
        answers.append(window.seen(offset, name, end))
        plain.append(twin.seen(offset, name, end))
        assert answers[-1] is not fresh
        known[name] = end
    assert sum(answers) > 50
    assert plain != answers
    again = DuplicateWindow(size, Unexpired(key_of(key), 60, 1_000))
    later = [again.seen(*each) for each in made if each[0] >= 700]
    first = next(i for i, each in enumerate(made) if each[0] >= 800)
    assert later[-(len(made) - first) :] == answers[first:]


def test_a_store_has_no_order_of_arrival(tmp_path, monkeypatch):
    """It is the same, whatever the order and the batches in which the same releases came."""
    task, count = make_task(crowd=3_000, duplicates=5_000), 2_500
    rng, found = random.Random(1), []

    def of_payload(self, releases):
        drawn = [random.Random(each).getrandbits(128) for each in releases.split("level")["default"][:, 0].tolist()]
        return np.array([divmod(each, 2**64) for each in drawn], np.uint64).reshape(-1, 2)

    monkeypatch.setattr("murk.shuffler.shuffler.Shuffler._random_ids", of_payload)
    for name, batch in (("one", 10_000), ("two", 700), ("three", 64)):
        (tmp_path / name).mkdir()
        sent = [(0, message(task, i)) for i in range(count)]
        rng.shuffle(sent)
        with logs(tmp_path / name, task) as (input_log, log):
            input_log.append(sent)
            with shuffler(tmp_path / name, input_log, log, task, batch=batch) as one:
                drain(one)
                found.append(one._store._database.query("SELECT place, count, records FROM waiting ORDER BY place"))
    assert len(found[0]) > 40
    assert sum(number for _, number, _ in found[0]) == count
    assert found[0] == found[1] == found[2]


def test_batches_do_not_decide_what_is_admitted(tmp_path):
    """Duplicates, hostile messages and messages in another form among others, taken in at once or one by one."""
    task, rng, found = make_task(crowd=900, duplicates=2_000, partitions=2), random.Random(2), []
    sent = [message(task, i, level=("default", "open")[i % 5 == 0]) for i in range(1_300)]
    sent[7] = json.dumps(json.loads(sent[7]), indent=1).encode()
    sent = [value for value in sent for _ in range(1 + (rng.random() < 0.01))]
    for number in range(6):
        sent.insert(rng.randrange(len(sent)), spoilt(task, number))
    sent.insert(600, message(task, 5_000, expires=NOW - 1))
    sent.insert(700, message(task, 5_001, partition=1))
    sent.insert(800, message(task, 5_002, payload=[2**55, 0]))
    for name, batch in (("at once", 10_000), ("few", 37)):
        (tmp_path / name).mkdir()
        with logs(tmp_path / name, task) as (input_log, log):
            input_log.append([(0, each) for each in sent])
            with shuffler(tmp_path / name, input_log, log, task, batch=batch) as one:
                drain(one)
                totals = one.totals
            found.append((totals.read, totals.duplicates, totals.refused, totals.released + totals.waiting))
            assert len(set(numbers(log))) == totals.released >= 900
    assert found[0] == found[1]
    assert found[0][3] == 1_300
    assert set(found[0][2]) >= {"expired", "partition", "magnitude", "malformed"}


def test_no_order_of_arrival_is_left_beside_a_store(tmp_path):
    """What came one by one would be in SQLite's write-ahead log, a page for each step."""
    task = make_task()
    with logs(tmp_path, task) as (input_log, log), shuffler(tmp_path, input_log, log, task) as one:
        for i in range(5):
            input_log.append([(0, message(task, 654_000 + i))])
            assert one.step().read == 1
        content = (tmp_path / "store").read_bytes()
        assert [content.count(b"654%03d" % i) for i in range(5)] == [1] * 5
        assert (tmp_path / "store-wal").read_bytes() == b""


def damage(path, statement, *values):
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as store:
        assert store.execute(statement, values).rowcount > 0


@pytest.fixture(scope="module")
def waiting_store(tmp_path_factory):
    """Logs, and a store in which 590 of 600 releases wait; the other ten are on the input log."""
    folder, task = tmp_path_factory.mktemp("waiting"), make_task(crowd=600, duplicates=2_000)
    with logs(folder, task) as (input_log, log):
        input_log.append([(0, message(task, i)) for i in range(590)])
        with shuffler(folder, input_log, log, task) as one:
            drain(one)
        input_log.append([(0, message(task, i)) for i in range(590, 600)])
    return folder, task


def opened(waiting_store, tmp_path):
    """A copy of the logs and their store, to be damaged."""
    folder, task = waiting_store
    shutil.copytree(folder, tmp_path / "copy")
    return tmp_path / "copy", task


def records_of(folder, place="max(place)"):
    with contextlib.closing(sqlite3.connect(folder / "store")) as store:
        return store.execute(
            f"SELECT place, records FROM waiting WHERE place = (SELECT {place} FROM waiting)"
        ).fetchone()


def test_a_store_that_is_not_damaged_continues(waiting_store, tmp_path):
    folder, task = opened(waiting_store, tmp_path)
    with logs(folder, task) as (input_log, log), shuffler(folder, input_log, log, task) as one:
        assert drain(one) == 600
        assert sorted(numbers(log)) == list(range(600))


@pytest.mark.parametrize(
    "statement",
    ["DELETE FROM waiting WHERE place = (SELECT max(place) FROM waiting)",
     "UPDATE crowds SET count = 600",
     "UPDATE crowds SET sealed = 1", "UPDATE crowds SET sealed = 0, count = 600",
     *(f"UPDATE crowds SET bits = {bits}" for bits in (-1, 0, 5, 25, 63, 2**40, "1.5", "'x'")),
     "UPDATE crowds SET crowd = -1", "UPDATE crowds SET crowd = 1 << 31",
     "UPDATE crowds SET version = -1, count = 600"],
)  # fmt: skip
def test_a_crowd_that_is_not_what_it_was_is_not_released(waiting_store, tmp_path, statement):
    folder, task = opened(waiting_store, tmp_path)
    damage(folder / "store", statement)
    with logs(folder, task) as (input_log, log):
        with pytest.raises(Exception, match="is damaged"), shuffler(folder, input_log, log, task) as one:
            drain(one)
        assert numbers(log) == []


@pytest.mark.parametrize("place", range(26))
def test_damage_of_a_record_is_not_released(waiting_store, tmp_path, place):
    """Length, id, query and payload: what is released is what a learner takes, and nothing is lost."""
    folder, task = opened(waiting_store, tmp_path)
    at, records = records_of(folder)
    for bit in (1, 8, 128):
        changed = bytearray(records)
        changed[place] ^= bit
        damage(folder / "store", "UPDATE waiting SET records = ? WHERE place = ?", bytes(changed), at)
        with logs(folder, task) as (input_log, log):
            refused = ""
            try:
                with shuffler(folder, input_log, log, task) as one:
                    drain(one)
            except UserError as error:
                refused = str(error)
            assert not refused or "is damaged" in refused
            valid = wire_rules(task, learner_for(task).admission)
            for each in log.read(0, 0, 1_000):
                decode(each.value, valid)
            assert sum(log.ends()) == (0 if refused else 600)
        if not refused:
            # Another id, query or digit, which nobody can tell.
            assert place >= 4
            return


def test_a_damaged_store_is_refused(tmp_path):
    task = make_task()
    with logs(tmp_path, task) as (input_log, log):
        input_log.append([(0, message(task, i)) for i in range(20)])
        with shuffler(tmp_path, input_log, log, task) as one:
            drain(one)
        input_log.append([(0, message(task, i)) for i in range(20, 60)])
        store = Store(tmp_path / "store")
        [(records,)] = store._database.query("SELECT records FROM waiting")
        for damaged in (records[:-1], records[5:], b"\xff" + records, records[:20] + b"\x07" + records[21:]):
            with store._database.write() as connection:
                connection.execute("UPDATE waiting SET records = ?", (damaged,))
            store.close()
            with shuffler(tmp_path, input_log, log, task) as one, pytest.raises(Exception, match="is damaged"):
                drain(one)
            store = Store(tmp_path / "store")
        store.close()


@pytest.mark.parametrize("key", [None, "", "zz" * 16, "00" * 8, "00" * 24, 5])
def test_a_window_whose_key_is_damaged_is_refused(tmp_path, key):
    """With another key, what came before would not be recognised."""
    task = make_task()
    with logs(tmp_path, task) as (input_log, log):
        input_log.append([(0, message(task, i)) for i in range(20)])
        with shuffler(tmp_path, input_log, log, task) as one:
            drain(one)
        if key is None:
            damage(tmp_path / "store", "DELETE FROM meta WHERE key = 'window'")
        else:
            damage(tmp_path / "store", "UPDATE meta SET value = ? WHERE key = 'window'", key)
        with pytest.raises(UserError, match="is damaged"):
            Store(tmp_path / "store")
