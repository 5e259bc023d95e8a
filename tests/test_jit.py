"""Compiled kernels are never older than any source of the package."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from murk._jit import WITHOUT_KERNELS, source_stamp

INNER = "from murk._jit import jit\n\n@jit\ndef inner(x):\n    return x + {}\n"
OUTER = "from murk._jit import jit\nfrom murk.inner import inner\n\n@jit\ndef outer(x):\n    return inner(x)\n"


def test_a_changed_callee_in_another_file_recompiles_its_callers(tmp_path):
    """With numba's own rule the second answer would be the cached 2."""
    package = tmp_path / "murk"
    package.mkdir()
    (package / "__init__.py").write_text("")
    shutil.copy(Path(__file__).parent.parent / "murk/_jit.py", package)
    (package / "outer.py").write_text(OUTER)
    answers = []
    for added in (1, 2):
        (package / "inner.py").write_text(INNER.format(added))
        # Whatever the file system's clock resolves, the second version is newer.
        stamp = (package / "outer.py").stat().st_mtime_ns + added * 10**9
        os.utime(package / "inner.py", ns=(stamp, stamp))
        done = subprocess.run(
            [sys.executable, "-c", "from murk.outer import outer; print(outer(1))"],
            cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=True,
        )  # fmt: skip
        answers.append(int(done.stdout))
    assert answers == [2, 3]
    assert list(package.rglob("*.nbc")), "nothing was cached: the test would pass without the stamp"


def test_the_stamp_sees_every_file_that_may_hold_a_kernel(tmp_path):
    for name in ("a.py", "sub/b.py", "producers/c.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x = 1\n")
    before = source_stamp(tmp_path)
    stamp = before[0] + 10**9
    os.utime(tmp_path / "producers/c.py", ns=(stamp, stamp))
    assert source_stamp(tmp_path) == before
    os.utime(tmp_path / "sub/b.py", ns=(stamp, stamp))
    assert source_stamp(tmp_path) != before


def test_folders_that_the_stamp_leaves_out_hold_no_kernels():
    package = Path(__file__).parent.parent / "murk"
    for folder in WITHOUT_KERNELS:
        files = list((package / folder).rglob("*.py"))
        assert files, f"{folder} is gone: take it off the list"
        assert not [path for path in files if "_jit" in path.read_text() or "numba" in path.read_text()]
