"""Migrating a database with dead letters adds counts by error while dead letters are added and deleted."""

from __future__ import annotations

import asyncio

import asyncpg

from penstock.durable import migrations
from penstock.durable.dead_letters import dead_letter_counts
from penstock.durable.dead_letters.error_group_store import ErrorGroupStore
from penstock.durable.pool import Database
from penstock.model import DEFAULT_SCOPE
from tests.integration.databases import new_database
from tests.integration.durable.dead_letters.dead_letter_steps import recount, wrong_counts

DEAD_LETTERS = 2_500
INSERT_DEAD_LETTERS = """
         INSERT INTO dead_letters (queue_id, partition_id, group_id, message_offset, message_id,
                                   transaction_id, payload, error, attempts, created_at, failed_at)
         SELECT q.id, t.id, g.id, n, gen_random_uuid(), n::text, '{}', 'code ' || n, 1, now(), now()
         FROM queues q JOIN partitions t ON t.queue_id = q.id JOIN groups g ON g.queue_id = q.id
         CROSS JOIN generate_series($1::int, $2::int) n"""


class Traffic:
    """Adds and deletes dead letters until `stopping` is set."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.stopping = False
        self.rounds = 0

    async def run(self) -> None:
        connection = await asyncpg.connect(self._url, server_settings={"search_path": "penstock"})
        number = DEAD_LETTERS
        while not self.stopping:
            await connection.execute(INSERT_DEAD_LETTERS, number, number + 2)
            await connection.execute("DELETE FROM dead_letters WHERE message_offset = $1", number + 1)
            number += 3
            self.rounds += 1
        await connection.close()


async def test_a_migration_under_traffic_counts_and_groups_dead_letters(postgres_url: str) -> None:
    before = [script.name for script in migrations.load_scripts("migrations")].index("0005_dead_letters")
    async with new_database(postgres_url) as url:
        async with migrations.migration_lock(url) as connection:
            await migrations.apply(connection, before)
            await connection.execute(
                """INSERT INTO environments (organization, project, name)
                   VALUES ('default', 'default', 'default');
                   INSERT INTO queues (environment_id, name) SELECT id, 'q' FROM environments;
                   INSERT INTO partitions (queue_id, name) SELECT id, 'p' FROM queues;
                   INSERT INTO groups (queue_id, name) SELECT id, 'g' FROM queues"""
            )
            await connection.execute(INSERT_DEAD_LETTERS, 0, DEAD_LETTERS - 1)
        traffic = Traffic(url)
        running = asyncio.create_task(traffic.run())
        async with migrations.migration_lock(url) as connection:
            assert "0005_dead_letters" in await migrations.apply(connection)
        database = Database(url, 2)
        assert await wrong_counts(database) == []
        rounds = 0
        while await dead_letter_counts.assign_error_keys(database):
            await dead_letter_counts.fold_deltas(database)
            assert await wrong_counts(database) == []
            assert (await dead_letter_counts.recount(database)).drift == 0
            rounds += 1
        traffic.stopping = True
        await running
        assert rounds >= DEAD_LETTERS // dead_letter_counts.DEAD_LETTERS_PER_STEP
        assert traffic.rounds > 0
        [group] = await ErrorGroupStore(database).list_error_groups(DEFAULT_SCOPE, limit=10, offset=0)
        assert (group.pattern, group.messages) == ("code <n>", DEAD_LETTERS + 2 * traffic.rounds)
        assert await recount(database) == 0
        await database.close()
