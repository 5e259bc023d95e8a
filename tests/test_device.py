"""What a person's device loads for one release of each protocol."""

import json
import subprocess
import sys

import pytest

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
MOST_MODULES = 125
HEAVY = {"numba", "llvmlite", "scipy", "river", "pandas", "matplotlib"}


@pytest.mark.parametrize("name", BLOCKS)
def test_one_release_loads_no_compiler_and_no_learning_library(name, tmp_path):
    text = TASK + BLOCKS[name]
    if name == "moments":
        text = text.replace('kind: binary, positive: "yes"', "kind: real, low: 0, high: 1")
    if name == "shares":
        text = text.replace("features: [{name: age, low: 20, high: 40}]", "features: []")
    done = subprocess.run(
        [sys.executable, "-c", RELEASE, text, "0.5" if name == "moments" else "yes"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    outcome, packages, modules = json.loads(done.stdout)
    assert outcome == "released"
    assert "murk.producers.producer" in modules
    assert not HEAVY & set(packages)
    ours = [name for name in modules if name.startswith("murk.")]
    assert not [name for name in ours if LEARNER & set(name.split("."))]
    assert len(ours) <= MOST_MODULES
