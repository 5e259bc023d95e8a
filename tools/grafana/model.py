"""The dashboard of the estimate: where it stands, how sure it is, and whether learning behaves as it should."""

from __future__ import annotations

from murk.inference.drift import FALSE_ALARM
from murk.monitoring.metrics.exporter import LEARNED as RESULT
from tools.grafana.board import Line, Section, dashboard, label_values, one_task, variable
from tools.grafana.panels import Json, band, stat, table, target, timeseries

LEARNED = 'sum(max by (partition) (murk_model_version{task="$task"}))'
# Of a task without features the mean or the shares, in their own units.
ESTIMATE = '(max by (name) (murk_mean{task="$task"}) or max by (name) (murk_parameter{task="$task"}))'
# Intervals that hold at every look, and fixed ones only where there are none.
HALF_WIDTH = (
    '(max by (name) (murk_mean_half_width{task="$task"})'
    ' or max by (name) (murk_parameter_sequence_half_width{task="$task"})'
    ' or max by (name) (murk_parameter_half_width{task="$task"}))'
)
USED = 'max(murk_estimate_releases{task="$task"})'
ERROR = 'max(murk_estimated_error{task="$task"})'
CHOSEN = ESTIMATE.replace("}", ', name=~"$parameter"}')
CHOSEN_WIDTH = HALF_WIDTH.replace("}", ', name=~"$parameter"}')
NO_REFERENCE = "no reference given"
LOSS = 'max(murk_unbiased_loss{task="$task"})'
LOSS_ERROR = 'max(murk_unbiased_loss_error{task="$task"})'
REFUSED = 'max by (partition) (murk_refused_updates_total{task="$task"})'
REFUSED_RATE = 'max by (partition) (rate(murk_refused_updates_total{task="$task"}[$__rate_interval]))'
NO_INTERVAL = "no interval (yet)"
NO_DRIFT = "estimates come without standard errors"
NO_STEPS = "this protocol's learner takes no steps"
NO_EXAMPLES = "only where examples are released"


def model() -> Json:
    """Make the dashboard."""
    return dashboard(
        "murk-model",
        "Murk: model",
        "The estimate as it closes in: every coefficient with its interval, its error, and the learner's own signs.",
        [
            Section("Now", [Line(_now(), 4), Line([_table(), _estimates()], 9, (10, 14))]),
            Section("Each parameter with its interval", [Line([_band()], 9)]),
            Section(
                "How far from the truth",
                [Line([_error(), _widths()], 9), Line([_error_times_root(), _distance(), _alike()], 8, (10, 10, 4))],
            ),
            Section(
                "Contrasts, and arms of an experiment (only with either in the task)",
                [Line([_effects(), _contrasts()], 8)],
                folded=True,
            ),
            Section(
                "Prediction sets (only with predictions in the task)",
                [Line([_sets(), _thresholds(), _answers()], 8, (9, 9, 6))],
                folded=True
            ),
            Section("Windows (only with track in the task)", [Line([_windows()], 10)], folded=True),
            Section("Has the model changed?", [Line([_drift(), _changes(), _used()], 8, (9, 9, 6))]),
            Section("Releases learned", [Line([_version()], 7)]),
            Section("Steps (protocol: gradients or examples)", [Line([_gap(), _step()], 8)], folded=True),
            Section(
                "The loss (protocol: examples)",
                [Line([_loss(), _refused(), _refused_share()], 8, (12, 6, 6))],
                folded=True,
            ),
        ],
        [
            one_task(),
            variable(
                "parameter", "Parameter", "The coefficients to draw with their intervals.",
                label_values('murk_parameter{task="$task"}', "name"), several=True,
            )
        ],
    )  # fmt: skip


def _now() -> list[Json]:
    return [
        stat("Releases learned", "Releases in the estimate, all partitions together: of one person's record each, or, "
             "with protocol: summaries, an organisation's sketch of many. It only ever rises.", LEARNED, decimals=0),
        stat("Learned per second", "How fast the count of learned releases rises. Zero while releases arrive is a "
             "fault: see the pipeline dashboard.",
             f'max(rate(murk_releases_total{{task="$task", result="{RESULT}"}}[$__rate_interval]))', unit="cps"),
        stat("Estimated error", "Root of the summed squared standard errors, from released data alone: how far the "
             "estimate is expected to be from the truth. Four times as many releases halve it.", ERROR,
             empty=NO_INTERVAL, decimals=4),
        stat("True error", "Euclidean distance from the reference parameters. Only in simulation, where somebody "
             "knows them (--reference); it should stay near the estimated error.",
             'max(murk_parameter_error{task="$task"})', empty=NO_REFERENCE, decimals=4),
        stat("Widest interval", "The largest half width of all coefficients, in coded units, at 95% for every look.",
             f"max({HALF_WIDTH})",
             empty=NO_INTERVAL, decimals=4),
        stat("Since the last release", "Time since the monitor saw the count of learned releases grow.",
             'time() - max(murk_last_release_timestamp_seconds{task="$task"})', unit="s", spark=False,
             steps=((None, "green"), (60, "orange"), (600, "red"))),
    ]  # fmt: skip


def _table() -> Json:
    return table(
        "Estimates now",
        "Each coefficient in coded units (a real feature runs from -1 to 1 over its public bounds); without features, "
        "the mean or each share in its own unit. Where low and high lie on the same side of "
        "zero, the sign of the effect is settled: the intervals are 95% at every look. "
        "Only where there are no such ones (with forget, or by random scaling) are they 95% at a single planned look.",
        {"estimate": ESTIMATE, "low": f"{ESTIMATE} - {HALF_WIDTH}", "high": f"{ESTIMATE} + {HALF_WIDTH}"},
        "name",
    )


def _estimates() -> Json:
    return timeseries(
        "Estimates",
        "All coefficients, partitions merged, in coded units. They should settle; one that keeps drifting after its "
        "interval has become narrow means that the people have changed, or that the model does not fit.",
        target(ESTIMATE, "{{name}}"),
    )


def _band() -> Json:
    panel = timeseries(
        "$parameter",
        "The estimate and its interval, in coded units: 95% at every look, except with forget or random scaling. The "
        "band should narrow as releases are learned. "
        "It is missing while there are too few releases for an interval that can be trusted.",
        target(CHOSEN, "estimate"),
        target(f"{CHOSEN} - {CHOSEN_WIDTH}", "low"),
        target(f"{CHOSEN} + {CHOSEN_WIDTH}", "high"),
        overrides=band("estimate"),
    )
    return panel | {"repeat": "parameter", "repeatDirection": "h", "maxPerRow": 3}


def _error() -> Json:
    return timeseries(
        "Error",
        "Estimated error (from releases alone) and, where a reference is given, the true one, on a log scale. Both "
        "should fall together; a true error that stays several times above the estimated one means that the "
        "reference describes other people, or that the intervals cannot be trusted.",
        target(ERROR, "estimated"),
        target('max(murk_parameter_error{task="$task"})', "true"),
        log=True,
    )


def _widths() -> Json:
    return timeseries(
        "Half widths",
        "Half width of each coefficient's interval, on a log scale. Rare categories stay wide longest. With "
        "`murk monitor --known-within`, the width at which a coefficient counts as known.",
        target(HALF_WIDTH, "{{name}}"),
        target('max by (name) (murk_parameter_known_within{task="$task"})', "{{name}}: known within"),
        log=True,
        empty=NO_INTERVAL,
    )


def _error_times_root() -> Json:
    return timeseries(
        "Error times the root of the releases",
        "Estimated error times the root of the number of releases that it is of. The error should fall like one over "
        "that root, so this should be flat. A steady rise means that new releases no longer make the estimate better: "
        "the people are changing, gradients are stale, or later releases carry more noise.",
        target(f"{ERROR} * sqrt({USED})", "error x root of releases"),
        least=0,
        empty=NO_INTERVAL,
    )


def _alike() -> Json:
    return stat(
        "Public covariates are like the people's", "1 while they pass the check, 0 while they do not and are left out. "
        "Only with protocol: scores and public covariates.",
        'min(murk_public_covariates_alike{task="$task"})', empty="no public covariates are checked", decimals=0,
        steps=((None, "orange"), (1, "green")),
    )  # fmt: skip


def _drift() -> Json:
    return timeseries(
        "Evidence of a change",
        "Probability at most with which a model that does not change ever shows as much change, on a log scale. The "
        f"alert is raised at {FALSE_ALARM}, and is false in at most that share of tasks over their whole life, however "
        "often it is looked at. 1 is what nothing unusual looks like.",
        target('min(murk_drift_p_value{task="$task"})', "p"),
        log=True,
        steps=((None, "red"), (FALSE_ALARM, "text")),
        lines=True,
        empty=NO_DRIFT,
    )


def _changes() -> Json:
    return timeseries(
        "Changes",
        "By how much estimates have moved since, in coded units: those of coefficients that surely have changed, while "
        "the model is said to have. The coefficients themselves have changed by more, as an estimate is a mean of "
        "before and after.",
        target('max by (name) (murk_parameter_change{task="$task"})', "{{name}}"),
        empty="no change",
    )


def _windows() -> Json:
    def of(metric: str, kind: str) -> str:
        chosen = f'{metric}{{task="$task", name=~"$parameter", of="{kind}"}}'
        return f"max by (begins, name) ({chosen})"

    path, half = of("murk_window_parameter", "path"), of("murk_window_half_width", "path")
    alone = of("murk_window_parameter", "window")
    return table(
        "Newest windows",
        "Coefficients in coded units by the window of the answers: smoothed over the window's neighbours, with a band "
        "that holds in all windows at once (95%), and of the window alone.",
        {
            "path": path,
            "low": f"{path} - {half}",
            "high": f"{path} + {half}",
            "alone": alone,
        },
        "begins",
    )


def _effects() -> Json:
    return timeseries(
        "Lift over time",
        "Average effect of each contrast of the task, and of each arm of an experiment against its control, with the "
        "ends of its displayed interval: on a probability from 0 to 1, or in the target's units. Once an interval that "
        "holds at every look excludes 0, the difference is established, whatever is seen later.",
        target('max by (contrast, end) (murk_contrast_effect{task="$task"})', "{{contrast}}, {{end}}"),
        empty="the task has no contrasts or arms, or too few people for an interval",
    )


def _contrasts() -> Json:
    return timeseries(
        "Evidence of a difference",
        "Probability at most with which categories without a difference ever show as much evidence of one, 1 / e, on "
        "a log scale, for each contrast of the task. It holds at every look: below 0.05, the difference is "
        "established at 95%, whenever it is looked at.",
        target('1 / max by (contrast) (murk_contrast_e_value{task="$task"})', "{{contrast}}"),
        log=True,
        steps=((None, "red"), (0.05, "text")),
        lines=True,
        empty="the task has no contrasts",
    )


def _sets() -> Json:
    return timeseries(
        "People whose target is in their prediction set",
        "Estimated share, with the ends of its 95% interval.",
        target('max by (end) (murk_prediction_coverage{task="$task"})', "{{end}}"),
        empty="no prediction sets yet",
    )


def _thresholds() -> Json:
    return timeseries(
        "Threshold of prediction sets",
        "Half the width of an interval in the target's units, or 1 less the least probability of a label in a set.",
        target('max(murk_prediction_threshold{task="$task"})', "threshold"),
        least=0,
        empty="no prediction sets yet",
    )


def _answers() -> Json:
    return stat(
        "Answers about prediction sets", "People who were asked whether their target is in the set of the model.",
        'max(murk_prediction_answers{task="$task"})', decimals=0, empty="nobody was asked",
    )  # fmt: skip


def _used() -> Json:
    return stat(
        "Releases in the estimate", "All that were learned or, where the task forgets, the newest ones.", USED,
        decimals=0,
    )  # fmt: skip


def _distance() -> Json:
    return timeseries(
        "True error in units of the estimated one",
        "About 1 where intervals are honest. Only where a reference is given.",
        target(f'max(murk_parameter_error{{task="$task"}}) / {ERROR}', "true / estimated"),
        least=0,
        empty=NO_REFERENCE,
        steps=((None, "text"), (3, "orange")),
        lines=True,
    )


def _version() -> Json:
    return timeseries(
        "Model version of each partition",
        "Releases that each partition has learned. One flat line among rising ones is a partition that nobody owns.",
        target('max by (partition) (murk_model_version{task="$task"})', "partition {{partition}}"),
    )


def _gap() -> Json:
    return timeseries(
        "Distance of the iterate from its average",
        "The newest iterate wanders around the average, and less and less. A rise means that steps are too large "
        "for the noise, or that the truth has moved. Empty where nothing is learned in steps (moments, sketches).",
        target('max by (partition) (murk_iterate_gap{task="$task"})', "partition {{partition}}"),
        log=True,
        empty=NO_STEPS,
    )


def _step() -> Json:
    return timeseries(
        "Step size",
        "Factor by which the next gradient is multiplied. It falls with the number of releases, as the task's "
        "learner says, and jumps only if a partition was restarted. Empty where nothing is learned in steps (moments, "
        "sketches).",
        target('max by (partition) (murk_step_size{task="$task"})', "partition {{partition}}"),
        log=True,
        empty=NO_STEPS,
    )


def _loss() -> Json:
    return timeseries(
        "Unbiased loss",
        "Mean loss of each release under the model as it was before that release was learned, estimated from the "
        "noisy releases without bias; the band is 1.96 standard errors on either side. It should fall and settle. "
        "It is a mean since the start, so it moves slowly, and noise can take it below zero. Two tasks can be "
        "compared by it only where their losses are the same.",
        target(LOSS, "loss"),
        target(f"{LOSS} - 1.96 * {LOSS_ERROR}", "low"),
        target(f"{LOSS} + 1.96 * {LOSS_ERROR}", "high"),
        empty=NO_EXAMPLES,
        overrides=band("loss"),
    )


def _refused() -> Json:
    return timeseries(
        "Refused updates",
        "Learned releases per second whose update was left out, because it was not finite or no honest release "
        "looks like that. It should be zero.",
        target(REFUSED_RATE, "partition {{partition}}"),
        unit="cps",
        least=0,
        empty=NO_EXAMPLES,
    )


def _refused_share() -> Json:
    return timeseries(
        "Share of refused updates",
        "Of all learned releases, the share whose update was left out. An alert is raised above 1%.",
        target(f"sum({REFUSED}) / {LEARNED}", "refused / learned"),
        unit="percentunit",
        least=0,
        steps=((None, "text"), (0.01, "orange")),
        lines=True,
        empty=NO_EXAMPLES,
    )
