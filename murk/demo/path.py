"""How an estimate closed in: points at growing numbers of releases, kept beside the log.

Every point is a function of releases and public settings only, so the file may be shown to anybody.
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
    """Records the estimate with its 95% interval whenever the releases have grown by 5%.

    Parameters
    ----------
    path
        File of JSON lines; points of an earlier, interrupted run stay.
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
                    # The last line of a process that was killed while it wrote: the point is simply missing.
                    break
            write_whole(path, "".join(json.dumps(point) + "\n" for point in self.points), own=True)

    def __call__(self, run: LocalRun, last: bool) -> None:
        """Record a point if it is time for one, or if it is the last."""
        n = run.releases
        if self.points and n < self.points[-1]["n"] and not self._seen:
            # Points of a log that is gone are not this one's.
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
