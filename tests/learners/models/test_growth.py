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
from murk.task import Model
from murk.task.task import check_task_change
from tests.learners.models.test_archives import _PROTOCOLS, _TASK, archived, flat, model_of, numbers, people

_SHUFFLED = "\nshuffle: {crowd: 1000}"
GROWS = ("moments", "cells", "outer", "joint", "scores")
_WINDOWS = "protocol: summaries\nsummaries: {method: moments, window: 40}"
_TARGETS = {
    "shares": "name: ill, kind: classes, classes: ['no', 'yes', unsure]",
    "mean": "name: age, kind: real, low: 0, high: 10",
    "quantiles": "name: age, kind: real, low: 0, high: 10, quantiles: [0.5]",
}


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


@pytest.mark.parametrize("protocol", ["windows", *_TARGETS])
def test_sums_of_windows_and_of_targets_do_not_care_how_many_partitions_there_are(protocol):
    """A fit of the grown log, and of its archive, has the bits of a log that had three partitions from the start."""
    place = Path(tempfile.mkdtemp())
    first, second = people(200, 1), people(240, 2)
    for number, record in enumerate([*first, *second]):
        record["age"] = number % 11
    if protocol == "windows":
        before, after = (task_of(_WINDOWS, each) for each in (2, 3))
        model = Model.parse("{name: again, features: [smoker]}")
    else:
        text = (
            f"name: t\nfeatures: []\ntarget: {{{_TARGETS[protocol]}}}\nprivacy: {{guarantee: {{gdp: {{mu: 3.0}}}}}}\n"
        )
        before, after = (Task.parse(f"{text}log: {{partitions: {each}}}").with_simulated(True) for each in (2, 3))
        model = Model.parse("{name: again}")
    url = {name: f"sqlite:///{place}/{name}.db" for name in ("grown", "late", "whole")}
    murk.run(before, first, seed=1, log=url["grown"], ledger=f"{place}/ledger.db")
    archive = archived(url["grown"], place / "archive")
    before_growth = numbers(murk.fit(model, archive=archive))
    murk.run(after, second, seed=2, log=url["late"], ledger=f"{place}/late.ledger.db")
    with open_log(url["grown"]) as log, open_log(url["late"]) as late, open_log(url["whole"], create=True) as whole:
        early = [(partition, each.value) for partition in range(2) for each in log.read(partition, 0, 1_000)]
        more = [(partition, each.value) for partition in range(3) for each in late.read(partition, 0, 1_000)]
        assert any(partition == 2 for partition, _ in more)
        whole.register_task(after.document())
        whole.append(early + more)
        log.register_task(after.document())
        log.append(more)
        for each in (log, whole):
            with WorkerPool(each, after, device_for(after).engine, each.join()) as pool:
                while pool.step():
                    pass
    grown, expected = (murk.fit(model, url[name]) for name in ("grown", "whole"))
    assert grown.n_releases == len(early) + len(more)
    assert numbers(grown) == numbers(expected)
    again = murk.fit(model, archive=archived(url["grown"], archive))
    assert again.n_releases == grown.n_releases
    np.testing.assert_allclose(flat(again), flat(grown), rtol=1e-9, atol=1e-12)
    assert numbers(again) != before_growth


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
    ("moments", False), ("cells", False), ("outer", False), ("joint", True), ("scores", False), ("gradients", False),
])  # fmt: skip
def test_topics_cautions_where_further_models_need_what_the_log_forgets(protocol, is_cautioned):
    cautions = retention_cautions(task_of(protocol, 2))
    assert len(cautions) == is_cautioned
    assert all("which the log keeps for 8d" in caution for caution in cautions)
