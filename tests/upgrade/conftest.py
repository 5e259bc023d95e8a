"""Folders in memory, and commands in forked processes, as the tests of the command line have them."""

from tests.cli.conftest import _served, folder

__all__ = ["_served", "folder"]
