"""Merged script calls: an idle shard is called at once, and results without a caller are abandoned."""

from __future__ import annotations

import asyncio

import pytest

from penstock.runqueue.script_batcher import ScriptBatcher


class RecordedCalls:
    """Executes a call per permit, and records which items came together."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, list[int]]] = []
        self.permits = asyncio.Semaphore(0)
        self.abandoned: list[int] = []

    async def execute(self, shard: int, items: list[int]) -> list[int]:
        self.calls.append((shard, items))
        await self.permits.acquire()
        if -1 in items:
            raise ValueError("no")
        return [item * 10 for item in items]

    async def abandon(self, shard: int, results: list[int]) -> None:
        self.abandoned += results


async def run_event_loop() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_calls_that_arrive_while_one_is_in_flight_are_merged() -> None:
    calls = RecordedCalls()
    batcher = ScriptBatcher(calls.execute)
    tasks = [asyncio.create_task(batcher.submit(0, [0, 100]))]
    other_shard = asyncio.create_task(batcher.submit(1, [7]))
    await run_event_loop()
    tasks += [asyncio.create_task(batcher.submit(0, [n, n + 100])) for n in range(1, 5)]
    await run_event_loop()
    assert calls.calls == [(0, [0, 100]), (1, [7])], "the first of each shard goes at once"
    for _ in range(3):
        calls.permits.release()
    assert await asyncio.gather(*tasks) == [[n * 10, (n + 100) * 10] for n in range(5)]
    assert await other_shard == [70]
    assert calls.calls[2:] == [(0, [1, 101, 2, 102, 3, 103, 4, 104])]
    await batcher.drain()


async def test_a_call_is_bounded_but_never_refuses_a_large_request() -> None:
    calls = RecordedCalls()
    batcher = ScriptBatcher(calls.execute, max_weight=3)
    for _ in range(9):
        calls.permits.release()
    await asyncio.gather(*(batcher.submit(0, [0] * size) for size in (1, 5, 1, 2, 1)))
    assert [len(items) for _, items in calls.calls] == [1, 5, 3, 1]
    calls.calls.clear()
    await asyncio.gather(*(batcher.submit(0, [0], weight=2) for _ in range(3)))
    assert [len(items) for _, items in calls.calls] == [1, 1, 1]


async def test_a_failure_reaches_every_caller_of_its_batch_and_no_other() -> None:
    calls = RecordedCalls()
    batcher = ScriptBatcher(calls.execute)
    tasks = [asyncio.create_task(batcher.submit(0, [1]))]
    await run_event_loop()
    tasks += [asyncio.create_task(batcher.submit(0, [n])) for n in (-1, 2)]
    await run_event_loop()
    for _ in range(2):
        calls.permits.release()
    assert await tasks[0] == [10]
    for task in tasks[1:]:
        with pytest.raises(ValueError, match="no"):
            await task
    calls.permits.release()
    assert await batcher.submit(0, [3]) == [30]


async def test_the_results_of_a_cancelled_caller_are_abandoned() -> None:
    calls = RecordedCalls()
    batcher = ScriptBatcher(calls.execute, calls.abandon)
    kept = asyncio.create_task(batcher.submit(0, [1]))
    await run_event_loop()
    cancelled = asyncio.create_task(batcher.submit(0, [2, 3]))
    await run_event_loop()
    cancelled.cancel()
    for _ in range(2):
        calls.permits.release()
    assert await kept == [10]
    await batcher.drain()
    assert calls.abandoned == [20, 30]
    assert cancelled.cancelled()
