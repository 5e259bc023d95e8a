"""Levels on a grid of budgets: the same learning as with as many named levels, made when used, weighed by noise."""

import json
import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from murk import Task
from murk._internal.lazy import bounding
from murk.audit.catalogue import cases_of
from murk.dossier.example import levels_of
from murk.errors import UserError
from murk.planning.outlook import outlook
from murk.planning.plan import Plan, remarks
from murk.populations.file_work import PopulationConfig
from murk.populations.local_run import LocalRun
from murk.privacy import ApproxDP, GaussianDP, PureDP, ZeroConcentratedDP
from murk.privacy.noise import SimulatedNoise
from murk.producers.producer import randomize_rows
from murk.protocols.device import SingleQueryDevice, device_for
from murk.protocols.population import Effects, designs
from murk.protocols.scores.estimate import _budgets_words
from murk.protocols.scores.sums import step_of, summaries
from murk.results.report import describe_grid, describe_levels
from murk.stream.wire.admission import wire_rules
from murk.stream.wire.codec import RejectedError, decode, encode
from murk.stream.wire.columns import Layout
from murk.stream.wire.packed import Packed
from murk.stream.wire.releases import KINDS
from murk.task.privacy import MOST_POINTS, RATIO, LevelGrid, PrivacyBlock

FEATURES, ROWS = 12, 900
NAMES = [f"x{place}" for place in range(FEATURES)]
WIDE = "{from: 0.25, to: 4}"
RULES = {"scores": "calibrate", "gradients": "calibrate", "examples": "outer_mechanism", "moments": "calibrated"}
HOMES = {
    "scores": "murk.protocols.scores.mechanisms", "gradients": "murk.protocols.gradients.device",
    "examples": "murk.protocols.examples.settings", "moments": "murk.protocols.moments.device",
}  # fmt: skip


def task_of(
    levels: str, protocol: str = "scores", guarantee: str = "gdp: {mu: 1.0}", more: str = "", features: int = FEATURES
) -> Task:
    columns = ", ".join(f"{{name: x{place}, low: -1, high: 1}}" for place in range(features))
    return Task.parse(
        f"name: own\nfeatures: [{columns}]\ntarget: {{name: y, kind: real, low: -1, high: 1}}\nprotocol: {protocol}\n"
        f"privacy: {{guarantee: {{{guarantee}}}, levels: {levels}}}\n{more}"
    )


def block_of(guarantee: dict[str, Any], low: float, high: float) -> PrivacyBlock:
    return PrivacyBlock.model_validate({"guarantee": guarantee, "levels": {"from": low, "to": high}})


# The grid


@pytest.mark.parametrize(("low", "high"), [(0.25, 4), (1, 1.001), (0.1, 0.3), (1e-3, 20), (0.123456789, 7.7)])
def test_nobody_loses_more_than_2_percent(low: float, high: float) -> None:
    privacy = block_of({"gdp": {"mu": 1}}, low, high)
    assert privacy.grid is not None
    points = privacy.grid.points
    assert (points[0], points[-1]) == (low, high)
    assert all(first < second <= 1.02 * first for first, second in pairwise(points))
    for budget in np.random.default_rng(1).uniform(low, high, 500).tolist():
        spent = points[int(privacy.level_of(budget))]
        assert budget / 1.02 < spent <= budget
    assert privacy.level_of(low) == "0"
    assert privacy.level_of(high) == privacy.level_of(100 * high) == str(len(points) - 1)
    for missing in (math.nextafter(low, 0), 0.0, -1.0, math.nan):
        with pytest.raises(UserError, match="below the grid's lowest"):
            privacy.level_of(missing)


def test_a_level_has_the_guarantee_of_its_budget_in_the_tasks_parameter() -> None:
    for guarantee, expected in (
        ({"gdp": {"mu": 1}}, GaussianDP), ({"pure": {"epsilon": 1}}, PureDP),
        ({"zcdp": {"rho": 0.5}}, ZeroConcentratedDP),
        ({"approx": {"epsilon": 1, "delta": 1e-6}}, lambda budget: ApproxDP(budget, 1e-6)),
    ):  # fmt: skip
        privacy = block_of(guarantee, 0.5, 2)
        assert privacy.grid is not None
        assert list(privacy.levels) == ["default", *map(str, range(len(privacy.grid.points)))]
        assert [privacy.levels[str(place)] for place in range(3)] == list(map(expected, privacy.grid.points[:3]))
        assert "00" not in privacy.levels
        assert privacy.levels.get(str(len(privacy.grid.points))) is None


def test_the_document_holds_the_ends_alone_and_survives_a_round_trip() -> None:
    task = task_of(WIDE)
    assert json.loads(task.document())["privacy"]["levels"] == {"from": 0.25, "to": 4.0}
    again = Task.from_document(task.document())
    assert (again, again.hash) == (task, task.hash)
    assert task.with_budget(2.0).privacy.grid == block_of({"gdp": {"mu": 1}}, 0.5, 8).grid
    rho = task_of(WIDE, guarantee="zcdp: {rho: 1.0}").with_budget(2.0)
    assert rho.privacy.grid == block_of({"gdp": {"mu": 1}}, 1, 16).grid


@pytest.mark.parametrize(
    ("levels", "why"),
    [
        ("{from: 4, to: 1}", r"privacy.levels.to: 1 is not above from: 4"),
        ("{from: 0, to: 1}", r"privacy.levels.from: 0 is too small"),
        ("{from: 1}", r"privacy.levels.to: missing"),
        ("{from: 0.01, to: 999}", r"privacy.levels.to: .* at most 512 levels; lower it"),
        ("{from: 1, to: 2, by: 3}", r"privacy.levels.by: unknown key"),
        ("{from: one, to: 2}", r"privacy.levels.from: 'one' is text"),
        ("{from: 1.0e-9, to: 2.0e-9}", r"privacy.levels.from: "),
        ("{from: 900, to: 1001}", r"privacy.levels.to: 1001 is above 1000, which protects nobody"),
        ("{from: 1.0e-322, to: 1.0e-320}", r"privacy.levels.from: .* is below 1e-09"),
    ],
)
def test_a_bad_grid_is_refused(levels: str, why: str) -> None:
    with pytest.raises(UserError, match=why):
        task_of(levels)


@pytest.mark.parametrize("low", [1e-9, 1e-3, 0.017, 0.04])
def test_the_largest_grid_has_the_largest_number_of_levels(low: float) -> None:
    high = low * RATIO ** (MOST_POINTS - 2)
    assert len(LevelGrid.model_validate({"from": low, "to": high * (1 - 1e-9)}).points) <= MOST_POINTS
    with pytest.raises(ValueError, match="at most 512 levels"):
        LevelGrid.model_validate({"from": low, "to": high * (1 + 1e-9)})


def test_every_kind_of_mechanism_of_a_grid_is_stated_and_audited() -> None:
    task = Task.parse(
        "name: t\nfeatures: [{name: a, low: -1, high: 1}]\ntarget: {name: y, kind: binary, positive: 'y'}\n"
        "privacy: {guarantee: {pure: {epsilon: 0.4}}, levels: {from: 0.25, to: 16}}"
    )
    kinds = {each.kind for each in device_for(task).mechanisms.values()}
    assert {each.kind for each in levels_of(task).values()} == kinds
    assert len(kinds) > len({each.kind for each in bounding(device_for(task).mechanisms).values()})
    assert len(cases_of(task)) >= len(levels_of(task))


def test_the_default_release_of_examples_considers_the_ends_of_a_grid() -> None:
    text = (
        "name: t\nfeatures: [{name: a, low: -1, high: 1}]\ntarget: {name: y, kind: binary, positive: 'y'}\n"
        "protocol: examples\npublic: {set_aside: 1000}\nprivacy: {guarantee: {gdp: {mu: 2.5}}, levels: LEVELS}"
    )
    named, grid = "{strict: {gdp: {mu: 0.5}}, open: {gdp: {mu: 4}}}", "{from: 0.5, to: 4}"
    assert [Task.parse(text.replace("LEVELS", each)).block.release for each in (named, grid)] == ["directions"] * 2


def test_a_grid_is_refused_where_it_cannot_be() -> None:
    with pytest.raises(UserError, match=r"privacy.levels: a grid is for budgets of people"):
        task_of(WIDE, "summaries", more="summaries: {rows: 8, window: 200}\n")
    with pytest.raises(UserError, match=r"privacy.levels: crowds are of one level"):
        task_of("{from: 1, to: 4}", guarantee="pure: {epsilon: 4.0}", more="shuffle: {crowd: 20000}\n")
    with pytest.raises(UserError, match=r"allows no release at level '141'"):
        task_of(f"{WIDE}, per_person: {{gdp: {{mu: 2.0}}}}")
    many = task_of(WIDE, features=40)
    with pytest.raises(UserError, match=r"at each of 143 levels.*a narrower grid"):
        device_for(many)
    device_for(task_of("{from: 1, to: 1.5}", features=40))


# Mechanisms


@pytest.mark.parametrize("protocol", RULES)
def test_only_the_levels_in_use_are_calibrated(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rule, made = f"{HOMES[protocol]}.{RULES[protocol]}", []
    task = task_of(WIDE, protocol, more="examples: {release: outer}\n" if protocol == "examples" else "")
    module, _, name = rule.rpartition(".")
    original = getattr(__import__(module, fromlist=[name]), name)

    def counted(*args: Any, **more: Any) -> Any:
        made.append(args)
        return original(*args, **more)

    monkeypatch.setattr(rule, counted)
    device = device_for(task)
    engine = device.engine()
    rules = wire_rules(task, engine.admission)
    Layout(rules)
    before = len(made)
    # The default level and the two ends; those of scores answer a survey, too.
    each = 2 if protocol == "scores" else 1
    assert before <= 3 * each
    for level in ("57", "57", "58"):
        assert rules.magnitudes[level] == device.mechanisms[level].magnitude  # type: ignore[attr-defined]
    assert len(made) == before + 2 * each


@pytest.mark.parametrize("protocol", RULES)
def test_exactly_the_points_of_the_grid_are_accepted(protocol: str) -> None:
    task = task_of("{from: 1, to: 1.2}", protocol).with_simulated(True)
    engine = device_for(task).engine()
    rules = wire_rules(task, engine.admission)
    layout = Layout(rules)
    known = [*task.privacy.levels]
    off = [str(len(known) - 1), "00", "01", "-1", "1e0", "1_0", "Default", "from", "mu", "9" * 32]
    for level in (*known, *off):
        more = {"version": 0} if "version" in KINDS[engine.kind].model_fields else {}
        more |= {"query": "score"} if engine.kind == "score" else {}
        release = KINDS[engine.kind](
            id="0" * 32, task=task.hash, level=level, partition=0, payload=[1] * engine.dimension,
            time=0, expires=2**40,
            simulated=True, **more,
        )  # fmt: skip
        data = encode(release)
        if level in known:
            assert decode(data, rules).level == level
            columns = layout.read(Packed.of([data, data]))
            assert columns is not None
            assert columns.levels()[0] == [level]
            continue
        assert layout.read(Packed.of([data])) is None
        with pytest.raises(RejectedError) as rejected:
            decode(data, rules)
        assert rejected.value.reason == "level"


# Learning


@pytest.fixture
def unsurveyed(monkeypatch: pytest.MonkeyPatch) -> None:
    """People of tasks of scores answer scores from the first on, as they do after a survey."""
    monkeypatch.setattr("murk.protocols.scores.device._survey", lambda task, classes: None)


def released(task: Task, protocol: str, budgets: np.ndarray[Any, Any], seed: int = 3) -> tuple[Any, list[Any]]:
    """An engine's device, and a release of each of so many people at the level of their budget."""
    rng, device = np.random.default_rng(seed), device_for(task)
    X = np.column_stack([rng.uniform(-1, 1, (len(budgets), FEATURES)), np.ones(len(budgets))])
    y, theta = rng.uniform(-1, 1, len(budgets)), getattr(device, "initial", np.empty(0))
    levels, indices = [f"{place}" for place in budgets.tolist()], np.arange(len(budgets))
    asked: Any = SingleQueryDevice(device, "score") if device.kind == "score" else device  # type: ignore[arg-type]
    payloads = randomize_rows(asked, X, y, [0] * len(budgets), {0: theta}, levels, SimulatedNoise(seed), indices)  # type: ignore[arg-type]
    more: dict[str, Any] = {"version": 0} if "version" in KINDS[device.kind].model_fields else {}
    more |= {"query": "score"} if device.kind == "score" else {}
    made = [
        KINDS[device.kind](
            id=f"{place:032x}", task=task.hash, level=level, partition=0, payload=payload, time=0, expires=2**40, **more
        )
        for place, (level, payload) in enumerate(zip(levels, payloads.tolist(), strict=True))
    ]
    return device, made


@pytest.mark.parametrize(
    ("protocol", "more"),
    [
        ("scores", ""), ("gradients", ""), ("examples", "examples: {release: outer}\n"),
        ("examples", "examples: {release: joint}\n"), ("moments", ""), ("moments", "moments: {release: separate}\n"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("guarantee", ["gdp: {mu: 1.0}", "approx: {epsilon: 1.0, delta: 1.0e-6}"])
@pytest.mark.usefixtures("unsurveyed")
def test_learns_to_the_bit_what_named_levels_learn(protocol: str, more: str, guarantee: str) -> None:
    grid = task_of("{from: 0.9, to: 1.1}", protocol, guarantee, more)
    named = {level: each.to_dict() for level, each in grid.privacy.levels.items() if level != "default"}
    other = task_of(json.dumps(named), protocol, guarantee, more)
    assert other.hash != grid.hash
    assert dict(other.privacy.levels) == dict(grid.privacy.levels)
    device, releases = released(grid, protocol, np.random.default_rng(5).integers(0, len(named), 60))
    engine, restored, expected = device.engine(), device.engine(), device_for(other).engine()
    for each in (engine, expected):
        each.learn_releases(releases[:25])
        each.learn_releases(releases[25:])
    assert engine.state_dict() == expected.state_dict()
    # Continued by a process that has seen other levels first.
    half = device_for(grid).engine()
    half.learn_releases(releases[:25])
    restored.learn_releases(releases[40:50])
    restored.load_state_dict(json.loads(json.dumps(half.state_dict())))
    restored.learn_releases(releases[25:])
    assert restored.state_dict() == engine.state_dict()
    assert engine.estimate().values.tolist() == expected.estimate().values.tolist()
    assert engine.estimate().influence == expected.estimate().influence


def means(run: LocalRun) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The mean answers of the only round, and the same without a look at levels."""
    [engine], settings = run.engines, run.device.settings  # type: ignore[attr-defined]
    [found] = summaries(engine.now.rounds, engine.mechanisms, settings.features)
    upper = np.triu_indices(settings.features)
    parts = []
    for query in ("score", "curvature"):
        tallies = {level: tally for (level, own), tally in engine.now.rounds[0].tallies.items() if own == query}
        total = sum(
            step_of(engine.mechanisms[level].mechanism(query)) * np.array(tally.total, dtype=float)
            for level, tally in tallies.items()
        )
        parts.append(total / sum(tally.count for tally in tallies.values()))
    parts[1] *= (
        engine.now.rounds[0].model.matrix_clipping_norm / 2.0 * np.where(upper[0] == upper[1], 1.0, math.sqrt(0.5))
    )
    return np.concatenate([found.score.mean, found.curvature.mean[upper]]), np.concatenate(parts)  # type: ignore[union-attr]


def learned(folder: Path, people: Path, level: str, levels: str = "{}", mu: float = 1.0) -> Any:
    """The means of a file's people, learned from a log in a file; the noise of a row is the same in all runs."""
    task = task_of(levels, guarantee=f"gdp: {{mu: {mu}}}")
    folder.mkdir()
    with LocalRun(
        task, PopulationConfig(people, None, level, 11), f"sqlite:///{folder}/log.db", folder / "l.db"
    ) as run:
        for _ in run.steps():
            pass
        assert run.releases == ROWS
        if levels != "{}":
            assert len(run.engines[0].now.rounds[0].tallies) > 50
        return means(run)


@pytest.mark.usefixtures("unsurveyed")
def test_errors_of_own_budgets_are_between_those_of_their_ends(tmp_path: Path) -> None:
    # Shi, Xie, Jiang, Kong and He, figure 2: budgets drawn from Unif(1, 2). A row's noise is z_i / mu_i, with the same
    # z_i in all runs, and weights are nearly mu_i^2: so the errors are e_1 = mean z, e_2 = e_1 / 2 and
    # e_u = sum mu z / sum mu^2 = a e_1 + b u, with a = (3/2) / (7/3) = 0.643, a^2 + b^2 = 3/7 and u independent. In d =
    # 13 + 91 numbers |e_u|^2 / |e_1|^2 has mean 3/7 and standard deviation 2 a b / sqrt d = 0.0156, and is within 6 of
    # these except with probability 2e-9. (1/p, which weights add to the noise variance, moves it by less than 0.01.)
    rng = np.random.default_rng(8)
    X, own, wide = rng.uniform(-1, 1, (ROWS, FEATURES)), rng.uniform(1, 2, ROWS), 4.0 ** rng.uniform(-1, 1, ROWS)
    y = np.clip(X @ np.linspace(-0.3, 0.3, FEATURES) + rng.uniform(-0.2, 0.2, ROWS), -1, 1)
    rows = [",".join(f"{value:.6f}" for value in row) for row in np.column_stack([X, y, own, wide])]
    people = tmp_path / "people.csv"
    people.write_text("\n".join([",".join([*NAMES, "y", "own", "wide"]), *rows]) + "\n")
    truth, _ = learned(tmp_path / "exact", people, "default", mu=500.0)

    def errors(name: str, level: str = "default", levels: str = "{}", mu: float = 1.0) -> list[float]:
        return [float(np.sum((each - truth) ** 2)) for each in learned(tmp_path / name, people, level, levels, mu)]

    (one, same), (two, _) = errors("one"), errors("two", mu=2.0)
    between, _ = errors("own", "guarantee:own", WIDE)
    # With one level, weights make no difference.
    assert same == pytest.approx(one, rel=1e-9)
    assert two == pytest.approx(one / 4, rel=0.02)
    assert two < between < one
    # Weights of mu or of 1 would pass here; the wider budgets below tell them apart.
    assert between / one == pytest.approx(3 / 7, abs=6 * 0.0156 + 0.01)
    # Budgets from 1/4 to 4, uniform on the scale of logarithms: weighted and plain means have the variances 1/2.87 and
    # 2.87. The plain one's error is the weighted one's and an independent part of 7.2 times its variance: it is smaller
    # with probability below P(F(104, 104) > 7.2) = 1e-20.
    weighted, blind = errors("wide", "guarantee:wide", WIDE)
    assert blind > 2.0 * weighted


# What is said of it


def test_plans_and_reports_state_the_range_and_what_they_assume() -> None:
    task = task_of(WIDE)
    found = Plan(task, designs(task, Effects())[:1], (), {}, 1.0, {})
    assert next(iter(remarks(found))) == (
        "Everybody is assumed to have the budget of privacy.guarantee (mu = 1); people choose on the grid of mu = 0.25 "
        "to 4 (142 levels). For the least that can be learned, state the smallest budget."
    )
    assert not [each for each in remarks(replace(found, task=task_of("{}"))) if "grid" in each]
    assert outlook(task, 100_000, "lot") is None
    assert list(describe_levels(task)) == ["default", "0", "141"]
    assert describe_grid(task)["words"].endswith(
        "on a grid of mu = 0.25 to 4 (142 levels): level 0 is the smallest budget, level 141 the largest."
    )


def test_forecasts_of_what_it_takes_have_one_range_of_budgets() -> None:
    few, many = (
        {"a": GaussianDP(1.0), "b": GaussianDP(2.0)},
        {str(place): GaussianDP(1.0 + place) for place in range(30)},
    )
    assert _budgets_words(few) == "mu of about 1 (a) and mu of about 2 (b)"
    assert _budgets_words(many) == "mu of about 1 to 30"
