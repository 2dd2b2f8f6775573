"""More concurrent calls than the pool has connections."""

from __future__ import annotations

import asyncio

from penstock.model import Scope
from penstock.runqueue.connection import MAX_CONNECTIONS
from penstock.runqueue.queue import RunQueues
from penstock.runqueue.task_model import NewTask

CALLS = 5 * MAX_CONNECTIONS


async def test_the_first_concurrent_calls_of_a_process_all_succeed(queues: RunQueues, scope: Scope) -> None:
    async with asyncio.TaskGroup() as group:
        for number in range(CALLS):
            group.create_task(queues.enqueue(scope, "q", [NewTask(str(number).encode())]))
    assert (await queues.get_queue(scope, "q")).eligible == CALLS


async def test_calls_that_are_not_merged_wait_for_a_connection(queues: RunQueues, scope: Scope) -> None:
    await queues.enqueue(scope, "q", [NewTask()])
    results = await asyncio.gather(*(queues.has_queue(scope, "q") for _ in range(CALLS)))
    assert results == [True] * CALLS
