"""What tests of commands have in common."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli import processes


@pytest.fixture(scope="session", autouse=True)
def _served() -> Iterator[None]:
    """Let the process from which commands are forked end with the tests."""
    yield
    processes.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path
