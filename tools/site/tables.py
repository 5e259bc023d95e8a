"""Long names in tables: they may be broken after an underscore, and do not decide how wide their column is."""

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.typing import ExtensionMetadata

_LONG = 16


def soften(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Offer a browser a place to break a line after each underscore of a long name; a copy of the text is as it was."""
    if app.builder.format != "html":
        return
    for entry in doctree.findall(nodes.entry):
        for code in entry.findall(nodes.literal):
            if len(code.astext()) > _LONG and "_" in code.astext():
                *parts, last = code.astext().split("_")
                code.clear()
                for part in parts:
                    code.extend([nodes.Text(f"{part}_"), nodes.raw("", "<wbr>", format="html")])
                code.append(nodes.Text(last))


def setup(app: Sphinx) -> ExtensionMetadata:
    """Soften tables before they are written."""
    app.connect("doctree-resolved", soften)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
