"""The demonstration's people, coded as a task has them, for fits that a trusted server could have made."""

import numpy as np

from murk.demo import DATA as FILE
from murk.populations.file_source import FileSource

__all__ = ["FILE", "raw"]


def raw(task):
    """Coded features ``(n, p)`` and targets ``(n,)`` of all 254,654 women."""
    blocks = list(FileSource(FILE, task).blocks(0, 65_536))
    return np.concatenate([block.x for block in blocks]), np.concatenate([block.y for block in blocks])
