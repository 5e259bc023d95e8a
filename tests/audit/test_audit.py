"""The audit itself: honest releases stand, those with half the noise do not, and the search finds the worst."""

import math
from functools import cache

import numpy as np
import pytest

from murk.audit import Mu, audit, catalogue
from murk.audit.catalogue import Case
from murk.audit.release_distributions import distribution_of
from murk.audit.trials import mechanism_trial
from murk.errors import UserError
from murk.privacy import GaussianDP, GaussianMechanism
from murk.privacy.mechanisms.outer_product import OuterMechanism
from murk.privacy.noise import SecureNoise, SimulatedNoise
from tests.privacy.gaussmix.test_claim import mixing_delta

# Each searched once, for all tests.
CASES = {case.name: Case(case.name, cache(case.prepare)) for case in catalogue()}
SKETCHES = [name for name in CASES if name.startswith("sketch")]
MIXING = [name for name in SKETCHES if "mixing" in name]
DRAWS = 4_000


class Half(SimulatedNoise):
    """Half the noise, and coins that turn nothing round."""

    __slots__ = ()
    divisor = 2

    def gaussian(self, records, size):
        return super().gaussian(records, size) // self.divisor

    def laplace(self, records, size):
        return super().laplace(records, size) // self.divisor

    def words(self, records, size, purpose):
        return super().words(records, size, purpose) >> np.uint64(1)


class Quarter(Half):
    """A quarter of the noise, which shows in fewer draws."""

    __slots__ = ()
    divisor = 4


def findings(name, noise, draws=DRAWS):
    return list(audit([CASES[name]], draws, noise=noise))


@pytest.mark.parametrize("name", [name for name in CASES if name not in SKETCHES])
def test_honest_releases_stand_and_half_the_noise_does_not(name):
    """Seeds are fixed; over all seeds, each honest bound fails with a probability below 1e-3."""
    honest = findings(name, SimulatedNoise(1))
    assert all(finding.holds for finding in honest)
    twin = findings(name, Half(1))
    # Laplace noise is told apart by many coordinates a little each, and shows too seldom for so few draws.
    assert not all(finding.holds for finding in twin) or (", laplace" in name)


@pytest.mark.parametrize("name", MIXING)
def test_sketches_stand(name):
    [honest] = findings(name, SimulatedNoise(1), 200 * 100)
    assert honest.holds
    assert honest.draws == 100


@pytest.mark.parametrize(("neighbours", "reached"), [("zero-out", 1.0), ("replace-one", 0.9428)])
def test_second_moments_stand_and_with_half_the_noise_they_do_not(neighbours, reached):
    """A window of one record has all of the claim; no two of the box are quite at right angles to each other."""
    name = f"sketch moments, {neighbours}"
    [honest], [twin] = (findings(name, noise, 20 * 500) for noise in (SimulatedNoise(1), Half(1)))
    assert honest.holds
    assert (honest.draws, honest.claimed) == (500, pytest.approx(1.0, rel=1e-5))
    assert honest.pair == pytest.approx(reached, rel=1e-3)
    assert honest.pair <= honest.claimed
    assert not twin.holds


@pytest.mark.parametrize(
    ("part", "neighbours", "draws", "less"),
    [
        ("first part", "zero-out", 600, Half),
        ("first part", "replace-one", 600, Half),
        ("step", "zero-out", 160, Quarter),
        ("step", "replace-one", 160, Quarter),
    ],
)
def test_newton_steps_stand_and_with_less_noise_they_do_not(part, neighbours, draws, less):
    """In whichever part of a window the record is."""
    name = f"sketch newton, {part}, {neighbours}"
    each = 100 if part == "step" else 20
    [honest], [twin] = (findings(name, noise, each * draws) for noise in (SimulatedNoise(1), less(1)))
    assert honest.holds
    assert (honest.draws, honest.claimed) == (draws, pytest.approx(1.0, rel=1e-5))
    assert not twin.holds


def test_a_sketch_with_half_the_noise_does_not_stand():
    [twin] = findings("sketch mixing, zero-out", Half(1), 200 * 600)
    assert not twin.holds


_LESS = "scores scatter, laplace", "scores once, matrix"


def test_what_the_search_finds():
    """The whole of the claim where records can reach it, and the known share of it where they cannot."""
    share = {name: CASES[name].prepare() for name in CASES if name not in SKETCHES}
    found = {name: trial.exact(trial.yardsticks[0]) for name, trial in share.items()}
    for name in (
        "examples directions, label",
        "examples directions, real",
        "examples joint, label",
        "examples joint, real",
        "examples joint, label, laplace",
        "examples separate, real",
        "moments observed, gaussian",
        "moments joint",
        *(name for name in found if name.startswith("scores") and name not in _LESS),
    ):
        assert 0.999 < found[name] <= 1.0
    # Matrices of records in whitened coordinates of public rows, which are not the longest in all directions.
    assert 0.8 < found["scores once, matrix"] < 0.9
    # Same scale component whichever way the residual is clipped: c against sqrt(c^2 + (4 c^2 / 4)^2), c = 1/2.
    assert found["gradients huber, gaussian"] == pytest.approx(0.5 / math.hypot(0.5, 0.25), rel=1e-3)
    # No record is far from both others at once: x x' and x y are not at their ends together.
    assert found["moments separate"] == pytest.approx(math.sqrt(0.5), rel=1e-3)
    assert 0.82 < found["gradients logistic, gaussian"] < 1.0
    assert found["gradients logistic, gaussian"] == max(
        _logistic_by_brute_force(share["gradients logistic, gaussian"]), found["gradients logistic, gaussian"]
    )


def _logistic_by_brute_force(trial):
    """The largest distance over 3,000 random iterates and all corners, in units of 2 C0."""
    rng = np.random.default_rng(2)
    corners = np.array([[a, b, c, 1.0] for a in (-1, 1) for b in (-1, 1) for c in (-1, 1)])
    best = 0.0
    for _ in range(3000):
        theta = rng.normal(size=4)
        theta *= 3.0 / np.linalg.norm(theta)
        chance = 1 / (1 + np.exp(-corners @ theta))
        vectors = np.concatenate([(chance - y)[:, None] * corners / 2.0 for y in (0.0, 1.0)])
        gaps = vectors[:, None, :] - vectors[None, :, :]
        best = max(best, float(np.sqrt((gaps**2).sum(axis=2)).max()))
    return best / 2.0


def test_likelihood_ratios_are_the_laws_own():
    """Their mean under the first input is mu^2 / 2; the draws' error is mu / sqrt(n)."""
    mechanism = GaussianMechanism.calibrate(GaussianDP(1.0), dimension=3, radius=2.0)
    trial = mechanism_trial(mechanism, [2.0, 0.0, 0.0], [-2.0, 0.0, 0.0])
    values = np.concatenate(list(trial.statistics(0, 40_000, SimulatedNoise(4))))
    assert abs(values.mean() - 0.5) < 5 / math.sqrt(40_000)
    distribution = distribution_of(mechanism)
    one, other = distribution.centres(np.array([[2.0, 0.0, 0.0], [-2.0, 0.0, 0.0]]))
    assert distribution.losses(one[None], one, other)[0] == pytest.approx(0.5, rel=1e-5)


@pytest.mark.parametrize("wrap", [lambda mechanism: mechanism, lambda mechanism: OuterMechanism(2, mechanism)])
def test_an_unknown_kernel_code_is_refused_by_its_number(wrap):
    """Not audited as if its noise were Gaussian, neither by itself nor within another mechanism."""

    class Unknown(GaussianMechanism):
        __slots__ = ()
        code = 99

    mechanism = wrap(Unknown.calibrate(GaussianDP(1.0), dimension=3, radius=2.0))
    with pytest.raises(UserError, match="kernel code 99"):
        mechanism_trial(mechanism, [1.0, 0.0, 0.0], [-1.0, 0.0, 0.0]).exact(Mu(1.0))


def test_the_epsilon_of_a_pair_of_windows_is_the_chi_square_laws():
    """A record alone, where mixing keeps no more than it claims; with noise a tenth less it would not."""
    trial = CASES["sketch mixing, zero-out"].prepare()
    mechanism = trial.mechanism
    assert len(trial.windows.first) == 1
    assert 0.999 < trial.windows.epsilon <= 1.0
    # Noise g, and the record's own C^2 on top of it in one direction.
    delta = mixing_delta(mechanism.g + 1, mechanism.rows, trial.windows.epsilon)
    assert delta == pytest.approx(mechanism.stated.delta, rel=1e-6)
    assert mixing_delta(0.9 * mechanism.g + 1, mechanism.rows, 1.0) > mechanism.stated.delta


def test_by_default_the_noise_is_that_of_devices(monkeypatch):
    asked = []

    def gaussian(self, records, size):
        asked.append(size)
        return SimulatedNoise(1).gaussian(records, size)

    monkeypatch.setattr(SecureNoise, "gaussian", gaussian)
    [finding] = audit([CASES["mechanism gaussian"]], 1000)
    assert asked == [5, 5]
    assert finding.holds
