"""Metrics beside the target of an experiment: one is drawn for each release; their lifts, and those of ratios."""

import json
import math
from types import SimpleNamespace

import numpy as np
import pytest

import murk
from murk import Task
from murk.audit.neighbours import worst_neighbours
from murk.audit.release_distributions import distribution_of
from murk.errors import UserError
from murk.inference import experiments as inference
from murk.inference.confidence_sequences import Looks
from murk.inference.experiments import _absent, difference_interval, experiment
from murk.monitoring import Monitor
from murk.planning.experiments import false_alarms, plan_experiment
from murk.privacy.noise import SimulatedNoise
from murk.producers import Ledger, Policy, Producer
from murk.protocols.device import device_for
from murk.results.fit import model_device_for
from murk.results.report import report_log
from murk.stream import Worker, open_log
from murk.stream.wire.codec import RejectedError
from murk.stream.wire.releases import TargetRelease
from murk.task.models import Model

METRICS = """
  metrics:
    - {name: amount, kind: real, low: 0, high: 40, missing_share: 0}
    - {name: orders, kind: real, low: 0, high: 8}
    - {name: returned, kind: binary, positive: "yes", negative: "no"}
  guardrail: {metric: returned, margin: 0.2, worse: higher}
"""
TASK = f"""
name: checkout
features:
  - {{name: arm, categories: [control, treatment], known: true}}
  - {{name: platform, categories: [web, ios], known: true}}
target: {{name: bought, kind: binary, positive: "yes", negative: "no", missing_share: 0}}
experiment:
  arm: arm
  control: control
  assigned: {{by: server, shares: [0.5, 0.5]}}
{METRICS}
privacy: {{guarantee: {{GUARANTEE}}}}
"""
ORDERS = "name: orders, kind: real, low: 0, high: 8"
RATIO = "ratios: [{name: amount per order, numerator: amount, denominator: orders}]"
GUARANTEES = ("pure: {epsilon: 4.0}", "gdp: {mu: 1.0}", "gdp: {mu: 3.0}")


def task(guarantee=GUARANTEES[0], old="", new=""):
    return Task.parse(TASK.replace("GUARANTEE", guarantee).replace(old, new, 1))


def ratio_task(guarantee=GUARANTEES[0], old="", new=""):
    """Return the task with the amount per order, of orders that everybody has."""
    own = TASK.replace("GUARANTEE", guarantee).replace(ORDERS, f"{ORDERS}, missing_share: 0")
    return Task.parse(own.replace("  guardrail", f"  {RATIO}\n  guardrail").replace(old, new, 1))


def coded(rng, count):
    """Return coded records, whose arm adds 10% to orders, and 20% to the amount of each; some orders are missing."""
    arm, platform = rng.integers(2, size=count), rng.integers(2, size=count)
    orders = np.minimum(rng.poisson(2.0 * (1.0 + 0.1 * arm)), 8)
    amount = np.minimum(3.0 * orders * (1.0 + 0.2 * arm), 40.0)
    returned = (rng.random(count) < 0.1).astype(float)
    known = np.where(rng.random(count) < 0.1, math.nan, orders / 4.0 - 1.0)
    X = np.column_stack([2 * arm - 1, 2 * platform - 1, amount / 20.0 - 1.0, known, returned, np.ones(count)])
    return X, (rng.random(count) < 0.3 + 0.1 * arm).astype(float)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("name: returned", "name: platform", r"experiment.metrics\[2\].name: 'platform' is a feature too"),
        ("name: returned", "name: bought", r"experiment.metrics\[2\].name: 'bought' is the target too"),
        ("name: returned", "name: orders", r"experiment.metrics\[2\].name: 'orders' is a metric too"),
        ("metric: returned", "metric: back", "experiment.guardrail.metric: 'back' is neither the target nor a metric"),
        ("high: 8", "high: 8, quantiles: [0.5]", "a metric is learned as a mean; remove it"),
        (
            'binary, positive: "yes", negative: "no"}\n  g',
            "classes, classes: [a, b]}\n  g",
            "a metric is binary or real",
        ),
        (
            "guarantee: {pure: {epsilon: 4.0}}",
            "guarantee: {pure: {epsilon: 4.0}}, window: week, repeat: same",
            "experiment.metrics: with privacy.repeat: same, .* on metrics that are not drawn; remove the metrics",
        ),
    ],
)
def test_refused_with_remedy(old, new, words):
    with pytest.raises(UserError, match=words):
        task(old=old, new=new)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            "denominator: orders",
            "denominator: order",
            r"experiment.ratios\[0\].denominator: 'order' is neither .*; did",
        ),
        ("denominator: orders", "denominator: amount", r"ratios\[0\].denominator: 'amount' is divided by itself"),
        (
            "denominator: orders",
            "denominator: returned",
            "'returned' may be missing, .* missing_share: 0 if every person",
        ),
        ("numerator: amount", "numerator: returned", r"ratios\[0\].numerator: 'returned' may be missing"),
        ("low: 0, high: 8", "low: -1, high: 8", r"'orders' may be negative \(low: -1\); name one with a low of 0"),
        ("name: amount per order", "name: orders", r"experiment.ratios\[0\].name: 'orders' is a name already"),
        (
            "privacy: {",
            "privacy: {levels: {low: {pure: {epsilon: 1}}}, ",
            "would weigh levels differently; remove the ra",
        ),
        (
            "privacy: {",
            "shuffle: {promise: {delta: 1.0e-6}, crowd: 1000}\nprivacy: {",
            "ratios are not adjusted for them",
        ),
    ],
)
def test_ratios_are_refused_with_remedy(old, new, words):
    with pytest.raises(UserError, match=words):
        ratio_task(old=old, new=new)


def test_documents_keep_metrics_and_omit_them_where_there_are_none():
    own = task()
    assert Task.from_document(own.document()) == own
    assert [each.name for each in own.metrics] == ["amount", "orders", "returned"]
    plain = json.loads(task(old=METRICS, new="").document())["experiment"]
    assert not plain.keys() & {"metrics", "ratios"}
    assert [each.name for each in Task.from_document(ratio_task().document()).experiment.ratios] == ["amount per order"]


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_release_is_of_one_metric_alone(guarantee):
    own = task(guarantee)
    device = device_for(own)
    mechanism = device.mechanisms["default"]
    X, y = coded(np.random.default_rng(1), 400)
    X[:, :2] = 1.0
    vectors, records = device.vectors(X, y), np.arange(400)
    payloads = mechanism.randomize(vectors, SimulatedNoise(3), records)
    assert (payloads[:, 1] == payloads[0, 1]).all()
    # Of 400 fair draws of four, each is within 6 standard deviations of 100.
    assert np.bincount(payloads[:, 0], minlength=4) == pytest.approx(100, abs=52)
    for number in range(4):
        changed = vectors.copy()
        changed[:, 1 + number] = 0.0 if number in (0, 3) else 1.0 - np.clip(changed[:, 1 + number], 0.0, 1.0)
        others = payloads[:, 0] != number
        again = mechanism.randomize(changed, SimulatedNoise(3), records)
        assert (again[others] == payloads[others]).all()
        assert (again[~others] != payloads[~others]).any()
    assert mechanism.holds(payloads)
    assert all(mechanism.cost("gdp").units >= part.cost("gdp").units for part in mechanism.parts)


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_forged_releases_are_rejected(guarantee):
    device = device_for(task(guarantee))
    engine, mechanism = device.engine(), device.mechanisms["default"]
    X, y = coded(np.random.default_rng(1), 60)
    payloads = mechanism.randomize(device.vectors(X, y), SimulatedNoise(1), np.arange(60)).tolist()

    def release(payload):
        common = {"id": "0" * 32, "task": "f" * 64, "level": "default", "partition": 0, "time": 0, "expires": 9}
        return TargetRelease(**common, payload=payload)

    shortest = min(range(4), key=lambda number: mechanism.parts[number].dimension)
    honest = next(each for each in payloads if each[0] == shortest)
    engine.admit(release(honest))
    for payload in (
        [4, *honest[1:]],
        [-1, *honest[1:]],
        [honest[0], 9, *honest[2:]],
        [*honest[:-1], 1 << 60],
        honest[:-1],
        [*honest, 0],
    ):
        with pytest.raises(RejectedError):
            engine.admit(release(payload))


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("platform", [", known: true", ""])
def test_audited_pairs_differ_in_all_metrics(guarantee, platform):
    own = task(guarantee, "[web, ios], known: true", f"[web, ios]{platform}")
    device = device_for(own)
    mechanism = device.mechanisms["default"]
    pair = worst_neighbours(own, device, mechanism, np.random.default_rng(1))
    assert pair.first["arm"] == pair.second["arm"]
    assert pair.first["platform"] == pair.second["platform"] or not platform
    # Of products a private platform may tell more than all metrics together.
    names = ("bought", "amount", "orders", "returned")
    assert not platform or all(pair.first[name] != pair.second[name] for name in names)
    columns = {name: [pair.first[name], pair.second[name]] for name in own.coding.all_columns}
    block = own.coding.encode(columns)
    vectors, distribution = device.vectors(block.x, block.y), distribution_of(mechanism)
    centres = distribution.centres(vectors)
    drawn = mechanism.randomize(np.tile(vectors[:1], (4_000, 1)), SimulatedNoise(5), np.arange(4_000))
    losses = distribution.losses(drawn, *centres)
    # The mean of the likelihood ratio of the other input is 1: a standard error of its 4,000 draws is measured.
    ratios = np.exp(-losses)
    assert ratios.mean() == pytest.approx(1.0, abs=6.0 * ratios.std() / math.sqrt(4_000))
    if "pure" in guarantee:
        assert np.abs(losses).max() <= mechanism.guarantee.epsilon + 1e-9
        assert np.abs(losses).max() > 3.9


def state(own, device, X, y, seed):
    engine = device.engine()
    mechanism = device.mechanisms["default"]
    engine.add(mechanism.randomize(device.vectors(X, y), SimulatedNoise(seed), np.arange(len(y))), "default")
    return experiment(own, engine.estimate(), Looks("fixed-n", own.tightest_at, len(y)))


@pytest.mark.parametrize("guarantee", GUARANTEES[:2])
def test_intervals_of_metrics_hold(guarantee):
    own = task(guarantee)
    device, rng, runs = device_for(own), np.random.default_rng(11), 60
    X, y = coded(np.random.default_rng(12), 400_000)
    arm, amount, orders = X[:, 0] > 0.0, 20.0 * (X[:, 2] + 1.0), 4.0 * (X[:, 3] + 1.0)
    means = {each: (amount[arm == each].mean(), np.nanmean(orders[arm == each])) for each in (False, True)}
    truth = [means[True][0] - means[False][0], means[True][1] - means[False][1], 0.0]
    relative = means[True][0] / means[False][0] - 1.0
    missed, wrong, finite = np.zeros(4), np.zeros(4), np.zeros(4)
    for run in range(runs):
        X, y = coded(rng, 12_000)
        lifts = [metric.lifts[0] for metric in state(own, device, X, y, run).metrics]
        pairs = [(lift.interval, value) for lift, value in zip(lifts, truth, strict=True)]
        pairs.append((lifts[0].relative_interval, 100.0 * relative))
        for index, ((low, high), value) in enumerate(pairs):
            finite[index] += math.isfinite(low + high)
            missed[index] += not low <= value <= high
            # As if all were the middle of the range off.
            wrong[index] += not low <= value + 0.9 * (high - low) <= high
    # Misses of 5/3% each: more than 6 of 60 with a probability below 1e-3 for all eight of this test.
    assert (missed <= 6).all()
    assert (wrong > 30).all()
    assert (finite == runs).all()


@pytest.mark.parametrize("guarantee", GUARANTEES[:2])
def test_intervals_of_ratios_hold(guarantee):
    """They divide means of different people, of whom a tenth is in the arm."""
    own = ratio_task(guarantee.replace("mu: 1.0", "mu: 2.0"))
    device, rng, runs = device_for(own), np.random.default_rng(13), 60

    def people(count, rng):
        X, y = coded(rng, count)
        X[np.isnan(X[:, 3]), 3] = -1.0
        chosen = (X[:, 0] < 0.0) | (rng.random(count) < 0.25)
        return X[chosen], y[chosen]

    X, _ = people(400_000, rng)
    arm, amount, orders = X[:, 0] > 0.0, 20.0 * (X[:, 2] + 1.0), 4.0 * (X[:, 3] + 1.0)
    base, ratio = (amount[arm == each].sum() / orders[arm == each].sum() for each in (False, True))
    truth, relative = ratio - base, 100.0 * (ratio / base - 1.0)
    missed, wrong, finite = np.zeros(2), np.zeros(2), np.zeros(2)
    for run in range(runs):
        X, y = people(40_000, rng)
        lifts = state(own, device, X, y, run).metrics[-1]
        assert (lifts.name, lifts.unit, lifts.adjusted) == ("amount per order", "units", False)
        (lift,) = lifts.lifts
        for index, (value, (low, high)) in enumerate(((truth, lift.interval), (relative, lift.relative_interval))):
            finite[index] += math.isfinite(low + high)
            missed[index] += not low <= value <= high
            # As if it were the middle of the range off.
            wrong[index] += not low <= value + 0.9 * (high - low) <= high
    own = ratio_task(guarantee)
    (lift,) = state(own, device_for(own), X[:300], y[:300], 1).metrics[-1].lifts
    assert lift.interval == (-math.inf, math.inf)
    # Misses of 5/4% each: more than 5 of 60 with a probability below 1e-3 for all four of this test.
    assert (missed <= 5).all()
    assert (wrong > 30).all()
    assert (finite == runs).all()


def test_intervals_of_metrics_beside_private_features_hold():
    own = ratio_task("gdp: {mu: 4.0}", "[web, ios], known: true", "[web, ios]")
    device, rng, runs = device_for(own), np.random.default_rng(17), 20
    assert {part.dimension for part in device.mechanisms["default"].parts} == {7}
    X, _ = coded(rng, 400_000)
    orders = 4.0 * (np.where(np.isnan(X[:, 3]), -1.0, X[:, 3]) + 1.0)
    arm, amount = X[:, 0] > 0.0, 20.0 * (X[:, 2] + 1.0)
    means = [(amount[arm == each].mean(), orders[arm == each].mean()) for each in (False, True)]
    differences = [after - before for before, after in zip(*means, strict=True)]
    truth = [*differences, 0.0, means[1][0] / means[1][1] - means[0][0] / means[0][1]]
    missed, wrong = np.zeros(4), np.zeros(4)
    for run in range(runs):
        X, y = coded(rng, 12_000)
        X[np.isnan(X[:, 3]), 3] = -1.0
        for index, (metric, value) in enumerate(zip(state(own, device, X, y, run).metrics, truth, strict=True)):
            low, high = metric.lifts[0].interval
            missed[index] += not low <= value <= high
            # As if it were the middle of the range off.
            wrong[index] += not low <= value + 0.9 * (high - low) <= high
    # Misses of 5/4% each: more than 3 of 20 with a probability below 1e-3 for all four.
    assert (missed <= 3).all()
    assert (wrong > 10).all()


def test_difference_intervals_of_normal_estimates_are_the_usual_ones():
    low, high = difference_interval(2.0, 1.0, (2.0 - 1.96, 2.0 + 1.96), (1.0 - 1.96, 1.0 + 1.96))
    assert (low, high) == pytest.approx((1.0 - 1.96 * math.sqrt(2.0), 1.0 + 1.96 * math.sqrt(2.0)))
    assert difference_interval(2.0, 1.0, (-math.inf, math.inf), (0.0, 2.0)) == (-math.inf, math.inf)


def test_a_run_states_ratios():
    people = [{**row, "orders": row["orders"] or 0.0} for row in rows(12_000, 5)]
    result = murk.run(ratio_task("pure: {epsilon: 8.0}"), people, seed=2)
    ratio = result.report["experiment"]["metrics"][-1]
    assert ratio["name"] == "amount per order"
    # Without a tenth of the orders an order has 3 / 0.9, and 20% more in the treatment.
    assert ratio["control_mean"] == pytest.approx(3.3, abs=0.5)
    (lift,) = ratio["lifts"]
    assert lift["relative_interval"][0] < 20.0 < lift["relative_interval"][1]
    text = str(result)
    assert "amount per order, units*" in text
    assert "a ratio of two means, which is not adjusted" in text


def rows(count, seed):
    X, y = coded(np.random.default_rng(seed), count)
    return [
        {
            "arm": "treatment" if x[0] > 0 else "control",
            "platform": "ios" if x[1] > 0 else "web",
            "amount": 20.0 * (x[2] + 1.0),
            "orders": "" if math.isnan(x[3]) else 4.0 * (x[3] + 1.0),
            "returned": "yes" if x[4] else "no",
            "bought": "yes" if one else "no",
        }
        for x, one in zip(X.tolist(), y.tolist(), strict=True)
    ]


def test_a_run_states_metrics_and_their_guard_rail():
    result = murk.run(task("pure: {epsilon: 8.0}"), rows(12_000, 5), seed=2)
    found = result.report["experiment"]
    assert sum(found["people"].values()) == 12_000 == result.report["releases"]
    assert sum(cell["people"] for cell in result.report["cells"]) < 4_000
    assert [each["name"] for each in found["metrics"]] == ["amount", "orders", "returned"]
    amount, orders, returned = (each["lifts"][0] for each in found["metrics"])
    assert amount["verdict"] == "higher"
    assert (found["lifts"][0]["guardrail"], returned["guardrail"]) == (None, "safe")
    assert (amount["attrition"], orders["attrition"] is None) == (None, False)
    text = str(result)
    assert "Metrics: 95% for all together" in text
    assert "treatment raises amount, by" in text
    assert "treatment: the guard rail of returned holds" in text


def test_a_file_with_metrics_that_the_task_rules_out_is_named():
    people = [{**row, "amount": "" if row["arm"] == "treatment" else row["amount"]} for row in rows(400, 5)]
    count = sum(row["amount"] == "" for row in people)
    with pytest.warns(UserWarning, match=f"{count} of 'amount' are missing, but the task states that every person has"):
        murk.run(task("pure: {epsilon: 8.0}"), people, seed=2)


def test_a_log_with_metrics_is_watched_and_serves_models(tmp_path):
    own = task("gdp: {mu: 3.0}")
    people = rows(60, 6)
    log = open_log(f"sqlite:///{tmp_path / 'log.db'}")
    with log, Ledger(tmp_path / "ledger.db") as ledger:
        log.register_task(own.document())
        with pytest.raises(UserError, match="'window-selection' is not among"):
            Producer(own, log, ledger, policy=Policy(mechanisms=("subset-selection", "gaussian")))
        producer = Producer(own, log, ledger)
        for number, row in enumerate(people):
            producer.release(row, person=str(number))
        assert {len(json.loads(each.value)["payload"]) for each in log.read(0, 0, 100)} == {5}
        worker = Worker(log, own, device_for(own).engine())
        while worker.step().read:
            pass
        worker.close()
        found = report_log(own, log, live=True, history=False)["experiment"]
        assert sum(found["people"].values()) == 60
        assert all(math.isinf(lift["interval"][1]) for metric in found["metrics"] for lift in metric["lifts"])
        monitor = Monitor(log, own)
        monitor.poll()
        assert (monitor.snapshot.problem, monitor.snapshot.figures.releases) == (None, 60)
        monitor.close()
    part = model_device_for(Model.parse("{name: arms, features: [arm]}"), own)
    engine, whole = part.engine(), device_for(own).engine()
    X, y = coded(np.random.default_rng(3), 8_000)
    device = device_for(own)
    whole.add(
        device.mechanisms["default"].randomize(device.vectors(X, y), SimulatedNoise(1), np.arange(8_000)), "default"
    )
    engine.adopt(whole.state_dict())
    estimate = engine.estimate()
    assert estimate.names == ("arm", "intercept")
    assert estimate.values[0] > 0.0


def test_false_alarms_are_counted_of_metrics_and_ratios(monkeypatch):
    own = ratio_task("pure: {epsilon: 8.0}")
    X, y = coded(np.random.default_rng(15), 1_500)
    X[np.isnan(X[:, 3]), 3] = -1.0
    found = false_alarms(own, X, y, runs=8, seed=3)
    # At 5% more than 2 of 8 runs with a probability of 0.6%.
    assert found.metrics_watched <= found.metrics_fixed <= 1.0
    assert found.metrics_watched <= 0.25
    usual = inference.difference_interval

    def narrow(one, other, *intervals):
        return tuple(one - other + 0.2 * (end - one + other) for end in usual(one, other, *intervals))

    monkeypatch.setattr(inference, "difference_interval", narrow)
    of_ratios = false_alarms(own, X, y, runs=8, seed=3)
    assert of_ratios.metrics_watched > 0.25
    assert of_ratios.watched == found.watched
    plain = false_alarms(task(old=METRICS, new=""), X[:200, [0, 1, 5]], y[:200], runs=1)
    assert (plain.metrics_watched, plain.metrics_fixed) == (None, None)


def test_false_alarms_are_counted_in_segments_and_of_missing_values(monkeypatch):
    plain = TASK.replace("GUARANTEE", "pure: {epsilon: 8.0}")
    own = Task.parse(plain.replace(METRICS, "  segments: [platform]\n").replace(", missing_share: 0}\nexp", "}\nexp"))
    rng = np.random.default_rng(16)
    X, y = coded(rng, 1_500)
    X, y = X[:, [0, 1, 5]], np.where(rng.random(1_500) < 0.2, math.nan, y)
    found = false_alarms(own, X, y, runs=8, seed=4)
    # At 5% more than 2 of 8 runs with a probability of 0.6%.
    assert found.segments <= 0.25
    assert found.attrition <= 0.25
    usual = inference._quantile
    monkeypatch.setattr(inference, "_quantile", lambda looks, alpha: 0.2 * usual(looks, alpha))
    narrow = false_alarms(own, X, y, runs=8, seed=4)
    assert narrow.segments > 0.25
    assert narrow.attrition > 0.25
    assert (narrow.watched, narrow.metrics_watched) == (found.watched, None)
    everybody = false_alarms(task(old=METRICS, new=""), X[:200], np.nan_to_num(y[:200]), runs=1)
    assert (everybody.segments, everybody.attrition) == (None, None)


def rail_task(guarantee, margin, worse):
    """Return the task with a guard rail on the amount per order."""
    rail = f"{{metric: amount per order, margin: {margin}, worse: {worse}}}"
    return ratio_task(guarantee, "{metric: returned, margin: 0.2, worse: higher}", rail)


@pytest.mark.parametrize(
    ("margin", "worse", "rail"),
    [(4.0, "higher", "safe"), (0.02, "higher", "harmed"), (0.02, "lower", "safe"), (0.6, "higher", "open")],
)
def test_a_guard_rail_may_be_about_a_ratio(margin, worse, rail):
    """The amount per order of 3.3 is 20% higher in the treatment."""
    own = rail_task("pure: {epsilon: 12.0}", margin, worse)
    X, y = coded(np.random.default_rng(18), 120_000)
    X[np.isnan(X[:, 3]), 3] = -1.0
    found = state(own, device_for(own), X, y, 1)
    assert [lift.guardrail for metric in found.metrics for lift in metric.lifts] == [None, None, None, rail]
    assert found.lifts[0].guardrail is None
    words = {"safe": "holds", "harmed": "is broken"}
    assert (f"rail of amount per order {words.get(rail)}" in " ".join(found.words())) == (rail in words)
    assert found.stop == ("harmed" if rail == "harmed" else "effect")


def test_a_guard_rail_of_a_ratio_holds_at_every_look(monkeypatch):
    """Without an effect it is broken at no look; of an effect as large as the margin it is neither safe nor broken."""
    own = rail_task("pure: {epsilon: 12.0}", 0.05, "higher")
    device, looks, runs = device_for(own.with_simulated(True)), [800 * 3**each for each in range(4)], 12

    def alarms():
        counts = np.zeros(2)
        for run in range(runs):
            rng = np.random.default_rng([19, run])
            X, y = coded(rng, looks[-1])
            X[np.isnan(X[:, 3]), 3] = -1.0
            for place, added in enumerate((0.0, 0.05)):
                # Amounts of each order are the same in both arms, but for the addition.
                orders = 4.0 * (X[:, 3] + 1.0)
                X[:, 2] = orders * (3.0 + added * (X[:, 0] > 0.0)) / 20.0 - 1.0
                vectors = device.vectors(X, y)
                payloads = device.mechanisms["default"].randomize(vectors, SimulatedNoise(run), np.arange(len(y)))
                engine, start, rails = device.engine(), 0, set()
                for look in looks:
                    engine.add(payloads[start:look], "default")
                    start = look
                    # Intervals hold at one look, and the guard rail at all of them.
                    found = experiment(own, engine.estimate(), Looks("fixed-n", own.tightest_at, look))
                    rails |= {lift.guardrail for lift in found.metrics[-1].lifts}
                counts[place] += bool(rails & {"harmed"} if place == 0 else rails & {"harmed", "safe"})
        return counts

    # Four intervals share 5%: at 1.25% more than 2 of 12 runs with a probability below 4e-4.
    assert (alarms() <= 2).all()
    usual = inference.difference_interval

    def narrow(one, other, *intervals):
        return tuple(one - other + 0.2 * (end - one + other) for end in usual(one, other, *intervals))

    monkeypatch.setattr(inference, "difference_interval", narrow)
    assert (alarms() > 2).all()


def test_plans_count_that_one_of_several_is_drawn():
    plain, drawn = (plan_experiment(each, [400_000])[0] for each in (task(old=METRICS, new=""), task()))
    assert drawn.planned == pytest.approx(2.0 * plain.planned, rel=1e-6)
    assert drawn.without_privacy == pytest.approx(plain.without_privacy)


def test_states_with_metrics_add_up():
    own = task()
    device = device_for(own)
    X, y = coded(np.random.default_rng(9), 3_000)
    payloads = device.mechanisms["default"].randomize(device.vectors(X, y), SimulatedNoise(1), np.arange(3_000))
    whole, first, second = (device.engine() for _ in range(3))
    whole.add(payloads, "default")
    first.add(payloads[:1_000], "default")
    second.add(payloads[1_000:], "default")
    loaded = device.engine()
    loaded.load_state_dict(json.loads(json.dumps(first.state_dict())))
    loaded.join(second)
    assert loaded.state_dict() == whole.state_dict()
    assert device.estimate([first, second]).values.tolist() == whole.estimate().values.tolist()


def test_missing_shares_of_an_arm_count_how_its_combinations_differ():
    """Half of an arm's people are on a platform on which everybody's target is missing."""
    cells = SimpleNamespace(
        values=np.array([[0], [0], [1]]),
        counts=np.array([5_000, 5_000, 9]),
        absent=np.array([0.0, 1.0, 0.5]),
        absent_errors=np.array([0.0, 0.0, 0.1]),
    )
    assert _absent(cells, 0, 0) == pytest.approx((0.5, math.sqrt(0.25 / 10_000)))
    assert _absent(cells, 0, 1) == (0.0, math.inf)
