"""Temporary folders in memory, where there is room: what a killed process leaves is the same, and no disk is slow.

A ledger and a log wait for the disk at every step, and a broker does for every topic.
"""

import os
import shutil
import tempfile
from pathlib import Path

MEMORY = Path("/dev/shm")
ROOM = 2 * 2**30


def use_memory() -> None:
    """From now on temporary folders of this process, and of those that it starts, are in memory."""
    if "TMPDIR" not in os.environ and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= ROOM:
        tempfile.tempdir = os.environ["TMPDIR"] = str(MEMORY)
