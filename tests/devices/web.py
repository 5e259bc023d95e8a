"""Node, and the bundles of the web device: built once for all test processes."""

import fcntl
import functools
import json
import shutil
import subprocess
from pathlib import Path

from tests.services.services import missing

FOLDER = Path(__file__).parents[2] / "devices" / "web"


@functools.cache
def node():
    """The path of Node 20 or later; skips without it."""
    found = shutil.which("node")
    if found is None or shutil.which("npm") is None:
        missing("Node 20 and npm are missing: run .ci/services")
    version = subprocess.run([found, "--version"], capture_output=True, text=True, check=True).stdout
    if int(version.lstrip("v").split(".")[0]) < 20:
        missing(f"Node {version.strip()} is older than 20")
    return found


@functools.cache
def built():
    """Build what tests import and what is published; return the folder."""
    run = node()
    with open(FOLDER / "package.json") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (FOLDER / "node_modules" / "esbuild").is_dir():
            command = ["npm", "install", "--no-package-lock", "--no-audit", "--no-fund"]
            said = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True)
            if said.returncode:
                missing(f"npm could not install esbuild: {said.stderr[-500:]}")
        for flags in ([], ["--testing"]):
            subprocess.run([run, "build.mjs", *flags], cwd=FOLDER, check=True)
    return FOLDER


def run(script, *arguments, given="", timeout=600):
    """Run a script of `devices/web/test`; return the JSON that it prints."""
    command = [node(), f"test/{script}", *map(str, arguments)]
    result = subprocess.run(command, cwd=built(), input=given, capture_output=True, text=True, timeout=timeout)
    assert result.returncode == 0, result.stderr[-3000:]
    return json.loads(result.stdout)
