"""A person's or an organisation's side: accounts, outbox and producers; River is not loaded."""

from typing import TYPE_CHECKING

from murk._internal.lazy import lazy_exports

if TYPE_CHECKING:
    from murk.producers.async_producer import AsyncProducer as AsyncProducer
    from murk.producers.ledger.ledger import Ledger as Ledger
    from murk.producers.organisation import OrganisationProducer as OrganisationProducer
    from murk.producers.producer import Policy as Policy
    from murk.producers.producer import Producer as Producer

__all__, __getattr__, __dir__ = lazy_exports(__name__)
