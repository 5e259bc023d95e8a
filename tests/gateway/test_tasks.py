"""One gateway for the tasks of several logs: each apart from the others, also when one appears late or fails."""

import contextlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from murk import Task
from murk.errors import UserError
from murk.gateway import group_commit
from murk.gateway import tasks as tasks_module
from murk.gateway.app import Settings
from murk.gateway.binary_http import PADDING
from murk.gateway.oblivious import ObliviousKeys
from murk.gateway.server import GatewayServer
from murk.gateway.tasks import GatewayTasks
from murk.protocols.device import device_for
from murk.stream import Worker, open_log
from murk.stream.log import search
from murk.stream.log.interface import UnreachableError
from murk.stream.log.sqlite import SqliteLog
from tests.cli.harness import finish, murk, refused
from tests.gateway.devices import TASK, Client, honest, release, stored, wire
from tests.gateway.relayed import Sealed, ask, decoded, message
from tests.gateway.test_command import begun
from tests.services.services import eventually


def named(name: str, **keys: object) -> Task:
    text = TASK.replace("third-child", name, 1)
    lines = [line for line in text.splitlines() if line.partition(":")[0] not in keys]
    return Task.parse("\n".join([*lines, *(f"{key}: {json.dumps(value)}" for key, value in keys.items())]))


def announced(folder: Path, of: Task) -> str:
    url = f"sqlite:///{folder}/{of.name}.db"
    with open_log(url) as log:
        log.register_task(of.document())
    return url


@contextlib.contextmanager
def serving(urls, names=(), **settings) -> Iterator[tuple[GatewayServer, GatewayTasks]]:
    """A gateway of several logs, whose search and checks run in a thread of their own."""
    ended, errors = threading.Event(), []
    with GatewayServer(settings=Settings(rate=0, **settings)) as gateway:
        tasks = GatewayTasks(gateway, urls, names, interval=0.01)
        tasks.search()

        def run() -> None:
            try:
                is_last = False
                while not is_last:
                    is_last = ended.wait(0.01)
                    tasks.step()
            except Exception as error:  # noqa: BLE001 - raised below
                errors.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield gateway, tasks
        finally:
            ended.set()
            thread.join()
            tasks.close()
    if errors:
        raise errors[0]


def samples(gateway: GatewayServer) -> dict[tuple[str, str], float]:
    """Values of the metrics, by name and task, summed over their other labels."""
    found: dict[tuple[str, str], float] = {}
    for family in text_string_to_metric_families(generate_latest(gateway.registry).decode()):
        for sample in family.samples:
            key = sample.name, sample.labels["task"]
            found[key] = found.get(key, 0.0) + sample.value
    return found


@pytest.fixture
def two(tmp_path):
    """Two tasks with different releases, models and expiries, and the URLs of their logs."""
    about = dict.fromkeys(("purpose", "controller"), "many words " * 80)
    tasks = named("first"), named("second", protocol="gradients", expiry="14d", log={"retention": "30d"}, about=about)
    return tasks, [announced(tmp_path, each) for each in tasks]


def test_each_task_has_its_own_paths_releases_and_metrics(two):
    tasks, urls = two
    with serving(urls) as (gateway, _), Client(gateway.url) as client:
        assert client.get("/v1/tasks").json == {"tasks": [{"name": each.name, "hash": each.hash} for each in tasks]}
        sent = [honest(each, 3) for each in tasks]
        for of, messages in zip(tasks, sent, strict=True):
            answer = client.get(f"/v1/tasks/{of.name}")
            assert (answer.body, answer.headers["murk-task-hash"]) == (of.document(), of.hash)
            assert client.post(*messages, name=of.name).json == {"accepted": 3, "refused": []}
        # A release counts for its own task only.
        assert client.post(sent[0][0], name="second").json["accepted"] == 0
        assert client.post(sent[0][0], name="third").json == {"error": "unknown-task"}
        assert client.get("/healthz").status == 200
        found = samples(gateway)
        assert [found["murk_gateway_releases_total", name] for name in ("first", "second")] == [3, 3]
        assert [found["murk_gateway_requests_total", name] for name in ("first", "second", "")] == [2, 3, 3]
    assert [sorted(stored(url)) for url in urls] == [sorted(messages) for messages in sent]


def test_the_description_has_every_task_once(two):
    tasks, urls = two
    with serving(urls) as (gateway, _), Client(gateway.url) as client:
        described = client.get("/openapi.json").json
    assert {f"/v1/tasks/{each.name}/releases" for each in tasks} < described["paths"].keys()
    names = [operation["operationId"] for path in described["paths"].values() for operation in path.values()]
    assert len(set(names)) == len(names)
    text = json.dumps(described)
    for of in tasks:
        assert f'"$ref": "#/components/schemas/Release-{of.name}"' in text
        assert f"Release-{of.name}" in described["components"]["schemas"]
    assert '#/components/schemas/Release"' not in text


def test_a_relay_cannot_tell_the_tasks_apart(two, tmp_path):
    """One key opens requests of all tasks, and answers about any of them have the same length."""
    tasks, urls = two
    with open_log(urls[1]) as log, Worker(log, tasks[1], device_for(tasks[1]).engine()) as worker:
        log.append([(0, each) for each in honest(tasks[1], 2)])
        worker.step()
        assert log.model(0) is not None
    keys = ObliviousKeys.load([str(tmp_path / "key")])
    with serving(urls, keys=keys) as (gateway, _), Client(gateway.url) as client:
        configuration = client.get("/ohttp-keys").body
        eventually(lambda: client.get("/v1/tasks/second/model").status == 200)
        lengths = set()
        for of in tasks:
            for method, path, content in (
                ("GET", "/model", b""),
                ("POST", "/releases", wire(release(of)) if of.name == "first" else honest(of, 1)[0]),
            ):
                fields = {"content-type": "application/json"}
                sealed = Sealed(configuration, message(method, f"/v1/tasks/{of.name}{path}", fields, content))
                answer = client.ask("POST", "/ohttp", sealed.bytes, Content_Type="message/ohttp-req")
                assert decoded(sealed.open(answer.body)).status in (200, 202, 204, 404)
                lengths.add(len(answer.body))
                # The longest expiry of all tasks decides how long it is recognised.
                again = client.ask("POST", "/ohttp", sealed.bytes, Content_Type="message/ohttp-req")
                assert (again.status, again.json) == (409, {"error": "repeated"})
        assert len(lengths) == 1
        assert len(tasks[1].document()) > len(tasks[0].document()) + PADDING
        reads = [
            Sealed(configuration, message("GET", f"/v1/tasks/{name}", {})) for name in ("first", "second", "third")
        ]
        answers = [client.ask("POST", "/ohttp", each.bytes, Content_Type="message/ohttp-req") for each in reads]
        opened = [decoded(each.open(answer.body)) for each, answer in zip(reads, answers, strict=True)]
        assert [each.status for each in opened] == [200, 200, 404]
        assert len({len(answer.body) for answer in answers}) == 1
        found = samples(gateway)
        # The status within, of the task within.
        assert found["murk_gateway_requests_total", "first"] == 3
        assert ask(client, "GET", "/v1/tasks").json["tasks"] == [
            {"name": each.name, "hash": each.hash} for each in tasks
        ]


def test_a_task_that_appears_later_is_served(two, tmp_path):
    (first, second), urls = two
    late = named("late", expiry="30d", log={"retention": "31d"})
    urls.append(f"sqlite:///{tmp_path}/late.db")
    with serving(urls) as (gateway, tasks), Client(gateway.url) as client:
        assert client.get("/v1/tasks/late").status == 404
        assert "there is no log" in tasks.trouble()[urls[2]]
        announced(tmp_path, late)
        eventually(lambda: client.get("/v1/tasks/late").status == 200)
        eventually(lambda: tasks.trouble() == {})
        for of in (first, late):
            assert client.post(wire(release(of)), name=of.name).status == 202
        assert second.name in tasks.running


def test_a_log_that_fails_does_not_stop_the_others(two, monkeypatch):
    (first, second), urls = two
    message = honest(second, 1)[0]
    append = SqliteLog.append

    def failing(log, batch):
        if "first" in log.url:
            raise OSError("a disk that is full")
        append(log, batch)

    monkeypatch.setattr(SqliteLog, "append", failing)
    monkeypatch.setattr(group_commit, "CHECK", 1e9)  # the log can still be read
    with serving(urls) as (gateway, tasks), Client(gateway.url) as client:
        assert client.post(wire(release(first)), name="first").status == 503
        assert client.post(message, name="second").status == 202
        assert client.get("/healthz").status == 200
        found = samples(gateway)
        assert [found["murk_gateway_log_reachable", name] for name in ("first", "second")] == [0, 1]
        assert tasks.trouble().keys() == {"first"}
        assert tasks.health()[0]


def test_a_task_that_fails_unexpectedly_is_served_again(two, monkeypatch):
    """Its devices are asked to retry meanwhile, also those whose releases wait, and the other task goes on."""
    monkeypatch.setattr(group_commit, "CHECK", 0.0)
    monkeypatch.setattr(tasks_module, "FIRST_PAUSE", 0.01)
    (first, second), urls = two
    message, begin, fails = honest(second, 1)[0], SqliteLog.begin, threading.Event()

    def failing(log, partition):
        if fails.is_set() and "first" in log.url:
            raise KeyError("S3CR3T")
        return begin(log, partition)

    monkeypatch.setattr(SqliteLog, "begin", failing)
    with serving(urls) as (gateway, tasks), Client(gateway.url) as client:
        assert client.get("/healthz").json == {"unavailable": []}
        fails.set()
        for _ in range(3):
            eventually(lambda: "unexpected KeyError" in tasks.trouble().get("first", ""))
            eventually(lambda: tasks.running["first"]._appending.closed)
            answer = client.post(wire(release(first)), name="first")
            assert (answer.status, answer.headers["retry-after"]) == (503, "5")
        assert client.post(message, name="second").status == 202
        assert (client.get("/healthz").status, client.get("/healthz").json) == (200, {"unavailable": ["first"]})
        assert "S3CR3T" not in str(tasks.trouble())
        found = samples(gateway)
        assert [found["murk_gateway_log_reachable", name] for name in ("first", "second")] == [0, 1]
        # A device that got a task or model now would pay for a release that may be refused.
        assert [client.get(f"/v1/tasks/first{path}").status for path in ("", "/model")] == [503, 503]
        fails.clear()
        eventually(lambda: client.post(wire(release(first)), name="first").status == 202)
        assert client.get("/healthz").json == {"unavailable": []}
        assert samples(gateway)["murk_gateway_log_reachable", "first"] == 1
    assert len(stored(urls[0])) == 1


def test_health_names_no_task_without_the_token(two, monkeypatch):
    _, urls = two
    with serving(urls, token="T" * 32) as (gateway, tasks), Client(gateway.url) as client:
        monkeypatch.setattr(group_commit, "CHECK", 1e9)
        tasks.running["first"]._appending.trouble = "away"
        assert client.get("/healthz").json == {"unavailable": 1}
        known = client.get("/healthz", Authorization=f"Bearer {'T' * 32}")
        assert known.json == {"unavailable": ["first"]}


@pytest.mark.parametrize("same", [True, False])
def test_a_log_that_is_replaced_is_opened_again(two, tmp_path, monkeypatch, same):
    """Nothing is acknowledged that went to the old file, or to a file with another task."""
    monkeypatch.setattr(tasks_module, "FIRST_PAUSE", 0.01)
    (first, _), urls = two
    other = first if same else named("first", expiry="3d")
    with serving(urls) as (gateway, tasks), Client(gateway.url) as client:
        assert client.post(wire(release(first)), name="first").status == 202
        for file in tmp_path.glob("first.db*"):
            file.unlink()
        assert client.post(wire(release(first)), name="first").status == 503
        # A device that got the former task or model would pay for a release that may be refused.
        assert [client.get(f"/v1/tasks/first{path}").status for path in ("", "/model")] == [503, 503]
        assert client.get("/v1/tasks/second").status == 200
        announced(tmp_path, other)
        eventually(
            lambda: client.get("/v1/tasks/first").headers.get("murk-task-hash") == other.hash and not tasks.trouble()
        )
        assert client.post(wire(release(first)), name="first").status == (202 if same else 409)
        assert client.post(wire(release(other)), name="first").status == 202
        # Counters are those since the gateway's start.
        assert samples(gateway)["murk_gateway_releases_total", "first"] == 2 + same
    assert len(stored(urls[0])) == 1 + same


def test_two_logs_of_one_task_are_not_mixed(two, tmp_path):
    (first, _), urls = two
    (tmp_path / "other").mkdir()
    urls.append(announced(tmp_path / "other", first))
    with serving(urls) as (gateway, tasks), Client(gateway.url) as client:
        assert tasks.trouble().keys() == {urls[2]}
        assert "carries a task 'first', as" in tasks.trouble()[urls[2]]
        assert client.post(wire(release(first)), name="first").status == 202
        assert client.get("/healthz").json == {"unavailable": []}
    assert [len(stored(url)) for url in urls] == [1, 0, 0]


def test_health_names_a_task_whose_log_was_never_opened(two):
    _, urls = two
    with serving(urls, ["first", "late"]) as (gateway, _), Client(gateway.url) as client:
        assert (client.get("/healthz").status, client.get("/healthz").json) == (200, {"unavailable": ["late"]})


def test_a_log_of_another_name_does_not_take_a_tasks_place(two, tmp_path, monkeypatch):
    """Of a cluster's logs the one with the task's name serves it, also if it is listed later or cannot be opened."""
    (first, second), _ = two
    urls = {
        f"kafka://here:9092/{name}": announced(tmp_path / name, of)
        for name, of in (("another", first), ("first", first), ("nobody", second))
        if not (tmp_path / name).mkdir()
    }
    away = {"kafka://here:9092/first"}

    def open_any(url, *, create):
        if url in away:
            raise UnreachableError("no broker answers")
        return open_log(urls.get(url, url), create=create)

    monkeypatch.setattr(search, "find_logs", lambda url, names: list(urls))
    monkeypatch.setattr(search, "open_log", open_any)
    with GatewayServer() as gateway:
        tasks = GatewayTasks(gateway, ["kafka://here:9092"])
        for there in ({"second"}, {"first", "second"}):
            tasks.search()
            assert tasks.running.keys() == there
            assert "whose log is kafka://here:9092/first" in tasks.trouble()["kafka://here:9092/another"]
            away.clear()
        assert tasks.running["first"].url == urls["kafka://here:9092/first"]
        tasks.close()


@pytest.mark.parametrize("is_named", [True, False])
def test_a_clusters_log_that_becomes_a_shuffled_tasks_is_left_out(two, tmp_path, monkeypatch, is_named):
    """Also before a shuffler has claimed it; it is served if its own URL was given."""
    monkeypatch.setattr(tasks_module, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(group_commit, "CHECK", 0.0)
    tasks, files = two
    urls = {f"kafka://here:9092/{of.name}": file for of, file in zip(tasks, files, strict=True)}
    shuffled = named("first", privacy={"guarantee": {"pure": {"epsilon": 4.0}}}, shuffle={"crowd": 1000})

    def open_any(url, *, create):
        log = open_log(urls[url], create=create)
        log.url = url
        return log

    monkeypatch.setattr(search, "find_logs", lambda url, names: list(urls))
    for module in (search, tasks_module):
        monkeypatch.setattr(module, "open_log", open_any)
    given = ["kafka://here:9092", *(list(urls)[:1] if is_named else [])]
    with serving(given) as (gateway, running), Client(gateway.url) as client:
        assert running.running.keys() == {"first", "second"}
        for file in tmp_path.glob("first.db*"):
            file.unlink()
        announced(tmp_path, shuffled)
        thread = running.running["first"]
        if is_named:
            eventually(lambda: client.post(wire(release(shuffled)), name="first").status == 202)
        else:
            eventually(lambda: thread.error is not None)
            assert "give the URL of its shuffler's input log as --log, too" in running.trouble()["first"]
            assert client.post(wire(release(shuffled)), name="first").status == 503
        assert client.get("/v1/tasks/second").status == 200
    assert len(stored(files[0])) == is_named


def test_only_chosen_tasks_are_served(two):
    _, urls = two
    with serving(urls, ["first"]) as (gateway, tasks), Client(gateway.url) as client:
        assert tasks.trouble() == {}
        assert [each["name"] for each in client.get("/v1/tasks").json["tasks"]] == ["first"]
        assert client.get("/v1/tasks/second").status == 404


@pytest.mark.parametrize("alone", [True, False])
def test_the_log_of_a_shuffler_gets_nothing(two, tmp_path, monkeypatch, alone):
    """An only task ends the gateway, as its operator has to name another log; beside others it is reported."""
    monkeypatch.setattr(group_commit, "CHECK", 0.0)
    (first, _), urls = two
    pure = {"guarantee": {"pure": {"epsilon": 4.0}}}
    shuffled = named("hidden", privacy=pure, shuffle={"crowd": 1000})
    urls = [announced(tmp_path, shuffled), *([] if alone else urls)]

    def claimed() -> None:
        with serving(urls) as (gateway, tasks), Client(gateway.url) as client:
            with open_log(urls[0]) as log:
                log.claim("0" * 32)
            eventually(lambda: tasks.running["hidden"].error is not None)
            assert client.post(b"{}", name="hidden").status == 503
            assert "shuffler's input log" in tasks.trouble()["hidden"]
            assert client.get("/healthz").status == (503 if alone else 200)
            if not alone:
                assert client.post(wire(release(first)), name="first").status == 202

    if alone:
        with pytest.raises(UserError, match="shuffler's input log"):
            claimed()
    else:
        claimed()
    assert stored(urls[0]) == []


def test_a_gateways_only_log_that_is_replaced_by_a_shufflers_ends_it(tmp_path, monkeypatch):
    monkeypatch.setattr(tasks_module, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(group_commit, "CHECK", 0.0)
    shuffled = named("hidden", privacy={"guarantee": {"pure": {"epsilon": 4.0}}}, shuffle={"crowd": 1000})
    (tmp_path / "other").mkdir()
    url = announced(tmp_path, shuffled)
    with open_log(announced(tmp_path / "other", shuffled)) as log:
        log.claim("0" * 32)

    def replaced() -> None:
        with serving([url]) as (_, tasks):
            for file in tmp_path.glob("hidden.db*"):
                file.unlink()
            (tmp_path / "other" / "hidden.db").rename(tmp_path / "hidden.db")
            eventually(lambda: tasks.running["hidden"].error is not None)

    with pytest.raises(UserError, match="shuffler's input log"):
        replaced()


def test_the_command_serves_all_logs_that_it_is_given(two, tmp_path):
    (first, second), urls = two
    process, address = begun(urls[0], tmp_path, "--log", urls[1])
    with Client(address) as client:
        for of in (first, second):
            assert client.get(f"/v1/tasks/{of.name}").body == of.document()
        assert client.post(wire(release(first)), name="first").status == 202
    process.terminate()
    done = finish(process)
    assert (done.status, done.err) == (0, "stopped\n")
    assert len(stored(urls[0])) == 1
    several = ["--log", urls[0], "--log", urls[1], "--port", 0]
    refused(murk("gateway", *several, "--task", "none", folder=tmp_path), "there are first, second")
    refused(murk("gateway", *several, "--shuffle", "sqlite:///out.db", folder=tmp_path), "give one --log")
