"""The dashboard of the promises: what people were guaranteed, and what they have spent, as sums over many."""

from __future__ import annotations

from tools.grafana.board import Line, Section, dashboard, one_task
from tools.grafana.panels import Json, buckets, heatmap, stat, target, text, timeseries

NO_EPSILON = "no level of this task states an epsilon"
NO_MU = "no level of this task states a mu"
NO_PEOPLE = "not exported here"
NO_GATEWAY = "no gateway"
REFUSALS = 'sum(murk_ledger_refusals_total{task="$task"})'
SPENT = 'sum by (le) (murk_ledger_spent_ratio_bucket{task="$task"})'
PEOPLE = 'sum(murk_ledger_spent_ratio_count{task="$task"})'

WORDS = """
**What is here.** Functions of *releases* and of the task's public settings, and nothing else: how many releases
were made under each guarantee, and sums over many people of what they have spent. No figure has a person in it.

**What is not.** No record, no exact loss, no gradient before noise, nobody's account. A device's own figures stay on
the device. Of the folded rows, the first fills only where there is a *gateway*, which knows how many releases came at
each level; the other only where a *simulated population*, or a *file of at least 20 people*, exports sums. A person
sees their own account with `murk ledger`.

**How to read it.** A smaller epsilon or mu is a stronger promise. The figures are those of *one release*; what all
a person's releases come to is kept by their own ledger, under their own cap. That they take part, and when, is not
hidden.
""".strip()


def privacy() -> Json:
    """Make the dashboard."""
    return dashboard(
        "murk-privacy",
        "Murk: privacy",
        "Which guarantees the releases carry, and, for simulated populations and gateways, what people have spent.",
        [
            Section("Read this first", [
                Line([text("What these figures are", "What is shown, and what never is.", WORDS), *_now()], 8,
                     (12, 4, 4, 4)),
            ]),
            Section("Guarantee of each release", [Line(_totals(), 8), Line(_over_time(), 8)]),
            Section("Devices: what a gateway may know of budgets", [
                Line([_by_level(), _refused_by_gateway()], 8),
            ], folded=True),
            Section("People's accounts (a population or a file: sums over at least 20 people)", [
                Line([_spent(), _quantiles()], 8),
                Line([_refusals(), _refused_share()], 7),
            ], folded=True),
        ],
        [one_task()],
    )  # fmt: skip


def _now() -> list[Json]:
    return [
        stat("Releases", "Releases learned under a guarantee.",
             'sum(max by (partition) (murk_model_version{task="$task"}))', decimals=0),
        stat("People", "Accounts in the sums below. Never fewer than 20.", PEOPLE, empty=NO_PEOPLE, decimals=0),
        stat("Refusals", "Releases that ledgers refused, for want of budget or after withdrawal: the promise being "
             "kept, not a fault.", REFUSALS, empty=NO_PEOPLE, decimals=0),
    ]  # fmt: skip


def _totals() -> list[Json]:
    return [
        buckets(
            "Releases by epsilon",
            "All learned releases whose level states an epsilon, by its size: a bar holds those up to its label and "
            "above the bar before.",
            'max by (le) (murk_release_epsilon_bucket{task="$task"})',
            empty=NO_EPSILON,
        ),
        buckets(
            "Releases by mu",
            "All learned releases whose level states a mu (or a rho, of which mu is the root of twice), by its size.",
            'max by (le) (murk_release_mu_bucket{task="$task"})',
            empty=NO_MU,
        ),
    ]


def _over_time() -> list[Json]:
    return [
        heatmap(
            "Releases by epsilon over time",
            "Releases per second in each bucket of epsilon. A shift says that people choose another level.",
            'max by (le) (rate(murk_release_epsilon_bucket{task="$task"}[$__rate_interval]))',
            empty=NO_EPSILON,
        ),
        heatmap(
            "Releases by mu over time",
            "Releases per second in each bucket of mu. A shift says that people choose another level.",
            'max by (le) (rate(murk_release_mu_bucket{task="$task"}[$__rate_interval]))',
            empty=NO_MU,
        ),
    ]


def _by_level() -> Json:
    # Each person's device spends one release's budget each time; nobody can say who has spent what.
    return timeseries(
        "Releases by level in the last day",
        "Releases that devices have sent within a day, by the level whose budget each of them has spent.",
        target('sum by (level) (increase(murk_gateway_levels_total{task="$task"}[1d]))', "{{level}}"),
        least=0,
        stack=True,
        empty=NO_GATEWAY,
    )


def _refused_by_gateway() -> Json:
    return timeseries(
        "Refused in the last day",
        "Releases whose budget was spent in vain, by reason: a gateway refused them.",
        target('sum by (reason) (increase(murk_gateway_refusals_total{task="$task"}[1d]))', "{{reason}}"),
        least=0,
        stack=True,
        empty=NO_GATEWAY,
    )


def _spent() -> Json:
    return buckets(
        "People by share of the cap spent",
        "How many people have spent how much of their cap: 0 is nothing yet, 1 is all of it.",
        SPENT,
        empty=NO_PEOPLE,
    )


def _quantiles() -> Json:
    # A person's share moves from bucket to bucket, so this histogram is read as it stands and never as a rate.
    return timeseries(
        "Share of the cap spent",
        "Mean, median and 90% quantile over people. At 1 a person can release no more for this task, and the "
        "stream dries up unless others join.",
        target(f'sum(murk_ledger_spent_ratio_sum{{task="$task"}}) / {PEOPLE}', "mean"),
        target(f"histogram_quantile(0.5, {SPENT})", "median"),
        target(f"histogram_quantile(0.9, {SPENT})", "90%"),
        unit="percentunit",
        least=0,
        most=1,
        empty=NO_PEOPLE,
    )


def _refusals() -> Json:
    return timeseries(
        "Refusals",
        "Releases refused per second. A wave of them means that many people have reached their caps.",
        target('sum(rate(murk_ledger_refusals_total{task="$task"}[$__rate_interval]))', "refused"),
        unit="cps",
        least=0,
        empty=NO_PEOPLE,
    )


def _refused_share() -> Json:
    return timeseries(
        "Refusals for each release learned",
        "Refused releases for each one that was learned, since the start.",
        target(f'{REFUSALS} / sum(max by (partition) (murk_model_version{{task="$task"}}))', "refused / learned"),
        least=0,
        empty=NO_PEOPLE,
    )
