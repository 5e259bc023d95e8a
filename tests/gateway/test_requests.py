"""What a gateway answers, over real connections: reading, sending, refusing, limits, and hostile clients."""

import contextlib
import json
import re
import secrets
import shutil
import socket
import sqlite3
import ssl
import subprocess
import sys
import threading
import time
import urllib.request
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

import jsonschema
import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from murk import Task
from murk.errors import MurkError, UserError
from murk.gateway import app, connection, rate_limits
from murk.gateway import group_commit as appending
from murk.gateway.app import STATUS_OF, Settings, split
from murk.gateway.rate_limits import RateLimit
from murk.monitoring.metrics.catalogue import METRICS
from murk.monitoring.web.server import Response
from murk.protocols.device import device_for
from murk.stream import Worker, open_log
from murk.stream.log.interface import UnreachableError
from murk.stream.log.sqlite import SqliteLog
from murk.stream.wire.codec import REASONS
from tests.gateway.devices import TASK, Client, announced, honest, raw, release, serving, stored, task, wire
from tests.services import services

BASE = "/v1/tasks/third-child"
OPEN = Settings(rate=0)


@pytest.fixture(scope="module")
def door(tmp_path_factory):
    """A task, its log, and a gateway of it without a limit of requests."""
    of = task()
    url = announced(tmp_path_factory.mktemp("door"), of)
    with serving(url, settings=OPEN) as gateway:
        yield of, url, gateway


def test_a_task_is_given_byte_for_byte(door):
    of, _, gateway = door
    with Client(gateway.url) as client:
        assert client.get("/v1/tasks").json == {"tasks": [{"name": "third-child", "hash": of.hash}]}
        answer = client.get(BASE)
        assert answer.body == of.document()
        assert answer.headers["murk-task-hash"] == of.hash
        content = json.loads(answer.body)
        del content["log"]
        written = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        assert sha256(written.encode()).hexdigest() == of.hash
        tag = answer.headers["etag"]
        for known in (tag, f'"other", W/{tag}', "*"):
            again = client.get(BASE, If_None_Match=known)
            assert (again.status, again.body, again.headers["etag"]) == (304, b"", tag)
        assert client.get(BASE, If_None_Match='"other"').status == 200
        assert client.ask("HEAD", BASE).headers["content-length"] == str(len(of.document()))


def test_the_newest_model_is_given(tmp_path):
    of = task(log={"partitions": 2})
    url = announced(tmp_path, of)
    with serving(url, settings=OPEN) as gateway, Client(gateway.url) as client, open_log(url) as log:
        assert client.get(f"{BASE}/model").status == 204
        worker = Worker(log, of, device_for(of).engine(), look=0.0)
        worker.step()
        deadline = time.monotonic() + 30
        while (answer := client.get(f"{BASE}/model")).status == 204:
            assert time.monotonic() < deadline
        assert answer.body == log.model(0)
        assert "max-age=5" in answer.headers["cache-control"]
        # Partitions share the first one's models.
        assert client.get(f"{BASE}/model?partition=1").body == answer.body
        assert client.get(f"{BASE}/model", If_None_Match=answer.headers["etag"]).status == 304
        for partition in ("2", "-1", "x", "1e0", "", "9" * 40):
            assert client.get(f"{BASE}/model?partition={partition}").status in (404, 200 if partition == "" else 404)
        worker.close()


def test_a_task_without_models_says_so(tmp_path):
    of = task(protocol="examples")
    with serving(announced(tmp_path, of), settings=OPEN) as gateway, Client(gateway.url) as client:
        assert client.get(f"{BASE}/model").json == {"error": "no-models"}


@pytest.mark.parametrize("protocol", ["scores", "gradients", "examples"])
def test_the_worker_learns_what_was_posted(tmp_path, protocol):
    of = task(protocol=protocol)
    messages = honest(of, 7)
    url = announced(tmp_path, of)
    with serving(url, settings=OPEN) as gateway, Client(gateway.url) as client:
        for message in messages[:2]:
            answer = client.post(message)
            assert (answer.status, answer.json) == (202, {"accepted": 1, "refused": []})
        assert client.post(*messages[2:], Content_Type="text/plain;charset=UTF-8").json["accepted"] == 5
        # Whenever the same bytes come again.
        for again in (messages[:1], messages, messages[:3] * 2):
            answer = client.post(*again)
            assert (answer.status, answer.json) == (202, {"accepted": len(again), "refused": []})
    assert sorted(stored(url)) == sorted(messages)
    with open_log(url) as log, Worker(log, of, device_for(of).engine()) as worker:
        worker.step()
        assert worker.counters.learned == len(messages)
        assert not list(log.dead_letters())


def test_the_same_bytes_are_answered_the_same_after_they_became_old(tmp_path):
    of = task()
    moment = [time.time()]
    with open_log(announced(tmp_path, of)) as log:
        answered = []
        doing = appending.GroupCommit(log, of, answered.extend, clock=lambda: moment[0])

        def ask(*messages):
            doing.submit(submission := appending.Submission(messages, None))
            doing.step()
            return submission.outcomes

        message = wire(release(of))
        assert ask(message) == [None]
        moment[0] += of.expiry + of.granularity
        assert ask(message, wire(release(of, expires=10))) == [None, "expired"]
        assert log.end(0) == 1


def test_every_reason_has_a_status_and_no_answer_a_value(door):
    of, url, gateway = door
    assert STATUS_OF.keys() == set(REASONS)
    before = len(stored(url))
    word, number = "S3CR3T", 987_654_321_987
    spoiled = {
        "malformed": b'{"a": S3CR3T', "schema": wire(release(of, S3CR3T=1)),
        "wrong-task": wire(release(of, task="1" * 64)),
        "simulated": wire(release(of, simulated=True)), "level": wire(release(of, level=word)),
        "dimension": wire(release(of, payload=[1] * 5)), "magnitude": wire(release(of, payload=[number])),
        "expired": wire(release(of, expires=number % 10**9)),
        "future": wire(release(of, version=number)), "too-large": wire(release(of, level="x" * 700)),
    }  # fmt: skip
    with Client(gateway.url) as client:
        for reason, message in spoiled.items():
            answer = client.post(message)
            assert answer.status == STATUS_OF[reason], reason
            assert answer.json == {"error": reason, "accepted": 0, "refused": [{"index": 0, "reason": reason}]}
            assert word.encode() not in answer.body
        good = [wire(release(of)) for _ in range(2)]
        answer = client.post(good[0], spoiled["level"], good[1], spoiled["expired"])
        assert answer.status == 207
        refused = [{"index": 1, "reason": "level"}, {"index": 3, "reason": "expired"}]
        assert answer.json == {"accepted": 2, "refused": refused}
        assert client.post(spoiled["level"], spoiled["expired"]).status == 422
        assert client.post(spoiled["expired"], spoiled["expired"]).status == 410
    assert len(stored(url)) == before + 2


def test_a_partition_that_a_newer_task_may_have_is_asked_for_again(tmp_path):
    """A gateway that began before partitions were added gives no final answer, and a newer one takes the same bytes."""
    of, grown = (task(log={"partitions": count}) for count in (2, 3))
    url = announced(tmp_path, of)
    old, new = wire(release(of, partition=1)), wire(release(grown, partition=2))
    with serving(url, settings=OPEN) as gateway, Client(gateway.url) as client:
        for body in ([new], [old, new], [wire(release(of, level="unknown")), new]):
            answer = client.post(*body)
            assert (answer.status, answer.json) == (421, {"error": "partition"})
            assert int(answer.headers["retry-after"]) > 0
        assert client.post(old).status == 202
        # Only what was acknowledged is counted, although all three requests with other releases were to be sent again.
        counts = gateway.appending.counts
        assert (counts.accepted, counts.refused, counts.appended) == (1, {"partition": 3}, 1)
    announced(tmp_path, grown)
    with serving(url, settings=OPEN) as gateway, Client(gateway.url) as client:
        assert client.post(new).json == {"accepted": 1, "refused": []}
    assert stored(url) == [old, new]


@pytest.mark.parametrize("number", [2**53 + 1, 2**62, 2**63, 2**64 + 1, -(2**70), 10**30, 1.0, 1e3, "1", True, None])
@pytest.mark.parametrize("field", ["version", "time", "payload"])
def test_numbers_that_are_not_64_bit_integers_are_refused(door, field, number):
    of, _, gateway = door
    value = [number] if field == "payload" else number
    with Client(gateway.url) as client:
        answer = client.post(wire(release(of, **{field: value})))
    assert answer.json["error"] in ("schema", "magnitude", "future", "malformed")


@pytest.mark.parametrize(
    "body",
    [b"", b" ", b"[]", b"[", b"[1,", b"[{}" * 9, b"\xff\xfe", b"[" * 100_000, b"[" + b"1," * 300 + b"1]", b"[NaN]",
     b"[" + b",".join([b"{}"] * 257) + b"]"],
)  # fmt: skip
def test_bodies_that_are_no_releases_are_malformed(door, body):
    with Client(door[2].url) as client:
        answer = client.ask("POST", f"{BASE}/releases", body)
        assert (answer.status, answer.json["error"]) == (400, "malformed")
        assert client.get("/healthz").status == 200


def test_what_is_not_there_and_what_is_not_allowed(door):
    _, _, gateway = door
    with Client(gateway.url) as client:
        for path, error in (
            ("/", "not-found"), ("/v2", "not-found"), ("/v1/tasks/other", "unknown-task"),
            ("/v1/tasks/other/releases", "unknown-task"), ("/v1/tasks/third-child/../../etc", "unknown-task"),
        ):  # fmt: skip
            assert client.get(path).json == {"error": error}
        for method, path, allowed in (
            ("GET", f"{BASE}/releases", "POST, OPTIONS"), ("POST", BASE, "GET, HEAD, OPTIONS"),
            ("DELETE", f"{BASE}/model", "GET, HEAD, OPTIONS"), ("PUT", f"{BASE}/releases", "POST, OPTIONS"),
        ):  # fmt: skip
            answer = client.ask(method, path, b"{}")
            assert (answer.status, answer.headers["allow"]) == (405, allowed)
        answer = client.ask("POST", f"{BASE}/releases", b"{}", Content_Type="application/x-www-form-urlencoded")
        assert (answer.status, answer.json) == (415, {"error": "type"})


def test_no_answer_sets_a_cookie_or_names_the_server(door):
    with Client(door[2].url) as client:
        for path in ("/v1/tasks", BASE, "/healthz", "/openapi.json", "/nothing"):
            answer = client.get(path, Cookie="id=7")
            assert not {"set-cookie", "server", "x-request-id"} & answer.headers.keys()


def test_releases_that_arrive_together_are_appended_in_another_order(door):
    """One order of 200! is kept by chance: never."""
    of, url, gateway = door
    messages = [wire(release(of)) for _ in range(200)]
    before = len(stored(url))
    with Client(gateway.url) as client:
        assert client.post(*messages).json["accepted"] == 200
    found = stored(url)[before:]
    assert sorted(found) == sorted(messages)
    assert found != messages


def test_the_description_is_of_the_wires_schemas(door):
    of, _, gateway = door
    with Client(gateway.url) as client:
        description = client.get("/openapi.json").json
        assert description["openapi"] == "3.1.0"
        schemas = description["components"]["schemas"]
        for schema in schemas.values():
            jsonschema.Draft202012Validator.check_schema(schema)
        fields = release(of)
        jsonschema.validate(fields, schemas["Release"])
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(fields | {"partition": -1}, schemas["Release"])
        # All paths are answered, and each answer has a schema that it satisfies.
        for path, operations in description["paths"].items():
            for method, operation in operations.items():
                answer = client.ask(method.upper(), path, wire(fields) if method == "post" else None)
                said = operation["responses"][str(answer.status)]
                if "content" in said:
                    named = said["content"]["application/json"]["schema"]
                    jsonschema.validate(answer.json, {"components": description["components"], **named})


# Limits


def test_a_prefix_may_ask_for_so_much_in_a_minute(tmp_path):
    of = task()
    settings = Settings(rate=10, reads=3)
    with serving(announced(tmp_path, of), settings=settings) as gateway, Client(gateway.url) as client:
        assert client.post(*[wire(release(of)) for _ in range(10)]).status == 202
        # Pages that are opened do not use up what answers may.
        assert [client.get("/v1/tasks").status for _ in range(3)] == [200] * 3
        answer = client.post(wire(release(of)))
        assert (answer.status, answer.json) == (429, {"error": "too-many"})
        assert 0 < int(answer.headers["retry-after"]) <= 60
    with Client(gateway.url) as client, pytest.raises(OSError, match=r"."):
        client.get("/healthz")


def test_a_full_batch_is_taken_under_a_small_rate(tmp_path):
    of = task()
    with serving(announced(tmp_path, of), settings=Settings(rate=100)) as gateway:
        with Client(gateway.url) as client:
            assert client.post(*[wire(release(of)) for _ in range(256)]).json["accepted"] == 256
        # Nothing else in this minute.
        with Client(gateway.url) as client:
            assert client.post(wire(release(of))).status == 429


def test_whatever_is_asked_for_is_counted(tmp_path):
    paths = ["/v1/tasks", "/other", "/v1/tasks/other", "/openapi.json", "/metrics"]
    settings = Settings(rate=2, reads=len(paths), token="0123456789abcdef")
    with serving(announced(tmp_path, task()), settings=settings) as gateway:

        def status(method, path):
            with Client(gateway.url) as client:
                return client.ask(method, path).status

        assert [status("GET", path) for path in paths] == [401] * len(paths)
        assert [status(method, "/v1/tasks") for method in ("GET", "OPTIONS")] == [429] * 2
        assert [status("POST", path) for path in paths[:3]] == [401, 401, 429]
        assert status("GET", "/healthz") == 200


def test_counts_are_of_prefixes_in_bounded_memory_and_forgotten(monkeypatch):
    moment = [0.0]
    monkeypatch.setattr(rate_limits, "monotonic", lambda: moment[0])
    limit = RateLimit(2)
    assert [limit.wait(f"192.0.2.{host}") for host in range(3)] == [0.0, 0.0, 60.0]
    assert limit.wait("::ffff:192.0.2.9") == 60.0
    assert [limit.wait(f"2001:db8:1:{host}::1") for host in range(3)] == [0.0, 0.0, 60.0]
    assert limit.wait("192.0.3.1") == limit.wait("2001:db8:2::1") == limit.wait("nonsense") == 0.0
    monkeypatch.setattr(rate_limits, "PREFIXES", 50)
    for number in range(400):
        limit.wait(f"10.{number // 200}.{number % 200}.1")
    assert len(limit._counts) <= 51
    assert limit.wait("10.9.9.9") > 0
    # No address is kept, and nothing for longer than a minute.
    assert all(bytes((192, 0, 2)) not in name for name in limit._counts)
    moment[0] = 60.0
    assert limit.wait("192.0.2.9") == 0.0
    assert len(limit._counts) == 1


def test_too_many_waiting_releases_are_to_come_again(tmp_path, monkeypatch):
    of = task()
    monkeypatch.setattr(appending, "WAITING", 4)
    held, hold = threading.Event(), threading.Event()

    def append(log, batch):
        held.set()
        hold.wait(30)

    with serving(announced(tmp_path, of), settings=OPEN) as gateway:
        with monkeypatch.context() as patch:
            patch.setattr(SqliteLog, "append", append)
            statuses = []

            def post(number):
                with Client(gateway.url) as client:
                    answer = client.post(*[wire(release(of)) for _ in range(number)])
                    statuses.append((answer.status, answer.headers.get("retry-after")))

            threads = [threading.Thread(target=post, args=(number,)) for number in (1, 3)]
            threads[0].start()
            held.wait(30)
            threads[1].start()
            while gateway.appending.waiting < 3:
                time.sleep(0.01)
            post(2)
            assert statuses == [(429, "1")]
            hold.set()
            for thread in threads:
                thread.join()
        assert sorted(statuses)[:2] == [(202, None)] * 2


def test_a_log_that_is_away_is_503_and_nothing_is_lost(tmp_path, monkeypatch):
    of = task()
    url = announced(tmp_path, of)
    messages = [wire(release(of)) for _ in range(3)]

    def away(*arguments):
        raise UnreachableError("the log is away")

    with serving(url, settings=OPEN) as gateway, Client(gateway.url) as client:
        with monkeypatch.context() as patch:
            patch.setattr(SqliteLog, "append", away)
            patch.setattr(SqliteLog, "begin", away)
            answer = client.post(*messages)
            assert (answer.status, answer.json, answer.headers["retry-after"]) == (503, {"error": "unavailable"}, "5")
            answer = client.get("/healthz")
            assert (answer.status, answer.json) == (503, {"error": "unavailable"})
            assert b'murk_gateway_log_reachable{task="third-child"} 0.0' in generate_latest(gateway.registry)
        assert client.post(*messages).status == 202
        assert client.get("/healthz").status == 200
    assert sorted(stored(url)) == sorted(messages)


def test_a_fault_is_503_and_does_not_end_the_gateway(door, monkeypatch):
    of, _, gateway = door

    def fault(*arguments):
        raise ZeroDivisionError("S3CR3T")

    with Client(gateway.url) as client:
        with monkeypatch.context() as patch:
            patch.setattr(SqliteLog, "append", fault)
            assert client.post(wire(release(of))).status == 503
            assert b"S3CR3T" not in client.get("/healthz").body
        assert client.post(wire(release(of))).status == 202


def test_pages_of_declared_origins_may_read(tmp_path):
    of = task()
    page = "https://app.example.org"
    settings = Settings(origins=(page,), rate=0)
    with serving(announced(tmp_path, of), settings=settings) as gateway, Client(gateway.url) as client:
        answer = client.get(BASE, Origin=page)
        assert answer.headers["access-control-allow-origin"] == page
        assert answer.headers["vary"] == "Origin"
        assert "access-control-allow-credentials" not in answer.headers
        assert {"Date", "ETag", "Murk-Task-Hash"} <= {*answer.headers["access-control-expose-headers"].split(", ")}
        answer = client.ask("OPTIONS", f"{BASE}/releases", Origin=page, Access_Control_Request_Method="POST")
        assert (answer.status, answer.headers["access-control-allow-methods"]) == (204, "GET, POST")
        # Refusals, too: otherwise the page could not tell them from a broken network.
        assert client.post(b"{}", Origin=page).headers["access-control-allow-origin"] == page
        for other in (
            "https://evil.example",
            "null",
            "https://app.example.org.evil.example",
            "http://app.example.org",
        ):
            assert "access-control-allow-origin" not in client.get(BASE, Origin=other).headers
    settings = Settings(origins=("*",), rate=0)
    with serving(announced(tmp_path, of), settings=settings) as gateway, Client(gateway.url) as client:
        assert client.get(BASE, Origin=page).headers["access-control-allow-origin"] == page
        kept = app._kept_line.cache_info().currsize
        other = f"https://{secrets.token_hex(8)}.example"
        assert client.get(BASE, Origin=other).headers["access-control-allow-origin"] == other
        # Where a person was is not kept.
        assert app._kept_line.cache_info().currsize == kept


def test_pages_may_send_the_headers_that_are_allowed(tmp_path):
    page = "https://app.example.org"
    settings = Settings(origins=(page,), rate=0, allowed_headers=("traceparent", "baggage"))
    with serving(announced(tmp_path, task()), settings=settings) as gateway, Client(gateway.url) as client:
        answer = client.ask("OPTIONS", f"{BASE}/releases", Origin=page, Access_Control_Request_Method="POST")
        allowed = answer.headers["access-control-allow-headers"].split(", ")
        assert allowed == ["Authorization", "Content-Type", "If-None-Match", "traceparent", "baggage"]


def test_what_the_server_does_not_do_is_no_final_refusal(tmp_path):
    of = task()
    url = announced(tmp_path, of)
    with serving(url, settings=OPEN) as gateway, Client(gateway.url) as client:
        messages = [wire(release(of)) for _ in range(6)]
        offers = [b"Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\nConnection: Upgrade, HTTP2-Settings\r\n",
                  b"Connection: upgrade, close\r\nUpgrade: TLS/1.2\r\n",
                  b"Upgrade: websocket\r\nConnection: Upgrade\r\n"]  # fmt: skip
        for offer, body in zip(offers, messages, strict=False):
            head = b"POST /v1/tasks/third-child/releases HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
            for parts in ([head + offer + b"Content-Length: %d\r\n\r\n" % len(body) + body],
                          [head + offer + b"Content-Length: %d\r\n\r\n" % len(body), body[:9], body[9:]]):  # fmt: skip
                last = b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n" * (b"close" not in offer)
                found = raw(gateway.url, *parts, last, pause=0.05)
                assert found.startswith(b"HTTP/1.1 202"), (offer, found)
                assert found.count(b"HTTP/1.1 200") == bool(last)
        assert sorted(stored(url)) == sorted(messages[:3])
        assert raw(gateway.url, b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n").startswith(b"HTTP/1.1 400")
        body = messages[3]
        for headers in (
            {"Content-Encoding": "gzip"},
            {"Content-Encoding": "br"},
            {"Content-Type": "application/json; charset=utf-16"},
        ):
            assert client.post(body, **headers).status == 415
        for headers in ({"Content-Encoding": "identity"}, {"Content-Type": 'application/json; Charset="UTF-8"'}):
            assert client.post(body, **headers).status == 202


def test_a_token_is_needed_where_one_is_set(tmp_path):
    of, token = task(), secrets.token_hex(16)
    settings = Settings(token=token, rate=0)
    with serving(announced(tmp_path, of), settings=settings) as gateway, Client(gateway.url) as client:
        for wrong in (
            {},
            {"Authorization": "Bearer x"},
            {"Authorization": token},
            {"Authorization": "Bearer \xff"},
        ):
            # What is not there, as well: otherwise 404 would tell the task's name.
            for path in (BASE, f"{BASE}/model", "/metrics", "/openapi.json", "/v1/tasks", "/v1/tasks/other", "/other"):
                answer = client.get(path, **wrong)
                assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
            assert client.post(wire(release(of)), **wrong).status == 401
        known, other = (client.ask("OPTIONS", f"/v1/tasks/{name}/releases") for name in ("third-child", "other"))
        del known.headers["date"], other.headers["date"]
        assert known == other
        assert known.status == 204
        # The name of a scheme has no case (RFC 9110, section 11.1).
        assert client.get(BASE, Authorization=f"bearer {token}").status == 200
        right = {"Authorization": f"Bearer {token}"}
        assert client.get("/v1/tasks/other", **right).status == 404
        assert client.get("/healthz").status == 200
        answer = client.get(BASE, **right)
        assert (answer.status, answer.headers["cache-control"]) == (200, "private, max-age=60")
        assert client.post(wire(release(of)), **right).status == 202


# Hostile clients


@pytest.fixture
def usual(tmp_path):
    """A gateway that waits for ten seconds."""
    of = task()
    with serving(announced(tmp_path, of), settings=OPEN) as gateway:
        yield of, gateway


@pytest.fixture
def hasty(tmp_path, monkeypatch):
    """A gateway that waits for half a second where it otherwise waits for ten."""
    monkeypatch.setattr(connection, "HEADER_SECONDS", 0.5)
    monkeypatch.setattr(connection, "ANSWER_SECONDS", 1.0)
    monkeypatch.setattr(app, "BODY_SECONDS", 0.5)
    of = task()
    with serving(announced(tmp_path, of), settings=OPEN, connections=20) as gateway:
        yield of, gateway


def head(length, more=b""):
    return b"POST %s/releases HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n%s\r\n" % (BASE.encode(), length, more)


def test_who_says_nothing_or_says_it_slowly_is_cut_off(hasty):
    _, gateway = hasty
    assert raw(gateway.url) == b""
    assert raw(gateway.url, b"GET / HT", *[b"x"] * 40, pause=0.05) == b""
    assert raw(gateway.url, b"GET / HTTP/1.1\r\n", *[b"a: b\r\n"] * 40, pause=0.05) == b""
    # Between two requests, as well; on a busy machine this client itself may be cut off before its first one.
    deadline = time.monotonic() + 60
    while not raw(gateway.url, b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n").startswith(b"HTTP/1.1 200"):
        assert time.monotonic() < deadline


def test_a_body_that_trickles_in_is_too_slow(hasty, monkeypatch):
    _, gateway = hasty
    monkeypatch.setattr(connection, "HEADER_SECONDS", 10.0)
    for answer in (
        raw(gateway.url, head(500), *[b"x"] * 8, pause=0.05),
        raw(gateway.url, head(500)),
        raw(gateway.url, head(0, b"transfer-encoding: chunked\r\n").replace(b"content-length: 0\r\n", b""), b"5\r\nab"),
    ):
        assert answer.startswith(b"HTTP/1.1 408")
        assert answer.endswith(b'{"error":"too-slow"}')


def test_headers_that_are_too_long_are_refused(usual):
    _, gateway = usual
    for request in (
        b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nhost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nx: " + b"a" * 20_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 4_000 + b"\r\n",
        b"GET / HTTP/1.1\r\nx: " + b"a" * 60_000,
    ):
        assert raw(gateway.url, request).startswith(b"HTTP/1.1 431")


def test_bodies_that_are_too_large_are_refused_unread(usual):
    _, gateway = usual
    most = gateway._door._most
    assert raw(gateway.url, head(most + 1)).startswith(b"HTTP/1.1 413")
    assert raw(gateway.url, head(10**25)).startswith((b"HTTP/1.1 413", b"HTTP/1.1 400"))
    chunked = b"POST %s/releases HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n" % BASE.encode()
    chunk = b"%x\r\n%s\r\n" % (30_000, b"x" * 30_000)
    assert raw(gateway.url, chunked, *[chunk] * (most // 30_000 + 1)).startswith(b"HTTP/1.1 413")


def test_requests_that_are_no_http_are_refused(usual):
    _, gateway = usual
    for request in (
        b"\x00\x01\x02\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"GET\r\n\r\n", b"HELO a\r\n",
        b"POST / HTTP/1.1\r\ncontent-length: x\r\n\r\n",
        b"POST / HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
        b"POST / HTTP/1.1\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"GET / HTTP/1.1\r\nb\xc3d header: a\r\n\r\n",
    ):  # fmt: skip
        assert raw(gateway.url, request)[:12] in (b"HTTP/1.1 400", b"")
    with Client(gateway.url) as client:
        assert client.get("/healthz").status == 200


def test_without_its_extra_the_cure_is_named(tmp_path):
    code = """if True:
        import sys
        sys.modules["uvicorn"] = None
        from murk.gateway.server import Gateway
        from murk.stream import open_log
        with open_log(sys.argv[1]) as log:
            Gateway(log, log.registered_task())
    """
    done = subprocess.run([sys.executable, "-c", code, announced(tmp_path, task())], capture_output=True, text=True)
    assert re.search(r'UserError: a gateway needs uvicorn and httptools: pip install .*\[gateway\]"', done.stderr)


def test_there_are_so_many_connections_and_no_more(hasty, monkeypatch):
    monkeypatch.setattr(connection, "HEADER_SECONDS", 5.0)
    _, gateway = hasty
    others = [socket.create_connection((gateway.host, gateway.port)) for _ in range(20)]
    assert raw(gateway.url, b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n").startswith((b"HTTP/1.1 503", b""))
    for one in others:
        one.close()
    deadline = time.monotonic() + 30
    while b"200 OK" not in raw(gateway.url, b"GET /healthz HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"):
        assert time.monotonic() < deadline


def test_an_answer_does_not_wait_for_the_client_to_confirm_its_first_part(door):
    """Without the option, the body waits until the client confirms the headers: 40 ms by default on Linux."""
    _, _, gateway = door
    with Client(gateway.url) as client:
        assert client.get("/healthz").status == 200
        # Those of earlier clients may be about to end.
        deadline = time.monotonic() + 30
        while len(connections := list(gateway._server.server_state.connections)) > 1:
            assert time.monotonic() < deadline
        accepted = connections[0].transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_who_does_not_read_is_cut_off(hasty, monkeypatch):
    _, gateway = hasty
    monkeypatch.setattr(connection, "HEADER_SECONDS", 10.0)
    monkeypatch.setitem(gateway._door.__dict__, "_description", b"x" * 2**25)
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        client.connect((gateway.host, gateway.port))
        client.settimeout(10.0)
        client.sendall(b"GET /openapi.json HTTP/1.1\r\nhost: a\r\n\r\n")
        deadline = time.monotonic() + 60
        while not gateway._door.requests or gateway._server.server_state.connections:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        size = 0
        with contextlib.suppress(ConnectionError):
            while data := client.recv(65_536):
                size += len(data)
        # What the system had buffered.
        assert size < 2**24


def test_requests_before_the_answer_are_not_read(usual):
    """A client that does not wait is answered once, and may ask again."""
    of, gateway = usual
    body = wire(release(of))
    request = head(len(body)) + body
    for number in (2, 3, 2_000):
        answer = raw(gateway.url, request * number)
        assert answer.count(b"HTTP/1.1 ") <= 1
        assert answer.startswith(b"HTTP/1.1 202") or number == 2_000
    assert gateway.appending.counts.accepted <= 3


def test_trailers_are_bounded_and_not_kept(usual):
    of, gateway = usual
    body = wire(release(of))
    chunked = b"POST %s/releases HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n" % BASE.encode()
    whole = chunked + b"connection: close\r\n\r\n%x\r\n%s\r\n0\r\n" % (len(body), body)
    assert raw(gateway.url, whole + b"a: b\r\n\r\n").startswith(b"HTTP/1.1 202")
    before = gateway.appending.counts.accepted
    for trailers in (b"a: b\r\n" * 4_000, b"x: " + b"a" * 20_000, b"a" * 20_000):
        answer = raw(gateway.url, whole, trailers, pause=0.1)
        assert answer.startswith(b"HTTP/1.1 431")
        assert answer.count(b"HTTP/1.1") == 1
    # What stands beside a chunk's length, as well.
    assert raw(gateway.url, chunked, b"\r\n2;x=", *[b"a" * 9_000] * 2, pause=0.05).startswith(b"HTTP/1.1 431")
    # No trailer becomes a header: the application would see it.
    assert gateway.appending.counts.accepted == before
    kept = connection.Connection.__new__(connection.Connection)
    kept.headers, kept._waiting = [], False
    kept.on_header(b"authorization", b"x")
    assert kept.headers == []


# Starting


def certificate(folder):
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(7)
        .not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    (folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return str(folder / "cert.pem"), str(folder / "key.pem")


def test_a_renewed_certificate_is_served_without_a_restart(tmp_path):
    cert, key = certificate(tmp_path)
    (tmp_path / "new").mkdir()
    with serving(announced(tmp_path, task()), certificate=cert, key=key) as gateway:

        def served():
            return ssl.get_server_certificate((gateway.host, gateway.port))

        before = served()
        # A certificate whose key is still the former one's changes nothing.
        new_cert, new_key = certificate(tmp_path / "new")
        shutil.copy(new_cert, cert)
        assert "the former stays in use" in gateway.reload()
        assert served() == before
        shutil.copy(new_key, key)
        services.eventually(lambda: served() != before)
        assert served().split() == Path(new_cert).read_text().split()


def test_tls(tmp_path):
    of = task()
    cert, key = certificate(tmp_path)
    with serving(announced(tmp_path, of), certificate=cert, key=key) as gateway:
        trusted = ssl.create_default_context(cafile=cert)
        with urllib.request.urlopen(f"https://localhost:{gateway.port}{BASE}", context=trusted) as answer:
            assert answer.read() == of.document()
        assert b"HTTP/1.1" not in raw(gateway.url.replace("https", "http"), b"GET / HTTP/1.1\r\n\r\n")
    for wrong in ({"certificate": cert, "key": cert}, {"certificate": str(tmp_path / "none"), "key": key}):
        with pytest.raises(UserError, match="certificate"), serving(announced(tmp_path, of), **wrong):
            pass


def test_addresses_that_cannot_be_had(door, tmp_path):
    _, url, gateway = door
    with pytest.raises(MurkError, match="choose another --port"), serving(url, port=gateway.port):
        pass
    with pytest.raises(UserError, match="choose another --port"), serving(url, host="203.0.113.1"):
        pass


@pytest.fixture
def shuffled(tmp_path):
    """A task that is shuffled, the log of its releases, and a function that lets a shuffler claim the log."""
    of = Task.parse(TASK.replace("gdp: {mu: 1.0}", "pure: {epsilon: 4.0}") + "shuffle: {crowd: 1000}\n")
    url = announced(tmp_path, of)

    def claim():
        with open_log(url) as log:
            log.claim("0" * 32)

    return of, url, claim


def test_the_log_of_a_shuffler_is_refused(shuffled):
    _, url, claim = shuffled
    with serving(url) as gateway, Client(gateway.url) as client:
        assert client.get(BASE).status == 200
    claim()
    with pytest.raises(UserError, match="shuffler's input log") as refused, serving(url):
        pass
    assert refused.value.code == "MURK-SHUFFLE-001"


def test_a_log_that_a_shuffler_claims_later_gets_nothing_more(shuffled, monkeypatch):
    of, url, claim = shuffled
    monkeypatch.setattr(appending, "CHECK", 0.0)

    def claimed_while_serving():
        with serving(url, settings=OPEN) as gateway, Client(gateway.url) as client:
            claim()
            deadline = time.monotonic() + 30
            while not gateway.appending.misplaced:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            with contextlib.suppress(OSError):
                assert client.post(wire(release(of))).status == 503

    with pytest.raises(UserError, match="shuffler's input log"):
        claimed_while_serving()
    assert stored(url) == []


def test_nothing_that_waits_is_appended_to_the_log_of_a_shuffler(shuffled, monkeypatch):
    of, url, claim = shuffled
    monkeypatch.setattr(appending, "CHECK", 0.0)
    with open_log(url) as log:
        answered = []
        doing = appending.GroupCommit(log, of, answered.extend)
        claim()
        while not doing.misplaced:
            doing.step()
        doing.closed = False
        message = appending.Submission([wire(release(of))], None)
        assert doing.submit(message)
        doing.close()
        assert (answered, message.outcomes, log.end(0)) == ([message], None, 0)


def test_a_locked_file_is_not_a_replaced_one(tmp_path):
    """Clients retry until the other process is done."""
    of = task()
    path = announced(tmp_path, of).removeprefix("sqlite:///")
    message = wire(release(of))
    with SqliteLog(path, timeout=0.01) as log, contextlib.closing(sqlite3.connect(path)) as other:
        doing = appending.GroupCommit(log, of, lambda group: None)
        outcomes = []
        for statement in ("BEGIN IMMEDIATE", "ROLLBACK"):
            other.execute(statement)
            submission = appending.Submission([message], None)
            assert doing.submit(submission)
            doing.step()
            outcomes.append(submission.outcomes)
        assert (outcomes, doing.replaced, log.end(0)) == ([None, [None]], None, 1)


def test_nothing_is_appended_again_until_it_is_known_where(tmp_path, monkeypatch):
    of = task()
    message = wire(release(of))

    def refused(log):
        raise MurkError("the broker denies this user access", code="MURK-KAFKA-002")

    with open_log(announced(tmp_path, of)) as log:
        doing = appending.GroupCommit(log, of, lambda group: None)

        def ask():
            submission = appending.Submission([message], None)
            assert doing.submit(submission)
            doing.step()
            return submission.outcomes

        with monkeypatch.context() as patch:
            patch.setattr(SqliteLog, "check_unchanged", refused)
            assert [ask() for _ in range(5)] == [None] * 5
            assert log.end(0) == 1
        assert [ask(), ask(), log.end(0)] == [[None], [None], 2]


def test_split_keeps_every_byte():
    first, second = b'{"a" : 1.0e0,  "b":"\\u00e9"}', b'{"c":[1, 2]}'
    assert split(b" \n" + first + b"\t") == [first]
    assert split(b" [ " + first + b" , " + second + b"]\n") == [first, second]


def test_metrics_are_those_of_the_catalogue(door):
    _, _, gateway = door
    with Client(gateway.url) as client:
        client.get("/healthz")
        # They say how many releases arrive when.
        assert client.get("/metrics").status == 404
    found = list(text_string_to_metric_families(generate_latest(gateway.registry).decode()))
    wanted = [metric for metric in METRICS if metric.side == "gateway"]
    assert [family.name + ("_total" if family.type == "counter" else "") for family in found] == [
        metric.name for metric in wanted
    ]
    for family, metric in zip(found, wanted, strict=True):
        assert (family.type, family.documentation) == (metric.kind, metric.help)
        assert family.samples
        assert all(sample.labels.keys() == set(metric.labels) for sample in family.samples)


def test_pages_are_served_on_this_machine_only(tmp_path):
    """A hostile site that resolves its name to this machine reads none."""
    pages = {"/page": lambda headers: Response(200, "text/html; charset=utf-8", b"<p>Hello")}
    with serving(announced(tmp_path, task()), settings=OPEN, pages=pages) as gateway, Client(gateway.url) as client:
        answer = client.get("/page?query")
        assert (answer.status, answer.body) == (200, b"<p>Hello")
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        assert answer.headers["content-security-policy"].startswith("default-src 'self';")
        assert client.ask("HEAD", "/page").headers["content-length"] == "8"
        assert client.get("/page", Host="localhost:8480").status == 200
        assert client.get("/page", Host="hostile.example").status == 421
        assert client.ask("POST", "/page").status == 405
        assert client.get("/pages").status == 404
        assert "default-src 'none'" in client.get(BASE).headers["content-security-policy"]


def test_an_address_has_so_many_connections_and_others_have_theirs(tmp_path):
    of = task()
    with serving(announced(tmp_path, of), settings=Settings(rate=0, each=3), connections=20) as gateway:
        address = (gateway.host, gateway.port)
        with contextlib.ExitStack() as stack:
            for _ in range(3):
                stack.enter_context(socket.create_connection(address, timeout=30))
            refused = stack.enter_context(socket.create_connection(address, timeout=30))
            assert refused.recv(100).startswith(b"HTTP/1.1 503")
            other = stack.enter_context(socket.create_connection(address, timeout=30, source_address=("127.0.0.2", 0)))
            other.sendall(b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n")
            assert other.recv(100).startswith(b"HTTP/1.1 200")
        # Those that are gone make room.
        deadline = time.monotonic() + 60
        while not raw(gateway.url, b"GET /healthz HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").startswith(
            b"HTTP/1.1 200"
        ):
            assert time.monotonic() < deadline
