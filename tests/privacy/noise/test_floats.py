"""A floating-point probe on what is released: does an output prove which input it was?

Mironov (2012), "On significance of the least significant bits for differential privacy"; Haney et al.
(2022, arXiv 2207.13793).
"""

import numpy as np
import numpy.typing as npt
import pytest

from murk.privacy.mechanisms import lattice
from murk.privacy.noise import LATTICE_WIDTH, NoiseSource, SecureNoise, SimulatedNoise

from .oracle import FALSE_ALARM, uniform_p_value

Vector = npt.NDArray[np.float64]
COUNT = 100_000


def impossible(released: Vector, value: float) -> npt.NDArray[np.bool_]:
    """Outputs y for which no double n at all gives ``value + n == y``: proof that the input was another.

    The double nearest to y - value and its neighbours are tried; a sum rounds to y for these if for any.
    """
    nearest = released - value
    candidates = [nearest, np.nextafter(nearest, np.inf), np.nextafter(nearest, -np.inf)]
    return ~np.any([value + n == released for n in candidates], axis=0)


def lattice_release(value: float, noise: NoiseSource, kind: int) -> Vector:
    """One-dimensional releases of a value at scale 1: radius 1, spacing 1 / S."""
    steps, spacing = LATTICE_WIDTH, 1.0 / LATTICE_WIDTH
    records = np.arange(COUNT)
    draws = noise.laplace(records, 1) if kind == lattice.LAPLACE else noise.gaussian(records, 1)
    payload, decoded = np.empty(1, dtype=np.int64), np.empty(1)
    released, coins = np.empty(COUNT), np.zeros(3, dtype=np.uint64)
    for i in range(COUNT):
        lattice.randomize(kind, np.array([value]), (1.0, spacing, steps, np.uint64(0)), draws[i], coins, payload)
        lattice.decode(kind, payload, spacing, decoded)
        released[i] = decoded[0]
    return released


@pytest.mark.parametrize("distribution", ["normal", "laplace"])
def test_numpy_noise_fails(distribution: str) -> None:
    """Some 43% of numpy's releases of 0 prove that it was not 1; those of 1 are on a coarser grid than 0's."""
    generator = np.random.default_rng(3)
    of_zero = 0.0 + getattr(generator, distribution)(size=COUNT)
    of_one = 1.0 + getattr(generator, distribution)(size=COUNT)
    assert impossible(of_zero, 1.0).mean() > 0.4
    # Around 0 every double is in reach; but what 1 releases there is whole in units of 2^-53, and what 0
    # releases is not.
    fine = of_zero[np.abs(of_zero) < 0.25] * 2.0**53
    coarse = of_one[np.abs(of_one) < 0.25] * 2.0**53
    assert (fine != np.rint(fine)).mean() > 0.5
    assert (coarse == np.rint(coarse)).all()


@pytest.mark.parametrize("kind", [lattice.GAUSSIAN, lattice.LAPLACE], ids=["gaussian", "laplace"])
@pytest.mark.parametrize("noise", [SecureNoise(), SimulatedNoise(1)], ids=repr)
def test_lattice_noise_passes(noise: NoiseSource, kind: int) -> None:
    for value, other in ((0.0, 1.0), (1.0, 0.0)):
        released = lattice_release(value, noise, kind)
        assert not impossible(released, other).any()
        # Whatever the value, the same lattice: every output is a whole number of steps.
        assert (released * LATTICE_WIDTH == np.rint(released * LATTICE_WIDTH)).all()


def test_the_lowest_bits_do_not_depend_on_the_value() -> None:
    """Payload mod 64 for two values off the lattice: equal shares (chi-square of homogeneity, seeded)."""
    for value in (0.3, -0.7123):
        payload = np.rint(lattice_release(value, SimulatedNoise(2), lattice.GAUSSIAN) * LATTICE_WIDTH)
        counts = np.bincount(payload.astype(np.int64) & 63, minlength=64)
        assert uniform_p_value(counts) > FALSE_ALARM
