"""Which waiters a notification wakes."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from redis.asyncio import Redis

from penstock.runqueue.task_wakeups import ANY_ENVIRONMENT, TaskWakeups


@pytest.fixture
def wakeups() -> TaskWakeups:
    return TaskWakeups("redis://127.0.0.1:1", Redis(port=1))


@pytest.mark.parametrize(
    ("notified", "woken"),
    [
        ("o/p/e/mail", {"o/p/e/mail", "o/p/e/", ANY_ENVIRONMENT}),
        ("o/p/e/", {"o/p/e/mail", "o/p/e/calls", "o/p/e/", ANY_ENVIRONMENT}),
        ("o/p/f/mail", {"o/p/f/mail", ANY_ENVIRONMENT}),
        ("o/p/g/mail", {ANY_ENVIRONMENT}),
    ],
)
def test_a_notification_wakes_the_waiters_it_concerns(
    wakeups: TaskWakeups, notified: str, woken: set[str]
) -> None:
    names = ["o/p/e/mail", "o/p/e/calls", "o/p/e/", "o/p/f/mail", ANY_ENVIRONMENT]
    with ExitStack() as stack:
        waiters = {name: stack.enter_context(wakeups.register(name)) for name in names}
        wakeups.notify(notified)
        assert {name for name, waiter in waiters.items() if waiter.is_woken} == woken
        for waiter in waiters.values():
            waiter.reset()


def test_each_notification_wakes_one_more_waiter(wakeups: TaskWakeups) -> None:
    with ExitStack() as stack:
        waiters = [stack.enter_context(wakeups.register("o/p/e/mail")) for _ in range(3)]
        wakeups.notify("o/p/e/mail")
        assert [waiter.is_woken for waiter in waiters] == [True, False, False]
        wakeups.notify("o/p/e/mail")
        assert [waiter.is_woken for waiter in waiters] == [True, True, False]
        assert wakeups.waiter_count == 3
        for waiter in waiters:
            waiter.reset()
    assert wakeups.waiter_count == 0


def test_a_waiter_that_leaves_without_retrying_wakes_another(wakeups: TaskWakeups) -> None:
    with wakeups.register("o/p/e/mail") as staying:
        with wakeups.register("o/p/e/mail") as leaving:
            staying.wake()
            wakeups.notify("o/p/e/mail")
            assert leaving.is_woken
            staying.reset()
        assert staying.is_woken


async def test_a_released_waiter_stops_waiting(wakeups: TaskWakeups) -> None:
    with wakeups.register("o/p/e/mail") as waiter:
        assert not await waiter.wait(0)
        wakeups.release_all()
        assert await waiter.wait(5)
        assert waiter.is_released
