"""The paper's Theorem 5.2, checked directly: releases of one example, over and over.

The mean of the update's own gradient (and loss) estimates over 200,000 releases of one example must equal the gradient
(and loss) of that example. 40 blocks give the mean's standard error; a deviation beyond 5 of them happens by chance
with probability below 2e-5 (Student's t, 39 degrees of freedom) for each of some 60 comparisons. Each correction that
is left out or made twice must be caught by the same comparison.
"""

import numpy as np
import pytest

from murk.privacy import ApproxDP, GaussianDP, SimulatedNoise
from murk.protocols.examples import layout as k
from murk.protocols.examples.directions import own_variance, parts
from murk.protocols.examples.losses import LOGIT_WIDTH
from murk.protocols.examples.transforms import LOG, slopes, value
from tests.learners.iwp_sgd.test_transforms import smoothed
from tests.learners.iwp_sgd.worlds import at, engine

BLOCKS, SIZE = 40, 5_000
EXAMPLE, THETA = np.array([0.6, -0.8, 1.0]), np.array([0.45, -0.35, 0.3])
BINARY = [(loss, form) for loss in ("probit", "quadratic", "exponential", "log") for form in ("joint", "separate")]
REAL = [("squared", form) for form in ("joint", "separate")]
DIRECTED = [("quadratic", "directions"), ("squared", "directions")]
CASES = BINARY + REAL + DIRECTED


def made(loss, form, theta, **more):
    # Guarantees weak enough for v = 0.5 or so: the correction matters, and 200,000 releases tell.
    guarantee = ApproxDP(14.0, 1e-5) if form == "separate" else GaussianDP(5.0 if form == "joint" else 3.0)
    target = "real" if loss == "squared" else "binary"
    return at(engine(target, guarantee, loss=loss, release=form, weighting="uniform", batch=65_536, radius=0.8,
                     split=0.8, newton=False, **more), theta)  # fmt: skip


def truth(loss, form, theta, y):
    """The example's own gradient and loss; for the truncated log loss those of its smoothed sum."""
    z = float(theta @ EXAMPLE)
    if form == "directions":
        # Of labels y = -1 or 1, (z y - 1)^2 = (z - y)^2.
        weight = 1.0 / float(EXAMPLE @ EXAMPLE)
        return weight * (z - y) * EXAMPLE, weight * 0.5 * (z - y) ** 2
    if loss == "squared":
        return (z - y) * EXAMPLE, 0.5 * (z - y) ** 2
    code = {"probit": 3, "quadratic": 0, "exponential": 1, "log": LOG}[loss]
    z *= y
    if loss != "log":
        return y * EXAMPLE * slopes(code, 0, LOGIT_WIDTH, z, 0.0)[0], value(code, 0, LOGIT_WIDTH, z, 0.0)
    one = made(loss, form, theta)
    d = np.full(3, one.real[k.VARIANCE])
    d[-1] = one.real[k.CONSTANT_VARIANCE]
    terms = int(one.whole[k.TERMS])

    def expected(parameter):
        v = float(parameter @ (d * parameter))
        return smoothed(lambda s: value(LOG, terms, 0.0, s, v), y * float(parameter @ EXAMPLE), v)

    h = 1e-4
    gradient = [(expected(theta + h * e) - expected(theta - h * e)) / (2 * h) for e in np.eye(3)]
    assert expected(theta) == pytest.approx(value(LOG, 0, 0.0, z, 0.0), abs=0.01), "truncation costs more than expected"
    return np.array(gradient), expected(theta)


def means(loss, form, theta, y, wrong=None):
    """Block means of the update's gradient and loss estimates; ``wrong`` spoils a correction."""
    gradients, losses = [], []
    for block in range(BLOCKS):
        one = made(loss, form, theta)
        mechanism = one.mechanisms["default"]
        row = np.append(EXAMPLE[:2], one.settings.scale * y)
        if one.settings.form == k.PRODUCT:
            row = y * EXAMPLE
        if one.settings.directed:
            row = direction(loss, y)
        payload = mechanism.randomize(np.tile(row, (SIZE, 1)), SimulatedNoise(7 + block), np.arange(SIZE))
        values = mechanism.decode(payload)
        targets = np.zeros(SIZE)
        if one.settings.directed:
            values, targets = parts(one.settings.form, values)
        elif one.settings.form != k.PRODUCT:
            targets = values[:, -1] / one.settings.scale
            values[:, -1] = 1.0
        if wrong:
            wrong(one.real)
        one.learn_decoded(values, targets)
        assert one.refused_updates == 0
        gradients.append(one.rows[k.GATHERED] / one.real[k.BATCH_WEIGHT])
        losses.append(one.unbiased_loss[0])
    return np.array(gradients), np.array(losses)


def direction(loss, y):
    """(w, a, r, whether missing) of the example."""
    inverse = 1.0 / np.linalg.norm(EXAMPLE)
    sign = 1.0 if loss == "squared" else y
    return np.array([*(sign * inverse * EXAMPLE[:2]), inverse, y * inverse, 0.0])


def distance(found, true):
    """Largest deviation of a mean from the truth, in standard errors."""
    error = found.std(axis=0, ddof=1) / np.sqrt(BLOCKS)
    return float(np.max(np.abs(found.mean(axis=0) - true) / error))


@pytest.mark.parametrize(("loss", "form"), CASES)
@pytest.mark.parametrize("y", [1.0, -1.0])
def test_gradient_and_loss_are_unbiased(loss, form, y):
    y = 0.4 * y if loss == "squared" else y
    gradients, losses = means(loss, form, THETA, y)
    gradient, own = truth(loss, form, THETA, y)
    assert distance(gradients, gradient) < 5
    assert distance(losses, own) < 5


def left_out(real):
    real[k.BOUND] = 1e9  # or else what exceeds the smaller noise would be refused
    real[k.VARIANCE] = real[k.CONSTANT_VARIANCE] = real[k.TARGET_VARIANCE] = 0.0


@pytest.mark.parametrize("loss", ["quadratic", "squared"])
def test_directions_with_another_variance_are_biased(loss):
    """The noise's variance comes from the vectors' own lengths; with 6% less of it the same comparison fails."""
    y = 0.4 if loss == "squared" else 1.0
    found, wrong, one = [], [], made(loss, "directions", THETA)
    mechanism, form = one.mechanisms["default"], one.settings.form
    for block in range(BLOCKS):
        payload = mechanism.randomize(
            np.tile(direction(loss, y), (SIZE, 1)), SimulatedNoise(7 + block), np.arange(SIZE)
        )
        values, targets = parts(form, mechanism.decode(payload))
        u, missing = values[:, :3], values[:, 3]
        v = own_variance(3, (u * u).sum(axis=1), missing)
        for out, factor in ((found, 1.0), (wrong, 0.94)):
            out.append(np.mean((u @ THETA - targets)[:, None] * u - factor * v[:, None] * THETA, axis=0))
    gradient, _ = truth(loss, "directions", THETA, y)
    assert distance(np.array(found), gradient) < 5
    assert distance(np.array(wrong), gradient) > 5


def constant_too(real):
    real[k.CONSTANT_VARIANCE] = real[k.VARIANCE]


def wrong_label_weight(real):
    real[k.KEEP] = 1.0


@pytest.mark.parametrize(("loss", "form"), BINARY + REAL)
def test_without_the_correction_it_is_biased(loss, form):
    y = 0.4 if loss == "squared" else 1.0
    gradients, losses = means(loss, form, THETA, y, left_out)
    gradient, own = truth(loss, form, THETA, y)
    assert distance(gradients, gradient) > 5
    assert distance(losses, own) > 5


@pytest.mark.parametrize("loss", ["probit", "quadratic", "exponential", "log", "squared"])
def test_with_the_public_constant_corrected_too_it_is_biased(loss):
    y = 0.4 if loss == "squared" else 1.0
    gradients, _ = means(loss, "separate", THETA, y, constant_too)
    assert distance(gradients, truth(loss, "separate", THETA, y)[0]) > 5


@pytest.mark.parametrize("loss", ["probit", "quadratic", "exponential", "log"])
def test_with_the_wrong_weight_of_a_label_it_is_biased(loss):
    gradients, losses = means(loss, "separate", THETA, 1.0, wrong_label_weight)
    gradient, own = truth(loss, "separate", THETA, 1.0)
    assert distance(gradients, gradient) > 5
    assert distance(losses, own) > 5


@pytest.mark.parametrize(("loss", "form"), [("quadratic", "separate"), ("exponential", "separate")])
def test_the_variance_of_a_flipped_labels_loss_is_a_variance(loss, form):
    """Appendix D.4 prints second moments for its two examples: the square of the loss is to be subtracted.

    Without feature noise the loss estimate takes two values, S~ f(z) + (1 - S~) f(-z) and the same with -z, so its
    variance is S~ (S~ - 1) (f(z) - f(-z))^2, exactly.
    """
    one = made(loss, form, THETA)
    one.real[k.VARIANCE] = 0.0
    keep, z = one.real[k.KEEP], float(THETA @ EXAMPLE)
    code = 0 if loss == "quadratic" else 1
    both = np.array([value(code, 0, 0.0, z, 0.0), value(code, 0, 0.0, -z, 0.0)])
    kept = 1.0 - (1.0 - 1.0 / keep) / (2.0 - 1.0 / keep)  # S from S~ = 1 / (1 - e^-eps)
    values = np.array([keep * both[0] + (1 - keep) * both[1], keep * both[1] + (1 - keep) * both[0]])
    mean = kept * values[0] + (1 - kept) * values[1]
    second = kept * values[0] ** 2 + (1 - kept) * values[1] ** 2
    assert mean == pytest.approx(both[0])
    assert second - mean**2 == pytest.approx(keep * (keep - 1) * (both[0] - both[1]) ** 2)
    assert second == pytest.approx(keep * (keep - 1) * (both[0] - both[1]) ** 2 + both[0] ** 2)
    assert both[0] ** 2 > 1e-5
