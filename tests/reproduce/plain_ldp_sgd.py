"""LDP-SGD written down once more, in numpy alone: what figures 4 to 6 of paper 002 are compared with.

``python -m tests.reproduce.plain_ldp_sgd`` prints the means of logarithms that `KNOWN` of the experiments holds: 400
runs of 300,000 people for each cell, some minutes in all.
"""

import math
import sys

import numpy as np

HUBER, SIGMA = 1.345, 2.0
FLOOR = 0.01
KAPPA = 0.7101645
CELLS = {
    "linear, mu = 1": ("linear", 1.0), "linear, mu = 2": ("linear", 2.0), "linear, no noise": ("linear", math.inf),
    "logistic, mu = 2": ("logistic", 2.0),
}  # fmt: skip


def gradients(kind, theta, z, y):
    """Weighted gradients of runs ``(runs, parameters)`` at one person each."""
    weight = np.minimum(1.0, 2.0 / np.sum(z**2, axis=1))
    p = z.shape[1]
    fit = np.sum(z * theta[:, :p], axis=1)
    if kind == "logistic":
        return ((1.0 / (1.0 + np.exp(-fit)) - y) * weight)[:, None] * z
    scale = theta[:, p]
    u = (y - fit) / scale
    psi = np.clip(u, -HUBER, HUBER)
    rho = np.where(np.abs(u) <= HUBER, u * u / 2.0, HUBER * np.abs(u) - HUBER**2 / 2.0)
    return np.column_stack([-(psi * weight)[:, None] * z, (rho - u * psi + KAPPA / 2.0) * weight])


def distances(kind, d, mu, n, runs, seed, eta=0.2):
    """Squared distances to the truth at the end, ``(2, runs)``: of the iterates, of the averages; alpha = 1/2."""
    rng = np.random.default_rng(seed)
    linear = kind == "linear"
    p = d + 1
    theta = np.zeros((runs, p + linear))
    truth = np.append(np.ones(p), [SIGMA] if linear else [])
    if linear:
        theta[:, p] = 1.0
    bound = math.sqrt(2.0 * HUBER**2 + HUBER**4 / 16.0) if linear else math.sqrt(2.0)
    noise, mean = 2.0 * bound / mu, np.zeros_like(theta)
    block = max(1, min(n, 400_000 // runs))
    for start in range(0, n, block):
        size = min(block, n - start)
        z = np.ones((size, runs, p))
        z[:, :, :d] = rng.normal(size=(size, runs, d))
        fit = z.sum(axis=2)
        if linear:
            y = fit + SIGMA * rng.normal(size=fit.shape)
        else:
            y = rng.random(fit.shape) < 1.0 / (1.0 + np.exp(-fit))
        added = noise * rng.normal(size=(size, *theta.shape))
        for i in range(size):
            step = eta / math.sqrt(start + i + 1)
            theta = theta - step * (gradients(kind, theta, z[i], y[i]) + added[i])
            if linear:
                theta[:, p] = np.maximum(theta[:, p], FLOOR)
            mean += (theta - mean) / (start + i + 1)
    return np.array([np.sum((each - truth) ** 2, axis=1) for each in (theta, mean)])


def main(runs=400, n=300_000):
    for seed, (name, (kind, mu)) in enumerate(CELLS.items()):
        logs = np.log(distances(kind, 5, mu, n, runs, seed))
        error = logs.std(axis=1, ddof=1) / math.sqrt(runs)
        shown = [f"{value:.4f} +- {one:.4f}" for value, one in zip(logs.mean(axis=1), error, strict=True)]
        print(name, *shown, "means", np.exp(logs).mean(axis=1), flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
