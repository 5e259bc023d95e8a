"""Honest releases for a log, made in blocks as fast as they can be: the feed of the worker benchmarks."""

import time

import numpy as np

from murk.learners.problem import problem_for
from murk.privacy.noise import SimulatedNoise, identifiers
from murk.stream import GradientRelease, Task
from murk.stream.codec import encode

TASK = Task.parse(
    "name: feed\nfeatures: ["
    + ", ".join(f"{{name: x{i}, low: -1, high: 1}}" for i in range(9))
    + "]\ntarget: {name: y, kind: binary, positive: 'yes'}\n"
    "privacy: {guarantee: {gdp: {mu: 1.0}}}\ngranularity: 1s\nexpiry: 2s\nlog: {retention: 2s}\n"
).with_simulated(True)


class Feed:
    """Makes releases of ten numbers of the newest published version."""

    def __init__(self, task=TASK):
        self.task = task
        self.problem = problem_for(task)
        self.noise = SimulatedNoise(1)
        self.made = 0

    def block(self, version, count, chain=0):
        """``count`` encoded releases at ``version``, with their chain."""
        rows = np.arange(self.made, self.made + count)
        self.made += count
        mechanism = self.problem.mechanisms["default"]
        payloads = mechanism.randomize(np.zeros((count, mechanism.dimension)), self.noise, rows).tolist()
        now = int(time.time())
        return [
            (chain, encode(GradientRelease(
                id=name, task=self.task.hash, level="default", chain=chain, version=version, payload=payload,
                time=0, expires=now + 86_400, simulated=True,
            )))
            for name, payload in zip(identifiers(self.noise, rows), payloads, strict=True)
        ]  # fmt: skip
