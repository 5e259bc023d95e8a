"""Figures 3 and 5: logistic regression from sketches against objective perturbation, on stand-ins for the images."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import process_time
from typing import Final

import numpy as np

from murk.errors import UserError
from murk.privacy import ApproxDP, SimulatedNoise
from murk.privacy.central import GaussMixMechanism
from murk.protocols.summaries.surrogate import by_quadratic, quadratic
from reproductions.experiment import STANDARD_ERRORS, Check, Measured, Outcome, Panel, Row, Series, Setting
from reproductions.gaussmix.baselines import Draws, ObjectivePerturbation, minimise
from reproductions.gaussmix.draws import Matrix, Vector, Window, by_moments

FEATURES: Final = 128
TESTED: Final = 2000
RANGE: Final = 6.0
"""Q of the paper's public code; the text does not say."""
EPSILONS: Final = tuple(np.geomspace(0.1, 10**1.5, 5).round(3).tolist())
MIDDLE, LARGEST = EPSILONS[2], EPSILONS[4]
RATIOS: Final = tuple(np.arange(1.5, 8.0, 0.5).tolist())
CHOSEN: Final = 4.0
"""Rows for each feature, chosen without looking at accuracies."""
SKETCH, OBJECTIVE, MURK = "sketch", "objective perturbation", "Murk: second moments"
MAJORITY: Final = "majority class"


@dataclass(frozen=True)
class Images:
    """A stand-in for images: their name, the number of training images, and the noise on pixels."""

    name: str
    n: int
    noise: float

    @property
    def note(self) -> str:
        """Return the description of the stand-in."""
        return (
            f"For {self.name}: noisy copies of scikit-learn's digits 3 and 8 (noise {self.noise:g} on pixels of 0 to "
            f"1), {self.n:,} for training, with {FEATURES} public random features in place of a privately trained "
            "network."
        )


@dataclass(frozen=True)
class Records:
    """Features of at most length 1, and labels -1 and +1."""

    x: Matrix
    y: Vector
    x_test: Matrix
    y_test: Vector

    def accuracy(self, theta: Vector) -> float:
        """Return the share of test records that are classified correctly."""
        return float(np.mean(np.where(self.x_test @ theta > 0, 1.0, -1.0) == self.y_test))

    def loss(self, theta: Vector) -> float:
        """Return the mean log loss on the test records."""
        return float(np.mean(np.logaddexp(0.0, -self.y_test * (self.x_test @ theta))))


def drawn(images: Images, n: int, rng: np.random.Generator) -> Records:
    """Draw noisy copies of images through random features; test records are copies of other images."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise UserError(
            "the stand-in for the images needs scikit-learn: pip install scikit-learn", code="MURK-CLI-003"
        ) from error
    table = load_digits()
    chosen = np.isin(table.target, (3, 8))
    pixels, labels = table.data[chosen] / 16.0, np.where(table.target[chosen] == 8, 1.0, -1.0)
    order = rng.permutation(len(pixels))
    weights, shift = rng.normal(size=(64, FEATURES)) / 8.0, 0.1 * rng.normal(size=FEATURES)

    def copies(own: np.ndarray, count: int) -> tuple[Matrix, Vector]:
        taken = rng.choice(own, count)
        noisy = pixels[taken] + images.noise * rng.normal(size=(count, 64))
        return np.maximum(noisy @ weights + shift, 0.0), labels[taken]

    (x, y), (x_test, y_test) = copies(order[: len(order) * 4 // 5], n), copies(order[len(order) * 4 // 5 :], TESTED)
    longest = float(np.linalg.norm(x, axis=1).max())
    return Records(x / longest, y, x_test / longest, y_test)


Found = dict[tuple[str, str, float], list[float]]
"""Values by measure, method and epsilon, one for each draw of the records."""


def measured(images: Images, n: int, setting: Setting, key: int, whole: int) -> Found:
    """Return accuracies and log losses."""
    found: Found = defaultdict(list)
    repeats = setting.of(tiny=3, reduced=20, full=250)
    for repeat in range(repeats):
        rng = setting.rng(key, repeat)
        records = drawn(images, n, rng)
        z = np.column_stack([records.x, records.y])
        window = Window(z.T @ z, n)

        def put(name: str, epsilon: float, theta: Vector, records: Records = records) -> None:
            found["accuracy", name, epsilon].append(records.accuracy(theta))
            found["loss", name, epsilon].append(records.loss(theta))

        put("no privacy", 0.0, minimise(records.x * records.y[:, None], np.zeros(FEATURES), 1e-3))
        common = float(np.mean(records.y_test > 0))
        found["accuracy", MAJORITY, 0.0].append(max(common, 1.0 - common))
        for place, epsilon in enumerate(setting.of(tiny=(MIDDLE, LARGEST), reduced=EPSILONS, full=EPSILONS)):
            setting.tick((key + (repeat + place / len(EPSILONS)) / repeats) / whole, images.name)
            budget = ApproxDP(epsilon, min(1e-6, 0.01 / n))
            for ratio in setting.of(tiny=(CHOSEN,), reduced=RATIOS, full=RATIOS):
                rows = round(ratio * FEATURES)
                mechanism = GaussMixMechanism.calibrate(
                    budget, rows=rows, columns=FEATURES + 1, feature_bound=1.0, target_bound=1.0
                )
                fit = window.sketched(window.mixing_variance(mechanism, rng), rows, rng)
                put(f"{SKETCH} {ratio:g}", epsilon, by_quadratic(fit, RANGE, "chebyshev"))
                if ratio == CHOSEN:
                    put("minimax", epsilon, by_quadratic(fit, RANGE))
            rival = ObjectivePerturbation(budget, 1.0)
            draws = Draws(SimulatedNoise(int(rng.integers(2**63))))
            put(OBJECTIVE, epsilon, rival.release(records.x, records.y, draws))
            put(MURK, epsilon, by_moments(window, budget, rng, 1.0, kind="binary"))
    return found


def seconds(images: Images, setting: Setting) -> tuple[float, float, float]:
    """Return the processor times of a sketch and its solution, objective perturbation, and second moments."""
    rng = setting.rng(99)
    records = drawn(images, setting.of(tiny=500, reduced=images.n, full=images.n), rng)
    z = np.column_stack([records.x, records.y])
    times = [process_time()]
    rows = round(CHOSEN * FEATURES)
    sketch = rng.normal(size=(rows, len(z))) @ z
    np.linalg.lstsq(sketch[:, :-1], sketch[:, -1], rcond=None)
    times.append(process_time())
    ObjectivePerturbation(ApproxDP(LARGEST, 1e-6), 1.0).release(records.x, records.y, Draws(SimulatedNoise(1)))
    times.append(process_time())
    by_moments(Window(z.T @ z, len(z)), ApproxDP(LARGEST, 1e-6), rng, 1.0, kind="binary")
    times.append(process_time())
    first, second, third = np.diff(times).tolist()
    return first, second, third


def best(found: Found) -> str:
    """Return the sketch with the best test accuracy at the largest epsilon.

    The paper chooses k this way but does not say on which records.
    """
    names = sorted({name for what, name, _ in found if what == "accuracy" and name.startswith(SKETCH)})
    return max(names, key=lambda name: float(np.mean(found["accuracy", name, LARGEST])))


def _figure(chosen: Sequence[Images], setting: Setting) -> Outcome:
    rows, panels, checks = [], [], []
    gaps: dict[str, Gaps] = {}
    for key, images in enumerate(chosen):
        n = setting.of(tiny=2000, reduced=images.n, full=images.n)
        found = measured(images, n, setting, key, len(chosen))
        top, fixed = best(found), f"{SKETCH} {CHOSEN:g}"

        def of(name: str, epsilon: float, what: str = "accuracy", found: Found = found) -> Measured:
            return Measured.mean(found[what, name, epsilon])

        at = sorted({epsilon for _, name, epsilon in found if name == MURK})
        here = f"for {images.name}"
        for epsilon in at if setting.size == "tiny" else (EPSILONS[1], MIDDLE, LARGEST):
            rows += [
                Row(what=f"{here}, epsilon = {epsilon:.3g}: accuracy of the sketch", tag="stand-in", note=images.note,
                    as_published=of(top, epsilon), default=of(MURK, epsilon)),
                Row(what=f"{here}, epsilon = {epsilon:.3g}: accuracy of the sketch with k = {CHOSEN:g} d, chosen "
                    "without looking", tag="stand-in", note=images.note, as_published=of(fixed, epsilon)),
                Row(what=f"{here}, epsilon = {epsilon:.3g}: accuracy of objective perturbation", tag="stand-in",
                    note=images.note, as_published=of(OBJECTIVE, epsilon)),
            ]  # fmt: skip
        rows += [
            Row(what=f"{here}: accuracy without privacy", tag="stand-in", note=images.note,
                as_published=of("no privacy", 0.0)),
            Row(what=f"{here}: accuracy of the {MAJORITY}", tag="stand-in", note=images.note,
                as_published=of(MAJORITY, 0.0)),
            *(
                Row(what=f"{here}, epsilon = {LARGEST:.3g}: log loss of the sketch, k = 4 d, {which}", tag="stand-in",
                    note=images.note, as_published=of(name, LARGEST, "loss"), default=default)
                for which, name, default in (
                    ("the quadratic through the Chebyshev nodes", fixed, of(MURK, LARGEST, "loss")),
                    (f"the closest quadratic on [-{RANGE:g}, {RANGE:g}]", "minimax", None),
                )
            ),
            Row(what=f"{here}, epsilon = {LARGEST:.3g}: log loss of objective perturbation", tag="stand-in",
                note=images.note, as_published=of(OBJECTIVE, LARGEST, "loss")),
        ]  # fmt: skip
        checks += _checks(images.name, found, top, fixed)
        gaps[images.name] = {
            epsilon: [paired(found, one, OBJECTIVE, epsilon) for one in (top, fixed, MURK)] for epsilon in at
        }
        panels += [_panel(images.name, found, [(top, SKETCH), (OBJECTIVE, OBJECTIVE), (MURK, MURK)], at)]
    rows.append(_times(chosen[0], setting))
    distance = f"largest distance to the logistic loss on [-{RANGE:g}, {RANGE:g}] of the"
    rows += [
        Row(what=f"{distance} {which}", tag="exact", published="formula only", as_published=Measured(each.error))
        for which, each in (
            ("quadratic through the Chebyshev nodes", quadratic(RANGE, "chebyshev")),
            ("closest quadratic", quadratic(RANGE)),
        )
    ]  # fmt: skip
    return Outcome(rows=rows, panels=panels, checks=checks, verdict=verdict_of(gaps))


Gaps = dict[float, list[Measured]]
"""Accuracy minus objective perturbation's, by epsilon: best sketch, sketch with k = 4 d, second moments."""


def paired(found: Found, first: str, second: str, epsilon: float) -> Measured:
    """Return the difference of two accuracies on the same draws."""
    one, two = (np.array(found["accuracy", each, epsilon]) for each in (first, second))
    return Measured.mean(one - two)


def verdict_of(gaps: Mapping[str, Gaps]) -> str:
    """Return the verdict on whether the sketch is ahead of objective perturbation, by 4 standard errors."""

    def decided(gap: Measured, sign: float) -> bool:
        return sign * gap.value > STANDARD_ERRORS * gap.error

    def words(place: int, sign: float) -> str:
        at = {name: [f"{e:.3g}" for e, each in by.items() if decided(each[place], sign)] for name, by in gaps.items()}
        said = "; ".join(f"{', '.join(each)} for {name}" for name, each in at.items() if each)
        return f"epsilon = {said}" if said else "no epsilon"

    ahead = [decided(each[0], 1.0) for by in gaps.values() for each in by.values()]
    seen = "Seen" if all(ahead) else "Seen in part" if any(ahead) else "Not seen"

    return (
        f"{seen} on these stand-ins that the sketch is more accurate than objective perturbation: by 4 standard errors "
        f"it is so at {words(0, 1.0)}, and less accurate at {words(0, -1.0)}. With k = 4 d, chosen without "
        f"looking, it is more accurate at {words(1, 1.0)}, less at {words(1, -1.0)}. Second moments are more accurate "
        f"than objective perturbation at {words(2, 1.0)}, less at {words(2, -1.0)}."
    )


def _checks(name: str, found: Found, top: str, fixed: str) -> list[Check]:
    over = paired(found, OBJECTIVE, fixed, LARGEST)
    both = {one: np.mean([found["accuracy", one, at] for at in (MIDDLE, LARGEST)], axis=0) for one in (top, MURK)}
    same = found["accuracy", fixed, LARGEST] == found["accuracy", "minimax", LARGEST]
    return [
        Check.less(f"{name}: objective perturbation is ahead of the sketch of 4 d rows at epsilon = {LARGEST:.3g}",
                   Measured(0.0), over),
        Check.less_paired(
            f"{name}: second moments are ahead of the sketch, on average of epsilon = {MIDDLE:.3g} and {LARGEST:.3g}",
            both[top], both[MURK],
        ),
        Check(f"{name}: accuracy does not depend on the quadratic, which only scales coefficients", same,
              f"{Measured.mean(found['accuracy', fixed, LARGEST])} by both"),
    ]  # fmt: skip


def _times(images: Images, setting: Setting) -> Row:
    sketch, objective, moments = seconds(images, setting)
    return Row(
        what="processor time of objective perturbation over the method's", tag="stand-in",
        as_published=Measured(objective / sketch), default=Measured(objective / max(moments, 1e-9)),
        note="Times of this run: k = 4 d rows; Newton's method for objective perturbation.",
    )  # fmt: skip


def _panel(name: str, found: Found, shown: Sequence[tuple[str, str]], at: Sequence[float]) -> Panel:
    series = []
    for key, label in shown:
        means = [Measured.mean(found["accuracy", key, epsilon]) for epsilon in at]
        wide = [0.0 if math.isinf(one.error) else 1.96 * one.error for one in means]
        series.append(Series(
            name=label, x=at, y=[one.value for one in means],
            low=[one.value - side for one, side in zip(means, wide, strict=True)],
            high=[one.value + side for one, side in zip(means, wide, strict=True)],
        ))  # fmt: skip
    exact = float(np.mean(found["accuracy", "no privacy", 0.0]))
    return Panel(
        title=f"stand-in for {name}", x="epsilon", y="test accuracy", series=series, log_x=True, line_at=exact
    )  # fmt: skip


def fig3(setting: Setting) -> Outcome:
    """Plot accuracy by epsilon for stand-ins for Fashion-MNIST and CIFAR-100."""
    return _figure((Images("Fashion-MNIST", 12_000, 0.5), Images("CIFAR-100", 1_000, 1.0)), setting)


def fig5(setting: Setting) -> Outcome:
    """Plot accuracy by epsilon for stand-ins for CIFAR-10 and MNIST."""
    return _figure((Images("CIFAR-10", 10_000, 1.0), Images("MNIST", 11_982, 0.2)), setting)
