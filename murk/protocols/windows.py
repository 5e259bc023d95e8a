"""The windows by which learners keep sums, so that each has an estimate of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from murk.errors import MurkError
from murk.task.windows import effect_of, window_of

if TYPE_CHECKING:
    from murk.inference.estimate import Estimate
    from murk.inference.track import Track
    from murk.protocols.device import Device
    from murk.task.task import Task
    from murk.task.windows import Repeats

_ERROR_CODE = "MURK-LEARN-001"

T = TypeVar("T")
_DAY: Final = 86_400


@dataclass(frozen=True)
class Windows:
    """The length of windows, and the number of newest ones whose sums are kept."""

    window: str
    kept: int

    def number(self, time: int) -> int:
        """Return the number of a release's window; devices set the release's time to the window's begin."""
        return window_of(self.window, time // _DAY)

    def newest(self, sums: Mapping[int, T]) -> dict[int, T]:
        """Return the sums of the newest windows, ascending: those less than ``kept`` windows before the last one.

        >>> Windows("week", 2).newest({7: "a", 9: "c", 8: "b"})
        {8: 'b', 9: 'c'}
        """
        first = max(sums, default=0) - self.kept + 1
        return {number: sums[number] for number in sorted(sums) if number >= first}


def neighbours(numbers: Iterable[int], reach: int) -> dict[int, list[int]]:
    """Return for each window the windows within ``reach`` of it, itself included.

    >>> neighbours([3, 4, 6], 1)
    {3: [3, 4], 4: [3, 4], 6: [6]}
    """
    windows = sorted(set(numbers))
    return {number: [other for other in windows if abs(other - number) <= reach] for number in windows}


def windows_of(task: Task) -> Windows | None:
    """Return the windows of a task's track; None without one."""
    return None if task.track is None else Windows(task.track.window, task.track.windows)


def track_of(
    task: Task, device: Device, engines: Sequence[Any], level: float, repeats: Repeats | None = None
) -> Track | None:
    """Return the track of a task's windows; None if the task asks for none, or nothing was released.

    ``repeats`` tells how often one person has answered, by default as often as the task's caps allow.
    """
    if task.track is None:
        return None
    # Imported here, since devices have no track.
    from murk.inference.track import track_of

    windows: Callable[..., Mapping[int, Estimate]] = device.windows  # type: ignore[attr-defined]
    alone = windows(engines)
    pooled = windows(engines, task.track.smooth) if task.track.smooth else alone
    repeats, levels = repeats or task.repeats, [*task.privacy.levels.values()]
    most = 10**6 if repeats.supposed else repeats.most
    effect = partial(effect_of, guarantees=levels, same=repeats.same)
    return track_of(
        task.track.window,
        task.track.smooth,
        alone,
        pooled,
        level=level,
        within=repeats.within,
        most=most,
        effect=effect,
    )


def read_windows(state: Any, windows: Windows | None) -> dict[int, Any]:
    """Return windows' states by number, from pairs; raise MurkError unless the settings allow these windows."""
    if windows is None:
        if state is not None:
            raise MurkError("the state holds sums by window, which the task does not ask for")
        return {}
    if state is None:
        return {}
    try:
        states = dict(state)
        valid = all(type(number) is int and 0 <= number < 2**40 for number in states) and len(states) == len(state)
    except (TypeError, ValueError):
        valid = False
    if not valid or [*states] != [*windows.newest(states)]:
        raise MurkError("the state's windows are not those of the task")
    return states
