"""Records a second that a service's handlers release with `AsyncProducer`: ``python -m benchmarks.service``.

Sixteen clients post records to an ASGI service in a process of its own (FastAPI if it is installed), which awaits the
durable release of each and answers 202. The ratios are to the same service that answers at once, and to one
`Producer.release` after another in a bare loop. Everything is on one machine: its cores serve the clients, too.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import uvicorn

from benchmarks.gateway import cpu, load
from murk import Task
from murk.producers import AsyncProducer, Ledger, Producer
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
CLIENTS = 16


def requests(number, path, turn):
    head = "POST /{} HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{}"
    made = [json.dumps({"person": f"{turn}-{index}", "record": RECORD}) for index in range(number)]
    return [head.format(path, len(body), body).encode() for body in made]


def plain_application(producer):
    """Return an ASGI application with the two handlers, without a framework."""

    async def application(scope, receive, send):
        if scope["type"] == "lifespan":
            await receive()
            await producer.__aenter__()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await producer.__aexit__()
            await send({"type": "lifespan.shutdown.complete"})
            return
        body = b""
        while (message := await receive())["more_body"]:
            body += message["body"]
        answer = json.loads(body + message["body"])
        if scope["path"] == "/release":
            receipt = await producer.release(answer["record"], person=answer["person"])
            assert receipt.outcome == "released", receipt
        await send({"type": "http.response.start", "status": 202, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"{}"})

    return application


def application_for(producer):
    """Return the two handlers as a FastAPI application, or a plain one."""
    try:
        from contextlib import asynccontextmanager

        from fastapi import FastAPI
        from pydantic import BaseModel
    except ModuleNotFoundError:
        return plain_application(producer)

    class Answer(BaseModel):
        person: str
        record: dict[str, str | float]

    @asynccontextmanager
    async def lifespan(_):
        async with producer:
            yield

    application = FastAPI(lifespan=lifespan)

    @application.post("/nothing", status_code=202)
    async def nothing(answer: Answer) -> dict[str, str]:
        return {}

    @application.post("/release", status_code=202)
    async def release(answer: Answer) -> dict[str, str]:
        receipt = await producer.release(answer.record, person=answer.person)
        assert receipt.outcome == "released", receipt
        return {}

    return application


def serve(url, ledger):
    """Serve in this process, and write the port to standard output."""
    application = application_for(AsyncProducer(url, ledger))
    server = uvicorn.Server(uvicorn.Config(application, port=0, log_level="warning", access_log=False))

    def announce():
        while not server.started:
            time.sleep(0.05)
        print(type(application).__name__, server.servers[0].sockets[0].getsockname()[1], flush=True)
        sys.stdin.read()
        server.should_exit = True

    threading.Thread(target=announce, daemon=True).start()
    server.run()


def one_by_one(log, folder, number):
    """Return releases a second of a bare loop over `Producer.release`."""
    with Ledger(folder / "alone.db") as ledger:
        producer = Producer(log.registered_task(), log, ledger)
        began = time.perf_counter()
        for index in range(number):
            producer.release(RECORD, person=f"p{index}")
        return number / (time.perf_counter() - began)


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=3_000, help="of each turn")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument("--log", help="URL of a new log; by default a file's")
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    chosen = parser.parse_args(argv)
    if chosen.serve:
        serve(*chosen.serve)
        return
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        url = chosen.log or f"sqlite:///{folder}/log.db"
        with open_log(url, name="service") as log:
            log.register_task(Task.parse(TASK).document())
            bare = one_by_one(log, folder, chosen.records // 3)
        command = [sys.executable, "-m", "benchmarks.service", "--serve", url, f"{folder}/ledger.db"]
        server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ)
        kind, port = server.stdout.readline().split()
        rates = {"nothing": [], "release": []}
        latencies, used = [], dict.fromkeys(rates, 0.0)
        for turn in range(chosen.rounds + 1):
            for name, found in rates.items():
                before = cpu(server.pid)
                seconds, answered = load(int(port), requests(chosen.records, name, turn), chosen.clients)
                if turn:
                    # The first turn warms up.
                    found.append(chosen.records / seconds)
                    used[name] += 1e6 * (cpu(server.pid) - before) / (chosen.rounds * chosen.records)
                    latencies += answered if name == "release" else []
        server.communicate("")
        with open_log(url, create=False, name="service") as log:
            stored = sum(log.ends()) - chosen.records // 3
        assert stored == (chosen.rounds + 1) * chosen.records, stored
    release, nothing = statistics.median(rates["release"]), statistics.median(rates["nothing"])
    print(
        f"{kind}, {chosen.clients} clients: {release:,.0f} releases a second, median latency "
        f"{1e3 * statistics.median(latencies):.1f} ms; / the same service without releases ({nothing:,.0f}): "
        f"{release / nothing:.2f}; / one Producer.release after another ({bare:,.0f}): {release / bare:.2f}; "
        f"CPU of the service {used['release']:.0f} us a release, {used['nothing']:.0f} without"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
