"""River estimators for releases of an organisation's records."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
from river import base

from murk._internal.arrays import Floats
from murk._internal.links import logistic
from murk._internal.locks import ForkSafeLock, locked
from murk._internal.wiping import numbers_were_used, track, wiping
from murk.errors import MurkError, UserError
from murk.inference.estimate import Estimate
from murk.learners._docstrings import documented
from murk.learners.base import (
    LabelEstimator,
    Record,
    StreamEstimator,
    TargetEstimator,
    published,
    two_chances,
    two_labels,
)
from murk.privacy import ApproxDP, GaussianDP, Guarantee, ZeroConcentratedDP
from murk.privacy.central import Analysis, GaussMixMechanism, GramMechanism, Neighbours, NewtonMechanism
from murk.privacy.central import Method as Mixing
from murk.protocols.options import chosen_noise
from murk.protocols.summaries import device as device
from murk.protocols.summaries.engine import GramEngine, NewtonEngine, SketchEngine
from murk.protocols.summaries.settings import (
    GramSettings,
    Kind,
    NewtonSettings,
    SketchSettings,
    Weighting,
    default_rows,
)
from murk.protocols.summaries.surrogate import Surrogate
from murk.task.protocols.base import Scale
from murk.task.protocols.summaries import PROTOCOL
from murk.task.values import number

_ERROR_CODE = "MURK-LEARN-001"

Method = Literal["moments", "newton"] | Mixing
Engine = SketchEngine | GramEngine | NewtonEngine
Mechanism = GaussMixMechanism | GramMechanism | NewtonMechanism
Budget = ApproxDP | GaussianDP | ZeroConcentratedDP

_BLOCK = 4096


@dataclass(kw_only=True, eq=False, repr=False)
class GaussMix(StreamEstimator[Any]):
    """Base class of both GaussMix estimators: it collects a window of raw records and releases the window.

    Parameters
    ----------
    guarantee
        Guarantee of *each* release, for a record replaced by zeros: ``ApproxDP``, or for moments also ``GaussianDP`` or
        ``ZeroConcentratedDP``. Only the organisation, in this process, sees raw records.
    features
        Feature names in a fixed order; by default the sorted names of the first record.
    feature_bound
        Public bound C_X of ``||(x, 1)||``, to which features are scaled down; by default ``sqrt(p + 1)``, for [-1, 1].
    rows
        k, the rows of a mixture; by default 4,096, or as many as fit in a message. More are more precise but slower.
    window
        Number of records in a window, which is released when full; by default windows end by :meth:`release`.
    windows
        Largest number of windows. Each window spends ``guarantee``. Give more than 1 only if no person is in two
        windows, or people may spend the guarantee more often.
    analysis
        Proof of the mixtures' guarantee, which sets the noise: ``"tight"`` (least noise), ``"joint"``, ``"published"``.
    neighbours
        ``"zero-out"``, or ``"replace-one"`` for a guarantee comparable with the local protocols'.
    debiased
        False for the paper's estimate from mixtures, ``argmin ||m_y - M_x theta||``, which noise shrinks towards 0.
    weighting
        Weights of windows, from public numbers: ``"inverse-variance"``, or ``"uniform"`` (the same for every record).
    seed, noise
        Simulate noise and mixing from a seed (no privacy), or take them from another source.
    """

    guarantee: Budget
    levels: Mapping[str, Budget] | None = None
    feature_bound: float | None = None
    rows: int | None = None
    window: int | None = None
    windows: int = 1
    method: Method | None = None
    analysis: Analysis = "tight"
    neighbours: Neighbours = "zero-out"
    debiased: bool = True
    weighting: Weighting = "inverse-variance"
    intercept: bool = True

    # Arguments that only one of both estimators has
    range: float | None = field(init=False, default=None)
    surrogate: Surrogate = field(init=False, default="minimax")
    first: int | None = field(init=False, default=None)
    _bound: float | None = field(init=False, default=None)

    _target: ClassVar[Kind]

    def _prepare(self) -> None:
        self._turns = ForkSafeLock()
        self._window: Any = None  # the accumulator of the open window
        self._released = 0
        self._fit: tuple[Any, Floats] | None = None
        if isinstance(self.windows, bool) or not isinstance(self.windows, int) or self.windows < 1:
            raise UserError(f"windows={self.windows!r}: give the largest number of windows to release, 1 or more")
        if self.window is not None and (not isinstance(self.window, int) or self.window < 1):
            raise UserError(f"window={self.window!r}: give the number of records in a window, 1 or more, or None")
        if not isinstance(self.intercept, bool):
            raise UserError(f"intercept={self.intercept!r} is neither True nor False")
        self._release_method()
        super()._prepare()

    def _release_method(self) -> Method:
        """Return the method that was given; by default mixtures if one of their arguments is given, else moments."""
        mixing = {"rows": self.rows is not None, "analysis": self.analysis != "tight", "debiased": not self.debiased}
        given = [name for name, is_given in mixing.items() if is_given]
        if self.method is None:
            return "linear-mixing" if given else "moments"
        if self.method not in ("moments", "newton", "linear-mixing", "mixing"):
            raise UserError(f'method={self.method!r} is not one of "moments", "newton", "linear-mixing", "mixing"')
        if self.method in ("moments", "newton") and given:
            raise UserError(
                f'{given[0]}= is for mixtures, but method="{self.method}" mixes no records: leave {given[0]}= out'
            )
        if self.method == "newton" and self._target == "real":
            raise UserError('method="newton" is for the logistic loss, but the target is real: give method="moments"')
        if self.method == "newton" and self.range is not None:
            raise UserError('range= is for the quadratic surrogate, which method="newton" does not use: leave it out')
        return self.method

    def _expected(self) -> tuple[float | None, float | None]:
        return self.feature_bound or 1.0, self._bound

    def _begin(self, names: tuple[Any, ...]) -> Engine:
        coded = self._coded_names(names)[: None if self.intercept else -1]
        columns = len(coded) + 1
        shared: dict[str, Any] = {
            "names": coded,
            # By default features are coded to [-1, 1].
            "feature_bound": math.sqrt(len(coded)) if self.feature_bound is None else float(self.feature_bound),
            "target_bound": 1.0 if self._bound is None else self._bound,
            "kind": self._target,
            "reach": self.range,
            "surrogate": self.surrogate,
            "weighting": self.weighting,
            "constant": self.intercept,
        }
        method = self._release_method()
        if method == "newton":
            first = device.first_part(self.first, len(coded), self.window)
            self._settings: device.Settings = NewtonSettings(first=first, **shared)
        elif method == "moments":
            self._settings = GramSettings(**shared)
        else:
            rows = default_rows(columns) if self.rows is None else self.rows
            self._settings = SketchSettings(rows=rows, debiased=self.debiased, **shared)
        problems: dict[str, Any] = {"newton": device.NewtonDevice, "moments": device.GramDevice}
        self._device: device.WindowDevice = problems.get(method, device.SketchDevice)(
            self._settings, self._level_mechanisms()
        )
        self._names = names
        self._watch()
        engine: Engine = self._device.engine()
        self._engine = engine
        return engine

    def _mechanism_for(self, guarantee: Guarantee) -> Mechanism:
        mixing = {"method": self._release_method(), "analysis": self.analysis}
        return device.calibrate(self._settings, guarantee, neighbours=self.neighbours, mixing=mixing)

    def _open(self) -> Any:
        """Return the open window, or a new one if the last window was released or lost in an interrupt."""
        if self._window is None or self._window.released:
            if self._released >= self.windows:
                raise UserError(
                    f"windows={self.windows}: this number of windows was released, each with the whole guarantee. If "
                    "no person is in two windows, or people may spend the guarantee more often, give a larger windows="
                )
            source = chosen_noise(self.seed, self.noise)
            self._window = self._device.accumulator("default", source, self._released)
        return self._window

    def learn_one(self, x: Record, y: Any) -> None:
        """Add a record to the open window, which is released when full; raise UserError beyond ``windows`` windows."""
        with wiping():
            self._put(x, self._coded_one(y))

    def learn_many(self, X: Any, y: Any) -> None:
        """Learn the rows of a data frame or an ``(n, d)`` array, like :meth:`learn_one` for each."""
        with wiping():
            self._put_rows(X, self._coded_many(y))

    def _put(self, x: Record, y: float) -> None:
        if self._engine is None:
            self._get_engine(tuple(sorted(x)))
        values = [x.get(name) for name in self._names]
        numbers_were_used()
        self._add(track(np.array([[*map(number, values), *([1.0] if self.intercept else []), y]])))
        if self._first_records is not None:
            self._surveyed([(values, y)], x)

    def _put_rows(self, X: Any, y: Floats) -> None:
        if self._engine is None:
            self._get_engine(self._columns(X))
        rows = self._with_constant(self._rows_of(X, y))
        for start in range(0, len(rows), _BLOCK):
            block = slice(start, start + _BLOCK)
            self._add(track(np.column_stack([rows[block], y[block]])))
        if self._first_records is not None:
            self._surveyed(*self._head(X, y))

    def _with_constant(self, rows: Floats) -> Floats:
        """Return features and the constant, if any; non-finite features count as 0, as in ``learn_one``."""
        rows = track(np.where(np.isfinite(rows), rows, 0.0))
        return track(np.column_stack([rows, np.ones(len(rows))])) if self.intercept else rows

    @locked
    def _add(self, rows: Floats) -> None:
        """Put coded rows into the window, releasing it whenever it is full."""
        # A missing target gives a row of zeros, so that the count of records stays public.
        rows[~np.isfinite(rows[:, -1])] = 0.0
        while len(rows):
            window = self._open()
            room = len(rows) if self.window is None else self.window - window.records
            window.add_block(rows[:room])
            rows = rows[room:]
            if window.records == self.window:
                self._release()

    @locked
    def release(self) -> None:
        """Release pending records, at ``guarantee`` for each person, forget them and learn; UserError without any."""
        self._release()

    def _release(self) -> None:
        engine, window = self._require(), self._window
        if window is None or window.released or not window.records:
            raise UserError("there is no record since the last release: learn some first")
        # Count and drop the window first: a release that fails must not be repeated on the same records.
        self._released, self._window = self._released + 1, None
        engine.learn_window(window.release())

    @property
    def pending(self) -> int:
        """Number of records that are in no release yet: a copy, a pickle or a crash loses them."""
        window = self._window
        return 0 if window is None or window.released else window.records

    @property
    def mechanism(self) -> Mechanism:
        """The mechanism that releases windows, with its noise, bounds and guarantees."""
        mechanism: Mechanism = self._require().mechanisms["default"]
        return mechanism

    def merged(self, others: Sequence[Self]) -> Estimate:
        """Return the joint estimate of this learner and ``others`` with the same settings."""
        engines = self._engines(others)
        joint: Estimate = self._in_units(self._device.estimate(engines))
        return joint

    @locked
    def state_dict(self) -> dict[str, Any]:
        """Return the state as plain data (JSON), from releases alone: pending records are not in it."""
        return {**super().state_dict(), "released": self._released}

    @locked
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load a state and drop pending records; raise MurkError if it is malformed or of other settings."""
        released = state.get("released")
        if isinstance(released, bool) or not isinstance(released, int) or released < 0:
            raise MurkError("the state is malformed: it needs a count of released windows")
        super().load_state_dict(state)
        # Windows that were released here have spent their guarantee, whatever the state says.
        self._released, self._window = max(self._released, released), None

    @locked
    def __getstate__(self) -> dict[str, Any]:
        # The open window is never copied, as it holds raw records. The engine is copied with the count of windows.
        return {**self.__dict__, "_window": None, "_engine": copy.copy(self._engine)}

    def _values(self) -> Floats:
        sums, cached = self._require().sums, self._fit
        if cached is None or cached[0] is not sums:
            self._fit = cached = sums, self._require().estimate().values
        return cached[1]

    def _linear(self, rows: Floats) -> Floats:
        """Return scores of rows of features without the constant."""
        return np.asarray(self._with_constant(rows) @ self._values())


@documented
@dataclass(kw_only=True, eq=False, repr=False)
class GaussMixRegressor(GaussMix, TargetEstimator, base.MiniBatchRegressor):
    r"""Linear regression from an organisation's releases: noisy second moments, or random mixtures, of its records.

    Records ``z = (x, 1, y)``, scaled down to public bounds, are added up as they arrive; a window of them is released
    once and forgotten, and the learner learns from the release alone. With ``"moments"`` a release is ``M = Z'Z + sigma
    W`` with symmetric Gaussian noise, and ``theta = M_xx^-1 M_xy``; with ``"linear-mixing"`` or ``"mixing"`` it is k
    random mixtures of records (GaussMix),

    .. math:: M = S Z + \text{std}\, C\, \Xi, \qquad
        \theta = (M_x'M_x / k - \text{std}^2 C^2 I)^{-1} M_x'm_y / k.

    Parameters
    ----------
    target_bound
        Instead of ``target_bounds`` (C_Y = 1), the bound C_Y of ``|y|`` for uncoded targets, as in the paper.
    method
        ``"moments"``, ``"mixing"``, or ``"linear-mixing"``, which also releases a noisy least eigenvalue to add less
        noise. By default moments, or linear mixing if ``rows``, ``analysis`` or ``debiased`` is given.
    intercept
        False leaves the constant out: ``z = (x, y)``, as in the paper. Intervals then assume no missing target.

    Notes
    -----
    Copies, clones, pickles and states hold releases only: the records of an open window are not in them.

    References
    ----------
    Lev, Srinivasan, Shenfeld, Ligett, Sekhari, Wilson. The Gaussian Mixing Mechanism. Algorithms 1 and 2.
    Wang. Revisiting differentially private linear regression (AdaSSP). 2018.

    Examples
    --------
    >>> from murk.learners import GaussMixRegressor
    >>> from murk.privacy import ApproxDP
    >>> model = GaussMixRegressor(guarantee=ApproxDP(1.0, 1e-6), window=20_000, seed=1)
    >>> for i in range(20_000):
    ...     x = (i * 7919 % 2003) / 1001.5 - 1
    ...     model.learn_one({"x": x}, 0.25 + 0.5 * x)
    >>> abs(model.coefficients()["x"] - 0.5) < 0.02
    True
    """

    target_bound: float | None = None

    _target = "real"

    def __post_init__(self) -> None:
        own, self._bound = self._set_range(intercept=self.intercept), 1.0
        if self.target_bound is not None:
            self._bound, self._range = own.unit, replace(own, unit=1.0)
        self._prepare()

    @classmethod
    def as_published(cls, *, guarantee: ApproxDP, rows: int, **more: Any) -> Self:
        """Return the paper's LinearMixing with k = ``rows``: least squares on the sketch, its noise not subtracted."""
        bounds = {"target_bounds": None if "target_bound" in more else (-1.0, 1.0)}
        return cls(guarantee=guarantee, rows=rows, **{**bounds, **published(PROTOCOL, "real", guarantee), **more})

    def _means(self, rows: Floats) -> Floats:
        return self._range.middle + self._range.unit * self._linear(rows)

    @classmethod
    def _unit_test_params(cls) -> Any:
        many: dict[str, Any] = {"windows": 10**6, "seed": 1}
        # Not 50: River measures memory after 500 and 1001 records, and a window must be open at both.
        yield {"guarantee": ApproxDP(1.0, 1e-5), "window": 49, **many}
        yield {"guarantee": ApproxDP(1.0, 1e-5), "window": 49, "rows": 64, "target_bounds": (0.0, 100.0), **many}
        yield {"guarantee": ApproxDP(1.0, 1e-5), "window": 1, "rows": 64, "debiased": False, **many}


@documented
@dataclass(kw_only=True, eq=False, repr=False)
class GaussMixClassifier(GaussMix, LabelEstimator, base.MiniBatchClassifier):
    """Logistic regression from an organisation's releases: noisy second moments, or random mixtures, of its records.

    Records ``z = (x, 1, y)``, scaled down to public bounds, are added up as they arrive; a window of them is released
    once and forgotten, and the learner fits least squares on labels -1 and +1, turned into logistic coefficients.

    Parameters
    ----------
    classes
        The two labels, the positive one last. Any other label counts as missing: its record becomes a row of zeros.
    method
        ``"moments"``; ``"newton"``, second moments of a window's first records, then a step of the logistic loss with
        all others, better with many records; ``"mixing"``; or ``"linear-mixing"``, which also releases a noisy least
        eigenvalue to add less noise. By default moments, or linear mixing with ``rows``, ``analysis`` or ``debiased``.
    first
        Number of records in a window's first part (``newton``); by default 2,500 for each coefficient, but at most
        10,000 and half of the window.
    range
        Q of the paper's quadratic surrogate on [-Q, Q]. By default the least-squares fit is turned into logistic
        coefficients as if ``x'theta`` were normal, with the released moments.
    surrogate
        The quadratic: ``"minimax"``, the closest on that range, or ``"chebyshev"``, through the Chebyshev nodes.
    intercept
        False leaves the constant out: ``z = (x, y)``, as in the paper. Then log odds have no intervals.

    Notes
    -----
    Copies, clones, pickles and states hold releases only: the records of an open window are not in them.

    References
    ----------
    Lev, Srinivasan, Shenfeld, Ligett, Sekhari, Wilson. The Gaussian Mixing Mechanism. Section 5.2.

    Examples
    --------
    >>> from murk.learners import GaussMixClassifier
    >>> from murk.privacy import ApproxDP
    >>> model = GaussMixClassifier(guarantee=ApproxDP(1.0, 1e-6), window=20_000, seed=1)
    >>> for i in range(20_000):
    ...     x = (i * 7919 % 2003) / 1001.5 - 1
    ...     model.learn_one({"x": x}, x > 0)
    >>> model.predict_one({"x": 0.7})
    True
    """

    first: int | None = None
    range: float | None = None
    surrogate: Surrogate = "minimax"

    _target = "binary"

    def __post_init__(self) -> None:
        if self.surrogate != "minimax" and self.range is None:
            raise UserError(f"surrogate={self.surrogate!r} needs a range: also give range=")
        if self.first is not None and self.method != "newton":
            raise UserError(f'first={self.first!r} needs windows in two parts: also give method="newton"')
        self._codes = two_labels(self.classes, (-1.0, 1.0))
        self._prepare()

    @classmethod
    def as_published(cls, *, guarantee: ApproxDP, rows: int, range: float = 3.0, **more: Any) -> Self:
        """Return the paper's LinearMixing with k = ``rows`` and the quadratic surrogate on [-``range``, ``range``]."""
        return cls(
            guarantee=guarantee, rows=rows, **{**published(PROTOCOL, "binary", guarantee), "range": range, **more}
        )

    def _scale(self) -> Scale:
        return "log odds" if self.range is None else "own"

    def _chances(self, rows: Floats) -> Floats:
        return two_chances(logistic(self._linear(rows)))

    @classmethod
    def _unit_test_params(cls) -> Any:
        many: dict[str, Any] = {"windows": 10**6, "seed": 1}
        yield {"guarantee": ApproxDP(1.0, 1e-5), "window": 49, **many}
        yield {"guarantee": ApproxDP(1.0, 1e-5), "window": 49, "rows": 64, **many}
        yield {"guarantee": ApproxDP(1.0, 1e-5), "window": 49, "method": "newton", **many}
        yield {"guarantee": ApproxDP(1.0, 1e-5), "window": 20, "rows": 64, "range": 3.0, "debiased": False, **many}
