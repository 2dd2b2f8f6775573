"""Dead letter counts equal the rows under concurrent changes, rollbacks and crashes.

Three sessions work on the same dead letters, each through a list of deaths, requeues, deletions and purges,
while a fourth folds and recounts. Any step may be rolled back, or its session may end before it commits.

`DEAD_COUNT_EXAMPLES=2000` makes it a long, random run; otherwise it is short and always the same.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any
from uuid import UUID, uuid4

import asyncpg
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from penstock.durable import log
from penstock.durable.cluster_lock import ResourceBusy
from penstock.durable.dead_letters import dead_letter_counts
from penstock.durable.dead_letters.dead_letter_store import DeadLetterFilter, DeadLetterStore
from penstock.durable.dead_letters.jobs import JobStore
from penstock.durable.log import Ack, PartitionName, PopRequest, Segment
from penstock.durable.pool import SESSION, Database
from penstock.ids import new_id
from penstock.model import DEFAULT_SCOPE
from tests.integration.durable.dead_letters.dead_letter_steps import recount, wrong_counts
from tests.integration.durable.queue_under_test import create_group

LONG_RUN = int(os.environ.get("DEAD_COUNT_EXAMPLES", 0))
EXAMPLES = LONG_RUN or 10
GROUPS = ("g", "h")

endings = st.sampled_from(["commit"] * 5 + ["roll back", "crash", "killed"])
numbers = st.integers(0, 5)
changes = st.sampled_from(["die", "die", "die", "requeue", "delete", "purge", "requeue job", "drop message"])
maintenance = st.sampled_from(["fold", "fold", "recount", "group"])
change_lists = st.lists(st.tuples(changes, numbers, endings), min_size=2, max_size=8)
maintenance_lists = st.lists(st.tuples(maintenance, numbers, endings), min_size=2, max_size=8)


class Worker:
    """Runs steps in one session, and opens a new session after a crash."""

    completed_steps = 0
    crashes = 0

    def __init__(self, url: str, admin: Database) -> None:
        self._url = url
        self._admin = admin
        self._session: asyncpg.Connection[asyncpg.Record] | None = None

    async def run(self, steps: list[tuple[str, int, str]]) -> None:
        for step, number, ending in steps:
            if self._session is None or self._session.is_closed():
                self._session = await asyncpg.connect(self._url, server_settings=SESSION)
            try:
                await self._step(self._session, step, number, ending)
                type(self).completed_steps += 1
            except (ResourceBusy, asyncpg.DeadlockDetectedError):
                continue  # it changed nothing; a client would retry it
            except (
                asyncpg.PostgresConnectionError,
                asyncpg.InterfaceError,
                asyncpg.AdminShutdownError,
                OSError,
            ):
                type(self).crashes += 1
                self._session.terminate()
        if self._session is not None:
            await self._session.close()

    async def _step(self, session: Any, step: str, number: int, ending: str) -> None:
        kill = None
        async with session.transaction():
            if ending == "killed":  # at any time during the step, or just before its end
                kill = asyncio.create_task(self._kill(session.get_server_pid(), number))
            await getattr(self, step.replace(" ", "_"))(session, number)
            if ending == "crash":
                session.terminate()
            if kill is not None:
                await kill
                await session.fetch("SELECT 1")
            if ending == "roll back":
                raise ResourceBusy("rolled back by the test")

    async def _kill(self, pid: int, number: int) -> None:
        for _ in range(number):
            await asyncio.sleep(0)
        await self._admin.fetch("SELECT pg_terminate_backend($1)", pid)

    async def die(self, session: Any, number: int) -> None:
        names = [PartitionName(f"q{number % 2}", f"p{index}") for index in range(number % 3 + 1)]
        partitions = await log.ensure_partitions(session, DEFAULT_SCOPE, names)
        group = await create_group(session, f"q{number % 2}", GROUPS[number % 2])
        segments = [
            Segment(ids.partition_id, [str(new_id()) for _ in range(3)], [None] * 3, [None] * 3, [b"1"] * 3)
            for ids in sorted(partitions.values(), key=lambda ids: ids.partition_id)
        ]
        await log.push(session, segments)
        lease_id = new_id()
        rows = await log.pop(session, group.group_id, [PopRequest(lease_id, 20, 3)], lease_ms=60_000)
        acks = [
            Ack(row["partition_id"], group.group_id, lease_id, str(key), "dlq", f"error {'abc'[number % 3]}")
            for row in rows
            if row["request"]
            for key in row["message_ids"]
        ]
        await log.ack(session, acks)

    async def requeue(self, session: Any, number: int) -> None:
        await DeadLetterStore(session).requeue(await self._recent_dead_letter_ids(session, number))

    async def delete(self, session: Any, number: int) -> None:
        for dead_letter_id in await self._recent_dead_letter_ids(session, number):
            await DeadLetterStore(session).delete(DEFAULT_SCOPE, dead_letter_id)

    async def drop_message(self, session: Any, number: int) -> None:
        for dead_letter_id in (await self._recent_dead_letter_ids(session, number))[:1]:
            await session.fetch(
                "SELECT delete_message_v1(partition_id, transaction_id) FROM dead_letters WHERE id = $1",
                dead_letter_id,
            )

    async def purge(self, session: Any, number: int) -> None:
        await self._job(session, "purge", number)

    async def requeue_job(self, session: Any, number: int) -> None:
        await self._job(session, "requeue", number)

    async def _job(self, session: Any, kind: str, number: int) -> None:
        which = (
            DeadLetterFilter(),
            DeadLetterFilter(queue="q1"),
            DeadLetterFilter(group="h"),
            DeadLetterFilter(error="B"),
        )[number % 4]
        owner: UUID = uuid4()
        made = await JobStore(session).create(DEFAULT_SCOPE, kind, which)
        await session.fetch("UPDATE jobs SET owner = $2, state = 'running' WHERE id = $1", made.id, owner)
        for _ in range(number):
            await JobStore(session).advance(made.id, owner, 3, 10, kind == "requeue")

    async def fold(self, session: Any, number: int) -> None:
        await dead_letter_counts.fold_deltas(session)

    async def recount(self, session: Any, number: int) -> None:
        for _ in range(number):
            assert (await dead_letter_counts.recount(session)).drift == 0

    async def group(self, session: Any, number: int) -> None:
        """Backfill error keys, or remove some as in a database that was just migrated."""
        if number:
            await dead_letter_counts.assign_error_keys(session)
            return
        await session.fetch(
            """WITH progress AS (
                        UPDATE dead_letter_maintenance SET backfilled_to_id = 0,
                               backfill_end_id = coalesce((SELECT max(id) FROM dead_letters), 0)),
                    old AS (UPDATE dead_letters SET error_key = NULL WHERE id IN (
                                SELECT id FROM dead_letters WHERE error_key IS NOT NULL
                                ORDER BY id LIMIT 5 FOR UPDATE SKIP LOCKED)
                            RETURNING queue_id, group_id,
                                      (SELECT d.error_key FROM dead_letters d
                                       WHERE d.id = dead_letters.id) AS key,
                                      date_bin('1 hour', failed_at, '2000-01-01T00:00:00Z') AS hour)
               INSERT INTO dead_tallies (queue_id, group_id, error_key, hour, messages)
               SELECT queue_id, group_id, key, hour, -1 FROM old
               UNION ALL
               SELECT queue_id, group_id, '00000000-0000-0000-0000-000000000000', '-infinity', 1 FROM old"""
        )

    async def _recent_dead_letter_ids(self, session: Any, number: int) -> list[int]:
        rows = await session.fetch("SELECT id FROM dead_letters ORDER BY id DESC OFFSET $1 LIMIT $1", number)
        return [row["id"] for row in rows]


def test_counts_equal_the_rows_after_concurrent_changes(database_url: str) -> None:
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        database = Database(database_url, 2)

        class CountedWorker(Worker):
            """Counts the steps of this test alone."""

        worker = CountedWorker

        async def example(plans: list[list[tuple[str, int, str]]]) -> None:
            await asyncio.gather(*(worker(database_url, database).run(plan) for plan in plans))
            assert await wrong_counts(database) == []

        @settings(
            max_examples=EXAMPLES,
            derandomize=not LONG_RUN,
            database=None,
            deadline=None,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
        )
        @given(st.tuples(change_lists, change_lists, change_lists, maintenance_lists))
        def examples(plans: tuple[list[tuple[str, int, str]], ...]) -> None:
            runner.run(example(list(plans)))

        async def finish_maintenance() -> None:
            while await dead_letter_counts.assign_error_keys(database):
                pass
            assert await recount(database) == 0
            while await dead_letter_counts.fold_deltas(database):
                pass
            assert await recount(database) == 0
            assert await wrong_counts(database) == []
            assert (await database.fetch("SELECT count(*) AS n FROM dead_drifts"))[0]["n"] == 0

        try:
            examples()
            runner.run(finish_maintenance())
        finally:
            runner.run(database.close())
        assert worker.completed_steps > 10 * EXAMPLES, "too few steps for a meaningful result"
        assert worker.crashes > EXAMPLES, "too few crashes for a meaningful result"
