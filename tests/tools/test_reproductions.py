"""Results of reproductions are written into their pages, with their pictures."""

import re

import pytest

from reproductions import store
from reproductions.catalogue import experiments
from reproductions.experiment import Check, Experiment, Measured, Outcome, Row, Setting
from tests.reproduce import made_up
from tools.reproduction_tables import LAYOUTS, PLAIN, Layout, Rule, Table, tables
from tools.reproductions import PAGES, write_file_results, write_result

GOOD = Experiment(id="009/good", title="Made up", module=made_up.__name__, function="good")
DEFAULT = Setting()
BLOCK = re.compile(r"<!-- (\S+) -->\n(.*?)\n<!-- end -->", re.DOTALL)


def _stored(folder, experiment, outcome, setting=DEFAULT):
    """Store an outcome and return the result."""
    origin = store.origin_of(setting)
    store.prepare(folder, experiment, origin)
    store.write(folder, experiment, origin, outcome, 3.0)
    return store.read(folder, experiment, origin)


def _page(folder, text):
    pages = folder / "pages"
    pages.mkdir(exist_ok=True)
    (pages / "paper.md").write_text(text)
    return pages, pages / "paper.md"


def test_a_result_replaces_the_block_of_its_page(tmp_path):
    result = _stored(tmp_path, GOOD, GOOD.run(Setting()))
    pages, page = _page(
        tmp_path, "before\n<!-- 009/good -->\nprevious\n<!-- end -->\n<!-- 009/other -->\n<!-- end -->\n"
    )
    assert write_result(tmp_path, pages, GOOD, result)
    text, mean = page.read_text(), store.rows_of(result)[0].as_published
    assert text == (
        "before\n<!-- 009/good -->\n`python -m reproductions 009/good` (3 s):\n\n![Made up](009-good.png)\n\n"
        "Tag: *reduced*. All 1 checks hold.\n\n| | published | as published |\n|---|---|---|\n"
        f"| mean | 0 | {mean} |\n<!-- end -->\n<!-- 009/other -->\n<!-- end -->\n"
    )
    assert (pages / "009-good.png").exists()
    assert write_result(tmp_path, pages, GOOD, result)
    assert page.read_text() == text
    page.write_text("no place")
    assert not write_result(tmp_path, pages, GOOD, result)


def test_a_block_names_the_checks_that_fail(tmp_path):
    failing = Experiment(id="009/good", title="Made up", module=made_up.__name__, function="failing")
    pages, page = _page(tmp_path, "<!-- 009/good -->\n<!-- end -->\n")
    assert write_result(tmp_path, pages, failing, _stored(tmp_path, failing, failing.run(Setting())))
    assert "Tag: *reduced*. 1 of 1 checks **fail**: it is so (1 of 1).\n" in page.read_text()


def test_a_layout_turns_rows_into_the_table_of_the_page(tmp_path):
    """The rows of 002/fig2 with the numbers of its page give the block of its page."""
    name = "002/fig2"
    text = (PAGES / "ldp-sgd.md").read_text()
    expected = next(match[2] for match in BLOCK.finditer(text) if match[1] == name)
    rows = []
    for line in re.findall(r"^\| (mu .*) \|$", expected, re.MULTILINE):
        budget, *cells = line.split(" | ")
        iterate, average, default = (Measured(*map(float, cell.split(" ± "))) for cell in cells)
        rows += [
            Row(what=f"{budget}: iterate", tag="unreachable", as_published=iterate, note="d"),
            Row(what=f"{budget}: average", tag="unreachable", as_published=average, default=default, note="d"),
        ]
    assert len(rows) == 6
    outcome = Outcome(rows=rows, panels=[], checks=[Check("so", True, "1")] * 6, verdict="Seen.")
    pages, page = _page(tmp_path, f"<!-- {name} -->\n<!-- end -->\n")
    result = _stored(tmp_path, experiments()[name], outcome)
    assert write_result(tmp_path, pages, experiments()[name], result)
    head, _, table = page.read_text().partition("\n\n")
    assert head == f"<!-- {name} -->\n`python -m reproductions {name}` (3 s):"
    assert table == expected.partition(".png)\n\n")[2] + "\n<!-- end -->\n"


def test_tables_refuse_rows_that_no_rule_places_and_omit_hidden_ones():
    rows = [Row(what="a", tag="exact", as_published=Measured(1.0)), Row(what="b", tag="exact", default=Measured(2.0))]
    only_a = Layout([Table(["x"], [Rule("a", "row", as_published="value")])])
    with pytest.raises(ValueError, match="b: default"):
        tables(only_a, rows)
    same = Layout([Table(["x"], [Rule("a|b", "row", as_published="value", default="value")])])
    with pytest.raises(ValueError, match="has a number already"):
        tables(same, rows)
    assert tables(PLAIN, rows) == ["| | as published | Murk's default |\n|---|---|---|\n| a | 1 | |\n| b | | 2 |"]
    shown = Layout([Table(["x"], [Rule("(?P<x>a|b)", "{x}", as_published="value", default="value")], hidden="b")])
    assert tables(shown, rows) == ["| x | value |\n|---|---|\n| a | 1 |"]


def test_results_of_the_papers_files_share_a_block(tmp_path):
    pages, page = _page(
        tmp_path, "<!-- 009/good -->\nkept\n<!-- end -->\n<!-- 009/good --data -->\nprevious\n<!-- end -->\n"
    )
    assert write_file_results(tmp_path, pages, GOOD)
    assert "previous" in page.read_text()
    digests = {}
    for name, size in (("b.csv", "reduced"), ("b.csv", "full"), ("a.csv", "reduced")):
        (tmp_path / name).write_text(name)
        result = _stored(tmp_path, GOOD, GOOD.run(Setting(size=size)), Setting(size=size, data=tmp_path / name))
        digests[name] = result["origin"]["data"]["sha256"][:12]
    _stored(tmp_path, GOOD, GOOD.run(Setting()), Setting(seed=5))
    assert write_file_results(tmp_path, pages, GOOD)
    text = page.read_text()
    assert "kept" in text
    assert "previous" not in text
    assert "--seed" not in text
    # Files by name; a full result replaces a reduced one.
    places = [text.index(f"| mean in `{name}` | 0 |") for name in ("a.csv", "b.csv")]
    assert places == sorted(places)
    assert text.endswith(
        "| command | SHA-256 | records | features | checks |\n|---|---|---|---|---|\n"
        f"| `python -m reproductions 009/good --data a.csv` (3 s) | `{digests['a.csv']}` | | | all 1 hold |\n"
        f"| `python -m reproductions 009/good --full --data b.csv` (3 s) | `{digests['b.csv']}` | | | all 1 hold |\n"
        "<!-- end -->\n"
    )
    page.write_text("no place")
    assert not write_file_results(tmp_path, pages, GOOD)


def test_every_figure_has_a_layout_and_a_block_on_a_page():
    blocks = {match[1]: match[2] for page in PAGES.glob("*.md") for match in BLOCK.finditer(page.read_text())}
    assert list(experiments()) == [name for name in experiments() if name in blocks and name in LAYOUTS]
    for name, experiment in experiments().items():
        assert blocks[name].startswith(f"`python -m reproductions {name}")
        assert f"![{experiment.title}]({name.replace('/', '-')}.png)" in blocks[name]
        # The leading columns of each table are those of its layout.
        heads = re.findall(r"^(\|.*)\n\|---", blocks[name], re.MULTILINE)
        assert len(heads) == len(LAYOUTS[name].tables)
        for head, table in zip(heads, LAYOUTS[name].tables, strict=True):
            cells = [cell.strip() for cell in head.strip("|").split("|")]
            assert cells[: len(table.heads)] == list(table.heads)
