"""A log gets more partitions after its task began: nothing is lost, and what depends on their number refuses."""

import tempfile
from pathlib import Path

import numpy as np
import pytest

import murk
from murk import Task
from murk.errors import MurkError, UserError
from murk.privacy.noise import SimulatedNoise
from murk.producers import Ledger, Producer
from murk.protocols.device import device_for
from murk.results.models import retention_cautions
from murk.stream import open_log
from murk.stream.log.interface import AllPartitions
from murk.stream.worker.pool import WorkerPool
from murk.task.task import check_task_change
from tests.learners.models.test_archives import _PROTOCOLS, _TASK, archived, model_of, people

_SHUFFLED = "\nshuffle: {crowd: 1000}"
GROWS = ("moments", "cells", "outer", "joint", "scores")


def task_of(protocol, partitions, more=""):
    text = _TASK.replace("{partitions: 2}", f"{{partitions: {partitions}}}")
    if more == _SHUFFLED:
        text = text.replace("gdp: {mu: 3.0}", "pure: {epsilon: 1.0}")
    return Task.parse(text + _PROTOCOLS.get(protocol, protocol) + more).with_simulated(True)


@pytest.mark.parametrize("protocol", GROWS)
def test_a_log_that_has_grown_is_learned_whole(protocol):
    place = Path(tempfile.mkdtemp())
    url, model = f"sqlite:///{place}/log.db", model_of(protocol)
    before, after = task_of(protocol, 2), task_of(protocol, 3)
    murk.run(before, people(200, 1), seed=1, log=url, ledger=f"{place}/ledger.db")
    assert murk.fit(model, url).n_releases == 200
    archive = archived(url, place / "archive")
    assert murk.fit(model, archive=archive).n_releases == 200

    with open_log(url) as log, Ledger(f"{place}/others.db") as ledger:
        log.register_task(after.document())
        producer = Producer(after, log, ledger, noise=SimulatedNoise(2))
        for number, record in enumerate(people(150, 2)):
            assert producer.release(record, person=f"late {number}").outcome == "released"
        assert log.end(2) > 20
        with WorkerPool(log, after, device_for(after).engine, log.join()) as pool:
            while pool.step():
                pass
            assert (pool.pulse.vitals().learned, pool.pulse.vitals().dead) == (150, 0)
            estimate = device_for(after).estimate([pool.learners[partition] for partition in range(3)])
        if protocol in ("moments", "cells"):
            # The sums of all partitions are those of one learner of all releases.
            engine = device_for(after).engine()
            engine.learn_releases([*log.releases()])
            np.testing.assert_allclose(device_for(after).estimate([engine]).values, estimate.values, rtol=1e-9)
    assert murk.fit(model, url).n_releases == 350
    assert murk.fit(model, archive=archived(url, archive)).n_releases == 350


def test_a_process_that_does_not_know_the_new_partitions_ends_and_loses_nothing():
    place = Path(tempfile.mkdtemp())
    url, before = f"sqlite:///{place}/log.db", task_of("moments", 2)
    murk.run(before, people(100, 1), seed=1, log=url, ledger=f"{place}/ledger.db")
    with open_log(url) as log:
        log.register_task(task_of("moments", 3).document())
        with (
            WorkerPool(log, before, device_for(before).engine, AllPartitions(range(3))) as pool,
            pytest.raises(MurkError, match="more partitions than the 2 that this process knows: restart it"),
        ):
            pool.step()
        assert log.checkpoint(2) == (None, 0)


@pytest.mark.parametrize(("protocol", "more", "partitions", "reason"), [
    ("gradients", "", 3, "a new partition's iterate would begin anew"),
    ("scores by partition", "", 3, "each partition has models of its own"),
    ("scores", "\nforget: 100000", 3, "the number decides which releases are forgotten"),
    ("moments", "", 1, "what the learners of the last ones have learned would be lost"),
    ("scores", _SHUFFLED, 3, "its shuffler has a number of its own"),
])  # fmt: skip
def test_what_depends_on_the_number_refuses_another(protocol, more, partitions, reason):
    before, after = (task_of(protocol, each, more).document() for each in (2, partitions))
    with pytest.raises(UserError, match=reason):
        check_task_change("sqlite:///log.db", before, after)
    # The same number is no change.
    assert check_task_change("sqlite:///log.db", before, before) is None


def test_one_partition_of_scores_cannot_become_two():
    with pytest.raises(UserError, match="models of its own"):
        check_task_change("sqlite:///log.db", task_of("scores", 1).document(), task_of("scores", 2).document())


@pytest.mark.parametrize(("protocol", "is_cautioned"), [
    ("moments", False), ("cells", False), ("outer", True), ("joint", True), ("scores", False), ("gradients", False),
])  # fmt: skip
def test_topics_cautions_where_further_models_need_what_the_log_forgets(protocol, is_cautioned):
    cautions = retention_cautions(task_of(protocol, 2))
    assert len(cautions) == is_cautioned
    assert all("which the log keeps for 7d" in caution for caution in cautions)
