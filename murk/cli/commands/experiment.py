"""``murk experiment``: plan an experiment, read it at any time, and count its false alarms without an effect."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from murk._internal.atomic_files import write_whole
from murk._internal.numbers import many, number
from murk.cli.options import as_json, assumed_rate, load_task, numbers_of_people
from murk.cli.output import check_picture, paragraph, print_json, progress, table
from murk.errors import UserError

if TYPE_CHECKING:
    from murk.task import Task

_ERROR_CODE = "MURK-CLI-002"


@click.command("experiment")
@click.argument("task_path", metavar="TASK", type=click.Path())
@click.option("--log", "log_url", metavar="URL", help="Read the experiment from this log.  [default: plan it]")
@numbers_of_people(type=click.IntRange(1))
@click.option(
    "--effect",
    type=click.FloatRange(0, min_open=True),
    metavar="X",
    help="Find the number of people that detect a lift of X, in points of a probability or in the target's units.",
)
@assumed_rate
@click.option(
    "--power",
    type=click.FloatRange(0.5, 0.999),
    default=0.8,
    show_default=True,
    metavar="P",
    help="Probability that an effect is detected.",
)
@click.option(
    "--aa",
    "records",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Assign arms at random to this file's "
    "records, look again and again, and count false alarms. The noise is simulated, and nothing is sent.",
)
@click.option(
    "--person",
    metavar="COLUMN",
    help="Column of people's names in the file of --aa, who keep their arm.  [default: a row is a person]",
)
@click.option("--runs", type=click.IntRange(1), default=100, show_default=True, metavar="N", help="Runs of --aa.")
@click.option("--seed", type=click.IntRange(0, 2**63 - 1), default=1, show_default=True, help="Seed of --aa.")
@click.option(
    "--picture",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="With --log: plot the lifts, with intervals for every look and for one look (PNG, SVG or PDF).",
)
@as_json
def command(
    task_path: str,
    log_url: str | None,
    people: tuple[int, ...],
    effect: float | None,
    rate: float | None,
    power: float,
    records: Path | None,
    person: str | None,
    runs: int,
    seed: int,
    picture: Path | None,
    as_json: bool,
) -> None:
    """Plan the experiment of TASK, or read it from a log at any time, or count its false alarms without an effect.

    Without --log and --aa it states the smallest lift that given numbers of people detect. Intervals of --log hold at
    every look, so that anybody may watch an experiment and stop it.
    """
    from murk.planning.experiments import arms_of

    if log_url is not None and records is not None:
        raise UserError("--log and --aa exclude each other: --log reads a log, --aa a file of records")
    if person is not None and records is None:
        raise UserError("--person requires --aa: it names the people of its file")
    if picture is not None and log_url is None:
        raise UserError("--picture requires --log: it plots the lifts of a log")
    task = load_task(task_path)
    arms_of(task)
    if log_url is not None:
        _watch(task, log_url, picture, as_json)
    elif records is not None:
        _count_alarms(task, records, person, runs, seed, as_json)
    else:
        _plan(task, people, effect, rate, power, as_json)


def _plan(
    task: Task, people: tuple[int, ...], effect: float | None, rate: float | None, power: float, as_json: bool
) -> None:
    from murk.planning.experiments import PEOPLE, people_for_effect, plan_experiment
    from murk.task.features import RealTarget

    plans = plan_experiment(task, people or PEOPLE, rate=rate, power=power)
    needed = None
    if effect is not None:
        needed = {
            name: people_for_effect(task, effect, rate=rate, power=power, watched=name == "watched")
            for name in ("planned", "watched")
        }
    if as_json:
        print_json({"task": task.name, "power": power, "plans": [asdict(each) for each in plans], "needed": needed})
        return
    unit = f"units of {task.target.name}" if isinstance(task.target, RealTarget) else "points"
    rows = [[f"{each.people:,}", *map(_shown, (each.planned, each.watched, each.without_privacy))] for each in plans]
    title = f"{task.name}: smallest lift of {task.target.name} detected with a probability of {power:.0%}, in {unit}"
    table(title, ["people", "one look at the end", "watched, at the same number", "one look, without privacy"], rows)
    metrics = () if task.experiment is None else task.experiment.metrics
    if metrics:
        paragraph(f"Each release is about {task.target.name} or about one of {len(metrics)} metrics, drawn evenly.")
    if needed is not None:
        paragraph(
            f"A lift of {number(effect or 0.0)} {unit} takes {needed['planned']:,} people for one look at the planned "
            f"end, and up to {needed['watched']:,} if the experiment is watched and may stop at any time."
        )


def _shown(effect: float) -> str:
    return number(effect) if math.isfinite(effect) else "too few people in an arm"


def _watch(task: Task, log_url: str, picture: Path | None, as_json: bool) -> None:
    from murk.cli.options import open_existing
    from murk.results.report import report_log
    from murk.results.text import Table, experiment_table

    if picture is not None:
        check_picture(picture)
    log, carried = open_existing(log_url)
    with log:
        if carried.with_simulated(task.simulated) != task:
            raise UserError(
                f"{log_url} carries another task than {task.name!r}: give the task file that it was begun with"
            )
        report = report_log(carried, log, live=True, history=False)
    state = report.get("experiment")
    if picture is not None and state is not None:
        import io

        from murk.results.plot import lifts

        drawn = io.BytesIO()
        lifts(report).savefig(drawn, format=picture.suffix[1:].lower())
        write_whole(picture, drawn.getvalue())
    if as_json:
        print_json({"task": task.name, "releases": report["releases"], "experiment": state})
        return
    if state is None:
        lag = report["lag"]
        waiting = f" {many(lag, 'message waits', 'messages wait')} on the log: is `murk learn` running?" if lag else ""
        paragraph(f"{task.name}: no release was learned yet.{waiting}")
        return
    for block in experiment_table(report):
        if isinstance(block, Table):
            table(block.title, list(block.columns), [list(row) for row in block.rows])
        else:
            paragraph(block.text)


def _count_alarms(task: Task, path: Path, person: str | None, runs: int, seed: int, as_json: bool) -> None:
    import numpy as np

    from murk.planning.experiments import false_alarms
    from murk.populations.file_source import FileSource

    if task.repeats.most > 1 and person is None:
        raise UserError("people of this task answer again, and keep their arm: name them by a column, --person COLUMN")
    source = FileSource(path, task.with_simulated(True), strict=False, person_column=person)
    blocks: list[Any] = list(source.blocks())
    X, y = np.concatenate([block.x for block in blocks]), np.concatenate([block.y for block in blocks])
    people = None
    if person is not None:
        numbers: dict[str, int] = {}
        names = (name for block in blocks for name in block.people)
        people = np.array([numbers.setdefault(name, len(numbers)) for name in names], dtype=np.int64)
    with progress("runs", runs, quiet=as_json) as tick:
        alarms = false_alarms(task, X, y, people=people, runs=runs, seed=seed, tick=tick)
    if as_json:
        print_json({"task": task.name, **asdict(alarms)})
        return
    error = 100.0 * math.sqrt(0.05 * 0.95 / runs)
    further = ""
    if alarms.metrics_watched is not None:
        further = (
            f" Of metrics and ratios, sequences excluded zero in {alarms.metrics_watched:.1%} (at most 5% for all "
            f"together), and intervals for one look in {alarms.metrics_fixed:.1%}."
        )
    if alarms.segments is not None:
        further += f" Of lifts in segments, sequences excluded zero in {alarms.segments:.1%} (at most 5%)."
    if alarms.attrition is not None:
        most = "5% of the target and 5% of all metrics" if task.metrics else "5%"
        further += f" Missing values seemed to differ between arms in {alarms.attrition:.1%} (at most {most})."
    paragraph(
        f"Of {runs:,} runs with {alarms.people:,} people{'' if person else ', a row each,'} and no effect, "
        f"{alarms.looks} looks each: "
        f"sequences excluded zero in {alarms.watched:.1%} (at most 5%, give or take {error:.1g} points), intervals for "
        f"one look in "
        f"{alarms.fixed:.1%}, and the arms' counts seemed wrong in {alarms.sample_ratio:.1%}.{further}"
    )
