"""Public covariates from a file, and detection of the people themselves in it.

Rows are compared by 64-bit hashes, in memory only: of the coded features, and of all columns that both files have. Each
rule except `distinct` has an error probability below one in a million for a sample of other people from the same
population. With a few coarse features, a shuffled part of the people cannot be distinguished from any other sample. The
result depends on people's records, so with real noise `OverlapError` is only a caution to the file's holder.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from murk._internal.arrays import Integers, Words
from murk.errors import UserError
from murk.populations.records.files import Table, open_table, slices
from murk.populations.records.records import Records, open_records
from murk.task.coding import Cell, exact_number, is_nan
from murk.task.task import Task

if TYPE_CHECKING:
    from murk.populations.file_source import FileSource
    from murk.task.learning import Covariates

_ERROR_CODE = "MURK-DATA-001"


def public_covariates(path: Path, task: Task) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the distinct coded features of a file and how often each occurs; the target is not read.

    For features with a ``missing_share``, further values are removed until that share is missing: pseudorandomly, and
    the same ones at every reading. Raises UserError if the file cannot be read, lacks a column, has fewer than two
    rows, or has an undeclared value.
    """
    coding = task.coding
    table = open_table(path, list(coding.columns))
    records = list(table.rows(0))
    if len(records) < 2:
        raise UserError(f"{path} has {len(records)} rows: a sample of public covariates needs at least 2")
    rows = range(len(records))
    columns = table.columns(records, rows, coding.columns)
    coded = coding.encode(columns, target=False)
    stated = [feature.missing_share for feature in task.features]
    for row, column in zip(*np.nonzero(coded.cells[:, : len(stated)] >= Cell.MISSING), strict=True):
        name, cell = coded.columns[column], Cell(int(coded.cells[row, column]))
        if cell == Cell.MISSING and stated[column] is not None:
            continue
        raise UserError(
            f"{path}, row {row + 1}, column {name!r}: the value {cell.describe()}. "
            "Public covariates must be complete and declared: correct it, leave the row out, or state in the task "
            "which share of people's values is missing (missing_share)"
        )
    if any(stated):
        absent = left_out(coded.cells[:, : len(stated)] == Cell.MISSING, stated)
        thinned = {
            name: [None if out else value for value, out in zip(columns[name], absent[:, index].tolist(), strict=True)]
            for index, name in enumerate(coding.columns)
        }
        coded = coding.encode(thinned, target=False)
    points, counts = np.unique(coded.x, axis=0, return_counts=True)
    return points, counts.astype(np.int64)


def left_out(missing: NDArray[np.bool_], stated: Sequence[float | None]) -> NDArray[np.bool_]:
    """Return which values (m, features) to treat as missing, so that each feature's share (if any) is missing."""
    missing = missing.copy()
    for column, share in enumerate(stated):
        if share is None:
            continue
        more = round(share * len(missing)) - int(missing[:, column].sum())
        if more > 0:
            rng = np.random.Generator(np.random.Philox(key=[0x6D697373, column]))
            missing[rng.choice(np.flatnonzero(~missing[:, column]), size=more, replace=False), column] = True
    return missing


CHUNK: Final = 65_536
UNLIKELY: Final = math.log(1e-6)
RUNS: Final = 32  # consecutive runs of equal rows that both files share only if one was copied
FEWEST: Final = 5  # fewer shared rare rows are never evidence, since they may be chance; but see `distinct`
ENOUGH: Final = 100  # with fewer people, the share of people who are alike cannot be estimated
_ALIKE: Final = 0.01
_MANY: Final = 0.1

_SAME = "its rows are those of the people, whatever their order, format or further columns"
_CONSECUTIVE = "it has consecutive rows in the same order as the people's"
_IN_ORDER = "its rows are a part of the people's, in their order"
_RARE = "it shares rows with the people that are too rare to be shared by chance"
_DISTINCT = "it shares rows with the people, hardly two of whom are alike; if they are other people's, leave them out"


class OverlapError(UserError):
    """People are recognised in a public sample."""


def check_apart(source: FileSource, path: Path) -> None:
    """Raise an OverlapError, naming the evidence, if public covariates hold rows of the people who release."""
    task = source.task
    if source.path is not None and path.exists() and source.path.samefile(path):
        raise UserError(_refusal(str(path), source, "it is the people's own file"))
    public_records = open_records(path)
    private, public = (_table(records, source, task.coding.columns) for records in (source.records, public_records))
    shared = [name for name in private.names if name in public.names and name not in task.coding.columns]
    shared = [name for name in shared if private.names.count(name) == public.names.count(name) == 1]
    wanted = [*task.coding.columns, *shared]
    tables = [_read(_table(records, source, wanted), task, shared) for records in (source.records, public_records)]
    telling = [index for index in range(len(shared)) if any(_is_repetitive(table[1][index]) for table in tables)]
    grains = [[table[0] for table in tables]]
    if telling:
        grains.append([_mixed([table[0], *(table[1][index] for index in telling)]) for table in tables])
    people = _person_hashes(source)
    for mine, theirs in grains:
        copied = evidence(mine, theirs)
        if copied is None and people is not None:
            # Count a person's identical rows once.
            _, first = np.unique(_mixed([mine, people]), return_index=True)
            copied = evidence(mine[np.sort(first)], theirs)
        if copied is not None:
            raise OverlapError(_refusal(str(path), source, copied))


def check_carried(source: FileSource, covariates: Covariates) -> None:
    """Refuse people whose records are in the public covariates of a task's document, which have no order."""
    task = source.task
    mine, _ = _read(_table(source.records, source, task.coding.columns), task, [])
    theirs = np.repeat(hashed(covariates.points), covariates.counts)
    copied = _SAME if same_rows(mine, theirs) else _scattered(mine, theirs)
    if copied is not None:
        raise OverlapError(_refusal(f"the public sample of the task {task.name!r}", source, copied))


def evidence(mine: Words, theirs: Words) -> str | None:
    """Describe the evidence that rows were copied; None if an independent sample may look the same."""
    if same_rows(mine, theirs):
        return _SAME
    if consecutive(mine, theirs):
        return _CONSECUTIVE
    if in_order(mine, theirs):
        return _IN_ORDER
    return _scattered(mine, theirs)


def _scattered(mine: Words, theirs: Words) -> str | None:
    if rare(mine, theirs):
        return _RARE
    return _DISTINCT if distinct(mine, theirs) else None


def same_rows(mine: Words, theirs: Words) -> bool:
    """Return whether both have the same rows, equally often."""
    return len(mine) == len(theirs) and bool(np.array_equal(np.sort(mine), np.sort(theirs)))


def rare(mine: Words, theirs: Words) -> bool:
    """Return whether the files share so many rare rows that one was probably copied from the other.

    Of rows that occur twice in two independent samples of one population together, with sizes in the ratio r, an
    expected share 2 r / (1 + r)^2 has one copy in each; a larger share is evidence. If the pairs within the public file
    show that it is denser, r is moved towards 1. Of rows that occur once in both together, an expected share
    r / (1 + r) is in the public file; a smaller one is evidence.
    """
    private, public = _row_counts(mine, theirs)
    pairs = private + public == 2
    split = int(np.sum(pairs & (private == 1)))
    inside, outside = int(np.sum(pairs & (private == 2))), int(np.sum(pairs & (public == 2)))
    if split < FEWEST:
        return False
    of = split + inside + outside
    ratio = len(theirs) / len(mine)
    # Rows that only the public file has: if there are many, the file is not a part of the people.
    alone, new = int(np.sum(private + public == 1)), int(np.sum(public[private == 0]))
    if 2 * split > of * _split_share(ratio) and _log_tail(alone - new, alone, 1.0 / (1.0 + ratio)) < UNLIKELY:
        return True
    seen = math.sqrt(outside / inside) if inside else math.inf if outside else ratio
    low, high = min(ratio, seen), max(ratio, seen)
    return _log_tail(split, of, _split_share(min(max(low, 1.0), high))) < UNLIKELY


def distinct(mine: Words, theirs: Words) -> bool:
    """Return whether the files share a row although almost all people have different records.

    In two samples of one population, w rows that recur within a sample predict w s / (1 - s) shared rows, with s = 2 r
    / (1 + r)^2 as in `rare`. More than four times that is refused; so is any shared row if none recurs. This refuses an
    independent sample with a probability of at most about 1/4; after a false refusal, leaving out the shared rows costs
    little.
    """
    private, public = _row_counts(mine, theirs)
    if len(mine) < ENOUGH or int(private[private > 1].sum()) > _ALIKE * len(mine):
        return False
    split, recurring = _split_share(len(theirs) / len(mine)), int(np.sum(private > 1) + np.sum(public > 1))
    return int(np.sum((private > 0) & (public > 0))) > 4.0 * recurring * split / (1.0 - split)


def _row_counts(mine: Words, theirs: Words) -> tuple[Integers, Integers]:
    values, indices = np.unique(np.concatenate([mine, theirs]), return_inverse=True)
    private = np.bincount(indices[: len(mine)], minlength=len(values))
    return private, np.bincount(indices[len(mine) :], minlength=len(values))


def _split_share(ratio: float) -> float:
    return 2.0 * ratio / (1.0 + ratio) ** 2


def consecutive(mine: Words, theirs: Words) -> bool:
    """Return whether 32 consecutive runs of equal rows, each with its length, occur exactly once in both files."""
    once: list[Words] = []
    for rows in (mine, theirs):
        starts = np.flatnonzero(np.r_[True, rows[1:] != rows[:-1]])
        runs = _mixed([rows[starts], np.diff(np.r_[starts, len(rows)]).astype(np.uint64)])
        if len(runs) < RUNS + 2:
            return False
        # An excerpt cuts its first and last run short.
        runs = runs[1:-1]
        windows = _mixed([runs[index : len(runs) - RUNS + 1 + index] for index in range(RUNS)])
        values, counts = np.unique(windows, return_counts=True)
        once.append(values[counts == 1])
    return bool(len(np.intersect1d(once[0], once[1], assume_unique=True)))


def in_order(mine: Words, theirs: Words) -> bool:
    """Return whether the public rows are a subsequence of the people's, which is very unlikely for independent rows.

    The next row equal to a given one, of share p among the people, is found after a geometric number W of rows. All are
    found within n rows with a probability of at most exp(t n) times the product of E exp(-t W), for every t > 0.
    """
    if _is_clustered(mine) or _is_clustered(theirs):
        return False
    values, counts = np.unique(mine, return_counts=True)
    nearest = np.minimum(np.searchsorted(values, theirs), len(values) - 1)
    if (values[nearest] != theirs).any():
        return False
    share = counts[nearest] / len(mine)
    bounds = []
    for t in np.logspace(-7, 1, 60):
        met = np.log(share) - t - np.log1p(-(1.0 - share) * math.exp(-t))
        bounds.append(t * len(mine) + float(met.sum()))
    return min(bounds) < UNLIKELY and _is_subsequence(mine, theirs)


def _is_subsequence(mine: Words, theirs: Words) -> bool:
    indices: dict[int, list[int]] = {}
    for index, value in enumerate(mine.tolist()):
        indices.setdefault(value, []).append(index)
    last = -1
    for value in theirs.tolist():
        after = bisect_right(indices[value], last)
        if after == len(indices[value]):
            return False
        last = indices[value][after]
    return True


def _is_clustered(rows: Words) -> bool:
    share = np.unique(rows, return_counts=True)[1] / len(rows)
    expected = (len(rows) - 1) * float(np.sum(share**2))
    return int(np.sum(rows[1:] == rows[:-1])) > expected + 6.0 * math.sqrt(expected) + 6.0


def _log_tail(count: int, of: int, probability: float) -> float:
    """Return the logarithm of Chernoff's bound on the probability of at least ``count`` successes."""
    share = count / of if of else 0.0
    if share <= probability:
        return 0.0
    rest = 0.0 if count == of else (of - count) * math.log((1.0 - share) / (1.0 - probability))
    return -(count * math.log(share / probability) + rest)


def _read(table: Table, task: Task, names: Sequence[str]) -> tuple[Words, list[Words]]:
    features: list[Words] = []
    others: list[list[Words]] = [[] for _ in names]
    for numbers, records in slices(table, CHUNK):
        columns = table.columns(records, numbers, [*task.coding.columns, *names])
        features.append(hashed(task.coding.encode(columns, target=False).x))
        for name, column in zip(names, others, strict=True):
            column.append(np.array([_plain(value) for value in columns[name]], dtype=np.int64).astype(np.uint64))
    return np.concatenate(features), [np.concatenate(column) for column in others]


def _person_hashes(source: FileSource) -> Words | None:
    if source.person_column is None:
        return None
    table = _table(source.records, source, [source.person_column])
    names = [table.columns(records, numbers, [source.person_column]) for numbers, records in slices(table, CHUNK)]
    plain = [_plain(name) for columns in names for name in columns[source.person_column]]
    return np.array(plain, dtype=np.int64).astype(np.uint64)


def _is_repetitive(column: Words) -> bool:
    """Return whether a column's values repeat; names and row numbers do not, and may coincide in unrelated files."""
    return len(np.unique(column)) <= max(2, int(_MANY * len(column)))


def _plain(value: Any) -> int:
    """Hash a value independently of how it is written: 30, 30.0, "30"."""
    text = str(value).strip()
    if is_nan(value) or text.lower() == "nan":
        return 0
    number = exact_number(value)
    return hash(text) if number is None else hash(number)


def hashed(rows: NDArray[np.float64]) -> Words:
    """Hash each row of numbers."""
    # Adding 0.0 turns -0.0 into 0.0.
    return _mixed(list((np.ascontiguousarray(rows, dtype=np.float64) + 0.0).T.copy().view(np.uint64)))


def _mixed(columns: Sequence[NDArray[Any]]) -> Words:
    """Hash several values side by side (the finaliser of SplitMix64, column after column)."""
    hashes = np.full(len(columns[0]), 0x9E3779B97F4A7C15, dtype=np.uint64)
    for column in columns:
        hashes = hashes * np.uint64(0xD1342543DE82EF95) + column.astype(np.uint64)
        hashes = (hashes ^ (hashes >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        hashes = (hashes ^ (hashes >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        hashes ^= hashes >> np.uint64(31)
    return hashes


def _table(records: Records, source: FileSource, wanted: Sequence[str]) -> Table:
    return records.table(wanted, strict=source.strict or records is not source.records)


def _refusal(public: str, source: FileSource, found: str) -> str:
    return (
        f"{public} holds people of {source.records}: {found}. Their features would be public, unprotected by the "
        "guarantee for their releases. Give a file of other people's features that everybody may know; or set public: "
        "{set_aside: N}, which publishes those of N of these people, who then release nothing; or leave public out"
    )
