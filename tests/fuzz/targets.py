"""What is given hostile inputs, and what may become of one.

A target makes inputs out of honest ones and gives them to the same code that meets them in earnest. What becomes of
one is ``accepted`` or the kind of its refusal; every other exception is a finding.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from types import MappingProxyType

from murk.errors import MurkError, UserError
from murk.stream.wire.codec import RejectedError
from murk.stream.wire.releases import KINDS

Maker = Callable[[Random], bytes]
Taker = Callable[[bytes], str]


class FindingError(AssertionError):
    """Something that must not have happened, though nothing was raised."""


@dataclass(frozen=True)
class Target:
    """One door, as it is set up in a process.

    Parameters
    ----------
    make
        Makes an input.
    take
        Takes it as the code does that meets it in earnest, and says what became of it.
    check
        Looks after some inputs at whether what took them is still in order.
    """

    make: Maker
    take: Taker
    check: Callable[[], None] = lambda: None


def outcome(taker: Taker, data: bytes) -> str:
    """What becomes of an input: ``accepted``, a `RejectedError`'s reason, or that it was refused in words."""
    try:
        return taker(data)
    except RejectedError as rejected:
        _check_words(str(rejected))
        return rejected.reason
    except UserError as error:
        _check_words(str(error))
        return "refused (user)"
    except MurkError as error:
        _check_words(str(error))
        return "refused"


def _check_words(text: str) -> None:
    """A refusal says something, in so many words as a person reads, on a terminal that it does not take over."""
    if not text.strip() or len(text) > MOST_WORDS:
        raise FindingError(f"a refusal of {len(text)} characters: {text[:300]}")
    if "\x1b" in text or "\0" in text:
        raise FindingError(f"a refusal that holds control characters: {text[:300]!r}")


MOST_WORDS = 20_000

SHARES: Mapping[str, float] = MappingProxyType(
    {
        "gradient": 0.2, "example": 0.15, "moment": 0.15, "sketch": 0.08, "gram": 0.03, "newton": 0.02, "model": 0.15,
        "control": 0.01, "state": 0.01, "source": 0.001, "task": 0.002, "http": 0.0075, "score": 0.1794,
        "gateway": 0.0001, "door": 0.01,
    }
)  # fmt: skip
"""Share of a campaign's inputs: most where an input takes microseconds and anybody may send one."""


def target(name: str) -> Target:
    """Set a target up in this process."""
    from tests.fuzz import door, gateway, http, sources, states, tasks, wire

    makers = {
        **{kind: (lambda kind=kind: wire.releases(kind)) for kind in KINDS},
        "model": wire.models,
        "control": tasks.control,
        "state": states.states,
        "source": sources.sources,
        "task": tasks.texts,
        "http": http.requests,
        "gateway": gateway.gateways,
        "door": door.doors,
    }
    return makers[name]()
