"""The same releases by a file, a broker, the gateway and web devices: reports of one task by each path.

All draw from the same seed, so that their states must be equal (``state_digest`` of a report). Web devices refuse
simulations: theirs, built by ``node build.mjs --testing`` in ``devices/web``, release to the same task with real noise.
"""

import http.client
import json
import secrets
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

import murk
from murk import Task
from murk.gateway.app import MOST_RELEASES, Settings
from murk.gateway.server import Gateway
from murk.inference.confidence_sequences import Looks
from murk.inference.units import effect_units, units
from murk.privacy.noise import SimulatedNoise
from murk.protocols.device import device_for
from murk.results.report import report_estimate, report_log
from murk.stream import Worker, open_log
from murk.stream.log.interface import Log
from murk.task.privacy import DEFAULT_LEVEL

Rows = Sequence[dict[str, Any]]
Report = dict[str, Any]
WEB = Path(__file__).parents[1] / "devices" / "web"


def by_file(task: Task, rows: Rows, seed: int) -> Report:
    """Return the report of a log in a file."""
    return dict(murk.run(task, rows, seed=seed).report)


def by_memory(task: Task, rows: Rows, seed: int) -> Report:
    """Return the estimate from mechanism and learner alone: that of a file, in a tenth of the time."""
    device, engine = device_for(task.with_simulated(True)), device_for(task).engine()
    coded = task.coding.encode({name: [row[name] for row in rows] for name in rows[0]})
    vectors = device.vectors(coded.x, coded.y)  # type: ignore[attr-defined]
    payloads = device.mechanisms[DEFAULT_LEVEL].randomize(vectors, SimulatedNoise(seed), np.arange(len(rows)))
    engine.add(payloads, DEFAULT_LEVEL)
    looks = Looks("fixed-n", task.tightest_at, len(rows))
    found = engine.estimate()
    return report_estimate(found, task.coefficient_scale, units(task), 0.95, effects=effect_units(task), looks=looks)


def by_kafka(task: Task, rows: Rows, seed: int, broker: str) -> Report:
    """Return the report of topics on a broker."""
    with tempfile.TemporaryDirectory() as folder:
        log, ledger = f"{broker}/x{secrets.token_hex(6)}", Path(folder) / "ledger.db"
        return dict(murk.run(task, rows, seed=seed, log=log, ledger=ledger).report)


def by_gateway(task: Task, rows: Rows, seed: int) -> Report:
    """Return the report of releases that are posted to a gateway."""
    with tempfile.TemporaryDirectory() as folder:
        sent = f"sqlite:///{folder}/sent.db"
        murk.run(task, rows, seed=seed, log=sent, ledger=Path(folder) / "ledger.db")
        with open_log(sent, create=False) as log:
            releases = [
                message.value
                for partition in range(log.partitions)
                for start in range(0, log.end(partition), 4_096)
                for message in log.read(partition, start, 4_096)
            ]
        return _posted(task.with_simulated(True), releases, folder)


def by_web(task: Task, rows: Rows, seed: int, now: int) -> Report:
    """Return the report of releases of web devices at ``now``, in seconds since 1970, posted to a gateway."""
    with tempfile.TemporaryDirectory() as folder:
        return _posted(task, [release.encode() for release in web_releases(task, rows, seed, now)], folder)


def web_releases(task: Task, rows: Rows, seed: int, now: int, indices: Sequence[int] | None = None) -> list[str]:
    """Return the messages of web devices, one for each record; ``indices`` select draws, by default different ones."""
    given = {
        "document": task.document().decode(), "hash": task.hash, "seed": seed, "now": now, "records": list(rows),
        "indices": list(indices or range(len(rows))),
    }  # fmt: skip
    command = ["node", "--no-warnings", "test/releases.mjs"]
    done = subprocess.run(command, cwd=WEB, input=json.dumps(given), capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-2_000:])
    releases: list[str] = json.loads(done.stdout)
    return releases


def _posted(task: Task, releases: Sequence[bytes], folder: str) -> Report:
    with open_log(f"sqlite:///{folder}/posted.db") as log:
        log.register_task(task.document())
        with Gateway(log, task, settings=Settings(rate=0)) as gateway, ThreadPoolExecutor(1) as threads:
            posting = threads.submit(_post, gateway.port, task.name, releases)
            while not posting.done():
                gateway.step()
            posting.result()
        return _learned(task, log)


def _post(port: int, name: str, releases: Sequence[bytes]) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    for start in range(0, len(releases), MOST_RELEASES):
        body = b"[" + b",".join(releases[start : start + MOST_RELEASES]) + b"]"
        connection.request("POST", f"/v1/tasks/{name}/releases", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        if answer.status != 202 or json.loads(text)["refused"]:
            raise RuntimeError(f"the gateway answered {answer.status}: {text[:500]!r}")
    connection.close()


def _learned(task: Task, log: Log) -> Report:
    device = device_for(task)
    for partition in range(task.log.partitions):
        with Worker(log, task, device.engine(), partition, look=0.0) as worker:
            while worker.step().read:
                pass
    return report_log(task, log, history=False)
