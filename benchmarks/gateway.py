"""Durably acknowledged releases a second through the HTTP gateway: ``python -m benchmarks.gateway``.

Ratios to the same server that answers 202 to the same bodies and does nothing else, and to ``log.append`` in blocks.
Both servers run beside each other, in turns, and the load comes from one process with many connections. Then, from a
POST until a worker has learned and committed the release; and 5,000 open connections, among them some whose bodies
trickle in.
"""

import argparse
import asyncio
import json
import os
import secrets
import selectors
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

from murk import Task
from murk.protocols.device import device_for
from murk.stream import Worker, open_log

TASK = """
name: third-child
features:
  - {name: same_sex, categories: ["no", "yes"]}
  - {name: age, low: 21, high: 35}
target: {name: third_child, kind: binary, positive: "yes", negative: "no"}
privacy: {guarantee: {gdp: {mu: 1.0}}}
"""
CONNECTIONS = 64


def releases(task, number):
    """Releases of made-up numbers, each with an id of its own."""
    now = int(time.time())
    fields = {
        "schema": 1, "kind": "score", "id": "", "task": task.hash, "level": "default", "partition": 0, "payload": [],
        "time": now - now % task.granularity, "expires": now + task.expiry - (now + task.expiry) % task.granularity,
        "simulated": False, "version": 0, "query": "score",
    }  # fmt: skip
    made = []
    for _ in range(number):
        fields["id"], fields["payload"] = secrets.token_hex(16), [secrets.randbelow(2**20) for _ in range(3)]
        made.append(json.dumps(fields, separators=(",", ":")).encode())
    return made


def requests(bodies, name):
    head = (
        "POST /v1/tasks/{}/releases HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n"
    )
    return [head.format(name, len(body)).encode() + body for body in bodies]


def load(port, made, connections=CONNECTIONS):
    """Seconds until all requests are answered with 202, each connection one after the other; latencies of each."""
    selector, waiting = selectors.DefaultSelector(), iter(made)
    found, latencies, done = {}, [], 0
    sockets = [socket.create_connection(("127.0.0.1", port)) for _ in range(min(connections, len(made)))]
    began = time.perf_counter()
    for one in sockets:
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        selector.register(one, selectors.EVENT_READ)
        found[one] = b"", time.perf_counter()
        one.sendall(next(waiting))
    while done < len(made):
        for key, _ in selector.select():
            one = key.fileobj
            data, since = found[one]
            data += one.recv(65_536)
            if not data.endswith(b"}"):
                found[one] = data, since
                continue
            assert data.startswith(b"HTTP/1.1 202"), data
            done += 1
            now = time.perf_counter()
            latencies.append(now - since)
            found[one] = b"", now
            request = next(waiting, None)
            if request is not None:
                one.sendall(request)
    seconds = time.perf_counter() - began
    for one in sockets:
        one.close()
    return seconds, latencies


def nothing():
    """The same server, which reads each body and answers 202: the peer."""
    import uvicorn

    from murk.gateway.connection import connection

    async def application(scope, receive, send):
        while (await receive()).get("more_body"):
            pass
        headers = [(b"content-type", b"application/json"), (b"content-length", b"27")]
        await send({"type": "http.response.start", "status": 202, "headers": headers})
        await send({"type": "http.response.body", "body": b'{"accepted":1,"refused":[]}'})

    config = uvicorn.Config(
        application, http=connection(10_000), ws="none", lifespan="off", loop="asyncio", log_config=None,
        access_log=False, server_header=False, port=0,
    )  # fmt: skip
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.bind(("127.0.0.1", 0))
    listening.listen(1_024)
    print(json.dumps({"port": listening.getsockname()[1]}), flush=True)
    asyncio.run(uvicorn.Server(config).serve([listening]))


def started(stack, *words):
    process = subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, text=True)
    stack.callback(process.wait)
    stack.callback(process.terminate)
    return json.loads(process.stdout.readline())["port"], process.pid


def cpu(pid):
    """Seconds of CPU that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def compared(url, task, total, rounds):
    """Rows: releases a request; a second of the gateway, the peer and appends; the ratio to the smaller one; more."""
    with ExitStack() as stack:
        gateway, process = started(stack, *GATEWAY, url)
        peer, other_process = started(stack, "-m", "benchmarks.gateway", "--peer")
        log = stack.enter_context(open_log(url, create=False))
        for together in (1, 64):
            clocks = {"gateway": [], "peer": [], "append": []}
            used = {"gateway": 0.0, "peer": 0.0}
            slow = []
            for turn in range(rounds + 1):
                made = releases(task, total * (1 if together == 1 else 4))
                bodies = made if together == 1 else [
                    b"[" + b",".join(made[at : at + together]) + b"]" for at in range(0, len(made), together)
                ]  # fmt: skip
                asked = requests(bodies, task.name)
                before = cpu(process), cpu(other_process)
                seconds, latencies = load(gateway, asked)
                other, _ = load(peer, asked)
                used["gateway"] += (cpu(process) - before[0]) / len(made) / (rounds + 1)
                used["peer"] += (cpu(other_process) - before[1]) / len(made) / (rounds + 1)
                blocks = [[(0, one) for one in releases(task, 1_000)] for _ in range(5)]
                begin = time.perf_counter()
                for block in blocks:
                    log.append(block)
                bare = (time.perf_counter() - begin) / 5_000
                # The first turn warms up.
                if turn:
                    clocks["gateway"].append(seconds / len(made))
                    clocks["peer"].append(other / len(made))
                    clocks["append"].append(bare)
                    slow += latencies
            ratios = [max(peer, bare) / one for one, peer, bare in zip(*clocks.values(), strict=True)]
            rates = {name: 1.0 / statistics.median(found) for name, found in clocks.items()}
            slow.sort()
            yield together, rates, used, statistics.median(ratios), slow[len(slow) // 2], slow[len(slow) * 99 // 100]


GATEWAY = ("-m", "murk", "gateway", "--port", "0", "--rate", "0", "--connections", "10000", "--json", "--log")


def until_learned(url, task, number):
    """Milliseconds from each POST until a worker beside the gateway has committed what it learned."""
    sent, learned = [], []
    with ExitStack() as stack:
        port, _ = started(stack, *GATEWAY, url)
        log = stack.enter_context(open_log(url, create=False))
        worker = stack.enter_context(Worker(log, task, device_for(task).engine()))
        while worker.step().read:
            pass

        def post():
            with socket.create_connection(("127.0.0.1", port)) as connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for request in requests(releases(task, number), task.name):
                    time.sleep(secrets.randbelow(40) / 1e3)
                    sent.append(time.perf_counter())
                    connection.sendall(request)
                    answer = b""
                    while not answer.endswith(b"}"):
                        answer += connection.recv(65_536)
                    assert answer.startswith(b"HTTP/1.1 202"), answer

        posting = threading.Thread(target=post)
        posting.start()
        patience = time.monotonic() + 60.0 + number / 10.0
        while len(learned) < number and time.monotonic() < patience:
            count = worker.step().learned
            learned += [time.perf_counter()] * count
        posting.join()
    waits = sorted(1e3 * (done - begin) for begin, done in zip(sent, learned, strict=True))
    return waits[number // 2], waits[number * 99 // 100]


async def crowded(port, made, connections, slow, seconds):
    """Keep connections open that post now and then, ``slow`` of them a byte at a time: waits in ms, and statuses."""
    waits, statuses, supply = [], Counter(), iter(made)
    end = time.perf_counter() + seconds

    async def post(number):
        await asyncio.sleep(number / connections * 5.0)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while time.perf_counter() < end and (request := next(supply, None)) is not None:
            begin = time.perf_counter()
            trickles = number < slow
            writer.write(request[:-40] if trickles else request)
            try:
                while trickles and not reader.at_eof() and not reader._buffer:
                    await asyncio.sleep(0.5)
                    writer.write(b" ")
                answer = await reader.readuntil(b"}")
            except (ConnectionError, asyncio.IncompleteReadError):
                statuses["closed"] += 1
                return
            statuses[answer[9:12].decode()] += 1
            if trickles:
                break
            waits.append(1e3 * (time.perf_counter() - begin))
            await asyncio.sleep(5.0)
        writer.close()

    await asyncio.gather(*map(post, range(connections)))
    waits.sort()
    return waits[len(waits) // 2], waits[len(waits) * 99 // 100], statuses


def resident(pid):
    """Resident memory of a process in MiB."""
    [line] = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) / 1024


def main(argv):
    parser = argparse.ArgumentParser()
    parser.add_argument("--peer", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--releases", type=int, default=4_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--learned", type=int, default=500, help="releases that a worker learns one by one")
    parser.add_argument("--open", type=int, default=5_000, help="open connections")
    parser.add_argument("--slow", type=int, default=500, help="how many of them send bodies a byte at a time")
    parser.add_argument("--log", metavar="URL", help="a cluster, kafka://HOST:PORT; by default a file")
    chosen = parser.parse_args(argv)
    if chosen.peer:
        nothing()
        return
    with tempfile.TemporaryDirectory() as folder:

        def announced():
            name = f"gateway-{secrets.token_hex(4)}"
            task = Task.parse(TASK.replace("third-child", name, 1))
            url = f"sqlite:///{Path(folder)}/{name}.db" if chosen.log is None else f"{chosen.log}/{name}"
            with open_log(url, name=name) as log:
                log.register_task(task.document())
            return url, task

        url, task = announced()
        for together, rates, used, ratio, median, tail in compared(url, task, chosen.releases, chosen.rounds):
            print(
                f"{together:3d} a request, {CONNECTIONS} connections: {rates['gateway']:,.0f} durable releases/s, "
                f"{ratio:.2f} of the smaller of the same server doing nothing ({rates['peer']:,.0f}/s) and appends in "
                f"blocks of 1,000 ({rates['append']:,.0f}/s); CPU {1e6 * used['gateway']:.0f} us a release, of the "
                f"server doing nothing {1e6 * used['peer']:.0f}; answered in {1e3 * median:.1f} ms, 99% in "
                f"{1e3 * tail:.1f} ms",
                flush=True,
            )
        # With models of its own: the first log's releases are of the first model.
        url, task = announced()
        median, tail = until_learned(url, task, chosen.learned)
        print(f"from POST to learned and committed: median {median:.1f} ms, 99% {tail:.1f} ms", flush=True)
        with ExitStack() as stack:
            port, process = started(stack, *GATEWAY, url)
            before = resident(process)
            made = requests(releases(task, 10 * chosen.open), task.name)
            median, tail, statuses = asyncio.run(crowded(port, made, chosen.open, chosen.slow, 20.0))
            print(
                f"{chosen.open:,} open connections, {chosen.slow:,} of them slow: answered in {median:.1f} ms, 99% in "
                f"{tail:.1f} ms; statuses {dict(statuses)}; memory {before:.0f} MiB before, {resident(process):.0f} at "
                "most",
                flush=True,
            )


if __name__ == "__main__":
    main(sys.argv[1:])
