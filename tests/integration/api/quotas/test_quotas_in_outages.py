"""While PostgreSQL is away, what a quota refuses does not go to the journal either."""

from __future__ import annotations

from penstock.config import Settings
from penstock.errors import DatabaseUnavailable
from penstock.model import DEFAULT_SCOPE
from tests.integration.api.http.raw_connections import run_server
from tests.integration.api.quotas.limited_broker import LimitedBroker, assert_exceeded, push
from tests.integration.broker.brokers import CuttableProxy
from tests.waiting import wait_until_async


async def test_a_push_beyond_the_stored_messages_is_not_journaled(settings: Settings) -> None:
    proxy = CuttableProxy(settings.postgres_url)
    async with proxy.run() as url, run_server(settings.model_copy(update={"postgres_url": url})) as server:
        broker = LimitedBroker(server)
        journal = broker.services.broker.journal
        assert journal is not None
        async with broker.client() as client:
            await push(client, "q", 1)
            await broker.limit(storedMessages=3)
            proxy.cut()

            async def is_outage_known() -> bool:
                try:
                    await broker.services.broker.store.catalog.has_queue(DEFAULT_SCOPE, "q")
                except DatabaseUnavailable:
                    return await broker.services.broker.database.outage.confirm()
                return False

            await wait_until_async(is_outage_known, 20, "the broker notices the outage")
            assert_exceeded(await push(client, "q", 2, 3, 4), "storedMessages", 3)
            assert not journal.has_records
            assert (await push(client, "q", 2)).status_code == 202
            assert journal.has_records
            assert_exceeded(await push(client, "q", 3, 4), "storedMessages", 3)
            proxy.restore()
