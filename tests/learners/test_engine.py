"""The update: one arithmetic for records and releases, exact state, versions, partitions."""

import json
import math
import os

import numpy as np
import pytest

from murk.errors import MurkError
from murk.privacy import GaussianDP, PureDP
from murk.privacy.mechanisms import calibrate
from murk.privacy.noise import Purpose, SimulatedNoise
from murk.protocols.gradients import estimate as inference
from murk.protocols.gradients import kernels as k
from murk.protocols.gradients.engine import SGDEngine
from murk.protocols.gradients.kernels import is_published
from murk.protocols.gradients.objectives import Huber, Logistic, Softmax
from murk.protocols.gradients.settings import Settings
from murk.protocols.options import InverseScalingStep
from murk.stream.wire.codec import RejectedError
from murk.stream.wire.releases import GradientRelease

NAMES = ("a", "b", "intercept")
LEVELS = {
    "default": GaussianDP(1.0),
    "strict": GaussianDP(0.5),
    "pure": PureDP(1.0),
    "ball": PureDP(1.0),
    "small": PureDP(0.1),
}
KINDS = {"ball": "l2-ball", "small": "privunit"}
OBJECTIVES = {
    "logistic": Logistic(),
    "softmax": Softmax(3),
    "huber": Huber(0.5, None, 4.0),
    "known": Huber(1.0, 2.0),
}


def build(objective="logistic", seed=None, levels=LEVELS, noise=None, covariates=None, **more):
    settings = Settings(objective=OBJECTIVES[objective], names=NAMES, **more)
    mechanisms = {
        level: calibrate(KINDS.get(level), guarantee, dimension=settings.dimension, radius=settings.bound)
        for level, guarantee in levels.items()
    }
    engine = SGDEngine(settings, mechanisms, seed=seed, noise=noise, covariates=covariates)
    engine.use(mechanisms["default"])
    return engine


def people(n, objective="logistic", seed=0):
    rng = np.random.default_rng(seed)
    x = np.column_stack([rng.normal(size=(n, 2)), np.ones(n)])
    if objective == "softmax":
        return x, rng.integers(3, size=n).astype(float)
    fit = x @ np.array([1.0, -0.5, 0.2])
    return x, (rng.random(n) < 1 / (1 + np.exp(-fit))).astype(float) if objective == "logistic" else fit + rng.normal(
        size=n
    )


def release(level, version, payload, partition=0):
    return GradientRelease(
        id="0" * 32,
        task="f" * 64,
        level=level,
        partition=partition,
        version=version,
        payload=payload,
        time=0,
        expires=0,
    )


def releases(engine, x, y, seed=9, level="default", start=0):
    """What fresh devices would send, one after another, as each is learned."""
    noise = SimulatedNoise(seed)
    mechanism = engine.mechanisms[level]
    for i in range(len(x)):
        version, iterate = engine.published()
        out = np.zeros((1, engine.dimension))
        memory = engine.memory
        k.gradients(memory.real, memory.whole, np.array(iterate), x[i : i + 1], y[i : i + 1], out)
        payload = mechanism.randomize(out, noise, np.array([start + i]))[0]
        yield release(level, version, payload.tolist())


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"second_moment": np.array([[2.0, 0.3, 0.1], [0.3, 1.0, 0.0], [0.1, 0.0, 1.0]])},
        {"weights": "mallows"},
    ],
    ids=["plain", "whitened", "mallows"],
)
def test_released_elsewhere_or_here_is_the_same(objective, level, more):
    """learn_record = device + learn_releases, bit for bit, while every iterate is published."""
    x, y = people(150, objective)
    here, there = build(objective, seed=9, **more), build(objective, **more)
    here.use(here.mechanisms[level])
    here.learn_records(x, y)
    for i, one in enumerate(releases(there, x, y, level=level)):
        # The grid publishes every version up to 400.
        assert one.version == i
        there.admit(one)
        there.learn_releases([one])
    assert here.state_dict() == there.state_dict()


def test_noise_from_a_source_is_what_is_simulated_in_place():
    """Also where some mechanisms take many vectors of noise a record (21 here) and others one."""
    x, y = people(600)
    here, drawn, one = build(seed=9), build(noise=SimulatedNoise(9)), build(noise=SimulatedNoise(9))
    mechanisms = list(here.mechanisms.values())
    assert [mechanism.draws for mechanism in mechanisms] == [1, 1, 21, 1, 1]
    assert [mechanism.kind for mechanism in mechanisms[2:]] == ["privunit", "l2-ball", "privunit"]
    own = [mechanisms[i % 5] for i in range(len(x))]
    here.learn_records(x, y, own)
    drawn.learn_records(x, y, own)
    for i, mechanism in enumerate(own):
        one.learn_record(x[i, :-1], float(y[i]), mechanism)
    assert here.state_dict() == drawn.state_dict() == one.state_dict()
    # The twin: another level somewhere in the middle is another state.
    other = build(seed=9)
    other.learn_records(x, y, [*own[:300], mechanisms[3], *own[301:]])
    assert other.state_dict() != here.state_dict()


def test_batches_of_releases_do_not_matter():
    x, y = people(900)
    one, many = build(), build()
    sent = list(releases(build(seed=1), x[:0], y[:0]))
    for item in releases(one, x, y):
        one.admit(item)
        one.learn_releases([item])
        sent.append(item)
    rng = np.random.default_rng(4)
    start = 0
    while start < len(sent):
        batch = sent[start : start + int(rng.integers(1, 200))]
        for ahead, item in enumerate(batch):
            many.admit(item, ahead)
        many.learn_releases(batch)
        start += len(batch)
    assert one.state_dict() == many.state_dict()


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("at", [0, 1, 37, 399, 400, 1234])
def test_state_goes_on_bit_for_bit(objective, at):
    x, y = people(1500, objective)
    whole = build(objective, seed=3)
    whole.learn_records(x, y)
    first = build(objective, seed=3)
    first.learn_records(x[:at], y[:at])
    text = json.dumps(first.state_dict())
    second = build(objective, seed=3)
    second.load_state_dict(json.loads(text))
    assert second.state_dict() == first.state_dict()
    second.learn_records(x[at:], y[at:])
    assert second.state_dict() == whole.state_dict()


def test_secure_noise_differs_every_time_and_secure_kernel_runs():
    x, y = people(20)
    one, two = build(), build()
    for engine in (one, two):
        for i in range(len(x)):
            engine.learn_record(x[i, :-1], float(y[i]))
    assert one.n_releases == two.n_releases == 20
    assert one.state_dict() != two.state_dict()


@pytest.mark.parametrize("level", LEVELS)
def test_words_that_do_not_suffice_are_gone_on_with(level, monkeypatch):
    """The rare path of secure noise: what is drawn is what an endless stream of the same words gives."""
    x, y = people(40)
    stream = SimulatedNoise(77).words(np.arange(4000), 8, Purpose.NOISE).ravel()

    real = k.learn_record
    # Where the kernel has no randomness, its words come from Python.
    monkeypatch.setattr(k, "learn_record", lambda at, y, trials: k.NO_WORDS if trials else real(at, y, trials))

    def run(trials):
        position = 0

        def urandom(size):
            nonlocal position
            taken = stream[position : position + size // 8]
            position += size // 8
            return taken.tobytes()

        monkeypatch.setattr(os, "urandom", urandom)
        engine = build()
        engine._trials = trials
        engine.use(engine.mechanisms[level])
        for i in range(len(x)):
            engine.learn_record(x[i, :-1], float(y[i]))
        return engine

    # One trial never suffices for three numbers: every record takes the rare path.
    assert run(1).n_releases == 40
    assert np.all(np.isfinite(run(1).iterate))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("missing", [None, k.TOO_FEW, k.NO_WORDS])
def test_secure_noise_is_of_the_same_spread_whichever_way_it_comes(level, missing, monkeypatch):
    """Mean squares of what is learned of 1,000 records whose gradient is zero.

    The mean of 3,000 numbers of a Gaussian's or Laplace's variance: its standard error is at most sqrt(5 / 3000) = 4.1%
    of it, so that 6 of them are exceeded with a probability below 1e-8. Noise of another spread by a fifth fails.
    """
    if missing == k.NO_WORDS:
        real = k.learn_record
        monkeypatch.setattr(k, "learn_record", lambda at, y, trials: k.NO_WORDS if trials else real(at, y, trials))
    engine = build()
    if missing == k.TOO_FEW:
        engine._trials = 1
    mechanism = engine.mechanisms[level]
    engine.use(mechanism)
    squares = []
    for _ in range(1000):
        before = engine.memory.rows[k.MEAN_GRADIENT].copy()
        share = 1.0 / (engine.n_releases + 1)
        engine.learn_record([0.0] * (engine.settings.features - 1), math.nan)
        squares.append((((engine.memory.rows[k.MEAN_GRADIENT] - before) / share + before) ** 2).mean())
        assert not engine.memory.words.any()
        assert not engine.memory.noise.any()
    assert np.mean(squares) == pytest.approx(mechanism.variance, rel=0.245)


def test_versions_are_checked():
    engine = build(seed=1)
    x, y = people(3000)
    engine.learn_records(x, y)
    count = engine.n_releases
    limit = engine.settings.staleness
    oldest = count - limit.limit(count)
    for version, reason in [(count + 1, "future"), (oldest - 1, "stale"), (-5, "stale")]:
        with pytest.raises(RejectedError) as error:
            engine.admit(release("default", max(version, 0), [0, 0, 0]))
        assert error.value.reason == reason
    never = next(v for v in range(count, 0, -1) if not is_published(v, limit.floor))
    with pytest.raises(RejectedError) as error:
        engine.admit(release("default", never, [0, 0, 0]))
    assert error.value.reason == "version"
    # A release that is ahead of what is learned, by others of its batch.
    engine.admit(release("default", count, [0, 0, 0]), ahead=5)


@pytest.mark.parametrize("count", [0, 1, 100, 101, 399, 400, 5000, 20_000, 123_456])
def test_every_admissible_version_is_remembered(count):
    engine = build(seed=1)
    engine.learn_records(*people(count))
    limit = engine.settings.staleness
    allowed = limit.limit(count)
    versions = [v for v in range(max(0, count - allowed), count + 1) if is_published(v, limit.floor)]
    assert versions
    for version in versions:
        engine.admit(release("default", version, [0, 0, 0]))
        assert k.find(engine.memory.whole, version) >= 0


def test_learning_what_was_not_admitted_fails():
    engine = build(seed=1)
    with pytest.raises(MurkError, match="not remembered"):
        engine.learn_releases([release("default", 7, [0, 0, 0])])


@pytest.mark.parametrize(
    "spoil",
    [
        lambda s: s.pop("rows"),
        lambda s: s.update(schema=2),
        lambda s: s.update(dimension=4),
        lambda s: s.update(sums="AAAA"),
        lambda s: s["rows"].update(iterate="not base64!"),
        lambda s: s["rows"].update(iterate=s["sums"]),
        lambda s: s["published"].update(versions=list(range(500))),
        lambda s: s.update(n_releases="many"),
        lambda s: s.update(n_releases=2**70),
        lambda s: s.update(n_releases=1e300),
        lambda s: s.update(n_releases=True),
        lambda s: s.update(n_releases=-1),
    ],
)
def test_a_malformed_state_is_refused_and_nothing_is_changed(spoil):
    engine = build(seed=1)
    engine.learn_records(*people(50))
    before = engine.state_dict()
    state = json.loads(json.dumps(before))
    spoil(state)
    with pytest.raises(MurkError):
        engine.load_state_dict(state)
    assert engine.state_dict() == before


def test_weights_steps_and_averages_are_the_formulas():
    """The update against numpy, written from the formulas, with two levels and inverse-variance weights."""
    x, y = people(1200)
    engine = build(seed=2, radius=1.2, intervals="random-scaling")
    levels = [engine.mechanisms[["default", "strict"][i % 2]] for i in range(1200)]
    engine.learn_records(x, y, levels)
    noise = SimulatedNoise(2)
    theta, average, spread = np.zeros(3), np.zeros(3), 0.0
    q_sum, m_theta, m_g = 0.0, np.zeros(3), np.zeros(3)
    path = []
    for i, mechanism in enumerate(levels):
        weight_x = 1 / max(1.0, np.linalg.norm(x[i]))
        g = (1 / (1 + np.exp(-theta @ x[i])) - y[i]) * x[i] * weight_x
        g = mechanism.decode(mechanism.randomize(g[None], noise, np.array([i])))[0]
        v = engine.settings.bound**2 / 4 + 3 * mechanism.variance
        w = 1 / v
        q_sum += w
        m_theta += w / q_sum * (theta - m_theta)
        m_g += w / q_sum * (g - m_g)
        spread += w * w * v
        theta = theta - k.STEP_SHARE * 1.2 * w / math.sqrt(2 * spread) * g
        theta *= min(1.0, 1.2 / np.linalg.norm(theta))
        average += (theta - average) / (i + 1)
        path.append(average.copy())
    memory = engine.memory
    assert np.allclose(engine.iterate, theta, rtol=1e-9)
    assert np.allclose(engine.average, average, rtol=1e-9)
    assert np.allclose(memory.rows[k.MEAN_AT], m_theta, rtol=1e-9)
    assert np.allclose(memory.rows[k.MEAN_GRADIENT], m_g, rtol=1e-9)
    s = np.arange(1, 1201)[:, None]
    v_path = np.sum(s**2 * (np.array(path) - average) ** 2, axis=0) / 1200**2
    found = inference.estimate(engine.settings, [memory])
    assert found.method == "random scaling"
    assert np.allclose(found.spread, np.sqrt(v_path / 1200), rtol=1e-6)
    assert np.allclose(found.half_widths(0.9), 5.323 * found.spread)


@pytest.mark.parametrize("alpha", [0.5, 0.75])
def test_inverse_scaling_steps_are_eta_i_to_minus_alpha(alpha):
    engine = build(seed=2, step=InverseScalingStep(0.3, alpha), radius=math.inf, weighting="uniform")
    x, y = people(5)
    before = engine.iterate
    noise = SimulatedNoise(2)
    mechanism = engine.mechanisms["default"]
    for i in range(5):
        engine.learn_records(x[i : i + 1], y[i : i + 1])
        g = (1 / (1 + np.exp(-before @ x[i])) - y[i]) * x[i] / np.linalg.norm(x[i])
        g = mechanism.decode(mechanism.randomize(g[None], noise, np.array([i])))[0]
        assert np.allclose(before - engine.iterate, 0.3 * (i + 1) ** -alpha * g, rtol=1e-6, atol=1e-9)
        before = engine.iterate


def test_polynomial_decay_and_no_averaging():
    x, y = people(200)
    last, decayed = build(seed=2, averaging=None), build(seed=2, averaging="polynomial-decay")
    average = None
    for i in range(200):
        last.learn_records(x[i : i + 1], y[i : i + 1])
        decayed.learn_records(x[i : i + 1], y[i : i + 1])
        theta = last.iterate
        average = theta if average is None else average + (theta - average) * 4 / (i + 1 + 3)
    assert np.array_equal(last.average, last.iterate)
    assert np.allclose(decayed.average, average)


def test_the_scale_stays_above_its_floor_and_the_rest_in_the_ball():
    engine = build("huber", seed=2, radius=0.5, scale_floor=0.3, step=InverseScalingStep(5.0, 0.5))
    x, y = people(500, "huber")
    for i in range(0, 500, 10):
        engine.learn_records(x[i : i + 10], y[i : i + 10])
        assert np.linalg.norm(engine.iterate[:-1]) <= 0.5 * (1 + 1e-12)
        assert engine.iterate[-1] * 4.0 >= 0.3 * (1 - 1e-12)


def test_partitions_merge_by_their_weights():
    x, y = people(3000)
    partitions = [build(seed=s) for s in (1, 2)]
    partitions[0].learn_records(x[:1000], y[:1000])
    partitions[1].learn_records(x[1000:], y[1000:])
    memories = [engine.memory for engine in partitions]
    merged = inference.estimate(partitions[0].settings, memories)
    share = 1 / 3
    assert np.allclose(merged.values, share * partitions[0].average + (1 - share) * partitions[1].average)
    assert (merged.partitions, merged.n_releases) == (2, 3000)
    single = [inference.estimate(e.settings, [e.memory]) for e in partitions]
    v = np.mean([s.spread**2 * s.n_releases for s in single], axis=0)
    assert np.allclose(merged.half_widths(0.95), 5.86 * np.sqrt(v / 3000))


def test_whitened_results_are_reported_in_the_features_own_coordinates():
    x, y = people(40_000)
    stretched = x * np.array([3.0, 0.2, 1.0])
    moment = stretched.T @ stretched / len(x)
    engine = build(seed=5, second_moment=moment, levels={"default": GaussianDP(8.0)}, radius=2.0)
    engine.learn_records(stretched, y)
    values = engine.estimate().values
    # Standard errors at mu = 8 are below 0.02 in the unstretched coordinates (A is about 0.1 I): 5 of them.
    assert np.allclose(values * np.array([3.0, 0.2, 1.0]), [1.0, -0.5, 0.2], atol=0.1)


def test_softmax_coefficients_are_centred_and_right():
    rng = np.random.default_rng(6)
    n = 60_000
    x = np.column_stack([rng.normal(size=(n, 2)), np.ones(n)])
    truth = np.array([[1.0, 0.0, 0.3], [-0.5, 0.5, -0.3], [-0.5, -0.5, 0.0]])
    scores = x @ truth.T
    y = np.argmax(scores + rng.gumbel(size=scores.shape), axis=1).astype(float)
    engine = build("softmax", seed=5, levels={"default": GaussianDP(8.0)}, radius=3.0)
    engine.learn_records(x, y)
    estimate = engine.estimate()
    values = estimate.values.reshape(3, 3)
    assert estimate.names[:3] == ("0:a", "0:b", "0:intercept")
    assert np.allclose(values.sum(axis=0), 0.0, atol=1e-12)
    assert np.allclose(values, truth, atol=0.12)
