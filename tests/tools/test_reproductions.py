"""Results go to the places that pages have for them, with their picture."""

from murk.reproduce import store
from murk.reproduce.catalogue import experiments
from murk.reproduce.experiment import Experiment, Setting
from tests.reproduce import made_up
from tools.reproductions import PAGES, put

ONE = Experiment(id="009/good", title="Made | up", module=made_up.__name__, function="good")


def test_a_result_is_put_where_its_page_has_a_place(tmp_path):
    origin = store.origin_of(Setting())
    store.prepare(tmp_path, ONE, origin)
    store.write(tmp_path, ONE, origin, ONE.run(Setting()), 3.0)
    found, pages = store.read(tmp_path, ONE, origin), tmp_path / "pages"
    pages.mkdir()
    page = pages / "paper.md"
    page.write_text(
        "before\n<!-- 009/good -->\nsaid last time\n<!-- end -->\nbetween\n<!-- 009/other -->\n<!-- end -->\n"
    )
    assert put(tmp_path, pages, ONE, found)
    once = page.read_text()
    for words in (
        "before\n",
        "between\n",
        "`murk reproduce 009/good` (3 s)",
        "](009-good.png)",
        "| mean | 0 |",
        "Seen.",
    ):
        assert words in once
    assert "said last time" not in once
    assert (pages / "009-good.png").exists()
    assert put(tmp_path, pages, ONE, found)
    assert page.read_text() == once
    page.write_text("no place")
    assert not put(tmp_path, pages, ONE, found)


def test_every_figure_has_a_filled_place_on_a_page():
    text = "\n".join(page.read_text() for page in PAGES.glob("*.md"))
    assert [name for name in experiments() if f"<!-- {name} -->\n`murk reproduce {name}" not in text] == []
