"""Channels and notices in a database, and senders that deliver them fast."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from penstock.alerts.delivery.backoff import Backoff
from penstock.alerts.delivery.channel_secrets import ChannelSecrets
from penstock.alerts.delivery.channel_service import AlertChannels, NoticeFilter, NoticeRecord
from penstock.alerts.delivery.notice import OPENED
from penstock.alerts.delivery.outbound import Outbound
from penstock.alerts.delivery.sender import Sender
from penstock.durable.pool import Database
from penstock.model import DEFAULT_SCOPE
from tests.integration.durable.alerts.alert_rows import add_incident, add_notice
from tests.unit.alerts.delivery.channels import ENCRYPTION_KEYS, channel_fields
from tests.waiting import wait_until_async

FAST = Backoff(first_s=0.01, max_s=0.05, max_attempts=5, jitter=0)


@dataclass(slots=True)
class Outbox:
    """A database with channels and notices."""

    database: Database
    secrets: ChannelSecrets
    outbound: Outbound

    @classmethod
    def create(cls, database: Database, outbound: Outbound) -> Outbox:
        return cls(database, ChannelSecrets(ENCRYPTION_KEYS), outbound)

    @property
    def channels(self) -> AlertChannels:
        return AlertChannels(self.database, self.secrets)

    async def add_channel(self, url: str, name: str = "ops", kind: str = "webhook") -> uuid.UUID:
        fields = channel_fields(kind, name=name, url=url)
        return (await self.channels.create(DEFAULT_SCOPE, fields)).id

    async def write(
        self, *channel_ids: uuid.UUID, transition: str = OPENED, incident_id: uuid.UUID | None = None
    ) -> uuid.UUID:
        """Write a notice of an incident, which is a new one by default, to each channel."""
        incident_id = incident_id or await add_incident(self.database)
        for channel_id in channel_ids:
            await add_notice(self.database, incident_id, channel_id, transition)
        return incident_id

    def create_sender(
        self, *, backoff: Backoff = FAST, lease_ms: int = 60_000, attempt_timeout_s: float = 10
    ) -> Sender:
        return Sender(
            self.database,
            self.secrets,
            self.outbound,
            console_url="https://penstock.example/",
            backoff=backoff,
            poll_interval_s=0.02,
            lease_ms=lease_ms,
            attempt_timeout_s=attempt_timeout_s,
        )

    @asynccontextmanager
    async def run_sender(
        self, *, backoff: Backoff = FAST, lease_ms: int = 60_000, attempt_timeout_s: float = 10
    ) -> AsyncIterator[Sender]:
        sender = self.create_sender(backoff=backoff, lease_ms=lease_ms, attempt_timeout_s=attempt_timeout_s)
        await sender.start()
        try:
            yield sender
        finally:
            await sender.stop()

    async def list_notices(self, state: str | None = None) -> list[NoticeRecord]:
        return await self.channels.list_notices(
            DEFAULT_SCOPE, NoticeFilter(state=state), limit=1_000, offset=0
        )

    async def wait_for_notices(self, state: str, count: int = 1) -> list[NoticeRecord]:
        async def has_enough() -> bool:
            return len(await self.list_notices(state)) >= count

        await wait_until_async(has_enough, 30, f"{count} notices are {state}")
        return await self.list_notices(state)
