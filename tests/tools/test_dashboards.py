"""Dashboards: what they ask is exported, and their JSON fits Grafana's schema."""

import copy
import json

import pytest
from grafana_foundation_sdk.models import units

from murk.monitoring.metrics.catalogue import METRICS
from tests.tools import grafana_schema
from tools import generate
from tools.grafana import DASHBOARDS, DATASOURCE
from tools.grafana.board import Line, Section, dashboard, label_values
from tools.grafana.panels import stat, target
from tools.promql import find, names, query

MADE = {name: make() for name, make in DASHBOARDS.items()}
every_dashboard = pytest.mark.parametrize("made", MADE.values(), ids=MADE)


def panels(made):
    return [panel for panel in grafana_schema.flat(made["panels"]) if panel["type"] != "row"]


def queries(made):
    return [target["expr"] for panel in panels(made) for target in panel.get("targets", [])]


@every_dashboard
def test_json_fits_the_published_schema(made):
    assert grafana_schema.problems(made) == []


def wrong_key(panel):
    panel["optoins"] = {}


def wrong_query_key(panel):
    panel["targets"][0]["expression"] = "1"


def wrong_type(panel):
    panel["fieldConfig"]["defaults"]["unit"] = 3


def wrong_choice(panel):
    panel["options"]["graphMode"] = "areas"


def wrong_number(panel):
    panel["gridPos"]["w"] = 2.5


def wrong_threshold(panel):
    panel["fieldConfig"]["defaults"]["thresholds"]["steps"][0]["value"] = "low"


def wrong_transformation(panel):
    panel["transformations"] = [{"id": "merge", "option": {}}]


def wrong_kind(panel):
    panel["type"] = "statt"


@pytest.mark.parametrize(
    "spoil",
    [wrong_key, wrong_query_key, wrong_type, wrong_choice, wrong_number, wrong_threshold, wrong_transformation,
     wrong_kind],
)  # fmt: skip
def test_schema_check_sees_what_is_wrong(spoil):
    made = copy.deepcopy(MADE["model"])
    panel = next(panel for panel in made["panels"] if panel["type"] == "stat")
    spoil(panel)
    assert grafana_schema.problems(made)


@every_dashboard
def test_grid_is_full_and_nothing_overlaps(made):
    for row in [made, *(panel for panel in made["panels"] if panel["type"] == "row" and panel["collapsed"])]:
        taken = set()
        for panel in row["panels"]:
            at = panel["gridPos"]
            cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
            assert not cells & taken, panel["title"]
            taken |= cells
        assert {x for x, _ in taken} == set(range(24))
        first, last = (end(y for _, y in taken) for end in (min, max))
        assert len(taken) == 24 * (1 + last - first)
        # A folded row's panels follow it.
        assert first == (row["gridPos"]["y"] + 1 if row is not made else 0)
    every = [*grafana_schema.flat(made["panels"])]
    assert len({panel["id"] for panel in every}) == len(every)


def is_of_some(metric):
    """Whether only tasks of some protocols, or with a service of their own, have a metric."""
    words = ("with protocol", "iterative", "with `contrasts`", "with `predictions`", "with `track`")
    return metric.side in ("gateway", "shuffler", "archiver") or any(word in metric.optional for word in words)


@pytest.mark.parametrize("name", [name for name in MADE if name != "tasks"])
def test_rows_that_only_some_tasks_fill_are_folded(name):
    """People's sums fill no row by themselves, and may stand beside what every task has: their panels say so."""
    row, filled = None, {}
    for panel in grafana_schema.flat(MADE[name]["panels"]):
        if panel["type"] == "row":
            row = panel
            assert row["collapsed"] == bool(row["panels"])
        for one in panel.get("targets", []):
            found = [find(metric) for metric in names(one["expr"])]
            kind = "people" if any(metric.side == "people" for metric in found) else "every task"
            kind = "some tasks" if any(map(is_of_some, found)) else kind
            filled.setdefault((row["title"], row["collapsed"]), set()).add(kind)
    for (title, folded), kinds in filled.items():
        assert folded == ("every task" not in kinds), (title, kinds)
        assert folded or "some tasks" not in kinds, title


def test_all_tasks_are_chosen_at_first_where_they_are_compared():
    [chosen] = MADE["tasks"]["templating"]["list"]
    assert (chosen["name"], chosen["multi"], chosen["current"]["value"]) == ("tasks", True, ["$__all"])
    for name in MADE.keys() - {"tasks"}:
        [chosen] = [one for one in MADE[name]["templating"]["list"] if one["name"] == "task"]
        assert not chosen["multi"]


@every_dashboard
def test_every_panel_says_how_to_read_it(made):
    for panel in panels(made):
        assert panel["description"].endswith("."), panel["title"]
        assert panel["title"]


@every_dashboard
def test_every_query_is_for_the_chosen_task(made):
    for expr in queries(made):
        used = names(expr)
        assert used
        of = 'task=~"$tasks"' if made["uid"] == "murk-tasks" else 'task="$task"'
        assert expr.count(of) == len(used), expr


@every_dashboard
def test_units_are_ones_that_grafana_has(made):
    known = {value for name, value in vars(units).items() if isinstance(value, str) and not name.startswith("__")}
    # The SDK states units as types: Literal["short"].
    known |= {hint.__args__[0] for hint in vars(units)["__annotations__"].values()}
    for panel in panels(made):
        if panel["type"] != "text":
            assert panel["fieldConfig"]["defaults"]["unit"] in known, panel["title"]


def test_every_metric_is_shown():
    shown = {find(name).name for made in MADE.values() for expr in queries(made) for name in names(expr)}
    assert {metric.name for metric in METRICS} == shown


def test_every_panel_asks_the_provisioned_source():
    source = json.dumps(DATASOURCE)
    for made in MADE.values():
        for panel in panels(made):
            for one in [panel, *panel.get("targets", [])] if panel["type"] != "text" else []:
                assert json.dumps(one["datasource"]) == source
    provisioned = dict(generate.files())["deploy/grafana/provisioning/datasources/murk.yml"]
    assert f"uid: {DATASOURCE['uid']}" in provisioned


@pytest.mark.parametrize(
    ("text", "legend", "words"),
    [
        ("murk_release", "", "no metric is called 'murk_release'"),
        ("rate(murk_releases[1m])", "", "no metric is called 'murk_releases'"),
        ('murk_parameter{nam="age"}', "", "no label 'nam'"),
        ('murk_lag_releases{task="a", reason="stale"}', "", "no label 'reason'"),
        ('murk_model_version{task!="a",person=~"."}', "", "no label 'person'"),
        ("sum by (reason) (murk_lag_releases)", "", "no label 'reason'"),
        ("sum without (resaon) (murk_dead_letters_total)", "", "no label 'resaon'"),
        ("murk_lag_releases / on (tsk) murk_model_version", "", "no label 'tsk'"),
        ("rate(murk_lag_releases[1m])", "", "which is a gauge"),
        ("murk_staleness_releases", "", "is a histogram"),
        ("murk_staleness_releases_total", "", "no metric is called"),
        ("murk_parameter_count", "", "no metric is called"),
        ("sum by (task) (murk_lag_releases)", "{{partition}}", "the legend"),
        ("murk_parameter", "{{ partition }}", "the legend"),
        ("task:murk_releases:sum", "", "no metric is called"),
        ('up{task="a"}', "", "no label 'task'"),
    ],
)
def test_a_query_cannot_ask_for_what_is_not_exported(text, legend, words):
    with pytest.raises(ValueError, match=words):
        query(text, legend=legend)
    with pytest.raises(ValueError, match=words):
        target(text, legend)


@pytest.mark.parametrize(
    ("text", "legend"),
    [
        ('histogram_quantile(0.5, sum by (le) (rate(murk_release_mu_bucket{task="$task"}[1m])))', ""),
        ("sum by (reason) (increase(murk_dead_letters_total[5m]))", "{{reason}}"),
        ('murk_parameter{name=~"murk_no_metric{person}"}', "{{name}}"),
        ("max by (name, level) (murk_parameter_half_width)", "{{ name }} {{level}}"),
        ('up{job="a", instance=~".+"} == 0', ""),
    ],
)
def test_what_is_exported_can_be_asked_for(text, legend):
    assert query(text, legend=legend) == text


def test_variables_are_checked_too():
    assert label_values("murk_log_reachable", "task") == "label_values(murk_log_reachable, task)"
    with pytest.raises(ValueError, match="the legend"):
        label_values("murk_log_reachable", "partition")


def test_a_line_must_fill_its_columns():
    panel = stat("t", "d.", "sum(murk_lag_releases)")
    with pytest.raises(ValueError, match="fill 20 of 24"):
        dashboard("u", "t", "d", [Section("s", [Line([panel, panel], widths=(10, 10))])], [])
