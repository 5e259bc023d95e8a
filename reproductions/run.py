"""Run experiments in separate processes, several at once; stored results are not computed again."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing import get_all_start_methods, get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from time import monotonic
from typing import Any

from murk.errors import MurkError, UserError, unexpected
from reproductions import store
from reproductions.experiment import Experiment, Setting

_ERROR_CODE = "MURK-CLI-002"

Tick = Callable[[float, str], None]
# Each process uses one thread, since several processes share the cores.
_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")

# Imported once by the server that the processes are forked from.
_PRELOADED = ["reproductions.run", "murk.learners", "reproductions.picture", "matplotlib.figure"]
_PRELOADED += ["matplotlib.backends.backend_agg"]


@dataclass(frozen=True)
class Reproduced:
    """Stored results of experiments in their order, and the errors of those without a result, by identifier."""

    results: list[dict[str, Any]]
    lacking: dict[str, Exception]


def reproduce(
    chosen: Sequence[Experiment], setting: Setting, folder: Path, *, jobs: int | None = None, tick: Tick | None = None
) -> Reproduced:
    """Run experiments and store their results in ``folder``; an error of one does not stop the others.

    Parameters
    ----------
    jobs
        Number of processes; by default the number of cores.
    tick
        Called with the number of experiments that are done, fractions included, and a short text.

    Raises
    ------
    OSError
        If results cannot be written; raised before anything is run.
    """
    tick = tick or (lambda done, text: None)
    origin = store.origin_of(setting)
    waiting = [experiment for experiment in chosen if store.read(folder, experiment, origin) is None]
    for experiment in waiting:
        store.prepare(folder, experiment, origin)
    shares = {experiment.id: float(experiment not in waiting) for experiment in chosen}
    for name in _THREADS:
        os.environ.setdefault(name, "1")
    running: dict[Connection, tuple[Experiment, BaseProcess]] = {}
    lacking: dict[str, Exception] = {}
    try:
        while waiting or running:
            while waiting and len(running) < max(1, jobs or os.cpu_count() or 1):
                experiment = waiting.pop(0)
                reader, process = _start(experiment, replace(setting, tick=Setting.tick), folder, origin)
                running[reader] = (experiment, process)
            ready: list[Any] = wait(list(running))
            for reader in ready:
                experiment, process = running[reader]
                try:
                    share, text = _receive(reader, experiment, process)
                except (MurkError, OSError) as error:
                    lacking[experiment.id] = error
                    share, text = 1.0, f"{experiment.id} failed"
                shares[experiment.id] = share
                tick(sum(shares.values()), text)
                if share >= 1.0:
                    del running[reader]
                    reader.close()
                    process.join()
    finally:
        for reader, (_, process) in running.items():
            process.terminate()
            process.join()
            reader.close()
    results = [store.read(folder, experiment, origin) for experiment in chosen]
    return Reproduced([result for result in results if result is not None], lacking)


def _start(
    experiment: Experiment, setting: Setting, folder: Path, origin: dict[str, Any]
) -> tuple[Connection, BaseProcess]:
    context: Any = get_context("forkserver" if "forkserver" in get_all_start_methods() else "spawn")
    if context.get_start_method() == "forkserver":
        context.set_forkserver_preload(_PRELOADED)
    reader, writer = context.Pipe(duplex=False)
    process = context.Process(target=_run, args=(experiment, setting, folder, origin, writer), daemon=True)
    process.start()
    writer.close()
    return reader, process


def _receive(reader: Connection, experiment: Experiment, process: BaseProcess) -> tuple[float, str]:
    """Return the next share and text from a process, or raise its error."""
    try:
        message = reader.recv()
    except EOFError:
        process.join()
        raise MurkError(
            f"{experiment.id}: its process ended with status {process.exitcode}, without a result; memory may be too "
            "small for several processes: run the same command again with --jobs 1"
        ) from None
    if isinstance(message, Exception):
        raise message
    share, text = message
    return share, f"{experiment.id} {text}".strip()


def _run(experiment: Experiment, setting: Setting, folder: Path, origin: dict[str, Any], writer: Connection) -> None:
    """Run one experiment in this process and send its progress."""
    # The parent handles interrupts and ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    start = last = monotonic()

    def tick(share: float, text: str) -> None:
        nonlocal last
        if monotonic() - last > 0.2:
            last = monotonic()
            writer.send((min(0.999, share), text))

    message: Exception | tuple[float, str]
    try:
        outcome = experiment.run(replace(setting, tick=tick))
        store.write(folder, experiment, origin, outcome, monotonic() - start)
        message = (1.0, "done" if outcome.holds else "done; a check failed")
    except UserError as error:
        message = UserError(f"{experiment.id}: {error}", code=error.code)
    except OSError as error:
        # A library's failed write names no file; only results and compiled code are written.
        name = error.filename or f"{folder}, or where Numba keeps compiled code (NUMBA_CACHE_DIR)"
        message = OSError(error.errno, error.strerror or type(error).__name__, name)
    except Exception as error:  # noqa: BLE001 - its text may quote a record
        message = MurkError(f"{experiment.id}: {unexpected(error)}", code="MURK-FAULT-001")
    # The parent may have been killed.
    with suppress(BrokenPipeError):
        writer.send(message)
