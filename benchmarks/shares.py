"""Shares and means of a target alone beside textbook mechanisms: ``python -m benchmarks.shares``.

*ratio* is the variance of the estimate, people's own sampling included, over that of the best textbook mechanism at the
same guarantee: for shares k-ary randomized response, subset selection of any size and Gaussian noise on the indicators,
all with a missing target as a category, and the sum over all classes; for means Duchi, the piecewise and the hybrid
mechanism, Laplace and Gaussian noise, none of which knows missing targets. Where targets may be missing, each of these
tells presence besides, by the best division of the people or of the budget; and k-ary randomized response of two ends
and a missing target, as PCKV does for one key, and Gaussian noise on number and presence together. Pure mechanisms also
stand for the mu of their epsilon. Variances are exact, by the mechanisms' formulas. ``--coverage`` simulates nominal
95% intervals instead.

Duchi, Jordan, Wainwright 2018; Gu et al. 2020 (PCKV); Wang et al. 2019 (piecewise, hybrid); Ye, Barg 2018 (subset
selection); Warner 1965.
"""

import argparse
import math

import numpy as np

from murk import Task
from murk.privacy import GaussianDP
from murk.privacy.mechanisms.costs import UNITS, epsilon_units
from murk.protocols.device import device_for
from murk.protocols.population import Records
from murk.protocols.univariate import forecast
from murk.protocols.univariate.estimate import estimate_of
from murk.protocols.univariate.statistics import Subsets, Windows, statistics_of

MANY = 10**12
EPSILONS, MUS = (0.5, 1.0, 2.0, 3.0, 4.0, 6.0), (0.5, 1.0, 2.0, 3.0, 4.0)
CLASSES, RATES = (2, 3, 5, 16, 48, 100), (0.5, 0.1, 0.03, 0.005)
# Values of a target in [-1, 1] and their shares.
GRID = np.linspace(-1.0, 1.0, 201)
TARGETS = {
    "even": np.ones(201),
    "middle": np.exp(-0.5 * (GRID / 0.2) ** 2),
    "low": np.exp(-0.5 * ((GRID + 0.6) / 0.2) ** 2),
    "lowest": np.exp(-(GRID + 1.0) / 0.15),
    "two humps": np.exp(-0.5 * ((np.abs(GRID) - 0.7) / 0.1) ** 2),
}


def task(target, guarantee):
    text = f"name: t\nfeatures: []\ntarget: {{name: y, {target}}}\n"
    return Task.parse(f"{text}privacy: {{guarantee: {{{guarantee}}}}}\n")


def budgets():
    """Yield each guarantee as text, its epsilon (of a mu, the largest that has it) and its mu or None."""
    for epsilon in EPSILONS:
        yield f"pure: {{epsilon: {epsilon}}}", epsilon, None
    for mu in MUS:
        yield f"gdp: {{mu: {mu}}}", epsilon_units(GaussianDP(mu)) / UNITS, mu


# Textbook mechanisms: n times the variance of an estimate


def textbook_shares(shares, epsilon, mu):
    """The best textbook mechanism, and n times the summed variances of its shares of people with a target."""
    k, found = len(shares), {}
    slopes = np.hstack([np.eye(k - 1), shares[:-1, None]])

    def of_present(covariance):
        return float(np.trace(slopes @ covariance @ slopes.T))

    # Subsets of one category are k-ary randomized response.
    for size in range(1, max(2, k // 2 + 1)):
        p = size * math.exp(epsilon) / (size * math.exp(epsilon) + k - size)
        q = (size - p) / (k - 1)
        inside = shares * (p - q) + q
        one = p * (size - 1) / (k - 1)
        none = (p * (size - 1) * (size - 2) + (1.0 - p) * size * (size - 1)) / ((k - 1) * max(k - 2, 1))
        both = none + (one - none) * np.add.outer(shares, shares)
        np.fill_diagonal(both, inside)
        found[f"subsets of {size}"] = of_present((both - np.outer(inside, inside)) / (p - q) ** 2)
    if mu:
        noise = 2.0 / mu**2 * (np.eye(k) - 1.0 / k)
        found["gaussian"] = of_present(noise + np.diag(shares) - np.outer(shares, shares))
    return min(found.items(), key=lambda pair: pair[1])


def duchi(x, e):
    return ((math.exp(e) + 1.0) / (math.exp(e) - 1.0)) ** 2 - x**2


def piecewise(x, e):
    half = math.exp(e / 2.0)
    return x**2 / (half - 1.0) + (half + 3.0) / (3.0 * (half - 1.0) ** 2)


def hybrid(x, e):
    share = 1.0 - math.exp(-e / 2.0) if e > 0.61 else 0.0
    return share * piecewise(x, e) + (1.0 - share) * duchi(x, e)


def textbook_means(shares, epsilon, mu):
    noises = {each.__name__: shares @ each(GRID, epsilon) for each in (duchi, piecewise, hybrid)}
    noises["laplace"] = 2.0 * (2.0 / epsilon) ** 2
    if mu:
        noises["gaussian"] = 4.0 / mu**2
    name, noise = min(noises.items(), key=lambda pair: pair[1])
    return name, noise + spread(shares)


DIVISIONS = np.linspace(0.02, 0.98, 97)


def textbook_means_of_present(shares, epsilon, mu):
    """The best textbook mechanism that allows for missing numbers; n times its variance where none is missing."""
    mean, own = float(shares @ GRID), spread(shares)
    most = hybrid, duchi, piecewise, lambda x, e: 8.0 / e**2 + 0.0 * x

    def told(e):
        return math.exp(e) / (math.exp(e) - 1.0) ** 2

    found = {}
    for each in most:
        name = getattr(each, "__name__", "").replace("<lambda>", "laplace")
        # Of the people some tell the number, 0 if it is missing, and the others whether there is one.
        of_people = (math.sqrt(shares @ each(GRID, epsilon) + own) + abs(mean) * math.sqrt(told(epsilon))) ** 2
        of_budget = min(
            float(shares @ each(GRID, part * epsilon)) + own + mean**2 * told((1.0 - part) * epsilon)
            for part in DIVISIONS
        )
        found[f"{name}, {'people' if of_people < of_budget else 'budget'} divided"] = min(of_people, of_budget)
    chance = math.exp(epsilon) / (math.exp(epsilon) + 2.0)
    other = (1.0 - chance) / 2.0
    told_of = np.array([(1.0 + mean) / 2.0, (1.0 - mean) / 2.0, 0.0]) * (chance - other) + other
    slopes = np.array([1.0 - mean, -1.0 - mean, 0.0]) / (chance - other)
    found["pckv"] = float(told_of @ slopes**2 - (told_of @ slopes) ** 2)
    if mu:
        # (number, sqrt 3 presence): no two records are more than 2 apart.
        found["gaussian"] = 4.0 / mu**2 * (1.0 + mean**2 / 3.0) + own
    return min(found.items(), key=lambda pair: pair[1])


def spread(shares):
    return float(shares @ GRID**2 - (shares @ GRID) ** 2)


# Ours


def variance(own, y, shares):
    """n times the variances of the reported numbers, from the expected sums of very many people."""
    device = device_for(own)
    mechanism = device.mechanisms["default"]
    statistics, places = statistics_of(device.settings, mechanism), device.settings.positions(np.array(y))[:, 0]
    if isinstance(statistics, Windows):
        at = np.zeros((len(places), len(mechanism.chances)))
        level = np.minimum((places * 30).astype(int), 29)
        rows = np.arange(len(places))
        at[rows, level], at[rows, level + 1] = 1.0 - (places * 30 - level), places * 30 - level
        sums = MANY * shares @ at @ mechanism.chances
    elif isinstance(statistics, Subsets):
        sums = MANY * (mechanism.gain * np.bincount(places.astype(int), shares, mechanism.categories) + mechanism.base)
    else:
        at = np.zeros((len(places), mechanism.vertices))
        whole = np.minimum(places.astype(int), mechanism.vertices - 1)
        at[np.arange(len(places)), np.minimum(whole + 1, mechanism.vertices - 1)] = places - whole
        at[np.arange(len(places)), whole] += 1.0 - (places - whole)
        if hasattr(statistics, "chances"):
            sums = MANY * shares @ at @ statistics.chances
        elif device.settings.classes:
            sums = MANY * mechanism.height * shares @ at
        else:
            into = np.array([[-1.0, 1.0, 0.0], [-1.0, -1.0, 2.0]])[: mechanism.vertices - 1, : mechanism.vertices]
            axes = at @ into.T
            square = (axes * shares[:, None]).T @ axes + mechanism.variance * into @ into.T
            upper = np.triu_indices(len(into))
            sums = MANY * np.append(mechanism.height * shares @ axes, (mechanism.height / 1024.0) ** 2 * square[upper])
    found = estimate_of(device.settings, {"default": (MANY, sums)}, {"default": statistics}, 1)
    return MANY * found.spread**2, type(mechanism).__name__


def shares_table():
    print("| classes | guarantee | mechanism | ratio at rates of 50, 10, 3, 0.5% | best textbook |")
    print("|---|---|---|---|---|")
    worst = 0.0
    for k in CLASSES:
        for text, epsilon, mu in budgets():
            ratios, names = [], []
            for rate in RATES:
                shares = np.array([rate, *[(1.0 - rate) / (k - 1)] * (k - 1), 0.0])
                own = task("kind: classes, classes: [" + ", ".join(f"c{i}" for i in range(k)) + "]", text)
                found, kind = variance(own, [*range(k), math.nan], shares)
                name, least = textbook_shares(shares, epsilon, mu)
                ratios.append(float(found.sum()) / 4.0 / least)
                names.append(name)
            worst = max(worst, *ratios)
            print(f"| {k} | {text} | {kind} | {', '.join(f'{each:.2f}' for each in ratios)} | {names[0]} |", flush=True)
    print(f"\nlargest ratio: {worst:.3f}")


def means_table():
    print("| target | guarantee | mechanism | ratio | if targets may be missing | best textbook | that allows for it |")
    print("|---|---|---|---|---|---|---|")
    worst = 0.0
    for name, weights in TARGETS.items():
        shares = weights / weights.sum()
        for text, epsilon, mu in budgets():
            best, least = textbook_means(shares, epsilon, mu)
            never, kind = variance(task("kind: real, low: -1, high: 1, missing_share: 0", text), GRID, shares)
            maybe, _ = variance(task("kind: real, low: -1, high: 1", text), GRID, shares)
            allowing, least_of = textbook_means_of_present(shares, epsilon, mu)
            worst = max(worst, float(maybe[0]) / least_of)
            ratios = f"{never[0] / least:.2f} | {maybe[0] / least_of:.2f}"
            print(f"| {name} | {text} | {kind} | {ratios} | {best} | {allowing} |", flush=True)
    print(f"\nlargest ratio if targets may be missing: {worst:.3f}")


def coverage_table(people, replications):
    print("| target | guarantee | missing | covered | half-width over 1.96 standard deviations |")
    print("|---|---|---|---|---|")
    worlds = {
        "two, 50%": ("kind: binary, positive: p", [0.0, 1.0], [0.5, 0.5]),
        "two, 3%": ("kind: binary, positive: p", [0.0, 1.0], [0.97, 0.03]),
        "two, 0.5%": ("kind: binary, positive: p", [0.0, 1.0], [0.995, 0.005]),
        "classes": ("kind: classes, classes: [a, b, c, d]", [0.0, 1.0, 2.0, 3.0], [0.7, 0.2, 0.08, 0.02]),
        "real, even": ("kind: real, low: -1, high: 1", np.linspace(-1, 1, 9), np.full(9, 1 / 9)),
        "real, skewed": ("kind: real, low: -1, high: 1", [-1.0, -0.8, -0.4, 1.0], [0.8, 0.15, 0.04, 0.01]),
    }
    for name, (target, values, shares) in worlds.items():
        for text in ("pure: {epsilon: 1}", "pure: {epsilon: 4}", "gdp: {mu: 0.5}", "gdp: {mu: 1}", "gdp: {mu: 3}"):
            for missing in (0.0, 0.3):
                own, y = task(target, text), np.array([*values, math.nan])
                device, of = device_for(own), np.array(shares)
                records = Records(np.ones((len(y), 1)), y, np.append((1.0 - missing) * of, missing))
                truth = np.array([of @ values]) if own.target.kind == "real" else 2.0 * of - 1.0
                truth = truth[1:] if own.target.kind == "binary" else truth
                held, errors, halves = [], [], []
                for replication in range(replications):
                    rng = np.random.default_rng([5, replication])
                    found = forecast.estimate(device, records, people, {"default": 1.0}, 1, rng)
                    errors.append(found.values - truth)
                    halves.append(found.half_widths())
                    held.append(np.abs(errors[-1]) <= halves[-1])
                width = np.median(halves, axis=0) / 1.96 / np.std(errors, axis=0)
                shown = ", ".join(f"{each:.1%}" for each in np.mean(held, axis=0))
                widths = ", ".join(f"{each:.2f}" for each in width)
                print(f"| {name} | {text} | {missing:.0%} | {shown} | {widths} |", flush=True)


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--coverage", action="store_true", help="simulate nominal 95%% intervals instead")
    parser.add_argument("--people", type=int, default=3_000, help="people of each simulation")
    parser.add_argument("--replications", type=int, default=1_000, help="simulations of each cell")
    given = parser.parse_args(argv)
    if given.coverage:
        return coverage_table(given.people, given.replications)
    shares_table()
    print()
    means_table()
    return None


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
