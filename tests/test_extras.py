"""A hint names the command that installs an extra from where Murk itself came from."""

import json
import os
import re
from pathlib import Path

import pytest

import murk
from murk._internal.extras import install_command, missing_extra

PACKAGE = Path(murk.__file__).parent


def installed(folder, monkeypatch, origin=None, package=PACKAGE):
    """Make ``folder`` what pip leaves behind: a link for the package, and the address that it came from."""
    os.symlink(package, folder / "murk")
    facts = folder / "murk-1.0.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: murk\nVersion: 1.0.0\n")
    if origin is not None:
        (facts / "direct_url.json").write_text(json.dumps(origin))
    monkeypatch.syspath_prepend(folder)


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (None, 'pip install "murk[kafka]"'),
        ({"url": "file:///a%20b/murk", "dir_info": {}}, 'pip install "/a b/murk[kafka]"'),
        ({"url": "file:///a/murk", "dir_info": {"editable": True}}, 'pip install --editable "/a/murk[kafka]"'),
        ({"url": "file:///a/murk.whl", "archive_info": {}}, 'pip install "murk[kafka] @ file:///a/murk.whl"'),
        (
            {"url": "https://git.test/murk", "vcs_info": {"vcs": "git", "commit_id": "ab12"}},
            'pip install "murk[kafka] @ git+https://git.test/murk@ab12"',
        ),
    ],
)
def test_the_command_fits_the_installation(tmp_path, monkeypatch, origin, command):
    installed(tmp_path, monkeypatch, origin)
    assert install_command("kafka") == command
    error = missing_extra("a log on Kafka needs its client", "kafka")
    assert str(error) == f"a log on Kafka needs its client: {command}"
    assert error.code == "MURK-CLI-003"


def test_another_package_of_this_name_is_not_recommended(tmp_path, monkeypatch):
    (tmp_path / "other").mkdir()
    installed(tmp_path, monkeypatch, package=tmp_path / "other")
    assert install_command("kafka") == f'pip install "{PACKAGE.parent}[kafka]"'


def test_no_text_installs_the_name_from_an_index():
    root = PACKAGE.parent
    texts = [
        *root.glob("*.md"),
        *(path for folder in ("docs", "murk", "deploy", "reproductions", "devices/web/src") for path in
          (root / folder).rglob("*") if path.suffix in {".md", ".py", ".ts", ".yaml", ".ipynb", ".html", ".service"}),
        root / "devices" / "web" / "README.md",
    ]  # fmt: skip
    texts.remove(PACKAGE / "_internal" / "extras.py")
    assert len(texts) > 400
    command = re.compile(r"""(pip|npm) (install|i)\b[^\n`]*[\s"'\\]murk(-device)?\b""")
    assert [path for path in texts if command.search(path.read_text("utf-8"))] == []
