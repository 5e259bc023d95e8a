"""A monitor of several tasks: each apart from the others, also when one appears late or cannot be read."""

import json
import shutil
from email.message import Message
from functools import partial
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from murk import Task
from murk.errors import MurkError, UserError
from murk.monitoring import Monitor
from murk.monitoring.tasks import TaskMonitors
from murk.monitoring.web.routes import PAGE
from murk.monitoring.web.task_routes import TaskRoutes
from murk.stream import open_log
from murk.stream.log import search as module
from murk.stream.log.interface import NO_LOG, UnreachableError
from tests.cli.harness import murk, refused
from tests.cli.processes import Process
from tests.monitoring.runs import PEOPLE, TEXT, TRUTH, copied, finished
from tests.monitoring.runs import url as url_of
from tests.monitoring.test_monitor_cli import fetch, ready, says, start, stop, until

EXAMPLES = TEXT.replace("third-child", "examples").partition("protocol:")[0] + "protocol: examples\n"
LATE = TEXT.replace("third-child", "late")


def make(log, task):
    return Monitor(log, task, reopen=partial(open_log, log.url, create=False))


def announced(path: Path, text: str) -> str:
    """The URL of a new log that carries a task."""
    url = f"sqlite:///{path}"
    with open_log(url) as log:
        log.register_task(Task.parse(text).document())
    return url


@pytest.fixture
def two(tmp_path):
    """Monitors of a finished run and of a task that nobody has released to, and the folder of their logs."""
    copied(tmp_path)
    tasks = TaskMonitors([url_of(tmp_path), announced(tmp_path / "examples.db", EXAMPLES)], make)
    assert tasks.search() == {}
    tasks.step()
    yield tasks, tmp_path
    tasks.close()


def again(tasks: TaskMonitors) -> None:
    """Poll every task, due or not."""
    tasks._due.clear()
    tasks.step()


def asked(tasks: TaskMonitors, path: str):
    route = TaskRoutes(tasks).get(path)
    return None if route is None else route(Message())


def samples(tasks: TaskMonitors) -> dict[str, dict[str, float]]:
    """Values by task and by the rest of their name."""
    found: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(asked(tasks, "/metrics").body.decode()):
        for sample in family.samples:
            if sample.name.startswith("murk_"):
                rest = {key: value for key, value in sample.labels.items() if key != "task"}
                found.setdefault(sample.labels["task"], {})[f"{sample.name}{sorted(rest.items())}"] = sample.value
    return found


def test_no_series_of_a_task_is_among_those_of_another(two):
    tasks, _ = two
    found = samples(tasks)
    assert found.keys() == {"examples", "third-child"}
    for name, monitor in tasks.monitors.items():
        alone = {
            f"{sample.name}{sorted((k, v) for k, v in sample.labels.items() if k != 'task')}": sample.value
            for family in monitor.registry.collect()
            for sample in family.samples
        }
        assert {key: value for key, value in found[name].items() if not key.startswith("murk_build_info")} == alone
    assert found["third-child"]["murk_releases_total[('result', 'learned')]"] == PEOPLE
    assert found["examples"]["murk_releases_total[('result', 'learned')]"] == 0
    assert not any(key.startswith("murk_staleness") for key in found["examples"])


def test_the_list_leads_to_each_tasks_page(two):
    tasks, _ = two
    assert asked(tasks, "/").body == asked(tasks, "/index.html").body == (PAGE / "tasks.html").read_bytes()
    listed = json.loads(asked(tasks, "/api/tasks").body)
    assert [(each["name"], each["releases"]) for each in listed["tasks"]] == [("examples", 0), ("third-child", PEOPLE)]
    assert listed["problems"] == []
    # Who asks at the address of a single task learns where the tasks are.
    assert json.loads(asked(tasks, "/api/status").body)["tasks"] == listed["tasks"]
    for name, releases in (("examples", 0), ("third-child", PEOPLE)):
        page = f"/tasks/{name}"
        assert asked(tasks, f"{page}/").body == (PAGE / "index.html").read_bytes()
        assert asked(tasks, f"{page}/page.css").body == (PAGE / "page.css").read_bytes()
        status = json.loads(asked(tasks, f"{page}/api/status").body)
        assert (status["task"]["name"], status["releases"]) == (name, releases)
        assert asked(tasks, f"{page}/healthz")[::2] == (200, b"ok\n")
        assert f'task="{name}"' in asked(tasks, f"{page}/metrics").body.decode()
    for path in ("/tasks/", "/tasks/none/", "/tasks/examples", "/tasks/examples/../third-child/", "/tasks//"):
        assert asked(tasks, path) is None, path
    assert asked(tasks, "/runbook/MurkLag").status == 200


def test_a_single_task_is_at_the_addresses_of_old(tmp_path):
    copied(tmp_path)
    tasks = TaskMonitors([url_of(tmp_path)], make)
    tasks.search()
    tasks.step()
    assert asked(tasks, "/").body == asked(tasks, "/tasks/third-child/").body == (PAGE / "index.html").read_bytes()
    assert asked(tasks, "/api/status") == asked(tasks, "/tasks/third-child/api/status")
    assert json.loads(asked(tasks, "/api/status").body)["releases"] == PEOPLE
    shutil.move(tmp_path / "log.db", tmp_path / "away.db")
    tasks.monitors["third-child"].poll()
    status, _, body = asked(tasks, "/healthz")
    assert (status, body) == (503, asked(tasks, "/tasks/third-child/healthz").body)
    assert not body.startswith(b"third-child:")
    tasks.close()


@pytest.mark.parametrize("spoil", [Path.unlink, lambda path: path.write_bytes(b"not a log")], ids=["gone", "damaged"])
def test_a_log_that_is_gone_or_damaged_does_not_stop_the_others(two, spoil):
    tasks, folder = two
    before = samples(tasks)["examples"]
    for path in folder.glob("examples.db?*"):
        path.unlink()
    spoil(folder / "examples.db")
    seen = tasks.monitors["third-child"].snapshot.now
    again(tasks)
    assert tasks.trouble().keys() == {"examples"}
    assert tasks.monitors["third-child"].snapshot.now > seen
    status, _, body = asked(tasks, "/healthz")
    assert (status, body.splitlines()[0]) == (200, b"ok, except:")
    assert body.splitlines()[1].startswith(b"examples: ")
    assert asked(tasks, "/tasks/third-child/healthz").status == 200
    assert asked(tasks, "/tasks/examples/healthz").status == 503
    listed = {each["name"]: each for each in json.loads(asked(tasks, "/api/tasks").body)["tasks"]}
    assert (listed["examples"]["healthy"], listed["third-child"]["healthy"]) == (False, True)
    assert listed["examples"]["problem"] in body.decode()
    # Its figures stay; only whether it can be read has changed.
    after = samples(tasks)["examples"]
    assert {key for key in after if after[key] != before[key]} == {"murk_log_reachable[]"}
    for path in folder.glob("log.db*"):
        path.unlink()
    again(tasks)
    assert asked(tasks, "/healthz").status == 503


def test_a_task_that_appears_later_is_found(two):
    tasks, folder = two
    tasks._urls = (*tasks._urls, f"sqlite:///{folder}/late.db")
    assert [opened for _, opened in tasks.search().values()] == [False]
    assert "there is no log" in tasks.problems[f"sqlite:///{folder}/late.db"]
    assert asked(tasks, "/healthz").status == 200
    assert json.loads(asked(tasks, "/api/tasks").body)["problems"][0]["log"].endswith("late.db")
    announced(folder / "late.db", LATE)
    tasks._next_search = 0.0
    tasks.step()
    assert tasks.monitors.keys() == {"examples", "late", "third-child"}
    assert (tasks.problems, tasks.trouble()) == ({}, {})
    assert samples(tasks)["late"]["murk_log_reachable[]"] == 1


def test_a_log_that_its_cluster_no_longer_has_is_not_polled(tmp_path, monkeypatch):
    copied(tmp_path)
    announced(tmp_path / "examples.db", EXAMPLES)
    there = ["log.db", "examples.db"]
    monkeypatch.setattr(module, "find_logs", lambda url, names: [f"{url}/{name}" for name in there])
    tasks = TaskMonitors([f"sqlite:///{tmp_path}"], make)
    assert tasks.search() == {}
    tasks.step()
    polled = []
    monkeypatch.setattr(Monitor, "poll", lambda monitor: polled.append(monitor.snapshot.task.name) or True)
    for names, expected in ((["log.db"], ["third-child"]), (["log.db", "examples.db"], ["examples", "third-child"])):
        there[:] = names
        tasks._next_search = 0.0
        polled.clear()
        again(tasks)
        assert polled == expected
        if len(names) == 1:
            assert tasks.trouble().keys() == {"examples"}
            assert "no log at" in tasks.trouble()["examples"]
    tasks.close()


@pytest.mark.parametrize("names", [(), ("third-child",)])
def test_a_log_that_was_its_clusters_last_or_chosen_is_not_polled_once_it_is_gone(tmp_path, monkeypatch, names):
    copied(tmp_path)
    there = [url_of(tmp_path)]

    def find(url, wanted):
        if not there and not wanted:
            raise UserError(f"there is no log at {url}", code=NO_LOG)
        return there

    monkeypatch.setattr(module, "find_logs", find)
    tasks = TaskMonitors(["kafka://here:9092"], make, names=names)
    assert tasks.search() == {}
    tasks.step()
    there.clear()
    tasks.search()
    polled = []
    monkeypatch.setattr(Monitor, "poll", lambda monitor: polled.append(monitor) or True)
    again(tasks)
    assert polled == []
    assert "any more" in tasks.trouble()["third-child"]
    # A cluster that does not answer has not lost its logs.
    there.append(url_of(tmp_path))
    tasks.search()

    def away(url, wanted):
        raise UnreachableError(f"{url} does not answer")

    monkeypatch.setattr(module, "find_logs", away)
    tasks.search()
    again(tasks)
    assert len(polled) == 1
    tasks.close()


def test_a_task_whose_log_could_never_be_read_is_in_the_metrics(two, monkeypatch):
    tasks, folder = two
    listed = ["kafka://here:9092/damaged", "kafka://here:9092/third-child"]
    monkeypatch.setattr(module, "find_logs", lambda url, _: listed if url == "kafka://here:9092" else [url])

    def open_any(url, *, create):
        if url.startswith("kafka://"):
            raise MurkError(f"{url} is damaged")
        return open_log(url, create=create)

    monkeypatch.setattr(module, "open_log", open_any)
    (folder / "damaged.db").write_bytes(b"no log" * 1000)
    tasks._urls = (*tasks._urls, "kafka://here:9092", f"sqlite:///{folder}/damaged.db")
    tasks.search()
    found = samples(tasks)
    assert found["damaged"] == {"murk_log_reachable[]": 0.0}
    # Another log by the name of a task that is monitored is not that task's.
    assert found["third-child"]["murk_log_reachable[]"] == 1.0
    assert found.keys() == {"damaged", "examples", "third-child"}
    assert tasks.problems.keys() == {*listed, f"sqlite:///{folder}/damaged.db"}
    listed.clear()
    tasks.search()
    assert samples(tasks).keys() == {"examples", "third-child"}


def test_two_logs_of_one_task_are_not_mixed(two):
    tasks, folder = two
    twin = announced(folder / "twin.db", TEXT)
    tasks._urls = (*tasks._urls, twin)
    [(error, opened)] = tasks.search().values()
    assert opened
    assert isinstance(error, UserError)
    assert f"carries a task 'third-child', as {url_of(folder)} does" in str(error)
    assert samples(tasks)["third-child"]["murk_releases_total[('result', 'learned')]"] == PEOPLE


def test_only_chosen_tasks_are_monitored(tmp_path):
    urls = [url_of(finished()[0]), announced(tmp_path / "examples.db", EXAMPLES)]
    tasks = TaskMonitors(urls, make, names=["examples", "none"])
    tasks.search()
    assert list(tasks.monitors) == ["examples"]
    assert tasks.missing() == ["none"]
    assert tasks.trouble()["none"].startswith("no log that this user may see carries this task")
    assert samples(tasks)["none"] == {"murk_log_reachable[]": 0.0}
    tasks.close()


def test_the_command_serves_all_logs_that_it_is_given(tmp_path):
    folder = finished()[0]
    urls = [url_of(folder), announced(tmp_path / "examples.db", EXAMPLES)]
    for name, truth in (("all", TRUTH), ("one", dict.fromkeys(TRUTH, 0.0))):
        (tmp_path / f"{name}.json").write_text(json.dumps(truth))
    (tmp_path / "damaged.db").write_bytes(b"no log" * 1000)
    (tmp_path / "wrong.json").write_text(json.dumps({"ages": 1.0}))
    given = [*urls, "sqlite:///late.db", "sqlite:///later.db", "sqlite:///damaged.db"]
    logs = [word for one in given for word in ("--log", one)]
    process: Process = start(
        "monitor", *logs, "--wait", "--port", 0, "--interval", 0.1, "--json", "--reference", "all.json",
        "--reference", "examples=one.json", "--reference", "later=wrong.json", folder=tmp_path,
    )  # fmt: skip
    try:
        address = ready(process)

        def tasks():
            return {each["name"]: each for each in json.loads(fetch(address + "/api/tasks"))["tasks"]}

        assert tasks().keys() == {"examples", "third-child"}
        announced(tmp_path / "late.db", LATE)
        assert until(lambda: tasks().keys() == {"examples", "late", "third-child"}, process)
        references = {
            name: json.loads(fetch(f"{address}/tasks/{name}/api/status"))["reference"] for name in sorted(tasks())
        }
        assert references == {"examples": dict.fromkeys(TRUTH, 0.0), "late": TRUTH, "third-child": TRUTH}
        assert "process_cpu_seconds_total" in fetch(address + "/metrics")
        announced(tmp_path / "later.db", LATE.replace("late", "later"))
        wrong = "--reference later=wrong.json and the task 'later': the reference does not fit the task: 'ages' unknown"
        assert until(lambda: wrong in fetch(address + "/healthz"), process)
        assert 'murk_log_reachable{task="later"} 0.0' in fetch(address + "/metrics")
        says(process, "sqlite:///damaged.db: cannot use the log: ")
        says(process, "sqlite:///late.db: the log can be used now")
        says(process, f"sqlite:///later.db: cannot use the log: {wrong}")
        stop(process)
    finally:
        process.kill()


def test_a_log_or_task_that_is_not_there_is_named(tmp_path):
    there = url_of(finished()[0])

    def monitor(*arguments):
        return murk("monitor", "--port", 0, *arguments, folder=tmp_path)

    refused(monitor("--log", there, "--log", "sqlite:///nothing.db"), "there is no log at nothing.db")
    # All logs carry other tasks, so that waiting is of no use.
    for more in ([], ["--wait"]):
        refused(monitor("--log", there, "--task", "none", *more), "no log carries the task none; there are third-child")
    (tmp_path / "truth.json").write_text(json.dumps(TRUTH))
    done = monitor("--log", there, "--reference", "none=truth.json")
    refused(done, "--reference none=truth.json: no task 'none' is monitored")
    refused(monitor("--log", there, "--known-within", "ages=0.1"), "ages: no coefficient of the task")
    (tmp_path / "truth.json").write_text('{"ages": 1}')
    for text in ("third-child=truth.json", "truth.json"):
        words = f"--reference {text} and the task 'third-child': the reference does not fit the task: 'ages' unknown"
        refused(monitor("--log", there, "--reference", text), words)
