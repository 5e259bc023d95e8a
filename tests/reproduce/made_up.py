"""Experiments for tests of what runs them: in a module, so that other processes can import it."""

import errno
import os

from murk.errors import UserError
from reproductions.data_file import DataFile
from reproductions.experiment import Check, Measured, Outcome, Panel, Row, Series

AGES = DataFile(name="people.csv", columns=("age",))


def _outcome(setting, holds):
    draws = setting.rng(7).normal(size=50)
    row = Row(what="mean", tag=setting.tag(), published=0.0, as_published=Measured.mean(draws))
    line = Series(
        name="draws", x=list(range(50)), y=draws.tolist(), low=(draws - 1).tolist(), high=(draws + 1).tolist()
    )
    box = Series(name="box", y=draws.tolist(), style="box")
    panels = [Panel(title=title, x="i", y="z", series=[one]) for title, one in (("line", line), ("box", box))]
    return Outcome(rows=[row], panels=panels, checks=[Check("it is so", holds, "1 of 1")], verdict="Seen.")


def good(setting):
    setting.tick(0.5, "half way")
    return _outcome(setting, True)


def failing(setting):
    return _outcome(setting, False)


def mistaken(setting):
    raise UserError("rows=0: give at least 1", code="MURK-CLI-002")


def killed(setting):
    os.kill(os.getpid(), 9)


def faulty(setting):
    raise IndexError("a cell of the file")


def full_disk(setting):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def with_file(setting):
    columns = setting.columns(AGES)
    assert columns["age"]
    return _outcome(setting, True)
