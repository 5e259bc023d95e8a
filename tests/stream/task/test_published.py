"""`as_published: true`: the settings of each paper, written out, and what contradicts them."""

import json
import re

import pytest

from murk.errors import UserError
from murk.task.task import Task

TEXT = """\
name: published
features: [{name: a, low: -1, high: 1}, {name: b, low: -1, high: 1}]
privacy: {guarantee: {approx: {epsilon: 4.0, delta: 1.0e-5}}}
"""
TARGETS = {
    "binary": "target: {name: y, kind: binary, positive: 'yes', negative: 'no'}\n",
    "classes": "target: {name: y, kind: classes, classes: [u, v, w]}\n",
    "real": "target: {name: y, kind: real, low: -2, high: 2}\n",
}
MALLOWS = "weights: mallows, step: {eta: 0.2, alpha: 0.5}, weighting: uniform, radius: unbounded"
SGD = "step: {eta: 1.0e-4, alpha: 0}, averaging: null, weighting: uniform"
IWP = "release: separate, regularization: 5, batch: 128, newton: false"
GLM = "release: separate, covariance: pooled, repair: false, intercept: false, outliers: zero"
MIXING = "method: linear-mixing, analysis: published, debiased: false"
PUBLIC = "public: {set_aside: 100}\n"
GAUSSIAN = "privacy: {guarantee: {approx: {epsilon: 4.0, delta: 1.0e-5}}, mechanism: gaussian}\n"
PURE = "pure: {epsilon: 1.0}"
CLASSIC = "privacy: {guarantee: {approx: {epsilon: 4.0, delta: 1.0e-5}}, calibration: classic}\n"


def text(target: str, protocol: str, *lines: str) -> str:
    return "\n".join([TEXT + TARGETS[target] + f"protocol: {protocol}", *lines])


@pytest.mark.parametrize(
    ("target", "protocol", "more", "written"),
    [
        ("binary", "gradients", "", f"objective: logistic\nlearner: {{{MALLOWS}}}\n{GAUSSIAN}"),
        ("classes", "gradients", "", f"learner: {{{MALLOWS}, coordinates: classes}}\n{GAUSSIAN}"),
        ("real", "gradients", "", f"learner: {{{MALLOWS}, huber_c: 1.345, scale_multiplier: 1}}\n{GAUSSIAN}"),
        ("binary", "examples", "", f"examples: {{{IWP}, loss: exponential}}\nlearner: {{{SGD}}}"),
        ("real", "examples", "", f"examples: {{{IWP}, loss: squared}}\nlearner: {{{SGD}}}"),
        ("binary", "moments", PUBLIC, f"moments: {{{GLM}}}\n{CLASSIC}"),
        ("binary", "summaries", "", f"summaries: {{{MIXING}, range: 3}}\nlearner: {{weighting: uniform}}"),
        ("real", "summaries", "", f"summaries: {{{MIXING}}}\nlearner: {{weighting: uniform}}"),
    ],
)
def test_the_switch_is_short_for_the_settings(target: str, protocol: str, more: str, written: str) -> None:
    switched = Task.parse(text(target, protocol, "as_published: true", more))
    long = text(target, protocol, more, written)
    if "privacy:" in written:
        long = long.replace(TEXT.splitlines()[-1] + "\n", "", 1)
    assert switched == Task.parse(long)
    assert switched != Task.parse(text(target, protocol, more))
    assert "as_published" not in json.loads(switched.document())
    assert Task.from_document(switched.document()) == switched


def test_the_switch_stands_in_files_only() -> None:
    content = json.loads(Task.parse(text("binary", "gradients")).document())
    with pytest.raises(UserError, match="as_published: is expanded only when a task file is parsed"):
        Task.from_document(json.dumps(content | {"as_published": True}))


def test_a_pure_guarantee_has_laplace_noise() -> None:
    pure = text("binary", "gradients", "as_published: true").replace("approx: {epsilon: 4.0, delta: 1.0e-5}", PURE)
    assert Task.parse(pure).privacy.mechanism == "laplace"


@pytest.mark.parametrize(
    ("target", "protocol", "line", "key", "kept"),
    [
        ("binary", "gradients", "learner: {step: {eta: 0.5}, averaging: null}", "step", {"eta": 0.5, "alpha": 0.5}),
        ("real", "gradients", "learner: {huber_c: 2.0}", "huber_c", 2.0),
        ("binary", "examples", "learner: {step: {eta: 0.01}}", "step", {"eta": 0.01, "alpha": 0.0}),
        ("binary", "examples", "examples: {loss: log, batch: 16, regularization: 0.5}", "batch", 16),
        ("binary", "moments", PUBLIC + "moments: {radius: 0.9}", "radius", 0.9),
        ("binary", "summaries", "summaries: {range: 6, rows: 64, method: mixing}", "range", 6.0),
    ],
)
def test_what_a_paper_leaves_open_is_kept(target: str, protocol: str, line: str, key: str, kept: object) -> None:
    found = json.loads(Task.parse(text(target, protocol, "as_published: true", line)).document())
    assert kept in (found["learner"].get(key), (found.get(protocol) or {}).get(key))


@pytest.mark.parametrize(
    ("target", "protocol", "line", "message"),
    [
        ("binary", "gradients", "learner: {weights: norm}", "learner.weights: 'norm' contradicts as_published: true"),
        ("binary", "gradients", "learner: {step: noise-aware}", "learner.step: 'noise-aware' contradicts as_published"),
        ("binary", "gradients", "objective: balanced", "objective: 'balanced' contradicts as_published: true"),
        ("real", "gradients", "objective: squared", "objective: 'squared' contradicts as_published"),
        ("classes", "gradients", "learner: {coordinates: contrasts}", "coordinates: 'contrasts' contradicts as_publ"),
        ("binary", "examples", "examples: {newton: true}", "examples.newton: True contradicts as_published: true"),
        ("binary", "examples", "learner: {averaging: polyak}", "learner.averaging: 'polyak' contradicts as_published"),
        ("binary", "examples", "examples: {loss: probit}", "examples.loss: 'probit' contradicts as_published: true"),
        ("binary", "moments", "moments: {intercept: true}", "moments.intercept: True contradicts as_published: true"),
        ("binary", "gradients", PUBLIC.strip(), "contradicts as_published: true, with which it is null"),
        ("binary", "moments", "moments: {solver: score}", "moments.solver: 'score' contradicts as_published"),
        (
            "binary",
            "summaries",
            "summaries: {neighbours: replace-one}",
            "neighbours: 'replace-one' contradicts as_published",
        ),
        (
            "binary",
            "summaries",
            "summaries: {method: moments}",
            "summaries.method: 'moments' contradicts as_published: true",
        ),
        (
            "real",
            "summaries",
            "learner: {weighting: inverse-variance}",
            "learner.weighting: 'inverse-variance' contradict",
        ),
        (
            "binary",
            "scores",
            "people: 100",
            "as_published: has no effect with protocol: scores, which is not from a paper",
        ),
        ("binary", "gradients", "learner: 5", "learner: 5 is not a mapping"),
        ("binary", "gradient", "people: 100", "protocol: 'gradient' is not a protocol"),
    ],
)
def test_contradictions_name_key_value_and_switch(target: str, protocol: str, line: str, message: str) -> None:
    content = text(target, protocol, "as_published: true", line)
    place = 6 if message.startswith("as_published") else 5 if message.startswith("protocol") else 7
    with pytest.raises(UserError, match=f"^task, line {place}: .*{re.escape(message)}"):
        Task.parse(content)


def test_the_switch_is_true_or_false() -> None:
    assert Task.parse(text("binary", "gradients", "as_published: false")) == Task.parse(text("binary", "gradients"))
    with pytest.raises(UserError, match="as_published: 'paper' is neither true nor false"):
        Task.parse(text("binary", "gradients", "as_published: paper"))


@pytest.mark.parametrize(
    ("target", "protocol", "line", "message"),
    [
        ("binary", "gradients", "learner: {radius: unbounded}", "radius: unbounded leaves noise-aware steps without"),
        ("binary", "examples", "learner: {radius: unbounded, step: {eta: 1}}", "unbounded has no effect with protocol"),
        ("binary", "gradients", "learner: {coordinates: classes}", "coordinates: has no effect with objective"),
        ("binary", "gradients", "learner: {scale_multiplier: 1}", "scale_multiplier: has no effect with objective"),
        (
            "binary",
            "moments",
            "moments: {intercept: false, release: observed}",
            "false leaves no number that says who has",
        ),
        ("binary", "moments", PUBLIC + "moments: {radius: 1, design: gaussian}", "radius: 1 has no effect with design"),
        ("binary", "moments", "moments: {release: directions}", "moments.release: 'directions' is not"),
        ("classes", "moments", "moments: {release: joint}", "moments learns binary or real targets, not 'classes'"),
        (
            "binary",
            "summaries",
            "summaries: {debiased: false, method: moments}",
            "debiased: has no effect with method: mom",
        ),
    ],
)
def test_single_keys_where_they_have_no_effect(target: str, protocol: str, line: str, message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        Task.parse(text(target, protocol, line))


@pytest.mark.parametrize(
    ("protocol", "privacy", "line", "message"),
    [
        ("scores", "approx: {epsilon: 1.0, delta: 1.0e-5}", "", "classic has no effect on this protocol's releases"),
        ("summaries", "approx: {epsilon: 1.0, delta: 1.0e-5}", "", "classic has no effect on this protocol's releases"),
        ("examples", "approx: {epsilon: 1.0, delta: 1.0e-5}", "", "classic has no effect on this protocol's releases"),
        ("gradients", "gdp: {mu: 1.0}", "", "the level default, which is not approx"),
        ("gradients", "approx: {epsilon: 1.0, delta: 1.0e-5}", ", mechanism: laplace", "on mechanism: laplace"),
    ],
)
def test_classic_noise_is_gaussian_noise_of_approx(protocol: str, privacy: str, line: str, message: str) -> None:
    content = text("binary", protocol).replace("approx: {epsilon: 4.0, delta: 1.0e-5}}", privacy + "}" + line)
    Task.parse(content)
    with pytest.raises(UserError, match=f"privacy.calibration: classic has no effect .*|{re.escape(message)}") as error:
        Task.parse(content.replace(privacy + "}", privacy + "}, calibration: classic"))
    assert message in str(error.value)
