"""Experiments by identifier, without importing their modules."""

from __future__ import annotations

from difflib import get_close_matches

from murk.errors import UserError
from reproductions.experiment import Experiment, Paper
from reproductions.gaussmix import PAPER as GAUSSMIX
from reproductions.iwp_sgd import PAPER as IWP_SGD
from reproductions.ldp_sgd import PAPER as LDP_SGD
from reproductions.public_glm import PAPER as PUBLIC_GLM

_ERROR_CODE = "MURK-CLI-002"

PAPERS: tuple[Paper, ...] = (IWP_SGD, LDP_SGD, PUBLIC_GLM, GAUSSMIX)


def experiments() -> dict[str, Experiment]:
    """Return all experiments by identifier, in the papers' order."""
    return {experiment.id: experiment for paper in PAPERS for experiment in paper.experiments}


def chosen(which: str) -> list[Experiment]:
    """Return the experiments of an identifier, of a paper's number, or of ``all``.

    Raises
    ------
    UserError
        If ``which`` is none of these.

    Examples
    --------
    >>> len(chosen("all")) == len(experiments())
    True
    """
    known = {name: experiment for experiment in experiments().values() for name in (experiment.id, *experiment.also)}
    if which in known:
        return [known[which]]
    several = [experiment for name, experiment in experiments().items() if which in ("all", name.partition("/")[0])]
    if several:
        return several
    near = get_close_matches(which, [*known, *(paper.number for paper in PAPERS)], n=1, cutoff=0.3)
    guess = f"did you mean {near[0]}? " if near else ""
    raise UserError(f"no figure or table {which!r}: {guess}(all, {', '.join(known)})")
