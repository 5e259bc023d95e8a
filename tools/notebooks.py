"""Runs the notebooks of the documentation and writes what their cells show into them.

``python -m tools.notebooks`` runs those of ``docs/notebooks``, or those that are named.
"""

import json
import os
import re
import sys
from pathlib import Path
from typing import Any, Final

import nbformat
from nbclient import NotebookClient

ROOT: Final = Path(__file__).parents[1]
NOTEBOOKS: Final = ROOT / "docs" / "notebooks"
SECONDS: Final = 600
_CELL: Final = re.compile(r"/\S*/ipykernel_\d+/\d+\.py:")


def executed(path: Path, folder: Path, kernel: str = "python3") -> Any:
    """Return a notebook as it is after all its cells have run, in a kernel of its own that works in ``folder``.

    Raises
    ------
    CellExecutionError
        When a cell fails.
    """
    notebook = nbformat.read(path, as_version=4)
    where = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(where)}
    client = NotebookClient(
        notebook,
        kernel_name=kernel,
        timeout=SECONDS,
        startup_timeout=SECONDS,
        record_timing=False,
        coalesce_streams=True,
        resources={"metadata": {"path": folder}},
    )
    client.execute(env=environment)
    for cell in notebook.cells:
        cell.metadata.clear()
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    return notebook


def written(notebook: Any) -> str:
    """Return a notebook as its file holds it: without the folder and process that its cells ran in."""
    text = json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True)
    return _CELL.sub("cell:", text) + "\n"


def main(names: list[str]) -> None:
    """Run the named notebooks, or all, and write them."""
    from tempfile import TemporaryDirectory

    for path in [Path(name) for name in names] or sorted(NOTEBOOKS.glob("*.ipynb")):
        with TemporaryDirectory() as folder:
            text = written(executed(path, Path(folder)))
        path.write_text(text, encoding="utf-8")
        sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
