"""People's accounts where the log is a cluster's: a ledger that is lost is missed, and one is used by one process."""

import secrets
import signal
import time
from pathlib import Path

import pytest

from tests.cli.harness import LEDGER, Done, murk, refused, start, world


@pytest.fixture
def url(broker) -> str:
    return f"{broker.url}/a{secrets.token_hex(6)}"


def run(folder: Path, url: str, *more: object) -> Done:
    arguments = ["run", "task.yaml", "--source", "people.csv", "--log", url, "--ledger", LEDGER, "--json", *more]
    return murk(*arguments, folder=folder)


def test_a_lost_ledger_is_missed(tmp_path: Path, url: str) -> None:
    world(tmp_path, rows=10)
    assert run(tmp_path, url).json["releases"] == 10
    assert run(tmp_path, url).json["releases"] == 10
    for path in tmp_path.glob(f"{LEDGER}*"):
        if not path.name.endswith(".run.json"):
            path.unlink()
    refused(run(tmp_path, url), "ledger")
    assert murk("status", "--log", url, "--json", folder=tmp_path).json["releases"] == 10
    assert not (tmp_path / LEDGER).exists()


def test_another_ledger_in_its_place_is_refused(tmp_path: Path, url: str) -> None:
    world(tmp_path, rows=10)
    assert run(tmp_path, url).json["releases"] == 10
    (tmp_path / "elsewhere").mkdir()
    world(tmp_path / "elsewhere", rows=10)
    assert run(tmp_path / "elsewhere", f"{url}-other").json["releases"] == 10
    for path in tmp_path.glob(f"{LEDGER}*"):
        if not path.name.endswith(".run.json"):
            path.unlink()
    (tmp_path / "elsewhere" / LEDGER).rename(tmp_path / LEDGER)
    refused(run(tmp_path, url), "is not the ledger that was used here before")
    assert murk("status", "--log", url, "--json", folder=tmp_path).json["releases"] == 10


def test_a_ledger_serves_one_process_a_task_at_a_time(tmp_path: Path, url: str) -> None:
    world(tmp_path, rows=120)
    first = start("run", "task.yaml", "--source", "people.csv", "--log", url, "--ledger", LEDGER, folder=tmp_path)
    assert first.stderr is not None
    # It holds the lock before it notes how it was started.
    while not any(tmp_path.glob(f"{LEDGER}*.run.json")):
        assert first.poll() is None, first.stderr.read()
        time.sleep(0.02)
    # In the middle of its work, for as long as the other one looks.
    first.send_signal(signal.SIGSTOP)
    done = run(tmp_path, url)
    first.kill()
    first.communicate()
    refused(done, "another `murk run` or `murk produce` is working")
    # In larger blocks: each waits for the models of the one before.
    assert run(tmp_path, url, "--block", 60).json["releases"] == 120
