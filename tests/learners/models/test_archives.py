"""Models of archives: the same numbers as of the log, the same bits for every map, also after the log's retention."""

import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import murk
from murk import Task
from murk.errors import UserError
from murk.privacy.noise import SimulatedNoise
from murk.producers import Ledger, Producer
from murk.protocols.device import device_for
from murk.results.archives import _opened, fit_archive, learn_part, parts_of, processes
from murk.results.models import model_device_for
from murk.stream import open_log
from murk.stream.archive.archiver import Archiver
from murk.stream.archive.files import MODELS, LocalFolder
from murk.stream.archive.reader import ArchiveLog
from murk.stream.worker.pool import WorkerPool
from murk.task import Model

_TASK = """
name: visits
features:
  - {name: arm, categories: [a, b, c]}
  - {name: smoker, categories: ["no", "yes"]}
target: {name: ill, kind: binary, positive: "yes", negative: "no"}
log: {partitions: 2}
duplicates: 100
privacy: {guarantee: {gdp: {mu: 3.0}}}
"""
_PROTOCOLS = {
    "moments": "protocol: moments",
    "cells": "protocol: examples\nexamples: {release: cells}",
    "outer": "protocol: examples\nexamples: {release: outer}",
    "joint": "protocol: examples\nexamples: {release: joint, loss: log}",
    "scores": "protocol: scores",
    "scores by partition": "protocol: scores\nscores: {models: per-partition}",
    "gradients": "protocol: gradients",
}
_OWN = {"scores", "scores by partition", "gradients"}
_BY_FILE = {"moments", "cells", "outer", "scores"}
_ROWS = 100


def people(n, seed):
    rng = np.random.default_rng(seed)
    arms, smokers = rng.choice(["a", "b", "c"], n), rng.choice(["no", "yes"], n)
    ill = rng.random(n) < np.where(smokers == "yes", 0.6, 0.3)
    return [
        {"arm": str(arm), "smoker": str(smoker), "ill": "yes" if sick else "no"}
        for arm, smoker, sick in zip(arms, smokers, ill, strict=True)
    ]


def archiver(log, task, folder, **more):
    more = {"rows": _ROWS} | more
    return Archiver(log, task, LocalFolder(str(folder)), device_for(task).engine(), **more)


def archived(url, folder, **more):
    """Archive a log up to its end."""
    with open_log(url) as log:
        copying = archiver(log, log.registered_task(), folder, **more)
        while not copying.has_archived(log.ends()):
            copying.step()
        copying.flush()
    return str(folder)


def world(protocol, count=600):
    """A log of a protocol's releases, learned, and its archive."""
    place = Path(tempfile.mkdtemp())
    url, task = f"sqlite:///{place}/log.db", Task.parse(_TASK + _PROTOCOLS[protocol])
    murk.run(task, people(count, 1), seed=1, log=url, ledger=f"{place}/ledger.db")
    return url, archived(url, place / "archive")


def model_of(protocol):
    return Model.parse("{name: again}" if protocol in _OWN else "{name: again, features: [smoker]}")


def numbers(result):
    return {name: (each.value, each.interval) for name, each in result.coefficients.items()}


def flat(result):
    ends = [[each.value, *(each.interval or (None, None))] for each in result.coefficients.values()]
    return np.array(ends, dtype=np.float64)


def backwards(function, jobs):
    return [*map(function, jobs[::-1])][::-1]


@pytest.mark.parametrize("protocol", _PROTOCOLS)
def test_an_archive_answers_as_the_log_did_after_its_retention(protocol):
    url, path = world(protocol)
    model = model_of(protocol)
    expected = murk.fit(model, url, replay=protocol not in _OWN)
    with open_log(url) as log:
        assert log.trim(2.0**40) > 0
    result = murk.fit(model, archive=path)
    for key in ("releases", "duplicates", "dead_letters", "protocol", "levels"):
        assert result.report[key] == expected.report[key], key
    if protocol in _BY_FILE:
        np.testing.assert_allclose(flat(result), flat(expected), rtol=1e-9, atol=1e-12)
    else:
        # Whole partitions are learned in order: the same bits, and the same history.
        assert numbers(result) == numbers(expected)
        if protocol not in _OWN:
            assert result.history == expected.history
    with ArchiveLog(LocalFolder(path)) as log, ThreadPoolExecutor(3) as pool:
        parts = parts_of(log, model_device_for(model, log.task), path)
        assert len(parts) == (len(log.extents(0)) + len(log.extents(1)) if protocol in _BY_FILE else 2)
        for other in (backwards, pool.map):
            again = murk.fit(model, archive=path, map=other)
            assert numbers(again) == numbers(result)
            assert again.report["state_digest"] == result.report["state_digest"]


def test_an_archive_that_has_grown_is_learned_whole_in_the_same_process():
    url, path = world("moments")
    model = model_of("moments")
    assert murk.fit(model, archive=path).n_releases == 600
    with open_log(url) as log:
        task = log.registered_task()
    folder = Path(path).parent
    murk.run(task, people(200, 9), seed=2, log=f"sqlite:///{folder}/more.db", ledger=f"{folder}/more.ledger.db")
    with open_log(f"sqlite:///{folder}/more.db") as more, open_log(url) as log:
        log.append([(partition, each.value) for partition in (0, 1) for each in more.read(partition, 0, 1_000)])
    archived(url, path)
    result = murk.fit(model, archive=path)
    assert result.n_releases == 800
    assert numbers(result) == numbers(murk.fit(model, archive=path, map=backwards))


def test_processes_give_the_same_bits_and_another_order_is_refused():
    _, path = world("moments", 450)
    model = model_of("moments")
    [(_, expected)] = fit_archive([model], path, level=0.95)
    with processes(2) as apart:
        [(_, found)] = fit_archive([model], path, level=0.95, map=apart)
    assert found["state_digest"] == expected["state_digest"]
    assert found["coefficients"] == expected["coefficients"]
    with pytest.raises(UserError, match="in the order of the parts"):
        murk.fit(model, archive=path, map=lambda function, jobs: [*map(function, jobs)][::-1])


@pytest.mark.parametrize("track", ["", "track: {window: week}\n"])
def test_exact_sums_of_shares_are_those_of_the_log(track):
    place = Path(tempfile.mkdtemp())
    window = (
        "{guarantee: {gdp: {mu: 1.0}}, window: week, lifetime: {gdp: {mu: 9.0}}}"
        if track
        else ("{guarantee: {gdp: {mu: 1.0}}}")
    )
    task = Task.parse(
        "name: illness\nfeatures: []\ntarget: {name: ill, kind: classes, classes: ['no', 'yes', 'unsure']}\n"
        f"privacy: {window}\n{track}"
    )
    url = f"sqlite:///{place}/log.db"
    murk.run(task, [{"ill": each["ill"]} for each in people(350, 3)], seed=1, log=url, ledger=f"{place}/l.db")
    expected = murk.fit(Model.parse("name: again"), url)
    path = archived(url, place / "archive")
    result = murk.fit(Model.parse("name: again"), archive=path)
    assert numbers(result) == numbers(expected)
    assert result.report["state_digest"] == expected.report["state_digest"]
    assert result.report.get("track") == expected.report.get("track")


def test_a_log_of_scores_is_learned_with_the_models_that_its_releases_name():
    """Its first rounds are forgotten by states and count; without the file of models nothing can be learned."""
    url, path = world("scores")
    own = murk.fit(Model.parse("name: again"), url).report
    found = murk.fit(Model.parse("name: again"), archive=path).report
    assert (found["releases"], found["dead_letters"], found["lag"]) == (own["releases"], own["dead_letters"], 0)
    (Path(path) / MODELS).unlink()
    with pytest.raises(UserError, match="lacks the models at which people have answered"):
        murk.fit(Model.parse("name: again"), archive=path)


def test_a_fit_takes_a_log_or_an_archive():
    with pytest.raises(UserError, match="either a log or an archive"):
        murk.fit(Model.parse("name: again"))
    with pytest.raises(UserError, match="there is no archive at"):
        murk.fit(Model.parse("name: again"), archive=tempfile.mkdtemp())


def dirty(url):
    """Append to a log what a hostile sender can: repeats within and beyond the window, other tasks', damaged ones."""
    with open_log(url) as log:
        messages = [(partition, message.value) for partition in range(2) for message in log.read(partition, 0, 1000)]
        task = log.registered_task()
        values = [value for _, value in messages]
        log.append(messages[:30])
        log.append([(1 - partition, value) for partition, value in messages[:10]])
        log.append([(0, value.replace(task.hash.encode(), b"0" * 64)) for value in values[:5]])
        log.append([(0, value[:-7]) for value in values[:5]] + [(1, b""), (1, b"\xff{}"), (0, b'{"a":"\\u0061"}')])
        log.append([(0, value.replace(b'"expires":', b'"expires":1')) for value in values[5:8]])
        with Ledger(f"{tempfile.mkdtemp()}/others.db") as ledger:
            device = Producer(task, log, ledger, noise=SimulatedNoise(2))
            for number, record in enumerate(people(120, 2)):
                assert device.release(record, person=f"late {number}").outcome == "released"
        log.append(messages[-20:])


@pytest.mark.parametrize("protocol", ["moments", "scores", "gradients"])
def test_a_dirty_log_is_judged_as_the_worker_judges_it(protocol):
    place = Path(tempfile.mkdtemp())
    url = f"sqlite:///{place}/log.db"
    murk.run(Task.parse(_TASK + _PROTOCOLS[protocol]), people(300, 1), seed=1, log=url, ledger=f"{place}/ledger.db")
    dirty(url)
    with (
        open_log(url) as log,
        WorkerPool(log, task := log.registered_task(), device_for(task).engine, log.join()) as pool,
    ):
        while pool.step():
            pass
        assert pool.pulse.vitals().dead > 10
    expected = murk.fit(model_of(protocol), url)
    result = murk.fit(model_of(protocol), archive=archived(url, place / "archive", rows=60))
    for key in ("releases", "duplicates", "dead_letters"):
        assert result.report[key] == expected.report[key], key
    assert result.report["duplicates"] >= 30
    np.testing.assert_allclose(flat(result), flat(expected), rtol=1e-9, atol=1e-12)


def test_a_part_reads_its_own_file_alone():
    """Otherwise a fit would read all unexpired messages again for each of its files."""
    place = Path(tempfile.mkdtemp())
    url = f"sqlite:///{place}/log.db"
    murk.run(Task.parse(_TASK + _PROTOCOLS["moments"]), people(300, 1), seed=1, log=url, ledger=f"{place}/ledger.db")
    dirty(url)
    path, model = archived(url, place / "archive", rows=60), model_of("moments")
    with ArchiveLog(LocalFolder(str(path))) as log:
        parts = parts_of(log, model_device_for(model, log.task), str(path))
    expected = [learn_part(part) for part in parts]
    with ArchiveLog(LocalFolder(str(path))) as log:
        # A copy whose original is in another file.
        files = [(part, set(log.copies(part.partition, part.extent.begin).tolist())) for part in parts]
    assert any(copies for part, copies in files if part.extent.begin)
    for part, state in zip(parts, expected, strict=True):
        others = [place / "archive" / other.extent.name(other.partition) for other in parts if other != part]
        contents = [other.read_bytes() for other in others]
        for other in others:
            other.write_bytes(b"damaged")
        _opened.cache_clear()
        assert learn_part(part) == state
        for other, content in zip(others, contents, strict=True):
            other.write_bytes(content)
