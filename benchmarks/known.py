"""Known columns and experiments: ``python -m benchmarks.known [--only NAME] [--replications N]``.

*coverage* runs `murk.run` on people of two known columns, and counts nominal 95% intervals of linear effects and of log
odds that hold, in each cell of a rate, a guarantee and a number of people (an hour with 20 replications). ``--cells``
chooses cells by number. With ``--by kafka``, ``gateway`` or ``web`` the same people release through a broker, the HTTP
gateway or web devices, and states are compared with those of a file; ``--by memory`` leaves out the log.

*mixed* runs it on people of two known columns and two or five private numbers, and compares half-widths with those of
the same people with all columns private (20 minutes with 20 replications).

*alarms* assigns arms at random to streams without an effect and counts the streams in which intervals for every look,
and for one, exclude zero at any look from 50 people on: arms of 50/50 and 90/10, rates of .2 to 30%, skewed amounts, a
drifting rate (5 minutes).

*ratios* counts, in streams with an amount per order, the intervals of the ratio's lift that hold: those for every look
at all looks, with and without an effect, and those for one look at the last one; of arms of 50/50 and 90/10, skewed
amounts and people who come back (15 minutes with 100 replications).

*people* compares, on the demonstration's 254,654 mothers, the half-width of the effect of same_sex with all columns
private, with same_sex and three more columns known, with the difference of two arms' plain randomized responses, and
without privacy, by the mean of several draws.

*experiments* does the same for two public experiments of the package ``causaldata``, of their treatment: an answer to
5,593 letters to politicians, and 2,894 people who came for a result.
"""

import argparse
import csv
import gzip
import math
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pandas as pd

import murk
from benchmarks import paths
from deploy.broker import Broker
from murk import Task
from murk.demo import DATA
from murk.inference.confidence_sequences import Looks
from murk.inference.experiments import experiment
from murk.planning.experiments import false_alarms
from murk.privacy.noise import SimulatedNoise
from murk.protocols.device import device_for

GUARANTEES = {
    "mu .5": "gdp: {mu: 0.5}",
    "mu 1": "gdp: {mu: 1.0}",
    "mu 2": "gdp: {mu: 2.0}",
    "eps 1": "pure: {epsilon: 1.0}",
    "eps 4": "pure: {epsilon: 4.0}",
}
RATES, PEOPLE = (0.02, 0.05, 0.3), (2_000, 10_000, 40_000)
EFFECTS = np.array([0.3, 0.2, 0.2])  # log odds per coded unit: arm, then two of three platforms
PLATFORMS = np.array([0.5, 0.3, 0.2])
TREATED = 0.3

COLUMNS = """
  - {name: arm, categories: [control, treatment], known: true}
  - {name: platform, categories: [web, ios, other], known: true}
"""


def task(guarantee, target, features=COLUMNS, more=""):
    return Task.parse(
        f"name: known\nfeatures:{features}\ntarget: {{name: y, {target}, missing_share: 0}}\n"
        f"privacy: {{guarantee: {{{guarantee}}}}}\n{more}"
    )


BINARY = 'kind: binary, positive: "yes", negative: "no"'


def drawn(rng, count, rate):
    arm, platform = rng.random(count) < TREATED, rng.choice(3, count, p=PLATFORMS)
    codes = np.column_stack([np.where(arm, 1, -1), *(np.where(platform == each, 1, -1) for each in (1, 2))])
    y = rng.random(count) < 1.0 / (1.0 + np.exp(-codes @ EFFECTS - math.log(rate / (1.0 - rate))))
    names = np.array(["web", "ios", "other"])
    return [
        {"arm": ("control", "treatment")[a], "platform": names[p], "y": "yes" if one else "no"}
        for a, p, one in zip(arm.astype(int).tolist(), platform.tolist(), y.tolist(), strict=True)
    ]


def line(rate):
    """Return the best line of the probability, in points per category."""
    cells = [(a, p) for a in (0, 1) for p in range(3)]
    X = np.array([[2 * a - 1, *(1 if p == each else -1 for each in (1, 2)), 1] for a, p in cells])
    shares = np.array([(TREATED if a else 1 - TREATED) * PLATFORMS[p] for a, p in cells])
    chances = 1.0 / (1.0 + np.exp(-X[:, :-1] @ EFFECTS - math.log(rate / (1.0 - rate))))
    return 200.0 * np.linalg.solve((X * shares[:, None]).T @ X, (X * shares[:, None]).T @ chances)[:-1]


PATHS = ["file", "kafka", "gateway", "web", "memory"]
CELLS = [(name, rate, people) for name in GUARANTEES for rate in RATES for people in PEOPLE]


def coverage(replications, by="file", cells=None):
    with ExitStack() as stack:
        given = []
        if by == "kafka":
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            given = [stack.enter_context(Broker(Path(folder) / "kafka")).url]
        elif by == "web":
            given = [int(time.time())]
        learn = getattr(paths, f"by_{by}")
        print(f"{'':2s} {'':6s} {'rate':>5s} {'people':>7s}  linear effects  log odds  not learned   (by {by})")
        for cell in cells or range(1, len(CELLS) + 1):
            _cover(cell, replications, lambda own, rows, seed: learn(own, rows, seed, *given), by)


def _cover(cell, replications, learn, by):
    """Run a cell and print how many intervals hold, and how many states equal those of a file."""
    name, rate, people = CELLS[cell - 1]
    own, truth = task(GUARANTEES[name], f"{BINARY}, rate: {rate}"), line(rate)
    held, odds, unknown, equal = [], [], 0, 0
    for replication in range(replications):
        rows, seed = drawn(np.random.default_rng([5, cell, replication]), people, rate), 1_000 * cell + replication
        report = learn(own, rows, seed)
        equal += (
            by not in ("file", "memory") and report["state_digest"] == paths.by_file(own, rows, seed)["state_digest"]
        )
        for at, (effect, log_odds) in enumerate(zip(truth, EFFECTS, strict=True)):
            coefficient = list(report["average_effects"])[at]
            low, high = report["average_effects"][coefficient]["interval"]
            if math.isfinite(low + high):
                held.append(low <= effect <= high)
            if coefficient in report["not_learned"]:
                unknown += 1
                continue
            low, high = report["confidence_intervals"][coefficient]
            odds.append(low <= log_odds <= high)
    shown = [f"{sum(each)}/{len(each)}" if each else "-" for each in (held, odds)]
    same = "" if by in ("file", "memory") else f"   {equal} of {replications} states equal those of a file"
    share = unknown / 3 / replications
    print(
        f"{cell:2d} {name:6s} {rate:5.0%} {people:7,}  {shown[0]:>14s}  {shown[1]:>8s}  {share:11.0%}{same}", flush=True
    )


MIXED = (("mu 2", 2, 20_000), ("mu 1", 2, 80_000), ("eps 4", 2, 40_000), ("mu 2", 5, 40_000), ("mu 1", 5, 160_000))


def mixed_task(guarantee, numbers, known):
    columns = COLUMNS if known else COLUMNS.replace(", known: true", "")
    columns += "".join(f"  - {{name: u{each}, low: -1, high: 1}}\n" for each in range(numbers))
    return task(guarantee, BINARY, columns)


def mixed_people(rng, count, numbers):
    """Return a frame of people whose private numbers have a spread of half their range, and are larger if treated."""
    arm, platform = rng.random(count) < TREATED, rng.choice(3, count, p=PLATFORMS)
    U = np.clip(0.5 * rng.normal(size=(count, numbers)) + 0.2 * arm[:, None], -1.0, 1.0)
    logit = 0.3 * arm + 0.2 * (platform == 1) + U.sum(axis=1) * 0.6 / math.sqrt(numbers) - 1.0
    names = {"arm": np.where(arm, "treatment", "control"), "platform": np.array(["web", "ios", "other"])[platform]}
    y = np.where(rng.random(count) < 1.0 / (1.0 + np.exp(-logit)), "yes", "no")
    return pd.DataFrame(names | {f"u{each}": U[:, each] for each in range(numbers)} | {"y": y})


def effects(own, rows, seed):
    found = murk.run(own, rows, seed=seed).report["average_effects"] or {}
    return {name: each["interval"] for name, each in found.items() if math.isfinite(sum(each["interval"]))}


def mixed(replications, cells=None):
    print(f"{'':6s} {'private':>7s} {'people':>7s}  {'held':>5s}  learned  half-widths of arm and a number, in points;")
    print(f"{'':6s} {'':7s} {'':7s}  {'':5s}  {'':7s}  all private, the other columns known, no privacy")
    for cell, (name, numbers, people) in enumerate(MIXED):
        if cells is not None and cell + 1 not in cells:
            continue
        big = mixed_people(np.random.default_rng([8, numbers]), 300_000, numbers)
        own, private = (mixed_task(GUARANTEES[name], numbers, known) for known in (True, False))
        coded = own.coding.encode({key: big[key].tolist() for key in big})
        truth = dict(zip(own.coding.names, 200.0 * np.linalg.lstsq(coded.x, coded.y, rcond=None)[0], strict=True))
        truth |= {key: truth[key] / 2.0 for key in truth if key.startswith("u")}
        held, halves, unknown = [], {True: [], False: []}, 0
        for replication in range(replications):
            rows = mixed_people(np.random.default_rng([9, cell, replication]), people, numbers)
            found = effects(own, rows, 100 * cell + replication)
            unknown += not found
            held += [low <= truth[key] <= high for key, (low, high) in found.items()]
            for known, learned in ((True, found), (False, effects(private, rows, 1) if replication < 3 else {})):
                if {"arm", "u0"} <= learned.keys():
                    halves[known].append([(learned[key][1] - learned[key][0]) / 2.0 for key in ("arm", "u0")])
        exact = 196.0 * np.sqrt(coded.y.var() * np.diag(np.linalg.inv(coded.x.T @ coded.x / len(big))) / people)
        plain = exact[own.coding.names.index("arm")] * 2.0, exact[own.coding.names.index("u0")]
        private_halves, own_halves = (
            " ".join(f"{one:.2f}" for one in np.median(halves[known], axis=0)) if halves[known] else "-"
            for known in (False, True)
        )
        share = np.mean(held) if held else math.nan
        print(
            f"{name:6s} {numbers:7d} {people:7,}  {share:5.3f}  {1.0 - unknown / replications:7.0%}  "
            f"{private_halves} | {own_halves} | {plain[0]:.2f} {plain[1]:.2f}",
            flush=True,
        )


def streams(rng, people):
    """Yield the name, the shares of arms, the coded targets and the kind of each stream."""
    for name, shares, rate in (
        ("50/50, 30%", (0.5, 0.5), 0.3),
        ("50/50, 3%", (0.5, 0.5), 0.03),
        ("50/50, .2%", (0.5, 0.5), 0.002),
        ("90/10, 3%", (0.9, 0.1), 0.03),
        ("90/10, .2%", (0.9, 0.1), 0.002),
    ):
        yield name, shares, (rng.random(people) < rate).astype(float), BINARY
    drift = np.linspace(0.02, 0.2, people)
    yield "90/10, 2 to 20%", (0.9, 0.1), (rng.random(people) < drift).astype(float), BINARY
    amounts = np.minimum(rng.lognormal(1.0, 1.5, people), 1_000.0) / 500.0 - 1.0
    yield "90/10, amounts", (0.9, 0.1), amounts, "kind: real, low: 0, high: 1000"


def alarms(replications):
    people = 20_000
    print(f"{'':6s} {'stream':16s}  every look  one look  sample ratio   ({people:,} people, {replications} streams)")
    for name in ("mu 1", "eps 4", "eps 12"):
        guarantee = GUARANTEES.get(name, "pure: {epsilon: 12.0}")
        rng = np.random.default_rng(7)
        for stream, shares, y, target in streams(rng, people):
            more = f"experiment: {{arm: arm, control: control, assigned: {{by: server, shares: {list(shares)}}}}}"
            own = task(guarantee, target, "\n  - {name: arm, categories: [control, treatment], known: true}", more)
            X = np.ones((people, 2))
            found = false_alarms(own, X, y, runs=replications, seed=11)
            print(
                f"{name:6s} {stream:16s}  {found.watched:10.1%}  {found.fixed:8.1%}  {found.sample_ratio:12.1%}",
                flush=True,
            )


SHOP = """
target: {name: bought, kind: binary, positive: "yes", negative: "no", missing_share: 0}
experiment:
  arm: arm
  control: control
  assigned: {by: server, shares: SHARES}
  metrics:
    - {name: orders, kind: real, low: 0, high: 5, missing_share: 0}
    - {name: amount, kind: real, low: 0, high: 250, missing_share: 0}
  ratios: [{name: amount per order, numerator: amount, denominator: orders}]
"""


def shoppers(rng, arm, visits=1):
    """Return coded orders and amounts of people in arms; each has ``visits`` with nearly the same record."""
    people = len(arm) // visits
    arm, rate = arm[:people], rng.gamma(2.0, 0.25, people)
    orders = np.minimum(rng.poisson(rate * (1.0 + 0.1 * arm)), 5)
    amount = np.minimum(orders * 10.0 * rng.lognormal(0.0, 1.0, people) * (1.0 + 0.2 * arm), 250.0)
    orders, amount = np.tile(orders, visits), np.tile(amount, visits)
    return orders / 2.5 - 1.0, amount / 125.0 - 1.0


def shop(guarantee, shares, visits):
    cap = "" if visits == 1 else ", window: week, lifetime: {pure: {epsilon: 48.0}}"
    return Task.parse(
        "name: shop\nfeatures: [{name: arm, categories: [control, treatment], known: true}]\n"
        + SHOP.replace("SHARES", str(list(shares)))
        + f"privacy: {{guarantee: {{{guarantee}}}{cap}}}\n"
    )


def shop_ratio(effect):
    """Return the amount per order of an arm."""
    sums = np.zeros(2)
    for seed in range(10):
        sums += [each.sum() for each in shoppers(np.random.default_rng([3, seed]), np.full(500_000, effect))]
    orders, amount = sums / 5e6
    return 125.0 * (amount + 1.0) / (2.5 * (orders + 1.0))


def shop_lifts(own, device, rng, people, shares, visits, effect, looks):
    """Yield the lift of the ratio at each look."""
    arm = np.tile(rng.random(people // visits) < shares[1], visits)
    orders, amount = shoppers(rng, effect * arm, visits)
    X = np.column_stack([2.0 * arm - 1.0, orders, amount, np.ones(people)])
    noise, start = SimulatedNoise(int(rng.integers(2**63))), 0
    payloads = device.mechanisms["default"].randomize(device.vectors(X, orders > -1.0), noise, np.arange(people))
    engine = device.engine()
    for look in looks:
        engine.add(payloads[start:look], "default")
        start = look
        watched = Looks("always-valid", own.tightest_at, look, repeats=own.repeats)
        state = experiment(own, engine.estimate(), watched)
        if state is not None and state.metrics[-1].lifts:
            yield state.metrics[-1].lifts[0]


def ratios(replications):
    people, control, treated = 60_000, *map(shop_ratio, (0, 1))
    looks = [50]
    while looks[-1] < people:
        looks.append(min(math.ceil(1.4 * looks[-1]), people))
    print(f"{'':6s} {'arms':5s} visits  without effect  with effect: absolute  relative  one look  median half-width")
    for name, share, visits in (
        *((name, share, 1) for name in ("eps 12", "eps 4", "mu 2") for share in (0.5, 0.1)),
        ("eps 12", 0.5, 4),
    ):
        own = shop(GUARANTEES.get(name, "pure: {epsilon: 12.0}"), (1.0 - share, share), visits)
        device, held, halves = device_for(own.with_simulated(True)), np.ones((replications, 4)), []
        for replication in range(replications):
            for effect in (0, 1):
                rng = np.random.default_rng([12, replication, effect])
                difference = effect * (treated - control)
                for lift in shop_lifts(own, device, rng, people, (1.0 - share, share), visits, effect, looks):
                    ends, low, high = lift.interval, *lift.relative_interval
                    held[replication, effect] *= ends[0] <= difference <= ends[1]
                    held[replication, 2] *= not effect or low <= 100.0 * difference / control <= high
                if effect:
                    held[replication, 3] = lift.fixed_interval[0] <= difference <= lift.fixed_interval[1]
                    halves.append((ends[1] - ends[0]) / 2.0)
        shown = "  ".join(f"{each:.3f}" for each in held.mean(axis=0))
        print(f"{name:6s} {1.0 - share:.0%}/{share:.0%} {visits:6d}  {shown}  {np.median(halves):.2f}", flush=True)


MOTHERS = """
  - {name: same_sex, categories: ["no", "yes"]KNOWN}
  - {name: age, categories: [21 to 25, 26 to 30, 31 to 35]KNOWN}
  - {name: afam, categories: ["no", "yes"]KNOWN}
  - {name: hispanic, categories: ["no", "yes"]KNOWN}
"""


def mothers():
    """Return the mothers' records, with their age in three bands."""
    with gzip.open(DATA, "rt") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        row["y"] = row["third_child"]
        row["age"] = ("21 to 25", "26 to 30", "31 to 35")[min((int(row["age"]) - 21) // 5, 2)]
    return rows


def randomized_response(arm, y, epsilon, rng):
    """Return the difference of two arms' rates from plain randomized responses, and its standard error."""
    keep = math.exp(epsilon) / (1.0 + math.exp(epsilon))
    answers = np.where(rng.random(len(y)) < keep, y, 1 - y)
    unbiased = (answers - (1.0 - keep)) / (2.0 * keep - 1.0)
    groups = [unbiased[arm == each] for each in (1, 0)]
    error = math.sqrt(sum(group.var(ddof=1) / len(group) for group in groups))
    return groups[0].mean() - groups[1].mean(), error


def halves(guarantee, columns, rows, effect):
    """Return the half-width of an effect, in points; infinite if it is not learned."""
    found = murk.run(task(guarantee, BINARY, columns), rows, seed=1).report["average_effects"]
    low, high = found[effect]["interval"] if found else (-math.inf, math.inf)
    return (high - low) / 2.0


def compare(rows, columns, effect, replications):
    """Print half-widths of an effect; ``columns`` are a task's, with KNOWN where they may be."""
    arm = np.array([row[effect] == "yes" for row in rows]).astype(int)
    y = np.array([row["y"] == "yes" for row in rows]).astype(int)
    exact = 196.0 * math.sqrt(sum(y[arm == each].var() / (arm == each).sum() for each in (0, 1)))
    print(f"half-widths of the effect of {effect} in points, {len(rows):,} people; without privacy {exact:.2f}")
    print(f"{'':6s} all private  known  randomized response  people, known over randomized response")
    for name in ("mu 1", "mu 2", "eps 1", "eps 4"):
        kind, value = name.split()
        # Randomized response has the mu of its odds.
        keep = NormalDist().cdf(float(value) / 2.0)
        epsilon = float(value) if kind == "eps" else math.log(keep / (1.0 - keep))
        rng = np.random.default_rng(1)
        plain = 196.0 * np.mean([randomized_response(arm, y, epsilon, rng)[1] for _ in range(replications)])
        private, known = (
            halves(GUARANTEES[name], columns.replace("KNOWN", each), rows, effect) for each in ("", ", known: true")
        )
        print(f"{name:6s} {private:11.2f}  {known:5.2f}  {plain:19.2f}  {(known / plain) ** 2:.2f}", flush=True)


def people(replications):
    compare(mothers(), MOTHERS, "same_sex", replications)


def experiments(replications):
    from causaldata import black_politicians, thornton_hiv

    for name, data, effect, target in (
        ("black_politicians", black_politicians, "treat_out", "responded"),
        ("thornton_hiv", thornton_hiv, "any", "got"),
    ):
        frame = data.load_pandas().data[[effect, target]].dropna()
        yes = np.where(frame.to_numpy() == 1.0, "yes", "no").tolist()
        print(name)
        column = f'\n  - {{name: {effect}, categories: ["no", "yes"]KNOWN}}\n'
        compare([{effect: one, "y": other} for one, other in yes], column, effect, replications)


def main():
    each = coverage, mixed, alarms, ratios, people, experiments
    measures = [(measure.__name__, measure) for measure in each]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=[name for name, _ in measures])
    parser.add_argument("--replications", type=int, default=20)
    parser.add_argument("--by", choices=PATHS, default="file", help="path of coverage")
    parser.add_argument("--cells", type=int, nargs="+", metavar="N", help="cells of coverage or mixed, from 1")
    given = parser.parse_args()
    for name, measure in measures:
        if given.only not in (None, name):
            continue
        if measure is coverage:
            coverage(given.replications, given.by, given.cells)
        elif measure is mixed:
            mixed(given.replications, given.cells)
        else:
            measure(given.replications)


if __name__ == "__main__":
    main()
