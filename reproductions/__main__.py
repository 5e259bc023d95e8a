"""``python -m reproductions``: make the papers' tables and figures again."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from murk.cli import main
from murk.cli.options import as_json
from murk.cli.output import paragraph, print_json, progress, table
from murk.errors import MurkError, UserError

if TYPE_CHECKING:
    from reproductions.experiment import Measured, Row


@click.command("python -m reproductions")
@click.argument("which", metavar="[ID|PAPER|all]", required=False)
@click.option("--full", is_flag=True, help="As large as in the paper. May take hours.")
@click.option("--seed", type=click.IntRange(0, 2**64 - 1), default=1, show_default=True, metavar="N",
              help="Of all that is drawn.")  # fmt: skip
@click.option("--data", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="The paper's real file, as distributed, for a figure that otherwise takes a stand-in.")  # fmt: skip
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default="murk-reproduced", show_default=True,
              metavar="DIR", help="Where pictures, CSV and JSON files go.")  # fmt: skip
@click.option("--jobs", type=click.IntRange(1), metavar="N", help="How many at once.  [default: as many as cores]")
@as_json
def command(
    which: str | None, full: bool, seed: int, data: Path | None, out: Path, jobs: int | None, as_json: bool
) -> None:
    """Make a table or figure of the papers again: as published, corrected, and by Murk's defaults.

    Without an argument: the list. An ID such as 002/fig5 is one figure, 002 one paper's, all everything. Each leaves a
    picture, a CSV and a JSON file in DIR, named after it and after settings that are not the default ones; what is
    there from an earlier run with the same settings is not made again.
    The noise is simulated, and no person's record is read but public ones. Exit status 1 says that a check failed, 2
    that a figure could not be made, for want of a file, of memory or of room on the disk, say.
    """
    from reproductions.catalogue import chosen
    from reproductions.experiment import Setting
    from reproductions.run import reproduce

    if which is None:
        _list(as_json)
        return
    for module, name in (("matplotlib", "matplotlib"), ("sklearn", "scikit-learn")):
        if find_spec(module) is None:
            raise UserError(f'reproductions need {name}: pip install "murk[demo]"', code="MURK-CLI-003")
    picked = chosen(which)
    if data is not None and len(picked) > 1:
        raise UserError(f"--data is the file of one figure: name one, such as {picked[0].id}")
    setting = Setting(size="full" if full else "reduced", seed=seed, data=data)
    try:
        with progress(f"reproduce {which}", len(picked), quiet=as_json) as tick:
            made = reproduce(picked, setting, out, jobs=jobs, tick=lambda done, text: tick(int(done), text))
    except OSError as error:
        raise _not_made(error) from error
    if len(picked) == 1 and made.lacking:
        raise _not_made(made.lacking[picked[0].id])
    failed = [found["id"] for found in made.results if not found["holds"]]
    lacking = {name: str(_not_made(error)) for name, error in made.lacking.items()}
    if as_json:
        print_json({"results": made.results, "failed": failed, "lacking": lacking})
    else:
        for found in made.results:
            _show(found, out)
        _conclude(made.results, failed, lacking)
    if failed:
        sys.exit(1)
    if lacking:
        sys.exit(2)


def _not_made(error: Exception) -> UserError:
    """Why a figure could not be made: whatever it was, of one or of several, the status is 2; 1 is a failed check's."""
    if isinstance(error, OSError):
        what = (
            f"{error.filename}: {error.strerror}"
            if error.filename
            else f"the system refused: {error.strerror or error}"
        )
        words = f"{what}: check the path, its permissions and the room on its disk"
        return UserError(words, code="MURK-FILE-001")
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
                                "id": one.id,
                                "title": one.title,
                                "data": list(one.files[0].columns) if one.files else [],
                                "files": [file.name for file in one.files],
                            }
                            for one in paper.experiments
                        ],
                    }
                    for paper in PAPERS
                ]
            }
        )
        return
    for paper in PAPERS:
        paragraph(f"{paper.number}  {paper.citation}", hang="     ")
        for one in paper.experiments:
            takes = f" [--data: {', '.join(file.name for file in one.files)}]" if one.files else ""
            paragraph(f"  {one.id:<14} {one.title}{takes}", hang=" " * 17)
    click.echo("\npython -m reproductions ID, or PAPER, or all")


def _show(found: dict[str, Any], out: Path) -> None:
    from reproductions import store

    click.echo()
    rows = store.rows_of(found)
    origin = found["origin"]
    table(
        f"{found['id']}  {found['title']}",
        ["", "published", "as published, here", "corrected", "Murk's default", ""],
        [_cells(row) for row in rows],
    )
    for note in dict.fromkeys(row.note for row in rows if row.note):
        paragraph(f"  {note}", hang="  ")
    if origin["data"] is not None:
        click.echo(f"  from {origin['data']['name']}, SHA-256 {origin['data']['sha256']}")
    for check in store.checks_of(found):
        paragraph(f"  {'holds ' if check.holds else 'FAILED'}  {check.claim}: {check.found}", hang=" " * 10)
    paragraph(found["verdict"])
    path = store.path_of(out, found["id"], origin, "png")
    click.echo(f"{path}, .csv and .json ({found['seconds']:.0f} s)")


def _cells(row: Row) -> list[str]:
    published = row.published if isinstance(row.published, str) else f"{row.published:.4g}"
    return [row.what, published, _cell(row.as_published), _cell(row.corrected), _cell(row.default), row.tag]


def _cell(value: Measured | None) -> str:
    return "-" if value is None else str(value)


def _conclude(results: Sequence[dict[str, Any]], failed: Sequence[str], lacking: Mapping[str, str]) -> None:
    click.echo()
    for why in lacking.values():
        paragraph(f"Not made: {why}")
    checks = sum(len(found["checks"]) for found in results)
    if failed:
        click.echo(f"A check failed in {', '.join(failed)}.")
    else:
        click.echo(f"{len(results)} made again; all of {checks} checks hold.")


if __name__ == "__main__":
    main(command, "python -m reproductions")
