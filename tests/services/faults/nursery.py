"""Processes to be killed, that start at once: forked from one that has everything imported and compiled.

``python -m tests.services.faults.nursery`` does what it is told by lines of JSON on its standard input, and ends
with it; its children end with it. All nurseries of a process share one.
"""

import ctypes
import faulthandler
import importlib
import json
import os
import signal
import subprocess
import sys
import traceback
from functools import cache
from pathlib import Path

from tests.cli.harness import LOGGED
from tests.cli.processes import sleep_until_ended
from tests.services.services import eventually

ROOT = Path(__file__).parents[3]
UNFORESEEN = 70
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
            _ask("warm", str(protocol))
        for module in modules:
            _ask("import", module)

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
        pid = _ask(
            "start",
            {
                "function": function,
                "arguments": [str(one) for one in arguments],
                "folder": str(folder or self.folder),
                "environment": {**os.environ, "PYTHONPATH": str(ROOT), **self.environment, **environment},
                "place": str(place),
            },
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
            self._status = _ask("status", self.pid)
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
        return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"

    def kill(self):
        """End it at once, as a power cut would."""
        self.send(signal.SIGKILL)
        return self.wait()

    def freeze(self):
        self.send(signal.SIGSTOP)

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
        assert all(LOGGED.match(one) for one in logged), self.err
        assert line.startswith("murk: "), line
        assert "unexpected" not in line, line
        for word in words:
            assert word in line, line


@cache
def _server():
    """The process from which all others are forked; it ends when its standard input does."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.services.faults.nursery"], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def _ask(what, argument):
    server = _server()
    print(json.dumps([what, argument]), file=server.stdin, flush=True)
    return json.loads(server.stdout.readline())


def _child(order):
    status = UNFORESEEN
    try:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
        place = Path(order["place"])
        descriptors = [os.open(os.devnull, os.O_RDONLY)]
        descriptors += [os.open(place.with_suffix(kind), os.O_WRONLY) for kind in KINDS]
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)
        os.chdir(order["folder"])
        os.environ.clear()
        os.environ.update(order["environment"])
        # What hangs says where: kill -USR1.
        faulthandler.register(signal.SIGUSR1)
        module, _, name = order["function"].partition(":")
        sys.argv = [module, *order["arguments"]]
        getattr(importlib.import_module(module), name)()
        status = 0
    except SystemExit as end:
        status = int(end.code or 0)
    except Exception:  # noqa: BLE001 - the end of the process, which its parent looks at
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _serve():
    from tests.cli.forks import prepare, warm
    from tests.protocols import BY_NAME

    importlib.import_module("murk.stream.log.kafka.log")
    importlib.import_module("murk.cli.commands.learn")
    importlib.import_module("murk.stream.worker.pool")
    importlib.import_module("tests.stream.processes")
    ended, warmed = {}, set()
    for line in sys.stdin:
        what, argument = json.loads(line)
        if what == "warm":
            if argument not in warmed:
                warm(BY_NAME[argument].text())
            answer = warmed.add(argument)
        elif what == "import":
            answer = importlib.import_module(argument).__name__
        elif what == "start":
            prepare(Path(argument["folder"]), argument["arguments"])
            answer = os.fork()
            if answer == 0:
                _child(argument)
        else:
            pid, status = (0, 0) if argument in ended else os.waitpid(argument, os.WNOHANG)
            if pid:
                ended[argument] = os.waitstatus_to_exitcode(status)
            answer = ended.get(argument)
        print(json.dumps(answer), flush=True)  # noqa: T201 - the answer


if __name__ == "__main__":
    _serve()
