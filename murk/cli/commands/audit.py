"""``murk audit``: measure disclosure and compare it with the guarantee."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from murk import __version__
from murk._internal.numbers import finite, listed, number
from murk.cli.options import as_json, load_task
from murk.cli.output import paragraph, print_json, progress, table
from murk.errors import UserError

if TYPE_CHECKING:
    from murk.audit import Finding

_ERROR_CODE = "MURK-CLI-002"


@click.command("audit")
@click.argument("task_path", metavar="[TASK]", required=False, type=click.Path())
@click.option("--all", "everything", is_flag=True, help="Audit every mechanism and protocol.")
@click.option(
    "--draws",
    type=click.IntRange(4),
    default=200_000,
    show_default=True,
    metavar="N",
    help="Number of releases of each of two neighbouring inputs; at most N / 20 for windows of records.",
)
@click.option(
    "--confidence",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.999,
    show_default=True,
    help="Probability that no bound of the table exceeds the truth.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**64 - 1),
    help="Simulate the noise, so that the run is repeatable.  [default: the randomness that devices use]",
)
@as_json
def command(
    task_path: str | None, everything: bool, draws: int, confidence: float, seed: int | None, as_json: bool
) -> None:
    """Measure how much the releases of TASK disclose about a record.

    For worst-case neighbours, releases are made as devices make them and distinguished by the best known test, which
    gives a lower bound on epsilon or mu. A bound above the claim refutes it, and the exit status is 1.
    """
    from murk.audit import audit, cases_of, catalogue, checksum
    from murk.privacy.noise import SimulatedNoise

    if everything == (task_path is not None):
        raise UserError("give a TASK to audit, or --all for every mechanism and protocol")
    task = None if task_path is None else load_task(task_path)
    if task is not None and task.public is not None and task.covariates is None:
        click.echo("murk: audited without the public sample, which is set aside when a run begins", err=True)
    cases = catalogue() if task is None else cases_of(task)
    noise = None if seed is None else SimulatedNoise(seed)
    with progress("audit", 2 * draws * len(cases), quiet=as_json) as tick:
        findings = list(audit(cases, draws, noise=noise, confidence=confidence, tick=tick))
    holds = all(finding.holds for finding in findings)
    if as_json:
        result = {
            "holds": holds,
            "confidence": confidence,
            "simulated": seed is not None,
            "task": None if task is None else {"name": task.name, "hash": task.hash},
            "murk": __version__,
            "date": datetime.now(UTC).date().isoformat(),
            "findings": [finding.to_dict() for finding in findings],
        }
        print_json({**result, "sha256": checksum(finite(result))})
    else:
        _show(findings, confidence, seed, whole=everything)
        if task is not None and task.known_columns:
            names = listed(task.known_columns)
            paragraph(f"Only inputs that agree in {names} are compared: known columns are sent as they are.")
    if not holds:
        sys.exit(1)


def _show(findings: list[Finding], confidence: float, seed: int | None, *, whole: bool) -> None:
    rows = []
    for each in findings:
        pair = "-" if each.pair is None else number(each.pair)
        detectable = number(each.detectable, 2) if math.isfinite(each.detectable) else "-"
        figures = number(each.claimed), number(each.bound), number(each.ratio, 2), pair, detectable, f"{each.draws:,}"
        rows.append([each.name, each.measure, *figures, each.verdict])
    table("", ["audited", "measure", "claim", "at least", "ratio", "of the pair", "would find", "draws", ""], rows)
    source = "the randomness that devices use" if seed is None else f"noise simulated from seed {seed}"
    paragraph(
        f"Lower bounds, simultaneously true with probability {confidence:g}, from {source}. 'of the pair' is the exact "
        "figure for the two inputs, if known. 'would find' is the least loss that these draws show to exceed the claim "
        "with probability 95%: smaller violations may have been missed."
    )
    if any(each.verdict == "no power" for each in findings):
        paragraph(
            "No power: with so few draws the two inputs' releases cannot be distinguished, so the claim cannot be "
            "refuted. Increase --draws."
        )
    for each in findings:
        if not whole:
            paragraph(f"{each.name}: {_describe(each.neighbours)}", hang="  ")
        if not each.holds:
            disclosed = f"releases disclose a {each.measure} of at least {each.bound:.4g}"
            paragraph(f"{each.name}: {disclosed}; {each.claimed:.4g} is claimed")


def _describe(neighbours: Mapping[str, Any]) -> str:
    if "windows" in neighbours:
        return str(neighbours["windows"])
    first, second = (
        ", ".join(f"{name} {'missing' if value is None else value}" for name, value in neighbours[which].items())
        for which in ("first", "second")
    )
    where = ""
    if "iterate" in neighbours:
        where = f", at the iterate ({', '.join(f'{value:.3g}' for value in neighbours['iterate'])})"
    return f"inputs compared: {first}; {second}{where}"
