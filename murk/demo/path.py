"""The path of an estimate: points at growing numbers of releases, stored beside the log.

Points depend on releases and public settings only, so the file may be published.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from murk._files import open_own, write_whole

if TYPE_CHECKING:
    from murk.producers.populations.local_run import LocalRun

_GROWTH = 1.05
_FIRST = 100


class Path95:
    """Records the estimate with its 95% interval whenever the number of releases has grown by 5%.

    Points in the JSON lines file ``path`` from an interrupted run are kept.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = False
        self.points: list[dict[str, Any]] = []
        if path.exists():
            for line in path.read_text().splitlines():
                try:
                    self.points.append(json.loads(line))
                except ValueError:
                    # An interrupted process may leave a partial last line.
                    break
            write_whole(path, "".join(json.dumps(point) + "\n" for point in self.points), own=True)

    def __call__(self, run: LocalRun, last: bool) -> None:
        """Record a point if one is due, or if it is the last."""
        n = run.releases
        if self.points and n < self.points[-1]["n"] and not self._seen:
            # The points belong to an earlier log.
            self.points.clear()
            self._path.unlink()
        self._seen = True
        newest = self.points[-1]["n"] if self.points else 0
        if n <= newest or (not last and n < max(_FIRST, newest * _GROWTH)):
            return
        estimate = run.estimate()
        point = {
            "n": n,
            "names": list(estimate.names),
            "values": estimate.values.tolist(),
            "half_widths": estimate.half_widths(0.95).tolist(),
        }
        self.points.append(point)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        with os.fdopen(open_own(self._path, flags), "a", encoding="utf-8") as handle:
            handle.write(json.dumps(point) + "\n")
