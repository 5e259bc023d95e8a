"""What runs on a person's side: coding, accounts, outbox, and the producer that ties them together.

Names are imported when they are first used: a device that releases loads no River.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from murk.producers.encoder import Encoder
    from murk.producers.ledger.ledger import Ledger
    from murk.producers.policy import Policy
    from murk.producers.populations.file_source import FileSource
    from murk.producers.producer import Producer
    from murk.producers.sketches.producer import SketchProducer

_HOMES = {
    "Encoder": "murk.producers.encoder",
    "FileSource": "murk.producers.populations.file_source",
    "Ledger": "murk.producers.ledger.ledger",
    "Policy": "murk.producers.policy",
    "Producer": "murk.producers.producer",
    "SketchProducer": "murk.producers.sketches.producer",
}

__all__ = ["Encoder", "FileSource", "Ledger", "Policy", "Producer", "SketchProducer"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
