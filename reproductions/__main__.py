"""``python -m reproductions``: reproduce the papers' tables and figures."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from murk._internal.extras import missing_extra
from murk.cli import main
from murk.cli.options import as_json
from murk.cli.output import paragraph, print_json, progress, table
from murk.errors import MurkError, UserError

if TYPE_CHECKING:
    from reproductions.experiment import Measured, Row

_ERROR_CODE = "MURK-CLI-002"


@click.command("python -m reproductions")
@click.argument("which", metavar="[ID|PAPER|all]", required=False)
@click.option("--full", is_flag=True, help="Use the paper's size; may take hours.")
@click.option("--seed", type=click.IntRange(0, 2**64 - 1), default=1, show_default=True, metavar="N",
              help="Seed of all random draws.")  # fmt: skip
@click.option("--data", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="The paper's own data file, as distributed, in place of the stand-in.")  # fmt: skip
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default="murk-reproduced", show_default=True,
              metavar="DIR", help="Folder for pictures, CSV and JSON files.")  # fmt: skip
@click.option(
    "--jobs",
    type=click.IntRange(1),
    metavar="N",
    help="Number of figures computed at once.  [default: number of cores]",
)
@as_json
def command(
    which: str | None, full: bool, seed: int, data: Path | None, out: Path, jobs: int | None, as_json: bool
) -> None:
    """Reproduce a paper's tables and figures: as published, corrected, and with Murk's defaults.

    ID is one figure, such as 002/fig5; PAPER is all figures of a paper, such as 002; all is everything. Without an
    argument, list them. Each figure writes a picture, a CSV file and a JSON file to DIR. Results with the same settings
    are not computed again.

    Exit status: 1 if a check fails, 2 if a figure cannot be made, for example for lack of memory.
    """
    from reproductions.catalogue import chosen
    from reproductions.experiment import Setting
    from reproductions.run import reproduce

    if which is None:
        _list(as_json)
        return
    for module, name in (("matplotlib", "matplotlib"), ("sklearn", "scikit-learn")):
        if find_spec(module) is None:
            raise missing_extra(f"reproductions need {name}", "demo")
    picked = chosen(which)
    if data is not None and len(picked) > 1:
        raise UserError(f"--data applies to one figure: give one ID, such as {picked[0].id}")
    setting = Setting(size="full" if full else "reduced", seed=seed, data=data)
    try:
        with progress(f"reproduce {which}", len(picked), quiet=as_json) as tick:
            made = reproduce(picked, setting, out, jobs=jobs, tick=lambda done, text: tick(int(done), text))
    except OSError as error:
        raise _not_made(error) from error
    if len(picked) == 1 and made.lacking:
        raise _not_made(made.lacking[picked[0].id])
    failed = [result["id"] for result in made.results if not result["holds"]]
    lacking = {name: str(_not_made(error)) for name, error in made.lacking.items()}
    if as_json:
        print_json({"results": made.results, "failed": failed, "lacking": lacking})
    else:
        for result in made.results:
            _show(result, out)
        _conclude(made.results, failed, lacking)
    if failed:
        sys.exit(1)
    if lacking:
        sys.exit(2)


def _not_made(error: Exception) -> UserError:
    """Return the error as one with exit status 2, since 1 means a failed check."""
    if isinstance(error, OSError):
        what = f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error)
        return UserError(f"{what}: check the path, its permissions and the free space", code="MURK-FILE-001")
    return UserError(str(error), code=error.code if isinstance(error, MurkError) else None)


def _list(as_json: bool) -> None:
    from reproductions.catalogue import PAPERS

    if as_json:
        print_json(
            {
                "papers": [
                    {
                        "number": paper.number,
                        "protocol": paper.protocol,
                        "citation": paper.citation,
                        "experiments": [
                            {
                                "id": experiment.id,
                                "title": experiment.title,
                                "data": list(experiment.files[0].columns) if experiment.files else [],
                                "files": [file.name for file in experiment.files],
                            }
                            for experiment in paper.experiments
                        ],
                    }
                    for paper in PAPERS
                ]
            }
        )
        return
    for paper in PAPERS:
        paragraph(f"{paper.number}  {paper.citation}", hang="     ")
        for experiment in paper.experiments:
            files = ", ".join(file.name for file in experiment.files)
            data = f" [--data: {files}]" if files else ""
            paragraph(f"  {experiment.id:<14} {experiment.title}{data}", hang=" " * 17)
    click.echo("\npython -m reproductions ID, or PAPER, or all")


def _show(result: dict[str, Any], out: Path) -> None:
    from reproductions import store

    click.echo()
    rows, origin = store.rows_of(result), result["origin"]
    table(
        f"{result['id']}  {result['title']}",
        ["", "published", "as published, here", "corrected", "Murk's default", ""],
        [_cells(row) for row in rows],
    )
    for note in dict.fromkeys(row.note for row in rows if row.note):
        paragraph(f"  {note}", hang="  ")
    if origin["data"] is not None:
        click.echo(f"  from {origin['data']['name']}, SHA-256 {origin['data']['sha256']}")
    for check in store.checks_of(result):
        paragraph(f"  {'holds ' if check.holds else 'FAILED'}  {check.claim}: {check.found}", hang=" " * 10)
    paragraph(result["verdict"])
    path = store.path_of(out, result["id"], origin, "png")
    click.echo(f"{path}, .csv and .json ({result['seconds']:.0f} s)")


def _cells(row: Row) -> list[str]:
    published = row.published if isinstance(row.published, str) else f"{row.published:.4g}"
    return [row.what, published, _cell(row.as_published), _cell(row.corrected), _cell(row.default), row.tag]


def _cell(value: Measured | None) -> str:
    return "-" if value is None else str(value)


def _conclude(results: Sequence[dict[str, Any]], failed: Sequence[str], lacking: Mapping[str, str]) -> None:
    click.echo()
    for reason in lacking.values():
        paragraph(f"Not made: {reason}")
    checks = sum(len(result["checks"]) for result in results)
    if failed:
        click.echo(f"A check failed in {', '.join(failed)}.")
    else:
        click.echo(f"{len(results)} reproduced; all {checks} checks hold.")


if __name__ == "__main__":
    main(command, "python -m reproductions")
