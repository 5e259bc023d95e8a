"""Results on disk: a picture, the points of its curves as CSV, and everything as JSON.

The JSON file is written last and atomically, so an experiment is done when it exists.
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
import reproductions
from murk import __version__
from murk._internal.atomic_files import check_place, write_whole
from reproductions.data_file import sha256_of
from reproductions.experiment import SEED, Check, Experiment, Measured, Outcome, Panel, Row, Setting
from reproductions.picture import draw


def path_of(folder: Path, name: str, origin: Mapping[str, Any], ending: str) -> Path:
    """Return the path of an experiment's file; sizes, seeds and data files have paths of their own.

    Examples
    --------
    >>> path_of(Path("out"), "002/fig1", {"size": "full", "seed": 3, "data": None}, "png").as_posix()
    'out/002/fig1-full-seed3.png'
    """
    size = "" if origin["size"] == "reduced" else f"-{origin['size']}"
    seed = "" if origin["seed"] == SEED else f"-seed{origin['seed']}"
    data = "" if origin["data"] is None else f"-{origin['data']['sha256'][:8]}"
    return folder / f"{name}{size}{seed}{data}.{ending}"


def origin_of(setting: Setting) -> dict[str, Any]:
    """Return what a result depends on; one with the same origin is not computed again."""
    return {
        "murk": __version__,
        "code": _code(),
        "size": setting.size,
        "seed": setting.seed,
        "data": None if setting.data is None else {"name": setting.data.name, "sha256": sha256_of(setting.data)},
    }


@cache
def _code() -> str:
    """Return a digest of all modules that experiments run."""
    digest = hashlib.sha256()
    for package in (murk, reproductions):
        for path in sorted(Path(package.__path__[0]).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def write(folder: Path, experiment: Experiment, origin: dict[str, Any], outcome: Outcome, seconds: float) -> None:
    """Write the picture, the CSV file and the JSON file."""
    if outcome.panels:
        picture = draw(f"{experiment.id}  {experiment.title}", outcome.panels)
        write_whole(path_of(folder, experiment.id, origin, "png"), picture)
    write_whole(path_of(folder, experiment.id, origin, "csv"), _csv(outcome.panels))
    result = {
        "id": experiment.id,
        "title": experiment.title,
        "origin": origin,
        "seconds": round(seconds, 1),
        "holds": outcome.holds,
        "verdict": outcome.verdict,
        "rows": [asdict(row) for row in outcome.rows],
        "checks": [asdict(check) for check in outcome.checks],
    }
    write_whole(path_of(folder, experiment.id, origin, "json"), json.dumps(result, indent=1, ensure_ascii=False) + "\n")


def prepare(folder: Path, experiment: Experiment, origin: dict[str, Any]) -> None:
    """Create the result's folder and check that the result can be written.

    Raises
    ------
    OSError
        If it cannot; the error names the path.
    """
    path = path_of(folder, experiment.id, origin, "json")
    path.parent.mkdir(parents=True, exist_ok=True)
    check_place(path)


def read(folder: Path, experiment: Experiment, origin: dict[str, Any], *, same: bool = True) -> dict[str, Any] | None:
    """Return a stored result with the same settings and, if ``same``, the same code; None if there is none."""
    try:
        result: dict[str, Any] = json.loads(path_of(folder, experiment.id, origin, "json").read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    if not isinstance(result, dict) or (same and result.get("origin") != origin):
        return None
    return result


def rows_of(result: dict[str, Any]) -> list[Row]:
    """Return the rows of a stored result."""

    def restored(value: Any) -> Any:
        return Measured(**value) if isinstance(value, dict) else value

    return [Row(**{key: restored(value) for key, value in row.items()}) for row in result["rows"]]


def checks_of(result: dict[str, Any]) -> list[Check]:
    """Return the checks of a stored result."""
    return [Check(**check) for check in result["checks"]]


def _csv(panels: Sequence[Panel]) -> str:
    """Return one line for each point of each series."""
    file = io.StringIO(newline="")
    lines = csv.writer(file)
    lines.writerow(["panel", "series", "x_is", "y_is", "x", "y", "low", "high"])
    for panel in panels:
        for series in panel.series:
            for x, y, low, high in _points(len(series.y), series.x, series.y, series.low, series.high):
                lines.writerow([panel.title, series.name, panel.x, panel.y, x, y, low, high])
    return file.getvalue()


def _points(n: int, *columns: Sequence[float]) -> Iterator[tuple[Any, ...]]:
    full = [[f"{float(value):.10g}" for value in column] if len(column) else [""] * n for column in columns]
    return zip(*full, strict=True)
