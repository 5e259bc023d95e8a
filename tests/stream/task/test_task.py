"""Task files: what is accepted, and what it means."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from murk.errors import UserError
from murk.privacy.guarantees import GaussianDP
from murk.stream.wire.admission import lifetime_of
from murk.task.features import ClassTarget
from murk.task.fields import LONGEST, format_duration, parse_duration
from murk.task.task import Task, canonical_json
from tests.stream.tasks import GUARANTEE, HUBER, LOGISTIC, SOFTMAX


def test_only_four_keys_are_required_and_the_rest_has_defaults() -> None:
    task = Task.parse(LOGISTIC)
    assert task.protocol == "gradients"
    assert task.missing == "midpoint"
    assert task.privacy.levels == {"default": GaussianDP(1.0)}
    assert task.privacy.per_person is None
    assert task.privacy.mechanism is None
    assert task.learner.model_dump() == {
        "weights": "norm",
        "clip": None,
        "huber_c": 0.5,
        "scale": "estimate",
        "scale_floor": 0.01,
        "scale_start": 1.0,
        "scale_multiplier": 4.0,
        "coordinates": "contrasts",
        "step": "noise-aware",
        "delays": "adaptive",
        "averaging": "polyak",
        "weighting": "inverse-variance",
        "intervals": None,
        "radius": None,
    }
    assert (task.max_staleness.releases, task.max_staleness.share) == (100, 0.02)
    assert (task.granularity, task.expiry, task.log.retention) == (86_400, 7 * 86_400, 8 * 86_400)
    assert (task.duplicates, task.log.partitions, task.public, task.simulated) == (65_536, 1, None, False)


@pytest.mark.parametrize(("text", "objective"), [(LOGISTIC, "balanced"), (SOFTMAX, "softmax"), (HUBER, "huber")])
def test_objective_follows_the_kind_of_target(text: str, objective: str) -> None:
    assert Task.parse(text).objective == objective
    assert Task.parse(text + f"objective: {objective}\n") == Task.parse(text)
    for other in {"balanced", "softmax", "huber"} - {objective}:
        with pytest.raises(UserError, match=f"line 9: objective: '{other}' does not fit .* use '{objective}'"):
            Task.parse(text + f"objective: {other}\n")


def test_an_error_about_a_key_names_the_source_and_line_that_are_known() -> None:
    task = Task.parse(LOGISTIC, source="task.yaml")
    places = {
        "task.yaml, line 2: features: no": task,
        f"{task.name}: features: no": task.with_protocol("scores"),
        "the log's task: features: no": Task.from_document(task.document()),
        "features: no": Task(**task.model_dump(mode="json", by_alias=True)),
    }
    assert {text: str(each.error_at("no", "features")) for text, each in places.items()} == {
        text: text for text in places
    }


def test_settings_are_read() -> None:
    task = Task.parse(
        HUBER
        + "learner: {step: {eta: 2, alpha: 0.6}, averaging: null, scale: 0.3, weights: clip, clip: 1}\n"
        + "max_staleness: {releases: 1000, share: 0.1}\ngranularity: 12h\nexpiry: 2d\nlog: {retention: 72h}\n"
    )
    assert (task.learner.step.eta, task.learner.step.alpha) == (2.0, 0.6)  # type: ignore[union-attr]
    assert task.learner.averaging is None
    assert task.learner.scale == 0.3
    assert task.max_staleness.limit(1_000) == 1_000
    assert task.max_staleness.limit(1_000_000) == 100_000
    assert (task.granularity, task.expiry, task.log.retention) == (43_200, 172_800, 259_200)


def test_the_log_keeps_releases_for_their_expiry_and_a_day() -> None:
    """A device's clock may be a day ahead; a stated retention is taken as it is."""
    for more, days in (("", 8), ("expiry: 14d\n", 15), ("expiry: 2d\nlog: {partitions: 2}\n", 3)):
        task = Task.parse(HUBER + more)
        assert task.log.retention == days * 86_400
        assert Task.from_document(task.document()).log == task.log
    assert Task.parse(HUBER + "expiry: 2d\nlog: {retention: 30d}\n").log.retention == 30 * 86_400
    longest = Task.parse(HUBER + "expiry: 3659d\n")
    assert Task.from_document(longest.document()).log.retention == lifetime_of(longest.expiry) == LONGEST


def test_a_log_that_keeps_releases_for_too_short_is_replaced() -> None:
    """Its task can be neither read nor changed."""
    document = Task.parse(HUBER).document().replace(b'"retention":"8d"', b'"retention":"7d"')
    with pytest.raises(UserError, match=r"7d is below expiry 7d and 1d.* with this retention, use another log"):
        Task.from_document(document)


def test_categories_and_classes_are_text_as_written() -> None:
    task = Task.parse(
        LOGISTIC.replace("[no, yes]", "[no, yes, on, off, true, null, ~, 01, 1.50, 1e3, 12:30, 2020-01-01]")
    )
    assert task.features[1].categories == (  # type: ignore[union-attr]
        *("no", "yes", "on", "off", "true", "null", "~", "01", "1.50", "1e3", "12:30", "2020-01-01"),
    )
    assert task.target.positive == "yes"  # type: ignore[union-attr]
    assert Task.parse(LOGISTIC.replace("same_sex", "1980")).features[1].name == "1980"


def test_numbers_are_those_of_yaml_1_2() -> None:
    task = Task.parse(
        LOGISTIC.replace("low: 21, high: 35", "low: -1e-6, high: 010").replace(
            "gdp: {mu: 1.0}", "approx: {epsilon: 1, delta: 1e-6}"
        )
    )
    assert (task.features[0].low, task.features[0].high) == (-1e-6, 10.0)  # type: ignore[union-attr]
    assert task.privacy.guarantee.to_dict() == {"approx": {"epsilon": 1.0, "delta": 1e-6}}


def privacy(text: str) -> str:
    return LOGISTIC.replace(GUARANTEE, text)


def test_mechanism_that_cannot_give_the_guarantee_is_refused_with_those_that_can() -> None:
    with pytest.raises(UserError, match=r"cannot give privacy.guarantee: .*can: laplace, l2-ball"):
        Task.parse(privacy("{guarantee: {pure: {epsilon: 1}}, mechanism: gaussian}"))
    levels = "levels: {strict: {pure: {epsilon: 1}}}"
    with pytest.raises(UserError, match=r"privacy.mechanism: 'gaussian' cannot give privacy.levels.strict: "):
        Task.parse(privacy(f"{{guarantee: {{gdp: {{mu: 1}}}}, {levels}, mechanism: gaussian}}"))
    for kind in ("laplace", "l2-ball", "privunit", "best"):
        assert Task.parse(privacy(f"{{guarantee: {{pure: {{epsilon: 1}}}}, mechanism: {kind}}}"))


PURE, APPROX, GDP = "{pure: {epsilon: 1}}", "{approx: {epsilon: 1, delta: 1e-6}}", "{gdp: {mu: 1}}"


@pytest.mark.parametrize(
    ("block", "written"),
    [
        (f"{{guarantee: {GDP}}}", None),
        ("{guarantee: {zcdp: {rho: 1}}, levels: {less: {gdp: {mu: 0.5}}}}", None),
        (f"{{guarantee: {PURE}}}", "best"),
        (f"{{guarantee: {APPROX}}}", "best"),
        (f"{{guarantee: {APPROX}, mechanism: null}}", "best"),
        (f"{{guarantee: {GDP}, levels: {{less: {APPROX}}}}}", "best"),
        (f"{{guarantee: {APPROX}, mechanism: gaussian}}", "gaussian"),
        (f"{{guarantee: {APPROX}, per_person: {{approx: {{epsilon: 3, delta: 1e-5}}}}}}", "best"),
        # A pure release takes far more of a mu than Gaussian noise for the same (epsilon, delta).
        (f"{{guarantee: {APPROX}, per_person: {GDP}}}", None),
        (f"{{guarantee: {PURE}, per_person: {{zcdp: {{rho: 1}}}}}}", "best"),
    ],
)
def test_documents_carry_the_mechanism_that_a_new_task_is_given(block: str, written: str | None) -> None:
    """None where it is what None has always meant, so that hashes stay."""
    task = Task.parse(privacy(block))
    assert json.loads(task.document())["privacy"]["mechanism"] == written
    assert Task.from_document(task.document()) == task


@pytest.mark.parametrize("protocol", ["examples", "summaries"])
def test_protocols_with_noise_of_their_own_name_no_mechanism(protocol: str) -> None:
    text = privacy(f"{{guarantee: {APPROX}}}").replace("protocol: gradients", f"protocol: {protocol}")
    task = Task.parse(text + ("examples: {release: joint}\n" if protocol == "examples" else ""))
    assert task.privacy.mechanism is None


def test_impossible_budget_is_refused() -> None:
    with pytest.raises(UserError, match=r"line 7: privacy.guarantee"):
        Task.parse(privacy("{guarantee: {gdp: {mu: 1e-7}}}"))


def test_cap_must_have_a_currency_that_the_levels_cost_something_in() -> None:
    with pytest.raises(UserError, match=r"privacy.per_person: cannot cap level 'default': "):
        Task.parse(privacy("{guarantee: {gdp: {mu: 1}}, per_person: {pure: {epsilon: 3}}}"))
    assert Task.parse(privacy("{guarantee: {gdp: {mu: 1}}, per_person: {zcdp: {rho: 3}}}"))
    assert Task.parse(privacy("{guarantee: {pure: {epsilon: 1}}, per_person: {pure: {epsilon: 3}}}"))


def test_cap_must_allow_every_level() -> None:
    assert Task.parse(privacy("{guarantee: {gdp: {mu: 1}}, per_person: {gdp: {mu: 1}}}"))
    with pytest.raises(UserError, match=r"privacy.per_person: a cap of .* allows no release at level 'open'"):
        Task.parse(privacy("{guarantee: {gdp: {mu: 1}}, levels: {open: {gdp: {mu: 2}}}, per_person: {gdp: {mu: 1}}}"))


POINTS = np.array([[-1.0, 1.0, -1.0, 1.0, 1.0], [0.5, -1.0, 1.0, -1.0, 1.0]])
COUNTS = np.array([3, 4])


def test_public_covariates_are_resolved_into_the_document_and_the_hash() -> None:
    declared = Task.parse(LOGISTIC + "public: {set_aside: 7}\n")
    task = declared.with_public(POINTS, COUNTS)
    assert task.covariates is not None
    np.testing.assert_array_equal(task.covariates.points, POINTS)
    np.testing.assert_array_equal(task.covariates.counts, COUNTS)
    assert task.hash != declared.hash
    assert declared.with_public(POINTS, COUNTS + 1).hash != task.hash
    assert declared.with_public(POINTS * [[0.5, 1, 1, 1, 1]], COUNTS).hash != task.hash
    zeros = [np.array([[zero, 1.0, 1.0, 1.0, 1.0]]) for zero in (0.0, -0.0)]
    assert len({declared.with_public(points, COUNTS[:1]).hash for points in zeros}) == 1
    again = Task.from_document(task.document())
    assert again == task
    assert again.without_public() == declared
    assert again.with_simulated(True).covariates is not None
    with pytest.raises(ValueError, match="read-only"):
        task.covariates.points[0, 0] = 0.0


@pytest.mark.parametrize(
    ("points", "counts", "message"),
    [
        (POINTS[:, 1:], COUNTS, "points of 4 coordinates; the task codes 5"),
        (POINTS * 2, COUNTS, "not within"),
        (POINTS * np.nan, COUNTS, "not within"),
        (POINTS * [1, 1, 1, 1, 0.5], COUNTS, "not the constant 1"),
        (POINTS, COUNTS * 0, "a count of 0"),
        (POINTS, COUNTS[:1], "points of shape"),
        (POINTS[:0], COUNTS[:0], "points of shape"),
    ],
)
def test_covariates_of_another_coding_are_refused(points: Any, counts: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        Task.parse(LOGISTIC + "public: {set_aside: 7}\n").with_public(points, counts)


def test_covariates_need_to_be_declared() -> None:
    with pytest.raises(UserError, match="covariates without public"):
        Task.parse(LOGISTIC).with_public(POINTS, COUNTS)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("points", "!"),
        ("points", 3),
        ("points", "AAAA"),
        ("counts", "AAAAAAAA8D8="),
        ("size", 0),
        ("size", True),
        ("x", 1),
    ],
)
def test_damaged_covariates_are_refused(key: str, value: object) -> None:
    document = json.loads(Task.parse(LOGISTIC + "public: {set_aside: 7}\n").with_public(POINTS, COUNTS).document())
    document["covariates"][key] = value
    with pytest.raises(UserError, match="covariates"):
        Task.from_document(canonical_json(document))


def test_public_file_is_found_beside_the_task_file(tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(LOGISTIC + "public: {file: covariates.csv}\n")
    assert Task.load(path).public_path == tmp_path / "covariates.csv"
    assert Task.load(path).with_simulated(True).public_path == tmp_path / "covariates.csv"
    assert Task.load(path).path == path
    assert Task.parse(LOGISTIC).public_path is None


@pytest.mark.parametrize(
    ("text", "seconds"), [("7d", 604_800), ("12h", 43_200), ("30m", 1_800), ("45s", 45), ("1 d", 86_400)]
)
def test_durations(text: str, seconds: int) -> None:
    assert parse_duration(text) == seconds
    assert parse_duration(format_duration(seconds)) == seconds


@pytest.mark.parametrize("text", ["", "7", "d", "-1d", "1.5h", "7w", "1d2h", "0s", "99999d", "٣d"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        parse_duration(text)


def test_public_knowledge_is_read_and_absent_from_documents_that_do_not_state_it() -> None:
    """The keys are optional, and the documents of before are those of now."""
    for text in (LOGISTIC, HUBER, SOFTMAX):
        document = Task.parse(text).document()
        assert b"rate" not in document
        assert b"typical" not in document
    stated = Task.parse(
        LOGISTIC.replace("high: 35", "high: 35, typical: [22, 30]").replace(
            "positive: yes", "positive: yes, rate: 0.06"
        )
    )
    assert (stated.features[0].typical, stated.target.rate) == ((22.0, 30.0), 0.06)  # type: ignore[union-attr]
    assert Task.from_document(stated.document()) == stated
    assert stated.with_protocol("examples").target == stated.target
    weeks = Task.parse(HUBER.replace("high: 52", "high: 52, typical: [0, 10]"))
    assert weeks.target.typical == (0.0, 10.0)  # type: ignore[union-attr]


def test_shares_of_classes_are_a_list_or_a_mapping() -> None:
    """Both give one document; shares are made to add up to 1."""
    listed, mapped = (
        Task.parse(SOFTMAX.replace("more]", f"more], rate: {rate}"))
        for rate in ("[0.6, 0.3, 0.11]", "{more: 0.11, none: 0.6, one: 0.3}")
    )
    assert listed.document() == mapped.document()
    assert isinstance(mapped.target, ClassTarget)
    assert mapped.target.shares == pytest.approx((0.6 / 1.01, 0.3 / 1.01, 0.11 / 1.01))


def test_the_task_of_a_model_keeps_the_contrasts_of_its_features_and_no_crowd():
    task = Task.parse(
        """
        name: trial
        protocol: scores
        features: [{name: arm, categories: [a, b, c]}, {name: age, low: 18, high: 90}]
        target: {name: well, kind: binary, positive: "yes"}
        contrasts: [{feature: arm, category: c, against: b}]
        shuffle: {crowd: 20000, promise: {epsilon: 0.5, delta: 1.0e-6}}
        """
    )
    both, age = (
        task.with_model("model", features, task.target, {}, task.learner)
        for features in (task.features, task.features[1:])
    )
    assert (both.contrasts, age.contrasts) == (task.contrasts, ())
    assert both.shuffle is None
