"""A sender in a process of its own, which a test kills: `python -m … DATABASE_URL`."""

from __future__ import annotations

import asyncio
import sys

from penstock.alerts.delivery.address_check import AddressCheck
from penstock.alerts.delivery.channel_secrets import ChannelSecrets
from penstock.alerts.delivery.outbound import Outbound
from penstock.alerts.delivery.sender import Sender
from penstock.durable.pool import Database
from tests.unit.alerts.delivery.channels import ENCRYPTION_KEYS

LEASE_MS = 1_000


async def run(database_url: str) -> None:
    outbound = Outbound(AddressCheck("127.0.0.0/8"))
    sender = Sender(Database(database_url, 2), ChannelSecrets(ENCRYPTION_KEYS), outbound, lease_ms=LEASE_MS)
    await sender.start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1]))
