"""The README's commands for Kafka, one after another, as they stand there."""

import gzip
import json
import re
import secrets
import shlex
from pathlib import Path

from murk.demo import DATA
from tests.cli import harness
from tests.services.services import eventually

README = (Path(__file__).parents[2] / "README.md").read_text()
ROWS = 150


def test_the_commands_for_kafka_run(broker, tmp_path):
    (tmp_path / "weeks.yaml").write_text(re.search(r"^```yaml\n(.*?)^```", README, re.MULTILINE | re.DOTALL)[1])
    with gzip.open(DATA, "rt") as everybody, gzip.open(tmp_path / "mothers-1980.csv.gz", "wt") as some:
        some.writelines(line for _, line in zip(range(ROWS + 1), everybody, strict=False))
    url = f"{broker.url}/r{secrets.token_hex(6)}"
    commands = [
        shlex.split(line.replace("kafka://localhost:9092", url).replace("--port 9464", "--port 0"), comments=True)[1:]
        for line in re.findall(r"^    (murk .*--log kafka:.*)$", README, re.MULTILINE)
    ]
    assert [command[0] for command in commands] == ["topics", "learn", "monitor", "produce"]
    running = []
    try:
        for command in commands:
            if command[0] in ("learn", "monitor"):
                running.append(harness.start(*command, folder=tmp_path))
            else:
                done = harness.murk(*command, folder=tmp_path)
                assert done.status == 0, done.err
        look = ["status", "--log", url, "--json"]
        eventually(lambda: harness.murk(*look, folder=tmp_path).json["releases"] == ROWS, every=0.5)
        assert all(process.poll() is None for process in running)
    finally:
        for process in running:
            process.terminate()
    learner, monitor = (process.communicate(timeout=60) for process in running)
    assert f"{ROWS} releases learned" in learner[0], json.dumps(learner)
    assert "page at http://127.0.0.1:" in monitor[0]
