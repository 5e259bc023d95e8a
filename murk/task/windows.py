"""Windows of time in which budgets renew, and several answers of one person in them.

A window is a day, a week, a month or a number of days, in UTC.

Releases carry no name. If one person answers up to m times, the noise of their answers is independent, but the part of
a sum's variance that is due to people may be m times as large as for answers of different people. Let v be the noise
variance of an answer, in units of the largest variance that people's values can have. Then a sum has at most

    (v + m) / (v + 1)

times the variance of a sum over different people. If answers are repeated with their noise, the factor is at most m."""

from __future__ import annotations

import datetime
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from murk.errors import UserError
from murk.privacy import cap_of
from murk.task.coding import day_number
from murk.task.errors import shown, task_error

_ERROR_CODE = "MURK-TASK-001"

if TYPE_CHECKING:
    from collections.abc import Mapping

    from murk.privacy import Guarantee

NONE: Final = "none"
MOST_DAYS: Final = 3660
_NAMED: Final = ("day", "week", "month")
_EPOCH: Final = datetime.date(1970, 1, 1).toordinal()
_MONDAY: Final = 3  # 1970-01-01 was a Thursday, three days after a Monday
_DAY: Final = 86_400
_QUARTER: Final = _DAY // 4


def check_window(window: object) -> str:
    """Return the text of a valid window, unchanged; raise a ValueError, with the remedy, for anything else.

    >>> [check_window(each) for each in ("none", "week", "90d")]
    ['none', 'week', '90d']
    """
    text = str(window)
    if text in (NONE, *_NAMED):
        return text
    match = re.fullmatch(r"([1-9][0-9]{0,3})d", text)
    if match is None or int(match[1]) > MOST_DAYS:
        raise ValueError(f"write none, {', '.join(_NAMED)}, or a number of days up to {MOST_DAYS:,}, as in 90d")
    return text


def task_window(value: object) -> str:
    """Return the text of a task file's window; raise `PydanticCustomError`, with the remedy, if it is invalid."""
    try:
        return check_window(value)
    except ValueError as error:
        raise task_error(f"{shown(value)} is not a window; {error}") from None


def window_of(window: str, day: int) -> int:
    """Return the number of the window that contains a day (days since 1970-01-01).

    Weeks begin on Monday; windows of N days are counted from 1970-01-01.

    >>> [window_of("week", day) for day in (3, 4, 10, 11)]
    [0, 1, 1, 2]
    >>> window_of("month", utc_day("2024-05-31")) - window_of("month", utc_day("2024-05-01"))
    0
    """
    if window == "month":
        date = datetime.date.fromordinal(_EPOCH + day)
        return 12 * (date.year - 1970) + date.month - 1
    if window == "week":
        return (day + _MONDAY) // 7
    return day // (1 if window == "day" else int(window[:-1]))


def begin_of(window: str, number: int) -> datetime.date:
    """Return the first day of a window.

    >>> begin_of("week", window_of("week", utc_day("2024-05-31"))).isoformat()
    '2024-05-27'
    """
    if window == "month":
        return datetime.date(1970 + number // 12, number % 12 + 1, 1)
    if window == "week":
        return datetime.date.fromordinal(_EPOCH + 7 * number - _MONDAY)
    return datetime.date.fromordinal(_EPOCH + number * (1 if window == "day" else int(window[:-1])))


def start_of(window: str, number: int) -> int:
    """Return when a window begins, in seconds since 1970-01-01; 0 if it begins before that day.

    >>> start_of("week", window_of("week", utc_day("2024-05-31"))) == 86_400 * utc_day("2024-05-27")
    True
    """
    return 86_400 * max(begin_of(window, number).toordinal() - _EPOCH, 0)


def end_of(window: str, number: int) -> int:
    """Return when a window ends, in seconds since 1970.

    >>> end_of("week", 0) == 4 * 86_400
    True
    """
    return start_of(window, number + 1)


def spread_of(window: str) -> int:
    """Return the seconds after a window's end over which devices spread their answers: a quarter of a window.

    >>> spread_of("week") / 3600
    42.0
    """
    return _QUARTER * {"day": 1, "week": 7, "month": 28}.get(window, 0) or _QUARTER * int(window[:-1])


def utc_day(value: Any) -> int | None:
    """Return the UTC day of a date or time, counted from 1970-01-01; a time without a zone is in UTC.

    None for anything else, and beyond the years 1 to 9999.

    >>> utc_day("2024-05-31T23:30:00-02:00") == utc_day(datetime.date(2024, 6, 1)) == 19875
    True
    >>> utc_day("yesterday"), utc_day(20240531)
    (None, None)
    """
    if isinstance(value, str):
        try:
            value = datetime.datetime.fromisoformat(value.strip())
        except ValueError:
            return None
    try:
        if isinstance(value, datetime.datetime) and value.tzinfo is not None:
            value = value.astimezone(datetime.UTC)
        day, cell = day_number(value)
    except (OverflowError, ValueError):
        return None
    return None if cell or not 1 <= day <= datetime.date.max.toordinal() else day - _EPOCH


def each_of(window: str) -> str:
    """Return "a week" for ``week``, and "each 90 days" for ``90d``.

    >>> each_of("week"), each_of("90d"), each_of("1d")
    ('a week', 'each 90 days', 'a day')
    """
    if window in _NAMED or window == "1d":
        return f"a {'day' if window == '1d' else window}"
    return f"each {int(window[:-1])} days"


def many_of(window: str, count: int) -> str:
    """Return a number of windows in words.

    >>> many_of("week", 10), many_of("90d", 1)
    ('10 weeks', '1 window of 90 days')
    """
    noun = window if window in _NAMED else "window"
    plural = "" if count == 1 else "s"
    return f"{count:,} {noun}{plural}" + ("" if window in _NAMED else f" of {int(window[:-1])} days")


SUPPOSED: Final = 10  # answers of one person that intervals allow for if nothing bounds the number of windows
_MOST: Final = 10**6
_TESTS: Final = "P-values and tests of change need answers of different people, and are left out"


@dataclass(frozen=True)
class Repeats:
    """Answers of one person that intervals allow for.

    >>> Repeats(4, 1.6).words.partition(". ")[0]
    'One person may answer up to 4 times: intervals allow for it (1.26 times as wide)'
    """

    most: int  # m
    effect: float  # factor of the variance of sums
    supposed: bool = False  # whether nothing bounds m, and `SUPPOSED` is assumed
    within: int = 1  # most answers of one person within a window
    same: bool = False  # whether answers are repeated with their noise

    @property
    def words(self) -> str:
        """What intervals allow for, in a sentence; empty if each person answers once."""
        if self.most == 1:
            return ""
        if self.effect == 1.0:
            return f"One person may answer up to {self.most:,} times, which these intervals do not allow for. {_TESTS}"
        wider = f"({math.sqrt(self.effect):.3g} times as wide)"
        if self.supposed:
            allowed = f"intervals allow for {self.most} answers of each {wider}. "
            allowed += (
                "Repeated answers have no noise of their own" if self.same else "privacy.lifetime would bound them"
            )
            return f"One person may answer in every window: {allowed}. {_TESTS}"
        return f"One person may answer up to {self.most:,} times: intervals allow for it {wider}. {_TESTS}"


ONCE: Final = Repeats(1, 1.0)


def noise_of(guarantee: Guarantee) -> float:
    """Return the least noise variance v of an answer within a bound of 1; 0 if it is not known.

    It is ``4 / mu^2`` for Gaussian noise, and ``c^2 - 1`` for randomized response, with ``c = (e^epsilon + 1) /
    (e^epsilon - 1)``, or ``c = 1 / (2 Phi(mu / 2) - 1)`` under mu-GDP. From mu = 2.4 on, randomized response has less
    noise than Gaussian noise.

    >>> from murk.privacy import GaussianDP, PureDP
    >>> noise_of(GaussianDP(1.0)), round(noise_of(GaussianDP(3.0)), 3), round(noise_of(PureDP(2.0)), 2)
    (4.0, 0.332, 0.72)
    """
    [(kind, figures)] = guarantee.to_dict().items()
    if kind == "pure":
        return float(math.tanh(figures["epsilon"] / 2.0) ** -2 - 1.0)
    if kind not in ("gdp", "zcdp"):
        return 0.0
    mu = figures["mu"] if kind == "gdp" else math.sqrt(2.0 * figures["rho"])
    return float(min(4.0 / mu**2, math.erf(mu / math.sqrt(8.0)) ** -2 - 1.0))


def effect_of(most: int, guarantees: list[Guarantee], *, same: bool = False) -> float:
    """Return the factor of the variance of sums if one person answers up to ``most`` times.

    With ``same`` a person may repeat one answer, and its noise does not average out.

    >>> from murk.privacy import GaussianDP
    >>> effect_of(4, [GaussianDP(1.0)]), effect_of(4, [GaussianDP(1.0)], same=True)
    (1.6, 4.0)
    """
    if same:
        return float(most)
    return max((noise + most) / (noise + 1.0) for noise in map(noise_of, guarantees))


FEWEST: Final = 20  # least number of people for which a factor is computed from their numbers of answers
_STEP: Final = 0.05  # a factor is rounded up to a multiple of this


def repeats_of_counts(counts: Mapping[int, int], guarantees: list[Guarantee], *, same: bool = False) -> Repeats:
    """Return how often people answered, from the number of people by their number of answers.

    Let ``n_m`` people have m answers each. A sum has at most the variance of a sum over different people times

        max over t of (N v + sum_{m >= t} m^2 n_m) / (N v + sum_{m >= t} m n_m),    N = sum m n_m

    since the variance between people may come from those who answer most. If these, with a share f of the answers, are
    at one end of the range and all others at the other end, the factor may also be (N v + 4 (1 - f)^2 sum_{m >= t} m^2
    n_m + 4 f^2 sum_{m < t} m^2 n_m) / (N v + 4 f (1 - f) N). For the smallest t it is ``(v + m) / (v + 1)`` at the mean
    number ``sum m^2 n_m / sum m n_m``. If all repeat the ``same`` answer, v is multiplied by that mean in the
    numerators. The factor is rounded up to a multiple of 0.05. If there are fewer than `FEWEST` people, or one person
    could move the factor by more than 0.05, it is the factor of the largest number of answers: so nobody's number of
    answers can be read from it.

    >>> from murk.privacy import GaussianDP
    >>> repeats_of_counts({1: 800, 10: 200}, [GaussianDP(1.0)])
    Repeats(most=10, effect=2.4, supposed=False, within=1, same=False)
    >>> repeats_of_counts({1: 800, 10: 200}, [GaussianDP(1.0)], same=True).effect
    7.85
    >>> repeats_of_counts({1: 8, 10: 2}, [GaussianDP(1.0)]).effect
    2.8
    """
    most = max(counts, default=1)
    if most == 1:
        return ONCE
    together = effect_of(most, guarantees, same=same)
    answers = sum(number * people for number, people in counts.items())
    least = min(map(noise_of, guarantees))
    # The noise of repeated answers adds up as people's own variance does.
    moved = most**2 * (1.0 + least) if same else most**2
    if sum(counts.values()) < FEWEST or moved > _STEP * answers * (least + 1.0):
        return Repeats(most, together, same=same)
    effect = max(_effect(counts, answers, noise, same=same) for noise in map(noise_of, guarantees))
    return Repeats(most, min(round(math.ceil(effect / _STEP - 1e-9) * _STEP, 2), together), same=same)


def _effect(counts: Mapping[int, int], answers: int, noise: float, *, same: bool) -> float:
    """Return the factor for one noise variance, in the worst case over which people's values vary most."""
    effect, first, square = 1.0, 0, 0
    whole = sum(number**2 * people for number, people in counts.items())
    own = noise * (whole if same else answers)
    for number in sorted(counts, reverse=True):
        first += number * counts[number]
        square += number**2 * counts[number]
        effect = max(effect, (own + square) / (answers * noise + first))
        share = first / answers
        apart = 4.0 * ((1.0 - share) ** 2 * square + share**2 * (whole - square))
        effect = max(effect, (own + apart) / (answers * (noise + 4.0 * share * (1.0 - share))))
    return effect


def count_within(whole: Guarantee, each: Guarantee) -> int:
    """Return how many releases of a guarantee a cap allows; `SUPPOSED` if they have no currency in common."""
    cap = cap_of(whole)
    try:
        cost = cap_of(each if each.kind == whole.kind else each.to(whole.kind))
    except UserError:
        return SUPPOSED
    counts = [cap.units // max(cost.units, 1)]
    if cost.delta_units:
        counts.append(cap.delta_units // cost.delta_units)
    return int(min(max(min(counts), 1), _MOST))
