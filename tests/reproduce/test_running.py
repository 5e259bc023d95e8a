"""Experiments are run in processes of their own, kept on disk, and not made twice."""

import gzip
import io
import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from PIL import Image

from murk.errors import MurkError, UserError
from reproductions import catalogue, run, store
from reproductions.experiment import Check, Experiment, Measured, Panel, Paper, Row, Series, Setting
from reproductions.picture import _COLOURS, _drawn, _shared, draw
from tests.reproduce import made_up
from tests.reproduce.made_up import AGES


def experiment(function, **more):
    return Experiment(id=f"009/{function}", title="made up", module=made_up.__name__, function=function, **more)


def reproduce(*arguments, **more):
    """What each found; the first of those that could not be made is raised."""
    found = run.reproduce(*arguments, **more)
    for error in found.lacking.values():
        raise error
    return found.results


@pytest.fixture
def made(monkeypatch):
    """How many experiments have been started."""
    started = []

    def start(*arguments):
        started.append(arguments)
        return begin(*arguments)

    begin = run._start
    monkeypatch.setattr(run, "_start", start)
    return lambda: len(started)


def test_what_was_made_is_taken_up_and_a_broken_off_one_made_again(tmp_path, made):
    out, good, said = tmp_path / "out", experiment("good"), []
    (found,) = reproduce([good], Setting(), out, tick=lambda done, text: said.append((done, text)))
    assert found["holds"]
    assert made() == 1
    assert said[-1] == (1.0, "009/good done")
    assert store.rows_of(found)[0].published == 0.0
    assert (out / "009" / "good.png").read_bytes().startswith(b"\x89PNG")
    assert len((out / "009" / "good.csv").read_text().splitlines()) == 101
    assert reproduce([good], Setting(), out) == [found]
    assert made() == 1
    # Another seed or size is another result, and does not take its place.
    reproduce([good], Setting(seed=2), out)
    assert made() == 2
    assert reproduce([good], Setting(), out) == [found]
    (out / "009" / "good-seed2.json").write_text(json.dumps(found)[:50])
    reproduce([good], Setting(seed=2), out)
    assert made() == 3
    assert not list(out.rglob(".*"))


def test_checks_that_fail_are_results_but_mistakes_and_deaths_are_errors(tmp_path):
    results = reproduce([experiment("failing"), experiment("good")], Setting(), tmp_path, jobs=2)
    assert [found["holds"] for found in results] == [False, True]
    with pytest.raises(UserError, match="009/mistaken: rows=0") as error:
        reproduce([experiment("mistaken")], Setting(), tmp_path)
    assert error.value.code == "MURK-CLI-002"
    with pytest.raises(MurkError, match="status -9, without a result"):
        reproduce([experiment("killed")], Setting(), tmp_path)
    assert not (tmp_path / "009" / "killed.json").exists()
    with pytest.raises(
        MurkError, match=r"009/faulty: unexpected IndexError at made_up.py:\d+; this is a fault"
    ) as error:
        reproduce([experiment("faulty")], Setting(), tmp_path)
    assert "cell" not in str(error.value)


def test_one_that_cannot_be_made_keeps_no_other_from_it(tmp_path):
    others = ["mistaken", "killed", "faulty"]
    found = run.reproduce([*map(experiment, others), experiment("good")], Setting(), tmp_path, jobs=1)
    assert list(found.lacking) == [f"009/{name}" for name in others]
    assert [one["id"] for one in found.results] == ["009/good"]


def test_a_place_where_no_result_can_be_written_is_refused_before_the_work(tmp_path, made):
    (tmp_path / "009").write_text("a file where a folder should be")
    with pytest.raises(OSError, match="009"):
        reproduce([experiment("good")], Setting(), tmp_path)
    assert made() == 0


def test_a_failed_write_that_names_no_file_is_said_with_the_folder(tmp_path):
    error = run.reproduce([experiment("full_disk")], Setting(), tmp_path / "out").lacking["009/full_disk"]
    assert isinstance(error, OSError)
    assert error.strerror == "No space left on device"
    assert error.filename.startswith(str(tmp_path / "out"))


def test_a_process_whose_parent_is_gone_ends_without_a_word(tmp_path, capfd):
    reader, process = run._start(experiment("good"), Setting(), tmp_path, store.origin_of(Setting()))
    reader.close()
    process.join()
    assert process.exitcode == 0
    assert "Error" not in capfd.readouterr().err


@pytest.mark.parametrize(
    ("cell", "words"), [("NA", "row 3, column age: not a number"), ("nan", "row 3, column age"), (None, "no rows")]
)
def test_a_files_cells_are_numbers_and_none_is_repeated(tmp_path, cell, words):
    path = tmp_path / "people.csv"
    path.write_text("age\n" if cell is None else f"age\n30\n{cell}\n")
    with pytest.raises(UserError, match=words) as error:
        Setting(data=path).numbers(AGES)
    assert cell is None or cell not in str(error.value)
    path.write_text("age,sex\n30,1\n,1\n")
    assert Setting(data=path).numbers(AGES, empty=True)["age"].tolist() == pytest.approx([30.0, np.nan], nan_ok=True)
    with pytest.raises(UserError, match=r"row 3, column age: not a number \(1 of 2 rows\)"):
        Setting(data=path).numbers(AGES)


def test_the_papers_file_is_checked_before_anything_is_made(tmp_path):
    takes = experiment("with_file", files=(AGES,))
    right, wrong, cut = tmp_path / "right.csv.gz", tmp_path / "wrong.csv", tmp_path / "cut.csv.gz"
    with gzip.open(right, "wt") as file:
        file.write("sex,age\nf,30\n")
    wrong.write_text("sex,years\nf,30\n")
    cut.write_bytes(right.read_bytes()[:-9])
    (found,) = reproduce([takes], Setting(data=right), tmp_path)
    assert found["origin"]["data"] == {"name": "right.csv.gz", "sha256": store.sha256_of(right)}
    for data, words in (
        (wrong, "is not a file that this figure accepts"),
        (cut, "is not a CSV file"),
        (tmp_path / "none.csv", "No such file"),
    ):
        with pytest.raises((UserError, OSError), match=words):
            reproduce([takes], Setting(data=data), tmp_path)
    with pytest.raises(UserError, match="only simulated data"):
        reproduce([experiment("good")], Setting(data=right), tmp_path)


def test_a_word_means_a_figure_a_paper_or_all_and_another_is_answered_with_the_nearest(monkeypatch):
    papers = [
        Paper(
            number=number,
            protocol="x",
            citation="Nobody",
            experiments=[replace(experiment("good"), id=f"{number}/a", also=(f"{number}/both",))],
        )
        for number in ("008", "009")
    ]
    monkeypatch.setattr(catalogue, "PAPERS", papers)
    assert [one.id for one in catalogue.chosen("all")] == ["008/a", "009/a"]
    assert catalogue.chosen("009/both") == catalogue.chosen("009/a")
    assert [one.id for one in catalogue.chosen("009")] == [one.id for one in catalogue.chosen("009/a")] == ["009/a"]
    with pytest.raises(UserError, match=r"no figure or table '09/a': did you mean 009/a\? \(all, 008/a, 008/both"):
        catalogue.chosen("09/a")


def test_a_stand_in_has_no_published_number_and_says_what_it_is():
    with pytest.raises(ValueError, match="cannot have a published number"):
        Row(what="accuracy", tag="stand-in", published=0.9, note="other data")
    with pytest.raises(ValueError, match="name the stand-in"):
        Row(what="accuracy", tag="stand-in")


def test_every_line_keeps_its_own_colour():
    lines = [Series(name=str(i), x=[0.0, 1.0], y=[i, i]) for i in range(len(_COLOURS))]
    made = Image.open(io.BytesIO(draw("colours", [Panel(title="", x="x", y="y", series=lines)])))
    # Of a line's pixels most are of its very colour; others are blended with what is beside it.
    seen = Counter(map(tuple, np.asarray(made.convert("RGB")).reshape(-1, 3).tolist()))
    for colour in _COLOURS:
        assert seen[tuple(round(255 * part) for part in to_rgb(colour))] > 100


def panels(*counts):
    return [
        Panel(title="a", x="x", y="y", series=[Series(name=f"line {i}", x=[0, 1], y=[0, i]) for i in range(count)])
        for count in counts
    ]


def test_panels_of_the_same_lines_share_one_legend_and_others_have_their_own():
    assert _shared(panels(6, 6))
    assert _shared(panels(2, 2))
    assert not _shared(panels(6))
    assert not _shared(panels(6, 7))
    assert draw("many", panels(6, 6)).startswith(b"\x89PNG")


@pytest.mark.parametrize("counts", [(5,), (9, 3), (4, 4), (2, 3, 4, 5), (3, 4) * 6])
def test_no_legend_lies_over_a_line_or_the_name_of_an_axis(counts):
    drawn = _drawn("title", panels(*counts))
    drawn.draw_without_rendering()
    shown = [axes for axes in drawn.axes if axes.get_visible()]
    own = [axes.get_legend() for axes in shown if axes.get_legend() is not None]
    legends = [legend.get_window_extent() for legend in [*drawn.legends, *own]]
    assert len(legends) == (1 if len(set(counts)) == 1 and len(counts) > 1 else len(counts))
    for legend in legends:
        assert drawn.bbox.containsx(legend.x0)
        assert drawn.bbox.containsy(legend.y0)
        for axes in shown:
            for place in (axes, axes.xaxis.label, axes.title):
                assert not legend.overlaps(place.get_window_extent())


def test_numbers_agree_within_four_standard_errors_and_no_more():
    assert Check.near("", Measured(1.0, 0.1), 1.39).holds
    assert not Check.near("", Measured(1.0, 0.1), 1.41).holds
    assert Check.near("", Measured(1.0), 1.009, relative=0.01).holds
    assert not Check.near("", Measured(1.0), 1.011, relative=0.01).holds
    assert Check.less("", Measured(1.0), Measured(2.1), times=2).holds
    assert not Check.less("", Measured(1.0), Measured(1.9), times=2).holds
    assert Check.less("", Measured(1.0, 0.03), Measured(1.25, 0.04)).holds
    unclear = Check.less("", Measured(1.0, 0.03), Measured(1.15, 0.04))
    assert (unclear.holds, unclear.undecided) == (False, True)
    wrong = Check.less("", Measured(1.15, 0.03), Measured(1.0, 0.04))
    assert (wrong.holds, wrong.undecided) == (False, False)


def test_what_is_drawn_alike_is_compared_run_by_run():
    runs = np.random.default_rng(5).normal(size=20)
    steps = 0.1 + 0.01 * np.arange(20)
    assert Check.less_paired("", runs, runs + steps).holds
    assert not Check.less("", Measured.mean(runs), Measured.mean(runs + steps)).holds
    assert not Check.less_paired("", runs + steps, runs).holds
    assert not Check.less_paired("", runs, runs + steps, times=3.0).holds
