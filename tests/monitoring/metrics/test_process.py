"""What monitors and learners export of their process, and people do not."""

import platform
import sys

import pytest

from murk import Task, __version__
from murk.cli.metrics import MetricsAddress, learner_metrics
from murk.monitoring.metrics.exporter import new_registry
from murk.monitoring.processes import PeopleMetrics, PeopleSums, ProcessMetrics
from murk.protocols.device import device_for
from murk.stream import open_log
from murk.stream.worker.pool import WorkerPool
from tests.monitoring.metrics.test_exporter import described, families
from tests.monitoring.metrics.test_learner import get
from tests.monitoring.runs import TEXT

BUILD = f'murk_build_info{{python="{platform.python_version()}",task="third-child",version="{__version__}"}} 1.0'


def test_the_version_is_what_is_described():
    registry = new_registry()
    ProcessMetrics("third-child", registry)
    [metric] = described("process")
    found = families(registry)[0]
    assert (found.name, found.type, found.documentation) == (metric.name, metric.kind, metric.help)
    [sample] = found.samples
    assert set(sample.labels) == set(metric.labels)
    assert (sample.labels["version"], sample.value) == (__version__, 1.0)


@pytest.mark.skipif(sys.platform != "linux", reason="Prometheus's library knows processes on Linux")
def test_a_learner_tells_and_a_gateway_does_not(tmp_path, capsys):
    task = Task.parse(TEXT)
    with open_log(f"sqlite:///{tmp_path}/log.db") as log:
        log.register_task(task.document())
        with (
            WorkerPool(log, task, device_for(task).engine, log.join()) as team,
            learner_metrics(MetricsAddress("127.0.0.1", 0), task, team),
        ):
            learner = get(capsys.readouterr().err.split(" at ")[1].strip())
    assert BUILD in learner
    assert "process_resident_memory_bytes " in learner
    assert "process_cpu_seconds_total " in learner
    # How long a gateway computes depends on what it reads.
    people = PeopleMetrics("third-child")
    people.update(PeopleSums(people=40, refused=2, pending=0, spent=[(1.0, 40)]))
    assert all(family.name.startswith(("murk_ledger_", "murk_outbox_")) for family in families(people.registry))
