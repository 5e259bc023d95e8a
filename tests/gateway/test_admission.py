"""The door refuses what the worker would refuse, for the same reason, and nothing that the worker would learn."""

import json
import random
import secrets
import time
from collections import Counter

import numpy as np
import pytest

from murk.gateway.admission import Admission
from murk.protocols.device import device_for
from murk.protocols.scores.model import Model
from murk.stream import Worker, open_log
from murk.stream.wire.codec import RejectedError, decode
from murk.stream.wire.releases import MOST_ITEMS
from tests.gateway.devices import announced, honest, release, task, wire

SPOILED = {
    "expired": lambda fields: fields | {"expires": 1_000_000_000},
    "wrong-task": lambda fields: fields | {"task": "0" * 64},
    "simulated": lambda fields: fields | {"simulated": True},
    "level": lambda fields: fields | {"level": "strict"},
    "dimension": lambda fields: fields | {"payload": fields["payload"][1:]},
    "magnitude": lambda fields: fields | {"payload": [2**50, *fields["payload"][1:]]},
    "schema": lambda fields: fields | {"extra": 1},
    "partition": lambda fields: fields | {"partition": 7},
}
AHEAD = {"future": lambda fields: fields | {"version": 3_000_000}}
ASKED = {"query": lambda fields: fields | {"item": MOST_ITEMS - 1}}
PROTOCOLS = ("scores", "gradients", "examples")


def judged(log, of, messages):
    """The reasons for which the worker refuses messages, None for those that it learns."""
    log.append([(0, message) for message in messages])
    worker = Worker(log, of, device_for(of).engine())
    while worker.step().read:
        pass
    worker.close()
    refused = {letter.offset: letter.reason for letter in log.dead_letters(0)}
    assert worker.counters.learned == len(messages) - len(refused)
    return [refused.get(offset) for offset in range(len(messages))]


def answering(draw, device, message):
    """Fields of a release that answers a model, None for that of version 0; none for gradients."""
    if device.kind != "score":
        return {}
    parameters = device.initial if message is None else np.array(json.loads(message)["parameters"])
    model = Model.of(parameters, 3)
    if model.survey:
        return {"query": "above", "item": draw.randrange(model.items), "payload": [draw.randrange(-9, 10)]}
    name = draw.choice([query for query, share in model.shares.items() if share])
    size = 3 if name == "score" else 6
    return {"query": name, "item": 0, "payload": [draw.randrange(-9, 10) for _ in range(size)]}


def partitions(door, values, now):
    """The partition of each release, or why it is refused."""
    return [each if isinstance(each, str) else each.partition for each in door.judged(values, now)]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_door_and_worker_agree(tmp_path, protocol):
    of = task(protocol=protocol)
    messages = [json.loads(one) for one in honest(of, 20)]
    kinds = SPOILED | (AHEAD if protocol != "examples" else {}) | (ASKED if protocol == "scores" else {})
    # With ids of their own: duplicates are left to the worker.
    spoiled = [wire(change(messages[0] | {"id": secrets.token_hex(16)})) for change in kinds.values()]
    junk = [b"", b"{", b"null", b"[]", b"1e999", b'{"schema":1,"schema":1}', b"\xff", b"x" * 5_000]
    offered = [*map(wire, messages), *spoiled, *junk]
    with open_log(announced(tmp_path, of)) as log:
        door = Admission(log, of)
        door.begin()
        # Every number is small enough by itself, and the vector is too long.
        far = [min(door.rules.magnitudes["default"], 2**62)] * len(messages[0]["payload"])
        offered.append(wire(messages[0] | {"id": secrets.token_hex(16), "payload": far}))
        at_door = []
        for message in offered:
            try:
                door.check(decode(message, door.rules), int(time.time()))
                at_door.append(None)
            except RejectedError as rejected:
                at_door.append(rejected.reason)
        assert at_door[: len(messages)] == [None] * len(messages)
        for last in range(len(messages), len(offered)):
            # One that is refused changes nothing for those before and after it.
            found = partitions(door, [offered[0], offered[last], *offered[1:4]], int(time.time()))
            assert [found[0], *found[2:]] == [0] * 4
            assert found[1] == (0 if at_door[last] is None else at_door[last])
        by_worker = judged(log, of, offered)
    assert at_door == by_worker


@pytest.mark.parametrize(
    ("keys", "together"), [({}, 400), ({"log": {"partitions": 2}}, 400), ({"protocol": "gradients"}, 40)]
)
def test_versions_are_judged_as_the_worker_does(tmp_path, monkeypatch, keys, together):
    """Over a partition's life: what the door accepts of honest and of random versions, the worker learns, and more."""
    # Otherwise a quick worker has learned most of this while the door has its first model.
    monkeypatch.setattr("murk.stream.log.sqlite.HEARD", 0.0)
    of = task(**keys)
    base = json.loads(honest(of, 1)[0])
    assert of.protocol == keys.get("protocol", "scores")
    device, draw, reasons, ahead = device_for(of), random.Random(1), {}, set()
    # Of scores, the second round after the survey, which the partition reaches, and the fourth, which it does not.
    guesses = (3_000,) if of.protocol == "gradients" else (3_706, 12_706)
    assert all(map(device.is_published, guesses))
    with open_log(announced(tmp_path, of)) as log:
        door = Admission(log, of)
        workers = [Worker(log, of, device_for(of).engine(), partition, look=0.0) for partition in range(log.partitions)]
        for _ in range(24 if together == 400 else 80):
            door.begin()
            offered, one_by_one = [], []
            models = [door.model(partition) for partition in range(log.partitions)]
            newest = [0 if model is None else json.loads(model)["version"] for model in models]
            for _ in range(together):
                partition = draw.randrange(log.partitions)
                known = newest[partition]
                guess = draw.choice(guesses)
                version = draw.choice((known, known, known, known, known + 1, guess, draw.randrange(20_000)))
                fields = base | {"id": f"{draw.getrandbits(128):032x}", "partition": partition, "version": version}
                fields |= answering(draw, device, models[partition])
                offered.append((partition, message := wire(fields)))
                if version > known:
                    ahead.add(message)
                try:
                    one_by_one.append(door.check(decode(message, door.rules), int(time.time())).partition)
                    reasons[message] = None
                except RejectedError as rejected:
                    one_by_one.append(rejected.reason)
                    reasons[message] = rejected.reason
            # Together, all or those that pass: each is judged as by itself.
            messages = [message for _, message in offered]
            assert partitions(door, messages, int(time.time())) == one_by_one
            passed = [each for each, found in zip(messages, one_by_one, strict=True) if isinstance(found, int)]
            assert partitions(door, passed, int(time.time())) == [each for each in one_by_one if isinstance(each, int)]
            log.append(offered)
            for worker in workers:
                while worker.step().read:
                    pass
        learned = sum(worker.counters.learned for worker in workers)
        for worker in workers:
            worker.close()
        dead = {letter.value: letter.reason for letter in log.dead_letters()}
    seen = Counter((reason, dead.get(message)) for message, reason in reasons.items())
    assert learned > 0.4 * len(reasons)
    # Refused at the door is refused by the worker, apart from guesses of models that nobody had published.
    assert {message for message, reason in reasons.items() if reason is not None} - dead.keys() <= ahead
    # The door knows what the worker knew a moment ago: hardly anything passes that is refused after all.
    passed_in_vain = sum(count for (door, worker), count in seen.items() if door is None and worker is not None)
    assert passed_in_vain < 0.05 * learned, seen
    assert seen["future", "future"] > 0.02 * len(reasons)


def test_a_model_that_nobody_publishes_is_not_served(tmp_path):
    of = task(protocol="gradients")
    with open_log(announced(tmp_path, of)) as log:
        door = Admission(log, of)
        assert door.model(0) is None
        log.publish(0, b"nonsense")
        time.sleep(0.02)
        assert door.model(0) is None
        worker = Worker(log, of, device_for(of).engine())
        worker.step()
        worker.close()
        time.sleep(0.02)
        model = door.model(0)
        assert model is not None
        log.publish(0, model.replace(b'"version":0', b'"version":-3'))
        time.sleep(0.02)
        assert door.model(0) == model


def test_a_made_up_release_of_these_tests_is_one_that_passes(tmp_path):
    of = task()
    with open_log(announced(tmp_path, of)) as log:
        door = Admission(log, of)
        assert door.check(decode(wire(release(of)), door.rules), int(time.time())).partition == 0


@pytest.mark.parametrize("keys", [{}, {"log": {"partitions": 2}}, {"protocol": "gradients"}])
def test_forged_versions_do_not_keep_the_log_busy(tmp_path, monkeypatch, keys):
    of, asked = task(**keys), []
    fields = json.loads(honest(of, 1)[0]) | {"partition": 0}
    with open_log(announced(tmp_path, of)) as log:
        door = Admission(log, of)
        for name in ("model", "end", "ends", "checkpoint"):
            look = getattr(log, name)
            monkeypatch.setattr(log, name, lambda *partition, look=look: asked.append(partition) or look(*partition))
        for group in range(3):
            door.begin()
            for version in range(50):
                with pytest.raises(RejectedError, match="future"):
                    door.check(decode(wire(fields | {"version": 3_000 << version % 40}), door.rules), int(time.time()))
            assert len(asked) <= 6 * (group + 1)
