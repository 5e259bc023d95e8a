"""Laplace noise: its inverse transform against what defines it, and learning from releases that have it."""

import math

import mpmath
import numpy as np
import pytest
from scipy.stats import binom

from murk import Task
from murk.errors import MurkError, UserError
from murk.learners import Evaluated, IWPSGDClassifier, IWPSGDRegressor, UnbiasedLoss
from murk.privacy import GaussianDP, GaussianMechanism, PureDP, SimulatedNoise
from murk.protocols.examples import layout as k
from murk.protocols.examples.engine import IWPEngine
from murk.protocols.examples.laplace import derivatives, loss_estimate
from murk.protocols.examples.losses import CODES, LOGIT_WIDTH, spread
from murk.protocols.examples.settings import LARGEST_LAPLACE, settle
from murk.protocols.examples.transforms import value
from tests.learners.iwp_sgd.worlds import at, engine, records, release, settings

LABEL = ("quadratic", "exponential", "log", "probit")


def laplace(target="binary", guarantee=None, **more):
    return engine(target, PureDP(8.0) if guarantee is None else guarantee, release="joint", kind="laplace", **more)


def loss(name, z):
    return value(CODES[name], 0, LOGIT_WIDTH, z, 0.0)


# The transform


@pytest.mark.parametrize("name", ["log", "probit"])
@pytest.mark.parametrize("z", [-20.0, -0.7, 0.3, 2.5, 800.0])
def test_derivatives_of_every_order_that_is_used_are_exact(name, z):
    """Errors relative to the largest value of a derivative anywhere, about ``m! / pi^m`` and ``sqrt(m! / t^m)``."""
    found = np.zeros(2 * LARGEST_LAPLACE + 3)
    derivatives(CODES[name], LOGIT_WIDTH, z, found)
    orders = range(len(found))
    with mpmath.workdps(80):
        x, root = mpmath.mpf(z), mpmath.sqrt(LOGIT_WIDTH)
        if name == "log":
            exact = [math.factorial(m) * c for m, c in enumerate(log_series(x, len(found)))]
            scale = [math.factorial(m) / math.pi**m for m in orders]
        else:
            density = mpmath.taylor(lambda y: mpmath.npdf(y, 0, root), x, len(found) - 3)
            exact = [loss(name, z), -mpmath.ncdf(-x / root)] + [math.factorial(m) * c for m, c in enumerate(density)]
            scale = [math.sqrt(math.factorial(m) / LOGIT_WIDTH**m) for m in orders]
        errors = [abs(float(a - b)) / s for a, b, s in zip(found, exact, scale, strict=True)]
    assert max(errors[1:]) < 1e-13
    assert errors[0] < 1e-13 * max(1.0, abs(z))


def log_series(x, size):
    return mpmath.taylor(lambda y: mpmath.log(1 + mpmath.exp(-y)), x, size - 1)


def quadrature(b):
    """Nodes and weights of Laplace noise of scale b: 24 panels up to 40 b a side, ten Gauss-Legendre nodes each.

    The losses are analytic within pi / |theta| of the line, here 4 b or more. Panels are 1.7 b wide, so the error is
    below 2.6^-20 = 5e-9 of the integrand's size there, besides what lies beyond 40 b, e^(-40 (1 - b |theta|)).
    """
    x, w = np.polynomial.legendre.leggauss(10)
    edges = np.linspace(0.0, 40.0 * b, 25)
    half = edges[1] / 2.0
    nodes = ((edges[1:] + edges[:-1])[:, None] / 2.0 + half * x).ravel()
    weights = np.tile(half * w, 24) * np.exp(-nodes / b) / (2.0 * b)
    return np.concatenate([-nodes, nodes]), np.concatenate([weights, weights])


@pytest.mark.parametrize("name", LABEL)
@pytest.mark.parametrize("share", [0.3, 0.7])
def test_smoothing_by_laplace_noise_gives_the_loss_back(name, share):
    """In one dimension, for ``b theta`` of 0.3 and 0.7, to within the quadrature's error."""
    nodes, weights = quadrature(1.0)
    for z in (-1.0, 0.3, 1.7):
        scores = z + share * nodes
        found = sum(
            w * loss_estimate(CODES[name], LOGIT_WIDTH, s, np.array([share**2]))
            for s, w in zip(scores, weights, strict=True)
        )
        limit = 2 * math.exp(-40 * (1 - share)) * math.exp(1.0) / (1 - share) if name == "exponential" else 1e-7
        assert abs(found - loss(name, z)) < max(limit, 1e-7)
        # The twin: the transform of Gaussian noise of the same variance, which serves quadratic losses alone.
        terms, v = (3 if name == "log" else 0), 2.0 * share**2
        wrong = sum(w * value(CODES[name], terms, LOGIT_WIDTH, s, v) for s, w in zip(scores, weights, strict=True))
        assert (abs(wrong - loss(name, z)) > 1e-6) == (name != "quadratic")


@pytest.mark.parametrize("name", LABEL)
def test_smoothing_in_two_dimensions_gives_the_loss_back(name):
    """With different scales; the twin takes the sum of the squares as if it belonged to one coordinate."""
    nodes, weights = quadrature(1.0)
    few = weights > 1e-13
    nodes, weights = nodes[few], weights[few]
    one, other, z = 0.45, 0.3, 0.4
    found = wrong = 0.0
    for x, w in zip(nodes, weights, strict=True):
        scores = z + one * x + other * nodes
        found += w * sum(
            v * loss_estimate(CODES[name], LOGIT_WIDTH, s, np.array([one**2, other**2]))
            for s, v in zip(scores, weights, strict=True)
        )
        wrong += w * sum(
            v * loss_estimate(CODES[name], LOGIT_WIDTH, s, np.array([one**2 + other**2]))
            for s, v in zip(scores, weights, strict=True)
        )
    assert abs(found - loss(name, z)) < 1e-6
    assert (abs(wrong - loss(name, z)) > 1e-5) == (name != "quadratic")


@pytest.mark.parametrize("name", [*LABEL, "squared"])
def test_gradient_and_hessian_are_those_of_the_loss_estimate(name):
    target = "real" if name == "squared" else "binary"
    theta, u, t = np.array([0.25, -0.2, 0.15]), np.array([1.4, -2.0, 1.0]), 0.7 * (target == "real")
    guarantee = PureDP(24.0 if name == "exponential" else 8.0)
    made = at(laplace(target, guarantee, loss=name, radius=0.4, batch=8), theta)
    made.learn_decoded(u[None, :], np.array([t]))
    variances = np.full(3, made.real[k.VARIANCE])
    variances[-1] = made.real[k.CONSTANT_VARIANCE]

    def estimated(parameter):
        z = float(parameter @ u) - t
        own = variances / 2.0 * parameter**2
        return loss_estimate(CODES[name], LOGIT_WIDTH, z, own) - made.real[k.TARGET_VARIANCE] / 2.0

    h, eye = 1e-3, np.eye(3)
    weight = made.real[k.BATCH_WEIGHT]
    gradient = [(estimated(theta + h * e) - estimated(theta - h * e)) / (2 * h) for e in eye]
    assert made.rows[k.GATHERED] / weight == pytest.approx(gradient, rel=1e-4, abs=1e-5)
    assert made.unbiased_loss[0] == pytest.approx(estimated(theta))
    corners = ((1, 1), (1, -1), (-1, 1), (-1, -1))
    hessian = [
        sum(a * b * estimated(theta + h * (a * eye[i] + b * eye[j])) for a, b in corners) / (4 * h * h)
        for i in range(3)
        for j in range(i + 1)
    ]
    assert made.triangles[0] / weight == pytest.approx(hessian, rel=1e-3, abs=1e-4)
    full = np.zeros((3, 3))
    full[np.tril_indices(3)] = made.triangles[0] / weight
    full = full + np.tril(full, -1).T
    assert made.rows[k.AIMED] / weight == pytest.approx(full @ theta - made.rows[k.GATHERED] / weight)
    assert made.real[k.BEND_SQUARES] / weight**2 == pytest.approx(np.square(full).sum())


# Releases of one example in ten dimensions

BLOCKS, SIZE, P = 40, 5_000, 10
EXAMPLE = np.array([0.6, -0.8, 1.0, -0.3, 0.1, 0.9, -0.5, 0.2, -1.0, 1.0])
THETA = np.array([0.3, -0.2, 0.0, 0.1, 0.05, -0.1, 0.0, 0.05, 0.1, 0.1])


def means(name, spoil=lambda made: made):
    """Block means of gradient, loss and Hessian at THETA, of releases of one example with the label 1."""
    found = []
    names = (*"abcdefghi", "intercept")
    for seed in range(BLOCKS):
        guarantee = PureDP(80.0 if name == "exponential" else 16.0)
        made = laplace(guarantee=guarantee, loss=name, names=names, square=10.0, radius=0.5, batch=65_536)
        mechanism = made.mechanisms["default"]
        payload = mechanism.randomize(np.tile(EXAMPLE, (SIZE, 1)), SimulatedNoise(seed), np.arange(SIZE))
        made = at(spoil(made), THETA)
        made.whole[k.NEXT_REFRESH] = 2**62
        made.learn_decoded(mechanism.decode(payload), np.zeros(SIZE))
        assert made.refused_updates == 0
        weight = made.real[k.BATCH_WEIGHT]
        found.append([*made.rows[k.GATHERED] / weight, made.unbiased_loss[0], *made.triangles[0] / weight])
    return np.array(found)


def distances(name, found):
    """Deviations from the truth of the gradient, the loss and the Hessian, in standard errors."""
    f = np.zeros(5)
    derivatives(CODES[name], LOGIT_WIDTH, float(THETA @ EXAMPLE), f)
    hessian = f[2] * np.outer(EXAMPLE, EXAMPLE)[np.tril_indices(P)]
    true = np.array([*f[1] * EXAMPLE, f[0], *hessian])
    return np.abs(found.mean(axis=0) - true) / found.std(axis=0, ddof=1) * math.sqrt(BLOCKS)


def gaussian(made):
    """The same learner, with the transforms of Gaussian noise of the same variance."""
    own = made.mechanisms["default"]
    chosen = settings(names=made.settings.names, square=10.0, release="joint", loss=made.settings.loss, radius=0.5)
    noise = GaussianMechanism.calibrate(GaussianDP(1.0), dimension=P, radius=math.sqrt(own.variance) / 2.0)
    assert noise.variance == pytest.approx(own.variance, rel=1e-5)
    other = IWPEngine(settle(chosen, {"default": noise}), {"default": noise}, seed=1)
    other.use(noise)
    other.whole[k.BATCH] = 65_536
    return other


@pytest.mark.parametrize("name", LABEL)
def test_in_ten_dimensions_gradient_loss_and_hessian_are_unbiased(name):
    """66 means of 200,000: beyond 6 standard errors once in 30,000 (Student's t, 39 degrees of freedom)."""
    assert distances(name, means(name)).max() < 6


def test_in_ten_dimensions_other_corrections_are_biased():
    def halved(made):
        made.real[k.VARIANCE] *= 0.5
        made.real[k.CONSTANT_VARIANCE] *= 0.5
        return made

    for name in LABEL:
        assert distances(name, means(name, halved)).max() > 6
    assert distances("log", means("log", gaussian)).max() > 6


# Estimates

REPEATS, PEOPLE = 100, 6_000


def population():
    """64 records of dependent, skewed features and a label that no model fits, with a rare category."""
    rng = np.random.default_rng(3)
    rare = (np.arange(64) % 16 == 0) * 2.0 - 1.0
    skew = np.clip(rng.exponential(0.5, 64) - 0.8 + 0.3 * rare, -1, 1)
    y = (0.9 * skew**2 + 0.6 * skew + 0.4 * rare + rng.normal(0, 0.7, 64) > 0).astype(float)
    return np.column_stack([skew, rare]), y


def minimiser(name, x, y):
    u = np.column_stack([x, np.ones(len(x))]) * (2.0 * y - 1.0)[:, None]
    theta, f = np.zeros(3), np.zeros(5)
    for _ in range(30):
        parts = []
        for z in u @ theta:
            derivatives(CODES[name], LOGIT_WIDTH, float(z), f)
            parts.append(f[1:3].copy())
        first, second = np.array(parts).T
        theta = theta - np.linalg.solve((u * second[:, None]).T @ u, first @ u)
    return theta


@pytest.mark.parametrize("name", ["quadratic", "log", "probit"])
def test_intervals_hold_the_minimiser_on_a_hard_task(name):
    """95% intervals of 100 repeats; fewer than the limit by chance once in 10,000, where 93% of them hold it.

    The twin releases with Laplace noise and learns as if it were Gaussian noise of half the variance.
    """
    x, y = population()
    truth = minimiser(name, x, y)
    held, twin, settled = np.zeros(3), np.zeros(3), []
    for seed in range(REPEATS):
        made = laplace(guarantee=PureDP(16.0), loss=name, seed=seed)
        drawn = np.random.default_rng(seed).integers(0, 64, PEOPLE)
        wrong = laplace(guarantee=PureDP(16.0), loss=name, seed=seed)
        made.learn_records(x[drawn], y[drawn])
        mechanism = made.mechanisms["default"]
        rows = made._vectors(np.column_stack([x[drawn], np.ones(PEOPLE)]), y[drawn])
        decoded = mechanism.decode(mechanism.randomize(rows, SimulatedNoise(seed), np.arange(PEOPLE)))
        wrong.real[k.VARIANCE] *= 0.5
        wrong.real[k.CONSTANT_VARIANCE] *= 0.5
        wrong.learn_decoded(decoded, np.zeros(PEOPLE))
        for one, count in ((made, held), (wrong, twin)):
            found = one.estimate()
            count += np.abs(found.values - truth) <= found.half_widths(0.95)
        settled.append(np.isfinite(made.estimate().spread).all())
    assert np.mean(settled) > 0.95
    fewest = binom.ppf(1e-4 / 3, REPEATS, 0.93)
    assert (held >= fewest).all()
    assert (twin < fewest).any()


def test_a_spread_is_what_it_says_for_quadratic_losses():
    """Where noise dominates: (p + 4) / p times it under Laplace noise, within 5 standard errors of 200,000."""
    made = at(laplace(guarantee=PureDP(0.2), loss="quadratic", radius=1.0), theta := np.array([0.6, 0.0, 0.8]))
    noise = made.settings.noise(made.mechanisms["default"])
    n = np.random.default_rng(1).laplace(0.0, math.sqrt(noise.variance / 2.0), (200_000, 3))
    squares = np.square(n * (n @ theta - 1.0)[:, None] - noise.variance * theta).sum(axis=1)
    expected = (3 + 4) / 3 * spread("quadratic", noise, 3, made.settings.bound, 1.0)
    assert abs(squares.mean() / expected - 1.0) < 5 * squares.std() / math.sqrt(len(n)) / expected + 0.01
    assert squares.mean() > 2 * spread("quadratic", noise, 3, made.settings.bound, 1.0)


# Learners and tasks


@pytest.mark.parametrize("target", ["binary", "real"])
def test_records_rows_and_releases_are_learned_alike(target):
    x, y = records(60, target=target)
    one, many, released = (laplace(target, seed=5) for _ in range(3))
    mechanism = one.mechanisms["default"]
    for row, label in zip(x, y, strict=True):
        one.learn_record(row.tolist(), float(label))
    many.learn_records(x, y)
    vectors = one._vectors(np.column_stack([x, np.ones(60)]), y)
    payloads = mechanism.randomize(vectors, SimulatedNoise(5), np.arange(60))
    released.learn_releases([release(payload) for payload in payloads[:25]])
    state = released.state_dict()
    last = laplace(target)
    last.load_state_dict(state)
    last.learn_releases([release(payload) for payload in payloads[25:]])
    assert one.state_dict() == many.state_dict() == last.state_dict()
    with pytest.raises(MurkError, match="settings"):
        engine(target, GaussianDP(4.0), release="joint").load_state_dict(state)


def test_secure_noise_is_fresh_and_leaves_nothing_of_a_record():
    states = []
    for _ in range(2):
        made = laplace()
        made.learn_records(*records(30))
        made.learn_record([0.5, -0.5], 1.0)
        assert not made.memory.x[:-1].any()
        states.append(made.state_dict())
    assert states[0] != states[1]


def test_levels_with_more_noise_are_known_by_their_level():
    made = laplace(guarantee=PureDP(8.0), levels={"shy": PureDP(4.0)}, loss="log")
    shy = made.mechanisms["shy"]
    assert shy.variance == pytest.approx(4.0 * made.mechanisms["default"].variance, rel=1e-4)
    made.learn_releases([release([1, 2, 3], "shy"), release([1, 2, 3])])
    assert made.real[k.VARIANCE] == made.mechanisms["default"].variance
    radius = made.settings.radius
    assert radius**2 * shy.variance == pytest.approx(3.0)


def test_the_radius_is_limited_only_for_the_exponential_loss():
    for name in ("quadratic", "log", "probit"):
        assert laplace(guarantee=PureDP(1.0), loss=name, radius=2.5).settings.radius == 2.5
    scale = math.sqrt(laplace().mechanisms["default"].variance / 2.0)
    with pytest.raises(UserError, match=f"largest radius that works is {0.999 / (2 * scale):.4g}"):
        laplace(loss="exponential", radius=0.51 / scale)
    assert laplace(loss="exponential").settings.radius == pytest.approx(0.25 / scale)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"mechanism": "privunit"}, "mechanism='privunit' is for release='outer'"),
        ({"release": "separate"}, "and for release='joint'"),
        ({"loss": "log", "truncation": 2}, "truncation=2 has no effect with mechanism='laplace'"),
        ({"loss": "log", "features": list(range(16))}, "at most 16 coefficients.*not for 17"),
        ({"calibration": "classic"}, "classic"),
        ({"mechanism": None}, "mechanism='laplace' with release='joint'"),
    ],
)
def test_what_laplace_noise_cannot_do_is_refused(more, words):
    def learned():
        chosen = {"release": "joint", "mechanism": "laplace", "loss": "log"} | more
        IWPSGDClassifier(guarantee=PureDP(4.0), **chosen).learn_one(dict.fromkeys(more.get("features", "x"), 0.5), True)

    with pytest.raises(UserError, match=words):
        learned()


def test_river_estimates_the_loss_of_any_linear_model():
    """6 standard errors, against the loss of the records themselves; the Gaussian estimate is off by more."""
    rng = np.random.default_rng(2)
    x = rng.uniform(-1, 1, (40_000, 1))
    y = rng.random(40_000) < 1 / (1 + np.exp(-0.8 * x[:, 0]))
    model = IWPSGDClassifier(
        guarantee=PureDP(3.0), release="joint", mechanism="laplace", loss="log", features=["x"], radius=1.0, seed=1
    )
    model.learn_one({"x": 0.1}, True)
    mechanism = model._engine.mechanisms["default"]
    vectors = np.column_stack([x, np.ones(len(x))]) * (2.0 * y - 1.0)[:, None]
    payloads = mechanism.randomize(vectors, SimulatedNoise(4), np.arange(len(x)))
    released = [model.decoded(release(payload)) for payload in payloads]
    fixed = type("Fixed", (), {"weights": {"x": 0.8}, "intercept": 0.0})()
    found, evaluated = UnbiasedLoss("log"), Evaluated(fixed)
    wrong = UnbiasedLoss("log")
    for example, label in released:
        score = evaluated.predict_one(example)
        found.update(label, score)
        wrong.update(label, score._replace(squares=()))
    true = np.log1p(np.exp(-0.8 * x[:, 0] * (2.0 * y - 1.0))).mean()
    assert abs(found.get() - true) < 6 * found.error < abs(wrong.get() - true)
    learner = IWPSGDClassifier(
        guarantee=PureDP(3.0), release="joint", mechanism="laplace", loss="log", radius=1.0, inputs="released", seed=1
    )
    for example, label in released[:50]:
        learner.learn_one(example, label)
    assert learner.refused_updates == 0
    gaussian_one = IWPSGDClassifier(guarantee=GaussianDP(1.0), release="joint", loss="log", inputs="released", seed=1)
    with pytest.raises(UserError, match="other noise"):
        gaussian_one.learn_one(*released[0])


def test_a_regression_has_a_pure_guarantee_without_outer_products():
    model = IWPSGDRegressor(guarantee=PureDP(8.0), release="joint", mechanism="laplace", seed=1)
    for i in range(3_000):
        x = (i * 7919 % 2003) / 1001.5 - 1
        model.learn_one({"x": x}, 0.2 + 0.5 * x)
    (low, high) = model.confidence_intervals()["x"]
    assert low < 0.5 < high < low + 1.0


TASK = """
name: lap
features: [{name: dose, low: -1, high: 1}]
target: {name: ill, kind: binary, positive: "yes"}
protocol: examples
examples: {loss: probit}
"""


def test_a_task_names_the_mechanism():
    task = Task.parse(f"{TASK}privacy: {{guarantee: {{pure: {{epsilon: 4}}}}, mechanism: laplace}}\n")
    assert (task.block.release, task.privacy.mechanism) == ("joint", "laplace")
    with pytest.raises(UserError, match="say mechanism: laplace"):
        Task.parse(f"{TASK}privacy: {{guarantee: {{pure: {{epsilon: 4}}}}}}\n")
    with pytest.raises(UserError, match="'privunit' is not of this protocol; use gaussian, laplace"):
        Task.parse(f"{TASK}privacy: {{guarantee: {{pure: {{epsilon: 4}}}}, mechanism: privunit}}\n")
    classic = "privacy: {guarantee: {approx: {epsilon: 1, delta: 1e-5}}, calibration: classic}\n"
    assert Task.parse(TASK + classic).privacy.calibration == "classic"
    with pytest.raises(UserError, match="mechanism: laplace"):
        Task.parse(TASK + classic.replace("}}, ", "}}, mechanism: laplace, "))
