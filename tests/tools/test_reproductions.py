"""Results go to the places that pages have for them, with their picture."""

from reproductions import store
from reproductions.catalogue import experiments
from reproductions.experiment import Experiment, Setting
from tests.reproduce import made_up
from tools.reproductions import PAGES, put, put_files

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
        "`python -m reproductions 009/good` (3 s)",
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


def test_results_of_the_papers_files_go_to_one_table_each_once(tmp_path):
    pages, page, made = tmp_path / "pages", tmp_path / "pages" / "paper.md", {}
    pages.mkdir()
    page.write_text("<!-- 009/good -->\nas it is\n<!-- end -->\n<!-- 009/good --data -->\nbefore\n<!-- end -->\n")
    # Without any the page stays as it is.
    assert put_files(tmp_path, pages, ONE)
    assert "before" in page.read_text()
    for name, size in (("b.csv", "reduced"), ("b.csv", "full"), ("a.csv", "reduced")):
        (tmp_path / name).write_text(name)
        setting = Setting(size=size, data=tmp_path / name)
        origin = store.origin_of(setting)
        store.prepare(tmp_path, ONE, origin)
        store.write(tmp_path, ONE, origin, ONE.run(Setting(size=size)), 3.0)
        made[name, size] = origin["data"]["sha256"]
    plain = store.origin_of(Setting(seed=5))
    store.write(tmp_path, ONE, plain, ONE.run(Setting()), 3.0)
    assert put_files(tmp_path, pages, ONE)
    text = page.read_text()
    assert "as it is" in text
    assert "before" not in text
    # In the order of their names, a full result in place of a reduced one, and none without a file.
    assert text.count("| `a.csv` | mean |") == text.count("| `b.csv` | mean |") == text.count("SHA-256") // 2 == 1
    assert text.index("`a.csv`") < text.index("`b.csv`")
    assert "`python -m reproductions 009/good --full --data b.csv` (3 s)" in text
    assert made["a.csv", "reduced"][:12] in text
    assert "--seed" not in text
    assert "1 check holds" in text or "1 checks hold" in text
    page.write_text("no place")
    assert not put_files(tmp_path, pages, ONE)


def test_every_figure_has_a_filled_place_on_a_page():
    text = "\n".join(page.read_text() for page in PAGES.glob("*.md"))
    assert [name for name in experiments() if f"<!-- {name} -->\n`python -m reproductions {name}" not in text] == []
    # A block made before its figure showed something else has another title.
    pictures = {name: f"![{one.title}]({name.replace('/', '-')}.png)" for name, one in experiments().items()}
    assert [name for name, picture in pictures.items() if picture not in text] == []
