"""The drawn values against their exact distribution, with twins of a slightly wrong scale that must be rejected.

Each p-value below `FALSE_ALARM` = 10^-6 counts as a rejection; the words are seeded.
"""

import math
import re
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from scipy.special import ndtr

from murk._internal.arrays import Integers
from murk.privacy.noise import SecureNoise
from murk.privacy.noise.distributions import GAUSSIAN_NOISE, LAPLACE_NOISE, LATTICE_WIDTH, Kind, NoiseDistribution
from murk.privacy.noise.sources import Draw

from . import reference_sampler
from .oracle import FALSE_ALARM, chi_square, sample, uniform_p_value

# How wrong a scale the tests must notice.
WRONG = {"gaussian": 1.006, "laplace": 1.014}
MANY = 2_500_000


@pytest.mark.parametrize(
    ("kind", "scale", "coarse", "width"),
    [
        ("gaussian", 3, 3, 64),
        ("gaussian", 3, 1, 6),
        ("gaussian", 16, 4, 5),
        ("gaussian", 16, 8, 64),
        ("gaussian", 48, 16, 8),
        ("laplace", 3, 1, 5),
        ("laplace", 16, 4, 8),
        ("laplace", 48, 16, 64),
        ("laplace", 48, 3, 6),
    ],
)
def test_small_scales_with_narrow_words(kind: Kind, scale: int, coarse: int, width: int) -> None:
    """2.5 million draws against the exact law; narrow words force the rare paths, and one level deeper tables."""
    distribution = NoiseDistribution(kind, scale, coarse, width, levels=2 if width == 64 else 1)
    values = sample(distribution, MANY, seed=scale * 1000 + coarse)
    assert chi_square(kind, scale, values) > FALSE_ALARM
    # Twins: the same draws against the distribution of a scale that is wrong either way.
    assert chi_square(kind, scale * WRONG[kind], values) < FALSE_ALARM
    assert chi_square(kind, scale / WRONG[kind], values) < FALSE_ALARM


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_numpy_at_small_scale(kind: Kind) -> None:
    """250,000 draws of the numpy sampler by itself; the twin's scale is 4% wrong."""
    values = sample(NoiseDistribution(kind, 12, 4, 6), 250_000, seed=5, draw=reference_sampler.draw)
    assert chi_square(kind, 12, values) > FALSE_ALARM
    assert chi_square(kind, 12 * 1.04, values) < FALSE_ALARM


def scores(kind: Kind, values: Integers, scale: float) -> dict[str, float]:
    """Standard scores of moments and tails against the continuous distribution of this scale.

    At S = 2^20 the lattice changes these by less than 10^-11, far below the 10^-4 that can be seen.
    """
    u = values / scale
    count = len(values)
    if kind == "gaussian":
        moments = {1: (0.0, 1.0), 2: (1.0, 2.0), 3: (0.0, 15.0), 4: (3.0, 96.0)}
        power, result = np.ones(count), {}
        for p, (mean, variance) in moments.items():
            power *= u
            result[f"moment {p}"] = _score(power.mean(), mean, variance, count)
    else:
        # E|u|^p = p!
        result = {"moment 1": _score(u.mean(), 0.0, 2.0, count)}
        power, size = np.ones(count), np.abs(u)
        for p in (1, 2, 3):
            power *= size
            mean, second = math.factorial(p), math.factorial(2 * p)
            result[f"absolute moment {p}"] = _score(power.mean(), mean, second - mean**2, count)
    for bound in (1, 2, 3, 4, 5):
        beyond = float(2 * ndtr(-bound)) if kind == "gaussian" else math.exp(-bound)
        share = float((np.abs(u) > bound).mean())
        result[f"beyond {bound}"] = _score(share, beyond, beyond * (1 - beyond), count)
    return result


def _score(found: float, mean: float, variance: float, count: int) -> float:
    return (found - mean) / math.sqrt(variance / count)


@pytest.mark.parametrize("distribution", [GAUSSIAN_NOISE, LAPLACE_NOISE], ids=["gaussian", "laplace"])
def test_moments_and_tails_at_full_width(distribution: NoiseDistribution) -> None:
    """2.5 x 10^6 draws: each of nine scores beyond 5.5 has a probability of 4 x 10^-8."""
    values = sample(distribution, MANY, seed=20)
    found = scores(distribution.kind, values, LATTICE_WIDTH)
    assert max(map(abs, found.values())) < 5.5, found
    for factor in (WRONG[distribution.kind], 1 / WRONG[distribution.kind]):
        twin = scores(distribution.kind, values, LATTICE_WIDTH * factor)
        assert max(map(abs, twin.values())) > 5.5, twin


@pytest.mark.parametrize("distribution", [GAUSSIAN_NOISE, LAPLACE_NOISE], ids=["gaussian", "laplace"])
def test_low_bits_and_signs_at_full_width(distribution: NoiseDistribution) -> None:
    """Of a distribution this wide the ten lowest bits are uniform (to e^-(2 pi^2 2^20)), and the sign is fair."""
    values = sample(distribution, 4_000_000, seed=21)
    assert uniform_p_value(np.bincount(values & 1023, minlength=1024)) > FALSE_ALARM
    assert uniform_p_value(np.bincount(np.sign(values[values != 0]) + 1)[[0, 2]]) > FALSE_ALARM
    # Twin: values that are even a little too often.
    values[:60_000] &= ~1
    assert uniform_p_value(np.bincount(values & 1023, minlength=1024)) < FALSE_ALARM


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_secure_noise_as_it_is_released(kind: Kind) -> None:
    """2 x 10^6 unseeded draws: false alarms once in 10^7 runs or so (nine scores beyond 5.8)."""
    noise = SecureNoise()
    draw = noise.gaussian if kind == "gaussian" else noise.laplace
    values = draw(np.arange(200_000), 10)
    found = scores(kind, values.ravel(), LATTICE_WIDTH)
    assert max(map(abs, found.values())) < 5.8, found
    twin = scores(kind, values.ravel(), LATTICE_WIDTH * 1.02)
    assert max(map(abs, twin.values())) > 5.8
    # The columns of a release are independent: ten correlations with a standard deviation of 1/sqrt(200,000).
    correlations = np.corrcoef(values.T)[np.triu_indices(10, 1)]
    assert np.abs(correlations).max() < 6 / math.sqrt(200_000)


# Errors planted in the sampler's source: (what is replaced, by what). Each must be noticed at a small scale.
PLANTED = {
    "u1 overlaps the sign": ("distribution.step_bits + 1) & mask).astype", "distribution.step_bits) & mask).astype"),
    "the negative zero is kept": ("result[negative & (result == 0)] = REJECTED", ""),
    "ties take the smaller k": ("(u1 < numerator) | (digits[k] == word)", "u1 < numerator"),
    "a tie's next word is not looked at": ("if words[level] < digit:", "if True:"),
    "von Neumann's parity": ("return trial % 2 == 1", "return trial % 2 == 0"),
    "von Neumann's K": ("tape.uniform(trial) == 0", "tape.uniform(trial) <= 1"),
    "undecided trials are dropped": ("if value != REJECTED:\n            kept", "if False:\n            kept"),
    "the cross term of the exponent": ("j * (2 * k * distribution.step + j)", "j * (k * distribution.step + j)"),
    "whole parts of the exponent": ("while accepted and wholes:", "while False:"),
}


def planted(old: str, new: str) -> Draw:
    """The numpy sampler with an error in its source."""
    source = Path(str(reference_sampler.__file__)).read_text()
    assert old in source
    module = ModuleType("planted")
    exec(compile(source.replace(old, new), "planted", "exec"), vars(module))
    draw: Draw = module.draw
    return draw


def small_p_value(draw: Draw) -> float:
    # m = 2 makes large exponents, and four bits a word make ties, as frequent as they can be.
    return chi_square("gaussian", 6, sample(NoiseDistribution("gaussian", 6, 2, width=4), 150_000, seed=8, draw=draw))


def test_no_error_is_seen_where_none_is_planted() -> None:
    assert small_p_value(planted("", "")) > FALSE_ALARM


@pytest.mark.parametrize("name", PLANTED)
def test_planted_errors_are_seen(name: str) -> None:
    assert small_p_value(planted(*PLANTED[name])) < FALSE_ALARM


def test_planted_errors_are_planted_in_one_place_or_all() -> None:
    source = Path(str(reference_sampler.__file__)).read_text()
    for old, _ in PLANTED.values():
        assert len(re.findall(re.escape(old), source)) in (1, 2)
