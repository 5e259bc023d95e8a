"""Both promises of a shuffled task wherever people look, and the command between devices and learners."""

import json
import re
from collections import Counter
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from murk import Task
from murk.cli import shuffling
from murk.cli.commands import shuffle as shuffle_module
from murk.cli.commands.shuffle import command as shuffle_command
from murk.monitoring import Monitor
from murk.protocols.device import device_for
from murk.results.html import result_html
from murk.results.report import report_log
from murk.shuffler.shuffler import Shuffler
from murk.stream.log.interface import CrowdMark, UnreachableError
from murk.stream.log.open import open_log
from murk.stream.log.sqlite import SqliteLog
from tests.cli.harness import finish, murk, start, world

TASK = """
name: third-child
features:
  - {name: age, low: 21, high: 35}
  - {name: same_sex, categories: ["no", "yes"]}
target: {name: third_child, kind: binary, positive: "yes", negative: "no"}
privacy: {levels: {strict: {pure: {epsilon: 0.5}}}}
shuffle: {crowd: 500, honest: 0.8, promise: {epsilon: 0.5, delta: 1.0e-6}}
"""
PEOPLE = 1_200
COLLUDING = "If everybody colludes, the shuffler included: "
KEEPING = (
    "If the shuffler keeps the order of arrival to itself, and at least 400 of the 500 releases of each crowd are of "
    "honest people (a crowd is of one level, version and combination of known columns): "
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where people have released to an input log, and a shuffler has forwarded them."""
    # Its protocol has no models, for which people would wait.
    folder = world(tmp_path_factory.mktemp("shuffled"), rows=PEOPLE, task=TASK + "protocol: examples\n")
    done = murk("produce", "task.yaml", "--source", "people.csv", "--log", "sqlite:///in.db", "--ledger", "l.db",
                folder=folder)  # fmt: skip
    assert done.status == 0, done.err
    both_in_order(done.err)
    return folder


@pytest.fixture(scope="module")
def forwarded(folder):
    done = shuffle(folder, "--json")
    assert done.status == 0, done.err
    return json.loads(done.out)


def shuffle(folder, *more, source="sqlite:///in.db", target="sqlite:///out.db"):
    return murk("shuffle", "--from", source, "--to", target, "--idle", "0.2", *more, folder=folder)


def both_in_order(text):
    """The text has both promises of the default level, the local one first."""
    flat = re.sub(r"\s+", " ", text)
    assert COLLUDING in flat
    assert KEEPING in flat
    assert flat.index(COLLUDING) < flat.index(KEEPING)
    # The local epsilon of the promise, and the promised one.
    assert "epsilon = 1.671" in flat
    assert "epsilon = 0.5, delta = 1e-06" in flat


def test_everybody_is_forwarded_in_crowds(folder, forwarded):
    assert (forwarded["read"], forwarded["released"] + forwarded["waiting"]) == (PEOPLE, PEOPLE)
    assert forwarded["waiting"] < 500
    assert 1 <= forwarded["crowds"] <= 2
    assert (forwarded["duplicates"], forwarded["refused"], forwarded["dropped"]) == (0, {}, 0)
    again = shuffle(folder)
    assert again.status == 0, again.err
    assert again.out.startswith(f"third-child: {forwarded['released']:,} releases in {forwarded['crowds']} crowd")
    learned = murk("learn", "--log", "sqlite:///out.db", "--idle", "0.2", folder=folder)
    assert learned.status == 0, learned.err
    assert f"{forwarded['released']:,} releases learned" in learned.out
    both_in_order(learned.out)


def test_cells_of_several_classes_are_shuffled_from_devices_to_the_estimate(tmp_path):
    """What is learned are the sent cells, in another order: the same multiset, and the same estimate."""
    text = TASK.replace('kind: binary, positive: "yes", negative: "no"', 'kind: classes, classes: ["no", "yes"]')
    text = text.replace("epsilon: 0.5, delta", "epsilon: 2.0, delta") + "protocol: examples\nexamples: {grid: 3}\n"
    folder = world(tmp_path, rows=600, task=text)
    sent = ("produce", "task.yaml", "--source", "people.csv", "--log", "sqlite:///in.db", "--ledger", "l.db")
    assert murk(*sent, folder=folder).status == 0
    with open_log(f"sqlite:///{folder}/in.db") as input_log:
        given = [each.payload[0] for each in input_log.releases()]
        task = Task.from_document(input_log.document())
    done = shuffle(folder, "--json")
    assert json.loads(done.out)["released"] >= 500
    with open_log(f"sqlite:///{folder}/out.db") as log:
        forwarded = list(log.releases())
    found = [each.payload[0] for each in forwarded]
    assert Counter(found) <= Counter(given)
    assert found != given[: len(found)]
    assert len(given) == 600
    learned = json.loads(murk("learn", "--log", "sqlite:///out.db", "--idle", "0.2", "--json", folder=folder).out)
    problem = device_for(task)
    engine = problem.engine()
    engine.learn_releases(forwarded)
    assert learned["releases"] == len(found)
    assert list(learned["coefficients"].values()) == pytest.approx(engine.estimate().values, abs=1e-9)
    assert set(learned["coefficients"]) == {f"{k}:{j}" for k in ("no", "yes") for j in task.coding.names}


def test_status_page_and_notebook_state_both(folder, forwarded):
    assert murk("learn", "--log", "sqlite:///out.db", "--idle", "0.2", folder=folder).status == 0
    both_in_order(murk("status", "--log", "sqlite:///out.db", folder=folder).out)
    with SqliteLog(folder / "out.db") as log:
        task = Task.from_document(log.document())
        monitor = Monitor(log, task)
        assert monitor.poll()
        levels = {level["name"]: level["words"] for level in monitor.status()["task"]["levels"]}
        both_in_order(levels["default"])
        assert COLLUDING in levels["strict"]
        both_in_order(result_html(report_log(task, log, partitions=task.log.partitions), []))


def test_an_account_states_both(folder):
    whose = ("ledger", "l.db", "--person", "5", "--source", "people.csv")
    both_in_order(murk(*whose, "--details", folder=folder).out)
    screen = re.sub(r"\s+", " ", murk(*whose, folder=folder).out)
    assert screen.index("If everybody colludes") < screen.index("If the shuffler keeps the order")
    assert "the shuffler may recognise it" in screen
    [task] = json.loads(murk(*whose, "--json", folder=folder).out)["tasks"]
    [level] = task["levels"]
    assert level["guarantee"] == {"pure": {"epsilon": 1.671}}
    assert level["central"] == {
        "guarantee": {"approx": {"epsilon": 0.5, "delta": 1e-6}}, "crowd": 500, "honest": 400,
    }  # fmt: skip


def test_a_plan_states_both_of_every_level(folder):
    plan = murk("plan", "task.yaml", "--people", "5000", "--protocol", "scores", folder=folder)
    assert plan.status == 0, plan.err
    both_in_order(plan.out)
    assert plan.out.count("Promised for each release at level") == 2


def test_a_dossier_states_both(folder):
    done = murk("dossier", "task.yaml", "--json", "--draws", "0", folder=folder)
    assert done.status == 0, done.err
    both_in_order(done.out)
    assert "Who runs the shuffler" in done.out


def test_a_run_states_both_and_goes_through_a_shuffler(tmp_path):
    folder = world(tmp_path, rows=PEOPLE, task=TASK)
    done = murk("run", "task.yaml", "--source", "people.csv", "--seed", "1", "--json", folder=folder)
    assert done.status == 0, done.err
    found = json.loads(done.out)
    central = found["levels"]["default"]["central"]
    assert central["words"].startswith(KEEPING)
    assert found["levels"]["strict"]["central"]["guarantee"]["approx"]["epsilon"] < 0.5
    assert PEOPLE - 500 < found["releases"] <= PEOPLE
    # Again: the same, as everybody has released.
    again = json.loads(murk("run", "task.yaml", "--source", "people.csv", "--seed", "1", "--json", folder=folder).out)
    assert again["state_digest"] == found["state_digest"]
    kafka = murk("run", "task.yaml", "--source", "people.csv", "--log", "kafka://localhost:1/x", folder=folder)
    assert kafka.status != 0


@pytest.mark.parametrize(
    ("source", "target", "more", "words"),
    [
        ("sqlite:///in.db", "sqlite:///in.db", (), "both the input log and the log of releases"),
        ("sqlite:///none.db", "sqlite:///out.db", (), "there is no log at none.db"),
        ("sqlite:///in.db", "sqlite:///out.db", ("--store", "other"), "another shuffler appends to sqlite:///out.db"),
        ("sqlite:///out.db", "sqlite:///third.db", (), "is the log of another shuffler"),
        ("nonsense", "sqlite:///out.db", (), "the log URL is invalid"),
    ],
)
def test_logs_in_the_wrong_place_are_refused(folder, forwarded, source, target, more, words):
    done = shuffle(folder, *more, source=source, target=target)
    assert done.status == 2
    assert words in done.err
    assert done.err.count("\n") == 1


def test_only_its_log_is_learned_from_and_only_its_intake_sent_to(folder, forwarded):
    for command in (("learn", "--idle", "0"), ("status",)):
        done = murk(*command, "--log", "sqlite:///in.db", folder=folder)
        assert done.status == 2
        assert "no shuffler writes to sqlite:///in.db" in done.err
        assert "MURK-SHUFFLE-002" in done.err


def test_a_learner_that_waits_waits_for_the_shuffler(folder, forwarded, tmp_path):
    """It may be started first, and is not to end for good."""
    released = forwarded["released"]
    with SqliteLog(tmp_path / "later.db") as later, SqliteLog(folder / "out.db") as log:
        document = log.document()
        crowd = [(partition, log.fetch(partition, 0, released).messages) for partition in range(log.partitions)]
        later.register_task(document)
        learner = start("learn", "--log", f"sqlite:///{tmp_path}/later.db", "--wait", "--idle", "1", folder=tmp_path)
        assert "murk: waiting: no shuffler writes to" in learner.stderr.readline()
        later.append_crowd(crowd, CrowdMark("0" * 32, later.claim("0" * 32).crowds + 1))
    done = finish(learner)
    assert done.status == 0, done.err
    assert f"{released:,} releases learned" in done.out


def test_replacing_is_only_a_flag(folder):
    (folder / "murk.toml").write_text("[shuffle]\nreplace = true\n")
    try:
        done = shuffle(folder)
    finally:
        (folder / "murk.toml").unlink()
    assert done.status == 2
    assert "--replace" in done.err


def watch_over(folder, monkeypatch, *more, down):
    """Run the command in this process, on logs that cannot be reached when ``down`` says so at a step."""
    step, claim = Shuffler.step, SqliteLog.claim
    begun = []

    def reach(function):
        def reached(*arguments, **more):
            if begun and down():
                raise UnreachableError("the broker does not answer")
            begun.append(function)
            return function(*arguments, **more)

        return reached

    monkeypatch.chdir(folder)
    monkeypatch.setattr(Shuffler, "step", reach(step))
    monkeypatch.setattr(SqliteLog, "claim", lambda *arguments, **more: reach(claim)(*arguments, **more))
    logs = ("--from", "sqlite:///in.db", "--to", "sqlite:///out.db")
    return CliRunner().invoke(shuffle_command, [*logs, *more], standalone_mode=False)


def test_a_broker_that_goes_away_for_good_costs_no_totals(folder, forwarded, monkeypatch):
    """The store is closed while the shuffler waits for it; what was done is known from the last step."""
    done = watch_over(folder, monkeypatch, "--idle", "0.5", "--patience", "60", down=lambda: True)
    assert done.exception is None, done.exception
    assert f"{forwarded['released']:,} releases in {forwarded['crowds']} crowd" in done.output


def test_patience_begins_when_the_broker_last_answered(folder, forwarded, monkeypatch):
    """A connection that breaks once after a long quiet time is no reason to stop."""
    moment, broken = [0.0], []
    for module in (shuffle_module, shuffling):
        clock = SimpleNamespace(
            monotonic=lambda: moment[0], sleep=lambda seconds: moment.__setitem__(0, moment[0] + seconds)
        )
        monkeypatch.setattr(module, "time", clock)

    def down():
        if broken or moment[0] < 2:
            return False
        broken.append(True)
        return True

    done = watch_over(folder, monkeypatch, "--idle", "3", "--patience", "1", down=down)
    assert 3 < moment[0] < 4
    assert broken
    assert done.exception is None, done.exception


def test_idle_time_begins_when_a_step_has_ended(folder, forwarded, monkeypatch):
    """However long it takes to forward a crowd."""
    moment, steps = [0.0], iter([True] * 3)

    def step(self):
        moment[0] += 5
        return next(steps, False)

    monkeypatch.setattr(shuffle_module, "time", SimpleNamespace(monotonic=lambda: moment[0]))
    monkeypatch.setattr(shuffling.Shuffling, "step", step)
    done = watch_over(folder, monkeypatch, "--idle", "1", down=lambda: False)
    assert done.exception is None, done.exception
    assert next(steps, None) is None
