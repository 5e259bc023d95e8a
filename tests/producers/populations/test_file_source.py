"""File populations: what is read, what stops the reading, and what is never said."""

import gzip
import hashlib
import json
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from murk.errors import UserError
from murk.populations import FileSource
from murk.populations.file_source import Block as FileBlock
from murk.populations.records.files import open_table
from murk.populations.records.tables import KEYS_LOOKED_AT
from murk.privacy.noise import SecureNoise, SimulatedNoise
from murk.producers.ledger.identity import Run
from murk.producers.ledger.names import ReleaseRequests
from murk.producers.organisation import Window
from tests.producers.world import SECRET, TEXT, make_task, write_people

TASK = make_task()
# Levels that are named as values are: nothing but the rule keeps a record from choosing its own.
LEVELS_OF_VALUES = TEXT.replace("levels: {strict:", "levels: {'yes': {gdp: {mu: 0.4}}, 'no': {gdp: {mu: 0.3}}, strict:")
HEADER = "age,same_sex,origin,third_child"
ROWS = ["28,yes,JFK,no", "21,no,EWR,yes", "35,yes,LGA,no", "40,no,JFK,yes"]


def csv_file(folder: Path, *rows: str, header: str = HEADER, name: str = "people.csv") -> Path:
    path = folder / name
    data = ("\n".join([header, *rows]) + "\n").encode("utf-8", "surrogateescape")
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


def json_file(folder: Path, *records: Any, name: str = "people.jsonl") -> Path:
    path = folder / name
    lines = [record if isinstance(record, str) else json.dumps(record) for record in records]
    data = ("\n".join(lines) + "\n").encode()
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


def objects() -> list[dict[str, Any]]:
    found = []
    for row in ROWS:
        age, *others = row.split(",")
        found.append({"age": int(age), **dict(zip(HEADER.split(",")[1:], others, strict=True)), "extra": [1]})
    return found


def read(path: Path, size: int = 2, **options: Any) -> tuple[np.ndarray, np.ndarray, int, int]:
    blocks = list(FileSource(path, options.pop("task", TASK), **options).blocks(size=size))
    return (
        np.concatenate([block.x for block in blocks]),
        np.concatenate([block.y for block in blocks]),
        sum(block.clamped for block in blocks),
        sum(block.missing for block in blocks),
    )


EXPECTED = np.array([[0.0, 1, 1, -1, 1], [-1, -1, -1, -1, 1], [1, 1, -1, 1, 1], [1, -1, 1, -1, 1]], dtype=float)


class TestRealPeople:
    """With real noise a record stops nothing: it is coded as a device codes it."""

    REAL = make_task("missing: error", simulated=False)

    def blocks(self, path: Path, **options: Any) -> list[FileBlock]:
        return list(FileSource(path, self.REAL, **options).blocks(size=3))

    @pytest.mark.parametrize(
        "row",
        [
            "forty,yes,JFK,no",
            "2e999,,XYZ,maybe",
            "28,yes",
            "28,yes,JFK,no,5",
            '28,"yes',
            '28,"yes"x,JFK,no',
            "\udcff,,,",
        ],
    )
    def test_a_row_of_whatever_is_coded_as_a_device_codes_it(self, tmp_path: Path, row: str) -> None:
        blocks = self.blocks(csv_file(tmp_path, ROWS[0], row, *ROWS[1:]))
        x = np.concatenate([block.x for block in blocks])
        assert np.delete(x, 1, axis=0).tolist() == EXPECTED.tolist()
        cells = (
            dict(zip(HEADER.split(","), row.split(","), strict=False)) if row.count(",") == 3 and '"' not in row else {}
        )
        assert x[1].tolist() == self.REAL.coding.encode_record(cells).x.tolist()

    @pytest.mark.parametrize("line", ["{", "[1]", "7", '{"age": {}}', "nonsense"])
    def test_a_line_that_is_no_record(self, tmp_path: Path, line: str) -> None:
        x = np.concatenate([block.x for block in self.blocks(json_file(tmp_path, objects()[0], line, *objects()[1:]))])
        assert x[1].tolist() == [0, 0, 0, 0, 1]
        assert np.delete(x, 1, axis=0).tolist() == EXPECTED.tolist()

    @pytest.mark.parametrize("name", ["", "a\x07b"])
    def test_a_row_that_names_nobody_is_a_record_without_a_value(self, tmp_path: Path, name: str) -> None:
        rows = [f"{row},{who}" for row, who in zip(ROWS, ["w0", name, "w2", "w3"], strict=True)]
        blocks = self.blocks(csv_file(tmp_path, *rows, header=f"{HEADER},who"), person_column="who")
        assert [block.unreadable for block in blocks] == [1, 0]
        assert blocks[0].x[1].tolist() == [0, 0, 0, 0, 1]
        assert np.isnan(blocks[0].y[1])
        names = [one for block in blocks for one in block.people or ()]
        assert len(set(names)) == 4
        assert names[1].startswith("row 2 of ")

    def test_a_level_that_is_none_releases_no_value(self, tmp_path: Path) -> None:
        rows = [f"{row},{level}" for row, level in zip(ROWS, ["strict", "stirct", "default", ""], strict=True)]
        blocks = self.blocks(csv_file(tmp_path, *rows, header=f"{HEADER},how"), level_column="how")
        assert [level for block in blocks for level in block.levels or ()] == ["strict", *["default"] * 3]
        x = np.concatenate([block.x for block in blocks])
        assert x[[1, 3]].tolist() == [[0, 0, 0, 0, 1]] * 2

    def test_a_key_that_only_some_have(self, tmp_path: Path) -> None:
        """A task's author, who may ask for any key, does not learn that nobody in a file has it."""
        records = [{key: value for key, value in one.items() if key != "origin"} for one in objects()]
        sources = [FileSource(json_file(tmp_path, *records), self.REAL), FileSource(records, self.REAL)]
        for source in sources:
            assert source.absent == ("origin",)
            assert [len(block) for block in source.blocks()] == [4]


class TestReading:
    @pytest.mark.parametrize("name", ["people.csv", "people.csv.gz"])
    @pytest.mark.parametrize("size", [1, 3, 100])
    def test_csv(self, tmp_path: Path, name: str, size: int) -> None:
        x, y, clamped, missing = read(csv_file(tmp_path, *ROWS, name=name), size)
        assert x.tolist() == EXPECTED.tolist()
        assert (y.tolist(), clamped, missing) == ([0, 1, 0, 1], 1, 0)

    @pytest.mark.parametrize("name", ["people.jsonl", "people.jsonl.gz", "people.ndjson"])
    def test_json_lines(self, tmp_path: Path, name: str) -> None:
        x, y, clamped, missing = read(json_file(tmp_path, *objects(), name=name))
        assert x.tolist() == EXPECTED.tolist()
        assert (y.tolist(), clamped, missing) == ([0, 1, 0, 1], 1, 0)

    def test_columns_in_any_order_and_more_of_them(self, tmp_path: Path) -> None:
        rows = [",".join(["x", *reversed(row.split(","))]) for row in ROWS]
        path = csv_file(tmp_path, *rows, header="more," + ",".join(reversed(HEADER.split(","))))
        assert read(path)[0].tolist() == EXPECTED.tolist()

    def test_what_spreadsheets_write(self, tmp_path: Path) -> None:
        text = "\ufeff" + "\r\n".join(['"' + '","'.join(row.split(",")) + '"' for row in [HEADER, *ROWS]])
        (tmp_path / "people.csv").write_text(text, newline="")
        assert read(tmp_path / "people.csv")[0].tolist() == EXPECTED.tolist()

    def test_line_ends_within_cells_and_blank_lines(self, tmp_path: Path) -> None:
        path = csv_file(tmp_path, '28,yes,JFK,no,"a\nb, ""c"""', "", "21,no,EWR,yes,", header=HEADER + ",note")
        assert read(path)[0].tolist() == EXPECTED[:2].tolist()

    @pytest.mark.parametrize("start", [0, 1, 2, 3, 4, 5])
    @pytest.mark.parametrize("make", [csv_file, json_file])
    def test_goes_on_at_any_row(self, tmp_path: Path, start: int, make: Callable[..., Path]) -> None:
        path = make(tmp_path, *(ROWS if make is csv_file else objects()))
        blocks = list(FileSource(path, TASK).blocks(start, 2))
        assert [row for block in blocks for row in block.rows.tolist()] == list(range(start, 4))
        for block in blocks:
            assert block.x.tolist() == EXPECTED[block.rows].tolist()
            assert block.next_position == block.rows[-1] + 1

    def test_blocks_grow_as_they_are_told(self, tmp_path: Path) -> None:
        source = FileSource(write_people(tmp_path / "people.csv", 30), TASK)
        sizes = iter([1, 2, 3, 100])
        assert [len(block) for block in source.blocks(size=lambda: next(sizes, 5))] == [1, 2, 3, 24]

    def test_leaves_rows_out(self, tmp_path: Path) -> None:
        source = FileSource(write_people(tmp_path / "people.csv", 10), TASK)
        blocks = list(source.blocks(0, 4, excluded=[0, 1, 2, 3, 4, 9]))
        assert [block.rows.tolist() for block in blocks] == [[5, 6, 7, 8]]
        assert blocks[0].next_position == 9

    def test_missing_values_are_coded_by_the_rule(self, tmp_path: Path) -> None:
        x, y, clamped, missing = read(csv_file(tmp_path, ",yes,,", " ,,JFK,no"))
        assert x.tolist() == [[0, 1, 0, 0, 1], [0, 0, 1, -1, 1]]
        assert np.isnan(y[0])
        assert (y[1], clamped, missing) == (0, 0, 5)

    def test_missing_values_in_json(self, tmp_path: Path) -> None:
        x, y, _, missing = read(json_file(tmp_path, *objects(), {"age": None, "origin": "", "third_child": "no"}))
        assert x[4].tolist() == [0, 0, 0, 0, 1]
        assert (y[4], missing) == (0, 3)

    def test_digest_is_that_of_the_bytes(self, tmp_path: Path) -> None:
        one = FileSource(csv_file(tmp_path, *ROWS, name="a.csv"), TASK)
        same = FileSource(csv_file(tmp_path, *ROWS, name="b.csv"), TASK)
        other = FileSource(csv_file(tmp_path, *ROWS[1:], name="c.csv"), TASK)
        assert one.digest == same.digest != other.digest
        assert one.digest == hashlib.sha256((tmp_path / "a.csv").read_bytes()).hexdigest()
        zipped = csv_file(tmp_path, *ROWS, name="a.csv.gz")
        assert FileSource(zipped, TASK).digest == hashlib.sha256(zipped.read_bytes()).hexdigest()

    def test_counts_its_rows(self, tmp_path: Path) -> None:
        assert FileSource(write_people(tmp_path / "people.csv", 137), TASK).size == 137


class TestPeople:
    def test_are_rows(self, tmp_path: Path) -> None:
        source = FileSource(write_people(tmp_path / "people.csv", 4), TASK)
        assert next(source.blocks()).people is None
        assert source.people == "row"

    def test_are_named_by_a_column(self, tmp_path: Path) -> None:
        source = FileSource(write_people(tmp_path / "people.csv", 4), TASK, person_column="who")
        assert list(next(source.blocks()).people or ()) == ["person-0", "person-0", "person-1", "person-1"]
        assert source.people == "column who"

    def test_may_be_numbers_in_json(self, tmp_path: Path) -> None:
        path = json_file(tmp_path, *({**record, "who": who} for who, record in enumerate(objects())))
        assert next(FileSource(path, TASK, person_column="who").blocks()).people == ["0", "1", "2", "3"]

    @pytest.mark.parametrize("who", [None, "", 1.5, True, ["x"], "a\0b", "\ud800", " ", "ann\u200b"])
    def test_need_a_name(self, tmp_path: Path, who: object) -> None:
        path = json_file(tmp_path, {**objects()[0], "who": "ann"}, {**objects()[1], "who": who})
        with pytest.raises(UserError, match=r"row 2, column 'who'"):
            list(FileSource(path, TASK, person_column="who").blocks())

    def test_are_known_by_one_spelling(self, tmp_path: Path) -> None:
        spellings = ["Zo\u00e9", "Zoe\u0301 ", " Zo\u00e9", "17", 17]
        path = json_file(tmp_path, *({**objects()[0], "who": who} for who in spellings))
        assert next(FileSource(path, TASK, person_column="who").blocks()).people == ["Zo\u00e9"] * 3 + ["17"] * 2

    def test_choose_their_level_in_a_column(self, tmp_path: Path) -> None:
        source = FileSource(write_people(tmp_path / "people.csv", 4), TASK, level_column="level")
        assert next(source.blocks()).levels == ["default", "strict", "open", "default"]

    def test_all_have_one_level_or_one_by_lot(self, tmp_path: Path) -> None:
        path = write_people(tmp_path / "people.csv", 2)
        assert next(FileSource(path, TASK).blocks()).levels == ["default", "default"]
        assert next(FileSource(path, TASK, level="open").blocks()).levels == ["open", "open"]
        assert next(FileSource(path, TASK, level="lot").blocks()).levels is None
        with pytest.raises(UserError, match="choose one of default, strict, open"):
            FileSource(path, TASK, level="opne")

    @pytest.mark.parametrize(("column", "what"), [("same_sex", "a feature"), ("third_child", "the target")])
    def test_do_not_choose_their_level_by_their_record(self, tmp_path: Path, column: str, what: str) -> None:
        """A level is written on its release in the clear."""
        task = make_task(text=LEVELS_OF_VALUES)
        with pytest.raises(UserError, match=f"{column!r}, {what} of the task"):
            FileSource(write_people(tmp_path / "people.csv", 4), task, level_column=column)

    def test_may_not_invent_a_level(self, tmp_path: Path) -> None:
        path = csv_file(tmp_path, ROWS[0] + ",open", ROWS[1] + "," + SECRET, header=HEADER + ",level")
        with pytest.raises(UserError, match=r"row 2, column 'level'.*default, strict, open") as caught:
            list(FileSource(path, TASK, level_column="level").blocks())
        assert SECRET not in str(caught.value)


BAD_ROWS = {
    "text for a number": (f"{SECRET},yes,JFK,no", "row 3, column 'age'"),
    "NaN": ("NaN,yes,JFK,no", "row 3, column 'age'"),
    "infinity": ("-inf,yes,JFK,no", "row 3, column 'age'"),
    "a number like Python's": ("2_8,yes,JFK,no", "row 3, column 'age'"),
    "a decimal comma": ('"28,5",yes,JFK,no', "row 3, column 'age'"),
    "an undeclared category": (f"28,{SECRET},JFK,no", "row 3, column 'same_sex'"),
    "another undeclared category": ("28,yes,SFO,no", "row 3, column 'origin'"),
    "a label outside the classes": (f"28,yes,JFK,{SECRET}", "row 3, column 'third_child'"),
    "bytes that are no UTF-8": ("28,yes,J\udcfcK,no", "row 3, column 'origin'"),
    "too few cells": ("28,yes,JFK", "row 3: 3 cells, and the header has 4"),
    "too many cells": (f"28,yes,JFK,no,{SECRET}", "row 3: 5 cells"),
    "an open quote": (f'28,yes,JFK,"{SECRET}', "row 3: not a CSV row"),
    "a quote in the middle": (f'28,yes,"JFK"{SECRET},no', "row 3: not a CSV row"),
}


class TestRefusals:
    @pytest.mark.parametrize("header", [f'age,"{SECRET}', f'"age"{SECRET},yes', '"age'])
    def test_a_first_line_that_is_no_csv(self, tmp_path: Path, header: str) -> None:
        """Of a file without a header it is a person's record."""
        with pytest.raises(UserError, match="first line: not a CSV row") as caught:
            FileSource(csv_file(tmp_path, header=header), TASK)
        assert SECRET not in str(caught.value)

    @pytest.mark.parametrize("what", BAD_ROWS)
    def test_bad_rows_are_named_and_not_quoted(self, tmp_path: Path, what: str) -> None:
        row, place = BAD_ROWS[what]
        path = csv_file(tmp_path, *ROWS[:2], row, ROWS[3])
        blocks = FileSource(path, TASK).blocks(size=1)
        assert [next(blocks).rows.tolist(), next(blocks).rows.tolist()] == [[0], [1]]
        with pytest.raises(UserError) as caught:
            list(blocks)
        message = str(caught.value)
        assert place in message
        assert str(path) in message
        for cell in row.replace('"', ",").split(","):
            if cell not in ("", "no", "yes"):
                assert cell not in message.replace(str(path), "")

    @pytest.mark.parametrize(
        ("row", "words"),
        [
            ("28,maybe,JFK,no", "(declared: 'no', 'yes')"), ("28,yes,SFO,no", "'JFK'"),
            ("28,yes,JFK,maybe", "(declared: 'no', 'yes')"),
        ],
    )  # fmt: skip
    def test_what_is_declared_is_said(self, tmp_path: Path, row: str, words: str) -> None:
        """It is public; what the record says is not."""
        with pytest.raises(UserError) as caught:
            list(FileSource(csv_file(tmp_path, row), TASK).blocks())
        assert words in str(caught.value)
        assert "maybe" not in str(caught.value)

    @pytest.mark.parametrize("what", BAD_ROWS)
    def test_a_block_is_checked_before_any_of_it_is_given(self, tmp_path: Path, what: str) -> None:
        path = csv_file(tmp_path, *ROWS[:2], BAD_ROWS[what][0], ROWS[3])
        with pytest.raises(UserError):
            next(FileSource(path, TASK).blocks(size=4))

    @pytest.mark.parametrize(
        ("value", "column"),
        [
            *((value, "age") for value in (True, "x", float("nan"), float("inf"), [1], 10**400)),
            *(({}, "origin"), (3, "origin"), ("maybe", "third_child"), (float("nan"), "third_child")),
        ],
    )
    def test_bad_values_in_json(self, tmp_path: Path, value: object, column: str) -> None:
        path = json_file(tmp_path, objects()[0], {**objects()[1], column: value})
        known = column == "age" or value != value
        words = "is not a finite number. Correct it;" if known else "is none of the declared categories. Correct it, or"
        words = "a boolean, not a number. Declare the column with categories" if value is True else f"the value {words}"
        with pytest.raises(UserError, match=f"row 2, column '{column}': {words}"):
            list(FileSource(path, TASK).blocks())

    @pytest.mark.parametrize("column", ["same_sex", "origin", "age", "third_child", "who"])
    def test_bytes_that_are_no_text_are_named_wherever_they_are(self, tmp_path: Path, column: str) -> None:
        """Also in a column of nothing but texts, which is looked at as a whole."""
        header = [*HEADER.split(","), "who"]
        rows = [[*row.split(","), f"w{place}"] for place, row in enumerate(ROWS)]
        rows[2][header.index(column)] += "\udcff"
        path = csv_file(tmp_path, *map(",".join, rows), header=",".join(header))
        with pytest.raises(UserError) as caught:
            list(FileSource(path, TASK, person_column="who").blocks())
        assert f"row 3, column '{column}'" in str(caught.value)
        assert ("not UTF-8 text. Save the file as UTF-8" in str(caught.value)) == (column != "who")

    def test_numbers_as_text_and_as_numbers(self, tmp_path: Path) -> None:
        """What Python alone reads as a number is none; in a name it is what it is."""
        ages = ["28", 21, 35.0, " 40 "]
        records = [{**one, "age": age} for one, age in zip(objects(), ages, strict=True)]
        assert read(json_file(tmp_path, *records))[0].tolist() == EXPECTED.tolist()
        with pytest.raises(UserError, match="row 5, column 'age': the value is not a finite number"):
            read(json_file(tmp_path, *records, {**records[0], "age": "2_8"}))
        task = make_task(text=TEXT.replace("EWR, JFK", "E_R, JFK"))
        assert read(csv_file(tmp_path, "28,yes,E_R,no"), task=task)[0].tolist() == [[0, 1, -1, -1, 1]]
        with pytest.raises(UserError, match="row 1, column 'age'"):
            read(csv_file(tmp_path, "2_8,yes,E_R,no"), task=task)

    @pytest.mark.parametrize("line", ["{", '["a"]', "3", '{"age": 1} x', "[" * 100_000])
    def test_lines_that_are_no_objects(self, tmp_path: Path, line: str) -> None:
        path = json_file(tmp_path, *objects(), line)
        with pytest.raises(UserError, match="row 5"):
            list(FileSource(path, TASK).blocks())

    def test_missing_values_where_the_task_has_no_rule(self, tmp_path: Path) -> None:
        strict = make_task("missing: error")
        assert read(csv_file(tmp_path, *ROWS), task=strict)[0].tolist() == EXPECTED.tolist()
        with pytest.raises(UserError, match=r"row 2, column 'origin'.*missing: midpoint"):
            read(csv_file(tmp_path, ROWS[0], "28,yes,,no"), task=strict)

    def test_a_missing_column(self, tmp_path: Path) -> None:
        path = csv_file(tmp_path, *ROWS, header="age,same_sex,origin,third_chlid")
        with pytest.raises(UserError, match="no column 'third_child'"):
            FileSource(path, TASK)
        with pytest.raises(UserError, match="no column 'who'"):
            FileSource(csv_file(tmp_path, *ROWS), TASK, person_column="who")

    def test_a_file_without_header_keeps_its_first_record_to_itself(self, tmp_path: Path) -> None:
        path = csv_file(tmp_path, *ROWS, header=f"28,yes,{SECRET},no")
        with pytest.raises(UserError, match="header") as caught:
            FileSource(path, TASK)
        assert SECRET not in str(caught.value)

    def test_a_missing_key(self, tmp_path: Path) -> None:
        records = [{key: value for key, value in record.items() if key != "origin"} for record in objects()]
        with pytest.raises(UserError, match="no key 'origin'"):
            FileSource(json_file(tmp_path, *records), TASK)

    def test_a_column_twice(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match="2 columns named 'age'"):
            FileSource(csv_file(tmp_path, ROWS[0] + ",1", header=HEADER + ",age"), TASK)

    def test_other_separators(self, tmp_path: Path) -> None:
        path = csv_file(tmp_path, *(row.replace(",", ";") for row in ROWS), header=HEADER.replace(",", ";"))
        with pytest.raises(UserError, match="semicolons"):
            FileSource(path, TASK)

    @pytest.mark.parametrize("name", ["people.csv", "people.csv.gz", "people.jsonl"])
    def test_no_rows(self, tmp_path: Path, name: str) -> None:
        empty = tmp_path / name
        empty.write_bytes(gzip.compress(b"") if name.endswith(".gz") else b"")
        with pytest.raises(UserError, match="no rows"):
            FileSource(empty, TASK)
        if "csv" in name:
            with pytest.raises(UserError, match="no rows"):
                FileSource(csv_file(tmp_path, name=name), TASK)

    def test_an_empty_table(self, tmp_path: Path) -> None:
        """Also where nobody has looked at its bytes before, as of a public file."""
        (tmp_path / "empty.csv").write_bytes(b"")
        with pytest.raises(UserError, match="has no rows: it is empty"):
            open_table(tmp_path / "empty.csv", [])

    @pytest.mark.parametrize("row", [1, 2, 3])
    def test_which_row_is_no_csv(self, tmp_path: Path, row: int) -> None:
        path = csv_file(tmp_path, *ROWS[: row - 1], '28,"yes"x,JFK,no', *ROWS[row:])
        with pytest.raises(UserError, match=f"row {row}: not a CSV row"):
            list(open_table(path, []).rows(0))

    @pytest.mark.parametrize(
        ("row", "words"),
        [
            ('28,"yes', "a quoted cell that never ends"), ('28,"' + "x" * 140_000, "a quoted cell that never ends"),
            ('28,"yes"x', "',' expected after '\"'"),
        ],
        ids=["open", "long", "middle"],
    )  # fmt: skip
    def test_why_a_row_is_no_csv(self, tmp_path: Path, row: str, words: str) -> None:
        with pytest.raises(UserError) as caught:
            list(open_table(csv_file(tmp_path, row), []).rows(0))
        assert f"row 1: not a CSV row ({words}). Put cells" in str(caught.value)

    def test_a_file_that_is_gone_was_changed(self, tmp_path: Path) -> None:
        source = FileSource(write_people(tmp_path / "people.csv", 10), TASK)
        blocks = source.blocks(size=5)
        next(blocks)
        source.path.unlink()
        with pytest.raises(UserError, match="changed while it was read"):
            next(blocks)

    @pytest.mark.parametrize("keep", [0.3, 0.9, 0.999])
    def test_a_truncated_gzip_is_found_before_anything_is_released(self, tmp_path: Path, keep: float) -> None:
        path = tmp_path / "people.csv.gz"
        data = gzip.compress(write_people(tmp_path / "people.csv", 5000).read_bytes())
        path.write_bytes(data[: int(len(data) * keep)])
        with pytest.raises(UserError, match="truncated"):
            FileSource(path, TASK)

    def test_other_damage(self, tmp_path: Path) -> None:
        path = tmp_path / "people.csv.gz"
        data = bytearray(gzip.compress(write_people(tmp_path / "people.csv", 5000).read_bytes()))
        data[len(data) // 2] ^= 0xFF
        path.write_bytes(data)
        with pytest.raises(UserError, match="gzip"):
            FileSource(path, TASK)
        path.write_bytes(b"\x1f\x8c" + bytes(data[2:]))
        with pytest.raises(UserError, match="gzip"):
            FileSource(path, TASK)

    @pytest.mark.parametrize("start", [b"\xff\xfea", b"\xfe\xffa", b"a\0ge", b"a,b\0", b"\0age"])
    @pytest.mark.parametrize("name", ["people.csv", "people.csv.gz"])
    def test_what_begins_as_no_utf8_text_does(self, tmp_path: Path, start: bytes, name: str) -> None:
        (tmp_path / name).write_bytes(gzip.compress(start) if name.endswith(".gz") else start)
        with pytest.raises(UserError, match="is not UTF-8 text"):
            FileSource(tmp_path / name, TASK)
        # Four bytes tell it; of what comes later other things are to be said.
        (tmp_path / name).write_bytes(gzip.compress(b"age,\0\n1,2") if name.endswith(".gz") else b"age,\0\n1,2")
        with pytest.raises(UserError, match="no column 'same_sex'"):
            FileSource(tmp_path / name, TASK)

    def test_keys_are_looked_for_in_so_many_lines(self, tmp_path: Path) -> None:
        """Until then a key may be left out; the column is there all the same."""
        first = {key: value for key, value in objects()[0].items() if key != "origin"}
        for before in (KEYS_LOOKED_AT - 1, KEYS_LOOKED_AT):
            path = json_file(tmp_path, *[first] * before, objects()[0])
            if before < KEYS_LOOKED_AT:
                assert FileSource(path, TASK).size == KEYS_LOOKED_AT
                continue
            with pytest.raises(UserError, match=f"no key 'origin' in its first {KEYS_LOOKED_AT} lines"):
                FileSource(path, TASK)
        assert KEYS_LOOKED_AT == 1000

    @pytest.mark.parametrize(
        ("header", "words"),
        [
            ("age;b", "separated by semicolons"), ("age\tb", "separated by tabs"), ("age|b", "separated by bars"),
            ("age b", "must be a header"), ("age;b,c", "must be a header"),
        ],
    )  # fmt: skip
    def test_what_a_header_of_another_kind_is_said_to_be(self, tmp_path: Path, header: str, words: str) -> None:
        with pytest.raises(UserError, match=words):
            FileSource(csv_file(tmp_path, "1", header=header), TASK)

    def test_other_encodings_and_formats(self, tmp_path: Path) -> None:
        path = tmp_path / "people.csv"
        path.write_text("\n".join([HEADER, *ROWS]), encoding="utf-16")
        with pytest.raises(UserError, match="UTF-8"):
            FileSource(path, TASK)
        path = tmp_path / "people.xlsx"
        path.write_bytes(b"PK34")
        with pytest.raises(UserError, match=r"\.csv, \.jsonl"):
            FileSource(path, TASK)
        with pytest.raises(UserError, match="cannot be read"):
            FileSource(tmp_path / "nowhere.csv", TASK)
        (tmp_path / "folder.csv").mkdir()
        with pytest.raises(UserError, match="cannot be read"):
            FileSource(tmp_path / "folder.csv", TASK)

    def test_a_file_that_changes_while_it_is_read(self, tmp_path: Path) -> None:
        path = write_people(tmp_path / "people.csv", 100)
        blocks = FileSource(path, TASK).blocks(size=10)
        next(blocks)
        with path.open("a") as file:
            file.write("28,yes,JFK,no,ann,open\n")
        with pytest.raises(UserError, match="changed"):
            next(blocks)

    def test_labels_of_a_file_that_changes_while_they_are_counted(self, tmp_path: Path) -> None:
        source = FileSource(write_people(tmp_path / "people.csv", 10), TASK)
        assert sum(source.labels().values()) == 10
        with source.path.open("a") as file:
            file.write("28,yes,JFK,no,ann,open\n")
        with pytest.raises(UserError, match="changed"):
            source.labels()

    def test_nothing_of_a_record_in_a_repr(self, tmp_path: Path) -> None:
        source = FileSource(write_people(tmp_path / "people.csv", 4), TASK, person_column="who")
        block = next(source.blocks())
        assert "person-0" not in repr(block)
        assert repr(block.x) not in repr(block)
        assert "clamped" not in repr(block)
        shown = {
            FileBlock: ["source", "rows", "next_position"],
            ReleaseRequests: ["source", "keep_levels"],
            Run: ["people", "next_row"],
            Window: ["key", "index", "partition", "since", "outcome", "reason", "records", "next_row"],
        }
        for kind, names in shown.items():
            assert [field.name for field in fields(kind) if field.repr] == names

    def test_how_people_are_named(self, tmp_path: Path) -> None:
        """As the ledger notes it, so that a file is not worked through with its people named otherwise."""
        path = write_people(tmp_path / "people.csv", 4)
        text = TEXT.replace("guarantee: {gdp: {mu: 1.0}}", "guarantee: {approx: {epsilon: 1.0, delta: 1.0e-6}}")
        text = text.split("  levels:")[0]
        sketch = make_task("protocol: summaries", "summaries: {rows: 2, window: 2}", text=text)
        assert FileSource(path, TASK).people == "row"
        assert FileSource(path, TASK, person_column="who").people == "column who"
        assert FileSource(path, sketch).people == "one organisation"
        assert FileSource(path, sketch, organisation_column="who").people == "organisations of column who"

    def test_a_level_that_is_called_as_drawing_lots_is(self, tmp_path: Path) -> None:
        path = write_people(tmp_path / "people.csv", 4)
        task = make_task(text=TEXT.replace("{strict:", "{lot:"))
        with pytest.raises(UserError, match="has a level named 'lot', which means at random: rename it"):
            FileSource(path, task, level="lot")
        FileSource(path, task, level="default")
        FileSource(path, task, level="lot", level_column="level")
        with pytest.raises(UserError, match="has no level 'strict': choose one of default, lot, open"):
            FileSource(path, task, level="strict")


class TestPublicSample:
    def test_is_drawn_without_replacement_and_can_be_repeated(self, tmp_path: Path) -> None:
        source = FileSource(write_people(tmp_path / "people.csv", 200), TASK)
        rows = source.select(50, SimulatedNoise(3))
        assert rows == sorted(set(rows))
        assert len(rows) == 50
        assert set(rows) <= set(range(200))
        assert rows == source.select(50, SimulatedNoise(3)) != source.select(50, SimulatedNoise(4))
        assert source.select(200, SecureNoise()) == list(range(200))

    def test_does_not_depend_on_chunks(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        source = FileSource(write_people(tmp_path / "people.csv", 200), TASK)
        whole = source.select(50, SimulatedNoise(3))
        monkeypatch.setattr("murk.populations.file_source.SELECT_CHUNK", 7)
        assert source.select(50, SimulatedNoise(3)) == whole

    def test_takes_every_row_equally_often(self, tmp_path: Path) -> None:
        # 400 draws of 5 rows of 20: each row's count is binomial(400, 1/4), and the counts' chi-square over
        # 20 rows, times 19/20 / (1 - 1/4) for drawing without replacement, is that of 19 degrees of freedom:
        # above 52.4 with probability 6e-5, for this seed not.
        source = FileSource(write_people(tmp_path / "people.csv", 20), TASK)
        counts = np.zeros(20)
        for seed in range(400):
            counts[source.select(5, SimulatedNoise(seed))] += 1

        def statistic(counts: np.ndarray) -> float:
            return float(((counts - 100) ** 2 / 100).sum() * (19 / 20) / (1 - 1 / 4))

        assert statistic(counts) < 52.4
        # The same test refuses rows that are taken 30% too often.
        biased = counts.copy()
        biased[:10] *= 1.3
        assert statistic(biased * 2000 / biased.sum()) > 52.4

    def test_gives_covariates_without_the_outcome(self, tmp_path: Path) -> None:
        rows = ["28,yes,JFK,no", "28,yes,JFK,yes", "21,no,EWR,yes", "28,yes,JFK,not a label", "35,no,LGA,no"]
        source = FileSource(csv_file(tmp_path, *rows), TASK)
        points, counts = source.covariates([0, 1, 3, 2])
        assert points.tolist() == [[-1, -1, -1, -1, 1], [0, 1, 1, -1, 1]]
        assert counts.tolist() == [1, 3]
        with pytest.raises(UserError, match="5 rows"):
            source.covariates([5])

    def test_is_drawn_of_those_who_may_be(self, tmp_path: Path) -> None:
        """Of no more rows than there are, without those of people who have withdrawn; others' names are no rows."""
        source = FileSource(write_people(tmp_path / "people.csv", 6), TASK)
        gone = ["ann", 0, 5, 6, -1, 3]
        assert source.select(3, SimulatedNoise(1), excluded=gone) == [1, 2, 4]
        assert source.select(0, SimulatedNoise(1), excluded=gone) == []
        for count in (4, -1):
            with pytest.raises(UserError, match=f"{count} rows cannot be set aside: .*people.csv has 3"):
                source.select(count, SimulatedNoise(1), excluded=gone)
        assert source.select(6, SimulatedNoise(1)) == [*range(6)]

    def test_needs_one_row_a_person(self, tmp_path: Path) -> None:
        source = FileSource(write_people(tmp_path / "people.csv", 20), TASK, person_column="who")
        with pytest.raises(UserError, match="other rows"):
            source.select(3, SecureNoise())
        plain = FileSource(tmp_path / "people.csv", TASK)
        with pytest.raises(UserError, match="has 20"):
            plain.select(21, SecureNoise())


def test_rows_are_counted_where_they_were_read_to_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = csv_file(tmp_path, *ROWS)
    for start, excluded, reads in ((0, (), 0), (1, (), 1), (9, (), 1), (0, (3,), 1)):
        source, starts = FileSource(path, TASK), []
        found = source._table.rows
        # What a table is asked for from here on.
        monkeypatch.setattr(source._table, "rows", lambda first, f=found, s=starts: s.append(first) or f(first))
        for _ in source.blocks(start, size=2, excluded=excluded):
            pass
        assert source.size == len(ROWS)
        assert len(starts) == 1 + reads
