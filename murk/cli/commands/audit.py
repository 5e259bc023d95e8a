"""``murk audit``: what releases disclose, measured, beside what is claimed."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from murk import __version__
from murk.cli.options import as_json
from murk.cli.output import paragraph, print_json, progress, table
from murk.errors import UserError
from murk.learners.results.numbers import number

if TYPE_CHECKING:
    from murk.audit import Finding
    from murk.stream import Task


@click.command("audit")
@click.argument("task_path", metavar="[TASK]", required=False, type=click.Path())
@click.option("--all", "everything", is_flag=True, help="Every mechanism and every protocol.")
@click.option(
    "--draws",
    type=click.IntRange(4),
    default=200_000,
    show_default=True,
    metavar="N",
    help="Releases of each of two neighbours; of sketches N / 200 at most.",
)
@click.option(
    "--confidence",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.999,
    show_default=True,
    help="Probability with which no bound of the table exceeds the truth.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**64 - 1),
    help="Simulate the noise, so that a run repeats. By default it is that of devices.",
)
@as_json
def command(
    task_path: str | None, everything: bool, draws: int, confidence: float, seed: int | None, as_json: bool
) -> None:  # fmt: skip
    """Measure what the releases of TASK, or of everything, disclose about a record.

    For worst neighbours, releases are made as devices make them and distinguished as well as can be: that gives a lower
    bound of epsilon or mu. A bound above its claim refutes it, and the exit status is 1.
    """
    from murk.audit import audit, cases_of, catalogue
    from murk.privacy.noise import SimulatedNoise

    if everything == (task_path is not None):
        raise UserError("give a TASK to audit, or --all for every mechanism and protocol")
    task = None if task_path is None else _load(task_path)
    cases = catalogue() if task is None else cases_of(task)
    noise = None if seed is None else SimulatedNoise(seed)
    with progress("audit", 2 * draws * len(cases), quiet=as_json) as tick:
        findings = list(audit(cases, draws, noise=noise, confidence=confidence, tick=tick))
    holds = all(finding.holds for finding in findings)
    if as_json:
        print_json({
            "holds": holds,
            "confidence": confidence,
            "simulated": seed is not None,
            "task": None if task is None else {"name": task.name, "hash": task.hash},
            "murk": __version__,
            "date": datetime.now(UTC).date().isoformat(),
            "findings": [finding.to_dict() for finding in findings],
        })  # fmt: skip
    else:
        _show(findings, confidence, seed, whole=everything)
    if not holds:
        sys.exit(1)


def _load(path: str) -> Task:
    """A task with its public file read, as devices get it."""
    from murk.producers.populations.public_sample import public_covariates
    from murk.stream import Task

    task = Task.load(path)
    if task.public_path is not None:
        return task.with_public(*public_covariates(task.public_path, task))
    if task.public is not None:
        click.echo("murk: the public sample is set aside when a run begins: audited as before it is there", err=True)
    return task


def _show(findings: list[Finding], confidence: float, seed: int | None, *, whole: bool) -> None:
    rows = [
        [
            one.name, one.measure, number(one.claimed), number(one.bound), number(one.ratio, 2),
            "-" if one.pair is None else number(one.pair), f"{one.draws:,}", one.verdict,
        ]
        for one in findings
    ]  # fmt: skip
    table("", ["audited", "measure", "claim", "at least", "ratio", "of the pair", "draws", ""], rows)
    source = "the randomness that devices use" if seed is None else f"noise simulated from seed {seed}"
    paragraph(
        f"Lower bounds, all of them true with a probability of {confidence:g}, from {source}. 'of the pair' is what "
        "more draws would tend to, where it is known."
    )
    if any(one.verdict == "no power" for one in findings):
        paragraph(
            "No power: the two inputs' releases could not be told apart with so few draws, so the claim could not have "
            "been refuted. More --draws give the audit power."
        )
    for one in findings:
        if not whole:
            paragraph(f"{one.name}: {_words(one.neighbours)}", hang="  ")
        if not one.holds:
            found = f"releases disclose a {one.measure} of at least {one.bound:.4g}"
            paragraph(f"{one.name}: {found}; {one.claimed:.4g} is claimed")


def _words(neighbours: Mapping[str, Any]) -> str:
    """Two inputs in words."""
    if "windows" in neighbours:
        return str(neighbours["windows"])
    first, second = (
        ", ".join(f"{name} {'missing' if value is None else value}" for name, value in neighbours[which].items())
        for which in ("first", "second")
    )
    where = ""
    if "iterate" in neighbours:
        where = f", at the iterate ({', '.join(f'{value:.3g}' for value in neighbours['iterate'])})"
    return f"told apart were {first} and {second}{where}"
