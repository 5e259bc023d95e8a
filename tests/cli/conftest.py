"""Folders in memory where there are any: what a killed process leaves is the same, and nothing waits for disks."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli import processes

MEMORY = Path("/dev/shm")


@pytest.fixture(scope="session", autouse=True)
def _served() -> Iterator[None]:
    """Let the process from which commands are forked end with the tests."""
    yield
    processes.close()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    if not MEMORY.is_dir():
        yield tmp_path
        return
    made = Path(tempfile.mkdtemp(prefix="murk-", dir=MEMORY))
    yield made
    shutil.rmtree(made)
