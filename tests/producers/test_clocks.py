"""Devices whose clocks are wrong: nothing is born expired, and no budget is spent for nothing."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from murk.errors import UserError
from murk.producers import Ledger, Producer
from murk.stream import open_log
from tests.gateway.devices import RECORD, announced, stored, task

DAY = 86_400.0


@pytest.mark.parametrize(
    "off", [-9 * DAY, 9 * DAY, -20 * 365 * DAY, 500 * 365 * DAY, -time.time() - 1e6, float("nan"), float("-inf")]
)
def test_the_log_bounds_the_clock_of_a_device(tmp_path: Path, off: float) -> None:
    of, now = task(), time.time()
    url = announced(tmp_path, of)
    with open_log(url, create=False) as log, Ledger(tmp_path / "ledger.db") as ledger:
        receipt = Producer(of, log, ledger, clock=lambda: now + off).release(RECORD)
    assert (receipt.outcome, receipt.delivery) == ("released", "sent")
    (message,) = stored(url)
    expires = now + of.expiry
    assert abs(json.loads(message)["expires"] - expires) <= of.granularity


@pytest.mark.parametrize("clock", [lambda: -1.0, lambda: float("nan"), lambda: 1e18])
def test_a_clock_that_nothing_bounds_releases_nothing(tmp_path: Path, clock: Callable[[], float]) -> None:
    of = task()
    url = announced(tmp_path, of)
    with open_log(url, create=False) as log, Ledger(tmp_path / "ledger.db") as ledger:
        log.time_bounds = lambda: (float("-inf"), float("inf"))  # type: ignore[method-assign]
        with pytest.raises(UserError, match="this device's clock"):
            Producer(of, log, ledger, clock=clock).release(RECORD)
        assert Producer(of, log, ledger).release(RECORD).outcome == "released"
    assert len(stored(url)) == 1
