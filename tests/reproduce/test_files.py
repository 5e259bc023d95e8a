"""The papers' own files, as they are distributed: small made-up ones of the same shape stand in for them here."""

import gzip
from dataclasses import replace

import numpy as np
import pytest

from murk.errors import UserError
from reproductions.catalogue import experiments
from reproductions.data_file import DataFile, read_numbers, recognized
from reproductions.experiment import Setting
from reproductions.gaussmix import files as regression
from reproductions.gaussmix import regression as figures
from reproductions.public_glm import files as accuracy
from reproductions.public_glm import real

SOURCES = {source.file.name: source for source in (*regression.FIG2, *regression.FIG4, *accuracy.SOURCES)}
TINY = Setting(size="tiny")


def cells(source, n, rng):
    """Rows of a file as it is distributed: its columns, in their order."""
    values = {name: rng.uniform(0.0, 1.0, n).round(4) for name in source.file.columns}
    for name in {"season", "weathersit", "weather"} & set(values):
        values[name] = rng.integers(1, 4, n)
    for name in {"Cover_Type", "signal"} & set(values):
        chance = 1 / (1 + np.exp(2 - 4 * values[source.file.columns[1]]))
        values[name] = np.where(rng.random(n) < chance, 2.0, 1.0)
        if name == "signal":
            values[name] -= 1.0
    words = {name: [str(value) for value in column] for name, column in values.items()}
    if "datetime" in words:
        words["datetime"] = [f"201{i % 2 + 1}-03-{i % 28 + 1:02} {i % 24:02}:00:00" for i in range(n)]
    if "communityname" in words:
        words["communityname"] = [f"Place{i}city" for i in range(n)]
        words["county"] = words["30"] = ["?"] * (n - 1) + ["0.5"]
        words["31"][3] = "?"
    return list(zip(*words.values(), strict=True))


def write(path, source, rows, separator=","):
    """A file of these rows."""
    file = source.file
    lines = [separator.join(f'"{name}"' for name in file.columns)] if file.header else []
    for row in rows:
        if file.spaced:
            parts = np.array_split(np.array(row), file.lines)
            lines += [" ".join(part) for part in parts]
        else:
            lines.append(separator.join(row))
    text = "\r\n".join(lines) + "\r\n"
    if path.suffix == ".gz":
        with gzip.open(path, "wt", newline="") as packed:
            packed.write(text)
    else:
        path.write_text(text, newline="")
    return path


def made_up(path, source, n=400, **more):
    """A file of random rows."""
    return write(path, source, cells(source, n, np.random.default_rng(1)), **more)


@pytest.mark.parametrize("name", SOURCES)
def test_each_file_is_known_among_all_of_its_figure_and_read_as_it_is(name, tmp_path):
    source = SOURCES[name]
    rows = cells(source, 300, np.random.default_rng(2))
    path = write(tmp_path / "file.gz", source, rows)
    (one,) = [one for one in experiments().values() if source.file in one.files]
    assert recognized(path, one.files) == source.file
    assert [tuple(row) for row in source.file.read(path)] == rows


def test_columns_are_found_whatever_separates_them_and_however_they_are_written(tmp_path):
    wine = regression.WINE
    read = [
        regression.read(wine, made_up(tmp_path / f"wine{place}.csv", wine, separator=separator)).x
        for place, separator in enumerate(",;\t")
    ]
    assert np.array_equal(read[0], read[1])
    assert np.array_equal(read[0], read[2])
    path = tmp_path / "upper.csv"
    path.write_text("\ufeff" + (tmp_path / "wine0.csv").read_text().replace("quality", "QUALITY"), encoding="utf-8")
    assert np.array_equal(regression.read(wine, path).x, read[0])


def test_each_wine_counts_once(tmp_path):
    rows = cells(regression.WINE, 60, np.random.default_rng(3))
    table = regression.read(regression.WINE, write(tmp_path / "wine.csv", regression.WINE, [*rows, *rows[:9]]))
    assert table.x.shape == (60, 11)
    assert table.rows == 69
    assert table.y.tolist() == [float(row[-1]) for row in rows]


def test_communities_are_those_of_the_public_code(tmp_path):
    rows = cells(regression.CRIME, 900, np.random.default_rng(4))
    table = regression.read(regression.CRIME, write(tmp_path / "communities.data", regression.CRIME, rows))
    black = np.array([float(row[7]) for row in rows])
    # 122 shares without that of black people, and without the one that is mostly missing.
    assert table.x.shape == (np.sum(black >= 0.1), 120)
    # Another's only missing cell is the mean of the others, which is 0 when they are standardized.
    place = [str(at) for at in range(6, 128) if at not in (8, 30)].index("31")
    assert table.x[np.sum(black[:3] >= 0.1), place] == pytest.approx(0.0, abs=1e-12)
    assert black[3] >= 0.1


def test_a_few_records_are_not_enough(tmp_path):
    with pytest.raises(UserError, match="wine has 19 records"):
        regression.read(regression.WINE, made_up(tmp_path / "wine", regression.WINE, n=19))


def test_hours_of_both_distributors_have_the_features_of_the_public_code(tmp_path):
    for source in regression.BIKE:
        table = regression.read(source, made_up(tmp_path / "bike.csv", source))
        # Three seasons and kinds of weather in these files, and no hour in that of days.
        assert table.x.shape == (400, 15 if source.file.name.startswith("day") else 16)
    (rented,) = [source for source in regression.BIKE if source.clock]
    found = regression._calendar(["2011-01-01 05:00:00", "2012-12-31 23:00:00"])
    assert found == {"hour": ["5", "23"], "day": ["5", "0"], "month": ["1", "12"], "year": ["0", "1"]}
    rows = [["once", *row[1:]] for row in cells(rented, 40, np.random.default_rng(5))]
    with pytest.raises(UserError, match="a date and time does not have the form") as error:
        regression.read(rented, write(tmp_path / "bike.csv", rented, rows))
    assert "once" not in str(error.value)


def test_words_before_the_first_numbers_are_left_out(tmp_path):
    source = regression.TECATOR[0]
    path = made_up(tmp_path / "tecator", source, n=150)
    plain = regression.read(source, path)
    path.write_text("This is 1 of 240\n\nreal_in=100\n" + path.read_text())
    assert np.array_equal(regression.read(source, path).x, plain.x)
    path.write_text("\n".join(path.read_text().splitlines()[:-1]))
    with pytest.raises(UserError, match="row 150 has 120 cells, the file 125"):
        regression.read(source, path)


def test_another_file_is_answered_with_those_that_are_taken_and_none_of_its_cells(tmp_path):
    path = tmp_path / "other.csv"
    path.write_text("Zaphod;3\nBeeblebrox;4\n")
    with pytest.raises(
        UserError, match=r"other.csv is not a file that this figure accepts; it accepts: .*winequality-red"
    ) as e:
        experiments()["004/fig4"].run(replace(TINY, data=path))
    assert "Zaphod" not in str(e.value)
    assert "\n" not in str(e.value)
    path.write_text(",".join(name for name in regression.WINE.file.columns if name != "pH") + "\n")
    with pytest.raises(UserError, match=r"accepts \(no column pH\); it accepts"):
        experiments()["004/fig4"].run(replace(TINY, data=path))
    # A file with a header has as many columns as the one without; which it is not, its first cell says.
    path.write_text("\n".join([",".join(f"c{i}" for i in range(128)), ",".join("1" for _ in range(128))]))
    with pytest.raises(UserError, match=r"communities\.data"):
        experiments()["004/fig2"].run(replace(TINY, data=path))


@pytest.mark.parametrize(
    ("cell", "words"),
    [("?", "not a number"), ("nan", "not a number"), ("Zaphod", "not a number"), (None, "has 18 cells")],
)
def test_a_cell_that_is_no_number_is_named_by_its_place(tmp_path, cell, words):
    susy = accuracy.SOURCES[-1]
    rows = [list(row) for row in cells(susy, 50, np.random.default_rng(6))]
    rows[39][3:4] = [] if cell is None else [cell]
    path = write(tmp_path / "SUSY.csv", susy, rows)
    with pytest.raises(UserError, match=rf"row 40.*{words}") as error:
        read_numbers(path, susy.file)
    assert cell is None or cell not in str(error.value).replace("(1 of", "")
    # Rows that are not needed are not read.
    assert len(read_numbers(path, susy.file, most=39)["signal"]) == 39


def test_words_of_a_large_file_are_in_memory_in_parts(tmp_path, monkeypatch):
    monkeypatch.setattr("reproductions.data_file._AT_ONCE", 7)
    file = DataFile(name="x", columns=("a", "b"), header=False)
    path = tmp_path / "x.csv"
    path.write_text("".join(f"{i},{-i}\n" for i in range(20)))
    assert read_numbers(path, file)["b"].tolist() == [-i for i in range(20)]
    path.write_text(path.read_text() + "20,\n")
    with pytest.raises(UserError, match=r"row 21, column b: not a number \(1 of 7 rows\)"):
        read_numbers(path, file)
    path.write_text("")
    with pytest.raises(UserError, match="no column a, b"):
        read_numbers(path, file)


def test_a_file_that_was_cut_off_is_refused(tmp_path):
    path = made_up(tmp_path / "covtype.data.gz", accuracy.SOURCES[0], n=50)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(UserError, match="is not a CSV file: EOFError"):
        experiments()["003/fig6"].run(replace(TINY, data=path))


def published(source, n):
    """The same source, as if its published file had so many rows."""
    return replace(source, file=replace(source.file, rows=(n,)))


@pytest.mark.parametrize(("figure", "name"), [
    (figures.fig2, "CRIME"), (figures.fig2, "TECATOR"), (figures.fig4, "WINE"), (figures.fig4, "BIKE"),
])  # fmt: skip
def test_a_figure_of_the_papers_file_is_of_that_file_alone(figure, name, tmp_path, monkeypatch):
    whole = getattr(regression, name)
    source = whole if isinstance(whole, regression.Source) else next(one for one in whole if one.own)
    setting = replace(TINY, data=made_up(tmp_path / "file", source, n=260))
    outcome = figure(setting)
    cases = [one.name for one in (*regression.FIG2, *regression.FIG4) if one.file == source.file]
    assert [panel.title for panel in outcome.panels] == [f"{case} (k = 2.5 d)" for case in cases]
    assert outcome.checks
    # It has too few rows to be the published one.
    assert {row.tag for row in outcome.rows} == {"stand-in"}
    assert all("260 rows" in row.note and "The published file has" in row.note for row in outcome.rows)
    for sources in ("FIG2", "FIG4"):
        made = tuple(published(one, 260) for one in getattr(regression, sources))
        monkeypatch.setattr(figures, sources, made)
    own = {one.name: one.own for one in (*regression.FIG2, *regression.FIG4) if one.file == source.file}
    for row in figure(setting).rows:
        assert row.tag == ("reduced" if own[row.what.split(", ")[0]] else "stand-in")


def test_of_each_data_set_one_file_and_its_features_are_the_papers_own():
    sources = (*regression.FIG2, *regression.FIG4)
    for name in {one.name.partition(" (")[0] for one in sources}:
        assert [one.own for one in sources if one.name.partition(" (")[0] == name].count(True) == 1


def test_what_the_public_code_has_not_is_a_stand_in_however_many_rows_it_has(tmp_path, monkeypatch):
    (days,) = [source for source in regression.FIG4 if not source.own and source.file.name.startswith("day.csv")]
    monkeypatch.setattr(figures, "FIG4", (published(days, 60),))
    outcome = figures.fig4(replace(TINY, data=made_up(tmp_path / "day.csv", days, n=60)))
    assert {row.tag for row in outcome.rows} == {"stand-in"}


def test_accuracies_of_the_papers_file_are_of_its_question(tmp_path, monkeypatch):
    source, n = accuracy.SOURCES[0], 12_000
    setting = replace(TINY, data=made_up(tmp_path / "file.gz", source, n=n))
    outcome = real.fig6(setting)
    assert {row.tag for row in outcome.rows} == {"stand-in", "unreachable"}
    assert all(source.name in row.what for row in outcome.rows)
    # One column alone decides, and mostly: that is learned without noise.
    assert outcome.rows[-1].as_published.value > 0.65
    monkeypatch.setattr(real, "SOURCES", tuple(published(one, n) for one in accuracy.SOURCES))
    task = real._of_file(setting)
    assert task.tag == "reduced"
    assert task.x.shape[1] == source.features
    assert np.abs(task.x).max() <= 1.0 + 1e-12
    few = made_up(tmp_path / "few.csv", source, n=3000)
    with pytest.raises(UserError, match=r"few.csv has 3,000 rows"):
        real._of_file(replace(setting, data=few))


def test_one_answer_only_is_no_question(tmp_path):
    susy = accuracy.SOURCES[-1]
    rows = [("1", *row[1:]) for row in cells(susy, 50, np.random.default_rng(7))]
    with pytest.raises(UserError, match="only one answer in column signal"):
        accuracy.read(susy, write(tmp_path / "SUSY.csv", susy, rows))


def test_a_rare_feature_that_nobody_public_has_is_left_out(tmp_path):
    covertype = accuracy.SOURCES[0]
    rows = [list(row) for row in cells(covertype, 12_000, np.random.default_rng(8))]
    for i, row in enumerate(rows):
        row[53] = "1" if i == 0 else "0"
        row[10:14] = ["1" if i % 4 == place else "0" for place in range(4)]
    path = write(tmp_path / "covtype.data", covertype, rows)
    x, _ = accuracy.read(replace(covertype, features=None), path)
    # Of four areas one is known from the others.
    assert x.shape[1] == 53
    assert real.fig6(replace(TINY, data=path)).rows
