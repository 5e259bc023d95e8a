"""The reference: every public name has its place in it, and what docstrings name is there."""

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import click
from docutils import nodes
from numpy.typing import ArrayLike
from pydantic import BaseModel
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.ext.napoleon import Config
from sphinx.ext.napoleon.docstring import NumpyDocstring
from sphinx.util import logging
from sphinx.util.nodes import make_refnode
from sphinx.util.typing import ExtensionMetadata, stringify_annotation

from murk.errors import MurkError

LOG = logging.getLogger(__name__)
PACKAGES = (
    "murk.privacy",
    "murk.task",
    "murk.stream",
    "murk.producers",
    "murk.populations",
    "murk.learners",
    "murk.monitoring",
)
# Inherited from River, and what a learner is for.
_KEPT = {"predict_one"}
_ARRAY_LIKE = stringify_annotation(ArrayLike, "smart")
_NUMPYDOC: Any = Config(napoleon_use_ivar=True, napoleon_use_rtype=False, napoleon_attr_annotations=False)


def public_names() -> Iterator[tuple[str, Any]]:
    """Yield each public name in full, and what it names."""
    for package in PACKAGES:
        module = import_module(package)
        for name in module.__all__:
            thing = getattr(module, name)
            # A former name is an alias, documented under its present one.
            if not inspect.isclass(thing) or thing.__name__ == name:
                yield f"{package}.{name}", thing


def check(app: Sphinx, env: BuildEnvironment) -> None:
    """Warn of public names that no page documents, and of those that say nothing of themselves."""
    documented = env.domains["py"].data["objects"]
    for name, thing in public_names():
        if name not in documented:
            LOG.warning("%s is public, and documented on no page of docs/api", name)
        for part, member in [("", thing), *(vars(thing).items() if inspect.isclass(thing) else ())]:
            code = inspect.isfunction(member) or isinstance(member, property | classmethod | staticmethod)
            if (code or inspect.isclass(member)) and not part.startswith("_") and not inspect.getdoc(member):
                LOG.warning("%s has no docstring", f"{name}.{part}".rstrip("."))


def read(app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Turn numpydoc into reStructuredText.

    Sphinx's own handler takes the first words of a property's docstring for its type if a colon follows them.
    """
    if not str(getattr(thing, "__module__", "murk")).startswith("murk"):
        lines[:] = _as_code(lines)
    kind: Any = "method" if what in ("property", "attribute") else what
    lines[:] = NumpyDocstring(list(lines), _NUMPYDOC, app, kind, name, thing, options).lines()


def read_help(app: Sphinx, context: click.Context, lines: list[str]) -> None:
    """Show what a command's help has in backticks as code."""
    lines[:] = _as_code(lines)


def _as_code(lines: list[str]) -> list[str]:
    return [re.sub(r"(?<!`)`([^`]+)`(?!`)", r"``\1``", line) for line in lines]


def sign(
    app: Sphinx, what: str, name: str, thing: Any, options: Any, signature: str | None, returns: str | None
) -> tuple[str, str | None] | None:
    """Sign a pydantic model by its fields and their defaults, and give numpy's types their short names.

    The constraints on a message's fields are in the page on the wire.
    """
    if not (inspect.isclass(thing) and issubclass(thing, BaseModel)):
        return (_arrays(signature), _arrays(returns) if returns else returns) if signature else None
    fields = [
        key if field.is_required() else f"{key}={field.get_default(call_default_factory=False)!r}"
        for key, field in thing.model_fields.items()
    ]
    return f"(*, {', '.join(fields)})", returns


def _arrays(text: str) -> str:
    text = text.replace(_ARRAY_LIKE, "ArrayLike")
    return re.sub(r"~numpy\.ndarray\[tuple\[~typing\.Any, \.\.\.\], ~numpy\.dtype\[(.*?)\]\]", r"NDArray[\1]", text)


def skip(app: Sphinx, what: str, name: str, thing: Any, skipped: bool, options: Any) -> bool | None:
    """Leave out what is inherited from elsewhere: River, pydantic and Python have pages of their own."""
    thing = getattr(thing, "fget", None) or getattr(thing, "func", None) or thing
    foreign = not str(getattr(thing, "__module__", None) or "murk").startswith("murk")
    return True if name == "model_config" or (foreign and name not in _KEPT) else None


def find(
    app: Sphinx, env: BuildEnvironment, node: addnodes.pending_xref, content: nodes.TextElement
) -> nodes.Element | None:
    """Find what a docstring names by its short name; types in signatures and known exceptions may stay words."""
    if node.get("reftype") == "exc" and node["reftarget"] in _exceptions():
        return content
    if node.get("refdomain") == "py":
        objects = env.domains["py"].data["objects"]
        found = [name for name in objects if name.endswith(f".{node['reftarget']}")]
        # The shortest is the class rather than a member of that name.
        nearest = [name for name in found if name.count(".") == min(one.count(".") for one in found)]
        if len(nearest) == 1:
            place = objects[nearest[0]]
            return make_refnode(app.builder, node["refdoc"], place.docname, place.node_id, content, nearest[0])
    above: nodes.Node | None = node
    while above is not None:
        if isinstance(above, addnodes.desc_signature):
            return content
        above = above.parent
    return None


def tidy(app: Sphinx, doctree: nodes.document) -> None:
    """Call attributes so, and put a dash before what is said of a parameter: it is two hyphens without smart quotes."""
    for field in doctree.findall(nodes.field):
        name, body = field.children
        if name.astext() == "Variables":
            name.children[:] = [nodes.Text("Attributes")]
        for text in list(body.findall(nodes.Text)):
            if text.startswith(" -- "):
                text.parent.replace(text, nodes.Text(f" – {text[4:]}"))


def _exceptions(base: type[Exception] = MurkError) -> set[str]:
    """Names of exceptions that docstrings may give without a place of their own in the reference."""
    names = {"pydantic.ValidationError", base.__name__}
    for one in base.__subclasses__():
        names |= _exceptions(one)
    return names


def setup(app: Sphinx) -> ExtensionMetadata:
    """Check the reference, and say what goes into it."""
    app.connect("env-check-consistency", check)
    app.connect("autodoc-process-docstring", read)
    app.connect("autodoc-process-signature", sign)
    app.connect("autodoc-skip-member", skip)
    app.connect("doctree-read", tidy)
    app.connect("missing-reference", find)
    if "sphinx_click" in app.extensions:
        app.connect("sphinx-click-process-description", read_help)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
