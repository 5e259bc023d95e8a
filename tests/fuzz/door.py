"""Raw bytes on a connection to the HTTP gateway of two tasks, also within encrypted requests."""

import atexit
import json
import logging
import re
import socket
import struct
import tempfile
from pathlib import Path
from random import Random

from murk import Task
from murk.gateway import app, connection
from murk.gateway.app import Settings
from murk.gateway.oblivious import ObliviousKeys
from murk.gateway.server import GatewayServer
from murk.gateway.tasks import GatewayTasks
from murk.protocols.device import device_for
from murk.stream import Worker, open_log
from tests.cli.harness import WORD
from tests.fuzz.http import ANSWER_SECONDS, HEADERS, METHODS, VERSIONS, Words
from tests.fuzz.mutate import alter, spoil, strange, written
from tests.fuzz.targets import FindingError, Target
from tests.fuzz.wire import NAMES, task_of
from tests.gateway.devices import Client, release, wire
from tests.gateway.relayed import Sealed, decoded, message
from tests.stream.harness import message as honest

# 503 as well: that the log cannot be written, or that requests are too many, is no answer to a hostile one.
WAIT_SECONDS = 0.2
STATUSES = frozenset({200, 202, 204, 207, 304, 400, 404, 405, 408, 409, 410, 413, 415, 421, 422, 431})
# What the worker alone can know.
DEAD = frozenset({"stale", "version", "future"})
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
SEALED = b"\0sealed\0"
FIELDS = (
    "Content-Type: application/json", "Content-Type: text/plain", "Content-Type: message/ohttp-req",
    "Content-Type: application/json; charset=utf-16", "Content-Encoding: gzip", "Transfer-Encoding: gzip, chunked",
    "Origin: https://app.example.org", "Origin: null", "Authorization: Bearer x", "Authorization: \xff",
    "If-None-Match: *", 'If-None-Match: W/"a", "b"', "Upgrade: h2c", "Expect: 100-continue", *HEADERS,
)  # fmt: skip


def paths(tasks: list[Task]) -> tuple[str, ...]:
    inner = ("", "/", "/model", "/model?partition=0", "/model?partition=99", "/model?partition=\xb2", "/releases",
             "/releases/", "/%72eleases", "/../releases")  # fmt: skip
    each = (f"/v1/tasks/{task.name}{path}" for task in tasks for path in inner)
    return ("/", "/v1/tasks", "/v1/tasks/", "/v1/tasks/none/releases", "/openapi.json", "/healthz", "/ohttp",
            "/ohttp-keys", "/metrics", "//v1/tasks", *each)  # fmt: skip


def answered(gateway: GatewayServer, data: bytes) -> bytes:
    """The answer to some bytes; nothing if the connection was closed without one."""
    answer = b""
    with socket.create_connection((gateway.host, gateway.port), ANSWER_SECONDS) as client:
        # Closed without waiting: otherwise every request would keep a port for a minute.
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        try:
            client.sendall(data)
            while not _is_whole(answer) and (part := client.recv(65_536)):
                answer = (answer + part).removeprefix(CONTINUE)
        except TimeoutError:
            raise FindingError(f"no answer within {ANSWER_SECONDS} s") from None
        except OSError:
            # What comes after a refusal is not read, and then the connection is reset.
            pass
    return answer


def _is_whole(answer: bytes) -> bool:
    head, end, body = answer.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
    return bool(end) and len(body) >= (0 if length is None else int(length[1]))


def doors() -> Target:
    """A gateway of two logs in threads of this process, and workers that read what it has appended."""
    folder = Path(tempfile.mkdtemp())
    second = task_of("moment").document().replace(b'"third-child"', b'"another"')
    tasks = [task_of("score"), Task.from_document(second)]
    urls = [f"sqlite:///{folder}/{task.name}.db" for task in tasks]
    for url, task in zip(urls, tasks, strict=True):
        with open_log(url) as log:
            log.register_task(task.document())
    keys = ObliviousKeys.load([str(folder / "key")])
    gateway = GatewayServer(settings=Settings(rate=0, origins=("https://app.example.org",), keys=keys))
    atexit.register(gateway.close)
    served = GatewayTasks(gateway, urls)
    if served.search():
        raise FindingError("the logs cannot be served")
    # Much of it is never complete.
    app.BODY_SECONDS = connection.HEADER_SECONDS = WAIT_SECONDS
    gateway.start()
    words, known = Words(), paths(tasks)
    for name in ("murk.gateway.app", "murk.gateway.group_commit", "murk.gateway.server"):
        logging.getLogger(name).addHandler(words)

    # As devices make them today.
    times = {name: value for name, value in release(tasks[0]).items() if name in ("time", "expires")}
    shapes = [json.loads(honest(task, 0)) | times for task in tasks]

    def body(rng: Random, task: Task) -> bytes:
        """A release, or an array of some, of which most are spoilt."""
        made = []
        for _ in range(rng.choice((1, 1, 1, 2, 5, 257 if rng.random() < 0.02 else 3))):
            shape = shapes[tasks.index(task)]
            fields = shape | {
                "id": f"{rng.getrandbits(128):032x}",
                "payload": [rng.randrange(-50, 50) for _ in shape["payload"]],
            }
            way = rng.random()
            data = written(rng, alter(rng, fields, NAMES)) if way < 0.5 else wire(fields)
            made.append(spoil(rng, data) if 0.5 <= way < 0.8 else data)
        return made[0] if len(made) == 1 else b"[" + b",".join(made) + b"]"

    def make(rng: Random) -> bytes:
        task = rng.choice(tasks)
        way = rng.random()
        content = body(rng, task) if way < 0.8 else b""
        if way < 0.5:
            head = f"POST /v1/tasks/{task.name}/releases HTTP/1.1\r\nHost: a\r\nContent-Length: {len(content)}\r\n\r\n"
            return head.encode() + content
        if way < 0.65:
            plain = message("POST", f"/v1/tasks/{task.name}/releases", {"content-type": "application/json"}, content)
            return SEALED + (plain if rng.random() < 0.3 else spoil(rng, plain))
        lines = [f"{rng.choice(METHODS)} {rng.choice(known)} {rng.choice(VERSIONS)}"]
        lines += [rng.choice(FIELDS) for _ in range(rng.choice((0, 1, 2, 4)))]
        lines += [f"Content-Length: {len(content)}"] if rng.random() < 0.8 else [f"X: {strange(rng)}"]
        request = "\r\n".join([*lines, f"X-Secret: {WORD}", "", ""]).encode("latin-1", "replace") + content
        return spoil(rng, request) if rng.random() < 0.5 else request

    def take(data: bytes) -> str:
        sealed = None
        if data.startswith(SEALED):
            sealed = Sealed(keys.configuration, data.removeprefix(SEALED))
            head = "POST /ohttp HTTP/1.1\r\nContent-Type: message/ohttp-req\r\nConnection: close\r\nContent-Length: "
            data = f"{head}{len(sealed.bytes)}\r\n\r\n".encode() + sealed.bytes
        answer = answered(gateway, data)
        if WORD.encode() in answer:
            raise FindingError("an answer that repeats what was sent")
        if words.said:
            raise FindingError(f"the gateway's log says: {words.said.pop()}")
        if not answer:
            return "closed"
        status = int(answer.split(b" ", 2)[1])
        if sealed is not None and status == 200:
            status = decoded(sealed.open(answer.partition(b"\r\n\r\n")[2])).status
        if status not in STATUSES:
            raise FindingError(f"status {status}")
        return str(status) if status not in (202, 207) else "accepted"

    logs = [open_log(url) for url in urls]
    workers = [
        Worker(log, task, device_for(task).engine(), partition)
        for log, task in zip(logs, tasks, strict=True)
        for partition in range(task.log.partitions)
    ]

    def check() -> None:
        """The gateway answers, and workers learn what it has appended."""
        with Client(gateway.url) as client:
            if client.get("/healthz").status != 200:
                raise FindingError("the gateway does not answer any more")
        for worker in workers:
            while worker.step().read:
                pass
            dead = {reason for reason, count in worker.counters.dead.items() if count}
            if not dead <= DEAD:
                raise FindingError(f"the gateway appended what is a dead letter: {dead}")

    return Target(make, take, check)
