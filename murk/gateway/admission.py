"""The gateway's rules of admission: the same as those of the partition's worker, but without the worker's state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from murk.errors import UserError
from murk.protocols.device import device_for, interactive_of
from murk.stream.log.interface import FIRST_PARTITION, Log
from murk.stream.wire.admission import check_renewed, check_times, wire_rules
from murk.stream.wire.codec import Reason, RejectedError, decode, decode_model
from murk.stream.wire.releases import GradientRelease, Release, ScoreRelease
from murk.task.task import Task

if TYPE_CHECKING:
    from murk.stream.log.shared_models import SharedModels

_ERROR_CODE = "MURK-LOG-001"


class Admission:
    """Decide whether a task's worker can learn a release.

    A release of a published model is refused only if the worker is certain to refuse it. When the partition reads the
    release, it has learned at least as many releases as its newest model's version and at most as many as its partition
    has now. The release is admitted if any count in this range admits it. Duplicates are left to the worker.
    """

    def __init__(self, log: Log, task: Task) -> None:
        self._log, self._task = log, task
        device = device_for(task)
        self._device = interactive_of(device)
        self._admission = admission = device.admission()
        self._shared: SharedModels | None = None
        if self._device is not None and self._device.shares_models:
            # Imported here, as other tasks do not need it.
            from murk.stream.log.shared_models import SharedModels

            self._shared = SharedModels(log, task, admission)  # type: ignore[arg-type]
        self.rules = wire_rules(task, admission)
        self._checked: dict[int, tuple[bytes, int]] = {}
        self._bounds: dict[int, tuple[int, int]] = {}
        self._renewed: set[int] = set()

    @property
    def interactive(self) -> bool:
        """Whether devices need a model."""
        return self._device is not None

    def begin(self) -> None:
        """Allow another read of the log; call it before each group of releases that arrived together."""
        self._bounds.clear()
        self._renewed.clear()
        if self._shared is not None:
            self._shared.arrived()

    def judged(self, values: Sequence[bytes], now: int) -> list[Release | Reason]:
        """Return each release, or why it will not be learned; see `check`."""
        results: list[Release | Reason] = []
        for data in values:
            try:
                results.append(self.check(decode(data, self.rules), now))
            except RejectedError as rejected:
                results.append(rejected.reason)
        return results

    def check(self, release: Release, now: int) -> Release:
        """Return the release, or raise `RejectedError` if it will not be learned.

        ``now`` is in seconds since 1970. Raises `MurkError` if the log cannot be read.
        """
        check_times(release, now, self.rules)
        if self._device is None or self._shared is not None:
            # What is admitted does not depend on the partition's count.
            check_renewed(self._admission.check, release, 0, None if self._shared is None else self._shared.renew)
            return release
        partition = release.partition
        version = release.version if isinstance(release, GradientRelease | ScoreRelease) else 0
        if partition not in self._bounds:
            message, end = self._log.cached_model(partition)
            self._bounds[partition] = self._version(partition, message), end
        if version > self._bounds[partition][1] and partition not in self._renewed:
            # The cached model may be a moment old. Read again once in a group only, since forged versions must not keep
            # the log busy.
            self._renewed.add(partition)
            self._bounds[partition] = self._version(partition, self._log.model(partition)), self._log.end(partition)
        low, high = self._bounds[partition]
        self._admission.check(release, min(max(version, low), high))
        return release

    def model(self, partition: int) -> bytes | None:
        """Return a partition's newest valid model for devices, or None; raise `MurkError` if the log cannot be read."""
        source = FIRST_PARTITION if self._device is not None and self._device.shares_models else partition
        message, _ = self._log.cached_model(source)
        self._version(source, message)
        checked = self._checked.get(source)
        return None if checked is None else checked[0]

    def _version(self, partition: int, message: bytes | None) -> int:
        """Return the version of the newest valid model of a partition, 0 if there is none."""
        checked = self._checked.get(partition)
        if message is not None and self._device is not None and (checked is None or checked[0] != message):
            try:
                model = decode_model(
                    message, task_hash=self._task.hash, dimension=self._device.model_size, partition=partition
                )
                if not self._device.is_published(model.version):
                    raise UserError(f"no model is published at version {model.version}")
            except (RejectedError, UserError):
                # Devices would refuse it as well: the last valid one stays.
                pass
            else:
                checked = self._checked[partition] = message, model.version
        return 0 if checked is None else checked[1]
