"""The examples of docs/extending.md are complete: put into a copy of the package, they work."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from murk._internal.jit import source_stamp

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "extending.md"


def copied(place):
    """A copy of the package with the kernels of `murk.privacy` as they are compiled here."""
    elsewhere = [folder.name for folder in (ROOT / "murk").iterdir() if folder.is_dir() and folder.name != "privacy"]

    def left_out(folder, names):
        inside = Path(folder).relative_to(ROOT / "murk").parts[:1]
        return ["__pycache__"] if not inside or inside[0] in elsewhere else []

    shutil.copytree(ROOT / "murk", place / "murk", ignore=left_out)
    jit = place / "murk" / "_internal" / "jit.py"
    stamp = "stamp = source_stamp(_PACKAGE)"
    assert stamp in jit.read_text()
    # No kernel is changed: those that are compiled are current.
    jit.write_text(jit.read_text().replace(stamp, f"return {source_stamp(ROOT / 'murk')!r}"))


def write_blocks(section, place):
    """Write the files that a section shows, and change those it changes; return the tests' paths."""
    written = []
    for name, text in re.findall(r"^```py\n# (\S+)\n(.*?)^```", section, re.MULTILINE | re.DOTALL):
        assert not (place / name).exists()
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)
        written.append(name)
    for name, text in re.findall(r"^```diff\n--- (\S+)\n@@\n(.*?)^```", section, re.MULTILINE | re.DOTALL):
        source = (place / name).read_text()
        for hunk in text.split("@@\n"):
            lines = hunk.splitlines(keepends=True)
            old = "".join(line[1:] for line in lines if line[0] in " -")
            assert source.count(old) == 1, f"{name} has no {old!r}"
            source = source.replace(old, "".join(line[1:] for line in lines if line[0] in " +"))
        (place / name).write_text(source)
    return [name for name in written if name.startswith("tests/")]


def run(heading, place, **environment):
    """Put a section's files into a copy of the package, and run its tests there."""
    section = PAGE.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    copied(place)
    [tests] = write_blocks(section, place)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", tests],
        cwd=place, env={**os.environ, "PYTHONPATH": str(place), **environment}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_mechanism_takes_its_module_its_entry_and_its_test(tmp_path):
    assert "3 passed" in run("A mechanism", tmp_path)


def test_a_loss_takes_its_transforms_its_entry_its_name_and_its_test(tmp_path):
    # Python alone runs its few hundred records sooner than the learner's kernels are compiled again.
    assert "10 passed" in run("A loss of released examples", tmp_path, NUMBA_DISABLE_JIT="1")


def test_a_protocol_takes_its_folder_and_a_line(tmp_path):
    assert "2 passed" in run("A protocol", tmp_path, NUMBA_DISABLE_JIT="1")
