"""Merging calls: none waits for company, none is lost, and what nobody takes is given up."""

from __future__ import annotations

import asyncio

import pytest

from penstock.runqueue.merging import Merger


class Calls:
    """Executes when it is told to, and remembers what came together."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, list[int]]] = []
        self.go = asyncio.Semaphore(0)
        self.abandoned: list[int] = []

    async def execute(self, shard: int, items: list[int]) -> list[int]:
        self.calls.append((shard, items))
        await self.go.acquire()
        if -1 in items:
            raise ValueError("no")
        return [item * 10 for item in items]

    async def give_up(self, shard: int, results: list[int]) -> None:
        self.abandoned += results


async def steps() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_calls_that_come_while_one_is_on_its_way_travel_together() -> None:
    calls = Calls()
    merger = Merger(calls.execute)
    tasks = [asyncio.create_task(merger.submit(0, [0, 100]))]
    other = asyncio.create_task(merger.submit(1, [7]))
    await steps()
    tasks += [asyncio.create_task(merger.submit(0, [n, n + 100])) for n in range(1, 5)]
    await steps()
    assert calls.calls == [(0, [0, 100]), (1, [7])], "the first of each shard goes at once"
    for _ in range(3):
        calls.go.release()
    assert await asyncio.gather(*tasks) == [[n * 10, (n + 100) * 10] for n in range(5)]
    assert await other == [70]
    assert calls.calls[2:] == [(0, [1, 101, 2, 102, 3, 103, 4, 104])]
    await merger.drain()


async def test_a_call_is_bounded_but_never_refuses_a_large_request() -> None:
    calls = Calls()
    merger = Merger(calls.execute, most=3)
    for _ in range(9):
        calls.go.release()
    await asyncio.gather(*(merger.submit(0, [0] * size) for size in (1, 5, 1, 2, 1)))
    assert [len(items) for _, items in calls.calls] == [1, 5, 3, 1]
    calls.calls.clear()
    await asyncio.gather(*(merger.submit(0, [0], weight=2) for _ in range(3)))
    assert [len(items) for _, items in calls.calls] == [1, 1, 1]


async def test_a_failure_reaches_all_who_travelled_together_and_nobody_else() -> None:
    calls = Calls()
    merger = Merger(calls.execute)
    tasks = [asyncio.create_task(merger.submit(0, [1]))]
    await steps()
    tasks += [asyncio.create_task(merger.submit(0, [n])) for n in (-1, 2)]
    await steps()
    for _ in range(2):
        calls.go.release()
    assert await tasks[0] == [10]
    for task in tasks[1:]:
        with pytest.raises(ValueError, match="no"):
            await task
    calls.go.release()
    assert await merger.submit(0, [3]) == [30]


async def test_what_a_caller_who_left_would_have_got_is_given_up() -> None:
    calls = Calls()
    merger = Merger(calls.execute, calls.give_up)
    staying = asyncio.create_task(merger.submit(0, [1]))
    await steps()
    leaving = asyncio.create_task(merger.submit(0, [2, 3]))
    await steps()
    leaving.cancel()
    for _ in range(2):
        calls.go.release()
    assert await staying == [10]
    await merger.drain()
    assert calls.abandoned == [20, 30]
    assert leaving.cancelled()
