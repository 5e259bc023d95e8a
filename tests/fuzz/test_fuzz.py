"""A fixed share of the hostile inputs, the same every time; and that what must not happen would be found."""

import itertools
from collections.abc import Iterator

import pytest

from murk.errors import UserError
from murk.populations import FileSource
from tests.fuzz import campaign
from tests.fuzz.targets import SHARES, Target

# Some tenths of a second each.
INPUTS = {
    "gradient": 1200,
    "example": 1200,
    "moment": 1200,
    "sketch": 1200,
    "gram": 1200,
    "newton": 1200,
    "score": 1200,
    "model": 1200,
    "http": 120,
    "state": 120,
    "gateway": 6,
    "door": 120,
}
FEW = 60


@pytest.fixture(scope="module", autouse=True)
def _scratch() -> Iterator[None]:
    with campaign.scratch():
        yield
    campaign.open_target.cache_clear()


@pytest.mark.parametrize("name", SHARES)
def test_nothing_hostile_does_harm(name: str) -> None:
    inputs = INPUTS.get(name, FEW)
    report = campaign.chunk(1, name, 0, inputs)
    assert report.findings == []
    assert report.inputs == inputs
    if name == "gateway":
        # Nothing that a record holds is a reason to refuse a file.
        assert set(report.outcomes) == {"accepted"}
        return
    # Most of it is refused, and something gets through to what lies behind.
    assert len(report.outcomes) > 1
    assert 0 < report.outcomes["200" if name == "http" else "accepted"] < inputs / 2


def test_an_input_is_made_again_from_its_number() -> None:
    target = campaign.open_target("gradient")
    rng = campaign.Random()
    made = [target.make(campaign.numbered(3, "gradient", number, rng)) for number in range(50)]
    again = [target.make(campaign.numbered(3, "gradient", number, rng)) for number in reversed(range(50))]
    assert made == again[::-1]
    assert len(set(made)) > 45


def _raise(data: bytes) -> str:
    raise ZeroDivisionError("x")


def _hang(data: bytes) -> str:
    for _ in itertools.repeat(None):
        pass
    return "accepted"


def _escape(data: bytes) -> str:
    error = UserError()
    # Past what makes the words of an error printable.
    error.args = ("\x1b[2J",)
    raise error


def _kill(data: bytes) -> str:
    raise SystemExit


PLANTED = {"ZeroDivisionError": _raise, "HangError": _hang, "FindingError": _escape, "SystemExit": _kill}


@pytest.mark.parametrize("error", PLANTED)
def test_a_planted_mistake_is_found(monkeypatch: pytest.MonkeyPatch, error: str) -> None:
    monkeypatch.setattr(campaign, "INPUT_SECONDS", 0.05)
    monkeypatch.setattr(campaign, "open_target", lambda name: Target(lambda rng: b"x", PLANTED[error]))
    report = campaign.chunk(1, "gradient", 0, 3)
    assert [finding.error.partition(":")[0] for finding in report.findings] == [error] * 3
    assert [finding.first for finding in report.findings] == [0, 1, 2]


def test_a_gateway_that_values_stop_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """As all were that read a file of real people as strictly as a simulation's."""
    reading = FileSource.__init__

    def strictly(self: FileSource, *arguments: object, **options: object) -> None:
        reading(self, *arguments, **{**options, "strict": True})

    monkeypatch.setattr(FileSource, "__init__", strictly)
    report = campaign.chunk(1, "gateway", 5, 1)
    assert [one.error for one in report.findings] == ["FindingError: one file ends with 'done', the other with 'user'"]


def test_shares_are_of_all_targets() -> None:
    assert sum(SHARES.values()) == pytest.approx(1.0)
    counts = campaign.shares(10**7, list(SHARES))
    assert sum(counts.values()) == 10**7
    jobs = list(campaign._jobs(1, counts, 0))
    for name, count in counts.items():
        numbers = [(first, size) for _, target, first, size in jobs if target == name]
        assert sum(size for _, size in numbers) == count
        assert all(a + size == b for (a, size), (b, _) in itertools.pairwise(numbers))
