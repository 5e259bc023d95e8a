"""Known columns: sent as they are, with a randomized target; what is refused, learned, stated and watched."""

import itertools
import json
import math
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom, norm

import murk
from murk import Task
from murk.audit.neighbours import worst_neighbours
from murk.audit.release_distributions import distribution_of
from murk.errors import MurkError, UserError
from murk.gateway.admission import Admission
from murk.inference.confidence_sequences import Looks
from murk.inference.contrasts import contrasts
from murk.inference.experiments import experiment
from murk.learners import MeanRegressor, ShareClassifier
from murk.monitoring import Monitor
from murk.populations.combinations import CombinationSurvey
from murk.privacy import GaussianDP, PureDP
from murk.privacy.noise import SimulatedNoise
from murk.producers import Ledger, Policy, Producer
from murk.producers.blocks import Block
from murk.protocols.device import device_for
from murk.protocols.population import Records
from murk.protocols.univariate import cells, forecast
from murk.protocols.univariate.engine import estimated
from murk.results.fit import model_device_for
from murk.stream import Worker, open_log
from murk.stream.wire.codec import RejectedError
from murk.stream.wire.releases import TargetRelease
from murk.task.models import Model

ARM = "{name: arm, categories: [control, treatment], known: true}"
PLATFORM = "{name: platform, categories: [web, ios, other], known: true}"
AGE = "{name: age, low: 20, high: 60}"
MIXED = f"[{ARM}, {AGE}, {PLATFORM}]"
TARGETS = {
    "binary": "{name: y, kind: binary, positive: 'yes', negative: 'no', missing_share: 0}",
    "maybe": "{name: y, kind: binary, positive: 'yes', negative: 'no'}",
    "real": "{name: y, kind: real, low: 10, high: 60, missing_share: 0}",
    "classes": "{name: y, kind: classes, classes: [red, green, blue], missing_share: 0}",
}


def task(kind="binary", guarantee="{gdp: {mu: 2.0}}", features=f"[{ARM}, {PLATFORM}]", more=""):
    return Task.parse(
        f"name: known\nfeatures: {features}\ntarget: {TARGETS[kind]}\nprivacy: {{guarantee: {guarantee}}}\n{more}"
    )


# Tasks


def test_a_task_with_known_columns_randomizes_the_target_alone():
    own = task()
    assert (own.protocol, own.known_columns, own.coefficient_scale) == ("univariate", ("arm", "platform"), "log odds")
    private = task(features="[{name: arm, categories: [control, treatment]}]")
    assert (private.protocol, private.known_columns) == ("scores", ())
    assert "known" not in json.loads(private.document())["features"][0]
    assert Task.from_document(own.document()) == own


@pytest.mark.parametrize(
    ("features", "more", "words"),
    [
        ("[{name: age, low: 1, high: 9, known: true}]", "", "only declared categories are sent as they are"),
        ("[{name: day, kind: date, as: weekday, known: true}]", "", "only declared categories are sent as they are"),
        (f"[{ARM}]", "protocol: scores", "scores randomizes every feature; leave protocol out"),
        (
            f"[{ARM}, {PLATFORM}]",
            "people: 5000\nshuffle: {crowd: 1000}",
            "shuffle.crowd: 5,000 people in 6 combinations of known columns are 833 each, and a crowd of one",
        ),
        (f"[{ARM}]", "public: {set_aside: 100}", "come with each person's release; remove it"),
        (f"[{ARM}, {PLATFORM}]", "people: 100", "missing values among them, for 100 people are 8.33"),
        (f"[{ARM}, {{name: zip, categories: [{', '.join(map(str, range(1000, 1501)))}], known: true}}]", "", "1,506"),
    ],
)
def test_refused_with_remedy(features, more, words):
    with pytest.raises(UserError, match=words.replace("(", r"\(").replace("+", r"\+")):
        task(features=features, more=more)


def test_private_features_need_two_classes_or_a_number():
    with pytest.raises(UserError, match="'age' is private beside known columns, with which several classes are not"):
        task("classes", features=MIXED)


# Devices


def test_cells_are_the_values_that_devices_code():
    own = task(
        features="[{name: a, categories: [x, y], known: true}, "
        "{name: b, categories: [p, q, r], known: true, missing: q}, "
        "{name: c, categories: [k, l, m, n], known: true, missing: indicator}]"
    )
    known, found = device_for(own).settings.known, {}
    for a, b, c in itertools.product(["x", "y", None], ["p", "q", "r"], ["k", "l", "m", "n", "?"]):
        coded = own.coding.encode_record({"a": a, "b": b, "c": c, "y": "yes"}).x
        (cell,) = known.numbers(coded[None])
        found[(a, b, c)] = int(cell)
        assert known.codes(np.array([cell]))[0].tolist() == coded.tolist()
    assert sorted(found.values()) == list(range(known.cells))
    assert known.numbers(own.coding.encode_record({"a": "x", "b": "?", "c": "k"}).x[None]) == found[("x", "q", "k")]


@pytest.mark.parametrize("kind", TARGETS)
@pytest.mark.parametrize("guarantee", ["{gdp: {mu: 2.0}}", "{pure: {epsilon: 2.0}}"])
def test_forged_cells_and_targets_are_rejected(kind, guarantee):
    device = device_for(task(kind, guarantee))
    engine, mechanism = device.engine(), device.mechanisms["default"]
    X = np.array([[1.0, -1.0, 1.0, 1.0]])
    ((cell, *target),) = mechanism.randomize(device.vectors(X, np.array([1.0])), SimulatedNoise(1), [0]).tolist()
    assert cell == 6  # treatment and other, of (2 + 1) x (3 + 1) with missing values

    def release(payload):
        common = {"id": "0" * 32, "task": "f" * 64, "level": "default", "partition": 0, "time": 0, "expires": 9}
        return TargetRelease(**common, payload=payload)

    engine.admit(release([cell, *target]))
    for payload in ([12, *target], [-1, *target], target, [cell, *target, 0], [2**61, *target], [cell, *[2**50] * 9]):
        with pytest.raises(RejectedError):
            engine.admit(release(payload))


def test_door_and_worker_refuse_forged_cells(tmp_path):
    own = task("maybe")
    log = open_log(f"sqlite:///{tmp_path / 'log.db'}")
    with log, open_log(f"sqlite:///{tmp_path / 'other.db'}") as other, Ledger(tmp_path / "ledger.db") as ledger:
        for each in (log, other):
            each.register_task(own.document())
        producer = Producer(own, log, ledger)
        for person in range(6):
            producer.release({"arm": "control", "platform": "web", "y": "yes"}, person=str(person))
        messages = [json.loads(each.value) for each in log.read(0, 0, 10)]
        for message, cell in zip(messages[3:], (-1, 12, 2**50), strict=True):
            message["payload"][0] = cell
        values = [json.dumps(message, separators=(",", ":")).encode() for message in messages]
        door = Admission(other, own)
        door.begin()
        now = messages[0]["time"]
        found = [each if isinstance(each, str) else None for each in door.judged(values, now)]
        assert found == [None] * 3 + ["magnitude"] * 3
        other.append([(0, value) for value in values])
        worker = Worker(other, own, device_for(own).engine())
        while worker.step().read:
            pass
        worker.close()
        assert [letter.reason for letter in other.dead_letters(0)] == ["magnitude"] * 3
        monitor = Monitor(other, own)
        monitor.poll()
        assert (monitor.snapshot.problem, monitor.snapshot.figures.releases) == (None, 3)
        assert "agree in arm and platform" in monitor.snapshot.figures.levels[0].words
        monitor.close()


def test_sending_does_not_depend_on_the_private_value(tmp_path):
    own = task("maybe", "{pure: {epsilon: 1.0}}")
    log = open_log(f"sqlite:///{tmp_path / 'log.db'}")
    with log, Ledger(tmp_path / "ledger.db") as ledger:
        log.register_task(own.document())
        producer = Producer(own, log, ledger)
        values = ["yes", "no", None, "forty", 3.5]
        for number, value in enumerate(values):
            producer.release({"arm": "treatment", "platform": "ios", "y": value}, person=str(number))
        messages = [json.loads(each.value) for each in log.read(0, 0, 10)]
        assert [each["payload"][0] for each in messages] == [5] * len(values)
        assert len({len(each.value) for each in log.read(0, 0, 10)}) == 1
        lines = "\n".join(ledger.account("1").describe())
        assert "two records that agree in arm and platform: they are sent as they are, under no guarantee" in lines


@pytest.mark.parametrize("kind", ["binary", "real"])
def test_audited_pairs_agree_in_known_columns(kind):
    device = device_for(task(kind, "{pure: {epsilon: 1.0}}"))
    mechanism = device.mechanisms["default"]
    pair = worst_neighbours(task(kind, "{pure: {epsilon: 1.0}}"), device, mechanism, np.random.default_rng(1))
    first, second = ({name: row[name] for name in ("arm", "platform")} for row in (pair.first, pair.second))
    assert first == second
    assert pair.first["y"] != pair.second["y"]
    # Records of different cells are told apart with certainty, which is no claim.
    centres = distribution_of(mechanism).centres(np.array([[0.0, 0.0], [1.0, 0.0]]))
    assert distribution_of(mechanism).distances(centres[:1], centres[1]) < 0.0


# Learning


def people(kind, count, seed, lift=0.1):
    rng = np.random.default_rng(seed)
    arm, platform = rng.integers(2, size=count), rng.integers(3, size=count)
    chance = 0.2 + lift * arm + 0.05 * (platform == 1)
    if kind == "real":
        y = np.clip(10 + 50 * rng.beta(2, 8, count) + 5 * arm, 10, 60)
    elif kind == "classes":
        y = np.where(rng.random(count) < chance, "red", np.where(rng.random(count) < 0.5, "green", "blue"))
    else:
        y = np.where(rng.random(count) < chance, "yes", "no")
    names = {"arm": np.array(["control", "treatment"])[arm], "platform": np.array(["web", "ios", "other"])[platform]}
    rows = [
        dict(zip(names, each, strict=True)) | {"y": v} for *each, v in zip(*names.values(), y.tolist(), strict=True)
    ]
    if kind == "maybe":
        for row, gone in zip(rows, rng.random(count) < np.where(arm == 1, 0.3, 0.2), strict=True):
            row["y"] = None if gone else row["y"]
    return rows


@pytest.mark.parametrize(
    ("kind", "guarantee", "name", "truth"),
    [
        ("binary", "{gdp: {mu: 2.0}}", "arm", 10.0),
        ("maybe", "{pure: {epsilon: 3.0}}", "arm", 10.0),
        ("real", "{gdp: {mu: 2.0}}", "arm", 5.0),
        ("real", "{pure: {epsilon: 3.0}}", "arm", 5.0),
        ("classes", "{pure: {epsilon: 3.0}}", "red:arm", 10.0),
    ],
)
def test_effects_of_known_columns(kind, guarantee, name, truth):
    result = murk.run(task(kind, guarantee), people(kind, 12_000, 5), seed=2)
    effect = result.report["average_effects"][name]
    low, high = effect["interval"]
    half = (high - low) / 2.0
    # 4.5 standard errors: a false alarm in one of 10^5; without an effect the estimate lies farther than that from it.
    assert abs(effect["value"] - truth) < 4.5 / 1.96 * half < truth
    assert len(result.report["cells"]) == 6
    assert sum(cell["people"] for cell in result.report["cells"]) == 12_000
    words = result.report["levels"]["default"]["words"]
    assert words.endswith("agree in arm and platform: they are sent as they are, under no guarantee.")
    assert "agree in arm and platform" in result.report["cap_words"]
    assert "arm, platform" in str(result)


def test_states_merge_by_addition_and_order_does_not_matter():
    own = task("maybe")
    device = device_for(own)
    rng = np.random.default_rng(4)
    X = device.settings.known.codes(rng.integers(device.settings.known.cells, size=3_000))
    y = rng.choice([0.0, 1.0, math.nan], 3_000)
    payloads = device.mechanisms["default"].randomize(device.vectors(X, y), SimulatedNoise(3), np.arange(3_000))
    whole, halves = device.engine(), [device.engine(), device.engine()]
    whole._add(payloads[rng.permutation(3_000)], "default")
    for half, rows in zip(halves, (payloads[:900], payloads[900:]), strict=True):
        for start in range(0, len(rows), 37):
            half._add(rows[start : start + 37], "default")
    assert device.estimate(halves).values.tolist() == whole.estimate().values.tolist()
    again = device.engine()
    again.load_state_dict(json.loads(json.dumps(whole.state_dict())))
    assert again.totals == whole.totals
    other = device_for(task("maybe", features=f"[{ARM}]")).engine()
    with pytest.raises(MurkError, match="different settings"):
        other.load_state_dict(whole.state_dict())


def made(share, rate, lift=0.0):
    """Return the records of two arms, of which a share is treated."""
    X = np.array([[-1.0, 1.0], [-1.0, 1.0], [1.0, 1.0], [1.0, 1.0]])
    treated = rate + lift
    shares = np.array([(1 - share) * (1 - rate), (1 - share) * rate, share * (1 - treated), share * treated])
    return Records(X, np.array([0.0, 1.0, 0.0, 1.0]), shares)


def totals_of(device, records, looks, rng):
    """Yield the sums at each look, from independent increments."""
    ((_, known),) = statistics = list(device.engine().statistics.items())
    places, sums = device.vectors(records.X, records.y), np.zeros(known.size)
    for count, before in zip(looks, [0, *looks[:-1]], strict=True):
        sums += np.rint(forecast._sums(known, places, records.drawn(count - before, rng), rng))
        yield {"default": (count, sums.astype(np.int64).tolist())}, dict(statistics)


def one_look(guarantee, count, share, rate, lift, replications, factor=1.0):
    """Return how many intervals hold: of linear effects, and of log odds."""
    device, held = device_for(task("binary", guarantee, f"[{ARM}]")), np.zeros(2, dtype=int)
    odds = math.log((rate + lift) / (1 - rate - lift) * (1 - rate) / rate) / 2.0
    for replication in range(replications):
        rng = np.random.default_rng([11, replication])
        ((totals, statistics),) = totals_of(device, made(share, rate, lift), [count], rng)
        found = estimated(device.settings, totals, statistics, 1)
        value, half = found.effects()
        held += (
            abs(value[0] - lift / 2.0) <= factor * half[0],
            abs(found.values[0] - odds) <= factor * found.half_widths()[0],
        )
    return held


# With 95% coverage fewer than 133 of 150 hold with a probability below 1e-3. Intervals 0.65 times as wide hold with
# 80%, and 133 or more of them with a probability below 1e-2.
@pytest.mark.parametrize("case", [("{gdp: {mu: 1.0}}", 40_000, 0.05), ("{pure: {epsilon: 4.0}}", 5_000, 0.3)])
def test_intervals_hold(case):
    guarantee, count, rate = case
    assert binom.cdf(132, 150, 0.95) < 1e-3
    assert (one_look(guarantee, count, 0.3, rate, 0.01, 150) >= 133).all()
    assert binom.sf(132, 150, 0.8) < 1e-2
    assert one_look(guarantee, count, 0.3, rate, 0.01, 150, factor=0.65)[0] < 133


def excluded(streams, seed):
    """Return how many streams without an effect ever exclude it, of one arm of 5% at a rate of 2%, from 50 people."""
    device = device_for(task("binary", "{pure: {epsilon: 10.0}}", f"[{ARM}]"))
    looks, alarms = np.unique(np.geomspace(50, 10_000, 14).astype(int)).tolist(), 0
    for stream in range(streams):
        rng = np.random.default_rng([seed, stream])
        for totals, statistics in totals_of(device, made(0.05, 0.02), looks, rng):
            found = estimated(device.settings, totals, statistics, 1)
            level = Looks("always-valid", 100_000, found.n_releases).nominal(0.95)
            value, half = found.effects(level)
            if abs(value[0]) > half[0]:
                alarms += 1
                break
    return alarms


def test_sequences_hold_from_the_first_look():
    # At 5% each, more than 6 of 40 streams with a probability below 1e-2.
    assert binom.sf(6, 40, 0.05) < 1e-2
    assert excluded(40, 3) <= 6


def test_own_variances_of_a_small_arm_are_a_trap(monkeypatch):
    monkeypatch.setattr(cells, "larger", lambda own, pooled: own)
    monkeypatch.setattr(cells, "_FEWEST", 2)
    monkeypatch.setattr(cells, "_PER_SKEW", 0.0)
    assert excluded(40, 3) > 6


def test_a_small_category_has_no_interval():
    own = device_for(task("binary", "{gdp: {mu: 4.0}}", f"[{ARM}]"))
    ((totals, statistics),) = totals_of(own, made(0.001, 0.3), [50_000], np.random.default_rng(1))
    found = estimated(own.settings, totals, statistics, 1)
    assert found.not_learned() == ["arm", "intercept"]
    assert not np.isfinite(found.effects()[1]).any()
    assert np.isfinite(found.cells.errors).tolist() == [[True, True], [False, False]]


def test_forecasts_are_what_runs_give():
    own = task("binary", "{pure: {epsilon: 2.0}}")
    device, rows = device_for(own), people("binary", 12_000, 5)
    block = own.coding.encode({name: [row[name] for row in rows] for name in ("arm", "platform", "y")})
    records = Records(block.x, block.y, np.full(len(rows), 1.0 / len(rows)))
    step = next(iter(forecast.estimates(device, records, [len(rows)], {"default": 1.0}, 1, np.random.default_rng(1))))
    run = murk.run(own, rows, seed=2).report["average_effects"]["arm"]["interval"]
    expected = 200.0 * step().effects()[1][0]
    assert expected == pytest.approx((run[1] - run[0]) / 2.0, rel=0.1)


def test_people_without_a_declared_arm_move_no_lift():
    """People without one buy less: with their arm coded in the middle the lift was 13 points too low."""
    own = task(features=f"[{ARM}]", more="experiment: {arm: arm, control: control}")
    rng = np.random.default_rng(3)
    arms = rng.choice(["control", "treatment", ""], 20_000, p=[0.72, 0.08, 0.2])
    bought = rng.random(20_000) < np.where(arms == "", 0.1, 0.3)
    rows = [{"arm": str(arm), "y": "yes" if each else "no"} for arm, each in zip(arms, bought, strict=True)]
    [lift] = murk.run(own, rows, seed=1).report["experiment"]["lifts"]
    low, high = lift["interval"]
    assert low < 0.0 < high
    # The standard error is 2.2 points: four of it.
    assert abs(lift["value"]) < 9.0


def test_a_device_may_refuse_known_columns(tmp_path):
    own = task()
    with open_log(f"sqlite:///{tmp_path / 'log.db'}") as log, Ledger(tmp_path / "ledger.db") as ledger:
        log.register_task(own.document())
        with pytest.raises(UserError, match="asks for arm and platform as they are"):
            Producer(own, log, ledger, policy=Policy(known_columns=False))


def test_experiments_of_one_person_share_one_cap(tmp_path):
    with Ledger(tmp_path / "ledger.db") as ledger:
        outcomes = []
        for number in range(3):
            own = task(guarantee="{gdp: {mu: 1.0}}", more="experiment: {arm: arm, control: control}")
            own = Task.from_document(own.document().replace(b'"name":"known"', b'"name":"known-%d"' % number))
            with open_log(f"sqlite:///{tmp_path / str(number)}.db") as log:
                log.register_task(own.document())
                producer = Producer(own, log, ledger, policy=Policy(lifetime=GaussianDP(1.5)))
                record = {"arm": "control", "platform": "web", "y": "yes"}
                outcomes.append(producer.release(record, person="ann").outcome)
    # Of squares that add up to at most 2.25, two fit.
    assert outcomes == ["released", "released", "refused"]


def test_one_person_with_many_rows_is_one_of_a_combination():
    own = task()
    block = own.coding.encode({"arm": ["control"] * 25, "platform": ["web"] * 25, "y": ["yes"] * 25})
    survey = CombinationSurvey(own)
    rows = np.zeros(1, dtype=np.int64)
    given = (rows, block.x, block.y, ["ann"], None, block.cells, 0, 0, rows, 25)
    survey.add(Block("file", *given, counts=np.array([25])))
    assert "1 of 1 people are in 1 combinations" in survey.mistake()


def test_a_model_of_fewer_columns_is_that_of_a_task_which_knows_no_more():
    wide, narrow = task("maybe"), task("maybe", features=f"[{ARM}]")
    used = model_device_for(Model.parse("{name: arms, features: [arm]}"), wide)
    rng = np.random.default_rng(5)
    arm, platform = rng.integers(2, size=4_000), rng.integers(3, size=4_000)
    X = np.column_stack([2 * arm - 1, *(2 * (platform == each) - 1 for each in (1, 2)), np.ones(4_000)]).astype(float)
    y = rng.choice([0.0, 1.0, math.nan], 4_000)
    payloads = (
        device_for(wide)
        .mechanisms["default"]
        .randomize(device_for(wide).vectors(X, y), SimulatedNoise(1), np.arange(4_000))
    )
    whole, own, other = device_for(wide).engine(), used.engine(), device_for(narrow).engine()
    whole.add(payloads, "default")
    own.adopt(whole.state_dict())
    other.add(np.column_stack([payloads[:, 0] // 4, payloads[:, 1:]]), "default")
    found, expected = used.estimate([own]), other.estimate()
    assert found.values.tolist() == expected.values.tolist()
    assert found.half_widths().tolist() == expected.half_widths().tolist()
    assert found.cells.counts.tolist() == expected.cells.counts.tolist()
    with pytest.raises(UserError, match="serves models of the task's own target by any of these"):
        model_device_for(Model.parse("{name: odd, features: [platform], target: arm}"), wide)
    with pytest.raises(UserError, match="releases products of private features, which serve the task's own model"):
        model_device_for(Model.parse("{name: odd, features: [arm]}"), task(features=MIXED))


def test_models_are_fitted_to_a_log(tmp_path):
    own, url = task(more="experiment: {arm: arm, control: control}"), f"sqlite:///{tmp_path / 'log.db'}"
    murk.run(own, people("binary", 3_000, 5), seed=2, log=url, ledger=tmp_path / "ledger.db")
    replayed, fitted = (
        murk.fit(Model.parse(f"{{name: arms{replay}, features: [arm]}}"), url, replay=bool(replay)).report
        for replay in (1, 0)
    )
    assert [cell["known"] for cell in fitted["cells"]] == [{"arm": "control"}, {"arm": "treatment"}]
    assert fitted["experiment"]["lifts"] == replayed["experiment"]["lifts"]
    low, high = fitted["experiment"]["lifts"][0]["interval"]
    assert low < 10.0 < high
    assert "agree in arm and platform" in fitted["levels"]["default"]["words"]


# River


@pytest.mark.parametrize("kind", ["binary", "classes", "real"])
def test_river_learners_of_known_columns_are_those_of_a_task(kind):
    own = task(kind, "{pure: {epsilon: 3.0}}")
    known = {"arm": ["control", "treatment"], "platform": ["web", "ios", "other"]}
    arguments = {"guarantee": PureDP(3.0), "known": known, "missing": False, "seed": 5}
    rows = people(kind, 400, 6)
    if kind == "real":
        made = lambda: MeanRegressor(target_bounds=(10, 60), **arguments)  # noqa: E731
    else:
        classes = ["red", "green", "blue"] if kind == "classes" else ["no", "yes"]
        made = lambda: ShareClassifier(classes=classes, **arguments)  # noqa: E731
    one, many = made(), made()
    for row in rows:
        one.learn_one({name: row[name] for name in known} | {"unused": 3}, row["y"])
    frame = pd.DataFrame(rows)
    many.learn_many(frame[["platform", "arm"]], frame["y"])
    assert one.coefficients() == many.coefficients()
    device = device_for(own)
    assert device.settings.digest == one._engine.settings.digest
    block = own.coding.encode({name: [row[name] for row in rows] for name in ("arm", "platform", "y")})
    engine = device.engine()
    engine.add(
        one._engine.mechanisms["default"].randomize(
            device.vectors(block.x, block.y), SimulatedNoise(5), np.arange(len(rows))
        ),
        "default",
    )
    assert engine.totals == one._engine.totals
    # Each prediction is an estimate of its own.
    cells = frame.drop_duplicates(["arm", "platform"])
    assert len(cells) == 6
    found = one.predict_many(cells[["arm", "platform"]])
    assert found.tolist() == [one.predict_one(row) for row in cells.to_dict("records")]
    again = made()
    again.load_state_dict(json.loads(json.dumps(one.state_dict())))
    assert again.coefficients() == one.coefficients()
    assert one.clone().n_releases == 0


def test_river_learners_refuse_odd_known_columns():
    with pytest.raises(UserError, match="at least two distinct categories"):
        ShareClassifier(guarantee=PureDP(1.0), known={"arm": ["a", "a"]})
    with pytest.raises(UserError, match="2,002 combinations of values"):
        MeanRegressor(guarantee=PureDP(1.0), target_bounds=(0, 1), known={"zip": [*range(2_001)]})
    swapped = [ShareClassifier(guarantee=PureDP(1.0), known={"arm": arms}, seed=1) for arms in (["a", "b"], ["b", "a"])]
    with pytest.raises(UserError, match="same known columns"):
        swapped[0].merged(swapped[1:])
    with pytest.raises(MurkError, match="the state has the known columns"):
        swapped[1].load_state_dict(swapped[0].state_dict())


# Private features beside known columns


def drawn(count, seed, kind="binary"):
    """Return coded arm, age, two of three platforms and the constant, and targets that the age moves."""
    rng = np.random.default_rng(seed)
    arm, platform = rng.integers(2, size=count), rng.integers(3, size=count)
    age = np.where(platform == 1, rng.uniform(-1, 0, count), rng.uniform(-1, 1, count))
    chance = 0.25 + 0.1 * arm + 0.1 * (platform == 1) + 0.12 * (age + 1.0)
    y = 2.0 * chance - 1.0 + rng.normal(0, 0.1, count) if kind == "real" else (rng.random(count) < chance).astype(float)
    if kind == "maybe":
        y[rng.random(count) < 0.2 + 0.1 * arm] = math.nan
    X = np.column_stack([2 * arm - 1, age, *(2 * (platform == each) - 1 for each in (1, 2)), np.ones(count)])
    return X.astype(float), y


def learned(device, X, y, seed):
    engine = device.engine()
    engine.add(
        device.mechanisms["default"].randomize(device.vectors(X, y), SimulatedNoise(seed), np.arange(len(y))), "default"
    )
    return engine


LINE = np.array([0.1, 0.24, 0.1, 0.0])  # of labels -1 and +1, by a coded unit of arm, age and platforms


def test_intervals_beside_private_features_hold():
    device, wide, narrow = device_for(task("maybe", "{gdp: {mu: 3.0}}", MIXED)), np.zeros(3), np.zeros(3)
    for replication in range(40):
        found = learned(device, *drawn(6_000, [13, replication], "maybe"), replication).estimate()
        far, half = np.abs(found.values[:3] - LINE[:3]), found.half_widths()[:3]
        wide += far <= half
        narrow += far <= 0.4 * half
    # With 95% coverage fewer than 30 of 40 of one coefficient hold with a probability below 1e-5. Intervals 0.4 times
    # as wide hold with 57%, and 30 or more of 40 with one below 2e-2.
    assert binom.cdf(29, 40, 0.95) < 1e-5
    assert (wide >= 30).all()
    assert binom.sf(29, 40, 0.57) < 2e-2
    assert (narrow < 30).all()


def test_shown_intervals_hold_where_noise_nearly_hides_a_private_feature():
    own = task("binary", "{gdp: {mu: 1.0}}", f"[{ARM}, {AGE}]", "experiment: {arm: arm, control: control}")
    device, rng = device_for(own), np.random.default_rng(1)
    arm, age, y = (part.ravel() for part in np.meshgrid([-1.0, 1.0], norm.ppf(np.arange(0.5, 20) / 20), [0.0, 1.0]))
    age = 0.22 * age - 0.33
    chance = 0.5 + 0.54 * (age + 0.33) + 0.02 * arm
    X, shares = np.column_stack([arm, age, np.ones(len(y))]), np.where(y > 0, chance, 1.0 - chance) / 40
    records, truth = Records(X, y, shares), np.array([0.04, 1.08, 1.08 * 0.33])
    shown, held, wald = 0, np.zeros(3), np.zeros(3)
    for _ in range(400):
        found = forecast.estimate(device, records, 30_000, {"default": 1.0}, 1, rng)
        halves = found.half_widths()
        if np.isfinite(halves).all():
            shown += 1
            held += np.abs(found.values - truth) <= halves
            wald += np.abs(found.values - truth) <= 1.96 * found.spread
    # If 93% of those shown hold, 86% do with a probability above 1 - 1e-2; of normal intervals 68% do.
    assert shown > 100
    assert binom.cdf(0.86 * shown, shown, 0.93) < 1e-2
    assert (held >= 0.86 * shown).all()
    assert (wald[1:] < 0.8 * shown).all()


def test_experiments_and_contrasts_have_the_widths_of_ratios():
    more = (
        "experiment: {arm: arm, control: control}\ncontrasts: [{feature: arm, category: treatment, against: control}]"
    )
    own = task("maybe", "{gdp: {mu: 3.0}}", MIXED, more)
    found = learned(device_for(own), *drawn(6_000, 3, "maybe"), 3).estimate()
    looks = Looks("fixed-n", 100_000, 6_000)
    doubtful = replace(found, curvature_error=np.full(len(found.names), 0.45), divided=np.eye(len(found.names)))
    widths = []
    for each in (found, doubtful):
        (contrast,), (lift,) = contrasts(own, each, looks), experiment(own, each, looks).lifts
        half = (lift.interval[1] - lift.interval[0]) / 2.0
        assert lift.interval == pytest.approx(contrast.average_effect_interval)
        assert half == pytest.approx(100.0 * each.half_widths()[0])
        widths.append((half, lift.relative_interval[1] - lift.relative_interval[0], -lift.e_value))
    assert (np.array(widths[1]) > np.array(widths[0])).all()


def test_noise_that_hides_a_private_feature_leaves_no_interval():
    device = device_for(task("binary", "{gdp: {mu: 0.5}}", MIXED))
    assert not np.isfinite(learned(device, *drawn(2_000, 1), 1).estimate().half_widths()).any()
    assert np.isfinite(learned(device, *drawn(200_000, 1), 1).estimate().half_widths()).all()


@pytest.mark.parametrize("guarantee", ["{gdp: {mu: 1.0}}", "{pure: {epsilon: 1.0}}"])
def test_pairs_beside_private_features_agree_in_known_columns(guarantee):
    own = task("maybe", guarantee, MIXED)
    device = device_for(own)
    mechanism = device.mechanisms["default"]
    pair = worst_neighbours(own, device, mechanism, np.random.default_rng(1))
    assert [pair.first[name] == pair.second[name] for name in ("arm", "platform")] == [True, True]
    assert (pair.first["y"], pair.first["age"]) != (pair.second["y"], pair.second["age"])
    # The claim is nearly reached, and never exceeded. Directions are of vectors at most 2 apart.
    assert 0.6 < pair.distance / (1.0 if "gdp" in guarantee else 2.0) <= 1.0


def test_private_features_are_sent_within_a_release_of_one_length(tmp_path):
    own = task("maybe", "{gdp: {mu: 1.0}}", MIXED)
    log = open_log(f"sqlite:///{tmp_path / 'log.db'}")
    with log, Ledger(tmp_path / "ledger.db") as ledger:
        log.register_task(own.document())
        producer = Producer(own, log, ledger)
        for number, (age, y) in enumerate([(20, "yes"), (60, None), (None, "no"), ("old", 7), (math.nan, "yes")]):
            producer.release({"arm": "treatment", "platform": "ios", "age": age, "y": y}, person=str(number))
        payloads = [json.loads(each.value)["payload"] for each in log.read(0, 0, 10)]
        # The cell, and the products of three numbers.
        assert [(payload[0], len(payload)) for payload in payloads] == [(5, 7)] * 5
        worker = Worker(log, own, device_for(own).engine())
        while worker.step().read:
            pass
        worker.close()
        assert list(log.dead_letters(0)) == []
        monitor = Monitor(log, own)
        monitor.poll()
        assert (monitor.snapshot.problem, monitor.snapshot.figures.releases) == (None, 5)
        monitor.close()


def test_states_beside_private_features_add_up():
    device = device_for(task("real", "{pure: {epsilon: 2.0}}", MIXED))
    X, y = drawn(2_000, 2, "real")
    payloads = device.mechanisms["default"].randomize(device.vectors(X, y), SimulatedNoise(3), np.arange(len(y)))
    whole, halves = device.engine(), [device.engine(), device.engine()]
    whole.add(payloads[::-1], "default")
    for half, rows in zip(halves, (payloads[:700], payloads[700:]), strict=True):
        half.add(rows, "default")
    assert device.estimate(halves).values.tolist() == whole.estimate().values.tolist()
    again = device.engine()
    again.load_state_dict(json.loads(json.dumps(whole.state_dict())))
    assert again.totals == whole.totals
    with pytest.raises(MurkError, match="different settings"):
        device_for(task("real", "{pure: {epsilon: 2.0}}")).engine().load_state_dict(whole.state_dict())


@pytest.mark.parametrize(("kind", "guarantee"), [("binary", "{gdp: {mu: 3.0}}"), ("real", "{pure: {epsilon: 6.0}}")])
def test_runs_and_forecasts_beside_private_features(kind, guarantee):
    own = task(kind, guarantee, MIXED, "experiment: {arm: arm, control: control}")
    X, y = drawn(8_000, 5, kind)
    values = (35.0 + 25.0 * np.clip(y, -1, 1)).tolist() if kind == "real" else np.where(y > 0, "yes", "no").tolist()
    rows = [
        {"arm": ("control", "treatment")[int(x[0] > 0)], "age": 40 + 20 * x[1], "platform": platform, "y": value}
        for x, platform, value in zip(
            X, np.select([X[:, 2] > 0, X[:, 3] > 0], ["ios", "other"], "web"), values, strict=True
        )
    ]
    result = murk.run(own, rows, seed=2)
    lift, found = (10.0 if kind == "binary" else 5.0), result.report["experiment"]["lifts"][0]
    low, high = found["interval"]
    # 4.5 standard errors: a false alarm in one of 10^5.
    assert abs(found["value"] - lift) < 4.5 / 1.96 * (high - low) / 2.0 < 1.2 * lift
    assert sum(result.report["experiment"]["people"].values()) == 8_000
    assert [cell["known"].keys() for cell in result.report["cells"]] == [{"arm", "platform"}] * 6
    assert "agree in arm and platform" in result.report["levels"]["default"]["words"]
    device = device_for(own)
    records = Records(X, y, np.full(len(y), 1.0 / len(y)))
    step = next(iter(forecast.estimates(device, records, [len(y)], {"default": 1.0}, 1, np.random.default_rng(1))))
    run = result.report["confidence_intervals"]["arm"]
    assert step().half_widths()[0] == pytest.approx((run[1] - run[0]) / 2.0, rel=0.15)


# Files


def test_columns_that_nearly_identify_are_refused_with_counts(tmp_path):
    rows = people("binary", 200, 1)
    codes = ", ".join(f"c{number}" for number in range(50))
    own = task(features=f"[{ARM}, {{name: code, categories: [{codes}], known: true}}]")
    for number, row in enumerate(rows):
        row["code"] = f"c{number % 50}"
    with pytest.raises(UserError, match=r"200 of 200 people are in \d+ combinations of arm and code with fewer"):
        murk.run(own, rows, log=f"sqlite:///{tmp_path / 'log.db'}", ledger=tmp_path / "ledger.db")
    # Six rows of a person are no six people.
    again = [row | {"who": f"w{number}"} for number, row in enumerate(rows) for _ in range(6)]
    with pytest.raises(UserError, match=r"200 of 200 people are in \d+ combinations of arm and code with fewer"):
        murk.run(own, again, person="who", log=f"sqlite:///{tmp_path / 'log.db'}", ledger=tmp_path / "ledger.db")
    with pytest.warns(UserWarning, match="nearly identify people"):
        few = murk.run(own, rows, seed=1)
    assert few.report["identifying"] == ""
    # Devices release by themselves, so that the receiver's report says it.
    many = [row | {"code": f"c{number % 40}"} for number, row in enumerate(people("binary", 1_200, 1))]
    with pytest.warns(UserWarning, match="nearly identify people"):
        found = murk.run(own, many, seed=1)
    assert re.search("1,... of 1,200 people are in .. combinations of arm and code", found.report["identifying"])
    assert "Known columns nearly identify people" in str(found)
