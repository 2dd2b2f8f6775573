"""The outbox of notices in PostgreSQL."""

from __future__ import annotations

import uuid
from datetime import timedelta

import msgspec

from penstock.alerts.delivery.notice import ACKNOWLEDGED, NoticeMessage
from penstock.durable.alerts.notice_outbox import NoticeFilter, NoticeOutbox
from penstock.durable.pool import Database, fetch_value
from penstock.ids import new_id
from penstock.model import DEFAULT_SCOPE, Scope
from tests.integration.durable.alerts.alert_rows import add_channel, add_incident, add_notice
from tests.unit.alerts.delivery.notices import OPENED_AT


async def count_notices(database: Database) -> int:
    notices = await NoticeOutbox(database).list_notices(DEFAULT_SCOPE, NoticeFilter(), limit=1_000)
    return len(notices)


async def write_acknowledged(database: Database, incident_id: uuid.UUID) -> int:
    return await fetch_value(database, int, "SELECT write_acknowledged_notices_v1($1)", incident_id)


async def test_an_acknowledgement_goes_once_to_channels_with_such_an_event(database: Database) -> None:
    incident_id = await add_incident(database)
    for kind in ("webhook", "pagerduty", "slack"):
        await add_notice(database, incident_id, await add_channel(database, kind, kind))
    await add_channel(database, "not notified")
    outbox = NoticeOutbox(database)
    assert await write_acknowledged(database, incident_id) == 2
    assert await write_acknowledged(database, incident_id) == 0
    # The opened notices come first.
    for _ in range(2):
        leased = await outbox.lease(new_id(), 10, 60_000, ())
        messages = [msgspec.json.decode(notice.message, type=NoticeMessage) for notice in leased]
        assert [message.transition for message in messages] == [notice.transition for notice in leased]
        for notice in leased:
            await database.fetch("UPDATE alert_notices SET state = 'sent' WHERE id = $1", notice.id)
    assert {notice.transition for notice in leased} == {ACKNOWLEDGED}
    assert {notice.kind for notice in leased} == {"webhook", "pagerduty"}


async def test_another_environment_neither_sees_nor_repeats_a_notice(database: Database) -> None:
    notice_id = await add_notice(database, await add_incident(database), await add_channel(database))
    await database.fetch("UPDATE alert_notices SET state = 'failed'")
    outbox, other = NoticeOutbox(database), Scope(environment="other")
    assert await outbox.list_notices(other, NoticeFilter(notice_id=notice_id)) == []
    assert not await outbox.retry(other, notice_id)
    assert await outbox.retry(DEFAULT_SCOPE, notice_id)


async def test_old_notices_are_pruned_unless_they_are_pending_or_their_incident_is_open(
    database: Database,
) -> None:
    outbox, channel_id = NoticeOutbox(database), await add_channel(database)
    for is_resolved in (True, False):
        incident_id = await add_incident(database)
        await add_notice(database, incident_id, channel_id)
        await add_notice(database, incident_id, channel_id, "update 1")
        if is_resolved:
            await database.fetch(
                "UPDATE alert_incidents SET resolved_at = $2 WHERE id = $1", incident_id, OPENED_AT
            )
    await database.fetch("UPDATE alert_notices SET state = 'sent' WHERE transition = 'opened'")
    assert await outbox.prune(31, 100) == 0
    await database.fetch(
        "UPDATE alert_notices SET created_at = created_at - $1::interval", timedelta(days=32)
    )
    assert await outbox.prune(31, 100) == 1
    assert await count_notices(database) == 3
