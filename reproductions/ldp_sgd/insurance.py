"""Figures 7 to 9: charges of health insurance, by Huber regression and in three classes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from murk.errors import UserError
from murk.learners import LDPSGDClassifier, LDPSGDRegressor, ScoreClassifier, ScoreRegressor
from murk.privacy import GaussianDP
from reproductions.data_file import as_numbers
from reproductions.experiment import STANDARD_ERRORS, Check, Measured, Outcome, Panel, Row, Series, Setting, Tag
from reproductions.ldp_sgd import COLUMNS, INSURANCE
from reproductions.ldp_sgd.simulate import ALPHAS, LEVELS, Floats, follow, fraction, lines, nearer, points

_ERROR_CODE = "MURK-CLI-002"

_HISTORY = {"": 0, "none": 0, "high blood pressure": 1, "diabetes": 2, "heart disease": 3}
# The paper's codes, except for regions, which it does not code: here they are in alphabetical order.
CODES: Final[Mapping[str, Mapping[str, int]]] = {
    "gender": {"female": 0, "male": 1},
    "smoker": {"no": 0, "yes": 1},
    "region": {"northeast": 0, "northwest": 1, "southeast": 2, "southwest": 3},
    "medical_history": _HISTORY,
    "family_medical_history": _HISTORY,
    "exercise_frequency": {"never": 0, "occasionally": 1, "rarely": 2, "frequently": 3},
    "occupation": {"student": 0, "unemployed": 1, "blue collar": 2, "white collar": 3},
    "coverage_level": {"basic": 0, "standard": 1, "premium": 2},
}
NUMBERS: Final = ("age", "bmi", "children")
D: Final = 11
STAND_IN: Final = (
    "Stand-in: generated records with the columns of the insurance data; they explain {explained:.0%} of the charges' "
    "variance linearly. Charges are standardized, which the paper does not say but its step needs. --data takes the "
    "real file."
)
GIVEN: Final = (
    "The file given. The paper does not say whether charges are standardized, as they are here, nor how regions are "
    "coded; here they are in alphabetical order."
)
NOISE: Final = 1000.0
"""Standard deviation of the noise in the stand-in's charges."""
FEW: Final = 5
"""Least number of shuffles for a check."""
Kind = Literal["linear", "classes"]


@dataclass(frozen=True)
class Records:
    """Coded features (n, 11), standardized charges (n,), their classes, and the stand-in's explained share."""

    X: Floats
    charges: Floats
    classes: NDArray[np.int64]
    explained: float = math.nan


def coded(column: str, words: Sequence[str]) -> Floats:
    """Return a column's text as numbers.

    Raises
    ------
    UserError
        If a value is unknown.
    """
    try:
        if column in CODES:
            codes = CODES[column]
            return np.array([codes[word.strip().lower().replace("_", " ")] for word in words], dtype=np.float64)
        return as_numbers({column: words})[column]
    except KeyError:
        expected = ", ".join(CODES[column])
        raise UserError(
            f"column {column} has values that the paper's file does not have: expected {expected}"
        ) from None


def generated(n: int, rng: np.random.Generator) -> dict[str, Floats]:
    """Draw the columns of the stand-in."""
    columns: dict[str, Floats] = {
        "age": rng.integers(18, 66, size=n).astype(np.float64),
        "bmi": rng.uniform(18.0, 50.0, size=n),
        "children": rng.integers(0, 6, size=n).astype(np.float64),
    }
    for name, codes in CODES.items():
        columns[name] = rng.integers(0, max(codes.values()) + 1, size=n).astype(np.float64)
    columns["charges"] = (
        20.0 * columns["age"] + 50.0 * columns["bmi"] + 200.0 * columns["children"] + 1000.0 * columns["gender"]
        + 5000.0 * columns["smoker"] + 100.0 * columns["region"] + 1300.0 * columns["medical_history"]
        + 1000.0 * columns["family_medical_history"] + 600.0 * columns["exercise_frequency"]
        + 500.0 * columns["occupation"] + 2500.0 * columns["coverage_level"] + NOISE * rng.normal(size=n)
    )  # fmt: skip
    return columns


def records(setting: Setting) -> Records:
    """Return the records of the paper's file, or generated ones."""
    if setting.data is not None:
        columns = {name: coded(name, words) for name, words in setting.columns(INSURANCE).items()}
    else:
        columns = generated(setting.of(tiny=15_000, reduced=250_000, full=1_000_000), setting.rng(7))
    explained = math.nan if setting.data else 1.0 - NOISE**2 / float(columns["charges"].var())
    for name in (*NUMBERS, "charges"):
        columns[name] = (columns[name] - columns[name].mean()) / max(float(columns[name].std()), 1e-12)
    charges = columns["charges"]
    classes = np.searchsorted(np.quantile(charges, [0.33, 0.66]), charges)
    return Records(np.column_stack([columns[name] for name in COLUMNS[:-1]]), charges, classes, explained)


def fig7(setting: Setting) -> Outcome:
    """Compute the test mean squared error of Huber regression with an estimated scale."""
    return _figure(setting, "linear", "mean squared error")


def fig8(setting: Setting) -> Outcome:
    """Compute the test cross-entropy of softmax regression."""
    return _figure(setting, "classes", "cross-entropy")


def fig9(setting: Setting) -> Outcome:
    """Compute the test accuracy of softmax regression."""
    return _figure(setting, "classes", "accuracy")


def _model(kind: Kind, budget: GaussianDP, alpha: float, start: Floats, seed: int) -> Any:
    common: dict[str, Any] = {
        "guarantee": budget, "eta": 0.5, "alpha": alpha, "features": list(range(D)), "seed": seed, "start": start,
    }  # fmt: skip
    if kind == "linear":
        return LDPSGDRegressor.as_published(**common)
    return LDPSGDClassifier.as_published(classes=(0, 1, 2), **common)


def _scored(what: str, theta: Floats, test: Records) -> float:
    rows = np.column_stack([test.X, np.ones(len(test.X))])
    if what == "mean squared error":
        return float(np.mean((test.charges - rows @ theta[: D + 1]) ** 2))
    scores = rows @ theta.reshape(3, D + 1).T
    return _of_scores(what, scores, test.classes)


def _of_scores(what: str, scores: Floats, classes: NDArray[np.int64]) -> float:
    if what == "accuracy":
        return float(np.mean(np.argmax(scores, axis=1) == classes))
    top = scores.max(axis=1)
    right = scores[np.arange(len(scores)), classes]
    return float(np.mean(np.log(np.exp(scores - top[:, None]).sum(axis=1)) + top - right))


def _default(kind: Kind, what: str, budget: GaussianDP, train: Records, test: Records, seed: int) -> float:
    """Return the test result of Murk's default, with 2,000 public rows of features for classes."""
    if kind == "linear":
        # Public bounds of standardized charges; dividing by 3 brings features to about 1.
        model: Any = ScoreRegressor(guarantee=budget, target_bounds=(-3.0, 3.0), features=list(range(D)), seed=seed)
        model.learn_many(train.X / 3.0, train.charges)
        return float(np.mean((test.charges - model.predict_many(test.X / 3.0)) ** 2))
    model = ScoreClassifier(
        guarantee=budget, classes=(0, 1, 2), features=list(range(D)), seed=seed, public=test.X[:2000] / 3.0
    )
    model.learn_many(train.X / 3.0, train.classes)
    chances = np.asarray(model.predict_proba_many(test.X / 3.0), dtype=np.float64)
    return _of_scores(what, np.log(np.maximum(chances, 1e-12)), test.classes)


def _figure(setting: Setting, kind: Kind, what: str) -> Outcome:
    whole = records(setting)
    rng = setting.rng(8)
    order = rng.permutation(len(whole.X))
    n = int(0.8 * len(order))
    test = _picked(whole, order[n:][: setting.of(tiny=20_000, reduced=20_000, full=len(order))])
    train = order[:n]
    shuffles = setting.of(tiny=2, reduced=2, full=50)
    alphas = setting.of(tiny=(1 / 2, 1.0), reduced=ALPHAS, full=ALPHAS)
    # The paper records every 10,000th person; log spacing shows the beginning too.
    at = points(n, 1000, 12)
    found: dict[tuple[str, float], list[Floats]] = {(level, alpha): [] for level in LEVELS for alpha in alphas}
    starts: list[float] = []
    for r in range(setting.of(tiny=shuffles, reduced=max(shuffles, FEW), full=shuffles)):
        people = _picked(whole, rng.permutation(train))
        start = rng.uniform(size=D + 1 if kind == "linear" else (3, D + 1))
        starts.append(_scored(what, start.ravel(), test))
        for place, (level, alpha) in enumerate(found):
            if r >= shuffles and (level, alpha) not in CHECKED:
                continue
            setting.tick((r + place / len(found)) / shuffles, f"shuffle {r + 1} of {shuffles}")
            model = _model(kind, LEVELS[level], alpha, start, r)
            path = follow(model, people.X, people.charges if kind == "linear" else people.classes, at)
            found[level, alpha].append(
                np.array([[_scored(what, theta, test) for theta in each] for each in path.values])
            )
    curves = {key: np.array(each) for key, each in found.items()}
    return _outcome(setting, kind, what, curves, at, _picked(whole, train), test, np.array(starts))


def _picked(whole: Records, rows: NDArray[np.int64]) -> Records:
    return Records(whole.X[rows], whole.charges[rows], whole.classes[rows], whole.explained)


def _outcome(
    setting: Setting, kind: Kind, what: str, curves: dict[tuple[str, float], Floats], at: list[int], train: Records,
    test: Records, starts: Floats,
) -> Outcome:  # fmt: skip
    alphas = sorted({alpha for _, alpha in curves})
    tag: Tag = "stand-in" if setting.data is None else "unreachable" if setting.size == "full" else "reduced"
    learner = "ScoreRegressor" if kind == "linear" else "ScoreClassifier with 2,000 rows' features public"
    source = STAND_IN.format(explained=test.explained) if setting.data is None else GIVEN
    note = f"{source} Murk's default is {learner}."
    ends = {key: [Measured.mean(each[:, row, -1]) for row in (0, 1)] for key, each in curves.items()}
    levels = [one for one in LEVELS if one != "no noise"]
    times = setting.of(tiny=2, reduced=2, full=3)
    defaults = {
        level: Measured.mean([_default(kind, what, LEVELS[level], train, test, r) for r in range(times)])
        for level in setting.of(tiny=["mu = 2"], reduced=levels, full=levels)
    }
    rows = [
        Row(
            what=f"alpha = {fraction(alpha)}, {level}: {what} of the {which}", tag=tag,
            as_published=ends[level, alpha][row],
            default=defaults.get(level) if row and alpha == 1 / 2 else None, note=note,
        )
        for level, alpha in curves
        if alpha == 1 / 2 or level == "mu = 2"
        for row, which in enumerate(("iterate", "average"))
    ]  # fmt: skip
    panels = [
        Panel(
            title=f"alpha = {fraction(alpha)}", x="people", y=f"{what} (test)", log_x=True, log_y=what != "accuracy",
            series=_series(curves, alpha, at),
        )
        for alpha in alphas
    ]  # fmt: skip
    last = {key: each[:, :, -1] for key, each in curves.items()}
    where = "the stand-in" if setting.data is None else "the file"
    return Outcome(
        rows=rows, panels=panels, checks=_checks(setting, what, last, starts),
        verdict=verdict_of(f"On {where}", what, last, starts),
    )  # fmt: skip


Last = Mapping[tuple[str, float], Floats]
"""Results of iterate and average after the last person, by budget and decay rate, ``(shuffles, 2)``."""
HALF: Final = 1 / 2
CHECKED: Final = (("no noise", HALF), ("mu = 2", HALF), ("mu = 0.5", HALF), ("mu = 2", 1.0))
FAR: Final = 0.75
"""Share of the way from the start to the noiseless end below which a run does not converge."""
COMPARABLE: Final = 2.0
"""Largest ratio to the noiseless loss, or to the noiseless accuracy's distance to 1, of comparable results."""


def travelled(last: Last, starts: Floats) -> Measured:
    """Return the share of the way from the start to the noiseless end at alpha = 1/2 that iterates go at alpha = 1.

    A run that ends further away than it started counts as 0.
    """
    one, none = last["mu = 2", 1.0][:, 0], last["no noise", HALF][:, 0]
    runs = min(len(one), len(none))
    return Measured.mean(np.maximum((one[:runs] - starts[:runs]) / (none[:runs] - starts[:runs]), 0.0))


def _checks(setting: Setting, what: str, last: Last, starts: Floats) -> list[Check]:
    def better(claim: str, one: tuple[str, float], two: tuple[str, float], place: int) -> Check:
        """Check that ``one`` is smaller than ``two``, or more accurate."""
        runs = min(len(last[one]), len(last[two]))
        first, second = last[one][:runs, place], last[two][:runs, place]
        return Check.less_paired(claim, second, first) if what == "accuracy" else nearer(claim, first, second)

    checks = [
        better("alpha = 1/2, iterate: no noise is better than mu = 0.5", ("no noise", HALF), ("mu = 0.5", HALF), 0)
    ]
    if setting.size != "tiny":
        checks += [
            better("alpha = 1/2, iterate: mu = 2 is better than mu = 0.5", ("mu = 2", HALF), ("mu = 0.5", HALF), 0),
            stuck(last, starts),
        ]
    return checks


def stuck(last: Last, starts: Floats) -> Check:
    """Check that alpha = 1 does not reach the noiseless end."""
    claim = "mu = 2, iterate: alpha = 1 goes less than three quarters of the way from the start to the noiseless end"
    return Check.less(claim, travelled(last, starts), FAR)


def claims(what: str, last: Last, starts: Floats) -> list[tuple[str, bool, str]]:
    """Return the paper's claims about the figure: text, whether it is seen, and the numbers."""
    alphas = sorted({alpha for _, alpha in last})
    levels = list(dict.fromkeys(level for level, _ in last))
    sign = -1.0 if what == "accuracy" else 1.0

    def mean(level: str, alpha: float, place: int) -> float:
        return float(last[level, alpha][:, place].mean())

    def rates(place: int) -> dict[str, float]:
        return {level: min(alphas, key=lambda alpha: sign * mean(level, alpha, place)) for level in levels}

    def left(value: float) -> float:
        return 1.0 - value if what == "accuracy" else value

    none = mean("no noise", HALF, 0)
    private = {level: mean(level, HALF, 0) for level in levels if level in ("mu = 1", "mu = 2", "mu = 3")}
    found = [(
        ("at alpha = 1/2 iterates with mu >= 1 are comparable to those without noise (at most twice the loss, or the "
        "distance to 1)"), all(left(value) <= COMPARABLE * left(none) for value in private.values()),
        f"{', '.join(f'{value:.3g} at {level}' for level, value in private.items())}, without noise {none:.3g}",
    )]  # fmt: skip
    if what != "accuracy":
        least = HALF if what == "mean squared error" else 0.0
        pairs = [(level, alpha) for level in levels for alpha in alphas if alpha >= least]
        behind = [pair for pair in pairs if mean(*pair, 1) > mean(*pair, 0)]
        found.append((
            f"averages are behind iterates{' from alpha = 1/2 on' if least else ''}", len(behind) == len(pairs),
            f"at {len(behind)} of {len(pairs)} budgets and rates",
        ))  # fmt: skip
        place, best = (1, HALF) if what == "mean squared error" else (0, 1 / 3)
        chosen = rates(place)
        found.append((
            f"at every budget the {('iterate', 'average')[place]} is best at alpha = {fraction(best)}",
            all(alpha == best for alpha in chosen.values()),
            ", ".join(f"{fraction(alpha)} at {level}" for level, alpha in chosen.items()),
        ))  # fmt: skip
    share = travelled(last, starts)
    found.append((
        "alpha = 1 does not converge", share.value + STANDARD_ERRORS * share.error < FAR,
        f"{share} of the way from the start to the noiseless end",
    ))  # fmt: skip
    return found


def verdict_of(where: str, what: str, last: Last, starts: Floats) -> str:
    """Return the verdict on the paper's claims."""
    found = claims(what, last, starts)
    count = sum(seen for _, seen, _ in found)
    opening = "Seen" if count == len(found) else "Seen in part" if count else "Not seen"
    each = [f"{'seen' if seen else 'not seen'} that {claim}: {numbers}" for claim, seen, numbers in found]
    return f"{opening} ({where.lower()}): {'; '.join(each)}."


def _series(curves: dict[tuple[str, float], Floats], alpha: float, at: list[int]) -> list[Series]:
    return [
        line
        for place, level in enumerate(LEVELS)
        for line in lines(level, at, curves[level, alpha], place)
    ]  # fmt: skip
