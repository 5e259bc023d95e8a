"""``murk demo``: the main job on real people's records, from accounts to picture."""

from __future__ import annotations

import math
import re
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from murk.cli.commands.run import execute
from murk.cli.consent import asking
from murk.cli.live_page import LivePage
from murk.cli.options import as_json
from murk.cli.output import paragraph, print_json, table
from murk.errors import UserError
from murk.learners.results.numbers import number

if TYPE_CHECKING:
    from murk.demo.path import Path95
    from murk.producers.populations.local_run import LocalRun
    from murk.stream import Task


@click.command("demo")
@click.option("--out", type=click.Path(file_okay=False), default="murk-demo", show_default=True, metavar="DIR",
              help="Where log, accounts and picture go.")  # fmt: skip
@click.option("--seed", type=click.IntRange(0, 2**64 - 1), help="Simulate the noise. Protects nobody.")
@click.option("--log", "log_url", metavar="URL", help="The log: kafka://HOST:PORT.  [default: a file in DIR]")
@click.option("--page/--no-page", default=None, help="Serve the live page meanwhile.  [default: with --log]")
@click.option("--port", type=click.IntRange(0, 65535), default=0, metavar="N",
              help="Where the page is; by default the system chooses.")  # fmt: skip
@click.option("--picture/--no-picture", default=True, help="Draw how the estimate closes in.")
@as_json
def command(
    out: str, seed: int | None, log_url: str | None, page: bool | None, port: int, picture: bool, as_json: bool
) -> None:
    """Learn from 254,654 real people, whose records never leave their own devices in the clear.

    Does having two children of the same sex make a third more likely? Each woman of the 1980 US census sample
    has an account of their own and a privacy level; only privatized answers leave their (simulated) device.
    """
    from murk.demo import DATA, TASK
    from murk.demo.path import Path95
    from murk.producers.populations.people import PopulationConfig
    from murk.stream import Task

    for module in ("statsmodels", *(["matplotlib"] if picture else [])):
        if find_spec(module) is None:
            raise UserError(f'the demonstration needs {module}: pip install "murk[demo]"', code="MURK-CLI-003")
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    task = Task.load(TASK)
    stem = "demo" if seed is None else f"demo-{seed}"
    if log_url is not None:
        # Each log has accounts of its own: people release once to each.
        stem += "-" + re.sub(r"[^A-Za-z0-9]+", "-", log_url.partition("://")[2])
    url = log_url or f"sqlite:///{folder / stem}.db"
    path = Path95(folder / f"{stem}.path.jsonl")
    if not as_json:
        click.echo(
            "Does having two children of the same sex make a third more likely?\n"
            "254,654 mothers, US census 1980. Each has an account of their own and a privacy level, here drawn at\n"
            "random since the data has none. Nobody's features or outcome become public: what leaves a device is\n"
            "noise with a little truth in it."
        )
    with LivePage(port) as live:
        show = page if page is not None else log_url is not None

        def watch(run: LocalRun, last: bool) -> None:
            path(run, last)
            if show:
                live.watch(run, last)

        crowd = PopulationConfig(DATA, level="lot", seed=seed)
        # Anyone who starts the demonstration is told, and not asked: these people's records are public already.
        agree = asking(url, str(DATA), simulated=seed is not None, agreed=True)
        found = execute(task, crowd, url, folder / f"{stem}.ledger.db", agree, quiet=as_json, watch=watch)
        _tell(found, task, folder, stem, url, path, picture=picture, as_json=as_json)
        if not as_json:
            live.stay()


def _tell(
    found: dict[str, Any], task: Task, folder: Path, stem: str, url: str, path: Path95, *, picture: bool, as_json: bool
) -> None:
    from murk.demo import DATA
    from murk.demo.trusted import trusted_fit

    trusted = trusted_fit(task, DATA)
    found["trusted"] = trusted
    if picture:
        from murk.demo.picture import draw
        from murk.stream.task.data.coding import is_constant

        coding = task.coding
        names = [name for name in coding.names if not is_constant(name)]
        units = dict(zip(coding.names, coding.unit_factors.tolist(), strict=True))
        labels = dict(zip(coding.names, coding.unit_labels, strict=True))
        found["picture"] = str(draw(folder / f"{stem}.png", path.points, names, labels, units, trusted))
    if as_json:
        print_json(found)
    else:
        _print(found, folder, stem, url)


def _print(found: dict[str, Any], folder: Path, stem: str, url: str) -> None:
    from murk.demo import DATA
    from murk.stream.task.data.coding import is_constant

    click.echo()
    rows = []
    for name, unit in found["per_unit"].items():
        if is_constant(name):
            continue
        factor = unit["value"] / found["coefficients"][name]
        raw = found["trusted"][name]
        ends = sorted((raw["low"] * factor, raw["high"] * factor))
        rows.append(
            [
                unit["unit"],
                number(math.exp(unit["value"])),
                _range(sorted(unit["interval"])),
                number(math.exp(raw["value"] * factor)),
                _range(ends),
            ]
        )
    table(
        "Odds ratio of a third child",
        ["", "learned privately", "95% interval", "trusted server", "95% interval"],
        rows,
    )
    click.echo("The trusted server's fit was computed apart, from the raw records, for comparison only.")
    paragraph(f"The intervals are {found['interval']['note']}.")
    low = math.exp(min(found["per_unit"]["same_sex"]["interval"]))
    click.echo()
    if low > 1.0:
        click.echo("Answer: yes. Two boys or two girls make a third child more likely.")
    else:
        click.echo("Answer: not settled by this run; the interval still holds an odds ratio of 1.")
    paragraph(
        "Hardly to be learned at this privacy: effects of rare traits. With afam and hispanic (5% and 7% of the "
        "women) in the task, 3 of 20 intervals of their odds ratios ended above 6 (ten runs, mu = 1)."
    )
    click.echo()
    promises = sorted(found["levels"].items(), key=lambda item: item[1]["right_at_most"])
    table(
        "What each woman who released was promised, on their own device, by local differential privacy",
        ["level", "guarantee", "women", "right about them at most"],
        [
            [
                level,
                _terms(promise["guarantee"]),
                f"{found['by_level'].get(level, 0):,}",
                f"{math.ceil(1000 * promise['right_at_most'] - 1e-6) / 10:.1f}%",
            ]
            for level, promise in promises
        ],
    )
    paragraph(
        "That is: somebody who sees their release, knows everything else about them and everybody, and has unlimited "
        "computing power, is asked which of any two records is theirs, and is right at most so often (guessing: 50%). "
        "They released once; the ledger refuses a second time."
    )
    paragraph(
        f"{found['refusals']:,} releases were refused for want of budget. "
        f"{sum(found['dead_letters'].values()):,} dead letters, {found['duplicates']:,} duplicates."
    )
    if found["simulated"]:
        click.echo("SIMULATED: the noise was drawn from a seed, so nobody's privacy was protected.")
    click.echo(f"{found['releases']:,} releases in {found['seconds']:.0f} s.")
    click.echo()
    if "picture" in found:
        click.echo(f"Picture: {found['picture']}")
    click.echo("Next:")
    steps = [
        (f"murk ledger {folder / stem}.ledger.db --person 17 --source {DATA}", "one woman's own account"),
        (f"murk status --log {url}", "what the log holds"),
        ("murk run TASK --source FILE", "your own people and question: docs/task-file.md"),
    ]
    for line, what in steps:
        click.echo(f"  {line}\n      {what}")


def _terms(guarantee: dict[str, dict[str, float]]) -> str:
    return ", ".join(f"{key} = {value:g}" for terms in guarantee.values() for key, value in terms.items())


def _range(ends: list[float]) -> str:
    return f"{number(math.exp(ends[0]))} .. {number(math.exp(ends[1]))}"
