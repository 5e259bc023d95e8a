"""Tasks of more features than a log takes: what they are told to do instead is accepted."""

import re

import numpy as np
import pytest
import yaml

from murk import Task
from murk.errors import UserError
from murk.protocols.device import device_for

LOCAL, SKETCH = "gdp: {mu: 4.0}", "approx: {epsilon: 1.0, delta: 1.0e-6}"


BINARY, CLASSES = "{name: y, kind: binary, positive: 'yes'}", "{name: y, kind: classes, classes: [a, b, c]}"


def checked(features, protocol, more="", guarantee=LOCAL, target=BINARY):
    """Set a task of so many coded features up, the constant among them."""
    rest = yaml.safe_load(
        f"name: many\ntarget: {target}\nprivacy: {{guarantee: {{{guarantee}}}}}\nprotocol: {protocol}\n{more}"
    )
    # A file of thousands of features takes seconds to read.
    columns = [{"name": f"x{number}", "low": -1, "high": 1} for number in range(features - 1)]
    task = Task.model_validate({**rest, "features": columns})
    if "set_aside" in more:
        points = np.random.default_rng(1).uniform(-1, 1, (50, features))
        points[:, -1] = 1.0
        task = task.with_public(points, np.ones(50, dtype=np.int64))
    device_for(task).check_state()


def refusal(*given):
    with pytest.raises(UserError) as refused:
        checked(*given)
    return str(refused.value)


@pytest.mark.parametrize(
    ("features", "protocol", "more", "remedies"),
    [
        (300, "scores", "", [("gradients", "")]),
        (6_000, "scores", "", [("examples", ""), ("gradients", "max_staleness: {releases: 20}\n")]),
        (300, "moments", "", [("examples", "")]),
        (300, "examples", "examples: {release: outer}\n", [("examples", "examples: {release: joint}\n")]),
        (2_000, "examples", "examples: {release: outer}\n", [("examples", "examples: {release: joint}\n")]),
        (8_000, "gradients", "", [("gradients", "max_staleness: {releases: 20}\n")]),
    ],
)
def test_what_a_task_is_told_to_do_instead_is_accepted(features, protocol, more, remedies):
    said = refusal(features, protocol, more)
    for instead, setting in remedies:
        assert instead in said.partition("Give the task fewer")[2] or instead == protocol
        assert setting.strip() in said
        checked(features, instead, setting)


def test_gradients_of_as_many_features_as_scores_send_there_are_accepted():
    assert refusal(5_000, "scores").endswith("protocol: gradients")
    checked(5_000, "gradients")


@pytest.mark.parametrize(("features", "more"), [(2_000, ""), (4_000, "max_staleness: {releases: 20}\n")])
def test_so_are_those_of_classes(features, more):
    # Scores of classes are of public rows.
    said = refusal(features, "scores", "public: {set_aside: 50}\n", LOCAL, CLASSES)
    assert said.endswith(f"protocol: gradients{' with ' * bool(more)}{more.strip()}")
    checked(features, "gradients", more, LOCAL, CLASSES)


@pytest.mark.parametrize("method", ["moments", "newton"])
def test_a_sketch_is_told_the_most_features_that_fit(method):
    block = f"summaries: {{method: {method}}}\n"
    # Of so many columns no mechanism is made; that is not what the task's author is told.
    for features in (500, 5_000):
        said = refusal(features, "summaries", block, SKETCH)
        assert said.startswith(f"{features:,} coded features: ")
        most = int(re.search(r"at most (\d+) coded features fit", said)[1])
    checked(most, "summaries", block, SKETCH)
    assert f"at most {most} coded" in refusal(most + 1, "summaries", block, SKETCH)
