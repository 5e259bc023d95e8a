"""A service's handlers release to Kafka."""

import asyncio
import secrets

from murk import Task
from murk.producers import AsyncProducer, Ledger
from murk.stream import open_log
from tests.producers.world import RECORD, TEXT


def test_handlers_release_to_a_broker(broker, tmp_path):
    name = f"service-{secrets.token_hex(6)}"
    url = f"{broker.url}/{name}"
    with open_log(url) as log:
        log.register_task(Task.parse(TEXT.replace("third-child", name, 1)).document())

    async def main():
        async with AsyncProducer(url, tmp_path / "ledger.db") as producer:

            async def handler(number):
                return [await producer.release(RECORD, person=f"p{number}-{turn}") for turn in range(4)]

            return [each for of in await asyncio.gather(*map(handler, range(16))) for each in of]

    receipts = asyncio.run(main())
    assert {(each.outcome, each.delivery) for each in receipts} == {("released", "sent")}
    with open_log(url, create=False) as log, Ledger(tmp_path / "ledger.db") as ledger:
        assert len(list(log.releases())) == ledger.totals().releases == 64
        assert ledger.pending() == 0
