"""The web server: what it answers, and what nobody can make it do."""

import contextlib
import http.client
import json
import logging
import socket
import threading
import time
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as plain

from murk.errors import MurkError, UserError
from murk.monitoring.web import server as module
from murk.monitoring.web.routes import PAGE, files, monitor_routes
from murk.monitoring.web.server import Hosts, Server, text
from tests.monitoring.runs import PEOPLE, TRUTH, finished, watching

ROOT = Path(__file__).parents[3]


class Client:
    def __init__(self, served: Server) -> None:
        self.served = served

    def ask(self, path, method="GET", **headers):
        """Status, headers and body of a response."""
        connection = http.client.HTTPConnection("127.0.0.1", self.served.port, timeout=60)
        with contextlib.closing(connection):
            connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
            response = connection.getresponse()
            return response.status, response.headers, response.read()

    def raw(self, data: bytes) -> bytes:
        """Whatever comes back for these bytes."""
        with socket.create_connection(("127.0.0.1", self.served.port), timeout=60) as connection:
            with contextlib.suppress(OSError):
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)
            found = b""
            with contextlib.suppress(OSError):
                while part := connection.recv(65536):
                    found += part
            return found


@pytest.fixture(scope="module")
def world():
    monitor, log = watching(finished()[0], reference=TRUTH)
    with log, Server(monitor_routes(monitor)) as served:
        yield monitor, Client(served)


@pytest.fixture
def client(world):
    return world[1]


def test_the_page_comes_with_its_type_and_a_strict_policy(client):
    for path, kind in [("/", "text/html"), ("/index.html", "text/html")]:
        status, headers, body = client.ask(path)
        assert (status, headers["Content-Type"]) == (200, f"{kind}; charset=utf-8")
        assert body == (PAGE / "index.html").read_bytes()
        assert headers["Content-Security-Policy"].split(";")[0] == "default-src 'self'"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert int(headers["Content-Length"]) == len(body)


def test_every_file_of_a_page_is_served_and_no_other(tmp_path):
    (tmp_path / "lib").mkdir()
    for name in ("index.html", "page.js", "lib/plot.js", "page.css", "icon.svg", "notes.md", "secret.py", ".hidden"):
        (tmp_path / name).write_text(name)
    routes = files(tmp_path)
    assert routes.keys() == {"/", "/index.html", "/page.js", "/lib/plot.js", "/page.css", "/icon.svg"}
    kinds = {path: route({}).type.partition(";")[0] for path, route in routes.items()}
    assert (kinds["/lib/plot.js"], kinds["/page.css"]) == ("text/javascript", "text/css")


def test_head_is_get_without_a_body(client):
    for path in ("/", "/metrics", "/healthz", "/api/status"):
        status, headers, body = client.ask(path, "HEAD")
        assert (status, body) == (200, b"")
        assert int(headers["Content-Length"]) > 0


@pytest.mark.parametrize(
    "path",
    [
        "/nothing", "/..", "/../monitor.py", "/%2e%2e/monitor.py", "/vendor/../../monitor.py", "/vendor", "/vendor/",
        "//etc/passwd", "/index.html/", "/%00", "/metrics/", "http://127.0.0.1/metrics", "*", "/api", "/api/status/x",
    ],
)  # fmt: skip
def test_other_paths_are_not_there(client, path):
    status, _, body = client.ask(path)
    assert (status, body) == (404, b"not found\n")


def test_a_query_changes_nothing(client):
    assert client.ask("/healthz?a=../..")[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "BREW"])
def test_only_reading_is_possible(client, method):
    status, headers, _ = client.ask("/metrics", method)
    assert (status, headers["Allow"]) == (405, "GET, HEAD")


def test_health_follows_the_log():
    monitor, log = watching(finished()[0])
    with log, Server(monitor_routes(monitor)) as served:
        client = Client(served)
        assert client.ask("/healthz")[::2] == (200, b"ok\n")
        log.close()
        monitor.poll()
        status, _, body = client.ask("/healthz")
        assert status == 503
        assert body.startswith(b"the log could not be read")
        assert json.loads(client.ask("/api/status")[2])["healthy"] is False
        assert client.ask("/metrics")[0] == client.ask("/")[0] == 200


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("", "text/plain; version=0.0.4"),
        ("text/html", "text/plain; version=0.0.4"),
        ("application/openmetrics-text; version=1.0.0", "application/openmetrics-text"),
        ("application/openmetrics-text; version=x.y", "text/plain; version=0.0.4"),
        ("application/openmetrics-text; version=" + "9" * 5000, None),
        (";;;=;,,", "text/plain; version=0.0.4"),
    ],
)
def test_the_format_of_metrics_is_negotiated(client, accept, kind):
    status, headers, body = client.ask("/metrics", Accept=accept)
    assert status == 200
    found = headers["Content-Type"]
    assert kind is None or found.startswith(kind)
    parse = openmetrics if found.startswith("application/openmetrics") else plain
    samples = {sample.name: sample.value for family in parse(body.decode()) for sample in family.samples}
    assert samples["murk_staleness_releases_count"] == PEOPLE


def test_the_status_has_the_shape_that_the_page_is_built_against(client):
    status, headers, body = client.ask("/api/status")
    assert (status, headers["Content-Type"]) == (200, "application/json")
    found = json.loads(body, parse_constant=pytest.fail)
    assert found.keys() == {
        "version", "now", "started", "healthy", "problem", "task", "releases", "duplicates", "dead_letters", "rate",
        "lag", "staleness", "partitions", "estimate", "reference", "history", "records", "refused_updates",
        "unbiased_loss", "pace", "experiment",
    }  # fmt: skip
    assert found["version"] == 1
    assert found["task"].keys() == {
        "name", "protocol", "objective", "model", "hash", "simulated", "log", "levels", "public_sample",
    }  # fmt: skip
    names = ["same_sex", "age", "intercept"]
    for level in found["task"]["levels"]:
        assert level.keys() == {"name", "words", "guarantee", "epsilon", "mu", "right_at_most", "learned"}
    for partition in found["partitions"]:
        assert partition.keys() == {
            "partition", "version", "offset", "lag", "owner", "iterate_gap", "step_size", "unbiased_loss",
            "unbiased_loss_error", "refused_updates", "records",
        }  # fmt: skip
    assert found["staleness"].keys() == {"bounds", "counts", "mean"}
    assert len(found["staleness"]["counts"]) == len(found["staleness"]["bounds"]) + 1
    assert found["estimate"].keys() == {
        "names", "values", "half_widths", "level", "method", "note", "estimated_error", "parameter_error",
        "units", "needed", "drift", "releases_used", "diagnosis",
        "fixed_half_widths", "looks", "contrasts", "prediction_sets", "track",
    }  # fmt: skip
    assert found["estimate"]["names"] == names
    assert found["reference"] == TRUTH
    history = found["history"]
    columns = {
        "releases", "time", "estimated_error", "parameter_error", "rate", "dead", "lag", "unbiased_loss",
        "unbiased_loss_error",
    }  # fmt: skip
    assert history.keys() == columns | {"values", "half_widths", "lifts"}
    assert (found["experiment"], history["lifts"]) == (None, {})
    assert list(history["values"]) == list(history["half_widths"]) == names
    lengths = {len(history[name]) for name in columns} | {len(column) for column in history["values"].values()}
    assert len(lengths) == 1
    assert found["pace"].keys() == {"time", "rate", "lag"}
    assert len({len(column) for column in found["pace"].values()}) == 1
    assert found["estimate"]["units"]["age"] == {
        "label": "age: one unit more", "factor": 1 / 7, "shift": 0.0, "scale": "log odds", "low": None, "high": None,
    }  # fmt: skip


def test_what_is_unknown_is_null():
    monitor, log = watching(finished()[0])
    with log:
        found = monitor.status()
        assert found["reference"] is found["estimate"]["parameter_error"] is None
        assert set(found["history"]["parameter_error"]) == {None}


HOSTILE = {
    "nothing": b"",
    "random": bytes(range(256)) * 40,
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\xaa" * 500,
    "no-http": b"hello\r\n\r\n",
    "long-line": b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\n\r\n",
    "many-headers": b"GET / HTTP/1.1\r\n" + b"".join(b"X-%d: y\r\n" % number for number in range(5000)) + b"\r\n",
    "long-header": b"GET / HTTP/1.1\r\nX: " + b"y" * 200_000 + b"\r\n\r\n",
    "version": b"GET / HTTP/9.9\r\n\r\n",
    "version-words": b"GET / HTTP/<script>\r\n\r\n",
    "body": b"GET /healthz HTTP/1.1\r\nContent-Length: 999999999999\r\n\r\n" + b"x" * 100_000,
    "two": b"GET /healthz HTTP/1.1\r\n\r\nGET /healthz HTTP/1.1\r\n\r\n",
    "split": b"GET /healthz\r\nX: y HTTP/1.1\r\n\r\n",
    "bracket": b"GET http://[ HTTP/1.1\r\n\r\n",
    "folded": b"GET /healthz HTTP/1.1\r\nX: y\r\n  z\r\n\x00: 1\r\n\r\n",
    "old": b"GET /healthz\r\n\r\n",
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_requests_are_refused_without_a_word_of_theirs(client, kind, caplog, capfd):
    with caplog.at_level(logging.DEBUG):
        answer = client.raw(HOSTILE[kind])
    if kind in ("body", "two", "folded", "old"):
        assert answer.endswith(b"ok\n")
        assert answer.count(b"ok\n") == 1
    elif answer:
        status = int(answer.split(b" ")[1]) if answer.startswith(b"HTTP/") else 400
        assert status in (400, 404, 414, 431, 505)
        assert b"script" not in answer
    assert client.ask("/healthz")[0] == 200
    assert caplog.records == []
    assert capfd.readouterr() == ("", "")


def test_slow_clients_stop_neither_others_nor_the_monitor(world):
    monitor, client = world
    connections = []
    try:
        # More of them than may be open at once, each in the middle of a request.
        for _ in range(module.MOST_CONNECTIONS + 20):
            connection = socket.create_connection(("127.0.0.1", client.served.port), timeout=60)
            connection.sendall(b"GET /api/status HTTP/1.1\r\nX: ")
            connections.append(connection)
        for _ in range(5):
            assert client.ask("/healthz")[0] == 200
            assert monitor.poll()
        # The oldest had to give way.
        connections[0].settimeout(60)
        assert ended(connections[0])
    finally:
        for connection in connections:
            connection.close()


def ended(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def test_a_client_that_sends_a_byte_at_a_time_is_cut(world, monkeypatch):
    _, client = world
    monkeypatch.setattr(module, "DEADLINE_SECONDS", 0.5)
    with socket.create_connection(("127.0.0.1", client.served.port), timeout=60) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n")
        for _ in range(600):
            try:
                connection.sendall(b"X")
            except OSError:
                break
            time.sleep(0.05)
        else:
            pytest.fail("was never cut")


def test_a_client_that_reads_nothing_leaves_no_thread(monkeypatch):
    monkeypatch.setattr(module, "DEADLINE_SECONDS", 0.5)
    large, asked = module.Response(200, "text/plain", b"x" * 50_000_000), threading.Event()

    def route(headers):
        asked.set()
        return large

    with Server({"/large": route}) as served:
        connection = socket.create_connection(("127.0.0.1", served.port), timeout=60)
        connection.sendall(b"GET /large HTTP/1.1\r\n\r\n")
        assert asked.wait(60)
        limit = time.monotonic() + 60
        while any("process_request" in thread.name for thread in threading.enumerate()):
            assert time.monotonic() < limit
            time.sleep(0.05)
        connection.close()


def test_a_route_that_fails_says_nothing_of_why(caplog):
    def broken(headers):
        raise RuntimeError("S3CR3T")

    with Server({"/broken": broken, "/ok": lambda headers: text(200, "ok")}) as served:
        status, _, body = Client(served).ask("/broken")
        assert status == 500
        assert b"S3CR3T" not in body
        assert "S3CR3T" not in caplog.text
        assert "RuntimeError" in caplog.text
        assert Client(served).ask("/ok")[0] == 200


def test_addresses():
    with Server({}, "127.0.0.1") as served:
        assert served.url == f"http://127.0.0.1:{served.port}"
        with pytest.raises(MurkError, match=r"choose another --metrics-port .* or --metrics-host") as taken:
            Server({}, "127.0.0.1", served.port, options=("--metrics-port", "--metrics-host"))
        # No mistake in what was asked: a supervisor is to try again.
        assert not isinstance(taken.value, UserError)
    with Server({}, "0.0.0.0") as served:
        assert served.url == f"http://127.0.0.1:{served.port}"
    with pytest.raises(UserError, match="cannot listen on"):
        Server({}, "192.0.2.1")
    with pytest.raises(UserError, match="cannot listen on"):
        Server({}, "no such host")


def test_after_close_nobody_listens():
    served = Server({"/ok": lambda headers: text(200, "ok")})
    with served:
        assert Client(served).ask("/ok")[0] == 200
    with pytest.raises(OSError):
        Client(served).ask("/ok")
    Server({}).close()  # never started


OTHERS = (
    "evil.example", "evil.example:9464", "localhost.evil.example", "127.0.0.1.evil.example", "notlocalhost", "",
    "localhost@evil.example", "evil.example#.localhost", "localhost,evil.example", "[evil.example]",
    "[::1].evil.example",
    "127.0.0.1:9464:80", "evil.example/.localhost", "x.svc.evil.example", "localhost evil.example", "\xa0localhost.x",
)  # fmt: skip


@pytest.mark.parametrize("host", OTHERS)
def test_another_sites_name_is_not_answered(client, host):
    """Which leads to this address, so that the site's page reads this one: DNS rebinding."""
    port = client.served.port
    for path in ("/", "/api/status", "/metrics", "/healthz", "/nowhere"):
        answer = client.raw(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode("latin-1"))
        assert answer.startswith(b"HTTP/1.0 421 "), answer[:200]
        assert b"evil" not in answer
    twice = f"GET /api/status HTTP/1.1\r\nHost: localhost:{port}\r\nHost: {host}\r\n\r\n"
    assert client.raw(twice.encode("latin-1")).startswith(b"HTTP/1.0 421 ")


@pytest.mark.parametrize("host", [
    "localhost", "LOCALHOST:1", "127.0.0.1", "127.0.0.1:9464", "[::1]", "[::1]:9464", "10.1.2.3:9464", "a.localhost:80",
    "localhost.:80",
])  # fmt: skip
def test_addresses_and_local_names_are_answered(client, host):
    assert client.raw(f"GET /api/status HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()).startswith(b"HTTP/1.0 200 ")
    assert client.raw(b"GET /healthz HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.0 200 ")


def test_on_the_network_services_names_are_answered_and_others_are_not():
    network, own = Hosts("0.0.0.0"), Hosts("127.0.0.1")
    for host in (
        "monitor:9464",
        "murk-monitor.murk.svc:9464",
        "murk-monitor.murk.svc.cluster.local",
        socket.gethostname(),
    ):
        assert network.allows(host)
    assert not own.allows("monitor:9464")
    assert not own.allows("murk-monitor.murk.svc:9464")
    for host in OTHERS:
        assert host == "notlocalhost" or not network.allows(host), host
    declared = Hosts("::1", ["murk.example.org", "*.inner.example"])
    names = ("MURK.example.org.:443", "a.inner.example", "inner.example", "a.example.org", "monitor")
    assert [declared.allows(name) for name in names] == [True, True, False, False, False]
    for wrong in ("http://murk.example.org", "murk.example.org:80", "a b", "", "*.*", "*evil"):
        with pytest.raises(UserError, match="is not a host name"):
            Hosts("::1", [wrong])


def test_what_prometheus_of_the_composition_asks_is_answered():
    targets = (ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text()
    asked = [line.strip(" -") for line in targets.splitlines() if ":946" in line and "http" not in line]
    assert "monitor:9464" in asked
    assert all(map(Hosts("0.0.0.0").allows, asked))
