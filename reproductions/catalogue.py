"""Every experiment by its identifier, without importing what makes them."""

from __future__ import annotations

from difflib import get_close_matches

from murk.errors import UserError
from reproductions.experiment import Experiment, Paper
from reproductions.gaussmix import PAPER as GAUSSMIX
from reproductions.iwp_sgd import PAPER as IWP_SGD
from reproductions.ldp_sgd import PAPER as LDP_SGD
from reproductions.public_glm import PAPER as PUBLIC_GLM

PAPERS: tuple[Paper, ...] = (IWP_SGD, LDP_SGD, PUBLIC_GLM, GAUSSMIX)


def experiments() -> dict[str, Experiment]:
    """Identifier to experiment, in the papers' order."""
    return {one.id: one for paper in PAPERS for one in paper.experiments}


def chosen(which: str) -> list[Experiment]:
    """The experiments that a word means: an identifier, a paper's number, or ``all``.

    Raises
    ------
    UserError
        If there is none, with the nearest.

    Examples
    --------
    >>> len(chosen("all")) == len(experiments())
    True
    """
    known = {name: one for one in experiments().values() for name in (one.id, *one.also)}
    if which in known:
        return [known[which]]
    found = [one for one in experiments().values() if which in ("all", one.id.partition("/")[0])]
    if found:
        return found
    near = get_close_matches(which, [*known, *(paper.number for paper in PAPERS)], n=1, cutoff=0.3)
    guess = f"the nearest is {near[0]}; " if near else ""
    raise UserError(f"no figure or table {which!r}: {guess}known are all, {', '.join(known)}")
