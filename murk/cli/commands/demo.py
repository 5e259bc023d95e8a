"""``murk demo``: learn from real people's records, with accounts, comparison and picture."""

from __future__ import annotations

import math
import re
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from murk._internal.atomic_files import write_whole
from murk._internal.extras import missing_extra
from murk._internal.numbers import number
from murk.cli.commands.run import execute
from murk.cli.options import as_json, asking, log_url
from murk.cli.output import paragraph, print_json, table
from murk.errors import UserError

_ERROR_CODE = "MURK-CLI-002"


@click.command("demo")
@click.option(
    "--out",
    type=click.Path(file_okay=False),
    default="murk-demo",
    show_default=True,
    metavar="DIR",
    help="Directory for log, accounts and picture.",
)
@click.option("--seed", type=click.IntRange(0, 2**64 - 1), help="Simulate the noise, which protects nobody.")
@log_url(help="The log: kafka://HOST:PORT.  [default: a file in DIR]")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="N",
    help="With --web or --experiment: port of the page; 0 lets the system choose.  [default: 8480]",
)
@click.option("--picture/--no-picture", default=True, help="Draw the estimate over the number of releases.")
@click.option(
    "--web",
    is_flag=True,
    help="Instead, ask visitors three harmless questions on a page of this machine, until stopped; a "
    "simulated crowd answers with them.",
)
@click.option(
    "--experiment",
    is_flag=True,
    help="Instead, compare three buttons on a page of this machine, until stopped: each browser draws its own, a "
    "simulated crowd answers, and a naive interval stands beside one that holds at every look.",
)
@as_json
def command(
    out: str,
    seed: int | None,
    log_url: str | None,
    port: int | None,
    picture: bool,
    web: bool,
    experiment: bool,
    as_json: bool,
) -> None:
    """Learn from 254,654 real people whose records never leave their devices in the clear.

    Does having two children of the same sex make a third more likely? Each woman of the 1980 US census sample has an
    account and a privacy level; only privatized answers leave their (simulated) device.
    """
    from murk.demo import DATA, TASK
    from murk.demo.trusted import trusted_fit
    from murk.populations.people import PopulationConfig
    from murk.producers import Policy
    from murk.results.plot import curve
    from murk.results.result import Result
    from murk.task import Task
    from murk.task.coding import is_constant

    folder = Path(out)
    if web or experiment:
        from murk.cli.web_demo import serve

        served = "--experiment" if experiment else "--web"
        others = ["seed", "log_url", "picture", *(["web"] if experiment else [])]
        for name in others:
            if click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE:
                raise UserError(
                    f"--{name.removesuffix('_url')} cannot be combined with {served}: leave one of them out"
                )
        folder.mkdir(parents=True, exist_ok=True)
        serve(folder, port, as_json, experiment=experiment)
        return
    if port is not None:
        raise UserError(
            "--port is for the page of --web or --experiment: add one of them; `murk monitor` serves a log's live page"
        )
    for module in ("statsmodels", *(["matplotlib"] if picture else [])):
        if find_spec(module) is None:
            raise missing_extra(f"the demonstration needs {module}", "demo")
    folder.mkdir(parents=True, exist_ok=True)
    task = Task.load(TASK)
    stem = "demo" if seed is None else f"demo-{seed}"
    if log_url is not None:
        # One ledger per log: people release once to each.
        stem += "-" + re.sub(r"[^A-Za-z0-9]+", "-", log_url.partition("://")[2])
    url = log_url or f"sqlite:///{folder / stem}.db"
    if not as_json:
        click.echo(
            "Does having two children of the same sex make a third more likely?\n"
            "254,654 mothers, US census 1980. Each has an account and a privacy level, here drawn at random since the\n"
            "data has none. Nobody's features or outcome become public: devices send only noisy answers."
        )
    policy = Policy(public_sample=True)
    # No consent needed: these records are public already.
    agree = asking(url, str(DATA), simulated=seed is not None, agreed=True)
    crowd = PopulationConfig(DATA, level="lot", seed=seed, policy=policy, agree=agree)
    report = execute(task, crowd, url, folder / f"{stem}.ledger.db", quiet=as_json, history=True)
    history = report.pop("history")
    trusted = report["trusted"] = trusted_fit(task, DATA)
    if picture:
        result, place = Result(report, history), folder / f"{stem}.png"
        names = [name for name in task.coding.names if not is_constant(name)]
        buffer = BytesIO()
        curve(report, history, [result[name] for name in names], trusted).savefig(buffer, format="png", dpi=110)
        write_whole(place, buffer.getvalue(), own=True)
        report["picture"] = str(place)
    if as_json:
        print_json(report)
        return
    _print(report, folder, stem, url)


def _print(report: dict[str, Any], folder: Path, stem: str, url: str) -> None:
    from murk.demo import DATA
    from murk.task.coding import is_constant

    click.echo()
    rows = []
    for name, unit in report["per_unit"].items():
        if is_constant(name):
            continue
        raw = report["trusted"][name]
        factor = unit["value"] / report["coefficients"][name]
        odds_ratio = number(math.exp(unit["value"])), _range(unit["interval"])
        trusted = number(math.exp(raw["value"] * factor)), _range([raw["low"] * factor, raw["high"] * factor])
        rows.append([unit["unit"], *odds_ratio, *trusted])
    columns = ["", "learned privately", "95% interval", "trusted server", "95% interval"]
    table("Odds ratio of a third child", columns, rows)
    click.echo("The trusted server's fit was computed from the raw records, for comparison only.")
    paragraph(f"The intervals are {report['interval']['note']}.")
    low = math.exp(min(report["per_unit"]["same_sex"]["interval"]))
    click.echo()
    if low > 1.0:
        click.echo("Answer: yes. Two boys or two girls make a third child more likely.")
    else:
        click.echo("Answer: not settled by this run; the interval still contains an odds ratio of 1.")
    paragraph(
        "Too noisy to learn at this privacy level: effects of rare traits, such as afam and hispanic (5% and 7% of the "
        "women)."
    )
    click.echo()
    rows = []
    for level, promise in sorted(report["levels"].items(), key=lambda item: item[1]["right_at_most"]):
        right = math.ceil(1000 * promise["right_at_most"] - 1e-6) / 10
        terms = ", ".join(f"{key} = {value:g}" for each in promise["guarantee"].values() for key, value in each.items())
        rows.append([level, terms, f"{report['by_level'].get(level, 0):,}", f"{right:.1f}%"])
    title = "Guarantee for each woman who released, by local differential privacy on their own device"
    table(title, ["level", "guarantee", "women", "attacker right at most"], rows)
    paragraph(
        "An attacker who sees a release, knows everything else about everybody and has unlimited computing power tells "
        "which of two records is behind it at most this often (guessing: 50%). Each woman released once; the ledger "
        "refuses a second release."
    )
    paragraph(
        f"{report['refusals']:,} releases were refused (budget spent). "
        f"{sum(report['dead_letters'].values()):,} dead letters, {report['duplicates']:,} duplicates."
    )
    if report["simulated"]:
        click.echo("SIMULATED: the noise was drawn from a seed, so nobody's privacy was protected.")
    click.echo(f"{report['releases']:,} releases in {report['seconds']:.0f} s.")
    click.echo()
    if "picture" in report:
        click.echo(f"Picture: {report['picture']}")
    click.echo("Next:")
    for line, what in (
        (f"murk ledger {folder / stem}.ledger.db --person 17 --source {DATA}", "one woman's own account"),
        (f"murk monitor --log {url} --port 8000", "its live page, also while it runs"),
        (f"murk status --log {url}", "what the log holds"),
        ("murk run TASK --source FILE", "your own people and question: docs/task-file.md"),
    ):
        click.echo(f"  {line}\n      {what}")


def _range(ends: list[float]) -> str:
    return f"{number(math.exp(min(ends)))} .. {number(math.exp(max(ends)))}"
