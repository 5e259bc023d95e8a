"""The paper's simulated people, and the published, corrected and default learners for them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from murk.learners import PublicGLMClassifier, PublicGLMRegressor, ScoreClassifier, ScoreRegressor
from murk.learners.public_sample import KEPT, PublicSample
from murk.privacy import ApproxDP
from reproductions.public_glm.released import (
    Learner,
    Moments,
    OfMoments,
    release_moments,
    release_moments_of,
    release_scores,
)

Floats = NDArray[np.float64]
Model = Literal["logistic", "poisson", "cubic"]
Design = Literal["diagonal", "rotated", "bernoulli"]

ERROR: Final = 0.001
"""The paper's C, a bound of the cubic model's errors."""
COUNTS: Final = 8.0
"""Public bound of counts for a valid guarantee; counts exceed the paper's bound of 1."""


@dataclass(frozen=True)
class Population:
    """A design and a model in p dimensions, all coefficients ``1 / sqrt p``.

    Parameters
    ----------
    design
        ``"diagonal"``: normal with variances uniform in [0, 1]; ``"rotated"``: the same, turned at random;
        ``"bernoulli"``: each feature -1/p or 1/p.
    """

    model: Model
    design: Design
    p: int

    @property
    def truth(self) -> Floats:
        """Return w*."""
        return np.full(self.p, 1.0 / math.sqrt(self.p))

    @property
    def coding(self) -> float:
        """Return the factor by which Murk's default codes features: two values become -1 and 1."""
        return float(self.p) if self.design == "bernoulli" else 1.0

    @property
    def largest(self) -> float:
        """Return the largest ``|y|`` of the cubic model for ``|x| <= 1 / sqrt p`` and ``|w| <= 1``."""
        return math.pow(self.p, -1.5) / 3.0 + ERROR

    def covariance_root(self, rng: np.random.Generator) -> Floats:
        """Return the factor of standard normal rows."""
        root = np.diag(np.sqrt(rng.random(self.p)))
        if self.design == "rotated":
            turned, _ = np.linalg.qr(rng.normal(size=(self.p, self.p)))
            root = root @ turned.T
        return root

    def features(self, rng: np.random.Generator, n: int, root: Floats) -> Floats:
        """Draw features (n, p)."""
        if self.design == "bernoulli":
            return (2.0 * rng.integers(2, size=(n, self.p), dtype=np.int8) - 1.0) / self.p
        return np.asarray(rng.normal(size=(n, self.p)) @ root)

    def targets(self, rng: np.random.Generator, X: Floats) -> Floats:
        """Draw targets (n,)."""
        line = X @ self.truth
        if self.model == "logistic":
            return (rng.random(len(X)) < 1.0 / (1.0 + np.exp(-line))).astype(np.float64)
        if self.model == "poisson":
            return rng.poisson(np.exp(line)).astype(np.float64)
        return np.asarray(line**3 / 3.0 + rng.uniform(-ERROR, ERROR, size=len(X)))

    def error(self, found: Floats) -> float:
        """Return the squared relative error: in the l2 norm for normal features, else of the largest coefficient."""
        order = np.inf if self.design == "bernoulli" else 2
        return float(np.linalg.norm(found - self.truth, order) / np.linalg.norm(self.truth, order)) ** 2

    def turned(self, found: Floats) -> float:
        """Return the distance between the directions of estimate and truth; sqrt 2 if they are orthogonal."""
        length = float(np.linalg.norm(found))
        return float(np.linalg.norm(found / length - self.truth)) if length > 0.0 else math.sqrt(2.0)


@dataclass(frozen=True)
class People:
    """People of a population, and public rows.

    Parameters
    ----------
    printed, held
        Moments with unbounded targets, and with targets within their public bound.
    public
        Public rows without targets.
    """

    printed: Moments
    held: Moments
    public: PublicSample
    X: Floats
    y: Floats


def drawn(
    population: Population,
    counts: Sequence[int],
    rng: np.random.Generator,
    public: Sequence[int] = (),
    kept: int = KEPT,
) -> Iterator[People]:
    """Yield increasing numbers of people with as many public rows, or all people with numbers ``public`` of rows.

    As in learners, ``kept`` public rows are stored and the others enter through their moments.
    """
    root = population.covariance_root(rng)
    X = population.features(rng, max(counts), root)
    y = population.targets(rng, X)
    held = np.minimum(y, COUNTS) if population.model == "poisson" else y
    others = population.features(rng, max(public or counts), root)
    for n, m in zip(counts if not public else [max(counts)] * len(public), public or counts, strict=True):
        Z = np.column_stack([others[:m], np.ones(m)])
        printed = Moments.of(X[:n], y[:n])
        yield People(
            printed, printed if held is y else Moments.of(X[:n], held[:n]),
            PublicSample(tuple(range(population.p)), others[: min(m, kept)], m, Z.T @ Z / m), X[:n], held[:n],
        )  # fmt: skip


def published(
    population: Population, people: People, epsilon: float, delta: float, rng: np.random.Generator
) -> OfMoments:
    """Return the paper's learner after its release; counts are not bounded, as in the paper."""
    learner = _published(population, people, epsilon, delta)
    release_moments(learner, people.printed, rng)
    return learner


def noiseless(population: Population, people: People, epsilon: float, delta: float) -> OfMoments:
    """Return the paper's learner without noise."""
    learner = _published(population, people, epsilon, delta)
    release_moments(learner, people.printed, None)
    return learner


def _published(population: Population, people: People, epsilon: float, delta: float) -> OfMoments:
    more: dict[str, Any] = {"public": people.public, "features": list(range(population.p))}
    if population.design == "bernoulli":
        # The paper bounds the l1 norm, which is 1 for every row.
        more["radius"] = 1.0
    else:
        more |= {"design": "gaussian", "people": people.printed.people}
    budget = ApproxDP(epsilon, delta)
    if population.model == "logistic":
        return PublicGLMClassifier.as_published(guarantee=budget, **more)
    if population.model == "poisson":
        # The paper assumes |y| <= 1.
        return PublicGLMRegressor.as_published(
            guarantee=budget, link="exp", lipschitz=0.0, error=0.0, **more, target_bounds=(-1.0, 1.0)
        )
    return PublicGLMRegressor.as_published(guarantee=budget, link="cubic", lipschitz=1.0, error=ERROR, **more)


def corrected(
    population: Population, people: People, epsilon: float, delta: float, rng: np.random.Generator
) -> OfMoments:
    """Return a learner after one joint release of second moments, exactly calibrated and within valid bounds."""
    more: dict[str, Any] = {
        "public": people.public, "features": list(range(population.p)), "release": "joint", "mechanism": "gaussian",
        "intercept": False,
    }  # fmt: skip
    if population.design == "bernoulli":
        # Every row has this length; rounding must not make it exceed the bound.
        more["radius"] = (1.0 + 1e-9) / math.sqrt(population.p)
    else:
        more |= {"design": "gaussian", "people": people.printed.people}
    learner = _learner(population, ApproxDP(epsilon, delta), more)
    release_moments(learner, people.held, rng)
    return learner


def default(population: Population, people: People, epsilon: float, delta: float, rng: np.random.Generator) -> Learner:
    """Return Murk's default learner after its release; features of two values are coded to -1 and 1."""
    gain, public = population.coding, people.public
    scale = np.append(np.full(population.p, gain), 1.0)
    coded = PublicSample(public.names, gain * public.rows, public.total, public.moment * np.outer(scale, scale))
    more: dict[str, Any] = {"public": coded, "features": list(range(population.p))}
    budget = ApproxDP(epsilon, delta)
    if population.model == "cubic":
        moments = _learner(population, budget, more)
        release_moments_of(moments, gain * people.X, people.y / population.largest, rng)
        return moments
    if population.model == "poisson":
        counts = ScoreRegressor(guarantee=budget, interactive=False, link="exp", target_bounds=(0.0, COUNTS), **more)
        release_scores(counts, gain * people.X, 2.0 * people.y / COUNTS - 1.0, rng)
        return counts
    labels = ScoreClassifier(guarantee=budget, interactive=False, **more)
    release_scores(labels, gain * people.X, people.y, rng)
    return labels


def _learner(population: Population, budget: ApproxDP, more: dict[str, Any]) -> OfMoments:
    if population.model == "logistic":
        return PublicGLMClassifier(guarantee=budget, **more)
    if population.model == "poisson":
        return PublicGLMRegressor(guarantee=budget, link="exp", target_bounds=(0.0, COUNTS), **more)
    most = population.largest
    return PublicGLMRegressor(guarantee=budget, link="cubic", target_bounds=(-most, most), **more)
