"""Compiled kernels are never older than any source of the package, and are compiled when it pays."""

import os
import pickle
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from murk._internal import jit as _jit
from murk._internal.jit import (
    COMPILE_AFTER,
    LOAD_AFTER,
    WITHOUT_KERNELS,
    deferred,
    deferred_to,
    jit,
    jit_helper,
    jit_short,
    source_stamp,
)
from murk.privacy.noise.kernels import philox
from tests.interrupts import interrupted


@jit_helper
def twice(x):
    return 2 * x


@jit
def four_times(x):
    return twice(twice(x))


@jit_short
def halved(count, y):
    if count == 7:
        raise ValueError
    return y / count


KEEPING = """
import sys
from murk._internal import jit as _jit
@_jit.deferred
def f(x):
    return x
if "early" in sys.argv:
    f(1)
    print(f._looked)
else:
    import numba
    f(1)
    print(f._patience < _jit.LOAD_AFTER, f._looked)
if "compile" in sys.argv:
    f.compiled(1)
"""
INNER = "from murk._internal.jit import jit\n\n@jit\ndef inner(x):\n    return x + {}\n"
OUTER = "from murk._internal.jit import jit\nfrom murk.inner import inner\n\n@jit\ndef outer(x):\n    return inner(x)\n"


def decorators_alone(folder):
    """Make a package murk of the decorators and what they import."""
    package = folder / "murk"
    (package / "_internal").mkdir(parents=True)
    for path in ("__init__.py", "_internal/__init__.py"):
        (package / path).write_text("")
    for name in ("_internal/jit", "_internal/wiping", "_internal/locks", "errors"):
        shutil.copy(Path(__file__).parent.parent / "murk" / f"{name}.py", package / f"{name}.py")
    return package


def test_a_changed_callee_in_another_file_recompiles_its_callers(tmp_path):
    """With numba's own rule the second answer would be the cached 2."""
    package = decorators_alone(tmp_path)
    (package / "outer.py").write_text(OUTER)
    answers = []
    for added in (1, 2):
        (package / "inner.py").write_text(INNER.format(added))
        # As installed from an archive: a fix of the same size, with the time that every file has.
        os.utime(package / "inner.py", ns=(10**18, 10**18))
        done = subprocess.run(
            [sys.executable, "-c", "from murk.outer import outer; print(outer(1))"],
            cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        answers.append(int(done.stdout))
    assert answers == [2, 3]
    assert list(package.rglob("*.nbc")), "nothing was cached: the test would pass without the stamp"


def test_the_stamp_sees_every_file_that_may_hold_a_kernel(tmp_path):
    for name in ("a.py", "sub/b.py", "producers/c.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x = 1\n")
    before = source_stamp(tmp_path)
    for name, same in (("producers/c.py", True), ("sub/b.py", False)):
        times = (tmp_path / name).stat().st_mtime_ns
        (tmp_path / name).write_text("x = 2\n")
        os.utime(tmp_path / name, ns=(times, times))
        assert (source_stamp(tmp_path) == before) is same
    moved = source_stamp(tmp_path)
    (tmp_path / "a.py").rename(tmp_path / "sub" / "a.py")
    assert source_stamp(tmp_path) != moved


def test_sources_that_changed_since_they_were_loaded_leave_no_kernel_behind(tmp_path):
    """It would be the old one, kept under the new sources' digest."""
    package = decorators_alone(tmp_path)
    (package / "inner.py").write_text(INNER.format(1))
    change = f"open('murk/inner.py', 'w').write({INNER.format(2)!r});"
    answers = []
    for meanwhile in (change, ""):
        done = subprocess.run(
            [sys.executable, "-c", f"from murk.inner import inner; {meanwhile} print(inner(1))"],
            cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        answers.append(int(done.stdout))
    assert answers == [2, 3]


def test_folders_that_the_stamp_leaves_out_hold_no_kernels():
    package = Path(__file__).parent.parent / "murk"
    for folder in WITHOUT_KERNELS:
        files = list((package / folder).rglob("*.py"))
        assert files, f"{folder} is gone: take it off the list"
        assert not [path for path in files if "_internal.jit" in path.read_text() or "numba" in path.read_text()]


@pytest.mark.parametrize(("kept", "patience"), [(False, COMPILE_AFTER), (True, LOAD_AFTER)])
def test_a_deferred_kernel_is_compiled_once_it_had_enough_to_do(monkeypatch, kept, patience):
    """A twentieth of that is enough where it need not be compiled."""
    monkeypatch.setattr(_jit.Kernel, "_is_kept", lambda kernel: kept)
    worked = []

    def stand_in(x):
        worked.append(len(x))
        return -1

    @deferred_to(stand_in)
    def length(x):
        return len(x)

    block = np.zeros(patience // 4)
    answers = [length(block) for _ in range(6)]
    assert answers == [-1, -1, -1, len(block), len(block), len(block)]
    assert len(worked) == 3
    assert length.compiled.signatures


def test_numba_says_what_it_has_kept(tmp_path):
    """Of a kernel that was compiled before, of one that was not, and without numba."""
    (tmp_path / "a.py").write_text(KEEPING)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
    answers = [
        subprocess.run(
            [sys.executable, "a.py", *more], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        ).stdout
        for more in ([], ["compile"], [], ["early"])
    ]
    assert [answer.split() for answer in answers] == [["False", "True"], ["False", "True"], ["True", "True"], ["False"]]


def test_a_call_that_is_worth_compiling_for_is_compiled_for():
    @deferred
    def length(x):
        return len(x)

    assert length(np.zeros(2 * COMPILE_AFTER)) == 2 * COMPILE_AFTER
    assert length.compiled.signatures


def test_what_an_interpreted_kernel_calls_is_not_compiled():
    @jit
    def inner(x):
        return x + 1

    @deferred
    def outer(x):
        return inner(x)

    assert outer(1) == 2
    assert not inner.compiled.signatures
    assert inner(1) == 2
    assert inner.compiled.signatures, "called by itself it is"


def test_an_error_leaves_nothing_interpreted_for_ever():
    @jit
    def inner(x):
        return x

    @deferred
    def outer(x):
        raise ValueError("within")

    with pytest.raises(ValueError, match="within"):
        outer(1)
    inner(1)
    assert inner.compiled.signatures


def test_no_interrupt_leaves_anything_interpreted_for_ever():
    """At every single instruction of the call, one after another."""

    @jit
    def inner(x):
        return x

    @deferred
    def outer(x):
        return inner(x)

    at = 0
    while True:
        seen = interrupted(lambda: outer(1), at + 1, _jit.__file__)
        assert not _jit._INTERPRETING.get()
        if seen <= at:
            break
        at += 1
    assert at > 30
    inner(1)
    assert inner.compiled.signatures


def test_another_thread_is_compiled_for_while_one_interprets():
    @jit
    def inner(x):
        return x

    @deferred
    def outer(x):
        with ThreadPoolExecutor(1) as other:
            other.submit(inner, 1).result()
        return x

    outer(1)
    assert inner.compiled.signatures


def test_operations_on_integers_are_not_compiled_by_themselves():
    assert [twice(3) for _ in range(10)] == [6] * 10
    assert not twice.compiled.signatures
    assert four_times(3) == 12


def test_kernels_are_pickled_by_name():
    assert pickle.loads(pickle.dumps(philox)) is philox


def test_a_brief_kernel_gives_way_to_its_entry_which_converts_what_it_is_given(monkeypatch):
    """Whatever kinds of numbers come later, what was compiled for the first is called, and nothing else compiled."""
    kernel = halved
    monkeypatch.setitem(globals(), "halved", kernel)
    assert kernel(2, 3.0) == 1.5
    if kernel.compiled is kernel._function:
        pytest.skip("nothing is compiled")
    assert halved is not kernel
    for count, y in ((2, 3), (np.int64(2), np.float64(3.0)), (True + 1, np.float32(3.0))):
        assert halved(count, y) == kernel(2, 3.0) == 1.5
    assert len(kernel.overloads) == 1
    for wrong in ((2, None), (2,), (2, 3.0, 4)):
        with pytest.raises(TypeError):
            halved(*wrong)
    with pytest.raises(ValueError):
        halved(7, 1.0)


def test_nothing_is_loaded_for_kernels_that_nobody_calls():
    code = "import sys, murk.protocols.scores.engine; print('numba' in sys.modules, 'scipy.optimize' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


LEARNING = """
import hashlib, json
from murk.learners import IWPSGDClassifier, LDPSGDClassifier
from murk.privacy import GaussianDP
for kind in (LDPSGDClassifier, IWPSGDClassifier):
    model = kind(guarantee=GaussianDP(2.0), features=["a", "b"], seed=3)
    for record in range(20):
        model.learn_one({"a": record / 20, "b": -0.5}, record % 3 == 0)
    print(hashlib.sha256(json.dumps(model.state_dict(), sort_keys=True).encode()).hexdigest())
    secure = kind(guarantee=GaussianDP(2.0), features=["a", "b"], seed=None)
    secure.learn_one({"a": 0.1, "b": 0.2}, True)
"""


def test_learners_without_compiled_code_learn_the_same():
    found = [
        subprocess.run(
            [sys.executable, "-W", "ignore::RuntimeWarning", "-c", LEARNING], capture_output=True, text=True,
            check=True, env={**os.environ, **environment},
        ).stdout
        for environment in ({}, {"NUMBA_DISABLE_JIT": "1"})
    ]  # fmt: skip
    assert found[0] == found[1]
    assert len(set(found[0].split())) == 2
