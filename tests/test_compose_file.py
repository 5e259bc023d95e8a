"""compose.yaml, the image and their documents, without any server: what a file can be asked."""

import importlib.resources
import json
import math
import os
import re
import shutil
import subprocess
import tomllib
from contextlib import closing
from pathlib import Path

import jsonschema
import numpy as np
import pytest
import yaml

from murk import Task
from murk.demo import DATA, TASK
from murk.demo.trusted import trusted_fit
from murk.monitoring.metrics import alerts
from murk.populations import FileSource
from tests.services.composed import FILES, ROOT, SERVERS, Composed, properties, read
from tests.services.secure import RIGHTS, SHUFFLER_RIGHTS, right_names
from tools import prometheus

DEPLOY = ROOT / "deploy"
COMPOSE = read()
SERVICES = COMPOSE["services"]
SHUFFLED = read("compose.shuffled.yaml")
MADE = {name: read(name) for name in FILES}
EVERY = {f"{file}: {name}": service for file, made in MADE.items() for name, service in made["services"].items()}
MURK = [name for name, service in SERVICES.items() if service["image"] == "murk"]
KINDS = {"TOPIC": "topic", "GROUP": "group", "TRANSACTIONAL_ID": "transactional id"}


@pytest.mark.parametrize("made", MADE.values(), ids=MADE)
def test_it_is_valid_by_the_compose_specification(made):
    package = importlib.resources.files("check_jsonschema") / "builtin_schemas" / "vendor" / "compose-spec.json"
    schema = json.loads(package.read_text())
    validator = jsonschema.validators.validator_for(schema)(schema)
    assert [error.message for error in validator.iter_errors(made)] == []
    # The schema refuses what is not in it.
    services = made["services"]
    wrong = {**made, "services": {**services, "monitor": {**services["monitor"], "helthcheck": {}}}}
    assert not validator.is_valid(wrong)


@pytest.mark.parametrize("name", EVERY)
def test_every_service_is_confined(name):
    service = EVERY[name]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["read_only"] is not service["image"].startswith("apache/kafka")
    assert "privileged" not in service
    assert service.get("user") not in ("root", "0")
    assert service["restart"] in ("unless-stopped", "on-failure")
    for port in service.get("ports", []):
        assert port.startswith("127.0.0.1:")


@pytest.mark.parametrize("name", EVERY)
def test_every_image_has_one_version(name):
    image, _, version = EVERY[name]["image"].partition(":")
    assert image == "murk" or re.fullmatch(r"v?\d+\.\d+\.\d+", version), name


@pytest.mark.parametrize("made", MADE.values(), ids=MADE)
def test_what_is_mounted_is_there(made):
    for name, service in made["services"].items():
        for mount in service.get("volumes", []):
            source = mount.split(":")[0]
            if source.startswith("."):
                assert (ROOT / source).exists(), mount
                assert mount.endswith(":ro")
            else:
                assert source in made["volumes"], mount
        for config in service.get("configs", []):
            assert (ROOT / made["configs"][config["source"]]["file"]).is_file(), name
        for network in service.get("networks", []):
            assert network == "default" or network in made["networks"], name


@pytest.mark.parametrize("made", MADE.values(), ids=MADE)
def test_nobody_waits_for_a_check_that_is_not_there(made):
    services = made["services"]
    for service in services.values():
        for other, how in service.get("depends_on", {}).items():
            assert how["condition"] != "service_healthy" or "healthcheck" in services[other]
            assert how["condition"] != "service_completed_successfully" or services[other]["restart"] == "on-failure"


def test_only_the_shuffler_reaches_both_intake_and_log():
    services = SHUFFLED["services"]
    networks = {name: set(service.get("networks", ["default"])) for name, service in services.items()}
    assert {name for name, found in networks.items() if {"default", "input"} <= found} == {"shuffler"}
    assert {name for name, found in networks.items() if "input" in found} == {
        "input", "input-topics", "gateway", "population", "shuffler",
    }  # fmt: skip
    assert {name for name, found in networks.items() if "metrics" in found} == {"shuffler", "prometheus"}
    # Nor does the readers' Prometheus ask whoever counts what arrives.
    mounts = services["prometheus"]["volumes"]
    assert "./deploy/prometheus/shuffled.yml:/etc/prometheus/prometheus.yml:ro" in mounts
    asked = yaml.safe_load((DEPLOY / "prometheus" / "shuffled.yml").read_text())["scrape_configs"]
    every = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())["scrape_configs"]
    arrivals = {prometheus.GATEWAY_JOB, prometheus.PEOPLE_JOB, prometheus.ARCHIVER_JOB}
    assert {each["job_name"] for each in asked} == {each["job_name"] for each in every} - arrivals
    # Whoever is named in a command is reached.
    brokers = {"kafka": "default", "input": "input"}
    for name, service in services.items():
        for word in map(str, service.get("command", [])):
            for broker, network in brokers.items():
                assert f"kafka://{broker}:" not in word or network in networks[name], (name, word)
    # The twin: without the second file everybody is in one network.
    assert not any("networks" in service for service in SERVICES.values())


def test_the_shuffled_task_asks_the_same_question():
    ours, shuffled = (yaml.safe_load((DEPLOY / f"{name}.yaml").read_text()) for name in ("task", "shuffled"))
    assert "privacy" not in shuffled
    del ours["privacy"], shuffled["shuffle"]
    assert ours == shuffled
    task = Task.load(DEPLOY / "shuffled.yaml")
    assert task.log.partitions == SERVICES["learner"]["deploy"]["replicas"]
    assert task.shuffle.crowd == 20_000


def test_services_know_each_others_addresses():
    jobs = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())["scrape_configs"]
    asked = {
        job["job_name"]: job["static_configs"][0]["targets"][0].split(":") for job in jobs if "static_configs" in job
    }
    for job in jobs:
        for found in job.get("dns_sd_configs", []):
            asked[job["job_name"]] = (found["names"][0], str(found["port"]))
    assert (
        set(asked)
        == {
            alerts.MONITOR_JOB,
            prometheus.LEARNER_JOB,
            prometheus.PEOPLE_JOB,
            prometheus.GATEWAY_JOB,
            prometheus.SHUFFLER_JOB,
            prometheus.ARCHIVER_JOB,
        }
        == {job["job_name"] for job in jobs}
    )
    for service, port in asked.values():
        deployed = {
            "shuffler": [SHUFFLED["services"]],
            "archiver": [yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]],
        }
        for services in deployed.get(service, [SERVICES, SHUFFLED["services"]]):
            assert port in services[service]["command"]
            assert "0.0.0.0" in services[service]["command"]
    source = yaml.safe_load((DEPLOY / "grafana/provisioning/datasources/murk.yml").read_text())["datasources"][0]
    assert source["url"] == "http://prometheus:9090"
    boards = yaml.safe_load((DEPLOY / "grafana/provisioning/dashboards/murk.yml").read_text())["providers"][0]
    mounted = {mount.split(":")[1] for mount in SERVICES["grafana"]["volumes"]}
    assert {boards["options"]["path"], "/etc/grafana/provisioning"} <= mounted
    home = SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert (DEPLOY / "grafana/dashboards" / Path(home).name).is_file()


def test_prometheus_remembers_as_long_as_its_rules_look_back():
    kept = next(word for word in SERVICES["prometheus"]["command"] if "retention.time" in word)
    windows = re.findall(r"\[(\d+)d\]", (DEPLOY / "prometheus" / "rules.yml").read_text())
    assert int(re.search(r"=(\d+)d$", kept)[1]) >= max(map(int, windows))


def test_the_broker_is_the_one_of_make_kafka():
    version = re.search(r"<kafka.version>([\d.]+)<", (DEPLOY / "broker/pom.xml").read_text())
    for name in ("kafka", "input"):
        assert SHUFFLED["services"][name]["image"] == f"apache/kafka:{version[1]}"
    assert properties({"KAFKA_LOG_DIRS": "/x", "KAFKA_A__B___C": 1}) == {"log.dirs": "/x", "a_b-c": "1"}


def test_every_learner_has_a_partition():
    task = Task.load(DEPLOY / "task.yaml")
    assert task.log.partitions == SERVICES["learner"]["deploy"]["replicas"] == 2


def test_the_task_is_the_demonstrations_but_for_its_levels_and_its_partitions():
    ours, demo = (yaml.safe_load(Path(path).read_text()) for path in (DEPLOY / "task.yaml", TASK))
    for task in (ours, demo):
        task.pop("log", None)
        del task["privacy"]
    assert ours == demo


def test_the_reference_is_what_a_trusted_server_would_have_found():
    fit = trusted_fit(Task.load(DEPLOY / "task.yaml"), DATA)
    reference = yaml.safe_load((DEPLOY / "reference.yaml").read_text())
    assert reference == {name: pytest.approx(found["value"], abs=1e-6) for name, found in fit.items()}


def test_all_three_tasks_ask_the_same_question_of_the_same_people():
    made = {name: yaml.safe_load((DEPLOY / f"{name}.yaml").read_text()) for name in ("task", "gradients", "examples")}
    questions = [{key: task[key] for key in ("features", "target", "privacy")} for task in made.values()]
    assert questions[0] == questions[1] == questions[2]
    tasks = {name: Task.load(DEPLOY / f"{name}.yaml") for name in made}
    assert [task.protocol for task in tasks.values()] == ["scores", "gradients", "examples"]
    assert tasks["gradients"].learner.averaging == "polyak"
    runs = {}
    for service in SERVICES.values():
        if service.get("command", [""])[0] == "produce":
            words = list(map(str, service["command"]))
            options = {
                word: words[words.index(word) + 1]
                for word in words
                if word.startswith("--") and word not in ("--json", "--fast-start")
            }
            runs[Path(words[1]).stem] = options
    assert runs.keys() == made.keys()
    assert runs["task"] == runs["gradients"] == runs["examples"]
    # The cap over all tasks is met exactly by who takes part in all three at the weakest level.
    cap, weakest = float(runs["task"]["--lifetime"].removeprefix("gdp:")), 2.0
    assert questions[0]["privacy"]["levels"]["open"] == {"gdp": {"mu": weakest}}
    assert 0.0 < cap - math.sqrt(len(made) * weakest**2) < 0.05


def test_the_reference_of_examples_is_the_limit_of_their_loss():
    task = Task.load(DEPLOY / "task.yaml")
    blocks = [*FileSource(DATA, task).blocks(0, 65_536)]
    x, y = (np.concatenate([getattr(block, name) for block in blocks]) for name in "xy")
    best = dict(zip(task.coding.names, np.linalg.lstsq(x, 2 * y - 1, rcond=None)[0], strict=True))
    reference = yaml.safe_load((DEPLOY / "examples-reference.yaml").read_text())
    assert reference == {name: pytest.approx(value, abs=1e-6) for name, value in best.items()}


@pytest.mark.parametrize("file", FILES)
def test_commands_are_understood(tmp_path, file):
    """With every option as it stands; `--help` as well, so that nothing is begun."""
    from click.testing import CliRunner

    from murk.cli import cli

    with closing(Composed(tmp_path, file)) as composed:
        for name in composed.services.keys() - set(SERVERS):
            done = CliRunner().invoke(cli, [*composed.command(name), "--help"])
            assert done.exit_code == 0, done.output
            known = set(re.findall(r"--[a-z-]+", done.output))
            assert {word for word in composed.services[name]["command"] if word.startswith("--")} <= known


# The image


DOCKERFILE = (ROOT / "Dockerfile").read_text()


def test_the_image_runs_as_nobody_in_particular():
    assert re.findall(r"^USER (.+)$", DOCKERFILE, re.MULTILINE) == ["10001:10001"]
    for mount in SERVICES["population"]["volumes"] + SHUFFLED["services"]["shuffler"]["volumes"]:
        # A new volume takes its owner from the folder of the image.
        assert f"install --directory --owner=murk --group=murk {mount.split(':')[1]}" in DOCKERFILE


def test_the_images_extras_are_there():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    [extras] = re.findall(r"\.whl\)\[([a-z,]+)\]", DOCKERFILE)
    assert set(extras.split(",")) <= set(project["optional-dependencies"])
    # Each service's own package.
    assert {"frames", "gateway", "kafka", "monitor"} <= set(extras.split(","))


def test_what_the_image_is_made_of_is_let_through():
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and line[0] != "#"]
    assert lines[0] == "*"
    allowed = [line[1:] for line in lines if line.startswith("!")]
    project = (ROOT / "pyproject.toml").read_text()
    named = re.findall(r'(?:readme = |license-files = \[)"([^"]+)"', project)
    included = re.findall(r'^"([^"]+)" = "murk/', project, re.MULTILINE)
    assert included
    for needed in ("murk", "pyproject.toml", *named, *included):
        assert needed in allowed
    for source in re.findall(r"^COPY (?!--from)(?:--\S+ )*(\S+) ", DOCKERFILE, re.MULTILINE):
        # A file that need not be there is named by a pattern, which matches nothing then.
        assert source == "." or source.replace("[t]", "t") in allowed
    for name in allowed:
        assert (ROOT / name).exists() or name == "deploy/requirements.txt"


@pytest.mark.parametrize("name", MURK)
def test_whatever_is_named_in_the_image_is_made_there(name):
    for word in SERVICES[name]["command"]:
        if word.startswith("/usr/share/"):
            assert f" {word}\n" in DOCKERFILE


def test_a_container_starts_with_compiled_kernels_where_it_may_write(tmp_path):
    kernels, cache, programs = tmp_path / "kernels", tmp_path / "tmp" / "cache", tmp_path / "bin"
    (kernels / "deep").mkdir(parents=True)
    (kernels / "deep" / "one.nbi").write_text("compiled")
    kernels.chmod(0o555)
    programs.mkdir()
    (programs / "murk").write_text('#!/bin/sh\nprintf "%s|" "$@"\nexit 3\n')
    (programs / "murk").chmod(0o755)
    environment = {
        "PATH": f"{programs}:{os.environ['PATH']}", "MURK_KERNELS": str(kernels), "NUMBA_CACHE_DIR": str(cache)
    }  # fmt: skip
    for _ in range(2):  # a container that is started again finds its cache there
        done = subprocess.run(
            [DEPLOY / "start.sh", "learn", "--log", "a b"], env=environment, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout, done.stderr) == (3, "learn|--log|a b|", "")
        assert (cache / "deep" / "one.nbi").read_text() == "compiled"
        (cache / "deep" / "new.nbi").write_text("compiled here")


def test_make_up_says_what_is_missing(tmp_path):
    for program in ("sh", "env"):
        (tmp_path / program).symlink_to(shutil.which(program))
    made = subprocess.run(
        [shutil.which("make"), "up"], cwd=ROOT, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert made.returncode == 2
    assert "needs Docker" in made.stderr
    assert "make kafka" in made.stderr
    (tmp_path / "docker").write_text('#!/bin/sh\n[ "$1" = compose ]\n')
    (tmp_path / "docker").chmod(0o755)
    made = subprocess.run(
        [shutil.which("make"), "up"], cwd=ROOT, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert made.returncode == 2
    assert "is its engine running" in made.stderr


# The documents


def anchors(page):
    """Links that its headings can be reached by."""
    headings = re.findall(r"^#+ (.+)$", (ROOT / "docs" / page).read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


def test_every_alert_has_its_part_of_the_runbook():
    assert {alert.anchor for alert in alerts.ALERTS} <= anchors("recover.md")


@pytest.mark.parametrize("page", ["deploy.md", "recover.md", "monitor.md", "metrics.md"])
def test_links_to_headings_lead_somewhere(page):
    for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", (ROOT / "docs" / page).read_text()):
        assert anchor in anchors(target or page), f"{page} links to {target}#{anchor}"


def test_the_rights_are_those_that_are_tried():
    """The commands of docs/deploy.md give what tests/services/test_security.py does, and no more."""
    text = (ROOT / "docs" / "deploy.md").read_text()
    options = {kind: f"--{word.replace(' ', '-')}" for kind, word in KINDS.items()}
    commands = [line.split("$acls ")[1] for line in text.splitlines() if line.startswith("    $acls ")]
    assert commands == [
        f"--allow-principal User:{one.role} {options[one.kind]} {name} "
        + " ".join(f"--operation {operation.title().replace('_', '')}" for operation in one.operations)
        for one in RIGHTS
        for name in right_names(one, "third-child", 2)
    ]


def test_the_shufflers_rights_are_those_that_are_tried():
    text = (ROOT / "docs" / "shuffling.md").read_text()
    rows = set(re.findall(r"^\| (topic|transactional id) `(murk-\S+)` \| ([A-Z_, ]+) \|", text, re.MULTILINE))
    assert rows == {(KINDS[one.kind], one.resource, ", ".join(one.operations)) for one in SHUFFLER_RIGHTS}
    assert len(rows) == len(SHUFFLER_RIGHTS) == 10


def test_every_setting_is_explained():
    from dataclasses import fields

    from murk.stream.log.kafka.connection.settings import Settings

    text = (ROOT / "docs" / "deploy.md").read_text()
    for field in fields(Settings):
        assert f"`{field.name.replace('_', '.')}`" in text


def test_the_topics_are_explained_as_they_must_be():
    from murk.stream.log.kafka.topics import Names, specs

    text = (ROOT / "docs" / "deploy.md").read_text()
    for topic, spec in specs(Names("NAME"), Task.load(TASK), estimates=True).items():
        row = next(line for line in text.splitlines() if line.startswith(f"| `{topic}`"))
        for key, value in spec.configs.items():
            assert f"`{key}={value}`" in row
        for key in spec.least:
            assert f"`{key}`" in row
        for key, value in spec.advice.items():
            assert f"`{key}={value}`" in row or "the same |" in row
    assert f"{specs(Names('a'), Task.load(TASK))['murk-a-states'].least['max.message.bytes']:,}" in text
