"""The oldest declared versions of what Murk needs, installed and tried: a bound that nobody tries is a guess."""

import os
import subprocess
import sys
import tempfile
import tomllib
from hashlib import sha256
from pathlib import Path

import pytest

from tools.floors import PYPROJECT, floors

ROOT = Path(__file__).parents[2]
TRIED = ("kafka", "monitor", "frames")
STEPS = ["commands", "messages", "kernels", "monitor", "kafka"]


def installed(needed):
    """The folder that they are in, installed once for all runs of the tests; `make clean` removes it."""
    digest = sha256("\n".join([sys.version, *needed]).encode()).hexdigest()[:16]
    place = ROOT / "build" / "floors" / digest
    if not place.is_dir():
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent) as unfinished:
            target = Path(unfinished) / "packages"
            subprocess.run(
                [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--only-binary", ":all:",
                 "--target", str(target), *needed],
                check=True, timeout=300,
            )  # fmt: skip
            if not place.is_dir():
                target.rename(place)
    return place


@pytest.mark.skipif(os.environ.get("MURK_REQUIRE_SERVICES") != "1", reason="the packages' index may be out of reach")
def test_the_oldest_declared_versions_work(tmp_path):
    """In a folder of their own, seen by the interpreter without what this environment has."""
    place = installed(floors(TRIED))
    python = Path(sys.base_prefix) / "bin" / "python3"
    done = subprocess.run(
        # -S: nothing of this interpreter's own packages.
        [python, "-S", "-m", "tests.services.oldest"],
        cwd=tmp_path, capture_output=True, text=True, timeout=300,
        env={"PYTHONPATH": os.pathsep.join([str(place), str(ROOT)]), "PATH": os.environ["PATH"], "HOME": str(tmp_path),
             "NUMBA_CACHE_DIR": str(tmp_path / "kernels"), "OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == STEPS


def test_every_dependency_has_a_floor(tmp_path):
    project = tomllib.loads(PYPROJECT.read_text())["project"]
    found = floors([extra for extra in project["optional-dependencies"] if extra != "docs"])
    assert len(found) == len({line.partition("==")[0] for line in found})
    assert all(line.partition("==")[2] for line in found)
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "x"\ndependencies = ["numpy<3"]\n')
    with pytest.raises(ValueError, match="numpy<3 has no lower bound"):
        floors(pyproject=tmp_path / "pyproject.toml")
