"""README and docs are run: Python blocks, console commands, links, and doctests."""

import doctest
import gzip
import importlib
import pkgutil
import re
import runpy
import secrets
import shlex
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest

import murk
import tools
from murk.demo import DATA
from tests.cli import harness
from tests.services.faults.nursery import Nursery

ROOT = Path(__file__).parent.parent
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w+(?: kafka)?)\n(.*?)^```", re.MULTILINE | re.DOTALL)
TASK_FILE = re.compile(r"# (\S+\.yaml)\n")


def blocks(kind):
    for page in PAGES:
        for number, (language, text) in enumerate(BLOCK.findall(page.read_text())):
            if language == kind:
                yield pytest.param(text, id=f"{page.name}-{number}")


WEEKS = """
name: {name}
features: [{{name: age, low: 21, high: 35}}]
target: {{name: weeks_worked, kind: real, low: 0, high: 52}}
privacy: {{guarantee: {{gdp: {{mu: 1.0}}}}}}
"""


@pytest.mark.parametrize("text", list(blocks("python kafka")))
def test_kafka_examples_run(text, tmp_path, broker):
    from murk import Task
    from murk.stream import open_log

    name = f"docs-{secrets.token_hex(6)}"
    with open_log(broker.url, name=name) as log:
        log.register_task(Task.parse(WEEKS.format(name=name)).document())
    assert printed(f"KAFKA = {broker.url + '/' + name!r}\n{text}", tmp_path) == "released sent\n"


# What several of them come to import: of Murk, whatever they name.
COMMON = ("river.compose", "river.linear_model", "river.stats", "pandas", "matplotlib.figure")


def named():
    """Modules from which examples import."""
    found = {
        name
        for case in blocks("python")
        for name in re.findall(r"^(?:from|import) ([\w.]+)", case.values[0], re.MULTILINE)
    }
    return sorted(found)


@pytest.mark.parametrize("text", list(blocks("python")))
def test_python_examples_run(text, tmp_path):
    printed(text, tmp_path)


def test_python_examples_have_the_types_that_mypy_checks(tmp_path):
    """All of them in one run, whose cache of the package is that of lint."""
    for number, case in enumerate([*blocks("python"), *blocks("python kafka")]):
        name = re.sub(r"\W", "_", case.id)
        (tmp_path / f"example_{number}_{name}.py").write_text(f'KAFKA = ""\n{case.values[0]}')
    wrong = tmp_path / "wrong.py"
    wrong.write_text("import murk\nmurk.Task.parse(1)\n")
    words = [sys.executable, "-m", "mypy", "--strict", "--config-file", "pyproject.toml", *tmp_path.glob("*.py")]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    errors = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert len(errors) == 1, done.stdout + done.stderr
    assert "wrong.py:2" in errors[0]


def printed(text, folder):
    """What an example prints, in a process of its own."""
    (folder / "example.py").write_text(text)
    with Nursery(folder, modules=[*COMMON, *named()]) as nursery:
        child = nursery.call("tests.test_docs:example")
        assert child.wait() == 0, child.err
        return child.out


def example():
    """In a process of its own that has nothing to import any more: run ``example.py``."""
    runpy.run_path("example.py", run_name="__main__")


def walks():
    """Pages with commands for a task file that they show: its first line is a comment with its name."""
    for page in PAGES:
        found = BLOCK.findall(page.read_text())
        files = {name[1]: text for kind, text in found if kind == "yaml" and (name := TASK_FILE.match(text))}
        lines = [line for kind, text in found if kind == "console" for line in text.splitlines()]
        if files and lines:
            yield pytest.param(files, [line[2:] for line in lines if line.startswith("$ ")], id=page.name)


def test_pages_have_commands_to_run():
    assert {"start.md", "protocols.md"} <= {walk.id for walk in walks()}


@pytest.mark.parametrize(("files", "commands"), list(walks()))
def test_commands_for_a_task_file_run(files, commands, tmp_path):
    """In a folder with the task file and a part of the data: one after another, or together if one waits for others.

    A task is announced first: its log must be there for whoever sends to it.
    """
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with gzip.open(DATA, "rt") as everybody, gzip.open(tmp_path / "mothers-1980.csv.gz", "wt") as some:
        some.writelines(islice(everybody, 1_001))
    together = any("--wait" in command for command in commands)
    begun = {}
    for command in commands:
        words = shlex.split(command)
        assert words[0] == "murk"
        begun[command] = harness.start(*words[1:], folder=tmp_path)
        if not together or words[1] == "topics":
            ended(command, begun.pop(command))
    for command, process in begun.items():
        ended(command, process)


def ended(command, process):
    done = harness.finish(process)
    assert done.status == 0, f"{command}\n{done.err}"
    assert done.out.strip()


FENCED = re.compile(r"^( *)```.*?^\1```", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_heading_and_a_list_stand_apart_from_the_text_around_them(page):
    """A line out of place, between a heading and its text or within an item of a list, is found."""
    text = FENCED.sub("", page.read_text())
    for wrong in (r"^#+ .*\n(?!\n)", r"^(?!\n).*\n#+ ", r"^(?:- |\d+\. ).*\n(?!- |\d+\. |  |\n)\S.*"):
        assert re.search(wrong, text, re.MULTILINE) is None, re.search(wrong, text, re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_within_the_repository_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def modules():
    packages = ((murk.__path__, "murk."), (tools.__path__, "tools."))
    found = (module.name for path, prefix in packages for module in pkgutil.walk_packages(path, prefix))
    return [name for name in found if "__main__" not in name]


@pytest.mark.parametrize("name", modules())
def test_docstring_examples_are_true(name):
    results = doctest.testmod(importlib.import_module(name))
    assert results.failed == 0


def test_every_command_of_the_help_is_real():
    from murk.cli import cli

    context = cli.make_context("murk", ["--help"], resilient_parsing=True)
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        assert command.name == name
        assert command.help
