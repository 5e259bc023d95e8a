"""Dead letters as records of a topic, and back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from murk.stream.log.base import DeadLetter
from murk.stream.log.kafka.consumers import Reader, records

_REASON = "reason"
_DETAIL = "detail"
_DIGITS = 19


def record(letter: DeadLetter) -> dict[str, Any]:
    """Return what is sent for a letter: its message, its place as the key, the rest as headers."""
    return {
        "value": letter.value,
        "key": f"{letter.partition}:{letter.offset}".encode(),
        "headers": [(_REASON, letter.reason.encode()), (_DETAIL, letter.detail.encode())],
    }


def letters(reader: Reader, chain: int) -> Iterator[DeadLetter]:
    """Iterate over a chain's dead letters; what a repeated commit wrote twice is given once."""
    last = -1
    for found in records(reader):
        place = (found.key or b"").rpartition(b":")[2]
        # Somebody else's record in the topic is none of ours.
        if place.isdigit() and len(place) <= _DIGITS and int(place) > last:
            last = int(place)
            headers = dict(found.headers)
            # A stranger's header may have no value at all.
            reason, detail = ((headers.get(key) or b"").decode("utf-8", "replace") for key in (_REASON, _DETAIL))
            yield DeadLetter(chain, last, reason, detail, found.value or b"")
