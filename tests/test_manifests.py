"""Kubernetes manifests and systemd units, without a cluster: by published schemas, and by what a file can be asked."""

import re
import shutil
import subprocess
import sys
import tomllib
from base64 import b64encode
from pathlib import Path

import kubernetes_validate
import pytest
import yaml
from click.testing import CliRunner

from murk import Task
from murk.cli import cli
from tests.services.secure import PASSWORDS

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "deploy" / "kubernetes"
UNITS = ROOT / "deploy" / "systemd"
UNIT_NAMES = (
    "murk-archiver.service",
    "murk-gateway.service",
    "murk-learner@.service",
    "murk-monitor.service",
    "murk-shuffler.service",
)
VERSIONS = ("1.29", "1.37")
"""The oldest and the newest that the manifests are held against."""

FILES = sorted(path for path in FOLDER.rglob("*.yaml") if path.name not in ("kustomization.yaml", "task.yaml"))
ALL = {
    f"{path.parent.name}/{one['kind']}/{one['metadata']['name']}": one
    for path in FILES
    for one in yaml.safe_load_all(path.read_text())
}
SHUFFLER = {name: one for name, one in ALL.items() if name.startswith("shuffler/")}
"""What its own organisation runs."""
RESOURCES = {
    name: one
    for name, one in ALL.items()
    if name not in SHUFFLER and "/PodMonitor/" not in name and not name.startswith(("network/", "archiver/"))
}
"""What base, topics and trying are made of."""
SHUFFLING = "shuffler/Deployment/shuffler"
ARCHIVING = "archiver/Deployment/archiver"
WORKLOADS = {name: one for name, one in RESOURCES.items() if "template" in one.get("spec", {})}
KUSTOMIZATIONS = {path.parent.name: yaml.safe_load(path.read_text()) for path in FOLDER.rglob("kustomization.yaml")}
SETTINGS = tomllib.loads((FOLDER / "base" / "murk.toml").read_text())
SHUFFLER_SETTINGS = tomllib.loads((FOLDER / "shuffler" / "murk.toml").read_text())


def pod(workload):
    return workload["spec"]["template"]["spec"]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", [name for name in ALL if "/PodMonitor/" not in name])
def test_it_is_valid_by_the_published_schemas(name, version):
    kubernetes_validate.validate(ALL[name], version, strict=True)


def test_the_schemas_refuse_what_is_wrong():
    learner = RESOURCES["base/StatefulSet/learner"]
    for spoiled in (
        {**learner, "spec": {**learner["spec"], "replica": 2}},
        {**learner, "spec": {key: value for key, value in learner["spec"].items() if key != "selector"}},
        {**learner, "spec": {**learner["spec"], "replicas": "two"}},
    ):
        with pytest.raises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(spoiled, VERSIONS[-1], strict=True)


@pytest.mark.parametrize("name", [*WORKLOADS, SHUFFLING, ARCHIVING])
def test_every_pod_is_confined(name):
    spec = pod(ALL[name])
    assert spec["automountServiceAccountToken"] is False
    # A service murk-monitor would set MURK_MONITOR_PORT.
    assert spec["enableServiceLinks"] is False
    security = spec["securityContext"]
    assert security["runAsNonRoot"] is True
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    [user] = re.findall(r"^USER (\d+):(\d+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert (security["runAsUser"], security["runAsGroup"]) == tuple(map(int, user))
    for container in spec["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
        }  # fmt: skip
        assert {"cpu", "memory", "ephemeral-storage"} <= container["resources"]["requests"].keys()
        assert {"memory", "ephemeral-storage"} <= container["resources"]["limits"].keys()
        writable = {mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
        # Kernels, people's accounts, and what waits for its crowd.
        assert writable - {"/var/lib/murk"} == {"/tmp"}
        assert ("/var/lib/murk" in writable) == ("population" in name or name in (SHUFFLING, ARCHIVING))
        # None lies within another: a folder cannot be made in a configuration that is only read.
        paths = [mount["mountPath"] + "/" for mount in container["volumeMounts"]]
        assert not any(one != other and one.startswith(other) for one in paths for other in paths)


def test_names_lead_to_what_is_there():
    for name, workload in {**WORKLOADS, SHUFFLING: ALL[SHUFFLING], ARCHIVING: ALL[ARCHIVING]}.items():
        spec = pod(workload)
        labels = workload["spec"]["template"]["metadata"]["labels"]
        if "selector" in workload["spec"]:
            assert workload["spec"]["selector"]["matchLabels"] == labels
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        for container in spec["containers"]:
            ports = {port["name"]: port["containerPort"] for port in container.get("ports", [])}
            assert {mount["name"] for mount in container["volumeMounts"]} == volumes.keys()
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                if probe in container:
                    [how] = [container[probe][key] for key in ("httpGet", "tcpSocket") if key in container[probe]]
                    assert how["port"] in ports
        assert volumes["config"]["configMap"]["name"] in {
            one["name"] for one in KUSTOMIZATIONS["base"]["configMapGenerator"]
        }
        role = volumes["kafka"]["secret"]["secretName"].removeprefix("kafka-")
        assert role in PASSWORDS, name
        claims = [volume["persistentVolumeClaim"]["claimName"] for volume in volumes.values()
                  if "persistentVolumeClaim" in volume]  # fmt: skip
        assert all(f"{name.partition('/')[0]}/PersistentVolumeClaim/{claim}" in ALL for claim in claims)
    asked = {pod(one)["volumes"][1]["secret"]["secretName"] for one in WORKLOADS.values()}
    assert asked == {one["name"] for one in KUSTOMIZATIONS["trying"]["secretGenerator"]}
    for kind in ("Service", "PodDisruptionBudget"):
        chosen = RESOURCES[f"base/{kind}/learner"]["spec"]["selector"]
        labels = WORKLOADS["base/StatefulSet/learner"]["spec"]["template"]["metadata"]["labels"]
        assert (chosen if kind == "Service" else chosen["matchLabels"]) == labels
    # One that is not ready holds up nobody who drains a node.
    assert RESOURCES["base/PodDisruptionBudget/learner"]["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
    stateful = RESOURCES["base/StatefulSet/learner"]["spec"]
    assert f"base/Service/{stateful['serviceName']}" in RESOURCES


def test_kustomizations_name_every_file():
    for folder, kustomization in KUSTOMIZATIONS.items():
        here = FOLDER / folder
        named = {name for name in kustomization["resources"] if not name.startswith("..")}
        assert all((here / name).is_dir() for name in set(kustomization["resources"]) - named)
        for one in (*kustomization.get("configMapGenerator", []), *kustomization.get("secretGenerator", [])):
            named |= set(one["files"])
        assert named == {path.name for path in here.iterdir()} - {"kustomization.yaml"}


def generated(kind, one, folder):
    """A ConfigMap or a Secret of files; kustomize appends a hash to its name, and to what refers to it."""
    texts = {name: (folder / name).read_text() for name in one["files"]}
    resource = {"apiVersion": "v1", "kind": kind, "metadata": {"name": one["name"]}, "data": texts}
    if kind == "Secret":
        resource["data"] = {name: b64encode(text.encode()).decode() for name, text in texts.items()}
        resource["type"] = "Opaque"
    return resource


def patch(resource, operations):
    """Apply operations of RFC 6902, of which only one to add to the end of a list is known here."""
    for operation in operations:
        *path, end = operation["path"].strip("/").split("/")
        assert (operation["op"], end) == ("add", "-")
        place = resource
        for step in path:
            place = place[int(step) if isinstance(place, list) else step]
        place.append(operation["value"])


def select(resource, labels):
    """Add labels to a resource's selectors and pods, as `includeSelectors` does."""
    spec = resource.get("spec", {})
    selector = spec.get("selector", {})
    if "selector" in spec:
        selector.get("matchLabels", selector).update(labels)
    if "template" in spec:
        spec["template"]["metadata"]["labels"].update(labels)


def build(folder):
    """What kustomize makes of a folder. Of its features those that are used here; another one is an error."""
    content = yaml.safe_load((folder / "kustomization.yaml").read_text())
    assert (content.pop("apiVersion"), content.pop("kind")) == ("kustomize.config.k8s.io/v1beta1", "Kustomization")
    built = []
    for name in content.pop("resources"):
        built += build(folder / name) if (folder / name).is_dir() else yaml.safe_load_all((folder / name).read_text())
    for key, kind in (("configMapGenerator", "ConfigMap"), ("secretGenerator", "Secret")):
        built += [generated(kind, one, folder) for one in content.pop(key, [])]
    for one in content.pop("patches", []):
        kind, name = one["target"].pop("kind"), one["target"].pop("name")
        [target] = [each for each in built if (each["kind"], each["metadata"]["name"]) == (kind, name)]
        assert not one["target"]
        patch(target, yaml.safe_load(one["patch"]))
    labels, selecting = {}, {}
    for one in content.pop("labels", []):
        (selecting if one.get("includeSelectors") else labels).update(one["pairs"])
    for one in built:
        select(one, selecting)
    labels |= selecting
    images = {one["name"]: f"{one['newName']}:{one['newTag']}" for one in content.pop("images", [])}
    namespace = content.pop("namespace")
    assert not content
    for one in built:
        if labels:
            one["metadata"].setdefault("labels", {}).update(labels)
        if one["kind"] != "Namespace":
            one["metadata"]["namespace"] = namespace
        for container in pod(one)["containers"] if "template" in one.get("spec", {}) else ():
            container["image"] = images.get(container["image"], container["image"])
    return built


def test_kustomize_builds_them():
    built = build(FOLDER / "trying")
    assert len(built) == len(RESOURCES) + 1 + 4
    # Simulated is what is for trying, and nothing else.
    [job] = [one for one in built if (one["kind"], one["metadata"]["name"]) == ("Job", "topics")]
    assert job["spec"]["template"]["spec"]["containers"][0]["args"][-1] == "--simulated"
    assert "--simulated" not in pod(RESOURCES["topics/Job/topics"])["containers"][0]["args"]
    for one in built:
        kubernetes_validate.validate(one, VERSIONS[-1], strict=True)


def kustomized(folder):
    done = subprocess.run(["kubectl", "kustomize", str(FOLDER / folder)], capture_output=True, text=True, check=True)
    return {f"{one['kind']}/{one['metadata']['name']}": one for one in yaml.safe_load_all(done.stdout)}


def selected(resources, selector):
    """Workloads whose pods a selector matches."""
    return {
        name
        for name, one in resources.items()
        if "template" in one.get("spec", {})
        and selector.items() <= one["spec"]["template"]["metadata"]["labels"].items()
    }


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl, which brings kustomize")
def test_several_tasks_share_a_namespace():
    base, another = kustomized("base"), kustomized("another")
    together = base | another
    assert len(together) == len(base) + len(another)
    assert [name for name in another if "template" in another[name].get("spec", {})] == ["StatefulSet/learner-weeks"]
    # They serve every task of the cluster.
    for command in ("monitor", "gateway"):
        assert SETTINGS[command]["log"] == SETTINGS["log"].rpartition("/")[0]
        assert pod(base[f"Deployment/{command}"])["containers"][0]["args"] == [command]
    for name, one in together.items():
        kubernetes_validate.validate(one, VERSIONS[-1], strict=True)
        if "selector" in one.get("spec", {}):
            selector = one["spec"]["selector"]
            labels = selector.get("matchLabels", selector)
            assert len(selected(together, labels)) == 1, name
            # Without the label of the task it would match the learners of both.
            bare = {key: value for key, value in labels.items() if not key.endswith("/instance")}
            assert len(selected(together, bare)) == (2 if "learner" in name else 1), name
    [config] = [one for name, one in another.items() if name.startswith("ConfigMap/")]
    task = Task.parse(config["data"]["task.yaml"])
    assert tomllib.loads(config["data"]["murk.toml"])["log"].endswith(f"/{task.name}")


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl, which brings kustomize")
@pytest.mark.parametrize("folder", ["base", "trying", "shuffler"])
def test_kustomize_itself_builds_the_same(folder):
    """Names of generated files have a hash there, by which pods refer to them."""
    ours = {f"{one['kind']}/{one['metadata']['name']}": one for one in build(FOLDER / folder)}
    theirs = {
        re.sub(r"^((?:ConfigMap|Secret)/.*)-[a-z0-9]{10}$", r"\1", name): one
        for name, one in kustomized(folder).items()
    }
    assert theirs.keys() == ours.keys()
    for name, one in theirs.items():
        assert one["metadata"].get("labels") == ours[name]["metadata"].get("labels"), name
        if "template" in one.get("spec", {}):
            ours_of, theirs_of = (each["spec"]["template"]["metadata"] for each in (ours[name], one))
            assert theirs_of["labels"] == ours_of["labels"]


def test_the_shuffler_is_alone_in_a_place_of_its_own():
    built = build(FOLDER / "shuffler")
    assert len(built) == len(SHUFFLER) + 1
    for one in built:
        kubernetes_validate.validate(one, VERSIONS[-1], strict=True)
    [namespace] = [one["metadata"]["name"] for one in built if one["kind"] == "Namespace"]
    assert {one["metadata"]["namespace"] for one in built if one["kind"] != "Namespace"} == {namespace}
    assert namespace != KUSTOMIZATIONS["base"]["namespace"]
    spec = ALL[SHUFFLING]["spec"]
    # Two would take turns: the store takes one process.
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
    policy = ALL["shuffler/NetworkPolicy/shuffler"]["spec"]
    assert policy["podSelector"]["matchLabels"] == spec["template"]["metadata"]["labels"]
    [container] = pod(ALL[SHUFFLING])["containers"]
    assert [port["port"] for rule in policy["ingress"] for port in rule["ports"]] == [container["ports"][0]["name"]]
    settings = SHUFFLER_SETTINGS["shuffle"]
    assert settings["to"] == SETTINGS["log"]
    assert settings["from"] != settings["to"]
    assert settings["store"].startswith("/var/lib/murk/")
    assert f":{policy['egress'][1]['ports'][0]['port']}/" in settings["from"]


def test_only_prometheus_reaches_the_archiver():
    policy, spec = (ALL[f"archiver/{kind}/archiver"]["spec"] for kind in ("NetworkPolicy", "Deployment"))
    assert policy["podSelector"]["matchLabels"] == spec["template"]["metadata"]["labels"]
    [container] = pod(ALL["archiver/Deployment/archiver"])["containers"]
    assert [port["port"] for rule in policy["ingress"] for port in rule["ports"]] == [container["ports"][0]["name"]]
    assert f":{policy['egress'][1]['ports'][0]['port']}/" in SETTINGS["log"]


def ports_of(name):
    """Named ports of the pods that carry a name."""
    return {
        port["name"]: port["containerPort"]
        for workload in (*WORKLOADS.values(), ALL[SHUFFLING], ALL[ARCHIVING])
        if workload["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/name"] == name
        for container in pod(workload)["containers"]
        for port in container.get("ports", [])
    }


def test_policies_let_prometheus_in_and_brokers_be_reached_and_nothing_else():
    policies = {one["metadata"]["name"]: one["spec"] for one in build(FOLDER / "network")}
    [selected] = policies["murk"]["podSelector"]["matchExpressions"]
    labels = {one["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/name"] for one in WORKLOADS.values()}
    assert (selected["operator"], set(selected["values"])) == ("In", labels)
    # Without a rule of its own nothing comes in.
    assert "ingress" not in policies["murk"]
    assert set(policies["murk"]["policyTypes"]) == {"Ingress", "Egress"}
    _, brokers = policies["murk"]["egress"]
    assert f":{brokers['ports'][0]['port']}/" in SETTINGS["log"]
    for name in ("gateway", "learner", "monitor"):
        assert policies[name]["podSelector"]["matchLabels"] == {"app.kubernetes.io/name": name}
        rules = policies[name]["ingress"]
        assert [port["port"] for rule in rules for port in rule["ports"]] == list(ports_of(name))
        assert all("podSelector" in peer for rule in rules for peer in rule["from"])


@pytest.mark.parametrize("folder", ["prometheus", "shuffler-prometheus"])
def test_the_operator_of_prometheus_scrapes_what_rules_and_dashboards_ask_for(folder):
    configuration = yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text())
    jobs = {one["job_name"] for one in configuration["scrape_configs"]}
    for one in build(FOLDER / folder):
        assert (one["apiVersion"], one["kind"]) == ("monitoring.coreos.com/v1", "PodMonitor")
        name = one["spec"]["selector"]["matchLabels"]["app.kubernetes.io/name"]
        [endpoint] = one["spec"]["podMetricsEndpoints"]
        assert endpoint["port"] in ports_of(name)
        assert endpoint["interval"] == configuration["global"]["scrape_interval"]
        assert endpoint["scrapeTimeout"] == configuration["global"]["scrape_timeout"]
        [relabeled] = endpoint["relabelings"]
        assert relabeled == {"targetLabel": "job", "replacement": f"murk-{name}"}
        assert relabeled["replacement"] in jobs


@pytest.mark.parametrize("name", [*WORKLOADS, SHUFFLING, ARCHIVING])
def test_commands_are_understood_with_the_settings_of_the_configuration(name, tmp_path, monkeypatch):
    """With every option as it stands and the file as it is mounted; `--help` as well, so that nothing is begun."""
    monkeypatch.chdir(tmp_path)
    [container] = pod(ALL[name])["containers"]
    words = [word.replace("$(POD_NAME)", "learner-0") for word in container["args"]]
    folder, own = ("shuffler", SHUFFLER_SETTINGS) if name == SHUFFLING else ("base", SETTINGS)
    environment = {"MURK_CONFIG": str(FOLDER / folder / "murk.toml")}
    done = CliRunner().invoke(cli, [*words, "--help"], env=environment, standalone_mode=False)
    assert done.exit_code == 0, done.output
    known = set(re.findall(r"--[a-z-]+", done.output))
    assert {word for word in words if word.startswith("--")} <= known
    # Where it listens is where it is asked.
    settings = own.get(words[0], {})
    ports = [settings[key] for key in ("port", "metrics-port") if key in settings]
    assert [one["containerPort"] for one in container.get("ports", [])] == ports


def test_the_task_is_that_of_compose_and_every_learner_has_a_partition():
    assert (FOLDER / "base" / "task.yaml").read_text() == (ROOT / "deploy" / "task.yaml").read_text()
    task = Task.load(FOLDER / "base" / "task.yaml")
    assert RESOURCES["base/StatefulSet/learner"]["spec"]["replicas"] == task.log.partitions
    assert SETTINGS["log"].endswith(f"/{task.name}")


# systemd


def unit(path):
    found = {}
    for line in path.read_text().splitlines():
        key, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(key, []).append(value)
    return found


@pytest.fixture
def units(tmp_path):
    """The units, with a program that is there."""
    for path in UNITS.glob("*.service"):
        (tmp_path / path.name).write_text(path.read_text().replace("/opt/murk/bin/murk", sys.executable))
    return tmp_path


def test_there_are_units():
    assert {path.name for path in UNITS.iterdir()} == {*UNIT_NAMES, "murk.toml"}


@pytest.mark.parametrize("name", UNIT_NAMES)
def test_systemd_understands_the_unit_and_finds_it_confined(units, name):
    program = shutil.which("systemd-analyze")
    assert program, "systemd-analyze: .ci/services installs it"
    done = subprocess.run([program, "verify", str(units / name)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    # As it is with a certificate, too.
    certified = units / name.replace("murk-", "murk-tls-")
    certified.write_text((units / name).read_text().replace("#LoadCred", "LoadCred").replace("#Env", "Env"))
    assert certified.read_text().count("\nLoadCredential=") == 3
    done = subprocess.run([program, "verify", str(certified)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    spoiled = units / f"bad-{name}"
    spoiled.write_text((units / name).read_text().replace("[Service]", "[Service]\nRestrat=always"))
    bad = subprocess.run([program, "verify", str(spoiled)], capture_output=True, text=True, check=False)
    assert "Restrat" in bad.stderr
    # systemd's own measure, of 10: below 2 it calls it fine.
    judge = [program, "security", "--offline=true", "--no-pager", "--threshold=20", str(units / name)]
    done = subprocess.run(judge, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-300:]


@pytest.mark.parametrize("name", UNIT_NAMES)
def test_units_start_commands_that_there_are(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = unit(UNITS / name)
    [start] = found["ExecStart"]
    words = start.replace("%H-%i", "machine-1").split()[1:]
    done = CliRunner().invoke(cli, ["--config", str(UNITS / "murk.toml"), *words, "--help"], standalone_mode=False)
    assert done.exit_code == 0, done.output
    assert {word for word in words if word.startswith("--")} <= set(re.findall(r"--[a-z-]+", done.output))
    role = re.search(r"kafka-(\w+)\.properties", found["LoadCredential"][0])[1]
    assert role in PASSWORDS
    # Each learner of a machine listens at a port of its own.
    ports = [one for one in found["Environment"] if "PORT" in one]
    assert ports == (["MURK_LEARN_METRICS_PORT=947%i"] if "@" in name else [])
    # Where kernels are compiled to is where it may write.
    [cache] = [
        one.removeprefix("NUMBA_CACHE_DIR=/var/cache/") for one in found["Environment"] if one.startswith("NUMBA")
    ]
    assert found["CacheDirectory"] == [cache]
