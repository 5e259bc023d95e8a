"""The update: one distribution for every way of learning, exact state, and nothing that a stranger sends breaks it."""

import copy
import json
import math
import pickle

import numpy as np
import pytest

from murk.errors import MurkError, UserError
from murk.privacy import ApproxDP, GaussianDP, PureDP, SecureNoise, SimulatedNoise, ZeroConcentratedDP
from murk.protocols.examples import layout as k
from murk.protocols.examples.directions import parts as direction_parts
from murk.protocols.examples.estimate import SANDWICH, estimate
from murk.protocols.examples.settings import target_scale
from murk.stream.wire.codec import RejectedError
from tests.learners.iwp_sgd.worlds import at, engine, records, release, settings

KINDS = [
    ("binary", {"release": "joint"}),
    ("binary", {"release": "joint", "loss": "exponential", "batch": 7}),
    ("binary", {"release": "joint", "loss": "log", "averaging": "polynomial-decay"}),
    ("binary", {"release": "separate", "loss": "quadratic"}),
    ("binary", {"release": "separate", "newton": False}),
    ("real", {"release": "joint", "regularization": 0.1}),
    ("real", {"release": "separate", "averaging": None}),
    ("binary", {"release": "directions", "loss": "quadratic", "regularization": 0.1}),
    ("binary", {"release": "directions", "loss": "quadratic", "intercept": False, "batch": 7}),
    ("real", {"release": "directions"}),
    ("binary", {"release": "outer", "loss": "quadratic", "regularization": 0.1}),
    ("binary", {"release": "outer", "loss": "quadratic", "intercept": False, "batch": 7, "guarantee": PureDP(2.0)}),
    ("real", {"release": "outer", "guarantee": ApproxDP(3.0, 1e-6)}),
]
every = pytest.mark.parametrize(("target", "more"), KINDS)


def vectors(made, x, y):
    """What the mechanism randomizes, by a loop in Python."""
    form, scale = made.settings.form, made.settings.scale
    rows = np.column_stack([np.clip(np.nan_to_num(x, posinf=0, neginf=0), -1, 1), np.ones(len(x))])
    if form == k.REAL:
        rows[:, -1] = scale * np.clip(y, -1, 1)
    else:
        labels = np.where(y > 0.5, 1.0, -1.0)
        rows[:, :2] *= labels[:, None] if form == k.PRODUCT else 1.0
        rows[:, -1] = labels
    if made.settings.outer:
        targets = np.clip(y, -1, 1) if form == k.OUTER_REAL else np.where(y > 0.5, 1.0, -1.0)
        rows = np.column_stack([np.clip(np.nan_to_num(x, posinf=0, neginf=0), -1, 1), np.ones(len(x))])
        rows = np.column_stack([rows, targets]) / np.sqrt(1 + (rows**2).sum(axis=1, keepdims=True))
    if made.settings.directed:
        rows = np.column_stack(
            [np.clip(np.nan_to_num(x, posinf=0, neginf=0), -1, 1), np.ones(len(x)), np.clip(y, -1, 1)]
        )
        if form == k.DIRECTED_LABEL:
            rows[:, -1] = np.where(y > 0.5, 1.0, -1.0)
            rows[:, :2] *= rows[:, -1:]
        rows /= np.sqrt(1 + (rows[:, :2] ** 2).sum(axis=1, keepdims=True))
        rows = np.column_stack([rows, np.zeros(len(x))])
    rows[np.isnan(y)] = 0.0
    if made.settings.directed:
        rows[np.isnan(y), -1] = 1.0
    return rows


@every
def test_records_are_learned_as_their_releases_would_be(target, more):
    """The update's own randomization is the mechanism's, integer for integer, and every way ends in one state."""
    x, y = records(600, target=target)
    y[::50] = math.nan
    x[::60, 0], x[::70, 1] = math.inf, -7.0
    many = engine(target, seed=5, **more)
    many.learn_records(x, y)
    one = engine(target, seed=5, **more)
    for row, value in zip(x, y, strict=True):
        one.learn_record(row, value)
    payloads = many.mechanisms["default"].randomize(vectors(many, x, y), SimulatedNoise(5), np.arange(600))
    parts, decoded = engine(target, **more), engine(target, **more)
    parts.learn_releases([release(row) for row in payloads[:111]])
    for row in payloads[111:140]:
        parts.learn_releases([release(row)])
    parts.learn_releases([release(row) for row in payloads[140:]])
    values = decoded.mechanisms["default"].decode(payloads)
    targets = np.zeros(600)
    if many.settings.directed:
        values, targets = direction_parts(many.settings.form, values)
    elif many.settings.form != k.PRODUCT and not many.settings.outer:
        targets = payloads[:, -1] * decoded.real[k.TARGET_UNIT]
        values[:, -1] = 1.0
    decoded.learn_decoded(values, targets)
    assert many.n_releases == 600
    assert many.state_dict() == one.state_dict() == parts.state_dict() == decoded.state_dict()


@every
def test_state_goes_on_bit_for_bit(target, more):
    x, y = records(500, target=target)
    made = engine(target, seed=5, **more)
    made.learn_records(x[:333], y[:333])
    state = json.loads(json.dumps(made.state_dict()))
    other = engine(target, seed=5, **more)
    other.load_state_dict(state)
    assert other.state_dict() == made.state_dict()
    for each in (made, other):
        each.learn_records(x[333:], y[333:])
    assert other.state_dict() == made.state_dict()
    for copied in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        copied.learn_records(x[:5], y[:5])
        assert copied.n_releases == 505
    assert made.n_releases == 500


@pytest.mark.parametrize("spoil", ["schema", "dimension", "settings", "rows", "sums", "triangles", "n_releases"])
def test_a_damaged_state_is_refused(spoil):
    made = engine()
    state = made.state_dict()
    for bad in (None, "x", -1, {"iterate": "!!"}):
        with pytest.raises(MurkError):
            made.load_state_dict({**state, spoil: bad})
    with pytest.raises(MurkError, match="other settings"):
        engine(loss="quadratic").load_state_dict(state)
    with pytest.raises(MurkError, match="counts"):
        made.load_state_dict({**state, "in_batch": 5})
    for name in ("n_releases", "updates", "refused", "next_refresh", "identified"):
        for bad in (2**70, 1e300, 1.5, True, -1):
            with pytest.raises(MurkError, match=name):
                made.load_state_dict({**state, name: bad})
    del state[spoil]
    with pytest.raises(MurkError, match="malformed"):
        made.load_state_dict(state)


def test_secure_noise_in_place_and_in_blocks():
    x, y = records(300)
    for more in ({}, {"release": "separate"}):
        for noise in (None, SecureNoise()):
            made = engine(noise=noise, **more)
            for row, value in zip(x[:20], y[:20], strict=True):
                made.learn_record(row, value)
            made.learn_records(x, y)
            assert made.n_releases == 320
            twin = copy.deepcopy(made)
            for each in (made, twin):
                each.learn_records(x, y)
            assert made.state_dict() != twin.state_dict()


def test_nothing_of_the_last_record_is_left():
    for more in ({}, {"release": "separate"}):
        made = engine(**more)
        made.learn_record([0.314159265, -0.27182818], 1.0)
        made.learn_records(np.array([[0.314159265, -0.27182818]]), np.array([1.0]))
        assert not made.memory.features.any()
        assert not made.real[-3:].any()
        assert not made.whole[k.WHOLE_HEADER :].any()
        assert made.whole[k.COIN] == 0


@pytest.mark.parametrize("loss", ["probit", "quadratic", "exponential", "log"])
def test_hostile_payloads_at_the_bound_break_nothing(loss):
    """13 standard deviations on every coordinate: no honest release is like it, and it is refused and counted."""
    made = engine(loss=loss, guarantee=ApproxDP(2.0, 1e-5))
    made.learn_records(*records(2000))
    bound = made.mechanisms["default"].magnitude
    before, state = made.iterate, made.refused_updates
    made.learn_releases([release([s * bound, bound, -bound]) for s in (1, -1)] * 50)
    assert made.refused_updates == state + 100
    assert made.n_releases == 2100
    assert np.array_equal(made.iterate, before)
    assert np.all(np.isfinite(made.real))


def test_refusal_takes_next_to_no_honest_release():
    """An honest release is refused with probability below 1e-13: none of 300,000 is."""
    for target, more in (("binary", {}), ("binary", {"release": "separate"}), ("real", {})):
        made = engine(target, GaussianDP(0.7), seed=1, **more)
        made.learn_records(*records(100_000, target=target))
        assert made.refused_updates == 0


@pytest.mark.parametrize("step", [1e-3, 1e3, 1e300])
def test_the_exponential_loss_never_overflows(step):
    """p = 2, eps = 2, gamma = 1e-3, as published, where plain arithmetic was seen to end in NaN; and far worse."""
    from murk.protocols.options import InverseScalingStep

    made = engine(loss="exponential", release="separate", guarantee=ApproxDP(2.0, 1e-5), newton=False, seed=2,
                  averaging=None, weighting="uniform", step=InverseScalingStep(step, 0.0), radius=1e3)  # fmt: skip
    made.learn_records(*records(50_000))
    assert np.all(np.isfinite(made.real))
    assert np.linalg.norm(made.iterate) <= 1e3 * (1 + 1e-9)


def test_plain_arithmetic_does_overflow():
    """The twin of the test above, without projection and refusal, at one of its steps."""
    rng = np.random.default_rng(2)
    x, y = records(50_000)
    s2, keep = 188.0, 1 / (1 - math.exp(-1))
    theta = np.zeros(2)
    with np.errstate(all="ignore"):
        for row, label in zip(x, np.where(y > 0, 1, -1), strict=True):
            u = (row + math.sqrt(s2) * rng.normal(size=2)) * label
            z, v = theta @ u, s2 * theta @ theta
            a, b = keep * np.exp(-z - v / 2), (1 - keep) * np.exp(z - v / 2)
            theta = theta - 1e3 * (u * (b - a) - s2 * theta * (a + b))
    assert not np.all(np.isfinite(theta)) or np.linalg.norm(theta) > 1e4


def test_admission_checks_each_coordinate():
    made = engine(release="separate")
    honest = made.mechanisms["default"].magnitudes.tolist()
    good = release([*honest[:2], -1])
    made.admit(good)
    assert made.admits([good, good])
    for payload in ([honest[0] + 1, 0, 1], [0, 0, 0], [0, 0, 2], [0, 0, -(2**40)]):
        with pytest.raises(RejectedError) as found:
            made.admit(release(payload))
        assert found.value.reason == "magnitude"
        assert not made.admits([good, release(payload), good])
    engine().admit(release([1, 2, 3]))
    assert engine().admits([release([1, 2, 3])])
    with pytest.raises(MurkError, match="3 integers"):
        made.learn_releases([release([1, 2])])
    assert made.published() is None
    assert made.publish_every >= 2**31


def test_each_release_is_learned_at_its_own_level():
    levels = {"open": GaussianDP(8.0), "strict": GaussianDP(2.5)}
    x, y = records(300)
    named = ["default", "open", "strict"] * 100
    made = engine(levels=levels, seed=3)
    made.learn_records(x, y, [made.mechanisms[name] for name in named])
    other = engine(levels=levels)
    noise = SimulatedNoise(3)
    rows = vectors(made, x, y)
    payloads = [made.mechanisms[name].randomize(rows[i : i + 1], noise, [i])[0] for i, name in enumerate(named)]
    other.learn_releases([release(row, name) for row, name in zip(payloads, named, strict=True)])
    assert made.state_dict() == other.state_dict()
    # A strict person's release weighs less, by public noise alone.
    spreads = made._level_table[0][:, k.SPREAD - k.UNIT]
    assert spreads[2] > spreads[0] > spreads[1]


def test_what_cannot_be_given_is_refused_with_what_can():
    for guarantee in (PureDP(1.0), ApproxDP(1.0, 0.0)):
        for more in ({}, {"release": "separate"}):
            with pytest.raises(UserError, match=r"ApproxDP \(delta > 0\), GaussianDP or ZeroConcentratedDP"):
                engine(guarantee=guarantee, **more)
    for guarantee in (ApproxDP(2.0, 1e-6), GaussianDP(1.0), ZeroConcentratedDP(0.5)):
        for target in ("binary", "real"):
            for form in ("joint", "separate"):
                engine(target, guarantee, release=form)
    with pytest.raises(UserError, match="largest radius that works"):
        engine(guarantee=GaussianDP(1.0), radius=1.0)
    made = engine(guarantee=GaussianDP(4.0))
    with pytest.raises(UserError, match="levels="):
        made.use(made.settings.mechanism(GaussianDP(0.5)))


@pytest.mark.parametrize(
    "bad",
    [
        {"release": "both"}, {"split": 0.0}, {"split": math.nan}, {"loss": "hinge"}, {"truncation": 2},
        {"loss": "log", "truncation": 4}, {"regularization": -1.0}, {"regularization": math.inf}, {"batch": 0},
        {"batch": 1.5}, {"averaging": "mean"}, {"weighting": "none"}, {"square": 1.0}, {"square": math.inf},
        {"radius": -1.0},
    ],
)  # fmt: skip
def test_settings_that_make_no_sense(bad):
    with pytest.raises(UserError):
        engine(**bad)


def test_the_target_factor_is_near_the_best():
    """(R^2 + u)^2 (T + 1/u), u = a^2, on a grid."""
    for square in (1.0, 5.0, 20.0):
        grid = np.geomspace(0.01, 100, 4000)
        best = grid[np.argmin((square + grid) ** 2 * (0.25 + 1 / grid))]
        assert target_scale(square) ** 2 == pytest.approx(best, rel=0.01)
    joint, apart = settings("real"), settings("real", release="separate")
    guarantee = ApproxDP(2.0, 1e-6)
    ours, theirs = (each.noise(each.mechanism(guarantee)) for each in (joint, apart))
    assert ours.variance < theirs.variance
    assert ours.target_variance < theirs.target_variance


def test_the_product_release_is_far_less_noisy():
    guarantee = ApproxDP(2.0, 1e-5)
    joint, apart = settings(), settings(release="separate")
    ours, theirs = (each.noise(each.mechanism(guarantee)) for each in (joint, apart))
    # R^2 is 3 against 2, as the constant is noised too; the whole budget against half of it.
    assert ours.variance / 3 < 0.3 * theirs.variance / 2
    assert ours.keep == 1.0 < theirs.keep


def test_partitions_merge_as_if_they_were_one():
    """With the quadratic loss the Newton step is exact, so that two merged partitions are the one that learned all."""
    x, y = records(40_000)
    made = engine(loss="quadratic", seed=1)
    payloads = made.mechanisms["default"].randomize(vectors(made, x, y), SimulatedNoise(1), np.arange(40_000))
    whole, first, second = engine(loss="quadratic"), engine(loss="quadratic"), engine(loss="quadratic")
    whole.learn_releases([release(row) for row in payloads])
    first.learn_releases([release(row) for row in payloads[:15_000]])
    second.learn_releases([release(row) for row in payloads[15_000:]])
    merged, alone = estimate([first, second]), whole.estimate()
    assert merged.values == pytest.approx(alone.values, rel=1e-6)
    assert merged.spread == pytest.approx(alone.spread, rel=0.05)
    assert (merged.partitions, merged.n_releases) == (2, 40_000)


def test_the_newton_step_is_the_exact_minimiser_of_the_mean_unbiased_loss():
    """Least squares on released examples: (mean u~u~' - D)^-1 mean u~ y, by numpy."""
    x, y = records(30_000, target="real")
    made = engine("real", seed=4, regularization=0.2)
    rows = vectors(made, x, y)
    mechanism = made.mechanisms["default"]
    values = mechanism.decode(mechanism.randomize(rows, SimulatedNoise(4), np.arange(30_000)))
    made.learn_records(x, y)
    targets = values[:, -1] / made.settings.scale
    values[:, -1] = 1.0
    d = np.diag([mechanism.variance, mechanism.variance, 0.0])
    exact = np.linalg.solve(values.T @ values / 30_000 - d + 0.2 * np.eye(3), values.T @ targets / 30_000)
    found = made.estimate()
    assert found.method == SANDWICH
    assert found.values == pytest.approx(exact, rel=1e-9)


def test_the_running_loss_is_the_mean_of_the_estimates_before_each_update():
    made = at(engine(loss="quadratic", seed=6, newton=False, weighting="uniform"), 0.0)
    x, y = records(200)
    total, seen = [], made.average
    for row, value in zip(x, y, strict=True):
        seen = made.reference
        rows = vectors(made, row[None, :], np.array([value]))
        mechanism = made.mechanisms["default"]
        u = mechanism.decode(mechanism.randomize(rows, SimulatedNoise(6), [made.n_releases]))[0]
        made.learn_record(row, value)
        total.append(0.5 * (seen @ u - 1) ** 2 - 0.5 * mechanism.variance * seen @ seen)
    mean, error = made.unbiased_loss
    assert mean == pytest.approx(np.mean(total))
    assert error == pytest.approx(np.std(total) / math.sqrt(200))
    figures = made.figures()
    assert figures["unbiased_loss"] == mean
    assert figures["unbiased_loss_error"] == error
    assert figures["refused_updates"] == 0
    assert "unbiased_loss" not in engine().figures()


def test_without_a_newton_step_intervals_are_given_where_they_are_asked_for_alone():
    digests = set()
    for asked in (None, "random-scaling"):
        made = engine(loss="quadratic", seed=6, newton=False, intervals=asked)
        made.learn_records(*records(20_000))
        found = made.estimate()
        assert np.all(np.isfinite(found.half_widths())) == (asked is not None)
        assert ("The Newton step gives better intervals" in found.note) == (asked is None)
        digests.add(made.settings.digest)
    # A query to the same state.
    assert len(digests) == 1
    with pytest.raises(UserError, match="newton=False"):
        engine(newton=True, intervals="random-scaling")
    with pytest.raises(UserError, match="'random-scaling', None"):
        engine(newton=False, intervals="others")


def test_batches_take_one_step_each():
    made = engine(batch=10, seed=1)
    made.learn_records(*records(95))
    assert (made.n_releases, int(made.whole[k.UPDATES]), int(made.whole[k.IN_BATCH])) == (95, 9, 5)


@pytest.mark.parametrize("form", ["directions", "joint"])
def test_intervals_are_not_narrower_where_the_estimate_lies_outside_the_ball(form):
    """The loss is quadratic, so that the estimate is the same; residuals at its projection have less noise."""
    rng = np.random.default_rng(4)
    x = rng.uniform(-0.25, 0.25, (20_000, 2))
    y = x @ [2.5, -1.0] + rng.uniform(-0.1, 0.1, len(x))
    near, far = (engine("real", GaussianDP(12.0), seed=4, release=form, radius=radius) for radius in (1.0, 20.0))
    for made in (near, far):
        made.learn_records(x, y)
    inside, outside = near.estimate(), far.estimate()
    assert inside.values == pytest.approx(outside.values, rel=1e-9)
    assert 2.0 < np.linalg.norm(outside.values) < 10.0
    assert np.isfinite(outside.spread).all()
    assert np.all(inside.spread >= outside.spread)
    assert np.all(inside.spread <= 4.0 * outside.spread)
