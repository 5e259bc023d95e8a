"""Old gradients: steps that are shorter the older they are, and fresh ones that move the iterate as ever."""

import numpy as np
import pytest

from murk import Task
from murk.errors import MurkError, UserError
from murk.privacy import GaussianDP
from murk.privacy.mechanisms import calibrate
from murk.privacy.noise import SimulatedNoise
from murk.protocols.device import device_for
from murk.protocols.gradients import kernels as k
from murk.protocols.gradients.engine import SGDEngine
from murk.protocols.gradients.objectives import Huber
from murk.protocols.gradients.settings import Settings
from murk.protocols.options import InverseScalingStep
from murk.task.learning import MaxStaleness

P = 3
FILE = """
name: ages
features: [{name: a, low: 0, high: 1}]
target: {name: y, kind: binary, positive: "yes"}
protocol: gradients
privacy: {guarantee: {gdp: {mu: 1.0}}}
"""


def engine(delays, **others):
    names = (*(f"x{j}" for j in range(P)), "intercept")
    settings = Settings(
        objective=Huber(0.5, 1.0), names=names, radius=5.0, delays=delays, staleness=MaxStaleness(share=0.1), **others
    )
    mechanism = calibrate("gaussian", GaussianDP(20.0), dimension=settings.dimension, radius=settings.bound)
    return SGDEngine(settings, {"default": mechanism})


def stream(learner, n, share, seed=0, until=None, start=0):
    """Let n people release in blocks of a share of the count, each block at the newest iterate at its beginning."""
    device_memory, mechanism = learner.memory, learner.mechanisms["default"]
    noise, done = SimulatedNoise(seed), start
    units, variances = np.array([mechanism.unit]), np.array([mechanism.variance])
    while done < n:
        stop = min(n, done + max(1, int(done * share)))
        if until is not None and done >= until:
            return done
        rng = np.random.default_rng([seed, done])
        X = np.column_stack([rng.normal(size=(stop - done, P)), np.ones(stop - done)])
        y = X.sum(axis=1) + rng.normal(size=len(X))
        version, theta = learner.published()
        out = np.zeros_like(X)
        k.gradients(device_memory.real, device_memory.whole, np.array(theta), X, y, out)
        payloads = mechanism.randomize(out, noise, np.arange(done, stop))
        zeros = np.zeros(len(X), dtype=np.int64)
        codes = np.array([mechanism.code])
        k.learn_releases(
            learner.memory.real, learner.memory.whole, payloads, zeros + version, zeros, codes, units, variances
        )
        done = stop
    return done


def off(learner):
    return float(np.sum((learner.average - 1.0) ** 2))


def test_fresh_gradients_move_the_iterate_as_ever():
    whole, shorter = engine(None), engine("adaptive")
    for each in (whole, shorter):
        stream(each, 1_000, 0.0)
    assert np.array_equal(whole.memory.rows, shorter.memory.rows)
    assert whole.step_size() == shorter.step_size()
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(500, P)), rng.normal(size=500)
    alike = []
    for delays in (None, "adaptive"):
        learner = SGDEngine(engine(delays).settings, engine(delays).mechanisms, seed=7)
        learner.learn_records(X, y, [learner.mechanisms["default"]])
        alike.append(learner.memory.rows)
    assert np.array_equal(*alike)


def test_old_gradients_do_not_ruin_the_estimate():
    # Fixed seeds: 4 streams each. Blocks of 10% are far beyond the edge at this mu: steps that do not heed ages end at
    # the ball's boundary in each; at most a part of the runs' error is theirs if they are shorter.
    errors = {}
    for delays, share in ((None, 0.005), (None, 0.1), ("adaptive", 0.1)):
        found = []
        for seed in range(4):
            learner = engine(delays)
            stream(learner, 20_000, share, seed)
            found.append(off(learner))
        errors[delays, share] = np.mean(found)
    assert errors["adaptive", 0.1] < 10 * errors[None, 0.005]
    assert errors[None, 0.1] > 100 * errors[None, 0.005]


def test_a_state_goes_on_bit_for_bit():
    once, before, after = engine("adaptive"), engine("adaptive"), engine("adaptive")
    stream(once, 5_000, 0.05)
    done = stream(before, 5_000, 0.05, until=2_000)
    state = before.state_dict()
    after.load_state_dict(state)
    stream(after, 5_000, 0.05, start=done)
    assert after.state_dict() == once.state_dict()
    assert after.step_size() == once.step_size() < engine_of_no_age(once).step_size()
    with pytest.raises(MurkError, match="other settings"):
        engine(None).load_state_dict(state)
    del state["delays"]
    with pytest.raises(MurkError, match="malformed"):
        engine("adaptive").load_state_dict(state)


def engine_of_no_age(learner):
    """The same learner, had all gradients been fresh of late."""
    state = learner.state_dict()
    other = engine("adaptive")
    other.load_state_dict(state)
    other.memory.real[k.MEAN_AGE] = 0.0
    return other


def test_states_and_settings_of_before_are_what_they_were():
    assert "delays" not in engine(None).state_dict()
    assert engine(None).settings.digest != engine("adaptive").settings.digest
    with pytest.raises(UserError, match="delays"):
        engine("adaptive", step=InverseScalingStep(0.1))


def test_tasks_have_it_unless_they_say_no():
    task = Task.parse(FILE)
    assert task.learner.delays == "adaptive"
    assert device_for(task).settings.delays == "adaptive"
    former = Task.parse(f"{FILE}learner: {{delays: null}}\n")
    assert former.learner.delays is None
    assert former.hash != task.hash
    assert Task.parse(f"{FILE}learner: {{delays: adaptive}}\n") == task


def test_steps_that_are_given_stay_as_they_are():
    assert Task.parse(f"{FILE}learner: {{step: {{eta: 0.2}}}}\n").learner.delays is None
    with pytest.raises(UserError, match="no effect on steps that are given"):
        Task.parse(f"{FILE}learner: {{step: {{eta: 0.2}}, delays: adaptive}}\n")
    with pytest.raises(UserError, match="no effect with protocol: examples"):
        Task.parse(FILE.replace("gradients", "examples") + "learner: {delays: adaptive}\n")
