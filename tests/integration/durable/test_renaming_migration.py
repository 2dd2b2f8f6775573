"""Migration 0007 renames functions, columns and tables of a database that already holds data."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

import asyncpg
import pytest_asyncio

from penstock.durable import migrations
from tests.integration.databases import new_database

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

LAST_OLD_MIGRATION = "0006_worker_metrics"
NOW = datetime(2030, 1, 1, tzinfo=UTC)
LEASE_ID = uuid.UUID(int=1)
OPERATION_ID = uuid.UUID(int=2)
JOB_ID = uuid.UUID(int=3)
MESSAGE_IDS = [uuid.UUID(int=100 + offset) for offset in range(4)]

OLD_FUNCTIONS = """
CREATE FUNCTION bury_v1(p_id bigint) RETURNS void LANGUAGE sql AS $$ SELECT $$;
CREATE FUNCTION pass_over_v1(p positions) RETURNS bigint LANGUAGE sql AS $$ SELECT p.cursor $$;
CREATE FUNCTION take_job_v1(p_owner uuid) RETURNS SETOF jobs LANGUAGE sql AS $$ SELECT * FROM jobs $$;
INSERT INTO schema_migrations (kind, name, checksum)
VALUES ('function', 'push', 'x'), ('function', 'bury', 'x');
"""

OLD_DATA = """
INSERT INTO environments (organization, project, name) VALUES ('default', 'default', 'default');
INSERT INTO queues (environment_id, name) SELECT id, 'orders' FROM environments;
INSERT INTO groups (queue_id, name) SELECT id, 'g' FROM queues;
INSERT INTO partitions (queue_id, name, next_offset, pushed_at, spilled)
SELECT id, 'Default', 4, '2029-12-31T00:00:00Z', 1 FROM queues;
INSERT INTO positions (partition_id, group_id, cursor, ready_at, lease_id, leased_at, lease_expires_at,
                       lease_from, lease_to, done, careful_until)
SELECT p.id, g.id, 1, '2030-01-01T00:01:00Z', '00000000-0000-0000-0000-000000000001', '2030-01-01T00:00:00Z',
       '2030-01-01T00:01:00Z', 1, 2, '{[2,3)}', 2
FROM partitions p CROSS JOIN groups g;
INSERT INTO tallies (queue_id, group_id, slot, messages)
SELECT id, 0, 0, 4 FROM queues UNION ALL SELECT queue_id, id, 0, 1 FROM groups;
INSERT INTO operations (id, kind, queue_id, partition_id, reason, priority, accepted_at, items, bytes,
                        message_ids, payloads)
SELECT '00000000-0000-0000-0000-000000000002', 'push', queue_id, id, 'system_busy', 5, '2029-12-31T00:00:00Z',
       1, 1, ARRAY['00000000-0000-0000-0000-0000000000ff'::uuid], ARRAY['e'::bytea] FROM partitions;
INSERT INTO lanes (partition_id, kind, due, not_before)
SELECT id, 'push', '2029-12-31T00:00:05Z', '2029-12-31T00:00:00Z' FROM partitions;
INSERT INTO operation_tallies (kind, slot, accepted) VALUES ('push', 0, 1);
INSERT INTO dead_letters (queue_id, partition_id, group_id, message_offset, message_id, transaction_id,
                          payload, error, attempts, created_at, failed_at)
SELECT p.queue_id, p.id, g.id, 0, gen_random_uuid(), 'first', 'a', 'code 7', 1, now(), now()
FROM partitions p CROSS JOIN groups g;
INSERT INTO jobs (id, environment_id, kind, failed_before, letter_ids, total, total_is_exact, looked_at,
                  at_id)
SELECT '00000000-0000-0000-0000-000000000003', id, 'purge', '2030-01-01T00:00:00Z', '{1}', 1, true, 5, 7
FROM environments;
INSERT INTO xid_clock (at, next_xid) VALUES ('2029-12-31T00:00:00Z', '5');
"""


@pytest_asyncio.fixture
async def migrated(postgres_url: str) -> AsyncIterator[Connection]:
    """A database of migrations 0001 to 0006 with data and old functions, migrated to the present schema."""
    names = [script.name for script in migrations.load_scripts("migrations")]
    async with new_database(postgres_url) as url, migrations.migration_lock(url) as connection:
        await migrations.apply(connection, names.index(LAST_OLD_MIGRATION) + 1)
        await connection.execute(OLD_FUNCTIONS)
        await connection.execute(OLD_DATA)
        await connection.execute(
            """INSERT INTO log (chunk, partition_id, first_offset, last_offset, created_at, message_ids,
                                payloads)
               SELECT 1, id, 0, 3, '2029-12-31T00:00:00Z', $1::uuid[], $2::bytea[] FROM partitions""",
            MESSAGE_IDS,
            [b"a", b"b", b"c", b"d"],
        )
        await migrations.apply(connection)
        yield connection


async def ids(connection: Connection) -> tuple[int, int]:
    row = await connection.fetchrow("SELECT partition_id, group_id FROM positions")
    assert row is not None
    return row["partition_id"], row["group_id"]


async def test_old_functions_are_dropped(migrated: Connection) -> None:
    rows = await migrated.fetch(
        """SELECT proname FROM pg_proc WHERE pronamespace = 'penstock'::regnamespace
           AND proname IN ('bury_v1', 'pass_over_v1', 'take_job_v1', 'count_dead_v1', 'name_error_v1')"""
    )
    assert rows == []
    recorded = await migrated.fetch("SELECT name FROM schema_migrations WHERE kind = 'function'")
    assert {row["name"] for row in recorded} == {
        script.name for script in migrations.load_scripts("functions")
    }


async def test_data_is_kept_under_the_new_names(migrated: Connection) -> None:
    async def read(query: str) -> tuple[object, ...]:
        row = await migrated.fetchrow(query)
        assert row is not None
        return tuple(row)

    assert await read("SELECT cursor, finished::text, redeliver_singly_until, lease_id FROM positions") == (
        1,
        "{[2,3)}",
        2,
        LEASE_ID,
    )
    assert await read("SELECT next_offset, deferred_pushes, deferred_acks FROM partitions") == (4, 1, 0)
    assert await read("SELECT id, sequence, blocks_lane FROM operations") == (OPERATION_ID, 1, False)
    assert await read("SELECT due_at FROM lanes") == (NOW - timedelta(days=1) + timedelta(seconds=5),)
    assert await read("SELECT stage, blocking_transactions, table_name FROM chunk_stages") == (
        "open",
        None,
        "log",
    )
    assert await read("SELECT id, dead_letter_ids, scanned, cursor_dead_letter_id FROM jobs") == (
        JOB_ID,
        [1],
        5,
        7,
    )
    assert await read("SELECT read_at FROM xid_clock") == (NOW - timedelta(days=1),)
    assert await read("SELECT transaction_id, error_key IS NULL FROM dead_letters") == ("first", False)


async def test_the_lease_of_before_can_be_acked(migrated: Connection) -> None:
    partition_id, group_id = await ids(migrated)
    arguments = ([partition_id], [group_id], [LEASE_ID], [str(MESSAGE_IDS[1])], ["completed"], [None], NOW)
    [ack] = await migrated.fetch("SELECT * FROM ack_v1($1, $2, $3, $4, $5, $6, $7)", *arguments)
    assert (ack["outcome"], ack["lease_released"]) == ("completed", True)
    assert await migrated.fetchval("SELECT cursor FROM positions") == 3


async def test_the_deferred_push_of_before_comes_before_new_pushes(migrated: Connection) -> None:
    partition_id, group_id = await ids(migrated)
    push = "SELECT first_offsets FROM push_v1($1, $2, $3, NULL, NULL, $4, $5)"
    message = ([partition_id], [1], [uuid.uuid4()], [b"f"], NOW)
    assert await migrated.fetchval(push, *message) == [-1]
    [drained] = await migrated.fetch("SELECT * FROM drain_v1('push', 10, 10, $1)", NOW)
    assert (drained["operations"], drained["messages"]) == (1, 1)
    assert await migrated.fetchval(push, *message) == [5]

    popped: list[bytes] = []
    later = NOW + timedelta(hours=1)  # the lease of before has expired
    while rows := await pop(migrated, group_id, later):
        popped += [payload for row in rows for payload in row["payloads"]]
        later += timedelta(seconds=1)
    assert popped == [b"b", b"d", b"e", b"f"]
    assert await migrated.fetchval("SELECT cursor FROM positions") == 6


async def pop(connection: Connection, group_id: int, now: datetime) -> list[asyncpg.Record]:
    """Pop one message with auto-ack."""
    return await connection.fetch(
        "SELECT * FROM pop_v1($1, $2, $3, $4, NULL, 60000, true, $5)", group_id, [uuid.uuid4()], [1], [1], now
    )


async def test_dead_letters_are_counted_and_requeued(migrated: Connection) -> None:
    queue_id = await migrated.fetchval("SELECT id FROM queues")
    count = "SELECT dead_letter_count_v1($1)"
    assert await migrated.fetchval(count, queue_id) == 1
    await migrated.execute(
        "UPDATE partitions SET deferred_pushes = 0; DELETE FROM lanes; DELETE FROM operations"
    )
    [requeued] = await migrated.fetch(
        "SELECT * FROM requeue_dead_letters_v1(ARRAY(SELECT id FROM dead_letters), $1, 'group', $2)",
        [uuid.uuid4()],
        NOW,
    )
    assert (requeued["outcome"], requeued["message_offset"]) == ("queued", 4)
    assert await migrated.fetchval(count, queue_id) == 0
