"""What the repository names is in it: files, pages, modules that are to be run, and the folders on the map."""

import re
from pathlib import Path

from tests.turns import ORDER

ROOT = Path(__file__).parents[1]
FOLDERS = ("murk", "tools", "docs", "deploy", "benchmarks")
TEXTS = sorted(
    path
    for path in (*ROOT.glob("*"), *(file for folder in FOLDERS for file in (ROOT / folder).rglob("*")))
    if path.is_file() and (path.suffix in {".md", ".py", ".sh", ".toml", ".yaml", ".yml"} or path.name == "Makefile")
)
PAGES = {path.name for path in TEXTS if path.suffix == ".md"}
# A file of the repository, by its path from the root; a Markdown page, by its name; a module to run.
FILE = re.compile(r"(?<![\w/.-])((?:murk|tests|tools|docs|deploy|benchmarks)/[\w./-]*\.(?:md|png|py|sh|yaml|yml))\b")
PAGE = re.compile(r"(?<![\w/.*-])(?:[\w.-]+/)*([\w-]+\.md)\b")
MODULE = re.compile(r"python -m ((?:murk|tests|tools|benchmarks|deploy)(?:\.[a-z_]+)*)")
# What the wheel makes of a page, what an earlier version had, and what the examples of docs/extending.md add.
ELSEWHERE = {
    "murk/monitoring/recover.md", "murk/monitoring/web/recover.md", "murk.monitoring.generate",
    "murk/privacy/mechanisms/dyadic.py", "tests/privacy/mechanisms/test_dyadic.py", "murk/stream/log/memory.py",
    "tests/learners/iwp_sgd/test_quartic.py", "murk/protocols/rate/__init__.py", "murk/protocols/rate/device.py",
    "murk/protocols/rate/admission.py", "murk/task/protocols/rate.py", "tests/learners/test_rate.py",
}  # fmt: skip


def dangling(text):
    """Yield what a text names and the repository does not have."""
    yield from (name for name in FILE.findall(text) if not (ROOT / name).exists())
    yield from (name for name in PAGE.findall(text) if name not in PAGES)
    for name in MODULE.findall(text):
        path = ROOT / name.replace(".", "/")
        if not (path.is_dir() or path.with_suffix(".py").exists()):
            yield name


def test_what_texts_name_is_there():
    found = {str(path.relative_to(ROOT)): set(dangling(path.read_text(encoding="utf-8"))) - ELSEWHERE for path in TEXTS}
    assert len(found) > 300
    assert not {path: names for path, names in found.items() if names}


def test_what_is_not_there_is_found():
    text = (
        "docs/nowhere.png, murk/nowhere.py; [a page](nowhere.md), NOWHERE.md. `python -m tools.nowhere`. docs/start.md"
    )
    assert list(dangling(text)) == ["docs/nowhere.png", "murk/nowhere.py", "nowhere.md", "NOWHERE.md", "tools.nowhere"]


def test_the_map_shows_every_folder_of_the_house():
    """Each package down to the second level has its place in CONTRIBUTING.md, and nothing else has one."""
    shown = set()
    for cell, said in re.findall(r"^\| (`[^|]+) \|(.*)", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE):
        first, *others = re.findall(r"`([^`]+)`", cell)
        shown |= {first, *(other if "/" in other else f"{first.rpartition('/')[0]}/{other}" for other in others)}
        shown |= {f"{first}/{inside}" for inside in re.findall(r"`(\w+)/`", said)}
    packages = {path.parent.relative_to(ROOT) for path in (ROOT / "murk").rglob("__init__.py")}
    must = {str(path) for path in packages if len(path.parts) in (2, 3)}
    assert must - shown <= {"murk/stream"}, "the map has no line for these"
    assert not {name for name in shown if not (ROOT / name).is_dir()}


def test_files_of_tests_that_come_first_are_there():
    assert [start for start in ORDER if not list((ROOT / "tests").glob(f"{start}*"))] == []
