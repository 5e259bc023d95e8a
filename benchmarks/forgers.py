"""What forged releases do, beside the bound that reports state: ``python -m benchmarks.forgers``.

An optimising forger knows everything but the noise still to come: everybody's answers, the state, the estimate. They
write m releases, each as long as is admitted, of the level, the query and the model of their choice. For each
protocol the attack finds how the estimate responds to a release in each direction, points all m along the worst one for
each coefficient, either way, and keeps the worst of many such attacks. Printed are, for m of 0.1% and 1% of the
releases: how far the estimate was moved, in half widths as they were without forgers; how wide the narrowest and widest
interval became of what it was; the bound that the estimate without forgers states of m, in half widths; and how far the
estimate was moved as a share of the bound that itself states of m, which must not exceed 1 (0 where it states that
there is none). ``--people`` for more of them.
"""

import argparse
import copy
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from murk.errors import DataWarning
from murk.inference.poisoning import longest
from murk.learners import IWPSGDClassifier, LDPSGDClassifier, PublicGLMRegressor, ScoreClassifier
from murk.privacy import GaussianDP
from murk.privacy.noise import SimulatedNoise
from murk.protocols.device import device_for
from murk.protocols.linear_algebra import flattened
from murk.protocols.scores.engine import merged_of
from murk.protocols.scores.sums import Tally, step_of
from murk.stream.wire.releases import ExampleRelease, GradientRelease
from murk.task.task import Task

SHARES = (0.001, 0.01)
NAMES = ["a", "b"]
TRUTH = np.array([0.8, -0.6, 0.3])
_FIELDS = {"id": "0" * 32, "partition": 0, "time": 86_400, "expires": 2**40, "task": "f" * 64}


@dataclass(frozen=True)
class World:
    """An honest estimate, and what m forged releases make of it.

    Parameters
    ----------
    name
        The protocol.
    honest
        The estimate without forgers.
    attacks
        Estimates with m forged releases among them, of the attacks that are tried.
    """

    name: str
    honest: object
    attacks: Callable[[int], Iterator[object]]


def people(n, rng, truth=TRUTH):
    """Coded features and binary targets."""
    X = np.clip(rng.normal(size=(n, len(truth) - 1)) * 0.5, -1.0, 1.0)
    return X, (rng.random(n) < 1.0 / (1.0 + np.exp(-(X @ truth[:-1] + truth[-1])))).astype(int)


def worst_directions(response):
    """Unit vectors along which each coefficient moves fastest, of responses (p, d), both ways."""
    for row in response:
        length = np.linalg.norm(row)
        if length > 0.0 and np.isfinite(length):
            yield row / length
            yield -row / length


# Scores


def symmetric(p):
    """A basis of the symmetric matrices."""
    for i in range(p):
        for j in range(i + 1):
            matrix = np.zeros((p, p))
            matrix[i, j] = matrix[j, i] = 1.0
            yield matrix


class ScoreForger:
    """Forged answers among those of a learner, at any of its models."""

    def __init__(self, model):
        engine = model._require()
        self.partition, self.settings, self.mechanisms = engine.now, engine.settings, dict(engine.mechanisms)
        self.honest = self.estimate(self.partition)

    def estimate(self, partition):
        """The estimate of a partition."""
        return merged_of(self.settings, [(partition, self.mechanisms)])

    def among(self, query, level, places, direction, m):
        """The partition with m answers in a coded direction, spread over rounds as honest ones are."""
        rounds = list(self.partition.rounds)
        mechanism = self.mechanisms[level].mechanism(query)
        known = [sum(t.count for (_, q), t in rounds[k].tallies.items() if q == query) for k in places]
        edges = np.rint(np.cumsum([0, *known]) / sum(known) * m).astype(int)
        for k, count in zip(places, np.diff(edges).tolist(), strict=True):
            W = rounds[k].model.transform
            vector = W @ direction if direction.ndim == 1 else flattened(W @ direction @ W.T)
            scale = longest(mechanism) / np.linalg.norm(vector) / step_of(mechanism)
            payload = np.trunc(vector * scale * (1.0 - 1e-9))
            if count:
                rounds[k] = rounds[k].joined(level, query, Tally(count, [int(count * v) for v in payload]))
        return replace(self.partition, count=self.partition.count + m, rounds=tuple(rounds))

    def attacks(self, m):
        """Estimates with m forged answers to each query, spread over all rounds or in one."""
        p = self.settings.features
        for level in self.mechanisms:
            for query in ("score", "scatter", "curvature"):
                places = [
                    k for k, round_ in enumerate(self.partition.rounds)
                    if any(own == query for _, own in round_.tallies)
                ]  # fmt: skip
                if not places:
                    continue
                basis = list(np.eye(p)) if query == "score" else list(symmetric(p))
                few = max(m // 10, 1)
                response = np.array(
                    [
                        self.estimate(self.among(query, level, places, sign * one, few)).values * sign
                        for one in basis
                        for sign in (1.0, -1.0)
                    ]
                )
                response = (response[0::2] + response[1::2]).T
                for way in worst_directions(response):
                    direction = np.tensordot(way, np.array(basis), 1)
                    for where in [places, places[:1], places[-1:]]:
                        yield self.estimate(self.among(query, level, where, direction, m))


def scores(n, seed, *, public=False, levels=None, truth=TRUTH, mu=1.0):
    """Scores, with public rows or without."""
    rng = np.random.default_rng(seed)
    X, y = people(n, rng, truth)
    names = [f"x{j}" for j in range(len(truth) - 1)]
    more = {"public": people(1000, rng, truth)[0]} if public else {}
    if levels:
        more["levels"] = {name: GaussianDP(each) for name, each in levels.items()}
    model = ScoreClassifier(guarantee=GaussianDP(mu), features=names, seed=seed, **more)
    model.learn_many(X, y)
    forger = ScoreForger(model)
    name = "scores" + (", public rows" if public else "") + (", two levels" if levels else "")
    return World(name, forger.honest, forger.attacks)


# Releases that are summed


def directions_of(d, rng, number):
    """Directions of d numbers: axes, and at random."""
    for axis in np.eye(d):
        yield axis
        yield -axis
    for way in rng.normal(size=(number, d)):
        yield way / np.linalg.norm(way)


def moments(n, seed, *, number=20):
    """Released second moments, a line fitted."""
    rng = np.random.default_rng(seed)
    X, y = people(n, rng)
    model = PublicGLMRegressor(guarantee=GaussianDP(2.0), features=NAMES, seed=seed)
    model.learn_many(X, 2.0 * y - 1.0)
    engine = model._require()
    mechanism = engine.mechanisms["default"]
    length, size = longest(mechanism) / mechanism.unit * (1.0 - 1e-9), engine.dimension

    def forged(way, m):
        found = copy.deepcopy(engine)
        payload = np.trunc(way * length).astype(np.int64)
        assert engine.admission._payload_bounds["default"].holds(payload.tolist())
        found.learn_payloads(np.tile(payload, (m, 1)), "default")
        return found.estimate()

    def attacks(m):
        few = max(m // 10, 1)
        response = np.array([forged(axis, few).values - forged(-axis, few).values for axis in np.eye(size)]).T
        for way in [*worst_directions(response), *directions_of(size, rng, number)]:
            yield forged(way, m)

    return World("moments", engine.estimate(), attacks)


def examples(n, seed, *, number=60):
    """Released directions of examples."""
    rng = np.random.default_rng(seed)
    X, y = people(n, rng)
    model = IWPSGDClassifier(guarantee=GaussianDP(2.0), features=NAMES, seed=seed)
    model.learn_many(X, y)
    engine = model._require()
    mechanism = engine.mechanisms["default"]
    length = longest(mechanism) / mechanism.unit

    def forged(way, m):
        found, payload = copy.deepcopy(engine), np.trunc(way * length).astype(int)
        # The longest of this direction that is learned: what is refused is counted.
        for shorter in np.linspace(1.0, 0.5, 11):
            release = ExampleRelease(payload=[int(v * shorter) for v in payload], level="default", **_FIELDS)
            if not engine.admits([release]):
                continue
            tried = copy.deepcopy(engine)
            tried.learn_releases([release])
            if tried.refused_updates == engine.refused_updates:
                found.learn_releases([release] * m)
                break
        return found.estimate()

    def attacks(m):
        for way in directions_of(engine.dimension, rng, number):
            yield forged(way, m)

    return World("examples", engine.estimate(), attacks)


# Gradients: honest ones answer at the iterates that forged ones have moved


def gradients(n, seed, *, public=True, blocks=20):
    """Gradients, forged in equal parts, all before anybody else's, all early, or all late."""
    rng = np.random.default_rng(seed)
    X, y = people(n, rng)
    more = {"public": people(1000, rng)[0]} if public else {}

    def learned(way, m, when):
        model = LDPSGDClassifier(guarantee=GaussianDP(2.0), features=NAMES, seed=seed, **more)
        edges = np.linspace(0, n, blocks + 1).astype(int)
        at = np.eye(blocks)
        shares = {"evenly": np.full(blocks, 1.0 / blocks), "first": at[0], "early": at[1], "last": at[-1]}[when]
        parts = np.diff(np.rint(np.cumsum(np.r_[0.0, shares]) * m).astype(int))
        engine = model._require()
        mechanism = engine.mechanisms["default"]
        payload = np.trunc(way * longest(mechanism) / mechanism.unit * (1.0 - 1e-9)).astype(int).tolist()
        for start, stop, forged in zip(edges, edges[1:], parts.tolist(), strict=False):
            for _ in range(forged):
                version, _ = engine.published()
                release = GradientRelease(payload=payload, version=version, level="default", **_FIELDS)
                engine.admit(release)
                engine.learn_releases([release])
            model.learn_many(X[start:stop], y[start:stop])
        return model._require().estimate()

    honest = learned(np.zeros(3), 0, "last")

    def attacks(m):
        response = np.array([learned(axis, m, "evenly").values - honest.values for axis in np.eye(3)]).T
        for way in [*worst_directions(response), *np.eye(3)]:
            for when in ("evenly", "first", "early", "last"):
                yield learned(way, m, when)

    return World("gradients" + (", public rows" if public else ""), honest, attacks)


# Organisations


_SKETCH = """
name: forgers
features: [{name: a, low: -1, high: 1}, {name: b, low: -1, high: 1}]
target: {name: y, kind: real, low: -1, high: 1}
protocol: summaries
summaries: {window: 200}
privacy: {guarantee: {gdp: {mu: 2.0}}}
"""


def sketches(organisations, seed):
    """Second moments of organisations, some of whom invent all of their records."""
    rng = np.random.default_rng(seed)
    device = device_for(Task.parse(_SKETCH))
    engine = device.engine()

    def window(engine, rows, number):
        accumulator = device.accumulator("default", SimulatedNoise(seed), number)
        accumulator.add_block(rows)
        engine.learn_window(accumulator.release())

    for number in range(organisations):
        X, y = people(200, rng)
        window(engine, device.records(np.c_[X, np.ones(200)], 2.0 * y - 1.0), number)

    def attacks(m):
        for a in (-1.0, 1.0):
            for b in (-1.0, 1.0):
                for y in (-1.0, 1.0):
                    found = copy.deepcopy(engine)
                    for number in range(m):
                        window(found, np.tile([a, b, 1.0, y], (200, 1)), organisations + number)
                    yield found.estimate()

    return World("sketch", engine.estimate(), attacks)


def worst(world, m):
    """The worst of all attacks with m forged releases.

    Returns
    -------
    How far it moved a coefficient in honest half widths; the narrowest and the widest interval in terms of honest ones;
    how far as a share of the bound that the forged estimate states; and the bound that the honest estimate states, in
    half widths.
    """
    honest, halves = world.honest.values, world.honest.half_widths()
    far, share, widths = 0.0, 0.0, [1.0]
    # Where there is no interval there is nothing to compare with.
    known = np.isfinite(halves)
    for forged in world.attacks(m):
        moved, bound = np.abs(forged.values - honest), forged.moved(m)
        far = max([far, *(moved[known] / halves[known])])
        widths += (forged.half_widths()[known] / halves[known]).tolist()
        share = max(share, float(np.max(np.where(np.isfinite(bound), moved / bound, 0.0))))
    stated = max([0.0, *(world.honest.moved(m)[known] / halves[known])])
    return far, min(widths), max(widths), share, stated


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--people", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help="worlds whose name holds this")
    chosen = parser.parse_args(argv)
    n, seed = chosen.people, chosen.seed
    made = {
        "scores": lambda: scores(n, seed),
        "scores, public rows": lambda: scores(n, seed, public=True),
        "gradients, public rows": lambda: gradients(n, seed),
        "gradients": lambda: gradients(n, seed, public=False),
        "examples": lambda: examples(n, seed),
        "moments": lambda: moments(n, seed),
        "sketch": lambda: sketches(1000, seed),
    }
    columns = ("", "forged", "moved", "narrowest", "widest", "stated", "moved of stated")
    print("{:24} {:>8} {:>8} {:>10} {:>8} {:>8} {:>16}".format(*columns))
    for name, make in made.items():
        if chosen.only and chosen.only not in name:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataWarning)
            world = make()
            for share in SHARES:
                m = max(round(share * world.honest.releases_used), 1)
                far, narrow, wide, most, stated = worst(world, m)
                print(f"{name:24} {m:8,} {far:8.2f} {narrow:10.2f} {wide:8.1f} {stated:8.1f} {most:16.2f}", flush=True)


if __name__ == "__main__":
    main()
