"""The producer: public things and the ledger decide, once, and nothing of a record gets out."""

import json
import math
import random
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import murk
from murk import Task
from murk.errors import MurkError, UserError
from murk.privacy import GaussianDP
from murk.privacy.noise import SecureNoise, SimulatedNoise
from murk.producers import Ledger, Policy, Producer
from murk.protocols.device import device_for
from murk.stream import open_log
from murk.stream.log import interface as base
from murk.stream.wire.codec import WireRules, decode
from tests.interrupts import interrupted
from tests.producers.world import NOW, RECORD, SECRET, Untouchable, World, Wrapped, make_task, paid_task


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path, paid_task(4.0)) as world:
        yield world


def rules(world: World) -> WireRules:
    device = device_for(world.task)
    return WireRules(
        world.task.hash,
        world.task.simulated,
        (device.dimension,),
        {level: mechanism.magnitude for level, mechanism in device.mechanisms.items()},
        world.task.log.partitions,
    )


class TestRelease:
    def test_stands_on_the_log_and_fits_the_task(self, world: World) -> None:
        receipt = world.producer.release(RECORD, level="open")
        assert (receipt.outcome, receipt.delivery, receipt.level) == ("released", "sent", "open")
        assert receipt.reason == ""
        assert (receipt.partition, receipt.version) == (0, 0)
        [message] = world.messages()
        release = decode(message.value, rules(world))
        assert (release.level, release.version, release.simulated) == ("open", 0, True)
        assert release.time == 1_700_006_400
        assert release.expires == 1_700_006_400 + 7 * 86_400

    def test_holds_no_name_and_no_value(self, world: World) -> None:
        world.producer.release(RECORD, person="ann-of-somewhere", key="monday")
        data = world.messages()[0].value
        assert set(json.loads(data)) == {
            *("schema", "kind", "id", "task", "level", "partition", "version", "payload", "time", "expires"),
            "simulated",
        }
        assert b"ann" not in data
        assert b"monday" not in data

    def test_is_the_mechanism_of_the_gradient(self, world: World) -> None:
        device = device_for(world.task)
        world.producer.release(RECORD)
        release = decode(world.messages()[0].value, rules(world))
        coded = world.task.coding.encode_record(RECORD)
        gradient = device.vectors(coded.x[None, :], np.array([coded.y]), device.initial)
        index = np.array([(1 << 40) + 1])
        expected = device.mechanisms["default"].randomize(gradient, SimulatedNoise(7), index)
        assert release.payload == expected[0].tolist()

    def test_is_taken_at_the_newest_model(self, world: World) -> None:
        device = device_for(world.task)
        for _ in range(3):
            world.producer.release(RECORD, person="bob", level="strict")
        parameters = np.linspace(-0.5, 0.5, device.dimension)
        world.publish(parameters, version=2)
        receipt = world.producer.release(RECORD)
        assert receipt.version == 2
        release = decode(world.messages()[-1].value, rules(world))
        coded = world.task.coding.encode_record(RECORD)
        gradient = device.vectors(coded.x[None, :], np.array([coded.y]), parameters)
        index = np.array([(1 << 40) + 4])
        expected = device.mechanisms["default"].randomize(gradient, SimulatedNoise(7), index)
        assert release.payload == expected[0].tolist()

    def test_ids_and_payloads_are_never_repeated(self, tmp_path: Path) -> None:
        for seed in (None, 7):
            folder = tmp_path / str(seed)
            folder.mkdir()
            with World(folder, paid_task(50.0, simulated=seed is not None)) as world:
                for person in range(20):
                    world.producer.release(RECORD, person=f"p{person}")
                    world.producer.release(RECORD, person=f"p{person}")
                found = [json.loads(message.value) for message in world.messages()]
            assert len({one["id"] for one in found}) == 40
            assert len({tuple(one["payload"]) for one in found}) == 40

    def test_a_simulation_can_be_repeated(self, tmp_path: Path) -> None:
        runs = []
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            with World(tmp_path / name, paid_task(4.0, "log: {partitions: 3}")) as world:
                for person in range(6):
                    world.producer.release(RECORD, person=f"p{person}")
                runs.append([[message.value for message in world.messages(partition)] for partition in range(3)])
        assert runs[0] == runs[1]
        assert sum(map(len, runs[0])) == 6

    def test_partitions_are_drawn_evenly(self, tmp_path: Path) -> None:
        # 300 releases over 3 partitions: a partition's count is binomial(300, 1/3), and 100 +- 45 is 5.5 standard
        # deviations (2e-8 a side); a fixed partition would give 300 and 0.
        with World(tmp_path, make_task("log: {partitions: 3}")) as world:
            for person in range(300):
                world.producer.release(RECORD, person=f"p{person}")
            counts = [world.log.end(partition) for partition in range(3)]
        assert sum(counts) == 300
        assert all(55 < count < 145 for count in counts)

    def test_goes_where_the_log_has_partitions(self, tmp_path: Path) -> None:
        # The number of partitions is the log's, and no part of the task's hash.
        with World(tmp_path, make_task("log: {partitions: 2}")) as world:
            producer = Producer(make_task(), world.log, world.ledger, noise=SimulatedNoise(1))
            partitions = {producer.release(RECORD, person=f"p{n}").partition for n in range(20)}
        assert partitions == {0, 1}

    def test_days_are_noted_and_no_hours(self, tmp_path: Path) -> None:
        """In UTC, or coarser where the task's times are."""
        for granularity, day in (("1h", NOW // 86_400 * 86_400), ("7d", NOW // 604_800 * 604_800)):
            (tmp_path / granularity).mkdir()
            task = make_task(f"granularity: {granularity}", "expiry: 14d", "log: {retention: 28d}")
            with World(tmp_path / granularity, task) as world:
                world.producer.release(RECORD, person="ann")
                world.ledger.withdraw("ann", now=NOW)
                account = world.ledger.account("ann")
            [level] = account.tasks[0].levels
            assert (level.first, level.last) == (day, day)
            assert account.withdrawn_on == NOW // 86_400 * 86_400

    def test_receipts_name_nobody(self, world: World) -> None:
        texts = [repr(world.producer.release(RECORD, person=SECRET, key="k")) for _ in range(2)]
        world.ledger.withdraw(SECRET)
        receipt = world.producer.release(RECORD, person=SECRET)
        assert receipt.outcome == "refused"
        assert "withdrawn" in receipt.reason
        assert not any(SECRET in text for text in [*texts, repr(receipt), repr(world.producer.counts)])


class TestCaps:
    def test_one_release_at_her_level_by_default(self, tmp_path: Path) -> None:
        with World(tmp_path, make_task()) as world:
            outcomes = [world.producer.release(RECORD, level="strict") for _ in range(2)]
            assert [receipt.outcome for receipt in outcomes] == ["released", "refused"]
            assert "'strict'" in outcomes[1].reason
            assert outcomes[1].delivery == "none"
            assert world.log.end(0) == 1

    def test_of_the_task(self, world: World) -> None:
        # rho: a cap of 4^2 / 2 = 8, releases at 2^2 / 2 = 2 and 1/2.
        outcomes = [world.producer.release(RECORD, level="open").outcome for _ in range(5)]
        assert outcomes == ["released"] * 4 + ["refused"]
        assert world.ledger.totals().releases == 4

    def test_over_all_tasks(self, tmp_path: Path) -> None:
        policy = Policy(lifetime=GaussianDP(1.5))
        with World(tmp_path, paid_task(4.0), policy=policy) as world:
            # rho: 1.125 in all, 0.5 a release.
            receipts = [world.producer.release(RECORD) for _ in range(3)]
            assert [receipt.outcome for receipt in receipts] == ["released", "released", "refused"]
            assert "all tasks" in receipts[2].reason
            with pytest.raises(UserError, match="policy does not allow the level 'open'"):
                world.producer.release(Untouchable(), level="open")

    def test_a_refused_record_is_not_looked_at(self, tmp_path: Path) -> None:
        with World(tmp_path, make_task()) as world:
            world.producer.release(RECORD, key="k")
            assert world.producer.release(Untouchable()).outcome == "refused"
            assert world.producer.release(Untouchable(), key="k").outcome == "known"

    def test_unknown_levels(self, world: World) -> None:
        with pytest.raises(UserError, match="choose one of default, strict, open"):
            world.producer.release(Untouchable(), level="opne")


ODD_VALUES: list[Any] = [
    *(None, "", math.nan, math.inf, -math.inf, 1e308, -1e308, 10**400, "nan", "??", True, [], {}, b"x"),
    *(object(), np.float32("nan"), complex(1, 2), "1e999", SECRET),
]


class TestValues:
    @pytest.mark.parametrize("value", ODD_VALUES, ids=lambda value: type(value).__name__)
    def test_never_decide_whether_something_is_sent(self, tmp_path: Path, value: Any) -> None:
        with World(tmp_path, make_task()) as world:
            for person, column in enumerate(RECORD):
                receipt = world.producer.release({**RECORD, column: value}, person=f"p{person}")
                assert (receipt.outcome, receipt.delivery) == ("released", "sent")
            assert world.producer.release(dict.fromkeys(RECORD, value)).outcome == "released"
            for message in world.messages():
                decode(message.value, rules(world))
            assert world.log.end(0) == len(RECORD) + 1

    def test_nothing_at_all_releases_the_mechanism_of_a_zero_gradient(self, tmp_path: Path) -> None:
        with World(tmp_path, make_task()) as world:
            world.producer.release({})
            device = device_for(world.task)
            release = decode(world.messages()[0].value, rules(world))
            zero = np.zeros((1, device.dimension))
            index = np.array([(1 << 40) + 1])
            expected = device.mechanisms["default"].randomize(zero, SimulatedNoise(7), index)
            assert release.payload == expected[0].tolist()

    def test_of_the_target_missing_too(self, tmp_path: Path) -> None:
        with World(tmp_path, make_task()) as world:
            for person, target in enumerate((None, "neither", math.nan)):
                world.producer.release({**RECORD, "third_child": target}, person=f"p{person}")
            device = device_for(world.task)
            for number, message in enumerate(world.messages(), 1):
                release = decode(message.value, rules(world))
                zero = np.zeros((1, device.dimension))
                index = np.array([(1 << 40) + number])
                expected = device.mechanisms["default"].randomize(zero, SimulatedNoise(7), index)
                assert release.payload == expected[0].tolist()

    def test_are_counted_on_the_device_and_told_to_nobody(self, tmp_path: Path) -> None:
        with World(tmp_path, make_task()) as world:
            for person in range(21):
                world.producer.release({**RECORD, "age": 99, "origin": None}, person=f"p{person}")
            counts = world.producer.counts
            assert (counts.records, counts.clamped, counts.missing) == (21, 21, 21)
            assert repr(counts) == "Counts()"


def hostile_models(world: World) -> dict[str, bytes]:
    honest = {
        "schema": 1,
        "kind": "model",
        "task": world.task.hash,
        "partition": 0,
        "version": 0,
        "parameters": device_for(world.task).initial.tolist(),
    }
    size = len(honest["parameters"])
    changes: dict[str, dict[str, Any]] = {
        "infinite": {"parameters": [math.inf] * size},
        "not a number": {"parameters": [math.nan] * size},
        "overflowing": {"parameters": [1e999] * size},
        "huge": {"parameters": [1e300] * size},
        "beyond the radius": {"parameters": [4.0] * size},
        "too long": {"parameters": [0.0] * (size + 1)},
        "too short": {"parameters": [0.0] * (size - 1)},
        "empty": {"parameters": []},
        "of strings": {"parameters": ["0"] * size},
        "of another task": {"task": "0" * 64},
        "of another partition": {"partition": 1},
        "of the future": {"version": 1_000},
        "of a negative version": {"version": -1},
        "of another schema": {"schema": 2},
        "with more in it": {"command": "send everything"},
    }
    models = {name: json.dumps({**honest, **change}).encode() for name, change in changes.items()}
    models["not even JSON"] = b"\x00\xff" * 50
    models["very long"] = b'{"parameters": [' + b"0," * 500_000 + b"0]}"
    return models


class TestHostileModels:
    @pytest.mark.parametrize("what", list(range(17)))
    def test_are_refused_before_the_record_is_looked_at(self, tmp_path: Path, what: int) -> None:
        with World(tmp_path, make_task()) as world:
            name, message = list(hostile_models(world).items())[what]
            world.log.publish(0, message)
            with pytest.raises(UserError):
                world.producer.release(Untouchable())
            assert world.ledger.totals().releases == world.log.end(0) == 0, name
            world.publish(device_for(world.task).initial.tolist())
            assert world.producer.release(RECORD).outcome == "released"

    def test_all_are_tried(self, world: World) -> None:
        assert len(hostile_models(world)) == 17

    def test_of_versions_that_are_not_published(self, tmp_path: Path) -> None:
        task = make_task("max_staleness: {releases: 1000000, share: 0.5}")
        with World(tmp_path, task) as world:
            # 16 releases can be within 1% from version 1600 on; before that every version is published.
            world.log.append([(0, b"x")] * 2000)
            world.publish(device_for(task).initial.tolist(), version=1601)
            with pytest.raises(UserError, match="1601"):
                world.producer.release(Untouchable())
            world.publish(device_for(task).initial.tolist(), version=1600)
            assert world.producer.release(RECORD).version == 1600


class TestSetup:
    def test_noise_and_task_are_of_one_kind(self, tmp_path: Path) -> None:
        with World(tmp_path, make_task(simulated=False)) as world:
            with pytest.raises(UserError, match="protects nobody"):
                Producer(world.task, world.log, world.ledger, noise=SimulatedNoise(1))
            assert Producer(world.task, world.log, world.ledger).release(RECORD).outcome == "released"
            assert json.loads(world.messages()[0].value)["simulated"] is False
        (tmp_path / "simulated").mkdir()
        with World(tmp_path / "simulated", make_task()) as world:
            for noise in (None, SecureNoise()):
                with pytest.raises(UserError, match="simulation"):
                    Producer(world.task, world.log, world.ledger, noise=noise)

    def test_the_log_carries_the_task(self, tmp_path: Path, world: World) -> None:
        with pytest.raises(UserError, match="carries the task"):
            Producer(make_task("expiry: 6d"), world.log, world.ledger, noise=SimulatedNoise(1))
        with open_log(f"sqlite:///{tmp_path}/empty.db") as empty, pytest.raises(UserError, match="no task yet"):
            Producer(world.task, empty, world.ledger, noise=SimulatedNoise(1))

    def test_the_ledger_belongs_to_the_log(self, tmp_path: Path, world: World) -> None:
        with open_log(f"sqlite:///{tmp_path}/other.db") as other:
            other.register_task(world.task.document())
            with pytest.raises(UserError, match="another log"):
                Producer(world.task, other, world.ledger, noise=SimulatedNoise(1))

    def test_the_policy_is_asked_first(self, tmp_path: Path, world: World) -> None:
        with Ledger(tmp_path / "fresh.db") as ledger:
            with pytest.raises(UserError, match="policy"):
                Producer(
                    world.task, world.log, ledger, noise=SimulatedNoise(1), policy=Policy(per_task=GaussianDP(1.0))
                )
            assert ledger.totals().people == 0

    def test_levels_that_may_be_used(self, tmp_path: Path) -> None:
        with World(tmp_path, make_task(), policy=Policy(lifetime=GaussianDP(1.0))) as world:
            assert world.producer.levels == ("default", "strict")


class TestDelivery:
    def test_a_log_that_takes_nothing_queues(self, world: World) -> None:
        def full(batch: object) -> None:
            raise MurkError("the disk is full")

        producer = world.produce(Wrapped(world.log, append=full))  # type: ignore[arg-type]
        receipt = producer.release(RECORD, key="k")
        assert (receipt.outcome, receipt.delivery) == ("released", "queued")
        assert "disk is full" in receipt.reason
        assert producer.release(RECORD, key="k").delivery == "queued"
        assert world.ledger.pending() == 1
        assert world.log.end(0) == 0
        report = world.produce().flush()
        assert (report.sent, report.already, report.expired) == (1, 0, 0)
        assert world.ledger.pending() == 0

    def test_a_log_that_devices_may_not_read_is_sent_all_that_waits(self, world: World) -> None:
        """As on Kafka: nobody can ask what stands there, and learners leave out what comes twice."""

        def lost(batch: Any) -> None:
            world.log.append(batch)
            raise ConnectionError("no answer")

        assert world.produce(Wrapped(world.log, append=lost)).release(RECORD, key="k").delivery == "queued"  # type: ignore[arg-type]
        report = world.produce(Wrapped(world.log, readable_by_senders=False)).flush()  # type: ignore[arg-type]
        assert (report.sent, report.already, world.log.end(0)) == (1, 0, 2)

    def test_what_waits_is_sent_when_its_record_comes_again(self, world: World) -> None:
        down = [True]

        def append(batch: Any) -> None:
            if down:
                raise ConnectionError("no route")
            world.log.append(batch)

        producer = world.produce(Wrapped(world.log, append=append))  # type: ignore[arg-type]
        assert producer.release(RECORD, key="k").delivery == "queued"
        down.clear()
        receipt = producer.release(RECORD, key="k")
        assert (receipt.outcome, receipt.delivery) == ("known", "none")
        assert world.log.end(0) == 1

    def test_what_was_queued_goes_first_and_unchanged(self, world: World) -> None:
        down = True

        def append(batch: Any) -> None:
            if down:
                raise ConnectionError("no route")
            world.log.append(batch)

        producer = world.produce(Wrapped(world.log, append=append))  # type: ignore[arg-type]
        assert [producer.release(RECORD, person=f"p{n}").delivery for n in range(3)] == ["queued"] * 3
        frozen = [queued.message for queued in world.ledger.queued(world.task.hash)]
        down = False
        assert producer.release(RECORD, person="p3").delivery == "sent"
        assert [message.value for message in world.messages()][:3] == frozen
        assert world.log.end(0) == 4
        assert world.ledger.pending() == 0

    @pytest.mark.parametrize("waiting", [1, 2])
    def test_what_an_earlier_process_left_goes_first(self, world: World, waiting: int) -> None:
        def down(batch: Any) -> None:
            raise ConnectionError("no route")

        producer = world.produce(Wrapped(world.log, append=down))  # type: ignore[arg-type]
        for person in range(waiting):
            producer.release(RECORD, person=f"p{person}")
        frozen = [queued.message for queued in world.ledger.queued(world.task.hash)]
        assert len(frozen) == waiting
        assert world.produce().release(RECORD, person="another").delivery == "sent"
        assert [message.value for message in world.messages()][:waiting] == frozen
        assert (world.log.end(0), world.ledger.pending()) == (waiting + 1, 0)

    def test_an_answer_that_was_lost_sends_nothing_twice(self, world: World) -> None:
        def append(batch: Any) -> None:
            world.log.append(batch)
            raise TimeoutError("no answer")

        producer = world.produce(Wrapped(world.log, append=append))  # type: ignore[arg-type]
        assert producer.release(RECORD).delivery == "queued"
        assert world.ledger.pending() == 1
        report = world.produce().flush()
        assert (report.sent, report.already) == (0, 1)
        assert world.log.end(0) == 1

    def test_other_peoples_releases_in_between(self, world: World) -> None:
        def append(batch: Any) -> None:
            world.log.append([(0, b"someone else's")] * 10)
            world.log.append(batch)
            world.log.append([(0, b"and another")] * 5000)
            raise TimeoutError("no answer")

        world.produce(Wrapped(world.log, append=append)).release(RECORD)  # type: ignore[arg-type]
        assert world.produce().flush().already == 1
        assert world.log.end(0) == 5011

    @pytest.mark.parametrize("others", [0, 1, 2, 3])
    def test_every_message_is_looked_at(self, world: World, monkeypatch: pytest.MonkeyPatch, others: int) -> None:
        """However few one read gives."""

        def append(batch: Any) -> None:
            world.log.append([(0, b"someone else's")] * others + batch)
            raise TimeoutError("no answer")

        monkeypatch.setattr(base, "_PAGE", 1)
        world.produce(Wrapped(world.log, append=append)).release(RECORD)  # type: ignore[arg-type]
        assert world.produce().flush().already == 1
        assert world.log.end(0) == others + 1

    @pytest.mark.parametrize("readable", [True, False])
    @pytest.mark.parametrize("arrived", [True, False])
    def test_what_retention_may_have_removed_is_sent_again(self, world: World, readable: bool, arrived: bool) -> None:
        """Until it expires it counts once, however far behind the first copy is."""

        def append(batch: Any) -> None:
            if arrived:
                world.log.append(batch)
            raise TimeoutError("no answer")

        world.log.append([(0, b"before")])
        world.produce(Wrapped(world.log, append=append)).release(RECORD)  # type: ignore[arg-type]
        world.log.append([(0, b"someone else's")] * 5)
        world.log._trim_to(0, 2 if arrived else 1)  # type: ignore[attr-defined]
        end = world.log.end(0)
        log: Any = Wrapped(world.log, readable_by_senders=readable)
        report = world.produce(log).flush()
        assert (report.sent, report.already) == (1, 0)
        assert world.log.end(0) == end + 1
        assert world.ledger.pending() == 0

    def test_expired_releases_are_let_go_of(self, world: World) -> None:
        def down(batch: object) -> None:
            raise ConnectionError("no route")

        world.produce(Wrapped(world.log, append=down)).release(RECORD, key="k")  # type: ignore[arg-type]
        world.now = NOW + 8 * 86_400
        producer = world.produce()
        report = producer.flush()
        assert (report.sent, report.already, report.expired) == (0, 0, 1)
        assert world.log.end(0) == 0
        # Paid for is paid for, and privatized once is privatized once.
        receipt = producer.release(RECORD, key="k")
        assert (receipt.outcome, receipt.delivery) == ("known", "none")
        [level] = world.ledger.account("me").tasks[0].levels
        assert (level.released, level.sent, level.dropped) == (1, 0, 1)

    def test_what_the_log_has_was_sent_also_where_it_has_expired_since(self, world: World) -> None:
        """A process died before it heard; the log is looked at before anything is said of it."""

        def append(batch: Any) -> None:
            world.log.append(batch)
            raise TimeoutError("no answer")

        world.produce(Wrapped(world.log, append=append)).release(RECORD, person="ann")  # type: ignore[arg-type]
        world.now = NOW + 8 * 86_400
        report = world.produce().flush()
        assert (report.sent, report.already, report.expired) == (0, 1, 0)
        [level] = world.ledger.account("ann").tasks[0].levels
        assert (level.sent, level.dropped) == (1, 0)

    def test_an_account_does_not_claim_that_what_was_deleted_was_not_sent(self, world: World) -> None:
        """Killed between append and confirmation, the person then withdraws: the log has it, and the ledger no idea."""

        def append(batch: Any) -> None:
            world.log.append(batch)
            raise TimeoutError("no answer")

        world.produce(Wrapped(world.log, append=append)).release(RECORD, person="ann")  # type: ignore[arg-type]
        waiting = "\n".join(world.ledger.account("ann").describe())
        assert "1 waiting for the log's confirmation" in waiting
        assert world.ledger.withdraw("ann") == 1
        assert world.log.end(0) == 1
        words = "\n".join(world.ledger.account("ann").describe())
        assert "1 deleted before the log confirmed it, perhaps after sending" in words
        assert "unsent" not in words

    def test_withdrawal_empties_the_outbox(self, world: World) -> None:
        def down(batch: object) -> None:
            raise ConnectionError("no route")

        producer = world.produce(Wrapped(world.log, append=down))  # type: ignore[arg-type]
        producer.release(RECORD, person="ann"), producer.release(RECORD, person="bob")
        world.ledger.withdraw("ann")
        assert world.produce().flush().sent == 1
        assert world.log.end(0) == 1

    def test_bytes_are_kept_until_the_log_has_confirmed(self, world: World) -> None:
        world.producer.release(RECORD, key="one")
        # Confirmed, and deleted at once.
        assert world.ledger.queued(world.task.hash) == []
        assert world.producer.release(RECORD, key="one").delivery == "none"
        assert world.ledger.pending() == 0

    def test_a_log_that_cannot_be_read_debits_nothing(self, world: World) -> None:
        def down(partition: int) -> bytes:
            raise MurkError("the log is gone")

        producer = world.produce(Wrapped(world.log, cached_model=down))  # type: ignore[arg-type]
        with pytest.raises(MurkError, match="gone"):
            producer.release(Untouchable())
        assert world.ledger.totals().releases == 0

    def test_a_ledger_that_cannot_be_written_sends_nothing(self, world: World) -> None:
        world.ledger._file._connection.execute("PRAGMA query_only = ON")
        with pytest.raises(MurkError, match="read-only"):
            world.producer.release(RECORD)
        assert world.log.end(0) == 0

    def test_the_clock_is_read_before_the_record(self, world: World) -> None:
        read: list[str] = []

        class Record(Mapping[str, Any]):
            def __getitem__(self, name: str) -> Any:
                read.append("record")
                return RECORD[name]

            def __iter__(self) -> Iterator[str]:
                return iter(RECORD)

            def __len__(self) -> int:
                return len(RECORD)

        def clock() -> float:
            read.append("clock")
            return NOW

        producer = Producer(world.task, world.log, world.ledger, noise=SimulatedNoise(1), clock=clock)
        read.clear()
        assert producer.release(Record(), key="k").outcome == "released"
        assert read[0] == "clock"
        assert "record" in read

    def test_noise_that_fails_debits_nothing(self, world: World) -> None:
        class Broken(SimulatedNoise):
            def gaussian(self, records: Any, size: int) -> Any:
                raise MurkError("no randomness")

        producer = Producer(world.task, world.log, world.ledger, noise=Broken(1), clock=lambda: NOW)
        with pytest.raises(MurkError, match="no randomness"):
            producer.release(RECORD, key="k")
        assert world.ledger.totals().releases == world.log.end(0) == 0
        assert world.producer.release(RECORD, key="k").outcome == "released"


def elsewhere(act: Callable[[], object]) -> Exception | None:
    """The error of an act in another thread."""
    caught: list[Exception] = []

    def run() -> None:
        try:
            act()
        except Exception as error:  # noqa: BLE001
            caught.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return caught[0] if caught else None


@pytest.mark.parametrize("simulated", [True, False])
def test_another_thread_is_refused_before_the_record_is_looked_at(tmp_path: Path, simulated: bool) -> None:
    with World(tmp_path, paid_task(4.0, simulated=simulated)) as world:
        acts: list[Callable[[], object]] = [lambda: world.producer.release(Untouchable()), world.producer.flush]
        for act in acts:
            error = elsewhere(act)
            assert isinstance(error, MurkError)
            assert "another process or thread" in str(error)
        assert world.ledger.totals().releases == 0
        assert world.producer.release(RECORD).outcome == "released"


def test_an_interrupt_leaves_accounts_whole_and_nothing_of_the_record(world: World) -> None:
    """At any instruction of Murk's Python, as Ctrl-C comes: the same call again releases the record once."""
    place, rng, device = str(Path(murk.__file__).parent), random.Random(3), world.producer._device
    age = 27.182818284
    coded = world.task.coding.encode_record({**RECORD, "age": age}).x[0]

    def release(number: int, stop: int) -> int:
        def work() -> object:
            return world.producer.release({**RECORD, "age": age}, person=f"w{number}", key="monday")

        return interrupted(work, stop, place)

    whole = release(0, 0)
    assert whole > 500
    unpaid = 0
    for number in range(1, 41):
        assert release(number, rng.randrange(1, whole)) <= whole
        memory = device._memory
        for value in (age, coded):
            assert struct.pack("<d", value) not in memory.real.tobytes()
        unpaid += world.ledger.totals().releases < number + 1
        assert world.producer.release({**RECORD, "age": age}, person=f"w{number}", key="monday").outcome != "refused"
        assert world.ledger.totals().releases == number + 1
    assert 0 < unpaid < 40
    world.producer.flush()
    assert world.ledger.pending() == 0
    assert len({json.loads(message.value)["id"] for message in world.messages()}) == len(world.messages()) == 41


@pytest.mark.parametrize("kind", ["gdp: {mu: 1.0}", "pure: {epsilon: 1.0}"])
def test_one_release_is_one_also_beside_a_tiny_level(tmp_path, kind):
    """A level that costs next to nothing leaves room in the other's cap, and is a release all the same."""
    tiny = kind.replace("1.0", "1.0e-3")
    task = Task.parse(
        'name: t\nfeatures: [{name: a, low: 0, high: 1}]\ntarget: {name: y, kind: binary, positive: "yes"}\n'
        f"protocol: moments\nprivacy: {{guarantee: {{{kind}}}, levels: {{tiny: {{{tiny}}}}}}}\n"
    )
    with open_log(f"sqlite:///{tmp_path}/log.db") as log, Ledger(tmp_path / "ledger.db") as ledger:
        log.register_task(task.document())
        producer, record = Producer(task, log, ledger), {"a": 0.5, "y": "yes"}
        for person, levels in (("ann", ["tiny", "default"]), ("bob", ["default", "tiny"]), ("cy", ["tiny", "tiny"])):
            receipts = [producer.release(record, person=person, level=level) for level in levels]
            assert [each.outcome for each in receipts] == ["released", "refused"]
            assert "one release" in receipts[1].reason
