"""``murk status``: show a log and its result."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from murk.cli.options import as_json, existing_log, open_existing

if TYPE_CHECKING:
    from murk.inference.confidence_sequences import Validity


@click.command("status")
@existing_log
@click.option(
    "--intervals",
    "looks",
    type=click.Choice(["always-valid", "fixed-n"]),
    help="Looks at which intervals hold: at all (wider), or at one planned look.  [default: fixed once the "
    "task has ended at its stated number of people, else always]",
)
@click.option(
    "--predict",
    "at",
    multiple=True,
    metavar="NAME=VALUE",
    help="Value of a feature: predict the target's mean or probabilities, with intervals. Repeat for each feature.",
)
@as_json
def command(log_url: str, looks: Validity | None, at: tuple[str, ...], as_json: bool) -> None:
    """Show a log's contents and what was learned from it, without changing anything."""
    from murk._internal.numbers import many
    from murk.cli.report import print_result
    from murk.planning.advice import advise
    from murk.results.report import report_log

    record = dict(_pair(each) for each in at) or None
    log, task = open_existing(log_url)
    with log:
        partitions = task.log.partitions
        report = report_log(
            task, log, partitions=partitions, history=as_json, advise=advise, live=True, looks=looks, at=record
        )
        report["removed"] = sum(max(0, log.begin(each) - log.checkpoint(each).offset) for each in range(partitions))
    report["lag"] -= report["removed"]
    print_result(report, as_json=as_json)
    if as_json:
        return
    click.echo(f"{report['lag']:,} messages on the log wait to be learned")
    if report["removed"]:
        words = f"retention has removed {many(report['removed'], 'message')} that nobody had learned"
        click.echo(f"{words}: the result lacks them. Begin with a new log and a longer retention, or learn sooner")


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise click.BadParameter(f"{text!r} is not NAME=VALUE, as in age=30", param_hint="--predict")
    return name, value
