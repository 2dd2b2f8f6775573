"""The outbox of notices in PostgreSQL."""

from __future__ import annotations

import pytest

from penstock.alerts.delivery.notice import RESOLVED
from penstock.durable.alerts.notice_outbox import write_notices
from penstock.durable.pool import Database
from tests.integration.durable.alerts.alert_rows import add_channel, add_incident, notice_draft


async def count_notices(database: Database) -> int:
    row = await database.fetchrow("SELECT count(*) AS notices FROM alert_notices")
    assert row is not None
    count: int = row["notices"]
    return count


async def test_a_notice_is_written_once_per_incident_transition_and_channel(database: Database) -> None:
    incident_id = await add_incident(database)
    channels = [await add_channel(database, name) for name in ("ops", "shop")]
    drafts = [notice_draft(incident_id, channel_id) for channel_id in channels]
    assert await write_notices(database, drafts) == 2
    assert await write_notices(database, drafts) == 0
    assert await write_notices(database, [notice_draft(incident_id, channels[0], RESOLVED)]) == 1
    assert await count_notices(database) == 3


async def test_notices_belong_to_the_transaction_of_the_connection(database: Database) -> None:
    incident_id, channel_id = await add_incident(database), await add_channel(database)

    async def write_and_fail() -> None:
        async with database.connection() as connection, connection.transaction():
            assert await write_notices(connection, [notice_draft(incident_id, channel_id)]) == 1
            raise ValueError("the decision failed")

    with pytest.raises(ValueError, match="the decision failed"):
        await write_and_fail()
    assert await count_notices(database) == 0


async def test_a_deleted_channel_and_a_channel_of_another_environment_get_no_notice(
    database: Database,
) -> None:
    incident_id = await add_incident(database)
    deleted_id, other_id = await add_channel(database), await add_channel(database, "ops", "other")
    await database.fetch("DELETE FROM alert_channels WHERE id = $1", deleted_id)
    drafts = [notice_draft(incident_id, channel_id) for channel_id in (deleted_id, other_id)]
    assert await write_notices(database, drafts) == 0
