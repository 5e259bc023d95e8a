"""The dashboard of all tasks side by side, such as several protocols that ask the same people the same question."""

from __future__ import annotations

from tools.grafana.board import Line, Section, dashboard, label_values, variable
from tools.grafana.panels import Json, table, target, timeseries

OF = '{task=~"$tasks"}'
RATE = "[$__rate_interval]"
LEARNED = f"sum by (task) (max by (task, partition) (murk_model_version{OF}))"
SPEED = f'max by (task) (rate(murk_releases_total{{task=~"$tasks", result="learned"}}{RATE}))'
ERROR = f"max by (task) (murk_estimated_error{OF})"
TRUE_ERROR = f"max by (task) (murk_parameter_error{OF})"
LAG = f"sum by (task) (max by (task, partition) (murk_lag_releases{OF}))"
DEAD = f"sum by (task) (max by (task, reason) (murk_dead_letters_total{OF}))"
ESTIMATE = f"(max by (task, name) (murk_mean{OF}) or max by (task, name) (murk_parameter{OF}))"
HALF_WIDTH = (
    f"(max by (task, name) (murk_mean_half_width{OF})"
    f" or max by (task, name) (murk_parameter_sequence_half_width{OF})"
    f" or max by (task, name) (murk_parameter_half_width{OF}))"
)
STALENESS = (
    f"max by (task) (rate(murk_staleness_releases_sum{OF}{RATE}))"
    f" / max by (task) (rate(murk_staleness_releases_count{OF}{RATE}))"
)
SPENT = f"sum by (task) (murk_ledger_spent_ratio_sum{OF}) / sum by (task) (murk_ledger_spent_ratio_count{OF})"
PARTITION = "{{task}}, partition {{partition}}"


def tasks() -> Json:
    """Make the dashboard."""
    return dashboard(
        "murk-tasks",
        "Murk: tasks",
        "All tasks side by side: their errors, what only some protocols have, and what people have spent.",
        [
            Section("Now", [Line([_table()], 7)]),
            Section("How far from the truth", [Line([_true_error(), _error()], 9), Line([_estimates(), _widths()], 9)]),
            Section("What only some protocols have", [Line([_gap(), _step()], 8), Line([_staleness(), _loss()], 8)]),
            Section("Pipeline and budgets", [Line([_speed(), _lag(), _spent()], 8)]),
        ],
        [
            variable("tasks", "Tasks", "The tasks to compare.", label_values("murk_log_reachable", "task"),
                     several=True)
        ],
    )  # fmt: skip


def _by_task(title: str, description: str, expr: str, legend: str = "{{task}}", **more: object) -> Json:
    """Draw a figure of every task; a series leads to the dashboard of its task."""
    panel = timeseries(title, description, target(expr, legend), **more)  # type: ignore[arg-type]
    panel["fieldConfig"]["defaults"]["links"] = [
        {
            "title": "${__field.labels.task}: its estimate",
            "url": "/d/murk-model?var-task=${__field.labels.task}&${__url_time_range}",
        }
    ]
    return panel


def _table() -> Json:
    return table(
        "Tasks",
        "Releases learned, the distance of the estimate from the reference (if one is given), the distance that is "
        "expected from the releases alone, and what waits or was set aside.",
        {
            "releases": LEARNED,
            "error": TRUE_ERROR,
            "estimated error": ERROR,
            "lag": LAG,
            "dead letters": DEAD,
        },
        "task",
    )


def _true_error() -> Json:
    return _by_task(
        "Error against the reference",
        "Euclidean distance of each estimate from the reference parameters, in coded units, on a log scale. Compare "
        "tasks that ask the same question of as many people. Only where somebody knows the truth (--reference).",
        TRUE_ERROR,
        log=True,
        empty="no reference given",
    )


def _error() -> Json:
    return _by_task(
        "Estimated error",
        "Root of the summed squared standard errors, from releases alone, on a log scale. It is missing where a "
        "protocol has no interval (yet).",
        ERROR,
        log=True,
        empty="no interval (yet)",
    )


def _estimates() -> Json:
    return _by_task(
        "Estimates",
        "Each coefficient of each task, in coded units. Tasks with the same question should agree within their "
        "intervals.",
        ESTIMATE,
        "{{name}} of {{task}}",
    )


def _widths() -> Json:
    return _by_task(
        "Widest half width",
        "The largest half width of a task's intervals, in coded units, at 95%: at every look where there are such "
        "intervals.",
        f"max by (task) ({HALF_WIDTH})",
        log=True,
        empty="no interval (yet)",
    )


def _gap() -> Json:
    return _by_task(
        "Distance of the iterate from its average",
        "Of tasks of gradients and examples, whose learners take steps: the newest iterate wanders around the "
        "average, less and less.",
        f"max by (task, partition) (murk_iterate_gap{OF})",
        PARTITION,
        log=True,
        empty="no task of gradients or examples",
    )


def _step() -> Json:
    return _by_task(
        "Step size",
        "Of tasks of gradients and examples: the factor of the next gradient, which falls with the number of releases.",
        f"max by (task, partition) (murk_step_size{OF})",
        PARTITION,
        log=True,
        empty="no task of gradients or examples",
    )


def _staleness() -> Json:
    return _by_task(
        "Mean staleness",
        "Of tasks of gradients: how many releases the partition had learned since the model that a gradient was taken "
        "at.",
        STALENESS,
        least=0,
        empty="no task of gradients",
    )


def _loss() -> Json:
    return _by_task(
        "Unbiased loss",
        "Of tasks of examples: mean loss under the model before each release, estimated from noisy examples; noise "
        "can take it below zero. Compare only tasks with the same loss.",
        f"max by (task) (murk_unbiased_loss{OF})",
        empty="no task of examples",
    )


def _speed() -> Json:
    return _by_task(
        "Learned per second", "How fast each task's count of learned releases rises.", SPEED, unit="cps", least=0
    )


def _lag() -> Json:
    return _by_task(
        "Lag", "Messages on each task's log that are not in any committed state yet. It must not keep rising.", LAG,
        least=0,
    )  # fmt: skip


def _spent() -> Json:
    return _by_task(
        "Share of the cap spent",
        "Mean over people of the share of each task's own cap that they have spent. A person who takes part in "
        "several tasks spends a budget in each, and the privacy losses add up: `--lifetime` caps their sum.",
        SPENT,
        unit="percentunit",
        least=0,
        most=1,
        empty="not exported here",
    )
