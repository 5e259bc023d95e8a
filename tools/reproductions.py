"""Put what was reproduced into its pages: ``python -m tools.reproductions`` (``make reproductions``).

Pages in ``docs/reproductions`` have a place for each figure, between ``<!-- ID -->`` and ``<!-- end -->``: its picture,
table and checks are written there, and the picture beside the page. ``--from DIR`` takes results that are there
already, those of ``murk reproduce ID --full --out DIR`` first; otherwise all are made, and kept in
``build/reproduced``.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from murk.reproduce import store
from murk.reproduce.catalogue import experiments
from murk.reproduce.experiment import SEED, Experiment, Measured, Setting, Size
from murk.reproduce.run import reproduce

PAGES = Path(__file__).parents[1] / "docs" / "reproductions"


def block(found: dict[str, Any], picture: str | None) -> str:
    """What a page says of a result, as Markdown."""
    origin = found["origin"]
    size = " --full" if origin["size"] == "full" else ""
    seed = f" --seed {origin['seed']}" if origin["seed"] != SEED else ""
    data = f" --data {origin['data']['name']}" if origin["data"] is not None else ""
    seconds = found["seconds"]
    time = f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
    lines = [f"`murk reproduce {found['id']}{size}{seed}{data}` ({time}):", ""]
    if picture is not None:
        lines += [f"![{found['title']}]({picture})", ""]
    lines += ["| | published | as published, here | corrected | Murk's default | |", "|---|---|---|---|---|---|"]
    for row in store.rows_of(found):
        published = row.published if isinstance(row.published, str) else f"{row.published:.4g}"
        cells = [row.what, published, *map(_cell, (row.as_published, row.corrected, row.default)), row.tag]
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    notes = dict.fromkeys(row.note for row in store.rows_of(found) if row.note)
    lines += ["", *(f"- {note}" for note in notes)]
    for one in store.checks_of(found):
        lines.append(f"- {'holds' if one.holds else '**does not hold**'}: {one.claim}: {one.found}")
    return "\n".join([*lines, "", found["verdict"]])


def _cell(value: Measured | None) -> str:
    return "" if value is None else str(value)


def put(folder: Path, pages: Path, one: Experiment, found: dict[str, Any]) -> bool:
    """Write a result to the place that a page has for it; False where none has."""
    pattern = re.compile(rf"<!-- {re.escape(one.id)} -->\n.*?<!-- end -->", re.S)
    for page in pages.glob("*.md"):
        text = page.read_text(encoding="utf-8")
        place = pattern.search(text)
        if place is None:
            continue
        made, picture = store.path_of(folder, one.id, found["origin"], "png"), None
        if made.exists():
            picture = one.id.replace("/", "-") + ".png"
            shutil.copyfile(made, pages / picture)
        written = f"<!-- {one.id} -->\n{block(found, picture)}\n<!-- end -->"
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
    if lost:
        print("no page has a place for " + ", ".join(lost))  # noqa: T201
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
