"""The workflows pin what they run, name no registry's host, and a release is refused before anything is built."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def steps(workflow):
    for job in yaml.safe_load(workflow.read_text())["jobs"].values():
        yield from job["steps"]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_pinned_by_digest(workflow):
    actions = [step["uses"] for step in steps(workflow) if "uses" in step]
    assert actions
    assert [action for action in actions if not re.fullmatch(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}", action)] == []
    # The comment says which release the digest is.
    assert len(re.findall(r"uses: \S+@[0-9a-f]{40} # v\d+\.\d+\.\d+$", workflow.read_text(), re.MULTILINE)) == len(
        actions
    )


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_jobs_have_the_least_rights_and_no_secrets(workflow):
    text = workflow.read_text()
    assert yaml.safe_load(text)["permissions"] == {"contents": "read"}
    assert "secrets." not in text


def refused(folder, version):
    command = [folder / "deploy" / "release.sh", version, folder / "dist"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert not list((folder / "dist").iterdir())
    return done.stderr


@pytest.fixture
def checkout(tmp_path):
    for name in ("deploy/release.sh", "murk/__init__.py", "devices/web/package.json", "CHANGELOG.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def test_a_release_of_another_version_is_refused(checkout):
    assert "murk/__init__.py states version" in refused(checkout, "77.0.0")


def test_versions_and_the_changelog_agree(checkout):
    (checkout / "murk" / "__init__.py").write_text('__version__ = "77.0.0"\n')
    assert "devices/web/package.json states version" in refused(checkout, "77.0.0")
    (checkout / "devices" / "web" / "package.json").write_text('{\n  "version": "77.0.0",\n}\n')
    assert "CHANGELOG.md has no dated section for 77.0.0" in refused(checkout, "77.0.0")


NPM = """#!/bin/sh
case $1 in
  pkg) echo "$3" >> package.json ;;
  pack) cp package.json "$3/murk-device.tgz" ;;
esac
"""
PYTHON = """#!/bin/sh
if [ "$2" = build ]; then touch "$4/murk.whl" "$4/murk.tar.gz"; fi
"""


@pytest.mark.parametrize("repository", ["somebody/murk", ""])
def test_the_npm_package_names_the_repository_that_publishes_it(checkout, repository):
    package = checkout / "devices" / "web" / "package.json"
    (checkout / "murk" / "__init__.py").write_text('__version__ = "77.0.0"\n')
    package.write_text('{\n  "version": "77.0.0",\n}\n')
    (checkout / "CHANGELOG.md").write_text("## 77.0.0 - 2027-01-01\n")
    tools = checkout / "tools"
    tools.mkdir()
    for name, text in (("npm", NPM), ("python", PYTHON)):
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    for command in (["init", "-q"], ["-c", "user.name=a", "-c", "user.email=b", "commit", "-qm", "c", "--allow-empty"]):
        subprocess.run(["git", *command], cwd=checkout, check=True)
    before, places = package.read_text(), {"PATH": f"{tools}:{os.environ['PATH']}", "PYTHON": str(tools / "python")}
    environment = {**os.environ, **places, "GITHUB_REPOSITORY": repository}
    for folder in ("dist", "again"):
        command = [checkout / "deploy" / "release.sh", "77.0.0", checkout / folder]
        subprocess.run(command, check=True, capture_output=True, env=environment)
        assert package.read_text() == before
        packed = (checkout / folder / "murk-device.tgz").read_text()
        assert packed == before + (f"repository=github:{repository}\n" if repository else "")
        assert len(list((checkout / folder).iterdir())) == 3
