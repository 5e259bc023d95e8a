"""``murk status``: what a log holds and what was learned from it."""

from __future__ import annotations

import click

from murk.cli.options import as_json, existing_log, open_existing
from murk.cli.output import print_json
from murk.cli.report import print_result, result


@click.command("status")
@existing_log
@as_json
def command(log_url: str, as_json: bool) -> None:
    """Show what a log holds and what was learned from it; nothing is changed."""
    from murk.learners.inference import estimate
    from murk.learners.problem import problem_for
    from murk.stream.checkpoint import decode_state

    log, task = open_existing(log_url)
    with log:
        problem = problem_for(task)
        engines, lag = [], 0
        for chain in range(task.log.partitions):
            engine = problem.engine()
            state, offset = log.checkpoint(chain)
            if state is not None:
                engine.load_state_dict(decode_state(state, f"chain {chain} of {log_url}").learner)
            engines.append(engine)
            lag += log.end(chain) - offset
        memories = [engine.memory for engine in engines]
        found = result(
            task,
            estimate(problem.settings, memories, problem.covariates, problem.classes),
            log,
            objective=task.objective,
            chains=task.log.partitions,
            lag=lag,
        )
    if as_json:
        print_json(found)
        return
    print_result(found)
    click.echo(f"{lag:,} messages on the log wait to be learned")
