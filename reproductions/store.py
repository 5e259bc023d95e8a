"""What was found, on disk: a picture, the points of its curves as CSV, and everything as JSON, by its settings.

The JSON file is written last and in one go: an experiment is done when it is there, and a broken-off one is made again.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import murk
from murk import __version__
from murk._files import check_place, write_whole
from reproductions.data_file import sha256_of
from reproductions.experiment import SEED, Check, Experiment, Measured, Outcome, Panel, Row, Setting
from reproductions.picture import draw


def path_of(folder: Path, found: str, origin: Mapping[str, Any], ending: str) -> Path:
    """Where an experiment's file lies: results of another size, seed or file do not take each other's place.

    Examples
    --------
    >>> path_of(Path("out"), "002/fig1", {"size": "full", "seed": 3, "data": None}, "png").as_posix()
    'out/002/fig1-full-seed3.png'
    """
    size = "" if origin["size"] == "reduced" else f"-{origin['size']}"
    seed = "" if origin["seed"] == SEED else f"-seed{origin['seed']}"
    data = "" if origin["data"] is None else f"-{origin['data']['sha256'][:8]}"
    return folder / f"{found}{size}{seed}{data}.{ending}"


def origin_of(setting: Setting) -> dict[str, Any]:
    """What a result depends on: with the same, it is not computed again."""
    return {
        "murk": __version__,
        "code": _code(),
        "size": setting.size,
        "seed": setting.seed,
        "data": None if setting.data is None else {"name": setting.data.name, "sha256": sha256_of(setting.data)},
    }


@cache
def _code() -> str:
    """A digest of all modules: learners and mechanisms are what experiments run."""
    digest = hashlib.sha256()
    for path in sorted(Path(murk.__path__[0]).rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def write(folder: Path, experiment: Experiment, origin: dict[str, Any], outcome: Outcome, seconds: float) -> None:
    """Write picture, CSV and JSON."""
    if outcome.panels:
        picture = draw(f"{experiment.id}  {experiment.title}", outcome.panels)
        write_whole(path_of(folder, experiment.id, origin, "png"), picture)
    write_whole(path_of(folder, experiment.id, origin, "csv"), _csv(outcome.panels))
    found = {
        "id": experiment.id,
        "title": experiment.title,
        "origin": origin,
        "seconds": round(seconds, 1),
        "holds": outcome.holds,
        "verdict": outcome.verdict,
        "rows": [asdict(row) for row in outcome.rows],
        "checks": [asdict(check) for check in outcome.checks],
    }
    write_whole(path_of(folder, experiment.id, origin, "json"), json.dumps(found, indent=1, ensure_ascii=False) + "\n")


def prepare(folder: Path, experiment: Experiment, origin: dict[str, Any]) -> None:
    """Refuse a place that the result could not be written at, before the work.

    Raises
    ------
    OSError
        That names the path.
    """
    path = path_of(folder, experiment.id, origin, "json")
    path.parent.mkdir(parents=True, exist_ok=True)
    check_place(path)


def read(folder: Path, experiment: Experiment, origin: dict[str, Any], *, same: bool = True) -> dict[str, Any] | None:
    """What was found before with the same settings (and by the same code, if it must be); None if there is nothing."""
    try:
        found: dict[str, Any] = json.loads(path_of(folder, experiment.id, origin, "json").read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    if not isinstance(found, dict) or (same and found.get("origin") != origin):
        return None
    return found


def rows_of(found: dict[str, Any]) -> list[Row]:
    """The table of what was read."""
    return [Row(**{key: _restored(value) for key, value in row.items()}) for row in found["rows"]]


def _restored(value: Any) -> Any:
    return Measured(**value) if isinstance(value, dict) else value


def checks_of(found: dict[str, Any]) -> list[Check]:
    """The checks of what was read."""
    return [Check(**check) for check in found["checks"]]


def _csv(panels: Sequence[Panel]) -> str:
    """A line for each point of each series."""
    file = io.StringIO(newline="")
    lines = csv.writer(file)
    lines.writerow(["panel", "series", "x_is", "y_is", "x", "y", "low", "high"])
    for panel in panels:
        for one in panel.series:
            for x, y, low, high in _points(len(one.y), one.x, one.y, one.low, one.high):
                lines.writerow([panel.title, one.name, panel.x, panel.y, x, y, low, high])
    return file.getvalue()


def _points(n: int, *columns: Sequence[float]) -> Iterator[tuple[Any, ...]]:
    full = [[f"{float(value):.10g}" for value in column] if len(column) else [""] * n for column in columns]
    return zip(*full, strict=True)
