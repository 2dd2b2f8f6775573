"""Rows of alerts that tests of several modules need."""

from __future__ import annotations

import uuid

import msgspec

from penstock.alerts.delivery.notice import OPENED
from penstock.durable.pool import Database
from penstock.ids import new_id
from penstock.model import DEFAULT_SCOPE
from tests.unit.alerts.delivery.notices import OPENED_AT, notice_message


async def add_environment(database: Database) -> int:
    """Return the id of the default environment, which is created if it does not exist."""
    await database.fetch(
        "INSERT INTO environments (organization, project, name) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
        *DEFAULT_SCOPE,
    )
    row = await database.fetchrow("SELECT environment_id_v1($1, $2, $3) AS id", *DEFAULT_SCOPE)
    assert row is not None
    environment_id: int = row["id"]
    return environment_id


async def add_channel(database: Database, name: str = "ops", kind: str = "webhook") -> uuid.UUID:
    """Create a channel without settings and secrets."""
    channel_id = new_id()
    await database.fetch(
        "INSERT INTO alert_channels (id, environment_id, name, kind, settings, secrets) "
        "VALUES ($1, $2, $3, $4, '{}', '')",
        channel_id,
        await add_environment(database),
        name,
        kind,
    )
    return channel_id


async def add_incident(database: Database) -> uuid.UUID:
    incident_id = new_id()
    await database.fetch(
        "INSERT INTO alert_incidents (id, environment_id, rule, severity, opened_at) "
        "VALUES ($1, $2, '{}', 'warning', $3)",
        incident_id,
        await add_environment(database),
        OPENED_AT,
    )
    return incident_id


async def add_notice(
    database: Database, incident_id: uuid.UUID, channel_id: uuid.UUID, transition: str = OPENED
) -> uuid.UUID:
    """Write a notice as the evaluator does."""
    notice_id = new_id()
    await database.fetch(
        "INSERT INTO alert_notices (id, environment_id, incident_id, transition, channel_id, message) "
        "SELECT $1, environment_id, $2, $3, id, $5 FROM alert_channels WHERE id = $4",
        notice_id,
        incident_id,
        transition,
        channel_id,
        msgspec.json.encode(notice_message(incident_id, transition)).decode(),
    )
    return notice_id
