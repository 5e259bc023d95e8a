"""A log in a file, for tests that need no more than that."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from murk.stream.log.sqlite import SqliteLog
from tests.services.faults.nursery import Nursery
from tests.stream.harness import make_task
from tests.stream.processes import Start


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.db"


@pytest.fixture
def log(path: Path) -> Iterator[SqliteLog]:
    with SqliteLog(path, timeout=5) as opened:
        opened.register_task(make_task().document())
        yield opened


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Processes that begin at once, and end with the test."""
    with Nursery(tmp_path / "children", ()) as nursery:
        yield lambda *words: nursery.call("tests.stream.processes:main", *words)
