"""Whether a file's labels can teach anything: a misspelt `positive` makes all of them the same.

That a file is refused for it is a function of its records, and everybody who watches a log sees whether releases
arrive: so a simulation and an explicit check refuse, and with real noise it is said to whoever holds the file.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import numpy as np

from murk.errors import UserError
from murk.stream.task.data.features import BinaryTarget
from murk.stream.task.errors import shown

if TYPE_CHECKING:
    from murk.producers.populations.file_source import Block, FileSource

_MOST_SHOWN: Final = 10


class LabelSurvey:
    """Which labels occur in a file at all.

    Parameters
    ----------
    source
        The file.
    """

    def __init__(self, source: FileSource) -> None:
        self._source = source
        self._codes: set[float] = set()

    def add(self, block: Block) -> None:
        """Look at a block of the file."""
        if self._source.task.target.kind != "real":
            self._codes.update(np.unique(block.y[~np.isnan(block.y)]).tolist())

    def check(self) -> None:
        """Refuse a file in which all labels are the same, of a simulation or where that was asked for.

        Raises
        ------
        UserError
            Saying what occurs and what does not.
        """
        mistake = self.mistake()
        if mistake:
            raise UserError(mistake)

    def mistake(self) -> str:
        """Return what is wrong with the labels, in words; empty where nothing is.

        Values and their counts are reported for simulations alone.
        """
        source, task = self._source, self._source.task
        target = task.target
        if target.kind == "real" or len(self._codes) > 1:
            return ""
        if not isinstance(target, BinaryTarget):
            what = "has one class in all rows" if self._codes else "has a class in no row"
            remedy = "Spell classes as the file does"
        else:
            where = "all rows with a value" if self._codes == {1.0} else "no row"
            what = f"has the positive value {shown(target.positive)} in {where}"
            remedy = "Spell positive as the file does"
        there = ""
        if task.simulated:
            counts = source.labels().most_common(_MOST_SHOWN)
            there = f" It has {', '.join(f'{shown(value)} in {count:,}' for value, count in counts)}." if counts else ""
        return (
            f"{source.records}: the column {target.name!r} {what}, so that nothing could be learned.{there} "
            f"{remedy}, or name another target"
        )


def undeclared(source: FileSource) -> dict[str, int] | None:
    """Return how many rows have labels that the task does not declare, and how many different ones they are.

    These are of a binary target without ``negative``, of which every value but `positive` counts as the other one.
    None where labels are declared, and of real releases: it depends on values.
    """
    target = source.task.target
    if not source.task.simulated or not isinstance(target, BinaryTarget) or target.negative is not None:
        return None
    coding = source.task.coding
    others = Counter(
        {
            value: count
            for value, count in source.labels().items()
            if coding.encode_record({target.name: value}).y == 0.0
        }
    )
    return {"rows": others.total(), "values": len(others)}
