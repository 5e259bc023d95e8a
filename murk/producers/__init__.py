"""Everything that runs on a person's device: coding, accounts, outbox and producer; River is not loaded."""

from typing import TYPE_CHECKING

from murk._lazy import lazy_exports

if TYPE_CHECKING:
    from murk.producers.encoder import Encoder
    from murk.producers.ledger.ledger import Ledger
    from murk.producers.populations.file_source import FileSource
    from murk.producers.populations.records.records import open_records
    from murk.producers.producer import Policy, Producer
    from murk.producers.sketches import SketchProducer

__all__ = ["Encoder", "FileSource", "Ledger", "Policy", "Producer", "SketchProducer", "open_records"]

_HOMES = {
    "Encoder": ".encoder",
    "FileSource": ".populations.file_source",
    "Ledger": ".ledger.ledger",
    "Policy": ".producer",
    "Producer": ".producer",
    "SketchProducer": ".sketches",
    "open_records": ".populations.records.records",
}
__getattr__, __dir__ = lazy_exports(__name__, _HOMES)
