"""How far forged releases move an estimate, against the bound that it states; and what shows that there are some."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from benchmarks import forgers as attack
from murk.inference.poisoning import Influence, counted, longest
from murk.learners import ScoreClassifier
from murk.privacy import GaussianDP, PureDP
from murk.privacy.mechanisms import calibrate
from murk.protocols.scores import sums
from murk.protocols.scores.engine import PartitionState, merged_of
from murk.protocols.scores.estimate import Forgery, excesses, influence_of
from murk.protocols.scores.mechanisms import score_mechanisms
from murk.protocols.scores.solutions import largest_square
from murk.protocols.scores.sums import Round, Tally, most_answers, summaries
from murk.results.diagnosis import describe_forgers

# With less than this share of the bound the attacks would be too weak to test it: a bound 25 times smaller fails.
FEEBLE = 1.0 / 25.0


@pytest.fixture(scope="module")
def learned():
    """A learner of scores with three rounds of honest answers, to which no survey has asked other queries before."""
    X, y = attack.people(9_000, np.random.default_rng(4), np.array([1.0, 0.2]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("murk.learners.scores.survey_of", lambda *given, **more: None)
        model = ScoreClassifier(guarantee=GaussianDP(2.0), features=["a"], seed=4)
    model.learn_many(X, y)
    return model


def forged_partition(model, place, query, count, payload):
    """The partition with so many equal answers more."""
    engine = model._require()
    partition, rounds = engine.now, list(engine.now.rounds)
    rounds[place] = rounds[place].joined("default", query, Tally(count, [count * int(v) for v in payload]))
    return merged_of(
        engine.settings, [(PartitionState(partition.count + count, tuple(rounds)), dict(engine.mechanisms))]
    ), rounds


# What a release can do at most


@pytest.mark.parametrize(
    ("kind", "guarantee"),
    [("gaussian", GaussianDP(1.0)), ("laplace", PureDP(1.0)), ("privunit", PureDP(4.0)), ("l2-ball", PureDP(1.0))],
)
def test_no_admitted_release_is_longer_than_is_said(kind, guarantee):
    mechanism = calibrate(kind, guarantee, dimension=5, radius=1.0)
    way = np.array([3.0, -1.0, 2.0, 0.5, 1.0])
    low, high = 0.0, float(mechanism.magnitude) * 10
    for _ in range(60):
        middle = (low + high) / 2.0
        held = mechanism.payload_bound.holds([int(v) for v in way / np.linalg.norm(way) * middle])
        low, high = (middle, high) if held else (low, middle)
    decoded = np.linalg.norm(mechanism.decode([[int(v) for v in way / np.linalg.norm(way) * low]]))
    assert decoded == pytest.approx(longest(mechanism), rel=1e-4)


def test_nothing_bounds_more_than_the_matrix_has():
    influence, errors = Influence(0.1, 0.01), np.array([1.0, math.inf])
    assert influence.moved(50, errors)[0] == pytest.approx(2 * 50 * 0.1 / 0.5)
    assert influence.moved(100, errors).tolist() == influence.moved(101, errors).tolist() == [math.inf] * 2
    assert Influence(math.inf, limit=np.array([3.0, 4.0])).moved(1, errors).tolist() == [3.0, 4.0]


def test_the_level_that_counts_most_decides():
    """Where most people have little privacy's weight, one release at the level of least noise counts for several."""
    low, high = (score_mechanisms(None, GaussianDP(mu), 4) for mu in (0.2, 1.0))
    round_ = Round(0, None, {("low", "score"): Tally(10_000, [0] * 4), ("high", "score"): Tally(100, [0] * 4)})
    alone = influence_of("score", [round_], {"low": low})
    both = influence_of("score", [round_], {"low": low, "high": high})
    assert both > 3.0 * alone
    assert influence_of("curvature", [round_], {"low": low}) == 0.0


# Queries


@pytest.mark.parametrize(("releases", "share"), [(20, 0.05), (3_000, 0.05), (10**5, 0.1), (10**6, 0.5)])
def test_honest_people_answer_a_question_no_more_often(releases, share):
    most = most_answers(releases, share)
    assert stats.binom.sf(math.floor(most), releases, share) <= math.exp(-32)
    # Not twice as far away as it has to be, either.
    far = stats.binom.isf(math.exp(-32), releases, share) - releases * share
    assert most - releases * share <= 1.5 * far + 11


def test_honest_answers_are_solved_as_they_are(learned, monkeypatch):
    engine = learned._require()
    known = summaries(engine.now.rounds, engine.mechanisms, engine.settings.features)
    monkeypatch.setattr(sums, "counted_answers", lambda round_, level, query, tally: float(tally.count))
    plain = summaries(engine.now.rounds, engine.mechanisms, engine.settings.features)
    for one, other in zip(known, plain, strict=True):
        for query in ("score", "scatter", "curvature"):
            left, right = getattr(one, query), getattr(other, query)
            assert (left is None) == (right is None)
            assert left is None or (left.mean.tobytes(), left.noise) == (right.mean.tobytes(), right.noise)
    estimate = learned._require().estimate()
    assert (estimate.forgery.excesses, estimate.forgery.widened, estimate.doubts()) == ((), 0.0, [])


def test_answers_beyond_a_questions_share_count_for_no_more_than_it_and_widen_intervals(learned):
    engine = learned._require()
    place = len(engine.now.rounds) - 1
    honest = engine.now.rounds[place].tallies["default", "curvature"]
    found, rounds = forged_partition(learned, place, "curvature", 2_000, [v // honest.count for v in honest.total])
    (one,) = excesses(rounds)
    released = sum(tally.count for tally in rounds[place].tallies.values())
    assert (one.query, one.answers) == ("curvature", rounds[place].tallies["default", "curvature"].count)
    assert one.expected == pytest.approx(released * rounds[place].model.curvature)
    answer = summaries(rounds, engine.mechanisms, engine.settings.features)[place].curvature
    unit = rounds[place].model.matrix_clipping_norm / 2.0
    count = most_answers(released, rounds[place].model.curvature)
    assert count < one.answers
    assert answer.noise == pytest.approx(unit**2 * engine.mechanisms["default"].matrix.variance / count)
    assert "curvature" in found.doubts()[0]
    bare = replace(found, forgery=Forgery(found.influence))
    kappa = influence_of("curvature", rounds, engine.mechanisms)
    assert found.forgery.widened == pytest.approx(2 * (one.answers - one.expected) * kappa)
    halves = bare.half_widths(0.95)
    assert np.all(np.isfinite(halves))
    assert found.half_widths(0.95) / halves == pytest.approx(1 + found.forgery.widened / stats.norm.isf(0.025))


def test_a_matrix_that_nobody_is_asked_for_counts_for_nothing(learned):
    engine = learned._require()
    assert engine.now.rounds[0].model.scatter == 0.0
    size = engine.mechanisms["default"].matrix.dimension
    found, rounds = forged_partition(learned, 0, "scatter", 500, np.full(size, 2**22))
    assert summaries(rounds[:1], engine.mechanisms, 2)[0].scatter is None
    assert found.values.tobytes() == engine.estimate().values.tobytes()
    assert "scatter" in found.doubts()[0]


def test_epochs_that_disagree_widen_intervals(learned):
    engine = learned._require()
    mechanism = engine.mechanisms["default"].score
    payload = np.array([1.0, 1.0]) / math.sqrt(2.0) * longest(mechanism) / mechanism.unit * 0.999
    assert mechanism.payload_bound.holds([int(v) for v in payload])
    found, _ = forged_partition(learned, 1, "score", 400, payload)
    change = found.stream_change()
    assert change is not None
    assert change.widened > 1.2
    assert "or some answers are forged" in change.words
    bare = found.solution.half_widths(1.959963984540054)
    ratio = found.half_widths(0.95) / bare
    assert np.all(ratio[np.isfinite(ratio)] > 1.2)
    assert engine.estimate().stream_change() is None


@pytest.mark.parametrize("freedom", [1, 4, 30, 200])
def test_squares_of_honest_residuals_are_smaller(freedom):
    assert stats.chi2.sf(largest_square(freedom), freedom) <= math.exp(-20)
    assert largest_square(freedom) < 2.0 * stats.chi2.isf(math.exp(-20), freedom)


# The stated bound against an optimising forger


WORLDS = {
    "scores": lambda: attack.scores(7_000, 1, truth=np.array([1.0, 0.2]), mu=2.0),
    "gradients": lambda: attack.gradients(6_000, 1, blocks=4),
    "examples": lambda: attack.examples(10_000, 1, number=6),
    "moments": lambda: attack.moments(10_000, 1, number=4),
    "sketch": lambda: attack.sketches(150, 1),
}


@pytest.mark.parametrize("name", WORLDS)
@pytest.mark.parametrize("share", [0.001, 0.01])
def test_no_forger_moves_an_estimate_further_than_it_states(name, share):
    """Seeded, so that there is no false alarm; the attack must be strong enough for a smaller bound to fail."""
    world = WORLDS[name]()
    m = max(round(share * world.honest.releases_used), 1)
    _, _, _, most, stated = attack.worst(world, m)
    assert most <= 1.0
    if share == 0.001:
        assert math.isfinite(stated)
        if name != "sketch":
            assert most > FEEBLE


def test_of_gradients_alone_the_ball_is_all_that_bounds():
    world = attack.gradients(2_000, 1, public=False, blocks=2)
    one, many = world.honest.moved(1), world.honest.moved(500)
    assert np.all(np.isfinite(one))
    assert one.tolist() == many.tolist()


# Reports


def test_reports_say_it(learned):
    report = learned.summary(forecast=False).report
    estimate = learned._require().estimate()
    found = report["forged"]
    assert [each["releases"] for each in found["moved"]] == [1, 9, 90]
    for each in found["moved"]:
        for name, far, half in zip(
            estimate.names, estimate.moved(each["releases"]), estimate.half_widths(), strict=True
        ):
            assert each["coded"][name] == pytest.approx(far)
            assert each["half_widths"][name] == pytest.approx(far / half)
    assert "9 forged releases (0.1%)" in found["words"]
    assert found["words"] in " ".join(str(learned.summary(forecast=False)).split())
    assert json.loads(learned.summary(forecast=False).to_json())["forged"]["signs"] == []
    # By how much the text says is what is stated, not another figure.
    twice = replace(estimate, influence=replace(estimate.influence, errors=2 * estimate.influence.errors))
    assert describe_forgers(twice, 0.95)["words"] != found["words"]


def test_what_is_not_bounded_is_null(learned):
    unknown = replace(learned._require().estimate(), influence=None)
    found = describe_forgers(unknown, 0.95)
    assert "without a bound" in found["words"]
    assert all(math.isinf(far) for each in found["moved"] for far in each["coded"].values())
    assert list(counted(9_000)) == [1, 9, 90]
