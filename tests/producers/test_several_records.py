"""People with several records: one answer, to the mean of their vectors or for one record drawn uniformly."""

from typing import Any

import numpy as np
import pytest

from murk.errors import UserError
from murk.privacy import GaussianDP, PureDP
from murk.privacy.mechanisms import calibrate
from murk.privacy.mechanisms.base import means_of, randomize_means
from murk.privacy.mechanisms.outer_product import outer, outer_mechanism
from murk.privacy.noise import SimulatedNoise
from murk.producers.producer import draw_records, randomize_records, records_of
from murk.protocols.device import SingleQueryDevice, device_for
from tests.producers.world import TEXT, make_task

NOISE = SimulatedNoise(11)
COUNTS = np.array([1, 3, 2, 50])
SHARP = GaussianDP(400.0)
"""So little noise that the answer is seen: 6 standard deviations are exceeded once in 5e8."""


def test_records_of_people() -> None:
    assert records_of(np.array([3, 1]), COUNTS).tolist() == [*range(6, 56), 1, 2, 3]  # type: ignore[union-attr]
    assert records_of(slice(None), COUNTS) == slice(None)
    assert records_of(np.array([2, 0]), None).tolist() == [2, 0]  # type: ignore[union-attr]


def test_the_mean_is_of_projected_vectors() -> None:
    """A long vector does not outweigh the others, and the mean is as long as one vector may be."""
    mechanism: Any = calibrate("gaussian", SHARP, dimension=3, radius=1.0)
    vectors = np.array([[0.0, 0.5, 0.0], [9.0, 0.0, 0.0], [0.0, np.nan, 0.6], [0.0, np.inf, 0.0]])
    counts = np.array([1, 3])
    released = mechanism.decode(randomize_means(mechanism, vectors, counts, NOISE, [0, 1]))
    error = 6.0 * mechanism.variance**0.5
    assert np.abs(released - [[0.0, 0.5, 0.0], [1 / 3, 0.0, 0.2]]).max() < error
    # Neither the mean before it is projected, nor one of the records, is within that.
    assert abs(3.0 - 1 / 3) > error < abs(1.0 - 1 / 3)
    # One record each is what it always was.
    several = randomize_means(mechanism, vectors, np.ones(4, dtype=np.int64), NOISE, range(4))
    assert np.array_equal(several[:3], mechanism.randomize(vectors, NOISE, range(4))[:3])
    with pytest.raises(UserError, match="takes an array of shape"):
        randomize_means(mechanism, vectors[:, :2], counts, NOISE, [0, 1])


@pytest.mark.parametrize("guarantee", [SHARP, PureDP(30.0)])
def test_a_matrix_is_the_mean_of_matrices(guarantee: Any) -> None:
    mechanism = outer_mechanism("gaussian" if guarantee is SHARP else "laplace", guarantee, 3)
    rng = np.random.default_rng(1)
    vectors = rng.uniform(-0.5, 0.5, (COUNTS.sum(), 3))
    released = mechanism.decode(randomize_means(mechanism, vectors, COUNTS, NOISE, range(4)))
    expected, error = means_of(outer(vectors, 3), COUNTS), 6.0 * mechanism.variance**0.5
    assert np.abs(released - expected).max() < error
    if guarantee is SHARP:
        # The matrix of a mean is another one.
        assert np.abs(outer(means_of(vectors, COUNTS), 3) - expected)[1:].max() > error
    one = randomize_means(mechanism, vectors[:4], np.ones(4, dtype=np.int64), NOISE, range(4))
    assert np.array_equal(one, mechanism.randomize(vectors[:4], NOISE, range(4)))


def test_a_record_is_drawn_uniformly() -> None:
    """A share of 10,000 draws is beyond 5 standard errors once in 2e6."""
    counts = np.tile([1, 3], 10_000)
    x = np.arange(counts.sum(), dtype=np.float64)[:, None]
    drawn, y = draw_records(x, x[:, 0], counts, NOISE, np.arange(len(counts)))
    assert np.array_equal(drawn[:, 0], y)
    first = np.cumsum(counts) - counts
    places = (y - first).reshape(-1, 2)
    assert not places[:, 0].any()
    shares = np.bincount(places[:, 1].astype(int), minlength=3) / 10_000
    assert len(shares) == 3
    error = 5 * (2 / 9 / 10_000) ** 0.5
    assert np.abs(shares - 1 / 3).max() < error
    # A draw by the remainder of three fair bits would be 3, 3 and 2 of 8.
    assert abs(2 / 8 - 1 / 3) > error


def people(device: Any, count: int = 12) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(3)
    counts = rng.integers(1, 6, count)
    size = device_for(make_task(text=TEXT)).dimension
    x = rng.uniform(-0.4, 0.4, (counts.sum(), size))
    x[:, -1] = 1.0
    y = rng.choice([0.0, 1.0, np.nan], counts.sum())
    return x, y, counts


def test_everybody_answers_to_their_own_records_at_their_own_model_and_level() -> None:
    text = TEXT.replace("mu: 1.0", "mu: 400").replace("mu: 0.5", "mu: 300").replace("mu: 2.0", "mu: 500")
    device: Any = device_for(make_task(text=text))
    x, y, counts = people(device)
    models = {0: device.initial, 1: device.initial + 0.5}
    partitions, levels = [0, 1] * 6, ["default", "strict", "open"] * 4
    payloads, _ = randomize_records(device, x, y, partitions, models, levels, NOISE, np.arange(12), counts)
    assert len(payloads) == 12
    for person, payload in enumerate(payloads):
        own = records_of(np.array([person]), counts)
        mechanism = device.mechanisms[levels[person]]
        vectors = device.vectors(x[own], y[own], models[partitions[person]])
        error = 6.0 * mechanism.variance**0.5
        assert np.abs(mechanism.decode([payload])[0] - vectors.mean(axis=0)).max() < error
    # The last person's mean is none of their vectors, so that it is a mean that was seen.
    assert np.abs(vectors - vectors.mean(axis=0)).max(axis=1).min() > error


def test_questions_with_few_answers_are_of_one_record() -> None:
    more = "protocol: scores\npredictions: {coverage: 0.9}"
    device: Any = device_for(make_task(more, text=TEXT.replace("mu: 1.0", "mu: 60")))
    x, y, counts = people(device)
    partitions, levels = [0] * 12, ["default"] * 12
    for query in device.queries:
        single = SingleQueryDevice(device, query)
        assert single.averages == (query in ("score", "curvature", "scatter"))
    asked = {}
    for seed in range(12):
        noise = SimulatedNoise(seed)
        payloads, queries = randomize_records(
            device, x, y, partitions, {0: device.initial}, levels, noise, np.arange(12), counts
        )
        assert queries is not None
        asked |= {query: len(payload) for query, payload in zip(queries, payloads, strict=True)}
    assert all(asked[query] == 1 for query in asked if query not in ("score", "curvature", "scatter"))


@pytest.mark.parametrize("protocol", ["scores", "gradients", "examples", "moments"])
def test_answers_to_several_records_do_not_depend_on_the_block(protocol: str) -> None:
    device: Any = device_for(make_task(f"protocol: {protocol}"))
    x, y, counts = people(device)
    model = device.initial if device.interactive else None

    def answers(own: list[int]) -> list[Any]:
        at = np.array(own)
        rows = records_of(at, counts)
        levels = ["default"] * len(at)
        given = x[rows], y[rows], [0] * len(at), {0: model}, levels, NOISE, at, counts[at]
        payloads, queries = randomize_records(device, *given)
        return list(zip(payloads, queries or payloads, strict=True))

    assert answers(list(range(12))) == answers([0, 1, 2, 3, 4]) + answers([5]) + answers([6, 7, 8, 9, 10, 11])
