"""Displays say at which looks their intervals hold, and contrasts have evidence that may be watched."""

import math
from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest

import murk
from murk import Task
from murk._internal.numbers import number
from murk.errors import UserError
from murk.inference.average_effects import marginal_effects
from murk.inference.confidence_sequences import Looks, critical_values, evidence, looks_of, sequence_half_widths
from murk.inference.contrasts import contrasts, errors_from_zero
from murk.inference.estimate import RANDOM_SCALING, Estimate, People
from murk.monitoring import Monitor
from murk.monitoring.figures import Place, _keeps, figures
from murk.privacy.noise import SimulatedNoise
from murk.protocols.device import device_for
from murk.results.report import report_log
from murk.results.result import Result
from murk.results.text import as_text, contrast_table, describe_learned
from murk.stream import open_log
from murk.stream.wire.state import Counters, StateMessage

TASK = """
name: trial
features: [{name: arm, categories: [a, b, c]}, {name: age, low: 20, high: 60}]
target: {name: days, kind: real, low: 0, high: 10}
protocol: moments
contrasts: [{feature: arm, category: b, against: a}, {feature: arm, category: c, against: b}]
privacy: {guarantee: {gdp: {mu: 4.0}}}
"""
PEOPLE = 6_000


def people(seed=1):
    rng = np.random.default_rng(seed)
    arms = rng.integers(0, 3, PEOPLE)
    days = np.clip(5 + 1.5 * (arms == 1) + rng.normal(0, 1.5, PEOPLE), 0, 10)
    ages = rng.integers(20, 60, PEOPLE)
    return [{"arm": "abc"[arm], "age": age, "days": day} for arm, age, day in zip(arms, ages, days, strict=True)]


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    """A log in which a trial was learned."""
    folder = tmp_path_factory.mktemp("looks")
    place = f"sqlite:///{folder / 'log.db'}"
    murk.run(Task.parse(TASK), people(), seed=1, log=place, ledger=folder / "ledger.db")
    return place


def reported(url, **more):
    with open_log(url, create=False) as log:
        return report_log(Task.from_document(log.document()), log, **more)


def estimated(**more):
    covariance = np.array([[0.04, 0.01, 0.0, 0.0], [0.01, 0.09, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
    names, values = ("arm=b", "arm=c", "age", "intercept"), np.array([0.5, 0.1, 0.0, 0.0])
    spread = np.sqrt(np.diag(covariance))
    return replace(Estimate(names, values, "plug-in", spread, "", 1, 50_000, covariance), **more)


@pytest.mark.parametrize(
    ("keys", "count", "live", "asked", "valid", "why"),
    [
        ("", 50_000, True, None, "always-valid", ""),
        ("", 50_000, False, None, "fixed-n", ""),
        ("", 50_000, True, "fixed-n", "fixed-n", "as asked"),
        ("intervals: {validity: always-valid}", 50_000, False, None, "always-valid", ""),
        ("intervals: {validity: fixed-n}", 50_000, True, None, "fixed-n", "as the task states"),
        ("intervals: {validity: fixed-n}", 50_000, True, "always-valid", "always-valid", ""),
        ("people: 50000", 49_999, True, None, "always-valid", ""),
        ("people: 50000", 50_000, True, None, "fixed-n", "the task has ended at its 50,000 people"),
        ("people: 50000", 50_501, True, None, "always-valid", ""),
        ("people: 50000\nintervals: {validity: always-valid}", 50_000, True, None, "always-valid", ""),
        (
            "forget: 24000",
            50_000,
            True,
            "always-valid",
            "fixed-n",
            "old releases are forgotten, so that the estimated coefficients may change",
        ),
    ],
)
def test_which_looks_intervals_hold_at(keys, count, live, asked, valid, why):
    protocol = "scores" if "forget" in keys else "moments"
    task = Task.parse(TASK.replace("moments", protocol) + keys)
    looks = looks_of(task, estimated(), count, live=live, asked=asked)
    assert looks.validity == valid
    assert looks.why.startswith(why)
    assert bool(looks.why) == bool(why)


def test_a_live_experiment_keeps_its_sequences_at_its_stated_size():
    """Its chart would else end with another kind of interval, and its words with a difference that was not there."""
    task = Task.parse("""
name: checkout
features: [{name: arm, categories: [a, b], known: true}]
target: {name: bought, kind: binary, positive: "yes"}
experiment: {arm: arm, control: a}
people: 50000
privacy: {guarantee: {gdp: {mu: 1.0}}}
""")
    live, ended, asked = (
        looks_of(task, estimated(), 50_000, live=live, asked=asked).validity
        for live, asked in ((True, None), (False, None), (True, "fixed-n"))
    )
    assert (live, ended, asked) == ("always-valid", "fixed-n", "fixed-n")


def test_a_monitor_keeps_sequences_of_nearly_as_many_releases_only():
    """Counted from where they were computed: a stream of many small steps is followed."""
    task = Task.parse(TASK)
    first = figures(task, device_for(task), [None], [Place(0, 0)])
    before = replace(first, sequence_count=10_000, looks=replace(first.looks, count=10_090), half_widths=(0.5,) * 4)
    now, halves = replace(first.looks, count=10_099), (0.5, 0.4, 0.5, 0.5)
    assert _keeps(before, now, halves, first.alike)
    assert not _keeps(before, replace(now, count=10_101), halves, first.alike)
    assert not _keeps(before, replace(now, count=9_999), halves, first.alike)
    assert not _keeps(before, replace(now, validity="fixed-n"), halves, first.alike)
    assert not _keeps(before, now, (0.5, 0.4, 0.5, np.inf), first.alike)
    assert not _keeps(before, now, halves, False)


def test_a_monitor_follows_a_stream_of_small_steps():
    """Each of 40 polls finds half a percent more releases: what was kept is of at most 1% fewer."""
    task = Task.parse(TASK)
    device = device_for(task)
    engine, rng, found = device.engine(), np.random.default_rng(3), None

    def learn(first, count):
        X = np.c_[rng.choice([-1.0, 1.0], (count, 2)), rng.uniform(-1, 1, count), np.ones(count)]
        vectors = device.vectors(X, 0.03 * X[:, 0], None)
        rows = np.arange(first, first + count)
        engine.learn_payloads(device.mechanisms["default"].randomize(vectors, SimulatedNoise(1), rows), "default")
        message = StateMessage(
            task=task.hash, identity="x", partition=0, offset=engine.n_releases, last_id=None,
            counters=Counters(learned=engine.n_releases), learner=engine.state_dict(),
        )  # fmt: skip
        return figures(task, device, [message], [Place(0, 0)], before=found)

    found = start = learn(0, 10_000)
    for _ in range(40):
        found = learn(engine.n_releases, engine.n_releases // 200)
        assert 0.99 <= found.sequence_count / engine.n_releases <= 1.0
    fresh = sequence_half_widths(np.array([found.half_widths]), np.array([engine.n_releases]), task.tightest_at)[0]
    assert found.sequence_half_widths == pytest.approx(fresh, rel=0.02)
    assert max(found.sequence_half_widths) < 0.95 * max(start.sequence_half_widths)
    assert found.contrasts[0].value == pytest.approx(
        contrasts(task, device.estimate([engine]), found.looks)[0].value, rel=0.05
    )


def test_random_scaling_holds_at_one_look_only():
    looks = looks_of(Task.parse(TASK), estimated(method=RANDOM_SCALING), 50_000, live=True)
    assert (looks.validity, looks.why) == ("fixed-n", "random scaling estimates no covariance")


def test_a_sequence_is_as_much_wider_as_the_boundary_says(url):
    watched, once = reported(url, live=True), reported(url)
    assert watched["fixed_intervals"] == once["confidence_intervals"]
    z = critical_values(np.array([PEOPLE / 100_000]))[0]
    for name, (low, high) in once["confidence_intervals"].items():
        least, most = watched["confidence_intervals"][name]
        # Levels above 95% have a larger factor near the noise, which at these distances is below .2%.
        assert 1.0 - 1e-6 < (most - least) / (high - low) / (z / 1.959964) < 1.002
        assert most + least == pytest.approx(high + low)
    assert watched["interval"]["looks"]["words"] == "95% at every look"
    text = " ".join(as_text(describe_learned(watched)).split())
    assert "95% at every look: with a probability of 95% an interval holds the truth at all looks together" in text
    assert "95% at this look only: an interval that is looked at" in " ".join(as_text(describe_learned(once)).split())


def test_the_monitor_shows_what_status_says(url):
    watched = reported(url, live=True)
    with open_log(url, create=False) as log:
        task = Task.from_document(log.document())
        with pytest.raises(UserError, match="leg: no coefficient"):
            Monitor(log, task, known_within={"leg": 0.1})
        with pytest.raises(UserError, match="half-width; give a finite one above 0"):
            Monitor(log, task, known_within={"age": 0.0})
        monitor = Monitor(log, task, known_within={"arm=b": 0.25})
        assert monitor.poll()
        status = monitor.status()
        values = {
            name: monitor.registry.get_sample_value(f"murk_parameter_{name}", {**labels, "level": "0.95"})
            for name in ("half_width", "sequence_half_width")
            for labels in [{"task": "trial", "name": "arm=b"}]
        }
        e_value = monitor.registry.get_sample_value(
            "murk_contrast_e_value", {"task": "trial", "contrast": "arm: b against a"}
        )
        known = {
            name: monitor.registry.get_sample_value("murk_parameter_known_within", {"task": "trial", "name": name})
            for name in ("arm=b", "age")
        }
        monitor.close()
    assert known == {"arm=b": 0.25, "age": None}
    low, high = watched["confidence_intervals"]["arm=b"]
    assert status["estimate"]["half_widths"][0] == pytest.approx((high - low) / 2)
    assert values["sequence_half_width"] == pytest.approx((high - low) / 2)
    assert values["half_width"] == pytest.approx(status["estimate"]["fixed_half_widths"][0])
    assert status["history"]["half_widths"]["arm=b"][-1] == pytest.approx((high - low) / 2)
    assert status["estimate"]["looks"] == watched["interval"]["looks"]
    assert status["estimate"]["contrasts"][0]["e_value"] == watched["contrasts"][0]["e_value"] == e_value


def test_a_trial_is_decided(url):
    """The true difference of b and a is 1.5 days, which 6,000 people tell from none.

    The other interval holds -1.5 with a probability of at least 95% (fixed seed).
    """
    first, second = reported(url, live=True)["contrasts"]
    assert first["name"] == "arm: b against a"
    assert first["interval"][0] > 0
    assert first["p_value"] < 1e-3
    assert second["interval"][0] < -1.5 < second["interval"][1]
    # The twin: with no sign of a difference there is no evidence.
    assert reported(url, live=True, looks="fixed-n")["contrasts"][1]["p_value"] > first["p_value"]


def test_a_notebook_has_the_contrasts(url):
    result = Result(reported(url, live=True))
    words = f"arm: b against a: effect {number(result.contrasts['arm: b against a'].value)}, 95% at every look "
    assert words in result._repr_html_()
    assert result.looks == "95% at every look"
    assert "Contrasts: p-values and e-values hold at every look" in str(result)


def test_contrasts_are_sums_of_coefficients():
    """Two categories: one coefficient, times the unit. Two others: their difference, with its own standard error."""
    task, looks = Task.parse(TASK), Looks("always-valid", 100_000, 50_000)
    first, second = contrasts(task, estimated(), looks)
    # Half of the range of days times the distance 2 of the two values.
    assert first.value == pytest.approx(0.5 * 10)
    z = critical_values(np.array([0.5]))[0]
    assert first.value - first.interval[0] == pytest.approx(z * 0.2 * 10)
    assert first.interval[1] == 10  # cut to the range of days
    assert second.value == pytest.approx((0.1 - 0.5) * 10)
    assert second.interval[1] - second.value == pytest.approx(z * math.sqrt(0.04 + 0.09 - 0.02) * 10)
    assert math.log(first.e_value) == pytest.approx(evidence(0.5 / 0.2, 0.5))
    assert first.p_value == min(1.0, 1.0 / first.e_value)
    # Without a covariance: both intervals together, at a level that holds for both (Bonferroni).
    _, apart = contrasts(task, estimated(covariance=None), Looks("fixed-n", 100_000, 50_000))
    wide = NormalDist().inv_cdf(1 - 0.05 / 4)
    assert apart.interval[1] - apart.value == pytest.approx(wide * (0.2 + 0.3) * 10)


def test_no_evidence_where_it_would_not_hold_at_every_look():
    task = Task.parse(TASK.replace("moments", "scores") + "forget: 24000")
    found = contrasts(task, estimated(), looks_of(task, estimated(), 50_000, live=True))
    assert [each.p_value for each in found] == [each.e_value for each in found] == [None, None]
    told = {"contrasts": [each.to_dict() for each in found], "odds_ratios": False, "chances": False}
    fixed = {"interval": {"method": "scores", "level": 0.95, "note": ""}, "confidence_intervals": {}}
    assert as_text(contrast_table(told | fixed)).startswith("\nContrasts, without a valid p-value\n")


def test_a_contrast_of_two_categories_is_the_categorys_effect():
    task = Task.parse(TASK.replace("moments", "scores").replace("days, kind: real, low: 0, high: 10",
                                                               "well, kind: binary, positive: yes"))  # fmt: skip
    rows = np.array([[a, b, c, 1.0] for a in (-1, 1) for b in (-1, 1) for c in (-1.0, 1.0)])
    estimate = estimated(people=People(rows, np.full(8, 1 / 8), sampled=True))
    values, halves = marginal_effects(estimate, 0.95)
    [first, second] = contrasts(task, estimate, Looks("fixed-n", 100_000, 50_000))
    assert first.odds_ratio == pytest.approx(math.exp(1.0))
    assert first.average_effect == pytest.approx(200 * values[0])
    assert first.average_effect_interval[1] - first.average_effect == pytest.approx(200 * halves[0])
    assert second.average_effect == pytest.approx(200 * (values[1] - values[0]))


def test_the_opposite_contrast_is_the_opposite():
    swapped = TASK.replace("category: c, against: b", "category: b, against: c")
    [*_, one], [*_, other] = (
        contrasts(Task.parse(text), estimated(), Looks("always-valid", 100_000, 50_000)) for text in (TASK, swapped)
    )
    assert (one.value, one.e_value) == (pytest.approx(-other.value), pytest.approx(other.e_value))


@pytest.mark.parametrize("grows", [lambda z: z + z * z / 4, lambda z: z / 2 + 2, lambda z: z * 1.5])
def test_evidence_of_intervals_that_are_not_normal(grows):
    """Intervals that grow faster than normal, allow for a bias, or are normal: all exclude 3 up to a quantile of 2.

    What is returned excludes zero, too, and is hardly below.
    """
    normal = NormalDist()

    def interval(level):
        return 3.0, grows(normal.inv_cdf(0.5 + level / 2))

    for levels in ([0.8, 0.95], [0.95, 0.999], [0.97, 0.999]):
        assert 1.9 < errors_from_zero(interval, levels) <= 2.0 + 1e-6
    assert errors_from_zero(lambda level: (3.0, math.inf), [0.95, 0.999]) == 0.0
    assert errors_from_zero(lambda level: (0.0, 0.0), [0.95, 0.999]) == 0.0
