"""Formulas as MathML, which browsers show by themselves: no scripts, no fonts, no other hosts."""

from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.typing import ExtensionMetadata
from sphinx.writers.html5 import HTML5Translator

LOG = logging.getLogger(__name__)


def inline(translator: HTML5Translator, node: nodes.math) -> None:
    """Write a formula within a line."""
    translator.body.append(_mathml(translator, node, block=False))
    raise nodes.SkipNode


def display(translator: HTML5Translator, node: nodes.math_block) -> None:
    """Write a formula on a line of its own."""
    translator.body.append(f'<div class="formula">{_mathml(translator, node, block=True)}</div>\n')
    raise nodes.SkipNode


def _mathml(translator: HTML5Translator, node: nodes.Element, *, block: bool) -> Any:
    try:
        return tex2mathml(node.astext(), as_block=block)
    except MathError as error:
        LOG.warning("a formula cannot be read: %s", error, location=node)
        return translator.encode(node.astext())


def setup(app: Sphinx) -> ExtensionMetadata:
    """Register the renderer ``mathml``."""
    app.add_html_math_renderer("mathml", (inline, None), (display, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
