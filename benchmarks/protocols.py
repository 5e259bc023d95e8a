"""The protocols beside each other in one unit: ``python -m benchmarks.protocols [--quick] [--json FILE]``.

Generated people (half of the features coins, half numbers, correlated; log odds of standard deviation 1, or a line over
four fifths of the target's range, and residuals over a fifth) release by each protocol at the same mu-GDP for any two
records, an organisation too. Engines alone, no pipe: ten minutes on a free core, ``--quick`` one. In points
(hundredths of a probability, or of a real target's range):

*effect*: root mean squared error of the average marginal effect of a standard deviation of a feature, and the median
half width of its 95% interval, where there is any; *prediction*: root mean squared distance to the true probabilities,
or means. *none* is the error of who says that nothing has an effect: errors near it are of nothing learned. *newton* is
an organisation's sketch by a Newton step, of binary targets. *once* are scores without rounds if there are public rows,
else moments. *rule* is what `murk.planning.choice` recommends where
devices can read a model, and where they release once.

``--women``: the same of the demonstration's people, against the same fits of raw records.
"""

import argparse
import itertools
import json
import sys
import time
from pathlib import Path

import numpy as np

from benchmarks.mothers import raw
from benchmarks.protocol_people import SKETCHES, Setting, drawn, estimate_of, outcome, predictions
from murk import Task
from murk.inference.units import effect_units
from murk.planning.choice import recommend
from murk.results.report import average_effects

PROTOCOLS = ("scores", "gradients", "examples", "once", "summaries", "newton")
KINDS, FEATURES, PEOPLE, BUDGETS = ("binary", "real"), (2, 10, 50), (10**4, 10**5, 10**6), (0.25, 1.0, 4.0)
ROWS = 5_000


def grid(quick, budgets):
    """The settings."""
    features, people = (FEATURES[:2], PEOPLE[:2]) if quick else (FEATURES, PEOPLE)
    for kind, rows, d, n, mu in itertools.product(KINDS, (ROWS, 0), features, people, budgets):
        if d < 50 or n < 10**6 or mu == 1.0:
            yield Setting(kind, d, n, mu, rows)


def left_out(setting, protocol):
    """Whether it has no such model, or would take minutes: without public rows many features' scores are many sums."""
    if protocol == "newton":
        return setting.kind == "real"
    return protocol == "scores" and setting.d > 10 and not setting.rows and (setting.mu, setting.n) != (1.0, 10**5)


def measured(setting, protocols, replications, seed):
    """What each protocol came to in one cell."""
    found = {name: [] for name in protocols if not left_out(setting, name)}
    for replication in range(replications):
        rng = np.random.default_rng([seed, setting.d, setting.n, replication])
        X, y, public, test, theta = drawn(setting, rng)
        for name, each in found.items():
            task = setting.task(name)
            each.append(outcome(task, estimate_of(task, X, y, public, rng), theta, test))
    return {name: summed_up(each) for name, each in found.items()}


def summed_up(outcomes):
    """Of some replications of one cell."""
    missed, halves = (np.array([one[key] for one in outcomes]) for key in ("effects", "halves"))
    known = np.isfinite(halves)
    return {
        "effect": float(np.sqrt(np.mean(missed**2))),
        "half width": float(np.median(halves[known])) if known.any() else None,
        "learned": float(np.mean(known)),
        "covered": float(np.mean(np.abs(missed)[known] <= halves[known])) if known.any() else None,
        "prediction": float(np.sqrt(np.mean([one["prediction"] ** 2 for one in outcomes]))),
        "none": float(np.sqrt(np.mean([one["size"] ** 2 for one in outcomes]))),
    }


def recommended(setting):
    """What the rule says where devices can read a model, and where they release once."""
    task = setting.task("scores")
    return [recommend(task, setting.n, online=online).protocol for online in (True, False)]


def cell(found, key):
    """A protocol's place in a table."""
    if found is None:
        return "-"
    if key == "prediction":
        return f"{found['prediction']:.2f}"
    half = found["half width"]
    return f"{found['effect']:.2f}" + ("" if half is None else f" ± {half:.2f}")


def show(kind, rows, protocols):
    """The two tables of one kind of target."""
    for key in ("effect", "prediction"):
        print(f"\n{kind} target, {key}, points\n")
        print(f"| public rows | d | n | mu | none | {' | '.join(protocols)} | rule: online, once |")
        print("|---" * (6 + len(protocols)) + "|")
        for row in rows:
            none = next(iter(row["found"].values()))["none"]
            cells = " | ".join(cell(row["found"].get(name), key) for name in protocols)
            print(
                f"| {row['rows'] or 'none'} | {row['d']} | {row['n']:,} | {row['mu']:g} | "
                f"{none:.2f} | {cells} | {', '.join(row['rule'])} |"
            )


WOMEN = {
    "third-child": """
name: third-child
features:
  - {name: same_sex, categories: ["no", "yes"]}
  - {name: age, low: 21, high: 35}
target: {name: third_child, kind: binary, positive: "yes", negative: "no"}
""",
    "weeks-worked": """
name: weeks-worked
features:
  - {name: third_child, categories: ["no", "yes"]}
  - {name: age, low: 21, high: 35}
target: {name: weeks_worked, kind: real, low: 0, high: 52}
""",
}


def women(replications, seed, protocols, mu=1.0):
    """Effects of the demonstration's people, 5,000 of them public, by each protocol at one budget."""
    for name, text in WOMEN.items():
        privacy = f"privacy: {{guarantee: {{gdp: {{mu: {mu:g}}}}}}}"
        print(
            f"\n| {name}, mu = {mu:g} | effect | error | half width | held | predictions |\n|---|---|---|---|---|---|"
        )
        for protocol in protocols:
            if protocol == "newton" and "kind: real" in text:
                continue
            more = SKETCHES.get(protocol, f"public: {{set_aside: {ROWS}}}")
            more += "\nscores: {interactive: false}" if protocol == "once" else ""
            kind = "summaries" if protocol in SKETCHES else "scores" if protocol == "once" else protocol
            task = Task.parse(f"{text}\nprotocol: {kind}\n{more}\n{privacy}")
            X, y = raw(task)
            scale, exact, effect, unit = exact_fit(task, X, y)
            found = []
            for replication in range(replications):
                rng = np.random.default_rng([seed, replication])
                order = rng.permutation(len(X))
                aside, people = order[:ROWS], order[0 if kind == "summaries" else ROWS :]
                estimate = estimate_of(task, X[people], y[people], X[aside], rng)
                own = average_effects(task.coefficient_scale, effect_units(task), estimate, 0.95)
                value, half = estimate.values[0] * effect / exact[0], float("inf")
                if own is not None:
                    one = own[task.coding.names[0]]
                    value, half = one["value"], np.ptp(one["interval"]) / 2
                off = predictions(task, estimate.values, X) - predictions(task, exact, X, exact=True)
                found.append((value, half, (100.0 if scale == 100.0 else 26.0) * np.sqrt(np.mean(off**2))))
            values, halves, missed = np.array(found).T
            print(
                f"| {protocol} | {values.mean():.2f} ± {values.std():.2f} | "
                f"{np.sqrt(np.mean((values - effect) ** 2)):.2f} {unit} | {np.median(halves):.2f} | "
                f"{np.mean(np.abs(values - effect) <= halves):.0%} | "
                f"{np.sqrt(np.mean(missed**2)):.2f} |", flush=True,
            )  # fmt: skip
        print(f"\nOf raw records the effect is {effect:.2f} {unit}.")


def exact_fit(task, X, y):
    """The unit's scale, the fit of raw records, its effect of the first feature, and what that is in."""
    if task.target.kind == "real":
        theta = np.linalg.lstsq(X, y, rcond=None)[0]
        return 1.0, theta, 2.0 * 26.0 * theta[0], "weeks"
    from statsmodels.api import Logit

    theta = np.asarray(Logit(y, X).fit(disp=0).params)
    chances = 1.0 / (1.0 + np.exp(-X @ theta))
    return 100.0, theta, 200.0 * theta[0] * float(np.mean(chances * (1.0 - chances))), "points"


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="up to 10 features and 100,000 people")
    parser.add_argument("--replications", type=int, default=2, help="of each cell; of 50 features half as many")
    parser.add_argument("--mu", type=float, nargs="+", default=BUDGETS)
    parser.add_argument("--protocols", nargs="+", choices=PROTOCOLS, default=PROTOCOLS)
    parser.add_argument("--women", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="where to write all figures")
    chosen = parser.parse_args(arguments)
    if chosen.women:
        women(max(chosen.replications, 5), chosen.seed, chosen.protocols)
        return
    start, table = time.monotonic(), []
    for setting in grid(chosen.quick, chosen.mu):
        if all(left_out(setting, name) for name in chosen.protocols):
            continue
        count = max(1, chosen.replications // 2) if setting.d == 50 else chosen.replications
        found = measured(setting, chosen.protocols, count, chosen.seed)
        table.append({**vars(setting), "rule": recommended(setting), "found": found})
        print(f"{setting}: {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
        if chosen.json:
            chosen.json.write_text(json.dumps(table, indent=1))
    for kind in KINDS:
        rows = [row for row in table if row["kind"] == kind]
        if rows:
            show(kind, rows, [name for name in chosen.protocols if kind == "binary" or name != "newton"])


if __name__ == "__main__":
    main()
