"""More calls at once than there are connections."""

from __future__ import annotations

import asyncio

from penstock.model import Scope
from penstock.runqueue.connection import MOST_CONNECTIONS
from penstock.runqueue.queue import RunQueues
from penstock.runqueue.task_model import NewTask

CROWD = 5 * MOST_CONNECTIONS


async def test_the_first_calls_of_a_process_come_together_and_all_are_carried_out(
    queues: RunQueues, scope: Scope
) -> None:
    async with asyncio.TaskGroup() as group:
        for number in range(CROWD):
            group.create_task(queues.enqueue(scope, "q", [NewTask(str(number).encode())]))
    assert (await queues.queue(scope, "q")).eligible == CROWD


async def test_calls_that_do_not_travel_together_wait_for_a_connection(
    queues: RunQueues, scope: Scope
) -> None:
    await queues.enqueue(scope, "q", [NewTask()])
    answers = await asyncio.gather(*(queues.has_queue(scope, "q") for _ in range(CROWD)))
    assert answers == [True] * CROWD
