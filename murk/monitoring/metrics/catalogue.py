"""Catalogue of exported metrics, for exporters, dashboards, alert rules and documents.

Metrics are functions of releases, states and public settings, or sums over at least 20 people; no label names a person.
"""

from dataclasses import dataclass
from typing import Literal

PREFIX = "murk_"

Side = Literal["monitor", "learner", "process", "people", "gateway", "shuffler", "archiver"]


@dataclass(frozen=True, slots=True)
class Metric:
    """A Prometheus metric."""

    name: str  # full name; a counter's ends in ``_total``
    help: str  # meaning, in one sentence
    labels: tuple[str, ...] = ("task",)
    buckets: tuple[float, ...] = ()  # upper bounds of a histogram's buckets, without infinity
    # exporter: ``"monitor"``, ``"learner"``, ``"process"`` for both, ``"people"`` for a population or the gateway of a
    # file, ``"gateway"`` for the HTTP gateway, ``"shuffler"`` or ``"archiver"``
    side: Side = "monitor"
    optional: str = ""  # condition under which the metric is exported

    @property
    def kind(self) -> Literal["counter", "gauge", "histogram"]:
        """Prometheus type."""
        return "histogram" if self.buckets else "counter" if self.name.endswith("_total") else "gauge"


STALENESS_BOUNDS = tuple(2**power - 1 for power in range(21))
"""Upper bounds of the buckets of staleness, 0, 1, 3, 7, ...: bucket b holds numbers of b bits."""
EPSILON_BOUNDS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
MU_BOUNDS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
SPENT_BOUNDS = (0.0, 0.25, 0.5, 0.75, 0.9, 1.0)

_PARTITION, _COEFFICIENT, _REASON, _RESULT = (("task", of) for of in ("partition", "name", "reason", "result"))
_WINDOW = ("task", "name", "begins", "of")

METRICS = (
    Metric("murk_releases_total", "Messages read from the log, by result.", _RESULT),
    Metric("murk_dead_letters_total", "Messages that could not be learned, by reason.", _REASON),
    Metric("murk_duplicates_total", "Duplicates of releases, which are not counted again."),
    Metric("murk_lag_releases", "Messages on the log that the partition has not committed yet.", _PARTITION),
    Metric("murk_model_version", "Number of releases that the partition has learned.", _PARTITION),
    Metric(
        "murk_staleness_releases",
        "Number of releases that the partition learned between the model that a gradient used and that gradient.",
        buckets=tuple(map(float, STALENESS_BOUNDS)),
        optional="with protocol gradients",
    ),
    Metric("murk_parameter", "Estimated coefficient, all partitions merged, in coded units.", _COEFFICIENT),
    Metric(
        "murk_parameter_half_width",
        "Half-width of the coefficient's interval for one planned look, in coded units; not for alerts.",
        ("task", "name", "level"),
        optional="if there is an interval",
    ),
    Metric(
        "murk_parameter_sequence_half_width",
        "Half-width of the coefficient's interval that holds at every look, in coded units.",
        ("task", "name", "level"),
        optional="if there is such an interval: not with `forget` or random scaling",
    ),
    Metric(
        "murk_parameter_known_within",
        "Half-width at which the coefficient counts as known, in coded units.",
        _COEFFICIENT,
        optional="with `murk monitor --known-within`",
    ),
    Metric(
        "murk_contrast_e_value",
        "E-value against no difference, valid at every look; the p-value is 1 / E.",
        ("task", "contrast"),
        optional="with `contrasts`, and for the arms of an `experiment`",
    ),
    Metric(
        "murk_contrast_effect",
        "Average effect of a contrast, or lift of an arm, on a probability from 0 to 1 or in the target's units, with "
        "the ends of its displayed 95% interval.",
        ("task", "contrast", "end"),
        optional="with `contrasts`, and for the arms of an `experiment`, once it has an interval",
    ),
    Metric(
        "murk_prediction_coverage",
        "Estimated share of people whose target is in their prediction set, with the ends of its 95% interval.",
        ("task", "end"),
        optional="with `predictions`, once enough people have answered",
    ),
    Metric(
        "murk_prediction_threshold",
        "Threshold of prediction sets: half the width of an interval in the target's units, or 1 less the least "
        "probability of a label.",
        optional="with `predictions`, once enough people have answered",
    ),
    Metric("murk_prediction_answers", "Number of answers about prediction sets.", optional="with `predictions`"),
    Metric(
        "murk_mean",
        "Mean of the target in its own units, or share of a class.",
        _COEFFICIENT,
        optional="with `features: []`",
    ),
    Metric(
        "murk_mean_half_width",
        "Half-width of the displayed interval of `murk_mean`.",
        _COEFFICIENT,
        optional="with `features: []`",
    ),
    Metric(
        "murk_window_parameter",
        "Estimated coefficient of a window of the answers (`of`: window), or with its neighbours (`of`: path), in "
        "coded units; `begins` is the window's first day.",
        _WINDOW,
        optional="with `track`, for the newest windows",
    ),
    Metric(
        "murk_window_half_width",
        "Half-width of the band of `murk_window_parameter`, which holds in all windows at once.",
        _WINDOW,
        optional="with `track`, for the newest windows",
    ),
    Metric(
        "murk_parameter_error",
        "Euclidean distance of the estimate from the reference parameters.",
        optional="if a reference is given",
    ),
    Metric(
        "murk_estimated_error",
        "Root of the summed squared standard errors of the coefficients.",
        optional="if there are intervals",
    ),
    Metric("murk_estimate_releases", "Number of releases that the estimate uses, without forgotten ones."),
    Metric(
        "murk_drift_p_value",
        "Upper bound on the probability that releases of an unchanging model ever show as much change.",
        optional="if estimates have standard errors",
    ),
    Metric(
        "murk_parameter_change",
        "Change of the coefficient's estimate since the model changed, in coded units.",
        _COEFFICIENT,
        optional="after a change of the model, for the coefficients that changed significantly",
    ),
    Metric(
        "murk_public_covariates_alike",
        "1 while people's releases do not contradict the public covariates, else 0.",
        optional="if releases allow this check: scores, examples and moments (not joint or separate ones)",
    ),
    Metric(
        "murk_iterate_gap",
        "Euclidean distance between the partition's newest iterate and its average.",
        _PARTITION,
        optional="if the learner is iterative",
    ),
    Metric(
        "murk_step_size",
        "Step size: factor of the partition's next gradient.",
        _PARTITION,
        optional="if the learner is iterative",
    ),
    Metric(
        "murk_unbiased_loss",
        "Unbiased estimate of the mean loss, from released examples.",
        optional="with protocol examples",
    ),
    Metric(
        "murk_unbiased_loss_error",
        "Standard error of the unbiased estimate of the mean loss.",
        optional="with protocol examples",
    ),
    Metric(
        "murk_refused_updates_total",
        "Learned releases whose update was not finite or not plausible and was left out.",
        _PARTITION,
        optional="with protocol examples",
    ),
    Metric(
        "murk_release_epsilon",
        "Epsilon of each learned release's guarantee.",
        buckets=EPSILON_BOUNDS,
        optional="if a level of the task has a pure or approximate guarantee",
    ),
    Metric(
        "murk_release_mu",
        "Mu of each learned release's guarantee; mu = sqrt(2 rho) for zCDP.",
        buckets=MU_BOUNDS,
        optional="if a level of the task has a Gaussian or zero-concentrated guarantee",
    ),
    Metric("murk_last_release_timestamp_seconds", "Time when the monitor last saw the learned releases grow."),
    Metric("murk_log_reachable", "1 while the monitor can read the log, else 0."),
    Metric("murk_learner_owned_chains", "Number of partitions assigned to the process.", side="learner"),
    Metric("murk_learner_messages_total", "Messages that the process has read, by result.", _RESULT, side="learner"),
    Metric(
        "murk_learner_lag_releases",
        "Messages on the log that the process has not committed yet.",
        _PARTITION,
        side="learner",
    ),
    Metric(
        "murk_learner_last_commit_timestamp_seconds",
        "Time when the process last committed the partition.",
        _PARTITION,
        side="learner",
    ),
    Metric("murk_learner_log_reachable", "1 while the process can reach the log, else 0.", side="learner"),
    Metric(
        "murk_build_info",
        "1, with the versions of Murk and Python as labels.",
        ("task", "version", "python"),
        side="process",
    ),
    Metric(
        "murk_ledger_spent_ratio", "Share of the cap that each person has spent.", buckets=SPENT_BOUNDS, side="people"
    ),
    Metric("murk_ledger_refusals_total", "Releases refused because of spent budget or withdrawal.", side="people"),
    Metric("murk_outbox_pending", "Releases that wait for the log to confirm them.", side="people"),
    Metric("murk_gateway_releases_total", "Releases of devices acknowledged, repeated ones included.", side="gateway"),
    Metric(
        "murk_gateway_levels_total",
        "Releases of devices written, by level; of a grid the default, lowest and highest.",
        ("task", "level"),
        side="gateway",
    ),
    Metric(
        "murk_gateway_refusals_total", "Releases of devices refused by the gateway, by reason.", _REASON, side="gateway"
    ),
    Metric(
        "murk_gateway_requests_total",
        "Requests answered, by HTTP status; without a task those that name none, if there are several.",
        ("task", "status"),
        side="gateway",
        optional="from the first request with the status",
    ),
    Metric("murk_gateway_waiting_releases", "Releases of devices that wait for a durable write.", side="gateway"),
    Metric("murk_gateway_log_reachable", "1 while the gateway can write to the log, else 0.", side="gateway"),
    Metric("murk_shuffler_crowd_releases", "Least number of releases of a crowd.", side="shuffler"),
    Metric(
        "murk_shuffler_waiting_releases",
        "Releases that wait for their crowds, rounded down to tenths of a crowd.",
        side="shuffler",
    ),
    Metric("murk_shuffler_releases_total", "Releases forwarded in crowds.", side="shuffler"),
    Metric("murk_shuffler_crowds_total", "Crowds forwarded.", side="shuffler"),
    Metric(
        "murk_shuffler_dropped_releases_total",
        "Releases dropped because their crowds were not complete in time.",
        side="shuffler",
    ),
    Metric("murk_shuffler_duplicates_total", "Duplicates removed before counting.", side="shuffler"),
    Metric("murk_shuffler_refusals_total", "Messages removed before counting, by reason.", _REASON, side="shuffler"),
    Metric("murk_shuffler_log_reachable", "1 while the shuffler can reach both logs, else 0.", side="shuffler"),
    Metric("murk_archive_lag_releases", "Messages on the log that the archive lacks.", _PARTITION, side="archiver"),
    Metric("murk_archive_bytes", "Size of the archive's files.", _PARTITION, side="archiver"),
    Metric(
        "murk_archive_oldest_seconds",
        "Age of the oldest message that the archive lacks; 0 if it lacks none.",
        _PARTITION,
        side="archiver",
    ),
    Metric("murk_archive_retention_seconds", "Retention of the log, after which it deletes messages.", side="archiver"),
    Metric("murk_archive_log_reachable", "1 while the archiver can read the log, else 0.", side="archiver"),
)
"""All metrics, in the order in which documents list them."""
