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


def refused(folder, version, repository=""):
    command = [folder / "deploy" / "release.sh", version, folder / "dist"]
    environment = {**os.environ, "GITHUB_REPOSITORY": repository}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
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


def test_the_npm_package_names_the_repository_that_publishes_it(checkout):
    (checkout / "murk" / "__init__.py").write_text('__version__ = "77.0.0"\n')
    (checkout / "devices" / "web" / "package.json").write_text('{\n  "version": "77.0.0",\n}\n')
    (checkout / "CHANGELOG.md").write_text("## 77.0.0 - 2027-01-01\n")
    assert 'has no "repository" that names' in refused(checkout, "77.0.0", "somebody/murk")
