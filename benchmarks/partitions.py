"""What fetched models and partitions cost the error, at up to 10^9 releases: ``python -m benchmarks.partitions``.

*Rounds*: scores of n people at the models of their rounds, beside as many answers that are all at the newest model.
*Partitions*: n people's scores, spread over C partitions that share models. *Looks*: the same where the first
partition's learner looks only now and then at whether the next model is due, in releases. *Own*: C partitions that each
make their own models, solved together. *Gradients*: LDP-SGD's C averages of n releases, each taken at its partition's
newest iterate. *Once*: directions, released at no model (moments, where rows are public).

A binary target and five correlated features of three values each: people of one record are alike, so that a round's
sum is drawn at once, whatever its number of people (counts exactly, noise as normal). The squared error is a mean over
replications; that by intervals is what the estimate says of itself, its squared standard errors, which hardly differ
between replications.
"""

import argparse
import itertools
import math

import numpy as np

from murk._internal.links import logistic
from murk.privacy import GaussianDP
from murk.privacy.mechanisms import calibrate
from murk.protocols.gradients.engine import SGDEngine
from murk.protocols.gradients.objectives import Logistic
from murk.protocols.gradients.settings import Settings as GradientSettings
from murk.protocols.linear_algebra import flattened
from murk.protocols.rows import Rows
from murk.protocols.scores.engine import PartitionState, ScoreEngine, SharedScoreEngine, merged, merged_of
from murk.protocols.scores.mechanisms import score_mechanisms
from murk.protocols.scores.model import vectors
from murk.protocols.scores.settings import Settings
from murk.protocols.scores.sums import Round, Tally, step_of

P = 5
CHUNK = 1_000_000
NAMES = (*(f"x{j}" for j in range(P)), "intercept")
# Three values, not evenly spread, and correlated through the first feature.
X = np.array([(*point, 1.0) for point in itertools.product((-1.0, 0.0, 1.0), repeat=P)])
SHARES = np.array([0.3, 0.4, 0.3])[(X[:, 0] + 1).astype(int)] * np.prod(
    [np.where(X[:, j] == X[:, 0], 0.5, 0.25) for j in range(1, P)], axis=0
)
TRUTH = np.full(P + 1, 0.7)
CELLS = np.vstack([X, X])
TARGETS = np.repeat([1.0, 0.0], len(X))
ODDS = np.concatenate([SHARES * logistic(X @ TRUTH), SHARES * (1.0 - logistic(X @ TRUTH))])


def drawn(model, people, mechanisms, response, rng):
    """What so many people's answers at a model add up to, by level and query."""
    sums = {}
    asked = rng.multinomial(people, [model.scatter, model.curvature, 1.0 - model.scatter - model.curvature])
    for query, count in zip(("scatter", "curvature", "score"), asked, strict=True):
        if not count:
            continue
        V = vectors(CELLS, TARGETS, model, response, query)
        if query != "score":
            V = flattened(V[:, :, None] * V[:, None, :])
        mechanism = mechanisms.mechanism(query)
        total = rng.multinomial(count, ODDS) @ V
        total = total + rng.normal(size=V.shape[1]) * math.sqrt(count * mechanism.variance)
        sums["default", query] = Tally(int(count), [round(value) for value in (total / step_of(mechanism)).tolist()])
    return sums


def partition(settings, mechanisms, people, rng):
    """A partition of scores after so many people, round by round."""
    engine = ScoreEngine(settings, {"default": mechanisms})
    while engine.n_releases < people:
        left = min(settings.round_end(engine.n_releases), people) - engine.n_releases
        engine.learn_sums(drawn(engine.model, left, mechanisms, settings.response, rng))
    return engine


def shared(settings, mechanisms, people, count, rng, between=None):
    """Partitions that share models after so many people, each going to any; a look after so many, or when due."""
    engines = [SharedScoreEngine(settings, {"default": mechanisms}) for _ in range(count)]
    first, *others = engines
    done = 0
    while done < people:
        size = min(between or first.next_model_at - done, people - done)
        for engine, own in zip(engines, rng.multinomial(size, np.full(count, 1.0 / count)), strict=True):
            engine.learn_sums(drawn(engine.model, own, mechanisms, settings.response, rng))
        done += size
        if first.begin_round(others):
            for other in others:
                other.hear(first)
    return engines


def at_last_model(settings, mechanisms, engine, rng):
    """The estimate of as many people, all of whom answered at a partition's newest model."""
    return merged_of(settings, [asked(settings, mechanisms, engine.model, engine.n_releases, rng)])


def asked(settings, mechanisms, model, people, rng):
    """A partition, with its mechanisms, whose people all answered at one model."""
    sums = drawn(model, people, mechanisms, settings.response, rng)
    return PartitionState(people, (Round(0, model, sums),)), {"default": mechanisms}


def found(estimate):
    """Squared distance to the truth, and what the estimate's own standard errors say that it is."""
    own = np.asarray(estimate.half_widths(0.95)) / 1.959964
    return float(np.sum((np.asarray(estimate.values) - TRUTH) ** 2)), float(np.sum(own**2))


def of_scores(mu, *, once=False, shared=False):
    # What is released at no model is learned over public rows.
    rows = Rows.counted(X, np.maximum(1, np.round(5_000 * SHARES)).astype(np.int64)) if once else None
    settings = Settings(NAMES, True, rows, once=once, shared=shared)
    return settings, score_mechanisms("gaussian", GaussianDP(mu), P + 1, matrices=settings.matrices)


def rounds(sizes, budgets, replications, seed):
    """Number of models, and the error beside answers that are all at the newest model."""
    print("\n| releases | mu | models | squared error | by intervals | over that of answers all at the last model |")
    print("|---|---|---|---|---|---|")
    for mu, n in itertools.product(budgets, sizes):
        settings, mechanisms = of_scores(mu)
        own, fresh = [], []
        for replication in range(replications):
            rng = np.random.default_rng([seed, n, replication])
            engine = partition(settings, mechanisms, n, rng)
            own.append(found(engine.estimate()))
            fresh.append(found(at_last_model(settings, mechanisms, engine, rng)))
        models = settings.round_number(n - 1) + 1
        print(f"| {n:,} | {mu:g} | {models} | {figures(own)} | {quotient(own, fresh)} |", flush=True)


def partitions(sizes, counts, budgets, replications, seed, name):
    """The error of scores by the number of partitions: that share models, make their own, or need none."""
    print(f"\n| {name}: releases | mu | partitions | squared error | by intervals | over that of one partition |")
    print("|---|---|---|---|---|---|")
    for mu, n in itertools.product(budgets, sizes):
        settings, mechanisms = of_scores(mu, once=name == "once", shared=name == "shared models")
        one = None
        for count in counts:
            here = []
            # One partition takes next to no time.
            for replication in range(replications * (4 if count == 1 else 1)):
                rng = np.random.default_rng([seed, n, replication, count])
                if settings.shared:
                    engines = shared(settings, mechanisms, n, count, rng)
                else:
                    shares = rng.multinomial(n, np.full(count, 1.0 / count))
                    engines = [partition(settings, mechanisms, own, rng) for own in shares]
                here.append(found(merged(engines)))
            one = here if one is None else one
            print(f"| {n:,} | {mu:g} | {count} | {figures(here)} | {quotient(here, one)} |", flush=True)


def looks(sizes, between, budgets, replications, seed):
    """The error of scores by how many people release before the first partition looks at what all have learned."""
    print("\n| looks: releases | mu | between two looks | models | squared error | by intervals | over that of none |")
    print("|---|---|---|---|---|---|---|")
    for mu, n in itertools.product(budgets, sizes):
        settings, mechanisms = of_scores(mu, shared=True)
        prompt = None
        for each in between:
            here, models = [], 0
            for replication in range(replications):
                rng = np.random.default_rng([seed, n, replication, each])
                engines = shared(settings, mechanisms, n, 4, rng, each)
                here.append(found(merged(engines)))
                models = len(engines[0].now.rounds)
            prompt = here if prompt is None else prompt
            print(f"| {n:,} | {mu:g} | {each:,} | {models} | {figures(here)} | {quotient(here, prompt)} |", flush=True)


def gradients(sizes, counts, budgets, replications, seed):
    """The error of LDP-SGD by the number of partitions, each of which learns alone."""
    print(
        "\n| gradients: releases | mu | partitions | squared error | over that of one partition "
        "|\n|---|---|---|---|---|"
    )
    for mu, n in itertools.product(budgets, sizes):
        settings = GradientSettings(
            objective=Logistic(), names=NAMES, random_scaling=False, smallest_square=1.0, largest_square=P + 1.0
        )
        mechanism = calibrate("gaussian", GaussianDP(mu), dimension=settings.dimension, radius=settings.bound)
        one = None
        for count in counts:
            here = []
            for replication in range(replications):
                averages = []
                for number in range(count):
                    rng = np.random.default_rng([seed, n, replication, count, number])
                    engine = SGDEngine(settings, {"default": mechanism}, seed=int(rng.integers(2**62)))
                    for start in range(0, n // count, CHUNK):
                        people = rng.choice(len(ODDS), size=min(CHUNK, n // count - start), p=ODDS)
                        engine.learn_records(CELLS[people], TARGETS[people], [mechanism])
                    averages.append(engine.average)
                here.append(float(np.sum((np.mean(averages, axis=0) - TRUTH) ** 2)))
            one = here if one is None else one
            error = f"{np.mean(here):.3g} +- {np.std(here, ddof=1) / math.sqrt(replications):.1g}"
            print(f"| {n:,} | {mu:g} | {count} | {error} | {_ratio(here, one)} |", flush=True)


def figures(pairs):
    errors, own = np.array(pairs).T
    return f"{np.mean(errors):.3g} +- {np.std(errors, ddof=1) / math.sqrt(len(errors)):.1g} | {np.median(own):.3g}"


def quotient(pairs, others):
    """Ratio by intervals, and its standard error."""
    return _ratio(np.array(pairs)[:, 1], np.array(others)[:, 1])


def _ratio(errors, others):
    ratio = np.mean(errors) / np.mean(others)
    parts = [np.std(each, ddof=1) / np.mean(each) / math.sqrt(len(each)) for each in (errors, others)]
    return f"{ratio:.3f} +- {0.0 if errors is others else ratio * math.hypot(*parts):.3f}"


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=["rounds", "partitions", "looks", "own", "once", "gradients"])
    parser.add_argument("--releases", type=int, nargs="*")
    parser.add_argument("--partitions", type=int, nargs="*", default=[1, 4, 16, 64, 256])
    parser.add_argument("--looks", type=int, nargs="*", default=[1_000, 10_000, 100_000, 1_000_000])
    parser.add_argument("--mu", type=float, nargs="*", default=[1.0, 4.0])
    parser.add_argument("--replications", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(argv)
    few = [10**6, 10**7]
    if given.only in (None, "rounds"):
        sizes = given.releases or [10**e for e in (5, 6, 7, 8, 9)]
        rounds(sizes, given.mu, given.replications, given.seed)
    if given.only in (None, "partitions"):
        partitions(given.releases or few, given.partitions, given.mu, given.replications, given.seed, "shared models")
    if given.only in (None, "looks"):
        looks(given.releases or few, given.looks, given.mu, given.replications, given.seed)
    if given.only in (None, "own"):
        partitions(given.releases or few, given.partitions, given.mu, given.replications, given.seed, "own models")
    if given.only in (None, "once"):
        partitions(given.releases or few, given.partitions, given.mu, given.replications, given.seed, "once")
    if given.only in (None, "gradients"):
        gradients(given.releases or few, given.partitions, given.mu, given.replications, given.seed)


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
