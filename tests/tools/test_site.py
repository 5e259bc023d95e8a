"""The documentation site is strict: each kind of fault in a page, in the reference or in what is loaded is an error."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools.site.reference import public_names
from tools.site.self_contained import missing

ROOT = Path(__file__).parents[2]
FAULTS = {
    "[a page](nowhere.md)": "'myst' cross-reference target not found: 'nowhere.md'",
    "[a heading](#nowhere)": "'myst' cross-reference target not found: 'nowhere'",
    "![a picture](nowhere.png)": "image file not readable: nowhere.png",
    '<img src="https://example.org/dot.png">': "index.html loads https://example.org/dot.png",
    "```{eval-rst}\n:class:`Nowhere`\n```": "py:class reference target not found: Nowhere",
    "```{eval-rst}\n`nowhere`\n```": "py:obj reference target not found: nowhere",
    "```{eval-rst}\n.. py:function:: f\n\n   :raises Eror: never\n```": "py:exc reference target not found: Eror",
    "```{eval-rst}\n:math:`\\\\nowhere`\n```": "a formula cannot be read",
    "": "murk.privacy.PureDP is public, and documented on no page",
}


def build(folder):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--quiet", folder / "docs", folder / "site"]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    """What a build says of one page with all faults, under the site's own settings."""
    folder = tmp_path_factory.mktemp("broken")
    shutil.copytree(ROOT / "docs" / "_static", folder / "docs" / "_static")
    settings = (ROOT / "docs" / "conf.py").read_text().replace("Path(__file__).parents[1]", repr(str(ROOT)))
    (folder / "docs" / "conf.py").write_text(settings)
    text = "\n\n".join(fault.replace("\\\\", "\\") for fault in FAULTS)
    table = "| name |\n|---|\n| `murk_a_long_name_total` |"
    (folder / "docs" / "index.md").write_text(f"# A page\n\n{text}\n\nA dash -- stays two hyphens.\n\n{table}\n")
    return build(folder), (folder / "site" / "index.html").read_text()


def test_a_fault_fails_the_build(broken):
    assert broken[0].returncode != 0


@pytest.mark.parametrize("fault", FAULTS, ids=range(len(FAULTS)))
def test_each_fault_is_named(fault, broken):
    assert FAULTS[fault] in broken[0].stderr


def test_text_is_shown_as_it_was_written(broken):
    assert "A dash -- stays two hyphens." in broken[1]


def test_a_long_name_in_a_table_may_be_broken_after_underscores(broken):
    cell = re.search(r"<td>(.*?)</td>", broken[1], re.DOTALL)[1]
    assert re.sub(r"<(?!wbr)[^>]*>", "", cell).strip() == "murk_<wbr>a_<wbr>long_<wbr>name_<wbr>total"


def test_whatever_is_loaded_must_be_there(tmp_path):
    (tmp_path / "here.js").touch()
    (tmp_path / "page.html").write_text(
        '<script src="here.js?v=1"></script><a href="https://example.org">a link may lead anywhere</a>'
        '<link rel="next" href="https://example.org"><img src="data:image/png;base64,AA=="><use href="#part"></use>'
        '<script src="gone.js"></script><link rel="preload stylesheet" href="//example.org/a.css">'
        '<iframe src="https://example.org/frame"></iframe>'
    )
    (tmp_path / "sheet.css").write_text(
        "@import 'https://example.org/b.css'; a { background: url(data:image/png;base64,AA==) }"
        "@font-face { src: url('https://example.org/font.woff2') } b { background: url(here.js) }"
    )
    assert list(missing(tmp_path)) == [
        ("page.html", "gone.js"),
        ("page.html", "//example.org/a.css"),
        ("page.html", "https://example.org/frame"),
        ("sheet.css", "https://example.org/b.css"),
        ("sheet.css", "https://example.org/font.woff2"),
    ]


def test_the_reference_has_a_line_for_every_public_name():
    """A page lists each name once, and in full what is not public; the build finds out whether it is documented."""
    listed = [
        line.split("::")[1].strip()
        for page in (ROOT / "docs" / "api").rglob("*.md")
        for line in page.read_text().splitlines()
        if line.startswith((".. autoclass::", ".. autofunction::", ".. autodata::")) and " murk." not in line
    ]
    assert sorted(listed) == sorted(name.rpartition(".")[2] for name, _ in public_names())


def test_every_page_is_behind_a_door():
    index = (ROOT / "docs" / "index.md").read_text()
    captions = [line.split(":caption: ")[1] for line in index.splitlines() if line.startswith(":caption: ")]
    assert captions == ["Start", "Choose", "Guides", "Reference", "Understand"]
