"""The command: what it prints, how it waits and ends, and what it refuses."""

import json
import signal
import sqlite3
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from murk.cli import metrics
from murk.errors import UserError
from murk.monitoring.metrics.catalogue import METRICS
from murk.monitoring.reference import MOST_BYTES, check_reference, read_reference
from murk.populations import FileSource
from tests.cli.harness import ROOT, finish, murk, refused, start
from tests.cli.processes import Process
from tests.monitoring.runs import PEOPLE, TEXT, TRUTH, finished, url
from tests.producers.world import World, make_task, run_blocks, write_people
from tools.metrics_table import table

LIMIT = 120.0


def fetch(address: str) -> str:
    with urllib.request.urlopen(address, timeout=30) as response:
        return response.read().decode()


def until(holds, process):
    """Wait until something holds while a process runs."""
    limit = time.monotonic() + LIMIT
    while not (found := holds()):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < limit
        time.sleep(0.05)
    return found


def stop(process: Process, number: int = signal.SIGTERM) -> str:
    """Ask a process to end; give what it wrote to standard error."""
    process.send_signal(number)
    done = finish(process)
    assert done.status == 0
    assert done.err.endswith("stopped\n")
    return done.err


def says(process: Process, words: str) -> str:
    """The next line on standard error that has some words: what its pages show is said a moment later."""
    for line in iter(process.stderr.readline, ""):
        if words in line:
            return line
    raise AssertionError(f"ended without {words!r}")


def ready(process: Process) -> str:
    assert process.stdout
    found = json.loads(process.stdout.readline())
    assert found.keys() == {"task", "url", "host", "port"}
    return str(found["url"])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_what_was_learned_and_ends_cleanly(tmp_path, number):
    folder, learned = finished()
    truth = tmp_path / "truth.yaml"
    truth.write_text("".join(f"{name}: {value}\n" for name, value in TRUTH.items()))
    process = start(
        "monitor", folder / "task.yaml", "--log", url(folder), "--port", 0, "--interval", 0.1, "--reference", truth,
        "--json", folder=tmp_path,
    )  # fmt: skip
    try:
        address = ready(process)
        assert address.startswith("http://127.0.0.1:")
        found = json.loads(fetch(address + "/api/status"))
        assert found["releases"] == PEOPLE
        assert found["estimate"]["values"] == list(learned.values)
        assert found["reference"] == TRUTH
        assert f'murk_releases_total{{result="learned",task="third-child"}} {PEOPLE}.0' in fetch(address + "/metrics")
        assert fetch(address + "/healthz") == "ok\n"
        assert "<" in fetch(address + "/")
        until(lambda: json.loads(fetch(address + "/api/status"))["now"] > found["now"], process)
        stop(process, number)
    finally:
        process.kill()


def test_it_waits_for_the_task_and_sees_the_log_go_and_come(tmp_path):
    (tmp_path / "task.yaml").write_text(TEXT)
    process = start(
        "monitor", "task.yaml", "--log", "sqlite:///log.db", "--port", 0, "--interval", 0.1, "--wait", "--json",
        folder=tmp_path,
    )  # fmt: skip
    try:
        assert process.stderr
        line = process.stderr.readline()
        assert line.startswith("murk: waiting: there is no log at log.db")
        with sqlite3.connect(finished()[0] / "log.db") as source:
            # All at once, as a log appears.
            copy = sqlite3.connect(tmp_path / "draft.db")
            source.backup(copy)
            copy.close()
        source.close()
        (tmp_path / "draft.db").rename(tmp_path / "log.db")
        address = ready(process)
        assert json.loads(fetch(address + "/api/status"))["releases"] == PEOPLE
        (tmp_path / "log.db").rename(tmp_path / "draft.db")
        until(lambda: 'murk_log_reachable{task="third-child"} 0.0' in fetch(address + "/metrics"), process)
        with pytest.raises(urllib.error.HTTPError, match="503"):
            fetch(address + "/healthz")
        says(process, "cannot use the log: ")
        (tmp_path / "draft.db").rename(tmp_path / "log.db")
        until(lambda: 'murk_log_reachable{task="third-child"} 1.0' in fetch(address + "/metrics"), process)
        says(process, "the log can be used now")
        stop(process)
    finally:
        process.kill()


def monitor(folder: Path, *more: object, log: str | None = None):
    return murk("monitor", "task.yaml", "--log", log or url(finished()[0]), "--port", 0, *more, folder=folder)


def test_it_refuses_another_task_and_a_log_without_one(tmp_path):
    (tmp_path / "task.yaml").write_text(TEXT.replace("high: 35", "high: 36"))
    refused(monitor(tmp_path), "already carries the task 'third-child'", "features")
    # Nor is it worth waiting for.
    refused(monitor(tmp_path, "--wait"), "already carries the task 'third-child'")
    refused(monitor(tmp_path, log="sqlite:///nothing.db"), "there is no log at nothing.db")
    assert not (tmp_path / "nothing.db").exists()


def test_a_changed_retention_is_no_other_task(tmp_path):
    (tmp_path / "task.yaml").write_text(TEXT.replace("partitions: 2", "partitions: 2, retention: 9d"))
    process = start(
        "monitor", "task.yaml", "--log", url(finished()[0]), "--port", 0, "--json", folder=tmp_path
    )  # fmt: skip
    try:
        ready(process)
        stop(process)
    finally:
        process.kill()


def test_a_wrong_reference_is_refused_before_anything_is_waited_for(tmp_path):
    (tmp_path / "task.yaml").write_text(TEXT)
    (tmp_path / "truth.json").write_text(json.dumps({**TRUTH, "ages": 1.0}))
    done = monitor(tmp_path, "--wait", "--reference", "truth.json", log="sqlite:///nothing.db")
    refused(done, "--reference truth.json and the task 'third-child': ", "'ages' unknown", "'same_sex', 'age', 'int")
    refused(monitor(tmp_path, "--reference", "nowhere.json"), "nowhere.json", "cannot be read")
    for text, words in (
        (
            "ages=0.1",
            "--known-within ages=0.1 and the task 'third-child': ages: no coefficient of the task; there are",
        ),
        ("-0.1", "-0.1: an interval has no such half-width"),
        ("narrow", "'narrow' is no half-width: write X, or FEATURE=X"),
    ):
        refused(monitor(tmp_path, "--wait", "--known-within", text, log="sqlite:///nothing.db"), words)


@pytest.mark.parametrize("text", ["-3", "0", "age=-0.1", "nan"])
def test_a_half_width_that_no_interval_has_is_not_waited_with(tmp_path, text):
    done = murk(
        "monitor", "--wait", "--known-within", text, "--log", "sqlite:///nothing.db", "--port", 0, folder=tmp_path
    )  # fmt: skip
    refused(done, "half-width")


def test_a_taken_port_is_named(tmp_path):
    (tmp_path / "task.yaml").write_text(TEXT)
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = murk("monitor", "task.yaml", "--log", url(finished()[0]), "--port", port, folder=tmp_path)
    refused(done, f"cannot listen on 127.0.0.1 port {port}", "--port", status=1)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ('{"age": 1, "no": -2.5e-1}', {"age": 1.0, "no": -0.25}),
        ("age: 1\nno: -2.5e-1\n", {"age": 1.0, "no": -0.25}),
        ('{"task": "x", "coefficients": {"age": 0.5}, "releases": 3}', {"age": 0.5}),
        ("\ufeffage: .5", {"age": 0.5}),
    ],
)
def test_references_are_read(tmp_path, words, expected):
    path = tmp_path / "truth"
    path.write_text(words, encoding="utf-8")
    assert read_reference(path) == expected


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is not a file of true coefficients"),
        (b"[1, 2]", "is not a file of true coefficients"),
        (b"{}", "is not a file of true coefficients"),
        (b'{"age": NaN}', "age: not a finite number"),
        (b'{"age": 1e999}', "age: not a finite number"),
        (b'{"age": true}', "age: not a finite number"),
        (b'{"age": [1]}', "age: not a finite number"),
        (b"age: young", "age: not a finite number"),
        (b"age: &a [1]\nb: *a", "line 2: not readable as YAML: aliases"),
        (b"age: &a [*a]", "not readable as YAML"),
        (b"age: {\n  b: [", "line 2: not readable as YAML"),
        (b"[" * 200_000, "not readable as YAML"),
        (b"\xff\xfe", "not UTF-8"),
        (b"x" * (MOST_BYTES + 1), "at most"),
        (b"!!python/object/apply:os.system [x]", "the tag"),
    ],
)
def test_bad_references_are_refused(tmp_path, content, words):
    path = tmp_path / "truth"
    path.write_bytes(content)
    with pytest.raises(UserError, match=words):
        read_reference(path)
    with pytest.raises(UserError, match="truth: cannot be read"):
        read_reference(tmp_path / "missing-truth")


def test_a_reference_names_all_coefficients():
    check_reference({"a": 1.0, "b": 2.0}, ("b", "a"))
    with pytest.raises(UserError, match=r"'c' unknown, 'b' missing\. Its coefficients are 'a', 'b'"):
        check_reference({"a": 1.0, "c": 2.0}, ("a", "b"))


def test_a_populations_sums_are_served_while_it_produces(tmp_path, monkeypatch):
    before = set(threading.enumerate())
    monkeypatch.setattr(metrics, "_SECONDS", 0.0)
    monkeypatch.setattr(metrics, "_SHARE", 0)
    task = make_task()
    path = write_people(tmp_path / "people.csv", 60)
    said = []
    monkeypatch.setattr(metrics.click, "echo", lambda line, err: said.append(line))
    with World(tmp_path, task) as world:
        world.ledger.bind(world.log.identity, task.hash)
        with metrics.people_metrics(metrics.MetricsAddress("127.0.0.1", 0), task, world.ledger) as refresh:
            address = said[0].split()[-1]
            refresh()
            empty = fetch(address)
            run_blocks(world, FileSource(path, task, person_column="who"))
            refresh()
            full = fetch(address)
            # From another thread nothing is read: the ledger serves its own.
            assert fetch(address) == full
    assert "\nmurk_" not in empty
    assert 'murk_ledger_spent_ratio_count{task="third-child"} 30.0' in full
    assert 'murk_ledger_refusals_total{task="third-child"} 30.0' in full
    assert 'murk_outbox_pending{task="third-child"} 0.0' in full
    # Those of other tests may be about to end.
    assert all(thread.name != "murk-http" for thread in set(threading.enumerate()) - before)
    with metrics.people_metrics(metrics.MetricsAddress("", None), task, None) as refresh:  # type: ignore[arg-type]
        refresh()


def test_produce_says_where_its_metrics_are(tmp_path):
    (tmp_path / "task.yaml").write_text(TEXT)
    write = ["age,same_sex,third_child"] + ["30,yes,no", "30,no,yes"] * 15
    (tmp_path / "people.csv").write_text("\n".join(write) + "\n")
    process = start(
        "produce", "task.yaml", "--source", "people.csv", "--log", "sqlite:///log.db", "--seed", 1, "--patience", 1,
        "--metrics-port", 0, "--json", folder=tmp_path,
    )  # fmt: skip
    done = finish(process)
    # Nobody learns here, so it gives up; what matters is that it served.
    assert done.status == 1
    assert "\nthird-child: metrics of its people at http://127.0.0.1:" in f"\n{done.err}"


def test_the_page_of_documents_holds_the_table():
    page = (ROOT / "docs" / "metrics.md").read_text()
    assert table() in page
    for metric in METRICS:
        assert f"`{metric.name}`" in page
