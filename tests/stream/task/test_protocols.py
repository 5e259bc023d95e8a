"""A task's protocol: what follows from it, and what does not go with it."""

import json
import re
from typing import Any

import pytest
from pydantic import TypeAdapter

from murk.errors import UserError
from murk.stream.wire.codec import longest_release
from murk.stream.wire.releases import KINDS
from murk.task.protocols.registry import BLOCKS, PROTOCOLS, ProtocolName
from murk.task.protocols.summaries import GRAM, NEWTON
from murk.task.task import Task, check_task_change
from tests.stream.tasks import ANY_PROTOCOL, GUARANTEE, HUBER, LOGISTIC, SOFTMAX

APPROX = "{approx: {epsilon: 1.0, delta: 1e-6}}"
WRITTEN = {
    "pure": "{pure: {epsilon: 1.0}}",
    "approx": APPROX,
    "gdp": "{gdp: {mu: 1.0}}",
    "zcdp": "{zcdp: {rho: 0.5}}",
}


def task(protocol: str, text: str = LOGISTIC, *lines: str, guarantee: str = APPROX) -> Task:
    return Task.parse(
        "\n".join(
            [
                text.replace("protocol: gradients\n", "").replace("{gdp: {mu: 1.0}}", guarantee),
                f"protocol: {protocol}",
                *lines,
            ]
        )
    )


def many(coded: int) -> str:
    """A task of so many coded features."""
    names = ", ".join(f"{{name: x{number}, low: 0, high: 1}}" for number in range(coded - 2))
    three = "{name: origin, categories: [EWR, JFK, LGA]}"
    return ANY_PROTOCOL[: ANY_PROTOCOL.index("features")] + (
        f"features: [{names}, {three}]\ntarget: {{name: y, kind: binary, positive: yes}}\nprivacy: {GUARANTEE}\n"
    )


def test_every_kind_of_release_is_of_a_protocol() -> None:
    assert {*(one.releases for one in PROTOCOLS.values()), GRAM, NEWTON} == set(KINDS)
    assert TypeAdapter(ProtocolName).json_schema()["enum"] == list(PROTOCOLS)


@pytest.mark.parametrize(
    ("protocol", "text", "found"),
    [
        ("scores", LOGISTIC, {"exponent": None}),
        ("scores", HUBER, {"exponent": None}),
        ("examples", LOGISTIC, {"loss": "quadratic", "release": "outer"}),
        ("examples", HUBER, {"loss": "squared", "release": "outer"}),
        ("moments", LOGISTIC, {"loss": "logistic", "link": None, "release": "observed"}),
        ("moments", HUBER, {"loss": None, "link": "identity", "release": "observed"}),
        ("summaries", LOGISTIC, {"method": "moments", "window": None}),
    ],
)
def test_a_protocol_has_good_defaults(protocol: str, text: str, found: dict[str, Any]) -> None:
    resolved = task(protocol, text)
    assert resolved.objective is None
    block = getattr(resolved, protocol)
    assert {name: getattr(block, name) for name in found} == found
    for other in BLOCKS:
        assert (getattr(resolved, other) is not None) is (other == protocol)
    assert Task.from_document(resolved.document()) == resolved
    assert resolved.hash != Task.parse(text).hash


@pytest.mark.parametrize("text", [LOGISTIC, HUBER])
@pytest.mark.parametrize("lines", [(), ("public: null",)])
def test_nobodys_features_are_public_unless_the_task_says_so(text: str, lines: tuple[str, ...]) -> None:
    for protocol in PROTOCOLS.keys() - {"univariate"}:
        assert task(protocol, text, *lines).public is None
    named = task("moments", text, "public: {set_aside: 7}").public
    assert named is not None
    assert named.set_aside == 7


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [(LOGISTIC, "solver", "score"), (LOGISTIC, "design", "gaussian"), (HUBER, "covariance", "pooled")],
)
def test_what_needs_public_features_and_has_none_is_refused_with_the_choices(text: str, key: str, value: str) -> None:
    block = f"moments: {{{key}: {value}}}"
    with pytest.raises(UserError, match=f"moments.{key}: {value} needs public covariates") as found:
        task("moments", text, block)
    for choice in ("public: {file: F}", "public: {set_aside: N}", "publishes the features of N", "another protocol"):
        assert choice in str(found.value)
    assert task("moments", text, block, "public: {set_aside: 7}").moments is not None


def test_least_squares_needs_no_public_features_however_it_is_solved() -> None:
    assert task("moments", HUBER, "moments: {solver: score}").public is None


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        (ANY_PROTOCOL, "scores"),
        (ANY_PROTOCOL.replace("kind: binary, positive: yes, negative: no", "kind: real, low: 0, high: 52"), "scores"),
        (
            ANY_PROTOCOL.replace("kind: binary, positive: yes, negative: no", "kind: classes, classes: [a, b]"),
            "scores",
        ),
        (
            ANY_PROTOCOL.replace("kind: binary, positive: yes, negative: no", "kind: classes, classes: [a, b]")
            + "public: {set_aside: 10}\n",
            "scores",
        ),
        (ANY_PROTOCOL + "public: {set_aside: 10}\nlog: {partitions: 3}\n", "scores"),
        (ANY_PROTOCOL + "objective: logistic\n", "gradients"),
        (ANY_PROTOCOL + "learner: {radius: 2}\n", "gradients"),
        (ANY_PROTOCOL + "max_staleness: {releases: 200}\n", "gradients"),
        (many(63), "scores"),
        (many(64), "gradients"),
    ],
)
def test_a_file_that_names_no_protocol_gets_one_by_rule(text: str, chosen: str) -> None:
    found = Task.parse(text)
    assert found == Task.parse(f"{text}protocol: {chosen}\n")
    assert found.protocol == chosen


def test_partitions_of_scores_share_models_unless_a_file_says_otherwise() -> None:
    for more, models in (
        ("", "per-partition"), ("log: {partitions: 1}\n", "per-partition"), ("log: {partitions: 2}\n", "shared"),
        ("log: {partitions: 2}\nscores: {exponent: 0.5}\n", "shared"),
        ("log: {partitions: 2}\nscores: {models: per-partition}\n", "per-partition"),
        ("scores: {models: shared}\n", "shared"),
    ):  # fmt: skip
        found = Task.parse(ANY_PROTOCOL + more).scores
        assert found is not None
        assert found.models == models
    with pytest.raises(UserError, match=r"scores\.models"):
        Task.parse(ANY_PROTOCOL + "scores: {models: mine}\n")


def test_another_number_of_partitions_is_what_is_wrong() -> None:
    """And not what follows from it."""
    of = {count: Task.parse(f"{ANY_PROTOCOL}log: {{partitions: {count}}}\n") for count in (1, 2, 3)}
    for was, wanted, why in ((1, 2, "models of its own"), (2, 1, "would be lost"), (3, 2, "would be lost")):
        with pytest.raises(UserError, match=f"has {was} partitions .* asks for {wanted}: .*{why}"):
            check_task_change("here", of[was].document(), of[wanted].document())
    # Partitions that share models can be added.
    assert check_task_change("here", of[2].document(), of[3].document()) == of[3]


@pytest.mark.parametrize("protocol", sorted(PROTOCOLS.keys() - {"univariate"}))
@pytest.mark.parametrize("guarantee", WRITTEN)
def test_a_guarantee_that_a_protocol_cannot_give_is_refused_with_those_it_can(protocol: str, guarantee: str) -> None:
    mixing = ["summaries: {method: mixing}"] if protocol == "summaries" else []
    # Outer products, the default of examples, have every guarantee.
    named = ["examples: {release: directions}"] if protocol == "examples" else mixing
    _check_guarantee(protocol, guarantee, PROTOCOLS[protocol].offer.guarantees, named)


@pytest.mark.parametrize("guarantee", WRITTEN)
def test_outer_products_have_every_guarantee_and_the_best_mechanism(guarantee: str) -> None:
    assert PROTOCOLS["examples"].offer_of("outer").guarantees == tuple(WRITTEN)
    found = task("examples", guarantee=WRITTEN[guarantee])
    assert found.examples is not None
    assert found.examples.release == "outer"
    assert found.privacy.mechanism == ("best" if guarantee in ("pure", "approx") else None)
    named = task("examples", LOGISTIC, "examples: {release: outer}", guarantee=WRITTEN[guarantee])
    assert named == found
    with pytest.raises(UserError, match="'l2-ball' is not of this protocol; use gaussian"):
        task("examples", LOGISTIC, "examples: {loss: probit}", guarantee=f"{APPROX}, mechanism: l2-ball")


@pytest.mark.parametrize(
    ("privacy", "more", "chosen"),
    [
        ("guarantee: {gdp: {mu: 3.0}}", "", "outer"),
        ("guarantee: {gdp: {mu: 3.01}}", "", "directions"),
        ("guarantee: {gdp: {mu: 1}}", "", "outer"),
        ("guarantee: {zcdp: {rho: 4.5}}", "", "outer"),
        ("guarantee: {zcdp: {rho: 4.6}}", "", "directions"),
        # The default level decides, as most people are at it.
        ("guarantee: {gdp: {mu: 4.0}}, levels: {cautious: {gdp: {mu: 1.0}}}", "", "directions"),
        ("guarantee: {gdp: {mu: 1.0}}, levels: {open: {gdp: {mu: 4.0}}}", "", "outer"),
        # Directions of labels take no product of noise with noise where there are public rows enough.
        ("guarantee: {gdp: {mu: 1.0}}", "public: {set_aside: 60}", "directions"),
        ("guarantee: {gdp: {mu: 1.0}}", "public: {set_aside: 59}", "outer"),
        ("guarantee: {gdp: {mu: 1.0}}", "public: {file: rows.csv}", "directions"),
        ("guarantee: {gdp: {mu: 2.5}}", "public: {set_aside: 60}", "outer"),
        ("guarantee: {gdp: {mu: 2.5}}, levels: {cautious: {gdp: {mu: 1.0}}}", "public: {set_aside: 60}", "directions"),
    ],
)
def test_examples_release_what_tells_most_at_their_noise(privacy: str, more: str, chosen: str) -> None:
    features = "features: [{name: a, low: 0, high: 1}, {name: b, low: 0, high: 1}]"
    text = f"name: n\n{features}\nprotocol: examples\nprivacy: {{{privacy}}}\n{more}\n"
    label = Task.parse(text + "target: {name: y, kind: binary, positive: 1}\n")
    assert label.examples is not None
    assert label.examples.release == chosen
    real = Task.parse(text + "target: {name: y, kind: real, low: 0, high: 1}\n")
    assert real.examples is not None
    # Directions of real targets do without public rows, so that these decide nothing.
    assert real.examples.release == ("outer" if "public" in more else chosen)


def test_with_so_many_features_gaussian_examples_are_directions() -> None:
    for d, chosen in ((64, "outer"), (65, "directions")):
        found = Task.parse(many(d) + "protocol: examples\n")
        assert found.examples is not None
        assert found.examples.release == chosen


@pytest.mark.parametrize("guarantee", WRITTEN)
def test_second_moments_have_every_guarantee_of_gaussian_noise(guarantee: str) -> None:
    for kind, method in ((GRAM, "moments"), (NEWTON, "newton")):
        able = PROTOCOLS["summaries"].offer_of(kind).guarantees
        _check_guarantee("summaries", guarantee, able, [f"summaries: {{method: {method}}}"])


def _check_guarantee(protocol: str, guarantee: str, able: tuple[str, ...], lines: list[str]) -> None:
    if guarantee in able:
        assert task(protocol, LOGISTIC, *lines, guarantee=WRITTEN[guarantee]).privacy.guarantee.kind == guarantee
        return
    with pytest.raises(UserError, match=f"cannot give {guarantee}: .*it can give {', '.join(able)}$"):
        task(protocol, LOGISTIC, *lines, guarantee=WRITTEN[guarantee])


@pytest.mark.parametrize(
    ("block", "method"),
    [
        ("", "moments"),
        ("summaries: {window: 100, neighbours: replace-one}", "moments"),
        ("summaries: {method: newton, window: 100}", "newton"),
        ("summaries: {rows: 100}", "linear-mixing"),
        ("summaries: {analysis: published}", "linear-mixing"),
        ("summaries: {method: mixing}", "mixing"),
        ("summaries: {rows: 100, method: mixing}", "mixing"),
    ],
)
def test_what_organisations_release_follows_from_what_is_said(block: str, method: str) -> None:
    found = task("summaries", LOGISTIC, block)
    assert found.summaries is not None
    assert found.summaries.method == method
    assert found.release_kind == {"moments": "gram", "newton": "newton"}.get(method, "sketch")
    # The document says which, whatever a later version takes where nothing is said.
    assert json.loads(found.document())["summaries"]["method"] == method


@pytest.mark.parametrize(
    ("protocol", "text", "lines", "message"),
    [
        ("summary", LOGISTIC, [], "'summary' is not a protocol; did you mean 'summaries'?"),
        ("examples", LOGISTIC, ["objective: logistic"], "objective: 'logistic' has no effect with protocol: examples"),
        ("gradients", LOGISTIC, ["examples: {batch: 2}"], "examples: has no effect with protocol: gradients"),
        ("moments", LOGISTIC, ["summaries: {rows: 9}"], "summaries: has no effect with protocol: moments"),
        ("scores", SOFTMAX, ["scores: {effects: logistic}"], "log odds of several classes need public covariates"),
        ("scores", LOGISTIC, ["objective: logistic"], "objective: 'logistic' has no effect with protocol: scores"),
        ("scores", LOGISTIC, ["scores: {exponent: 1.5}"], "scores.exponent: 1.5 is too large"),
        ("scores", LOGISTIC, ["scores: {exponent: -0.1}"], "scores.exponent: -0.1 is too small"),
        ("scores", LOGISTIC, ["learner: {radius: 3}"], "learner.radius: has no effect with protocol: scores"),
        ("scores", LOGISTIC, ["learner: {averaging: null}"], "learner.averaging: has no effect with protocol: scores"),
        ("scores", LOGISTIC, ["max_staleness: {releases: 10}"], "whose releases are learned however old they are"),
        ("scores", LOGISTIC, ["forget: 23999"], "forget: 23999 is too small; it must be at least 24000"),
        (
            "gradients",
            LOGISTIC,
            ["forget: 24000"],
            "forget: 24,000 has no effect with protocol: gradients, whose learner",
        ),
        ("examples", LOGISTIC, ["forget: 24000"], "whose learner keeps one sum of all releases; remove it and begin a"),
        ("moments", LOGISTIC, ["forget: 24000"], "new task for each period, or say protocol: scores"),
        ("summaries", LOGISTIC, ["forget: 24000"], "forget: 24,000 has no effect with protocol: summaries"),
        ("gradients", LOGISTIC, ["scores: {exponent: 1}"], "scores: has no effect with protocol: gradients"),
        (
            "summaries",
            SOFTMAX,
            [],
            "learns binary or real targets, not 'classes'; use scores, gradients or examples",
        ),
        ("examples", SOFTMAX, ["examples: {release: outer}"], "examples.release: outer codes the target as one number"),
        ("examples", LOGISTIC, ["examples: {loss: squared}"], "examples.loss: 'squared' is not a loss of a binary"),
        ("examples", HUBER, ["examples: {loss: probit}"], "examples.loss: 'probit' is not a loss of a real target"),
        (
            "examples",
            LOGISTIC,
            ["examples: {truncation: 2}"],
            "examples.truncation: has no effect with loss: quadratic",
        ),
        ("examples", LOGISTIC, ["examples: {split: 0.3}"], "examples.split: has no effect with release: outer"),
        ("examples", LOGISTIC, ["learner: {weights: mallows}"], "learner.weights: has no effect with protocol"),
        ("examples", LOGISTIC, ["examples: {K: 2}"], "examples.K: unknown key"),
        (
            "examples",
            LOGISTIC,
            ["examples: {release: directions, loss: probit}"],
            "examples.release: directions is for the quadratic and squared losses only, not probit; say release: joint",
        ),
        ("examples", LOGISTIC, ["examples: {intercept: 0}"], "examples.intercept"),
        ("moments", LOGISTIC, ["moments: {link: cubic}"], "moments.link: has no effect on a binary target"),
        ("moments", HUBER, ["moments: {loss: poisson}"], "moments.loss: has no effect on a real target"),
        ("moments", LOGISTIC, ["learner: {step: {eta: 1}}"], "learner.step: has no effect with protocol: moments"),
        ("moments", LOGISTIC, ["max_staleness: {releases: 10}"], "max_staleness: has no effect with protocol: moments"),
        ("summaries", HUBER, ["summaries: {range: 3}"], "summaries.range: has no effect on a real target"),
        ("summaries", LOGISTIC, ["summaries: {target_bound: 0.5}"], "summaries.target_bound: labels are -1 and +1"),
        ("summaries", LOGISTIC, ["summaries: {feature_bound: 0.5}"], "summaries.feature_bound: 0.5 must exceed 1"),
        ("summaries", LOGISTIC, ["summaries: {rows: 1}"], "summaries.rows: 1 is too small"),
        (
            "summaries",
            LOGISTIC,
            ["summaries: {method: moments, rows: 9}"],
            "summaries.rows: has no effect with method: moments",
        ),
        (
            "summaries",
            LOGISTIC,
            ["summaries: {method: moments, analysis: joint}"],
            "summaries.analysis: has no effect with method: moments",
        ),
        (
            "summaries",
            LOGISTIC,
            ["summaries: {method: newton, rows: 9}"],
            "summaries.rows: has no effect with method: newton",
        ),
        (
            "summaries",
            LOGISTIC,
            ["summaries: {method: newton, range: 3}"],
            "summaries.range: has no effect with method: newton",
        ),
        ("summaries", LOGISTIC, ["summaries: {first: 9}"], "summaries.first: has no effect with method: moments"),
        ("summaries", HUBER, ["summaries: {method: newton}"], "summaries.method: newton is for the logistic loss"),
        (
            "summaries",
            LOGISTIC,
            ["summaries: {method: newton, window: 50, first: 50}"],
            "summaries.first: 50 records leave none for the step in a window of 50",
        ),
        ("summaries", LOGISTIC, ["summaries: {range: 0}"], "summaries.range: 0 is too small"),
    ],
)
def test_what_does_not_go_together_is_refused(protocol: str, text: str, lines: list[str], message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        task(protocol, text, *lines)


def test_a_radius_may_stand_in_every_task_but_of_scores() -> None:
    """A task is to run with another protocol when nothing but its protocol is changed."""
    for protocol in set(PROTOCOLS) - {"scores", "univariate"}:
        assert task(protocol, LOGISTIC, "learner: {radius: 1.5}").learner.radius == 1.5


@pytest.mark.parametrize(
    ("protocol", "mechanism", "message"),
    [
        ("summaries", "laplace", "'laplace' is not of this protocol; use gaussian"),
    ],
)
def test_a_mechanism_of_another_protocol_is_refused(protocol: str, mechanism: str, message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        task(protocol, guarantee=f"{APPROX}, mechanism: {mechanism}")


def test_mixing_has_a_mechanism_of_its_own() -> None:
    with pytest.raises(UserError, match="has no effect with protocol: summaries"):
        task("summaries", LOGISTIC, "summaries: {method: mixing}", guarantee=f"{APPROX}, mechanism: gaussian")


def test_second_moments_are_capped_as_gaussian_noise_is() -> None:
    for cap in ("{gdp: {mu: 3.0}}", "{approx: {epsilon: 2.0, delta: 2e-6}}"):
        assert task("summaries", guarantee=f"{APPROX}, per_person: {cap}").privacy.per_person is not None
    with pytest.raises(UserError, match="allows no release"):
        task("summaries", guarantee=f"{APPROX}, per_person: {{gdp: {{mu: 0.1}}}}")


def test_a_mixture_is_capped_in_its_own_currency() -> None:
    mixing = "summaries: {method: mixing}"
    twice = task(
        "summaries", LOGISTIC, mixing, guarantee=f"{APPROX}, per_person: {{approx: {{epsilon: 2.0, delta: 2e-6}}}}"
    )
    assert twice.privacy.per_person is not None
    for cap, message in (
        ("{gdp: {mu: 3.0}}", "state the cap in the same kind as the guarantee"),
        ("{approx: {epsilon: 0.5, delta: 2e-6}}", "allows no release"),
    ):
        with pytest.raises(UserError, match=message):
            task("summaries", LOGISTIC, mixing, guarantee=f"{APPROX}, per_person: {cap}")


def test_how_long_a_release_can_be() -> None:
    sketch = KINDS["sketch"](
        id="f" * 32, task="f" * 64, level="a" * 32, partition=2**62 - 1, rows=2**31 - 1, records=2**62 - 1,
        spread=1.2345678901234567e-300, time=2**53 - 1, expires=2**53 - 1, simulated=False,
        payload=KINDS["sketch"].packed([2**62 - 1] * 50),
    )  # fmt: skip
    assert len(sketch.model_dump_json(by_alias=True)) <= longest_release("sketch", 50)


def test_average_effects_of_a_binary_target_need_no_curvature_unless_a_file_says_otherwise() -> None:
    public = "public: {set_aside: 100}\n"
    for more, effects in (
        ("", "linear"), (public, "logistic"), ("scores: {effects: logistic}\n", "logistic"),
        (f"{public}scores: {{effects: linear}}\n", "linear"), ("scores: {models: per-partition}\n", "linear"),
    ):  # fmt: skip
        found = Task.parse(ANY_PROTOCOL + more).scores
        assert found is not None
        assert found.effects == effects
