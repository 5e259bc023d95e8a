"""A person's or an organisation's side: accounts, outbox and producers; River is not loaded."""

from typing import TYPE_CHECKING

from murk._internal.lazy import lazy_exports

if TYPE_CHECKING:
    from murk.producers.ledger.ledger import Ledger
    from murk.producers.organisation import OrganisationProducer
    from murk.producers.producer import Policy, Producer

__all__ = ["Ledger", "OrganisationProducer", "Policy", "Producer"]

_HOMES = {
    "Ledger": ".ledger.ledger",
    "Policy": ".producer",
    "Producer": ".producer",
    "OrganisationProducer": ".organisation",
}
__getattr__, __dir__ = lazy_exports(__name__, _HOMES)
