"""What a person's device loads for one release of each protocol, and that it releases with four packages alone."""

import json
import subprocess
import sys
import time

import pytest

from murk.privacy.central import GaussMixMechanism, GramMechanism, NewtonMechanism
from murk.privacy.mechanisms import KINDS, CompositeMechanism, RandomizedResponse, SubsetSelection, WindowSelection
from murk.producers import Policy
from tests.gateway.offered import ORGANISATIONS, PEOPLE, offered, task_of

RELEASE = """
import json, sys
from murk.producers import Ledger, Producer
from murk import Task
from murk.stream import open_log

task = Task.parse(sys.argv[1])
with open_log("sqlite:///log.db") as log, Ledger("ledger.db") as ledger:
    log.register_task(task.document())
    outcome = Producer(task, log, ledger).release({"age": 31, "worked": sys.argv[2]}).outcome
print(json.dumps([outcome, sorted({name.partition(".")[0] for name in sys.modules}), sorted(sys.modules)]))
"""
TASK = """
name: weeks
features: [{name: age, low: 20, high: 40}]
target: {name: worked, kind: binary, positive: "yes"}
privacy: {guarantee: {gdp: {mu: 1.0}}}
"""
BLOCKS = {
    "scores": "protocol: scores\n",
    "gradients": "protocol: gradients\n",
    "outer products": "protocol: examples\n",
    "joint examples": "protocol: examples\nexamples: {release: joint}\n",
    "moments": "protocol: moments\n",
    "shares": "",
}
# What only a learner needs, as a package or a module.
LEARNER = {"engine", "estimate", "inference", "learners", "results", "solve", "worker"}
MOST_MODULES = 80
MOST_OF_GATEWAY = 89
HEAVY = {"numba", "llvmlite", "scipy", "river", "pandas", "matplotlib"}

GATEWAY = """
import json, sys
import murk.gateway.server
from murk import Task
from murk.gateway.admission import Admission
from murk.stream import open_log

document, now, values = json.load(open("offered.json"))
task = Task.from_document(document.encode())
with open_log("sqlite:///log.db") as log:
    log.register_task(document.encode())
    outcomes = [type(each).__name__ for each in Admission(log, task).judged([each.encode() for each in values], now)]
print(json.dumps([outcomes, sorted({name.partition(".")[0] for name in sys.modules}), sorted(sys.modules)]))
"""


# Past the 64th release, after which scores are compiled where numba is installed.
MANY = """
import json, sys
from importlib.machinery import PathFinder

if sys.argv[3] == "alone":
    class Alone(PathFinder):
        ABLE = {"murk", "numpy", "pydantic", "pydantic_core", "annotated_types", "typing_extensions"}
        ABLE |= {"typing_inspection", "msgspec", "yaml", "_yaml", *sys.stdlib_module_names}

        @classmethod
        def find_spec(cls, name, path=None, target=None):
            able = name.partition(".")[0] in cls.ABLE or name.startswith("_sysconfigdata")
            return super().find_spec(name, path, target) if able else None

    sys.meta_path = [Alone if finder is PathFinder else finder for finder in sys.meta_path]

from murk.privacy import SimulatedNoise
from murk.producers import Ledger, Producer
from murk import Task
from murk.stream import open_log

task = Task.parse(sys.argv[1]).with_simulated(True)
with open_log("sqlite:///log.db") as log, Ledger("ledger.db") as ledger:
    log.register_task(task.document())
    producer = Producer(task, log, ledger, noise=SimulatedNoise(1))
    for age in range(70):
        producer.release({"age": 20 + age % 20, "worked": sys.argv[2]}, person=str(age))
    values = [json.loads(message.value) for message in log.read(0, 0, 100)]
print(json.dumps([[value["payload"] for value in values], "numba" in sys.modules]))
"""


def text_of(name):
    text = TASK + BLOCKS[name]
    if name == "moments":
        text = text.replace('kind: binary, positive: "yes"', "kind: real, low: 0, high: 1")
    return text.replace("features: [{name: age, low: 20, high: 40}]", "features: []") if name == "shares" else text


def run(script, name, folder, *more):
    folder.mkdir(exist_ok=True)
    arguments = [sys.executable, "-c", script, text_of(name), "0.5" if name == "moments" else "yes", *more]
    return json.loads(subprocess.run(arguments, cwd=folder, capture_output=True, text=True, check=True).stdout)


@pytest.mark.parametrize("name", BLOCKS)
def test_four_packages_are_enough_and_release_the_same(name, tmp_path):
    alone, compiled = run(MANY, name, tmp_path / "alone", "alone")
    assert len(alone) == 70
    assert not compiled
    # One protocol's twin: with all packages, seeded releases are the same to the bit.
    if name in ("scores", "outer products"):
        assert run(MANY, name, tmp_path / "all", "all")[0] == alone


def test_a_policy_allows_all_kinds_of_mechanisms():
    further = (CompositeMechanism, RandomizedResponse, SubsetSelection, WindowSelection)
    central = (GaussMixMechanism, GramMechanism, NewtonMechanism)
    assert Policy().mechanisms == (*KINDS, *(each.kind for each in (*further, *central)))


@pytest.mark.parametrize("name", BLOCKS)
def test_one_release_loads_no_compiler_and_no_learning_library(name, tmp_path):
    outcome, packages, modules = run(RELEASE, name, tmp_path)
    assert outcome == "released"
    assert "murk.producers.producer" in modules
    assert not HEAVY & set(packages)
    ours = [name for name in modules if name.startswith("murk.")]
    assert not [name for name in ours if LEARNER & set(name.split("."))]
    assert len(ours) <= MOST_MODULES


@pytest.mark.parametrize("name", [*PEOPLE, *ORGANISATIONS])
def test_a_gateway_loads_no_compiler_and_no_learner(name, tmp_path):
    """After it has admitted and refused releases of a protocol, at several levels."""
    task = task_of(name)
    values = [value.decode() for value in offered(task, name, 60)]
    (tmp_path / "offered.json").write_text(json.dumps([task.document().decode(), int(time.time()), values]))
    outcomes, packages, modules = json.loads(
        subprocess.run([sys.executable, "-c", GATEWAY], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    )
    assert 5 < outcomes.count("str") < len(values) - 5
    # The noise of mixtures is calibrated with scipy.
    assert not (HEAVY - {"scipy"} if task.release_kind == "sketch" else HEAVY) & set(packages)
    ours = [name for name in modules if name.startswith("murk.")]
    assert not [name for name in ours if LEARNER & set(name.split("."))]
    assert not [name for name in ours if name.startswith(("murk.producers", "murk.monitoring.snapshot"))]
    assert len(ours) <= (MOST_MODULES if name == "scores" else MOST_OF_GATEWAY)
