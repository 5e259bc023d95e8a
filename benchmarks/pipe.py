"""A simulated population as the pipe treats it (growing blocks, stale iterates, levels at random), without its I/O."""

import numpy as np

from murk.privacy.noise import SimulatedNoise
from murk.protocols.gradients import kernels as k


def learn(device, x, y, levels, seed, share=100, engine=None):
    """The engine after all records, in blocks of a hundredth of the releases so far; one given goes on.

    ``levels`` numbers each record's level among the device's.
    """
    engine = device.engine() if engine is None else engine
    mechanisms = list(device.mechanisms.values())
    units = np.array([m.unit for m in mechanisms])
    variances = np.array([m.variance for m in mechanisms])
    kinds = np.array([m.code for m in mechanisms])
    noise, before = SimulatedNoise(seed), engine.n_releases
    start, memory = 0, engine.memory
    while start < len(x):
        stop = min(start + max(1, (before + start) // share), len(x))
        version, iterate = engine.published()
        gradients = device.vectors(x[start:stop], y[start:stop], np.array(iterate))
        payloads = np.empty(gradients.shape, dtype=np.int64)
        for number, mechanism in enumerate(mechanisms):
            own = levels[start:stop] == number
            if own.any():
                rows = np.arange(before + start, before + stop)[own]
                payloads[own] = mechanism.randomize(gradients[own], noise, rows)
        versions = np.full(stop - start, version)
        learned = k.learn_releases(
            memory.real, memory.whole, payloads, versions, levels[start:stop], kinds, units, variances
        )
        assert learned == stop - start
        start = stop
    return engine
