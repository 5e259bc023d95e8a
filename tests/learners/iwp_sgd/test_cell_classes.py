"""Cells with several classes: unbiased softmax, coverage, average effects, models, predictions and refusals."""

import itertools
import json
import math
import tracemalloc

import numpy as np
import pytest

import murk
from murk import Task
from murk._internal.links import class_probabilities
from murk.audit import audit, cases_of
from murk.errors import MurkError, UserError
from murk.learners import IWPSGDClassifier
from murk.planning.plan import plan
from murk.privacy import GaussianDP, PureDP, SimulatedNoise
from murk.protocols.device import device_for
from murk.protocols.examples.cells import CellMechanism, CellTable
from murk.protocols.examples.cells_engine import CellLoss, CellSums
from murk.protocols.examples.forecast import estimate as forecast
from murk.protocols.population import Records
from murk.results.models import model_device_for
from murk.task.models import Model
from tests.learners.iwp_sgd.test_cells import releases

TEXT = """
name: travel
features:
  - {{name: sex, categories: [f, m]}}
  - {{name: region, categories: [north, east, south]}}
target: {{name: mode, kind: classes, classes: [car, bus, bike]}}
protocol: examples
examples: {}
privacy: {{guarantee: {}}}
"""
MODES = np.array(["car", "bus", "bike"], dtype=object)
THREE = {"classes": ("car", "bus", "bike"), "release": "cells", "loss": "log", "features": ["a", "b"], "seed": 1}


def task(guarantee="{pure: {epsilon: 4}}", block="{}"):
    return Task.parse(TEXT.format(block, guarantee))


def people(count, seed=3):
    """Women take the bus more often, and the south the bike; a few do not tell."""
    rng = np.random.default_rng(seed)
    sex, region = rng.choice(["f", "m"], count), rng.choice(["north", "east", "south"], count)
    scores = np.column_stack([np.full(count, 0.3), 0.8 * (sex == "f"), -0.4 + 0.9 * (region == "south")])
    mode = MODES[(scores + rng.gumbel(size=scores.shape)).argmax(axis=1)]
    mode[:10] = None
    return {"sex": sex.tolist(), "region": region.tolist(), "mode": mode.tolist()}


def test_a_class_is_one_more_factor_of_the_cell():
    device, block = device_for(task()), task().coding.encode(people(400))
    cells = device.settings.cells
    assert cells.classes == 2 * 3 * 3 + 1
    vectors = device.vectors(block.x, block.y)
    drawn = cells.drawn(vectors, np.random.default_rng(1).integers(0, 2**64, (400, 3), dtype=np.uint64))
    gone = np.isnan(block.y)
    assert np.array_equal(drawn == cells.classes - 1, gone)
    assert np.array_equal(cells.X[drawn[~gone]], block.x[~gone])
    assert np.array_equal(cells.y[drawn[~gone]], block.y[~gone])
    assert np.array_equal(cells.shares(vectors), np.eye(cells.classes)[drawn])


def test_softmax_losses_are_unbiased_by_enumeration():
    """The mean over all released cells is the value at the true one; with q of another epsilon it is not."""
    learner = IWPSGDClassifier(guarantee=PureDP(1.5), **THREE)
    cells, at = learner._settings.cells, np.array([0.7, -0.4, 0.2, -0.5, 0.3, 0.6])
    loss_of = CellLoss(CellTable.of(cells), learner._settings)
    value, gradient, bend = loss_of.at(at)
    own = class_probabilities(cells.X @ at.reshape(2, 3).T, loss_of.basis)
    known = np.arange(cells.classes) < cells.classes - 1
    assert value[known] == pytest.approx(-np.log(own[known, cells.y[known].astype(int)]))
    hessians = np.array([loss_of.hessian(each, bend) for each in np.eye(cells.classes)])
    exact = np.column_stack([value, gradient, hessians.reshape(len(hessians), -1)])

    def bias(used):
        mechanism = CellMechanism.calibrate(PureDP(1.5), cells)
        q, p = mechanism.noise.other / 2**64, mechanism.noise.keep
        estimates = used.gain * (exact - used.other * exact.sum(axis=0))
        return np.abs((q + (p - q) * np.eye(cells.classes)) @ estimates - exact).max()

    assert bias(CellMechanism.calibrate(PureDP(1.5), cells)) < 1e-12
    assert bias(CellMechanism.calibrate(PureDP(1.6), cells)) > 1e-3
    # The derivatives are the loss's own, by differences.
    step = 1e-6
    squares = (loss_of.table.X**2).sum(axis=1)
    assert loss_of.factors(bend) * squares == pytest.approx(np.sqrt((hessians**2).sum(axis=(1, 2))))
    for j, axis in enumerate(np.eye(6)):
        ahead, behind = loss_of.at(at + step * axis), loss_of.at(at - step * axis)
        assert (ahead[0] - behind[0]) / (2 * step) == pytest.approx(gradient[:, j], abs=1e-7)
        assert (ahead[1] - behind[1]) / (2 * step) == pytest.approx(hessians[:, :, j], abs=1e-7)


def test_many_classes_fit_into_memory():
    """256 coefficients and 1,936 cells take 40 MB; factors of every two contrasts of each cell took 1 GB."""
    names = tuple(f"c{place}" for place in range(129))
    tracemalloc.start()
    try:
        engine = IWPSGDClassifier(
            guarantee=PureDP(4.0), **THREE | {"classes": names, "features": ["a"], "grid": 15}
        )._engine
        counts = np.random.default_rng(1).integers(99_990_000, 100_010_000, engine.settings.cells.classes)
        engine.add(engine.mechanisms["default"], counts)
        found = engine.estimate()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert np.isfinite(found.spread).all()
    assert peak < 60e6, peak


def test_two_classes_are_two_labels():
    """The contrast of two classes is the log odds over sqrt 2: effects and errors are those of a label."""
    text = TEXT.format("{release: cells}", "{pure: {epsilon: 4}}")
    two = Task.parse(text.replace("[car, bus, bike]", "[car, bus]"))
    of_label = "kind: binary, positive: bus, negative: car"
    text = text.replace("kind: classes, classes: [car, bus, bike]", of_label)
    label = Task.parse(text.replace("cells}", "cells, loss: log}"))
    given = people(4000)
    found = []
    for own in (two, label):
        device, block = device_for(own), own.coding.encode(given)
        engine = device.engine()
        engine.learn_releases(releases(device, block, SimulatedNoise(4)))
        found.append(engine.estimate())
    classes, binary = found
    assert classes.values[4:] - classes.values[:4] == pytest.approx(binary.values, abs=1e-8)
    for ours, theirs in zip(classes.effects(), binary.effects(), strict=True):
        assert ours[4:] == pytest.approx(theirs, rel=1e-6)


def world(rare=0.05):
    """A hard design: a rare class, two features that mostly agree, and class odds that are no softmax of them."""
    points = np.array(list(itertools.product([-1.0, 1.0], repeat=2)))
    shares = np.array([0.4, 0.1, 0.1, 0.4])
    curved = points[:, 0] * points[:, 1]
    common = 1.0 / (1.0 + np.exp(-(0.3 + 0.5 * points[:, 0] + 0.3 * curved)))
    third = rare * (1.0 + 0.5 * points[:, 1])
    chances = np.column_stack([(1 - third) * common, (1 - third) * (1 - common), third])
    X = np.tile(np.column_stack([points, np.ones(4)]), (3, 1))
    return Records(X, np.repeat(np.arange(3.0), 4), (shares[:, None] * chances).T.ravel())


def test_two_labels_take_no_more_memory_for_several_classes():
    """Average effects of 500 categories take 40 MB; with coefficients of both labels they took 80 MB."""
    block = "{release: cells, loss: log, regularization: 0.01}"
    text = TEXT.format(block, "{pure: {epsilon: 8}}").replace(
        "classes, classes: [car, bus, bike]", "binary, positive: bus"
    )
    text = text.replace("  - {name: sex, categories: [f, m]}\n", "")
    towns = [f"r{place}" for place in range(500)]
    engine = device_for(Task.parse(text.replace("[north, east, south]", str(towns)))).engine()
    counts = np.random.default_rng(1).integers(10**13 - 10**6, 10**13 + 10**6, engine.settings.cells.classes)
    engine.add(engine.mechanisms["default"], counts)
    tracemalloc.start()
    try:
        found = engine.estimate()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert np.isfinite(found.effects()[1]).all()
    assert peak < 55e6, peak


@pytest.mark.parametrize("budget", [PureDP(3.0), GaussianDP(2.0)])
def test_intervals_and_effects_cover_on_a_hard_task(budget):
    """200 replications of 9 coefficients, 6 effects and a difference of two: within 3.7 standard errors of 95% each.

    False alarms: 16 x 2e-4 = 3.5e-3 in all for each budget, before any correlation. The twin's intervals, of half the
    standard error, cover about 67%.
    """
    known = world()
    engine = IWPSGDClassifier(guarantee=budget, **THREE)._engine
    cells, mechanism = engine.settings.cells, engine.mechanisms["default"]
    true = known.shares @ cells.shares(np.column_stack([known.X, known.y]))
    released = mechanism.other + true / mechanism.gain
    loss = CellLoss(CellTable.of(cells), engine.settings)
    theta = loss.minimise(true, 0.0, np.zeros(6))[0].reshape(2, 3)

    def shares_at(moved):
        return known.shares @ class_probabilities((known.X + moved) @ theta.T, loss.basis)

    # A category against another is a difference of effects, whose covariance counts.
    apart = np.eye(9)[0] - np.eye(9)[1]
    step = 1e-5
    slopes = [(shares_at(step * axis) - shares_at(-step * axis)) / (2 * step) for axis in np.eye(3)[:2]]
    truth = np.concatenate([(loss.basis @ theta).ravel(), np.array(slopes).T.ravel()])
    truth = np.append(truth, slopes[0][0] - slopes[1][0])
    rng, hits, half = np.random.default_rng(12), np.zeros(16), np.zeros(16)
    own = [3 * k + j for k in range(3) for j in range(2)]
    for _ in range(200):
        engine.sums = CellSums(np.zeros_like(engine.sums.cells), np.zeros_like(engine.sums.totals))
        engine.add(mechanism, rng.multinomial(200_000, released / released.sum()))
        found = engine.estimate()
        average, reach = found.effects()
        difference, wide = found.combined_effect(apart)
        off = np.abs(np.concatenate([found.values, average[own], [difference]]) - truth)
        width = np.concatenate([found.half_widths(), reach[own], [wide]])
        hits, half = hits + (off < width), half + (off < width / 2)
    error = math.sqrt(0.95 * 0.05 / 200)
    assert np.all(np.abs(hits / 200 - 0.95) < 3.7 * error), hits
    assert np.all(half / 200 < 0.95 - 3.7 * error)
    # What adds up to 0 does.
    assert found.values.reshape(3, 3).sum(axis=0) == pytest.approx(np.zeros(3), abs=1e-9)
    assert average.reshape(3, 3).sum(axis=0) == pytest.approx(np.zeros(3), abs=1e-9)


def test_a_restored_state_goes_on_bit_for_bit_and_partitions_add_up():
    own = task()
    device, block = device_for(own), own.coding.encode(people(3000))
    given = releases(device, block, SimulatedNoise(4))
    whole, first, second = device.engine(), device.engine(), device.engine()
    whole.learn_releases(given)
    first.learn_releases(given[:1300])
    resumed = device.engine()
    resumed.load_state_dict(json.loads(json.dumps(first.state_dict())))
    resumed.learn_releases(given[1300:])
    assert resumed.state_dict() == whole.state_dict()
    second.learn_releases(given[1300:])
    assert device.estimate([first, second]).values == pytest.approx(device.estimate([whole]).values)
    renamed = Task.parse(TEXT.replace("bike", "tram").format("{}", "{pure: {epsilon: 4}}"))
    with pytest.raises(MurkError):
        device_for(renamed).engine().load_state_dict(whole.state_dict())


def test_the_loss_and_predictions_of_a_river_learner():
    """Within 4 standard errors (probability 6e-5); the loss at zero coefficients, log 3, is further off."""
    rng = np.random.default_rng(2)
    x = rng.choice([-1.0, 1.0], (20_000, 2))
    scores = np.column_stack([0.9 * x[:, 0], -0.5 * x[:, 1], np.full(len(x), -0.5)])
    y = (scores + rng.gumbel(size=scores.shape)).argmax(axis=1)
    model = IWPSGDClassifier(guarantee=PureDP(4.0), **THREE)
    model.learn_many(x, MODES[y])
    theta = np.array(list(model.coefficients().values())).reshape(3, 3)
    chances = class_probabilities(np.column_stack([x, np.ones(len(x))]) @ theta.T, np.eye(3))
    own = -np.log(chances[np.arange(len(x)), y]).mean()
    assert abs(model.unbiased_loss - own) < 4.0 * model.unbiased_loss_error < abs(math.log(3) - own)
    found = model.predict_proba_one({"a": 1.0, "b": 1.0})
    assert list(found) == ["car", "bus", "bike"]
    assert sum(found.values()) == pytest.approx(1.0)
    assert model.predict_one({"a": 1.0, "b": 1.0}) == max(found, key=found.get) == "car"
    assert set(model.coefficients()) == {f"{k}:{j}" for k in MODES for j in ("a", "b", "intercept")}
    with pytest.raises(UserError, match="no single line"):
        model.linear_coefficients()


def test_models_of_the_log_and_the_forecast():
    """The class by a feature, one class against the rest, and a feature by the class; half-widths within 15%."""
    own, count = task(guarantee="{gdp: {mu: 4}}"), 6_000
    block, device = own.coding.encode(people(count)), device_for(own)
    given = releases(device, block, SimulatedNoise(4))
    engine = device.engine()
    engine.learn_releases(given)
    shares = np.full(count, 1.0 / count)
    ahead = forecast(device, Records(block.x, block.y, shares), count, {"default": 1.0}, 1, np.random.default_rng(1))
    assert ahead.half_widths() == pytest.approx(engine.estimate().half_widths(), rel=0.15)
    assert ahead.half_widths() != pytest.approx(engine.estimate().half_widths() / 2, rel=0.15)
    found = {}
    for text in (
        "{name: by-sex, features: [sex]}",
        "{name: bus, features: [sex], target: {name: mode, positive: bus}, loss: log}",
        "{name: first, features: [sex], target: {name: mode, positive: car}}",
        "{name: sexes, features: [mode, region], target: sex, loss: log}",
    ):
        model = model_device_for(Model.parse(text), own)
        learner = model.engine()
        learner.learn_releases(given)
        each = found[model.model.name] = model.estimate([learner])
        assert np.isfinite(each.spread).all()
    assert found["by-sex"].names[::2] == ("car:sex", "bus:sex", "bike:sex")
    bus = found["bus"]
    # Softmax and the class against the rest agree about the bus, and the sign is that of the people.
    assert bus.values[0] < -2.0 * bus.spread[0]
    assert found["by-sex"].effects()[0][2] == pytest.approx(bus.effects()[0][0], abs=0.01)
    assert found["sexes"].names == ("mode=bus", "mode=bike", "region=east", "region=south", "intercept")
    assert found["sexes"].values[0] < -2.0 * found["sexes"].spread[0]
    assert found["first"].values[0] > 0.0
    for text, words in (
        ("{name: m, target: {name: mode, positive: tram}}", "'tram' is not a category of 'mode'"),
        ("{name: m, loss: quadratic}", "not a loss of a classes target; one of log"),
    ):
        with pytest.raises(UserError, match=words):
            model_device_for(Model.parse(text), own)


def test_a_run_reports_each_class_and_predicts(tmp_path):
    own = Task.parse(
        TEXT.format("{}", "{pure: {epsilon: 5}}") + "contrasts: [{feature: region, category: south, against: east}]\n"
    )
    given = people(20_000)
    rows = [dict(zip(given, each, strict=True)) for each in zip(*given.values(), strict=True)]
    result = murk.run(own, rows, seed=1, log=f"sqlite:///{tmp_path}/t.db", ledger=f"{tmp_path}/l.db")
    effect = result.report["average_effects"]["bike:region=south"]
    assert effect["unit"] == "bike: region: south against north"
    assert effect["interval"][0] > 2.0
    assert len(result.report["contrasts"]) == 3
    bike = result.report["contrasts"][2]
    # The difference of two effects is tested by its own error, not by the sum of theirs.
    assert bike["average_effect_interval"][0] > 0.0
    low, high = bike["average_effect_interval"]
    ends = [result.report["average_effects"][f"bike:region={each}"]["interval"] for each in ("south", "east")]
    assert high - low < 0.85 * sum(most - least for least, most in ends)
    assert "points" in str(result).partition("Contrasts")[2].partition("\n")[2].partition("\n")[0]
    shares = result.predict([{"sex": "f", "region": "north"}])[0]
    assert shares.sum() == pytest.approx(1.0)
    assert shares[1] == shares.max()
    assert "average effect, points" in result._repr_html_()
    assert "bike: region: south against north" in str(result)


def test_the_plan_forecasts_effects_of_each_class():
    found = plan(task(), people=[20_000], budgets=[1.0], protocols=["examples"], draws=1)
    assert "bus: sex: m against f" in found.units.values()
    assert all(0.0 < half < 5.0 for half in found.cells[0].forecast.effects.values())


def test_the_audit_finds_the_guarantee():
    [case] = cases_of(task(guarantee="{pure: {epsilon: 1}}"))
    assert all(each.holds for each in audit([case], 20_000, noise=SimulatedNoise(1)))
    trial = case.prepare()
    epsilon = next(each for each in trial.yardsticks if not hasattr(each, "mu"))
    assert trial.exact(epsilon) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize(
    ("block", "words"),
    [
        ("{release: outer}", "outer codes the target as one number, .* for several classes say release: cells"),
        ("{loss: quadratic}", "'quadratic' is not a loss of a classes target"),
        ("{truncation: 2}", "no effect with release: cells"),
    ],
)
def test_what_several_classes_cannot_have_is_refused(block, words):
    with pytest.raises(UserError, match=words):
        task(block=block)
    for feature, remedy in (
        ("{name: age, low: 0, high: 9}", "'age' is a number, .*grid: 5.* or protocol: scores"),
        (f"{{name: town, categories: {list(range(700))}}}", "at most 4,096 .* or protocol: scores"),
        (f"{{name: town, categories: {list(range(400))}}}", "804 coefficients, and at most 512"),
    ):
        text = TEXT.replace("{{name: sex, categories: [f, m]}}", feature.replace("{", "{{").replace("}", "}}"))
        with pytest.raises(UserError, match=remedy):
            device_for(Task.parse(text.format("{}", "{pure: {epsilon: 1}}")))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"release": "outer"}, "release='outer' codes the target as one number"),
        ({"loss": "quadratic"}, "not a loss of a classes target"),
        ({"classes": ("a", "b", "b")}, "at least two distinct labels"),
    ],
)
def test_arguments_that_several_classes_cannot_have_are_refused(settings, words):
    with pytest.raises(UserError, match=words):
        IWPSGDClassifier(guarantee=PureDP(1.0), **(THREE | settings))
