"""Parked pops: who is woken, in which order, and that no wake-up is lost."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

import pytest

from penstock.broker.wakeups import ParkedPops, PopWatch


class Parked:
    """Pops that wait on one queue and group, and the order in which they were woken."""

    def __init__(self, waiters: ParkedPops) -> None:
        self.parked_pops = waiters
        self.woken: list[str] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def park(
        self, *names: str, queue_id: int = 1, group: str = "g", partition_id: int | None = None
    ) -> None:
        for name in names:
            self.tasks[name] = asyncio.create_task(self._wait(name, queue_id, group, partition_id))
            await steps()

    async def _wait(self, name: str, queue_id: int, group: str, partition_id: int | None) -> None:
        with self.parked_pops.watch([queue_id], group, partition_id) as watch:
            if await self.parked_pops.park(watch, 60):
                self.woken.append(name)

    async def gone(self) -> None:
        for task in self.tasks.values():
            task.cancel()
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)
        assert self.parked_pops.count == 0


async def steps(count: int = 6) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.fixture
async def waiters() -> ParkedPops:
    return ParkedPops()


@pytest.fixture
async def parked(waiters: ParkedPops) -> Parked:
    return Parked(waiters)


async def test_one_push_wakes_one_and_those_who_wait_longest_come_first(
    waiters: ParkedPops, parked: Parked
) -> None:
    await parked.park("a", "b", "c")
    assert waiters.count == 3
    waiters.wake(1)
    await steps()
    assert parked.woken == ["a"]
    waiters.wake(1, 2)
    await steps()
    assert parked.woken == ["a", "b", "c"]
    await parked.gone()


async def test_every_group_of_a_queue_is_woken_and_no_other_queue(waiters: ParkedPops, parked: Parked) -> None:
    await parked.park("a", "b")
    await parked.park("other group", group="h")
    await parked.park("other queue", queue_id=2)
    waiters.wake(1)
    await steps()
    assert parked.woken == ["a", "other group"]
    await parked.gone()


async def test_a_pop_of_one_partition_is_woken_for_that_one_and_takes_nobodys_turn(
    waiters: ParkedPops, parked: Parked
) -> None:
    await parked.park("x", "x again", partition_id=7)
    await parked.park("y", partition_id=8)
    await parked.park("any", "any too")
    waiters.wake(1, 1, {8, 9})
    await steps()
    assert parked.woken == ["any", "y"]
    waiters.wake(1, 1)
    await steps()
    assert sorted(parked.woken) == ["any", "any too", "x", "y"], (
        "where is not known, so one for each partition looks"
    )
    waiters.wake_in(1, "g", 0.0, 7)
    async with asyncio.timeout(5):
        await parked.tasks["x again"]


async def test_a_wake_up_between_the_look_and_the_parking_is_not_lost(waiters: ParkedPops) -> None:
    with waiters.watch([1], "g") as watch:
        waiters.wake(1)
        async with asyncio.timeout(5):
            assert await waiters.park(watch, 60)
        assert not await waiters.park(watch, 0.001), "it counts once"


async def test_a_pop_that_is_looking_does_not_take_the_wake_ups_of_those_behind_it(
    waiters: ParkedPops, parked: Parked
) -> None:
    with waiters.watch([1], "g"):
        await parked.park("a", "b")
        waiters.wake(1)
        waiters.wake(1)
        await steps()
        assert parked.woken == ["a"], "the first call is remembered for the one that is looking"
    await parked.gone()


async def test_a_wake_up_left_behind_goes_to_the_next(waiters: ParkedPops, parked: Parked) -> None:
    with waiters.watch([1], "g"):
        await parked.park("a")
        waiters.wake(1)
        await steps()
        assert parked.woken == []
    await steps()
    assert parked.woken == ["a"], "the one that was called has left without looking again"
    await parked.gone()


async def test_a_wake_up_that_comes_as_the_time_runs_out_goes_to_the_next(
    waiters: ParkedPops, parked: Parked
) -> None:
    await parked.park("first", "second")
    parked.tasks["first"].cancel()
    waiters.wake(1)
    await steps()
    assert parked.woken == ["second"]
    await parked.gone()


async def test_it_gives_up_after_its_time(waiters: ParkedPops) -> None:
    with waiters.watch([1], "g") as watch:
        assert not await waiters.park(watch, 0.001)
    assert waiters.count == 0


async def test_the_woken_goes_to_the_end_of_the_line(waiters: ParkedPops) -> None:
    """Who was called and found nothing does not take the next call before those who were not called."""
    calls: list[str] = []

    async def keep_looking(name: str, watch: PopWatch) -> None:
        while await waiters.park(watch, 60):
            calls.append(name)

    with ExitStack() as stack:
        tasks = []
        for name in "abc":
            watch = stack.enter_context(waiters.watch([1], "g"))
            tasks.append(asyncio.create_task(keep_looking(name, watch)))
            await steps()
        for _ in range(7):
            waiters.wake(1)
            await steps()
        assert calls == list("abcabca")
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_all_look_again_when_word_may_have_been_missed(waiters: ParkedPops, parked: Parked) -> None:
    await parked.park("a", "b")
    await parked.park("c", queue_id=2)
    await parked.park("d", group="h")
    waiters.wake_all()
    await steps()
    assert sorted(parked.woken) == ["a", "b", "c", "d"]


async def test_a_pop_of_several_queues_is_woken_by_any_and_leaves_all(waiters: ParkedPops) -> None:
    async def wait() -> bool:
        with waiters.watch([1, 2, 3], "g") as watch:
            return await waiters.park(watch, 60)

    task = asyncio.create_task(wait())
    await steps()
    waiters.wake(2)
    async with asyncio.timeout(5):
        assert await task
    assert waiters._watch_lists == {}


async def test_a_timer_rings_for_one_and_the_earliest_counts(waiters: ParkedPops, parked: Parked) -> None:
    await parked.park("a", "b")
    loop = asyncio.get_running_loop()
    started = loop.time()
    waiters.wake_in(1, "g", 60)
    waiters.wake_in(1, "g", 0.01)
    waiters.wake_in(1, "g", 30)
    async with asyncio.timeout(5):
        await parked.tasks["a"]
    assert loop.time() - started >= 0.01
    assert parked.woken == ["a"]
    await parked.gone()
    assert waiters._timers == {}, "a timer nobody waits for is taken down"


async def test_a_moment_that_has_passed_rings_at_once(waiters: ParkedPops, parked: Parked) -> None:
    await parked.park("a")
    waiters.wake_in(1, "g", -5)
    async with asyncio.timeout(5):
        await parked.tasks["a"]
    assert parked.woken == ["a"]


async def test_nothing_is_kept_of_pops_that_have_left(waiters: ParkedPops, parked: Parked) -> None:
    await parked.park(*(f"pop {n}" for n in range(50)))
    await parked.gone()
    assert (waiters._watch_lists, waiters._timers) == ({}, {})


async def test_a_broker_about_to_stop_lets_all_go(waiters: ParkedPops) -> None:
    async def wait() -> bool:
        with waiters.watch([1], "g") as watch:
            return await waiters.park(watch, 60)

    tasks = [asyncio.create_task(wait()) for _ in range(3)]
    await steps()
    waiters.wake_all_for_shutdown()
    async with asyncio.timeout(5):
        assert await asyncio.gather(*tasks, wait()) == [False] * 4, "nor does anybody begin to wait"
