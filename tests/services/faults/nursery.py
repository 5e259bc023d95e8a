"""Processes to be killed, that start at once: forked from where commands are (tests/cli/processes.py)."""

import os
import signal
from pathlib import Path

from tests.cli.harness import LOGGED
from tests.cli.processes import all_stopped, ask, sleep_until_ended
from tests.services.services import eventually

ROOT = Path(__file__).parents[3]
KINDS = (".out", ".err")
# How long a process may take to end or to say something: far more than any needs.
LIMIT = 120.0


class Nursery:
    """Starts processes; a context manager that leaves none behind.

    ``folder`` is where they work and what they print is kept; ``protocols`` are those of the tests' table that
    start at once, and ``modules`` what they need not import; ``environment`` is what theirs has besides.
    """

    def __init__(self, folder, protocols=("gradients",), modules=(), **environment):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.environment = environment
        self.children = []
        for protocol in protocols:
            ask({"protocol": str(protocol)})
        for module in modules:
            ask({"module": module})

    def murk(self, *arguments, folder=None, **environment):
        """Run a command of murk."""
        return self.call("murk.cli:main", *arguments, folder=folder, **environment)

    def learner(self, url, *arguments):
        """Run `murk learn` on a log."""
        return self.murk("learn", "--log", url, "--json", *arguments)

    def call(self, function, *arguments, folder=None, **environment):
        """Run a function, given as ``module:name``, with the arguments in ``sys.argv``; in a folder of its own."""
        place = self.folder / f"child-{len(self.children)}"
        for kind in KINDS:
            place.with_suffix(kind).touch()
        pid = ask(
            {
                "function": function,
                "arguments": [str(one) for one in arguments],
                "folder": str(folder or self.folder),
                "environment": {**os.environ, "PYTHONPATH": str(ROOT), **self.environment, **environment},
                "prints": [str(place.with_suffix(kind)) for kind in KINDS],
            }
        )
        child = Child(pid, place)
        self.children.append(child)
        return child

    def __enter__(self):
        return self

    def __exit__(self, *error):
        for child in self.children:
            child.kill()


class Child:
    """A process of a nursery."""

    def __init__(self, pid, place):
        self.pid = pid
        self._place = place
        self._status = None

    @property
    def status(self):
        """Its exit status, negative where a signal ended it; None while it runs."""
        if self._status is None:
            self._status = ask({"ended": self.pid})
        return self._status

    @property
    def out(self):
        return self._place.with_suffix(".out").read_text(errors="replace")

    @property
    def err(self):
        return self._place.with_suffix(".err").read_text(errors="replace")

    def send(self, number):
        # Not to a process that is gone: its number may be another's.
        if self.status is None:
            os.kill(self.pid, number)

    @property
    def is_stopped(self):
        """Whether it is frozen, by whomever; it must not have ended."""
        assert self.status is None, f"ended with {self._status}: {self.err}"
        return all_stopped(self.pid)

    def kill(self):
        """End it at once, as a power cut would."""
        self.send(signal.SIGKILL)
        return self.wait()

    def freeze(self):
        """Stop it; it does nothing more when this returns."""
        self.send(signal.SIGSTOP)
        eventually(lambda: self.status is not None or all_stopped(self.pid), LIMIT, every=0.001)

    def thaw(self):
        self.send(signal.SIGCONT)

    def stop(self):
        """Ask it to end; its exit status."""
        self.send(signal.SIGTERM)
        self.send(signal.SIGCONT)
        return self.wait()

    def wait(self, limit=LIMIT):
        if self.status is None:
            sleep_until_ended(self.pid, limit)
        assert self.status is not None, f"process {self.pid} has not ended within {limit} s"
        return self._status

    def said(self, words, limit=LIMIT):
        """Wait until it has printed some words."""
        eventually(lambda: words in self.out + self.err or self._ended(words), limit)

    def _ended(self, words):
        assert self.status is None, f"ended with {self._status} without {words!r}: {self.out}{self.err}"
        return words in self.out + self.err

    def refused(self, *words, status=1, limit=LIMIT):
        """It has ended by itself with a status and, after what it logged, one line that holds some words."""
        assert self.wait(limit) == status, f"{self._status}: {self.out}{self.err}"
        assert self.out == ""
        *logged, line, end = self.err.split("\n")
        assert end == ""
        assert all(LOGGED.match(one) or ": caution: " in one for one in logged), self.err
        assert line.startswith("murk: "), line
        assert "unexpected" not in line, line
        for word in words:
            assert word in line, line
