"""`murk dossier` as a command: a page and an object, of the task that a log carries, and refusals with a remedy."""

import json
from datetime import date
from hashlib import sha256
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from murk import Task
from murk.cli.commands.dossier import command
from murk.producers import Ledger, Producer
from murk.protocols.device import device_for
from murk.stream import open_log
from murk.stream.archive.archiver import Archiver
from murk.stream.archive.files import LocalFolder
from tests.dossier.test_example import TASKS
from tests.test_files import small_files


def run(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(command, [*map(str, arguments)])
    return (0 if done.exception is None else 1), f"{done.output}{done.exception or ''}"


def test_of_a_file_and_of_a_log(tmp_path: Path) -> None:
    task, out = tmp_path / "task.yaml", tmp_path / "page.html"
    task.write_text("name: sleep\n" + TASKS["examples"])
    status, said = run(task, "--draws", 100, "--out", out)
    assert status == 0, said
    assert "to be settled before anyone signs" in said
    page = out.read_text()
    assert Task.load(task).hash in page
    assert "run when this dossier was made" in page
    url = f"sqlite:///{tmp_path}/sleep.db"
    with open_log(url) as log:
        log.register_task(Task.load(task).document())
    before = Path(tmp_path / "sleep.db").read_bytes()
    status, said = run(task, "--draws", 0, "--out", out, "--log", url, "--json")
    found = json.loads(said)
    assert found["task_hash"] == Task.load(task).hash
    assert url in out.read_text()
    assert not any("--log" in one for one in found["to_settle"])
    assert Path(tmp_path / "sleep.db").read_bytes() == before


def test_an_archive_is_stated_with_who_deletes_it_to_be_settled(tmp_path: Path) -> None:
    task, out = tmp_path / "task.yaml", tmp_path / "page.html"
    task.write_text("name: sleep\n" + TASKS["examples"])
    for name in ("sleep", "other"):
        with open_log(f"sqlite:///{tmp_path}/{name}.db") as log:
            log.register_task(Task.load(task).document())
            carried = log.registered_task()
            Archiver(log, carried, LocalFolder(f"{tmp_path}/{name}"), device_for(carried).engine())
    log_of = ("--draws", 0, "--out", out, "--log", f"sqlite:///{tmp_path}/sleep.db", "--json")
    status, said = run(task, *log_of)
    assert status == 0, said
    assert not any("who deletes it" in one for one in json.loads(said)["to_settle"])
    status, said = run(task, *log_of, "--archive", f"{tmp_path}/sleep")
    assert status == 0, said
    assert any("who deletes it" in one for one in json.loads(said)["to_settle"])
    assert f"the archive {tmp_path}/sleep" in out.read_text()
    assert "Only the owner of the archive&#x27;s folder can read its files and write to it." in out.read_text()
    (tmp_path / "sleep/_task.json").chmod(0o644)
    (tmp_path / "sleep").chmod(0o770)
    run(task, *log_of, "--archive", f"{tmp_path}/sleep")
    assert "Other users of the machine can read files and write in the archive&#x27;s folder" in out.read_text()
    status, said = run(task, *log_of, "--archive", f"{tmp_path}/other")
    assert (status, "of another log" in said) == (1, True)


def test_a_page_that_cannot_be_written_is_said_before_the_work_and_leaves_the_former_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, out = tmp_path / "task.yaml", tmp_path / "page.html"
    task.write_text("name: sleep\n" + TASKS["scores"])
    out.write_text("the former one")
    monkeypatch.setattr("murk.dossier.page.page_of", lambda dossier, inputs: "x" * 3_000_000)
    with small_files(2_000_000):
        status, said = run(task, "--draws", 0, "--out", out)
    assert (status, "page.html" in said) == (1, True)
    assert out.read_text() == "the former one"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["page.html", "task.yaml"]

    monkeypatch.setattr("murk.dossier.example.example_of", lambda task: pytest.fail("worked for nothing"))
    status, said = run(task, "--out", tmp_path / "nowhere" / "page.html")
    assert (status, "nowhere" in said) == (1, True)


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    task, out = tmp_path / "task.yaml", tmp_path / "page.html"
    task.write_text("name: sleep\n" + TASKS["examples"])
    url = f"sqlite:///{tmp_path}/sleep.db"
    with open_log(url) as log:
        log.register_task(Task.load(task).with_simulated(True).document())
    command_line = [task, "--out", out, "--log", url]
    for arguments, words in (
        ([*command_line, "--draws", 0], "carries simulated releases: add --simulated"),
        ([task, "--out", out, "--draws", 3], "is too few for an audit"),
        ([task, "--out", out, "--ledger", tmp_path / "no.db"], "there is no ledger at"),
        ([task, "--out", out, "--audit", tmp_path / "no.json"], "cannot be read"),
    ):
        status, said = run(*arguments)
        assert status == 1
        assert words in said
        assert not out.exists()
    task.write_text("name: sleep\n" + TASKS["examples"].replace("90", "99"))
    status, said = run(*command_line, "--draws", 0, "--simulated")
    assert status == 1
    assert "differs in: features[0].high" in said


def test_the_input_log_of_a_shuffled_task(tmp_path: Path) -> None:
    task, out = tmp_path / "task.yaml", tmp_path / "page.html"
    task.write_text("name: sleep\n" + TASKS["shuffled"])
    url = f"sqlite:///{tmp_path}/intake.db"
    with open_log(url) as log:
        log.register_task(Task.load(task).document())
    status, said = run(task, "--draws", 0, "--out", out, "--intake", url, "--json")
    assert status == 0, said
    found = json.loads(said)
    assert not any("was not read (--intake)" in one for one in found["to_settle"])
    [section] = [one for one in found["sections"] if one["key"] == "retention"]
    assert "releases on the input log" in json.dumps(section)
    task.write_text("name: sleep\n" + TASKS["scores"])
    status, said = run(task, "--draws", 0, "--out", out, "--intake", url)
    assert (status, "--intake is for shuffled tasks" in said) == (1, True)


def test_no_web_page_releases_an_organisations_windows(tmp_path: Path) -> None:
    task = tmp_path / "task.yaml"
    task.write_text("name: sleep\n" + TASKS["summaries"])
    status, said = run(task, "--draws", 0, "--web", "--out", tmp_path / "page.html")
    assert (status, "--web is for people" in said) == (1, True)


def test_a_page_is_made_again_to_the_byte_and_changes_are_named(tmp_path: Path) -> None:
    task, out, path = tmp_path / "task.yaml", tmp_path / "page.html", tmp_path / "people.ledger.db"
    task.write_text("name: sleep\n" + TASKS["moments"])
    url = f"sqlite:///{tmp_path}/sleep.db"
    with open_log(url) as log, Ledger(path) as ledger:
        log.register_task(Task.load(task).document())
        Producer(Task.load(task), log, ledger)
        given = [task, "--log", url, "--ledger", path]
        made = [*given, "--draws", 100, "--purpose", "Sleep.", "--web", "--people", 3000]
        status, said = run(*made, "--out", out, "--json")
        assert status == 0, said
        assert json.loads(said)["sha256"] == sha256(out.read_bytes()).hexdigest()
        for identity in (log.identity, ledger.identity):
            assert identity in out.read_text()
        page = out.read_text()
        status, said = run(*given, "--verify", out)
        assert (status, "byte for byte" in said) == (0, True), said
        # A figure that somebody changed by hand.
        out.write_text(page.replace("at most 88.1%", "at most 58.1%"))
        assert page != out.read_text()
        status, said = run(*given, "--verify", out, "--json")
        assert status == 1
        assert not json.loads(said[: said.rindex("}") + 1])["same"]
        # A cap that was raised since.
        out.write_text(page)
        [cap] = ledger.promises(Task.load(task).hash)
        ledger.loosen(cap.amount * 4, task_hash=Task.load(task).hash, level=cap.level)
    status, said = run(*given, "--verify", out)
    assert (status, "DIFFERS" in said, "guarantee" in said, "settle" in said, "asked" in said) == (
        1,
        True,
        True,
        True,
        False,
    )
    status, said = run(task, "--verify", task)
    assert (status, "is not a dossier's page" in said) == (1, True)


REQUIRED = {"name", "data_curators", "description", "intended_use", "data_product_type", "data_product_region",
            "publication_date"}  # fmt: skip
ALLOWED = {
    "basic": REQUIRED | {"data_product_sector"},
    "dp_variant": {"variant_name", "data_domain", "unprotected_quantities"},
    "privacy_loss": {"privacy_unit", "privacy_unit_details", "privacy_parameters", "privacy_parameters_details"},
    "deployment_model": {"model_name", "model_name_details", "actors", "release_type", "release_type_details",
                         "data_source_type", "data_source_type_details", "access_type", "access_type_details"},
    "accounting": {"post_processing", "composition"},
    "implementation": {"preprocessing_and_hyperparameter_tuning", "mechanisms", "justification"},
    "administrative": {"sources", "notes", "registry_authors"},
}  # fmt: skip
"""The registry's own schema takes no other keys."""
CHOICES = {
    ("basic", "data_product_type"): {"Summary statistics", "Machine learning model"},
    ("dp_variant", "variant_name"): {"Pure DP", "Approximate DP", "Zero-concentrated DP", "Renyi DP", "Custom"},
    ("deployment_model", "model_name"): {"Local", "Central", "Shuffle"},
    ("deployment_model", "release_type"): {"One release", "Many releases"},
    ("deployment_model", "data_source_type"): {"Static", "Dynamic"},
    ("deployment_model", "access_type"): {"Interactive", "Non-interactive"},
}


@pytest.mark.parametrize(
    ("name", "model", "parameters"),
    [
        ("scores", "Local", {"rho": 0.5}),
        ("moments", "Local", {"epsilon": 2.0}),
        ("summaries", "Central", {"rho": 0.5}),
        ("shuffled", "Shuffle", {"epsilon": 4.907}),
    ],
)
def test_a_draft_for_the_public_registry_fits_its_form(
    tmp_path: Path, name: str, model: str, parameters: dict[str, float]
) -> None:
    task, out = tmp_path / "task.yaml", tmp_path / "entry.yaml"
    task.write_text("name: sleep\nabout: {purpose: Wards., controller: The clinic}\n" + TASKS[name])
    status, said = run(task, "--draws", 0, "--out", tmp_path / "page.html", "--registry", out)
    assert status == 0, said
    entry = yaml.safe_load(out.read_text())
    assert set(entry) == {"url_slug", "status", "tier", "deployment"}
    deployment = entry["deployment"]
    assert set(deployment) == set(ALLOWED)
    for part, keys in ALLOWED.items():
        assert set(deployment[part]) <= keys
    assert set(deployment["basic"]) >= REQUIRED
    for (part, key), choices in CHOICES.items():
        assert deployment[part][key] in choices
    assert deployment["basic"]["data_curators"] == ["The clinic"]
    assert deployment["deployment_model"]["model_name"] == model
    assert deployment["privacy_loss"]["privacy_parameters"] == parameters
    assert date.fromisoformat(deployment["basic"]["publication_date"])
