"""Write results of ``python -m reproductions`` into ``docs/reproductions``: ``make reproductions``.

Each figure's block between ``<!-- ID -->`` and ``<!-- end -->`` is replaced, and its picture copied beside the page;
``<!-- ID --data -->`` starts the block of results from the paper's own files. ``--from DIR`` takes the results that
are in DIR, those of ``--full`` first; without it all figures are reproduced in ``build/reproduced``.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from reproductions import store
from reproductions.catalogue import experiments
from reproductions.experiment import SEED, Experiment, Row, Setting, Size
from reproductions.run import reproduce
from tools.reproduction_tables import LAYOUTS, PLAIN, line, tables, tag_line

PAGES = Path(__file__).parents[1] / "docs" / "reproductions"


def block(result: dict[str, Any], picture: str | None) -> str:
    """Return what a page shows of a result, as Markdown: command, picture, tag, count of checks, and tables."""
    rows, layout = store.rows_of(result), LAYOUTS.get(result["id"], PLAIN)
    parts = [f"{_command(result)} ({_duration(result)}):"]
    if picture is not None:
        parts.append(f"![{result['title']}]({picture})")
    checks = _checks(result, " checks")
    parts.append(f"Tag: {tag_line(layout, rows)}. {checks[0].upper()}{checks[1:]}.")
    return "\n\n".join([*parts, *tables(layout, rows)])


def block_of_files(results: Sequence[dict[str, Any]]) -> str:
    """Return what a page shows of results from the paper's own files, as Markdown: one table, and a line for each."""
    layout = LAYOUTS.get(f"{results[0]['id']} --data", PLAIN)
    rows: list[Row] = []
    lines = ["| command | SHA-256 | records | features | checks |", "|---|---|---|---|---|"]
    for result in results:
        data, own = result["origin"]["data"], store.rows_of(result)
        rows += [replace(row, what=f"{row.what} in `{data['name']}`") for row in own]
        sizes = {row.what.split(", ")[0]: match for row in own if (match := _SIZE.search(row.note))}
        records = "; ".join(dict.fromkeys(match["records"] for match in sizes.values()))
        # What sets a second data set of a file apart stands in parentheses after its name.
        features = [f"{name.partition('(')[2].rstrip(')')} {match['features']}" for name, match in sizes.items()]
        command = f"{_command(result)} ({_duration(result)})"
        lines.append(line([command, f"`{data['sha256'][:12]}`", records, "; ".join(features).strip(), _checks(result)]))
    return "\n\n".join([f"Tag: {tag_line(layout, rows)}.", *tables(layout, rows), "\n".join(lines)])


_SIZE = re.compile(r"The file given: (?P<records>[\d,]+ rows(?:, [\d,]+ kept)?), (?P<features>\d+) features")
"""Of the note of a row from a file."""


def _checks(result: dict[str, Any], noun: str = "") -> str:
    checks = store.checks_of(result)
    failed = [f"{check.claim} ({check.found})" for check in checks if not check.holds]
    if failed:
        return f"{len(failed)} of {len(checks)}{noun} **fail**: {'; '.join(failed)}"
    return f"all {len(checks)}{noun} hold"


def _command(result: dict[str, Any]) -> str:
    origin = result["origin"]
    size = " --full" if origin["size"] == "full" else ""
    seed = f" --seed {origin['seed']}" if origin["seed"] != SEED else ""
    data = f" --data {origin['data']['name']}" if origin["data"] is not None else ""
    return f"`python -m reproductions {result['id']}{size}{seed}{data}`"


def _duration(result: dict[str, Any]) -> str:
    seconds = result["seconds"]
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def write_result(folder: Path, pages: Path, experiment: Experiment, result: dict[str, Any]) -> bool:
    """Write a result's block and picture; return False if no page has a place for it."""
    source, picture = store.path_of(folder, experiment.id, result["origin"], "png"), None
    if source.exists():
        picture = experiment.id.replace("/", "-") + ".png"
    if not _replace_block(pages, experiment.id, block(result, picture)):
        return False
    if picture is not None:
        shutil.copyfile(source, pages / picture)
    return True


def write_file_results(folder: Path, pages: Path, experiment: Experiment) -> bool:
    """Write the block of the paper's own files; return False if there are results and no page has a place for them."""
    results: dict[str, dict[str, Any]] = {}
    for path in sorted(folder.glob(f"{experiment.id}-*.json")):
        result = json.loads(path.read_text(encoding="utf-8"))
        data, full = result["origin"]["data"], result["origin"]["size"] == "full"
        if result["id"] == experiment.id and data is not None and (full or data["sha256"] not in results):
            results[data["sha256"]] = result
    by_name = sorted(results.values(), key=lambda result: str(result["origin"]["data"]["name"]))
    return not by_name or _replace_block(pages, f"{experiment.id} --data", block_of_files(by_name))


def _replace_block(pages: Path, name: str, text: str) -> bool:
    pattern = re.compile(rf"(<!-- {re.escape(name)} -->\n).*?(<!-- end -->)", re.DOTALL)
    for page in pages.glob("*.md"):
        changed, count = pattern.subn(lambda match: f"{match[1]}{text}\n{match[2]}", page.read_text(encoding="utf-8"))
        if count:
            page.write_text(changed, encoding="utf-8")
            return True
    return False


def _stored(folder: Path, experiment: Experiment) -> dict[str, Any] | None:
    """Return the result at full size, or else at the default size."""
    sizes: tuple[Size, ...] = ("full", "reduced")
    results = (store.read(folder, experiment, store.origin_of(Setting(size=size)), same=False) for size in sizes)
    return next((result for result in results if result is not None), None)


def main(argv: Sequence[str]) -> int:
    """Write all blocks; return 1 if a result has no place on a page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--from", dest="folder", type=Path, help="folder of results; default: reproduce all figures")
    folder = parser.parse_args(argv).folder
    known = experiments()
    if folder is None:
        folder = PAGES.parents[1] / "build" / "reproduced"
        reproduce(list(known.values()), Setting(), folder, tick=lambda done, text: print(f"{done:.1f} {text}"))  # noqa: T201
    missing = []
    for name, experiment in known.items():
        result = _stored(folder, experiment)
        if result is not None and not write_result(folder, PAGES, experiment, result):
            missing.append(name)
        if not write_file_results(folder, PAGES, experiment):
            missing.append(f"{name} --data")
    if missing:
        print("no page has a place for " + ", ".join(missing))  # noqa: T201
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
