"""Put what was reproduced into its pages: ``python -m tools.reproductions`` (``make reproductions``).

Pages in ``docs/reproductions`` have a place for each figure, between ``<!-- ID -->`` and ``<!-- end -->``: its picture,
table and checks are written there, and the picture beside the page. ``--from DIR`` takes results that are there
already, those of ``python -m reproductions ID --full --out DIR`` first; otherwise all are made, and kept in
``build/reproduced``. Between ``<!-- ID --data -->`` and ``<!-- end -->`` go the tables of the papers' own files, of all
results of ``python -m reproductions ID --data FILE`` that are there; without any the place stays as it is.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reproductions import store
from reproductions.catalogue import experiments
from reproductions.experiment import SEED, Experiment, Measured, Row, Setting, Size
from reproductions.run import reproduce

PAGES = Path(__file__).parents[1] / "docs" / "reproductions"


def block(found: dict[str, Any], picture: str | None) -> str:
    """What a page says of a result, as Markdown."""
    lines = [f"{_command(found)}:", ""]
    if picture is not None:
        lines += [f"![{found['title']}]({picture})", ""]
    lines += [_HEAD, _RULE, *map(_line, store.rows_of(found))]
    notes = dict.fromkeys(row.note for row in store.rows_of(found) if row.note)
    lines += ["", *(f"- {note}" for note in notes)]
    for one in store.checks_of(found):
        lines.append(f"- {'holds' if one.holds else '**does not hold**'}: {one.claim}: {one.found}")
    return "\n".join([*lines, "", found["verdict"]])


def block_of_files(results: Sequence[dict[str, Any]]) -> str:
    """What a page says of a figure made from the paper's own files, as Markdown: one table, and a line for each."""
    lines, said = [f"| file {_HEAD}", f"|---{_RULE}"], []
    for found in results:
        rows, data = store.rows_of(found), found["origin"]["data"]
        file = f"`{data['name']}`"
        lines += [f"| {file if place == 0 else ''} {_line(row)}" for place, row in enumerate(rows)]
        notes = " ".join(dict.fromkeys(row.note for row in rows if row.note))
        against = [f"{one.claim}: {one.found}" for one in store.checks_of(found) if not one.holds]
        checks = (
            f"Does **not hold**: {'; '.join(against)}."
            if against
            else f"All {len(store.checks_of(found))} checks hold."
        )
        said.append(
            f"- {file}, SHA-256 `{data['sha256'][:12]}`: {_command(found)}. {notes} {found['verdict']} {checks}"
        )
    return "\n".join([*lines, "", *said])


_HEAD = "| | published | as published, here | corrected | Murk's default | |"
_RULE = "|---|---|---|---|---|---|"


def _command(found: dict[str, Any]) -> str:
    origin, seconds = found["origin"], found["seconds"]
    size = " --full" if origin["size"] == "full" else ""
    seed = f" --seed {origin['seed']}" if origin["seed"] != SEED else ""
    data = f" --data {origin['data']['name']}" if origin["data"] is not None else ""
    time = f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
    return f"`python -m reproductions {found['id']}{size}{seed}{data}` ({time})"


def _line(row: Row) -> str:
    published = row.published if isinstance(row.published, str) else f"{row.published:.4g}"
    cells = [row.what, published, *map(_cell, (row.as_published, row.corrected, row.default)), row.tag]
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _cell(value: Measured | None) -> str:
    return "" if value is None else str(value)


def put(folder: Path, pages: Path, one: Experiment, found: dict[str, Any]) -> bool:
    """Write a result to the place that a page has for it; False where none has."""
    made, picture = store.path_of(folder, one.id, found["origin"], "png"), None
    if made.exists():
        picture = one.id.replace("/", "-") + ".png"
    if not _written(pages, one.id, block(found, picture)):
        return False
    if picture is not None:
        shutil.copyfile(made, pages / picture)
    return True


def put_files(folder: Path, pages: Path, one: Experiment) -> bool:
    """Write the results of the paper's own files to their place; False where there are such and no page has one."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(folder.glob(f"{one.id}-*.json")):
        result = json.loads(path.read_text(encoding="utf-8"))
        data, full = result["origin"]["data"], result["origin"]["size"] == "full"
        if result["id"] == one.id and data is not None and (full or data["sha256"] not in found):
            found[data["sha256"]] = result
    results = sorted(found.values(), key=lambda result: str(result["origin"]["data"]["name"]))
    return not results or _written(pages, f"{one.id} --data", block_of_files(results))


def _written(pages: Path, name: str, words: str) -> bool:
    pattern = re.compile(rf"<!-- {re.escape(name)} -->\n.*?<!-- end -->", re.S)
    for page in pages.glob("*.md"):
        text = page.read_text(encoding="utf-8")
        place = pattern.search(text)
        if place is not None:
            written = f"<!-- {name} -->\n{words}\n<!-- end -->"
            page.write_text(text[: place.start()] + written + text[place.end() :], encoding="utf-8")
            return True
    return False


def _newest(folder: Path, one: Experiment) -> dict[str, Any] | None:
    """What was found in full, or else as it is by default."""
    sizes: tuple[Size, ...] = ("full", "reduced")
    results = (store.read(folder, one, store.origin_of(Setting(size=size)), same=False) for size in sizes)
    return next((found for found in results if found is not None), None)


def main(argv: Sequence[str]) -> int:
    """Fill the pages; status 1 where a figure has no place."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--from", dest="folder", type=Path, help="results that are there already")
    folder = parser.parse_args(argv).folder
    known = experiments()
    if folder is None:
        folder = PAGES.parents[1] / "build" / "reproduced"
        reproduce(list(known.values()), Setting(), folder, tick=lambda done, text: print(f"{done:.1f} {text}"))  # noqa: T201
    lost = []
    for one in known.values():
        found = _newest(folder, one)
        if found is not None and not put(folder, PAGES, one, found):
            lost.append(one.id)
        if not put_files(folder, PAGES, one):
            lost.append(f"{one.id} --data")
    if lost:
        print("no page has a place for " + ", ".join(lost))  # noqa: T201
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
