"""Who is woken by what."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from redis.asyncio import Redis

from penstock.runqueue.task_wakeups import ANY, Wakeups


@pytest.fixture
def wakeups() -> Wakeups:
    return Wakeups("redis://127.0.0.1:1", Redis(port=1))


@pytest.mark.parametrize(
    ("told", "woken"),
    [
        ("o/p/e/mail", {"o/p/e/mail", "o/p/e/", ANY}),
        ("o/p/e/", {"o/p/e/mail", "o/p/e/calls", "o/p/e/", ANY}),
        ("o/p/f/mail", {"o/p/f/mail", ANY}),
        ("o/p/g/mail", {ANY}),
    ],
)
def test_a_word_wakes_those_it_concerns(wakeups: Wakeups, told: str, woken: set[str]) -> None:
    names = ["o/p/e/mail", "o/p/e/calls", "o/p/e/", "o/p/f/mail", ANY]
    with ExitStack() as stack:
        waiters = {name: stack.enter_context(wakeups.waiting(name)) for name in names}
        wakeups.told(told)
        assert {name for name, waiter in waiters.items() if waiter.woken} == woken
        for waiter in waiters.values():
            waiter.rest()


def test_one_of_many_is_woken_and_the_next_by_the_next_word(wakeups: Wakeups) -> None:
    with ExitStack() as stack:
        waiters = [stack.enter_context(wakeups.waiting("o/p/e/mail")) for _ in range(3)]
        wakeups.told("o/p/e/mail")
        assert [waiter.woken for waiter in waiters] == [True, False, False]
        wakeups.told("o/p/e/mail")
        assert [waiter.woken for waiter in waiters] == [True, True, False]
        assert wakeups.number == 3
        for waiter in waiters:
            waiter.rest()
    assert wakeups.number == 0


def test_one_who_leaves_without_looking_passes_it_on(wakeups: Wakeups) -> None:
    with wakeups.waiting("o/p/e/mail") as staying:
        with wakeups.waiting("o/p/e/mail") as leaving:
            staying.wake()
            wakeups.told("o/p/e/mail")
            assert leaving.woken
            staying.rest()
        assert staying.woken


async def test_who_is_dismissed_waits_no_longer(wakeups: Wakeups) -> None:
    with wakeups.waiting("o/p/e/mail") as waiter:
        assert not await waiter.wait(0)
        wakeups.dismiss_all()
        assert await waiter.wait(5)
        assert waiter.dismissed
