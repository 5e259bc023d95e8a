"""Counting by level and by age."""

from murk.stream.wire.codec import WireRules, decode
from murk.stream.wire.state import Counters
from murk.stream.worker.worker import StepCounters
from tests.stream.harness import make_task, message

TASK = make_task()


def release(version):
    return decode(message(TASK, 1, version=version), WireRules(TASK.hash, False, (3,), {"default": 10_000}, 2))


def test_ages_are_counted_by_the_bits_they_take():
    tally = StepCounters(Counters())
    # The n-th of these is learned when n have been learned before it: ages 0, 1, 1, 3, 4.
    tally.learned([release(version) for version in (0, 0, 1, 0, 0)], 0)
    assert tally.counters() == Counters(learned=5, levels={"default": 5}, staleness=[1, 2, 1, 1], staleness_sum=9)


def test_the_split_into_calls_does_not_matter():
    versions = [0, 0, 1, 2, 2, 2, 5, 0]
    once, twice = StepCounters(Counters()), StepCounters(Counters())
    once.learned([release(version) for version in versions], 0)
    twice.learned([release(version) for version in versions[:3]], 0)
    twice = StepCounters(twice.counters())
    twice.learned([release(version) for version in versions[3:]], 3)
    assert once.counters() == twice.counters()


def test_counters_of_an_older_version_are_read():
    tally = StepCounters(Counters.model_validate({"learned": 7, "duplicates": 1, "dead": {"stale": 2}}))
    tally.duplicate()
    tally.dead("stale")
    assert tally.counters() == Counters(learned=7, duplicates=2, dead={"stale": 3})
