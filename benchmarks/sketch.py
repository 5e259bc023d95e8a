"""The Gaussian sketch: speed against a bare loop, memory over 10^6 rows, thresholds: ``python -m benchmarks.sketch``.

The bare loop draws the same normals from the same stream and does the same multiplications, on rows that need no
care: no bounds, no counting, no compensation. A second peer draws numba's own (not cryptographic) normals.
"""

import argparse
import math
import os
import tracemalloc

import numpy as np

from benchmarks.memory import resident
from benchmarks.timing import compare
from murk._internal.jit import jit
from murk.privacy import ApproxDP, GaussMixMechanism, SketchAccumulator
from murk.privacy.central import joint_settings, smallest_threshold
from murk.privacy.central.kernels import ROWS, Room, normals
from murk.privacy.noise import SecureNoise
from reproductions.gaussmix.baselines import sheffet_threshold


@jit
def bare_part(rows, key, first, mixtures, moments, words, counter, spare, drawn):
    for start in range(0, rows.shape[0], ROWS):
        count = min(ROWS, rows.shape[0] - start)
        normals(key, first + start, start, words, counter, spare, drawn[:count])
        for r in range(count):
            for a in range(rows.shape[1]):
                z = rows[start + r, a]
                for j in range(drawn.shape[1]):
                    mixtures[a, j] += z * drawn[r, j]
                for b in range(a, rows.shape[1]):
                    moments[a, b] += z * rows[start + r, b]


def bare(rows, key, mixtures, moments, room, drawn):
    for start in range(0, len(rows), room.rows):
        part = rows[start : start + room.rows]
        room.fill(key, start, len(part))
        bare_part(part, key, start, mixtures, moments, room.words, room.counter, room.spare, drawn)


@jit
def insecure(rows, mixtures, moments, drawn):
    for i in range(rows.shape[0]):
        for j in range(drawn.shape[0]):
            drawn[j] = np.random.standard_normal()
        for a in range(rows.shape[1]):
            z = rows[i, a]
            for j in range(drawn.shape[0]):
                mixtures[a, j] += z * drawn[j]
            for b in range(a, rows.shape[1]):
                moments[a, b] += z * rows[i, b]


def settings(k, d):
    return GaussMixMechanism.calibrate(
        ApproxDP(1.0, 1e-5), rows=k, columns=d, feature_bound=math.sqrt(d - 1), target_bound=1.0
    )


def speed(rounds):
    print("| k | columns | rows/s | ns per normal | bare loop: ns | ratio | numba's own normals: ns | ratio |")
    print("|---|---|---|---|---|---|---|---|")
    for k, d in ((100, 3), (100, 11), (400, 11), (400, 51), (1000, 21), (16, 3)):
        n = max(2000, 4_000_000 // (k * d))
        rows = np.random.default_rng(0).uniform(-1, 1, size=(n, d))
        accumulator = SketchAccumulator(settings(k, d), SecureNoise())
        key, room = np.arange(8, dtype=np.uint32), Room.for_entries(k)
        sums, drawn = (np.zeros((d, k)), np.zeros((d, d))), np.zeros((ROWS, k))

        def ours():
            accumulator.add_block(rows)  # noqa: B023

        def plain():
            bare(rows, key, *sums, room, drawn)  # noqa: B023

        def own():
            insecure(rows, *sums, drawn[0])  # noqa: B023

        mine, other, ratio = compare(ours, plain, rounds)
        _, third, against = compare(ours, own, rounds)
        per = 1e9 / (n * k)
        print(
            f"| {k} | {d} | {n / mine:,.0f} | {mine * per:.1f} | {other * per:.1f} | {ratio:.2f} | "
            f"{third * per:.1f} | {against:.2f} |", flush=True,
        )  # fmt: skip


def memory(n):
    accumulator = SketchAccumulator(settings(100, 11), SecureNoise())
    block = np.random.default_rng(0).uniform(-1, 1, size=(10_000, 11))
    accumulator.add_block(block)
    tracemalloc.start()
    start = tracemalloc.get_traced_memory()[0]
    print("\n| rows | resident memory (MiB) | traced since the first 10,000 (bytes) |")
    print("|---|---|---|")
    marks = [2 * 10**4, 10**5, 2 * 10**5, 5 * 10**5, 10**6]
    while accumulator.records < n:
        accumulator.add_block(block)
        if accumulator.records in marks:
            traced = tracemalloc.get_traced_memory()[0] - start
            print(f"| {accumulator.records:,} | {resident():.1f} | {traced:,} |", flush=True)
    tracemalloc.stop()
    sketch = accumulator.release()
    print(f"\nreleased: {sketch.integers.nbytes:,} bytes for {sketch.records:,} rows (process {os.getpid()})")


def thresholds():
    print(
        "\nThresholds g at delta = 1e-5, for zero-out (replace-one) neighbours; needs: g + eta tau, the eigenvalue\n"
        "with which a sketch does without noise\n"
    )
    print("| k | epsilon | mixing | linear-mixing | needs | joint analysis | needs | Sheffet |")
    print("|---|---|---|---|---|---|---|---|")
    tau = math.sqrt(2 * math.log(3e5))
    for k in (50, 100, 400, 1000):
        for epsilon in (0.1, 1.0, 3.0):
            cells = []
            for neighbours in ("zero-out", "replace-one"):
                plain = smallest_threshold(epsilon, 1e-5, k, "mixing", neighbours)
                linear = smallest_threshold(epsilon, 1e-5, k, "linear-mixing", neighbours)
                g, eta, late = joint_settings(epsilon, 1e-5, k, neighbours)
                cells.append((plain, linear, linear * (1 + tau / math.sqrt(k)), g, g + eta * late))
            figures = " | ".join(f"{one:.2f} ({other:.2f})" for one, other in zip(*cells, strict=True))
            print(f"| {k} | {epsilon:g} | {figures} | {sheffet_threshold(epsilon, 1e-5, k):.1f} |")


def main(argv):
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=10**6, help="rows for the memory table")
    parser.add_argument("--rounds", type=int, default=7, help="pairs of timings for each ratio")
    arguments = parser.parse_args(argv)
    speed(arguments.rounds)
    memory(arguments.rows)
    thresholds()


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
