"""Sources other than text: frames, tables, mappings and Parquet files are read as a CSV file of the same records is."""

import gzip
import json
import math
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from murk.errors import UserError
from murk.populations import FileSource, open_records
from murk.populations.ledger_places import default_ledger
from murk.populations.local_run import LocalRun
from murk.populations.people import PopulationConfig
from murk.populations.public_sample import public_covariates
from murk.populations.records.tables import TupleTable
from murk.task.containers import python_values
from tests.producers.world import SECRET, make_task

TASK = make_task()
RECORDS: list[dict[str, Any]] = [
    {"age": 28, "same_sex": True, "origin": "JFK", "third_child": False, "who": "a"},
    {"age": 21, "same_sex": False, "origin": "EWR", "third_child": True, "who": "b"},
    {"age": None, "same_sex": True, "origin": "LGA", "third_child": False, "who": "c"},
    {"age": 40, "same_sex": None, "origin": None, "third_child": True, "who": "d"},
]
EXPECTED = [[0.0, 1, 1, -1, 1], [-1, -1, -1, -1, 1], [0, 1, -1, 1, 1], [1, 0, 0, 0, 1]]


def parquet(folder: Path, table: Any, **options: Any) -> Path:
    pq.write_table(pa.table(table), folder / "people.parquet", **options)
    return folder / "people.parquet"


MAKERS = {
    "pandas": lambda folder: pd.DataFrame(RECORDS),
    "pandas, categories": lambda folder: pd.DataFrame(RECORDS).astype({"origin": "category", "age": "Int64"}),
    "pandas, other index": lambda folder: pd.DataFrame(RECORDS).set_index(pd.Index([7, 7, 3, 1])),
    "polars": lambda folder: pl.DataFrame(RECORDS),
    "arrow": lambda folder: pa.Table.from_pylist(RECORDS),
    "arrow, dictionary": lambda folder: pa.Table.from_pylist(RECORDS).set_column(
        2, "origin", pa.array([record["origin"] for record in RECORDS]).dictionary_encode()
    ),
    "arrow, decimals": lambda folder: pa.Table.from_pylist(RECORDS).set_column(
        0, "age", pa.array([record["age"] and Decimal(record["age"]) for record in RECORDS])
    ),
    "batches": lambda folder: pa.RecordBatchReader.from_batches(
        pa.Table.from_pylist(RECORDS).schema, pa.Table.from_pylist(RECORDS).to_batches(max_chunksize=1)
    ),
    "mappings": lambda folder: RECORDS,
    "generator": lambda folder: (record for record in RECORDS),
    "parquet": lambda folder: parquet(folder, pa.Table.from_pylist(RECORDS)),
    "parquet of pandas": lambda folder: pd.DataFrame(RECORDS).to_parquet(folder / "p.parquet") or folder / "p.parquet",
    "parquet, groups": lambda folder: parquet(folder, pa.Table.from_pylist(RECORDS), row_group_size=1),
}


@pytest.fixture(params=MAKERS)
def source(request: pytest.FixtureRequest, tmp_path: Path) -> FileSource:
    return FileSource(MAKERS[request.param](tmp_path), TASK)


class TestReading:
    def test_as_a_file_of_text(self, source: FileSource) -> None:
        blocks = list(source.blocks(size=3))
        assert np.concatenate([block.x for block in blocks]).tolist() == EXPECTED
        assert np.concatenate([block.y for block in blocks]).tolist() == [0, 1, 0, 1]
        assert [block.clamped for block in blocks] == [0, 1]
        assert [block.missing for block in blocks] == [1, 2]
        assert source.size == 4

    @pytest.mark.parametrize("start", range(5))
    def test_goes_on_at_any_row(self, source: FileSource, start: int) -> None:
        blocks = list(source.blocks(start, 2))
        assert [row for block in blocks for row in block.rows.tolist()] == list(range(start, 4))
        assert [x for block in blocks for x in block.x.tolist()] == EXPECTED[start:]

    def test_names_people(self, tmp_path: Path) -> None:
        for make in MAKERS.values():
            block = next(FileSource(make(tmp_path), TASK, person_column="who").blocks())
            assert list(block.people or ()) == ["a", "b", "c", "d"]

    def test_one_digest_of_the_same_records_in_memory(self) -> None:
        digests = {open_records(of).survey().digest for of in (RECORDS, pl.DataFrame(RECORDS), list(RECORDS))}
        table = open_records(pa.Table.from_pylist(RECORDS)).survey().digest
        assert digests == {table}
        for changed in (RECORDS[:3], [*RECORDS[:3], {**RECORDS[3], "age": 39}]):
            assert open_records(changed).survey().digest not in digests

    def test_what_stands_in_mappings_where_nothing_is_counts_as_missing(self) -> None:
        """A frame's rows are the frame."""
        frame = pd.DataFrame(RECORDS).astype({"age": float})
        already = next(FileSource(frame, TASK).blocks()).missing
        frame.loc[1, "age"] = math.nan
        for absent in (math.nan, np.float32("nan"), np.float64("nan"), pd.NA, pd.NaT, None):
            rows: list[dict[str, Any]] = frame.to_dict("records")
            rows[1]["age"] = absent
            [of_rows], [of_frame] = (list(FileSource(source, TASK).blocks()) for source in (rows, frame))
            assert of_rows.missing == of_frame.missing == already + 1
            assert of_rows.x.tolist() == of_frame.x.tolist()
            assert open_records(rows).survey().digest == open_records(frame).survey().digest

    def test_digest_does_not_depend_on_where_objects_lie(self) -> None:
        class Thing:
            pass

        one, other = ([{"age": 28, "more": Thing()}] for _ in range(2))
        assert open_records(one).survey() == open_records(other).survey()

    def test_slices(self) -> None:
        frame = pd.DataFrame({"age": np.arange(10_000) % 15 + 21, "same_sex": "no", "origin": "JFK"})
        frame["third_child"] = np.where(frame["age"] > 28, "yes", "no")
        expected = (frame["age"] - 28) / 7
        for records in (frame, pl.DataFrame(frame), pa.Table.from_pandas(frame), frame.to_dict("records")):
            x = np.concatenate([block.x for block in FileSource(records, TASK).blocks()])
            assert x[:, 0] == pytest.approx(expected.to_numpy())

    def test_memory_does_not_grow_with_a_parquet_file(self, tmp_path: Path) -> None:
        """Of 60 row groups at most 3 are decoded when the first row is read, and none but the wanted columns."""
        count = 60 * 5_000
        table = pa.table({"age": np.full(count, 28), **dict.fromkeys(["same_sex", "origin"], ["no"] * count),
                          "third_child": ["no"] * count, "more": np.random.default_rng(1).random(count)})  # fmt: skip
        path = parquet(tmp_path, table, row_group_size=5_000)
        del table
        before = pa.total_allocated_bytes()
        rows = open_records(path).table(["age", "third_child"]).rows(0)
        next(rows)
        assert pa.total_allocated_bytes() - before < 2_000_000
        rows.close()  # type: ignore[attr-defined]


class TestRefusals:
    def refused(self, source: Any, **options: Any) -> str:
        with pytest.raises(UserError) as error:
            list(FileSource(source, TASK, **options).blocks())
        assert SECRET not in str(error.value)
        return str(error.value)

    def test_duplicate_columns(self, tmp_path: Path) -> None:
        frame = pd.DataFrame(RECORDS)
        twice = pd.concat([frame, frame[["age"]]], axis=1)
        assert "the DataFrame has 2 columns named 'age': rename all but one" in self.refused(twice)
        table = pa.table([*pa.Table.from_pandas(frame).columns, pa.array([1] * 4)], [*frame.columns, "age"])
        assert "the table has 2 columns named 'age'" in self.refused(table)
        assert "people.parquet has 2 columns named 'age'" in self.refused(parquet(tmp_path, table))
        # Of others it does not matter.
        assert len(next(FileSource(pd.concat([frame, frame[["who"]]], axis=1), TASK).blocks())) == 4

    def test_another_schema(self, tmp_path: Path) -> None:
        table = pa.Table.from_pylist(RECORDS)
        assert "no column 'age'. Spell its columns" in self.refused(parquet(tmp_path, table.drop_columns(["age"])))
        renamed = table.rename_columns([" Age", *table.column_names[1:]])
        assert "capitals" in self.refused(renamed)
        turned = pd.DataFrame({SECRET: [1], "age": [2]})
        assert "no column 'same_sex'" in self.refused(turned)

    @pytest.mark.parametrize("value", [[SECRET], {SECRET: 1, "b": {SECRET: 2}}, [{SECRET: 1}], SECRET.encode()])
    def test_columns_that_hold_no_values(self, tmp_path: Path, value: Any) -> None:
        table = pa.table({**pa.Table.from_pylist(RECORDS).to_pydict(), "origin": [value] * 4})
        for source in (table, parquet(tmp_path, table)):
            assert "column 'origin': its type is" in self.refused(source)
        for source in (pd.DataFrame(table.to_pylist()), table.to_pylist()):
            assert "row 1, column 'origin': the value is none of the declared" in self.refused(source)

    def test_values_that_are_none(self) -> None:
        for value, words in ((SECRET, "not a finite number"), (True, "a boolean, not a number")):
            message = self.refused([*RECORDS, {**RECORDS[0], "age": value}])
            assert "the records, row 5, column 'age': " in message
            assert words in message
        assert "row 1, column 'age'" in self.refused(pl.DataFrame([{**RECORDS[0], "age": float("nan")}]))

    def test_damaged_parquet(self, tmp_path: Path) -> None:
        path = parquet(tmp_path, pa.Table.from_pylist(RECORDS))
        whole = path.read_bytes()
        path.write_bytes(whole[:-20])
        assert "people.parquet is not a Parquet file, or is damaged" in self.refused(path)
        path.write_bytes(b"age,same_sex\n")
        assert "is not a Parquet file" in self.refused(path)
        path.write_bytes(whole[:4] + bytes([255]) * 60 + whole[64:])
        assert "damaged" in self.refused(path)
        (tmp_path / "people.csv").write_bytes(whole)
        assert "give it a name that ends in .parquet" in self.refused(tmp_path / "people.csv")
        (tmp_path / "people.parquet.gz").write_bytes(gzip.compress(whole))
        assert "Unpack it" in self.refused(tmp_path / "people.parquet.gz")

    def test_empty(self, tmp_path: Path) -> None:
        for nobody in (pd.DataFrame(RECORDS)[:0], parquet(tmp_path, pa.Table.from_pylist(RECORDS)[:0]), []):
            assert "has no rows: give a source with at least one record" in self.refused(nobody)

    @pytest.mark.parametrize(
        ("source", "words"),
        [
            (3, "a int holds no records"),
            (pd.Series([1]), "a Series is one column: give the frame"),
            (pl.Series([1]), "a Series is one column: give the frame"),
            (pa.chunked_array([[1]]), "a ChunkedArray is one column"),
            ({"age": [1]}, "a dict holds no records"),
            (np.zeros((2, 2)), "a ndarray holds no records"),
            ([(RECORDS[0], 1)], r"\(\{\*\*x, 'TARGET': y\} for x, y in stream\)"),
            ([[1]], "row 1: a list, not a mapping"),
            (pl.LazyFrame(RECORDS), r"give frame.collect\(\)"),
        ],
    )
    def test_no_records(self, source: Any, words: str) -> None:
        with pytest.raises(UserError, match=words):
            open_records(source)

    def test_without_pyarrow(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path, table = parquet(tmp_path, pa.Table.from_pylist(RECORDS)), pa.Table.from_pylist(RECORDS)
        monkeypatch.setitem(sys.modules, "pyarrow", None)
        with pytest.raises(UserError, match=r'pip install .*\[frames\]"'):
            FileSource(path, TASK)
        with pytest.raises(UserError, match=r'pip install .*\[frames\]"'):
            open_records(table)
        # Frames need none.
        for frame in (pd.DataFrame(RECORDS), pl.DataFrame(RECORDS)):
            assert next(FileSource(frame, TASK).blocks()).x.tolist() == EXPECTED


class TestPopulations:
    def digest(self, folder: Path, source: Any, name: str) -> dict[str, Any]:
        crowd = PopulationConfig(open_records(source), seed=3)
        with LocalRun(TASK, crowd, f"sqlite:///{folder}/{name}.db", folder / f"{name}.ledger.db") as run:
            for _ in run.steps():
                pass
            return run.engines[0].state_dict()

    def test_the_same_is_learned_from_all(self, tmp_path: Path) -> None:
        records = [RECORDS[index % 3] for index in range(60)]
        frame = pd.DataFrame(records)
        path = tmp_path / "people.jsonl"
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
        sources = {
            "a": path,
            "b": frame,
            "c": parquet(tmp_path, pa.Table.from_pandas(frame)),
            "d": pl.DataFrame(records),
        }
        states = [json.dumps(self.digest(tmp_path, of, name), sort_keys=True) for name, of in sources.items()]
        assert len(set(states)) == 1

    def test_a_frame_goes_on_where_it_stood(self, tmp_path: Path) -> None:
        frame = pd.DataFrame([RECORDS[index % 2] for index in range(60)])
        crowd = PopulationConfig(open_records(frame), seed=3, block=10)
        where = crowd, f"sqlite:///{tmp_path}/log.db", tmp_path / "ledger.db"
        with LocalRun(TASK, *where) as run:
            for step in run.steps():
                if step.releases > 30:
                    break
            assert 30 < run.releases < 60
        with LocalRun(TASK, *where) as run:
            assert [step.releases for step in run.steps()][-1] == run.releases == 60
        other = PopulationConfig(open_records(frame[::-1]), seed=3), *where[1:]
        with pytest.raises(UserError, match="another file"):
            LocalRun(TASK, *other)

    def test_a_frame_has_no_ledger_beside_it(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        frame = open_records(pd.DataFrame(RECORDS * 10))
        with pytest.raises(UserError, match="the DataFrame has no file in whose folder"):
            default_ledger(frame, "t", simulated=False)
        assert default_ledger(frame, "t", simulated=True) == Path("t.ledger.db")
        task = make_task(simulated=False)
        with LocalRun(task, PopulationConfig(frame), "sqlite:///a.db", "a.ledger.db") as run:
            list(run.steps())
            assert run.population.warnings == ()
        with LocalRun(task, PopulationConfig(frame), "sqlite:///b.db", "b.ledger.db") as run:
            assert "have accounts in another ledger, too (a.ledger.db)" in run.population.warnings[0]

    def test_default_ledger_of_parquet(self, tmp_path: Path) -> None:
        path = parquet(tmp_path, pa.Table.from_pylist(RECORDS))
        assert default_ledger(path, "t", simulated=False) == tmp_path / "people.ledger.db"

    def test_public_file(self, tmp_path: Path) -> None:
        people = [record for record in RECORDS if record["age"] and record["origin"]]
        points, counts = public_covariates(parquet(tmp_path, pa.Table.from_pylist(people * 3)), TASK)
        assert sorted(points.tolist()) == sorted(EXPECTED[:2])
        assert counts.tolist() == [3, 3]


def test_nanoseconds_and_zones() -> None:
    times = pd.to_datetime(["2024-05-03T12:30:00.123456789", None]).tz_localize("Europe/Berlin")
    values = python_values(pa.array(times))
    assert (values[0].isoformat(), values[1]) == ("2024-05-03T12:30:00.123456+02:00", None)


def test_a_table_of_tuples_says_how_its_rows_are_read() -> None:
    with pytest.raises(TypeError, match="abstract"):
        TupleTable("the rows", ("a",), ("a",))  # type: ignore[abstract]
