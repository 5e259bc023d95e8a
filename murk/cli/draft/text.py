"""Write a first task file as text."""

from __future__ import annotations

import datetime
import json
import re
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from murk._printable import escaped
from murk.cli.draft.columns import Column
from murk.errors import UserError
from murk.stream import Task

_PLAIN: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*( [A-Za-z0-9_]+)*|[A-Za-z][A-Za-z0-9_.-]*")
_READ_OTHERWISE: Final = frozenset(["yes", "no", "on", "off", "true", "false", "null", "y", "n"])
_HEAD: Final = """\
# A first task, written by `murk init`. It is public: it states features, target and guarantee.
# Review every line before asking people. All keys: docs/task-file.md.
"""
_SIMULATION: Final = """\
#
# SIMULATION. Lines marked so depend on people's own records. Use them with simulated noise (--seed) only: for real
# people such bounds and categories disclose the content of records. Replace them by public ones.
"""
_TAIL: Final = """
# Guarantee of each release. mu = 1 is strong (nobody tells two records apart more than 69% of the time), 4 is weak.
privacy:
  guarantee: {promise}
# levels: {{strict: {{gdp: {{mu: 0.5}}}}}}    # further guarantees that people can choose
# per_person: {{gdp: {{mu: 4.0}}}}          # a person's cap for this task, if they release more than once

# target: {{..., rate: 0.06}}               # share of positives, if publicly known, for forecasts
# features: {{..., typical: [0, 2]}}        # range of nine in ten values, if publicly known, for forecasts

# features: {{..., missing: 1}}             # value for missing or undeclared values; the default, the range's middle,
#                                            biases if most values lie elsewhere; or missing: indicator
# public: {{file: rows.csv}}  # public rows of other people's features; `murk plan` shows their worth
"""


def draft(
    name: str, columns: Sequence[Column], target: Column, promise: dict[str, Any], rate: float | None = None,
    protocol: str | None = None, why: str = "",
) -> str:  # fmt: skip
    """Return a task file's text; ``why`` is a comment on the protocol.

    Raises `UserError` if no feature is left, the target is unsuitable, or ``rate`` is given for a target that is not
    binary.
    """
    features = [column for column in columns if not column.without and column.name != target.name]
    if not features:
        raise UserError("no column is left to learn from: name some with --columns")
    body = [_feature(column) for column in features] + [_target(target, rate)]
    width = min(max(len(line) for line, _ in body), 90)
    simulated = any("SIMULATION" in column.origin for column in (*columns, target))
    lines = [_HEAD + (_SIMULATION if simulated else ""), f"name: {name}", "features:"]
    lines += [f"{line:<{width}}  # {origin}" for line, origin in body[:-1]]
    lines += [
        f"  # left out: {word(column.name)}, {column.without}  # {column.origin}"
        for column in columns
        if column.without and column.name != target.name
    ]
    line, origin = body[-1]
    lines.append(f"{line:<{width}}  # {origin}")
    if why:
        lines += ["", *textwrap.wrap(escaped(why), 110, initial_indent="# ", subsequent_indent="# ")]
    if protocol is not None:
        lines.append(f"protocol: {protocol}")
    text = "\n".join(lines) + "\n" + _TAIL.format(promise=json.dumps(promise).replace('"', ""))
    Task.parse(text, source="the first task")
    return text


def word(text: str) -> str:
    """Quote a name or a category so that every YAML parser reads it as text.

    Examples
    --------
    >>> word("age"), word("no"), word("income: gross"), word("01")
    ('age', '"no"', '"income: gross"', '"01"')
    >>> word("a\\u2028public: {set_aside: 9}")
    '"a\\\\u2028public: {set_aside: 9}"'
    """
    plain = _PLAIN.fullmatch(text) and text.lower() not in _READ_OTHERWISE
    return text if plain else escaped(json.dumps(text, ensure_ascii=False))


def _feature(column: Column) -> tuple[str, str]:
    return f"  - {{name: {word(column.name)}, {_holds(column)}}}", column.origin


def _target(column: Column, rate: float | None) -> tuple[str, str]:
    name = word(column.name)
    if column.without:
        raise UserError(f"the target {column.name!r} is {column.without}: name another one with --target")
    if rate is not None and len(column.categories) != 2:
        raise UserError(f"--rate {rate:g}: the target {column.name!r} does not have two values; remove --rate")
    if column.bounds is not None:
        if isinstance(column.bounds[0], datetime.date):
            raise UserError(f"the target {column.name!r} holds dates, which cannot be learned: name another column")
        return f"target: {{name: {name}, kind: real, {_holds(replace(column, missing=None))}}}", column.origin
    if len(column.categories) == 2:
        negative, positive = map(word, column.categories)
        known = "" if rate is None else f", rate: {rate:g}"
        line = f"target: {{name: {name}, kind: binary, positive: {positive}, negative: {negative}{known}}}"
        return line, column.origin
    classes = ", ".join(map(word, column.categories))
    return f"target: {{name: {name}, kind: classes, classes: [{classes}]}}", column.origin


def _holds(column: Column) -> str:
    if column.bounds is None:
        return f"categories: [{', '.join(map(word, column.categories))}]"
    low, high = column.bounds
    if isinstance(low, datetime.date):
        return f"kind: date, low: {low}, high: {high}"
    known = ""
    if column.missing is not None:
        # Code missing values as the mean of the others, which biases least.
        share, mean = column.missing
        known = f", missing: {min(max(float(f'{mean:.3g}'), low), high):g}, missing_share: {share:.2g}"
    if column.typical is not None:
        known += f", typical: [{', '.join(map(_number, column.typical))}]"
    return f"low: {_number(low)}, high: {_number(high)}{known}"


def _number(value: Any) -> str:
    short = f"{value:.12g}"
    return short if float(short) == value else repr(value)
