"""Every metric that Murk exports, in one table: exporter, dashboards, alert rules and documents are made from it.

None has a person in a label, and none is a function of anything but releases, states and public settings. The
three of the people's side are exported by a simulated population or a gateway of at least 20 people only, and
are sums over them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

PREFIX = "murk_"

Kind = Literal["counter", "gauge", "histogram"]
Side = Literal["monitor", "learner", "process", "people"]


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: what Prometheus calls it, what it means, and which side exports it.

    Parameters
    ----------
    name
        Full name; a counter's ends in ``_total``.
    kind
        Its Prometheus type.
    help
        What it says, in one sentence.
    labels
        Its labels.
    buckets
        Upper bounds of a histogram's buckets, without infinity.
    side
        ``"monitor"``, ``"learner"`` for a process that learns, ``"process"`` for both of them, or ``"people"`` for sums
        over a population or gateway of at least 20 people.
    optional
        When it is there, for those that are not always.
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ("task",)
    buckets: tuple[float, ...] = ()
    side: Side = "monitor"
    optional: str = ""


STALENESS_BOUNDS = tuple(2**power - 1 for power in range(21))
"""Upper bounds of the buckets of staleness, 0, 1, 3, 7, ...: bucket b holds what takes b bits to write."""

EPSILON_BOUNDS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
MU_BOUNDS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
SPENT_BOUNDS = (0.0, 0.25, 0.5, 0.75, 0.9, 1.0)

METRICS = (
    Metric(
        "murk_releases_total", "counter", "Messages read from the log, by what became of them.", ("task", "result")
    ),
    Metric("murk_dead_letters_total", "counter", "Messages that were not learned, by reason.", ("task", "reason")),
    Metric("murk_duplicates_total", "counter", "Releases that had been read before, and were not counted again."),
    Metric(
        "murk_lag_releases", "gauge", "Offsets on the log that the chain has not committed yet.", ("task", "partition")
    ),
    Metric("murk_model_version", "gauge", "Number of releases that the chain has learned.", ("task", "partition")),
    Metric(
        "murk_staleness_releases", "histogram",
        "How many releases the chain had learned since the model that a gradient was taken at.",
        buckets=tuple(float(bound) for bound in STALENESS_BOUNDS), optional="where people release gradients",
    ),
    Metric("murk_parameter", "gauge", "Estimated coefficient, all chains merged, in coded units.", ("task", "name")),
    Metric(
        "murk_parameter_half_width", "gauge", "Half width of the coefficient's confidence interval, in coded units.",
        ("task", "name", "level"), optional="where there is an interval",
    ),
    Metric(
        "murk_parameter_error", "gauge", "Euclidean distance of the estimate from the reference parameters.",
        optional="where a reference is given, as in simulation",
    ),
    Metric(
        "murk_estimated_error", "gauge", "Root of the summed squared standard errors of the coefficients.",
        optional="where there are intervals",
    ),
    Metric(
        "murk_estimate_releases", "gauge",
        "Releases that the estimate is of: the newest ones, where older ones are forgotten.",
    ),
    Metric(
        "murk_drift_p_value", "gauge",
        "Probability at most with which a model that does not change ever shows as much change as this one has.",
        optional="where estimates come with standard errors",
    ),
    Metric(
        "murk_parameter_change", "gauge",
        "By how much the coefficient's estimate has moved since it changed, in coded units.",
        ("task", "name"), optional="where the model is said to have changed, for the coefficients that surely have",
    ),
    Metric(
        "murk_public_covariates_alike", "gauge",
        "1 while the public covariates pass the check that they are like the people's, else 0.",
        optional="where public covariates are checked: scores, examples and moments (not joint or separate ones)",
    ),
    Metric(
        "murk_iterate_gap", "gauge", "Euclidean distance between the chain's newest iterate and its average.",
        ("task", "partition"), optional="where the learner takes steps",
    ),
    Metric(
        "murk_step_size", "gauge", "Factor that the chain's next gradient gets.", ("task", "partition"),
        optional="where the learner takes steps",
    ),
    Metric(
        "murk_unbiased_loss", "gauge", "Unbiased estimate of the mean loss, from released examples.",
        optional="where the protocol releases examples",
    ),
    Metric(
        "murk_unbiased_loss_error", "gauge", "Standard error of the unbiased estimate of the mean loss.",
        optional="where the protocol releases examples",
    ),
    Metric(
        "murk_refused_updates_total", "counter",
        "Learned releases whose update was not finite or not plausible, and was left out.", ("task", "partition"),
        optional="where the protocol releases examples",
    ),
    Metric(
        "murk_release_epsilon", "histogram", "Guarantee of each learned release, where it is stated in epsilon.",
        buckets=EPSILON_BOUNDS, optional="where a level of the task states an epsilon",
    ),
    Metric(
        "murk_release_mu", "histogram", "Guarantee of each learned release, where it is stated in mu.",
        buckets=MU_BOUNDS, optional="where a level of the task states a mu (or rho, of which mu = sqrt(2 rho))",
    ),
    Metric(
        "murk_last_release_timestamp_seconds", "gauge", "When the monitor last saw the count of learned releases grow."
    ),
    Metric("murk_log_reachable", "gauge", "1 while the monitor can read the log, else 0."),
    Metric("murk_learner_owned_chains", "gauge", "Chains that fall to the process.", side="learner"),
    Metric(
        "murk_learner_messages_total", "counter", "Messages that the process has read, by what became of them.",
        ("task", "result"), side="learner",
    ),
    Metric(
        "murk_learner_lag_releases", "gauge", "Offsets on the log that the process has not committed yet.",
        ("task", "partition"), side="learner",
    ),
    Metric(
        "murk_learner_last_commit_timestamp_seconds", "gauge", "When the process last committed the chain.",
        ("task", "partition"), side="learner",
    ),
    Metric(
        "murk_learner_log_reachable", "gauge", "1 while the process can reach the log, else 0.", side="learner"
    ),
    Metric(
        "murk_build_info", "gauge", "1, with the version of Murk and of Python that the process runs.",
        ("task", "version", "python"), side="process",
    ),
    Metric(
        "murk_ledger_spent_ratio", "histogram", "Share of their cap that each person has spent.",
        buckets=SPENT_BOUNDS, side="people",
    ),
    Metric(
        "murk_ledger_refusals_total", "counter", "Releases refused for want of budget or after withdrawal.",
        side="people",
    ),
    Metric("murk_outbox_pending", "gauge", "Releases that wait for the log to confirm them.", side="people"),
)  # fmt: skip
"""All metrics, in the order in which documents list them."""
