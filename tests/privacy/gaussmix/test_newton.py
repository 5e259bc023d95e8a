"""Windows in two parts: how far neighbours are apart, what the second part is a function of, and what is wiped."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from murk.audit.release_distributions import Silence
from murk.errors import MurkError, UserError
from murk.privacy import ApproxDP, GaussianDP, NewtonAccumulator, NewtonMechanism
from murk.privacy.central.accumulators import at_model
from murk.privacy.central.newton_step import EDGE, default_first
from murk.privacy.noise import SimulatedNoise

REALS = st.floats(width=64, allow_nan=True, allow_infinity=True)
NUMBERS = st.one_of(REALS, st.sampled_from([-1.0, 0.0, 1.0]), st.floats(-2.0, 2.0))
ROW = st.lists(NUMBERS, min_size=4, max_size=4)
MODEL = st.lists(st.one_of(st.floats(-3.0, 3.0), st.floats(-1000.0, 1000.0)), min_size=3, max_size=3)
KINDS = ("zero-out", "replace-one")
MECHANISMS = {
    (kind, mu): NewtonMechanism.calibrate(
        GaussianDP(mu), columns=4, feature_bound=math.sqrt(3), first=3, neighbours=kind
    )
    for kind in KINDS
    for mu in (1e-4, 0.3, 40.0)
}
MADE = MECHANISMS["zero-out", 0.3]


def window(mechanism=MADE, model=(0.4, -1.5, 0.2), noise=None, number=0):
    at = np.array(model, dtype=float)
    return NewtonAccumulator(mechanism, lambda _: at, noise or SimulatedNoise(3), number)


def released(mechanism, rows, model, noise=None):
    made = window(mechanism, model, noise or Silence())
    made.add_block(np.array(rows, dtype=float))
    return [int(one) for one in made.release().integers]


@pytest.mark.parametrize("case", MECHANISMS, ids=str)
@settings(max_examples=40, deadline=None)
@given(rows=st.lists(ROW, min_size=6, max_size=6), other=ROW, place=st.integers(0, 5), model=MODEL)
def test_a_record_moves_one_part_alone_and_no_further_than_the_noise_is_for(case, rows, other, place, model):
    """In integers, whatever the values and the model: by its place it is in one part, and the other is the same."""
    mechanism = MECHANISMS[case]
    changed = [list(row) for row in rows]
    changed[place] = [0.0] * 4 if mechanism.neighbours == "zero-out" else other
    one, two = (released(mechanism, each, model) for each in (rows, changed))
    size = mechanism.start.dimension
    parts = [sum((a - b) ** 2 for a, b in zip(one[i : i + size], two[i : i + size], strict=True)) for i in (0, size)]
    assert parts[place < 3] == 0
    assert parts[place >= 3] <= (2 * mechanism.start.noise.steps) ** 2


@pytest.mark.parametrize("kind", KINDS)
def test_records_of_the_step_come_near_the_bound(kind):
    """Noise for much less would break the promise: features are longest at the model, labels furthest off beyond it."""
    mechanism, model = MECHANISMS[kind, 40.0], [0.0, 0.0, 1.0]
    blank = [[0.0] * 4] * 3
    second = [0.0] * 4 if kind == "zero-out" else [1.0, -1.0, 1.0, 1.0]
    pair = (released(mechanism, [*blank, row], model) for row in ([1.0, 1.0, 1.0, -1.0], second))
    distance = math.sqrt(sum((a - b) ** 2 for a, b in zip(*pair, strict=True)))
    assert 0.7 * 2 * mechanism.start.noise.steps < distance <= 2 * mechanism.start.noise.steps


def test_what_is_promised_is_what_one_release_promises():
    mechanism = NewtonMechanism.calibrate(ApproxDP(1.0, 1e-6), columns=4, feature_bound=2.0, first=100)
    assert mechanism.guarantee == ApproxDP(1.0, 1e-6)
    assert mechanism.guarantees == mechanism.start.guarantees == mechanism.step.guarantees
    for currency in ("gdp", "approx"):
        assert mechanism.cost(currency) == mechanism.start.cost(currency) == mechanism.step.cost(currency)
    assert mechanism.replace_one() == mechanism.start.replace_one() == mechanism.step.replace_one()
    assert (mechanism.step.feature_bound, mechanism.step.target_bound) == (1.0, math.exp(0.5))
    assert mechanism.to_dict()["kind"] == "newton"
    assert mechanism.parts(30) == (30, 0)
    assert mechanism.parts(130) == (100, 30)
    assert (default_first(2), default_first(100)) == (5_000, 10_000)
    for first in (0, 2**60):
        with pytest.raises(UserError, match="first"):
            NewtonMechanism(mechanism.start, first)


@settings(max_examples=80, deadline=None)
@given(rows=st.lists(st.lists(st.floats(-1.0, 1.0), min_size=3, max_size=3), min_size=1, max_size=4), model=MODEL,
       label=st.sampled_from([-1.0, 1.0]))  # fmt: skip
def test_rows_look_from_a_model_as_the_formula_has_it(rows, model, label):
    x, s = np.array(rows), np.array(model)
    out = np.full((len(x) + 1, 4), 7.0)
    at_model(np.column_stack([x, np.full(len(x), label)]), s, math.sqrt(3), EDGE, np.zeros((1, 4)), out)
    # Of more digits and a wider range than floats have.
    score = (x @ s).astype(np.longdouble)
    chance, other = 1 / (1 + np.exp(-score)), 1 / (1 + np.exp(score))
    weight, kept = chance * other, np.minimum(1, np.exp(EDGE - np.abs(score)))
    residual = other if label > 0 else -chance
    assert np.allclose(out[:-1, :3], np.asarray(np.sqrt(kept * weight), float)[:, None] * x, rtol=1e-9, atol=1e-12)
    assert np.allclose(out[:-1, 3], np.asarray(np.sqrt(kept / weight) * residual, float), rtol=1e-9, atol=1e-9)
    assert np.all(np.abs(out[:-1, 3]) <= math.exp(0.5) * (1 + 1e-11))
    assert np.all(np.linalg.norm(out[:-1, :3], axis=1) <= np.linalg.norm(x, axis=1) / 2 * (1 + 1e-12))
    assert np.all(out[-1] == 7.0)


def test_a_row_of_zeros_stays_one_and_what_is_not_finite_becomes_one():
    rows = np.array([[0.0, 0.0, 0.0, 0.0], [math.nan, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, math.inf]])
    out = np.ones((3, 4))
    at_model(rows, np.array([3.0, -1.0, 0.5]), 2.0, EDGE, np.zeros((1, 4)), out)
    assert np.all(out == 0.0)


def test_the_release_does_not_depend_on_how_rows_came():
    rows = np.random.default_rng(1).uniform(-1, 1, (5000, 4))
    rows[:, 3] = np.sign(rows[:, 3])
    mechanism = NewtonMechanism.calibrate(GaussianDP(1.0), columns=4, feature_bound=math.sqrt(3), first=1234)
    found = []
    for sizes in ([5000], [1, 1233, 3766], [1000, 1000, 3000], [617] * 8 + [64]):
        made = window(mechanism)
        for block in np.split(rows, np.cumsum(sizes)[:-1]):
            made.add_block(block)
        found.append(made.release())
    assert all(np.array_equal(each.integers, found[0].integers) for each in found)
    assert [each.records for each in found] == [5000] * 4
    first, step = mechanism.decode(found[0].integers)
    assert first[2, 2] == pytest.approx(rows[:1234, 2] @ rows[:1234, 2], abs=6 * mechanism.start.scale)
    assert abs(step[0, 0]) < 3766 / 4


def test_the_model_is_made_of_the_first_parts_release_alone():
    """Rows after it change nothing of what the model is made of; the noise of the parts is drawn once each."""
    seen = []

    def model(gram):
        seen.append((gram.integers.tolist(), gram.records))
        return np.full(3, 0.1)

    rows = np.random.default_rng(2).uniform(-1, 1, (7, 4))
    for more in (rows[3:], -rows[3:], rows[:0]):
        made = NewtonAccumulator(MADE, model, SimulatedNoise(5), 2)
        made.add_block(rows[:3])
        assert len(seen) == 1 or more is not rows
        made.add_block(more)
        made.release()
    assert seen[0] == seen[1] == seen[2]
    assert seen[0][1] == 3
    noise = SimulatedNoise(5).gaussian([2], MADE.dimension)[0]
    made = NewtonAccumulator(MADE, model, SimulatedNoise(5), 2)
    made.add_block(np.zeros((9, 4)))
    assert np.array_equal(made.release().integers, noise)
    assert not set(noise[: MADE.start.dimension].tolist()) & set(noise[MADE.start.dimension :].tolist())


def test_a_window_that_ends_early_has_a_first_part_and_nothing_but_noise_beside_it():
    made = window(noise=Silence())
    made.add_block([[1.0, 0.0, 1.0, 1.0], [0.5, 0.0, 1.0, -1.0]])
    found = made.release()
    assert found.records == 2
    first, step = MADE.decode(found.integers)
    assert first[2, 2] == pytest.approx(2.0, abs=1e-3)
    assert np.all(step == 0.0)


@pytest.mark.parametrize("rows", [0, 2, 3, 5])
def test_it_is_wiped_by_its_release_and_when_it_is_left_out(rows):
    for end in ("release", "wipe"):
        made = window()
        made.add_block(np.full((rows, 4), 0.5))
        parts = [made._start, made._step]
        getattr(made, end)()
        assert made.released
        arrays = [array for part in (made, *parts) for array in part._secrets()]
        assert len(arrays) == 10
        assert all(not array.any() for array in arrays)
        assert made._started is None
        assert not made._model.any()
        with pytest.raises(UserError, match="released or wiped"):
            made.add_block(np.zeros((1, 4)))


def test_the_first_part_is_wiped_as_soon_as_it_is_released():
    made = window()
    made.add_block(np.full((3, 4), 0.5))
    assert made._start.released
    assert not any(array.any() for array in made._start._secrets())
    assert not made.released


@pytest.mark.parametrize("bad", [[0.0, math.nan, 0.0], [0.0, 0.0]], ids=["no number", "of another length"])
def test_a_model_that_is_none_ends_the_window(bad):
    made = window(model=bad)
    with pytest.raises(MurkError, match="finite coefficients"):
        made.add_block(np.full((4, 4), 0.5))
    assert made.released
    assert not any(array.any() for part in (made._start, made._step) for array in part._secrets())
