"""A monitor of chosen tasks on a real cluster, of which one is on another log, and one is deleted."""

import uuid

import pytest

from murk import Task
from murk.monitoring import Monitor
from murk.monitoring.tasks import TaskMonitors
from murk.stream import open_log
from murk.stream.log.kafka.topics import Names
from murk.stream.log.open import find_logs
from tests.monitoring.runs import TEXT
from tests.monitoring.test_tasks import again, announced, make, samples
from tests.services.clients import KafkaAdminClient
from tests.services.services import eventually


@pytest.fixture
def chosen(broker, tmp_path):
    """The names of two tasks on the cluster and one in a file, and the file's URL."""
    names = [f"t{uuid.uuid4().hex[:12]}" for _ in range(3)]
    for name in names[:2]:
        document = Task.parse(TEXT.replace("third-child", name)).document()
        with open_log(f"{broker.url}/{name}") as log:
            log.prepare(document)
            log.register_task(document)
    return names, announced(tmp_path / "log.db", TEXT.replace("third-child", names[2]))


@pytest.mark.parametrize("named", [False, True], ids=["cluster", "logs"])
def test_chosen_tasks_on_several_logs_of_which_one_is_deleted(broker, chosen, named, monkeypatch):
    names, file = chosen
    given = [f"{broker.url}/{name}" for name in names[:2]] if named else [broker.url]
    tasks = TaskMonitors([*given, file], make, names=names)
    assert tasks.search() == {}
    tasks.step()
    assert (tasks.monitors.keys(), tasks.missing(), tasks.trouble()) == (set(names), [], {})
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    try:
        admin.delete_topics(list(Names(names[0]).all))
    finally:
        admin.close()
    eventually(lambda: f"{broker.url}/{names[0]}" not in find_logs(broker.url))
    tasks.search()
    polled = []
    poll = Monitor.poll
    monkeypatch.setattr(Monitor, "poll", lambda monitor: polled.append(monitor.snapshot.task.name) or poll(monitor))
    again(tasks)
    # A poll of the deleted log would wait for its topics, and the other tasks with it.
    assert polled == sorted(names[1:])
    assert tasks.trouble().keys() == {names[0]}
    assert "any more" in tasks.trouble()[names[0]]
    assert [samples(tasks)[name]["murk_log_reachable[]"] for name in names] == [0.0, 1.0, 1.0]
    tasks.close()
