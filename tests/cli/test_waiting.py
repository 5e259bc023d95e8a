"""`--wait` covers every call of the start: whichever of them meets a log that is away, the command goes on."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from typing import Annotated

import pydantic
import pytest
from click.testing import CliRunner

import murk.cli.commands.learn
import murk.cli.commands.monitor
import murk.cli.interrupts
import murk.cli.options
import murk.stream.worker.pool
from murk import Task
from murk.cli import cli
from murk.errors import UserError
from murk.stream import open_log
from murk.stream.log.interface import UnreachableError
from murk.stream.log.sqlite import SqliteLog
from tests.cli.harness import ROOT, TASK, run, world

# More than the start of any command has.
DEEP = 25
CALLS = ("document", "join", "acquire", "read", "fetch", "begin", "end", "model", "checkpoint", "owners", "trim")


class Away:
    """A log that is away at the first call; restarted, at the second; then at the third, and so on."""

    def __init__(self):
        self.met = []
        self._deep = self._count = 0

    def call(self, name):
        self._count += 1
        if self._count > self._deep and self._deep < DEEP:
            self._deep, self._count = self._deep + 1, 0
            self.met.append(name)
            raise UnreachableError(f"the log cannot be reached ({name})")


@pytest.fixture
def away(monkeypatch, tmp_path):
    (tmp_path / "task.yaml").write_text(TASK)
    monkeypatch.chdir(tmp_path)
    with open_log("sqlite:///log.db") as log:
        log.register_task(Task.parse(TASK).document())
    for pause in (murk.cli.options, "_RETRY_SECONDS"), (murk.stream.worker.pool, "PAUSE"):
        monkeypatch.setattr(*pause, 0.001)
    found = Away()

    def shy(name):
        call = getattr(SqliteLog, name)

        def wrapped(*arguments, **options):
            found.call(name)
            return call(*arguments, **options)

        monkeypatch.setattr(SqliteLog, name, wrapped)

    for name in CALLS:
        shy(name)
    return found


def test_learn_waits_whatever_call_meets_a_log_that_is_away(away):
    done = CliRunner().invoke(cli, ["learn", "--log", "sqlite:///log.db", "--wait", "--json", "--idle", "0.3"])
    assert done.exit_code == 0, (done.output, away.met)
    assert {"document", "join"} <= set(away.met)
    assert "murk: waiting: the log cannot be reached (join) [MURK-LOG-002]\n" in done.stderr


def test_the_report_at_the_end_waits_for_the_log(away):
    left = ["first", "second"]

    def call(name):
        if name == "checkpoint" and left:
            raise UnreachableError(f"the log cannot be reached ({left.pop()})")

    away.call = call
    command = ["learn", "--log", "sqlite:///log.db", "--json", "--idle", "0"]
    assert isinstance(CliRunner().invoke(cli, command).exception, UnreachableError)
    done = CliRunner().invoke(cli, [*command, "--wait"])
    assert done.exit_code == 0, done.output
    assert not left
    assert json.loads(done.stdout)["task"] == "third-child"


def test_a_stopped_learner_does_not_wait_to_report(away, monkeypatch):
    """A supervisor would kill it meanwhile."""

    def call(name):
        if name == "checkpoint":
            raise UnreachableError("the log cannot be reached")
        if name == "begin":
            os.kill(os.getpid(), signal.SIGTERM)

    away.call = call
    monkeypatch.setattr(murk.cli.options, "sleep", lambda seconds: pytest.fail("it waits"))
    done = CliRunner().invoke(cli, ["learn", "--log", "sqlite:///log.db", "--json", "--wait"])
    assert isinstance(done.exception, UnreachableError)


def test_monitor_waits_whatever_call_meets_a_log_that_is_away(away, monkeypatch):
    def stop(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(murk.cli.commands.monitor, "Reports", stop)
    command = ["monitor", "task.yaml", "--log", "sqlite:///log.db", "--port", "0", "--wait", "--json"]
    done = CliRunner().invoke(cli, command)
    assert done.exit_code == 0, (done.output, away.met)
    assert json.loads(done.stdout)["task"] == "third-child"
    # The task is read when the log is opened, and again for the monitor.
    assert away.met[:2] == ["document", "document"]


def test_a_mistake_is_not_waited_for(away):
    away.call = lambda name: None
    done = CliRunner().invoke(cli, ["learn", "--log", "sqlite:///log.db", "--wait", "--partition", "7"])
    assert "--partition 7" in str(done.exception)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("MURK_KAFKA_CONFIG", "nowhere.properties", "MURK_KAFKA_CONFIG names nowhere.properties"),
        ("MURK_KAFKA_SESSION_TIMEOUT_MS", "999", "session.timeout.ms is a number from 1000"),
        ("MURK_KAFKA_SECURITY_PROTOCOL", "TLS", "security.protocol is invalid"),
        ("MURK_KAFKA_SSL_CA_FILE", "nowhere.pem", "ssl.ca.file: nowhere.pem cannot be read"),
    ],
)
def test_a_mistake_in_how_to_reach_a_cluster_is_not_waited_for(monkeypatch, tmp_path, name, value, words):
    def waits(seconds):
        pytest.fail("it waits")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(murk.cli.options, "sleep", waits)
    done = CliRunner().invoke(cli, ["learn", "--log", "kafka://127.0.0.1:1/x", "--wait"], env={name: value})
    assert isinstance(done.exception, UserError)
    assert words in str(done.exception)


def test_what_was_learned_is_still_shown_while_the_log_is_away(tmp_path, monkeypatch):
    world(tmp_path, rows=40)
    assert run(tmp_path).json["releases"] == 40
    ticks, step, seconds = [], murk.stream.worker.pool.WorkerPool.step, iter(range(1000))

    @contextlib.contextmanager
    def progress(*arguments, **options):
        yield lambda done, text: ticks.append((done, text))

    def away(team):
        if not ticks:
            return step(team)
        if len(ticks) == 2:
            raise KeyboardInterrupt
        team._drop(*team._workers)
        team.trouble = "the log is away"
        return 0

    class Clock:
        monotonic = staticmethod(lambda: float(next(seconds)))
        sleep = staticmethod(lambda pause: None)

    monkeypatch.setattr(murk.stream.worker.pool.WorkerPool, "step", away)
    monkeypatch.setattr(murk.cli.commands.learn, "progress", progress)
    monkeypatch.setattr(murk.cli.commands.learn, "time", Clock)
    done = CliRunner().invoke(cli, ["learn", "--log", f"sqlite:///{tmp_path}/third-child.db"])
    assert done.exit_code == 0, done.output
    assert [one for one, _ in ticks] == [40, 40]
    assert ticks[1][1] == "the log is away"


def test_without_wait_the_first_call_that_fails_is_the_end(away):
    done = CliRunner().invoke(cli, ["learn", "--log", "sqlite:///log.db"])
    assert isinstance(done.exception, UnreachableError)
    assert away.met == ["document"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_learner_that_is_asked_to_stop_amid_a_step_ends_after_it(tmp_path, monkeypatch, number):
    """Whatever becomes of an exception there: the Kafka client takes it for an answer, and goes on."""
    world(tmp_path, rows=40)
    assert run(tmp_path).json["releases"] == 40
    steps, step = [], murk.stream.worker.pool.WorkerPool.step

    def asked(team):
        steps.append(None)
        assert len(steps) < 3
        with contextlib.suppress(BaseException):
            os.kill(os.getpid(), number)
            time.sleep(0.01)
        return step(team)

    monkeypatch.setattr(murk.stream.worker.pool.WorkerPool, "step", asked)
    before = signal.getsignal(number)
    done = CliRunner().invoke(cli, ["learn", "--log", f"sqlite:///{tmp_path}/third-child.db", "--json"])
    assert (done.exit_code, len(steps)) == (0, 1), done.output
    assert json.loads(done.stdout)["releases"] == 40
    assert signal.getsignal(number) is before


AMID_TEXT = """\
import os, signal, sys
from murk.cli.interrupts import stoppable

try:
    with stoppable():
        exec("os.kill(os.getpid(), signal.SIGTERM)")
except KeyboardInterrupt:
    sys.exit(130)
"""


def test_a_signal_amid_text_that_is_run_ends_with_our_status(tmp_path):
    """As numba does it, and pydantic; a `KeyboardInterrupt` itself ends a module that is run by SIGINT."""
    (tmp_path / "stopped.py").write_text(AMID_TEXT)
    (tmp_path / "killed.py").write_text(
        AMID_TEXT.replace('"os.kill(os.getpid(), signal.SIGTERM)"', '"raise KeyboardInterrupt"')
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ends = [
        subprocess.run([sys.executable, "-m", name], cwd=tmp_path, env=environment, check=False).returncode
        for name in ("stopped", "killed")
    ]
    assert ends == [130, -signal.SIGINT]


def test_who_asks_twice_does_not_wait():
    with murk.cli.interrupts.between_steps() as asked:
        os.kill(os.getpid(), signal.SIGTERM)
        assert asked()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_that_a_library_wraps_is_still_a_signal(number):
    """Pydantic makes its own error of whatever is raised in a function that it calls."""

    def asked(value: int) -> int:
        signal.raise_signal(number)
        return value

    class Model(pydantic.BaseModel):
        field: Annotated[int, pydantic.PlainSerializer(asked)] = 1

    with pytest.raises(KeyboardInterrupt), murk.cli.interrupts.stoppable():
        Model().model_dump()


def test_an_error_without_a_signal_is_an_error():
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(ZeroDivisionError), murk.cli.interrupts.stoppable():
        _ = 1 / 0
    assert signal.getsignal(signal.SIGINT) is before
