"""The command: a process of its own, killed under load, ended under load, and refusing what is wrong."""

import contextlib
import http.client
import json
import os
import random
import signal
import threading
import time
from pathlib import Path

import pytest

from murk.protocols.device import device_for
from murk.stream import Worker, open_log
from tests.cli.harness import finish, murk, refused, start
from tests.gateway.devices import Client, announced, honest, release, stored, task, wire

KILLS = int(os.environ.get("MURK_KILLS", "4"))
BASE = "/v1/tasks/third-child"


def begun(url: str, folder: Path, *more: object):
    """A gateway's process and its address."""
    process = start("gateway", "--log", url, "--port", 0, "--rate", 0, "--json", *more, folder=folder)
    line = process.stdout.readline()
    if not line:
        raise AssertionError(process.communicate())
    return process, json.loads(line)["url"]


class Load:
    """Devices that post releases as fast as they are answered, and note what was acknowledged."""

    def __init__(self, of, address: str, devices: int = 4, name: str = "third-child") -> None:
        self.acknowledged: list[bytes] = []
        self.statuses: list[int] = []
        self._name = name
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._post, args=(of, address, number)) for number in range(devices)]
        for thread in self._threads:
            thread.start()

    def _post(self, of, address: str, number: int) -> None:
        while not self._ended.is_set():
            # The process is killed in the middle of anything.
            with contextlib.suppress(OSError, http.client.HTTPException), Client(address) as client:
                while not self._ended.is_set():
                    messages = [wire(release(of)) for _ in range(1 if number % 2 else 16)]
                    answer = client.post(*messages, name=self._name)
                    self.statuses.append(answer.status)
                    if answer.status == 202:
                        self.acknowledged += messages
                    else:
                        time.sleep(0.02)

    def end(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()


def test_nothing_acknowledged_is_lost_when_it_is_killed(tmp_path):
    """`MURK_KILLS=200` for a campaign."""
    of, draw = task(), random.Random()
    url = announced(tmp_path, of)
    acknowledged: list[bytes] = []
    for _ in range(KILLS):
        process, address = begun(url, tmp_path)
        load = Load(of, address)
        while not load.acknowledged:
            time.sleep(0.01)
        time.sleep(draw.uniform(0.0, 0.3))
        process.kill()
        load.end()
        process.wait()
        acknowledged += load.acknowledged
    assert len(acknowledged) >= KILLS
    assert set(acknowledged) <= set(stored(url))
    # Whatever was written without being acknowledged, or twice, the worker takes the log as it is.
    with open_log(url) as log, Worker(log, of, device_for(of).engine()) as worker:
        while worker.step().read:
            pass
        assert worker.counters.learned == len(set(stored(url)))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_cleanly_under_load(tmp_path, number):
    of = task()
    url = announced(tmp_path, of)
    process, address = begun(url, tmp_path)
    load = Load(of, address)
    while len(load.acknowledged) < 20:
        time.sleep(0.01)
    process.send_signal(number)
    done = finish(process)
    load.end()
    assert (done.status, done.out) == (0, "")
    assert done.err == "stopped\n"
    # Each request had an answer, or no connection; each 202 is on the log, and nothing else.
    assert set(load.statuses) <= {202, 503}
    assert set(load.acknowledged) <= set(stored(url))


def test_a_worker_learns_from_it_while_it_runs(tmp_path):
    of = task(protocol="gradients")
    messages = honest(of, 5)
    url = announced(tmp_path, of)
    process, address = begun(url, tmp_path, "--metrics-port", 0, "-v")
    try:
        with open_log(url) as log, Worker(log, of, device_for(of).engine()) as worker, Client(address) as client:
            assert client.post(*messages[:2]).status == 202
            assert worker.step().learned == 2
            deadline = time.monotonic() + 30
            while client.get(f"{BASE}/model").body != log.model(0):
                assert time.monotonic() < deadline
            assert json.loads(log.model(0))["version"] == 2
            assert client.post(*messages[2:]).status == 202
            assert worker.step().learned == 3
            # They are served on a port of their own.
            assert client.get("/metrics").status == 404
    finally:
        process.terminate()
        done = finish(process)
    assert "metrics of this gateway at http://127.0.0.1:" in done.err
    # No address, no id, no level of anybody.
    for word in ("127.0.0.1:", json.loads(messages[0])["id"]):
        assert word not in done.err.replace("http://127.0.0.1:", "")


def test_it_waits_for_a_log(tmp_path):
    of = task()
    url = f"sqlite:///{tmp_path}/log.db"
    process = start("gateway", "--log", url, "--port", 0, "--json", "--wait", folder=tmp_path)
    assert "murk: waiting" in process.stderr.readline()
    announced(tmp_path, of)
    address = json.loads(process.stdout.readline())["url"]
    with Client(address) as client:
        assert client.get(BASE).body == of.document()
    process.terminate()
    assert finish(process).status == 0


def test_what_is_wrong_is_refused(tmp_path):
    url = announced(tmp_path, task())
    (tmp_path / "short").write_text("abc\n")
    (tmp_path / "words").write_text("a token of several words\n")
    for options, word in (
        (["--origin", "app.example.org"], "write an origin as"),
        (["--origin", "https://app.example.org/page"], "write an origin as"),
        (["--origin", "https://*.example.org"], "write an origin as"),
        (["--origin", "null"], "write an origin as"),
        (["--origin", "https://me@app.example.org"], "write an origin as"),
        (["--origin", "https://app.example.org:99999"], "write an origin as"),
        (["--origin", "HTTPS://App.Example.org"], "write this origin as https://app.example.org"),
        (["--origin", "https://app.example.org:443"], "write this origin as https://app.example.org"),
        (["--origin", "https://bücher.example"], "write this origin as https://xn--bcher-kva.example"),
        (["--allow-header", "traceparent"], "give their --origin"),
        (["--origin", "*", "--allow-header", "a: b"], "write the name of one header"),
        (["--tls-cert", "cert.pem"], "belong together"),
        (["--tls-cert", "cert.pem", "--tls-key", "key.pem"], "the certificate or its key cannot be used"),
        (["--token-file", "nowhere"], "cannot be read"),
        (["--token-file", "short"], "at least 16 characters"),
        (["--token-file", "words"], "one word"),
        (["--host", "203.0.113.9"], "cannot listen"),
    ):
        refused(murk("gateway", "--log", url, "--port", 0, *options, folder=tmp_path), word)
    refused(murk("gateway", "--log", f"sqlite:///{tmp_path}/none.db", folder=tmp_path), "none.db")


def test_a_token_is_read_from_its_file(tmp_path):
    of = task()
    (tmp_path / "token").write_text("0123456789abcdef0123\n")
    process, address = begun(announced(tmp_path, of), tmp_path, "--token-file", "token")
    with Client(address) as client:
        assert client.get(BASE).status == 401
        assert client.get(BASE, Authorization="Bearer 0123456789abcdef0123").status == 200
    process.terminate()
    assert finish(process).status == 0


def test_a_hang_up_does_not_end_it(tmp_path):
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        pytest.skip("SIGHUP is ignored here, and so in the gateway, as under nohup")
    of = task()
    process, address = begun(announced(tmp_path, of), tmp_path, "-v")
    try:
        for _ in range(3):
            process.send_signal(signal.SIGHUP)
        with Client(address) as client:
            assert client.post(wire(release(of))).status == 202
        # A signal is answered after a step, and its end before that.
        said = ""
        while "SIGHUP" not in said:
            line = process.stderr.readline()
            assert line, said
            said += line
        assert "SIGHUP: nothing to read again: the gateway has no certificate" in said
        process.send_signal(signal.SIGTERM)
        assert finish(process).status == 0
    finally:
        process.kill()
