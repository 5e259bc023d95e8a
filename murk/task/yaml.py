"""Read task files with strict and predictable YAML rules.

Words are those of YAML 1.2: only ``true`` and ``false`` are booleans, and every number is decimal. Names and categories
are text as written. Repeated keys, aliases, tags and deep nesting are refused, so that no file expands beyond its own
size. Invisible characters are refused, too, since people must be able to see what they agree to.
"""

import re
from pathlib import Path
from typing import Any, Final

import yaml

from murk._internal.printable import unseen_character
from murk.errors import UserError
from murk.task.errors import Path as KeyPath
from murk.task.errors import path_text, shown

_ERROR_CODE = "MURK-TASK-002"

MOST_BYTES: Final = 1_000_000
DEEPEST: Final = 16
MOST_NODES: Final = 50_000  # most keys, values and lists; a task with 1,000 features has about 8,000

# Scalars below these keys are text as written.
TEXT_KEYS: Final = frozenset({"name", "categories", "classes", "positive", "negative", "file"})

_INTEGER = re.compile(r"[-+]?[0-9]{1,18}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NAMED = re.compile(rf"(^|[\s{{,-])({'|'.join(sorted(TEXT_KEYS))})\s*:")
_SPECIAL = {"true": True, "false": False, "null": None, "~": None, "": None}
_NOT_FINITE = re.compile(r"([-+]?\.(inf|Inf|INF))|\.(nan|NaN|NAN)")


class _Composer(yaml.SafeLoader):
    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - PyYAML's own way
    depth = 0
    nodes = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        mark = event.start_mark
        if isinstance(event, yaml.AliasEvent):
            raise yaml.MarkedYAMLError(problem="aliases (*name) are not read; write it out", problem_mark=mark)
        if event.tag:
            raise yaml.MarkedYAMLError(problem=f"the tag {shown(event.tag)} is not read; remove it", problem_mark=mark)
        self.nodes += 1
        if self.nodes > MOST_NODES:
            raise yaml.MarkedYAMLError(problem=f"more than {MOST_NODES:,} keys and values", problem_mark=mark)
        self.depth += 1
        if self.depth > DEEPEST:
            raise yaml.MarkedYAMLError(problem="nested too deeply", problem_mark=mark)
        node: yaml.Node | None = super().compose_node(parent, index)
        self.depth -= 1
        return node


def read_file(path: str | Path, what: str) -> str:
    """Return the text of a UTF-8 file; raise `UserError` if it cannot be read. ``what`` names its kind."""
    try:
        return Path(path).read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); give the path of a {what} file") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 text (at byte {error.start}); save it as UTF-8") from None


def read_yaml(text: str, source: str) -> tuple[dict[str, Any], dict[KeyPath, int]]:
    r"""Return the content of a task file, and the line of each key and item.

    Raises `UserError`, naming the line that breaks a rule of this module.

    >>> read_yaml("name: no\nlow: 1e-6", "a task")
    ({'name': 'no', 'low': 1e-06}, {('name',): 1, ('low',): 2})
    """
    node = _compose(text, source)
    if node is None:
        raise UserError(f"{source}: empty; a task needs name, features, target and privacy.guarantee")
    if not isinstance(node, yaml.MappingNode):
        raise UserError(f"{source}, line {_line(node)}: not a mapping; write keys and values, as in 'name: my-task'")
    lines: dict[KeyPath, int] = {}
    content: dict[str, Any] = _build(node, (), source, lines)
    return content, lines


def read_texts(text: str, source: str) -> Any:
    r"""Return the content of any small YAML file, with the same limits and every scalar as text.

    Raises `UserError`, naming the line that breaks a rule of this module.

    >>> read_texts("no: 1e-6\non: [2]", "a file")
    {'no': '1e-6', 'on': ['2']}
    """
    node = _compose(text, source)
    return None if node is None else _texts(node)


def _texts(node: yaml.Node) -> Any:
    if isinstance(node, yaml.MappingNode):
        return {str(key.value): _texts(value) for key, value in node.value}
    return [_texts(item) for item in node.value] if isinstance(node, yaml.SequenceNode) else node.value


def _compose(text: str, source: str) -> yaml.Node | None:
    if len(text) > MOST_BYTES:
        raise UserError(f"{source}: {len(text)} characters; at most {MOST_BYTES} are read")
    unseen = unseen_character(text)
    if unseen is not None:
        raise UserError(f"{source}, line {unseen[0]}: not readable as YAML: {unseen[1]}")
    try:
        node: yaml.Node | None = _Composer(text).get_single_node()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{source}, line {mark.line + 1}" if mark else source
        message = f"{where}: not readable as YAML: {error.problem or error.context}"
        raise UserError(message + _quoting(text, error)) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise UserError(f"{source}, line {line}: not readable as YAML: {error.reason}; remove the character") from None
    return node


def _quoting(text: str, error: yaml.MarkedYAMLError) -> str:
    """Suggest quotes if the text that cannot be read is next to a name or a category."""
    lines = text.splitlines()
    marks = {mark.line for mark in (error.problem_mark, error.context_mark) if mark and mark.line < len(lines)}
    if not any(_NAMED.search(lines[number]) for number in marks):
        return ""
    return '; quote the name or value if it has a character that YAML reads, as in name: "income: gross"'


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _build(node: yaml.Node, path: KeyPath, source: str, lines: dict[KeyPath, int]) -> Any:
    if isinstance(node, yaml.MappingNode):
        return _build_mapping(node, path, source, lines)
    if isinstance(node, yaml.SequenceNode):
        items = []
        for index, item in enumerate(node.value):
            lines[(*path, index)] = _line(item)
            items.append(_build(item, (*path, index), source, lines))
        return items
    quoted = isinstance(node, yaml.ScalarNode) and node.style is not None
    as_text = quoted or bool(node.value and not TEXT_KEYS.isdisjoint(path[-2:]))
    return node.value if as_text else _scalar(node.value)


def _build_mapping(node: yaml.MappingNode, path: KeyPath, source: str, lines: dict[KeyPath, int]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    for key_node, value_node in node.value:
        where = f"{source}, line {_line(key_node)}"
        if not isinstance(key_node, yaml.ScalarNode):
            raise UserError(f"{where}: {path_text(path)}: a key that is not a word; quote a value that holds {{ or [")
        key = key_node.value
        if key in content:
            first = lines[(*path, key)]
            raise UserError(f"{where}: {path_text((*path, key))}: given twice, first in line {first}; remove one")
        lines[(*path, key)] = _line(key_node)
        content[key] = _build(value_node, (*path, key), source, lines)
    return content


def _scalar(text: str) -> Any:
    if text.lower() in _SPECIAL and text in (text.lower(), text.upper(), text.capitalize()):
        return _SPECIAL[text.lower()]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    if _NOT_FINITE.fullmatch(text):
        return float(text.replace(".", "", 1))
    return text
