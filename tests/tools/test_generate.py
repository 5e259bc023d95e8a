"""What is committed is what ``make generate`` writes, and its writers are not installed."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from murk.errors import UserError
from tools import generate, prometheus

ROOT = Path(__file__).parents[2]
FILES = dict(generate.files())


@pytest.mark.parametrize("name", FILES)
def test_committed_file_is_the_generated_one(name):
    assert (ROOT / name).read_text(encoding="utf-8") == FILES[name], "run `make generate`"


def test_no_other_dashboard_lies_about():
    found = {path.relative_to(ROOT).as_posix() for path in (ROOT / "deploy/grafana").rglob("*") if path.is_file()}
    assert found == {name for name in FILES if name.startswith("deploy/grafana/")}


def test_command_writes_every_file(tmp_path):
    command = [sys.executable, "-m", "tools.generate"]
    done = subprocess.run([*command, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=True)
    assert [Path(line) for line in done.stdout.splitlines()] == [tmp_path / name for name in FILES]
    assert {name: (tmp_path / name).read_text(encoding="utf-8") for name in FILES} == FILES
    done = subprocess.run([*command, "--folder"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "usage" in done.stderr


@pytest.mark.parametrize(
    "url", ["docs/recover.md", "monitor:9464", "//monitor", "ftp://monitor", "https://a/?b", "http://"]
)
def test_a_runbook_must_be_somewhere(url):
    with pytest.raises(UserError, match="not the address of a monitor"):
        prometheus.check_monitor_url(url)
    assert generate.main(["nowhere", "--monitor-url", url]) == 2


def test_writers_are_in_the_source_distribution_and_not_in_the_wheel():
    targets = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]
    assert targets["wheel"]["packages"] == ["murk"]
    assert "/tools" in targets["sdist"]["include"]
