"""A learner's own health and metrics: what is described, what it has done, and why it is not well."""

import urllib.error
import urllib.request

import pytest

from murk import Task
from murk.cli.metrics import MetricsAddress, learner_metrics
from murk.monitoring.processes import STALLED, LearnerMetrics, learner_routes, unhealthy_reason
from murk.protocols.device import device_for
from murk.stream import open_log
from murk.stream.worker.pool import Pulse, WorkerPool
from murk.stream.worker.worker import Progress
from tests.monitoring.metrics.test_exporter import check
from tests.monitoring.runs import TEXT

TASK = {"task": "third-child"}


def fed(clock=lambda: 1000.0):
    pulse = Pulse(clock)
    pulse.owns(0, version=5, offset=7)
    pulse.owns(1, version=0, offset=0)
    pulse.measured(0, 30)
    pulse.stepped(0, Progress(read=12, learned=10, duplicates=1, dead=1, offset=19, version=15))
    pulse.measured(1, 0)
    pulse.stepped(1, Progress(read=1, learned=1, duplicates=0, dead=0, offset=1, version=1))
    pulse.beat(None)
    return pulse


def test_the_learners_side_is_what_is_described():
    exported = LearnerMetrics("third-child", fed())
    check(exported.registry, "learner")
    value = exported.registry.get_sample_value
    assert value("murk_learner_owned_chains", TASK) == 2
    counts = [value("murk_learner_messages_total", {**TASK, "result": one}) for one in ("learned", "duplicate", "dead")]
    assert counts == [11, 1, 1]
    # What was committed since is no longer a lag, and there is none below zero.
    assert value("murk_learner_lag_releases", {**TASK, "partition": "0"}) == 18
    assert value("murk_learner_lag_releases", {**TASK, "partition": "1"}) == 0
    assert value("murk_learner_last_commit_timestamp_seconds", {**TASK, "partition": "0"}) == 1000
    assert value("murk_learner_log_reachable", TASK) == 1


def test_what_is_not_known_or_not_its_own_is_left_out():
    pulse = fed()
    pulse.dropped(0)
    pulse.owns(2, version=3, offset=3)
    value = LearnerMetrics("third-child", pulse).registry.get_sample_value
    assert value("murk_learner_owned_chains", TASK) == 2
    assert value("murk_learner_lag_releases", {**TASK, "partition": "0"}) is None
    assert value("murk_learner_last_commit_timestamp_seconds", {**TASK, "partition": "2"}) is None
    # Counters are the process's, anyone who has the partition now.
    assert value("murk_learner_messages_total", {**TASK, "result": "learned"}) == 11


def test_a_learner_is_well_while_it_steps_and_reaches_the_log():
    now = [1000.0]
    pulse = fed(lambda: now[0])
    health = learner_routes(LearnerMetrics("third-child", pulse), pulse, lambda: now[0])["/healthz"]
    assert health({}) == (200, "text/plain; charset=utf-8", b"ok\n")
    now[0] += STALLED + 1
    assert (health({}).status, health({}).body) == (503, b"no step for 61 s\n")
    pulse.beat("kafka://x cannot be reached (reading)")
    assert (health({}).status, health({}).body) == (503, b"kafka://x cannot be reached (reading)\n")
    pulse.beat(None)
    assert health({}).status == 200
    # Anyone who stands by is well.
    assert unhealthy_reason(Pulse(lambda: 0.0).vitals(), 1.0) is None


def get(url):
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(url, timeout=30) as answer:
        return answer.read().decode()


def test_a_learner_serves_them_on_this_machine_alone(tmp_path, capsys):
    task = Task.parse(TEXT)
    with open_log(f"sqlite:///{tmp_path / 'log.db'}") as log:
        log.register_task(task.document())
        log.append([(0, b"junk")] * 3)
        with WorkerPool(log, task, device_for(task).engine, log.join()) as team:
            with learner_metrics(MetricsAddress("127.0.0.1", 0), task, team) as refresh:
                team.step()
                log.append([(0, b"junk")] * 2)
                refresh()
                at = capsys.readouterr().err.split(" at ")[1].strip().removesuffix("/metrics")
                assert at.startswith("http://127.0.0.1:")
                assert get(f"{at}/healthz") == "ok\n"
                page = get(f"{at}/metrics")
                with pytest.raises(urllib.error.HTTPError, match="404") as raised:
                    get(f"{at}/")
                raised.value.close()
            with learner_metrics(MetricsAddress("", None), task, team) as refresh:
                refresh()
    assert 'murk_learner_messages_total{result="dead",task="third-child"} 3.0' in page
    assert 'murk_learner_lag_releases{partition="0",task="third-child"} 2.0' in page
