"""A copy of the checkout in which mistakes are made and tests run; the checkout itself is never touched."""

import contextlib
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
import traceback
from importlib import import_module
from pathlib import Path

from tests.mutation.mistakes import Mistake
from tests.mutation.selection import importers

# Imported once, before each test process is forked off. Nothing of Murk itself, nor of its tests.
LIBRARIES = (
    "numba", "numpy", "scipy.stats", "scipy.special", "scipy.optimize", "pydantic", "yaml", "click", "rich", "pandas",
    "river.base", "river.utils", "river.linear_model", "kafka", "prometheus_client",
)  # fmt: skip
_STAMP = "stamp = source_stamp(_PACKAGE)\n"
_CACHED = 'cached = self._options["cache"] and stamp is not None\n'
KERNELS = ("@jit", "@inlined", "@brief", "@patient", "@awaited", "@within", "@deferred")


def preload() -> None:
    """Import what every test process needs, so that it need not."""
    for name in LIBRARIES:
        with contextlib.suppress(ImportError):
            import_module(name)


class Workbench:
    """A copy of the files that git knows, with the compiled kernels.

    Kernels are taken from the cache, whatever was changed, but those that may hold a copy of what was: these are
    compiled again and not kept.
    """

    def __init__(self, root: Path, place: Path) -> None:
        self.root, self.place = root, place
        listed = subprocess.run(
            ["git", "ls-files", "-co", "--exclude-standard"], cwd=root, check=True, capture_output=True
        )
        for name in listed.stdout.decode().splitlines():
            source = root / name
            if source.is_file():
                (place / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, place / name)
        for cache in (root / "murk").rglob("__pycache__"):
            shutil.copytree(cache, place / cache.relative_to(root), dirs_exist_ok=True)
        self._fix_kernels()

    def _fix_kernels(self) -> None:
        from murk._internal.jit import source_stamp

        jit = self.place / "murk" / "_internal" / "jit.py"
        text = jit.read_text()
        if text.count(_STAMP) != 1 or text.count(_CACHED) != 1:
            raise SystemExit(
                "murk/_internal/jit.py has changed: tests/mutation/workbench.py must know how it marks its kernels"
            )
        mutated = '__import__("os").environ.get("MURK_MUTATED", "").split(",")'
        cached = f'cached = self._options["cache"] and self.__module__ not in {mutated}\n'
        text = text.replace(_STAMP, f"return {source_stamp(self.root / 'murk')!r}\n")
        jit.write_text(text.replace(_CACHED, cached))

    def notices(self, mistake: Mistake | None, tests: list[str], seconds: float) -> str:
        """What becomes of some tests with a mistake: ``noticed``, ``survived`` and others.

        ``timeout``: they compute without end. ``stuck``: they wait without end, or the machine has too much else to do.

        ``seconds`` of the processor are what they take without it.
        """
        if mistake is None:
            return self._run(tests, seconds, "")
        path = self.place / mistake.path
        source = path.read_bytes()
        state = path.stat()
        kernels = not mistake.function or any(mark.encode() in source for mark in KERNELS)
        affected = importers(self.root, mistake.path.removesuffix(".py").replace("/", ".")) if kernels else set()
        try:
            path.write_bytes(mistake.apply(source))
            return self._run(tests, seconds, ",".join(affected))
        finally:
            path.write_bytes(source)
            os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))

    def _run(self, tests: list[str], seconds: float, affected: str) -> str:
        compiling = 60.0 if affected else 0.0
        child = os.fork()
        if child == 0:
            self._in_child(tests, int(20 + compiling + 4 * seconds), affected)
        # Tests that wait rather than compute: a machine with much else to do is slow.
        deadline = time.monotonic() + 180.0 + 20.0 * (compiling + seconds)
        while True:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                break
            if time.monotonic() > deadline:
                os.killpg(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return "stuck"
            time.sleep(0.02)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # what it started
        if os.WIFSIGNALED(status):
            return "timeout" if os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL) else "noticed"
        return {0: "survived", 1: "noticed", 2: "noticed", 5: "no tests"}.get(os.WEXITSTATUS(status), "broken")

    def _in_child(self, tests: list[str], limit: int, affected: str) -> None:
        code = 99
        try:
            os.setsid()
            resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
            os.chdir(self.place)
            for name in [name for name in sys.modules if name.partition(".")[0] in ("murk", "tests")]:
                del sys.modules[name]
            os.environ |= {"PYTHONPATH": str(self.place), "MURK_MUTATED": affected, "PYTHONDONTWRITEBYTECODE": "1"}
            sys.path[:] = [str(self.place), *(each for each in sys.path if each not in ("", str(self.root)))]
            sys.dont_write_bytecode = True
            with (self.place / "output.log").open("w") as output:
                os.dup2(output.fileno(), 1)
                os.dup2(output.fileno(), 2)
            import pytest

            code = int(pytest.main(["-q", "-x", "-n", "0", "-p", "no:cacheprovider", *tests]))
        except BaseException:  # noqa: BLE001
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
