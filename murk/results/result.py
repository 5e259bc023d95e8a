"""Results that can be printed, plotted, shown in a notebook and saved: of tasks, and of learners in process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from html import escape
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal

from numpy.typing import NDArray

from murk._internal.arrays import Floats
from murk._internal.numbers import as_json, rebuilt
from murk.errors import UserError
from murk.inference.contrasts import Contrast
from murk.inference.estimate import Estimate
from murk.inference.units import Unit, probability_units, units_beside
from murk.privacy import Guarantee
from murk.results.coefficients import Coefficient, coefficient
from murk.results.diagnosis import categories, diagnose
from murk.results.html import folded, result_html
from murk.results.predictions import predict, predicted_intervals, predicted_sets
from murk.results.report import describe_forgetting, describe_level, report_estimate
from murk.results.text import SIMULATED, as_text, describe_learned, describe_privacy
from murk.task.coding import of_interest
from murk.task.protocols.base import Scale
from murk.task.task import Task

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

_ERROR_CODE = "MURK-LEARN-001"


@dataclass(frozen=True, repr=False, eq=False)
class Result:
    """Coefficients, their intervals, and the guarantee to the people whose releases were learned from.

    ``print(result)`` shows all of it, a notebook shows a table, and ``result["age"]`` is one coefficient.

    Parameters
    ----------
    report
        The dictionary that the command line prints with ``--json``. It depends on records only through releases.
    history
        The estimate's path, a list for each field, as in the report of ``murk status``.
    task
        The task with which `predict` codes records.
    estimate
        The estimate, for intervals of predictions.

    Examples
    --------
    >>> from murk.learners import ScoreRegressor
    >>> from murk.privacy import GaussianDP
    >>> learner = ScoreRegressor(guarantee=GaussianDP(mu=4.0), features=["dose"], seed=1)
    >>> for i in range(4_000):
    ...     dose = (i * 7919 % 2003) / 1001.5 - 1
    ...     learner.learn_one({"dose": dose}, 0.5 * dose)
    >>> result = learner.summary()
    >>> result
    <Result of ScoreRegressor: 4,000 releases, 2 coefficients, simulated>
    >>> low, high = result["dose"].interval
    >>> bool(low < 0.5 < high)
    True
    """

    report: Mapping[str, Any]
    history: Mapping[str, Any] | None = None
    task: Task | None = None
    estimate: Estimate | None = None

    def __post_init__(self) -> None:
        # Nobody can write to it.
        object.__setattr__(self, "report", rebuilt(self.report, MappingProxyType, tuple))
        object.__setattr__(self, "history", rebuilt(self.history, MappingProxyType, tuple))

    @property
    def name(self) -> str:
        """The task's name, or the learner's class."""
        return str(self.report["task"])

    @property
    def n_releases(self) -> int:
        """Number of releases learned from."""
        return int(self.report["releases"])

    @cached_property
    def coefficients(self) -> Mapping[str, Coefficient]:
        """The coefficients by name, in the order of the features, the constant's last."""
        return MappingProxyType({name: coefficient(self.report, name) for name in self.report["coefficients"]})

    def __getitem__(self, name: str) -> Coefficient:
        try:
            return self.coefficients[name]
        except KeyError:
            raise UserError(f"there is no coefficient {name!r}; there are {', '.join(self.coefficients)}") from None

    def __iter__(self) -> Iterator[Coefficient]:
        return iter(self.coefficients.values())

    def __len__(self) -> int:
        return len(self.coefficients)

    @property
    def not_learned(self) -> tuple[str, ...]:
        """Names of the coefficients that were not learned at this privacy."""
        return tuple(self.report["not_learned"])

    @property
    def diagnosis(self) -> str:
        """Why some coefficients are useless, and what would help most; empty if none is useless."""
        return str(self.report["diagnosis"]["words"]) if self.report["diagnosis"] else ""

    @property
    def level(self) -> float:
        """Nominal level of the intervals."""
        return float(self.report["interval"]["level"])

    @property
    def method(self) -> str:
        """Method of the intervals."""
        return str(self.report["interval"]["method"])

    @property
    def looks(self) -> str:
        """Level of the intervals and the looks at which they hold, such as ``"95% at every look"``."""
        looks = self.report["interval"].get("looks")
        return str(looks["words"]) if looks else f"{100.0 * self.level:g}% at this look only"

    @cached_property
    def contrasts(self) -> Mapping[str, Contrast]:
        """The task's contrasts of categories by name, each with a p-value and an e-value that hold at every look."""
        return MappingProxyType({each["name"]: Contrast(**each) for each in self.report.get("contrasts", ())})

    @property
    def track(self) -> Mapping[str, Any] | None:
        """The estimates of each window and the smoothed path, as in the report; None if the task has no track."""
        track: Mapping[str, Any] | None = self.report.get("track")
        return track

    @property
    def caveats(self) -> tuple[str, ...]:
        """Notes to read before using the numbers: on the intervals, on people's further rows, on simulated noise."""
        simulated = (SIMULATED,) if self.report["simulated"] else ()
        counted = tuple(str(self.report[key]) for key in ("counted_rows", "repeats") if self.report.get(key))
        return (str(self.report["interval"]["note"]), *counted, *simulated)

    @property
    def promise(self) -> Mapping[str, str]:
        """Guarantee of each release in words, by level."""
        return MappingProxyType({level: str(each["words"]) for level, each in self.report["levels"].items()})

    @property
    def simulated(self) -> bool:
        """Whether the noise was drawn from a seed, so that nobody was protected."""
        return bool(self.report["simulated"])

    def predict(self, records: Any) -> Floats:
        """Predict the target of raw records: a sequence of mappings, or a frame or mapping of columns.

        Returns the probability of a binary target's positive value, (m,), of each class, (m, K), or a real target's
        mean within its bounds, (m,). Raises UserError for a learner's result, and for coefficients that predict
        neither.
        """
        if self.task is None:
            raise UserError("this result has no task: predict with its learner (predict_many)")
        return predict(self.task, self.report["coefficients"], records)

    def predict_intervals(self, records: Any) -> Floats:
        """Return intervals of what `predict` returns, (m, 2), or (m, K, 2) for classes, in the target's units.

        Each interval contains the model's probability or mean at these features, not a person's target, with the
        result's level at its `looks`; they do not hold jointly. Raises UserError like `predict`, and if the intervals'
        method gives no covariance (random scaling).
        """
        return predicted_intervals(*self._fit(), records, self.report["interval"]["nominal_level"])

    def predict_sets(self, records: Any) -> NDArray[Any]:
        """Return prediction sets of raw records, each of which contains a person's target with the nominal coverage.

        For a real target these are the ends of intervals, (m, 2), in its units; for labels, whether each label is in
        the set, boolean (m, K), with a binary target's positive value last. Sets belong to the predictions at which
        people answered. Raises UserError like `predict`, if the task asks for no sets, or too few people have answered.
        """
        return predicted_sets(*self._fit(), records)

    def _fit(self) -> tuple[Task, Estimate]:
        if self.task is None or self.estimate is None:
            raise UserError("this result has no task or no estimate: only results of murk.run and murk.fit have both")
        return self.task, self.estimate

    def __repr__(self) -> str:
        missing = f" ({len(self.not_learned)} not learned)" if self.not_learned else ""
        simulated = ", simulated" if self.simulated else ""
        return f"<Result of {self.name}: {self.n_releases:,} releases, {len(self)} coefficients{missing}{simulated}>"

    def __str__(self) -> str:
        text = as_text(describe_learned(self.report)) + "\n" + as_text(describe_privacy(self.report))
        return text + (f"\n{SIMULATED}" if self.simulated else "")

    def _repr_html_(self) -> str:
        return result_html(self.report, list(self))

    def to_json(self) -> str:
        """Return the report as JSON, like the command line's ``--json``; numbers that are not finite are null."""
        return as_json(self.report)

    def to_frame(self) -> DataFrame:
        """Return the coefficients as a tidy pandas data frame: a row for each coefficient and scale.

        Columns are ``name``, ``estimate``, ``std_error``, ``low``, ``high``, ``unit``, ``scale`` and ``says``, which is
        ``"not learned"``, ``"too wide"``, or empty for a useful interval. Scales are ``"coded"``, those of
        `Coefficient`, and ``"odds ratio"``. Unknown values are NaN: average effects and odds ratios have no standard
        error. Raises UserError if pandas is not installed.

        ``frame[frame.scale == "percentage points"].set_index("name")`` has the effects on a probability.
        """
        try:
            from pandas import DataFrame
        except ImportError as error:
            raise UserError("to_frame() needs pandas: pip install pandas", code="MURK-CLI-003") from error
        frame = DataFrame([row for each in self for row in each.rows()])
        return frame.astype(dict.fromkeys(("estimate", "std_error", "low", "high"), "float64"))

    def plot(self, kind: Literal["forest", "curve", "track"] = "forest", *, names: list[str] | None = None) -> Figure:
        """Return a picture of all coefficients but the intercept, or of those in ``names``.

        ``kind`` is ``"forest"``, an interval for each; ``"curve"``, a panel for each (at most six by default) with
        the estimate and its 95% interval over the number of releases; or ``"track"``, a panel for each with the
        estimates by window and the smoothed path, with bands. Raises UserError if matplotlib is not installed,
        a name or a kind is unknown, or there is no history or track to draw.
        """
        from murk.results.plot import curve, forest, track

        if kind not in ("forest", "curve", "track"):
            raise UserError(f'kind={kind!r} is not one of "forest", "curve", "track"')
        names_drawn = of_interest(list(self.coefficients)) if names is None else names
        chosen = [self[name] for name in names_drawn]
        if kind == "track":
            return track(self.report, [each.name for each in chosen])
        return forest(self.report, chosen) if kind == "forest" else curve(self.report, self.history, chosen)

    def __reduce__(self) -> tuple[Any, ...]:
        # Frozen mappings cannot be copied or pickled.
        report, history = (rebuilt(each, dict, list) for each in (self.report, self.history))
        return Result, (report, history, self.task, self.estimate)


_CAP: Final = "Each call of learn_one, and each row of learn_many, is one release of one person."
_WINDOWS: Final = "Each window of records is one release: a record is in one window."


def summarize(
    learner: Any, estimate: Estimate, scale: Scale, task: Task | None, level: float, *, forecast: bool = True
) -> Result:
    """Return a learner's result; raise UserError if nothing was learned, or the task has other features."""
    if not estimate.n_releases:
        raise UserError("nothing was learned yet: call learn_one or learn_many before the summary")
    mechanisms = learner._require().mechanisms  # noqa: SLF001
    promised: dict[str, Guarantee] = {**(learner.levels or {}), "default": learner.guarantee}
    levels = {name: describe_level(each, mechanisms[name]) for name, each in promised.items()}
    units, effects = _units(task, estimate, scale)
    half_range: float | None = getattr(estimate, "unit", None)
    report: dict[str, Any] = {
        "task": type(learner).__name__ if task is None else f"{task.name} ({type(learner).__name__})",
        "odds_ratios": scale == "log odds",
        "chances": scale == "probability",
        "releases": estimate.n_releases,
        **report_estimate(estimate, scale, units, level, effects=effects, forecast=forecast, half_range=half_range),
        "forget": describe_forgetting(getattr(learner, "forget", None), estimate),
        "guarantee": levels["default"]["guarantee"],
        "levels": levels,
        "cap": None,
        "cap_words": _WINDOWS if hasattr(learner, "windows") else _CAP,
        "public_sample": None,
        "simulated": learner.seed is not None or (learner.noise is not None and learner.noise.simulated),
    }
    categories_of = None if task is None else categories(task)
    if estimate.sets is not None:
        report["prediction_sets"] = estimate.sets.to_dict(half_range or 1.0)
    report["diagnosis"] = diagnose(
        report, estimate, scale, unit=half_range, categories=categories_of, forecast=forecast
    )
    return Result(report)


def learner_html(learner: Any, parameters: str) -> str:
    """Return HTML of a learner for notebooks: its result, and its parameters."""
    beneath = folded("Parameters", f"<pre>{escape(parameters)}</pre>")
    if not learner.n_releases:
        name = escape(type(learner).__name__)
        return f"<div><p><b>{name}</b>: nothing learned yet</p>{beneath}</div>"
    result = learner.summary(forecast=False)
    return result_html(result.report, list(result), beneath)


def _units(task: Task | None, estimate: Estimate, scale: Scale) -> tuple[dict[str, Unit], dict[str, Unit]]:
    """Return the units of coefficients and of average effects; none without a task."""
    if task is None:
        return {}, {}
    units = units_beside(task, scale)
    on_classes = bool(units) or estimate.effects() is not None
    effects = units if scale in ("probability", "slope") else probability_units(task) if on_classes else {}
    if effects and tuple(effects) != tuple(estimate.names):
        raise UserError(
            f"the task {task.name!r} codes the features {', '.join(effects)}, but the learner has "
            f"{', '.join(estimate.names)}: give the task (or Encoder) that coded the learner's records"
        )
    return units, effects
