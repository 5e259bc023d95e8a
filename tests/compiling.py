"""Compiles what the tests run, once: ``python -m tests.compiling``. Otherwise every process of a first run does it."""

from tests.cli.forks import warm
from tests.learners.catalogue import compiled
from tests.protocols import PROTOCOLS

if __name__ == "__main__":
    for protocol in PROTOCOLS:
        warm(protocol.text())
    compiled()
