"""Which test calls which function of the package: a plugin, ``python -m pytest -p tests.mutation.calls --calls FILE``.

Compiled functions are called without Python, and so are not seen; nor is what other processes do.
"""

import json
import sys
import threading
import time
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parents[2]
_HOME = f"{_ROOT / 'murk'}/"


def pytest_addoption(parser):
    """Add where to write."""
    parser.addoption("--calls", required=True, help="file that receives, for each test, what it calls")


def pytest_configure(config):
    """Begin."""
    config.pluginmanager.register(Recorder(Path(config.getoption("--calls"))))


class Recorder:
    """Functions called in each test that passes, and how many seconds of the processor it takes."""

    def __init__(self, path):
        self.path = path
        self.found, self.failed = {}, set()
        self.seen = set()

    def trace(self, frame, event, arg):
        """Called by Python at each call of a function."""
        self.seen.add(frame.f_code)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item):
        """One test with its fixtures."""
        self.seen = set()
        start = time.process_time()
        threading.settrace(self.trace)
        sys.settrace(self.trace)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            threading.settrace(None)
            names = {
                f"{code.co_filename[len(_HOME) - 5 :]}:{code.co_qualname.replace('.<locals>', '')}"
                for code in self.seen
                if code.co_filename.startswith(_HOME)
            }
            self.found[item.nodeid] = {"seconds": round(time.process_time() - start, 3), "calls": sorted(names)}

    def pytest_runtest_logreport(self, report):
        """Leave out what does not pass: it would not notice anything."""
        if report.outcome != "passed":
            self.failed.add(report.nodeid)

    def pytest_sessionfinish(self):
        """Write what was found."""
        passed = {name: found for name, found in self.found.items() if name not in self.failed}
        self.path.write_text(json.dumps(passed))
