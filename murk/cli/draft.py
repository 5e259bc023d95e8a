"""Write a first task file for ``murk init``: columns from a short text, a prompt or a file that may be read."""

import calendar
import csv
import datetime
import json
import math
import random
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np

from murk._internal.numbers import many
from murk._internal.printable import escaped
from murk.errors import UserError
from murk.populations.records.files import slices
from murk.populations.records.records import Records
from murk.populations.records.tables import SLICE
from murk.task import Task
from murk.task.coding import Cell, as_boolean, as_number, day_number, is_absent, is_nan

_ERROR_CODE = "MURK-CLI-002"

MOST_DISTINCT: Final = 1_000_000  # limit of distinct values that are counted; beyond it, repetition is unknown
_SAMPLED: Final = 100_000  # size of the random sample of a column's numbers
_QUANTILES: Final = (0.05, 0.95)
_ENDS: Final = (0.005, 0.995)  # quantiles at which bounds are proposed if extremes lie far beyond
_FAR: Final = 0.7  # extremes lie far beyond if the quantiles' range is a smaller share of the range of all values
_FEW_DAYS: Final = 120  # distance in days between bounds of dates up to which they are not rounded to months
_STEPS: Final = 20  # largest number of steps between bounds; a step is 1, 2 or 5 times a power of ten
_NARROW: Final = 0.5  # the range of nine in ten values is stated if its width is below this share of the bounds' width
_IDENTIFIER: Final = re.compile(r"(^|[^a-z])(id|ids|uid|uuid|guid|pid|mrn|ssn)([^a-z]|$)")
_PEOPLE: Final = re.compile(
    r"patient|person|people|user|customer|client|member|subject|participant|respondent|employee|student|household"
)
_CAPITAL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")  # as in userId
_ROWS_OF_ONE: Final = 100  # largest mean number of rows per value of a column that may name people
_NUMBERED: Final = 1_000  # least number of rows whose different whole numbers, nearly without gaps, number them
_MOST_EMPTY: Final = 0.9  # largest share of missing values in a column that is proposed
_UNKNOWN: Final = "unknown"  # category of missing values
MOST_CATEGORIES: Final = 20  # limit of categories of a text column
GRAMMAR: Final = "LOW..HIGH for a number, FIRST..LAST for dates as in 2024-05-31, or A|B|C for categories"
_LAST_DAY: Final = datetime.date.max.toordinal()
_RANGE: Final = re.compile(r"(?:(?P<name>.+):)?(?P<low>[^:|]+?)\.\.(?P<high>[^:|]+)", re.DOTALL)
_DASHED: Final = re.compile(r"(?P<name>.+:\s*)?(?P<low>-?\d+(\.\d+)?)\s*[-\u2013]\s*(?P<high>-?\d+(\.\d+)?)", re.DOTALL)
_CHOICE: Final = re.compile(r"(?:(?P<name>.+?):)?(?P<choice>[^:|]+(?:\|[^:|]+)+)", re.DOTALL)
_FALSE_FIRST: Final = (("no", "yes"), ("false", "true"), ("0", "1"), ("off", "on"), ("n", "y"), ("f", "t"))
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


@dataclass(frozen=True, slots=True)
class Column:
    """Description of a column for its line in a task file."""

    name: str
    bounds: tuple[float, float] | tuple[datetime.date, datetime.date] | None = None  # bounds of a number or a date
    categories: tuple[str, ...] = ()  # categories of any other column
    without: str = ""  # reason why the column is left out; empty if it is not
    names_people: bool = False  # whether its values seem to name people, some of whom have several rows
    origin: str = "given"  # origin of the description, for the comment of its line
    # share of missing values and mean of the others; None if none are missing
    missing: tuple[float, float] | None = None
    typical: tuple[float, float] | None = None  # range of nine in ten values, if well within the bounds
    beyond: float = 0.0  # share of values beyond the bounds
    shares: tuple[float, ...] = ()  # share of each category, if read from a file
    gaps: float = 0.0  # share of rows without a category


def given(text: str) -> list[Column]:
    """Parse comma-separated columns, each with or without a description; raise `UserError` for an invalid one.

    >>> [(column.name, column.bounds, column.categories) for column in given('age:21..35, sex:f|m, "a, b"')]
    [('age', (21.0, 35.0), ()), ('sex', None, ('f', 'm')), ('a, b', None, ())]
    """
    columns = []
    for cell in next(csv.reader([text], skipinitialspace=True), []):
        name, description = _split(cell.strip())
        if not name:
            raise UserError(f"{cell!r} names no column: write NAME, or NAME: and {GRAMMAR}")
        columns.append(Column(name) if description is None else described(name, description))
    return columns


def described(name: str, text: str, origin: str = "given") -> Column:
    """Parse bounds or categories of a column; raise `UserError` for any other text."""
    text = text.strip()
    if match := _CHOICE.fullmatch(text):
        return Column(name, categories=tuple(map(str.strip, match["choice"].split("|"))), origin=origin)
    if match := _RANGE.fullmatch(text):
        ends = match["low"].strip(), match["high"].strip()
        bounds = _days(*ends) or _numbers(*ends)
        if bounds is not None:
            # Both are dates, or both are numbers.
            if not bounds[0] < bounds[1]:  # type: ignore[operator]
                raise UserError(f"low {ends[0]} is not below high {ends[1]} in the column {name!r}: write LOW..HIGH")
            return Column(name, bounds=bounds, origin=origin)
    raise UserError(f"{text!r} does not describe the column {name!r}: write {dashed(text) or GRAMMAR}")


def _days(low: str, high: str) -> tuple[datetime.date, datetime.date] | None:
    (first, low_kind), (last, high_kind) = day_number(low), day_number(high)
    if not low_kind == high_kind == Cell.FINE:
        return None
    if min(first, last) < 1 or max(first, last) > _LAST_DAY:
        raise UserError(f"{low}..{high}: dates must be in the years 1 to 9999")
    return datetime.date.fromordinal(first), datetime.date.fromordinal(last)


def _numbers(low: str, high: str) -> tuple[float, float] | None:
    (first, low_kind), (last, high_kind) = as_number(low), as_number(high)
    return (first, last) if low_kind == high_kind == Cell.FINE else None


def dashed(text: str) -> str:
    """Rewrite a range of numbers from LOW-HIGH to LOW..HIGH; return an empty text for anything else.

    >>> dashed("age: 21-35"), dashed("-5 - 5"), dashed("21..35")
    ('age: 21..35', '-5..5', '')
    """
    match = _DASHED.fullmatch(text.strip())
    return "" if match is None else f"{match['name'] or ''}{match['low']}..{match['high']}"


def _split(cell: str) -> tuple[str, str | None]:
    """Split a column's name, which may contain colons, from its description."""
    match = _RANGE.fullmatch(cell) or _CHOICE.fullmatch(cell)
    if match is None or not match["name"]:
        return ("" if match else cell), None
    return match["name"].strip(), cell[match.end("name") + 1 :]


def _is_identifier(name: str) -> bool:
    """Return whether a column's name says that it has identifiers: ``id``, ``case.id``, ``userId``."""
    return _IDENTIFIER.search(_CAPITAL.sub(" ", name).lower()) is not None


def _is_of_people(name: str) -> bool:
    return _PEOPLE.search(name.lower()) is not None


class _Summary:
    def __init__(self, name: str) -> None:
        self.name = name
        self.rows = self.absent = 0
        self.total = 0.0
        self.days: list[int] = []
        self.numbers: list[float] = []
        self.sample: list[float] = []
        self._draws = random.Random(0)
        self.kinds: Counter[str] = Counter()
        self.values: Counter[str] = Counter()
        self.distinct: set[int] = set()
        self.fractions = False

    def add(self, value: Any) -> None:
        if is_absent(value) or is_nan(value) or (isinstance(value, str) and not value.strip()):
            self.absent += 1
            return
        self.rows += 1
        text = value.strip() if isinstance(value, str) else str(value)
        if len(self.distinct) <= MOST_DISTINCT:
            self.distinct.add(hash(text))
        # Keep one more than a task can declare, to know that there are too many.
        if len(self.values) <= MOST_CATEGORIES or text in self.values:
            self.values[text] += 1
        if as_boolean(value) is not None:
            self.kinds["boolean"] += 1
            return
        day, cell = day_number(value)
        if cell == Cell.FINE:
            self.kinds["date"] += 1
            # Days beyond the calendar are left out: any bounds clamp them.
            if 1 <= day <= _LAST_DAY:
                self.days = [min([day, *self.days]), max([day, *self.days])]
                self._keep(float(day), self.kinds["date"])
            return
        number, wrong = as_number(value)
        if wrong:
            self.kinds["text"] += 1
            return
        self.kinds["number"] += 1
        self.fractions = self.fractions or not number.is_integer()
        self.total += number
        self.numbers = [min([number, *self.numbers]), max([number, *self.numbers])]
        self._keep(number, self.kinds["number"])

    def _keep(self, number: float, seen: int) -> None:
        """Add a number, the ``seen``-th, to the random sample, or leave it out at random (reservoir sampling)."""
        if seen <= _SAMPLED:
            self.sample.append(number)
        elif (index := self._draws.randrange(seen)) < _SAMPLED:
            self.sample[index] = number

    def _all_equal(self, values: Sequence[str]) -> bool:
        """Return whether all values are equal, whatever their spelling: 1 and 1.0, or two times of one day."""
        as_read: dict[str, Sequence[Any]] = {
            "number": self.numbers,
            "date": self.days,
            "boolean": [value.lower() for value in values],
        }
        kind = next(iter(self.kinds)) if len(self.kinds) == 1 else ""
        return len(set(as_read.get(kind, values))) == 1

    def _names_people(self) -> bool:
        """Return whether values may name people: by the column's name, such as ``id``, or since texts are repeated."""
        different = len(self.distinct)
        if not MOST_CATEGORIES < different <= MOST_DISTINCT or set(self.kinds) & {"date", "boolean"}:
            return False
        identifier, people = _is_identifier(self.name), _is_of_people(self.name)
        if self.rows > _ROWS_OF_ONE * different and not (identifier and people):
            return False
        if identifier or people:
            return set(self.kinds) == {"text"} or not self.fractions
        return set(self.kinds) == {"text"} and different < self.rows

    def _numbers_rows(self) -> bool:
        """Return whether whole numbers count the rows, or are all different and have few gaps."""
        first, last = self.numbers
        if self.fractions or self.rows <= MOST_CATEGORIES:
            return False
        counted = last - first == self.rows - 1 and first in (0.0, 1.0)
        return counted or (len(self.distinct) == self.rows >= _NUMBERED and last - first < 2.0 * self.rows)

    def _typical(self, low: float, high: float) -> tuple[float, float] | None:
        """Return the range of the middle 90% of the numbers, rounded outwards, if it is well within the bounds."""
        first, last = np.quantile(self.sample, _QUANTILES).tolist()
        if not first < last:
            return None
        first, last = rounded(first, last)
        first, last = max(low, first), min(high, last)
        return (first, last) if first < last and last - first < _NARROW * (high - low) else None

    def _ends(
        self, least: float, most: float, outwards: Callable[[float, float], tuple[float, float]] = lambda *ends: ends
    ) -> tuple[float, float, float]:
        """Return bounds without extremes that are far from all other values, and the share of values beyond them."""
        low, high = np.quantile(self.sample, _ENDS).tolist()
        if not (low < high and high - low < _FAR * (most - least)):
            low, high = least, most
        first, last = outwards(low, high)
        sample = np.array(self.sample)
        return first, last, float(np.mean((sample < first) | (sample > last)))

    def _shares(self, categories: Sequence[str]) -> tuple[float, ...]:
        """Return the share of each category, as they are written in the file."""
        total = sum(self.values.values())
        return tuple(self.values[category] / total for category in categories)

    def column(self, origin: str) -> Column:
        values, kinds = sorted(self.values), set(self.kinds)
        column = partial(Column, self.name, origin=origin)
        if not self.rows:
            return column(without="empty in every row")
        gaps = self.absent / (self.absent + self.rows)
        if gaps > _MOST_EMPTY:
            return column(without=f"empty in {gaps:.1%} of the rows")
        if self._all_equal(values):
            return column(without="the same value in every row")
        if self._names_people():
            thing = _is_identifier(self.name) and not _is_of_people(self.name)
            reason = "an identifier" if thing else "seems to name people"
            reason += f": {len(self.distinct):,} values in {self.rows:,} rows"
            if self.absent:
                # Rows without a name would all be one person.
                return column(without=f"{reason}, and {many(self.absent, 'row')} without one")
            return column(without=reason, names_people=len(self.distinct) < self.rows)
        if kinds == {"boolean"}:
            yes = sum(count for value, count in self.values.items() if as_boolean(value)) / sum(self.values.values())
            return column(categories=("no", "yes"), shares=(1.0 - yes, yes), gaps=gaps)
        if kinds == {"date"}:
            if len(set(self.days)) < 2:
                return column(without="fewer than two different dates in the years 1 to 9999")
            first, last, beyond = self._ends(float(self.days[0]), float(self.days[1]))
            return column(bounds=whole_months(int(first), int(last)), beyond=beyond)
        if len(values) == 2:
            two = _two(values)
            return column(categories=two, shares=self._shares(two), gaps=gaps)
        identifier = _is_identifier(self.name) and not self.fractions
        if identifier and len(values) > MOST_CATEGORIES:
            return column(without="an identifier, by its name")
        if kinds == {"number"} and not identifier:
            first, last = self.numbers
            if self._numbers_rows():
                return column(without="row numbers")
            missing = (self.absent / (self.absent + self.rows), self.total / self.rows) if self.absent else None
            low, high, beyond = self._ends(first, last, rounded)
            return column(bounds=(low, high), missing=missing, typical=self._typical(low, high), beyond=beyond)
        if len(values) > MOST_CATEGORIES:
            return column(without=f"text with more than {MOST_CATEGORIES} different values")
        ordered = tuple(sorted(values, key=lambda value: (-self.values[value], value)))
        return column(categories=ordered, shares=self._shares(ordered), gaps=gaps)


def looked_at(records: Records, origin: str) -> list[Column]:
    """Describe the columns of records, with bounds rounded outwards and the most frequent category first."""
    names = list(dict.fromkeys(records.table([]).names))
    summaries = [_Summary(name) for name in names]
    for columns in _slices(records, names):
        for summary in summaries:
            for value in columns[summary.name]:
                summary.add(value)
    found = [summary.column(origin) for summary in summaries]
    people = proposed_person(found)
    if people is None:
        return found
    numeric = [summary.name for summary in summaries if set(summary.kinds) == {"number"}]
    counters = _counters(records, people, numeric)
    return [
        Column(column.name, without=f"counts the rows of each {people}", origin=origin)
        if column.name in counters and not column.without
        else column
        for column in found
    ]


def proposed_person(columns: Sequence[Column]) -> str | None:
    """Return the column to name people by, one whose name speaks of people if there is any; None without columns."""
    named = [column.name for column in columns if column.names_people]
    return max(named, key=_is_of_people, default=None)


def _slices(records: Records, names: Sequence[str]) -> Iterator[Mapping[str, Any]]:
    table = records.table(names)
    return (table.columns(chunk, numbers, names) for numbers, chunk in slices(table, SLICE))


def _counters(records: Records, people: str, names: Sequence[str]) -> frozenset[str]:
    """Return the columns that count each person's rows: visits, waves, attempts."""
    last: dict[str, dict[Any, float]] = {name: {} for name in names}
    counting = set(names)
    for columns in _slices(records, [people, *names]):
        for name in tuple(counting):
            before = last[name]
            for person, value in zip(columns[people], columns[name], strict=True):
                number = _whole(value)
                if number is None or number - before.get(person, number - 1 if number in (0, 1) else math.nan) != 1:
                    counting.discard(name)
                    break
                before[person] = number
        if not counting:
            break
    return frozenset(counting)


def _whole(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if number.is_integer() else None


def rounded(low: float, high: float) -> tuple[float, float]:
    """Round bounds outwards to a round step; return them unchanged if that is not possible.

    >>> rounded(312.0, 198233.5), rounded(17.3, 88.2), rounded(21.0, 35.0), rounded(-1e308, 1e308)
    ((0.0, 200000.0), (15.0, 90.0), (21.0, 35.0), (-1e+308, 1e+308))
    """
    span = high - low
    ten = 10.0 ** math.floor(math.log10(span / _STEPS)) if math.isfinite(span) and span > 1e-300 else 0.0
    step = next((by * ten for by in (1.0, 2.0, 5.0) if span <= _STEPS * by * ten), 10.0 * ten)
    if step > 0.0:
        ends = [float(f"{end * step:.12g}") for end in (math.floor(low / step), math.ceil(high / step))]
        # Twelve digits may be too few for ends that are close together.
        if -math.inf < ends[0] <= low and high <= ends[1] < math.inf:
            return ends[0], ends[1]
    return low, high


def whole_months(first: int, last: int) -> tuple[datetime.date, datetime.date]:
    """Return dates of ordinal numbers, rounded outwards to whole months unless that adds a large share.

    >>> [
    ...     str(day)
    ...     for day in whole_months(datetime.date(2024, 1, 9).toordinal(), datetime.date(2024, 12, 2).toordinal())
    ... ]
    ['2024-01-01', '2024-12-31']
    """
    low, high = (datetime.date.fromordinal(min(max(day, 1), _LAST_DAY)) for day in (first, last))
    if last - first < _FEW_DAYS:
        return low, high
    return low.replace(day=1), high.replace(day=calendar.monthrange(high.year, high.month)[1])


def _two(values: Sequence[str]) -> tuple[str, ...]:
    for pair in _FALSE_FIRST:
        if sorted(value.lower() for value in values) == sorted(pair):
            return tuple(sorted(values, key=lambda value: pair.index(value.lower())))
    return tuple(values)


def draft(
    name: str,
    columns: Sequence[Column],
    target: Column,
    promise: dict[str, Any],
    rate: float | None = None,
    protocol: str | None = None,
    why: str = "",
    cautions: Sequence[str] = (),
) -> str:
    """Return the text of a task file; without columns besides the target, the task learns a mean or shares.

    ``why`` is a comment on the protocol, ``cautions`` are comments on columns. Raises `UserError` if no other column is
    left, the target is unsuitable, or ``rate`` is given for a target that is not binary.
    """
    others = [column for column in columns if column.name != target.name]
    features = [column for column in others if not column.without]
    if others and not features:
        raise UserError("no column is left to learn from: name some with --columns, or only the target, for its mean")
    body = [(line, _comment(column)) for column in features for line in [_feature(column)]]
    body.append((_target(target, rate), _comment(target)))
    width = min(max(len(line) for line, _ in body), 90)
    simulated = any("SIMULATION" in column.origin for column in (*columns, target))
    lines = [_HEAD + (_SIMULATION if simulated else ""), f"name: {name}", "features:" if others else "features: []"]
    lines += [f"{line:<{width}}  # {origin}" for line, origin in body[:-1]]
    lines += [
        f"  # left out: {word(column.name)}, {column.without}  # {column.origin}"
        for column in columns
        if column.without and column.name != target.name
    ]
    for caution in cautions:
        words = f"caution: {caution}"
        lines += textwrap.wrap(escaped(words), 110, initial_indent="  # ", subsequent_indent="  #   ")
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

    >>> word("age"), word("no"), word("income: gross"), word("01")
    ('age', '"no"', '"income: gross"', '"01"')
    >>> word("a\\u2028public: {set_aside: 9}")
    '"a\\\\u2028public: {set_aside: 9}"'
    """
    plain = _PLAIN.fullmatch(text) and text.lower() not in _READ_OTHERWISE
    return text if plain else escaped(json.dumps(text, ensure_ascii=False))


def _comment(column: Column) -> str:
    """Return the origin of a column's line, and the share of values that its bounds leave out."""
    share = f"; {100.0 * column.beyond:.2g}% of the values lie beyond, and are clamped" if column.beyond else ""
    return f"{column.origin}{share}"


def _feature(column: Column) -> str:
    return f"  - {{name: {word(column.name)}, {_holds(column)}}}"


def _target(column: Column, rate: float | None) -> str:
    name = word(column.name)
    if column.without:
        raise UserError(f"the target {column.name!r} is {column.without}: name another one with --target")
    if rate is not None and len(column.categories) != 2:
        raise UserError(f"--rate {rate:g}: the target {column.name!r} does not have two values; remove --rate")
    if column.bounds is not None:
        if isinstance(column.bounds[0], datetime.date):
            raise UserError(f"the target {column.name!r} holds dates, which cannot be learned: name another column")
        return f"target: {{name: {name}, kind: real, {_holds(replace(column, missing=None))}}}"
    if len(column.categories) == 2:
        negative, positive = map(word, column.categories)
        rate = float(f"{column.shares[1]:.2g}") if rate is None and column.shares else rate
        rate_text = "" if rate is None or not 0.0 < rate < 1.0 else f", rate: {rate:g}"
        return f"target: {{name: {name}, kind: binary, positive: {positive}, negative: {negative}{rate_text}}}"
    classes = ", ".join(map(word, column.categories))
    # The shares add up to 1 after rounding, too.
    least = [round(share, 3) for share in column.shares[1:]]
    shares = [round(1.0 - sum(least), 3), *least] if column.shares else []
    rate_text = f", rate: [{', '.join(f'{share:g}' for share in shares)}]" if shares and min(shares) > 0.0 else ""
    return f"target: {{name: {name}, kind: classes, classes: [{classes}]{rate_text}}}"


def _holds(column: Column) -> str:
    if column.bounds is None:
        categories, missing_text = column.categories, ""
        if column.gaps:
            # Missing values get a category of their own: coded as 0 they would bias the effects of the others.
            categories = categories if _UNKNOWN in categories else (*categories, _UNKNOWN)
            missing_text = f", missing: {_UNKNOWN}, missing_share: {column.gaps:.2g}"
        return f"categories: [{', '.join(map(word, categories))}]{missing_text}"
    low, high = column.bounds
    if isinstance(low, datetime.date):
        return f"kind: date, low: {low}, high: {high}"
    missing_text = ""
    if column.missing is not None:
        # Code missing values as the mean of the other values: this biases the effect least.
        share, mean = column.missing
        missing_text = f", missing: {min(max(float(f'{mean:.3g}'), low), high):g}, missing_share: {share:.2g}"
    if column.typical is not None:
        missing_text += f", typical: [{', '.join(map(_shortest, column.typical))}]"
    return f"low: {_shortest(low)}, high: {_shortest(high)}{missing_text}"


def _shortest(value: Any) -> str:
    short = f"{value:.12g}"
    return short if float(short) == value else repr(value)
