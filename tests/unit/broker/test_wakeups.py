"""Parked pops: which of them wake, in which order, and that no wake-up is lost."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

import pytest

from penstock.broker.wakeups import ParkedPops, PopWatch
from tests.deadlines import deadline_s


class WaitingPops:
    """Starts waiting pops and records the order in which they wake."""

    def __init__(self, parked_pops: ParkedPops) -> None:
        self.parked_pops = parked_pops
        self.woken: list[str] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def start(
        self, *names: str, queue_id: int = 1, group: str = "g", partition_id: int | None = None
    ) -> None:
        for name in names:
            self.tasks[name] = asyncio.create_task(self._wait(name, queue_id, group, partition_id))
            await run_event_loop()

    async def _wait(self, name: str, queue_id: int, group: str, partition_id: int | None) -> None:
        with self.parked_pops.watch([queue_id], group, partition_id) as watch:
            if await self.parked_pops.park(watch, 60):
                self.woken.append(name)

    async def stop(self) -> None:
        for task in self.tasks.values():
            task.cancel()
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)
        assert self.parked_pops.count == 0


async def run_event_loop(iterations: int = 6) -> None:
    """Let other tasks run, without any time passing."""
    for _ in range(iterations):
        await asyncio.sleep(0)


@pytest.fixture
async def parked_pops() -> ParkedPops:
    return ParkedPops()


@pytest.fixture
async def pops(parked_pops: ParkedPops) -> WaitingPops:
    return WaitingPops(parked_pops)


async def test_a_wake_up_wakes_the_pop_that_has_waited_longest(
    parked_pops: ParkedPops, pops: WaitingPops
) -> None:
    await pops.start("a", "b", "c")
    assert parked_pops.count == 3
    parked_pops.wake(1)
    await run_event_loop()
    assert pops.woken == ["a"]
    parked_pops.wake(1, 2)
    await run_event_loop()
    assert pops.woken == ["a", "b", "c"]
    await pops.stop()


async def test_every_group_of_a_queue_wakes_and_no_other_queue(
    parked_pops: ParkedPops, pops: WaitingPops
) -> None:
    await pops.start("a", "b")
    await pops.start("other group", group="h")
    await pops.start("other queue", queue_id=2)
    parked_pops.wake(1)
    await run_event_loop()
    assert pops.woken == ["a", "other group"]
    await pops.stop()


async def test_a_pop_of_one_partition_wakes_for_that_partition_and_uses_up_no_other_wake_up(
    parked_pops: ParkedPops, pops: WaitingPops
) -> None:
    await pops.start("x", "x again", partition_id=7)
    await pops.start("y", partition_id=8)
    await pops.start("any", "any too")
    parked_pops.wake(1, 1, {8, 9})
    await run_event_loop()
    assert pops.woken == ["any", "y"]
    parked_pops.wake(1, 1)
    await run_event_loop()
    assert sorted(pops.woken) == ["any", "any too", "x", "y"], (
        "the partition is unknown, so one pop of each partition wakes"
    )
    parked_pops.wake_in(1, "g", 0.0, 7)
    async with asyncio.timeout(deadline_s(5)):
        await pops.tasks["x again"]


async def test_a_wake_up_between_reading_and_parking_is_not_lost(parked_pops: ParkedPops) -> None:
    with parked_pops.watch([1], "g") as watch:
        parked_pops.wake(1)
        async with asyncio.timeout(deadline_s(5)):
            assert await parked_pops.park(watch, 60)
        assert not await parked_pops.park(watch, 0.001), "it counts once"


async def test_a_reading_pop_takes_one_wake_up_and_leaves_the_next_to_others(
    parked_pops: ParkedPops, pops: WaitingPops
) -> None:
    with parked_pops.watch([1], "g"):
        await pops.start("a", "b")
        parked_pops.wake(1)
        parked_pops.wake(1)
        await run_event_loop()
        assert pops.woken == ["a"], "the first wake-up is recorded for the pop that is reading"
    await pops.stop()


async def test_an_unused_wake_up_goes_to_the_next_pop(parked_pops: ParkedPops, pops: WaitingPops) -> None:
    with parked_pops.watch([1], "g"):
        await pops.start("a")
        parked_pops.wake(1)
        await run_event_loop()
        assert pops.woken == []
    await run_event_loop()
    assert pops.woken == ["a"], "the woken pop ended without reading again"
    await pops.stop()


async def test_a_wake_up_of_a_cancelled_pop_goes_to_the_next_pop(
    parked_pops: ParkedPops, pops: WaitingPops
) -> None:
    await pops.start("first", "second")
    pops.tasks["first"].cancel()
    parked_pops.wake(1)
    await run_event_loop()
    assert pops.woken == ["second"]
    await pops.stop()


async def test_a_parked_pop_ends_after_its_timeout(parked_pops: ParkedPops) -> None:
    with parked_pops.watch([1], "g") as watch:
        assert not await parked_pops.park(watch, 0.001)
    assert parked_pops.count == 0


async def test_a_woken_pop_moves_to_the_end_of_the_list(parked_pops: ParkedPops) -> None:
    """A pop that wakes and finds nothing does not take the next wake-up before the other pops."""
    wakeups: list[str] = []

    async def park_repeatedly(name: str, watch: PopWatch) -> None:
        while await parked_pops.park(watch, 60):
            wakeups.append(name)

    with ExitStack() as stack:
        tasks = []
        for name in "abc":
            watch = stack.enter_context(parked_pops.watch([1], "g"))
            tasks.append(asyncio.create_task(park_repeatedly(name, watch)))
            await run_event_loop()
        for _ in range(7):
            parked_pops.wake(1)
            await run_event_loop()
        assert wakeups == list("abcabca")
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_wake_all_wakes_every_queue_and_group(parked_pops: ParkedPops, pops: WaitingPops) -> None:
    await pops.start("a", "b")
    await pops.start("c", queue_id=2)
    await pops.start("d", group="h")
    parked_pops.wake_all()
    await run_event_loop()
    assert sorted(pops.woken) == ["a", "b", "c", "d"]


async def test_any_of_its_queues_wakes_a_pop_of_several_queues(parked_pops: ParkedPops) -> None:
    async def wait() -> bool:
        with parked_pops.watch([1, 2, 3], "g") as watch:
            return await parked_pops.park(watch, 60)

    task = asyncio.create_task(wait())
    await run_event_loop()
    parked_pops.wake(2)
    async with asyncio.timeout(deadline_s(5)):
        assert await task
    assert parked_pops.watch_lists == {}


async def test_a_timer_wakes_one_pop_at_the_earliest_time(parked_pops: ParkedPops, pops: WaitingPops) -> None:
    await pops.start("a", "b")
    loop = asyncio.get_running_loop()
    started = loop.time()
    parked_pops.wake_in(1, "g", 60)
    parked_pops.wake_in(1, "g", 0.01)
    parked_pops.wake_in(1, "g", 30)
    async with asyncio.timeout(deadline_s(5)):
        await pops.tasks["a"]
    assert loop.time() - started >= 0.01
    assert pops.woken == ["a"]
    await pops.stop()
    assert parked_pops._timers == {}, "a timer without waiting pops is cancelled"


async def test_a_timer_in_the_past_wakes_at_once(parked_pops: ParkedPops, pops: WaitingPops) -> None:
    await pops.start("a")
    parked_pops.wake_in(1, "g", -5)
    async with asyncio.timeout(deadline_s(5)):
        await pops.tasks["a"]
    assert pops.woken == ["a"]


async def test_nothing_is_kept_of_cancelled_pops(parked_pops: ParkedPops, pops: WaitingPops) -> None:
    await pops.start(*(f"pop {n}" for n in range(50)))
    await pops.stop()
    assert (parked_pops.watch_lists, parked_pops._timers) == ({}, {})


async def test_a_shutdown_wakes_all_pops_and_lets_none_park_again(parked_pops: ParkedPops) -> None:
    async def wait() -> bool:
        with parked_pops.watch([1], "g") as watch:
            return await parked_pops.park(watch, 60)

    tasks = [asyncio.create_task(wait()) for _ in range(3)]
    await run_event_loop()
    parked_pops.wake_all_for_shutdown()
    async with asyncio.timeout(deadline_s(5)):
        assert await asyncio.gather(*tasks, wait()) == [False] * 4
