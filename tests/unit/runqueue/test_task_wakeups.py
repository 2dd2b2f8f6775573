"""Which waiters a notification wakes."""

from __future__ import annotations

import pytest
from redis.asyncio import Redis

from penstock.caller import LOCAL_CALLER
from penstock.runqueue.task_wakeups import ANY_ENVIRONMENT, TaskWaiter, TaskWakeups


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
    waiters = [add_waiter(wakeups, name) for name in names]
    wakeups.notify(notified)
    assert {waiter.name for waiter in waiters if waiter.is_woken} == woken


def test_each_notification_wakes_one_more_waiter(wakeups: TaskWakeups) -> None:
    waiters = [add_waiter(wakeups, "o/p/e/mail") for _ in range(3)]
    wakeups.notify("o/p/e/mail")
    assert [waiter.is_woken for waiter in waiters] == [True, False, False]
    wakeups.notify("o/p/e/mail")
    assert [waiter.is_woken for waiter in waiters] == [True, True, False]
    assert wakeups.waiter_count == 3
    for waiter in waiters:
        wakeups.remove(waiter)
    assert wakeups.waiter_count == 0


def test_a_waiter_that_leaves_without_retrying_wakes_another(wakeups: TaskWakeups) -> None:
    leaving, staying = add_waiter(wakeups, "o/p/e/mail"), add_waiter(wakeups, "o/p/e/mail")
    wakeups.notify("o/p/e/mail")
    assert (leaving.is_woken, staying.is_woken) == (True, False)
    wakeups.remove(leaving)
    assert staying.is_woken


def test_a_released_waiter_stops_waiting(wakeups: TaskWakeups) -> None:
    waiter = add_waiter(wakeups, "o/p/e/mail")
    wakeups.release_all()
    assert waiter.is_woken
    assert waiter.is_released


def add_waiter(wakeups: TaskWakeups, name: str) -> TaskWaiter:
    waiter = TaskWaiter(name, LOCAL_CALLER)
    wakeups.add(waiter)
    return waiter
