"""Alerts on the exported metrics, and the series that they need recorded, as plain data.

Alerts speak of tasks and chains, never of people. Each says what to do, and links to its page of the runbook, which
the monitor serves (`murk.monitoring.runbook`). Prometheus' rule file is generated from them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from murk.learners.estimates.drift import FALSE_ALARM
from murk.monitoring.metrics.exporter import LEARNED

MONITOR_JOB: Final = "murk-monitor"
"""Prometheus' name for the job that scrapes the monitor."""
RUNBOOK: Final = "/runbook"
"""Path of the runbook on the monitor."""
SHARE_DEAD: Final = 0.05
SHARE_REFUSED: Final = 0.25
SHARE_STALE: Final = 0.02
SHARE_LEFT_OUT: Final = 0.01
SECONDS_BEHIND: Final = 60
WIDER: Final = 2.5
LOWER: Final = 0.1
FEW: Final = 100
"""Counts below which a share or a lag says nothing."""

COUNT: Final = "task:murk_estimate_releases:max"
SCALED_ERROR: Final = "task:murk_estimated_error:law"
RECORDED: Final = {
    COUNT: "max by (task) (murk_estimate_releases)",
    # The error falls like one over the root of the count, so this is flat while all is well.
    SCALED_ERROR: f"max by (task) (murk_estimated_error) * sqrt({COUNT})",
}
"""Recording rules: name and expression."""


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert.

    Parameters
    ----------
    name
        CamelCase, beginning with Murk.
    expr
        It is raised for every series this gives.
    wait
        How long ``expr`` must hold first.
    severity
        ``critical``: learning has stopped or cannot be seen. ``warning``: it gets worse by itself. ``info``: look
        when there is time.
    summary, description
        What is the matter, in one line; and what to do.
    anchor
        Heading of its part of ``docs/recover.md``, as in a link.
    """

    name: str
    expr: str
    wait: str
    severity: Literal["critical", "warning", "info"]
    summary: str
    description: str
    anchor: str


_READ: Final = "sum by (task) (max by (task, result) (increase(murk_releases_total[15m])))"
_READ_RATE: Final = "sum by (task) (max by (task, result) (rate(murk_releases_total[5m])))"
_LEARNED: Final = f'max by (task) (increase(murk_releases_total{{result="{LEARNED}"}}[5m]))'
_DEAD: Final = "sum by (task) (max by (task, reason) (increase(murk_dead_letters_total[15m])))"
_LAG: Final = "max by (task, partition) (murk_lag_releases)"
_REFUSED: Final = "sum by (task) (increase(murk_ledger_refusals_total[15m]))"
_STALENESS: Final = (
    "(max by (task) (increase(murk_staleness_releases_sum[15m]))"
    " / max by (task) (increase(murk_staleness_releases_count[15m])))"
)
_LEFT_OUT: Final = "sum by (task) (max by (task, partition) (increase(murk_refused_updates_total[15m])))"
_LEARNED_LONG: Final = _LEARNED.replace("[5m]", "[15m]")
_VERSION: Final = "avg by (task) (max by (task, partition) (murk_model_version))"

ALERTS: Final = (
    Alert(
        "MurkMonitorDown",
        f'up{{job="{MONITOR_JOB}"}} == 0 or absent(up{{job="{MONITOR_JOB}"}})',
        "1m",
        "critical",
        "The monitor of a task cannot be scraped",
        "Nothing is known of the task while the monitor is down; learning itself does not need it. Look at the "
        "monitor's log, start it again (it has no state of its own and loses nothing), and check Prometheus' targets.",
        "the-monitor-is-down",
    ),
    Alert(
        "MurkLogUnreachable",
        "max by (task) (murk_log_reachable) == 0",
        "1m",
        "critical",
        "The monitor of {{ $labels.task }} cannot read the log",
        "All other figures stand still. Check the broker (or the log's file and its disk), the network, and the "
        "monitor's credentials; /healthz of the monitor says what went wrong. Devices keep their releases meanwhile.",
        "the-log-cannot-be-reached",
    ),
    Alert(
        "MurkNoProgress",
        f"{_LAG} > 0 and on (task, partition) max by (task, partition) (changes(murk_model_version[5m])) == 0"
        # While the log cannot be read both figures stand still, and that has an alert of its own.
        " unless on (task) max by (task) (murk_log_reachable) == 0",
        "5m",
        "critical",
        "Chain {{ $labels.partition }} of {{ $labels.task }} learns nothing, and {{ $value }} messages wait for it",
        "No learner works on the chain. Check that `murk learn` runs and owns the chain (the live page names the "
        "owner), read its log for a refusal (a log that was recreated, a damaged state), and start another one. If "
        "MurkNothingLearned is raised as well, a learner is at work, and everything it reads is refused.",
        "a-chain-makes-no-progress",
    ),
    Alert(
        "MurkNothingLearned",
        f"{_READ_RATE} > 0 and on (task) {_LEARNED} == 0",
        "5m",
        "critical",
        "Messages for {{ $labels.task }} are read, and none of them is learned",
        "All that arrives is a duplicate or a dead letter. See `murk dead-letters` for the reasons: most often the "
        "devices follow another version of the task, or simulated releases go to a log for real ones.",
        "nothing-is-learned",
    ),
    Alert(
        "MurkLag",
        # Bursts and replays that are being worked off are no fault: the lag must be long, and not falling.
        f"sum by (task) ({_LAG}) > {FEW}"
        f" and on (task) sum by (task) ({_LAG}) > on (task) {SECONDS_BEHIND} * {_READ_RATE}"
        f" and on (task) sum by (task) (max by (task, partition) (deriv(murk_lag_releases[10m]))) >= 0",
        "10m",
        "warning",
        "Learners of {{ $labels.task }} are more than a minute behind, and not catching up",
        "{{ $value }} messages wait. Start more learners, one for each chain at the most, or look for a slow one. "
        "Where people release gradients, these grow stale meanwhile, and the stalest become dead letters.",
        "learners-lag-behind",
    ),
    Alert(
        "MurkDeadLetters",
        f"{_DEAD} / on (task) {_READ} > {SHARE_DEAD} and on (task) {_DEAD} > 10",
        "5m",
        "warning",
        "{{ $value | humanizePercentage }} of the messages for {{ $labels.task }} cannot be learned",
        "See `murk dead-letters` for the reasons. They cost no one privacy beyond what was paid, but those releases "
        "are lost to the estimate. 'stale': learners or devices are slow; 'wrong-task' or 'level': devices follow "
        "another task; 'malformed' or 'schema': a broken or hostile sender.",
        "many-dead-letters",
    ),
    Alert(
        "MurkRefusals",
        f"{_REFUSED} > on (task) {SHARE_REFUSED} * {_READ} and on (task) {_REFUSED} > 10",
        "15m",
        "info",
        "Ledgers refuse many releases for {{ $labels.task }}: {{ $value | humanize }} in 15 minutes",
        "People have spent their caps, or have withdrawn. That is the promise being kept: do not raise caps to "
        "silence this. Expect fewer releases, ask other people to take part, or end the task.",
        "ledgers-refuse-releases",
    ),
    Alert(
        "MurkIntervalNotShrinking",
        # Error times root of count against its own lower tenth over a week: once the error does not fall any more,
        # this passes 2.5 when the count has grown 6.25 times, and stays above it. Plug-in intervals are smooth.
        # Random scaling wanders by itself: by its limit distribution this is above 2.5 with probability 0.3% with three
        # coefficients of equal weight, and 9% with a single one (tests/tools/test_alerts.py).
        f"{SCALED_ERROR} > {WIDER} * quantile_over_time({LOWER}, {SCALED_ERROR}[7d])"
        f" and on (task) max by (task) (increase(murk_releases_total{{result=\"{LEARNED}\"}}[1h])) > {FEW}",
        "15m",
        "info",
        "Releases for {{ $labels.task }} are learned, but its intervals do not shrink",
        "The error should fall like one over the root of the number of releases; it is more than 2.5 times what "
        "that would make it. Look at the model dashboard: a parameter that drifts means that people have changed "
        "(begin a new task); a growing staleness, that gradients are old; the privacy dashboard, whether people "
        "choose stronger levels than before, which is their right and widens intervals.",
        "intervals-do-not-shrink",
    ),
    Alert(
        "MurkModelChanged",
        # The false alarm is over the stream's whole life, however often it is looked at: nothing is to be waited for.
        f"min by (task) (murk_drift_p_value) <= {FALSE_ALARM}",
        "1m",
        "warning",
        "The coefficients of {{ $labels.task }} have changed beyond noise",
        "Newer releases contradict older ones: a model that does not change shows as much with probability "
        "{{ $value }} at most, over its whole life. The estimate is a mean of before and after. `murk status` says "
        "since when, and which coefficients. Begin a new task for the new time, or one that forgets "
        "(`forget: N`, protocol scores). A change of who takes part looks the same.",
        "the-model-has-changed",
    ),
    Alert(
        "MurkStaleGradients",
        f"{_STALENESS} > on (task) {SHARE_STALE} * {_VERSION} and on (task) {_STALENESS} > {FEW}",
        "10m",
        "warning",
        "Gradients for {{ $labels.task }} are {{ $value | humanize }} releases old on average",
        "That is more than 2% of what a chain has learned: the estimate is worse than its interval says. Check that "
        "learners publish models (lag, a learner that hangs), that devices fetch them, and that they do not hold "
        "releases back; a smaller `max_staleness` in the task refuses the oldest.",
        "gradients-are-stale",
    ),
    Alert(
        "MurkUpdatesRefused",
        f"{_LEFT_OUT} / on (task) {_LEARNED_LONG} > {SHARE_LEFT_OUT} and on (task) {_LEFT_OUT} > 10",
        "5m",
        "warning",
        "{{ $value | humanizePercentage }} of what was learned for {{ $labels.task }} was left out of the estimate",
        "Their updates were not finite, or no honest release looks like that: honest ones are refused about never. "
        "Somebody sends made-up releases that pass the checks of the wire; find out whose connection it is and take "
        "its right to write. What was left out has not moved the estimate.",
        "updates-are-refused",
    ),
    Alert(
        "MurkOutboxGrowing",
        "sum by (task) (murk_outbox_pending) > 0 and on (task) sum by (task) (min_over_time(murk_outbox_pending[10m]))"
        f" > {FEW} and on (task) sum by (task) (deriv(murk_outbox_pending[10m])) > 0",
        "10m",
        "warning",
        "{{ $value }} releases for {{ $labels.task }} wait on devices, and the number grows",
        "The log does not confirm them. Check the broker, the devices' network and credentials, and free disk where "
        "the outbox lives. Nothing is lost and nothing is paid twice: they are sent once the log is back.",
        "the-outbox-grows",
    ),
    Alert(
        "MurkPublicCovariatesUnlike",
        "max by (task) (murk_public_covariates_alike) == 0",
        "1h",
        "warning",
        "The public covariates of {{ $labels.task }} are not like the people's",
        "What people released is not what the public rows predict, or says that they are worth next to nothing. "
        "The rows are not used as long as that is so: nothing is wrong with the estimate, but its intervals are wider, "
        "or there are none. See where the rows come from, and begin a task with better ones, or without any.",
        "public-covariates-are-unlike-the-peoples",
    ),
)  # fmt: skip
"""All alerts."""
