"""What the package exports, and what importing it costs."""

import subprocess
import sys

import pytest

import murk.stream


@pytest.mark.parametrize("name", murk.stream.__all__)
def test_exports_are_there(name: str) -> None:
    assert getattr(murk.stream, name).__name__ == name
    assert name in dir(murk.stream)


def test_other_names_are_not_there() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Tusk'"):
        murk.stream.Tusk  # noqa: B018 - the access is what is tested


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import murk.stream", ("numpy", "pydantic", "yaml", "sqlite3")),
        (
            "from murk import Task; from murk.stream import GradientRelease",
            ("river", "numba", "scipy", "pandas", "rich", "sqlite3"),
        ),
        ("import murk.stream.wire.codec", ("river", "numba", "scipy", "pandas", "rich", "sqlite3", "numpy")),
    ],
)
def test_a_device_loads_little(statement: str, absent: tuple[str, ...]) -> None:
    check = f"{statement}; import sys; print(sorted(set(sys.modules) & set({absent!r})))"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
