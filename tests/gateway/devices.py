"""Devices of these tests: honest releases of any task, forged ones that pass, and a client with its own sockets."""

import contextlib
import http.client
import json
import secrets
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from murk import Task
from murk.gateway.server import Gateway
from murk.producers import Ledger, Producer
from murk.stream import open_log

TASK = """
name: third-child
features:
  - {name: same_sex, categories: ["no", "yes"]}
  - {name: age, low: 21, high: 35}
target: {name: third_child, kind: binary, positive: "yes", negative: "no"}
privacy: {guarantee: {gdp: {mu: 1.0}}}
"""
RECORD = {"same_sex": "yes", "age": 30, "third_child": "no"}


def task(**keys: object) -> Task:
    return Task.parse(TASK + "".join(f"{key}: {json.dumps(value)}\n" for key, value in keys.items()))


def announced(folder: Path, announced_task: Task) -> str:
    """The URL of a log that carries a task."""
    url = f"sqlite:///{folder}/log.db"
    with open_log(url) as log:
        log.register_task(announced_task.document())
    return url


def release(of: Task, **changes: Any) -> dict[str, Any]:
    """A release to a task of scores as a device sends it to begin with, of a made-up number."""
    now = int(time.time())
    fields = {
        "schema": 1, "kind": "score", "id": secrets.token_hex(16), "task": of.hash, "level": "default", "partition": 0,
        "payload": [secrets.randbelow(2**20) - 2**19], "time": now - now % of.granularity,
        "expires": now + of.expiry - (now + of.expiry) % of.granularity, "simulated": False, "version": 0,
        "query": "above", "item": 0,
    }  # fmt: skip
    return fields | changes


def wire(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


def honest(of: Task, number: int) -> list[bytes]:
    """Releases as a device makes them, of different people."""
    with (
        tempfile.TemporaryDirectory() as folder,
        open_log(announced(Path(folder), of)) as log,
        Ledger(Path(folder) / "ledger.db") as ledger,
    ):
        producer = Producer(of, log, ledger)
        for person in range(number):
            assert producer.release(RECORD, person=f"p{person}").delivery == "sent"
        return [message.value for partition in range(log.partitions) for message in log.read(partition, 0, number)]


def stored(url: str) -> list[bytes]:
    """All messages of a log."""
    with open_log(url, create=False) as log:
        return [
            message.value
            for partition in range(log.partitions)
            for begin in range(0, log.end(partition), 4_096)
            for message in log.read(partition, begin, 4_096)
        ]


class Answered(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """A connection to a gateway; a context manager."""

    def __init__(self, url: str) -> None:
        self.host, _, port = url.removeprefix("http://").partition(":")
        self.port = int(port)
        self.connection = http.client.HTTPConnection(self.host, self.port, timeout=60)

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Answered:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if body is not None:
            named = {"Content-Type": "application/json"} | named
        self.connection.request(method, path, body, named)
        answer = self.connection.getresponse()
        return Answered(answer.status, {key.lower(): value for key, value in answer.getheaders()}, answer.read())

    def get(self, path: str, **headers: str) -> Answered:
        return self.ask("GET", path, **headers)

    def post(self, *releases: bytes, name: str = "third-child", **headers: str) -> Answered:
        body = releases[0] if len(releases) == 1 else b"[" + b",".join(releases) + b"]"
        return self.ask("POST", f"/v1/tasks/{name}/releases", body, **headers)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *error: object) -> None:
        self.connection.close()


def raw(url: str, *parts: bytes, pause: float = 0.0) -> bytes:
    """What a server answers to some bytes, until it closes the connection."""
    client = Client(url)
    found = b""
    with socket.create_connection((client.host, client.port), 30) as connection, contextlib.suppress(OSError):
        for part in parts:
            connection.sendall(part)
            time.sleep(pause)
        while data := connection.recv(65_536):
            found += data
    return found


@contextlib.contextmanager
def serving(url: str, **settings: Any) -> Iterator[Gateway]:
    """A gateway of a log in threads of this process."""
    ready, ended, made, errors = threading.Event(), threading.Event(), [], []

    def run() -> None:
        try:
            with open_log(url, create=False) as log:
                document = log.document()
                assert document is not None
                with Gateway(log, Task.from_document(document), **settings) as gateway:
                    made.append(gateway)
                    ready.set()
                    while not ended.is_set():
                        gateway.step()
        except Exception as error:  # noqa: BLE001 - raised below
            errors.append(error)
        finally:
            ready.set()

    thread = threading.Thread(target=run)
    thread.start()
    ready.wait()
    try:
        if not errors:
            yield made[0]
    finally:
        ended.set()
        thread.join()
    if errors:
        raise errors[0]
