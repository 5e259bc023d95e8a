"""How often a watched interval ever excludes the truth: ``python -m benchmarks.always``.

Each stream is looked at again and again. The table has the share of (stream, coefficient) pairs in which the confidence
sequence ever excludes the truth, beside the fixed 95% interval looked at as often, and at the last look alone.

- *walk*: a normal random walk, the limit of every protocol; *walk, noise changes*: with 16 times the variance from a
  tenth of the stream on, while sequences count releases.
- *A/B*: shares of two arms from randomized response, looked at after every release.
- protocols: their own engines and estimators. Scores learn from sums of simulated releases (as `murk plan`), moments
  from simulated sums, the others from every release. Generated people have a typical design; examples, moments and
  sketches have a real target, so that the model is right. *Predictions* are of a dozen of these people.
- *mothers*: the demonstration's people in random orders, who answer scores; the truth is the fit to all their records.
- *first*: looks from 10 releases on (an organisation's 2,000 records) at two groups without a difference, of shares
  50, 10 or 3% and a rate of 50, 5, 2 or .5%, or amounts of a skewed law as real targets; *missing*: a fifth of the
  targets is. ``--groups`` and ``--rates`` choose among them. A second table has the coefficients' sequences, the
  contrast's effect, e-values of 20 or more, and the median number of releases at the first interval.

``--streams`` for more streams, ``--only`` for rows whose name contains a text, ``--last`` for longer ones of *first*.
"""

import argparse
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from benchmarks.mothers import raw
from benchmarks.pipe import learn
from benchmarks.score_people import answer
from benchmarks.scores import bare, weeks, weighted_fit
from murk import Task
from murk.demo import TASK as DEMO
from murk.inference.average_effects import combined_half_widths
from murk.inference.confidence_sequences import Looks, critical_values
from murk.inference.contrasts import contrasts
from murk.privacy import SimulatedNoise
from murk.protocols.device import device_for, part
from murk.protocols.examples.engine import engine_of
from murk.protocols.examples.losses import LOGIT_WIDTH
from murk.protocols.moments import kernels
from murk.protocols.moments.estimate import fit
from murk.protocols.moments.mechanisms import Level
from murk.protocols.moments.sums import MomentSums
from murk.protocols.population import Effects, Records, designs, released_sum, split

Look = tuple[int, np.ndarray, np.ndarray, np.ndarray]  # releases, |estimate - truth|, sequence's and fixed half-widths

FIXED = 1.959963984540054
BINARY = "target: {name: y, kind: binary, positive: yes, negative: no, rate: 0.4}"
REAL = "target: {name: y, kind: real, low: 0, high: 10}"
HEAD = """
name: watched
features: [{name: a, low: 0, high: 10}, {name: b, categories: [p, q, r]}]
"""
LEVELS = "  levels: {strict: {gdp: {mu: 1.0}}, open: {gdp: {mu: 4.0}}}\n"
APPROX = "{epsilon: 1.0, delta: 1.0e-6}"
MU = "privacy:\n  guarantee: {gdp: {mu: 2.0}}\n"
# Name: target and privacy, first and last look, tightest_at, levels of the later part of the stream.
TASKS = {
    "scores": (f"{BINARY}\n{MU}", 4_000, 10_000_000),
    "scores, predictions": (f"{BINARY}\n{MU}", 4_000, 10_000_000),
    "scores, public rows": (f"{BINARY}\n{MU}public: {{set_aside: 2000}}\n", 4_000, 10_000_000),
    "scores, real target": (f"{REAL}\n{MU}", 4_000, 10_000_000),
    "scores, 4 partitions": (
        f"{BINARY}\n{MU}scores: {{models: per-partition}}\nlog: {{partitions: 4}}\n",
        8_000,
        10_000_000,
    ),
    "scores, levels change": (f"{BINARY}\n{MU}{LEVELS}", 4_000, 10_000_000),
    "moments": (f"{REAL}\nprotocol: moments\n{MU}", 4_000, 10_000_000),
    "examples": (f"{REAL}\nprotocol: examples\n{MU}", 2_000, 60_000),
    "gradients, public rows": (f"{BINARY}\nprotocol: gradients\n{MU}public: {{set_aside: 2000}}\n", 4_000, 60_000),
    "summaries": (f"{REAL}\nprotocol: summaries\nprivacy: {{guarantee: {{approx: {APPROX}}}}}\n", 10_000, 500_000),
}
MOTHERS = {"mothers, third child": bare, "mothers, weeks worked": weeks}
TIGHTEST_AT = {"examples": 10_000, "gradients, public rows": 10_000}
WINDOW = 2_000  # records in an organisation's window


def grid(first: int, last: int, looks: int) -> list[int]:
    return sorted({round(n) for n in np.geomspace(first, last, looks)})


def population(task: Task):
    """Typical people, and the truth in coded units."""
    people = designs(task, Effects())[0]
    return people, people.theta


def engine_looks(
    name: str, task: Task, counts: list[int], rng: np.random.Generator, people
) -> Iterator[tuple[int, object]]:
    """Yield estimates of one stream after these numbers of releases."""
    if task.public is not None:
        drawn = rng.multinomial(task.public.set_aside, people.shares)
        task = task.with_public(people.points[drawn > 0], drawn[drawn > 0])
    device, records = device_for(task), people.records
    if task.protocol == "scores":
        shares = {level: 1.0 / len(device.mechanisms) for level in device.mechanisms}
        partitions = task.log.partitions
        if "change" in name:
            shares = {"default": 1.0}
        forecast = part("scores", "forecast").estimates
        steps = forecast(device, records, counts, shares, partitions, rng)
        for releases, step in zip(counts, steps, strict=True):
            if "change" in name and releases > math.sqrt(counts[0] * counts[-1]):
                # A dictionary that the forecast reads at each step: from the middle on, everybody is strict.
                shares.clear()
                shares["strict"] = 1.0
            yield releases, step()
        return
    if task.protocol == "moments":
        yield from moment_looks(device, records, counts, rng)
        return
    if task.protocol == "summaries":
        yield from sketch_looks(device, records, counts, rng)
        return
    seeds = np.random.default_rng(rng.integers(2**63))
    done, engine = 0, device.engine()
    if task.protocol == "examples":
        engine = engine_of(device.settings, device.mechanisms, seed=int(rng.integers(2**63)))
        if device.settings.cells is None:
            engine.covariates = device.covariates
    for releases in counts:
        drawn = rng.choice(len(records.shares), size=releases - done, p=records.shares)
        X, y = records.X[drawn], records.y[drawn]
        if task.protocol == "gradients":
            learn(device, X, y, np.zeros(len(X), dtype=np.int64), seed=int(seeds.integers(2**63)), engine=engine)
        else:
            engine.learn_records(X, y, [device.mechanisms["default"]])
        done = releases
        yield releases, device.estimate([engine])


def moment_looks(device, records, counts, rng):
    """Estimates from sums of moments that grow by the sums of further people."""
    layout, V = device.layout, device.vectors(records.X, records.y)
    parts = [layout.cross, layout.dimension - layout.cross]
    total, sums, done = np.zeros(layout.dimension), np.zeros(kernels.SUMS), 0
    for releases in counts:
        for name, size in split(releases - done, {"default": 1.0}).items():
            level = Level.of(device.mechanisms[name], layout)
            weights, variances, drawn = np.array(level.weights), np.array(level.variances), records.drawn(size, rng)
            if layout.observed:
                released = released_sum(device.mechanisms[name], V, drawn, rng)
            else:
                released = drawn @ V + np.sqrt(size * np.repeat(variances, parts)) * rng.normal(size=layout.dimension)
            total = total + np.repeat(weights, parts) * released
            for place in (0, 1):
                sums[kernels.WEIGHTS + place] += size * weights[place]
                sums[kernels.NOISE + place] += size * weights[place] ** 2 * variances[place]
                sums[kernels.SQUARES + place] += size * weights[place] ** 2
        done = releases
        yield releases, fit(device.model, MomentSums(total.copy(), sums.copy(), releases), layout).estimate


def sketch_looks(device, records, counts, rng):
    """Estimates from equal windows of an organisation's records."""
    engine, done, noise = device.engine(), 0, SimulatedNoise(int(rng.integers(2**63)))
    for releases in counts:
        while done < releases:
            drawn = rng.choice(len(records.shares), size=WINDOW, p=records.shares)
            window = device.accumulator("default", noise, done // WINDOW)
            window.add_block(np.column_stack([records.X[drawn], records.y[drawn]]))
            engine.learn_window(window.release())
            done += WINDOW
        yield done, engine.estimate()


def mothers_stream(name: str, looks: int, rng: np.random.Generator) -> Iterator[Look]:
    """The demonstration's people in an order of chance, against the fit to their records with the same weights."""
    task = Task.parse(MOTHERS[name](DEMO.read_text())).with_simulated(True)
    X, y = raw(task)
    points, counts = np.unique(np.column_stack([X, y]), axis=0, return_counts=True)
    order, engine, done = rng.permutation(len(X)), device_for(task).engine(), 0
    for releases in grid(4_000, len(X), looks):
        answer(engine, X[order[done:releases]], y[order[done:releases]], rng)
        done, estimate = releases, engine.estimate()
        truth = weighted_fit(points[:, :-1], points[:, -1], estimate.solution.newest, "third" in name, False, counts)
        watched = Looks("always-valid", 100_000, releases)
        yield (
            releases,
            np.abs(estimate.values / estimate.unit - truth),
            *(estimate.half_widths(level) / estimate.unit for level in (watched.nominal(0.95), 0.95)),
        )


def protocol_stream(name: str, looks: int, rng: np.random.Generator) -> Iterator[Look]:
    if name in MOTHERS:
        yield from mothers_stream(name, looks, rng)
        return
    text, first, last = TASKS[name]
    task = Task.parse(HEAD + text).with_simulated(True)
    people, truth = population(task)
    weights = np.eye(len(truth))
    if "predictions" in name:
        weights = people.points[np.linspace(0, len(people.points) - 1, 12).astype(int)]
    for releases, estimate in engine_looks(name, task, grid(first, last, looks), rng, people):
        watched = Looks("always-valid", TIGHTEST_AT.get(name, 100_000), releases)
        sequence, fixed = (
            combined_half_widths(estimate, weights, level) for level in (watched.nominal(0.95), 0.95)
        )  # fmt: skip
        yield releases, np.abs(weights @ (estimate.values - truth)), sequence, fixed


def protocol_row(name: str, streams: int, looks: int, seed: int) -> tuple[float, float, float, float, int, float]:
    ever, fixed_ever, last, ratios, learned = [], [], [], [], 0
    for stream in range(streams):
        wrong = fixed_wrong = None
        for _, off, sequence, fixed in protocol_stream(name, looks, np.random.default_rng([seed, stream])):
            wrong = (off > sequence) if wrong is None else wrong | (off > sequence)
            fixed_wrong = (off > fixed) if fixed_wrong is None else fixed_wrong | (off > fixed)
            final, widths = off > fixed, (sequence, fixed)
        ever.append(wrong), fixed_ever.append(fixed_wrong), last.append(final)
        known = np.isfinite(widths[0])
        learned += int(known.sum())
        ratios += (widths[0][known] / widths[1][known]).tolist()
    error = math.sqrt(np.mean(ever, axis=1).var() / streams)
    return np.mean(ever), np.mean(fixed_ever), np.mean(last), float(np.median(ratios)), looks, error


TWO = """
name: watched
features: [{name: arm, categories: [a, b]}]
contrasts: [{feature: arm, category: b, against: a}]
intervals: {tightest_at: 5000}
"""
RATE = "target: {name: y, kind: binary, positive: yes, negative: no}\n"
AMOUNT = "target: {name: y, kind: real, low: 0, high: 100}\n"
PURE, NORMAL = "privacy: {guarantee: {pure: {epsilon: 6.0}}}\n", "privacy: {guarantee: {gdp: {mu: 8.0}}}\n"


def examples(release: str, loss: str, target: str = RATE, grid: str = "") -> str:
    privacy = PURE if release == "cells" else NORMAL
    return f"{target}protocol: examples\nexamples: {{release: {release}, loss: {loss}{grid}}}\n{privacy}"


FIRST = {
    **{f"cells {loss}": examples("cells", loss) for loss in ("quadratic", "log", "exponential", "probit")},
    "cells quadratic, missing": examples("cells", "quadratic"),
    "cells squared": examples("cells", "squared", AMOUNT, ", grid: 5"),
    **{f"joint {loss}": examples("joint", loss) for loss in ("quadratic", "log", "exponential", "probit")},
    **{f"separate {loss}": examples("separate", loss) for loss in ("quadratic", "log", "exponential", "probit")},
    **{f"{release} quadratic": examples(release, "quadratic") for release in ("outer", "directions")},
    **{f"{release} squared": examples(release, "squared", AMOUNT) for release in ("joint", "separate", "outer")},
    "scores": f"{RATE}{NORMAL}",
    "scores, missing": f"{RATE}{NORMAL}",
    "scores, amounts": f"{AMOUNT}{NORMAL}",
    "moments": f"{AMOUNT}protocol: moments\n{NORMAL}",
    "moments, missing": f"{AMOUNT}protocol: moments\n{NORMAL}",
    "gradients, public rows": f"{RATE}protocol: gradients\npublic: {{set_aside: 2000}}\n{NORMAL}",
    "summaries": f"{AMOUNT}protocol: summaries\nprivacy: {{guarantee: {{approx: {APPROX}}}}}\n",
}
_AMOUNTS = 200


@dataclass(frozen=True)
class Groups:
    """Two groups with the same law of the target."""

    points: np.ndarray
    shares: np.ndarray
    records: Records

    @classmethod
    def of(cls, task: Task, rare: float, rate: float, missing: float) -> tuple["Groups", float]:
        """Return the groups, and the law's mean or, for a binary target, its rate."""
        points, shares = np.array([[-1.0, 1.0], [1.0, 1.0]]), np.array([1.0 - rare, rare])
        values, law = np.array([0.0, 1.0]), np.array([1.0 - rate, rate])
        if task.target.kind == "real":
            middles = [NormalDist().inv_cdf((i + 0.5) / _AMOUNTS) for i in range(_AMOUNTS)]
            values, law = (
                np.minimum(np.exp(1.0 + np.array(middles)), 100.0) / 50.0 - 1.0,
                np.full(_AMOUNTS, 1 / _AMOUNTS),
            )
        y = np.append(values, math.nan)
        each = np.outer(shares, np.append((1.0 - missing) * law, missing)).ravel()
        records = Records(np.repeat(points, len(y), axis=0), np.tile(y, 2), each)
        if not missing:
            known = ~np.isnan(records.y)
            records = Records(records.X[known], records.y[known], each[known])
        return cls(points, shares, records), float(values @ law)


def first_truth(text: str, task: Task, mean: float) -> float:
    """Return the constant of the model that two groups of the same mean or rate have, in coded units."""
    if task.target.kind == "real":
        return mean
    loss = next((loss for loss in ("quadratic", "exponential", "probit") if f"loss: {loss}" in text), "log")
    odds = math.log(mean / (1.0 - mean))
    normal = math.sqrt(LOGIT_WIDTH) * NormalDist().inv_cdf(mean)
    return {"quadratic": 2.0 * mean - 1.0, "exponential": odds / 2.0, "probit": normal, "log": odds}[loss]


def first_row(name: str, rare: float, rate: float, streams: int, looks: int, last: int) -> tuple[float, ...]:
    text = FIRST[name]
    task = Task.parse(TWO + text).with_simulated(True)
    people, mean = Groups.of(task, rare, rate, 0.2 if "missing" in name else 0.0)
    truth = np.array([0.0, first_truth(text, task, mean)])
    ever, effect, alarm, begins = [], [], [], []
    for stream in range(streams):
        rng, wrong, off, most, begin = np.random.default_rng([7, stream]), np.zeros(2, bool), False, 0.0, math.inf
        for releases, estimate in engine_looks(name, task, grid(10, last, looks), rng, people):
            watched = Looks("always-valid", task.tightest_at, releases)
            halves = estimate.half_widths(watched.nominal(0.95))
            wrong |= np.abs(estimate.values - truth) > halves
            begin = min(begin, releases) if np.isfinite(halves).any() else begin
            contrast = contrasts(task, estimate, watched)[0]
            low, high = contrast.average_effect_interval or (-math.inf, math.inf)
            off, most = off or not low <= 0.0 <= high, max(most, contrast.e_value or 0.0)
        ever.append(wrong), effect.append(off), alarm.append(most >= 20.0), begins.append(begin)
    shares = [float(np.mean(each)) for each in (np.array(ever)[:, 0], np.array(ever)[:, 1], effect, alarm)]
    return *shares, float(np.median(begins))


def first_table(given: argparse.Namespace) -> None:
    print("| first look | groups | rate | difference | constant | effect | e-values | first interval |")
    print("|---|---|---|---|---|---|---|---|")
    for name, text in FIRST.items():
        if given.only not in (None, "first") and given.only.removeprefix("first: ") not in name:
            continue
        for rare in given.groups:
            for rate in given.rates if RATE in text else given.rates[:1]:
                begin = time.process_time()
                *shares, first = first_row(name, rare, rate, given.streams, given.looks, given.last)
                cells = " | ".join(f"{share:.1%}" for share in shares)
                law = f"{100 * rate:g}%" if RATE in text else "amounts"
                print(
                    f"| {name} | {100 * (1 - rare):g}/{100 * rare:g} | {law} | {cells} | {first:,.0f} |"
                    f" <!-- {time.process_time() - begin:.0f} s CPU -->", flush=True,
                )  # fmt: skip


def walk_row(
    streams: int, looks: int, seed: int, counted: Callable[[np.ndarray], np.ndarray]
) -> tuple[float, float, float, float, int, float]:
    """Looks at a walk from 100 to 10^7 releases, with N = 10^5; ``counted`` turns information into releases."""
    information = np.geomspace(1e-3, 100.0, looks)
    most = critical_values(counted(information))
    steps, rng = np.sqrt(np.diff(information, prepend=0.0)), np.random.default_rng(seed)
    wrong = fixed = last = done = 0
    while done < streams:
        size = min(50, streams - done)
        walk = np.cumsum(rng.standard_normal((size, looks)) * steps, axis=1)
        z = np.abs(walk) / np.sqrt(information)
        wrong, fixed = wrong + (z > most).any(axis=1).sum(), fixed + (z > FIXED).any(axis=1).sum()
        last, done = last + (z[:, -1] > FIXED).sum(), done + size
    share = wrong / streams
    return share, fixed / streams, last / streams, most[-1] / FIXED, looks, math.sqrt(share * (1 - share) / streams)


def arms_row(streams: int, people: int, seed: int) -> tuple[float, float, float, float, int, float]:
    """Difference of two arms' shares from randomized response (epsilon = 1), looked at after every release from 500."""
    keep, share, first = math.e / (1.0 + math.e), 0.3, 500
    rng, at = np.random.default_rng(seed), np.arange(first, people + 1)
    most = critical_values(at / 20_000)
    wrong = fixed = last = 0
    for _ in range(streams):
        arm, truth = rng.random(people) < 0.5, rng.random(people) < share
        told = np.where(rng.random(people) < keep, truth, ~truth)
        ones = [np.cumsum(told & (arm == which))[first - 1 :] for which in (True, False)]
        sizes = [np.cumsum(arm == which)[first - 1 :] for which in (True, False)]
        p, q = (one / size for one, size in zip(ones, sizes, strict=True))
        z = np.abs(p - q) / np.sqrt(p * (1 - p) / sizes[0] + q * (1 - q) / sizes[1])
        wrong, fixed, last = wrong + (z > most).any(), fixed + (z > FIXED).any(), last + (z[-1] > FIXED)
    rate = wrong / streams
    return rate, fixed / streams, last / streams, most[-1] / FIXED, len(at), math.sqrt(rate * (1 - rate) / streams)


def power(streams: int, seed: int) -> tuple[float, float, float]:
    """When a sequence finds an effect that a fixed test finds with probability 80% after one unit of information.

    Mean and 80% quantile of the information at which it stops, and the share of streams that have stopped at 1.6.
    """
    information, rng = np.linspace(0.002, 8.0, 4_000), np.random.default_rng(seed)
    steps, drift = math.sqrt(information[0]), FIXED + 0.8416
    walk = np.cumsum(rng.standard_normal((streams, len(information))) * steps, axis=1) + drift * information
    beyond = np.abs(walk) / np.sqrt(information) > critical_values(information)
    stopped = np.where(beyond.any(axis=1), information[beyond.argmax(axis=1)], information[-1])
    return float(stopped.mean()), float(np.quantile(stopped, 0.8)), float((stopped <= 1.6).mean())


def rows(streams: int, looks: int) -> dict[str, Callable[[], tuple[float, float, float, float, int, float]]]:
    def noisier(information: np.ndarray) -> np.ndarray:
        return np.where(information < 0.1, information, 0.1 + (information - 0.1) * 16.0)

    made: dict[str, Callable[[], tuple[float, float, float, float, int, float]]] = {
        "walk": lambda: walk_row(2 * streams, 100_000, 1, lambda information: information),
        "walk, noise changes": lambda: walk_row(2 * streams, 100_000, 2, noisier),
        "A/B, every release": lambda: arms_row(2 * streams, 100_000, 3),
    }
    for name in [*TASKS, *MOTHERS]:
        made[name] = lambda name=name: protocol_row(name, max(streams // 4, 2), looks, 4)
    return made


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=400)
    parser.add_argument("--looks", type=int, default=150, help="looks at each stream of a protocol")
    parser.add_argument("--only", help="rows whose name contains this; 'first' or 'first: NAME' for looks from 10 on")
    parser.add_argument("--groups", type=float, nargs="*", default=[0.5, 0.1, 0.03], help="shares of the second group")
    parser.add_argument("--rates", type=float, nargs="*", default=[0.5, 0.05, 0.02, 0.005])
    parser.add_argument("--last", type=int, default=20_000, help="releases of a stream of the second table")
    given = parser.parse_args(argv)
    if given.only is not None and given.only.startswith("first"):
        first_table(given)
        return
    print("| stream | looks | sequence ever excludes the truth | fixed interval ever | at the last look | width |")
    print("|---|---|---|---|---|---|")
    for name, row in rows(given.streams, given.looks).items():
        if given.only is not None and given.only not in name:
            continue
        begin = time.process_time()
        share, fixed, last, width, looks, error = row()
        print(
            f"| {name} | {looks:,} | {share:.1%} ± {error:.1%} | {fixed:.0%} | {last:.1%} | {width:.2f} |"
            f" <!-- {time.process_time() - begin:.0f} s CPU -->", flush=True,
        )  # fmt: skip

    if given.only is None:
        print()
        first_table(given)
        mean, most, within = power(1_000, 5)
        print(
            f"\nAn effect that a fixed test finds with probability 80% at n is found after {mean:.2f} n on average, "
            f"with probability {within:.0%} by 1.6 n and 80% by {most:.1f} n."
        )


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
