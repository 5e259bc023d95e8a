"""Public covariates without targets, read once from any source, for an estimator's argument ``public``."""

from __future__ import annotations

import csv
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from murk._internal.arrays import Floats
from murk.errors import UserError
from murk.protocols.linear_algebra import confine
from murk.protocols.rows import Rows
from murk.task.text_files import LongRowError, csv_rows, explain_row, open_text
from murk.task.values import frame_of, numbers, target

_ERROR_CODE = "MURK-LEARN-001"

KEPT = 20_000  # largest number of rows kept, a uniform sample of all; the others enter only the second moment

_CHUNK = 4096
_SEED = 20_210_316  # fixed: the draw of the kept rows is public and must be reproducible


@dataclass(frozen=True, eq=False)
class PublicSample:
    """Public rows, read once: their second moment, and at most 20,000 of the rows."""

    names: tuple[Any, ...]  # names of the k columns
    rows: Floats  # the kept rows: all, or a uniform sample, (u, k)
    total: int  # number of rows read
    moment: Floats  # second moment of all rows read, the constant last, (k + 1, k + 1)

    @classmethod
    def of_argument(cls, public: Any, names: Sequence[Any] | None) -> tuple[PublicSample | None, Any]:
        """Return the sample for an estimator's argument ``public`` (or None), and the value to store for clones."""
        sample = None if public is None else cls.read(public, names)
        # An iterator is used up now, so that clones get its rows instead.
        return sample, sample if isinstance(public, Iterator) else public

    @classmethod
    def read(cls, public: Any, names: Sequence[Any] | None = None, most: int = KEPT) -> PublicSample:
        """Read public covariates once.

        ``public`` is an array (n, k), a data frame, an iterable of mappings, the path of a CSV file (``.gz`` or not),
        or a sample; ``names`` are the columns in order, by default all, sorted. Of more than ``most`` rows a random
        sample is kept. Raises UserError if there are no rows, a column is missing, or a value is not a finite number.

        >>> sample = PublicSample.read(({"a": i % 2, "b": 1.0} for i in range(10)))
        >>> sample.names, sample.total, float(sample.moment[0, 0])
        (('a', 'b'), 10, 0.5)
        """
        if isinstance(public, PublicSample):
            return public if names is None else public.select(names)
        columns, blocks = _blocks(public, names)
        random = np.random.default_rng(_SEED)
        kept, parts = np.empty((0, len(columns))), list[Floats]()
        moment = np.zeros((len(columns) + 1, len(columns) + 1))
        total = 0
        for block in blocks:
            bad = np.argwhere(~np.isfinite(block))
            if len(bad):
                row, column = bad[0]
                raise UserError(
                    f"public covariates: row {total + int(row) + 1:,}, column {columns[column]!r} is not a finite "
                    "number; leave such rows out, or list only the feature columns in features="
                )
            whole = np.column_stack([block, np.ones(len(block))])
            moment += whole.T @ whole
            room = max(most - total, 0)
            if room:
                parts.append(block[:room])
            if parts and room < len(block):
                kept, parts = np.concatenate(parts), []
            # Vitter's algorithm R: row number t replaces a kept one with probability most / t.
            for offset, row_values in enumerate(block[room:], start=total + room + 1):
                slot = int(random.integers(offset))
                if slot < most:
                    kept[slot] = row_values
            total += len(block)
        if not total:
            raise UserError("public covariates: there are no rows; give at least as many as there are features")
        return cls(columns, np.concatenate([kept, *parts]), total, moment / total)

    def select(self, names: Sequence[Any]) -> PublicSample:
        """Return the sample with these columns, in this order; raise UserError if one of them is missing."""
        indices = _indices(self.names, names)
        every = [*indices, len(self.names)]
        return PublicSample(tuple(names), self.rows[:, indices], self.total, self.moment[np.ix_(every, every)])

    def coded(self, clipping_norm: float, gain: float, constant: bool) -> Rows:
        """Return covariates for fitting: rows clipped to ``clipping_norm``, times ``gain``, with the ``constant``."""
        rows, inside = self.rows.copy(), True
        with np.errstate(over="ignore", invalid="ignore"):
            well_within = np.sum(rows * rows, axis=1) < (1.0 - 1e-9) * clipping_norm * clipping_norm
        # The kernel is called for the other rows only, among them those with NaN: calls for every row would be slow.
        for index in np.flatnonzero(~well_within):
            inside &= not confine(rows[index], clipping_norm, False, False)
        scale = np.append(np.full(len(self.names), gain), 1.0)
        points = np.column_stack([rows * gain, np.ones(len(rows))])
        # If rows were clipped, the second moment after clipping is known for the kept rows only.
        moment = self.moment * np.outer(scale, scale) if inside else points.T @ points / len(points)
        size = len(scale) if constant else len(scale) - 1
        shares = np.full(len(points), 1.0 / len(points))
        total = float(self.total if inside else len(points))
        return Rows(points[:, :size], shares, float(len(points)), moment[:size, :size], total)


def _indices(columns: Sequence[Any], names: Sequence[Any]) -> list[int]:
    absent = [name for name in names if name not in columns]
    if absent:
        raise UserError(
            f"public covariates have no column {absent[0]!r}; there are: {', '.join(map(str, columns))}. They need all "
            "of the learner's features, under the same names"
        )
    return [list(columns).index(name) for name in names]


def _blocks(public: Any, names: Sequence[Any] | None) -> tuple[tuple[Any, ...], Iterator[Floats]]:
    """Return the names of the columns, and an iterator of blocks of rows."""
    if isinstance(public, str | Path):
        public = _file(Path(public))
    elif isinstance(public, np.ndarray):
        if public.ndim != 2 or public.dtype.kind not in "biuf":
            raise UserError(f"public covariates must be an (n, k) array of numbers, got {public.dtype} {public.shape}")
        chosen = tuple(range(public.shape[1])) if names is None else tuple(names)
        if len(chosen) != public.shape[1]:
            raise UserError(f"public covariates have {public.shape[1]} columns and the learner {len(chosen)} features")
        return chosen, (np.asarray(public[i : i + _CHUNK], dtype=np.float64) for i in range(0, len(public), _CHUNK))
    elif hasattr(public, "columns"):
        frame = frame_of(public)
        columns = list(frame.columns)
        chosen = tuple(sorted(columns, key=str) if names is None else names)
        table = np.column_stack(
            [numbers(frame[:, index].to_native(), target) for index in _indices(columns, chosen)] or [np.empty(0)]
        )
        return chosen, (table[i : i + _CHUNK] for i in range(0, len(table), _CHUNK))
    if not isinstance(public, Iterable):
        raise UserError(
            f"public covariates cannot be of type {type(public).__name__}: give an array, a data frame, an iterable of "
            "mappings or the path of a CSV file"
        )
    rows = iter(public)
    first = next(rows, None)
    if first is None:
        return tuple(names or ()), iter(())
    if not isinstance(first, Mapping):
        raise UserError(f"a public row is a mapping of features to numbers, got {type(first).__name__}")
    chosen = tuple(sorted(first, key=str) if names is None else names)
    _indices(list(first), chosen)
    rows = chain([first], rows)
    chunks = iter(lambda: list(islice(rows, _CHUNK)), [])
    return chosen, (np.array([[target(row.get(name)) for name in chosen] for row in chunk]) for chunk in chunks)


def _file(path: Path) -> Iterator[dict[str, str]]:
    number = 0
    try:
        with open_text(path) as text:
            rows = csv_rows(text)
            header = next(rows, [])
            for cells in filter(None, rows):
                number += 1
                if len(cells) != len(header):
                    raise UserError(
                        f"{path}, row {number}: {len(cells)} cells, and the header has {len(header)}: fix the row"
                    )
                yield dict(zip(header, cells, strict=True))
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or error}); give a CSV file of numbers") from None
    except (csv.Error, LongRowError) as error:
        raise UserError(f"{path}, row {number + 1}: {explain_row(error)}") from None
    except UnicodeDecodeError:
        raise UserError(f"{path} is not UTF-8 text: save it as UTF-8") from None
    except (EOFError, zlib.error):
        raise UserError(f"{path} is a damaged gzip file: fetch or compress it again") from None
