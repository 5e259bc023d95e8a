"""Which test calls which function of the package: ``python -m pytest -p tests.mutation.calls --calls FILE``."""

import json
import os
from pathlib import Path

import pytest

from tests.mutation.tracing import PLACE, taken, traced


def pytest_addoption(parser):
    """Add where to write."""
    parser.addoption("--calls", required=True, help="file that receives, for each test, what it calls")


def pytest_configure(config):
    """Begin."""
    config.pluginmanager.register(Recorder(Path(config.getoption("--calls")).resolve()))


class Recorder:
    """Functions called in each test that passes, and how many seconds of the processor it takes."""

    def __init__(self, path):
        self.path = path
        self.found, self.failed = {}, set()
        self.commands = path.with_name(f"{path.name}.commands")
        self.commands.write_text("")
        os.environ[PLACE] = str(self.commands)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item):
        """One test with its fixtures, and the commands that it starts."""
        own = {}
        try:
            with traced(own):
                return (yield)
        finally:
            parts = [own, *taken(self.commands)]
            self.found[item.nodeid] = {
                "seconds": round(sum(part["seconds"] for part in parts), 3),
                "calls": sorted(set().union(*(part["calls"] for part in parts))),
            }

    def pytest_runtest_logreport(self, report):
        """Leave out what does not pass: it would not notice anything."""
        if report.outcome != "passed":
            self.failed.add(report.nodeid)

    def pytest_sessionfinish(self):
        """Write what was found."""
        passed = {name: found for name, found in self.found.items() if name not in self.failed}
        self.path.write_text(json.dumps(passed))
        self.commands.unlink()
