"""``murk demo --web`` and ``--experiment``: gateway, learner, live page, form and a simulated crowd in one process."""

from __future__ import annotations

import json
from contextlib import ExitStack, suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

import click

from murk._internal.extras import missing_extra
from murk.cli.interrupts import between_steps

if TYPE_CHECKING:
    from murk.gateway.server import Gateway

PORT = 8480
"""Port by default. A browser keeps a ledger for each address, so a demonstration that continues needs the same one."""
CROWD = 100_000  # number of simulated people
BLOCKS = {"web": 100, "experiment": 250}  # how many of them answer at a time
QUESTIONS = {"web": "Three harmless questions", "experiment": "An experiment"}
PERIOD = 0.25  # seconds between two answers of the crowd, and between two looks at the log


def serve(folder: Path, port: int | None, as_json: bool, *, experiment: bool = False) -> None:
    """Serve a demonstration until stopped; its log and the crowd's ledger are in ``folder``.

    Raises UserError if an extra is missing or another process works on the folder; MurkError if the port is in use.
    """
    for module in ("uvicorn", "httptools", "prometheus_client"):
        if find_spec(module) is None:
            raise missing_extra(f"the demonstration needs {module}", "gateway")
    from murk.demo import experiment as buttons
    from murk.demo import web
    from murk.gateway.app import Settings
    from murk.gateway.server import Gateway
    from murk.monitoring import Monitor
    from murk.monitoring.web.routes import files, json_response, monitor_routes
    from murk.populations import open_records
    from murk.populations.local_run import LocalRun
    from murk.populations.people import PopulationConfig
    from murk.task import Task

    shown, stem = (buttons, "experiment") if experiment else (web, "web")
    people = PopulationConfig(open_records(shown.crowd(CROWD)), block=BLOCKS[stem])
    with ExitStack() as stack:
        log, ledger = f"sqlite:///{folder / stem}.db", folder / f"{stem}.ledger.db"
        run = stack.enter_context(LocalRun(Task.load(shown.TASK), people, log, ledger))
        monitor = Monitor(run.log, run.task, reference=None if experiment else web.coded_truth(run.task))
        stack.callback(monitor.close)
        live = {f"/live{path}": route for path, route in monitor_routes(monitor).items()}
        # Without a rate limit, which would be for all visitors together, as they have one address.
        settings, port = Settings(rate=0), PORT if port is None else port
        pages = {**files(web.PAGE), **files(shown.PAGE), **live}
        looks = buttons.Looks(run.task, run.log)
        if experiment:
            pages["/looks"] = partial(json_response, looks.body)
        gateway = Gateway(run.log, run.task, port=port, settings=settings, pages=pages, options=("--port", ""))
        stack.callback(gateway.close)
        steps, due = run.steps(), 0.0
        with between_steps() as asked, suppress(KeyboardInterrupt):
            if not as_json:
                click.echo("Starting. The first start compiles for a while.", err=True)
            # Before visitors come, the first answers compile what devices and learners need.
            next(steps)
            next(steps, None)
            gateway.start()
            _announce(gateway, run.task.name, folder, QUESTIONS[stem], as_json)
            while not asked():
                gateway.step()
                if monotonic() >= due:
                    due = monotonic() + PERIOD
                    next(steps, None)
                    run.learn()
                    monitor.poll()
                    if experiment:
                        looks.look()
    if not as_json:
        click.echo("Stopped. The same command continues.")


def _announce(gateway: Gateway, task: str, folder: Path, question: str, as_json: bool) -> None:
    if as_json:
        where = {"task": task, "url": gateway.url, "host": gateway.host, "port": gateway.port}
        click.echo(json.dumps({**where, "live_page": f"{gateway.url}/live/", "folder": str(folder)}))
        return
    click.echo(
        f"{question + ':':25} {gateway.url}/\n"
        f"What is learned, live:    {gateway.url}/live/\n"
        f"A simulated crowd of {CROWD:,} answers with you. Its records are made up; its noise is real.\n"
        "Only this machine can reach the page. Press Ctrl-C to stop."
    )
