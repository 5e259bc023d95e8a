"""Alerts and recording rules for Prometheus' rule file; they concern tasks and partitions, never people."""

from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

from murk.inference.drift import FALSE_ALARM
from murk.monitoring.metrics.exporter import LEARNED

MONITOR_JOB: Final = "murk-monitor"  # Prometheus' name for the job that scrapes the monitor
RUNBOOK: Final = "/runbook"  # path of the runbook on the monitor
SHARE_DEAD: Final = 0.05
SHARE_REFUSED: Final = 0.25
SHARE_STALE: Final = 0.02
SHARE_LEFT_OUT: Final = 0.01
SHARE_LATE: Final = 0.5
SECONDS_BEHIND: Final = 60
WIDER: Final = 2.5
LOWER: Final = 0.1
FEW: Final = 100  # counts below which a share or a lag is not meaningful
COUNT: Final = "task:murk_estimate_releases:max"
SCALED_ERROR: Final = "task:murk_estimated_error:law"
RECORDED: Final = {
    COUNT: "max by (task) (murk_estimate_releases)",
    # The error falls like one over the root of the count, so this product is constant while all is well.
    SCALED_ERROR: f"max by (task) (murk_estimated_error) * sqrt({COUNT})",
}
"""Recording rules: name and expression."""


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert of Prometheus."""

    # ``critical``: learning has stopped or cannot be observed. ``warning``: the situation gets worse by itself.
    # ``info``: not urgent.
    severity: Literal["critical", "warning", "info"]
    name: str  # CamelCase name that begins with Murk
    wait: str  # how long ``expr`` must hold
    anchor: str  # anchor of its section in ``docs/recover.md``
    expr: str  # expression; the alert is raised for every resulting series
    summary: str  # problem in one line
    description: str  # what to do


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

_critical, _warning, _info = partial(Alert, "critical"), partial(Alert, "warning"), partial(Alert, "info")

ALERTS: Final = (
    _critical(
        "MurkMonitorDown",
        "1m",
        "the-monitor-is-down",
        f'up{{job="{MONITOR_JOB}"}} == 0 or absent(up{{job="{MONITOR_JOB}"}})',
        "The monitor of a task cannot be scraped",
        "While the monitor is down, the task cannot be observed; learning continues. Look at the monitor's log, "
        "restart it (it has no state and loses nothing), and check Prometheus' targets.",
    ),
    _critical(
        "MurkLogUnreachable",
        "1m",
        "the-log-cannot-be-reached",
        "max by (task) (murk_log_reachable) == 0",
        "The monitor of {{ $labels.task }} cannot read the log",
        "All other figures are frozen. Check the broker (or the log's file and its disk), the network, and the "
        "monitor's credentials; /healthz of the monitor names the problem. Devices keep their releases meanwhile.",
    ),
    _critical(
        "MurkNoProgress",
        "5m",
        "a-partition-makes-no-progress",
        f"{_LAG} > 0 and on (task, partition) max by (task, partition) (changes(murk_model_version[5m])) == 0"
        # While the log cannot be read, both figures are frozen; MurkLogUnreachable covers that.
        " unless on (task) max by (task) (murk_log_reachable) == 0",
        "Partition {{ $labels.partition }} of {{ $labels.task }} learns nothing, and {{ $value }} messages wait for it",
        "No learner works on the partition. Check that `murk learn` runs and owns the partition (the live page names "
        "the owner), read its log for an error (a recreated log, a damaged state), and start another learner. If "
        "MurkNothingLearned is raised, too, a learner works but refuses all that it reads.",
    ),
    _critical(
        "MurkNothingLearned",
        "5m",
        "nothing-is-learned",
        f"{_READ_RATE} > 0 and on (task) {_LEARNED} == 0",
        "Messages for {{ $labels.task }} are read, but none is learned",
        "All messages are duplicates or dead letters. See `murk dead-letters` for the reasons: most often devices use "
        "another version of the task, or simulated releases are sent to a real log.",
    ),
    _warning(
        "MurkLag",
        "10m",
        "learners-lag-behind",
        # Exclude bursts and replays that are being processed: the lag must be long and not falling.
        f"sum by (task) ({_LAG}) > {FEW}"
        f" and on (task) sum by (task) ({_LAG}) > on (task) {SECONDS_BEHIND} * {_READ_RATE}"
        f" and on (task) sum by (task) (max by (task, partition) (deriv(murk_lag_releases[10m]))) >= 0",
        "Learners of {{ $labels.task }} are more than a minute behind, and not catching up",
        "{{ $value }} messages wait. Start more learners, at most one per partition, or look for a slow one. With "
        "protocol gradients, releases become stale meanwhile, and the stalest become dead letters.",
    ),
    _warning(
        "MurkDeadLetters",
        "5m",
        "many-dead-letters",
        f"{_DEAD} / on (task) {_READ} > {SHARE_DEAD} and on (task) {_DEAD} > 10",
        "{{ $value | humanizePercentage }} of the messages for {{ $labels.task }} cannot be learned",
        "See `murk dead-letters` for the reasons. Dead letters cost no further privacy, but are lost to the estimate. "
        "'stale': learners or devices are slow; 'wrong-task' or 'level': devices use another task; 'malformed' or "
        "'schema': a broken or hostile sender.",
    ),
    _info(
        "MurkRefusals",
        "15m",
        "ledgers-refuse-releases",
        f"{_REFUSED} > on (task) {SHARE_REFUSED} * {_READ} and on (task) {_REFUSED} > 10",
        "Ledgers refuse many releases for {{ $labels.task }}: {{ $value | humanize }} in 15 minutes",
        "People have spent their caps or have withdrawn. This is intended: do not raise caps to silence the alert. "
        "Expect fewer releases, ask other people to take part, or end the task.",
    ),
    _info(
        "MurkIntervalNotShrinking",
        "15m",
        "intervals-do-not-shrink",
        # The ratio of (error times root of count) to its lower decile over a week. Once the error stops falling, the
        # ratio passes 2.5 when the count has grown 6.25 times. Random scaling fluctuates: in its limit distribution the
        # ratio exceeds 2.5 with probability 0.3% for three coefficients of equal weight, and 9% for one
        # (tests/tools/test_alerts.py).
        f"{SCALED_ERROR} > {WIDER} * quantile_over_time({LOWER}, {SCALED_ERROR}[7d])"
        f' and on (task) max by (task) (increase(murk_releases_total{{result="{LEARNED}"}}[1h])) > {FEW}',
        "Releases for {{ $labels.task }} are learned, but its intervals do not shrink",
        "The error should fall with the root of the number of releases, but is more than 2.5 times the expected one. "
        "Look at the model dashboard for a parameter that drifts (people have changed: begin a new task) or growing "
        "staleness (gradients are old), and at the privacy dashboard for stronger levels, which widen intervals.",
    ),
    _warning(
        "MurkModelChanged",
        "1m",
        "the-model-has-changed",
        # The false-alarm probability holds over the stream's whole life, so no long wait is needed.
        f"min by (task) (murk_drift_p_value) <= {FALSE_ALARM}",
        "The coefficients of {{ $labels.task }} have changed beyond noise",
        "Newer releases contradict older ones: a constant model shows this with probability at most {{ $value }} over "
        "its whole life. The estimate averages both. `murk status` shows since when and which coefficients. Begin a "
        "new task, or one that forgets (`forget: N`, protocol scores). A change of participants looks the same.",
    ),
    _info(
        "MurkEffectFound",
        "1m",
        "an-effect-was-found",
        # Only the confidence sequence holds at every evaluation of the rule. Intercepts are left out: they are no
        # effects.
        'abs(max by (task, name) (murk_parameter{name!~"(.*:)?intercept"}))'
        " > on (task, name) max by (task, name) (murk_parameter_sequence_half_width)",
        "The effect of {{ $labels.name }} in {{ $labels.task }} is not zero",
        "Its interval that holds at every look excludes zero; the estimate is {{ $value }} away from zero, in coded "
        "units. For each coefficient, this is false in at most 5% of tasks over their whole life, however often it is "
        "looked at. Nothing is wrong: end the task, or let it continue for narrower intervals.",
    ),
    _info(
        "MurkEffectKnown",
        "1m",
        "an-effect-is-known",
        # Only half-widths of confidence sequences hold at the moment at which they have become this small.
        "max by (task, name) (murk_parameter_sequence_half_width)"
        " <= on (task, name) max by (task, name) (murk_parameter_known_within)",
        'The effect of {{ $labels.name }} in {{ $labels.task }} is known to within {{ printf "%.3g" $value }}',
        "Its interval that holds at every look is as narrow as `murk monitor --known-within` asks for, in coded units. "
        "Such an interval keeps its 95% at a moment that nobody planned. Nothing is wrong: end the task, or let it "
        "continue for narrower intervals.",
    ),
    _warning(
        "MurkStaleGradients",
        "10m",
        "gradients-are-stale",
        f"{_STALENESS} > on (task) {SHARE_STALE} * {_VERSION} and on (task) {_STALENESS} > {FEW}",
        "Gradients for {{ $labels.task }} are {{ $value | humanize }} releases old on average",
        "That is more than 2% of the releases that a partition has learned, so intervals are too narrow. Check that "
        "learners publish models (lag, a hanging learner), and that devices fetch them and send releases promptly; a "
        "smaller `max_staleness` in the task refuses the oldest.",
    ),
    _warning(
        "MurkUpdatesRefused",
        "5m",
        "updates-are-refused",
        f"{_LEFT_OUT} / on (task) {_LEARNED_LONG} > {SHARE_LEFT_OUT} and on (task) {_LEFT_OUT} > 10",
        "{{ $value | humanizePercentage }} of what was learned for {{ $labels.task }} was left out of the estimate",
        "Their updates were not finite or not plausible, which practically never happens to honest releases. Somebody "
        "forges releases that pass the format checks: find the connection and revoke its right to write. The refused "
        "releases have not changed the estimate.",
    ),
    _warning(
        "MurkOutboxGrowing",
        "10m",
        "the-outbox-grows",
        "sum by (task) (murk_outbox_pending) > 0 and on (task) sum by (task) (min_over_time(murk_outbox_pending[10m]))"
        f" > {FEW} and on (task) sum by (task) (deriv(murk_outbox_pending[10m])) > 0",
        "{{ $value }} releases for {{ $labels.task }} wait on devices, and the number grows",
        "The log does not confirm them. Check the broker, the devices' network and credentials, and the disk space of "
        "the outbox. Nothing is lost or debited twice: releases are sent once the log is back.",
    ),
    _warning(
        "MurkPublicCovariatesUnlike",
        "1h",
        "public-covariates-are-unlike-the-peoples",
        "max by (task) (murk_public_covariates_alike) == 0",
        "The public covariates of {{ $labels.task }} differ from the people's",
        "The releases contradict the public rows, or show that they add next to nothing, so the rows are not used. The "
        "estimate is valid, but its intervals are wider, or there are none. Check the origin of the rows, and begin a "
        "task with better ones or without.",
    ),
    _warning(
        "MurkArchiveLate",
        "5m",
        "the-archive-is-late",
        "max by (task) (murk_archive_oldest_seconds) / on (task) max by (task) (murk_archive_retention_seconds)"
        f" > {SHARE_LATE}",
        "The log of {{ $labels.task }} will delete messages that its archive lacks",
        "{{ $value | humanizePercentage }} of the retention of the oldest of them have passed. Check that `murk "
        "archive` reaches the log and can write to the archive, and that its disk has room; raise `log.retention` "
        "until it has caught up.",
    ),
    _critical(
        "MurkShufflerUnreachable",
        "5m",
        "the-shuffler-cannot-reach-a-log",
        "max by (task) (murk_shuffler_log_reachable) == 0",
        "The shuffler of {{ $labels.task }} cannot reach its input log or the log of releases",
        "No crowd is forwarded. Check both brokers, the network and the shuffler's credentials; its /healthz names the "
        "problem. Nothing is lost: the shuffler continues by itself, every release once.",
    ),
    _warning(
        "MurkCrowdsDropped",
        "1m",
        "crowds-are-dropped",
        "sum by (task) (increase(murk_shuffler_dropped_releases_total[1d])) > 0",
        "Releases for {{ $labels.task }} were dropped, since their crowds were not complete in time",
        "About {{ $value | humanize }} people have spent their budget, but nothing about them was learned or "
        "disclosed. The end of a task drops less than a crowd for each level. Otherwise too few people answer: begin a "
        "new task with fewer levels, a smaller crowd or more patience.",
    ),
)
"""All alerts."""
