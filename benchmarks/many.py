"""``learn_many`` of each protocol beside a bare compiled loop of the same arithmetic: ``python -m benchmarks.many``.

CPU time a record of ten features, simulated noise, in turns. A bare loop has one setting, no choices, no checks of what
it is given, no state that could be taken, and wipes nothing; the draws and the certified quantisation are Murk's own.
"""

import argparse
from collections.abc import Iterator

import numpy as np
from numba import njit

from benchmarks.speed import NAMES, D, bare_loop
from benchmarks.timing import compare
from murk.learners import IWPSGDClassifier, LDPSGDClassifier, PublicGLMClassifier, ScoreClassifier
from murk.privacy import GaussianDP
from murk.privacy.mechanisms.lattice import quantise_l2
from murk.privacy.noise.kernels import Purpose, block, simulated_gaussian
from murk.protocols.moments.kernels import moments

ROWS = 1_000_000
QUERY = np.uint64(Purpose.QUERY)


@njit(error_model="numpy")
def bare_scores(X, y, seed, origin, transform, reach, exponent, spacing, steps, limit, matrix_reach, unit, totals):
    """Balanced scores of whitened features at one model, or for the share that is asked for one the matrix; summed."""
    n, p = X.shape
    scores, matrices = totals
    z, noise, q = np.zeros(p), np.zeros(p, dtype=np.int64), np.zeros(p, dtype=np.int64)
    many, root = np.zeros(matrices.shape[0], dtype=np.int64), np.sqrt(2.0)
    for i in range(n):
        logit, square = 0.0, 0.0
        for j in range(p):
            logit += X[i, j] * origin[j]
            z[j] = 0.0
            for k in range(p):
                z[j] += transform[j, k] * X[i, k]
            square += z[j] * z[j]
        length = np.sqrt(square)
        high, low = min(1.0, np.exp(-exponent * logit)), -min(1.0, np.exp(exponent * logit))
        if block(seed, np.uint64(i), QUERY, np.uint64(0))[0] < limit:
            simulated_gaussian(seed, i, many)
            chance = 1.0 / (1.0 + np.exp(-logit))
            scale = 2.0 * chance * (1.0 - chance) * (high - low) * min(matrix_reach, length) / matrix_reach / square
            place = 0
            for j in range(p):
                for k in range(j, p):
                    entry = scale * z[j] * z[k] * (1.0 if j == k else root)
                    matrices[place] += np.int64(np.rint(entry / unit)) + many[place]
                    place += 1
        else:
            simulated_gaussian(seed, i, noise)
            scale = (high if y[i] > 0.5 else low) * min(1.0, reach / length) / length
            for j in range(p):
                z[j] *= scale
            quantise_l2(z, spacing, steps, q)
            for j in range(p):
                scores[j] += q[j] + noise[j]


@njit(error_model="numpy")
def bare_joint(X, y, seed, root, weight, spacing, total):
    """Second moments, summed."""
    d, steps = total.shape[0], 1.0 / spacing
    v, noise = np.empty(d), np.empty(d, dtype=np.int64)
    for i in range(X.shape[0]):
        moments(X[i], y[i], root, weight, 0.0, v)
        simulated_gaussian(seed, i, noise)
        for j in range(d):
            total[j] += spacing * (np.int64(v[j] * steps) + noise[j])


@njit(error_model="numpy")
def descend(gradient, theta, average, a, b, step, radius, t):
    """A projected step, its average, and the two sums of random scaling."""
    p, length = theta.shape[0], 0.0
    for j in range(p):
        theta[j] -= step * gradient[j]
        length += theta[j] * theta[j]
    if length > radius * radius:
        for j in range(p):
            theta[j] *= radius / np.sqrt(length)
    for j in range(p):
        average[j] += (theta[j] - average[j]) / t
        a[j] += t * t * average[j] * average[j]
        b[j] += t * t * average[j]


@njit(error_model="numpy")
def bare_directions(X, y, seed, spacing, steps, variance, radius):
    """Directions: the gradient of the corrected square, a step, and the two triangles that the Newton step solves."""
    n, p = X.shape
    v, noise, q = np.zeros(p + 2), np.zeros(p + 2, dtype=np.int64), np.zeros(p + 2, dtype=np.int64)
    theta, average, a, b, g, at = np.zeros(p), np.zeros(p), np.zeros(p), np.zeros(p), np.zeros(p), np.zeros(p)
    bend, meat, aimed = np.zeros(p * (p + 1) // 2), np.zeros(p * (p + 1) // 2), np.zeros(p)
    losses = squares = spread = 0.0
    for i in range(n):
        simulated_gaussian(seed, i, noise)
        square = 0.0
        for j in range(p):
            square += X[i, j] * X[i, j]
        inverse = 1.0 / np.sqrt(square)
        sign = 1.0 if y[i] > 0.5 else -1.0
        for j in range(p - 1):
            v[j] = sign * X[i, j] * inverse
        v[p - 1], v[p], v[p + 1] = inverse, sign * inverse, 0.0
        quantise_l2(v[:p], spacing, steps, q[:p])
        q[p] = np.int64(v[p] / spacing)
        for j in range(p + 2):
            v[j] = (q[j] + noise[j]) * spacing
        target, v[p - 1] = v[p - 1], v[p]
        miss, ahead, square = -target, -target, 0.0
        for j in range(p):
            square += v[j] * v[j]
            miss += theta[j] * v[j]
            ahead += average[j] * v[j]
        own = (square - 1.0 + v[p + 1]) / p
        length = 0.0
        for j in range(p):
            g[j] = miss * v[j] - own * theta[j]
            at[j] = ahead * v[j] - own * average[j]
            length += average[j] * average[j]
            aimed[j] += target * v[j]
        found = 0.5 * (ahead * ahead - own * length - variance)
        losses += found
        squares += found * found
        place = 0
        for j in range(p):
            for k in range(j + 1):
                bend[place] += v[j] * v[k]
                meat[place] += at[j] * at[k]
                place += 1
        spread += 1.0
        descend(g, theta, average, a, b, radius / np.sqrt(8.0 * spread), radius, i + 1.0)
    return average


@njit(error_model="numpy")
def bare_outer(X, y, seed, unit, radius):
    """Outer products: the gradient, a step, and the first and second moments that the Newton step solves."""
    n, p = X.shape
    size = (p + 1) * (p + 2) // 2
    v, noise, u, pulled = np.zeros(p + 1), np.zeros(size, dtype=np.int64), np.zeros(size), np.zeros(p)
    theta, average, a, b = np.zeros(p), np.zeros(p), np.zeros(p), np.zeros(p)
    first, second = np.zeros(size), np.zeros(size * (size + 1) // 2)
    half, root = np.sqrt(0.5), np.sqrt(2.0)
    losses = squares = spread = 0.0
    for i in range(n):
        simulated_gaussian(seed, i, noise)
        square = 1.0
        for j in range(p):
            square += X[i, j] * X[i, j]
        for j in range(p):
            v[j] = X[i, j] / np.sqrt(square)
        v[p] = (1.0 if y[i] > 0.5 else -1.0) / np.sqrt(square)
        place = 0
        for j in range(p + 1):
            for k in range(j, p + 1):
                u[place] = unit * (np.rint(v[j] * v[k] * (1.0 if j == k else root) / unit) + noise[place])
                place += 1
        for j in range(p):
            pulled[j] = 0.0
        loss, place = 0.0, 0
        for j in range(p + 1):
            for k in range(j, p + 1):
                entry = u[place] * (1.0 if j == k else half)
                far, near = theta[k] if k < p else -1.0, theta[j] if j < p else -1.0
                there, here = average[k] if k < p else -1.0, average[j] if j < p else -1.0
                loss += entry * here * there * (0.5 if j == k else 1.0)
                if j < p:
                    pulled[j] += entry * far
                if j < k < p:
                    pulled[k] += entry * near
                place += 1
        losses += loss
        squares += loss * loss
        place = 0
        for j in range(size):
            first[j] += u[j]
            for k in range(j, size):
                second[place] += u[j] * u[k]
                place += 1
        spread += 1.0
        descend(pulled, theta, average, a, b, radius / np.sqrt(8.0 * spread), radius, i + 1.0)
    return average


def compared(rows: int, rounds: int) -> Iterator[tuple[str, float, float, float]]:
    """Each protocol: what it is, microseconds a record, the bare loop's, and their ratio."""
    n, rng, seed = rows, np.random.default_rng(0), np.uint64(1)
    X = rng.uniform(-1, 1, (n, D))
    y = rng.random(n) < 0.5
    coded, codes = np.column_stack([X, np.ones(n)]), y.astype(float)
    public = [dict(zip(NAMES, x, strict=True)) for x in rng.uniform(-1, 1, (200, D))]
    p = D + 1

    def gradients(model):
        m = model._default
        return lambda: bare_loop(coded, codes, seed, m.radius, m.spacing, m.steps, 5.0, m.variance)

    def scores(model):
        pair, at = model._engine.mechanisms["default"], model._engine.model
        totals = np.zeros(p, dtype=np.int64), np.zeros(p * (p + 1) // 2, dtype=np.int64)
        public = at.origin, at.transform, at.clipping_norm, at.exponent, pair.score.spacing, pair.score.steps
        matrices = at.thresholds[1], at.matrix_clipping_norm, pair.matrix.unit
        return lambda: bare_scores(coded, codes, seed, *public, *matrices, totals)

    def joint(model):
        layout, m = model._engine.layout, model._engine.mechanisms["default"]
        total = np.zeros(layout.dimension)
        return lambda: bare_joint(coded, 2.0 * codes - 1.0, seed, layout.root, layout.weight, m.unit, total)

    def directions(model):
        m = model._engine.mechanisms["default"]
        return lambda: bare_directions(coded, codes, seed, m.spacing, m.steps, m.variance, 5.0)

    def outer(model):
        unit = model._engine.mechanisms["default"].unit
        return lambda: bare_outer(coded, codes, seed, unit, 5.0)

    for what, kind, more, bare in (
        ("gradients", LDPSGDClassifier, {}, gradients),
        ("scores", ScoreClassifier, {}, scores),
        ("examples, directions", IWPSGDClassifier, {"release": "directions"}, directions),
        ("examples, joint or outer: the default", IWPSGDClassifier, {}, outer),
        ("scores, once", ScoreClassifier, {"public": public, "interactive": False}, scores),
        ("moments, joint", PublicGLMClassifier, {"release": "joint"}, joint),
    ):
        model = kind(guarantee=GaussianDP(1.0), seed=1, features=NAMES, **more)
        model.learn_many(X[:100_000], y[:100_000])
        peer = bare(model)
        a, b, ratio = compare(lambda: model.learn_many(X, y), peer, rounds=rounds)  # noqa: B023
        yield what, a / n * 1e6, b / n * 1e6, ratio


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args(argv)
    print(f"learn_many, {given.rows:,} rows of {D} features, us a record: {'':21s}ours      bare     ratio")
    for what, ours, bare, ratio in compared(given.rows, given.rounds):
        print(f"  {what:58s} {ours:8.3f}  {bare:8.3f}  {ratio:8.2f}", flush=True)


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
