"""A learner that sleeps beyond its session, and wakes when its partitions are another's."""

import pytest

from murk.errors import MurkError
from murk.protocols.device import device_for
from murk.stream import open_log
from murk.stream.log.interface import FencedError
from murk.stream.worker.worker import Worker
from tests.protocols import GRADIENTS, MOMENTS
from tests.services.faults.nursery import Nursery
from tests.services.faults.world import (
    as_if_undisturbed,
    caught_up,
    disturbed,
    new_log,
    offsets,
    put,
    putting,
    seen,
    stock,
)


def owners(log):
    return {int(owner.rpartition(":")[2]) for owner in log.owners().values()}


# On how many partitions of how many releases each, about.
PARTITIONS, EACH = 2, 90


@pytest.mark.slow
def test_a_learner_that_wakes_writes_nothing_and_takes_its_place_again(broker, tmp_path):
    protocol = GRADIENTS
    task, released = stock(PARTITIONS, protocol.rows(PARTITIONS * EACH), protocol)
    messages = [disturbed(task, values, seed) for seed, values in enumerate(released)]
    cuts = [[len(values) * place // 3 for place in range(4)] for values in messages]
    thirds = [
        [values[cut[place] : cut[place + 1]] for values, cut in zip(messages, cuts, strict=True)] for place in range(3)
    ]
    url = new_log(broker, task)
    with (
        Nursery(tmp_path / "children", [protocol], MURK_KAFKA_SESSION_TIMEOUT_MS="1000") as nursery,
        open_log(url, create=False) as log,
        putting(broker, url) as send,
    ):

        def arrive(partitions):
            for partition, values in enumerate(partitions):
                send(values, partition)

        sleeper = nursery.learner(url)
        arrive(thirds[0])
        caught_up(url, sleeper)
        assert owners(log) == {sleeper.pid}
        # In the middle of work, so that it wakes with a step half done.
        arrive([values[:25] for values in thirds[1]])
        sleeper.freeze()
        other = nursery.learner(url)
        arrive([values[25:] for values in thirds[1]])
        caught_up(url, other)
        assert owners(log) == {other.pid}
        before = offsets(log)
        sleeper.thaw()
        # It has noticed when it is in the group again, which gives it partitions of its own.
        arrive([values[:10] for values in thirds[2]])
        rest = [values[10:] for values in thirds[2]]

        def shared(log):
            # When all has arrived, the same again: an owner shows in what it commits.
            arrive([values[:5] or again[-5:] for values, again in zip(rest, thirds[2], strict=True)])
            rest[:] = [values[5:] for values in rest]
            return owners(log) == {sleeper.pid, other.pid}

        seen(url, shared, every=0.2)
        arrive(rest)
        caught_up(url, sleeper, other)
        assert all(now > then for now, then in zip(offsets(log), before, strict=True))
        for learner in (sleeper, other):
            assert learner.stop() == 0, learner.err
            assert "murk:" not in learner.err, learner.err
    found = as_if_undisturbed(url, task)
    assert [counters["learned"] for _, counters in found] == [len(values) for values in released]


@pytest.mark.slow
@pytest.mark.parametrize("protocol", [GRADIENTS, MOMENTS], ids=str)
def test_a_learner_that_wakes_in_a_commit_is_refused(broker, protocol):
    """The same at one's own pace: a state written by hand of the old owner comes to nothing."""
    task, released = stock(PARTITIONS, protocol.rows(PARTITIONS * EACH), protocol)
    url = new_log(broker, task)
    put(broker, url, released[0])
    with open_log(url, create=False) as log, open_log(url, create=False) as again:
        old = Worker(log, task, device_for(task).engine())
        with old:
            old.step(30)
            # What it would commit next, folded before the partition was taken.
            old._pending = old._learn_batch(log.fetch(0, old.offset, 30))
            with Worker(again, task, device_for(task).engine()) as new:
                assert new.offset == 30
                new.step(40)
                standing = again.checkpoint(0)
                with pytest.raises(FencedError):
                    old.step()
                assert again.checkpoint(0) == log.checkpoint(0) == standing
                with pytest.raises(MurkError, match="fenced"):
                    old.step()
                while new.step().read:
                    pass
    with open_log(url, create=False) as log, Worker(log, task, device_for(task).engine(), 1) as other:
        other.step()
        put(broker, url, released[1][:10], 1)
        while other.step().read:
            pass
    as_if_undisturbed(url, task)
