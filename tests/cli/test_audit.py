"""``murk audit``: its table, its object, its exit status."""

import json

import pytest

from murk.audit import checksum
from murk.cli import cli
from murk.privacy import noise
from tests.audit.test_audit import Half
from tests.cli.harness import TASK, murk, refused


@pytest.fixture
def task(tmp_path):
    (tmp_path / "task.yaml").write_text(
        TASK.replace("{gdp: {mu: 1.0}}", "{gdp: {mu: 1.0}}, levels: {low: {gdp: {mu: 0.5}}}")
    )
    return tmp_path


def test_a_tasks_levels(task):
    found = murk("audit", "task.yaml", "--draws", 4000, "--seed", 1, "--json", folder=task).json
    assert found["holds"]
    assert found["sha256"] == checksum(found)
    assert all(one["claimed"] < one["detectable"] < 2 * one["claimed"] for one in found["findings"])
    assert [one["name"] for one in found["findings"]] == ["third-child: default", "third-child: low"]
    for one, claim in zip(found["findings"], (1.0, 0.5), strict=True):
        assert one["measure"] == "mu"
        assert one["claimed"] == pytest.approx(claim, rel=1e-4)
        assert 0 < one["lower_bound"] < one["claimed"]
        assert set(one["neighbours"]["first"]) == {"same_sex", "age", "third_child"}


def test_the_table_says_which_records(task):
    done = murk("audit", "task.yaml", "--draws", 1000, folder=task)
    assert done.status == 0
    text = " ".join(done.out.split())
    for words in (
        "third-child: low",
        "not refuted",
        "would find",
        "the randomness that devices use",
        "inputs compared: same_sex",
    ):
        assert words in text
    assert "at the iterate (" in text


def test_a_refuted_claim_ends_with_status_1(task, monkeypatch, capsys):
    monkeypatch.setattr(noise, "SimulatedNoise", Half)
    with pytest.raises(SystemExit) as ended:
        cli(["audit", str(task / "task.yaml"), "--draws", "10000", "--seed", "1", "--json"], standalone_mode=False)
    assert ended.value.code == 1
    found = json.loads(capsys.readouterr().out)
    assert not found["holds"]
    assert not any(one["holds"] for one in found["findings"])


def test_what_to_audit_is_said(task):
    refused(murk("audit", folder=task), "give a TASK to audit, or --all")
    refused(murk("audit", "task.yaml", "--all", folder=task), "give a TASK to audit, or --all")
    refused(murk("audit", "nowhere.yaml", folder=task), "nowhere.yaml: cannot be read")
