"""Models that continue from the task's own states learn what every release on the log would have told them."""

import tempfile

import numpy as np
import pytest

import murk
from murk import Task
from murk.errors import UserError
from murk.privacy.noise import SimulatedNoise
from murk.producers import Ledger, Producer
from murk.stream import open_log
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
    "outer": "protocol: examples\nexamples: {regularization: 0.1}",
    "windows": "protocol: summaries\nsummaries: {method: moments, window: 50}",
}
_OWN = {
    "scores": "protocol: scores",
    "scores by partition": "protocol: scores\nscores: {models: per-partition}",
    "gradients": "protocol: gradients",
}
_MODEL = Model.parse("{name: ill-by-smoker, features: [smoker]}")


def people(n, seed):
    rng = np.random.default_rng(seed)
    arms, smokers = rng.choice(["a", "b", "c"], n), rng.choice(["no", "yes"], n)
    ill = rng.random(n) < np.where(smokers == "yes", 0.6, 0.3)
    return [
        {"arm": str(arm), "smoker": str(smoker), "ill": "yes" if sick else "no"}
        for arm, smoker, sick in zip(arms, smokers, ill, strict=True)
    ]


def learned(folder, protocol, count=800):
    url = f"sqlite:///{folder}/log.db"
    murk.run(
        Task.parse(_TASK + (_PROTOCOLS | _OWN)[protocol]),
        people(count, 1),
        seed=1,
        log=url,
        ledger=f"{folder}/ledger.db",
    )
    return url


def numbers(result):
    return {name: (each.value, each.interval) for name, each in result.coefficients.items()}


@pytest.mark.parametrize("protocol", _PROTOCOLS)
def test_states_tell_the_same_bits_as_all_releases(protocol):
    found = []
    for replay in (False, True):
        url = learned(tempfile.mkdtemp(), protocol)
        result = murk.fit(_MODEL, url, replay=replay)
        assert result.report["model"]["from_states"] is not replay
        assert ("continues from the states" in result.report["model"]["words"]) is not replay
        found.append((numbers(result), result.report["releases"], result.report["duplicates"]))
        # A repeated fit resumes the model's own state, and says the same of it.
        for again in (murk.fit(_MODEL, url), murk.fit(_MODEL, url, replay=True)):
            assert numbers(again) == numbers(result)
            assert again.report["model"] == result.report["model"]
    assert found[0] == found[1]


@pytest.mark.parametrize("protocol", _PROTOCOLS)
def test_states_answer_after_retention_has_removed_releases(protocol):
    url = learned(tempfile.mkdtemp(), protocol)
    whole = murk.fit(Model.parse("{name: before, features: [smoker]}"), url)
    with open_log(url) as log:
        removed = log.trim(2.0**40)
    late = murk.fit(_MODEL, url)
    releases = whole.report["releases"]
    assert (late.report["releases"], late.report["model"]["before"]) == (releases, 0)
    assert numbers(late) == numbers(whole)
    replayed = murk.fit(Model.parse("{name: replayed, features: [smoker]}"), url, replay=True)
    assert (replayed.report["releases"], replayed.report["model"]["before"]) == (releases - removed, removed)


def test_releases_after_the_states_are_learned_too():
    folder = tempfile.mkdtemp()
    url = learned(folder, "moments")
    with open_log(url) as log, Ledger(f"{folder}/others.db") as ledger:
        device = Producer(log.registered_task(), log, ledger, noise=SimulatedNoise(2))
        for number, record in enumerate(people(50, 2)):
            assert device.release(record, person=f"late {number}").outcome == "released"
    late, whole = murk.fit(_MODEL, url), murk.fit(_MODEL.model_copy(update={"name": "whole"}), url, replay=True)
    assert late.report["releases"] == whole.report["releases"] == 850
    assert numbers(late) == numbers(whole)


@pytest.mark.parametrize("protocol", _OWN)
def test_the_tasks_own_model_is_what_its_learner_has_committed(protocol):
    folder = tempfile.mkdtemp()
    task, url = Task.parse(_TASK + _OWN[protocol]), f"sqlite:///{folder}/log.db"
    expected = murk.run(task, people(800, 1), seed=1, log=url, ledger=f"{folder}/ledger.db")
    with open_log(url) as log:
        log.trim(2.0**40)
    result = murk.fit(Model.parse("name: again"), url)
    assert numbers(result) == numbers(expected)
    assert (result.report["releases"], result.report["task"], result.report["lag"]) == (800, "again", 0)
    assert "It is the task's own model" in result.report["model"]["words"]


def test_shares_without_features_are_the_tasks_own_model():
    folder = tempfile.mkdtemp()
    task = Task.parse(
        "{name: illness, features: [], target: {name: ill, kind: classes, classes: ['no', 'yes']}, privacy: "
        "{guarantee: {gdp: {mu: 1.0}}}}"
    )
    url = f"sqlite:///{folder}/log.db"
    records = [{"ill": each["ill"]} for each in people(300, 1)]
    expected = murk.run(task, records, seed=1, log=url, ledger=f"{folder}/ledger.db")
    assert numbers(murk.fit(Model.parse("name: again"), url)) == numbers(expected)


def test_a_log_of_scores_serves_no_other_model_and_no_replay():
    url = learned(tempfile.mkdtemp(), "scores", 20)
    with pytest.raises(UserError, match=r"features|leave out everything but the name"):
        murk.fit(_MODEL, url)
    with pytest.raises(UserError, match="--replay cannot be given with the task's own model"):
        murk.fit(Model.parse("name: again"), url, replay=True)
