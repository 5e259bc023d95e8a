"""The shuffle block: either guarantee from the other, and what would break the claim is refused."""

from itertools import pairwise

import pytest

from murk.errors import UserError
from murk.privacy import ApproxDP, PureDP, shuffled_delta
from murk.protocols.device import device_for
from murk.task.task import Task

PLAIN = """
name: third-child
features: [{name: age, low: 21, high: 35}]
target: {name: third_child, kind: binary, positive: "yes"}
"""
CROWD = "shuffle: {crowd: 20000, promise: {epsilon: 0.5}}\n"


def parse(more: str) -> Task:
    return Task.parse(PLAIN + more)


def test_a_task_without_the_block_has_no_key_of_it():
    task = parse("privacy: {guarantee: {gdp: {mu: 1.0}}}")
    assert b"shuffle" not in task.document()
    # Of version 0.3, by which logs know it.
    assert task.hash == parse("privacy: {guarantee: {gdp: {mu: 1.0}}}\nshuffle: null").hash


def test_the_local_guarantee_follows_from_the_central_one():
    task = parse(CROWD)
    assert task.privacy.guarantee == PureDP(4.907)
    assert task.privacy.mechanism == "best"
    assert (task.shuffle.honest, task.shuffle.honest_people) == (0.9, 18_000)
    # The largest in thousandths that keeps the promise.
    assert shuffled_delta(4.907, 18_000, 0.5) <= 1e-6 < shuffled_delta(4.908, 18_000, 0.5)
    assert Task.from_document(task.document()) == task
    # The mechanism that this makes has that pure epsilon, whatever the query.
    mechanisms = device_for(task).mechanisms["default"]
    for query in ("score", "scatter", "curvature"):
        guarantee = mechanisms.mechanism(query).guarantee
        assert isinstance(guarantee, PureDP)
        assert 4.8 < guarantee.epsilon <= 4.907


def test_the_central_guarantee_follows_from_the_local_one():
    task = parse("shuffle: {crowd: 20000}\nprivacy: {guarantee: {pure: {epsilon: 4.0}}}")
    promised = task.shuffle.promise
    assert (promised.epsilon, promised.delta) == (task.shuffle.central(PureDP(4.0)).epsilon, 1e-6)
    assert shuffled_delta(4.0, 18_000, promised.epsilon) <= 1e-6
    assert shuffled_delta(4.0, 18_000, promised.epsilon - 0.001) > 1e-6
    # A task with half of the budget has its own.
    half = task.with_budget(0.5)
    assert half.privacy.guarantee == PureDP(2.0)
    assert half.shuffle.promise.epsilon == half.shuffle.central(PureDP(2.0)).epsilon < promised.epsilon


@pytest.mark.parametrize("epsilon", [0.0625, 0.57349, 0.001])
def test_a_promise_may_be_finer_than_thousandths(epsilon):
    """The local guarantee is that of the promise rounded down, whose own is rounded up."""
    task = parse(f"shuffle: {{crowd: 20000, promise: {{epsilon: {epsilon}, delta: 0.001}}}}")
    local = task.privacy.guarantee
    assert task.shuffle.promise.epsilon == epsilon
    assert task.shuffle.central(local).epsilon <= epsilon
    assert Task.from_document(task.document()) == task
    # The twin: one thousandth more would break it.
    with pytest.raises(UserError, match="is not reached"):
        parse(
            f"shuffle: {{crowd: 20000, promise: {{epsilon: {epsilon}, delta: 0.001}}}}\n"
            f"privacy: {{guarantee: {{pure: {{epsilon: {local.epsilon + 0.001:.3f}}}}}}}"
        )


def test_levels_have_central_guarantees_of_their_own():
    task = parse(CROWD + "privacy: {levels: {strict: {pure: {epsilon: 2.0}}}}")
    assert task.shuffle.central(PureDP(2.0)) == ApproxDP(0.084, 1e-6)


def test_honest_people_are_counted_exactly():
    assert parse("shuffle: {crowd: 100000, honest: 0.29, promise: {epsilon: 0.5}}").shuffle.honest_people == 29_000


def test_epochs_are_no_smaller_than_a_crowd():
    settings = device_for(parse(CROWD)).settings
    # Rounds of the survey are no smaller either.
    survey_rounds = settings.survey.starts
    assert all(stop - start >= 20_000 for start, stop in pairwise(survey_rounds))
    ends = [settings.round_end(survey_rounds[-1] + count) - survey_rounds[-1] for count in (0, 19_999, 20_000, 40_000)]
    assert ends == [20_000, 20_000, 40_000, 80_000]
    small = device_for(parse("shuffle: {crowd: 1000, promise: {epsilon: 0.5}}")).settings
    assert small.round_end(small.survey.end) == small.survey.end + 3_000
    assert settings.digest != small.digest


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (CROWD + "privacy: {guarantee: {gdp: {mu: 1.0}}}", "gdp mu=1 is (4.89, 1e-06) for everybody"),
        (CROWD + "privacy: {guarantee: {zcdp: {rho: 0.5}}}", "zcdp rho=0.5 is ("),
        (CROWD + "privacy: {guarantee: {approx: {epsilon: 4.0, delta: 1.0e-6}}}", "(4, 1e-06) has none"),
        (CROWD + "privacy: {guarantee: {pure: {epsilon: 6.0}}}", "shuffle.promise.epsilon: 0.5 is not reached"),
        (CROWD + "privacy: {mechanism: gaussian}", "'gaussian' cannot give privacy.guarantee"),
        (CROWD + "privacy: {levels: {open: {gdp: {mu: 3.0}}}}", "privacy.levels.open: a shuffled task needs a pure"),
        (CROWD + "privacy: {levels: {open: {pure: {epsilon: 12}}}}", "gains nothing over the local epsilon 12"),
        (CROWD + "privacy: {per_person: {pure: {epsilon: 20}}}", "privacy.per_person: the central guarantee holds"),
        ("shuffle: {crowd: 100, promise: {epsilon: 5}}", "gains nothing over the local epsilon"),
        (CROWD + "protocol: gradients", "whose releases are computed at a model that changes"),
        (CROWD + "forget: 100000", "at least 160,000, or a smaller crowd"),
        (
            CROWD + "log: {partitions: 3}\nscores: {models: per-partition}",
            "'per-partition' models of 3 partitions would split every crowd",
        ),
        ("shuffle: {crowd: 20000}", "privacy: missing"),
        ("shuffle: {crowd: 1, promise: {epsilon: 1}}", "shuffle.crowd: 1 is too small"),
        ("shuffle: {crowds: 20000}", "did you mean 'crowd'?"),
        ("shuffle: {crowd: 20000, honest: 1.5, promise: {epsilon: 1}}", "shuffle.honest: 1.5 is too large"),
        ("shuffle: {crowd: 20000, promise: {epsilon: 1, mu: 1}}", "shuffle.promise.mu: unknown key"),
        ("shuffle: {crowd: 20000, promise: {epsilon: 1}, patience: 7}", "7 has no unit"),
        ("shuffle: {crowd: 20000, promise: {epsilon: 0.0004}}", "shuffle.promise.epsilon: 0.0004 is too small"),
    ],
)
def test_what_breaks_the_claim_is_refused_with_the_remedy(more, words):
    with pytest.raises(UserError) as refused:
        parse(more)
    assert words in str(refused.value)


@pytest.mark.parametrize("protocol", ["examples", "moments", "scores"])
def test_every_protocol_of_crowds_has_pure_mechanisms(protocol):
    task = parse(f"{CROWD}protocol: {protocol}")
    for mechanism in device_for(task).mechanisms.values():
        assert any(isinstance(each, PureDP) and each.epsilon <= 4.907 for each in mechanism.guarantees)


def test_a_document_that_does_not_keep_its_promise_is_refused():
    document = parse(CROWD).document()
    with pytest.raises(UserError, match=r"0\.1 is not reached"):
        Task.from_document(document.replace(b'"epsilon":0.5', b'"epsilon":0.1'))
