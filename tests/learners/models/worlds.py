"""A public population of 256 records, from which people are drawn, and releases of theirs to any task."""

from functools import cache

import numpy as np

from murk.privacy import SimulatedNoise
from murk.protocols.device import device_for
from murk.results.models import model_device_for
from murk.stream.wire.columns import Columns
from murk.task.models import Model
from murk.task.task import Task

HEAD = """
name: wages
features:
  - {name: age, low: 20, high: 60}
  - {name: hours, low: 0, high: 80}
  - {name: married, categories: ["no", "yes"]}
  - {name: region, categories: [north, east, south]}
"""
REAL = HEAD + "target: {name: wage, kind: real, low: 0, high: 100}\n"
LABEL = HEAD + "target: {name: rich, kind: binary, positive: 'yes', negative: 'no'}\n"


def population(seed=7, people=256):
    """Columns of the records: everything depends on everything else, and no fit is exactly right."""
    random = np.random.default_rng(seed)
    age = random.uniform(20, 60, people)
    hours = np.clip(30 + 0.5 * (age - 40) + random.normal(0, 14, people), 0, 80)
    married = random.random(people) < 0.2 + 0.015 * (age - 20)
    region = random.choice(["north", "east", "south"], people, p=[0.4, 0.3, 0.3])
    hours = np.where(region == "south", np.clip(hours - 12, 0, 80), hours)
    score = 0.03 * (age - 40) + 0.02 * (hours - 35) + 0.4 * married + random.normal(0, 0.5, people)
    return {
        "age": age, "hours": hours, "married": np.where(married, "yes", "no"), "region": region,
        "wage": np.clip(50 + 25 * score, 0, 100), "rich": np.where(score > 0, "yes", "no"),
    }  # fmt: skip


EVERYBODY = population()


def made(text, protocol="examples", guarantee="gdp: {mu: 4.0}", mechanism="null", **settings):
    """A task of the population's columns, with settings of its protocol."""
    block = ", ".join(f"{key}: {value}" for key, value in settings.items())
    own = f"{protocol}: {{{block}}}\n" if settings else ""
    privacy = f"privacy: {{guarantee: {{{guarantee}}}, mechanism: {mechanism}}}\n"
    return Task.parse(f"{text}protocol: {protocol}\n{own}{privacy}").with_simulated(True)


def coded(task, rows=slice(None)):
    """Coded features (m, p) and target of the population's rows."""
    x, y = _everybody(task)
    return x[rows], y[rows]


@cache
def _everybody(task):
    block = task.coding.encode({name: EVERYBODY[name].tolist() for name in (*task.coding.columns, task.coding.target)})
    return block.x, block.y


@cache
def model_device(task, model):
    """The device of a model, given as text, on a log of the task."""
    return model_device_for(Model.parse(model), task)


def released(task, seed, people):
    """Releases of people who are drawn from the population."""
    return block(payloads(task, seed, people))


def payloads(task, seed, people):
    """What they release (people, size)."""
    X, y = coded(task, np.random.default_rng(seed).integers(0, len(EVERYBODY["age"]), people))
    device = device_for(task)
    return device.mechanisms["default"].randomize(device.vectors(X, y), SimulatedNoise(seed), np.arange(people))


def block(payloads):
    """Releases at the default level with these payloads (m, size)."""
    count, size = payloads.shape
    numbers = {"level": np.zeros(count, np.int64), "payload": np.full(count, size)}
    return Columns(numbers, {"level": ["default"]}, np.ascontiguousarray(payloads).ravel())


def fitted(task, model, seed, people):
    """A model's estimate from one draw of people."""
    device = model_device(task, model)
    engine = device.engine()
    engine.learn_releases(released(task, seed, people))
    return device, device.estimate([engine])


def truth(device, weights):
    """The least-squares fit of a model's columns over the whole population, its rows weighted."""
    X, y = coded(device.task)
    if device.task.target.kind == "binary":
        y = 2.0 * y - 1.0
    return np.linalg.solve((X * weights[:, None]).T @ X, (X * weights[:, None]).T @ y)
