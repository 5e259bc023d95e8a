"""Figures 2, 4, 6, 7 and 8: repeated releases of one set of people."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from murk.privacy import ApproxDP
from reproductions.experiment import STANDARD_ERRORS, Check, Measured, Outcome, Panel, Row, Series, Setting
from reproductions.iwp_sgd.paths import (
    DEFAULT_NOTE,
    DELTA,
    IWP,
    NOISY,
    REAL,
    checkpoints,
    default,
    path,
    published,
    seed_of,
)
from reproductions.iwp_sgd.people import People, note, regression, tag, two_tasks
from reproductions.iwp_sgd.plain import EXPONENTIAL, LOG, Array, Margin, sgd

RIDGE: Final = 10.0
EPSILON: Final = 2.0
Judge = Callable[[Array], Array]


@dataclass(frozen=True)
class Run:
    """Iterates at numbers of batches; for each draw where there is noise."""

    people: People
    at: list[int]
    real: Array
    noisy: Array
    iwp: Array
    usual: Array


@dataclass(frozen=True)
class Ends:
    """Losses or accuracies at the last batch, and the share of the way along theta of SGD on real data.

    ``cosine`` is between that theta and the mean of SGD on noisy data.
    """

    real: float
    noisy: Measured
    iwp: Measured
    noisy_averaged: Measured
    iwp_averaged: Measured
    usual: Measured
    noisy_share: Measured
    iwp_share: Measured
    cosine: float


def fig2(setting: Setting) -> Outcome:
    """Run the exponential loss: of models and of the model averaged over draws."""
    return _losses(setting, EXPONENTIAL)


def fig4(setting: Setting) -> Outcome:
    """Compute the accuracy with the exponential loss."""
    return _accuracies(setting, EXPONENTIAL)


def fig6(setting: Setting) -> Outcome:
    """Run the log loss."""
    return _losses(setting, LOG)


def fig7(setting: Setting) -> Outcome:
    """Compute the accuracy with the log loss."""
    return _accuracies(setting, LOG)


def fig8(setting: Setting) -> Outcome:
    """Run regression with the printed steps and with larger ones."""
    people = regression(setting)

    def judge(theta: Array) -> Array:
        return np.asarray(0.5 * np.square(people.test_x @ theta.T - people.test_y[:, None]).mean(axis=0))

    rows: list[Row] = []
    checks: list[Check] = []
    panels: list[Panel] = []
    moment = people.x.T @ people.x / len(people.x) + RIDGE * np.eye(people.x.shape[1])
    best = np.linalg.solve(moment, people.x.T @ people.y / len(people.x))
    covered = []
    for words, gamma in (("printed gamma = 5e-6", 5e-6), ("gamma = 5e-5", 5e-5)):
        run = _run(setting, people, None, gamma, 128, 535_087)
        ends = _ends(run, judge)
        covered.append(float(np.linalg.norm(run.real[-1]) / np.linalg.norm(best)))
        rows += _rows(
            setting, f"{people.name}, {words}", "squared loss", ends, nothing=float(judge(np.zeros((1, 4)))[0])
        )
        checks += _unbiased(setting, f"{people.name}, {words}", ends)
        panels += _panels(run, judge, f"{people.name}, {words}", "test loss")
    checks.append(
        Check.less(
            "with the printed steps SGD on real data is not near its limit", Measured(covered[0]), Measured(0.5)
        )
    )  # fmt: skip
    return Outcome(
        rows=rows, panels=panels, checks=checks,
        verdict=(
            f"With the printed steps and coded features SGD on real data goes {covered[0]:.0%} of the way to its "
            f"limit, with steps of 5e-5 {covered[1]:.0%}. With steps of 5e-5 the loss of SGD on real data is "
            f"{ends.real:.4g}, of IWP-SGD averaged over draws {ends.iwp_averaged}, of SGD on noisy data "
            f"{ends.noisy_averaged}, and of Murk's default {ends.usual}. IWP-SGD goes {ends.iwp_share} of the way of "
            f"SGD on real data, SGD on noisy data {ends.noisy_share}."
        ),
    )  # fmt: skip


def _losses(setting: Setting, loss: Margin) -> Outcome:
    rows: list[Row] = []
    checks: list[Check] = []
    panels: list[Panel] = []
    said = []
    for run in _runs(setting, loss):
        people = run.people
        test = people.test_u

        def judge(theta: Array, test: Array = test) -> Array:
            return loss.risk(theta, test)

        ends = _ends(run, judge)
        rows += _rows(setting, people.name, f"{loss.name} loss", ends, nothing=float(loss.value(np.zeros(1))[0]))
        checks += _unbiased(setting, people.name, ends)
        panels += _panels(run, judge, people.name, "test loss")
        said.append(
            f"{people.name}: IWP-SGD goes {ends.iwp_share} of the way of SGD on real data, SGD on noisy data "
            f"{ends.noisy_share}; losses exceed that of SGD on real data by {ends.iwp_averaged.value - ends.real:.2g} "
            f"(IWP-SGD, averaged model), {ends.iwp.value - ends.real:.2g} (IWP-SGD, single models) and "
            f"{ends.noisy.value - ends.real:.2g} (SGD on noisy data)"
        )
    return Outcome(
        rows=rows, panels=panels, checks=checks,
        verdict=(
            ("As the paper says, the correction removes the bias. " if all(check.holds for check in checks) else "")
            + ". ".join(said) + ". With lambda = 10 all losses are close to that of theta = 0."
        ),
    )  # fmt: skip


def _accuracies(setting: Setting, loss: Margin) -> Outcome:
    rows: list[Row] = []
    checks: list[Check] = []
    panels: list[Panel] = []
    said = []
    for run in _runs(setting, loss):
        people = run.people
        test = people.test_u

        def judge(theta: Array, test: Array = test) -> Array:
            return np.asarray((test @ theta.T > 0).mean(axis=0))

        ends = _ends(run, judge)
        common = max(np.mean(people.test_y > 0), np.mean(people.test_y < 0))
        rows += _rows(setting, people.name, "accuracy", ends)
        rows.append(
            Row(what=f"{people.name}: accuracy, always the more common answer", tag=tag(setting),
                as_published=Measured(float(common)), note=note(setting))
        )  # fmt: skip
        panels += _panels(run, judge, people.name, "test accuracy", averaged=False)
        checks.append(
            Check.near(
                f"{people.name}: the averaged model of IWP-SGD has the accuracy of SGD on real data", ends.iwp_averaged,
                ends.real, within=setting.of(tiny=0.2, reduced=0.01, full=0.005),
            )
        )  # fmt: skip
        if setting.size != "tiny" and loss is EXPONENTIAL:
            # With the log loss ten single models vary too much to decide.
            checks.append(
                Check.less(
                    f"{people.name}: a single model of SGD on noisy data has a lower accuracy", ends.noisy, ends.real
                )
            )
        said.append(
            f"{people.name}: the more common answer has accuracy {common:.3f}, SGD on real data {ends.real:.3f}, "
            f"IWP-SGD {ends.iwp}, SGD on noisy data {ends.noisy}, Murk's default {ends.usual}; averaged over draws, "
            f"IWP-SGD has {ends.iwp_averaged} and SGD on noisy data {ends.noisy_averaged}, whose direction has a "
            f"cosine of {ends.cosine:.2f} with that of SGD on real data"
        )
    return Outcome(
        rows=rows, panels=panels, checks=checks,
        verdict=(
            ". ".join(said) + ". Accuracy depends only on the direction of theta, which ridge and noise change less "
            "than its length."
        ),
    )  # fmt: skip


def _runs(setting: Setting, loss: Margin) -> list[Run]:
    return [
        _run(setting, people, loss, 2e-5, 50, size)
        for people, size in zip(two_tasks(setting), (707_187, 535_087), strict=True)
    ]


def _run(setting: Setting, people: People, loss: Margin | None, gamma: float, batch: int, size: int) -> Run:
    """Run all draws; without ``loss`` this is regression. At the tiny size steps are larger."""
    if setting.size == "tiny":
        gamma *= size / len(people.x)
    at, draws = checkpoints(len(people.x) // batch), setting.of(tiny=4, reduced=10, full=100)
    if loss is None:
        # Two Gaussian releases with half the budget each vary more and cost less than those with a label.
        draws = setting.of(tiny=16, reduced=48, full=100)
    names = list(range(people.x.shape[1]))
    found: dict[str, list[Array]] = {NOISY: [], IWP: []}
    usual = []
    for draw in range(draws):
        setting.tick(draw / draws, f"{people.name}, draw {draw + 1} of {draws}")
        seed = seed_of(setting, draw)
        more: dict[str, Any] = {
            "guarantee": ApproxDP(EPSILON, DELTA), "gamma": gamma, "regularization": RIDGE, "batch": batch,
            "features": names, "seed": seed,
        }  # fmt: skip
        if loss is not None:
            more["loss"] = loss.name
        y = people.y if loss is None else people.y > 0
        for name, model in published(regression=loss is None, **more).items():
            found[name].append(path(model, people.x, y, batch, at))
        if draw < setting.of(tiny=1, reduced=2, full=20):
            usual.append(default(people.x, y, EPSILON, seed, regression=loss is None))
    if loss is None:
        real = sgd(lambda z, start: z - people.y[start : start + batch], people.x, gamma, RIDGE, batch, at)
    else:
        slope = loss.slope
        real = sgd(lambda z, start: slope(z), people.u, gamma, RIDGE, batch, at)
    return Run(people, at, real, np.array(found[NOISY]), np.array(found[IWP]), np.array(usual))


def _ends(run: Run, judge: Judge) -> Ends:
    real, noisy, iwp = run.real[-1], run.noisy[:, -1], run.iwp[:, -1]
    mean = noisy.mean(axis=0)
    return Ends(
        float(judge(real[None, :])[0]),
        _shown(judge(noisy)), _shown(judge(iwp)), _averaged(noisy, judge), _averaged(iwp, judge),
        _shown(judge(run.usual)),
        Measured.mean(noisy @ real / (real @ real)), Measured.mean(iwp @ real / (real @ real)),
        float(mean @ real / np.linalg.norm(mean) / np.linalg.norm(real)),
    )  # fmt: skip


def _shown(values: Array) -> Measured:
    return _exact_if_equal(Measured.mean(values)) if len(values) > 1 else Measured(float(values[0]))


def _averaged(theta: Array, judge: Judge) -> Measured:
    """Judge the mean over draws; the error is by the jackknife."""
    n = len(theta)
    without = judge((theta.sum(axis=0) - theta) / (n - 1))
    error = float(np.sqrt((n - 1) / n * np.square(without - without.mean()).sum()))
    return _exact_if_equal(Measured(float(judge(theta.mean(axis=0, keepdims=True))[0]), error))


def _exact_if_equal(found: Measured) -> Measured:
    """Drop an error that is only rounding, since accuracies of several models may be equal."""
    return found if found.error > 1e-12 * abs(found.value) else Measured(found.value)


def _rows(setting: Setting, name: str, what: str, ends: Ends, nothing: float | None = None) -> list[Row]:
    words = f"{note(setting)}. {DEFAULT_NOTE}"
    cells: dict[str, tuple[Measured, Measured | None]] = (
        {} if nothing is None else {"theta = 0": (Measured(nothing), None)}
    )
    cells |= {
        REAL: (Measured(ends.real), None),
        NOISY: (ends.noisy, None),
        IWP: (ends.iwp, ends.usual),
        f"{NOISY}, averaged model": (ends.noisy_averaged, None),
        f"{IWP}, averaged model": (ends.iwp_averaged, None),
    }
    found = [
        Row(
            what=f"{name}: {what}, {method}", tag=tag(setting), as_published=here, default=usual, note=words
        )
        for method, (here, usual) in cells.items()
    ]  # fmt: skip
    for method, share in ((NOISY, ends.noisy_share), (IWP, ends.iwp_share)):
        what_of = f"{name}: theta of {method}, along theta of SGD on real data"
        found.append(Row(what=what_of, tag=tag(setting), as_published=share, note=words))
    return found


def _unbiased(setting: Setting, name: str, ends: Ends) -> list[Check]:
    """Check that IWP-SGD goes on average as far as SGD on real data, and SGD on noisy data does not."""
    # With four draws the standard error itself is uncertain.
    errors = setting.of(tiny=12.0, reduced=STANDARD_ERRORS, full=STANDARD_ERRORS)
    return [
        Check.near(
            f"{name}: IWP-SGD goes on average as far as SGD on real data", ends.iwp_share, 1.0,
            within=errors * ends.iwp_share.error,
        ),
        Check.less(f"{name}: SGD on noisy data goes less than half as far", ends.noisy_share, 0.5),
        Check.less(f"{name}: IWP-SGD goes further than SGD on noisy data", ends.noisy_share, ends.iwp_share),
    ]  # fmt: skip


def _panels(run: Run, judge: Judge, name: str, y: str, averaged: bool = True) -> list[Panel]:
    # theta = 0 classifies nobody.
    since = 0 if averaged else 1
    at = run.at[since:]

    def looked(path: Array) -> Array:
        return judge(path)[since:]

    real = looked(run.real)

    def panel(title: str, noisy: Array, iwp: Array, low: Array | None = None, high: Array | None = None) -> Panel:
        band = {} if low is None or high is None else {"low": low.tolist(), "high": high.tolist()}
        return Panel(
            title=title, x="batches", y=y,
            series=[
                Series(name=REAL, x=at, y=real.tolist(), style="dashed"),
                Series(name=NOISY, x=at, y=noisy.tolist()),
                Series(name=IWP, x=at, y=iwp.tolist(), **band),
            ],
        )  # fmt: skip

    each = {key: np.array([looked(one) for one in paths]) for key, paths in (("noisy", run.noisy), ("iwp", run.iwp))}
    low, high = np.quantile(each["iwp"], [0.1, 0.9], axis=0)
    found = [panel(f"{name}: mean over draws", each["noisy"].mean(axis=0), each["iwp"].mean(axis=0), low, high)]
    if averaged:
        found.append(panel(f"{name}: averaged model", looked(run.noisy.mean(axis=0)), looked(run.iwp.mean(axis=0))))
    return found
