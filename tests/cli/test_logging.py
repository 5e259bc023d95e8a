"""What commands log: signs of life for people and for machines, and nothing of what a record holds."""

import json
import logging
import re

import pytest

import murk
from murk import Task
from murk.protocols.device import device_for
from murk.stream import open_log
from murk.stream.log.interface import AllPartitions, UnreachableError
from murk.stream.worker import pool
from tests.cli.harness import FIGURE, LOG, LOGGED, TASK, WORD, run, world
from tests.cli.harness import murk as command

JUNK = [f"not a release of {WORD}".encode(), json.dumps({"schema": WORD, "gradient": [FIGURE]}).encode()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A log with releases that nobody has learned, and with a stranger's messages that hold what may not come out."""
    place = world(tmp_path_factory.mktemp("logging"), rows=40)
    assert run(place).json["releases"] == 40
    with open_log(f"sqlite:///{place / 'third-child.db'}") as log:
        log.append([(0, value) for value in JUNK])
    return place


def test_learn_with_json_shows_signs_of_life(folder):
    done = command("learn", "--log", LOG, "--idle", 0.1, "--json", folder=folder)
    assert done.json["releases"] == 40
    lines = done.err.splitlines()
    assert all(LOGGED.match(line) for line in lines)
    assert re.search(r"partition 0 of .*: taken over at offset 40, with 40 releases learned", done.err)
    assert re.search(r"partition 0 of .*: dead letters: malformed 1, schema 1", done.err)
    assert "released" in lines[-1]
    assert "committed" not in done.err


def test_every_line_is_an_object_with_a_time(folder):
    with open_log(f"sqlite:///{folder / 'third-child.db'}") as log:
        log.append([(0, value) for value in JUNK])
    done = command("learn", "--log", LOG, "--idle", 0.1, "-vv", "--log-json", folder=folder)
    found = [json.loads(line) for line in done.err.splitlines()]
    # A collector reads standard output, too.
    assert json.loads(done.out)["task"] == "third-child"
    assert all(one.keys() == {"time", "level", "logger", "message"} for one in found)
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", one["time"]) for one in found)
    said = [(one["level"], one["logger"], one["message"].partition(": ")[2]) for one in found]
    assert ("info", "murk.stream.worker", "dead letters: malformed 1, schema 1") in said
    assert (
        "debug",
        "murk.stream.worker",
        "committed up to offset 44: 0 learned, 0 duplicates, 2 dead letters",
    ) in said


def test_verbose_says_it_beside_the_progress(folder):
    done = command("learn", "--log", LOG, "--idle", 0.1, "--verbose", folder=folder)
    assert re.search(r"Z partition 0 of .*: taken over at offset", done.err)
    quiet = command("learn", "--log", LOG, "--idle", 0.1, folder=folder)
    assert "taken over" not in quiet.err


@pytest.mark.parametrize("name", ["learn", "monitor"])
def test_the_end_is_an_object_too(folder, name):
    more = ["task.yaml", "--port", 0] if name == "monitor" else []
    done = command(name, *more, "--log", "sqlite:///nowhere.db", "--log-json", folder=folder)
    assert (done.status, done.out) == (2, "")
    [line] = done.err.splitlines()
    found = json.loads(line)
    assert found["level"] == "error"
    assert "there is no log at nowhere.db" in found["message"]


class Away:
    """A log that cannot be reached every other time."""

    def __init__(self, log):
        self._log = log
        self.away = False

    def __getattr__(self, name):
        if self.away:
            raise UnreachableError("the log is away")
        return getattr(self._log, name)


@pytest.fixture
def lonely(tmp_path, monkeypatch):
    monkeypatch.setattr(pool, "PAUSE", 0.0)
    task = Task.parse(TASK)
    with open_log(f"sqlite:///{tmp_path / 'log.db'}") as log:
        log.register_task(task.document())
        away = Away(log)
        with pool.WorkerPool(away, task, device_for(task).engine, AllPartitions([0])) as found:
            yield found, away


def test_what_is_waited_for_is_said_once(lonely, caplog):
    found, log = lonely
    caplog.set_level(logging.INFO, "murk")
    for away in (False, True, True, True, False, False):
        log.away = away
        found.step()
    said = [(record.levelname, record.getMessage()) for record in caplog.records if record.name == pool.__name__]
    assert said[0] == ("WARNING", "waiting: the log is away")
    assert said[1][1].endswith("can be reached again")
    assert len(said) == 2


def test_the_library_by_itself_prints_nothing(lonely, capfd, monkeypatch):
    handlers = logging.getLogger("murk").handlers
    assert [type(one) for one in handlers if type(one).__module__ == "logging"] == [logging.NullHandler]
    assert murk.__name__ == "murk"
    found, log = lonely
    log.away = True
    found.step()
    assert capfd.readouterr() == ("", "")


def test_how_far_it_is_is_said_now_and_then(lonely, caplog):
    caplog.set_level(logging.INFO, "murk")
    found, log = lonely
    found._log_due = 0.0
    log._log.append([(0, b"junk")])
    found.step()
    assert "1 messages read since the start: 0 learned, 0 duplicates, 1 dead letters" in caplog.text
