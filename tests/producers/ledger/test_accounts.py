"""The benchmark of renewing accounts, small: killed processes, clock jumps, and an older copy of the ledger."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.accounts import LEVELS, RELEASE, SPENT, TASK, check, soak


def test_no_account_is_above_a_cap() -> None:
    figures = soak(accounts=400, weeks=4, kills=1, copies=1, seed=4)
    assert (figures["above in a week"], figures["above for life"]) == (0, 0)
    assert figures["older copies refused"] == figures["older copies put back"]
    # Smaller caps would be seen to be exceeded.
    assert figures["caps of 95% exceeded"] > 50
    assert figures["account-weeks"] > 400


@pytest.mark.parametrize("twice", ["week", "life"])
def test_an_account_above_its_cap_is_found(tmp_path: Path, twice: str) -> None:
    count = 2 if twice == "week" else 10
    releases = np.zeros(count + 1, dtype=RELEASE)
    releases["id"] = np.arange(count + 1)
    releases["id"][-1] = 0  # sent twice, and counted once
    releases["window"][:-1] = 7 if twice == "week" else np.arange(count)
    releases.tofile(tmp_path / "log.bin")
    figures = check(tmp_path / "log.bin", accounts=3)
    found = figures["above in a week"], figures["above for life"], figures["sent twice"]
    assert found == ((1, 0, 1) if twice == "week" else (0, 1, 1))


def test_levels_cost_what_the_task_says() -> None:
    assert {name: round(level.mu**2, 12) for name, level in TASK.privacy.levels.items()} == SPENT  # type: ignore[attr-defined]
    assert list(SPENT) == LEVELS
