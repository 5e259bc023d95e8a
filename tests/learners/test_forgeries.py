"""What one forged release can do: the longest that is learned, against the longest that coordinates alone allow."""

from pathlib import Path

import numpy as np
import pytest

from murk.learners import LDPSGDClassifier, PublicGLMRegressor
from murk.privacy import ApproxDP, GaussianDP, PureDP
from murk.privacy.mechanisms import calibrate
from murk.protocols.device import device_for
from murk.protocols.gradients.engine import SGDEngine
from murk.protocols.gradients.objectives import Logistic
from murk.protocols.gradients.settings import Settings
from murk.stream.log.sqlite import SqliteLog
from murk.stream.wire.codec import RejectedError, encode
from murk.stream.wire.releases import GradientRelease, MomentRelease
from murk.stream.worker.worker import Worker
from murk.task.task import Task

FIELDS = {"id": "0" * 32, "level": "default", "partition": 0, "time": 86_400, "expires": 2**40}
TASK = """
name: forged
features: [{{name: a, low: 0, high: 1}}, {{name: b, low: 0, high: 1}}, {{name: c, low: 0, high: 1}}]
target: {{name: y, kind: binary, positive: "1"}}
protocol: {protocol}
privacy: {{guarantee: {{gdp: {{mu: 1.0}}}}}}
"""


def gradient(payload, task="f" * 64, **more):
    return GradientRelease(payload=payload, version=0, task=task, **{**FIELDS, **more})


def moment(payload, task="f" * 64, **more):
    return MomentRelease(payload=payload, task=task, **{**FIELDS, **more})


def gradients(guarantee, features):
    settings = Settings(objective=Logistic(), names=tuple(f"x{i}" for i in range(features)))
    mechanism = calibrate("gaussian", guarantee, dimension=features, radius=settings.bound)
    return SGDEngine(settings, {"default": mechanism}), gradient


def moments(guarantee, features, **more):
    names = [f"x{i}" for i in range(features)]
    model = PublicGLMRegressor(guarantee=guarantee, features=names, target_bounds=(-1.0, 1.0), **more)
    return model._require(), moment


@pytest.mark.parametrize(
    ("make", "guarantee", "features", "more"),
    [
        (gradients, GaussianDP(1.0), 6, {}),
        (gradients, GaussianDP(4.0), 10, {}),
        (gradients, ApproxDP(1.0, 1e-6), 30, {}),
        (moments, GaussianDP(1.0), 4, {}),
        (moments, ApproxDP(2.0, 1e-6), 5, {"release": "separate"}),
    ],
)
def test_one_forged_release_reaches_less_far_than_its_coordinates_would_let_it(make, guarantee, features, more):
    """Measured on what is learned: with every coordinate as large as its own bound, and shortened until admitted."""
    engine, release = make(guarantee, features, **more)
    mechanism = engine.mechanisms["default"]
    alone = getattr(mechanism, "magnitudes", np.full(engine.dimension, mechanism.magnitude)).astype(float)

    def admitted(factor):
        one = release([int(v) for v in factor * alone])
        try:
            engine.admit(one)
        except RejectedError:
            assert not engine.admits([one])
            return False
        assert engine.admits([one])
        return True

    low, high = 0.0, 1.0
    assert not admitted(high)
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if admitted(middle) else (low, middle)
    before, after = (np.linalg.norm(mechanism.decode([[int(v) for v in factor * alone]])) for factor in (1.0, low))
    assert 3.0 < before / after < 8.0
    honest = mechanism.randomize(np.full((200, engine.dimension), 9.0), engine._noise, np.arange(200))
    for payload in honest.tolist():
        engine.admit(release(payload))


@pytest.mark.parametrize("budget", [GaussianDP(1.0), PureDP(1.0)])
def test_an_estimator_refuses_what_a_worker_refuses(budget):
    for model, release in (
        (LDPSGDClassifier(guarantee=budget, features=list("abcdef")), gradient),
        (PublicGLMRegressor(guarantee=budget, features=list("abc"), target_bounds=(-1.0, 1.0)), moment),
    ):
        engine = model._require()
        before = model.state_dict()
        forged = release([engine.mechanisms["default"].magnitude] * engine.dimension)
        with pytest.raises(RejectedError, match="longer than"):
            model.learn_release(forged)
        assert model.state_dict() == before


@pytest.mark.parametrize("protocol", ["gradients", "moments"])
def test_a_forged_release_on_a_log_is_a_dead_letter_and_its_id_is_taken(protocol, tmp_path: Path):
    """Whether it is one must not depend on what this version knows: a state remembers the last id that it read."""
    task = Task.parse(TASK.format(protocol=protocol))
    device = device_for(task)
    release = gradient if protocol == "gradients" else moment
    bound = device.mechanisms["default"].magnitude

    def message(number, size):
        payload = [size] * device.dimension
        return encode(release(payload, task=task.hash, id=f"{number:032x}", simulated=task.simulated))

    with SqliteLog(tmp_path / "log.db") as log:
        log.register_task(task.document())
        log.append([(0, message(1, 7)), (0, message(2, bound)), (0, message(2, 7))])
        with Worker(log, task, device.engine()) as worker:
            worker.step()
            assert (worker.counters.learned, worker.counters.dead) == (1, {"magnitude": 1})
            assert worker.counters.duplicates == 1
        # It goes on from there.
        with Worker(log, task, device.engine()) as worker:
            assert worker.offset == 3
