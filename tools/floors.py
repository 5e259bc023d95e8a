"""The oldest declared versions of dependencies, one a line, as pip takes them: ``python -m tools.floors EXTRA...``."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

from packaging.requirements import Requirement

PYPROJECT = Path(__file__).parent.parent / "pyproject.toml"


def floors(extras: Sequence[str] = (), pyproject: Path = PYPROJECT) -> list[str]:
    """Return the oldest declared version of every dependency, and of those of some extras.

    Raises
    ------
    ValueError
        For a dependency without a lower bound: nobody knows whether its oldest version works.

    Examples
    --------
    >>> [line for line in floors(["monitor"]) if line.startswith("prometheus")]
    ['prometheus-client==0.20']
    """
    project = tomllib.loads(pyproject.read_text())["project"]
    needed = [*project["dependencies"], *(each for extra in extras for each in project["optional-dependencies"][extra])]
    # Several extras may need the same.
    return list(dict.fromkeys(_floor(Requirement(one)) for one in needed if not one.startswith(f"{project['name']}[")))


def _floor(requirement: Requirement) -> str:
    lowest = [one.version for one in requirement.specifier if one.operator in (">=", "==", "~=")]
    if len(lowest) != 1:
        raise ValueError(f"pyproject.toml: {requirement} has no lower bound: declare the oldest version that works")
    return f"{requirement.name}=={lowest[0]}"


if __name__ == "__main__":
    sys.stdout.write("\n".join(floors(sys.argv[1:])) + "\n")
