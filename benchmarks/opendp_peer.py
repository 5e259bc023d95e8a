"""Noise drawn by OpenDP, an independent sampler: the peer of `benchmarks.speed`, held to the tests of ours."""

import numpy as np
from opendp import domains, measurements, metrics
from opendp.mod import enable_features

enable_features("contrib")


def draw(kind: str, scale: int, count: int) -> np.ndarray:
    """Draw ``count`` integers of a distribution (the mechanism applied to zeros)."""
    vectors = domains.vector_domain(domains.atom_domain(T="i64"))
    if kind == "gaussian":
        mechanism = measurements.make_gaussian(vectors, metrics.l2_distance(T="f64"), float(scale))
    else:
        mechanism = measurements.make_laplace(vectors, metrics.l1_distance(T="i64"), float(scale))
    return np.array(mechanism([0] * count), dtype=np.int64)
