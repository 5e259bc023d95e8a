"""``murk learn``: a worker for the chains of a log."""

from __future__ import annotations

import time
from contextlib import ExitStack

import click

from murk.cli.options import as_json, existing_log, open_existing
from murk.cli.output import print_json, progress
from murk.cli.report import brief, print_result, result

_POLL = 0.01


@click.command("learn")
@existing_log
@click.option("--chain", "chains", type=click.IntRange(0), multiple=True, help="Learn only this chain (repeatable).")
@click.option("--idle", type=click.FloatRange(0), metavar="SECONDS", help="Stop when nothing has arrived for so long.")
@as_json
def command(log_url: str, chains: tuple[int, ...], idle: float | None, as_json: bool) -> None:
    """Learn from the releases on a log, until stopped.

    Whoever starts later takes a chain over from whoever had it.
    """
    from murk.errors import UserError
    from murk.learners.inference import estimate
    from murk.learners.problem import problem_for
    from murk.stream import Worker

    log, task = open_existing(log_url)
    with ExitStack() as stack:
        stack.enter_context(log)
        owned = chains or tuple(range(task.log.partitions))
        for chain in owned:
            if chain >= task.log.partitions:
                raise UserError(f"--chain {chain}: {task.name!r} has the chains 0 to {task.log.partitions - 1}")
        problem = problem_for(task)
        engines = [problem.engine() for _ in owned]
        workers = [
            stack.enter_context(Worker(log, task, engine, chain)) for engine, chain in zip(engines, owned, strict=True)
        ]
        start = last = time.monotonic()

        def now() -> str:
            memories = [engine.memory for engine in engines]
            return brief(estimate(problem.settings, memories, problem.covariates, problem.classes))

        with progress(f"{task.name}: learned", None, quiet=as_json) as tick:
            shown = 0.0
            try:
                while idle is None or time.monotonic() - last <= idle:
                    read = sum(worker.step().read for worker in workers)
                    moment = time.monotonic()
                    if read:
                        last = moment
                    else:
                        time.sleep(_POLL)
                    if not as_json and moment - shown > 0.2:
                        tick(sum(engine.n_releases for engine in engines), now())
                        shown = moment
            except KeyboardInterrupt:
                # Everything learned is committed; what is left to do is to say so.
                click.echo("stopped", err=True)
        found = result(task, log, seconds=time.monotonic() - start)
    if as_json:
        print_json(found)
    else:
        print_result(found)
