"""Catalogue of exported metrics, for exporters, dashboards, alert rules and documents.

No label names a person, and every metric is a function of releases, states and public settings. The people's metrics
are sums over at least 20 people.
"""

from dataclasses import dataclass
from typing import Literal

PREFIX = "murk_"

Kind = Literal["counter", "gauge", "histogram"]
Side = Literal["monitor", "learner", "process", "people", "gateway", "shuffler"]


@dataclass(frozen=True, slots=True)
class Metric:
    """A Prometheus metric."""

    name: str  # full name; a counter's ends in ``_total``
    kind: Kind  # Prometheus type
    help: str  # meaning, in one sentence
    labels: tuple[str, ...] = ("task",)
    buckets: tuple[float, ...] = ()  # upper bounds of a histogram's buckets, without infinity
    # exporter: ``"monitor"``, ``"learner"``, ``"process"`` for both, ``"people"`` for a population or the gateway of a
    # file, ``"gateway"`` for the HTTP gateway, or ``"shuffler"``
    side: Side = "monitor"
    optional: str = ""  # condition under which the metric is exported


STALENESS_BOUNDS = tuple(2**power - 1 for power in range(21))
"""Upper bounds of the buckets of staleness, 0, 1, 3, 7, ...: bucket b holds numbers of b bits."""
EPSILON_BOUNDS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
MU_BOUNDS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
SPENT_BOUNDS = (0.0, 0.25, 0.5, 0.75, 0.9, 1.0)

METRICS = (
    Metric("murk_releases_total", "counter", "Messages read from the log, by result.", ("task", "result")),
    Metric("murk_dead_letters_total", "counter", "Messages that could not be learned, by reason.", ("task", "reason")),
    Metric("murk_duplicates_total", "counter", "Duplicates of releases, which are not counted again."),
    Metric(
        "murk_lag_releases", "gauge", "Messages on the log that the chain has not committed yet.", ("task", "partition")
    ),
    Metric("murk_model_version", "gauge", "Number of releases that the chain has learned.", ("task", "partition")),
    Metric(
        "murk_staleness_releases",
        "histogram",
        "Number of releases that the chain learned between the model that a gradient used and that gradient.",
        buckets=tuple(float(bound) for bound in STALENESS_BOUNDS),
        optional="with protocol gradients",
    ),
    Metric("murk_parameter", "gauge", "Estimated coefficient, all chains merged, in coded units.", ("task", "name")),
    Metric(
        "murk_parameter_half_width",
        "gauge",
        "Half-width of the coefficient's interval for one planned look, in coded units; not for alerts.",
        ("task", "name", "level"),
        optional="if there is an interval",
    ),
    Metric(
        "murk_parameter_sequence_half_width",
        "gauge",
        "Half-width of the coefficient's interval that holds at every look, in coded units.",
        ("task", "name", "level"),
        optional="if there is such an interval: not with `forget` or random scaling",
    ),
    Metric(
        "murk_parameter_known_within",
        "gauge",
        "Half-width at which the coefficient counts as known, in coded units.",
        ("task", "name"),
        optional="with `murk monitor --known-within`",
    ),
    Metric(
        "murk_contrast_e_value",
        "gauge",
        "E-value against no difference, valid at every look; the p-value is 1 / E.",
        ("task", "contrast"),
        optional="with `contrasts`",
    ),
    Metric(
        "murk_prediction_coverage",
        "gauge",
        "Estimated share of people whose target is in their prediction set, with the ends of its 95% interval.",
        ("task", "end"),
        optional="with `predictions`, once enough people have answered",
    ),
    Metric(
        "murk_prediction_threshold",
        "gauge",
        "Threshold of prediction sets: half the width of an interval in the target's units, or 1 less the least "
        "probability of a label.",
        optional="with `predictions`, once enough people have answered",
    ),
    Metric(
        "murk_prediction_answers", "gauge", "Number of answers about prediction sets.", optional="with `predictions`"
    ),
    Metric(
        "murk_mean",
        "gauge",
        "Mean of the target in its own units, or share of a class.",
        ("task", "name"),
        optional="with `features: []`",
    ),
    Metric(
        "murk_mean_half_width",
        "gauge",
        "Half-width of the displayed interval of `murk_mean`.",
        ("task", "name"),
        optional="with `features: []`",
    ),
    Metric(
        "murk_parameter_error",
        "gauge",
        "Euclidean distance of the estimate from the reference parameters.",
        optional="if a reference is given",
    ),
    Metric(
        "murk_estimated_error",
        "gauge",
        "Root of the summed squared standard errors of the coefficients.",
        optional="if there are intervals",
    ),
    Metric("murk_estimate_releases", "gauge", "Number of releases that the estimate uses, without forgotten ones."),
    Metric(
        "murk_drift_p_value",
        "gauge",
        "Upper bound on the probability that releases of an unchanging model ever show as much change.",
        optional="if estimates have standard errors",
    ),
    Metric(
        "murk_parameter_change",
        "gauge",
        "Change of the coefficient's estimate since the model changed, in coded units.",
        ("task", "name"),
        optional="after a change of the model, for the coefficients that changed significantly",
    ),
    Metric(
        "murk_public_covariates_alike",
        "gauge",
        "1 while people's releases do not contradict the public covariates, else 0.",
        optional="if releases allow this check: scores, examples and moments (not joint or separate ones)",
    ),
    Metric(
        "murk_iterate_gap",
        "gauge",
        "Euclidean distance between the chain's newest iterate and its average.",
        ("task", "partition"),
        optional="if the learner is iterative",
    ),
    Metric(
        "murk_step_size",
        "gauge",
        "Step size: factor of the chain's next gradient.",
        ("task", "partition"),
        optional="if the learner is iterative",
    ),
    Metric(
        "murk_unbiased_loss",
        "gauge",
        "Unbiased estimate of the mean loss, from released examples.",
        optional="with protocol examples",
    ),
    Metric(
        "murk_unbiased_loss_error",
        "gauge",
        "Standard error of the unbiased estimate of the mean loss.",
        optional="with protocol examples",
    ),
    Metric(
        "murk_refused_updates_total",
        "counter",
        "Learned releases whose update was not finite or not plausible and was left out.",
        ("task", "partition"),
        optional="with protocol examples",
    ),
    Metric(
        "murk_release_epsilon",
        "histogram",
        "Epsilon of each learned release's guarantee.",
        buckets=EPSILON_BOUNDS,
        optional="if a level of the task has a pure or approximate guarantee",
    ),
    Metric(
        "murk_release_mu",
        "histogram",
        "Mu of each learned release's guarantee; mu = sqrt(2 rho) for zCDP.",
        buckets=MU_BOUNDS,
        optional="if a level of the task has a Gaussian or zero-concentrated guarantee",
    ),
    Metric("murk_last_release_timestamp_seconds", "gauge", "Time when the monitor last saw the learned releases grow."),
    Metric("murk_log_reachable", "gauge", "1 while the monitor can read the log, else 0."),
    Metric("murk_learner_owned_chains", "gauge", "Number of chains assigned to the process.", side="learner"),
    Metric(
        "murk_learner_messages_total",
        "counter",
        "Messages that the process has read, by result.",
        ("task", "result"),
        side="learner",
    ),
    Metric(
        "murk_learner_lag_releases",
        "gauge",
        "Messages on the log that the process has not committed yet.",
        ("task", "partition"),
        side="learner",
    ),
    Metric(
        "murk_learner_last_commit_timestamp_seconds",
        "gauge",
        "Time when the process last committed the chain.",
        ("task", "partition"),
        side="learner",
    ),
    Metric("murk_learner_log_reachable", "gauge", "1 while the process can reach the log, else 0.", side="learner"),
    Metric(
        "murk_build_info",
        "gauge",
        "1, with the versions of Murk and Python as labels.",
        ("task", "version", "python"),
        side="process",
    ),
    Metric(
        "murk_ledger_spent_ratio",
        "histogram",
        "Share of the cap that each person has spent.",
        buckets=SPENT_BOUNDS,
        side="people",
    ),
    Metric(
        "murk_ledger_refusals_total",
        "counter",
        "Releases refused because of spent budget or withdrawal.",
        side="people",
    ),
    Metric("murk_outbox_pending", "gauge", "Releases that wait for the log to confirm them.", side="people"),
    Metric(
        "murk_gateway_releases_total",
        "counter",
        "Releases of devices acknowledged, repeated ones included.",
        side="gateway",
    ),
    Metric(
        "murk_gateway_refusals_total",
        "counter",
        "Releases of devices refused by the gateway, by reason.",
        ("task", "reason"),
        side="gateway",
    ),
    Metric(
        "murk_gateway_requests_total",
        "counter",
        "Requests answered, by HTTP status.",
        ("task", "status"),
        side="gateway",
        optional="from the first request with the status",
    ),
    Metric(
        "murk_gateway_waiting_releases", "gauge", "Releases of devices that wait for a durable write.", side="gateway"
    ),
    Metric("murk_gateway_log_reachable", "gauge", "1 while the gateway can write to the log, else 0.", side="gateway"),
    Metric("murk_shuffler_crowd_releases", "gauge", "Least number of releases of a crowd.", side="shuffler"),
    Metric(
        "murk_shuffler_waiting_releases",
        "gauge",
        "Releases that wait for their crowds, rounded down to tenths of a crowd.",
        side="shuffler",
    ),
    Metric("murk_shuffler_releases_total", "counter", "Releases forwarded in crowds.", side="shuffler"),
    Metric("murk_shuffler_crowds_total", "counter", "Crowds forwarded.", side="shuffler"),
    Metric(
        "murk_shuffler_dropped_releases_total",
        "counter",
        "Releases dropped because their crowds were not complete in time.",
        side="shuffler",
    ),
    Metric("murk_shuffler_duplicates_total", "counter", "Duplicates removed before counting.", side="shuffler"),
    Metric(
        "murk_shuffler_refusals_total",
        "counter",
        "Messages removed before counting, by reason.",
        ("task", "reason"),
        side="shuffler",
    ),
    Metric(
        "murk_shuffler_log_reachable", "gauge", "1 while the shuffler can reach both logs, else 0.", side="shuffler"
    ),
)
"""All metrics, in the order in which documents list them."""
