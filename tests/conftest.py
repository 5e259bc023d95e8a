"""Settings of all tests."""

import gc
import logging
import os
import signal
import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import settings

from tests import forking
from tests.in_memory import use_memory
from tests.services.fixtures import *  # noqa: F403
from tests.services.services import LACKING
from tests.turns import place, takes_waiting

# No test may depend on how fast the machine is; and a failure must come again when it is looked for.
# Few examples each: the same ones every time, and what needs many has numbers of its own.
settings.register_profile("murk", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("murk")

use_memory()

# Whatever the environment says: every process of the tests imports much of them, with byte code that another has left.
# Mistakes that are made on purpose leave none.
if "MURK_MUTATED" not in os.environ:
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False

# A shell's background job ignores Ctrl-C, and so would every process that is started and stopped here.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def loggers_as_they_were():
    """A command that runs in this process sets loggers up until its end, which is that of the process."""
    loggers = [logging.getLogger(name) for name in ("murk", "kafka", "py.warnings")]
    before = [(one, one.level, one.handlers[:]) for one in loggers]
    yield
    logging.captureWarnings(False)
    for one, level, handlers in before:
        one.setLevel(level)
        one.handlers[:] = handlers


# The longest test takes two minutes on a busy machine.
LONGEST = 600.0  # seconds that a test may take on the slowest machine: a test that hangs fails by its name


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """A test that waits for ever fails, and is named: a whole run would wait with it."""

    def late(*_):
        raise TimeoutError(f"{item.nodeid} was not done after {LONGEST:g} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, LONGEST)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config, specs):
    """Processes of tests are forked from one that has imported all of them, and commands that they run from another."""
    stack = ExitStack()
    config.add_cleanup(stack.close)
    python = stack.enter_context(forking.shared(config.invocation_params.dir, config.args))
    for spec in specs:
        if spec.popen and spec.python is None:
            spec.python = python


def pytest_configure(config):
    """Processes that compute yield to those that wait: what these wait for has limits of time."""
    worker = getattr(config, "workerinput", None)
    if worker is not None and not takes_waiting(worker["workerid"]):
        os.nice(5)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Files that wait run beside files that compute: see tests/turns.py."""
    if config.option.dist != "loadfile":
        return None
    from tests.turns import scheduler

    return scheduler(config, log)


def pytest_collection():
    """Collecting makes close to a million objects, all of which stay: see pytest_collection_finish."""
    gc.disable()


def pytest_collection_modifyitems(items):
    """The longest files first: whichever comes last is waited for by one process while the others are done."""
    root = Path(__file__).parent
    items.sort(key=lambda item: place(item.path.relative_to(root).as_posix()))


def pytest_collection_finish():
    """The collector of garbage, which River's checks of memory call, does not look through all tests each time."""
    gc.enable()
    gc.freeze()


def pytest_terminal_summary(terminalreporter):
    """What was not tested for want of a server, and how to have it."""
    reasons = Counter()
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if LACKING in reason:
            reasons[reason.partition(f"{LACKING}: ")[2]] += 1
    if reasons:
        terminalreporter.section("not tested: services that are not there", yellow=True)
        for reason, count in reasons.most_common():
            terminalreporter.line(f"{count:5} skipped: {reason}")
        terminalreporter.line(
            "Install them with .ci/services (Debian packages, Maven); then `make test` runs these, too."
        )
