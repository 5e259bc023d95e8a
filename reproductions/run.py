"""Run experiments, each in a process of its own, several at once; what was done before is not done again."""

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

Tick = Callable[[float, str], None]
# One computation a process: several of them share the cores.
_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")

# What experiments import, once for all of them: their processes are forked from one that has it.
_PRELOADED = ["reproductions.run", "murk.learners", "reproductions.picture", "matplotlib.figure"]
_PRELOADED += ["matplotlib.backends.backend_agg"]


@dataclass(frozen=True)
class Reproduced:
    """What came of experiments.

    Parameters
    ----------
    results
        What each found, as it is kept, in their order.
    lacking
        Identifier to why it could not be made: a library of an extra is missing, its file is another, the disk is
        full, or its process died.
    """

    results: list[dict[str, Any]]
    lacking: dict[str, Exception]


def reproduce(
    chosen: Sequence[Experiment], setting: Setting, folder: Path, *, jobs: int | None = None, tick: Tick | None = None
) -> Reproduced:
    """Make experiments again; files go to ``folder``. One that cannot be made does not keep the others from it.

    Parameters
    ----------
    chosen
        Which.
    setting
        How.
    folder
        Where results go, and where those of an earlier run are looked for.
    jobs
        How many at once: by default as many as there are cores.
    tick
        Is called with how many are done (a fraction of one, too) and a few words.

    Raises
    ------
    OSError
        If results cannot be written there: before anything is made.
    """
    tick = tick or (lambda done, text: None)
    origin = store.origin_of(setting)
    before = {one.id: store.read(folder, one, origin) for one in chosen}
    waiting = [one for one in chosen if before[one.id] is None]
    for one in waiting:
        store.prepare(folder, one, origin)
    shares = {one.id: float(before[one.id] is not None) for one in chosen}
    for name in _THREADS:
        os.environ.setdefault(name, "1")
    running: dict[Connection, tuple[Experiment, BaseProcess]] = {}
    lacking: dict[str, Exception] = {}
    try:
        while waiting or running:
            while waiting and len(running) < max(1, jobs or os.cpu_count() or 1):
                one = waiting.pop(0)
                reader, process = _start(one, replace(setting, tick=Setting.tick), folder, origin)
                running[reader] = (one, process)
            said: list[Any] = wait(list(running))
            for reader in said:
                one, process = running[reader]
                try:
                    share, text = _hear(reader, one, process)
                except (MurkError, OSError) as error:
                    lacking[one.id] = error
                    share, text = 1.0, f"{one.id} could not be made"
                shares[one.id] = share
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
    results = [store.read(folder, one, origin) for one in chosen]
    return Reproduced([found for found in results if found is not None], lacking)


def _start(one: Experiment, setting: Setting, folder: Path, origin: dict[str, Any]) -> tuple[Connection, BaseProcess]:
    context: Any = get_context("forkserver" if "forkserver" in get_all_start_methods() else "spawn")
    if context.get_start_method() == "forkserver":
        context.set_forkserver_preload(_PRELOADED)
    reader, writer = context.Pipe(duplex=False)
    process = context.Process(target=_make, args=(one, setting, folder, origin, writer), daemon=True)
    process.start()
    writer.close()
    return reader, process


def _hear(reader: Connection, one: Experiment, process: BaseProcess) -> tuple[float, str]:
    """What a process says next: its share and words; its errors are raised here."""
    try:
        said = reader.recv()
    except EOFError:
        process.join()
        raise MurkError(
            f"{one.id}: its process ended with status {process.exitcode}, without a result: memory may be too small "
            "for so many at once (--jobs 1); the same command carries on with it"
        ) from None
    if isinstance(said, Exception):
        raise said
    share, text = said
    return share, f"{one.id} {text}".strip()


def _make(one: Experiment, setting: Setting, folder: Path, origin: dict[str, Any], writer: Connection) -> None:
    """Make one experiment in this process, and say how far it is."""
    # Whoever interrupts the command interrupts its parent, which ends this.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    start = last = monotonic()

    def tick(share: float, text: str) -> None:
        nonlocal last
        if monotonic() - last > 0.2:
            last = monotonic()
            writer.send((min(0.999, share), text))

    said: Exception | tuple[float, str]
    try:
        outcome = one.run(replace(setting, tick=tick))
        store.write(folder, one, origin, outcome, monotonic() - start)
        said = (1.0, "done" if outcome.holds else "done; a check failed")
    except UserError as error:
        said = UserError(f"{one.id}: {error}", code=error.code)
    except OSError as error:
        # A failed write of a library's names no file: results are what is written, but for compiled code.
        name = error.filename or f"{folder}, or where Numba keeps compiled code (NUMBA_CACHE_DIR)"
        said = OSError(error.errno, error.strerror or type(error).__name__, name)
    except Exception as error:  # noqa: BLE001 - as at the edge of the program: its text may quote a record
        said = MurkError(f"{one.id}: {unexpected(error)}", code="MURK-FAULT-001")
    # Where the parent was killed nobody is left to tell.
    with suppress(BrokenPipeError):
        writer.send(said)
