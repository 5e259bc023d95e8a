"""A public docstring stands alone: each parameter is explained where the reader is."""

import ast
import inspect
import re
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest
from pydantic import BaseModel

import murk

PACKAGES = ("murk.privacy", "murk.stream", "murk.producers", "murk.learners", "murk.monitoring")
PACKAGE = Path(murk.__file__).parent
# What stands in the place of an explanation: "As in :class:`X`", "as for `y`", "As `Z`."
ELSEWHERE = re.compile(r"\b[Aa]s (?:(?:in|for) (?::\w+:)?`|(?::\w+:)?`[A-Z])")
SECTIONS = re.compile(r"^(\w[\w ]*)\n-+\n", re.MULTILINE)


def entries(text, section):
    """Names in one section of a numpydoc docstring, each with its explanation."""
    parts = SECTIONS.split(text)
    body = dict(zip(parts[1::2], parts[2::2], strict=True)).get(section, "")
    found = re.findall(r"^(\*{0,2}\w[\w, *\n]*?)(?: : .*)?\n((?:    .*\n?|\n)+)", body + "\n", re.MULTILINE)
    return {name.strip("* "): text for names, text in found for name in re.split(r",\s*", names)}


def public_classes():
    for package in PACKAGES:
        module = import_module(package)
        for name in module.__all__:
            thing = getattr(module, name)
            if inspect.isclass(thing) and not getattr(thing, "_is_protocol", False):
                yield pytest.param(thing, id=name)


def parameters(thing):
    if issubclass(thing, BaseModel):
        return set()  # Releases and tasks are explained key by key on pages of their own.
    found = inspect.signature(thing).parameters.values()
    return {one.name for one in found if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)}


@pytest.mark.parametrize("thing", list(public_classes()))
def test_every_parameter_is_explained_where_the_reader_is(thing):
    text = inspect.getdoc(thing)
    explained = entries(text, "Parameters")
    assert parameters(thing) <= set(explained), parameters(thing) - set(explained)


@cache
def docstrings():
    """Every docstring of the package, public or not, with its place."""
    return tuple(
        (f"{path.relative_to(PACKAGE)}:{node.lineno}", ast.get_docstring(node) or "")
        for path in sorted(PACKAGE.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef | ast.FunctionDef)
    )


def test_no_docstring_is_written_as_joined_literals():
    """Quotes that end one line and begin the next belong to code, where they are joined; here they are shown."""
    assert not [place for place, text in docstrings() if re.search(r'"\n\s*"', text)]


def test_no_explanation_is_elsewhere():
    found = [
        (place, name, said)
        for place, text in docstrings()
        for section in ("Parameters", "Attributes", "Returns", "Raises")
        for name, said in entries(text, section).items()
        if ELSEWHERE.search(said)
    ]
    assert not found


def test_what_the_check_would_say():
    """It reads names that share a line, and finds each way of pointing elsewhere that there was."""
    parameters = "a, b\n    Two of them.\nc\n    As in :class:`Other`.\n"
    found = entries(f"One line.\n\nParameters\n----------\n{parameters}\nNotes\n-----\nNone.\n", "Parameters")
    assert set(found) == {"a", "b", "c"}
    assert ELSEWHERE.search(found["c"])
    for said in ("As for :class:`X`.", "As `Producer`.", "Numbers, as for :class:`X`", "As in `X`; or else"):
        assert ELSEWHERE.search(said)
    assert not ELSEWHERE.search("A number, as `size` gives it.")
