"""Real servers for tests: what is missing is skipped, or fails where MURK_REQUIRE_SERVICES=1."""

import functools
import json
import os
import shutil
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import pytest

from deploy.broker import Broker, BrokerError, fetch
from deploy.broker.jars import java
from deploy.broker.ports import number, reserve
from deploy.broker.process import end, spawn

PROMETHEUS = "/usr/bin/prometheus"
CHROMIUM = "/usr/bin/chromium"
CHROMEDRIVER = "/usr/bin/chromedriver"
LACKING = "a service is missing"
# Far more than anything here takes; only a server that hangs gets there.
LIMIT = 120.0

__all__ = ["Broker", "Prometheus", "eventually", "require", "require_kafka", "start_chromium"]


def missing(what):
    """Skip the test, or fail it where services must be there."""
    if os.environ.get("MURK_REQUIRE_SERVICES") == "1":
        pytest.fail(f"{what} (and MURK_REQUIRE_SERVICES=1)", pytrace=False)
    pytest.skip(f"{LACKING}: {what}")


def require(*programs):
    for program in programs:
        if not os.access(program, os.X_OK):
            missing(f"{program} is missing: run .ci/services")


@functools.cache
def _kafka():
    try:
        java()
        fetch()
    except BrokerError as error:
        return str(error)
    return None


def require_kafka():
    """The broker's program is there, fetched through Maven the first time."""
    lacking = _kafka()
    if lacking is not None:
        missing(lacking)


def eventually(look, limit=LIMIT, every=0.05):
    """Call ``look`` until what it returns is true, and return that."""
    deadline = time.monotonic() + limit
    while not (seen := look()):
        assert time.monotonic() < deadline, f"{look} came to nothing within {limit} s; last: {seen!r}"
        time.sleep(every)
    return seen


class Prometheus:
    """A Prometheus server with the given configuration; a context manager.

    ``files`` are written beside the configuration, for ``rule_files`` and the like.
    """

    def __init__(self, folder, config, files=None):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.output = self.folder / "prometheus.log"
        for name, text in {"prometheus.yml": config, **(files or {})}.items():
            place = self.folder / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)
        self._held = reserve()
        self.url = f"http://127.0.0.1:{number(self._held)}"
        self._child = None

    def start(self):
        self._child = spawn(
            [
                PROMETHEUS,
                f"--config.file={self.folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={self.folder / 'data'}",
                f"--web.listen-address={self.url.removeprefix('http://')}",
                "--web.enable-lifecycle",
            ],
            self.output,
        )
        eventually(self._ready)
        return self

    def stop(self):
        if self._child is not None:
            end(self._child, LIMIT)
        self._held.close()

    def get(self, path, **parameters):
        """The ``data`` of an answer of its API, e.g. ``get("rules")``, ``get("targets", state="active")``."""
        asked = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters, doseq=True)}"
        try:
            answer = json.loads(_fetch(asked))
        except urllib.error.HTTPError as error:
            with error:
                answer = json.loads(error.read())
        assert answer["status"] == "success", f"{asked}: {answer}"
        return answer["data"]

    def query(self, promql, **parameters):
        """Result of an instant query: a list of ``{"metric": {...}, "value": [time, text]}``."""
        return self.get("query", query=promql, **parameters)["result"]

    def query_range(self, promql, start, end, step):
        """Result of a range query: a list of ``{"metric": {...}, "values": [[time, text], ...]}``."""
        return self.get("query_range", query=promql, start=start, end=end, step=step)["result"]

    def said(self, lines=40):
        text = self.output.read_text(errors="replace") if self.output.exists() else ""
        return "\n".join(text.splitlines()[-lines:])

    def _ready(self):
        assert self._child.poll() is None, f"Prometheus ended:\n{self.said()}"
        try:
            _fetch(f"{self.url}/-/ready")
        except urllib.error.HTTPError as error:
            error.close()
            return False
        except OSError:
            return False
        return True

    def __enter__(self):
        return self.start()

    def __exit__(self, *error):
        self.stop()


def _fetch(url):
    # Whatever proxy the environment names, this machine is not behind it.
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(url, timeout=LIMIT) as answer:
        return answer.read()


def start_chromium(folder):
    """A selenium driver of a headless Chromium that starts empty and reaches nothing but 127.0.0.1."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    folder = Path(folder)
    options = webdriver.ChromeOptions()
    options.binary_location = _dies_with_its_parent(folder, CHROMIUM)
    for argument in (
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--disable-dev-shm-usage",
        "--no-proxy-server",
        # A page that asks another host for anything is broken here, as it is for somebody without Internet.
        "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
        f"--user-data-dir={folder / 'profile'}",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    # With the driver's path given, selenium looks for nothing and downloads nothing.
    driver = _dies_with_its_parent(folder, CHROMEDRIVER)
    return webdriver.Chrome(options=options, service=Service(driver, log_output=str(folder / "chromedriver.log")))


def _dies_with_its_parent(folder, program):
    """A command that runs the program and is killed with anyone who started it: selenium starts these, not we."""
    script = folder / Path(program).name
    setpriv = shutil.which("setpriv")
    tied = f"{setpriv} --pdeathsig KILL {program}" if setpriv else program
    script.write_text(f'#!/bin/sh\nexec {tied} "$@"\n')
    script.chmod(0o755)
    return str(script)
