"""The mistakes that ``make mutants`` makes, and that it leaves the checkout as it was."""

import hashlib
import json
from pathlib import Path

import pytest

from murk.task.fields import parse_duration
from tests.mutation.equivalent import EQUIVALENT
from tests.mutation.mistakes import Mistake, is_valid, mistakes
from tests.mutation.selection import Selection, importers
from tests.mutation.tracing import PLACE, taken, told
from tests.mutation.workbench import Workbench

ROOT = Path(__file__).resolve().parents[1]


def variants(text):
    source = text.encode()
    return [each.apply(source).decode() for each in mistakes("f.py", source)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = a < b <= c", ["x = a <= b <= c", "x = a < b < c"]),
        ("x = a is not b", ["x = a is b"]),
        ("x = (a) not in (b)", ["x = (a) in (b)"]),
        ("x = a // 2", ["x = a * 2", "x = a // 3"]),
        ("x = -a", ["x = (a)"]),
        ("x = é - 1.5", ["x = é + 1.5", "x = é - 3.0"]),
        ("x = a and b or c", ["x = a or b or c", "x = a and b and c"]),
        ("x += 1", ["pass", "x -= 1", "x += 2"]),
        ("x = [a for a in b if c]", ["x = [a for a in b if (not (c))]"]),
        ("if a:\n    b()", ["if (not (a)):\n    b()", "if a:\n    pass"]),
        ("def f():\n    return True", ["def f():\n    return False", "def f():\n    return None"]),
        ("for a in b:\n    continue", ["for a in b:\n    break"]),
    ],
)
def test_what_is_changed(text, expected):
    assert variants(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        '"""1 < 2"""',
        "def f(a: 1 = None) -> 2:\n    '3'",
        "Number = int | str",
        "class P(Protocol):\n    x = 1",
        "def __repr__(self):\n    return 1 + 1",
        "if TYPE_CHECKING:\n    import x",
        "log.info('x', 1)",
        "x = f'{1 + 1}'",
        "x = list(zip(a, b, strict=True))",
        "def f():\n    return",
    ],
)
def test_what_only_people_or_tools_read_stays(text):
    assert variants(text) == []


def test_an_error_is_left_out_and_its_words_stay():
    assert variants("def f(a):\n    raise E(1 + 1)") == ["def f(a):\n    pass"]


def test_a_mistake_knows_its_function_and_its_line():
    source = b"class A:\n    def f(self):\n        def g():\n            return [x for x in y if x > 0]\n"
    comparison = next(each for each in mistakes("f.py", source) if each.after == ">=")
    assert (comparison.function, comparison.line) == ("A.f.g", 4)
    assert comparison.diff(source) == (
        "-            return [x for x in y if x > 0]\n+            return [x for x in y if x >= 0]"
    )
    assert is_valid(comparison, source)
    assert not is_valid(Mistake("f.py", 1, "", 0, 5, "class("), source)


def test_tests_that_call_the_function_are_chosen_the_quickest_first():
    path = "murk/populations/ledger_places.py"
    recorded = {
        "tests/a.py::slow": {"seconds": 3.0, "calls": [f"{path}:note"]},
        "tests/a.py::quick": {"seconds": 1.0, "calls": [f"{path}:note"]},
        "tests/b.py::other": {"seconds": 0.1, "calls": [f"{path}:noted"]},
        "tests/b.py::third": {"seconds": 0.2, "calls": []},
        # It is the first that imports the file, and does not use it.
        "tests/c.py::first": {"seconds": 0.1, "calls": [f"{path}:<module>"]},
    }
    tests = Selection(ROOT, recorded)
    assert tests.of(Mistake(path, 1, "note", 0, 1, ""), 5.0) == ["tests/a.py::quick", "tests/a.py::slow"]
    assert tests.of(Mistake(path, 1, "note", 0, 1, ""), 2.0) == ["tests/a.py::quick"]
    # What is done on import: all that use the file.
    assert tests.of(Mistake(path, 1, "", 0, 1, ""), 9.0) == [
        "tests/b.py::other",
        "tests/a.py::quick",
        "tests/a.py::slow",
    ]
    assert tests.of_their_files(["tests/b.py::other"], 9.0) == ["tests/b.py::other", "tests/b.py::third"]


def test_others_that_call_the_function_come_last():
    path = "murk/populations/ledger_places.py"
    near, cut, far, farther = (
        "tests/producers/test_notes.py::near", "tests/producers/test_files.py::cut", "tests/cli/test_run.py::far",
        "tests/cli/test_run.py::farther",
    )  # fmt: skip
    seconds = {near: 1.0, cut: 3.0, far: 0.1, farther: 9.0}
    tests = Selection(ROOT, {name: {"seconds": took, "calls": [f"{path}:note"]} for name, took in seconds.items()})
    mistake = Mistake(path, 1, "note", 0, 1, "")
    assert tests.of(mistake, 3.0) == [near]
    assert tests.others(mistake, [near], 5.0) == [far, cut]
    # One that only commands call.
    alone = Selection(ROOT, {far: {"seconds": 0.1, "calls": [f"{path}:note"]}, near: {"seconds": 1.0, "calls": []}})
    assert alone.of(mistake, 3.0) == [far]


def test_calls_of_a_command_that_a_test_starts_are_its_own(tmp_path, monkeypatch):
    place = tmp_path / "commands"
    place.write_text("")
    monkeypatch.setenv(PLACE, str(place))
    for _ in range(2):
        with told():
            parse_duration("2m")
    found = taken(place)
    assert [one["calls"] for one in found] == [["murk/task/fields.py:parse_duration"]] * 2
    assert all(one["seconds"] >= 0 for one in found)
    assert taken(place) == []


def test_tests_that_call_kernels_alone_are_chosen_where_they_name_the_file():
    near, far = "tests/privacy/noise/test_philox.py::any", "tests/privacy/test_guarantees.py::any"
    tests = Selection(ROOT, {name: {"seconds": 0.1, "calls": []} for name in (near, far)})
    assert tests.of(Mistake("murk/privacy/noise/kernels.py", 1, "block", 0, 1, ""), 4.0) == [near]


def test_kernels_that_hold_a_copy_are_found():
    found = importers(ROOT, "murk.privacy.mechanisms.lattice")
    assert {
        "murk.privacy.mechanisms.lattice",
        "murk.privacy.mechanisms.base",
        "murk.protocols.gradients.engine",
    } <= found
    assert "murk.privacy.noise.kernels" not in found


def test_every_equivalent_mistake_is_one_that_is_made():
    """A reason for a line that is no more would be one for nothing."""
    for path in {path for path, _ in EQUIVALENT}:
        source = (ROOT / path).read_bytes()
        made = {each.diff(source) for each in mistakes(path, source)}
        assert {diff for one, diff in EQUIVALENT if one == path} <= made, path


def test_a_mistake_is_noticed_in_a_copy_and_the_checkout_stays_as_it_is(tmp_path):
    """By a small checkout of its own: a package, a kernel's module, two tests."""
    root = tmp_path / "checkout"
    real = (ROOT / "murk" / "_internal" / "jit.py").read_text()
    files = {
        "murk/__init__.py": "",
        "murk/_internal/jit.py": real,
        "murk/double.py": "def double(x):\n    if x < 0:\n        raise ValueError\n    return 2 * x\n",
        "tests/test_double.py": "from murk.double import double\ndef test_it():\n    assert double(3) == 6\n",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    git(root, "init", "-q")
    git(root, "add", "-A")
    before = digest(root)
    bench = Workbench(root, tmp_path / "copy")
    source = files["murk/double.py"].encode()
    verdicts = {
        each.diff(source).splitlines()[1].strip("+ "): bench.notices(each, ["tests/test_double.py"], 1.0)
        for each in mistakes("murk/double.py", source)
        if each.after in ("/", "<=", "None")
    }
    assert verdicts == {"if x <= 0:": "survived", "return 2 / x": "noticed", "return None": "noticed"}
    assert digest(root) == before
    assert (tmp_path / "copy" / "murk" / "double.py").read_bytes() == source


def git(root, *arguments):
    import subprocess

    subprocess.run(["git", *arguments], cwd=root, check=True)


def digest(root):
    files = sorted(path for path in root.rglob("*") if path.is_file() and ".git" not in path.parts)
    return json.dumps({str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files})
