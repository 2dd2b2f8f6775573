"""Rows of alerts that tests of several modules need."""

from __future__ import annotations

import uuid

from penstock.alerts.delivery.notice import OPENED
from penstock.durable.alerts.notice_outbox import NoticeDraft
from penstock.durable.pool import Database
from penstock.ids import new_id
from tests.unit.alerts.delivery.notices import OPENED_AT, notice_message


async def add_environment(database: Database, name: str = "default") -> int:
    """Create an environment, or find it, and return its id."""
    await database.fetch(
        "INSERT INTO environments (organization, project, name) VALUES ('default', 'default', $1) "
        "ON CONFLICT DO NOTHING",
        name,
    )
    row = await database.fetchrow("SELECT environment_id_v1('default', 'default', $1) AS id", name)
    assert row is not None
    environment_id: int = row["id"]
    return environment_id


async def add_channel(database: Database, name: str = "ops", environment: str = "default") -> uuid.UUID:
    """Create a webhook channel without secrets."""
    channel_id = new_id()
    await database.fetch(
        "INSERT INTO alert_channels (id, environment_id, name, kind, settings, secrets) "
        "VALUES ($1, $2, $3, 'webhook', '{}', '')",
        channel_id,
        await add_environment(database, environment),
        name,
    )
    return channel_id


async def add_incident(database: Database, environment: str = "default") -> uuid.UUID:
    incident_id = new_id()
    await database.fetch(
        "INSERT INTO alert_incidents (id, environment_id, rule, severity, opened_at) "
        "VALUES ($1, $2, '{}', 'warning', $3)",
        incident_id,
        await add_environment(database, environment),
        OPENED_AT,
    )
    return incident_id


def notice_draft(incident_id: uuid.UUID, channel_id: uuid.UUID, transition: str = OPENED) -> NoticeDraft:
    return NoticeDraft(incident_id, transition, channel_id, notice_message(incident_id, transition))
