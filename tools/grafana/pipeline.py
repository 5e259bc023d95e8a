"""The dashboard of the pipe: what arrives, what becomes of it, who is behind, and how old gradients are."""

from __future__ import annotations

from tools.grafana.board import Line, Section, dashboard, one_task
from tools.grafana.panels import Json, heatmap, stat, target, timeseries, words

RATE = "[$__rate_interval]"
READ = f'max by (result) (rate(murk_releases_total{{task="$task"}}{RATE}))'
DEAD = f'max by (reason) (rate(murk_dead_letters_total{{task="$task"}}{RATE}))'
LAG = 'max by (partition) (murk_lag_releases{task="$task"})'
STALENESS = f'max by (le) (rate(murk_staleness_releases_bucket{{task="$task"}}{RATE}))'
MEAN_STALENESS = (
    f'max(rate(murk_staleness_releases_sum{{task="$task"}}{RATE}))'
    f' / max(rate(murk_staleness_releases_count{{task="$task"}}{RATE}))'
)
VERSION = 'avg(max by (partition) (murk_model_version{task="$task"}))'
OUTBOX = 'sum(murk_outbox_pending{task="$task"})'
BY_LEARNER = f'sum by (instance) (rate(murk_learner_messages_total{{task="$task"}}{RATE}))'
NO_PEOPLE = "not exported here"
NO_GATEWAY = "no HTTP gateway runs"
NO_SHUFFLER = "no shuffler runs with --metrics-port"
NO_ARCHIVER = "no archiver runs with --metrics-port"
NO_LEARNERS = "learners run without --metrics-port"
NO_GRADIENTS = "only gradients have an age"


def pipeline() -> Json:
    """Make the dashboard."""
    return dashboard(
        "murk-pipeline",
        "Murk: pipeline",
        "From the device to the estimate: arrival, lag, dead letters, duplicates, staleness and the outbox.",
        [
            Section("Now", [Line(_now(), 4)]),
            Section("What arrives, and what becomes of it", [
                Line([_results(), _lag()], 9),
                Line([_dead(), _dead_share(), _duplicates()], 8),
            ]),
            Section("How old gradients are (protocol: gradients)", [
                Line([_heatmap(), _quantiles()], 9),
                Line([_relative()], 7),
            ], folded=True),
            Section("Learners, as they tell of themselves", [
                Line([_owned(), _read_by(), _versions()], 7),
                Line([_own_lag(), _commit_age(), _reached()], 7),
            ]),
            Section("Devices over HTTP", [
                Line([_posted(), _refused(), _requests()], 7),
                Line([_waiting(), _door()], 7),
            ], folded=True),
            Section("Shuffler (tasks with shuffle)", [
                Line([_crowd(), _forwarded(), _removed()], 7),
                Line([_dropped(), _crowds(), _between()], 7),
            ], folded=True),
            Section("Archive", [
                Line([_unarchived(), _archive_age()], 7),
                Line([_archive_size(), _archived_log()], 7),
            ], folded=True),
            Section("The ends of the pipe", [Line([_outbox(), _reachable(), _quiet()], 7)]),
        ],
        [one_task()],
    )  # fmt: skip


def _now() -> list[Json]:
    return [
        stat("Log", "Whether the monitor can read the log. While it cannot, every other figure stands still.",
             'min(murk_log_reachable{task="$task"})', spark=False, empty="monitor down",
             steps=((None, "red"), (1, "green")),
             mappings=words({"0": ("unreachable", "red"), "1": ("reachable", "green")})),
        stat("Read per second", "Messages that learners took from the log, whatever became of them.",
             f"sum({READ})", unit="cps"),
        stat("Lag", "Messages on the log that are not in any committed state yet. It jumps a little with every "
             "batch; it must not keep rising.", f"sum({LAG})", steps=((None, "green"), (10_000, "orange")),
             decimals=0),
        stat("Dead letters", "Messages that could not be learned, since the start. `murk dead-letters` shows each "
             "with its reason.", 'sum(max by (reason) (murk_dead_letters_total{task="$task"}))', empty="0",
             decimals=0),
        stat("Duplicates", "Releases that came twice and were counted once. A resend is normal; this costs nothing.",
             'max(murk_duplicates_total{task="$task"})', decimals=0),
        stat("Outbox", "Releases that wait on devices for the log to confirm them. Only a simulated population or a "
             "gateway of at least 20 people exports it.", OUTBOX, empty=NO_PEOPLE, decimals=0),
    ]  # fmt: skip


def _results() -> Json:
    return timeseries(
        "Messages by result",
        "Messages read per second, stacked by what became of them. All of it should be learned, but for a trickle.",
        target(READ, "{{result}}"),
        unit="cps",
        stack=True,
        least=0,
    )


def _lag() -> Json:
    return timeseries(
        "Lag of each partition",
        "Offsets not committed yet. A line that rises while others are flat: its learner is gone or stuck. All "
        "lines rising: start another learner (one for each partition at the most), or fewer devices will do.",
        target(LAG, "partition {{partition}}"),
        least=0,
    )


def _dead() -> Json:
    return timeseries(
        "Dead letters by reason",
        "Messages per second that were not learned. 'stale' and 'expired' are about time, 'wrong-task', 'simulated' "
        "and 'level' about a device that follows another task, the others about a broken or hostile sender.",
        target(DEAD, "{{reason}}"),
        unit="cps",
        stack=True,
        least=0,
        empty="none",
    )


def _dead_share() -> Json:
    return timeseries(
        "Share of dead letters",
        "Of all messages read, the share that was not learned. An alert is raised above 5%.",
        target(f"sum({DEAD}) / sum({READ})", "dead / read"),
        unit="percentunit",
        least=0,
        steps=((None, "text"), (0.05, "orange")),
        lines=True,
        empty="none",
    )


def _duplicates() -> Json:
    return timeseries(
        "Duplicates",
        "Releases per second that had been read before. Many at once follow a broker's restart or a device's.",
        target(f'max(rate(murk_duplicates_total{{task="$task"}}{RATE}))', "duplicates"),
        unit="cps",
        least=0,
    )


def _heatmap() -> Json:
    return heatmap(
        "Staleness",
        "How many releases the partition had learned since the model that a gradient was taken at: rows are buckets "
        "(by their upper bound), colour is the number per second. Colour creeping upwards is normal, as iterates "
        "are published at every 1% of the count; it should not run ahead of the count. Empty for other protocols, "
        "whose releases never grow stale.",
        STALENESS,
        empty=NO_GRADIENTS,
    )


def _quantiles() -> Json:
    return timeseries(
        "Staleness: mean and quantiles",
        "The quantiles are read off the buckets, and are exact to a factor of two; the mean is exact. Only gradients "
        "have an age.",
        target(MEAN_STALENESS, "mean"),
        target(f"histogram_quantile(0.5, {STALENESS})", "median"),
        target(f"histogram_quantile(0.95, {STALENESS})", "95%"),
        least=0,
        empty=NO_GRADIENTS,
    )


def _relative() -> Json:
    return timeseries(
        "Mean staleness as a share of the partition's count",
        "What staleness costs depends on this share: about 1% costs next to nothing, 5% is felt, 20% ruins the "
        "estimate. Early on, with few releases, the share is large and means little. Only gradients have an age.",
        target(f"({MEAN_STALENESS}) / {VERSION}", "mean staleness / count"),
        unit="percentunit",
        least=0,
        steps=((None, "text"), (0.02, "orange"), (0.05, "red")),
        lines=True,
        empty=NO_GRADIENTS,
    )


def _owned() -> Json:
    return timeseries(
        "Partitions of each learner",
        "How many partitions fall to it. All of them add up to the task's partitions; a learner without one stands by.",
        target('max by (instance) (murk_learner_owned_chains{task="$task"})', "{{instance}}"),
        least=0,
        empty=NO_LEARNERS,
    )


def _read_by() -> Json:
    return timeseries(
        "Read by each learner",
        "Messages per second that it read, whatever became of them. They start again at 0 with the process.",
        target(BY_LEARNER, "{{instance}}"),
        unit="cps",
        least=0,
        empty=NO_LEARNERS,
    )


def _own_lag() -> Json:
    return timeseries(
        "Lag of the partitions that it learns",
        "Offsets that the partition's owner has not committed yet, as it sees them itself, every 2 seconds.",
        target('max by (partition, instance) (murk_learner_lag_releases{task="$task"})', "partition {{partition}}"),
        least=0,
        empty=NO_LEARNERS,
    )


def _commit_age() -> Json:
    return timeseries(
        "Since the last commit",
        "Seconds since the partition's owner last committed it. It grows where nothing arrives; where there is a lag, "
        "the learner is stuck.",
        target(
            'time() - max by (partition) (murk_learner_last_commit_timestamp_seconds{task="$task"})',
            "partition {{partition}}",
        ),
        unit="s",
        least=0,
        empty=NO_LEARNERS,
    )


def _reached() -> Json:
    return timeseries(
        "Log, as learners see it",
        "1 while the learner can reach the log, 0 while it waits for it. Its /healthz says why.",
        target('min by (instance) (murk_learner_log_reachable{task="$task"})', "{{instance}}"),
        least=0,
        empty=NO_LEARNERS,
    )


def _versions() -> Json:
    return timeseries(
        "Versions",
        "How many processes, monitors and learners, run which version of Murk. Two lines are an upgrade under way.",
        target('count by (version) (murk_build_info{task="$task"})', "{{version}}"),
        least=0,
    )


def _outbox() -> Json:
    return timeseries(
        "Outbox",
        "Releases waiting to be confirmed. It grows while the broker is away, and empties by itself afterwards.",
        target(OUTBOX, "waiting"),
        least=0,
        empty=NO_PEOPLE,
    )


def _reachable() -> Json:
    return timeseries(
        "Log reachable",
        "1 while the monitor reads the log, 0 while it cannot, a gap while the monitor itself is down.",
        target('min(murk_log_reachable{task="$task"})', "reachable"),
        least=0,
        most=1,
        style={"lineInterpolation": "stepAfter", "fillOpacity": 10},
    )


def _quiet() -> Json:
    return timeseries(
        "Time since the last release",
        "A saw-tooth near zero while people take part. A straight climb: nothing is learned any more.",
        target('time() - max(murk_last_release_timestamp_seconds{task="$task"})', "quiet for"),
        unit="s",
        least=0,
    )


def _posted() -> Json:
    return timeseries(
        "Acknowledged by gateways",
        "Releases per second that HTTP gateways acknowledged as durable, repeated ones included.",
        target(f'sum(rate(murk_gateway_releases_total{{task="$task"}}{RATE}))', "acknowledged"),
        unit="cps",
        least=0,
        empty=NO_GATEWAY,
    )


def _refused() -> Json:
    return timeseries(
        "Refused by the gateway",
        "Releases per second that HTTP gateways refused, by reason. They never reach the log.",
        target(f'sum by (reason) (rate(murk_gateway_refusals_total{{task="$task"}}{RATE}))', "{{reason}}"),
        unit="cps",
        stack=True,
        least=0,
        empty=NO_GATEWAY,
    )


def _requests() -> Json:
    return timeseries(
        "Requests by status",
        "Requests per second that HTTP gateways answered. 429 is too much of one address prefix or of all, 503 a log "
        "that is away.",
        target(f'sum by (status) (rate(murk_gateway_requests_total{{task="$task"}}{RATE}))', "{{status}}"),
        unit="reqps",
        stack=True,
        least=0,
        empty=NO_GATEWAY,
    )


def _waiting() -> Json:
    return timeseries(
        "Waiting at the gateway",
        "Releases that wait for a durable write. Beyond 16,384 of a gateway, devices are asked to come again.",
        target('max by (instance) (murk_gateway_waiting_releases{task="$task"})', "{{instance}}"),
        least=0,
        empty=NO_GATEWAY,
    )


def _door() -> Json:
    return timeseries(
        "Log, as gateways see it",
        "1 while the gateway can write to the log, else 0. Devices keep their releases meanwhile.",
        target('min by (instance) (murk_gateway_log_reachable{task="$task"})', "{{instance}}"),
        least=0,
        empty=NO_GATEWAY,
    )


def _crowd() -> Json:
    return timeseries(
        "Waiting for a crowd",
        "Releases of all levels and versions that wait, rounded down to tenths of a crowd, beside the size of a crowd. "
        "It falls when a crowd leaves.",
        target('max by (task) (murk_shuffler_waiting_releases{task="$task"})', "waiting"),
        target('max by (task) (murk_shuffler_crowd_releases{task="$task"})', "crowd"),
        least=0,
        empty=NO_SHUFFLER,
    )


def _forwarded() -> Json:
    return timeseries(
        "Forwarded in crowds",
        "Releases that have left the shuffler, since its store was created.",
        target('max by (task) (murk_shuffler_releases_total{task="$task"})', "released"),
        least=0,
        empty=NO_SHUFFLER,
    )


def _removed() -> Json:
    return timeseries(
        "Removed before counting",
        "Duplicates and refused messages, which make no crowd, since its store was created. Renewed when a crowd "
        "leaves, and once in a period of the task's granularity.",
        target('max by (task) (murk_shuffler_duplicates_total{task="$task"})', "duplicates"),
        target('max by (reason) (murk_shuffler_refusals_total{task="$task"})', "{{reason}}"),
        least=0,
        empty=NO_SHUFFLER,
    )


def _dropped() -> Json:
    return timeseries(
        "Dropped",
        "Releases whose crowds were not complete in time. An alert is raised for each.",
        target('max by (task) (murk_shuffler_dropped_releases_total{task="$task"})', "dropped"),
        least=0,
        empty=NO_SHUFFLER,
    )


def _crowds() -> Json:
    return timeseries(
        "Crowds",
        "Crowds that have left the shuffler, since its store was created.",
        target('max by (task) (murk_shuffler_crowds_total{task="$task"})', "crowds"),
        least=0,
        empty=NO_SHUFFLER,
    )


def _between() -> Json:
    return timeseries(
        "Logs, as the shuffler sees them",
        "1 while the shuffler can reach input log and log, else 0. Crowds wait meanwhile.",
        target('min by (instance) (murk_shuffler_log_reachable{task="$task"})', "{{instance}}"),
        least=0,
        empty=NO_SHUFFLER,
    )


def _unarchived() -> Json:
    return timeseries(
        "Not archived yet",
        "Messages on the log that the archive lacks. It falls when files are written.",
        target('max by (partition) (murk_archive_lag_releases{task="$task"})', "partition {{partition}}"),
        least=0,
        empty=NO_ARCHIVER,
    )


def _archive_age() -> Json:
    return timeseries(
        "Age of what is not archived",
        "Age of the oldest message that the archive lacks, beside the retention, after which the log deletes it. At "
        "half of it an alert is raised.",
        target('max by (task) (murk_archive_oldest_seconds{task="$task"})', "oldest"),
        target('max by (task) (murk_archive_retention_seconds{task="$task"})', "retention"),
        unit="s",
        least=0,
        empty=NO_ARCHIVER,
    )


def _archive_size() -> Json:
    return timeseries(
        "Size of the archive",
        "Bytes of the archive's files. They stay until somebody deletes them.",
        target('max by (partition) (murk_archive_bytes{task="$task"})', "partition {{partition}}"),
        unit="bytes",
        stack=True,
        least=0,
        empty=NO_ARCHIVER,
    )


def _archived_log() -> Json:
    return timeseries(
        "Log, as the archiver sees it",
        "1 while the archiver can read the log, else 0.",
        target('min by (instance) (murk_archive_log_reachable{task="$task"})', "{{instance}}"),
        least=0,
        empty=NO_ARCHIVER,
    )
