"""Notebooks as pages: Markdown cells as they are, code, and what was shown when it last ran. Nothing is run here."""

import html
import json
from pathlib import Path
from typing import Any, Final

from sphinx.application import Sphinx
from sphinx.util.typing import ExtensionMetadata

SUFFIX: Final = ".ipynb"
_FENCE: Final = "`````"


def as_markdown(notebook: dict[str, Any]) -> str:
    """Return a notebook as a page of Markdown.

    Examples
    --------
    >>> cell = {"cell_type": "code", "source": "1 + 1", "outputs": [{"data": {"text/plain": "2"}}]}
    >>> print(as_markdown({"cells": [cell]}).replace("`````", "~~~"))
    ~~~python
    1 + 1
    ~~~
    <BLANKLINE>
    ~~~{code-block} text
    :class: shown
    <BLANKLINE>
    2
    ~~~
    <BLANKLINE>
    """
    parts = []
    for cell in notebook["cells"]:
        source = _text(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"{_FENCE}python\n{source}\n{_FENCE}")
        drawn_by = source.splitlines()[-1]
        parts += [shown for output in cell.get("outputs", []) if (shown := _shown(output, drawn_by))]
    return "\n\n".join(parts) + "\n"


def _shown(output: dict[str, Any], drawn_by: str) -> str:
    data = output.get("data", {})
    if "image/png" in data:
        words = html.escape(f"Picture drawn by {drawn_by}", quote=True)
        code = "".join(_text(data["image/png"]).split())
        return _raw(f'<img class="shown" alt="{words}" src="data:image/png;base64,{code}">')
    if "text/html" in data:
        return _raw(f'<div class="shown">{_text(data["text/html"])}</div>')
    text = _text(output.get("text", data.get("text/plain", ""))).rstrip()
    return f"{_FENCE}{{code-block}} text\n:class: shown\n\n{text}\n{_FENCE}" if text else ""


def _raw(text: str) -> str:
    return f"{_FENCE}{{raw}} html\n{text}\n{_FENCE}"


def _text(value: str | list[str]) -> str:
    """A multi-line string of a notebook's file, which may be a list of lines."""
    return value if isinstance(value, str) else "".join(value)


def read(app: Sphinx, page: str, source: list[str]) -> None:
    """Turn a notebook into Markdown before it is parsed."""
    if Path(app.env.doc2path(page)).suffix == SUFFIX:
        source[0] = as_markdown(json.loads(source[0]))


def setup(app: Sphinx) -> ExtensionMetadata:
    """Read notebooks as pages."""
    app.add_source_suffix(SUFFIX, "markdown")
    app.connect("source-read", read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
