"""Honest releases for a log, made in blocks as fast as they can be: the feed of the worker benchmarks."""

import time

import numpy as np

from murk import Task
from murk.privacy.noise import SimulatedNoise, identifiers
from murk.protocols.device import device_for
from murk.stream.wire.codec import encode
from murk.stream.wire.releases import KINDS

NUMBERS = 9
"""Features, beside the constant."""


def written(protocol="gradients", guarantee="gdp: {mu: 1.0}", more="", block=""):
    """The file of a task of ten coefficients, whose releases are sent for two seconds."""
    return (
        "name: feed\nfeatures: ["
        + ", ".join(f"{{name: x{i}, low: -1, high: 1}}" for i in range(NUMBERS))
        + "]\ntarget: {name: y, kind: binary, positive: 'yes'}\n"
        f"privacy: {{guarantee: {{{guarantee}}}{more}}}\nprotocol: {protocol}\n"
        f"granularity: 1s\nexpiry: 2s\n{block}"
    )


def task_of(*given, **more):
    """The task that `written` describes, of simulated people."""
    return Task.parse(written(*given, **more)).with_simulated(True)


TASK = task_of()


class Feed:
    """Makes people's releases: gradients of the newest published version, examples or moments."""

    def __init__(self, task=TASK):
        self.task = task
        self.device = device_for(task)
        self.noise = SimulatedNoise(1)
        self.made = 0

    def block(self, version, count, partition=0):
        """``count`` encoded releases at ``version``, with their partition."""
        rows = np.arange(self.made, self.made + count)
        self.made += count
        mechanism, kind = self.device.mechanisms["default"], KINDS[self.device.kind]
        payloads = mechanism.randomize(np.zeros((count, mechanism.dimension)), self.noise, rows).tolist()
        now = int(time.time())
        more = {"version": version} if self.device.interactive else {}
        return [
            (partition, encode(kind(
                id=name, task=self.task.hash, level="default", partition=partition, payload=payload, time=0,
                expires=now + 86_400, simulated=True, **more,
            )))
            for name, payload in zip(identifiers(self.noise, rows), payloads, strict=True)
        ]  # fmt: skip
