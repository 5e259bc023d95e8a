"""The update: the same however it is cut up, merged by sum, restored to the bit; and a task's device."""

import json
import math
import pickle

import numpy as np
import pytest

from murk import Task
from murk.errors import MurkError, UserError
from murk.privacy import ApproxDP, GaussianDP, PureDP, SecureNoise, SimulatedNoise
from murk.protocols.mean_functions import LINKS, ResponseRange
from murk.protocols.moments.device import check_size, device_for
from murk.protocols.moments.engine import BLOCK, MomentEngine, MomentModel, merged
from murk.protocols.moments.mechanisms import calibrated
from murk.protocols.moments.statistics import Statistics, balanced
from murk.protocols.moments.sums import MomentSums
from murk.stream.wire.codec import MAX_MESSAGE, RejectedError
from murk.stream.wire.releases import MomentRelease

LAYOUT = Statistics(("a", "b", "intercept"), math.sqrt(3), balanced(math.sqrt(3)))
MODEL = MomentModel(LINKS["identity"], ResponseRange(-1.0, 1.0), None)
LEVELS = {
    "default": calibrated(GaussianDP(1.0), LAYOUT),
    "open": calibrated(GaussianDP(4.0), LAYOUT),
    "pure": calibrated(PureDP(1.0), LAYOUT),
    "laplace": calibrated(PureDP(1.0), LAYOUT, kind="laplace"),
}


def engine(**more):
    return MomentEngine(LAYOUT, MODEL, LEVELS, **{"noise": SimulatedNoise(1), **more})


def records(n, seed=1):
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.uniform(-1, 1, (n, 2)), np.ones(n)])
    return X, X @ np.array([0.5, -0.3, 0.1]) * 0.9


def releases(n, seed=3):
    X, y = records(n, seed)
    vectors = LAYOUT.vectors(X, y)
    names = [list(LEVELS)[i % len(LEVELS)] for i in range(n)]
    out = []
    for i, level in enumerate(names):
        payload = LEVELS[level].randomize(vectors[i : i + 1], SimulatedNoise(seed), [i])[0].tolist()
        out.append(
            MomentRelease(
                id=f"{i:032x}",
                task="f" * 64,
                level=level,
                partition=0,
                payload=payload,
                time=0,
                expires=1,
                simulated=True,
            )
        )
    return out


def test_however_records_are_cut_up_the_state_is_the_same_to_the_bit():
    n = BLOCK + 300
    X, y = records(n)
    own = [LEVELS[list(LEVELS)[i % len(LEVELS)]] for i in range(n)]
    whole, parts, single = engine(), engine(), engine()
    whole.learn_records(X, y, own)
    for start, stop in ((0, 1), (1, 700), (700, n)):
        parts.learn_records(X[start:stop], y[start:stop], own[start:stop])
    for i in range(n):
        single.learn_records(X[i : i + 1], y[i : i + 1], own[i : i + 1])
    assert whole.state_dict() == parts.state_dict() == single.state_dict()
    assert whole.n_releases == n


def test_releases_and_records_end_in_the_same_fold():
    X, y = records(40, seed=3)
    own = [LEVELS[list(LEVELS)[i % len(LEVELS)]] for i in range(40)]
    here, there, cut = engine(noise=SimulatedNoise(3)), engine(), engine()
    here.learn_records(X, y, own)
    there.learn_releases(releases(40))
    assert cut.admits(releases(40))
    for one in releases(40):
        cut.admit(one)
        cut.learn_releases([one])
    cut.learn_releases([])
    assert here.state_dict() == there.state_dict() == cut.state_dict()


def test_states_go_on_to_the_bit():
    first, all_of_them = engine(), engine()
    many = releases(60)
    all_of_them.learn_releases(many)
    first.learn_releases(many[:25])
    second = engine()
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    second.learn_releases(many[25:])
    assert second.state_dict() == all_of_them.state_dict()
    assert np.array_equal(second.estimate().values, all_of_them.estimate().values)
    assert pickle.loads(pickle.dumps(second)).state_dict() == second.state_dict()


@pytest.mark.parametrize(
    "change",
    [
        {"schema": 2},
        {"moments": "other"},
        {"n_releases": -1},
        {"n_releases": True},
        {"n_releases": "7"},
        {"total": "!"},
        {"total": None},
        {"sums": ""},
    ],
)
def test_damaged_states_are_refused_and_change_nothing(change):
    one = engine()
    one.learn_releases(releases(5))
    before = one.state_dict()
    with pytest.raises(MurkError):
        one.load_state_dict({**before, **change})
    with pytest.raises(MurkError, match="malformed"):
        one.load_state_dict({key: value for key, value in before.items() if key != next(iter(change))})
    assert one.state_dict() == before


def test_partitions_merge_by_sum():
    many = releases(90)
    one, left, right = engine(), engine(), engine()
    one.learn_releases(many)
    left.learn_releases(many[::2])
    right.learn_releases(many[1::2])
    together = MomentSums.merged([left.sums, right.sums])
    # Sums in another order: rounding only.
    np.testing.assert_allclose(together.total, one.sums.total, rtol=1e-12, atol=1e-12)
    assert together.count == 90
    found = merged([left, right])
    np.testing.assert_allclose(found.values, one.estimate().values, rtol=1e-9)
    np.testing.assert_allclose(found.spread, one.estimate().spread, rtol=1e-9)
    assert (found.partitions, found.n_releases) == (2, 90)
    other = MomentEngine(Statistics(("a", "c", "intercept"), math.sqrt(3), balanced(math.sqrt(3))), MODEL, {})
    with pytest.raises(UserError, match="merge"):
        merged([one, other])


def test_people_with_more_noise_weigh_less():
    """Inverse variance: adding quiet people to loud ones must help as much as the noise says."""
    X, y = records(4000)
    loud, quiet, both = engine(), engine(), engine()
    little, more = (calibrated(GaussianDP(mu), LAYOUT) for mu in (0.2, 0.8))
    loud.learn_records(X, y, [little])
    quiet.learn_records(X, y, [more])
    both.learn_records(X, y, [little])
    both.learn_records(X, y, [more])
    precision = [1 / (each.sums.sums[3] / each.sums.sums[1] ** 2) for each in (loud, quiet, both)]
    assert precision[2] > precision[1] > 10 * precision[0]
    # Best for noise alone would be the sum; the spread of the moments themselves, counted in, makes it a little less.
    assert precision[2] == pytest.approx(precision[0] + precision[1], rel=0.001)


def test_the_fit_is_kept_until_the_next_release():
    one = engine()
    one.learn_releases(releases(10))
    first = one.fitted()
    assert one.fitted() is first
    one.learn_releases(releases(1))
    assert one.fitted() is not first


def test_secure_noise_differs_and_learns():
    X, y = records(50)
    one, two = engine(noise=SecureNoise()), engine(noise=None)
    for each in (one, two):
        each.learn_records(X, y, [LEVELS["default"]])
    assert one.state_dict() != two.state_dict()


def test_a_part_beyond_its_own_bound_is_rejected():
    layout = Statistics(("a", "intercept"), math.sqrt(2), root=1.0)
    mechanisms = {"default": calibrated(ApproxDP(1.0, 1e-6), layout, release="separate")}
    one = MomentEngine(layout, MODEL, mechanisms)
    bounds, (_, (_, _, square)) = mechanisms["default"].magnitudes, mechanisms["default"].payload_bound.parts
    longest = math.isqrt(square)
    honest = {"id": "0" * 32, "task": "f" * 64, "level": "default", "partition": 0, "time": 0, "expires": 1}
    rest = [0] * (len(bounds) - 1)
    one.admit(MomentRelease(payload=[*rest, longest], **honest))
    for beyond, found in ((longest + 1, "payload longer"), (int(bounds[-1]) + 1, "coordinate")):
        with pytest.raises(RejectedError, match=found):
            one.admit(MomentRelease(payload=[*rest, beyond], **honest))
    with pytest.raises(MurkError, match="4 integers"):
        one.learn_releases([MomentRelease(payload=[1], **honest)])


def test_mechanisms_of_other_moments_are_refused():
    with pytest.raises(UserError, match="randomizes 8 numbers, but a release has 4"):
        MomentEngine(Statistics(("a", "intercept"), 2.0), MODEL, LEVELS)


TASK = """
name: t
features: [{name: a, low: 0, high: 10}, {name: b, categories: [x, y, z]}]
target: {name: y, kind: binary, positive: "1"}
protocol: moments
public: {set_aside: 50}
privacy: {guarantee: {gdp: {mu: 1.0}}, levels: {less: {gdp: {mu: 0.5}}}}
"""
REAL = TASK.replace('kind: binary, positive: "1"', "kind: real, low: 0, high: 52")


def public(task, m=50):
    rng = np.random.default_rng(1)
    points = np.column_stack([rng.uniform(-0.1, 0.1, (m, 3)), np.ones(m)])
    return task.with_public(points, np.ones(m, dtype=int))


def test_a_task_becomes_a_device():
    device = device_for(public(Task.parse(TASK + "moments: {release: joint}\n")))
    assert (device.kind, device.interactive, device.dimension) == ("moment", False, 13)
    assert set(device.mechanisms) == {"default", "less"}
    device.check_state()
    vectors = device.vectors(np.ones((3, 4)), np.array([0.0, 1.0, np.nan]))
    # Labels count as -1 and +1, a missing one as their middle.
    assert vectors[:, -1].tolist() == [-device.layout.weight, device.layout.weight, 0.0]
    one = device.engine()
    assert (one.publish_every, one.published(), one.figures()) == (2**31, None, {})
    payload = device.mechanisms["less"].randomize(vectors, SecureNoise(), [0, 1, 2])
    one.learn_payloads(payload, "less")
    found = device.estimate([one])
    assert found.names == ("a", "b=y", "b=z", "intercept")
    assert np.all(np.isfinite(found.values))
    assert device.estimate([one, device.engine()]).n_releases == 3


@pytest.mark.parametrize(
    "block", ["{loss: poisson, release: joint}", "{release: separate}", "{design: gaussian, covariance: private}"]
)
def test_settings_of_the_block(block):
    device = device_for(public(Task.parse(TASK + f"moments: {block}\n")))
    # Normal features of so small a covariance stay well within their box.
    assert (device.layout.radius < 1.6) == ("gaussian" in block)
    assert device.model.curve.name == ("poisson" if "poisson" in block else "logistic")
    assert device.layout.root == (1.0 if "separate" in block else math.sqrt(2))


@pytest.mark.parametrize(("link", "low"), [("identity", -1), ("cubic", -1), ("sigmoid", 0), ("softplus", 0)])
def test_links_of_a_real_target(link, low):
    device = device_for(public(Task.parse(REAL + f"moments: {{link: {link}, release: joint}}\n")))
    assert device.model.response == ResponseRange(low, 1.0)
    assert device.vectors(np.ones((1, 4)), np.array([0.5]))[0, -1] == 0.5 * device.layout.weight


def test_a_release_too_long_for_the_log_is_refused_with_what_would_do():
    names = tuple(map(str, range(400)))
    with pytest.raises(UserError, match="at most 299 coded features"):
        check_size(Statistics(names, 20.0))
    check_size(Statistics(names[:299], 20.0))
    with pytest.raises(UserError, match="299"):
        check_size(Statistics(names[:300], 20.0))
    assert 22 * Statistics(names[:299], 20.0).dimension + 512 <= MAX_MESSAGE


@pytest.mark.parametrize("guarantee", ["pure: {epsilon: 1.0}", "approx: {epsilon: 1.0, delta: 1.0e-6}"])
def test_a_pure_or_approximate_task_gets_the_best_mechanism(guarantee):
    task = Task.parse(TASK.split("privacy:", maxsplit=1)[0] + f"privacy: {{guarantee: {{{guarantee}}}}}\n")
    assert device_for(task).mechanisms["default"].kind == "privunit"
    document = task.document().replace(b'"mechanism":"best"', b'"mechanism":null')
    before = "l2-ball" if guarantee.startswith("pure") else "gaussian"
    assert device_for(Task.from_document(document)).mechanisms["default"].kind == before
