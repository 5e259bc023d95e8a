"""Notebooks run, and show what they showed; the gallery's tasks are learned and drawn; the FAQ's figures are true."""

import json
import math
import re
import sys
from statistics import NormalDist

import pytest

from murk import Task
from murk.planning.choice import recommend
from murk.privacy import GaussianDP
from murk.privacy.guarantees import percent
from tests import forking
from tools import gallery
from tools.notebooks import NOTEBOOKS, executed, written
from tools.site.notebooks import as_markdown

NAMES = ["comparing-protocols", "first-answer", "own-data", "reading-intervals"]
DOCS = NOTEBOOKS.parent
# What they import, and what comes with a kernel and its pictures.
MODULES = ("ipykernel.kernelapp", "ipykernel.ipkernel", "matplotlib_inline.backend_inline", "matplotlib.pyplot",
           "pandas", "statsmodels.api", "murk", "murk.learners", "murk.populations.local_run")  # fmt: skip
PROGRAM = """
import os, pandas
from ipykernel.kernelapp import launch_new_instance
# As where pandas is first imported in a kernel: it takes a process without one for a terminal.
pandas.set_option("display.max_columns", 20)
os.chdir({folder!r})
launch_new_instance(argv=["-f", {file!r}])
"""
DECIMAL = re.compile(r"-?\d[\d,]*\.\d+(?:e[+-]?\d+)?")


def shown(notebook):
    """What each cell shows: kinds, words and, apart, numbers with a point."""
    return [
        [said(output, real=is_real("".join(cell["source"]))) for output in cell.get("outputs", ())]
        for cell in notebook["cells"]
    ]


def is_real(source):
    """Whether a cell learns with real noise, which is another one each time."""
    return "murk.run(" in source and "seed=" not in source


def said(output, *, real):
    kinds = (output["output_type"], *sorted(output.get("data", ())))
    text = "".join(output.get("text") or output.get("data", {}).get("text/plain", ""))
    text = re.sub(r"0x[0-9a-f]+", "0x", text.partition("\n")[0] if real else text)
    # Columns are as wide as what stands in them.
    words = re.sub(r"-{3,}", "---", DECIMAL.sub("#", text)).split()
    return kinds, words, [float(one.replace(",", "")) for one in DECIMAL.findall(text)]


def close(shown):
    """The same, where another machine may round a last digit otherwise."""
    return [[(*one, pytest.approx(numbers, rel=1e-2, abs=2e-3)) for *one, numbers in cell] for cell in shown]


def test_what_notebooks_show_is_compared_by_words_and_numbers():
    def cells(text, kind="stream"):
        return shown({"cells": [{"source": ["1"], "outputs": [{"output_type": kind, "text": [text]}]}]})

    before = close(cells("age  0.346 of 25,000 at 0x7f00\n"))
    assert cells("age 0.345 of 25,000 at 0xab\n") == before
    for other in ("age 0.446 of 25,000 at 0x7f00", "age 0.346 of 25,001 at 0x7f00", "sex 0.346 of 25,000 at 0x7f00"):
        assert cells(other) != before
    assert cells("age  0.346 of 25,000 at 0x7f00\n", "execute_result") != before


@pytest.fixture(scope="module")
def nursery(tmp_path_factory):
    """Where kernels are forked that have everything imported."""
    with forking.begun(tmp_path_factory.mktemp("forked") / "kernels", *MODULES) as path:
        yield path


@pytest.fixture
def run(nursery, tmp_path, monkeypatch):
    """A function that runs a notebook in such a kernel."""
    program = PROGRAM.format(folder=str(tmp_path), file="{connection_file}")
    spec = {"argv": [sys.executable, "-I", "-S", str(forking.WORKER), nursery, program], "display_name": "forked"}
    place = tmp_path / "jupyter" / "kernels" / "forked" / "kernel.json"
    place.parent.mkdir(parents=True)
    place.write_text(json.dumps({**spec, "language": "python"}))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    return lambda path: executed(path, tmp_path, "forked")


def test_there_are_four_notebooks():
    assert sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb")) == NAMES


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
@pytest.mark.parametrize("name", NAMES)
def test_notebooks_run_and_show_what_they_showed(name, run):
    path = NOTEBOOKS / f"{name}.ipynb"
    stored = json.loads(path.read_text())
    again = json.loads(written(run(path)))
    assert shown(again) == close(shown(stored))
    assert any(shown(stored))
    assert [cell["source"] for cell in again["cells"]] == [cell["source"] for cell in stored["cells"]]


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_a_cell_that_fails_is_an_error(run, tmp_path):
    cells = [
        {"cell_type": "code", "execution_count": None, "id": "a", "metadata": {}, "outputs": [], "source": "1 / 0"}
    ]
    path = tmp_path / "bad.ipynb"
    path.write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    with pytest.raises(Exception, match="ZeroDivisionError"):
        run(path)


def test_pages_of_notebooks_show_code_text_tables_and_pictures():
    outputs = [
        {"output_type": "stream", "text": ["a\n", "b\n"]},
        {"data": {"text/html": "<b>t</b>", "text/plain": "t"}},
        {"data": {"image/png": "iVBO\nRw0K", "text/plain": "<Figure>"}},
    ]
    cells = [
        {"cell_type": "markdown", "source": ["# T\n", "x"]},
        {"cell_type": "code", "source": "f('<')", "outputs": outputs},
    ]
    text = as_markdown({"cells": cells})
    assert text.startswith("# T\nx\n\n`````python\nf('<')\n`````\n")
    assert "\n\na\nb\n`````" in text
    assert '<div class="shown"><b>t</b></div>' in text
    assert '<img class="shown" alt="Picture drawn by f(&#x27;&lt;&#x27;)" src="data:image/png;base64,iVBORw0K">' in text


@pytest.mark.parametrize("piece", gallery.PIECES, ids=lambda piece: piece.name)
def test_the_gallerys_tasks_are_learned_and_drawn(piece):
    result = piece.learn(most=3_000)
    assert result.n_releases in (1, 3_000)
    assert result.plot(piece.kind).get_axes()
    assert (gallery.PICTURES / f"{piece.name}.png").is_file()


def test_every_picture_is_of_a_piece():
    assert {path.stem for path in gallery.PICTURES.glob("*")} == {piece.name for piece in gallery.PIECES}


def tables():
    text = (DOCS / "faq.md").read_text()
    return [
        [[cell.strip() for cell in line.strip("|\n").split("|")] for line in block.splitlines()]
        for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    ]


TASK = """
name: t
features:
  - {name: same_sex, categories: ["no", "yes"]}
  - {name: age, low: 21, high: 35}
target: {name: third_child, kind: binary, positive: "yes", negative: "no"}
"""


def test_figures_of_the_faq_are_those_of_the_code():
    people, promises, *_ = tables()
    counts = [int(re.sub(r"\D", "", cell)) for cell in people[0][1:]]
    for mu, *errors in people[2:]:
        task = Task.parse(f"{TASK}privacy: {{guarantee: {{gdp: {{mu: {mu}}}}}}}\n")
        assert errors == [f"{recommend(task, count).expected['scores']:.1f}" for count in counts]
    for mu, right, epsilon, _ in promises[2:]:
        guarantee = GaussianDP(mu=float(mu))
        # Rounded up: a promise is never stated as stronger than it is.
        assert right == percent(guarantee.max_attack_accuracy) == percent(NormalDist().cdf(float(mu) / 2))
        assert epsilon == f"{math.ceil(100 * guarantee.to('approx', delta=1e-5).epsilon) / 100:.2f}"
