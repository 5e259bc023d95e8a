"""Forecast half widths against those of people who really release; at another budget they are not."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

import murk.planning.forecast as module
import murk.protocols.examples.forecast as examples
from murk import Task
from murk.errors import MurkError, UserError
from murk.planning.forecast import DRAWS, forecast, forecasts
from murk.planning.outlook import outlook
from murk.protocols.device import device_for
from murk.protocols.linear_algebra import flattened
from murk.protocols.population import Effects, Records, designs, one_by_one
from murk.protocols.scores.forecast import _answers as planned_answers
from murk.protocols.scores.model import QUERIES, Model, vectors
from tests.learners.planning.people import halves, population, task

# Runs, of people and of sums alike: more where public rows decide what is believed, and half widths differ most.
CASES = [
    ("scores", "binary", 1_000, 6.0, 12_000, 6, ""),
    ("scores", "real", 0, 6.0, 12_000, 12, ""),
    ("moments", "real", 0, 8.0, 24_000, 6, ""),
    ("moments", "binary", 5_000, 4.0, 12_000, 12, ""),
    ("examples", "binary", 0, 4.0, 24_000, 6, ""),
    ("examples", "real", 0, 6.0, 24_000, 6, "examples: {release: joint}"),
    ("examples", "binary", 0, 6.0, 24_000, 6, "examples: {release: separate}"),
    ("examples", "binary", 0, 8.0, 24_000, 6, "examples: {release: joint, loss: probit}"),
    ("gradients", "binary", 1_000, 4.0, 24_000, 6, ""),
    ("summaries", "binary", 0, 2.0, 12_000, 6, ""),
    ("summaries", "real", 0, 2.0, 12_000, 6, "summaries: {method: mixing, rows: 400}"),
    ("summaries", "real", 0, 2.0, 12_000, 6, "summaries: {method: linear-mixing, rows: 100, window: 1000}"),
]


WIDE = (
    f"name: t\nfeatures: [{', '.join(f'{{{{name: x{j}, low: -1, high: 1}}}}' for j in range(14))}]\n"
    "target: {{name: y, kind: binary, positive: a, negative: b}}\nprotocol: {protocol}\n"
    "privacy: {{guarantee: {{gdp: {{mu: 4.0}}}}}}\npublic: {{set_aside: 2000}}"
)
QUARTER = {
    "summaries: {method: mixing, rows: 400}": "summaries: {method: mixing, rows: 100}",
    "summaries: {method: linear-mixing, rows: 100, window: 1000}": (
        "summaries: {method: linear-mixing, rows: 25, window: 1000}"
    ),
}


@pytest.mark.parametrize(("protocol", "kind", "public", "mu", "n", "runs", "more"), CASES)
def test_half_widths_are_those_of_people_who_release(protocol, kind, public, mu, n, runs, more):
    of = task(mu, kind=kind, protocol=protocol, public=public, more=more)
    simulated = np.log([halves(of, n, kind, seed) for seed in range(runs)])
    assert np.isfinite(simulated).all()
    mean = simulated.mean(axis=0)
    # Standard errors of the mean logarithm, and of a median, 1.25 times that of a mean: 4 of both together are, of some
    # 40 coefficients, a false alarm in a thousand; and 5% for the 1,000 rows that the design is taken as.
    error = np.sqrt(simulated.var(axis=0, ddof=1) * (1.0 + 1.25**2) / runs).max()
    within = 4.0 * error + 0.05

    def off(factor):
        found = forecast(of.with_budget(factor), population(kind), n, draws=runs).halves
        return float(np.abs(np.log(list(found.values())) - mean).max())

    assert off(1.0) < within
    assert within < 0.4
    # An organisation's noise hardly matters, as it has all records; of people's releases half the budget is another
    # answer, as a quarter of the rows of its mixtures is.
    if more in QUARTER:
        of = task(mu, kind=kind, protocol=protocol, more=QUARTER[more])
        assert off(1.0) > within
    elif protocol != "summaries":
        assert off(0.5) > within


MISSING = [
    ("scores", "binary", 5_000, 6.0, 12_000, 12, ""),
    ("moments", "real", 0, 8.0, 24_000, 20, ""),
    ("examples", "real", 0, 6.0, 24_000, 12, "examples: {release: joint}"),
    ("examples", "binary", 0, 6.0, 24_000, 12, "examples: {release: separate}"),
    ("examples", "binary", 0, 4.0, 24_000, 12, "examples: {release: cells, grid: 2, loss: log}"),
    ("summaries", "real", 0, 2.0, 12_000, 12, ""),
]


@pytest.mark.parametrize(("protocol", "kind", "public", "mu", "n", "runs", "more"), MISSING)
def test_half_widths_allow_for_missing_targets(protocol, kind, public, mu, n, runs, more):
    """As `test_half_widths_are_those_of_people_who_release`; a forecast of complete targets is too narrow."""
    of = task(mu, kind=kind, protocol=protocol, public=public, more=more, missing=0.2)
    simulated = np.log([halves(of, n, kind, seed) for seed in range(runs)])
    error = np.sqrt(simulated.var(axis=0, ddof=1) * (1.0 + 1.25**2) / runs).max()
    within = 4.0 * error + 0.05

    def off(missing):
        found = forecast(of, population(kind, missing), n, draws=runs).halves
        return float(np.abs(np.log(list(found.values())) - simulated.mean(axis=0)).max())

    assert off(0.2) < within < off(0.0)


def test_half_widths_of_newton_steps_are_those_of_an_organisation():
    """They vary by a third from run to run, as the first part's noise does: of 12 a mean is known to a tenth."""
    of = task(2.0, protocol="summaries", more="summaries: {method: newton, first: 3000, window: 12000}")
    simulated = np.mean([np.log(halves(of, 12_000, "binary", seed)) for seed in range(12)], axis=0)
    found = forecast(of, population("binary"), 12_000, draws=12).halves
    assert np.abs(np.log(list(found.values())) - simulated).max() < 0.4
    # Four windows of a quarter of the size tell less of each, and more together.
    more = np.array(list(forecast(of, population("binary"), 48_000, draws=5).halves.values()))
    assert np.all(more < 0.8 * np.exp(simulated))


def test_levels_are_mixed_as_they_are_said_to_be():
    of = Task.parse(
        "name: t\nfeatures: [{name: a, low: -1, high: 1}]\ntarget: {name: y, kind: binary, positive: 'yes'}\n"
        "protocol: examples\nexamples: {release: outer}\n"
        "privacy: {guarantee: {gdp: {mu: 1.0}}, levels: {open: {gdp: {mu: 4.0}}}}"
    )
    typical = designs(of, Effects())[0]
    half = {
        words: forecast(of, typical, 40_000, levels=levels).halves["a"]
        for words, levels in (("default", None), ("both", {"default": 1.0, "open": 1.0}), ("open", {"open": 1.0}))
    }
    assert half["open"] < half["both"] < half["default"] / 1.2


def test_half_widths_shrink_with_the_root_of_the_number_once_asymptotics_hold():
    of = task(2.0, protocol="examples")
    typical = designs(of, Effects())[0]
    few, many = (forecast(of, typical, n) for n in (250_000, 4_000_000))
    assert few.settled
    for name, half in few.halves.items():
        assert half / many.halves[name] == pytest.approx(4.0, rel=0.15), name


@pytest.mark.parametrize("rows", [0, 2_000])
def test_half_widths_outside_the_ball_are_those_of_the_coefficients_themselves(rows):
    """Sums of outer products give the residuals at any coefficients, so that the radius does not matter."""
    rng, found = np.random.default_rng(5), []
    X = np.column_stack([rng.uniform(-0.25, 0.25, (2_000, 2)), np.ones(2_000)])
    records = Records(X, X @ [2.5, -1.0, 0.0] + rng.uniform(-0.1, 0.1, 2_000), np.full(2_000, 1 / 2_000))
    for radius in (0.5, 20.0):
        own = Task.parse(
            "name: t\nfeatures: [{name: a, low: -1, high: 1}, {name: b, low: -1, high: 1}]\n"
            "target: {name: y, kind: real, low: -1, high: 1}\nprotocol: examples\nexamples: {release: outer}\n"
            f"learner: {{radius: {radius}}}\nprivacy: {{guarantee: {{gdp: {{mu: 12.0}}}}}}\n"
            + f"public: {{set_aside: {rows}}}"
            * bool(rows)
        )
        if rows:
            own = own.with_public(X, np.ones(rows, dtype=np.int64))
        drawn = examples.estimate(device_for(own), records, 20_000, {"default": 1.0}, 1, np.random.default_rng(6))
        found.append(drawn.half_widths())
    assert np.isfinite(found).all()
    assert found[0] == pytest.approx(found[1], rel=1e-6)


def test_a_feature_that_noise_hides_does_not_widen_the_others():
    """Residuals are those at the estimate, in which noise hides the second feature, whose coefficient is 30.

    Seeds are fixed. Half-widths of single draws differ by a standard deviation of about .35 on the log scale, and so
    medians of five by .28 at most: a factor 2.5 is 3.3 of them, a false alarm of 1% for four comparisons at most. At
    the coefficients without noise they differ by a factor 10.
    """
    rng = np.random.default_rng(5)
    X = np.column_stack([rng.uniform(-0.5, 0.5, 2_000), rng.uniform(-0.01, 0.01, 2_000), np.ones(2_000)])
    records = Records(X, X @ [0.3, 30.0, 0.0] + rng.uniform(-0.1, 0.1, 2_000), np.full(2_000, 1 / 2_000))
    own = Task.parse(
        "name: t\nfeatures: [{name: a, low: -1, high: 1}, {name: b, low: -1, high: 1}]\n"
        "target: {name: y, kind: real, low: -1, high: 1}\nprotocol: examples\nexamples: {release: outer}\n"
        "privacy: {guarantee: {gdp: {mu: 4.0}}}\n"
    )
    device = device_for(own)
    forecasts, engines = [], []
    for seed in range(5):
        drawn = examples.estimate(device, records, 20_000, {"default": 1.0}, 1, np.random.default_rng(seed))
        forecasts.append(drawn.half_widths())
        engine, people = device.engine(), np.random.default_rng(seed).integers(2_000, size=20_000)
        engine.learn_records(records.X[people], records.y[people], [device.mechanisms["default"]])
        engines.append(engine.estimate().half_widths())
    assert np.isinf(np.array(forecasts)[:, 1]).all()
    wide, real = np.median(forecasts, axis=0)[[0, 2]], np.median(engines, axis=0)[[0, 2]]
    assert (wide < 2.5 * real).all()
    assert (real < 2.5 * wide).all()


def test_what_is_not_to_be_learned_is_said():
    of = task(0.1)
    found = forecast(of, designs(of, Effects())[0], 3_000)
    assert not found.learned
    assert found.why
    assert math.isinf(found.points)
    assert "hardly anything can be learned" in outlook(of, 3_000)
    # Before asymptotics hold one draw differs from the next.
    assert not forecast(task(1.0), designs(task(1.0), Effects())[0], 20_000).settled


@pytest.mark.parametrize(
    ("spread", "more"), [(0.01, 0), (0.07, 9), (0.2, 0)], ids=["known", "settled and not known", "not settled"]
)
def test_medians_of_settled_half_widths_are_drawn_until_they_are_known(monkeypatch, spread, more):
    """Every other draw is `spread` above 1, and below: of 0.07 a median of five is known to 0.044, and of fourteen to
    0.024."""
    made = []

    def half_widths(level):
        made.append(level)
        return np.full(2, 1.0 + spread * (-1.0) ** len(made))

    one = SimpleNamespace(names=("a", "b"), half_widths=half_widths)
    monkeypatch.setattr(module, "_steps", lambda task, records, counts, *_: [lambda: one for _ in counts])
    monkeypatch.setattr(module, "_effects", lambda *_: np.zeros(0))
    of = task()
    forecast(of, designs(of, Effects())[0], 1_000)
    assert len(made) == DRAWS + more


def test_one_line_is_said_of_what_is_forecast_in_a_moment():
    large, small = 100_000, 1_000
    wide = {name: Task.parse(WIDE.format(protocol=name)) for name in ("scores", "moments", "gradients")}
    assert outlook(wide["scores"], small) is None
    # There is time for one draw, which does not tell how much draws differ.
    assert "average effects roughly" in outlook(wide["scores"], large)
    assert outlook(wide["gradients"], small) is None
    assert "average effects roughly" in outlook(wide["gradients"], large)
    assert "average effects about" in outlook(task(8.0), large)
    assert "they differ from run to run" in outlook(task(1.0), 25_000)
    partitions = WIDE.format(protocol="scores") + "\nlog: {partitions: 2}"
    assert outlook(Task.parse(partitions), large) == outlook(wide["scores"], large)
    assert outlook(Task.parse(partitions + "\nscores: {models: per-partition}"), large) is None


def test_what_has_no_interval_at_all_says_why_and_what_does():
    names = ", ".join(f"{{name: x{j}, low: -1, high: 1}}" for j in range(70))
    of = Task.parse(
        f"name: t\nfeatures: [{names}]\ntarget: {{name: y, kind: real, low: 0, high: 1}}\nprotocol: examples\n"
        "examples: {release: directions}\nprivacy: {guarantee: {gdp: {mu: 4.0}}}"
    )
    found = forecast(of, designs(of, Effects())[0], 100_000, draws=1)
    assert not found.learned
    assert "release: outer" in found.why
    mixed = task(2.0, protocol="summaries", more="summaries: {method: mixing, rows: 100}")
    assert "sketch has 100 rows" in forecast(mixed, population(), 99, draws=1).why
    assert forecast(mixed, population(), 20_000, draws=1).learned
    with pytest.raises(UserError, match="at least 1"):
        forecast(task(), designs(task(), Effects())[0], 0)


def test_draws_without_a_solution_learn_nothing(monkeypatch):
    of, drawn = task(4.0, kind="binary", protocol="examples"), iter([True, False, False] * 2)
    solved = examples.estimate

    def solve(*arguments):
        if next(drawn):
            return solved(*arguments)
        raise MurkError("nothing can be solved")

    monkeypatch.setattr(examples, "estimates", one_by_one(solve))
    found = forecast(of, population("binary"), 24_000, draws=3)
    assert not found.learned
    assert not found.settled
    monkeypatch.setattr(examples, "estimates", one_by_one(solved))
    assert forecast(of, population("binary"), 24_000, draws=3).learned


def test_several_numbers_of_people_are_read_off_one_path():
    """The same people first: what so many tell does not depend on how many follow, but for the draw's seed."""
    of = task(2.0, kind="binary")
    typical = designs(of, Effects())[0]
    made = forecasts(of, typical, [40_000, 10_000], draws=3, more=False)
    assert list(made) == [10_000, 40_000]
    alone = forecast(of, typical, 40_000, draws=3, more=False)
    assert made[40_000].people == 40_000
    # The whole path is that of its largest number, stopped on the way: draws differ, and half widths by a tenth.
    assert made[40_000].points == pytest.approx(alone.points, rel=0.35)
    assert made[10_000].points > made[40_000].points


def test_the_line_before_a_run_says_what_it_assumes():
    of = task(8.0, kind="binary")
    assert "Assumed: 50% of the targets positive, a guess (state target: {rate: ...} or --rate)" in outlook(of, 100_000)
    stated = outlook(of, 100_000, rate=0.06)
    assert "Assumed: 6% of the targets positive, as stated" in stated
    assert "20% of the targets missing" in outlook(task(8.0, missing=0.2), 100_000)
    assert stated.partition(". Assumed")[0] != outlook(of, 100_000).partition(". Assumed")[0]


@pytest.mark.parametrize(("kind", "query"), [(kind, each) for kind in ("binary", "real") for each in QUERIES])
def test_scores_are_added_up_as_devices_release_them(kind, query):
    """At any model, that of people beyond its reach too; at another one they are others."""
    rng, engine = np.random.default_rng(3), device_for(task(kind=kind)).engine()
    records = population(kind, missing=0.2).records
    p = records.X.shape[1]
    first = Model(np.zeros(p), np.eye(p), 1.3, 1.0, 0.2, 0.2)
    for model in (first, Model(rng.normal(size=p), rng.normal(size=(p, p)), 1.3, 0.5, 0.2, 0.2)):
        released = vectors(records.X, records.y, model, engine.settings.response, query)
        if query != "score":
            released = flattened(released[:, :, None] * released[:, None, :])
        asked = SimpleNamespace(model=model, settings=engine.settings)
        assert planned_answers(asked, records, query) == pytest.approx(released, abs=1e-12)
    asked = SimpleNamespace(model=first, settings=engine.settings)
    assert not np.allclose(planned_answers(asked, records, query), released)


def test_a_step_of_gradients_may_stand_for_several_people(monkeypatch):
    """A third of the steps gives the half widths of all, up to 5 standard errors; a third of the people does not."""
    of, n = task(4.0, protocol="gradients", public=1_000), 24_000

    def logarithms(people):
        return np.log([list(forecast(of, population(), people, seed=at).halves.values()) for at in range(4)])

    every = logarithms(n)
    monkeypatch.setattr("murk.protocols.gradients.forecast.MOST", n // 3)
    fewer = logarithms(n)
    error = math.sqrt((every.var(axis=0, ddof=1) + fewer.var(axis=0, ddof=1)).max() / len(every))
    assert np.abs(fewer.mean(axis=0) - every.mean(axis=0)).max() < 5.0 * error + 0.02
    assert np.abs(logarithms(n // 3).mean(axis=0) - every.mean(axis=0)).max() > 5.0 * error + 0.02
