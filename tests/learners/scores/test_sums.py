"""Mean answers of several levels: by inverse variance, with the noise that this leaves."""

import numpy as np
import pytest

from murk.privacy import GaussianDP, PureDP
from murk.protocols.scores.mechanisms import score_mechanisms
from murk.protocols.scores.sums import Round, Tally, summaries
from tests.learners.scores.people import device_of

P = 2
LEVELS = {"default": score_mechanisms(None, GaussianDP(1.0), P), "open": score_mechanisms(None, GaussianDP(4.0), P)}


def round_(**tallies):
    found = {(level, "score"): Tally(count, total) for level, (count, total) in tallies.items()}
    device = device_of(P - 1, 1.0)
    return Round(0, device.settings.first_model(device.mechanisms), found)


def test_levels_weigh_by_the_inverse_of_their_variance():
    """Against the textbook's weighted mean of two levels' means."""
    counts, totals = {"default": 300, "open": 50}, {"default": [10**9, -(10**8)], "open": [10**8, 3 * 10**8]}
    answer = summaries([round_(**{level: (counts[level], totals[level]) for level in LEVELS})], LEVELS, P)[0].score
    mechanisms = {level: pair.score for level, pair in LEVELS.items()}
    means = {level: mechanisms[level].unit * np.array(totals[level]) / counts[level] for level in LEVELS}
    # A person differs from another by 1 / p a number at most, on average over numbers.
    precisions = {level: counts[level] / (mechanisms[level].variance + 1 / P) for level in LEVELS}
    whole = sum(precisions.values())
    shares = {level: precisions[level] / whole for level in LEVELS}
    assert answer.mean == pytest.approx(sum(shares[level] * means[level] for level in LEVELS))
    noise = sum(shares[level] ** 2 * mechanisms[level].variance / counts[level] for level in LEVELS)
    assert answer.noise == pytest.approx(noise)
    assert answer.share == pytest.approx(sum(shares[level] ** 2 / counts[level] for level in LEVELS))
    # The twin: a mean of all people alike.
    alike = sum(counts[level] * means[level] for level in LEVELS) / sum(counts.values())
    assert answer.mean != pytest.approx(alike, rel=0.1)


def test_directions_count_as_long_as_they_are():
    """Of PrivUnit, decoded payloads are added up, not their integers, whose lengths say nothing."""
    mechanisms = {"default": score_mechanisms("best", PureDP(4.0), P)}
    payloads = np.array([[3, 4], [3_000_000, 4_000_000]])
    found = round_().plus("default", "score", mechanisms["default"], payloads)
    answer = summaries([found], mechanisms, P)[0].score
    assert answer.mean == pytest.approx(mechanisms["default"].score.decode(payloads).mean(axis=0))
    assert answer.mean / np.linalg.norm(answer.mean) == pytest.approx([0.6, 0.8])
