"""Topics deleted, recreated and refilled underneath learners: they stop and say so, and nothing is restarted."""

import pytest

from murk.errors import MurkError, UserError
from murk.stream import open_log
from murk.stream.log.kafka.topics import Topics
from tests.cli import harness
from tests.services.faults.nursery import Nursery
from tests.services.faults.world import caught_up, names, new_log, offsets, put, seen, stock, task_text
from tests.services.test_topics import admin, delete

KINDS = ("releases", "models", "states", "dead")


def without(broker, *wanted):
    with admin(broker) as client:
        delete(client, *wanted)


def anew(broker, url, task):
    """Make those topics that are missing, as `murk topics` does."""
    with admin(broker) as client:
        Topics(client, url, names(url)).create(task)


@pytest.fixture(scope="module")
def children(tmp_path_factory):
    with Nursery(tmp_path_factory.mktemp("topics") / "children", MURK_KAFKA_SESSION_TIMEOUT_MS="1000") as nursery:
        yield nursery


@pytest.fixture
def world(broker, children):
    task, released = stock(2)
    yield task, released, new_log(broker, task), children
    for child in children.children:
        child.kill()


def states_as(url):
    with open_log(url, create=False) as log:
        return [log.checkpoint(partition) for partition in range(2)]


def arrive(broker, url, partitions):
    for partition, values in enumerate(partitions):
        put(broker, url, values, partition)


def part(partitions, first, last):
    return [values[first:last] for values in partitions]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "busy"),
    [("releases", True), ("models", False), ("states", True), ("dead", False)],
    ids=["releases-busy", "models-idle", "states-busy", "dead-idle"],
)
def test_a_topic_is_deleted_while_learners_are_at_work(broker, world, kind, busy):
    task, released, url, nursery = world
    learner = nursery.learner(url)
    early = -100 if busy else 100
    arrive(broker, url, part(released, 0, early))
    if busy:
        seen(url, lambda log: any(offsets(log)))
    else:
        caught_up(url, learner)
    without(broker, getattr(names(url), kind))
    if kind != "releases":
        # A learner that has nothing to write need not look; a busy one may have learned all of the others by now.
        arrive(broker, url, [values[early:][:100] for values in released])
    learner.refused("deleted", limit=120)
    if kind == "states":
        # Not by hand either: where the states are gone, a new topic for them has none.
        anew(broker, url, task)
        nursery.learner(url).refused(names(url).states, "deleted", limit=120)
        assert all(point.state is None for point in states_as(url))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "busy"), [("releases", True), ("states", False)], ids=["releases-busy", "states-idle"],
)  # fmt: skip
def test_a_topic_is_recreated_while_learners_are_at_work(broker, world, kind, busy):
    task, released, url, nursery = world
    learner = nursery.learner(url)
    first = part(released, 0, 700)
    arrive(broker, url, first)
    if busy:
        seen(url, lambda log: any(offsets(log)))
    else:
        caught_up(url, learner)
    # So quickly that a learner may not have noticed that it was gone.
    without(broker, getattr(names(url), kind))
    anew(broker, url, task)
    if kind == "releases":
        # Refilled, and beyond where it was.
        arrive(broker, url, first)
    arrive(broker, url, part(released, 700, 1000))
    learner.refused("deleted", limit=120)
    if kind != "models":
        nursery.learner(url).refused("deleted", limit=120)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_topic_is_recreated_while_nobody_looks(broker, world, kind):
    """The next learner refuses; `murk topics` makes what is missing and neither hides nor fixes it."""
    _, released, url, nursery = world
    harness.world(nursery.folder, rows=1, task=task_text(2))
    arrive(broker, url, part(released, 0, 100))
    learner = nursery.learner(url)
    caught_up(url, learner)
    assert learner.stop() == 0, learner.err
    without(broker, getattr(names(url), kind))
    created = nursery.murk("topics", "task.yaml", "--log", url, "--simulated")
    if kind == "models":
        # The task, and what topics it is about, stand there; all that matters is still there, and said again.
        assert created.wait() == 0, created.err
        learner = nursery.learner(url)
        arrive(broker, url, part(released, 100, 200))
        caught_up(url, learner)
        assert learner.stop() == 0, learner.err
        with open_log(url, create=False) as log:
            assert all(log.model(partition) is not None for partition in range(2))
        return
    created.wait()
    before = states_as(url)
    assert all((point.state is None) == (kind == "states") for point in before)
    nursery.learner(url).refused(getattr(names(url), kind), "deleted", limit=120)
    if kind == "releases":
        arrive(broker, url, part(released, 0, 200))
        nursery.learner(url).refused(names(url).releases, "deleted", limit=120)
    assert states_as(url) == before


@pytest.mark.slow
def test_a_log_that_lost_its_task_and_its_states_is_not_begun_anew(broker, world):
    task, released, url, nursery = world
    put(broker, url, released[0][:50])
    without(broker, names(url).models, names(url).states)
    anew(broker, url, task)
    with open_log(url) as log, pytest.raises(MurkError, match="releases"):
        log.register_task(task.document())
    nursery.learner(url).refused("task", status=2)


@pytest.mark.slow
def test_a_log_that_lost_the_topic_of_its_task_takes_that_task_only(broker, world):
    task, released, url, nursery = world
    arrive(broker, url, part(released, 0, 100))
    learner = nursery.learner(url)
    caught_up(url, learner)
    assert learner.stop() == 0, learner.err
    before = states_as(url)
    without(broker, names(url).models)
    anew(broker, url, task)
    with open_log(url) as log:
        assert log.document() is None
        with pytest.raises(UserError, match="states of another task"):
            log.register_task(task.with_simulated(False).document())
        log.register_task(task.document())
    assert states_as(url) == before
    learner = nursery.learner(url)
    arrive(broker, url, part(released, 100, 200))
    caught_up(url, learner)
    assert learner.stop() == 0, learner.err
